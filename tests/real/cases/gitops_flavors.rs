//! Flavors that come and go in Git, and the other ways in which Argo CD and Flux can be told to leave quota alone.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::gitops::{
    ARGO_CD, CLUSTER, FLUX, QUEUE, TEAM_A, annotated, example, gpus, stage, still, team_a, told_to_sync,
    without_the_recipe,
};
use super::stage::{GPU, KUEUE, SOON, Stage, holds, nominal, same};
use crate::support::cluster::{Cluster, Part, id};
use crate::support::fleet::Fleet;
use crate::support::gitops::{Engine, Kind};
use crate::support::wait::{Seen, throughout};

const RESERVED: &str =
    "{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: reserved}}";
/// Flux does what it would do within a few of its looks.
const LOOKS: Duration = Duration::from_secs(6);

/// The queue in Git with these flavors in this order, all of them with nothing.
fn with_flavors(queue: &str, names: &[&str]) -> Result<String> {
    let mut queue: Value = serde_saphyr::from_str(queue)?;
    let flavors = &mut queue["spec"]["resourceGroups"][0]["flavors"];
    let resources = flavors[0]["resources"].clone();
    *flavors = names.iter().map(|name| json!({"name": name, "resources": resources})).collect();
    Ok(queue.to_string())
}

/// The queue in Git as one who leaves all of the quota to fedq has it.
fn without_groups(queue: &str) -> Result<String> {
    let mut queue: Value = serde_saphyr::from_str(queue)?;
    queue["spec"].as_object_mut().context("a spec")?.remove("resourceGroups").context("it had them")?;
    Ok(queue.to_string())
}

fn lower_priority(queue: &str) -> String {
    queue.replace("Never", "LowerPriority")
}

/// The claim in Git without what it gives of `spot`.
fn claim_without_spot() -> Result<String> {
    let text = fs::read_to_string(example().join("cluster1.yaml"))?;
    let mut claim: Value = serde_saphyr::from_str(&text)?;
    let assignments = claim["spec"]["resourceAssignments"].as_array_mut().context("assignments")?;
    assignments.retain(|one| one["flavor"] != "spot");
    Ok(claim.to_string())
}

/// Flux' recipe with a pointer to each of the three resources of the flavors at these places.
fn flux_for(places: &[usize]) -> Result<String> {
    let mut recipe: Value = serde_saphyr::from_str(FLUX)?;
    let pointer = |flavor: usize, resource: usize| {
        json!(format!("/spec/resourceGroups/0/flavors/{flavor}/resources/{resource}/nominalQuota"))
    };
    recipe["spec"]["ignore"][0]["paths"] =
        places.iter().flat_map(|flavor| (0..3).map(move |resource| pointer(*flavor, resource))).collect();
    Ok(recipe.to_string())
}

fn flavors_of(queue: &Value) -> Vec<&str> {
    let flavors = queue["spec"]["resourceGroups"][0]["flavors"].as_array();
    flavors.into_iter().flatten().filter_map(|flavor| flavor["name"].as_str()).collect()
}

/// The hub's queue has these flavors, and of those that claims name what they give.
async fn has(hub: &Cluster, flavors: &[&str]) -> Result<()> {
    let want = |flavor: &str| match flavor {
        "on-demand" => "8",
        "spot" => "4",
        _ => "0",
    };
    let is = |queue: &Value| {
        let amount = |flavor: &&str| nominal(queue, flavor, GPU).is_some_and(|has| same(&has, want(flavor)));
        flavors_of(queue) == flavors && flavors.iter().all(amount)
    };
    hub.wait(id(KUEUE, "ClusterQueue", TEAM_A), &format!("quota of {flavors:?}"), SOON, is).await?;
    Ok(())
}

async fn given(stage: &Stage<'_>, engine: &Engine<'_>) -> Result<()> {
    engine.push_all(&example()).await?;
    for cluster in [stage.fleet.worker1(), stage.hub()] {
        gpus(cluster, "8", "4").await.context("what the claim in Git gives")?;
    }
    stage.claim_says(CLUSTER, "Ready", "True", "Ready").await?;
    Ok(())
}

/// Neither has Git a number then, nor does any program need a rule.
async fn leaves_all_of_it_to_fedq(stage: &Stage<'_>, engine: &Engine<'_>, queue: &str) -> Result<()> {
    let hub = stage.hub();
    engine.commit("team-a.yaml", Some(queue)).await.context("a queue without resourceGroups")?;
    has(hub, &["on-demand"]).await?;
    engine.commit("team-a.yaml", Some(&lower_priority(queue))).await.context("a change of it")?;
    let there = team_a(hub).await?;
    ensure!(there["spec"]["preemption"]["withinClusterQueue"] == "LowerPriority", "{}", there["spec"]);
    has(hub, &["on-demand"]).await?;
    still(stage, engine, "with a queue without resourceGroups in Git").await
}

async fn takes_the_queue_out(stage: &Stage<'_>, engine: &Engine<'_>) -> Result<()> {
    engine.commit("team-a.yaml", None).await.context("the queue is taken out of Git")?;
    stage.hub().wait_gone(id(KUEUE, "ClusterQueue", TEAM_A), SOON).await
}

pub async fn argo_cd_applies_on_the_server_and_takes_flavors_in_and_out(fleet: &Fleet) -> Result<()> {
    let name = "argo_cd_applies_on_the_server_and_takes_flavors_in_and_out";
    let stage = stage(fleet, name, "argoflavors").await?;
    let mut recipe: Value = serde_saphyr::from_str(ARGO_CD)?;
    let options = recipe["spec"]["syncPolicy"]["syncOptions"].as_array_mut().context("sync options")?;
    options.push(json!("ServerSideApply=true"));
    let engine = Engine::start(fleet, name, Kind::ArgoCd, &recipe.to_string()).await?;
    let ran = argo_cd(&stage, &engine).await;
    ran.with_context(|| engine.log_tail())
}

async fn argo_cd(stage: &Stage<'_>, engine: &Engine<'_>) -> Result<()> {
    let hub = stage.hub();
    given(stage, engine).await?;
    engine.commit("team-a.yaml", Some(&lower_priority(QUEUE))).await.context("a change of another field")?;
    let queue = team_a(hub).await?;
    ensure!(queue["spec"]["preemption"]["withinClusterQueue"] == "LowerPriority", "{}", queue["spec"]);
    has(hub, &["on-demand", "spot"]).await.context("applied on the server it takes no quota")?;
    let entries = queue["metadata"]["managedFields"].as_array().context("managers")?.clone();
    let applies = |entry: &Value| entry["manager"] == engine.kind.manager() && entry["operation"] == "Apply";
    ensure!(entries.iter().any(applies), "it is not applied on the server: {entries:?}");
    still(stage, engine, "applied on the server").await?;

    engine.commit("reserved.yaml", Some(RESERVED)).await?;
    let more = with_flavors(QUEUE, &["reserved", "on-demand", "spot"])?;
    engine.push("team-a.yaml", Some(&more)).await?;
    engine.says("OutOfSync").await?;
    told_to_sync(hub, |queue| flavors_of(queue) == ["reserved", "on-demand", "spot"]).await?;
    has(hub, &["reserved", "on-demand", "spot"]).await.context("each flavor has its own")?;
    engine.applied().await.context("a flavor more, before the others")?;

    engine.commit("cluster1.yaml", Some(&claim_without_spot()?)).await?;
    holds(hub, TEAM_A, "spot", &[(GPU, "0")]).await?;
    engine.push("team-a.yaml", Some(&with_flavors(QUEUE, &["reserved", "on-demand"])?)).await?;
    engine.says("OutOfSync").await?;
    told_to_sync(hub, |queue| flavors_of(queue) == ["reserved", "on-demand"]).await?;
    has(hub, &["reserved", "on-demand"]).await?;
    still(stage, engine, "after a flavor came and one went").await?;

    takes_the_queue_out(stage, engine).await?;
    engine.configure(&without_the_recipe(Kind::ArgoCd)?).await?;
    leaves_all_of_it_to_fedq(stage, engine, &without_groups(QUEUE)?).await
}

pub async fn flux_takes_flavors_in_and_out_and_heeds_its_annotations(fleet: &Fleet) -> Result<()> {
    let name = "flux_takes_flavors_in_and_out_and_heeds_its_annotations";
    let stage = stage(fleet, name, "fluxflavors").await?;
    let engine = Engine::start(fleet, name, Kind::Flux, FLUX).await?;
    let ran = flux(&stage, &engine).await;
    ran.with_context(|| engine.log_tail())
}

async fn flux(stage: &Stage<'_>, engine: &Engine<'_>) -> Result<()> {
    given(stage, engine).await?;
    by_place(stage, engine).await?;
    made_once(stage, engine).await?;
    takes_the_queue_out(stage, engine).await.context("what it made once is its own all the same")?;
    leaves_all_of_it_to_fedq(stage, engine, &without_groups(&annotated(QUEUE, "Merge"))?).await?;
    ignored(stage, engine).await
}

/// As docs/gitops.md has it: the pointers go in the commit that inserts or removes, and come back for the new places.
async fn by_place(stage: &Stage<'_>, engine: &Engine<'_>) -> Result<()> {
    let hub = stage.hub();
    engine.commit("reserved.yaml", Some(RESERVED)).await?;
    // It looks after ten minutes, as people's does: after each of its writes fedq's numbers are back long before the next.
    engine.configure_to_look(&without_the_recipe(Kind::Flux)?, "10m").await?;
    let more = with_flavors(QUEUE, &["reserved", "on-demand", "spot"])?;
    engine.commit("team-a.yaml", Some(&more)).await?;
    has(hub, &["reserved", "on-demand", "spot"]).await.context("each flavor has its own")?;
    engine.configure(&flux_for(&[1, 2])?).await?;
    engine.applied().await?;
    has(hub, &["reserved", "on-demand", "spot"]).await.context("a flavor more, before the others")?;

    engine.commit("cluster1.yaml", Some(&claim_without_spot()?)).await?;
    holds(hub, TEAM_A, "spot", &[(GPU, "0")]).await?;
    engine.configure_to_look(&without_the_recipe(Kind::Flux)?, "10m").await?;
    engine.commit("team-a.yaml", Some(&with_flavors(QUEUE, &["reserved", "on-demand"])?)).await?;
    has(hub, &["reserved", "on-demand"]).await?;
    engine.configure(&flux_for(&[1])?).await?;
    engine.applied().await?;
    has(hub, &["reserved", "on-demand"]).await?;
    still(stage, engine, "after a flavor came and one went").await
}

/// What an older Flux, which has no `ignore`, is told.
async fn made_once(stage: &Stage<'_>, engine: &Engine<'_>) -> Result<()> {
    let hub = stage.hub();
    let once = with_flavors(&lower_priority(&annotated(QUEUE, "IfNotPresent")), &["on-demand"])?;
    engine.commit("team-a.yaml", Some(&once)).await?;
    engine.configure(&without_the_recipe(Kind::Flux)?).await?;
    still(stage, engine, "with a queue that is made once").await?;
    let queue = team_a(hub).await?;
    ensure!(
        queue["spec"]["preemption"]["withinClusterQueue"] == "Never",
        "it was written: {}",
        queue["spec"]
    );
    has(hub, &["reserved", "on-demand"]).await?;

    hub.delete(id(KUEUE, "ClusterQueue", TEAM_A)).await?;
    let anew = |queue: &Value| queue["spec"]["preemption"]["withinClusterQueue"] == "LowerPriority";
    hub.wait(id(KUEUE, "ClusterQueue", TEAM_A), "made anew from Git", SOON, anew).await?;
    has(hub, &["on-demand"]).await.context("it gets its quota again")?;
    still(stage, engine, "with a queue that was made anew").await
}

/// On the object that is there, by whoever has to stop Flux at once.
async fn ignored(stage: &Stage<'_>, engine: &Engine<'_>) -> Result<()> {
    let hub = stage.hub();
    let annotation = json!({"metadata": {"annotations": {"kustomize.toolkit.fluxcd.io/ssa": "Ignore"}}});
    hub.merge(id(KUEUE, "ClusterQueue", TEAM_A), Part::Whole, annotation).await?;
    engine.commit("team-a.yaml", Some(QUEUE)).await.context("what it has to ignore")?;
    throughout("Flux writes nothing into it", LOOKS, async || {
        let queue = team_a(hub).await?;
        let kept = queue["spec"]["preemption"]["withinClusterQueue"] == "LowerPriority"
            && nominal(&queue, "on-demand", GPU).is_some_and(|has| same(&has, "8"));
        Ok(Seen::when(kept, || queue["spec"].to_string()))
    })
    .await
}
