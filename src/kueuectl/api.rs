//! Requests to one API server, and its answers' errors in client-go's words.

use std::{cell::RefCell, collections::BTreeSet, io, time::Duration};

use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use kube::{
    Client,
    client::{AuthError, Body},
};
use serde_json::Value;

use crate::{
    cause::{causes, find, reason, told},
    error::Error,
};

pub const JSON: &str = "application/json";
pub const MERGE_PATCH: &str = "application/merge-patch+json";

/// How often a server that says when to come back is asked again, as by client-go.
const TIMES: usize = 10;

/// How long the beginning of a watch is waited for where nothing else is said.
const WATCH_BEGINS: Duration = Duration::from_mins(1);

/// One event is an object; what is longer is none.
const LONGEST_EVENT: usize = 16 << 20;

pub struct Api {
    client: Client,
    /// The server's address, for messages.
    server: String,
    within: Option<Duration>,
    /// The program by which the user logs in, for messages.
    plugin: String,
    warnings: RefCell<(BTreeSet<String>, Vec<String>)>,
}

/// One request: a path with its query, and what a message calls the object of it.
pub struct Call<'a> {
    pub method: Method,
    pub path: String,
    pub about: String,
    pub accept: &'a str,
    pub content: &'a str,
    pub body: Option<&'a Value>,
}

impl Call<'_> {
    pub fn get(path: String, about: String) -> Self {
        Call { method: Method::GET, path, about, accept: JSON, content: JSON, body: None }
    }
}

impl Api {
    pub fn new(client: Client, server: String, within: Option<Duration>) -> Self {
        Self { client, server, within, plugin: String::new(), warnings: RefCell::default() }
    }

    /// For what goes on for longer than a call.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// How long an answer is waited for.
    pub fn within(&self) -> Option<Duration> {
        self.within
    }

    pub fn with_plugin(self, plugin: String) -> Self {
        Self { plugin, ..self }
    }

    pub async fn call(&self, call: &Call<'_>) -> Result<Value, Error> {
        let asked = self.ask(call);
        match self.within {
            None => asked.await,
            Some(within) => tokio::time::timeout(within, asked).await.unwrap_or_else(|_| {
                let said = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
                Err(Error::Unreachable(format!("{}: {said}", self.request_name(call))))
            }),
        }
    }

    /// Warnings that servers sent since the last call, each once.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.borrow_mut().1)
    }

    /// The events of a watch, until the server ends it.
    pub async fn watch(&self, call: &Call<'_>) -> Result<Watch, Error> {
        let asked = async {
            let answer = self.send(call).await?;
            self.note_warnings(answer.headers());
            let status = answer.status();
            if status.is_success() {
                return Ok(Watch {
                    body: answer.into_body(),
                    read: Vec::new(),
                    name: self.request_name(call),
                });
            }
            let bytes = answer.into_body().collect().await;
            let bytes = bytes.map_err(|error| self.unreachable(call, &error))?.to_bytes();
            Err(refusal(status, &bytes, call))
        };
        let within = self.within.unwrap_or(WATCH_BEGINS);
        let late = |_| Err(Error::Unreachable(format!("{}: no answer", self.request_name(call))));
        tokio::time::timeout(within, asked).await.unwrap_or_else(late)
    }

    async fn ask(&self, call: &Call<'_>) -> Result<Value, Error> {
        let mut times = 0;
        loop {
            let answer = self.send(call).await?;
            self.note_warnings(answer.headers());
            let status = answer.status();
            let again =
                answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            let busy = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
            if let Some(seconds) = again.filter(|_| busy && times < TIMES) {
                times += 1;
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                continue;
            }
            let bytes = answer.into_body().collect().await;
            let bytes = bytes.map_err(|error| self.unreachable(call, &error))?.to_bytes();
            return if status.is_success() {
                self.object(call, &bytes)
            } else {
                Err(refusal(status, &bytes, call))
            };
        }
    }

    /// Callers set fields of what they get.
    fn object(&self, call: &Call<'_>, bytes: &[u8]) -> Result<Value, Error> {
        let wrong =
            |reason: &str| Error::said(format!("{}: the answer is {reason}", self.request_name(call)));
        let answer: Value =
            serde_json::from_slice(bytes).map_err(|error| wrong(&format!("not JSON: {error}")))?;
        if answer.is_object() { Ok(answer) } else { Err(wrong("no JSON object")) }
    }

    async fn send(&self, call: &Call<'_>) -> Result<http::Response<Body>, Error> {
        let body = call.body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let request = Request::builder()
            .method(call.method.clone())
            .uri(&call.path)
            .header(header::ACCEPT, call.accept)
            .header(header::CONTENT_TYPE, call.content)
            .body(Body::from(body))
            .map_err(|error| Error::said(format!("invalid request {}: {error}", call.path)))?;
        self.client.send(request).await.map_err(|error| self.unreachable(call, &error))
    }

    fn note_warnings(&self, headers: &http::HeaderMap) {
        let (told, fresh) = &mut *self.warnings.borrow_mut();
        for value in headers.get_all(header::WARNING) {
            // `299 - "text"`, where quotes inside are escaped.
            let text = value
                .to_str()
                .ok()
                .and_then(|text| text.split_once('"')?.1.rsplit_once('"'))
                .map(|(text, _)| text);
            let Some(text) = text.map(|text| text.replace("\\\"", "\"").replace("\\\\", "\\")) else {
                continue;
            };
            if told.insert(text.clone()) {
                fresh.push(text);
            }
        }
    }

    fn request_name(&self, call: &Call<'_>) -> String {
        let method = call.method.as_str();
        let verb = format!("{}{}", &method[..1], method[1..].to_lowercase());
        format!("{verb} \"{}{}\"", self.server.trim_end_matches('/'), call.path)
    }

    fn unreachable(&self, call: &Call<'_>, error: &(dyn std::error::Error + 'static)) -> Error {
        let refused =
            find::<io::Error>(error).filter(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        let said = match refused {
            _ if find::<AuthError>(error).is_some() => told(error, &self.plugin),
            Some(error) => format!(
                "dial tcp {}: connect: {}\nNothing answers there. Start the cluster, or choose another with --context, \
                 --kubeconfig or --server",
                host(&self.server),
                reason(error)
            ),
            None => causes(error).last().map(ToString::to_string).unwrap_or_default(),
        };
        Error::Unreachable(format!("{}: {said}", self.request_name(call)))
    }
}

/// A watch under way.
pub struct Watch {
    body: Body,
    read: Vec<u8>,
    name: String,
}

impl Watch {
    /// `None` at its end.
    pub async fn next(&mut self) -> Result<Option<Value>, Error> {
        let broken = |reason: String| Error::Unreachable(format!("{}: {reason}", self.name));
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                if line.trim_ascii().is_empty() {
                    continue;
                }
                let event = serde_json::from_slice(&line);
                return event.map(Some).map_err(|error| broken(format!("an event is not JSON: {error}")));
            }
            if LONGEST_EVENT < self.read.len() {
                return Err(broken("an event has no end".to_owned()));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => self.read.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
                Some(Err(error)) => return Err(broken(error.to_string())),
            }
        }
    }
}

/// Host and port of an address.
fn host(server: &str) -> String {
    let uri: http::Uri = server.parse().unwrap_or_default();
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    format!("{}:{port}", uri.host().unwrap_or_default())
}

fn refusal(status: StatusCode, bytes: &[u8], call: &Call<'_>) -> Error {
    let answer: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let message = answer["message"].as_str().filter(|_| answer["kind"] == "Status");
    let text = if let Some(message) = message {
        message.to_owned()
    } else {
        let said = match status {
            StatusCode::NOT_FOUND => "the server could not find the requested resource".to_owned(),
            StatusCode::UNAUTHORIZED => {
                "the server has asked for the client to provide credentials".to_owned()
            }
            StatusCode::FORBIDDEN => String::from_utf8_lossy(bytes).trim().to_owned(),
            _ => format!("an error on the server ({:?})", String::from_utf8_lossy(bytes).trim()),
        };
        format!("{said} ({} {})", call.method.as_str().to_lowercase(), call.about)
    };
    match status {
        StatusCode::NOT_FOUND => Error::NotFound(text),
        StatusCode::FORBIDDEN => Error::Forbidden(text),
        StatusCode::CONFLICT => Error::Conflict(text),
        StatusCode::GONE => Error::Gone(text),
        StatusCode::TOO_MANY_REQUESTS => Error::Busy(text),
        _ if status.is_server_error() => Error::Busy(text),
        _ => Error::Said(text),
    }
}
