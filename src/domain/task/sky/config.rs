//! `config`: what SkyPilot lets a task override of its own configuration.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Allowed, pod_config,
    reader::{At, Notes},
    resources::label_map,
    text,
};
use crate::task::{
    spec::{Limits, PodExtras},
    yaml::shown,
};

#[derive(Debug, Default)]
pub struct Config {
    pub queue: Option<String>,
    pub spill_after: Option<Duration>,
    pub limits: Limits,
    pub pod: PodExtras,
    pub as_app_wrapper: bool,
}

/// `rules`: what its tenant may set of pods.
pub fn read(at: &At<'_>, rules: &Allowed, notes: &mut Notes) -> Config {
    let mut config = Config::default();
    let mut fields = at.fields(notes);
    if let Some(at) = fields.take("kubernetes") {
        kubernetes(&at, &mut config, rules, notes);
    }
    if let Some(at) = fields.take("fedq") {
        let mut own = at.fields(notes);
        config.as_app_wrapper =
            own.take("as_app_wrapper").and_then(|at| at.boolean(notes)).unwrap_or_default();
        own.finish(notes);
    }
    let quota = fields.take("quota").and_then(|at| queue_name(&at, "queue", notes));
    config.queue = quota.or(config.queue);
    fields.ignore(notes, "hooks", "the task's own script can trap signals");
    fields.finish_open(notes, "fedq has no such setting for a task");
    config
}

fn kubernetes(at: &At<'_>, config: &mut Config, rules: &Allowed, notes: &mut Notes) {
    let mut fields = at.fields(notes);
    if let Some(at) = fields.take("kueue") {
        let mut kueue = at.fields(notes);
        config.queue = kueue.take("local_queue_name").and_then(|at| object_name(&at, notes));
        if let Some(at) = kueue.take("admission_timeout") {
            config.spill_after = seconds(&at, notes);
        }
        kueue.finish(notes);
    }
    let quota = fields.take("quota").and_then(|at| queue_name(&at, "queue", notes));
    config.queue = quota.or(config.queue.take());
    if let Some(at) = fields.take("set_pod_resource_limits") {
        config.limits = limits(&at, notes).unwrap_or_default();
    }
    if let Some(at) = fields.take("custom_metadata") {
        metadata(&at, &mut config.pod, notes);
    }
    if let Some(at) = fields.take("pod_config") {
        pod_config::read(&at, &mut config.pod, rules, notes);
    }
    fields.ignore(notes, "provision_timeout", "fedq waits for the queue, not for a fixed time");
    fields.ignore(notes, "remote_identity", "the ServiceAccount is the administrator's choice");
    fields.ignore(notes, "dws", "Kueue provisions by the queue's AdmissionChecks");
    fields.ignore(notes, "enable_docker", "tasks get no Docker daemon");
    fields.finish_open(notes, "fedq has no such setting for a task");
}

fn queue_name(at: &At<'_>, field: &'static str, notes: &mut Notes) -> Option<String> {
    let mut fields = at.fields(notes);
    let queue = fields.take(field).and_then(|at| object_name(&at, notes));
    fields.finish(notes);
    queue
}

/// Of a LocalQueue and the like.
pub fn object_name(at: &At<'_>, notes: &mut Notes) -> Option<String> {
    let name = at.text(notes)?;
    if fedq_values::ids::QueueName::new(name).is_err() {
        notes.problem(
            at,
            format!("`{}` is no name of an object: use lower-case letters, digits, `-` and `.`", shown(name)),
        );
        return None;
    }
    Some(name.to_owned())
}

pub fn seconds(at: &At<'_>, notes: &mut Notes) -> Option<Duration> {
    let duration = text::duration(at.text(notes)?);
    if duration.is_none() {
        notes.problem(at, "this takes seconds, or a number with s, m, h or d");
    }
    duration
}

/// SkyPilot takes a truth value or a factor.
fn limits(at: &At<'_>, notes: &mut Notes) -> Option<Limits> {
    let text = at.text(notes)?;
    match text {
        "true" | "True" => return Some(Limits::Percent(100)),
        "false" | "False" => return Some(Limits::Unlimited),
        _ => {}
    }
    let hundredths =
        fedq_values::quantity::Quantity::parse(text).ok().map(|factor| factor.nanos() / 10_000_000);
    let percent = hundredths.and_then(|percent| u32::try_from(percent).ok());
    let percent = percent.filter(|percent| (100..=10_000).contains(percent));
    if percent.is_none() {
        notes.problem(at, format!("`{}` is neither true, false nor a factor of 1 to 100", shown(text)));
    }
    percent.map(Limits::Percent)
}

pub fn metadata(at: &At<'_>, pod: &mut PodExtras, notes: &mut Notes) {
    let mut fields = at.fields(notes);
    if let Some(at) = fields.take("labels") {
        pod.labels.extend(label_map(&at, notes));
    }
    if let Some(at) = fields.take("annotations") {
        pod.annotations.extend(annotations(&at, notes));
    }
    fields.finish_open(notes, "only labels and annotations can be added");
}

fn annotations(at: &At<'_>, notes: &mut Notes) -> BTreeMap<String, String> {
    let mut kept = BTreeMap::new();
    for (key, at) in at.entries(notes) {
        let Some(value) = at.text(notes) else { continue };
        if fedq_values::ids::ResourceName::new(key).is_err() {
            notes.problem(&at, format!("`{}` is no key of an annotation", shown(key)));
        } else if is_reserved(key) {
            notes.warn(&at, "has no effect: fedq and Kueue set this annotation themselves");
        } else {
            kept.insert(key.to_owned(), value.to_owned());
        }
    }
    kept
}

/// Keys by which tasks are found, queued and owned.
pub fn is_reserved(key: &str) -> bool {
    const OURS: [&str; 7] =
        ["skypilot-task", "skypilot-volume", "task-id", "task-name", "username", "node-idx", "created-at"];
    const PREFIXES: [&str; 6] = [
        "fedq.dev/",
        "kueue.x-k8s.io/",
        "jobset.sigs.k8s.io/",
        "batch.kubernetes.io/",
        "kubernetes.io/",
        "app.kubernetes.io/managed-by",
    ];
    OURS.contains(&key) || PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}
