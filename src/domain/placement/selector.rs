//! Label selectors as they are written, and what Kubernetes refuses in them.

use std::collections::{BTreeMap, BTreeSet};

use crate::queue::selector::{Requirement, Selector, Test};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelSelector {
    pub match_labels: BTreeMap<String, String>,
    pub match_expressions: Vec<Expression>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    pub key: String,
    pub operator: String,
    pub values: Vec<String>,
}

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const NAME_FORM: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const MAX_NAME: usize = 63;

impl LabelSelector {
    /// The selector, or why it is none, in the words of apimachinery's `labels`.
    pub fn read(&self) -> Result<Selector, String> {
        let mut requirements = Vec::new();
        for (key, value) in &self.match_labels {
            let values = std::slice::from_ref(value);
            refuse(&check_key(key).into_iter().chain(check_values(key, values)).collect::<Vec<_>>())?;
            let test = Test::In(BTreeSet::from([value.clone()]));
            requirements.push(Requirement { key: key.clone(), test });
        }
        for expression in &self.match_expressions {
            requirements.push(expression.read()?);
        }
        Ok(Selector(requirements))
    }
}

impl Expression {
    fn read(&self) -> Result<Requirement, String> {
        let values: BTreeSet<String> = self.values.iter().cloned().collect();
        let (test, problem) = match self.operator.as_str() {
            "In" | "NotIn" => {
                let test = if self.operator == "In" { Test::In(values) } else { Test::NotIn(values) };
                let empty = self.values.is_empty();
                (test, empty.then_some("for 'in', 'notin' operators, values set can't be empty"))
            }
            "Exists" | "DoesNotExist" => {
                let test = if self.operator == "Exists" { Test::Exists } else { Test::DoesNotExist };
                let any = !self.values.is_empty();
                (test, any.then_some("values set must be empty for exists and does not exist"))
            }
            other => return Err(format!("{other:?} is not a valid label selector operator")),
        };
        let listed = || serde_json::to_string(&self.values).expect("texts are JSON");
        let problem = problem.map(|problem| format!("values: Invalid value: {}: {problem}", listed()));
        let problems =
            check_key(&self.key).into_iter().chain(problem).chain(check_values(&self.key, &self.values));
        refuse(&problems.collect::<Vec<_>>())?;
        Ok(Requirement { key: self.key.clone(), test })
    }
}

/// One problem as it is, several as a list, as Go joins errors.
fn refuse(problems: &[String]) -> Result<(), String> {
    match problems {
        [] => Ok(()),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

fn check_key(key: &str) -> Option<String> {
    let problems = name_problems(key);
    (!problems.is_empty()).then(|| format!("key: Invalid value: {key:?}: {}", problems.join("; ")))
}

fn check_values(key: &str, values: &[String]) -> Vec<String> {
    let problem = |(at, value): (usize, &String)| {
        let problem = label_value_problem(value)?;
        Some(format!("values[{at}][{key}]: Invalid value: {value:?}: {problem}"))
    };
    values.iter().enumerate().filter_map(problem).collect()
}

/// Why the text is no label value.
pub fn label_value_problem(value: &str) -> Option<String> {
    let mut problems = Vec::new();
    if MAX_NAME < value.len() {
        problems.push(format!("must be no more than {MAX_NAME} characters"));
    }
    if !value.is_empty() && !is_name(value) {
        problems.push(format!("a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '({NAME_FORM})?')"));
    }
    (!problems.is_empty()).then(|| problems.join("; "))
}

fn is_name(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| edge(c) || matches!(c, '-' | '_' | '.'))
}

fn is_subdomain(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 253
        && text.split('.').all(|part| {
            part.starts_with(edge) && part.ends_with(edge) && part.chars().all(|c| edge(c) || c == '-')
        })
}

fn name_problems(key: &str) -> Vec<String> {
    let rule = format!(
        "{NAME_RULE} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{NAME_FORM}')"
    );
    let mut problems = Vec::new();
    let parts: Vec<_> = key.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else if !is_subdomain(prefix) {
                problems.push("prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')".to_owned());
            }
            name
        }
        _ => {
            return vec![format!(
                "a qualified name {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if MAX_NAME < name.len() {
        problems.push(format!("name part must be no more than {MAX_NAME} characters"));
    }
    if !is_name(name) {
        problems.push(format!("name part {rule}"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(key: &str, operator: &str, values: &[&str]) -> LabelSelector {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        let expression = Expression { key: key.to_owned(), operator: operator.to_owned(), values };
        LabelSelector { match_labels: BTreeMap::new(), match_expressions: vec![expression] }
    }

    #[test]
    fn what_kubernetes_refuses_is_refused_in_its_words() {
        let long = "a".repeat(64);
        for (key, operator, values, problem) in [
            ("a", "Near", &["b"][..], "\"Near\" is not a valid label selector operator"),
            (
                "a",
                "In",
                &[],
                "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
            ),
            (
                "a",
                "Exists",
                &["b"],
                "values: Invalid value: [\"b\"]: values set must be empty for exists and does not exist",
            ),
            (
                "a",
                "In",
                &[long.as_str()],
                &format!("values[0][a]: Invalid value: \"{long}\": must be no more than 63 characters"),
            ),
            ("/a", "Exists", &[], "key: Invalid value: \"/a\": prefix part must be non-empty"),
        ] {
            assert_eq!(selector(key, operator, values).read(), Err(problem.to_owned()));
        }
        let version =
            selector("kubeversion", "In", &["v1.33.4+k3s1"]).read().expect_err("`+` is not allowed");
        assert!(
            version.starts_with("values[0][kubeversion]: Invalid value: \"v1.33.4+k3s1\": a valid label")
        );
        for key in ["", "a/b/c", "A/b", "-a", "a b"] {
            assert!(selector(key, "Exists", &[]).read().is_err(), "{key}");
        }
    }

    #[test]
    fn what_is_well_formed_reads() {
        for (key, operator, values) in
            [("a.b/c_d", "In", &["x", ""][..]), ("a", "NotIn", &["b"]), ("a", "DoesNotExist", &[])]
        {
            assert!(selector(key, operator, values).read().is_ok(), "{key} {operator}");
        }
        assert_eq!(LabelSelector::default().read(), Ok(Selector::default()));
    }
}
