//! What becomes of objects when their owner goes: after it, before it, or let go.

use anyhow::Result;
use serde_json::{Value, json};

use super::expect::{absent, time};
use super::stage::{JSON_PATCH, Stage, secret, text};

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    foreground(stage).await;
    orphaned(stage).await;
    jobs(stage).await;
    Ok(())
}

/// Makes a Secret that is owned by another.
async fn owned(stage: &Stage<'_>, name: &str, owner: &Value, finalizers: Value) {
    let mut body = secret(name);
    body["metadata"]["finalizers"] = finalizers;
    body["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "Secret", "name": text(owner, "/metadata/name"),
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
    }]);
    stage.make(&stage.secrets(), body).await;
}

/// The owner waits until what blocks it is gone.
async fn foreground(stage: &Stage<'_>) {
    let path = stage.secrets();
    let owner = stage.make(&path, secret("first")).await;
    owned(stage, "held", &owner, json!(["fedq.dev/one"])).await;
    owned(stage, "free", &owner, json!([])).await;
    let waits = json!({
        "kind": "Secret",
        "metadata": {"name": "first", "finalizers": ["foregroundDeletion"], "deletionTimestamp": time()},
    });
    stage.delete(&format!("{path}/first?propagationPolicy=Foreground")).gives(200, waits.clone()).await;
    stage.becomes(&format!("{path}/free"), 404, json!({"reason": "NotFound"})).await;
    stage.becomes(&format!("{path}/held"), 200, json!({"metadata": {"deletionTimestamp": time()}})).await;
    stage.get(&format!("{path}/first")).gives(200, waits).await;
    let release = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
    stage.patch(&format!("{path}/held"), JSON_PATCH, release).gives(200, json!({"kind": "Secret"})).await;
    for name in ["held", "first"] {
        stage.becomes(&format!("{path}/{name}"), 404, json!({"reason": "NotFound"})).await;
    }
}

async fn orphaned(stage: &Stage<'_>) {
    let path = stage.secrets();
    let owner = stage.make(&path, secret("parent")).await;
    owned(stage, "child", &owner, json!([])).await;
    let waits = json!({"metadata": {"finalizers": ["orphan"], "deletionTimestamp": time()}});
    stage.delete(&format!("{path}/parent?propagationPolicy=Orphan")).gives(200, waits).await;
    stage.becomes(&format!("{path}/parent"), 404, json!({"reason": "NotFound"})).await;
    let left = json!({"metadata": {"name": "child", "ownerReferences": absent()}});
    stage.get(&format!("{path}/child")).gives(200, left).await;
}

/// Jobs leave their pods behind unless told otherwise, and whoever does not say is warned.
async fn jobs(stage: &Stage<'_>) {
    let path = stage.within("/apis/batch/v1", "jobs");
    let template = json!({"spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "example.invalid/x"}],
    }});
    for name in ["silent", "told"] {
        let spec = json!({"suspend": true, "template": template});
        stage.make(&path, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    let waits = json!({"kind": "Job", "metadata": {"finalizers": ["orphan"]}});
    let answer = stage.delete(&format!("{path}/silent")).answers(200, waits).await;
    let warning = answer.map(|answer| answer.header("warning").to_owned()).unwrap_or_default();
    let wanted = "299 - \"child pods are preserved by default when jobs are deleted; ";
    stage.check(warning.starts_with(wanted), || format!("warning {warning:?}"));
    let answer = stage
        .delete(&format!("{path}/told?propagationPolicy=Background"))
        .answers(200, json!({"status": "Success"}))
        .await;
    stage.check(answer.is_some_and(|answer| answer.header("warning").is_empty()), || {
        "who says what becomes of pods is warned".to_owned()
    });
    stage.becomes(&path, 200, json!({"items": []})).await;
}
