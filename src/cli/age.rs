//! How long ago, as kubectl says it: `5m`, `3h20m`, `2d4h`.

use jiff::{SignedDuration, Timestamp};

use fedq_base::clock::Clock;
use fedq_values::age::human;
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
    human(now.duration_since(at).max(SignedDuration::ZERO))
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
