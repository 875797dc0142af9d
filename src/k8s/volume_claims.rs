//! PersistentVolumeClaims that fedq did not make, looked up by name: all others are followed by their label.

use std::time::Duration;

use kube::Client;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    client::{ApiError, RetryClass},
    types::task::is_there,
    write::{Kind, Target, look},
};
use fedq_domain::{queue::objects::HUB_LABEL, task::volume::ExistingClaim};

#[derive(Deserialize)]
struct Claim {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default, rename = "deletionTimestamp", deserialize_with = "is_there")]
    going: bool,
    #[serde(default)]
    labels: serde_json::Map<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    access_modes: Vec<String>,
    storage_class_name: Option<String>,
    volume_mode: String,
    resources: Resources,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: Storage,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Storage {
    storage: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: String,
    access_modes: Vec<String>,
    capacity: Storage,
}

/// `None`: there is none. It takes the right to list.
pub async fn find(
    client: &Client,
    (namespace, name): (&str, &str),
    deadline: Duration,
) -> Result<Option<ExistingClaim>, ApiError> {
    let target = Target::namespaced(Kind::VolumeClaim, namespace, name);
    let Some(object) = look(client, &target, deadline).await? else { return Ok(None) };
    let claim = serde_json::from_value::<Claim>(object);
    let claim = claim.map_err(|error| {
        ApiError::new(RetryClass::Invalid, format!("the PersistentVolumeClaim cannot be read: {error}"))
    })?;
    Ok(Some(claim.into()))
}

impl From<Claim> for ExistingClaim {
    fn from(Claim { metadata, spec, status }: Claim) -> Self {
        // Once it is bound, its disk says what it has; that may be more than was asked for.
        let or = |found: String, asked: String| if found.is_empty() { asked } else { found };
        let access_modes =
            if status.access_modes.is_empty() { spec.access_modes } else { status.access_modes };
        Self {
            size: or(status.capacity.storage, spec.resources.requests.storage),
            storage_class: spec.storage_class_name.filter(|class| !class.is_empty()),
            access_modes,
            phase: or(status.phase, "Pending".to_owned()),
            going: metadata.going,
            is_block: spec.volume_mode == "Block",
            is_of_fedq: metadata.labels.contains_key(HUB_LABEL),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(claim: Value) -> ExistingClaim {
        serde_json::from_value::<Claim>(claim).expect("a claim").into()
    }

    #[test]
    fn a_claim_says_what_its_disk_has_or_what_it_asks_for() {
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Ti"}},
        });
        let waiting = read(json!({"metadata": {"name": "a"}, "spec": spec, "status": {"phase": "Pending"}}));
        let expected = ExistingClaim {
            size: "1Ti".to_owned(),
            storage_class: Some("fast".to_owned()),
            access_modes: vec!["ReadWriteOnce".to_owned()],
            phase: "Pending".to_owned(),
            ..ExistingClaim::default()
        };
        assert_eq!(waiting, expected);
        let bound = json!({
            "phase": "Bound", "accessModes": ["ReadWriteMany"], "capacity": {"storage": "2Ti"},
        });
        let bound = read(json!({"metadata": {"name": "a"}, "spec": spec, "status": bound}));
        assert_eq!(
            (bound.size.as_str(), bound.access_modes, bound.phase.as_str()),
            ("2Ti", vec!["ReadWriteMany".to_owned()], "Bound")
        );
        let labels = json!({"fedq.dev/hub": "h"});
        let odd = read(json!({
            "metadata": {"name": "a", "deletionTimestamp": "2026-08-01T09:00:00Z", "labels": labels},
            "spec": {"volumeMode": "Block", "storageClassName": ""},
        }));
        assert_eq!((odd.going, odd.is_block, odd.is_of_fedq, odd.storage_class), (true, true, true, None));
        assert_eq!(odd.phase, "Pending", "no controller has looked at it yet");
    }
}
