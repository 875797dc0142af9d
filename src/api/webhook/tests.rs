use std::net::SocketAddr;

use axum::http::Request;
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::*;
use fedq_base::certificate::ServingCertificate;
use fedq_base::clock::Clock;
use fedq_domain::{claim::CAPACITY_MANAGER, overview::ClaimOverview, resources::Aliases};
use fedq_values::ids::{ClaimName, ClusterName};

const DAEMON: &str = "system:serviceaccount:fedq-system:fedqd";

pub type TlsClient = Client<hyper_rustls::HttpsConnector<HttpConnector>, Full<axum::body::Bytes>>;

/// A webhook on a port of its own and a client that trusts its authority only.
struct Bed {
    address: SocketAddr,
    client: TlsClient,
    tls: RustlsConfig,
    overview: watch::Sender<Arc<Overview>>,
    stop: CancellationToken,
    serving: JoinHandle<io::Result<()>>,
}

pub fn client_of(certificate: &ServingCertificate) -> TlsClient {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(certificate.ca_bundle().as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let https = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().build();
    // No connection is kept, so that each request meets the certificate of its time.
    Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(https)
}

/// Good at the real time, since that is what a TLS client checks.
pub fn own_certificate() -> ServingCertificate {
    ServingCertificate::issue(&["127.0.0.1".to_owned()], Clock::system().now()).unwrap()
}

impl Bed {
    fn start() -> Self {
        let certificate = own_certificate();
        let tls = RustlsConfig::from_config(certificate.server_config().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let judge = Arc::new(Judge { aliases: Aliases::default(), daemon: Some(DAEMON.to_owned()) });
        let (overview, seen) = watch::channel(Arc::default());
        let webhook = Webhook::new(judge, seen);
        let stop = CancellationToken::new();
        let serving = tokio::spawn(webhook.serve(listener, tls.clone(), stop.clone()));
        Self { address, client: client_of(&certificate), tls, overview, stop, serving }
    }

    async fn post(&self, body: impl Into<axum::body::Bytes>) -> (StatusCode, Value) {
        let request = Request::post(format!("https://{}{REVIEW_PATH}", self.address))
            .header("content-type", "application/json")
            .body(Full::new(body.into()))
            .unwrap();
        let response = self.client.request(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
        (status, serde_json::from_slice(&body).unwrap_or_else(|_| text()))
    }

    /// The `response` of a review.
    async fn review(&self, review: &Value) -> Value {
        let (status, answer) = self.post(review.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(answer["kind"], "AdmissionReview");
        assert_eq!(answer["response"]["uid"], review["request"]["uid"]);
        answer["response"].clone()
    }

    async fn end(self) {
        self.stop.cancel();
        self.serving.await.unwrap().unwrap();
    }
}

fn claim(cap: &str, gpus: &[&str]) -> Value {
    let assignments: Vec<Value> = gpus
        .iter()
        .enumerate()
        .map(|(index, gpu)| {
            json!({ "clusterQueueName": format!("q{index}"), "flavor": "f", "resources": { "gpu": gpu } })
        })
        .collect();
    json!({
        "apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterResourceClaim",
        "metadata": { "name": "w1-resource-claim" },
        "spec": { "clusterName": "w1", "nominalResources": { "gpu": cap }, "resourceAssignments": assignments },
    })
}

/// As API servers send it.
fn request(operation: &str, old: Option<&Value>, new: Option<&Value>) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": { "group": "galaxy.kubestellar.io", "version": "v1alpha1", "kind": "ClusterResourceClaim" },
            "resource": { "group": "galaxy.kubestellar.io", "version": "v1alpha1", "resource": "clusterresourceclaims" },
            "name": "w1-resource-claim", "operation": operation,
            "userInfo": { "username": "ada", "groups": ["system:authenticated"] },
            "object": new, "oldObject": old, "dryRun": false,
            "options": { "apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions", "fieldManager": "kubectl-edit" },
        },
    })
}

#[tokio::test]
async fn an_edit_above_a_cap_is_forbidden_with_its_cause() {
    let bed = Bed::start();
    let old = claim("10", &["5"]);
    let answer = bed.review(&request("UPDATE", Some(&old), Some(&claim("10", &["5", "7"])))).await;
    assert_eq!(answer["allowed"], false);
    let status = &answer["status"];
    assert_eq!(status["code"], 403);
    assert_eq!(status["reason"], "Forbidden");
    let message = "spec.resourceAssignments: gpu: the assignments add up to 12, nominalResources allows 10: \
         2 too much; lower them or raise the cap";
    assert_eq!(status["message"], message);
    assert_eq!(status["details"]["causes"][0]["reason"], "AboveCap");
    assert_eq!(status["details"]["causes"][0]["field"], "spec.resourceAssignments");

    let answer = bed.review(&request("UPDATE", Some(&old), Some(&claim("10", &["5", "5"])))).await;
    assert_eq!(answer["allowed"], true);
    bed.end().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_invalid_and_each_problem_has_a_line() {
    let bed = Bed::start();
    let answer = bed.review(&request("CREATE", None, Some(&claim("x", &["1m", "1"])))).await;
    assert_eq!(answer["status"]["code"], 422);
    assert_eq!(answer["status"]["reason"], "Invalid");
    let message = answer["status"]["message"].as_str().unwrap();
    assert_eq!(message.matches("\n* spec.").count(), 2, "{message}");

    let mut endless = claim("1", &["1"]);
    let bad: serde_json::Map<_, _> = (0..60).map(|i| (format!("r{i}"), json!("x"))).collect();
    endless["spec"]["nominalResources"] = Value::Object(bad);
    let answer = bed.review(&request("CREATE", None, Some(&endless))).await;
    assert!(answer["status"]["message"].as_str().unwrap().ends_with("* and 40 more"));
    assert_eq!(answer["status"]["details"]["causes"].as_array().unwrap().len(), 20);
    bed.end().await;
}

#[tokio::test]
async fn an_invented_review_tells_nothing_of_clusters() {
    let bed = Bed::start();
    // Whoever guesses at amounts and names hears the same each time, as if nobody knew anything.
    for (cluster, gpus) in [("w1", "1"), ("w1", "1000000"), ("nowhere", "1"), ("nowhere", "1000000")] {
        let mut guess = claim("1000000", &[gpus]);
        guess["spec"]["clusterName"] = json!(cluster);
        guess["spec"]["resourceAssignments"][0]["resources"]["cpu"] = json!(gpus);
        let answer = bed.review(&request("CREATE", None, Some(&guess))).await;
        assert_eq!(answer["allowed"], true, "{cluster} {gpus}: {answer}");
        assert_eq!(answer["warnings"], Value::Null, "{cluster} {gpus}: {answer}");
    }
    bed.end().await;
}

#[tokio::test]
async fn a_second_claim_is_denied_and_the_first_is_not_named() {
    let bed = Bed::start();
    let in_force = ClaimOverview {
        cluster: ClusterName::new("w1").unwrap(),
        generation: 1,
        created: None,
        ready: ("True".to_owned(), String::new(), String::new()),
        notes: Vec::new(),
        nominal: std::collections::BTreeMap::default(),
        assignments: Vec::new(),
    };
    let mut overview = Overview::default();
    overview.claims.insert(ClaimName::new("of-people").unwrap(), Arc::new(in_force));
    bed.overview.send_replace(Arc::new(overview));
    let answer = bed.review(&request("CREATE", None, Some(&claim("10", &["7"])))).await;
    assert_eq!(answer["status"]["code"], 403, "{answer}");
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.contains("`w1` is already claimed by another claim"), "{message}");
    assert!(!answer.to_string().contains("of-people"), "{answer}");
    bed.end().await;
}

/// In MiB, at most since the process began.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

#[tokio::test]
async fn a_flood_of_values_costs_no_memory() {
    let bed = Bed::start();
    let before = most_memory();
    let mut flood = request("CREATE", None, None).to_string();
    flood.truncate(flood.len() - 2);
    for [begin, value, end] in [["[0", ",0", "]"], ["{\"a\":0", ",\"a\":{}", "}"], ["[[]", ",[]", "]"]] {
        let values = (MAX_BODY - flood.len() - 32) / value.len();
        let body = format!("{flood},\"status\":{begin}{}{end}}}}}", value.repeat(values));
        let answers = (0..4).map(|_| bed.post(body.clone()));
        for (status, text) in futures::future::join_all(answers).await {
            let known = [StatusCode::BAD_REQUEST, StatusCode::SERVICE_UNAVAILABLE];
            assert!(known.contains(&status), "{status} {text}");
        }
    }
    let more = most_memory().saturating_sub(before);
    assert!(more < 400, "12 reviews of 3 MiB took {more} MiB");
    let create = request("CREATE", None, Some(&claim("9", &["5"])));
    assert_eq!(bed.review(&create).await["allowed"], true, "and others are heard again");
    bed.end().await;
}

#[tokio::test]
async fn the_largest_claim_there_can_be_is_judged() {
    let bed = Bed::start();
    let mut large = claim("1000", &vec!["1"; 128]);
    for (index, assignment) in
        large["spec"]["resourceAssignments"].as_array_mut().unwrap().iter_mut().enumerate()
    {
        assignment["clusterQueueName"] = json!(format!("{index:0>253}"));
        let amounts = (0..16).map(|resource| (format!("example.com/{resource:0>63}"), json!("1")));
        assignment["resources"] = Value::Object(amounts.collect());
    }
    let fields = |count: usize| {
        let keys = (0..count).map(|key| (format!("f:{key:0>60}"), json!({})));
        Value::Object(keys.collect())
    };
    let managers = (0..5).map(|manager| json!({"manager": format!("m{manager}"), "operation": "Apply",
        "apiVersion": "galaxy.kubestellar.io/v1alpha1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields(2300)}}));
    large["metadata"]["managedFields"] = managers.collect();
    let answer = bed.review(&request("UPDATE", Some(&large), Some(&large))).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    bed.end().await;
}

#[tokio::test]
async fn idle_connections_leave_room_for_the_api_server() {
    let bed = Bed::start();
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(tokio::net::TcpStream::connect(bed.address).await.unwrap());
    }
    // The first of them hold the address's places until the handshake that never comes is given up; all others were
    // closed at once, and cost fedqd nothing.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut open = 0;
    for stream in &idle {
        let mut byte = [0];
        let read = stream.try_read(&mut byte);
        open += usize::from(read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock));
    }
    assert!(open <= 16, "{open} connections of one address are open");
    drop(idle);
    let create = request("CREATE", None, Some(&claim("9", &["5"])));
    let heard = async {
        loop {
            let request = Request::post(format!("https://{}{REVIEW_PATH}", bed.address))
                .body(Full::new(create.to_string().into()))
                .unwrap();
            if bed.client.request(request).await.is_ok_and(|answer| answer.status() == StatusCode::OK) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(10), heard).await.unwrap();
    bed.end().await;
}

#[tokio::test]
async fn fedqd_deletions_and_other_kinds_are_never_held_up() {
    let bed = Bed::start();
    let above = claim("1", &["5"]);
    let mut by_daemon = request("CREATE", None, Some(&above));
    by_daemon["request"]["userInfo"]["username"] = json!(DAEMON);
    by_daemon["request"]["options"]["fieldManager"] = json!(CAPACITY_MANAGER);
    assert_eq!(bed.review(&by_daemon).await["allowed"], true);
    // Its name alone is not enough, since it edits for people as well.
    by_daemon["request"]["options"]["fieldManager"] = json!("fedq-edit");
    assert_eq!(bed.review(&by_daemon).await["allowed"], false);
    // Nor is the manager's name, which anyone may write under.
    let mut by_person = request("CREATE", None, Some(&above));
    by_person["request"]["options"]["fieldManager"] = json!(CAPACITY_MANAGER);
    assert_eq!(bed.review(&by_person).await["allowed"], false);

    assert_eq!(bed.review(&request("DELETE", Some(&above), None)).await["allowed"], true);
    let mut status = request("UPDATE", Some(&claim("9", &["5"])), Some(&above));
    status["request"]["subResource"] = json!("status");
    assert_eq!(bed.review(&status).await["allowed"], true);
    let mut other = request("CREATE", None, Some(&json!({ "metadata": {} })));
    other["request"]["kind"]["kind"] = json!("ConfigMap");
    assert_eq!(bed.review(&other).await["allowed"], true);
    bed.end().await;
}

#[tokio::test]
async fn what_cannot_be_read_before_can_be_repaired() {
    let bed = Bed::start();
    let mut broken = claim("1", &[]);
    broken["spec"]["nominalResources"] = json!("much");
    let answer = bed.review(&request("UPDATE", Some(&broken), Some(&claim("1", &["5"])))).await;
    assert_eq!(answer["allowed"], true);
    let answer = bed.review(&request("CREATE", None, Some(&broken))).await;
    assert_eq!(answer["warnings"][0], "fedq cannot read this claim: check the installed CRD");
    bed.end().await;
}

#[tokio::test]
async fn nonsense_is_a_bad_request_and_a_flood_is_refused() {
    let bed = Bed::start();
    for body in ["", "{", "[]", "null", "{}", r#"{"apiVersion":"v1","kind":"Pod"}"#] {
        let (status, text) = bed.post(body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {text}");
    }
    let no_request = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview" });
    let (status, text) = bed.post(no_request.to_string()).await;
    assert_eq!((status, text), (StatusCode::BAD_REQUEST, json!("an AdmissionReview without a request")));
    let deep = "[".repeat(1 << 20);
    assert_eq!(bed.post(deep).await.0, StatusCode::BAD_REQUEST);
    let (status, _) = bed.post(vec![b' '; MAX_BODY + 1]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    bed.end().await;
}

#[tokio::test]
async fn a_renewed_certificate_serves_without_a_restart() {
    let mut bed = Bed::start();
    let create = request("CREATE", None, Some(&claim("9", &["5"])));
    assert_eq!(bed.review(&create).await["allowed"], true);
    let other = own_certificate();
    bed.tls.reload_from_config(other.server_config().unwrap());
    let stranger = Request::get(format!("https://{}/", bed.address)).body(Full::default()).unwrap();
    assert!(bed.client.request(stranger).await.is_err(), "the old authority is not that of the new one");
    bed.client = client_of(&other);
    assert_eq!(bed.review(&create).await["allowed"], true);
    bed.end().await;
}
