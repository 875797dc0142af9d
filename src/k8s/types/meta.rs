//! Object metadata and quantities as they arrive.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

pub use fedq_domain::queue::objects::{ADOPT, HUB_LABEL, MANAGED_BY, MANAGED_BY_FEDQ};

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    pub name: String,
    #[serde(default)]
    pub namespace: Option<String>,
    #[serde(default)]
    pub uid: String,
    #[serde(default)]
    pub resource_version: String,
    #[serde(default)]
    pub generation: i64,
    #[serde(default)]
    pub creation_timestamp: Option<String>,
    #[serde(default)]
    pub deletion_timestamp: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub finalizers: Vec<String>,
    #[serde(default)]
    pub managed_fields: Vec<Manager>,
}

impl Meta {
    /// Whether a person hands the object over, and no hub has it yet.
    pub fn is_handed_over(&self) -> bool {
        !self.labels.contains_key(HUB_LABEL)
            && self.annotations.get(ADOPT).is_some_and(|adopt| adopt == "true")
    }

    /// Whether fedq of this hub made the object or has taken it over.
    pub fn is_labelled(&self, hub_id: &str) -> bool {
        self.labels.get(HUB_LABEL).is_some_and(|id| id == hub_id)
    }

    pub fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }
}

/// Who wrote last, for messages; the fields themselves are not kept.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Manager {
    #[serde(default)]
    pub manager: String,
    #[serde(default)]
    pub time: Option<String>,
    #[serde(default)]
    pub subresource: Option<String>,
}

/// An object of which only the metadata matters.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct MetaOnly {
    pub metadata: Meta,
}

/// A quantity as written: Kubernetes allows a number or a text.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct QuantityText(pub String);

impl Default for QuantityText {
    fn default() -> Self {
        Self("0".to_owned())
    }
}

impl JsonSchema for QuantityText {
    fn schema_name() -> Cow<'static, str> {
        "ObservedQuantity".into()
    }

    /// As the API server itself takes quantities.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
            "x-kubernetes-int-or-string": true,
        })
    }
}

impl<'de> Deserialize<'de> for QuantityText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = QuantityText;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a quantity as text or number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<QuantityText, E> {
                Ok(QuantityText(text.to_owned()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<QuantityText, E> {
                Ok(QuantityText(number.to_string()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<QuantityText, E> {
                Ok(QuantityText(number.to_string()))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<QuantityText, E> {
                Ok(QuantityText(number.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Makes kinds with a [`Meta`] keepable in a table.
macro_rules! record {
    ($($kind:ty),* $(,)?) => {
        $(impl crate::list_watch::Record for $kind {
            fn key(&self) -> crate::list_watch::Key {
                (self.metadata.namespace.clone(), self.metadata.name.clone())
            }

            fn version(&self) -> u64 {
                self.metadata.resource_version.parse().unwrap_or(0)
            }
        })*
    };
}

record!(
    MetaOnly,
    super::cluster_metrics::ClusterMetrics,
    super::cluster_profile::ClusterProfile,
    super::kueue::AdmissionCheck,
    super::kueue::ClusterQueue,
    super::kueue::Cohort,
    super::kueue::LocalQueue,
    super::kueue::MultiKueueCluster,
    super::kueue::MultiKueueConfig,
    super::kueue::ResourceFlavor,
    super::kueue::Workload,
    super::kueue::WorkloadPriorityClass,
    super::ocm::AddOnPlacementScore,
    super::ocm::Lease,
    super::ocm::ManagedCluster,
    super::ocm::ManagedClusterSet,
    super::ocm::Placement,
    super::ocm::PlacementDecision,
);
