//! `spec.resourceGroups` of a ClusterQueue and the rules Kueue keeps for it.
//!
//! The rules are those of Kueue's webhook (`pkg/webhooks/clusterqueue_webhook.go`) and of the CRD, so
//! that a write which Kueue would refuse is never sent and a claim can say which rule forbids it.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ids::{FlavorName, ResourceName},
    quantity::{Amount, Quantity, QuantityError},
    resources::FlavorResource,
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
}

impl ResourceGroups {
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
mod tests {
    use super::*;

    fn flavor(name: &str) -> FlavorName {
        FlavorName::new(name).expect("a flavor name")
    }

    fn resource(name: &str) -> ResourceName {
        ResourceName::new(name).expect("a resource name")
    }

    fn cell(flavor_name: &str, resource_name: &str) -> FlavorResource {
        FlavorResource { flavor: flavor(flavor_name), resource: resource(resource_name) }
    }

    fn group(covered: &[&str], flavors: &[&str]) -> ResourceGroup {
        let mut group =
            ResourceGroup { covered: covered.iter().map(|r| resource(r)).collect(), flavors: vec![] };
        for name in flavors {
            group.add_flavor(&flavor(name));
        }
        group
    }

    fn numbered(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|i| format!("{prefix}{i}")).collect()
    }

    fn big_group(prefix: &str, resources: usize, flavors: usize) -> ResourceGroup {
        let (resources, flavors) = (numbered(&format!("{prefix}.x/r"), resources), numbered(prefix, flavors));
        group(
            &resources.iter().map(String::as_str).collect::<Vec<_>>(),
            &flavors.iter().map(String::as_str).collect::<Vec<_>>(),
        )
    }

    fn set(groups: &mut ResourceGroups, at: &FlavorResource, nominal: i64, lending: Option<i64>) {
        let quota =
            Quota { nominal: Amount::new(nominal), borrowing: None, lending: lending.map(Amount::new) };
        groups.set_cells(&BTreeMap::from([(at.clone(), quota)]));
    }

    #[test]
    fn groups_that_kueue_takes_are_valid() {
        assert_eq!(ResourceGroups::default().validate(false), Ok(()));
        let groups = ResourceGroups(vec![group(&["cpu", "memory"], &["a", "b"]), group(&["x/gpu"], &["c"])]);
        assert_eq!(groups.validate(false), Ok(()));
        assert_eq!(ResourceGroups(vec![big_group("a", 64, 8)]).validate(false), Ok(()));
    }

    #[test]
    fn every_limit_on_size_has_its_rule() {
        let groups = |count, resources, flavors| {
            let groups = (0..count).map(|i| big_group(&format!("g{i}n"), resources, flavors));
            ResourceGroups(groups.collect()).validate(false)
        };
        assert_eq!(groups(16, 1, 4), Ok(()));
        assert_eq!(groups(17, 1, 1), Err(Rule::TooManyGroups));
        assert_eq!(groups(1, 65, 1), Err(Rule::ResourcesOfGroup));
        assert_eq!(groups(1, 0, 1), Err(Rule::ResourcesOfGroup));
        assert_eq!(groups(1, 1, 65), Err(Rule::FlavorsOfGroup));
        assert_eq!(groups(1, 1, 0), Err(Rule::FlavorsOfGroup));
        assert_eq!(groups(5, 1, 52), Err(Rule::TooManyFlavors));
        assert_eq!(groups(5, 52, 1), Err(Rule::TooManyResources));
        assert_eq!(groups(1, 64, 9), Err(Rule::TooManyPairs));
    }

    #[test]
    fn names_are_unique_and_in_the_order_of_the_group() {
        let twice = ResourceGroups(vec![group(&["cpu"], &["a"]), group(&["cpu"], &["b"])]);
        assert_eq!(twice.validate(false), Err(Rule::DuplicateResource(resource("cpu"))));
        let twice = ResourceGroups(vec![group(&["cpu"], &["a"]), group(&["memory"], &["a"])]);
        assert_eq!(twice.validate(false), Err(Rule::DuplicateFlavor(flavor("a"))));
        let mut swapped = ResourceGroups(vec![group(&["cpu", "memory"], &["a"])]);
        swapped.0[0].covered.swap(0, 1);
        assert_eq!(swapped.validate(false), Err(Rule::ResourcesDiffer { flavor: flavor("a") }));
    }

    #[test]
    fn limits_need_a_cohort_and_lend_no_more_than_there_is() {
        let mut groups = ResourceGroups(vec![group(&["cpu"], &["a"])]);
        set(&mut groups, &cell("a", "cpu"), 5, Some(5));
        assert_eq!(groups.validate(true), Ok(()));
        assert_eq!(groups.validate(false), Err(Rule::LimitWithoutCohort { flavor: flavor("a") }));
        set(&mut groups, &cell("a", "cpu"), 5, Some(6));
        let rule = Rule::LendingAboveNominal { flavor: flavor("a"), resource: resource("cpu") };
        assert_eq!(groups.validate(true), Err(rule));
    }

    #[test]
    fn a_queue_is_extended_where_the_rules_allow() {
        let mut groups = ResourceGroups(vec![group(&["cpu", "memory"], &["a"])]);
        groups.extend(&cell("b", "cpu")).expect("a new flavor joins the group of the resource");
        groups.extend(&cell("a", "x/gpu")).expect("a new resource is covered by every flavor of the group");
        groups.extend(&cell("c", "x/nic")).expect("both new: a group of their own");
        let expected = [group(&["cpu", "memory", "x/gpu"], &["a", "b"]), group(&["x/nic"], &["c"])];
        assert_eq!(groups, ResourceGroups(expected.to_vec()));
        assert_eq!(groups.validate(false), Ok(()));
    }

    #[test]
    fn cells_that_belong_together_make_one_group() {
        let mut groups = ResourceGroups::default();
        let cells = [cell("a", "cpu"), cell("b", "memory"), cell("b", "cpu")];
        assert_eq!(groups.extend_all(cells.into_iter()), BTreeMap::new());
        assert_eq!(groups, ResourceGroups(vec![group(&["cpu", "memory"], &["a", "b"])]));
        let two = ResourceGroups(vec![group(&["cpu"], &["a"]), group(&["memory"], &["b"])]);
        let mut groups = two.clone();
        let forbidden = groups.extend_all([cell("a", "memory")].into_iter());
        assert_eq!(forbidden.into_keys().collect::<Vec<_>>(), [cell("a", "memory")]);
        assert_eq!(groups, two);
    }

    #[test]
    fn a_queue_that_cannot_be_extended_is_unchanged_and_says_why() {
        let mut groups = ResourceGroups(vec![group(&["cpu"], &["a"]), group(&["memory"], &["b"])]);
        let before = groups.clone();
        let rule = Rule::AcrossGroups { flavor: flavor("a"), resource: resource("memory") };
        assert_eq!(groups.extend(&cell("a", "memory")), Err(rule));
        assert_eq!(groups, before);
        let mut full = ResourceGroups(vec![big_group("f", 1, 64)]);
        let before = full.clone();
        assert_eq!(full.extend(&cell("one-more", "f.x/r0")), Err(Rule::FlavorsOfGroup));
        assert_eq!(full, before);
        let mut many = ResourceGroups(vec![big_group("a", 1, 32), big_group("b", 1, 32)]);
        assert_eq!(many.extend(&cell("one-more", "a.x/r0")), Err(Rule::TooManyReported));
        many.extend(&cell("a0", "x/new")).expect("a resource adds no flavor");
    }

    #[test]
    fn a_text_stays_while_its_value_does() {
        let cpu = resource("cpu");
        let mut groups = ResourceGroups(vec![group(&["cpu"], &["a"])]);
        groups.0[0].flavors[0].resources[0].nominal = Written::parse("1000m", &cpu).expect("a quantity");
        let text = |groups: &ResourceGroups| groups.0[0].flavors[0].resources[0].nominal.text().to_owned();
        set(&mut groups, &cell("a", "cpu"), 1000, None);
        assert_eq!(text(&groups), "1000m");
        set(&mut groups, &cell("a", "cpu"), 2000, None);
        assert_eq!(text(&groups), "2");
    }

    #[test]
    fn a_quantity_is_read_as_kueue_reads_it() {
        let (cpu, gpu) = (resource("cpu"), resource("nvidia.com/gpu"));
        let read = |text, resource| Written::parse(text, resource).map(|written| written.amount());
        assert_eq!(read("0.1m", &cpu), Ok(Amount::new(1)));
        assert_eq!(read("1e30", &gpu), Ok(Amount::MAX));
        assert_eq!(read("1e300", &gpu), Ok(Amount::MAX));
        assert!(matches!(read("-1", &gpu), Err(QuantityError::Negative(_))));
        assert!(matches!(read("many", &gpu), Err(QuantityError::Syntax(_))));
    }

    #[test]
    fn a_worker_has_the_hub_order_and_only_what_its_claim_names() {
        let hub =
            ResourceGroups(vec![group(&["x/gpu", "cpu", "memory"], &["b", "a", "c"]), group(&["y"], &["d"])]);
        let quota = |nominal| Quota { nominal: Amount::new(nominal), ..Quota::default() };
        let cells = BTreeMap::from([
            (cell("a", "cpu"), quota(4000)),
            (cell("a", "x/gpu"), quota(2)),
            (cell("b", "x/gpu"), quota(1)),
        ]);
        let worker = hub.for_worker(&cells);
        let mut expected = ResourceGroups(vec![group(&["x/gpu", "cpu"], &["b", "a"])]);
        expected.set_cells(&cells);
        assert_eq!(worker, expected);
        assert_eq!(worker.cell(&cell("b", "cpu")).map(|quota| quota.nominal.amount()), Some(Amount::ZERO));
        assert_eq!(worker.validate(false), Ok(()));
    }
}
