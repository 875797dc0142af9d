//! `fedq kueue move` killed at every request: the job is in one queue or the other, and the same command again ends it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::body::Bytes;
use axum::extract::State;
use http::{HeaderMap, Method, Response, StatusCode, Uri, header};
use http_body_util::BodyExt;
use serde_json::Value;

use crate::support::cluster::{Cluster, Id, has_condition, id};
use crate::support::fleet::Fleet;
use crate::support::nodes::{CASE_LABEL, node};
use crate::support::wait::{Seen, eventually};

const SOON: Duration = Duration::from_mins(1);
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
const LABEL: &str = "kueue.x-k8s.io/queue-name";
const MOVING: &str = "fedq.dev/moving-to";
const CASE: &str = "kueue-move";
const QUEUES: [&str; 2] = ["research", "vision"];

/// Quota for the one that runs; what waits asks for more.
fn queues() -> String {
    let queue = |name: &str| {
        format!(
            r"
---
apiVersion: {KUEUE}
kind: ClusterQueue
metadata: {{name: {CASE}-{name}}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: {CASE}
      resources: [{{name: cpu, nominalQuota: 4}}, {{name: memory, nominalQuota: 1Ti}}]
---
apiVersion: {KUEUE}
kind: LocalQueue
metadata: {{name: {name}, namespace: {CASE}}}
spec: {{clusterQueue: {CASE}-{name}}}"
        )
    };
    format!(
        r"
apiVersion: v1
kind: Namespace
metadata: {{name: {CASE}}}
---
apiVersion: {KUEUE}
kind: ResourceFlavor
metadata: {{name: {CASE}}}
spec: {{nodeLabels: {{{CASE_LABEL}: {CASE}}}}}{}",
        QUEUES.map(queue).concat()
    )
}

fn job(name: &str, cpu: u32) -> String {
    format!(
        r"
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: {CASE}, labels: {{{LABEL}: {queue}}}}}
spec:
  suspend: true
  template:
    metadata: {{annotations: {{pod-complete.stage.kwok.x-k8s.io/delay: 1h, pod-complete.stage.kwok.x-k8s.io/jitter-delay: 1h}}}}
    spec:
      restartPolicy: Never
      containers:
      - {{name: main, image: example.invalid/train, resources: {{requests: {{cpu: {cpu}, memory: 1Gi}}}}}}
",
        queue = QUEUES[0]
    )
}

fn job_id(name: &str) -> Id<'_> {
    id("batch/v1", "Job", name).within(CASE)
}

/// Which request ends the program, and whether the server has got it by then.
#[derive(Clone, Copy, Debug)]
struct Kill {
    request: usize,
    writes_only: bool,
    sent: bool,
}

#[derive(Default)]
struct Count {
    kill: Option<Kill>,
    requests: usize,
    reached: bool,
}

/// Stands before an API server, counts requests and holds back the answer to one of them.
struct Gate {
    client: kube::Client,
    count: Mutex<Count>,
}

impl Gate {
    fn count(&self) -> std::sync::MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this request is the one.
    fn counts(&self, method: &Method) -> Option<Kill> {
        let mut count = self.count();
        let kill = count.kill?;
        let counted = !kill.writes_only || *method != Method::GET;
        count.requests += usize::from(counted);
        (counted && count.requests == kill.request).then_some(kill)
    }

    async fn forward(
        &self,
        method: Method,
        uri: &Uri,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<axum::body::Body>> {
        let path = uri.path_and_query().context("a request without a path")?.as_str();
        let mut request = http::Request::builder().method(method).uri(path);
        for name in [header::ACCEPT, header::CONTENT_TYPE] {
            if let Some(value) = headers.get(&name) {
                request = request.header(name, value);
            }
        }
        let request = request.body(kube::client::Body::from(body.to_vec()))?;
        let (parts, body) = self.client.send(request).await?.into_parts();
        let mut answer = Response::builder().status(parts.status);
        if let Some(kind) = parts.headers.get(header::CONTENT_TYPE) {
            answer = answer.header(header::CONTENT_TYPE, kind);
        }
        Ok(answer.body(axum::body::Body::from(body.collect().await?.to_bytes()))?)
    }
}

async fn pass(
    State(gate): State<Arc<Gate>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<axum::body::Body> {
    let kill = gate.counts(&method);
    let never = std::future::pending();
    if kill.is_some_and(|kill| !kill.sent) {
        gate.count().reached = true;
        return never.await;
    }
    let answer = gate.forward(method, &uri, &headers, body).await;
    if kill.is_some() {
        gate.count().reached = true;
        return never.await;
    }
    answer.unwrap_or_else(|error| {
        let mut answer = Response::new(axum::body::Body::from(format!("{error:#}")));
        *answer.status_mut() = StatusCode::BAD_GATEWAY;
        answer
    })
}

struct Bed<'a> {
    fleet: &'a Fleet,
    cluster: &'a Cluster,
    gate: Arc<Gate>,
    home: PathBuf,
}

impl<'a> Bed<'a> {
    async fn set(fleet: &'a Fleet) -> Result<Self> {
        let cluster = fleet.worker1();
        cluster.add_nodes(&[node(CASE, "a")]).await?;
        cluster.apply(&queues()).await?;
        let home = fleet.scratch(CASE)?;
        let gate = Arc::new(Gate { client: cluster.client.clone(), count: Mutex::default() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let server = format!("http://{}", listener.local_addr()?);
        let app = axum::Router::new().fallback(pass).with_state(Arc::clone(&gate));
        tokio::spawn(async move { axum::serve(listener, app).await });
        std::fs::write(
            home.join("kubeconfig"),
            format!(
                "{{apiVersion: v1, kind: Config, current-context: gate, clusters: [{{name: gate, cluster: {{server: '{server}'}}}}], \
                 contexts: [{{name: gate, context: {{cluster: gate, user: ''}}}}]}}"
            ),
        )?;
        for queue in QUEUES {
            let this = id(KUEUE, "LocalQueue", queue).within(CASE);
            cluster.wait(this, "active", SOON, |queue| has_condition(queue, "Active", "True")).await?;
        }
        Ok(Self { fleet, cluster, gate, home })
    }

    /// Runs the command until it ends or is killed: then there is no output.
    async fn fedq(&self, line: &[&str], kill: Option<Kill>) -> Result<Option<Output>> {
        *self.gate.count() = Count { kill, ..Count::default() };
        let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_fedq")));
        command.arg("kueue").args(line).args(["-n", CASE]).env_clear();
        command.env("HOME", &self.home).env("KUBECONFIG", self.home.join("kubeconfig"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.fleet.adopt(&mut command).spawn()?;
        loop {
            if child.try_wait()?.is_some() {
                return Ok(Some(child.wait_with_output()?));
            }
            if self.gate.count().reached {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn workload_of(&self, job: &str) -> Result<Value> {
        eventually(&format!("one workload of {job}"), SOON, async || {
            let mut all = self.cluster.list(KUEUE, "Workload", Some(CASE)).await?;
            all.retain(|workload| workload["metadata"]["ownerReferences"][0]["name"] == job);
            Ok(match (all.len(), all.pop()) {
                (1, Some(workload)) => Seen::Done(workload),
                (count, _) => Seen::Still(format!("{count} workloads")),
            })
        })
        .await
    }

    /// The job runs in no queue but one: where its workload has quota, its label says the same.
    async fn check_in_between(&self, job: &str, ran: bool, kill: Kill) -> Result<()> {
        let workload = self.workload_of(job).await?;
        let found =
            self.cluster.get(job_id(job)).await?.with_context(|| format!("{kill:?}: {job} is lost"))?;
        let (label, queue) = (&found["metadata"]["labels"][LABEL], &workload["spec"]["queueName"]);
        let known = |name: &Value| QUEUES.iter().any(|queue| name == queue);
        ensure!(known(label) && known(queue), "{kill:?}: {label} and {queue}");
        let holds = has_condition(&workload, "QuotaReserved", "True");
        ensure!(ran || !holds, "{kill:?}: it asks for more than there is: {workload:#}");
        ensure!(!holds || label == queue, "{kill:?}: runs in {queue}, its label says {label}");
        let held = workload["spec"]["active"] == false;
        ensure!(held || label == queue, "{kill:?}: goes on in {queue}, its label says {label}");
        ensure!(held != workload["metadata"]["annotations"][MOVING].is_null(), "{kill:?}: {workload:#}");
        Ok(())
    }

    async fn check_moved(&self, job: &str, to: &str, runs: bool) -> Result<()> {
        let workload = self.workload_of(job).await?;
        let found = self.cluster.get(job_id(job)).await?.context("the job is there")?;
        ensure!(found["metadata"]["labels"][LABEL] == to, "{found:#}");
        ensure!(workload["spec"]["queueName"] == to && workload["spec"]["active"] == true, "{workload:#}");
        ensure!(workload["metadata"]["annotations"][MOVING].is_null(), "{workload:#}");
        if runs {
            self.runs_in(job, to).await?;
        }
        Ok(())
    }

    async fn runs_in(&self, job: &str, queue: &str) -> Result<()> {
        eventually(&format!("{job} to run in {queue}"), SOON, async || {
            let workload = self.workload_of(job).await?;
            let found = self.cluster.get(job_id(job)).await?.context("the job is there")?;
            let runs = workload["status"]["admission"]["clusterQueue"] == format!("{CASE}-{queue}")
                && found["spec"]["suspend"] == false
                && found["status"]["active"] == 1;
            Ok(Seen::when(runs, || format!("{workload:#} {:#}", found["status"])))
        })
        .await
    }

    /// Moves `job` to and fro, each time killed at one request further, until a move ends before it is killed.
    async fn killed_all_along(&self, job: &str, runs: bool) -> Result<usize> {
        let name = self.workload_of(job).await?["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut kills = 0;
        let mut at = 0;
        for request in 1.. {
            for sent in [false, true] {
                // Reads leave everything as it was, so what takes long is killed at its writes only, and those on both sides.
                let kill = Kill { request, writes_only: runs, sent };
                let to = QUEUES[1 - at];
                let line = ["move", "workload", &name, "--to-queue", to];
                let restart: &[&str] = if runs { &["--restart"] } else { &[] };
                let line = [&line[..], restart].concat();
                let ended = self.fedq(&line, Some(kill)).await?;
                if let Some(output) = &ended {
                    ensure!(output.status.success(), "{kill:?}: {output:?}");
                } else {
                    kills += 1;
                    self.check_in_between(job, runs, kill).await?;
                    let output = self.fedq(&line, None).await?.context("nobody kills it")?;
                    ensure!(output.status.success(), "after {kill:?}: {output:?}");
                }
                self.check_moved(job, to, runs).await.with_context(|| format!("{kill:?}"))?;
                at = 1 - at;
                if ended.is_some() {
                    return Ok(kills);
                }
            }
        }
        unreachable!("it ends when a move does")
    }
}

pub async fn killed_at_each_request_a_move_leaves_the_job_in_one_queue_or_the_other(
    fleet: &Fleet,
) -> Result<()> {
    let bed = Bed::set(fleet).await?;
    bed.cluster.apply(&job("waits", 5)).await?;
    let kills = bed.killed_all_along("waits", false).await?;
    ensure!(8 <= kills, "killed only {kills} times");

    bed.cluster.apply(&job("runs", 3)).await?;
    bed.runs_in("runs", QUEUES[0]).await?;
    let workload = bed.workload_of("runs").await?;
    let name = workload["metadata"]["name"].as_str().unwrap_or_default();
    let refused = bed.fedq(&["move", "workload", name, "--to-queue", QUEUES[1]], None).await?;
    let refused = refused.context("nobody kills it")?;
    ensure!(refused.status.code() == Some(1), "{refused:?}");
    ensure!(
        String::from_utf8_lossy(&refused.stderr).contains("--restart stops jobs.batch/runs"),
        "{refused:?}"
    );
    bed.runs_in("runs", QUEUES[0]).await?;
    let kills = bed.killed_all_along("runs", true).await?;
    ensure!(kills == 6, "killed {kills} times: there are three writes, each with two sides");
    bed.cluster.kubectl(&["delete", "jobs", "--all", "-n", CASE])?;
    bed.cluster.delete_nodes_of(CASE).await
}
