//! Patches of every kind, and server-side apply.

use axum::body::Body;
use http::{Response, StatusCode, header};
use serde_json::{Value, json};

use super::super::fields::{self, ApplyError, Writer};
use super::super::status::Refusal;
use super::super::store::Object;
use super::commit::How;
use super::options::Options;
use super::route::Resource;
use super::write::{write, yaml};
use super::{Call, decode, read};

/// How often a patch without a version is made again over a newer object.
const TRIES: usize = 5;

const APPLY: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

pub(super) async fn patch(
    call: &Call<'_>,
    resource: &Resource,
    body: &[u8],
) -> Result<Response<Body>, Refusal> {
    let content = call.header(&header::CONTENT_TYPE);
    let content = content.split(';').next().unwrap_or_default().trim().to_owned();
    let known =
        if resource.kind.is_custom() { &[JSON, MERGE, APPLY][..] } else { &[JSON, MERGE, STRATEGIC, APPLY] };
    if !known.contains(&content.as_str()) {
        return Err(Refusal::media_type(known));
    }
    let options = Options::of_patch(&call.query, content == APPLY)?;
    let mut tries = 0;
    loop {
        tries += 1;
        let made = if content == APPLY {
            apply(call, resource, body, options).await
        } else {
            patch_once(call, resource, &content, body, options).await
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
    options: Options,
) -> Result<(Object, StatusCode), Made> {
    let before = read::find(call, resource)?;
    let patch: Value =
        serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))?;
    let mut object = read::shown(resource, &before);
    let patched = match content {
        MERGE => {
            fields::merge_patch(&mut object, &patch);
            Ok(())
        }
        JSON => fields::json_patch(&mut object, &patch),
        _ => fields::strategic_patch(&mut object, &patch, &resource.kind.schema),
    };
    patched.map_err(|error| {
        let (code, reason) = error.status();
        Refusal::with_code(code, reason, error.to_string())
    })?;
    let mut object = decode::patched(call, resource, object, options.unknown)?;
    let named = patch["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    if named.is_none() {
        object["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    }
    let mut write = write(call, resource, resource.key(), Some(before), How::Patch);
    write.dry_run = options.dry_run;
    match write.commit(object).await {
        Ok(object) => Ok((object, StatusCode::OK)),
        Err(refusal) if refusal.reason == "Conflict" && named.is_none() => Err(Made::Lost),
        Err(refusal) => Err(refusal.into()),
    }
}

async fn apply(
    call: &Call<'_>,
    resource: &Resource,
    body: &[u8],
    options: Options,
) -> Result<(Object, StatusCode), Made> {
    let mut config = yaml(body)?;
    fill_in_name(resource, &mut config);
    decode::check_identity(resource, &config)?;
    let before = call.state.store.get(resource.kind, &resource.key());
    let named = config["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    let uid = config["metadata"]["uid"].as_str().map(str::to_owned);
    if before.is_none() {
        if resource.part.is_some() || named.is_some() {
            return Err(Refusal::not_found(resource.kind, &resource.name).into());
        }
        if let Some(uid) = uid {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Refusal::conflict(resource.kind, &resource.name, &why).into());
        }
    }
    check_declared(call, resource, &config)?;
    if let Some(metadata) = config["metadata"].as_object_mut() {
        metadata.shift_remove("resourceVersion");
    }
    keep_part(resource, &mut config);
    let mut merged = merge(call, resource, before.as_deref(), &config, options.force)?;
    // Both are held against what is there.
    if let Some(named) = &named {
        merged["metadata"]["resourceVersion"] = json!(named);
    }
    let status = if before.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    let mut write = write(call, resource, resource.key(), before, How::Apply);
    write.dry_run = options.dry_run;
    match write.commit(merged).await {
        Ok(object) => Ok((object, status)),
        Err(refusal) if matches!(refusal.reason, "Conflict" | "AlreadyExists") && named.is_none() => {
            Err(Made::Lost)
        }
        Err(refusal) => Err(refusal.into()),
    }
}

fn merge(
    call: &Call<'_>,
    resource: &Resource,
    before: Option<&Value>,
    config: &Value,
    force: bool,
) -> Result<Value, Refusal> {
    let api_version = resource.kind.api_version();
    let manager = call.query.get("fieldManager").unwrap_or_default();
    let subresource = resource.part.as_deref();
    let writer = Writer { manager, api_version: &api_version, subresource, now: call.state.now() };
    let merged = fields::apply(before, config, &writer, force, &resource.kind.schema);
    merged.map_err(|error| match error {
        ApplyError::Conflicts(conflicts) => {
            Refusal::apply_conflict(conflicts.to_string(), &conflicts.causes())
        }
        other => malformed(&other),
    })
}

/// Fields that nobody knows cannot be owned.
fn check_declared(call: &Call<'_>, resource: &Resource, config: &Value) -> Result<(), Refusal> {
    let unknown = call.state.take_unknown(resource.kind, &mut config.clone());
    if unknown.is_empty() {
        return Ok(());
    }
    let faults = unknown.iter().map(|field| format!(".{field}: field not declared in schema"));
    Err(malformed(&ApplyError::malformed(config, faults.collect())))
}

fn malformed(error: &ApplyError) -> Refusal {
    let (code, reason) = error.status();
    Refusal::with_code(code, reason, error.to_string())
}

fn fill_in_name(resource: &Resource, config: &mut Value) {
    if !config.is_object() {
        return;
    }
    if config["metadata"]["name"].is_null() {
        config["metadata"]["name"] = json!(resource.name);
    }
    if !resource.namespace.is_empty() && config["metadata"]["namespace"].is_null() {
        config["metadata"]["namespace"] = json!(resource.namespace);
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
