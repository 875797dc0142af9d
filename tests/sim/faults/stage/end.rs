//! How every scenario ends. What is checked is said in the head of this module's folder.

use std::collections::BTreeSet;
use std::time::Instant;

use fedq_sim::cluster::Cluster;
use serde_json::{Value, json};
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use super::super::super::bed::WITHIN;
use super::{FLAVOR, REST, Stage, claim_name};

impl Stage {
    /// The end of every scenario, with both clusters healthy again and these quotas.
    pub async fn ends_with(mut self, amounts: [[i64; 2]; 2]) {
        self.holds(amounts).await;
        for worker in &self.bed.workers {
            self.claim_says(worker, "Ready", "Ready").await;
            self.claim_says(worker, "CapacityKnown", "Observed").await;
            self.claim_says(worker, "QuotaSynced", "Synced").await;
        }
        let before = self.decided_at_rest().await;
        self.mark();
        self.is_what_was_asked_for_and_no_more();
        assert!(self.bed.pid().is_some(), "fedqd ended by itself");
        self.kill();
        self.database_is_whole().await;
        self.tells_no_secret();
        self.is_what_a_fresh_start_finds(amounts, before).await;
    }

    /// Once the claims' last edits are told of, and the capacity that they follow, and no assignment as of a cluster that is
    /// not followed: a write that was refused and a kind whose watch broke are tried again after a while.
    async fn decided_at_rest(&self) -> Vec<Value> {
        let is_followed = |claim: &Value| {
            let mut assignments = claim["status"]["assignments"].as_array().into_iter().flatten();
            claim["status"]["observedGeneration"] == claim["metadata"]["generation"]
                && claim["spec"]["nominalResources"]["gpu"] == claim["status"]["capacity"]["gpu"]
                && assignments.all(|one| one["reason"] == "Assigned")
        };
        let began = Instant::now();
        loop {
            self.rests().await;
            let claims = self.bed.workers.iter().map(|worker| {
                self.hub()
                    .get("ClusterResourceClaim", "", &claim_name(worker))
                    .expect("the claim of a worker")
            });
            let claims: Vec<_> = claims.filter(|claim| !is_followed(claim)).collect();
            if claims.is_empty() {
                return self.decided();
            }
            assert!(began.elapsed() < WITHIN, "these claims do not tell of now: {claims:#?}");
        }
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
        assert!(!told.contains("PRIVATE KEY"), "a key is in the log, the database or a status");
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
        let writes = self.quota_writes();
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

fn names(cluster: &Cluster, kind: &str) -> BTreeSet<String> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.list(kind).iter().map(|object| name(object)).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
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
pub(super) fn what_is_theirs(cluster: &Cluster) -> Value {
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
