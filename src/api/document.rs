//! What of the OpenAPI document follows from rules that hold for every operation: how each fails, what its headers
//! are, how lists are followed. The rest stands beside each handler.

mod bounds;
mod examples;
mod failures;
mod links;
mod requests;
mod streams;

use serde_json::{Map, Value, json};

use super::{
    stream,
    task::{enter, list, logs},
    upload::BYTES,
};
use fedq_store::PageRequest;

const METHODS: [&str; 4] = ["get", "put", "post", "delete"];
const JSON: &str = "application/json";
pub const LINES: &str = "application/x-ndjson";
pub const EVENTS: &str = "text/event-stream";

/// RFC 1123 subdomains, which Kubernetes' names are.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// RFC 1123 labels, which namespaces' names are.
const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const TASK_ID: &str = "^[0-9a-z]{8}$";
const DIGEST: &str = "^[0-9a-f]{64}$";

/// The document, made whole.
pub fn finish(document: &utoipa::openapi::OpenApi) -> Value {
    let mut document = json!(document);
    name_lists(&mut document);
    document["servers"] = json!([{"url": "/", "description": "The server that this document is read from"}]);
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        tidy_all(schemas);
        tell_apart(schemas, "LogItem");
    }
    bounds::add(&mut document["components"]["schemas"]);
    requests::add(&mut document["components"]["schemas"]);
    streams::add(&mut document);
    let components = &mut document["components"];
    components["securitySchemes"] = json!({"token": {"type": "http", "scheme": "bearer"}});
    components["responses"] = failures::responses();
    components["headers"] = headers();
    document["security"] = json!([{"token": []}]);
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    for (path, item) in paths {
        for method in METHODS {
            if let Some(operation) = item.get_mut(method) {
                complete(path, method, operation);
            }
        }
    }
    document
}

/// `List_Cluster` is what the derive makes of `List<Cluster>`; people say `ClusterList`.
fn name_lists(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let named = std::mem::take(fields).into_iter().map(|(key, mut value)| {
                name_lists(&mut value);
                (key.strip_prefix("List_").map_or(key.clone(), |item| format!("{item}List")), value)
            });
            *fields = named.collect();
        }
        Value::Array(items) => items.iter_mut().for_each(name_lists),
        Value::String(text) => {
            if let Some(item) = text.strip_prefix("#/components/schemas/List_") {
                *text = format!("#/components/schemas/{item}List");
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Schemas as generators of clients take them best.
fn tidy_all(schemas: &mut Map<String, Value>) {
    let all = schemas.clone();
    for (name, schema) in schemas.iter_mut() {
        flatten(schema, &all);
        // The derive puts the whole item there.
        if let Some(item) = name.strip_suffix("List").filter(|item| all.contains_key(*item)) {
            schema["properties"]["items"]["items"] = reference("schemas", item);
        }
        if name == "Code" {
            // What a client that is older than its server reads; never sent.
            schema["enum"] = schema["enum"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|code| *code != "other")
                .cloned()
                .collect();
        }
        // Who refuses fields that it does not know reads a request, and takes null for what is left out.
        if schema.get("additionalProperties") != Some(&Value::Bool(false)) {
            drop_nulls(schema);
        }
        bound_integers(schema);
    }
}

/// Fields of another schema beside its own, as one object.
fn flatten(schema: &mut Value, all: &Map<String, Value>) {
    let Some(parts) = schema.as_object_mut().and_then(|schema| schema.remove("allOf")) else { return };
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for part in parts.as_array().into_iter().flatten() {
        let target =
            part["$ref"].as_str().and_then(|path| path.rsplit('/').next()).and_then(|name| all.get(name));
        let part = target.unwrap_or(part);
        properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
        required.extend(part["required"].as_array().cloned().unwrap_or_default());
    }
    schema["type"] = json!("object");
    schema["required"] = required.into();
    schema["properties"] = properties.into();
}

/// The derive puts the word that tells the forms of a union apart beside each of them; clients want it among the form's
/// own fields.
fn tell_apart(schemas: &mut Map<String, Value>, union: &str) {
    let Some(whole) = schemas.get(union).cloned() else { return };
    let mut forms = Vec::new();
    for parts in whole["oneOf"].as_array().into_iter().flatten().filter_map(|form| form["allOf"].as_array()) {
        let of = |key: &str| parts.iter().find_map(|part| part.get(key));
        let name = of("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
        let (Some(name), Some(word)) = (name, of("properties").map(|fields| &fields["type"])) else {
            continue;
        };
        let Some(form) = schemas.get_mut(name) else { continue };
        form["properties"]["type"] = word.clone();
        if let Some(required) = form["required"].as_array_mut() {
            required.insert(0, "type".into());
        }
        forms.push(reference("schemas", name));
    }
    schemas[union]["oneOf"] = forms.into();
}

/// What is not there is left out of answers, never null.
fn drop_nulls(schema: &mut Value) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten();
    for (name, property) in properties {
        if required.iter().any(|required| required == name) {
            continue;
        }
        if let Some(types) = property.get_mut("type").and_then(Value::as_array_mut) {
            types.retain(|one| one != "null");
            if let [one] = types.as_slice() {
                property["type"] = one.clone();
            }
        }
        if let Some(forms) = property.get_mut("oneOf").and_then(Value::as_array_mut) {
            forms.retain(|form| form["type"] != "null");
            if let [one] = forms.as_slice() {
                let mut one = one.clone();
                if let (Some(one), Some(description)) = (one.as_object_mut(), property.get("description")) {
                    one.insert("description".to_owned(), description.clone());
                }
                *property = one;
            }
        }
    }
}

/// `int32` has half of what `u32` has, and no number of JSON is exact beyond 2^53.
fn bound_integers(schema: &mut Value) {
    if let Some(fields) = schema.as_object_mut() {
        if fields.get("minimum").is_some_and(|least| least.as_f64().is_some_and(|least| 0.0 <= least)) {
            let most = match fields.get("format").and_then(Value::as_str) {
                Some("int32") => u64::from(u32::MAX),
                _ => (1 << 53) - 1,
            };
            fields.insert("format".to_owned(), "int64".into());
            fields.entry("maximum").or_insert_with(|| most.into());
        }
        fields.values_mut().for_each(bound_integers);
    } else if let Some(items) = schema.as_array_mut() {
        items.iter_mut().for_each(bound_integers);
    }
}

fn reference(kind: &str, name: &str) -> Value {
    json!({"$ref": format!("#/components/{kind}/{name}")})
}

fn headers() -> Value {
    json!({
        "ETag": {
            "description": "Another one, another object: for `If-None-Match`, and of a claim for `If-Match`.",
            "required": true, "schema": {"type": "string"},
        },
        "Location": {
            "description": "Where it can be read.", "required": true,
            "schema": {"type": "string", "format": "uri-reference"},
        },
        "LocationUnlessDry": {
            "description": "Where it can be read. A dry run makes nothing that could be.",
            "schema": {"type": "string", "format": "uri-reference"},
        },
        "RetryAfter": {
            "description": "After so many seconds it may work.",
            "required": true, "schema": {"type": "integer", "format": "int64", "minimum": 0},
        },
        "Authenticate": {"description": "How to say who calls.", "required": true, "schema": {"type": "string"}},
    })
}

/// What `operation` answers beside what its handler's annotation says.
fn complete(path: &str, method: &str, operation: &mut Value) {
    let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
    let body = operation.get("requestBody").is_some();
    let named = path.contains('{');
    let known = operation.get("security").is_none();
    let edits = has_parameter(operation, "If-Match");
    if body {
        operation["requestBody"]["required"] = true.into();
    }
    if id == "simulate_placement" {
        operation["requestBody"]["content"][JSON]["schema"] = placement();
    }
    requests::narrow(&id, operation);
    if id == "put_upload" {
        operation["requestBody"]["content"][BYTES]["schema"] = json!({"type": "string", "format": "binary"});
    }
    let summary = operation["summary"].clone();
    let object = method == "get" && is_object(&operation["responses"]["200"]["content"]);
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        if response["description"].as_str().is_none_or(str::is_empty) {
            response["description"] = summary.clone();
        }
        if object {
            response["headers"]["ETag"] = reference("headers", "ETag");
        }
        if status == "201" {
            response["headers"]["Location"] = reference("headers", "Location");
        }
        if id == "join_cluster" {
            response["headers"]["Location"] = reference("headers", "LocationUnlessDry");
        }
    }
    if object {
        operation["responses"]["304"] = json!({"description": "`If-None-Match` names what is there now.", "headers": {"ETag": reference("headers", "ETag")}});
        let parameter = json!({
            "name": "If-None-Match", "in": "header", "required": false, "schema": {"type": "string"},
            "description": "ETag of an earlier answer: 304 says that it still holds.",
        });
        match operation.get_mut("parameters").and_then(Value::as_array_mut) {
            Some(parameters) => parameters.push(parameter),
            None => operation["parameters"] = json!([parameter]),
        }
    }
    for (status, name, ..) in failures::WAYS {
        let happens = match status {
            400 => true,
            401 | 403 | 429 | 500 | 502 | 503 | 504 => known,
            404 => named || method != "get",
            409 => method != "get" || failures::ENTER.contains(&id.as_str()),
            412 | 428 => edits,
            413 | 415 => body,
            422 => method != "get" || id == "task_logs" || failures::ENTER.contains(&id.as_str()),
            _ => false,
        };
        if happens && failures::is_of(name, status, &id) {
            operation["responses"][status.to_string()] = reference("responses", name);
        }
    }
    for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        describe(parameter);
        if parameter["name"] == "limit" {
            parameter["description"] = limit(&id).into();
        }
    }
    links::add(&id, operation);
    examples::add(&id, operation);
}

/// The manifest of a Placement, as far as it is looked at here: OCM says what its spec may be.
fn placement() -> Value {
    json!({
        "type": "object", "additionalProperties": true, "required": ["kind", "metadata"],
        "properties": {
            "kind": {"type": "string", "enum": ["Placement"]},
            "metadata": {
                "type": "object", "additionalProperties": true, "required": ["name"],
                "properties": {
                    "name": {"type": "string", "pattern": SUBDOMAIN, "minLength": 1, "maxLength": 253},
                    "namespace": {"type": "string", "pattern": LABEL, "minLength": 1, "maxLength": 63},
                },
            },
            "spec": {"type": "object", "additionalProperties": true},
        },
    })
}

fn has_parameter(operation: &Value, name: &str) -> bool {
    operation["parameters"].as_array().into_iter().flatten().any(|parameter| parameter["name"] == name)
}

/// Not a list or a stream.
fn is_object(content: &Value) -> bool {
    let schema = content[JSON]["schema"]["$ref"].as_str();
    schema.is_some_and(|schema| !schema.ends_with("List"))
}

/// What is always the same of a parameter with this name.
fn describe(parameter: &mut Value) {
    let name = parameter["name"].as_str().unwrap_or_default().to_owned();
    let text = |pattern: &str, most: u32| json!({"type": "string", "pattern": pattern, "minLength": 1, "maxLength": most});
    if parameter["in"] == "path" {
        let (schema, description) = match name.as_str() {
            "cluster" => (text(SUBDOMAIN, 63), "Name of the cluster"),
            "claim" => (text(SUBDOMAIN, 253), "Name of the ClusterResourceClaim"),
            "queue" => (text(SUBDOMAIN, 253), "Name of the ClusterQueue"),
            "task" => (text(TASK_ID, 8), "Id of the task"),
            "digest" => (text(DIGEST, 64), "SHA-256 of the archive, in hexadecimal digits"),
            "volume" => (text("^[-0-9a-z]+$", 54), "Id of the volume, or the name that its owner gave it"),
            "namespace" => (text(LABEL, 63), "Namespace on the hub"),
            _ => (text(SUBDOMAIN, 253), "Name of the object"),
        };
        parameter["schema"] = schema;
        parameter["description"] = description.into();
    }
    let in_query = parameter["in"] == "query";
    if let Some(schema) = parameter.get_mut("schema") {
        // What is not there is left out.
        if let Some(types) = schema["type"].as_array() {
            schema["type"] = types.iter().find(|one| *one != "null").cloned().unwrap_or_default();
        }
        match name.as_str() {
            "continue" => {
                schema["maxLength"] = 1024.into();
                schema["pattern"] = r"^[^\x00-\x1f\x7f]*$".into();
            }
            "after" | "Last-Event-ID" => {
                schema["maxLength"] = logs::MAX_PLACES.into();
                schema["pattern"] = r"^[^\x00-\x1f\x7f]*$".into();
            }
            "command" => {
                schema["minItems"] = 1.into();
                schema["maxItems"] = enter::MAX_WORDS.into();
                schema["items"]["maxLength"] = bounds::MAX_TEXT.into();
                schema["items"]["pattern"] = r"^[^\x00]*$".into();
            }
            "If-Match" => schema["pattern"] = r#"^(\*|"[!#-~]+")$"#.into(),
            _ if in_query && is_free_text(schema) => {
                schema["pattern"] = r"^[^\x00]*$".into();
                if schema.get("maxLength").is_none() {
                    schema["maxLength"] = bounds::MAX_TEXT.into();
                }
            }
            _ => {}
        }
        bound_integers(schema);
    }
}

/// Whoever asks for more than a page holds is not refused: `continue` says that there is more.
fn limit(id: &str) -> String {
    let (otherwise, most) = match id {
        "list_tasks" => (list::DEFAULT_LIMIT, list::MAX_LIMIT),
        // What the store reads in pages.
        "list_audit" | "task_events" | "claim_history" | "capacity_history" => {
            (PageRequest::DEFAULT_LIMIT, PageRequest::MAX_LIMIT)
        }
        _ => (stream::DEFAULT_LIMIT, stream::MAX_LIMIT),
    };
    format!(
        "How many items a page has at most: {otherwise} where it is left out or 0, and never more than {most}, whatever is \
         asked for."
    )
}

fn is_free_text(schema: &Value) -> bool {
    schema["type"] == "string" && ["enum", "format"].iter().all(|key| schema.get(key).is_none())
}
