//! ClusterProfiles in fedq's namespace, and what of them fedq can reach a cluster by: the cluster manager's plugins
//! are not run, but those that only read a Secret of this namespace need not be.

use std::{ops::Deref, sync::Arc};

use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    follow::{Followed, Following, Part, Row, Scope, TableSet, followed},
    kubeconfig::KUBECONFIG_KEY,
    list_watch::Table,
    types::{
        cluster_profile::{AccessProvider, ClusterProfile},
        meta::Meta,
    },
};

/// What a provider's plugin is told of a cluster.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";
/// Set by OCM, where the profile's name need not be the cluster's.
const CLUSTER_NAME: &str = "open-cluster-management.io/cluster-name";
/// Neither what joins clusters nor what fedq made.
const OTHERS: &str = "!fedq.dev/cluster,!fedq.dev/hub";
const TOKEN_KEY: &str = "token";

/// The providers whose Secrets fedq knows how to find.
const OCM: &str = "open-cluster-management";
const TOKEN_READER: &str = "secretreader";
const KUBECONFIG_READER: &str = "kubeconfig-secretreader";

pub(super) const MULTICLUSTER: &str = "/apis/multicluster.x-k8s.io/v1alpha1";

followed! {
    /// All in fedq's namespace.
    pub struct ProfileTables {
        profiles: ClusterProfile = Row::read_only(MULTICLUSTER, "clusterprofiles").in_namespace().planned();
        /// But for those that join clusters themselves and those that fedq made.
        secrets: Secret = Row::read_only("/api/v1", "secrets").in_namespace().labelled(OTHERS)
            .with_field("type", "Opaque").planned();
    }
}

#[derive(Clone)]
pub struct Profiles {
    tables: ProfileTables,
    namespace: String,
    /// The ManagedServiceAccount whose tokens OCM puts there.
    account: String,
}

impl Deref for Profiles {
    type Target = ProfileTables;

    fn deref(&self) -> &ProfileTables {
        &self.tables
    }
}

/// How to reach a cluster. Deliberately without `Debug`.
#[derive(Clone)]
pub struct Access {
    /// As yet unchecked.
    pub kubeconfig: Vec<u8>,
    pub context: Option<String>,
}

#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub enum AccessError {
    #[error(
        "its ClusterProfile names no access provider that fedq can use ({OCM}, {TOKEN_READER} or {KUBECONFIG_READER}), but {0}"
    )]
    NoProvider(String),
    #[error(
        "access provider `{provider}` of its ClusterProfile needs the Secret `{secret}` with `{key}` in fedq's namespace"
    )]
    NoSecret { provider: String, secret: String, key: String },
    #[error(
        "access provider `{provider}` of its ClusterProfile has no `{field}` in its extension {EXEC_EXTENSION}"
    )]
    NoExtension { provider: String, field: &'static str },
    #[error(
        "its ClusterProfile names a Secret in namespace `{0}`, and fedq reads none but its own namespace's"
    )]
    OtherNamespace(String),
}

/// What plugins are told, of all that fedq stands in for.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExecConfig {
    cluster_name: Option<String>,
    name: Option<String>,
    key: Option<String>,
    namespace: Option<String>,
    context: Option<String>,
}

impl Profiles {
    pub fn new(namespace: &str, account: &str) -> Self {
        Self {
            tables: ProfileTables::default(),
            namespace: namespace.to_owned(),
            account: account.to_owned(),
        }
    }

    pub fn follow(&self, following: &Following, tasks: &mut JoinSet<()>, cancel: &CancellationToken) {
        let scope = Scope { hub_id: "", namespace: &self.namespace, wake: None, cancel };
        self.tables.follow_part(Part::Always, following, &scope, tasks);
    }

    /// Of the providers that fedq knows, the first whose Secret is there.
    pub fn access(&self, profile: &ClusterProfile) -> Result<Access, AccessError> {
        let status = &profile.status;
        let newer = |name: &str| status.access_providers.iter().any(|provider| provider.name == name);
        let older = status.credential_providers.iter().filter(|provider| !newer(&provider.name));
        let mut why = None;
        for provider in status.access_providers.iter().chain(older) {
            let found = match provider.name.as_str() {
                OCM => self.managed_account(profile, provider),
                TOKEN_READER => self.token(provider),
                KUBECONFIG_READER => self.kubeconfig(provider),
                _ => continue,
            };
            match found {
                Ok(access) => return Ok(access),
                Err(error) => why = why.or(Some(error)),
            }
        }
        for reference in status.credentials.iter().map(|credential| &credential.access_ref) {
            if reference.kind != "Secret" {
                continue;
            }
            match self
                .in_namespace(Some(&reference.namespace))
                .and_then(|()| self.read("status.credentials", &reference.name, KUBECONFIG_KEY))
            {
                Ok(kubeconfig) => return Ok(Access { kubeconfig, context: None }),
                Err(error) => why = why.or(Some(error)),
            }
        }
        Err(why.unwrap_or_else(|| AccessError::NoProvider(named(profile))))
    }

    /// OCM's plugin: the token that it keeps for a ManagedServiceAccount.
    fn managed_account(
        &self,
        profile: &ClusterProfile,
        provider: &AccessProvider,
    ) -> Result<Access, AccessError> {
        let cluster = exec_config(provider).cluster_name;
        let cluster = cluster.unwrap_or_else(|| cluster_name(&profile.metadata).to_owned());
        let secret = format!("{cluster}-{}", self.account);
        Ok(with_token(provider, &self.read(&provider.name, &secret, TOKEN_KEY)?))
    }

    /// The cluster inventory's plugin `secretreader`: a Secret of the cluster's name.
    fn token(&self, provider: &AccessProvider) -> Result<Access, AccessError> {
        let secret = needed(provider, "clusterName", exec_config(provider).cluster_name)?;
        Ok(with_token(provider, &self.read(&provider.name, &secret, TOKEN_KEY)?))
    }

    /// Its plugin `kubeconfig-secretreader`: the user of a kubeconfig. fedq takes that kubeconfig as a whole.
    fn kubeconfig(&self, provider: &AccessProvider) -> Result<Access, AccessError> {
        let ExecConfig { name, key, namespace, context, .. } = exec_config(provider);
        self.in_namespace(namespace.as_deref())?;
        let (name, key) = (needed(provider, "name", name)?, needed(provider, "key", key)?);
        Ok(Access { kubeconfig: self.read(&provider.name, &name, &key)?, context })
    }

    fn in_namespace(&self, namespace: Option<&str>) -> Result<(), AccessError> {
        let other = namespace.filter(|namespace| !namespace.is_empty() && *namespace != self.namespace);
        other.map_or(Ok(()), |other| Err(AccessError::OtherNamespace(other.to_owned())))
    }

    fn read(&self, provider: &str, secret: &str, key: &str) -> Result<Vec<u8>, AccessError> {
        let object: Option<Arc<Secret>> = self.secrets.get(Some(&self.namespace), secret);
        let value = object.as_ref().and_then(|object| object.data.as_ref()?.get(key));
        value.map(|value| value.0.clone()).filter(|value| !value.is_empty()).ok_or_else(|| {
            AccessError::NoSecret {
                provider: provider.to_owned(),
                secret: secret.to_owned(),
                key: key.to_owned(),
            }
        })
    }
}

/// The name under which the cluster is known, also as a ManagedCluster.
pub fn cluster_name(profile: &Meta) -> &str {
    profile.labels.get(CLUSTER_NAME).map_or(&profile.name, |name| name)
}

/// A plugin may be told things in other shapes; those are not for fedq.
fn exec_config(provider: &AccessProvider) -> ExecConfig {
    let extension = provider.cluster.extensions.iter().find(|extension| extension.name == EXEC_EXTENSION);
    extension.and_then(|found| serde_json::from_value(found.extension.clone()).ok()).unwrap_or_default()
}

fn needed(
    provider: &AccessProvider,
    field: &'static str,
    value: Option<String>,
) -> Result<String, AccessError> {
    let missing = || AccessError::NoExtension { provider: provider.name.clone(), field };
    value.filter(|value| !value.is_empty()).ok_or_else(missing)
}

fn named(profile: &ClusterProfile) -> String {
    let status = &profile.status;
    let names = status.access_providers.iter().chain(&status.credential_providers);
    let names: Vec<&str> = names.map(|provider| provider.name.as_str()).collect();
    if names.is_empty() { "none at all".to_owned() } else { names.join(", ") }
}

/// A kubeconfig that says the same, to be judged as any other is.
fn with_token(provider: &AccessProvider, token: &[u8]) -> Access {
    let file = json!({
        "clusters": [{"name": "cluster", "cluster": provider.cluster.fields}],
        "users": [{"name": "user", "user": {"token": String::from_utf8_lossy(token)}}],
        "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "context",
    });
    Access { kubeconfig: file.to_string().into_bytes(), context: None }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn profiles(secrets: &[(&str, &str)]) -> Profiles {
        let profiles = Profiles::new("fedq-system", "fedq");
        for (name, key) in secrets {
            let data = json!({*key: k8s_openapi::ByteString(name.as_bytes().to_vec())});
            let secret = json!({
                "metadata": {"name": name, "namespace": "fedq-system", "resourceVersion": "1"}, "data": data,
            });
            profiles.secrets.absorb(serde_json::from_value(secret).expect("a Secret"));
        }
        profiles
    }

    fn profile(status: &Value) -> ClusterProfile {
        let meta = json!({"name": "east-1", "namespace": "fedq-system", "labels": {CLUSTER_NAME: "east"}});
        serde_json::from_value(json!({"metadata": meta, "status": status})).expect("a profile")
    }

    fn provider(name: &str, server: &str, config: &Value) -> Value {
        let extensions = json!([{"name": EXEC_EXTENSION, "extension": config}]);
        json!({"name": name, "cluster": {"server": server, "extensions": extensions}})
    }

    /// (server, token)
    fn reached(access: &Access) -> (String, String) {
        let file: Value = serde_json::from_slice(&access.kubeconfig).expect("JSON");
        let text =
            |pointer: &str| file.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        (text("/clusters/0/cluster/server"), text("/users/0/user/token"))
    }

    fn of(server: &str, token: &str) -> (String, String) {
        (server.to_owned(), token.to_owned())
    }

    #[test]
    fn a_provider_that_reads_a_secret_is_stood_in_for() {
        let all = profiles(&[("east-fedq", "token"), ("eastern", "token")]);
        let ocm = profile(&json!({"accessProviders": [provider(OCM, "https://one", &json!({}))]}));
        assert_eq!(reached(&all.access(&ocm).expect("access")), of("https://one", "east-fedq"));
        let told = json!({"clusterName": "eastern"});
        let older = profile(&json!({"credentialProviders": [provider(TOKEN_READER, "https://two", &told)]}));
        assert_eq!(reached(&all.access(&older).expect("access")), of("https://two", "eastern"));
        let both = profile(&json!({
            "accessProviders": [
                json!({"name": "exec-me", "cluster": {}}), provider(TOKEN_READER, "https://new", &told),
            ],
            "credentialProviders": [provider(TOKEN_READER, "https://old", &told)],
        }));
        let access = all.access(&both).expect("access");
        assert_eq!(reached(&access), of("https://new", "eastern"), "the newer field counts");
    }

    #[test]
    fn a_kubeconfig_in_a_secret_is_taken_whole() {
        let all = profiles(&[("file", "config"), ("old", "kubeconfig")]);
        let told = json!({"name": "file", "key": "config", "context": "admin"});
        let found =
            all.access(&profile(&json!({"accessProviders": [provider(KUBECONFIG_READER, "", &told)]})));
        let found = found.expect("access");
        assert_eq!((found.kubeconfig.as_slice(), found.context.as_deref()), (&b"file"[..], Some("admin")));
        let reference = |kind: &str, namespace: &str| {
            let accessed = json!({"kind": kind, "name": "old", "namespace": namespace});
            profile(&json!({"credentials": [{"consumer": "fedq", "accessRef": accessed}]}))
        };
        let found = all.access(&reference("Secret", "fedq-system")).expect("access");
        assert_eq!(found.kubeconfig, b"old");
        let error = all.access(&reference("Secret", "kueue-system")).err();
        assert_eq!(error, Some(AccessError::OtherNamespace("kueue-system".to_owned())));
        assert!(matches!(all.access(&reference("Vault", "fedq-system")), Err(AccessError::NoProvider(_))));
    }

    #[test]
    fn what_is_lacking_is_said() {
        let all = profiles(&[("no-token", "password")]);
        let of = |name: &str, config: Value| {
            let status = json!({"accessProviders": [provider(name, "https://one", &config)]});
            all.access(&profile(&status)).err().expect("an error").to_string()
        };
        assert!(of("aws-iam", json!({})).contains("but aws-iam"));
        assert!(
            of(OCM, json!({"clusterName": "west"})).contains("needs the Secret `west-fedq` with `token`")
        );
        assert!(of(TOKEN_READER, json!({})).contains("has no `clusterName`"));
        assert!(of(TOKEN_READER, json!("text")).contains("has no `clusterName`"));
        assert!(of(TOKEN_READER, json!({"clusterName": "no-token"})).contains("`no-token` with `token`"));
        let elsewhere = json!({"name": "file", "key": "config", "namespace": "secrets"});
        assert!(of(KUBECONFIG_READER, elsewhere).contains("namespace `secrets`"));
        let none = all.access(&profile(&json!({}))).err().expect("an error");
        assert!(none.to_string().contains("none at all"));
    }
}
