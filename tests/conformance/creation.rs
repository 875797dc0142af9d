//! What creating an object gives, and what is refused.

use anyhow::Result;
use serde_json::json;

use super::expect::{absent, any, has, only, time, with};
use super::stage::{CLAIMS, NAMESPACES, NODES, Stage, claim, node, secret, text};

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    stored(stage).await;
    taken(stage).await;
    invalid(stage).await;
    nowhere(stage).await;
    malformed(stage).await;
    strict(stage).await;
    dry(stage).await;
    managers(stage).await;
    Ok(())
}

async fn stored(stage: &Stage<'_>) {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a", "uid": "made-up", "creationTimestamp": "2001-01-01T00:00:00Z"},
        "stringData": {"key": "value"},
        "data": {"other": "b3RoZXI="},
    });
    let made = json!({
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": {
            "name": "a",
            "namespace": stage.name,
            "uid": any(),
            "resourceVersion": any(),
            "creationTimestamp": time(),
            "generation": absent(),
            "selfLink": absent(),
        },
        "data": only(json!({"key": "dmFsdWU=", "other": "b3RoZXI="})),
        "stringData": absent(),
        "type": "Opaque",
    });
    let made = stage.post(&stage.secrets(), secret).gives(201, made).await;
    let uid = text(&made, "/metadata/uid");
    stage.check(uid.len() == 36 && uid != "made-up", || format!("uid {uid}"));
    stage.get(&format!("{}/a", stage.secrets())).gives(200, made).await;

    let name = stage.named("a");
    let mut body = claim(&name);
    body["status"] = json!({"short": "gpu 1"});
    let made = json!({
        "apiVersion": "galaxy.kubestellar.io/v1alpha1",
        "kind": "ClusterResourceClaim",
        "metadata": {
            "name": name,
            "namespace": absent(),
            "uid": any(),
            "generation": 1,
            "creationTimestamp": time(),
        },
        "spec": only(json!({"clusterName": "somewhere"})),
        "status": absent(),
    });
    stage.post(CLAIMS, body).gives(201, made).await;

    let mut generated = super::stage::secret("");
    generated["metadata"] = json!({"generateName": "made-"});
    let made = stage
        .post(&stage.secrets(), generated)
        .gives(201, json!({"metadata": {"generateName": "made-"}}))
        .await;
    let name = text(&made, "/metadata/name");
    stage.check(name.len() == 10 && name.starts_with("made-"), || format!("generated {name:?}"));

    // The kind may be left out: the path says it. Built-in kinds then lack it in nothing.
    stage
        .post(&stage.secrets(), json!({"metadata": {"name": "bare"}}))
        .gives(201, json!({"kind": "Secret"}))
        .await;
    let name = stage.named("b");
    stage.make(NODES, node(&name)).await;
    stage
        .get(&format!("{NAMESPACES}/{}", stage.name))
        .gives(
            200,
            json!({
                "metadata": {"labels": {"kubernetes.io/metadata.name": stage.name}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            }),
        )
        .await;
}

async fn taken(stage: &Stage<'_>) {
    let exists = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "secrets \"a\" already exists",
        "reason": "AlreadyExists",
        "details": {"name": "a", "kind": "secrets"},
        "code": 409,
    });
    stage.post(&stage.secrets(), secret("a")).gives(409, exists).await;
    let name = stage.named("a");
    let exists = json!({
        "message": format!("clusterresourceclaims.galaxy.kubestellar.io \"{name}\" already exists"),
        "reason": "AlreadyExists",
        "details": {"name": name, "group": "galaxy.kubestellar.io", "kind": "clusterresourceclaims"},
    });
    stage.post(CLAIMS, claim(&name)).gives(409, exists).await;
}

async fn invalid(stage: &Stage<'_>) {
    let path = stage.secrets();
    let wrong = "Secret \"Not A Name\" is invalid: metadata.name: Invalid value: \"Not A Name\": ";
    stage.post(&path, secret("Not A Name")).refused(422, "Invalid", wrong).await;
    let nameless = stage.post(&path, json!({"metadata": {}}));
    nameless.refused(422, "Invalid", "name or generateName is required").await;
    let name = stage.named("c");
    let mut missing = claim(&name);
    missing["spec"] = json!({});
    let message = format!(
        "ClusterResourceClaim.galaxy.kubestellar.io \"{name}\" is invalid: [spec.clusterName: Required"
    );
    let cause =
        json!({"reason": "FieldValueRequired", "message": "Required value", "field": "spec.clusterName"});
    let details = json!({
        "name": name,
        "group": "galaxy.kubestellar.io",
        "kind": "ClusterResourceClaim",
        "causes": with(json!([cause])),
    });
    let required = json!({"reason": "Invalid", "message": has(&message), "details": details, "code": 422});
    stage.post(CLAIMS, missing).gives(422, required).await;
}

async fn nowhere(stage: &Stage<'_>) {
    let missing = |kind: &str, name: &str| {
        json!({
            "kind": "Status",
            "status": "Failure",
            "reason": "NotFound",
            "message": format!("{kind} \"{name}\" not found"),
            "details": {"name": name, "kind": kind.split('.').next()},
            "code": 404,
        })
    };
    let path = "/api/v1/namespaces/never-was/secrets";
    stage.post(path, secret("a")).gives(404, missing("namespaces", "never-was")).await;
    stage.get(&format!("{}/none", stage.secrets())).gives(404, missing("secrets", "none")).await;
    let mut absent = missing("clusterresourceclaims.galaxy.kubestellar.io", "none");
    absent["details"]["group"] = json!("galaxy.kubestellar.io");
    stage.get(&format!("{CLAIMS}/none")).gives(404, absent).await;
}

async fn malformed(stage: &Stage<'_>) {
    let path = stage.secrets();
    let mut versioned = secret("v");
    versioned["metadata"]["resourceVersion"] = json!("5");
    let answer = json!({"message": has("resourceVersion should not be set on objects to be created")});
    stage.post(&path, versioned).gives(500, answer).await;
    let mut elsewhere = secret("v");
    elsewhere["metadata"]["namespace"] = json!("kube-system");
    let other = "the namespace of the provided object does not match the namespace sent on the request";
    stage.post(&path, elsewhere).refused(400, "BadRequest", other).await;
    stage.post(&path, claim("v")).refused(400, "BadRequest", "").await;
    stage.post(&path, json!({})).body("{").refused(400, "BadRequest", "").await;
    stage.post(&path, json!({})).body("").refused(400, "BadRequest", "").await;
    stage.post(&format!("{path}/a"), secret("a")).refused(405, "MethodNotAllowed", "").await;
}

/// What becomes of fields that nobody knows: dropped, told of, or refused.
async fn strict(stage: &Stage<'_>) {
    for (path, name) in [(stage.secrets(), "strict".to_owned()), (CLAIMS.to_owned(), stage.named("strict"))] {
        let claimed = path == CLAIMS;
        let mut body = if claimed { claim(&name) } else { secret(&name) };
        if claimed {
            body["spec"]["nope"] = json!(1);
        } else {
            body["nope"] = json!(1);
        }
        let field = if claimed { "unknown field \"spec.nope\"" } else { "unknown field \"nope\"" };
        let unknown = format!("strict decoding error: {field}");
        stage
            .post(&format!("{path}?fieldValidation=Strict"), body.clone())
            .refused(400, "BadRequest", &unknown)
            .await;

        let warned =
            json!({"nope": absent(), "spec": if claimed { json!({"nope": absent()}) } else { absent() }});
        let answer =
            stage.post(&format!("{path}?fieldValidation=Warn"), body.clone()).answers(201, warned).await;
        let warning = answer.map(|answer| answer.header("warning").to_owned()).unwrap_or_default();
        let wanted = format!("299 - \"{}\"", field.replace('"', "\\\""));
        stage.check(warning == wanted, || format!("warning {warning:?}, expected {wanted:?}"));
        stage.delete(&format!("{path}/{name}")).gives(200, json!({"status": "Success"})).await;

        // Warn is what one gets without asking.
        let answer = stage.post(&path, body.clone()).answers(201, json!(null)).await;
        stage.check(answer.is_some_and(|answer| answer.headers.contains_key("warning")), || {
            format!("{path} warns of nothing")
        });
        stage.delete(&format!("{path}/{name}")).gives(200, json!({"status": "Success"})).await;
        let answer = stage
            .post(&format!("{path}?fieldValidation=Ignore"), body)
            .answers(201, json!({"nope": absent()}))
            .await;
        stage.check(answer.is_some_and(|answer| !answer.headers.contains_key("warning")), || {
            format!("{path} warns though told not to")
        });
    }
    let nonsense = "fieldValidation";
    stage
        .post(&format!("{}?fieldValidation=Nonsense", stage.secrets()), secret("x"))
        .refused(422, "Invalid", nonsense)
        .await;
}

async fn dry(stage: &Stage<'_>) {
    let path = stage.secrets();
    let made = json!({
        "metadata": {"name": "dry", "uid": any(), "creationTimestamp": time(), "resourceVersion": absent()},
    });
    stage.post(&format!("{path}?dryRun=All"), secret("dry")).gives(201, made).await;
    stage.get(&format!("{path}/dry")).refused(404, "NotFound", "").await;
    stage.post(&format!("{path}?dryRun=All"), secret("a")).refused(409, "AlreadyExists", "").await;
    stage.post(&format!("{path}?dryRun=Some"), secret("dry")).refused(422, "Invalid", "dryRun").await;
    stage.delete(&format!("{path}/a?dryRun=All")).gives(200, json!({"status": "Success"})).await;
    stage.get(&format!("{path}/a")).gives(200, json!({"metadata": {"name": "a"}})).await;
}

/// Who made it: the name in the query, else the client's own up to the slash.
async fn managers(stage: &Stage<'_>) {
    let managed = |manager: &str| {
        json!({"metadata": {"managedFields": [only(json!({
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": time(),
            "fieldsType": "FieldsV1",
            "fieldsV1": only(json!({"f:data": only(json!({".": {}, "f:k": {}})), "f:type": {}})),
        }))]}})
    };
    let body = |name: &str| json!({"metadata": {"name": name}, "data": {"k": "dg=="}});
    let path = stage.secrets();
    stage
        .post(&path, body("m1"))
        .header("user-agent", "someone/v1.2 (x) y")
        .gives(201, managed("someone"))
        .await;
    stage
        .post(&format!("{path}?fieldManager=named"), body("m2"))
        .header("user-agent", "someone/v1.2")
        .gives(201, managed("named"))
        .await;
}
