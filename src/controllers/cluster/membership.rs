//! What joins a cluster: a Secret with its kubeconfig, or a ClusterProfile with a Secret that its access provider
//! names.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    hash::{DefaultHasher, Hash, Hasher},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tracing::warn;

use fedq_k8s::{
    hub::{
        CLUSTER_LABEL, Hub,
        profiles::{Access, Profiles, cluster_name},
    },
    kubeconfig::KUBECONFIG_KEY,
    types::cluster_profile::ClusterProfile,
    worker::{CLUSTER_PROFILE, KUBECONFIG},
};
use fedq_store::ClusterSource;
use fedq_values::ids::ClusterName;

use super::{CONFIRM_IDENTITY, CONTEXT, CORDON};

/// The object that joins the cluster, by name. A Secret counts before a ClusterProfile, which may be of others.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Origin {
    Secret(String),
    Profile(String),
}

pub(super) struct Membership {
    pub cluster: ClusterName,
    pub origin: Origin,
    /// Or why there is none.
    pub access: Result<Access, String>,
    pub confirmed_identity: Option<String>,
    pub cordoned: bool,
    pub leaving: bool,
    pub finalizers: Vec<String>,
    pub resource_version: Option<String>,
    /// Oldest first decides which of two for one cluster counts.
    age: (String, String),
}

/// What joins each cluster now.
pub(super) fn memberships(hub: &Hub) -> BTreeMap<ClusterName, Membership> {
    let secrets = hub.secrets.all();
    let secrets = secrets.iter().filter_map(|secret| Membership::of_secret(secret));
    let profiles = hub.profiles.iter().flat_map(|profiles| {
        let all = profiles.profiles.all();
        all.iter().filter_map(|profile| Membership::of_profile(profiles, profile)).collect::<Vec<_>>()
    });
    let mut by_cluster: BTreeMap<ClusterName, Membership> = BTreeMap::new();
    for membership in secrets.chain(profiles) {
        match by_cluster.entry(membership.cluster.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(membership);
            }
            Entry::Occupied(mut entry) => {
                let cluster = &membership.cluster;
                if membership.origin.is_secret() == entry.get().origin.is_secret() {
                    let what = membership.origin.kind();
                    warn!(cluster.name = %cluster, "Two {what}s join `{cluster}`; the older one counts");
                    if membership.age < entry.get().age {
                        entry.insert(membership);
                    }
                } else if membership.origin.is_secret() {
                    entry.insert(membership);
                }
            }
        }
    }
    by_cluster
}

impl Origin {
    pub fn is_secret(&self) -> bool {
        matches!(self, Self::Secret(_))
    }

    /// As it is shown.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Secret(_) => KUBECONFIG,
            Self::Profile(_) => CLUSTER_PROFILE,
        }
    }

    pub fn source(&self) -> ClusterSource {
        match self {
            Self::Secret(_) => ClusterSource::Secret,
            Self::Profile(_) => ClusterSource::ClusterProfile,
        }
    }

    /// Where its credential is read from.
    pub fn credential(&self) -> String {
        match self {
            Self::Secret(name) => format!("the Secret `{name}`"),
            Self::Profile(name) => format!("the Secret that the ClusterProfile `{name}` leads to"),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Secret(_) => "Secret",
            Self::Profile(_) => "ClusterProfile",
        }
    }
}

impl Membership {
    fn of_secret(secret: &Secret) -> Option<Self> {
        let meta = &secret.metadata;
        let label = meta.labels.as_ref()?.get(CLUSTER_LABEL)?;
        let name = meta.name.clone()?;
        let cluster = match ClusterName::new(label) {
            Ok(cluster) => cluster,
            Err(error) => {
                warn!(secret.name = %name, "The Secret joins no cluster: {error}");
                return None;
            }
        };
        let annotation = |key| meta.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        let data =
            secret.data.as_ref().and_then(|data| data.get(KUBECONFIG_KEY).or_else(|| data.get("value")));
        let kubeconfig = data.map(|bytes| bytes.0.clone()).unwrap_or_default();
        Some(Self {
            cluster,
            access: Ok(Access { kubeconfig, context: annotation(CONTEXT) }),
            confirmed_identity: annotation(CONFIRM_IDENTITY),
            cordoned: annotation(CORDON).as_deref() == Some("true"),
            leaving: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone(),
            age: (
                meta.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default(),
                name.clone(),
            ),
            origin: Origin::Secret(name),
        })
    }

    /// It is another's object: read, and never written.
    fn of_profile(profiles: &Profiles, profile: &ClusterProfile) -> Option<Self> {
        let meta = &profile.metadata;
        let cluster = match ClusterName::new(cluster_name(meta)) {
            Ok(cluster) => cluster,
            Err(error) => {
                warn!(profile.name = %meta.name, "The ClusterProfile joins no cluster: {error}");
                return None;
            }
        };
        Some(Self {
            cluster,
            access: profiles.access(profile).map_err(|error| error.to_string()),
            confirmed_identity: meta.annotations.get(CONFIRM_IDENTITY).cloned(),
            cordoned: meta.annotations.get(CORDON).is_some_and(|cordon| cordon == "true"),
            leaving: meta.deletion_timestamp.is_some(),
            finalizers: Vec::new(),
            resource_version: None,
            age: (meta.creation_timestamp.clone().unwrap_or_default(), meta.name.clone()),
            origin: Origin::Profile(meta.name.clone()),
        })
    }

    pub fn joined_at(&self) -> Option<Timestamp> {
        self.age.0.parse().ok()
    }

    /// The same for what [`Membership::key`] looks at, and for the store: it says nothing of what it was made from.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        let access = self.access.as_ref().ok();
        let parts = [
            access.map(|access| access.kubeconfig.as_slice()),
            access.and_then(|access| access.context.as_deref()).map(str::as_bytes),
            self.confirmed_identity.as_deref().map(str::as_bytes),
        ];
        for part in parts {
            hash.update(part.map_or(u64::MAX, |part| part.len() as u64).to_le_bytes());
            hash.update(part.unwrap_or_default());
        }
        hash.finalize().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }

    /// Differs when the cluster has to be connected anew.
    pub fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let access = self.access.as_ref().map(|access| (&access.kubeconfig, &access.context));
        (access, &self.confirmed_identity, &self.origin).hash(&mut hasher);
        hasher.finish()
    }
}

/// Nothing ever, where no ClusterProfile joins a cluster.
pub(super) struct ProfilesChanged(Option<[watch::Receiver<()>; 2]>);

impl ProfilesChanged {
    pub fn of(hub: &Hub) -> Self {
        let changed = |profiles: &Profiles| [profiles.profiles.changed(), profiles.secrets.changed()];
        Self(hub.profiles.as_ref().map(changed))
    }

    pub async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        let Some([profiles, secrets]) = &mut self.0 else { return std::future::pending().await };
        tokio::select! {
            changed = profiles.changed() => changed,
            changed = secrets.changed() => changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use serde_json::json;

    use super::*;
    use fedq_k8s::testing::Server;

    fn profile(name: &str, cluster: &str, made: &str) -> ClusterProfile {
        let labels = json!({"open-cluster-management.io/cluster-name": cluster});
        let metadata = json!({
            "name": name, "namespace": "fedq-system", "resourceVersion": "3", "creationTimestamp": made,
            "labels": labels, "annotations": {CORDON: "true"},
        });
        serde_json::from_value(json!({"metadata": metadata})).expect("a ClusterProfile")
    }

    #[tokio::test]
    async fn a_secret_counts_before_a_profile_and_of_two_profiles_the_older() {
        let server = Server::start(Router::new());
        let mut hub = Hub::new(server.client(), "uid".to_owned(), "fedq-system".to_owned());
        let profiles = Profiles::new("fedq-system", "fedq");
        for (name, cluster, made) in [
            ("a", "east", "2026-03-01T00:00:00Z"),
            ("b", "east", "2026-02-01T00:00:00Z"),
            ("c", "west", "2026-01-01T00:00:00Z"),
            ("d", "No Name", "2026-01-01T00:00:00Z"),
        ] {
            profiles.profiles.absorb(profile(name, cluster, made));
        }
        hub.profiles = Some(profiles);
        let secret = json!({
            "metadata": {"name": "s", "namespace": "fedq-system", "resourceVersion": "3", "labels": {CLUSTER_LABEL: "west"},
                "creationTimestamp": "2026-09-01T00:00:00Z"},
        });
        hub.secrets.absorb(serde_json::from_value(secret).expect("a Secret"));
        let found = memberships(&hub);
        let of = |cluster: &str| &found[&ClusterName::new(cluster).expect("a name")];
        assert_eq!(found.len(), 2);
        assert_eq!(of("east").origin, Origin::Profile("b".to_owned()));
        assert!(of("east").cordoned && of("east").access.is_err());
        assert_eq!(of("west").origin, Origin::Secret("s".to_owned()));
        assert!(!of("west").cordoned);
    }
}
