//! A Placement (`cluster.open-cluster-management.io/v1beta1`) as it was written: nothing is judged yet,
//! since what is wrong becomes a condition and must not hide the Placement.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::selector::LabelSelector;

/// Where a Placement is. `Arc`s, since decisions, scores and maps all name it.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PlacementKey {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl fmt::Display for PlacementKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    pub key: PlacementKey,
    pub uid: String,
    pub generation: i64,
    pub annotations: BTreeMap<String, String>,
    pub deleting: bool,
    /// None: every set that is bound.
    pub cluster_sets: Vec<String>,
    /// None: as many as there are.
    pub number_of_clusters: Option<i32>,
    pub predicates: Vec<Predicate>,
    pub tolerations: Vec<Toleration>,
    pub prioritizer_mode: String,
    pub prioritizers: Vec<PrioritizerConfig>,
    pub spread: Vec<SpreadTerm>,
    pub group_size: GroupSize,
    pub groups: Vec<DecisionGroup>,
}

/// Written by whoever decides this Placement's clusters themselves.
pub const DISABLED: &str = "cluster.open-cluster-management.io/experimental-scheduling-disable";

impl Placement {
    pub fn new(key: PlacementKey) -> Self {
        Self {
            key,
            uid: String::new(),
            generation: 0,
            annotations: BTreeMap::new(),
            deleting: false,
            cluster_sets: Vec::new(),
            number_of_clusters: None,
            predicates: Vec::new(),
            tolerations: Vec::new(),
            prioritizer_mode: String::new(),
            prioritizers: Vec::new(),
            spread: Vec::new(),
            group_size: GroupSize::default(),
            groups: Vec::new(),
        }
    }

    /// Whether OCM's own controller leaves it alone.
    pub fn is_disabled(&self) -> bool {
        self.annotations.get(DISABLED).is_some_and(|value| value == "true")
    }
}

/// All of one must hold; of several predicates, one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predicate {
    pub labels: LabelSelector,
    pub claims: LabelSelector,
    pub cel: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Toleration {
    pub key: String,
    pub operator: String,
    pub value: String,
    /// Empty: any.
    pub effect: String,
    pub seconds: Option<i64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PrioritizerConfig {
    pub coordinate: Option<Coordinate>,
    pub weight: i32,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coordinate {
    /// `BuiltIn` or `AddOn`.
    pub kind: String,
    pub built_in: String,
    pub add_on: Option<AddOnScore>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AddOnScore {
    pub resource: Arc<str>,
    pub score: Arc<str>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SpreadTerm {
    pub key: String,
    pub is_claim: bool,
    pub max_skew: i32,
    /// Whether to choose fewer clusters rather than to be uneven.
    pub strict: bool,
}

/// How many clusters a decision group has.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupSize {
    /// 0 or less: all in one.
    Number(i64),
    /// Anything but a percentage is misconfigured.
    Text(String),
}

impl Default for GroupSize {
    fn default() -> Self {
        Self::Number(0)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecisionGroup {
    pub name: String,
    pub labels: LabelSelector,
    pub claims: LabelSelector,
}
