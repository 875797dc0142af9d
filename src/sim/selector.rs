//! Label and field selectors of lists and watches.

use serde_json::Value;

use super::status::Refusal;

#[derive(Clone, Debug, Default)]
pub struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<(String, bool, String)>,
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl Selector {
    pub fn parse(labels: Option<&str>, fields: Option<&str>) -> Result<Self, Refusal> {
        let labels = split(labels.unwrap_or_default()).into_iter().map(requirement).collect::<Result<_, _>>();
        let fields = split(fields.unwrap_or_default()).into_iter().map(field).collect::<Result<_, _>>();
        Ok(Self {
            labels: labels.map_err(Refusal::bad_request)?,
            fields: fields.map_err(Refusal::bad_request)?,
        })
    }

    /// Of these, the one of that name.
    pub fn and_name(mut self, name: &str) -> Self {
        self.fields.push(("metadata.name".to_owned(), true, name.to_owned()));
        self
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.labels.iter().all(|requirement| {
            let value = labels.get(&requirement.key).and_then(Value::as_str);
            match &requirement.test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
                Test::NotIn(values) => !value.is_some_and(|value| values.iter().any(|one| one == value)),
            }
        }) && self.fields.iter().all(|(path, equal, wanted)| {
            let value = path.split('.').fold(object, |value, key| value.get(key).unwrap_or(&Value::Null));
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                other => other.to_string(),
            };
            (text == *wanted) == *equal
        })
    }
}

/// At commas outside parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = text.split(move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let make = |key: &str, test| {
        let key = key.trim();
        if key.is_empty() || key.contains(|c: char| c.is_whitespace() || "()!=,".contains(c)) {
            return Err(format!("unable to parse requirement: found '{key}', expected: identifier"));
        }
        Ok(Requirement { key: key.to_owned(), test })
    };
    if let Some((key, value)) = text.split_once("!=") {
        return make(key, Test::NotIn(vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return make(key, Test::In(vec![value.trim().to_owned()]));
    }
    if let Some(key) = text.strip_prefix('!') {
        return make(key, Test::Absent);
    }
    if let Some((head, values)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => make(key, Test::In(values)),
            (Some(key), Some("notin"), None) => make(key, Test::NotIn(values)),
            _ => Err(format!("unable to parse requirement: found '{head}', expected: in, notin")),
        };
    }
    make(text, Test::Exists)
}

fn field(text: &str) -> Result<(String, bool, String), String> {
    let (path, equal, value) = if let Some((path, value)) = text.split_once("!=") {
        (path, false, value)
    } else if let Some((path, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (path, true, value)
    } else {
        return Err(format!("invalid selector: '{text}'; can't understand '{text}'"));
    };
    Ok((path.trim().to_owned(), equal, value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(labels: &str, object: &Value) -> bool {
        Selector::parse(Some(labels), None).unwrap().matches(object)
    }

    #[test]
    fn labels_are_tested_in_all_the_ways_there_are() {
        let object = json!({"metadata": {"labels": {"a": "1", "b/c": "x"}}});
        for yes in ["a", "a=1", "a==1", "a in (1, 2)", "a notin (2),b/c", "!z", "z!=1", "z notin (1)"] {
            assert!(selects(yes, &object), "{yes}");
        }
        for no in ["z", "a=2", "a!=1", "a in (2,3)", "a notin (1)", "!a", "a,z"] {
            assert!(!selects(no, &object), "{no}");
        }
    }

    #[test]
    fn fields_are_compared_by_path() {
        let object = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}});
        let selects = |fields| Selector::parse(None, Some(fields)).unwrap().matches(&object);
        assert!(selects("metadata.name=n") && selects("spec.unschedulable=true"));
        assert!(!selects("metadata.name!=n") && !selects("metadata.name=other"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in ["a in 1", "a b", "=1", "a like (x)"] {
            assert!(Selector::parse(Some(bad), None).is_err(), "{bad}");
        }
        assert!(Selector::parse(None, Some("metadata.name")).is_err());
    }
}
