//! Server-side apply: who owns which field, and what becomes of it.

use anyhow::Result;
use serde_json::{Value, json};

use super::expect::{absent, any, has, only, time};
use super::stage::{CLAIMS, MERGE, QUEUES, Stage, claim, number, text, version};

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    owned(stage).await;
    contested(stage).await;
    keyed_lists(stage).await;
    atomic_lists(stage).await;
    preconditions(stage).await;
    built_in(stage).await;
    refused(stage).await;
    Ok(())
}

fn claiming(name: &str, spec: Value) -> Value {
    let mut claim = claim(name);
    claim["spec"] = spec;
    claim["spec"]["clusterName"] = json!("somewhere");
    claim
}

fn resources(name: &str, resources: Value) -> Value {
    claiming(name, json!({"nominalResources": resources}))
}

fn entry(manager: &str, operation: &str, spec: Value) -> Value {
    only(json!({
        "manager": manager,
        "operation": operation,
        "apiVersion": "galaxy.kubestellar.io/v1alpha1",
        "time": time(),
        "fieldsType": "FieldsV1",
        "fieldsV1": only(json!({"f:spec": only(spec)})),
    }))
}

async fn owned(stage: &Stage<'_>) {
    let name = stage.named("a");
    let path = format!("{CLAIMS}/{name}");
    let fields = |names: Value| json!({"f:clusterName": {}, "f:nominalResources": only(names)});
    let made = json!({
        "metadata": {
            "generation": 1,
            "managedFields": [entry("one", "Apply", fields(json!({"f:cpu": {}, "f:gpu": {}})))],
        },
        "spec": {"nominalResources": {"cpu": "1", "gpu": 2}},
    });
    let body = resources(&name, json!({"cpu": "1", "gpu": 2}));
    let made = stage.apply(&path, "one", body.clone()).gives(201, made).await;
    let same = stage.apply(&path, "one", body).gives(200, json!({"metadata": {"generation": 1}})).await;
    stage.check(version(&same) == version(&made), || {
        "an apply that changes nothing moves the version".to_owned()
    });

    // What another sets as well is shared; the list of managers says so.
    let shared = stage
        .apply(&path, "two", resources(&name, json!({"cpu": "1", "memory": "1Gi"})))
        .gives(
            200,
            json!({
                "metadata": {"managedFields": [any(), any()]},
                "spec": {"nominalResources": only(json!({"cpu": "1", "gpu": 2, "memory": "1Gi"}))},
            }),
        )
        .await;
    let managers = shared.pointer("/metadata/managedFields").cloned().unwrap_or_default();
    let wanted = super::expect::with(json!([
        entry("one", "Apply", fields(json!({"f:cpu": {}, "f:gpu": {}}))),
        entry("two", "Apply", fields(json!({"f:cpu": {}, "f:memory": {}}))),
    ]));
    let wrong = super::expect::differences(&wanted, Some(&managers));
    stage.check(wrong.is_empty(), || format!("managers {managers}: {wrong:?}"));

    // A field given up by its only owner goes; a shared one stays.
    let given_up = json!({"spec": {"nominalResources": only(json!({"cpu": "1", "memory": "1Gi"}))}});
    stage.apply(&path, "one", resources(&name, json!({}))).gives(200, given_up).await;
    let gone = json!({"spec": {"nominalResources": only(json!({"memory": "1Gi"}))}});
    stage.apply(&path, "two", resources(&name, json!({"memory": "1Gi"}))).gives(200, gone).await;

    let dry = json!({"spec": {"nominalResources": {"memory": "5Gi"}}});
    stage
        .apply(&format!("{path}?dryRun=All"), "two", resources(&name, json!({"memory": "5Gi"})))
        .gives(200, dry)
        .await;
    stage.get(&path).gives(200, json!({"spec": {"nominalResources": {"memory": "1Gi"}}})).await;
    let dry = stage.named("dry");
    let made = json!({"metadata": {"uid": any(), "resourceVersion": absent()}});
    stage.apply(&format!("{CLAIMS}/{dry}?dryRun=All"), "one", claim(&dry)).gives(201, made).await;
    stage.get(&format!("{CLAIMS}/{dry}")).refused(404, "NotFound", "").await;
}

async fn contested(stage: &Stage<'_>) {
    let name = stage.named("c");
    let path = format!("{CLAIMS}/{name}");
    stage
        .apply(&path, "one", resources(&name, json!({"cpu": "1", "gpu": 2})))
        .gives(201, json!({"kind": any()}))
        .await;
    let conflict = json!({
        "kind": "Status",
        "status": "Failure",
        "reason": "Conflict",
        "message": "Apply failed with 1 conflict: conflict with \"one\": .spec.nominalResources.cpu",
        "details": {"causes": [{
            "reason": "FieldManagerConflict",
            "message": "conflict with \"one\"",
            "field": ".spec.nominalResources.cpu",
        }]},
        "code": 409,
    });
    let other = resources(&name, json!({"cpu": "8"}));
    stage.apply(&path, "two", other.clone()).gives(409, conflict).await;
    stage.get(&path).gives(200, json!({"spec": {"nominalResources": {"cpu": "1"}}})).await;
    let forced = json!({
        "metadata": {"generation": 2},
        "spec": {"nominalResources": only(json!({"cpu": "8", "gpu": 2}))},
    });
    let forced = stage.apply(&format!("{path}?force=true"), "two", other).gives(200, forced).await;
    let one = forced
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array)
        .and_then(|all| all.iter().find(|one| one["manager"] == "one"))
        .cloned()
        .unwrap_or_default();
    let lost =
        entry("one", "Apply", json!({"f:clusterName": {}, "f:nominalResources": only(json!({"f:gpu": {}}))}));
    let wrong = super::expect::differences(&lost, Some(&one));
    stage.check(wrong.is_empty(), || format!("after force {wrong:?}"));

    // A person's patch takes a field over; the applier then has the conflict, by the text of the value.
    let patch = stage.patch(
        &format!("{path}?fieldManager=person"),
        MERGE,
        json!({"spec": {"nominalResources": {"cpu": "9", "gpu": 2}}}),
    );
    patch.gives(200, json!({"spec": {"nominalResources": {"cpu": "9"}}})).await;
    let message =
        "Apply failed with 1 conflict: conflict with \"person\" using galaxy.kubestellar.io/v1alpha1";
    let cause = json!({"reason": "FieldManagerConflict", "field": ".spec.nominalResources.cpu"});
    let conflict = json!({"reason": "Conflict", "message": has(message), "details": {"causes": [cause]}});
    stage.apply(&path, "two", resources(&name, json!({"cpu": "9000m"}))).gives(409, conflict).await;
    // Agreeing is no conflict, and what the person did not change stays where it was.
    stage.apply(&path, "two", resources(&name, json!({"cpu": "9"}))).gives(200, json!({"kind": any()})).await;
    stage
        .apply(&path, "one", resources(&name, json!({"gpu": 3})))
        .gives(200, json!({"spec": {"nominalResources": {"gpu": 3}}}))
        .await;

    let several = resources(&name, json!({"cpu": "1", "gpu": 7}));
    let both = json!({
        "reason": "Conflict",
        "message": has("Apply failed with 3 conflicts: conflict"),
        "details": {"causes": [any(), any(), any()]},
    });
    stage.apply(&path, "three", several).gives(409, both).await;
}

/// A list with keys belongs element by element to whoever set it.
async fn keyed_lists(stage: &Stage<'_>) {
    let name = stage.named("k");
    let path = format!("{CLAIMS}/{name}");
    let to =
        |queue: &str, gpu: &str| json!({"clusterQueueName": queue, "flavor": "f", "resources": {"gpu": gpu}});
    let assigning = |list: Value| claiming(&name, json!({"resourceAssignments": list}));
    let key = "k:{\"clusterQueueName\":\"q1\",\"flavor\":\"f\"}";
    let made = json!({"metadata": {"managedFields": [{"fieldsV1": {"f:spec": {"f:resourceAssignments": only(json!({
        key: only(json!({
            ".": {},
            "f:clusterQueueName": {},
            "f:flavor": {},
            "f:resources": only(json!({"f:gpu": {}})),
        })),
    }))}}}]}});
    stage.apply(&path, "one", assigning(json!([to("q1", "1")]))).gives(201, made).await;
    let both = json!({"spec": {"resourceAssignments": [to("q1", "1"), to("q2", "2")]}});
    stage.apply(&path, "two", assigning(json!([to("q2", "2")]))).gives(200, both).await;
    let conflict = json!({"reason": "Conflict", "details": {"causes": [
        {"field": ".spec.resourceAssignments[clusterQueueName=\"q1\",flavor=\"f\"].resources.gpu"}
    ]}});
    stage.apply(&path, "two", assigning(json!([to("q1", "5"), to("q2", "2")]))).gives(409, conflict).await;
    let rest = json!({"spec": {"resourceAssignments": [to("q2", "2")]}});
    stage.apply(&path, "one", assigning(json!([]))).gives(200, rest).await;
    let twice = json!({"code": 500, "message": has("duplicate entries for key")});
    stage.apply(&path, "one", assigning(json!([to("q3", "1"), to("q3", "2")]))).gives(500, twice).await;
}

/// The quotas of a ClusterQueue have one owner, all or nothing.
async fn atomic_lists(stage: &Stage<'_>) {
    let name = stage.named("q");
    let path = format!("{QUEUES}/{name}");
    let queue = |quota: &str| {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": "none", "resources": [{"name": "cpu", "nominalQuota": quota}]},
            ]}]},
        })
    };
    let made = stage.apply(&path, "one", queue("1")).gives(201, json!({"kind": "ClusterQueue"})).await;
    let fields = made.pointer("/metadata/managedFields/0/fieldsV1").cloned().unwrap_or_default();
    stage.check(fields == json!({"f:spec": {"f:resourceGroups": {}}}), || format!("fields {fields}"));
    let conflict = json!({
        "reason": "Conflict",
        "message": "Apply failed with 1 conflict: conflict with \"one\": .spec.resourceGroups",
        "details": {
            "causes": [
                {
                    "reason": "FieldManagerConflict",
                    "message": "conflict with \"one\"",
                    "field": ".spec.resourceGroups",
                },
            ],
        },
    });
    stage.apply(&path, "two", queue("2")).gives(409, conflict).await;
    stage
        .apply(&format!("{path}?force=true"), "two", queue("2"))
        .gives(200, json!({"metadata": {"generation": 2}}))
        .await;
}

async fn preconditions(stage: &Stage<'_>) {
    let name = stage.named("p");
    let path = format!("{CLAIMS}/{name}");
    let mut body = claim(&name);
    body["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    let nothing = "uid mismatch: the provided object specified uid 00000000-0000-0000-0000-000000000000, and no \
                   existing object was found";
    stage.apply(&path, "one", body.clone()).refused(409, "Conflict", nothing).await;
    let made = stage.apply(&path, "one", claim(&name)).gives(201, json!({"kind": any()})).await;
    stage
        .apply(&path, "one", body)
        .refused(
            422,
            "Invalid",
            "metadata.uid: Invalid value: \"00000000-0000-0000-0000-000000000000\": field is immutable",
        )
        .await;
    let mut stale = resources(&name, json!({"cpu": "1"}));
    stale["metadata"]["resourceVersion"] = json!(version(&made));
    let written =
        stage.apply(&path, "one", stale.clone()).gives(200, json!({"metadata": {"generation": 2}})).await;
    stage.check(number(&made) < number(&written), || "an apply does not move the version".to_owned());
    stale["spec"]["nominalResources"]["cpu"] = json!("2");
    let conflict = super::updates::conflict("clusterresourceclaims.galaxy.kubestellar.io", &name);
    stage.apply(&path, "one", stale).gives(409, conflict).await;
}

async fn built_in(stage: &Stage<'_>) {
    let path = format!("{}/applied", stage.secrets());
    let body = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "applied", "labels": {"a": "b"}},
        "data": {"k": "dg=="},
    });
    let made = json!({"type": "Opaque", "metadata": {"managedFields": [{
        "manager": "one", "operation": "Apply", "apiVersion": "v1",
        "fieldsV1": only(json!({
            "f:data": only(json!({"f:k": {}})),
            "f:metadata": only(json!({"f:labels": only(json!({"f:a": {}}))})),
        })),
    }]}});
    stage.apply(&path, "one", body).gives(201, made).await;
    let body =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "applied"}, "data": {"k": "dg=="}});
    let less = stage
        .apply(&path, "one", body)
        .gives(200, json!({"metadata": {"labels": absent()}, "data": {"k": "dg=="}}))
        .await;
    stage.check(text(&less, "/metadata/managedFields/0/manager") == "one", || format!("managers {less}"));
    // YAML is what the content type says; JSON is YAML too.
    let yaml = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: applied\n  labels: {c: d}\n";
    let kept = json!({"metadata": {"labels": {"c": "d"}}, "data": absent()});
    stage.apply(&path, "one", json!(null)).body(yaml).gives(200, kept).await;
}

async fn refused(stage: &Stage<'_>) {
    let name = stage.named("r");
    let path = format!("{CLAIMS}/{name}");
    let nameless = "fieldManager: Required value: is required for apply patch";
    stage.patch(&path, super::stage::APPLY, claim(&name)).refused(422, "Invalid", nameless).await;
    let mut unknown = claim(&name);
    unknown["spec"]["nope"] = json!(1);
    let undeclared = json!({"code": 500, "message": has(".spec.nope: field not declared in schema")});
    stage.apply(&path, "one", unknown).gives(500, undeclared).await;
    let mut managed = claim(&name);
    managed["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    stage.apply(&path, "one", managed).refused(400, "BadRequest", "metadata.managedFields must be nil").await;
    stage.apply(&path, "one", json!({"spec": {}})).refused(400, "BadRequest", "").await;
    stage.apply(&path, "one", json!(null)).body("{a: [").refused(400, "BadRequest", "").await;
    let forced = "force: Forbidden: may not be specified for non-apply patch";
    stage.patch(&format!("{path}?force=true"), MERGE, json!({})).refused(422, "Invalid", forced).await;
    stage
        .apply(&path, "one", claim("other"))
        .refused(400, "BadRequest", "the name of the object (other) does not match the name on the URL")
        .await;
}
