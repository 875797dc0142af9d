//! Tasks as people use them: the command line against a whole daemon.

use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fedq_sim::cluster::{Cluster, State};
use serde_json::Value;
use tempfile::TempDir;

use super::super::bed::WITHIN;
use super::super::follower::Follower;
use super::stage::{Stage, TOKEN, of_task};

struct People {
    stage: Stage,
    url: String,
    folder: TempDir,
}

impl People {
    async fn set(workers: &[(&str, u32)]) -> Self {
        let mut stage = Stage::set(workers).await;
        stage.kill();
        // The same after a restart, so that who was connected finds the daemon again.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let path = stage.bed.path("fedqd.yaml");
        let config = std::fs::read_to_string(&path).unwrap();
        let anywhere = "api: {address: 127.0.0.1:0";
        assert!(config.contains(anywhere), "{config}");
        std::fs::write(&path, config.replace(anywhere, &format!("api: {{address: \"{address}\""))).unwrap();
        stage.start();
        let folder = TempDir::new().unwrap();
        let people = Self { stage, url: format!("http://{address}"), folder };
        people.stage.knows(workers.len()).await;
        people
    }

    fn fedq(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedq"));
        let server = self.stage.bed.talk.with(&self.url);
        command.args(arguments).env_clear().env("FEDQ_SERVER", server).env("FEDQ_TOKEN", TOKEN);
        command.env("FEDQ_CONFIG", "/nowhere/config.yaml").current_dir(self.folder.path());
        command
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.fedq(arguments);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    async fn said(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    async fn submit(&self, text: &str) -> String {
        std::fs::write(self.folder.path().join("task.yaml"), text).unwrap();
        let name = self.said(&["task", "submit", "task.yaml", "-o", "name"]).await;
        name.trim().strip_prefix("task/").unwrap().to_owned()
    }

    fn follow(&self, arguments: &[&str]) -> Follower {
        let told = std::fs::File::create(self.folder.path().join("told")).unwrap();
        Follower::new(self.fedq(arguments).stdout(Stdio::piped()).stderr(told).spawn().unwrap())
    }
}

async fn until(follower: &mut Follower, what: &str, enough: impl Fn(&[String]) -> bool) {
    let began = Instant::now();
    while !enough(follower.heard()) {
        assert!(began.elapsed() < WITHIN, "waited in vain for {what}: {:?}", follower.heard());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn code(mut follower: Follower) -> Option<i32> {
    let began = Instant::now();
    loop {
        if let Some(ended) = follower.ended().unwrap() {
            return ended.code();
        }
        assert!(began.elapsed() < WITHIN, "it did not end: {:?}", follower.heard());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn write(cluster: &State, pod: &str, text: &str) {
    let log = ("team".to_owned(), pod.to_owned(), "task".to_owned());
    cluster.logs.write(&log, cluster.now(), text);
}

/// By rank.
async fn pods(cluster: &Cluster, id: &str, count: usize) -> Vec<String> {
    let began = Instant::now();
    loop {
        let mut pods: Vec<(u64, String)> = of_task(cluster, "Pod", id)
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Running")
            .map(|pod| {
                let rank = &pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"];
                let rank = rank.as_str().unwrap_or("0").parse().unwrap();
                (rank, pod["metadata"]["name"].as_str().unwrap().to_owned())
            })
            .collect();
        if pods.len() == count {
            pods.sort();
            return pods.into_iter().map(|(_, name)| name).collect();
        }
        assert!(began.elapsed() < WITHIN, "{} of {count} pods run", pods.len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn lasting(seconds: u32, more: &str) -> String {
    format!(
        "name: train\nrun: x\nresources: {{accelerators: 1}}\n{more}\
         config: {{kubernetes: {{custom_metadata: {{annotations: {{sim.fedq.dev/seconds: '{seconds}'}}}}}}}}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_nodes_are_one_log_through_a_crash_of_fedqd() {
    let mut people = People::set(&[("one", 8)]).await;
    std::fs::write(people.folder.path().join("task.yaml"), lasting(600, "num_nodes: 4\n")).unwrap();
    let mut follower = people.follow(&["task", "submit", "task.yaml"]);
    until(&mut follower, "the id", |heard| !heard.is_empty()).await;
    let id = follower.id().unwrap();
    let pods = pods(people.stage.worker("one"), &id, 4).await;
    let worker = Arc::clone(&people.stage.worker("one").state);
    let say = |number: usize| {
        for (rank, pod) in pods.iter().enumerate() {
            write(&worker, pod, &format!("line {number} of {rank}"));
        }
    };
    (0..20).for_each(say);
    let lines = |heard: &[String]| heard.iter().filter(|line| line.contains("| line ")).count();
    until(&mut follower, "the first lines", |heard| lines(heard) == 80).await;
    people.stage.kill();
    (20..40).for_each(say);
    people.stage.start();
    until(&mut follower, "what was written meanwhile", |heard| 160 <= lines(heard)).await;
    (40..50).for_each(say);
    until(&mut follower, "what came after", |heard| 200 <= lines(heard)).await;
    for rank in 0..4 {
        let expected: Vec<String> = (0..50).map(|number| format!("line {number} of {rank}")).collect();
        let mut own = follower.of_node(rank);
        own.retain(|line| line.starts_with("line "));
        assert_eq!(own, expected, "each line once and in order");
    }

    let output =
        people.run(&["task", "logs", &id, "--no-follow", "--node", "2", "--tail", "1", "-o", "raw"]).await;
    assert_eq!(output.status.code(), Some(101), "it is not over");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "line 49 of 2\n");
    assert_eq!(people.run(&["task", "logs", "00000000"]).await.status.code(), Some(102));
    assert_eq!(people.run(&["task", "logs", &id, "--node", "4"]).await.status.code(), Some(1));

    let stopped = people.said(&["task", "stop", &id]).await;
    assert_eq!(stopped, format!("task {id} stopped\n"));
    assert_eq!(code(follower).await, Some(103));
    assert!(of_task(people.stage.worker("one"), "Pod", &id).is_empty(), "the stop was confirmed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_the_looking_and_not_the_task() {
    let people = People::set(&[("one", 8)]).await;
    std::fs::write(people.folder.path().join("task.yaml"), lasting(600, "")).unwrap();
    let mut follower = people.follow(&["task", "submit", "task.yaml"]);
    until(&mut follower, "the id and a line", |heard| heard.iter().any(|line| line.starts_with("hello")))
        .await;
    let id = follower.id().unwrap();
    follower.interrupt();
    // As shells have it, so that a script that was interrupted ends too.
    assert_eq!(code(follower).await, Some(130));
    let told = std::fs::read_to_string(people.folder.path().join("told")).unwrap();
    assert!(told.contains("Nobody stopped the task"), "{told}");
    for next in ["logs", "status", "explain", "stop"] {
        assert!(told.contains(&format!("  fedq task {next} {id}")), "{told}");
    }
    let status: Value =
        serde_json::from_str(&people.said(&["task", "status", &id, "-o", "json"]).await).unwrap();
    assert_eq!(status["phase"], "running", "{status:#}");
    let again = people.run(&["task", "logs", &id, "--no-follow"]).await;
    assert_eq!(again.status.code(), Some(101), "and it is still there to be looked at");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exit_code_is_the_tasks() {
    let people = People::set(&[("one", 8)]).await;
    let good = people.submit(&lasting(1, "")).await;
    let bad = lasting(1, "").replace("seconds: '1'", "seconds: '1', sim.fedq.dev/exit: '3'");
    let bad = people.submit(&bad).await;
    let stopped = people.submit(&lasting(600, "")).await;
    people.said(&["task", "stop", &stopped]).await;
    let unfinished = people.submit(&lasting(600, "")).await;
    for (id, follow, code) in [
        (good.as_str(), "--tail=5", 0),
        (&bad, "--tail=5", 100),
        (&unfinished, "--no-follow", 101),
        ("00000000", "--tail=5", 102),
        (&stopped, "--tail=5", 103),
    ] {
        assert_eq!(people.run(&["task", "logs", id, follow]).await.status.code(), Some(code), "{id}");
    }
    let status = people.said(&["task", "status", &bad, "-o", "json"]).await;
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(
        (&status["phase"], &status["failure"], &status["nodes"]["failed"]),
        (&"failed".into(), &"program".into(), &1.into())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fits_nowhere_is_refused_with_each_clusters_reason() {
    let people = People::set(&[("one", 8), ("two", 4)]).await;
    std::fs::write(
        people.folder.path().join("task.yaml"),
        lasting(1, "").replace("accelerators: 1", "accelerators: 12"),
    )
    .unwrap();
    let refused = people.run(&["task", "submit", "task.yaml"]).await;
    assert_eq!(refused.status.code(), Some(1));
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.contains("no joined cluster can ever hold the task"), "{why}");
    assert!(
        why.contains("one: queue queue can hold at most 8")
            && why.contains("two: queue queue can hold at most 4"),
        "{why}"
    );
    assert_eq!(people.said(&["task", "list", "-o", "json"]).await.trim(), "{\n  \"items\": []\n}");

    std::fs::write(
        people.folder.path().join("task.yaml"),
        lasting(1, "").replace("accelerators: 1", "accelerators: 6"),
    )
    .unwrap();
    let table = people.said(&["task", "submit", "task.yaml", "--dry-run"]).await;
    let row = |name: &str| {
        table
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap()
            .split_whitespace()
            .take(4)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        (row("one "), row("two ")),
        ("one fits yes queue".to_owned(), "two never - -".to_owned()),
        "{table}"
    );
}
