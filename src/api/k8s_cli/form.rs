//! What stands in a request, read as FastAPI reads it.

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Request, rejection::BytesRejection},
    http::{HeaderMap, StatusCode, header, request::Parts},
};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::{
    State,
    identity::{self, User},
    refusal::{Refusal, Result},
};
use crate::body::check_nested;
use fedq_domain::task::sky::{self, Options, TaskFile};
use fedq_wire::k8s_cli::{Detail, ValidationError, ValidationErrors, VolumeDefinition, truth};

/// The second part of the path, whatever stands there: `submit` is an id to whoever does not know better.
pub struct Id(pub String);

impl FromRequestParts<State> for Id {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &State) -> Result<Self> {
        let id = parts.uri.path().split('/').nth(2).unwrap_or_default();
        let id = percent_decode_str(id).decode_utf8_lossy().into_owned();
        // Routes are looked for in what is decoded, and have one part there.
        if id.is_empty() || id.contains('/') { Err(Refusal::nothing()) } else { Ok(Self(id)) }
    }
}

/// The last of what a parameter is set to.
fn last(query: Option<&str>, parameter: &str) -> Option<String> {
    let given = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    given.filter(|(name, _)| name == parameter).last().map(|(_, value)| value.into_owned())
}

/// `?all_users=`
pub fn all_users(query: Option<&str>) -> Result<bool> {
    let Some(text) = last(query, "all_users") else { return Ok(false) };
    truth(&text).ok_or_else(|| Refusal::Form(ValidationErrors::not_a_bool("all_users", &text)))
}

/// `?strict=`, which is fedq's own.
pub fn strict(query: Option<&str>) -> bool {
    last(query, "strict").is_some_and(|text| matches!(text.as_str(), "1" | "true"))
}

/// Both, or all that is wrong with the form of either. Whatever else stands against one is told alone.
pub fn both<A, B>(one: Result<A>, other: Result<B>) -> Result<(A, B)> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok((one, other)),
        (Err(Refusal::Form(one)), Err(Refusal::Form(other))) => Err(Refusal::Form(one.and(other))),
        (Ok(_) | Err(Refusal::Form(_)), Err(refusal)) | (Err(refusal), _) => Err(refusal),
    }
}

type Body = std::result::Result<Bytes, BytesRejection>;

const MAX_ERRORS: usize = 100;

/// A request with a body: of whom nobody knows, it is not even read.
pub struct Posted {
    /// Or what is wrong with the name.
    pub user: Result<User>,
    pub headers: HeaderMap,
    pub body: Body,
}

impl FromRequest<State> for Posted {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &State) -> Result<Self> {
        let (mut parts, body) = request.into_parts();
        let user = User::from_request_parts(&mut parts, state).await;
        let user = match user {
            Err(refusal @ Refusal::Failure(_)) => return Err(refusal),
            user => user,
        };
        if user.is_err() {
            // What is wrong is the name alone.
            identity::authenticate(state, &parts.headers).await?;
        }
        let headers = parts.headers.clone();
        let body = Bytes::from_request(Request::from_parts(parts, body), state).await;
        Ok(Self { user, headers, body })
    }
}

pub fn task(headers: &HeaderMap, body: Body, options: &Options) -> Result<TaskFile> {
    let body = body?;
    // There may be secrets in what is no JSON.
    let text = text(headers, &body, |_| Value::Null)?;
    sky::read_request(&body, options).map_err(|error| Refusal::task(&error, text))
}

/// Tells of every field that is wrong at once, as FastAPI does, and of those that nobody knows, which it drops.
pub fn volume_definition(headers: &HeaderMap, body: Body) -> Result<VolumeDefinition> {
    const KNOWN: [&str; 4] = ["name", "size", "storage_class", "access_modes"];
    let body = body?;
    let text = text(headers, &body, |text| json!(text))?;
    let value: Value =
        serde_json::from_str(text).map_err(|error| Refusal::not_json(text, &error.to_string()))?;
    let fields = match value {
        Value::Object(fields) => fields,
        Value::Null => return Err(Refusal::Form(ValidationErrors::no_body())),
        other => return Err(Refusal::Form(ValidationErrors::no_object(other))),
    };
    let mut wrong = Vec::new();
    let mut text = |field: &str, is_needed: bool| match fields.get(field) {
        None if is_needed => {
            wrong.push(ValidationError::missing(field, json!(fields)));
            None
        }
        None => None,
        Some(Value::Null) if !is_needed => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => {
            wrong.push(ValidationError::no_text(&[json!(field)], other));
            None
        }
    };
    let (name, size) = (text("name", true), text("size", true));
    let storage_class = text("storage_class", false);
    let access_modes = match fields.get("access_modes") {
        None | Some(Value::Null) => None,
        Some(Value::Array(modes)) => {
            let mut read = Vec::new();
            for (index, mode) in modes.iter().enumerate() {
                match mode {
                    Value::String(mode) => read.push(mode.clone()),
                    // Nobody reads more, and each takes far more room than what is wrong.
                    _ if MAX_ERRORS <= wrong.len() => break,
                    other => {
                        wrong.push(ValidationError::no_text(&[json!("access_modes"), json!(index)], other));
                    }
                }
            }
            Some(read)
        }
        Some(other) => {
            wrong.push(ValidationError::no_list("access_modes", other));
            None
        }
    };
    let unknown = fields.keys().filter(|field| !KNOWN.contains(&field.as_str())).take(MAX_ERRORS);
    wrong.extend(unknown.map(|field| ValidationError::unknown(field, &KNOWN)));
    match (name, size) {
        (Some(name), Some(size)) if wrong.is_empty() => {
            Ok(VolumeDefinition { name, size, storage_class, access_modes })
        }
        _ => Err(Refusal::Form(ValidationErrors { detail: wrong })),
    }
}

/// The text of a body that is to be JSON. `shown`: what of another one is repeated.
fn text<'a>(headers: &HeaderMap, body: &'a [u8], shown: impl Fn(&str) -> Value) -> Result<&'a str> {
    if body.is_empty() {
        return Err(Refusal::Form(ValidationErrors::no_body()));
    }
    let Ok(text) = std::str::from_utf8(body) else {
        let detail = "There was an error parsing the body".to_owned();
        return Err(Refusal::Detail(StatusCode::BAD_REQUEST, Detail { detail }));
    };
    if !is_json(headers) {
        return Err(Refusal::Form(ValidationErrors::no_object(shown(text))));
    }
    check_nested(body)?;
    Ok(text)
}

/// Whoever does not say what is sent, sends JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(media) = headers.get(header::CONTENT_TYPE) else { return true };
    let media = media.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let subtype = media.to_ascii_lowercase();
    let subtype = subtype.strip_prefix("application/");
    media.is_empty() || subtype.is_some_and(|subtype| subtype == "json" || subtype.ends_with("+json"))
}
