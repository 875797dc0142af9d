//! How a client finds out what a server has.

use anyhow::Result;
use serde_json::json;

use super::expect::{any, has, with};
use super::stage::{Stage, Who};

const FULL: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    let version = json!({"major": "1", "minor": any(), "gitVersion": has("v1."), "platform": any()});
    stage.get("/version").gives(200, version).await;
    for health in ["/readyz", "/livez", "/healthz"] {
        let answer = stage.get(health).answers(200, json!(null)).await;
        stage.check(answer.is_some_and(|answer| answer.text() == "ok"), || format!("{health} is not ok"));
    }
    groups(stage).await;
    resources(stage).await;
    aggregated(stage).await;
    nothing_there(stage).await;
    Ok(())
}

async fn groups(stage: &Stage<'_>) {
    stage.get("/api").gives(200, json!({"kind": "APIVersions", "versions": ["v1"]})).await;
    let newest = |group: &str, version: &str| {
        let one = json!({"groupVersion": format!("{group}/{version}"), "version": version});
        json!({"name": group, "versions": with(json!([one])), "preferredVersion": one})
    };
    let served = [
        newest("kueue.x-k8s.io", "v1beta2"),
        newest("galaxy.kubestellar.io", "v1alpha1"),
        newest("batch", "v1"),
        newest("authorization.k8s.io", "v1"),
        newest("authentication.k8s.io", "v1"),
        newest("rbac.authorization.k8s.io", "v1"),
        newest("coordination.k8s.io", "v1"),
        newest("events.k8s.io", "v1"),
    ];
    let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": with(json!(served))});
    stage.get("/apis").gives(200, list).await;
    let one = json!({
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": "kueue.x-k8s.io",
        "preferredVersion": {"groupVersion": "kueue.x-k8s.io/v1beta2"},
    });
    stage.get("/apis/kueue.x-k8s.io").gives(200, one).await;
}

async fn resources(stage: &Stage<'_>) {
    let core = with(json!([
        {
            "name": "nodes",
            "singularName": "node",
            "namespaced": false,
            "kind": "Node",
            "verbs": FULL,
            "shortNames": ["no"],
        },
        {
            "name": "nodes/status",
            "singularName": "",
            "namespaced": false,
            "kind": "Node",
            "verbs": ["get", "patch", "update"],
        },
        {"name": "namespaces", "namespaced": false, "kind": "Namespace", "shortNames": ["ns"]},
        {"name": "secrets", "singularName": "secret", "namespaced": true, "kind": "Secret", "verbs": FULL},
        {"name": "pods/log", "namespaced": true, "kind": "Pod", "verbs": ["get"]},
    ]));
    let list = json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": core});
    stage.get("/api/v1").gives(200, list).await;

    let status = json!(["get", "patch", "update"]);
    let kueue = with(json!([
        {
            "name": "clusterqueues",
            "singularName": "clusterqueue",
            "namespaced": false,
            "kind": "ClusterQueue",
            "shortNames": ["cq"],
        },
        {"name": "clusterqueues/status", "namespaced": false, "kind": "ClusterQueue", "verbs": status},
        {"name": "localqueues", "namespaced": true, "kind": "LocalQueue"},
        {"name": "resourceflavors", "namespaced": false, "kind": "ResourceFlavor"},
        {
            "name": "workloads",
            "namespaced": true,
            "kind": "Workload",
            "shortNames": ["kwl", "kueueworkload", "kueueworkloads"],
        },
    ]));
    let list = json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "kueue.x-k8s.io/v1beta2",
        "resources": kueue,
    });
    stage.get("/apis/kueue.x-k8s.io/v1beta2").gives(200, list).await;

    let fedq = with(json!([
        {
            "name": "clusterresourceclaims",
            "kind": "ClusterResourceClaim",
            "namespaced": false,
            "shortNames": ["crc"],
        },
        {"name": "clusterresourceclaims/status", "kind": "ClusterResourceClaim", "verbs": status},
    ]));
    stage.get("/apis/galaxy.kubestellar.io/v1alpha1").gives(200, json!({"resources": fedq})).await;

    let reviews = with(json!([
        {
            "name": "selfsubjectaccessreviews",
            "kind": "SelfSubjectAccessReview",
            "namespaced": false,
            "verbs": ["create"],
        },
        {
            "name": "subjectaccessreviews",
            "kind": "SubjectAccessReview",
            "namespaced": false,
            "verbs": ["create"],
        },
    ]));
    stage.get("/apis/authorization.k8s.io/v1").gives(200, json!({"resources": reviews})).await;
}

/// kubectl asks for all kinds at once, and takes the plain list of groups for an answer too.
async fn aggregated(stage: &Stage<'_>) {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    for (path, plain) in [("/api", "APIVersions"), ("/apis", "APIGroupList")] {
        let answer = stage.get(path).header("accept", accept).gives(200, json!({"kind": any()})).await;
        let kind = answer["kind"].as_str().unwrap_or_default();
        let fits = kind == plain || kind == "APIGroupDiscoveryList" && answer["items"].is_array();
        stage.check(fits, || format!("aggregated discovery of {path} is a {kind}"));
    }
}

async fn nothing_there(stage: &Stage<'_>) {
    for path in [
        "/apis/none.example",
        "/apis/none.example/v1/things",
        "/apis/kueue.x-k8s.io/v1beta2/things",
        "/apis/kueue.x-k8s.io/v1alpha0/clusterqueues",
        "/nowhere",
    ] {
        stage.get(path).gives(404, json!(null)).await;
    }
    let unknown = json!({
        "kind": "Status",
        "status": "Failure",
        "reason": "NotFound",
        "message": "the server could not find the requested resource",
        "code": 404,
    });
    stage.get("/api/v1/things").gives(404, unknown).await;
    stage.get("/version").by(Who::Nobody).gives(200, json!({"major": "1"})).await;
}
