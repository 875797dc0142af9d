//! Heartbeats of a whole fleet, as its kubelets would send them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::nodes::{Beats, Change};

/// Short, so that heartbeats come one by one as from kubelets and not in heaps.
const TICK: Duration = Duration::from_millis(50);

/// Ends when dropped.
#[derive(Debug)]
pub struct Beating {
    beats: Arc<AtomicU64>,
    _task: JoinSet<()>,
}

impl Beating {
    pub(super) fn start(clusters: &[Arc<Cluster>], rate: f64) -> Self {
        let beats = Arc::<AtomicU64>::default();
        let mut task = JoinSet::new();
        task.spawn(run(clusters.to_vec(), rate, Arc::clone(&beats)));
        Self { beats, _task: task }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }
}

async fn run(clusters: Vec<Arc<Cluster>>, rate: f64, count: Arc<AtomicU64>) {
    let begin = |cluster: &Cluster| {
        let herd = cluster.state.herd()?;
        Some(herd.with(|herd| Beats::new(herd, rate, cluster.state.now())))
    };
    let mut rhythms: Vec<_> =
        clusters.iter().filter_map(|cluster| Some((Arc::clone(cluster), begin(cluster)?))).collect();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for (cluster, beats) in &mut rhythms {
            let Some(herd) = cluster.state.herd() else { continue };
            let now = cluster.state.now();
            let due = herd.with(|herd| beats.due(herd, now));
            if due.is_empty() {
                continue;
            }
            let beats = due.into_iter().map(|node| (node, Change::Heartbeat));
            let happened = herd.apply(&cluster.state.store, beats, now);
            count.fetch_add(u64::try_from(happened).unwrap_or_default(), Ordering::Relaxed);
            // Others want the thread too.
            tokio::task::yield_now().await;
        }
    }
}
