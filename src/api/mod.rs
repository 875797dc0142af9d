//! The REST API. Handlers read what the controllers published and the store remembers, and write
//! intent to the hub as the person who asks; they never wait for a joined cluster, but to diagnose it.

mod audit;
mod auth;
mod capacity;
mod check;
mod claim;
mod claim_edit;
mod cluster;
mod extract;
mod failure;
mod queue;
mod routes;
mod show;
mod stream;
mod system;
#[cfg(test)]
mod tests;
mod token_file;

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::watch;

pub use self::{
    auth::Authenticator,
    failure::Failure,
    routes::{openapi, router},
    token_file::{TokenFile, TokenFileError},
};
use crate::{
    clock::Clock,
    domain::{check::Finding, ids::ClusterName, overview::Overview, resources::Aliases},
    k8s::{kubeconfig, session::Sessions},
    store::Store,
};

/// Looks at a cluster, or at the hub (`None`), the way a colleague would. Whoever implements it keeps
/// its own deadlines.
pub trait Diagnose: Send + Sync {
    fn diagnose<'a>(&'a self, cluster: Option<&'a ClusterName>) -> BoxFuture<'a, Vec<Finding>>;
}

/// What handlers need; clones share it.
#[derive(Clone)]
pub struct State(Arc<Parts>);

pub struct Parts {
    pub overview: watch::Receiver<Arc<Overview>>,
    pub store: Store,
    pub hub: Sessions,
    pub authenticator: Authenticator,
    pub aliases: Aliases,
    /// What the kubeconfig of a cluster that is joined may contain.
    pub kubeconfig_rules: kubeconfig::Rules,
    pub diagnose: Arc<dyn Diagnose>,
    pub clock: Clock,
}

impl State {
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// What the controllers published last.
    fn overview(&self) -> Arc<Overview> {
        self.0.overview.borrow().clone()
    }
}

impl std::ops::Deref for State {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}
