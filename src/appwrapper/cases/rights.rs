//! What the webhook asks of the server for one AppWrapper.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};

use super::server::{self, Asked};
use crate::{config::AppWrapperConfig, kinds::Kinds, review::Judge};

/// Of the kinds of `example.org/v1`, nobody may create any, and only `Thing` is known.
fn answer(asked: &Asked) -> (u16, Value) {
    match asked.path.as_str() {
        "/apis/example.org/v1" => {
            let thing = json!({"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["create"]});
            (200, json!({"kind": "APIResourceList", "groupVersion": "example.org/v1", "resources": [thing]}))
        }
        "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
            let mut review = asked.body.clone();
            review["status"] = json!({"allowed": false});
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
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let client = server::client(move |asked| {
        counted.fetch_add(1, Ordering::SeqCst);
        Some(answer(&asked))
    });
    let kinds = Kinds::new(client.clone(), None);
    let judge = Judge { client, kinds, config: AppWrapperConfig::default() };
    let kind = json!({"group": "workload.codeflare.dev", "version": "v1beta2", "kind": "AppWrapper"});
    let resource =
        json!({"group": "workload.codeflare.dev", "version": "v1beta2", "resource": "appwrappers"});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "kind": kind, "resource": resource, "operation": "CREATE", "namespace": "default", "name": "aw",
        "userInfo": {"username": "alice"},
        "object": {
            "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
            "metadata": {"namespace": "default", "name": "aw"},
            "spec": {"suspend": true, "components": components},
        },
    }});
    let judged = judge.validate(serde_json::from_value(review).expect("a review")).await;
    let response = judged.response.expect("an answer");
    assert!(!response.allowed);
    (response.result.message, asked.load(Ordering::SeqCst))
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
