//! What a diagnosis finds: one line a look, with what to do next.

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// What was looked at, such as `reachable`, `credential` or `kueue`.
    pub name: String,
    pub outcome: Outcome,
    pub message: String,
    /// What to do about it.
    pub next: Option<String>,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Outcome {
    Ok,
    Warning,
    Failed,
}
