//! Tells the planner what is new, and takes the plans that follow from it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    QuotaController, Round,
    gather::{self, ClusterFacts, Known, Mark},
    in_turn::InOrder,
    record::Record,
    settling::Settling,
};
use crate::memo::verify;
use fedq_domain::{
    claim::ValidClaim,
    claim_status::Verdict,
    cluster::{Connection, LastSeen},
    quota::{ClusterInput, HubQueueInput, Mode},
    resources::Cell,
};
use fedq_k8s::worker::Joined;
use fedq_values::{
    ids::{ClusterName, QueueName},
    quantity::Amount,
};

/// Of a cluster that is connected and has not said all that a plan needs.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

impl QuotaController {
    pub(super) fn plan(&mut self, round: &mut Round<'_>) {
        let gather::HubQueues { inputs: mut queues, seen, cohorts, unreadable } =
            gather::hub_queues(&self.context.hub, &self.context.hub_id);
        (round.unreadable, self.told.hub_objects, self.told.cohorts) = (unreadable, seen, cohorts);
        self.keep_unreadable(&mut queues, round);
        self.restore_bases(&mut queues, round);
        self.at_start.tell(&mut queues);
        self.planner.set_flavors(Some(gather::flavors(&self.context.hub)));
        for name in self.told.queues.keys().filter(|name| !queues.contains_key(*name)) {
            self.planner.remove_queue(name);
        }
        for (name, queue) in &queues {
            if self.told.queues.get(name) != Some(queue) {
                self.planner.set_queue(queue.clone());
            }
        }
        self.told.queues = queues;
        self.tell_clusters(round);
        round.touched = self.planner.replan();
        self.take_off_what_is_read(round);
        // What the replan did not touch is as it was: the plans go from round to round.
        (round.plans, round.queues) = std::mem::take(&mut self.plans);
        for name in &round.touched.clusters {
            match self.planner.cluster(name) {
                Some(plan) => drop(round.plans.insert(name.clone(), plan)),
                None => drop(round.plans.remove(name)),
            }
        }
        for name in &round.touched.queues {
            match self.planner.queue(name) {
                Some(plan) => drop(round.queues.insert(name.clone(), plan)),
                None => drop(round.queues.remove(name)),
            }
        }
    }

    /// Accounts for what the hub had at the start by the clusters that are counted now.
    fn take_off_what_is_read(&mut self, round: &mut Round<'_>) {
        let awaited = self.at_start.awaited(round.joined.keys());
        if awaited.is_empty() {
            // Not before, since the clusters may not all be known in the first moments.
            if PATIENCE < self.started.elapsed() {
                self.at_start.end();
            }
            return;
        }
        for name in &awaited {
            if !round.joined.contains_key(name) {
                self.at_start.gone(name);
                continue;
            }
            let Some(told) = self.told.clusters.get(name) else { continue };
            match told.treated_as() {
                Mode::Live | Mode::Unreached => {
                    if let Some((plan, _)) = self.planner.cluster(name) {
                        let now = plan.cells.into_iter().map(|(cell, planned)| (cell, planned.term));
                        self.at_start.read(name, now);
                    }
                }
                Mode::Frozen if told.terms_may_lag => self.at_start.waited_for(name),
                Mode::Frozen => self.at_start.given_up(name),
                // Its share is off the hub.
                Mode::Lost => self.at_start.gone(name),
            }
        }
        for name in self.at_start.tell(&mut self.told.queues) {
            self.planner.set_queue(self.told.queues[&name].clone());
        }
        let touched = self.planner.replan();
        round.touched.clusters.extend(touched.clusters);
        round.touched.queues.extend(touched.queues);
    }

    /// A queue that cannot be read is not one that is gone: it is planned with as it last was, and what was
    /// never read holds the clusters that give it quota as they are.
    fn keep_unreadable(&mut self, queues: &mut BTreeMap<QueueName, HubQueueInput>, round: &mut Round<'_>) {
        for skipped in self.context.hub.queues.skipped() {
            let name = skipped.name.as_deref().and_then(|name| QueueName::new(name).ok());
            if let Some(name) = name.filter(|name| !queues.contains_key(name)) {
                round.unreadable.insert(name, skipped.reason);
            }
        }
        for name in round.unreadable.keys() {
            if let Some(known) = self.told.queues.get(name) {
                queues.insert(name.clone(), known.clone());
            }
        }
        let never_read =
            round.unreadable.keys().filter(|name| !queues.contains_key(*name)).collect::<BTreeSet<_>>();
        let waits = |claim: &ValidClaim| {
            claim.assignments().iter().any(|assignment| never_read.contains(&assignment.queue))
        };
        let mut waiting = unsettled(round);
        self.told.unsettled.clone_from(&waiting);
        waiting.extend(self.stored.behind().iter().cloned());
        if !never_read.is_empty() {
            let clusters = round.in_force.iter().filter(|(_, claim)| waits(claim));
            waiting.extend(clusters.map(|(cluster, _)| cluster.clone()));
        }
        for cluster in self.told.waiting.symmetric_difference(&waiting) {
            self.told.known.remove(cluster);
        }
        self.told.waiting = waiting;
    }

    /// What a cluster was last counted with. `None`, not known, holds the hub's cells where they are: only
    /// after the store was lost or could not take what was put to work, and only for a cluster that can have had a share.
    pub(super) fn last_terms(&self, name: &ClusterName, round: &Round<'_>) -> Option<BTreeMap<Cell, Amount>> {
        if self.stored.behind().contains(name) {
            return None;
        }
        if let Some(terms) = self.terms.get(name) {
            return Some(terms.clone());
        }
        let without_kueue = round.joined.get(name).is_some_and(|joined| joined.is_without_kueue());
        let assigned = is_assigned(name, round)
            || self.told.unsettled.contains(name)
                && round
                    .joined
                    .get(name)
                    .is_some_and(|joined| gather::may_hold_quota(joined, &self.context.hub_id));
        (!self.store_was_empty || without_kueue || !assigned).then(BTreeMap::new)
    }

    /// Terms are stored beside the writes that follow from them, not before: a daemon that was killed may have
    /// stored less than the hub holds, or more than the cluster has. A cluster that is about to answer is waited for.
    pub(super) fn terms_may_lag(&self, name: &ClusterName, joined: &Joined, round: &Round<'_>) -> bool {
        let since = match &joined.worker {
            Some(worker) => Some(worker.connected.elapsed()),
            // It is known as soon as the hub's report of it is.
            None => Some(self.started.elapsed()).filter(|_| joined.connection == Connection::Unreached),
        };
        let patience = PATIENCE.min(self.settings.lost_timeout);
        let answers_soon = answers_soon(&joined.connection, since, patience);
        let stored = self.terms.get(name).is_some_and(|terms| !terms.is_empty());
        answers_soon
            && !joined.is_without_kueue()
            && (stored || is_assigned(name, round))
            && !self.recorded.knows(name)
    }

    fn restore_bases(&mut self, queues: &mut BTreeMap<QueueName, HubQueueInput>, round: &Round<'_>) {
        // What stands for one that cannot be read is of the object before, which may not be the same one.
        let read = queues.iter_mut().filter(|(name, _)| !round.unreadable.contains_key(*name));
        for (name, queue) in read {
            let known_by = self.told.hub_objects.get(name).map(|object| match self.told.cohorts.get(name) {
                Some(cohort) => cohort.known_by(&object.metadata),
                None => object.metadata.uid.clone(),
            });
            if let Some(known_by) = known_by
                && let Some(news) = self.bases.restore(&known_by, queue)
            {
                self.store_later(Record::HubCells(name.clone(), Some(news)));
            }
        }
        // One that cannot be read is there all the same.
        let unreadable = self.context.hub.queues.skipped().into_iter();
        let unreadable = unreadable.filter_map(|skipped| QueueName::new(skipped.name.as_deref()?).ok());
        let there = self.told.hub_objects.keys().cloned().chain(unreadable).collect();
        for name in self.bases.forget_others(&there) {
            self.store_later(Record::HubCells(name, None));
        }
    }

    fn tell_clusters(&mut self, round: &mut Round<'_>) {
        let gone = self.left(round);
        for name in &gone {
            self.planner.remove_cluster(name);
            self.settling.forget(name);
            self.context.metrics.quota(name, &[]);
            self.context.metrics.forget_pending(name);
            // Of a cluster that left nothing is known any more, should it come back.
            self.terms.remove(name);
            self.at_start.gone(name);
            self.recorded.forget(name);
            self.told.clusters.remove(name);
            self.told.worker_objects.remove(name);
            self.told.known.remove(name);
        }
        // The claims of those that left have to say so.
        self.told.fresh = gone.into_iter().collect();
        self.told.renewed.clear();
        self.told.altered.clear();
        let now = Instant::now();
        for name in self.turns.next(round.joined, now) {
            self.told.known.remove(&name);
        }
        round.look_again(Some(self.turns.due));
        let joined = round.joined;
        for name in self.with_news(round, now) {
            self.tell_cluster(&name, &joined[&name], round, now);
        }
    }

    /// The clusters that left since the last round, whether or not they were joined anew.
    fn left(&mut self, round: &Round<'_>) -> Vec<ClusterName> {
        let members = &mut self.told.members;
        let left = |(name, member): &(&ClusterName, &LastSeen)| {
            round.joined.get(*name).is_none_or(|joined| !joined.last_seen.is(member))
        };
        let gone: Vec<ClusterName> = members.iter().filter(left).map(|(name, _)| name.clone()).collect();
        members.retain(|name, _| gone.binary_search(name).is_err());
        if members.len() < round.joined.len() {
            let joined = round.joined.iter();
            *members = joined.map(|(name, joined)| (name.clone(), joined.last_seen.clone())).collect();
        }
        gone
    }

    /// The clusters that this round has to look at. Each round asks that of all.
    fn with_news(&self, round: &mut Round<'_>, now: Instant) -> Vec<ClusterName> {
        let mut claims = InOrder::of(&round.in_force);
        let mut capacities = InOrder::of(round.capacity);
        let mut targets = InOrder::of(&self.targets);
        let mut told = InOrder::of(&self.told.clusters);
        let mut known = InOrder::of(&self.told.known);
        let (mut news, mut next) = (Vec::new(), None);
        for (name, joined) in round.joined {
            let (claim, capacity) = (claims.get(name), capacities.get(name));
            let facts = ClusterFacts { name, joined, claim, capacity, target: targets.get(name) };
            let known = known.get(name).filter(|known| known.until.is_none_or(|until| now < until));
            // What was stored of it may be believed later by time alone.
            let lagged = told.get(name).is_some_and(|told| told.terms_may_lag);
            match known.filter(|known| !lagged && known.mark == Mark::of(&facts)) {
                Some(known) => {
                    self.verify_told(&facts, &known.mark, round, now);
                    next = [next, known.until].into_iter().flatten().min();
                }
                None => news.push(name.clone()),
            }
        }
        round.look_again(next);
        news
    }

    /// Reads what the plan needs of one cluster, unless all of it is as it was.
    fn tell_cluster(
        &mut self,
        name: &ClusterName,
        joined: &Arc<Joined>,
        round: &mut Round<'_>,
        now: Instant,
    ) {
        let facts = ClusterFacts {
            name,
            joined,
            claim: round.in_force.get(name),
            capacity: round.capacity.get(name),
            target: self.targets.get(name),
        };
        let mark = Mark::of(&facts);
        self.measure_pending(name, joined);
        let (told, known) = (self.told.clusters.get(name), self.told.known.get(name));
        let lagged = told.is_some_and(|told| told.terms_may_lag);
        let known = known.filter(|known| known.until.is_none_or(|until| now < until));
        self.told.fresh.insert(name.clone());
        let stamp = facts.stamp(self.mode(&facts));
        let terms_may_lag = self.terms_may_lag(name, joined, round);
        if let Some(known) = known
            && known.stamp == stamp
            && lagged == terms_may_lag
        {
            let until = known.until;
            self.verify_told(&facts, &mark, round, now);
            self.told.known.insert(name.clone(), Known { mark, stamp, until });
            return round.look_again(until);
        }
        self.told.renewed.insert(name.clone());
        let mut settling = std::mem::take(&mut self.settling);
        let (seen, input, until) = self.read_cluster(&facts, round, &mut settling, now);
        self.settling = settling;
        self.told.worker_objects.insert(name.clone(), seen);
        round.look_again(until);
        self.told.known.insert(name.clone(), Known { mark, stamp, until });
        if self.told.clusters.get(name) != Some(&input) {
            self.told.altered.insert(name.clone());
            self.planner.set_cluster(input.clone());
            self.told.clusters.insert(name.clone(), input);
        }
    }
}

impl QuotaController {
    fn mode(&self, facts: &ClusterFacts<'_>) -> Mode {
        let mode = gather::mode(facts.joined, facts.capacity);
        let waits = matches!(mode, Mode::Live | Mode::Unreached) && self.told.waiting.contains(facts.name);
        if waits { Mode::Frozen } else { mode }
    }

    /// Its queues, what the planner is to be told of it, and when that changes by time alone.
    fn read_cluster(
        &self,
        facts: &ClusterFacts<'_>,
        round: &Round<'_>,
        settling: &mut Settling,
        now: Instant,
    ) -> (gather::Seen<String>, ClusterInput, Option<Instant>) {
        let seen = gather::seen(facts.joined.worker.as_deref());
        let settings = (self.context.hub_id.as_str(), &self.settings);
        let (mut input, until) = facts.input((self.mode(facts), &seen), settings, settling, now);
        input.last_terms = self.last_terms(facts.name, round);
        input.terms_may_lag = self.terms_may_lag(facts.name, facts.joined, round);
        (seen, input, until)
    }

    /// In debug builds: whether what the planner was told of a cluster is what it would be told now.
    fn verify_told(&self, facts: &ClusterFacts<'_>, mark: &Mark, round: &Round<'_>, now: Instant) {
        if cfg!(debug_assertions)
            && let Some(told) = self.told.clusters.get(facts.name)
        {
            let afresh = || self.read_cluster(facts, round, &mut self.settling.clone(), now).1;
            verify(told, afresh, || Mark::of(facts) == *mark);
        }
    }
}

/// Its queues may be read before its nodes are, and without both it is planned with as it was last: so it
/// counts as answering for a while after it was connected, but not for ever, since one kind may never be readable.
pub(super) fn answers_soon(connection: &Connection, since: Option<Duration>, patience: Duration) -> bool {
    match connection {
        Connection::Connecting => true,
        Connection::Ready | Connection::Unreached => since.is_some_and(|since| since < patience),
        Connection::Stale { .. }
        | Connection::Lost { .. }
        | Connection::Quarantined { .. }
        | Connection::Refused { .. } => false,
    }
}

fn is_assigned(name: &ClusterName, round: &Round<'_>) -> bool {
    round.in_force.get(name).is_some_and(|claim| !claim.assignments().is_empty())
}

/// Clusters whose claim is not valid, where no valid one was ever seen or the store was lost: whatever they have,
/// they keep.
fn unsettled(round: &Round<'_>) -> BTreeSet<ClusterName> {
    let rejected = round.claims.values().filter(|claim| matches!(claim.verdict, Verdict::Rejected(_)));
    let clusters = rejected.filter_map(|claim| ClusterName::new(&claim.cluster).ok());
    clusters.filter(|cluster| !round.in_force.contains_key(cluster)).collect()
}
