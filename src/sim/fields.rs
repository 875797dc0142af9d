//! What a Kubernetes API server does with `metadata.managedFields`, server-side apply and patches.
//!
//! Pure: values in, values out. It knows nothing of kinds but their [`Schema`], and stores nothing.
//! The rules are those of `sigs.k8s.io/structured-merge-diff` under the managers of
//! `k8s.io/apimachinery/pkg/util/managedfields`; tests cite their cases.
//!
//! What an endpoint resets must be reset by the caller: hand over neither the `status` of a write
//! to the main resource, nor anything but the status of one to `/status`.

mod conflict;
mod managed;
mod merge;
mod patch;
mod schema;
mod set;
mod strategic;
#[cfg(test)]
mod tests;
mod walk;

use jiff::Timestamp;
use serde_json::{Value, json};

pub use conflict::{ApplyError, Conflict, Conflicts};
use managed::{Operation, Owned, Owner, Owners, Stated};
pub use patch::{PatchError, json_patch, merge_patch};
use schema::Place;
pub use schema::{ItemError, ListKind, Schema};
use set::{Element, Set};
pub use strategic::strategic_patch;
use walk::{Comparison, compare, field_set};

/// Who owned what before the first apply to an object that nobody tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Fields that nobody owns.
const NEVER_OWNED: [&[&str]; 12] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// Parts of built-in kinds that are never absent, each with what it is a part of; outer ones first.
const STRUCTS: [(&str, &str); 5] = [
    ("", "spec"),
    ("", "status"),
    ("/spec", "template"),
    ("/spec/template", "metadata"),
    ("/spec/template", "spec"),
];

/// Who writes, where and when.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    pub manager: &'a str,
    pub api_version: &'a str,
    pub subresource: Option<&'a str>,
    pub now: Timestamp,
}

impl Writer<'_> {
    fn owner(&self, operation: Operation) -> Owner {
        Owner::new(self.manager, operation, self.api_version, self.subresource.unwrap_or_default())
    }
}

/// Server-side apply of `config` onto `live`: the merged object with its managedFields.
///
/// An apply that changes nothing returns `live` as it is, times included.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
    schema: &Schema,
) -> Result<Value, ApplyError> {
    if config.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(ApplyError::ManagedFieldsGiven);
    }
    let place = Place::root(schema);
    let faults = walk::faults(config, &place);
    if !faults.is_empty() {
        return Err(ApplyError::malformed(config, faults));
    }

    let mut owners = managed::owners(live);
    let mut old = live.cloned().unwrap_or_else(|| empty_object(config));
    managed::take(&mut old);
    if owners.is_empty() && live.is_some() {
        let found = compare(&empty_object(&old), &reachable(&old, writer), &place);
        adopt(&mut owners, found, &Writer { manager: BEFORE_FIRST_APPLY, ..*writer });
    }

    let mut new = merge_and_own(&old, config, writer, &mut owners, &place);
    let applier = writer.owner(Operation::Apply);
    take_over(&mut owners, &applier, &compare(&old, &new, &place), force)?;
    strip(&mut owners, &applier);
    merge::drop_new_nulls(&mut new, Some(&old), &place);
    // As on a real server, whoever merely joins the owners of what stands there leaves no time.
    if new != old
        && let Some(held) = owners.get_mut(&applier)
    {
        held.time = Some(managed::time_text(writer.now));
    }
    // Only now: who applies empty labels owns them.
    drop_empty_metadata(&mut new);
    managed::set_owners(&mut new, &owners);
    Ok(keep_times(live, new))
}

/// managedFields for `after`, which replaces `before` by a create, an update or a patch.
pub fn track(before: Option<&Value>, mut after: Value, writer: &Writer<'_>, schema: &Schema) -> Value {
    let place = Place::root(schema);
    let stated = if writer.subresource.is_some() { Stated::Nothing } else { managed::stated(&after) };
    let mut owners = match stated {
        Stated::Owners(owners) => owners,
        // The metadata of custom resources is read with a type that does not tell an empty list from none.
        Stated::EmptyList if !is_built_in(writer.api_version) => managed::owners(before),
        Stated::Nothing => managed::owners(before),
        Stated::EmptyList | Stated::EmptyEntry => Owners::new(),
    };
    managed::take(&mut after);
    drop_empty_metadata(&mut after);
    // What nobody tracks is not tracked before somebody applies it, except from its creation on.
    if owners.is_empty() && before.is_some() {
        return after;
    }

    let mut old = before.cloned().unwrap_or_else(|| empty_object(&after));
    managed::take(&mut old);
    if is_built_in(writer.api_version) {
        add_structs(&mut old, &after);
    }
    adopt(&mut owners, compare(&old, &after, &place), writer);
    managed::cap(&mut owners);
    managed::set_owners(&mut after, &owners);
    keep_times(before, after)
}

/// An object of that kind in which nothing is set.
fn empty_object(like: &Value) -> Value {
    let mut empty = json!({});
    for name in ["apiVersion", "kind"] {
        if let Some(value) = like.get(name) {
            empty[name] = value.clone();
        }
    }
    empty
}

/// Whether servers have a Go type of the kind, rather than a CustomResourceDefinition: its group is one of
/// Kubernetes' own.
fn is_built_in(api_version: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    !group.contains('.') || (group.ends_with(".k8s.io") && !group.ends_with(".x-k8s.io"))
}

/// Adds the parts that Go types always have, so that nobody becomes their owner by filling them.
fn add_structs(old: &mut Value, new: &Value) {
    for (parent, name) in STRUCTS {
        if let (Some(Value::Object(old)), Some(new)) = (old.pointer_mut(parent), new.pointer(parent))
            && new.get(name).is_some_and(Value::is_object)
        {
            old.entry(name).or_insert_with(|| json!({}));
        }
    }
}

/// Gives `writer` what an update changed, and nothing for what only went away.
fn adopt(owners: &mut Owners, found: Comparison, writer: &Writer<'_>) {
    let changed = found.modified.union(&found.added);
    release(owners, &found.removed.union(&changed));
    let set = changed.difference(&never_owned());
    if set.is_empty() {
        return;
    }
    let owner = writer.owner(Operation::Update);
    let before = owners.remove(&owner).map(|held| held.set).unwrap_or_default();
    let held = Owned {
        set: set.union(&before),
        api_version: writer.api_version.to_owned(),
        time: Some(managed::time_text(writer.now)),
    };
    owners.insert(owner, held);
}

/// The merged object without what this applier gave up; `owners` get the applier's new set.
fn merge_and_own(
    live: &Value,
    config: &Value,
    writer: &Writer<'_>,
    owners: &mut Owners,
    place: &Place,
) -> Value {
    let merged = merge::merge(live, config, place);
    let applier = writer.owner(Operation::Apply);
    let last = owners.remove(&applier);
    let held = Owned {
        set: field_set(config, place),
        api_version: writer.api_version.to_owned(),
        time: last.as_ref().and_then(|last| last.time.clone()),
    };
    owners.insert(applier, held);
    match last {
        Some(last) => prune(&merged, &last.set, owners, place),
        None => merged,
    }
}

/// `merged` without the fields of `last` that nobody owns any more.
fn prune(merged: &Value, last: &Set, owners: &Owners, place: &Place) -> Value {
    let last = last.with_parents();
    let managed = owners.values().fold(Set::default(), |all, held| all.union(&held.set)).with_parents();
    let all = field_set(merged, place).with_parents();
    let fields = |value: &Value| field_set(value, place).with_parents();

    // Taking out a container takes what others own in it: that comes back first, then what nobody
    // owns, unless its container was this applier's alone.
    let bare = merge::remove(merged, &last, place);
    let kept = merge::remove(merged, &all.difference(&fields(&bare).union(&managed)), place);
    merge::remove(merged, &all.difference(&fields(&kept)).intersection(&last), place)
}

/// Takes from the others what `applier` changes and what is gone; without `force` the former is a conflict.
fn take_over(owners: &mut Owners, applier: &Owner, found: &Comparison, force: bool) -> Result<(), Conflicts> {
    let changed = found.modified.clone().union(&found.added);
    let others = || owners.iter().filter(|(owner, _)| *owner != applier);
    if !force {
        let conflicts =
            Conflicts::new(others().map(|(owner, held)| (owner, held.set.intersection(&changed))));
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
    }
    let own = owners.remove(applier);
    release(owners, &changed.union(&found.removed));
    owners.extend(own.map(|own| (applier.clone(), own)));
    Ok(())
}

/// Nobody owns `gone` any more; who owns nothing else vanishes.
fn release(owners: &mut Owners, gone: &Set) {
    owners.retain(|_, held| {
        held.set = held.set.difference(gone);
        !held.set.is_empty()
    });
}

fn never_owned() -> Set {
    let mut set = Set::default();
    for path in NEVER_OWNED {
        let path: Vec<Element> = path.iter().map(|name| Element::Field((*name).to_owned())).collect();
        set.insert(&path);
    }
    set
}

fn strip(owners: &mut Owners, applier: &Owner) {
    if let Some(held) = owners.get_mut(applier) {
        held.set = held.set.difference(&never_owned());
        if held.set.is_empty() {
            owners.remove(applier);
        }
    }
}

/// What of `object` the writer's endpoint may write: status and all else have one each.
fn reachable(object: &Value, writer: &Writer<'_>) -> Value {
    let mut reachable = object.clone();
    if let Some(fields) = reachable.as_object_mut() {
        fields.retain(|name, _| (name == "status") == (writer.subresource == Some("status")));
    }
    reachable
}

/// Metadata has a type of its own on servers, which knows no empty labels.
fn drop_empty_metadata(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| match value {
            Value::Object(map) => !map.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        });
    }
}

/// `after`, or `before` when they differ in nothing but the times of their managers.
fn keep_times(before: Option<&Value>, after: Value) -> Value {
    let Some(before) = before else { return after };
    let timeless = |object: &Value| {
        let mut object = object.clone();
        if let Some(entries) = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut) {
            for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
                entry.remove("time");
            }
        }
        object
    };
    if timeless(before) == timeless(&after) { before.clone() } else { after }
}
