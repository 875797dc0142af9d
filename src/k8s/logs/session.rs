//! Keeps one reader for each container of the pods there are, and merges what they read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::AtomicU64},
};

use tokio::{sync::watch, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    Container, ContainerState, Event, Options, Origin, Pod, Pods,
    connections::Share,
    outlet::{Intake, Outlet, outlet},
    reader::{Reader, Source},
};
use fedq_values::ids::ClusterName;

/// The lines of all containers as they come. Dropping it ends every stream.
pub struct Session {
    intake: Intake,
    _readers: JoinSet<()>,
}

/// Begins to read. The session ends when every log has ended and `pods` are complete, or their sender is
/// gone; without `follow`, when what is there now has been read.
pub fn open(options: Options, pods: watch::Receiver<Pods>) -> Session {
    let follows = options.follow;
    let (outlet, intake) = outlet(options.limits.waiting, follows.then_some(options.limits.patience));
    let readers = Readers {
        options: Arc::new(options),
        outlet,
        begun: BTreeMap::new(),
        lanes: BTreeMap::new(),
        shares: BTreeMap::new(),
        running: JoinSet::new(),
    };
    let mut task = JoinSet::new();
    task.spawn(readers.run(pods, follows));
    Session::of(intake, task)
}

impl Session {
    pub(super) fn of(intake: Intake, readers: JoinSet<()>) -> Self {
        Self { intake, _readers: readers }
    }

    /// `None` when everything was read. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        self.intake.next().await
    }
}

/// One container of one pod.
type Key = (u32, ClusterName, String, String);

struct Readers {
    options: Arc<Options>,
    outlet: Outlet,
    /// Also those that have ended, while their pods are there: they are not begun again.
    begun: BTreeMap<Key, watch::Sender<ContainerState>>,
    lanes: BTreeMap<(u32, String), Lane>,
    /// Of the places of each cluster.
    shares: BTreeMap<ClusterName, Share>,
    running: JoinSet<()>,
}

/// A container of a node, which one pod after the other may be.
#[derive(Default)]
struct Lane {
    seq: Arc<AtomicU64>,
    /// Ends with the reader that is in it.
    busy: Option<CancellationToken>,
}

impl Readers {
    async fn run(mut self, mut pods: watch::Receiver<Pods>, follows: bool) {
        let mut open = true;
        loop {
            let complete = {
                let pods = pods.borrow_and_update();
                self.keep(&pods.pods);
                pods.complete
            };
            if self.running.is_empty() && (complete || !open || !follows) {
                return;
            }
            tokio::select! {
                changed = pods.changed(), if open => open = changed.is_ok(),
                Some(ended) = self.running.join_next() => if let Err(error) = ended {
                    // Only a panic: nobody cancels a reader. It must not look like the end of a log.
                    std::panic::resume_unwind(error.into_panic());
                },
            }
        }
    }

    fn keep(&mut self, pods: &[Pod]) {
        let node = self.options.node;
        let wanted = pods.iter().filter(|pod| node.is_none_or(|node| node == pod.node));
        let mut there = BTreeSet::new();
        for pod in wanted {
            for container in &pod.containers {
                let key = (pod.node, pod.cluster.clone(), pod.uid.clone(), container.name.clone());
                match self.begun.get(&key) {
                    Some(state) => {
                        state.send_if_modified(|state| {
                            let changed = *state != container.state;
                            state.clone_from(&container.state);
                            changed
                        });
                    }
                    None => self.begin(key.clone(), pod, container),
                }
                there.insert(key);
            }
        }
        self.begun.retain(|key, _| there.contains(key));
    }

    fn begin(&mut self, key: Key, pod: &Pod, container: &Container) {
        let origin = Origin {
            cluster: pod.cluster.clone(),
            node: pod.node,
            pod: pod.name.clone(),
            container: container.name.clone(),
        };
        let source = Source {
            connections: pod.connections.clone(),
            share: self.shares.entry(pod.cluster.clone()).or_default().clone(),
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            container: container.name.clone(),
        };
        let lane = self.lanes.entry((pod.node, container.name.clone())).or_default();
        let busy = CancellationToken::new();
        let before = lane.busy.replace(busy.clone());
        let (sender, state) = watch::channel(container.state.clone());
        let tap = self.outlet.tap(Arc::new(origin));
        let mut reader = Reader::new(source, Arc::clone(&self.options), state, tap, Arc::clone(&lane.seq));
        let unwritten = matches!(container.state, ContainerState::Waiting { .. });
        if unwritten || before.is_some() {
            reader.read_from_its_start();
        }
        // A pod that went leaves its last lines before the next one's, unless its cluster is silent.
        let patience = 2 * self.options.limits.linger;
        self.running.spawn(async move {
            let _busy = busy.drop_guard();
            if let Some(before) = before {
                let _ = timeout(patience, before.cancelled()).await;
            }
            reader.run().await;
        });
        self.begun.insert(key, sender);
    }
}
