//! All clusters as the next task is chosen by, at one moment: for dispatch, `explain` and dry runs alike.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    choose::{
        Choice, Outcome, Weights, Wish, choose,
        gather::{ClusterFacts, LocalQueueFacts, queue_views},
        view::{Access, ClusterView, View, VolumeView},
    },
    spec::{Priority, TaskSpec},
};
use crate::domain::ids::ClusterName;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet {
    pub clusters: BTreeMap<ClusterName, Member>,
    /// Joined, but nothing is known of them yet: they may be able to hold any task.
    pub unknown: BTreeSet<ClusterName>,
    pub weights: Weights,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub access: Access,
    pub facts: Arc<ClusterFacts>,
    /// By namespace.
    pub local_queues: Arc<BTreeMap<String, Vec<LocalQueueFacts>>>,
    /// WorkloadPriorityClasses with their values.
    pub priorities: Arc<BTreeMap<String, i64>>,
    pub has_jobsets: bool,
}

/// Whose task it is, as far as that decides where it can run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tenancy {
    pub namespace: String,
    /// The tenant's volumes: where each is, by the name that tasks give it.
    pub volumes: BTreeMap<String, (ClusterName, VolumeView)>,
}

impl Fleet {
    pub fn view(&self, tenancy: &Tenancy) -> View {
        View { clusters: self.clusters.iter().map(|(name, member)| member.view(name, tenancy)).collect() }
    }

    pub fn choose(&self, task: &TaskSpec, wish: &Wish, tenancy: &Tenancy) -> Choice {
        self.choose_in(task, wish, &self.view(tenancy))
    }

    /// `view`: as [`Fleet::view`] gives it. A cluster that is still unknown is no cluster that can never.
    pub fn choose_in(&self, task: &TaskSpec, wish: &Wish, view: &View) -> Choice {
        let mut choice = choose(task, wish, view, self.weights);
        let nothing_known = self.clusters.is_empty() || !self.unknown.is_empty();
        if choice.outcome == Outcome::Never && nothing_known {
            choice.outcome = Outcome::Wait;
        }
        choice
    }

    /// The names of the LocalQueues that a namespace has anywhere.
    pub fn queues_of(&self, namespace: &str) -> Vec<String> {
        let of_cluster = |member: &Member| {
            let local = member.local_queues.get(namespace).into_iter().flatten();
            local.map(|queue| queue.name.clone()).collect::<Vec<_>>()
        };
        let mut names: Vec<String> = self.clusters.values().flat_map(of_cluster).collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Member {
    pub fn view(&self, name: &ClusterName, tenancy: &Tenancy) -> ClusterView {
        let local = self.local_queues.get(&tenancy.namespace).map_or(&[][..], Vec::as_slice);
        let here = tenancy.volumes.iter().filter(|(_, (cluster, _))| cluster == name);
        ClusterView {
            name: name.clone(),
            access: self.access,
            queues: queue_views(&self.facts, local),
            volumes: here.map(|(volume, (_, view))| (volume.clone(), view.clone())).collect(),
        }
    }

    /// The class of a task's priority here: the one named, or that of the value or the next below it.
    pub fn priority_class(&self, priority: &Priority) -> Option<String> {
        match priority {
            Priority::Class(name) => Some(name.clone()),
            Priority::Value(wanted) => {
                let below = self.priorities.iter().filter(|(_, value)| **value <= *wanted);
                below.max_by_key(|(_, value)| **value).map(|(name, _)| name.clone())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::task::testing::cluster_name;

    fn member(priorities: &[(&str, i64)]) -> Member {
        Member {
            access: Access::Ready,
            facts: Arc::default(),
            local_queues: Arc::default(),
            priorities: Arc::new(
                priorities.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ),
            has_jobsets: false,
        }
    }

    #[test]
    fn a_priority_is_the_class_of_its_value_or_the_next_below() {
        let member = member(&[("low", 10), ("mid", 100), ("high", 1000)]);
        let class = |value: i64| member.priority_class(&Priority::Value(value));
        assert_eq!(class(5), None);
        assert_eq!(class(100).as_deref(), Some("mid"));
        assert_eq!(class(999).as_deref(), Some("mid"));
        assert_eq!(class(5000).as_deref(), Some("high"));
        assert_eq!(member.priority_class(&Priority::Class("own".to_owned())).as_deref(), Some("own"));
    }

    #[test]
    fn volumes_are_where_they_are() {
        let fleet = Fleet {
            clusters: ["one", "two"].map(|name| (cluster_name(name), member(&[]))).into(),
            ..Fleet::default()
        };
        let volume = VolumeView { claim: "data-1a2b3c4d".to_owned(), shared: true };
        let tenancy = Tenancy {
            namespace: "team".to_owned(),
            volumes: [("data".to_owned(), (cluster_name("two"), volume.clone()))].into(),
        };
        let view = fleet.view(&tenancy);
        let volumes: Vec<_> = view.clusters.iter().map(|cluster| cluster.volumes.get("data")).collect();
        assert_eq!(volumes, [None, Some(&volume)]);
        assert!(fleet.queues_of("team").is_empty());
    }
}
