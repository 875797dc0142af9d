//! Webhooks that are asked about writes by URL: what they are told, and what becomes of their answers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use axum::extract::State;
use axum::{Json, Router, routing::post};
use axum_server::tls_rustls::RustlsConfig;
use fedq_base::certificate::ServingCertificate;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::expect::{any, differences, has};
use super::stage::{COHORTS, MERGE, SOON, Stage, WEBHOOKS};

/// What is asked about here; no other theme writes any.
const RESOURCE: &str = "cohorts";

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    let hook = Hook::start()?;
    let configuration = configuration(stage, &hook);
    stage.make(WEBHOOKS, configuration).await;
    takes_effect(stage).await;
    reviews(stage, &hook).await;
    verdicts(stage).await;
    too_slow(stage).await;
    down(stage).await;
    Ok(())
}

/// A webhook that judges by the name's last word, and remembers what it was asked.
struct Hook {
    url: String,
    authority: String,
    reviews: Reviews,
}

type Reviews = Arc<Mutex<Vec<Value>>>;

impl Hook {
    fn start() -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let url = format!("https://{}/judge", listener.local_addr()?);
        #[expect(clippy::disallowed_methods, reason = "a test has no other clock")]
        let now = jiff::Timestamp::now();
        let certificate = ServingCertificate::issue(&["127.0.0.1".to_owned()], now)?;
        let tls = RustlsConfig::from_config(certificate.server_config()?);
        let reviews = Reviews::default();
        let router = Router::new().route("/judge", post(judge)).with_state(Arc::clone(&reviews));
        let server = axum_server::from_tcp_rustls(listener, tls)?;
        tokio::spawn(server.serve(router.into_make_service()));
        let authority = serde_json::to_value(ByteString(certificate.ca_bundle().into_bytes()))?;
        let authority = authority.as_str().context("a byte string is text")?.to_owned();
        Ok(Self { url, authority, reviews })
    }

    /// The last review of an operation on the object.
    fn asked(&self, operation: &str, name: &str) -> Value {
        let reviews = self.reviews.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |review: &&Value| {
            review["request"]["operation"] == operation && review["request"]["name"] == name
        };
        reviews.iter().rev().find(of).cloned().unwrap_or_default()
    }
}

async fn judge(State(reviews): State<Reviews>, Json(review): Json<Value>) -> Json<Value> {
    let uid = review["request"]["uid"].clone();
    let name = review["request"]["name"].as_str().unwrap_or_default().to_owned();
    reviews.lock().unwrap_or_else(PoisonError::into_inner).push(review);
    let mut response = match name.rsplit('-').next().unwrap_or_default() {
        "forbidden" => {
            json!({"allowed": false, "status": {"code": 403, "reason": "Forbidden", "message": "not you"}})
        }
        "refused" => json!({"allowed": false, "status": {"message": "not so"}}),
        "silent" => json!({"allowed": false}),
        "warned" => json!({"allowed": true, "warnings": ["mind the gap"]}),
        "slow" => {
            tokio::time::sleep(Duration::from_secs(5)).await;
            json!({"allowed": true})
        }
        _ => json!({"allowed": true}),
    };
    response["uid"] = uid;
    Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

fn configuration(stage: &Stage<'_>, hook: &Hook) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": stage.name},
        "webhooks": [{
            "name": "conformance.fedq.dev",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 1,
            "clientConfig": {"url": hook.url, "caBundle": hook.authority},
            "rules": [{
                "apiGroups": ["kueue.x-k8s.io"],
                "apiVersions": ["v1beta2"],
                "operations": ["CREATE", "UPDATE", "DELETE"],
                "resources": [RESOURCE],
            }],
        }],
    })
}

fn cohort(name: &str) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": name}, "spec": {}})
}

/// A server takes up a new configuration a moment later.
async fn takes_effect(stage: &Stage<'_>) {
    creation_becomes(stage, "forbidden", 403, json!({"reason": "Forbidden"})).await;
}

/// Tries to create it, without leaving it, until the answer is as expected.
async fn creation_becomes(stage: &Stage<'_>, name: &str, status: u16, expected: Value) {
    let start = Instant::now();
    let path = format!("{COHORTS}?dryRun=All");
    loop {
        let answer = match stage.post(&path, cohort(&stage.named(name))).send().await {
            Ok(answer) => answer,
            Err(error) => return stage.differs(format!("POST {path}: {error:#}")),
        };
        let wrong = differences(&expected, Some(&answer.json()));
        if answer.status == status && wrong.is_empty() {
            return;
        }
        if SOON < start.elapsed() {
            return stage.differs(format!("the webhook and {name}: {} {wrong:?}", answer.status));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn reviews(stage: &Stage<'_>, hook: &Hook) {
    let name = stage.named("free");
    let path = format!("{COHORTS}/{name}");
    let kind = json!({"group": "kueue.x-k8s.io", "version": "v1beta2", "kind": "Cohort"});
    let resource = json!({"group": "kueue.x-k8s.io", "version": "v1beta2", "resource": RESOURCE});
    let review = |operation: &str, object: Value, old: Value, dry: bool| {
        json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": any(),
                "kind": kind,
                "resource": resource,
                "requestKind": kind,
                "requestResource": resource,
                "name": name,
                "operation": operation,
                "userInfo": {"username": any(), "groups": any()},
                "object": object,
                "oldObject": old,
                "dryRun": dry,
            },
        })
    };
    let told = |operation: &str, expected: Value| {
        let wrong = differences(&expected, Some(&hook.asked(operation, &name)));
        stage.check(wrong.is_empty(), || {
            format!("the webhook was told of {operation}\n    {}", wrong.join("\n    "))
        });
    };
    let whole = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": name}});
    stage.post(&format!("{COHORTS}?dryRun=All"), cohort(&name)).gives(201, json!({"kind": "Cohort"})).await;
    told("CREATE", review("CREATE", whole.clone(), Value::Null, true));
    stage.make(COHORTS, cohort(&name)).await;
    told("CREATE", review("CREATE", whole.clone(), Value::Null, false));

    let patch = json!({"spec": {"parentName": "above"}});
    stage.patch(&path, MERGE, patch.clone()).gives(200, patch.clone()).await;
    let after = json!({"metadata": {"name": name, "generation": 2}, "spec": {"parentName": "above"}});
    told("UPDATE", review("UPDATE", after, json!({"metadata": {"name": name, "generation": 1}}), false));
    // Its status is another resource, of which the rules say nothing.
    let before = hook.asked("UPDATE", &name);
    stage
        .patch(&format!("{path}/status"), MERGE, json!({"metadata": {"labels": {"a": "b"}}}))
        .send()
        .await
        .ok();
    stage.check(hook.asked("UPDATE", &name) == before, || "the webhook was asked of a status".to_owned());

    stage.delete(&path).gives(200, json!({"status": "Success"})).await;
    told("DELETE", review("DELETE", Value::Null, whole, false));
}

async fn verdicts(stage: &Stage<'_>) {
    let denied = |name: &str| stage.post(COHORTS, cohort(&stage.named(name)));
    let says = |code: u16, message: &str| {
        let message = format!("admission webhook \"conformance.fedq.dev\" denied the request{message}");
        json!({"kind": "Status", "status": "Failure", "message": message, "code": code})
    };
    denied("forbidden").gives(403, says(403, ": not you")).await;
    denied("refused").gives(400, says(400, ": not so")).await;
    denied("silent").gives(400, says(400, " without explanation")).await;
    let warned = denied("warned").answers(201, json!({"kind": "Cohort"})).await;
    let warning = warned.map(|answer| answer.header("warning").to_owned()).unwrap_or_default();
    stage.check(warning == "299 - \"mind the gap\"", || format!("warning {warning:?}"));
    // Nothing of it was stored.
    for name in ["forbidden", "refused", "silent"] {
        stage.get(&format!("{COHORTS}/{}", stage.named(name))).refused(404, "NotFound", "not found").await;
    }
}

async fn too_slow(stage: &Stage<'_>) {
    let start = Instant::now();
    let late = "failed calling webhook \"conformance.fedq.dev\": failed to call webhook: Post ";
    stage.post(COHORTS, cohort(&stage.named("slow"))).refused(500, "InternalError", late).await;
    let took = start.elapsed().as_secs_f64();
    stage.check(took < 4.0, || format!("a webhook that may take one second took {took:.1} s"));
}

/// What cannot be asked refuses or allows, as its policy says.
async fn down(stage: &Stage<'_>) {
    let path = format!("{WEBHOOKS}/{}", stage.name);
    let with = |policy: &str| {
        json!([
            {"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": "https://127.0.0.1:1/judge"},
            {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": policy},
        ])
    };
    let patch = stage.patch(&path, super::stage::JSON_PATCH, with("Fail"));
    patch.gives(200, json!({"metadata": {"generation": 2}})).await;
    let failed = json!({
        "reason": "InternalError",
        "message": has("Internal error occurred: failed calling webhook \"conformance.fedq.dev\""),
        "code": 500,
    });
    creation_becomes(stage, "free", 500, failed).await;
    let patch = stage.patch(&path, super::stage::JSON_PATCH, with("Ignore"));
    patch.gives(200, json!({"metadata": {"generation": 3}})).await;
    creation_becomes(stage, "forbidden", 201, json!({"kind": "Cohort"})).await;
    stage.delete(&path).gives(200, json!({"status": "Success"})).await;
}
