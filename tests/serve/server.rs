//! A served API with two clusters, one claim and one queue.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, Response},
};
use fedq_api::{
    Authenticator, Callers, Diagnose, Parts, State, TokenFile, UnprovenNames, UploadBounds, router,
};
use fedq_base::clock::Clock;
use fedq_domain::{
    check::{Finding, Outcome},
    cluster::{Connection, QuarantineReason},
    overview::{
        AssignmentOverview, CellOverview, ClaimOverview, ClusterOverview, FlavorOverview, NodeCounts,
        Overview, QueueOverview, TermOverview,
    },
    placement::view::PlacementView,
    resources::{Aliases, Resources},
    task::{
        limits::{Bounds, Limits},
        render::Tenant,
        tenant::{PodRules, Rule, Tenants},
        view::{TaskViews, VolumeViews},
    },
};
use fedq_k8s::{kubeconfig::Rules, session::Sessions, worker::JoinedClusters};
use fedq_store::{Live, Store};
use fedq_values::{
    ids::{ClaimName, ClusterName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tower::ServiceExt;

use super::{
    document::{self, Asked},
    fake_hub::FakeHub,
};

pub const ANN: &str = "ann-0123456789abcdef";
pub const VIEWER: &str = "viewer-0123456789abcdef";
pub const STRANGER: &str = "stranger-0123456789abcdef";
pub const BOB: &str = "bob-0123456789abcdef";
/// May do with everybody's tasks what others may with their own.
pub const ROOT: &str = "root-0123456789abcdef";
/// Of no tenant.
pub const GUEST: &str = "guest-0123456789abcdef";

pub struct Served {
    pub hub: FakeHub,
    pub router: Router,
    pub overview: watch::Sender<Arc<Overview>>,
    pub store: Store,
    pub task_views: watch::Sender<Arc<TaskViews>>,
    pub volume_views: watch::Sender<Arc<VolumeViews>>,
    pub placements: watch::Sender<Arc<PlacementView>>,
    pub task_signal: Arc<Notify>,
    pub joined: watch::Sender<Arc<JoinedClusters>>,
    _folder: tempfile::TempDir,
}

struct Doctor;

impl Diagnose for Doctor {
    fn diagnose<'a>(&'a self, cluster: Option<&'a ClusterName>) -> BoxFuture<'a, Vec<Finding>> {
        Box::pin(async move {
            let failed = cluster.is_some_and(|name| name.as_str() == "west");
            let outcome = if failed { Outcome::Failed } else { Outcome::Ok };
            let next = failed.then(|| "plug it in".to_owned());
            vec![Finding { name: "reachable".to_owned(), outcome, message: "looked".to_owned(), next }]
        })
    }
}

pub async fn served() -> Served {
    served_as(|_| ()).await
}

pub fn tokens() -> Authenticator {
    let lines = format!(
        "{ANN},ann\n{VIEWER},viewer\n{STRANGER},stranger\n{ROOT},root\n{GUEST},guest\n\
         {BOB},bob@example.com,,research\n"
    );
    Authenticator::token_file(TokenFile::parse(&lines).unwrap())
}

pub async fn served_with(authenticator: Authenticator) -> Served {
    served_as(|parts| parts.authenticator = authenticator).await
}

/// With something in it changed.
pub async fn served_as(change: impl FnOnce(&mut Parts)) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("fedq.db")).await.unwrap();
    let hub = FakeHub::default();
    fill(&hub);
    let overview = overview();
    let joined = overview.clusters.keys().map(|name| (name.clone(), Arc::default())).collect();
    let joined: watch::Sender<Arc<JoinedClusters>> = watch::Sender::new(Arc::new(joined));
    let (sender, receiver) = watch::channel(Arc::new(overview));
    let task_views = watch::Sender::new(Arc::default());
    let volume_views = watch::Sender::new(Arc::default());
    let placements = watch::Sender::new(Arc::default());
    let task_signal = Arc::<Notify>::default();
    let mut parts = Parts {
        overview: receiver,
        store: store.clone(),
        hub: Sessions::new(Arc::new(hub.clone()), "fedq-system"),
        authenticator: tokens(),
        aliases: Aliases::default(),
        kubeconfig_rules: Rules::default(),
        diagnose: Arc::new(Doctor),
        joined: joined.subscribe(),
        forwarded: fedq_k8s::proxy::everywhere(),
        task_views: task_views.subscribe(),
        volume_views: volume_views.subscribe(),
        placements: placements.subscribe(),
        task_signal: Arc::clone(&task_signal),
        tenants: tenants(),
        kept_logs: None,
        unwrap_jobs: true,
        max_live: Live { tasks: 50, bytes: 16 << 20 },
        uploads: UploadBounds { one_task: 1 << 20, one_person: 3 << 20 },
        unproven_names: UnprovenNames::Refused,
        callers: Callers::default(),
        clock: Clock::test(Timestamp::from_second(1_700_000_000).unwrap()),
        page: true,
    };
    change(&mut parts);
    let router = router(State::new(parts));
    Served {
        hub,
        router,
        overview: sender,
        store,
        task_views,
        volume_views,
        placements,
        task_signal,
        joined,
        _folder: folder,
    }
}

fn tenants() -> Tenants {
    let rule = |users: &[&str], groups: &[&str], namespace: &str, queue: Option<&str>| Rule {
        users: users.iter().map(|&name| name.to_owned()).collect(),
        groups: groups.iter().map(|&name| name.to_owned()).collect(),
        tenant: Tenant { namespace: namespace.to_owned(), service_account: None },
        queue: queue.map(str::to_owned),
        pods: PodRules::default(),
        limits: Limits::default(),
    };
    let bounds = |gpus| Bounds { gpus: Some(Amount::new(gpus)), cpu: None };
    let limits = Limits {
        all: bounds(64),
        per_user: bounds(16),
        max_duration: Some(Duration::from_hours(8)),
        default_duration: None,
    };
    Tenants(vec![
        Rule { limits, ..rule(&[], &["research"], "research", None) },
        rule(&["ann", "viewer", "stranger", "root"], &[], "default", Some("main")),
    ])
}

fn fill(hub: &FakeHub) {
    let mut world = hub.world();
    world.viewers.insert("viewer".to_owned());
    world.strangers.insert("stranger".to_owned());
    world.admins.insert("root".to_owned());
    world.put(
        "/apis/galaxy.kubestellar.io/v1alpha1/clusterresourceclaims/east-resource-claim",
        json!({
            "apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterResourceClaim",
            "metadata": {"name": "east-resource-claim", "generation": 1, "managedFields": [{
                "manager": "fedq-capacity", "operation": "Apply", "apiVersion": "galaxy.kubestellar.io/v1alpha1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:nominalResources": {"f:cpu": {}, "f:gpu": {}}}},
            }]},
            "spec": spec("5"),
        }),
    );
    world.put(
        "/api/v1/namespaces/fedq-system",
        json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fedq-system"},
        }),
    );
    world.put(
        "/api/v1/namespaces/fedq-system/secrets/by-hand",
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "by-hand", "labels": {"fedq.dev/cluster": "west"}},
            "data": {"kubeconfig": "c2VjcmV0LWluc2lkZQ=="},
        }),
    );
    world.put(
        "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/team-a",
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
            "metadata": {"name": "team-a", "annotations": {
                "fedq.dev/cells": "{\"on-demand/nvidia.com/gpu\":{\"base\":\"3\"}}",
            }},
            "spec": {},
        }),
    );
}

pub fn spec(gpu: &str) -> Value {
    json!({
        "clusterName": "east",
        "nominalResources": {"cpu": "1000", "gpu": "10"},
        "resourceAssignments": [
            {"clusterQueueName": "team-a", "flavor": "on-demand", "resources": {"cpu": "500", "gpu": gpu}},
        ],
    })
}

fn resources(amounts: &[(&str, &str)]) -> Resources {
    let amount = |(name, text): &(&str, &str)| {
        let name = ResourceName::new(name).unwrap();
        let amount = Amount::exact(text, &name).unwrap();
        (name, amount)
    };
    amounts.iter().map(amount).collect()
}

fn cluster(connection: Connection) -> ClusterOverview {
    let flavor = FlavorOverview {
        capacity: resources(&[("cpu", "1000"), ("nvidia.com/gpu", "10")]),
        coming: resources(&[]),
        assigned: resources(&[("cpu", "500"), ("nvidia.com/gpu", "5")]),
        unassigned: resources(&[("cpu", "500"), ("nvidia.com/gpu", "5")]),
    };
    ClusterOverview {
        connection,
        cordoned: false,
        source: "kubeconfig",
        joined: None,
        server: Some("https://api.example.com".to_owned()),
        kubernetes_version: Some("v1.36.3".to_owned()),
        kueue_version: None,
        credential_expires: None,
        last_seen: fedq_domain::cluster::LastSeen::default(),
        nodes: NodeCounts { total: 12, usable: 10 },
        capacity: resources(&[("cpu", "1000"), ("nvidia.com/gpu", "10")]),
        coming: Resources::new(),
        foreign: Resources::new(),
        flavors: BTreeMap::from([(FlavorName::new("on-demand").unwrap(), flavor)]),
        claim: None,
    }
}

pub fn overview() -> Overview {
    let names = |name: &str| ClusterName::new(name).unwrap();
    let (east, flavor) = (names("east"), FlavorName::new("on-demand").unwrap());
    let (queue, gpu) = (QueueName::new("team-a").unwrap(), ResourceName::new("nvidia.com/gpu").unwrap());
    let claim = ClaimName::new("east-resource-claim").unwrap();
    let lost = Connection::Quarantined {
        since: Timestamp::from_second(1_699_999_000).unwrap(),
        reason: QuarantineReason::IdentityChanged { expected: "uid-1".to_owned(), found: "uid-2".to_owned() },
    };
    let assignment = AssignmentOverview {
        queue: queue.clone(),
        flavor: flavor.clone(),
        requested: resources(&[("cpu", "500"), ("nvidia.com/gpu", "5")]),
        effective: resources(&[("cpu", "500"), ("nvidia.com/gpu", "4")]),
        reason: "Draining".to_owned(),
        reasons: [(ResourceName::new("cpu").unwrap(), "Assigned")].into(),
        message: "1 gpu waits for workloads to end".to_owned(),
    };
    let term = TermOverview {
        requested: Amount::new(5),
        effective: Amount::new(5),
        worker_nominal: Some(Amount::new(4)),
        reserved: Amount::new(2),
        term: Amount::new(4),
        reason: "Draining".to_owned(),
    };
    let cell = CellOverview {
        nominal: Amount::new(6),
        base: Amount::new(3),
        target: Amount::new(7),
        terms: BTreeMap::from([(east.clone(), term)]),
    };
    Overview {
        revision: 1,
        clusters: BTreeMap::from([
            (
                east.clone(),
                Arc::new(ClusterOverview { claim: Some(claim.clone()), ..cluster(Connection::Ready) }),
            ),
            (names("west"), Arc::new(cluster(lost))),
        ]),
        claims: BTreeMap::from([(
            claim,
            Arc::new(ClaimOverview {
                cluster: east,
                generation: 1,
                created: Some(Timestamp::from_second(1_600_000_000).unwrap()),
                notes: vec![(
                    "QueueProblems".to_owned(),
                    "NotWritten".to_owned(),
                    "`team-a` on `east`: its namespace is taken".to_owned(),
                )],
                ready: ("False".to_owned(), "Draining".to_owned(), "1 gpu waits".to_owned()),
                nominal: BTreeMap::from([
                    (ResourceName::new("cpu").unwrap(), (Amount::new(1_000_000), false)),
                    (gpu.clone(), (Amount::new(10), true)),
                ]),
                assignments: vec![assignment],
            }),
        )]),
        queues: BTreeMap::from([(
            queue,
            Arc::new(QueueOverview {
                cohort: Some("research".to_owned()),
                quota_cohort: None,
                untouched: None,
                conflicts: BTreeMap::new(),
                problems: vec![(names("east"), "NotWritten", "its namespace is taken".to_owned())],
                cells: BTreeMap::from([((flavor, gpu), cell)]),
            }),
        )]),
        ..Overview::default()
    }
}

impl Served {
    /// What is asked and answered must be in the document.
    pub async fn send(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let path = parts.uri.path_and_query().unwrap().to_string();
        let asked =
            Asked { method: parts.method.clone(), path, headers: parts.headers.clone(), body: body.to_vec() };
        let request = Request::from_parts(parts, Body::from(body));
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let check = |differences: Vec<String>| assert!(differences.is_empty(), "{}", differences.join("\n"));
        if document::is_answered_by_lines(&parts.headers) {
            check(document::differences(&asked, parts.status, &parts.headers, b""));
            let mut lines = document::Lines::of(&asked, &parts.headers);
            let body = body.map_frame(move |frame| {
                check(lines.differences(frame.data_ref().map_or(&[], |data| data)));
                frame
            });
            return Response::from_parts(parts, Body::new(body));
        }
        let body = body.collect().await.unwrap().to_bytes();
        check(document::differences(&asked, parts.status, &parts.headers, &body));
        Response::from_parts(parts, Body::from(body))
    }

    /// `method path`, as `token`.
    pub async fn call(&self, token: &str, line: &str, body: Value) -> (u16, Value) {
        self.call_with(token, line, body, None).await
    }

    pub async fn call_with(
        &self,
        token: &str,
        line: &str,
        body: Value,
        version: Option<&str>,
    ) -> (u16, Value) {
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"))
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json");
        if let Some(version) = version {
            request = request.header("if-match", version);
        }
        let response = self.send(request.body(Body::from(body.to_string())).unwrap()).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }
}
