//! OCM's kinds on the hub: which clusters there are, what Placements ask for and what was decided.

use std::time::Instant;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    follow::{Followed, Following, Part, Row, Scope, TableSet, followed},
    list_watch::{State, Table},
    types::{
        meta::MetaOnly,
        ocm::{AddOnPlacementScore, Lease, ManagedCluster, ManagedClusterSet, Placement, PlacementDecision},
    },
    write::Kind,
};

followed! {
    /// Nothing else waits for these: without OCM's CRDs, or without the right to read them, all else goes on.
    /// A kind whose CRD is installed later is found by the follow itself.
    pub struct OcmTables {
        placements: Placement = Row::of(Kind::Placement);
        decisions: PlacementDecision = Row::of(Kind::PlacementDecision);
        clusters: ManagedCluster = Row::of(Kind::ManagedCluster);
        sets: ManagedClusterSet = Row::of(Kind::ManagedClusterSet);
        bindings: MetaOnly =
            Row::read_only("/apis/cluster.open-cluster-management.io/v1beta2", "managedclustersetbindings");
        scores: AddOnPlacementScore = Row::of(Kind::AddOnPlacementScore);
        /// Held by OCM's placement controller while it runs.
        placement_lease: Lease =
            Row::read_only(LEASES, "leases").in_namespace().with_field("metadata.name", PLACEMENT_LEASE);
        /// Held by OCM's registration controller, which makes ManagedClusters of clusters that register.
        registration_lease: Lease =
            Row::read_only(LEASES, "leases").in_namespace().with_field("metadata.name", REGISTRATION_LEASE);
    }
}

const LEASES: &str = "/apis/coordination.k8s.io/v1";
/// Where OCM's controllers run on the hub.
pub const NAMESPACE: &str = "open-cluster-management-hub";
pub const PLACEMENT_LEASE: &str = "placement-lock";
pub const REGISTRATION_LEASE: &str = "registration-controller-lock";

impl OcmTables {
    pub fn follow(&self, following: &Following, tasks: &mut JoinSet<()>, cancel: &CancellationToken) {
        let scope = Scope { hub_id: "", namespace: NAMESPACE, wake: None, cancel };
        self.follow_part(Part::Always, following, &scope, tasks);
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
