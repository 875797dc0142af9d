//! What fedq may do on a cluster, by Kubernetes' RBAC: one list for the manifests under `deploy` and for
//! `fedq check`.

use super::hub::ocm::{PLACEMENT_LEASE, REGISTRATION_LEASE};
use super::join_token::SERVICE_ACCOUNT;
use fedq_domain::task::runtime::{FEDQS_LEASE, UPSTREAMS_LEASE};

/// One rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Right {
    pub group: &'static str,
    /// With its subresource, if any: `clusterresourceclaims/status`.
    pub resource: &'static str,
    pub verbs: &'static [&'static str],
    /// Only this object.
    pub name: Option<&'static str>,
    pub scope: Scope,
    /// What does not work without it.
    pub serves: &'static str,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    Cluster,
    /// fedq's own namespace.
    Own,
    /// Kueue's namespace.
    Kueue,
    /// That of fedq's account on a worker.
    Account,
}

/// Where Kueue's own manifests put it, and its Deployment.
pub const KUEUE_NAMESPACE: &str = "kueue-system";
pub const KUEUE_DEPLOYMENT: &str = "kueue-controller-manager";

const FOLLOW: &[&str] = &["list", "watch"];
const OWN: &[&str] = &["list", "watch", "create", "patch", "delete"];
const TASKS: &[&str] = &["list", "watch", "create", "delete"];
const KUEUE: &str = "kueue.x-k8s.io";

const fn right(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    serves: &'static str,
) -> Right {
    Right { group, resource, verbs, name: None, scope: Scope::Cluster, serves }
}

/// On a worker.
pub const WORKER: &[Right] = &[
    right("", "nodes", FOLLOW, "its capacity"),
    right(
        "",
        "namespaces",
        &["get", "list", "watch", "create", "patch"],
        "its identity and its queues' namespaces",
    ),
    right(KUEUE, "clusterqueues", OWN, "its quota"),
    right(KUEUE, "localqueues", OWN, "its LocalQueues"),
    right(KUEUE, "resourceflavors", OWN, "its flavors"),
    right(KUEUE, "workloadpriorityclasses", OWN, "its priority classes"),
    right(KUEUE, "workloads", FOLLOW, "telling apart what the hub did not send there"),
    right(KUEUE, "cohorts", FOLLOW, "seeing quota outside its queues"),
    right(KUEUE, "topologies", FOLLOW, "seeing which flavors cannot work"),
    right(KUEUE, "admissionchecks", FOLLOW, "copying admission checks"),
    right("batch", "jobs", TASKS, "running tasks"),
    right("batch", "jobs/finalizers", &["update"], "letting what a task needs go with it"),
    right("jobset.x-k8s.io", "jobsets", TASKS, "running tasks of several nodes"),
    right("jobset.x-k8s.io", "jobsets/finalizers", &["update"], "letting what a task needs go with it"),
    right("workload.codeflare.dev", "appwrappers", TASKS, "running AppWrappers"),
    right(
        "workload.codeflare.dev",
        "appwrappers/finalizers",
        &["update"],
        "letting what a task needs go with it",
    ),
    NAMES_USERS,
    Right {
        name: Some(UPSTREAMS_LEASE),
        ..right("coordination.k8s.io", "leases", &["list"], "telling who runs AppWrappers")
    },
    Right {
        name: Some(FEDQS_LEASE),
        ..right("coordination.k8s.io", "leases", &["list"], "telling who runs AppWrappers")
    },
    right("", "pods", FOLLOW, "seeing how tasks do"),
    right("", "events", &["list"], "telling why pods of tasks are not made"),
    right("", "pods/log", &["get"], "the logs of tasks"),
    right("", "services", &["create"], "names by which the nodes of a task find each other"),
    right("", "secrets", &["create"], "the secrets of tasks"),
    right("", "persistentvolumeclaims", TASKS, "volumes of tasks"),
    TOKEN,
    Right {
        name: Some(KUEUE_DEPLOYMENT),
        ..right("apps", "deployments", &["get"], "telling Kueue's release")
    },
];

/// Asked by fedq-appwrapper, which otherwise names fedq's own account. No namespaces: it holds for the whole cluster.
const NAMES_USERS: Right = right(
    "workload.codeflare.dev",
    "appwrappers/user",
    &["create"],
    "saying in whose name AppWrappers are made",
);

/// Needed only where fedq joined as that account.
pub const TOKEN: Right = Right {
    scope: Scope::Account,
    name: Some(SERVICE_ACCOUNT),
    ..right("", "serviceaccounts/token", &["create"], "a new token before the one it joined with ends")
};

const OCM: &str = "cluster.open-cluster-management.io";
const GALAXY: &str = "galaxy.kubestellar.io";
/// The ValidatingWebhookConfiguration, into which fedqd puts its authority.
pub const WEBHOOK_CONFIGURATION: &str = "fedq";
/// The ConfigMap with the authority of fedqd's certificate.
pub const AUTHORITY: &str = "fedq-ca";

/// On the hub, for fedqd itself; people's own edits are made as those people.
pub const HUB: &[Right] = &[
    right(GALAXY, "clusterresourceclaims", &["get", "list", "watch", "create", "patch", "delete"], "claims"),
    right(GALAXY, "clusterresourceclaims/status", &["patch"], "the status of claims"),
    right(GALAXY, "clustermetrics", OWN, "clusters that only report"),
    right(GALAXY, "clustermetrics/status", &["patch"], "publishing capacity"),
    right(OCM, "managedclusters", OWN, "OCM's word on clusters, and ours where OCM is not"),
    right(OCM, "managedclusters/status", &["patch"], "what Placements choose clusters by"),
    right(
        OCM,
        "managedclustersets",
        &["list", "watch", "create"],
        "which clusters a Placement may choose from",
    ),
    right(OCM, "managedclustersetbindings", FOLLOW, "which clusters a Placement may choose from"),
    right(OCM, "placements", FOLLOW, "what Placements ask for"),
    right(OCM, "placementdecisions", OWN, "what Placements decided"),
    right(OCM, "placementdecisions/status", &["patch"], "deciding Placements"),
    right(OCM, "placements/status", &["patch"], "the status of Placements"),
    right(OCM, "addonplacementscores", OWN, "choosing clusters by scores"),
    right(OCM, "addonplacementscores/status", &["patch"], "scores of joined clusters"),
    Right {
        name: Some(PLACEMENT_LEASE),
        ..right("coordination.k8s.io", "leases", FOLLOW, "seeing OCM decide Placements")
    },
    Right {
        name: Some(REGISTRATION_LEASE),
        ..right("coordination.k8s.io", "leases", FOLLOW, "seeing OCM register clusters")
    },
    right(KUEUE, "clusterqueues", &["get", "list", "watch", "patch"], "quota"),
    right(KUEUE, "localqueues", FOLLOW, "copying queues"),
    right(KUEUE, "resourceflavors", FOLLOW, "copying flavors"),
    right(KUEUE, "workloadpriorityclasses", FOLLOW, "copying priority classes"),
    right(KUEUE, "cohorts", OWN, "holding the quota of queues that are kept elsewhere"),
    right(KUEUE, "admissionchecks", FOLLOW, "seeing which queues dispatch"),
    right(KUEUE, "admissionchecks/status", &["patch"], "answering admission checks of Placements"),
    right(KUEUE, "multikueueconfigs", OWN, "configuring MultiKueue from Placements"),
    right(KUEUE, "multikueueclusters", OWN, "configuring MultiKueue from Placements"),
    right(KUEUE, "workloads", FOLLOW, "seeing where Workloads run"),
    right(KUEUE, "workloads/status", &["patch"], "answering admission checks of Placements"),
    right(
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicies",
        FOLLOW,
        "nominating clusters for Workloads",
    ),
    Right { scope: Scope::Kueue, ..right("", "secrets", OWN, "Kueue's credentials for clusters") },
    Right {
        scope: Scope::Kueue,
        name: Some(KUEUE_DEPLOYMENT),
        ..right("apps", "deployments", &["get"], "telling Kueue's release")
    },
    Right {
        scope: Scope::Kueue,
        ..right("multicluster.x-k8s.io", "clusterprofiles", FOLLOW, "clusters that Kueue reaches by itself")
    },
    right(
        "",
        "namespaces",
        &["get", "list", "watch", "create"],
        "identity, queues' namespaces, and one a cluster for scores",
    ),
    Right { scope: Scope::Own, ..right("", "namespaces", &["patch"], "answered confirmations") },
    Right {
        scope: Scope::Own,
        ..right("", "secrets", &["get", "list", "watch", "create", "patch", "delete"], "joined clusters")
    },
    Right { scope: Scope::Own, ..right("", "configmaps", &["create"], "the authority for `fedq login`") },
    Right {
        scope: Scope::Own,
        name: Some(AUTHORITY),
        ..right("", "configmaps", &["get", "patch"], "the authority for `fedq login`")
    },
    Right {
        scope: Scope::Own,
        ..right("multicluster.x-k8s.io", "clusterprofiles", FOLLOW, "clusters that a cluster manager knows")
    },
    right("batch", "jobs", TASKS, "tasks that MultiKueue dispatches"),
    right("jobset.x-k8s.io", "jobsets", TASKS, "tasks that MultiKueue dispatches"),
    right("workload.codeflare.dev", "appwrappers", TASKS, "AppWrappers that MultiKueue dispatches"),
    NAMES_USERS,
    right("", "events", &["create", "patch"], "events on claims"),
    right("events.k8s.io", "events", &["create", "patch"], "events on claims"),
    right("authentication.k8s.io", "tokenreviews", &["create"], "knowing callers"),
    right("authorization.k8s.io", "subjectaccessreviews", &["create"], "what callers may see"),
    right("", "users", &["impersonate"], "edits as the person who asks"),
    right("", "groups", &["impersonate"], "edits as the person who asks"),
    right("", "serviceaccounts", &["impersonate"], "edits as the program that asks"),
    right("authentication.k8s.io", "uids", &["impersonate"], "edits as the person who asks"),
    extra("userextras/authentication.kubernetes.io/credential-id"),
    extra("userextras/authentication.kubernetes.io/node-name"),
    extra("userextras/authentication.kubernetes.io/node-uid"),
    extra("userextras/authentication.kubernetes.io/pod-name"),
    extra("userextras/authentication.kubernetes.io/pod-uid"),
    extra("userextras/scopes"),
    Right {
        name: Some(WEBHOOK_CONFIGURATION),
        ..right(
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            &["get", "patch"],
            "the webhook's certificate",
        )
    },
];

/// RBAC has no pattern for these: each key that tokens of the hub carry is named.
const fn extra(resource: &'static str) -> Right {
    right("authentication.k8s.io", resource, &["impersonate"], "edits as the person who asks")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    /// (scope, group, resource, name, verb)
    type Grant = (String, String, String, String, String);

    fn wanted(rights: &[Right]) -> BTreeSet<Grant> {
        let grants = rights.iter().flat_map(|right| {
            let scope = match right.scope {
                Scope::Cluster => "",
                Scope::Own | Scope::Account => "fedq-system",
                Scope::Kueue => KUEUE_NAMESPACE,
            };
            // Of its own namespace object, which is no namespaced thing.
            let (scope, name) = match (right.resource, right.scope) {
                ("namespaces", Scope::Own) => ("", "fedq-system"),
                _ => (scope, right.name.unwrap_or_default()),
            };
            right
                .verbs
                .iter()
                .map(move |verb| [scope, right.group, right.resource, name, verb].map(str::to_owned).into())
        });
        grants.collect()
    }

    /// What the roles named `fedq…` in a manifest grant to its ServiceAccount.
    fn granted(manifest: &str) -> BTreeSet<Grant> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(manifest).expect("YAML");
        let bound = |document: &Value| {
            documents.iter().any(|binding| {
                binding["roleRef"]["kind"] == document["kind"]
                    && binding["roleRef"]["name"] == document["metadata"]["name"]
                    && binding["subjects"][0]["kind"] == "ServiceAccount"
                    && binding["subjects"][0]["namespace"] == "fedq-system"
            })
        };
        let roles = documents.iter().filter(|document| document["rules"].is_array() && bound(document));
        roles.flat_map(rules).collect()
    }

    fn rules(role: &Value) -> Vec<Grant> {
        let scope = role["metadata"]["namespace"].as_str().unwrap_or_default();
        let mut grants = Vec::new();
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        for rule in role["rules"].as_array().expect("rules") {
            let mut names = texts(&rule["resourceNames"]);
            if names.is_empty() {
                names.push(String::new());
            }
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for name in &names {
                        for verb in texts(&rule["verbs"]) {
                            let grant =
                                (scope.to_owned(), group.clone(), resource.clone(), name.clone(), verb);
                            grants.push(grant);
                        }
                    }
                }
            }
        }
        grants
    }

    #[test]
    fn the_worker_manifest_grants_what_is_used_and_no_more() {
        assert_eq!(granted(include_str!("../../deploy/worker/rbac.yaml")), wanted(WORKER));
    }

    #[test]
    fn the_hub_manifest_grants_what_is_used_and_no_more() {
        assert_eq!(granted(include_str!("../../deploy/hub/rbac.yaml")), wanted(HUB));
    }
}
