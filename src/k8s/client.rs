//! One client a cluster: HTTP/2 on a single TCP connection under `kube::Client`, with limits of its
//! own, so that one hung cluster costs the others nothing.

mod again;
mod answers;
mod budget;
mod error;
mod observer;
mod transport;

use std::{collections::BTreeMap, io, path::Path, sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue, Request, Uri, header::USER_AGENT};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{Api, Client, Config, api::PostParams, client::Body};
use serde::Deserialize;

use super::{
    join_token::Validity,
    kubeconfig::{self, CheckedKubeconfig, KubeconfigError, Rules},
    proxy::Forwarded,
};

pub use answers::Answers;
pub use budget::Budget;
pub(super) use budget::{Share, give_back, slow};
pub(super) use error::clean;
pub use error::{ApiError, RetryClass};
pub(super) use observer::restart_reason;
pub use observer::{Observer, Told};

#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Until TCP and TLS stand.
    pub dial: Duration,
    /// Until the headers of a response; bodies and slots are covered by the caller's own deadline.
    pub headers: Duration,
    /// Requests waiting for headers at a time; a running watch holds no slot. An API server takes 100
    /// streams a connection, and the next one would wait unsent: keep to 80 watches a cluster.
    pub concurrent: usize,
    /// Speaks HTTP/1.1, one request a connection at a time, since only there one can become something else.
    pub upgrades: bool,
    /// A connection that answers no ping for `ping_every + ping_timeout` is dropped.
    pub ping_every: Duration,
    pub ping_timeout: Duration,
    /// One answer that is not a stream: an object.
    pub answer_bytes: usize,
    /// What a stream may send before its reader takes it, and all streams of the connection together: as
    /// many streams as fill the latter, left unread, stop every other one.
    pub stream_window: u32,
    pub connection_window: u32,
    /// What all clusters with these limits may keep of large answers and objects on their way.
    pub reading: Budget,
    /// Told of requests and watches.
    pub observer: Observer,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(5),
            headers: Duration::from_secs(10),
            concurrent: 16,
            upgrades: false,
            ping_every: Duration::from_secs(20),
            ping_timeout: Duration::from_secs(10),
            answer_bytes: 4 << 20,
            stream_window: 256 << 10,
            connection_window: 2 << 20,
            reading: Budget::default(),
            observer: Observer::default(),
        }
    }
}

/// A connection to one cluster; clones share it.
#[derive(Clone)]
pub struct ClusterClient {
    client: Client,
    expires: Option<Timestamp>,
    renewable: Option<Validity>,
    origin: Arc<Origin>,
    answers: Arc<Answers>,
}

/// What a further connection is made from.
struct Origin {
    /// `None`: a pod's service account.
    kubeconfig: Option<CheckedKubeconfig>,
    config: Config,
    route: transport::Route,
    limits: ClientLimits,
    /// What people ask by it.
    forwarded: Forwarded,
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot read the kubeconfig {path}")]
    ReadKubeconfig { path: String, source: io::Error },
    #[error("cannot use the kubeconfig")]
    Kubeconfig(#[from] KubeconfigError),
    #[error("not in a pod: no service account is mounted")]
    InCluster(#[source] kube::config::InClusterError),
    #[error("cannot set up TLS and credentials")]
    Transport(#[source] kube::Error),
    #[error("`{0}` cannot be impersonated: it does not fit into a header")]
    Caller(String),
}

/// Makes the client; nothing is dialled before the first request. Needs a tokio runtime.
pub fn connect(kubeconfig: &CheckedKubeconfig, limits: &ClientLimits) -> Result<ClusterClient, ConnectError> {
    let route =
        transport::Route { proxy: kubeconfig.proxy().cloned(), allow_loopback: kubeconfig.allow_loopback() };
    build(Some(kubeconfig.clone()), kubeconfig.config()?, route, limits)
}

/// The hub, from the pod's service account.
pub fn in_cluster(limits: &ClientLimits) -> Result<ClusterClient, ConnectError> {
    let config = Config::incluster().map_err(ConnectError::InCluster)?;
    build(None, config, transport::Route { proxy: None, allow_loopback: true }, limits)
}

/// The hub, from a kubeconfig on disk; paths in it are allowed, relative to it.
pub fn from_kubeconfig_path(
    path: &Path,
    context: Option<&str>,
    rules: &Rules,
    limits: &ClientLimits,
) -> Result<ClusterClient, ConnectError> {
    let bytes = std::fs::read(path)
        .map_err(|source| ConnectError::ReadKubeconfig { path: path.display().to_string(), source })?;
    let folder = path.parent().unwrap_or_else(|| Path::new(".")).to_path_buf();
    let rules = Rules { files_from: Some(folder), ..rules.clone() };
    connect(&kubeconfig::check(&bytes, context, &rules)?, limits)
}

fn build(
    kubeconfig: Option<CheckedKubeconfig>,
    mut config: Config,
    route: transport::Route,
    limits: &ClientLimits,
) -> Result<ClusterClient, ConnectError> {
    let agent = HeaderValue::from_static(concat!("fedqd/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    let expires = kubeconfig.as_ref().and_then(CheckedKubeconfig::expires);
    let renewable = kubeconfig.as_ref().and_then(CheckedKubeconfig::renewable);
    let origin =
        Origin { kubeconfig, config, route, limits: limits.clone(), forwarded: Forwarded::default() };
    Ok(ClusterClient {
        client: origin.dial(limits)?,
        expires,
        renewable,
        origin: Arc::new(origin),
        answers: Arc::default(),
    })
}

impl Origin {
    fn dial(&self, limits: &ClientLimits) -> Result<Client, ConnectError> {
        transport::client(&self.config, self.route.clone(), limits).map_err(ConnectError::Transport)
    }
}

/// Marks a request (in its extensions) whose reader limits the body itself.
#[derive(Clone, Copy)]
pub(super) struct Streamed;

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
        &self.origin.config.cluster_url
    }

    pub(super) fn forwarded(&self) -> &Forwarded {
        &self.origin.forwarded
    }

    pub fn reading(&self) -> &Budget {
        &self.origin.limits.reading
    }

    pub fn answers(&self) -> &Arc<Answers> {
        &self.answers
    }

    pub fn observer(&self) -> &Observer {
        &self.origin.limits.observer
    }

    /// A kubeconfig for the same server with another token; `None` for a pod's own service account.
    pub fn kubeconfig_with(&self, token: &str) -> Option<String> {
        self.origin.kubeconfig.as_ref().map(|kubeconfig| kubeconfig.render_with(token))
    }

    /// The same server, for who has that token, over a connection of its own; `None` for a pod's own service
    /// account.
    pub fn with_token(&self, token: &str) -> Option<Self> {
        let kubeconfig = self.origin.kubeconfig.as_ref()?.with_token(token);
        connect(&kubeconfig, &self.origin.limits).ok()
    }

    /// A connection of its own, for what would take the slots, streams or windows of this one; `adjust`
    /// changes its limits.
    pub(super) fn further(&self, adjust: impl FnOnce(&mut ClientLimits)) -> Result<Client, ConnectError> {
        let mut limits = self.origin.limits.clone();
        adjust(&mut limits);
        self.origin.dial(&limits)
    }

    /// The same server and credential over a connection of its own.
    pub(super) fn over_another_connection(
        &self,
        adjust: impl FnOnce(&mut ClientLimits),
    ) -> Result<Self, ConnectError> {
        Ok(Self { client: self.further(adjust)?, ..self.clone() })
    }

    /// The same for somebody who looks at the cluster: what they ask takes no slots of what fedqd lives on.
    pub fn for_checks(&self) -> Result<Self, ConnectError> {
        self.over_another_connection(|_| ())
    }

    /// When the credential expires, where that is known.
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    /// The same, of a credential that somebody else looks after.
    #[must_use]
    pub fn never_renewed(self) -> Self {
        Self { renewable: None, ..self }
    }

    /// How long its token is good, if it is one that fedq can make anew.
    pub fn renewable(&self) -> Option<Validity> {
        self.renewable
    }

    /// The same connection acting as `caller`: the cluster's RBAC and audit see that person.
    pub fn impersonating(&self, caller: &Caller) -> Result<Client, ConnectError> {
        let headers = caller.headers()?;
        let client = self.client.clone();
        let namespace = client.default_namespace().to_owned();
        let service = tower::service_fn(move |mut request: Request<Body>| {
            for (name, value) in &headers {
                request.headers_mut().append(name, value.clone());
            }
            let client = client.clone();
            async move { client.send(request).await }
        });
        Ok(Client::new(service, namespace))
    }

    /// Who the cluster takes us for.
    pub async fn whoami(&self, deadline: Duration) -> Result<String, ApiError> {
        let api: Api<SelfSubjectReview> = Api::all(self.client.clone());
        let review =
            call(deadline, api.create(&PostParams::default(), &SelfSubjectReview::default())).await?;
        let user = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
        user.ok_or_else(|| ApiError::new(RetryClass::Invalid, "the answer names no user"))
    }

    pub async fn identity(&self, deadline: Duration) -> Result<ClusterIdentity, ApiError> {
        #[derive(Deserialize)]
        struct Namespace {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            uid: String,
        }
        let path = "/api/v1/namespaces/kube-system";
        let request = Request::get(path).body(Vec::new()).expect("a constant path makes a request");
        let (namespace, version) = call(deadline, async {
            tokio::try_join!(self.client.request::<Namespace>(request), self.client.apiserver_version())
        })
        .await?;
        Ok(ClusterIdentity { kube_system_uid: namespace.metadata.uid, version: version.git_version })
    }
}

impl Caller {
    fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, ConnectError> {
        let refused = |text: &str| ConnectError::Caller(clean(text));
        let value = |text: &str| HeaderValue::from_str(text).map_err(|_| refused(text));
        // Without a user the API server would act as the daemon itself.
        if self.user.is_empty() {
            return Err(refused(""));
        }
        let mut headers = vec![(HeaderName::from_static("impersonate-user"), value(&self.user)?)];
        if let Some(uid) = &self.uid {
            headers.push((HeaderName::from_static("impersonate-uid"), value(uid)?));
        }
        for group in &self.groups {
            headers.push((HeaderName::from_static("impersonate-group"), value(group)?));
        }
        for (key, values) in &self.extra {
            let name = format!("impersonate-extra-{}", escape(key));
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused(key))?;
            for text in values {
                headers.push((name.clone(), value(text)?));
            }
        }
        Ok(headers)
    }
}

/// Percent-encodes what a header name or the value of a query may not hold.
pub(super) fn escape(key: &str) -> String {
    key.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_') {
            escaped.push(char::from(byte));
        } else {
            escaped.extend(format!("%{byte:02X}").chars());
        }
        escaped
    })
}

/// Waits for `request` no longer than `deadline`: the transport's own timeouts do not cover waiting
/// for a slot, nor the body.
pub async fn call<T>(
    deadline: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApiError> {
    // Boxed: its state takes kilobytes, and a task for each kind of each cluster waits elsewhere nearly all
    // of its life.
    match tokio::time::timeout(deadline, Box::pin(request)).await {
        Ok(answer) => answer.map_err(ApiError::from),
        Err(_) => Err(ApiError::timeout(deadline)),
    }
}

#[cfg(test)]
mod tests;
