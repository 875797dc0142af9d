//! What a diagnosis finds: one line a look, with what to do next.

use fedq_values::ids::ClusterName;

use super::overview::Overview;

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

/// Queues of a cluster, or of the hub, whose quota somebody else writes too.
pub fn conflicts(overview: &Overview, cluster: Option<&ClusterName>) -> Vec<Finding> {
    let here = overview.queues.iter().filter_map(|(name, queue)| {
        let conflict = queue.conflicts.get(&cluster.cloned())?;
        Some(Finding {
            name: "quota".to_owned(),
            outcome: Outcome::Warning,
            message: format!("ClusterQueue `{name}`: {}", conflict.message),
            next: Some(conflict.remedy.clone()),
        })
    });
    here.collect()
}
