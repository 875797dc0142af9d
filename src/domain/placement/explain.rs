//! Why a cluster is chosen or is not, for people.

use super::{Evaluation, candidates, hub::Hub};
use fedq_values::ids::ClusterName;

#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    pub prioritizers: Vec<Weighted>,
    /// Every cluster of the hub, the chosen first in their order, then by total, then by name.
    pub clusters: Vec<ClusterExplanation>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Weighted {
    pub name: String,
    pub weight: i32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ClusterExplanation {
    pub cluster: ClusterName,
    pub outcome: Outcome,
    /// One for each prioritizer, in their order; empty where the cluster was not scored.
    pub scores: Vec<Option<i64>>,
    pub total: Option<i64>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// `rank` counts from 1.
    Chosen {
        rank: usize,
        group: usize,
        group_name: String,
    },
    /// It passed every filter, and others are better.
    NotAmongTheBest,
    /// Named by the filter that dropped it.
    Filtered {
        by: &'static str,
    },
    /// In none of the sets that are bound and asked for.
    NotInSets,
    BeingDeleted,
    /// The evaluation ended before it came to this cluster: the conditions say why.
    NotReached,
}

pub fn explain(hub: &Hub, evaluation: &Evaluation) -> Explanation {
    let weighted = evaluation.prioritized.prioritizers.iter();
    let prioritizers = weighted.map(|scored| Weighted { name: scored.name.clone(), weight: scored.weight });
    let prioritizers: Vec<_> = prioritizers.collect();
    let ends = evaluation.prioritized.prioritizers.is_empty() && evaluation.prioritized.clusters.is_empty();
    let mut clusters: Vec<_> = (0..hub.clusters().len())
        .map(|at| {
            let row = evaluation.prioritized.clusters.binary_search(&at).ok();
            let scores = row.map_or(Vec::new(), |row| {
                evaluation.prioritized.prioritizers.iter().map(|scored| scored.scores[row]).collect()
            });
            ClusterExplanation {
                cluster: hub.clusters()[at].name.clone(),
                outcome: outcome(hub, evaluation, at, ends),
                scores,
                total: row.map(|row| evaluation.prioritized.totals[row]),
            }
        })
        .collect();
    clusters.sort_by(|a, b| a.order().cmp(&b.order()));
    Explanation { prioritizers, clusters }
}

impl ClusterExplanation {
    fn order(&self) -> (usize, std::cmp::Reverse<Option<i64>>, &ClusterName) {
        let rank = match self.outcome {
            Outcome::Chosen { rank, .. } => rank,
            Outcome::NotAmongTheBest
            | Outcome::Filtered { .. }
            | Outcome::NotInSets
            | Outcome::BeingDeleted
            | Outcome::NotReached => usize::MAX,
        };
        (rank, std::cmp::Reverse(self.total), &self.cluster)
    }
}

fn outcome(hub: &Hub, evaluation: &Evaluation, at: usize, ends: bool) -> Outcome {
    if let Some(place) = evaluation.chosen.iter().position(|chosen| *chosen == at) {
        let group = evaluation.groups.of(at).unwrap_or(0);
        let group_name =
            evaluation.groups.groups.get(group).map_or(String::new(), |group| group.name.clone());
        return Outcome::Chosen { rank: place + 1, group, group_name };
    }
    if evaluation.candidates.problem.is_some() {
        return Outcome::NotReached;
    }
    if evaluation.candidates.clusters.binary_search(&at).is_err() {
        let sets = &evaluation.candidates.sets;
        let deleting = hub.clusters()[at].deleting && candidates::is_member(at, sets, hub);
        return if deleting { Outcome::BeingDeleted } else { Outcome::NotInSets };
    }
    for filtered in &evaluation.filtered {
        if filtered.passed.binary_search(&at).is_err() {
            return Outcome::Filtered { by: filtered.filter };
        }
    }
    if ends { Outcome::NotReached } else { Outcome::NotAmongTheBest }
}
