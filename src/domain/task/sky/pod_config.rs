//! `config.kubernetes.pod_config`: what a task may change of its pods.
//!
//! A pod's spec decides what of a node its user gets hold of, so there are two lists: what everybody may set, and what an
//! administrator may allow a tenant. Whatever else somebody writes is refused, since a task without it would not be theirs.

use std::{collections::BTreeMap, fmt};

use super::{
    Allowed,
    config::{metadata, object_name},
    reader::{At, Fields, Notes},
};
use crate::task::{
    render::{HOST_NETWORK_DNS, SHARED_MEMORY_PATH},
    spec::PodExtras,
    tenant::{CAPABILITIES, PodRules, is_device},
    yaml::shown,
};
use fedq_values::ids::ResourceName;

/// More devices than any node has.
const MAX_DEVICES: i64 = 1024;
const SET_FOR_ALL: &str = "nodeSelector, tolerations, imagePullSecrets, runtimeClassName and \
                           terminationGracePeriodSeconds";

pub fn read(at: &At<'_>, pod: &mut PodExtras, rules: &Allowed, notes: &mut Notes) {
    let mut fields = at.fields(notes);
    if let Some(at) = fields.take("metadata") {
        metadata(&at, pod, notes);
    }
    if let Some(at) = fields.take("spec") {
        spec(at.fields(notes), pod, rules, notes);
    }
    fields.finish_open(notes, "only metadata and spec of a pod can be changed");
}

fn spec(mut fields: Fields<'_>, pod: &mut PodExtras, rules: &Allowed, notes: &mut Notes) {
    if let Some(at) = fields.take("nodeSelector") {
        pod.node_selector = at.texts(notes);
    }
    if let Some(at) = fields.take("tolerations") {
        let items = at.list(notes);
        pod.tolerations = items.iter().filter_map(|at| toleration(at, notes)).collect();
    }
    if let Some(at) = fields.take("imagePullSecrets") {
        for at in at.list(notes) {
            let mut fields = at.fields(notes);
            let name = fields.take("name").and_then(|at| object_name(&at, notes));
            fields.finish(notes);
            pod.image_pull_secrets.extend(name);
        }
    }
    pod.runtime_class = fields.take("runtimeClassName").and_then(|at| object_name(&at, notes));
    if let Some(at) = fields.take("terminationGracePeriodSeconds") {
        let seconds = at.whole(notes).map(u32::try_from);
        match seconds {
            Some(Ok(seconds)) if seconds <= 86_400 => pod.grace_seconds = Some(seconds),
            Some(_) => notes.problem(&at, "a pod gets 0 to 86400 seconds to end"),
            None => {}
        }
    }
    network(&mut fields, pod, rules, notes);
    if let Some(at) = fields.take("containers") {
        match at.list(notes).as_slice() {
            [] => {}
            [one] => container(one.fields(notes), pod, rules, notes),
            [_, second, ..] => notes.problem(second, "a task has one container"),
        }
    }
    shared_memory(fields.take("volumes"), notes);
    fields.refuse_rest(
        notes,
        &format!("cannot be set: of a pod's spec there are {SET_FOR_ALL}, and hostNetwork and containers where allowed"),
    );
}

/// Of its node, as RDMA over Ethernet often takes.
fn network(fields: &mut Fields<'_>, pod: &mut PodExtras, rules: &Allowed, notes: &mut Notes) {
    let asked = fields.take("hostNetwork").filter(|at| at.boolean(notes) == Some(true));
    if let Some(at) = &asked {
        if rules.allow(|rules| rules.host_network) {
            pod.host_network = true;
        } else {
            let what = "the network of their node";
            let refusal = Refusal { what, key: "hostNetwork", value: "true", secured: true };
            notes.problem(at, refusal.to_string());
        }
    }
    let Some(at) = fields.take("dnsPolicy") else { return };
    let Some(policy) = at.text(notes) else { return };
    if policy != if asked.is_some() { HOST_NETWORK_DNS } else { "ClusterFirst" } {
        notes.problem(
            &at,
            format!(
                "`{}` is not what tasks get: {HOST_NETWORK_DNS} with hostNetwork, ClusterFirst without",
                shown(policy)
            ),
        );
    }
}

fn container(mut fields: Fields<'_>, pod: &mut PodExtras, rules: &Allowed, notes: &mut Notes) {
    fields.ignore(notes, "name", "the container of a task is called task");
    if let Some(at) = fields.take("resources") {
        devices(&at, pod, rules, notes);
    }
    if let Some(at) = fields.take("securityContext") {
        let mut fields = at.fields(notes);
        if let Some(at) = fields.take("capabilities") {
            let mut fields = at.fields(notes);
            for at in fields.take("add").map(|at| at.list(notes)).unwrap_or_default() {
                capability(&at, pod, rules, notes);
            }
            fields.refuse_rest(notes, "cannot be set: capabilities can only be added");
        }
        fields.refuse_rest(
            notes,
            "cannot be set: of a securityContext there is only capabilities, where allowed",
        );
    }
    for at in fields.take("volumeMounts").map(|at| at.list(notes)).unwrap_or_default() {
        let mut fields = at.fields(notes);
        let path = fields.take("mountPath").and_then(|at| at.text(notes).map(str::to_owned));
        let name = fields.take("name");
        if path.as_deref() == Some(SHARED_MEMORY_PATH) && name.is_some() {
            notes.warn(&at, HAS_SHARED_MEMORY);
            fields.finish(notes);
        } else {
            notes.problem(&at, "a task mounts what `volumes` beside its `run` names");
        }
    }
    fields.refuse_rest(
        notes,
        "cannot be set: the task itself says what it runs and needs, and of its container there are only resources and \
         securityContext, where allowed",
    );
}

/// By limits, by requests, or by both alike, as Kubernetes has it of devices.
fn devices(at: &At<'_>, pod: &mut PodExtras, rules: &Allowed, notes: &mut Notes) {
    let mut fields = at.fields(notes);
    let mut asked: BTreeMap<ResourceName, u32> = BTreeMap::new();
    for part in ["limits", "requests"] {
        let Some(at) = fields.take(part) else { continue };
        for (name, at) in at.entries(notes) {
            let Some((device, count)) = device(name, &at, rules, notes) else { continue };
            if asked.insert(device, count).is_some_and(|before| before != count) {
                notes.problem(&at, "requests and limits of a device are the same number");
            }
        }
    }
    fields.refuse_rest(notes, "cannot be set: of a container's resources there are limits and requests");
    pod.devices = asked;
}

fn device(name: &str, at: &At<'_>, rules: &Allowed, notes: &mut Notes) -> Option<(ResourceName, u32)> {
    let Some(device) = ResourceName::new(name).ok().filter(is_device) else {
        let message = "is no device that can be asked for here, as rdma/hca: a task has cpus, memory and accelerators in \
                       `resources`";
        notes.problem(at, message);
        return None;
    };
    if !rules.allow(|rules| rules.resources.contains(&device)) {
        let refusal = Refusal {
            what: &format!("the device {device}"),
            key: "resources",
            value: device.as_str(),
            secured: false,
        };
        notes.problem(at, refusal.to_string());
        return None;
    }
    let number = at.whole(notes)?;
    if !(1..=MAX_DEVICES).contains(&number) {
        notes.problem(at, format!("a pod has 1 to {MAX_DEVICES} devices, not {number}"));
        return None;
    }
    Some((device, u32::try_from(number).ok()?))
}

fn capability(at: &At<'_>, pod: &mut PodExtras, rules: &Allowed, notes: &mut Notes) {
    let Some(text) = at.text(notes) else { return };
    // Linux's name has it before, Kubernetes' has not.
    let name = text.strip_prefix("CAP_").unwrap_or(text);
    if !CAPABILITIES.contains(&name) {
        let known = CAPABILITIES.join(", ");
        notes.problem(at, format!("`{}` cannot be allowed to tasks, only {known}", shown(text)));
    } else if rules.allow(|rules| rules.capabilities.contains(name)) {
        pod.capabilities.insert(name.to_owned());
    } else {
        let refusal = Refusal {
            what: &format!("the capability {name}"),
            key: "capabilities",
            value: name,
            secured: true,
        };
        notes.problem(at, refusal.to_string());
    }
}

const HAS_SHARED_MEMORY: &str =
    "has no effect: every task has /dev/shm, of memory, as large as its pod's memory allows";

/// SkyPilot's users write it for `/dev/shm`, which tasks have anyway.
fn shared_memory(volumes: Option<At<'_>>, notes: &mut Notes) {
    for at in volumes.map(|at| at.list(notes)).unwrap_or_default() {
        let mut fields = at.fields(notes);
        let named = fields.take("name").is_some();
        let medium = fields.take("emptyDir").and_then(|at| {
            let mut fields = at.fields(notes);
            fields.take("medium").and_then(|at| at.text(notes).map(str::to_owned))
        });
        if named && medium.as_deref() == Some("Memory") {
            notes.warn(&at, HAS_SHARED_MEMORY);
            fields.finish(notes);
        } else {
            notes.problem(&at, "a task mounts what `volumes` beside its `run` names");
        }
    }
}

/// What a tenant may not have, who can change that, and how.
struct Refusal<'a> {
    what: &'a str,
    key: &'a str,
    value: &'a str,
    /// Whether Pod Security keeps it from pods unless the namespace is privileged.
    secured: bool,
}

impl fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, key, value, secured } = self;
        write!(
            f,
            "tasks of your tenant may not have {what}: an administrator of fedqd can allow it with {value} in \
             tasks.tenants[].podConfig.{key}"
        )?;
        if *secured {
            f.write_str(", where the clusters' Pod Security has the tenant's namespace as privileged")?;
        }
        Ok(())
    }
}

impl Allowed {
    fn allow(&self, by: impl FnOnce(&PodRules) -> bool) -> bool {
        match self {
            Self::Unknown => true,
            Self::By(rules) => by(rules),
        }
    }
}

fn toleration(at: &At<'_>, notes: &mut Notes) -> Option<serde_json::Value> {
    let mut fields = at.fields(notes);
    let mut toleration = serde_json::Map::new();
    for key in ["key", "operator", "value", "effect"] {
        if let Some(at) = fields.take(key) {
            let text = at.text(notes)?;
            let known: &[&str] = match key {
                "operator" => &["Exists", "Equal"],
                "effect" => &["NoSchedule", "PreferNoSchedule", "NoExecute"],
                _ => &[],
            };
            if !known.is_empty() && !known.contains(&text) {
                notes.problem(&at, format!("`{}` is none of {}", shown(text), known.join(", ")));
            }
            toleration.insert(key.to_owned(), text.into());
        }
    }
    if let Some(at) = fields.take("tolerationSeconds") {
        toleration.insert("tolerationSeconds".to_owned(), at.whole(notes)?.into());
    }
    fields.finish(notes);
    Some(toleration.into())
}
