//! Rounds of the controller on tables that a test fills, without a server that answers.

use axum::Router;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::context::testing::{Ground, context};
use fedq_domain::{
    capacity::{Capacity, NodeClass},
    claim::{self, AssignmentText, CAPACITY_MANAGER, ClaimText, owners::Owners},
    cluster::Connection,
    overview::{ClusterCapacity, NodeCounts},
    quota::Mode,
    resources::Resources,
};
use fedq_k8s::{
    events::event_channel,
    worker::{CLUSTER_METRICS, Joined, KUBECONFIG, Worker},
};
use fedq_store::ClaimInForce;
use fedq_values::ids::{FlavorName, ResourceName};

mod afresh;

struct Bed {
    controller: QuotaController,
    joined: JoinedClusters,
    capacity: CapacityView,
    _ground: Ground,
}

/// One node of the flavor `spot`.
fn cpus(milli: i64) -> Capacity {
    let cpu = ResourceName::new("cpu").expect("a name");
    let spot = FlavorName::new("spot").expect("a name");
    let total: Resources = [(cpu, Amount::new(milli))].into();
    let class = NodeClass { flavors: [spot.clone()].into(), nodes: 1, total: total.clone() };
    Capacity {
        classes: vec![class],
        total: total.clone(),
        by_flavor: [(spot, total)].into(),
        nodes: 1,
        ..Capacity::default()
    }
}

fn name(name: &str) -> ClusterName {
    ClusterName::new(name).expect("a name")
}

impl Bed {
    async fn new() -> Self {
        let (context, ground) = context(Router::new()).await;
        let settings = Settings {
            aliases: Aliases::default(),
            count_foreign: true,
            lost_timeout: Duration::from_mins(15),
            drift_reverts_per_minute: 1,
            removal_window: Duration::from_mins(10),
            copy_admission_checks: Vec::new(),
        };
        let outputs = Outputs {
            events: event_channel().0,
            overview: watch::Sender::default(),
            claimed: watch::Sender::default(),
        };
        let inputs = Inputs {
            joined: watch::channel(Arc::default()).1,
            capacity: watch::channel(Arc::default()).1,
            reports: watch::channel(Arc::default()).1,
        };
        let signal = Arc::new(Notify::new());
        let controller = QuotaController::new(context, settings, inputs, outputs, signal);
        Self {
            controller: controller.await.expect("an empty store"),
            joined: JoinedClusters::new(),
            capacity: CapacityView::new(),
            _ground: ground,
        }
    }

    fn worker(&self, cluster: &str) -> Worker {
        let client = self.controller.context.hub.client.clone();
        Worker::new(name(cluster), client, format!("{cluster}-uid"), CancellationToken::new())
    }

    fn join(&mut self, cluster: &str) {
        let joined = Joined::new(Connection::Unreached, CLUSTER_METRICS);
        self.joined.insert(name(cluster), Arc::new(joined));
    }

    fn put_queue(&self, version: u64, quota: &Value) {
        let queue = queue("team-a", version, quota, &json!({}));
        self.controller.context.hub.queues.absorb(serde_json::from_value(queue).expect("a ClusterQueue"));
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
        self.controller.context.hub.claims.absorb(serde_json::from_value(claim).expect("a claim"));
    }

    fn put_flavor(&self, flavor: &str) {
        let object = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor",
            "metadata": {"name": flavor, "resourceVersion": "3"}, "spec": {},
        });
        self.controller.context.hub.flavors.absorb(serde_json::from_value(object).expect("a ResourceFlavor"));
    }

    /// Reads, plans and records.
    fn round(&mut self) {
        let (joined, capacity) = (self.joined.clone(), self.capacity.clone());
        let mut round = self.controller.gather(&joined, &capacity, &Arc::default(), Instant::now());
        self.controller.plan(&mut round);
        self.controller.record(&round);
        self.controller.plans = (round.plans, round.queues);
    }

    /// Reads and plans; which queues cannot be read, and each cluster's mode.
    fn plan(&mut self) -> (Vec<QueueName>, BTreeMap<ClusterName, Mode>) {
        let (joined, capacity) = (self.joined.clone(), self.capacity.clone());
        let mut round = self.controller.gather(&joined, &capacity, &Arc::default(), Instant::now());
        self.controller.plan(&mut round);
        let modes = self.controller.told.clusters.iter().map(|(name, told)| (name.clone(), told.mode));
        (round.unreadable.keys().cloned().collect(), modes.collect())
    }
}

#[tokio::test]
async fn sibling_cohorts_under_one_parent_count_as_one() {
    let bed = Bed::new().await;
    let worker = bed.worker("w");
    let cohort = |name: &str, spec: Value| {
        let object = json!({"metadata": {"name": name, "resourceVersion": "3"}, "spec": spec});
        worker.cohorts.absorb(serde_json::from_value(object).expect("a Cohort"));
    };
    cohort("left", json!({"parentName": "all"}));
    cohort("right", json!({"parentName": "all"}));
    for (one, other) in [("egg", "hen"), ("hen", "egg")] {
        cohort(one, json!({"parentName": other}));
    }
    let quotas = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "spot", "resources": [{"name": "cpu", "nominalQuota": "4", "lendingLimit": "0"}]},
    ]}]);
    cohort("apart", json!({"parentName": "top", "resourceGroups": quotas}));
    let mut seen = gather::Seen::new();
    for (name, cohort) in [("a", "left"), ("b", "right"), ("c", "apart"), ("d", "alone"), ("e", "egg")] {
        let mut object = queue(name, 3, &json!("4"), &json!({}));
        object["spec"]["cohortName"] = json!(cohort);
        seen.insert(name.to_owned(), Arc::new(serde_json::from_value(object).expect("a ClusterQueue")));
    }
    let queues = gather::worker_queues(&worker, &seen, "hub", &BTreeSet::new(), None).expect("readable");
    let cohorts: Vec<_> = queues.iter().filter_map(|queue| Some(queue.cohort.as_ref()?.as_str())).collect();
    assert_eq!(cohorts, ["all", "all", "apart", "alone", "egg"]);
}

/// What queues lend to each other counts as one, so another tree of cohorts is another plan.
#[tokio::test]
async fn a_cohort_that_gets_a_parent_is_planned_with_at_once() {
    let mut bed = Bed::new().await;
    let worker = Arc::new(bed.worker("w"));
    afresh::read_all(&worker, true);
    let cohort = |version: u64, spec: Value| {
        let object =
            json!({"metadata": {"name": "left", "resourceVersion": version.to_string()}, "spec": spec});
        worker.cohorts.absorb(serde_json::from_value(object).expect("a Cohort"));
    };
    let mut object = queue("a", 3, &json!("4"), &json!({}));
    object["spec"]["cohortName"] = json!("left");
    worker.queues.absorb(serde_json::from_value(object).expect("a ClusterQueue"));
    cohort(3, json!({}));
    let joined = Joined { worker: Some(Arc::clone(&worker)), ..Joined::new(Connection::Ready, KUBECONFIG) };
    bed.joined.insert(name("w"), Arc::new(joined));
    let counted_as = |bed: &mut Bed| {
        bed.round();
        let told = &bed.controller.told.clusters[&name("w")];
        told.worker_queues[0].cohort.as_ref().map(ToString::to_string)
    };
    assert_eq!(counted_as(&mut bed).as_deref(), Some("left"));
    cohort(4, json!({"parentName": "all"}));
    assert_eq!(counted_as(&mut bed).as_deref(), Some("all"));
}

#[tokio::test]
async fn that_a_cluster_answers_once_more_is_no_news() {
    let mut bed = Bed::new().await;
    bed.join("w");
    let (cluster, joined) = (name("w"), Arc::clone(&bed.joined[&name("w")]));
    let facts =
        gather::ClusterFacts { name: &cluster, joined: &joined, claim: None, capacity: None, target: None };
    let before = gather::Mark::of(&facts);
    let (published, copied) = (joined.last_seen.clone(), Arc::clone(&joined));
    let now = Timestamp::from_second(5).expect("a time");
    bed.joined[&cluster].last_seen.set(now);
    assert!(gather::Mark::of(&facts) == before && Arc::ptr_eq(&copied, &bed.joined[&cluster]));
    assert_eq!(published.get(), Some(now), "what was published of it tells it all the same");
}

/// What waits to be written on a worker was decided while the hub was followed.
#[tokio::test]
async fn nothing_decided_waits_to_be_written_while_the_hub_is_not_followed() {
    let mut bed = Bed::new().await;
    let (mut tasks, cancel) = (Tasks::new(), CancellationToken::new());
    let worker = Place::Worker(Arc::new(bed.worker("w")));
    let target = Target::start(worker, &bed.controller.writing, (&mut tasks, &cancel));
    let hub = Place::hub(bed.controller.context.hub.clone());
    let hub = Target::start(hub, &bed.controller.writing, (&mut tasks, &cancel));
    let growth = |target: &Target| {
        let change = Change {
            target: WriteTarget::cluster_scoped(Kind::ClusterQueue, "team-a"),
            action: Action::Merge(json!({"spec": {"resourceGroups": []}})),
            manager: MANAGER,
        };
        target.writer.want(vec![change]);
        assert!(!target.writer.wants_nothing());
    };
    growth(&target);
    growth(&hub);
    bed.controller.targets.insert(name("w"), target);
    let (joined, capacity) = (bed.joined.clone(), bed.capacity.clone());
    assert_eq!(
        bed.controller.round(&hub, &joined, &capacity, &Arc::default()).await,
        None,
        "its tables were never filled"
    );
    assert!(hub.writer.wants_nothing() && bed.controller.targets[&name("w")].writer.wants_nothing());
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
    let mut round = bed.controller.gather(&joined, &capacity, &Arc::default(), Instant::now());
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
    let round = bed.controller.gather(&joined, &capacity, &Arc::default(), Instant::now());
    let lags = |name: &ClusterName, joined: &Joined| bed.controller.terms_may_lag(name, joined, &round);
    let mut east = Joined::clone(&joined[&name("east")]);
    assert!(lags(&name("east"), &east), "killed before anything of it was stored");
    assert!(!lags(&name("idle"), &joined[&name("idle")]), "it cannot have had a share");
    east.connection = Connection::Stale { since: Timestamp::UNIX_EPOCH, reason: String::new() };
    assert!(!lags(&name("east"), &east), "it may be away for long");
}

#[test]
fn a_connected_cluster_is_waited_for_only_a_while_whatever_of_it_cannot_be_read() {
    let soon = |connection: &Connection, seconds: Option<u64>| {
        tell::answers_soon(connection, seconds.map(Duration::from_secs), Duration::from_mins(1))
    };
    assert!(soon(&Connection::Ready, Some(1)), "its nodes may be still on their way");
    assert!(!soon(&Connection::Ready, Some(61)), "something of it may never be readable");
    assert!(soon(&Connection::Connecting, None));
    assert!(soon(&Connection::Unreached, Some(1)), "what the hub says of it is about to be read");
    assert!(!soon(&Connection::Unreached, Some(61)));
}

#[tokio::test]
async fn terms_are_unknown_only_after_the_store_was_lost() {
    let mut bed = Bed::new().await;
    bed.join("east");
    bed.join("idle");
    bed.claim("east");
    let (joined, capacity) = (bed.joined.clone(), bed.capacity.clone());
    let round = bed.controller.gather(&joined, &capacity, &Arc::default(), Instant::now());
    let known = Some(BTreeMap::new());
    assert_eq!(bed.controller.last_terms(&name("east"), &round), None, "the store was empty");
    assert_eq!(bed.controller.last_terms(&name("idle"), &round), known, "it cannot have had a share");
    bed.controller.store_was_empty = false;
    assert_eq!(bed.controller.last_terms(&name("east"), &round), known, "one that has just joined");
    bed.controller.store_was_empty = true;
    let cell = Cell {
        queue: QueueName::new("team-a").expect("a name"),
        flavor: FlavorName::new("spot").expect("a name"),
        resource: ResourceName::new("cpu").expect("a name"),
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
    let queues = gather::worker_queues(&worker, &seen, "hub", &claimed, None).expect("readable");
    let ours: BTreeMap<&str, bool> = queues.iter().map(|queue| (queue.name.as_str(), queue.ours)).collect();
    assert_eq!(ours, BTreeMap::from([("claimed", true), ("elsewhere", false)]));
}

#[test]
fn a_claim_of_the_store_is_read_as_it_was_in_force() {
    let aliases = Aliases::default();
    let by_fedq = BTreeSet::from([CAPACITY_MANAGER.to_owned()]);
    let text = ClaimText {
        name: "east-resource-claim".to_owned(),
        cluster: "east".to_owned(),
        nominal: BTreeMap::from([
            ("cpu".to_owned(), "8".to_owned()),
            ("memory".to_owned(), "16Gi".to_owned()),
        ]),
        assignments: vec![AssignmentText {
            queue: "team-a".to_owned(),
            flavor: "spot".to_owned(),
            resources: BTreeMap::from([
                ("cpu".to_owned(), "1500m".to_owned()),
                ("gpu".to_owned(), "2".to_owned()),
            ]),
        }],
        owners: Owners::new(BTreeMap::from([("memory".to_owned(), by_fedq)])),
    };
    let claim = claim::validate(&text, &aliases).expect("a valid claim");
    let row = in_force::row_of(&claim, None);
    let read = in_force::claim_of_row(&row, &aliases).expect("what was stored");
    assert_eq!((read.name(), read.cluster()), (claim.name(), claim.cluster()));
    assert_eq!(read.assignments(), claim.assignments());
    assert_eq!(read.caps(), claim.caps(), "what follows capacity is no cap");
    assert_eq!(claim.caps().len(), 1);
    let unreadable = ClaimInForce { spec: json!({"clusterName": 7}), ..row };
    assert_eq!(in_force::claim_of_row(&unreadable, &aliases), None);
}

#[tokio::test]
async fn of_two_claims_made_in_the_same_second_the_one_in_force_stays() {
    let mut bed = Bed::new().await;
    bed.join("east");
    let put = |bed: &Bed, name: &str, version: &str| {
        let claim = json!({
            "apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterResourceClaim",
            "metadata": {"name": name, "resourceVersion": version, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"clusterName": "east", "resourceAssignments": [
                {"clusterQueueName": "team-a", "flavor": "spot", "resources": {"cpu": "1"}},
            ]},
        });
        bed.controller.context.hub.claims.absorb(serde_json::from_value(claim).expect("a claim"));
    };
    put(&bed, "m-first", "5");
    bed.plan();
    for (number, later) in ["a-second", "z-third"].into_iter().enumerate() {
        put(&bed, later, &(6 + number).to_string());
        bed.plan();
        let in_force: Vec<&str> =
            bed.controller.claims.in_force.values().map(|claim| claim.name().as_str()).collect();
        assert_eq!(in_force, ["m-first"]);
        let accepted = bed.controller.claims.read.iter().filter(|(_, claim)| claim.in_force());
        assert_eq!(
            accepted.map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            in_force,
            "as the statuses say"
        );
    }
}

/// No round was made in between.
#[tokio::test]
async fn a_cluster_that_left_and_came_back_at_once_is_another_member() {
    let mut bed = Bed::new().await;
    bed.controller.store_was_empty = false;
    bed.claim("east");
    bed.put_queue(3, &json!("0"));
    bed.put_flavor("spot");
    bed.capacity.insert(name("east"), Arc::new(ClusterCapacity::alone(cpus(4000))));
    bed.join("east");
    bed.round();
    assert!(bed.controller.recorded.knows(&name("east")));
    assert!(bed.controller.terms.contains_key(&name("east")));
    // What its table holds may be told of as often as anybody likes.
    Arc::make_mut(bed.joined.get_mut(&name("east")).expect("joined")).cordoned = true;
    bed.round();
    assert!(bed.controller.recorded.knows(&name("east")));
    let connecting = Joined::new(Connection::Connecting, CLUSTER_METRICS);
    bed.joined.insert(name("east"), Arc::new(connecting));
    bed.round();
    assert!(!bed.controller.recorded.knows(&name("east")), "its terms are to be stored again");
    assert_eq!(bed.controller.terms.get(&name("east")), None, "and it has no share before it answers");
}

#[tokio::test]
async fn a_refused_cluster_is_lost_when_its_time_has_passed_whatever_the_clock_says() {
    let mut bed = Bed::new().await;
    let refused = Connection::Refused { reason: "exec plugin".to_owned() };
    let mut joined = Joined::new(refused, CLUSTER_METRICS);
    joined.last_seen.set(Timestamp::from_second(5).expect("a time"));
    bed.joined.insert(name("east"), Arc::new(joined.clone()));
    for days in [0, 2, 400] {
        bed.controller.context.clock.advance(Duration::from_hours(24 * days));
        assert_eq!(bed.plan().1[&name("east")], Mode::Frozen);
    }
    joined.is_given_up = true;
    bed.joined.insert(name("east"), Arc::new(joined));
    assert_eq!(bed.plan().1[&name("east")], Mode::Lost);
}

#[tokio::test]
async fn a_cluster_that_left_and_came_back_as_it_was_keeps_its_share_when_it_falls_silent() {
    let mut bed = Bed::new().await;
    bed.controller.store_was_empty = false;
    bed.claim("east");
    bed.put_queue(3, &json!("0"));
    bed.put_flavor("spot");
    let known = ClusterCapacity::alone(cpus(4000));
    bed.capacity.insert(name("east"), Arc::new(known));
    bed.join("east");
    let share = |bed: &Bed| {
        bed.controller
            .plans
            .1
            .values()
            .flat_map(|queue| queue.cells.values())
            .map(|cell| cell.target)
            .sum::<Amount>()
    };
    bed.round();
    assert_eq!(share(&bed), Amount::new(1000));
    let there = bed.joined.remove(&name("east")).expect("joined");
    bed.round();
    assert_eq!(share(&bed), Amount::ZERO);
    bed.joined.insert(name("east"), Arc::clone(&there));
    bed.round();
    assert_eq!(share(&bed), Amount::new(1000));
    let stale = Connection::Stale { since: Timestamp::UNIX_EPOCH, reason: String::new() };
    Arc::make_mut(bed.joined.get_mut(&name("east")).expect("joined")).connection = stale;
    bed.round();
    assert_eq!(share(&bed), Amount::new(1000), "silence is no loss");
}

#[tokio::test]
async fn what_a_lost_connection_did_not_answer_may_arrive_on_the_next() {
    let mut bed = Bed::new().await;
    let connected = |bed: &Bed| {
        let mut joined = Joined::new(Connection::Ready, KUBECONFIG);
        joined.worker = Some(Arc::new(bed.worker("east")));
        Arc::new(joined)
    };
    let keep = |bed: &mut Bed| bed.controller.keep_targets(&bed.joined.clone());
    let first = connected(&bed);
    bed.joined.insert(name("east"), first);
    keep(&mut bed);
    let change = Change {
        target: WriteTarget::cluster_scoped(Kind::ClusterQueue, "queue"),
        action: Action::Create(json!({"kind": "ClusterQueue"})),
        manager: MANAGER,
    };
    bed.controller.targets[&name("east")].writer.inherit(vec![change.clone()]);
    let silent = Joined::new(Connection::Connecting, KUBECONFIG);
    bed.joined.insert(name("east"), Arc::new(silent));
    keep(&mut bed);
    assert!(bed.controller.targets.is_empty());
    let again = connected(&bed);
    bed.joined.insert(name("east"), again);
    keep(&mut bed);
    assert_eq!(bed.controller.targets[&name("east")].writer.all_unanswered(), [change]);
}

/// Then nothing is planned, and nobody looks at which clusters something is new of.
#[tokio::test]
async fn a_status_follows_the_nodes_also_while_the_hub_does_not_serve_kueue() {
    let mut bed = Bed::new().await;
    bed.join("east");
    bed.claim("east");
    bed.controller.planned = false;
    bed.controller.statuses.wait_for_nothing();
    let round = |bed: &mut Bed| {
        let (joined, capacity) = (bed.joined.clone(), bed.capacity.clone());
        let controller = &mut bed.controller;
        let (hub, stop) = (Place::hub(controller.context.hub.clone()), controller.context.stop.clone());
        let hub = Target::start(hub, &controller.writing, (&mut controller.tasks, &stop));
        let mut round = controller.gather(&joined, &capacity, &Arc::default(), Instant::now());
        controller.stand_still(&mut round);
        let changes = controller.status_changes(&mut round, &hub);
        controller.plans = (round.plans, round.queues);
        controller.statuses.said = round.said;
        changes
    };
    let changes = round(&mut bed);
    let [Change { action: Action::Apply(status), .. }] = &changes[..] else { panic!("{changes:?}") };
    let claims = &bed.controller.context.hub.claims;
    let claim = claims.get(None, "east-resource-claim").expect("a claim");
    let mut claim = serde_json::to_value(&*claim).expect("JSON");
    claim["metadata"]["resourceVersion"] = json!("6");
    claim["status"] = status["status"].clone();
    claims.absorb(serde_json::from_value(claim).expect("a claim"));
    for _ in 0..2 {
        assert_eq!(round(&mut bed), [], "it says so");
    }
    let counted = ClusterCapacity {
        capacity: cpus(1000),
        nodes: NodeCounts { total: 1, usable: 1 },
        flavors: Arc::default(),
        headroom: Resources::new(),
        observed: Timestamp::UNIX_EPOCH,
        bad: Vec::new(),
        silent: None,
        is_old: false,
        was_read: true,
        presumed: false,
        moved: fedq_domain::overview::Moved::default(),
    };
    bed.capacity.insert(name("east"), Arc::new(counted));
    let changes = round(&mut bed);
    assert_eq!(changes.len(), 1, "the nodes are known");
}
