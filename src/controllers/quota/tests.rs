//! Rounds of the controller on tables that a test fills, without a server that answers.

use axum::Router;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::{
    domain::{claim::AssignmentText, cluster::Connection, quota::Mode},
    k8s::{
        events::event_channel,
        testing::Server,
        worker::{CLUSTER_METRICS, Joined, Worker},
    },
};

mod afresh;

struct Bed {
    controller: QuotaController,
    joined: JoinedClusters,
    capacity: CapacityView,
    _folder: tempfile::TempDir,
    _server: Server,
}

fn name(name: &str) -> ClusterName {
    ClusterName::new(name).expect("a name")
}

impl Bed {
    async fn new() -> Self {
        let server = Server::start(Router::new());
        let folder = tempfile::TempDir::new().expect("a folder");
        let store = Store::open(&folder.path().join("fedq.db")).await.expect("opens");
        let hub = Hub::new(server.client(), "hub-uid".to_owned(), "fedq-system".to_owned());
        let settings = Settings {
            aliases: Aliases::default(),
            count_foreign: true,
            lost_timeout: Duration::from_mins(15),
            writer: WriterConfig { merge_window: Duration::ZERO, deadline: Duration::from_secs(1) },
            drift_reverts_per_minute: 1,
            removal_window: Duration::from_mins(10),
            copy_admission_checks: Vec::new(),
        };
        let outputs = Outputs {
            events: event_channel().0,
            overview: watch::Sender::default(),
            claimed: watch::Sender::default(),
        };
        let clock = Clock::test(Timestamp::UNIX_EPOCH);
        let controller = QuotaController::new(
            (hub, "hub".to_owned()),
            (store, clock, Metrics::new()),
            settings,
            outputs,
            Arc::new(Notify::new()),
        );
        Self {
            controller: controller.await.expect("an empty store"),
            joined: JoinedClusters::new(),
            capacity: CapacityView::new(),
            _folder: folder,
            _server: server,
        }
    }

    fn worker(&self, cluster: &str) -> Worker {
        let client = self.controller.hub.client.clone();
        Worker::new(name(cluster), client, format!("{cluster}-uid"), CancellationToken::new())
    }

    fn join(&mut self, cluster: &str) {
        let joined = Joined::new(Connection::Unreached, CLUSTER_METRICS);
        self.joined.insert(name(cluster), Arc::new(joined));
    }

    fn put_queue(&self, version: u64, quota: &Value) {
        let queue = queue("team-a", version, quota, &json!({}));
        self.controller.hub.queues.absorb(serde_json::from_value(queue).expect("a ClusterQueue"));
    }

    /// A claim of one cluster that gives the queue something.
    fn claim(&self, cluster: &str) {
        let claim = json!({
            "apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterResourceClaim",
            "metadata": {"name": format!("{cluster}-resource-claim"), "resourceVersion": "5", "generation": 1},
            "spec": {"clusterName": cluster, "resourceAssignments": [
                {"clusterQueueName": "team-a", "flavor": "spot", "resources": {"cpu": "1"}},
            ]},
        });
        self.controller.hub.claims.absorb(serde_json::from_value(claim).expect("a claim"));
    }

    /// Reads and plans; which queues cannot be read, and each cluster's mode.
    fn plan(&mut self) -> (Vec<QueueName>, BTreeMap<ClusterName, Mode>) {
        let (joined, capacity) = (self.joined.clone(), self.capacity.clone());
        let mut round = self.controller.gather((&joined, &capacity, &Arc::default()), Instant::now());
        self.controller.plan(&mut round);
        let modes = self.controller.told.clusters.iter().map(|(name, told)| (name.clone(), told.mode));
        (round.unreadable.keys().cloned().collect(), modes.collect())
    }
}

fn queue(name: &str, version: u64, quota: &Value, annotations: &Value) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
        "metadata": {"name": name, "uid": name, "resourceVersion": version.to_string(), "annotations": annotations},
        "spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "spot", "resources": [{"name": "cpu", "nominalQuota": quota}]},
        ]}]},
    })
}

#[tokio::test]
async fn a_queue_that_cannot_be_read_any_more_is_planned_with_as_it_last_was() {
    let mut bed = Bed::new().await;
    bed.join("east");
    bed.claim("east");
    bed.put_queue(3, &json!("4"));
    assert_eq!(bed.plan().0, []);
    let team = QueueName::new("team-a").expect("a name");
    let known = bed.controller.told.queues[&team].clone();

    bed.put_queue(4, &json!("nonsense"));
    let (unreadable, modes) = bed.plan();
    assert_eq!(unreadable, std::slice::from_ref(&team));
    assert_eq!(bed.controller.told.queues[&team], known);
    assert_eq!(modes[&name("east")], Mode::Unreached, "nothing waits for it");

    bed.put_queue(5, &json!("6"));
    assert_eq!(bed.plan().0, []);
    assert_ne!(bed.controller.told.queues[&team], known);
}

#[tokio::test]
async fn what_changes_after_the_plan_is_not_set_back_to_what_it_saw() {
    let mut bed = Bed::new().await;
    bed.join("east");
    bed.claim("east");
    bed.put_queue(3, &json!("4"));
    let (joined, capacity) = (bed.joined.clone(), bed.capacity.clone());
    let mut round = bed.controller.gather((&joined, &capacity, &Arc::default()), Instant::now());
    bed.controller.plan(&mut round);
    bed.put_queue(4, &json!("9"));
    let changes = bed.controller.hub_changes(&mut round);
    let [Change { action: Action::Merge(patch), .. }] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!(patch["metadata"]["resourceVersion"], "3", "the server refuses it, and all is planned anew");
}

#[tokio::test]
async fn stored_terms_may_lag_only_until_the_cluster_has_answered() {
    let mut bed = Bed::new().await;
    for cluster in ["east", "idle"] {
        bed.join(cluster);
        let joined = bed.joined.get_mut(&name(cluster)).expect("joined");
        Arc::make_mut(joined).connection = Connection::Connecting;
    }
    bed.claim("east");
    let (joined, capacity) = (bed.joined.clone(), bed.capacity.clone());
    let round = bed.controller.gather((&joined, &capacity, &Arc::default()), Instant::now());
    let lags = |name: &ClusterName, joined: &Joined| bed.controller.terms_may_lag(name, joined, &round);
    let mut east = Joined::clone(&joined[&name("east")]);
    assert!(lags(&name("east"), &east), "killed before anything of it was stored");
    assert!(!lags(&name("idle"), &joined[&name("idle")]), "it cannot have had a share");
    east.connection = Connection::Stale { since: Timestamp::UNIX_EPOCH, reason: String::new() };
    assert!(!lags(&name("east"), &east), "it may be away for long");
}

#[test]
fn a_connected_cluster_is_waited_for_until_all_of_it_is_read_or_a_while_has_passed() {
    let soon = |connection: &Connection, synced, seconds| {
        tell::answers_soon(connection, synced, Duration::from_secs(seconds))
    };
    assert!(soon(&Connection::Ready, false, 0), "nothing is read");
    assert!(soon(&Connection::Ready, true, 1), "its nodes may be still on their way");
    assert!(!soon(&Connection::Ready, true, 61), "something of it may never be readable");
    assert!(soon(&Connection::Connecting, false, 61));
    assert!(!soon(&Connection::Unreached, false, 1));
}

#[tokio::test]
async fn terms_are_unknown_only_after_the_store_was_lost() {
    let mut bed = Bed::new().await;
    bed.join("east");
    bed.join("idle");
    bed.claim("east");
    let (joined, capacity) = (bed.joined.clone(), bed.capacity.clone());
    let round = bed.controller.gather((&joined, &capacity, &Arc::default()), Instant::now());
    let known = Some(BTreeMap::new());
    assert_eq!(bed.controller.last_terms(&name("east"), &round), None, "the store was empty");
    assert_eq!(bed.controller.last_terms(&name("idle"), &round), known, "it cannot have had a share");
    bed.controller.store_was_empty = false;
    assert_eq!(bed.controller.last_terms(&name("east"), &round), known, "one that has just joined");
    bed.controller.store_was_empty = true;
    let cell = Cell {
        queue: QueueName::new("team-a").expect("a name"),
        flavor: crate::domain::ids::FlavorName::new("spot").expect("a name"),
        resource: crate::domain::ids::ResourceName::new("cpu").expect("a name"),
    };
    let terms = BTreeMap::from([(cell, Amount::new(7))]);
    bed.controller.terms.insert(name("east"), terms.clone());
    assert_eq!(bed.controller.last_terms(&name("east"), &round), Some(terms));
}

#[tokio::test]
async fn a_queue_is_handed_over_only_where_a_claim_names_it() {
    let bed = Bed::new().await;
    let worker = bed.worker("east");
    let adopt = json!({"fedq.dev/adopt": "true"});
    for queue_name in ["claimed", "elsewhere"] {
        let object = queue(queue_name, 3, &json!("4"), &adopt);
        worker.queues.absorb(serde_json::from_value(object).expect("a ClusterQueue"));
    }
    let claimed = BTreeSet::from(["claimed"]);
    let seen = gather::seen(Some(&worker));
    let queues = gather::worker_queues(&worker, &seen, "hub", (&claimed, None)).expect("readable");
    let ours: BTreeMap<&str, bool> = queues.iter().map(|queue| (queue.name.as_str(), queue.ours)).collect();
    assert_eq!(ours, BTreeMap::from([("claimed", true), ("elsewhere", false)]));
}

#[test]
fn a_claim_of_the_store_is_read_as_it_was_in_force() {
    let row = ClaimRow {
        name: ClaimName::new("east-resource-claim").expect("a name"),
        generation: 1,
        who: "ann".to_owned(),
        spec: json!({"clusterName": "east", "resourceAssignments": [
            {"clusterQueueName": "team-a", "flavor": "spot", "resources": {"cpu": "1"}},
        ]}),
        at: Timestamp::UNIX_EPOCH,
    };
    let expected = ClaimText {
        name: "east-resource-claim".to_owned(),
        cluster: "east".to_owned(),
        assignments: vec![AssignmentText {
            queue: "team-a".to_owned(),
            flavor: "spot".to_owned(),
            resources: BTreeMap::from([("cpu".to_owned(), "1".to_owned())]),
        }],
        ..ClaimText::default()
    };
    let expected = claim::validate(&expected, &Aliases::default()).ok();
    assert_eq!(claim_of_row(&row, &Aliases::default()), expected);
    assert_eq!(claim_of_row(&ClaimRow { spec: json!({"clusterName": 7}), ..row }, &Aliases::default()), None);
}
