//! The status of an object is written apart from all else.

use anyhow::Result;
use serde_json::json;

use super::expect::{absent, any, has, only};
use super::stage::{CLAIMS, MERGE, NODES, QUEUES, STRATEGIC, Stage, claim, node, version};
use super::subject::Subject;
use super::updates::conflict;

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    custom(stage).await;
    applied(stage).await;
    nodes(stage).await;
    Ok(())
}

async fn custom(stage: &Stage<'_>) {
    let name = stage.named("a");
    let (path, status) = (format!("{CLAIMS}/{name}"), format!("{CLAIMS}/{name}/status"));
    let made = stage.make(CLAIMS, claim(&name)).await;
    let patch = json!({
        "metadata": {"labels": {"l": "1"}},
        "spec": {"nominalResources": {"cpu": "1"}},
        "status": {"short": "gpu 1"},
    });
    let written = json!({
        "metadata": {"generation": 1, "labels": absent()},
        "spec": only(json!({"clusterName": "somewhere"})),
        "status": {"short": "gpu 1"},
    });
    stage.patch(&status, MERGE, patch).gives(200, written).await;

    let patch = json!({"spec": {"nominalResources": {"cpu": "1"}}, "status": {"short": "gpu 2"}});
    let written = json!({
        "metadata": {"generation": 2},
        "spec": {"nominalResources": {"cpu": "1"}},
        "status": {"short": "gpu 1"},
    });
    let whole = stage.patch(&path, MERGE, patch).gives(200, written).await;
    // Nothing but a status, sent to where none is written, is no change.
    let same = stage
        .patch(&path, MERGE, json!({"status": {"short": "gpu 3"}}))
        .gives(200, json!({"status": {"short": "gpu 1"}}))
        .await;
    stage.check(version(&same) == version(&whole), || "an ignored status moves the version".to_owned());

    let mut put = whole.clone();
    put["status"] = json!({"short": "gpu 4"});
    put["spec"]["nominalResources"] = json!({"cpu": "9"});
    let replaced = json!({
        "metadata": {"generation": 2},
        "spec": {"nominalResources": {"cpu": "1"}},
        "status": only(json!({"short": "gpu 4"})),
    });
    stage.put(&status, put.clone()).gives(200, replaced).await;
    stage.put(&status, put).gives(409, conflict("clusterresourceclaims.galaxy.kubestellar.io", &name)).await;
    stage
        .get(&status)
        .gives(200, json!({"kind": "ClusterResourceClaim", "status": {"short": "gpu 4"}}))
        .await;
    let mut emptied = made;
    emptied["metadata"]["resourceVersion"] = json!(version(&stage.get(&path).gives(200, json!({})).await));
    stage
        .put(&path, emptied)
        .gives(200, json!({"metadata": {"generation": 3}, "status": {"short": "gpu 4"}}))
        .await;
    let wrong = json!({"status": {"conditions": "none"}});
    stage
        .patch(&status, MERGE, wrong)
        .refused(422, "Invalid", "status.conditions: Invalid value: \"string\"")
        .await;
    stage.patch(&format!("{CLAIMS}/none/status"), MERGE, json!({})).refused(404, "NotFound", "").await;
}

async fn applied(stage: &Stage<'_>) {
    let name = stage.named("s");
    let status = format!("{CLAIMS}/{name}/status");
    let condition = |kind: &str, value: &str| {
        json!({
            "type": kind,
            "status": value,
            "reason": "Test",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let body = |conditions: serde_json::Value| {
        json!({
            "apiVersion": "galaxy.kubestellar.io/v1alpha1",
            "kind": "ClusterResourceClaim",
            "metadata": {"name": name},
            "status": {"conditions": conditions},
        })
    };
    // A status makes no object.
    stage.apply(&status, "one", body(json!([condition("Ready", "True")]))).refused(404, "NotFound", "").await;
    stage.make(CLAIMS, claim(&name)).await;
    let owned = json!({"metadata": {"generation": 1, "managedFields": super::expect::with(json!([{
        "manager": "one",
        "operation": "Apply",
        "subresource": "status",
        "fieldsV1": only(json!({
            "f:status": only(json!({"f:conditions": only(json!({"k:{\"type\":\"Ready\"}": any()}))})),
        })),
    }]))}});
    stage.apply(&status, "one", body(json!([condition("Ready", "True")]))).gives(200, owned).await;
    let both = json!({"status": {"conditions": [condition("Ready", "True"), condition("Other", "False")]}});
    stage.apply(&status, "two", body(json!([condition("Other", "False")]))).gives(200, both).await;
    let conflict = json!({
        "reason": "Conflict",
        "message": has("conflict with \"one\" with subresource \"status\""),
        "details": {"causes": [{"field": ".status.conditions[type=\"Ready\"].status"}]},
    });
    stage
        .apply(&status, "two", body(json!([condition("Other", "False"), condition("Ready", "False")])))
        .gives(409, conflict)
        .await;
    stage
        .apply(&status, "one", body(json!([])))
        .gives(200, json!({"status": {"conditions": [condition("Other", "False")]}}))
        .await;
}

async fn nodes(stage: &Stage<'_>) {
    let name = stage.named("n");
    let mut body = node(&name);
    body["status"] = json!({"allocatable": {"cpu": "4"}});
    // A built-in kind keeps the status it was created with.
    stage.post(NODES, body).gives(201, json!({"status": {"allocatable": {"cpu": "4"}}})).await;
    apart(stage, &format!("{NODES}/{name}"), "4").await;

    let queue = stage.named("q");
    let body = json!({
        "metadata": {"name": queue},
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "spec": {},
        "status": {"pendingWorkloads": 7},
    });
    stage.post(QUEUES, body).gives(201, json!({"status": absent()})).await;
}

/// Nodes are read and written like all else.
pub async fn of(stage: &Stage<'_>, subject: &Subject<'_>) -> Result<()> {
    let made = subject.make("a").await;
    let cpu = made["status"]["allocatable"]["cpu"].as_str().unwrap_or_default();
    let path = subject.path_of("a");
    apart(stage, &path, cpu).await;
    let part = json!({"kind": "Node", "status": {"allocatable": {"cpu": "5"}}});
    stage.get(&format!("{path}/status")).gives(200, part).await;

    // As kubelets report.
    let ready = |status: &str| json!([{"type": "Ready", "status": status, "reason": "Test"}]);
    let patch = json!({"status": {"conditions": ready("False")}});
    let merged = json!({"status": {"conditions": super::expect::with(json!([
        {"type": "Ready", "status": "False", "reason": "Test"},
        {"type": "DiskPressure", "status": "False"},
    ]))}});
    stage.patch(&format!("{path}/status"), STRATEGIC, patch.clone()).gives(200, merged).await;
    let missing = stage.patch(&format!("{}/status", subject.path_of("b")), STRATEGIC, patch);
    missing.refused(404, "NotFound", "").await;
    Ok(())
}

/// A status is written where it is, and nothing else is there.
async fn apart(stage: &Stage<'_>, path: &str, cpu: &str) {
    let patch = json!({"status": {"allocatable": {"cpu": "5"}}});
    let status = format!("{path}/status");
    let as_before = json!({"status": {"allocatable": {"cpu": cpu}}});
    stage.patch(path, MERGE, patch.clone()).gives(200, as_before).await;
    stage.patch(&status, MERGE, patch.clone()).gives(200, patch).await;
    let unschedulable = json!({"spec": {"unschedulable": true}});
    stage.patch(&status, MERGE, unschedulable).gives(200, json!({"spec": {"unschedulable": absent()}})).await;
}
