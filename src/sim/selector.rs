//! Label and field selectors of lists and watches.

mod labels;

use serde_json::Value;

use super::kind::Kind;
use super::status::Refusal;
use labels::Requirement;

#[derive(Clone, Debug, Default)]
pub struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Field>,
}

#[derive(Clone, Debug)]
struct Field {
    path: String,
    equal: bool,
    value: String,
}

impl Selector {
    /// Of objects of that kind: only some of its fields can be selected by.
    pub fn parse(kind: &Kind, labels: Option<&str>, fields: Option<&str>) -> Result<Self, Refusal> {
        let labels = labels::parse(labels.unwrap_or_default());
        let texts = fields.unwrap_or_default().split(',').filter(|text| !text.is_empty());
        let fields = texts.map(|text| field(kind, text)).collect::<Result<_, _>>();
        Ok(Self {
            labels: labels.map_err(Refusal::bad_request)?,
            fields: fields.map_err(Refusal::bad_request)?,
        })
    }

    /// Of these, the one of that name.
    pub fn and_name(mut self, name: &str) -> Self {
        let path = "metadata.name".to_owned();
        self.fields.push(Field { path, equal: true, value: name.to_owned() });
        self
    }

    /// The only name that matches, if there is only one.
    pub fn name(&self) -> Option<&str> {
        let names = self.fields.iter().filter(|field| field.equal && field.path == "metadata.name");
        names.map(|field| &*field.value).next()
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let by_labels = self.labels.iter().all(|requirement| {
            let value = labels.get(&requirement.key).and_then(Value::as_str);
            requirement.test.passes(value)
        });
        by_labels && self.fields.iter().all(|field| field.matches(object))
    }
}

impl Field {
    fn matches(&self, object: &Value) -> bool {
        let value = self.path.split('.').fold(object, |value, key| value.get(key).unwrap_or(&Value::Null));
        let same = match value {
            Value::String(text) => *text == self.value,
            // What is false is not written down.
            Value::Null => self.value.is_empty() || self.value == "false",
            other => {
                let text = other.to_string();
                text == self.value
            }
        };
        same == self.equal
    }
}

fn field(kind: &Kind, text: &str) -> Result<Field, String> {
    let (path, equal, value) = if let Some((path, value)) = text.split_once("!=") {
        (path, false, value)
    } else if let Some((path, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (path, true, value)
    } else {
        return Err(format!("invalid selector: '{text}'; can't understand '{text}'"));
    };
    let path = kept_path(kind, path.trim());
    let path = path.as_str();
    let known = path == "metadata.name"
        || (path == "metadata.namespace" && kind.namespaced)
        || selectable(kind).contains(&path);
    if !known {
        return Err(format!("field label not supported: {path}"));
    }
    Ok(Field { path: path.to_owned(), equal, value: value.trim().to_owned() })
}

/// Events are kept in the form of their own group, and selected from in that of the core group too.
fn kept_path(kind: &Kind, path: &str) -> String {
    match path.strip_prefix("involvedObject.") {
        Some(rest) if kind.kind == "Event" => format!("regarding.{rest}"),
        _ if kind.kind == "Event" && path == "source" => "deprecatedSource.component".to_owned(),
        _ => path.to_owned(),
    }
}

/// Beside name and namespace.
fn selectable(kind: &Kind) -> &'static [&'static str] {
    match kind.kind {
        "Secret" => &["type"],
        "Namespace" => &["status.phase"],
        "Node" => &["spec.unschedulable"],
        "Job" => &["status.successful"],
        "Pod" => &["spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "status.phase"],
        "Event" => &[
            "reason",
            "type",
            "reportingController",
            "deprecatedSource.component",
            "regarding.kind",
            "regarding.name",
            "regarding.namespace",
            "regarding.uid",
        ],
        "Workload" => &["status.admission.clusterQueue"],
        "ClusterResourceClaim" => &["spec.clusterName"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(kind: &str, labels: Option<&str>, fields: Option<&str>) -> Result<Selector, Refusal> {
        Selector::parse(Kind::named(kind).unwrap(), labels, fields)
    }

    #[test]
    fn labels_and_fields_have_to_fit_both() {
        let object =
            json!({"metadata": {"name": "n", "labels": {"a": "1"}}, "spec": {"unschedulable": true}});
        let selects = |labels, fields| of("Node", Some(labels), Some(fields)).unwrap().matches(&object);
        assert!(selects("a=1", "metadata.name=n,spec.unschedulable=true"));
        assert!(!selects("a=2", "metadata.name=n") && !selects("a", "metadata.name!=n"));
        assert!(!selects("a", "spec.unschedulable=false"));
        let schedulable = of("Node", None, Some("spec.unschedulable=false")).unwrap();
        assert!(schedulable.matches(&json!({"metadata": {"name": "n"}})));
        assert!(of("Node", None, None).unwrap().is_empty());
    }

    #[test]
    fn fields_that_nobody_selects_by_are_refused() {
        for (kind, fields) in
            [("Secret", "spec.nothing=1"), ("Node", "metadata.namespace=a"), ("Secret", "metadata.name")]
        {
            assert!(of(kind, None, Some(fields)).is_err(), "{fields}");
        }
        assert!(of("Secret", None, Some("metadata.namespace=a,type!=Opaque")).is_ok());
        assert!(of("Event", None, Some("involvedObject.name=a")).is_ok());
        assert!(of("Secret", Some("a in"), None).is_err());
    }
}
