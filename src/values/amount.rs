//! Quantities for people, as they write them: `14.49` cores rather than `14490m`, `57.96Gi` rather than
//! `62236507232`. Exact ones are in `-o json` and `-o yaml`.

use crate::{ids::ResourceName, quantity::Quantity};

const NANO: i128 = 1_000_000_000;

/// `text` as the API gives it, of a resource by its name or the short one; perhaps with a sign.
pub fn amount(resource: &str, text: &str) -> String {
    let (sign, unsigned) = match text.strip_prefix(['+', '-']) {
        Some(rest) => text.split_at(text.len() - rest.len()),
        None => ("", text),
    };
    let (Ok(resource), Ok(quantity)) = (ResourceName::new(resource), Quantity::parse(unsigned)) else {
        return text.to_owned();
    };
    let nanos = quantity.nanos();
    let written = if resource.is_bytes() {
        [("Gi", 1_i128 << 30), ("Mi", 1 << 20)]
            .into_iter()
            .find(|(_, size)| size * NANO <= nanos && nanos % (size * NANO) != 0)
            .map(|(suffix, size)| decimal(nanos / size, suffix))
    } else {
        (NANO < nanos && nanos % NANO != 0).then(|| decimal(nanos, ""))
    };
    written.map_or_else(|| text.to_owned(), |written| format!("{sign}{written}"))
}

/// Two digits behind the point, rounded down: nobody is to hold less than they read. Of cores all there are.
fn decimal(nanos: i128, suffix: &str) -> String {
    let step = if suffix.is_empty() { 1 } else { NANO / 100 };
    let text = format!("{}.{:09}", nanos / NANO, nanos % NANO / step * step);
    format!("{}{suffix}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_printed_as_people_write_them() {
        for (resource, text, printed) in [
            ("cpu", "14490m", "14.49"),
            ("cpu", "500m", "500m"),
            ("cpu", "14", "14"),
            ("cpu", "+1500m", "+1.5"),
            ("memory", "62236507232", "57.96Gi"),
            ("memory", "59353Mi", "57.96Gi"),
            ("memory", "1000Gi", "1000Gi"),
            ("memory", "-512Mi", "-512Mi"),
            ("memory", "1000Ki", "1000Ki"),
            ("memory", "2Ti", "2Ti"),
            ("ephemeral-storage", "1536Ki", "1.5Mi"),
            ("gpu", "5", "5"),
            ("gpu", "gone", "gone"),
        ] {
            assert_eq!(amount(resource, text), printed, "{resource} {text}");
        }
    }
}
