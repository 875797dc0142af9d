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
