//! Conditions as Kubernetes means them: the time of a transition moves only when the status does.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

pub const TRUE: &str = "True";
pub const FALSE: &str = "False";
pub const UNKNOWN: &str = "Unknown";

/// Characters of a message: the definition refuses more than 32768, and a status that is refused stands still.
const MAX_MESSAGE: usize = 4096;

pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

pub fn is(conditions: &[Condition], type_: &str, status: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == status)
}

/// When the condition got the status that it has.
pub fn since(conditions: &[Condition], type_: &str) -> Option<Timestamp> {
    find(conditions, type_).map(|condition| condition.last_transition_time.0)
}

pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    (status, reason, message): (&str, &str, &str),
    now: Timestamp,
) {
    // Kubernetes keeps seconds.
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let mut new = Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.chars().take(MAX_MESSAGE).collect(),
        last_transition_time: now,
        observed_generation: None,
    };
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time.clone_from(&old.last_transition_time);
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}

/// Makes it False where it is True.
pub fn clear(conditions: &mut Vec<Condition>, type_: &str, reason: &str, message: &str, now: Timestamp) {
    if is(conditions, type_, TRUE) {
        set(conditions, type_, (FALSE, reason, message), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_any_length_fits_into_the_status() {
        let mut conditions = Vec::new();
        set(&mut conditions, "Unhealthy", (TRUE, "CreateFailed", &"ä".repeat(40_000)), Timestamp::UNIX_EPOCH);
        assert_eq!(conditions[0].message.chars().count(), MAX_MESSAGE);
    }
}
