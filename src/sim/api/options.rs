//! What a query or the body of a deletion says beside the object: whether to keep it, how strictly to read
//! it, what becomes of what it owns.

use serde_json::Value;

use super::super::status::{Cause, Refusal};
use super::query::Query;
use super::write::yaml;

/// What becomes of fields that are not declared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Unknown {
    Ignored,
    ToldOf,
    Refused,
}

/// What becomes of what an object owns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Propagation {
    Foreground,
    Background,
    Orphan,
}

/// Options of a write that is no deletion; `kind` is what they are called, as `CreateOptions`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub dry_run: bool,
    pub unknown: Unknown,
    pub force: bool,
}

impl Options {
    pub fn parse(query: &Query, kind: &str) -> Result<Self, Refusal> {
        let mut causes = Vec::new();
        let dry_run = dry_run(query.get("dryRun"), &mut causes);
        let unknown = match query.get("fieldValidation") {
            Some("Ignore") => Unknown::Ignored,
            None | Some("" | "Warn") => Unknown::ToldOf,
            Some("Strict") => Unknown::Refused,
            Some(other) => {
                let message = format!(
                    "Unsupported value: {other:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
                );
                causes.push(Cause::new("FieldValueNotSupported", "fieldValidation", message));
                Unknown::ToldOf
            }
        };
        if causes.is_empty() {
            Ok(Self { dry_run, unknown, force: query.flag("force") })
        } else {
            Err(Refusal::invalid_options(kind, &causes))
        }
    }

    /// Of a patch: who applies says its name, and only who applies can force.
    pub fn of_patch(query: &Query, applies: bool) -> Result<Self, Refusal> {
        let manager = query.get("fieldManager").unwrap_or_default();
        if applies && manager.is_empty() {
            let message = "Required value: is required for apply patch";
            let cause = Cause::new("FieldValueRequired", "fieldManager", message);
            return Err(Refusal::invalid_options("PatchOptions", &[cause]));
        }
        if !applies && query.get("force").is_some() {
            let message = "Forbidden: may not be specified for non-apply patch";
            let cause = Cause::new("FieldValueForbidden", "force", message);
            return Err(Refusal::invalid_options("PatchOptions", &[cause]));
        }
        Self::parse(query, "PatchOptions")
    }
}

fn dry_run(asked: Option<&str>, causes: &mut Vec<Cause>) -> bool {
    let asked = asked.unwrap_or_default();
    if !matches!(asked, "" | "All") {
        let message = format!("Unsupported value: [{asked:?}]: supported values: \"All\"");
        causes.push(Cause::new("FieldValueNotSupported", "dryRun", message));
    }
    asked == "All"
}

/// Options of a deletion.
#[derive(Clone, Debug)]
pub(super) struct Deletion {
    pub dry_run: bool,
    /// As the kind has it, where nobody says.
    pub propagation: Option<Propagation>,
    pub uid: Option<String>,
    pub version: Option<String>,
}

impl Deletion {
    /// The body says it, or without one the query.
    pub fn parse(query: &Query, body: &[u8]) -> Result<Self, Refusal> {
        let told = if body.iter().all(u8::is_ascii_whitespace) { Value::Null } else { yaml(body)? };
        let mut causes = Vec::new();
        let dry = told["dryRun"].as_array().and_then(|all| all.first()).and_then(Value::as_str);
        let dry_run = dry_run(dry.or_else(|| query.get("dryRun")), &mut causes);
        let policy = told["propagationPolicy"].as_str().or_else(|| query.get("propagationPolicy"));
        let orphans = told["orphanDependents"].as_bool();
        let orphans = orphans.or_else(|| query.get("orphanDependents").map(|asked| asked == "true"));
        let propagation = match policy {
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Background") => Some(Propagation::Background),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) if !other.is_empty() => {
                let message = format!(
                    "Unsupported value: {other:?}: supported values: \"Background\", \"Foreground\", \"Orphan\", \"nil\""
                );
                causes.push(Cause::new("FieldValueNotSupported", "propagationPolicy", message));
                None
            }
            _ => orphans.map(|orphans| if orphans { Propagation::Orphan } else { Propagation::Background }),
        };
        if !causes.is_empty() {
            return Err(Refusal::invalid_options("DeleteOptions", &causes));
        }
        let wanted = |field: &str| told["preconditions"][field].as_str().map(str::to_owned);
        Ok(Self { dry_run, propagation, uid: wanted("uid"), version: wanted("resourceVersion") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(query: &str) -> Result<Options, Refusal> {
        Options::parse(&Query::parse(query), "CreateOptions")
    }

    #[test]
    fn a_query_says_how_a_write_is_made() {
        let plain = options("").unwrap();
        assert!(!plain.dry_run && !plain.force && plain.unknown == Unknown::ToldOf);
        assert!(options("dryRun=All&force=true").unwrap().dry_run);
        assert_eq!(options("fieldValidation=Strict").unwrap().unknown, Unknown::Refused);
        let refusal = options("dryRun=Some&fieldValidation=No").unwrap_err();
        assert!(
            refusal.message.starts_with("CreateOptions.meta.k8s.io \"\" is invalid: [dryRun: "),
            "{refusal:?}"
        );
        assert!(Options::of_patch(&Query::parse(""), true).is_err());
        assert!(Options::of_patch(&Query::parse("force=true"), false).is_err());
    }

    #[test]
    fn a_deletion_is_told_by_body_or_query() {
        let parse = |query: &str, body: &str| Deletion::parse(&Query::parse(query), body.as_bytes());
        assert_eq!(parse("", "").unwrap().propagation, None);
        let told = parse("propagationPolicy=Orphan", r#"{"propagationPolicy": "Foreground"}"#).unwrap();
        assert_eq!(told.propagation, Some(Propagation::Foreground));
        assert_eq!(parse("propagationPolicy=Orphan", "").unwrap().propagation, Some(Propagation::Orphan));
        let told =
            parse("", r#"{"orphanDependents": true, "preconditions": {"uid": "u"}, "dryRun": ["All"]}"#);
        let told = told.unwrap();
        assert_eq!((told.propagation, told.uid.as_deref()), (Some(Propagation::Orphan), Some("u")));
        assert!(told.dry_run);
        assert!(parse("", r#"{"propagationPolicy": "Nonsense"}"#).is_err());
        assert!(parse("", "{").is_err());
    }
}
