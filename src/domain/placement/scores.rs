//! Prioritizers: what each says of a cluster, and the weighted sum.

use std::sync::Arc;

use jiff::Timestamp;

use super::{
    Problem,
    hub::{Hub, ManagedCluster},
    options::Options,
    selector::label_value_problem,
    spec::{Coordinate, Placement},
};
use fedq_values::quantity::Quantity;

pub const MAX_SCORE: i64 = 100;
pub const MIN_SCORE: i64 = -100;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prioritized {
    /// Clusters that were scored, by name.
    pub clusters: Vec<usize>,
    pub prioritizers: Vec<Scored>,
    /// One for each cluster.
    pub totals: Vec<i64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    pub name: String,
    pub weight: i32,
    /// One for each cluster; none where there is nothing to score.
    pub scores: Vec<Option<i64>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Prioritizer {
    pub kind: Kind,
    pub weight: i32,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Balance,
    Steady,
    AllocatableCpu,
    AllocatableMemory,
    AddOn { resource: Arc<str>, score: Arc<str> },
}

pub struct Scoring<'a> {
    pub placement: &'a Placement,
    pub hub: &'a Hub,
    pub now: Timestamp,
    pub options: &'a Options,
}

impl Kind {
    fn name(&self) -> String {
        match self {
            Self::Balance => "Balance".to_owned(),
            Self::Steady => "Steady".to_owned(),
            Self::AllocatableCpu => "ResourceAllocatableCPU".to_owned(),
            Self::AllocatableMemory => "ResourceAllocatableMemory".to_owned(),
            Self::AddOn { resource, score } => format!("AddOn/{resource}/{score}"),
        }
    }

    fn built_in(name: &str) -> Option<Self> {
        Some(match name {
            "Balance" => Self::Balance,
            "Steady" => Self::Steady,
            "ResourceAllocatableCPU" => Self::AllocatableCpu,
            "ResourceAllocatableMemory" => Self::AllocatableMemory,
            _ => return None,
        })
    }
}

/// The prioritizers that have weight. A built-in that is listed again replaces the one before; scores of
/// add-ons that are listed again count again.
pub fn prioritizers(placement: &Placement) -> Result<Vec<Prioritizer>, Problem> {
    let misconfigured = |message: String| Problem::misconfigured("", message);
    let built_in =
        |name: &str| Coordinate { kind: "BuiltIn".to_owned(), built_in: name.to_owned(), add_on: None };
    let mut weights: Vec<(Coordinate, i32)> = match placement.prioritizer_mode.as_str() {
        "Exact" => Vec::new(),
        "Additive" | "" => vec![(built_in("Balance"), 1), (built_in("Steady"), 1)],
        other => return Err(misconfigured(format!("incorrect prioritizer policy mode: {other}"))),
    };
    for config in &placement.prioritizers {
        let missing = || misconfigured("scoreCoordinate field is required".to_owned());
        let coordinate = config.coordinate.as_ref().ok_or_else(missing)?;
        let same = |(known, _): &&mut (Coordinate, i32)| coordinate.add_on.is_none() && known == coordinate;
        match weights.iter_mut().find(same) {
            Some((_, weight)) => *weight = config.weight,
            None => weights.push((coordinate.clone(), config.weight)),
        }
    }
    let weighted = weights.into_iter().filter(|(_, weight)| *weight != 0);
    weighted.map(|(coordinate, weight)| prioritizer(&coordinate, weight).map_err(misconfigured)).collect()
}

fn prioritizer(coordinate: &Coordinate, weight: i32) -> Result<Prioritizer, String> {
    let kind = if coordinate.kind == "BuiltIn" {
        let name = &coordinate.built_in;
        Kind::built_in(name).ok_or_else(|| format!("incorrect builtin prioritizer: {name}"))?
    } else {
        let add_on = coordinate.add_on.as_ref().ok_or("addOn should not be empty")?;
        Kind::AddOn { resource: add_on.resource.clone(), score: add_on.score.clone() }
    };
    Ok(Prioritizer { kind, weight })
}

/// With a negative weight of Steady, clusters that are chosen lose to those that are not: in OCM such a
/// Placement moves at every evaluation, for ever, unless there is no other cluster to move to.
pub fn settles(
    placement: &Placement,
    prioritizers: &[Prioritizer],
    passed: usize,
    options: &Options,
) -> Result<(), Problem> {
    let flees = prioritizers.iter().any(|one| one.kind == Kind::Steady && one.weight < 0);
    let spreads = options.spread && !placement.spread.is_empty();
    let takes_all = placement
        .number_of_clusters
        .is_none_or(|number| number == 0 || usize::try_from(number).is_ok_and(|number| passed <= number));
    if flees && (spreads || !takes_all) {
        return Err(Problem::misconfigured("", "a negative weight of Steady never settles"));
    }
    Ok(())
}

/// Scores of `clusters`, and what is worth a warning.
pub fn score(
    scoring: &Scoring,
    prioritizers: &[Prioritizer],
    clusters: Vec<usize>,
) -> Result<(Prioritized, Option<String>), Problem> {
    let mut totals = vec![0_i64; clusters.len()];
    let mut scored = Vec::with_capacity(prioritizers.len());
    let mut warning = None;
    for Prioritizer { kind, weight } in prioritizers {
        let (column, expired) = scoring.one(kind, &clusters)?;
        for (total, score) in totals.iter_mut().zip(&column) {
            *total = total.saturating_add(score.unwrap_or(0).saturating_mul(i64::from(*weight)));
        }
        warning = expired.or(warning);
        scored.push(Scored { name: kind.name(), weight: *weight, scores: column });
    }
    Ok((Prioritized { clusters, prioritizers: scored, totals }, warning))
}

/// When a score that counts runs out, where that is asked for.
pub fn again_at(scoring: &Scoring, prioritizers: &[Prioritizer], clusters: &[usize]) -> Option<Timestamp> {
    if !scoring.options.expiring_scores {
        return None;
    }
    let resources = prioritizers.iter().filter_map(|prioritizer| match &prioritizer.kind {
        Kind::AddOn { resource, .. } => Some(resource),
        Kind::Balance | Kind::Steady | Kind::AllocatableCpu | Kind::AllocatableMemory => None,
    });
    let ends = resources.flat_map(|resource| {
        clusters.iter().filter_map(|at| {
            let found = scoring.hub.add_on_scores(scoring.cluster(*at).name.as_str(), resource)?;
            found.valid_until.filter(|until| scoring.now <= *until)
        })
    });
    // A score counts until that moment and not a moment after.
    ends.min().map(|until| until.saturating_add(jiff::SignedDuration::from_nanos(1)).unwrap_or(until))
}

type Column = Vec<Option<i64>>;

impl Scoring<'_> {
    fn cluster(&self, at: usize) -> &ManagedCluster {
        &self.hub.clusters()[at]
    }

    fn one(&self, kind: &Kind, clusters: &[usize]) -> Result<(Column, Option<String>), Problem> {
        Ok(match kind {
            Kind::Balance => (self.balance(clusters), None),
            Kind::Steady => (self.steady(clusters)?, None),
            Kind::AllocatableCpu => (self.allocatable("cpu", clusters), None),
            Kind::AllocatableMemory => (self.allocatable("memory", clusters), None),
            Kind::AddOn { resource, score } => self.add_on(resource, score, clusters),
        })
    }

    /// The fewer decisions of others a cluster is in, the better.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "as OCM computes it")]
    fn balance(&self, clusters: &[usize]) -> Column {
        let (own, max) = self.hub.counts_without(&self.placement.key);
        let score = |at: &usize| {
            let name = self.cluster(*at).name.as_str();
            let count = self.hub.count(name) - own.get(name).copied().unwrap_or(0);
            if count == 0 {
                return Some(MAX_SCORE);
            }
            let usage = count as f64 / max as f64;
            Some(2 * (MAX_SCORE as f64 * (0.5 - usage)) as i64)
        };
        clusters.iter().map(score).collect()
    }

    fn steady(&self, clusters: &[usize]) -> Result<Column, Problem> {
        let name = &self.placement.key.name;
        if let Some(problem) = label_value_problem(name) {
            let message =
                format!("values[0][{}]: Invalid value: {name:?}: {problem}", super::hub::PLACEMENT_LABEL);
            return Err(Problem::Error { message });
        }
        let decided = self.hub.decided(&self.placement.key);
        let score = |at: &usize| Some(if decided.binary_search(at).is_ok() { MAX_SCORE } else { 0 });
        Ok(clusters.iter().map(score).collect())
    }

    #[expect(clippy::cast_possible_truncation, reason = "as OCM computes it")]
    fn allocatable(&self, resource: &str, clusters: &[usize]) -> Column {
        let value = |at: &usize| {
            let cluster = self.cluster(*at);
            cluster.capacity.get(resource)?;
            cluster.allocatable.get(resource).map(|quantity| approximate(*quantity))
        };
        let values: Vec<_> = clusters.iter().map(value).collect();
        let min = values.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
        let score = |value: f64| {
            let range = max - min;
            if range == 0.0 { MAX_SCORE } else { (((value - min) / range - 0.5) * 2.0 * 100.0) as i64 }
        };
        values.into_iter().map(|value| value.map(score)).collect()
    }

    fn add_on(&self, resource: &str, score: &str, clusters: &[usize]) -> (Column, Option<String>) {
        let absent = if self.options.expiring_scores { MIN_SCORE } else { 0 };
        let mut expired = String::new();
        let mut column = Vec::with_capacity(clusters.len());
        for at in clusters {
            let name = &self.cluster(*at).name;
            let found = self.hub.add_on_scores(name.as_str(), resource);
            let valid = found.filter(|found| found.valid_until.is_none_or(|until| self.now <= until));
            if found.is_some() && valid.is_none() {
                expired.extend([" ", name.as_str(), "/", resource]);
            }
            let value =
                valid.and_then(|found| found.scores.iter().rfind(|(known, _)| known.as_ref() == score));
            column.push(Some(value.map_or(absent, |(_, value)| *value)));
        }
        let warning = format!("AddOnPlacementScores{expired} expired");
        (column, (!expired.is_empty()).then_some(warning))
    }
}

/// As Go reads a quantity into a float: thousandths by multiplying, so that ties stay ties.
#[expect(clippy::cast_precision_loss, reason = "it is the approximate value that is compared")]
fn approximate(quantity: Quantity) -> f64 {
    const NANO: i128 = 1_000_000_000;
    const MILLI: i128 = 1_000_000;
    let nanos = quantity.nanos();
    if nanos % NANO == 0 {
        (nanos / NANO) as f64
    } else if nanos % MILLI == 0 {
        (nanos / MILLI) as f64 * 1e-3
    } else {
        nanos as f64 * 1e-9
    }
}
