//! The best clusters: by total, then by name.

use std::cmp::Reverse;

use super::{Problem, hub::Hub, options::Options, scores::Prioritized, spec::Placement, spread};

/// The chosen clusters, best first, and how many were wanted but not found.
pub fn select(
    placement: &Placement,
    hub: &Hub,
    prioritized: &Prioritized,
    options: &Options,
) -> Result<(Vec<usize>, i64), Problem> {
    let wanted = match placement.number_of_clusters {
        None => prioritized.clusters.len(),
        // OCM's controller panics at it and never tells.
        Some(number) => usize::try_from(number).map_err(|_| {
            Problem::misconfigured("", format!("numberOfClusters is {number}: it must be 0 or more"))
        })?,
    };
    let decided = hub.decided(&placement.key);
    let is_decided = |at: usize| options.hysteresis != 0 && decided.binary_search(&at).is_ok();
    let rank = |&(at, total): &(usize, i64)| {
        let bonus = if is_decided(at) { options.hysteresis } else { 0 };
        // At exactly that lead, the cluster that is chosen stays.
        (Reverse(total.saturating_add(bonus)), Reverse(bonus), at)
    };
    let mut ranked: Vec<(usize, i64)> =
        prioritized.clusters.iter().copied().zip(prioritized.totals.iter().copied()).collect();
    if options.spread && !placement.spread.is_empty() {
        ranked.sort_unstable_by_key(rank);
        let order: Vec<usize> = ranked.into_iter().map(|(at, _)| at).collect();
        let chosen = spread::choose(placement, hub, &order, wanted);
        let missing = missing(placement, chosen.len());
        return Ok((chosen, missing));
    }
    // Sorting only what is taken: of a thousand clusters, mostly ten.
    if wanted < ranked.len() && wanted != 0 {
        ranked.select_nth_unstable_by_key(wanted - 1, rank);
    }
    ranked.truncate(wanted);
    ranked.sort_unstable_by_key(rank);
    let chosen: Vec<usize> = ranked.into_iter().map(|(at, _)| at).collect();
    let missing = missing(placement, chosen.len());
    Ok((chosen, missing))
}

fn missing(placement: &Placement, chosen: usize) -> i64 {
    let wanted = placement.number_of_clusters.map(i64::from);
    wanted.map_or(0, |wanted| wanted - i64::try_from(chosen).unwrap_or(i64::MAX))
}
