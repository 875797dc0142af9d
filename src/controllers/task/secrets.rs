//! Values of tasks' secrets, on their way from the hub's Secrets to the clusters'. They are held only while a
//! task is being dispatched.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use http::Request;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use tokio::{sync::Notify, task::JoinSet};
use tracing::warn;

use crate::{
    domain::task::{
        names::{TaskId, hub_secret_name},
        spec::Secrets,
    },
    k8s::{
        client::{RetryClass, call},
        hub::Hub,
    },
};

#[derive(Clone, Default)]
pub(super) struct SecretValues(Arc<Mutex<HashMap<TaskId, Found>>>);

enum Found {
    Asked,
    Values(Arc<Secrets>),
    /// The hub says that there are none, so that the task can never run.
    Gone(String),
}

impl SecretValues {
    /// The values of a task's secrets, once they are here; asks the hub where they are not known.
    pub fn get(&self, id: &TaskId, ask: &Asking<'_>, tasks: &mut JoinSet<()>) -> Option<Arc<Secrets>> {
        let mut known = self.lock();
        match known.get(id) {
            Some(Found::Asked | Found::Gone(_)) => return None,
            Some(Found::Values(values)) => return Some(Arc::clone(values)),
            None => {}
        }
        known.insert(id.clone(), Found::Asked);
        drop(known);
        let (values, id, hub) = (self.clone(), id.clone(), ask.hub.clone());
        let (signal, deadline) = (Arc::clone(ask.signal), ask.deadline);
        tasks.spawn(async move {
            let found = read(&hub, &id, deadline).await;
            let mut known = values.lock();
            match found {
                Some(found) => known.insert(id, found),
                // Asked again at the next look.
                None => known.remove(&id),
            };
            drop(known);
            signal.notify_one();
        });
        None
    }

    /// Why a task can never have its secrets.
    pub fn gone(&self, id: &TaskId) -> Option<String> {
        match self.lock().get(id) {
            Some(Found::Gone(reason)) => Some(reason.clone()),
            Some(Found::Asked | Found::Values(_)) | None => None,
        }
    }

    /// Lets go of what no task that is being dispatched needs.
    pub fn retain(&self, needed: impl Fn(&TaskId) -> bool) {
        self.lock().retain(|id, _| needed(id));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, Found>> {
        self.0.lock().expect("no code panics while holding this lock")
    }
}

/// Whom to ask, and whom to wake with the answer.
pub(super) struct Asking<'a> {
    pub hub: &'a Hub,
    pub signal: &'a Arc<Notify>,
    pub deadline: Duration,
}

async fn read(hub: &Hub, id: &TaskId, deadline: Duration) -> Option<Found> {
    let name = hub_secret_name(id);
    let path = format!("/api/v1/namespaces/{}/secrets/{name}", hub.namespace);
    let request = Request::get(path).body(Vec::new()).expect("names were checked, so the path is a URI");
    match call(deadline, hub.client.kube().request::<Secret>(request)).await {
        Ok(secret) => Some(Found::Values(Arc::new(values(secret)))),
        Err(error) if error.class == RetryClass::NotFound => {
            Some(Found::Gone("the values of its secrets are gone from the hub".to_owned()))
        }
        Err(error) => {
            warn!(task.id = %id, "Could not read the secrets of task {id}: {error}");
            tokio::time::sleep(RETRY).await;
            None
        }
    }
}

const RETRY: Duration = Duration::from_secs(1);

fn values(secret: Secret) -> Secrets {
    let text = |ByteString(bytes): ByteString| String::from_utf8(bytes).ok();
    let data: BTreeMap<String, ByteString> = secret.data.unwrap_or_default();
    Secrets::new(data.into_iter().filter_map(|(name, value)| Some((name, text(value)?))).collect())
}
