//! What is to be written to one cluster for its tasks, from what is there.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use fedq_domain::task::{
    names::{TaskId, object_name},
    phase::Phase,
    render::{Gang, Order, Tenant, is_main, main_names, needs_service, render, upload_secret_names},
    wrapped,
};
use fedq_k8s::{
    types::task::TaskJob,
    write::{self, Action, Change, Kind},
};
use fedq_store::{Dispatch, Run, TaskRow};
use fedq_values::ids::ClusterName;

use super::{
    index::{Index, OnCluster, Whose},
    secrets::Contents,
    target::Target,
};

pub(super) const MANAGER: &str = "fedq-task";

/// What objects are made of, besides the task.
pub(super) struct Maker<'a> {
    pub hub_id: &'a str,
    pub tenants: &'a BTreeMap<String, Tenant>,
    pub default_image: &'a str,
}

/// A task that is being dispatched, and where.
#[derive(Clone, Copy)]
pub(super) struct Dispatching<'a> {
    pub task: &'a TaskRow,
    pub dispatch: &'a Dispatch,
}

impl Dispatching<'_> {
    pub fn object_name(&self) -> String {
        object_name(self.task.spec.name.as_deref(), &self.task.id, self.task.spec.num_nodes)
    }

    /// Its Jobs, or its JobSet or AppWrapper.
    pub fn mains(&self) -> Vec<write::Target> {
        let kind = match self.dispatch.gang {
            Gang::PerNode | Gang::Indexed | Gang::Unwrapped => Kind::Job,
            Gang::JobSet => Kind::JobSet,
            Gang::AppWrapper => Kind::AppWrapper,
        };
        let names = main_names(self.dispatch.gang, &self.object_name(), self.task.spec.num_nodes);
        names.into_iter().map(|name| write::Target::namespaced(kind, &self.task.namespace, name)).collect()
    }

    /// What its pods need besides.
    pub fn owned(&self) -> Vec<write::Target> {
        let (name, namespace) = (self.object_name(), &self.task.namespace);
        let secret = |name: String| write::Target::namespaced(Kind::Secret, namespace, name);
        let values = (!self.task.spec.secrets.is_empty()).then(|| secret(format!("{name}-env")));
        let uploads = upload_secret_names(&name, &self.task.spec.uploads).into_iter().map(secret);
        let service = needs_service(self.dispatch.gang, &self.task.spec)
            .then(|| write::Target::namespaced(Kind::Service, namespace, &name));
        values.into_iter().chain(uploads).chain(service).collect()
    }

    fn render(&self, maker: &Maker<'_>, contents: &Contents) -> Vec<Value> {
        let TaskRow { id, owner, namespace, submitted, spec, state, .. } = self.task;
        let plain = Tenant { namespace: namespace.clone(), service_account: None };
        render(&Order {
            id,
            epoch: state.epoch,
            hub_id: maker.hub_id,
            owner,
            submitted: *submitted,
            spec,
            secrets: &contents.secrets,
            uploads: &contents.uploads,
            placement: &self.dispatch.placement,
            gang: self.dispatch.gang,
            tenant: maker.tenants.get(namespace).unwrap_or(&plain),
            priority_class: self.dispatch.priority_class.as_deref(),
            by_multikueue: self.dispatch.by_multikueue,
            default_image: maker.default_image,
        })
    }
}

/// What a dispatch still needs. Jobs first, so that all else can be theirs and goes with them: a Secret that is left
/// behind would be found by nobody, since fedq may not list those of a worker.
pub(super) fn create(
    of: Dispatching<'_>,
    here: Option<&OnCluster>,
    target: &Target,
    maker: &Maker<'_>,
    contents: &mut dyn FnMut() -> Option<Arc<Contents>>,
) -> Vec<Change> {
    let jobs = here.map_or(&[][..], |here| &here.jobs);
    let epoch = of.task.state.epoch;
    let ours = |job: &TaskJob| job.epoch() == Some(epoch) && !job.metadata.going;
    let owners: Vec<&Arc<TaskJob>> = jobs.iter().map(|(_, job)| job).filter(|job| ours(job)).collect();
    let mains = of.mains();
    if owners.len() < mains.len() {
        if !of.dispatch.by_multikueue {
            // It is on its way while the Jobs are made.
            contents();
        }
        let taken = |name: &str| jobs.iter().any(|(_, job)| job.metadata.name == name);
        let rendered = of.render(maker, &Contents::default());
        let missing = rendered.into_iter().filter(is_main).filter(|object| {
            // What is being deleted has to be gone first.
            object["metadata"]["name"].as_str().is_some_and(|name| !taken(name))
        });
        return missing.filter_map(created).collect();
    }
    if of.dispatch.by_multikueue {
        return Vec::new();
    }
    create_owned(of, &owners, target, (maker, contents))
}

/// What the pods need besides, as their Jobs' own; nothing where MultiKueue has yet to make those.
pub(super) fn create_owned(
    of: Dispatching<'_>,
    owners: &[&Arc<TaskJob>],
    target: &Target,
    (maker, contents): (&Maker<'_>, &mut dyn FnMut() -> Option<Arc<Contents>>),
) -> Vec<Change> {
    let Some(owner) = owners.first() else { return Vec::new() };
    let needed = of.owned();
    if needed.iter().all(|object| target.has_made(object, &owner.metadata.uid)) {
        return Vec::new();
    }
    let Some(contents) = contents() else { return Vec::new() };
    let references = references(of.dispatch.gang, owners);
    let rendered = of.render(maker, &contents).into_iter().filter(|object| !is_main(object));
    rendered
        .filter_map(|mut object| {
            object["metadata"]["ownerReferences"] = references.clone();
            created(object)
        })
        .filter(|change| !target.has_made(&change.target, &owner.metadata.uid))
        .collect()
}

fn references(gang: Gang, owners: &[&Arc<TaskJob>]) -> Value {
    let (version, kind) = match gang {
        Gang::JobSet => ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        Gang::AppWrapper => (wrapped::API_VERSION, "AppWrapper"),
        Gang::PerNode | Gang::Indexed | Gang::Unwrapped => ("batch/v1", "Job"),
    };
    let reference = |owner: &&Arc<TaskJob>| {
        json!({
            "apiVersion": version, "kind": kind, "name": owner.metadata.name, "uid": owner.metadata.uid,
            "blockOwnerDeletion": true,
        })
    };
    owners.iter().map(reference).collect()
}

fn created(object: Value) -> Option<Change> {
    let kind = match object["kind"].as_str()? {
        "Job" => Kind::Job,
        "JobSet" => Kind::JobSet,
        "AppWrapper" => Kind::AppWrapper,
        "Secret" => Kind::Secret,
        "Service" => Kind::Service,
        _ => return None,
    };
    let metadata = &object["metadata"];
    let target = write::Target::namespaced(kind, metadata["namespace"].as_str()?, metadata["name"].as_str()?);
    Some(Change { target, action: Action::Create(object), manager: MANAGER })
}

/// Takes all that is there off the cluster.
pub(super) fn withdraw<'a>(jobs: impl Iterator<Item = &'a (Kind, Arc<TaskJob>)>) -> Vec<Change> {
    let staying = jobs.filter(|(_, job)| !job.metadata.going);
    staying
        .map(|(kind, job)| {
            let metadata = &job.metadata;
            let target = write::Target::namespaced(*kind, &metadata.namespace, &metadata.name);
            Change { target, action: Action::Withdraw { uid: metadata.uid.clone() }, manager: MANAGER }
        })
        .collect()
}

/// What is known of a task that is not live.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Past {
    /// Over since then.
    Over { phase: Phase, epoch: u32, at: Timestamp, whose: Whose, cluster: Option<ClusterName> },
    /// The store has no such task: it was forgotten, or the store is a new one. What runs goes on.
    Unknown,
}

impl Past {
    /// Of a task that is over.
    pub fn of(row: &TaskRow) -> Self {
        let (phase, epoch) = (row.state.phase.clone(), row.state.epoch);
        let cluster = row.dispatch.as_ref().and_then(Dispatch::cluster).cloned();
        Self::Over { phase, epoch, at: row.changed, whose: Whose::of(row), cluster }
    }
}

/// When objects of tasks that are over go.
#[derive(Clone, Copy)]
pub(super) struct Cleaning<'a> {
    pub now: Timestamp,
    pub keep: Duration,
    /// The cluster is let go of.
    pub leaving: bool,
    /// Their logs are being read.
    pub held: &'a HashSet<Run>,
}

impl Cleaning<'_> {
    fn is_due(&self, since: Timestamp) -> bool {
        let keep = SignedDuration::try_from(self.keep).unwrap_or(SignedDuration::MAX);
        self.leaving || since.saturating_add(keep).is_ok_and(|due| due <= self.now)
    }

    /// Whether an object of a task that is not live is to go.
    pub fn removes(&self, job: &TaskJob, past: &Past) -> bool {
        match (past, &job.end) {
            (Past::Over { epoch, .. }, _) if job.epoch().is_some_and(|of| of < *epoch) => true,
            // Kept for its logs.
            (Past::Over { phase: Phase::Succeeded { .. } | Phase::Failed { .. }, at, .. }, Some(_)) => {
                self.is_due(*at)
            }
            (Past::Over { .. }, _) => true,
            (Past::Unknown, Some(end)) => end.at.is_some_and(|at| self.is_due(at)),
            (Past::Unknown, None) => false,
        }
    }
}

/// Objects of tasks that are not live, or of earlier dispatches. `past` asks for what is not known yet.
pub(super) fn clean(
    index: &Index,
    live: impl Fn(&TaskId) -> Option<(Whose, u32)>,
    mut past: impl FnMut(&TaskId) -> Option<Past>,
    cleaning: Cleaning<'_>,
) -> Vec<Change> {
    let mut changes = Vec::new();
    for (id, here) in index.tasks() {
        if let Some((whose, epoch)) = live(id) {
            let here = here.only(&whose);
            let older = here.jobs.iter().filter(|(_, job)| job.epoch().is_some_and(|of| of < epoch));
            changes.extend(withdraw(older));
        } else if let Some(past) = past(id) {
            let here = match &past {
                Past::Over { whose, .. } => here.only(whose),
                Past::Unknown => Cow::Borrowed(here),
            };
            let held =
                |job: &TaskJob| job.epoch().is_some_and(|epoch| cleaning.held.contains(&(id.clone(), epoch)));
            let due = |job: &TaskJob| cleaning.removes(job, &past) && !held(job);
            changes.extend(withdraw(here.jobs.iter().filter(|(_, job)| due(job))));
        }
    }
    changes
}
