use std::sync::{Arc, Mutex};

use axum::{Router, body::Body, extract::Request, response::Response, routing::get};
use http::HeaderMap;
use hyper::upgrade::Upgraded;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::testing::Server;

type Seen = Arc<Mutex<Option<(String, HeaderMap)>>>;

fn shell() -> Way {
    let command = ["sh", "-c", "echo a b & c"].map(str::to_owned).to_vec();
    Way::Command { container: "task".to_owned(), command, stdin: true, tty: false }
}

fn headers(all: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (name.parse::<HeaderName>().expect("a name"), value.parse::<HeaderValue>().expect("a value"))
    };
    all.iter().map(pair).collect()
}

fn asks(protocols: &str) -> HeaderMap {
    headers(&[
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", protocols),
        ("authorization", "Bearer the-callers"),
        ("impersonate-user", "admin"),
        ("sec-websocket-extensions", "permessage-deflate"),
    ])
}

/// Answers each piece with itself in capitals, until it is told to end.
fn shout(request: &mut Request) {
    let upgrade = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgrade.await.expect("an upgrade"));
        let mut buffer = [0; 64];
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            if &buffer[..read] == b"end" {
                return stream.shutdown().await.expect("an orderly end");
            }
            stream.write_all(&buffer[..read].to_ascii_uppercase()).await.expect("somebody reads");
        }
    });
}

fn server(seen: &Seen) -> Server {
    let seen = Arc::clone(seen);
    let answer = move |mut request: Request| async move {
        let url = request.uri().to_string();
        *seen.lock().expect("no panic") = Some((url, request.headers().clone()));
        shout(&mut request);
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
            .header("sec-websocket-protocol", "v5.channel.k8s.io")
            .header("set-cookie", "not for the caller")
            .body(Body::empty())
            .expect("an answer")
    };
    let refuses = || async {
        let status = r#"{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,
            "message":"pods \"q\" is forbidden: User \"fedq\" cannot create resource \"pods/exec\""}"#;
        (StatusCode::FORBIDDEN, status)
    };
    Server::start(
        Router::new()
            .route("/api/v1/namespaces/team/pods/p/exec", get(answer))
            .route("/api/v1/namespaces/team/pods/q/exec", get(refuses)),
    )
}

#[tokio::test]
async fn a_way_joins_both_ends_and_passes_nothing_of_the_caller_but_the_handshake() {
    let seen = Seen::default();
    let server = server(&seen);
    let handshake = Handshake::of(
        &asks("base64url.bearer.authorization.k8s.io.dG9rZW4, v4.channel.k8s.io,v5.channel.k8s.io"),
        &shell(),
    );
    let handshake = handshake.expect("a handshake");
    let opened = open(&server.client(), ("team", "p"), &shell(), handshake).await.expect("a way");
    let expected = headers(&[
        ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        ("sec-websocket-protocol", "v5.channel.k8s.io"),
    ]);
    assert_eq!(opened.answer, expected);
    let (url, headers) = seen.lock().expect("no panic").take().expect("a request");
    assert_eq!(
        url.split_once('?').map(|(_, query)| query),
        Some(
            "container=task&stdin=true&stdout=true&stderr=true&tty=false&command=sh&command=-c&command=echo%20a%20b%20%26%20c"
        )
    );
    assert_eq!(headers["sec-websocket-protocol"], "v5.channel.k8s.io, v4.channel.k8s.io");
    assert_eq!(headers["authorization"], "Bearer secret-token", "fedqd's own");
    for other in ["impersonate-user", "sec-websocket-extensions"] {
        assert!(!headers.contains_key(other), "{other}");
    }

    let (mut caller, at_fedqd) = caller().await;
    let joined = tokio::spawn(opened.join(at_fedqd));
    caller.write_all(b"hello").await.expect("a way");
    let mut answer = [0; 5];
    caller.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"HELLO");
    caller.write_all(b"end").await.expect("a way");
    assert_eq!(caller.read(&mut answer).await.expect("an end"), 0, "the pod's end ends the caller's");
    drop(caller);
    joined.await.expect("no panic").expect("an orderly end");
}

/// Somebody whose connection became something else, and fedqd's end of it.
async fn caller() -> (TokioIo<Upgraded>, OnUpgrade) {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let sender = Arc::new(Mutex::new(Some(sender)));
    let fedqd = Server::start(Router::new().route(
        "/",
        get(move |mut request: Request| async move {
            let sender = sender.lock().expect("no panic").take().expect("one caller");
            sender.send(hyper::upgrade::on(&mut request)).expect("somebody waits");
            let headers = [("connection", "Upgrade"), ("upgrade", "websocket")];
            (StatusCode::SWITCHING_PROTOCOLS, headers)
        }),
    ));
    let client = fedqd.client().further(|limits| limits.upgrades = true).expect("a client");
    let mut request = Request::get("/").body(kube::client::Body::empty()).expect("a request");
    *request.headers_mut() = headers(&[("connection", "Upgrade"), ("upgrade", "websocket")]);
    let mut answer = client.send(request).await.expect("an answer");
    let caller = hyper::upgrade::on(&mut answer).await.expect("an upgrade");
    std::mem::forget(fedqd);
    (TokioIo::new(caller), receiver.await.expect("the other end"))
}

#[tokio::test]
async fn what_the_cluster_says_to_a_refusal_is_told() {
    let server = server(&Seen::default());
    let handshake = Handshake::of(&asks("v5.channel.k8s.io"), &shell()).expect("a handshake");
    let refused = open(&server.client(), ("team", "q"), &shell(), handshake).await;
    let Err(EnterError::Api(error)) = refused else { panic!("{refused:?}") };
    assert_eq!(error.class, RetryClass::Forbidden);
    assert!(error.message.contains("cannot create resource \"pods/exec\""), "{error}");
}

#[test]
fn a_request_that_is_no_handshake_is_refused() {
    let good = asks("v4.channel.k8s.io");
    for (missing, way) in [
        ("connection", Way::Port(80)),
        ("upgrade", shell()),
        ("sec-websocket-version", shell()),
        ("sec-websocket-key", shell()),
        ("sec-websocket-protocol", Way::Port(80)),
    ] {
        let mut headers = good.clone();
        headers.remove(missing);
        let refused = Handshake::of(&headers, &way);
        assert!(matches!(refused, Err(EnterError::NoWebSocket(_))), "{missing}: {refused:?}");
    }
    let unknown = Handshake::of(&asks("v5.channel.k8s.io"), &Way::Port(80));
    assert!(matches!(unknown, Err(EnterError::NoWebSocket(_))), "{unknown:?}");
}
