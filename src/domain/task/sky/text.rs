//! Small grammars inside texts: variables, names, durations.

use std::time::Duration;

/// Replaces `${NAME}` and `$NAME` by what `value` gives; what it does not know stays.
pub fn expand<'a>(text: &str, value: impl Fn(&str) -> Option<&'a str>) -> String {
    let (mut expanded, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('$') {
        let (before, variable) = rest.split_at(at);
        expanded.push_str(before);
        let after = &variable[1..];
        let (name, length) = match after.strip_prefix('{').map(|inner| (inner, inner.find('}'))) {
            Some((inner, Some(end))) => (&inner[..end], end + 3),
            Some((_, None)) => ("", 1),
            None => {
                let end = after.find(|c: char| !is_word(c)).unwrap_or(after.len());
                (&after[..end], end + 1)
            }
        };
        match value(name).filter(|_| is_variable(name)) {
            Some(value) => expanded.push_str(value),
            None => expanded.push_str(&variable[..length]),
        }
        rest = &variable[length..];
    }
    expanded.push_str(rest);
    expanded
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// A name that every shell takes for a variable.
pub fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(is_word)
}

/// As Kubernetes checks a label's value.
pub fn is_label_value(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.is_empty()
        || text.len() <= 63
            && text.starts_with(edge)
            && text.ends_with(edge)
            && text.chars().all(|c| edge(c) || matches!(c, '-' | '_' | '.'))
}

/// Seconds, or a number with `s`, `m`, `h` or `d`.
pub fn duration(text: &str) -> Option<Duration> {
    const LONGEST: u64 = 366 * 86_400;
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    let seconds = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (seconds <= LONGEST).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_and_the_unknown_stays() {
        let value = |name: &str| match name {
            "A" => Some("one"),
            "A_2" => Some("two"),
            _ => None,
        };
        for (text, expanded) in [
            ("${A}/x", "one/x"),
            ("$A/$A_2", "one/two"),
            ("$B-${B}", "$B-${B}"),
            ("${A", "${A"),
            ("$", "$"),
            ("$$A", "$one"),
            ("é$A", "éone"),
            ("${}", "${}"),
        ] {
            assert_eq!(expand(text, value), expanded, "{text}");
        }
    }

    #[test]
    fn durations_have_an_end() {
        assert_eq!(duration("30"), Some(Duration::from_secs(30)));
        assert_eq!(duration("10h"), Some(Duration::from_hours(10)));
        for text in ["", "h", "-1", "1.5h", "1w", "99999999999999999999", "9999999d"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
