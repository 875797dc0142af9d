//! Maps of amounts by resource, and the short names people use for resources.

use std::collections::BTreeMap;

use fedq_values::{
    ids::{FlavorName, NameError, QueueName, ResourceName},
    quantity::Amount,
};

/// Amounts by resource.
pub type Resources = BTreeMap<ResourceName, Amount>;

/// One (flavor, resource) of a ClusterQueue.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FlavorResource {
    pub flavor: FlavorName,
    pub resource: ResourceName,
}

/// One (ClusterQueue, flavor, resource): the unit that quota is planned in.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Cell {
    pub queue: QueueName,
    pub flavor: FlavorName,
    pub resource: ResourceName,
}

/// Short names on claims for long resource names: `gpu` for `nvidia.com/gpu`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Aliases(BTreeMap<String, ResourceName>);

impl Default for Aliases {
    fn default() -> Self {
        let gpu = ResourceName::new("nvidia.com/gpu").expect("a constant resource name is valid");
        Self(BTreeMap::from([("gpu".to_owned(), gpu)]))
    }
}

impl Aliases {
    pub fn new(by_short_name: BTreeMap<String, ResourceName>) -> Self {
        Self(by_short_name)
    }

    /// The Kubernetes name of what a claim calls `key`.
    pub fn resolve(&self, key: &str) -> Result<ResourceName, NameError> {
        match self.0.get(key) {
            Some(name) => Ok(name.clone()),
            None => ResourceName::new(key),
        }
    }

    /// What a claim calls `resource`: the short name where there is one.
    pub fn short<'a>(&'a self, resource: &'a ResourceName) -> &'a str {
        self.0.iter().find(|(_, long)| *long == resource).map_or(resource.as_str(), |(short, _)| short)
    }

    /// What is said of resources, by the names that claims have for them.
    pub fn words(&self, said: &BTreeMap<ResourceName, &'static str>) -> BTreeMap<String, String> {
        said.iter().map(|(resource, word)| (self.short(resource).to_owned(), (*word).to_owned())).collect()
    }
}
