//! Kueue beside the cluster instead of inside it, with its webhooks.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::cluster::{Cluster, has_condition, id};
use super::control_plane::{base64, wait_ready, with_free_ports};
use super::process::Supervisor;
use super::tools::Tools;
use super::wait::{Seen, eventually};

/// A new CRD is served within a second on an idle machine.
const SERVED_WITHIN: Duration = Duration::from_mins(1);
/// client-go waits up to 30 s between tries, give or take, and several informers must find back.
const FOLLOWS_WITHIN: Duration = Duration::from_mins(3);

/// Kueue reads its metrics certificate from a fixed folder, even with metrics off. A mount namespace of its own gives it
/// one without a file written to the machine's /etc.
const WITH_OWN_ETC: &str = r#"
mount -t tmpfs tmpfs /etc
mkdir -p /etc/kueue/metrics/certs
cp "$1/tls.crt" "$1/tls.key" /etc/kueue/metrics/certs/
shift
exec "$@"
"#;

/// Webhooks of kinds that no cluster here has stay away, so that a mistake in one cannot stop Deployments or Pods.
const WEBHOOK_KINDS: [&str; 7] =
    ["appwrappers", "clusterqueues", "cohorts", "resourceflavors", "workloads", "jobs", "jobsets"];

const APPWRAPPER_CRD: &str = include_str!("../../../deploy/appwrapper/crd.yaml");

/// The hub whose Kueue leaves it to fedq to nominate clusters.
pub const DISPATCHING: &str = "dispatching";
/// The cluster whose Kueue shares by weights.
pub const FAIR: &str = "fair";

/// Installs AppWrapper's, JobSet's and Kueue's kinds, starts Kueue and puts its webhooks before the API server.
pub async fn install(cluster: &Cluster, supervisor: &Arc<Supervisor>, tools: &Arc<Tools>) -> Result<()> {
    // The hub's Kueue watches JobSets and AppWrappers on its workers, and a worker without a kind never becomes active.
    install_crds(cluster, APPWRAPPER_CRD).await?;
    for crds in ["kueue-crds", "jobset-crds"] {
        install_crds(cluster, &tools.manifests(crds)?).await?;
    }
    cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: kueue-system}}").await?;

    let kubeconfig = cluster.plane.component_kubeconfig("kueue")?;
    let certs = cluster.plane.authority().dir();
    let (kueue, webhook_port) = with_free_ports(async |[webhook, health]: [u16; 2]| {
        let config = cluster.dir().join("kueue.yaml");
        std::fs::write(&config, serde_saphyr::to_string(&configuration(cluster, webhook, health))?)?;
        let server = supervisor.spawn(
            Command::new("unshare")
                .args(["--user", "--map-root-user", "--mount", "sh", "-ec", WITH_OWN_ETC, "kueue"])
                .arg(certs)
                .arg(tools.program("kueue"))
                .arg("--config")
                .arg(&config)
                .arg("--kubeconfig")
                .arg(&kubeconfig),
            "kueue",
            &cluster.log_path("kueue"),
        )?;
        wait_ready(&server, &format!("http://127.0.0.1:{health}"), "/readyz", None).await?;
        Ok((server, webhook))
    })
    .await
    .context("start Kueue")?;
    cluster.plane.watch_over(kueue);

    let manifests = tools.manifests("kueue-webhooks")?;
    install_webhooks(cluster, &manifests, ("kueue", &WEBHOOK_KINDS, webhook_port)).await?;
    wait_for_webhooks(cluster).await
}

fn configuration(cluster: &Cluster, webhook: u16, health: u16) -> Value {
    let dispatcher = if cluster.name == DISPATCHING {
        "fedq.dev/dispatcher"
    } else {
        "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
    };
    let mut configuration = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "leaderElection": {"leaderElect": false},
        // Its own default of 20 requests a second would be what cases wait for.
        "clientConnection": {"qps": 200, "burst": 400},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": cluster.plane.authority().dir()},
        "internalCertManagement": {"enable": false},
        "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "workload.codeflare.dev/appwrapper"]},
        // Short times: cases stop and start clusters, and wait for Kueue to notice.
        "multiKueue": {
            "origin": cluster.name, "gcInterval": "10s", "workerLostTimeout": "30s", "dispatcherName": dispatcher,
        },
        // Visibility would be an aggregated API server, which needs a service inside the cluster.
        "featureGates": {"VisibilityOnDemand": false},
    });
    if cluster.name == FAIR {
        configuration["fairSharing"] =
            json!({"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]});
    }
    configuration
}

pub async fn install_crds(cluster: &Cluster, yaml: &str) -> Result<()> {
    cluster.apply(yaml).await?;
    let crds: Vec<Value> = serde_saphyr::from_multiple(yaml)?;
    for crd in crds.iter().filter_map(|crd| crd["metadata"]["name"].as_str()) {
        cluster
            .wait(
                id("apiextensions.k8s.io/v1", "CustomResourceDefinition", crd),
                "served",
                SERVED_WITHIN,
                |crd| has_condition(crd, "Established", "True"),
            )
            .await?;
    }
    Ok(())
}

/// With all objects of these kinds.
pub async fn remove_crds(cluster: &Cluster, yaml: &str) -> Result<()> {
    let crds: Vec<Value> = serde_saphyr::from_multiple(yaml)?;
    for name in crds.iter().filter_map(|crd| crd["metadata"]["name"].as_str()) {
        let crd = id("apiextensions.k8s.io/v1", "CustomResourceDefinition", name);
        cluster.delete(crd).await?;
        cluster.wait_gone(crd, SERVED_WITHIN).await?;
    }
    Ok(())
}

/// Those of a program at a port, for these kinds only.
pub async fn install_webhooks(
    cluster: &Cluster,
    yaml: &str,
    (program, kinds, port): (&str, &[&str], u16),
) -> Result<()> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml)?;
    for mut document in documents {
        let Some(webhooks) = document.get_mut("webhooks").and_then(Value::as_array_mut) else { continue };
        webhooks.retain(|webhook| {
            let kind = webhook.pointer("/rules/0/resources/0").and_then(Value::as_str).unwrap_or_default();
            kinds.contains(&kind.split('/').next().unwrap_or_default())
        });
        for webhook in webhooks {
            let path =
                webhook["clientConfig"]["service"]["path"].as_str().context("a webhook without a path")?;
            webhook["clientConfig"] = json!({
                "url": format!("https://127.0.0.1:{port}{path}"),
                "caBundle": base64(cluster.plane.authority().ca_pem.as_bytes()),
            });
        }
        let name = format!("{program}-{}", document["metadata"]["name"].as_str().unwrap_or_default());
        document["metadata"]["name"] = name.into();
        cluster.apply_object("fedq-test", document).await?;
    }
    Ok(())
}

/// The API server takes up a new webhook configuration a little later; until then objects pass unchecked.
async fn wait_for_webhooks(cluster: &Cluster) -> Result<()> {
    let wrong = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "webhook-probe"},
        "spec": {"cohortName": "webhook-probe", "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "webhook-probe", "resources": [{"name": "cpu", "nominalQuota": "1", "lendingLimit": "2"}]},
        ]}]},
    });
    let probe = id("kueue.x-k8s.io/v1beta2", "ClusterQueue", "webhook-probe");
    eventually("Kueue's webhook to refuse a wrong ClusterQueue", SERVED_WITHIN, async || {
        let params = kube::api::PostParams { dry_run: true, ..Default::default() };
        let object = serde_json::from_value(wrong.clone())?;
        Ok(match cluster.api(probe).await?.create(&params, &object).await {
            Err(kube::Error::Api(status)) if status.message.contains("lendingLimit") => Seen::Done(()),
            Err(error) => Seen::Still(error.to_string()),
            Ok(_) => Seen::Still("it was accepted".to_owned()),
        })
    })
    .await
}

/// Runs a Job of no size through Kueue and the controllers around it, which after a break of the API server
/// are blind for as long as they wait between their tries.
pub async fn wait_until_it_follows(cluster: &Cluster) -> Result<()> {
    let name = format!("follows-{}", std::process::id());
    let objects = [
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}}),
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": name, "resources": [{"name": "cpu", "nominalQuota": "1"}]},
            ]}]},
        }),
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": name},
        }),
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": name},
            },
            "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [
                {"name": "main", "image": "example.invalid/none", "resources": {"requests": {"cpu": "1m"}}},
            ]}}},
        }),
    ];
    for object in objects {
        cluster.apply_object("fedq-test", object).await?;
    }
    let job = id("batch/v1", "Job", &name).within("default");
    cluster.wait(job, "admitted", FOLLOWS_WITHIN, |job| job["spec"]["suspend"] == false).await?;
    cluster.delete(job).await?;
    cluster.wait_gone(job, FOLLOWS_WITHIN).await?;
    for kind in ["LocalQueue", "ClusterQueue", "ResourceFlavor"] {
        let gone = id("kueue.x-k8s.io/v1beta2", kind, &name);
        let gone = if kind == "LocalQueue" { gone.within("default") } else { gone };
        cluster.delete(gone).await?;
        cluster.wait_gone(gone, FOLLOWS_WITHIN).await?;
    }
    Ok(())
}
