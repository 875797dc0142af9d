//! Whether a claim may be written: one answer for the webhook, the API, `--dry-run` and the controllers.
//!
//! Nothing here may stand in the way of a repair. Whatever is wrong with the stored claim already is
//! warned of and let through, so that it can be put right one step at a time.

use std::collections::BTreeSet;

use super::{
    ClaimProblem, ClaimText, Draft, Owner, problem,
    problem::{AboveCap, Problem},
    sums,
};
use crate::{
    overview::Overview,
    resources::{Aliases, Resources},
};
use fedq_values::{
    ids::{ClaimName, ClusterName, ResourceName},
    quantity::Amount,
};

/// What is known besides the claim itself.
#[derive(Clone, Debug)]
pub struct ClaimContext {
    /// Whether the answer may tell of the cluster and of others' claims.
    pub tells_of_cluster: bool,
    /// What the cluster has now; nothing while that is unknown.
    pub capacity: Option<Resources>,
    /// What an autoscaler would bring beyond that.
    pub coming: Resources,
    /// Claims that name the same cluster, the one in force first.
    pub claims_of_cluster: Vec<ClaimName>,
    pub aliases: Aliases,
    pub requester: Requester,
}

impl ClaimContext {
    /// What is known now of the cluster that a claim names.
    pub fn new(overview: &Overview, cluster: &str, aliases: &Aliases, requester: Requester) -> Self {
        let known = overview.clusters.get(cluster);
        let in_force = known.and_then(|known| known.claim.clone());
        let others = overview.claims.iter().filter(|(_, claim)| claim.cluster.as_str() == cluster);
        let others = others.map(|(name, _)| name.clone()).filter(|name| in_force.as_ref() != Some(name));
        let claims_of_cluster = in_force.clone().into_iter().chain(others).collect();
        // A cluster nothing has been heard of yet has no resources on record, which is not zero.
        let capacity = known.filter(|known| !known.capacity.is_empty()).map(|known| {
            let foreign = |resource| known.foreign.get(resource).copied().unwrap_or_default();
            let capacity = known.capacity.iter();
            capacity.map(|(name, amount)| (name.clone(), amount.saturating_sub(foreign(name)))).collect()
        });
        let coming = known.map(|known| known.coming.clone()).unwrap_or_default();
        Self {
            tells_of_cluster: true,
            capacity,
            coming,
            claims_of_cluster,
            aliases: aliases.clone(),
            requester,
        }
    }

    /// For whoever may not be told what is known of clusters and of others' claims: that there is another claim for a
    /// cluster is all that such an answer gives away.
    pub fn for_anybody(overview: &Overview, cluster: &str, aliases: &Aliases, requester: Requester) -> Self {
        let known = Self::new(overview, cluster, aliases, requester);
        Self { tells_of_cluster: false, capacity: None, coming: Resources::new(), ..known }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Requester {
    /// fedqd itself, which must never be kept from writing what it found.
    Daemon,
    Person,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    Deny(Vec<ClaimProblem>),
    Allow { warnings: Vec<String> },
}

/// Judges writing `new` over `old`, or creating it.
pub fn review(old: Option<&ClaimText>, new: &ClaimText, context: &ClaimContext) -> Verdict {
    let ours = context.requester == Requester::Daemon;
    if ours || old.is_some_and(|old| touches_nothing_of_people(old, new)) {
        return Verdict::Allow { warnings: Vec::new() };
    }
    let (after, found) = read(new, &context.aliases);
    let (before, known) = match old {
        Some(old) => {
            let (before, known) = read(old, &context.aliases);
            (Some(before), known)
        }
        None => (None, Vec::new()),
    };
    let (known, mut problems) = split_known(found, known);
    let mut warnings: Vec<String> = known.iter().map(ClaimProblem::to_string).collect();
    check_cluster(old, new, context, (&mut problems, &mut warnings));
    check_caps(before.as_ref(), &after, (&mut problems, &mut warnings));
    if !problems.is_empty() {
        return Verdict::Deny(problems);
    }
    warn_above_capacity(&after, context, &mut warnings);
    Verdict::Allow { warnings }
}

fn read(text: &ClaimText, aliases: &Aliases) -> (Draft, Vec<ClaimProblem>) {
    let (draft, mut problems) = Draft::read(text, aliases);
    problem::at(&mut problems, || "metadata.name".to_owned(), ClaimName::new(&text.name));
    (draft, problems)
}

/// Whether only metadata changed, or entries that fedq alone owns.
fn touches_nothing_of_people(old: &ClaimText, new: &ClaimText) -> bool {
    let keys: BTreeSet<&String> = old.nominal.keys().chain(new.nominal.keys()).collect();
    old.cluster == new.cluster
        && old.assignments == new.assignments
        && keys.into_iter().all(|key| match (old.nominal.get(key), new.nominal.get(key)) {
            (before, after) if before == after => true,
            (_, Some(_)) => new.owners.owner(key) == Owner::Followed,
            (_, None) => old.owners.owner(key) == Owner::Followed,
        })
}

/// Splits `found` into what the stored claim suffers from as well and what is new. Positions are
/// not compared: removing one assignment moves those after it.
fn split_known(
    found: Vec<ClaimProblem>,
    mut known: Vec<ClaimProblem>,
) -> (Vec<ClaimProblem>, Vec<ClaimProblem>) {
    found.into_iter().partition(|found| {
        let same = known.iter().position(|known| known.problem == found.problem);
        same.map(|index| known.swap_remove(index)).is_some()
    })
}

type Findings<'a> = (&'a mut Vec<ClaimProblem>, &'a mut Vec<String>);

fn check_cluster(
    old: Option<&ClaimText>,
    new: &ClaimText,
    context: &ClaimContext,
    (problems, warnings): Findings<'_>,
) {
    let field = "spec.clusterName".to_owned();
    if let Some(old) = old.filter(|old| old.cluster != new.cluster) {
        let problem = Problem::ClusterChanged { was: old.cluster.clone(), now: new.cluster.clone() };
        problems.push(ClaimProblem { field, problem });
        return;
    }
    let Ok(cluster) = ClusterName::new(&new.cluster) else { return };
    let other = context.claims_of_cluster.iter().find(|other| other.as_str() != new.name);
    let Some(claim) = other.cloned() else { return };
    if old.is_none() {
        let claim = context.tells_of_cluster.then_some(claim);
        problems.push(ClaimProblem { field, problem: Problem::ClusterAlreadyClaimed { cluster, claim } });
    } else if context.tells_of_cluster {
        warnings.push(format!(
            "cluster `{cluster}` is claimed by `{claim}` too: only the older claim is in force; delete one of them"
        ));
    }
}

fn check_caps(before: Option<&Draft>, after: &Draft, (problems, warnings): Findings<'_>) {
    for (resource, assigned) in sums(&after.assignments) {
        let Some(nominal) = after.nominal.get(&resource) else { continue };
        if nominal.owner == Owner::Followed || assigned <= nominal.amount {
            continue;
        }
        let above = AboveCap { key: nominal.key.clone(), assigned, cap: nominal.amount, resource };
        if before.is_some_and(|before| was_no_better(before, &above)) {
            warnings.push(above.to_string());
        } else {
            let field = "spec.resourceAssignments".to_owned();
            problems.push(ClaimProblem { field, problem: Problem::AboveCap(above) });
        }
    }
}

/// Whether the sum was above its nominal value before and is not raised now.
fn was_no_better(before: &Draft, above: &AboveCap) -> bool {
    let assigned = sums(&before.assignments).get(&above.resource).copied().unwrap_or_default();
    let exceeded = before.nominal.get(&above.resource).is_some_and(|nominal| nominal.amount < assigned);
    exceeded && above.assigned <= assigned
}

fn warn_above_capacity(after: &Draft, context: &ClaimContext, warnings: &mut Vec<String>) {
    for (resource, assigned) in sums(&after.assignments) {
        let nominal = after.nominal.get(&resource);
        let followed = nominal.filter(|nominal| nominal.owner == Owner::Followed);
        let limits = [followed.map(|nominal| nominal.amount), capacity_of(context, &resource)];
        let key = context.aliases.short(&resource);
        let coming = context.coming.get(&resource).copied().unwrap_or_default();
        match limits.into_iter().flatten().min() {
            Some(limit) if limit.saturating_add(coming) < assigned => {
                let (limit, with) = if context.tells_of_cluster && !coming.is_zero() {
                    (limit.saturating_add(coming), ", with what could come")
                } else {
                    (limit, "")
                };
                let over = assigned.saturating_sub(limit).text(&resource);
                let (assigned, limit) = (assigned.text(&resource), limit.text(&resource));
                warnings.push(format!(
                    "{key}: the assignments add up to {assigned}, the cluster has {limit}{with}: \
                     {over} cannot be given until it grows"
                ));
            }
            None if context.tells_of_cluster && nominal.is_none() && !assigned.is_zero() => {
                warnings.push(format!("{key}: it is not known yet whether the cluster has any"));
            }
            Some(_) | None => {}
        }
    }
}

/// A resource missing from a known capacity is one that the cluster does not have.
fn capacity_of(context: &ClaimContext, resource: &ResourceName) -> Option<Amount> {
    let capacity = context.capacity.as_ref()?;
    Some(capacity.get(resource).copied().unwrap_or_default())
}
