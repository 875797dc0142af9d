//! The web page in a browser, on a fedqd that keeps the quota of two clusters.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use fedq_sim::cluster::{Cluster, Options};
use serde_json::json;

use super::browser::browse;
use super::clients::{NODE, run};
use super::placement::{decides, furnish, place};
use super::tasks::stage::{Stage, TOKEN, of_task};

const NEXT_TOKEN: &str = "fedcba9876543210-ann";
/// Names of tasks are any text.
const HOSTILE: &str = "<img src=x onerror=alert('a')>";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_sees_and_does_everything_in_a_browser() {
    let hub = Options { ocm: true, ..Options::named("hub") };
    let prepared = async |bed: &super::bed::Bed| furnish(&bed.hub).await;
    let mut stage = Stage::set_all(hub, &[("one", 16), ("two", 8)], ("", "", ""), prepared).await;
    chooses_some(&stage.bed.hub).await;
    let task = format!("name: \"{HOSTILE}\"\nrun: echo '{HOSTILE}'\nresources: {{accelerators: 1}}\n");
    let task = stage.submit(3600, &task).await;
    stage.reaches(&task, "running").await;
    let server = address(&stage);
    stays_at(&stage, &server);

    let environment = [
        ("FEDQ_SERVER", server.as_str()),
        ("FEDQ_TOKEN", TOKEN),
        ("FEDQ_TASK", &task),
        ("FEDQ_HOSTILE", HOSTILE),
    ];
    browse("daemon.mjs", &environment, async |wanted| {
        let (what, more) = wanted.split_once(' ').unwrap_or((wanted, ""));
        match what {
            "node-goes" => schedulable(stage.worker("one"), false).await,
            "node-returns" => schedulable(stage.worker("one"), true).await,
            "line" => write_log(&stage, &task, &[more.to_owned()]),
            "long" => write_log(&stage, &task, &["0123456789 ".repeat(100_000)]),
            "many" => write_log(
                &stage,
                &task,
                &(0..10_000).map(|number| format!("line {number}")).collect::<Vec<_>>(),
            ),
            "stop" => stage.kill(),
            "start" => stage.start(),
            "another-token" => {
                tokens(&stage.bed.path("tokens"), NEXT_TOKEN);
                return NEXT_TOKEN.to_owned();
            }
            other => panic!("nobody knows how to do {other}"),
        }
        "done".to_owned()
    })
    .await;
}

/// Two of three, of which one is dropped by a filter.
async fn chooses_some(hub: &Cluster) {
    for name in ["one", "two"] {
        hub.merge("ManagedCluster", name, json!({"metadata": {"labels": {"gpu": "yes"}}})).await.unwrap();
    }
    let labelled = json!({"predicates": [{"requiredClusterSelector": {"labelSelector": {"matchLabels": {"gpu": "yes"}}}}]});
    place(hub, "best", labelled).await;
    decides(hub, "best", &["one", "two"]).await;
}

async fn schedulable(worker: &Cluster, is: bool) {
    worker.merge("Node", "b", json!({"spec": {"unschedulable": !is}})).await.unwrap();
}

fn write_log(stage: &Stage, task: &str, lines: &[String]) {
    let cluster = ["one", "two"].map(|name| stage.worker(name));
    let found = cluster.into_iter().find_map(|worker| Some((worker, of_task(worker, "Pod", task).pop()?)));
    let (worker, pod) = found.expect("the task runs");
    let pod = pod["metadata"]["name"].as_str().unwrap().to_owned();
    let log = ("team".to_owned(), pod, "task".to_owned());
    for line in lines {
        worker.state.logs.write(&log, worker.state.now(), line.as_str());
    }
}

/// The address of the API itself, past what holds answers against its document: the page is none of it.
fn address(stage: &Stage) -> String {
    let log = stage.bed.log();
    let (_, rest) = log.split_once("The API listens on ").expect("it listens");
    format!("http://{}", rest.split_once('"').unwrap().0)
}

/// Whoever looks at a page has its address, also after a restart.
fn stays_at(stage: &Stage, server: &str) {
    let file = stage.bed.path("fedqd.yaml");
    let config = fs::read_to_string(&file).unwrap();
    let at = format!("api: {{address: {}", server.trim_start_matches("http://"));
    let fixed = config.replace("api: {address: 127.0.0.1:0", &at);
    assert_ne!(fixed, config);
    fs::write(file, fixed).unwrap();
}

fn tokens(file: &PathBuf, token: &str) {
    fs::write(file, format!("{token},ann@example.com,u-1,\"system:masters\"\n")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn its_parts_do_what_they_should() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut node = std::process::Command::new("node");
    run(node.arg(root.join("tests/page/parts.mjs")).env("FEDQ_ASSETS", root.join("src/page/assets")));
}

/// What is checked in is what was published.
#[test]
fn libraries_of_others_are_as_they_published_them() {
    for (file, published) in [
        ("preact.js", "htm/preact/standalone.module.js"),
        ("uplot.js", "uplot/dist/uPlot.esm.js"),
        ("uplot.css", "uplot/dist/uPlot.min.css"),
        ("LICENSE-htm", "htm/LICENSE"),
        ("LICENSE-uplot", "uplot/LICENSE"),
    ] {
        let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/page/vendor").join(file);
        let published = NODE.join("node_modules").join(published);
        assert!(fs::read(&kept).unwrap() == fs::read(published).unwrap(), "{file} differs");
    }
}
