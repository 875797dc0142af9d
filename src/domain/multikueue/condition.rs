//! What an AdmissionCheck's `Active` condition says.

use super::MAX_CLUSTERS;

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

/// What came of one Placement.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub problem: Option<(Reason, String)>,
    pub overflow: Vec<String>,
    pub draining: Vec<String>,
    pub not_joined: Vec<String>,
    pub unready: Vec<String>,
    pub conflicts: Vec<String>,
    pub ambiguous: Vec<String>,
    pub unwritten: Vec<String>,
}

impl Outcome {
    pub fn failed(reason: Reason, message: String) -> Self {
        Self { problem: Some((reason, message)), ..Self::default() }
    }

    pub fn active(&self, placement: &str, generation: i64) -> Active {
        if let Some((reason, message)) = &self.problem {
            return Active::no(*reason, message.clone(), generation);
        }
        let mut said = vec![format!("MultiKueueConfig {placement} is generated successfully")];
        let left_out = format!("left out, since it takes {MAX_CLUSTERS}");
        said.extend(Self::list(&[(&left_out, &self.overflow), ("draining", &self.draining)]));
        said.extend(Some(self.unusable()).filter(|unusable| !unusable.is_empty()));
        Active::yes(said.join("; "), generation)
    }

    /// Clusters that were decided on, and why Kueue cannot be told to use them.
    pub fn unusable(&self) -> String {
        let reasons = [
            ("not joined", &self.not_joined),
            ("without a credential for Kueue", &self.unready),
            ("of that name, but not fedq's", &self.conflicts),
            ("of one name with another cluster", &self.ambiguous),
            ("not there yet", &self.unwritten),
        ];
        Self::list(&reasons).collect::<Vec<_>>().join("; ")
    }

    fn list<'a>(parts: &'a [(&'a str, &'a Vec<String>)]) -> impl Iterator<Item = String> + 'a {
        let some = parts.iter().filter(|(_, names)| !names.is_empty());
        some.map(|(what, names)| format!("{what}: {}", some_of(names)))
    }
}

/// `a, b, c and 5 more`
pub fn some_of(names: &[String]) -> String {
    match names.len().checked_sub(MAX_NAMES) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..MAX_NAMES].join(", ")),
    }
}
