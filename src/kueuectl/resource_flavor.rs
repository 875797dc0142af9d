//! `create resourceflavor`, with its taints and tolerations: `key[=value][:effect]`.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::{Map, Value, json};

use crate::{create, error::Error, resource::Resource, session::Session};

pub async fn create(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let given = &session.given;
    let taints = taints(given.all("node-taints"))?;
    let tolerations =
        given.all("tolerations").iter().map(|spec| toleration(spec)).collect::<Result<Vec<_>, _>>()?;
    let mut spec = Map::new();
    let labels = given.pairs("node-labels");
    if !labels.is_empty() {
        spec.insert("nodeLabels".to_owned(), json!(labels));
    }
    for (field, list) in [("nodeTaints", taints), ("tolerations", tolerations)] {
        if !list.is_empty() {
            spec.insert(field.to_owned(), Value::Array(list));
        }
    }
    let object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": given.arguments[0]},
        "spec": spec,
    });
    create::send(session, &Resource::resource_flavor(), object).await
}

/// No two of one key and effect.
fn taints(specs: &[String]) -> Result<Vec<Value>, Error> {
    let mut known = BTreeSet::new();
    let mut taints = Vec::new();
    for spec in specs {
        let invalid = |why: &str| Error::said(format!("invalid taint spec: {spec}{why}"));
        if spec.is_empty() {
            return Err(Error::said("invalid taint spec"));
        }
        let (key, value, effect) =
            split(spec).filter(|(.., effect)| !effect.is_empty()).ok_or_else(|| invalid(""))?;
        check_effect(effect)?;
        check(&key_errors(key)).map_err(|why| invalid(&why))?;
        check(&value_errors(value)).map_err(|why| invalid(&why))?;
        if !known.insert((key, effect)) {
            return Err(Error::said(format!(
                "duplicated taints with the same key and effect: {{{key} {value} {effect} <nil>}}"
            )));
        }
        taints.push(without_empty(json!({"key": key, "value": value, "effect": effect})));
    }
    Ok(taints)
}

fn toleration(spec: &str) -> Result<Value, Error> {
    let invalid = |why: &str| Error::said(format!("invalid toleration spec: {spec}{why}"));
    if spec.is_empty() {
        return Err(Error::said("invalid toleration spec"));
    }
    let (key, value, effect) = split(spec)
        .filter(|(key, value, _)| !key.is_empty() || value.is_empty())
        .ok_or_else(|| invalid(""))?;
    if !effect.is_empty() {
        check_effect(effect)?;
    }
    if !key.is_empty() {
        check(&key_errors(key)).map_err(|why| invalid(&why))?;
    }
    check(&value_errors(value)).map_err(|why| invalid(&why))?;
    let operator = if key.is_empty() || value.is_empty() { "Exists" } else { "Equal" };
    Ok(without_empty(json!({"key": key, "operator": operator, "value": value, "effect": effect})))
}

/// Key, value and effect of `key[=value][:effect]`.
fn split(spec: &str) -> Option<(&str, &str, &str)> {
    let (pair, effect) = spec.split_once(':').unwrap_or((spec, ""));
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    (!effect.contains(':') && !value.contains('=')).then_some((key, value, effect))
}

fn without_empty(mut object: Value) -> Value {
    object.as_object_mut().expect("it is one").retain(|_, value| value != "");
    object
}

fn check_effect(effect: &str) -> Result<(), Error> {
    if ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        return Ok(());
    }
    Err(Error::said(format!("invalid taint effect: {effect}, unsupported taint effect")))
}

fn check(errors: &[String]) -> Result<(), String> {
    if errors.is_empty() { Ok(()) } else { Err(format!(", {}", errors.join("; "))) }
}

const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                        alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                        '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                          start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
                          used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const DOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                           must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
                           validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LONGEST_NAME: usize = 63;
const LONGEST_DOMAIN: usize = 253;

/// What is wrong with a label's key, in apimachinery's words.
fn key_errors(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let (prefix, name) = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => (None, name),
        [prefix, name] => (Some(prefix), name),
        _ => {
            return vec![format!(
                "a valid label key {KEY_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    match prefix {
        Some("") => errors.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            if LONGEST_DOMAIN < prefix.len() {
                errors.push(format!("prefix part must be no more than {LONGEST_DOMAIN} bytes"));
            }
            if !fits(DOMAIN, prefix) {
                errors.push(format!("prefix part {DOMAIN_RULE}"));
            }
        }
        None => {}
    }
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if LONGEST_NAME < name.len() {
        errors.push(format!("name part must be no more than {LONGEST_NAME} bytes"));
    }
    if !fits(KEY, name) {
        errors.push(format!("name part {KEY_RULE}"));
    }
    errors
}

fn value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if LONGEST_NAME < value.len() {
        errors.push(format!("must be no more than {LONGEST_NAME} bytes"));
    }
    if !value.is_empty() && !fits(KEY, value) {
        errors.push(VALUE_RULE.to_owned());
    }
    errors
}

fn fits(form: &str, text: &str) -> bool {
    Regex::new(&format!("^(?:{form})$")).is_ok_and(|form| form.is_match(text))
}
