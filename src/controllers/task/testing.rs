//! Tasks as the store has them, and a controller without clusters, for tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use tokio::sync::{Notify, watch};

use super::{Cluster, Inputs, Published, Settings, TaskController};
use crate::context::testing::{Ground, context};
use fedq_domain::{
    cluster::Connection,
    resource_groups::{FlavorQuotas, ResourceGroup, ResourceGroups, ResourceQuota, Written},
    task::{
        choose::{
            Placement, Weights,
            gather::{ClusterFacts, LocalQueueFacts, QueueFacts},
            view::Access,
        },
        fleet::Member,
        names::TaskId,
        phase::{LostPolicy, Phase, State},
        render::Gang,
        runtime::Runtime,
        testing::{cluster_name, task},
    },
};
use fedq_k8s::{
    list_watch::Timing,
    testing::Server,
    worker::{Joined, JoinedClusters, KUBECONFIG, Worker},
};
use fedq_store::{Dispatch, TaskRow};
use fedq_values::{
    ids::{FlavorName, QueueName, ResourceName},
    quantity::Amount,
};

/// At ten seconds past 1970, with a hub that knows nothing. What it stands on goes when that is dropped.
pub async fn controller() -> (TaskController, Ground) {
    let (context, ground) = context(axum::Router::new()).await;
    context.clock.advance(Duration::from_secs(10));
    let settings = Settings {
        spill_after: Duration::from_secs(30),
        start_timeout: Duration::from_hours(1),
        lost_policy: LostPolicy::Wait,
        keep_objects: Duration::from_mins(30),
        gang: None,
        default_image: "image".to_owned(),
        weights: Weights::default(),
        logs: None,
        tenants: BTreeMap::new(),
        limits: BTreeMap::new(),
        timing: Timing::default(),
    };
    let inputs = Inputs {
        joined: watch::channel(Arc::default()).1,
        claimed: watch::channel(Arc::default()).1,
        capacity: watch::channel(Arc::default()).1,
    };
    let published = Published { tasks: watch::Sender::default(), volumes: watch::Sender::default() };
    let controller = TaskController::new(context, settings, inputs, (published, Arc::new(Notify::new())));
    (controller, ground)
}

pub fn placement(cluster: &str) -> Placement {
    Placement {
        cluster: cluster_name(cluster),
        candidate: 0,
        queue: "default".to_owned(),
        now: true,
        terms: BTreeMap::new(),
        refused: BTreeMap::new(),
        flavors: BTreeMap::new(),
        pod_sets: Vec::new(),
        claims: BTreeMap::new(),
        read_only: BTreeSet::new(),
    }
}

/// A cluster that answers, with a LocalQueue `default` of namespace `team` for so many GPUs.
pub fn member(gpus: i64) -> Member {
    let queue = QueueName::new("cq").expect("a name");
    let gpu = ResourceName::new("nvidia.com/gpu").expect("a name");
    let nominal = Written::of(Amount::new(gpus), &gpu);
    let quota = ResourceQuota { name: gpu.clone(), nominal, borrowing: None, lending: None };
    let flavor = FlavorQuotas { name: FlavorName::new("h100").expect("a name"), resources: vec![quota] };
    let groups = ResourceGroups(vec![ResourceGroup { covered: vec![gpu], flavors: vec![flavor] }]);
    let facts = QueueFacts { groups, active: true, ..QueueFacts::default() };
    let local = LocalQueueFacts { name: "default".to_owned(), queue: queue.clone(), active: true };
    Member {
        access: Access::Ready,
        facts: Arc::new(ClusterFacts { queues: [(queue, facts)].into(), ..ClusterFacts::default() }),
        local_queues: Arc::new([("team".to_owned(), vec![local])].into()),
        promised: Arc::default(),
        priorities: Arc::default(),
        has_jobsets: false,
        app_wrappers: Runtime::Unknown,
    }
}

/// Follows a cluster of which nothing is known, which answers.
pub fn follow(controller: &mut TaskController, name: &str, server: &Server) -> (Arc<Worker>, JoinedClusters) {
    let cancel = controller.context.stop.clone();
    let worker = Arc::new(Worker::new(cluster_name(name), server.client(), name.to_owned(), cancel));
    let mut cluster = Cluster::new(controller.start_target(&worker));
    cluster.read(true);
    controller.clusters.insert(cluster_name(name), cluster);
    let entry = Joined { worker: Some(Arc::clone(&worker)), ..Joined::new(Connection::Ready, KUBECONFIG) };
    (worker, [(cluster_name(name), Arc::new(entry))].into())
}

/// Ann's, in its first dispatch, to cluster `one`.
pub fn row(text: &str, phase: Phase) -> TaskRow {
    TaskRow {
        id: TaskId::parse("1a2b3c4d").expect("an id"),
        owner: "ann".to_owned(),
        namespace: "team".to_owned(),
        queue: None,
        cluster: None,
        submitted: Timestamp::UNIX_EPOCH,
        spec: task(text),
        state: State { phase, epoch: 1 },
        dispatch: Some(Dispatch {
            placement: placement("one"),
            gang: Gang::PerNode,
            priority_class: None,
            by_multikueue: false,
            spills: 0,
            landed: None,
            started: None,
        }),
        restarts: 0,
        nodes: None,
        changed: Timestamp::UNIX_EPOCH,
        stage: None,
    }
}
