//! Stands between clients and a fedqd that runs, and holds what they say to each other against the document.

use std::{
    collections::{BTreeSet, HashMap},
    net::SocketAddr,
    sync::{Arc, LazyLock, Mutex},
};

use axum::body::Body;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Bytes, Incoming},
    service::service_fn,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use tokio::{net::TcpListener, runtime::Runtime};

use super::document::{self, Asked, Lines};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// It outlives the runtimes of single tests.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime starts"));
/// By the server that they stand before.
static CHECKED: Mutex<Option<HashMap<String, Checked>>> = Mutex::new(None);

#[derive(Clone)]
struct Checked {
    server: Arc<str>,
    address: SocketAddr,
    http: Client<HttpConnector, Full<Bytes>>,
    differences: Arc<Mutex<Vec<String>>>,
}

/// What a test says to its servers. When it ends, it fails with what of that the document does not have.
#[derive(Default)]
pub struct Talk(Mutex<BTreeSet<String>>);

impl Talk {
    /// Where `http://HOST:PORT` is reached so that what is said is checked.
    pub fn with(&self, server: &str) -> String {
        self.0.lock().expect("nothing ends in here").insert(server.to_owned());
        before(server)
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let servers = std::mem::take(self.0.get_mut().expect("nothing ends in here"));
        let differences: Vec<String> = servers.iter().flat_map(|server| take(server)).collect();
        // A test that has failed says why itself.
        if !std::thread::panicking() {
            assert!(differences.is_empty(), "the API's document does not have:\n{}", differences.join("\n"));
        }
    }
}

/// Where `http://HOST:PORT` is reached so that what is said is checked.
pub fn before(server: &str) -> String {
    format!("http://{}", of(server).address)
}

/// What has been said since the last time that the document does not have.
pub fn take(server: &str) -> Vec<String> {
    std::mem::take(&mut *of(server).differences.lock().expect("nothing ends in here"))
}

fn of(server: &str) -> Checked {
    let mut all = CHECKED.lock().expect("nothing ends in here");
    all.get_or_insert_default().entry(server.to_owned()).or_insert_with(|| Checked::start(server)).clone()
}

impl Checked {
    fn start(server: &str) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("a socket can wait");
        let address = listener.local_addr().expect("it listens");
        let http = Client::builder(TokioExecutor::new()).build_http();
        let checked = Self { server: server.into(), address, http, differences: Arc::default() };
        let serving = checked.clone();
        RUNTIME.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("it listens");
            while let Ok((stream, _)) = listener.accept().await {
                let checked = serving.clone();
                tokio::spawn(async move {
                    let forward = service_fn(move |request| checked.clone().forward(request));
                    // Where fedqd does not answer, the connection ends without an answer.
                    let _ = Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), forward)
                        .await;
                });
            }
        });
        checked
    }

    async fn forward(self, request: Request<Incoming>) -> Result<Response<Body>, Error> {
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let path = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        let asked = Asked {
            method: parts.method.clone(),
            path: path.clone(),
            headers: parts.headers.clone(),
            body: body.to_vec(),
        };
        parts.uri = format!("{}{path}", self.server).parse()?;
        parts.headers.remove(header::HOST);
        // What is checked is not packed.
        parts.headers.remove(header::ACCEPT_ENCODING);
        let response = self.http.request(Request::from_parts(parts, Full::new(body))).await?;
        let (parts, body) = response.into_parts();
        if !document::covers(&asked.path) {
            return Ok(Response::from_parts(parts, Body::new(body)));
        }
        if !document::is_answered_by_lines(&parts.headers) {
            let body = body.collect().await?.to_bytes();
            self.note(document::differences(&asked, parts.status, &parts.headers, &body));
            return Ok(Response::from_parts(parts, Body::from(body)));
        }
        self.note(document::differences(&asked, parts.status, &parts.headers, b""));
        let mut lines = Lines::of(&asked, &parts.headers);
        let body = body.map_frame(move |frame| {
            self.note(lines.differences(frame.data_ref().map_or(&[], |data| data)));
            frame
        });
        Ok(Response::from_parts(parts, Body::new(body)))
    }

    fn note(&self, differences: Vec<String>) {
        self.differences.lock().expect("nothing ends in here").extend(differences);
    }
}
