//! `resources`: the forms a task may take, each with all it needs.

use std::collections::BTreeMap;

use super::{
    config::{is_reserved, object_name},
    reader::{At, Fields, Notes},
    recovery::recovery,
    text::is_label_value,
};
use crate::task::{
    quantity::{self, Request, RequestError},
    render::PRIORITY_LABEL,
    spec::{Accelerator, Candidate, Priority, Recovery},
    yaml::shown,
};
use fedq_values::ids::{ClusterName, ResourceName};

const MAX_CANDIDATES: usize = 64;
const MAX_ACCELERATORS: u32 = 1024;
/// By this label Kueue knows a workload's queue, by [`PRIORITY_LABEL`] its priority.
const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";

#[derive(Debug)]
pub struct Shape {
    pub candidates: Vec<Candidate>,
    pub ordered: bool,
    pub queue: Option<String>,
    pub priority_class: Option<String>,
    pub priority: Option<Priority>,
    pub recovery: Recovery,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            candidates: vec![Candidate::default()],
            ordered: false,
            queue: None,
            priority_class: None,
            priority: None,
            recovery: Recovery::default(),
        }
    }
}

/// One set of fields: the outer ones, or those of an entry of `any_of` or `ordered`.
#[derive(Clone, Debug, Default)]
struct Draft {
    infra: Option<Infra>,
    cpu: Option<Request>,
    memory: Option<Request>,
    accelerators: Vec<Accelerator>,
    accelerators_ordered: bool,
    instance_type: Option<String>,
    spot: Option<bool>,
    /// By region; the empty text is any.
    images: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
enum Infra {
    Any,
    Cluster(ClusterName),
    /// Of a cloud: not what fedq dispatches to.
    Elsewhere,
}

pub fn read(at: &At<'_>, notes: &mut Notes) -> Shape {
    let mut shape = Shape::default();
    let mut fields = at.fields(notes);
    of_the_job(&mut fields, &mut shape, notes);
    let any_of = fields.take("any_of");
    let ordered = fields.take("ordered");
    let outer = draft(&mut fields, &mut shape, notes);
    fields.finish(notes);
    if let (Some(_), Some(at)) = (&any_of, &ordered) {
        notes.problem(at, "there is `any_of` already: only one of them can be");
    }
    shape.ordered = ordered.is_some() || (any_of.is_none() && outer.accelerators_ordered);
    let drafts = match ordered.or(any_of) {
        None => vec![(at.clone(), outer)],
        Some(list) => {
            let items = list.list(notes);
            items.into_iter().map(|item| (item.clone(), inner(&item, &outer, &mut shape, notes))).collect()
        }
    };
    let found = candidates(at, drafts, notes);
    if found.is_empty() {
        notes.problem(at, "there is nothing here that a joined cluster could run; use `infra: k8s`");
    } else {
        shape.candidates = found;
    }
    shape
}

/// What holds for the task, whatever form it takes.
fn of_the_job(fields: &mut Fields<'_>, shape: &mut Shape, notes: &mut Notes) {
    if let Some(at) = fields.take("priority") {
        match at.whole(notes) {
            Some(value) if i32::try_from(value).is_ok() => shape.priority = Some(Priority::Value(value)),
            Some(value) => notes.problem(&at, format!("{value} is beyond all priorities of Kubernetes")),
            None => {}
        }
    }
    shape.priority_class = fields.take("priority_class").and_then(|at| object_name(&at, notes));
    if let Some(at) = fields.take("job_recovery") {
        shape.recovery = recovery(&at, notes);
    }
    fields.ignore(notes, "autostop", "a task's pods end with its script");
    fields.ignore(notes, "ports", "no port is published; the nodes of a task reach each other on any");
    fields.ignore(notes, "accelerator_args", "the image and its setup choose the runtime");
    fields.ignore(notes, "disk_size", "nodes have the disk that they have; use a volume");
    fields.ignore(notes, "disk_tier", "nodes have the disk that they have; use a volume");
    fields.ignore(notes, "network_tier", "the cluster's network is the same for all pods");
    fields.ignore(notes, "local_disk", "nodes have the disk that they have; use a volume");
    fields.ignore(notes, "max_hourly_cost", "quota limits tasks, not prices");
}

fn inner(item: &At<'_>, outer: &Draft, shape: &mut Shape, notes: &mut Notes) -> Draft {
    let mut fields = item.fields(notes);
    for job in ["priority", "priority_class", "job_recovery", "autostop"] {
        fields.ignore(notes, job, "it belongs to `resources` itself");
    }
    for field in ["ports", "accelerator_args", "disk_size", "disk_tier", "network_tier", "local_disk"] {
        fields.ignore(notes, field, "nodes have what they have");
    }
    fields.ignore(notes, "max_hourly_cost", "quota limits tasks, not prices");
    let own = draft(&mut fields, shape, notes);
    fields.finish(notes);
    let mut labels = outer.labels.clone();
    labels.extend(own.labels);
    Draft {
        infra: own.infra.or_else(|| outer.infra.clone()),
        cpu: own.cpu.or(outer.cpu),
        memory: own.memory.or(outer.memory),
        accelerators_ordered: own.accelerators_ordered || outer.accelerators_ordered,
        accelerators: if own.accelerators.is_empty() { outer.accelerators.clone() } else { own.accelerators },
        instance_type: own.instance_type.or_else(|| outer.instance_type.clone()),
        spot: own.spot.or(outer.spot),
        images: if own.images.is_empty() { outer.images.clone() } else { own.images },
        labels,
    }
}

fn candidates(resources: &At<'_>, drafts: Vec<(At<'_>, Draft)>, notes: &mut Notes) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    for (at, draft) in drafts {
        let cluster = match &draft.infra {
            None | Some(Infra::Any) => None,
            Some(Infra::Cluster(cluster)) => Some(cluster.clone()),
            Some(Infra::Elsewhere) => {
                notes.warn(&at, "is left out: fedq runs tasks on joined Kubernetes clusters only");
                continue;
            }
        };
        let image = image(&at, &draft.images, cluster.as_ref(), notes);
        let accelerators = draft.accelerators.iter().cloned().map(Some);
        let none = draft.accelerators.is_empty().then_some(None);
        for accelerator in accelerators.chain(none) {
            let candidate = Candidate {
                cluster: cluster.clone(),
                cpu: draft.cpu,
                memory: draft.memory,
                accelerator,
                instance_type: draft.instance_type.clone(),
                spot: draft.spot == Some(true),
                on_demand: draft.spot == Some(false),
                image: image.clone(),
                labels: draft.labels.clone(),
            };
            if !found.contains(&candidate) {
                found.push(candidate);
            }
            if MAX_CANDIDATES < found.len() {
                notes.problem(resources, format!("a task has at most {MAX_CANDIDATES} alternatives"));
                return found;
            }
        }
    }
    found
}

fn image(
    at: &At<'_>,
    images: &BTreeMap<String, String>,
    cluster: Option<&ClusterName>,
    notes: &mut Notes,
) -> Option<String> {
    let chosen = cluster.and_then(|cluster| images.get(cluster.as_str())).or_else(|| images.get(""));
    match (chosen, images.len()) {
        (Some(image), _) => Some(image.clone()),
        (None, 0) => None,
        (None, 1) => images.values().next().cloned(),
        (None, _) => {
            notes.warn(at, "has no effect in `image_id`: none of its keys is the cluster");
            None
        }
    }
}

fn draft(fields: &mut Fields<'_>, shape: &mut Shape, notes: &mut Notes) -> Draft {
    let amount = |at: At<'_>, read: fn(&str) -> Result<Request, RequestError>, notes: &mut Notes| {
        let text = at.text(notes)?;
        match read(&shown(text)) {
            Ok(request) => Some(request),
            Err(error) => {
                notes.problem(&at, error.to_string());
                None
            }
        }
    };
    let mut draft = Draft { infra: infra(fields, notes), ..Draft::default() };
    draft.cpu = fields.take("cpus").and_then(|at| amount(at, quantity::cpu, notes));
    draft.memory = fields.take("memory").and_then(|at| amount(at, quantity::memory, notes));
    let gpus = fields.take("gpus");
    let accelerators = fields.take("accelerators");
    if let (Some(at), Some(_)) = (&gpus, &accelerators) {
        notes.problem(at, "is another name of `accelerators`, which is there too");
    }
    if let Some(at) = accelerators.or(gpus) {
        draft.accelerators_ordered = at.is_list();
        draft.accelerators = accelerators_of(&at, notes);
    }
    draft.instance_type = fields.take("instance_type").and_then(|at| instance_type(&at, notes));
    draft.spot = fields.take("use_spot").and_then(|at| at.boolean(notes));
    if let Some(at) = fields.take("image_id") {
        draft.images = images(&at, notes);
    }
    if let Some(at) = fields.take("labels") {
        draft.labels = labels(&at, shape, notes);
    }
    draft
}

/// `infra`, or `cloud` with `region` as SkyPilot had it before.
fn infra(fields: &mut Fields<'_>, notes: &mut Notes) -> Option<Infra> {
    let (infra, cloud) = (fields.take("infra"), fields.take("cloud"));
    let region = fields.take("region");
    fields.ignore(notes, "zone", "which nodes a task gets is its flavor's business");
    let (at, cloud, place) = match (infra, cloud, &region) {
        (Some(at), None, None) => {
            let (cloud, place) = match at.text(notes)?.split_once('/') {
                Some((cloud, place)) => (cloud.to_owned(), Some(place.to_owned())),
                None => (at.text(notes)?.to_owned(), None),
            };
            (at, cloud, place)
        }
        (Some(at), ..) => {
            notes.problem(&at, "says where to run, and so do `cloud` and `region`: leave those out");
            return None;
        }
        (None, Some(at), region) => {
            let place = region.as_ref().and_then(|at| at.text(notes)).map(str::to_owned);
            let cloud = at.text(notes)?.to_owned();
            (at, cloud, place)
        }
        (None, None, Some(at)) => {
            notes.problem(at, "a region is of a `cloud`: write `infra: k8s/<cluster>`");
            return None;
        }
        (None, None, None) => return None,
    };
    let place = place.filter(|place| !place.is_empty() && place != "*");
    match (cloud.to_ascii_lowercase().as_str(), place) {
        ("*" | "k8s" | "kubernetes", None) => Some(Infra::Any),
        ("k8s" | "kubernetes", Some(cluster)) => match ClusterName::new(&cluster) {
            Ok(cluster) => Some(Infra::Cluster(cluster)),
            Err(error) => {
                notes.problem(&at, error.to_string());
                None
            }
        },
        _ => Some(Infra::Elsewhere),
    }
}

fn accelerators_of(at: &At<'_>, notes: &mut Notes) -> Vec<Accelerator> {
    if at.is_list() {
        let items = at.list(notes);
        return items.iter().filter_map(|item| accelerator(item, item.text(notes)?, notes)).collect();
    }
    if !at.is_map() {
        return at.text(notes).and_then(|text| accelerator(at, text, notes)).into_iter().collect();
    }
    let entries = at.entries(notes);
    if MAX_CANDIDATES < entries.len() {
        notes.problem(at, format!("a task has at most {MAX_CANDIDATES} alternatives"));
        return Vec::new();
    }
    let read = |(key, at): (&str, At<'_>)| {
        if at.is_null() {
            // An entry of a set: `{H100:1, A100:1}`.
            return accelerator(&at, key, notes);
        }
        let count = at.text(notes)?;
        accelerator(&at, &format!("{key}:{count}"), notes)
    };
    entries.into_iter().filter_map(read).collect()
}

/// `H100`, `H100:8`, or a bare number of any kind.
fn accelerator(at: &At<'_>, text: &str, notes: &mut Notes) -> Option<Accelerator> {
    let text = text.trim();
    let (kind, count) = match text.split_once(':') {
        Some((kind, count)) => (Some(kind.trim()), count.trim()),
        None if text.starts_with(|c: char| c.is_ascii_digit()) && text.parse::<f64>().is_ok() => (None, text),
        None => (Some(text), "1"),
    };
    if kind.is_some_and(|kind| kind.is_empty() || !is_label_value(kind)) {
        notes.problem(at, format!("`{}` is no accelerator: write one such as H100 or H100:8", shown(text)));
        return None;
    }
    // `8.0` is what some writers make of 8.
    let count = count.strip_suffix(".0").unwrap_or(count);
    let whole = count.parse::<u32>().ok().filter(|count| (1..=MAX_ACCELERATORS).contains(count));
    if whole.is_none() {
        notes.problem(
            at,
            format!(
                "`{}` is no number of accelerators: a node gets whole ones, 1 to {MAX_ACCELERATORS}",
                shown(count)
            ),
        );
    }
    Some(Accelerator { kind: kind.map(str::to_owned), count: whole? })
}

fn instance_type(at: &At<'_>, notes: &mut Notes) -> Option<String> {
    let text = at.text(notes)?;
    if text.contains("CPU--") {
        notes.problem(at, "this is SkyPilot's own name of a size: write `cpus` and `memory` instead");
        return None;
    }
    if text.is_empty() || !is_label_value(text) {
        notes.problem(at, format!("`{}` is no instance type", shown(text)));
        return None;
    }
    Some(text.to_owned())
}

fn images(at: &At<'_>, notes: &mut Notes) -> BTreeMap<String, String> {
    let mut images = BTreeMap::new();
    let mut add = |region: &str, at: &At<'_>, notes: &mut Notes| {
        let Some(text) = at.text(notes) else { return };
        let image = text.strip_prefix("docker:").unwrap_or(text);
        let legible = |c: char| c.is_ascii_graphic();
        if image.is_empty() || 512 < image.len() || !image.chars().all(legible) {
            notes.problem(at, format!("`{}` is no name of an image", shown(text)));
        } else {
            images.insert(region.to_owned(), image.to_owned());
        }
    };
    if at.is_map() {
        at.entries(notes).into_iter().for_each(|(region, at)| add(region, &at, notes));
    } else {
        add("", at, notes);
    }
    images
}

/// The pods' labels; those of Kueue's go to the task itself.
fn labels(at: &At<'_>, shape: &mut Shape, notes: &mut Notes) -> BTreeMap<String, String> {
    let mut kept = BTreeMap::new();
    for (key, at) in at.entries(notes) {
        match key {
            QUEUE_LABEL => shape.queue = object_name(&at, notes),
            PRIORITY_LABEL => shape.priority_class = object_name(&at, notes),
            _ => kept.extend(label(key, &at, notes)),
        }
    }
    kept
}

pub fn label_map(at: &At<'_>, notes: &mut Notes) -> BTreeMap<String, String> {
    at.entries(notes).into_iter().filter_map(|(key, at)| label(key, &at, notes)).collect()
}

fn label(key: &str, at: &At<'_>, notes: &mut Notes) -> Option<(String, String)> {
    let value = if at.is_null() { "" } else { at.text(notes)? };
    // A label's key has the form of a resource's name.
    if ResourceName::new(key).is_err() || !is_label_value(value) {
        notes.problem(at, "this is no label: letters, digits, `-`, `_` and `.`, at most 63 characters");
        return None;
    }
    if is_reserved(key) {
        notes.warn(at, "has no effect: fedq and Kueue set this label themselves");
        return None;
    }
    Some((key.to_owned(), value.to_owned()))
}
