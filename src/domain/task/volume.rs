//! Volumes: PersistentVolumeClaims that tasks mount by a name of their own. fedq makes them, or they were there before.

use std::fmt;

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
const READ_ONLY_MANY: &str = "ReadOnlyMany";
const READ_WRITE_MANY: &str = "ReadWriteMany";
const ACCESS_MODES: [&str; 4] = ["ReadWriteOnce", READ_WRITE_MANY, READ_ONLY_MANY, "ReadWriteOncePod"];
/// With its id behind, the name still fits a label.
const MAX_NAME: usize = 54;

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSpec {
    name: String,
    size: String,
    storage_class: Option<String>,
    access_modes: Vec<String>,
    /// A claim that was there before, and stays when the volume goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    adopted: Option<Adopted>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Adopted {
    claim: String,
    read_only: bool,
}

/// A PersistentVolumeClaim as it is on its cluster.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ExistingClaim {
    /// What it has, or what it asks for where it is not bound.
    pub size: String,
    pub storage_class: Option<String>,
    pub access_modes: Vec<String>,
    /// `Pending`, `Bound` or `Lost`.
    pub phase: String,
    /// Being deleted.
    pub going: bool,
    /// A device instead of a file system.
    pub is_block: bool,
    /// A volume that some fedq made, which may be another person's.
    pub is_of_fedq: bool,
}

/// Why tasks cannot mount a claim, to be read behind its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unfit {
    Going,
    Lost,
    Block,
    OfFedq,
    OnlyRead,
}

impl Unfit {
    pub fn next(self) -> &'static str {
        match self {
            Self::Going | Self::Lost | Self::Block => "name another claim",
            Self::OfFedq => "mount it by the name that its owner gave it; fedq volume list shows yours",
            Self::OnlyRead => "have it read only: --read-only, or read_only: true in a task file",
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Going => "is being deleted",
            Self::Lost => "is Lost: the disk behind it is gone",
            Self::Block => "is a device (volumeMode: Block), and tasks mount file systems",
            Self::OfFedq => "is a volume that fedq made, for whoever made it",
            Self::OnlyRead => "is ReadOnlyMany, so nothing can be written there",
        })
    }
}

impl ExistingClaim {
    /// Whether pods on different nodes can mount it at once.
    pub fn is_shared(&self, read_only: bool) -> bool {
        is_shared(&self.access_modes, read_only)
    }

    /// One that is not bound yet may be waiting for its first pod: nobody but Kubernetes can say whether it will be.
    pub fn unfit(&self, read_only: bool) -> Option<Unfit> {
        if self.is_of_fedq {
            return Some(Unfit::OfFedq);
        }
        if self.going {
            return Some(Unfit::Going);
        }
        if self.phase == "Lost" {
            return Some(Unfit::Lost);
        }
        if self.is_block {
            return Some(Unfit::Block);
        }
        let writable = self.access_modes.iter().any(|mode| mode != READ_ONLY_MANY);
        (!writable && !read_only).then_some(Unfit::OnlyRead)
    }
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
    #[error("`{0}` is no name of a PersistentVolumeClaim: use lower-case letters, digits, `-` and `.`")]
    Claim(String),
}

impl VolumeError {
    /// The field of the request that it is about.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Name(_) => "name",
            Self::Size(_) | Self::NoSize => "size",
            Self::AccessMode(_) | Self::NoAccessMode => "access_modes",
            Self::StorageClass(_) => "storage_class",
            Self::Claim(_) => "claim",
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
        check_name(name)?;
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
            adopted: None,
        })
    }

    /// Of a claim that is there, which the caller has found to be fit.
    pub fn adopt(
        name: &str,
        claim: &str,
        read_only: bool,
        found: ExistingClaim,
    ) -> Result<Self, VolumeError> {
        check_name(name)?;
        check_claim(claim)?;
        let ExistingClaim { size, storage_class, access_modes, .. } = found;
        let adopted = Some(Adopted { claim: claim.to_owned(), read_only });
        Ok(Self { name: name.to_owned(), size, storage_class, access_modes, adopted })
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
        is_shared(&self.access_modes, self.is_read_only())
    }

    /// Whether its claim was there before, so that fedq neither makes nor deletes it.
    pub fn is_adopted(&self) -> bool {
        self.adopted.is_some()
    }

    /// Whether tasks may not write to it.
    pub fn is_read_only(&self) -> bool {
        self.adopted.as_ref().is_some_and(|adopted| adopted.read_only)
    }

    pub fn claim_name(&self, id: &TaskId) -> String {
        match &self.adopted {
            Some(adopted) => adopted.claim.clone(),
            None => format!("{}-{id}", self.name),
        }
    }

    /// The claim as it is sent to its cluster, where it was not there before.
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

/// A disk that many may read and one may write is mounted for writing by one node.
fn is_shared(access_modes: &[String], read_only: bool) -> bool {
    let many = |mode: &String| mode == READ_WRITE_MANY || (mode == READ_ONLY_MANY && read_only);
    let is_never_written = !access_modes.is_empty() && access_modes.iter().all(|mode| mode == READ_ONLY_MANY);
    access_modes.iter().any(many) || is_never_written
}

pub fn check_name(name: &str) -> Result<(), VolumeError> {
    let legal = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if !legal || MAX_NAME < name.len() || QueueName::new(name).is_err() {
        return Err(VolumeError::Name(super::yaml::shown(name)));
    }
    Ok(())
}

pub fn check_claim(claim: &str) -> Result<(), VolumeError> {
    QueueName::new(claim).map(drop).map_err(|_| VolumeError::Claim(super::yaml::shown(claim)))
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
    fn what_many_may_read_and_one_may_write_is_written_by_one_node() {
        for (modes, read_only, shared) in [
            (&["ReadWriteOnce", "ReadOnlyMany"][..], false, false),
            (&["ReadWriteOnce", "ReadOnlyMany"], true, true),
            (&["ReadWriteMany"], false, true),
            (&["ReadOnlyMany"], false, true),
            (&["ReadWriteOnce"], true, false),
            (&[], true, false),
        ] {
            let access_modes = modes.iter().map(|&mode| mode.to_owned()).collect();
            let claim = ExistingClaim { access_modes, ..ExistingClaim::default() };
            assert_eq!(claim.is_shared(read_only), shared, "{modes:?}, read only: {read_only}");
        }
    }

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
        let adopted = |name, claim| VolumeSpec::adopt(name, claim, false, ExistingClaim::default());
        assert_eq!(adopted("a b", "claim").expect_err("refused").field(), "name");
        for claim in ["", "A", "a/b", "..", "a b", &"a".repeat(254)] {
            assert_eq!(adopted("a", claim).expect_err("refused").field(), "claim", "{claim}");
        }
    }

    #[test]
    fn a_claim_is_adopted_as_it_is() {
        let found = ExistingClaim {
            size: "5Ti".to_owned(),
            storage_class: Some("lustre".to_owned()),
            access_modes: vec!["ReadWriteMany".to_owned()],
            phase: "Bound".to_owned(),
            ..ExistingClaim::default()
        };
        let volume = VolumeSpec::adopt("data", "datasets.v2", true, found).expect("valid");
        let id = TaskId::parse("0a1b2c3d").expect("an id");
        assert_eq!((volume.claim_name(&id).as_str(), volume.size()), ("datasets.v2", "5Ti"));
        assert!(volume.is_adopted() && volume.is_read_only() && volume.is_shared());
        let kept = serde_json::to_string(&volume).expect("JSON");
        assert_eq!(serde_json::from_str::<VolumeSpec>(&kept).expect("a volume"), volume);
        // As an earlier fedq stored it.
        let before =
            json!({"name": "a", "size": "1Gi", "storageClass": null, "accessModes": ["ReadWriteOnce"]});
        let own: VolumeSpec = serde_json::from_value(before.clone()).expect("a volume");
        assert!(!own.is_adopted() && !own.is_read_only());
        assert_eq!(serde_json::to_value(&own).expect("JSON"), before);
    }

    #[test]
    fn a_claim_that_tasks_cannot_mount_is_not_adopted() {
        let claim = |modes: &[&str], phase: &str| ExistingClaim {
            access_modes: modes.iter().map(|&mode| mode.to_owned()).collect(),
            phase: phase.to_owned(),
            ..ExistingClaim::default()
        };
        let bound = claim(&["ReadWriteOnce"], "Bound");
        for (claim, read_only, expected) in [
            (bound.clone(), false, None),
            (bound.clone(), true, None),
            (claim(&["ReadWriteOnce"], "Pending"), false, None),
            (claim(&["ReadOnlyMany", "ReadWriteOnce"], "Bound"), false, None),
            (claim(&["ReadOnlyMany"], "Bound"), true, None),
            (claim(&["ReadOnlyMany"], "Bound"), false, Some(Unfit::OnlyRead)),
            (claim(&["ReadWriteOnce"], "Lost"), true, Some(Unfit::Lost)),
            (ExistingClaim { going: true, ..bound.clone() }, true, Some(Unfit::Going)),
            (ExistingClaim { is_block: true, ..bound.clone() }, true, Some(Unfit::Block)),
            (ExistingClaim { is_of_fedq: true, ..bound }, true, Some(Unfit::OfFedq)),
        ] {
            assert_eq!(claim.unfit(read_only), expected, "{claim:?}");
        }
    }
}
