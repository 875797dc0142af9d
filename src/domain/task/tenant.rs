//! Whose tasks run where: from a person and their groups to a namespace, a queue and a ServiceAccount.

use super::render::Tenant;

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
