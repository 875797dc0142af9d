//! The kinds that are wrapped: found when the first is met, and followed from then on.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, PostParams},
    core::GroupVersionKind,
    discovery::{self, Scope},
    runtime::{
        WatchStreamExt,
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use serde_json::Value;

use crate::{api::AppWrapper, names::APPWRAPPER_LABEL, observed::Observed, running};

/// Who is to be looked at, because something of theirs changed.
pub type Wake = futures::channel::mpsc::UnboundedSender<ObjectRef<AppWrapper>>;

#[derive(Clone)]
pub struct Kinds {
    client: Client,
    /// `None` where nothing is followed: the webhook only needs names.
    wake: Option<Wake>,
    known: Arc<Mutex<HashMap<GroupVersionKind, Kind>>>,
}

#[derive(Clone)]
pub struct Kind {
    client: Client,
    resource: ApiResource,
    pub namespaced: bool,
    store: Option<Store<Observed>>,
}

#[derive(Debug, thiserror::Error)]
pub enum KindError {
    #[error("no matches for kind \"{kind}\" in version \"{version}\"")]
    NoMatch { kind: String, version: String },
    #[error("cannot ask what \"{kind}\" of \"{version}\" is")]
    Ask { kind: String, version: String, source: Box<kube::Error> },
}

impl Kinds {
    pub fn new(client: Client, wake: Option<Wake>) -> Self {
        Self { client, wake, known: Arc::default() }
    }

    pub async fn find(&self, api_version: &str, kind: &str) -> Result<Kind, KindError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        if let Some(found) = self.known().get(&gvk) {
            return Ok(found.clone());
        }
        let (kind, version) = (kind.to_owned(), api_version.to_owned());
        let (resource, capabilities) = match discovery::pinned_kind(&self.client, &gvk).await {
            Ok(found) => found,
            Err(kube::Error::Discovery(_)) => return Err(KindError::NoMatch { kind, version }),
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                return Err(KindError::NoMatch { kind, version });
            }
            Err(source) => return Err(KindError::Ask { kind, version, source: Box::new(source) }),
        };
        let namespaced = capabilities.scope == Scope::Namespaced;
        let mut known = self.known();
        // Another may have asked at the same time.
        let found = known.entry(gvk).or_insert_with(|| {
            let follow = self.wake.as_ref().filter(|_| namespaced);
            let store = follow.map(|wake| follow_kind(&self.client, &resource, wake.clone()));
            Kind { client: self.client.clone(), resource, namespaced, store }
        });
        Ok(found.clone())
    }

    fn known(&self) -> MutexGuard<'_, HashMap<GroupVersionKind, Kind>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn follow_kind(client: &Client, resource: &ApiResource, wake: Wake) -> Store<Observed> {
    let (store, writer) = {
        let writer = reflector::store::Writer::<Observed>::new(resource.clone());
        (writer.as_reader(), writer)
    };
    let api = Api::<Observed>::all_with(client.clone(), resource);
    let name = resource.plural.clone();
    let config = watcher::Config::default().labels(APPWRAPPER_LABEL);
    let stream = watcher(api, config).modify(Observed::trim).default_backoff().reflect(writer);
    let known = store.clone();
    tokio::spawn(async move {
        let mut stream = std::pin::pin!(stream);
        // What a new list lacks was deleted unseen: its owner is told, too.
        let mut before = Vec::new();
        while let Some(event) = stream.next().await {
            let touched = match event {
                Ok(watcher::Event::Init) => {
                    before = known.state();
                    continue;
                }
                Ok(watcher::Event::InitDone) => std::mem::take(&mut before),
                Ok(
                    watcher::Event::InitApply(object)
                    | watcher::Event::Apply(object)
                    | watcher::Event::Delete(object),
                ) => vec![Arc::new(object)],
                Err(error) => {
                    tracing::warn!("Cannot follow {name}: {error}");
                    continue;
                }
            };
            if touched.iter().any(|object| !wake_owner(&wake, &**object)) {
                return;
            }
        }
    });
    store
}

/// Whether anybody listens still.
pub fn wake_owner(wake: &Wake, object: &impl ResourceExt) -> bool {
    let (Some(owner), Some(namespace)) = (running::owner_name(object), object.namespace()) else {
        return true;
    };
    wake.unbounded_send(ObjectRef::new(owner).within(&namespace)).is_ok()
}

impl Kind {
    pub fn resource_name(&self) -> &str {
        &self.resource.plural
    }

    pub fn api(&self, namespace: &str) -> Api<Observed> {
        Api::namespaced_with(self.client.clone(), namespace, &self.resource)
    }

    /// Makes one. The answer may hold whatever webhooks put there, so no more is read of it than of any other.
    pub async fn create(&self, namespace: &str, object: &Value) -> Result<Observed, kube::Error> {
        let params =
            PostParams { field_manager: Some(crate::FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let path = Observed::url_path(&self.resource, Some(namespace));
        let request =
            kube::core::Request::new(path).create(&params, body).map_err(kube::Error::BuildRequest)?;
        self.client.request(request).await
    }

    /// The component, if it is that of this owner. Only what is followed is believed to be there; that it is not there is
    /// asked of the server, since what is followed comes late.
    pub async fn component(
        &self,
        namespace: &str,
        name: &str,
        owner: &OwnerReference,
    ) -> Result<Option<Arc<Observed>>, kube::Error> {
        let key = ObjectRef::new_with(name, self.resource.clone()).within(namespace);
        let followed = self.store.as_ref().and_then(|store| store.get(&key));
        let found = match followed {
            Some(found) => Some(found),
            None => self.api(namespace).get_opt(name).await?.map(Arc::new),
        };
        Ok(found.filter(|object| is_owned(object, owner)))
    }
}

pub fn is_owned(object: &Observed, owner: &OwnerReference) -> bool {
    object.owner_references().iter().any(|one| one.controller == Some(true) && one.uid == owner.uid)
}
