//! Volumes on clusters, and tasks that follow them.

use std::time::{Duration, Instant};

use fedq_sim::{api::Internal, cluster::Cluster, kind::Kind};
use serde_json::{Value, json};

use super::super::bed::{WITHIN, wait};
use super::stage::{Stage, of_task, wrong};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_made_and_its_task_goes_where_it_is_and_it_stays_while_it_is_used() {
    let mut stage = Stage::set(&[("one", 8), ("two", 4)]).await;
    stage.fedq(&["volume", "create", "data", "1Gi", "--cluster", "two"], "").await.unwrap();
    let there = |stage: &Stage, name: &str| stage.worker(name).list("PersistentVolumeClaim").len();
    wait("the claim", stage.worker("two"), || there(&stage, "two") == 1).await;
    assert_eq!(there(&stage, "one"), 0);
    let task = "run: x\nvolumes: {/data: data}\nresources: {accelerators: 1}\n";
    let id = stage.submit(600, task).await;
    let running = stage.reaches(&id, "running").await;
    assert_eq!(running["cluster"], "two", "that is where the volume is");
    let several = format!("num_nodes: 2\n{task}");
    let refused = stage.try_submit(1, &several, &[]).await.unwrap_err();
    assert!(refused.contains("ReadWriteMany"), "{refused}");
    let refused = stage.fedq(&["volume", "delete", "data", "--force"], "").await.unwrap_err();
    assert!(refused.contains(&id), "it is used: {refused}");
    stage.fedq(&["task", "stop", &id, "--yes"], "").await.unwrap();
    stage.reaches(&id, "stopped").await;

    wrong(stage.worker("two"), "delete persistentvolumeclaims: server-errors");
    let listed: Value =
        serde_json::from_str(&stage.fedq(&["volume", "list", "-o", "json"], "").await.unwrap()).unwrap();
    assert!(listed.to_string().contains("data"), "{listed:#}");
    stage.fedq(&["volume", "delete", "data", "--force"], "").await.unwrap();
    stage.kill();
    wrong(stage.worker("two"), "");
    stage.start();
    wait("the claim to be gone", stage.worker("two"), || there(&stage, "two") == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_that_somebody_deleted_is_told_of_and_not_made_anew() {
    let stage = Stage::set(&[("one", 8)]).await;
    stage.fedq(&["volume", "create", "data", "1Gi"], "").await.unwrap();
    let worker = stage.worker("one");
    let claims = || worker.list("PersistentVolumeClaim");
    let task = "run: x\nvolumes: {/data: data}\nresources: {accelerators: 1}\n";
    let id = stage.submit(600, task).await;
    stage.reaches(&id, "running").await;
    wait("the claim", worker, || claims().len() == 1).await;
    // Seen, so that it is missed.
    stage.volume_is("data", "it is not bound").await;
    let claim = claims()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    delete_claim(worker, &claim).await;
    let volume = in_state(&stage, "Lost").await;
    assert!(volume["reason"].as_str().unwrap().contains("somebody deleted it on one"), "{volume:#}");
    let began = Instant::now();
    while !stage.reasons(&id).await.iter().any(|reason| reason == "VolumeLost") {
        assert!(began.elapsed() < WITHIN, "its task is not told");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // A task that comes now looks at all there is, the claim included: it is not there again.
    let waits = stage.submit(1, task).await;
    stage.waits_because(&waits, "volume data was deleted on its cluster").await;
    assert!(claims().is_empty());
    for id in [&waits, &id] {
        stage.fedq(&["task", "stop", id, "--yes"], "").await.unwrap();
    }
    stage.fedq(&["volume", "delete", "data", "--force"], "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_made_where_its_first_task_can_run() {
    let mut stage = Stage::set(&[("one", 2), ("two", 8)]).await;
    stage.fedq(&["volume", "create", "data", "1Gi"], "").await.unwrap();
    stage.volume_is("data", "it is made on the cluster of the first task").await;
    let claims = |stage: &Stage, name: &str| stage.worker(name).list("PersistentVolumeClaim").len();
    assert_eq!((claims(&stage, "one"), claims(&stage, "two")), (0, 0));
    let task = |gpus: u32| format!("run: x\nvolumes: {{/data: data}}\nresources: {{accelerators: {gpus}}}\n");
    let large = stage.submit(3600, &task(4)).await;
    assert_eq!(stage.reaches(&large, "running").await["cluster"], "two", "the other one is too small");
    wait("the claim", stage.worker("two"), || claims(&stage, "two") == 1).await;
    stage.kill();
    stage.start();
    let small = stage.submit(3600, &task(1)).await;
    assert_eq!(stage.reaches(&small, "running").await["cluster"], "two", "that is where the volume is");
    let refused = stage.try_submit(1, &task(1), &["--cluster", "one"]).await.unwrap_err();
    assert!(refused.contains("volume data is on two"), "{refused}");
    assert_eq!(claims(&stage, "one"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_was_there_is_mounted_as_it_is_and_never_touched() {
    let mut stage = Stage::set(&[("one", 8), ("two", 4)]).await;
    put_claim(stage.worker("two"), "datasets", &["ReadWriteMany"], &json!({})).await;
    let adopt =
        ["volume", "adopt", "data", "--cluster", "two", "--claim", "datasets", "--read-only", "-o", "json"];
    let volume: Value = serde_json::from_str(&stage.fedq(&adopt, "").await.unwrap()).unwrap();
    assert_eq!(
        [&volume["cluster"], &volume["claim"], &volume["size"], &volume["accessModes"], &volume["readOnly"]],
        [&json!("two"), &json!("datasets"), &json!("2Ti"), &json!(["ReadWriteMany"]), &json!(true)]
    );
    let again = stage.fedq(&adopt, "").await.unwrap_err();
    assert!(again.contains("you have a volume `data` already"), "{again}");
    in_state(&stage, "Bound").await;

    let task = "run: x\nnum_nodes: 2\nvolumes: {/data: data}\nresources: {accelerators: 1}\n";
    let id = stage.submit(600, task).await;
    assert_eq!(stage.reaches(&id, "running").await["cluster"], "two", "that is where the claim is");
    for pod in of_task(stage.worker("two"), "Pod", &id) {
        assert_eq!(
            pod["spec"]["volumes"][0]["persistentVolumeClaim"],
            json!({"claimName": "datasets", "readOnly": true})
        );
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0]["readOnly"], true);
    }
    let refused = stage.fedq(&["volume", "delete", "data", "--force"], "").await.unwrap_err();
    assert!(refused.contains(&id), "it is used: {refused}");
    stage.kill();
    stage.start();
    stage.fedq(&["task", "stop", &id, "--yes"], "").await.unwrap();
    stage.reaches(&id, "stopped").await;
    let told = stage.fedq(&["volume", "delete", "data", "--force"], "").await.unwrap();
    assert!(told.ends_with("is forgotten; its PersistentVolumeClaim team/datasets stays\n"), "{told}");
    let began = Instant::now();
    while stage.fedq(&["volume", "show", "data"], "").await.is_ok() {
        assert!(began.elapsed() < WITHIN, "it is not forgotten");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let there = stage.worker("two").get("PersistentVolumeClaim", "team", "datasets").expect("the claim");
    assert_eq!(there["metadata"].get("labels"), None, "it is as it was: {there:#}");
    assert_eq!(stage.worker("two").list("PersistentVolumeClaim").len(), 1);
    // It can be had again, by another name and to write.
    stage.fedq(&["volume", "adopt", "own", "--cluster", "two", "--claim", "datasets"], "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_no_task_could_mount_is_not_adopted() {
    let stage = Stage::set(&[("one", 8)]).await;
    let one = stage.worker("one");
    put_claim(one, "rox", &["ReadOnlyMany"], &json!({})).await;
    put_claim(one, "lost", &["ReadWriteOnce"], &json!({"status": {"phase": "Lost"}})).await;
    put_claim(one, "device", &["ReadWriteOnce"], &json!({"spec": {"volumeMode": "Block"}})).await;
    let labels = json!({"fedq.dev/hub": "another"});
    put_claim(one, "bobs", &["ReadWriteOnce"], &json!({"metadata": {"labels": labels}})).await;
    let mut elsewhere = claim("elsewhere", &["ReadWriteOnce"]);
    elsewhere["metadata"]["namespace"] = json!("default");
    one.put(elsewhere).await.unwrap();
    let whole = "PersistentVolumeClaim `rox` in namespace `team` of cluster `one` is ReadOnlyMany, so nothing can be written";
    for (cluster, claim, why) in [
        ("one", "rox", whole),
        ("one", "lost", "is Lost"),
        ("one", "device", "volumeMode: Block"),
        ("one", "bobs", "is a volume that fedq made"),
        (
            "one",
            "elsewhere",
            "there is no PersistentVolumeClaim `elsewhere` in namespace `team` of cluster `one`",
        ),
        ("north", "rox", "cluster `north` is not joined"),
    ] {
        let refused =
            stage.fedq(&["volume", "adopt", "data", "--cluster", cluster, "--claim", claim], "").await;
        let refused = refused.unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    assert_eq!(stage.fedq(&["volume", "list", "-o", "name"], "").await.unwrap(), "");
    stage
        .fedq(&["volume", "adopt", "data", "--cluster", "one", "--claim", "rox", "--read-only"], "")
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_was_adopted_and_goes_is_told_of() {
    let mut stage = Stage::set(&[("one", 8)]).await;
    put_claim(stage.worker("one"), "datasets", &["ReadWriteOnce"], &json!({})).await;
    stage.fedq(&["volume", "adopt", "data", "--cluster", "one", "--claim", "datasets"], "").await.unwrap();
    let task = "run: x\nvolumes: {/data: data}\nresources: {accelerators: 1}\n";
    let several = stage.try_submit(1, &format!("num_nodes: 2\n{task}"), &[]).await.unwrap_err();
    assert!(several.contains("can be mounted by one node only"), "{several}");
    let id = stage.submit(600, task).await;
    stage.reaches(&id, "running").await;
    stage.kill();
    delete_claim(stage.worker("one"), "datasets").await;
    stage.start();
    let volume = in_state(&stage, "Lost").await;
    let reason = "there is no PersistentVolumeClaim datasets in namespace team of one";
    assert_eq!(volume["reason"], reason, "{volume:#}");
    let began = Instant::now();
    while !stage.reasons(&id).await.iter().any(|reason| reason == "VolumeLost") {
        assert!(began.elapsed() < WITHIN, "its task is not told");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let waits = stage.submit(1, task).await;
    stage.waits_because(&waits, "volume data was deleted on its cluster").await;
    // Another one of its name, which nothing can mount.
    put_claim(stage.worker("one"), "datasets", &["ReadWriteOnce"], &json!({"spec": {"volumeMode": "Block"}}))
        .await;
    stage.kill();
    stage.start();
    is_said(&stage, "data", "Lost", "is a device (volumeMode: Block)").await;
    delete_claim(stage.worker("one"), "datasets").await;
    // Whoever puts it back has it mounted again. Adopted once more, it is asked for at once, and not taken for the one that
    // was gone.
    put_claim(stage.worker("one"), "datasets", &["ReadWriteOnce"], &json!({})).await;
    stage.fedq(&["volume", "adopt", "again", "--cluster", "one", "--claim", "datasets"], "").await.unwrap();
    is_said(&stage, "again", "Bound", "").await;
    stage.kill();
    stage.start();
    stage.reaches(&waits, "succeeded").await;
    for id in [&waits, &id] {
        drop(stage.fedq(&["task", "stop", id, "--yes"], "").await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_was_there_is_mounted_by_its_name_in_a_task_file() {
    let stage = Stage::set(&[("one", 8), ("two", 4)]).await;
    let two = stage.worker("two");
    put_claim(two, "datasets", &["ReadWriteMany"], &json!({})).await;
    put_claim(two, "scratch", &["ReadWriteOnce"], &json!({})).await;
    put_claim(two, "rox", &["ReadOnlyMany"], &json!({})).await;
    let task = |nodes: u32, volumes: &str| {
        format!("run: x\nnum_nodes: {nodes}\nvolumes: {volumes}\nresources: {{accelerators: 1}}\n")
    };
    for (nodes, volumes, why) in [
        (1, "{/d: {claim: datasets, cluster: one}}", "in namespace `team` of cluster `one`"),
        (1, "{/d: {claim: datasets, cluster: north}}", "cluster `north` is not joined"),
        (1, "{/d: {claim: rox, cluster: two}}", "is ReadOnlyMany"),
        (2, "{/d: {claim: scratch, cluster: two}}", "two/scratch can be mounted by one node only"),
    ] {
        let refused = stage.try_submit(1, &task(nodes, volumes), &[]).await.unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    let volumes = "{/d: {claim: datasets, cluster: two, read_only: true}, /s: {claim: datasets, cluster: two, sub_path: s}}";
    let id = stage.submit(600, &task(2, volumes)).await;
    assert_eq!(stage.reaches(&id, "running").await["cluster"], "two");
    for pod in of_task(two, "Pod", &id) {
        let name = json!("volume-0");
        assert_eq!(
            pod["spec"]["volumes"][0],
            json!({"name": name, "persistentVolumeClaim": {"claimName": "datasets"}})
        );
        assert_eq!(
            pod["spec"]["containers"][0]["volumeMounts"].as_array().unwrap()[..2],
            [
                json!({"name": name, "mountPath": "/d", "readOnly": true}),
                json!({"name": name, "mountPath": "/s", "subPath": "s"}),
            ]
        );
    }
    assert_eq!(stage.fedq(&["volume", "list", "-o", "name"], "").await.unwrap(), "");
    stage.fedq(&["task", "stop", &id, "--yes"], "").await.unwrap();
    stage.reaches(&id, "stopped").await;
    assert_eq!(two.list("PersistentVolumeClaim").len(), 3);
}

fn claim(name: &str, modes: &[&str]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "team", "name": name},
        "spec": {"accessModes": modes, "resources": {"requests": {"storage": "1Ti"}}, "volumeMode": "Filesystem"},
        "status": {"phase": "Bound", "capacity": {"storage": "2Ti"}},
    })
}

/// Bound, unless `more` says otherwise.
async fn put_claim(worker: &Cluster, name: &str, modes: &[&str], more: &Value) {
    let mut object = claim(name, modes);
    for (part, fields) in more.as_object().unwrap() {
        for (key, value) in fields.as_object().unwrap() {
            object[part][key] = value.clone();
        }
    }
    worker.put(object).await.unwrap();
}

async fn delete_claim(worker: &Cluster, name: &str) {
    let kind = Kind::named("PersistentVolumeClaim").unwrap();
    let key = ("team".to_owned(), name.to_owned());
    fedq_sim::api::write_internally(&worker.state, "admin", kind, key, Internal::Delete).await.unwrap();
}

/// Until the volume `data` is in that state.
async fn in_state(stage: &Stage, state: &str) -> Value {
    let began = Instant::now();
    loop {
        let told = stage.fedq(&["volume", "show", "data", "-o", "json"], "").await.unwrap_or_default();
        let volume: Value = serde_json::from_str(&told).unwrap_or_default();
        if volume["state"] == state {
            return volume;
        }
        assert!(began.elapsed() < WITHIN, "it is not {state}: {volume:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Of the volume of that name.
async fn is_said(stage: &Stage, volume: &str, state: &str, reason: &str) {
    let began = Instant::now();
    loop {
        let told = stage.fedq(&["volume", "show", volume, "-o", "json"], "").await.unwrap();
        let told: Value = serde_json::from_str(&told).unwrap();
        if told["state"] == state && told["reason"].as_str().unwrap_or_default().contains(reason) {
            return;
        }
        assert!(state == "Lost" || told["state"] != "Lost", "{told:#}");
        assert!(began.elapsed() < WITHIN, "{told:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
