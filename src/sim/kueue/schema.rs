//! What the schemas of Kueue's CRDs refuse, as far as fedq's fields go
//! (`config/components/crd/bases`): a table of rules by path, and the rules that span fields.

mod rules;
mod spanning;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::refusal::{Problem, Refusal};

/// What a value at a path has to be. Absent values pass; `Required` names those that may not be.
enum Rule {
    Object,
    Required(&'static [&'static str]),
    List {
        least: usize,
        most: usize,
    },
    /// A list whose entries differ in this field.
    KeyedBy(&'static str),
    Text {
        least: usize,
        most: usize,
        form: Form,
    },
    OneOf(&'static [&'static str]),
    Whole {
        least: Option<i64>,
    },
    Flag,
    Quantity,
    MostEntries(usize),
}

#[derive(Clone, Copy)]
enum Form {
    Any,
    /// RFC 1123 subdomain.
    Name,
    /// RFC 1123 label.
    Label,
    /// A kind, in any case.
    Kind,
}

const NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const KIND: &str = "^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$";
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

pub(super) fn validate(kind: &str, before: Option<&Value>, after: &Value) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut spoiled: Vec<String> = Vec::new();
    for (path, rule) in rules::of(kind) {
        for (at, value) in expand(after, path) {
            // A value of the wrong type is told once.
            if spoiled.contains(&at) {
                continue;
            }
            let known = refusals.len();
            check(rule, &at, value, &mut refusals);
            if refusals[known..].iter().any(|refusal| matches!(refusal.problem, Problem::Type { .. })) {
                spoiled.push(at);
            }
        }
    }
    if refusals.is_empty() {
        spanning::validate(kind, before, after, &mut refusals);
    }
    refusals
}

/// Only new ClusterQueues are filled in by a webhook that reads quantities.
pub(super) fn unreadable(kind: &str, before: Option<&Value>, after: &Value) -> Option<Refusal> {
    if kind != "ClusterQueue" || before.is_some() {
        return None;
    }
    let fields = ["nominalQuota", "borrowingLimit", "lendingLimit"];
    let mut quantities = fields
        .iter()
        .flat_map(|field| expand(after, &format!("spec.resourceGroups[].flavors[].resources[].{field}")))
        .chain(expand(after, "spec.fairSharing.weight"));
    let (path, _) = quantities.find(|(_, value)| value.as_str().is_some_and(|text| !is_quantity(text)))?;
    let detail =
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let webhook = Some("mclusterqueue.kb.io");
    Some(Refusal { path, problem: Problem::Unreadable { detail }, webhook })
}

/// The values at `path`, each with the path it really has; `[]` stands for every entry.
fn expand<'a>(object: &'a Value, path: &str) -> Vec<(String, &'a Value)> {
    let mut found = vec![(String::new(), object)];
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let field = step.trim_end_matches("[]");
        let mut next = Vec::new();
        for (at, value) in found {
            let at = if at.is_empty() { field.to_owned() } else { format!("{at}.{field}") };
            let Some(value) = value.get(field).filter(|value| !value.is_null()) else { continue };
            if field.len() == step.len() {
                next.push((at, value));
            } else {
                let entries = value.as_array().into_iter().flatten().enumerate();
                next.extend(entries.map(|(index, entry)| (format!("{at}[{index}]"), entry)));
            }
        }
        found = next;
    }
    found
}

fn check(rule: &Rule, at: &str, value: &Value, refusals: &mut Vec<Refusal>) {
    let body = |detail: String| format!("{at} in body {detail}");
    let mut refuse = |problem| refusals.push(Refusal::new(at, problem));
    let invalid =
        |value: Value, detail: String| Problem::Invalid { value: Some(value), detail: body(detail) };
    match rule {
        Rule::Object => {
            type_is("object", value.is_object(), at, value, &mut refuse);
        }
        Rule::Required(fields) => {
            for field in fields.iter().filter(|field| value.get(**field).is_none_or(Value::is_null)) {
                let path = if at.is_empty() { (*field).to_owned() } else { format!("{at}.{field}") };
                refusals.push(Refusal::new(path, Problem::Required { detail: "" }));
            }
        }
        Rule::List { least, most } => {
            if !type_is("array", value.is_array(), at, value, &mut refuse) {
                return;
            }
            let found = value.as_array().map_or(0, Vec::len);
            if found < *least {
                refuse(invalid(json!(found), format!("should have at least {least} items")));
            } else if *most < found {
                refuse(Problem::TooMany { found, most: *most });
            }
        }
        Rule::KeyedBy(field) => {
            let mut seen = BTreeSet::new();
            for (index, entry) in value.as_array().into_iter().flatten().enumerate() {
                if !seen.insert(entry[*field].as_str().unwrap_or_default()) {
                    let value = json!({ *field: entry[*field] });
                    refusals.push(Refusal::new(format!("{at}[{index}]"), Problem::Duplicate { value }));
                }
            }
        }
        Rule::Text { least, most, form } => {
            if type_is("string", value.is_string(), at, value, &mut refuse) {
                let text = value.as_str().unwrap_or_default();
                if text.len() < *least {
                    refuse(invalid(value.clone(), format!("should be at least {least} chars long")));
                }
                if *most < text.len() {
                    refuse(Problem::TooLong { most: *most });
                }
                if let Some(pattern) = form.missed_by(text) {
                    refuse(invalid(value.clone(), format!("should match '{pattern}'")));
                }
            }
        }
        Rule::OneOf(supported) => {
            if !supported.iter().any(|one| value == *one) {
                let supported = supported.iter().map(|one| (*one).to_owned()).collect();
                refuse(Problem::NotSupported { value: value.clone(), supported });
            }
        }
        Rule::Whole { least } => {
            let whole = value.as_i64();
            if type_is("integer", whole.is_some(), at, value, &mut refuse)
                && let Some((whole, least)) = whole.zip(*least).filter(|(whole, least)| whole < least)
            {
                refuse(invalid(json!(whole), format!("should be greater than or equal to {least}")));
            }
        }
        Rule::Flag => drop(type_is("boolean", value.is_boolean(), at, value, &mut refuse)),
        Rule::Quantity => match value {
            Value::String(text) if !is_quantity(text) => {
                refuse(invalid(value.clone(), format!("should match '{QUANTITY}'")));
            }
            Value::String(_) => {}
            _ => drop(type_is("integer,string", value.is_i64() || value.is_u64(), at, value, &mut refuse)),
        },
        Rule::MostEntries(most) => {
            let found = value.as_object().map_or(0, serde_json::Map::len);
            if *most < found {
                refuse(Problem::TooMany { found, most: *most });
            }
        }
    }
}

fn type_is(wanted: &str, is: bool, at: &str, value: &Value, refuse: &mut impl FnMut(Problem)) -> bool {
    if !is {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let detail = format!("{at} in body must be of type {wanted}: {found:?}");
        refuse(Problem::Type { value: found, detail });
    }
    is
}

impl Form {
    /// The pattern that `text` does not match.
    fn missed_by(self, text: &str) -> Option<&'static str> {
        let label = |text: &str| {
            let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            text.starts_with(edge) && text.ends_with(edge) && text.chars().all(|c| edge(c) || c == '-')
        };
        match self {
            Self::Any => None,
            Self::Name => (!text.split('.').all(label)).then_some(NAME),
            Self::Label => (!label(text)).then_some(LABEL),
            Self::Kind => {
                let lower = text.to_ascii_lowercase();
                let letter_first = lower.starts_with(|c: char| c.is_ascii_lowercase());
                (!letter_first || !label(&lower)).then_some(KIND)
            }
        }
    }
}

/// Kubernetes' pattern also lets exponents have fractions; its parser does not.
fn is_quantity(text: &str) -> bool {
    fedq_values::quantity::Quantity::parse(text)
        .map_or_else(|error| !matches!(error, fedq_values::quantity::QuantityError::Syntax(_)), |_| true)
}
