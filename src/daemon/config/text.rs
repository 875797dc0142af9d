//! Durations as people write them.

use std::{fmt::Write as _, time::Duration};

/// Largest first: the shortest exact form is printed.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a duration: write numbers with units, such as 250ms, 40s, 15m, 1h30m or 90d")]
pub(super) struct DurationError(String);

pub(super) fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let refused = || DurationError(text.to_owned());
    let (mut rest, mut total) = (text, 0_u64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(refused)?;
        let number = rest[..digits].parse::<u64>().map_err(|_| refused())?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (_, millis) = UNITS.iter().find(|(unit, _)| *unit == &rest[..end]).ok_or_else(refused)?;
        rest = &rest[end..];
        total = number.checked_mul(*millis).and_then(|part| total.checked_add(part)).ok_or_else(refused)?;
    }
    // Beyond a century someone mistyped, and sums with the clock could overflow.
    if text.is_empty() || 36_500 * UNITS[0].1 < total {
        return Err(refused());
    }
    Ok(Duration::from_millis(total))
}

pub(super) fn duration_text(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, millis) in UNITS {
        if millis <= rest {
            write!(text, "{}{unit}", rest / millis).expect("writing to a String cannot fail");
            rest %= millis;
        }
    }
    text
}

/// For `#[serde(with)]`.
pub(super) mod duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in super::super) fn serialize<S: Serializer>(
        value: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::duration_text(*value))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        super::parse_duration(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_printed_in_the_shortest_form() {
        for (text, millis, printed) in [
            ("250ms", 250, "250ms"),
            ("0s", 0, "0s"),
            ("90s", 90_000, "1m30s"),
            ("15m", 900_000, "15m"),
            ("1h30m", 5_400_000, "1h30m"),
            ("90d", 7_776_000_000, "90d"),
        ] {
            let duration = parse_duration(text).expect(text);
            assert_eq!(duration, Duration::from_millis(millis));
            assert_eq!(duration_text(duration), printed);
        }
        for text in ["", "15", "m", "1.5h", "-1s", "1 s", "5min", "99999999999999999999d", "40000d", "1m٣s"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
