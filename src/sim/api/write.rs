//! Creating, updating and deleting.

use std::sync::Arc;

use axum::body::Body;
use http::{Response, StatusCode, header};
use serde_json::{Value, json};

use super::super::selector::Selector;
use super::super::status::{Cause, Refusal};
use super::super::store::{Name, Object};
use super::commit::{Write, namespaces};
use super::route::{REVIEWS, Resource};
use super::{Call, encode, read, review};

pub(super) async fn create(
    call: &Call<'_>,
    resource: &Resource,
    body: &[u8],
) -> Result<Response<Body>, Refusal> {
    if REVIEWS.iter().any(|review| review == resource.kind) {
        return review::answer(call, resource.kind, &parse(call, body)?);
    }
    if let Some(part) = &resource.part {
        return match (resource.kind.kind, part.as_str()) {
            ("ServiceAccount", "token") => review::token(call, resource, &parse(call, body)?),
            _ => Err(Refusal::no_resource()),
        };
    }
    let mut object = parse(call, body)?;
    check_kind(resource, &object)?;
    to_kept_form(resource, &mut object);
    if object["metadata"]["resourceVersion"].as_str().is_some_and(|version| !version.is_empty()) {
        return Err(Refusal::bad_request("resourceVersion should not be set on objects to be created"));
    }
    let name = name_new(resource, &mut object)?;
    if let Some(namespace) = resource.scope()
        && call.state.store.get(namespaces(), &(String::new(), namespace.to_owned())).is_none()
    {
        return Err(Refusal::not_found(namespaces(), namespace));
    }
    if call.state.store.get(resource.kind, &name).is_some() {
        return Err(Refusal::already_exists(resource.kind, &name.1));
    }
    let write = write(call, resource, name, None, false);
    let object = write.commit(object).await?;
    read::one(call, resource, &object, StatusCode::CREATED)
}

pub(super) async fn update(
    call: &Call<'_>,
    resource: &Resource,
    body: &[u8],
) -> Result<Response<Body>, Refusal> {
    let before = read::find(call, resource)?;
    let mut object = parse(call, body)?;
    check_kind(resource, &object)?;
    to_kept_form(resource, &mut object);
    if object["metadata"]["name"].as_str() != Some(resource.name.as_str()) {
        let named = object["metadata"]["name"].as_str().unwrap_or_default();
        let why = format!(
            "the name of the object ({named}) does not match the name on the URL ({})",
            resource.name
        );
        return Err(Refusal::bad_request(why));
    }
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if version.is_empty() && resource.kind.is_custom() {
        let field = "metadata.resourceVersion".to_owned();
        let message = "Invalid value: 0: must be specified for an update".to_owned();
        let cause = Cause { reason: "FieldValueInvalid", field, message };
        return Err(Refusal::invalid(resource.kind, &resource.name, &[cause]));
    }
    let write = write(call, resource, resource.key(), Some(before), false);
    let object = write.commit(object).await?;
    read::one(call, resource, &object, StatusCode::OK)
}

pub(super) async fn delete(
    call: &Call<'_>,
    resource: &Resource,
    body: &[u8],
) -> Result<Response<Body>, Refusal> {
    let before = read::find(call, resource)?;
    let options: Value = if body.is_empty() { Value::Null } else { yaml(body)? };
    let preconditions = &options["preconditions"];
    for (field, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (wanted, is) = (preconditions[field].as_str(), before["metadata"][field].as_str());
        if let Some(wanted) = wanted.filter(|wanted| Some(*wanted) != is) {
            let is = is.unwrap_or_default();
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({is}). \
                               The object might have been deleted and then recreated"
            );
            let why = if field == "uid" {
                format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {is}")
            } else {
                why
            };
            return Err(Refusal::conflict(resource.kind, &resource.name, &why));
        }
    }
    let mut write = write(call, resource, resource.key(), Some(Arc::clone(&before)), true);
    write.dry_run |= options["dryRun"].as_array().is_some_and(|all| !all.is_empty());
    let (object, gone) = write.delete(before).await?;
    // Kinds of the API server itself answer with a Status when the object is gone at once.
    if gone {
        let details = json!({
            "name": resource.name, "group": resource.kind.group, "kind": resource.kind.plural,
            "uid": object["metadata"]["uid"],
        });
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        status["details"] = details;
        return Ok(encode::json(call, &status));
    }
    read::one(call, resource, &object, StatusCode::OK)
}

pub(super) async fn delete_all(call: &Call<'_>, resource: &Resource) -> Result<Response<Body>, Refusal> {
    let query = &call.query;
    let selector = Selector::parse(query.get("labelSelector"), query.get("fieldSelector"))?;
    let (objects, _) = call.state.store.list(resource.kind, resource.scope());
    for (name, object) in objects.into_iter().filter(|(_, object)| selector.matches(object)) {
        let write = write(call, resource, name, Some(Arc::clone(&object)), true);
        write.delete(object).await?;
    }
    let list = json!({
        "kind": format!("{}List", resource.kind.kind), "apiVersion": resource.api_version(),
        "metadata": {"resourceVersion": call.state.store.version().to_string()}, "items": [],
    });
    Ok(encode::json(call, &list))
}

pub(super) fn write<'a>(
    call: &'a Call<'_>,
    resource: &'a Resource,
    name: Name,
    before: Option<Object>,
    applied: bool,
) -> Write<'a> {
    Write {
        state: call.state,
        kind: resource.kind,
        name,
        before,
        manager: call.manager(),
        part: resource.part.as_deref(),
        applied,
        dry_run: call.query.get("dryRun").is_some_and(|all| !all.is_empty()),
        user: Some(&call.user),
    }
}

fn parse(call: &Call<'_>, body: &[u8]) -> Result<Value, Refusal> {
    match call.header(&header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim() {
        "" | "application/json" | "*/*" => {
            let parsed = serde_json::from_slice(body);
            parsed.map_err(|error| {
                Refusal::bad_request(format!("the object provided is not valid JSON: {error}"))
            })
        }
        "application/yaml" => yaml(body),
        _ => Err(Refusal::media_type()),
    }
}

pub(super) fn yaml(body: &[u8]) -> Result<Value, Refusal> {
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    let text = std::str::from_utf8(body).map_err(|error| Refusal::bad_request(error.to_string()))?;
    let parsed = serde_saphyr::from_str(text);
    parsed.map_err(|error| Refusal::bad_request(format!("error decoding YAML: {error}")))
}

pub(super) fn check_kind(resource: &Resource, object: &Value) -> Result<(), Refusal> {
    let (kind, version) =
        (object["kind"].as_str().unwrap_or_default(), object["apiVersion"].as_str().unwrap_or_default());
    if !object.is_object() || kind.is_empty() {
        return Err(Refusal::bad_request("Object 'Kind' is missing"));
    }
    if kind != resource.kind.kind || version != resource.api_version() {
        let why = format!(
            "the object provided is unrecognized: {version}, Kind={kind} does not match expected {}, Kind={}",
            resource.api_version(),
            resource.kind.kind
        );
        return Err(Refusal::bad_request(why));
    }
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if !namespace.is_empty() && namespace != resource.namespace {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Refusal::bad_request(why));
    }
    Ok(())
}

/// Events are kept in one form only.
pub(super) fn to_kept_form(resource: &Resource, object: &mut Value) {
    if !resource.core_event {
        return;
    }
    let moves = [
        ("involvedObject", "regarding"),
        ("message", "note"),
        ("source", "deprecatedSource"),
        ("firstTimestamp", "deprecatedFirstTimestamp"),
        ("lastTimestamp", "deprecatedLastTimestamp"),
        ("count", "deprecatedCount"),
        ("reportingComponent", "reportingController"),
    ];
    if let Some(fields) = object.as_object_mut() {
        for (from, to) in moves {
            if let Some(value) = fields.shift_remove(from) {
                fields.insert(to.to_owned(), value);
            }
        }
    }
}

/// The name of something new, made from `generateName` where it has none.
fn name_new(resource: &Resource, object: &mut Value) -> Result<Name, Refusal> {
    let metadata = &object["metadata"];
    let mut name = metadata["name"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        let prefix = metadata["generateName"].as_str().unwrap_or_default();
        if prefix.is_empty() {
            let field = "metadata.name".to_owned();
            let message = "Required value: name or generateName is required".to_owned();
            let cause = Cause { reason: "FieldValueRequired", field, message };
            return Err(Refusal::invalid(resource.kind, "", &[cause]));
        }
        let letters = b"bcdfghjklmnpqrstvwxz2456789";
        let suffix = (0..5).map(|_| char::from(letters[fastrand::usize(..letters.len())]));
        name = prefix.chars().chain(suffix).collect();
    }
    let label = |part: &str| {
        let inner =
            part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        !part.is_empty() && inner && !part.starts_with('-') && !part.ends_with('-')
    };
    if resource.kind.group != "rbac.authorization.k8s.io" && (253 < name.len() || !name.split('.').all(label))
    {
        let message = format!(
            "Invalid value: \"{name}\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
             characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex \
             used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        );
        let cause = Cause { reason: "FieldValueInvalid", field: "metadata.name".to_owned(), message };
        return Err(Refusal::invalid(resource.kind, &name, &[cause]));
    }
    object["metadata"]["name"] = json!(name);
    Ok((resource.namespace.clone(), name))
}
