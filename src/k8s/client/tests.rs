use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Json, Router,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Redirect},
    routing::get,
};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, core::Status};
use serde_json::json;
use tokio::net::TcpListener;

use super::*;
use crate::testing::{Server, authority, client_of, kubeconfig_of};
use fedq_values::nested;

const SOON: Duration = Duration::from_secs(5);

fn short() -> ClientLimits {
    let short = Duration::from_millis(300);
    ClientLimits { dial: short, headers: short, ..ClientLimits::default() }
}

async fn version(client: &ClusterClient) -> Result<String, ApiError> {
    call(SOON, client.kube().apiserver_version()).await.map(|version| version.git_version)
}

fn version_route() -> Router {
    let body = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
    Router::new().route("/version", get(async move || Json(body)))
}

#[tokio::test]
async fn a_good_server_says_who_it_is_and_learns_who_asks() {
    let seen = Arc::new(Mutex::new(HeaderMap::new()));
    let namespace = {
        let seen = Arc::clone(&seen);
        get(async move |headers: HeaderMap| {
            *seen.lock().expect("headers") = headers;
            Json(json!({"metadata": {"uid": "u-1"}}))
        })
    };
    let server = Server::start(version_route().route("/api/v1/namespaces/kube-system", namespace));
    let identity = server.client().identity(SOON).await.expect("an answer");
    assert_eq!(identity, ClusterIdentity { kube_system_uid: "u-1".into(), version: "v1.36.3".into() });
    let headers = seen.lock().expect("headers").clone();
    assert_eq!(headers["authorization"], "Bearer secret-token");
    assert_eq!(headers["user-agent"], concat!("fedqd/", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn many_requests_share_one_connection() {
    use axum::extract::ConnectInfo;
    use std::{collections::BTreeSet, net::SocketAddr};
    let ports = Arc::new(Mutex::new(BTreeSet::new()));
    let routes = {
        let ports = Arc::clone(&ports);
        Router::new().route(
            "/api/v1/namespaces/{ns}/configmaps/{name}",
            get(async move |ConnectInfo(peer): ConnectInfo<SocketAddr>| {
                ports.lock().expect("ports").insert(peer.port());
                tokio::time::sleep(Duration::from_millis(20)).await;
                Json(json!({"metadata": {"name": "a"}}))
            }),
        )
    };
    let server = Server::start(routes);
    let client = server.client();
    let requests = (0..40).map(|_| {
        let api: Api<ConfigMap> = Api::namespaced(client.kube(), "ns");
        async move { call(SOON, api.get("a")).await.expect("an answer") }
    });
    futures::future::join_all(requests).await;
    assert_eq!(ports.lock().expect("ports").len(), 1);
}

#[tokio::test]
async fn impersonation_shares_the_connection_and_names_the_person() {
    let seen = Arc::new(Mutex::new(HeaderMap::new()));
    let route = {
        let seen = Arc::clone(&seen);
        get(async move |headers: HeaderMap| {
            *seen.lock().expect("headers") = headers;
            let status = json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"});
            (StatusCode::FORBIDDEN, Json(status))
        })
    };
    let server = Server::start(Router::new().route("/api/v1/namespaces/ns/configmaps/a", route));
    let client = server.client();
    let caller = Caller {
        user: "ada".into(),
        uid: Some("7".into()),
        groups: vec!["ml".into(), "ops".into()],
        extra: [("example.com/scope".to_owned(), vec!["x".to_owned()])].into(),
    };
    let api: Api<ConfigMap> = Api::namespaced(client.impersonating(&caller).expect("a client"), "ns");
    let error = call(SOON, api.get("a")).await.expect_err("forbidden");
    assert_eq!(error.class, RetryClass::Forbidden);
    let headers = seen.lock().expect("headers").clone();
    assert_eq!(headers["impersonate-user"], "ada");
    assert_eq!(headers["impersonate-uid"], "7");
    assert_eq!(headers.get_all("impersonate-group").iter().collect::<Vec<_>>(), ["ml", "ops"]);
    assert_eq!(headers["impersonate-extra-example.com%2fscope"], "x");
    assert_eq!(headers["authorization"], "Bearer secret-token");

    for user in ["", "two\nlines"] {
        let caller = Caller { user: user.into(), ..Caller::default() };
        assert!(client.impersonating(&caller).is_err(), "{user:?}");
    }
}

#[tokio::test]
async fn a_redirect_is_an_error_and_nothing_is_sent_there() {
    let target = Arc::new(AtomicUsize::new(0));
    let elsewhere = {
        let target = Arc::clone(&target);
        Server::start(Router::new().fallback(async move || {
            target.fetch_add(1, Ordering::SeqCst);
        }))
    };
    let to = format!("https://{}/version", elsewhere.address);
    let server = Server::start(
        Router::new().route("/version", get(async move || Redirect::temporary(&to).into_response())),
    );
    let error = version(&server.client()).await.expect_err("refused");
    assert_eq!(error.class, RetryClass::Invalid);
    assert!(error.message.contains("redirects"), "{error}");
    assert_eq!(target.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn another_authority_is_not_trusted() {
    let server = Server::start(version_route());
    let kubeconfig = kubeconfig_of(&format!("https://{}", server.address), &authority().pem());
    let error = version(&client_of(&kubeconfig, &short())).await.expect_err("refused");
    assert_eq!(error.class, RetryClass::Unreachable);
    assert!(error.message.contains("invalid peer certificate"), "{error}");
    assert!(!error.message.contains("secret-token"));
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing_costs_the_dial_deadline() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = silent.local_addr().expect("an address");
    let kubeconfig = kubeconfig_of(&format!("https://{address}"), &authority().pem());
    let started = std::time::Instant::now();
    let error = version(&client_of(&kubeconfig, &short())).await.expect_err("no answer");
    assert!(matches!(error.class, RetryClass::Unreachable | RetryClass::Timeout), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn a_request_that_hangs_ends_with_its_headers_deadline_and_the_rest_lives() {
    let routes = version_route().route("/api/v1/namespaces/kube-system", get(pending::<()>));
    let server = Server::start(routes);
    let client = server.client_with(&short());
    let error = client.identity(SOON).await.expect_err("no answer");
    assert_eq!(error.class, RetryClass::Timeout);
    assert_eq!(version(&client).await.expect("an answer"), "v1.36.3");
}

#[tokio::test]
async fn waiting_for_a_slot_ends_with_the_callers_deadline() {
    let routes = version_route().route("/api/v1/namespaces/kube-system", get(pending::<()>));
    let server = Server::start(routes);
    let limits = ClientLimits { concurrent: 1, headers: Duration::from_mins(1), ..ClientLimits::default() };
    let client = server.client_with(&limits);
    let hung = tokio::spawn({
        let client = client.clone();
        async move { client.identity(SOON).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let deadline = Duration::from_millis(200);
    let error = call(deadline, client.kube().apiserver_version()).await.expect_err("no slot");
    assert_eq!(error.class, RetryClass::Timeout);
    hung.abort();
}

#[tokio::test]
async fn a_busy_server_says_when_to_come_back() {
    let routes = Router::new().route(
        "/version",
        get(async || (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "7")], "Too many requests")),
    );
    let server = Server::start(routes);
    let error = version(&server.client()).await.expect_err("busy");
    assert_eq!(error.class, RetryClass::Throttled { retry_after: Some(Duration::from_secs(7)) });
    assert!(error.is_transient());
}

#[tokio::test]
async fn an_answer_without_end_is_cut() {
    let endless = get(async || {
        let piece = axum::body::Bytes::from(vec![b' '; 64 << 10]);
        axum::body::Body::from_stream(stream::repeat_with(move || Ok::<_, io::Error>(piece.clone())))
    });
    let server = Server::start(Router::new().route("/version", endless));
    let limits = ClientLimits { answer_bytes: 1 << 20, ..ClientLimits::default() };
    let error = version(&server.client_with(&limits)).await.expect_err("too long");
    assert_eq!(error.class, RetryClass::Unreachable, "{error:?}");
    assert!(error.message.contains("length limit"), "{error}");
}

#[tokio::test]
async fn an_answer_that_reads_itself_again_and_again_is_no_answer() {
    let fields = nested::nest(400);
    let nest =
        get(async move || format!(r#"{{"gitVersion":"v1.36.0","major":"1","minor":"36","more":{fields}}}"#));
    let server = Server::start(Router::new().route("/version", nest));
    let error = version(&server.client()).await.expect_err("it would end the process");
    assert_eq!(error.class, RetryClass::Invalid, "{error:?}");
    assert!(error.message.contains("JSON as a text"), "{error}");
}

#[tokio::test]
async fn all_unfinished_answers_together_are_bounded() {
    let begun = get(async || {
        let piece = axum::body::Bytes::from(vec![b' '; 1 << 20]);
        let piece = stream::iter([Ok::<_, io::Error>(piece)]);
        axum::body::Body::from_stream(piece.chain(stream::pending()))
    });
    let small = get(async || r#"{"metadata": {"uid": "u"}}"#);
    let router = version_route().route("/apis", begun).route("/api/v1/namespaces/kube-system", small);
    let server = Server::start(router);
    let reading = Budget::new(3 << 19);
    let limits = ClientLimits { reading: reading.clone(), ..ClientLimits::default() };
    let clients = [(); 2].map(|()| server.client_with(&limits));
    let groups = |client: &ClusterClient| {
        let client = client.kube();
        async move { call(Duration::from_secs(10), client.list_api_groups()).await }
    };
    let waiting = tokio::spawn(groups(&clients[0]));
    while 1 << 19 < reading.left() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let error = groups(&clients[1]).await.expect_err("no room for it");
    assert!(matches!(error.class, RetryClass::Throttled { .. }), "{error:?}");
    clients[1].identity(Duration::from_secs(10)).await.expect("small answers need nobody's leave");
    waiting.abort();
    waiting.await.expect_err("given up");
    assert_eq!(reading.left(), 3 << 19);
}

#[tokio::test]
async fn a_name_that_resolves_to_this_machine_is_not_dialled() {
    let server = Server::start(version_route());
    let address = format!("https://localhost:{}", server.address.port());
    let allowed = kubeconfig_of(&address, &server.ca_pem);
    assert_eq!(version(&client_of(&allowed, &short())).await.expect("an answer"), "v1.36.3");

    // `localhost` itself is refused by name; what DNS may say later is simulated by the resolver's rule.
    let route = transport::Route { proxy: None, allow_loopback: false };
    let rules = Rules { allow_loopback: true, ..Rules::default() };
    let checked = kubeconfig::check(allowed.as_bytes(), None, &rules).expect("good");
    let client = build(None, checked.config().expect("good"), route, &short()).expect("a client");
    let error = version(&client).await.expect_err("refused");
    assert_eq!(error.class, RetryClass::Unreachable);
    assert!(error.message.contains("this machine"), "{error}");
}

#[tokio::test]
async fn a_proxy_carries_the_connection_where_allowed() {
    let server = Server::start(version_route());
    let proxy = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let proxy_address = proxy.local_addr().expect("an address");
    let to = server.address;
    let proxied = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut from, _) = proxy.accept().await.expect("a connection");
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            asked.push(from.read_u8().await.expect("a byte"));
        }
        from.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.expect("written");
        let mut onward = tokio::net::TcpStream::connect(to).await.expect("connected");
        let copied = tokio::io::copy_bidirectional(&mut from, &mut onward).await;
        drop(copied);
        String::from_utf8(asked).expect("text")
    });
    let mut file: serde_json::Value = serde_json::from_str(&server.kubeconfig()).expect("JSON");
    file["clusters"][0]["cluster"]["proxy-url"] = json!(format!("http://{proxy_address}"));
    let rules = Rules { allow_loopback: true, allow_proxy: true, ..Rules::default() };
    let checked = kubeconfig::check(file.to_string().as_bytes(), None, &rules).expect("good");
    let client = connect(&checked, &short()).expect("a client");
    assert_eq!(version(&client).await.expect("an answer"), "v1.36.3");
    drop((client, server));
    let asked = tokio::time::timeout(SOON, proxied).await.expect("in time").expect("no panic");
    assert!(asked.starts_with(&format!("CONNECT {to} HTTP/1.1\r\n")), "{asked}");
}

fn class(code: u16, reason: &str, message: &str) -> RetryClass {
    let status = Status::failure(message, reason).with_code(code).boxed();
    ApiError::from(kube::Error::Api(status)).class
}

#[test]
fn answers_of_real_servers_are_told_apart() {
    let denied = r#"admission webhook "vclusterqueue.kb.io" denied the request: spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: "10": must be less than or equal to the nominalQuota"#;
    assert!(matches!(
        class(403, "Forbidden", denied),
        RetryClass::DeniedByWebhook(reason) if reason.starts_with("spec.resourceGroups[0]")
    ));
    let policy = r#"jobs.batch "x" is forbidden: ValidatingAdmissionPolicy 'fedq-worker' with binding 'fedq-worker' denied request: fedq puts nothing into system namespaces"#;
    assert_eq!(
        class(403, "Forbidden", policy),
        RetryClass::DeniedByWebhook("fedq puts nothing into system namespaces".to_owned())
    );
    let rbac = r#"clusterqueues.kueue.x-k8s.io is forbidden: User "u" cannot list resource "clusterqueues""#;
    let down = r#"Internal error occurred: failed calling webhook "vclusterqueue.kb.io": connection refused"#;
    let typed = "failed to create typed patch object (/q; kueue): .spec.nope: field not declared in schema";
    for (code, reason, message, expected) in [
        (403, "Forbidden", rbac, RetryClass::Forbidden),
        (409, "Conflict", "Operation cannot be fulfilled", RetryClass::Conflict),
        (409, "AlreadyExists", "already exists", RetryClass::AlreadyExists),
        (404, "NotFound", "not found", RetryClass::NotFound),
        (410, "Expired", "too old resource version: 310 (312)", RetryClass::Gone),
        (401, "Unauthorized", "Unauthorized", RetryClass::Unauthorized),
        (422, "Invalid", "metadata.uid: field is immutable", RetryClass::Invalid),
        (500, "InternalError", down, RetryClass::WebhookDown),
        (500, "", typed, RetryClass::Invalid),
        (500, "InternalError", "etcdserver: request timed out", RetryClass::Unreachable),
        (503, "ServiceUnavailable", "", RetryClass::Unreachable),
        (504, "Timeout", "Too large resource version: 99, current: 10", RetryClass::Timeout),
    ] {
        assert_eq!(class(code, reason, message), expected, "{code} {message}");
    }
}

#[test]
fn fields_of_other_managers_are_named() {
    let body = br#"{"kind":"Status","code":409,"reason":"Conflict","message":"Apply failed with 1 conflict","details":
        {"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"kubectl\"","field":".spec.nominalResources.cpu"}]}}"#;
    let error = ApiError::from_answer(409, body);
    let fields: Vec<_> = error.conflicting_fields().collect();
    assert_eq!(fields, [(".spec.nominalResources.cpu", "conflict with \"kubectl\"")]);
}

#[test]
fn what_a_server_says_cannot_drive_a_terminal() {
    let error = ApiError::from_answer(500, "\u{1b}[2J\nowned".as_bytes());
    assert_eq!(error.message, " [2J owned");
    let long = ApiError::from_answer(500, "x".repeat(100_000).as_bytes());
    assert!(long.message.len() < 3000);
}
