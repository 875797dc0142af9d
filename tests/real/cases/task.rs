//! Tasks from the command line to real Jobs under real Kueue, and back.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::stage::{GPU, KUEUE, SOON, holds};
use super::task_stage::{Bed, LONG, SHORT, give, stage, staged};
use crate::support::cluster::{Cluster, id as object};
use crate::support::fleet::Fleet;
use crate::support::wait::{Seen, eventually};

pub async fn tasks_run_wait_move_and_stop_across_clusters(fleet: &Fleet) -> Result<()> {
    let case = "tasks";
    let more = "spillAfter: 3s, gang: indexed, keepObjects: 20s";
    let stage = stage(fleet, "tasks_run_wait_move_and_stop_across_clusters", case, more).await?;
    let bed = Bed::set(&stage, ["8", "4"]).await?;
    let (one, two) = (fleet.worker1(), fleet.worker2());

    let first = bed.submit((1, 6), LONG)?;
    let running = bed.reaches(&first, "running").await?;
    ensure!(running["cluster"] == "one", "only there it fits: {running:#}");
    // Of the 8 there, 2 are left.
    let gang = bed.submit((4, 1), SHORT)?;
    let ended = bed.reaches(&gang, "succeeded").await?;
    ensure!(ended["cluster"] == "two", "the full queue sends it to the other: {ended:#}");
    ensure!(ended["nodes"]["succeeded"] == 4, "{ended:#}");
    ensure!(bed.has(two, (KUEUE, "Workload"), &gang).await?.len() == 1, "one Workload for four nodes");
    let pods = bed.has(two, ("v1", "Pod"), &gang).await?;
    ensure!(pods.len() == 4, "{} pods", pods.len());

    // 6 on two nodes: 2 are free on one, and two can never hold more than 4.
    let waits = bed.submit_bringing((2, 3), LONG)?;
    let queued = eventually("Kueue's word on what is missing", SOON, async || {
        let status = bed.reaches(&waits, "queued").await?;
        let told = status["pendingReason"].as_str().is_some_and(|reason| reason.contains("quota on one: "));
        Ok(if told { Seen::Done(status) } else { Seen::Still(format!("{status:#}")) })
    })
    .await?;
    ensure!(queued["cluster"] == "one", "{queued:#}");
    ensure!(bed.has(one, ("v1", "Pod"), &waits).await?.is_empty(), "all of it or nothing");
    give(&stage, "two", "8").await?;
    let moved = bed.reaches(&waits, "running").await?;
    ensure!(moved["cluster"] == "two" && moved["epoch"] == 2, "{moved:#}");
    bed.is_gone(one, &waits).await?;
    bed.has_files(two, &waits).await?;

    let behind = bed.submit((1, 8), LONG)?;
    bed.reaches(&behind, "queued").await?;
    for id in [&behind, &waits, &first] {
        bed.person.runs(&["task", "stop", id, "--yes"])?.success()?;
        bed.reaches(id, "stopped").await?;
        bed.is_gone(one, id).await?;
        bed.is_gone(two, id).await?;
    }
    // While a cluster has not been looked at, it might have room, and the task is accepted to wait.
    eventually("a task that fits nowhere to be refused", SOON, async || {
        let told =
            bed.person.runs(&["task", "submit", "--detach", "--gpus", "9", "--image", "x", "--", "true"])?;
        let refused = told.code != 0 && told.stderr.contains("at most 8");
        Ok(Seen::when(refused, || format!("{told:?}")))
    })
    .await?;
    // What is over goes after a while, and what people know of it stays.
    bed.is_gone(two, &gang).await?;
    ensure!(bed.status(&gang)?["phase"] == "succeeded");
    Ok(())
}

pub async fn a_job_set_is_admitted_as_one_or_not_at_all(fleet: &Fleet) -> Result<()> {
    let case = "job-sets";
    let stage = stage(fleet, "a_job_set_is_admitted_as_one_or_not_at_all", case, "gang: auto").await?;
    let bed = Bed::set(&stage, ["8", "4"]).await?;
    let one = fleet.worker1();
    let id = bed.submit((3, 2), LONG)?;
    let running = bed.reaches(&id, "running").await?;
    ensure!(running["gang"] == "jobSet" && running["cluster"] == "one", "{running:#}");
    ensure!(running["nodes"]["running"] == 3, "a pod for each rank: {running:#}");
    let jobs = bed.has(one, ("batch/v1", "Job"), &id).await?;
    let mut names: Vec<&str> = jobs.iter().filter_map(|job| job["metadata"]["name"].as_str()).collect();
    names.sort_unstable();
    let expected = [0, 1, 2].map(|rank| format!("train-{id}-node-{rank}"));
    ensure!(names == expected, "named as k8s-cli names them: {names:?}");
    let workloads = bed.has(one, (KUEUE, "Workload"), &id).await?;
    ensure!(workloads.len() == 1, "{workloads:?}");
    ensure!(workloads[0]["spec"]["podSets"][0]["count"] == 3, "all three nodes: {:#}", workloads[0]);
    let second = bed.submit((3, 2), LONG)?;
    let queued = bed.reaches(&second, "queued").await?;
    ensure!(queued["cluster"] == "one", "two can never hold it: {queued:#}");
    let suspended = bed.has(one, ("jobset.x-k8s.io/v1alpha2", "JobSet"), &second).await?;
    ensure!(suspended[0]["spec"]["suspend"] == true, "none of it: {:#}", suspended[0]);
    ensure!(bed.has(one, ("v1", "Pod"), &second).await?.is_empty(), "2 of 8 are free, and all of it takes 6");
    bed.person.runs(&["task", "stop", &id, "--yes"])?.success()?;
    bed.is_gone(one, &id).await?;
    bed.reaches(&second, "running").await?;
    bed.person.runs(&["task", "stop", &second, "--yes"])?.success()?;
    bed.is_gone(one, &second).await?;
    let short = bed.submit((3, 1), SHORT)?;
    let ended = bed.reaches(&short, "succeeded").await?;
    ensure!(ended["gang"] == "jobSet" && ended["nodes"]["succeeded"] == 3, "{ended:#}");
    Ok(())
}

/// Disks that somebody made by hand, since nothing here makes any.
pub async fn a_task_goes_where_its_volume_is_and_holds_it(fleet: &Fleet) -> Result<()> {
    let case = "volumes";
    let stage = stage(fleet, "a_task_goes_where_its_volume_is_and_holds_it", case, "gang: indexed").await?;
    // fedqd gives the namespaces that it makes on the workers the level of the hub's: Pod Security lets no other have what the last
    // task of this case asks for.
    let level = "{pod-security.kubernetes.io/enforce: privileged}";
    stage
        .hub()
        .apply(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {case}, labels: {level}}}\n"))
        .await?;
    let bed = Bed::set(&stage, ["8", "4"]).await?;
    let two = fleet.worker2();
    two.apply(&format!(
        "
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {case}-disk}}
spec:
  storageClassName: {case}
  capacity: {{storage: 5Gi}}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  hostPath: {{path: /nowhere}}
"
    ))
    .await?;
    let made = ["volume", "create", "data", "1Gi", "--storage-class", case, "--cluster", "two"];
    bed.person.runs(&made)?.success()?;
    let bound = async |phase: &str| {
        eventually(&format!("the volume to be {phase}"), SOON, async || {
            let told = bed.person.runs(&["volume", "show", "data", "-o", "json"])?.success()?;
            let volume: Value = serde_json::from_str(&told)?;
            Ok(Seen::when(volume["state"] == phase, || format!("{volume:#}")))
        })
        .await
    };
    bound("Bound").await?;
    let claims = two.list("v1", "PersistentVolumeClaim", Some(case)).await?;
    ensure!(claims.len() == 1 && claims[0]["spec"]["volumeName"] == format!("{case}-disk"), "{claims:#?}");
    ensure!(fleet.worker1().list("v1", "PersistentVolumeClaim", Some(case)).await?.is_empty());

    let file = |nodes: u32| {
        let task = json!({
            "run": "x", "num_nodes": nodes, "resources": {"accelerators": 1}, "volumes": {"/data": "data"},
            "config": {"kubernetes": {"custom_metadata": {"annotations": {
                "pod-complete.stage.kwok.x-k8s.io/delay": LONG, "pod-complete.stage.kwok.x-k8s.io/jitter-delay": LONG,
            }}}},
        });
        Ok::<_, anyhow::Error>(
            stage.daemon.home().file("task.yaml", &task.to_string())?.display().to_string(),
        )
    };
    let several = bed.person.runs(&["task", "submit", &file(2)?, "--detach"])?;
    ensure!(several.code == 1 && several.stderr.contains("ReadWriteMany"), "{several:?}");
    let name = bed.person.runs(&["task", "submit", &file(1)?, "-o", "name"])?.success()?;
    let id = name.trim().strip_prefix("task/").context("an id")?.to_owned();
    let running = bed.reaches(&id, "running").await?;
    ensure!(running["cluster"] == "two", "one has more room, and not the volume: {running:#}");
    let pods = bed.has(two, ("v1", "Pod"), &id).await?;
    let claim = &claims[0]["metadata"]["name"];
    ensure!(&pods[0]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim, "{pods:#?}");

    let used = bed.person.runs(&["volume", "delete", "data", "--force"])?;
    ensure!(used.code == 1 && used.stderr.contains(&id), "{used:?}");
    bed.person.runs(&["task", "stop", &id, "--yes"])?.success()?;
    bed.is_gone(two, &id).await?;
    bed.person.runs(&["volume", "delete", "data", "--force"])?.success()?;
    eventually("the claim to be gone", SOON, async || {
        let left = two.list("v1", "PersistentVolumeClaim", Some(case)).await?;
        Ok(Seen::when(left.is_empty(), || format!("{left:?}")))
    })
    .await?;
    two.delete(object("v1", "PersistentVolume", &format!("{case}-disk"))).await?;
    adopts_a_claim(&bed, two).await
}

/// One that somebody made there, bound to a disk of theirs.
async fn adopts_a_claim(bed: &Bed<'_, '_>, two: &Cluster) -> Result<()> {
    let case = bed.stage.case;
    two.apply(&format!(
        "
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {case}-datasets}}
spec:
  storageClassName: {case}-by-hand
  capacity: {{storage: 5Gi}}
  accessModes: [ReadWriteMany]
  persistentVolumeReclaimPolicy: Retain
  hostPath: {{path: /nowhere}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: datasets, namespace: {case}}}
spec:
  storageClassName: {case}-by-hand
  accessModes: [ReadWriteMany]
  resources: {{requests: {{storage: 1Gi}}}}
"
    ))
    .await?;
    eventually("the claim to be bound", SOON, async || {
        let claims = two.list("v1", "PersistentVolumeClaim", Some(case)).await?;
        Ok(Seen::when(claims.iter().all(|one| one["status"]["phase"] == "Bound"), || format!("{claims:#?}")))
    })
    .await?;
    let adopt = ["volume", "adopt", "held", "--claim", "datasets", "--read-only", "--cluster"];
    let missing = bed.person.runs(&[&adopt[..], &["one"]].concat())?;
    let why = format!("there is no PersistentVolumeClaim `datasets` in namespace `{case}` of cluster `one`");
    ensure!(missing.code == 1 && missing.stderr.contains(&why), "{missing:?}");
    let adopted = bed.person.runs(&[&adopt[..], &["two", "-o", "json"]].concat())?.success()?;
    let adopted: Value = serde_json::from_str(&adopted)?;
    // Of the disk, which is more than the claim asked for.
    ensure!(adopted["size"] == "5Gi" && adopted["accessModes"] == json!(["ReadWriteMany"]), "{adopted:#}");

    // Beside it, what a fast network takes.
    let locks = json!({"capabilities": {"add": ["IPC_LOCK"]}});
    let pod = json!({"spec": {"hostNetwork": true, "containers": [{"securityContext": locks}]}});
    let task = json!({
        "name": "train", "run": "x", "num_nodes": 2, "resources": {"accelerators": 1}, "volumes": {"/data": "held"},
        "config": {"kubernetes": {"pod_config": pod}},
    });
    let id = bed.hand_in(task, &[("pod-complete", LONG)])?;
    let running = bed.reaches(&id, "running").await?;
    ensure!(running["cluster"] == "two", "one has more room, and not the claim: {running:#}");
    let pods = bed.has(two, ("v1", "Pod"), &id).await?;
    let source = json!({"claimName": "datasets", "readOnly": true});
    let reads = |pod: &Value| {
        pod["spec"]["volumes"][0]["persistentVolumeClaim"] == source
            && pod["spec"]["containers"][0]["volumeMounts"][0]["readOnly"] == true
    };
    ensure!(pods.len() == 2 && pods.iter().all(reads), "{pods:#?}");
    let is_fast = |pod: &Value| {
        pod["spec"]["hostNetwork"] == true
            && pod["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
            && pod["spec"]["containers"][0]["securityContext"] == locks
    };
    ensure!(pods.iter().all(is_fast), "{pods:#?}");

    bed.person.runs(&["task", "stop", &id, "--yes"])?.success()?;
    bed.is_gone(two, &id).await?;
    bed.person.runs(&["volume", "delete", "held", "--force"])?.success()?;
    eventually("the volume to be forgotten", SOON, async || {
        let shown = bed.person.runs(&["volume", "show", "held"])?;
        Ok(Seen::when(shown.code == 1, || format!("{shown:?}")))
    })
    .await?;
    let claims = two.list("v1", "PersistentVolumeClaim", Some(case)).await?;
    ensure!(claims.len() == 1 && claims[0]["metadata"].get("deletionTimestamp").is_none(), "{claims:#?}");
    two.delete(object("v1", "PersistentVolumeClaim", "datasets").within(case)).await?;
    two.delete(object("v1", "PersistentVolume", &format!("{case}-datasets"))).await
}

pub async fn a_queue_of_multikueue_dispatches_tasks_and_they_are_found_where_they_land(
    fleet: &Fleet,
) -> Result<()> {
    let case = "dispatched";
    let name = "a_queue_of_multikueue_dispatches_tasks_and_they_are_found_where_they_land";
    let check = format!("  admissionChecksStrategy: {{admissionChecks: [{{name: {case}}}]}}");
    let stage = staged(fleet, name, case, ("gang: indexed, keepObjects: 5s", &check)).await?;
    super::bed::join(stage.hub(), case, fleet).await?;
    // Joined under the names that MultiKueue has for them.
    let [one, two] = [fleet.worker1(), fleet.worker2()].map(|worker| format!("{case}-{}", worker.name));
    let bed = Bed::set_as(&stage, [one.clone(), two.clone()], ["4", "8"]).await?;
    holds(stage.hub(), case, case, &[(GPU, "12")]).await?;

    let gang = bed.submit_bringing((2, 4), LONG)?;
    let running = bed.reaches(&gang, "running").await?;
    ensure!(running["cluster"] == two.as_str(), "only there it fits: {running:#}");
    bed.has_files(fleet.worker2(), &gang).await?;
    let on_hub = bed.has(stage.hub(), ("v1", "Secret"), &gang).await?;
    ensure!(on_hub.is_empty(), "what it brings along is where its pods are: {on_hub:?}");
    ensure!(running["nodes"]["running"] == 2, "{running:#}");
    let on_hub = bed.has(stage.hub(), ("batch/v1", "Job"), &gang).await?;
    ensure!(
        on_hub.len() == 1 && on_hub[0]["spec"]["managedBy"] == "kueue.x-k8s.io/multikueue",
        "{on_hub:#?}"
    );
    ensure!(
        bed.has(fleet.worker2(), ("v1", "Service"), &gang).await?.len() == 1,
        "its nodes find each other"
    );
    let short = bed.submit((1, 4), SHORT)?;
    let ended = bed.reaches(&short, "succeeded").await?;
    ensure!(ended["nodes"]["succeeded"] == 1, "{ended:#}");

    bed.person.runs(&["task", "stop", &gang, "--yes"])?.success()?;
    for cluster in [stage.hub(), fleet.worker1(), fleet.worker2()] {
        bed.is_gone(cluster, &gang).await?;
        bed.is_gone(cluster, &short).await?;
    }
    Ok(())
}
