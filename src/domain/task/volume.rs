//! Volumes: PersistentVolumeClaims that tasks mount by a name of their own.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    names::{TaskId, user_label},
    render::naive,
};
use crate::queue::objects::{HUB_LABEL, MANAGED_BY, MANAGED_BY_FEDQ};
use fedq_values::{
    ids::{ClusterName, NameError, QueueName},
    quantity::{Quantity, QuantityError},
};

pub const VOLUME_LABEL: &str = "skypilot-volume";
pub const VOLUME_ID_LABEL: &str = "volume-id";
const ACCESS_MODES: [&str; 4] = ["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"];
/// With its id behind, the name still fits a label.
const MAX_NAME: usize = 54;

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSpec {
    name: String,
    size: String,
    storage_class: Option<String>,
    access_modes: Vec<String>,
}

/// What is stored of a volume, as far as it decides which one a task means.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    pub id: &'a TaskId,
    pub owner: &'a str,
    pub namespace: &'a str,
    pub spec: &'a VolumeSpec,
    /// `None`: to be chosen.
    pub cluster: Option<&'a ClusterName>,
    pub deleting: bool,
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum VolumeError {
    #[error("`{0}` is no name of a volume: use lower-case letters, digits and `-`, at most {MAX_NAME}")]
    Name(String),
    #[error("the size is not valid")]
    Size(#[source] QuantityError),
    #[error("a volume needs a size above 0, such as 10Gi")]
    NoSize,
    #[error("`{0}` is none of ReadWriteOnce, ReadWriteMany, ReadOnlyMany, ReadWriteOncePod")]
    AccessMode(String),
    #[error("a volume needs an access mode, such as ReadWriteOnce")]
    NoAccessMode,
    #[error("the storage class is not valid")]
    StorageClass(#[source] NameError),
}

impl VolumeError {
    /// The field of the request that it is about.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Name(_) => "name",
            Self::Size(_) | Self::NoSize => "size",
            Self::AccessMode(_) | Self::NoAccessMode => "access_modes",
            Self::StorageClass(_) => "storage_class",
        }
    }
}

impl VolumeSpec {
    /// `access_modes`: `None` is ReadWriteOnce.
    pub fn new(
        name: &str,
        size: &str,
        storage_class: Option<&str>,
        access_modes: Option<&[String]>,
    ) -> Result<Self, VolumeError> {
        let legal = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if !legal || MAX_NAME < name.len() || QueueName::new(name).is_err() {
            return Err(VolumeError::Name(super::yaml::shown(name)));
        }
        if Quantity::parse(size).map_err(VolumeError::Size)? <= Quantity::ZERO {
            return Err(VolumeError::NoSize);
        }
        if let Some(class) = storage_class {
            QueueName::new(class)
                .map_err(|error| VolumeError::StorageClass(NameError { kind: "storage class", ..error }))?;
        }
        let modes = access_modes.map_or_else(|| vec!["ReadWriteOnce".to_owned()], <[String]>::to_vec);
        if let Some(unknown) = modes.iter().find(|mode| !ACCESS_MODES.contains(&mode.as_str())) {
            return Err(VolumeError::AccessMode(super::yaml::shown(unknown)));
        }
        if modes.is_empty() {
            return Err(VolumeError::NoAccessMode);
        }
        Ok(Self {
            name: name.to_owned(),
            size: size.to_owned(),
            storage_class: storage_class.map(str::to_owned),
            access_modes: modes,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// As written.
    pub fn size(&self) -> &str {
        &self.size
    }

    /// `None`: the cluster's default.
    pub fn storage_class(&self) -> Option<&str> {
        self.storage_class.as_deref()
    }

    pub fn access_modes(&self) -> &[String] {
        &self.access_modes
    }

    /// Whether pods on different nodes can mount it at once.
    pub fn is_shared(&self) -> bool {
        self.access_modes.iter().any(|mode| mode.ends_with("Many"))
    }

    pub fn claim_name(&self, id: &TaskId) -> String {
        format!("{}-{id}", self.name)
    }

    /// The claim as it is sent to its cluster.
    pub fn render(&self, id: &TaskId, owner: &str, place: &Place<'_>) -> Value {
        let mut spec = json!({
            "accessModes": self.access_modes,
            "resources": {"requests": {"storage": self.size}},
        });
        if let Some(class) = &self.storage_class {
            spec["storageClassName"] = json!(class);
        }
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": self.claim_name(id),
                "namespace": place.namespace,
                "labels": {
                    VOLUME_LABEL: "true",
                    VOLUME_ID_LABEL: id.as_str(),
                    "volume-name": self.name,
                    "username": user_label(owner),
                    HUB_LABEL: place.hub_id,
                    MANAGED_BY: MANAGED_BY_FEDQ,
                },
                "annotations": {
                    "created-at": naive(place.created),
                    super::render::OWNER_ANNOTATION: owner,
                },
            },
            "spec": spec,
        })
    }
}

/// Where and when a volume is made.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub namespace: &'a str,
    pub hub_id: &'a str,
    pub created: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_made_as_k8s_cli_makes_it() {
        let modes = ["ReadWriteMany".to_owned()];
        let volume = VolumeSpec::new("data-vol", "10Gi", Some("fast"), Some(&modes)).expect("valid");
        assert!(volume.is_shared());
        let id = TaskId::parse("0a1b2c3d").expect("an id");
        let created = Timestamp::from_microsecond(1_759_667_696_789_012).expect("a time");
        let place = Place { namespace: "team", hub_id: "hub", created };
        let expected = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "data-vol-0a1b2c3d",
                "namespace": "team",
                "labels": {
                    "skypilot-volume": "true",
                    "volume-id": "0a1b2c3d",
                    "volume-name": "data-vol",
                    "username": "user-example.com",
                    "fedq.dev/hub": "hub",
                    "app.kubernetes.io/managed-by": "fedq",
                },
                "annotations": {
                    "created-at": "2025-10-05T12:34:56.789012",
                    "fedq.dev/owner": "user@example.com",
                },
            },
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "10Gi"}},
                "storageClassName": "fast",
            },
        });
        assert_eq!(volume.render(&id, "user@example.com", &place), expected);
    }

    #[test]
    fn bad_volumes_are_refused_by_field() {
        let field = |name: &str, size: &str, class: Option<&str>, modes: Option<&[String]>| {
            VolumeSpec::new(name, size, class, modes).expect_err("refused").field()
        };
        for name in ["", "A", "a b", "a.b", "-a", "a@b", &"a".repeat(55)] {
            assert_eq!(field(name, "1Gi", None, None), "name", "{name}");
        }
        for size in ["", "lots", "0", "-1Gi", "1e9999"] {
            assert_eq!(field("a", size, None, None), "size", "{size}");
        }
        assert_eq!(field("a", "1Gi", Some("No Class"), None), "storage_class");
        assert_eq!(field("a", "1Gi", None, Some(&[])), "access_modes");
        assert_eq!(field("a", "1Gi", None, Some(&["ReadOnly".to_owned()])), "access_modes");
    }
}
