//! The way into a pod: commands in its containers, and its ports.
//!
//! What is said on the way is between whoever asks and the pod's API server, in the subprotocol that Kubernetes has for it
//! (`v5.channel.k8s.io`, KEP-4006): here two connections are joined, and nobody looks at the bytes. Each way has a
//! connection of its own, since an upgrade takes HTTP/1.1.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_buf},
    time::timeout,
};

use crate::client::{ApiError, ClusterClient, ConnectError, RetryClass, escape};

/// Until the API server and the kubelet behind it have opened the way.
const OPENS_WITHIN: Duration = Duration::from_secs(30);
/// Whoever is away for so long has lost the connection without a word.
pub const SILENCE: Duration = Duration::from_mins(10);
const CLOSES_WITHIN: Duration = Duration::from_secs(1);
const ERROR_BYTES: usize = 64 << 10;
/// What a pod's output, or what goes to it, waits in here.
const BUFFER: usize = 16 << 10;
/// The newest says when one side of a stream is closed.
const COMMANDS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const PORTS: [&str; 1] = ["v4.channel.k8s.io"];

/// Where in a pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Way {
    Command { container: String, command: Vec<String>, stdin: bool, tty: bool },
    Port(u16),
}

#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    #[error("the request is none for a WebSocket: {0}")]
    NoWebSocket(&'static str),
    #[error("no connection to the cluster can be made")]
    Connect(#[from] ConnectError),
    /// In the words of the API server or the kubelet.
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// The caller's half of a WebSocket handshake, as far as the pod's API server has to see it.
#[derive(Debug)]
pub struct Handshake(HeaderMap);

/// A way that is open.
#[derive(Debug)]
pub struct Opened {
    /// The server's half of the handshake, for the caller to check.
    pub answer: HeaderMap,
    pod: OnUpgrade,
}

impl Way {
    /// In the order in which they are wanted.
    pub fn protocols(&self) -> &'static [&'static str] {
        match self {
            Self::Command { .. } => &COMMANDS,
            Self::Port(_) => &PORTS,
        }
    }

    fn url(&self, namespace: &str, pod: &str) -> String {
        let pod = format!("/api/v1/namespaces/{}/pods/{}", escape(namespace), escape(pod));
        match self {
            Self::Port(port) => format!("{pod}/portforward?ports={port}"),
            Self::Command { container, command, stdin, tty } => {
                // A terminal has one output.
                let url = format!(
                    "{pod}/exec?container={}&stdin={stdin}&stdout=true&stderr={}&tty={tty}",
                    escape(container),
                    !tty
                );
                command.iter().fold(url, |url, word| format!("{url}&command={}", escape(word)))
            }
        }
    }
}

impl Handshake {
    /// Of the caller's headers nothing else goes on: a subprotocol could hold somebody's token.
    pub fn of(caller: &HeaderMap, way: &Way) -> Result<Self, EnterError> {
        let has = |name: HeaderName, word: &str| {
            let values = caller.get_all(name).iter().filter_map(|value| value.to_str().ok());
            values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(word))
        };
        if !has(header::CONNECTION, "upgrade") || !has(header::UPGRADE, "websocket") {
            return Err(EnterError::NoWebSocket(
                "`Connection: Upgrade` and `Upgrade: websocket` are missing",
            ));
        }
        if !has(header::SEC_WEBSOCKET_VERSION, "13") {
            return Err(EnterError::NoWebSocket("`Sec-WebSocket-Version` is not 13"));
        }
        let key = caller.get(header::SEC_WEBSOCKET_KEY);
        let key = key.ok_or(EnterError::NoWebSocket("`Sec-WebSocket-Key` is missing"))?;
        let offered = way.protocols().iter().filter(|one| has(header::SEC_WEBSOCKET_PROTOCOL, one));
        let offered = offered.copied().collect::<Vec<_>>().join(", ");
        let offered = HeaderValue::try_from(offered).ok().filter(|offered| !offered.is_empty());
        let offered = offered.ok_or(EnterError::NoWebSocket(
            "`Sec-WebSocket-Protocol` has none that Kubernetes speaks here",
        ))?;
        let headers = [
            (header::CONNECTION, HeaderValue::from_static("Upgrade")),
            (header::UPGRADE, HeaderValue::from_static("websocket")),
            (header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13")),
            (header::SEC_WEBSOCKET_KEY, key.clone()),
            (header::SEC_WEBSOCKET_PROTOCOL, offered),
        ];
        Ok(Self(headers.into_iter().collect()))
    }
}

/// Opens the way with fedqd's own credential: whether the caller may is asked before.
pub async fn open(
    cluster: &ClusterClient,
    (namespace, pod): (&str, &str),
    way: &Way,
    handshake: Handshake,
) -> Result<Opened, EnterError> {
    let client = cluster.further(|limits| {
        limits.upgrades = true;
        limits.headers = OPENS_WITHIN;
    })?;
    let request = Request::get(way.url(namespace, pod)).body(Body::empty());
    let mut request =
        request.map_err(|_| ApiError::new(RetryClass::Invalid, "the pod and the command make no path"))?;
    *request.headers_mut() = handshake.0;
    let mut answer = client.send(request).await.map_err(ApiError::from)?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = answer.status().as_u16();
        let body = timeout(OPENS_WITHIN, Limited::new(answer.into_body(), ERROR_BYTES).collect()).await;
        let body = body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes);
        return Err(ApiError::from_answer(status, &body.unwrap_or_default()).into());
    }
    let pod = hyper::upgrade::on(&mut answer);
    let told = [header::SEC_WEBSOCKET_ACCEPT, header::SEC_WEBSOCKET_PROTOCOL];
    let told = told.into_iter().filter_map(|name| Some((name.clone(), answer.headers().get(name)?.clone())));
    Ok(Opened { answer: told.collect(), pod })
}

impl Opened {
    /// Joins both ends until one of them is closed, since a WebSocket has no half that goes on alone, or the caller has sent
    /// nothing for [`SILENCE`], not even a ping.
    pub async fn join(self, caller: OnUpgrade) -> std::io::Result<()> {
        let (pod, caller) = tokio::try_join!(self.pod, caller).map_err(std::io::Error::other)?;
        let (from_pod, mut to_pod) = tokio::io::split(TokioIo::new(pod));
        let (from_caller, mut to_caller) = tokio::io::split(TokioIo::new(caller));
        let mut from_pod = BufReader::with_capacity(BUFFER, from_pod);
        let mut from_caller = BufReader::with_capacity(BUFFER, from_caller);
        let heard = async {
            loop {
                let piece = timeout(SILENCE, from_caller.fill_buf()).await??;
                if piece.is_empty() {
                    return Ok(());
                }
                to_pod.write_all(piece).await?;
                to_pod.flush().await?;
                let taken = piece.len();
                from_caller.consume(taken);
            }
        };
        let ended = tokio::select! {
            ended = copy_buf(&mut from_pod, &mut to_caller) => ended.map(drop),
            ended = heard => ended,
        };
        // Whoever is still there is told by it; who is gone already makes it fail.
        let _ = timeout(CLOSES_WITHIN, async { tokio::join!(to_caller.shutdown(), to_pod.shutdown()) }).await;
        ended
    }
}

#[cfg(test)]
mod tests;
