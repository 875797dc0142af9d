//! Amounts as task files write them.
//!
//! SkyPilot writes `4`, `4+`, `32` (GiB), `64GB` (GiB too); Kubernetes `500m`, `4Gi`, `2G`. A Kubernetes
//! suffix means what it means there; a bare number of memory is GiB, since a task with 32 bytes is
//! nobody's.

use serde::{Deserialize, Serialize};

use fedq_values::{
    ids::ResourceName,
    quantity::{Amount, Quantity, QuantityError},
};

/// What is asked for of a resource; always more than nothing.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "Kept", into = "Kept")]
pub struct Request {
    pub amount: Amount,
    /// `4+`: nodes with more are as good. Kubernetes asks for no other kind.
    pub or_more: bool,
}

/// As it is kept: in thousandths of a cpu, or bytes.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    units: i64,
    or_more: bool,
}

impl From<Kept> for Request {
    fn from(kept: Kept) -> Self {
        Self { amount: Amount::new(kept.units), or_more: kept.or_more }
    }
}

impl From<Request> for Kept {
    fn from(request: Request) -> Self {
        Self { units: request.amount.units(), or_more: request.or_more }
    }
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RequestError {
    #[error("`{0}` is no number of cpus: write one such as 4, 0.5, 500m or 4+")]
    Cpu(String),
    #[error("`{0}` is no amount of memory: write GiB such as 32 or 32+, or a unit such as 64GB or 512Mi")]
    Memory(String),
    #[error("`{0}` asks for nothing: leave it out, or ask for more than 0")]
    Nothing(String),
    #[error(transparent)]
    Quantity(QuantityError),
}

const GIB: i128 = 1 << 30;

pub fn cpu(text: &str) -> Result<Request, RequestError> {
    let (number, or_more) = bare(text);
    let resource = ResourceName::new("cpu").expect("a constant resource name is valid");
    let quantity =
        Quantity::parse(number).map_err(|error| refused(error, || RequestError::Cpu(text.into())))?;
    positive(text, quantity, &resource, or_more)
}

pub fn memory(text: &str) -> Result<Request, RequestError> {
    let (number, or_more) = bare(text);
    let resource = ResourceName::new("memory").expect("a constant resource name is valid");
    let refused = |error| refused(error, || RequestError::Memory(text.into()));
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    let (digits, unit) = number.split_at(end);
    let quantity = match sky_unit(unit) {
        Some(bytes) => {
            let nanos = Quantity::parse(digits).map_err(refused)?.nanos().checked_mul(bytes);
            Quantity::from_nanos(
                nanos.ok_or_else(|| RequestError::Quantity(QuantityError::TooLarge(text.to_owned())))?,
            )
        }
        None => Quantity::parse(number).map_err(refused)?,
    };
    positive(text, quantity, &resource, or_more)
}

/// Bytes in SkyPilot's units, which are powers of 1024 whatever they are called.
fn sky_unit(unit: &str) -> Option<i128> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "" | "gb" => GIB,
        "kb" => 1 << 10,
        "mb" => 1 << 20,
        "tb" => 1 << 40,
        "pb" => 1 << 50,
        "b" => 1,
        _ => return None,
    })
}

fn bare(text: &str) -> (&str, bool) {
    let text = text.trim();
    text.strip_suffix('+').map_or((text, false), |number| (number.trim_end(), true))
}

fn refused(error: QuantityError, syntax: impl Fn() -> RequestError) -> RequestError {
    match error {
        QuantityError::Syntax(_) => syntax(),
        error => RequestError::Quantity(error),
    }
}

/// Parts of the smallest unit are rounded up, as Kubernetes does with requests.
fn positive(
    text: &str,
    quantity: Quantity,
    resource: &ResourceName,
    or_more: bool,
) -> Result<Request, RequestError> {
    if quantity < Quantity::ZERO {
        return Err(RequestError::Quantity(QuantityError::Negative(text.to_owned())));
    }
    let amount = Amount::held(quantity, resource);
    if amount == Amount::MAX {
        return Err(RequestError::Quantity(QuantityError::TooLarge(text.to_owned())));
    }
    if amount.is_zero() {
        return Err(RequestError::Nothing(text.to_owned()));
    }
    Ok(Request { amount, or_more })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> i64 {
        memory(text).expect(text).amount.units()
    }

    #[test]
    fn memory_without_a_kubernetes_suffix_is_in_powers_of_1024() {
        for (text, expected) in [
            ("32", 32 << 30),
            ("32+", 32 << 30),
            ("0.5", 1 << 29),
            ("64GB", 64 << 30),
            ("64gb", 64 << 30),
            ("512MB", 512 << 20),
            ("1TB", 1 << 40),
            ("100B", 100),
            ("4Gi", 4 << 30),
            ("2G", 2_000_000_000),
            ("512Mi+", 512 << 20),
            ("1e9", 1_000_000_000),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
        assert!(memory("32+").expect("valid").or_more);
    }

    #[test]
    fn cpus_are_counted_in_thousandths() {
        for (text, expected) in [("2", 2000), ("4+", 4000), ("0.5", 500), ("500m", 500), ("0.0001", 1)] {
            assert_eq!(cpu(text).expect(text).amount.units(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in ["", "+", "x", "4x", "1.2.3", "4++", "NaN", "inf", "4 cores"] {
            assert!(matches!(cpu(text), Err(RequestError::Cpu(_))), "{text}");
            assert!(memory(text).is_err(), "{text}");
        }
        for text in ["0", "0+", "0.0"] {
            assert!(matches!(cpu(text), Err(RequestError::Nothing(_))), "{text}");
            assert!(matches!(memory(text), Err(RequestError::Nothing(_))), "{text}");
        }
        for text in ["-1", "99999999999999999999999999999999999999999", "1e1000", "9999999999PB"] {
            assert!(matches!(memory(text), Err(RequestError::Quantity(_))), "{text}");
        }
        assert!(matches!(memory("4Gib"), Err(RequestError::Memory(_))));
    }
}
