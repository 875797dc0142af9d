//! Owns claim objects: makes one for a joined cluster that has none, keeps its own keys equal to
//! capacity, takes away what nobody uses, and writes down who changed what.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    clock::Clock,
    domain::{
        claim_keeping::{KeepingInput, KeptClaim, keep, name_taken},
        ids::{ClaimName, ClusterName},
        overview::{CapacityView, Overview},
        resources::Aliases,
    },
    k8s::{
        claims::keeping::{change, conflicting_key, kept_claim, last_editor},
        client::RetryClass,
        events::{EventSender, Events, Happening},
        hub::{CLUSTER_LABEL, Hub},
        list_watch::State,
        types::claim::ClusterResourceClaim,
        worker::JoinedClusters,
        write::{Action, Change},
    },
    store::{ClaimRow, PageRequest, Store, StoreError},
    telemetry::Metrics,
};

use super::{
    driver::{Rest, Share},
    writer::{Outcome, Writer, WriterConfig},
};

/// Looks again at least this often, should a write have been refused for a reason that has passed.
const PERIOD: Duration = Duration::from_mins(1);

#[derive(Clone)]
pub struct Settings {
    pub aliases: Aliases,
    pub writer: WriterConfig,
}

pub struct ClaimController {
    hub: Hub,
    store: Store,
    clock: Clock,
    metrics: Metrics,
    settings: Settings,
    events: Events,
    sender: Option<EventSender>,
    writer: Writer,
    /// Claims as the store has them: uid, where it was seen by this process, and generation.
    recorded: Option<BTreeMap<ClaimName, Seen>>,
    refused: BTreeMap<String, Refusal>,
    /// Claims that are being written as they were when that was decided, to tell what it changed: the
    /// watch may be faster than the answer.
    before: BTreeMap<String, Option<Arc<ClusterResourceClaim>>>,
    /// Clusters whose claim's name is taken, already told.
    taken: BTreeSet<ClusterName>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Seen {
    uid: Option<String>,
    generation: i64,
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
        hub: Hub,
        (store, clock, metrics): (Store, Clock, Metrics),
        settings: Settings,
        (events, sender): (Events, EventSender),
    ) -> Self {
        Self {
            hub,
            store,
            clock,
            metrics,
            settings,
            events,
            sender: Some(sender),
            writer: Writer::default(),
            recorded: None,
            refused: BTreeMap::new(),
            before: BTreeMap::new(),
            taken: BTreeSet::new(),
        }
    }

    pub async fn run(mut self, mut inputs: Inputs, cancel: CancellationToken) -> anyhow::Result<()> {
        let mut tasks = JoinSet::new();
        let mut outcomes = self.start(&mut tasks, &cancel);
        let mut claims = self.hub.claims.changed();
        let mut rest = Rest::new();
        loop {
            claims.borrow_and_update();
            let begun = Instant::now();
            let outcome = self.reconcile(&mut inputs).await;
            self.metrics.reconciled("claim", begun.elapsed(), outcome.is_err());
            outcome?;
            // Most of a round may be waiting for the database.
            rest.leave(Share::SHORT_TENTH, begun.elapsed(), &cancel).await;
            tokio::select! {
                () = cancel.cancelled() => break,
                changed = claims.changed() => changed?,
                changed = inputs.joined.changed() => changed?,
                changed = inputs.capacity.changed() => changed?,
                changed = inputs.overview.changed() => changed?,
                Some((change, outcome)) = outcomes.recv() => self.finish(&change, outcome),
                () = tokio::time::sleep(PERIOD) => self.refused.clear(),
                Some(ended) = tasks.join_next() => ended?,
            }
        }
        while let Some(ended) = tasks.join_next().await {
            ended?;
        }
        Ok(())
    }

    /// The tasks that write claims and events; the answers of the writes.
    fn start(
        &mut self,
        tasks: &mut JoinSet<()>,
        cancel: &CancellationToken,
    ) -> mpsc::UnboundedReceiver<(Change, Outcome)> {
        if let Some(sender) = self.sender.take() {
            tasks.spawn(sender.run(self.hub.client.clone(), cancel.clone()));
        }
        let (tell, outcomes) = mpsc::unbounded_channel();
        let (writer, client) = (self.writer.clone(), self.hub.client.kube());
        let (config, cancel) = (self.settings.writer.clone(), cancel.clone());
        tasks.spawn(async move {
            let report = move |change: &Change, outcome: &Outcome| {
                // Nobody listens any more only when the daemon stops.
                let _ = tell.send((change.clone(), outcome.clone()));
            };
            writer.run(client, config, report, cancel).await;
        });
        outcomes
    }

    async fn reconcile(&mut self, inputs: &mut Inputs) -> Result<(), StoreError> {
        let joined = Arc::clone(&inputs.joined.borrow_and_update());
        let capacity = Arc::clone(&inputs.capacity.borrow_and_update());
        let overview = Arc::clone(&inputs.overview.borrow_and_update());
        // A kind that is gone is not the same as each of its objects deleted.
        if !matches!(self.hub.claims.state(), State::Synced { .. }) {
            self.writer.want(Vec::new());
            return Ok(());
        }
        let objects = self.hub.claims.all();
        // One that cannot be read may name any cluster, and is not gone.
        let complete = overview.revision != 0
            && self.hub.claims.skipped().is_empty()
            && self.hub.secrets.synced()
            && self.hub.cluster_metrics.synced();
        match self.record(&objects, complete.then_some(&*overview)).await {
            // Claims do not wait for their history: it is compared with the store the next time.
            Err(error) if error.is_transient() => debug!("Claims are recorded later: {error}"),
            outcome => outcome?,
        }
        let blocked = self.blocked(&objects);
        let input = KeepingInput {
            capacity: capacity
                .iter()
                .filter(|(name, _)| joined.get(*name).is_some_and(|entry| !entry.leaving))
                .map(|(name, capacity)| (name.clone(), &capacity.capacity.total))
                .collect(),
            joined: self.joined(&joined),
            claims: objects.iter().map(|claim| self.kept(claim)).collect(),
            claimed: overview.in_force.values().chain(overview.held_clusters.iter()).cloned().collect(),
            complete,
            aliases: &self.settings.aliases,
        };
        let taken = name_taken(&input).map(|(cluster, name)| (cluster.clone(), name)).collect();
        let mut changes: Vec<Change> = keep(&input).iter().map(change).collect();
        changes.retain(|change| !blocked.contains(&change.target.name));
        for Change { target, .. } in &changes {
            self.before.insert(target.name.clone(), self.hub.claims.get(None, &target.name));
        }
        self.writer.want(changes);
        self.tell_taken(taken);
        Ok(())
    }

    /// Every cluster that somebody joined, whatever became of it.
    fn joined(&self, joined: &JoinedClusters) -> BTreeSet<ClusterName> {
        let secrets = self.hub.secrets.all();
        let labels = secrets.iter().filter_map(|secret| secret.metadata.labels.as_ref()?.get(CLUSTER_LABEL));
        let metrics = self.hub.cluster_metrics.all();
        let metrics = metrics.iter().map(|metrics| &metrics.metadata.name);
        let names = labels.chain(metrics).filter_map(|name| ClusterName::new(name).ok());
        names.chain(joined.keys().cloned()).collect()
    }

    fn kept(&self, claim: &ClusterResourceClaim) -> KeptClaim {
        let refusal = self.refusal(claim);
        kept_claim(claim, refusal.and_then(|refusal| refusal.keys.clone()).unwrap_or_default())
    }

    /// A refusal counts for the version it was about: a newer one says by itself who owns what.
    fn refusal(&self, claim: &ClusterResourceClaim) -> Option<&Refusal> {
        let refusal = self.refused.get(claim.metadata.name.as_deref()?)?;
        let version = claim.metadata.resource_version.as_deref().unwrap_or_default();
        (refusal.version == version).then_some(refusal)
    }

    /// Claims that nothing is written to until they change.
    fn blocked(&mut self, objects: &[Arc<ClusterResourceClaim>]) -> BTreeSet<String> {
        let versions: BTreeMap<&str, &str> = objects
            .iter()
            .filter_map(|claim| {
                let meta = &claim.metadata;
                Some((meta.name.as_deref()?, meta.resource_version.as_deref().unwrap_or_default()))
            })
            .collect();
        self.refused.retain(|name, refusal| {
            versions.get(name.as_str()).copied().unwrap_or_default() == refusal.version
        });
        let blocked = self.refused.iter().filter(|(_, refusal)| refusal.keys.is_none());
        blocked.map(|(name, _)| name.clone()).collect()
    }

    fn finish(&mut self, change: &Change, outcome: Outcome) {
        let name = &change.target.name;
        let before = self.before.get(name).cloned().flatten();
        match outcome {
            Ok(answer) => {
                self.refused.remove(name);
                self.before.remove(name);
                if matches!(change.action, Action::Delete { .. }) {
                    info!(claim = %name, "Deleted the empty claim of a cluster that left");
                    return;
                }
                match serde_json::from_value::<ClusterResourceClaim>(answer) {
                    Ok(after) => {
                        self.tell(before.as_deref(), &after);
                        self.hub.claims.absorb(after);
                    }
                    Err(error) => warn!(claim = %name, "The claim that was written cannot be read: {error}"),
                }
            }
            Err(error) if error.class == RetryClass::Conflict => {
                self.before.remove(name);
                let taken: BTreeSet<String> = error
                    .conflicting_fields()
                    .filter_map(|(field, _)| conflicting_key(field))
                    .map(str::to_owned)
                    .collect();
                debug!(claim = %name, "Somebody else wrote to the claim: {error}");
                self.refuse(name, before.as_deref(), taken);
            }
            Err(error) => warn!(claim = %name, "Could not {} the claim: {error}", change.verb()),
        }
    }

    fn refuse(&mut self, name: &str, seen: Option<&ClusterResourceClaim>, keys: BTreeSet<String>) {
        let version = seen.and_then(|claim| claim.metadata.resource_version.clone()).unwrap_or_default();
        let mut refusal = Refusal { version, keys: (!keys.is_empty()).then_some(keys) };
        if let Some(known) = self.refused.get(name).filter(|known| known.version == refusal.version)
            && let (Some(known), Some(keys)) = (&known.keys, &mut refusal.keys)
        {
            keys.extend(known.iter().cloned());
        }
        self.refused.insert(name.to_owned(), refusal);
    }

    fn tell(&self, before: Option<&ClusterResourceClaim>, after: &ClusterResourceClaim) {
        let name = after.metadata.name.as_deref().unwrap_or_default();
        let cluster = &after.spec.cluster_name;
        let now = self.clock.now();
        let Some(before) = before else {
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
    async fn record(
        &mut self,
        objects: &[Arc<ClusterResourceClaim>],
        overview: Option<&Overview>,
    ) -> Result<(), StoreError> {
        let mut recorded = match self.recorded.take() {
            Some(recorded) => recorded,
            None => self.load().await?,
        };
        let mut present = BTreeSet::new();
        for claim in objects {
            let Some(name) = claim.metadata.name.as_deref().and_then(|name| ClaimName::new(name).ok()) else {
                continue;
            };
            present.insert(name.clone());
            let generation = claim.metadata.generation.unwrap_or_default();
            let seen = Seen { uid: claim.metadata.uid.clone(), generation };
            if recorded.get(&name) == Some(&seen) {
                continue;
            }
            self.store.record_claim(&self.row(name.clone(), generation, claim)).await?;
            recorded.insert(name, seen);
        }
        let believed = |name: &ClaimName| {
            overview.is_some_and(|overview| {
                !overview.in_force.contains_key(name) && !overview.held_claims.contains(name)
            })
        };
        let gone: Vec<ClaimName> =
            recorded.keys().filter(|name| !present.contains(*name) && believed(name)).cloned().collect();
        for name in gone {
            // A deleted object does not say who deleted it.
            self.store.claim_removed(&name, "unknown", self.clock.now()).await?;
            recorded.remove(&name);
        }
        self.recorded = Some(recorded);
        Ok(())
    }

    fn row(&self, name: ClaimName, generation: i64, claim: &ClusterResourceClaim) -> ClaimRow {
        let who = last_editor(claim);
        // A spec is plain data, which always has a JSON form.
        let spec = serde_json::to_value(&claim.spec).unwrap_or_default();
        ClaimRow { name, generation, who, spec, at: self.clock.now() }
    }

    async fn load(&self) -> Result<BTreeMap<ClaimName, Seen>, StoreError> {
        let mut recorded = BTreeMap::new();
        let mut request = PageRequest::default();
        loop {
            let page = self.store.claims(&request).await?;
            for row in page.items {
                recorded.insert(row.name, Seen { uid: None, generation: row.generation });
            }
            match page.next {
                Some(next) => request = PageRequest { after: Some(next), ..request },
                None => return Ok(recorded),
            }
        }
    }
}
