//! Changes to parts of objects: merge patches, strategic ones and lists of operations.

use anyhow::Result;
use serde_json::json;

use super::expect::{absent, only};
use super::stage::{CLAIMS, JSON_PATCH, MERGE, NODES, STRATEGIC, Stage, claim, node, secret, version};
use super::subject::Subject;
use super::updates::conflict;

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    of(stage, &Subject::of(stage)).await?;
    merge_custom(stage).await;
    strategic(stage).await;
    operations(stage).await;
    refused(stage).await;
    Ok(())
}

pub async fn of(stage: &Stage<'_>, subject: &Subject<'_>) -> Result<()> {
    let path = subject.path_of("a");
    let made = subject.make("a").await;
    let patch = json!({"metadata": {"labels": {"x": "1", "y": "2"}}});
    stage.patch(&path, MERGE, patch.clone()).gives(200, patch).await;
    let patch = json!({"metadata": {"labels": {"x": null, "z": "3"}}});
    let labels = json!({"x": absent(), "y": "2", "z": "3"});
    let changed =
        stage.patch(&path, MERGE, patch.clone()).gives(200, json!({"metadata": {"labels": labels}})).await;
    let same = stage.patch(&path, MERGE, patch).gives(200, json!({"kind": subject.kind})).await;
    stage.check(version(&same) == version(&changed), || {
        "a patch that changes nothing moves the version".to_owned()
    });

    let stale = json!({"metadata": {"resourceVersion": version(&made), "labels": {"q": "1"}}});
    stage.patch(&path, MERGE, stale).gives(409, conflict(subject.plural, &subject.name("a"))).await;
    let fresh = json!({"metadata": {"resourceVersion": version(&changed), "labels": {"q": "1"}}});
    stage.patch(&path, MERGE, fresh).gives(200, json!({"metadata": {"labels": {"q": "1"}}})).await;
    stage
        .patch(&path, MERGE, json!({"metadata": {"labels": null}}))
        .gives(200, json!({"metadata": {"labels": absent()}}))
        .await;
    let message = format!("{} \"{}\" not found", subject.plural, subject.name("b"));
    let missing = json!({"reason": "NotFound", "message": message});
    stage.patch(&subject.path_of("b"), MERGE, json!({})).gives(404, missing).await;
    let noted = json!({"metadata": {"annotations": {"noted": "yes"}}});
    stage.patch(&format!("{path}?dryRun=All"), MERGE, noted.clone()).gives(200, noted).await;
    stage
        .get(&path)
        .gives(200, json!({"metadata": {"labels": absent(), "annotations": unnoted(subject)}}))
        .await;
    Ok(())
}

/// Secrets have no annotations at all.
fn unnoted(subject: &Subject<'_>) -> serde_json::Value {
    if subject.are_nodes() { json!({"noted": absent()}) } else { absent() }
}

async fn merge_custom(stage: &Stage<'_>) {
    let name = stage.named("a");
    let path = format!("{CLAIMS}/{name}");
    let made = stage.make(CLAIMS, claim(&name)).await;
    let patch = json!({"spec": {"nominalResources": {"cpu": "1", "gpu": 2}}});
    stage.patch(&path, MERGE, patch).gives(200, json!({"metadata": {"generation": 2}})).await;
    let patch = json!({"spec": {"nominalResources": {"cpu": null}, "unknown": 1}});
    let pruned = json!({
        "metadata": {"generation": 3},
        "spec": only(json!({"clusterName": "somewhere", "nominalResources": only(json!({"gpu": 2}))})),
    });
    stage.patch(&path, MERGE, patch).gives(200, pruned).await;
    let stale =
        json!({"metadata": {"resourceVersion": version(&made)}, "spec": {"nominalResources": {"cpu": "5"}}});
    stage
        .patch(&path, MERGE, stale)
        .gives(409, conflict("clusterresourceclaims.galaxy.kubestellar.io", &name))
        .await;
    let wrong = json!({"spec": {"nominalResources": {"cpu": "nonsense"}}});
    let invalid = "spec.nominalResources.cpu: Invalid value: \"nonsense\"";
    stage.patch(&path, MERGE, wrong).refused(422, "Invalid", invalid).await;
    let required = "spec.clusterName: Required value";
    stage.patch(&path, MERGE, json!({"spec": {"clusterName": null}})).refused(422, "Invalid", required).await;
    let strict = "strict decoding error: unknown field \"spec.nope\"";
    stage
        .patch(&format!("{path}?fieldValidation=Strict"), MERGE, json!({"spec": {"nope": 1}}))
        .refused(422, "Invalid", strict)
        .await;
    let strategic = json!({"reason": "UnsupportedMediaType", "code": 415});
    stage.patch(&path, STRATEGIC, json!({"spec": {}})).gives(415, strategic).await;
}

/// Lists with keys are merged element by element; what kubelet does to its node.
async fn strategic(stage: &Stage<'_>) {
    let name = stage.named("n");
    let mut body = node(&name);
    body["spec"] = json!({"taints": [{"key": "a", "effect": "NoSchedule"}], "unschedulable": true});
    // Whatever plays kubelet fills in only what is missing.
    let capacity = json!({"cpu": "4", "example.com/x": "1"});
    body["status"] = json!({"capacity": capacity, "allocatable": capacity});
    stage.make(NODES, body).await;
    let path = format!("{NODES}/{name}");
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
    let conditions = json!([condition("FedqOne", "False"), condition("FedqTwo", "True")]);
    let patch = json!({"status": {"conditions": conditions}});
    stage.patch(&format!("{path}/status"), STRATEGIC, patch).gives(200, json!({"kind": "Node"})).await;
    let patch = json!({
        "status": {"conditions": [condition("FedqOne", "True")], "capacity": {"example.com/x": null}},
    });
    let merged = json!({"status": {
        "conditions": super::expect::with(json!([condition("FedqOne", "True"), condition("FedqTwo", "True")])),
        "capacity": {"cpu": "4", "example.com/x": absent()},
    }});
    stage.patch(&format!("{path}/status"), STRATEGIC, patch).gives(200, merged).await;
    let patch = json!({"status": {"conditions": [{"type": "FedqTwo", "$patch": "delete"}]}});
    let left =
        stage.patch(&format!("{path}/status"), STRATEGIC, patch).gives(200, json!({"kind": "Node"})).await;
    let all = left["status"]["conditions"].to_string();
    stage.check(!all.contains("FedqTwo") && all.contains("FedqOne"), || format!("conditions {all}"));

    let patch = json!({"spec": {"unschedulable": null}, "metadata": {"labels": {"l": "1"}}});
    let patched = json!({"spec": {"unschedulable": absent()}, "metadata": {"labels": {"l": "1"}}});
    stage.patch(&path, STRATEGIC, patch).gives(200, patched).await;
    // A merge patch replaces lists whole.
    stage
        .patch(
            &format!("{path}/status"),
            MERGE,
            json!({"status": {"addresses": [{"type": "Hostname", "address": "h"}]}}),
        )
        .gives(200, json!({"status": {"addresses": [{"type": "Hostname", "address": "h"}]}}))
        .await;
}

async fn operations(stage: &Stage<'_>) {
    let name = stage.named("j");
    let path = format!("{CLAIMS}/{name}");
    stage.make(CLAIMS, claim(&name)).await;
    let patch = json!([
        {"op": "test", "path": "/spec/clusterName", "value": "somewhere"},
        {"op": "add", "path": "/spec/nominalResources", "value": {"cpu": "1"}},
        {"op": "add", "path": "/spec/nominalResources/example.com~1x", "value": 3},
        {"op": "add", "path": "/metadata/finalizers", "value": ["fedq.dev/one"]},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "fedq.dev/two"},
    ]);
    let patched = json!({
        "metadata": {"finalizers": ["fedq.dev/one", "fedq.dev/two"]},
        "spec": {"nominalResources": {"cpu": "1", "example.com/x": 3}},
    });
    stage.patch(&path, JSON_PATCH, patch).gives(200, patched).await;
    let patch = json!([
        {"op": "remove", "path": "/metadata/finalizers"},
        {"op": "replace", "path": "/spec/nominalResources/cpu", "value": "2"},
    ]);
    let patched = json!({
        "metadata": {"finalizers": absent(), "generation": 3},
        "spec": {"nominalResources": {"cpu": "2"}},
    });
    stage.patch(&path, JSON_PATCH, patch).gives(200, patched).await;
    let failed = json!([{"op": "test", "path": "/spec/clusterName", "value": "elsewhere"}]);
    stage.patch(&path, JSON_PATCH, failed).refused(422, "Invalid", "").await;
    let nowhere = json!([{"op": "remove", "path": "/spec/nothing"}]);
    stage.patch(&path, JSON_PATCH, nowhere).refused(422, "Invalid", "").await;
    stage.patch(&path, JSON_PATCH, json!({"op": "remove"})).refused(400, "BadRequest", "").await;
}

async fn refused(stage: &Stage<'_>) {
    let path = format!("{}/a", stage.secrets());
    stage.patch(&path, MERGE, json!(null)).body("{").refused(400, "BadRequest", "").await;
    stage.patch(&path, "application/nonsense", json!({})).refused(415, "UnsupportedMediaType", "").await;
    stage
        .patch(&path, MERGE, json!({"metadata": {"name": "b"}}))
        .refused(400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)")
        .await;
    let uid = json!({"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}});
    stage
        .patch(&path, MERGE, uid)
        .refused(
            422,
            "Invalid",
            "metadata.uid: Invalid value: \"00000000-0000-0000-0000-000000000000\": field is immutable",
        )
        .await;
    let typed = json!({"data": {"k": 5}});
    stage.patch(&path, STRATEGIC, typed).refused(422, "Invalid", "patch: Invalid value: ").await;
    stage.make(&stage.secrets(), secret("last")).await;
}
