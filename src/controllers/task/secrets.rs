//! What a task's pods get that its row does not have: values of secrets, on their way from the hub's Secrets to the
//! clusters', and files that it brings along, on their way from the store. They are held only while a task is being
//! dispatched.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use http::Request;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Preconditions},
};
use tokio::sync::{Notify, Semaphore};
use tracing::{info, warn};

use crate::driver::{self, Tasks};
use fedq_domain::task::{
    names::{SECRET_LABEL, TaskId, hub_secret_name},
    render::ID_LABEL,
    spec::Secrets,
};
use fedq_k8s::{
    client::{ApiError, RetryClass, call},
    hub::Hub,
};
use fedq_store::{Store, StoreError, TaskRow};

use super::TaskController;

/// The values of a task's secrets and the archives of its uploads, in their order.
#[derive(Default)]
pub(super) struct Contents {
    pub secrets: Secrets,
    pub uploads: Vec<Vec<u8>>,
}

#[derive(Clone)]
pub(super) struct TaskContents {
    known: Arc<Mutex<HashMap<TaskId, Found>>>,
    reads: Arc<Semaphore>,
}

/// However many tasks wait for theirs, the hub is not asked for more at a time.
const READS: usize = 16;

impl Default for TaskContents {
    fn default() -> Self {
        Self { known: Arc::default(), reads: Arc::new(Semaphore::new(READS)) }
    }
}

enum Found {
    Asked,
    Values(Arc<Contents>),
    /// Something of it is not there any more, so that the task can never run.
    Gone(String),
}

impl TaskContents {
    /// What a task needs, once it is here; asks hub and store where it is not known.
    pub fn get(&self, row: &Arc<TaskRow>, ask: &Asking<'_>, tasks: &mut Tasks) -> Option<Arc<Contents>> {
        let id = &row.id;
        let mut known = self.lock();
        match known.get(id) {
            Some(Found::Asked | Found::Gone(_)) => return None,
            Some(Found::Values(values)) => return Some(Arc::clone(values)),
            None => {}
        }
        known.insert(id.clone(), Found::Asked);
        drop(known);
        let (values, id, row) = (self.clone(), id.clone(), Arc::clone(row));
        let (hub, store) = (ask.hub.clone(), ask.store.clone());
        let (signal, deadline) = (Arc::clone(ask.signal), ask.deadline);
        driver::spawn(tasks, async move {
            let found = {
                let _turn = values.reads.acquire().await.expect("the semaphore is never closed");
                read((&hub, &store), &row, deadline).await
            };
            if found.is_none() {
                tokio::time::sleep(RETRY).await;
            }
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

    /// Why a task can never have what it needs.
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
        self.known.lock().expect("no code panics while holding this lock")
    }
}

/// Whom to ask, and whom to wake with the answer.
pub(super) struct Asking<'a> {
    pub hub: &'a Hub,
    pub store: &'a Store,
    pub signal: &'a Arc<Notify>,
    pub deadline: Duration,
}

async fn read((hub, store): (&Hub, &Store), row: &TaskRow, deadline: Duration) -> Option<Found> {
    let secrets = if row.spec.secrets.is_empty() {
        Secrets::default()
    } else {
        match read_secrets(hub, &row.id, deadline).await? {
            Ok(secrets) => secrets,
            Err(gone) => return Some(Found::Gone(gone)),
        }
    };
    let mut uploads = Vec::with_capacity(row.spec.uploads.len());
    for upload in &row.spec.uploads {
        match store.upload_data(&row.owner, &upload.archive.digest).await {
            Ok(Some(data)) => uploads.push(data),
            Ok(None) => {
                let gone = format!("the files for {} are gone from the store of fedqd", upload.path);
                return Some(Found::Gone(gone));
            }
            Err(error) => {
                warn!(task.id = %row.id, "Could not read the files of task {}: {error}", row.id);
                return None;
            }
        }
    }
    Some(Found::Values(Arc::new(Contents { secrets, uploads })))
}

/// `None`: it is asked again. `Err`: the hub says that there are none.
async fn read_secrets(hub: &Hub, id: &TaskId, deadline: Duration) -> Option<Result<Secrets, String>> {
    let name = hub_secret_name(id);
    let path = format!("/api/v1/namespaces/{}/secrets/{name}", hub.namespace);
    let request = Request::get(path).body(Vec::new()).expect("names were checked, so the path is a URI");
    match call(deadline, hub.client.kube().request::<Secret>(request)).await {
        Ok(secret) => Some(Ok(values(secret))),
        Err(error) if error.class == RetryClass::NotFound => {
            Some(Err("the values of its secrets are gone from the hub".to_owned()))
        }
        Err(error) => {
            warn!(task.id = %id, "Could not read the secrets of task {id}: {error}");
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

/// Secrets that were left behind are found this often.
const SWEEP_PERIOD: SignedDuration = SignedDuration::from_hours(1);

impl TaskController {
    /// Removes the Secrets of tasks that are over from the hub, and looks through all of them now and then for those
    /// that were left behind. One at a time: what comes meanwhile waits for the next look.
    pub(super) fn sweep(&mut self) {
        let now = self.context.clock.now();
        let due = self.sweep_at.is_none_or(|at| at <= now);
        let busy = self.sweeping.as_ref().is_some_and(|sweeping| !sweeping.is_finished());
        if busy || (!due && self.spent.is_empty()) {
            return;
        }
        if due {
            self.sweep_at = now.checked_add(SWEEP_PERIOD).ok();
        }
        let spent = std::mem::take(&mut self.spent);
        let (hub, store, signal) =
            (self.context.hub.clone(), self.context.store.clone(), Arc::clone(&self.signal));
        let deadline = self.context.writer.deadline;
        let sweeping = async move {
            for id in spent {
                forget(&hub, &id, deadline).await;
            }
            if due {
                look_through(&hub, &store, now, deadline).await;
            }
            signal.notify_one();
        };
        self.sweeping = Some(driver::spawn(&mut self.tasks, sweeping));
    }
}

/// Removes the Secret of a task that is over. One that stays is found when all are looked through.
async fn forget(hub: &Hub, id: &TaskId, deadline: Duration) {
    let secrets = Api::<Secret>::namespaced(hub.client.kube().clone(), &hub.namespace);
    match call(deadline, secrets.delete(&hub_secret_name(id), &DeleteParams::default())).await {
        Ok(_) => info!(task.id = %id, "Removed the secrets of task {id} from the hub"),
        Err(error) if error.class == RetryClass::NotFound => {}
        Err(error) => warn!(task.id = %id, "The secrets of task {id} stay on the hub for now: {error}"),
    }
}

/// A Secret this young may be of a task that is just being accepted.
const YOUNG: SignedDuration = SignedDuration::from_mins(10);

/// Removes Secrets of tasks that are over or that there are not.
async fn look_through(hub: &Hub, store: &Store, now: Timestamp, deadline: Duration) {
    if let Err(error) = try_to_look_through(hub, store, now, deadline).await {
        warn!("Could not look through the Secrets of tasks; it is tried again: {error}");
    }
}

#[derive(Debug, thiserror::Error)]
enum SweepError {
    #[error(transparent)]
    Hub(#[from] ApiError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

async fn try_to_look_through(
    hub: &Hub,
    store: &Store,
    now: Timestamp,
    deadline: Duration,
) -> Result<(), SweepError> {
    let client = hub.client.kube();
    let secrets = Api::<Secret>::namespaced(client.clone(), &hub.namespace);
    let ours = ListParams::default().labels(&format!("{SECRET_LABEL}=true"));
    for secret in call(deadline, secrets.list_metadata(&ours)).await?.items {
        let ObjectMeta { name: Some(name), labels: Some(labels), uid: Some(uid), .. } = secret.metadata
        else {
            continue;
        };
        let Some(id) = labels.get(ID_LABEL).and_then(|id| TaskId::parse(id)) else { continue };
        let is_needed = if let Some(task) = store.task(&id).await? {
            !task.state.phase.is_over()
        } else {
            let made = secret.metadata.creation_timestamp.map(|made| made.0);
            made.is_none_or(|made| now.duration_since(made) < YOUNG)
        };
        if is_needed {
            continue;
        }
        let parameters = DeleteParams::default().preconditions(Preconditions {
            uid: Some(uid),
            resource_version: secret.metadata.resource_version,
        });
        match call(deadline, secrets.delete(&name, &parameters)).await {
            Ok(_) => info!(task.id = %id, "Removed the secrets of task {id} from the hub"),
            Err(error) if matches!(error.class, RetryClass::NotFound | RetryClass::Conflict) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::testing::{controller, row};
    use fedq_domain::task::{
        phase::Phase,
        testing::cluster_name,
        upload::{Archive, Digest, Upload},
    };
    use fedq_store::NewUpload;

    #[tokio::test]
    async fn files_come_from_the_store_and_a_task_whose_files_are_gone_is_told_so() {
        let (controller, _ground) = controller().await;
        let (hub, store) = (&controller.context.hub, &controller.context.store);
        let archive = Archive { digest: Digest::of([7; 32]), bytes: 3, file: false };
        let mut row = row("run: x\n", Phase::Dispatching { cluster: cluster_name("one") });
        row.spec.uploads = vec![Upload { path: "~/a".to_owned(), archive: archive.clone() }];
        let row = Arc::new(row);
        let (contents, signal, mut tasks) = (TaskContents::default(), Arc::new(Notify::new()), Tasks::new());
        let asking = Asking { hub, store, signal: &signal, deadline: Duration::from_secs(5) };
        assert!(contents.get(&row, &asking, &mut tasks).is_none(), "they are asked for");
        signal.notified().await;
        assert!(contents.get(&row, &asking, &mut tasks).is_none());
        let gone = contents.gone(&row.id);
        assert_eq!(gone.as_deref(), Some("the files for ~/a are gone from the store of fedqd"));

        let now = controller.context.clock.now();
        let upload = NewUpload { owner: row.owner.clone(), archive, data: vec![1, 2, 3], now, most: 10 };
        assert_eq!(store.insert_upload(upload).await.expect("stored"), None);
        contents.retain(|_| false);
        assert!(contents.get(&row, &asking, &mut tasks).is_none());
        signal.notified().await;
        let found = contents.get(&row, &asking, &mut tasks).expect("they are here");
        assert_eq!(found.uploads, [vec![1, 2, 3]]);
        assert_eq!(contents.gone(&row.id), None);
    }
}
