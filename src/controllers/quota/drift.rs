//! Somebody else writing our cells: put right at a bounded rate, then reported instead of a write war.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use serde_json::Value;

use fedq_domain::{conflict::Writers, resource_groups::ResourceGroups};
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
    /// Who was found to have written something else, and when last. Two who write by turns are both in it.
    others: BTreeMap<String, Instant>,
}

impl Written {
    fn new(wish: Wish) -> Self {
        Self { wish, reverts: VecDeque::new(), others: BTreeMap::new() }
    }
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

    /// `key` tells the queues of hub and workers apart, and their fields; `found` is the object that differs.
    pub fn judge(&mut self, key: &str, desired: &Wish, found: &Meta, now: Instant) -> Verdict {
        let Some(written) = self.written.get_mut(key).filter(|written| written.wish == *desired) else {
            return Verdict::Write;
        };
        while written.reverts.front().is_some_and(|at| *at + WINDOW <= now) {
            written.reverts.pop_front();
        }
        written.others.retain(|_, last| now < *last + WINDOW);
        if let Some(other) = other_manager(found) {
            written.others.insert(other.to_owned(), now);
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
            Some(written) => *written = Written::new(wish),
            None => {
                self.written.insert(key.to_owned(), Written::new(wish));
            }
        }
    }

    /// Who writes something else there.
    pub fn writers(&self, key: &str) -> Writers {
        self.written.get(key).into_iter().flat_map(|written| written.others.keys().cloned()).collect()
    }
}

/// The field manager that wrote last and is not fedq.
fn other_manager(meta: &Meta) -> Option<&str> {
    let others = meta.managed_fields.iter().filter(|entry| {
        !entry.manager.starts_with("fedq-") && entry.manager != "kueue" && entry.subresource.is_none()
    });
    others.max_by(|a, b| a.time.cmp(&b.time)).map(|entry| entry.manager.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedq_domain::resource_groups::ResourceGroup;
    use fedq_k8s::types::meta::Manager;

    #[test]
    fn the_same_write_again_and_again_is_slowed_and_a_new_one_is_not() {
        let mut drift = Drift::new(2);
        let (found, now) = (Meta::default(), Instant::now());
        let groups = Wish::Groups(ResourceGroups(vec![ResourceGroup::default()]));
        let other = Wish::Groups(ResourceGroups::default());
        for _ in 0..3 {
            assert_eq!(drift.judge("hub/q", &groups, &found, now), Verdict::Write);
            drift.wrote("hub/q", groups.clone(), now);
        }
        assert_eq!(drift.judge("hub/q", &groups, &found, now), Verdict::Wait(now + WINDOW));
        assert_eq!(drift.judge("hub/q", &groups, &found, now + WINDOW), Verdict::Write);
        assert_eq!(drift.judge("hub/q", &other, &found, now), Verdict::Write);
        assert_eq!(drift.judge("w1/q", &groups, &found, now), Verdict::Write);
        let (key, field) = ("w1/q stopPolicy", Wish::Field("Hold".into()));
        for _ in 0..3 {
            assert_eq!(drift.judge(key, &field, &found, now), Verdict::Write);
            drift.wrote(key, field.clone(), now);
        }
        assert_eq!(
            drift.judge(key, &field, &found, now),
            Verdict::Wait(now + WINDOW),
            "a field of its policy likewise"
        );
        assert_eq!(drift.judge(key, &Wish::Field("None".into()), &found, now), Verdict::Write);
    }

    #[test]
    fn two_who_write_by_turns_are_both_named_until_one_is_quiet_for_a_while() {
        let written_by = |names: &[&str]| {
            let entry = |(second, name): (usize, &&str)| Manager {
                manager: (*name).to_owned(),
                time: Some(format!("2027-01-01T00:00:{second:02}Z")),
                subresource: None,
            };
            Meta { managed_fields: names.iter().enumerate().map(entry).collect(), ..Meta::default() }
        };
        let mut drift = Drift::new(2);
        let (now, wish) = (Instant::now(), Wish::Field("Hold".into()));
        drift.wrote("hub/q", wish.clone(), now);
        drift.judge("hub/q", &wish, &written_by(&["helm", "argocd-controller", "fedq-quota"]), now);
        drift.judge(
            "hub/q",
            &wish,
            &written_by(&["argocd-controller", "kustomize-controller", "kueue"]),
            now,
        );
        assert_eq!(drift.writers("hub/q").to_string(), "`argocd-controller` and `kustomize-controller`");
        let later = now + WINDOW;
        drift.judge("hub/q", &wish, &written_by(&["kustomize-controller"]), later);
        assert_eq!(drift.writers("hub/q").to_string(), "`kustomize-controller`");
    }
}
