//! Which requests people may have forwarded to a cluster's API server: those that kueue's commands make, and no others. A path is read
//! as the server will read it, or refused: what is asked of the authorizer is what is forwarded.

use http::Method;
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, ResourceAttributes};

use crate::session::reviews::Question;
use fedq_domain::claim::EDIT_MANAGER;

const READ: &[&str] = &["get", "list", "watch"];
const QUEUE: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];
/// Kueue makes them, of jobs.
const WORKLOAD: &[&str] = &["get", "list", "watch", "update", "patch", "delete"];
/// Moved to other clusters as well.
const MOVABLE: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
/// Deleted with their Workloads, and moved by their label.
const JOB: &[&str] = &["get", "list", "watch", "patch", "delete"];

const KUEUE: &str = "kueue.x-k8s.io";
const VISIBILITY: &str = "visibility.kueue.x-k8s.io";
const PENDING: &str = "pendingworkloads";

/// Group, resource, whether it is in namespaces, and what may be done with it.
type Kind = (&'static str, &'static str, bool, &'static [&'static str]);

const KINDS: [Kind; 28] = [
    (KUEUE, "clusterqueues", false, QUEUE),
    (KUEUE, "localqueues", true, QUEUE),
    (KUEUE, "resourceflavors", false, QUEUE),
    (KUEUE, "workloads", true, WORKLOAD),
    ("", "events", true, READ),
    ("", "namespaces", false, READ),
    ("", "pods", true, JOB),
    ("apps", "deployments", true, JOB),
    ("apps", "statefulsets", true, JOB),
    ("batch", "jobs", true, MOVABLE),
    ("jobset.x-k8s.io", "jobsets", true, MOVABLE),
    ("kubeflow.org", "jaxjobs", true, JOB),
    ("kubeflow.org", "mpijobs", true, JOB),
    ("kubeflow.org", "paddlejobs", true, JOB),
    ("kubeflow.org", "pytorchjobs", true, JOB),
    ("kubeflow.org", "tfjobs", true, JOB),
    ("kubeflow.org", "xgboostjobs", true, JOB),
    ("leaderworkerset.x-k8s.io", "leaderworkersets", true, JOB),
    ("ray.io", "rayclusters", true, JOB),
    ("ray.io", "rayjobs", true, JOB),
    ("ray.io", "rayservices", true, JOB),
    ("sparkoperator.k8s.io", "sparkapplications", true, JOB),
    ("trainer.kubeflow.org", "trainjobs", true, JOB),
    ("workload.codeflare.dev", "appwrappers", true, JOB),
    // With `pendingworkloads` only.
    (VISIBILITY, "clusterqueues", false, &["get"]),
    (VISIBILITY, "localqueues", true, &["get"]),
    ("events.k8s.io", "events", true, READ),
    ("apps", "replicasets", true, READ),
];

/// What a query may say. What Kubernetes does not know is not forwarded, since a later version may.
const PARAMETERS: [&str; 16] = [
    "allowWatchBookmarks",
    "continue",
    "dryRun",
    "fieldManager",
    "fieldSelector",
    "fieldValidation",
    "gracePeriodSeconds",
    "labelSelector",
    "limit",
    "pretty",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "timeout",
    "timeoutSeconds",
    "watch",
];

/// How long a watch lasts at most: after that, rights are asked for again.
const LONGEST_WATCH: u32 = 300;

/// A request that may be forwarded, once the authorizer agrees.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Wanted {
    pub verb: &'static str,
    pub target: Target,
    pub watches: bool,
    pub dry_run: bool,
    /// With its query, as it is forwarded.
    pub path: String,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Target {
    Object {
        group: &'static str,
        version: String,
        resource: &'static str,
        subresource: Option<&'static str>,
        namespace: Option<String>,
        name: Option<String>,
    },
    /// Of discovery.
    Path(String),
}

/// Why a request is not forwarded.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unwanted {
    #[error("the path is not written as Kubernetes' API has it: {0}")]
    Path(&'static str),
    #[error("{0} is not what kueue's commands ask of a cluster")]
    Kind(String),
    #[error("the parameter `{0}` is not forwarded, or not with this value, or not twice")]
    Parameter(String),
}

impl Wanted {
    /// Reads a request. `path` and `query` are as they came, with all that is escaped in them.
    pub fn read(method: &Method, path: &str, query: Option<&str>) -> Result<Self, Unwanted> {
        let segments = segments(path)?;
        let parameters = Parameters::read(query.unwrap_or_default())?;
        let (verb, target) = if is_discovery(&segments) {
            if method != Method::GET {
                return Err(Unwanted::Kind(format!("{method} {path}")));
            }
            ("get", Target::Path(path.to_owned()))
        } else {
            object(method, &segments, &parameters)?
        };
        if parameters.watches && verb != "watch" {
            return Err(Unwanted::Parameter("watch".to_owned()));
        }
        let query = parameters.render(verb);
        let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        Ok(Self { verb, target, watches: verb == "watch", dry_run: parameters.dry_run, path })
    }

    pub fn writes(&self) -> bool {
        !READ.contains(&self.verb)
    }

    pub(super) fn question(&self) -> Question {
        match &self.target {
            Target::Path(path) => Question::Path(NonResourceAttributes {
                path: Some(path.clone()),
                verb: Some(self.verb.to_owned()),
            }),
            Target::Object { group, version, resource, subresource, namespace, name } => {
                Question::Resource(Box::new(ResourceAttributes {
                    group: Some((*group).to_owned()),
                    version: Some(version.clone()),
                    resource: Some((*resource).to_owned()),
                    subresource: subresource.map(str::to_owned),
                    verb: Some(self.verb.to_owned()),
                    namespace: namespace.clone(),
                    name: name.clone(),
                    ..ResourceAttributes::default()
                }))
            }
        }
    }
}

impl std::fmt::Display for Target {
    /// `localqueues.kueue.x-k8s.io/team/main`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => f.write_str(path),
            Self::Object { group, resource, subresource, namespace, name, .. } => {
                f.write_str(resource)?;
                if !group.is_empty() {
                    write!(f, ".{group}")?;
                }
                for part in namespace.iter().chain(name) {
                    write!(f, "/{part}")?;
                }
                subresource.map_or(Ok(()), |subresource| write!(f, "/{subresource}"))
            }
        }
    }
}

/// The parts of a path between its slashes. Nothing is escaped, empty, or a step up: the server could read such a path otherwise.
fn segments(path: &str) -> Result<Vec<&str>, Unwanted> {
    /// Five kinds of parts of up to 253 letters.
    const LONGEST: usize = 1500;
    let rest = path.strip_prefix('/').ok_or(Unwanted::Path("it begins with no slash"))?;
    if LONGEST < path.len() {
        return Err(Unwanted::Path("it is too long"));
    }
    let segments: Vec<&str> = rest.split('/').collect();
    for segment in &segments {
        if segment.is_empty() {
            return Err(Unwanted::Path("two slashes stand together, or one at its end"));
        }
        let plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        if !segment.bytes().all(plain) {
            return Err(Unwanted::Path("only lower case letters, digits, `-` and `.` stand between slashes"));
        }
        if segment.starts_with(['-', '.']) || segment.ends_with(['-', '.']) {
            return Err(Unwanted::Path("a part begins or ends with `-` or `.`"));
        }
    }
    Ok(segments)
}

fn is_discovery(segments: &[&str]) -> bool {
    match segments {
        ["version" | "api" | "apis"] | ["openapi", "v3"] => true,
        ["apis", group] => !is_version(group),
        ["api", version]
        | ["apis", _, version]
        | ["openapi", "v3", "api", version]
        | ["openapi", "v3", "apis", _, version] => is_version(version),
        _ => false,
    }
}

/// `v1`, `v1beta2`.
fn is_version(text: &str) -> bool {
    text.strip_prefix('v').is_some_and(|rest| {
        rest.starts_with(|letter: char| letter.is_ascii_digit())
            && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    })
}

fn object(
    method: &Method,
    segments: &[&str],
    parameters: &Parameters,
) -> Result<(&'static str, Target), Unwanted> {
    let unknown = || Unwanted::Kind(format!("{method} /{}", segments.join("/")));
    let (group, version, rest) = match segments {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Err(unknown()),
    };
    let (namespace, resource, rest) = match rest {
        ["namespaces", namespace, resource, rest @ ..] => (Some((*namespace).to_owned()), *resource, rest),
        [resource, rest @ ..] => (None, *resource, rest),
        [] => return Err(unknown()),
    };
    let (name, subresource) = match rest {
        [] => (None, None),
        [name] => (Some((*name).to_owned()), None),
        [name, PENDING] if group == VISIBILITY => (Some((*name).to_owned()), Some(PENDING)),
        _ => return Err(unknown()),
    };
    let kind = KINDS.iter().find(|kind| (kind.0, kind.1) == (group, resource)).ok_or_else(unknown)?;
    let &(group, resource, namespaced, verbs) = kind;
    let verb = match (method.as_str(), name.is_some()) {
        ("GET", true) => "get",
        ("GET", false) if parameters.watches => "watch",
        ("GET", false) => "list",
        ("POST", false) => "create",
        ("PUT", true) => "update",
        ("PATCH", true) => "patch",
        ("DELETE", true) => "delete",
        _ => return Err(unknown()),
    };
    // Without a namespace, objects in namespaces are only listed.
    let placed = if namespaced {
        namespace.is_some() || name.is_none() && verb != "create"
    } else {
        namespace.is_none()
    };
    let sub = (group == VISIBILITY) == subresource.is_some();
    if !is_version(version) || !verbs.contains(&verb) || !placed || !sub {
        return Err(unknown());
    }
    // As Kubernetes itself asks: a Namespace is in itself, and a selector of one name is that name.
    let namespace = if resource == "namespaces" { name.clone() } else { namespace };
    let name = name.or_else(|| parameters.only_name.clone());
    let version = version.to_owned();
    Ok((verb, Target::Object { group, version, resource, subresource, namespace, name }))
}

#[derive(Debug, Default)]
struct Parameters {
    /// As they came, without those that are set here.
    kept: Vec<String>,
    watches: bool,
    dry_run: bool,
    only_name: Option<String>,
    timeout: Option<u32>,
}

impl Parameters {
    fn read(query: &str) -> Result<Self, Unwanted> {
        let mut read = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let wrong = || Unwanted::Parameter(key.chars().take(80).collect());
            // Go leaves out a pair that holds a semicolon.
            let odd = |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b';' | b'"' | b'\\');
            if !PARAMETERS.contains(&key) || seen.contains(&key) || value.bytes().any(odd) {
                return Err(wrong());
            }
            seen.push(key);
            match (key, value) {
                ("watch", "true" | "1") => read.watches = true,
                ("watch", "false" | "0") => {}
                ("dryRun", "All") => read.dry_run = true,
                ("watch" | "dryRun", _) => return Err(wrong()),
                ("timeoutSeconds", _) => read.timeout = Some(value.parse().map_err(|_| wrong())?),
                // fedqd says who writes.
                ("fieldManager", _) => continue,
                ("fieldSelector", _) => read.only_name = only_name(value),
                _ => {}
            }
            if key != "timeoutSeconds" {
                read.kept.push(pair.to_owned());
            }
        }
        Ok(read)
    }

    fn render(&self, verb: &str) -> String {
        let mut pairs = self.kept.clone();
        if ["create", "update", "patch"].contains(&verb) {
            pairs.push(format!("fieldManager={EDIT_MANAGER}"));
        }
        if verb == "watch" {
            let timeout = self.timeout.unwrap_or(LONGEST_WATCH).clamp(1, LONGEST_WATCH);
            pairs.push(format!("timeoutSeconds={timeout}"));
        }
        pairs.join("&")
    }
}

/// The name in `metadata.name=NAME`, where nothing else is selected.
fn only_name(selector: &str) -> Option<String> {
    let name = ["metadata.name=", "metadata.name%3D", "metadata.name%3d"]
        .into_iter()
        .find_map(|prefix| selector.strip_prefix(prefix))?;
    segments(&format!("/{name}")).ok().filter(|parts| parts.len() == 1).map(|_| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Wanted, Unwanted> {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        Wanted::read(&method.parse().expect("a method"), path, query)
    }

    #[test]
    fn what_kueues_commands_ask_is_read_as_kubernetes_reads_it() {
        for (line, said) in [
            ("GET /apis/kueue.x-k8s.io/v1beta2/clusterqueues?limit=100", "list clusterqueues.kueue.x-k8s.io"),
            ("GET /apis/kueue.x-k8s.io/v1beta2/clusterqueues/a", "get clusterqueues.kueue.x-k8s.io/a"),
            ("GET /apis/kueue.x-k8s.io/v1beta2/workloads?watch=true", "watch workloads.kueue.x-k8s.io"),
            ("GET /apis/kueue.x-k8s.io/v1beta2/workloads?watch=0", "list workloads.kueue.x-k8s.io"),
            (
                "POST /apis/kueue.x-k8s.io/v1beta2/namespaces/team/localqueues?dryRun=All",
                "create localqueues.kueue.x-k8s.io/team",
            ),
            (
                "PATCH /apis/kueue.x-k8s.io/v1beta1/namespaces/team/workloads/w",
                "patch workloads.kueue.x-k8s.io/team/w",
            ),
            ("PUT /apis/kueue.x-k8s.io/v1beta2/resourceflavors/f", "update resourceflavors.kueue.x-k8s.io/f"),
            ("DELETE /apis/batch/v1/namespaces/team/jobs/j", "delete jobs.batch/team/j"),
            ("POST /apis/batch/v1/namespaces/team/jobs", "create jobs.batch/team"),
            ("GET /api/v1/namespaces/team", "get namespaces/team/team"),
            ("GET /api/v1/namespaces/team/pods", "list pods/team"),
            ("GET /api/v1/pods?fieldSelector=metadata.name%3Dp", "list pods/p"),
            (
                "GET /apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/a/pendingworkloads",
                "get clusterqueues.visibility.kueue.x-k8s.io/a/pendingworkloads",
            ),
            ("GET /version", "get /version"),
            ("GET /apis?timeout=32s", "get /apis"),
            ("GET /apis/kueue.x-k8s.io/v1beta2", "get /apis/kueue.x-k8s.io/v1beta2"),
            ("GET /openapi/v3/apis/kueue.x-k8s.io/v1beta2", "get /openapi/v3/apis/kueue.x-k8s.io/v1beta2"),
        ] {
            let wanted = read(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(format!("{} {}", wanted.verb, wanted.target), said, "{line}");
        }
    }

    #[test]
    fn nothing_else_is_forwarded() {
        for line in [
            // Other kinds, and other things to do with these.
            "GET /api/v1/secrets",
            "GET /api/v1/namespaces/team/secrets/s",
            "GET /api/v1/namespaces/team/configmaps",
            "GET /api/v1/nodes",
            "POST /api/v1/namespaces/team/pods",
            "POST /apis/batch/v1/jobs",
            "POST /apis/ray.io/v1/namespaces/team/rayjobs",
            "POST /api/v1/namespaces/team/pods",
            "POST /api/v1/namespaces",
            "DELETE /api/v1/namespaces/team",
            "PUT /api/v1/namespaces/team/finalize",
            "POST /apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads",
            "DELETE /apis/kueue.x-k8s.io/v1beta2/clusterqueues",
            "DELETE /apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads",
            "PATCH /apis/kueue.x-k8s.io/v1beta2/clusterqueues",
            "POST /apis/kueue.x-k8s.io/v1beta2/clusterqueues/a",
            "HEAD /apis/kueue.x-k8s.io/v1beta2/clusterqueues",
            "OPTIONS /api",
            "POST /version",
            // Subresources, above all those that enter a pod.
            "POST /api/v1/namespaces/team/pods/p/exec",
            "GET /api/v1/namespaces/team/pods/p/exec?command=sh",
            "GET /api/v1/namespaces/team/pods/p/attach",
            "POST /api/v1/namespaces/team/pods/p/portforward",
            "GET /api/v1/namespaces/team/pods/p/log",
            "GET /api/v1/namespaces/team/pods/p/proxy/x",
            "POST /api/v1/namespaces/team/pods/p/eviction",
            "POST /api/v1/namespaces/team/serviceaccounts/a/token",
            "PATCH /apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/w/status",
            "GET /apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/a",
            "GET /apis/kueue.x-k8s.io/v1beta2/clusterqueues/a/pendingworkloads",
            // The scope of another kind.
            "GET /apis/kueue.x-k8s.io/v1beta2/namespaces/team/clusterqueues/a",
            "GET /apis/kueue.x-k8s.io/v1beta2/localqueues/a",
            "POST /apis/kueue.x-k8s.io/v1beta2/localqueues",
            // Paths that could be read in two ways.
            "GET api/v1/pods",
            "GET /",
            "GET //api/v1/pods",
            "GET /api//v1/pods",
            "GET /api/v1/pods/",
            "GET /api/v1/namespaces/../secrets",
            "GET /api/v1/namespaces/./pods",
            "GET /api/v1/namespaces/team/pods/..",
            "GET /api/v1/namespaces/team%2fsecrets/pods",
            "GET /api/v1/namespaces/team%2F..%2F..%2Fsecrets",
            "GET /api/v1/%2e%2e/pods",
            "GET /api/v1/namespaces/team/pods/p%00",
            "GET /api/v1/namespaces/team/pods/p;x=y",
            "GET /api/v1/namespaces/team/pods/p\\x",
            "GET /api/v1/namespaces/Team/pods",
            "GET /api/v1/watch/pods",
            "GET /apis/v1/pods",
            "GET /apis/kueue.x-k8s.io/clusterqueues/a",
            "GET /healthz",
            "GET /metrics",
            "GET /logs/kube-apiserver.log",
            "GET /openapi/v2",
            "GET /.well-known/openid-configuration",
            // Queries.
            "GET /api/v1/pods?watch=yes",
            "GET /api/v1/pods?watch=true&watch=false",
            "GET /api/v1/pods?w%61tch=true",
            "GET /api/v1/namespaces/team/pods/p?watch=true",
            "GET /api/v1/pods?follow=true",
            "GET /api/v1/pods?limit=1;watch=true",
            "PATCH /apis/kueue.x-k8s.io/v1beta2/clusterqueues/a?dryRun=Some",
            "PATCH /apis/kueue.x-k8s.io/v1beta2/clusterqueues/a?force=true",
            "GET /api/v1/pods?timeoutSeconds=-1",
            "GET /apis?watch=true",
        ] {
            assert!(read(line).is_err(), "{line}: {:?}", read(line));
        }
        let long = format!("GET /api/v1/namespaces/{}/pods", "a".repeat(1500));
        assert!(read(&long).is_err());
    }

    #[test]
    fn fedqd_says_who_writes_and_how_long_a_watch_lasts() {
        let path = |line: &str| read(line).expect("wanted").path;
        let queue = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues";
        assert_eq!(
            path(&format!("PATCH {queue}/a?fieldManager=fedq-quota&dryRun=All")),
            format!("{queue}/a?dryRun=All&fieldManager=fedq-edit")
        );
        assert_eq!(path(&format!("DELETE {queue}/a")), format!("{queue}/a"));
        for (asked, lasts) in [("", 300), ("&timeoutSeconds=86400", 300), ("&timeoutSeconds=0", 1)] {
            let path = path(&format!("GET {queue}?watch=true{asked}"));
            assert_eq!(path, format!("{queue}?watch=true&timeoutSeconds={lasts}"));
        }
        assert_eq!(
            path(&format!("GET {queue}?labelSelector=a%3Db%2Cc")),
            format!("{queue}?labelSelector=a%3Db%2Cc")
        );
    }

    /// Where the two differ, fedqd has rights that it has no use for, or answers that it lacks one.
    #[test]
    fn fedqd_gets_the_rights_for_what_passes_and_no_others() {
        let file = include_str!("../../../deploy/worker/kueuectl.yaml");
        let role: serde_json::Value =
            serde_saphyr::from_str(file.split("\n---\n").next().expect("a document")).expect("YAML");
        let texts = |value: &serde_json::Value| -> Vec<String> {
            serde_json::from_value(value.clone()).expect("texts")
        };
        let mut granted = Vec::new();
        for rule in role["rules"].as_array().expect("rules") {
            for resource in texts(&rule["resources"]) {
                granted.push((texts(&rule["apiGroups"])[0].clone(), resource, texts(&rule["verbs"])));
            }
        }
        granted.retain(|(group, ..)| group != "authorization.k8s.io");
        let mut needed: Vec<_> = KINDS
            .iter()
            .map(|&(group, resource, _, verbs)| {
                let sub = if group == VISIBILITY { "/pendingworkloads" } else { "" };
                let verbs = verbs.iter().map(|&verb| verb.to_owned()).collect();
                (group.to_owned(), format!("{resource}{sub}"), verbs)
            })
            .collect();
        granted.sort();
        needed.sort();
        assert_eq!(granted, needed);
    }

    #[test]
    fn no_kind_stands_there_twice() {
        for (at, kind) in KINDS.iter().enumerate() {
            assert!(KINDS[..at].iter().all(|other| (other.0, other.1) != (kind.0, kind.1)), "{kind:?}");
        }
    }
}
