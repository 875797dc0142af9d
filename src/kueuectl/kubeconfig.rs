//! Which server to ask, and as whom: kubectl's rules on files, contexts and flags.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, time::Duration};

use kube::{
    Client, Config,
    config::{
        AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, KubeconfigError, NamedAuthInfo,
        NamedCluster, NamedContext,
    },
};
use serde_json::json;

use crate::{
    api::Api,
    cause::{reason, told},
    error::Error,
    flags::Given,
};

/// Reads a variable of the environment.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Where requests go when nothing says where.
const NOWHERE: &str = "http://localhost:8080";

/// The files' contents with the flags' laid over them: one context with one cluster and one user.
pub struct Chosen {
    /// The context's name; empty where there is none.
    pub context: String,
    pub namespace: String,
    cluster: Cluster,
    user: AuthInfo,
}

pub fn choose(given: &Given, variables: Variables) -> Result<Chosen, Error> {
    let files = read(given, variables)?;
    let named = given.text("context");
    let current =
        if named.is_empty() { files.current_context.clone().unwrap_or_default() } else { named.to_owned() };
    let context = files.contexts.iter().find(|context| context.name == current);
    if context.is_none() && !named.is_empty() {
        return Err(Error::said(format!("context {named:?} does not exist")));
    }
    let context = context.and_then(|context| context.context.clone()).unwrap_or_default();
    let namespace = [given.text("namespace"), context.namespace.as_deref().unwrap_or_default(), "default"];
    let namespace = namespace.into_iter().find(|name| !name.is_empty()).unwrap_or_default().to_owned();
    let (cluster, user) = (cluster(given, &files, &context)?, user(given, &files, &context)?);
    Ok(Chosen { context: current, namespace, cluster, user })
}

impl Chosen {
    pub async fn connect(self, given: &Given) -> Result<Api, Error> {
        let server = self.cluster.server.clone().unwrap_or_default();
        let within = timeout(given.text("request-timeout"))?;
        let plugin = plugin(&self.user);
        let invalid = |error: &(dyn std::error::Error + 'static)| {
            Error::said(format!("invalid configuration: {}", told(error, &plugin)))
        };
        let options =
            KubeConfigOptions { context: Some("chosen".to_owned()), ..KubeConfigOptions::default() };
        let mut config =
            Config::from_custom_kubeconfig(self.single(), &options).await.map_err(|error| invalid(&error))?;
        config.default_retry = false;
        // It waits for the user's plugin, if there is one, on its thread.
        let client = tokio::task::spawn_blocking(move || Client::try_from(config)).await;
        let client = client.map_err(|error| invalid(&error))?.map_err(|error| invalid(&error))?;
        Ok(Api::new(client, server, within).with_plugin(plugin))
    }

    fn single(self) -> Kubeconfig {
        let name = || "chosen".to_owned();
        let context = Context {
            cluster: name(),
            user: Some(name()),
            namespace: Some(self.namespace),
            ..Context::default()
        };
        Kubeconfig {
            contexts: vec![NamedContext { name: name(), context: Some(context), other: BTreeMap::new() }],
            clusters: vec![NamedCluster {
                name: name(),
                cluster: Some(self.cluster),
                other: BTreeMap::new(),
            }],
            auth_infos: vec![NamedAuthInfo {
                name: name(),
                auth_info: Some(self.user),
                other: BTreeMap::new(),
            }],
            ..Kubeconfig::default()
        }
    }
}

/// `--kubeconfig`, else the files of `$KUBECONFIG` that are there, else `~/.kube/config` if it is there.
fn read(given: &Given, variables: Variables) -> Result<Kubeconfig, Error> {
    let explicit = given.text("kubeconfig");
    let listed = variables("KUBECONFIG").filter(|list| !list.is_empty());
    let paths: Vec<PathBuf> = match (explicit, listed) {
        ("", Some(list)) => std::env::split_paths(&list).filter(|path| path.exists()).collect(),
        ("", None) => home(variables)
            .map(|home| home.join(".kube/config"))
            .filter(|path| path.exists())
            .into_iter()
            .collect(),
        (path, _) => vec![PathBuf::from(path)],
    };
    let mut files = Kubeconfig::default();
    for path in paths {
        let unreadable = |error: &KubeconfigError| Error::Kubeconfig {
            path: path.display().to_string(),
            reason: told(error, ""),
        };
        if let Err(error) = std::fs::metadata(&path) {
            return Err(Error::said(format!("stat {}: {}", path.display(), reason(&error))));
        }
        let next = Kubeconfig::read_from(&path).map_err(|error| unreadable(&error))?;
        files = files.merge(next).map_err(|error| unreadable(&error))?;
    }
    Ok(files)
}

/// The names of the files' contexts, clusters or users.
pub fn names(given: &Given, of: &str, variables: Variables) -> Result<Vec<String>, Error> {
    let files = read(given, variables)?;
    Ok(match of {
        "context" => files.contexts.into_iter().map(|entry| entry.name).collect(),
        "cluster" => files.clusters.into_iter().map(|entry| entry.name).collect(),
        _ => files.auth_infos.into_iter().map(|entry| entry.name).collect(),
    })
}

pub fn home(variables: Variables) -> Option<PathBuf> {
    variables("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

fn cluster(given: &Given, files: &Kubeconfig, context: &Context) -> Result<Cluster, Error> {
    let named = given.text("cluster");
    let name = if named.is_empty() { &context.cluster } else { named };
    let found = files.clusters.iter().find(|cluster| cluster.name == *name);
    if found.is_none() && !named.is_empty() {
        return Err(Error::said(format!("cluster {named:?} does not exist")));
    }
    let mut cluster = found.and_then(|cluster| cluster.cluster.clone()).unwrap_or_default();
    if given.has("server") {
        cluster.server = Some(given.text("server").to_owned());
    }
    if cluster.server.as_ref().is_none_or(String::is_empty) {
        cluster.server = Some(NOWHERE.to_owned());
    }
    if given.has("certificate-authority") {
        cluster.certificate_authority = Some(given.text("certificate-authority").to_owned());
        cluster.certificate_authority_data = None;
    }
    if given.is("insecure-skip-tls-verify") {
        cluster.insecure_skip_tls_verify = Some(true);
        (cluster.certificate_authority, cluster.certificate_authority_data) = (None, None);
    }
    if given.has("tls-server-name") {
        cluster.tls_server_name = Some(given.text("tls-server-name").to_owned());
    }
    if given.is("disable-compression") {
        cluster.disable_compression = Some(true);
    }
    Ok(cluster)
}

fn user(given: &Given, files: &Kubeconfig, context: &Context) -> Result<AuthInfo, Error> {
    let named = given.text("user");
    let name = if named.is_empty() { context.user.as_deref().unwrap_or_default() } else { named };
    let found = files.auth_infos.iter().find(|user| user.name == name);
    if found.is_none() && !named.is_empty() {
        return Err(Error::said(format!("auth info {named:?} does not exist")));
    }
    let mut user = found.and_then(|user| user.auth_info.clone()).unwrap_or_default();
    if given.has("token") {
        // A token on the command line stands for every other way to say who one is.
        let token = json!({"token": given.text("token")});
        let said: AuthInfo = serde_json::from_value(token).map_err(|error| Error::said(error.to_string()))?;
        (user.exec, user.auth_provider, user.token_file) = (None, None, None);
        user.token = said.token;
    }
    if given.has("client-certificate") {
        user.client_certificate = Some(given.text("client-certificate").to_owned());
        user.client_certificate_data = None;
    }
    if given.has("client-key") {
        user.client_key = Some(given.text("client-key").to_owned());
        user.client_key_data = None;
    }
    impersonate(given, &mut user);
    Ok(user)
}

fn impersonate(given: &Given, user: &mut AuthInfo) {
    if given.has("as") {
        user.impersonate = Some(given.text("as").to_owned());
    }
    if given.has("as-uid") {
        user.impersonate_uid = Some(given.text("as-uid").to_owned());
    }
    if given.has("as-group") {
        user.impersonate_groups = Some(given.all("as-group").to_vec());
    }
    for extra in given.all("as-user-extra") {
        if let Some((key, value)) = extra.split_once('=') {
            let all = user.impersonate_user_extra.get_or_insert_default();
            all.entry(key.to_owned()).or_default().push(value.to_owned());
        }
    }
}

/// Go's durations, or seconds without a unit. Zero and nothing are no limit.
pub fn timeout(text: &str) -> Result<Option<Duration>, Error> {
    let invalid = || {
        Error::said(
            "Invalid timeout value. Timeout must be a single integer in seconds, or an integer followed by a corresponding time unit (e.g. 1s | 2m | 3h)",
        )
    };
    if text.is_empty() {
        return Ok(None);
    }
    let within = if let Ok(seconds) = text.parse() {
        Duration::from_secs(seconds)
    } else {
        let duration: jiff::SignedDuration = text.parse().map_err(|_| invalid())?;
        Duration::try_from(duration).map_err(|_| invalid())?
    };
    Ok(Some(within).filter(|within| !within.is_zero()))
}

/// How messages call the program by which a user logs in.
fn plugin(user: &AuthInfo) -> String {
    let command = user.exec.as_ref().and_then(|exec| exec.command.clone());
    let provider = || Some(user.auth_provider.as_ref()?.name.clone());
    command.or_else(provider).unwrap_or_default()
}
