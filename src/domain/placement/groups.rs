//! Decision groups, and the PlacementDecisions that carry them: a hundred clusters each, by name.

use super::{
    Problem,
    hub::Hub,
    predicates::Compiled,
    spec::{GroupSize, Placement, Predicate},
};
use fedq_values::ids::ClusterName;

/// The API allows so many decisions in one object.
pub const MAX_DECISIONS: usize = 100;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Groups {
    pub groups: Vec<Group>,
    /// What is wrong with the strategy; groups before it stand.
    pub problem: Option<Problem>,
}

/// The place of a group in the list is its index.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Group {
    pub name: String,
    pub clusters: Vec<usize>,
}

/// A PlacementDecision as it should be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Slice {
    pub name: String,
    pub group: usize,
    pub group_name: String,
    pub clusters: Vec<ClusterName>,
}

impl Groups {
    /// The PlacementDecisions of the groups, numbered from 1 throughout. An empty group has one, too.
    pub fn slices(&self, placement: &Placement, hub: &Hub) -> Vec<Slice> {
        let mut slices = Vec::new();
        for (index, group) in self.groups.iter().enumerate() {
            let names: Vec<_> = group.clusters.iter().map(|at| hub.clusters()[*at].name.clone()).collect();
            let parts: Vec<&[ClusterName]> =
                if names.is_empty() { vec![&[]] } else { names.chunks(MAX_DECISIONS).collect() };
            for part in parts {
                slices.push(Slice {
                    name: format!("{}-decision-{}", placement.key.name, slices.len() + 1),
                    group: index,
                    group_name: group.name.clone(),
                    clusters: part.to_vec(),
                });
            }
        }
        slices
    }

    /// The group that the cluster is in, by index.
    pub fn of(&self, at: usize) -> Option<usize> {
        self.groups.iter().position(|group| group.clusters.binary_search(&at).is_ok())
    }
}

/// Named groups in order, each cluster in the first that takes it, then the rest.
pub fn divide(placement: &Placement, hub: &Hub, chosen: &[usize]) -> Groups {
    let mut divided = Groups::default();
    // By position is by name.
    let mut rest = chosen.to_vec();
    rest.sort_unstable();
    let size = match size(&placement.group_size, rest.len()) {
        Ok(size) => size,
        Err(problem) => return Groups { problem: Some(problem), ..divided },
    };
    for group in &placement.groups {
        let predicate =
            Predicate { labels: group.labels.clone(), claims: group.claims.clone(), cel: Vec::new() };
        let compiled = match Compiled::new(&predicate) {
            Ok(compiled) => compiled,
            Err(message) => return Groups { problem: Some(Problem::misconfigured("", message)), ..divided },
        };
        let (taken, left): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|at| compiled.selects(&hub.clusters()[*at]));
        divided.add(&group.name, &taken, size);
        rest = left;
    }
    divided.add("", &rest, size);
    if divided.groups.is_empty() {
        divided.groups.push(Group { name: String::new(), clusters: Vec::new() });
    }
    divided
}

impl Groups {
    fn add(&mut self, name: &str, clusters: &[usize], size: usize) {
        let group = |part: &[usize]| Group { name: name.to_owned(), clusters: part.to_vec() };
        self.groups.extend(clusters.chunks(size.max(1)).map(group));
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a number of clusters; what is out of range saturates and then means all"
)]
fn size(size: &GroupSize, total: usize) -> Result<usize, Problem> {
    let length = match size {
        GroupSize::Number(number) => usize::try_from(*number).unwrap_or(0),
        GroupSize::Text(text) => {
            let share = text.strip_suffix('%').and_then(|share| share.parse::<f64>().ok());
            let invalid =
                || Problem::misconfigured("", format!("{text} invalid type: string is not a percentage"));
            (share.ok_or_else(invalid)? / 100.0 * total as f64).ceil() as usize
        }
    };
    Ok(if length == 0 || total < length { total } else { length })
}
