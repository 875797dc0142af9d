//! Names of things, one type per noun, so that a queue can never be passed where a flavor belongs.

use std::{borrow::Borrow, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

/// Why a text is not a name. The message is shown to the person who typed it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{kind} `{text}` is not valid: {rule}")]
pub struct NameError {
    pub kind: &'static str,
    pub text: String,
    pub rule: &'static str,
}

const SUBDOMAIN: &str = "use lower-case letters, digits, `-` and `.`, starting and ending with a letter or digit, at most 253 characters";
const CLUSTER: &str = "use lower-case letters, digits, `-` and `.`, starting and ending with a letter or digit, at most 63 characters";
const RESOURCE: &str =
    "use a Kubernetes resource name: letters, digits, `-`, `_`, `.`, with an optional DNS prefix and `/`";

/// RFC 1123 subdomain, as Kubernetes checks object names.
fn is_subdomain(text: &str, max: usize) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !text.is_empty()
        && text.len() <= max
        && text.split('.').all(|label| {
            label.starts_with(edge) && label.ends_with(edge) && label.chars().all(|c| edge(c) || c == '-')
        })
}

/// Qualified name as Kubernetes checks resource names and label keys.
fn is_qualified(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let edge = |c: char| c.is_ascii_alphanumeric();
    prefix.is_none_or(|prefix| is_subdomain(prefix, 253))
        && !name.is_empty()
        && name.len() <= 63
        && name.starts_with(edge)
        && name.ends_with(edge)
        && name.chars().all(|c| edge(c) || matches!(c, '-' | '_' | '.'))
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $rule:expr, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        #[serde(transparent)]
        pub struct $type(Arc<str>);

        impl $type {
            pub fn new(text: &str) -> Result<Self, NameError> {
                let valid: fn(&str) -> bool = $valid;
                if valid(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(NameError { kind: $kind, text: text.chars().take(80).collect(), rule: $rule })
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $type {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(&text).map_err(D::Error::custom)
            }
        }
    };
}

name!(
    /// A joined cluster. At most 63 characters, since it becomes a label value.
    ClusterName, "cluster name", CLUSTER, |text| is_subdomain(text, 63)
);
name!(
    /// A ClusterQueue, on the hub and under the same name on workers.
    QueueName, "ClusterQueue name", SUBDOMAIN, |text| is_subdomain(text, 253)
);
name!(
    /// A ResourceFlavor.
    FlavorName, "flavor name", SUBDOMAIN, |text| is_subdomain(text, 253)
);
name!(
    /// A ClusterResourceClaim object.
    ClaimName, "claim name", SUBDOMAIN, |text| is_subdomain(text, 253)
);
name!(
    /// A cohort of ClusterQueues.
    CohortName, "cohort name", SUBDOMAIN, |text| is_subdomain(text, 253)
);
name!(
    /// A resource under its Kubernetes name (`nvidia.com/gpu`, never the short `gpu`).
    ResourceName, "resource name", RESOURCE, is_qualified
);

impl ResourceName {
    /// Nano-units in the smallest amount that quota is counted in: Kueue counts cpu in thousandths
    /// and everything else in whole units (`pkg/resources/requests.go`).
    pub fn nanos_per_unit(&self) -> i128 {
        if self.as_str() == "cpu" { 1_000_000 } else { 1_000_000_000 }
    }

    /// Whether amounts are bytes, and so read best with binary suffixes.
    pub fn is_bytes(&self) -> bool {
        matches!(self.as_str(), "memory" | "ephemeral-storage") || self.as_str().starts_with("hugepages-")
    }

    /// What people share it out in, in the unit that quota is counted in: a core, a mebibyte, a GPU.
    pub fn units_of_a_whole(&self) -> i64 {
        if self.is_bytes() {
            1 << 20
        } else if self.as_str() == "cpu" {
            1000
        } else {
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_kubernetes_rules() {
        for good in ["a", "worker-1", "eu.west.1"] {
            assert!(ClusterName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a..b", "a_b", "../x", "a\n", &"a".repeat(64)] {
            assert!(ClusterName::new(bad).is_err(), "{bad}");
        }
        assert!(QueueName::new(&"a".repeat(253)).is_ok());
        assert!(QueueName::new(&"a".repeat(254)).is_err());
    }

    #[test]
    fn resource_names_are_qualified_names() {
        for good in ["cpu", "memory", "nvidia.com/gpu", "hugepages-2Mi"] {
            assert!(ResourceName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "nvidia.com/", "/gpu", "a/b/c", "NVIDIA.com/gpu", "gpu "] {
            assert!(ResourceName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_of_the_wrong_form_does_not_deserialize() {
        let error = serde_json::from_str::<QueueName>("\"No Spaces\"").expect_err("refused");
        assert!(error.to_string().contains("ClusterQueue name `No Spaces` is not valid"), "{error}");
    }
}
