//! Claims that vanish. One is a person's wish; many at once are more likely a mistake, or a CRD that
//! was deleted with everything in it, and quota must not go to zero for that without a word.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use crate::domain::{claim::ValidClaim, ids::ClaimName, quantity::Amount, resources::Resources};

/// The claims in force, with those that vanished and are not believed yet.
pub(super) struct Accepted {
    /// A claim that vanishes stays in force this long, so that a batch of deletions is judged whole.
    window: Duration,
    claims: BTreeMap<ClaimName, ValidClaim>,
    vanished: BTreeMap<ClaimName, Instant>,
    held: BTreeSet<ClaimName>,
}

impl Accepted {
    /// `known`: the claims that were in force when fedqd last ran.
    pub fn new(window: Duration, known: impl IntoIterator<Item = ValidClaim>) -> Self {
        let claims = known.into_iter().map(|claim| (claim.name().clone(), claim)).collect();
        Self { window, claims, vanished: BTreeMap::new(), held: BTreeSet::new() }
    }

    /// Takes the valid claims of the hub, and the names of all that are there: an invalid edit leaves
    /// the last valid spec in force. When to look again, if a removal is being judged.
    pub fn observe(
        &mut self,
        valid: Vec<ValidClaim>,
        present: &BTreeSet<ClaimName>,
        now: Instant,
    ) -> Option<Instant> {
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
        let gone: BTreeSet<ClaimName> = std::mem::take(&mut self.vanished).into_keys().collect();
        if self.is_most(&gone) {
            self.held.extend(gone);
        } else {
            self.claims.retain(|name, _| !gone.contains(name));
        }
        None
    }

    /// A person says that the removals are meant.
    pub fn confirm(&mut self) -> BTreeSet<ClaimName> {
        let held = std::mem::take(&mut self.held);
        self.claims.retain(|name, _| !held.contains(name));
        held
    }

    pub fn held(&self) -> &BTreeSet<ClaimName> {
        &self.held
    }

    pub fn claims(&self) -> impl Iterator<Item = &ValidClaim> {
        self.claims.values()
    }

    /// Whether `gone`, with what is held already, has more than half of what is assigned of anything.
    fn is_most(&self, gone: &BTreeSet<ClaimName>) -> bool {
        let (mut all, mut lost) = (Resources::new(), Resources::new());
        for claim in self.claims.values() {
            let is_gone = gone.contains(claim.name()) || self.held.contains(claim.name());
            for (resource, amount) in claim.sums() {
                add(&mut all, &resource, amount);
                if is_gone {
                    add(&mut lost, &resource, amount);
                }
            }
        }
        lost.iter().any(|(resource, lost)| {
            let rest = all.get(resource).copied().unwrap_or_default().saturating_sub(*lost);
            rest < *lost
        })
    }
}

fn add(sums: &mut Resources, resource: &crate::domain::ids::ResourceName, amount: Amount) {
    let sum = sums.entry(resource.clone()).or_default();
    *sum = sum.saturating_add(amount);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        claim::{AssignmentText, ClaimText, validate},
        resources::Aliases,
    };

    const WINDOW: Duration = Duration::from_secs(1);

    fn claim(cluster: &str, gpus: u32) -> ValidClaim {
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
        validate(&text, &Aliases::default()).expect("a valid claim")
    }

    fn present(claims: &[&ValidClaim]) -> BTreeSet<ClaimName> {
        claims.iter().map(|claim| claim.name().clone()).collect()
    }

    fn in_force(accepted: &Accepted) -> Vec<&str> {
        accepted.claims().map(|claim| claim.cluster().as_str()).collect()
    }

    #[test]
    fn one_claim_of_several_goes_after_the_window() {
        let (a, b, c) = (claim("a", 4), claim("b", 4), claim("c", 4));
        let mut accepted = Accepted::new(WINDOW, [a, b.clone(), c.clone()]);
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
        let mut accepted = Accepted::new(WINDOW, [a, b, c.clone()]);
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
        let mut accepted = Accepted::new(WINDOW, [a.clone()]);
        let start = Instant::now();
        accepted.observe(vec![], &BTreeSet::new(), start);
        accepted.observe(vec![], &BTreeSet::new(), start + WINDOW);
        assert_eq!(accepted.held().len(), 1);
        accepted.observe(vec![a.clone()], &present(&[&a]), start + WINDOW * 2);
        assert!(accepted.held().is_empty());
        assert_eq!(in_force(&accepted), ["a"]);
    }

    #[test]
    fn claims_without_assignments_may_all_go() {
        let empty = claim("a", 0);
        let mut accepted = Accepted::new(WINDOW, [empty]);
        let start = Instant::now();
        accepted.observe(vec![], &BTreeSet::new(), start);
        accepted.observe(vec![], &BTreeSet::new(), start + WINDOW);
        assert!(in_force(&accepted).is_empty());
    }

    #[test]
    fn an_edit_that_is_invalid_leaves_the_last_valid_one_in_force() {
        let a = claim("a", 4);
        let mut accepted = Accepted::new(WINDOW, [a.clone()]);
        let start = Instant::now();
        accepted.observe(vec![], &present(&[&a]), start);
        accepted.observe(vec![], &present(&[&a]), start + WINDOW * 100);
        assert_eq!(in_force(&accepted), ["a"]);
    }
}
