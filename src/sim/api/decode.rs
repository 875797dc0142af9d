//! Bodies of requests as objects of their kind.

use http::header;
use serde_json::{Value, json};

use super::super::kind::Kind;
use super::super::protobuf::{self, Unreadable};
use super::super::status::Refusal;
use super::super::structure::Structure;
use super::Call;
use super::options::Unknown;
use super::route::Resource;
use super::write::yaml;

const FORMATS: [&str; 4] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"];

/// The object in the body of a creation or an update.
pub(super) fn body(
    call: &Call<'_>,
    resource: &Resource,
    body: &[u8],
    unknown: Unknown,
) -> Result<Value, Refusal> {
    let mut object = parse(call, resource.kind, body)?;
    fill_in_kind(resource, &mut object);
    check_identity(resource, &object)?;
    to_kept_form(resource, &mut object);
    let kind = resource.kind;
    let unreadable = |why: &str| {
        format!("{} in version {:?} cannot be handled as a {}: {why}", kind.kind, kind.version, kind.kind)
    };
    let structure = Structure::of(kind);
    if let Some(why) = structure.misfit(kind.kind, &object) {
        return Err(Refusal::bad_request(unreadable(&why)));
    }
    settle_unknown(call, unknown, &call.state.take_unknown(kind, &mut object))
        .map_err(|why| Refusal::bad_request(unreadable(&why)))?;
    Ok(object)
}

/// What a patch has made of an object.
pub(super) fn patched(
    call: &Call<'_>,
    resource: &Resource,
    mut object: Value,
    unknown: Unknown,
) -> Result<Value, Refusal> {
    check_identity(resource, &object)?;
    to_kept_form(resource, &mut object);
    let structure = Structure::of(resource.kind);
    if let Some(why) = structure.misfit(resource.kind.kind, &object) {
        return Err(Refusal::invalid_patch(&object, &why));
    }
    let undeclared = call.state.take_unknown(resource.kind, &mut object);
    settle_unknown(call, unknown, &undeclared).map_err(|why| Refusal::invalid_patch(&object, &why))?;
    Ok(object)
}

fn settle_unknown(call: &Call<'_>, unknown: Unknown, fields: &[String]) -> Result<(), String> {
    let named = fields.iter().map(|field| format!("unknown field {field:?}"));
    match unknown {
        Unknown::Refused if !fields.is_empty() => {
            let named: Vec<String> = named.collect();
            Err(format!("strict decoding error: {}", named.join(", ")))
        }
        Unknown::ToldOf => {
            named.for_each(|warning| call.warn(warning));
            Ok(())
        }
        Unknown::Refused | Unknown::Ignored => Ok(()),
    }
}

pub(super) fn parse(call: &Call<'_>, kind: &Kind, body: &[u8]) -> Result<Value, Refusal> {
    match call.header(&header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim() {
        "" | "application/json" | "*/*" => {
            let parsed = serde_json::from_slice(body);
            parsed.map_err(|error| {
                Refusal::bad_request(format!("the object provided is not valid JSON: {error}"))
            })
        }
        "application/yaml" => yaml(body),
        "application/vnd.kubernetes.protobuf" if !kind.is_custom() => {
            protobuf::decode(body).map_err(|unreadable| match unreadable {
                Unreadable::Kind => Refusal::media_type(&FORMATS),
                Unreadable::Bytes => {
                    Refusal::bad_request("the object provided is not valid protobuf".to_owned())
                }
            })
        }
        _ if kind.is_custom() => Err(Refusal::media_type(&FORMATS[..2])),
        _ => Err(Refusal::media_type(&FORMATS)),
    }
}

/// The path says what kinds of the API server itself need not say.
fn fill_in_kind(resource: &Resource, object: &mut Value) {
    let Some(fields) = object.as_object_mut().filter(|_| !resource.kind.is_custom()) else { return };
    fields.entry("kind").or_insert_with(|| json!(resource.kind.kind));
    fields.entry("apiVersion").or_insert_with(|| json!(resource.api_version()));
}

/// It is of this kind, and where the path says.
pub(super) fn check_identity(resource: &Resource, object: &Value) -> Result<(), Refusal> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, version) = (text(&object["kind"]), text(&object["apiVersion"]));
    if !object.is_object() || kind.is_empty() {
        return Err(Refusal::bad_request(format!("Object 'Kind' is missing in '{object}'")));
    }
    if kind != resource.kind.kind || version != resource.api_version() {
        let why = format!(
            "the object provided is unrecognized: {version}, Kind={kind} does not match expected {}, Kind={}",
            resource.api_version(),
            resource.kind.kind
        );
        return Err(Refusal::bad_request(why));
    }
    let (name, namespace) = (text(&object["metadata"]["name"]), text(&object["metadata"]["namespace"]));
    if !resource.name.is_empty() && name != resource.name {
        let why =
            format!("the name of the object ({name}) does not match the name on the URL ({})", resource.name);
        return Err(Refusal::bad_request(why));
    }
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
    object["apiVersion"] = json!(resource.kind.api_version());
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
