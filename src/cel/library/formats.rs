//! Kubernetes' named formats: what a text must look like to be a label, a name, a date and so on.

use super::{Called, urls};
use crate::value::Value;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    Label,
    Subdomain,
    /// A label that begins with a letter.
    LetterLabel,
    QualifiedName,
    LabelPrefix,
    SubdomainPrefix,
    LetterLabelPrefix,
    LabelValue,
    Uri,
    Uuid,
    Byte,
    Date,
    DateTime,
}

impl Format {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "dns1123Label" => Self::Label,
            "dns1123Subdomain" => Self::Subdomain,
            "dns1035Label" => Self::LetterLabel,
            "qualifiedName" => Self::QualifiedName,
            "dns1123LabelPrefix" => Self::LabelPrefix,
            "dns1123SubdomainPrefix" => Self::SubdomainPrefix,
            "dns1035LabelPrefix" => Self::LetterLabelPrefix,
            "labelValue" => Self::LabelValue,
            "uri" => Self::Uri,
            "uuid" => Self::Uuid,
            "byte" => Self::Byte,
            "date" => Self::Date,
            "datetime" => Self::DateTime,
            _ => return None,
        })
    }

    /// What is wrong with the text; nothing, where it has the format.
    pub fn problems(self, text: &str) -> Vec<String> {
        match self {
            Self::Label => label(text, is_lower),
            Self::LetterLabel => label(text, |c| c.is_ascii_lowercase()),
            Self::Subdomain => subdomain(text),
            Self::LabelPrefix => label(&masked(text), is_lower),
            Self::LetterLabelPrefix => label(&masked(text), |c| c.is_ascii_lowercase()),
            Self::SubdomainPrefix => subdomain(&masked(text)),
            Self::QualifiedName => qualified_name(text),
            Self::LabelValue if text.is_empty() => Vec::new(),
            Self::LabelValue => name_part(text),
            Self::Uri => urls::problem(text).into_iter().collect(),
            Self::Uuid => wrong(!is_uuid(text), "it is not a UUID"),
            Self::Byte => wrong(!is_base64(text), "it is not base64"),
            Self::Date => wrong(!is_date(text), "it is not a date such as 2006-01-02"),
            Self::DateTime => wrong(!is_date_time(text), "it is not a time such as 2006-01-02T15:04:05Z"),
        }
    }
}

pub fn call(name: &str, args: &[Value]) -> Option<Called> {
    match (name, args) {
        ("format.named", [Value::String(name)]) => {
            let found = Format::named(name).map(Value::Format);
            Some(Ok(found.map_or(Value::Optional(None), Value::some)))
        }
        ("validate", [Value::Format(format), Value::String(text)]) => {
            let problems = format.problems(text);
            let texts = || Value::list(problems.iter().map(|problem| Value::text(problem)).collect());
            Some(Ok(if problems.is_empty() { Value::Optional(None) } else { Value::some(texts()) }))
        }
        (name, []) => Format::named(name.strip_prefix("format.")?).map(|format| Ok(Value::Format(format))),
        _ => None,
    }
}

fn wrong(is_wrong: bool, problem: &str) -> Vec<String> {
    if is_wrong { vec![problem.to_owned()] } else { Vec::new() }
}

fn is_lower(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn too_long(text: &str, most: usize) -> Vec<String> {
    wrong(most < text.len(), &format!("it must have no more than {most} characters"))
}

fn is_label(text: &str, first: fn(char) -> bool) -> bool {
    text.starts_with(first) && text.ends_with(is_lower) && text.chars().all(|c| is_lower(c) || c == '-')
}

fn label(text: &str, first: fn(char) -> bool) -> Vec<String> {
    let mut problems = too_long(text, 63);
    let form =
        "it must consist of lower case letters, digits and `-`, and begin and end with none of the last";
    problems.extend(wrong(!is_label(text, first), form));
    problems
}

fn subdomain(text: &str) -> Vec<String> {
    let mut problems = too_long(text, 253);
    let form = "it must consist of parts between dots, of lower case letters, digits and `-`, which begin and end \
                with none of the last";
    problems.extend(wrong(!text.split('.').all(|part| is_label(part, is_lower)), form));
    problems
}

/// What names are generated from ends where a name goes on.
fn masked(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut kept: String = rest.to_owned();
            kept.pop();
            kept + "a"
        }
        Some(_) | None => text.to_owned(),
    }
}

fn name_part(text: &str) -> Vec<String> {
    let mut problems = too_long(text, 63);
    let edge = |c: char| c.is_ascii_alphanumeric();
    let is_name = text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| edge(c) || matches!(c, '-' | '_' | '.'));
    let form =
        "it must consist of letters, digits, `-`, `_` and `.`, and begin and end with a letter or digit";
    problems.extend(wrong(!is_name, form));
    problems
}

fn qualified_name(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split('/').collect();
    match parts[..] {
        [name] => name_part(name),
        [prefix, name] => {
            let mut problems: Vec<String> =
                subdomain(prefix).into_iter().map(|problem| format!("the prefix: {problem}")).collect();
            problems.extend(name_part(name).into_iter().map(|problem| format!("the name: {problem}")));
            problems
        }
        _ => vec!["it must be a name, or a DNS subdomain, a `/` and a name".to_owned()],
    }
}

/// With its dashes or without.
fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (at, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if at != 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((part, after)) = rest.split_at_checked(length) else { return false };
        if !part.bytes().all(|b| b.is_ascii_hexdigit()) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

fn is_date(text: &str) -> bool {
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let form = text.split('-').map(str::len).eq([4, 2, 2]) && text.split('-').all(digits);
    form && text.parse::<jiff::civil::Date>().is_ok()
}

/// Before a fraction of a second any one character may stand, as in Kubernetes.
fn is_date_time(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && is_time(time)
}

fn is_time(text: &str) -> bool {
    let two =
        |text: &str, most: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit()) && text <= most;
    let Some((clock, rest)) = text.split_at_checked(8) else { return false };
    let mut clock = clock.split(':');
    let (hours, minutes, seconds) = (clock.next(), clock.next(), clock.next());
    let is_clock = hours.is_some_and(|text| two(text, "23"))
        && minutes.is_some_and(|text| two(text, "59"))
        && seconds.is_some_and(|text| two(text, "59"))
        && clock.next().is_none();
    let is_zone = |zone: &str| {
        zone == "z"
            || zone
                .strip_prefix(['+', '-'])
                .and_then(|zone| zone.split_once(':'))
                .is_some_and(|(hours, minutes)| two(hours, "99") && two(minutes, "99"))
    };
    let fraction = || {
        let mut chars = rest.chars();
        chars.next()?;
        let after = chars.as_str();
        let zone = after.trim_start_matches(|c: char| c.is_ascii_digit());
        (zone.len() < after.len()).then_some(zone)
    };
    is_clock && (is_zone(rest) || fraction().is_some_and(is_zone))
}
