//! Holds what is asked of the API, and what it answers, against its document: an unknown status, media type or field
//! fails, and so does a request that was accepted and does not fit.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex},
};

use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use jsonschema::{Draft, Validator};
use serde_json::{Value, json};

pub static DOCUMENT: LazyLock<Document> = LazyLock::new(Document::of_the_api);

/// Headers of answers that HTTP and those who carry it put there, and that say nothing of an operation.
const OF_THE_TRANSPORT: [HeaderName; 9] = [
    header::CACHE_CONTROL,
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::DATE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::VARY,
];
/// Headers of requests that change what an operation does, where it knows them.
const WITH_A_MEANING: [&str; 3] = ["if-match", "if-none-match", "last-event-id"];

/// One operation of the document, with its path cut at the slashes.
struct Operation {
    method: Method,
    path: Vec<String>,
    described: Value,
}

pub struct Document {
    operations: Vec<Operation>,
    components: Value,
    /// By the schema's text.
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

/// The request of an exchange, as far as the document speaks of it.
pub struct Asked {
    pub method: Method,
    /// With its query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Document {
    fn of_the_api() -> Self {
        Self::new(&fedq_api::openapi())
    }

    fn new(document: &Value) -> Self {
        let mut operations = Vec::new();
        for (path, item) in document["paths"].as_object().expect("paths") {
            for (method, described) in item.as_object().expect("operations") {
                let method = method.to_uppercase().parse().expect("a method");
                let path = path.split('/').map(str::to_owned).collect();
                operations.push(Operation { method, path, described: described.clone() });
            }
        }
        let mut components = document["components"].clone();
        for schema in components["schemas"].as_object_mut().expect("schemas").values_mut() {
            close(schema);
        }
        Self { operations, components, validators: Mutex::default() }
    }

    fn operation(&self, asked: &Asked) -> Option<&Operation> {
        let path = asked.path.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = path.split('/').collect();
        let fits = |operation: &&Operation| {
            let same = |(pattern, part): (&String, &&str)| pattern.starts_with('{') || pattern == part;
            operation.method == asked.method
                && operation.path.len() == parts.len()
                && operation.path.iter().zip(&parts).all(same)
        };
        // `/tasks/stop` is also a `/tasks/{task}`.
        self.operations
            .iter()
            .filter(fits)
            .min_by_key(|operation| operation.path.concat().matches('{').count())
    }

    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => {
                let pointer = reference.trim_start_matches("#/components");
                self.components.pointer(pointer).expect("the reference leads somewhere")
            }
            None => value,
        }
    }

    /// What of `instance` is not as `schema` says.
    pub fn misfits(&self, schema: &Value, instance: &Value) -> Vec<String> {
        let key = schema.to_string();
        let mut validators = self.validators.lock().expect("no test ends in here");
        let validator = validators.entry(key).or_insert_with(|| {
            let whole = json!({"allOf": [schema], "components": self.components});
            let mut options = jsonschema::options();
            options.with_draft(Draft::Draft202012).should_validate_formats(true);
            Arc::new(options.build(&whole).expect("a schema"))
        });
        let validator = Arc::clone(validator);
        drop(validators);
        let errors = validator.validate(instance).err().into_iter().flatten();
        errors.map(|error| format!("{}: {error}", error.instance_path)).collect()
    }

    /// What of the answer is not in the document; of a stream, that is for [`Lines`] to say.
    fn differences(
        &self,
        asked: &Asked,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Vec<String> {
        let media = media(headers);
        let problem = json!({"$ref": "#/components/schemas/Problem"});
        let Some(operation) = self.operation(asked) else {
            let known = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED].contains(&status);
            if !known || media != "application/problem+json" {
                return vec![format!("no such operation is described, and the answer is {status} {media}")];
            }
            return self.misfits(&problem, &parsed(body));
        };
        let mut differences = Vec::new();
        if status.is_success() {
            differences.extend(self.request(operation, asked));
        }
        let Some(response) = operation.described["responses"].get(status.as_str()) else {
            differences.push(format!("status {status} is not described"));
            return differences;
        };
        let response = self.resolve(response);
        for (name, described) in response["headers"].as_object().into_iter().flatten() {
            differences.extend(self.header(self.resolve(described), name, headers));
        }
        let known = |name: &HeaderName| {
            let mut described = response["headers"].as_object().into_iter().flatten();
            OF_THE_TRANSPORT.contains(name) || described.any(|(known, _)| name == known.as_str())
        };
        let unknown = headers.keys().filter(|name| !known(name));
        differences.extend(unknown.map(|name| format!("{status}: the header {name} is not described")));
        match response["content"].get(&media) {
            Some(_) if is_stream(&media) => {}
            Some(content) => differences.extend(self.misfits(&content["schema"], &parsed(body))),
            None if response.get("content").is_none() && body.is_empty() => {}
            None => differences.push(format!("{status} is described with another media type than `{media}`")),
        }
        differences
    }

    /// What the server accepted and the document does not have.
    fn request(
        &self,
        Operation { path, described: operation, .. }: &Operation,
        asked: &Asked,
    ) -> Vec<String> {
        let mut differences = Vec::new();
        let body = &operation["requestBody"];
        if body.is_object() {
            let media = media(&asked.headers);
            match body["content"].get(&media) {
                Some(content) if media == "application/json" => {
                    differences.extend(self.misfits(&content["schema"], &parsed(&asked.body)));
                }
                Some(_) => {}
                None => differences.push(format!("a body of the media type `{media}` is not described")),
            }
        } else if !says_nothing(&asked.body) {
            differences.push("no body is described, and there is one".to_owned());
        }
        let parameters = || operation["parameters"].as_array().into_iter().flatten();
        for header in parameters().filter(|parameter| parameter["in"] == "header") {
            let name = header["name"].as_str().expect("a name");
            differences.extend(self.header(header, name, &asked.headers));
        }
        for name in WITH_A_MEANING.into_iter().filter(|name| asked.headers.contains_key(*name)) {
            let is = |known: &Value| known.as_str().is_some_and(|known| known.eq_ignore_ascii_case(name));
            if !parameters().any(|parameter| parameter["in"] == "header" && is(&parameter["name"])) {
                differences.push(format!("the header {name} is not described"));
            }
        }
        let asked_path = asked.path.split('?').next().unwrap_or_default();
        for (pattern, part) in path.iter().zip(asked_path.split('/')) {
            let Some(name) = pattern.strip_prefix('{').and_then(|name| name.strip_suffix('}')) else {
                continue;
            };
            let known = parameters().find(|parameter| parameter["in"] == "path" && parameter["name"] == name);
            let Some(known) = known else {
                differences.push(format!("the parameter {name} of the path is not described"));
                continue;
            };
            differences.extend(named(name, self.misfits(&known["schema"], &json!(unescaped(part)))));
        }
        let query = asked.path.split_once('?').map(|(_, query)| query).unwrap_or_default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let known = parameters().find(|known| known["in"] == "query" && known["name"] == *name);
            let Some(known) = known else {
                differences.push(format!("the parameter {name} is not described"));
                continue;
            };
            let value = match known["schema"]["type"].as_str() {
                // As Kubernetes reads them, and clients made from the document do not write them.
                Some("boolean") => match &*value {
                    "1" | "true" | "True" | "" => json!(true),
                    "0" | "false" | "False" => json!(false),
                    _ => Value::Null,
                },
                Some("integer") => json!(value.parse::<u64>().ok()),
                _ => json!(value),
            };
            differences.extend(named(&name, self.misfits(&known["schema"], &value)));
        }
        differences
    }

    /// Of a request or an answer: whether it is there where it must be, and what it says.
    fn header(&self, described: &Value, name: &str, headers: &HeaderMap) -> Vec<String> {
        let values: Vec<_> = headers.get_all(name).iter().collect();
        if values.is_empty() && described["required"] == true {
            return vec![format!("the header {name} is missing")];
        }
        let misfits = values.into_iter().flat_map(|value| {
            let text = String::from_utf8_lossy(value.as_bytes());
            let value = match described["schema"]["type"].as_str() {
                Some("integer") => json!(text.parse::<u64>().ok()),
                _ => json!(text),
            };
            self.misfits(&described["schema"], &value)
        });
        named(name, misfits)
    }
}

fn named(name: &str, misfits: impl IntoIterator<Item = String>) -> Vec<String> {
    misfits.into_iter().map(|misfit| format!("{name}{misfit}")).collect()
}

/// A part of a path, as the server reads it.
fn unescaped(part: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), part.as_bytes());
    while let [first, others @ ..] = rest {
        let escape =
            others.get(..2).filter(|_| *first == b'%').and_then(|digits| str::from_utf8(digits).ok());
        let byte = escape.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &others[2..] } else { others };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Fields that the document does not have are differences.
fn close(schema: &mut Value) {
    if let Some(fields) = schema.as_object_mut() {
        if fields.contains_key("properties") && !fields.contains_key("additionalProperties") {
            fields.insert("additionalProperties".to_owned(), false.into());
        }
        fields.values_mut().for_each(close);
    } else if let Some(items) = schema.as_array_mut() {
        items.iter_mut().for_each(close);
    }
}

fn parsed(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_else(|_| json!(String::from_utf8_lossy(body)))
}

/// What is let through where there is nothing to say.
fn says_nothing(body: &[u8]) -> bool {
    body.trim_ascii().is_empty() || parsed(body).is_null() || parsed(body) == json!({})
}

fn media(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().to_owned()
}

fn is_stream(media: &str) -> bool {
    matches!(media, "application/x-ndjson" | "text/event-stream")
}

/// Whether the document speaks of the path: k8s-cli's paths, the probes and the API of clusters that are asked through fedqd
/// are others' contracts.
pub fn covers(path: &str) -> bool {
    path.starts_with("/api/v1/") && !path.starts_with("/api/v1/openapi.json") && !is_forwarded(path)
}

fn is_forwarded(path: &str) -> bool {
    let of_cluster = path.strip_prefix("/api/v1/clusters/").and_then(|rest| rest.split_once('/'));
    let others = ["/api/v1/hub/proxy/", "/api/v1/followed/"];
    others.iter().any(|prefix| path.starts_with(prefix))
        || of_cluster.is_some_and(|(_, rest)| rest.starts_with("proxy/"))
}

/// What of an exchange the document does not have; of a stream, [`Lines`] says the rest.
pub fn differences(asked: &Asked, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Vec<String> {
    if !covers(&asked.path) {
        return Vec::new();
    }
    let told = String::from_utf8_lossy(&body[..body.len().min(2000)]);
    let differences = DOCUMENT.differences(asked, status, headers, body).into_iter();
    differences.map(|one| format!("{} {}: {one}\n{told}", asked.method, asked.path)).collect()
}

pub fn is_answered_by_lines(headers: &HeaderMap) -> bool {
    is_stream(&media(headers))
}

/// Checks each line of a stream as it comes.
pub struct Lines {
    schema: Option<Value>,
    rest: Vec<u8>,
}

impl Lines {
    /// Of an answer that is no stream, nothing is checked.
    pub fn of(asked: &Asked, headers: &HeaderMap) -> Self {
        let media = media(headers);
        let operation = DOCUMENT.operation(asked).filter(|_| covers(&asked.path) && is_stream(&media));
        let schema = operation.map(|operation| {
            let response = DOCUMENT.resolve(&operation.described["responses"]["200"]);
            response["content"][&media]["schema"].clone()
        });
        Self { schema, rest: Vec::new() }
    }

    pub fn differences(&mut self, data: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        let Some(schema) = &self.schema else { return found };
        self.rest.extend_from_slice(data);
        while let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = line.trim_ascii();
            let line = line.strip_prefix(b"data: ").unwrap_or(line);
            if line.is_empty() || line.starts_with(b":") || line.starts_with(b"id: ") {
                continue;
            }
            let differences = DOCUMENT.misfits(schema, &parsed(line)).into_iter();
            found.extend(differences.map(|one| format!("{one}\n{}", String::from_utf8_lossy(line))));
        }
        found
    }
}
