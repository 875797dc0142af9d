//! Claims: from what a person typed to what the plan can rely on, or to what is wrong with it.
//!
//! There is one reading of a claim. The webhook, the API, the command line's dry run and the
//! controllers all go through [`validate`] and [`review()`](review::review), so they cannot disagree.

pub mod diff;
pub mod owners;
pub mod problem;
pub mod review;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use self::{
    owners::Owners,
    problem::{ClaimProblem, Problem},
};
use super::resources::{Aliases, Resources};
use fedq_values::{
    ids::{ClaimName, ClusterName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};

/// Field manager under which the daemon writes the capacity it found into `nominalResources`.
pub const CAPACITY_MANAGER: &str = "fedq-capacity";
/// Field manager of edits that people make through the command line and the API.
pub const EDIT_MANAGER: &str = "fedq-edit";

/// The schema's limits, which an API server without our CRD's schema would not have kept.
pub const MAX_NOMINAL: usize = 64;
pub const MAX_ASSIGNMENTS: usize = 128;
pub const MAX_RESOURCES: usize = 16;

/// A claim as it was written, before anything is known about it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClaimText {
    pub name: String,
    pub cluster: String,
    pub nominal: BTreeMap<String, String>,
    pub assignments: Vec<AssignmentText>,
    pub owners: Owners,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct AssignmentText {
    pub queue: String,
    pub flavor: String,
    pub resources: BTreeMap<String, String>,
}

/// A claim that the plan can rely on: made by [`validate`] only.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ValidClaim {
    name: ClaimName,
    cluster: ClusterName,
    nominal: BTreeMap<ResourceName, Nominal>,
    assignments: Vec<Assignment>,
}

/// One entry of `nominalResources`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Nominal {
    pub amount: Amount,
    /// The key as it stands on the claim: `gpu` or `nvidia.com/gpu`.
    pub key: String,
    pub owner: Owner,
}

/// Whose value an entry of `nominalResources` is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Owner {
    /// fedq's alone: it follows capacity and limits nothing.
    Followed,
    /// A person's: assignments stay within it.
    Cap,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Assignment {
    pub queue: QueueName,
    pub flavor: FlavorName,
    pub resources: Resources,
}

impl ValidClaim {
    pub fn name(&self) -> &ClaimName {
        &self.name
    }

    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    pub fn nominal(&self) -> &BTreeMap<ResourceName, Nominal> {
        &self.nominal
    }

    pub fn assignments(&self) -> &[Assignment] {
        &self.assignments
    }

    /// What people limit themselves to, by resource.
    pub fn caps(&self) -> Resources {
        let caps = self.nominal.iter().filter(|(_, nominal)| nominal.owner == Owner::Cap);
        caps.map(|(resource, nominal)| (resource.clone(), nominal.amount)).collect()
    }

    /// Σ over all assignments, by resource.
    pub fn sums(&self) -> Resources {
        sums(&self.assignments)
    }
}

/// The name fedq gives the claim that it creates for a cluster. Any name is accepted.
pub fn default_name(cluster: &ClusterName) -> ClaimName {
    ClaimName::new(&format!("{cluster}-resource-claim"))
        .expect("a cluster name with a suffix is a claim name")
}

pub fn validate(text: &ClaimText, aliases: &Aliases) -> Result<ValidClaim, Vec<ClaimProblem>> {
    let (draft, mut problems) = Draft::read(text, aliases);
    let name = problem::at(&mut problems, || "metadata.name".to_owned(), ClaimName::new(&text.name));
    match (name, draft.cluster) {
        (Some(name), Some(cluster)) if problems.is_empty() => {
            Ok(ValidClaim { name, cluster, nominal: draft.nominal, assignments: draft.assignments })
        }
        _ => Err(problems),
    }
}

/// What can be read of a claim, whatever is wrong with the rest: a claim with a mistake in it must
/// still be comparable with its correction.
#[derive(Debug, Default)]
struct Draft {
    cluster: Option<ClusterName>,
    nominal: BTreeMap<ResourceName, Nominal>,
    assignments: Vec<Assignment>,
}

impl Draft {
    fn read(text: &ClaimText, aliases: &Aliases) -> (Self, Vec<ClaimProblem>) {
        let mut problems = Vec::new();
        let draft = Self {
            cluster: problem::at(
                &mut problems,
                || "spec.clusterName".to_owned(),
                ClusterName::new(&text.cluster),
            ),
            nominal: read_nominal(text, aliases, &mut problems),
            assignments: read_assignments(text, aliases, &mut problems),
        };
        check_sums(&draft.assignments, &mut problems);
        (draft, problems)
    }
}

fn read_nominal(
    text: &ClaimText,
    aliases: &Aliases,
    problems: &mut Vec<ClaimProblem>,
) -> BTreeMap<ResourceName, Nominal> {
    const FIELD: &str = "spec.nominalResources";
    check_count(FIELD, text.nominal.len(), MAX_NOMINAL, problems);
    let mut read: BTreeMap<ResourceName, Nominal> = BTreeMap::new();
    for (key, quantity) in text.nominal.iter().take(MAX_NOMINAL) {
        let field = || field(FIELD, key);
        let Some((resource, amount)) = read_amount(key, quantity, aliases, &field, problems) else {
            continue;
        };
        let nominal = Nominal { amount, key: key.clone(), owner: text.owners.owner(key) };
        let Some(other) = read.get(&resource) else {
            read.insert(resource, nominal);
            continue;
        };
        // Our own entry gives way to a person's; of two that are ours the short name stays.
        let takes_over = match (other.owner, nominal.owner) {
            (Owner::Followed, Owner::Cap) => true,
            (Owner::Cap, Owner::Followed) => false,
            (Owner::Followed, Owner::Followed) => nominal.key == aliases.short(&resource),
            (Owner::Cap, Owner::Cap) => {
                let problem = Problem::SameResource { key: key.clone(), other: other.key.clone() };
                problems.push(ClaimProblem { field: field(), problem });
                false
            }
        };
        if takes_over {
            read.insert(resource, nominal);
        }
    }
    read
}

fn read_assignments(
    text: &ClaimText,
    aliases: &Aliases,
    problems: &mut Vec<ClaimProblem>,
) -> Vec<Assignment> {
    const FIELD: &str = "spec.resourceAssignments";
    check_count(FIELD, text.assignments.len(), MAX_ASSIGNMENTS, problems);
    let mut seen = BTreeSet::new();
    let mut read = Vec::new();
    for (index, assignment) in text.assignments.iter().take(MAX_ASSIGNMENTS).enumerate() {
        let field = format!("{FIELD}[{index}]");
        if !seen.insert((&assignment.queue, &assignment.flavor)) {
            let (queue, flavor) = (assignment.queue.clone(), assignment.flavor.clone());
            let problem = Problem::AssignedTwice { queue, flavor };
            problems.push(ClaimProblem { field: field.clone(), problem });
        }
        let queue =
            problem::at(problems, || format!("{field}.clusterQueueName"), QueueName::new(&assignment.queue));
        let flavor = problem::at(problems, || format!("{field}.flavor"), FlavorName::new(&assignment.flavor));
        let resources =
            read_resources(&format!("{field}.resources"), &assignment.resources, aliases, problems);
        if let (Some(queue), Some(flavor)) = (queue, flavor) {
            read.push(Assignment { queue, flavor, resources });
        }
    }
    read
}

fn read_resources(
    parent: &str,
    text: &BTreeMap<String, String>,
    aliases: &Aliases,
    problems: &mut Vec<ClaimProblem>,
) -> Resources {
    if text.is_empty() {
        problems.push(ClaimProblem { field: parent.to_owned(), problem: Problem::NoResources });
    }
    check_count(parent, text.len(), MAX_RESOURCES, problems);
    let mut keys = BTreeMap::new();
    let mut read = Resources::new();
    for (key, quantity) in text.iter().take(MAX_RESOURCES) {
        let field = || field(parent, key);
        let Some((resource, amount)) = read_amount(key, quantity, aliases, &field, problems) else {
            continue;
        };
        if let Some(other) = keys.insert(resource.clone(), key) {
            let problem = Problem::SameResource { key: key.clone(), other: other.clone() };
            problems.push(ClaimProblem { field: field(), problem });
        } else {
            read.insert(resource, amount);
        }
    }
    read
}

fn read_amount(
    key: &str,
    quantity: &str,
    aliases: &Aliases,
    field: &dyn Fn() -> String,
    problems: &mut Vec<ClaimProblem>,
) -> Option<(ResourceName, Amount)> {
    let resource = problem::at(problems, field, aliases.resolve(key))?;
    match Amount::exact(quantity, &resource) {
        Ok(amount) => Some((resource, amount)),
        Err(reason) => {
            let problem = Problem::Quantity { resource: key.to_owned(), reason };
            problems.push(ClaimProblem { field: field(), problem });
            None
        }
    }
}

fn check_count(field: &str, found: usize, most: usize, problems: &mut Vec<ClaimProblem>) {
    if most < found {
        problems.push(ClaimProblem { field: field.to_owned(), problem: Problem::TooMany { most, found } });
    }
}

fn check_sums(assignments: &[Assignment], problems: &mut Vec<ClaimProblem>) {
    for resource in sums(assignments).keys() {
        let units = assignments.iter().filter_map(|assignment| assignment.resources.get(resource));
        let sum: i128 = units.map(|amount| i128::from(amount.units())).sum();
        if i64::try_from(sum).is_err() {
            let problem = Problem::SumTooLarge { resource: resource.clone() };
            problems.push(ClaimProblem { field: "spec.resourceAssignments".to_owned(), problem });
        }
    }
}

fn sums(assignments: &[Assignment]) -> Resources {
    let mut sums = Resources::new();
    for (resource, amount) in assignments.iter().flat_map(|assignment| &assignment.resources) {
        let sum = sums.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
    sums
}

/// Path of a map entry as Kubernetes writes it: a key with dots or slashes stands in brackets.
fn field(parent: &str, key: &str) -> String {
    let key: String = key.chars().take(80).collect();
    if key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) && !key.is_empty() {
        format!("{parent}.{key}")
    } else {
        format!("{parent}[{key}]")
    }
}

#[cfg(test)]
mod tests;
