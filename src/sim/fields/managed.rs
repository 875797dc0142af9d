//! `metadata.managedFields`: who owns what, read from an object and written back.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::set::Set;

/// Update entries that an object keeps; servers merge the oldest above that.
const MAX_UPDATERS: usize = 10;
const OLD_UPDATES: &str = "ancient-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// What tells entries apart. An applier keeps its one entry across versions, an updater does not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub manager: String,
    pub operation: Operation,
    pub api_version: String,
    pub subresource: String,
}

impl Owner {
    pub fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let api_version = match operation {
            Operation::Apply => "",
            Operation::Update => api_version,
        };
        let manager = if manager.is_empty() { "unknown" } else { manager };
        Self {
            manager: manager.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub set: Set,
    pub api_version: String,
    /// In text as it stood: it is only ever replaced as a whole.
    pub time: Option<String>,
}

pub(super) type Owners = BTreeMap<Owner, Owned>;

pub(super) fn time_text(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What a request says of managedFields.
pub(super) enum Stated {
    /// Nothing that could be read.
    Nothing,
    /// Forget who owns what.
    EmptyList,
    /// The same, in the form that survives every reader.
    EmptyEntry,
    Owners(Owners),
}

pub(super) fn stated(object: &Value) -> Stated {
    match object.pointer("/metadata/managedFields").and_then(Value::as_array) {
        None => Stated::Nothing,
        Some(entries) if entries.is_empty() => Stated::EmptyList,
        Some(entries) if is_one_empty_entry(entries) => Stated::EmptyEntry,
        Some(entries) => decode(entries).map_or(Stated::Nothing, Stated::Owners),
    }
}

fn is_one_empty_entry(entries: &[Value]) -> bool {
    matches!(entries, [Value::Object(entry)] if entry.is_empty())
}

/// The owners that `object` names; none when its managedFields cannot be read.
pub(super) fn owners(object: Option<&Value>) -> Owners {
    match object.map(stated) {
        Some(Stated::Owners(owners)) => owners,
        Some(Stated::Nothing | Stated::EmptyList | Stated::EmptyEntry) | None => Owners::new(),
    }
}

fn decode(entries: &[Value]) -> Option<Owners> {
    entries.iter().map(decode_entry).collect()
}

fn decode_entry(entry: &Value) -> Option<(Owner, Owned)> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() || text("fieldsType") != "FieldsV1" {
        return None;
    }
    let set = match entry.get("fieldsV1") {
        None | Some(Value::Null) => Set::default(),
        Some(fields) => Set::from_json(fields)?,
    };
    let held = Owned {
        set,
        api_version: api_version.to_owned(),
        time: entry.get("time").and_then(Value::as_str).map(str::to_owned),
    };
    Some((
        Owner {
            manager: text("manager").to_owned(),
            ..Owner::new("", operation, api_version, text("subresource"))
        },
        held,
    ))
}

/// The entries in the order of servers: appliers first, then by time and name.
pub(super) fn encode(owners: &Owners) -> Vec<Value> {
    let mut entries: Vec<(&Owner, &Owned)> = owners.iter().collect();
    entries.sort_by_key(|(owner, held)| {
        (owner.operation, held.time.as_deref(), &owner.manager, &held.api_version, &owner.subresource)
    });
    entries.into_iter().map(|(owner, held)| encode_entry(owner, held)).collect()
}

fn encode_entry(owner: &Owner, held: &Owned) -> Value {
    let mut entry = Map::new();
    if !owner.manager.is_empty() {
        entry.insert("manager".to_owned(), json!(owner.manager));
    }
    entry.insert("operation".to_owned(), json!(owner.operation.name()));
    entry.insert("apiVersion".to_owned(), json!(held.api_version));
    if let Some(time) = &held.time {
        entry.insert("time".to_owned(), json!(time));
    }
    entry.insert("fieldsType".to_owned(), json!("FieldsV1"));
    entry.insert("fieldsV1".to_owned(), held.set.to_json());
    if !owner.subresource.is_empty() {
        entry.insert("subresource".to_owned(), json!(owner.subresource));
    }
    Value::Object(entry)
}

/// Writes `owners` into `object`; without any the field goes.
pub(super) fn set_owners(object: &mut Value, owners: &Owners) {
    let entries = encode(owners);
    if entries.is_empty() {
        take(object);
    } else if let Some(object) = object.as_object_mut() {
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("managedFields".to_owned(), Value::Array(entries));
        }
    }
}

/// Takes managedFields off `object`, so that nobody owns them.
pub(super) fn take(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
}

/// Merges the oldest updaters of a version into one entry, while there are too many.
pub(super) fn cap(owners: &mut Owners) {
    let mut updaters: Vec<(Option<String>, Owner)> = owners
        .iter()
        .filter(|(owner, _)| owner.operation == Operation::Update)
        .map(|(owner, held)| (held.time.clone(), owner.clone()))
        .collect();
    let mut surplus = updaters.len().saturating_sub(MAX_UPDATERS);
    updaters.sort();
    let mut firsts: BTreeMap<String, Owner> = BTreeMap::new();
    for (_, owner) in updaters {
        if surplus == 0 {
            return;
        }
        let Some(first) = firsts.get(&owner.api_version) else {
            firsts.insert(owner.api_version.clone(), owner);
            continue;
        };
        let bucket = Owner::new(OLD_UPDATES, Operation::Update, &owner.api_version, "");
        let old = owners.remove(&bucket).or_else(|| owners.remove(first));
        if let Some(mut newer) = owners.remove(&owner) {
            newer.set = newer.set.union(&old.map(|old| old.set).unwrap_or_default());
            owners.insert(bucket, newer);
        }
        surplus -= 1;
    }
}
