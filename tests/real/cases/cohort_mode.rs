//! Whether Kueue treats a queue whose quota stands in a Cohort of its own as one that has it itself: the same story for
//! twins, of which one is an ordinary ClusterQueue, side by side in one Kueue.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};

use super::stage::{Assign, FEDQD, GPU, KUEUE, SOON, Stage, ground, holds, job, nominal, queue, same};
use crate::support::cluster::{Cluster, Part, id};
use crate::support::fleet::Fleet;
use crate::support::nodes::{CASE_LABEL, node};
use crate::support::wait::{Seen, eventually, throughout};

/// Of the flavors and nodes.
const CASE: &str = "twins";
/// Of the flavor whose nodes have a topology.
const PLACED: &str = "placed";
/// The story with fedq.
const GIT: &str = "from-git";
/// What Kueue is asked for at once.
const AT_ONCE: usize = 6;
const CPU: &str = "cpu";
/// What Kueue decides, it decides within a moment; what it does not do is not done later either.
const QUIET: Duration = Duration::from_secs(2);

/// Where a twin's quota stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quota {
    InQueue,
    InCohort,
}

#[derive(Clone, Copy, Debug)]
enum Who {
    Mine,
    Neighbour,
    /// Has quota, and nothing that asks for it.
    Idle,
}

enum Step {
    Submit(Who, usize, Priority),
    /// To this nominal quota.
    Shrink(u32),
    /// So many Jobs run, of low and of high priority; the same for both twins.
    Runs(Who, usize, usize),
    /// The twins differ: so many run where the quota is the queue's, and so many where it is the Cohort's.
    Differs(Who, (usize, usize), (usize, usize)),
    /// What my queue uses of the first and of the second flavor.
    Uses(u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Priority {
    Low,
    High,
}

/// A story and what is particular about its queue.
struct Row {
    name: &'static str,
    /// Whether there is a cohort with a neighbour who has 10 as well.
    neighbour: bool,
    idle: bool,
    /// `borrowingLimit` or `lendingLimit` of my quota.
    limit: &'static str,
    /// Nominal quota of each flavor.
    quota: &'static [u32],
    /// Further fields of my queue's spec.
    more: &'static str,
    reclaim: &'static str,
    /// Of fair sharing.
    weight: Option<u32>,
    /// Whether all pods of a Job have to be in one place.
    placed: bool,
    story: Vec<Step>,
}

impl Row {
    fn new(name: &'static str, story: Vec<Step>) -> Self {
        Self {
            name,
            neighbour: true,
            idle: false,
            limit: "",
            quota: &[4],
            more: "",
            reclaim: "Any",
            weight: None,
            placed: false,
            story,
        }
    }

    fn queue(&self, quota: Quota, who: Who) -> String {
        let twin = if quota == Quota::InQueue { "q" } else { "c" };
        let who = match who {
            Who::Mine => "mine",
            Who::Neighbour => "neighbour",
            Who::Idle => "idle",
        };
        format!("{}-{twin}-{who}", self.name)
    }

    fn cohort(&self, quota: Quota) -> String {
        format!("fedq-{}", self.queue(quota, Who::Mine))
    }

    fn groups(&self, nominal: impl Fn(u32) -> u32, limit: &str) -> String {
        let mut groups = format!("  resourceGroups:\n  - coveredResources: [{CPU}]\n    flavors:\n");
        let flavor = if self.placed { PLACED } else { CASE };
        for (n, quota) in self.quota.iter().enumerate() {
            let quota = nominal(*quota);
            let _ = writeln!(
                groups,
                "    - {{name: {flavor}-{n}, resources: [{{name: {CPU}, nominalQuota: {quota}{limit}}}]}}"
            );
        }
        groups
    }

    fn mine(&self, quota: Quota, nominal: impl Fn(u32) -> u32 + Copy) -> String {
        let name = self.queue(quota, Who::Mine);
        let org = format!("{name}-org");
        let weight = self.weight.map(|weight| format!("  fairSharing: {{weight: {weight}}}\n"));
        let weight = weight.unwrap_or_default();
        let limit = if self.limit.is_empty() { String::new() } else { format!(", {}", self.limit) };
        let within = "withinClusterQueue: LowerPriority";
        let reclaim = self.reclaim;
        let queue = |cohort: &str, preemption: &str, rest: &str| {
            let more = self.more;
            format!(
                "apiVersion: {KUEUE}\nkind: ClusterQueue\nmetadata: {{name: {name}}}\nspec:\n  namespaceSelector: {{}}\n\
                 {cohort}  preemption: {{{within}, reclaimWithinCohort: {reclaim}{preemption}}}\n{more}{rest}---\n\
                 {}",
                local_queue(&name, &name)
            )
        };
        match quota {
            Quota::InQueue => {
                let cohort = if self.neighbour { format!("  cohortName: {org}\n") } else { String::new() };
                queue(&cohort, "", &format!("{weight}{}", self.groups(nominal, &limit)))
            }
            Quota::InCohort => {
                let own = self.cohort(quota);
                let parent = if self.neighbour { format!("  parentName: {org}\n") } else { String::new() };
                // Kueue looks for Jobs of the queue's own to preempt only where it may preempt while borrowing, and all
                // that this queue uses is borrowed. With the lowest threshold there is, nobody else's are preempted so.
                let borrow = if reclaim == "Never" {
                    ""
                } else {
                    ", borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: -2147483648}"
                };
                let queue = queue(&format!("  cohortName: {own}\n"), borrow, &self.groups(|_| 0, ""));
                format!(
                    "{queue}---\napiVersion: {KUEUE}\nkind: Cohort\nmetadata: {{name: {own}}}\nspec:\n{parent}{weight}{}",
                    self.groups(nominal, &limit)
                )
            }
        }
    }

    fn other(&self, quota: Quota, who: Who) -> String {
        let name = self.queue(quota, who);
        let org = format!("{}-org", self.queue(quota, Who::Mine));
        format!(
            "apiVersion: {KUEUE}\nkind: ClusterQueue\nmetadata: {{name: {name}}}\nspec:\n  namespaceSelector: {{}}\n  \
             cohortName: {org}\n  preemption: {{withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}}\n{}---\n{}",
            self.groups(|quota| quota, ""),
            local_queue(&self.queue(quota, Who::Mine), &name)
        )
    }

    async fn play(&self, cluster: &Cluster, quota: Quota) -> Result<()> {
        let namespace = self.queue(quota, Who::Mine);
        cluster
            .apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}"))
            .await?;
        cluster.apply(&self.mine(quota, |quota| quota)).await?;
        if self.neighbour {
            cluster.apply(&self.other(quota, Who::Neighbour)).await?;
        }
        if self.idle {
            cluster.apply(&self.other(quota, Who::Idle)).await?;
        }
        let mut jobs = 0;
        for (n, step) in self.story.iter().enumerate() {
            let said = format!("{} with its quota {quota:?}, step {n}", self.name);
            match step {
                Step::Submit(who, count, priority) => {
                    for _ in 0..*count {
                        jobs += 1;
                        self.submit(cluster, (quota, *who), jobs, *priority).await.context(said.clone())?;
                    }
                }
                Step::Shrink(to) => self.shrink(cluster, quota, *to).await.context(said)?,
                Step::Runs(who, low, high) => {
                    self.runs(cluster, quota, *who, (*low, *high)).await.context(said)?;
                }
                Step::Differs(who, in_queue, in_cohort) => {
                    let want = if quota == Quota::InQueue { *in_queue } else { *in_cohort };
                    self.runs(cluster, quota, *who, want).await.context(said)?;
                }
                Step::Uses(one, two) => self.uses(cluster, quota, (*one, *two)).await.context(said)?,
            }
        }
        Ok(())
    }

    async fn submit(
        &self,
        cluster: &Cluster,
        (quota, who): (Quota, Who),
        number: usize,
        priority: Priority,
    ) -> Result<()> {
        let queue = self.queue(quota, who);
        let mut job =
            job(&self.queue(quota, Who::Mine), &format!("{queue}-{number}"), &queue, &[(CPU, "1")], "1h");
        let class = if priority == Priority::Low { "twins-low" } else { "twins-high" };
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
        job["metadata"]["labels"]["twins"] = json!(queue);
        if self.placed {
            let annotations = &mut job["spec"]["template"]["metadata"]["annotations"];
            annotations["kueue.x-k8s.io/podset-required-topology"] = json!(CASE_LABEL);
        }
        cluster.apply_object("fedq-test", job).await?;
        Ok(())
    }

    async fn shrink(&self, cluster: &Cluster, quota: Quota, to: u32) -> Result<()> {
        let (kind, name) = match quota {
            Quota::InQueue => ("ClusterQueue", self.queue(quota, Who::Mine)),
            Quota::InCohort => ("Cohort", self.cohort(quota)),
        };
        let object = cluster.get(id(KUEUE, kind, &name)).await?.context("made before")?;
        let mut groups = object["spec"]["resourceGroups"].clone();
        groups[0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(to.to_string());
        let patch = json!({"spec": {"resourceGroups": groups}});
        cluster.merge(id(KUEUE, kind, &name), Part::Whole, patch).await
    }

    async fn runs(&self, cluster: &Cluster, quota: Quota, who: Who, want: (usize, usize)) -> Result<()> {
        let queue = self.queue(quota, who);
        let look = async || {
            let jobs = cluster.list("batch/v1", "Job", Some(&self.queue(quota, Who::Mine))).await?;
            let runs = |job: &&Value, class: &str| {
                let labels = &job["metadata"]["labels"];
                labels["twins"] == *queue
                    && labels["kueue.x-k8s.io/priority-class"] == class
                    && job["spec"]["suspend"] == false
            };
            let count = |class: &str| jobs.iter().filter(|job| runs(job, class)).count();
            let found = (count("twins-low"), count("twins-high"));
            if found == want {
                return anyhow::Ok(Seen::Done(()));
            }
            // Kueue's word on one that waits.
            let workloads = cluster.list(KUEUE, "Workload", Some(&self.queue(quota, Who::Mine))).await?;
            let waits = workloads.iter().find(|one| one["status"]["admission"].is_null());
            let why = waits.map(|one| one["status"]["conditions"].to_string()).unwrap_or_default();
            Ok(Seen::Still(format!("{queue} runs {found:?}, not {want:?}: {why}")))
        };
        eventually(&format!("{queue} to run {want:?}"), SOON, look).await?;
        throughout(&format!("{queue} runs {want:?}"), QUIET, look).await
    }

    async fn uses(&self, cluster: &Cluster, quota: Quota, (one, two): (u32, u32)) -> Result<()> {
        let queue = self.queue(quota, Who::Mine);
        let want = [one, two].map(|count| count.to_string());
        eventually(&format!("{queue} to use {want:?}"), SOON, async || {
            let object = cluster.get(id(KUEUE, "ClusterQueue", &queue)).await?.context("made before")?;
            let used = ["twins-0", "twins-1"].map(|flavor| super::stage::reserved(&object, flavor, CPU));
            Ok(Seen::when(used == want, || format!("{used:?}")))
        })
        .await
    }
}

fn local_queue(namespace: &str, queue: &str) -> String {
    format!(
        "apiVersion: {KUEUE}\nkind: LocalQueue\nmetadata: {{name: {queue}, namespace: {namespace}}}\n\
         spec: {{clusterQueue: {queue}}}\n"
    )
}

async fn common_ground(cluster: &Cluster) -> Result<()> {
    let mut text = String::new();
    for flavor in 0..2 {
        let _ = write!(
            text,
            "---\napiVersion: {KUEUE}\nkind: ResourceFlavor\nmetadata: {{name: twins-{flavor}}}\n"
        );
    }
    for (name, value) in [("twins-low", 1), ("twins-high", 1000)] {
        let _ = write!(
            text,
            "---\napiVersion: {KUEUE}\nkind: WorkloadPriorityClass\nmetadata: {{name: {name}}}\nvalue: {value}\n"
        );
    }
    let _ = write!(
        text,
        "---\napiVersion: {KUEUE}\nkind: Topology\nmetadata: {{name: {CASE}}}\nspec: {{levels: [{{nodeLabel: {CASE_LABEL}}}]}}\n\
         ---\napiVersion: {KUEUE}\nkind: ResourceFlavor\nmetadata: {{name: {PLACED}-0}}\n\
         spec: {{nodeLabels: {{{CASE_LABEL}: {CASE}}}, topologyName: {CASE}}}\n"
    );
    cluster.apply(&text).await?;
    cluster.add_nodes(&[node(CASE, "a").allocatable(CPU, "1000").allocatable("pods", "1000")]).await
}

async fn compare(cluster: &Cluster, rows: Vec<Row>) -> Result<()> {
    common_ground(cluster).await?;
    let plays = rows.iter().flat_map(|row| {
        [Quota::InQueue, Quota::InCohort].map(|quota| async move {
            row.play(cluster, quota).await.err().map(|error| format!("{error:#}"))
        })
    });
    let failures: Vec<Option<String>> = stream::iter(plays).buffer_unordered(AT_ONCE).collect().await;
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// Both use all that they have; then my queue is asked for more, which matters more.
fn full_and_then(mine: Step) -> Vec<Step> {
    use Priority::{High, Low};
    use Step::{Runs, Submit};
    use Who::{Mine, Neighbour};
    vec![
        Submit(Mine, 4, Low),
        Submit(Neighbour, 4, Low),
        Runs(Mine, 4, 0),
        Runs(Neighbour, 4, 0),
        Submit(Mine, 2, High),
        mine,
        Runs(Neighbour, 4, 0),
    ]
}

fn of_one_flavor() -> Vec<Row> {
    use Priority::{High, Low};
    use Step::{Runs, Shrink, Submit};
    use Who::{Mine, Neighbour};
    let alone = |name, story| Row { neighbour: false, ..Row::new(name, story) };
    vec![
        alone("alone", vec![Submit(Mine, 5, Low), Runs(Mine, 4, 0)]),
        alone(
            "shrinks",
            vec![Submit(Mine, 4, Low), Runs(Mine, 4, 0), Shrink(2), Submit(Mine, 1, Low), Runs(Mine, 4, 0)],
        ),
        alone(
            "preempts",
            vec![Submit(Mine, 5, Low), Runs(Mine, 4, 0), Submit(Mine, 2, High), Runs(Mine, 2, 2)],
        ),
        Row::new(
            "borrows",
            vec![
                Submit(Mine, 6, Low),
                Runs(Mine, 6, 0),
                Submit(Neighbour, 3, Low),
                Runs(Neighbour, 3, 0),
                Runs(Mine, 5, 0),
            ],
        ),
        Row::new(
            "reclaims",
            vec![
                Submit(Neighbour, 6, High),
                Runs(Neighbour, 0, 6),
                Submit(Mine, 3, Low),
                Runs(Mine, 3, 0),
                Runs(Neighbour, 0, 5),
            ],
        ),
        Row::new("preempts-own", full_and_then(Runs(Mine, 2, 2))),
        Row::new(
            "preempts-borrowing",
            vec![
                Submit(Mine, 6, Low),
                Runs(Mine, 6, 0),
                Submit(Neighbour, 2, Low),
                Runs(Neighbour, 2, 0),
                Submit(Mine, 2, High),
                Runs(Mine, 4, 2),
                Runs(Neighbour, 2, 0),
            ],
        ),
        Row {
            limit: "borrowingLimit: 1",
            ..Row::new("limited", vec![Submit(Mine, 6, Low), Runs(Mine, 5, 0)])
        },
        Row {
            limit: "lendingLimit: 1",
            ..Row::new(
                "lends",
                vec![
                    Submit(Neighbour, 6, Low),
                    Runs(Neighbour, 5, 0),
                    Submit(Mine, 4, Low),
                    Runs(Mine, 4, 0),
                    Runs(Neighbour, 4, 0),
                ],
            )
        },
    ]
}

fn of_flavors_and_policies() -> Vec<Row> {
    use Priority::Low;
    use Step::{Differs, Runs, Submit, Uses};
    use Who::{Mine, Neighbour};
    let flavors = |name, more, story| Row { quota: &[2, 3], more, ..Row::new(name, story) };
    vec![
        flavors(
            "next",
            "  flavorFungibility: {whenCanBorrow: TryNextFlavor, whenCanPreempt: TryNextFlavor}\n",
            vec![
                Submit(Mine, 4, Low),
                Runs(Mine, 4, 0),
                Uses(2, 2),
                Submit(Mine, 2, Low),
                Runs(Mine, 6, 0),
                Uses(3, 3),
            ],
        ),
        Row {
            placed: true,
            ..Row::new(
                "topology",
                vec![
                    Submit(Mine, 6, Low),
                    Runs(Mine, 6, 0),
                    Submit(Neighbour, 3, Low),
                    Runs(Neighbour, 3, 0),
                    Runs(Mine, 5, 0),
                ],
            )
        },
        flavors("first", "", vec![Submit(Mine, 3, Low), Runs(Mine, 3, 0), Uses(3, 0)]),
        Row { reclaim: "Never", ..Row::new("keeps-off", full_and_then(Differs(Mine, (2, 2), (4, 0)))) },
    ]
}

pub async fn a_cohorts_quota_is_used_as_its_queues_own(fleet: &Fleet) -> Result<()> {
    let rows = of_one_flavor().into_iter().chain(of_flavors_and_policies());
    compare(&fleet.hub, rows.collect()).await
}

pub async fn fair_sharing_weighs_a_cohort_as_its_queue(fleet: &Fleet) -> Result<()> {
    use Priority::{High, Low};
    use Step::{Runs, Submit};
    use Who::{Mine, Neighbour};
    let shared = |mine, neighbours| {
        vec![
            Submit(Mine, 10, Low),
            Runs(Mine, 10, 0),
            Submit(Neighbour, 8, Low),
            Runs(Neighbour, neighbours, 0),
            Runs(Mine, mine, 0),
        ]
    };
    let rows = vec![
        Row { idle: true, ..Row::new("shares", shared(6, 6)) },
        Row { idle: true, weight: Some(3), ..Row::new("weighs", shared(7, 5)) },
        Row::new("preempts-own", full_and_then(Runs(Mine, 2, 2))),
        Row::new(
            "reclaims",
            vec![
                Submit(Neighbour, 6, High),
                Runs(Neighbour, 0, 6),
                Submit(Mine, 3, Low),
                Runs(Mine, 3, 0),
                Runs(Neighbour, 0, 5),
            ],
        ),
    ];
    let cluster = fleet.another(crate::support::kueue::FAIR).await?;
    compare(&cluster, rows).await
}

/// The ClusterQueue as Git has it: no number in it ever changes.
fn in_git(strategy: &str) -> String {
    let more = format!(
        "  cohortName: fedq-{GIT}\n  queueingStrategy: {strategy}\n  admissionChecksStrategy: {{admissionChecks: [{{name: {GIT}}}]}}"
    );
    let metadata = format!(
        "metadata: {{name: {GIT}, annotations: {{fedq.dev/quota-into: cohort}}}}\nspec:\n  namespaceSelector"
    );
    queue(GIT, GIT, &[(GPU, "0")], &more).replacen(
        &format!("metadata: {{name: {GIT}}}\nspec:\n  namespaceSelector"),
        &metadata,
        1,
    )
}

pub async fn a_queue_from_git_dispatches_what_its_cohort_has(fleet: &Fleet) -> Result<()> {
    let stage = Stage::set(fleet, "a_queue_from_git_dispatches_what_its_cohort_has", GIT).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    worker.add_nodes(&[node(GIT, "a").gpus(8)]).await?;
    hub.apply(&ground(GIT)).await?;
    super::bed::join(hub, GIT, fleet).await?;
    let before = hub.mark()?;
    hub.apply_as("git-engine", &in_git("BestEffortFIFO")).await?;
    let cluster = format!("{GIT}-{}", worker.name);
    stage.join(&cluster, worker).await?;
    let give = async |gpus: &str| {
        stage.assign(&cluster, &[Assign { queue: GIT, flavor: GIT, resources: &[("gpu", gpus)] }]).await?;
        let has = |object: &Value| nominal(object, GIT, GPU).is_some_and(|now| same(&now, gpus));
        hub.wait(id(KUEUE, "Cohort", &format!("fedq-{GIT}")), &format!("{gpus} GPUs"), SOON, has).await?;
        holds(worker, GIT, GIT, &[(GPU, gpus)]).await
    };
    give("4").await?;
    stage.claim_says(&cluster, "Ready", "True", "Ready").await?;
    for name in ["one", "two", "three"] {
        hub.apply_object("fedq-test", job(GIT, name, GIT, &[(GPU, "2")], "1h")).await?;
    }
    let admitted = async |count: u64| {
        let is = |object: &Value| object["status"]["admittedWorkloads"] == count;
        hub.wait(id(KUEUE, "ClusterQueue", GIT), &format!("{count} Jobs dispatched"), SOON, is).await?;
        throughout("no more of them", QUIET, async || {
            let object = hub.get(id(KUEUE, "ClusterQueue", GIT)).await?.context("made before")?;
            Ok(Seen::when(is(&object), || object["status"].to_string()))
        })
        .await
    };
    admitted(2).await?;

    // The engine puts everything back to what Git says, and changes another field.
    for _ in 0..3 {
        hub.apply_as("git-engine", &in_git("StrictFIFO")).await?;
    }
    let copied = |object: &Value| object["spec"]["queueingStrategy"] == "StrictFIFO";
    worker.wait(id(KUEUE, "ClusterQueue", GIT), "the policy from Git", SOON, copied).await?;
    admitted(2).await?;
    give("6").await?;
    admitted(3).await?;
    stage.rest().await?;
    let marks = stage.marks()?;
    let versions = async || {
        let queue = hub.get(id(KUEUE, "ClusterQueue", GIT)).await?.context("made before")?;
        anyhow::Ok(queue["metadata"]["generation"].clone())
    };
    let generation = versions().await?;
    for _ in 0..3 {
        hub.apply_as("git-engine", &in_git("StrictFIFO")).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    ensure!(versions().await? == generation, "the engine had something to put back");
    ensure!(stage.writes_since(&marks).await?.is_empty(), "fedq has nothing to say to that");
    let writes = hub.writes_since(before, FEDQD).await?;
    let to_queues: Vec<_> = writes.iter().filter(|one| one.resource.starts_with("clusterqueues")).collect();
    ensure!(to_queues.is_empty(), "Git is the queue's only writer: {to_queues:#?}");

    hub.delete(id(KUEUE, "ClusterQueue", GIT)).await?;
    for name in ["one", "two", "three"] {
        hub.delete(super::stage::job_id(GIT, name)).await?;
    }
    hub.wait_gone(id(KUEUE, "Cohort", &format!("fedq-{GIT}")), SOON).await
}
