//! What people do to the hub through fedq. The hub's RBAC decides: claims and queues are edited as that
//! person, so that its audit log names them; what lies in Secrets is changed by fedqd itself once the hub has
//! said that the person may.

mod claims;
mod clusters;
mod kinds;
mod queues;
pub(crate) mod reviews;
mod tasks;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use kube::Client;

pub use self::{
    clusters::ClusterSecretError,
    kinds::ServedKind,
    queues::BaseError,
    reviews::{Asker, FEDQ_GROUP, Permission},
};
use super::{
    client::{ApiError, Caller, ClusterClient, ConnectError},
    proxy::{self, Places},
};

/// No person waits longer than that for the hub.
const DEADLINE: Duration = Duration::from_secs(10);

/// `"true"`: nothing new is sent to the cluster.
pub const CORDON: &str = "fedq.dev/cordon";
/// UID of the kube-system namespace that is accepted from now on.
pub const CONFIRM_IDENTITY: &str = "fedq.dev/confirm-identity";
/// On fedq's namespace: the removal of many claims at once is meant.
pub const CONFIRM_REMOVAL: &str = "fedq.dev/confirm-removal";

/// Ways to the hub: as the daemon itself and as somebody else.
pub trait Access: Send + Sync {
    fn own(&self) -> Client;
    fn acting_as(&self, caller: &Caller) -> Result<Client, ConnectError>;
    /// The same over a connection for requests that people have forwarded, so that these take no streams of fedqd's own.
    fn apart(&self) -> Result<Arc<dyn Access>, ConnectError>;
}

impl Access for ClusterClient {
    fn own(&self) -> Client {
        self.kube()
    }

    fn acting_as(&self, caller: &Caller) -> Result<Client, ConnectError> {
        self.impersonating(caller)
    }

    fn apart(&self) -> Result<Arc<dyn Access>, ConnectError> {
        Ok(Arc::new(self.over_another_connection(proxy::apart)?))
    }
}

/// The hub as the API uses it; clones share it.
#[derive(Clone)]
pub struct Sessions {
    access: Arc<dyn Access>,
    namespace: Arc<str>,
    /// Made when it is first needed.
    apart: Arc<OnceLock<Arc<dyn Access>>>,
    places: Places,
}

/// The hub with one person's rights.
pub struct Session {
    client: Client,
    /// For objects that say who edited them.
    user: String,
}

#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error("cannot act as that user on the hub")]
    Impersonate(#[from] ConnectError),
    #[error("the hub answers: {0}")]
    Api(#[from] ApiError),
}

impl Sessions {
    /// `namespace`: where the Secrets of joined clusters are.
    pub fn new(access: Arc<dyn Access>, namespace: &str) -> Self {
        Self { access, namespace: namespace.into(), apart: Arc::default(), places: proxy::of_one_cluster() }
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The hub as `caller`, for what is forwarded to it.
    pub fn forwarding(&self, caller: &Caller) -> Result<Client, HubError> {
        let access = if let Some(access) = self.apart.get() {
            access
        } else {
            let made = self.access.apart()?;
            self.apart.get_or_init(|| made)
        };
        Ok(access.acting_as(caller)?)
    }

    /// What bounds it.
    pub fn places(&self) -> &Places {
        &self.places
    }

    pub fn session(&self, caller: &Caller) -> Result<Session, HubError> {
        let client = self.access.acting_as(caller)?;
        Ok(Session { client, user: caller.user.clone() })
    }
}
