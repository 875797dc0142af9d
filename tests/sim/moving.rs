//! `fedq kueue move workload --to-cluster`, ended at each of its writes: the job is on one cluster or the other, never lost, never
//! twice, and the same command again ends the move.

use std::ffi::OsString;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fedq_k8s::client::{ClientLimits, connect};
use fedq_k8s::kubeconfig::{Rules, check};
use fedq_kueuectl::{Called, Client, Fleet, Later, Place, Tell, World, run};
use fedq_sim::api::{Internal, write_internally};
use fedq_sim::cluster::{Cluster, Options};
use fedq_sim::kind::Kind;
use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::bed::{KUEUE, gpu_node, wait};

const LABEL: &str = "kueue.x-k8s.io/queue-name";
/// The queue of a copy that is not to start yet.
const NOWHERE: &str = "not-yet.fedq.dev";

/// Which write ends the command, and whether the server has carried it out by then.
#[derive(Clone, Copy, Debug)]
struct Kill {
    write: usize,
    sent: bool,
}

/// A write that the server carries out, and of which the answer gets lost on the way.
const LOST: &str = "no answer within 10 s";

/// Two clusters, and a command that is watched while it works on them.
struct Two {
    clusters: [Arc<Cluster>; 2],
    /// The write of the next command of which the answer is lost.
    unanswered: Option<usize>,
    watched: Arc<Watched>,
}

struct Watched {
    /// The job that is moved.
    job: String,
    kill: Option<Kill>,
    /// Whether whoever asks may not list Jobs.
    lists_nothing: bool,
    /// The write of which the answer is lost.
    unanswered: Option<usize>,
    writes: AtomicUsize,
    killed: Notify,
    /// What was wrong after some request.
    wrong: Mutex<Vec<String>>,
}

impl Watched {
    fn new(job: &str, kill: Option<Kill>, unanswered: Option<usize>) -> Arc<Self> {
        let (writes, killed, wrong) = (AtomicUsize::new(0), Notify::new(), Mutex::default());
        Arc::new(Self {
            job: job.to_owned(),
            kill,
            lists_nothing: job == "unlisted",
            unanswered,
            writes,
            killed,
            wrong,
        })
    }

    /// Never answers where it is the one.
    async fn passes(&self, number: usize, sent: bool) {
        if self.kill.is_some_and(|kill| kill.write == number && kill.sent == sent) {
            self.killed.notify_one();
            std::future::pending::<()>().await;
        }
    }

    fn look(&self, clusters: &[Arc<Cluster>; 2]) {
        let jobs = clusters.each_ref().map(|cluster| cluster.get("Job", "team", &self.job));
        let [here, there] = &jobs;
        let mut wrong = self.wrong.lock().unwrap();
        if self.job != "elsewhere" && here.is_none() && there.is_none() {
            wrong.push("the job is lost".to_owned());
        }
        let stays = here.as_ref().is_some_and(|job| job["metadata"]["deletionTimestamp"].is_null());
        let queued = |job: &Arc<Value>| {
            job["metadata"]["labels"][LABEL].as_str().is_some_and(|queue| queue != NOWHERE)
        };
        if stays && there.as_ref().is_some_and(queued) {
            wrong.push(format!("the job is in two queues: {jobs:?}"));
        }
        let runs = |cluster: &Arc<Cluster>| {
            let of_job = |pod: &&Arc<Value>| {
                pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == self.job.as_str()
                    && pod["status"]["phase"] == "Running"
            };
            cluster.list("Pod").iter().any(|pod| of_job(&pod))
        };
        if clusters.iter().all(runs) {
            wrong.push("the job runs twice".to_owned());
        }
    }
}

/// As an API server refuses.
fn refused(code: u16, reason: &str, message: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "code": code, "reason": reason, "message": message});
    let answer = Response::builder().status(code).header("content-type", "application/json");
    answer.body(Body::from(status.to_string().into_bytes())).unwrap()
}

impl Fleet for Two {
    fn names(&self) -> Later<'_, Result<Vec<String>, String>> {
        Box::pin(async { Ok(self.clusters.iter().map(|cluster| cluster.state.name.clone()).collect()) })
    }

    fn connect(&self, place: &Place) -> Result<(Client, String), String> {
        let name = match place {
            Place::Hub => "east",
            Place::Cluster(name) => name,
        };
        let cluster =
            self.clusters.iter().find(|cluster| cluster.state.name == name).ok_or("no such cluster")?;
        let kubeconfig = cluster.kubeconfig("ann", &["system:masters"]);
        let rules = Rules { allow_loopback: true, ..Rules::default() };
        let checked = check(kubeconfig.as_bytes(), None, &rules).unwrap();
        let client = connect(&checked, &ClientLimits::default()).unwrap().kube();
        let (watched, clusters) = (Arc::clone(&self.watched), self.clusters.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, watched, clusters) = (client.clone(), Arc::clone(&watched), clusters.clone());
            async move {
                let number = match *request.method() {
                    // What reads leaves everything as the write before it did.
                    Method::GET => 0,
                    _ => watched.writes.fetch_add(1, Ordering::SeqCst) + 1,
                };
                watched.passes(number, false).await;
                if watched.lists_nothing && request.uri().path().ends_with("/jobs") {
                    return Ok(refused(403, "Forbidden", "jobs is forbidden"));
                }
                let answer = client.send(request).await;
                watched.look(&clusters);
                watched.passes(number, true).await;
                if number != 0 && watched.unanswered == Some(number) {
                    return Ok(refused(504, "Timeout", LOST));
                }
                answer
            }
        });
        Ok((Client::new(service, "default"), cluster.url()))
    }

    fn followed<'a>(&'a self, _: &'a [&'a str], _: &'a str, _: &'a mut Tell<'a>) -> Later<'a, ()> {
        Box::pin(async {})
    }

    fn kubeconfig(&self, _: &Place) -> Result<String, String> {
        Err("none".to_owned())
    }
}

impl Two {
    /// One where nothing waits but what asks for more than one CPU, and one with room.
    async fn start() -> Self {
        let mut clusters = Vec::new();
        for (name, queue, cpus) in [("east", "research", "1"), ("west", "vision", "8")] {
            let cluster = Cluster::start(Options::named(name)).await.unwrap();
            cluster.put(gpu_node("a", 8)).await.unwrap();
            let cell = json!({"name": "cpu", "nominalQuota": cpus});
            let group =
                json!({"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": [cell]}]});
            for object in [
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}),
                json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {}}),
                json!({
                    "apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "all"},
                    "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
                }),
                json!({
                    "apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": queue, "namespace": "team"},
                    "spec": {"clusterQueue": "all"},
                }),
            ] {
                cluster.put(object).await.unwrap();
            }
            clusters.push(Arc::new(cluster));
        }
        let clusters = clusters.try_into().unwrap_or_else(|_| unreachable!("two were started"));
        Self { clusters, unanswered: None, watched: Watched::new("", None, None) }
    }

    fn here(&self) -> &Cluster {
        &self.clusters[0]
    }

    fn there(&self) -> &Cluster {
        &self.clusters[1]
    }

    /// Its workload's name, once it waits or runs.
    async fn submit(&self, name: &str, cpus: u32) -> String {
        let container =
            json!({"name": "main", "image": "x", "resources": {"requests": {"cpu": cpus.to_string()}}});
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": name, "namespace": "team", "labels": {LABEL: "research", "own": "label"},
                "annotations": {"sim.fedq.dev/seconds": "3600"},
            },
            "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
        });
        self.here().put(job).await.unwrap();
        wait("the workload", self.here(), || {
            let found = workload(self.here(), name);
            found.is_some_and(|workload| cpus != 1 || has(&workload, "Admitted"))
        })
        .await;
        if cpus != 1 {
            // What its controller writes at first would come in between the move's reads and writes.
            wait("the job's status", self.here(), || {
                let job = self.here().get("Job", "team", name);
                job.is_some_and(|job| has(&job, "Suspended"))
            })
            .await;
        }
        let found = workload(self.here(), name).unwrap();
        found["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// What the command said, unless it was ended; nothing was wrong at any moment.
    async fn runs(&mut self, job: &str, line: &str, kill: Option<Kill>) -> Option<(String, String, u8)> {
        self.watched = Watched::new(job, kill, self.unanswered.take());
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut world = World {
            input: &mut io::empty(),
            output: &mut out,
            errors: &mut err,
            now: &|| "2026-01-01T12:00:00Z".parse().unwrap(),
            variables: &|_| None,
            replace: &|_, _, _| io::Error::other("no other program runs here"),
            run: &|_, _, _| Err(io::Error::other("no other program runs here")),
            terminal: false,
            interrupted: &|| Box::pin(std::future::pending()),
            fleet: Some(&*self),
            client: None,
        };
        let called = Called { name: "fedq kueue", arguments: &words, version: "v0" };
        let code = tokio::select! {
            biased;
            () = self.watched.killed.notified() => None,
            code = run(&called, &mut world) => Some(code),
        };
        let wrong = self.watched.wrong.lock().unwrap().join("\n");
        assert!(wrong.is_empty(), "{line} {kill:?}: {wrong}");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        code.map(|code| (text(out), text(err), code))
    }

    /// The command ends well, and the job is there alone, and runs.
    async fn moves(&mut self, job: &str, line: &str) {
        let (out, err, code) = self.runs(job, line, None).await.expect("nobody ends it");
        assert_eq!((out, code), (format!("job.batch/{job} moved\n"), 0), "{err}");
        self.has_moved(job).await;
    }

    /// It is there alone, and runs.
    async fn has_moved(&self, name: &str) {
        wait("the job to go", self.here(), || self.here().get("Job", "team", name).is_none()).await;
        wait("the job to run there", self.there(), || {
            let job = self.there().get("Job", "team", name);
            let ours = |job: &Arc<Value>| {
                let labels = &job["metadata"]["labels"];
                labels[LABEL] == "vision" && labels["own"] == "label" && job["spec"]["suspend"] == false
            };
            let admitted = |one: &Arc<Value>| has(one, "Admitted") && one["spec"]["queueName"] == "vision";
            job.is_some_and(|job| ours(&job))
                && workload(self.there(), name).is_some_and(|one| admitted(&one))
        })
        .await;
        wait("its workload to go", self.here(), || {
            workload(self.here(), name).is_none_or(|workload| has(&workload, "Finished"))
        })
        .await;
    }
}

fn workload(cluster: &Cluster, job: &str) -> Option<Arc<Value>> {
    let of_job = |workload: &Arc<Value>| workload["metadata"]["ownerReferences"][0]["name"] == job;
    cluster.list("Workload").into_iter().find(of_job)
}

fn has(workload: &Value, condition: &str) -> bool {
    let conditions = workload["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == condition && one["status"] == "True")
}

/// Ends it at each of its writes, on both sides; `resumed`: somebody lets the workload go on here after that.
async fn ended_all_along(two: &mut Two, (kind, cpus, resumed): (&str, u32, bool)) -> usize {
    let mut kills = 0;
    for write in 1.. {
        for sent in [false, true] {
            let kill = Kill { write, sent };
            let job = format!("{kind}-{write}-{sent}");
            let name = two.submit(&job, cpus).await;
            let restart = if cpus == 1 { " --restart" } else { "" };
            let line = format!(
                "move workload {name} -n team --cluster east --to-cluster west --to-queue vision{restart}"
            );
            let ended = two.runs(&job, &line, Some(kill)).await;
            if let Some((out, err, code)) = &ended {
                assert_eq!(*code, 0, "{out}{err}");
                assert_eq!(*out, format!("job.batch/{job} moved\n"));
            } else {
                kills += 1;
                if resumed && workload(two.here(), &job).is_some() {
                    two.here()
                        .merge_in("team", "Workload", &name, json!({"spec": {"active": true}}))
                        .await
                        .unwrap();
                }
                let (out, err, code) = two.runs(&job, &line, None).await.expect("nobody ends it");
                assert_eq!(code, 0, "after {kill:?}: {out}{err}");
            }
            two.has_moved(&job).await;
            // Done is done.
            let before = two.there().get("Job", "team", &job).unwrap();
            let (out, err, code) = two.runs(&job, &line, None).await.expect("nobody ends it");
            assert_eq!((out, code), (format!("job.batch/{job} unchanged\n"), 0), "{err}");
            let after = two.there().get("Job", "team", &job).unwrap();
            assert_eq!(before["metadata"]["labels"], after["metadata"]["labels"]);
            two.there().remove_in("team", "Job", &job).await.unwrap();
            if ended.is_some() {
                return kills;
            }
        }
    }
    unreachable!("it ends when a move does")
}

/// Held, copied, tried, noted, deleted, told to be let in, let in, let go: eight writes, each with two sides. One that somebody else was
/// faster than is written again.
const EACH: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_at_each_write_a_move_leaves_the_job_on_one_cluster_or_the_other() {
    let mut two = Two::start().await;
    assert!(EACH <= ended_all_along(&mut two, ("waits", 4, false)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_runs_is_moved_so_too_whoever_lets_it_go_on_in_between() {
    let mut two = Two::start().await;
    assert!(EACH <= ended_all_along(&mut two, ("runs", 1, true)).await);
}

/// The job's workload, and the command that moves it.
async fn begun(two: &mut Two, job: &str, write: usize) -> (String, String) {
    let name = two.submit(job, 4).await;
    let line = format!("move workload {name} -n team --cluster east --to-cluster west --to-queue vision");
    assert_eq!(two.runs(job, &line, Some(Kill { write, sent: true })).await, None);
    (name, line)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_ended_after_all_is_not_started_on_the_other_cluster() {
    let mut two = Two::start().await;
    let (_, line) = begun(&mut two, "ended", 4).await;
    let ended = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    let (job, at) = (Kind::named("Job").unwrap(), ("team".to_owned(), "ended".to_owned()));
    write_internally(&two.here().state, "admin", job, at, Internal::Status(ended)).await.unwrap();
    two.here().remove_in("team", "Job", "ended").await.unwrap();
    assert!(two.here().get("Job", "team", "ended").is_some(), "the move holds it");
    let (_, err, code) = two.runs("elsewhere", &line, None).await.expect("nobody ends it");
    assert!(code != 0 && err.contains("there is nothing to move"), "{err}");
    for cluster in [two.here(), two.there()] {
        assert!(cluster.get("Job", "team", "ended").is_none(), "and lets it go");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_ran_and_is_gone_is_not_made_again() {
    let mut two = Two::start().await;
    let (_, line) = begun(&mut two, "ran", 7).await;
    two.there().remove_in("team", "Job", "ran").await.unwrap();
    wait("the copy to be gone", two.there(), || two.there().get("Job", "team", "ran").is_none()).await;
    let (_, err, code) = two.runs("elsewhere", &line, None).await.expect("nobody ends it");
    assert!(code != 0 && err.contains("is not made again"), "{err}");
    for cluster in [two.here(), two.there()] {
        assert!(cluster.get("Job", "team", "ran").is_none(), "{}", cluster.state.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_go_to_another_cluster_is_refused_before_anything_is_changed() {
    let mut two = Two::start().await;
    let waits = two.submit("waits", 4).await;
    let runs = two.submit("runs", 1).await;
    let base = "-n team --cluster east --to-cluster west --to-queue vision";
    two.there()
        .put(json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "runs", "namespace": "team"},
            "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "x", "image": "x"}]}}},
        }))
        .await
        .unwrap();
    for (job, line, said) in [
        ("runs", format!("move workload {runs} {base}"), "--restart stops jobs.batch/runs"),
        (
            "runs",
            format!("move workload {runs} {base} --restart"),
            "cluster west has another jobs.batch/runs in namespace team",
        ),
        (
            "waits",
            format!("move workload {waits} -n team --cluster east --to-cluster west --to-queue visoin"),
            "Did you mean \"vision\"?",
        ),
        (
            "waits",
            format!("move workload {waits} -n team --cluster east --to-cluster w* --to-queue vision"),
            "names one cluster, and no pattern",
        ),
        (
            "waits",
            format!("move workload {waits} -n team --hub --to-cluster west --to-queue vision"),
            "sent to clusters by Kueue's MultiKueue",
        ),
        (
            "waits",
            format!("move workload {waits} -n team --to-cluster west --to-queue vision"),
            "name the one that it is on with --cluster",
        ),
        ("waits", format!("move workload none {base}"), "workloads.kueue.x-k8s.io \"none\" not found"),
    ] {
        let (out, err, code) = two.runs(job, &line, None).await.expect("nobody ends it");
        assert_eq!((out.as_str(), code), ("", 1), "{line}: {err}");
        assert!(err.contains(said), "{line}: {err}");
        assert_eq!(two.watched.writes.load(Ordering::SeqCst), 0, "{line}");
    }
    for strategy in ["client", "server"] {
        let line = format!("move workload {waits} {base} --dry-run {strategy}");
        let (out, err, code) = two.runs("waits", &line, None).await.expect("nobody ends it");
        assert_eq!((out, code), (format!("job.batch/waits moved ({strategy} dry run)\n"), 0), "{err}");
        assert!(two.there().get("Job", "team", "waits").is_none());
    }
    // It comes without what the job controller had made of it here.
    let line = format!("move workload {waits} {base} --dry-run client -o json");
    let (out, err, _) = two.runs("waits", &line, None).await.expect("nobody ends it");
    let copy: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    assert_eq!(copy["metadata"]["labels"][LABEL], "vision");
    assert!(copy["spec"]["selector"].is_null() && copy["metadata"]["uid"].is_null(), "{out}");
    assert!(!out.contains("controller-uid"), "{out}");
}

/// As the job controller writes it.
async fn put_status(cluster: &Cluster, job: &str, status: Value) {
    let (kind, name) = (Kind::named("Job").unwrap(), ("team".to_owned(), job.to_owned()));
    write_internally(&cluster.state, "admin", kind, name, Internal::Status(status)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_lose_or_hide_something_is_refused_before_anything_is_changed() {
    let mut two = Two::start().await;
    let base = "-n team --cluster east --to-cluster west --to-queue vision";
    let stopped = two.submit("stopped", 4).await;
    two.here().merge_in("team", "Workload", &stopped, json!({"spec": {"active": false}})).await.unwrap();
    let partly = two.submit("partly", 4).await;
    // As a JobSet says it: what a Job says is counted anew from its pods here.
    put_status(two.here(), "partly", json!({"replicatedJobsStatus": [{"succeeded": 2}, {"succeeded": 1}]}))
        .await;
    let unlisted = two.submit("unlisted", 4).await;
    for (job, name, said) in [
        ("stopped", &stopped, "is stopped (active: false)"),
        (
            "partly",
            &partly,
            "3 parts of jobs.batch/partly are done, and would run again in vision. --restart",
        ),
        ("unlisted", &unlisted, "forbidden"),
    ] {
        let line = format!("move workload {name} {base}");
        let (out, err, code) = two.runs(job, &line, None).await.expect("nobody ends it");
        assert_eq!((out.as_str(), code), ("", 1), "{line}: {err}");
        assert!(err.contains(said), "{line}: {err}");
        assert_eq!(two.watched.writes.load(Ordering::SeqCst), 0, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_lets_a_workload_go_on_ends_its_move() {
    let mut two = Two::start().await;
    let name = two.submit("resumed", 1).await;
    let line = format!("move workload {name} -n team --cluster east --to-cluster west --to-queue vision");
    let first = Kill { write: 1, sent: true };
    assert_eq!(two.runs("resumed", &format!("{line} --restart"), Some(first)).await, None);
    wait("it to stop", two.here(), || {
        two.here().get("Job", "team", "resumed").is_some_and(|job| job["spec"]["suspend"] == true)
    })
    .await;
    let resume = format!("resume workload {name} -n team --cluster east");
    let (out, err, code) = two.runs("resumed", &resume, None).await.expect("nobody ends it");
    assert_eq!((out, code), (format!("workload.kueue.x-k8s.io/{name} resumed\n"), 0), "{err}");
    let annotations = &workload(two.here(), "resumed").unwrap()["metadata"]["annotations"];
    assert!(annotations["fedq.dev/moving-to"].is_null(), "{annotations}");
    wait("it to run", two.here(), || {
        workload(two.here(), "resumed").is_some_and(|one| has(&one, "Admitted"))
    })
    .await;
    let (_, err, code) = two.runs("resumed", &line, None).await.expect("nobody ends it");
    assert!(code == 1 && err.contains("--restart stops jobs.batch/resumed"), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_what_the_job_was_before_is_made_anew() {
    let mut two = Two::start().await;
    let (_, line) = begun(&mut two, "edited", 2).await;
    assert!(two.there().get("Job", "team", "edited").is_some(), "the copy waits");
    let uid = |two: &Two| two.there().get("Job", "team", "edited").unwrap()["metadata"]["uid"].clone();
    let first = uid(&two);
    assert_eq!(two.runs("edited", &line, Some(Kill { write: 1, sent: true })).await, None);
    assert_eq!(uid(&two), first, "what is as it was is not made anew");
    let edit = json!({"metadata": {"annotations": {"own": "new"}}});
    two.here().merge_in("team", "Job", "edited", edit).await.unwrap();
    two.moves("edited", &line).await;
    assert_eq!(two.there().get("Job", "team", "edited").unwrap()["metadata"]["annotations"]["own"], "new");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_stays_while_its_copy_is_being_deleted() {
    let mut two = Two::start().await;
    let (_, line) = begun(&mut two, "twice", 5).await;
    let hold = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    two.there().merge_in("team", "Job", "twice", hold(json!(["example.com/slow"]))).await.unwrap();
    two.there().remove_in("team", "Job", "twice").await.unwrap();
    let (_, err, code) = two.runs("twice", &line, None).await.expect("nobody ends it");
    assert!(code == 1 && err.contains("is being deleted"), "{err}");
    assert!(two.here().get("Job", "team", "twice").is_some());
    two.there().merge_in("team", "Job", "twice", hold(Value::Null)).await.unwrap();
    wait("the copy to go", two.there(), || two.there().get("Job", "team", "twice").is_none()).await;
    two.moves("twice", &line).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_made_once_the_last_pod_has_ended() {
    let mut two = Two::start().await;
    let (name, line) = begun(&mut two, "slow", 1).await;
    put_status(two.here(), "slow", json!({"terminating": 2})).await;
    let short = format!("{line} --timeout 1s");
    let (out, err, code) = two.runs("slow", &short, None).await.expect("nobody ends it");
    assert_eq!((out.as_str(), code), ("", 1), "{err}");
    assert!(err.contains("2 pods of jobs.batch/slow are still ending, after 1s"), "{err}");
    assert!(err.contains(&format!("fedq kueue resume workload {name}")), "{err}");
    assert!(two.there().get("Job", "team", "slow").is_none());
    put_status(two.here(), "slow", json!({"terminating": 0})).await;
    two.moves("slow", &line).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_carried_out_without_an_answer_is_gone_on_with() {
    let (mut two, mut told) = (Two::start().await, 0);
    for write in 1..=8 {
        let job = format!("lost-{write}");
        let name = two.submit(&job, 4).await;
        let line = format!("move workload {name} -n team --cluster east --to-cluster west --to-queue vision");
        two.unanswered = Some(write);
        let (out, err, code) = two.runs(&job, &line, None).await.expect("nobody ends it");
        assert!(code == 0 || err.contains(LOST), "{write}: {out}{err}");
        if code != 0 {
            told += 1;
            let (out, err, code) = two.runs(&job, &line, None).await.expect("nobody ends it");
            assert_eq!(code, 0, "{write}: {out}{err}");
        }
        two.has_moved(&job).await;
        two.there().remove_in("team", "Job", &job).await.unwrap();
    }
    // Of the deletion the job itself tells.
    assert_eq!(told, 7);
}

/// Somebody resumes it, and then deletes it: it is theirs to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_while_it_is_deleted_does_not_go_on_elsewhere() {
    let mut two = Two::start().await;
    let name = two.submit("deleted", 1).await;
    let line =
        format!("move workload {name} -n team --cluster east --to-cluster west --to-queue vision --restart");
    assert_eq!(two.runs("deleted", &line, Some(Kill { write: 4, sent: true })).await, None);
    two.here().merge_in("team", "Workload", &name, json!({"spec": {"active": true}})).await.unwrap();
    let runs = || {
        let job = two.here().get("Job", "team", "deleted");
        job.is_some_and(|job| job["spec"]["suspend"] == false && job["status"]["active"] == 1)
    };
    wait("it to run", two.here(), runs).await;
    two.here().remove_in("team", "Job", "deleted").await.unwrap();
    assert!(two.here().get("Job", "team", "deleted").is_some(), "the move holds it");
    let (_, err, code) = two.runs("elsewhere", &line, None).await.expect("nobody ends it");
    assert!(code == 1 && err.contains("was let go on on cluster east, and then deleted"), "{err}");
    for cluster in [two.here(), two.there()] {
        assert!(cluster.get("Job", "team", "deleted").is_none(), "{}", cluster.state.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_stops_or_resumes_a_workload_leaves_nothing_of_its_move() {
    let mut two = Two::start().await;
    for verb in ["stop", "resume"] {
        let (name, _) = begun(&mut two, verb, 4).await;
        assert!(two.there().get("Job", "team", verb).is_some(), "the copy waits");
        let line = format!("{verb} workload {name} -n team --cluster east");
        let (_, err, code) = two.runs(verb, &line, None).await.expect("nobody ends it");
        assert_eq!((err.as_str(), code), ("", 0));
        assert!(two.there().get("Job", "team", verb).is_none(), "the copy is gone");
        let job = two.here().get("Job", "team", verb).unwrap();
        let metadata = &job["metadata"];
        assert!(metadata["finalizers"].is_null() || metadata["finalizers"] == json!([]), "{metadata}");
        assert!(!metadata.to_string().contains("\"fedq.dev/"), "{metadata}");
        let held = workload(two.here(), verb).unwrap();
        assert!(held["metadata"]["annotations"]["fedq.dev/moving-to"].is_null());
        assert_eq!(held["spec"]["active"], verb == "resume");
    }
}
