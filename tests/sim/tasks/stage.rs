//! A hub, workers, and a person who runs tasks on them.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use fedq_sim::cluster::{Cluster, Options};
use fedq_sim::kind::Kind;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::super::bed::{Bed, WITHIN};

pub const TOKEN: &str = "0123456789abcdef-ann";
/// Short enough for a scenario of seconds, long enough that a busy machine is not taken for a fault.
const TIMES: &str = "allowLoopback: true, connectTimeout: 2s, requestTimeout: 2s, staleAfter: 4s";

/// What of fast networks tasks may ask for here.
const PODS: &str = "{resources: [rdma/hca], capabilities: [IPC_LOCK]}";

pub struct Stage {
    pub bed: Bed,
    /// Where the histories of the workers begin.
    began: Vec<u64>,
}

impl Stage {
    /// Workers with so many GPUs of quota each, of 16 that they have.
    pub async fn set(workers: &[(&str, u32)]) -> Self {
        Self::set_with(workers, "", "").await
    }

    /// With more keys of `clusters` and of `tasks`.
    pub async fn set_with(workers: &[(&str, u32)], clusters: &str, tasks: &str) -> Self {
        Self::set_on(Options::named("hub"), workers, (clusters, tasks, "")).await
    }

    /// With more keys of `clusters` and of `tasks`, and more of the file.
    pub async fn set_on(
        hub: Options,
        workers: &[(&str, u32)],
        (clusters, tasks, more): (&str, &str, &str),
    ) -> Self {
        Self::set_all(hub, workers, (clusters, tasks, more), async |_| ()).await
    }

    /// With more keys of `tasks`, and the clusters prepared before anything follows them.
    pub async fn set_prepared(workers: &[(&str, u32)], tasks: &str, prepare: impl AsyncFnOnce(&Bed)) -> Self {
        Self::set_all(Options::named("hub"), workers, ("", tasks, ""), prepare).await
    }

    /// All of it.
    pub async fn set_all(
        hub: Options,
        workers: &[(&str, u32)],
        (clusters, tasks, more): (&str, &str, &str),
        prepare: impl AsyncFnOnce(&Bed),
    ) -> Self {
        let names: Vec<&str> = workers.iter().map(|(name, _)| *name).collect();
        let bed = Bed::with_hub(hub, &names).await;
        prepare(&bed).await;
        let tokens = bed.path("tokens");
        std::fs::write(&tokens, format!("{TOKEN},ann@example.com,u-1,\"system:masters\"\n")).unwrap();
        std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
        bed.configure(&format!(
            "quota: {{mergeWindow: 50ms}}\nclusters: {{{TIMES}{clusters}}}\n\
             tasks: {{tenants: [{{namespace: team, users: ['*'], queue: queue, podConfig: {PODS}}}]{tasks}}}\n{more}"
        ));
        let config = std::fs::read_to_string(bed.path("fedqd.yaml")).unwrap();
        let api = format!("api: {{address: 127.0.0.1:0, tokenFile: {}}}", tokens.display());
        std::fs::write(bed.path("fedqd.yaml"), config.replace("api: {address: 127.0.0.1:0}", &api)).unwrap();
        let began = bed.workers.iter().map(|worker| worker.state.store.version()).collect();
        let mut stage = Self { bed, began };
        stage.start();
        for (worker, (_, gpus)) in stage.bed.workers.iter().zip(workers) {
            stage.bed.join(worker).await;
            stage.bed.assign(worker, &gpus.to_string()).await;
        }
        for (name, gpus) in workers {
            stage.bed.holds(stage.worker(name), &gpus.to_string()).await;
            stage.has_queue(name).await;
        }
        stage.knows(workers.len()).await;
        stage
    }

    /// Until each cluster would take a task.
    pub async fn knows(&self, clusters: usize) {
        let began = Instant::now();
        loop {
            let output = self.run(&["task", "submit", "--dry-run", "-o", "json", "--", "true"], "").await;
            let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let fits = |cluster: &&Value| cluster["verdict"] == "fits";
            if told["clusters"].as_array().is_some_and(|all| all.iter().filter(fits).count() == clusters) {
                return;
            }
            assert!(began.elapsed() < WITHIN, "{told} {}", String::from_utf8_lossy(&output.stderr));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Until the LocalQueue is there and works.
    async fn has_queue(&self, name: &str) {
        let worker = self.worker(name);
        let active = |queue: &Value| {
            let conditions = queue["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|one| one["type"] == "Active" && one["status"] == "True")
        };
        super::super::bed::wait("a queue that works", worker, || {
            worker.get("LocalQueue", "team", "queue").is_some_and(|queue| active(&queue))
        })
        .await;
    }

    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    /// With these environment variables.
    pub fn start_with(&mut self, environment: &[(&str, String)]) {
        self.bed.start_daemon_with(environment);
    }

    pub fn kill(&mut self) {
        self.bed.kill();
    }

    pub fn worker(&self, name: &str) -> &Cluster {
        self.bed.workers.iter().find(|worker| worker.state.name == name).unwrap()
    }

    /// Whether `fedq` succeeds, and what it says: data, or what is wrong.
    pub async fn fedq(&self, arguments: &[&str], stdin: &str) -> Result<String, String> {
        let output = self.run(arguments, stdin).await;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    pub async fn run(&self, arguments: &[&str], stdin: &str) -> std::process::Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fedq"))
            .args(arguments)
            .env("FEDQ_SERVER", self.bed.api().await)
            .env("FEDQ_TOKEN", TOKEN)
            .env("HOME", self.bed.path(""))
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).await.unwrap();
        child.wait_with_output().await.unwrap()
    }

    /// Hands in a task; its id. Each of its pods takes so many seconds.
    pub async fn submit(&self, seconds: u32, task: &str) -> String {
        self.try_submit(seconds, task, &[]).await.unwrap()
    }

    pub async fn try_submit(&self, seconds: u32, task: &str, more: &[&str]) -> Result<String, String> {
        let annotations = json!({"sim.fedq.dev/seconds": seconds.to_string()});
        let config = json!({"kubernetes": {"custom_metadata": {"annotations": annotations}}});
        let arguments = [&["task", "submit", "-", "-o", "json"], more].concat();
        let told = self.fedq(&arguments, &format!("{task}config: {config}\n")).await?;
        let told: Value = serde_json::from_str(&told).unwrap();
        Ok(told["id"].as_str().or(told["task"]["id"].as_str()).unwrap().to_owned())
    }

    /// For one cluster only.
    pub async fn submit_to(&self, cluster: &str, seconds: u32, task: &str) -> String {
        self.try_submit(seconds, task, &["--cluster", cluster]).await.unwrap()
    }

    pub async fn status(&self, id: &str) -> Value {
        let began = Instant::now();
        loop {
            match self.fedq(&["task", "status", id, "-o", "json"], "").await {
                Ok(told) => return serde_json::from_str(&told).unwrap(),
                // A busy machine is not taken for a fault.
                Err(error) => assert!(began.elapsed() < WITHIN && error.contains("in time"), "{error}"),
            }
        }
    }

    /// Waits for a phase; fails once the task is over in another one.
    pub async fn reaches(&self, id: &str, phase: &str) -> Value {
        let began = Instant::now();
        loop {
            let status = self.status(id).await;
            if status["phase"] == phase {
                return status;
            }
            let over = matches!(status["phase"].as_str(), Some("succeeded" | "failed" | "stopped"));
            assert!(!over && began.elapsed() < WITHIN * 2, "task {id} is not {phase}: {status:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Until the reason why it does not run begins so.
    pub async fn waits_because(&self, id: &str, reason: &str) {
        let began = Instant::now();
        loop {
            let status = self.status(id).await;
            if status["pendingReason"].as_str().is_some_and(|told| told.starts_with(reason)) {
                return;
            }
            assert!(began.elapsed() < WITHIN, "it does not wait because `{reason}`: {status:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Until a volume waits for a reason that begins so.
    pub async fn volume_is(&self, name: &str, reason: &str) {
        let began = Instant::now();
        loop {
            let told = self.fedq(&["volume", "show", name, "-o", "json"], "").await.unwrap_or_default();
            let volume: Value = serde_json::from_str(&told).unwrap_or_default();
            if volume["reason"].as_str().is_some_and(|told| told.starts_with(reason)) {
                return;
            }
            assert!(began.elapsed() < WITHIN, "it does not wait because `{reason}`: {volume:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The reasons of its events.
    pub async fn reasons(&self, id: &str) -> Vec<String> {
        let status = self.status(id).await;
        let events = status["events"].as_array().cloned().unwrap_or_default();
        events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
    }

    /// Every Job of a task that ever was anywhere, by UID, and every pod.
    pub fn ever(&self, id: &str, kind: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for (worker, began) in self.bed.workers.iter().zip(&self.began) {
            let kind = Kind::named(kind).unwrap();
            let (changes, _) = worker.state.store.since(kind, *began).expect("a history that is kept");
            for object in changes.iter().filter_map(|change| change.after.as_ref()) {
                if object["metadata"]["labels"]["task-id"] == id {
                    found.insert(object["metadata"]["uid"].as_str().unwrap().to_owned());
                }
            }
        }
        found
    }

    /// Every form that objects of a kind ever had on a worker, in that order.
    pub fn history(&self, name: &str, kind: &str) -> Vec<Value> {
        let at = self.bed.workers.iter().position(|worker| worker.state.name == name).unwrap();
        let store = &self.bed.workers[at].state.store;
        let (changes, _) =
            store.since(Kind::named(kind).unwrap(), self.began[at]).expect("a history that is kept");
        changes.iter().filter_map(|change| change.after.as_deref().cloned()).collect()
    }

    /// Until nothing of a task is left on any worker.
    pub async fn is_gone(&self, id: &str) {
        for worker in &self.bed.workers {
            for kind in ["Job", "Pod", "Service", "Workload"] {
                let what = format!("every {kind} of {id} to be gone from {}", worker.state.name);
                super::super::bed::wait(&what, worker, || of_task(worker, kind, id).is_empty()).await;
            }
        }
    }
}

/// The objects of a kind that belong to a task.
pub fn of_task(cluster: &Cluster, kind: &str, id: &str) -> Vec<Value> {
    let of = |object: &Value| match kind {
        // Kueue gives its Workloads no labels of ours.
        "Workload" => object["metadata"]["name"].as_str().is_some_and(|name| name.contains(id)),
        _ => object["metadata"]["labels"]["task-id"] == id,
    };
    cluster.list(kind).iter().filter(|object| of(object)).map(|object| (**object).clone()).collect()
}

/// From now on this is wrong with a cluster, and nothing else.
pub fn wrong(cluster: &Cluster, plan: &str) {
    cluster.set_faults(plan.parse().unwrap());
}
