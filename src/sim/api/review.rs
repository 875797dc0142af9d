//! Questions that keep nothing: who is this, may they, and a token for an account.

use std::time::Duration;

use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::super::kind::Kind;
use super::super::rbac::{self, Attributes, User};
use super::super::status::{Cause, Refusal};
use super::route::Resource;
use super::settle::seconds;
use super::{Call, encode};

/// In seconds.
const SHORTEST_TOKEN: u64 = 600;

pub(super) fn answer(call: &Call<'_>, kind: &Kind, review: &Value) -> Result<Response<Body>, Refusal> {
    let mut answered = review.clone();
    answered["metadata"] = json!({});
    answered["status"] = match kind.kind {
        "TokenReview" => token_review(call, &review["spec"]),
        "SelfSubjectReview" => json!({"userInfo": {"username": call.user.name, "groups": call.user.groups}}),
        "SelfSubjectAccessReview" => access(call, &call.user, &review["spec"]),
        "SelfSubjectRulesReview" => {
            let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
            let rules = rbac::rules_of(&call.user, namespace, &call.state.store);
            let (of_paths, of_resources): (Vec<Value>, Vec<Value>) =
                rules.into_iter().partition(|rule| !rule["nonResourceURLs"].is_null());
            json!({"resourceRules": of_resources, "nonResourceRules": of_paths, "incomplete": false})
        }
        _ => {
            let spec = &review["spec"];
            let groups = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let groups: Vec<&str> = groups.collect();
            let user = User::new(spec["user"].as_str().unwrap_or_default(), &groups);
            if user.name.is_empty() && user.groups.is_empty() {
                let message = "Invalid value: \"\": at least one of user or group must be specified";
                let cause = Cause::new("FieldValueInvalid", "spec.user", message);
                return Err(Refusal::invalid(kind, "", &[cause]));
            }
            access(call, &user, spec)
        }
    };
    Ok(encode::bytes(call, StatusCode::CREATED, answered.to_string().into_bytes(), "application/json"))
}

fn token_review(call: &Call<'_>, spec: &Value) -> Value {
    let Some(user) = call.state.user_of(spec["token"].as_str().unwrap_or_default()) else {
        return json!({"user": {}, "error": "invalid bearer token, token lookup failed"});
    };
    let mut groups = user.groups;
    groups.push("system:authenticated".to_owned());
    let audiences = match &spec["audiences"] {
        Value::Null => json!(["https://kubernetes.default.svc"]),
        asked => asked.clone(),
    };
    json!({"authenticated": true, "user": {"username": user.name, "groups": groups}, "audiences": audiences})
}

fn access(call: &Call<'_>, user: &User, spec: &Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let attributes = if other.is_object() {
        Attributes { verb: text(&other["verb"]), path: Some(text(&other["path"])), ..Attributes::default() }
    } else {
        let mut plural = text(&resource["resource"]);
        if let Some(part) = resource["subresource"].as_str().filter(|part| !part.is_empty()) {
            plural = format!("{plural}/{part}");
        }
        Attributes {
            verb: text(&resource["verb"]),
            group: text(&resource["group"]),
            resource: plural,
            namespace: text(&resource["namespace"]),
            name: text(&resource["name"]),
            path: None,
        }
    };
    if attributes.is_allowed(user, &call.state.store) {
        json!({"allowed": true, "reason": "RBAC: allowed"})
    } else {
        json!({"allowed": false})
    }
}

/// A token for a ServiceAccount, as long as it is asked for.
pub(super) fn token(
    call: &Call<'_>,
    resource: &Resource,
    request: &Value,
) -> Result<Response<Body>, Refusal> {
    let account = call.state.store.get(resource.kind, &resource.key());
    account.ok_or_else(|| Refusal::not_found(resource.kind, &resource.name))?;
    let expires = request["spec"]["expirationSeconds"].as_u64().unwrap_or(3600);
    if expires < SHORTEST_TOKEN {
        let message = format!("Invalid value: {expires}: may not specify a duration less than 10 minutes");
        let cause = Cause::new("FieldValueInvalid", "spec.expirationSeconds", message);
        return Err(Refusal::invalid_named("TokenRequest.authentication.k8s.io", &resource.name, &[cause]));
    }
    let until = call.state.now() + Duration::from_secs(expires);
    let token = call.state.new_token(User::account(&resource.namespace, &resource.name), Some(until));
    let mut answered = request.clone();
    answered["apiVersion"] = json!("authentication.k8s.io/v1");
    answered["kind"] = json!("TokenRequest");
    answered["metadata"] = json!({"name": resource.name, "namespace": resource.namespace});
    answered["status"] = json!({"token": token, "expirationTimestamp": seconds(until)});
    Ok(encode::bytes(call, StatusCode::CREATED, answered.to_string().into_bytes(), "application/json"))
}
