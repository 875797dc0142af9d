//! Patches of every kind, and server-side apply.

use axum::body::Body;
use http::{Response, StatusCode, header};
use serde_json::{Value, json};

use super::super::fields::{self, ApplyError, Writer};
use super::super::kind::Model;
use super::super::status::{Cause, Refusal};
use super::super::store::Object;
use super::route::Resource;
use super::write::{check_kind, to_kept_form, write, yaml};
use super::{Call, read};

/// How often a patch without a version is made again over a newer object.
const TRIES: usize = 5;

pub(super) async fn patch(
    call: &Call<'_>,
    resource: &Resource,
    body: &[u8],
) -> Result<Response<Body>, Refusal> {
    let content = call.header(&header::CONTENT_TYPE);
    let content = content.split(';').next().unwrap_or_default().trim().to_owned();
    let mut tries = 0;
    loop {
        tries += 1;
        let made = if content.starts_with("application/apply-patch+") {
            apply(call, resource, body).await
        } else {
            patch_once(call, resource, &content, body).await
        };
        match made {
            // Somebody was faster. Only a patch that names a version minds.
            Err(Made::Lost) if tries < TRIES => {}
            Err(Made::Lost) => return Err(Refusal::modified(resource.kind, &resource.name)),
            Err(Made::Refused(refusal)) => return Err(*refusal),
            Ok((object, status)) => return read::one(call, resource, &object, status),
        }
    }
}

/// Why a write was not made.
enum Made {
    Lost,
    Refused(Box<Refusal>),
}

impl From<Refusal> for Made {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

async fn patch_once(
    call: &Call<'_>,
    resource: &Resource,
    content: &str,
    body: &[u8],
) -> Result<(Object, StatusCode), Made> {
    let before = read::find(call, resource)?;
    let patch: Value =
        serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))?;
    let mut object = read::shown(resource, &before);
    match content {
        "application/merge-patch+json" => fields::merge_patch(&mut object, &patch),
        "application/json-patch+json" => {
            fields::json_patch(&mut object, &patch).map_err(|error| {
                let field = "patch".to_owned();
                let cause = Cause { reason: "FieldValueInvalid", field, message: error.to_string() };
                Refusal::invalid(resource.kind, &resource.name, &[cause])
            })?;
        }
        "application/strategic-merge-patch+json" if resource.kind.model != Model::Custom => {
            fields::strategic_patch(&mut object, &patch, &resource.kind.schema)
                .map_err(|error| Refusal::bad_request(error.to_string()))?;
        }
        _ => return Err(Refusal::media_type().into()),
    }
    to_kept_form(resource, &mut object);
    let named = patch["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    if named.is_none() {
        object["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    }
    let write = write(call, resource, resource.key(), Some(before), false);
    match write.commit(object).await {
        Ok(object) => Ok((object, StatusCode::OK)),
        Err(refusal) if refusal.reason == "Conflict" && named.is_none() => Err(Made::Lost),
        Err(refusal) => Err(refusal.into()),
    }
}

async fn apply(call: &Call<'_>, resource: &Resource, body: &[u8]) -> Result<(Object, StatusCode), Made> {
    let mut config = yaml(body)?;
    check_kind(resource, &config)?;
    let Some(manager) = call.query.get("fieldManager").filter(|manager| !manager.is_empty()) else {
        let field = "fieldManager".to_owned();
        let message = "Required value: is required for apply patch".to_owned();
        let cause = Cause { reason: "FieldValueRequired", field, message };
        let mut refusal = Refusal::invalid(resource.kind, "", &[cause]);
        refusal.message.clear();
        refusal.message.push_str("PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: ");
        refusal.message.push_str("Required value: is required for apply patch");
        return Err(refusal.into());
    };
    let api_version = resource.kind.api_version();
    let named = config["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    let before = call.state.store.get(resource.kind, &resource.key());
    match (&before, &named) {
        (None, Some(_)) => return Err(Refusal::not_found(resource.kind, &resource.name).into()),
        (Some(before), Some(version)) if before["metadata"]["resourceVersion"] != version.as_str() => {
            return Err(Refusal::modified(resource.kind, &resource.name).into());
        }
        _ => {}
    }
    if before.is_none() && resource.part.is_some() {
        return Err(Refusal::not_found(resource.kind, &resource.name).into());
    }
    if let Some(metadata) = config["metadata"].as_object_mut() {
        metadata.insert("name".to_owned(), json!(resource.name));
        if !resource.namespace.is_empty() {
            metadata.insert("namespace".to_owned(), json!(resource.namespace));
        }
        metadata.shift_remove("resourceVersion");
    }
    keep_part(resource, &mut config);
    let part = resource.part.as_deref();
    let writer = Writer { manager, api_version: &api_version, subresource: part, now: call.state.now() };
    let force = call.query.flag("force");
    let merged = fields::apply(before.as_deref(), &config, &writer, force, &resource.kind.schema);
    let merged = merged.map_err(|error| match error {
        ApplyError::Conflicts(conflicts) => {
            Refusal::apply_conflict(conflicts.to_string(), &conflicts.causes())
        }
        other => Refusal::bad_request(other.to_string()),
    })?;
    let status = if before.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    let mut write = write(call, resource, resource.key(), before, true);
    write.part = part;
    match write.commit(merged).await {
        Ok(object) => Ok((object, status)),
        Err(refusal) if matches!(refusal.reason, "Conflict" | "AlreadyExists") => Err(Made::Lost),
        Err(refusal) => Err(refusal.into()),
    }
}

/// Of a config for a subresource only that part counts, and for the object itself all but it.
fn keep_part(resource: &Resource, config: &mut Value) {
    let Some(fields) = config.as_object_mut() else { return };
    match resource.part.as_deref() {
        Some("status") => {
            fields.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
        }
        _ if resource.kind.status => drop(fields.shift_remove("status")),
        _ => {}
    }
}
