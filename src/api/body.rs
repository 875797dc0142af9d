//! Bodies of requests. What does not fit is told by field and place, and never with its value, which may be a secret.

use std::{collections::HashSet, fmt};

use axum::{
    body::Bytes,
    extract::{FromRequest, Request, rejection::BytesRejection},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, error::Category};

use super::Failure;
use fedq_wire::problem::{Cause, Code};

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
        let body = Bytes::from_request(request, state).await.map_err(|error| unread(&error))?;
        read(&body).map(Self)
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

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    // JSON lets a key stand twice, and readers differ in which one counts.
    parse::<OnceEach>(body)?;
    parse(body)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        // What the reader could not name yet is a `?` at the end.
        refused(path.trim_end_matches(['.', '?']), error.inner())
    })?;
    reader.end().map_err(|error| refused("", &error))?;
    Ok(read)
}

/// Reads what a body holds once it is known to be JSON.
pub fn fit<T: DeserializeOwned>(value: &Value) -> Result<T, Failure> {
    serde_path_to_error::deserialize(value).map_err(|error| refused(&error.path().to_string(), error.inner()))
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
        Category::Syntax | Category::Eof | Category::Io => {
            (Failure::bad_request("the body is no JSON"), said.to_owned())
        }
    };
    let cause =
        Cause { line: place(error.line()), column: place(error.column()), ..Cause::new(path, message) };
    failure.0.causes = vec![cause];
    failure.next("/api/v1/openapi.json says what the body must be")
}

/// serde says what it found, which may be a secret, and then what it expected.
fn in_our_words(said: &str) -> String {
    if said.starts_with("missing field")
        || said.starts_with("duplicate field")
        || said.starts_with("unknown field")
    {
        return said.replace("expected", "there are");
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

/// Any JSON in which no object has a key twice.
struct OnceEach;

impl<'de> Deserialize<'de> for OnceEach {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Looker)
    }
}

struct Looker;

impl<'de> Visitor<'de> for Looker {
    type Value = OnceEach;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<OnceEach, E> {
        Ok(OnceEach)
    }

    fn visit_i64<E>(self, _: i64) -> Result<OnceEach, E> {
        Ok(OnceEach)
    }

    fn visit_u64<E>(self, _: u64) -> Result<OnceEach, E> {
        Ok(OnceEach)
    }

    fn visit_f64<E>(self, _: f64) -> Result<OnceEach, E> {
        Ok(OnceEach)
    }

    fn visit_str<E>(self, _: &str) -> Result<OnceEach, E> {
        Ok(OnceEach)
    }

    fn visit_unit<E>(self) -> Result<OnceEach, E> {
        Ok(OnceEach)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<OnceEach, A::Error> {
        while items.next_element::<OnceEach>()?.is_some() {}
        Ok(OnceEach)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<OnceEach, A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = fields.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(A::Error::custom(format_args!("duplicate field `{key}`")));
            }
            keys.insert(key);
            fields.next_value::<OnceEach>()?;
        }
        Ok(OnceEach)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedq_wire::{claim::ClaimSpec, cluster::JoinCluster};

    fn told<T: DeserializeOwned>(body: &[u8]) -> String {
        let Err(Failure(problem)) = read::<T>(body) else { return "fits".to_owned() };
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
}
