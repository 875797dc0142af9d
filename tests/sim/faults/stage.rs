//! What every scenario of a fault starts from, and how each of them ends.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fedq::sim::api::{Internal, write_internally};
use fedq::sim::cluster::{Cluster, until};
use fedq::sim::kind::Kind;
use serde_json::{Value, json};
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use super::super::bed::{Bed, KUEUE, WITHIN, wait};
use super::history::{Mark, Segment, nominal};

pub const GPU: &str = "nvidia.com/gpu";
pub const FLAVOR: &str = "gpus";
pub const HUB_LABEL: &str = "fedq.dev/hub";
/// The hub's queues that claims name.
pub const QUEUES: [&str; 2] = ["team", "batch"];
/// Held by the workers' own queue, beside fedq's.
const FOREIGN: i64 = 2;
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
        let assignments: Vec<Value> = QUEUES
            .iter()
            .zip(amounts)
            .map(|(queue, gpus)| {
                json!({"clusterQueueName": queue, "flavor": FLAVOR, "resources": {"gpu": gpus.to_string()}})
            })
            .collect();
        let patch = json!({"spec": {"resourceAssignments": assignments}});
        merged(self.hub(), "ClusterResourceClaim", &claim_name(worker), patch).await;
    }

    /// A merge patch of the Secret that joins a worker.
    pub async fn change_secret(&self, worker: &Cluster, patch: Value) {
        let kind = Kind::named("Secret").unwrap();
        let name = ("fedq-system".to_owned(), format!("fedq-cluster-{}", worker.state.name));
        let what = Internal::Patch(patch);
        write_internally(&self.hub().state, "admin", (kind, name), what).await.unwrap();
    }

    /// Until the Secret of that name is gone.
    pub async fn leave(&self, name: &str) {
        let kind = Kind::named("Secret").unwrap();
        let at = ("fedq-system".to_owned(), name.to_owned());
        write_internally(&self.hub().state, "admin", (kind, at), Internal::Delete).await.unwrap();
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

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.bed.path("fedqd.log")).unwrap()
    }

    /// Until fedqd has logged this.
    pub async fn logs(&self, text: &str) {
        let began = Instant::now();
        while !self.log().contains(text) {
            assert!(began.elapsed() < WITHIN, "fedqd did not log `{text}`");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
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
        let starts = |stage: &Self| stage.log().matches("\"message\":\"Started\"").count();
        let before = starts(self);
        self.restart_with(environment);
        let began = Instant::now();
        while starts(self) == before {
            assert!(began.elapsed() < WITHIN, "fedqd does not start");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Checks what happened since the last mark, and begins anew: the capacity that was there before does
    /// not excuse what is written later.
    pub fn mark(&mut self) {
        let segments = self.segments();
        check(&segments, self.may_fall);
        self.marks = segments.into_iter().map(|(_, mark)| mark).collect();
    }

    /// Leaves what happened out: its history is about to be, or was, forgotten.
    pub fn mark_anew(&mut self) {
        self.marks = self.all().map(|cluster| Mark(cluster.state.store.version())).collect();
    }

    fn segments(&self) -> Vec<(Segment, Mark)> {
        self.all().zip(&self.marks).map(|(cluster, mark)| Segment::since(cluster, *mark)).collect()
    }

    /// Each write of quota on `one` since the mark: the queue, from what to what.
    pub fn one_quota(&self) -> impl Iterator<Item = (String, i64, i64)> {
        let [_, (one, _), _] = <[_; 3]>::try_from(self.segments()).ok().expect("three clusters");
        one.quota_writes().into_iter()
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

    /// The end of every scenario, with both clusters healthy again and these quotas. What is checked here is
    /// said in the head of this module's folder.
    pub async fn ends_with(mut self, amounts: [[i64; 2]; 2]) {
        self.holds(amounts).await;
        for worker in &self.bed.workers {
            self.claim_says(worker, "Ready", "Ready").await;
            self.claim_says(worker, "CapacityKnown", "Observed").await;
            self.claim_says(worker, "QuotaSynced", "Synced").await;
            self.is_followed(worker).await;
        }
        self.rests().await;
        self.mark();
        self.is_what_was_asked_for_and_no_more();
        assert!(self.bed.pid().is_some(), "fedqd ended by itself");
        let before = self.decided();
        self.kill();
        self.database_is_whole().await;
        self.tells_no_secret();
        self.is_what_a_fresh_start_finds(amounts, before).await;
    }

    /// Until no assignment is told as of a cluster that is not followed: a kind whose watch broke is tried again
    /// after up to half a minute.
    async fn is_followed(&self, worker: &Cluster) {
        let name = claim_name(worker);
        let what = format!("the assignments of {name} to be told as of now");
        wait(&what, self.hub(), || {
            let claim = self.hub().get("ClusterResourceClaim", "", &name).unwrap();
            let mut assignments = claim["status"]["assignments"].as_array().into_iter().flatten();
            assignments.all(|one| one["reason"] == "Assigned")
        })
        .await;
    }

    /// No duplicates, nothing left behind, nothing of other people touched.
    fn is_what_was_asked_for_and_no_more(&self) {
        for (cluster, theirs) in self.all().zip(&self.theirs) {
            let name = &cluster.state.name;
            let own = if name == "hub" { "theirs" } else { "local" };
            assert_eq!(names(cluster, "ClusterQueue"), set(&["batch", own, "team"]), "on {name}");
            assert_eq!(names(cluster, "LocalQueue"), set(&["batch", "queue", "theirs"]), "on {name}");
            assert_eq!(names(cluster, "ResourceFlavor"), set(&[FLAVOR, "theirs"]), "on {name}");
            assert_eq!(&what_is_theirs(cluster), theirs, "fedqd touched what is not its own on {name}");
        }
        let mut claims = set(&["one-resource-claim", "two-resource-claim"]);
        claims.extend(self.more_claims.iter().map(|name| (*name).to_owned()));
        assert_eq!(names(self.hub(), "ClusterResourceClaim"), claims);
    }

    async fn database_is_whole(&self) {
        let options = SqliteConnectOptions::new().filename(self.bed.path("fedq.db"));
        let mut database = SqliteConnection::connect_with(&options).await.unwrap();
        let verdict: String =
            sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut database).await.unwrap();
        assert_eq!(verdict, "ok");
        let orphans = sqlx::query("PRAGMA foreign_key_check").fetch_all(&mut database).await.unwrap();
        assert!(orphans.is_empty(), "{} rows refer to nothing", orphans.len());
        database.close().await.unwrap();
    }

    /// I11: no token is anywhere in what fedqd leaves behind or tells.
    fn tells_no_secret(&self) {
        let mut told = self.log();
        assert!(!told.contains("panicked at"), "fedqd panicked");
        for cluster in self.all() {
            for object in cluster.list("ClusterResourceClaim").iter().chain(&cluster.list("ClusterQueue")) {
                told.push_str(&object.to_string());
            }
        }
        for file in ["fedq.db", "fedq.db-wal"] {
            let bytes = std::fs::read(self.bed.path(file)).unwrap_or_default();
            told.push_str(&String::from_utf8_lossy(&bytes));
        }
        // Every token that these clusters ever issued begins so.
        let found = told.find("sim-").filter(|at| {
            let digits = told[at + 4..].bytes().take_while(u8::is_ascii_hexdigit).count();
            32 <= digits
        });
        assert!(found.is_none(), "a token is in the log, the database or a status");
    }

    /// I7: a daemon that knows nothing finds nothing to do, and carries out the next change alone.
    async fn is_what_a_fresh_start_finds(&mut self, amounts: [[i64; 2]; 2], before: Vec<Value>) {
        for file in ["fedq.db", "fedq.db-wal", "fedq.db-shm"] {
            let _ = std::fs::remove_file(self.bed.path(file));
        }
        self.mark_anew();
        self.environment.clear();
        self.start();
        let [mut one, two] = amounts;
        one[0] += 1;
        self.give(self.one(), one).await;
        self.holds([one, two]).await;
        self.rests().await;
        let writes: Vec<_> = self.segments().iter().map(|(segment, _)| segment.quota_writes()).collect();
        let [up, hub_up] =
            [amounts[0][0], amounts[0][0] + amounts[1][0]].map(|from| ("team".to_owned(), from, from + 1));
        assert_eq!(writes, [vec![hub_up], vec![up], vec![]], "of hub, one and two, for one change on one");
        self.give(self.one(), amounts[0]).await;
        self.holds(amounts).await;
        self.rests().await;
        let began = Instant::now();
        loop {
            let differs = differences(&before, &self.decided());
            if differs.is_empty() {
                return;
            }
            assert!(began.elapsed() < WITHIN, "a fresh start decides otherwise: {differs:#?}");
            tokio::time::sleep(REST).await;
        }
    }

    /// What fedqd has written into objects, without times and versions.
    fn decided(&self) -> Vec<Value> {
        let mut decided = Vec::new();
        for cluster in self.all() {
            for kind in ["ClusterQueue", "LocalQueue", "ResourceFlavor"] {
                decided.extend(cluster.list(kind).iter().map(|object| without_times(object, &["status"])));
            }
            for claim in cluster.list("ClusterResourceClaim") {
                let mut claim = without_times(&claim, &[]);
                claim["status"]["lastObservedTime"] = Value::Null;
                claim["status"]["observedGeneration"] = Value::Null;
                for condition in claim["status"]["conditions"].as_array_mut().into_iter().flatten() {
                    condition["lastTransitionTime"] = Value::Null;
                    condition["observedGeneration"] = Value::Null;
                }
                decided.push(claim);
            }
        }
        decided
    }
}

fn check(segments: &[(Segment, Mark)], may_fall: bool) {
    let mut segments = segments.iter().map(|(segment, _)| segment);
    let hub = segments.next().unwrap();
    let workers: Vec<&Segment> = segments.collect();
    for worker in &workers {
        worker.never_promises_more_than_there_is();
    }
    hub.promises_what_workers_confirmed(&workers);
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

fn names(cluster: &Cluster, kind: &str) -> BTreeSet<String> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.list(kind).iter().map(|object| name(object)).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
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

fn differences(before: &[Value], now: &[Value]) -> Vec<String> {
    let mut differs = Vec::new();
    for (before, now) in before.iter().zip(now) {
        let path = format!("{} {}", now["kind"], now["metadata"]["name"]);
        difference(before, now, &path, &mut differs);
    }
    differs
}

/// Where two objects differ, and how.
fn difference(one: &Value, other: &Value, path: &str, differs: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(fields), Value::Object(others)) => {
            let names: BTreeSet<&String> = fields.keys().chain(others.keys()).collect();
            for name in names {
                difference(&one[name], &other[name], &format!("{path}.{name}"), differs);
            }
        }
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => {
            for (place, (item, other)) in items.iter().zip(others).enumerate() {
                difference(item, other, &format!("{path}[{place}]"), differs);
            }
        }
        _ if one != other => differs.push(format!("{path}: {one}, and {other} afresh")),
        _ => {}
    }
}

/// As it was put in, byte for byte but for what the cluster's own controllers write.
fn what_is_theirs(cluster: &Cluster) -> Value {
    let hub = cluster.state.name == "hub";
    let queue = if hub { "theirs" } else { "local" };
    let wanted = [
        ("Namespace", "", "theirs"),
        ("ResourceFlavor", "", "theirs"),
        ("ClusterQueue", "", queue),
        ("LocalQueue", "theirs", "theirs"),
    ];
    let found = wanted.map(|(kind, namespace, name)| {
        let object = cluster.get(kind, namespace, name).unwrap();
        let managers = object["metadata"]["managedFields"].as_array().into_iter().flatten();
        let ours =
            managers.filter(|entry| entry["manager"].as_str().is_some_and(|name| name.starts_with("fedq")));
        assert_eq!(ours.count(), 0, "fedqd wrote to {kind} {name}");
        without_times(&object, &["status"])
    });
    json!(found)
}

/// Without what the server counts and its controllers write.
fn without_times(object: &Value, more: &[&str]) -> Value {
    let mut bare = object.clone();
    for field in more {
        bare.as_object_mut().unwrap().shift_remove(*field);
    }
    let metadata = bare["metadata"].as_object_mut().unwrap();
    for field in ["resourceVersion", "managedFields", "generation", "finalizers"] {
        metadata.shift_remove(field);
    }
    bare
}
