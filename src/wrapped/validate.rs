//! What an AppWrapper must be. The webhook asks before it is stored; the controller asks again, for clusters without webhook.

use std::fmt;

use serde_json::Value;

use crate::{
    component::{Component, PodSet},
    names::{GROUP, KIND},
    pod_sets, pod_template,
};

/// Kueue's limit.
const MAX_POD_SETS: usize = 8;
/// Several times what any workload has. The webhook asks the API server about each kind within the time of one request.
const MAX_COMPONENTS: usize = 100;
/// What a label's value may have; a name that Kubernetes takes keeps its other rules.
const MAX_LABEL_VALUE: usize = 63;
/// Of a value that an error quotes.
const MAX_QUOTED: usize = 200;

/// In the words of Kubernetes' own validation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FieldError {
    pub field: String,
    pub problem: Problem,
    pub detail: String,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Problem {
    Required,
    Forbidden,
    Internal,
    Invalid(String),
}

impl FieldError {
    pub fn forbidden(field: String, detail: impl Into<String>) -> Self {
        Self { field, problem: Problem::Forbidden, detail: detail.into() }
    }

    pub fn internal(field: String, detail: impl Into<String>) -> Self {
        Self { field, problem: Problem::Internal, detail: detail.into() }
    }

    pub fn invalid(field: String, value: &impl serde::Serialize, detail: impl Into<String>) -> Self {
        let mut value = serde_json::to_string(value).unwrap_or_default();
        if let Some((end, _)) = value.char_indices().nth(MAX_QUOTED) {
            value.truncate(end);
            value.push_str("...");
        }
        Self { field, problem: Problem::Invalid(value), detail: detail.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, detail, .. } = self;
        match &self.problem {
            Problem::Required => write!(f, "{field}: Required value: {detail}"),
            Problem::Forbidden => write!(f, "{field}: Forbidden: {detail}"),
            Problem::Internal => write!(f, "{field}: Internal error: {detail}"),
            Problem::Invalid(value) => write!(f, "{field}: Invalid value: {value}: {detail}"),
        }
    }
}

/// All of them, as one line.
pub fn sentence(errors: &[FieldError]) -> String {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) }
}

pub fn template_field(index: usize) -> String {
    format!("spec.components[{index}].template")
}

/// Whether pods can have the name of their AppWrapper in a label.
pub fn is_label_value(name: &str) -> bool {
    name.len() <= MAX_LABEL_VALUE
}

/// Everything that needs no server to be asked.
pub fn create(components: &[Component], namespace: &str, name: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !is_label_value(name) {
        let detail = format!(
            "must be no more than {MAX_LABEL_VALUE} characters: it becomes a label of all components and pods"
        );
        errors.push(FieldError::invalid("metadata.name".to_owned(), &name, detail));
    }
    let all = || "spec.components".to_owned();
    if MAX_COMPONENTS < components.len() {
        let detail = format!("{} components; at most {MAX_COMPONENTS} are allowed", components.len());
        errors.push(FieldError::invalid(all(), &components, detail));
        return errors;
    }
    let mut pod_sets = 0;
    for (index, component) in components.iter().enumerate() {
        pod_sets += check_component(component, index, namespace, &mut errors);
    }
    if pod_sets == 0 {
        errors.push(FieldError::invalid(all(), &components, "components contains no podspecs"));
    }
    if MAX_POD_SETS < pod_sets {
        let detail = format!("components contains {pod_sets} podspecs; at most {MAX_POD_SETS} are allowed");
        errors.push(FieldError::invalid(all(), &components, detail));
    }
    errors
}

/// Returns how many pod sets it has.
fn check_component(
    component: &Component,
    index: usize,
    namespace: &str,
    errors: &mut Vec<FieldError>,
) -> usize {
    let (field, template) = (template_field(index), &component.template);
    let text = |pointer: &str| template.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    if api_version.is_empty() || kind.is_empty() {
        errors.push(FieldError::invalid(field, template, "failed to decode as JSON"));
        return 0;
    }
    // `/v1` means v1 to some who read it, and nothing to others.
    let parts: Vec<&str> = api_version.split('/').collect();
    if 2 < parts.len() || parts.contains(&"") {
        let detail = "must be a version such as v1, or a group and a version such as batch/v1";
        errors.push(FieldError::invalid(format!("{field}.apiVersion"), &api_version, detail));
        return 0;
    }
    let group = if let [group, _] = parts[..] { group } else { "" };
    // Of every version: conversion would make one of another.
    if group == GROUP && kind == KIND {
        errors.push(FieldError::forbidden(field.clone(), "Nested AppWrappers are forbidden"));
    }
    let elsewhere = text("/metadata/namespace");
    if !elsewhere.is_empty() && elsewhere != namespace {
        let field = format!("{field}.metadata.namespace");
        errors.push(FieldError::forbidden(field, "AppWrappers cannot create objects in other namespaces"));
    }
    let declared = &component.pod_sets;
    let pod_sets_field = format!("spec.components[{index}].podSets");
    for (index, pod_set) in declared.iter().enumerate() {
        check_path(template, pod_set, format!("{pod_sets_field}[{index}].path"), errors);
    }
    match pod_sets::infer(template) {
        Err(error) => {
            let detail = format!("error inferring PodSets: {error}");
            errors.push(FieldError::invalid(field, template, detail));
            declared.len()
        }
        Ok(inferred) => {
            if let Err(detail) = pod_sets::compare(declared, &inferred) {
                errors.push(FieldError::invalid(pod_sets_field, declared, detail));
            }
            declared.len().max(inferred.len())
        }
    }
}

fn check_path(template: &Value, pod_set: &PodSet, field: String, errors: &mut Vec<FieldError>) {
    if pod_set.path.is_empty() {
        let detail = "podspec must specify path".to_owned();
        errors.push(FieldError { field, problem: Problem::Required, detail });
    } else if let Err(error) = pod_template::check(template, &pod_set.path) {
        let detail = format!("path does not refer to a v1.PodSpecTemplate: {error}");
        errors.push(FieldError::invalid(field, &pod_set.path, detail));
    }
}

/// A user's name or id as the value of a label: 63 characters, others than letters, digits, `-`, `_` and `.` replaced.
pub fn label_value(text: &str) -> String {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&letter);
    // Bytes count, as upstream counts them; a letter that is cut in two is one that is replaced.
    let cut = String::from_utf8_lossy(&text.as_bytes()[..text.len().min(MAX_LABEL_VALUE)]).into_owned();
    let value: String = cut.chars().map(|letter| if allowed(letter) { letter } else { '_' }).collect();
    value.trim_matches(['-', '_', '.']).to_owned()
}
