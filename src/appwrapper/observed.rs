//! A component as its cluster has it. It is of any kind and written by anybody, so nothing is read of it but what is asked of
//! it here; all else is passed over where it lies.

use std::borrow::Cow;

use kube::{
    Resource,
    api::{ApiResource, ObjectMeta},
    core::DynamicResourceScope,
};
use serde::{Deserialize, de::IgnoredAny};

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Observed {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    status: Status,
}

/// Each kind has a status of its own; one that has no conditions as Kubernetes writes them has none for us.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Status {
    Told { conditions: Vec<Condition> },
    Other(IgnoredAny),
}

#[derive(Clone, Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl Default for Status {
    fn default() -> Self {
        Self::Other(IgnoredAny)
    }
}

impl Observed {
    /// Whether it has a condition that is True.
    pub fn has(&self, kind: &str) -> bool {
        let Status::Told { conditions } = &self.status else { return false };
        conditions.iter().any(|condition| condition.kind == kind && condition.status == "True")
    }

    /// What of it is kept in memory.
    pub fn trim(&mut self) {
        let meta = &mut self.metadata;
        (meta.managed_fields, meta.annotations, meta.finalizers) = (None, None, None);
    }
}

impl Resource for Observed {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use fedq_values::nested;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_conditions_are_read_and_anything_else_may_be_there() {
        let read = |status: serde_json::Value| {
            let object = json!({"apiVersion": "v1", "metadata": {"name": "a"}, "spec": 7, "status": status});
            serde_json::from_value::<Observed>(object).expect("an object")
        };
        assert!(
            read(json!({"conditions": [{"type": "Failed", "status": "True", "reason": 3}], "x": [1]}))
                .has("Failed")
        );
        for other in [
            json!({"conditions": [{"type": "Failed", "status": "False"}]}),
            json!({"conditions": "Failed"}),
            json!({"conditions": [{"type": "Failed"}]}),
            json!({"phase": "Failed"}),
            json!("Failed"),
            json!(null),
        ] {
            assert!(!read(other.clone()).has("Failed"), "{other}");
        }
        assert!(!serde_json::from_str::<Observed>("{}").expect("an object").has("Failed"));
    }

    /// Read whole, it would take more stack than there is.
    #[test]
    fn json_within_json_is_passed_over() {
        let nest = nested::nest(400);
        let text =
            format!(r#"{{"metadata":{{"name":"a"}},"spec":{nest},"status":{{"conditions":[],"x":{nest}}}}}"#);
        let seen: Observed = serde_json::from_str(&text).expect("an object");
        assert_eq!(seen.metadata.name.as_deref(), Some("a"));
    }
}
