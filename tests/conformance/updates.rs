//! Whole objects put in the place of older ones.

use anyhow::Result;
use serde_json::{Value, json};

use super::expect::{absent, any};
use super::stage::{CLAIMS, NODES, Stage, claim, node, number, secret, version};
use super::subject::Subject;

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    of(stage, &Subject::of(stage)).await?;
    custom(stage).await;
    mismatched(stage).await;
    generation(stage).await;
    Ok(())
}

pub fn conflict(resource: &str, name: &str) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": format!(
            "Operation cannot be fulfilled on {resource} \"{name}\": the object has been modified; please apply \
             your changes to the latest version and try again"
        ),
        "reason": "Conflict",
        "details": {"name": name, "kind": resource.split('.').next()},
        "code": 409,
    })
}

pub async fn of(stage: &Stage<'_>, subject: &Subject<'_>) -> Result<()> {
    let path = subject.path_of("a");
    let made = subject.make("a").await;
    let mut changed = made.clone();
    changed["metadata"]["labels"]["k"] = json!("1");
    let expected = json!({
        "metadata": {
            "labels": {"k": "1"},
            "uid": made["metadata"]["uid"],
            "creationTimestamp": made["metadata"]["creationTimestamp"],
        },
    });
    let stored = stage.put(&path, changed.clone()).gives(200, expected).await;
    stage.check(number(&made) < number(&stored), || "an update does not move the version".to_owned());

    let name = subject.name("a");
    stage.put(&path, changed.clone()).gives(409, conflict(subject.plural, &name)).await;
    // Without a version the last writer wins.
    changed["metadata"] = json!({"name": name, "labels": {"k": "2"}});
    let stored = stage.put(&path, changed).gives(200, json!({"metadata": {"labels": {"k": "2"}}})).await;

    // The same again is no write.
    let same = stage.put(&path, stored.clone()).gives(200, json!({"kind": subject.kind})).await;
    stage.check(version(&same) == version(&stored), || {
        "an update that changes nothing moves the version".to_owned()
    });
    let message = format!("{} \"{}\" not found", subject.plural, subject.name("b"));
    let missing = json!({"reason": "NotFound", "message": message, "code": 404});
    stage.put(&subject.path_of("b"), subject.body("b")).gives(404, missing).await;
    let found = stage.get(&path).gives(200, json!({"metadata": {"resourceVersion": version(&stored)}})).await;
    // What it is but for that it keeps to the last field.
    let before = json!({"data": made["data"], "spec": made["spec"], "status": made["status"]});
    let after = json!({"data": found["data"], "spec": found["spec"], "status": found["status"]});
    stage.check(before == after, || format!("{before} became {after}"));
    Ok(())
}

async fn custom(stage: &Stage<'_>) {
    let name = stage.named("a");
    let path = format!("{CLAIMS}/{name}");
    let made = stage.make(CLAIMS, claim(&name)).await;
    let mut changed = made.clone();
    changed["spec"]["nominalResources"] = json!({"cpu": "4", "memory": "1Gi"});
    let stored = stage
        .put(&path, changed.clone())
        .gives(200, json!({"metadata": {"generation": 2}, "spec": {"nominalResources": {"cpu": "4"}}}))
        .await;
    stage
        .put(&path, changed)
        .gives(409, conflict("clusterresourceclaims.galaxy.kubestellar.io", &name))
        .await;
    // A custom resource is never replaced blindly.
    let blind = json!({
        "reason": "Invalid",
        "message": format!(
            "clusterresourceclaims.galaxy.kubestellar.io \"{name}\" is invalid: metadata.resourceVersion: \
             Invalid value: 0: must be specified for an update"
        ),
        "code": 422,
    });
    stage.put(&path, claim(&name)).gives(422, blind).await;
    let same = stage.put(&path, stored.clone()).gives(200, json!({"metadata": {"generation": 2}})).await;
    stage.check(version(&same) == version(&stored), || {
        "an update that changes nothing moves the version".to_owned()
    });

    let mut moved = stored.clone();
    moved["spec"]["clusterName"] = json!("elsewhere");
    let immutable = json!({
        "reason": "Invalid",
        "message": format!(
            "ClusterResourceClaim.galaxy.kubestellar.io \"{name}\" is invalid: spec.clusterName: Forbidden: \
             clusterName is immutable: delete the claim and create one for the other cluster"
        ),
        "code": 422,
    });
    stage.put(&path, moved).gives(422, immutable).await;
    let mut negative = stored;
    negative["spec"]["nominalResources"] = json!({"cpu": "-1"});
    stage.put(&path, negative).refused(422, "Invalid", "every quantity must be 0 or more").await;
}

async fn mismatched(stage: &Stage<'_>) {
    let path = format!("{}/a", stage.secrets());
    let name = "the name of the object (b) does not match the name on the URL (a)";
    stage.put(&path, secret("b")).refused(400, "BadRequest", name).await;
    let mut other = secret("a");
    other["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    let uid = "Precondition failed: UID in precondition: 00000000-0000-0000-0000-000000000000, UID in object meta: ";
    stage.put(&path, other).refused(409, "Conflict", uid).await;
}

/// Moves with the spec alone, and not for every kind.
async fn generation(stage: &Stage<'_>) {
    let name = stage.named("g");
    let path = format!("{CLAIMS}/{name}");
    let made = stage.make(CLAIMS, claim(&name)).await;
    let mut labelled = made;
    labelled["metadata"]["labels"] = json!({"a": "b"});
    labelled["metadata"]["generation"] = json!(77);
    let stored = stage
        .put(&path, labelled)
        .gives(200, json!({"metadata": {"generation": 1, "labels": {"a": "b"}}}))
        .await;
    let mut changed = stored;
    changed["spec"]["nominalResources"] = json!({"gpu": 1});
    stage
        .put(&path, changed)
        .gives(200, json!({"metadata": {"generation": 2}, "spec": {"nominalResources": {"gpu": 1}}}))
        .await;

    let made = stage.make(NODES, node(&name)).await;
    stage.check(made["metadata"]["generation"].is_null(), || "a node has a generation".to_owned());
    let mut secret = secret("generation");
    secret["data"] = json!({"k": "dg=="});
    let answer =
        stage.post(&stage.secrets(), secret).gives(201, json!({"metadata": {"generation": absent()}})).await;
    stage
        .get(&format!("{}/generation", stage.secrets()))
        .gives(200, json!({"metadata": {"uid": answer["metadata"]["uid"], "resourceVersion": any()}}))
        .await;
}
