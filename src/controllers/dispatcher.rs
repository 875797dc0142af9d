//! MultiKueue's dispatcher `fedq.dev/dispatcher`: nominates clusters for the Workloads of the hub by the order of the
//! config and by what their queues have free. It writes nothing but `status.nominatedClusterNames`, and Events on
//! Workloads that no cluster can ever hold.
//!
//! Kueue has one dispatcher for all Workloads of a hub, so this one serves configs that are not fedq's, too. A
//! nomination that somebody else has changed is left alone, so that two dispatchers never fight.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use serde_json::json;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tracing::{info, warn};

use super::{
    context::Context,
    driver::{self, Controller, Driver, Failure, Next, Pace, Share, Tasks},
    writer::Writer,
};
use fedq_domain::multikueue::{
    Use,
    dispatch::{Key, Nomination, Verdict, Waiting, nominate},
};
use fedq_k8s::{
    events::{Events, Happening},
    list_watch::State,
    read::multikueue::{Dispatched, dispatching_checks},
    types::kueue::Workload,
    worker::JoinedClusters,
    write::{Action, Change, Kind, Target},
};

use self::rooms::Rooms;

mod rooms;

/// In Kueue's configuration, as `multiKueue.dispatcherName`.
const NAME: &str = "fedq.dev/dispatcher";
const MANAGER: &str = "fedq-dispatcher";
/// Looked at without a signal this often, so that nothing that was missed stays missed.
const PERIOD: Duration = Duration::from_secs(30);
/// A cluster that has room admits within seconds; after this the next one is asked as well.
const ROUND: Duration = Duration::from_secs(30);
/// Decisions on one Workload that may be on their way at once: one in flight, one taken up just now, and some more.
const REMEMBERED: usize = 4;

#[derive(Clone)]
pub struct Settings {
    pub kueue_namespace: String,
}

pub struct Inputs {
    pub joined: watch::Receiver<Arc<JoinedClusters>>,
    /// What is in a config and gets nothing new.
    pub draining: watch::Receiver<Arc<BTreeSet<Use>>>,
}

pub struct DispatcherController {
    context: Context,
    events: Events,
    settings: Settings,
    inputs: Inputs,
    signal: Arc<Notify>,
    writer: Writer,
    tasks: Tasks,
    /// By UID.
    seen: BTreeMap<String, NominationHistory>,
    /// Why nothing is nominated, as it was last told.
    told: Option<&'static str>,
}

/// A Workload's nomination as it was last seen, and as it was last written.
struct NominationHistory {
    nominated: Vec<String>,
    /// All that were ever nominated.
    tried: BTreeSet<String>,
    /// The last few, oldest first: one write may still be under way when the next is decided on.
    written: VecDeque<Vec<String>>,
    since: Instant,
    ours: bool,
    /// That no cluster can ever hold it is said once.
    hopeless: bool,
}

impl NominationHistory {
    /// What is there at the start counts as ours: nobody knows who wrote it.
    fn new(nominated: &[String], now: Instant) -> Self {
        Self {
            nominated: nominated.to_vec(),
            tried: nominated.iter().cloned().collect(),
            written: VecDeque::new(),
            since: now,
            ours: true,
            hopeless: false,
        }
    }

    fn observe(&mut self, nominated: &[String], now: Instant) {
        if self.nominated != nominated {
            // Emptied after an eviction, it is ours to fill again; what we did not write is somebody's.
            self.ours = nominated.is_empty() || self.written.iter().any(|written| written == nominated);
            self.nominated = nominated.to_vec();
            self.tried.extend(nominated.iter().cloned());
            self.since = now;
        }
    }

    fn writes(&mut self, clusters: &[String]) {
        if self.written.back().is_none_or(|last| last != clusters) {
            self.written.push_back(clusters.to_vec());
        }
        if REMEMBERED < self.written.len() {
            self.written.pop_front();
        }
    }
}

impl DispatcherController {
    pub fn new(
        context: Context,
        events: Events,
        settings: Settings,
        inputs: Inputs,
        signal: Arc<Notify>,
    ) -> Self {
        let writer = Writer::waking(Arc::clone(&signal));
        Self {
            context,
            events,
            settings,
            inputs,
            signal,
            writer,
            tasks: Tasks::new(),
            seen: BTreeMap::new(),
            told: None,
        }
    }

    pub async fn run(mut self) -> anyhow::Result<()> {
        let Context { metrics, stop, .. } = self.context.clone();
        let _stop = self.context.write_to_hub(&self.writer, &mut self.tasks);
        Driver { signal: Arc::clone(&self.signal), metrics }.run(self, stop).await
    }

    /// When to look again.
    fn nominate(&mut self, joined: &JoinedClusters, draining: &BTreeSet<Use>) -> Duration {
        let held = self.held();
        if held != self.told {
            self.told = held;
            if let Some(why) = held {
                warn!("No clusters are nominated for Workloads: {why}");
            } else {
                info!("Clusters are nominated for Workloads, if Kueue's dispatcherName is {NAME}");
            }
        }
        if held.is_some() || !self.context.hub.multikueue_is_current() || !self.context.hub.lists(joined) {
            self.writer.want(Vec::new());
            return PERIOD;
        }
        let now = Instant::now();
        let workloads = self.dispatchable();
        let (hub, hub_id) = (self.context.hub.clone(), self.context.hub_id.clone());
        let kueue_namespace = self.settings.kueue_namespace.clone();
        let mut rooms = Rooms::new(&hub, &hub_id, &kueue_namespace, joined, draining);
        let mut waiting = Vec::new();
        for (workload, config) in &workloads {
            let seen = self.look(workload, now);
            waiting.push(Waiting {
                key: key(workload),
                needs: Dispatched::new(workload).needs(),
                nominated: workload.status.nominated_cluster_names.clone(),
                ours: seen.ours,
                overdue: ROUND <= now - seen.since,
                candidates: rooms.candidates(config, workload),
            });
        }
        let live: BTreeSet<&str> = workloads.iter().map(|(one, _)| one.metadata.uid.as_str()).collect();
        self.measure_admitted(&live);
        self.seen.retain(|uid, _| live.contains(uid.as_str()));
        let by_key: BTreeMap<Key, &Arc<Workload>> =
            workloads.iter().map(|(workload, _)| (key(workload), workload)).collect();
        let nominations = nominate(&waiting);
        let changes = nominations.iter().filter_map(|one| self.change(by_key.get(&one.key)?, one)).collect();
        self.writer.want(changes);
        let due = self.seen.values().map(|seen| ROUND.saturating_sub(now - seen.since));
        due.filter(|due| !due.is_zero()).min().unwrap_or(PERIOD)
    }

    /// Why nothing may be nominated now.
    fn held(&self) -> Option<&'static str> {
        match self.context.hub.mutating_policies.state() {
            State::Waiting => Some("the hub's MutatingAdmissionPolicies are not known yet"),
            State::Absent => {
                Some("the hub has no MutatingAdmissionPolicies: it needs Kubernetes 1.36 or newer")
            }
            State::Synced { .. } if !self.context.hub.empties_nominations() => Some(
                "the hub has no MutatingAdmissionPolicy `fedq-nominations`, without which Kueue could not admit what fedq nominates: apply deploy/hub/dispatcher.yaml",
            ),
            State::Synced { .. } => None,
        }
    }

    /// Workloads with the config they are to be dispatched by; the most important first, then the oldest.
    fn dispatchable(&self) -> Vec<(Arc<Workload>, String)> {
        let configs = dispatching_checks(&self.context.hub.checks);
        let all = self.context.hub.workloads.all().into_iter();
        let mut workloads: Vec<(Arc<Workload>, String)> = all
            .filter_map(|workload| {
                let config = Dispatched::new(&workload).config(&configs)?.to_owned();
                Some((workload, config))
            })
            .collect();
        workloads.sort_by_cached_key(|(workload, _)| {
            let meta = &workload.metadata;
            (-workload.spec.priority, meta.creation_timestamp.clone(), meta.uid.clone())
        });
        workloads
    }

    /// Of those that need no cluster any more: how many were tried until one was found.
    fn measure_admitted(&self, live: &BTreeSet<&str>) {
        let is_over = |uid: &str| self.seen.contains_key(uid) && !live.contains(uid);
        if !self.seen.keys().any(|uid| is_over(uid)) {
            return;
        }
        for workload in self.context.hub.workloads.all() {
            let uid = workload.metadata.uid.as_str();
            if is_over(uid) && workload.status.cluster_name.is_some() {
                let tried = self.seen.get(uid).map_or(0, |seen| seen.tried.len());
                self.context.metrics.admitted(u32::try_from(tried).unwrap_or(u32::MAX));
            }
        }
    }

    fn look(&mut self, workload: &Workload, now: Instant) -> &NominationHistory {
        let nominated = &workload.status.nominated_cluster_names;
        let seen = self
            .seen
            .entry(workload.metadata.uid.clone())
            .or_insert_with(|| NominationHistory::new(nominated, now));
        seen.observe(nominated, now);
        seen
    }

    fn change(&mut self, workload: &Workload, nomination: &Nomination) -> Option<Change> {
        let seen = self.seen.get_mut(&workload.metadata.uid)?;
        if let Some(why) = newly_hopeless(seen, nomination) {
            let (namespace, name) = &nomination.key;
            warn!("No cluster can ever hold Workload {namespace}/{name}: {why}");
            let note = format!("No cluster can ever hold it: {why}");
            self.events.tell_of_workload(workload, Happening::NoClusterFits, note, self.context.clock.now());
        }
        if nomination.clusters == workload.status.nominated_cluster_names {
            return None;
        }
        let meta = &workload.metadata;
        let patch = json!({
            "metadata": {"resourceVersion": meta.resource_version},
            "status": {"nominatedClusterNames": nomination.clusters},
        });
        let (namespace, name) = &nomination.key;
        let target = Target::status_within(Kind::Workload, namespace, name);
        // What is under way is waited for: its answer may change what to write.
        if self.writer.is_in_flight(&target) {
            return None;
        }
        seen.writes(&nomination.clusters);
        Some(Change { target, action: Action::Merge(patch), manager: MANAGER })
    }
}

/// Why no cluster can ever hold it, if that was not so before.
fn newly_hopeless(seen: &mut NominationHistory, nomination: &Nomination) -> Option<String> {
    let never = |(cluster, verdict): &(String, Verdict)| match verdict {
        Verdict::Never(why) => Some(format!("{cluster}: {why}")),
        Verdict::Fits | Verdict::Waits | Verdict::Unknown => None,
    };
    let why: Vec<String> = nomination.verdicts.iter().filter_map(never).collect();
    let hopeless = !why.is_empty() && why.len() == nomination.verdicts.len();
    let was = std::mem::replace(&mut seen.hopeless, hopeless);
    (hopeless && !was).then(|| why.join("; "))
}

fn key(workload: &Workload) -> Key {
    (workload.metadata.namespace.clone().unwrap_or_default(), workload.metadata.name.clone())
}

impl Controller for DispatcherController {
    const NAME: &'static str = "dispatcher";

    fn pace(&self) -> Pace {
        Pace { period: PERIOD, share: Share::HALF, ..Pace::default() }
    }

    async fn reconcile(&mut self) -> Result<Next, Failure> {
        let joined = Arc::clone(&self.inputs.joined.borrow_and_update());
        let draining = Arc::clone(&self.inputs.draining.borrow_and_update());
        Ok(Next::After(self.nominate(&joined, &draining)))
    }

    async fn woken(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            changed = self.inputs.joined.changed() => changed?,
            changed = self.inputs.draining.changed() => changed?,
            failed = driver::failed(&mut self.tasks) => failed?,
        }
        Ok(())
    }

    fn tasks(self) -> Tasks {
        self.tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_no_cluster_can_hold_it_is_told_once_as_long_as_it_is_so() {
        let mut seen = NominationHistory::new(&[], Instant::now());
        let mut tell = |verdicts: &[Verdict]| {
            let verdicts =
                verdicts.iter().enumerate().map(|(at, one)| (format!("c{at}"), one.clone())).collect();
            let key = ("team".to_owned(), "w".to_owned());
            newly_hopeless(&mut seen, &Nomination { key, clusters: Vec::new(), verdicts })
        };
        let never = |why: &str| Verdict::Never(why.to_owned());
        assert_eq!(tell(&[]), None, "no clusters at all");
        assert_eq!(tell(&[never("small"), Verdict::Unknown]), None);
        assert_eq!(tell(&[never("small"), never("no queue")]).as_deref(), Some("c0: small; c1: no queue"));
        assert_eq!(tell(&[never("small"), never("no queue")]), None, "said already");
        assert_eq!(tell(&[never("small"), Verdict::Waits]), None);
        assert_eq!(tell(&[never("small")]).as_deref(), Some("c0: small"), "once more");
    }

    #[test]
    fn what_somebody_else_nominates_is_theirs_until_it_is_emptied() {
        let names = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let start = Instant::now();
        let mut seen = NominationHistory::new(&[], start);
        seen.writes(&names(&["east"]));
        let later = start + ROUND;
        seen.observe(&names(&["east"]), later);
        assert!(seen.ours && seen.since == later, "our own write arrived");
        seen.observe(&names(&["east"]), later + ROUND);
        assert_eq!(seen.since, later, "nothing new");
        seen.observe(&names(&["east", "west"]), later);
        assert!(!seen.ours, "another dispatcher's");
        seen.observe(&[], later);
        assert!(seen.ours, "emptied by an eviction");
    }

    #[test]
    fn a_write_that_arrives_after_the_next_decision_is_still_ours() {
        let names = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let start = Instant::now();
        let mut seen = NominationHistory::new(&[], start);
        for clusters in [&["east"][..], &["west"], &["west"], &["west", "north"]] {
            seen.writes(&names(clusters));
        }
        seen.observe(&names(&["east"]), start);
        assert!(seen.ours, "the first one was under way");
        seen.observe(&names(&["west", "north"]), start);
        assert!(seen.ours);
        for number in 0..REMEMBERED {
            seen.writes(&names(&[number.to_string().as_str()]));
        }
        seen.observe(&names(&["east"]), start);
        assert!(!seen.ours, "long ago");
        assert_eq!(seen.written.len(), REMEMBERED);
    }
}
