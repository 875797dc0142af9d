//! Validating webhooks that are reached by URL.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::{Request, header};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};

use super::super::cluster::State;
use super::super::kind::Kind;
use super::super::status::Refusal;
use super::Call;

const TIMEOUT: Duration = Duration::from_secs(10);
const LARGEST_ANSWER: usize = 1 << 20;

/// A write that webhooks may object to.
pub(super) struct Review<'a> {
    pub operation: &'static str,
    pub kind: &'static Kind,
    /// The subresource.
    pub part: Option<&'a str>,
    pub call: &'a Call<'a>,
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
                    self.ask(webhook, &state.new_uid()).await?;
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
                && self.is_covered(rule)
        };
        webhook["clientConfig"]["url"].is_string()
            && webhook["rules"].as_array().is_some_and(|rules| rules.iter().any(wants))
    }

    /// `*` is every resource without its subresources, `*/*` all there is.
    fn is_covered(&self, rule: &Value) -> bool {
        let plural = self.kind.plural;
        let covers = |pattern: &str| match self.part {
            None => matches!(pattern, "*" | "*/*") || pattern == plural,
            Some(part) => {
                let (kind, of) = pattern.split_once('/').unwrap_or((pattern, ""));
                (kind == "*" || kind == plural) && (of == "*" || of == part)
            }
        };
        rule["resources"].as_array().into_iter().flatten().filter_map(Value::as_str).any(covers)
    }

    async fn ask(&self, webhook: &Value, uid: &str) -> Result<(), Refusal> {
        let name = webhook["name"].as_str().unwrap_or_default();
        let seconds = webhook["timeoutSeconds"].as_u64().map_or(TIMEOUT, Duration::from_secs);
        let url = webhook["clientConfig"]["url"].as_str().unwrap_or_default();
        let url = format!("{url}?timeout={}s", seconds.as_secs());
        let answer = tokio::time::timeout(seconds, post(webhook, &url, self.request(uid))).await;
        let answer = answer.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
        let response = match answer {
            Ok(response) => response,
            Err(_) if webhook["failurePolicy"] == "Ignore" => return Ok(()),
            Err(why) => {
                let why =
                    format!("failed calling webhook {name:?}: failed to call webhook: Post {url:?}: {why}");
                return Err(Refusal::internal(why));
            }
        };
        for warning in response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            self.call.warn(warning.to_owned());
        }
        if response["allowed"] == true { Ok(()) } else { Err(denied(name, &response["status"])) }
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
                "userInfo": {"username": self.call.user.name, "groups": self.call.user.groups},
                "object": after, "oldObject": before, "dryRun": self.dry_run, "options": null,
            },
        })
    }
}

/// What a webhook that gives no code of its own says is a bad request.
fn denied(webhook: &str, status: &Value) -> Refusal {
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).filter(|code| 400 <= *code);
    let why = status["message"].as_str().or_else(|| status["reason"].as_str()).filter(|why| !why.is_empty());
    let why = why.map_or_else(|| " without explanation".to_owned(), |why| format!(": {why}"));
    Refusal::denied(webhook, code.unwrap_or(400), status["reason"].as_str() == Some("Forbidden"), &why)
}

async fn post(webhook: &Value, url: &str, review: Value) -> Result<Value, String> {
    let client = &webhook["clientConfig"];
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
