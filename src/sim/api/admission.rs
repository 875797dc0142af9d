//! Validating webhooks that are reached by URL.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};

use super::super::cluster::State;
use super::super::kind::Kind;
use super::super::rbac::User;
use super::super::status::Refusal;

const TIMEOUT: Duration = Duration::from_secs(10);
const LARGEST_ANSWER: usize = 1 << 20;

/// A write that webhooks may object to.
pub(super) struct Review<'a> {
    pub operation: &'static str,
    pub kind: &'static Kind,
    pub user: &'a User,
    pub before: Option<&'a Value>,
    pub after: Option<&'a Value>,
    pub dry_run: bool,
}

impl Review<'_> {
    /// Asks every webhook that wants to be asked of this write.
    pub async fn ask_all(&self, state: &Arc<State>) -> Result<(), Refusal> {
        let configurations = Kind::named("ValidatingWebhookConfiguration").expect("webhooks are served");
        for (_, configuration) in state.store.list(configurations, None).0 {
            for webhook in configuration["webhooks"].as_array().into_iter().flatten() {
                if self.is_wanted_by(webhook) {
                    ask(webhook, self.request(&state.new_uid())).await?;
                }
            }
        }
        Ok(())
    }

    fn is_wanted_by(&self, webhook: &Value) -> bool {
        let has = |rule: &Value, field: &str, wanted: &str| {
            rule[field].as_array().is_some_and(|all| all.iter().any(|one| one == wanted || one == "*"))
        };
        let wants = |rule: &Value| {
            has(rule, "operations", self.operation)
                && has(rule, "apiGroups", self.kind.group)
                && has(rule, "apiVersions", self.kind.version)
                && has(rule, "resources", self.kind.plural)
        };
        webhook["clientConfig"]["url"].is_string()
            && webhook["rules"].as_array().is_some_and(|rules| rules.iter().any(wants))
    }

    fn request(&self, uid: &str) -> Value {
        let Self { kind, before, after, .. } = self;
        let object = after.or(*before).unwrap_or(&Value::Null);
        let names = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let resource = json!({"group": kind.group, "version": kind.version, "resource": kind.plural});
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": uid, "kind": names, "resource": resource,
                "requestKind": names, "requestResource": resource,
                "name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"],
                "operation": self.operation,
                "userInfo": {"username": self.user.name, "groups": self.user.groups},
                "object": after, "oldObject": before, "dryRun": self.dry_run, "options": null,
            },
        })
    }
}

async fn ask(webhook: &Value, review: Value) -> Result<(), Refusal> {
    let name = webhook["name"].as_str().unwrap_or_default();
    let seconds = webhook["timeoutSeconds"].as_u64().map_or(TIMEOUT, Duration::from_secs);
    let answer = tokio::time::timeout(seconds, post(&webhook["clientConfig"], review)).await;
    let answer = answer.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
    match answer {
        Ok(response) if response["allowed"] == true => Ok(()),
        Ok(response) => {
            let code = response["status"]["code"].as_u64().and_then(|code| u16::try_from(code).ok());
            let code = code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::FORBIDDEN);
            let message = response["status"]["message"].as_str().unwrap_or("denied without explanation");
            Err(Refusal::denied(name, code, message))
        }
        Err(_) if webhook["failurePolicy"] == "Ignore" => Ok(()),
        Err(why) => Err(Refusal::internal(format!("failed calling webhook \"{name}\": {why}"))),
    }
}

async fn post(client: &Value, review: Value) -> Result<Value, String> {
    let url = client["url"].as_str().unwrap_or_default();
    let authority = super::super::from_base64(client["caBundle"].as_str().unwrap_or_default());
    let connector =
        super::super::server::connector(authority.as_deref()).map_err(|error| error.to_string())?;
    let client =
        hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build(connector);
    let request = Request::post(url).header(header::CONTENT_TYPE, "application/json");
    let request =
        request.body(Body::from(Bytes::from(review.to_string()))).map_err(|error| error.to_string())?;
    let response = client.request(request).await.map_err(|error| error.to_string())?;
    let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    let mut answer: Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    Ok(answer["response"].take())
}
