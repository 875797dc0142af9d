use std::mem::size_of;

use proptest::prelude::*;

use super::*;
use crate::capacity::{MaxCapacity, TaintFacts, Toleration};

const ALLOCATABLE: &[(&str, &str)] = &[
    ("cpu", "96"),
    ("ephemeral-storage", "1000Gi"),
    ("memory", "1024Gi"),
    ("nvidia.com/gpu", "8"),
    ("pods", "110"),
];

fn node<'a>(name: &'a str, labels: &'a [(&'a str, &'a str)]) -> NodeFacts<'a> {
    NodeFacts { name, labels, allocatable: ALLOCATABLE, ready: true, ..NodeFacts::default() }
}

fn flavor(name: &str, labels: &[(&str, &str)]) -> Flavor {
    Flavor {
        name: FlavorName::new(name).expect("a flavor name"),
        node_labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        node_taints: vec![],
        tolerations: vec![],
        max_capacity: MaxCapacity::default(),
    }
}

fn table() -> NodeTable {
    NodeTable::new(["pool".to_owned(), "zone".to_owned()].into(), ResourceFilter::default())
}

fn of(resources: &Resources, name: &str) -> i64 {
    resources.get(name_of(name).as_str()).map_or(0, |amount| amount.units())
}

fn name_of(name: &str) -> ResourceName {
    ResourceName::new(name).expect("a resource name")
}

fn gpus(table: &NodeTable, flavor: &Flavor) -> i64 {
    let capacity = table.capacity(std::slice::from_ref(flavor), &Headroom::default());
    of(&capacity.by_flavor[&flavor.name], "nvidia.com/gpu")
}

#[test]
fn a_heartbeat_changes_nothing() {
    let mut table = table();
    let mut facts = node("n", &[("pool", "gpu"), ("kubernetes.io/hostname", "n")]);
    assert!(table.set(&facts));
    assert!(!table.set(&facts));
    facts.labels = &[("other", "label"), ("pool", "gpu")];
    assert!(!table.set(&facts), "a label that no flavor names is of no interest");
    facts.allocatable = &[("pods", "1"), ("nvidia.com/gpu", "8000m"), ("memory", "1Ti"), ("cpu", "96000m")];
    assert!(!table.set(&facts), "the same amounts in other words");
    facts.labels = &[("pool", "cpu")];
    assert!(table.set(&facts));
    assert_eq!(table.len(), 1);
}

#[test]
fn only_usable_nodes_count() {
    let mut table = table();
    let any = flavor("any", &[]);
    table.set(&node("good", &[]));
    table.set(&NodeFacts { ready: false, ..node("not-ready", &[]) });
    table.set(&NodeFacts { unschedulable: true, ..node("cordoned", &[]) });
    table.set(&NodeFacts { deleting: true, ..node("leaving", &[]) });
    let capacity = table.capacity(std::slice::from_ref(&any), &Headroom::default());
    assert_eq!((capacity.nodes, of(&capacity.total, "cpu"), gpus(&table, &any)), (1, 96_000, 8));
    assert_eq!(table.len(), 4);
}

#[test]
fn pods_and_ephemeral_storage_are_not_quota() {
    let mut table = table();
    table.set(&node("n", &[]));
    let capacity = table.capacity(&[], &Headroom::default());
    assert_eq!(
        capacity.total.keys().map(ResourceName::as_str).collect::<Vec<_>>(),
        ["cpu", "memory", "nvidia.com/gpu"]
    );
    let filter = ResourceFilter { also: [name_of("pods")].into(), never: [name_of("cpu")].into() };
    let mut table = NodeTable::new(BTreeSet::new(), filter);
    table.set(&node("n", &[]));
    let capacity = table.capacity(&[], &Headroom::default());
    assert_eq!(
        capacity.total.keys().map(ResourceName::as_str).collect::<Vec<_>>(),
        ["memory", "nvidia.com/gpu", "pods"]
    );
}

#[test]
fn a_flavor_matches_labels_and_admits_taints() {
    let mut table = table();
    let taints = [TaintFacts { key: "gpu", value: "yes", effect: "NoSchedule" }];
    table.set(&NodeFacts { taints: &taints, ..node("n", &[("pool", "gpu")]) });
    let plain = flavor("plain", &[("pool", "gpu")]);
    assert_eq!(gpus(&table, &plain), 0, "the taint keeps it away");
    assert_eq!(gpus(&table, &flavor("elsewhere", &[("pool", "cpu")])), 0);
    let taint = Taint { key: "gpu".into(), value: "yes".into(), effect: "NoSchedule".into() };
    assert_eq!(gpus(&table, &Flavor { node_taints: vec![taint], ..plain.clone() }), 8);
    let toleration = |key: &str, operator: &str, value: &str, effect: &str| Flavor {
        tolerations: vec![Toleration {
            key: key.into(),
            operator: operator.into(),
            value: value.into(),
            effect: effect.into(),
        }],
        ..plain.clone()
    };
    for (admitted, key, operator, value, effect) in [
        (true, "gpu", "", "yes", "NoSchedule"),
        (true, "gpu", "Equal", "yes", ""),
        (true, "gpu", "Exists", "", "NoSchedule"),
        (true, "", "Exists", "", ""),
        (false, "", "Equal", "yes", ""),
        (false, "gpu", "Equal", "no", "NoSchedule"),
        (false, "gpu", "Equal", "yes", "NoExecute"),
        (false, "cpu", "Exists", "", ""),
        (false, "gpu", "Gt", "0", ""),
    ] {
        let found = gpus(&table, &toleration(key, operator, value, effect));
        assert_eq!(found == 8, admitted, "{key} {operator} {value} {effect}");
    }
}

#[test]
fn a_preference_does_not_keep_pods_away() {
    let mut table = table();
    let taints = [TaintFacts { key: "gpu", value: "", effect: "PreferNoSchedule" }];
    table.set(&NodeFacts { taints: &taints, ..node("n", &[]) });
    assert_eq!(gpus(&table, &flavor("any", &[])), 8);
}

#[test]
fn a_node_of_two_flavors_is_counted_once() {
    let mut table = table();
    table.set(&node("both", &[("pool", "gpu"), ("zone", "a")]));
    table.set(&node("one", &[("pool", "gpu")]));
    let flavors = [flavor("gpu", &[("pool", "gpu")]), flavor("zone-a", &[("zone", "a")])];
    let capacity = table.capacity(&flavors, &Headroom::default());
    let classes = capacity.classes.iter().map(|class| (class.flavors.len(), of(&class.total, "cpu")));
    assert_eq!(classes.collect::<Vec<_>>(), [(1, 96_000), (2, 96_000)]);
    assert_eq!(of(&capacity.by_flavor[&flavors[0].name], "cpu"), 192_000);
    assert_eq!(of(&capacity.total, "cpu"), 192_000);
}

#[test]
fn headroom_is_a_percentage_of_each_resource() {
    let mut table = table();
    table.set(&node("n", &[]));
    let headroom =
        Headroom { percent: 10, percent_of: [(name_of("nvidia.com/gpu"), 0)].into(), ..Headroom::default() };
    let capacity = table.capacity(&[flavor("any", &[])], &headroom);
    let usable = &capacity.classes[0].total;
    assert_eq!((of(usable, "cpu"), of(usable, "nvidia.com/gpu")), (86_400, 8));
    assert_eq!(of(&capacity.total, "cpu"), 96_000);
}

#[test]
fn a_limit_cuts_sets_of_nodes_in_proportion_and_flavors_with_them() {
    let mut table = table();
    for (name, pool) in [("a", "x"), ("b", "y"), ("c", "y"), ("d", "y")] {
        table.set(&node(name, &[("pool", pool)]));
    }
    let flavors = [flavor("x", &[("pool", "x")]), flavor("y", &[("pool", "y")]), flavor("all", &[])];
    let mut capacity = table.capacity(&flavors, &Headroom::default());
    capacity.limit(
        &[(name_of("nvidia.com/gpu"), Amount::new(16)), (name_of("cpu"), Amount::new(i64::MAX))].into(),
    );
    let gpus: Vec<i64> =
        flavors.iter().map(|flavor| of(&capacity.by_flavor[&flavor.name], "nvidia.com/gpu")).collect();
    assert_eq!(gpus, [4, 12, 16]);
    let classes = capacity.classes.iter().map(|class| of(&class.total, "nvidia.com/gpu"));
    assert_eq!(classes.sum::<i64>(), 16);
    assert_eq!(of(&capacity.total, "nvidia.com/gpu"), 16);
    assert_eq!(of(&capacity.by_flavor[&flavors[2].name], "cpu"), 4 * 96_000, "what is below its limit stays");
}

#[test]
fn a_bad_quantity_counts_zero_and_is_reported_until_it_is_good() {
    let mut table = table();
    let bad =
        NodeFacts { allocatable: &[("cpu", "many"), ("memory", "-5"), ("x/y", "1e1000")], ..node("n", &[]) };
    assert!(table.set(&bad));
    assert!(!table.set(&bad));
    let reported: Vec<_> =
        table.bad_quantities().map(|bad| (bad.resource.as_str(), bad.text.as_str())).collect();
    assert_eq!(reported, [("cpu", "many")]);
    let total = table.capacity(&[], &Headroom::default()).total;
    assert_eq!((of(&total, "cpu"), of(&total, "memory")), (0, 0));
    assert_eq!(of(&total, "x/y"), crate::capacity::MAX_QUOTA.units(), "kept below unlimited");
    table.set(&node("n", &[]));
    assert_eq!(table.bad_quantities().count(), 0);
}

#[test]
fn sums_of_enormous_nodes_do_not_wrap() {
    let mut table = table();
    for name in ["a", "b", "c"] {
        table.set(&NodeFacts { allocatable: &[("memory", "8Ei"), ("cpu", "9E")], ..node(name, &[]) });
    }
    let total = table.capacity(&[], &Headroom::default()).total;
    assert_eq!(of(&total, "memory"), crate::capacity::MAX_QUOTA.units());
    assert_eq!(of(&total, "cpu"), crate::capacity::MAX_QUOTA.units());
}

#[test]
fn a_node_without_allocatable_counts_zero() {
    let mut table = table();
    table.set(&NodeFacts { allocatable: &[], ..node("n", &[]) });
    let capacity = table.capacity(&[], &Headroom::default());
    assert_eq!((capacity.nodes, capacity.total), (1, Resources::new()));
}

#[test]
fn a_cluster_cannot_fill_our_memory_with_resource_names() {
    let mut table = table();
    for i in 0..2 * MAX_RESOURCES {
        let name = format!("x/r{i}");
        table.set(&NodeFacts { allocatable: &[(name.as_str(), "1")], ..node("n", &[]) });
    }
    assert!(table.resources.len() <= MAX_RESOURCES);
}

#[test]
fn a_relist_never_dips_and_names_what_is_gone() {
    let mut table = table();
    let any = flavor("any", &[]);
    for name in ["a", "b", "c"] {
        table.set(&node(name, &[]));
    }
    table.begin_list();
    assert!(!table.set(&node("b", &[])));
    assert_eq!(gpus(&table, &any), 24);
    assert!(table.set(&node("d", &[])));
    assert_eq!(table.end_list(), ["a", "c"]);
    assert_eq!((gpus(&table, &any), table.len()), (16, 2));
    table.begin_list();
    table.begin_list();
    table.set(&node("b", &[]));
    assert_eq!(table.end_list(), ["d"], "a list begun again forgets the one before");
}

#[test]
fn removing_a_node_removes_all_of_it() {
    let mut table = table();
    table.set(&node("a", &[("pool", "gpu")]));
    assert!(table.remove("a"));
    assert!(!table.remove("a"));
    assert!(table.groups.is_empty());
    assert_eq!(table.capacity(&[], &Headroom::default()), Capacity::default());
}

#[test]
fn a_row_restores_the_node_it_came_from() {
    let mut before = table();
    let taints = [TaintFacts { key: "k", value: "", effect: "NoExecute" }];
    before.set(&NodeFacts { taints: &taints, ..node("a", &[("pool", "gpu"), ("noise", "x")]) });
    let row = before.row("a").expect("the node is there");
    let text = serde_json::to_string(&row).expect("serializes");
    assert_eq!(
        text,
        r#"{"name":"a","usable":true,"labels":{"pool":"gpu"},"taints":[{"key":"k","effect":"NoExecute"}],"allocatable":{"cpu":96000,"memory":1099511627776,"nvidia.com/gpu":8}}"#
    );
    let mut after = table();
    after.restore(&serde_json::from_str(&text).expect("deserializes"));
    assert_eq!(after.row("a"), Some(row));
    assert!(!after.set(&NodeFacts { taints: &taints, ..node("a", &[("pool", "gpu")]) }));
}

/// Bytes of a table are those of its parts: the map's buckets (a power of two, at most 7/8 full, with
/// a control byte each) and the names. Everything else is shared between nodes.
#[test]
fn a_node_takes_at_most_160_bytes() {
    let mut table = table();
    let count = 10_000;
    for i in 0..count {
        let (name, memory) =
            (format!("gke-training-h100-pool-7d3f-{i:05}"), format!("{}Ki", 1_056_000_000 + i));
        let allocatable = [("cpu", "95690m"), ("memory", memory.as_str()), ("nvidia.com/gpu", "8")];
        table.set(&NodeFacts { allocatable: &allocatable, ..node(&name, &[("pool", "h100")]) });
    }
    let buckets = (table.nodes.capacity() * 8 / 7).next_power_of_two();
    let map = buckets * (size_of::<(Box<str>, Node)>() + 1);
    // A name of 34 bytes takes 48 of the allocator: its header, rounded up to 16.
    let names: usize = table.nodes.keys().map(|name| (name.len() + 8).next_multiple_of(16)).sum();
    let shared = table.groups.len() * 64;
    let bytes = (map + names + shared) / count;
    assert!(bytes <= 160, "{bytes} bytes a node");
    assert_eq!(table.groups.len(), 1, "memory alone does not make a kind of node");
    // The map is least full just after it has grown: 41 bytes in 7/16 of the buckets.
    let worst = (size_of::<(Box<str>, Node)>() + 1) * 16 / 7 + 48;
    assert!(worst <= 160, "{worst} bytes a node at worst");
}

proptest! {
    #[test]
    fn capacity_is_that_of_a_table_filled_anew(
        steps in prop::collection::vec((0_usize..6, 0_usize..3, any::<bool>(), 0_i64..4, any::<bool>()), 0..60)
    ) {
        let flavors = [flavor("gpu", &[("pool", "0")]), flavor("any", &[]), flavor("two", &[("pool", "1")])];
        let mut table = table();
        let mut model = BTreeMap::new();
        for (name, pool, ready, cpu, remove) in steps {
            let name = format!("n{name}");
            if remove {
                prop_assert_eq!(table.remove(&name), model.remove(&name).is_some());
            } else {
                let same = model.insert(name.clone(), (pool, ready, cpu)) == Some((pool, ready, cpu));
                prop_assert_eq!(fill(&mut table, &name, (pool, ready, cpu)), !same);
            }
        }
        let mut anew = self::table();
        for (name, facts) in model {
            fill(&mut anew, &name, facts);
        }
        let headroom = Headroom { percent: 7, ..Headroom::default() };
        prop_assert_eq!(table.capacity(&flavors, &headroom), anew.capacity(&flavors, &headroom));
    }
}

fn fill(table: &mut NodeTable, name: &str, (pool, ready, cpu): (usize, bool, i64)) -> bool {
    let (pool, cpu) = (pool.to_string(), cpu.to_string());
    let allocatable = [("cpu", cpu.as_str()), ("memory", cpu.as_str())];
    table.set(&NodeFacts { ready, allocatable: &allocatable, ..node(name, &[("pool", &pool)]) })
}

#[test]
fn the_largest_node_of_a_flavor_counts_whether_it_is_usable_now_or_not() {
    let mut table = table();
    let flavors = [flavor("gpu", &[("pool", "gpu")]), flavor("none", &[("pool", "none")])];
    table.set(&NodeFacts {
        allocatable: &[("cpu", "128"), ("memory", "1Ti")],
        ..node("a", &[("pool", "gpu")])
    });
    table.set(&NodeFacts { unschedulable: true, ..node("b", &[("pool", "gpu")]) });
    table.set(&NodeFacts { allocatable: &[("cpu", "500")], ..node("other", &[("pool", "cpu")]) });
    let capacity = table.capacity(&flavors, &Headroom::default());
    let largest = &capacity.largest_of[&flavors[0].name];
    assert_eq!((of(largest, "cpu"), of(largest, "nvidia.com/gpu")), (128_000, 8));
    assert!(!largest.contains_key(&name_of("memory")), "it is known on average only");
    assert!(!capacity.largest_of.contains_key(&flavors[1].name), "nothing is known of it");
    table.remove("b");
    let capacity = table.capacity(&flavors, &Headroom::default());
    assert_eq!(of(&capacity.largest_of[&flavors[0].name], "nvidia.com/gpu"), 0);
}
