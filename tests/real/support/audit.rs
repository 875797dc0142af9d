//! What was asked of an API server, and by whom: its audit log, one JSON object a line.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::Value;

/// The bed's own machinery is left out: nobody asks about it, and its heartbeats would fill the log.
pub const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: [kwok, "system:kube-controller-manager", "system:kube-scheduler", "system:apiserver", readiness]
- level: Metadata
"#;

/// A place in the audit log.
#[derive(Clone, Copy, Debug)]
pub struct Mark(pub(super) u64);

impl Mark {
    pub const BEGINNING: Self = Self(0);
}

#[derive(Clone, Debug)]
pub struct Request {
    pub verb: String,
    /// `clusterqueues.kueue.x-k8s.io` or `pods/status`: resource, subresource and group as one word.
    pub resource: String,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub user: String,
    pub user_agent: String,
    pub uri: String,
    pub code: u64,
    /// When the server had it, and when it had answered (or ended the stream).
    pub received: Timestamp,
    pub answered: Timestamp,
}

impl Request {
    pub fn is_write(&self) -> bool {
        // Reviews are questions that the API spells as creations.
        ["create", "update", "patch", "delete", "deletecollection"].contains(&self.verb.as_str())
            && !self.resource.contains("reviews.authorization.k8s.io")
            && !self.resource.contains("reviews.authentication.k8s.io")
    }

    fn parse(event: &Value) -> Self {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let mut resource = text("/objectRef/resource").unwrap_or_default();
        for (separator, pointer) in [(".", "/objectRef/apiGroup"), ("/", "/objectRef/subresource")] {
            if let Some(part) = text(pointer) {
                resource.push_str(separator);
                resource.push_str(&part);
            }
        }
        let time = |pointer: &str| text(pointer).and_then(|text| text.parse().ok()).unwrap_or_default();
        Self {
            verb: text("/verb").unwrap_or_default(),
            resource,
            namespace: text("/objectRef/namespace"),
            name: text("/objectRef/name"),
            user: text("/impersonatedUser/username").or_else(|| text("/user/username")).unwrap_or_default(),
            user_agent: text("/userAgent").unwrap_or_default(),
            uri: text("/requestURI").unwrap_or_default(),
            code: event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
            received: time("/requestReceivedTimestamp"),
            answered: time("/stageTimestamp"),
        }
    }
}

pub fn end(log: &Path) -> Result<Mark> {
    Ok(Mark(std::fs::metadata(log).with_context(|| log.display().to_string())?.len()))
}

/// Requests that ended after the mark. A watch appears when it starts and again when it ends.
pub fn since(log: &Path, mark: Mark) -> Result<Vec<Request>> {
    let mut file = File::open(log).with_context(|| log.display().to_string())?;
    file.seek(SeekFrom::Start(mark.0))?;
    let mut requests = Vec::new();
    for line in BufReader::new(file).lines() {
        // The last line may be half written; whoever needs it looks again.
        if let Ok(event) = serde_json::from_str(&line?) {
            requests.push(Request::parse(&event));
        }
    }
    Ok(requests)
}
