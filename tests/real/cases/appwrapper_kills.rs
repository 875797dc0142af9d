//! Ours killed at every request of an AppWrapper's life, right before the server has it and right after it has answered:
//! each component is there once, nothing is left, and quota is not given back while there are pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use crate::support::relay::{Asked, Relay, Tap};
use crate::support::wait::{Seen, eventually};

const PLACE: &str = "aw-kills";
/// Far longer than a life takes, with two kills.
const WITHIN: Duration = Duration::from_mins(1);
/// Requests at each of which it is killed twice.
const KILLS_A_LIFE: usize = 5;
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

/// What happens to an AppWrapper before it is deleted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Nothing,
    /// Its pod fails.
    Reset,
    /// Kueue takes its quota, and gives it back.
    Suspended,
}

pub async fn killed_at_each_request_it_makes_each_component_once_and_holds_its_quota(
    fleet: &Fleet,
) -> Result<()> {
    let name = "killed_at_each_request_it_makes_each_component_once_and_holds_its_quota";
    // Two clusters, to be done in half the time.
    let (one, other) =
        tokio::try_join!(Lane::open(fleet, &fleet.hub, name), Lane::open(fleet, &fleet.workers[0], name))?;
    let mut points: Vec<(Fate, String)> = Vec::new();
    for fate in [Fate::Nothing, Fate::Reset, Fate::Suspended] {
        let (here, there) = tokio::try_join!(one.live(fate, &[]), other.live(fate, &[]))?;
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
    // Several kills a life, as far apart as can be.
    let (mut shares, mut lives) = ([Vec::new(), Vec::new()], 0);
    for fate in [Fate::Nothing, Fate::Reset, Fate::Suspended] {
        let of_fate: Vec<&String> =
            points.iter().filter(|(its, _)| *its == fate).map(|(_, request)| request).collect();
        let rounds = of_fate.len().div_ceil(KILLS_A_LIFE);
        for round in 0..rounds {
            let share: Vec<String> = of_fate.iter().skip(round).step_by(rounds).copied().cloned().collect();
            shares[lives % 2].push((fate, share));
            lives += 1;
        }
    }
    let [first, second] = &shares;
    let missed = tokio::try_join!(one.killed_at_each(first), other.killed_at_each(second))?;
    let missed: Vec<String> = [missed.0, missed.1].concat();
    println!("Killed before and after each of {} requests, but for {missed:#?}", points.len());
    // Some depend on who is faster; all that makes or deletes something is in every life.
    let certain = |request: &str| !request.contains(": status ") && !request.contains(": get ");
    let certain =
        missed.iter().find(|request| certain(request.as_str()) || NEEDED.contains(&request.as_str()));
    ensure!(certain.is_none() && 5 * missed.len() <= points.len(), "no life came to {missed:#?}");
    tokio::try_join!(one.close(), other.close())?;
    Ok(())
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

/// A cluster with one process of ours, and whoever kills it.
struct Lane<'f> {
    fleet: &'f Fleet,
    cluster: &'f Arc<Cluster>,
    replica: Replica,
    killer: Arc<Killer>,
    lives: Mutex<usize>,
    _relay: Relay,
}

struct Killer {
    cluster: Arc<Cluster>,
    server: Mutex<Option<Server>>,
    life: Mutex<Life>,
    killed: Notify,
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
    /// Where it is to be killed, and how often it was.
    kills: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

impl<'f> Lane<'f> {
    async fn open(fleet: &'f Fleet, cluster: &'f Arc<Cluster>, case: &str) -> Result<Self> {
        let killer = Arc::new(Killer {
            cluster: Arc::clone(cluster),
            server: Mutex::default(),
            life: Mutex::default(),
            killed: Notify::new(),
        });
        let tap: Arc<dyn Tap> = Arc::<Killer>::clone(&killer);
        let relay = Relay::start(&cluster.kubeconfig_for(OURS, &[])?, tap).await?;
        let kubeconfig = relay.kubeconfig()?;
        // A webhook that nobody answers would put Kueue off for longer and longer. The Lease has a case of its own.
        let setting =
            Setting { webhooks: false, elects: false, kubeconfig: Some(&kubeconfig), ..Setting::default() };
        let replica = Replica::prepare(fleet, cluster, case, setting).await?;
        let server = replica.spawn(fleet)?;
        replica.ready(&server).await?;
        *killer.server() = Some(server);
        ground(cluster, PLACE).await?;
        Ok(Self { fleet, cluster, replica, killer, lives: Mutex::default(), _relay: relay })
    }

    async fn close(&self) -> Result<()> {
        if let Some(server) = &*self.killer.server() {
            server.kill()?;
        }
        clear(self.cluster, PLACE).await
    }

    /// Returns those that no life came to.
    async fn killed_at_each(&self, lives: &[(Fate, Vec<String>)]) -> Result<Vec<String>> {
        let mut missed = Vec::new();
        for (fate, requests) in lives.iter().filter(|(_, requests)| !requests.is_empty()) {
            // A kill may have made another request unnecessary, such as a status that says too little by now.
            for request in self.killed_at(*fate, requests).await? {
                missed.extend(self.killed_at(*fate, std::slice::from_ref(&request)).await?);
            }
        }
        Ok(missed)
    }

    /// Returns those that it did not come to.
    async fn killed_at(&self, fate: Fate, requests: &[String]) -> Result<Vec<String>> {
        self.live(fate, requests).await.with_context(|| format!("{fate:?}, killed at {requests:#?}"))?;
        let life = self.killer.life();
        let missed = life.kills.iter().filter(|(_, kills)| **kills < 2);
        Ok(missed.map(|(request, _)| request.clone()).collect())
    }

    /// A whole life; returns what was asked of the server for it, each request once.
    async fn live(&self, fate: Fate, kill_at: &[String]) -> Result<Vec<String>> {
        let number = {
            let mut lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
            *lives += 1;
            *lives
        };
        let wrapper = format!("life-{number:03}");
        let kills = kill_at.iter().map(|request| (request.clone(), 0)).collect();
        *self.killer.life() = Life { wrapper: wrapper.clone(), kills, ..Life::default() };
        let lived = async {
            tokio::select! {
                lived = self.live_through(&wrapper, fate) => lived,
                error = self.keep_running() => Err(error),
            }
        };
        let lived = lived.await;
        let life = self.killer.life();
        lived.with_context(|| format!("{wrapper}, killed {:#?}: {:#?}", life.kills, life.asked))?;
        ensure!(life.wrong.is_empty(), "{wrapper}: {:#?}", life.wrong);
        let rounds = if matches!(fate, Fate::Nothing) { 1 } else { 2 };
        let made = BTreeMap::from([("jobs".to_owned(), rounds), ("services".to_owned(), rounds)]);
        ensure!(life.made == made, "{wrapper}: made {:?} in {rounds} rounds: {:#?}", life.made, life.asked);
        let mut seen = BTreeSet::new();
        Ok(life.asked.iter().filter(|asked| seen.insert(*asked)).cloned().collect())
    }

    async fn keep_running(&self) -> anyhow::Error {
        loop {
            self.killer.killed.notified().await;
            match self.replica.spawn(self.fleet) {
                Ok(server) => *self.killer.server() = Some(server),
                Err(error) => return error,
            }
        }
    }

    async fn live_through(&self, wrapper: &str, fate: Fate) -> Result<()> {
        self.cluster.apply_object("fedq-test", object(wrapper)).await?;
        let first = self.runs(wrapper, "").await?;
        match fate {
            Fate::Nothing => {}
            Fate::Reset => {
                for pod in pods(self.cluster, PLACE, wrapper).await? {
                    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                    let failed = json!({"status": {"phase": "Failed"}});
                    self.cluster.merge(id("v1", "Pod", name).within(PLACE), Part::Status, failed).await?;
                }
                self.runs(wrapper, &first).await?;
            }
            Fate::Suspended => {
                self.activate(wrapper, false).await?;
                self.cluster
                    .wait(of(wrapper), "suspended", WITHIN, |seen| seen["status"]["phase"] == "Suspended")
                    .await?;
                self.activate(wrapper, true).await?;
                self.runs(wrapper, &first).await?;
            }
        }
        self.cluster.delete(of(wrapper)).await?;
        self.cluster.wait_gone(of(wrapper), WITHIN).await?;
        let left = self.labelled(wrapper).await?;
        ensure!(left.iter().all(Vec::is_empty), "it is gone, and this is not: {left:?}");
        Ok(())
    }

    /// Waits until it runs with another Job than `before`, and each component is there once. Returns its Job.
    async fn runs(&self, wrapper: &str, before: &str) -> Result<String> {
        eventually(&format!("{wrapper} to run"), WITHIN, async || {
            let seen = self.cluster.get(of(wrapper)).await?.context("no such AppWrapper")?;
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

    /// Its Jobs, Services and pods.
    async fn labelled(&self, wrapper: &str) -> Result<[Vec<String>; 3]> {
        labelled(self.cluster, wrapper).await
    }

    async fn activate(&self, wrapper: &str, active: bool) -> Result<()> {
        let workloads = self.cluster.list(KUEUE, "Workload", Some(PLACE)).await?;
        let its = workloads.iter().find(|one| one["metadata"]["ownerReferences"][0]["name"] == wrapper);
        let name = its.and_then(|one| one["metadata"]["name"].as_str()).context("a Workload of it")?;
        let patch = json!({"spec": {"active": active}});
        self.cluster.merge(id(KUEUE, "Workload", name).within(PLACE), Part::Whole, patch).await
    }
}

fn of(wrapper: &str) -> Id<'_> {
    id(APPWRAPPER, "AppWrapper", wrapper).within(PLACE)
}

async fn labelled(cluster: &Cluster, wrapper: &str) -> Result<[Vec<String>; 3]> {
    let mut all = [const { Vec::new() }; 3];
    for (names, (api_version, kind)) in
        all.iter_mut().zip([("batch/v1", "Job"), ("v1", "Service"), ("v1", "Pod")])
    {
        let mut objects = cluster.list(api_version, kind, Some(PLACE)).await?;
        objects.retain(|one| one["metadata"]["labels"][LABEL] == wrapper);
        names.extend(objects.iter().filter_map(|one| one["metadata"]["name"].as_str()).map(str::to_owned));
    }
    Ok(all)
}

/// A Job whose name is made up, and a Service; a failed pod resets it at once.
fn object(wrapper: &str) -> Value {
    let long = |key: &str| format!("workload.codeflare.dev.appwrapper/{key}");
    json!({
        "apiVersion": APPWRAPPER, "kind": "AppWrapper",
        "metadata": {
            "name": wrapper, "namespace": PLACE, "labels": {"kueue.x-k8s.io/queue-name": PLACE},
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

impl Killer {
    fn server(&self) -> MutexGuard<'_, Option<Server>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As a machine that loses power; what runs next is started by whoever waits for it.
    fn kill(&self) {
        if let Some(server) = &*self.server() {
            let killed = server.kill();
            self.life().wrong.extend(killed.err().map(|error| format!("{error:#}")));
        }
        self.killed.notify_one();
    }

    /// Whether it is killed here, before the server has this request (the first time) or after (the second).
    fn is_time(&self, request: &str, kills: usize) -> bool {
        let mut life = self.life();
        let now = life.kills.get_mut(request).filter(|so_far| **so_far == kills);
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
        let wrong = match labelled(&self.cluster, &wrapper).await {
            Ok(left) if left.iter().all(Vec::is_empty) => return,
            Ok(left) => format!("{left:?} were there when it said {}", asked.body["status"]),
            Err(error) => format!("{error:#}"),
        };
        self.life().wrong.push(wrong);
    }
}

impl Tap for Killer {
    fn before<'a>(&'a self, asked: &'a Asked) -> BoxFuture<'a, bool> {
        async move {
            let Some(request) = self.life().request(asked) else { return true };
            if asked.resource == "appwrappers/status" {
                self.check_release(asked).await;
            }
            self.life().asked.push(request.clone());
            if self.is_time(&request, 0) {
                self.kill();
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
                self.kill();
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
