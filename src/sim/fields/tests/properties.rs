//! What holds for every configuration.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Map;

use super::super::schema::Place;
use super::super::walk::field_set;
use super::super::{managed, set::Set};
use super::*;

fn leaf() -> impl Strategy<Value = Value> {
    (0..3i64).prop_map(|number| json!(number))
}

fn fields(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-d]", value, 1..4)
        .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>()))
}

fn items() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[n-p]", fields(leaf()), 1..3).prop_map(|items| {
        let item = |(name, mut item): (String, Value)| {
            item["name"] = json!(name);
            item
        };
        items.into_iter().map(item).collect()
    })
}

/// No container is empty: an update that empties one leaves it without an owner, on real servers too.
/// Configurations with all that merges: maps in maps, an atomic map and list, a set, a keyed list.
fn config() -> impl Strategy<Value = Value> {
    (fields(fields(leaf())), fields(leaf()), prop::collection::btree_set(0..4i64, 1..3), items())
        .prop_map(|(deep, whole, set, list)| json!({"deep": deep, "whole": whole, "set": set, "list": list}))
}

/// `config` without some of its top fields.
fn part(config: &Value, keep: &BTreeSet<usize>) -> Value {
    let fields = config.as_object().expect("an object").iter().enumerate();
    let kept =
        fields.filter(|(at, _)| keep.contains(at)).map(|(_, (name, value))| (name.clone(), value.clone()));
    Value::Object(kept.collect())
}

fn owned(object: &Value) -> Set {
    managed::owners(Some(object)).values().fold(Set::default(), |all, owned| all.union(&owned.set))
}

fn without_times(object: &Value) -> Value {
    let mut object = object.clone();
    for entry in object["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
        entry.as_object_mut().expect("an entry").shift_remove("time");
    }
    object
}

/// As a set of entries and with lists in one order: the order of appliers shows in both.
fn normal(object: &Value) -> Value {
    let mut object = without_times(object);
    let lists = ["/metadata/managedFields", "/list", "/set"];
    for list in lists {
        if let Some(items) = object.pointer_mut(list).and_then(Value::as_array_mut) {
            items.sort_by_key(ToString::to_string);
        }
    }
    object
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn applying_twice_is_applying_once(configs in prop::collection::vec(config(), 1..4)) {
        let mut live: Option<Value> = None;
        for (at, config) in configs.iter().enumerate() {
            let manager = format!("m{at}");
            let once = apply(live.as_ref(), config, &writer(&manager, 1), true, &SCHEMA).unwrap();
            let twice = apply(Some(&once), config, &writer(&manager, 9), false, &SCHEMA).unwrap();
            prop_assert_eq!(&twice, &once);
            live = Some(once);
        }
    }

    #[test]
    fn an_applier_that_gives_up_removes_only_its_own(
        ours in config(),
        theirs in config(),
        keep in prop::collection::btree_set(0..4usize, 0..4),
    ) {
        let kept = part(&ours, &keep);
        let live = applied(&[("theirs", theirs.clone())]);
        let live = forced(&live, "ours", &ours);
        let live = forced(&live, "ours", &kept);
        // What remains is ours as kept, and theirs where we had not taken it.
        let place = Place::root(&SCHEMA);
        let ours_kept = field_set(&kept, &place);
        let left = field_set(&bare(&live), &place);
        prop_assert!(ours_kept.difference(&left).is_empty());
        let foreign = left.difference(&ours_kept).difference(&owned(&live));
        prop_assert!(foreign.is_empty(), "{foreign:?}");
    }

    #[test]
    fn disjoint_appliers_may_come_in_any_order(ours in config(), keep in prop::collection::btree_set(0..4usize, 0..4)) {
        let rest: BTreeSet<usize> = (0..4).filter(|at| !keep.contains(at)).collect();
        let (one, two) = (part(&ours, &keep), part(&ours, &rest));
        let forth = applied(&[("one", one.clone()), ("two", two.clone())]);
        let back = applied(&[("two", two), ("one", one)]);
        prop_assert_eq!(normal(&forth), normal(&back));
    }

    #[test]
    fn every_field_that_was_written_has_an_owner(configs in prop::collection::vec((config(), any::<bool>()), 1..5)) {
        let mut live = created(json!({"deep": {"z": {"z": 1}}}), "creator");
        for (at, (config, is_apply)) in configs.into_iter().enumerate() {
            let manager = format!("m{}", at % 3);
            live = if is_apply { forced(&live, &manager, &config) } else { updated(&live, config, &manager) };
            let place = Place::root(&SCHEMA);
            let orphans = field_set(&bare(&live), &place).difference(&owned(&live));
            prop_assert!(orphans.is_empty(), "{orphans:?} in {live}");
            let ghosts = owned(&live).difference(&field_set(&bare(&live), &place).with_parents());
            prop_assert!(!is_apply || ghosts.paths().iter().all(|path| path.len() == 1), "{ghosts:?} in {live}");
        }
    }

    #[test]
    fn managed_fields_survive_a_round_trip(config in config()) {
        let live = applied(&[("one", config)]);
        let mut again = live.clone();
        managed::set_owners(&mut again, &managed::owners(Some(&live)));
        prop_assert_eq!(again.to_string(), live.to_string());
    }

    #[test]
    fn an_update_is_tracked_as_what_it_changed(before in config(), after in config()) {
        let live = created(before, "one");
        let live = updated(&live, after.clone(), "two");
        prop_assert_eq!(bare(&live), after);
        let again = updated(&live, live.clone(), "three");
        prop_assert_eq!(again, live);
    }
}
