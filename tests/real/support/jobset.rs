//! JobSet's controller beside the cluster instead of inside it, with its webhooks.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::cluster::{Cluster, id};
use super::control_plane::{wait_ready, with_free_ports};
use super::kueue::install_webhooks;
use super::process::Supervisor;
use super::tools::Tools;
use super::wait::{Seen, eventually};

const SERVED_WITHIN: Duration = Duration::from_mins(1);

/// Its kinds are there already: Kueue watches them too.
pub async fn install(cluster: &Cluster, supervisor: &Arc<Supervisor>, tools: &Arc<Tools>) -> Result<()> {
    let kubeconfig = cluster.plane.component_kubeconfig("jobset")?;
    let certs = cluster.plane.authority().dir();
    let (controller, webhook_port) = with_free_ports(async |[webhook, health]: [u16; 2]| {
        let config = cluster.dir().join("jobset.yaml");
        let settings = json!({
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": false},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
            "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": certs},
            "internalCertManagement": {"enable": false},
        });
        std::fs::write(&config, serde_saphyr::to_string(&settings)?)?;
        let server = supervisor.spawn(
            Command::new(tools.program("jobset"))
                .arg("--config")
                .arg(&config)
                .arg("--kubeconfig")
                .arg(&kubeconfig),
            "jobset",
            &cluster.log_path("jobset"),
        )?;
        wait_ready(&server, &format!("http://127.0.0.1:{health}"), "/readyz", None).await?;
        Ok((server, webhook))
    })
    .await
    .context("start JobSet's controller")?;
    cluster.plane.watch_over(controller);
    // Those for pods only serve placement that nobody here asks for.
    let manifests = tools.manifests("jobset-webhooks")?;
    install_webhooks(cluster, &manifests, ("jobset", &["jobsets"], webhook_port)).await?;
    wait_for_webhooks(cluster).await
}

/// The API server takes up a new webhook configuration a little later; until then nothing gets its defaults.
async fn wait_for_webhooks(cluster: &Cluster) -> Result<()> {
    let probe = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "webhook-probe", "namespace": "default"},
        "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "main", "image": "example.invalid/none"}],
        }}}}}]},
    });
    let of = id("jobset.x-k8s.io/v1alpha2", "JobSet", "webhook-probe").within("default");
    eventually("JobSet's webhook to fill in what is left out", SERVED_WITHIN, async || {
        let params = kube::api::PostParams { dry_run: true, ..Default::default() };
        let object = serde_json::from_value(probe.clone())?;
        Ok(match cluster.api(of).await?.create(&params, &object).await {
            Ok(made) if made.data["spec"]["successPolicy"].is_object() => Seen::Done(()),
            Ok(made) => Seen::Still(made.data.to_string()),
            Err(error) => Seen::Still(error.to_string()),
        })
    })
    .await
}
