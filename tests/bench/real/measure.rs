//! The measurements. Each ends when hub and worker hold what they should, and counts what fedqd wrote.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::bed::{Bed, GPU, QUEUES, Resource, queue_name};
use super::support::audit::{Mark, Request};

/// Beyond the merging window of 1 s, so that no change waits for the one before.
const APART: Duration = Duration::from_millis(1500);
const BURST: u32 = 50;
const BURST_EVERY: Duration = Duration::from_millis(100);
const REST: Duration = Duration::from_secs(30);
const HEARTBEATS: u32 = 200;
/// Until the last write of a burst, and whatever should not come, has come.
const QUIET: Duration = Duration::from_secs(4);

/// Milliseconds, sorted when asked.
#[derive(Clone, Debug, Default)]
pub struct Times(pub Vec<f64>);

/// Where the time of one kind of change goes.
#[derive(Debug, Default)]
pub struct Spaced {
    pub changes: u32,
    /// From the node's patch answered to fedqd's write of the worker's last queue answered.
    pub worker: Times,
    /// To fedqd's write of the hub's last queue answered.
    pub hub: Times,
    /// The same two as the bench's own watches saw them, from the patch answered to the bench.
    pub worker_seen: Times,
    pub hub_seen: Times,
    /// From the node's patch answered to fedqd's first request received: its own part, and the watch.
    pub reaction: Times,
    /// What the servers took for one write of a queue, with Kueue's webhook.
    pub server: Times,
    /// Each change moves quota in so many queues of the worker and as many of the hub.
    pub changed_queues: usize,
    pub queue_writes: usize,
    pub counted: Counted,
    pub cpu_seconds: f64,
}

/// fedqd's writes, by cluster and resource.
#[derive(Clone, Debug, Default)]
pub struct Counted(pub BTreeMap<(String, String), usize>);

#[derive(Debug, Default)]
pub struct Burst {
    pub changes: u32,
    pub seconds: f64,
    pub worker_writes: usize,
    pub hub_writes: usize,
    pub counted: Counted,
}

#[derive(Debug, Default)]
pub struct Idle {
    pub writes: usize,
    pub events: u32,
    pub cpu_seconds: f64,
}

#[derive(Debug, Default)]
pub struct Restart {
    /// From the start of the process, in ms.
    pub ready: f64,
    /// To the change that was made while it was down being on the hub.
    pub caught_up: f64,
    /// How nodes were caught up: `watch from VERSION` or `list`.
    pub node_requests: Vec<String>,
    pub requests: usize,
    pub writes: usize,
    /// Of all of fedqd's connections; `None` where `ss` is not installed.
    pub bytes_received: Option<u64>,
}

impl Times {
    pub fn percentile(&self, percent: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let at = ((sorted.len() as f64 * percent / 100.0).ceil() as usize).saturating_sub(1);
        sorted.get(at).copied().unwrap_or(f64::NAN)
    }
}

impl Counted {
    fn of(writes: &[(String, Request)]) -> Self {
        let mut counted = BTreeMap::new();
        for (cluster, request) in writes {
            // Refused ones by themselves: most are conflicts with Kueue, which writes a queue's status.
            let refused =
                if request.code < 300 { String::new() } else { format!(", refused with {}", request.code) };
            *counted.entry((cluster.clone(), format!("{}{refused}", request.resource))).or_default() += 1;
        }
        Self(counted)
    }

    pub fn queues(&self, cluster: &str) -> usize {
        let queues = |((at, resource), _): &(&(String, String), &usize)| {
            at == cluster && resource == "clusterqueues.kueue.x-k8s.io"
        };
        self.0.iter().filter(queues).map(|(_, count)| count).sum()
    }
}

pub async fn rest(bed: &Bed) -> Result<Idle> {
    let (marks, cpu) = (bed.marks()?, cpu_seconds(bed)?);
    tokio::time::sleep(REST).await;
    let writes = bed.writes_since(&marks).await?;
    ensure!(writes.is_empty(), "nothing changed, and fedqd wrote {:?}", Counted::of(&writes));
    Ok(Idle { writes: writes.len(), events: 0, cpu_seconds: cpu_seconds(bed)? - cpu })
}

/// What a kubelet says every few minutes, of nodes whose capacity stays.
pub async fn heartbeats(bed: &Bed) -> Result<Idle> {
    let (marks, cpu) = (bed.marks()?, cpu_seconds(bed)?);
    let nodes: Api<Node> = Api::all(bed.worker().client.clone());
    for _ in 0..HEARTBEATS {
        let beat = json!({"type": "Ready", "lastHeartbeatTime": Timestamp::try_from(SystemTime::now())?});
        let patch = Patch::Strategic(json!({"status": {"conditions": [beat]}}));
        nodes.patch_status("bench-changing", &PatchParams::default(), &patch).await?;
    }
    tokio::time::sleep(QUIET).await;
    let writes = bed.writes_since(&marks).await?;
    ensure!(writes.is_empty(), "heartbeats change nothing, and fedqd wrote {:?}", Counted::of(&writes));
    Ok(Idle { writes: writes.len(), events: HEARTBEATS, cpu_seconds: cpu_seconds(bed)? - cpu })
}

/// Changes that do not overlap.
pub async fn spaced(bed: &Bed, resource: Resource, changes: u32) -> Result<Spaced> {
    let mut worker = Watched::start(bed.worker().client.clone(), resource);
    let mut hub = Watched::start(bed.hub().client.clone(), resource);
    bed.settled(resource, bed.now(resource)).await?;
    tokio::time::sleep(APART).await;
    let mut spaced = Spaced { changes, ..Spaced::default() };
    let (marks, cpu) = (bed.marks()?, cpu_seconds(bed)?);
    for _ in 0..changes {
        let begun = Instant::now();
        let amount = bed.other(resource);
        let (on_worker, on_hub) = Bed::shares(resource, amount)?;
        bed.change(resource, amount).await?;
        let answered = Instant::now();
        spaced.worker_seen.0.push(worker.until(&on_worker, answered).await.context("on the worker")?);
        spaced.hub_seen.0.push(hub.until(&on_hub, answered).await.context("on the hub")?);
        tokio::time::sleep(APART.saturating_sub(begun.elapsed())).await;
    }
    spaced.cpu_seconds = cpu_seconds(bed)? - cpu;
    let writes = bed.writes_since(&marks).await?;
    spaced.counted = Counted::of(&writes);
    spaced.changed_queues = changes as usize * resource.queues * 2;
    spaced.queue_writes = [bed.worker(), bed.hub()].iter().map(|at| spaced.counted.queues(&at.name)).sum();
    read_times(bed, &mut spaced, marks[1], &writes)?;
    bed.settled(resource, bed.now(resource)).await?;
    Ok(spaced)
}

/// Pairs every node patch with the writes up to the next one, by the servers' clocks.
fn read_times(bed: &Bed, spaced: &mut Spaced, mark: Mark, writes: &[(String, Request)]) -> Result<()> {
    let patches = bed.worker().requests_since(mark)?.into_iter();
    let patches: Vec<Timestamp> = patches
        .filter(|request| request.user == "admin" && request.resource == "nodes/status")
        .map(|request| request.answered)
        .collect();
    ensure!(patches.len() == spaced.changes as usize, "{} patches of nodes in the log", patches.len());
    let ends = patches.iter().skip(1).copied().chain([Timestamp::MAX]);
    for (patched, end) in patches.iter().copied().zip(ends) {
        // The watch tells fedqd of the change before the server logs that it answered the patch.
        let begin = patched - Duration::from_millis(200);
        let until = end.saturating_sub(Duration::from_millis(200))?;
        let during = writes.iter().filter(|(_, write)| {
            write.resource.starts_with("clusterqueues")
                && write.code < 300
                && begin <= write.received
                && write.received < until
        });
        let during: Vec<_> = during.collect();
        let last = |cluster: &str| {
            during.iter().filter(|(at, _)| at == cluster).map(|(_, write)| write.answered).max()
        };
        spaced.worker.0.push(millis(patched, last(&bed.worker().name).context("no write to the worker")?));
        spaced.hub.0.push(millis(patched, last(&bed.hub().name).context("no write to the hub")?));
        let first = during.iter().map(|(_, write)| write.received).min();
        spaced.reaction.0.push(millis(patched, first.context("no write")?));
        spaced.server.0.extend(during.iter().map(|(_, write)| millis(write.received, write.answered)));
    }
    Ok(())
}

/// Changes faster than the merging window: the first goes at once, the others together.
pub async fn burst(bed: &Bed) -> Result<Burst> {
    tokio::time::sleep(APART).await;
    let marks = bed.marks()?;
    let begun = Instant::now();
    let mut tick = tokio::time::interval(BURST_EVERY);
    for _ in 0..BURST {
        tick.tick().await;
        bed.change(GPU, bed.other(GPU)).await?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    // One more that is sure to change something, so that the end state proves itself.
    bed.settled(GPU, bed.now(GPU)).await?;
    tokio::time::sleep(QUIET).await;
    bed.settled(GPU, bed.now(GPU)).await?;
    let counted = Counted::of(&bed.writes_since(&marks).await?);
    Ok(Burst {
        changes: BURST,
        seconds,
        worker_writes: counted.queues(&bed.worker().name),
        hub_writes: counted.queues(&bed.hub().name),
        counted,
    })
}

/// Killed, with a change while it is down, and started again.
pub async fn restart(bed: &Bed) -> Result<Restart> {
    bed.daemon.kill()?;
    let amount = bed.other(GPU);
    bed.change(GPU, amount).await?;
    let marks = bed.marks()?;
    let begun = Instant::now();
    bed.daemon.restart().await?;
    let ready = begun.elapsed().as_secs_f64() * 1e3;
    bed.settled(GPU, amount).await?;
    let caught_up = begun.elapsed().as_secs_f64() * 1e3;
    tokio::time::sleep(QUIET).await;
    let writes = bed.writes_since(&marks).await?;
    let mut requests = 0;
    let mut node_requests = Vec::new();
    for (cluster, mark) in [bed.hub(), bed.worker()].into_iter().zip(&marks) {
        for request in
            cluster.requests_since(*mark)?.iter().filter(|request| request.user == super::bed::USER)
        {
            requests += 1;
            if request.resource == "nodes" {
                let query = request.uri.split_once('?').map_or("", |(_, query)| query);
                node_requests.push(format!("{} {} {query}", request.code, request.verb));
            }
        }
    }
    let bytes_received = bytes_received(bed.daemon.id());
    Ok(Restart { ready, caught_up, node_requests, requests, writes: writes.len(), bytes_received })
}

fn millis(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1e3
}

/// CPU of fedqd so far, in hundredths.
fn cpu_seconds(bed: &Bed) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", bed.daemon.id()))?;
    let (_, fields) = text.rsplit_once(") ").context("/proc/PID/stat")?;
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    Ok(ticks.sum::<f64>() / 100.0)
}

fn bytes_received(process: u32) -> Option<u64> {
    let out = Command::new("ss").args(["-Htinp"]).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let ours = lines.windows(2).filter(|pair| pair[0].contains(&format!("pid={process},")));
    let bytes = ours.filter_map(|pair| {
        pair[1].split_whitespace().find_map(|word| word.strip_prefix("bytes_received:")?.parse::<u64>().ok())
    });
    Some(bytes.sum())
}

/// What the queues that share a resource say now, by a watch of the bench's own.
struct Watched {
    shares: watch::Receiver<Vec<(String, Instant)>>,
    _watching: JoinSet<()>,
}

impl Watched {
    fn start(client: Client, resource: Resource) -> Self {
        let (told, shares) = watch::channel(vec![(String::new(), Instant::now()); resource.queues]);
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "ClusterQueue"));
        let queues: Api<DynamicObject> = Api::all_with(client, &kind);
        let mut watching = JoinSet::new();
        watching.spawn(async move {
            let objects = watcher(queues, watcher::Config::default()).default_backoff();
            let mut objects = objects.applied_objects().boxed();
            while let Some(object) = objects.next().await {
                let Ok(object) = object else { continue };
                let place = (0..QUEUES).find(|number| object.metadata.name == Some(queue_name(*number)));
                let share = super::bed::nominal(&object.data, resource.name).unwrap_or_default().to_owned();
                told.send_if_modified(|shares| {
                    let Some(known) = place.and_then(|place| shares.get_mut(place)) else { return false };
                    let changed = known.0 != share;
                    if changed {
                        *known = (share, Instant::now());
                    }
                    changed
                });
            }
        });
        Self { shares, _watching: watching }
    }

    /// Until every queue has this share; how long after `since` the last of them had it, in ms.
    async fn until(&mut self, share: &str, since: Instant) -> Result<f64> {
        let reached = self.shares.wait_for(|shares| shares.iter().all(|(now, _)| now == share));
        let reached = tokio::time::timeout(Duration::from_secs(30), reached).await;
        let reached = reached.with_context(|| format!("{share} was not reached"))??;
        let last = reached.iter().map(|(_, at)| *at).max().context("a queue")?;
        Ok(last.saturating_duration_since(since).as_secs_f64() * 1e3)
    }
}
