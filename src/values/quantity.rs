//! Kubernetes quantities, exactly: a number of nano-units, never a float.
//!
//! [`Quantity`] is what a person wrote; [`Amount`] is what quota is counted in (thousandths of a cpu,
//! whole units of everything else) and what all sums are made of.

use std::fmt;

use super::ids::ResourceName;

/// A quantity as Kubernetes writes it (`500m`, `1000Gi`, `1e3`), in nano-units.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Quantity(i128);

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum QuantityError {
    #[error("`{0}` is not a quantity: write a number with an optional suffix, such as 500m, 4, 2Gi or 1.5k")]
    Syntax(String),
    #[error(
        "`{0}` is not written as a quantity of quota must be: begin with a digit, with at most 19 digits before the point and 9 behind it"
    )]
    NotPlain(String),
    #[error("`{0}` is too large: quota is counted up to 9223372036854775807 units")]
    TooLarge(String),
    #[error("`{0}` is negative: a quantity must be 0 or more")]
    Negative(String),
    #[error("`{text}` of {resource} is too fine: the smallest unit is {unit}")]
    TooFine { text: String, resource: ResourceName, unit: &'static str },
}

const NANO: i128 = 1_000_000_000;
/// Longer texts are not quantities, and their digits would overflow the arithmetic below.
const MAX_TEXT: usize = 64;
/// Of what a person asks for, as the CRD of claims has it.
const MAX_ASKED: usize = 32;

impl Quantity {
    pub const ZERO: Self = Self(0);

    pub fn from_nanos(nanos: i128) -> Self {
        Self(nanos)
    }

    pub fn nanos(self) -> i128 {
        self.0
    }

    /// Reads the grammar of `k8s.io/apimachinery/pkg/api/resource/quantity.go`. Digits finer than a
    /// nano-unit are rounded up, as there.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let syntax = || QuantityError::Syntax(text.chars().take(MAX_TEXT).collect());
        if text.len() > MAX_TEXT {
            return Err(syntax());
        }
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return Err(syntax());
        }
        let scale = Scale::parse(suffix).ok_or_else(syntax)?;
        let nanos = scale.nanos(whole, fraction).ok_or_else(|| QuantityError::TooLarge(text.to_owned()))?;
        Ok(Self(if negative { -nanos } else { nanos }))
    }

    /// The text that Kubernetes gives a quantity back with: no needless digits, the largest suffix of the
    /// kind it was written in.
    pub fn canonical(text: &str) -> Result<String, QuantityError> {
        let quantity = Self::parse(text)?;
        if quantity.0 == 0 {
            return Ok("0".to_owned());
        }
        let exponent = text.trim_start_matches(['+', '-', '.']).contains(['e', 'E'])
            && text.ends_with(|c: char| c.is_ascii_digit());
        if text.ends_with('i') && quantity.0 % NANO == 0 && 1024 <= (quantity.0 / NANO).abs() {
            let (value, suffix) = scaled(quantity.0 / NANO, 1024, &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]);
            return Ok(format!("{value}{suffix}"));
        }
        if exponent {
            let steps = ["e-9", "e-6", "e-3", "", "e3", "e6", "e9", "e12", "e15", "e18"];
            let (value, suffix) = scaled(quantity.0, 1000, &steps);
            return Ok(format!("{value}{suffix}"));
        }
        let (value, suffix) = scaled(quantity.0, 1000, &["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]);
        Ok(format!("{value}{suffix}"))
    }
}

/// The value in the largest unit that it is a whole number of.
fn scaled(mut value: i128, step: i128, suffixes: &[&'static str]) -> (i128, &'static str) {
    let mut suffixes = suffixes.iter();
    let mut suffix = suffixes.next().copied().unwrap_or("");
    for next in suffixes {
        if value % step != 0 {
            break;
        }
        value /= step;
        suffix = next;
    }
    (value, suffix)
}

enum Scale {
    /// Powers of ten.
    Decimal(i32),
    /// Powers of 1024.
    Binary(u32),
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "" => Self::Decimal(0),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            "Ki" => Self::Binary(1),
            "Mi" => Self::Binary(2),
            "Gi" => Self::Binary(3),
            "Ti" => Self::Binary(4),
            "Pi" => Self::Binary(5),
            "Ei" => Self::Binary(6),
            exponent => {
                let digits = exponent.strip_prefix(['e', 'E'])?;
                let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(digits);
                if unsigned.is_empty() || unsigned.len() > 6 || !unsigned.bytes().all(|b| b.is_ascii_digit())
                {
                    return None;
                }
                Self::Decimal(digits.parse().ok()?)
            }
        })
    }

    fn nanos(&self, whole: &str, fraction: &str) -> Option<i128> {
        let fraction = fraction.trim_end_matches('0');
        let digits: i128 = match format!("{whole}{fraction}").trim_start_matches('0') {
            "" => return Some(0),
            digits => digits.parse().ok()?,
        };
        let (digits, exponent) = match self {
            Self::Decimal(power) => (digits, *power),
            Self::Binary(power) => (digits.checked_mul(1024_i128.checked_pow(*power)?)?, 0),
        };
        // 9 for nano-units, less the digits behind the point.
        let shift = exponent + 9 - i32::try_from(fraction.len()).ok()?;
        if 0 <= shift {
            digits.checked_mul(10_i128.checked_pow(shift.unsigned_abs())?)
        } else {
            let divisor = 10_i128.checked_pow(shift.unsigned_abs());
            Some(divisor.map_or(1, |divisor| {
                digits.div_euclid(divisor) + i128::from(digits.rem_euclid(divisor) != 0)
            }))
        }
    }
}

impl fmt::Display for Quantity {
    /// The shortest exact form: whole numbers as they are, else thousandths, else nano-units.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0;
        let text = if nanos % NANO == 0 {
            format!("{}", nanos / NANO)
        } else if nanos % 1_000_000 == 0 {
            format!("{}m", nanos / 1_000_000)
        } else {
            format!("{nanos}n")
        };
        f.pad(&text)
    }
}

/// An amount of one resource in the unit that quota is counted in ([`ResourceName::nanos_per_unit`]).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Amount(i64);

impl Amount {
    pub const ZERO: Self = Self(0);
    pub const MAX: Self = Self(i64::MAX);

    pub const fn new(units: i64) -> Self {
        Self(units)
    }

    pub const fn units(self) -> i64 {
        self.0
    }

    /// What a person asks for: exact, or refused with the reason. It is written as the schema of claims has it, so that
    /// what is accepted here can be stored on the hub.
    pub fn exact(text: &str, resource: &ResourceName) -> Result<Self, QuantityError> {
        let nanos = Quantity::parse(text)?.nanos();
        if text.starts_with('-') {
            return Err(QuantityError::Negative(text.to_owned()));
        }
        let unit = resource.nanos_per_unit();
        if nanos % unit != 0 {
            let unit = if unit == NANO { "1" } else { "1m" };
            return Err(QuantityError::TooFine { text: text.to_owned(), resource: resource.clone(), unit });
        }
        let amount = i64::try_from(nanos / unit).map(Self);
        let amount = amount.map_err(|_| QuantityError::TooLarge(text.to_owned()))?;
        if is_plain(text) { Ok(amount) } else { Err(QuantityError::NotPlain(text.to_owned())) }
    }

    /// What a cluster offers: rounded down and kept within `0..=i64::MAX`, so that nonsense from a
    /// node can neither overflow a sum nor promise what is not there.
    pub fn offered(quantity: Quantity, resource: &ResourceName) -> Self {
        Self(i64::try_from((quantity.nanos() / resource.nanos_per_unit()).max(0)).unwrap_or(i64::MAX))
    }

    /// What workloads hold: rounded up, since a part of a unit still occupies it.
    pub fn held(quantity: Quantity, resource: &ResourceName) -> Self {
        let unit = resource.nanos_per_unit();
        let nanos = quantity.nanos().max(0);
        Self(i64::try_from(nanos / unit + i128::from(nanos % unit != 0)).unwrap_or(i64::MAX))
    }

    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Never below zero.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0).max(0))
    }

    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Kubernetes text of this amount of `resource`: `500m`, `4`, `1000Gi`.
    pub fn text(self, resource: &ResourceName) -> String {
        if resource.is_bytes() {
            let mut value = self.0;
            for suffix in ["", "Ki", "Mi", "Gi", "Ti", "Pi"] {
                if value == 0 || value % 1024 != 0 {
                    return format!("{value}{suffix}");
                }
                value /= 1024;
            }
            return format!("{value}Ei");
        }
        Quantity::from_nanos(i128::from(self.0) * resource.nanos_per_unit()).to_string()
    }
}

/// Of what is a quantity without a sign before it, or with `+`: whether it has the form that the CRD of claims demands.
fn is_plain(text: &str) -> bool {
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    text.len() <= MAX_ASKED
        && (1..=19).contains(&whole.len())
        && (1..=9).contains(&fraction.len())
        && suffix.trim_start_matches(['e', 'E', '+', '-']).len() <= 2
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str) -> ResourceName {
        ResourceName::new(name).expect("a resource name")
    }

    #[test]
    fn texts_have_the_value_kubernetes_gives_them() {
        for (text, nanos) in [
            ("0", 0),
            ("1", NANO),
            ("1000m", NANO),
            ("1.5", 1_500_000_000),
            (".5", 500_000_000),
            ("5.", 5 * NANO),
            ("0.1m", 100_000),
            ("1e3", 1000 * NANO),
            ("1E3", 1000 * NANO),
            ("1E", 1_000_000_000_000_000_000 * NANO),
            ("1Ki", 1024 * NANO),
            ("1Ei", (1_i128 << 60) * NANO),
            ("1.5Gi", 1_610_612_736 * NANO),
            ("-2", -2 * NANO),
            ("+2", 2 * NANO),
            ("1e-9", 1),
            ("1e-12", 1),
            ("1e-1000", 1),
            ("0e999999", 0),
        ] {
            assert_eq!(Quantity::parse(text), Ok(Quantity(nanos)), "{text}");
        }
    }

    #[test]
    fn a_canonical_text_is_the_one_kubernetes_gives_back() {
        for (text, canonical) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0Gi", "0"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("63500m", "63500m"),
            ("1e3", "1e3"),
            ("1000e3", "1e6"),
            ("-2000m", "-2"),
            ("256Gi", "256Gi"),
            ("1E", "1E"),
            ("1000m", "1"),
            ("0.5", "500m"),
            (".5Gi", "512Mi"),
            ("1024Mi", "1Gi"),
            ("1025Ki", "1025Ki"),
            ("1000", "1k"),
            ("12e6", "12e6"),
            ("0", "0"),
            ("-1500m", "-1500m"),
            ("36Gi", "36Gi"),
            ("100Ki", "100Ki"),
            ("0.5Ki", "512"),
            ("0.0000000001", "1n"),
        ] {
            assert_eq!(Quantity::canonical(text).as_deref(), Ok(canonical), "{text}");
        }
        for text in ["many", "1x", "Gi", "1ee3", "170141183460469231731687303715.8841057271"] {
            assert!(Quantity::canonical(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_and_never_wraps() {
        for text in [
            "",
            "-",
            ".",
            "abc",
            "1.2.3",
            "1KI",
            "1ki",
            "NaN",
            "1e",
            "1e+",
            "--1",
            "1 ",
            "0x10",
            "١",
            "1e1000000000",
        ] {
            assert!(matches!(Quantity::parse(text), Err(QuantityError::Syntax(_))), "{text}");
        }
        for text in ["1e1000", "99999999999999999999999999999999999999999999", "999999999999Ei"] {
            assert!(matches!(Quantity::parse(text), Err(QuantityError::TooLarge(_))), "{text}");
        }
        assert!(Quantity::parse(&"1".repeat(100_000)).is_err());
    }

    #[test]
    fn what_a_person_asks_for_is_exact_or_refused() {
        let (cpu, gpu) = (resource("cpu"), resource("nvidia.com/gpu"));
        assert_eq!(Amount::exact("500m", &cpu), Ok(Amount(500)));
        assert_eq!(Amount::exact("9223372036854775807", &gpu), Ok(Amount::MAX));
        assert!(matches!(Amount::exact("9223372036854775808", &gpu), Err(QuantityError::TooLarge(_))));
        assert!(matches!(Amount::exact("500m", &gpu), Err(QuantityError::TooFine { .. })));
        assert!(matches!(Amount::exact("0.1m", &cpu), Err(QuantityError::TooFine { .. })));
        for negative in ["-1", "-0"] {
            assert!(matches!(Amount::exact(negative, &cpu), Err(QuantityError::Negative(_))), "{negative}");
        }
    }

    /// What the CRD of claims would refuse is refused before the hub is asked.
    #[test]
    fn what_a_person_asks_for_is_written_as_a_claim_may_hold_it() {
        let memory = resource("memory");
        let whole = "1".repeat(19);
        for good in ["+5", "007", "1.5Gi", "2.500000000k", "1e3", "1E+03", "3e-0", &whole[..18]] {
            assert!(Amount::exact(good, &memory).is_ok(), "{good}");
        }
        let (longer, long) = (format!("0{whole}"), format!("{}Ki", "0".repeat(31)));
        for bad in [".5Gi", "5.", "5.Gi", "1.0000000000", "1e003", "1e+003", &longer, &long] {
            assert!(matches!(Amount::exact(bad, &memory), Err(QuantityError::NotPlain(_))), "{bad}");
        }
    }

    #[test]
    fn what_a_node_offers_is_rounded_down_and_saturates() {
        let cpu = resource("cpu");
        let offered = |text| Amount::offered(Quantity::parse(text).expect("a quantity"), &cpu);
        assert_eq!(offered("1.9m"), Amount(1));
        assert_eq!(offered("-5"), Amount(0));
        assert_eq!(offered("1000E"), Amount::MAX);
    }

    #[test]
    fn amounts_read_back_as_they_are_written() {
        for (name, text) in [
            ("cpu", "500"),
            ("cpu", "1500m"),
            ("memory", "1000Gi"),
            ("memory", "1023"),
            ("nvidia.com/gpu", "10"),
        ] {
            let name = resource(name);
            let amount = Amount::exact(text, &name).expect("an amount");
            assert_eq!(amount.text(&name), text);
        }
        assert_eq!(Amount(0).text(&resource("memory")), "0");
    }
}
