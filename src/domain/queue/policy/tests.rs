use super::*;
use crate::resource_groups::{FlavorQuotas, ResourceGroup, ResourceQuota};
use fedq_values::ids::ResourceName;

fn policy(spec: Value) -> QueuePolicy {
    let Value::Object(fields) = spec else { unreachable!("specs are objects") };
    QueuePolicy::new(fields)
}

fn groups(flavors: &[&str]) -> ResourceGroups {
    let cpu = ResourceName::new("cpu").expect("a name");
    let flavor = |name: &&str| FlavorQuotas {
        name: FlavorName::new(name).expect("a name"),
        resources: vec![ResourceQuota::zero(cpu.clone())],
    };
    let flavors = flavors.iter().map(flavor).collect();
    ResourceGroups(vec![ResourceGroup { covered: vec![cpu.clone()], flavors }])
}

/// Merge-patches `observed` with the difference, as a server would.
fn patched(observed: &QueuePolicy, desired: &QueuePolicy) -> QueuePolicy {
    fn merge(into: &mut Map<String, Value>, patch: Map<String, Value>) {
        for (name, value) in patch {
            match (into.get_mut(&name), value) {
                (_, Value::Null) => drop(into.remove(&name)),
                (Some(Value::Object(into)), Value::Object(patch)) => merge(into, patch),
                (_, value) => drop(into.insert(name, value)),
            }
        }
    }
    let mut fields = observed.fields().clone();
    merge(&mut fields, policy_difference(observed, desired));
    QueuePolicy::new(fields)
}

#[test]
fn what_the_server_fills_in_is_no_difference() {
    let stored = policy(json!({
        "queueingStrategy": "BestEffortFIFO", "stopPolicy": "None", "namespaceSelector": {},
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "preemption": {
            "borrowWithinCohort": {"policy": "Never"}, "reclaimWithinCohort": "Never",
            "withinClusterQueue": "Never",
        },
        "fairSharing": {"weight": 1},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": []}],
    }));
    let written = policy(json!({
        "namespaceSelector": {"matchLabels": {}}, "cohortName": "", "fairSharing": {"weight": "1000m"},
        "preemption": {"borrowWithinCohort": null}, "admissionChecksStrategy": {"admissionChecks": []},
    }));
    assert_eq!(policy_difference(&stored, &written), Map::new());
}

#[test]
fn a_difference_is_exactly_what_a_merge_patch_must_hold() {
    let observed = policy(json!({
        "cohortName": "old", "fairSharing": {"weight": "2"}, "preemption": {"reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 100}},
        "namespaceSelector": {"matchLabels": {"team": "a", "tier": "x"}},
    }));
    let desired = policy(json!({
        "cohortName": "new", "stopPolicy": "Hold",
        "preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}},
        "namespaceSelector": {"matchLabels": {"team": "b"}},
    }));
    let expected = json!({
        "cohortName": "new", "stopPolicy": "Hold", "fairSharing": null,
        "preemption": {"borrowWithinCohort": {"maxPriorityThreshold": null}},
        "namespaceSelector": {"matchLabels": {"team": "b", "tier": null}},
    });
    assert_eq!(Value::Object(policy_difference(&observed, &desired)), expected);
    assert_eq!(patched(&observed, &desired), desired);
    assert_eq!(patched(&desired, &observed), observed);
}

#[test]
fn every_namespace_and_no_namespace_are_two_things() {
    let (all, none) = (policy(json!({"namespaceSelector": {}})), policy(json!({})));
    assert_eq!(Value::Object(policy_difference(&all, &none)), json!({"namespaceSelector": null}));
    assert_eq!(Value::Object(policy_difference(&none, &all)), json!({"namespaceSelector": {}}));
}

#[test]
fn a_newer_kueue_on_the_worker_keeps_its_own_fields() {
    let observed = policy(json!({"comesLater": {"mode": "Default"}}));
    assert_eq!(policy_difference(&observed, &policy(json!({}))), Map::new());
    // What the hub does say is carried over, whether this release knows it or not.
    let desired = policy(json!({"comesLater": {"mode": "Other"}}));
    assert_eq!(
        Value::Object(policy_difference(&observed, &desired)),
        json!({"comesLater": {"mode": "Other"}})
    );
}

#[test]
fn only_listed_checks_are_copied_and_only_for_flavors_of_the_worker() {
    let hub = policy(json!({"admissionChecksStrategy": {"admissionChecks": [
        {"name": "multikueue"},
        {"name": "budget", "onFlavors": ["spot", "on-demand"]},
        {"name": "provision", "onFlavors": ["reserved"]},
        {"name": "everywhere", "onFlavors": []},
    ]}}));
    let checks = ["budget", "provision", "everywhere"].map(str::to_owned).into();
    let groups = groups(&["spot"]);
    let rules = WorkerRules { held: false, checks: &checks, groups: &groups, observed: None };
    let expected = json!({"admissionChecks": [
        {"name": "budget", "onFlavors": ["spot"]},
        {"name": "everywhere", "onFlavors": []},
    ]});
    assert_eq!(worker_policy(&hub, &rules).fields().get(CHECKS), Some(&expected));

    let rules = WorkerRules { checks: &BTreeSet::new(), ..rules };
    assert_eq!(worker_policy(&hub, &rules).fields().get(CHECKS), None);
}

#[test]
fn a_held_queue_admits_nothing_and_a_drain_stays_a_drain() {
    let (checks, groups) = (BTreeSet::new(), groups(&[]));
    let rules = WorkerRules { held: true, checks: &checks, groups: &groups, observed: None };
    let stop =
        |hub: Value, rules: &WorkerRules<'_>| worker_policy(&policy(hub), rules).fields()[STOP].clone();
    assert_eq!(stop(json!({}), &rules), "Hold");
    assert_eq!(stop(json!({"stopPolicy": "HoldAndDrain"}), &rules), "HoldAndDrain");
    let lifted = WorkerRules { held: false, ..rules };
    assert_eq!(stop(json!({}), &lifted), "None");
    assert_eq!(stop(json!({"stopPolicy": "Hold"}), &lifted), "Hold");
}

#[test]
fn what_cannot_be_changed_is_set_once_and_then_left() {
    let (checks, groups) = (BTreeSet::new(), groups(&["spot"]));
    let hub = policy(json!({"concurrentAdmissionPolicy": {"migration": {"mode": "RetainFirstAdmission"}}}));
    let fresh = WorkerRules { held: false, checks: &checks, groups: &groups, observed: None };
    assert!(!immutable_difference(&hub, &worker_policy(&hub, &fresh)));

    let observed = policy(json!({}));
    let rules = WorkerRules { observed: Some(&observed), ..fresh };
    let desired = worker_policy(&hub, &rules);
    assert!(immutable_difference(&hub, &desired));
    assert_eq!(policy_difference(&observed, &desired), Map::new());
}
