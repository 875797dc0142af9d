//! What an AdmissionCheck's `Active` condition says.

/// In the words of the OCM addon that fedq stands in for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    Active,
    PlacementNotFound,
    PlacementError,
    MultiKueueConfigError,
    NoClustersAvailable,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Active {
    pub holds: bool,
    pub reason: Reason,
    pub message: String,
    pub observed_generation: i64,
}

impl Reason {
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::PlacementNotFound => "PlacementNotFound",
            Self::PlacementError => "PlacementError",
            Self::MultiKueueConfigError => "MultiKueueConfigError",
            Self::NoClustersAvailable => "NoClustersAvailable",
        }
    }
}

/// Kubernetes takes so many characters of a condition's message.
const MAX_MESSAGE: usize = 32_768;
/// More names than these are counted only.
const MAX_NAMES: usize = 10;

impl Active {
    pub fn yes(message: String, observed_generation: i64) -> Self {
        Self { holds: true, reason: Reason::Active, message, observed_generation }.cut()
    }

    pub fn no(reason: Reason, message: String, observed_generation: i64) -> Self {
        Self { holds: false, reason, message, observed_generation }.cut()
    }

    fn cut(mut self) -> Self {
        if let Some((end, _)) = self.message.char_indices().nth(MAX_MESSAGE) {
            self.message.truncate(end);
        }
        self
    }
}

/// `a, b, c and 5 more`
pub fn some_of(names: &[String]) -> String {
    match names.len().checked_sub(MAX_NAMES) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..MAX_NAMES].join(", ")),
    }
}
