//! Clusters that a cluster manager knows: joined by their ClusterProfiles, or only listed.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use fedq_sim::cluster::{Cluster, Options};
use serde_json::{Value, json};

use super::bed::{Bed, WITHIN, nominal, wait};

const OCM: &str = "cluster.open-cluster-management.io";
const NAMESPACE: &str = "fedq-system";
const TOKEN: &str = "a-token-of-a-person";

async fn bed(workers: &[&str]) -> Bed {
    let hub = Options { ocm: true, ..Options::named("hub") };
    let bed = Bed::with_hub(hub, workers).await;
    let tokens = bed.path("tokens");
    std::fs::write(&tokens, format!("{TOKEN},person,1,\"system:masters\"\n")).unwrap();
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    bed.configure(
        "clusters: {allowLoopback: true, requestTimeout: 1s, staleAfter: 3s, profiles: {enabled: true}}\n",
    );
    let config = std::fs::read_to_string(bed.path("fedqd.yaml")).unwrap();
    let api = format!("api: {{address: 127.0.0.1:0, tokenFile: {}}}", tokens.display());
    std::fs::write(bed.path("fedqd.yaml"), config.replace("api: {address: 127.0.0.1:0}", &api)).unwrap();
    bed
}

/// (the cluster as in a kubeconfig, a token)
fn way_to(worker: &Cluster) -> (Value, String) {
    let file: Value = serde_json::from_str(&worker.kubeconfig("fedq", &["system:masters"])).unwrap();
    let token = file["users"][0]["user"]["token"].as_str().unwrap().to_owned();
    (file["clusters"][0]["cluster"].clone(), token)
}

/// As OCM keeps it: the token in a Secret beside the profile.
async fn profile(hub: &Cluster, name: &str, status: Value) {
    hub.put(json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"clusterManager": {"name": "open-cluster-management"}}, "status": status,
    }))
    .await
    .unwrap();
}

async fn secret(hub: &Cluster, name: &str, key: &str, value: &str) {
    hub.put(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": name, "namespace": NAMESPACE}, "stringData": {key: value},
    }))
    .await
    .unwrap();
}

fn hub_gpus(hub: &Cluster) -> String {
    nominal(hub).unwrap_or_default()
}

/// What `fedq cluster list` says, once it is that.
async fn lists(bed: &Bed, what: &str, is: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedq"));
        command.args(["cluster", "list", "-o", "json"]).env("HOME", bed.path(""));
        command.env("FEDQ_SERVER", bed.api().await).env("FEDQ_TOKEN", TOKEN);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if let Some(clusters) = listed["items"].as_array().filter(|clusters| is(clusters)) {
            return clusters.clone();
        }
        let said = format!("{listed:#} {}", String::from_utf8_lossy(&output.stderr));
        assert!(began.elapsed() < WITHIN, "waited in vain for {what}: {said}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn of(all: &[Value], name: &str) -> Value {
    all.iter().find(|cluster| cluster["name"] == name).cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_are_joined_by_both_generations_of_credentials() {
    let mut bed = bed(&["one", "two", "three"]).await;
    let hub = &bed.hub;
    let ways: Vec<_> = bed.workers.iter().map(way_to).collect();
    let accessed = json!({"accessProviders": [
        {"name": "cloud-login", "cluster": {"server": "https://never.example.com"}},
        {"name": "open-cluster-management", "cluster": ways[0].0},
    ]});
    profile(hub, "one", accessed).await;
    secret(hub, "one-fedq", "token", &ways[0].1).await;
    let mut told = ways[1].0.clone();
    told["extensions"] =
        json!([{"name": "client.authentication.k8s.io/exec", "extension": {"clusterName": "second"}}]);
    profile(hub, "two", json!({"credentialProviders": [{"name": "secretreader", "cluster": told}]})).await;
    secret(hub, "second", "token", &ways[1].1).await;
    let reference = json!({"kind": "Secret", "name": "kubeconfig-three", "namespace": NAMESPACE});
    profile(hub, "three", json!({"credentials": [{"consumer": "fedq", "accessRef": reference}]})).await;
    let kubeconfig = bed.workers[2].kubeconfig("fedq", &["system:masters"]);
    secret(hub, "kubeconfig-three", "kubeconfig", &kubeconfig).await;
    bed.start_daemon();
    for worker in &bed.workers {
        bed.has_claim(worker).await;
        bed.assign(worker, "4").await;
        bed.holds(worker, "4").await;
    }
    let hub = &bed.hub;
    wait("the sum on the hub", hub, || hub_gpus(hub) == "12").await;

    // The token is replaced, as OCM does it; the old one is void.
    bed.workers[0].state.revoke("fedq");
    let (_, token) = way_to(&bed.workers[0]);
    let renewed = json!({"stringData": {"token": token}});
    hub.merge_in(NAMESPACE, "Secret", "one-fedq", renewed).await.unwrap();
    bed.assign(&bed.workers[0], "6").await;
    bed.holds(&bed.workers[0], "6").await;

    // A person's word on it is an annotation, and the profile itself is never written.
    let untouched = hub.get("ClusterProfile", NAMESPACE, "two");
    let cordon = json!({"metadata": {"annotations": {"fedq.dev/cordon": "true"}}});
    hub.merge_in(NAMESPACE, "ClusterProfile", "one", cordon).await.unwrap();
    wait("the cordoned queue to be held", &bed.workers[0], || {
        bed.workers[0].get("ClusterQueue", "", "team").unwrap()["spec"]["stopPolicy"] == "Hold"
    })
    .await;
    assert_eq!(hub.get("ClusterProfile", NAMESPACE, "two"), untouched);

    // Kinds that vanish are not clusters that left; one whose profile is gone has.
    wait("the share of a cordoned cluster", hub, || hub_gpus(hub) == "8").await;
    hub.state.serve_ocm(false);
    bed.assign(&bed.workers[2], "5").await;
    wait("the next sum", hub, || hub_gpus(hub) == "9").await;
    hub.state.serve_ocm(true);
    hub.remove_in(NAMESPACE, "ClusterProfile", "two").await.unwrap();
    wait("the share of the cluster that left to go", hub, || hub_gpus(hub) == "5").await;

    // Over a restart nothing dips.
    bed.kill();
    bed.start_daemon();
    bed.assign(&bed.workers[2], "7").await;
    bed.holds(&bed.workers[2], "7").await;
    wait("the sum after the restart", &bed.hub, || hub_gpus(&bed.hub) == "7").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ocm_knows_is_listed_and_a_profile_without_a_way_is_refused_with_its_reason() {
    let mut bed = bed(&["one"]).await;
    let hub = &bed.hub;
    let managed = |name: &str, status: Value| {
        json!({
            "apiVersion": format!("{OCM}/v1"), "kind": "ManagedCluster", "metadata": {"name": name},
            "spec": {"hubAcceptsClient": true, "managedClusterClientConfigs": [{"url": "https://known.example.com"}]},
            "status": status,
        })
    };
    let available = json!([{
        "type": "ManagedClusterConditionAvailable", "status": "True", "reason": "Available", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    let known = json!({
        "conditions": available, "version": {"kubernetes": "v1.36.3"},
        "allocatable": {"cpu": "64", "nvidia.com/gpu": "8", "pods": "110", "memory": "much"},
    });
    hub.put(managed("known", known)).await.unwrap();
    hub.put(managed("one", json!({"conditions": available}))).await.unwrap();
    profile(hub, "exec", json!({"accessProviders": [{"name": "aws-iam", "cluster": {}}]})).await;
    profile(hub, "lacking", json!({"accessProviders": [{"name": "open-cluster-management", "cluster": {}}]}))
        .await;
    profile(hub, "insecure", {
        let (mut cluster, _) = way_to(&bed.workers[0]);
        cluster["insecure-skip-tls-verify"] = json!(true);
        json!({"accessProviders": [{"name": "open-cluster-management", "cluster": cluster}]})
    })
    .await;
    secret(hub, "insecure-fedq", "token", "t").await;
    bed.start_daemon();
    bed.join(&bed.workers[0]).await;

    let all = lists(&bed, "every cluster", |all| {
        all.len() == 5 && of(all, "one")["state"] == "Ready" && of(all, "insecure")["state"] == "Refused"
    })
    .await;
    assert_eq!(of(&all, "one")["source"], "kubeconfig", "OCM knows it, too");
    let known = of(&all, "known");
    assert_eq!((&known["source"], &known["state"]), (&json!("managedCluster"), &json!("Unreached")));
    assert_eq!(known["server"], "https://known.example.com");
    assert_eq!(known["capacity"], json!({"cpu": "64", "gpu": "8"}));
    for (name, why) in [
        ("exec", "no access provider that fedq can use"),
        ("lacking", "`lacking-fedq` with `token`"),
        ("insecure", "insecure-skip-tls-verify"),
    ] {
        let cluster = of(&all, name);
        assert_eq!((&cluster["source"], &cluster["state"]), (&json!("clusterProfile"), &json!("Refused")));
        assert!(cluster["reason"].as_str().unwrap().contains(why), "{cluster}");
    }
    assert!(bed.hub.get("ClusterResourceClaim", "", "known-resource-claim").is_none(), "nobody joined it");

    // What is listed follows OCM's word.
    let lost = json!({"conditions": [{
        "type": "ManagedClusterConditionAvailable", "status": "Unknown", "reason": "ManagedClusterLeaseUpdateStopped",
        "message": "no lease", "lastTransitionTime": "2026-01-02T00:00:00Z",
    }]});
    bed.hub.set_status("ManagedCluster", "known", lost).await.unwrap();
    lists(&bed, "its condition", |all| {
        of(all, "known")["reason"].as_str().is_some_and(|reason| reason.contains("no lease"))
    })
    .await;
    bed.hub.remove("ManagedCluster", "known").await.unwrap();
    lists(&bed, "it to go", |all| of(all, "known").is_null()).await;
}
