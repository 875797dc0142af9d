//! Bodies of requests. What does not fit is told by field and place, and never with its value, which may be a secret.

use std::{marker::PhantomData, sync::Arc};

use axum::{
    body::Bytes,
    extract::{FromRequest, Request, rejection::BytesRejection},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{
    Serialize,
    de::{DeserializeOwned, DeserializeSeed},
};
use serde_json::{Value, error::Category};
use serde_path_to_error::{Deserializer, Track};

use super::{
    Failure,
    shape::{Look, Shape},
};
use fedq_values::nested;
use fedq_wire::problem::{Cause, Code};

/// What is told of names that somebody else chose, in characters.
const MOST_OF_A_NAME: usize = 80;
const MOST_OF_A_PATH: usize = 400;

pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        if !is_json(request.headers()) {
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            let detail = "the body must be JSON, and its Content-Type application/json";
            return Err(Failure::new(status, Code::UnsupportedMediaType, detail));
        }
        let shape = request.extensions().get::<Arc<Shape>>().cloned().unwrap_or_default();
        let body = Bytes::from_request(request, state).await.map_err(|error| unread(&error))?;
        read(&body, &shape).map(Self)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = value.split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case("application/json")
}

fn unread(error: &BytesRejection) -> Failure {
    if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return Failure::new(error.status(), Code::TooLarge, "the request is larger than 2 MiB");
    }
    Failure::bad_request("the body ended before it was whole")
}

/// See [`nested`].
pub fn check_nested(body: &[u8]) -> Result<(), Failure> {
    if nested::is_nested(body) {
        return Err(Failure::bad_request(
            "the body holds JSON as a text that would be read as JSON once more",
        ));
    }
    Ok(())
}

fn read<T: DeserializeOwned>(body: &[u8], shape: &Shape) -> Result<T, Failure> {
    check_nested(body)?;
    parse(body, Look(shape))?;
    parse(body, PhantomData::<T>)
}

fn parse<'a, S: DeserializeSeed<'a>>(body: &'a [u8], seed: S) -> Result<S::Value, Failure> {
    let (mut reader, mut track) = (serde_json::Deserializer::from_slice(body), Track::new());
    let read = seed.deserialize(Deserializer::new(&mut reader, &mut track)).map_err(|error| {
        let path = track.path().to_string();
        // What the reader could not name yet is a `?` at the end.
        refused(path.trim_end_matches(['.', '?']), &error)
    })?;
    reader.end().map_err(|error| refused("", &error))?;
    Ok(read)
}

/// Reads what a body holds once it is known to be JSON.
pub fn fit<T: DeserializeOwned>(value: &Value) -> Result<T, Failure> {
    serde_path_to_error::deserialize(value).map_err(|error| refused(&error.path().to_string(), error.inner()))
}

/// What fedqd itself stored.
pub fn stored<T: DeserializeOwned>(value: Value) -> Result<T, Failure> {
    serde_json::from_value(value)
        .map_err(|error| Failure::internal("what was stored is not in the form it is shown in", &error))
}

fn refused(path: &str, error: &serde_json::Error) -> Failure {
    let place = |number: usize| u32::try_from(number).ok().filter(|number| 0 < *number);
    let said = error.to_string();
    // The place is told apart from the words.
    let said = said.rsplit_once(" at line ").map_or(said.as_str(), |(words, _)| words);
    let (mut failure, message) = match error.classify() {
        Category::Data => (
            Failure::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                Code::Invalid,
                "the body does not fit the document",
            ),
            in_our_words(said),
        ),
        Category::Eof => (Failure::bad_request("the body is no JSON"), "it ends too early".to_owned()),
        Category::Syntax | Category::Io => (Failure::bad_request("the body is no JSON"), syntax(said)),
    };
    let place = (place(error.line()), place(error.column()));
    let path = cut(&with_missing(path, said), MOST_OF_A_PATH);
    failure.0.causes = vec![Cause { line: place.0, column: place.1, ..Cause::new(&path, message) }];
    failure.next("/api/v1/openapi.json says what the body must be")
}

/// A field that is not there has no place in the body; it is told where it would be.
fn with_missing(path: &str, said: &str) -> String {
    let missing = said.strip_prefix("missing field").or_else(|| said.strip_prefix("duplicate field"));
    match missing.and_then(named) {
        Some(field) if path.is_empty() => field.to_owned(),
        Some(field) if path.rsplit('.').next() != Some(field) => format!("{path}.{field}"),
        _ => path.to_owned(),
    }
}

/// What the reader quotes first.
fn named(said: &str) -> Option<&str> {
    let (_, rest) = said.split_once('`')?;
    // A name may have the sign in it; what the reader adds behind it begins so.
    let end = rest.find("`, ").or_else(|| rest.rfind('`'))?;
    Some(&rest[..end])
}

/// As much as a person reads of what somebody else has written.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The reader's words for what is no JSON, in ours.
fn syntax(said: &str) -> String {
    let said = match said {
        "control character (\\u0000-\\u001F) found while parsing a string" => {
            "a control character must be written as an escape, such as \\n"
        }
        "expected ident" => "text must be in double quotes; without are true, false and null only",
        "expected value" => "a value is missing, or is none of JSON",
        "expected `:`" => "a colon is missing behind the name of a field",
        "expected `,` or `}`" => "a comma is missing, or the end of the object",
        "expected `,` or `]`" => "a comma is missing, or the end of the list",
        "invalid escape" => "there is no such escape in JSON",
        "invalid number" => "this is no number of JSON",
        "invalid unicode code point"
        | "lone leading surrogate in hex escape"
        | "unexpected end of hex escape" => "this escape stands for no character",
        "key must be a string" => "the name of a field must be in double quotes",
        "number out of range" => "this number is too large",
        "recursion limit exceeded" => "it is nested too deeply",
        "trailing characters" => "there is more behind the end",
        "trailing comma" => "a comma must not be the last",
        other => other,
    };
    said.to_owned()
}

/// serde says what it found, which may be a secret, and then what it expected.
fn in_our_words(said: &str) -> String {
    let field = || cut(named(said).unwrap_or_default(), MOST_OF_A_NAME);
    if said.starts_with("missing field") {
        return format!("missing field `{}`", field());
    }
    if said.starts_with("duplicate field") {
        return format!("duplicate field `{}`", field());
    }
    if said.starts_with("unknown field") {
        let known = said.split_once("`, expected ").map(|(_, known)| known.trim_start_matches("one of "));
        return format!("unknown field `{}`, there are {}", field(), known.unwrap_or("none"));
    }
    match said.rsplit_once(", expected ") {
        Some((_, expected)) => format!("must be {}", noun(expected)),
        None => "is not what the document says".to_owned(),
    }
}

fn noun(expected: &str) -> String {
    match expected {
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "a string" => "text".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        other if other.starts_with("struct ") => "an object".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use fedq_wire::{claim::ClaimSpec, cluster::JoinCluster};

    fn told<T: DeserializeOwned>(body: &[u8]) -> String {
        told_of::<T>(body, &Shape::Any)
    }

    fn told_of<T: DeserializeOwned>(body: &[u8], shape: &Shape) -> String {
        let Err(Failure(problem)) = read::<T>(body, shape) else { return "fits".to_owned() };
        let cause = &problem.causes[0];
        let place = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
        format!(
            "{} {} {}:{} {}",
            problem.status,
            cause.field,
            place(cause.line),
            place(cause.column),
            cause.message
        )
    }

    #[test]
    fn no_value_is_told_again() {
        for body in [r#""hush""#, r#"{"name": "a", "kubeconfig": {"hush": 1}}"#, r#"{"name": ["hush"]}"#] {
            assert!(!told::<JoinCluster>(body.as_bytes()).contains("hush"), "{body}");
        }
        let told = told::<ClaimSpec>(br#"{"clusterName": "a", "nominalResources": {"cpu": true}}"#);
        assert_eq!(told, "422 nominalResources.cpu 1:53 must be text");
    }

    /// For whoever reads them, and none is longer than what a person reads.
    #[test]
    fn what_is_wrong_is_told_in_our_words() {
        let long = "x".repeat(5000);
        for (body, expected) in [
            ("{}", "422 name 1:2 missing field `name`"),
            (
                r#"{"expected": 1}"#,
                "422 expected 1:11 unknown field `expected`, there are `name`, `kubeconfig`, `context`",
            ),
            (r#"{"name": "a", "name": "b"}"#, "422 name 1:20 duplicate field `name`"),
            ("{", "400  1:1 it ends too early"),
            ("{'name': 1}", "400  1:2 the name of a field must be in double quotes"),
            (r#"{"name": hello}"#, "400 name 1:10 a value is missing, or is none of JSON"),
            (r#"{"name": "a",}"#, "400  1:14 a comma must not be the last"),
            (r#"{"name": "a"} x"#, "400  1:15 there is more behind the end"),
        ] {
            assert_eq!(told::<JoinCluster>(body.as_bytes()), expected, "{body}");
        }
        let told = told::<JoinCluster>(format!(r#"{{"{long}": 1}}"#).as_bytes());
        assert!(
            told.len() < 700 && told.contains("xxx…`, there are `name`, `kubeconfig`, `context`"),
            "{told}"
        );
    }

    /// Where the document has bounds, and with the place in the body.
    #[test]
    fn what_is_larger_than_the_document_has_it_is_refused() {
        let document = json!({"components": {"schemas": {
            "Name": {"type": ["string", "null"], "minLength": 1, "maxLength": 3},
            "Names": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Name"},
                "propertyNames": {"type": "string", "maxLength": 2}},
        }}});
        let schema = json!({"type": "object", "properties": {
            "name": {"$ref": "#/components/schemas/Name"},
            "count": {"type": "integer", "minimum": 1, "maximum": 9},
            "list": {"type": "array", "maxItems": 2, "items": {"$ref": "#/components/schemas/Name"}},
            "names": {"$ref": "#/components/schemas/Names", "maxProperties": 2},
        }});
        let shape = Shape::of(&schema, &document);
        for (body, expected) in [
            (
                r#"{"name": "äöü", "count": 9, "list": ["a", null], "names": {"ab": "abc"}, "other": "abcd"}"#,
                "fits",
            ),
            (r#"{"name": 7, "list": {"a": "abcd"}, "count": "abcd"}"#, "fits"),
            (r#"{"name": "abcd"}"#, "422 name 1:15 must be text with a length of 1 to 3"),
            (r#"{"name": ""}"#, "422 name 1:11 must be text with a length of 1 to 3"),
            (r#"{"count": 0}"#, "422 count 1:11 must be a whole number, 1 to 9"),
            (r#"{"count": -1}"#, "422 count 1:12 must be a whole number, 1 to 9"),
            (r#"{"list": ["a", "abcd"]}"#, "422 list[1] 1:21 must be text with a length of 1 to 3"),
            (
                r#"{"list": ["a", "a", "a"]}"#,
                "422 list 1:24 must be a list whose number of items is at most 2",
            ),
            (r#"{"names": {"a": "abcd"}}"#, "422 names.a 1:22 must be text with a length of 1 to 3"),
            (
                r#"{"names": {"abc": "a"}}"#,
                "422 names 1:16 must be an object with keys whose length is at most 2",
            ),
            (
                r#"{"names": {"a": "a", "b": "a", "c": "a"}}"#,
                "422 names 1:40 must be an object whose number of fields is at most 2",
            ),
            (r#"{"name": "a", "name": "a"}"#, "422 name 1:20 duplicate field `name`"),
        ] {
            assert_eq!(told_of::<Value>(body.as_bytes(), &shape), expected, "{body}");
        }
    }
}
