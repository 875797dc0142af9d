//! JSON merge patches (RFC 7386) and JSON patches (RFC 6902), and why a patch is refused.

use serde_json::{Map, Value};

/// Operations that servers accept in one JSON patch.
const MAX_OPERATIONS: usize = 10_000;

/// Why a patch is refused. Display is the message of the server's Status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    #[error("error decoding patch: {0}")]
    Malformed(String),
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooLong(usize),
    /// A path that is not there, or a test that fails. Servers do not say which.
    #[error("the server rejected our request due to an error in our request")]
    DoesNotApply,
    #[error("map: {item} does not contain declared merge key: {key}")]
    NoMergeKey { item: String, key: &'static str },
    #[error("unknown patch type: {kind} in map: {map}")]
    UnknownDirective { kind: String, map: String },
    #[error("invalid patch format of {0}")]
    BadDirective(&'static str),
}

impl PatchError {
    /// The HTTP status and the reason of the server's Status.
    pub fn status(&self) -> (u16, &'static str) {
        match self {
            Self::Malformed(_) | Self::BadDirective(_) => (400, "BadRequest"),
            Self::TooLong(_) => (413, "RequestEntityTooLarge"),
            Self::DoesNotApply => (422, "Invalid"),
            // Real servers answer these as errors of their own, without a reason.
            Self::NoMergeKey { .. } | Self::UnknownDirective { .. } => (500, ""),
        }
    }
}

/// RFC 7386: objects merge, null removes, anything else replaces.
pub fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            target.shift_remove(name);
        } else {
            merge_patch(target.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// RFC 6902. All operations apply, or none does.
pub fn json_patch(target: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let operations =
        patch.as_array().ok_or_else(|| PatchError::Malformed("a JSON patch is a list".to_owned()))?;
    if MAX_OPERATIONS < operations.len() {
        return Err(PatchError::TooLong(operations.len()));
    }
    let mut patched = target.clone();
    for operation in operations {
        operate(&mut patched, operation)?;
    }
    *target = patched;
    Ok(())
}

fn operate(document: &mut Value, operation: &Value) -> Result<(), PatchError> {
    let text = |name: &'static str| {
        let missing = || PatchError::Malformed(format!("an operation has no {name}"));
        operation.get(name).and_then(Value::as_str).ok_or_else(missing)
    };
    // Servers take a missing value for null.
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    let path = text("path")?;
    match text("op")? {
        "add" => add(document, path, value()),
        "remove" => take(document, path).map(drop),
        "replace" => {
            *document.pointer_mut(path).ok_or(PatchError::DoesNotApply)? = value();
            Ok(())
        }
        "move" => {
            let from = text("from")?;
            if path.strip_prefix(from).is_some_and(|below| below.starts_with('/')) {
                return Err(PatchError::DoesNotApply);
            }
            let moved = take(document, from)?;
            add(document, path, moved)
        }
        "copy" => {
            let copied = document.pointer(text("from")?).cloned().ok_or(PatchError::DoesNotApply)?;
            add(document, path, copied)
        }
        "test" => {
            let found = document.pointer(path).unwrap_or(&Value::Null);
            if *found == value() { Ok(()) } else { Err(PatchError::DoesNotApply) }
        }
        unknown => Err(PatchError::Malformed(format!("unexpected kind: {unknown}"))),
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    if path.is_empty() {
        *document = value;
        return Ok(());
    }
    let (parent, name) = parent(document, path)?;
    match parent {
        Value::Object(map) => {
            map.insert(name, value);
        }
        Value::Array(items) => {
            let at = if name == "-" { items.len() } else { index(&name)? };
            if items.len() < at {
                return Err(PatchError::DoesNotApply);
            }
            items.insert(at, value);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err(PatchError::DoesNotApply);
        }
    }
    Ok(())
}

fn take(document: &mut Value, path: &str) -> Result<Value, PatchError> {
    let (parent, name) = parent(document, path)?;
    match parent {
        Value::Object(map) => map.shift_remove(&name).ok_or(PatchError::DoesNotApply),
        Value::Array(items) => {
            let at = index(&name)?;
            if at < items.len() { Ok(items.remove(at)) } else { Err(PatchError::DoesNotApply) }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Err(PatchError::DoesNotApply),
    }
}

/// What holds the place that `path` names, and the place's name in it.
fn parent<'d>(document: &'d mut Value, path: &str) -> Result<(&'d mut Value, String), PatchError> {
    let (above, name) = path.rsplit_once('/').ok_or(PatchError::DoesNotApply)?;
    let parent = document.pointer_mut(above).ok_or(PatchError::DoesNotApply)?;
    Ok((parent, name.replace("~1", "/").replace("~0", "~")))
}

fn index(name: &str) -> Result<usize, PatchError> {
    let plain = name == "0" || !name.starts_with(['0', '+']);
    name.parse().ok().filter(|_| plain).ok_or(PatchError::DoesNotApply)
}
