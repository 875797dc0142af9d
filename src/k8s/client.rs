//! One client a cluster: HTTP/2 on a single TCP connection under `kube::Client`, with limits of its
//! own, so that one hung cluster costs the others nothing.

use std::{collections::BTreeMap, path::Path, time::Duration};

use http::Uri;
use jiff::Timestamp;
use kube::Client;

use super::kubeconfig::{CheckedKubeconfig, KubeconfigError, Rules};

#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Until TCP and TLS stand.
    pub dial: Duration,
    /// Until the headers of a response; bodies and slots are covered by the caller's own deadline.
    pub headers: Duration,
    /// Requests waiting for headers at a time; a running watch holds no slot.
    pub concurrent: usize,
    /// A connection that answers no ping for `ping_every + ping_timeout` is dropped.
    pub ping_every: Duration,
    pub ping_timeout: Duration,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(5),
            headers: Duration::from_secs(10),
            concurrent: 16,
            ping_every: Duration::from_secs(20),
            ping_timeout: Duration::from_secs(10),
        }
    }
}

/// A connection to one cluster; clones share it.
#[derive(Clone)]
pub struct ClusterClient {
    client: Client,
    server: Uri,
    expires: Option<Timestamp>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
}

/// Makes the client; nothing is dialled before the first request.
pub fn connect(kubeconfig: &CheckedKubeconfig, limits: &ClientLimits) -> Result<ClusterClient, ConnectError> {
    let _ = (kubeconfig, limits);
    todo!()
}

/// The hub, from the pod's service account.
pub fn in_cluster(limits: &ClientLimits) -> Result<ClusterClient, ConnectError> {
    let _ = limits;
    todo!()
}

/// The hub, from a kubeconfig on disk; paths in it are allowed.
pub async fn from_kubeconfig_path(
    path: &Path,
    context: Option<&str>,
    rules: &Rules,
    limits: &ClientLimits,
) -> Result<ClusterClient, ConnectError> {
    let _ = (path, context, rules, limits);
    todo!()
}

/// Whom a request is made for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Caller {
    pub user: String,
    pub uid: Option<String>,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Which cluster answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterIdentity {
    /// UID of the kube-system namespace.
    pub kube_system_uid: String,
    /// The API server's version, such as `v1.36.3`.
    pub version: String,
}

impl ClusterClient {
    pub fn kube(&self) -> Client {
        self.client.clone()
    }

    pub fn server(&self) -> &Uri {
        &self.server
    }

    /// When the credential expires, where that is known.
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    /// The same connection acting as `caller`: the cluster's RBAC and audit see that person.
    pub fn impersonating(&self, caller: &Caller) -> Result<Client, ConnectError> {
        let _ = caller;
        todo!()
    }

    pub async fn identity(&self, deadline: Duration) -> Result<ClusterIdentity, ApiError> {
        let _ = deadline;
        todo!()
    }
}

/// What a failed request means for the next step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RetryClass {
    /// Read again, decide again.
    Conflict,
    AlreadyExists,
    NotFound,
    /// The version asked for is no longer kept: list again.
    Gone,
    /// RBAC: someone has to grant it.
    Forbidden,
    /// An admission webhook said no; its own message.
    DeniedByWebhook(String),
    /// A webhook that must be asked does not answer.
    WebhookDown,
    Unauthorized,
    Throttled {
        retry_after: Option<Duration>,
    },
    /// The server answers with 5xx or not at all.
    Unreachable,
    Timeout,
    /// The request or the answer makes no sense: sending it again changes nothing.
    Invalid,
}

/// A failed request, with the server's own words.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub class: RetryClass,
    pub message: String,
    #[source]
    pub source: Option<Box<kube::Error>>,
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        let _ = error;
        todo!()
    }
}

/// Waits for `request` no longer than `deadline`: the transport's own timeouts do not cover waiting
/// for a slot, nor the body.
pub async fn call<T>(
    deadline: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApiError> {
    match tokio::time::timeout(deadline, request).await {
        Ok(answer) => answer.map_err(ApiError::from),
        Err(_) => Err(ApiError {
            class: RetryClass::Timeout,
            message: format!("no answer within {} s", deadline.as_secs()),
            source: None,
        }),
    }
}
