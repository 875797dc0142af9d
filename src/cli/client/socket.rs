//! WebSockets of the API, which are Kubernetes' own ways into pods.

use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use http::{HeaderName, Method, Request, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy::Client, rt::TokioExecutor, rt::TokioIo};
use tokio::time::{Duration, Interval, interval};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Bytes, Message,
        handshake::{client::generate_key, derive_accept_key},
        protocol::Role,
    },
};

use super::{Api, Body, Call, tcp};
use crate::error::CliError;

/// Tells the server, and what is on the way, that this end is there.
const PING: Duration = Duration::from_secs(20);

type Stream = WebSocketStream<TokioIo<Upgraded>>;

/// Messages that begin with the number of a channel.
pub struct Socket {
    stream: Stream,
    pings: Interval,
    /// Of the subprotocols that were offered.
    pub protocol: String,
    server: String,
}

impl Api {
    /// Opens a WebSocket at `path`, in one of `protocols`.
    pub async fn socket(&self, path: &str, protocols: &str) -> Result<Socket, CliError> {
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(self.tls.clone()).https_or_http().enable_http1();
        let http: Client<_, Body> =
            Client::builder(TokioExecutor::new()).build(connector.wrap_connector(tcp()));
        let key = generate_key();
        let call = Call { method: Method::GET, path, body: None, version: None };
        let request: http::Result<Request<Body>> = self
            .request(&call, "application/json")
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, &key)
            .header(header::SEC_WEBSOCKET_PROTOCOL, protocols)
            .body(Body::empty());
        let request = request.map_err(|_| CliError::BadServer { server: self.server.clone() })?;
        let response = http.request(request).await.map_err(|error| self.unreachable(&error))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(self.refused(response.map(Body::new)).await);
        }
        let told = |name: HeaderName| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let protocol = told(header::SEC_WEBSOCKET_PROTOCOL);
        let is_offered = protocols.split(',').any(|one| one.trim() == protocol);
        if told(header::SEC_WEBSOCKET_ACCEPT) != derive_accept_key(key.as_bytes()) || !is_offered {
            return Err(self.answer("its WebSocket is none of those that were asked for"));
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(|error| self.unreachable(&error))?;
        let stream = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await;
        let mut pings = interval(PING);
        pings.reset();
        Ok(Socket { stream, pings, protocol, server: self.server.clone() })
    }
}

impl Socket {
    /// Both directions by themselves: whoever waits for room to say something must hear meanwhile.
    pub fn split(self) -> (Hears, Says) {
        let (sink, stream) = self.stream.split();
        let server = self.server.clone();
        (Hears { stream, server: self.server }, Says { sink, pings: self.pings, server })
    }
}

pub struct Hears {
    stream: SplitStream<Stream>,
    server: String,
}

impl Hears {
    /// What comes next, and in which channel; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<(u8, Bytes)>, CliError> {
        loop {
            match self.stream.next().await {
                None | Some(Ok(Message::Close(_))) => return Ok(None),
                Some(Err(error)) if is_end(&error) => return Ok(None),
                Some(Err(error)) => return Err(broken(&self.server, &error)),
                Some(Ok(Message::Binary(mut bytes))) if !bytes.is_empty() => {
                    let channel = bytes.split_to(1)[0];
                    return Ok(Some((channel, bytes)));
                }
                Some(Ok(_)) => {}
            }
        }
    }
}

pub struct Says {
    sink: SplitSink<Stream, Message>,
    pings: Interval,
    server: String,
}

impl Says {
    pub async fn send(&mut self, channel: u8, bytes: &[u8]) -> Result<(), CliError> {
        let message = [&[channel], bytes].concat();
        self.sink.send(Message::binary(message)).await.map_err(|error| broken(&self.server, &error))
    }

    /// When it is time to say that this end is there.
    pub async fn ping_due(&mut self) {
        self.pings.tick().await;
    }

    pub async fn ping(&mut self) -> Result<(), CliError> {
        let sent = self.sink.send(Message::Ping(Bytes::new())).await;
        sent.map_err(|error| broken(&self.server, &error))
    }
}

fn broken(server: &str, error: &tungstenite::Error) -> CliError {
    CliError::Connect { server: server.to_owned(), reason: error.to_string() }
}

/// fedqd ends it without a word where the right or the task ended.
fn is_end(error: &tungstenite::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    use tungstenite::{Error, error::ProtocolError};
    match error {
        Error::ConnectionClosed | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => true,
        Error::Io(error) => matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof),
        _ => false,
    }
}
