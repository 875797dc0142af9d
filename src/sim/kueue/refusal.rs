//! Errors of fields, worded as Kubernetes words them.

use std::fmt;

use serde_json::Value;

/// Why one field is refused. Its text is what stands behind the path: `Invalid value: "x": must be …`.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub path: String,
    pub problem: Problem,
    /// The webhook that refuses; without one it is the schema.
    pub webhook: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    /// The value is not told when it is an object or a list.
    Invalid {
        value: Option<Value>,
        detail: String,
    },
    Type {
        value: &'static str,
        detail: String,
    },
    Required {
        detail: &'static str,
    },
    Forbidden {
        detail: String,
    },
    Duplicate {
        value: Value,
    },
    DuplicateBecause {
        value: Value,
        detail: &'static str,
    },
    NotSupported {
        value: Value,
        supported: Vec<String>,
    },
    NotFound {
        value: Value,
    },
    /// The webhook could not even read the object.
    Unreadable {
        detail: &'static str,
    },
    TooLong {
        most: usize,
    },
    TooMany {
        found: usize,
        most: usize,
    },
}

impl Refusal {
    pub(super) fn new(path: impl Into<String>, problem: Problem) -> Self {
        Self { path: path.into(), problem, webhook: None }
    }

    pub(super) fn invalid(path: impl Into<String>, value: Value, detail: impl Into<String>) -> Self {
        Self::new(path, Problem::Invalid { value: Some(value), detail: detail.into() })
    }

    /// Of a rule on an object or a list, whose value is not repeated.
    pub(super) fn rule(path: impl Into<String>, detail: &str) -> Self {
        Self::new(path, Problem::Invalid { value: None, detail: detail.to_owned() })
    }

    /// `metav1.CauseType`.
    pub fn reason(&self) -> &'static str {
        match self.problem {
            Problem::Invalid { .. } | Problem::Unreadable { .. } => "FieldValueInvalid",
            Problem::Type { .. } => "FieldValueTypeInvalid",
            Problem::Required { .. } => "FieldValueRequired",
            Problem::Forbidden { .. } => "FieldValueForbidden",
            Problem::Duplicate { .. } | Problem::DuplicateBecause { .. } => "FieldValueDuplicate",
            Problem::NotSupported { .. } => "FieldValueNotSupported",
            Problem::NotFound { .. } => "FieldValueNotFound",
            Problem::TooLong { .. } => "FieldValueTooLong",
            Problem::TooMany { .. } => "FieldValueTooMany",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Problem::Invalid { value: Some(value), detail } => write!(f, "Invalid value: {value}: {detail}"),
            Problem::Invalid { value: None, detail } => write!(f, "Invalid value: {detail}"),
            Problem::Type { value, detail } => write!(f, "Invalid value: {value:?}: {detail}"),
            Problem::Required { detail: "" } => f.write_str("Required value"),
            Problem::Required { detail } => write!(f, "Required value: {detail}"),
            Problem::Forbidden { detail } => write!(f, "Forbidden: {detail}"),
            Problem::DuplicateBecause { value, detail } => write!(f, "Duplicate value: {value}: {detail}"),
            Problem::Duplicate { value } => write!(f, "Duplicate value: {value}"),
            Problem::NotSupported { value, supported } => {
                let supported: Vec<String> = supported.iter().map(|text| format!("{text:?}")).collect();
                write!(f, "Unsupported value: {value}: supported values: {}", supported.join(", "))
            }
            Problem::Unreadable { detail } => f.write_str(detail),
            Problem::NotFound { value } => write!(f, "Not found: {value}"),
            Problem::TooLong { most } => write!(f, "Too long: may not be more than {most} bytes"),
            Problem::TooMany { found, most } => {
                let items = if *most == 1 { "item" } else { "items" };
                write!(f, "Too many: {found}: must have at most {most} {items}")
            }
        }
    }
}

/// How the API server passes a webhook's no on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Denial {
    pub code: u16,
    /// `Forbidden`, or empty.
    pub reason: &'static str,
    pub message: String,
}

/// What is answered where a webhook refused; none where the schema did, whose 422 `Invalid` lists causes.
pub fn denied(refusals: &[Refusal]) -> Option<Denial> {
    let first = refusals.first()?;
    let webhook = first.webhook?;
    let says = |why: &str| format!("admission webhook {webhook:?} denied the request: {why}");
    if let Problem::Unreadable { detail } = first.problem {
        return Some(Denial { code: 400, reason: "", message: says(detail) });
    }
    let mut problems: Vec<String> =
        refusals.iter().map(|refusal| format!("{}: {refusal}", refusal.path)).collect();
    problems.dedup();
    let why = if problems.len() == 1 { problems.remove(0) } else { format!("[{}]", problems.join(", ")) };
    Some(Denial { code: 403, reason: "Forbidden", message: says(&why) })
}
