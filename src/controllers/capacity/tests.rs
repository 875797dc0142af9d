use axum::Router;

use super::*;
use crate::context::testing::{Ground, context};
use fedq_domain::cluster::Connection;
use fedq_k8s::list_watch::{Link, Sink as _};

struct Bed {
    controller: CapacityController,
    name: ClusterName,
    joined: Joined,
    _ground: Ground,
}

impl Bed {
    async fn new() -> Self {
        let (context, ground) = context(Router::new()).await;
        let settings = Settings {
            filter: ResourceFilter::default(),
            headroom_of: Arc::new(|_| Headroom::default()),
            limits_of: Arc::new(|_| Resources::new()),
            timing: Timing::default(),
            position_period: Duration::from_mins(1),
            stale_after: Duration::from_mins(1),
            publish: false,
        };
        let client = context.hub.client.clone();
        let (joined, view) = (watch::channel(Arc::default()).1, watch::Sender::default());
        let controller = CapacityController::new(context, settings, joined, view, Arc::new(Notify::new()));
        let name = ClusterName::new("w").expect("a name");
        let worker = Worker::new(name.clone(), client, "uid".to_owned(), CancellationToken::new());
        let mut joined = Joined::new(Connection::Ready, fedq_k8s::worker::KUBECONFIG);
        joined.worker = Some(Arc::new(worker));
        Self { controller, name, joined, _ground: ground }
    }

    /// A node of 8 cores with these labels, in a table that keeps the labels with these keys.
    fn has(&mut self, keys: &[&str]) {
        let keys: BTreeSet<String> = keys.iter().map(ToString::to_string).collect();
        let mut table = NodeTable::new(keys.clone(), ResourceFilter::default());
        table.set(&NodeFacts {
            name: "n",
            labels: &[("pool", "a"), ("zone", "b")],
            allocatable: &[("cpu", "8")],
            ready: true,
            ..NodeFacts::default()
        });
        let mut cluster = Cluster::new(keys, &ResourceFilter::default());
        cluster.nodes = Arc::new(Mutex::new(Nodes::new(table, Some(Timestamp::UNIX_EPOCH))));
        self.controller.clusters.insert(self.name.clone(), cluster);
    }

    fn sum(&self, flavors: &[Flavor], before: Option<&Arc<ClusterCapacity>>) -> Option<Arc<ClusterCapacity>> {
        let all = flavors.iter().map(|flavor| (flavor.name.clone(), flavor.clone())).collect();
        let wanted = Wanted::of(&all, &self.joined);
        self.controller.sum(&self.name, &wanted, before).expect("a sum").map(Arc::new)
    }

    fn says_its_flavors(&self) {
        let worker = self.joined.worker.as_ref().expect("connected");
        let mut sink = worker.flavors.sink();
        sink.begin();
        sink.end();
        sink.at(1);
        sink.link(Link::Synced);
    }
}

fn flavor(key: &str, value: &str) -> Flavor {
    Flavor {
        name: FlavorName::new("spot").expect("a name"),
        node_labels: BTreeMap::from([(key.to_owned(), value.to_owned())]),
        node_taints: Vec::new(),
        tolerations: Vec::new(),
        max_capacity: MaxCapacity::default(),
    }
}

fn cores(sum: &ClusterCapacity) -> i64 {
    sum.capacity.by_flavor.values().flat_map(BTreeMap::values).map(|amount| amount.units()).sum()
}

#[tokio::test]
async fn a_flavor_with_a_new_label_key_keeps_the_old_sum_until_nodes_are_told_apart_by_it() {
    let mut bed = Bed::new().await;
    bed.says_its_flavors();
    bed.has(&["pool"]);
    let before = bed.sum(&[flavor("pool", "a")], None).expect("counted");
    assert_eq!(cores(&before), 8000);
    assert_eq!(bed.sum(&[flavor("zone", "b")], Some(&before)), None, "labels of that key are not kept yet");
    bed.has(&["pool", "zone"]);
    let after = bed.sum(&[flavor("zone", "b")], Some(&before)).expect("counted");
    assert_eq!(cores(&after), 8000);
}

#[tokio::test]
async fn the_hubs_flavors_do_not_stand_in_for_those_a_cluster_said_it_has() {
    let mut bed = Bed::new().await;
    bed.has(&["pool"]);
    let presumed = bed.sum(&[flavor("pool", "other")], None).expect("counted");
    assert!(presumed.presumed, "after a restart its own are not known");
    assert_eq!(cores(&presumed), 0);
    bed.says_its_flavors();
    let said = bed.sum(&[flavor("pool", "a")], Some(&presumed)).expect("counted");
    assert_eq!((cores(&said), said.presumed), (8000, false));
    let again = Bed::new().await;
    bed.joined = again.joined;
    assert_eq!(bed.sum(&[flavor("pool", "other")], Some(&said)), None, "a new connection, nothing said yet");
}
