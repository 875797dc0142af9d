//! The kinds that a simulated cluster serves.

use super::fields::{ListKind, Schema};

/// One kind as it is served. Kinds of fedq and Kueue are custom resources on real clusters, and behave as
/// such here: their generation moves with all but status and metadata.
#[derive(Debug)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    /// Has a status subresource.
    pub status: bool,
    pub short_names: &'static [&'static str],
    pub schema: Schema,
    pub model: Model,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Model {
    /// Of the API server itself; takes strategic patches.
    BuiltIn {
        generation: bool,
    },
    Custom,
}

const NO_LISTS: Schema = Schema { lists: OWNED, atomic_maps: &[] };
const OWNED: &[(&str, ListKind)] =
    &[("metadata.finalizers", ListKind::Set), ("metadata.ownerReferences", ListKind::Map(&["uid"]))];

const BUILT_IN: Kind = Kind {
    group: "",
    version: "v1",
    plural: "",
    kind: "",
    namespaced: true,
    status: false,
    short_names: &[],
    schema: NO_LISTS,
    model: Model::BuiltIn { generation: false },
};

const CUSTOM: Kind =
    Kind { version: "v1beta2", namespaced: false, status: true, model: Model::Custom, ..BUILT_IN };

const KUEUE: Kind = Kind { group: "kueue.x-k8s.io", ..CUSTOM };

const CONDITIONS: (&str, ListKind) = ("status.conditions", ListKind::Map(&["type"]));
const FINALIZERS: (&str, ListKind) = ("metadata.finalizers", ListKind::Set);
const OWNERS: (&str, ListKind) = ("metadata.ownerReferences", ListKind::Map(&["uid"]));

/// Served where it is asked for only, as on a hub where somebody installed it.
pub const OCM_GROUP: &str = "cluster.open-cluster-management.io";
/// Installed with it.
pub const PROFILES_GROUP: &str = "multicluster.x-k8s.io";

/// Served where it is asked for only: of itself no cluster knows AppWrappers.
pub const APP_WRAPPERS_GROUP: &str = "workload.codeflare.dev";

pub static KINDS: &[Kind] = &[
    Kind {
        plural: "namespaces",
        kind: "Namespace",
        namespaced: false,
        status: true,
        short_names: &["ns"],
        schema: Schema { lists: &[CONDITIONS, FINALIZERS, OWNERS], atomic_maps: &[] },
        ..BUILT_IN
    },
    Kind {
        plural: "nodes",
        kind: "Node",
        namespaced: false,
        status: true,
        short_names: &["no"],
        schema: Schema {
            lists: &[
                CONDITIONS,
                FINALIZERS,
                OWNERS,
                ("spec.podCIDRs", ListKind::Set),
                ("status.addresses", ListKind::Map(&["type"])),
            ],
            atomic_maps: &[],
        },
        ..BUILT_IN
    },
    Kind { plural: "secrets", kind: "Secret", ..BUILT_IN },
    Kind { plural: "configmaps", kind: "ConfigMap", short_names: &["cm"], ..BUILT_IN },
    Kind {
        plural: "serviceaccounts",
        kind: "ServiceAccount",
        short_names: &["sa"],
        schema: Schema {
            lists: &[FINALIZERS, OWNERS, ("secrets", ListKind::Map(&["name"]))],
            atomic_maps: &[],
        },
        ..BUILT_IN
    },
    Kind {
        plural: "pods",
        kind: "Pod",
        status: true,
        short_names: &["po"],
        schema: Schema {
            lists: &[
                CONDITIONS,
                FINALIZERS,
                OWNERS,
                ("spec.containers", ListKind::Map(&["name"])),
                ("spec.containers.*.env", ListKind::Map(&["name"])),
                ("spec.volumes", ListKind::Map(&["name"])),
            ],
            atomic_maps: &["spec.nodeSelector"],
        },
        ..BUILT_IN
    },
    Kind { plural: "services", kind: "Service", status: true, short_names: &["svc"], ..BUILT_IN },
    Kind {
        plural: "persistentvolumeclaims",
        kind: "PersistentVolumeClaim",
        status: true,
        short_names: &["pvc"],
        ..BUILT_IN
    },
    Kind { group: "events.k8s.io", plural: "events", kind: "Event", short_names: &["ev"], ..BUILT_IN },
    Kind {
        group: "batch",
        plural: "jobs",
        kind: "Job",
        status: true,
        schema: Schema {
            lists: &[
                CONDITIONS,
                FINALIZERS,
                OWNERS,
                ("spec.template.spec.containers", ListKind::Map(&["name"])),
                ("spec.template.spec.containers.*.env", ListKind::Map(&["name"])),
            ],
            atomic_maps: &["spec.template.spec.nodeSelector", "spec.selector"],
        },
        model: Model::BuiltIn { generation: true },
        ..BUILT_IN
    },
    Kind {
        group: "apps",
        plural: "deployments",
        kind: "Deployment",
        status: true,
        short_names: &["deploy"],
        schema: Schema {
            lists: &[
                CONDITIONS,
                FINALIZERS,
                OWNERS,
                ("spec.template.spec.containers", ListKind::Map(&["name"])),
            ],
            atomic_maps: &["spec.selector"],
        },
        model: Model::BuiltIn { generation: true },
        ..BUILT_IN
    },
    Kind { group: "coordination.k8s.io", plural: "leases", kind: "Lease", ..BUILT_IN },
    Kind { plural: "roles", kind: "Role", ..RBAC },
    Kind { plural: "rolebindings", kind: "RoleBinding", ..RBAC },
    Kind { plural: "clusterroles", kind: "ClusterRole", namespaced: false, ..RBAC },
    Kind { plural: "clusterrolebindings", kind: "ClusterRoleBinding", namespaced: false, ..RBAC },
    Kind {
        group: "scheduling.k8s.io",
        plural: "priorityclasses",
        kind: "PriorityClass",
        namespaced: false,
        short_names: &["pc"],
        ..BUILT_IN
    },
    Kind {
        group: "admissionregistration.k8s.io",
        plural: "validatingwebhookconfigurations",
        kind: "ValidatingWebhookConfiguration",
        namespaced: false,
        schema: Schema {
            lists: &[FINALIZERS, OWNERS, ("webhooks", ListKind::Map(&["name"]))],
            atomic_maps: &[],
        },
        model: Model::BuiltIn { generation: true },
        ..BUILT_IN
    },
    Kind {
        plural: "validatingadmissionpolicies",
        kind: "ValidatingAdmissionPolicy",
        status: true,
        schema: Schema {
            lists: &[
                CONDITIONS,
                FINALIZERS,
                OWNERS,
                ("spec.variables", ListKind::Map(&["name"])),
                ("spec.matchConditions", ListKind::Map(&["name"])),
            ],
            atomic_maps: &[],
        },
        ..POLICY
    },
    Kind {
        plural: "validatingadmissionpolicybindings",
        kind: "ValidatingAdmissionPolicyBinding",
        schema: Schema {
            lists: &[FINALIZERS, OWNERS, ("spec.validationActions", ListKind::Set)],
            atomic_maps: &[],
        },
        ..POLICY
    },
    Kind {
        group: "apiextensions.k8s.io",
        plural: "customresourcedefinitions",
        kind: "CustomResourceDefinition",
        namespaced: false,
        status: true,
        short_names: &["crd", "crds"],
        schema: Schema { lists: &[CONDITIONS, FINALIZERS, OWNERS], atomic_maps: &[] },
        model: Model::BuiltIn { generation: true },
        ..BUILT_IN
    },
    Kind {
        plural: "clusterqueues",
        kind: "ClusterQueue",
        short_names: &["cq"],
        schema: Schema { lists: &[CONDITIONS, FINALIZERS, OWNERS], atomic_maps: &[] },
        ..KUEUE
    },
    Kind {
        plural: "localqueues",
        kind: "LocalQueue",
        namespaced: true,
        short_names: &["queue", "queues", "lq"],
        schema: Schema { lists: &[CONDITIONS, FINALIZERS, OWNERS], atomic_maps: &[] },
        ..KUEUE
    },
    Kind {
        plural: "workloads",
        kind: "Workload",
        namespaced: true,
        short_names: &["kwl", "kueueworkload", "kueueworkloads"],
        schema: Schema {
            lists: &[
                CONDITIONS,
                FINALIZERS,
                OWNERS,
                ("spec.podSets", ListKind::Map(&["name"])),
                ("status.admission.podSetAssignments", ListKind::Map(&["name"])),
                ("status.admissionChecks", ListKind::Map(&["name"])),
                ("status.reclaimablePods", ListKind::Map(&["name"])),
            ],
            atomic_maps: &[],
        },
        ..KUEUE
    },
    Kind {
        plural: "resourceflavors",
        kind: "ResourceFlavor",
        status: false,
        short_names: &["flavor", "flavors", "rf"],
        ..KUEUE
    },
    Kind { plural: "cohorts", kind: "Cohort", short_names: &["co"], ..KUEUE },
    Kind {
        plural: "admissionchecks",
        kind: "AdmissionCheck",
        short_names: &["ac"],
        schema: Schema { lists: &[CONDITIONS, FINALIZERS, OWNERS], atomic_maps: &[] },
        ..KUEUE
    },
    Kind {
        plural: "multikueueconfigs",
        kind: "MultiKueueConfig",
        status: false,
        short_names: &["mkconf"],
        ..KUEUE
    },
    Kind {
        plural: "multikueueclusters",
        kind: "MultiKueueCluster",
        short_names: &["mkc"],
        schema: Schema { lists: &[CONDITIONS, FINALIZERS, OWNERS], atomic_maps: &[] },
        ..KUEUE
    },
    Kind { plural: "topologies", kind: "Topology", status: false, short_names: &["topo"], ..KUEUE },
    Kind {
        plural: "workloadpriorityclasses",
        kind: "WorkloadPriorityClass",
        short_names: &["wpc"],
        status: false,
        ..KUEUE
    },
    Kind {
        plural: "clusterresourceclaims",
        kind: "ClusterResourceClaim",
        short_names: &["crc"],
        schema: Schema {
            lists: &[
                CONDITIONS,
                FINALIZERS,
                OWNERS,
                ("spec.resourceAssignments", ListKind::Map(&["clusterQueueName", "flavor"])),
                ("status.assignments", ListKind::Map(&["clusterQueueName", "flavor"])),
                ("status.flavors", ListKind::Map(&["name"])),
            ],
            atomic_maps: &[],
        },
        ..GALAXY
    },
    Kind { plural: "clustermetrics", kind: "ClusterMetrics", ..GALAXY },
    Kind {
        group: APP_WRAPPERS_GROUP,
        plural: "appwrappers",
        kind: "AppWrapper",
        namespaced: true,
        short_names: &["aw"],
        schema: Schema { lists: &[CONDITIONS, FINALIZERS, OWNERS], atomic_maps: &[] },
        ..CUSTOM
    },
    Kind {
        version: "v1",
        plural: "managedclusters",
        kind: "ManagedCluster",
        short_names: &["mcl", "mcls"],
        schema: Schema { lists: &[CONDITIONS, FINALIZERS, OWNERS], atomic_maps: &[] },
        ..OCM
    },
    Kind {
        version: "v1beta2",
        plural: "managedclustersets",
        kind: "ManagedClusterSet",
        short_names: &["mclset", "mclsets"],
        ..OCM
    },
    Kind {
        version: "v1beta2",
        plural: "managedclustersetbindings",
        kind: "ManagedClusterSetBinding",
        namespaced: true,
        short_names: &["mclsetbinding", "mclsetbindings"],
        ..OCM
    },
    Kind {
        version: "v1beta1",
        plural: "placements",
        kind: "Placement",
        namespaced: true,
        schema: Schema { lists: &[CONDITIONS, FINALIZERS, OWNERS], atomic_maps: &[] },
        ..OCM
    },
    Kind {
        version: "v1beta1",
        plural: "placementdecisions",
        kind: "PlacementDecision",
        namespaced: true,
        ..OCM
    },
    Kind {
        version: "v1alpha1",
        plural: "addonplacementscores",
        kind: "AddOnPlacementScore",
        namespaced: true,
        schema: Schema {
            lists: &[CONDITIONS, FINALIZERS, OWNERS, ("status.scores", ListKind::Map(&["name"]))],
            atomic_maps: &[],
        },
        ..OCM
    },
    Kind {
        group: PROFILES_GROUP,
        version: "v1alpha1",
        plural: "clusterprofiles",
        kind: "ClusterProfile",
        namespaced: true,
        schema: Schema {
            lists: &[
                CONDITIONS,
                FINALIZERS,
                OWNERS,
                ("status.properties", ListKind::Map(&["name"])),
                ("status.credentialProviders", ListKind::Map(&["name"])),
                ("status.accessProviders", ListKind::Map(&["name"])),
            ],
            atomic_maps: &[],
        },
        ..CUSTOM
    },
];

/// They are kept, and nobody obeys them.
const POLICY: Kind = Kind {
    group: "admissionregistration.k8s.io",
    namespaced: false,
    model: Model::BuiltIn { generation: true },
    ..BUILT_IN
};
const RBAC: Kind = Kind { group: "rbac.authorization.k8s.io", ..BUILT_IN };
const OCM: Kind = Kind { group: OCM_GROUP, ..CUSTOM };
const GALAXY: Kind = Kind { group: "galaxy.kubestellar.io", version: "v1alpha1", ..CUSTOM };

impl Kind {
    /// What kinds of the API server itself have in common.
    pub const BUILT_IN: Self = BUILT_IN;

    pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.group == group && kind.version == version && kind.plural == plural)
    }

    pub fn named(kind: &str) -> Option<&'static Self> {
        KINDS.iter().find(|known| known.kind == kind)
    }

    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `clusterqueues.kueue.x-k8s.io`, as errors name it.
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `ClusterQueue.kueue.x-k8s.io`, as validation names it.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    pub fn has_generation(&self) -> bool {
        self.model != Model::BuiltIn { generation: false }
    }

    pub fn is_custom(&self) -> bool {
        self.model == Model::Custom
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}
