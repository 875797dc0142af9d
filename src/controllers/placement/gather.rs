//! What changed on the hub since the last look, into the board.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tracing::warn;

use crate::memo::{Identity, verify};
use fedq_domain::placement::{
    board::Board,
    hub::{Decision, PLACEMENT_LABEL},
    spec::PlacementKey,
};
use fedq_k8s::{
    hub::ocm::OcmTables,
    list_watch::{Key, Record, Table},
    read,
    types::{meta::MetaOnly, ocm},
};
use fedq_values::ids::ClusterName;

#[derive(Default)]
pub(super) struct Gathered {
    pub board: Board,
    /// Placements with decisions that fedq did not make.
    pub decided_elsewhere: BTreeSet<PlacementKey>,
    placements: TableSnapshot<ocm::Placement>,
    decisions: TableSnapshot<ocm::PlacementDecision>,
    clusters: TableSnapshot<ocm::ManagedCluster>,
    sets: TableSnapshot<ocm::ManagedClusterSet>,
    bindings: TableSnapshot<MetaOnly>,
    scores: TableSnapshot<ocm::AddOnPlacementScore>,
}

/// The rows of a table as they were at the last look.
struct TableSnapshot<T> {
    revision: Option<u64>,
    rows: BTreeMap<Key, Identity<T>>,
}

impl<T> Default for TableSnapshot<T> {
    fn default() -> Self {
        Self { revision: None, rows: BTreeMap::new() }
    }
}

/// A row that is another one, with what it was and what it is.
struct Changed<T> {
    key: Key,
    before: Option<Arc<T>>,
    after: Option<Arc<T>>,
}

impl<T: Record> TableSnapshot<T> {
    /// Rows that differ from the last look, by identity: a row that was written again is another one.
    fn take(&mut self, table: &Table<T>) -> Vec<Changed<T>> {
        let revision = table.revision();
        if self.revision == Some(revision) {
            verify(&self.rows, || rows(table), || table.revision() == revision);
            return Vec::new();
        }
        self.revision = Some(revision);
        let before = std::mem::replace(&mut self.rows, rows(table));
        let mut changed = Vec::new();
        for (key, row) in &self.rows {
            let known = before.get(key);
            if known != Some(row) {
                let (before, after) = (known.map(|known| Arc::clone(&known.0)), Some(Arc::clone(&row.0)));
                changed.push(Changed { key: key.clone(), before, after });
            }
        }
        let gone = before.into_iter().filter(|(key, _)| !self.rows.contains_key(key));
        changed.extend(gone.map(|(key, row)| Changed { key, before: Some(row.0), after: None }));
        changed
    }
}

fn rows<T: Record>(table: &Table<T>) -> BTreeMap<Key, Identity<T>> {
    table.snapshot().into_iter().map(|(key, row)| (key, Identity(row))).collect()
}

impl Gathered {
    /// Takes what is new into the board; the Placements that are gone.
    pub fn take(&mut self, tables: &OcmTables, hub_id: &str) -> Vec<PlacementKey> {
        let gone = self.take_placements(tables);
        if !self.sets.take(&tables.sets).is_empty() {
            let sets = self.sets.rows.values().map(|set| read::ocm::cluster_set(set));
            self.board.set_sets(sets.collect());
        }
        if !self.bindings.take(&tables.bindings).is_empty() {
            let bindings = self.bindings.rows.values().map(|binding| read::ocm::binding(binding));
            self.board.set_bindings(bindings.collect());
        }
        self.take_clusters(tables);
        self.take_scores(tables);
        self.take_decisions(tables, hub_id);
        gone
    }

    fn take_placements(&mut self, tables: &OcmTables) -> Vec<PlacementKey> {
        let mut gone = Vec::new();
        for Changed { before, after, .. } in self.placements.take(&tables.placements) {
            let Some(object) = after.as_ref().or(before.as_ref()) else { continue };
            let key = read::ocm::placement_key(&object.metadata);
            if after.is_none() {
                gone.push(key.clone());
            }
            self.board.set_placement(key, after.map(|object| read::ocm::placement(&object)));
        }
        gone
    }

    fn take_clusters(&mut self, tables: &OcmTables) {
        let mut clusters = Vec::new();
        for Changed { key: (_, name), after, .. } in self.clusters.take(&tables.clusters) {
            match (ClusterName::new(&name), after.map(|object| read::ocm::managed_cluster(&object))) {
                (Ok(name), None) => clusters.push((name, None)),
                (Ok(name), Some(Ok(cluster))) => {
                    if !cluster.unreadable.is_empty() {
                        let bad = cluster.unreadable.join(", ");
                        warn!(cluster.name = %name, "Amounts of ManagedCluster `{name}` that do not count: {bad}");
                    }
                    clusters.push((name, Some(cluster)));
                }
                (Err(error), _) | (_, Some(Err(error))) => {
                    warn!("A ManagedCluster that no Placement can choose: {error}");
                }
            }
        }
        self.board.set_clusters(clusters);
    }

    fn take_scores(&mut self, tables: &OcmTables) {
        let changed = self.scores.take(&tables.scores).into_iter().map(|changed| {
            let (namespace, name) = changed.key;
            let scores = changed.after.map(|object| read::ocm::scores(&object));
            ((namespace.unwrap_or_default(), name), scores)
        });
        self.board.set_scores(changed.collect());
    }

    fn take_decisions(&mut self, tables: &OcmTables, hub_id: &str) {
        let changed = self.decisions.take(&tables.decisions);
        let objects = changed.iter().flat_map(|changed| changed.before.iter().chain(&changed.after));
        let keys: BTreeSet<Option<PlacementKey>> = objects.map(|object| placement_of(object)).collect();
        if keys.is_empty() {
            return;
        }
        let mut decisions: BTreeMap<Option<PlacementKey>, Vec<Decision>> =
            keys.iter().map(|key| (key.clone(), Vec::new())).collect();
        let mut foreign = BTreeSet::new();
        for object in self.decisions.rows.values() {
            let key = placement_of(object);
            let Some(found) = decisions.get_mut(&key) else { continue };
            found.push(read::ocm::decision(object));
            if !object.metadata.is_labelled(hub_id) {
                foreign.extend(key);
            }
        }
        for key in keys.into_iter().flatten() {
            if foreign.contains(&key) {
                self.decided_elsewhere.insert(key);
            } else {
                self.decided_elsewhere.remove(&key);
            }
        }
        self.board.set_decisions(decisions.into_iter().collect());
    }
}

fn placement_of(object: &ocm::PlacementDecision) -> Option<PlacementKey> {
    let name = object.metadata.labels.get(PLACEMENT_LABEL)?;
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    Some(PlacementKey { namespace: namespace.into(), name: name.as_str().into() })
}
