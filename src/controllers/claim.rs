//! Owns claim objects: makes one for a joined cluster that has none, keeps its own keys equal to
//! capacity, takes away what nobody uses, and writes down who changed what.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::Instant,
};
use tracing::{debug, info, warn};

use fedq_domain::{
    claim_keeping::{KeepingInput, KeptClaim, Step, keep, name_taken},
    overview::{CapacityView, ClusterCapacity, Overview},
    resources::Aliases,
};
use fedq_k8s::{
    claims::keeping::{change, conflicting_key, kept_claim, last_editor},
    client::RetryClass,
    events::{EventSender, Events, Happening},
    hub::CLUSTER_LABEL,
    list_watch::State,
    types::claim::ClusterResourceClaim,
    worker::JoinedClusters,
    write::{Action, Change, Target},
};
use fedq_store::{ClaimRow, PageRequest, StoreError};
use fedq_values::ids::{ClaimName, ClusterName};

use super::{
    context::Context,
    driver::{self, Controller, Driver, Failure, Next, Pace, Share, Tasks},
    memo::verify,
    writer::{Outcome, Place, Writer},
};

/// Looks again at least this often, should a write have been refused for a reason that has passed.
const PERIOD: Duration = Duration::from_mins(1);

#[derive(Clone)]
pub struct Settings {
    pub aliases: Aliases,
}

pub struct ClaimController {
    context: Context,
    settings: Settings,
    inputs: Inputs,
    /// That the hub's claims changed.
    claims: watch::Receiver<()>,
    events: Events,
    sender: Option<EventSender>,
    writer: Writer,
    /// What became of its writes.
    outcomes: (mpsc::UnboundedSender<Told>, mpsc::UnboundedReceiver<Told>),
    tasks: Tasks,
    /// When what was refused was last tried again.
    tried: Instant,
    /// Claims as the store has them: uid, where it was seen by this process, and generation.
    recorded: Option<BTreeMap<ClaimName, RecordedVersion>>,
    /// Claims as they were read last, by name.
    known: BTreeMap<String, Known>,
    /// Clusters whose claims need nothing while capacity and claims are these.
    at_rest: BTreeMap<ClusterName, Basis>,
    refused: BTreeMap<String, Refusal>,
    /// Claims that are being written as they were when that was first decided, to tell what it changed once nothing
    /// more is under way: the watch may be faster than the answer, and the answer may be lost.
    before: BTreeMap<String, Option<Arc<ClusterResourceClaim>>>,
    /// Its writer wakes it by this.
    signal: Arc<Notify>,
    /// Clusters whose claim's name is taken, already told.
    taken: BTreeSet<ClusterName>,
}

type Told = (Change, Outcome);

#[derive(Clone, Debug, Eq, PartialEq)]
struct RecordedVersion {
    uid: Option<String>,
    generation: i64,
}

struct Known {
    object: Arc<ClusterResourceClaim>,
    claim: Arc<KeptClaim>,
    /// Its generation is in the store.
    recorded: bool,
}

/// What decides about one cluster: its capacity, and the claims for it in order of their names.
struct Basis {
    capacity: Arc<ClusterCapacity>,
    claims: Vec<Arc<KeptClaim>>,
}

impl Basis {
    fn is(&self, capacity: &Arc<ClusterCapacity>, claims: &[&Arc<KeptClaim>]) -> bool {
        Arc::ptr_eq(&self.capacity, capacity)
            && self.claims.len() == claims.len()
            && self.claims.iter().zip(claims).all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

/// What the server did not let fedq write to a claim in this version.
struct Refusal {
    version: String,
    /// `None`: nothing at all.
    keys: Option<BTreeSet<String>>,
}

/// What the loop waits for.
pub struct Inputs {
    pub joined: watch::Receiver<Arc<JoinedClusters>>,
    pub capacity: watch::Receiver<Arc<CapacityView>>,
    pub overview: watch::Receiver<Arc<Overview>>,
}

impl ClaimController {
    pub fn new(
        context: Context,
        settings: Settings,
        inputs: Inputs,
        events: Events,
        sender: EventSender,
    ) -> Self {
        let signal = Arc::new(Notify::new());
        Self {
            claims: context.hub.claims.changed(),
            context,
            settings,
            inputs,
            events,
            sender: Some(sender),
            writer: Writer::waking(Arc::clone(&signal)),
            outcomes: mpsc::unbounded_channel(),
            tasks: Tasks::new(),
            tried: Instant::now(),
            recorded: None,
            known: BTreeMap::new(),
            at_rest: BTreeMap::new(),
            refused: BTreeMap::new(),
            before: BTreeMap::new(),
            signal,
            taken: BTreeSet::new(),
        }
    }

    pub async fn run(mut self) -> anyhow::Result<()> {
        let Context { hub, metrics, writer: config, stop, .. } = self.context.clone();
        if let Some(sender) = self.sender.take() {
            let (client, stop) = (hub.client.clone(), stop.clone());
            driver::spawn(&mut self.tasks, sender.run(client, stop));
        }
        let (place, tell) = ((Place::hub(hub), metrics.clone()), self.outcomes.0.clone());
        // Nobody listens any more only when the daemon stops.
        let heard = move |change: &Change, outcome: &Outcome| {
            let _ = tell.send((change.clone(), outcome.clone()));
        };
        let _stop = self.writer.start(place, config, heard, (&mut self.tasks, &stop));
        Driver { signal: Arc::clone(&self.signal), metrics }.run(self, stop).await
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        // Before the tables are read, which then show what became of every other write.
        let open = self.writer.open();
        while let Ok((change, outcome)) = self.outcomes.1.try_recv() {
            self.finish_write(&change, outcome);
        }
        self.claims.borrow_and_update();
        let joined = Arc::clone(&self.inputs.joined.borrow_and_update());
        let capacity = Arc::clone(&self.inputs.capacity.borrow_and_update());
        let overview = Arc::clone(&self.inputs.overview.borrow_and_update());
        if PERIOD <= self.tried.elapsed() {
            self.tried = Instant::now();
            self.refused.clear();
        }
        // A kind that is gone is not the same as each of its objects deleted.
        if !matches!(self.context.hub.claims.state(), State::Synced { .. }) {
            self.writer.want(Vec::new());
            return Ok(());
        }
        self.read();
        // One that cannot be read may name any cluster, and is not gone.
        let complete = overview.revision != 0
            && self.context.hub.claims.skipped().is_empty()
            && self.context.hub.secrets.synced()
            && self.context.hub.cluster_metrics.synced();
        match self.record(complete.then_some(&*overview)).await {
            // Claims do not wait for their history: it is compared with the store the next time.
            Err(error) if error.is_transient() => debug!("Claims are recorded later: {error}"),
            outcome => outcome?,
        }
        let changes = self.decide(&joined, &capacity, &overview, complete);
        self.tell_written(&open, &changes);
        for Change { target, .. } in &changes {
            let seen = || self.known.get(&target.name).map(|known| Arc::clone(&known.object));
            self.before.entry(target.name.clone()).or_insert_with(seen);
        }
        self.writer.want(changes);
        Ok(())
    }

    /// What clusters need of which something is new.
    fn decide(
        &mut self,
        joined: &JoinedClusters,
        capacity: &CapacityView,
        overview: &Overview,
        complete: bool,
    ) -> Vec<Change> {
        let blocked = self.blocked();
        let mut claims: BTreeMap<&str, Vec<&Arc<KeptClaim>>> = BTreeMap::new();
        for known in self.known.values() {
            claims.entry(&known.claim.text.cluster).or_default().push(&known.claim);
        }
        let claims_of = |name: &ClusterName| claims.get(name.as_str()).map_or(&[][..], Vec::as_slice);
        self.at_rest.retain(|name, basis| {
            capacity.get(name).is_some_and(|capacity| basis.is(capacity, claims_of(name)))
        });
        let staying =
            capacity.iter().filter(|(name, _)| joined.get(*name).is_some_and(|entry| !entry.leaving));
        let restless = staying.clone().filter(|(name, _)| !self.at_rest.contains_key(*name));
        let input = KeepingInput {
            capacity: restless.map(|(name, capacity)| (name.clone(), &capacity.capacity.total)).collect(),
            joined: self.joined(joined),
            claims: self.known.values().map(|known| &*known.claim).collect(),
            claimed: overview.in_force.values().chain(overview.held_clusters.iter()).cloned().collect(),
            complete,
            aliases: &self.settings.aliases,
        };
        let taken = name_taken(&input).map(|(cluster, name)| (cluster.clone(), name)).collect();
        let steps = keep(&input);
        let of_all = || {
            let all = staying.map(|(name, capacity)| (name.clone(), &capacity.capacity.total)).collect();
            keep(&KeepingInput { capacity: all, ..input.clone() })
        };
        verify(&steps, of_all, || true);
        let moved: BTreeSet<&str> = steps.iter().map(Step::claim).collect();
        for name in input.capacity.keys() {
            let claims = claims_of(name);
            // Where there is none, one may be missing.
            if !claims.is_empty() && !claims.iter().any(|claim| moved.contains(claim.text.name.as_str())) {
                let capacity = Arc::clone(&capacity[name]);
                let claims = claims.iter().copied().cloned().collect();
                self.at_rest.insert(name.clone(), Basis { capacity, claims });
            }
        }
        self.tell_taken(taken);
        let changes = steps.iter().map(change);
        changes.filter(|change| !blocked.contains(&change.target.name)).collect()
    }

    /// Takes in the claims of which something is new.
    fn read(&mut self) {
        let mut before = std::mem::take(&mut self.known);
        let mut known = BTreeMap::new();
        for object in self.context.hub.claims.all() {
            let name = object.metadata.name.clone().unwrap_or_default();
            let keys = self.refusal(&object).and_then(|refusal| refusal.keys.clone()).unwrap_or_default();
            let same = before
                .remove(&name)
                .filter(|known| Arc::ptr_eq(&known.object, &object) && known.claim.refused == keys);
            if let Some(known) = &same {
                verify(&known.claim, || Arc::new(kept_claim(&object, keys.clone())), || true);
            }
            let read = || Known { claim: Arc::new(kept_claim(&object, keys)), object, recorded: false };
            known.insert(name, same.unwrap_or_else(read));
        }
        self.known = known;
    }

    /// Every cluster that somebody joined, whatever became of it.
    fn joined(&self, joined: &JoinedClusters) -> BTreeSet<ClusterName> {
        let secrets = self.context.hub.secrets.all();
        let labels = secrets.iter().filter_map(|secret| secret.metadata.labels.as_ref()?.get(CLUSTER_LABEL));
        let metrics = self.context.hub.cluster_metrics.all();
        let metrics = metrics.iter().map(|metrics| &metrics.metadata.name);
        let names = labels.chain(metrics).filter_map(|name| ClusterName::new(name).ok());
        names.chain(joined.keys().cloned()).collect()
    }

    /// A refusal counts for the version it was about: a newer one says by itself who owns what.
    fn refusal(&self, claim: &ClusterResourceClaim) -> Option<&Refusal> {
        let refusal = self.refused.get(claim.metadata.name.as_deref()?)?;
        let version = claim.metadata.resource_version.as_deref().unwrap_or_default();
        (refusal.version == version).then_some(refusal)
    }

    /// Claims that nothing is written to until they change.
    fn blocked(&mut self) -> BTreeSet<String> {
        let known = &self.known;
        self.refused.retain(|name, refusal| {
            known.get(name).map_or("", |known| &known.claim.version) == refusal.version
        });
        let blocked = self.refused.iter().filter(|(_, refusal)| refusal.keys.is_none());
        blocked.map(|(name, _)| name.clone()).collect()
    }

    fn finish_write(&mut self, change: &Change, outcome: Outcome) {
        let name = &change.target.name;
        match outcome {
            Ok(_) => {
                self.refused.remove(name);
                if matches!(change.action, Action::Delete { .. }) {
                    info!(claim = %name, "Deleted the empty claim of a cluster that left");
                }
            }
            Err(error) if error.class == RetryClass::Conflict => {
                let taken: BTreeSet<String> = error
                    .conflicting_fields()
                    .filter_map(|(field, _)| conflicting_key(field))
                    .map(str::to_owned)
                    .collect();
                self.refuse(name, taken);
            }
            // The writer said why, and tries again.
            Err(_) => {}
        }
    }

    fn refuse(&mut self, name: &str, keys: BTreeSet<String>) {
        let version = self.known.get(name).map(|known| known.claim.version.clone()).unwrap_or_default();
        let mut refusal = Refusal { version, keys: (!keys.is_empty()).then_some(keys) };
        if let Some(known) = self.refused.get(name).filter(|known| known.version == refusal.version)
            && let (Some(known), Some(keys)) = (&known.keys, &mut refusal.keys)
        {
            keys.extend(known.iter().cloned());
        }
        self.refused.insert(name.to_owned(), refusal);
    }

    /// Tells what became of the claims of which nothing is under way any more.
    fn tell_written(&mut self, open: &HashSet<Target>, changes: &[Change]) {
        let under_way: HashSet<&str> = open
            .iter()
            .chain(changes.iter().map(|change| &change.target))
            .map(|target| &*target.name)
            .collect();
        let ended: Vec<_> = self.before.extract_if(.., |name, _| !under_way.contains(&**name)).collect();
        for (name, before) in ended {
            let Some(Known { object, claim, .. }) = self.known.get(&name) else { continue };
            let before = before.filter(|before| before.metadata.uid == object.metadata.uid);
            // One that was not there was perhaps made by somebody who was faster, and what changed by a person.
            let kept = before.map(|before| (kept_claim(&before, BTreeSet::new()), before));
            if kept.is_some() || claim.made_by_fedq {
                self.tell(kept.as_ref().map(|(kept, before)| (kept, &**before)), (claim, object));
            }
        }
    }

    fn tell(
        &self,
        before: Option<(&KeptClaim, &ClusterResourceClaim)>,
        (kept, after): (&KeptClaim, &ClusterResourceClaim),
    ) {
        let name = after.metadata.name.as_deref().unwrap_or_default();
        let cluster = &after.spec.cluster_name;
        let now = self.context.clock.now();
        let Some((kept_before, before)) = before else {
            info!(claim = name, cluster.name = cluster, "Created claim `{name}` for `{cluster}`");
            let note = format!("Created for cluster {cluster} with the capacity found there");
            self.events.tell(after, Happening::ClaimCreated, note, now);
            return;
        };
        let text = |claim: &ClusterResourceClaim, key: &str| {
            claim.spec.nominal_resources.get(key).map_or_else(|| "none".to_owned(), |text| text.0.0.clone())
        };
        let keys: BTreeSet<&String> =
            before.spec.nominal_resources.keys().chain(after.spec.nominal_resources.keys()).collect();
        let changed: Vec<String> = keys
            .into_iter()
            .filter(|key| {
                let there = after.spec.nominal_resources.contains_key(*key);
                if there { kept.owns(key) } else { kept_before.owns(key) }
            })
            .map(|key| (key, text(before, key), text(after, key)))
            .filter(|(_, before, after)| before != after)
            .map(|(key, before, after)| format!("{key} {before} → {after}"))
            .collect();
        if !changed.is_empty() {
            let note = format!("Capacity of {cluster} changed: {}", changed.join(", "));
            info!(claim = name, cluster.name = cluster, "{note}");
            self.events.tell(after, Happening::CapacityChanged, note, now);
        }
    }

    fn tell_taken(&mut self, taken: BTreeMap<ClusterName, ClaimName>) {
        for (cluster, name) in &taken {
            if !self.taken.contains(cluster) {
                warn!(cluster.name = %cluster, claim = %name, "`{cluster}` gets no claim: `{name}` is one for another cluster; create one under another name");
            }
        }
        self.taken = taken.into_keys().collect();
    }

    /// Writes down every new generation, and every removal that is believed. What changed while fedqd
    /// was down shows as a difference to the store.
    async fn record(&mut self, overview: Option<&Overview>) -> Result<(), StoreError> {
        if self.recorded.is_none() {
            self.recorded = Some(self.load().await?);
        }
        let Self { context: Context { store, clock, .. }, recorded: Some(recorded), known, .. } = self else {
            return Ok(());
        };
        for (name, known) in known.iter_mut().filter(|(_, known)| !known.recorded) {
            let Ok(name) = ClaimName::new(name) else { continue };
            let meta = &known.object.metadata;
            let seen =
                RecordedVersion { uid: meta.uid.clone(), generation: meta.generation.unwrap_or_default() };
            if recorded.get(&name) != Some(&seen) {
                store.record_claim(&row(name.clone(), &known.object, clock.now())).await?;
                recorded.insert(name, seen);
            }
            known.recorded = true;
        }
        let Some(overview) = overview else { return Ok(()) };
        let believed =
            |name: &ClaimName| !overview.in_force.contains_key(name) && !overview.held_claims.contains(name);
        let gone: Vec<ClaimName> = recorded
            .keys()
            .filter(|name| !known.contains_key(name.as_str()) && believed(name))
            .cloned()
            .collect();
        for name in gone {
            // A deleted object does not say who deleted it.
            store.claim_removed(&name, "unknown", clock.now()).await?;
            recorded.remove(&name);
        }
        Ok(())
    }

    async fn load(&self) -> Result<BTreeMap<ClaimName, RecordedVersion>, StoreError> {
        let mut recorded = BTreeMap::new();
        let mut request = PageRequest::default();
        loop {
            let page = self.context.store.claims(&request).await?;
            for row in page.items {
                recorded.insert(row.name, RecordedVersion { uid: None, generation: row.generation });
            }
            match page.next {
                Some(next) => request = PageRequest { after: Some(next), ..request },
                None => return Ok(recorded),
            }
        }
    }
}

impl Controller for ClaimController {
    const NAME: &'static str = "claim";

    /// Most of a round may be waiting for the database.
    fn pace(&self) -> Pace {
        Pace { period: PERIOD, share: Share::SHORT_TENTH, ..Pace::default() }
    }

    async fn reconcile(&mut self) -> Result<Next, Failure> {
        self.look().await?;
        Ok(Next::AtPeriod)
    }

    async fn woken(&mut self) -> anyhow::Result<()> {
        let (_, outcomes) = &mut self.outcomes;
        tokio::select! {
            changed = self.claims.changed() => changed?,
            changed = self.inputs.joined.changed() => changed?,
            changed = self.inputs.capacity.changed() => changed?,
            changed = self.inputs.overview.changed() => changed?,
            Some((change, outcome)) = outcomes.recv() => self.finish_write(&change, outcome),
            failed = driver::failed(&mut self.tasks) => failed?,
        }
        Ok(())
    }

    fn tasks(self) -> Tasks {
        self.tasks
    }
}

fn row(name: ClaimName, claim: &ClusterResourceClaim, at: Timestamp) -> ClaimRow {
    let who = last_editor(claim);
    // A spec is plain data, which always has a JSON form.
    let spec = serde_json::to_value(&claim.spec).unwrap_or_default();
    ClaimRow { name, generation: claim.metadata.generation.unwrap_or_default(), who, spec, at }
}

#[cfg(test)]
mod tests;
