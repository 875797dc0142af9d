//! Claims that vanish. One is a person's wish; many at once are more likely a mistake, or a CRD that
//! was deleted with everything in it, and quota must not go to zero for that without a word. Nor may it go in
//! slices: a large deletion takes its time, so what went shortly before counts with what goes now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use fedq_domain::{claim::ValidClaim, resources::Resources};
use fedq_values::{
    ids::{ClaimName, ClusterName, ResourceName},
    quantity::Amount,
};

/// The claims in force, with those that vanished and are not believed yet.
pub(super) struct Accepted {
    /// A claim that vanishes stays in force this long, so that a batch of deletions is judged whole.
    window: Duration,
    /// What went within this time counts with what goes now.
    span: Duration,
    claims: BTreeMap<ClaimName, Arc<ValidClaim>>,
    vanished: BTreeMap<ClaimName, Instant>,
    held: BTreeSet<ClaimName>,
    /// What claims of clusters gave out that went within the span, by when.
    gone: BTreeMap<ClusterName, (Instant, Resources)>,
}

impl Accepted {
    /// `known`: the claims that were in force when fedqd last ran.
    pub fn new(window: Duration, span: Duration, known: impl IntoIterator<Item = Arc<ValidClaim>>) -> Self {
        let claims = known.into_iter().map(|claim| (claim.name().clone(), claim)).collect();
        Self { window, span, claims, vanished: BTreeMap::new(), held: BTreeSet::new(), gone: BTreeMap::new() }
    }

    /// Takes the valid claims of the hub, and the names of all that are there: an invalid edit leaves
    /// the last valid spec in force. When to look again, if a removal is being judged.
    pub fn observe(
        &mut self,
        valid: Vec<Arc<ValidClaim>>,
        present: &BTreeSet<ClaimName>,
        now: Instant,
    ) -> Option<Instant> {
        // A second claim for a cluster is turned down, whichever of them was known before.
        let holders: BTreeMap<ClusterName, ClaimName> =
            valid.iter().map(|claim| (claim.cluster().clone(), claim.name().clone())).collect();
        self.claims.retain(|name, claim| {
            !present.contains(name) || holders.get(claim.cluster()).is_none_or(|holder| holder == name)
        });
        for claim in valid {
            self.claims.insert(claim.name().clone(), claim);
        }
        self.vanished.retain(|name, _| !present.contains(name));
        self.held.retain(|name| !present.contains(name));
        for name in self.claims.keys() {
            if !present.contains(name) && !self.held.contains(name) {
                self.vanished.entry(name.clone()).or_insert(now);
            }
        }
        let oldest = *self.vanished.values().min()?;
        if now < oldest + self.window {
            return Some(oldest + self.window);
        }
        self.gone.retain(|_, (at, _)| now < *at + self.span);
        let gone: BTreeSet<ClaimName> = std::mem::take(&mut self.vanished).into_keys().collect();
        if self.is_most(&gone) {
            self.held.extend(gone);
        } else {
            self.let_go(&gone, now);
        }
        None
    }

    fn let_go(&mut self, names: &BTreeSet<ClaimName>, now: Instant) {
        for claim in names.iter().filter_map(|name| self.claims.remove(name)) {
            let (at, sums) =
                self.gone.entry(claim.cluster().clone()).or_insert_with(|| (now, Resources::new()));
            *at = now;
            for (resource, amount) in claim.sums() {
                // A claim that came back and goes again is not lost twice.
                let sum = sums.entry(resource).or_default();
                *sum = (*sum).max(amount);
            }
        }
    }

    /// A person says that the removals are meant.
    pub fn confirm(&mut self) -> BTreeSet<ClaimName> {
        let held = std::mem::take(&mut self.held);
        self.claims.retain(|name, _| !held.contains(name));
        // Whatever went before was meant as well.
        self.gone.clear();
        held
    }

    pub fn held(&self) -> &BTreeSet<ClaimName> {
        &self.held
    }

    /// Whether its object is not there any more.
    pub fn is_gone(&self, name: &ClaimName) -> bool {
        self.held.contains(name) || self.vanished.contains_key(name)
    }

    pub fn claims(&self) -> impl Iterator<Item = &Arc<ValidClaim>> {
        self.claims.values()
    }

    /// Whether `leaving`, with what is held already and what went shortly before, has more than half of what is
    /// or was assigned of anything.
    fn is_most(&self, leaving: &BTreeSet<ClaimName>) -> bool {
        let (mut all, mut lost) = (Resources::new(), Resources::new());
        // What each cluster's claim gave out before, less what it gives out again.
        let mut before = self.gone.clone();
        let mut something = false;
        for claim in self.claims.values() {
            let is_leaving = leaving.contains(claim.name()) || self.held.contains(claim.name());
            for (resource, amount) in claim.sums() {
                add(&mut all, &resource, amount);
                if is_leaving {
                    something |= !amount.is_zero();
                    add(&mut lost, &resource, amount);
                }
                if let Some((_, sums)) = before.get_mut(claim.cluster()) {
                    let sum = sums.entry(resource).or_default();
                    *sum = sum.saturating_sub(amount);
                }
            }
        }
        for (resource, amount) in before.values().flat_map(|(_, sums)| sums) {
            add(&mut all, resource, *amount);
            add(&mut lost, resource, *amount);
        }
        if !something {
            return false;
        }
        lost.iter().any(|(resource, lost)| {
            let rest = all.get(resource).copied().unwrap_or_default().saturating_sub(*lost);
            rest < *lost
        })
    }
}

fn add(sums: &mut Resources, resource: &ResourceName, amount: Amount) {
    let sum = sums.entry(resource.clone()).or_default();
    *sum = sum.saturating_add(amount);
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedq_domain::{
        claim::{AssignmentText, ClaimText, validate},
        resources::Aliases,
    };

    const WINDOW: Duration = Duration::from_secs(1);
    const SPAN: Duration = Duration::from_mins(10);

    fn claim(cluster: &str, gpus: u32) -> Arc<ValidClaim> {
        let text = ClaimText {
            name: format!("{cluster}-resource-claim"),
            cluster: cluster.to_owned(),
            assignments: vec![AssignmentText {
                queue: "q".to_owned(),
                flavor: "f".to_owned(),
                resources: BTreeMap::from([("gpu".to_owned(), gpus.to_string())]),
            }],
            ..ClaimText::default()
        };
        Arc::new(validate(&text, &Aliases::default()).expect("a valid claim"))
    }

    fn present(claims: &[&Arc<ValidClaim>]) -> BTreeSet<ClaimName> {
        claims.iter().map(|claim| claim.name().clone()).collect()
    }

    fn in_force(accepted: &Accepted) -> Vec<&str> {
        accepted.claims().map(|claim| claim.cluster().as_str()).collect()
    }

    #[test]
    fn one_claim_of_several_goes_after_the_window() {
        let (a, b, c) = (claim("a", 4), claim("b", 4), claim("c", 4));
        let mut accepted = Accepted::new(WINDOW, SPAN, [a, b.clone(), c.clone()]);
        let start = Instant::now();
        let next = accepted.observe(vec![b.clone(), c.clone()], &present(&[&b, &c]), start);
        assert_eq!(next, Some(start + WINDOW));
        assert_eq!(in_force(&accepted), ["a", "b", "c"]);
        assert_eq!(accepted.observe(vec![], &present(&[&b, &c]), start + WINDOW), None);
        assert_eq!(in_force(&accepted), ["b", "c"]);
    }

    #[test]
    fn most_of_the_quota_goes_only_with_a_word() {
        let (a, b, c) = (claim("a", 4), claim("b", 4), claim("c", 4));
        let mut accepted = Accepted::new(WINDOW, SPAN, [a, b, c.clone()]);
        let start = Instant::now();
        accepted.observe(vec![c.clone()], &present(&[&c]), start);
        accepted.observe(vec![c.clone()], &present(&[&c]), start + WINDOW);
        assert_eq!(in_force(&accepted), ["a", "b", "c"]);
        assert_eq!(accepted.held().len(), 2);
        accepted.observe(vec![c.clone()], &present(&[&c]), start + WINDOW * 100);
        assert_eq!(accepted.held().len(), 2, "time is no word");
        assert_eq!(accepted.confirm().len(), 2);
        assert_eq!(in_force(&accepted), ["c"]);
    }

    #[test]
    fn a_claim_that_comes_back_is_held_no_more() {
        let a = claim("a", 4);
        let mut accepted = Accepted::new(WINDOW, SPAN, [a.clone()]);
        let start = Instant::now();
        accepted.observe(vec![], &BTreeSet::new(), start);
        accepted.observe(vec![], &BTreeSet::new(), start + WINDOW);
        assert_eq!(accepted.held().len(), 1);
        accepted.observe(vec![a.clone()], &present(&[&a]), start + WINDOW * 2);
        assert!(accepted.held().is_empty());
        assert_eq!(in_force(&accepted), ["a"]);
    }

    /// Deletes these claims, and waits until that is judged; what is in force then.
    fn delete(accepted: &mut Accepted, rest: &[&Arc<ValidClaim>], at: Instant) -> usize {
        let valid = || rest.iter().copied().cloned().collect();
        accepted.observe(valid(), &present(rest), at);
        accepted.observe(valid(), &present(rest), at + WINDOW);
        accepted.claims().count()
    }

    #[test]
    fn a_deletion_in_slices_is_judged_as_one() {
        let claims: Vec<_> = (0..10).map(|number| claim(&format!("c{number}"), 4)).collect();
        let mut accepted = Accepted::new(WINDOW, SPAN, claims.clone());
        let start = Instant::now();
        let left = |count: usize| claims[..count].iter().collect::<Vec<_>>();
        assert_eq!(delete(&mut accepted, &left(7), start), 7);
        assert_eq!(delete(&mut accepted, &left(5), start + WINDOW * 60), 5, "half of it, by two's");
        assert_eq!(delete(&mut accepted, &left(3), start + WINDOW * 120), 5, "more than half of the ten");
        assert_eq!(accepted.held().len(), 2);
        assert_eq!(delete(&mut accepted, &left(0), start + WINDOW * 180), 5);
        assert_eq!(accepted.confirm().len(), 5);
        assert_eq!(in_force(&accepted).len(), 0);
    }

    #[test]
    fn what_went_long_ago_or_came_back_is_not_counted() {
        let claims: Vec<_> = (0..4).map(|number| claim(&format!("c{number}"), 4)).collect();
        let all: Vec<&Arc<ValidClaim>> = claims.iter().collect();
        let mut accepted = Accepted::new(WINDOW, SPAN, claims.clone());
        let start = Instant::now();
        assert_eq!(delete(&mut accepted, &all[1..], start), 3);
        assert_eq!(delete(&mut accepted, &all[2..], start + WINDOW * 10), 2);
        accepted.observe(claims.clone(), &present(&all), start + WINDOW * 20);
        assert_eq!(delete(&mut accepted, &all[1..], start + WINDOW * 30), 3, "they are there again");
        assert_eq!(delete(&mut accepted, &all[2..], start + SPAN * 2), 2, "one of three");
        assert_eq!(delete(&mut accepted, &all[3..], start + SPAN * 4), 1, "one of two");
    }

    #[test]
    fn a_claim_made_anew_without_assignments_is_no_return() {
        let (a, b, c) = (claim("a", 4), claim("b", 4), claim("c", 4));
        let (a_anew, b_anew) = (claim("a", 0), claim("b", 0));
        let mut accepted = Accepted::new(WINDOW, SPAN, [a, b.clone(), c.clone()]);
        let start = Instant::now();
        assert_eq!(delete(&mut accepted, &[&b, &c], start), 2);
        assert_eq!(delete(&mut accepted, &[&a_anew, &c], start + WINDOW * 60), 3);
        assert_eq!(accepted.held(), &present(&[&b_anew]));
    }

    #[test]
    fn claims_without_assignments_may_all_go() {
        let empty = claim("a", 0);
        let mut accepted = Accepted::new(WINDOW, SPAN, [empty]);
        let start = Instant::now();
        accepted.observe(vec![], &BTreeSet::new(), start);
        accepted.observe(vec![], &BTreeSet::new(), start + WINDOW);
        assert!(in_force(&accepted).is_empty());
    }

    #[test]
    fn an_edit_that_is_invalid_leaves_the_last_valid_one_in_force() {
        let a = claim("a", 4);
        let mut accepted = Accepted::new(WINDOW, SPAN, [a.clone()]);
        let start = Instant::now();
        accepted.observe(vec![], &present(&[&a]), start);
        accepted.observe(vec![], &present(&[&a]), start + WINDOW * 100);
        assert_eq!(in_force(&accepted), ["a"]);
    }
}
