//! How objects go: at once, after their finalizers, with their owners or with their namespace.

use anyhow::Result;
use serde_json::{Value, json};

use super::expect::{absent, any, has, time};
use super::stage::{CLAIMS, JSON_PATCH, MERGE, NAMESPACES, Stage, claim, secret, text};
use super::subject::Subject;

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    let subject = Subject::of(stage);
    of(stage, &subject).await?;
    wrong(stage, &subject).await;
    finalized(stage).await;
    owners(stage).await;
    namespace(stage).await;
    Ok(())
}

pub async fn of(stage: &Stage<'_>, subject: &Subject<'_>) -> Result<()> {
    at_once(stage, subject).await;
    preconditions(stage, subject).await;
    collections(stage, subject).await;
    Ok(())
}

async fn at_once(stage: &Stage<'_>, subject: &Subject<'_>) {
    let made = subject.make("a").await;
    let (path, name) = (subject.path_of("a"), subject.name("a"));
    let gone = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": name, "kind": subject.plural, "uid": made["metadata"]["uid"]},
    });
    stage.delete(&format!("{path}?dryRun=All")).gives(200, json!({"status": "Success"})).await;
    stage.delete(&path).gives(200, gone).await;
    let message = format!("{} \"{name}\" not found", subject.plural);
    let missing = json!({"reason": "NotFound", "message": message, "code": 404});
    stage.get(&path).gives(404, missing.clone()).await;
    stage.delete(&path).gives(404, missing).await;
    // Whoever comes after it under its name is another.
    let again = stage.make(&subject.path, subject.body("a")).await;
    stage.check(again["metadata"]["uid"] != made["metadata"]["uid"], || "the same uid again".to_owned());
    let exists = "already exists";
    stage.post(&subject.path, subject.body("a")).refused(409, "AlreadyExists", exists).await;
    subject.make("b").await;
    stage.post(&subject.path, subject.body("b")).refused(409, "AlreadyExists", exists).await;
}

async fn wrong(stage: &Stage<'_>, subject: &Subject<'_>) {
    let name = stage.named("a");
    stage.make(CLAIMS, claim(&name)).await;
    let gone = json!({
        "status": "Success",
        "details": {
            "name": name,
            "group": "galaxy.kubestellar.io",
            "kind": "clusterresourceclaims",
            "uid": any(),
        },
    });
    stage.delete(&format!("{CLAIMS}/{name}")).gives(200, gone).await;
    stage.delete(&format!("{CLAIMS}/{name}")).refused(404, "NotFound", "").await;

    let path = subject.path_of("a");
    let options = json!({"propagationPolicy": "Nonsense"});
    body(stage, &path, options).refused(422, "Invalid", "propagationPolicy").await;
    let step = stage.delete(&path).header("content-type", "application/json").body("{");
    step.refused(400, "BadRequest", "").await;
}

fn body<'a>(stage: &'a Stage<'a>, path: &str, options: Value) -> super::stage::Step<'a> {
    let mut options = options;
    options["kind"] = json!("DeleteOptions");
    options["apiVersion"] = json!("v1");
    stage.delete(path).header("content-type", "application/json").body(&options.to_string())
}

async fn finalized(stage: &Stage<'_>) {
    let name = stage.named("f");
    let path = format!("{CLAIMS}/{name}");
    let mut held = claim(&name);
    held["metadata"]["finalizers"] = json!(["fedq.dev/one", "fedq.dev/two"]);
    stage.make(CLAIMS, held).await;
    // The object, marked; with a generation of its own.
    let marked = json!({
        "kind": "ClusterResourceClaim",
        "metadata": {
            "deletionTimestamp": time(),
            "deletionGracePeriodSeconds": 0,
            "generation": 2,
            "finalizers": ["fedq.dev/one", "fedq.dev/two"],
        },
    });
    let marked = stage.delete(&path).gives(200, marked).await;
    let again = stage
        .delete(&path)
        .gives(200, json!({"metadata": {"deletionTimestamp": marked["metadata"]["deletionTimestamp"]}}))
        .await;
    stage.check(super::stage::version(&again) == super::stage::version(&marked), || {
        "deleted twice".to_owned()
    });
    let exists = "already exists";
    stage.post(CLAIMS, claim(&name)).refused(409, "AlreadyExists", exists).await;
    let added = json!({"metadata": {"finalizers": ["fedq.dev/one", "fedq.dev/two", "fedq.dev/three"]}});
    let forbidden =
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted";
    stage.patch(&path, MERGE, added).refused(422, "Invalid", forbidden).await;
    stage
        .patch(&path, MERGE, json!({"metadata": {"deletionTimestamp": null}}))
        .gives(200, json!({"metadata": {"deletionTimestamp": time()}}))
        .await;
    let one = json!([{"op": "remove", "path": "/metadata/finalizers/0"}]);
    stage
        .patch(&path, JSON_PATCH, one.clone())
        .gives(200, json!({"metadata": {"finalizers": ["fedq.dev/two"]}}))
        .await;
    stage.get(&path).gives(200, json!({"metadata": {"deletionTimestamp": any()}})).await;
    stage
        .patch(&path, JSON_PATCH, one)
        .gives(200, json!({"metadata": {"finalizers": absent(), "deletionTimestamp": time()}}))
        .await;
    stage.get(&path).refused(404, "NotFound", "").await;

    // Of built-in kinds as well.
    let path = format!("{}/held", stage.secrets());
    let mut held = secret("held");
    held["metadata"]["finalizers"] = json!(["fedq.dev/one"]);
    stage.make(&stage.secrets(), held).await;
    stage
        .delete(&path)
        .gives(200, json!({"kind": "Secret", "metadata": {"deletionTimestamp": time()}}))
        .await;
    stage
        .patch(&path, MERGE, json!({"metadata": {"finalizers": null}}))
        .gives(200, json!({"kind": "Secret"}))
        .await;
    stage.get(&path).refused(404, "NotFound", "").await;
    let mut unqualified = secret("unqualified");
    unqualified["metadata"]["finalizers"] = json!(["plain"]);
    stage.post(&stage.secrets(), unqualified).refused(422, "Invalid", "metadata.finalizers").await;
}

async fn preconditions(stage: &Stage<'_>, subject: &Subject<'_>) {
    let (path, name, kind) = (subject.path_of("p"), subject.name("p"), subject.kind);
    let made = subject.make("p").await;
    let uid = text(&made, "/metadata/uid").to_owned();
    let none = "00000000-0000-0000-0000-000000000000";
    let mismatch = json!({
        "kind": "Status",
        "status": "Failure",
        "reason": "Conflict",
        "message": format!(
            "Operation cannot be fulfilled on {kind} \"{name}\": the UID in the precondition ({none}) does not match \
             the UID in record ({uid}). The object might have been deleted and then recreated"
        ),
        "details": {"name": name, "kind": kind},
        "code": 409,
    });
    body(stage, &path, json!({"preconditions": {"uid": none}})).gives(409, mismatch).await;
    let stale = "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (";
    body(stage, &path, json!({"preconditions": {"resourceVersion": "1"}}))
        .refused(409, "Conflict", stale)
        .await;
    let found = stage.get(&path).gives(200, json!({"metadata": {"uid": uid}})).await;
    stage.check(super::stage::version(&found) == super::stage::version(&made), || {
        "what was refused moves the version".to_owned()
    });
    let version = super::stage::version(&made);
    let both =
        json!({"preconditions": {"uid": uid, "resourceVersion": version}, "propagationPolicy": "Background"});
    body(stage, &path, both).gives(200, json!({"status": "Success"})).await;
}

async fn collections(stage: &Stage<'_>, subject: &Subject<'_>) {
    for letter in ["d", "e", "f"] {
        subject.make(letter).await;
    }
    subject.mark("d", true).await;
    subject.mark("e", true).await;
    let named = |letter| json!({"metadata": {"name": subject.name(letter)}});
    let gone = json!({"kind": format!("{}List", subject.kind), "items": [named("d"), named("e")]});
    let marked = format!("{}?{}", subject.path, subject.marked);
    stage.delete(&marked).gives(200, gone).await;
    stage.get(&marked).gives(200, json!({"items": []})).await;
    stage.get(&subject.path_of("f")).gives(200, named("f")).await;
}

/// What belongs to an object goes after it.
async fn owners(stage: &Stage<'_>) {
    let path = stage.secrets();
    stage.make(&path, secret("z")).await;
    let owner = stage.make(&path, secret("owner")).await;
    let reference =
        json!({"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": owner["metadata"]["uid"]});
    for (name, owners) in [
        ("owned", json!([reference])),
        (
            "orphan",
            json!([
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "name": "owner",
                    "uid": "00000000-0000-0000-0000-000000000000",
                },
            ]),
        ),
        (
            "twice",
            json!([
                reference,
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "name": "z",
                    "uid": stage.get(&format!("{path}/z")).gives(200, json!({})).await["metadata"]["uid"],
                },
            ]),
        ),
    ] {
        let mut body = secret(name);
        body["metadata"]["ownerReferences"] = owners;
        stage.make(&path, body).await;
    }
    // An owner that never was takes what names it along.
    stage.becomes(&format!("{path}/orphan"), 404, json!({"reason": "NotFound"})).await;
    stage
        .get(&format!("{path}/owned"))
        .gives(200, json!({"metadata": {"ownerReferences": [reference]}}))
        .await;
    stage.delete(&format!("{path}/owner")).gives(200, json!({"status": "Success"})).await;
    stage.becomes(&format!("{path}/owned"), 404, json!({"reason": "NotFound"})).await;
    let other = json!({"metadata": {"ownerReferences": [{"name": "z"}]}});
    stage.becomes(&format!("{path}/twice"), 200, other).await;

    let mut nameless = secret("nameless");
    nameless["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Secret", "name": "z", "uid": ""}]);
    stage
        .post(&path, nameless)
        .refused(422, "Invalid", "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty")
        .await;
}

async fn namespace(stage: &Stage<'_>) {
    let name = stage.named("ns");
    let path = format!("{NAMESPACES}/{name}");
    stage.make(NAMESPACES, json!({"metadata": {"name": name}})).await;
    let secrets = format!("/api/v1/namespaces/{name}/secrets");
    let mut held = secret("held");
    held["metadata"]["finalizers"] = json!(["fedq.dev/one"]);
    stage.make(&secrets, held).await;
    stage.make(&secrets, secret("free")).await;
    let ending = json!({
        "kind": "Namespace",
        "metadata": {"deletionTimestamp": time()},
        "status": {"phase": "Terminating"},
    });
    stage.delete(&path).gives(200, ending).await;
    let forbidden = json!({
        "reason": "Forbidden",
        "message": has(&format!(
            "secrets \"late\" is forbidden: unable to create new content in namespace {name} because it is being \
             terminated"
        )),
        "details": {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]},
        "code": 403,
    });
    stage.post(&secrets, secret("late")).gives(403, forbidden).await;
    stage.becomes(&format!("{secrets}/free"), 404, json!({"reason": "NotFound"})).await;
    stage.becomes(&format!("{secrets}/held"), 200, json!({"metadata": {"deletionTimestamp": time()}})).await;
    stage.get(&path).gives(200, json!({"status": {"phase": "Terminating"}})).await;
    stage
        .patch(&format!("{secrets}/held"), MERGE, json!({"metadata": {"finalizers": null}}))
        .gives(200, json!({"kind": "Secret"}))
        .await;
    stage.becomes(&path, 404, json!({"reason": "NotFound"})).await;
}
