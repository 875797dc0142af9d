//! Whether a ClusterQueue can admit, and if not, why (`pkg/cache/scheduler/clusterqueue.go`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    View,
    read::{is_deleted, is_true, items, text, texts},
};

pub(super) struct Activity {
    pub reason: &'static str,
    pub message: String,
}

impl Activity {
    pub(super) fn is_active(&self) -> bool {
        self.reason == "Ready"
    }
}

const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";
const PROVISIONING: &str = "kueue.x-k8s.io/provisioning-request";

pub(super) fn is_stopped(object: &Value) -> bool {
    !matches!(object["spec"]["stopPolicy"].as_str(), None | Some("None"))
}

pub(super) fn all_flavors(queue: &Value) -> BTreeSet<&str> {
    let groups = items(queue, &["spec", "resourceGroups"]).iter();
    groups.flat_map(|group| items(group, &["flavors"])).map(|flavor| text(flavor, &["name"])).collect()
}

/// Each admission check with the flavors it is for.
pub(super) fn checks(queue: &Value) -> BTreeMap<&str, BTreeSet<&str>> {
    let checks = items(queue, &["spec", "admissionChecksStrategy", "admissionChecks"]).iter();
    checks
        .map(|check| {
            let listed: BTreeSet<&str> = texts(items(check, &["onFlavors"])).collect();
            (text(check, &["name"]), if listed.is_empty() { all_flavors(queue) } else { listed })
        })
        .collect()
}

pub(super) fn activity(view: &View, queue: &Value) -> Activity {
    if is_deleted(queue) {
        let message = "Can't admit new workloads; clusterQueue is terminating".to_owned();
        return Activity { reason: "Terminating", message };
    }
    let problems = problems(view, queue);
    match problems.first() {
        None => Activity { reason: "Ready", message: "Can admit new workloads".to_owned() },
        Some((reason, _)) => {
            let messages: Vec<&str> = problems.iter().map(|(_, message)| message.as_str()).collect();
            Activity { reason, message: format!("Can't admit new workloads: {}.", messages.join(", ")) }
        }
    }
}

fn problems(view: &View, queue: &Value) -> Vec<(&'static str, String)> {
    let cluster_scoped = |name: &str| (String::new(), name.to_owned());
    let mut problems = Vec::new();
    if is_stopped(queue) {
        problems.push(("Stopped", "is stopped".to_owned()));
    }
    let in_order = items(queue, &["spec", "resourceGroups"]).iter();
    let flavors: Vec<&str> =
        in_order.flat_map(|group| items(group, &["flavors"])).map(|flavor| text(flavor, &["name"])).collect();
    let missing: Vec<&str> = flavors
        .iter()
        .copied()
        .filter(|flavor| !view.flavors.contains_key(&cluster_scoped(flavor)))
        .collect();
    if !missing.is_empty() {
        let message = format!("references missing ResourceFlavor(s): {}", missing.join(","));
        problems.push(("FlavorNotFound", message));
    }
    let checks = checks(queue);
    let found = |name: &str| view.checks.get(&cluster_scoped(name));
    let by = |controller: &str| {
        let of =
            |name: &&&str| found(name).is_some_and(|check| check["spec"]["controllerName"] == controller);
        checks.keys().filter(of).copied().collect::<Vec<_>>()
    };
    let (multikueue, provisioning) = (by(MULTIKUEUE), by(PROVISIONING));
    check_problems(&checks, found, &mut problems);
    if 1 < multikueue.len() {
        let message = "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found:";
        problems.push(("MultipleMultiKueueAdmissionChecks", format!("{message} {}", multikueue.join(","))));
    }
    let everywhere = all_flavors(queue);
    let partly: Vec<&str> = multikueue.iter().copied().filter(|name| checks[name] != everywhere).collect();
    if !partly.is_empty() {
        let message = "Cannot specify MultiKueue AdmissionCheck per flavor, found:";
        problems
            .push(("MultiKueueAdmissionCheckAppliedPerFlavor", format!("{message} {}", partly.join(","))));
    }
    if !multikueue.is_empty() && !provisioning.is_empty() {
        let message = "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found:";
        let (multikueue, provisioning) = (multikueue.join(","), provisioning.join(","));
        problems
            .push(("MultiKueueWithProvisioningRequest", format!("{message} {multikueue}, {provisioning}")));
    } else if multikueue.is_empty() {
        topology_problems(view, &flavors, &mut problems);
    }
    problems
}

fn check_problems<'a>(
    checks: &BTreeMap<&str, BTreeSet<&str>>,
    found: impl Fn(&str) -> Option<&'a std::sync::Arc<Value>>,
    problems: &mut Vec<(&'static str, String)>,
) {
    let missing: Vec<&str> = checks.keys().copied().filter(|name| found(name).is_none()).collect();
    if !missing.is_empty() {
        let message = format!("references missing AdmissionCheck(s): {}", missing.join(","));
        problems.push(("AdmissionCheckNotFound", message));
    }
    let idle = |name: &&str| found(name).is_some_and(|check| !is_true(check, "Active"));
    let inactive: Vec<&str> = checks.keys().copied().filter(idle).collect();
    if !inactive.is_empty() {
        let message = format!("references inactive AdmissionCheck(s): {}", inactive.join(","));
        problems.push(("AdmissionCheckInactive", message));
    }
}

fn topology_problems(view: &View, flavors: &[&str], problems: &mut Vec<(&'static str, String)>) {
    for name in flavors {
        let flavor = view.flavors.get(&(String::new(), (*name).to_owned()));
        let Some(topology) = flavor.and_then(|flavor| flavor["spec"]["topologyName"].as_str()) else {
            continue;
        };
        if !view.topologies.contains_key(&(String::new(), topology.to_owned())) {
            let message = format!("there is no Topology {topology:?} for TAS flavor {name:?}");
            problems.push(("TopologyNotFound", message));
        }
    }
}
