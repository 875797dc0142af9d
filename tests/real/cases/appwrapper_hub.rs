//! AppWrappers from the command line on the hub to real objects on the worker that runs them, and back.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::appwrapper_stage::{APPWRAPPER, Operator};
use super::stage::{GPU, SOON, holds};
use super::task_stage::{Bed, LONG, SHORT, stage, staged};
use crate::support::cluster::{Cluster, id as id_of};
use crate::support::daemon::Ran;
use crate::support::fleet::Fleet;
use crate::support::wait::{Seen, eventually};

pub async fn appwrappers_go_from_the_hub_to_the_worker_that_runs_them(fleet: &Fleet) -> Result<()> {
    let (name, case) = ("appwrappers_go_from_the_hub_to_the_worker_that_runs_them", "aw-hub");
    let (one, two) = (fleet.worker1(), fleet.worker2());
    forget_leases(two).await?;
    let _running = Operator::Ours.start(fleet, one, name).await?;
    let stage = stage(fleet, name, case, "keepObjects: 20s").await?;
    let bed = Bed::set(&stage, ["8", "16"]).await?;

    let short = hand_in(&bed, &wrapper("short", (2, 1), SHORT))?;
    let ended = bed.reaches(&short, "succeeded").await?;
    ensure!(
        ended["cluster"] == "one" && ended["kind"] == "appWrapper",
        "only there something runs them: {ended:#}"
    );
    ensure!(ended["nodes"]["succeeded"] == 2, "{ended:#}");

    let long = hand_in(&bed, &wrapper("long", (1, 8), LONG))?;
    bed.reaches(&long, "running").await?;
    let there = bed.has(one, (APPWRAPPER, "AppWrapper"), &long).await?;
    ensure!(
        there.len() == 1 && there[0]["metadata"]["annotations"]["fedq.dev/owner"].is_string(),
        "{there:#?}"
    );
    ensure!(bed.has(two, (APPWRAPPER, "AppWrapper"), &long).await?.is_empty());
    let behind = hand_in(&bed, &wrapper("behind", (1, 1), SHORT))?;
    let queued = bed.reaches(&behind, "queued").await?;
    ensure!(queued["cluster"] == "one", "the other has room, and runs none: {queued:#}");
    bed.person.runs(&["appwrapper", "delete", &long])?.success()?;
    bed.reaches(&long, "stopped").await?;
    ensure!(
        bed.has(one, (APPWRAPPER, "AppWrapper"), &long).await?.is_empty(),
        "it is gone when that is said"
    );
    bed.is_gone(one, &long).await?;
    bed.reaches(&behind, "succeeded").await?;

    let told = submit(&bed, &wrapper("elsewhere", (1, 1), SHORT), &["--cluster", "two"])?;
    ensure!(told.code != 0 && told.stderr.contains("nothing runs AppWrappers there"), "{told:?}");
    eventually("each cluster to say who runs them", SOON, async || {
        let mut told = Vec::new();
        for cluster in ["one", "two"] {
            let shown = bed.person.runs(&["cluster", "show", cluster, "-o", "json"])?.success()?;
            told.push(serde_json::from_str::<Value>(&shown)?["appWrappers"].clone());
        }
        Ok(Seen::when(told == [json!("fedq"), json!("none")], || format!("{told:?}")))
    })
    .await
}

pub async fn multikueue_dispatches_appwrappers_and_they_are_found_where_they_land(
    fleet: &Fleet,
) -> Result<()> {
    let (name, case) = ("multikueue_dispatches_appwrappers_and_they_are_found_where_they_land", "aw-mk");
    let check = format!("  admissionChecksStrategy: {{admissionChecks: [{{name: {case}}}]}}");
    let stage = staged(fleet, name, case, ("keepObjects: 5s", &check)).await?;
    let _one = Operator::Ours.start(fleet, fleet.worker1(), &format!("{name}-one")).await?;
    let two = Operator::Ours.start(fleet, fleet.worker2(), &format!("{name}-two")).await?;
    super::bed::join(stage.hub(), case, fleet).await?;
    let names = [fleet.worker1(), fleet.worker2()].map(|worker| format!("{case}-{}", worker.name));
    let bed = Bed::set_as(&stage, names.clone(), ["4", "8"]).await?;
    holds(stage.hub(), case, case, &[(GPU, "12")]).await?;

    let long = hand_in(&bed, &wrapper("long", (2, 3), LONG))?;
    let running = bed.reaches(&long, "running").await?;
    ensure!(running["cluster"] == names[1].as_str(), "only there it fits: {running:#}");
    ensure!(running["nodes"]["running"] == 2, "its pods are seen where they are: {running:#}");
    let on_hub = bed.has(stage.hub(), (APPWRAPPER, "AppWrapper"), &long).await?;
    ensure!(
        on_hub.len() == 1 && on_hub[0]["spec"]["managedBy"] == "kueue.x-k8s.io/multikueue",
        "{on_hub:#?}"
    );
    let there = bed.has(fleet.worker2(), (APPWRAPPER, "AppWrapper"), &long).await?;
    ensure!(there.len() == 1 && there[0]["spec"]["managedBy"].is_null(), "{there:#?}");
    ensure!(bed.has(fleet.worker1(), (APPWRAPPER, "AppWrapper"), &long).await?.is_empty());

    let short = hand_in(&bed, &wrapper("short", (1, 4), SHORT))?;
    let ended = bed.reaches(&short, "succeeded").await?;
    ensure!(ended["nodes"]["succeeded"] == 1, "{ended:#}");
    bed.person.runs(&["appwrapper", "stop", &long, "--yes"])?.success()?;
    bed.reaches(&long, "stopped").await?;
    for cluster in [stage.hub(), fleet.worker1(), fleet.worker2()] {
        let left = bed.has(cluster, (APPWRAPPER, "AppWrapper"), &long).await?;
        ensure!(left.is_empty(), "it is gone when that is said: {left:#?}");
        bed.is_gone(cluster, &long).await?;
        bed.is_gone(cluster, &short).await?;
    }

    // Where one of the clusters that MultiKueue may choose runs none, nothing is sent into the void.
    drop(two);
    forget_leases(fleet.worker2()).await?;
    let says = eventually("the cluster without a controller to be named", SOON * 3, async || {
        let told = submit(&bed, &wrapper("void", (1, 1), SHORT), &[])?;
        Ok(Seen::when(told.code != 0, || told.stdout))
    });
    says.await?;
    let told = submit(&bed, &wrapper("void", (1, 1), SHORT), &[])?;
    let says = format!("may choose cluster {}: nothing runs AppWrappers there", names[1]);
    ensure!(told.stderr.contains(&says), "{told:?}");
    Ok(())
}

fn submit(bed: &Bed<'_, '_>, wrapper: &Value, more: &[&str]) -> Result<Ran> {
    let file = bed.stage.daemon.home().file("appwrapper.yaml", &wrapper.to_string())?;
    let file = file.display().to_string();
    bed.person.runs(&[&["appwrapper", "submit", &file, "-o", "json"], more].concat())
}

/// Its id.
fn hand_in(bed: &Bed<'_, '_>, wrapper: &Value) -> Result<String> {
    let told: Value = serde_json::from_str(&submit(bed, wrapper, &[])?.success()?)?;
    Ok(told["id"].as_str().context("an id")?.to_owned())
}

/// A controller that ran there before says so by its Lease for some minutes more.
async fn forget_leases(worker: &Cluster) -> Result<()> {
    for lease in worker.list("coordination.k8s.io/v1", "Lease", None).await? {
        let metadata = &lease["metadata"];
        let (Some(namespace), Some(name)) = (metadata["namespace"].as_str(), metadata["name"].as_str())
        else {
            continue;
        };
        if LEASES.contains(&name) {
            worker.delete(id_of("coordination.k8s.io/v1", "Lease", name).within(namespace)).await?;
        }
    }
    Ok(())
}

const LEASES: [&str; 2] = ["f134c674.codeflare.dev", "fedq-appwrapper"];

/// A Job of so many pods with so many GPUs each, which kwok ends after so long, beside a Service.
fn wrapper(name: &str, (pods, gpus): (u32, u32), runs: &str) -> Value {
    let delays =
        ["delay", "jitter-delay"].map(|key| (format!("pod-complete.stage.kwok.x-k8s.io/{key}"), json!(runs)));
    let annotations: serde_json::Map<String, Value> = delays.into_iter().collect();
    let container = json!({
        "name": "c", "image": "i",
        "resources": {"requests": {GPU: gpus.to_string()}, "limits": {GPU: gpus.to_string()}},
    });
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": {
            "metadata": {"annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"clusterIP": "None", "selector": {"job-name": name}},
    });
    json!({
        "apiVersion": APPWRAPPER, "kind": "AppWrapper", "metadata": {"name": name},
        "spec": {"components": [{"template": service}, {"template": job}]},
    })
}
