use std::net::SocketAddr;

use axum::{
    body::to_bytes,
    routing::{get, post},
};
use futures::stream;
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::webhook::tests::{client_of, own_certificate};

/// What the attacks below have to outlast.
const PATIENCE: Duration = Duration::from_millis(400);
/// Far more, for a machine that is busy.
const SOON: Duration = Duration::from_secs(20);

const BOUNDS: Bounds = Bounds { all: 6, of_address: 4, patience: PATIENCE, streams: 8 };

fn listening() -> SocketAddr {
    let ticks = || {
        let ticks = stream::unfold(0, |count| async move {
            sleep(PATIENCE / 4).await;
            (count < 12).then(|| (Ok::<_, Infallible>(format!("{count}\n")), count + 1))
        });
        Body::from_stream(ticks)
    };
    let flood = || Body::from_stream(stream::repeat(Ok::<_, Infallible>(Bytes::from(vec![b'x'; 64 << 10]))));
    let router = Router::new()
        .route("/", get(async || "ok"))
        .route("/stream", get(async move || ticks()))
        .route("/flood", get(async move || flood()))
        .route(
            "/length",
            post(async |body: Body| to_bytes(body, 100).await.map_or(0, |bytes| bytes.len()).to_string()),
        );
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(serve(listener, None, router, BOUNDS, CancellationToken::new()));
    address
}

async fn dial(address: SocketAddr, said: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(said.as_bytes()).await.expect("sent");
    stream
}

/// What comes until the other end closes.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let read = tokio::time::timeout(SOON, stream.read_to_end(&mut text)).await.expect("an end in time");
    // What was sent too late makes the end a reset.
    let _ = read;
    String::from_utf8_lossy(&text).into_owned()
}

async fn answers(address: SocketAddr) -> bool {
    let mut stream = dial(address, "GET / HTTP/1.0\r\n\r\n").await;
    rest(&mut stream).await.ends_with("ok")
}

#[tokio::test]
async fn whoever_came_by_tls_is_led_on_by_tls() {
    let certificate = own_certificate();
    let tls = RustlsConfig::from_config(certificate.server_config().expect("a configuration"));
    let router = Router::new().fallback(async |request: Request<Body>| {
        crate::k8s_cli::nowhere(&request).expect("a path of its own")
    });
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(serve(listener, Some(tls), router, BOUNDS, CancellationToken::new()));
    let request = Request::get(format!("https://{address}/tasks/")).body(Full::default()).expect("a request");
    let answer = client_of(&certificate).request(request).await.expect("an answer");
    assert_eq!(answer.headers()["location"], format!("https://{address}/tasks"));
}

#[tokio::test]
async fn whoever_says_nothing_or_half_a_request_is_hung_up_on() {
    let address = listening();
    for said in [
        "",
        "GET / HTTP/1.1\r\nHost: a\r\nX-More: ",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let began = Instant::now();
        let mut stream = dial(address, said).await;
        rest(&mut stream).await;
        assert!(PATIENCE <= began.elapsed(), "{said:?}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_head_that_comes_a_byte_at_a_time_wins_no_time() {
    let address = listening();
    let mut stream = dial(address, "GET / HTTP/1.1\r\nHost: a\r\nX-More: ").await;
    let began = Instant::now();
    while stream.write_all(b"x").await.is_ok() {
        assert!(began.elapsed() < SOON, "still open");
        sleep(PATIENCE / 8).await;
    }
}

#[tokio::test]
async fn a_body_that_comes_a_byte_at_a_time_is_not_waited_for() {
    let address = listening();
    let stream = dial(address, "POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 90\r\n\r\n").await;
    let (mut reading, mut writing) = stream.into_split();
    let drip = tokio::spawn(async move {
        while writing.write_all(b"x").await.is_ok() {
            sleep(PATIENCE / 8).await;
        }
    });
    let mut answer = [0; 512];
    let length =
        tokio::time::timeout(SOON, reading.read(&mut answer)).await.expect("in time").expect("an answer");
    let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\r\n\r\n0"), "{answer}");
    drip.abort();
}

#[tokio::test]
async fn an_answer_that_is_not_taken_is_given_up() {
    let address = listening();
    let stream = dial(address, "GET /flood HTTP/1.1\r\nHost: a\r\n\r\n").await;
    // All places of this address, which nobody reads from.
    let mut held = vec![stream];
    for _ in 1..BOUNDS.of_address {
        held.push(dial(address, "GET /flood HTTP/1.1\r\nHost: a\r\n\r\n").await);
    }
    let began = Instant::now();
    while !answers(address).await {
        assert!(began.elapsed() < SOON, "they keep their places");
        sleep(PATIENCE / 8).await;
    }
    assert_eq!(held.len(), BOUNDS.of_address);
}

#[tokio::test]
async fn a_stream_lives_longer_than_anybody_waits_for_a_request() {
    let address = listening();
    let mut stream = dial(address, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let text = rest(&mut stream).await;
    assert!(text.contains("\n11\n"), "{text}");
}

#[tokio::test]
async fn one_address_has_its_share_of_connections_and_gets_it_back() {
    let address = listening();
    let mut open = Vec::new();
    for _ in 0..BOUNDS.of_address {
        open.push(dial(address, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n").await);
        // So that they are taken in before the next.
        let mut first = [0; 16];
        let last = open.last_mut().expect("just opened");
        last.read_exact(&mut first).await.expect("an answer");
    }
    assert!(!answers(address).await, "one too many");
    open.pop();
    let began = Instant::now();
    while !answers(address).await {
        assert!(began.elapsed() < SOON, "its place is not given back");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_part_of_an_answer_does_not_wait_for_the_one_before_to_be_acknowledged() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let _caller = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
    let (stream, _) = listener.accept().await.expect("a connection");
    let door = Door { places: Places::new(1, 1), patience: PATIENCE };
    let (guarded, _) = door.admit(stream, Router::new()).expect("a place");
    assert!(guarded.stream.nodelay().expect("an option"));
}
