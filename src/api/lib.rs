//! The REST API. Handlers read what the controllers published and the store remembers, and write
//! intent to the hub as the person who asks; they never wait for a joined cluster, but to diagnose it, and where
//! `proxy.rs` forwards what kueue's commands ask it, and `task/enter.rs` joins people to pods of their tasks.

mod app_wrapper;
mod audit;
mod auth;
mod body;
mod callers;
mod capacity;
mod check;
mod claim;
mod claim_edit;
mod cluster;
pub mod connections;
mod document;
mod extract;
mod failure;
#[cfg(feature = "testing")]
pub mod fuzz;
mod gzip;
mod held;
mod k8s_cli;
mod object;
mod owner;
mod parameters;
mod placement;
mod proxy;
mod queue;
mod reference;
mod routes;
mod shape;
mod show;
mod stream;
mod system;
mod task;
mod token_file;
mod upload;
mod volume;
pub mod webhook;

use std::{sync::Arc, time::Duration};

use axum::http::StatusCode;
use futures::future::BoxFuture;
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};

pub use self::{
    auth::Authenticator,
    callers::Callers,
    failure::Failure,
    owner::UnprovenNames,
    routes::{openapi, router},
    token_file::{TokenFile, TokenFileError},
    upload::UploadBounds,
};
use fedq_base::clock::Clock;
use fedq_domain::{
    check::Finding,
    overview::Overview,
    placement::view::PlacementView,
    resources::Aliases,
    task::{
        tenant::Tenants,
        view::{TaskViews, VolumeViews},
    },
};
use fedq_k8s::{kubeconfig, proxy::Places, session::Sessions, worker::JoinedClusters};
use fedq_store::{KeptLogs, Live, Store};
use fedq_values::ids::ClusterName;
use fedq_wire::problem::Code;

/// Less than any client waits for an answer.
const START_PATIENCE: Duration = Duration::from_secs(3);

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
    pub task_views: watch::Receiver<Arc<TaskViews>>,
    pub volume_views: watch::Receiver<Arc<VolumeViews>>,
    pub joined: watch::Receiver<Arc<JoinedClusters>>,
    /// For what is forwarded to clusters and the hub.
    pub forwarded: Places,
    /// Bumped when a task or volume is accepted, or shall go.
    pub task_signal: Arc<Notify>,
    pub placements: watch::Receiver<Arc<PlacementView>>,
    pub tenants: Tenants,
    pub kept_logs: Option<KeptLogs>,
    /// Of one person, that are not over.
    pub max_live: Live,
    pub uploads: UploadBounds,
    /// Whether Jobs that were handed in within AppWrappers may be made as they are.
    pub unwrap_jobs: bool,
    /// What k8s-cli's `X-User` is believed for without a token.
    pub unproven_names: UnprovenNames,
    /// What one caller may take.
    pub callers: Callers,
    pub clock: Clock,
    /// Whether the web page is served.
    pub page: bool,
}

impl State {
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// What the controllers published last.
    fn overview(&self) -> Arc<Overview> {
        self.0.overview.borrow().clone()
    }

    /// Refuses a cluster that is not joined. What is shown of clusters may lag behind, so it is not asked;
    /// only while the daemon starts is it waited for, because nothing is known until then.
    async fn must_be_joined(&self, cluster: &ClusterName) -> Result<(), Failure> {
        if self.joined.borrow().contains_key(cluster) {
            return Ok(());
        }
        self.known_overview().await?;
        if self.joined.borrow().contains_key(cluster) { Ok(()) } else { Err(cluster::unknown(cluster)) }
    }

    /// What the controllers published last, and not what stands there before they have.
    async fn known_overview(&self) -> Result<Arc<Overview>, Failure> {
        let mut overview = self.overview.clone();
        let read = overview.wait_for(|overview| overview.revision != 0);
        let read = timeout(START_PATIENCE, read).await.ok().and_then(Result::ok);
        read.map(|overview| overview.clone()).ok_or_else(|| {
            Failure::new(
                StatusCode::SERVICE_UNAVAILABLE,
                Code::HubUnreachable,
                "fedqd is starting and has not read the hub yet",
            )
            .next("try again in a moment; if it stays so, look at fedqd's log")
        })
    }
}

impl std::ops::Deref for State {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}
