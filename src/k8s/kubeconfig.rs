//! What a stored kubeconfig may contain. A joined cluster's kubeconfig is a credential that other
//! people wrote: it must not make the daemon run programs, read its files, skip verification or send
//! requests into its own network. Nothing here prints a secret, nor quotes what it could not read.

mod address;
mod credential;

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use http::Uri;
use jiff::Timestamp;
use kube::{Config, config::AuthInfo};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use self::credential::{Credential, Times};
use super::join_token::Validity;
pub use address::check_address;

/// Its key in the Secret that joins a cluster, and in those that MultiKueue reads.
pub const KUBECONFIG_KEY: &str = "kubeconfig";

/// What is refused by default and may be allowed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rules {
    /// Servers on this machine: demo and tests.
    pub allow_loopback: bool,
    /// A `proxy-url` in the kubeconfig.
    pub allow_proxy: bool,
    /// No CA in the kubeconfig: verify with the system's trust store.
    pub allow_system_roots: bool,
    /// Paths of certificates, keys and tokens, relative to this folder: only for the hub's own
    /// kubeconfig, never for a Secret.
    pub files_from: Option<PathBuf>,
}

/// A kubeconfig that passed every rule, reduced to one server and one credential.
#[derive(Clone)]
pub struct CheckedKubeconfig {
    server: Uri,
    namespace: Option<String>,
    ca_pem: Option<Vec<u8>>,
    tls_server_name: Option<String>,
    proxy: Option<Uri>,
    credential: Credential,
    times: Times,
    allow_loopback: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error("the kubeconfig is larger than {} KiB: give one with only the context to use (kubectl config view --minify --flatten)", MAX_BYTES >> 10)]
    TooLarge,
    #[error("the kubeconfig is not UTF-8 text")]
    NotText,
    #[error(
        "the kubeconfig cannot be read as YAML near line {line}: check its form with kubectl config view"
    )]
    Malformed { line: u64 },
    #[error(
        "the kubeconfig has no current-context: set one (kubectl config use-context) or name the context"
    )]
    NoCurrentContext,
    #[error("the kubeconfig has no context `{context}`")]
    UnknownContext { context: String },
    #[error("context `{context}` names cluster `{cluster}`, which the kubeconfig does not have")]
    UnknownCluster { context: String, cluster: String },
    #[error("context `{context}` names user `{user}`, which the kubeconfig does not have")]
    UnknownUser { context: String, user: String },
    #[error(
        "the user logs in by an exec plugin: fedq runs no programs for a credential; use a ServiceAccount token"
    )]
    Exec,
    #[error("the user logs in by an auth-provider, which is not supported; use a ServiceAccount token")]
    AuthProvider,
    #[error("the user has a username and password, which is not supported; use a token or a certificate")]
    BasicAuth,
    #[error(
        "the user impersonates another one (`as`), which is not supported; give that user's own credential"
    )]
    Impersonation,
    #[error(
        "`{field}` is the path of a file, which is not read: embed the content (kubectl config view --flatten)"
    )]
    FilePath { field: &'static str },
    #[error("cannot read the file of `{field}`")]
    ReadFile { field: &'static str, source: io::Error },
    #[error(
        "insecure-skip-tls-verify is set: remove it and give the server's CA in certificate-authority-data"
    )]
    InsecureSkipTlsVerify,
    #[error(
        "the kubeconfig has no certificate-authority-data: without it the server's certificate cannot be verified"
    )]
    NoCa,
    #[error("`{field}` is not valid: expected {expected}")]
    BadData { field: &'static str, expected: &'static str },
    #[error("the user has no credential: give a token, or client-certificate-data with client-key-data")]
    NoCredential,
    #[error("the cluster has no server address")]
    NoServer,
    #[error("the server address is not a URL such as https://api.example.com:6443")]
    BadServer,
    #[error("the server address must begin with https://")]
    NotHttps,
    #[error("the server address contains a user name or password: remove it")]
    UserInfo,
    #[error("the server address contains a query or a fragment: remove it")]
    QueryOrFragment,
    #[error("the server address {host} is refused: {reason}")]
    Address { host: String, reason: &'static str },
    #[error("the kubeconfig has a proxy-url, which is refused unless the daemon's configuration allows it")]
    Proxy,
    #[error("the proxy-url must be http:// with a host, and without user name or password")]
    BadProxy,
}

impl KubeconfigError {
    /// Whether it is only that the server is on this machine, which may be allowed.
    pub fn is_loopback(&self) -> bool {
        matches!(self, Self::Address { reason, .. } if *reason == address::LOOPBACK)
    }
}

/// Nobody has a larger one.
pub const MAX_BYTES: usize = 1 << 20;

#[derive(Deserialize)]
struct File {
    #[serde(default, rename = "current-context")]
    current_context: Option<String>,
    #[serde(default)]
    contexts: Option<Vec<NamedContext>>,
    #[serde(default)]
    clusters: Option<Vec<NamedCluster>>,
    #[serde(default)]
    users: Option<Vec<NamedUser>>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Option<Context>,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
    namespace: Option<String>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Option<Cluster>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    proxy_url: Option<String>,
    tls_server_name: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: Option<User>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    username: Option<IgnoredAny>,
    password: Option<IgnoredAny>,
    exec: Option<IgnoredAny>,
    auth_provider: Option<IgnoredAny>,
    #[serde(rename = "as")]
    impersonate: Option<IgnoredAny>,
    as_uid: Option<IgnoredAny>,
    as_groups: Option<IgnoredAny>,
    as_user_extra: Option<IgnoredAny>,
}

/// Checks the current context of a kubeconfig, or `context` where given; the other contexts are not
/// looked at and not kept.
pub fn check(
    bytes: &[u8],
    context: Option<&str>,
    rules: &Rules,
) -> Result<CheckedKubeconfig, KubeconfigError> {
    if MAX_BYTES < bytes.len() {
        return Err(KubeconfigError::TooLarge);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| KubeconfigError::NotText)?;
    // The reader's own message quotes the text, which may be a token.
    let file: File = serde_saphyr::from_str(text).map_err(|error| KubeconfigError::Malformed {
        line: error.location().map_or(0, |location| location.line()),
    })?;
    let (context, cluster, user) = file.select(context)?;
    let files = rules.files_from.as_deref();
    let (credential, times) = Credential::check(user, files)?;
    if cluster.insecure_skip_tls_verify == Some(true) {
        return Err(KubeconfigError::InsecureSkipTlsVerify);
    }
    let server = check_server(&cluster.server.ok_or(KubeconfigError::NoServer)?, rules)?;
    let ca_pem = embedded(
        "certificate-authority-data",
        cluster.certificate_authority_data,
        "certificate-authority",
        cluster.certificate_authority,
        files,
    )?;
    match &ca_pem {
        Some(pem) => drop(certificates(pem)?),
        None if rules.allow_system_roots => {}
        None => return Err(KubeconfigError::NoCa),
    }
    if cluster
        .tls_server_name
        .as_ref()
        .is_some_and(|name| rustls::pki_types::ServerName::try_from(name.as_str()).is_err())
    {
        return Err(KubeconfigError::BadData { field: "tls-server-name", expected: "a host name" });
    }
    let proxy = cluster.proxy_url.filter(|url| !url.is_empty());
    Ok(CheckedKubeconfig {
        server,
        namespace: context.namespace,
        ca_pem,
        tls_server_name: cluster.tls_server_name,
        proxy: proxy.map(|url| check_proxy(&url, rules)).transpose()?,
        credential,
        times,
        allow_loopback: rules.allow_loopback,
    })
}

impl File {
    fn select(self, name: Option<&str>) -> Result<(Context, Cluster, User), KubeconfigError> {
        let name = name.map(str::to_owned).or(self.current_context).filter(|name| !name.is_empty());
        let name = name.ok_or(KubeconfigError::NoCurrentContext)?;
        let context = self.contexts.into_iter().flatten().find(|c| c.name == name).and_then(|c| c.context);
        let context = context.ok_or_else(|| KubeconfigError::UnknownContext { context: name.clone() })?;
        let mut clusters = self.clusters.into_iter().flatten();
        let cluster =
            clusters.find(|c| c.name == context.cluster).and_then(|c| c.cluster).ok_or_else(|| {
                KubeconfigError::UnknownCluster { context: name.clone(), cluster: context.cluster.clone() }
            })?;
        let mut users = self.users.into_iter().flatten();
        let user = users
            .find(|u| u.name == context.user)
            .ok_or_else(|| KubeconfigError::UnknownUser { context: name, user: context.user.clone() })?
            .user
            .unwrap_or_default();
        Ok((context, cluster, user))
    }
}

fn check_server(text: &str, rules: &Rules) -> Result<Uri, KubeconfigError> {
    // Checked in the text: the parser drops a fragment without a word.
    if text.contains(['?', '#']) {
        return Err(KubeconfigError::QueryOrFragment);
    }
    if text.split('/').any(|part| part.contains('@')) {
        return Err(KubeconfigError::UserInfo);
    }
    let server: Uri = text.trim().parse().map_err(|_| KubeconfigError::BadServer)?;
    match server.scheme_str() {
        Some("https") => {}
        Some(_) => return Err(KubeconfigError::NotHttps),
        None => return Err(KubeconfigError::BadServer),
    }
    let host = server.host().filter(|host| !host.is_empty()).ok_or(KubeconfigError::BadServer)?;
    // The parser lets a port that is none pass, and connects to 443.
    let port = server.authority().and_then(|authority| authority.as_str().strip_prefix(host));
    if port.is_some_and(|port| !port.is_empty()) && server.port_u16().is_none_or(|port| port == 0) {
        return Err(KubeconfigError::BadServer);
    }
    address::check_host(host, rules.allow_loopback)
        .map_err(|reason| KubeconfigError::Address { host: host.to_owned(), reason })?;
    Ok(server)
}

fn check_proxy(text: &str, rules: &Rules) -> Result<Uri, KubeconfigError> {
    if !rules.allow_proxy {
        return Err(KubeconfigError::Proxy);
    }
    let proxy: Uri = text.parse().map_err(|_| KubeconfigError::BadProxy)?;
    if text.contains('@') || proxy.scheme_str() != Some("http") {
        return Err(KubeconfigError::BadProxy);
    }
    let host = proxy.host().ok_or(KubeconfigError::BadProxy)?;
    address::check_host(host, rules.allow_loopback)
        .map_err(|reason| KubeconfigError::Address { host: host.to_owned(), reason })?;
    Ok(proxy)
}

/// The content of a field that may be embedded in base64, or lie in a file where that is allowed.
fn embedded(
    data_field: &'static str,
    data: Option<String>,
    path_field: &'static str,
    path: Option<String>,
    files: Option<&Path>,
) -> Result<Option<Vec<u8>>, KubeconfigError> {
    match (data.filter(|data| !data.is_empty()), path, files) {
        (_, Some(_), None) => Err(KubeconfigError::FilePath { field: path_field }),
        (Some(data), ..) => credential::base64(&data)
            .map(Some)
            .ok_or(KubeconfigError::BadData { field: data_field, expected: "base64" }),
        (None, Some(path), Some(folder)) => std::fs::read(folder.join(path))
            .map(Some)
            .map_err(|source| KubeconfigError::ReadFile { field: path_field, source }),
        (None, None, _) => Ok(None),
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, KubeconfigError> {
    let bad = || KubeconfigError::BadData {
        field: "certificate-authority-data",
        expected: "certificates in PEM form",
    };
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(pem).map(|der| der.map(|der| der.to_vec())).collect();
    let certificates = certificates.map_err(|_| bad())?;
    let valid = certificates.iter().all(|der| x509_parser::parse_x509_certificate(der).is_ok());
    if certificates.is_empty() || !valid { Err(bad()) } else { Ok(certificates) }
}

impl CheckedKubeconfig {
    pub fn server(&self) -> &Uri {
        &self.server
    }

    /// When the client certificate or the token expires, where that can be read from it.
    pub fn expires(&self) -> Option<Timestamp> {
        self.times.expires
    }

    /// How long its token is good, if it is one that fedq can make anew.
    pub fn renewable(&self) -> Option<Validity> {
        self.times.renewable
    }

    pub(super) fn allow_loopback(&self) -> bool {
        self.allow_loopback
    }

    pub(super) fn proxy(&self) -> Option<&Uri> {
        self.proxy.as_ref()
    }

    /// Without kube's own loader, which would take `$HTTPS_PROXY` into account.
    pub(super) fn config(&self) -> Result<Config, KubeconfigError> {
        let mut config = Config::new(self.server.clone());
        config.root_cert = self.ca_pem.as_deref().map(certificates).transpose()?;
        config.tls_server_name.clone_from(&self.tls_server_name);
        config.auth_info = AuthInfo::from(&self.credential);
        if let Some(namespace) = &self.namespace {
            config.default_namespace.clone_from(namespace);
        }
        Ok(config)
    }

    /// The smallest kubeconfig that says the same: what is stored in the cluster's Secret. It is JSON,
    /// which is YAML too, so that no value can be read as something else.
    pub fn render(&self) -> String {
        self.file(&self.credential.render())
    }

    /// The same server with a token instead.
    pub fn render_with(&self, token: &str) -> String {
        self.file(&json!({ "token": token }))
    }

    pub(super) fn with_token(&self, token: &str) -> Self {
        Self { credential: Credential::Token(token.to_owned()), times: Times::default(), ..self.clone() }
    }

    fn file(&self, user: &Value) -> String {
        let mut cluster = json!({ "server": self.server.to_string() });
        if let Some(pem) = &self.ca_pem {
            cluster["certificate-authority-data"] = json!(k8s_openapi::ByteString(pem.clone()));
        }
        if let Some(name) = &self.tls_server_name {
            cluster["tls-server-name"] = json!(name);
        }
        if let Some(proxy) = &self.proxy {
            cluster["proxy-url"] = json!(proxy.to_string());
        }
        let mut context = json!({ "cluster": "cluster", "user": "user" });
        if let Some(namespace) = &self.namespace {
            context["namespace"] = json!(namespace);
        }
        let file = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "cluster", "cluster": cluster }],
            "users": [{ "name": "user", "user": user }],
            "contexts": [{ "name": "context", "context": context }],
            "current-context": "context",
        });
        format!("{file:#}\n")
    }
}

impl fmt::Debug for CheckedKubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedKubeconfig").field("server", &self.server).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
