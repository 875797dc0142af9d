//! Whose tasks run where: from a person and their groups to a namespace, a queue and a ServiceAccount.

use std::collections::BTreeSet;

use super::{choose::hardware, limits::Limits, render::Tenant};
use fedq_values::ids::ResourceName;

/// In order: the first that names a person is theirs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tenants(pub Vec<Rule>);

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// Names of users as the hub knows them; [`ANYONE`] is everybody.
    pub users: Vec<String>,
    pub groups: Vec<String>,
    pub tenant: Tenant,
    /// The LocalQueue of tasks that name none.
    pub queue: Option<String>,
    pub pods: PodRules,
    pub limits: Limits,
}

/// What of the pods of its tasks a tenant may set beyond what everybody may: an administrator's choice, since it reaches the
/// node. What is not here cannot be allowed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PodRules {
    /// Devices other than accelerators, as `rdma/hca`.
    pub resources: BTreeSet<ResourceName>,
    /// Of [`CAPABILITIES`].
    pub capabilities: BTreeSet<String>,
    /// Pods may be in their node's network.
    pub host_network: bool,
}

/// Linux capabilities that can be allowed. To pin memory is what RDMA takes; all others of a container runtime's choice are more
/// than that, and most of them the node.
pub const CAPABILITIES: [&str; 1] = ["IPC_LOCK"];

/// Whether it is an extended resource of Kubernetes, which is counted in whole devices, and no accelerator: these are asked for
/// by their kind.
pub fn is_device(resource: &ResourceName) -> bool {
    let name = resource.as_str();
    let Some((domain, _)) = name.split_once('/') else { return false };
    let native = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    !native && !name.starts_with("requests.") && !hardware::is_accelerator(resource)
}

pub const ANYONE: &str = "*";

impl Tenants {
    pub fn of(&self, user: &str, groups: &[String]) -> Option<&Rule> {
        self.0.iter().find(|rule| {
            rule.users.iter().any(|named| named == user || named == ANYONE)
                || rule.groups.iter().any(|named| groups.contains(named))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(users: &[&str], groups: &[&str], namespace: &str) -> Rule {
        let texts = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Rule {
            users: texts(users),
            groups: texts(groups),
            tenant: Tenant { namespace: namespace.to_owned(), service_account: None },
            queue: None,
            pods: PodRules::default(),
            limits: Limits::default(),
        }
    }

    #[test]
    fn devices_are_extended_resources_but_for_accelerators() {
        for (name, expected) in [
            ("rdma/hca", true),
            ("rdma/hca_shared_devices_a", true),
            ("vpc.amazonaws.com/efa", true),
            ("nvidia.com/mig-1g.5gb", true),
            ("nvidia.com/gpu", false),
            ("amd.com/gpu", false),
            ("cpu", false),
            ("hugepages-2Mi", false),
            ("kubernetes.io/x", false),
            ("node.kubernetes.io/x", false),
            ("requests.example.com/x", false),
        ] {
            assert_eq!(is_device(&ResourceName::new(name).expect("a resource")), expected, "{name}");
        }
    }

    #[test]
    fn the_first_rule_that_names_a_person_is_theirs() {
        let tenants = Tenants(vec![
            rule(&["ann"], &[], "ann"),
            rule(&[], &["research"], "research"),
            rule(&["*"], &[], "default"),
        ]);
        let of = |user: &str, groups: &[&str]| {
            let groups: Vec<String> = groups.iter().map(|&name| name.to_owned()).collect();
            tenants.of(user, &groups).map(|rule| rule.tenant.namespace.as_str())
        };
        assert_eq!(of("ann", &["research"]), Some("ann"));
        assert_eq!(of("bob", &["sales", "research"]), Some("research"));
        assert_eq!(of("bob", &["sales"]), Some("default"));
        assert_eq!(Tenants(Vec::new()).of("bob", &[]), None);
        // A user's name is not a group's.
        assert_eq!(of("research", &[]), Some("default"));
    }
}
