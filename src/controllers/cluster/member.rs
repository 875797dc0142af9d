//! The task of one joined cluster.

mod known;
mod renewal;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use fedq_base::backoff::Backoff;
use fedq_domain::cluster::{CREDENTIAL_REFUSED, Connection, QuarantineReason, UNCONFIRMED};
use fedq_k8s::{
    client::{self, ApiError, ClientLimits, ClusterClient, ClusterIdentity, RetryClass},
    hub::profiles::Access,
    kubeconfig,
    list_watch::{Allowance, Limits},
    worker::{Joined, Worker},
};
use fedq_store::{ClusterRow, RefusedCluster, StoreError, until_kept};
use fedq_values::ids::ClusterName;

use super::{CONFIRM_IDENTITY, Context, membership::Origin, observer, silent};

/// Waits between attempts to reach a cluster that was never reached in this life.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// The stored time of the last answer is at most this old, so that a restart does not start the
/// clock of `lostTimeout` anew.
const SEEN_PERIOD: Duration = Duration::from_secs(30);

pub(super) struct Member {
    pub name: ClusterName,
    pub origin: Origin,
    pub access: Result<Access, String>,
    /// Of all that joins it, for the store.
    pub fingerprint: String,
    pub confirmed_identity: Option<String>,
    pub context: Context,
    pub cancel: CancellationToken,
}

/// Why a connected cluster is not connected any more.
enum Ended {
    Cancelled,
    /// It answers again after silence: start over with a fresh connection and fresh lists.
    Returned,
    Quarantined(QuarantineReason),
    /// It sends more than is kept of a cluster.
    TooMuch(String),
}

/// How long a cluster has been silent while somebody listened. While this machine slept, or its clock jumped, nobody did:
/// each answer that fails to come counts for no longer than it is waited for.
struct Silence {
    since: Timestamp,
    lasted: Duration,
    looked: Instant,
    /// Why the last answer failed to come.
    reason: String,
}

impl Silence {
    fn new(since: Timestamp, lasted: Duration) -> Self {
        Self { since, lasted, looked: Instant::now(), reason: String::new() }
    }

    /// Another answer failed to come for that reason; whether it is the reason of the one before, too. The words may
    /// differ from answer to answer, and then each of them would be news to everybody.
    fn is_lasting(&mut self, reason: &str) -> bool {
        let is_same = self.reason == reason;
        reason.clone_into(&mut self.reason);
        is_same
    }

    /// Another answer failed to come, which takes `most` at most; how long that has been so.
    fn goes_on(&mut self, most: Duration) -> Duration {
        let now = Instant::now();
        self.lasted += now.duration_since(self.looked).min(most);
        self.looked = now;
        self.lasted
    }
}

impl Member {
    pub async fn run(mut self) {
        // Read once, and else kept as long as the cluster is joined.
        let access = std::mem::replace(&mut self.access, Err(String::new()));
        let cancel = self.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.live_or_refuse(access) => {}
        }
        if self.context.all.stop.is_cancelled() {
            self.keep_known().await;
        }
    }

    async fn live_or_refuse(&self, access: Result<Access, String>) {
        if let Err(error) = self.live(access).await {
            // A database that is full or busy is waited for; this one is damaged or closed.
            warn!(cluster.name = %self.name, "Could not record `{}`: {error}", self.name);
            self.context.publish(&self.name, |joined| {
                joined.connection = Connection::Refused { reason: format!("the store failed: {error}") };
            });
            self.let_go();
        }
        self.give_up_refused().await;
    }

    /// The share of a refused cluster stands for `lostTimeout` from its last answer.
    async fn give_up_refused(&self) {
        let joined = self.context.joined.borrow().get(&self.name).map(Arc::clone);
        let refused = joined.filter(|joined| matches!(joined.connection, Connection::Refused { .. }));
        let Some(refused) = refused else { return };
        if let Some(seen) = refused.last_seen.get() {
            self.share_expires(seen).await;
        }
        self.context.publish(&self.name, |joined| joined.is_given_up = true);
    }

    /// When the share of a cluster that last answered at `seen` does not stand any more. The clock tells only how long
    /// ago that was by now: from here on it may jump.
    async fn share_expires(&self, seen: Timestamp) {
        let silence =
            Duration::try_from(self.context.all.clock.now().duration_since(seen)).unwrap_or_default();
        tokio::time::sleep(self.context.settings.lost_timeout.saturating_sub(silence)).await;
    }

    async fn live(&self, access: Result<Access, String>) -> Result<(), StoreError> {
        // Boxed: what happens once would otherwise be kept as long as the cluster is joined.
        let stored = Box::pin(self.remembered()).await?;
        if let Some(stored) = stored {
            self.context.publish(&self.name, |joined| {
                joined.last_seen.set(stored);
                self.context.all.metrics.seen(&self.name, stored);
            });
        }
        if let Some(reason) = Box::pin(self.refused_before()).await? {
            self.set(Connection::Refused { reason });
            self.let_go();
            return Ok(());
        }
        let Some(client) = self.connect(&access) else {
            self.let_go();
            return Ok(());
        };
        drop(access);
        let (mut known, mut silence) = (true, None);
        loop {
            let identity = Box::pin(self.first_answer(&client, &mut silence)).await?;
            if let Some(reason) = Box::pin(self.refusal(&identity)).await? {
                self.set(Connection::Refused { reason });
                self.let_go();
                return Ok(());
            }
            if let Some(reason) = Box::pin(self.mismatch(&client, &identity)).await? {
                self.quarantine(reason).await;
                return Ok(());
            }
            let worker = self.worker(&client, &identity, std::mem::take(&mut known)).await;
            match self.connected(worker, identity, silence.insert(self.heard())).await? {
                Ended::Cancelled => return Ok(()),
                Ended::Returned => {}
                Ended::Quarantined(reason) => {
                    self.quarantine(reason).await;
                    return Ok(());
                }
                Ended::TooMuch(reason) => return Box::pin(self.refuse(reason)).await,
            }
        }
    }

    /// When the cluster last answered, as the store has it. A cluster it does not have yet is put there, so
    /// that what is known of it can be.
    async fn remembered(&self) -> Result<Option<Timestamp>, StoreError> {
        let store = &self.context.all.store;
        if let Some(row) = until_kept(|| store.cluster(&self.name)).await? {
            return Ok(row.last_seen);
        }
        let row = ClusterRow {
            name: self.name.clone(),
            identity: None,
            server: String::new(),
            source: self.origin.source(),
            connection: Connection::Connecting.word().to_owned(),
            last_seen: None,
            cordoned: false,
            version: None,
            joined: self.context.all.clock.now(),
        };
        until_kept(|| store.put_cluster(&row)).await?;
        Ok(None)
    }

    /// Why it is not to be followed: a restart must not let it send all of it again.
    async fn refused_before(&self) -> Result<Option<String>, StoreError> {
        let store = &self.context.all.store;
        let Some(refused) = until_kept(|| store.refused_cluster(&self.name)).await? else { return Ok(None) };
        let (objects, bytes) = self.most();
        if refused.joined_with == self.fingerprint && objects <= refused.objects && bytes <= refused.bytes {
            return Ok(Some(refused.reason));
        }
        info!(cluster.name = %self.name, "`{}` was refused, and is tried again", self.name);
        until_kept(|| store.admit_cluster(&self.name)).await?;
        Ok(None)
    }

    /// Its last confirmed share stands until `lostTimeout`, as that of a silent cluster.
    async fn refuse(&self, reason: String) -> Result<(), StoreError> {
        let place = self.origin.credential();
        let reason = format!(
            "{reason}: if that many are meant to be there, raise the bound; else clear them up, then `fedq cluster confirm` or change {place}"
        );
        warn!(cluster.name = %self.name, "`{}` is refused: {reason}", self.name);
        let (objects, bytes) = self.most();
        let joined_with = self.fingerprint.clone();
        let refused = RefusedCluster { reason: reason.clone(), joined_with, objects, bytes };
        // First of all it stops to be followed; a database that is full is no reason to go on. It answers as it is.
        self.note_answer(self.context.all.clock.now());
        self.set(Connection::Refused { reason });
        self.let_go();
        let store = &self.context.all.store;
        // Its share is given up in time also while the database takes nothing.
        let kept = until_kept(|| store.refuse_cluster(&self.name, &refused));
        let (kept, ()) = tokio::join!(kept, self.give_up_refused());
        kept
    }

    fn most(&self) -> (u64, u64) {
        let Limits { objects, bytes } = self.context.settings.most;
        (objects as u64, bytes as u64)
    }

    fn connect(&self, access: &Result<Access, String>) -> Option<ClusterClient> {
        let settings = &self.context.settings;
        let refused = |reason: String| {
            warn!(cluster.name = %self.name, "What joins `{}` is refused: {reason}", self.name);
            self.set(Connection::Refused { reason });
        };
        let checked = access.as_ref().map_err(String::clone).and_then(|Access { kubeconfig, context }| {
            kubeconfig::check(kubeconfig, context.as_deref(), &settings.rules)
                .map_err(|error| error.to_string())
        });
        let checked = match checked {
            Ok(checked) => checked,
            Err(reason) => {
                refused(reason);
                return None;
            }
        };
        let observer = observer(&self.context.all.metrics, self.name.clone());
        match client::connect(&checked, &ClientLimits { observer, ..settings.limits.clone() }) {
            Ok(client) => {
                let client = if self.origin.is_secret() { client } else { client.never_renewed() };
                self.context.publish(&self.name, |joined| {
                    joined.server = Some(client.server().to_string());
                    joined.credential_expires = client.expires();
                });
                Some(client)
            }
            Err(error) => {
                refused(error.to_string());
                None
            }
        }
    }

    /// Asks until the cluster says who it is.
    async fn first_answer(
        &self,
        client: &ClusterClient,
        silence: &mut Option<Silence>,
    ) -> Result<ClusterIdentity, StoreError> {
        let settings = &self.context.settings;
        let silence = if let Some(silence) = silence {
            silence
        } else {
            // A restart does not start the clock of `lostTimeout` anew. But nobody listened while fedqd was stopped, so that
            // it cannot be over at once: the cluster has the time until it would be stale to answer.
            let stored = until_kept(|| self.context.all.store.cluster(&self.name)).await?;
            let now = self.context.all.clock.now();
            let since = stored.and_then(|row| row.last_seen).unwrap_or(now);
            let lasted = Duration::try_from(now.duration_since(since)).unwrap_or_default();
            let lasted = lasted.min(settings.lost_timeout.saturating_sub(settings.stale_after));
            silence.insert(Silence::new(since, lasted))
        };
        let mut backoff = Backoff::new(FIRST_RETRY, settings.stale_after);
        loop {
            let wait = backoff.next_wait();
            match client.identity(settings.request).await {
                Ok(identity) => return Ok(identity),
                Err(error) => {
                    let reason = self.why(client, &error, self.context.all.clock.now());
                    let (since, lasted) = (silence.since, silence.goes_on(wait + settings.request));
                    let connection = silent(since, lasted, settings, reason.clone())
                        .unwrap_or(Connection::Stale { since, reason });
                    self.set(connection);
                    self.let_go();
                }
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// A connection does not outlive what it was made from: not the one of an earlier kubeconfig, where this one
    /// does not work.
    fn let_go(&self) {
        let ended =
            |joined: &Joined| joined.worker.as_ref().is_some_and(|worker| worker.cancel.is_cancelled());
        if self.context.joined.borrow().get(&self.name).is_some_and(|joined| ended(joined)) {
            self.context.publish(&self.name, |joined| joined.worker = None);
        }
    }

    /// What an answer that failed means to people, and what only they can do about it.
    fn why(&self, client: &ClusterClient, error: &ApiError, now: Timestamp) -> String {
        if error.class != RetryClass::Unauthorized {
            return error.to_string();
        }
        let expired = client.expires().filter(|expires| *expires <= now);
        let expired = expired.map(|expires| format!(", which expired at {expires}")).unwrap_or_default();
        let place = self.origin.credential();
        format!("{CREDENTIAL_REFUSED}{expired}, and says `{error}`: put a new one into {place}")
    }

    /// A cluster that must not be joined, whatever anyone confirms.
    async fn refusal(&self, identity: &ClusterIdentity) -> Result<Option<String>, StoreError> {
        let uid = &identity.kube_system_uid;
        if *uid == self.context.all.hub.uid {
            return Ok(Some(
                "this kubeconfig leads to the hub itself, and quota given to the hub's own queues would count twice; join another cluster"
                    .to_owned(),
            ));
        }
        let twin = self.twin(uid).await?;
        Ok(twin.map(|name| {
            format!("this cluster is joined already as `{name}`, and its nodes would count twice; leave one of the two")
        }))
    }

    /// The cluster under the name that it was joined by first. After a restart that is for the store to say:
    /// the other may be the first to answer.
    async fn twin(&self, uid: &str) -> Result<Option<ClusterName>, StoreError> {
        let known = until_kept(|| self.context.all.store.clusters_with_identity(uid)).await?;
        let joined = self.context.joined.borrow();
        let connected = joined.iter().find(|(name, other)| {
            **name != self.name && other.worker.as_ref().is_some_and(|worker| worker.uid == *uid)
        });
        if let Some((name, _)) = connected {
            return Ok(Some(name.clone()));
        }
        let older = known.into_iter().take_while(|row| row.name != self.name);
        let mut older = older.filter(|row| {
            joined.get(&row.name).is_some_and(|other| {
                matches!(
                    other.connection,
                    Connection::Connecting | Connection::Ready | Connection::Stale { .. }
                )
            })
        });
        Ok(older.next().map(|row| row.name))
    }

    /// Compares with the cluster that was joined, unless a person confirmed this one.
    async fn mismatch(
        &self,
        client: &ClusterClient,
        identity: &ClusterIdentity,
    ) -> Result<Option<QuarantineReason>, StoreError> {
        let store = &self.context.all.store;
        let now = self.context.all.clock.now();
        let stored = until_kept(|| store.cluster(&self.name)).await?;
        let found = identity.kube_system_uid.clone();
        let row = ClusterRow {
            name: self.name.clone(),
            identity: Some(found.clone()),
            server: client.server().to_string(),
            source: self.origin.source(),
            connection: "Ready".to_owned(),
            last_seen: Some(now),
            cordoned: false,
            version: Some(identity.version.clone()),
            joined: now,
        };
        if self.confirmed_identity.as_ref() == Some(&found) {
            until_kept(|| store.put_cluster(&row)).await?;
            until_kept(|| store.confirm_identity(&self.name, &found)).await?;
            info!(cluster.name = %self.name, "`{}` is confirmed as {found}", self.name);
            let answered = serde_json::json!({"metadata": {"annotations": {CONFIRM_IDENTITY: null}}});
            if let Origin::Secret(secret) = &self.origin {
                self.context.patch_secret(secret, answered).await;
            }
            return Ok(None);
        }
        match stored.and_then(|row| row.identity) {
            Some(expected) if expected != found => {
                Ok(Some(QuarantineReason::IdentityChanged { expected, found }))
            }
            // Its row is there already: a database that is full does not keep a known cluster out.
            Some(_) => match store.put_cluster(&row).await {
                Err(error) if !error.is_transient() => Err(error),
                Ok(()) | Err(_) => Ok(None),
            },
            None => {
                until_kept(|| store.put_cluster(&row)).await?;
                Ok(None)
            }
        }
    }

    /// Holds the cluster until its Secret changes; its share stands until `lostTimeout`.
    async fn quarantine(&self, reason: QuarantineReason) {
        // A restart does not start the clock anew.
        let seen = self.context.joined.borrow().get(&self.name).and_then(|joined| joined.last_seen.get());
        let since = seen.unwrap_or_else(|| self.context.all.clock.now());
        warn!(cluster.name = %self.name, "`{}` is quarantined: {reason:?}", self.name);
        self.context.publish(&self.name, |joined| {
            joined.connection = Connection::Quarantined { since, reason };
            joined.worker = None;
        });
        self.share_expires(since).await;
        self.set(Connection::Lost { since, reason: UNCONFIRMED.to_owned() });
        self.cancel.cancelled().await;
    }

    /// `known`: with what the store knows of its objects. After a silence everything is listed instead.
    async fn worker(&self, client: &ClusterClient, identity: &ClusterIdentity, known: bool) -> Arc<Worker> {
        let uid = identity.kube_system_uid.clone();
        let allowance = Allowance::new(self.context.settings.most);
        let worker =
            Worker::within(allowance, self.name.clone(), client.clone(), uid, self.cancel.child_token());
        if known {
            Box::pin(self.restore_known(&worker)).await;
        }
        Arc::new(worker)
    }

    /// Follows the cluster and probes it until something ends that.
    async fn connected(
        &self,
        worker: Arc<Worker>,
        identity: ClusterIdentity,
        silence: &mut Silence,
    ) -> Result<Ended, StoreError> {
        let settings = &self.context.settings;
        let _stop_on_return = worker.cancel.clone().drop_guard();
        let mut tasks = JoinSet::new();
        worker.follow(&settings.timing, &self.context.all.hub_id, &self.context.wake, &mut tasks);
        let seen = silence.since;
        let mut quarantine = worker.quarantine.subscribe();
        let mut exceeded = worker.allowance.exceeded();
        self.context.publish(&self.name, |joined| {
            joined.connection = Connection::Ready;
            joined.kubernetes_version = Some(identity.version);
            joined.last_seen.set(seen);
            joined.is_given_up = false;
            joined.worker = Some(Arc::clone(&worker));
            self.context.all.metrics.seen(&self.name, seen);
        });
        info!(cluster.name = %self.name, "Connected to `{}`", self.name);
        let mut stored = seen;
        let (mut fell_silent, mut renew_again) = (false, None);
        // Clusters that were connected together, as after a start, are not probed together for ever: a thousand
        // answers within three seconds of ten would keep changes waiting.
        let period = settings.stale_after / 4;
        let mut pause = period.mul_f64(0.5 + fastrand::f64());
        loop {
            tokio::select! {
                () = self.cancel.cancelled() => return Ok(Ended::Cancelled),
                changed = quarantine.changed() => {
                    let reason = changed.ok().and_then(|()| quarantine.borrow_and_update().clone());
                    if let Some(reason) = reason {
                        return Ok(Ended::Quarantined(reason));
                    }
                }
                found = exceeded.wait_for(Option::is_some) => {
                    if let Some(reason) = found.ok().and_then(|reason| reason.clone()) {
                        return Ok(Ended::TooMuch(reason));
                    }
                }
                // They end with the cluster only; one that broke is made anew with the rest.
                Some(_) = tasks.join_next() => return Ok(Ended::Returned),
                () = tokio::time::sleep(std::mem::replace(&mut pause, period)) => {}
            }
            match worker.client.identity(settings.request).await {
                Ok(found) if found.kube_system_uid != worker.uid => {
                    let reason = QuarantineReason::IdentityChanged {
                        expected: worker.uid.clone(),
                        found: found.kube_system_uid,
                    };
                    return Ok(Ended::Quarantined(reason));
                }
                Ok(_) if fell_silent => {
                    *silence = self.heard();
                    return Ok(Ended::Returned);
                }
                Ok(_) => {
                    worker.client.answers().tell();
                    Box::pin(self.answered(&mut stored)).await?;
                    Box::pin(self.renew(&worker.client, &mut renew_again)).await;
                    *silence = self.heard();
                }
                Err(error) => {
                    let reason = self.why(&worker.client, &error, self.context.all.clock.now());
                    fell_silent |= Box::pin(self.unanswered(silence, reason)).await?;
                }
            }
        }
    }

    /// Nobody needs to be woken for it, and nothing is new.
    fn note_answer(&self, now: Timestamp) {
        if let Some(entry) = self.context.joined.borrow().get(&self.name) {
            entry.last_seen.set(now);
            self.context.all.metrics.seen(&self.name, now);
        }
    }

    async fn answered(&self, stored: &mut Timestamp) -> Result<(), StoreError> {
        let now = self.context.all.clock.now();
        self.note_answer(now);
        if SEEN_PERIOD <= Duration::try_from(now.duration_since(*stored)).unwrap_or_default() {
            // Tried again at the next answer: a probe does not wait for the database.
            match self.context.all.store.set_connection(&self.name, "Ready", Some(now)).await {
                Err(error) if error.is_transient() => {}
                outcome => {
                    outcome?;
                    *stored = now;
                }
            }
        }
        Ok(())
    }

    /// Whether the silence is long enough to be called one.
    async fn unanswered(&self, silence: &mut Silence, reason: String) -> Result<bool, StoreError> {
        let settings = &self.context.settings;
        let (seen, lasted) = (silence.since, silence.goes_on(settings.stale_after / 4 + settings.request));
        let lasting = silence.is_lasting(&reason);
        let Some(connection) = silent(seen, lasted, settings, reason) else { return Ok(false) };
        let told = |connection: &Connection| (connection.word(), connection.refuses_credential());
        let (word, is) = (connection.word(), told(&connection));
        let before = self.context.joined.borrow().get(&self.name).map(|joined| told(&joined.connection));
        if lasting && before == Some(is) {
            self.set(connection);
        } else if before.is_some_and(|before| before != is) {
            self.set(connection);
            // For a restart meanwhile, which finds out by itself too.
            match self.context.all.store.set_connection(&self.name, word, Some(seen)).await {
                Err(error) if error.is_transient() => {}
                outcome => outcome.map(drop)?,
            }
        }
        Ok(true)
    }

    /// It answered just now.
    fn heard(&self) -> Silence {
        Silence::new(self.context.all.clock.now(), Duration::ZERO)
    }

    fn set(&self, connection: Connection) {
        let name = &self.name;
        let before = self.context.joined.borrow().get(name).map(|joined| joined.connection.clone());
        if before.as_ref() == Some(&connection) {
            return;
        }
        if before.is_some_and(|before| before.word() != connection.word()) {
            info!(cluster.name = %name, "`{name}` is {}", connection.word());
        }
        self.context.publish(name, |joined| joined.connection = connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_probe_after_a_sleep_is_not_a_long_silence() {
        let (second, most) = (Duration::from_secs(1), Duration::from_secs(2));
        let mut silence = Silence::new(Timestamp::UNIX_EPOCH, Duration::ZERO);
        let mut after = |slept: Duration| {
            silence.looked = Instant::now().checked_sub(slept).expect("the machine runs for longer");
            silence.goes_on(most)
        };
        assert_eq!(after(second * 60), most, "nobody asked meanwhile");
        let lasted = after(second);
        assert!(
            (most + second..most + second * 2).contains(&lasted),
            "and else it is as long as it takes: {lasted:?}"
        );
        assert_eq!(after(second * 60), lasted + most);
    }

    #[test]
    fn a_reason_is_a_lasting_one_once_it_is_given_twice_in_a_row() {
        let mut silence = Silence::new(Timestamp::UNIX_EPOCH, Duration::ZERO);
        let lasting = ["reset", "refused", "reset", "refused", "refused", "refused"];
        let lasting = lasting.map(|reason| silence.is_lasting(reason));
        assert_eq!(lasting, [false, false, false, false, true, true]);
    }
}
