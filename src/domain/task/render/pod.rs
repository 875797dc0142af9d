//! The pod of one node.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{CONTAINER, Gang, ID_LABEL, Order, script, upload_secret_names};
use crate::task::{
    choose::{Placement, verdict::per_node},
    names::task_label,
    spec::Limits,
};
use fedq_values::quantity::Amount;

/// What fedq calls volumes of its own begins with it, so that none of the task's has that name.
const RESERVED: &str = "fedq-";
const UPLOADS: &str = "fedq-uploads";
const SHARED_MEMORY: &str = "fedq-shm";
pub const SHARED_MEMORY_PATH: &str = "/dev/shm";
pub const HOST_NETWORK_DNS: &str = "ClusterFirstWithHostNet";

/// Where a pod learns its rank.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rank {
    Fixed(u32),
    /// Of an Indexed Job. Its own variable comes last, so that no other value could refer to it.
    CompletionIndex,
    /// Of a job in a JobSet.
    JobIndex,
}

impl Rank {
    fn source(self, name: &str) -> Value {
        let field = |path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        match self {
            Self::Fixed(rank) => json!({"name": name, "value": rank.to_string()}),
            Self::CompletionIndex => {
                field("metadata.annotations['batch.kubernetes.io/job-completion-index']")
            }
            Self::JobIndex => field("metadata.labels['jobset.sigs.k8s.io/job-index']"),
        }
    }
}

impl Order<'_> {
    /// `label`: the rank, where it is known before the pod is made.
    pub(super) fn template(&self, label: Option<u32>, rank: Rank) -> Value {
        let mut metadata = json!({"labels": self.pod_labels(label)});
        if !self.spec.pod.annotations.is_empty() {
            metadata["annotations"] = json!(self.spec.pod.annotations);
        }
        json!({"metadata": metadata, "spec": self.pod_spec(rank)})
    }

    fn pod_spec(&self, rank: Rank) -> Value {
        let extras = &self.spec.pod;
        let mut spec = json!({"restartPolicy": "Never", "containers": [self.container(rank)]});
        let mut set = |key: &str, value: Value| spec[key] = value;
        if let Some(account) = &self.tenant.service_account {
            set("serviceAccountName", json!(account));
        }
        if self.has_own_service() {
            set("subdomain", json!(self.object_name()));
        }
        let (volumes, _) = self.volumes();
        if !volumes.is_empty() {
            set("volumes", volumes.into());
        }
        let affinity = self.affinity();
        if affinity != json!({}) {
            set("affinity", affinity);
        }
        if !extras.node_selector.is_empty() {
            set("nodeSelector", json!(extras.node_selector));
        }
        if !extras.tolerations.is_empty() {
            set("tolerations", json!(extras.tolerations));
        }
        if !extras.image_pull_secrets.is_empty() {
            let secrets = extras.image_pull_secrets.iter().map(|name| json!({"name": name}));
            set("imagePullSecrets", secrets.collect());
        }
        if let Some(class) = &extras.runtime_class {
            set("runtimeClassName", json!(class));
        }
        if let Some(seconds) = extras.grace_seconds {
            set("terminationGracePeriodSeconds", json!(seconds));
        }
        if extras.host_network {
            set("hostNetwork", json!(true));
            // Otherwise the nodes of a task would ask their node's DNS for each other, which does not know them.
            set("dnsPolicy", json!(HOST_NETWORK_DNS));
        }
        spec
    }

    fn container(&self, rank: Rank) -> Value {
        // Jobs of their own may start whenever each gets quota: waiting for all could take for ever.
        let finds_nodes = 1 < self.spec.num_nodes && self.gang != Gang::PerNode;
        let script = script::literal(&script::script(self.spec, finds_nodes));
        let image = self.candidate().image.as_deref().unwrap_or(self.default_image);
        let mut container = json!({
            "name": CONTAINER,
            "image": image,
            "command": ["/bin/bash", "-c"],
            "args": [script],
            "env": self.environment(rank),
        });
        let resources = self.resources();
        if !resources.is_empty() {
            container["resources"] = resources.into();
        }
        if !self.spec.pod.capabilities.is_empty() {
            container["securityContext"] = json!({"capabilities": {"add": self.spec.pod.capabilities}});
        }
        let (_, mounts) = self.volumes();
        if !mounts.is_empty() {
            container["volumeMounts"] = mounts.into();
        }
        container
    }

    /// The task's own, its secrets, then ours, which win.
    fn environment(&self, rank: Rank) -> Vec<Value> {
        let ours = self.injected(rank);
        let taken: BTreeSet<&str> = ours.iter().filter_map(|variable| variable["name"].as_str()).collect();
        let free = |name: &str| !taken.contains(name);
        let own = self.spec.envs.iter().filter(|(name, _)| free(name));
        let mut variables: Vec<Value> =
            own.map(|(name, value)| json!({"name": name, "value": script::literal(value)})).collect();
        if let Some(secret) = self.secret_name() {
            let names = self.spec.secrets.iter().filter(|name| free(name));
            variables.extend(names.map(
                |name| json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}}),
            ));
        }
        variables.extend(ours);
        variables
    }

    fn injected(&self, rank: Rank) -> Vec<Value> {
        let text = |name: &str, value: String| json!({"name": name, "value": value});
        let nodes = self.spec.num_nodes.to_string();
        let gpus =
            self.candidate().accelerator.as_ref().map_or(0, |accelerator| accelerator.count).to_string();
        let mut variables = vec![
            rank.source("NODE_RANK"),
            text("NUM_NODES", nodes.clone()),
            rank.source("SKYPILOT_NODE_RANK"),
            text("SKYPILOT_NUM_NODES", nodes),
            text("SKYPILOT_NUM_GPUS_PER_NODE", gpus.clone()),
            rank.source("SKYPILOT_SETUP_NODE_RANK"),
            text("SKYPILOT_SETUP_NUM_GPUS_PER_NODE", gpus),
            text("SKYPILOT_TASK_ID", self.id.to_string()),
            text("SKYPILOT_CLUSTER_INFO", script::literal(&self.cluster_info().to_string())),
            text("SKYPILOT_USER", script::literal(self.owner)),
        ];
        let hosts = self.host_names();
        let addresses = |name: &str| match &hosts {
            None => json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}),
            Some(hosts) => text(name, hosts.clone()),
        };
        variables.extend([addresses("SKYPILOT_NODE_IPS"), addresses("SKYPILOT_SETUP_NODE_IPS")]);
        variables
    }

    /// By SkyPilot's names. What MultiKueue dispatches learns from nobody which cluster took it.
    fn cluster_info(&self) -> Value {
        let cluster = Some(&self.placement.cluster).filter(|_| !self.by_multikueue);
        json!({"cluster_name": self.object_name(), "cloud": "Kubernetes", "region": cluster, "zone": null})
    }

    /// Cpu and memory as requests and limits, devices as limits only, as k8s-cli has them. An amount with a `+` is
    /// what the task needs at least: with SkyPilot, which sets no limits, it uses what its machine has beyond.
    fn resources(&self) -> Map<String, Value> {
        let (mut requests, mut limits) = (Map::new(), Map::new());
        let candidate = self.candidate();
        let or_more = |resource: &str| {
            let request = if resource == "cpu" { candidate.cpu } else { candidate.memory };
            request.is_some_and(|request| request.or_more)
        };
        for (resource, amount) in per_node(self.spec, candidate) {
            let text = || json!(amount.text(&resource));
            if !matches!(resource.as_str(), "cpu" | "memory") {
                limits.insert(resource.to_string(), text());
                continue;
            }
            requests.insert(resource.to_string(), text());
            match self.spec.limits {
                Limits::AsRequested if or_more(resource.as_str()) => {}
                Limits::AsRequested => drop(limits.insert(resource.to_string(), text())),
                Limits::Unlimited => {}
                Limits::Percent(percent) => {
                    let more = i128::from(amount.units()) * i128::from(percent) / 100;
                    let more = Amount::new(i64::try_from(more).unwrap_or(i64::MAX));
                    limits.insert(resource.to_string(), json!(more.text(&resource)));
                }
            }
        }
        let both = [("requests", requests), ("limits", limits)];
        both.into_iter()
            .filter(|(_, amounts)| !amounts.is_empty())
            .map(|(key, amounts)| (key.to_owned(), amounts.into()))
            .collect()
    }

    /// A volume stands in the pod once, however often it is mounted. Processes of a task that share memory, as loaders
    /// of data do, get more than the 64 MiB of container runtimes: as with SkyPilot, what the pod's memory allows.
    fn volumes(&self) -> (Vec<Value>, Vec<Value>) {
        let mut known: Vec<&str> = Vec::new();
        let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
        for mount in &self.spec.volumes {
            let index = known.iter().position(|name| *name == mount.volume).unwrap_or_else(|| {
                let claim = self.placement.claims.get(&mount.volume);
                let claim = claim.expect("a task is only sent where its volumes are");
                let name = pod_volume(&mount.volume, known.len());
                let mut source = json!({"claimName": claim});
                if self.placement.read_only.contains(&mount.volume) {
                    // Whatever the mounts say, and it is attached so where the storage can.
                    source["readOnly"] = json!(true);
                }
                volumes.push(json!({"name": name, "persistentVolumeClaim": source}));
                known.push(&mount.volume);
                known.len() - 1
            });
            let mut entry = json!({"name": pod_volume(&mount.volume, index), "mountPath": mount.path});
            if let Some(path) = &mount.sub_path {
                entry["subPath"] = json!(path);
            }
            if mount.read_only || self.placement.read_only.contains(&mount.volume) {
                entry["readOnly"] = json!(true);
            }
            mounts.push(entry);
        }
        if !self.spec.uploads.is_empty() {
            let names = upload_secret_names(&self.object_name(), &self.spec.uploads);
            let sources: Vec<Value> = names.iter().map(|name| json!({"secret": {"name": name}})).collect();
            volumes.push(json!({"name": UPLOADS, "projected": {"sources": sources}}));
            mounts.push(json!({"name": UPLOADS, "mountPath": script::UPLOADS, "readOnly": true}));
        }
        if !self.spec.volumes.iter().any(|mount| holds_shared_memory(&mount.path)) {
            volumes.push(json!({"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory"}}));
            mounts.push(json!({"name": SHARED_MEMORY, "mountPath": SHARED_MEMORY_PATH}));
        }
        (volumes, mounts)
    }

    fn affinity(&self) -> Value {
        let Placement { terms, refused, .. } = self.placement;
        let wanted = terms.iter().map(|term| ("In", term));
        let all = wanted.chain(refused.iter().map(|term| ("NotIn", term)));
        let expressions: Vec<Value> = all
            .map(|(operator, (key, values))| json!({"key": key, "operator": operator, "values": values}))
            .collect();
        let mut affinity = json!({});
        if !expressions.is_empty() {
            affinity["nodeAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": expressions}],
            }});
        }
        if self.spec.one_machine {
            affinity["podAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": {"matchLabels": {ID_LABEL: self.id.as_str()}},
                "topologyKey": "kubernetes.io/hostname",
            }]});
        }
        affinity
    }
}

/// Whether what is mounted at `path` has the place of shared memory in it.
fn holds_shared_memory(path: &str) -> bool {
    std::path::Path::new(SHARED_MEMORY_PATH).starts_with(path)
}

/// The volume's own name where a pod may have it.
fn pod_volume(name: &str, index: usize) -> String {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = name.starts_with(edge)
        && name.ends_with(edge)
        && name.chars().all(legal)
        && task_label(name) == name
        && !name.starts_with("volume-")
        && !name.starts_with(RESERVED);
    if is_label { name.to_owned() } else { format!("volume-{index}") }
}
