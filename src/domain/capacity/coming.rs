//! Nodes that are not there and that an autoscaler would bring: what an administrator says that a flavor may have in all. It is
//! counted as nodes are, each once, so that what is planned with them keeps to the same rules.

use std::collections::{BTreeMap, BTreeSet};

use super::{Flavor, MAX_QUOTA};
use crate::resources::Resources;
use fedq_values::{
    ids::{FlavorName, ResourceName},
    quantity::{Amount, Quantity},
};

/// On a ResourceFlavor.
pub const MAX_CAPACITY: &str = "fedq.dev/max-capacity";
/// More whole devices, cores or GiB than any cluster has: somebody mistyped.
const MOST: i64 = 1_000_000_000;
const MOST_RESOURCES: usize = 16;
/// Flavors of a cluster that may have one. Nodes that might come are shared out among them, one by one.
const MOST_FLAVORS: usize = 64;
const SHOWN: usize = 80;

/// The most that a flavor may have on a cluster.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MaxCapacity {
    pub amounts: Resources,
    /// What of it is not obeyed, and why.
    pub wrong: Vec<String>,
}

impl MaxCapacity {
    /// `nvidia.com/gpu=64, cpu=768, memory=8Ti`
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            if MOST_RESOURCES <= found.amounts.len() + found.wrong.len() {
                found.wrong.push(format!("more than {MOST_RESOURCES} resources"));
                break;
            }
            let shown = || entry.chars().take(SHOWN).collect::<String>();
            match read(entry) {
                Err(why) => found.wrong.push(format!("`{}`: {why}", shown())),
                Ok((resource, _)) if found.amounts.contains_key(&resource) => {
                    found.wrong.push(format!("`{}`: it is there twice, the first counts", shown()));
                }
                Ok((resource, amount)) => drop(found.amounts.insert(resource, amount)),
            }
        }
        found
    }
}

/// Leaves the maximum to as many flavors as may have one, the first by name.
pub fn bound(flavors: &mut [Flavor]) {
    let mut having: Vec<&mut Flavor> =
        flavors.iter_mut().filter(|flavor| !flavor.max_capacity.amounts.is_empty()).collect();
    having.sort_by(|one, other| one.name.cmp(&other.name));
    for flavor in having.into_iter().skip(MOST_FLAVORS) {
        flavor.max_capacity.amounts.clear();
        flavor.max_capacity.wrong.push(format!("more than {MOST_FLAVORS} flavors have one"));
    }
}

fn read(entry: &str) -> Result<(ResourceName, Amount), String> {
    let (name, text) = entry.split_once('=').ok_or("write it as nvidia.com/gpu=64")?;
    let resource = ResourceName::new(name.trim()).map_err(|error| error.to_string())?;
    let quantity = Quantity::parse(text.trim()).map_err(|error| error.to_string())?;
    if quantity < Quantity::ZERO {
        return Err("it is less than 0".to_owned());
    }
    let amount = Amount::offered(quantity, &resource);
    let one = match resource.as_str() {
        "cpu" => 1000,
        _ if resource.is_bytes() => 1 << 30,
        _ => 1,
    };
    if MOST.saturating_mul(one).min(MAX_QUOTA.units()) < amount.units() {
        return Err("no cluster has so much".to_owned());
    }
    Ok((resource, amount))
}

/// What may come, for nodes that these flavors match.
pub(super) struct Coming {
    pub flavors: BTreeSet<FlavorName>,
    pub resource: ResourceName,
    pub units: i64,
}

/// `held`: what nodes of a flavor have of a resource, those that are broken or cordoned among them: an autoscaler counts them
/// too, and brings none in their place.
///
/// Of flavors that match the same nodes, those that ask for most labels come first: the others get their nodes as well, and
/// of their own only what is missing then. No flavor gets more than its maximum by that, whoever else has more.
pub(super) fn coming(
    flavors: &[Flavor],
    held: impl Fn(&FlavorName, &ResourceName) -> i64,
    counts: impl Fn(&ResourceName) -> bool,
) -> Vec<Coming> {
    let mut found = Vec::new();
    let mut rooms: BTreeMap<(&FlavorName, &ResourceName), i64> = BTreeMap::new();
    for flavor in flavors {
        for (resource, most) in &flavor.max_capacity.amounts {
            let room = most.units().saturating_sub(held(&flavor.name, resource)).max(0);
            rooms.insert((&flavor.name, resource), room);
        }
    }
    let mut order: Vec<&Flavor> = flavors.iter().collect();
    order.sort_by_key(|flavor| (std::cmp::Reverse(flavor.node_labels.len()), &flavor.name));
    for flavor in order {
        for resource in flavor.max_capacity.amounts.keys().filter(|resource| counts(resource)) {
            let mut sharing: Vec<&Flavor> =
                flavors.iter().filter(|other| other.takes_nodes_of(flavor)).collect();
            while let Some(left) = rooms.get(&(&flavor.name, resource)).copied().filter(|left| 0 < *left) {
                let room = |other: &Flavor| rooms.get(&(&other.name, resource)).copied();
                sharing.retain(|other| room(other).is_none_or(|room| 0 < room));
                let units = sharing.iter().filter_map(|other| room(other)).min().unwrap_or(left).min(left);
                for other in &sharing {
                    if let Some(room) = rooms.get_mut(&(&other.name, resource)) {
                        *room -= units;
                    }
                }
                let flavors = sharing.iter().map(|other| other.name.clone()).collect();
                found.push(Coming { flavors, resource: resource.clone(), units });
            }
        }
    }
    found
}

impl Flavor {
    /// Whether nodes that are made for another flavor are its as well, as far as that one says what they are like.
    fn takes_nodes_of(&self, other: &Self) -> bool {
        let labelled = self.node_labels.iter().all(|(key, value)| other.node_labels.get(key) == Some(value));
        labelled && other.node_taints.iter().all(|taint| self.admits(taint))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::capacity::{Headroom, NodeFacts, NodeTable, ResourceFilter, TaintFacts, Toleration};

    fn gpu() -> ResourceName {
        ResourceName::new("nvidia.com/gpu").expect("a resource's name")
    }

    fn flavor(name: &str, labels: &[(&str, &str)], most: &str) -> Flavor {
        Flavor {
            name: FlavorName::new(name).expect("a flavor's name"),
            node_labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            node_taints: Vec::new(),
            tolerations: Vec::new(),
            max_capacity: MaxCapacity::parse(most),
        }
    }

    /// Nodes with these labels and so many GPUs each.
    fn table(nodes: &[(&[(&str, &str)], i64)]) -> NodeTable {
        let keys = ["pool", "zone"].map(str::to_owned).into();
        let mut table = NodeTable::new(keys, ResourceFilter::default());
        for (number, (labels, gpus)) in nodes.iter().enumerate() {
            let gpus = gpus.to_string();
            table.set(&NodeFacts {
                name: &format!("n{number}"),
                labels,
                allocatable: &[("nvidia.com/gpu", &gpus)],
                ready: true,
                ..NodeFacts::default()
            });
        }
        table
    }

    /// By sets of flavors.
    fn classes(table: &NodeTable, flavors: &[Flavor], headroom: &Headroom) -> Vec<(String, i64)> {
        let capacity = table.capacity(flavors, headroom);
        let class = |class: &crate::capacity::NodeClass| {
            let names: Vec<&str> = class.flavors.iter().map(FlavorName::as_str).collect();
            (names.join("+"), class.total.get(&gpu()).map_or(0, |amount| amount.units()))
        };
        capacity.classes.iter().map(class).collect()
    }

    #[test]
    fn what_is_hostile_is_told_and_not_obeyed() {
        let found = MaxCapacity::parse("nvidia.com/gpu=8, cpu=1500m,,memory=2Ti");
        let amounts: Vec<(&str, i64)> =
            found.amounts.iter().map(|(name, amount)| (name.as_str(), amount.units())).collect();
        assert_eq!(amounts, [("cpu", 1500), ("memory", 2 << 40), ("nvidia.com/gpu", 8)]);
        assert!(found.wrong.is_empty(), "{:?}", found.wrong);
        for (text, told) in [
            ("nvidia.com/gpu=-8", "less than 0"),
            ("nvidia.com/gpu=1e30", "`nvidia.com/gpu=1e30`"),
            ("nvidia.com/gpu=1000000001", "no cluster has so much"),
            ("cpu=9223372036854775807", "no cluster has so much"),
            ("memory=1000000001Gi", "no cluster has so much"),
            ("nvidia.com/gpu=many", "`nvidia.com/gpu=many`"),
            ("nvidia.com/gpu", "write it as"),
            ("a b=1", "`a b=1`"),
            ("=1", "`=1`"),
        ] {
            let found = MaxCapacity::parse(text);
            assert!(found.amounts.is_empty(), "{text}");
            assert!(found.wrong.len() == 1 && found.wrong[0].contains(told), "{text}: {:?}", found.wrong);
        }
        let twice = MaxCapacity::parse("cpu=1,cpu=2");
        assert_eq!((twice.amounts.values().next(), twice.wrong.len()), (Some(&Amount::new(1000)), 1));
        let long: Vec<String> = (0..200).map(|number| format!("example.com/r{number}=1")).collect();
        let found = MaxCapacity::parse(&long.join(","));
        assert_eq!((found.amounts.len(), found.wrong.len()), (MOST_RESOURCES, 1));
        let name = "x".repeat(1 << 16);
        assert!(MaxCapacity::parse(&name).wrong[0].len() < 200);
    }

    #[test]
    fn a_flavor_has_what_is_there_or_what_may_come_whichever_is_more() {
        let pool: &[(&str, &str)] = &[("pool", "a")];
        let a = |most: &str| [flavor("a", pool, most)];
        let of = |table: &NodeTable, most: &str| classes(table, &a(most), &Headroom::default());
        let all = |units: i64| vec![("a".to_owned(), units)];
        assert_eq!(of(&table(&[]), ""), []);
        assert_eq!(of(&table(&[]), "nvidia.com/gpu=16"), all(16));
        assert_eq!(of(&table(&[(pool, 8)]), "nvidia.com/gpu=16"), all(16));
        assert_eq!(of(&table(&[(pool, 8), (pool, 8), (pool, 8)]), "nvidia.com/gpu=16"), all(24));
        assert_eq!(of(&table(&[(pool, 8)]), "nvidia.com/gpu=-16"), all(8));
        let headroom = Headroom { percent: 25, ..Headroom::default() };
        assert_eq!(classes(&table(&[(pool, 8)]), &a("nvidia.com/gpu=16"), &headroom), all(12));
        let capacity = table(&[(pool, 8)]).capacity(&a("nvidia.com/gpu=16"), &Headroom::default());
        let name = FlavorName::new("a").expect("a flavor's name");
        let units = |of: &BTreeMap<FlavorName, Resources>| of[&name][&gpu()].units();
        assert_eq!(
            (units(&capacity.by_flavor), units(&capacity.coming)),
            (8, 8),
            "each is told as what it is"
        );
        assert_eq!(capacity.total[&gpu()].units(), 8);
        let mut limited = capacity;
        limited.limit(&Resources::from([(gpu(), Amount::new(10))]));
        assert_eq!(limited.classes[0].total[&gpu()].units(), 10, "the operator's limit is above it");
        assert_eq!((units(&limited.by_flavor), units(&limited.coming)), (8, 2));
        assert_eq!(limited.to_come[&gpu()].units(), 2);
    }

    const POOL: &[(&str, &str)] = &[("pool", "a")];
    const EIGHT: &[(&str, &str)] = &[("nvidia.com/gpu", "8")];

    /// What a flavor of at most 16 has, with what may come, where one of two nodes is in that state.
    fn with_one(flavors: &[Flavor], facts: NodeFacts<'_>) -> i64 {
        let mut table = table(&[(POOL, 8), (POOL, 8)]);
        // It was as the other one before.
        table.set(&NodeFacts { name: "n1", labels: POOL, allocatable: EIGHT, ..facts });
        let capacity = table.capacity(flavors, &Headroom::default());
        let name = &flavors[0].name;
        let of = |amounts: Option<&Resources>| {
            amounts.and_then(|amounts| amounts.get(&gpu())).map_or(0, |amount| amount.units())
        };
        of(capacity.by_flavor.get(name)) + of(capacity.coming.get(name))
    }

    #[test]
    fn nothing_comes_in_place_of_a_node_that_is_there_and_broken() {
        let a = [flavor("a", POOL, "nvidia.com/gpu=16")];
        let ready = NodeFacts { ready: true, ..NodeFacts::default() };
        assert_eq!(with_one(&a, ready), 16);
        let taint = |key| [TaintFacts { key, value: "", effect: "NoSchedule" }];
        let (not_ready, cordoned, broken) = (
            taint("node.kubernetes.io/not-ready"),
            taint("node.kubernetes.io/unschedulable"),
            taint("example.com/broken"),
        );
        assert_eq!(with_one(&a, NodeFacts { taints: &not_ready, ..NodeFacts::default() }), 8);
        assert_eq!(with_one(&a, NodeFacts { unschedulable: true, taints: &cordoned, ..ready }), 8);
        assert_eq!(with_one(&a, NodeFacts { taints: &broken, ..ready }), 8);
        for key in ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"] {
            let going = taint(key);
            assert_eq!(with_one(&a, NodeFacts { taints: &going, ..ready }), 16, "{key}: it is replaced");
        }
        assert_eq!(with_one(&a, NodeFacts { deleting: true, ..ready }), 16);
        let anything = Toleration { operator: "Exists".to_owned(), ..Toleration::default() };
        let tolerant = [Flavor { tolerations: vec![anything], ..a[0].clone() }];
        let going = taint("karpenter.sh/disrupted");
        assert_eq!(
            with_one(&tolerant, NodeFacts { taints: &going, ..ready }),
            16,
            "it counts as long as it is there"
        );
    }

    #[test]
    fn a_node_that_starts_is_one_of_those_that_come() {
        let taint = |key| TaintFacts { key, value: "", effect: "NoSchedule" };
        let a = [flavor("a", POOL, "nvidia.com/gpu=16")];
        let mut table = table(&[(POOL, 8)]);
        let units = |table: &mut NodeTable, facts: NodeFacts<'_>| {
            table.set(&NodeFacts { name: "new", labels: POOL, allocatable: EIGHT, ..facts });
            let capacity = table.capacity(&a, &Headroom::default());
            let of = |amounts: &BTreeMap<FlavorName, Resources>| {
                amounts.get(&a[0].name).and_then(|amounts| amounts.get(&gpu())).map_or(0, |all| all.units())
            };
            (of(&capacity.by_flavor), of(&capacity.coming))
        };
        let (not_ready, agent) =
            ([taint("node.kubernetes.io/not-ready")], [taint("example.com/agent-not-ready")]);
        let ready = NodeFacts { ready: true, ..NodeFacts::default() };
        assert_eq!(units(&mut table, NodeFacts { taints: &not_ready, ..NodeFacts::default() }), (8, 8));
        assert_eq!(units(&mut table, NodeFacts { taints: &agent, ..ready }), (8, 8), "its agent is to come");
        assert_eq!(units(&mut table, ready), (16, 0));
        let row = table.row("new").expect("a node");
        table.restore(&row);
        assert_eq!(units(&mut table, NodeFacts { taints: &not_ready, ..NodeFacts::default() }), (8, 0));
        let row = table.row("new").expect("a node");
        table.restore(&row);
        assert_eq!(units(&mut table, NodeFacts { taints: &agent, ..ready }), (8, 0), "after a restart, too");
    }

    #[test]
    fn nodes_whose_pool_keeps_a_flavor_off_are_none_of_its() {
        let taints = [TaintFacts { key: "fast", value: "", effect: "NoSchedule" }];
        let mut table = table(&[(POOL, 8)]);
        table.set(&NodeFacts {
            name: "fast",
            labels: POOL,
            allocatable: EIGHT,
            taints: &taints,
            ready: true,
            ..NodeFacts::default()
        });
        let slow = [flavor("slow", POOL, "nvidia.com/gpu=16")];
        assert_eq!(classes(&table, &slow, &Headroom::default()), [("slow".to_owned(), 16)]);
    }

    #[test]
    fn how_large_a_node_may_be_that_is_to_come_is_not_known() {
        let largest = |most: &str| {
            let capacity = table(&[(POOL, 4)]).capacity(&[flavor("a", POOL, most)], &Headroom::default());
            capacity.largest_of.values().find_map(|amounts| amounts.get(&gpu())).map(|amount| amount.units())
        };
        assert_eq!(largest(""), Some(4));
        assert_eq!(largest("nvidia.com/gpu=4"), Some(4), "no more will come");
        assert_eq!(largest("nvidia.com/gpu=8"), None);
    }

    #[test]
    fn flavors_beyond_what_can_be_shared_out_have_no_maximum_and_say_so() {
        let mut flavors: Vec<Flavor> =
            (0..200).rev().map(|number| flavor(&format!("f{number:03}"), POOL, "cpu=1")).collect();
        flavors.push(flavor("plain", POOL, ""));
        bound(&mut flavors);
        let obeyed = |flavor: &&Flavor| !flavor.max_capacity.amounts.is_empty();
        let names: Vec<&str> = flavors.iter().filter(obeyed).map(|flavor| flavor.name.as_str()).collect();
        assert_eq!((names.len(), names.last()), (MOST_FLAVORS, Some(&"f000")));
        let told = flavors.iter().filter(|flavor| !flavor.max_capacity.wrong.is_empty());
        assert_eq!(told.count(), 200 - MOST_FLAVORS);
    }

    #[test]
    fn nodes_that_may_come_for_several_flavors_count_once() {
        let pool: &[(&str, &str)] = &[("pool", "a")];
        let zone: &[(&str, &str)] = &[("pool", "a"), ("zone", "z")];
        let of = |flavors: &[Flavor]| classes(&table(&[]), flavors, &Headroom::default());
        let sixteen = "nvidia.com/gpu=16";
        let same = [flavor("a", pool, sixteen), flavor("b", pool, sixteen)];
        assert_eq!(of(&same), [("a+b".to_owned(), 16)]);
        assert_eq!(table(&[]).capacity(&same, &Headroom::default()).to_come[&gpu()].units(), 16);
        let within = [flavor("a", pool, "nvidia.com/gpu=24"), flavor("b", zone, sixteen)];
        assert_eq!(of(&within), [("a".to_owned(), 8), ("a+b".to_owned(), 16)]);
        let less = [flavor("a", pool, "nvidia.com/gpu=4"), flavor("b", zone, sixteen)];
        assert_eq!(of(&less), [("a+b".to_owned(), 4), ("b".to_owned(), 12)], "none gets more than it may");
        let silent = [flavor("a", pool, ""), flavor("b", zone, sixteen)];
        assert_eq!(of(&silent), [("a+b".to_owned(), 16)], "nodes for b are a's as well");
        let apart = [flavor("a", &[("pool", "x")], sixteen), flavor("b", pool, sixteen)];
        assert_eq!(of(&apart), [("a".to_owned(), 16), ("b".to_owned(), 16)]);
    }

    proptest! {
        #[test]
        fn no_flavor_gets_more_than_is_there_or_may_come(
            flavors in proptest::collection::vec((0..3_usize, 0..3_usize, proptest::option::of(0..40_i64)), 1..6),
            nodes in proptest::collection::vec((0..3_usize, 0..3_usize, 0..20_i64), 0..6),
        ) {
            let labels = |pool: usize, zone: usize| {
                let of = |key, at: usize| ["x", "y"].get(at).map(|value| (key, *value));
                [of("pool", pool), of("zone", zone)].into_iter().flatten().collect::<Vec<(&str, &str)>>()
            };
            let flavors: Vec<Flavor> = flavors.iter().enumerate().map(|(number, (pool, zone, most))| {
                let most = most.map(|most| format!("nvidia.com/gpu={most}")).unwrap_or_default();
                flavor(&format!("f{number}"), &labels(*pool, *zone), &most)
            }).collect();
            let labelled: Vec<_> = nodes.iter().map(|(pool, zone, gpus)| (labels(*pool, *zone), *gpus)).collect();
            let nodes: Vec<(&[(&str, &str)], i64)> =
                labelled.iter().map(|(labels, gpus)| (labels.as_slice(), *gpus)).collect();
            let capacity = table(&nodes).capacity(&flavors, &Headroom::default());
            let units = |of: &Resources| of.get(&gpu()).map_or(0, |amount| amount.units());
            for flavor in &flavors {
                let classes = capacity.classes.iter().filter(|class| class.flavors.contains(&flavor.name));
                let all: i64 = classes.map(|class| units(&class.total)).sum();
                let present = units(&capacity.by_flavor[&flavor.name]);
                prop_assert_eq!(all, present + capacity.coming.get(&flavor.name).map_or(0, units));
                if let Some(most) = flavor.max_capacity.amounts.get(&gpu()) {
                    prop_assert_eq!(all, present.max(most.units()));
                }
            }
            let most: i64 = flavors.iter().map(|flavor| units(&flavor.max_capacity.amounts)).sum();
            let there: i64 = nodes.iter().map(|(_, gpus)| gpus).sum();
            let all: i64 = capacity.classes.iter().map(|class| units(&class.total)).sum();
            prop_assert!(all <= there + most);
        }
    }
}
