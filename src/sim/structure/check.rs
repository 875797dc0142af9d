//! Values that do not fit their fields.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::kueue::{Problem, Refusal};
use super::{METADATA, Structure, is_open, join};
use fedq_values::quantity::Quantity;

const QUANTITY: &str = r"^[+-]?[0-9]{1,19}(\.[0-9]{1,9})?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$";
const NOT_NEGATIVE: &str = "self.all(k, sign(quantity(string(self[k]))) >= 0)";
const UNCHANGED: &str = "self == oldSelf";

impl Structure {
    /// What a server says that cannot read the object as its kind, if it cannot.
    pub fn misfit(&self, kind: &str, object: &Value) -> Option<String> {
        if self.typed {
            return self.misfit_at(&self.schema, object, kind, "");
        }
        METADATA.misfit_at(&METADATA.schema, object.get("metadata")?, "ObjectMeta", "metadata")
    }

    fn misfit_at(&self, schema: &Value, value: &Value, kind: &str, path: &str) -> Option<String> {
        let is_quantity = schema["$ref"].as_str().is_some_and(|name| name.ends_with(".Quantity"));
        let schema = self.resolved(schema);
        if value.is_null() {
            return None;
        }
        let field = || format!("Go struct field {kind}.{path}");
        let cannot = |wanted: &str| {
            Some(format!("json: cannot unmarshal {} into {} of type {wanted}", type_of(value), field()))
        };
        if schema["x-kubernetes-int-or-string"] == true {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let fits = !is_quantity || Quantity::parse(&text).is_ok();
            return (!fits).then(|| {
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                    .to_owned()
            });
        }
        match (schema["type"].as_str(), value) {
            (Some("object"), Value::Object(fields)) => fields.iter().find_map(|(name, value)| {
                let declared = schema["properties"].get(name).or(schema.get("additionalProperties"))?;
                self.misfit_at(declared, value, kind, &join(path, name))
            }),
            (Some("array"), Value::Array(items)) => {
                items.iter().find_map(|item| self.misfit_at(&schema["items"], item, kind, path))
            }
            (Some("string"), Value::String(text)) => misfit_text(schema, text),
            (Some("object"), _) => cannot("struct"),
            (Some("array"), _) => cannot("slice"),
            (Some("string"), _) => cannot("string"),
            (Some("boolean"), value) if !value.is_boolean() => cannot("bool"),
            (Some("integer"), value) if !value.is_i64() => cannot("int"),
            (Some("number"), value) if !value.is_number() => cannot("float64"),
            _ => None,
        }
    }

    /// What the schema of a custom resource refuses; rules that span fields only where all else is right.
    pub fn validate(&self, before: Option<&Value>, after: &Value) -> Vec<Refusal> {
        let mut found = Vec::new();
        if self.typed {
            return found;
        }
        self.check(&self.schema, after, "", &mut found);
        let blocking = |refusal: &Refusal| !matches!(refusal.problem, Problem::Invalid { .. });
        if found.iter().any(blocking) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing \
                          errors to complete validation";
            found.push(refusal(
                "<nil>",
                Problem::Invalid { value: Some(Value::Null), detail: detail.to_owned() },
            ));
        } else {
            check_rules(&self.schema, before, after, "", &mut found);
        }
        found
    }

    fn check(&self, schema: &Value, value: &Value, path: &str, found: &mut Vec<Refusal>) {
        let schema = self.resolved(schema);
        if *schema == true {
            return;
        }
        let wanted = schema["type"].as_str().unwrap_or_default();
        let either = schema["x-kubernetes-int-or-string"] == true;
        let fits = match wanted {
            _ if value.is_null() => schema["nullable"] == true,
            "" if either => value.is_string() || value.is_i64() || value.is_u64(),
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            _ => true,
        };
        if !fits {
            let wanted = if either { "integer,string" } else { wanted };
            let detail = format!("{path} in body must be of type {wanted}: {:?}", kind_of(value));
            found.push(refusal(path, Problem::Type { value: kind_of(value), detail }));
            return;
        }
        match value {
            Value::Object(fields) => {
                check_fields(schema, value, path, found);
                for (name, value) in fields {
                    let declared = schema["properties"].get(name).or(schema.get("additionalProperties"));
                    if let Some(declared) = declared.filter(|_| !(path.is_empty() && name == "metadata")) {
                        self.check(declared, value, &join(path, name), found);
                    }
                }
            }
            Value::Array(items) => {
                check_list(schema, items, path, found);
                for (index, item) in items.iter().enumerate() {
                    self.check(&schema["items"], item, &format!("{path}[{index}]"), found);
                }
            }
            Value::String(text) => check_text(schema, text, path, found),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

fn check_rules(schema: &Value, before: Option<&Value>, after: &Value, path: &str, found: &mut Vec<Refusal>) {
    if is_open(schema) && schema.get("x-kubernetes-validations").is_none() {
        return;
    }
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        if !holds(&rule["rule"], before, after) {
            let message = rule["message"].as_str().unwrap_or_default();
            found.push(refusal(path, broken(rule, after, message)));
        }
    }
    match after {
        Value::Object(fields) => {
            for (name, value) in fields {
                let declared = schema["properties"].get(name).or(schema.get("additionalProperties"));
                let Some(declared) = declared else { continue };
                let before = before.and_then(|before| before.get(name));
                check_rules(declared, before, value, &join(path, name), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                check_rules(&schema["items"], None, item, &format!("{path}[{index}]"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn refusal(path: &str, problem: Problem) -> Refusal {
    Refusal { path: path.to_owned(), problem, webhook: None }
}

/// The rules of fedq's definition, as they stand there.
fn holds(rule: &Value, before: Option<&Value>, after: &Value) -> bool {
    match rule.as_str() {
        Some(UNCHANGED) => before.is_none_or(|before| before == after),
        Some(NOT_NEGATIVE) => after.as_object().into_iter().flatten().all(|(_, amount)| {
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            !text.starts_with('-') || Quantity::parse(&text).is_ok_and(|amount| 0 <= amount.nanos())
        }),
        _ => true,
    }
}

fn broken(rule: &Value, after: &Value, message: &str) -> Problem {
    if rule["reason"] == "FieldValueForbidden" {
        return Problem::Forbidden { detail: message.to_owned() };
    }
    let value = (!after.is_object() && !after.is_array()).then(|| after.clone());
    Problem::Invalid { value, detail: message.to_owned() }
}

fn check_fields(schema: &Value, value: &Value, path: &str, found: &mut Vec<Refusal>) {
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none() {
            found.push(refusal(&join(path, name), Problem::Required { detail: "" }));
        }
    }
    let (most, size) = (schema["maxProperties"].as_u64(), value.as_object().map_or(0, serde_json::Map::len));
    if let Some(most) = most.and_then(|most| usize::try_from(most).ok()).filter(|most| *most < size) {
        found.push(refusal(path, Problem::TooMany { found: size, most }));
    }
}

fn check_list(schema: &Value, items: &[Value], path: &str, found: &mut Vec<Refusal>) {
    let most = schema["maxItems"].as_u64().and_then(|most| usize::try_from(most).ok());
    if let Some(most) = most.filter(|most| *most < items.len()) {
        found.push(refusal(path, Problem::TooMany { found: items.len(), most }));
    }
    let Some(keys) = schema["x-kubernetes-list-map-keys"].as_array() else { return };
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let mut key = json!({});
        for name in keys.iter().filter_map(Value::as_str) {
            key[name] = item[name].clone();
        }
        if !seen.insert(key.to_string()) {
            found.push(refusal(&format!("{path}[{index}]"), Problem::Duplicate { value: key }));
        }
    }
}

fn check_text(schema: &Value, text: &str, path: &str, found: &mut Vec<Refusal>) {
    let length = text.chars().count();
    let limit = |name: &str| schema[name].as_u64().and_then(|limit| usize::try_from(limit).ok());
    let mut invalid = |detail: String| {
        let detail = format!("{path} in body {detail}");
        found.push(refusal(path, Problem::Invalid { value: Some(json!(text)), detail }));
    };
    if let Some(least) = limit("minLength").filter(|least| length < *least) {
        invalid(format!("should be at least {least} chars long"));
    }
    if let Some(pattern) = schema["pattern"].as_str().filter(|pattern| !matches(pattern, text)) {
        invalid(format!("should match '{pattern}'"));
    }
    if schema["format"] == "date-time" && text.parse::<jiff::Timestamp>().is_err() {
        invalid(format!("must be of type date-time: {text:?}"));
    }
    if let Some(most) = limit("maxLength").filter(|most| *most < length) {
        found.push(refusal(path, Problem::TooLong { most }));
    }
}

/// The patterns of fedq's definition, as they stand there.
fn matches(pattern: &str, text: &str) -> bool {
    pattern != QUANTITY || is_short_quantity(text)
}

fn is_short_quantity(text: &str) -> bool {
    let digits = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let amount = match number.split_once('.') {
        Some((whole, part)) => digits(whole, 19) && digits(part, 9),
        None => digits(number, 19),
    };
    let exponent =
        suffix.strip_prefix(['e', 'E']).map(|power| power.strip_prefix(['+', '-']).unwrap_or(power));
    let known = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    amount && (known.contains(&suffix) || exponent.is_some_and(|power| digits(power, 2)))
}

fn misfit_text(schema: &Value, text: &str) -> Option<String> {
    match schema["format"].as_str() {
        Some("byte") if super::super::from_base64(text).is_none() => {
            let at = text.bytes().position(|byte| !byte.is_ascii_alphanumeric() && !b"+/=".contains(&byte));
            Some(format!("illegal base64 data at input byte {}", at.unwrap_or(text.len())))
        }
        Some("date-time") if text.parse::<jiff::Timestamp>().is_err() => Some(format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
        )),
        _ => None,
    }
}

/// As Go's JSON names it.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// As schemas name it.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "boolean",
        Value::Number(number) if !number.is_f64() => "integer",
        other => type_of(other),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::kind::Kind;
    use super::*;

    fn of(kind: &str) -> &'static Structure {
        Structure::of(Kind::named(kind).unwrap())
    }

    fn texts(refusals: &[Refusal]) -> Vec<String> {
        refusals.iter().map(|refusal| format!("{}: {refusal}", refusal.path)).collect()
    }

    #[test]
    fn values_of_another_type_are_no_secret() {
        let secret = json!({"data": {"k": 5}});
        let said = of("Secret").misfit("Secret", &secret).unwrap();
        assert_eq!(said, "json: cannot unmarshal number into Go struct field Secret.data.k of type string");
        let broken = of("Secret").misfit("Secret", &json!({"data": {"k": "no base64!"}}));
        assert_eq!(broken.as_deref(), Some("illegal base64 data at input byte 2"));
        assert_eq!(of("Secret").misfit("Secret", &json!({"data": {"k": "dg=="}, "immutable": null})), None);
        let node = json!({"status": {"capacity": {"cpu": "many"}}});
        assert!(of("Node").misfit("Node", &node).unwrap().starts_with("quantities must match"));
        assert_eq!(of("Node").misfit("Node", &json!({"status": {"capacity": {"cpu": 4}}})), None);
        let labels = json!({"metadata": {"labels": {"a": 1}}});
        assert!(of("ClusterQueue").misfit("ClusterQueue", &labels).is_some());
    }

    #[test]
    fn claims_are_held_to_their_definition() {
        let spec = json!({"nominalResources": {"cpu": "nonsense"}, "resourceAssignments": "none"});
        let found = of("ClusterResourceClaim").validate(None, &json!({"spec": spec}));
        let said = texts(&found);
        assert!(said[0].starts_with("spec.clusterName: Required value"), "{said:?}");
        assert!(
            said[1].contains("Invalid value: \"nonsense\": spec.nominalResources.cpu in body should match")
        );
        assert!(said[2].contains("must be of type array: \"string\""), "{said:?}");
        assert!(said[3].starts_with("<nil>: Invalid value: null: some validation rules"), "{said:?}");
    }

    #[test]
    fn rules_of_claims_are_kept() {
        let claim =
            |name: &str, cpu: &str| json!({"spec": {"clusterName": name, "nominalResources": {"cpu": cpu}}});
        let structure = of("ClusterResourceClaim");
        assert!(structure.validate(Some(&claim("a", "1")), &claim("a", "2")).is_empty());
        let said = texts(&structure.validate(Some(&claim("a", "1")), &claim("b", "-1")));
        assert!(said[0].starts_with("spec.clusterName: Forbidden: clusterName is immutable"), "{said:?}");
        assert!(said[1].ends_with("every quantity must be 0 or more"), "{said:?}");
    }

    /// Rules and patterns are known by their text: whoever changes one has to teach it here.
    #[test]
    fn every_rule_of_the_definition_is_known() {
        fn each(value: &Value, visit: &mut impl FnMut(&str, &Value)) {
            match value {
                Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                    visit(name, value);
                    each(value, visit);
                }),
                Value::Array(items) => items.iter().for_each(|item| each(item, visit)),
                _ => {}
            }
        }
        let mut rules = 0;
        each(&of("ClusterResourceClaim").schema, &mut |name, value| match name {
            "rule" => {
                rules += 1;
                assert!(value == UNCHANGED || value == NOT_NEGATIVE, "{value}");
            }
            "pattern" => assert_eq!(value, QUANTITY),
            _ => {}
        });
        assert!(1 < rules);
    }

    #[test]
    fn quantities_are_short() {
        for yes in ["1", "-1", "1.5Gi", "100m", "1e3", "12E-2", "+3"] {
            assert!(is_short_quantity(yes), "{yes}");
        }
        for no in ["", "nonsense", "1.", ".5", "1Kb", "1e", "12345678901234567890", "1 "] {
            assert!(!is_short_quantity(no), "{no}");
        }
    }
}
