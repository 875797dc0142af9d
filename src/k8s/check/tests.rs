use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use serde_json::json;

use super::*;
use crate::testing::Server;
use fedq_domain::cluster::CREDENTIAL_REFUSED;

fn names(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|name| (*name).to_owned()).collect()
}

fn outcomes(findings: &[Finding]) -> Vec<(&str, Outcome)> {
    findings.iter().map(|finding| (finding.name.as_str(), finding.outcome)).collect()
}

/// A cluster that serves `groups`, whose RBAC denies `denied` and whose Kueue serves `version`.
fn cluster(groups: &[&str], denied: &'static str, version: &'static str) -> Router {
    let groups: Vec<Value> = groups.iter().map(|name| json!({"name": name})).collect();
    let asked = Arc::new(Mutex::new(0));
    let review = async move |State(asked): State<Arc<Mutex<u32>>>, Json(mut review): Json<Value>| {
        *asked.lock().expect("a lock") += 1;
        let resource = &review["spec"]["resourceAttributes"]["resource"];
        review["status"] = json!({"allowed": resource != denied});
        (StatusCode::CREATED, Json(review))
    };
    Router::new()
        .route("/api/v1/namespaces/kube-system", get(async || Json(json!({"metadata": {"uid": "u"}}))))
        .route(
            "/version",
            get(async || {
                let info = json!({
                    "major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "",
                    "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
                });
                ([("date", "Sat, 21 Nov 2026 12:00:00 GMT")], Json(info))
            }),
        )
        .route("/apis", get(async move || Json(json!({"groups": groups}))))
        .route("/apis/kueue.x-k8s.io", get(async move || Json(json!({"versions": [{"version": version}]}))))
        .route("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", post(review))
        .with_state(asked)
}

fn subject<'a>(client: &'a ClusterClient, role: Role<'a>, now: &str) -> Subject<'a> {
    Subject {
        client,
        role,
        namespace: "fedq-system",
        now: now.parse().expect("a time"),
        deadline: Duration::from_secs(5),
    }
}

#[tokio::test]
async fn a_good_worker_has_nothing_to_complain_about() {
    let server = Server::start(cluster(&["jobset.x-k8s.io", "ray.io"], "", "v1beta2"));
    let hub = Server::start(cluster(&["jobset.x-k8s.io"], "", "v1beta2"));
    let (client, hub) = (server.client(), hub.client());
    let role = Role::Worker { hub: &hub, without_nodes: BTreeSet::new() };
    let findings = look(&subject(&client, role, "2026-11-21T12:00:03Z")).await;
    let expected = ["reachable", "credential", "clock", "rights", "kueue", "kinds", "appwrappers", "flavors"];
    assert_eq!(outcomes(&findings), expected.map(|name| (name, Outcome::Ok)), "{findings:?}");
}

#[tokio::test]
async fn each_thing_that_is_wrong_is_named_with_what_to_do() {
    let server = Server::start(cluster(&[], "nodes", "v1beta1"));
    let hub = Server::start(cluster(&["jobset.x-k8s.io"], "", "v1beta2"));
    let (client, hub) = (server.client(), hub.client());
    let spot = FlavorName::new("spot").expect("a name");
    let role = Role::Worker { hub: &hub, without_nodes: [spot].into() };
    let findings = look(&subject(&client, role, "2026-11-21T11:00:00Z")).await;
    let wrong: Vec<&Finding> = findings.iter().filter(|one| one.outcome != Outcome::Ok).collect();
    let messages: Vec<&str> = wrong.iter().map(|finding| finding.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "is 3600 s ahead of fedq's: credentials may be taken for expired or not yet good",
            "may not list nodes (its capacity), watch nodes (its capacity)",
            "serves v1beta1 only: too old",
            "does not serve jobset.x-k8s.io, which the hub does: where the hub's Kueue has it enabled, MultiKueue does not connect here",
            "no usable node matches spot",
        ]
    );
    assert!(wrong.iter().all(|finding| finding.next.is_some()), "{wrong:?}");
}

#[tokio::test]
async fn the_hub_is_asked_for_its_own_rights() {
    let server = Server::start(cluster(&[], "tokenreviews", "v1beta2"));
    let client = server.client();
    let findings = look(&subject(&client, Role::Hub, "2026-11-21T12:00:00Z")).await;
    let rights = findings.iter().find(|finding| finding.name == "rights").expect("a look at rights");
    assert_eq!(rights.message, "may not create tokenreviews (knowing callers)");
    assert_eq!(outcomes(&findings).len(), 5);
}

#[tokio::test]
async fn a_cluster_that_answers_nothing_is_not_asked_further() {
    let server = Server::start(Router::new());
    let client = server.client();
    let findings = look(&subject(&client, Role::Hub, "2026-11-21T12:00:00Z")).await;
    assert_eq!(outcomes(&findings), [("reachable", Outcome::Failed), ("credential", Outcome::Ok)]);
}

#[test]
fn a_clock_is_given_the_time_that_the_answer_took() {
    let seconds = SignedDuration::from_secs;
    let outcome = |ahead, waited| skew(seconds(ahead), seconds(waited)).outcome;
    assert_eq!(outcome(9, 0), Outcome::Ok);
    assert_eq!(outcome(-9, 0), Outcome::Ok);
    assert_eq!(outcome(14, 5), Outcome::Ok);
    assert_eq!(outcome(16, 5), Outcome::Warning);
    assert_eq!(outcome(-11, 5), Outcome::Warning);
    assert!(skew(seconds(-60), seconds(0)).message.starts_with("is 60 s behind"));
}

#[test]
fn kinds_that_only_the_worker_serves_do_no_harm() {
    assert_eq!(kinds(&names(&["apps"]), &names(&["ray.io"])).outcome, Outcome::Ok);
    assert_eq!(kinds(&names(&["ray.io"]), &names(&[])).outcome, Outcome::Warning);
    // Not Kueue's business.
    assert_eq!(kinds(&names(&["example.com"]), &names(&[])).outcome, Outcome::Ok);
}

#[test]
fn every_state_of_the_link_but_ready_says_what_to_do_or_that_all_is_well() {
    let name = ClusterName::new("worker-1").expect("a name");
    let since: Timestamp = "2026-11-21T12:00:00Z".parse().expect("a time");
    assert_eq!(link(&name, &Connection::Ready), None);
    let changed = QuarantineReason::IdentityChanged { expected: "a".to_owned(), found: "b".to_owned() };
    let states = [
        (Connection::Connecting, Outcome::Warning),
        (Connection::Stale { since, reason: "x".to_owned() }, Outcome::Failed),
        (Connection::Lost { since, reason: "x".to_owned() }, Outcome::Failed),
        (Connection::Quarantined { since, reason: changed }, Outcome::Failed),
        (Connection::Refused { reason: "exec plugins are not run".to_owned() }, Outcome::Failed),
        (Connection::Unreached, Outcome::Ok),
    ];
    for (state, outcome) in states {
        let finding = link(&name, &state).expect("a finding");
        assert_eq!(finding.outcome, outcome, "{finding:?}");
        assert_eq!(finding.next.is_none(), outcome == Outcome::Ok, "{finding:?}");
    }
    let refused = Connection::Stale { since, reason: format!("{CREDENTIAL_REFUSED}, and says so") };
    let next = link(&name, &refused).and_then(|finding| finding.next).expect("a next step");
    assert!(next.contains("credential"), "{next}");
}
