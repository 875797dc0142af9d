use super::*;
use crate::task::testing::{controller, follow, member, row};
use fedq_domain::{
    cluster::{CREDENTIAL_REFUSED, UNCONFIRMED},
    resources::FlavorResource,
    task::{
        fleet::Fleet,
        limits::{Bounds, Limits, Taken},
        phase::State,
        testing::cluster_name,
        volume::VolumeSpec,
    },
};
use fedq_k8s::{
    list_watch::{Link, Sink},
    worker::{Joined, KUBECONFIG},
};
use fedq_values::{
    ids::{FlavorName, ResourceName},
    quantity::Amount,
};

#[tokio::test]
async fn what_does_not_start_for_want_of_its_volume_says_so() {
    let (mut controller, _ground) = controller().await;
    let task = row("run: x\nvolumes: {/d: data}\n", Phase::Starting { cluster: cluster_name("one") });
    let seen = Observed { unschedulable: Some("claim not found".to_owned()), ..Observed::default() };
    let later = Timestamp::from_second(3600).expect("in range");
    let told = |controller: &TaskController| {
        controller.stuck(&task, &seen, later).and_then(|step| step.detail).expect("it is over")
    };
    assert!(!told(&controller).contains("volume"), "{}", told(&controller));
    controller.volumes = vec![VolumeRow {
        id: TaskId::draw(1),
        owner: "ann".to_owned(),
        namespace: "team".to_owned(),
        cluster: Some(cluster_name("one")),
        spec: VolumeSpec::new("data", "1Gi", None, None).expect("a volume"),
        created: Timestamp::UNIX_EPOCH,
        deleting: false,
        made: true,
        lost: true,
    }];
    assert_eq!(told(&controller), "volume data was deleted on its cluster");
}

#[tokio::test]
async fn what_may_still_run_is_given_away_only_to_where_it_runs_at_once() {
    let (mut controller, _ground) = controller().await;
    let mut given = |before: Before, gpus: i64| {
        let lost = Phase::Lost { cluster: cluster_name("one"), before };
        let mut task = row("run: x\nresources: {accelerators: 8}\n", lost);
        task.queue = Some("default".to_owned());
        let id = task.id.clone();
        let placement = &mut task.dispatch.as_mut().expect("it was dispatched").placement;
        placement.cluster = cluster_name("one");
        controller.live.clear();
        controller.keep(task);
        let mut two = member(8);
        // Others hold the rest.
        let facts = Arc::make_mut(&mut two.facts);
        let queue = facts.queues.values_mut().next().expect("a queue");
        let resource = ResourceName::new("nvidia.com/gpu").expect("a name");
        let at = FlavorResource { flavor: FlavorName::new("h100").expect("a name"), resource };
        queue.reserved.insert(at, Amount::new(8 - gpus));
        let fleet = Fleet { clusters: [(cluster_name("two"), two)].into(), ..Fleet::default() };
        let mut chooser = Chooser::new(fleet, InFlight::new(), &[]);
        let decided = controller.place(&id, &mut chooser, &Routes::new(), Timestamp::UNIX_EPOCH);
        let judged = controller.live[&id].judged.clone().map(|(_, reason)| reason);
        (decided.map(|decided| decided.step.to), judged)
    };
    let moved = || (Some(Move::Replace(cluster_name("two"))), None);
    for before in [Before::Starting, Before::Running] {
        assert_eq!(given(before, 8), moved());
        assert_eq!(given(before, 7), (None, Some("it would wait on two".to_owned())), "{before:?}");
    }
    for before in [Before::Dispatching, Before::Queued] {
        assert_eq!(given(before, 7), moved(), "it has no quota to lose: {before:?}");
    }
}

#[tokio::test]
async fn nothing_is_given_away_from_a_cluster_that_answers() {
    let (mut controller, _ground) = controller().await;
    controller.settings.lost_policy = LostPolicy::Requeue;
    let one = cluster_name("one");
    let given = |reason: &str| {
        let since = Timestamp::UNIX_EPOCH;
        let lost = Joined::new(Connection::Lost { since, reason: reason.to_owned() }, KUBECONFIG);
        controller.is_given_away(&[(one.clone(), Arc::new(lost))].into(), &one, Before::Running)
    };
    assert!(given("connection refused"));
    assert!(!given(&format!("{CREDENTIAL_REFUSED}, and says `401`: put a new one into its Secret")));
    assert!(!given(UNCONFIRMED));
}

#[tokio::test]
async fn limits_count_what_was_left_behind() {
    let (mut controller, _ground) = controller().await;
    controller.settings.limits.insert("team".to_owned(), Limits::default());
    let lost = Phase::Lost { cluster: cluster_name("one"), before: Before::Running };
    let left = row("run: x\nresources: {accelerators: 3}\n", lost);
    controller.left_behind.leave(left);
    let room = controller.usage()["team"].room("ann", Taken::default());
    assert_eq!((room.of_all.gpus.units(), room.of_user.gpus.units()), (3, 3));
}

#[tokio::test]
async fn a_run_in_an_appwrapper_that_cannot_be_seen_is_not_gone() {
    let (mut controller, (server, _folder)) = controller().await;
    let (worker, joined) = follow(&mut controller, "one", &server);
    let lost = Phase::Lost { cluster: cluster_name("one"), before: Before::Running };
    let mut task = row("run: x\n", lost);
    let one = cluster_name("one");
    let stays = |controller: &TaskController, task: &TaskRow| {
        (controller.stays(&one, task, &joined), controller.is_left(&one, task, &joined))
    };
    assert_eq!(stays(&controller, &task), (false, false), "Jobs are seen");
    task.dispatch.as_mut().expect("it was dispatched").gang = Gang::AppWrapper;
    assert_eq!(stays(&controller, &task), (true, true));
    worker.tasks.app_wrappers.sink().link(Link::Synced);
    controller.clusters.get_mut(&one).expect("it is followed").read(true);
    assert_eq!(stays(&controller, &task), (false, false));
}

#[test]
fn a_run_is_timed_from_its_start_also_where_its_cluster_fell_silent_meanwhile() {
    let at = |second: i64| Timestamp::from_second(second).expect("in range");
    let mut task = row("run: x\nmax_duration: 60\n", Phase::Running { cluster: cluster_name("one") });
    task.changed = at(100);
    let none = Observed::default();
    let judge = |task: &TaskRow, in_part: Option<i64>, seen: &Observed, now: i64| {
        let in_part = in_part.map(at);
        (run_due(task, in_part), overdue((task, in_part), seen, at(now)).is_some())
    };
    assert_eq!(judge(&task, None, &none, 159), (Some(at(160)), false));
    assert_eq!(judge(&task, None, &none, 160), (Some(at(160)), true));
    task.dispatch.as_mut().expect("it was dispatched").started = Some(at(50));
    assert_eq!(judge(&task, None, &none, 109), (Some(at(110)), false), "that it is back is no new start");
    task.state.phase = Phase::Starting { cluster: cluster_name("one") };
    task.dispatch.as_mut().expect("it was dispatched").started = None;
    let in_part = Observed { ready: true, ..Observed::default() };
    assert_eq!(judge(&task, None, &in_part, 999), (None, false), "it took long until a node of it ran");
    assert_eq!(judge(&task, Some(900), &in_part, 959), (Some(at(960)), false));
    assert_eq!(judge(&task, Some(900), &in_part, 960), (Some(at(960)), true));
    task.state.phase = Phase::Queued { cluster: cluster_name("one") };
    assert_eq!(judge(&task, Some(900), &in_part, 999), (None, false));
}

/// Of a tenant with eight GPUs, of which four are taken: one that needs six waits, and one that needs two behind it.
#[tokio::test]
async fn who_waits_behind_a_task_is_judged_anew_when_that_goes() {
    let (mut controller, _ground) = controller().await;
    let waits = |id: &str, phase: Phase| {
        let mut task = row("run: x\nresources: {accelerators: 6}\n", phase);
        task.id = id.parse().expect("an id");
        task
    };
    let (large, other) = (waits("00000001", Phase::Pending), waits("00000002", Phase::Pending));
    for task in [&large, &other] {
        controller.keep(task.clone());
    }
    let limits =
        Limits { all: Bounds { gpus: Some(Amount::new(8)), ..Bounds::default() }, ..Limits::default() };
    let excess = limits.forbid(&row("run: x\nresources: {accelerators: 9}\n", Phase::Pending).spec);
    controller.live.get_mut(&large.id).expect("it is kept").limited = excess;
    let before = controller.gathered.revision;
    controller.keep(TaskRow { state: State { phase: Phase::Stopped, ..other.state.clone() }, ..other });
    assert_eq!(controller.gathered.revision, before, "nobody waits behind that one");
    controller.keep(TaskRow { state: State { phase: Phase::Stopped, ..large.state.clone() }, ..large });
    assert_ne!(controller.gathered.revision, before);
}
