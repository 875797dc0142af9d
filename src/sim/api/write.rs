//! Creating and updating.

use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::super::status::{Cause, Refusal};
use super::super::store::{Name, Object};
use super::commit::{How, Write};
use super::herd::make_writable;
use super::options::Options;
use super::route::{REVIEWS, Resource};
use super::{Call, decode, read, review};

pub(super) async fn create(
    call: &Call<'_>,
    resource: &Resource,
    body: &[u8],
) -> Result<Response<Body>, Refusal> {
    let options = Options::parse(&call.query, "CreateOptions")?;
    if REVIEWS.iter().any(|review| review == resource.kind) {
        let asked = decode::body(call, resource, body, options.unknown)?;
        return review::answer(call, resource.kind, &asked);
    }
    if let Some(part) = &resource.part {
        return match (resource.kind.kind, part.as_str()) {
            ("ServiceAccount", "token") => {
                review::token(call, resource, &decode::parse(call, resource.kind, body)?)
            }
            _ => Err(Refusal::no_resource()),
        };
    }
    let mut object = decode::body(call, resource, body, options.unknown)?;
    if object["metadata"]["resourceVersion"].as_str().is_some_and(|version| !version.is_empty()) {
        return Err(Refusal::unforeseen("resourceVersion should not be set on objects to be created"));
    }
    let name = name_new(resource, &mut object)?;
    let mut write = write(call, resource, name, None, How::Create);
    write.dry_run = options.dry_run;
    make_writable(call.state, resource.kind, &write.name.1);
    let taken = call.state.store.get(resource.kind, &write.name).is_some();
    // What is wrong with the object is said first, as on real servers.
    write.dry_run |= taken;
    let name = write.name.1.clone();
    let object = write.commit(object).await?;
    if taken {
        return Err(Refusal::already_exists(resource.kind, &name));
    }
    read::one(call, resource, &object, StatusCode::CREATED)
}

pub(super) async fn update(
    call: &Call<'_>,
    resource: &Resource,
    body: &[u8],
) -> Result<Response<Body>, Refusal> {
    let options = Options::parse(&call.query, "UpdateOptions")?;
    let object = decode::body(call, resource, body, options.unknown)?;
    let before = read::find(call, resource)?;
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if version.is_empty() && resource.kind.is_custom() {
        let message = "Invalid value: 0: must be specified for an update";
        let cause = Cause::new("FieldValueInvalid", "metadata.resourceVersion", message);
        return Err(Refusal::invalid_named(&resource.kind.resource(), &resource.name, &[cause]));
    }
    let mut write = write(call, resource, resource.key(), Some(before), How::Replace);
    write.dry_run = options.dry_run;
    let object = write.commit(object).await?;
    read::one(call, resource, &object, StatusCode::OK)
}

pub(super) fn write<'a>(
    call: &'a Call<'_>,
    resource: &'a Resource,
    name: Name,
    before: Option<Object>,
    how: How,
) -> Write<'a> {
    Write {
        state: call.state,
        kind: resource.kind,
        name,
        before,
        manager: call.manager(),
        part: resource.part.as_deref(),
        how,
        dry_run: false,
        call: Some(call),
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

/// The name of something new, made from `generateName` where it has none.
fn name_new(resource: &Resource, object: &mut Value) -> Result<Name, Refusal> {
    let metadata = &object["metadata"];
    let mut name = metadata["name"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        let prefix = metadata["generateName"].as_str().unwrap_or_default();
        if prefix.is_empty() {
            let message = "Required value: name or generateName is required";
            let cause = Cause::new("FieldValueRequired", "metadata.name", message);
            return Err(Refusal::invalid(resource.kind, "", &[cause]));
        }
        let letters = b"bcdfghjklmnpqrstvwxz2456789";
        let suffix = (0..5).map(|_| char::from(letters[fastrand::usize(..letters.len())]));
        name = prefix.chars().chain(suffix).collect();
    }
    let of_roles = resource.kind.group == "rbac.authorization.k8s.io";
    if !of_roles && (253 < name.len() || !name.split('.').all(is_label)) {
        let message = format!(
            "Invalid value: \"{name}\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
             characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex \
             used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        );
        let cause = Cause::new("FieldValueInvalid", "metadata.name", message);
        return Err(Refusal::invalid(resource.kind, &name, &[cause]));
    }
    object["metadata"]["name"] = json!(name);
    Ok((resource.namespace.clone(), name))
}

fn is_label(part: &str) -> bool {
    let inner = part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    !part.is_empty() && inner && !part.starts_with('-') && !part.ends_with('-')
}
