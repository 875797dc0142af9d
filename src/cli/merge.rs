//! Edits on top of edits: what one person changed is put over what another changed meanwhile, quantity
//! by quantity.

use std::{collections::BTreeMap, fmt};

use fedq_values::quantity::Quantity as Exact;
use fedq_wire::{
    claim::{Assignment, ClaimSpec},
    quantity::{Quantities, Quantity},
};

/// One quantity of a claim.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Field {
    Nominal(String),
    Assigned { queue: String, flavor: String, resource: String },
}

/// Both changed it, and not alike.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Collision {
    pub field: Field,
    pub before: Option<Quantity>,
    pub yours: Option<Quantity>,
    pub theirs: Option<Quantity>,
}

/// Your edits over the newest. Where both touched a field, yours stands and the collision is told.
pub fn merge(base: &ClaimSpec, yours: &ClaimSpec, newest: &ClaimSpec) -> (ClaimSpec, Vec<Collision>) {
    let (before, mine, theirs) = (fields(base), fields(yours), fields(newest));
    let mut merged = newest.clone();
    let mut collisions = Vec::new();
    if yours.cluster_name != base.cluster_name {
        merged.cluster_name.clone_from(&yours.cluster_name);
    }
    let mut every: Vec<&Field> = before.keys().chain(mine.keys()).chain(theirs.keys()).collect();
    every.sort();
    every.dedup();
    for field in every {
        let (before, mine, theirs) = (before.get(field), mine.get(field), theirs.get(field));
        if same(mine, before) || same(mine, theirs) {
            continue;
        }
        if !same(theirs, before) {
            collisions.push(Collision {
                field: field.clone(),
                before: before.cloned(),
                yours: mine.cloned(),
                theirs: theirs.cloned(),
            });
        }
        set(&mut merged, field, mine);
    }
    merged.resource_assignments.retain(|assignment| {
        !assignment.resources.is_empty() || newest.resource_assignments.contains(assignment)
    });
    (merged, collisions)
}

/// Whether two specs say the same, however they write it.
pub fn is_same(one: &ClaimSpec, other: &ClaimSpec) -> bool {
    let (a, b) = (fields(one), fields(other));
    let keys = |spec: &ClaimSpec| {
        let mut keys: Vec<_> = spec
            .resource_assignments
            .iter()
            .map(|assignment| (assignment.cluster_queue_name.clone(), assignment.flavor.clone()))
            .collect();
        keys.sort();
        keys
    };
    one.cluster_name == other.cluster_name
        && keys(one) == keys(other)
        && a.len() == b.len()
        && a.iter().all(|(field, quantity)| same(Some(quantity), b.get(field)))
}

/// Each quantity that differs, in words.
pub fn changes(before: &ClaimSpec, after: &ClaimSpec) -> Vec<String> {
    let (before, after) = (fields(before), fields(after));
    let mut every: Vec<&Field> = before.keys().chain(after.keys()).collect();
    every.sort();
    every.dedup();
    let changed = every.into_iter().filter(|field| !same(before.get(field), after.get(field)));
    let text = |amount: Option<&Quantity>| amount.map_or("none".to_owned(), ToString::to_string);
    changed.map(|field| format!("{field} {} → {}", text(before.get(field)), text(after.get(field)))).collect()
}

/// Whether two quantities are the same amount.
pub fn same(one: Option<&Quantity>, other: Option<&Quantity>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            one == other || Exact::parse(&one.0).is_ok_and(|value| Exact::parse(&other.0) == Ok(value))
        }
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn fields(spec: &ClaimSpec) -> BTreeMap<Field, Quantity> {
    let nominal = spec.nominal_resources.iter();
    let nominal = nominal.map(|(resource, amount)| (Field::Nominal(resource.clone()), amount.clone()));
    let assigned = spec.resource_assignments.iter().flat_map(|assignment| {
        assignment.resources.iter().map(|(resource, amount)| {
            let field = Field::Assigned {
                queue: assignment.cluster_queue_name.clone(),
                flavor: assignment.flavor.clone(),
                resource: resource.clone(),
            };
            (field, amount.clone())
        })
    });
    nominal.chain(assigned).collect()
}

fn set(spec: &mut ClaimSpec, field: &Field, amount: Option<&Quantity>) {
    let (resources, resource) = match field {
        Field::Nominal(resource) => (&mut spec.nominal_resources, resource),
        Field::Assigned { queue, flavor, resource } => {
            let same = |assignment: &Assignment| {
                assignment.cluster_queue_name == *queue && assignment.flavor == *flavor
            };
            let at = spec.resource_assignments.iter().position(same).unwrap_or_else(|| {
                spec.resource_assignments.push(Assignment {
                    cluster_queue_name: queue.clone(),
                    flavor: flavor.clone(),
                    resources: Quantities::default(),
                });
                spec.resource_assignments.len() - 1
            });
            (&mut spec.resource_assignments[at].resources, resource)
        }
    };
    match amount {
        Some(amount) => drop(resources.insert(resource.clone(), amount.clone())),
        None => drop(resources.remove(resource)),
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nominal(resource) => write!(f, "nominalResources {resource}"),
            Self::Assigned { queue, flavor, resource } => write!(f, "{queue} {flavor} {resource}"),
        }
    }
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text =
            |amount: &Option<Quantity>| amount.as_ref().map_or("nothing".to_owned(), ToString::to_string);
        let (yours, theirs, before) = (text(&self.yours), text(&self.theirs), text(&self.before));
        write!(f, "{}: you wrote {yours}, meanwhile it was set to {theirs} (it was {before})", self.field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(nominal: &[(&str, &str)], assigned: &[(&str, &str, &str)]) -> ClaimSpec {
        let mut spec = ClaimSpec { cluster_name: "c".to_owned(), ..ClaimSpec::default() };
        for (resource, amount) in nominal {
            spec.nominal_resources.insert((*resource).to_owned(), (*amount).into());
        }
        for (queue, resource, amount) in assigned {
            let field = Field::Assigned {
                queue: (*queue).to_owned(),
                flavor: "f".to_owned(),
                resource: (*resource).to_owned(),
            };
            set(&mut spec, &field, Some(&(*amount).into()));
        }
        spec
    }

    #[test]
    fn edits_of_different_fields_join() {
        let base = claim(&[("cpu", "10")], &[("a", "cpu", "4"), ("b", "cpu", "6")]);
        let yours = claim(&[("cpu", "10")], &[("a", "cpu", "5"), ("b", "cpu", "6"), ("c", "gpu", "1")]);
        let newest = claim(&[("cpu", "12")], &[("a", "cpu", "4"), ("b", "cpu", "3")]);
        let (merged, collisions) = merge(&base, &yours, &newest);
        assert!(collisions.is_empty(), "{collisions:?}");
        let expected = claim(&[("cpu", "12")], &[("a", "cpu", "5"), ("b", "cpu", "3"), ("c", "gpu", "1")]);
        assert_eq!(merged, expected);
    }

    #[test]
    fn edits_of_the_same_field_collide_unless_they_agree() {
        let base = claim(&[], &[("a", "cpu", "4")]);
        let yours = claim(&[], &[("a", "cpu", "5")]);
        assert!(merge(&base, &yours, &claim(&[], &[("a", "cpu", "5000m")])).1.is_empty());
        let (merged, collisions) = merge(&base, &yours, &claim(&[], &[("a", "cpu", "3")]));
        assert_eq!(merged, yours);
        assert_eq!(collisions[0].to_string(), "a f cpu: you wrote 5, meanwhile it was set to 3 (it was 4)");
    }

    #[test]
    fn a_removal_is_an_edit_too() {
        let base = claim(&[("gpu", "1")], &[("a", "cpu", "4"), ("b", "cpu", "6")]);
        let yours = claim(&[], &[("b", "cpu", "6")]);
        let newest = claim(&[("gpu", "1")], &[("a", "cpu", "4"), ("b", "cpu", "7")]);
        let (merged, collisions) = merge(&base, &yours, &newest);
        assert_eq!((merged, collisions.len()), (claim(&[], &[("b", "cpu", "7")]), 0));
        let (_, collisions) = merge(&base, &yours, &claim(&[("gpu", "2")], &[("a", "cpu", "4")]));
        assert_eq!(collisions.len(), 1);
    }

    #[test]
    fn the_same_said_otherwise_is_the_same() {
        let one = claim(&[("memory", "1Gi")], &[("a", "cpu", "1")]);
        assert!(is_same(&one, &claim(&[("memory", "1024Mi")], &[("a", "cpu", "1000m")])));
        assert!(!is_same(&one, &claim(&[("memory", "1G")], &[("a", "cpu", "1")])));
        let mut empty = one.clone();
        empty.resource_assignments.push(Assignment::default());
        assert!(!is_same(&one, &empty));
    }
}
