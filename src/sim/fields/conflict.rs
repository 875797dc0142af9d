//! Why an apply is refused, in the words of a real server.

use std::fmt;

use serde_json::{Value, json};

use super::managed::{Operation, Owner};
use super::set::{Set, path_text};

/// A field that somebody else owns and the configuration wants otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub manager: String,
    /// Set when the owner got it by an update; appliers are told by their name alone.
    pub api_version: Option<String>,
    pub subresource: Option<String>,
    pub field: String,
}

impl Conflict {
    /// `"x" with subresource "status" using v1`
    fn owner(&self) -> String {
        let subresource = self.subresource.as_ref().map(|name| format!(" with subresource {name:?}"));
        let version = self.api_version.as_ref().map(|version| format!(" using {version}"));
        format!("{:?}{}{}", self.manager, subresource.unwrap_or_default(), version.unwrap_or_default())
    }
}

/// All conflicts of one apply, by owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Conflicts(Vec<Conflict>);

impl Conflicts {
    pub(super) fn new<'o>(sets: impl Iterator<Item = (&'o Owner, Set)>) -> Self {
        let conflicts = sets.flat_map(|(owner, set)| {
            set.paths().into_iter().map(|path| Conflict {
                manager: owner.manager.clone(),
                api_version: (owner.operation == Operation::Update).then(|| owner.api_version.clone()),
                subresource: Some(owner.subresource.clone()).filter(|name| !name.is_empty()),
                field: path_text(&path),
            })
        });
        Self(conflicts.collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Conflict> {
        self.0.iter()
    }

    /// `details.causes` of the server's Status.
    pub fn causes(&self) -> Value {
        let causes = self.0.iter().map(|conflict| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {}", conflict.owner()),
                "field": conflict.field,
            })
        });
        Value::Array(causes.collect())
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [conflict] = self.0.as_slice() {
            return write!(
                f,
                "Apply failed with 1 conflict: conflict with {}: {}",
                conflict.owner(),
                conflict.field
            );
        }
        write!(f, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut owner = None;
        for (index, conflict) in self.0.iter().enumerate() {
            let name = conflict.owner();
            if owner.as_ref() != Some(&name) {
                let gap = if index == 0 { "" } else { "\n" };
                write!(f, "{gap}conflicts with {name}:")?;
                owner = Some(name);
            }
            write!(f, "\n- {}", conflict.field)?;
        }
        Ok(())
    }
}

/// Why an apply is refused. Display is the message of the server's Status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error(transparent)]
    Conflicts(#[from] Conflicts),
    #[error("metadata.managedFields must be nil")]
    ManagedFieldsGiven,
    #[error("failed to create typed patch object ({object}): {}", listed(.faults))]
    Malformed { object: String, faults: Vec<String> },
}

impl ApplyError {
    pub fn malformed(config: &Value, faults: Vec<String>) -> Self {
        let text = |path: &str| config.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("/apiVersion"), text("/kind"));
        let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
        let object =
            format!("{}/{}; {version}, Kind={kind}", text("/metadata/namespace"), text("/metadata/name"));
        Self::Malformed { object, faults }
    }

    /// The HTTP status and the reason of the server's Status.
    pub fn status(&self) -> (u16, &'static str) {
        match self {
            Self::Conflicts(_) => (409, "Conflict"),
            Self::ManagedFieldsGiven => (400, "BadRequest"),
            // A real server lets this through as an error of its own, without a reason.
            Self::Malformed { .. } => (500, ""),
        }
    }
}

fn listed(faults: &[String]) -> String {
    match faults {
        [fault] => fault.clone(),
        faults => format!("errors:\n  {}", faults.join("\n  ")),
    }
}
