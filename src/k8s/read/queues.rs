//! Queues and what belongs to them, into the types of `domain::queue`.

use serde_json::{Value, json};

use crate::{
    domain::queue::policy::QueuePolicy,
    k8s::types::kueue::{AdmissionChecksStrategy, ClusterQueueSpec, LabelSelector},
};

/// A ClusterQueue's spec apart from its quota.
pub fn policy(spec: &ClusterQueueSpec) -> QueuePolicy {
    let mut fields = spec.policy.clone();
    let mut put =
        |name: &str, value: Option<Value>| fields.insert(name.to_owned(), value.unwrap_or_default());
    put("cohortName", spec.cohort_name.as_ref().map(|name| json!(name)));
    put("stopPolicy", spec.stop_policy.as_ref().map(|policy| json!(policy)));
    put("namespaceSelector", spec.namespace_selector.as_ref().map(selector));
    put("admissionChecksStrategy", spec.admission_checks_strategy.as_ref().map(checks));
    QueuePolicy::new(fields)
}

fn selector(selector: &LabelSelector) -> Value {
    json!({"matchLabels": selector.match_labels, "matchExpressions": selector.match_expressions})
}

fn checks(strategy: &AdmissionChecksStrategy) -> Value {
    json!({"admissionChecks": strategy.admission_checks})
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[test]
    fn a_policy_has_every_field_but_the_quota() {
        let spec = json!({
            "resourceGroups": [], "cohortName": "all", "stopPolicy": "Hold",
            "namespaceSelector": {"matchLabels": {"team": "a"}},
            "admissionChecksStrategy": {"admissionChecks": [{"name": "multikueue"}]},
            "fairSharing": {"weight": "2"}, "comesLater": {"on": true},
        });
        let fields: Map<String, Value> = spec.as_object().cloned().expect("an object");
        let read: ClusterQueueSpec = serde_json::from_value(spec).expect("a spec");
        assert_eq!(policy(&read), QueuePolicy::new(fields));
        assert_eq!(policy(&read).fields().get("comesLater"), Some(&json!({"on": true})));
    }

    #[test]
    fn no_selector_and_an_empty_one_differ() {
        let read = |json: Value| {
            let spec: ClusterQueueSpec = serde_json::from_value(json).expect("a spec");
            policy(&spec).fields().get("namespaceSelector").cloned()
        };
        assert_eq!(read(json!({})), None);
        assert_eq!(read(json!({"namespaceSelector": null})), None);
        assert_eq!(read(json!({"namespaceSelector": {}})), Some(json!({})));
    }
}
