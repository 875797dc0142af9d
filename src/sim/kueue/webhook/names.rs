//! Label keys and values, and what Kubernetes says of bad ones.

const EDGES: &str = "must start and end with an alphanumeric character";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
pub(super) const SUBDOMAIN_ERROR: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn key_form() -> String {
    format!(
        "must consist of alphanumeric characters, '-', '_' or '.', and {EDGES} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{KEY}')"
    )
}

fn is_word(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| edge(c) || matches!(c, '-' | '_' | '.'))
}

pub(super) fn label_key_errors(key: &str) -> Vec<String> {
    let parts: Vec<&str> = key.split('/').collect();
    let (prefix, name) = match parts.as_slice() {
        [name] => (None, *name),
        [prefix, name] => (Some(*prefix), *name),
        _ => {
            let form = key_form();
            return vec![format!(
                "a valid label key {form} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    let mut errors = Vec::new();
    match prefix {
        Some("") => errors.push("prefix part must be non-empty".to_owned()),
        Some(prefix) if fedq_values::ids::QueueName::new(prefix).is_err() => {
            errors.push(format!("prefix part {SUBDOMAIN_ERROR}"));
        }
        _ => {}
    }
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if 63 < name.len() {
        errors.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_word(name) {
        errors.push(format!("name part {}", key_form()));
    }
    errors
}

pub(super) fn label_value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if 63 < value.len() {
        errors.push("must be no more than 63 bytes".to_owned());
    }
    if !value.is_empty() && !is_word(value) {
        errors.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and {EDGES} (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '({KEY})?')"
        ));
    }
    errors
}
