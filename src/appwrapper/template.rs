//! A wrapped object as it lies in the controller's memory: the text that the server sent. It is read when it is judged or made,
//! which is seldom; a tree of JSON takes ten times as much, and each copy of an AppWrapper would copy it.

use std::{borrow::Cow, sync::Arc};

use fedq_values::nested;
use k8s_openapi::schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

/// Copies share their text.
#[derive(Clone, Debug)]
pub struct Template(Arc<RawValue>);

#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// `serde_json::Value` would read it so, and that without end.
    #[error("it holds JSON as a text that would be read as JSON once more")]
    Nested,
    /// Half a character, a number that no machine has, or too many lists within each other.
    #[error("failed to decode as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Template {
    pub fn read(&self) -> Result<Value, Unreadable> {
        let text = self.0.get();
        if nested::is_nested(text.as_bytes()) {
            return Err(Unreadable::Nested);
        }
        Ok(serde_json::from_str(text)?)
    }
}

impl From<&Value> for Template {
    fn from(value: &Value) -> Self {
        Self(to_raw_value(value).expect("a tree of JSON has a text").into())
    }
}

impl Default for Template {
    fn default() -> Self {
        Self(RawValue::NULL.to_owned().into())
    }
}

/// Whether it is the same object, however that is written.
impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        let same = |one: Value| other.read().is_ok_and(|other| one == other);
        self.0.get() == other.0.get() || self.read().is_ok_and(same)
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// What it is in the definition of the kind stands beside the field that has it.
impl JsonSchema for Template {
    fn schema_name() -> Cow<'static, str> {
        "Template".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Value::json_schema(generator)
    }
}

/// From JSON only. No tree is made, so nothing that anybody writes here takes more stack or memory than its text.
impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{ObjectList, WatchEvent};
    use serde_json::json;

    use super::*;
    use crate::api::AppWrapper;

    fn wrapper(template: &str) -> String {
        let head =
            r#""apiVersion":"workload.codeflare.dev/v1beta2","kind":"AppWrapper","metadata":{"name":"a"}"#;
        format!(r#"{{{head},"spec":{{"components":[{{"template":{template}}}]}}}}"#)
    }

    /// Whoever may write an AppWrapper must not keep others from being followed.
    #[test]
    fn it_is_read_in_lists_and_watches_whatever_it_holds() {
        for inner in [nested::nest(400), r#"{"a": ["$serde_json::private::RawValue"]}"#.to_owned()] {
            let list = format!(
                r#"{{"apiVersion":"v1","kind":"List","metadata":{{}},"items":[{}]}}"#,
                wrapper(&inner)
            );
            let list: ObjectList<AppWrapper> = serde_json::from_str(&list).expect("a list");
            list.items[0].spec.components[0].template.read().expect_err("nested");
            let event = format!(r#"{{"type":"MODIFIED","object":{}}}"#, wrapper(&inner));
            let event: WatchEvent<AppWrapper> = serde_json::from_str(&event).expect("an event");
            let WatchEvent::Modified(seen) = event else { panic!("another event") };
            assert_eq!(seen.spec.components[0].template, list.items[0].spec.components[0].template);
        }
    }

    #[test]
    fn the_same_object_written_otherwise_is_the_same() {
        let read = |text: &str| serde_json::from_str::<Template>(text).expect("JSON");
        assert_eq!(read(r#"{"a":1,"b":[2]}"#), read(r#"{"b": [2], "a": 1}"#));
        assert_ne!(read(r#"{"a":1}"#), read(r#"{"a":2}"#));
        let value = json!({"kind": "Job", "spec": {"x": [1, null]}});
        assert_eq!(Template::from(&value).read().expect("read"), value);
        assert_eq!(Template::default().read().expect("read"), Value::Null);
    }
}
