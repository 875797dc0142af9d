//! The pods of all AppWrappers, by AppWrapper.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, reflector::ObjectRef, watcher},
};
use tokio::sync::watch;

use crate::{
    autopilot::NodeHealth,
    config::Autopilot,
    kinds::{Wake, wake_owner},
    names::APPWRAPPER_LABEL,
    observed_pod::ObservedPod,
    running,
};

/// Namespace and name.
type Name = (String, String);

#[derive(Clone)]
pub struct Pods {
    known: Arc<RwLock<Known>>,
    /// Whether all pods were listed once. Until then that there are none means nothing.
    listed: watch::Sender<bool>,
}

#[derive(Default)]
struct Known {
    by_wrapper: HashMap<Name, BTreeMap<String, Arc<ObservedPod>>>,
    /// The AppWrapper of each pod: its label can change.
    wrappers: HashMap<Name, String>,
}

/// What nodes say of themselves.
#[derive(Clone, Default)]
pub struct Nodes(Arc<RwLock<NodeHealth>>);

impl Default for Pods {
    fn default() -> Self {
        Self { known: Arc::default(), listed: watch::Sender::new(false) }
    }
}

impl Pods {
    pub fn of(&self, namespace: &str, wrapper: &str) -> Vec<Arc<ObservedPod>> {
        let known = self.read();
        let pods = known.by_wrapper.get(&(namespace.to_owned(), wrapper.to_owned()));
        pods.map(|pods| pods.values().cloned().collect()).unwrap_or_default()
    }

    /// Waits until all pods were listed once.
    pub async fn listed(&self) {
        // It cannot be closed: a sender is in `self`.
        _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// Follows them until nobody listens. While they cannot be listed, what was known of them stays.
    pub async fn follow(self, client: Client, wake: Wake) {
        let config = watcher::Config::default().labels(APPWRAPPER_LABEL);
        let stream = watcher(Api::<ObservedPod>::all(client), config).default_backoff();
        let mut stream = std::pin::pin!(stream);
        let mut listed: Vec<ObservedPod> = Vec::new();
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
                Ok(watcher::Event::Apply(pod)) => self.write().put(pod),
                Ok(watcher::Event::Delete(pod)) => self.write().remove(pod),
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

    /// Returns those that are there and those that were. Whoever reads meanwhile sees all of one or of the other.
    fn replace(&self, pods: Vec<ObservedPod>) -> Vec<Arc<ObservedPod>> {
        let mut new = Known::default();
        let mut touched: Vec<Arc<ObservedPod>> = pods.into_iter().flat_map(|pod| new.put(pod)).collect();
        let old = std::mem::replace(&mut *self.write(), new);
        self.listed.send_replace(true);
        touched.extend(old.by_wrapper.into_values().flat_map(BTreeMap::into_values));
        touched
    }

    /// AppWrappers with pods on a node.
    fn on(&self, node: &str) -> Vec<Name> {
        let is_there = |pod: &Arc<ObservedPod>| pod.node.as_deref() == Some(node);
        let known = self.read();
        let there = known.by_wrapper.iter().filter(|(_, pods)| pods.values().any(is_there));
        there.map(|(wrapper, _)| wrapper.clone()).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Returns the pod, and the one that was in its place: that may have been another AppWrapper's.
    fn put(&mut self, pod: ObservedPod) -> Vec<Arc<ObservedPod>> {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let wrapper = running::owner_name(&pod).unwrap_or_default().to_owned();
        let pod = Arc::new(pod);
        let old = self.take(&namespace, &name);
        self.wrappers.insert((namespace.clone(), name.clone()), wrapper.clone());
        self.by_wrapper.entry((namespace, wrapper)).or_default().insert(name, Arc::clone(&pod));
        old.into_iter().chain([pod]).collect()
    }

    fn remove(&mut self, pod: ObservedPod) -> Vec<Arc<ObservedPod>> {
        let old = self.take(&pod.namespace().unwrap_or_default(), &pod.name_any());
        old.into_iter().chain([Arc::new(pod)]).collect()
    }

    fn take(&mut self, namespace: &str, name: &str) -> Option<Arc<ObservedPod>> {
        let wrapper = self.wrappers.remove(&(namespace.to_owned(), name.to_owned()))?;
        let key = (namespace.to_owned(), wrapper);
        let pods = self.by_wrapper.get_mut(&key)?;
        let old = pods.remove(name);
        if pods.is_empty() {
            self.by_wrapper.remove(&key);
        }
        old
    }
}

impl Nodes {
    pub fn health(&self) -> NodeHealth {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Follows the labels of all nodes.
    pub async fn follow(self, client: Client, autopilot: Autopilot, pods: Pods, wake: Wake) {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde_json::json;

    use super::*;

    fn pod(name: &str, wrapper: &str) -> ObservedPod {
        let labels = json!({APPWRAPPER_LABEL: wrapper});
        let pod = json!({"metadata": {"namespace": "default", "name": name, "labels": labels}});
        serde_json::from_value(pod).expect("a pod")
    }

    fn names(pods: &[Arc<ObservedPod>]) -> Vec<String> {
        pods.iter()
            .map(|pod| format!("{}/{}", running::owner_name(&**pod).expect("one"), pod.name_any()))
            .collect()
    }

    #[test]
    fn a_pod_is_of_the_appwrapper_that_its_label_names_now() {
        let pods = Pods::default();
        assert_eq!(names(&pods.write().put(pod("one", "a"))), ["a/one"]);
        assert_eq!(names(&pods.write().put(pod("one", "b"))), ["a/one", "b/one"], "both are looked at");
        assert_eq!(names(&pods.of("default", "a")), [""; 0]);
        assert_eq!(names(&pods.of("default", "b")), ["b/one"]);
        // The server shows it as it was before it left.
        pods.write().remove(pod("one", "a"));
        assert_eq!(names(&pods.of("default", "b")), [""; 0]);
    }

    #[test]
    fn those_that_went_while_nobody_watched_are_looked_at() {
        let pods = Pods::default();
        pods.replace(vec![pod("one", "a"), pod("two", "b")]);
        let mut touched = names(&pods.replace(vec![pod("two", "b")]));
        touched.sort();
        assert_eq!(touched, ["a/one", "b/two", "b/two"]);
        assert_eq!(names(&pods.of("default", "a")), [""; 0]);
    }

    #[test]
    fn a_new_list_shows_no_moment_without_pods() {
        const LISTS: usize = 20;
        let all: Vec<ObservedPod> = (0..500).map(|number| pod(&format!("pod-{number}"), "a")).collect();
        let (pods, over) = (Pods::default(), AtomicBool::new(false));
        pods.replace(all.clone());
        let lacking = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut lacking = 0;
                while !over.load(Ordering::Relaxed) {
                    lacking += usize::from(pods.of("default", "a").len() != all.len());
                }
                lacking
            });
            for _ in 0..LISTS {
                pods.replace(all.clone());
            }
            over.store(true, Ordering::Relaxed);
            reader.join().expect("read")
        });
        assert_eq!(lacking, 0);
    }
}
