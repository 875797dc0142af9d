//! What every scenario of a fault starts from.

mod end;

use std::time::{Duration, Instant};

use fedq_sim::api::{Internal, write_internally};
use fedq_sim::cluster::{Cluster, until};
use fedq_sim::kind::Kind;
use serde_json::{Value, json};

use self::end::what_is_theirs;
use super::super::bed::{Bed, KUEUE, WITHIN, wait};
use super::history::{Mark, Segment, nominal};

pub const GPU: &str = "nvidia.com/gpu";
pub const FLAVOR: &str = "gpus";
pub const HUB_LABEL: &str = "fedq.dev/hub";
/// The hub's queues that claims name.
pub const QUEUES: [&str; 2] = ["team", "batch"];
/// Held by the workers' own queue, beside fedq's.
pub const FOREIGN: i64 = 2;
/// What the hub, one and two give to `team` and to `batch` before anything goes wrong.
const ONE: [i64; 2] = [6, 4];
const TWO: [i64; 2] = [3, 5];
/// Nothing may be written while nothing changes; looked at for this long.
const REST: Duration = Duration::from_millis(700);

/// Short enough for a scenario of seconds, long enough that a busy machine is not taken for a fault.
const TIMES: &str = "allowLoopback: true, connectTimeout: 2s, requestTimeout: 2s, staleAfter: 4s, \
                     nodePositionInterval: 200ms";
const QUICK: &str = "quota: {mergeWindow: 50ms}\n";

/// A hub with two queues, workers `one` and `two` with 16 GPUs each, of which 2 are their own queue's, and
/// things on all of them that are none of fedq's.
pub struct Stage {
    pub bed: Bed,
    /// Of the hub and each worker: up to here history was checked.
    marks: Vec<Mark>,
    theirs: Vec<Value>,
    /// Set by scenarios that take capacity or assignments away.
    pub may_fall: bool,
    /// What the hub may hold of each queue beside what workers have confirmed: of clusters that only report.
    pub beside: [i64; 2],
    /// Claims beside those of `one` and `two`.
    pub more_claims: Vec<&'static str>,
    environment: Vec<(&'static str, String)>,
}

impl Stage {
    pub async fn set() -> Self {
        Self::set_with("", "").await
    }

    /// With more keys of `clusters`, and more of the file.
    pub async fn set_with(clusters: &str, more: &str) -> Self {
        let stage = Self::unjoined(clusters, more).await;
        stage.join_both().await
    }

    async fn join_both(mut self) -> Self {
        for (worker, amounts) in self.bed.workers.iter().zip([ONE, TWO]) {
            self.bed.join(worker).await;
            self.give(worker, amounts).await;
        }
        self.holds([ONE, TWO]).await;
        self.mark();
        self
    }

    /// Before the clusters are joined.
    pub async fn unjoined(clusters: &str, more: &str) -> Self {
        let mut bed = Bed::without_daemon(&["one", "two"]).await;
        for object in queue_objects("batch", 0, None) {
            bed.hub.put(object).await.unwrap();
        }
        let mut theirs = Vec::new();
        for cluster in std::iter::once(&bed.hub).chain(&bed.workers) {
            for object in their_objects(cluster.state.name == "hub") {
                cluster.put(object).await.unwrap();
            }
            theirs.push(what_is_theirs(cluster));
        }
        let comma = if clusters.is_empty() { "" } else { ", " };
        let quota = if more.contains("quota:") { "" } else { QUICK };
        bed.configure(&format!("clusters: {{{TIMES}{comma}{clusters}}}\n{quota}{more}"));
        bed.start_daemon();
        let mut stage = Self {
            bed,
            marks: Vec::new(),
            theirs,
            may_fall: false,
            beside: [0, 0],
            more_claims: Vec::new(),
            environment: Vec::new(),
        };
        stage.mark_anew();
        stage
    }

    pub fn hub(&self) -> &Cluster {
        &self.bed.hub
    }

    pub fn one(&self) -> &Cluster {
        &self.bed.workers[0]
    }

    pub fn two(&self) -> &Cluster {
        &self.bed.workers[1]
    }

    fn all(&self) -> impl Iterator<Item = &Cluster> {
        std::iter::once(&self.bed.hub).chain(&self.bed.workers)
    }

    /// Assigns GPUs of a worker to `team` and `batch`.
    pub async fn give(&self, worker: &Cluster, amounts: [i64; 2]) {
        let patch = json!({"spec": {"resourceAssignments": assignments(amounts)}});
        merged(self.hub(), "ClusterResourceClaim", &claim_name(worker), patch).await;
    }

    /// A merge patch of the Secret that joins a worker.
    pub async fn change_secret(&self, worker: &Cluster, patch: Value) {
        let kind = Kind::named("Secret").unwrap();
        let name = ("fedq-system".to_owned(), format!("fedq-cluster-{}", worker.state.name));
        let what = Internal::Patch(patch);
        write_internally(&self.hub().state, "admin", kind, name, what).await.unwrap();
    }

    /// Until the Secret of that name is gone.
    pub async fn leave(&self, name: &str) {
        let kind = Kind::named("Secret").unwrap();
        let at = ("fedq-system".to_owned(), name.to_owned());
        write_internally(&self.hub().state, "admin", kind, at, Internal::Delete).await.unwrap();
        wait("the Secret to be let go of", self.hub(), || {
            self.hub().get("Secret", "fedq-system", name).is_none()
        })
        .await;
    }

    /// Until both workers have these quotas, and the hub their sums.
    pub async fn holds(&self, amounts: [[i64; 2]; 2]) {
        for (worker, amounts) in self.bed.workers.iter().zip(amounts) {
            self.has(worker, amounts).await;
        }
        let [one, two] = amounts;
        self.has(self.hub(), [one[0] + two[0], one[1] + two[1]]).await;
    }

    pub async fn has(&self, cluster: &Cluster, amounts: [i64; 2]) {
        let has = || gpus(cluster) == amounts.map(Some);
        let reached = until(&cluster.state, WITHIN, |_| has()).await;
        let name = &cluster.state.name;
        assert!(reached, "`{name}` has {:?} GPUs in team and batch, not {amounts:?}", gpus(cluster));
    }

    /// Until the claim of a worker has a condition of that reason.
    pub async fn claim_says(&self, worker: &Cluster, condition: &str, reason: &str) {
        let name = claim_name(worker);
        let what = format!("{condition} of {name} to be {reason}");
        wait(&what, self.hub(), || {
            let claim = self.hub().get("ClusterResourceClaim", "", &name);
            claim.is_some_and(|claim| condition_of(&claim, condition)["reason"] == reason)
        })
        .await;
    }

    /// Until the message of that condition of a worker's claim has this in it.
    pub async fn claim_tells(&self, worker: &Cluster, condition: &str, text: &str) {
        let name = claim_name(worker);
        let what = format!("{condition} of {name} to tell that {text}");
        wait(&what, self.hub(), || {
            let claim = self.hub().get("ClusterResourceClaim", "", &name).unwrap();
            condition_of(&claim, condition)["message"].as_str().is_some_and(|message| message.contains(text))
        })
        .await;
    }

    /// Until fedqd has no more than one connection to a worker.
    pub async fn has_one_connection(&self, worker: &Cluster) {
        let began = Instant::now();
        while 1 < worker.state.counts.connections().0 {
            assert!(
                began.elapsed() < WITHIN,
                "`{}` keeps {:?}",
                worker.state.name,
                worker.state.counts.connections()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn log(&self) -> String {
        self.bed.log()
    }

    /// Until fedqd has logged this.
    pub async fn logs(&self, text: &str) {
        self.bed.logs(text, 1).await;
    }

    /// The most memory fedqd ever had.
    pub fn peak_mib(&mut self) -> u64 {
        let pid = self.bed.pid().expect("fedqd runs");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() >> 10
    }

    pub fn kill(&mut self) {
        self.bed.kill();
    }

    pub fn start(&mut self) {
        self.bed.start_daemon_with(&self.environment);
    }

    /// For this and every later start of fedqd.
    pub fn restart_with(&mut self, environment: Vec<(&'static str, String)>) {
        self.environment = environment;
        self.kill();
        self.start();
    }

    /// For this and every later start of fedqd; returns when it has begun to work.
    pub async fn restarted_with(&mut self, environment: Vec<(&'static str, String)>) {
        let started = "\"message\":\"Started\"";
        let before = self.log().matches(started).count();
        self.restart_with(environment);
        self.bed.logs(started, before + 1).await;
    }

    /// What other people had on `one` is theirs to make again.
    pub async fn put_theirs_on_one_again(&mut self) {
        for object in their_objects(false) {
            // Their namespace is still there.
            if object["kind"] != "Namespace" {
                self.one().put(object).await.unwrap();
            }
        }
        self.theirs[1] = what_is_theirs(self.one());
    }

    /// Checks what happened since the last mark, and begins anew: the capacity that was there before does
    /// not excuse what is written later.
    pub fn mark(&mut self) {
        let segments = self.segments();
        check(&segments, self.may_fall, self.beside);
        self.marks = segments.into_iter().map(|(_, mark)| mark).collect();
    }

    /// Leaves what happened out: its history is about to be, or was, forgotten.
    pub fn mark_anew(&mut self) {
        self.marks = self.all().map(|cluster| Mark(cluster.state.store.version())).collect();
    }

    fn segments(&self) -> Vec<(Segment, Mark)> {
        self.all().zip(&self.marks).map(|(cluster, mark)| Segment::since(cluster, *mark)).collect()
    }

    /// Each write of quota since the mark, of the hub, one and two: the queue, from what to what.
    pub fn quota_writes(&self) -> [Vec<(String, i64, i64)>; 3] {
        let segments = <[_; 3]>::try_from(self.segments()).ok().expect("three clusters");
        segments.map(|(segment, _)| segment.quota_writes())
    }

    /// Writes that fedqd asked for, of whatever kind.
    fn writes(&self) -> u64 {
        self.all().map(|cluster| cluster.state.counts.writes()).sum()
    }

    /// I10: until a while passes without a write.
    pub async fn rests(&self) {
        let began = Instant::now();
        loop {
            let before = self.writes();
            tokio::time::sleep(REST).await;
            if self.writes() == before {
                return;
            }
            assert!(began.elapsed() < WITHIN, "fedqd writes on and on");
        }
    }
}

fn check(segments: &[(Segment, Mark)], may_fall: bool, beside: [i64; 2]) {
    let mut segments = segments.iter().map(|(segment, _)| segment);
    let hub = segments.next().unwrap();
    let workers: Vec<&Segment> = segments.collect();
    for worker in &workers {
        worker.never_promises_more_than_there_is();
        worker.never_lets_more_be_held_than_there_is();
    }
    hub.promises_what_workers_confirmed(&workers, beside);
    for segment in workers.iter().chain([&hub]).filter(|_| !may_fall) {
        segment.never_falls();
    }
}

/// A merge patch by somebody who tries again when another was faster.
pub async fn merged(cluster: &Cluster, kind: &str, name: &str, patch: Value) {
    while let Err(refusal) = cluster.merge(kind, name, patch.clone()).await {
        assert_eq!(refusal.reason, "Conflict", "{}", refusal.message);
    }
}

/// From now on this is wrong with a cluster, and nothing else.
pub fn wrong(cluster: &Cluster, plan: &str) {
    cluster.set_faults(plan.parse().unwrap());
}

/// Of a claim: GPUs for `team` and `batch`.
pub fn assignments(amounts: [i64; 2]) -> Vec<Value> {
    let assignment = |(queue, gpus): (&&str, i64)| json!({"clusterQueueName": queue, "flavor": FLAVOR, "resources": {"gpu": gpus.to_string()}});
    QUEUES.iter().zip(amounts).map(assignment).collect()
}

pub fn claim_name(worker: &Cluster) -> String {
    format!("{}-resource-claim", worker.state.name)
}

pub fn condition_of<'a>(claim: &'a Value, kind: &str) -> &'a Value {
    let conditions = claim["status"]["conditions"].as_array().into_iter().flatten();
    let mut conditions = conditions.filter(|condition| condition["type"] == kind);
    conditions.next().unwrap_or(&Value::Null)
}

/// Of `team` and `batch`.
pub fn gpus(cluster: &Cluster) -> [Option<i64>; 2] {
    QUEUES.map(|queue| nominal(&*cluster.get("ClusterQueue", "", queue)?))
}

/// A queue of the flavor under test, with a LocalQueue of the same name in the namespace `team`.
pub fn queue_objects(name: &str, gpus: i64, label: Option<&str>) -> Vec<Value> {
    let mut queue = json!({
        "apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": [{
            "coveredResources": [GPU],
            "flavors": [{"name": FLAVOR, "resources": [{"name": GPU, "nominalQuota": gpus.to_string()}]}],
        }]},
    });
    if let Some(label) = label {
        queue["metadata"]["labels"] = json!({"owner": label});
    }
    let local = json!({
        "apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": name, "namespace": "team"},
        "spec": {"clusterQueue": name},
    });
    vec![queue, local]
}

/// What is on a cluster and none of fedq's business.
fn their_objects(hub: bool) -> Vec<Value> {
    let (name, flavor) = if hub { ("theirs", "theirs") } else { ("local", FLAVOR) };
    let [mut queue, mut local] =
        <[Value; 2]>::try_from(queue_objects(name, FOREIGN, Some("somebody"))).unwrap();
    queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] = json!(flavor);
    local["metadata"] = json!({"name": "theirs", "namespace": "theirs"});
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "theirs", "labels": {"owner": "x"}}}),
        json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "theirs"}}),
        queue,
        local,
    ]
}
