//! Deciding Placements, and what counts as decided before it is written.
//!
//! The decisions of one Placement may be several objects, and those are written one after the other. Whoever
//! evaluated on the part that is there would take clusters that are only on their way to another object for
//! clusters that the Placement left. So what was decided counts as if it were written, for the Placement
//! itself as for those that balance against it, and for whoever explains or simulates.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use super::{
    changes::Desired,
    evaluate,
    hub::{Decision, Hub},
    spec::{Placement, PlacementKey},
};
use fedq_values::ids::ClusterName;

/// What came of one Placement.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    pub key: PlacementKey,
    /// The chosen, best first.
    pub best: Arc<[ClusterName]>,
    pub desired: Desired,
    pub warning: Option<String>,
    pub again_at: Option<Timestamp>,
}

/// One after the other, each with what was decided for those before it: with the same view of all clusters,
/// Placements that balance would all choose the same ones.
pub fn decide(placements: &[Arc<Placement>], hub: &Arc<Hub>, now: Timestamp) -> Vec<Decided> {
    let mut hub = Arc::clone(hub);
    let mut decided = Vec::with_capacity(placements.len());
    for (at, placement) in placements.iter().enumerate() {
        let evaluation = evaluate(placement, &hub, now);
        let desired = Desired::of(placement, &hub, &evaluation);
        let best = evaluation.decisions(&hub).cloned().collect();
        let is_last = at + 1 == placements.len();
        if let Some(decisions) = desired.decisions(placement).filter(|_| !is_last) {
            Arc::make_mut(&mut hub).set_decisions(Some(placement.key.clone()), decisions);
        }
        let (warning, again_at) = (evaluation.warning, evaluation.again_at);
        decided.push(Decided { key: placement.key.clone(), best, desired, warning, again_at });
    }
    decided
}

/// What was decided and is not written yet.
#[derive(Debug, Default)]
pub struct Unwritten {
    decisions: BTreeMap<PlacementKey, Vec<Decision>>,
    /// The hub it was laid over last, and what came of it.
    over: Option<(Arc<Hub>, Arc<Hub>)>,
}

impl Unwritten {
    /// `None`: all is written, or nothing decided.
    pub fn set(&mut self, key: &PlacementKey, decisions: Option<Vec<Decision>>) {
        if self.decisions.get(key) == decisions.as_ref() {
            return;
        }
        self.over = None;
        match decisions {
            Some(decisions) => drop(self.decisions.insert(key.clone(), decisions)),
            None => drop(self.decisions.remove(key)),
        }
    }

    /// The hub as if all that was decided were written: the one to evaluate with. The same one while
    /// neither changes.
    pub fn over(&mut self, hub: &Arc<Hub>) -> Arc<Hub> {
        if self.decisions.is_empty() {
            return Arc::clone(hub);
        }
        if let Some((_, over)) = self.over.as_ref().filter(|(of, _)| Arc::ptr_eq(of, hub)) {
            return Arc::clone(over);
        }
        let mut over = Hub::clone(hub);
        for (key, decisions) in &self.decisions {
            over.set_decisions(Some(key.clone()), decisions.clone());
        }
        let over = Arc::new(over);
        self.over = Some((Arc::clone(hub), Arc::clone(&over)));
        over
    }
}
