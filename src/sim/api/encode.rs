//! Answers in the form that was asked for: JSON, a table of it, or protobuf; compressed where real servers
//! compress.

use std::collections::BTreeMap;
use std::io::Write as _;

use axum::body::Body;
use flate2::{Compression, write::GzEncoder};
use http::{Response, StatusCode, header, header::HeaderValue};
use serde_json::Value;

use super::super::protobuf::ProtoKind;
use super::super::status::Refusal;
use super::{Call, Resource};

pub(super) const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
pub(super) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Real servers compress from here on.
const COMPRESSED_FROM: usize = 128 << 10;

/// The first form in an Accept header that can be given.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    Json,
    Yaml,
    Table,
    /// Of each object its metadata only.
    Metadata,
    Protobuf(ProtoKind),
}

/// Forms that were asked for, the first that fits; kinds without protobuf are given in JSON where allowed.
pub(super) fn form(call: &Call<'_>, resource: &Resource) -> Result<Form, Refusal> {
    let accept = call.header(&header::ACCEPT);
    // A watch tells of one object at a time.
    let of_one = !resource.name.is_empty() || call.query.flag("watch");
    if accept.trim().is_empty() {
        return Ok(Form::Json);
    }
    for one in accept.split(',') {
        let mut parts = one.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let as_other = parts.clone().find_map(|part| part.strip_prefix("as="));
        match (media, as_other) {
            ("application/json", Some("Table")) => return Ok(Form::Table),
            ("application/json", Some("PartialObjectMetadata")) if of_one => return Ok(Form::Metadata),
            ("application/json", Some("PartialObjectMetadataList")) if !of_one => return Ok(Form::Metadata),
            ("application/json" | "*/*" | "application/*", None) => return Ok(Form::Json),
            ("application/yaml", None) => return Ok(Form::Yaml),
            (PROTOBUF, None) => {
                if let Some(kind) = ProtoKind::of(&resource.kind.api_version(), resource.kind.kind) {
                    return Ok(Form::Protobuf(kind));
                }
            }
            _ => {}
        }
    }
    let given = [JSON, YAML, PROTOBUF];
    Err(Refusal::not_acceptable(if resource.kind.is_custom() { &given[..2] } else { &given }))
}

pub(super) fn json(call: &Call<'_>, document: &Value) -> Response<Body> {
    bytes(call, StatusCode::OK, document.to_string().into_bytes(), JSON)
}

/// A document as JSON, or as YAML where that was asked for.
pub(super) fn text(call: &Call<'_>, status: StatusCode, form: Form, document: &Value) -> Response<Body> {
    if form != Form::Yaml {
        return bytes(call, status, document.to_string().into_bytes(), JSON);
    }
    // A document of JSON is one of YAML too.
    let text = serde_saphyr::to_string(&sorted(document)).unwrap_or_else(|_| document.to_string());
    bytes(call, status, text.into_bytes(), YAML)
}

/// YAML comes in the order of the alphabet.
fn sorted(document: &Value) -> Value {
    match document {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, Value> =
                fields.iter().map(|(name, value)| (name, sorted(value))).collect();
            Value::Object(fields.into_iter().map(|(name, value)| (name.clone(), value)).collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => document.clone(),
    }
}

pub(super) fn bytes(
    call: &Call<'_>,
    status: StatusCode,
    body: Vec<u8>,
    kind: &'static str,
) -> Response<Body> {
    let compressed = zips(call, body.len()).then(|| gzip(&body)).flatten();
    let zipped = compressed.is_some();
    let body = compressed.unwrap_or(body);
    call.sent.add(body.len());
    let mut response = streamed(call, Body::from(body), kind, zipped);
    *response.status_mut() = status;
    response
}

/// Whether an answer of so many bytes is compressed.
pub(super) fn zips(call: &Call<'_>, bytes: usize) -> bool {
    COMPRESSED_FROM <= bytes && call.header(&header::ACCEPT_ENCODING).contains("gzip")
}

/// A body that is counted by whoever makes it.
pub(super) fn streamed(call: &Call<'_>, body: Body, kind: &'static str, zipped: bool) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert("audit-id", call.state.audit_id());
    if zipped {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

fn gzip(body: &[u8]) -> Option<Vec<u8>> {
    // The level that real servers use.
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::new(1));
    encoder.write_all(body).ok()?;
    encoder.finish().ok()
}
