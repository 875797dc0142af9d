//! Files of whoever submits, from their folder to where the task runs.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use fedq_sim::cluster::Cluster;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use serde_json::Value;
use tempfile::TempDir;

use super::{
    super::bed::wait,
    stage::{Stage, of_task},
};

/// A folder of two mebibytes that do not compress, and what is in it.
fn code() -> (TempDir, Vec<u8>) {
    let folder = TempDir::new().unwrap();
    let mut weights = vec![0; 2 << 20];
    fastrand::Rng::with_seed(7).fill(&mut weights);
    fs::create_dir(folder.path().join("data")).unwrap();
    fs::write(folder.path().join("data/weights"), &weights).unwrap();
    fs::write(folder.path().join("train.sh"), "wc -c < data/weights\n").unwrap();
    (folder, weights)
}

/// Runs what a pod's container is told to, with what the pod mounts, in an empty home; what it says, and its home.
fn run(cluster: &Cluster, pod: &Value) -> (String, TempDir) {
    let home = TempDir::new().unwrap();
    let parts = home.path().join("parts");
    fs::create_dir(&parts).unwrap();
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["projected"].is_object()).unwrap();
    for source in volume["projected"]["sources"].as_array().unwrap() {
        let name = source["secret"]["name"].as_str().unwrap();
        let secret = cluster.get("Secret", "team", name).unwrap();
        let secret: Secret = serde_json::from_value((*secret).clone()).unwrap();
        let data: BTreeMap<String, ByteString> = secret.data.unwrap();
        assert!(data.values().map(|part| part.0.len()).sum::<usize>() <= 900 << 10);
        for (key, ByteString(part)) in data {
            fs::write(parts.join(key), part).unwrap();
        }
    }
    let container = &pod["spec"]["containers"][0];
    let mounts = container["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["name"] == volume["name"]).unwrap();
    let script = container["args"][0].as_str().unwrap().replace("$$", "$");
    let script = script.replace(mount["mountPath"].as_str().unwrap(), parts.to_str().unwrap());
    let output = Command::new("bash").args(["-c", &script]).env("HOME", home.path()).output().unwrap();
    assert!(output.status.success(), "{}\n{script}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), home)
}

fn secrets(cluster: &Cluster, id: &str) -> Vec<Value> {
    of_task(cluster, "Secret", id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workdir_goes_where_its_task_goes_and_is_gone_with_it() {
    let stage = Stage::set_with(
        &[("one", 8), ("two", 1)],
        "",
        ", spillAfter: 2s, keepObjects: 1s, uploads: {maxSize: 8Mi}",
    )
    .await;
    let (code, weights) = code();
    let source = code.path().to_str().unwrap();
    let task = |gpus: u32| {
        format!(
            "workdir: {}\nfile_mounts: {{~/mounted: {source}}}\nsetup: ls\nrun: bash train.sh\nnum_nodes: 2\n\
             resources: {{accelerators: {gpus}}}\n",
            relative(code.path())
        )
    };
    let first = stage.submit(3600, "run: x\nresources: {accelerators: 8}\n").await;
    stage.reaches(&first, "running").await;
    let id = stage.submit(3600, &task(4)).await;
    let queued = stage.reaches(&id, "queued").await;
    assert_eq!(queued["cluster"], "one", "the other can never hold it");
    let (one, two) = (stage.worker("one"), stage.worker("two"));
    wait("its files on the first cluster", one, || secrets(one, &id).len() == 5).await;
    for secret in secrets(one, &id) {
        assert_eq!(secret["metadata"]["ownerReferences"][0]["kind"], "Job", "{secret:#}");
        assert_eq!(secret["metadata"]["labels"]["fedq.dev/epoch"], "1");
    }
    assert!(secrets(two, &id).is_empty());

    stage.bed.assign(two, "8").await;
    let running = stage.reaches(&id, "running").await;
    assert_eq!((&running["cluster"], &running["epoch"]), (&"two".into(), &2.into()));
    wait("its files to leave the first cluster", one, || secrets(one, &id).is_empty()).await;
    assert_eq!(secrets(two, &id).len(), 5);
    let pods = of_task(two, "Pod", &id);
    assert_eq!(pods.len(), 2);
    for pod in &pods {
        let (said, home) = run(two, pod);
        assert_eq!(said, "data\ntrain.sh\n2097152\n");
        for folder in ["sky_workdir", "mounted"] {
            let found = fs::read(home.path().join(folder).join("data/weights")).unwrap();
            assert!(found == weights, "{folder}");
        }
    }
    for task in [&id, &first] {
        stage.fedq(&["task", "stop", task, "--yes"], "").await.unwrap();
    }
    stage.is_gone(&id).await;
    wait("its files to go with it", two, || secrets(two, &id).is_empty()).await;
    let log = fs::read(stage.bed.path("fedqd.log")).unwrap();
    assert!(!log.windows(16).any(|window| window == &weights[..16]), "what is sent stands in no log");
}

/// From the folder that tests run in.
fn relative(path: &Path) -> String {
    let here = std::env::current_dir().unwrap();
    let up = "../".repeat(here.components().count() - 1);
    format!("{up}{}", path.strip_prefix("/").unwrap().display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_survive_a_crash_of_fedqd_between_submission_and_dispatch() {
    let mut stage = Stage::set(&[("one", 8)]).await;
    super::stage::wrong(stage.worker("one"), "create jobs: endless-body");
    let (code, weights) = code();
    let task =
        format!("workdir: {}\nrun: bash train.sh\nresources: {{accelerators: 1}}\n", relative(code.path()));
    let id = stage.submit(3600, &task).await;
    stage.kill();
    drop(code);
    super::stage::wrong(stage.worker("one"), "");
    stage.start();
    stage.reaches(&id, "running").await;
    let worker = stage.worker("one");
    let pod = of_task(worker, "Pod", &id).remove(0);
    let (said, home) = run(worker, &pod);
    assert_eq!(said, "2097152\n");
    assert!(fs::read(home.path().join("sky_workdir/data/weights")).unwrap() == weights);
    stage.fedq(&["task", "stop", &id, "--yes"], "").await.unwrap();
}
