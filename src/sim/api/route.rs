//! What a path names.

use super::super::kind::Kind;
use super::super::store::Name;

#[derive(Debug)]
pub enum Route {
    Resource(Resource),
    /// Discovery, health, whatever names no object.
    Other,
}

#[derive(Clone, Debug)]
pub struct Resource {
    pub kind: &'static Kind,
    pub namespace: String,
    /// Empty for all of them.
    pub name: String,
    /// The subresource.
    pub part: Option<String>,
    /// Events, asked for in the form of the core group.
    pub core_event: bool,
}

/// Kinds that are asked and not kept.
pub static REVIEWS: &[Kind] = &[
    Kind { group: "authentication.k8s.io", plural: "tokenreviews", kind: "TokenReview", ..REVIEW },
    Kind {
        group: "authentication.k8s.io",
        plural: "selfsubjectreviews",
        kind: "SelfSubjectReview",
        ..REVIEW
    },
    Kind {
        group: "authorization.k8s.io",
        plural: "subjectaccessreviews",
        kind: "SubjectAccessReview",
        ..REVIEW
    },
    Kind {
        group: "authorization.k8s.io",
        plural: "selfsubjectaccessreviews",
        kind: "SelfSubjectAccessReview",
        ..REVIEW
    },
    Kind {
        group: "authorization.k8s.io",
        plural: "selfsubjectrulesreviews",
        kind: "SelfSubjectRulesReview",
        ..REVIEW
    },
];

const REVIEW: Kind = Kind { namespaced: false, ..Kind::BUILT_IN };

impl Resource {
    /// The group of the path, which decides about rights.
    pub fn group(&self) -> &'static str {
        if self.core_event { "" } else { self.kind.group }
    }

    pub fn api_version(&self) -> String {
        if self.core_event { "v1".to_owned() } else { self.kind.api_version() }
    }

    pub fn key(&self) -> Name {
        (self.namespace.clone(), self.name.clone())
    }

    pub fn scope(&self) -> Option<&str> {
        (!self.namespace.is_empty()).then_some(self.namespace.as_str())
    }
}

impl Route {
    pub fn parse(path: &str) -> Self {
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let parsed = match segments.as_slice() {
            ["api", version, rest @ ..] => resource("", version, rest),
            ["apis", group, version, rest @ ..] => resource(group, version, rest),
            _ => None,
        };
        parsed.map_or(Self::Other, Self::Resource)
    }
}

fn resource(group: &str, version: &str, rest: &[&str]) -> Option<Resource> {
    let (namespace, rest) = match rest {
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", rest),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        _ => ("", rest),
    };
    let (plural, name, part) = match rest {
        [plural] => (*plural, "", None),
        [plural, name] => (*plural, *name, None),
        [plural, name, part] => (*plural, *name, Some((*part).to_owned())),
        _ => return None,
    };
    let core_event = group.is_empty() && plural == "events";
    let kind = if core_event {
        Kind::find("events.k8s.io", version, plural)
    } else {
        let review = || {
            REVIEWS.iter().find(|kind| (kind.group, kind.version, kind.plural) == (group, version, plural))
        };
        Kind::find(group, version, plural).or_else(review)
    }?;
    if !kind.namespaced && !namespace.is_empty() {
        return None;
    }
    Some(Resource { kind, namespace: namespace.to_owned(), name: name.to_owned(), part, core_event })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(path: &str) -> Resource {
        match Route::parse(path) {
            Route::Resource(resource) => resource,
            Route::Other => panic!("{path} names nothing"),
        }
    }

    #[test]
    fn paths_name_what_they_do_on_real_servers() {
        let namespace = parsed("/api/v1/namespaces/kube-system");
        assert_eq!((namespace.kind.kind, namespace.name.as_str()), ("Namespace", "kube-system"));
        let secret = parsed("/api/v1/namespaces/a/secrets/b");
        assert_eq!((secret.namespace.as_str(), secret.name.as_str()), ("a", "b"));
        let status = parsed("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q/status");
        assert_eq!((status.kind.kind, status.part.as_deref()), ("ClusterQueue", Some("status")));
        assert!(parsed("/api/v1/namespaces/a/events").core_event);
        for path in [
            "/apis",
            "/apis/kueue.x-k8s.io",
            "/version",
            "/api/v1/unknowns",
            "/apis/kueue.x-k8s.io/v9/clusterqueues",
        ] {
            assert!(matches!(Route::parse(path), Route::Other), "{path}");
        }
    }
}
