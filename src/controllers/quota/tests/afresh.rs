//! A round looks at what changed; what it makes of that must be what it would make of everything.

use super::*;
use fedq_domain::{
    capacity::{Capacity, Flavor},
    overview::{ClusterCapacity, NodeCounts},
    queue::report::{Problem, QueueReport},
    resources::Resources,
};
use fedq_k8s::{
    list_watch::{Link, Record, Sink, Table},
    types::meta::HUB_LABEL,
};
use fedq_values::ids::ResourceName;

const CLUSTERS: [&str; 4] = ["east", "north", "south", "west"];
const QUEUES: [&str; 3] = ["team-a", "team-b", "team-c"];

/// Listed and followed, or not known to its server.
fn is_read<T: Record>(table: &Table<T>, is_there: bool) {
    let mut sink = table.sink();
    if is_there {
        sink.begin();
        sink.end();
        sink.at(1);
    }
    sink.link(if is_there { Link::Synced } else { Link::Absent });
}

/// All that a plan rests on. `is_there`: whether the cluster has Kueue.
pub(super) fn read_all(worker: &Worker, is_there: bool) {
    is_read(&worker.queues, is_there);
    is_read(&worker.flavors, is_there);
    is_read(&worker.local_queues, true);
    is_read(&worker.cohorts, true);
    is_read(&worker.checks, true);
    is_read(&worker.namespaces, true);
    is_read(&worker.priority_classes, true);
    is_read(&worker.direct_workloads, true);
}

struct Course {
    bed: Bed,
    draw: fastrand::Rng,
    reports: Arc<QueueReports>,
    version: u64,
    /// Whether workers have writers.
    writes: bool,
}

impl Course {
    async fn new(seed: u64) -> Self {
        let bed = Bed::new().await;
        Self {
            bed,
            draw: fastrand::Rng::with_seed(seed),
            reports: Arc::default(),
            version: 10,
            writes: false,
        }
    }

    fn version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn one_of(&mut self, names: &'static [&'static str]) -> &'static str {
        names[self.draw.usize(..names.len())]
    }

    /// One thing that happens.
    fn step(&mut self) {
        let cluster = self.one_of(&CLUSTERS);
        match self.draw.u8(..9) {
            0 | 1 => self.join(cluster),
            2 => _ = self.bed.joined.remove(&name(cluster)),
            3 => self.connect(cluster),
            4 => self.count(cluster),
            5 => self.claim(cluster),
            6 => self.queue(),
            7 => self.worker_queue(cluster),
            _ => self.report(cluster),
        }
    }

    fn join(&mut self, cluster: &str) {
        let worker = Arc::new(self.bed.worker(cluster));
        let is_there = self.draw.u8(..4) != 0;
        read_all(&worker, is_there);
        let joined = Joined { worker: Some(worker), ..Joined::new(Connection::Ready, "kubeconfig") };
        self.bed.joined.insert(name(cluster), Arc::new(joined));
    }

    fn connect(&mut self, cluster: &str) {
        let (since, reason) = (Timestamp::UNIX_EPOCH, "silent".to_owned());
        let connection = match self.draw.u8(..4) {
            0 => Connection::Stale { since, reason },
            1 => Connection::Lost { since, reason },
            2 => Connection::Unreached,
            _ => Connection::Ready,
        };
        let cordoned = self.draw.bool();
        if let Some(joined) = self.bed.joined.get_mut(&name(cluster)) {
            let joined = Arc::make_mut(joined);
            (joined.connection, joined.cordoned) = (connection, cordoned);
        }
    }

    fn count(&mut self, cluster: &str) {
        let cpu = ResourceName::new("cpu").expect("a name");
        let total: Resources = [(cpu, Amount::new(self.draw.i64(0..9) * 1000))].into();
        let capacity = ClusterCapacity {
            capacity: Capacity { total, ..Capacity::default() },
            nodes: NodeCounts { total: 2, usable: self.draw.u32(..3) },
            flavors: Arc::<[Flavor]>::default(),
            headroom: Resources::new(),
            observed: Timestamp::UNIX_EPOCH,
            bad: Vec::new(),
            silent: self.draw.bool().then(|| "nobody knows".to_owned()),
            is_old: self.draw.u8(..4) == 0,
            was_read: self.draw.bool(),
            presumed: self.draw.u8(..4) == 0,
            moved: fedq_domain::overview::Moved::default(),
        };
        self.bed.capacity.insert(name(cluster), Arc::new(capacity));
    }

    fn claim(&mut self, cluster: &str) {
        let draw = &mut self.draw;
        let mut assignment = |queue: &&str| {
            let cpu = draw.u8(..5);
            let cells =
                json!({"clusterQueueName": queue, "flavor": "spot", "resources": {"cpu": cpu.to_string()}});
            (0 < cpu).then_some(cells)
        };
        let assignments: Vec<Value> = QUEUES.iter().filter_map(&mut assignment).collect();
        let claim = json!({
            "apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterResourceClaim",
            "metadata": {
                "name": format!("{cluster}-resource-claim"), "resourceVersion": self.version().to_string(),
                "generation": 1,
            },
            "spec": {"clusterName": cluster, "resourceAssignments": assignments},
        });
        self.bed.controller.context.hub.claims.absorb(serde_json::from_value(claim).expect("a claim"));
    }

    fn queue(&mut self) {
        let quota = match self.draw.u8(..6) {
            0 => json!("nonsense"),
            amount => json!(amount.to_string()),
        };
        let mut object = queue(self.one_of(&QUEUES), self.version(), &quota, &json!({}));
        if self.draw.bool() {
            object["spec"]["cohortName"] = json!("research");
        }
        self.bed
            .controller
            .context
            .hub
            .queues
            .absorb(serde_json::from_value(object).expect("a ClusterQueue"));
    }

    fn worker_queue(&mut self, cluster: &str) {
        let quota = json!(self.draw.u8(..9).to_string());
        let mut object = queue(self.one_of(&QUEUES), self.version(), &quota, &json!({}));
        object["metadata"]["labels"] = json!({HUB_LABEL: "hub"});
        let worker = self.bed.joined.get(&name(cluster)).and_then(|joined| joined.worker.clone());
        if let Some(worker) = worker {
            worker.queues.absorb(serde_json::from_value(object).expect("a ClusterQueue"));
        }
    }

    fn report(&mut self, cluster: &str) {
        let report = |queue: &str| QueueReport {
            queue: Some(QueueName::new(queue).expect("a name")),
            problem: Problem::NoKueue,
        };
        let found = QUEUES.iter().filter(|_| self.draw.bool()).map(|queue| report(queue)).collect();
        Arc::make_mut(&mut self.reports).insert(name(cluster), found);
    }

    /// What people read, made from what changed and made from everything; not every round is published.
    fn read(&mut self) -> Option<(Overview, Overview)> {
        let (joined, capacity) = (self.bed.joined.clone(), self.bed.capacity.clone());
        let controller = &mut self.bed.controller;
        let (hub, stop) = (Place::hub(controller.context.hub.clone()), controller.context.stop.clone());
        let hub = Target::start(hub, &controller.writing, (&mut controller.tasks, &stop));
        let mut round = controller.gather(&joined, &capacity, &self.reports, Instant::now());
        controller.plan(&mut round);
        controller.hub_changes(&mut round);
        controller.status_changes(&mut round, &hub);
        controller.note_touched(&round);
        let is_published = self.draw.bool();
        let read = is_published.then(|| (controller.overview(&round), controller.overview_afresh(&round)));
        controller.plans = (round.plans, round.queues);
        controller.statuses.said = round.said;
        read
    }

    /// A round; all that it makes, as text.
    fn round(&mut self) -> Vec<String> {
        let (joined, capacity) = (self.bed.joined.clone(), self.bed.capacity.clone());
        let controller = &mut self.bed.controller;
        let hub = Place::hub(controller.context.hub.clone());
        let stop = controller.context.stop.clone();
        let hub = Target::start(hub, &controller.writing, (&mut controller.tasks, &stop));
        if self.writes {
            controller.keep_targets(&joined);
        }
        let mut round = controller.gather(&joined, &capacity, &self.reports, Instant::now());
        controller.plan(&mut round);
        let mut made = Vec::new();
        let modes = controller.told.clusters.iter().map(|(name, told)| (name, told.mode));
        made.extend(modes.map(|mode| format!("{mode:?}")));
        made.extend(controller.hub_changes(&mut round).iter().map(|change| format!("{change:?}")));
        controller.write_workers(&mut round);
        for (name, target) in &controller.targets {
            made.extend(target.writer.wanted().iter().map(|wanted| format!("{wanted} on {name}")));
        }
        let changes = controller.status_changes(&mut round, &hub);
        made.extend(changes.iter().map(|change| format!("{change:?}")));
        made.extend(round.said.iter().map(|said| format!("{said:?}")));
        made.extend(round.plans.iter().map(|plan| format!("{plan:?}")));
        made.extend(round.queues.iter().map(|plan| format!("{plan:?}")));
        made.push(format!("{:?}", controller.outputs.claimed.borrow()));
        controller.plans = (round.plans, round.queues);
        controller.statuses.said = round.said;
        made
    }

    /// The next round looks at everything.
    fn forget(&mut self) {
        let controller = &mut self.bed.controller;
        controller.told.known.clear();
        controller.statuses.look_at_all();
        controller.kept = changes::Kept::default();
        controller.claims.seen = None;
    }
}

#[tokio::test]
async fn a_round_that_looks_at_what_changed_makes_what_one_makes_that_looks_at_everything() {
    let (mut looked, mut left) = (0, 0);
    for seed in 0..40 {
        let mut course = Course::new(seed).await;
        course.writes = seed % 2 == 0;
        course.bed.controller.statuses.wait_for_nothing();
        for step in 0..40 {
            course.step();
            let made = course.round();
            let fresh = course.bed.controller.told.fresh.len();
            (looked, left) = (looked + fresh, left + course.bed.joined.len().saturating_sub(fresh));
            // What was passed over once may show only later.
            if course.draw.bool() {
                continue;
            }
            course.forget();
            let afresh = course.round();
            assert_eq!(course.bed.controller.told.fresh.len(), course.bed.joined.len());
            assert_eq!(made, afresh, "seed {seed}, step {step}");
        }
    }
    assert!(500 < looked && 1_000 < left, "{looked} looked at, {left} left");
}

#[tokio::test]
async fn what_is_made_from_what_changed_is_what_is_made_from_everything() {
    let (mut compared, mut with_workers) = (0, 0);
    for seed in 0..40 {
        let mut course = Course::new(seed).await;
        for step in 0..40 {
            course.step();
            let Some((read, afresh)) = course.read() else { continue };
            assert_eq!(read, afresh, "seed {seed}, step {step}");
            let terms = read
                .queues
                .values()
                .flat_map(|queue| queue.cells.values())
                .flat_map(|cell| cell.terms.values());
            with_workers +=
                usize::from(terms.map(|term| term.worker_nominal).any(|nominal| nominal.is_some()));
            compared += usize::from(read.queues.values().any(|queue| !queue.cells.is_empty()));
        }
    }
    assert!(
        300 < compared && 20 < with_workers,
        "{compared} with cells, {with_workers} with workers' queues"
    );
}
