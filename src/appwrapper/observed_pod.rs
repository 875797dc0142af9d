//! A pod as its cluster has it: what of it says how an AppWrapper fares. A pod as a whole is some kilobytes, and there are as many
//! of them as the cluster runs.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::api::resource::Quantity};
use kube::{Resource, api::ObjectMeta};
use serde::Deserialize;

use crate::pod_template;

#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = Pod)]
#[serde(from = "Sent")]
pub struct ObservedPod {
    pub metadata: ObjectMeta,
    pub node: Option<String>,
    pub phase: String,
    /// Resources of which a container asks for some.
    pub uses: BTreeSet<String>,
    /// Of the containers that have ended.
    pub exit_codes: Vec<i32>,
}

impl ObservedPod {
    pub fn is_leaving(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

#[derive(Deserialize)]
struct Sent {
    #[serde(default)]
    metadata: ObjectMeta,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    containers: Option<Vec<Container>>,
}

#[derive(Deserialize)]
struct Container {
    resources: Option<Resources>,
}

#[derive(Deserialize)]
struct Resources {
    limits: Option<BTreeMap<String, Quantity>>,
    requests: Option<BTreeMap<String, Quantity>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Deserialize)]
struct ContainerStatus {
    state: Option<State>,
}

#[derive(Deserialize)]
struct State {
    terminated: Option<Terminated>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terminated {
    exit_code: i32,
}

impl From<Sent> for ObservedPod {
    fn from(sent: Sent) -> Self {
        let Sent { mut metadata, spec, status } = sent;
        (metadata.managed_fields, metadata.annotations, metadata.generate_name) = (None, None, None);
        let (node, containers) = spec.map_or((None, None), |spec| (spec.node_name, spec.containers));
        let resources = containers.into_iter().flatten().filter_map(|container| container.resources);
        let lists = resources.flat_map(|all| [all.limits, all.requests]).flatten().flatten();
        let uses = lists.filter(|(_, amount)| pod_template::is_positive(&amount.0)).map(|(name, _)| name);
        let (phase, containers) =
            status.map_or((None, None), |status| (status.phase, status.container_statuses));
        let ended = containers.into_iter().flatten().filter_map(|container| container.state?.terminated);
        Self {
            metadata,
            node,
            phase: phase.unwrap_or_default(),
            uses: uses.collect(),
            exit_codes: ended.map(|ended| ended.exit_code).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_pod_what_says_how_it_fares_is_kept() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "run-x", "labels": {"a": "b"}, "annotations": {"long": "text"}, "resourceVersion": "7",
                "managedFields": [{"manager": "x"}], "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "run", "uid": "8"}],
            },
            "spec": {"nodeName": "node", "volumes": [{"name": "v"}], "containers": [
                {"name": "a", "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "0"}, "requests": {"cpu": "500m"}}},
                {"name": "b"},
            ]},
            "status": {"phase": "Failed", "containerStatuses": [
                {"name": "a", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}},
                {"name": "b", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}},
            ]},
        });
        let seen: ObservedPod = serde_json::from_value(pod).expect("a pod");
        let meta = &seen.metadata;
        assert_eq!((meta.name.as_deref(), meta.resource_version.as_deref()), (Some("run-x"), Some("7")));
        assert!(meta.labels.is_some() && meta.owner_references.is_some());
        assert!(meta.annotations.is_none() && meta.managed_fields.is_none());
        assert_eq!((seen.node.as_deref(), seen.phase.as_str()), (Some("node"), "Failed"));
        assert_eq!(seen.uses, ["cpu", "nvidia.com/gpu"].map(str::to_owned).into());
        assert_eq!(seen.exit_codes, [3]);
        let none: ObservedPod = serde_json::from_value(json!({"metadata": {"name": "new"}})).expect("a pod");
        assert_eq!((none.node, none.phase.as_str(), none.exit_codes), (None, "", vec![]));
    }
}
