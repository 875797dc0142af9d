//! `spec.resourceGroups` of a ClusterQueue and the rules Kueue keeps for it.
//!
//! The rules are those of Kueue's webhook (`pkg/webhooks/clusterqueue_webhook.go`) and of the CRD, so
//! that a write which Kueue would refuse is never sent and a claim can say which rule forbids it.

use std::collections::BTreeMap;

use super::{
    ids::{FlavorName, ResourceName},
    quantity::{Amount, Quantity, QuantityError},
    resources::FlavorResource,
};

pub const MAX_GROUPS: usize = 16;
pub const MAX_RESOURCES_A_GROUP: usize = 64;
pub const MAX_FLAVORS_A_GROUP: usize = 64;
/// Kueue allows 256 flavors in a queue, but its status holds 64: beyond it, usage is not reported.
pub const MAX_FLAVORS: usize = 64;
pub const MAX_RESOURCES: usize = 256;
pub const MAX_PAIRS_A_GROUP: usize = 512;

/// A quantity with the text it was written in, which stays while the value does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Written {
    amount: Amount,
    text: Box<str>,
}

impl Written {
    /// Reads what a queue holds as Kueue reads it: rounded up, and what overflows is unlimited.
    pub fn parse(text: &str, resource: &ResourceName) -> Result<Self, QuantityError> {
        let quantity = match Quantity::parse(text) {
            Err(QuantityError::TooLarge(_)) => Quantity::from_nanos(i128::MAX),
            parsed => parsed?,
        };
        if quantity < Quantity::ZERO {
            return Err(QuantityError::Negative(text.to_owned()));
        }
        Ok(Self { amount: Amount::held(quantity, resource), text: text.into() })
    }

    pub fn of(amount: Amount, resource: &ResourceName) -> Self {
        Self { amount, text: amount.text(resource).into() }
    }

    pub fn amount(&self) -> Amount {
        self.amount
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ResourceGroups(pub Vec<ResourceGroup>);

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ResourceGroup {
    pub covered: Vec<ResourceName>,
    pub flavors: Vec<FlavorQuotas>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FlavorQuotas {
    pub name: FlavorName,
    /// In the order of the group's `covered`.
    pub resources: Vec<ResourceQuota>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResourceQuota {
    pub name: ResourceName,
    pub nominal: Written,
    pub borrowing: Option<Written>,
    pub lending: Option<Written>,
}

/// What to write into one cell.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Quota {
    pub nominal: Amount,
    pub borrowing: Option<Amount>,
    pub lending: Option<Amount>,
}

/// A rule of Kueue's that resource groups break.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, thiserror::Error)]
pub enum Rule {
    #[error("a ClusterQueue has at most {MAX_GROUPS} resource groups")]
    TooManyGroups,
    #[error("a resource group covers at least one resource and at most {MAX_RESOURCES_A_GROUP}")]
    ResourcesOfGroup,
    #[error("a resource group has at least one flavor and at most {MAX_FLAVORS_A_GROUP}")]
    FlavorsOfGroup,
    #[error("a ClusterQueue reports at most {MAX_FLAVORS} flavors in its status")]
    TooManyFlavors,
    #[error("a ClusterQueue covers at most {MAX_RESOURCES} resources")]
    TooManyResources,
    #[error("a resource group has at most {MAX_PAIRS_A_GROUP} pairs of flavor and resource")]
    TooManyPairs,
    #[error("flavor `{flavor}` does not have the resources its group covers, in the same order")]
    ResourcesDiffer { flavor: FlavorName },
    #[error("resource `{0}` is covered twice")]
    DuplicateResource(ResourceName),
    #[error("flavor `{0}` is listed twice")]
    DuplicateFlavor(FlavorName),
    #[error("flavor `{flavor}` is in one resource group and resource `{resource}` in another")]
    AcrossGroups { flavor: FlavorName, resource: ResourceName },
    #[error("a borrowingLimit or lendingLimit of flavor `{flavor}` needs a cohort")]
    LimitWithoutCohort { flavor: FlavorName },
    #[error("the lendingLimit of `{resource}` of flavor `{flavor}` is above its nominalQuota")]
    LendingAboveNominal { flavor: FlavorName, resource: ResourceName },
}

impl ResourceGroups {
    /// Whether Kueue would take these groups.
    pub fn validate(&self, _has_cohort: bool) -> Result<(), Rule> {
        todo!()
    }

    /// The cell's quota, if the queue has the cell.
    pub fn cell(&self, _cell: &FlavorResource) -> Option<&ResourceQuota> {
        todo!()
    }

    /// These groups with the cell added at zero, where Kueue's rules allow it.
    pub fn extend(&mut self, _cell: &FlavorResource) -> Result<(), Rule> {
        todo!()
    }

    /// Writes quotas into cells that exist; texts whose value does not change stay as they are.
    pub fn set_cells(&mut self, _quotas: &BTreeMap<FlavorResource, Quota>) {
        todo!()
    }

    /// The groups of the worker's queue: the hub's order, with only the flavors and resources of
    /// `cells`. A flavor that lacks a resource of its group has it at zero.
    pub fn for_worker(&self, _cells: &BTreeMap<FlavorResource, Quota>) -> Self {
        todo!()
    }
}
