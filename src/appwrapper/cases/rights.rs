//! What the webhook asks of the server for one AppWrapper.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use json_patch::Patch;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::core::{DynamicObject, admission::AdmissionReview};
use serde_json::{Value, json};

use super::server::{self, Asked};
use crate::{
    config::AppWrapperConfig,
    kinds::Kinds,
    names::{USER_ID_LABEL, USER_LABEL},
    review::Judge,
};

/// `AppWrapper containing permitted resources can be created`, and `unpermitted resources cannot be created`, of
/// `internal/webhook/appwrapper_webhook_test.go`.
pub(super) const UPSTREAMS: [&str; 2] = [
    "AppWrapper containing permitted resources can be created",
    "AppWrapper containing unpermitted resources cannot be created",
];

/// Only `Thing` of `example.org/v1` and `Pod` are known, and nobody may create but Pods.
fn answer(asked: &Asked) -> (u16, Value) {
    match asked.path.as_str() {
        "/apis/example.org/v1" => {
            let thing = json!({"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["create"]});
            (200, json!({"kind": "APIResourceList", "groupVersion": "example.org/v1", "resources": [thing]}))
        }
        "/api/v1" => {
            let pod = json!({"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": ["create"]});
            let node = json!({"name": "nodes", "singularName": "node", "namespaced": false, "kind": "Node", "verbs": ["create"]});
            (200, json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [pod, node]}))
        }
        "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
            let mut review = asked.body.clone();
            let of = &review["spec"]["resourceAttributes"];
            let allowed = of["resource"] == "pods" && of["group"] == "" && of["verb"] == "create";
            review["status"] = json!({"allowed": allowed});
            (201, review)
        }
        path => server::failure(404, path),
    }
}

fn component(kind: &str, name: &str) -> Value {
    json!({
        "podSets": [{"path": "template.spec.template"}],
        "template": {
            "apiVersion": "example.org/v1", "kind": kind, "metadata": {"name": name},
            "spec": {"template": {"spec": {"containers": [{"name": "main"}]}}},
        },
    })
}

/// Why it is refused, and after how many requests.
async fn judge(components: &[Value]) -> (String, usize) {
    let (refused, asked) = admit(components).await;
    (refused.expect("it is refused"), asked)
}

async fn admit(components: &[Value]) -> (Option<String>, usize) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let client = server::client(move |asked| {
        counted.fetch_add(1, Ordering::SeqCst);
        Some(answer(&asked))
    });
    let kinds = Kinds::new(client.clone(), None);
    let judge = Judge { client, kinds, config: AppWrapperConfig::default() };
    let judged = judge.validate(review("alice", &json!({}), components)).await;
    let response = judged.response.expect("an answer");
    ((!response.allowed).then_some(response.result.message), asked.load(Ordering::SeqCst))
}

fn review(user: &str, labels: &Value, components: &[Value]) -> AdmissionReview<DynamicObject> {
    let kind = json!({"group": "workload.codeflare.dev", "version": "v1beta2", "kind": "AppWrapper"});
    let resource =
        json!({"group": "workload.codeflare.dev", "version": "v1beta2", "resource": "appwrappers"});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "kind": kind, "resource": resource, "operation": "CREATE", "namespace": "default", "name": "aw",
        "userInfo": {"username": user, "uid": "1"},
        "object": {
            "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
            "metadata": {"namespace": "default", "name": "aw", "labels": labels},
            "spec": {"suspend": true, "components": components},
        },
    }});
    serde_json::from_value(review).expect("a review")
}

/// Who may create `appwrappers/user` in the whole cluster; nobody is asked where nobody else is named.
#[tokio::test]
async fn only_who_makes_appwrappers_for_others_names_them() {
    let asked = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&asked);
    let client = server::client(move |asked| {
        counted.fetch_add(1, Ordering::SeqCst);
        let mut review = asked.body;
        let attributes = serde_json::from_value(review["spec"]["resourceAttributes"].clone());
        let names_users = ResourceAttributes {
            group: Some("workload.codeflare.dev".to_owned()),
            resource: Some("appwrappers".to_owned()),
            subresource: Some("user".to_owned()),
            verb: Some("create".to_owned()),
            ..ResourceAttributes::default()
        };
        let right = attributes.is_ok_and(|attributes: ResourceAttributes| attributes == names_users);
        review["status"] = json!({"allowed": right && review["spec"]["user"] == "dispatcher"});
        (review["spec"]["user"] != "unlucky").then_some((201, review)).or(Some(server::failure(500, "no")))
    });
    let judge =
        Judge { kinds: Kinds::new(client.clone(), None), client, config: AppWrapperConfig::default() };
    for (user, written, named, requests) in [
        ("dispatcher", Some("bob"), "bob", 1),
        ("dispatcher", None, "dispatcher", 0),
        ("alice", Some("bob"), "alice", 1),
        ("alice", Some("alice"), "alice", 0),
        ("alice", Some(""), "alice", 1),
    ] {
        asked.store(0, Ordering::SeqCst);
        let labels = written.map_or(json!({}), |name| json!({USER_LABEL: name, USER_ID_LABEL: "9"}));
        let judged = judge.default(review(user, &labels, &[])).await;
        let patch = judged.response.and_then(|response| response.patch).unwrap_or_default();
        let mut object = json!({"metadata": {"labels": labels}});
        let patch: Patch = serde_json::from_slice(&patch).unwrap_or_default();
        json_patch::patch(&mut object, &patch).expect("it fits");
        let id = if named == "bob" { "9" } else { "1" };
        assert_eq!(
            object["metadata"]["labels"],
            json!({USER_LABEL: named, USER_ID_LABEL: id}),
            "{user} {written:?}"
        );
        assert_eq!(asked.load(Ordering::SeqCst), requests, "{user} {written:?}");
    }
    let judged = judge.default(review("unlucky", &json!({USER_LABEL: "bob"}), &[])).await;
    let response = judged.response.expect("an answer");
    assert!(!response.allowed && response.result.message.contains("Internal error"), "{response:?}");
}

/// The two of [`UPSTREAMS`], and the ways past them: a kind or a version of it that discovery does not know, an object in an
/// object, and one that belongs to no namespace.
#[tokio::test]
async fn a_user_gets_nothing_that_they_could_not_create_by_themselves() {
    let spec = json!({"containers": [{"name": "main"}]});
    let pod =
        json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}});
    let of = |api_version: &str, kind: &str| {
        let mut hidden = component(kind, "a");
        hidden["template"]["apiVersion"] = json!(api_version);
        hidden
    };
    assert_eq!(admit(std::slice::from_ref(&pod)).await.0, None);
    for (hidden, said) in [
        (of("example.org/v1", "Thing"), "User alice is not authorized to create things in default"),
        (of("example.org/v1", "Other"), "User alice is not authorized to create * in default"),
        (of("example.org/v2", "Thing"), "User alice is not authorized to create * in default"),
        (of("nowhere.org/v1", "Pod"), "User alice is not authorized to create * in default"),
        (of("v1", "List"), "User alice is not authorized to create * in default"),
        (of("v1", "Node"), "AppWrappers cannot create objects that have no namespace"),
    ] {
        let (refused, _) = admit(&[pod.clone(), hidden.clone()]).await;
        let words = format!("spec.components[1].template: Forbidden: {said}");
        assert_eq!(refused.as_deref(), Some(words.as_str()), "{hidden}");
    }
}

#[tokio::test]
async fn each_kind_is_asked_about_once() {
    let (said, asked) =
        judge(&[component("Thing", "a"), component("Thing", "b"), component("Thing", "c")]).await;
    assert_eq!(said.matches("User alice is not authorized to create things in default").count(), 3, "{said}");
    assert!(said.contains("spec.components[2].template: Forbidden"), "{said}");
    assert_eq!(asked, 2, "its kind, and the right to it");
}

#[tokio::test]
async fn nothing_is_asked_about_what_is_refused_anyway() {
    let nested = json!({"template": {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "x"}}});
    let (said, asked) = judge(&[component("Thing", "a"), nested]).await;
    assert!(said.contains("Nested AppWrappers are forbidden"), "{said}");
    assert_eq!(asked, 0);
    let many: Vec<Value> = (0..101).map(|number| component(&format!("Kind{number}"), "a")).collect();
    let (said, asked) = judge(&many).await;
    assert!(said.contains("101 components; at most 100 are allowed"), "{said}");
    assert_eq!(asked, 0);
}
