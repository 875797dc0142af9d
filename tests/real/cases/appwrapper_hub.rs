//! AppWrappers from the command line on the hub to real objects on the worker that runs them, and back.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::appwrapper_stage::{APPWRAPPER, Operator, kept_running};
use super::stage::{GPU, SOON, holds};
use super::task_stage::{Bed, LONG, SHORT, stage, staged};
use crate::support::cluster::{Cluster, id as id_of};
use crate::support::daemon::{Daemon, Ran};
use crate::support::fleet::Fleet;
use crate::support::wait::{Seen, eventually};

pub async fn appwrappers_go_from_the_hub_to_the_worker_that_runs_them(fleet: &Fleet) -> Result<()> {
    let name = "appwrappers_go_from_the_hub_to_the_worker_that_runs_them";
    from_the_hub(fleet, name, "aw-hub", Operator::Ours).await
}

pub async fn appwrappers_go_from_the_hub_to_the_worker_of_upstreams(fleet: &Fleet) -> Result<()> {
    let name = "appwrappers_go_from_the_hub_to_the_worker_of_upstreams";
    from_the_hub(fleet, name, "aw-hub-upstream", Operator::Upstreams).await
}

async fn from_the_hub(fleet: &Fleet, name: &str, case: &'static str, operator: Operator) -> Result<()> {
    let (one, two) = (fleet.worker1(), fleet.worker2());
    let stage = stage(fleet, name, case, "keepObjects: 20s, unwrapJobs: true").await?;
    forget_leases(fleet).await?;
    let _running = operator.start(fleet, one, name).await?;
    let bed = Bed::set(&stage, ["8", "16"]).await?;
    each_says_who_runs_them(&bed, [("one", Some(operator)), ("two", None)]).await?;

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
    tells_what_its_pods_wrote(&bed, &long, 1)?;
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
    task_as_appwrapper(&bed, one).await.context("a task that is made as an AppWrapper")?;
    let told = submit(&bed, &of_a_job(wrapper("alone", (2, 1), SHORT))?, &["--cluster", "two", "--unwrap"])?;
    let alone = id_in(&told.success()?)?;
    let ended = bed.reaches(&alone, "succeeded").await?;
    ensure!(ended["gang"] == "unwrapped" && ended["nodes"]["succeeded"] == 2, "{ended:#}");
    ensure!(bed.has(two, ("batch/v1", "Job"), &alone).await?.len() == 1);
    Ok(())
}

/// To whoever looks at a cluster, and to whoever has it checked.
async fn each_says_who_runs_them(bed: &Bed<'_, '_>, clusters: [(&str, Option<Operator>); 2]) -> Result<()> {
    for (cluster, operator) in clusters {
        let (word, words) = match operator {
            Some(Operator::Ours) => ("fedq", "fedq-appwrapper runs them (fedq)"),
            Some(Operator::Upstreams) => ("upstream", "the AppWrapper operator runs them (upstream)"),
            None => ("none", "nothing runs AppWrappers there"),
        };
        // A cluster where nothing ran them when it was asked is asked again after a minute.
        eventually(&format!("{cluster} to say who runs them"), SOON * 2, async || {
            let shown = bed.person.runs(&["cluster", "show", cluster, "-o", "json"])?.success()?;
            let shown = serde_json::from_str::<Value>(&shown)?["appWrappers"].clone();
            Ok(Seen::when(shown == word, || shown.to_string()))
        })
        .await?;
        let told = bed.person.runs(&["check", cluster])?;
        ensure!(told.stdout.contains(words), "{told:?}");
    }
    Ok(())
}

fn tells_what_its_pods_wrote(bed: &Bed<'_, '_>, id: &str, pods: usize) -> Result<()> {
    let told = bed.person.runs(&["appwrapper", "logs", id, "--no-follow"])?;
    let lines = told.stdout.lines().filter(|line| line.ends_with("hello from kwok")).count();
    // The code of one that runs on.
    ensure!(told.code == 101 && lines == pods, "of {pods} pods: {told:?}");
    Ok(())
}

/// Its Job within, its Service and its Secret beside the AppWrapper, and all of it gone with that.
async fn task_as_appwrapper(bed: &Bed<'_, '_>, one: &Cluster) -> Result<()> {
    let task = json!({
        "name": "gang", "run": "torchrun train.py", "num_nodes": 2, "resources": {"accelerators": 1},
        "secrets": {"TOKEN": "hush"}, "config": {"fedq": {"as_app_wrapper": true}},
    });
    let id = bed.hand_in(task, &[("pod-complete", SHORT)])?;
    let running = bed.reaches(&id, "running").await?;
    ensure!(running["gang"] == "appWrapper" && running["kind"] == "task", "{running:#}");
    let wrapper = bed.has(one, (APPWRAPPER, "AppWrapper"), &id).await?;
    let uid = &wrapper[0]["metadata"]["uid"];
    for kind in ["Service", "Secret"] {
        let beside = bed.has(one, ("v1", kind), &id).await?;
        ensure!(
            beside.len() == 1 && beside[0]["metadata"]["ownerReferences"][0]["uid"] == *uid,
            "{beside:#?}"
        );
    }
    let ended = bed.reaches(&id, "succeeded").await?;
    ensure!(ended["nodes"]["succeeded"] == 2 && ended["epoch"] == 1, "{ended:#}");
    bed.is_gone(one, &id).await
}

/// fedqd killed around each request that is an AppWrapper's own, and the API server in the middle of several: each
/// component exists once, and nothing is left.
pub async fn killed_or_cut_off_while_it_hands_over_each_component_exists_once(fleet: &Fleet) -> Result<()> {
    let (name, case) = ("killed_or_cut_off_while_it_hands_over_each_component_exists_once", "aw-cut");
    let one = fleet.worker1();
    // The stage takes away what is left of AppWrappers, webhooks too, without which the operator would not start anew.
    let stage = stage(fleet, name, case, "").await?;
    forget_leases(fleet).await?;
    let mut running = Operator::Ours.start(fleet, one, name).await?;
    let bed = Bed::set(&stage, ["8", "4"]).await?;
    // What is wrapped has a name of its own each time: that of the last is there for a while.
    for (name, at) in
        [("killed-a", "before:create appwrappers:1"), ("killed-b", "after:create appwrappers:1")]
    {
        let known = bed.all()?;
        stage.daemon.kill()?;
        stage.daemon.restart_with(&[("FEDQ_ABORT_AT", at)]).await?;
        // It may end before the answer has arrived.
        let told = submit(&bed, &wrapper(name, (2, 1), SHORT), &[]);
        ends_and_starts_anew(&stage.daemon).await.context(at)?;
        let new: Vec<String> = bed.all()?.into_iter().filter(|id| !known.contains(id)).collect();
        ensure!(new.len() == 1, "{at}: {new:?}, {told:?}");
        let ended = bed.reaches(&new[0], "succeeded").await.context(at)?;
        ensure!(ended["epoch"] == 1, "{at}: {ended:#}");
        made_once(&bed, one, &new[0]).await.context(at)?;
    }
    for (name, at) in
        [("stopped-a", "before:delete appwrappers:1"), ("stopped-b", "after:delete appwrappers:1")]
    {
        let id = hand_in(&bed, &wrapper(name, (2, 1), LONG))?;
        bed.reaches(&id, "running").await?;
        stage.daemon.kill()?;
        stage.daemon.restart_with(&[("FEDQ_ABORT_AT", at)]).await?;
        bed.person.runs(&["appwrapper", "delete", &id, "--no-wait"])?;
        ends_and_starts_anew(&stage.daemon).await.context(at)?;
        bed.reaches(&id, "stopped").await.context(at)?;
        let left = bed.has(one, (APPWRAPPER, "AppWrapper"), &id).await?;
        ensure!(left.is_empty(), "{at}: it is gone when that is said: {left:#?}");
        bed.is_gone(one, &id).await.context(at)?;
    }

    let cut_off = async {
        let ids = (0..6).map(|number| hand_in(&bed, &wrapper(&format!("cut-{number}"), (1, 1), SHORT)));
        let ids: Vec<String> = ids.collect::<Result<_>>()?;
        one.plane.kill_api_server()?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        one.plane.restart_api_server().await?;
        for id in &ids {
            let ended = bed.reaches(id, "succeeded").await?;
            ensure!(ended["epoch"] == 1, "{ended:#}");
            made_once(&bed, one, id).await?;
        }
        Ok(())
    };
    kept_running(&mut running, fleet, cut_off).await
}

async fn ends_and_starts_anew(daemon: &Daemon) -> Result<()> {
    eventually("fedqd to end itself", SOON, async || {
        Ok(Seen::when(daemon.has_ended()?, || "it still runs".to_owned()))
    })
    .await?;
    daemon.restart().await
}

/// It is there until its time is over (`keepObjects`).
async fn made_once(bed: &Bed<'_, '_>, worker: &Cluster, id: &str) -> Result<()> {
    let (wrappers, pods) =
        (bed.has(worker, (APPWRAPPER, "AppWrapper"), id).await?, bed.has(worker, ("v1", "Pod"), id).await?);
    let nodes = bed.status(id)?["numNodes"].as_u64();
    ensure!(wrappers.len() == 1 && nodes == u64::try_from(pods.len()).ok(), "{wrappers:#?} {pods:#?}");
    Ok(())
}

/// One worker has our controller, the other upstream's.
pub async fn multikueue_dispatches_appwrappers_and_they_are_found_where_they_land(
    fleet: &Fleet,
) -> Result<()> {
    let (name, case) = ("multikueue_dispatches_appwrappers_and_they_are_found_where_they_land", "aw-mk");
    let check = format!("  admissionChecksStrategy: {{admissionChecks: [{{name: {case}}}]}}");
    let stage = staged(fleet, name, case, ("keepObjects: 5s", &check)).await?;
    forget_leases(fleet).await?;
    let _one = Operator::Ours.start(fleet, fleet.worker1(), &format!("{name}-one")).await?;
    let two = Operator::Upstreams.start(fleet, fleet.worker2(), &format!("{name}-two")).await?;
    super::bed::join(stage.hub(), case, fleet).await?;
    let names = [fleet.worker1(), fleet.worker2()].map(|worker| format!("{case}-{}", worker.name));
    let bed = Bed::set_as(&stage, names.clone(), ["4", "8"]).await?;
    holds(stage.hub(), case, case, &[(GPU, "12")]).await?;
    let both = [(names[0].as_str(), Some(Operator::Ours)), (names[1].as_str(), Some(Operator::Upstreams))];
    each_says_who_runs_them(&bed, both).await?;

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
    tells_what_its_pods_wrote(&bed, &long, 2)?;

    let short = hand_in(&bed, &wrapper("short", (1, 4), SHORT))?;
    let ended = bed.reaches(&short, "succeeded").await?;
    ensure!(ended["nodes"]["succeeded"] == 1 && ended["cluster"] == names[0].as_str(), "{ended:#}");
    bed.person.runs(&["appwrapper", "stop", &long, "--yes"])?.success()?;
    bed.reaches(&long, "stopped").await?;
    let direct = submit(&bed, &wrapper("direct", (1, 8), SHORT), &["--cluster", &names[1]])?;
    let direct = id_in(&direct.success()?)?;
    let ended = bed.reaches(&direct, "succeeded").await?;
    ensure!(ended["cluster"] == names[1].as_str(), "{ended:#}");
    for cluster in [stage.hub(), fleet.worker1(), fleet.worker2()] {
        let left = bed.has(cluster, (APPWRAPPER, "AppWrapper"), &long).await?;
        ensure!(left.is_empty(), "it is gone when that is said: {left:#?}");
        bed.is_gone(cluster, &long).await?;
        bed.is_gone(cluster, &short).await?;
        bed.is_gone(cluster, &direct).await?;
    }

    // Where one of the clusters that MultiKueue may choose runs none, nothing is sent into the void.
    drop(two);
    forget_leases_of(fleet.worker2()).await?;
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

pub fn hand_in(bed: &Bed<'_, '_>, wrapper: &Value) -> Result<String> {
    id_in(&submit(bed, wrapper, &[])?.success()?)
}

fn id_in(told: &str) -> Result<String> {
    let told: Value = serde_json::from_str(told)?;
    Ok(told["id"].as_str().context("an id")?.to_owned())
}

/// Without its Service.
fn of_a_job(mut wrapper: Value) -> Result<Value> {
    wrapper["spec"]["components"].as_array_mut().context("components")?.remove(0);
    Ok(wrapper)
}

/// A controller that ran there before says so by its Lease for some minutes more.
pub async fn forget_leases(fleet: &Fleet) -> Result<()> {
    for worker in &fleet.workers {
        forget_leases_of(worker).await?;
    }
    Ok(())
}

async fn forget_leases_of(worker: &Cluster) -> Result<()> {
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
pub fn wrapper(name: &str, (pods, gpus): (u32, u32), runs: &str) -> Value {
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
