//! Everything fedq writes to a cluster goes through [`Change`]: rendered once, sent with a deadline,
//! answered with the object as the server now has it.

use std::{fmt, sync::Arc, time::Duration};

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};

use super::client::{ApiError, call};

/// The kinds fedq writes.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    Namespace,
    Secret,
    ResourceFlavor,
    WorkloadPriorityClass,
    ClusterQueue,
    Cohort,
    LocalQueue,
    MultiKueueConfig,
    MultiKueueCluster,
    AdmissionCheck,
    Workload,
    Claim,
    ClusterMetrics,
    Placement,
    PlacementDecision,
    ManagedCluster,
    ManagedClusterSet,
    AddOnPlacementScore,
    Job,
    JobSet,
    AppWrapper,
    Service,
    VolumeClaim,
}

impl Kind {
    pub(crate) const fn group_path(self) -> &'static str {
        match self {
            Self::Namespace | Self::Secret | Self::Service | Self::VolumeClaim => "/api/v1",
            Self::ResourceFlavor
            | Self::WorkloadPriorityClass
            | Self::ClusterQueue
            | Self::Cohort
            | Self::LocalQueue
            | Self::MultiKueueConfig
            | Self::MultiKueueCluster
            | Self::AdmissionCheck
            | Self::Workload => "/apis/kueue.x-k8s.io/v1beta2",
            Self::Job => "/apis/batch/v1",
            Self::JobSet => "/apis/jobset.x-k8s.io/v1alpha2",
            Self::AppWrapper => "/apis/workload.codeflare.dev/v1beta2",
            Self::Claim | Self::ClusterMetrics => "/apis/galaxy.kubestellar.io/v1alpha1",
            Self::Placement | Self::PlacementDecision => "/apis/cluster.open-cluster-management.io/v1beta1",
            Self::ManagedCluster => "/apis/cluster.open-cluster-management.io/v1",
            Self::ManagedClusterSet => "/apis/cluster.open-cluster-management.io/v1beta2",
            Self::AddOnPlacementScore => "/apis/cluster.open-cluster-management.io/v1alpha1",
        }
    }

    pub const fn plural(self) -> &'static str {
        match self {
            Self::Namespace => "namespaces",
            Self::Secret => "secrets",
            Self::ResourceFlavor => "resourceflavors",
            Self::WorkloadPriorityClass => "workloadpriorityclasses",
            Self::ClusterQueue => "clusterqueues",
            Self::Cohort => "cohorts",
            Self::LocalQueue => "localqueues",
            Self::MultiKueueConfig => "multikueueconfigs",
            Self::MultiKueueCluster => "multikueueclusters",
            Self::AdmissionCheck => "admissionchecks",
            Self::Workload => "workloads",
            Self::Claim => "clusterresourceclaims",
            Self::ClusterMetrics => "clustermetrics",
            Self::Placement => "placements",
            Self::PlacementDecision => "placementdecisions",
            Self::ManagedCluster => "managedclusters",
            Self::ManagedClusterSet => "managedclustersets",
            Self::AddOnPlacementScore => "addonplacementscores",
            Self::Job => "jobs",
            Self::JobSet => "jobsets",
            Self::AppWrapper => "appwrappers",
            Self::Service => "services",
            Self::VolumeClaim => "persistentvolumeclaims",
        }
    }
}

const VERSION: &str = "metadata.resourceVersion";

/// Which object.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Target {
    pub kind: Kind,
    pub namespace: Option<String>,
    pub name: String,
    /// The status subresource, written apart from the object and so merged apart too.
    pub status: bool,
}

impl Target {
    pub fn cluster_scoped(kind: Kind, name: impl Into<String>) -> Self {
        Self { kind, namespace: None, name: name.into(), status: false }
    }

    pub fn namespaced(kind: Kind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind, namespace: Some(namespace.into()), name: name.into(), status: false }
    }

    pub fn status(kind: Kind, name: impl Into<String>) -> Self {
        Self { kind, namespace: None, name: name.into(), status: true }
    }

    pub fn status_within(kind: Kind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { status: true, ..Self::namespaced(kind, namespace, name) }
    }

    fn collection(&self) -> String {
        let group = self.kind.group_path();
        match &self.namespace {
            Some(namespace) => format!("{group}/namespaces/{namespace}/{}", self.kind.plural()),
            None => format!("{group}/{}", self.kind.plural()),
        }
    }

    fn path(&self) -> String {
        let status = if self.status { "/status" } else { "" };
        format!("{}/{}{status}", self.collection(), self.name)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.plural())?;
        if let Some(namespace) = &self.namespace {
            write!(f, " {namespace}/{}", self.name)
        } else {
            write!(f, " {}", self.name)
        }
    }
}

/// How an object is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Create(Value),
    /// JSON merge patch. With `metadata.resourceVersion` in it, the write is refused when somebody
    /// else wrote in between.
    Merge(Value),
    /// Server-side apply without force: somebody else's field is a conflict, never taken.
    Apply(Arc<Value>),
    /// Only the very object that was seen, as it was seen.
    Delete {
        uid: String,
        resource_version: String,
    },
    /// The very object that was seen, whatever it says by now, after all that it owns: as long as it is there,
    /// its pods may be.
    Withdraw {
        uid: String,
    },
}

/// One write that a decision still needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub target: Target,
    pub action: Action,
    pub manager: &'static str,
}

impl Change {
    pub fn verb(&self) -> &'static str {
        match self.action {
            Action::Create(_) => "create",
            Action::Merge(_) => "patch",
            Action::Apply(_) => "apply",
            Action::Delete { .. } | Action::Withdraw { .. } => "delete",
        }
    }

    pub fn creates(&self) -> bool {
        matches!(self.action, Action::Create(_))
    }

    /// A deleted object answers with a Status or its last state: the watch says that it is gone.
    pub fn is_deletion(&self) -> bool {
        matches!(self.action, Action::Delete { .. } | Action::Withdraw { .. })
    }

    /// The fields of a patch that the answer has otherwise: an API server leaves out what its definition of the kind
    /// does not know, and a webhook may put something else there, without a word in either case.
    pub fn not_taken(&self, answer: &Value) -> Vec<String> {
        let mut fields = Vec::new();
        if let Action::Merge(body) = &self.action {
            collect_differing(body, answer, "", &mut fields);
        }
        fields
    }

    /// Whether it is the same patch, whatever versions the two were decided from.
    pub fn asks_the_same(&self, other: &Self) -> bool {
        match (&self.action, &other.action) {
            (Action::Merge(ours), Action::Merge(theirs)) => {
                self.target == other.target && without_version(ours) == without_version(theirs)
            }
            _ => self == other,
        }
    }

    fn request(&self) -> Result<Request<Vec<u8>>, http::Error> {
        let manager = self.manager;
        let bytes = |value: &Value| value.to_string().into_bytes();
        match &self.action {
            Action::Create(body) => {
                Request::post(format!("{}?fieldManager={manager}", self.target.collection()))
                    .header("content-type", "application/json")
                    .body(bytes(body))
            }
            Action::Merge(body) => Request::patch(format!("{}?fieldManager={manager}", self.target.path()))
                .header("content-type", "application/merge-patch+json")
                .body(bytes(body)),
            Action::Apply(body) => Request::patch(format!("{}?fieldManager={manager}", self.target.path()))
                .header("content-type", "application/apply-patch+yaml")
                .body(bytes(body)),
            Action::Delete { uid, resource_version } => {
                self.deletion("Background", &json!({"uid": uid, "resourceVersion": resource_version}))
            }
            Action::Withdraw { uid } => self.deletion("Foreground", &json!({"uid": uid})),
        }
    }

    fn deletion(&self, propagation: &str, preconditions: &Value) -> Result<Request<Vec<u8>>, http::Error> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation,
            "preconditions": preconditions,
        });
        Request::builder()
            .method(Method::DELETE)
            .uri(self.target.path())
            .header("content-type", "application/json")
            .body(options.to_string().into_bytes())
    }
}

fn collect_differing(asked: &Value, answered: &Value, path: &str, fields: &mut Vec<String>) {
    match asked {
        Value::Object(asked) => {
            for (name, value) in asked {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                if path != VERSION {
                    collect_differing(value, answered.get(name).unwrap_or(&Value::Null), &path, fields);
                }
            }
        }
        // Taken away, and perhaps filled in with what it is by default.
        Value::Null => {}
        Value::Array(asked) if answered.as_array().is_some_and(|answered| answered.len() == asked.len()) => {
            for (index, asked) in asked.iter().enumerate() {
                collect_differing(asked, &answered[index], &format!("{path}[{index}]"), fields);
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            if asked != answered {
                fields.push(path.to_owned());
            }
        }
    }
}

fn without_version(body: &Value) -> Value {
    let mut body = body.clone();
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    body
}

/// Sends one change. The answer is the object as the server has it afterwards.
pub async fn send(client: &Client, change: &Change, deadline: Duration) -> Result<Value, ApiError> {
    let request = change.request().expect("names were checked, so the path is a URI");
    call(deadline, client.request::<Value>(request)).await
}

/// The object as it is now, or that there is none, by the right to list: fedq may not get what it writes.
pub async fn look(client: &Client, target: &Target, deadline: Duration) -> Result<Option<Value>, ApiError> {
    let uri = format!("{}?fieldSelector=metadata.name%3D{}", target.collection(), target.name);
    let request = Request::get(uri).body(Vec::new()).expect("names were checked, so the path is a URI");
    let mut list = call(deadline, client.request::<Value>(request)).await?;
    let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    Ok(items.into_iter().find(|item| item["metadata"]["name"] == target.name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_the_object_and_the_manager() {
        let change = Change {
            target: Target::namespaced(Kind::LocalQueue, "team-a", "main"),
            action: Action::Create(json!({"kind": "LocalQueue"})),
            manager: "fedq-queue",
        };
        let request = change.request().expect("a request");
        assert_eq!(
            request.uri(),
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/localqueues?fieldManager=fedq-queue"
        );

        let change = Change {
            target: Target::status(Kind::Claim, "c"),
            action: Action::Apply(json!({}).into()),
            manager: "fedq-status",
        };
        let request = change.request().expect("a request");
        assert_eq!(request.method(), Method::PATCH);
        assert_eq!(
            request.uri(),
            "/apis/galaxy.kubestellar.io/v1alpha1/clusterresourceclaims/c/status?fieldManager=fedq-status"
        );
    }

    #[test]
    fn what_of_a_patch_was_not_taken_is_named() {
        let patch = |version: &str, weight: &str| Change {
            target: Target::cluster_scoped(Kind::ClusterQueue, "q"),
            action: Action::Merge(json!({
                "metadata": {"resourceVersion": version, "labels": {"a": "b", "old": null}},
                "spec": {"stopPolicy": null, "fairSharing": {"weight": weight}, "groups": [{"a": 1}]},
            })),
            manager: "fedq-quota",
        };
        let stored = json!({
            "metadata": {"resourceVersion": "8", "labels": {"a": "b"}},
            "spec": {"stopPolicy": "None", "fairSharing": {"weight": "2"}, "groups": [{"a": 1}]},
        });
        assert!(patch("7", "2").not_taken(&stored).is_empty());
        assert_eq!(patch("7", "3").not_taken(&stored), ["spec.fairSharing.weight"]);
        let older = json!({"metadata": {"resourceVersion": "8"}, "spec": {"groups": [{}]}});
        let lacking = ["metadata.labels.a", "spec.fairSharing.weight", "spec.groups[0].a"];
        assert_eq!(patch("7", "2").not_taken(&older), lacking);

        let filled_in = json!({"a": 1, "by-default": true});
        let mut newer = stored.clone();
        newer["spec"]["groups"] = json!([filled_in.clone()]);
        assert!(patch("7", "2").not_taken(&newer).is_empty());
        newer["spec"]["groups"] = json!([filled_in, {}]);
        assert_eq!(patch("7", "2").not_taken(&newer), ["spec.groups"]);

        assert!(patch("7", "2").asks_the_same(&patch("8", "2")));
        assert!(!patch("7", "2").asks_the_same(&patch("7", "3")));
    }

    #[test]
    fn a_delete_names_the_object_that_was_seen() {
        let change = Change {
            target: Target::cluster_scoped(Kind::ClusterQueue, "q"),
            action: Action::Delete { uid: "u".into(), resource_version: "7".into() },
            manager: "fedq-quota",
        };
        let body: Value = serde_json::from_slice(change.request().expect("a request").body()).expect("JSON");
        assert_eq!(body["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));

        let change = Change {
            target: Target::namespaced(Kind::Job, "team", "train"),
            action: Action::Withdraw { uid: "u".into() },
            manager: "fedq-task",
        };
        let request = change.request().expect("a request");
        assert_eq!(request.uri(), "/apis/batch/v1/namespaces/team/jobs/train");
        let body: Value = serde_json::from_slice(request.body()).expect("JSON");
        assert_eq!(body["preconditions"], json!({"uid": "u"}));
        assert_eq!(body["propagationPolicy"], "Foreground");
    }
}
