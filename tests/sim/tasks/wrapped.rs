//! AppWrappers on simulated clusters: chosen, made, followed and taken away as tasks are.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::bed::{Bed, wait};
use super::stage::{Stage, of_task, wrong};

/// A Job of so many pods with so many GPUs each, beside a Service.
fn wrapper(name: &str, (pods, gpus): (u32, u32), seconds: &str, exit: &str) -> String {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": {
            "metadata": {"annotations": {"sim.fedq.dev/seconds": seconds, "sim.fedq.dev/exit": exit, "sim.fedq.dev/log": "1"}},
            "spec": {"restartPolicy": "Never", "containers": [{
                "name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": gpus}},
            }]},
        }},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"clusterIP": "None"},
    });
    let wrapper = json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {"name": name, "labels": {"mine": "x"}},
        "spec": {"components": [{"template": service}, {"template": job}]},
    });
    wrapper.to_string()
}

/// Knows AppWrappers, and perhaps a controller renews its Lease there.
pub async fn serve(bed: &Bed, name: &str, lease: Option<&str>) {
    let worker = bed.workers.iter().find(|worker| worker.state.name == name).unwrap();
    worker.state.serve_app_wrappers(lease.is_some());
    let Some(lease) = lease else { return };
    let now = worker.state.now().to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": lease, "namespace": "default"},
        "spec": {"holderIdentity": "pod", "leaseDurationSeconds": 15, "renewTime": now},
    });
    worker.put(lease).await.unwrap();
}

async fn stage(workers: &[(&str, u32)], leases: &[(&str, Option<&str>)], tasks: &str) -> Stage {
    Stage::set_prepared(workers, tasks, async |bed| {
        for (name, lease) in leases {
            serve(bed, name, *lease).await;
        }
    })
    .await
}

async fn submit(stage: &Stage, file: &str, more: &[&str]) -> Result<String, String> {
    let arguments = [&["appwrapper", "submit", "-", "-o", "json"], more].concat();
    let told: Value = serde_json::from_str(&stage.fedq(&arguments, file).await?).unwrap();
    Ok(told["id"].as_str().unwrap().to_owned())
}

const UPSTREAM: Option<&str> = Some("f134c674.codeflare.dev");
pub const FEDQ: Option<&str> = Some("fedq-appwrapper");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_appwrapper_runs_where_its_quota_is_to_its_end() {
    let stage = stage(&[("one", 4), ("two", 8)], &[("one", UPSTREAM), ("two", FEDQ)], "").await;
    let id = submit(&stage, &wrapper("train", (2, 3), "2", "0"), &[]).await.unwrap();
    let running = stage.reaches(&id, "running").await;
    assert_eq!((&running["cluster"], &running["kind"]), (&json!("two"), &json!("appWrapper")), "{running:#}");
    let there = &of_task(stage.worker("two"), "AppWrapper", &id)[0];
    let metadata = &there["metadata"];
    assert_eq!(metadata["name"], format!("train-{id}"));
    assert_eq!(metadata["labels"]["kueue.x-k8s.io/queue-name"], "queue");
    assert_eq!(metadata["labels"]["mine"], "x");
    assert_eq!(metadata["labels"]["workload.codeflare.dev/user"], "ann_example.com");
    assert_eq!(metadata["labels"]["workload.codeflare.dev/userid"], "u-1");
    assert_eq!(metadata["annotations"]["fedq.dev/owner"], "ann@example.com");
    assert_eq!(of_task(stage.worker("two"), "Pod", &id).len(), 2);
    let ended = stage.reaches(&id, "succeeded").await;
    assert_eq!(ended["nodes"]["succeeded"], 2);
    let output = stage.run(&["appwrapper", "logs", &id, "-o", "json"], "").await;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let nodes: BTreeSet<u64> =
        lines.filter(|line| line["line"].is_string()).map(|line| line["node"].as_u64().unwrap()).collect();
    assert_eq!(nodes, [0, 1].into(), "each pod has a number of its own, though the Job gives them none");
    let reasons = stage.reasons(&id).await;
    for reason in ["Submitted", "Chosen", "Created", "Succeeded"] {
        assert!(reasons.iter().any(|one| one == reason), "{reason}: {reasons:?}");
    }
    assert!(stage.bed.workers.iter().all(|worker| of_task(worker, "AppWrapper", &id).len() <= 1));
    assert!(of_task(stage.worker("one"), "AppWrapper", &id).is_empty());

    for (cluster, runtime) in [("one", "upstream"), ("two", "fedq")] {
        let told = stage.fedq(&["cluster", "show", cluster, "-o", "json"], "").await.unwrap();
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["appWrappers"], runtime);
        let output = stage.run(&["check", cluster, "-o", "json"], "").await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("appwrappers") && text.contains(&format!("({runtime})")), "{text}");
    }
    let list = stage.fedq(&["appwrapper", "list", "-o", "name"], "").await.unwrap();
    assert_eq!(list, format!("appwrapper/{id}\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_one_says_why_and_a_stopped_one_is_gone_before_it_is_said_to_be() {
    let stage = stage(&[("one", 8)], &[("one", FEDQ)], "").await;
    let failing = submit(&stage, &wrapper("fails", (1, 1), "1", "3"), &[]).await.unwrap();
    let failed = stage.reaches(&failing, "failed").await;
    assert_eq!(failed["failure"], "program");
    let events = failed["events"].to_string();
    assert!(events.contains("exit code 3") || events.contains("Job fails has failed"), "{events}");

    let id = submit(&stage, &wrapper("long", (1, 1), "3600", "0"), &[]).await.unwrap();
    stage.reaches(&id, "running").await;
    let worker = stage.worker("one");
    // Its controller cannot take it away for now.
    worker.state.serve_app_wrappers(false);
    stage.fedq(&["appwrapper", "delete", &id, "--no-wait"], "").await.unwrap();
    wait("the AppWrapper to be deleted", worker, || {
        let there = of_task(worker, "AppWrapper", &id);
        there.iter().all(|one| !one["metadata"]["deletionTimestamp"].is_null())
    })
    .await;
    assert_eq!(of_task(worker, "AppWrapper", &id).len(), 1, "its finalizer holds it");
    assert_eq!(stage.status(&id).await["phase"], "stopping");
    worker.state.serve_app_wrappers(true);
    stage.reaches(&id, "stopped").await;
    for kind in ["AppWrapper", "Pod", "Job", "Workload"] {
        assert!(of_task(worker, kind, &id).is_empty(), "a {kind} is left");
    }
    assert!(worker.get("Service", "team", "long").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_waits_moves_only_once_nothing_of_it_is_left() {
    let stage = stage(&[("one", 8), ("two", 1)], &[("one", FEDQ), ("two", FEDQ)], ", spillAfter: 2s").await;
    let first = stage.submit(3600, "run: x\nresources: {accelerators: 8}\n").await;
    stage.reaches(&first, "running").await;
    let id = submit(&stage, &wrapper("moves", (2, 4), "1", "0"), &[]).await.unwrap();
    assert_eq!(stage.reaches(&id, "queued").await["cluster"], "one");
    stage.bed.assign(stage.worker("two"), "8").await;
    let ended = stage.reaches(&id, "succeeded").await;
    assert_eq!((&ended["cluster"], &ended["epoch"]), (&json!("two"), &json!(2)));
    assert!(of_task(stage.worker("one"), "AppWrapper", &id).is_empty());
    assert_eq!(stage.ever(&id, "Pod").len(), 2, "it ran once");
    stage.fedq(&["task", "stop", &first, "--yes"], "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_goes_on_after_a_kill_and_is_made_once() {
    let mut stage = stage(&[("one", 8)], &[("one", UPSTREAM)], "").await;
    wrong(stage.worker("one"), "create appwrappers: lose-answers");
    let id = submit(&stage, &wrapper("once", (1, 1), "1", "0"), &[]).await.unwrap();
    let worker = stage.worker("one");
    wait("the AppWrapper", worker, || !of_task(worker, "AppWrapper", &id).is_empty()).await;
    stage.kill();
    wrong(stage.worker("one"), "");
    stage.start();
    stage.reaches(&id, "succeeded").await;
    assert_eq!(stage.ever(&id, "AppWrapper").len(), 1);
    assert_eq!(stage.ever(&id, "Pod").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_on_its_way_counts_before_kueue_counts_it() {
    let stage = stage(&[("one", 8), ("two", 8)], &[("one", FEDQ), ("two", FEDQ)], "").await;
    let mut ids = Vec::new();
    for name in ["a", "b"] {
        ids.push(submit(&stage, &wrapper(name, (2, 3), "3600", "0"), &[]).await.unwrap());
    }
    let mut clusters = Vec::new();
    for id in &ids {
        clusters.push(stage.reaches(id, "running").await["cluster"].as_str().unwrap().to_owned());
        stage.fedq(&["appwrapper", "stop", id, "--no-wait"], "").await.unwrap();
    }
    clusters.sort();
    assert_eq!(clusters, ["one", "two"], "6 of 8 are taken by the first, though nothing is admitted yet");
    let told = stage.fedq(&["appwrapper", "explain", &ids[0]], "").await.unwrap();
    assert!(told.contains("nvidia.com/gpu"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_that_run_none_are_refused_with_what_to_apply() {
    let stage = stage(&[("one", 8), ("two", 8)], &[("one", None)], "").await;
    let refused = submit(&stage, &wrapper("nowhere", (1, 1), "1", "0"), &[]).await.unwrap_err();
    for reason in
        ["one: nothing runs AppWrappers there", "two: it does not know AppWrappers", "deploy/appwrapper"]
    {
        assert!(refused.contains(reason), "{reason}: {refused}");
    }
    let unwrapped = submit(&stage, &wrapping_a_job("alone", (1, 1)), &["--unwrap"]).await.unwrap_err();
    assert!(unwrapped.contains("tasks.unwrapJobs"), "off unless somebody switches it on: {unwrapped}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_asks_for_it_is_made_as_an_appwrapper_and_is_a_task_all_the_same() {
    let stage = stage(&[("one", 8), ("two", 8)], &[("one", None), ("two", FEDQ)], "").await;
    let gang = "num_nodes: 2\nrun: x\nresources: {accelerators: 2}\nsecrets: {TOKEN: hush}\n";
    let id = stage.try_submit(2, gang, &["--as-app-wrapper"]).await.unwrap();
    let running = stage.reaches(&id, "running").await;
    assert_eq!(
        (&running["cluster"], &running["gang"], &running["kind"]),
        (&json!("two"), &json!("appWrapper"), &json!("task"))
    );
    let worker = stage.worker("two");
    let wrapper = &of_task(worker, "AppWrapper", &id)[0];
    assert!(!wrapper.to_string().contains("hush"), "its secrets are beside it");
    let owned = |kind: &str| {
        let found = of_task(worker, kind, &id);
        assert_eq!(found[0]["metadata"]["ownerReferences"][0]["uid"], wrapper["metadata"]["uid"], "{kind}");
    };
    owned("Service");
    owned("Secret");
    let ended = stage.reaches(&id, "succeeded").await;
    assert_eq!(ended["nodes"]["succeeded"], 2);
    let output = stage.run(&["task", "logs", &id, "-o", "json"], "").await;
    let lines = String::from_utf8(output.stdout).unwrap();
    for node in ["\"node\":0", "\"node\":1"] {
        assert!(lines.contains(node), "{node}: {lines}");
    }

    // Its restarts are fedq's, as every task's.
    let failing = "run: x\nresources: {accelerators: 1, job_recovery: {max_restarts_on_errors: 1}}\n";
    let config = json!({
        "kubernetes": {"custom_metadata": {"annotations": {"sim.fedq.dev/exit": "3"}}},
        "fedq": {"as_app_wrapper": true},
    });
    let file = format!("{failing}config: {config}\n");
    let told = stage.fedq(&["task", "submit", "-", "-o", "json"], &file).await.unwrap();
    let id = serde_json::from_str::<Value>(&told).unwrap()["id"].as_str().unwrap().to_owned();
    let failed = stage.reaches(&id, "failed").await;
    assert_eq!((&failed["failure"], &failed["restarts"]), (&json!("program"), &json!(1)), "{failed:#}");
    assert_eq!(stage.ever(&id, "AppWrapper").len(), 2);
    assert_eq!(stage.ever(&id, "Pod").len(), 2, "once each time");
    assert!(of_task(stage.worker("one"), "AppWrapper", &id).is_empty());

    // Its node has to be left, and its controller may not try again: that is fedq's, and no fault of the script.
    let id = stage
        .try_submit(3600, "run: x\nresources: {accelerators: 1}\n", &["--as-app-wrapper"])
        .await
        .unwrap();
    stage.reaches(&id, "running").await;
    let worker = stage.worker("two");
    let name = of_task(worker, "AppWrapper", &id)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let unhealthy = json!({
        "type": "Unhealthy", "status": "True", "reason": "AutopilotNoExecute", "message": "node",
        "lastTransitionTime": "2025-10-05T12:34:56Z",
    });
    let failed = json!({"phase": "Failed", "conditions": [unhealthy]});
    worker.set_status_in("team", "AppWrapper", &name, failed).await.unwrap();
    wait("it to be made anew", worker, || stage.ever(&id, "AppWrapper").len() == 2).await;
    let again = stage.reaches(&id, "running").await;
    assert_eq!((&again["restarts"], &again["epoch"]), (&json!(0), &json!(2)), "{again:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_unwrapped_only_where_nothing_runs_appwrappers() {
    let stage = stage(&[("one", 4), ("two", 8)], &[("one", FEDQ), ("two", None)], ", unwrapJobs: true").await;
    let file = wrapping_a_job("alone", (1, 6));
    let refused = submit(&stage, &file, &[]).await.unwrap_err();
    assert!(refused.contains("nothing runs AppWrappers there"), "{refused}");
    let id = submit(&stage, &file, &["--unwrap"]).await.unwrap();
    let running = stage.reaches(&id, "running").await;
    assert_eq!((&running["cluster"], &running["gang"]), (&json!("two"), &json!("unwrapped")), "{running:#}");
    let worker = stage.worker("two");
    let job = &of_task(worker, "Job", &id)[0];
    assert_eq!(job["metadata"]["name"], format!("alone-{id}"));
    assert!(of_task(worker, "AppWrapper", &id).is_empty());
    assert_eq!(stage.reaches(&id, "succeeded").await["nodes"]["succeeded"], 1);

    let id =
        submit(&stage, &wrapping_a_job("small", (1, 2)), &["--unwrap", "--cluster", "one"]).await.unwrap();
    assert_eq!(stage.reaches(&id, "succeeded").await["gang"], "appWrapper");
    let several = submit(&stage, &wrapper("several", (1, 1), "1", "0"), &["--unwrap"]).await.unwrap_err();
    assert!(several.contains("takes an AppWrapper of one Job, and this one wraps Service, Job"), "{several}");
}

fn wrapping_a_job(name: &str, (pods, gpus): (u32, u32)) -> String {
    let mut wrapper: Value = serde_json::from_str(&wrapper(name, (pods, gpus), "2", "0")).unwrap();
    wrapper["spec"]["components"].as_array_mut().unwrap().remove(0);
    wrapper.to_string()
}
