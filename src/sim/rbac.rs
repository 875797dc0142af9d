//! Who may do what: roles and bindings as they are stored, read anew for each question.

use serde_json::{Value, json};

use super::kind::Kind;
use super::store::{Object, Store};

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
}

/// What somebody wants to do.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    pub verb: String,
    pub group: String,
    /// With its subresource: `clusterqueues/status`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    /// Of requests for no resource.
    pub path: Option<String>,
}

impl User {
    pub fn new(name: &str, groups: &[&str]) -> Self {
        Self { name: name.to_owned(), groups: groups.iter().map(|&group| group.to_owned()).collect() }
    }

    pub fn account(namespace: &str, name: &str) -> Self {
        let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")];
        Self::new(&format!("system:serviceaccount:{namespace}:{name}"), &groups)
    }

    fn is(&self, subject: &Value, namespace: &str) -> bool {
        let text = |field: &str| subject[field].as_str().unwrap_or_default();
        match text("kind") {
            "User" => text("name") == self.name,
            "Group" => self.groups.iter().any(|group| group == text("name")),
            "ServiceAccount" => {
                let home = subject["namespace"].as_str().unwrap_or(namespace);
                self.name == format!("system:serviceaccount:{home}:{}", text("name"))
            }
            _ => false,
        }
    }
}

impl Attributes {
    fn is_in(&self, rule: &Value) -> bool {
        let lists = |field: &str, wanted: &str| {
            rule[field].as_array().is_some_and(|list| list.iter().any(|one| one == wanted || one == "*"))
        };
        if let Some(path) = &self.path {
            let urls = rule["nonResourceURLs"].as_array();
            let covers = |url: &Value| {
                let url = url.as_str().unwrap_or_default();
                url == path || url.strip_suffix('*').is_some_and(|start| path.starts_with(start))
            };
            return lists("verbs", &self.verb) && urls.is_some_and(|urls| urls.iter().any(covers));
        }
        let names = rule["resourceNames"].as_array().filter(|names| !names.is_empty());
        lists("verbs", &self.verb)
            && lists("apiGroups", &self.group)
            && (lists("resources", &self.resource) || self.any_with_subresource(rule))
            && names.is_none_or(|names| names.iter().any(|name| *name == self.name))
    }

    /// `*/status`.
    fn any_with_subresource(&self, rule: &Value) -> bool {
        let Some((_, part)) = self.resource.split_once('/') else { return false };
        let any = format!("*/{part}");
        rule["resources"].as_array().is_some_and(|list| list.iter().any(|one| *one == any))
    }

    pub fn is_allowed(&self, user: &User, store: &Store) -> bool {
        if user.groups.iter().any(|group| group == "system:masters") || self.is_for_everybody(user) {
            return true;
        }
        roles_of(user, &self.namespace, store).any(|role| {
            role["rules"].as_array().is_some_and(|rules| rules.iter().any(|rule| self.is_in(rule)))
        })
    }

    /// What the roles `system:discovery` and `system:basic-user` give to all who are known.
    fn is_for_everybody(&self, user: &User) -> bool {
        let known = user.name != "system:anonymous";
        if let Some(path) = &self.path {
            let starts = |with: &[&str]| with.iter().any(|start| path.starts_with(start));
            return starts(&["/healthz", "/livez", "/readyz", "/version"])
                || (known && starts(&["/api", "/apis", "/openapi"]));
        }
        let own = ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"];
        known && self.verb == "create" && own.contains(&self.resource.as_str())
    }

    /// As a real server words a refusal.
    pub fn refusal(&self, user: &User) -> String {
        if let Some(path) = &self.path {
            return format!("forbidden: User \"{}\" cannot {} path \"{path}\"", user.name, self.verb);
        }
        let resource = self.resource.split('/').next().unwrap_or_default();
        let resource =
            if self.group.is_empty() { resource.to_owned() } else { format!("{resource}.{}", self.group) };
        let which = if self.name.is_empty() { resource } else { format!("{resource} \"{}\"", self.name) };
        let place = match self.namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        format!(
            "{which} is forbidden: User \"{}\" cannot {} resource \"{}\" in API group \"{}\" {place}",
            user.name, self.verb, self.resource, self.group
        )
    }
}

/// The roles that somebody has everywhere and, if one is given, in a namespace.
fn roles_of(user: &User, namespace: &str, store: &Store) -> impl Iterator<Item = Object> {
    let kind = |name: &str| Kind::named(name).expect("a kind of RBAC");
    let cluster_wide = store.list(kind("ClusterRoleBinding"), None).0;
    let local = match namespace {
        "" => Vec::new(),
        namespace => store.list(kind("RoleBinding"), Some(namespace)).0,
    };
    cluster_wide.into_iter().chain(local).filter_map(move |((namespace, _), binding)| {
        let subjects = binding["subjects"].as_array()?;
        if !subjects.iter().any(|subject| user.is(subject, &namespace)) {
            return None;
        }
        let role = &binding["roleRef"];
        let name = role["name"].as_str().unwrap_or_default().to_owned();
        match role["kind"].as_str() {
            Some("Role") => store.get(kind("Role"), &(namespace, name)),
            _ => store.get(kind("ClusterRole"), &(String::new(), name)),
        }
    })
}

/// All that somebody may do there.
pub fn rules_of(user: &User, namespace: &str, store: &Store) -> Vec<Value> {
    let mut rules = vec![
        json!({"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]}),
        json!({"verbs": ["get"], "nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez",
            "/openapi", "/openapi/*", "/readyz", "/version", "/version/"]}),
    ];
    if user.groups.iter().any(|group| group == "system:masters") {
        rules.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        rules.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    }
    for role in roles_of(user, namespace, store) {
        rules.extend(role["rules"].as_array().into_iter().flatten().cloned());
    }
    rules
}

#[cfg(test)]
mod tests {

    use super::*;

    fn put(store: &Store, kind: &str, object: Value) {
        let name = super::super::store::name_of(&object);
        store.commit(Kind::named(kind).unwrap(), &name, None, Some(object)).unwrap();
    }

    fn wants(verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> Attributes {
        Attributes {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            path: None,
        }
    }

    #[test]
    fn a_role_gives_what_it_says_where_it_is_bound() {
        let store = Store::new(0);
        put(
            &store,
            "Role",
            json!({"metadata": {"name": "r", "namespace": "a"}, "rules": [
                {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["s"], "verbs": ["get"]},
            ]}),
        );
        put(
            &store,
            "RoleBinding",
            json!({"metadata": {"name": "b", "namespace": "a"}, "roleRef": {"kind": "Role", "name": "r"},
                "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": "x"}]}),
        );
        let account = User::new("system:serviceaccount:x:sa", &[]);
        assert!(wants("get", "", "secrets", "a", "s").is_allowed(&account, &store));
        for no in [
            wants("get", "", "secrets", "a", "other"),
            wants("list", "", "secrets", "a", ""),
            wants("get", "", "secrets", "b", "s"),
            wants("get", "apps", "secrets", "a", "s"),
        ] {
            assert!(!no.is_allowed(&account, &store), "{no:?}");
        }
        assert!(!wants("get", "", "secrets", "a", "s").is_allowed(&User::new("other", &[]), &store));
    }

    #[test]
    fn refusals_read_as_on_real_servers() {
        let user = User::new("u", &[]);
        assert_eq!(
            wants("list", "", "nodes", "", "").refusal(&user),
            "nodes is forbidden: User \"u\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
        );
        assert_eq!(
            wants("patch", "kueue.x-k8s.io", "localqueues/status", "a", "q").refusal(&user),
            "localqueues.kueue.x-k8s.io \"q\" is forbidden: User \"u\" cannot patch resource \
             \"localqueues/status\" in API group \"kueue.x-k8s.io\" in the namespace \"a\""
        );
    }
}
