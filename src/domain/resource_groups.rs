//! `spec.resourceGroups` of a ClusterQueue and the rules Kueue keeps for it.
//!
//! The rules are those of Kueue's webhook (`pkg/webhooks/clusterqueue_webhook.go`) and of the CRD, so
//! that a write which Kueue would refuse is never sent and a claim can say which rule forbids it.

use std::collections::{BTreeMap, BTreeSet};

use super::resources::FlavorResource;
use fedq_values::{
    ids::{FlavorName, ResourceName},
    quantity::{Amount, Quantity, QuantityError},
};

pub const MAX_GROUPS: usize = 16;
pub const MAX_RESOURCES_A_GROUP: usize = 64;
pub const MAX_FLAVORS_A_GROUP: usize = 64;
pub const MAX_FLAVORS: usize = 256;
/// A queue's status holds no more flavors than this, so that fedq, which must know what is reserved,
/// adds none beyond it.
pub const MAX_FLAVORS_REPORTED: usize = 64;
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
    #[error("a ClusterQueue has at most {MAX_FLAVORS} flavors")]
    TooManyFlavors,
    #[error("a ClusterQueue reports usage of at most {MAX_FLAVORS_REPORTED} flavors, so no more are added")]
    TooManyReported,
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
    #[error(
        "the ClusterQueue's quota is in a Cohort and its form is not fedq's to change: add `{resource}` of flavor \
         `{flavor}` to it with nominalQuota 0"
    )]
    NotCovered { flavor: FlavorName, resource: ResourceName },
}

impl ResourceGroups {
    /// With each group's flavors in the order that `other` has them in, which is the order in which Kueue tries them.
    /// What `other` does not have goes last.
    #[must_use]
    pub fn ordered_like(mut self, other: &Self) -> Self {
        let flavors = other.0.iter().flat_map(|group| &group.flavors).enumerate();
        let order: BTreeMap<&FlavorName, usize> = flavors.map(|(i, flavor)| (&flavor.name, i)).collect();
        for group in &mut self.0 {
            group.flavors.sort_by_key(|flavor| order.get(&flavor.name).copied().unwrap_or(usize::MAX));
        }
        self
    }

    /// Whether Kueue would take these groups.
    pub fn validate(&self, has_cohort: bool) -> Result<(), Rule> {
        if MAX_GROUPS < self.0.len() {
            return Err(Rule::TooManyGroups);
        }
        let mut resources = BTreeSet::new();
        let mut flavors = BTreeSet::new();
        for group in &self.0 {
            group.validate(has_cohort)?;
            if let Some(twice) = group.covered.iter().find(|resource| !resources.insert(*resource)) {
                return Err(Rule::DuplicateResource(twice.clone()));
            }
            if let Some(twice) = group.flavors.iter().find(|flavor| !flavors.insert(&flavor.name)) {
                return Err(Rule::DuplicateFlavor(twice.name.clone()));
            }
        }
        if MAX_FLAVORS < flavors.len() {
            return Err(Rule::TooManyFlavors);
        }
        if MAX_RESOURCES < resources.len() {
            return Err(Rule::TooManyResources);
        }
        Ok(())
    }

    /// The cell's quota, if the queue has the cell.
    pub fn cell(&self, cell: &FlavorResource) -> Option<&ResourceQuota> {
        self.flavor(&cell.flavor)?.resources.iter().find(|quota| quota.name == cell.resource)
    }

    pub fn cells(&self) -> impl Iterator<Item = (&FlavorName, &ResourceQuota)> {
        let flavors = self.0.iter().flat_map(|group| &group.flavors);
        flavors.flat_map(|flavor| flavor.resources.iter().map(move |quota| (&flavor.name, quota)))
    }

    /// The resources that are covered for the flavor.
    pub fn covered(&self, flavor: &FlavorName) -> &[ResourceName] {
        self.group_of(flavor).map_or(&[], |group| &group.covered)
    }

    /// Adds the cell at zero, where Kueue's rules allow it; unchanged where they do not.
    pub fn extend(&mut self, cell: &FlavorResource) -> Result<(), Rule> {
        if self.cell(cell).is_some() {
            return Ok(());
        }
        let mut extended = self.clone();
        extended.add(cell)?;
        extended.check_sizes()?;
        let flavors = |groups: &Self| groups.0.iter().map(|group| group.flavors.len()).sum::<usize>();
        if MAX_FLAVORS_REPORTED < flavors(&extended) && flavors(self) < flavors(&extended) {
            return Err(Rule::TooManyReported);
        }
        *self = extended;
        Ok(())
    }

    /// Adds all these cells, and returns those that cannot be added with the rule that forbids it.
    ///
    /// Cells that touch a group join it before others make a new one: `a/cpu`, `b/memory` and `b/cpu`
    /// become one group, whereas in the order of their names `b/cpu` would lie across two.
    pub fn extend_all(
        &mut self,
        cells: impl Iterator<Item = FlavorResource>,
    ) -> BTreeMap<FlavorResource, Rule> {
        let mut missing: Vec<_> = cells.filter(|cell| self.cell(cell).is_none()).collect();
        missing.sort_unstable();
        let mut forbidden = BTreeMap::new();
        while !missing.is_empty() {
            let next = missing.iter().position(|cell| self.touches(cell)).unwrap_or(0);
            let cell = missing.remove(next);
            if let Err(rule) = self.extend(&cell) {
                forbidden.insert(cell, rule);
            }
        }
        forbidden
    }

    /// These flavors and resources, with the quotas that `other` has for them, and 0 where it has none.
    #[must_use]
    pub fn with_quota_of(mut self, other: &Self) -> Self {
        for flavor in self.0.iter_mut().flat_map(|group| &mut group.flavors) {
            for quota in &mut flavor.resources {
                let at = FlavorResource { flavor: flavor.name.clone(), resource: quota.name.clone() };
                let held = other.cell(&at).cloned();
                *quota = held.unwrap_or_else(|| ResourceQuota::zero(quota.name.clone()));
            }
        }
        self
    }

    /// With no lendingLimit above its nominalQuota.
    pub fn cut_lending(&mut self) {
        for quota in
            self.0.iter_mut().flat_map(|group| &mut group.flavors).flat_map(|flavor| &mut flavor.resources)
        {
            let nominal = &quota.nominal;
            if quota.lending.as_ref().is_some_and(|lending| nominal.amount < lending.amount) {
                quota.lending = Some(nominal.clone());
            }
        }
    }

    /// Without limits, as Kueue wants them where nothing is shared.
    #[must_use]
    pub fn without_limits(mut self) -> Self {
        for quota in
            self.0.iter_mut().flat_map(|group| &mut group.flavors).flat_map(|flavor| &mut flavor.resources)
        {
            (quota.borrowing, quota.lending) = (None, None);
        }
        self
    }

    /// Writes quotas into cells that exist; texts whose value does not change stay as they are.
    pub fn set_cells(&mut self, quotas: &BTreeMap<FlavorResource, Quota>) {
        for flavor in self.0.iter_mut().flat_map(|group| &mut group.flavors) {
            for quota in &mut flavor.resources {
                let cell = FlavorResource { flavor: flavor.name.clone(), resource: quota.name.clone() };
                if let Some(desired) = quotas.get(&cell) {
                    quota.set(desired);
                }
            }
        }
    }

    /// The groups of the worker's queue: the hub's order, with only the flavors and resources of
    /// `cells`. A flavor that lacks a resource of its group has it at zero. Cells the hub no longer has
    /// follow where Kueue's rules allow: a worker's cell that went away would take its usage out of
    /// Kueue's accounts.
    pub fn for_worker(&self, cells: &BTreeMap<FlavorResource, Quota>) -> Self {
        let groups = self.0.iter().filter_map(|group| {
            let flavors = group.flavors.iter().filter(|flavor| cells.keys().any(|c| c.flavor == flavor.name));
            let flavors: Vec<_> = flavors.collect();
            let named = |resource: &ResourceName| {
                cells.keys().any(|cell| {
                    cell.resource == *resource && flavors.iter().any(|flavor| flavor.name == cell.flavor)
                })
            };
            let covered: Vec<_> = group.covered.iter().filter(|resource| named(resource)).cloned().collect();
            let flavors: Vec<_> = flavors
                .iter()
                .map(|flavor| FlavorQuotas {
                    name: flavor.name.clone(),
                    resources: covered.iter().map(|name| ResourceQuota::zero(name.clone())).collect(),
                })
                .collect();
            (!covered.is_empty()).then_some(ResourceGroup { covered, flavors })
        });
        let mut groups = Self(groups.collect());
        groups.extend_all(cells.keys().cloned());
        groups.set_cells(cells);
        groups
    }

    fn touches(&self, cell: &FlavorResource) -> bool {
        let in_group = |group: &ResourceGroup| {
            group.covered.contains(&cell.resource) || group.flavors.iter().any(|f| f.name == cell.flavor)
        };
        self.0.iter().any(in_group)
    }

    fn flavor(&self, name: &FlavorName) -> Option<&FlavorQuotas> {
        self.0.iter().flat_map(|group| &group.flavors).find(|flavor| flavor.name == *name)
    }

    fn group_of(&self, name: &FlavorName) -> Option<&ResourceGroup> {
        self.0.iter().find(|group| group.flavors.iter().any(|flavor| flavor.name == *name))
    }

    /// A new flavor joins the group that covers the resource; a new resource is covered, at zero, by
    /// every flavor of the flavor's group; where both are new, they make a group of their own.
    fn add(&mut self, cell: &FlavorResource) -> Result<(), Rule> {
        let of_flavor = self.0.iter().position(|group| group.flavors.iter().any(|f| f.name == cell.flavor));
        let of_resource = self.0.iter().position(|group| group.covered.contains(&cell.resource));
        match (of_flavor, of_resource) {
            (Some(flavor), Some(resource)) if flavor != resource => {
                Err(Rule::AcrossGroups { flavor: cell.flavor.clone(), resource: cell.resource.clone() })
            }
            (Some(group), None) => {
                self.0[group].cover(&cell.resource);
                Ok(())
            }
            (None, Some(group)) => {
                self.0[group].add_flavor(&cell.flavor);
                Ok(())
            }
            // The flavor's group covers the resource, yet the cell is missing: the queue is not valid.
            (Some(_), Some(_)) => Err(Rule::ResourcesDiffer { flavor: cell.flavor.clone() }),
            (None, None) => {
                let mut group = ResourceGroup { covered: vec![cell.resource.clone()], flavors: Vec::new() };
                group.add_flavor(&cell.flavor);
                self.0.push(group);
                Ok(())
            }
        }
    }

    /// The rules that adding a cell can break.
    fn check_sizes(&self) -> Result<(), Rule> {
        if MAX_GROUPS < self.0.len() {
            return Err(Rule::TooManyGroups);
        }
        for group in &self.0 {
            group.check_sizes()?;
        }
        if MAX_FLAVORS < self.0.iter().map(|group| group.flavors.len()).sum() {
            return Err(Rule::TooManyFlavors);
        }
        if MAX_RESOURCES < self.0.iter().map(|group| group.covered.len()).sum() {
            return Err(Rule::TooManyResources);
        }
        Ok(())
    }
}

impl ResourceGroup {
    fn validate(&self, has_cohort: bool) -> Result<(), Rule> {
        self.check_sizes()?;
        self.flavors.iter().try_for_each(|flavor| flavor.validate(&self.covered, has_cohort))
    }

    fn check_sizes(&self) -> Result<(), Rule> {
        if self.covered.is_empty() || MAX_RESOURCES_A_GROUP < self.covered.len() {
            return Err(Rule::ResourcesOfGroup);
        }
        if self.flavors.is_empty() || MAX_FLAVORS_A_GROUP < self.flavors.len() {
            return Err(Rule::FlavorsOfGroup);
        }
        if MAX_PAIRS_A_GROUP < self.covered.len() * self.flavors.len() {
            return Err(Rule::TooManyPairs);
        }
        Ok(())
    }

    fn cover(&mut self, resource: &ResourceName) {
        self.covered.push(resource.clone());
        for flavor in &mut self.flavors {
            flavor.resources.push(ResourceQuota::zero(resource.clone()));
        }
    }

    fn add_flavor(&mut self, flavor: &FlavorName) {
        let resources = self.covered.iter().map(|name| ResourceQuota::zero(name.clone())).collect();
        self.flavors.push(FlavorQuotas { name: flavor.clone(), resources });
    }
}

impl FlavorQuotas {
    fn validate(&self, covered: &[ResourceName], has_cohort: bool) -> Result<(), Rule> {
        if !self.resources.iter().map(|quota| &quota.name).eq(covered) {
            return Err(Rule::ResourcesDiffer { flavor: self.name.clone() });
        }
        for quota in &self.resources {
            if !has_cohort && (quota.borrowing.is_some() || quota.lending.is_some()) {
                return Err(Rule::LimitWithoutCohort { flavor: self.name.clone() });
            }
            if quota.lending.as_ref().is_some_and(|lending| quota.nominal.amount < lending.amount) {
                let (flavor, resource) = (self.name.clone(), quota.name.clone());
                return Err(Rule::LendingAboveNominal { flavor, resource });
            }
        }
        Ok(())
    }
}

impl ResourceQuota {
    pub fn zero(name: ResourceName) -> Self {
        let nominal = Written::of(Amount::ZERO, &name);
        Self { name, nominal, borrowing: None, lending: None }
    }

    fn set(&mut self, desired: &Quota) {
        let Self { name, nominal, borrowing, lending } = self;
        if nominal.amount != desired.nominal {
            *nominal = Written::of(desired.nominal, name);
        }
        for (limit, desired) in [(borrowing, desired.borrowing), (lending, desired.lending)] {
            if limit.as_ref().map(Written::amount) != desired {
                *limit = desired.map(|amount| Written::of(amount, name));
            }
        }
    }
}

#[cfg(test)]
mod tests;
