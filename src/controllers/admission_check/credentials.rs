//! A credential for Kueue of each cluster that some check's Placement decided on: made when it is first needed,
//! anew well before it expires, and gone when no MultiKueueCluster names it. One Secret a cluster, however many
//! Placements share it, so that a new token makes Kueue connect once.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use tokio::task::{JoinError, JoinSet};
use tracing::{info, warn};

use fedq_base::{backoff::Backoff, telemetry::chain};
use fedq_domain::multikueue::{Plan, Source};
use fedq_k8s::{
    client::ClusterClient,
    hub::Hub,
    multikueue::{
        Credential, MintError, Minted, kubeconfig, mint, read_secret, render_secret, secret_cluster,
        secret_name,
    },
    worker::{CLUSTER_METRICS, Joined, JoinedClusters},
    write::{Action, Change, Kind, Target},
};
use fedq_values::ids::ClusterName;

use super::{
    MANAGER, Settings, decided,
    gather::Gathered,
    probes::{Answer, Probes},
};

const FIRST_RETRY: Duration = Duration::from_secs(2);
const LAST_RETRY: Duration = Duration::from_mins(5);

pub(super) struct Credentials {
    settings: Settings,
    /// For one request.
    deadline: Duration,
    hub_id: String,
    minting: JoinSet<(ClusterName, Result<Minted, MintError>)>,
    under_way: BTreeSet<ClusterName>,
    /// Made, and not yet in the Secret.
    made: BTreeMap<ClusterName, Made>,
    failed: BTreeMap<ClusterName, Failed>,
    probes: Probes,
}

/// What came of a question to a cluster.
pub(super) enum Answered {
    Minted(ClusterName, Result<Minted, MintError>),
    Probed(Answer),
}

struct Made {
    token: String,
    issued: Timestamp,
    expires: Timestamp,
}

struct Failed {
    times: u32,
    again: Timestamp,
    why: String,
}

/// What the Secrets are good for now, and what they lack.
#[derive(Default)]
pub(super) struct Kept {
    pub sources: BTreeMap<ClusterName, Source>,
    pub unready: BTreeMap<ClusterName, String>,
    pub changes: Vec<Change>,
    pub next: Option<Duration>,
}

impl Credentials {
    pub fn new(settings: Settings, deadline: Duration, hub_id: String) -> Self {
        Self {
            settings,
            deadline,
            hub_id,
            minting: JoinSet::new(),
            under_way: BTreeSet::new(),
            made: BTreeMap::new(),
            failed: BTreeMap::new(),
            probes: Probes::default(),
        }
    }

    /// The next token that is made, or was not, or that a cluster takes or does not.
    pub async fn answered(&mut self) -> Result<Answered, JoinError> {
        let minted = async {
            match self.minting.join_next().await {
                Some(ended) => ended,
                None => pending().await,
            }
        };
        tokio::select! {
            minted = minted => minted.map(|(cluster, outcome)| Answered::Minted(cluster, outcome)),
            probed = self.probes.answered() => probed.map(Answered::Probed),
        }
    }

    pub fn take(&mut self, answered: Answered, now: Timestamp) {
        let (cluster, outcome) = match answered {
            Answered::Minted(cluster, outcome) => (cluster, outcome),
            Answered::Probed(answer) => return self.probes.take(answer),
        };
        self.under_way.remove(&cluster);
        match outcome {
            Ok(Minted { token, lasts }) => {
                let expires = now.saturating_add(lasts).unwrap_or(Timestamp::MAX);
                info!(cluster.name = %cluster, "Made a token of `{cluster}` for Kueue, good until {expires}");
                self.failed.remove(&cluster);
                self.made.insert(cluster, Made { token, issued: now, expires });
            }
            Err(error) => {
                let times = self.failed.get(&cluster).map_or(0, |failed| failed.times);
                let wait = Backoff::after(times, FIRST_RETRY, LAST_RETRY);
                let again = now.saturating_add(wait).unwrap_or(Timestamp::MAX);
                let why = error.to_string();
                warn!(cluster.name = %cluster, "Could not make a token of `{cluster}` for Kueue: {}", chain(&error));
                self.failed.insert(cluster, Failed { times: times.saturating_add(1), again, why });
            }
        }
    }

    /// `unwritten`: why a Secret could not be written, by its name.
    pub fn keep(
        &mut self,
        seen: &Gathered,
        joined: &JoinedClusters,
        unwritten: &BTreeMap<String, String>,
        now: Timestamp,
    ) -> Kept {
        let mut kept = Kept::default();
        let needed: BTreeSet<&ClusterName> = decided(seen).chain(seen.secrets.keys()).collect();
        for cluster in needed {
            let Some(entry) = joined.get(cluster).filter(|entry| !entry.leaving) else { continue };
            if is_reported(entry) && seen.profiles.contains(cluster) {
                continue;
            }
            let secret = seen.secrets.get(cluster);
            let refused = seen.refused.contains(cluster);
            let due = self.keep_one((cluster, entry), (secret, refused), &mut kept, now);
            let wait = due.map(|due| Duration::try_from(due.duration_since(now)).unwrap_or_default());
            kept.next = [kept.next, wait].into_iter().flatten().min();
            if secret.is_some() {
                kept.sources.insert(cluster.clone(), Source::Secret(secret_name(cluster)));
            } else {
                let why = unwritten.get(&secret_name(cluster)).cloned();
                let why = why.or_else(|| self.failed.get(cluster).map(|failed| failed.why.clone()));
                let waits = || format!("it is {}", entry.connection.word());
                let why = why.or_else(|| client(entry).is_none().then(waits));
                kept.unready.insert(cluster.clone(), why.unwrap_or_else(|| "being made".to_owned()));
            }
        }
        // Where fedq has no way to a cluster, Kueue may have one of its own.
        let others =
            decided(seen).filter(|cluster| joined.get(*cluster).is_none_or(|entry| is_reported(entry)));
        for cluster in others.filter(|cluster| seen.profiles.contains(*cluster)) {
            kept.sources.insert(cluster.clone(), Source::ClusterProfile(cluster.to_string()));
        }
        self.made.retain(|cluster, _| joined.contains_key(cluster));
        self.failed.retain(|cluster, _| joined.contains_key(cluster));
        self.probes.retain(|cluster| joined.contains_key(cluster));
        kept
    }

    /// Looks after one cluster's Secret; when time alone asks for it again.
    fn keep_one(
        &mut self,
        (cluster, entry): (&ClusterName, &Joined),
        (secret, refused): (Option<&Arc<Secret>>, bool),
        kept: &mut Kept,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let stored = secret.and_then(|secret| read_secret(secret));
        if let (Some(made), Some(stored)) = (self.made.get(cluster), &stored)
            && made.token == stored.token
        {
            self.made.remove(cluster);
        }
        let made = self.made.get(cluster).map(|made| Credential {
            cluster: cluster.clone(),
            token: made.token.clone(),
            issued: made.issued,
            expires: made.expires,
        });
        let current = made.or(stored);
        let is_void = |credential: &&Credential| self.probes.is_void(credential);
        let due = current.as_ref().filter(|current| !is_void(current)).map_or(now, renewal);
        let client = client(entry)?;
        if let Some(current) = &current {
            kept.changes.extend(self.change(current, client, secret));
        }
        if now < due || self.under_way.contains(cluster) {
            let probed = current.filter(|_| secret.is_some()).and_then(|current| {
                let deadline = self.deadline;
                self.probes.look((client, deadline), &current, refused, now)
            });
            return [Some(due), probed].into_iter().flatten().filter(|due| now < *due).min();
        }
        if let Some(again) = self.failed.get(cluster).map(|failed| failed.again).filter(|again| now < *again)
        {
            return Some(again);
        }
        self.start(cluster, client);
        None
    }

    fn start(&mut self, cluster: &ClusterName, client: &ClusterClient) {
        let (cluster, client) = (cluster.clone(), client.clone());
        let (lifetime, deadline) = (self.settings.token_lifetime, self.deadline);
        self.under_way.insert(cluster.clone());
        self.minting.spawn(async move {
            let minted = mint(&client, lifetime, deadline).await;
            (cluster, minted)
        });
    }

    /// What the Secret lacks: a newer token, or the address that the cluster was joined with anew.
    fn change(
        &self,
        credential: &Credential,
        client: &ClusterClient,
        secret: Option<&Arc<Secret>>,
    ) -> Option<Change> {
        let text = client.kubeconfig_with(&credential.token)?;
        let body = render_secret(credential, &text, &self.hub_id);
        let target = Target::namespaced(
            Kind::Secret,
            &self.settings.kueue_namespace,
            secret_name(&credential.cluster),
        );
        let Some(secret) = secret else {
            return Some(Change { target, action: Action::Create(body), manager: MANAGER });
        };
        let annotations = json!(secret.metadata.annotations);
        let same = |key: &str| annotations[key] == body["metadata"]["annotations"][key];
        let mut keys = body["metadata"]["annotations"].as_object().into_iter().flat_map(|all| all.keys());
        if kubeconfig(secret) == Some(text.as_bytes()) && keys.all(|key| same(key)) {
            return None;
        }
        Some(Change { target, action: Action::Merge(patch(body, secret)), manager: MANAGER })
    }

    /// Secrets of ours that no MultiKueueCluster names, and none is to.
    pub fn unused(&self, hub: &Hub, seen: &Gathered, plan: &Plan) -> Vec<Change> {
        let decided: BTreeSet<&ClusterName> = decided(seen).collect();
        let existing = hub.multikueue_clusters.all();
        let named: BTreeSet<&str> = existing
            .iter()
            .filter_map(|one| one.spec.cluster_source.kube_config.as_ref())
            .map(|kubeconfig| kubeconfig.location.as_str())
            .chain(plan.clusters.values().filter_map(|source| match source {
                Source::Secret(name) => Some(name.as_str()),
                Source::ClusterProfile(_) => None,
            }))
            .collect();
        let secrets = hub.kueue_secrets.all();
        let unused = secrets.iter().filter(|secret| {
            let name = secret.metadata.name.as_deref().unwrap_or_default();
            let wanted = secret_cluster(secret).is_some_and(|cluster| decided.contains(&cluster));
            secret_cluster(secret).is_some() && !wanted && !named.contains(name)
        });
        unused.map(|secret| self.delete(secret)).collect()
    }

    fn delete(&self, secret: &Secret) -> Change {
        let name = secret.metadata.name.clone().unwrap_or_default();
        Change {
            target: Target::namespaced(Kind::Secret, &self.settings.kueue_namespace, name),
            action: Action::Delete {
                uid: secret.metadata.uid.clone().unwrap_or_default(),
                resource_version: secret.metadata.resource_version.clone().unwrap_or_default(),
            },
            manager: MANAGER,
        }
    }
}

fn patch(mut body: Value, secret: &Secret) -> Value {
    if let Some(fields) = body.as_object_mut() {
        fields.retain(|field, _| field == "metadata" || field == "data");
    }
    body["metadata"]["resourceVersion"] = json!(secret.metadata.resource_version);
    body
}

fn is_reported(entry: &Joined) -> bool {
    entry.source == CLUSTER_METRICS
}

fn client(entry: &Joined) -> Option<&ClusterClient> {
    let worker = entry.worker.as_deref()?;
    entry.connection.is_writable().then_some(&worker.client)
}

/// With a quarter of its time or more left, and not all clusters at once: each new token makes Kueue connect anew.
fn renewal(credential: &Credential) -> Timestamp {
    const STEPS: u64 = 100;
    let mut hasher = DefaultHasher::new();
    credential.cluster.hash(&mut hasher);
    let spread = i32::try_from(hasher.finish() % STEPS).unwrap_or_default();
    let lifetime = credential.expires.duration_since(credential.issued);
    // 60 % to 75 % of it.
    let after = (lifetime / 100).saturating_mul(60 + spread * 15 / 100);
    credential.issued.saturating_add(after).unwrap_or(credential.issued)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use fedq_domain::multikueue::{Check, Decided, GROUP, KIND, Naming, Parameters};

    fn name(text: &str) -> ClusterName {
        ClusterName::new(text).expect("a name")
    }

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn credentials() -> Credentials {
        let settings = Settings {
            kueue_namespace: "kueue-system".to_owned(),
            naming: Naming::Cluster,
            token_lifetime: Duration::from_hours(24),
            dispatches: false,
        };
        Credentials::new(settings, Duration::from_secs(1), "hub".to_owned())
    }

    /// A check on Placement `gpu`, which decided on these.
    fn seen(clusters: &[&str]) -> Gathered {
        let parameters =
            Parameters { group: GROUP.to_owned(), kind: KIND.to_owned(), name: "gpu".to_owned() };
        let check =
            Check { name: "gpu".to_owned(), generation: 1, parameters: Some(parameters), deleting: false };
        let clusters = clusters.iter().map(|cluster| name(cluster)).collect();
        Gathered {
            checks: vec![check],
            placements: BTreeMap::from([("gpu".to_owned(), Decided { clusters, ..Decided::default() })]),
            configs: BTreeMap::new(),
            clusters: BTreeMap::new(),
            secrets: BTreeMap::new(),
            profiles: BTreeSet::new(),
            refused: BTreeSet::new(),
            running: BTreeSet::new(),
        }
    }

    #[test]
    fn a_cluster_that_is_not_joined_is_reached_by_its_profile() {
        let mut seen = seen(&["east", "west"]);
        seen.profiles.insert(name("west"));
        let joined = JoinedClusters::new();
        let kept = credentials().keep(&seen, &joined, &BTreeMap::new(), time("2026-11-21T10:00:00Z"));
        let west = Source::ClusterProfile("west".to_owned());
        assert_eq!(kept.sources, BTreeMap::from([(name("west"), west)]));
        assert!(kept.changes.is_empty() && kept.unready.is_empty());
    }

    #[test]
    fn a_token_is_renewed_well_before_it_expires_and_not_all_at_once() {
        let (issued, expires) = (time("2026-11-21T10:00:00Z"), time("2026-11-21T20:00:00Z"));
        let due = |cluster: &str| {
            renewal(&Credential { cluster: name(cluster), token: String::new(), issued, expires })
        };
        let all: BTreeSet<Timestamp> = (0..50).map(|number| due(&format!("c{number}"))).collect();
        assert!(
            all.iter().all(|due| (time("2026-11-21T16:00:00Z")..time("2026-11-21T17:31:00Z")).contains(due))
        );
        assert!(10 <= all.len(), "they are spread: {all:?}");
        let backwards =
            Credential { cluster: name("east"), token: String::new(), issued: expires, expires: issued };
        assert!(renewal(&backwards) <= expires, "a time that makes no sense is renewed");
    }

    #[test]
    fn a_failed_token_is_asked_for_again_after_pauses_that_grow() {
        let mut credentials = credentials();
        let now = time("2026-11-21T10:00:00Z");
        let mut pauses = Vec::new();
        for _ in 0..12 {
            credentials.take(Answered::Minted(name("east"), Err(MintError::NoToken)), now);
            pauses.push(credentials.failed[&name("east")].again.duration_since(now));
        }
        assert_eq!(pauses[..3], [2, 4, 8].map(SignedDuration::from_secs));
        assert_eq!(pauses.last(), Some(&SignedDuration::from_mins(5)));
    }
}
