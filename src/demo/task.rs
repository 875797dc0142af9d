//! The demo's act about tasks: one is handed in, its node is drained, and it runs again elsewhere.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    DemoError,
    facts::names,
    objects::TENANT,
    screen::Screen,
    stage::{self, Stage, taken},
};
use fedq_sim::cluster::Cluster;

/// What is in its file.
pub const TASK: &str = "\
name: fine-tune-vit
num_nodes: 2
resources:
  accelerators: 8
run: |
  torchrun --nnodes $SKYPILOT_NUM_NODES --node-rank $SKYPILOT_NODE_RANK train.py
config:  # for how long the simulated pods run
  kubernetes: {custom_metadata: {annotations: {sim.fedq.dev/seconds: '86400'}}}
";
const NODES: usize = 2;
const ID: &str = "task-id";
/// Which pod of an Indexed Job it is.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

pub async fn run_a_task(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    screen.chapter("A task runs where there is room").await?;
    screen.say(
        "Whoever would rather not write Jobs hands in a task, a file as SkyPilot has it. This one of vision \
         wants two nodes with 8 GPUs each:",
    )?;
    screen.output("\n")?;
    for line in TASK.lines() {
        screen.output(&format!("  {line}\n"))?;
    }
    let told = stage.shell.show_told(&format!("fedq task submit {} -o name", stage::TASK), screen).await?;
    let id = told.trim().trim_start_matches("task/").to_owned();
    let first = runs(stage, &id, screen).await?;
    write_logs(&first);
    stage.shell.show_data("fedq task list", screen).await?;
    stage.shell.show_logs(&format!("fedq task logs {id} --no-follow"), screen).await?;
    screen.found(&format!("its two pods run on {}", first.cluster.state.name))?;

    let name = &first.cluster.state.name;
    let node = first.pods[0]["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
    screen.paragraph(&format!(
        "Somebody drains node {node} of {name}. What is left of {name} has no room for the task any more, so it is taken \
         off and runs where there is:"
    ))?;
    drain(&first, &node).await?;
    let second = runs_elsewhere(stage, &id, name, screen).await?;
    stage.shell.show_data(&format!("fedq task status {id}"), screen).await?;
    screen.found(&format!(
        "it runs on {}, with both of its pods, and nothing of it is left on {name}",
        second.cluster.state.name
    ))?;

    screen.paragraph("The task is stopped, and the node is back:")?;
    stage.shell.show(&format!("fedq task stop {id} --yes"), screen).await?;
    uncordon(first.cluster, &node).await?;
    let gone = || stage.workers().iter().all(|worker| pods(worker, &id).is_empty());
    stage.until("no pod of the task is left", screen, gone, || everywhere(stage)).await?;
    screen.found("no pod of it is left")
}

/// Where a task runs.
struct Place<'s> {
    cluster: &'s Cluster,
    pods: Vec<Arc<Value>>,
}

fn pods(cluster: &Cluster, id: &str) -> Vec<Arc<Value>> {
    cluster.list("Pod").into_iter().filter(|pod| pod["metadata"]["labels"][ID] == id).collect()
}

fn place<'s>(stage: &'s Stage, id: &str) -> Option<Place<'s>> {
    let running = |cluster: &'s Cluster| {
        let pods = pods(cluster, id);
        let run = pods.len() == NODES && pods.iter().all(|pod| pod["status"]["phase"] == "Running");
        run.then_some(Place { cluster, pods })
    };
    stage.workers().iter().find_map(running)
}

fn everywhere(stage: &Stage) -> String {
    let lines = stage.workers().iter().map(|one| format!("{}: {}", one.state.name, names(one, "Pod")));
    lines.collect::<Vec<_>>().join("\n")
}

async fn runs<'s>(stage: &'s Stage, id: &str, screen: &mut Screen) -> Result<Place<'s>, DemoError> {
    stage.until("the task runs", screen, || place(stage, id).is_some(), || everywhere(stage)).await?;
    found(stage, id)
}

async fn runs_elsewhere<'s>(
    stage: &'s Stage,
    id: &str,
    than: &str,
    screen: &mut Screen,
) -> Result<Place<'s>, DemoError> {
    let there = || {
        let elsewhere = place(stage, id).is_some_and(|place| place.cluster.state.name != than);
        elsewhere && pods(stage.cluster(than), id).is_empty()
    };
    stage
        .until(&format!("the task runs elsewhere than on {than}"), screen, there, || everywhere(stage))
        .await?;
    found(stage, id)
}

/// It ran a moment ago.
fn found<'s>(stage: &'s Stage, id: &str) -> Result<Place<'s>, DemoError> {
    let untrue = || DemoError::Untrue { what: "the task runs".to_owned(), found: everywhere(stage) };
    place(stage, id).ok_or_else(untrue)
}

/// What the containers would write: the clusters here run none.
fn write_logs(place: &Place<'_>) {
    for pod in &place.pods {
        let rank = pod["metadata"]["annotations"][INDEX].as_str().unwrap_or_default();
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let container = (TENANT.to_owned(), name, "task".to_owned());
        let line = format!("rank {rank} of {NODES} on {}: epoch 1, loss 2.31", place.cluster.state.name);
        place.cluster.state.logs.write(&container, place.cluster.state.now(), line);
    }
}

/// As `kubectl drain` does: nothing new on the node, and its pods evicted.
async fn drain(place: &Place<'_>, node: &str) -> Result<(), DemoError> {
    let cordoned = json!({"spec": {"unschedulable": true}});
    taken(place.cluster, place.cluster.merge("Node", node, cordoned).await)?;
    for pod in place.pods.iter().filter(|pod| pod["spec"]["nodeName"] == node) {
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastTransitionTime": place.cluster.state.now().to_string(),
        });
        let (name, status) = (pod["metadata"]["name"].as_str(), json!({"conditions": [condition]}));
        let evicted = place.cluster.set_status_in(TENANT, "Pod", name.unwrap_or_default(), status).await;
        taken(place.cluster, evicted)?;
    }
    Ok(())
}

async fn uncordon(cluster: &Cluster, node: &str) -> Result<(), DemoError> {
    taken(cluster, cluster.merge("Node", node, json!({"spec": {"unschedulable": null}})).await)
}
