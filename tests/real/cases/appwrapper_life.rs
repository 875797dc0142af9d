//! Lives of AppWrappers in which something befalls ours at a request, right before the server has it or right after it has
//! answered: each component is there once, nothing is left, and quota is not given back while there are pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::appwrapper::{LABEL, clear, ground, pods};
use super::appwrapper_stage::{APPWRAPPER, OURS, Replica, Setting};
use crate::support::cluster::{Cluster, Id, Part, has_condition, id};
use crate::support::fleet::Fleet;
use crate::support::process::Server;
use crate::support::relay::{Asked, Gate, Relay, Tap};
use crate::support::wait::{Seen, eventually};

/// Far longer than a life takes, with all that befalls it.
const WITHIN: Duration = Duration::from_mins(2);
/// Less than ours pauses after an error, so that a blow costs one of those pauses and not two. Who follows objects tries sooner,
/// and is refused.
const AWAY: Duration = Duration::from_millis(900);
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

/// What befalls ours at a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Blow {
    /// It is killed, and started anew.
    Kill,
    /// Its API server is away for a while, to it alone.
    Away,
    /// Its API server is killed, and started anew.
    Restart,
}

/// What happens to an AppWrapper before it is deleted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    Nothing,
    /// Its pod fails.
    Reset,
    /// Kueue takes its quota, and gives it back.
    Suspended,
}

impl Fate {
    const ALL: [Self; 3] = [Self::Nothing, Self::Reset, Self::Suspended];
}

/// Two clusters, to be done in half the time.
pub struct Lanes<'f>([Lane<'f>; 2]);

impl<'f> Lanes<'f> {
    /// `place`: the name of its namespace, queue, flavor and nodes.
    pub async fn open(fleet: &'f Fleet, case: &str, place: &'static str) -> Result<Self> {
        let open = |cluster| Lane::open(fleet, cluster, case, place);
        let lanes = tokio::try_join!(open(&fleet.hub), open(&fleet.workers[0]))?;
        Ok(Self(lanes.into()))
    }

    pub async fn close(self) -> Result<()> {
        let [one, other] = &self.0;
        tokio::try_join!(one.close(), other.close())?;
        Ok(())
    }

    /// At every request that lives have, so many of them a life. Returns them, in order.
    pub async fn struck_at_each(&self, blow: Blow, a_life: usize) -> Result<Vec<(Fate, String)>> {
        let points = self.requests().await?;
        let [one, other] = &self.0;
        let [first, second] = shares(&points, a_life);
        let missed = tokio::try_join!(one.struck_at_each(blow, &first), other.struck_at_each(blow, &second))?;
        let missed: Vec<String> = [missed.0, missed.1].concat();
        println!("{blow:?} before and after each of {} requests, but for {missed:#?}", points.len());
        // Some depend on who is faster; all that makes or deletes something is in every life.
        let certain = |request: &str| !request.contains(": status ") && !request.contains(": get ");
        let certain =
            missed.iter().find(|request| certain(request.as_str()) || NEEDED.contains(&request.as_str()));
        ensure!(certain.is_none() && 5 * missed.len() <= points.len(), "no life came to {missed:#?}");
        Ok(points)
    }

    /// At these in a life on one cluster, and at those in one on the other.
    pub async fn struck_at(&self, blow: Blow, requests: [&[String]; 2]) -> Result<()> {
        let [one, other] = &self.0;
        let struck = tokio::try_join!(
            one.struck_at(blow, Fate::Nothing, requests[0]),
            other.struck_at(blow, Fate::Nothing, requests[1])
        )?;
        let missed: Vec<String> = [struck.0, struck.1].concat();
        ensure!(missed.is_empty(), "{blow:?}: no life came to {missed:#?}");
        Ok(())
    }

    /// Found by watching lives in which nothing befalls it.
    async fn requests(&self) -> Result<Vec<(Fate, String)>> {
        let [one, other] = &self.0;
        let mut points: Vec<(Fate, String)> = Vec::new();
        for fate in Fate::ALL {
            let (here, there) = tokio::try_join!(one.live(fate, None), other.live(fate, None))?;
            // Those that depend on who is faster are mostly not in both.
            let there: BTreeSet<String> = there.into_iter().collect();
            for request in here.into_iter().filter(|request| there.contains(request)) {
                if !points.iter().any(|(_, known)| *known == request) {
                    points.push((fate, request));
                }
            }
        }
        for needed in NEEDED {
            ensure!(points.iter().any(|(_, point)| point == needed), "no life has `{needed}`: {points:#?}");
        }
        Ok(points)
    }
}

/// Lives of the two clusters, with what of each is struck at: several, as far apart as can be.
fn shares(points: &[(Fate, String)], a_life: usize) -> [Vec<(Fate, Vec<String>)>; 2] {
    let (mut shares, mut lives) = ([Vec::new(), Vec::new()], 0);
    for fate in Fate::ALL {
        let of_fate: Vec<&String> =
            points.iter().filter(|(its, _)| *its == fate).map(|(_, request)| request).collect();
        let rounds = of_fate.len().div_ceil(a_life);
        for round in 0..rounds {
            let share: Vec<String> = of_fate.iter().skip(round).step_by(rounds).copied().cloned().collect();
            shares[lives % 2].push((fate, share));
            lives += 1;
        }
    }
    shares
}

/// Writes of which it is certain that a life has them; the others are found by watching one.
const NEEDED: [&str; 14] = [
    "0 : status Suspended",
    "0 Suspended: patch appwrappers",
    "1 Resuming: create jobs",
    "1 Resuming: create services",
    "1 Running: delete jobs",
    "1 Running: delete services",
    "1 Terminating: list pods",
    "1 Terminating: patch appwrappers",
    "1 Resetting: get appwrappers",
    "1 Resetting: delete jobs",
    "2 Resuming: create jobs",
    "2 Resuming: create services",
    "1 Suspending: delete jobs",
    "1 Suspending: list pods",
];

/// A cluster with one process of ours, and whoever watches what it asks.
struct Lane<'f> {
    fleet: &'f Fleet,
    cluster: &'f Arc<Cluster>,
    place: &'static str,
    replica: Replica,
    witness: Arc<Witness>,
    lives: Mutex<usize>,
    _relay: Relay,
}

struct Witness {
    cluster: Arc<Cluster>,
    place: &'static str,
    server: Mutex<Option<Server>>,
    gate: OnceLock<Gate>,
    life: Mutex<Life>,
    struck: Notify,
    /// Until what was struck is as before.
    is_down: AtomicBool,
}

/// What is known of the AppWrapper that lives now.
#[derive(Default)]
struct Life {
    wrapper: String,
    phase: String,
    /// How often its components were to be made.
    round: usize,
    asked: Vec<String>,
    /// Objects that were made, by resource.
    made: BTreeMap<String, usize>,
    /// What befalls it, where, and how often it did.
    blow: Option<Blow>,
    blows: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

impl<'f> Lane<'f> {
    async fn open(
        fleet: &'f Fleet,
        cluster: &'f Arc<Cluster>,
        case: &str,
        place: &'static str,
    ) -> Result<Self> {
        let witness = Arc::new(Witness {
            cluster: Arc::clone(cluster),
            place,
            server: Mutex::default(),
            gate: OnceLock::new(),
            life: Mutex::default(),
            struck: Notify::new(),
            is_down: AtomicBool::new(false),
        });
        let tap: Arc<dyn Tap> = Arc::<Witness>::clone(&witness);
        let relay = Relay::start(&cluster.kubeconfig_for(OURS, &[])?, tap).await?;
        witness.gate.get_or_init(|| relay.gate());
        let kubeconfig = relay.kubeconfig()?;
        // A webhook that nobody answers would put Kueue off for longer and longer. The Lease has a case of its own.
        let setting =
            Setting { webhooks: false, elects: false, kubeconfig: Some(&kubeconfig), ..Setting::default() };
        let replica = Replica::prepare(fleet, cluster, case, setting).await?;
        let server = replica.spawn(fleet)?;
        replica.ready(&server).await?;
        *witness.server() = Some(server);
        ground(cluster, place).await?;
        Ok(Self { fleet, cluster, place, replica, witness, lives: Mutex::default(), _relay: relay })
    }

    async fn close(&self) -> Result<()> {
        if let Some(server) = &*self.witness.server() {
            server.kill()?;
        }
        clear(self.cluster, self.place).await
    }

    /// Returns those that no life came to.
    async fn struck_at_each(&self, blow: Blow, lives: &[(Fate, Vec<String>)]) -> Result<Vec<String>> {
        let mut missed = Vec::new();
        for (fate, requests) in lives.iter().filter(|(_, requests)| !requests.is_empty()) {
            // A blow may have made another request unnecessary, such as a status that says too little by now.
            for request in self.struck_at(blow, *fate, requests).await? {
                missed.extend(self.struck_at(blow, *fate, std::slice::from_ref(&request)).await?);
            }
        }
        Ok(missed)
    }

    /// Returns those that it did not come to.
    async fn struck_at(&self, blow: Blow, fate: Fate, requests: &[String]) -> Result<Vec<String>> {
        let lived = self.live(fate, Some((blow, requests))).await;
        lived.with_context(|| format!("{fate:?}, {blow:?} at {requests:#?}"))?;
        let life = self.witness.life();
        let missed = life.blows.iter().filter(|(_, blows)| **blows < 2);
        Ok(missed.map(|(request, _)| request.clone()).collect())
    }

    /// A whole life; returns what was asked of the server for it, each request once.
    async fn live(&self, fate: Fate, blows: Option<(Blow, &[String])>) -> Result<Vec<String>> {
        let number = {
            let mut lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
            *lives += 1;
            *lives
        };
        let wrapper = format!("life-{number:03}");
        let blow = blows.map(|(blow, _)| blow);
        let at = blows.into_iter().flat_map(|(_, requests)| requests);
        let blows = at.map(|request| (request.clone(), 0)).collect();
        *self.witness.life() = Life { wrapper: wrapper.clone(), blow, blows, ..Life::default() };
        let mut raising = std::pin::pin!(self.raise_each_time());
        let lived = tokio::select! {
            lived = self.live_through(&wrapper, fate) => lived,
            error = &mut raising => return Err(error),
        };
        let stands = eventually("what was struck to be as before", WITHIN, async || {
            let is_down = self.witness.is_down.load(Ordering::SeqCst);
            Ok(Seen::when(!is_down, || "it is down".to_owned()))
        });
        tokio::select! {
            stands = stands => stands?,
            error = &mut raising => return Err(error),
        }
        let life = self.witness.life();
        lived.with_context(|| format!("{wrapper}, {blow:?} {:#?}: {:#?}", life.blows, life.asked))?;
        if let Some(ended) = self.witness.server().as_ref().and_then(|server| server.exited().transpose()) {
            anyhow::bail!("{wrapper}: ours ended with {:?}", ended?);
        }
        ensure!(life.wrong.is_empty(), "{wrapper}: {:#?}", life.wrong);
        let rounds = if matches!(fate, Fate::Nothing) { 1 } else { 2 };
        let made = BTreeMap::from([("jobs".to_owned(), rounds), ("services".to_owned(), rounds)]);
        ensure!(life.made == made, "{wrapper}: made {:?} in {rounds} rounds: {:#?}", life.made, life.asked);
        let mut seen = BTreeSet::new();
        Ok(life.asked.iter().filter(|asked| seen.insert(*asked)).cloned().collect())
    }

    async fn raise_each_time(&self) -> anyhow::Error {
        loop {
            self.witness.struck.notified().await;
            if let Err(error) = self.raise().await {
                return error;
            }
            self.witness.is_down.store(false, Ordering::SeqCst);
        }
    }

    /// As it was before it was struck.
    async fn raise(&self) -> Result<()> {
        let blow = self.witness.life().blow.context("nothing was struck")?;
        if blow == Blow::Kill {
            *self.witness.server() = Some(self.replica.spawn(self.fleet)?);
            return Ok(());
        }
        tokio::time::sleep(AWAY).await;
        if blow == Blow::Restart {
            self.cluster.plane.restart_api_server().await?;
        }
        self.witness.gate.get().context("a gate")?.open();
        Ok(())
    }

    async fn live_through(&self, wrapper: &str, fate: Fate) -> Result<()> {
        self.cluster.apply_object("fedq-test", object(self.place, wrapper)).await?;
        let first = self.runs(wrapper, "").await?;
        match fate {
            Fate::Nothing => {}
            Fate::Reset => {
                for pod in pods(self.cluster, self.place, wrapper).await? {
                    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                    let failed = json!({"status": {"phase": "Failed"}});
                    self.cluster
                        .merge(id("v1", "Pod", name).within(self.place), Part::Status, failed)
                        .await?;
                }
                self.runs(wrapper, &first).await?;
            }
            Fate::Suspended => {
                self.activate(wrapper, false).await?;
                self.cluster
                    .wait(self.of(wrapper), "suspended", WITHIN, |seen| {
                        seen["status"]["phase"] == "Suspended"
                    })
                    .await?;
                self.activate(wrapper, true).await?;
                self.runs(wrapper, &first).await?;
            }
        }
        self.cluster.delete(self.of(wrapper)).await?;
        self.cluster.wait_gone(self.of(wrapper), WITHIN).await?;
        let left = self.labelled(wrapper).await?;
        ensure!(left.iter().all(Vec::is_empty), "it is gone, and this is not: {left:?}");
        Ok(())
    }

    /// Waits until it runs with another Job than `before`, and each component is there once. Returns its Job.
    async fn runs(&self, wrapper: &str, before: &str) -> Result<String> {
        eventually(&format!("{wrapper} to run"), WITHIN, async || {
            let seen = self.cluster.get(self.of(wrapper)).await?.context("no such AppWrapper")?;
            let job = seen["status"]["componentStatus"][0]["name"].as_str().unwrap_or_default().to_owned();
            let runs = seen["status"]["phase"] == "Running"
                && has_condition(&seen, "PodsReady", "True")
                && job != before;
            if !runs {
                return Ok(Seen::Still(seen["status"].to_string()));
            }
            let there = self.labelled(wrapper).await?;
            let once = there[0] == [job.clone()] && there[1].len() == 1 && there[2].len() == 1;
            ensure!(once, "its Jobs, Services and pods: {there:?}");
            Ok(Seen::Done(job))
        })
        .await
    }

    fn of<'a>(&'a self, wrapper: &'a str) -> Id<'a> {
        id(APPWRAPPER, "AppWrapper", wrapper).within(self.place)
    }

    /// Its Jobs, Services and pods.
    async fn labelled(&self, wrapper: &str) -> Result<[Vec<String>; 3]> {
        labelled(self.cluster, self.place, wrapper).await
    }

    async fn activate(&self, wrapper: &str, active: bool) -> Result<()> {
        let workloads = self.cluster.list(KUEUE, "Workload", Some(self.place)).await?;
        let its = workloads.iter().find(|one| one["metadata"]["ownerReferences"][0]["name"] == wrapper);
        let name = its.and_then(|one| one["metadata"]["name"].as_str()).context("a Workload of it")?;
        let patch = json!({"spec": {"active": active}});
        self.cluster.merge(id(KUEUE, "Workload", name).within(self.place), Part::Whole, patch).await
    }
}

async fn labelled(cluster: &Cluster, place: &str, wrapper: &str) -> Result<[Vec<String>; 3]> {
    let mut all = [const { Vec::new() }; 3];
    for (names, (api_version, kind)) in
        all.iter_mut().zip([("batch/v1", "Job"), ("v1", "Service"), ("v1", "Pod")])
    {
        let mut objects = cluster.list(api_version, kind, Some(place)).await?;
        objects.retain(|one| one["metadata"]["labels"][LABEL] == wrapper);
        names.extend(objects.iter().filter_map(|one| one["metadata"]["name"].as_str()).map(str::to_owned));
    }
    Ok(all)
}

/// A Job whose name is made up, and a Service; a failed pod resets it at once.
fn object(place: &str, wrapper: &str) -> Value {
    let long = |key: &str| format!("workload.codeflare.dev.appwrapper/{key}");
    json!({
        "apiVersion": APPWRAPPER, "kind": "AppWrapper",
        "metadata": {
            "name": wrapper, "namespace": place, "labels": {"kueue.x-k8s.io/queue-name": place},
            "annotations": {
                long("failureGracePeriodDuration"): "0s", long("retryPausePeriodDuration"): "1s",
            },
        },
        "spec": {"suspend": true, "components": [
            {"template": {
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": format!("{wrapper}-")},
                "spec": {"backoffLimit": 0, "template": {
                    "metadata": {"annotations": {
                        "pod-complete.stage.kwok.x-k8s.io/delay": "600s",
                        "pod-complete.stage.kwok.x-k8s.io/jitter-delay": "600s",
                    }},
                    "spec": {
                        "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                        "containers": [{
                            "name": "main", "image": "example.invalid/main",
                            "resources": {"requests": {"cpu": "100m"}},
                        }],
                    },
                }},
            }},
            {"template": {
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": wrapper},
                "spec": {"selector": {"app": wrapper}, "ports": [{"port": 80}]},
            }},
        ]},
    })
}

impl Witness {
    fn server(&self) -> MutexGuard<'_, Option<Server>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As a machine that loses power, or its network; whoever waits for it raises what was struck.
    fn strike(&self) {
        self.is_down.store(true, Ordering::SeqCst);
        let blow = self.life().blow;
        if let (Some(Blow::Away | Blow::Restart), Some(gate)) = (blow, self.gate.get()) {
            gate.close();
        }
        let struck = match blow {
            Some(Blow::Kill) => self.server().as_ref().map_or(Ok(()), Server::kill),
            Some(Blow::Restart) => self.cluster.plane.kill_api_server(),
            Some(Blow::Away) | None => Ok(()),
        };
        self.life().wrong.extend(struck.err().map(|error| format!("{error:#}")));
        self.struck.notify_one();
    }

    /// Whether it is struck here, before the server has this request (the first time) or after (the second).
    fn is_time(&self, request: &str, blows: usize) -> bool {
        let mut life = self.life();
        let now = life.blows.get_mut(request).filter(|so_far| **so_far == blows);
        now.map(|so_far| *so_far += 1).is_some()
    }

    /// At the moment in which quota is given back, or everything is said to be gone.
    async fn check_release(&self, asked: &Asked) {
        let says = |type_: &str| has_condition(&asked.body, type_, "False");
        let wrapper = self.life().wrapper.clone();
        if asked.body["status"]["phase"] == "Succeeded"
            || !(says("QuotaReserved") || says("ResourcesDeployed"))
        {
            return;
        }
        let wrong = match labelled(&self.cluster, self.place, &wrapper).await {
            Ok(left) if left.iter().all(Vec::is_empty) => return,
            Ok(left) => format!("{left:?} were there when it said {}", asked.body["status"]),
            Err(error) => format!("{error:#}"),
        };
        self.life().wrong.push(wrong);
    }
}

impl Tap for Witness {
    fn before<'a>(&'a self, asked: &'a Asked) -> BoxFuture<'a, bool> {
        async move {
            let Some(request) = self.life().request(asked) else { return true };
            if asked.resource == "appwrappers/status" {
                self.check_release(asked).await;
            }
            self.life().asked.push(request.clone());
            if self.is_time(&request, 0) {
                self.strike();
                return false;
            }
            true
        }
        .boxed()
    }

    fn after<'a>(&'a self, asked: &'a Asked, code: u16) -> BoxFuture<'a, bool> {
        async move {
            let Some(request) = self.life().request(asked) else { return true };
            self.life().answered(asked, code);
            if self.is_time(&request, 1) {
                self.strike();
                return false;
            }
            true
        }
        .boxed()
    }

    fn lag(&self, _: &Asked) -> Duration {
        Duration::ZERO
    }
}

impl Life {
    /// A request for this AppWrapper by round, phase and what it is; of a status, what it says. Events are left out: they
    /// are told once or not at all.
    fn request(&self, asked: &Asked) -> Option<String> {
        let its = !self.wrapper.is_empty()
            && (asked.uri.contains(&self.wrapper) || asked.body.to_string().contains(&self.wrapper));
        if !its || asked.resource == "events" || asked.verb == "watch" {
            return None;
        }
        let what = if asked.resource == "appwrappers/status" {
            Self::status(&asked.body["status"])
        } else {
            format!("{} {}", asked.verb, asked.resource)
        };
        Some(format!("{} {}: {what}", self.round, self.phase))
    }

    fn status(status: &Value) -> String {
        let phase = status["phase"].as_str().unwrap_or_default();
        let words = |conditions: &Value| {
            let all = conditions.as_array().into_iter().flatten();
            let words: Vec<String> = all
                .map(|one| {
                    let text = |key: &str| one[key].as_str().unwrap_or_default();
                    format!("{}={}", text("type"), text("status"))
                })
                .collect();
            words.join(" ")
        };
        let conditions = words(&status["conditions"]);
        let components: Vec<String> = status["componentStatus"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| words(&one["conditions"]))
            .collect();
        if conditions.is_empty() {
            return format!("status {phase}");
        }
        format!("status {phase} {conditions} [{}]", components.join(", "))
    }

    fn answered(&mut self, asked: &Asked, code: u16) {
        if asked.verb == "create" && code == 201 {
            *self.made.entry(asked.resource.clone()).or_default() += 1;
        }
        if asked.resource == "appwrappers/status" && code == 200 {
            let phase = asked.body["status"]["phase"].as_str().unwrap_or_default();
            if phase == "Resuming" && self.phase != "Resuming" {
                self.round += 1;
            }
            phase.clone_into(&mut self.phase);
        }
    }
}
