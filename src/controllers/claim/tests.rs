//! Rounds of the controller on tables that a test fills, without a server that answers.

use axum::Router;
use serde_json::json;

use super::*;
use crate::context::testing::{Ground, context};
use fedq_domain::{capacity::Capacity, cluster::Connection, resources::Resources};
use fedq_k8s::{
    events::event_channel,
    list_watch::{Link, Record, Sink, Table},
    worker::{CLUSTER_METRICS, Joined},
};
use fedq_values::{ids::ResourceName, quantity::Amount};

const CLUSTERS: [&str; 3] = ["east", "north", "west"];

struct Bed {
    controller: ClaimController,
    joined: watch::Sender<Arc<JoinedClusters>>,
    capacity: watch::Sender<Arc<CapacityView>>,
    version: u64,
    _overview: watch::Sender<Arc<Overview>>,
    _ground: Ground,
}

fn cluster(name: &str) -> ClusterName {
    ClusterName::new(name).expect("a name")
}

fn is_read<T: Record>(table: &Table<T>) {
    let mut sink = table.sink();
    sink.begin();
    sink.end();
    sink.at(1);
    sink.link(Link::Synced);
}

impl Bed {
    async fn new() -> Self {
        let (context, ground) = context(Router::new()).await;
        is_read(&context.hub.claims);
        is_read(&context.hub.secrets);
        is_read(&context.hub.cluster_metrics);
        let (joined, capacity) = (watch::Sender::default(), watch::Sender::default());
        let overview = watch::Sender::new(Arc::new(Overview { revision: 1, ..Overview::default() }));
        let inputs = Inputs {
            joined: joined.subscribe(),
            capacity: capacity.subscribe(),
            overview: overview.subscribe(),
        };
        let settings = Settings { aliases: Aliases::default() };
        let (events, sender) = event_channel();
        let controller = ClaimController::new(context, settings, inputs, events, sender);
        Self { controller, joined, capacity, version: 10, _overview: overview, _ground: ground }
    }

    fn join(&self, name: &str) {
        let joined = Arc::new(Joined::new(Connection::Unreached, CLUSTER_METRICS));
        self.joined.send_modify(|all| _ = Arc::make_mut(all).insert(cluster(name), joined));
    }

    fn count(&self, name: &str, cpu: i64) {
        let cpu = (ResourceName::new("cpu").expect("a name"), Amount::new(cpu * 1000));
        let capacity = Capacity { total: Resources::from([cpu]), ..Capacity::default() };
        let known = ClusterCapacity::alone(capacity);
        self.capacity.send_modify(|all| _ = Arc::make_mut(all).insert(cluster(name), Arc::new(known)));
    }

    /// The claim as the hub has it now, its one key owned by `manager`.
    fn claim(&mut self, name: &str, cpu: i64, manager: &str) {
        self.version += 1;
        let claim = json!({
            "apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterResourceClaim",
            "metadata": {
                "name": format!("{name}-resource-claim"), "uid": format!("{name}-uid"), "generation": 1,
                "resourceVersion": self.version.to_string(),
                "managedFields": [{
                    "manager": manager, "operation": "Apply", "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": {"f:clusterName": {}, "f:nominalResources": {"f:cpu": {}}}},
                }],
            },
            "spec": {"clusterName": name, "nominalResources": {"cpu": cpu.to_string()}},
        });
        self.controller.context.hub.claims.absorb(serde_json::from_value(claim).expect("a claim"));
    }

    /// A round; the claims that are to be written.
    async fn round(&mut self) -> Vec<String> {
        self.controller.look().await.expect("a store");
        self.controller.writer.wanted().iter().map(|target| target.name.clone()).collect()
    }
}

#[tokio::test]
async fn a_claim_is_decided_on_again_when_it_or_its_clusters_capacity_changes() {
    let mut bed = Bed::new().await;
    for name in CLUSTERS {
        bed.join(name);
        bed.count(name, 4);
        bed.claim(name, 4, "fedq-capacity");
    }
    assert_eq!(bed.round().await, [""; 0]);
    assert_eq!(bed.controller.at_rest.len(), 3);
    bed.count("east", 5);
    assert_eq!(bed.round().await, ["east-resource-claim"]);
    assert_eq!(bed.controller.at_rest.len(), 2);
    assert_eq!(bed.round().await, ["east-resource-claim"], "until it is written");
    bed.claim("east", 5, "fedq-capacity");
    assert_eq!(bed.round().await, [""; 0]);
    // Somebody sets it back under fedq's name; a person's own number is theirs.
    bed.claim("west", 3, "fedq-capacity");
    assert_eq!(bed.round().await, ["west-resource-claim"]);
    bed.claim("west", 3, "kubectl-edit");
    assert_eq!(bed.round().await, [""; 0]);
}

#[tokio::test]
async fn rounds_that_look_at_what_changed_want_what_one_wants_that_looks_at_everything() {
    for seed in 0..30 {
        let (mut bed, mut draw) = (Bed::new().await, fastrand::Rng::with_seed(seed));
        for step in 0..60 {
            let (name, cpu) = (CLUSTERS[draw.usize(..3)], draw.i64(1..4));
            match draw.u8(..7) {
                0 => bed.join(name),
                1 | 2 => bed.count(name, cpu),
                3 => bed.capacity.send_modify(|all| _ = Arc::make_mut(all).remove(&cluster(name))),
                4 => bed.joined.send_modify(|all| _ = Arc::make_mut(all).remove(&cluster(name))),
                5 => bed.claim(name, cpu, "kubectl-edit"),
                _ => bed.claim(name, cpu, "fedq-capacity"),
            }
            let wanted = bed.round().await;
            if draw.bool() {
                continue;
            }
            bed.controller.at_rest.clear();
            bed.controller.known.clear();
            assert_eq!(wanted, bed.round().await, "seed {seed}, step {step}");
        }
    }
}
