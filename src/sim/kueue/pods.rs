//! Pod templates: what they ask for, which flavors they tolerate, and what admission puts into them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::read::{at, child, items, labels, text, units};

pub(super) type Requests = BTreeMap<String, i64>;

/// What one pod of `template` asks for: its containers together or its largest init container,
/// whichever is more, plus overhead. Limits stand in for requests that are not given.
pub(super) fn requests(template: &Value) -> Requests {
    let spec = &template["spec"];
    let mut total = Requests::new();
    for container in items(spec, &["containers"]) {
        add(&mut total, &of_container(container));
    }
    let mut sidecars = Requests::new();
    let mut first = Requests::new();
    for container in items(spec, &["initContainers"]) {
        let mut own = of_container(container);
        if container["restartPolicy"] == "Always" {
            add(&mut sidecars, &own);
            own = sidecars.clone();
        } else {
            add(&mut own, &sidecars);
        }
        raise(&mut first, &own);
    }
    add(&mut total, &sidecars);
    raise(&mut total, &first);
    // Requests of the pod itself replace what its containers sum up to.
    total.extend(of_container(spec));
    for (resource, quantity) in spec["overhead"].as_object().into_iter().flatten() {
        *total.entry(resource.clone()).or_default() += units(resource, quantity);
    }
    for amount in total.values_mut() {
        *amount = (*amount).max(0);
    }
    total
}

fn of_container(container: &Value) -> Requests {
    let list = |field: &str| {
        let resources = at(container, &["resources", field]).as_object().into_iter().flatten();
        resources.map(|(name, quantity)| (name.clone(), units(name, quantity))).collect::<Requests>()
    };
    let mut requests = list("limits");
    requests.extend(list("requests"));
    requests
}

fn add(total: &mut Requests, more: &Requests) {
    for (resource, amount) in more {
        let sum = total.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

fn raise(total: &mut Requests, floor: &Requests) {
    for (resource, amount) in floor {
        let most = total.entry(resource.clone()).or_default();
        *most = (*most).max(*amount);
    }
}

/// Why pods of `template` cannot use a flavor, in Kueue's words.
pub(super) fn mismatch(template: &Value, flavor: &Value) -> Option<String> {
    let name = text(flavor, &["metadata", "name"]);
    let tolerations = || {
        let own = items(template, &["spec", "tolerations"]).iter();
        own.chain(items(flavor, &["spec", "tolerations"]))
    };
    let repels = |taint: &&Value| {
        matches!(taint["effect"].as_str(), Some("NoSchedule" | "NoExecute"))
            && !tolerations().any(|toleration| tolerates(toleration, taint))
    };
    if let Some(taint) = items(flavor, &["spec", "nodeTaints"]).iter().find(repels) {
        let (key, value, effect) = (text(taint, &["key"]), text(taint, &["value"]), text(taint, &["effect"]));
        return Some(format!("untolerated taint {{{key} {value} {effect} <nil>}} in flavor {name}"));
    }
    let own = labels(at(flavor, &["spec", "nodeLabels"]));
    let selected = labels(at(template, &["spec", "nodeSelector"]))
        .iter()
        .all(|(key, value)| own.get(key).is_none_or(|own| own == value));
    if selected && affine(template, &own) {
        return None;
    }
    Some(format!("flavor {name} doesn't match node affinity"))
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let (effect, key) = (text(toleration, &["effect"]), text(toleration, &["key"]));
    (effect.is_empty() || effect == text(taint, &["effect"]))
        && (key.is_empty() || key == text(taint, &["key"]))
        && (toleration["operator"] == "Exists" || text(toleration, &["value"]) == text(taint, &["value"]))
}

/// Required node affinity, of which only the keys count that the flavor labels its nodes with.
fn affine(template: &Value, own: &BTreeMap<&str, &str>) -> bool {
    let terms = items(
        template,
        &[
            "spec",
            "affinity",
            "nodeAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution",
            "nodeSelectorTerms",
        ],
    );
    terms.is_empty()
        || terms.iter().any(|term| {
            let known =
                items(term, &["matchExpressions"]).iter().filter(|e| own.contains_key(text(e, &["key"])));
            known.into_iter().all(|expression| matches(expression, own))
        })
}

/// One requirement of a label selector or a node affinity.
pub(super) fn matches(expression: &Value, labels: &BTreeMap<&str, &str>) -> bool {
    let value = labels.get(text(expression, &["key"])).copied();
    let listed = |value: &str| items(expression, &["values"]).iter().any(|one| one == value);
    let bound = || items(expression, &["values"]).first().and_then(Value::as_str)?.parse::<i64>().ok();
    let number = || value?.parse::<i64>().ok();
    match text(expression, &["operator"]) {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number().zip(bound()).is_some_and(|(number, bound)| bound < number),
        "Lt" => number().zip(bound()).is_some_and(|(number, bound)| number < bound),
        _ => false,
    }
}

/// Whether a label selector takes these labels: one that is absent takes none, an empty one all.
pub(super) fn selects(selector: &Value, labels: &BTreeMap<&str, &str>) -> bool {
    selector.is_object()
        && super::read::labels(&selector["matchLabels"])
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
        && items(selector, &["matchExpressions"]).iter().all(|expression| matches(expression, labels))
}

/// Whether two templates run the same: containers alike, and tolerations where those are told apart.
pub(super) fn same_template(a: &Value, b: &Value, with_tolerations: bool) -> bool {
    let list = |template: &Value, field| template["spec"][field].as_array().cloned().unwrap_or_default();
    let same = |field| list(a, field) == list(b, field);
    same("containers") && same("initContainers") && (!with_tolerations || same("tolerations"))
}

/// What admission puts into a pod template.
#[derive(Debug, Default)]
pub(super) struct Injection {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<Value>,
}

impl Injection {
    /// Refused, naming the fields, when the template already says something else.
    pub(super) fn apply(&self, template: &mut Value) -> Result<(), String> {
        let parts: [(&str, &[&str], &BTreeMap<String, String>); 3] = [
            ("annotations", &["metadata", "annotations"], &self.annotations),
            ("labels", &["metadata", "labels"], &self.labels),
            ("nodeSelector", &["spec", "nodeSelector"], &self.node_selector),
        ];
        for (what, path, new) in parts {
            let old = labels(at(template, path));
            let other =
                |(key, value): &(&String, &String)| old.get(key.as_str()).is_some_and(|old| old != value);
            if let Some((key, value)) = new.iter().find(other) {
                let old = old[key.as_str()];
                return Err(format!(
                    "invalid admission check PodSetUpdate: conflict for {what}: conflict for key={key}, value1={old}, value2={value}"
                ));
            }
        }
        for (_, path, new) in parts {
            if !new.is_empty() {
                child(template, path).extend(new.iter().map(|(key, value)| (key.clone(), json!(value))));
            }
        }
        let mut tolerations = items(template, &["spec", "tolerations"]).to_vec();
        for toleration in &self.tolerations {
            if !tolerations.contains(toleration) {
                tolerations.push(toleration.clone());
            }
        }
        if !tolerations.is_empty() {
            child(template, &["spec"]).insert("tolerations".to_owned(), Value::Array(tolerations));
        }
        Ok(())
    }
}

/// Takes back what admission put into `template`, as its Workload remembers it. The labels that the job
/// controller owns stay.
pub(super) fn restore(template: &mut Value, original: &Value) {
    let managed: Map<String, Value> = template["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| MANAGED_LABELS.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for (section, field) in [
        ("metadata", "annotations"),
        ("metadata", "labels"),
        ("spec", "nodeSelector"),
        ("spec", "tolerations"),
        ("spec", "schedulingGates"),
    ] {
        match at(original, &[section, field]) {
            Value::Null if at(template, &[section, field]).is_null() => {}
            Value::Null => drop(child(template, &[section]).remove(field)),
            value => drop(child(template, &[section]).insert(field.to_owned(), value.clone())),
        }
    }
    if !managed.is_empty() {
        child(template, &["metadata", "labels"]).extend(managed);
    }
}

const MANAGED_LABELS: [&str; 4] =
    ["job-name", "controller-uid", "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"];

/// The template as a Workload carries it, without the labels that name one run of the job.
pub(super) fn for_workload(template: &Value) -> Value {
    let mut template = template.clone();
    let has_labels = template["metadata"]["labels"].is_object();
    if has_labels {
        child(&mut template, &["metadata", "labels"]).retain(|key, _| {
            !MANAGED_LABELS.contains(&key.as_str()) || key == "batch.kubernetes.io/job-name"
        });
    }
    template
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(cpu: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu}}})
    }

    /// `k8s.io/component-helpers/resource/helpers_test.go`, restartable init containers.
    #[test]
    fn init_containers_count_where_they_need_more() {
        let pod = |init: Value, main: Value| json!({"spec": {"initContainers": init, "containers": main}});
        let cpu = |template: &Value| requests(template)["cpu"];
        assert_eq!(cpu(&pod(json!([container("3")]), json!([container("1"), container("1")]))), 3000);
        assert_eq!(cpu(&pod(json!([container("1")]), json!([container("1"), container("1")]))), 2000);
        let mut sidecar = container("1");
        sidecar["restartPolicy"] = json!("Always");
        assert_eq!(cpu(&pod(json!([sidecar, container("3")]), json!([container("1")]))), 4000);
    }

    /// `pkg/workload/resources_test.go`, "Handle container limit range / limits as requests".
    #[test]
    fn limits_stand_in_for_requests() {
        let template = json!({"spec": {"containers": [
            {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}},
        ]}});
        assert_eq!(requests(&template), Requests::from([("cpu".into(), 1000), ("memory".into(), 1 << 30)]));
    }

    /// `pkg/scheduler/flavorassigner/flavorassigner_test.go`, "multiple flavors, doesn't fit node
    /// affinity" and "… skips missing ResourceFlavor / untolerated taint".
    #[test]
    fn a_flavor_has_to_suit_the_pods() {
        let flavor = json!({"metadata": {"name": "spot"}, "spec": {
            "nodeLabels": {"type": "spot"},
            "nodeTaints": [{"key": "spot", "value": "yes", "effect": "NoSchedule"}],
        }});
        let tolerant = json!([{"key": "spot", "operator": "Exists"}]);
        assert_eq!(
            mismatch(&json!({"spec": {}}), &flavor).unwrap(),
            "untolerated taint {spot yes NoSchedule <nil>} in flavor spot"
        );
        assert_eq!(mismatch(&json!({"spec": {"tolerations": tolerant}}), &flavor), None);
        let other =
            json!({"spec": {"tolerations": tolerant, "nodeSelector": {"type": "reserved", "else": "1"}}});
        assert_eq!(mismatch(&other, &flavor).unwrap(), "flavor spot doesn't match node affinity");
    }

    #[test]
    fn a_selector_that_is_absent_takes_nothing() {
        let labels = BTreeMap::from([("team", "a")]);
        assert!(!selects(&Value::Null, &labels));
        assert!(selects(&json!({}), &labels));
        assert!(selects(&json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}), &labels));
        assert!(!selects(&json!({"matchLabels": {"team": "b"}}), &labels));
    }
}
