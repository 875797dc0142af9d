//! What a theme works with: its own namespace and names, requests as the users of the server, and a list of all that
//! was not as expected. A difference does not end a theme, so that one run shows them all.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::Server;
use super::client::{Answer, Client, Credential, Open};
use super::expect::{differences, has};

/// Controllers need tenths of seconds; the rest is for a busy machine.
pub const SOON: Duration = Duration::from_secs(30);

/// What a watch says that wants to be told how far it has come.
const BOOKMARKS: &str = "allowWatchBookmarks=true";

/// Where a bookmark says that what was there at the start has been told.
const INITIAL_EVENTS_END: &str = "/metadata/annotations/k8s.io~1initial-events-end";

pub const CLAIMS: &str = "/apis/galaxy.kubestellar.io/v1alpha1/clusterresourceclaims";
pub const QUEUES: &str = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues";
pub const FLAVORS: &str = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors";
pub const COHORTS: &str = "/apis/kueue.x-k8s.io/v1beta2/cohorts";
pub const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
pub const NODES: &str = "/api/v1/nodes";
pub const NAMESPACES: &str = "/api/v1/namespaces";

pub const MERGE: &str = "application/merge-patch+json";
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub const JSON_PATCH: &str = "application/json-patch+json";
pub const APPLY: &str = "application/apply-patch+yaml";

pub struct Stage<'a> {
    pub server: &'a Server,
    /// The theme's namespace, and what its objects outside of namespaces are called after.
    pub name: String,
    admin: Client,
    nobody: Client,
    anonymous: Client,
    differences: RefCell<Vec<String>>,
}

#[derive(Clone, Copy, Debug)]
pub enum Who {
    Admin,
    Nobody,
    Anonymous,
}

impl<'a> Stage<'a> {
    pub async fn open(server: &'a Server, theme: &str) -> Result<Self> {
        let client = |credential: &Credential| Client::new(&server.base, &server.ca_pem, credential);
        let stage = Self {
            server,
            // A server may live longer than one run.
            name: format!(
                "conf-{theme}-{}",
                std::iter::repeat_with(fastrand::lowercase).take(4).collect::<String>()
            ),
            admin: client(&server.admin)?,
            nobody: client(&server.nobody)?,
            anonymous: client(&Credential::Anonymous)?,
            differences: RefCell::default(),
        };
        stage.make(NAMESPACES, json!({"metadata": {"name": stage.name}})).await;
        Ok(stage)
    }

    /// Removes what is left, and fails with everything that differed.
    pub async fn close(self, ended: Result<()>) -> Result<()> {
        if let Err(error) = ended {
            self.differs(format!("the theme ended early: {error:#}"));
        }
        if let Err(error) = self.clear().await {
            self.differs(format!("what is left could not be removed: {error:#}"));
        }
        let differences = self.differences.into_inner();
        let flavour = self.server.flavour;
        ensure!(
            differences.is_empty(),
            "{} differences of the {flavour} server:\n{}",
            differences.len(),
            differences.join("\n")
        );
        Ok(())
    }

    async fn clear(&self) -> Result<()> {
        self.admin.send(http::Request::delete(format!("{NAMESPACES}/{}", self.name)), String::new()).await?;
        let start = Instant::now();
        loop {
            let mut left = 0;
            for kind in [WEBHOOKS, COHORTS, CLAIMS, QUEUES, FLAVORS, NODES] {
                left += self.clear_kind(kind).await?;
            }
            if left == 0 {
                return Ok(());
            }
            ensure!(start.elapsed() < SOON, "{left} objects stay");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn clear_kind(&self, kind: &str) -> Result<usize> {
        let answer = self.get(kind).send().await?;
        if answer.status == 429 {
            // A server that has just started fills its cache of the kind first. Asked again.
            return Ok(1);
        }
        if answer.status == 404 {
            // A server that is there for its nodes alone has no more kinds.
            return Ok(0);
        }
        let list = answer.json();
        let items = list["items"].as_array().with_context(|| format!("{kind} is no list: {list}"))?;
        let names = items.iter().filter_map(|item| item["metadata"]["name"].as_str());
        let ours: Vec<&str> = names.filter(|name| name.starts_with(&self.name)).collect();
        for name in &ours {
            self.delete(&format!("{kind}/{name}")).send().await?;
        }
        Ok(ours.len())
    }

    pub fn differs(&self, difference: String) {
        self.differences.borrow_mut().push(difference);
    }

    /// Notes a difference unless it holds.
    pub fn check(&self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.differs(otherwise());
        }
    }

    /// A name outside of namespaces.
    pub fn named(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    /// The path of a kind's objects in the theme's namespace: `/api/v1` and `secrets`.
    pub fn within(&self, api: &str, plural: &str) -> String {
        format!("{api}/namespaces/{}/{plural}", self.name)
    }

    pub fn secrets(&self) -> String {
        self.within("/api/v1", "secrets")
    }

    pub fn get(&self, path: &str) -> Step<'_> {
        self.step(http::Method::GET, path, String::new())
    }

    pub fn delete(&self, path: &str) -> Step<'_> {
        self.step(http::Method::DELETE, path, String::new())
    }

    pub fn post(&self, path: &str, body: Value) -> Step<'_> {
        self.step(http::Method::POST, path, body.to_string()).header("content-type", "application/json")
    }

    /// A creation in another form than JSON.
    pub fn send_as(&self, path: &str, content_type: &str, body: String) -> Step<'_> {
        self.step(http::Method::POST, path, body).header("content-type", content_type)
    }

    pub fn put(&self, path: &str, body: Value) -> Step<'_> {
        self.step(http::Method::PUT, path, body.to_string()).header("content-type", "application/json")
    }

    /// `kind` is the content type, as [`MERGE`].
    pub fn patch(&self, path: &str, kind: &str, body: Value) -> Step<'_> {
        self.step(http::Method::PATCH, path, body.to_string()).header("content-type", kind)
    }

    /// Server-side apply as this field manager.
    pub fn apply(&self, path: &str, manager: &str, body: Value) -> Step<'_> {
        let separator = if path.contains('?') { '&' } else { '?' };
        self.patch(&format!("{path}{separator}fieldManager={manager}"), APPLY, body)
    }

    fn step(&self, method: http::Method, path: &str, body: String) -> Step<'_> {
        Step { stage: self, who: Who::Admin, method, path: path.to_owned(), headers: Vec::new(), body }
    }

    /// Creates it and hands it back as stored.
    pub async fn make(&self, path: &str, body: Value) -> Value {
        self.post(path, body).gives(201, json!({"metadata": {"uid": super::expect::any()}})).await
    }

    pub async fn watch(&self, path: &str) -> Result<Watch<'_>> {
        self.get(path).watches().await
    }

    /// Asks until the answer is as expected.
    pub async fn becomes(&self, path: &str, status: u16, expected: Value) -> Value {
        let start = Instant::now();
        loop {
            let Ok(answer) = self.get(path).send().await else {
                self.differs(format!("GET {path}: no answer"));
                return Value::Null;
            };
            let found = answer.json();
            let mut wrong = differences(&expected, Some(&found));
            if answer.status == status && wrong.is_empty() {
                return found;
            }
            if SOON < start.elapsed() {
                wrong.insert(0, format!("GET {path} after {SOON:?}: {}, expected {status}", answer.status));
                self.differs(wrong.join("\n    "));
                return found;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// One request.
#[must_use]
pub struct Step<'a> {
    stage: &'a Stage<'a>,
    who: Who,
    method: http::Method,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl<'a> Step<'a> {
    /// As the administrator.
    pub async fn watches(self) -> Result<Watch<'a>> {
        let open = self.stage.admin.open(self.request(), String::new()).await?;
        let status = open.status().as_u16();
        Ok(Watch { stage: self.stage, path: self.path, status, open, rest: Vec::new() })
    }

    pub fn by(self, who: Who) -> Self {
        Self { who, ..self }
    }

    /// Instead of a header of the same name, if there is one.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(other, _)| other != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Bytes that need not be JSON.
    pub fn body(self, body: &str) -> Self {
        Self { body: body.to_owned(), ..self }
    }

    /// Compares the answer, and hands back its JSON.
    pub async fn gives(self, status: u16, expected: Value) -> Value {
        self.answers(status, expected).await.map(|answer| answer.json()).unwrap_or_default()
    }

    /// Is refused with a Status of this code and reason, and this somewhere in its message.
    pub async fn refused(self, code: u16, reason: &str, message: &str) {
        let status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": reason,
            "message": has(message),
            "code": code,
        });
        self.gives(code, status).await;
    }

    /// The same as `gives`, for whoever needs headers or bytes.
    pub async fn answers(self, status: u16, expected: Value) -> Option<Answer> {
        let (stage, what) = (self.stage, self.to_string());
        let answer = match self.send().await {
            Ok(answer) => answer,
            Err(error) => {
                stage.differs(format!("{what}: {error:#}"));
                return None;
            }
        };
        let mut wrong = Vec::new();
        if answer.status != status {
            wrong.push(format!("status {}, expected {status}: {:.500}", answer.status, answer.text()));
        }
        if !expected.is_null() {
            wrong.extend(differences(&expected, Some(&answer.json())));
        }
        if !wrong.is_empty() {
            stage.differs(format!("{what}\n    {}", wrong.join("\n    ")));
        }
        Some(answer)
    }

    pub async fn send(self) -> Result<Answer> {
        let client = match self.who {
            Who::Admin => &self.stage.admin,
            Who::Nobody => &self.stage.nobody,
            Who::Anonymous => &self.stage.anonymous,
        };
        client.send(self.request(), self.body).await
    }

    fn request(&self) -> http::request::Builder {
        let request = http::Request::builder().method(self.method.clone()).uri(&self.path);
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        if self.headers.iter().any(|(name, _)| name == "accept") {
            return request;
        }
        request.header("accept", "application/json")
    }
}

impl std::fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {:.200}", self.method, self.path, self.body)?;
        self.headers
            .iter()
            .filter(|(name, _)| name != "content-type")
            .try_for_each(|(name, value)| write!(f, " {name}: {value}"))
    }
}

/// A watch, an event a line.
pub struct Watch<'a> {
    stage: &'a Stage<'a>,
    path: String,
    pub status: u16,
    open: Open,
    rest: Vec<u8>,
}

impl Watch<'_> {
    /// The next event, `None` once the stream has ended cleanly.
    pub async fn event(&mut self) -> Result<Option<Value>> {
        let start = Instant::now();
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            let left = SOON.saturating_sub(start.elapsed());
            match tokio::time::timeout(left, self.open.body_mut().frame()).await {
                Ok(Some(frame)) => {
                    if let Ok(data) = frame?.into_data() {
                        self.rest.extend_from_slice(&data);
                    }
                }
                Ok(None) if self.rest.is_empty() => return Ok(None),
                Ok(None) => bail!("the watch {} ended in mid-line", self.path),
                Err(_) => bail!("no event of the watch {} within {SOON:?}", self.path),
            }
        }
    }

    /// The first `length` bytes of a stream of text, if so many come.
    pub async fn text(&mut self, length: usize) -> Option<String> {
        let read = async {
            while self.rest.len() < length {
                let data = self.open.body_mut().frame().await?.ok()?.into_data().unwrap_or_default();
                self.rest.extend_from_slice(&data);
            }
            String::from_utf8(self.rest[..length].to_vec()).ok()
        };
        tokio::time::timeout(SOON, read).await.ok().flatten()
    }

    /// Compares the next event, and hands back its object. A server may tell at any time how far a watch
    /// that asked for bookmarks has come: only one that is expected is compared.
    pub async fn gives(&mut self, kind: &str, expected: Value) -> Value {
        let mut next = self.event().await;
        while kind != "BOOKMARK"
            && self.path.contains(BOOKMARKS)
            && next.as_ref().is_ok_and(|event| is_progress(event.as_ref()))
        {
            next = self.event().await;
        }
        match next {
            Ok(Some(event)) => {
                let wrong = differences(&json!({"type": kind, "object": expected}), Some(&event));
                if !wrong.is_empty() {
                    self.stage.differs(format!("watch {}\n    {}", self.path, wrong.join("\n    ")));
                }
                event["object"].clone()
            }
            Ok(None) => {
                self.stage.differs(format!("the watch {} ended before {kind} {expected}", self.path));
                Value::Null
            }
            Err(error) => {
                self.stage.differs(format!("{error:#}; expected {kind} {expected}"));
                Value::Null
            }
        }
    }

    /// The server closes the stream, after bookmarks perhaps.
    pub async fn ends(&mut self) -> Result<()> {
        while let Some(event) = self.event().await? {
            let bookmark = event["type"] == "BOOKMARK";
            self.stage.check(bookmark, || format!("watch {}: {event} before its end", self.path));
        }
        Ok(())
    }
}

/// Whether an event only tells how far the watch has come, and does not end the initial events.
fn is_progress(event: Option<&Value>) -> bool {
    event.is_some_and(|event| {
        event["type"] == "BOOKMARK" && event["object"].pointer(INITIAL_EVENTS_END).is_none()
    })
}

/// A text of an answer, empty if it is not there.
pub fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub fn version(value: &Value) -> &str {
    text(value, "/metadata/resourceVersion")
}

/// A version to compare by order, as servers since 1.35 allow.
pub fn number(value: &Value) -> u64 {
    version(value).parse().unwrap_or_default()
}

pub fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
}

pub fn labelled(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}})
}

pub fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "galaxy.kubestellar.io/v1alpha1",
        "kind": "ClusterResourceClaim",
        "metadata": {"name": name},
        "spec": {"clusterName": "somewhere"},
    })
}

pub fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}
