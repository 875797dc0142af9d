//! Server-sent events, to a client that is not ours.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};

use super::super::clients::{NODE, read};
use super::super::relay::relay;
use super::stage::{Stage, TOKEN, of_task};

/// Two connections' worth with what an EventSource waits before it connects again, and more.
const LINES: usize = 120;
const PACE: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_source_misses_no_line_and_gets_none_twice_where_connections_break() {
    let folder = tokio::task::spawn_blocking(|| NODE.as_path()).await.unwrap();
    let program = folder.join("events.mjs");
    fs::write(&program, read("events.mjs")).unwrap();
    let stage = Stage::set(&[("one", 8)]).await;
    let id = stage.submit(600, "run: x\nresources: {accelerators: 1}\n").await;
    stage.reaches(&id, "running").await;

    let cut = relay(stage.bed.api().await.trim_start_matches("http://").parse().unwrap());
    let mut follower = tokio::process::Command::new("node");
    follower.arg(program).arg(format!("http://{cut}/api/v1/tasks/{id}/logs?follow=true"));
    follower.env("FEDQ_TOKEN", TOKEN).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut follower = follower.spawn().unwrap();
    let mut told = BufReader::new(follower.stdout.take().unwrap()).lines();

    let worker = stage.worker("one");
    let pod = of_task(worker, "Pod", &id)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let log = ("team".to_owned(), pod, "task".to_owned());
    let mut written = Vec::new();
    for number in 0..LINES {
        let line = match number % 4 {
            0 => format!("id: {number}"),
            1 => format!("data: \u{2028} \"{number}\" \\"),
            2 => format!(": {number}\tretry: 1"),
            _ => number.to_string(),
        };
        worker.state.logs.write(&log, worker.state.now(), line.clone());
        written.push(line);
        tokio::time::sleep(PACE).await;
    }
    let mut lines = Vec::new();
    let mut read = async |until: Option<&str>| {
        while let Some(line) = told.next_line().await.unwrap() {
            let is_last = until == Some(line.as_str());
            lines.extend(Some(line).filter(|line| !line.starts_with("hello")));
            if is_last {
                return;
            }
        }
    };
    // A pod that is gone has no log any more: it is stopped once the last line has been told.
    let last = written.last().map(String::as_str);
    tokio::time::timeout(Duration::from_mins(1), read(last)).await.expect("it gets all lines");
    stage.fedq(&["task", "stop", &id, "--yes"], "").await.unwrap();
    tokio::time::timeout(Duration::from_mins(1), read(None)).await.expect("it is told that the task is over");
    let ended = follower.wait_with_output().await.unwrap();
    let connections: usize = String::from_utf8(ended.stderr).unwrap().trim().parse().unwrap();
    assert!(2 < connections, "{connections} connections: none broke");
    assert_eq!(lines, written, "over {connections} connections");
}
