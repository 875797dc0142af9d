//! Durations as Go writes and reads them: `1h15m`, `1.5s`, `-10m`, `0`.

use std::fmt;

use serde::{Deserialize, Deserializer, de::Error};

const SECOND: i64 = 1_000_000_000;
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3_600 * SECOND),
];

/// In nanoseconds, as Go has it; it may be negative.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct GoDuration(i64);

impl GoDuration {
    pub const ZERO: Self = Self(0);

    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds * SECOND)
    }

    pub fn as_signed(self) -> jiff::SignedDuration {
        jiff::SignedDuration::from_nanos(self.0)
    }

    /// `None` for what Go's `time.ParseDuration` refuses.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Some(Self::ZERO);
        }
        if rest.is_empty() {
            return None;
        }
        let mut total: i64 = 0;
        while !rest.is_empty() {
            let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
            let (number, tail) = rest.split_at(end);
            let unit_end =
                tail.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_end);
            let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
            total = total.checked_add(scaled(number, *scale)?)?;
            rest = tail;
        }
        Some(Self(if negative { -total } else { total }))
    }
}

/// `1.5` times a unit, cut to nanoseconds.
fn scaled(number: &str, scale: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Go reads no more digits of a fraction than fit.
    let digits: String = fraction.chars().take(18).collect();
    let count = u32::try_from(digits.len()).ok()?;
    let part: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let part = part * i128::from(scale) / 10_i128.pow(count);
    whole.checked_mul(scale)?.checked_add(i64::try_from(part).ok()?)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let second = SECOND.unsigned_abs();
        if nanos < second {
            return match nanos {
                0 => f.write_str("0s"),
                1..1_000 => write!(f, "{nanos}ns"),
                1_000..1_000_000 => write!(f, "{}\u{b5}s", decimal(nanos, 1_000)),
                _ => write!(f, "{}ms", decimal(nanos, 1_000_000)),
            };
        }
        let (hours, minutes) = (nanos / (3_600 * second), nanos / (60 * second) % 60);
        if 0 < hours {
            write!(f, "{hours}h")?;
        }
        if 0 < hours || 0 < minutes {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", decimal(nanos % (60 * second), second))
    }
}

fn decimal(value: u64, unit: u64) -> String {
    let width = usize::try_from(unit.ilog10()).unwrap_or_default();
    let fraction = format!("{:0width$}", value % unit);
    let fraction = fraction.trim_end_matches('0');
    let whole = value / unit;
    if fraction.is_empty() { whole.to_string() } else { format!("{whole}.{fraction}") }
}

/// From text, or from a number of nanoseconds as upstream's ConfigMap has it.
impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Nanos(i64),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Nanos(nanos) => Ok(Self(nanos)),
            Either::Text(text) => Self::parse(&text)
                .ok_or_else(|| D::Error::custom(format!("`{text}` is no duration such as 90s or 1h30m"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_and_written_as_go_does() {
        for (text, nanos, written) in [
            ("10s", 10 * SECOND, "10s"),
            ("1h15m30.918s", 4_530_918_000_000, "1h15m30.918s"),
            ("-10m", -600 * SECOND, "-10m0s"),
            ("1.5h", 5_400 * SECOND, "1h30m0s"),
            ("100ms", SECOND / 10, "100ms"),
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            (".5s", SECOND / 2, "500ms"),
            ("168h", 604_800 * SECOND, "168h0m0s"),
        ] {
            assert_eq!(GoDuration::parse(text), Some(GoDuration(nanos)), "{text}");
            assert_eq!(GoDuration(nanos).to_string(), written);
        }
        for text in ["", "222badTime", "10", "s", "1d", "-", "1..5s", ".s", "9223372036854775808ns"] {
            assert_eq!(GoDuration::parse(text), None, "{text}");
        }
    }
}
