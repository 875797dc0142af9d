//! Ways into the pods of a task that runs: commands and ports. Whoever asks speaks Kubernetes' subprotocol for it with
//! the pod's API server; fedqd asks whether they may, joins the two connections, and parts them when the right or the task ends.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State as Extract},
    http::{StatusCode, header},
    response::Response,
};
use futures::FutureExt;
use hyper::upgrade::OnUpgrade;
use serde_json::{Value, json};
use tracing::debug;

use super::{find, pods};
use crate::{
    Failure, State,
    audit::{self, Deed},
    connections::UnderWay,
    extract::{Path, Query},
    held::{Held, Review},
    owner::{EXEC, Owner, PORTS},
};
use fedq_domain::task::{
    phase::{Epoch, Phase},
    render::CONTAINER,
};
use fedq_k8s::{
    enter::{self, EnterError, Handshake, Opened, Way},
    logs::{ContainerState, LogPod},
    worker::Worker,
};
use fedq_store::TaskRow;
use fedq_wire::{
    problem::{Cause, Code},
    task::{ExecQuery, PortForwardQuery},
};

/// More words than any command line has by hand, and few enough for a URL.
pub const MAX_WORDS: usize = 256;
/// What fedqd needs on a cluster.
const RIGHTS: &str = "deploy/worker/exec.yaml";

/// A command beside a task that runs: a WebSocket in Kubernetes' own subprotocol `v5.channel.k8s.io` (or `v4`), of which each
/// message begins with a channel: 0 is stdin, 1 stdout, 2 stderr, 3 how it ended, as a Kubernetes `Status`, and 4 the size of
/// the terminal, as `{"Width":80,"Height":24}`. It takes HTTP/1.1.
///
/// It ends with the command, the task's run, or the caller's token or right, and when the caller has sent nothing for ten
/// minutes: whoever only listens sends a ping now and then.
///
/// Takes the right to `create` `tasks/exec` of `fedq.dev` in the tenant's namespace on the hub.
#[utoipa::path(
    get, path = "/tasks/{task}/exec", tag = "tasks",
    params(
        ("task" = String, Path), ExecQuery,
        ("command" = Vec<String>, Query, description = "The program, then its arguments: a parameter for each."),
    ),
    responses((status = SWITCHING_PROTOCOLS, description = "The command runs, and the WebSocket is open."))
)]
pub async fn exec_task(
    owner: Owner,
    Extract(state): Extract<State>,
    Path(id): Path<String>,
    Query(query): Query<ExecQuery>,
    request: Request,
) -> Result<Response, Failure> {
    let row = find(&state, &owner, &id, "create", EXEC).await?;
    let command = command(request.uri().query().unwrap_or_default())?;
    let node = query.node;
    let program = command[0].clone();
    let way = |pod: &LogPod| {
        let container = container(pod, query.container.as_deref(), node)?;
        Ok(Way::Command { container, command, stdin: query.stdin, tty: query.tty })
    };
    // The arguments may hold what is nobody's business.
    let detail = json!({"node": node, "command": program});
    enter(Entry { state, owner, row, what: EXEC }, node, way, detail, request).await
}

/// A connection to a port of a task that runs: a WebSocket in Kubernetes' own subprotocol `v4.channel.k8s.io`. Channel 0 is
/// what goes to and from the port, channel 1 why it cannot be reached; the first message of each holds the port, in two bytes,
/// the lower one first. It takes HTTP/1.1, and ends as that of a command does.
///
/// Takes the right to `create` `tasks/portforward` of `fedq.dev` in the tenant's namespace on the hub.
#[utoipa::path(
    get, path = "/tasks/{task}/portforward", tag = "tasks", params(("task" = String, Path), PortForwardQuery),
    responses((status = SWITCHING_PROTOCOLS, description = "The WebSocket is open."))
)]
pub async fn forward_port(
    owner: Owner,
    Extract(state): Extract<State>,
    Path(id): Path<String>,
    Query(query): Query<PortForwardQuery>,
    request: Request,
) -> Result<Response, Failure> {
    let row = find(&state, &owner, &id, "create", PORTS).await?;
    let detail = json!({"node": query.node, "port": query.port.get()});
    let way = |_: &LogPod| Ok(Way::Port(query.port.get()));
    enter(Entry { state, owner, row, what: PORTS }, query.node, way, detail, request).await
}

struct Entry {
    state: State,
    owner: Owner,
    row: TaskRow,
    what: &'static str,
}

async fn enter(
    entry: Entry,
    node: u32,
    way: impl FnOnce(&LogPod) -> Result<Way, Failure>,
    mut detail: Value,
    mut request: Request,
) -> Result<Response, Failure> {
    let Entry { state, owner, row, what } = &entry;
    let (worker, pod) = inside(state, row, node)?;
    let way = way(&pod)?;
    let handshake = Handshake::of(request.headers(), &way).map_err(|error| no_handshake(&error))?;
    let held = Held::way(state, owner.user(), entry.review(&request)).await?;
    detail["cluster"] = json!(worker.name);
    if row.owner != owner.user() {
        detail["owner"] = json!(row.owner);
    }
    let subresource = what.rsplit('/').next().unwrap_or_default();
    let object = format!("tasks/{}/{subresource}", row.id);
    let deed = Deed { verb: "create", object, detail: Some(detail), dry_run: false };
    let names = (row.namespace.as_str(), pod.metadata.name.as_str());
    let opened = enter::open(&worker.client, names, &way, handshake).await;
    let opened = opened.map_err(|error| not_opened(error, &worker));
    audit::record(state, owner, deed, opened.as_ref().map(|_| ())).await;
    let opened = opened?;
    let mut response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket");
    if let Some(headers) = response.headers_mut() {
        headers.extend(opened.answer.clone());
    }
    let response = response.body(Body::empty());
    let response = response.map_err(|error| Failure::internal("the answer cannot be written", &error))?;
    let under_way = request.extensions().get::<Arc<UnderWay>>().cloned();
    let caller = hyper::upgrade::on(&mut request);
    let run = Run { state: state.clone(), row: row.clone(), worker };
    tokio::spawn(join(opened, caller, held, run, under_way));
    Ok(response)
}

impl Entry {
    fn review(&self, request: &Request) -> Review {
        let (state, headers) = (self.state.clone(), request.headers().clone());
        let (whose, what) = (self.row.owner.clone(), self.what);
        Box::new(move || {
            let (state, headers, whose) = (state.clone(), headers.clone(), whose.clone());
            let review = async move {
                let owner = Owner::known(&state, &headers).await?;
                if owner.reaches(&state, &whose, "create", what).await? {
                    return Ok(());
                }
                Err(Failure::new(StatusCode::FORBIDDEN, Code::Forbidden, "the right was withdrawn"))
            };
            review.boxed()
        })
    }
}

/// Until one of those who hold it open lets go.
async fn join(opened: Opened, caller: OnUpgrade, held: Held, run: Run, under_way: Option<Arc<UnderWay>>) {
    if let Some(under_way) = &under_way {
        under_way.becomes_way();
    }
    let cancel = run.worker.cancel.clone();
    tokio::select! {
        ended = opened.join(caller) => if let Err(error) = ended {
            debug!(task.id = %run.row.id, %error, "A way into a pod broke");
        },
        () = held.over() => {}
        () = cancel.cancelled() => {}
        () = run.over() => {}
    }
}

/// The run of a task that somebody is in.
struct Run {
    state: State,
    row: TaskRow,
    worker: Arc<Worker>,
}

impl Run {
    async fn over(&self) {
        let mut views = self.state.task_views.clone();
        loop {
            if views.changed().await.is_err() {
                return;
            }
            let published = views.borrow_and_update().tasks.get(&self.row.id).map(|view| view.state.clone());
            if published.is_some_and(|state| self.is_there(&state.phase, state.epoch)) {
                continue;
            }
            // What was published may be behind what is stored.
            if let Ok(row) = self.state.store.task(&self.row.id).await
                && !row.is_some_and(|row| self.is_there(&row.state.phase, row.state.epoch))
            {
                return;
            }
        }
    }

    fn is_there(&self, phase: &Phase, epoch: Epoch) -> bool {
        epoch == self.row.state.epoch && runs(phase)
    }
}

/// Whether pods of it may run, and nobody takes them away.
fn runs(phase: &Phase) -> bool {
    matches!(phase, Phase::Starting { .. } | Phase::Running { .. } | Phase::Lost { .. })
}

/// The pod that is node `node` of the task.
fn inside(state: &State, row: &TaskRow, node: u32) -> Result<(Arc<Worker>, Arc<LogPod>), Failure> {
    if row.spec.num_nodes <= node {
        let detail = format!("there is no node {node}: the task has {}, counted from 0", row.spec.num_nodes);
        return Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid, detail));
    }
    let status = || format!("fedq task status {} says how it does", row.id);
    if !runs(&row.state.phase) {
        let phase = super::show::task(row, &state.task_views.borrow()).phase;
        let detail = format!("task {} is {phase}: only what runs can be entered", row.id);
        return Err(Failure::conflict(detail).next(status()));
    }
    let silent = || {
        Failure::conflict(format!("the cluster of task {} does not answer", row.id))
            .next("fedq check says why")
    };
    let worker = pods::worker(state, row).ok_or_else(silent)?;
    let mut pods = pods::of_run(state, row, &worker).into_iter();
    let pod = pods.find(|(place, pod)| pod.rank().or(*place) == Some(node) && !pod.metadata.going);
    let missing = || Failure::conflict(format!("node {node} of task {} has no pod", row.id)).next(status());
    let (_, pod) = pod.ok_or_else(missing)?;
    Ok((worker, pod))
}

/// The container to run something in: the task's own, where no other is named.
fn container(pod: &LogPod, wanted: Option<&str>, node: u32) -> Result<String, Failure> {
    let all = pod.containers();
    let is_one = |name: &str| all.iter().any(|container| container.name == name);
    let name = match wanted {
        Some(name) => name.to_owned(),
        None if is_one(CONTAINER) => CONTAINER.to_owned(),
        None => all.first().map(|first| first.name.clone()).unwrap_or_default(),
    };
    let state = all.iter().find(|container| container.name == name).map(|container| &container.state);
    let why = match state {
        Some(ContainerState::Running) => return Ok(name),
        Some(ContainerState::Waiting { reason } | ContainerState::Between { reason }) => reason.clone(),
        Some(ContainerState::Ended) => "it has ended".to_owned(),
        None => {
            let names: Vec<&str> = all.iter().map(|container| container.name.as_str()).collect();
            format!("there are only {}", names.join(", "))
        }
    };
    Err(Failure::conflict(format!("container {name} of node {node} does not run: {why}")))
}

/// All parameters called `command`.
fn command(query: &str) -> Result<Vec<String>, Failure> {
    let words = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "command");
    let command: Vec<String> = words.map(|(_, word)| word.into_owned()).collect();
    let wrong = match command.first() {
        None => "is missing: it says what to run",
        Some(program) if program.is_empty() => "must name a program",
        Some(_) if MAX_WORDS < command.len() => "has too many words: put them into a script",
        Some(_) => return Ok(command),
    };
    let mut failure = Failure::bad_request(format!("command {wrong}"));
    failure.0.causes = vec![Cause::new("command", wrong)];
    Err(failure)
}

fn no_handshake(error: &EnterError) -> Failure {
    Failure::bad_request(error.to_string())
        .next("open it as a WebSocket over HTTP/1.1, in one of Kubernetes' subprotocols: fedq task exec does")
}

/// The caller may; the cluster does not.
fn not_opened(error: EnterError, worker: &Worker) -> Failure {
    let cluster = &worker.name;
    match error {
        EnterError::NoWebSocket(_) => no_handshake(&error),
        EnterError::Connect(error) => Failure::internal("no connection to the cluster can be made", &error),
        EnterError::Api(error) if error.is_forbidden() => {
            let detail =
                format!("fedqd may not enter pods of cluster `{cluster}`: {error}; nobody may through it");
            Failure::conflict(detail)
                .next(format!("an administrator of `{cluster}` can apply {RIGHTS} there"))
        }
        EnterError::Api(error) => Failure::conflict(format!("cluster `{cluster}` does not open it: {error}"))
            .next(format!("fedq check {cluster} says whether it answers")),
    }
}
