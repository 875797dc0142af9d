//! What MultiKueueClusters are called, and which cluster each of the names leads to.

use std::collections::BTreeMap;

use super::{Existing, Input, Source};
use fedq_values::ids::ClusterName;

/// What a MultiKueueCluster is called.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Naming {
    /// `<placement>-<cluster>`: each Placement has its own.
    #[default]
    PlacementCluster,
    /// `<cluster>`: shared by all Placements, and so is Kueue's connection.
    Cluster,
}

/// The name in Kueue of a cluster that the Placement decided on.
pub fn cluster_name(naming: Naming, placement: &str, cluster: &ClusterName) -> String {
    match naming {
        Naming::PlacementCluster => format!("{placement}-{cluster}"),
        Naming::Cluster => cluster.to_string(),
    }
}

/// Of each name that some Placement asks for, the one cluster that it leads to: `a-b-c` may be Placement `a`'s `b-c` and
/// Placement `a-b`'s `c`.
pub(super) struct Leads<'a>(BTreeMap<String, &'a ClusterName>);

impl<'a> Leads<'a> {
    pub fn new<'p>(input: &Input<'a>, placements: impl Iterator<Item = &'p str>) -> Self {
        let mut asked: BTreeMap<String, Vec<(&str, &'a ClusterName)>> = BTreeMap::new();
        for placement in placements {
            let decided = input.placements.get(placement).into_iter().flat_map(|decided| &decided.clusters);
            for cluster in decided.filter(|cluster| input.sources.contains_key(*cluster)) {
                let name = cluster_name(input.naming, placement, cluster);
                asked.entry(name).or_default().push((placement, cluster));
            }
        }
        let lead = |(name, asked): (String, Vec<(&str, &'a ClusterName)>)| {
            let stays = |now: &&ClusterName| {
                asked.iter().any(|(_, cluster)| cluster == now) || is_held(input, &name, &asked)
            };
            let cluster = input.leads(&name).filter(stays).or_else(|| Some(asked.first()?.1))?;
            Some((name, cluster))
        };
        Self(asked.into_iter().filter_map(lead).collect())
    }

    pub fn get(&self, name: &str) -> Option<&'a ClusterName> {
        self.0.get(name).copied()
    }

    /// What the MultiKueueCluster of that name is to say. Nobody may ask for one that drains: that stays as it is,
    /// unless its cluster is reached otherwise now.
    pub fn source(&self, name: &str, input: &Input<'a>) -> Option<&'a Source> {
        let existing = input.clusters.get(name).and_then(Existing::ours);
        let cluster = self.get(name).or_else(|| input.leads(name));
        cluster.and_then(|cluster| input.sources.get(cluster)).or(existing.map(|link| &link.source))
    }
}

/// Whether a config of somebody else than those that ask has the name still, or work runs by it.
fn is_held(input: &Input, name: &str, asked: &[(&str, &ClusterName)]) -> bool {
    let mut others = input.configs.iter().filter(|(config, _)| asked.iter().all(|(one, _)| one != config));
    let named = others.any(|(_, found)| {
        found.ours().is_some_and(|clusters| clusters.iter().any(|cluster| cluster == name))
    });
    named || input.running.iter().any(|(_, cluster)| cluster == name)
}
