//! The story that the demo tells, in the commands of somebody who keeps clusters. Whatever it says, it has
//! asked the API servers first.

use std::{fmt::Write, sync::Arc};

use serde_json::{Value, json};

use super::{
    DemoError, objects,
    quotas::Quotas,
    screen::Screen,
    stage::{Stage, put},
};
use crate::sim::cluster::Cluster;

const CLAIMS: &str = "ClusterResourceClaim";
const FAILING_NODE: &str = "h100-3";

/// Quotas by queue and flavor on hub, frankfurt, oregon and tokyo.
const NOTHING: &str = "
    research a100  0  -  -  -
    research h100  0  -  -  -
    vision   a100  0  -  -  -
    vision   h100  0  -  -  -";
const ASSIGNED: &str = "
    research a100  8  -  -  8
    research h100 32 16 16  -
    vision   a100 32  - 16 16
    vision   h100  8  8  -  -";
/// Frankfurt has 16 of 24 GPUs left: 16 × 16/24 and 16 × 8/24, rounded.
const WITHOUT_THE_NODE: &str = "
    research a100  8  -  -  8
    research h100 27 11 16  -
    vision   a100 32  - 16 16
    vision   h100  5  5  -  -";
const MOVED: &str = "
    research a100  8  -  -  8
    research h100 40 24 16  -
    vision   a100 32  - 16 16
    vision   h100  0  0  -  -";
/// Nothing is written where nobody answers.
const WITHOUT_TOKYO: &str = "
    research a100  0  -  -  8
    research h100 40 24 16  -
    vision   a100 16  - 16 16
    vision   h100  0  0  -  -";

pub async fn tell(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    set_stage(stage, screen).await?;
    lose_a_node(stage, screen).await?;
    move_quota(stage, screen).await?;
    lose_a_cluster(stage, screen).await?;
    screen.line("")?;
    screen
        .say("That is fedq. `fedq demo --serve` leaves such clusters up for you to try fedq and kubectl on.")
}

/// Joined, assigned, and at work.
pub async fn set_stage(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    join(stage, screen).await?;
    assign(stage, screen).await?;
    work(stage, screen).await
}

async fn join(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    screen.chapter("Clusters join the hub")?;
    screen.say(
        "A cluster joins by a kubeconfig. With --create-serviceaccount fedq makes itself an account there \
         that has just the rights it needs.",
    )?;
    for worker in &objects::WORKERS {
        let name = worker.name;
        let line = format!(
            "fedq cluster join {name} --kubeconfig kubeconfig --context {name} --create-serviceaccount"
        );
        stage.shell.show_data(&line, screen).await?;
        let what = format!("the hub has a claim of {name}, and {name} an account for fedq");
        let joined = || {
            claim(stage, name).is_some_and(|claim| claim["spec"]["clusterName"] == name)
                && stage.cluster(name).get("ServiceAccount", "fedq-system", "fedq").is_some()
        };
        stage.until(&what, screen, joined, || names(stage.hub(), CLAIMS)).await?;
    }
    screen.line("")?;
    screen.say("fedq watches their nodes and counts what they have, by Kueue's flavors:")?;
    stage.shell.show_data("fedq cluster list", screen).await?;
    stage.shell.show_data("fedq capacity oregon", screen).await?;
    for worker in &objects::WORKERS {
        capacity_is(stage, worker.name, objects::gpus(worker), screen).await?;
    }
    screen.found("each cluster has a claim on the hub, with the GPUs that its nodes have")
}

async fn assign(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    screen.chapter("Claims say who gets what")?;
    quotas_are(stage, NOTHING, screen).await?;
    screen.say(
        "Two teams, research and vision, have a ClusterQueue each on the hub, with no quota yet. \
         (`fedq claim edit` opens a claim in your editor; `assign` is for scripts.)",
    )?;
    for (index, (cluster, queue, flavor, gpus)) in [
        ("frankfurt", "research", "h100", 16),
        ("frankfurt", "vision", "h100", 8),
        ("oregon", "research", "h100", 16),
        ("oregon", "vision", "a100", 16),
        ("tokyo", "research", "a100", 8),
        ("tokyo", "vision", "a100", 16),
    ]
    .into_iter()
    .enumerate()
    {
        let line = format!(
            "fedq claim assign {cluster}-resource-claim --queue {queue} --flavor {flavor} gpu={gpus}"
        );
        // What it is about is seen once.
        if index == 0 {
            stage.shell.show(&line, screen).await?;
        } else {
            stage.shell.show_data(&line, screen).await?;
        }
    }
    let quotas = quotas_are(stage, ASSIGNED, screen).await?;
    screen.line("")?;
    screen.say("That is all there is to do. The GPU quota in the ClusterQueues of each cluster:")?;
    show(&quotas, None, screen)?;
    for worker in &objects::WORKERS {
        condition_is(stage, worker.name, "Ready", "True", screen).await?;
    }
    screen
        .found("the hub's queues hold the sums, each cluster has queues with its part, all claims are Ready")
}

async fn work(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    screen.chapter("Kueue admits by these quotas")?;
    screen.say(
        "Two Jobs of research come to frankfurt: fine-tune takes all 16 GPUs that the team has there, so \
         pre-train, with 8, has to wait.",
    )?;
    let frankfurt = stage.cluster("frankfurt");
    put(frankfurt, objects::job("research", "fine-tune", 2)).await?;
    let runs = || is_admitted(frankfurt, "fine-tune") && running_pods(frankfurt, "fine-tune") == 2;
    stage.until("fine-tune runs", screen, runs, || workloads(frankfurt)).await?;
    put(frankfurt, objects::job("research", "pre-train", 1)).await?;
    let waits = || !why_not(frankfurt, "pre-train").is_empty();
    stage.until("Kueue says why pre-train waits", screen, waits, || workloads(frankfurt)).await?;
    screen.line("")?;
    screen.output(&workloads(frankfurt))?;
    screen.found("fine-tune runs with two pods, pre-train is suspended")
}

async fn lose_a_node(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    screen.chapter("A node fails")?;
    screen.say(&format!(
        "Node {FAILING_NODE} of frankfurt stops reporting: 16 of 24 GPUs are left. Both queues give way in \
         proportion, there and on the hub. Nobody has to do anything."
    ))?;
    let (before, frankfurt) = (stage.quotas(), stage.cluster("frankfurt"));
    report(frankfurt, false).await?;
    let quotas = quotas_are(stage, WITHOUT_THE_NODE, screen).await?;
    show(&quotas, Some(&before), screen)?;
    condition_is(stage, "frankfurt", "QuotaSynced", "True", screen).await?;
    stage.shell.show_data("fedq claim show frankfurt-resource-claim", screen).await?;
    let goes_on = is_admitted(frankfurt, "fine-tune") && running_pods(frankfurt, "fine-tune") == 2;
    is_so(goes_on, "fine-tune, with more GPUs than its queue has now, runs on", || workloads(frankfurt))?;
    screen.found("quotas follow the node; fine-tune, which holds more than its queue has now, runs on")?;

    screen.line("")?;
    screen.say("The node is back:")?;
    let before = stage.quotas();
    report(frankfurt, true).await?;
    let quotas = quotas_are(stage, ASSIGNED, screen).await?;
    show(&quotas, Some(&before), screen)?;
    screen.found("and so are the quotas")
}

async fn move_quota(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    screen.chapter("Quota moves to where it is needed")?;
    screen
        .say("pre-train still waits, and vision does not use its 8 GPUs on frankfurt. research gets them:")?;
    let (before, frankfurt) = (stage.quotas(), stage.cluster("frankfurt"));
    for (queue, gpus) in [("vision", 0), ("research", 24)] {
        let line =
            format!("fedq claim assign frankfurt-resource-claim --queue {queue} --flavor h100 gpu={gpus}");
        stage.shell.show(&line, screen).await?;
    }
    let quotas = quotas_are(stage, MOVED, screen).await?;
    screen.line("")?;
    show(&quotas, Some(&before), screen)?;
    let runs = || is_admitted(frankfurt, "pre-train") && running_pods(frankfurt, "pre-train") == 1;
    stage.until("pre-train runs", screen, runs, || workloads(frankfurt)).await?;
    screen.line("")?;
    screen.output(&workloads(frankfurt))?;
    screen.found("pre-train runs beside fine-tune")
}

async fn lose_a_cluster(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    screen.chapter("A cluster goes dark")?;
    screen.say("All of tokyo stops answering. That may be the network only, so its share stands:")?;
    let before = stage.quotas();
    stage.cluster("tokyo").power_off().await;
    connection_is(stage, "tokyo", "Stale", screen).await?;
    stage.shell.show_data("fedq cluster list", screen).await?;
    is_so(stage.quotas().are(MOVED), "the hub's quotas stand", || text(&stage.quotas()))?;
    screen.found("tokyo is Stale; the hub's quotas are what they were")?;

    screen.line("")?;
    screen.say(&format!(
        "When clusters.lostTimeout is over ({} s here, 15 minutes otherwise), its share comes off the hub:",
        stage.pace.lost_timeout().as_secs()
    ))?;
    let quotas = quotas_are(stage, WITHOUT_TOKYO, screen).await?;
    show_without_tokyo(&quotas, &before, screen)?;
    stage.shell.show_data("fedq quota explain research", screen).await?;
    screen.found("the hub promises nothing any more that tokyo would have to keep")?;

    screen.line("")?;
    screen.say("tokyo answers again:")?;
    let before = stage.quotas();
    stage.power_on("tokyo").await?;
    let quotas = quotas_are(stage, MOVED, screen).await?;
    show(&quotas, Some(&before), screen)?;
    connection_is(stage, "tokyo", "Ready", screen).await?;
    screen.found("its share is back, and nobody had to do anything")
}

/// Whether the kubelet of a node reports.
async fn report(cluster: &Cluster, reports: bool) -> Result<(), DemoError> {
    let status = json!({"conditions": objects::conditions(reports)});
    let done = cluster.set_status("Node", FAILING_NODE, status).await;
    done.map_err(|refusal| DemoError::Refused {
        cluster: cluster.state.name.clone(),
        message: refusal.message,
    })
}

fn is_so(holds: bool, what: &str, found: impl Fn() -> String) -> Result<(), DemoError> {
    if holds { Ok(()) } else { Err(DemoError::Untrue { what: what.to_owned(), found: found() }) }
}

async fn quotas_are(stage: &Stage, expected: &str, screen: &mut Screen) -> Result<Quotas, DemoError> {
    let holds = || stage.quotas().are(expected);
    stage.until("the quotas are as they should be", screen, holds, || text(&stage.quotas())).await?;
    Ok(stage.quotas())
}

fn text(quotas: &Quotas) -> String {
    quotas.table(None, &|_| None, false)
}

fn show(quotas: &Quotas, before: Option<&Quotas>, screen: &mut Screen) -> Result<(), DemoError> {
    screen.output(&format!("\n{}", quotas.table(before, &|_| None, screen.color())))
}

fn show_without_tokyo(quotas: &Quotas, before: &Quotas, screen: &mut Screen) -> Result<(), DemoError> {
    let note = |name: &str| (name == "tokyo").then_some("dark");
    screen.output(&format!("\n{}", quotas.table(Some(before), &note, screen.color())))
}

fn claim(stage: &Stage, cluster: &str) -> Option<Arc<Value>> {
    stage.hub().get(CLAIMS, "", &format!("{cluster}-resource-claim"))
}

fn status(stage: &Stage, cluster: &str) -> String {
    claim(stage, cluster).map_or_else(String::new, |claim| format!("{:#}", claim["status"]))
}

async fn condition_is(
    stage: &Stage,
    cluster: &str,
    kind: &str,
    wanted: &str,
    screen: &mut Screen,
) -> Result<(), DemoError> {
    let holds = || {
        claim(stage, cluster).is_some_and(|claim| {
            let current = claim["status"]["observedGeneration"] == claim["metadata"]["generation"];
            current && condition(&claim, kind).is_some_and(|condition| condition["status"] == wanted)
        })
    };
    let what = format!("the claim of {cluster} says {kind}={wanted}");
    stage.until(&what, screen, holds, || status(stage, cluster)).await
}

async fn capacity_is(
    stage: &Stage,
    cluster: &str,
    gpus: usize,
    screen: &mut Screen,
) -> Result<(), DemoError> {
    let wanted = gpus.to_string();
    let holds = || claim(stage, cluster).is_some_and(|claim| claim["status"]["capacity"]["gpu"] == *wanted);
    let what = format!("the claim of {cluster} has its {gpus} GPUs");
    stage.until(&what, screen, holds, || status(stage, cluster)).await
}

/// As the claim on the hub tells it.
async fn connection_is(
    stage: &Stage,
    cluster: &str,
    word: &str,
    screen: &mut Screen,
) -> Result<(), DemoError> {
    let holds = || {
        claim(stage, cluster).is_some_and(|claim| {
            let known = condition(&claim, "CapacityKnown");
            known.is_some_and(|known| match word {
                "Ready" => known["status"] == "True",
                _ => known["reason"] == word,
            })
        })
    };
    let what = format!("{cluster} counts as {word}");
    stage.until(&what, screen, holds, || status(stage, cluster)).await
}

fn names(cluster: &Cluster, kind: &str) -> String {
    let objects = cluster.list(kind);
    let names: Vec<&str> = objects.iter().filter_map(|object| object["metadata"]["name"].as_str()).collect();
    names.join(", ")
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// The Workload that Kueue made for a Job.
fn workload(cluster: &Cluster, job: &str) -> Option<Arc<Value>> {
    let of_job = |workload: &Arc<Value>| owner(workload) == job;
    cluster.list("Workload").into_iter().find(of_job)
}

fn owner(workload: &Value) -> &str {
    workload["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or_default()
}

fn is_admitted(cluster: &Cluster, job: &str) -> bool {
    workload(cluster, job).is_some_and(|workload| {
        condition(&workload, "Admitted").is_some_and(|admitted| admitted["status"] == "True")
    })
}

fn running_pods(cluster: &Cluster, job: &str) -> usize {
    let runs = |pod: &&Arc<Value>| owner(pod) == job && pod["status"]["phase"] == "Running";
    cluster.list("Pod").iter().filter(runs).count()
}

/// What Kueue says of a Job that waits.
fn why_not(cluster: &Cluster, job: &str) -> String {
    let workload = workload(cluster, job);
    let reserved = workload.as_deref().and_then(|workload| condition(workload, "QuotaReserved"));
    let waits = reserved.filter(|reserved| reserved["status"] == "False");
    waits.and_then(|waits| waits["message"].as_str()).unwrap_or_default().to_owned()
}

/// In the order that they came in.
fn workloads(cluster: &Cluster) -> String {
    let mut found = cluster.list("Workload");
    found.sort_by_key(|workload| workload["metadata"]["creationTimestamp"].to_string());
    let mut text = format!("{:<12}{:<8}{}\n", "JOB", "PODS", "KUEUE SAYS");
    for workload in found {
        let job = owner(&workload);
        let says = match why_not(cluster, job) {
            reason if !reason.is_empty() => format!("waits: {reason}"),
            _ if is_admitted(cluster, job) => "admitted".to_owned(),
            _ => "pending".to_owned(),
        };
        let _ = writeln!(text, "{job:<12}{:<8}{says}", running_pods(cluster, job));
    }
    text
}
