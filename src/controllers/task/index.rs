//! What of tasks is on one cluster, by task.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use fedq_domain::task::{
    names::{TaskId, object_name},
    phase::Epoch,
    progress::{End, Fault, Observed},
    render::is_main_name,
    view::{NodePhase, NodeView},
};
use fedq_k8s::{
    list_watch::Record,
    logs::{LogPod, numbered},
    types::{
        kueue::{Condition, Workload},
        task::{TaskJob, TaskMeta},
    },
    worker::Worker,
    write::Kind,
};
use fedq_store::TaskRow;

use self::places::Places;
use crate::memo::{Memo, verify};

mod places;

/// Kueue sets it on each Workload.
const JOB_UID_LABEL: &str = "kueue.x-k8s.io/job-uid";

#[derive(Default)]
pub(super) struct Index {
    /// Whether what it does not have was not there when it was read.
    pub current: bool,
    /// The same of AppWrappers.
    pub has_app_wrappers: bool,
    /// Of the tables that it was read from.
    revisions: Option<[u64; 5]>,
    found: Found,
    places: Memo<[u64; 3], Places>,
}

#[derive(Debug, Default, PartialEq)]
struct Found {
    tasks: HashMap<TaskId, OnCluster>,
    /// By the UID of the Job or JobSet.
    workloads: HashMap<String, Arc<Workload>>,
    /// Pods that their cluster ended, by UID: mostly they are gone before their Job has failed.
    disrupted: BTreeMap<String, Arc<LogPod>>,
    /// Pods that have ended, whether or not they are still there.
    ended: HashMap<TaskId, Vec<Arc<LogPod>>>,
}

/// What tells a task's own objects from others that carry its id.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Whose {
    namespace: String,
    object: String,
    nodes: u32,
}

impl Whose {
    pub fn of(row: &TaskRow) -> Self {
        let nodes = row.spec.num_nodes;
        let object = object_name(row.spec.name.as_deref(), &row.id, nodes);
        Self { namespace: row.namespace.clone(), object, nodes }
    }

    fn is_job(&self, job: &TaskJob) -> bool {
        let TaskMeta { name, namespace, .. } = &job.metadata;
        *namespace == self.namespace && is_main_name(name, &self.object, self.nodes)
    }

    fn is_pod(&self, pod: &LogPod) -> bool {
        pod.metadata.namespace.as_ref() == Some(&self.namespace)
    }
}

/// One task's objects, of whatever dispatch.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OnCluster {
    pub jobs: Vec<(Kind, Arc<TaskJob>)>,
    /// Those that MultiKueue put there.
    pub copies: Vec<Arc<TaskJob>>,
    pods: Vec<Arc<LogPod>>,
    /// Those that their cluster ended, whether or not they are still there.
    disrupted: Vec<Arc<LogPod>>,
}

/// What a dispatch of a task should have.
#[derive(Clone, Copy)]
pub(super) struct Expected {
    pub epoch: Epoch,
    pub objects: usize,
    pub nodes: u32,
}

impl Index {
    /// Reads anew what changed since the last time. `current`: asked before, so that the rows have all of it.
    pub fn refresh(&mut self, worker: &Worker, current: bool) {
        let tables = &worker.tasks;
        self.current = current;
        // Before they are read, so that the rows have all of it.
        self.has_app_wrappers = worker.follows_app_wrappers();
        let revisions = || {
            [
                tables.jobs.revision(),
                tables.job_sets.revision(),
                tables.app_wrappers.revision(),
                tables.pods.revision(),
                worker.direct_workloads.revision(),
            ]
        };
        let before = revisions();
        if self.revisions == Some(before) {
            let afresh = || Found::read(worker, self.found.disrupted.clone());
            verify(&self.found, afresh, || revisions() == before);
        } else {
            self.revisions = Some(before);
            self.found = Found::read(worker, std::mem::take(&mut self.found.disrupted));
        }
        let (workloads, queues, locals) = (&worker.direct_workloads, &worker.queues, &worker.local_queues);
        let revisions = || [workloads.revision(), queues.revision(), locals.revision()];
        self.places.refresh(revisions, |_| Places::of(worker, &workloads.all()));
    }

    pub fn tasks(&self) -> impl Iterator<Item = (&TaskId, &OnCluster)> {
        self.found.tasks.iter()
    }

    /// Whether there is anything that carries the id.
    pub fn has(&self, id: &TaskId) -> bool {
        self.found.tasks.contains_key(id)
    }

    /// Other ones, other rows.
    pub fn revisions(&self) -> Option<[u64; 5]> {
        self.revisions
    }

    /// How many pods carry a dispatch of the id.
    pub fn pods_of(&self, id: &TaskId, epoch: Epoch) -> usize {
        self.found.tasks.get(id).map_or(0, |here| here.pods(epoch).count())
    }

    /// What of a task is there; what only carries its id is left out.
    pub fn of(&self, row: &TaskRow) -> Option<Cow<'_, OnCluster>> {
        Some(self.found.tasks.get(&row.id)?.only(&Whose::of(row)))
    }

    /// What is seen of one dispatch. Writes are for the caller to add.
    pub fn observe(&self, row: &TaskRow, expected: Expected) -> Observed {
        let nodes = vec![NodeView::default(); usize::try_from(expected.nodes).unwrap_or_default()];
        let mut seen = Observed { expected: expected.objects, nodes, ..Observed::default() };
        let Some(here) = self.of(row) else { return seen };
        seen.left = here.jobs.len();
        let jobs: Vec<&TaskJob> = here.of(expected.epoch).map(|(_, job)| &**job).collect();
        let staying = jobs.iter().filter(|job| !job.metadata.going);
        seen.objects = staying.count();
        seen.admitted = !jobs.is_empty() && jobs.iter().all(|job| self.is_admitted(job));
        for job in &jobs {
            let Some(workload) = self.found.workloads.get(&job.metadata.uid) else { continue };
            seen.evicted = seen.evicted.or_else(|| true_message(&workload.status.conditions, "Evicted"));
            seen.waits = seen.waits.or_else(|| waits(&workload.status.conditions));
            seen.place = seen.place.or_else(|| self.places.value()?.get(&workload.metadata.uid));
        }
        seen.ready = !jobs.is_empty() && jobs.iter().all(|job| job.ready);
        here.add_nodes(expected.epoch, &mut seen);
        seen.end = end(&jobs, expected);
        if seen.end.is_some() {
            self.recall(row, &mut seen);
        }
        seen
    }

    /// How nodes ended whose pods are gone: those of a copy that MultiKueue made go as soon as that has ended. Only of what is
    /// over: what begins anew has other pods.
    pub fn recall(&self, row: &TaskRow, seen: &mut Observed) {
        let whose = Whose::of(row);
        let ended = self.found.ended.get(&row.id).into_iter().flatten().map(|pod| &**pod);
        let ended = ended.filter(|pod| pod.epoch() == Some(row.state.epoch) && whose.is_pod(pod));
        let mut ended = numbered(ended.collect());
        ended.sort_by_key(|(_, pod)| Reverse(pod.version()));
        for (rank, pod) in ended {
            if let Some(node) = node(seen, rank).filter(|node| node.phase == NodePhase::Waiting) {
                *node = pod.node_view();
            }
        }
    }

    /// Its first Workload's name.
    pub fn workload(&self, row: &TaskRow) -> Option<String> {
        let here = self.of(row)?;
        let (_, job) = here.of(row.state.epoch).next()?;
        Some(self.found.workloads.get(&job.metadata.uid)?.metadata.name.clone())
    }

    /// Whether Kueue counts what the task takes already.
    pub fn is_reserved(&self, row: &TaskRow) -> bool {
        let Some(here) = self.of(row) else { return false };
        let mut jobs = here.of(row.state.epoch).peekable();
        jobs.peek().is_some()
            && jobs.all(|(_, job)| {
                let workload = self.found.workloads.get(&job.metadata.uid);
                workload.is_some_and(|one| is_true(&one.status.conditions, "QuotaReserved"))
            })
    }

    /// On the hub: the MultiKueueClusters that run what is there of a dispatch, as Kueue says.
    pub fn dispatched_to(&self, row: &TaskRow) -> Vec<&str> {
        let Some(here) = self.of(row) else { return Vec::new() };
        let workloads =
            here.of(row.state.epoch).filter_map(|(_, job)| self.found.workloads.get(&job.metadata.uid));
        let chosen = workloads.filter_map(|workload| workload.status.cluster_name.as_deref());
        chosen.filter(|name| !name.is_empty()).collect()
    }

    /// A Job that no Workload stands for is not Kueue's, and runs unless it is suspended.
    fn is_admitted(&self, job: &TaskJob) -> bool {
        match self.found.workloads.get(&job.metadata.uid) {
            Some(workload) => is_true(&workload.status.conditions, "Admitted"),
            None => !job.suspended,
        }
    }
}

impl Found {
    /// `disrupted`: as it was known before.
    fn read(worker: &Worker, disrupted: BTreeMap<String, Arc<LogPod>>) -> Self {
        let tables = &worker.tasks;
        let mut found = Self { disrupted, ..Self::default() };
        let jobs = tables.jobs.all().into_iter().map(|job| (Kind::Job, job));
        let job_sets = tables.job_sets.all().into_iter().map(|job| (Kind::JobSet, job));
        let app_wrappers = tables.app_wrappers.all().into_iter().map(|job| (Kind::AppWrapper, job));
        for (kind, job) in jobs.chain(job_sets).chain(app_wrappers) {
            let id = job.metadata.labels.task.as_deref().and_then(TaskId::parse);
            // The Jobs that a JobSet makes are its own.
            let Some(id) = id.filter(|_| !job.metadata.labels.of_job_set) else { continue };
            let here = found.tasks.entry(id).or_default();
            if job.metadata.labels.dispatched {
                here.copies.push(job);
            } else {
                here.jobs.push((kind, job));
            }
        }
        for pod in tables.pods.all() {
            if pod.is_disrupted() {
                found.disrupted.insert(pod.metadata.uid.clone(), Arc::clone(&pod));
            } else {
                found.disrupted.remove(&pod.metadata.uid);
            }
            if let Some(id) = pod.task() {
                found.tasks.entry(id).or_default().pods.push(pod);
            }
        }
        for pod in tables.pods.ends() {
            if let Some(id) = pod.task() {
                found.ended.entry(id).or_default().push(pod);
            }
        }
        found.keep_disrupted();
        let jobs = found.tasks.values().flat_map(|task| &task.jobs);
        let ours: HashSet<&str> = jobs.map(|(_, job)| job.metadata.uid.as_str()).collect();
        let of = |workload: Arc<Workload>| {
            let uid = workload.metadata.labels.get(JOB_UID_LABEL)?.clone();
            ours.contains(uid.as_str()).then_some((uid, workload))
        };
        found.workloads = worker.direct_workloads.all().into_iter().filter_map(of).collect();
        found
    }

    fn keep_disrupted(&mut self) {
        let Self { tasks, disrupted, .. } = self;
        disrupted.retain(|_, pod| {
            let Some((id, epoch)) = pod.task().zip(pod.epoch()) else { return false };
            let Some(here) = tasks.get_mut(&id) else { return false };
            // One that was suspended meanwhile begins anew, with other pods.
            let runs = here.jobs.iter().map(|(_, job)| job).chain(&here.copies);
            let runs = runs.filter(|job| job.epoch() == Some(epoch)).any(|job| !job.suspended);
            if runs {
                here.disrupted.push(Arc::clone(pod));
            }
            runs
        });
    }
}

impl OnCluster {
    /// Nearly always that is all there is.
    pub fn only(&self, whose: &Whose) -> Cow<'_, Self> {
        let Self { jobs, copies, pods, disrupted } = self;
        let all = jobs.iter().all(|(_, job)| whose.is_job(job)) && copies.iter().all(|job| whose.is_job(job));
        if all && pods.iter().chain(disrupted).all(|pod| whose.is_pod(pod)) {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self {
            jobs: jobs.iter().filter(|(_, job)| whose.is_job(job)).cloned().collect(),
            copies: copies.iter().filter(|job| whose.is_job(job)).cloned().collect(),
            pods: pods.iter().filter(|pod| whose.is_pod(pod)).cloned().collect(),
            disrupted: disrupted.iter().filter(|pod| whose.is_pod(pod)).cloned().collect(),
        })
    }

    pub fn of(&self, epoch: Epoch) -> impl Iterator<Item = &(Kind, Arc<TaskJob>)> {
        self.jobs.iter().filter(move |(_, job)| job.epoch() == Some(epoch))
    }

    /// Of a dispatch and those before it. What names none is nobody's to withdraw.
    pub fn until(&self, epoch: Epoch) -> impl Iterator<Item = &(Kind, Arc<TaskJob>)> {
        self.jobs.iter().filter(move |(_, job)| job.epoch().is_some_and(|of| of <= epoch))
    }

    pub fn pods(&self, epoch: Epoch) -> impl Iterator<Item = &LogPod> {
        self.pods.iter().map(|pod| &**pod).filter(move |pod| pod.epoch() == Some(epoch))
    }

    /// Whether what MultiKueue put here of a dispatch is over, so that it takes it away any moment. What Kueue evicts
    /// begins anew; its pods are being deleted.
    pub fn copies_have_ended(&self, epoch: Epoch, nodes: u32) -> bool {
        let mut copies = self.copies.iter().filter(|job| job.epoch() == Some(epoch)).peekable();
        if copies.peek().is_none() {
            return false;
        }
        let ended = || self.pods(epoch).filter(|pod| !pod.metadata.going);
        let phase = |of: NodePhase| ended().filter(move |pod| pod.node_view().phase == of);
        copies.all(|job| job.end.is_some())
            || phase(NodePhase::Failed).next().is_some()
            || phase(NodePhase::Succeeded).count() == usize::try_from(nodes).unwrap_or(usize::MAX)
    }

    /// Each pod with its number among the nodes.
    pub fn numbered(&self, epoch: Epoch) -> Vec<(Option<u32>, &LogPod)> {
        numbered(self.pods(epoch).collect())
    }

    /// The pod that says most of each node.
    pub fn add_nodes(&self, epoch: Epoch, seen: &mut Observed) {
        seen.disrupted |= self.disrupted.iter().any(|pod| pod.epoch() == Some(epoch));
        for (rank, pod) in self.numbered(epoch) {
            let Some(slot) = node(seen, rank) else { continue };
            let view = pod.node_view();
            let says = |phase: NodePhase| {
                // A Job in an AppWrapper may make another pod in the place of one that failed.
                let replaced = pod.first_node().is_some() && phase == NodePhase::Failed;
                (phase != NodePhase::Waiting, !replaced, phase)
            };
            if says(slot.phase) <= says(view.phase) {
                *slot = view;
            }
            if seen.unschedulable.is_none() {
                seen.unschedulable = pod.unschedulable().map(str::to_owned);
            }
        }
    }
}

/// The node of that number; the only one has it also without.
fn node(seen: &mut Observed, rank: Option<u32>) -> Option<&mut NodeView> {
    let rank = rank.or((seen.nodes.len() == 1).then_some(0))?;
    seen.nodes.get_mut(usize::try_from(rank).ok()?)
}

fn end(jobs: &[&TaskJob], expected: Expected) -> Option<End> {
    let failures = || jobs.iter().filter_map(|job| job.end.as_ref()).filter(|end| !end.succeeded);
    // Of Jobs for each node, the others fail for want of the one that was disrupted.
    let failed = failures().find(|end| end.fault != Fault::Program).or_else(|| failures().next());
    if let Some(end) = failed {
        return Some(End::Failed { message: end.message.clone(), fault: end.fault });
    }
    let succeeded = jobs.iter().filter(|job| job.end.is_some()).count();
    (0 < expected.objects && expected.objects <= succeeded).then_some(End::Succeeded)
}

fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True")
}

fn true_message(conditions: &[Condition], kind: &str) -> Option<String> {
    let found = conditions.iter().find(|condition| condition.type_ == kind && condition.status == "True")?;
    let told = if found.message.is_empty() { &found.reason } else { &found.message };
    Some(told.clone())
}

/// Kueue's word on why there is no quota.
fn waits(conditions: &[Condition]) -> Option<String> {
    let found = conditions
        .iter()
        .find(|condition| condition.type_ == "QuotaReserved" && condition.status == "False")?;
    Some(found.message.clone()).filter(|message| !message.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::task::testing::row;
    use fedq_domain::task::{phase::Phase, testing::cluster_name};
    use fedq_k8s::{list_watch::Table, testing::Server};
    use fedq_values::ids::ClusterName;

    fn job(namespace: &str, name: &str) -> Arc<TaskJob> {
        let metadata = json!({"name": name, "namespace": namespace, "labels": {"task-id": "1a2b3c4d"}});
        Arc::new(serde_json::from_value(json!({"metadata": metadata})).expect("a Job"))
    }

    fn pod(namespace: &str) -> Arc<LogPod> {
        let metadata = json!({
            "name": "p", "uid": "u", "resourceVersion": "1", "namespace": namespace,
            "labels": {"task-id": "1a2b3c4d"},
        });
        let pod = json!({"metadata": metadata, "spec": {"containers": []}, "status": {}});
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn an_id_alone_makes_nothing_a_tasks() {
        let whose = Whose { namespace: "team".to_owned(), object: "train-1a2b3c4d".to_owned(), nodes: 2 };
        let own = OnCluster {
            jobs: vec![(Kind::Job, job("team", "train-1a2b3c4d-node-1"))],
            copies: vec![job("team", "train-1a2b3c4d")],
            pods: vec![pod("team")],
            disrupted: vec![pod("team")],
        };
        assert!(matches!(own.only(&whose), Cow::Borrowed(_)));
        let mut mixed = own.clone();
        mixed.jobs.push((Kind::Job, job("other", "train-1a2b3c4d")));
        mixed.jobs.push((Kind::Job, job("team", "mine")));
        mixed.copies.push(job("other", "train-1a2b3c4d"));
        mixed.pods.push(pod("other"));
        mixed.disrupted.push(pod("other"));
        let left = mixed.only(&whose);
        assert_eq!((left.jobs.len(), left.copies.len(), left.pods.len(), left.disrupted.len()), (1, 1, 1, 1));
        assert_eq!(left.jobs[0].1, own.jobs[0].1);
    }

    fn labelled(name: &str, version: u32) -> Value {
        json!({
            "name": name, "namespace": "team", "uid": name, "resourceVersion": version.to_string(),
            "labels": {
                "task-id": "1a2b3c4d", "fedq.dev/epoch": "1", "kueue.x-k8s.io/multikueue-origin": "hub",
                "node-idx": "0",
            },
        })
    }

    #[test]
    fn what_names_no_dispatch_is_of_none() {
        let epoch = |epoch: Value| {
            let labels = json!({"task-id": "1a2b3c4d", "fedq.dev/epoch": epoch});
            let metadata = json!({"name": "train-1a2b3c4d", "namespace": "team", "labels": labels});
            (Kind::Job, Arc::new(serde_json::from_value(json!({"metadata": metadata})).expect("a Job")))
        };
        let jobs = [json!("1"), json!("2"), json!("3"), Value::Null, json!("x")].map(epoch);
        let here = OnCluster { jobs: jobs.into(), ..OnCluster::default() };
        let until: Vec<Option<Epoch>> = here.until(2).map(|(_, job)| job.epoch()).collect();
        assert_eq!(until, [Some(1), Some(2)], "fedq withdraws only what it knows to be of an earlier one");
    }

    /// A worker with a Job of one dispatch, and an index of what is there.
    struct Bed {
        worker: Worker,
        index: Index,
        _server: Server,
    }

    impl Bed {
        fn new() -> Self {
            let server = Server::start(axum::Router::new());
            let name = ClusterName::new("one").expect("a name");
            let worker = Worker::new(name, server.client(), "uid".to_owned(), CancellationToken::new());
            let bed = Self { worker, index: Index::default(), _server: server };
            bed.worker.tasks.jobs.absorb_answer(&json!({"metadata": labelled("job", 1)}));
            bed
        }

        fn put(&self, version: u32, more: &Value) {
            let mut pod = json!({"metadata": labelled("pod", version), "spec": {"containers": []}});
            for (field, value) in more.as_object().expect("fields") {
                match (pod[field].as_object_mut(), value.as_object()) {
                    (Some(old), Some(new)) => old.extend(new.clone()),
                    _ => pod[field] = value.clone(),
                }
            }
            self.worker.tasks.pods.absorb_answer(&pod);
        }

        fn here(&mut self) -> &OnCluster {
            self.index.refresh(&self.worker, true);
            &self.index.found.tasks[&TaskId::parse("1a2b3c4d").expect("an id")]
        }

        fn is_disrupted(&mut self) -> bool {
            let mut seen = Observed::default();
            self.here().add_nodes(1, &mut seen);
            seen.disrupted
        }
    }

    fn of_wrapper(name: &str, labels: &Value, phase: &str) -> Arc<LogPod> {
        let mut all = json!({"task-id": "1a2b3c4d", "fedq.dev/epoch": "1"});
        for (key, value) in labels.as_object().expect("labels") {
            all[key] = value.clone();
        }
        let metadata = json!({
            "name": name, "uid": name, "resourceVersion": "1", "namespace": "team", "labels": all,
        });
        let pod = json!({"metadata": metadata, "spec": {"containers": []}, "status": {"phase": phase}});
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn pods_of_an_appwrapper_are_numbered_and_one_that_failed_gives_way_to_the_one_in_its_place() {
        let single = json!({"fedq.dev/first-node": "0", "fedq.dev/nodes": "1", "node-idx": "0"});
        // Of a Deployment: nobody numbers them.
        let alike = json!({"fedq.dev/first-node": "1", "fedq.dev/nodes": "2"});
        let indexed = |index: &str| {
            json!({
                "fedq.dev/first-node": "3", "fedq.dev/nodes": "2",
                "batch.kubernetes.io/job-completion-index": index,
            })
        };
        let here = OnCluster {
            pods: vec![
                of_wrapper("z", &alike, "Running"),
                of_wrapper("late", &indexed("1"), "Pending"),
                of_wrapper("again", &single, "Running"),
                of_wrapper("first", &single, "Failed"),
                of_wrapper("b", &alike, "Failed"),
                of_wrapper("y", &alike, "Succeeded"),
            ],
            ..OnCluster::default()
        };
        let numbers: Vec<(Option<u32>, &str)> =
            here.numbered(1).into_iter().map(|(number, pod)| (number, pod.metadata.name.as_str())).collect();
        assert_eq!(
            numbers,
            [
                (Some(0), "again"),
                (Some(4), "late"),
                (Some(1), "y"),
                (Some(2), "z"),
                (Some(2), "b"),
                (Some(0), "first"),
            ]
        );
        let mut seen = Observed { nodes: vec![NodeView::default(); 5], ..Observed::default() };
        here.add_nodes(1, &mut seen);
        let pods: Vec<Option<&str>> = seen.nodes.iter().map(|node| node.pod.as_deref()).collect();
        assert_eq!(pods, [Some("again"), Some("y"), Some("z"), None, Some("late")]);
        let only = OnCluster { pods: vec![of_wrapper("first", &single, "Failed")], ..OnCluster::default() };
        let mut seen = Observed { nodes: vec![NodeView::default()], ..Observed::default() };
        only.add_nodes(1, &mut seen);
        assert_eq!(seen.nodes[0].phase, NodePhase::Failed, "while nothing is in its place");
    }

    fn forget<T: Record>(table: &Table<T>) {
        let mut sink = table.sink();
        fedq_k8s::list_watch::Sink::begin(&mut sink);
        fedq_k8s::list_watch::Sink::end(&mut sink);
    }

    #[tokio::test]
    async fn that_a_pod_was_evicted_is_known_when_it_is_gone() {
        let target = |status: &str| {
            json!({"status": {"phase": "Running", "conditions": [
                {"type": "DisruptionTarget", "status": status},
            ]}})
        };
        let mut bed = Bed::new();
        bed.put(2, &json!({"status": {"phase": "Running"}}));
        assert!(!bed.is_disrupted());
        bed.put(3, &target("True"));
        assert!(bed.is_disrupted(), "it need not have ended");
        bed.put(4, &target("False"));
        assert!(!bed.is_disrupted(), "it was spared");
        bed.put(5, &target("True"));
        assert!(bed.is_disrupted());
        forget(&bed.worker.tasks.pods);
        assert!(bed.is_disrupted() && bed.here().pods.is_empty());
        let suspended = json!({"metadata": labelled("job", 6), "spec": {"suspend": true}});
        bed.worker.tasks.jobs.absorb_answer(&suspended);
        assert!(!bed.is_disrupted(), "Kueue took it back, and it begins anew");
        bed.worker.tasks.jobs.absorb_answer(&json!({"metadata": labelled("job", 7)}));
        assert!(!bed.is_disrupted());
    }

    #[tokio::test]
    async fn the_place_in_a_queue_follows_what_the_queue_reports() {
        let mut bed = Bed::new();
        let workload = json!({
            "metadata": {
                "name": "w", "namespace": "team", "uid": "w", "resourceVersion": "2",
                "labels": {"kueue.x-k8s.io/job-uid": "job"},
            },
            "spec": {"queueName": "main"},
        });
        let local = json!({
            "metadata": {"name": "main", "namespace": "team", "resourceVersion": "2"},
            "spec": {"clusterQueue": "research"},
        });
        bed.worker.direct_workloads.absorb_answer(&workload);
        bed.worker.local_queues.absorb_answer(&local);
        let mut place = |waiting: u32| {
            let queue = json!({
                "metadata": {"name": "research", "resourceVersion": waiting.to_string()}, "spec": {},
                "status": {"pendingWorkloads": waiting},
            });
            bed.worker.queues.absorb_answer(&queue);
            bed.index.refresh(&bed.worker, true);
            bed.index.places.value().and_then(|places| places.get("w"))
        };
        assert_eq!(place(1), Some((1, 1)));
        assert_eq!(place(2), None, "one of them is not seen");
    }

    #[tokio::test]
    async fn how_a_node_ended_is_known_when_its_pod_is_gone() {
        let mut bed = Bed::new();
        let code = |code: i32| {
            json!({"status": {"phase": "Failed", "containerStatuses": [
                {"name": "task", "state": {"terminated": {"exitCode": code, "reason": "Error"}}},
            ]}})
        };
        let recalled = |bed: &mut Bed, namespace: &str, epoch: Epoch| {
            bed.index.refresh(&bed.worker, true);
            let mut row = row("run: x\n", Phase::Running { cluster: cluster_name("one") });
            (row.namespace, row.state.epoch) = (namespace.to_owned(), epoch);
            let mut seen = Observed { nodes: vec![NodeView::default()], ..Observed::default() };
            bed.index.recall(&row, &mut seen);
            seen.nodes[0].exit_code
        };
        bed.put(2, &json!({"status": {"phase": "Running"}}));
        bed.put(3, &code(42));
        forget(&bed.worker.tasks.pods);
        assert_eq!(recalled(&mut bed, "team", 1), Some(42), "nobody looked while it was there");
        assert_eq!(recalled(&mut bed, "team", 2), None, "of another dispatch");
        assert_eq!(recalled(&mut bed, "other", 1), None, "another's");
        let mut ended_by_its_deletion = code(143);
        ended_by_its_deletion["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        bed.put(4, &ended_by_its_deletion);
        assert_eq!(recalled(&mut bed, "team", 1), Some(42));
    }

    #[tokio::test]
    async fn what_multikueue_is_about_to_take_away_has_ended() {
        let mut bed = Bed::new();
        let ended = |bed: &mut Bed| bed.here().copies_have_ended(1, 1);
        for (version, phase, has_ended) in
            [(2, "Running", false), (3, "Succeeded", true), (4, "Failed", true)]
        {
            bed.put(version, &json!({"status": {"phase": phase}}));
            assert_eq!(ended(&mut bed), has_ended, "{phase}");
            assert!(!bed.here().copies_have_ended(2, 1), "the dispatch after it has not");
        }
        let going =
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Failed"}});
        bed.put(5, &going);
        assert!(!ended(&mut bed), "it was preempted");
        let failed = json!({"conditions": [{"type": "Failed", "status": "True"}]});
        bed.worker.tasks.jobs.absorb_answer(&json!({"metadata": labelled("job", 6), "status": failed}));
        assert!(ended(&mut bed));
    }
}
