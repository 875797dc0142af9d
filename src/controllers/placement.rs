//! Decides Placements where nobody else does: PlacementDecisions and the Placements' status.
//!
//! There is one writer only. Where OCM's placement controller runs, a Placement is fedq's only if its
//! annotation sends that controller away; and decisions that fedq did not make are left alone.
//!
//! # How a Placement is decided
//!
//! `controllers/placement.rs` decides where nobody else does: `domain::placement::writer` gives OCM's controller the
//! word while it renews its Lease (by fedqd's own watch of it, since both clocks may be wrong), and others where decisions exist that are not labelled as this hub's.
//!
//! 1. `gather.rs` finds the rows of OCM's tables (`k8s/hub/ocm.rs`) that changed and puts them into the
//!    `domain::placement::board::Board`, which knows which Placements each touches (`uses.rs`): by the labels, claims, amounts
//!    and scores that they name. All else costs nothing.
//! 2. Those touched are evaluated (`domain::placement::evaluate`) off the shared threads, since expressions take time;
//!    `changes.rs` says what decisions and status still lack. Nothing, mostly. What was decided and is not written yet
//!    counts as if it were (`round.rs`, `Unwritten`): the decisions of a Placement are several objects, and half of them are
//!    not what it chose. They are written so that no chosen cluster is ever in none of them, and the status after them.
//! 3. `render.rs` makes the writes. The `PlacementView` that is published holds all that decides, the unwritten included, so
//!    the API explains and simulates by the same function from the same input.
//!
//! `controllers/inventory.rs` keeps what they choose from, where OCM's registration does not run: a ManagedCluster of each
//! joined or reported cluster (`domain/inventory.rs` has its words and taints), a namespace of its name, and scores there. It looks at a
//! cluster again when something of it changed, at most four times a second. Kinds that are not served are looked for every
//! half minute by the follow itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use self::gather::Gathered;
use super::{
    context::Context,
    driver::{self, Controller, Driver, Failure, Next, Tasks},
    writer::Writer,
};
use fedq_domain::{
    placement::{
        self,
        board::Touched,
        changes::{self, Desired},
        round::{self, Decided, Unwritten},
        spec::{Placement, PlacementKey},
        view::{PlacementRow, PlacementView},
    },
    queue::{objects::HUB_LABEL, selector::Labels},
};
use fedq_k8s::{list_watch::State, read, types::ocm as types, write::Change};
use fedq_values::ids::ClusterName;

mod gather;
mod render;

const MANAGER: &str = "fedq-decision";

#[derive(Clone)]
pub struct Settings {
    /// Whether fedq decides at all; if not, it only shows what was decided.
    pub evaluate: bool,
}

pub struct PlacementController {
    context: Context,
    /// The labels of decisions that are this hub's.
    marks: Labels,
    settings: Settings,
    signal: Arc<Notify>,
    tasks: Tasks,
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
    /// What each of them was last evaluated to.
    desired: BTreeMap<PlacementKey, Desired>,
    /// Of that, the decisions that are not all written yet.
    unwritten: Unwritten,
    failing: BTreeSet<PlacementKey>,
    /// Whether OCM decides, as it was at the last look.
    ocm_places: Option<bool>,
}

impl PlacementController {
    pub fn new(
        context: Context,
        settings: Settings,
        view: watch::Sender<Arc<PlacementView>>,
        signal: Arc<Notify>,
    ) -> Self {
        Self {
            marks: Labels::from([(HUB_LABEL.to_owned(), context.hub_id.clone())]),
            settings,
            context,
            writer: Writer::waking(Arc::clone(&signal)),
            signal,
            tasks: Tasks::new(),
            view,
            gathered: Gathered::default(),
            wishes: BTreeMap::new(),
            warned: BTreeMap::new(),
            rows: BTreeMap::new(),
            best: BTreeMap::new(),
            desired: BTreeMap::new(),
            unwritten: Unwritten::default(),
            failing: BTreeSet::new(),
            ocm_places: None,
        }
    }

    pub async fn run(mut self) -> anyhow::Result<()> {
        let Context { metrics, stop, .. } = self.context.clone();
        let _stop = self.context.write_to_hub(&self.writer, &mut self.tasks);
        Driver { signal: Arc::clone(&self.signal), metrics }.run(self, stop).await
    }

    /// Without everything that decides, nothing is decided: a set that is not known yet looks like one
    /// without clusters.
    fn hold(&mut self) {
        self.writer.want(Vec::new());
        let absent = self.context.hub.ocm.placements.state() == State::Absent;
        if absent && self.view.borrow().known {
            self.view.send_modify(|view| {
                *view = Arc::new(PlacementView { revision: view.revision + 1, ..PlacementView::default() });
            });
        }
    }

    /// Notices who else decides; whose turn it is may be another for each Placement.
    fn look_for_ocm(&mut self) -> Option<bool> {
        let places = self.context.hub.ocm.places()?;
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
    async fn evaluate(&mut self, keys: Vec<PlacementKey>, now: Timestamp) -> Result<Vec<Decided>, Failure> {
        let board = &self.gathered.board;
        let placements: Vec<Arc<Placement>> =
            keys.iter().filter_map(|key| board.placement(key)).cloned().collect();
        if placements.is_empty() {
            return Ok(Vec::new());
        }
        let hub = self.unwritten.over(board.hub());
        let decide = move || round::decide(&placements, &hub, now);
        let decided = tokio::task::spawn_blocking(decide).await;
        decided.context("an evaluation of Placements broke off").map_err(Failure::Passing)
    }

    /// Forgets what was decided of it.
    fn forget(&mut self, key: &PlacementKey) {
        self.wishes.remove(key);
        self.warned.remove(key);
        self.best.remove(key);
        self.desired.remove(key);
        self.unwritten.set(key, None);
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
                self.forget(key);
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

    fn decide(&mut self, decided: Decided) {
        let Decided { key, best, desired, warning, again_at } = decided;
        self.warn(&key, warning.as_deref());
        self.gathered.board.evaluated(&key, again_at);
        self.best.insert(key.clone(), best);
        self.desired.insert(key, desired);
    }

    /// What is still to be written, so that a Placement is as it was last evaluated.
    fn compare(&mut self, key: PlacementKey) {
        let object = self.context.hub.ocm.placements.get(Some(&key.namespace), &key.name);
        let placement = self.gathered.board.placement(&key);
        let (Some(desired), Some(placement), Some(object)) = (self.desired.get(&key), placement, object)
        else {
            return;
        };
        let rendering = render::Rendering {
            hub_id: &self.context.hub_id,
            placement: &object,
            decisions: &self.context.hub.ocm.decisions,
            now: self.context.clock.now(),
        };
        let (hub, reported) = (self.gathered.board.hub(), read::ocm::report(&object));
        let wanted = desired.changes(placement, hub, &reported, &self.marks);
        let unwritten = changes::decisions_differ(&wanted).then(|| desired.decisions(placement)).flatten();
        self.unwritten.set(&key, unwritten);
        let due = changes::due(wanted);
        let changes: Vec<Change> = due.iter().filter_map(|change| rendering.change(change)).collect();
        if changes.is_empty() {
            self.wishes.remove(&key);
        } else {
            self.wishes.insert(key, changes);
        }
    }

    fn show(&mut self, key: &PlacementKey, writer: placement::Writer, failures: Vec<String>) {
        let found = self.context.hub.ocm.placements.get(Some(&key.namespace), &key.name);
        let (Some(placement), Some(object)) = (self.gathered.board.placement(key), found) else {
            self.rows.remove(key);
            return;
        };
        let row = PlacementRow {
            placement: Arc::clone(placement),
            writer,
            best: self.best.get(key).cloned(),
            report: read::ocm::report(&object),
            decided: self.gathered.board.hub().decided_names(key),
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
        let hub = self.unwritten.over(self.gathered.board.hub());
        self.view.send_if_modified(|view| {
            if view.known && Arc::ptr_eq(&view.hub, &hub) && view.placements == self.rows {
                return false;
            }
            *view = Arc::new(PlacementView {
                revision: view.revision + 1,
                known: true,
                hub,
                placements: self.rows.clone(),
            });
            true
        });
    }

    fn next(&self, now: Timestamp) -> Next {
        let evaluates = self.gathered.board.next_at();
        let evaluates = evaluates.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        let gone = self.context.hub.ocm.places_until().map(|at| at.saturating_duration_since(Instant::now()));
        let wait = [evaluates, gone].into_iter().flatten().min();
        wait.map_or(Next::AtPeriod, |wait| Next::After(wait + Duration::from_millis(1)))
    }
}

impl Controller for PlacementController {
    const NAME: &'static str = "placement";

    async fn reconcile(&mut self) -> Result<Next, Failure> {
        let now = self.context.clock.now();
        let places = self.look_for_ocm();
        let Some(ocm_places) = places.filter(|_| self.context.hub.ocm.is_current()) else {
            self.hold();
            return Ok(Next::AtPeriod);
        };
        for key in self.gathered.take(&self.context.hub.ocm, &self.context.hub_id) {
            self.forget(&key);
            self.rows.remove(&key);
        }
        let Touched { evaluate, compare } = self.gathered.board.take_touched(now);
        let mut keys: BTreeSet<PlacementKey> = evaluate.union(&compare).cloned().collect();
        let ours = self.leave_to_others(&keys, ocm_places);
        let is_open = |key: &&PlacementKey| evaluate.contains(*key) || !self.desired.contains_key(*key);
        match self.evaluate(ours.iter().filter(is_open).cloned().collect(), now).await {
            Ok(decided) => decided.into_iter().for_each(|one| self.decide(one)),
            Err(error) => {
                self.gathered.board.touch_all();
                return Err(error);
            }
        }
        for key in ours {
            self.compare(key);
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

    async fn woken(&mut self) -> anyhow::Result<()> {
        driver::failed(&mut self.tasks).await
    }

    fn tasks(self) -> Tasks {
        self.tasks
    }
}

fn created(object: &types::Placement) -> Option<Timestamp> {
    object.metadata.creation_timestamp.as_deref()?.parse().ok()
}
