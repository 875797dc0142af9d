//! Kubernetes quantities in the form that `resource.Quantity` gives them: `1000m` is `1`, `1024Mi` is `1Gi`.

/// A quantity, exact to 10⁻⁹.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

const NANO: i128 = 1_000_000_000;

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

impl Quantity {
    /// Rounds up what is finer than 10⁻⁹, as Kubernetes does.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0
            || fraction.contains('.')
            || 30 < whole.trim_start_matches('0').len()
        {
            return None;
        }
        let digits: i128 = format!("{whole}{:.9}", pad(fraction)).parse().ok()?;
        let finer = fraction.get(9..).is_some_and(|rest| rest.bytes().any(|digit| digit != b'0'));
        let (nanos, format) = scaled(digits, suffix)?;
        let nanos = nanos.checked_add(i128::from(finer))?;
        Some(Self { nanos: if negative { -nanos } else { nanos }, format })
    }
}

fn pad(fraction: &str) -> String {
    format!("{fraction:0<9}")
}

fn scaled(nanos: i128, suffix: &str) -> Option<(i128, Format)> {
    if let Some((_, bits)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some((nanos.checked_mul(1 << bits)?, Format::Binary));
    }
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((times_ten(nanos, *exponent)?, Format::Decimal));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((times_ten(nanos, exponent)?, Format::Exponent))
}

fn times_ten(nanos: i128, exponent: i32) -> Option<i128> {
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    if 0 <= exponent {
        nanos.checked_mul(power)
    } else {
        Some(nanos / power + i128::from(nanos % power != 0))
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nanos == 0 {
            return out.write_str("0");
        }
        // Binary suffixes are for whole numbers from 1 Ki.
        if self.format == Format::Binary && self.nanos % NANO == 0 && 1024 * NANO <= self.nanos.abs() {
            let mut number = self.nanos / NANO;
            let mut suffix = "";
            for (name, _) in BINARY {
                if number % 1024 != 0 {
                    break;
                }
                number /= 1024;
                suffix = name;
            }
            return write!(out, "{number}{suffix}");
        }
        let mut number = self.nanos;
        let mut index = 0;
        while number % 1000 == 0 && index + 1 < DECIMAL.len() {
            number /= 1000;
            index += 1;
        }
        let (suffix, exponent) = DECIMAL[index];
        match self.format {
            Format::Exponent if exponent != 0 => write!(out, "{number}e{exponent}"),
            _ => write!(out, "{number}{suffix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_the_form_that_kubernetes_gives_them() {
        let cases = [
            ("1000m", "1"),
            ("0.5", "500m"),
            (".5Gi", "512Mi"),
            ("1024Mi", "1Gi"),
            ("1025Ki", "1025Ki"),
            ("1000", "1k"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("0", "0"),
            ("-1500m", "-1500m"),
            ("36Gi", "36Gi"),
            ("100Ki", "100Ki"),
            ("0.5Ki", "512"),
            ("0.0000000001", "1n"),
        ];
        for (text, form) in cases {
            assert_eq!(
                Quantity::parse(text).map(|quantity| quantity.to_string()).as_deref(),
                Some(form),
                "{text}"
            );
        }
        for text in ["", "1x", "1.2.3", "Gi", "1ee3", "1 ", "170141183460469231731687303715.8841057271"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
    }
}
