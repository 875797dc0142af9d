use super::*;
use crate::{
    hub::{HubTables, ocm::OcmTables},
    worker::{TaskTables, WorkerTables},
};

/// Where each kind is asked for, what of it, and whether a plan waits for it.
fn rows(set: &impl TableSet) -> Vec<String> {
    let line = |Followed { row, .. }: Followed<'_>| {
        let selector = row.selector("hub");
        let selectors = [selector.labels, selector.fields].into_iter().flatten();
        let planned = row.planned.then(|| "planned".to_owned());
        let words = [row.path("ns")].into_iter().chain(selectors).chain(planned);
        words.collect::<Vec<_>>().join(" ")
    };
    set.followed().map(line).collect()
}

#[test]
fn each_kind_is_asked_for_where_it_is_served() {
    let allowance = Allowance::default();
    assert_eq!(
        rows(&WorkerTables::within(&allowance)),
        [
            "/apis/kueue.x-k8s.io/v1beta2/clusterqueues planned",
            "/apis/kueue.x-k8s.io/v1beta2/localqueues planned",
            "/apis/kueue.x-k8s.io/v1beta2/resourceflavors planned",
            "/apis/kueue.x-k8s.io/v1beta2/cohorts planned",
            "/apis/kueue.x-k8s.io/v1beta2/topologies",
            "/apis/kueue.x-k8s.io/v1beta2/admissionchecks planned",
            "/api/v1/namespaces planned",
            "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses planned",
            "/apis/kueue.x-k8s.io/v1beta2/workloads !kueue.x-k8s.io/multikueue-origin planned",
        ]
    );
    assert_eq!(
        rows(&TaskTables::within(&allowance)),
        [
            "/apis/batch/v1/jobs fedq.dev/hub=hub,skypilot-task=true",
            "/apis/jobset.x-k8s.io/v1alpha2/jobsets fedq.dev/hub=hub,skypilot-task=true",
            "/apis/workload.codeflare.dev/v1beta2/appwrappers fedq.dev/hub=hub,skypilot-task=true",
            "/api/v1/pods fedq.dev/hub=hub,skypilot-task=true",
            "/api/v1/persistentvolumeclaims fedq.dev/hub=hub,skypilot-volume=true",
        ]
    );
    assert_eq!(
        rows(&HubTables::default()),
        [
            "/apis/galaxy.kubestellar.io/v1alpha1/clusterresourceclaims planned",
            "/apis/kueue.x-k8s.io/v1beta2/clusterqueues planned",
            "/apis/kueue.x-k8s.io/v1beta2/localqueues planned",
            "/apis/kueue.x-k8s.io/v1beta2/resourceflavors planned",
            "/apis/kueue.x-k8s.io/v1beta2/cohorts planned",
            "/apis/kueue.x-k8s.io/v1beta2/admissionchecks planned",
            "/apis/kueue.x-k8s.io/v1beta2/multikueueconfigs planned",
            "/apis/kueue.x-k8s.io/v1beta2/multikueueclusters planned",
            "/api/v1/namespaces planned",
            "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses planned",
            "/apis/galaxy.kubestellar.io/v1alpha1/clustermetrics planned",
            "/api/v1/namespaces/ns/secrets fedq.dev/cluster planned",
            "/apis/kueue.x-k8s.io/v1beta2/workloads",
            "/api/v1/namespaces/ns/secrets fedq.dev/hub=hub",
            "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/ns/clusterprofiles",
            "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
        ]
    );
    assert_eq!(
        rows(&OcmTables::default()),
        [
            "/apis/cluster.open-cluster-management.io/v1beta1/placements",
            "/apis/cluster.open-cluster-management.io/v1beta1/placementdecisions",
            "/apis/cluster.open-cluster-management.io/v1/managedclusters",
            "/apis/cluster.open-cluster-management.io/v1beta2/managedclustersets",
            "/apis/cluster.open-cluster-management.io/v1beta2/managedclustersetbindings",
            "/apis/cluster.open-cluster-management.io/v1alpha1/addonplacementscores",
            "/apis/coordination.k8s.io/v1/namespaces/ns/leases metadata.name=placement-lock",
            "/apis/coordination.k8s.io/v1/namespaces/ns/leases metadata.name=registration-controller-lock",
        ]
    );
}
