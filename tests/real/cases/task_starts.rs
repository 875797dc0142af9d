//! Tasks that have their quota and do not start: each says why in its cluster's words, and gives the quota back in time.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::stage::SOON;
use super::task_stage::{Bed, LONG, SHORT, stage};
use crate::support::cluster::{Cluster, Part, id as object};
use crate::support::fleet::Fleet;
use crate::support::wait::{Seen, eventually};

async fn says(bed: &Bed<'_, '_>, id: &str, words: &str) -> Result<Value> {
    eventually(&format!("task {id} to say `{words}`"), SOON * 2, async || {
        let status = bed.status(id)?;
        let told = status["pendingReason"].as_str().is_some_and(|reason| reason.contains(words));
        Ok(if told { Seen::Done(status) } else { Seen::Still(format!("{status:#}")) })
    })
    .await
}

/// `reason` of each event, with its message.
fn events(status: &Value) -> Vec<(String, String)> {
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let events = status["events"].as_array().into_iter().flatten();
    events.map(|event| (text(event, "reason"), text(event, "message"))).collect()
}

async fn few_pods(cluster: &Cluster, namespace: &str, pods: &str) -> Result<()> {
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": namespace},
        "spec": {"hard": {"pods": pods}},
    });
    cluster.apply_object("fedq-test", quota).await?;
    // The server goes by what its controller writes here, which does not run.
    let status = json!({"status": {"hard": {"pods": pods}, "used": {"pods": "0"}}});
    cluster.merge(object("v1", "ResourceQuota", "few").within(namespace), Part::Status, status).await
}

pub async fn what_does_not_start_says_why_and_goes_where_it_can(fleet: &Fleet) -> Result<()> {
    let case = "starts";
    let stage = stage(
        fleet,
        "what_does_not_start_says_why_and_goes_where_it_can",
        case,
        "startTimeout: 30s, gang: indexed",
    )
    .await?;
    // The first is preferred: more is free there.
    let bed = Bed::set(&stage, ["16", "8"]).await?;
    bed.both_fit().await?;
    let (one, two) = (fleet.worker1(), fleet.worker2());
    few_pods(one, case, "0").await?;

    let id = bed.submit((1, 1), SHORT)?;
    let told = says(&bed, &id, "exceeded quota: few").await?;
    ensure!(told["phase"] == "starting" && told["cluster"] == "one", "{told:#}");
    let ended = bed.reaches(&id, "succeeded").await?;
    ensure!(ended["cluster"] == "two" && ended["epoch"] == 2, "it went where it could: {ended:#}");
    let stuck = events(&ended).into_iter().find(|(reason, _)| reason == "Stuck");
    ensure!(
        stuck.as_ref().is_some_and(|(_, why)| why.contains("exceeded quota: few")),
        "{stuck:?} of {ended:#}"
    );
    one.delete(object("v1", "ResourceQuota", "few").within(case)).await?;

    // Of 16 on two nodes, 5 and 5 are taken: 6 are left, on no node of their own.
    let taken = [bed.submit((1, 5), LONG)?, bed.submit((1, 5), LONG)?];
    for id in &taken {
        let running = bed.reaches(id, "running").await?;
        ensure!(running["cluster"] == "one", "{running:#}");
    }
    let split = bed.hand_in(
        json!({"name": "split", "run": "x", "resources": {"accelerators": 6, "infra": "k8s/one"}}),
        &[("pod-complete", LONG)],
    )?;
    says(&bed, &split, "one has no node for a pod: 0/").await?;
    let waits = says(&bed, &split, "one did not start it and is tried again at").await?;
    ensure!(waits["phase"] == "pending" && waits["epoch"] == 1, "it has to be there, and waits: {waits:#}");
    bed.is_gone(one, &split).await?;
    pulls(&bed, two).await
}

/// kwok pulls no images: the pod says so by hand, as a kubelet does.
async fn pulls(bed: &Bed<'_, '_>, two: &Cluster) -> Result<()> {
    let id = bed.hand_in(
        json!({"name": "pulls", "run": "x", "resources": {"accelerators": 1, "infra": "k8s/two"}}),
        &[("pod-ready", LONG)],
    )?;
    bed.reaches(&id, "starting").await?;
    let pod = eventually("its pod", SOON, async || {
        let pods = bed.has(two, ("v1", "Pod"), &id).await?;
        let name = pods.first().and_then(|pod| pod["metadata"]["name"].as_str().map(str::to_owned));
        Ok(name.map_or(Seen::Still("none".to_owned()), Seen::Done))
    })
    .await?;
    let message = "Back-off pulling image \"nowhere/none\": not found";
    let status = json!({"status": {"containerStatuses": [{
        "name": "task", "image": "nowhere/none", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": message}},
    }]}});
    two.merge(object("v1", "Pod", &pod).within(bed.stage.case), Part::Status, status).await?;
    let told = says(bed, &id, message).await?;
    ensure!(told["pendingReason"].as_str().is_some_and(|why| why.contains("ImagePullBackOff: ")), "{told:#}");
    says(bed, &id, "two did not start it and is tried again at").await?;
    Ok(())
}
