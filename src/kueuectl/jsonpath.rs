//! kubectl's JSONPath templates: text around actions in braces, as `{range .items[*]}{.metadata.name}{"\n"}{end}`.

use serde_json::Value;

use crate::jsonpath_parse::{Compare, Filter, Node, Segment, parse};

pub struct Template {
    segments: Vec<Segment>,
    missing_is_fine: bool,
    as_json: bool,
}

/// A value of the object, or text and numbers of the template.
type Results = Vec<Value>;

impl Template {
    pub fn new(text: &str, missing_is_fine: bool, as_json: bool) -> Result<Self, String> {
        Ok(Self { segments: parse(text)?, missing_is_fine, as_json })
    }

    pub fn render(&self, object: &Value) -> Result<String, String> {
        let mut out = String::new();
        self.segments(&self.segments, object, &mut out)?;
        Ok(out)
    }

    fn segments(&self, segments: &[Segment], object: &Value, out: &mut String) -> Result<(), String> {
        for segment in segments {
            match segment {
                Segment::Text(text) => self.print(&[Value::String(text.clone())], out),
                Segment::Action(nodes) => self.print(&self.walk(nodes, vec![object.clone()])?, out),
                Segment::Range(nodes, body) => {
                    for value in self.walk(nodes, vec![object.clone()])? {
                        self.segments(body, &value, out)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn print(&self, results: &[Value], out: &mut String) {
        if self.as_json {
            *out += &crate::output::indented(&Value::Array(results.to_vec()));
            return;
        }
        let texts: Vec<String> = results.iter().map(shown).collect();
        *out += &texts.join(" ");
    }

    fn walk(&self, nodes: &[Node], mut values: Results) -> Result<Results, String> {
        for node in nodes {
            values = self.step(node, &values)?;
        }
        Ok(values)
    }

    fn step(&self, node: &Node, values: &[Value]) -> Result<Results, String> {
        match node {
            Node::Constant(value) => Ok(values.iter().map(|_| value.clone()).collect()),
            // Text stands alone, whatever came before it.
            Node::Text(text) => Ok(vec![Value::String(text.clone())]),
            Node::Field(name) => self.field(name, values),
            Node::Wildcard => Ok(values.iter().flat_map(children).collect()),
            Node::Recursive => Ok(values.iter().flat_map(descendants).collect()),
            Node::Union(paths) => {
                let mut all = Vec::new();
                for path in paths {
                    all.extend(self.walk(path, values.to_vec())?);
                }
                Ok(all)
            }
            Node::Slice(start, end, step) => {
                let mut all = Vec::new();
                for value in values.iter().filter(|value| !value.is_null()) {
                    all.extend(slice(value, *start, *end, *step)?);
                }
                Ok(all)
            }
            Node::Index(index) => {
                let mut all = Vec::new();
                for value in values.iter().filter(|value| !value.is_null()) {
                    all.push(element(value, *index)?);
                }
                Ok(all)
            }
            Node::Filter(filter) => self.filter(filter, values),
        }
    }

    fn field(&self, name: &str, values: &[Value]) -> Result<Results, String> {
        let found: Results = values.iter().filter_map(|value| value.get(name).cloned()).collect();
        if found.is_empty() && !values.is_empty() && !self.missing_is_fine {
            return Err(format!("{name} is not found"));
        }
        Ok(found)
    }

    fn filter(&self, filter: &Filter, values: &[Value]) -> Result<Results, String> {
        let mut kept = Vec::new();
        for value in values {
            let Some(items) = value.as_array() else {
                return Err(format!("{} is not array or slice and cannot be filtered", shown(value)));
            };
            for item in items {
                if self.passes(filter, item)? {
                    kept.push(item.clone());
                }
            }
        }
        Ok(kept)
    }

    fn passes(&self, filter: &Filter, item: &Value) -> Result<bool, String> {
        let side = |nodes: &[Node]| self.walk(nodes, vec![item.clone()]);
        let Some((compare, right)) = &filter.right else {
            return Ok(side(&filter.left).is_ok_and(|found| !found.is_empty()));
        };
        let (left, right) = (side(&filter.left)?, side(right)?);
        match (&left[..], &right[..]) {
            ([], _) | (_, []) => Ok(false),
            ([left], [right]) => compare_values(*compare, left, right),
            _ => Err("can only compare one element at a time".to_owned()),
        }
    }
}

fn children(value: &Value) -> Results {
    match value {
        Value::Array(items) => items.clone(),
        Value::Object(entries) => entries.values().cloned().collect(),
        _ => Vec::new(),
    }
}

/// The value, if it holds others, and those below it that do.
fn descendants(value: &Value) -> Results {
    let below = children(value);
    if below.is_empty() {
        return Vec::new();
    }
    std::iter::once(value.clone()).chain(below.iter().flat_map(descendants)).collect()
}

fn array(value: &Value) -> Result<&Vec<Value>, String> {
    let kind = match value {
        Value::Object(_) => "map[string]interface {}",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        _ => "float64",
    };
    value.as_array().ok_or_else(|| format!("{kind} is not array or slice"))
}

fn element(value: &Value, index: i64) -> Result<Value, String> {
    let items = array(value)?;
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let at = if index < 0 { index + length } else { index };
    let found = usize::try_from(at).ok().and_then(|at| items.get(at)).cloned();
    found.ok_or_else(|| format!("array index out of bounds: index {at}, length {length}"))
}

fn slice(value: &Value, start: Option<i64>, end: Option<i64>, step: Option<i64>) -> Result<Results, String> {
    let items = array(value)?;
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let from_end = |at: i64| if at < 0 { at + length } else { at };
    let (start, end) = (from_end(start.unwrap_or(0)), from_end(end.unwrap_or(length)));
    if start == end {
        return Ok(Vec::new());
    }
    if length <= start || start < 0 {
        return Err(format!("array index out of bounds: index {start}, length {length}"));
    }
    if length < end || end < 0 {
        return Err(format!("array index out of bounds: index {}, length {length}", end - 1));
    }
    if end < start {
        return Err(format!("starting index {start} is greater than ending index {end}"));
    }
    let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| 0 < *step).ok_or("step must be > 0")?;
    let (start, end) = (usize::try_from(start).unwrap_or(0), usize::try_from(end).unwrap_or(0));
    Ok(items[start..end].iter().step_by(step).cloned().collect())
}

fn compare_values(compare: Compare, left: &Value, right: &Value) -> Result<bool, String> {
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => left.partial_cmp(right),
        (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
        (Value::Bool(left), Value::Bool(right)) if matches!(compare, Compare::Equal | Compare::NotEqual) => {
            left.partial_cmp(right)
        }
        _ => None,
    };
    let order = order.ok_or("incompatible types for comparison")?;
    Ok(match compare {
        Compare::Equal => order.is_eq(),
        Compare::NotEqual => order.is_ne(),
        Compare::Less => order.is_lt(),
        Compare::LessOrEqual => order.is_le(),
        Compare::Greater => order.is_gt(),
        Compare::GreaterOrEqual => order.is_ge(),
    })
}

/// Lists and maps are shown as JSON, numbers as Go prints floats.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => float(number.as_f64().unwrap_or(0.0)),
        Value::Bool(value) => value.to_string(),
        Value::Null => "null".to_owned(),
        other => crate::output::html_safe(&crate::typed::sorted(other).to_string()),
    }
}

/// `%v` of Go: an exponent from a million on.
fn float(number: f64) -> String {
    let exponential = format!("{number:e}");
    let (digits, exponent) = exponential.split_once('e').unwrap_or((&exponential, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return number.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
