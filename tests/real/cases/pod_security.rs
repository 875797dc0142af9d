//! What Pod Security forbids on the hub, nobody does on a worker.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::stage::{Assign, GPU, KUEUE, SOON, Stage, ground, queue};
use crate::support::cluster::{Cluster, id};
use crate::support::fleet::Fleet;
use crate::support::nodes::node;

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

pub async fn a_worker_refuses_pods_that_the_hub_refuses(fleet: &Fleet) -> Result<()> {
    let case = "secure";
    let stage = Stage::set_with(
        fleet,
        "a_worker_refuses_pods_that_the_hub_refuses",
        case,
        super::stage::PATIENT,
        "namespaces: {podSecurity: restricted}",
    )
    .await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "secure-queue", &[(GPU, "0")], "")).await?;
    hub.apply(&format!(
        "
apiVersion: v1
kind: Namespace
metadata: {{name: secure-baseline, labels: {{{ENFORCE}: baseline}}}}
---
apiVersion: {KUEUE}
kind: LocalQueue
metadata: {{name: secure-queue, namespace: secure-baseline}}
spec: {{clusterQueue: secure-queue}}
"
    ))
    .await?;
    stage.join("secure-one", worker).await?;
    let one = Assign { queue: "secure-queue", flavor: case, resources: &[(GPU, "4")] };
    stage.assign("secure-one", &[one]).await?;
    for namespace in [case, "secure-baseline"] {
        let queue = id(KUEUE, "LocalQueue", "secure-queue").within(namespace);
        worker.wait(queue, "copied", SOON, Value::is_object).await?;
        worker
            .apply(&format!(
                "{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: default, namespace: {namespace}}}}}"
            ))
            .await?;
    }
    // The hub's own label is copied; where it has none, the strictest counts.
    refuses(worker, "secure-baseline", "privileged", true).await?;
    takes(worker, "secure-baseline", "plain").await?;
    refuses(worker, case, "privileged", true).await?;
    refuses(worker, case, "plain", false).await
}

fn pod(namespace: &str, name: &str, privileged: bool) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [
            {"name": "main", "image": "example.com/none", "securityContext": {"privileged": privileged}},
        ]},
    })
}

async fn takes(worker: &Cluster, namespace: &str, name: &str) -> Result<()> {
    worker.apply_object("fedq-test", pod(namespace, name, false)).await?;
    Ok(())
}

async fn refuses(worker: &Cluster, namespace: &str, name: &str, privileged: bool) -> Result<()> {
    match worker.apply_object("fedq-test", pod(namespace, name, privileged)).await {
        Ok(_) => anyhow::bail!("a pod `{name}` that the hub refuses is taken in {namespace}"),
        Err(error) => {
            let said = format!("{error:#}");
            ensure!(said.contains("violates PodSecurity"), "it is refused for another reason: {said}");
            Ok(())
        }
    }
}
