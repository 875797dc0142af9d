//! What has to be written so that a Placement's decisions and status are as evaluated. Nothing, where
//! they are.

use super::{
    Evaluation,
    conditions::Condition,
    groups::Slice,
    hub::{Decision, Hub, PLACEMENT_LABEL},
    spec::Placement,
};
use crate::domain::{ids::ClusterName, queue::selector::Labels};

pub const GROUP_NAME_LABEL: &str = "cluster.open-cluster-management.io/decision-group-name";
pub const GROUP_INDEX_LABEL: &str = "cluster.open-cluster-management.io/decision-group-index";

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Made without its decisions, which are its status: [`Change::Decide`] follows.
    Create {
        name: String,
        labels: Labels,
    },
    Label {
        name: String,
        labels: Labels,
    },
    Decide {
        name: String,
        clusters: Vec<ClusterName>,
    },
    Delete {
        name: String,
    },
    /// The Placement's own status.
    Report(Report),
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    pub selected: usize,
    pub groups: Vec<GroupReport>,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupReport {
    pub index: usize,
    pub name: String,
    pub decisions: Vec<String>,
    pub clusters: usize,
}

/// What an evaluation leads to, by name: it holds as long as nothing touches the Placement.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    conditions: Vec<Condition>,
    /// `None`: who the members are is not known, and what was decided stands.
    decided: Option<Decided>,
}

#[derive(Clone, Debug, PartialEq)]
struct Decided {
    selected: usize,
    groups: Vec<GroupReport>,
    slices: Vec<Slice>,
}

impl Desired {
    pub fn of(placement: &Placement, hub: &Hub, evaluation: &Evaluation) -> Self {
        let decided = || {
            let slices = evaluation.groups.slices(placement, hub);
            let groups = group_reports(evaluation, &slices);
            Decided { selected: evaluation.chosen.len(), groups, slices }
        };
        let conditions = evaluation.conditions.all().cloned().collect();
        Self { conditions, decided: evaluation.candidates.problem.is_none().then(decided) }
    }

    /// Changes in the order they are to be written. `reported` is the status that the Placement has.
    pub fn changes(&self, placement: &Placement, hub: &Hub, reported: &Report) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut report = Report { conditions: self.conditions.clone(), ..reported.clone() };
        if let Some(decided) = &self.decided {
            changes.extend(decision_changes(placement, hub, &decided.slices));
            report.selected = decided.selected;
            report.groups.clone_from(&decided.groups);
        }
        if report != *reported {
            changes.push(Change::Report(report));
        }
        changes
    }

    /// The Placement's decisions as they are to be; `None` where they stand.
    pub fn decisions(&self, placement: &Placement) -> Option<Vec<Decision>> {
        let decision = |slice: &Slice| Decision {
            namespace: placement.key.namespace.clone(),
            name: slice.name.clone(),
            labels: labels(placement, slice),
            clusters: slice.clusters.iter().map(ToString::to_string).collect(),
        };
        Some(self.decided.as_ref()?.slices.iter().map(decision).collect())
    }
}

fn decision_changes(placement: &Placement, hub: &Hub, slices: &[Slice]) -> Vec<Change> {
    let mut changes = Vec::new();
    let existing: Vec<&Decision> = hub.decisions_of(&placement.key).collect();
    for slice in slices {
        let name = slice.name.clone();
        let labels = labels(placement, slice);
        let found = existing.iter().find(|decision| decision.name == slice.name);
        let clusters = slice.clusters.clone();
        match found {
            None => {
                changes.push(Change::Create { name: name.clone(), labels });
                if !clusters.is_empty() {
                    changes.push(Change::Decide { name, clusters });
                }
            }
            Some(decision) => {
                let as_decided = decision.clusters.iter().map(String::as_str);
                if !as_decided.eq(clusters.iter().map(ClusterName::as_str)) {
                    changes.push(Change::Decide { name: name.clone(), clusters });
                }
                if labels.iter().any(|(key, value)| decision.labels.get(key) != Some(value)) {
                    changes.push(Change::Label { name, labels });
                }
            }
        }
    }
    let redundant = existing.iter().filter(|decision| slices.iter().all(|slice| slice.name != decision.name));
    changes.extend(redundant.map(|decision| Change::Delete { name: decision.name.clone() }));
    changes
}

pub fn labels(placement: &Placement, slice: &Slice) -> Labels {
    Labels::from([
        (PLACEMENT_LABEL.to_owned(), placement.key.name.to_string()),
        (GROUP_NAME_LABEL.to_owned(), slice.group_name.clone()),
        (GROUP_INDEX_LABEL.to_owned(), slice.group.to_string()),
    ])
}

fn group_reports(evaluation: &Evaluation, slices: &[Slice]) -> Vec<GroupReport> {
    let report = |(index, group): (usize, &super::groups::Group)| GroupReport {
        index,
        name: group.name.clone(),
        decisions: slices
            .iter()
            .filter(|slice| slice.group == index)
            .map(|slice| slice.name.clone())
            .collect(),
        clusters: group.clusters.len(),
    };
    evaluation.groups.groups.iter().enumerate().map(report).collect()
}
