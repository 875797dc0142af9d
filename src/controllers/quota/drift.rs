//! Somebody else writing our cells: put right at a bounded rate, then reported instead of a write war.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use serde_json::Value;

use fedq_domain::resource_groups::ResourceGroups;
use fedq_k8s::types::meta::Meta;

const WINDOW: Duration = Duration::from_mins(1);

pub(super) struct Drift {
    reverts_a_window: usize,
    written: BTreeMap<String, Written>,
}

/// What is written at one place: a queue's quota, or one field of its policy.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wish {
    Groups(ResourceGroups),
    Field(Value),
}

struct Written {
    /// What we last wrote and the server took.
    wish: Wish,
    reverts: VecDeque<Instant>,
}

/// Whether a difference may be written now.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    Write,
    /// Enough reverts for now; when the next may be made.
    Wait(Instant),
}

impl Drift {
    pub fn new(reverts_a_minute: u32) -> Self {
        let reverts_a_window = usize::try_from(reverts_a_minute).unwrap_or(usize::MAX).max(1);
        Self { reverts_a_window, written: BTreeMap::new() }
    }

    /// `key` tells the queues of hub and workers apart, and their fields.
    pub fn judge(&mut self, key: &str, desired: &Wish, now: Instant) -> Verdict {
        let Some(written) = self.written.get_mut(key).filter(|written| written.wish == *desired) else {
            return Verdict::Write;
        };
        while written.reverts.front().is_some_and(|at| *at + WINDOW <= now) {
            written.reverts.pop_front();
        }
        match written.reverts.front() {
            Some(oldest) if self.reverts_a_window <= written.reverts.len() => Verdict::Wait(*oldest + WINDOW),
            _ => Verdict::Write,
        }
    }

    /// The server took a write of ours.
    pub fn wrote(&mut self, key: &str, wish: Wish, now: Instant) {
        match self.written.get_mut(key) {
            Some(written) if written.wish == wish => written.reverts.push_back(now),
            Some(written) => *written = Written { wish, reverts: VecDeque::new() },
            None => {
                self.written.insert(key.to_owned(), Written { wish, reverts: VecDeque::new() });
            }
        }
    }
}

/// The field manager that wrote last and is not fedq.
pub(super) fn other_manager(meta: &Meta) -> String {
    let others = meta.managed_fields.iter().filter(|entry| {
        !entry.manager.starts_with("fedq-") && entry.manager != "kueue" && entry.subresource.is_none()
    });
    let newest = others.max_by(|a, b| a.time.cmp(&b.time));
    newest.map_or_else(|| "someone".to_owned(), |entry| format!("`{}`", entry.manager))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedq_domain::resource_groups::ResourceGroup;

    #[test]
    fn the_same_write_again_and_again_is_slowed_and_a_new_one_is_not() {
        let mut drift = Drift::new(2);
        let now = Instant::now();
        let groups = Wish::Groups(ResourceGroups(vec![ResourceGroup::default()]));
        let other = Wish::Groups(ResourceGroups::default());
        for _ in 0..3 {
            assert_eq!(drift.judge("hub/q", &groups, now), Verdict::Write);
            drift.wrote("hub/q", groups.clone(), now);
        }
        assert_eq!(drift.judge("hub/q", &groups, now), Verdict::Wait(now + WINDOW));
        assert_eq!(drift.judge("hub/q", &groups, now + WINDOW), Verdict::Write);
        assert_eq!(drift.judge("hub/q", &other, now), Verdict::Write);
        assert_eq!(drift.judge("w1/q", &groups, now), Verdict::Write);
        let (key, field) = ("w1/q stopPolicy", Wish::Field("Hold".into()));
        for _ in 0..3 {
            assert_eq!(drift.judge(key, &field, now), Verdict::Write);
            drift.wrote(key, field.clone(), now);
        }
        assert_eq!(
            drift.judge(key, &field, now),
            Verdict::Wait(now + WINDOW),
            "a field of its policy likewise"
        );
        assert_eq!(drift.judge(key, &Wish::Field("None".into()), now), Verdict::Write);
    }
}
