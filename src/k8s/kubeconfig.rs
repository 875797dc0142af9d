//! What a stored kubeconfig may contain. A joined cluster's kubeconfig is a credential that other
//! people wrote: it must not make the daemon run programs, read its files, skip verification or send
//! requests into its own network. Nothing here prints a secret, nor quotes what it could not read.

use std::net::IpAddr;

use http::Uri;
use jiff::Timestamp;
use kube::config::AuthInfo;

/// What is refused by default and may be allowed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rules {
    /// Servers on this machine: demo and tests.
    pub allow_loopback: bool,
    /// A `proxy-url` in the kubeconfig.
    pub allow_proxy: bool,
    /// No CA in the kubeconfig: verify with the system's trust store.
    pub allow_system_roots: bool,
    /// Paths of certificates, keys and tokens: only for the hub's own kubeconfig, never for a Secret.
    pub allow_files: bool,
}

/// A kubeconfig that passed every rule, reduced to one server and one credential.
#[derive(Clone)]
pub struct CheckedKubeconfig {
    pub(super) server: Uri,
    pub(super) namespace: String,
    pub(super) ca: Option<Vec<Vec<u8>>>,
    pub(super) tls_server_name: Option<String>,
    pub(super) proxy: Option<Uri>,
    pub(super) credential: AuthInfo,
    pub(super) expires: Option<Timestamp>,
    pub(super) allow_loopback: bool,
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum KubeconfigError {
    #[error("the kubeconfig is not UTF-8 text")]
    NotText,
}

/// Checks the current context of a kubeconfig, or `context` where given; the other contexts are not
/// looked at and not kept.
pub fn check(
    bytes: &[u8],
    context: Option<&str>,
    rules: &Rules,
) -> Result<CheckedKubeconfig, KubeconfigError> {
    let _ = (bytes, context, rules);
    todo!()
}

/// Whether a cluster's API server may be dialled at `address`; the reason if not.
pub fn check_address(address: IpAddr, allow_loopback: bool) -> Result<(), &'static str> {
    let _ = (address, allow_loopback);
    todo!()
}

impl CheckedKubeconfig {
    pub fn server(&self) -> &Uri {
        &self.server
    }

    /// When the client certificate or the token expires, where that can be read from it.
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    /// The smallest kubeconfig that says the same: what is stored in the cluster's Secret.
    pub fn render(&self) -> String {
        todo!()
    }
}

impl std::fmt::Debug for CheckedKubeconfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckedKubeconfig").field("server", &self.server).finish_non_exhaustive()
    }
}
