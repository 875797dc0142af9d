//! Decides Placements where nobody else does: PlacementDecisions and the Placements' status.
//!
//! There is one writer only. Where OCM's placement controller runs, a Placement is fedq's only if its
//! annotation sends that controller away; and decisions that fedq did not make are left alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::gather::Gathered;
use super::{
    driver::{Controller, Driver, Next, Pace},
    writer::{Writer, WriterConfig, ocm},
};
use crate::{
    clock::Clock,
    domain::{
        ids::ClusterName,
        placement::{
            self,
            changes::changes,
            spec::{Placement, PlacementKey},
            view::{PlacementRow, PlacementView},
        },
    },
    k8s::{hub::Hub, list_watch::State, read, types::ocm as types, write::Change},
    telemetry::Metrics,
};

mod gather;
mod render;

const MANAGER: &str = "fedq-decision";

#[derive(Clone)]
pub struct Settings {
    /// Whether fedq decides at all; if not, it only shows what was decided.
    pub evaluate: bool,
    pub writer: WriterConfig,
}

pub struct PlacementController {
    hub: Hub,
    hub_id: String,
    clock: Clock,
    settings: Settings,
    writer: Writer,
    view: watch::Sender<Arc<PlacementView>>,
    gathered: Gathered,
    /// What each Placement still needs.
    wishes: BTreeMap<PlacementKey, Vec<Change>>,
    /// What was last said of each.
    warned: BTreeMap<PlacementKey, String>,
    rows: BTreeMap<PlacementKey, Arc<PlacementRow>>,
    /// The clusters that each Placement of ours chose, best first.
    best: BTreeMap<PlacementKey, Arc<[ClusterName]>>,
    failing: BTreeSet<PlacementKey>,
    /// Whether OCM decides, as it was at the last look.
    ocm_places: Option<bool>,
}

/// What came of one Placement.
struct Evaluated {
    object: Arc<types::Placement>,
    best: Arc<[ClusterName]>,
    changes: Vec<placement::changes::Change>,
    warning: Option<String>,
    again_at: Option<Timestamp>,
}

#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    #[error("an evaluation of Placements broke off")]
    Evaluate(#[source] tokio::task::JoinError),
}

impl PlacementController {
    pub fn new(
        (hub, hub_id): (Hub, String),
        clock: Clock,
        settings: Settings,
        view: watch::Sender<Arc<PlacementView>>,
        signal: &Arc<Notify>,
    ) -> Self {
        Self {
            hub,
            hub_id,
            clock,
            settings,
            writer: Writer::waking(Arc::clone(signal)),
            view,
            gathered: Gathered::default(),
            wishes: BTreeMap::new(),
            warned: BTreeMap::new(),
            rows: BTreeMap::new(),
            best: BTreeMap::new(),
            failing: BTreeSet::new(),
            ocm_places: None,
        }
    }

    /// Runs until cancelled; a write under way is then finished, so that its outcome is known.
    pub async fn run(
        self,
        signal: Arc<Notify>,
        metrics: Metrics,
        cancel: CancellationToken,
    ) -> anyhow::Result<()> {
        let (writer, hub, config) = (self.writer.clone(), self.hub.clone(), self.settings.writer.clone());
        let writing = ocm::write(&writer, &hub, config, &metrics, cancel.clone());
        let driver = Driver { name: "placement", signal, pace: Pace::default(), metrics: metrics.clone() };
        tokio::join!(driver.run(self, cancel), writing);
        Ok(())
    }

    /// Without everything that decides, nothing is decided: a set that is not known yet looks like one
    /// without clusters.
    fn hold(&mut self) {
        self.writer.want(Vec::new());
        let absent = self.hub.ocm.placements.state() == State::Absent;
        if absent && self.view.borrow().known {
            self.view.send_modify(|view| {
                *view = Arc::new(PlacementView { revision: view.revision + 1, ..PlacementView::default() });
            });
        }
    }

    /// Notices who else decides; whose turn it is may be another for each Placement.
    fn look_for_ocm(&mut self) -> Option<bool> {
        let places = self.hub.ocm.places()?;
        if self.ocm_places != Some(places) {
            if self.settings.evaluate {
                let who = if places { "OCM's placement controller" } else { "fedq" };
                info!(ocm = places, "Placements are decided by {who}");
            }
            self.ocm_places = Some(places);
            self.gathered.board.touch_all();
        }
        Some(places)
    }

    fn writer_of(&self, placement: &Placement, ocm_places: bool) -> placement::Writer {
        let elsewhere = self.gathered.decided_elsewhere.contains(&placement.key);
        match placement::writer(placement, ocm_places, elsewhere) {
            placement::Writer::Fedq if !self.settings.evaluate => placement::Writer::Other,
            writer => writer,
        }
    }

    /// Off the threads that the other controllers share: expressions of many Placements take their time.
    async fn evaluate(
        &self,
        keys: Vec<PlacementKey>,
        now: Timestamp,
    ) -> Result<Vec<Evaluated>, PlacementError> {
        let hub = Arc::clone(self.gathered.board.hub());
        let of = |key: PlacementKey| {
            let object = self.hub.ocm.placements.get(Some(&key.namespace), &key.name)?;
            Some((Arc::clone(self.gathered.board.placement(&key)?), object))
        };
        let placements: Vec<_> = keys.into_iter().filter_map(of).collect();
        if placements.is_empty() {
            return Ok(Vec::new());
        }
        let evaluate = move |(placement, object): (Arc<Placement>, Arc<types::Placement>)| {
            let evaluation = placement::evaluate(&placement, &hub, now);
            let changes = changes(&placement, &hub, &evaluation, &read::ocm::report(&object));
            let best = evaluation.decisions(&hub).cloned().collect();
            Evaluated { object, best, changes, warning: evaluation.warning, again_at: evaluation.again_at }
        };
        let all = move || placements.into_iter().map(evaluate).collect();
        tokio::task::spawn_blocking(all).await.map_err(PlacementError::Evaluate)
    }

    /// Of these, the Placements that fedq decides.
    fn leave_to_others(&mut self, keys: &BTreeSet<PlacementKey>, ocm_places: bool) -> Vec<PlacementKey> {
        let mut ours = Vec::new();
        for key in keys {
            let Some(placement) = self.gathered.board.placement(key) else { continue };
            let writer = self.writer_of(placement, ocm_places);
            if writer == placement::Writer::Fedq && !placement.deleting {
                ours.push(key.clone());
            } else {
                self.gathered.board.leave(key);
                self.wishes.remove(key);
                self.warned.remove(key);
                self.best.remove(key);
            }
        }
        ours
    }

    /// Says what is new: a score may be out of date for hours, and be looked at many times a second.
    fn warn(&mut self, key: &PlacementKey, warning: Option<&str>) {
        let Some(warning) = warning else {
            self.warned.remove(key);
            return;
        };
        if self.warned.get(key).is_none_or(|before| before != warning) {
            warn!(placement = %key, "Placement `{key}`: {warning}");
            self.warned.insert(key.clone(), warning.to_owned());
        }
    }

    fn decide(&mut self, key: PlacementKey, evaluated: &Evaluated) {
        self.warn(&key, evaluated.warning.as_deref());
        self.gathered.board.evaluated(&key, evaluated.again_at);
        self.best.insert(key.clone(), Arc::clone(&evaluated.best));
        let rendering = render::Rendering {
            hub_id: &self.hub_id,
            placement: &evaluated.object,
            decisions: &self.hub.ocm.decisions,
            now: self.clock.now(),
        };
        let changes: Vec<Change> =
            evaluated.changes.iter().filter_map(|change| rendering.change(change)).collect();
        if changes.is_empty() {
            self.wishes.remove(&key);
        } else {
            self.wishes.insert(key, changes);
        }
    }

    fn show(&mut self, key: &PlacementKey, writer: placement::Writer, failures: Vec<String>) {
        let found = self.hub.ocm.placements.get(Some(&key.namespace), &key.name);
        let (Some(placement), Some(object)) = (self.gathered.board.placement(key), found) else {
            self.rows.remove(key);
            return;
        };
        let row = PlacementRow {
            placement: Arc::clone(placement),
            writer,
            best: self.best.get(key).cloned(),
            report: read::ocm::report(&object),
            decided: self
                .gathered
                .board
                .hub()
                .decisions_of(key)
                .flat_map(|decision| decision.clusters.iter().cloned())
                .collect(),
            created: created(&object),
            failures,
        };
        if self.rows.get(key).is_none_or(|known| **known != row) {
            self.rows.insert(key.clone(), Arc::new(row));
        }
    }

    /// What could not be written, by Placement.
    fn failures(&self) -> BTreeMap<PlacementKey, Vec<String>> {
        let failures = self.writer.failures();
        let mut by_placement: BTreeMap<PlacementKey, Vec<String>> = BTreeMap::new();
        for (key, changes) in &self.wishes {
            for change in changes {
                if let Some(reason) = failures.get(&change.target) {
                    let text = format!("{}: {reason}", change.target);
                    by_placement.entry(key.clone()).or_default().push(text);
                }
            }
        }
        by_placement
    }

    fn publish(&mut self) {
        self.view.send_if_modified(|view| {
            let hub = self.gathered.board.hub();
            if view.known && Arc::ptr_eq(&view.hub, hub) && view.placements == self.rows {
                return false;
            }
            *view = Arc::new(PlacementView {
                revision: view.revision + 1,
                known: true,
                hub: Arc::clone(hub),
                placements: self.rows.clone(),
            });
            true
        });
    }

    fn next(&self, now: Timestamp) -> Next {
        let evaluates = self.gathered.board.next_at();
        let evaluates = evaluates.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        let gone = self.hub.ocm.places_until().map(|at| at.saturating_duration_since(Instant::now()));
        let wait = [evaluates, gone].into_iter().flatten().min();
        wait.map_or(Next::AtPeriod, |wait| Next::After(wait + Duration::from_millis(1)))
    }
}

impl Controller for PlacementController {
    type Error = PlacementError;

    async fn reconcile(&mut self) -> Result<Next, PlacementError> {
        let now = self.clock.now();
        let places = self.look_for_ocm();
        let Some(ocm_places) = places.filter(|_| self.hub.ocm.is_current()) else {
            self.hold();
            return Ok(Next::AtPeriod);
        };
        for key in self.gathered.take(&self.hub.ocm, &self.hub_id) {
            self.wishes.remove(&key);
            self.rows.remove(&key);
            self.best.remove(&key);
        }
        let mut keys = self.gathered.board.take_touched(now);
        let ours = self.leave_to_others(&keys, ocm_places);
        match self.evaluate(ours, now).await {
            Ok(evaluated) => evaluated.iter().for_each(|one| {
                self.decide(read::ocm::placement_key(&one.object.metadata), one);
            }),
            Err(error) => {
                self.gathered.board.touch_all();
                return Err(error);
            }
        }
        let failures = self.failures();
        let failing: BTreeSet<PlacementKey> = failures.keys().cloned().collect();
        keys.extend(failing.union(&self.failing).cloned());
        self.failing = failing;
        for key in keys {
            let placement = self.gathered.board.placement(&key);
            if let Some(writer) = placement.map(|placement| self.writer_of(placement, ocm_places)) {
                self.show(&key, writer, failures.get(&key).cloned().unwrap_or_default());
            }
        }
        self.writer.want(self.wishes.values().flatten().cloned().collect());
        self.publish();
        Ok(self.next(now))
    }
}

fn created(object: &types::Placement) -> Option<Timestamp> {
    object.metadata.creation_timestamp.as_deref()?.parse().ok()
}
