//! OCM's kinds on the hub: which clusters there are, what Placements ask for and what was decided.

use std::time::Instant;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    follow::{Following, follow_table},
    list_watch::{Selector, State, Table},
    types::{
        meta::MetaOnly,
        ocm::{AddOnPlacementScore, Lease, ManagedCluster, ManagedClusterSet, Placement, PlacementDecision},
    },
};

/// Nothing else waits for these: without OCM's CRDs, or without the right to read them, all else goes on.
/// A kind whose CRD is installed later is found by the follow itself.
#[derive(Clone, Default)]
pub struct OcmTables {
    pub placements: Table<Placement>,
    pub decisions: Table<PlacementDecision>,
    pub clusters: Table<ManagedCluster>,
    pub sets: Table<ManagedClusterSet>,
    pub bindings: Table<MetaOnly>,
    pub scores: Table<AddOnPlacementScore>,
    /// Held by OCM's placement controller while it runs.
    pub placement_lease: Table<Lease>,
    /// Held by OCM's registration controller, which makes ManagedClusters of clusters that register.
    pub registration_lease: Table<Lease>,
}

/// Where OCM's controllers run on the hub.
pub const NAMESPACE: &str = "open-cluster-management-hub";
pub const PLACEMENT_LEASE: &str = "placement-lock";
pub const REGISTRATION_LEASE: &str = "registration-controller-lock";

impl OcmTables {
    pub fn follow(&self, following: &Following, tasks: &mut JoinSet<()>, cancel: &CancellationToken) {
        let start = |version: &str, plural: &str| {
            let path = format!("/apis/cluster.open-cluster-management.io/{version}/{plural}");
            (path, Selector::default(), cancel.clone())
        };
        let f = following;
        follow_table(f, &self.placements, start("v1beta1", "placements"), tasks);
        follow_table(f, &self.decisions, start("v1beta1", "placementdecisions"), tasks);
        follow_table(f, &self.clusters, start("v1", "managedclusters"), tasks);
        follow_table(f, &self.sets, start("v1beta2", "managedclustersets"), tasks);
        follow_table(f, &self.bindings, start("v1beta2", "managedclustersetbindings"), tasks);
        follow_table(f, &self.scores, start("v1alpha1", "addonplacementscores"), tasks);
        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
        let lease = |name: &str| {
            let selector = Selector { fields: Some(format!("metadata.name={name}")), labels: None };
            (leases.clone(), selector, cancel.clone())
        };
        follow_table(f, &self.placement_lease, lease(PLACEMENT_LEASE), tasks);
        follow_table(f, &self.registration_lease, lease(REGISTRATION_LEASE), tasks);
    }

    /// Whether OCM's placement controller runs on the hub; `None` while that is not known.
    pub fn places(&self) -> Option<bool> {
        is_held(&self.placement_lease)
    }

    /// When OCM's placement controller counts as gone, unless its Lease changes before.
    pub fn places_until(&self) -> Option<Instant> {
        let now = Instant::now();
        self.placement_lease.all().iter().filter(|lease| lease.is_held(now)).map(|lease| lease.ends()).max()
    }

    /// Whether OCM's registration controller runs on the hub; `None` while that is not known.
    pub fn registers(&self) -> Option<bool> {
        is_held(&self.registration_lease)
    }

    /// Whether everything that Placements are decided from is served, known and followed at this moment.
    pub fn is_current(&self) -> bool {
        let current = |state: State| matches!(state, State::Synced { broken: None });
        current(self.placements.state())
            && current(self.decisions.state())
            && current(self.clusters.state())
            && current(self.sets.state())
            && current(self.bindings.state())
            // Scores are an addon's; without the kind there are none.
            && (current(self.scores.state()) || self.scores.state() == State::Absent)
    }
}

fn is_held(table: &Table<Lease>) -> Option<bool> {
    let known = matches!(table.state(), State::Synced { broken: None });
    known.then(|| table.all().iter().any(|lease| lease.is_held(Instant::now())))
}
