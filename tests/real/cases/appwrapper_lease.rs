//! Two replicas of ours with a Lease: one acts, and when it is stopped, killed or frozen the other does, within the Lease's
//! time. What both write is seen on the wire.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::appwrapper::{GETS_THERE, clear, components, ground, pods};
use super::appwrapper_stage::{APPWRAPPER, OURS, Replica, Setting};
use crate::support::cluster::{Cluster, has_condition, id};
use crate::support::fleet::Fleet;
use crate::support::process::{Server, Signal};
use crate::support::relay::{Asked, Relay, Tap};
use crate::support::wait::{Seen, eventually};

const PLACE: &str = "aw-lease";
/// Of the Lease, and what a waiting replica takes to look at it and to list what there is.
const HANDOVER: Duration = Duration::from_secs(15 + 5);
const STOPS_WITHIN: Duration = Duration::from_secs(5);
const FROZEN: Duration = Duration::from_secs(25);
/// At each handover so many are under way.
const WRAPPERS: usize = 10;

/// Writes that the server took, but for those of the Lease and of Events.
#[derive(Default)]
struct Scribe(Mutex<Vec<(Instant, String)>>);

impl Scribe {
    fn since(&self, since: Instant) -> Vec<(Instant, String)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|(at, _)| since <= *at).cloned().collect()
    }
}

impl Tap for Scribe {
    fn before<'a>(&'a self, _: &'a Asked) -> BoxFuture<'a, bool> {
        async { true }.boxed()
    }

    fn after<'a>(&'a self, asked: &'a Asked, code: u16) -> BoxFuture<'a, bool> {
        async move {
            let writes = ["create", "update", "patch", "delete"].contains(&asked.verb);
            let of_others = ["leases", "events", "subjectaccessreviews", "tokenreviews"];
            if writes && code < 300 && !of_others.contains(&&*asked.resource) {
                let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                all.push((Instant::now(), format!("{} {}", asked.verb, asked.uri)));
            }
            true
        }
        .boxed()
    }

    fn lag(&self, _: &Asked) -> Duration {
        Duration::ZERO
    }
}

struct One {
    replica: Replica,
    scribe: Arc<Scribe>,
    server: Server,
    _relay: Relay,
}

impl One {
    async fn start(fleet: &Fleet, cluster: &Cluster, case: &str, identity: &str) -> Result<Self> {
        let scribe = Arc::<Scribe>::default();
        let tap: Arc<dyn Tap> = Arc::<Scribe>::clone(&scribe);
        let relay = Relay::start(&cluster.kubeconfig_for(OURS, &[])?, tap).await?;
        let kubeconfig = relay.kubeconfig()?;
        let setting = Setting { webhooks: false, elects: true, identity, kubeconfig: Some(&kubeconfig) };
        let replica = Replica::prepare(fleet, cluster, case, setting).await?;
        let server = replica.spawn(fleet)?;
        replica.ready(&server).await?;
        Ok(Self { replica, scribe, server, _relay: relay })
    }

    async fn has_ended(&self, within: Duration) -> Result<()> {
        eventually("a replica to end", within, async || {
            Ok(Seen::when(self.server.exited()?.is_some(), || "it runs".to_owned()))
        })
        .await
    }
}

pub async fn replicas_hand_over_within_the_lease_and_never_act_together(fleet: &Fleet) -> Result<()> {
    let (name, worker) = ("replicas_hand_over_within_the_lease_and_never_act_together", fleet.worker1());
    ground(worker, PLACE).await?;
    // What an earlier case left: the first of ours waits for it to lapse.
    worker.delete(id("coordination.k8s.io/v1", "Lease", "fedq-appwrapper").within("fedq-appwrapper")).await?;
    let mut one = One::start(fleet, worker, name, "one").await?;
    work(worker, "warm", 1).await?;
    all_run(worker, "warm", 1).await?;
    let mut two = One::start(fleet, worker, name, "two").await?;

    let told = begun(worker, "stopped").await?;
    one.server.signal(Signal::Term)?;
    one.has_ended(STOPS_WITHIN).await.context("after SIGTERM")?;
    ensure!(one.server.exited()?.is_some_and(|status| status.success()), "{}", one.server.log_tail(20));
    hands_over(worker, "stopped", told, (&one, &two)).await.context("after SIGTERM")?;

    one.server = one.replica.spawn(fleet)?;
    one.replica.ready(&one.server).await?;
    let killed = begun(worker, "killed").await?;
    two.server.kill()?;
    hands_over(worker, "killed", killed, (&two, &one)).await.context("after a kill")?;

    two.server = two.replica.spawn(fleet)?;
    two.replica.ready(&two.server).await?;
    let frozen = begun(worker, "frozen").await?;
    one.server.signal(Signal::Stop)?;
    hands_over(worker, "frozen", frozen, (&one, &two)).await.context("of a frozen one")?;
    tokio::time::sleep(FROZEN.saturating_sub(frozen.elapsed())).await;
    // It finds more to do than it did before.
    work(worker, "late", WRAPPERS).await?;
    let thawed = Instant::now();
    one.server.signal(Signal::Continue)?;
    one.has_ended(STOPS_WITHIN).await.context("a leader that was frozen")?;
    let late = one.scribe.since(thawed);
    ensure!(late.is_empty(), "it acted though another leads: {late:#?}");
    all_run(worker, "late", WRAPPERS).await?;

    for (round, count) in
        [("warm", 1), ("stopped", WRAPPERS), ("killed", WRAPPERS), ("frozen", WRAPPERS), ("late", WRAPPERS)]
    {
        for wrapper in names(round, count) {
            let this = id(APPWRAPPER, "AppWrapper", &wrapper).within(PLACE);
            worker.delete(this).await?;
            worker.wait_gone(this, GETS_THERE).await?;
            ensure!(pods(worker, PLACE, &wrapper).await?.is_empty(), "{wrapper} left pods");
        }
    }
    two.server.kill()?;
    clear(worker, PLACE).await
}

fn names(round: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{round}-{index}")).collect()
}

async fn work(worker: &Cluster, round: &str, count: usize) -> Result<()> {
    for wrapper in names(round, count) {
        let wrapped = components(&["job 5m".to_owned(), "job 5m".to_owned()], &wrapper)?;
        let object = json!({
            "apiVersion": APPWRAPPER, "kind": "AppWrapper",
            "metadata": {
                "name": wrapper, "namespace": PLACE, "labels": {"kueue.x-k8s.io/queue-name": PLACE},
            },
            "spec": {"suspend": true, "components": wrapped},
        });
        worker.apply_object("fedq-test", object).await?;
    }
    Ok(())
}

async fn jobs(worker: &Cluster, round: &str) -> Result<usize> {
    let mut jobs = worker.list("batch/v1", "Job", Some(PLACE)).await?;
    let its = |job: &Value| {
        let wrapper = job["metadata"]["labels"][super::appwrapper::LABEL].as_str().unwrap_or_default();
        wrapper.rsplit_once('-').is_some_and(|(of, _)| of == round)
    };
    jobs.retain(its);
    Ok(jobs.len())
}

/// Work of which some is done and some is not.
async fn begun(worker: &Cluster, round: &str) -> Result<Instant> {
    let making = work(worker, round, WRAPPERS);
    let some = eventually("some Jobs", GETS_THERE, async || {
        let jobs = jobs(worker, round).await?;
        Ok(Seen::when(3 <= jobs, || format!("{jobs} Jobs")))
    });
    tokio::try_join!(making, some)?;
    Ok(Instant::now())
}

async fn all_run(worker: &Cluster, round: &str, count: usize) -> Result<()> {
    for wrapper in names(round, count) {
        worker
            .wait(
                id(APPWRAPPER, "AppWrapper", &wrapper).within(PLACE),
                "to have its pods",
                GETS_THERE,
                |seen| has_condition(seen, "PodsReady", "True"),
            )
            .await?;
    }
    let made = jobs(worker, round).await?;
    ensure!(made == 2 * count, "{made} Jobs of {} components", 2 * count);
    Ok(())
}

/// From the one that leads no more since then to the other: in time, one after the other, and each component once.
async fn hands_over(worker: &Cluster, round: &str, since: Instant, (from, to): (&One, &One)) -> Result<()> {
    // Something is left to do, however far the first had come.
    let more = format!("{round}-more");
    work(worker, &more, 1).await?;
    let first = eventually("the other to act", HANDOVER, async || {
        Ok(match to.scribe.since(since).first() {
            Some((at, _)) => Seen::Done(*at),
            None => Seen::Still(to.server.log_tail(5)),
        })
    })
    .await?;
    println!("{round}: the other acts after {:.1} s", (first - since).as_secs_f64());
    all_run(worker, round, WRAPPERS).await?;
    all_run(worker, &more, 1).await?;
    let overlap = from.scribe.since(first);
    ensure!(overlap.is_empty(), "both acted: {overlap:#?}");
    let wrapper = format!("{more}-0");
    let this = id(APPWRAPPER, "AppWrapper", &wrapper).within(PLACE);
    worker.delete(this).await?;
    worker.wait_gone(this, GETS_THERE).await
}
