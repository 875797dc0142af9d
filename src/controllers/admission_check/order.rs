//! The clusters of a decision, best first. PlacementDecisions have them by name, whoever wrote them, and no scores:
//! what the Placement would choose now tells the order, never which clusters.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::gather::Seen;
use crate::domain::{
    ids::ClusterName,
    multikueue::{Decided, placement_key},
    placement::view::PlacementView,
};

#[derive(Default)]
pub(super) struct Order {
    /// Best first, by Placement, with the revision of the view that it is of.
    known: BTreeMap<String, (u64, Vec<ClusterName>)>,
}

impl Order {
    /// Sorts the decisions that some check asks for.
    pub fn sort(&mut self, seen: &mut Seen, view: &PlacementView, kueue_namespace: &str, now: Timestamp) {
        let parameters = seen.checks.iter().filter_map(|check| check.parameters.as_ref());
        let names: Vec<String> = parameters.map(|parameters| parameters.name.clone()).collect();
        self.known.retain(|name, _| names.contains(name));
        for name in names.into_iter().filter(|_| view.known) {
            let Some(decided) = seen.placements.get_mut(&name) else { continue };
            let Some(row) = view.placements.get(&placement_key(kueue_namespace, &name)) else { continue };
            let known = self.known.get(&name).filter(|(revision, _)| *revision == view.revision);
            if known.is_none() {
                let evaluation = view.evaluate(&row.placement, now);
                let best = evaluation.decisions(&view.hub).cloned().collect();
                self.known.insert(name.clone(), (view.revision, best));
            }
            if let Some((_, best)) = self.known.get(&name) {
                sort(decided, best);
            }
        }
    }
}

/// What the Placement would not choose any more comes last, in the order it had.
fn sort(decided: &mut Decided, best: &[ClusterName]) {
    let place = |cluster: &ClusterName| best.iter().position(|one| one == cluster).unwrap_or(usize::MAX);
    decided.clusters.sort_by_cached_key(place);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_comes_first_and_what_is_not_chosen_any_more_last() {
        let names = |texts: &[&str]| -> Vec<ClusterName> {
            texts.iter().map(|text| ClusterName::new(text).expect("a name")).collect()
        };
        let mut decided = Decided { clusters: names(&["a", "b", "c", "d"]), misconfigured: None };
        sort(&mut decided, &names(&["d", "x", "b"]));
        assert_eq!(decided.clusters, names(&["d", "b", "a", "c"]));
    }
}
