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

/// Changes in the order they are to be written. `reported` is the status that the Placement has.
pub fn changes(placement: &Placement, hub: &Hub, evaluation: &Evaluation, reported: &Report) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut report =
        Report { conditions: evaluation.conditions.all().cloned().collect(), ..reported.clone() };
    // Who the members are is not known: what was decided stands.
    if evaluation.candidates.problem.is_none() {
        let slices = evaluation.groups.slices(placement, hub);
        changes.extend(decision_changes(placement, hub, &slices));
        report.selected = evaluation.chosen.len();
        report.groups = group_reports(evaluation, &slices);
    }
    if report != *reported {
        changes.push(Change::Report(report));
    }
    changes
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
