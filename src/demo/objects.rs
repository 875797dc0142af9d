//! What stands on the demo's clusters before fedq comes.

use serde_json::{Value, json};

use super::{
    DemoError,
    dispatch::{CHECK, CONTROLLER},
};

pub const GPU: &str = "nvidia.com/gpu";
const BEGAN: &str = "2026-01-01T00:00:00Z";
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
/// Who types the commands.
pub const ADMIN: &str = "admin";
pub const FEDQD: &str = "system:serviceaccount:fedq-system:fedqd";
/// What fedq brings to a hub, as `kubectl apply -k deploy/hub` does.
const HUB: [&str; 5] = [
    include_str!("../../deploy/hub/namespace.yaml"),
    include_str!("../../deploy/hub/rbac.yaml"),
    include_str!("../../deploy/hub/roles.yaml"),
    include_str!("../../deploy/hub/webhook.yaml"),
    include_str!("../../deploy/crds/clusterresourceclaims.yaml"),
];

/// A cluster by its GPUs: label and number of nodes, each with eight.
pub struct Worker {
    pub name: &'static str,
    pub nodes: &'static [(&'static str, usize)],
}

pub const WORKERS: [Worker; 3] = [
    Worker { name: "frankfurt", nodes: &[("h100", 3)] },
    Worker { name: "oregon", nodes: &[("h100", 2), ("a100", 2)] },
    Worker { name: "tokyo", nodes: &[("a100", 4)] },
];

/// Teams with the flavors that their queues cover.
const TEAMS: [(&str, &[&str]); 2] = [("research", &["h100", "a100"]), ("vision", &["h100", "a100"])];
/// Whose tasks those are that people submit to fedqd.
pub const TENANT: &str = "vision";
/// Of each team.
pub const QUEUE: &str = "main";
const GPUS_OF_A_NODE: usize = 8;

pub fn manifests() -> Result<Vec<Value>, DemoError> {
    let documents = HUB.iter().flat_map(|text| text.split("\n---\n"));
    documents.map(|text| serde_saphyr::from_str(text).map_err(DemoError::Manifest)).collect()
}

/// The webhook's registration leads to a Service, and here there is none.
pub fn by_url(webhook: &mut Value, url: &str) {
    if webhook["kind"] == "ValidatingWebhookConfiguration" {
        webhook["webhooks"][0]["clientConfig"] = json!({"url": url});
    }
}

/// The queues of the teams, without any quota yet.
pub fn queues() -> Vec<Value> {
    let mut objects: Vec<Value> = ["h100", "a100"]
        .into_iter()
        .map(|name| {
            json!({
                "apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name},
                "spec": {"nodeLabels": {"gpu": name}},
            })
        })
        .collect();
    for (team, flavors) in TEAMS {
        let none = |flavor: &&str| {
            json!({
                "name": flavor, "resources": [{"name": GPU, "nominalQuota": "0"}],
            })
        };
        let flavors: Vec<Value> = flavors.iter().map(none).collect();
        objects.extend([
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}}),
            json!({
                "apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": team},
                "spec": {
                    "namespaceSelector": {},
                    "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}],
                    "admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]},
                },
            }),
            json!({
                "apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": QUEUE, "namespace": team},
                "spec": {"clusterQueue": team},
            }),
        ]);
    }
    objects
}

/// What makes the hub's queues send work to the workers, as Kueue's MultiKueue is set up.
pub fn multikueue() -> Vec<Value> {
    let active = |reason: &str| {
        json!({"conditions": [{
            "type": "Active", "status": "True", "reason": reason, "message": "", "lastTransitionTime": BEGAN,
        }]})
    };
    let names: Vec<&str> = WORKERS.iter().map(|worker| worker.name).collect();
    let mut objects = vec![
        json!({
            "apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": {"name": CHECK},
            "spec": {
                "controllerName": CONTROLLER,
                "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": CHECK},
            },
            "status": active("Active"),
        }),
        json!({
            "apiVersion": KUEUE, "kind": "MultiKueueConfig", "metadata": {"name": CHECK},
            "spec": {"clusters": names},
        }),
    ];
    objects.extend(names.iter().map(|name| {
        let kubeconfig = json!({"locationType": "Secret", "location": format!("multikueue-{name}")});
        json!({
            "apiVersion": KUEUE, "kind": "MultiKueueCluster", "metadata": {"name": name},
            "spec": {"clusterSource": {"kubeConfig": kubeconfig}},
            "status": active("Active"),
        })
    }));
    objects
}

/// The rights that the demo's own kubeconfigs and token have.
pub fn administrator() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "admin"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": ADMIN}],
    })
}

pub fn gpus(worker: &Worker) -> usize {
    worker.nodes.iter().map(|&(_, nodes)| nodes * GPUS_OF_A_NODE).sum()
}

pub fn nodes(worker: &Worker) -> Vec<Value> {
    let names = worker.nodes.iter().flat_map(|&(gpu, count)| (1..=count).map(move |number| (gpu, number)));
    names.map(|(gpu, number)| node(&format!("{gpu}-{number}"), gpu)).collect()
}

fn node(name: &str, gpu: &str) -> Value {
    let amounts = json!({
        "cpu": "96", "memory": "1Ti", "pods": "110", GPU: GPUS_OF_A_NODE.to_string(),
    });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "gpu": gpu}},
        "spec": {},
        "status": {
            "capacity": amounts, "allocatable": amounts, "conditions": conditions(true),
            "nodeInfo": {"kubeletVersion": "v1.36.3"},
        },
    })
}

/// Of a node whose kubelet reports, or does not any more.
pub fn conditions(reports: bool) -> Value {
    let (status, reason, message) = if reports {
        ("True", "KubeletReady", "kubelet is posting ready status")
    } else {
        ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    };
    json!([{
        "type": "Ready", "status": status, "reason": reason, "message": message,
        "lastHeartbeatTime": BEGAN, "lastTransitionTime": BEGAN,
    }])
}

/// A Job of `pods` with a whole node's GPUs each, for the team's LocalQueue.
pub fn job(team: &str, name: &str, gpu: &str, pods: usize) -> Value {
    let gpus = json!({GPU: GPUS_OF_A_NODE.to_string()});
    let container = json!({
        "name": "train", "image": "registry.example.com/train:1",
        "resources": {"requests": gpus, "limits": gpus},
    });
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": team,
            "labels": {"kueue.x-k8s.io/queue-name": QUEUE},
            "annotations": {fedq_sim::kueue::SECONDS: "86400"},
        },
        "spec": {
            "parallelism": pods, "completions": pods, "suspend": true, "managedBy": CONTROLLER,
            "template": {"spec": {
                "restartPolicy": "Never", "nodeSelector": {"gpu": gpu}, "containers": [container],
            }},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manifest_of_the_hub_is_an_object() {
        let manifests = manifests().unwrap();
        assert!(
            manifests
                .iter()
                .all(|object| object["kind"].is_string() && object["metadata"]["name"].is_string())
        );
        let webhook = manifests.into_iter().find(|object| object["kind"] == "ValidatingWebhookConfiguration");
        let mut webhook = webhook.unwrap();
        by_url(&mut webhook, "https://127.0.0.1:1/x");
        assert_eq!(webhook["webhooks"][0]["clientConfig"], json!({"url": "https://127.0.0.1:1/x"}));
    }
}
