//! HTTP over the shapes of `wire`.

pub mod socket;

use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{error::CliError, settings::Settings};
use fedq_wire::{
    list::{Event, EventKind, List},
    problem::{PROBLEM_JSON, Problem},
};

/// Long enough for a busy hub.
const DEADLINE: Duration = Duration::from_secs(30);
/// A diagnosis waits for clusters.
const CHECK_DEADLINE: Duration = Duration::from_secs(90);
/// What goes with a task has some MiB.
const UPLOAD_DEADLINE: Duration = Duration::from_mins(10);
/// No answer is that large; what is, is not ours.
const MAX_ANSWER: usize = 64 << 20;
/// The server sends an empty line each 20 s.
const SILENCE: Duration = Duration::from_mins(1);

pub struct Api {
    http: Client<HttpsConnector<HttpConnector>, Body>,
    server: String,
    token: Option<String>,
    tls: ClientConfig,
}

/// One request.
pub struct Call<'a> {
    pub method: Method,
    pub path: &'a str,
    pub body: Option<Vec<u8>>,
    /// `If-Match`.
    pub version: Option<&'a str>,
}

impl Api {
    pub fn new(settings: &Settings) -> Result<Self, CliError> {
        let server = settings.server.trim_end_matches('/').to_owned();
        let bad = || CliError::BadServer { server: server.clone() };
        let uri: Uri = server.parse().map_err(|_| bad())?;
        let host = uri.host().ok_or_else(bad)?;
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if is_this_machine(host) => {}
            Some("http") => return Err(CliError::NotHttps { server }),
            _ => return Err(bad()),
        }
        let tls = tls(settings.ca.as_deref(), uri.scheme_str() == Some("https"))?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls.clone())
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp());
        let http = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { http, server, token: settings.token.clone(), tls })
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        self.call(Call { method: Method::GET, path, body: None, version: None }).await
    }

    /// Every page of a list.
    pub async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, CliError> {
        let mut items = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let separator = if path.contains('?') { '&' } else { '?' };
            let page = match &next {
                None => path.to_owned(),
                Some(next) => format!("{path}{separator}continue={}", escape(next)),
            };
            let list: List<T> = self.get(&page).await?;
            items.extend(list.items);
            next = list.next;
            if next.is_none() {
                return Ok(items);
            }
        }
    }

    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, CliError> {
        self.call(Call { method: Method::POST, path, body: Some(self.json(body)?), version: None }).await
    }

    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        self.call(Call { method: Method::DELETE, path, body: None, version: None }).await
    }

    /// With `version`, only if nothing changed since.
    pub async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        version: Option<&str>,
    ) -> Result<T, CliError> {
        self.call(Call { method: Method::PUT, path, body: Some(self.json(body)?), version }).await
    }

    /// Sends a `tar.gz` of so many bytes. Slow lines get their time.
    pub async fn put_archive<T: DeserializeOwned>(
        &self,
        path: &str,
        (length, body): (usize, Body),
    ) -> Result<T, CliError> {
        let work = async {
            let call = Call { method: Method::PUT, path, body: None, version: None };
            let request = self.request(&call, "application/json");
            let request = request
                .header(header::CONTENT_TYPE, "application/octet-stream")
                .header(header::CONTENT_LENGTH, length)
                .body(body);
            let response = self.answered(request).await?;
            self.read(response).await
        };
        match tokio::time::timeout(UPLOAD_DEADLINE, work).await {
            Ok(answer) => answer,
            Err(_) => Err(CliError::Timeout { server: self.server.clone(), after: UPLOAD_DEADLINE }),
        }
    }

    fn json(&self, body: &impl Serialize) -> Result<Vec<u8>, CliError> {
        serde_json::to_vec(body).map_err(|error| self.answer(&error))
    }

    async fn call<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<T, CliError> {
        let path = call.path.split('?').next().unwrap_or_default();
        let deadline = if path.ends_with("/check") { CHECK_DEADLINE } else { DEADLINE };
        let work = async {
            let response = self.send(call, "application/json").await?;
            self.read(response).await
        };
        match tokio::time::timeout(deadline, work).await {
            Ok(answer) => answer,
            Err(_) => Err(CliError::Timeout { server: self.server.clone(), after: deadline }),
        }
    }

    async fn read<T: DeserializeOwned>(&self, response: Response<Body>) -> Result<T, CliError> {
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| self.answer(&error))?.to_bytes();
        serde_json::from_slice(&body).map_err(|error| self.answer(&error))
    }

    /// Follows a list until `on_event` fails or the server ends the stream.
    pub async fn watch<T: DeserializeOwned>(
        &self,
        path: &str,
        mut on_event: impl FnMut(EventKind, Option<T>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}watch=1");
        self.lines::<Event<T>>(&path, |event| on_event(event.kind, event.object)).await
    }

    /// Each JSON document of a stream, until `on_item` fails or the server ends it.
    pub async fn lines<T: DeserializeOwned>(
        &self,
        path: &str,
        mut on_item: impl FnMut(T) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let call = Call { method: Method::GET, path, body: None, version: None };
        let mut body = self.send(call, "application/x-ndjson").await?.into_body();
        let mut buffer: Vec<u8> = Vec::new();
        loop {
            let frame = match tokio::time::timeout(SILENCE, body.frame()).await {
                Err(_) => return Err(CliError::Timeout { server: self.server.clone(), after: SILENCE }),
                Ok(None) => return Ok(()),
                Ok(Some(frame)) => frame.map_err(|error| self.unreachable(&error))?,
            };
            buffer.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            while let Some(end) = buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                if line.trim_ascii().is_empty() {
                    continue;
                }
                on_item(serde_json::from_slice(&line).map_err(|error| self.answer(&error))?)?;
            }
            if MAX_ANSWER < buffer.len() {
                return Err(self.answer("a line without an end"));
            }
        }
    }

    /// Sends a request as it is, with our token, and gives back whatever is answered.
    pub async fn forward(&self, mut request: Request<Body>) -> Result<Response<Body>, CliError> {
        let bad = || CliError::BadServer { server: self.server.clone() };
        *request.uri_mut() = format!("{}{}", self.server, request.uri()).parse().map_err(|_| bad())?;
        let headers = request.headers_mut();
        headers.insert(
            header::USER_AGENT,
            HeaderValue::from_static(concat!("fedq/", env!("CARGO_PKG_VERSION"))),
        );
        if let Some(token) = &self.token {
            let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| bad())?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        let response = self.http.request(request).await.map_err(|error| self.unreachable(&error))?;
        if response.status() == StatusCode::UNAUTHORIZED && self.token.is_none() {
            return Err(CliError::NoToken { server: self.server.clone() });
        }
        Ok(response.map(Body::new))
    }

    fn request(&self, call: &Call<'_>, accept: &str) -> http::request::Builder {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{}/api/v1{}", self.server, call.path))
            .header(header::ACCEPT, format!("{accept}, {PROBLEM_JSON}"))
            .header(header::USER_AGENT, concat!("fedq/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(version) = call.version {
            request = request.header(header::IF_MATCH, format!("\"{version}\""));
        }
        request
    }

    async fn send(&self, call: Call<'_>, accept: &str) -> Result<Response<Body>, CliError> {
        let mut request = self.request(&call, accept);
        if call.body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        self.answered(request.body(Body::from(call.body.unwrap_or_default()))).await
    }

    async fn answered(&self, request: http::Result<Request<Body>>) -> Result<Response<Body>, CliError> {
        let request = request.map_err(|_| CliError::BadServer { server: self.server.clone() })?;
        let response = self.http.request(request).await.map_err(|error| self.unreachable(&error))?;
        let response = response.map(Body::new);
        if response.status().is_success() { Ok(response) } else { Err(self.refused(response).await) }
    }

    async fn refused(&self, response: Response<Body>) -> CliError {
        let status = response.status();
        if status == StatusCode::UNAUTHORIZED && self.token.is_none() {
            return CliError::NoToken { server: self.server.clone() };
        }
        let body = Limited::new(response.into_body(), 1 << 20).collect().await;
        let problem = body.ok().and_then(|body| serde_json::from_slice::<Problem>(&body.to_bytes()).ok());
        problem.map_or_else(|| self.answer(&format!("status {status}")), CliError::from)
    }

    fn answer(&self, reason: &(impl ToString + ?Sized)) -> CliError {
        CliError::Answer { server: self.server.clone(), reason: reason.to_string() }
    }

    fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> CliError {
        let chain = std::iter::successors(Some(error), |error| error.source());
        let reason = chain.last().map(ToString::to_string).unwrap_or_default();
        CliError::Connect { server: self.server.clone(), reason }
    }
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(Duration::from_secs(5)));
    tcp
}

fn is_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn tls(ca: Option<&str>, used: bool) -> Result<ClientConfig, CliError> {
    let bad = |reason: String| CliError::Ca { reason };
    let mut roots = RootCertStore::empty();
    if let Some(pem) = ca {
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|error| bad(error.to_string()))?;
            roots.add(certificate).map_err(|error| bad(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(bad("it has no certificate".to_owned()));
        }
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(error.to_string()))?;
    if ca.is_some() || !used {
        // Reading the system's roots takes milliseconds, which plain http on this machine saves.
        return Ok(builder.with_root_certificates(roots).with_no_client_auth());
    }
    let builder = builder.with_native_roots().map_err(|error| bad(error.to_string()))?;
    Ok(builder.with_no_client_auth())
}

/// Percent-encodes what may not stand in a path segment or a query value.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            escaped.push(char::from(byte));
        } else {
            escaped.push('%');
            for digit in [byte >> 4, byte & 15] {
                escaped.push(char::from_digit(u32::from(digit), 16).unwrap_or('0').to_ascii_uppercase());
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(server: &str) -> Result<Api, CliError> {
        Api::new(&Settings { server: server.to_owned(), ca: None, token: None })
    }

    #[test]
    fn a_token_is_never_sent_in_the_clear() {
        for good in ["http://localhost:8750", "http://127.0.0.1:1/", "http://[::1]:1"] {
            assert!(api(good).is_ok(), "{good}");
        }
        assert!(matches!(api("http://fedq.example.com"), Err(CliError::NotHttps { .. })));
        assert!(matches!(api("http://127.0.0.1.example.com"), Err(CliError::NotHttps { .. })));
        for bad in ["fedq", "", "ftp://a", "https://"] {
            assert!(matches!(api(bad), Err(CliError::BadServer { .. })), "{bad}");
        }
    }

    #[test]
    fn a_wrong_ca_is_named() {
        let settings =
            |ca: &str| Settings { server: "https://a".to_owned(), ca: Some(ca.to_owned()), token: None };
        assert!(matches!(Api::new(&settings("nonsense")), Err(CliError::Ca { .. })));
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escape("a b/c%ä"), "a%20b%2Fc%25%C3%A4");
    }
}
