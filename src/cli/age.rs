//! How long ago, as kubectl says it: `5m`, `3h20m`, `2d4h`.

use jiff::Timestamp;

use fedq_base::clock::Clock;
use fedq_wire::time::Time;

/// For a table. Programs get the time itself.
pub fn age(at: Time) -> String {
    between(at.0, Clock::system().now())
}

pub fn age_of(at: Option<Time>) -> String {
    at.map(age).unwrap_or_default()
}

/// Two units where the first alone would be coarse. A time to come, as by a clock that is behind, is now.
fn between(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(at.as_second()).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |first: i64, unit: &str, rest: i64, of: &str| {
        if rest == 0 { format!("{first}{unit}") } else { format!("{first}{unit}{rest}{of}") }
    };
    match (minutes, hours, days) {
        (0..2, _, _) => format!("{seconds}s"),
        (2..10, _, _) => two(minutes, "m", seconds % 60, "s"),
        (10..180, _, _) => format!("{minutes}m"),
        (_, 3..8, _) => two(hours, "h", minutes % 60, "m"),
        (_, 8..48, _) => format!("{hours}h"),
        (_, _, 2..8) => two(days, "d", hours % 24, "h"),
        (_, _, 8..730) => format!("{days}d"),
        (_, _, 730..2920) => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_kubectls() {
        let now = Timestamp::from_second(1_700_000_000).expect("a time");
        let cases = [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (12_000, "3h20m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (187_200, "2d4h"),
            (691_200, "8d"),
            (729 * 86400, "729d"),
            (730 * 86400, "2y"),
            (731 * 86400, "2y1d"),
            (3000 * 86400, "8y"),
        ];
        for (seconds, text) in cases {
            let at = Timestamp::from_second(1_700_000_000 - seconds).expect("a time");
            assert_eq!(between(at, now), text, "{seconds} s");
        }
    }
}
