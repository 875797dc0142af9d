use proptest::{prelude::*, strategy::Strategy};

use super::*;
use crate::{
    capacity::Taint,
    task::{
        limits::{Bounds, Limits, Taken},
        testing::{cluster, cluster_name, flavor, queue, task, volume},
    },
};
use fedq_values::{ids::ResourceName, quantity::Amount};

fn wish() -> Wish {
    Wish { queue: Some("default".to_owned()), ..Wish::default() }
}

fn view(clusters: Vec<ClusterView>) -> View {
    View { clusters }
}

fn decide(text: &str, wish: &Wish, clusters: Vec<ClusterView>) -> Choice {
    choose(&task(text), wish, &view(clusters), Weights::default())
}

fn chosen(choice: &Choice) -> Option<(&str, bool)> {
    match &choice.outcome {
        Outcome::Run(placement) => Some((placement.cluster.as_str(), placement.now)),
        Outcome::Wait | Outcome::Limited(_) | Outcome::Never => None,
    }
}

fn obstacles(choice: &Choice, cluster: &str) -> Vec<String> {
    match &choice.verdicts[&cluster_name(cluster)] {
        Verdict::Never(obstacles) => obstacles.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

const GPUS: &str = "run: x\nresources: {accelerators: 4}\n";

#[test]
fn the_next_task_goes_where_there_is_room() {
    let choice = decide(GPUS, &wish(), vec![cluster("full", (8, 8)), cluster("free", (8, 0))]);
    assert_eq!(chosen(&choice), Some(("free", true)));
    assert!(
        matches!(&choice.verdicts[&cluster_name("full")], Verdict::Waits(offer) if offer.numbers[0].gap() == Amount::new(4))
    );
}

#[test]
fn with_no_room_it_waits_where_least_is_missing() {
    let choice = decide(GPUS, &wish(), vec![cluster("a", (8, 8)), cluster("b", (8, 6))]);
    assert_eq!(chosen(&choice), Some(("b", false)));
}

#[test]
fn what_never_fits_is_told_at_once_with_the_reason_for_each_cluster() {
    let choice = decide(
        "run: x\nnum_nodes: 4\nresources: {accelerators: 4}\n",
        &wish(),
        vec![
            cluster("a", (8, 0)),
            ClusterView { queues: Vec::new(), ..cluster("b", (99, 0)) },
            ClusterView { queues: vec![queue(vec![flavor("cpu", &[], &[])])], ..cluster("c", (0, 0)) },
        ],
    );
    assert_eq!(choice.outcome, Outcome::Never);
    assert_eq!(
        obstacles(&choice, "a"),
        ["queue default can hold at most 8 nvidia.com/gpu of flavor gpu, the task needs 16"]
    );
    assert_eq!(
        obstacles(&choice, "b"),
        [
            "there is no queue default; there is none that you may use: ask an administrator for a LocalQueue in \
             your namespace, of a ClusterQueue that a claim gives quota there"
        ]
    );
    assert_eq!(obstacles(&choice, "c"), ["queue default has no quota for nvidia.com/gpu"]);
}

#[test]
fn without_a_queue_the_answer_names_those_there_are() {
    let choice = decide("run: x", &Wish::default(), vec![cluster("a", (8, 0))]);
    assert_eq!(obstacles(&choice, "a"), ["no queue was named; there is default"]);
}

#[test]
fn a_person_s_cluster_is_kept_to() {
    let wanted = Wish { cluster: Some(cluster_name("full")), ..wish() };
    let clusters = || vec![cluster("full", (8, 8)), cluster("free", (8, 0))];
    assert_eq!(chosen(&decide(GPUS, &wanted, clusters())), Some(("full", false)));
    let infra = "run: x\nresources: {accelerators: 4, infra: k8s/full}\n";
    let choice = decide(infra, &wish(), clusters());
    assert_eq!(chosen(&choice), Some(("full", false)));
    assert_eq!(obstacles(&choice, "free"), ["another cluster was asked for"]);
}

#[test]
fn a_cluster_that_is_away_is_waited_for() {
    let away = |access| vec![ClusterView { access, ..cluster("a", (8, 0)) }];
    for access in [Access::Silent, Access::Cordoned, Access::Tidied] {
        assert_eq!(decide(GPUS, &wish(), away(access)).outcome, Outcome::Wait);
    }
    let mut both = away(Access::Silent);
    both.push(cluster("b", (8, 8)));
    assert_eq!(chosen(&decide(GPUS, &wish(), both)), Some(("b", false)));
}

#[test]
fn tasks_on_their_way_count() {
    let mut busy = cluster("a", (8, 0));
    let cells = &mut busy.queues[0].groups[0].flavors[0].cells;
    let gpus = cells.get_mut("nvidia.com/gpu").expect("a cell");
    *gpus = gpus.with_in_flight(Amount::new(6));
    let choice = decide(GPUS, &wish(), vec![busy, cluster("b", (4, 0))]);
    assert_eq!(chosen(&choice), Some(("b", true)));
}

#[test]
fn the_kind_of_accelerator_chooses_flavor_and_nodes() {
    let product = |value| [("nvidia.com/gpu.product", value)];
    let flavors = vec![
        flavor("a100", &product("NVIDIA-A100-SXM4-80GB"), &[("nvidia.com/gpu", (8, 0))]),
        flavor("h100", &product("NVIDIA-H100-80GB-HBM3"), &[("nvidia.com/gpu", (8, 0))]),
    ];
    let clusters = || vec![ClusterView { queues: vec![queue(flavors.clone())], ..cluster("a", (0, 0)) }];
    let choice = decide("run: x\nresources: {accelerators: H100:8}", &wish(), clusters());
    let Outcome::Run(placement) = &choice.outcome else { panic!("{choice:?}") };
    assert!(placement.terms["nvidia.com/gpu.product"].contains("NVIDIA-H100-80GB-HBM3"));
    let none = decide("run: x\nresources: {accelerators: L4:1}", &wish(), clusters());
    assert_eq!(
        obstacles(&none, "a"),
        ["no flavor of queue default has L4; there are nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB, \
             nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3"]
    );
}

#[test]
fn where_no_flavor_names_accelerators_it_is_told_what_tells_them_apart_and_what_nodes_have() {
    let told = |labels: &[(&str, &str)], device: Option<&str>| {
        let mut plain = flavor("on-demand", labels, &[("nvidia.com/gpu", (8, 0))]);
        let device = device.map(|device| (ResourceName::new(device).expect("a name"), Amount::new(8)));
        plain.largest_node = device.into_iter().collect();
        plain.largest_node.insert(ResourceName::new("cpu").expect("a name"), Amount::new(8));
        let clusters = vec![ClusterView { queues: vec![queue(vec![plain])], ..cluster("a", (0, 0)) }];
        obstacles(&decide("run: x\nresources: {accelerators: L4:1}", &wish(), clusters), "a").remove(0)
    };
    assert_eq!(
        told(&[("instance-type", "on-demand")], Some("nvidia.com/gpu")),
        "no flavor of queue default has L4, since none says what accelerator its nodes have: they are told apart by \
         instance-type: on-demand; their nodes have nvidia.com/gpu; set nvidia.com/gpu.product, or your provider's \
         label, in nodeLabels of the ResourceFlavor"
    );
    let bare = told(&[], None);
    assert!(bare.contains("they have no nodeLabels; set nvidia.com/gpu.product"), "{bare}");
    let named = told(&[("nvidia.com/gpu.product", "NVIDIA-A100")], Some("nvidia.com/gpu"));
    assert!(
        named.ends_with("there is nvidia.com/gpu.product: NVIDIA-A100; their nodes have nvidia.com/gpu"),
        "{named}"
    );
}

#[test]
fn ordered_forms_are_tried_in_order() {
    let labels = |kind| [("gpu.nvidia.com/class", kind)];
    let with = |name, kind, gpus| ClusterView {
        queues: vec![queue(vec![flavor("f", &labels(kind), &[("nvidia.com/gpu", gpus)])])],
        ..cluster(name, (0, 0))
    };
    let text = "run: x\nresources: {accelerators: [H100:8, A100:8]}";
    let both = decide(text, &wish(), vec![with("a", "A100", (80, 0)), with("h", "H100", (8, 0))]);
    assert_eq!(chosen(&both), Some(("h", true)));
    // What has room comes before what is wished.
    let full = decide(text, &wish(), vec![with("a", "A100", (80, 0)), with("h", "H100", (8, 8))]);
    assert_eq!(chosen(&full), Some(("a", true)));
}

#[test]
fn spot_and_instance_types_count_where_flavors_tell_them_apart() {
    let spot = flavor("spot", &[("karpenter.sh/capacity-type", "spot")], &[("nvidia.com/gpu", (8, 0))]);
    let plain = flavor("od", &[("karpenter.sh/capacity-type", "on-demand")], &[("nvidia.com/gpu", (80, 0))]);
    let text = "run: x\nresources: {accelerators: 8, use_spot: true}";
    let both = ClusterView { queues: vec![queue(vec![plain, spot])], ..cluster("a", (0, 0)) };
    let choice = decide(text, &wish(), vec![both]);
    let Outcome::Run(placement) = &choice.outcome else { panic!("{choice:?}") };
    assert!(placement.terms["karpenter.sh/capacity-type"].contains("spot"));
    let unknown =
        decide("run: x\nresources: {instance_type: p5.48xlarge}", &wish(), vec![cluster("b", (8, 0))]);
    let Verdict::Fits(offer) = &unknown.verdicts[&cluster_name("b")] else { panic!("{unknown:?}") };
    assert_eq!((offer.unmet.as_slice(), offer.terms.len()), (["instance_type"].as_slice(), 0));
}

#[test]
fn a_task_that_must_not_run_on_spot_gets_no_spot_flavor() {
    let spot = |name| flavor(name, &[("karpenter.sh/capacity-type", "spot")], &[("nvidia.com/gpu", (80, 0))]);
    let plain = flavor("od", &[("karpenter.sh/capacity-type", "on-demand")], &[("nvidia.com/gpu", (8, 8))]);
    let clusters = || {
        let queues = |flavors| vec![queue(flavors)];
        vec![
            ClusterView { queues: queues(vec![spot("s"), plain.clone()]), ..cluster("both", (0, 0)) },
            ClusterView { queues: queues(vec![spot("s"), spot("t")]), ..cluster("cheap", (0, 0)) },
        ]
    };
    let asks = |wish_of_spot: &str| {
        decide(&format!("run: x\nresources: {{accelerators: 8{wish_of_spot}}}"), &wish(), clusters())
    };
    let choice = asks(", use_spot: false");
    assert_eq!(chosen(&choice), Some(("both", false)), "it waits, though there is room on spot nodes");
    let Outcome::Run(placement) = &choice.outcome else { panic!("{choice:?}") };
    assert!(placement.flavors.values().all(|flavor| flavor.as_str() == "od"), "{placement:?}");
    assert!(placement.terms.is_empty(), "nodes of a flavor that says nothing of spot will do: {placement:?}");
    assert!(placement.refused["karpenter.sh/capacity-type"].contains("spot"), "{placement:?}");
    assert!(placement.refused["cloud.google.com/gke-spot"].contains("true"), "{placement:?}");
    assert_eq!(
        obstacles(&choice, "cheap"),
        ["s", "t"].map(|flavor| format!(
            "the nodes of flavor {flavor} of queue default are spot, and the task's use_spot: false refuses those"
        ))
    );
    let either = asks("");
    let Outcome::Run(placement) = &either.outcome else { panic!("{either:?}") };
    assert!(
        placement.now && placement.refused.is_empty(),
        "without a wish it takes what has room: {placement:?}"
    );
}

#[test]
fn a_flavor_s_taints_must_be_tolerated_and_its_labels_selected() {
    let taint =
        |effect: &str| Taint { key: "gpu".to_owned(), value: String::new(), effect: effect.to_owned() };
    let mut tainted = cluster("a", (8, 0));
    tainted.queues[0].groups[0].flavors[0].taints = vec![taint("NoSchedule")];
    let clusters = || vec![tainted.clone()];
    let refused = decide(GPUS, &wish(), clusters());
    assert_eq!(
        obstacles(&refused, "a"),
        [
            "the nodes of flavor gpu of queue default are tainted gpu:NoSchedule, which the task does not tolerate"
        ]
    );
    let tolerating = format!(
        "{GPUS}config: {{kubernetes: {{pod_config: {{spec: {{tolerations: [{{key: gpu, operator: Exists}}]}}}}}}}}\n"
    );
    assert_eq!(chosen(&decide(&tolerating, &wish(), clusters())), Some(("a", true)));

    let zone = |name, zone| flavor(name, &[("zone", zone)], &[("nvidia.com/gpu", (8, 0))]);
    let zones = || {
        vec![ClusterView {
            queues: vec![queue(vec![zone("f1", "a"), zone("f2", "b")])],
            ..cluster("z", (0, 0))
        }]
    };
    let selecting = |zone: &str| {
        format!(
            "{GPUS}config: {{kubernetes: {{pod_config: {{spec: {{nodeSelector: {{zone: {zone}, other: x}}}}}}}}}}\n"
        )
    };
    let choice = decide(&selecting("b"), &wish(), zones());
    let Verdict::Fits(offer) = &choice.verdicts[&cluster_name("z")] else { panic!("{choice:?}") };
    assert!(offer.numbers.iter().all(|number| number.flavor.as_str() == "f2"));
    assert_eq!(
        obstacles(&decide(&selecting("c"), &wish(), zones()), "z"),
        ["no flavor of queue default that fits has the zone of the nodeSelector"]
    );
}

#[test]
fn volumes_hold_a_task_to_their_cluster() {
    let with = |name, shared| ClusterView {
        volumes: [("data".to_owned(), volume(shared))].into(),
        ..cluster(name, (8, 8))
    };
    let text = "run: x\nvolumes: {/d: data}\nresources: {accelerators: 1}\n";
    let free = ClusterView {
        elsewhere: [("data".to_owned(), cluster_name("here"))].into(),
        ..cluster("free", (8, 0))
    };
    let choice = decide(text, &wish(), vec![with("here", false), free, cluster("else", (8, 0))]);
    assert_eq!(chosen(&choice), Some(("here", false)));
    assert_eq!(obstacles(&choice, "free"), ["volume data is on here"]);
    assert_eq!(
        obstacles(&choice, "else"),
        [
            "volume data is not there: fedq volume list says where it is, fedq volume create data SIZE makes it, fedq volume \
             adopt data takes a claim that is on a cluster"
        ]
    );
    let gang = decide(&format!("{text}num_nodes: 2\n"), &wish(), vec![with("a", false), with("b", true)]);
    assert_eq!(chosen(&gang), Some(("b", false)));
    assert!(obstacles(&gang, "a")[0].contains("num_nodes: 1"));
}

#[test]
fn a_claim_that_was_there_holds_a_task_to_its_cluster() {
    let mut task = task(
        "run: x\nresources: {accelerators: 1}\nvolumes:\n  /a: {claim: data, cluster: here, read_only: true}\n  \
         /b: {claim: data, cluster: here}\n  /c: {claim: other, cluster: here, read_only: true}\n",
    );
    let view = || View { clusters: vec![cluster("here", (8, 8)), cluster("free", (8, 0))] };
    let choice = choose(&task, &wish(), &view(), Weights::default());
    assert_eq!(chosen(&choice), Some(("here", false)));
    let on = ["volume here/data is on here", "volume here/other is on here"];
    assert_eq!(obstacles(&choice, "free"), on);
    let Outcome::Run(placement) = choice.outcome else { panic!("it runs") };
    let claims: Vec<_> = placement.claims.iter().map(|(key, claim)| (key.as_str(), claim.as_str())).collect();
    assert_eq!(claims, [("here/data", "data"), ("here/other", "other")]);
    assert_eq!(
        placement.read_only.iter().collect::<Vec<_>>(),
        ["here/other"],
        "the other is written to as well"
    );

    task.num_nodes = 2;
    let gang = choose(&task, &wish(), &view(), Weights::default());
    assert!(obstacles(&gang, "here")[0].contains("here/data can be mounted by one node only"));
    for claim in task.volumes.iter_mut().filter_map(|mount| mount.claim.as_mut()) {
        claim.shared = true;
    }
    assert_eq!(chosen(&choose(&task, &wish(), &view(), Weights::default())), Some(("here", false)));
}

#[test]
fn a_node_must_be_large_enough_for_one_node_of_the_task() {
    let mut small = cluster("a", (64, 0));
    let gpus = ResourceName::new("nvidia.com/gpu").expect("a name");
    small.queues[0].groups[0].flavors[0].largest_node.insert(gpus, Amount::new(4));
    let choice = decide("run: x\nresources: {accelerators: 8}", &wish(), vec![small.clone()]);
    assert_eq!(
        obstacles(&choice, "a"),
        ["the largest node of flavor gpu has 4 nvidia.com/gpu, one node of the task needs 8"]
    );
    assert_eq!(
        chosen(&decide("run: x\nnum_nodes: 2\nresources: {accelerators: 4}", &wish(), vec![small])),
        Some(("a", true))
    );
}

#[test]
fn where_all_nodes_go_to_one_machine_it_must_hold_them_and_may_mount_what_is_no_others() {
    let mut together = task("run: x\nnum_nodes: 2\nvolumes: {/d: data}\nresources: {accelerators: 4}");
    together.one_machine = true;
    let with = |largest| {
        let mut one = cluster("a", (64, 0));
        one.volumes = [("data".to_owned(), volume(false))].into();
        let gpus = ResourceName::new("nvidia.com/gpu").expect("a name");
        one.queues[0].groups[0].flavors[0].largest_node.insert(gpus, Amount::new(largest));
        choose(&together, &wish(), &view(vec![one]), Weights::default())
    };
    assert_eq!(chosen(&with(8)), Some(("a", true)));
    assert_eq!(
        obstacles(&with(7), "a"),
        ["the largest node of flavor gpu has 7 nvidia.com/gpu, all nodes of the task together need 8"]
    );
}

#[test]
fn weights_spread_or_fill() {
    let clusters = || vec![cluster("empty", (8, 0)), cluster("used", (8, 3))];
    let with = |spread| {
        let weights = Weights { spread, ..Weights::default() };
        let choice = choose(&task(GPUS), &wish(), &view(clusters()), weights);
        chosen(&choice).map(|(cluster, _)| cluster.to_owned())
    };
    assert_eq!(with(1).as_deref(), Some("empty"));
    assert_eq!(with(-1).as_deref(), Some("used"));
}

#[test]
fn a_waiting_task_spills_only_to_where_there_is_room() {
    let waiting = Waiting {
        cluster: cluster_name("full"),
        since: Timestamp::UNIX_EPOCH,
        spill_after: Duration::from_secs(30),
        spills: 0,
    };
    let at = |seconds| Timestamp::from_second(seconds).expect("a time");
    let avoid = Wish { avoid: Some(cluster_name("full")), ..wish() };
    let room = decide(GPUS, &avoid, vec![cluster("full", (8, 8)), cluster("free", (8, 0))]);
    assert_eq!(spill(&waiting, at(29), &room), None);
    assert_eq!(spill(&waiting, at(30), &room), Some(cluster_name("free")));
    let none = decide(GPUS, &avoid, vec![cluster("full", (8, 8)), cluster("other", (8, 7))]);
    assert_eq!(spill(&waiting, at(99), &none), None);
    // A clock that went back is no reason to move.
    assert_eq!(spill(&waiting, at(-99), &room), None);
    let pinned = Wish { cluster: Some(cluster_name("full")), ..wish() };
    let pinned = decide(GPUS, &pinned, vec![cluster("full", (8, 8)), cluster("free", (8, 0))]);
    assert_eq!(spill(&waiting, at(99), &pinned), None);
    // Twice as long each time, and no number of times is too large.
    for (spills, until) in [(0, 30), (1, 60), (3, 240)] {
        let waiting = Waiting { spills, ..waiting.clone() };
        assert_eq!(spill(&waiting, at(until - 1), &room), None, "{spills}");
        assert_eq!(spill(&waiting, at(until), &room), Some(cluster_name("free")), "{spills}");
    }
    let waiting = Waiting { spills: u32::MAX, ..waiting };
    assert_eq!(spill(&waiting, at(1_000_000_000), &room), None);
}

#[test]
fn recovery_elsewhere_avoids_where_it_was() {
    let eager = task("run: x\nresources: {job_recovery: EAGER_NEXT_REGION}");
    assert_eq!(avoided(&eager, cluster_name("a"), false), Some(cluster_name("a")));
    assert_eq!(avoided(&task("run: x"), cluster_name("a"), false), None);
    let wish = Wish { avoid: Some(cluster_name("a")), ..wish() };
    let choice = decide(GPUS, &wish, vec![cluster("a", (8, 0)), cluster("b", (8, 2))]);
    assert_eq!(chosen(&choice), Some(("b", true)));
    // Better there than nowhere.
    assert_eq!(chosen(&decide(GPUS, &wish, vec![cluster("a", (8, 0))])), Some(("a", true)));
}

fn any_cluster(name: String) -> impl Strategy<Value = ClusterView> {
    let kinds = proptest::sample::select(vec!["H100", "A100"]);
    let numbers = (kinds, 0_i64..20, 0_i64..25, 0_i64..4, proptest::option::of(1_i64..10));
    let access =
        proptest::sample::select(vec![Access::Ready, Access::Ready, Access::Silent, Access::Cordoned]);
    let volume = proptest::option::of(any::<bool>());
    (proptest::collection::vec(numbers, 0..3), access, volume, any::<bool>(), 0_u32..5).prop_map(
        move |(flavors, access, shared, active, pending)| {
            let made =
                flavors.iter().enumerate().map(|(index, (kind, nominal, reserved, flying, largest))| {
                    let labels = [("gpu.nvidia.com/class", *kind)];
                    let mut made =
                        flavor(&format!("f{index}"), &labels, &[("nvidia.com/gpu", (*nominal, *reserved))]);
                    let gpus = made.cells.get_mut("nvidia.com/gpu").expect("a cell");
                    *gpus = gpus.with_in_flight(Amount::new(*flying));
                    let gpus = ResourceName::new("nvidia.com/gpu").expect("a name");
                    made.largest_node.extend(largest.map(|largest| (gpus, Amount::new(largest))));
                    made
                });
            let queue = view::QueueView { active, pending, ..queue(made.collect()) };
            ClusterView {
                name: cluster_name(&name),
                access,
                queues: vec![queue],
                promised: [].into(),
                elsewhere: [].into(),
                volumes: shared
                    .map(|shared| ("data".to_owned(), crate::task::testing::volume(shared)))
                    .into_iter()
                    .collect(),
            }
        },
    )
}

fn any_view() -> impl Strategy<Value = Vec<ClusterView>> {
    (0_usize..6)
        .prop_flat_map(|count| (0..count).map(|index| any_cluster(format!("c{index}"))).collect::<Vec<_>>())
}

const TASKS: [&str; 5] = [
    "run: x\n",
    "run: x\nresources: {accelerators: 3}\n",
    "run: x\nnum_nodes: 3\nresources: {accelerators: H100:2}\n",
    "run: x\nnum_nodes: 2\nvolumes: {/d: data}\nresources: {accelerators: [A100:4, H100:2]}\n",
    "run: x\nresources: {any_of: [{infra: k8s/c1, accelerators: 1}, {accelerators: A100:8}]}\n",
];

/// By plain arithmetic: whether one flavor of the cluster has room for all nodes, now or ever.
fn holds(task: &TaskSpec, index: usize, cluster: &ClusterView, now: bool) -> bool {
    let Some(wanted) = &task.candidates[index].accelerator else { return true };
    let nodes = i64::from(task.num_nodes);
    cluster.queues[0].groups[0].flavors.iter().any(|flavor| {
        let kind = wanted.kind.as_deref();
        let cell = &flavor.cells["nvidia.com/gpu"];
        let room = if now {
            cell.nominal.units() - cell.reserved.units() - cell.in_flight.units()
        } else {
            cell.nominal.units()
        };
        let one = i64::from(wanted.count);
        kind.is_none_or(|kind| flavor.node_labels["gpu.nvidia.com/class"] == kind)
            && one * nodes <= room
            && flavor.largest_node.get("nvidia.com/gpu").is_none_or(|largest| one <= largest.units())
    })
}

#[test]
fn a_form_that_is_within_the_limits_is_taken_and_else_the_task_waits_with_its_reason() {
    let gpus = |count: i64| Taken { gpus: Amount::new(count), cpu: Amount::ZERO };
    let bounds = Bounds { gpus: Some(Amount::new(4)), cpu: None };
    let limits = Limits { per_user: bounds, ..Limits::default() };
    let room =
        |taken: i64| Some(Room { limits, of_all: gpus(taken), of_user: gpus(taken), ..Room::default() });
    let task = task("run: x\nresources: {ordered: [{accelerators: 4}, {accelerators: 2}]}\n");
    let view = View { clusters: vec![cluster("one", (8, 0)), cluster("two", (1, 0))] };
    let choice = |taken: i64| choose(&task, &Wish { room: room(taken), ..wish() }, &view, Weights::default());
    for (taken, candidate) in [(0, Some(0)), (1, Some(1)), (2, Some(1)), (3, None)] {
        let chosen = match choice(taken).outcome {
            Outcome::Run(placement) => Some(placement.candidate),
            Outcome::Limited(excess) => {
                assert!(excess.to_string().contains("this one needs 4 while others take 3"), "{excess}");
                None
            }
            Outcome::Wait | Outcome::Never => panic!("one has room"),
        };
        assert_eq!(chosen, candidate, "others take {taken}");
    }
    assert!(
        matches!(choice(3).verdicts[&cluster_name("one")], Verdict::Fits(_)),
        "the cluster itself has room"
    );
    let nowhere = View { clusters: vec![cluster("two", (1, 0))] };
    let wish = Wish { room: room(9), ..wish() };
    assert_eq!(
        choose(&task, &wish, &nowhere, Weights::default()).outcome,
        Outcome::Never,
        "that comes first"
    );
}

proptest! {
    #[test]
    fn nothing_goes_where_it_cannot_fit_and_order_is_of_no_consequence(
        clusters in any_view(),
        text in proptest::sample::select(TASKS.to_vec()),
        avoid in any::<bool>(),
        turn in 0_usize..6,
    ) {
        let task = task(text);
        let wish = Wish { avoid: avoid.then(|| cluster_name("c0")), ..wish() };
        let choice = choose(&task, &wish, &view(clusters.clone()), Weights::default());
        prop_assert_eq!(choice.verdicts.len(), clusters.len());
        let mut turned = clusters.clone();
        turned.rotate_left(turn.min(clusters.len()));
        prop_assert_eq!(&choose(&task, &wish, &view(turned), Weights::default()), &choice);

        let able = |cluster: &ClusterView, now: bool| {
            let volumes = task.volumes.is_empty()
                || cluster.volumes.get("data").is_some_and(|volume| volume.shared || task.num_nodes == 1);
            // An empty queue covers nothing.
            let covered = !cluster.queues[0].groups[0].flavors.is_empty() || task.candidates[0].accelerator.is_none();
            (0..task.candidates.len()).any(|index| {
                let here = task.candidates[index].cluster.as_ref().is_none_or(|wanted| *wanted == cluster.name);
                volumes && covered && here && holds(&task, index, cluster, now)
                    && (!now || cluster.queues[0].active)
            })
        };
        for cluster in &clusters {
            match &choice.verdicts[&cluster.name] {
                Verdict::Never(obstacles) => {
                    prop_assert!(!able(cluster, false), "{} could", cluster.name);
                    prop_assert!(!obstacles.is_empty());
                }
                Verdict::Fits(_) => prop_assert!(able(cluster, true)),
                Verdict::Waits(_) => prop_assert!(able(cluster, false) && !able(cluster, true)),
                Verdict::Away(..) => prop_assert!(able(cluster, false) && cluster.access != Access::Ready),
            }
        }
        let ready = |now| clusters.iter().any(|cluster| cluster.access == Access::Ready && able(cluster, now));
        match &choice.outcome {
            Outcome::Run(placement) => {
                let cluster = clusters.iter().find(|cluster| cluster.name == placement.cluster).expect("joined");
                prop_assert_eq!(cluster.access, Access::Ready);
                prop_assert!(able(cluster, placement.now));
                prop_assert_eq!(placement.now, ready(true));
                prop_assert!(placement.claims.len() == task.volumes.len());
            }
            Outcome::Wait => prop_assert!(!ready(false)),
            Outcome::Limited(_) => prop_assert!(false, "there are no limits"),
            Outcome::Never => prop_assert!(!clusters.iter().any(|cluster| able(cluster, false))),
        }
    }
}
