//! The story that the demo tells, in the commands of somebody who keeps clusters. Whatever it says, it has
//! asked the API servers first.

use serde_json::json;

use super::{
    DemoError,
    facts::{CLAIMS, claim, condition, jobs, names, runs, status, waits},
    objects,
    quotas::Quotas,
    screen::Screen,
    stage::{Stage, put, taken},
    task,
};
use fedq_sim::cluster::Cluster;

const JOBS: &[&str] = &["fine-tune", "pre-train", "evaluate"];
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
    task::run_a_task(stage, screen).await?;
    quotas_are(stage, MOVED, "the quotas are as before the drain", screen).await?;
    lose_a_cluster(stage, screen).await?;
    screen.paragraph(
        "That is fedq. `fedq demo --serve` leaves such clusters up for you to try fedq and kubectl on.",
    )
}

/// Joined, assigned, and at work.
pub async fn set_stage(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    join(stage, screen).await?;
    assign(stage, screen).await?;
    work(stage, screen).await
}

async fn join(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    screen.chapter("Clusters join the hub").await?;
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
    screen.paragraph("fedq watches their nodes and counts what they have, by Kueue's flavors:")?;
    stage.shell.show_data("fedq cluster list", screen).await?;
    stage.shell.show_data("fedq capacity oregon", screen).await?;
    for worker in &objects::WORKERS {
        capacity_is(stage, worker.name, objects::gpus(worker), screen).await?;
    }
    screen.found("each cluster has a claim on the hub, with the GPUs that its nodes have")
}

async fn assign(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    screen.chapter("Claims say who gets what").await?;
    quotas_are(stage, NOTHING, "the hub's queues have no quota", screen).await?;
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
    let quotas = quotas_are(stage, ASSIGNED, "the quotas are what the claims say", screen).await?;
    screen.paragraph("That is all there is to do. The GPU quota in the ClusterQueues of each cluster:")?;
    show(&quotas, None, screen)?;
    for worker in &objects::WORKERS {
        condition_is(stage, worker.name, "Ready", "True", screen).await?;
    }
    stage.shell.show_data("fedq claim list", screen).await?;
    screen
        .found("the hub's queues hold the sums, each cluster has queues with its part, all claims are Ready")
}

async fn work(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    screen.chapter("Kueue sends work where the quota is").await?;
    screen.say(
        "Three Jobs of research are created on the hub, for 16, 16 and 8 GPUs of h100. The queue has 32. \
         MultiKueue takes each Job that has quota to a cluster with room for it.",
    )?;
    for (job, pods, cluster) in [("fine-tune", 2, "frankfurt"), ("pre-train", 2, "oregon")] {
        put(stage.hub(), objects::job("research", job, "h100", pods)).await?;
        let there = || runs(stage, job, cluster, pods);
        stage.until(&format!("{job} runs on {cluster}"), screen, there, || jobs(stage, JOBS)).await?;
    }
    put(stage.hub(), objects::job("research", "evaluate", "h100", 1)).await?;
    stage.until("evaluate waits", screen, || waits(stage, "evaluate"), || jobs(stage, JOBS)).await?;
    screen.output(&format!("\n{}", jobs(stage, JOBS)))?;
    screen.found("fine-tune runs on frankfurt and pre-train on oregon, evaluate waits on the hub")
}

async fn lose_a_node(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    screen.chapter("A node fails").await?;
    screen.say(&format!(
        "Node {FAILING_NODE} of frankfurt stops reporting: 16 of 24 GPUs are left. Both queues give way in \
         proportion, there and on the hub. Nobody has to do anything."
    ))?;
    let (before, frankfurt) = (stage.quotas(), stage.cluster("frankfurt"));
    report(frankfurt, false).await?;
    let quotas = quotas_are(stage, WITHOUT_THE_NODE, "both queues have given way", screen).await?;
    show(&quotas, Some(&before), screen)?;
    for (kind, wanted) in [("Satisfied", "False"), ("QuotaSynced", "True")] {
        condition_is(stage, "frankfurt", kind, wanted, screen).await?;
    }
    stage.shell.show_data("fedq claim show frankfurt-resource-claim", screen).await?;
    let goes_on = runs(stage, "fine-tune", "frankfurt", 2);
    is_so(goes_on, "fine-tune runs on", || jobs(stage, JOBS))?;
    screen.found(
        "quotas follow the node; fine-tune, which holds 16 GPUs of a queue that has 11 now, runs on",
    )?;

    screen.paragraph("The node is back:")?;
    let before = stage.quotas();
    report(frankfurt, true).await?;
    let quotas = quotas_are(stage, ASSIGNED, "the quotas have grown back", screen).await?;
    show(&quotas, Some(&before), screen)?;
    screen.found("and so are the quotas")
}

async fn move_quota(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    screen.chapter("Quota moves to where it is needed").await?;
    screen
        .say("evaluate still waits, and vision does not use its 8 GPUs on frankfurt. research gets them:")?;
    let before = stage.quotas();
    for (queue, gpus) in [("vision", 0), ("research", 24)] {
        let line =
            format!("fedq claim assign frankfurt-resource-claim --queue {queue} --flavor h100 gpu={gpus}");
        stage.shell.show(&line, screen).await?;
    }
    let quotas = quotas_are(stage, MOVED, "vision's quota is research's", screen).await?;
    show(&quotas, Some(&before), screen)?;
    let there = || runs(stage, "evaluate", "frankfurt", 1);
    stage.until("evaluate runs on frankfurt", screen, there, || jobs(stage, JOBS)).await?;
    screen.output(&format!("\n{}", jobs(stage, JOBS)))?;
    screen.found("the quota is research's, and evaluate runs")
}

async fn lose_a_cluster(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    screen.chapter("A cluster goes dark").await?;
    screen.say("All of tokyo stops answering. That may be the network only, so its share stands:")?;
    let before = stage.quotas();
    stage.cluster("tokyo").power_off().await;
    // At one and the same moment: it is not Stale for long.
    let stands = || is_connected(stage, "tokyo", "Stale") && stage.quotas().are(MOVED);
    let found = || format!("{}{}", text(&stage.quotas()), status(stage, "tokyo"));
    stage.until("tokyo counts as Stale", screen, stands, found).await?;
    stage.shell.show_data("fedq cluster list", screen).await?;
    screen.found("tokyo is Stale; the hub's quotas are what they were")?;

    screen.paragraph(&format!(
        "When clusters.lostTimeout is over ({} s here, 15 minutes otherwise), its share comes off the hub:",
        stage.pace.lost_timeout().as_secs()
    ))?;
    let quotas = quotas_are(stage, WITHOUT_TOKYO, "tokyo's share is off the hub", screen).await?;
    show_without_tokyo(&quotas, &before, screen)?;
    stage.shell.show_data("fedq quota explain research", screen).await?;
    screen.found("the hub promises nothing any more that tokyo would have to keep")?;

    screen.paragraph("tokyo answers again:")?;
    let before = stage.quotas();
    stage.power_on("tokyo").await?;
    let quotas = quotas_are(stage, MOVED, "tokyo's share is back", screen).await?;
    show(&quotas, Some(&before), screen)?;
    let ready = || is_connected(stage, "tokyo", "Ready");
    stage.until("tokyo counts as Ready", screen, ready, || status(stage, "tokyo")).await?;
    screen.found("its share is back, and nobody had to do anything")
}

/// Whether the kubelet of a node reports.
async fn report(cluster: &Cluster, reports: bool) -> Result<(), DemoError> {
    let status = json!({"conditions": objects::conditions(reports)});
    taken(cluster, cluster.set_status("Node", FAILING_NODE, status).await)
}

fn is_so(holds: bool, what: &str, found: impl Fn() -> String) -> Result<(), DemoError> {
    if holds { Ok(()) } else { Err(DemoError::Untrue { what: what.to_owned(), found: found() }) }
}

/// Waits until the quotas of all clusters are these.
async fn quotas_are(
    stage: &Stage,
    expected: &str,
    what: &str,
    screen: &mut Screen,
) -> Result<Quotas, DemoError> {
    let holds = || stage.quotas().are(expected);
    stage.until(what, screen, holds, || text(&stage.quotas())).await?;
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
fn is_connected(stage: &Stage, cluster: &str, word: &str) -> bool {
    claim(stage, cluster).is_some_and(|claim| {
        condition(&claim, "CapacityKnown").is_some_and(|known| match word {
            "Ready" => known["status"] == "True",
            _ => known["reason"] == word,
        })
    })
}
