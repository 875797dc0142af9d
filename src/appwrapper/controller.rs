//! The loop: reads, lets [`lifecycle`](crate::lifecycle) decide, does it, writes the status.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{FutureExt, StreamExt, TryStreamExt, channel::mpsc, stream};
use jiff::Timestamp;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{
        WatchStreamExt,
        controller::{Action, Config, ReconcileRequest, applier},
        events::{Event, EventType, Recorder, Reporter},
        reflector::{self, ObjectRef},
        watcher,
    },
};
use serde_json::json;

use crate::{
    api::{AppWrapper, AppWrapperStatus},
    config::AppWrapperConfig,
    create,
    kinds::{KindError, Kinds},
    lifecycle::{Note, Outcome, Task, Turn, Wait},
    metrics::Metrics,
    names::FINALIZER,
    pods::{Nodes, Pods},
    remove, running,
    tolerance::Tolerance,
};

/// As many AppWrappers are worked on at once; each waits for the server most of the time.
const CONCURRENCY: u16 = 16;
/// Several pods of one AppWrapper change together.
const DEBOUNCE: Duration = Duration::from_millis(20);
/// After an error; the server may be away, and with it 16 others wait.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Far more than phases follow each other.
const MAX_STEPS: usize = 20;

pub struct Context {
    pub client: Client,
    pub config: AppWrapperConfig,
    pub kinds: Kinds,
    pub pods: Pods,
    nodes: Nodes,
    metrics: Metrics,
    recorder: Recorder,
    /// The version that we wrote last, until it is seen: until then the followed copy is of the past.
    written: Mutex<HashMap<String, u64>>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Kube(#[from] Box<kube::Error>),
    #[error(transparent)]
    Kind(#[from] KindError),
    #[error("the server has another version of it than the one that was decided on")]
    Outdated,
    #[error("it went through {MAX_STEPS} steps without coming to rest")]
    Restless,
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Kube(Box::new(error))
    }
}

/// Runs until the process ends.
pub async fn run(client: Client, config: AppWrapperConfig, metrics: Metrics) {
    let (wake, woken) = mpsc::unbounded::<ObjectRef<AppWrapper>>();
    let (pods, nodes) = (Pods::default(), Nodes::default());
    tokio::spawn(pods.clone().follow(client.clone(), wake.clone()));
    if let Some(autopilot) = config.autopilot.clone().filter(|autopilot| autopilot.monitor_nodes) {
        tokio::spawn(nodes.clone().follow(client.clone(), autopilot, pods.clone(), wake.clone()));
    }
    let reporter = Reporter { controller: crate::FIELD_MANAGER.to_owned(), instance: None };
    // A workload whose pods are not known yet looks like one that lacks them, and would be reset.
    pods.listed().await;
    let context = Arc::new(Context {
        kinds: Kinds::new(client.clone(), Some(wake)),
        recorder: Recorder::new(client.clone(), reporter),
        client: client.clone(),
        config,
        pods,
        nodes,
        metrics,
        written: Mutex::default(),
    });
    let (store, writer) = reflector::store::<AppWrapper>();
    let touched = watcher(Api::<AppWrapper>::all(client), watcher::Config::default())
        .modify(|wrapper| wrapper.metadata.managed_fields = None)
        .default_backoff()
        .reflect(writer)
        .touched_objects()
        .map_ok(|wrapper| ReconcileRequest::from(ObjectRef::from_obj(&wrapper)));
    let queue = stream::select(touched, woken.map(|name| Ok(ReconcileRequest::from(name))));
    let config = Config::default().concurrency(CONCURRENCY).debounce(DEBOUNCE);
    let ended = applier(
        |wrapper, context| reconcile(wrapper, context).boxed(),
        on_error,
        context,
        store,
        queue,
        config,
    );
    ended
        .for_each(async |result| match result {
            Ok(_)
            | Err(
                kube::runtime::controller::Error::ObjectNotFound(_)
                | kube::runtime::controller::Error::ReconcilerFailed(..),
            ) => {}
            Err(error) => tracing::warn!("Cannot follow AppWrappers: {error}"),
        })
        .await;
}

#[expect(clippy::needless_pass_by_value, reason = "kube passes it so")]
fn on_error(wrapper: Arc<AppWrapper>, error: &Error, context: Arc<Context>) -> Action {
    context.metrics.reconciled("error");
    let conflict = matches!(error, Error::Kube(error) if matches!(&**error, kube::Error::Api(status) if status.is_conflict()));
    let gone = matches!(error, Error::Kube(error) if matches!(&**error, kube::Error::Api(status) if status.is_not_found()));
    if conflict || gone || matches!(error, Error::Outdated) {
        // A newer version of it is on its way.
        return Action::requeue(RETRY_AFTER);
    }
    let name = ObjectRef::from_obj(&*wrapper);
    tracing::warn!("Cannot go on with {name}: {}", chain(error));
    Action::requeue(RETRY_AFTER)
}

fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |error| error.source())
        .fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

async fn reconcile(wrapper: Arc<AppWrapper>, context: Arc<Context>) -> Result<Action, Error> {
    if context.is_of_the_past(&wrapper) {
        return Ok(Action::await_change());
    }
    let wait = context.advance((*wrapper).clone()).await?;
    Ok(match wait {
        Wait::ForEvent => {
            context.metrics.reconciled("success");
            Action::await_change()
        }
        Wait::Until(when) => {
            context.metrics.reconciled("requeue_after");
            let left = when.duration_since(context.now());
            Action::requeue(Duration::try_from(left).unwrap_or_default())
        }
    })
}

impl Context {
    #[expect(clippy::disallowed_methods, reason = "the one place where time is read")]
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    async fn advance(&self, mut wrapper: AppWrapper) -> Result<Wait, Error> {
        for _ in 0..MAX_STEPS {
            let tolerance =
                Tolerance::of(wrapper.metadata.annotations.as_ref(), &self.config.fault_tolerance);
            let before = wrapper.clone();
            let turn = Turn { wrapper: &before, tolerance: &tolerance, now: self.now() };
            let outcome = match turn.task() {
                Task::Wait(wait) => return Ok(wait),
                Task::Write(outcome) => *outcome,
                Task::AddFinalizer => {
                    wrapper = self.write_finalizers(&wrapper, true).await?;
                    continue;
                }
                Task::DropFinalizer => {
                    self.write_finalizers(&wrapper, false).await?;
                    return Ok(Wait::ForEvent);
                }
                Task::Create => {
                    let (status, result) = create::create(self, &mut wrapper).await?;
                    turn.after_create(status, result)
                }
                Task::Look => {
                    let (components, pods) = self.look(&wrapper, &tolerance).await?;
                    turn.after_look(&components, &pods)
                }
                Task::Remove(status) => {
                    self.ask_whether_current(&wrapper).await?;
                    let grace = tolerance.forceful_deletion_grace;
                    turn.after_removal(remove::remove(self, &wrapper, *status, grace).await?)
                }
            };
            let changed = wrapper.status.as_ref() != Some(&outcome.status);
            if changed {
                wrapper = self.write(&wrapper, &outcome).await?;
            }
            for note in &outcome.notes {
                self.publish(&wrapper, note).await;
            }
            if let Wait::Until(_) = outcome.wait {
                return Ok(outcome.wait);
            }
            if !changed {
                return Ok(Wait::ForEvent);
            }
        }
        Err(Error::Restless)
    }

    async fn look(
        &self,
        wrapper: &AppWrapper,
        tolerance: &Tolerance,
    ) -> Result<(Vec<running::Component>, running::Pods), Error> {
        let owner = create::owner(wrapper);
        let status = wrapper.status.as_ref().map_or(&[][..], |status| &status.component_status);
        let mut components = Vec::with_capacity(status.len());
        for one in status {
            let found = match self.kinds.find(&one.api_version, &one.kind).await {
                Ok(kind) => kind.component(&owner.namespace, &one.name, &owner.reference).await?,
                Err(KindError::NoMatch { .. }) => None,
                Err(error) => return Err(error.into()),
            };
            components.push(running::component(one, found.as_deref()));
        }
        let pods = self.pods.of(&owner.namespace, &owner.name);
        let health = self.nodes.health();
        let sum = running::pods(status, &components, &pods, tolerance, &health);
        Ok((components, sum))
    }

    async fn write(&self, wrapper: &AppWrapper, outcome: &Outcome) -> Result<AppWrapper, Error> {
        let before = wrapper.status.as_ref().map(|status| status.phase).unwrap_or_default();
        let written = self.write_status(wrapper, &outcome.status).await?;
        let phase = outcome.status.phase;
        if phase != before {
            let name = ObjectRef::from_obj(&written);
            tracing::info!(phase = phase.word(), "{name} is {}", phase.word());
            self.metrics.entered(&written.namespace().unwrap_or_default(), phase.word());
        }
        Ok(written)
    }

    /// Only on top of what was read: whoever decides on an old copy has to read again.
    pub async fn write_status(
        &self,
        wrapper: &AppWrapper,
        status: &AppWrapperStatus,
    ) -> Result<AppWrapper, Error> {
        let patch =
            json!({"metadata": {"resourceVersion": wrapper.metadata.resource_version}, "status": status});
        let patched =
            self.api(wrapper).patch_status(&wrapper.name_any(), &params(), &Patch::Merge(patch)).await?;
        self.remember(&patched);
        Ok(patched)
    }

    /// Before anything is deleted. Deletions carry no version of the AppWrapper, so whoever leads no more, or follows late,
    /// could delete what another made since.
    async fn ask_whether_current(&self, wrapper: &AppWrapper) -> Result<(), Error> {
        let stored = self.api(wrapper).get_metadata(&wrapper.name_any()).await?.metadata;
        let known = &wrapper.metadata;
        let same = stored.uid == known.uid && stored.resource_version == known.resource_version;
        if same { Ok(()) } else { Err(Error::Outdated) }
    }

    async fn write_finalizers(&self, wrapper: &AppWrapper, ours: bool) -> Result<AppWrapper, Error> {
        let mut finalizers = wrapper.finalizers().to_vec();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        finalizers.extend(ours.then(|| FINALIZER.to_owned()));
        let version = &wrapper.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        let patched = self.api(wrapper).patch(&wrapper.name_any(), &params(), &Patch::Merge(patch)).await?;
        if ours {
            self.remember(&patched);
        } else {
            self.written().remove(&wrapper.uid().unwrap_or_default());
        }
        Ok(patched)
    }

    fn api(&self, wrapper: &AppWrapper) -> Api<AppWrapper> {
        Api::namespaced(self.client.clone(), &wrapper.namespace().unwrap_or_default())
    }

    async fn publish(&self, wrapper: &AppWrapper, note: &Note) {
        let event = Event {
            type_: EventType::Normal,
            reason: note.reason.to_owned(),
            note: Some(note.text.chars().take(1024).collect()),
            action: note.reason.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &wrapper.object_ref(&())).await {
            tracing::warn!("Cannot write an event: {error}");
        }
    }

    fn remember(&self, wrapper: &AppWrapper) {
        if let (Some(uid), Some(version)) = (wrapper.uid(), version(wrapper)) {
            self.written().insert(uid, version);
        }
    }

    /// Kubernetes compares versions of one object as numbers (KEP-5504).
    fn is_of_the_past(&self, wrapper: &AppWrapper) -> bool {
        let (uid, mut written) = (wrapper.uid().unwrap_or_default(), self.written());
        let past = written.get(&uid).zip(version(wrapper)).is_some_and(|(written, read)| read < *written);
        if !past {
            written.remove(&uid);
        }
        past
    }

    fn written(&self) -> std::sync::MutexGuard<'_, HashMap<String, u64>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn version(wrapper: &AppWrapper) -> Option<u64> {
    wrapper.metadata.resource_version.as_ref()?.parse().ok()
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(crate::FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}
