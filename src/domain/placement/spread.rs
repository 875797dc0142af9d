//! `spec.spreadPolicy`, on request: evenly over the values of a label or claim. OCM has it in its API
//! only, so the meaning is the one that pods' topology spread constraints have.

use std::collections::{BTreeMap, HashMap};

use super::{
    hub::Hub,
    spec::{Placement, SpreadTerm},
};

/// Takes of `order`, best first, the best cluster that no term forbids, until there are enough.
pub fn choose(placement: &Placement, hub: &Hub, order: &[usize], wanted: usize) -> Vec<usize> {
    let terms = &placement.spread;
    let mut topology = Topology::new(terms, hub, order);
    // Clusters of one place rank among themselves by score: only the best of each place is a candidate.
    let mut places: BTreeMap<Vec<Option<usize>>, std::collections::VecDeque<(usize, usize)>> =
        BTreeMap::new();
    for (rank, at) in order.iter().enumerate() {
        let place = topology.place(*at);
        if place.iter().zip(terms).all(|(value, term)| value.is_some() || !term.strict) {
            places.entry(place).or_default().push_back((rank, *at));
        }
    }
    let mut chosen = Vec::new();
    while chosen.len() < wanted {
        let heads = places.iter().filter_map(|(place, clusters)| {
            let (rank, _) = clusters.front()?;
            let broken = topology.broken(place, terms)?;
            Some((broken, *rank, place.clone()))
        });
        let Some((_, _, place)) = heads.min() else { break };
        let Some((_, at)) = places.get_mut(&place).and_then(std::collections::VecDeque::pop_front) else {
            break;
        };
        topology.count(&place);
        chosen.push(at);
    }
    chosen
}

/// How many clusters are chosen in each place, by term.
struct Topology {
    values: Vec<HashMap<usize, usize>>,
    chosen: Vec<Vec<i64>>,
}

impl Topology {
    fn new(terms: &[SpreadTerm], hub: &Hub, order: &[usize]) -> Self {
        let mut values = Vec::new();
        let mut chosen = Vec::new();
        for term in terms {
            let mut known: BTreeMap<&str, usize> = BTreeMap::new();
            let mut of_cluster = HashMap::new();
            for at in order {
                let cluster = &hub.clusters()[*at];
                let labels = if term.is_claim { &cluster.claims } else { &cluster.labels };
                if let Some(value) = labels.get(&term.key) {
                    let next = known.len();
                    of_cluster.insert(*at, *known.entry(value).or_insert(next));
                }
            }
            chosen.push(vec![0; known.len()]);
            values.push(of_cluster);
        }
        Self { values, chosen }
    }

    fn place(&self, at: usize) -> Vec<Option<usize>> {
        self.values.iter().map(|of_cluster| of_cluster.get(&at).copied()).collect()
    }

    /// How many terms that only prefer would be broken; none where one that insists would be.
    fn broken(&self, place: &[Option<usize>], terms: &[SpreadTerm]) -> Option<usize> {
        let mut broken = 0;
        for ((value, term), chosen) in place.iter().zip(terms).zip(&self.chosen) {
            let fewest = chosen.iter().min().copied().unwrap_or(0);
            let even =
                value.is_some_and(|value| chosen[value] + 1 - fewest <= i64::from(term.max_skew.max(1)));
            if !even && term.strict {
                return None;
            }
            broken += usize::from(!even);
        }
        Some(broken)
    }

    fn count(&mut self, place: &[Option<usize>]) {
        for (value, chosen) in place.iter().zip(&mut self.chosen) {
            if let Some(value) = value {
                chosen[*value] += 1;
            }
        }
    }
}
