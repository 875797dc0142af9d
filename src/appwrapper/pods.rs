//! The pods of all AppWrappers, by AppWrapper.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, RwLock},
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, reflector::ObjectRef, watcher},
};

use crate::{
    autopilot::NodeHealth,
    config::Autopilot,
    kinds::{Wake, wake_owner},
    names::APPWRAPPER_LABEL,
    running,
};

type Name = (String, String);
type ByName = HashMap<Name, BTreeMap<String, Arc<Pod>>>;

#[derive(Clone, Default)]
pub struct Pods(Arc<RwLock<ByName>>);

/// What nodes say of themselves.
#[derive(Clone, Default)]
pub struct Nodes(Arc<RwLock<NodeHealth>>);

impl Pods {
    pub fn of(&self, namespace: &str, wrapper: &str) -> Vec<Arc<Pod>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let pods = all.get(&(namespace.to_owned(), wrapper.to_owned()));
        pods.map(|pods| pods.values().cloned().collect()).unwrap_or_default()
    }

    /// Follows them until nobody listens.
    pub async fn follow(self, client: Client, wake: Wake) {
        let config = watcher::Config::default().labels(APPWRAPPER_LABEL);
        let stream = watcher(Api::<Pod>::all(client), config).modify(running::trim).default_backoff();
        let mut stream = std::pin::pin!(stream);
        let mut listed: Vec<Pod> = Vec::new();
        while let Some(event) = stream.next().await {
            let touched = match event {
                Ok(watcher::Event::Init) => {
                    listed.clear();
                    continue;
                }
                Ok(watcher::Event::InitApply(pod)) => {
                    listed.push(pod);
                    continue;
                }
                Ok(watcher::Event::InitDone) => self.replace(std::mem::take(&mut listed)),
                Ok(watcher::Event::Apply(pod)) => vec![self.put(pod)],
                Ok(watcher::Event::Delete(pod)) => vec![self.remove(pod)],
                Err(error) => {
                    tracing::warn!("Cannot follow pods: {error}");
                    continue;
                }
            };
            if touched.iter().any(|pod| !wake_owner(&wake, &**pod)) {
                return;
            }
        }
    }

    /// Returns those that are there and those that are no more.
    fn replace(&self, pods: Vec<Pod>) -> Vec<Arc<Pod>> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut touched: Vec<Arc<Pod>> = all.drain().flat_map(|(_, pods)| pods.into_values()).collect();
        drop(all);
        touched.extend(pods.into_iter().map(|pod| self.put(pod)));
        touched
    }

    fn put(&self, pod: Pod) -> Arc<Pod> {
        let pod = Arc::new(pod);
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.entry(key(&pod)).or_default().insert(pod.name_any(), Arc::clone(&pod));
        pod
    }

    fn remove(&self, pod: Pod) -> Arc<Pod> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let key = key(&pod);
        if let Some(pods) = all.get_mut(&key) {
            pods.remove(&pod.name_any());
            if pods.is_empty() {
                all.remove(&key);
            }
        }
        Arc::new(pod)
    }

    /// AppWrappers with pods on a node.
    fn on(&self, node: &str) -> Vec<Name> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let is_there =
            |pod: &Arc<Pod>| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
        all.iter().filter(|(_, pods)| pods.values().any(is_there)).map(|(name, _)| name.clone()).collect()
    }
}

fn key(pod: &Pod) -> Name {
    (pod.namespace().unwrap_or_default(), running::owner_name(pod).unwrap_or_default().to_owned())
}

impl Nodes {
    pub fn health(&self) -> NodeHealth {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Follows the labels of all nodes.
    pub async fn follow(self, client: Client, autopilot: Autopilot, (pods, wake): (Pods, Wake)) {
        let nodes = Api::<PartialObjectMeta<Node>>::all(client);
        let stream = watcher(nodes, watcher::Config::default()).default_backoff();
        let mut stream = std::pin::pin!(stream);
        while let Some(event) = stream.next().await {
            let mut health = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let node = match event {
                Ok(watcher::Event::Init) => {
                    *health = NodeHealth::default();
                    continue;
                }
                Ok(watcher::Event::InitApply(node) | watcher::Event::Apply(node)) => {
                    if !health.learn(&node.name_any(), node.labels(), &autopilot) {
                        continue;
                    }
                    node.name_any()
                }
                Ok(watcher::Event::Delete(node)) => {
                    health.forget(&node.name_any());
                    continue;
                }
                Ok(watcher::Event::InitDone) => continue,
                Err(error) => {
                    tracing::warn!("Cannot follow nodes: {error}");
                    continue;
                }
            };
            drop(health);
            tracing::info!("What Autopilot says of the node `{node}` has changed");
            for (namespace, wrapper) in pods.on(&node) {
                if wake.unbounded_send(ObjectRef::new(&wrapper).within(&namespace)).is_err() {
                    return;
                }
            }
        }
    }
}
