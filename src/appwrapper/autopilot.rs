//! Autopilot marks nodes whose devices are unwell with labels. Pods that use such devices are kept away from those nodes,
//! and moved off them where that is said to be necessary.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::{config::Autopilot, observed_pod::ObservedPod, pod_template};

/// By node: resources that are to be used no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHealth(BTreeMap<String, BTreeSet<String>>);

impl NodeHealth {
    /// Takes in what a node's labels say; whether that is news.
    pub fn learn(&mut self, node: &str, labels: &BTreeMap<String, String>, autopilot: &Autopilot) -> bool {
        let evicts = |taints: &[crate::config::NodeTaint]| {
            let mut taints = taints.iter().filter(|taint| taint.effect == "NoExecute");
            taints.any(|taint| labels.get(&taint.key) == Some(&taint.value))
        };
        let resources: BTreeSet<String> = autopilot
            .resource_taints
            .iter()
            .filter(|(_, taints)| evicts(taints))
            .map(|(resource, _)| resource.clone())
            .collect();
        if resources.is_empty() {
            return self.forget(node);
        }
        self.0.insert(node.to_owned(), resources.clone()) != Some(resources)
    }

    pub fn forget(&mut self, node: &str) -> bool {
        self.0.remove(node).is_some()
    }

    /// The pod's node, if the pod uses what is broken there.
    pub fn is_evicting(&self, pod: &ObservedPod) -> Option<String> {
        let node = pod.node.as_ref()?;
        let broken = self.0.get(node)?;
        (!broken.is_disjoint(&pod.uses)).then(|| node.clone())
    }
}

/// Keeps pods that use a resource away from nodes where it is unwell. A spec that has something else in the place of an
/// affinity is left as it is: the API server refuses it anyway.
pub fn inject(spec: &mut Map<String, Value>, autopilot: &Autopilot) {
    let (mut required, mut preferred) = (BTreeMap::new(), BTreeMap::new());
    for (resource, taints) in &autopilot.resource_taints {
        if !pod_template::asks_for(spec, resource) {
            continue;
        }
        for taint in taints {
            let list: &mut BTreeMap<String, Vec<String>> = match taint.effect.as_str() {
                "NoExecute" | "NoSchedule" => &mut required,
                "PreferNoSchedule" => &mut preferred,
                _ => continue,
            };
            list.entry(taint.key.clone()).or_default().push(taint.value.clone());
        }
    }
    if !required.is_empty() {
        let _ = require(spec, &expressions(required));
    }
    if !preferred.is_empty() {
        let weight = autopilot.prefer_no_schedule_weight.unwrap_or(1);
        let _ = prefer(spec, &expressions(preferred), weight);
    }
}

fn expressions(values: BTreeMap<String, Vec<String>>) -> Vec<Value> {
    let expression = |(key, values)| json!({"key": key, "operator": "NotIn", "values": values});
    values.into_iter().map(expression).collect()
}

fn node_affinity(spec: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
    let affinity = spec.entry("affinity").or_insert_with(|| json!({})).as_object_mut()?;
    affinity.entry("nodeAffinity").or_insert_with(|| json!({})).as_object_mut()
}

/// Terms are alternatives, so each gets the expressions.
fn require(spec: &mut Map<String, Value>, expressions: &[Value]) -> Option<()> {
    let key = "requiredDuringSchedulingIgnoredDuringExecution";
    let selector = node_affinity(spec)?.entry(key).or_insert_with(|| json!({})).as_object_mut()?;
    let terms = selector.entry("nodeSelectorTerms").or_insert_with(|| json!([{}])).as_array_mut()?;
    for term in terms {
        let list = term.as_object_mut()?.entry("matchExpressions").or_insert_with(|| json!([]));
        list.as_array_mut()?.extend_from_slice(expressions);
    }
    Some(())
}

fn prefer(spec: &mut Map<String, Value>, expressions: &[Value], weight: i32) -> Option<()> {
    let key = "preferredDuringSchedulingIgnoredDuringExecution";
    let terms = node_affinity(spec)?.entry(key).or_insert_with(|| json!([])).as_array_mut()?;
    terms.push(json!({"weight": weight, "preference": {"matchExpressions": expressions}}));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AppWrapperConfig;

    /// `internal/controller/appwrapper/node_health_monitor_test.go`, "Autopilot Monitoring". Its second half is of nodes on
    /// which nothing can be scheduled, which upstream collects and, since v1.1.0, uses for nothing.
    #[test]
    fn a_node_that_is_to_be_emptied_is_known_until_its_label_goes() {
        let autopilot = AppWrapperConfig::default().autopilot.expect("on by default");
        let label =
            |value: &str| BTreeMap::from([("autopilot.ibm.com/gpuhealth".to_owned(), value.to_owned())]);
        let mut health = NodeHealth::default();
        assert!(!health.learn("fake-node-1", &BTreeMap::new(), &autopilot));
        assert!(health.learn("fake-node-1", &label("EVICT"), &autopilot));
        assert!(health.0["fake-node-1"].contains("nvidia.com/gpu"));
        assert!(!health.learn("fake-node-1", &label("EVICT"), &autopilot));
        assert!(!health.learn("fake-node-2", &label("TESTING"), &autopilot));
        assert!(health.learn("fake-node-1", &label("WARN"), &autopilot));
        assert_eq!(health, NodeHealth::default());
        assert!(!health.forget("fake-node-1"));
    }
}
