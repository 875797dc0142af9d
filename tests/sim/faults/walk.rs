//! Random walks: faults and changes drawn from a seed. Each write of quota is held to what was true meanwhile
//! (`truth`), every few moves all that is wrong is lifted and the quotas must be right to the unit, and the end is that
//! of every scenario.
//!
//! `FEDQ_WALK_SEEDS=100..200 FEDQ_WALK_STEPS=100 FEDQ_WALK_AT_ONCE=16 cargo test --profile bench --test sim -- --nocapture
//! random_walks` walks 10,000 moves of other ways, and says each move and how many walks are over. A walk that fails says
//! its seed.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use fedq_sim::cluster::{Cluster, until};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::super::bed::{KUEUE, WITHIN, gpu_node, wait};
use super::stage::{
    FLAVOR, FOREIGN, GPU, QUEUES, Stage, assignments, claim_name, condition_of, gpus, merged, wrong,
};
use super::texts::Texts;
use super::truth::{self, Amounts, Nodes, Truth};
use super::workloads::{self, Workload};

const STEPS: usize = 40;
/// So many walks at once keep a machine with two cores busy where nothing is optimized.
const AT_ONCE: usize = 4;
/// So many moves lie between two moments at which all has to be right.
const SETTLE_EVERY: usize = 8;
const KUEUE_GROUP: &str = "kueue.x-k8s.io";
const FAR: &str = "far-resource-claim";
/// Of each worker. By name it comes before the first.
const SECOND: [&str; 2] = ["a-second-claim-for-one", "a-second-claim-for-two"];
/// Their parents make one tree of quota of all that are in one of them.
const SIBLINGS: [&str; 2] = ["left", "right"];
/// What lasts until the next step or the one after it.
const PLANS: [&str; 12] = [
    "hang",
    "half-open",
    "refuse-connections",
    "wrong-certificate",
    "server-errors 50%",
    "too-many-requests 1s 30%",
    "latency 100ms",
    "drop-watch-after 1",
    "silent-watch",
    "duplicate-events 50%; reorder-events 30%",
    "lose-events 30%",
    "gone-mid-page; lose-answers 30%",
];
/// Kinds of a worker whose lists and watches may be refused.
const KINDS: [&str; 5] = ["nodes", "clusterqueues", "localqueues", "resourceflavors", "workloads"];

/// Tells where a walk that failed began.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("this was FEDQ_WALK_SEEDS={0}..{1}", self.0, self.0 + 1);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "what to walk is the tester's choice, not configuration")]
fn asked(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_walks_end_where_they_would_have_without_faults() {
    let seeds = asked("FEDQ_WALK_SEEDS").unwrap_or_else(|| "1..5".to_owned());
    let (from, to) = seeds.split_once("..").expect("seeds as 1..5");
    let number = |name, otherwise| asked(name).map_or(otherwise, |asked| asked.parse().expect("a number"));
    let (steps, at_once) = (number("FEDQ_WALK_STEPS", STEPS), number("FEDQ_WALK_AT_ONCE", AT_ONCE));
    let mut seeds: std::ops::Range<u64> = from.parse().expect("a number")..to.parse().expect("a number");
    let mut walks = JoinSet::new();
    let mut over = 0;
    let mut failed = Vec::new();
    loop {
        while walks.len() < at_once
            && let Some(seed) = seeds.next()
        {
            let walk = tokio::spawn(async move { Walk::begin(seed).await.go(steps).await });
            walks.spawn(async move { (seed, walk.await.is_ok()) });
        }
        let Some(walk) = walks.join_next().await else { break };
        let (seed, passed) = walk.expect("it only waits");
        over += 1;
        failed.extend((!passed).then_some(seed));
        println!(
            "walk {seed} passed: {passed}; {over} walks of {steps} moves are over, failed are {failed:?}"
        );
    }
    assert!(failed.is_empty(), "walks failed, of the seeds {failed:?}");
}

struct Walk {
    told: Told,
    draw: Rng,
    stage: Stage,
    truth: Truth,
    /// By worker: nodes that were added, and what they have.
    nodes: [Vec<(String, Nodes)>; 2],
    /// By worker: workloads that were submitted to its queues.
    workloads: [Vec<Workload>; 2],
    second_claim: [bool; 2],
    invalid: [bool; 2],
    /// By worker.
    texts: [Texts; 2],
}

impl Walk {
    async fn begin(seed: u64) -> Self {
        // Events that are lost or came in disorder are found by the next list.
        let mut stage = Stage::set_with("watchTimeout: 3s, consistencyInterval: 4s", "").await;
        stage.may_fall = true;
        let reported = truth::Cluster::new(Nodes { labelled: 4, plain: 0 }, [2, 1]);
        // 16 GPUs each, of which 2 are their own queue's.
        let nodes = Nodes { labelled: 6, plain: 8 };
        let workers = [truth::Cluster::new(nodes, [6, 4]), truth::Cluster::new(nodes, [3, 5])];
        let truth = Truth::new(workers, reported);
        let mut walk = Self {
            told: Told(seed),
            draw: Rng::with_seed(seed),
            stage,
            truth,
            nodes: [Vec::new(), Vec::new()],
            workloads: [Vec::new(), Vec::new()],
            second_claim: [false; 2],
            invalid: [false; 2],
            texts: [[6, 4], [3, 5]].map(Texts::new),
        };
        for worker in &walk.stage.bed.workers {
            merged(worker, "Node", "a", json!({"metadata": {"labels": {"tier": "gold"}}})).await;
            for cohort in SIBLINGS {
                let spec = json!({"parentName": "org"});
                let object = json!({"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": cohort}, "spec": spec});
                worker.put(object).await.unwrap();
            }
        }
        walk.stage.more_claims.push(FAR);
        walk.stage.beside = [4, 4];
        walk.stage.hub().put(report(4)).await.unwrap();
        let hub = walk.stage.hub();
        wait("the claim of the cluster that reports", hub, || {
            hub.get("ClusterResourceClaim", "", FAR).is_some()
        })
        .await;
        walk.give_far([2, 1]).await;
        walk.settles().await;
        walk
    }

    async fn go(mut self, steps: usize) {
        for step in 1..=steps {
            self.move_once(step).await;
            let pause = Duration::from_millis(self.draw.u64(50..600));
            tokio::time::sleep(pause).await;
            self.truth.allows(&self.stage.quota_writes());
            if step % SETTLE_EVERY == 0 {
                self.settles().await;
            }
        }
        self.end().await;
    }

    fn says(&self, what: &str) {
        println!("walk {}: {what}", self.told.0);
    }

    async fn move_once(&mut self, step: usize) {
        let which = self.draw.usize(0..2);
        match self.draw.u8(0..22) {
            0..=2 => self.goes_wrong(),
            3 => self.lift(),
            4..=6 => self.gives(which).await,
            7 => self.adds_a_node(which, step).await,
            8 => self.removes_a_node(which).await,
            9 => self.kills().await,
            10 => self.forgets(),
            11 => self.refuses_a_kind(which),
            12 => self.refuses_writes_on_the_hub(),
            13 => self.breaks_a_claim(which).await,
            14 => self.claims_twice(which).await,
            15 => self.reports_otherwise().await,
            16 => self.edits_a_flavor().await,
            17 => self.leaves_or_returns(which).await,
            18 => self.holds_or_lets_go(which).await,
            19 | 20 => self.submits_or_ends(which, step).await,
            _ => match self.draw.u8(0..3) {
                0 => self.joins_a_cohort().await,
                1 => self.is_suspended().await,
                _ => self.starts_before_kueue_is_served().await,
            },
        }
    }

    fn any(&mut self) -> usize {
        self.draw.usize(0..3)
    }

    fn cluster(&self, which: usize) -> &Cluster {
        [self.stage.hub(), self.stage.one(), self.stage.two()][which]
    }

    fn goes_wrong(&mut self) {
        let (which, plan) = (self.any(), self.draw.choice(PLANS).expect("there are plans"));
        let cluster = self.cluster(which);
        self.says(&format!("{}: {plan}", cluster.state.name));
        cluster.set_faults(plan.parse::<fedq_sim::faults::Plan>().unwrap().seeded(self.told.0));
    }

    fn lift(&self) {
        for cluster in [self.stage.hub(), self.stage.one(), self.stage.two()] {
            wrong(cluster, "");
            cluster.state.faults.break_connections();
        }
    }

    async fn gives(&mut self, which: usize) {
        let amounts = [self.draw.i64(0..10), self.draw.i64(0..8)];
        self.says(&format!("worker {which} gives {amounts:?}"));
        self.truth.workers[which].asks(amounts);
        self.texts[which].forget_earlier(&self.claim(which));
        self.invalid[which] = false;
        self.stage.give(&self.stage.bed.workers[which], amounts).await;
        self.texts[which].add(&self.claim(which), amounts);
    }

    fn claim(&self, which: usize) -> Arc<Value> {
        let name = claim_name(&self.stage.bed.workers[which]);
        self.stage.hub().get("ClusterResourceClaim", "", &name).expect("the claim of a worker")
    }

    async fn adds_a_node(&mut self, which: usize, step: usize) {
        let gpus = self.draw.u32(1..8);
        let name = format!("more-{step}");
        let labelled = self.draw.bool();
        self.says(&format!("worker {which} gets {gpus} GPUs, labelled: {labelled}"));
        let mut node = gpu_node(&name, gpus);
        let gpus = i64::from(gpus);
        let has = if labelled {
            node["metadata"]["labels"]["tier"] = json!("gold");
            Nodes { labelled: gpus, plain: 0 }
        } else {
            Nodes { labelled: 0, plain: gpus }
        };
        let Nodes { labelled, plain } = self.truth.workers[which].nodes();
        let now = Nodes { labelled: labelled + has.labelled, plain: plain + has.plain };
        self.truth.workers[which].has_nodes(now);
        self.stage.bed.workers[which].put(node).await.unwrap();
        self.nodes[which].push((name, has));
    }

    async fn removes_a_node(&mut self, which: usize) {
        if let Some((name, had)) = self.nodes[which].pop() {
            self.says(&format!("worker {which} loses {had:?}"));
            let Nodes { labelled, plain } = self.truth.workers[which].nodes();
            let now = Nodes { labelled: labelled - had.labelled, plain: plain - had.plain };
            self.truth.workers[which].has_nodes(now);
            self.stage.bed.workers[which].remove("Node", &name).await.unwrap();
        }
    }

    async fn kills(&mut self) {
        self.says("killed");
        self.stage.kill();
        tokio::time::sleep(Duration::from_millis(self.draw.u64(0..300))).await;
        self.stage.start();
    }

    fn forgets(&mut self) {
        let which = self.any();
        self.says(&format!("{} forgets what was", self.cluster(which).state.name));
        self.truth.allows(&self.stage.quota_writes());
        self.stage.mark();
        self.cluster(which).state.store.compact();
        self.cluster(which).state.faults.break_connections();
        self.stage.mark_anew();
    }

    fn refuses_a_kind(&mut self, which: usize) {
        let kind = self.draw.choice(KINDS).expect("there are kinds");
        self.says(&format!("worker {which} refuses {kind}"));
        let worker = &self.stage.bed.workers[which];
        wrong(worker, &format!("list {kind}: forbidden; watch {kind}: forbidden"));
        worker.state.faults.break_connections();
    }

    fn refuses_writes_on_the_hub(&self) {
        self.says("the hub refuses quota");
        wrong(self.stage.hub(), "patch clusterqueues: forbidden; update clusterqueues: forbidden");
    }

    /// What was in force stays so: the last valid text, or an earlier one if that one was not read.
    async fn breaks_a_claim(&mut self, which: usize) {
        self.says(&format!("the claim of worker {which} becomes invalid"));
        self.texts[which].forget_earlier(&self.claim(which));
        self.invalid[which] = true;
        let mut twice = assignments([1, 1]);
        // One resource by two names.
        twice[0]["resources"][GPU] = json!("7");
        let patch = json!({"spec": {"resourceAssignments": twice}});
        let name = claim_name(&self.stage.bed.workers[which]);
        merged(self.stage.hub(), "ClusterResourceClaim", &name, patch).await;
    }

    /// The younger claim of a cluster is never in force, and of two of the same second the one that was in force stays.
    async fn claims_twice(&mut self, which: usize) {
        let (hub, name) = (self.stage.hub(), SECOND[which]);
        if self.second_claim[which] {
            hub.remove("ClusterResourceClaim", name).await.unwrap();
            self.stage.more_claims.retain(|more| *more != name);
        } else {
            let second = json!({
                "apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterResourceClaim",
                "metadata": {"name": name},
                "spec": {
                    "clusterName": self.stage.bed.workers[which].state.name, "resourceAssignments": assignments([9, 1]),
                },
            });
            if self.draw.bool() {
                self.says("in the same second as the first");
                let first = self.claim(which)["metadata"]["creationTimestamp"].clone();
                let first: jiff::Timestamp = first.as_str().expect("a time").parse().unwrap();
                // The hub's clock makes what two people at once would.
                let back = first.duration_since(hub.state.now());
                hub.state.jump(back);
                let done = hub.put(second).await;
                hub.state.jump(-back);
                done.unwrap();
            } else {
                hub.put(second).await.unwrap();
            }
            self.stage.more_claims.push(name);
        }
        self.second_claim[which] = !self.second_claim[which];
        self.says(&format!("a second claim of worker {which} is there: {}", self.second_claim[which]));
    }

    async fn reports_otherwise(&mut self) {
        let gpus = self.draw.i64(0..6);
        self.says(&format!("the cluster that reports says it has {gpus}"));
        self.truth.reported.has_nodes(Nodes { labelled: gpus, plain: 0 });
        self.stage.beside = [5, 5];
        let status = report(gpus)["status"].clone();
        self.stage.hub().set_status("ClusterMetrics", "far", status).await.unwrap();
    }

    /// Some nodes lack the second label. The hub's flavor is everybody's in the end, an edit of a worker's own one is undone.
    async fn edits_a_flavor(&mut self) {
        let (which, more) = (self.any(), self.draw.bool());
        self.says(&format!("the flavor on {} names a second label: {more}", self.cluster(which).state.name));
        let tier = if more { json!("gold") } else { Value::Null };
        let patch = json!({"spec": {"nodeLabels": {"tier": tier}}});
        if self.cluster(which).get("ResourceFlavor", "", FLAVOR).is_none() {
            return;
        }
        let lasts = goes_by_label(self.stage.hub());
        for truth in &mut self.truth.workers {
            truth.goes_by_label(more);
            truth.goes_by_label(if which == 0 { more } else { lasts });
        }
        merged(self.cluster(which), "ResourceFlavor", FLAVOR, patch).await;
    }

    /// On quota of either queue of a worker. What is pending there waits for quota.
    async fn submits_or_ends(&mut self, which: usize, step: usize) {
        if self.draw.u8(0..3) == 0 {
            if let Some(workload) = self.workloads[which].pop() {
                self.says(&format!("on worker {which} ends {workload:?}"));
                workload.end(&self.stage.bed.workers[which]).await;
            }
        } else if self.truth.workers[which].is_joined() {
            let (queue, gpus) = (self.draw.usize(0..2), self.draw.i64(1..5));
            let workload = Workload { name: format!("work-{step}"), queue, gpus };
            self.says(&format!("to worker {which} goes {workload:?}"));
            workload.submit(&self.stage.bed.workers[which]).await;
            self.workloads[which].push(workload);
        }
    }

    async fn end_workloads(&mut self, which: usize) {
        for workload in self.workloads[which].drain(..) {
            workload.end(&self.stage.bed.workers[which]).await;
        }
    }

    /// What runs beyond a queue's share keeps other queues from theirs, until it ends.
    async fn ends_what_is_too_much(&mut self, which: usize) {
        let share = self.truth.workers[which].share();
        for (queue, share) in share.into_iter().enumerate() {
            let of_queue = |workload: &&Workload| workload.queue == queue;
            while share < self.workloads[which].iter().filter(of_queue).map(|workload| workload.gpus).sum() {
                let at = self.workloads[which].iter().position(|workload| of_queue(&workload));
                let workload = self.workloads[which].remove(at.expect("there is one"));
                self.says(&format!("on worker {which} ends {workload:?}, which is too much"));
                workload.end(&self.stage.bed.workers[which]).await;
            }
        }
    }

    async fn leaves_or_returns(&mut self, which: usize) {
        let joined = !self.truth.workers[which].is_joined();
        let worker = &self.stage.bed.workers[which];
        let name = worker.state.name.clone();
        self.says(&format!("{name} is joined: {joined}"));
        self.truth.workers[which].joins(joined);
        if joined {
            self.stage.bed.join_unseen(worker).await;
        } else {
            // It leaves once its queues are gone, so they have to be reached and be in nobody's use.
            self.lift();
            self.end_workloads(which).await;
            self.stage.leave(&format!("fedq-cluster-{name}")).await;
        }
    }

    async fn holds_or_lets_go(&mut self, queue: usize) {
        let held = !self.truth.is_held(queue);
        self.says(&format!("{} is on hold: {held}", QUEUES[queue]));
        self.truth.holds(queue, held);
        let policy = if held { "Hold" } else { "None" };
        merged(self.stage.hub(), "ClusterQueue", QUEUES[queue], json!({"spec": {"stopPolicy": policy}}))
            .await;
    }

    async fn joins_a_cohort(&mut self) {
        let cohorts = match self.draw.u8(0..3) {
            0 => [json!("org"), json!("org")],
            1 => SIBLINGS.map(|cohort| json!(cohort)),
            _ => [Value::Null, Value::Null],
        };
        self.says(&format!("the queues' cohorts are {cohorts:?}"));
        for (queue, cohort) in QUEUES.iter().zip(cohorts) {
            merged(self.stage.hub(), "ClusterQueue", queue, json!({"spec": {"cohortName": cohort}})).await;
        }
    }

    /// As a laptop that is closed for a moment.
    async fn is_suspended(&mut self) {
        self.says("suspended");
        let pid = self.stage.bed.pid().expect("fedqd runs");
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    }

    async fn starts_before_kueue_is_served(&mut self) {
        self.says("started before the hub serves Kueue's kinds");
        self.stage.kill();
        self.stage.hub().state.withhold(KUEUE_GROUP);
        self.stage.start();
        tokio::time::sleep(Duration::from_millis(self.draw.u64(500..3000))).await;
        self.stage.hub().state.install(KUEUE_GROUP);
    }

    async fn give_far(&self, amounts: Amounts) {
        let patch = json!({"spec": {"resourceAssignments": assignments(amounts)}});
        merged(self.stage.hub(), "ClusterResourceClaim", FAR, patch).await;
    }

    /// With nothing wrong any more, every queue comes to hold what it should.
    async fn settles(&mut self) {
        self.says("settles");
        self.lift();
        for which in [0, 1] {
            if self.invalid[which] && !self.texts[which].is_one() {
                let asks = self.texts[which].in_force(&self.stage, which).await;
                self.says(&format!("of worker {which} {asks:?} is in force"));
                self.truth.workers[which].asks(asks);
            }
            self.ends_what_is_too_much(which).await;
        }
        self.holds_what_is_true().await;
        // What was decided on before may still be on its way.
        self.stage.rests().await;
        self.holds_what_is_true().await;
        self.ignores_what_is_not_in_force().await;
        self.truth.allows(&self.stage.quota_writes());
        self.stage.mark();
        self.truth.settle();
    }

    async fn holds_what_is_true(&self) {
        for (which, truth) in self.truth.workers.iter().enumerate() {
            let worker = &self.stage.bed.workers[which];
            if truth.is_joined() {
                self.stage.has(worker, truth.share()).await;
                self.is_held_as_the_hub(worker).await;
                self.is_counted(which).await;
            }
        }
        let hub = self.stage.hub();
        let should = || {
            let [one, two] = &self.stage.bed.workers[..] else { unreachable!("there are two") };
            self.truth.hub([one, two].map(workloads::reserved))
        };
        let reached = until(&hub.state, WITHIN, |_| gpus(hub) == should().map(Some)).await;
        assert!(reached, "the hub has {:?}, not {:?}", gpus(hub), should());
    }

    /// Once both are told of, no edit of a flavor or of nodes is still on its way.
    async fn is_counted(&self, which: usize) {
        let worker = &self.stage.bed.workers[which];
        let name = &worker.state.name;
        let what = format!("the flavor on {name} to be the hub's");
        wait(&what, worker, || goes_by_label(worker) == goes_by_label(self.stage.hub())).await;
        if self.invalid[which] {
            return;
        }
        let gpus = self.truth.workers[which].usable() + FOREIGN;
        wait(&format!("the claim of {name} to tell of {gpus} GPUs"), self.stage.hub(), || {
            let claim = self.claim(which);
            let mut flavors = claim["status"]["flavors"].as_array().into_iter().flatten();
            let flavor = flavors.find(|flavor| flavor["name"] == FLAVOR);
            flavor.is_some_and(|flavor| flavor["capacity"]["gpu"].as_str() == Some(&gpus.to_string()))
        })
        .await;
    }

    /// And Kueue knows of it. A hold that is over there but not here would come to light among the next moves.
    async fn is_held_as_the_hub(&self, worker: &Cluster) {
        for (at, name) in QUEUES.iter().enumerate() {
            let what = format!("`{name}` on {} to be stopped as on the hub", worker.state.name);
            let held = self.truth.is_held(at);
            wait(&what, worker, || {
                let Some(queue) = worker.get("ClusterQueue", "", name) else { return false };
                let active = condition_of(&queue, "Active");
                (queue["spec"]["stopPolicy"] == "Hold") == held
                    && (active["status"] == "False") == held
                    && active["observedGeneration"] == queue["metadata"]["generation"]
            })
            .await;
        }
    }

    /// And says so.
    async fn ignores_what_is_not_in_force(&self) {
        let hub = self.stage.hub();
        let accepted = |name: &str| {
            let claim = hub.get("ClusterResourceClaim", "", name);
            claim.map_or(Value::Null, |claim| condition_of(&claim, "Accepted")["reason"].clone())
        };
        for (worker, invalid) in self.stage.bed.workers.iter().zip(self.invalid) {
            let reason = if invalid { "DuplicateResource" } else { "Accepted" };
            wait("the claim to say whether it is accepted", hub, || accepted(&claim_name(worker)) == reason)
                .await;
        }
        for (name, is_there) in SECOND.iter().zip(self.second_claim) {
            let told_off = || !is_there || accepted(name) == "ClusterAlreadyClaimed";
            wait("the second claim to be told off", hub, told_off).await;
        }
    }

    /// All that was changed is as at the beginning, and the quotas are such as both clusters can hold.
    async fn end(mut self) {
        self.lift();
        for which in [0, 1] {
            if self.second_claim[which] {
                self.claims_twice(which).await;
            }
            self.end_workloads(which).await;
        }
        for queue in QUEUES {
            let patch = json!({"spec": {"stopPolicy": "None", "cohortName": null}});
            merged(self.stage.hub(), "ClusterQueue", queue, patch).await;
        }
        for which in 0..3 {
            let patch = json!({"spec": {"nodeLabels": {"tier": null}}});
            if self.cluster(which).get("ResourceFlavor", "", FLAVOR).is_some() {
                merged(self.cluster(which), "ResourceFlavor", FLAVOR, patch).await;
            }
        }
        for truth in &mut self.truth.workers {
            truth.goes_by_label(false);
        }
        let amounts = [[5, 3], [2, 6]];
        for (which, asked) in amounts.into_iter().enumerate() {
            if !self.truth.workers[which].is_joined() {
                self.leaves_or_returns(which).await;
            }
            self.truth.workers[which].asks(asked);
            self.invalid[which] = false;
            self.stage.give(&self.stage.bed.workers[which], asked).await;
            self.truth.holds(which, false);
        }
        self.truth.reported.asks([0, 0]);
        self.give_far([0, 0]).await;
        self.settles().await;
        let hub = self.stage.hub();
        hub.remove("ClusterMetrics", "far").await.unwrap();
        // While it is thought to report, it is given another claim.
        self.stage.logs("`far` left").await;
        hub.remove("ClusterResourceClaim", FAR).await.unwrap();
        wait("the claim to be gone", hub, || hub.get("ClusterResourceClaim", "", FAR).is_none()).await;
        self.stage.more_claims.clear();
        self.stage.beside = [0, 0];
        self.stage.ends_with(amounts).await;
    }
}

/// Whether its flavor names the label that some nodes lack.
fn goes_by_label(cluster: &Cluster) -> bool {
    let flavor = cluster.get("ResourceFlavor", "", FLAVOR);
    flavor.is_some_and(|flavor| flavor["spec"]["nodeLabels"]["tier"] == "gold")
}

/// What a cluster that the hub cannot reach says of itself.
fn report(gpus: i64) -> Value {
    json!({
        "apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterMetrics", "metadata": {"name": "far"},
        "status": {"nodes": [{
            "name": "a", "labels": {"accelerator": "h100", "tier": "gold"},
            "allocatableResources": {GPU: gpus.to_string(), "cpu": "64"},
        }]},
    })
}
