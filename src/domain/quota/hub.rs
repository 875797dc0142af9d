//! Hub queues: what of them concerns the clusters, and what is to be written to them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    Dispatch, HubCellPlan, HubQueueInput, HubQueuePlan, ManagedCell, QuotaPlace, Untouched,
    model::{HubFacts, Verdict},
};
use crate::{
    capacity::MAX_QUOTA,
    resource_groups::{Quota, ResourceGroup, ResourceGroups, ResourceQuota, Rule, Written},
    resources::FlavorResource,
};
use fedq_values::{
    ids::{ClusterName, CohortName, FlavorName, ResourceName},
    quantity::Amount,
};

/// What clusters must know of a hub queue. As long as it stays equal, no cluster is planned again.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct QueueFacts {
    pub exists: bool,
    pub automated: bool,
    pub cohort: Option<CohortName>,
    /// `None` without a queue.
    pub dispatch: Option<Dispatch>,
    /// Named cells of flavors that the hub does not have.
    pub unknown: BTreeSet<FlavorResource>,
    pub forbidden: BTreeMap<FlavorResource, Rule>,
    /// What each of the queue's groups covers, with which flavors.
    pub shape: Vec<(Vec<ResourceName>, Vec<FlavorName>)>,
    pub limits: BTreeMap<FlavorResource, Limits>,
}

/// The limits a person put on a hub cell, which its workers share.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Limits {
    pub lending: Option<i64>,
    pub borrowing: Option<i64>,
}

impl QueueFacts {
    /// The facts, and the queue's groups with every named cell that may be added.
    pub fn of(
        input: Option<&HubQueueInput>,
        flavors: Option<&BTreeSet<FlavorName>>,
        named: impl Iterator<Item = FlavorResource>,
    ) -> (Self, ResourceGroups) {
        let Some(input) = input else { return (Self::default(), ResourceGroups::default()) };
        let mut groups = input.groups.clone();
        let (known, unknown): (BTreeSet<_>, BTreeSet<_>) =
            named.partition(|cell| flavors.is_none_or(|flavors| flavors.contains(&cell.flavor)));
        let forbidden = match &input.quota_place {
            QuotaPlace::Queue => groups.extend_all(known.into_iter()),
            QuotaPlace::Cohort { .. } => not_covered(&groups, known),
        };
        let flavors =
            |group: &ResourceGroup| group.flavors.iter().map(|flavor| flavor.name.clone()).collect();
        let has_cohort = input.cohort.is_some();
        let limited = groups.cells().filter(|_| has_cohort).filter_map(|(flavor, quota)| {
            let at = FlavorResource { flavor: flavor.clone(), resource: quota.name.clone() };
            let limits = Limits {
                lending: kept_lending(input.managed.get(&at), quota).map(Amount::units),
                borrowing: quota.borrowing.as_ref().map(|limit| limit.amount().units()),
            };
            (limits != Limits::default()).then_some((at, limits))
        });
        let facts = Self {
            exists: true,
            automated: input.automated,
            cohort: input.cohort.clone(),
            dispatch: Some(input.dispatch.clone()),
            unknown,
            forbidden,
            shape: groups.0.iter().map(|group| (group.covered.clone(), flavors(group))).collect(),
            limits: limited.collect(),
        };
        (facts, groups)
    }

    pub fn for_cluster(&self, at: &FlavorResource, cluster: &ClusterName) -> HubFacts<'_> {
        let verdict = if !self.exists {
            Verdict::MissingQueue
        } else if self.unknown.contains(at) {
            Verdict::MissingFlavor
        } else if self.forbidden.contains_key(at) {
            Verdict::Forbidden
        } else {
            Verdict::Possible
        };
        HubFacts {
            verdict,
            automated: self.automated,
            dispatched: self.dispatch.as_ref().is_some_and(|dispatch| dispatch.reaches(cluster)),
            runs_locally: self.dispatch == Some(Dispatch::RunsLocally),
            cohort: self.cohort.as_ref(),
        }
    }
}

/// Cells that the queue lacks and that are not fedq's to add.
fn not_covered(groups: &ResourceGroups, named: BTreeSet<FlavorResource>) -> BTreeMap<FlavorResource, Rule> {
    let missing = named.into_iter().filter(|at| groups.cell(at).is_none());
    missing.map(|at| (at.clone(), Rule::NotCovered { flavor: at.flavor, resource: at.resource })).collect()
}

/// The lendingLimit a person wants: what stands in the queue, unless fedq put it there for the one it
/// keeps.
fn kept_lending(managed: Option<&ManagedCell>, quota: &ResourceQuota) -> Option<Amount> {
    let seen = quota.lending.as_ref().map(Written::amount);
    match managed {
        Some(managed) if managed.written_lending == seen => managed.kept_lending,
        _ => seen,
    }
}

/// What clusters add to one hub cell.
#[derive(Debug, Default)]
pub(super) struct CellTerms {
    /// Whether a claim names the cell now.
    pub named: bool,
    pub sum: i128,
    /// The part of it that does not lag: what clusters say now, or what was last known of those that are not
    /// about to answer.
    pub sure: i128,
    pub terms: BTreeMap<ClusterName, Amount>,
    /// A cluster that may have a share of it does not say how much.
    pub held: bool,
}

/// `groups` are those of [`QueueFacts::of`]. `held`: so are the cells that no cluster has.
pub(super) fn plan(
    input: &HubQueueInput,
    groups: &ResourceGroups,
    mut by_cell: BTreeMap<FlavorResource, CellTerms>,
    held: bool,
) -> HubQueuePlan {
    let invalid = || {
        let mut groups = Cow::Borrowed(&input.groups);
        if input.quota_place != QuotaPlace::Queue {
            // Kueue lets a Cohort lend more than it has; what is written is cut to that.
            groups.to_mut().cut_lending();
        }
        groups.validate(input.cohort.is_some()).err().map(Untouched::Invalid)
    };
    let untouched = match &input.quota_place {
        _ if input.automated => Some(Untouched::Automated),
        QuotaPlace::Cohort { problem: Some(problem) } => Some(Untouched::Cohort(problem.clone())),
        QuotaPlace::Cohort { problem: None } | QuotaPlace::Queue => invalid(),
    };
    for at in input.managed.keys() {
        by_cell.entry(at.clone()).or_insert_with(|| CellTerms { held, ..CellTerms::default() });
    }
    let mut cells = BTreeMap::new();
    let mut managed = BTreeMap::new();
    let mut quotas = BTreeMap::new();
    for (at, terms) in by_cell {
        let was_managed = input.managed.get(&at);
        let Some(quota) = groups.cell(&at).filter(|_| terms.named || was_managed.is_some()) else { continue };
        let observed = input.groups.cell(&at).map(|quota| quota.nominal.amount());
        let still_held = input.still_held.get(&at).copied().unwrap_or_default();
        let seen = observed.unwrap_or_default();
        let least = if terms.held { seen } else { still_held.min(seen) };
        let unread = input.unread.get(&at).copied().unwrap_or_default();
        let most = terms.sure.saturating_add(unread.units().into());
        let (mut cell, kept, quota) = plan_cell(quota, was_managed, terms, least, most);
        cell.observed = observed;
        managed.insert(at.clone(), kept);
        quotas.insert(at.clone(), quota);
        cells.insert(at, cell);
    }
    let (groups, managed) = if untouched.is_some() {
        (input.groups.clone(), input.managed.clone())
    } else {
        let mut groups = groups.clone();
        groups.set_cells(&quotas);
        (groups, managed)
    };
    HubQueuePlan { untouched, groups, cells, managed }
}

fn plan_cell(
    quota: &ResourceQuota,
    managed: Option<&ManagedCell>,
    terms: CellTerms,
    least: Amount,
    most: i128,
) -> (HubCellPlan, ManagedCell, Quota) {
    let seen = quota.nominal.amount();
    let base = managed.map_or(seen, |managed| managed.base);
    let sum = total(base, terms.sum);
    let held = sum < least;
    // What may lag may be more than a cluster has by now, as well as less: it raises nothing that is not there.
    let target = sum.min(total(base, most)).max(least);
    let kept = kept_lending(managed, quota);
    let lending = kept.map(|kept| kept.min(target));
    let cell = HubCellPlan { base, terms: terms.terms, target, observed: Some(seen), lending, held };
    let managed = ManagedCell { base, kept_lending: kept, written_lending: lending };
    let borrowing = quota.borrowing.as_ref().map(Written::amount);
    (cell, managed, Quota { nominal: target, borrowing, lending })
}

/// Below what Kueue takes for unlimited, unless the base is that already.
fn total(base: Amount, terms: i128) -> Amount {
    let sum = i128::from(base.units()).saturating_add(terms.max(0));
    let most = MAX_QUOTA.max(base);
    i64::try_from(sum).map_or(most, |units| Amount::new(units).min(most))
}
