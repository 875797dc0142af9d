//! What has to be written so that a Placement's decisions and status are as evaluated. Nothing, where
//! they are.

use std::collections::HashMap;

use super::{
    Evaluation,
    conditions::Condition,
    groups::{MAX_DECISIONS, Slice},
    hub::{Decision, Hub, PLACEMENT_LABEL},
    spec::Placement,
};
use crate::queue::selector::Labels;
use fedq_values::ids::ClusterName;

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

    /// Changes in the order they are to be written. `reported` is the status that the Placement has, `marks` the
    /// labels by which decisions are known to be this hub's.
    pub fn changes(
        &self,
        placement: &Placement,
        hub: &Hub,
        reported: &Report,
        marks: &Labels,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut report = Report { conditions: self.conditions.clone(), ..reported.clone() };
        if let Some(decided) = &self.decided {
            changes.extend(decision_changes(placement, hub, &decided.slices, marks));
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

/// Those of the changes that may be written now: the Placement's status comes once its decisions are there, or
/// it would say of them what nobody can see.
pub fn due(changes: Vec<Change>) -> Vec<Change> {
    if !decisions_differ(&changes) {
        return changes;
    }
    changes.into_iter().filter(|change| !matches!(change, Change::Report(_))).collect()
}

/// Whether decisions are still to be written. Labels that somebody keeps taking off move no cluster, so nothing waits
/// for them.
pub fn decisions_differ(changes: &[Change]) -> bool {
    changes.iter().any(|change| !matches!(change, Change::Report(_) | Change::Label { .. }))
}

/// A cluster that stays chosen and comes to stand in another decision is written there first, and then taken out
/// of where it was: in between it stands in both, which readers of all decisions do not notice. The other way round
/// it would be in none for a moment, and its jobs be evicted; and who evaluates after a restart would take it for
/// one that was never chosen.
fn decision_changes(placement: &Placement, hub: &Hub, slices: &[Slice], marks: &Labels) -> Vec<Change> {
    let existing: Vec<&Decision> = hub.decisions_of(&placement.key).collect();
    let found = |slice: &Slice| existing.iter().find(|decision| decision.name == slice.name).copied();
    let moving = moving(slices, found);
    let mut changes = Vec::new();
    let mut waiting = Vec::new();
    let mut relabelled = Vec::new();
    for slice in slices {
        let name = slice.name.clone();
        let mut labels = labels(placement, slice);
        let mut clusters = slice.clusters.clone();
        let Some(decision) = found(slice) else {
            changes.push(Change::Create { name: name.clone(), labels });
            if !clusters.is_empty() {
                changes.push(Change::Decide { name, clusters });
            }
            continue;
        };
        if !is_as_decided(decision, &clusters) {
            let stays = decision.clusters.iter().filter_map(|cluster| moving.get(cluster.as_str()).copied());
            let stays: Vec<ClusterName> = stays.cloned().collect();
            let adds =
                clusters.iter().any(|cluster| !decision.clusters.iter().any(|has| has == cluster.as_str()));
            if stays.is_empty() {
                changes.push(Change::Decide { name: name.clone(), clusters });
            } else if adds && clusters.len() + stays.len() <= MAX_DECISIONS {
                clusters.extend(stays);
                clusters.sort();
                changes.push(Change::Decide { name: name.clone(), clusters });
            } else {
                waiting.push(Change::Decide { name: name.clone(), clusters });
            }
        }
        labels.extend(marks.clone());
        if labels.iter().any(|(key, value)| decision.labels.get(key) != Some(value)) {
            relabelled.push(Change::Label { name, labels });
        }
    }
    let redundant = existing.iter().filter(|decision| slices.iter().all(|slice| slice.name != decision.name));
    for decision in redundant {
        let delete = Change::Delete { name: decision.name.clone() };
        let is_left = !decision.clusters.iter().any(|cluster| moving.contains_key(cluster.as_str()));
        if is_left { &mut changes } else { &mut waiting }.push(delete);
    }
    // Full decisions that exchange clusters wait for one another: there is no room to have them in both.
    let mut now = if changes.is_empty() { waiting } else { changes };
    now.extend(relabelled);
    now
}

/// The clusters that are to stand in a decision where they do not stand yet.
fn moving<'a>(
    slices: &'a [Slice],
    found: impl Fn(&Slice) -> Option<&'a Decision>,
) -> HashMap<&'a str, &'a ClusterName> {
    let mut moving = HashMap::new();
    for slice in slices {
        let decision = found(slice);
        if decision.is_some_and(|decision| is_as_decided(decision, &slice.clusters)) {
            continue;
        }
        let has = |cluster: &ClusterName| {
            decision.is_some_and(|decision| decision.clusters.iter().any(|has| has == cluster.as_str()))
        };
        let comes = slice.clusters.iter().filter(|cluster| !has(cluster));
        moving.extend(comes.map(|cluster| (cluster.as_str(), cluster)));
    }
    moving
}

fn is_as_decided(decision: &Decision, clusters: &[ClusterName]) -> bool {
    decision.clusters.iter().map(String::as_str).eq(clusters.iter().map(ClusterName::as_str))
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
