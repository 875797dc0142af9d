//! Getting one object.

use std::time::Duration;

use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::super::protobuf;
use super::super::status::Refusal;
use super::super::store::{Object, Store};
use super::encode::{self, Form};
use super::route::Resource;
use super::{Call, table};

/// How long a server waits for a version it does not know yet.
const WAITS_FOR_VERSION: Duration = Duration::from_secs(3);

pub(super) async fn get(call: &Call<'_>, resource: &Resource) -> Result<Response<Body>, Refusal> {
    if let Some(version) = call.query.version()? {
        reach(&call.state.store, version).await?;
    }
    let object = find(call, resource)?;
    one(call, resource, &object, StatusCode::OK)
}

pub(super) fn find(call: &Call<'_>, resource: &Resource) -> Result<Object, Refusal> {
    let known = resource.part.as_deref().is_none_or(|part| part == "status" && resource.kind.status);
    if !known {
        return Err(Refusal::no_resource());
    }
    let of_herd = || call.state.herd_of(resource.kind)?.value(&resource.name).map(Object::new);
    // In this order, as nodes leave the herd for the store.
    let object = of_herd().or_else(|| call.state.store.get(resource.kind, &resource.key()));
    object.ok_or_else(|| Refusal::not_found(resource.kind, &resource.name))
}

/// An object in the form that was asked for.
pub(super) fn one(
    call: &Call<'_>,
    resource: &Resource,
    object: &Value,
    status: StatusCode,
) -> Result<Response<Body>, Refusal> {
    let shown = shown(resource, object);
    let form = encode::form(call, resource)?;
    let document = match form {
        Form::Protobuf(kind) => {
            return Ok(encode::bytes(call, status, protobuf::encode(kind, &shown), encode::PROTOBUF));
        }
        Form::Table => {
            table::of(resource.kind, &[&shown], &shown["metadata"]["resourceVersion"], call.state.now())
        }
        Form::Metadata => table::partial(&shown),
        Form::Json | Form::Yaml => shown,
    };
    Ok(encode::text(call, status, form, &document))
}

/// As the path's group names it; events have two forms.
pub(super) fn shown(resource: &Resource, object: &Value) -> Value {
    let mut shown = object.clone();
    if resource.core_event {
        core_event(&mut shown);
    }
    shown
}

fn core_event(event: &mut Value) {
    let moves = [
        ("regarding", "involvedObject"),
        ("note", "message"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("reportingController", "reportingComponent"),
    ];
    event["apiVersion"] = json!("v1");
    if let Some(fields) = event.as_object_mut() {
        for (from, to) in moves {
            if let Some(value) = fields.shift_remove(from) {
                fields.insert(to.to_owned(), value);
            }
        }
        fields.entry("source").or_insert_with(|| json!({}));
    }
}

/// Waits a while for a version that is not there yet.
pub(super) async fn reach(store: &Store, version: u64) -> Result<(), Refusal> {
    let current = store.version();
    // Looked at again and again: what happens to a herd wakes only those who watch it.
    let reached = async {
        while store.version() < version {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(WAITS_FOR_VERSION, reached).await.map_err(|_| Refusal::too_large(version, current))
}
