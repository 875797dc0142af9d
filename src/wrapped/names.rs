//! Names that users, Kueue and the upstream operator know. They must not change.

pub const GROUP: &str = "workload.codeflare.dev";
pub const KIND: &str = "AppWrapper";
/// The value of `spec.managedBy` that means this controller; no value means it too.
pub const CONTROLLER: &str = "workload.codeflare.dev/appwrapper-controller";
pub const FINALIZER: &str = "workload.codeflare.dev/finalizer";
/// On every component and on its pods: the name of their AppWrapper.
pub const APPWRAPPER_LABEL: &str = "workload.codeflare.dev/appwrapper";
pub const USER_LABEL: &str = "workload.codeflare.dev/user";
pub const USER_ID_LABEL: &str = "workload.codeflare.dev/userid";
pub const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";

/// Annotations with which a user changes the tolerance of one AppWrapper.
pub mod annotation {
    pub const ADMISSION_GRACE: &str = "workload.codeflare.dev.appwrapper/admissionGracePeriodDuration";
    pub const WARMUP_GRACE: &str = "workload.codeflare.dev.appwrapper/warmupGracePeriodDuration";
    pub const FAILURE_GRACE: &str = "workload.codeflare.dev.appwrapper/failureGracePeriodDuration";
    pub const RETRY_PAUSE: &str = "workload.codeflare.dev.appwrapper/retryPausePeriodDuration";
    pub const RETRY_LIMIT: &str = "workload.codeflare.dev.appwrapper/retryLimit";
    pub const FORCEFUL_DELETION_GRACE: &str =
        "workload.codeflare.dev.appwrapper/forcefulDeletionGracePeriodDuration";
    pub const DELETION_ON_FAILURE_GRACE: &str =
        "workload.codeflare.dev.appwrapper/deletionOnFailureGracePeriodDuration";
    pub const SUCCESS_TTL: &str = "workload.codeflare.dev.appwrapper/successTTLDuration";
    pub const TERMINAL_EXIT_CODES: &str = "workload.codeflare.dev.appwrapper/terminalExitCodes";
    pub const RETRYABLE_EXIT_CODES: &str = "workload.codeflare.dev.appwrapper/retryableExitCodes";
}

/// Annotations of pod sets by which Kueue's topology aware scheduling orders their pods.
pub mod tas {
    pub const POD_INDEX_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-pod-index-label";
    pub const SUB_GROUP_INDEX_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label";
    pub const SUB_GROUP_COUNT: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-count";
}

/// `status.conditions[].type`.
pub mod condition {
    pub const QUOTA_RESERVED: &str = "QuotaReserved";
    /// Also the one condition of `status.componentStatus[]`.
    pub const RESOURCES_DEPLOYED: &str = "ResourcesDeployed";
    pub const PODS_READY: &str = "PodsReady";
    pub const UNHEALTHY: &str = "Unhealthy";
    pub const DELETING_RESOURCES: &str = "DeletingResources";
}

/// Reasons of a component's condition.
pub mod component {
    pub const INITIATED: &str = "ComponentCreationInitiated";
    pub const ERRORED: &str = "ComponentCreationErrored";
    pub const CREATED: &str = "ComponentCreatedSuccessfully";
    /// As upstream spells it.
    pub const DELETED: &str = "CompononetDeleted";
}
