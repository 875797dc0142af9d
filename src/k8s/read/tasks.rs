//! Queues of a cluster into what tasks are chosen by.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{dispatch, groups, usage};
use crate::{
    hub::Hub,
    types::kueue::{ClusterQueue, Cohort, Condition, LocalQueue},
    worker::Worker,
};
use fedq_domain::{
    quota::Dispatch,
    resource_groups::ResourceGroups,
    resources::FlavorResource,
    task::choose::gather::{ClusterFacts, LocalQueueFacts, QueueFacts},
};
use fedq_values::ids::{ClusterName, CohortName, QueueName};

/// All but what fedq itself knows: the size of nodes, and what is on its way.
pub fn worker_facts(worker: &Worker) -> ClusterFacts {
    ClusterFacts {
        flavors: super::flavors(&worker.flavors),
        ..cluster_facts(&worker.queues.all(), &worker.cohorts.all())
    }
}

/// A queue or cohort that cannot be read admits nothing that could be chosen, and is left out.
pub fn cluster_facts(queues: &[Arc<ClusterQueue>], cohorts: &[Arc<Cohort>]) -> ClusterFacts {
    let parents = parents(cohorts);
    let mut facts = ClusterFacts::default();
    for queue in queues {
        let (Ok(name), Ok(groups)) =
            (QueueName::new(&queue.metadata.name), groups(&queue.spec.resource_groups))
        else {
            continue;
        };
        let cohort = queue.spec.cohort_name.as_deref().filter(|name| !name.is_empty());
        let queue = QueueFacts {
            groups,
            reserved: usage(&queue.status.flavors_reservation).collect(),
            cohort: cohort.and_then(|name| CohortName::new(root(name, &parents)).ok()),
            active: is_true(&queue.status.conditions, "Active")
                && !is_held(queue.spec.stop_policy.as_deref()),
            pending: u32::try_from(queue.status.pending_workloads).unwrap_or_default(),
        };
        facts.queues.insert(name, queue);
    }
    for cohort in cohorts {
        let name = CohortName::new(root(&cohort.metadata.name, &parents));
        if let (Ok(name), Ok(groups)) = (name, groups(&cohort.spec.resource_groups)) {
            add_quota(facts.cohorts.entry(name).or_default(), &groups);
        }
    }
    facts
}

fn add_quota(quotas: &mut BTreeMap<FlavorResource, fedq_values::quantity::Amount>, groups: &ResourceGroups) {
    for flavor in groups.0.iter().flat_map(|group| &group.flavors) {
        for quota in &flavor.resources {
            let at = FlavorResource { flavor: flavor.name.clone(), resource: quota.name.clone() };
            let sum = quotas.entry(at).or_default();
            *sum = sum.saturating_add(quota.nominal.amount());
        }
    }
}

/// Those that stay.
pub fn local_queues_by_namespace(queues: &[Arc<LocalQueue>]) -> BTreeMap<String, Vec<LocalQueueFacts>> {
    let facts = |queue: &Arc<LocalQueue>| {
        Some(LocalQueueFacts {
            name: queue.metadata.name.clone(),
            queue: QueueName::new(&queue.spec.cluster_queue).ok()?,
            active: is_true(&queue.status.conditions, "Active")
                && !is_held(queue.spec.stop_policy.as_deref()),
        })
    };
    let mut by_namespace: BTreeMap<String, Vec<LocalQueueFacts>> = BTreeMap::new();
    for queue in queues.iter().filter(|queue| queue.metadata.deletion_timestamp.is_none()) {
        if let (Some(namespace), Some(facts)) = (&queue.metadata.namespace, facts(queue)) {
            by_namespace.entry(namespace.clone()).or_default().push(facts);
        }
    }
    by_namespace
}

/// The LocalQueues of the hub, by namespace and name, whose work MultiKueue dispatches, and to which clusters.
pub fn dispatched_queues(hub: &Hub) -> BTreeMap<(String, String), BTreeSet<ClusterName>> {
    let local = |queue: &Arc<LocalQueue>| {
        let of = hub.queues.get(None, &queue.spec.cluster_queue)?;
        match dispatch(hub, &of) {
            (Dispatch::MultiKueue { clusters }, _) => {
                Some(((queue.metadata.namespace.clone()?, queue.metadata.name.clone()), clusters))
            }
            (Dispatch::RunsLocally, _) => None,
        }
    };
    hub.local_queues.all().iter().filter_map(local).collect()
}

fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True")
}

/// Kueue's own word arrives later than the wish.
fn is_held(stop_policy: Option<&str>) -> bool {
    stop_policy.is_some_and(|policy| policy != "None")
}

fn parents(cohorts: &[Arc<Cohort>]) -> BTreeMap<&str, &str> {
    let parent = |cohort: &'_ Cohort| cohort.spec.parent_name.is_some();
    cohorts
        .iter()
        .filter(|cohort| parent(cohort))
        .filter_map(|cohort| Some((cohort.metadata.name.as_str(), cohort.spec.parent_name.as_deref()?)))
        .filter(|(_, parent)| !parent.is_empty())
        .collect()
}

/// Of a circle, in which Kueue admits nothing, any name will do.
fn root<'a>(name: &'a str, parents: &BTreeMap<&'a str, &'a str>) -> &'a str {
    let mut seen = BTreeSet::from([name]);
    let mut root = name;
    while let Some(parent) = parents.get(root) {
        if !seen.insert(parent) {
            break;
        }
        root = parent;
    }
    root
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(json: Value) -> Arc<T> {
        Arc::new(serde_json::from_value(json).expect("an object"))
    }

    fn groups_json(nominal: &str) -> Value {
        json!([{"coveredResources": ["cpu"], "flavors": [
            {"name": "on-demand", "resources": [{"name": "cpu", "nominalQuota": nominal}]}
        ]}])
    }

    fn queue(name: &str, cohort: &str, stop: &str) -> Arc<ClusterQueue> {
        read(json!({
            "metadata": {"name": name},
            "spec": {"resourceGroups": groups_json("10"), "cohortName": cohort, "stopPolicy": stop},
            "status": {
                "conditions": [{"type": "Active", "status": "True"}],
                "pendingWorkloads": 2,
                "flavorsReservation": [{"name": "on-demand", "resources": [{"name": "cpu", "total": "1500m"}]}],
            },
        }))
    }

    fn cohort(name: &str, parent: Option<&str>, nominal: &str) -> Arc<Cohort> {
        read(json!({
            "metadata": {"name": name},
            "spec": {"parentName": parent, "resourceGroups": groups_json(nominal)},
        }))
    }

    #[test]
    fn cohorts_under_one_root_are_one() {
        let queues = [queue("a", "leaf", "None"), queue("b", "", "Hold"), queue("bad", "Not A Name", "None")];
        let cohorts = [
            cohort("leaf", Some("mid"), "1"),
            cohort("mid", Some("top"), "2"),
            cohort("round", Some("round"), "0"),
        ];
        let facts = cluster_facts(&queues, &cohorts);
        let of = |name: &str| &facts.queues[&QueueName::new(name).expect("a name")];
        assert_eq!(of("a").cohort.as_ref().map(CohortName::as_str), Some("top"));
        assert_eq!((of("b").cohort.as_ref(), of("bad").cohort.as_ref()), (None, None));
        assert_eq!((of("a").active, of("a").pending, of("b").active), (true, 2, false));
        assert_eq!(of("a").reserved.values().map(|amount| amount.units()).collect::<Vec<_>>(), [1500]);
        let top = &facts.cohorts[&CohortName::new("top").expect("a name")];
        assert_eq!(top.values().map(|amount| amount.units()).collect::<Vec<_>>(), [3000]);
    }

    #[test]
    fn local_queues_are_those_of_the_namespace() {
        let local = |name: &str, namespace: &str, going: bool| -> Arc<LocalQueue> {
            let mut object = json!({
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"clusterQueue": "a"},
                "status": {"conditions": [{"type": "Active", "status": "True"}]},
            });
            if going {
                object["metadata"]["deletionTimestamp"] = json!("2025-10-05T12:34:56Z");
            }
            read(object)
        };
        let queues = [local("x", "team", false), local("y", "other", false), local("z", "team", true)];
        let found = &local_queues_by_namespace(&queues)["team"];
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].queue.as_str(), found[0].active), ("x", "a", true));
    }
}
