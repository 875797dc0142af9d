//! From the decisions of Placements to what MultiKueue is configured with: which MultiKueueConfigs and
//! MultiKueueClusters there should be, and what each AdmissionCheck says of it.
//!
//! Kueue evicts a job at once whose cluster leaves the config, so a cluster that is no longer decided on
//! stays, last, while work runs there; and where decisions are gone altogether, the config that was good
//! stays while work runs. Objects that are not fedq's are neither changed nor deleted.

use std::collections::{BTreeMap, BTreeSet};

use super::placement::spec::PlacementKey;
use fedq_values::ids::ClusterName;

mod condition;
pub mod dispatch;
mod names;
#[cfg(test)]
mod tests;

use condition::Outcome;
pub use condition::{Active, Reason};
use names::Leads;
pub use names::{Naming, cluster_name};

/// The API takes so many clusters in one MultiKueueConfig.
pub const MAX_CLUSTERS: usize = 20;
const MAX_NAME: usize = 253;
/// What the parameters of an AdmissionCheck of ours name.
pub const GROUP: &str = "cluster.open-cluster-management.io";
pub const KIND: &str = "Placement";
pub const CONTROLLER: &str = "open-cluster-management.io/placement";

/// An AdmissionCheck whose `controllerName` is [`CONTROLLER`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Check {
    pub name: String,
    pub generation: i64,
    pub parameters: Option<Parameters>,
    pub deleting: bool,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Parameters {
    pub group: String,
    pub kind: String,
    pub name: String,
}

/// A Placement in Kueue's namespace, with what was decided, best first.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Decided {
    pub clusters: Vec<ClusterName>,
    /// Decided on under names that no joined cluster can have.
    pub unnameable: Vec<String>,
    /// Why the Placement cannot be evaluated.
    pub misconfigured: Option<String>,
}

/// How Kueue reaches a cluster.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Source {
    /// A Secret in Kueue's namespace with a kubeconfig.
    Secret(String),
    ClusterProfile(String),
}

/// A MultiKueueCluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Link {
    pub source: Source,
    /// The joined cluster that it leads to, as far as it says so.
    pub cluster: Option<ClusterName>,
}

/// A MultiKueueConfig, and a MultiKueueCluster that it names.
pub type Use = (String, String);

/// Something that exists under a name fedq would use.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Existing<T> {
    Ours(T),
    /// A person hands it over: it is ours from the first time that there is something to write to it.
    Offered(T),
    Foreign,
}

impl<T> Existing<T> {
    /// What may be deleted.
    pub fn ours(&self) -> Option<&T> {
        match self {
            Self::Ours(found) => Some(found),
            Self::Offered(_) | Self::Foreign => None,
        }
    }

    /// What may be written.
    pub fn usable(&self) -> Option<&T> {
        match self {
            Self::Ours(found) | Self::Offered(found) => Some(found),
            Self::Foreign => None,
        }
    }
}

pub struct Input<'a> {
    pub checks: &'a [Check],
    /// By name; all in Kueue's namespace.
    pub placements: &'a BTreeMap<String, Decided>,
    pub naming: Naming,
    pub sources: &'a BTreeMap<ClusterName, Source>,
    /// Why a joined cluster has none yet.
    pub unready: &'a BTreeMap<ClusterName, String>,
    pub configs: &'a BTreeMap<String, Existing<Vec<String>>>,
    pub clusters: &'a BTreeMap<String, Existing<Link>>,
    /// Where Workloads run (`status.clusterName`), and by which config: placements may share a cluster.
    pub running: &'a BTreeSet<Use>,
    /// Why a config cannot be written.
    pub failed: &'a BTreeMap<String, String>,
    /// Why a MultiKueueCluster cannot be.
    pub unwritten: &'a BTreeMap<String, String>,
}

impl<'a> Input<'a> {
    /// The cluster that a MultiKueueCluster of ours leads to now.
    fn leads(&self, name: &str) -> Option<&'a ClusterName> {
        self.clusters.get(name)?.usable()?.cluster.as_ref()
    }

    fn is_foreign(&self, cluster: &str) -> bool {
        matches!(self.clusters.get(cluster), Some(Existing::Foreign))
    }

    fn runs(&self, config: &str, cluster: &str) -> bool {
        self.running.contains(&(config.to_owned(), cluster.to_owned()))
    }
}

/// What there should be. What exists, is ours and is not named here is to be deleted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Names of MultiKueueClusters by MultiKueueConfig, in order of preference.
    pub configs: BTreeMap<String, Vec<String>>,
    pub clusters: BTreeMap<String, Source>,
    pub checks: BTreeMap<String, Active>,
    /// What is in a config only because work is there: for nothing new.
    pub draining: BTreeSet<Use>,
}

impl Plan {
    /// Configs of ours that no check stands behind any more, before the clusters they name.
    pub fn configs_to_delete<'a>(
        &'a self,
        configs: &'a BTreeMap<String, Existing<Vec<String>>>,
    ) -> impl Iterator<Item = &'a str> {
        let ours = configs.iter().filter(|(_, found)| found.ours().is_some());
        ours.map(|(name, _)| name.as_str()).filter(|name| !self.configs.contains_key(*name))
    }

    /// Once no config names them any more.
    pub fn clusters_to_delete<'a>(
        &'a self,
        clusters: &'a BTreeMap<String, Existing<Link>>,
    ) -> impl Iterator<Item = &'a str> {
        let ours = clusters.iter().filter(|(_, found)| found.ours().is_some());
        ours.map(|(name, _)| name.as_str()).filter(|name| !self.clusters.contains_key(*name))
    }
}

/// Of each Placement that some check names, the clusters for new work: the best that a config takes.
pub fn preferred(input: &Input) -> BTreeSet<Use> {
    let live = input.checks.iter().filter(|check| !check.deleting);
    let placements: BTreeSet<&str> = live.filter_map(|check| check.placement().ok()).collect();
    let leads = Leads::new(input, placements.iter().copied());
    let mut preferred = BTreeSet::new();
    for placement in placements {
        let Some(decided) = input.placements.get(placement) else { continue };
        let usable = usable(placement, decided, input, &leads, &mut Outcome::default());
        let best = usable.unwrap_or_default().into_iter().take(MAX_CLUSTERS);
        preferred.extend(best.map(|name| (placement.to_owned(), name)));
    }
    preferred
}

pub fn plan(input: &Input) -> Plan {
    let mut plan = Plan::default();
    let mut by_placement: BTreeMap<&str, Vec<&Check>> = BTreeMap::new();
    for check in input.checks.iter().filter(|check| !check.deleting) {
        match check.placement() {
            Ok(placement) => by_placement.entry(placement).or_default().push(check),
            Err(message) => {
                let active = Active::no(Reason::PlacementError, message, check.generation);
                plan.checks.insert(check.name.clone(), active);
            }
        }
    }
    let leads = Leads::new(input, by_placement.keys().copied());
    for (placement, checks) in &by_placement {
        let (config, outcome) = config(placement, input, &leads);
        plan.draining.extend(outcome.draining.iter().map(|name| ((*placement).to_owned(), name.clone())));
        for check in checks {
            plan.checks.insert(check.name.clone(), outcome.active(placement, check.generation));
        }
        if let Some(config) = config {
            plan.configs.insert((*placement).to_owned(), config);
        }
    }
    keep_running(input, &mut plan);
    let unwritten =
        input.unwritten.keys().filter(|name| leads.get(name).is_some() && !input.is_foreign(name));
    let named: BTreeSet<&String> = plan.configs.values().flatten().chain(unwritten).collect();
    for name in named {
        if let Some(source) = leads.source(name, input) {
            plan.clusters.insert(name.clone(), source.clone());
        }
    }
    plan
}

impl Check {
    /// The Placement that the parameters name.
    fn placement(&self) -> Result<&str, String> {
        let Some(parameters) = &self.parameters else {
            return Err(format!("spec.parameters is missing: it must name a {KIND} of {GROUP}"));
        };
        if parameters.group != GROUP || parameters.kind != KIND {
            let Parameters { group, kind, .. } = parameters;
            return Err(format!(
                "spec.parameters names a {kind} of {group}: it must name a {KIND} of {GROUP}"
            ));
        }
        Ok(&parameters.name)
    }
}

/// Where the Placement of that name is looked for.
pub fn placement_key(kueue_namespace: &str, name: &str) -> PlacementKey {
    PlacementKey { namespace: kueue_namespace.into(), name: name.into() }
}

fn config(placement: &str, input: &Input, leads: &Leads) -> (Option<Vec<String>>, Outcome) {
    let existing = match input.configs.get(placement).map(Existing::usable) {
        Some(None) => {
            let message = format!("a MultiKueueConfig {placement} exists that is not fedq's");
            return (None, Outcome::failed(Reason::MultiKueueConfigError, message));
        }
        Some(Some(clusters)) => clusters.as_slice(),
        None => &[],
    };
    let last_good = || {
        let used = existing.iter().any(|name| input.runs(placement, name));
        used.then(|| existing.to_vec())
    };
    let Some(decided) = input.placements.get(placement) else {
        let message = format!("Placement {placement} is not in Kueue's namespace");
        return (last_good(), Outcome::failed(Reason::PlacementNotFound, message));
    };
    if let Some(problem) = &decided.misconfigured {
        let message = format!("Placement {placement} is misconfigured: {problem}");
        return (last_good(), Outcome::failed(Reason::PlacementError, message));
    }
    let mut outcome = Outcome::default();
    let wanted = match usable(placement, decided, input, leads, &mut outcome) {
        Ok(wanted) => wanted,
        Err(message) => return (last_good(), Outcome::failed(Reason::MultiKueueConfigError, message)),
    };
    if wanted.is_empty() {
        let mut message = format!("Placement {placement} decided on no cluster");
        if !decided.clusters.is_empty() || !decided.unnameable.is_empty() {
            message = format!("none of the clusters can be used: {}", outcome.unusable());
        }
        return (last_good(), Outcome::failed(Reason::NoClustersAvailable, message));
    }
    let runs = |name: &str| input.runs(placement, name);
    let config = cap(wanted, existing, runs, &mut outcome);
    if let Some(failure) = input.failed.get(placement) {
        outcome.problem = Some((Reason::MultiKueueConfigError, failure.clone()));
    }
    (Some(config), outcome)
}

/// The decided clusters that Kueue can be told to use, best first.
fn usable(
    placement: &str,
    decided: &Decided,
    input: &Input,
    leads: &Leads,
    outcome: &mut Outcome,
) -> Result<Vec<String>, String> {
    outcome.not_joined.extend(decided.unnameable.iter().cloned());
    let mut wanted: Vec<String> = Vec::new();
    for cluster in &decided.clusters {
        let name = cluster_name(input.naming, placement, cluster);
        if MAX_NAME < name.len() {
            return Err(format!(
                "{name} has more than {MAX_NAME} characters, which no MultiKueueCluster may"
            ));
        }
        if !input.sources.contains_key(cluster) {
            match input.unready.get(cluster) {
                Some(why) => outcome.unready.push(format!("{cluster} ({why})")),
                None => outcome.not_joined.push(cluster.to_string()),
            }
        } else if input.is_foreign(&name) {
            outcome.conflicts.push(name);
        } else if let Some(other) = leads.get(&name).filter(|other| *other != cluster) {
            outcome.ambiguous.push(format!("{cluster} ({name} leads to {other})"));
        } else if let Some(why) = input.unwritten.get(&name).filter(|_| !input.clusters.contains_key(&name)) {
            // Written as soon as it can be, and then one of them.
            outcome.unwritten.push(why.clone());
        } else if !wanted.contains(&name) {
            wanted.push(name);
        }
    }
    Ok(wanted)
}

/// The best [`MAX_CLUSTERS`], but first the ones where work runs: leaving one out evicts its jobs.
fn cap(
    mut wanted: Vec<String>,
    existing: &[String],
    runs: impl Fn(&str) -> bool,
    outcome: &mut Outcome,
) -> Vec<String> {
    let left = existing.iter().filter(|name| !wanted.contains(name) && runs(name));
    let left: Vec<String> = left.cloned().collect();
    let beyond = wanted.split_off(MAX_CLUSTERS.min(wanted.len()));
    let (mut draining, beyond): (Vec<String>, Vec<String>) = beyond.into_iter().partition(|name| runs(name));
    draining.extend(left);
    let held = draining.len() + wanted.iter().filter(|name| runs(name)).count();
    let mut free = MAX_CLUSTERS.saturating_sub(held);
    let mut config = Vec::new();
    for name in wanted {
        if runs(&name) {
            config.push(name);
        } else if 0 < free {
            free -= 1;
            config.push(name);
        } else {
            outcome.overflow.push(name);
        }
    }
    outcome.overflow.extend(beyond);
    config.extend(draining.iter().cloned());
    outcome.draining = draining;
    if MAX_CLUSTERS < config.len() {
        outcome.overflow.extend(config.split_off(MAX_CLUSTERS));
    }
    config
}

/// A config of ours that no check asks for stays while work runs on its clusters.
fn keep_running(input: &Input, plan: &mut Plan) {
    for (name, found) in input.configs {
        let Some(clusters) = found.ours() else { continue };
        let runs: Vec<_> = clusters.iter().filter(|cluster| input.runs(name, cluster)).cloned().collect();
        if !runs.is_empty() {
            plan.configs.entry(name.clone()).or_insert(runs);
        }
    }
}

/// Whether the state of our check in a Workload is to be set Ready: without it Kueue dispatches nothing,
/// and it goes back to Pending at every eviction.
pub fn wants_ready(state: CheckState, reserves_quota: bool, usable: bool) -> bool {
    usable && reserves_quota && state == CheckState::Pending
}

impl CheckState {
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "Pending" => Some(Self::Pending),
            "Ready" => Some(Self::Ready),
            "Retry" => Some(Self::Retry),
            "Rejected" => Some(Self::Rejected),
            _ => None,
        }
    }
}

/// `status.admissionChecks[].state` of a Workload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CheckState {
    Pending,
    Ready,
    Retry,
    Rejected,
}
