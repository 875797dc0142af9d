//! Single objects, each with an ETag: who has one already asks with `If-None-Match` and is not sent it again.

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::Failure;

/// An answer with one object.
pub struct Object<T> {
    shown: T,
    /// The object without what is no news, where it has such.
    lasting: Option<T>,
    /// What the hub calls it; goes before the dot of the ETag.
    version: Option<String>,
}

impl<T> Object<T> {
    pub fn new(object: T) -> Self {
        Self { shown: object, lasting: None, version: None }
    }

    /// The object can be edited, if it still has this version.
    pub fn of_version(object: T, version: String) -> Self {
        Self { shown: object, lasting: None, version: Some(version) }
    }

    /// The ETag goes by `lasting`, and says so: it is a weak one.
    pub fn as_lasts(object: T, lasting: T) -> Self {
        Self { shown: object, lasting: Some(lasting), version: None }
    }
}

impl<T: Serialize> IntoResponse for Object<T> {
    fn into_response(self) -> Response {
        let written = |object: &T| serde_json::to_vec(object);
        let (body, lasting) = match (written(&self.shown), self.lasting.as_ref().map(written).transpose()) {
            (Ok(body), Ok(lasting)) => (body, lasting),
            (Err(error), _) | (_, Err(error)) => {
                return Failure::internal("the answer cannot be written", &error).into_response();
            }
        };
        // Enough that two answers never share one by chance.
        let digest = Sha256::digest(lasting.as_ref().unwrap_or(&body))[..12]
            .iter()
            .fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        let tag = match self.version {
            Some(version) => format!("\"{version}.{digest}\""),
            None if lasting.is_some() => format!("W/\"{digest}\""),
            None => format!("\"{digest}\""),
        };
        let mut response = Body::from(body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(header::ETAG, tag);
        }
        response
    }
}

/// The version in an ETag of [`Object::of_version`], packed or not, or the version itself.
pub fn version(tag: &str) -> &str {
    tag.rsplit_once('.').map_or(tag, |(version, _)| version)
}

/// Sends nothing that `If-None-Match` says is known.
pub async fn not_modified(request: Request, next: Next) -> Response {
    let known = (request.method() == Method::GET).then(|| known(request.headers())).flatten();
    let response = next.run(request).await;
    let (Some(known), Some(tag)) = (known, response.headers().get(header::ETAG)) else { return response };
    match named(&known, tag) {
        Some(tag) if response.status() == StatusCode::OK => {
            (StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response()
        }
        _ => response,
    }
}

/// What was packed has another ETag: a strong one stands for the bytes.
pub async fn packed(mut response: Response) -> Response {
    let headers = response.headers_mut();
    if headers.contains_key(header::CONTENT_ENCODING)
        && let Some(tag) = headers.get(header::ETAG).and_then(of_packed)
    {
        headers.insert(header::ETAG, tag);
    }
    response
}

/// `None` of a weak one, which stands for both.
fn of_packed(tag: &HeaderValue) -> Option<HeaderValue> {
    let strong = tag.to_str().ok()?.strip_prefix('"')?.strip_suffix('"')?;
    HeaderValue::from_str(&format!("\"{strong}-gzip\"")).ok()
}

fn known(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let first = values.next()?.to_owned();
    Some(values.fold(first, |all, more| all + "," + more))
}

/// Which ETag of what would be sent, packed or not, is among those that are known.
fn named(known: &str, tag: &HeaderValue) -> Option<HeaderValue> {
    let is_known = |tag: &HeaderValue| {
        let tag = tag.to_str().unwrap_or_default().trim_start_matches("W/");
        let mut tags = known.split(',').map(|one| one.trim().trim_start_matches("W/"));
        tags.any(|one| one == "*" || one == tag)
    };
    [Some(tag.clone()), of_packed(tag)].into_iter().flatten().find(is_known)
}
