//! Which clusters a Placement chooses, as OCM's placement controller (v1.2) decides it: candidates of
//! the bound sets, filtered by predicates and taints, scored, the best taken, in groups.
//!
//! [`evaluate`] is pure: the hub as it is and the time in, decisions with their reasons out. Where it
//! differs from OCM on purpose, the place says so; what OCM does not have is behind annotations
//! ([`options`]). `tests/scenarios/placement` holds OCM's own cases.

use jiff::Timestamp;

pub mod board;
pub mod candidates;
pub mod changes;
pub mod conditions;
pub mod explain;
pub mod groups;
pub mod hub;
pub mod options;
pub mod predicates;
pub mod round;
pub mod scores;
pub mod select;
pub mod selector;
pub mod spec;
pub mod spread;
pub mod taints;
pub mod usage;
mod uses;
pub mod view;

#[cfg(test)]
mod properties;

use candidates::Candidates;
use conditions::{Conditions, Verdict};
use groups::Groups;
use hub::Hub;
use scores::Prioritized;
use spec::Placement;

use fedq_values::ids::ClusterName;

/// What a Placement comes to. Numbers of clusters are positions in [`Hub::clusters`].
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    pub candidates: Candidates,
    /// After predicates, and after taints; missing where a filter did not come to run.
    pub filtered: Vec<Filtered>,
    pub prioritized: Prioritized,
    /// The chosen, best first.
    pub chosen: Vec<usize>,
    /// How many of `numberOfClusters` were not found.
    pub unscheduled: i64,
    pub groups: Groups,
    pub conditions: Conditions,
    /// Not an error, but worth telling: scores that ran out.
    pub warning: Option<String>,
    /// When the answer may differ with nothing else changed.
    pub again_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Filtered {
    pub filter: &'static str,
    pub passed: Vec<usize>,
}

pub const PREDICATE: &str = "Predicate";
pub const TAINT_TOLERATION: &str = "TaintToleration";

/// Why a Placement has no decisions of its own.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Problem {
    /// The Placement says something that cannot be; `plugin` is empty where none noticed it.
    Misconfigured { plugin: String, message: String },
    /// Something else is wrong, such as a ManagedClusterSet.
    Error { message: String },
}

impl Problem {
    fn misconfigured(plugin: &str, message: impl Into<String>) -> Self {
        Self::Misconfigured { plugin: plugin.to_owned(), message: message.into() }
    }
}

/// Who decides the Placement's clusters: never two at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Writer {
    Fedq,
    /// OCM's own placement controller runs on the hub, and the Placement does not send it away.
    Ocm,
    /// Somebody whom fedq does not see at work made the Placement's decisions.
    Other,
}

/// `decided_elsewhere`: decisions exist that fedq did not make.
pub fn writer(placement: &Placement, ocm_runs: bool, decided_elsewhere: bool) -> Writer {
    if placement.is_disabled() {
        Writer::Fedq
    } else if ocm_runs {
        Writer::Ocm
    } else if decided_elsewhere {
        Writer::Other
    } else {
        Writer::Fedq
    }
}

impl Evaluation {
    pub fn decisions<'a>(&'a self, hub: &'a Hub) -> impl Iterator<Item = &'a ClusterName> {
        self.chosen.iter().map(|at| &hub.clusters()[*at].name)
    }
}

pub fn evaluate(placement: &Placement, hub: &Hub, now: Timestamp) -> Evaluation {
    let candidates = candidates::candidates(placement, hub);
    let mut stages = Stages::default();
    let problem = match &candidates.problem {
        Some(problem) => Some(problem.clone()),
        None => stages.schedule(placement, hub, &candidates.clusters, now).err(),
    };
    if problem.is_some() {
        stages.chosen = Vec::new();
        stages.unscheduled = 0;
    }
    let groups = groups::divide(placement, hub, &stages.chosen);
    let problem = groups.problem.clone().or(problem);
    let conditions = conditions::conditions(&Verdict {
        placement,
        candidates: &candidates,
        chosen: stages.chosen.len(),
        unscheduled: stages.unscheduled,
        problem: problem.as_ref(),
        unreadable: unreadable(hub, &candidates),
    });
    Evaluation {
        candidates,
        filtered: stages.filtered,
        prioritized: stages.prioritized,
        chosen: stages.chosen,
        unscheduled: stages.unscheduled,
        groups,
        conditions,
        warning: stages.warning,
        again_at: stages.again_at,
    }
}

/// What cannot be read of clusters that may be chosen.
fn unreadable(hub: &Hub, candidates: &Candidates) -> Vec<String> {
    let clusters = candidates.clusters.iter().map(|at| &hub.clusters()[*at]);
    let of = |cluster: &std::sync::Arc<hub::ManagedCluster>| {
        (!cluster.unreadable.is_empty())
            .then(|| format!("{}: {}", cluster.name, cluster.unreadable.join(", ")))
    };
    clusters.filter_map(of).collect()
}

/// What the stages before a problem found out stays, to be shown.
#[derive(Default)]
struct Stages {
    filtered: Vec<Filtered>,
    prioritized: Prioritized,
    chosen: Vec<usize>,
    unscheduled: i64,
    warning: Option<String>,
    again_at: Option<Timestamp>,
}

impl Stages {
    fn schedule(
        &mut self,
        placement: &Placement,
        hub: &Hub,
        candidates: &[usize],
        now: Timestamp,
    ) -> Result<(), Problem> {
        let options = options::read(&placement.annotations)?;
        let decided = hub.decided(&placement.key);
        let passed = predicates::filter(placement, hub, candidates)?;
        self.filtered.push(Filtered { filter: PREDICATE, passed: passed.clone() });
        let passed = taints::filter(placement, hub, &passed, now)?;
        self.filtered.push(Filtered { filter: TAINT_TOLERATION, passed: passed.clone() });

        let prioritizers = scores::prioritizers(placement)?;
        scores::settles(placement, &prioritizers, passed.len(), &options)?;
        let scoring = scores::Scoring { placement, hub, now, options: &options };
        let (prioritized, warning) = scores::score(&scoring, &prioritizers, passed)?;
        self.warning = warning;
        let (chosen, unscheduled) = select::select(placement, hub, &prioritized, &options)?;
        self.again_at = [
            taints::again_at(placement, hub, decided, now),
            scores::again_at(&scoring, &prioritizers, &prioritized.clusters),
        ]
        .into_iter()
        .flatten()
        .min();
        self.prioritized = prioritized;
        self.chosen = chosen;
        self.unscheduled = unscheduled;
        Ok(())
    }
}
