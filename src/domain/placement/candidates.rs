//! Which clusters a Placement may choose from: members of the sets that are bound to its namespace.

use super::{
    Problem,
    hub::{ClusterSet, Hub, SetSelection},
    selector::LabelSelector,
    spec::Placement,
};
use crate::queue::selector::{Labels, Selector};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidates {
    /// Sets that are bound to the namespace and exist.
    pub bound: Vec<String>,
    /// Those of them that the Placement asks for.
    pub sets: Vec<String>,
    pub clusters: Vec<usize>,
    /// A set that cannot be read: nothing is decided anew, since its members are unknown.
    pub problem: Option<Problem>,
}

const SET_LABEL: &str = "cluster.open-cluster-management.io/clusterset";

pub fn candidates(placement: &Placement, hub: &Hub) -> Candidates {
    let bound: Vec<String> = hub.bound(&placement.key.namespace).into_iter().map(str::to_owned).collect();
    let asked = &placement.cluster_sets;
    let sets: Vec<String> =
        bound.iter().filter(|name| asked.is_empty() || asked.contains(name)).cloned().collect();
    let (clusters, problem) = match members(&sets, hub) {
        Ok(clusters) => (clusters, None),
        Err(message) => (Vec::new(), Some(Problem::Error { message })),
    };
    Candidates { bound, sets, clusters, problem }
}

/// Members of any of the sets that are not being deleted, by name. Whether a cluster was accepted or
/// answers is told by taints alone.
pub fn members(sets: &[String], hub: &Hub) -> Result<Vec<usize>, String> {
    let selections = selections(sets, hub)?;
    let is_member = |at: &usize| {
        let cluster = &hub.clusters()[*at];
        !cluster.deleting && selections.iter().any(|selection| selection.holds(&cluster.labels))
    };
    Ok((0..hub.clusters().len()).filter(is_member).collect())
}

/// Whether the cluster is in one of the sets, deleted or not.
pub fn is_member(at: usize, sets: &[String], hub: &Hub) -> bool {
    let labels = &hub.clusters()[at].labels;
    selections(sets, hub).is_ok_and(|selections| selections.iter().any(|selection| selection.holds(labels)))
}

/// Whether a cluster of these labels is in the set, as far as the set can be read.
pub fn holds(set: &ClusterSet, labels: &Labels) -> bool {
    Selection::read(set).is_ok_and(|selection| selection.holds(labels))
}

fn selections<'a>(sets: &[String], hub: &'a Hub) -> Result<Vec<Selection<'a>>, String> {
    sets.iter().filter_map(|name| hub.set(name)).map(Selection::read).collect()
}

enum Selection<'a> {
    Exclusive(&'a str),
    Labels(Selector),
    Nothing,
}

impl<'a> Selection<'a> {
    fn read(set: &'a ClusterSet) -> Result<Self, String> {
        let problem =
            |problem: &str| format!("failed to get clusterset: {}, clusters, Error: {problem}", set.name);
        match &set.selection {
            SetSelection::Exclusive => Ok(Self::Exclusive(&set.name)),
            SetSelection::Labels(None) => Ok(Self::Nothing),
            SetSelection::Labels(Some(selector)) => {
                LabelSelector::read(selector).map(Self::Labels).map_err(|error| problem(&error))
            }
            SetSelection::Unknown(kind) => Err(problem(&format!("selectorType is not right: {kind}"))),
        }
    }

    fn holds(&self, labels: &Labels) -> bool {
        match self {
            Self::Exclusive(name) => labels.get(SET_LABEL).is_some_and(|set| set == name),
            Self::Labels(selector) => selector.matches(labels),
            Self::Nothing => false,
        }
    }
}
