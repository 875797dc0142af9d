//! What must hold of one resource of one cluster: no set of flavors may hold more than the nodes that
//! any of them matches.
//!
//! With these inequalities for every set of flavors that share nodes, the quotas can be placed on the
//! nodes without counting one twice (Hall's condition), and nothing less is enough.

use std::collections::BTreeSet;

use super::MAX_COMPONENT;
use crate::{
    capacity::{Capacity, MAX_QUOTA},
    resources::Resources,
};
use fedq_values::ids::{FlavorName, ResourceName};

/// Σ of these flavors' cells ≤ `usable`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Constraint {
    /// Positions in the list of flavors it was built from, ascending.
    pub flavors: Box<[u16]>,
    pub usable: i64,
}

pub(super) struct Constraints {
    pub list: Vec<Constraint>,
    /// Positions of flavors in components too large to check every combination.
    pub unchecked: Vec<u16>,
}

/// The constraints of `resource` among `flavors`. Smaller sets come first.
pub(super) fn build(
    capacity: &Capacity,
    headroom: &Resources,
    resource: &ResourceName,
    flavors: &[FlavorName],
) -> Constraints {
    let headroom = headroom.get(resource).map_or(0, |amount| i128::from(amount.units()));
    let classes: Vec<Class> = capacity
        .classes
        .iter()
        .map(|class| Class {
            flavors: members(&class.flavors, flavors),
            units: class.total.get(resource).map_or(0, |amount| i128::from(amount.units())),
        })
        .filter(|class| !class.flavors.is_empty())
        .collect();
    let mut constraints = Constraints { list: Vec::new(), unchecked: Vec::new() };
    for component in components(flavors.len(), &classes) {
        if MAX_COMPONENT < component.len() {
            constraints.unchecked.extend(&component);
        }
        for set in sets(&component) {
            let of_set = classes.iter().filter(|class| class.flavors.iter().any(|f| set.contains(f)));
            let units = of_set.map(|class| class.units).sum::<i128>() - headroom;
            let usable = i64::try_from(units.max(0)).unwrap_or(i64::MAX).min(MAX_QUOTA.units());
            constraints.list.push(Constraint { flavors: set.into(), usable });
        }
    }
    constraints.list.sort_by(|a, b| (a.flavors.len(), &a.flavors).cmp(&(b.flavors.len(), &b.flavors)));
    constraints
}

/// So many flavors that share nodes make two thousand pairs.
const MAX_PAIRED: usize = 64;

struct Class {
    flavors: Vec<u16>,
    units: i128,
}

fn members(class: &BTreeSet<FlavorName>, flavors: &[FlavorName]) -> Vec<u16> {
    let positions = flavors.iter().enumerate().filter(|(_, flavor)| class.contains(*flavor));
    positions.map(|(position, _)| position_of(position)).collect()
}

fn position_of(position: usize) -> u16 {
    u16::try_from(position).expect("a queue has fewer than 2^16 flavors")
}

/// Flavors that share nodes, directly or through others.
fn components(flavors: usize, classes: &[Class]) -> Vec<Vec<u16>> {
    let mut root: Vec<u16> = (0..flavors).map(position_of).collect();
    for class in classes {
        let first = class.flavors[0];
        for flavor in &class.flavors[1..] {
            let (into, from) = (root[usize::from(first)], root[usize::from(*flavor)]);
            root.iter_mut().filter(|found| **found == from).for_each(|found| *found = into);
        }
    }
    let mut by_root: Vec<Vec<u16>> = vec![Vec::new(); flavors];
    for (flavor, root) in root.iter().enumerate() {
        by_root[usize::from(*root)].push(position_of(flavor));
    }
    by_root.retain(|component| !component.is_empty());
    by_root
}

/// Every non-empty subset of a component, or of one that is too large singles, pairs and the whole; no pairs where
/// there would be thousands of them.
fn sets(component: &[u16]) -> Vec<Vec<u16>> {
    if component.len() <= MAX_COMPONENT {
        let subset = |bits: u32| {
            let chosen = component.iter().enumerate().filter(|(i, _)| bits & (1 << i) != 0);
            chosen.map(|(_, flavor)| *flavor).collect()
        };
        return (1..1 << component.len()).map(subset).collect();
    }
    let mut sets: Vec<Vec<u16>> = component.iter().map(|flavor| vec![*flavor]).collect();
    if component.len() <= MAX_PAIRED {
        for (i, a) in component.iter().enumerate() {
            sets.extend(component[i + 1..].iter().map(|b| vec![*a, *b]));
        }
    }
    sets.push(component.to_vec());
    sets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::NodeClass;
    use fedq_values::quantity::Amount;

    fn flavors(count: usize) -> Vec<FlavorName> {
        (0..count).map(|i| FlavorName::new(&format!("f{i:02}")).expect("a flavor name")).collect()
    }

    fn cpu() -> ResourceName {
        ResourceName::new("cpu").expect("a resource name")
    }

    fn capacity(flavors: &[FlavorName], classes: &[(&[usize], i64)]) -> Capacity {
        let class = |(members, units): &(&[usize], i64)| NodeClass {
            flavors: members.iter().map(|i| flavors[*i].clone()).collect(),
            nodes: 1,
            total: [(cpu(), Amount::new(*units))].into(),
        };
        Capacity { classes: classes.iter().map(class).collect(), ..Capacity::default() }
    }

    fn listed(constraints: &Constraints) -> Vec<(Vec<u16>, i64)> {
        constraints.list.iter().map(|c| (c.flavors.to_vec(), c.usable)).collect()
    }

    #[test]
    fn flavors_that_share_nodes_are_constrained_together() {
        let flavors = flavors(3);
        let capacity = capacity(&flavors, &[(&[0], 4), (&[0, 1], 2), (&[2], 8)]);
        let constraints = build(&capacity, &Resources::new(), &cpu(), &flavors);
        assert_eq!(listed(&constraints), [(vec![0], 6), (vec![1], 2), (vec![2], 8), (vec![0, 1], 6)]);
    }

    #[test]
    fn headroom_comes_off_each_set_and_never_below_zero() {
        let flavors = flavors(2);
        let capacity = capacity(&flavors, &[(&[0], 4), (&[0, 1], 2)]);
        let headroom = [(cpu(), Amount::new(3))].into();
        let constraints = build(&capacity, &headroom, &cpu(), &flavors);
        assert_eq!(listed(&constraints), [(vec![0], 3), (vec![1], 0), (vec![0, 1], 3)]);
    }

    #[test]
    fn a_flavor_without_nodes_has_nothing() {
        let flavors = flavors(1);
        let constraints = build(&Capacity::default(), &Resources::new(), &cpu(), &flavors);
        assert_eq!(listed(&constraints), [(vec![0], 0)]);
    }

    #[test]
    fn a_large_component_is_checked_by_singles_pairs_and_whole() {
        let flavors = flavors(11);
        let all: Vec<usize> = (0..11).collect();
        let constraints = build(&capacity(&flavors, &[(&all, 5)]), &Resources::new(), &cpu(), &flavors);
        assert_eq!(constraints.list.len(), 11 + 55 + 1);
        assert_eq!(constraints.unchecked.len(), 11);
        let constraints = build(&capacity(&flavors, &[(&all[..10], 5)]), &Resources::new(), &cpu(), &flavors);
        assert_eq!(constraints.list.len(), (1 << 10) - 1 + 1);
        assert!(constraints.unchecked.is_empty());
    }

    #[test]
    fn enormous_capacities_stay_below_unlimited() {
        let flavors = flavors(1);
        let capacity = capacity(&flavors, &[(&[0], i64::MAX), (&[0], i64::MAX)]);
        let constraints = build(&capacity, &Resources::new(), &cpu(), &flavors);
        assert_eq!(constraints.list[0].usable, MAX_QUOTA.units());
    }
}
