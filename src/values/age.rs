//! How long something took, as kubectl says it: `5m`, `3h20m`, `2d4h`.

use jiff::{SignedDuration, Timestamp};

/// Since `text`, a time of an object; an object without one is as old as Go's zero time lets it be.
pub fn since(text: Option<&str>, now: Timestamp) -> String {
    let Some(then) = text.and_then(|text| text.parse::<Timestamp>().ok()) else {
        return human(SignedDuration::MAX);
    };
    human(now.duration_since(then))
}

/// Up to two units; more than a second in the future is invalid, as for kubectl.
pub fn human(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().min(i64::MAX / 1_000_000_000);
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
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
