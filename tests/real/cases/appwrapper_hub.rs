//! AppWrappers from the command line on the hub to real objects on the worker that runs them, and back.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::appwrapper_stage::{APPWRAPPER, Operator};
use super::stage::{GPU, SOON};
use super::task_stage::{Bed, LONG, SHORT, stage};
use crate::support::cluster::id as id_of;
use crate::support::fleet::Fleet;
use crate::support::wait::{Seen, eventually};

pub async fn appwrappers_go_from_the_hub_to_the_worker_that_runs_them(fleet: &Fleet) -> Result<()> {
    let (name, case) = ("appwrappers_go_from_the_hub_to_the_worker_that_runs_them", "aw-hub");
    let (one, two) = (fleet.worker1(), fleet.worker2());
    // A case before may have run a controller there, whose Lease says so for some minutes more.
    for lease in two.list("coordination.k8s.io/v1", "Lease", None).await? {
        let metadata = &lease["metadata"];
        let (Some(namespace), Some(name)) = (metadata["namespace"].as_str(), metadata["name"].as_str())
        else {
            continue;
        };
        if LEASES.contains(&name) {
            two.delete(id_of("coordination.k8s.io/v1", "Lease", name).within(namespace)).await?;
        }
    }
    let _running = Operator::Ours.start(fleet, one, name).await?;
    let stage = stage(fleet, name, case, "keepObjects: 20s").await?;
    let bed = Bed::set(&stage, ["8", "16"]).await?;
    let submit = |wrapper: &Value, more: &[&str]| -> Result<_> {
        let file = stage.daemon.home().file("appwrapper.yaml", &wrapper.to_string())?;
        let file = file.display().to_string();
        bed.person.runs(&[&["appwrapper", "submit", &file, "-o", "json"], more].concat())
    };
    let id = |told: String| -> Result<String> {
        let told: Value = serde_json::from_str(&told)?;
        Ok(told["id"].as_str().context("an id")?.to_owned())
    };

    let short = id(submit(&wrapper("short", (2, 1), SHORT), &[])?.success()?)?;
    let ended = bed.reaches(&short, "succeeded").await?;
    ensure!(
        ended["cluster"] == "one" && ended["kind"] == "appWrapper",
        "only there something runs them: {ended:#}"
    );
    ensure!(ended["nodes"]["succeeded"] == 2, "{ended:#}");

    let long = id(submit(&wrapper("long", (1, 8), LONG), &[])?.success()?)?;
    bed.reaches(&long, "running").await?;
    let there = bed.has(one, (APPWRAPPER, "AppWrapper"), &long).await?;
    ensure!(
        there.len() == 1 && there[0]["metadata"]["annotations"]["fedq.dev/owner"].is_string(),
        "{there:#?}"
    );
    ensure!(bed.has(two, (APPWRAPPER, "AppWrapper"), &long).await?.is_empty());
    let behind = id(submit(&wrapper("behind", (1, 1), SHORT), &[])?.success()?)?;
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

    let told = submit(&wrapper("elsewhere", (1, 1), SHORT), &["--cluster", "two"])?;
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
