//! A task from the request to the disk. It is acknowledged once it is there; whoever dispatches finds it.

use std::{collections::BTreeMap, time::Duration};

use axum::http::StatusCode;
use serde_json::json;

use crate::{
    Failure, State,
    audit::{self, Deed},
    owner::{Owner, TASKS},
    volume::adopt,
};
use fedq_domain::task::{
    choose::{Choice, Outcome, Verdict, Wish},
    fleet::{NoRoute, Tenancy},
    limits::Limits,
    names::TaskId,
    phase,
    pipeline::Stage,
    sky::{NewTask, Note, TaskFile, TaskFileError, is_variable},
    spec::{Secrets, TaskSpec},
    upload::{Archive, Digest},
    yaml::YamlError,
};
use fedq_store::{Acceptance, Live, Submission, TaskRow, VolumeRow};
use fedq_values::ids::{ClusterName, NameError, QueueName};
use fedq_wire::problem::{Cause, Code};

/// Less than any client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Ids drawn in vain before something must be wrong.
const DRAWS: usize = 8;

/// What a person wants beside the task itself.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Made up by whoever asks, so that the request can be repeated.
    pub id: Option<TaskId>,
    pub queue: Option<String>,
    pub cluster: Option<ClusterName>,
}

impl Wanted {
    pub fn read(id: Option<&str>, queue: Option<String>, cluster: Option<&str>) -> Result<Self, Failure> {
        let id = id.map(str::parse::<TaskId>).transpose().map_err(|error| Failure::field("id", &error))?;
        let cluster = cluster.map(ClusterName::new).transpose();
        let cluster = cluster.map_err(|error| Failure::field("cluster", &error))?;
        if let Some(queue) = &queue {
            let named = |error| NameError { kind: "LocalQueue name", ..error };
            QueueName::new(queue).map_err(|error| Failure::field("queue", &named(error)))?;
        }
        Ok(Self { id, queue, cluster })
    }
}

/// A task that nothing stands against.
pub struct Checked {
    pub row: TaskRow,
    pub secrets: Secrets,
    pub choice: Choice,
}

/// The one task of those that were accepted from a request that cannot have more.
pub fn single(rows: Vec<TaskRow>) -> TaskRow {
    rows.into_iter().next().expect("a file has at least one task")
}

pub fn refused(error: &TaskFileError) -> Failure {
    let mut failure = match error {
        TaskFileError::Yaml(YamlError::TooLarge(_)) => {
            Failure::new(StatusCode::PAYLOAD_TOO_LARGE, Code::TooLarge, "the task file cannot be read")
        }
        TaskFileError::Yaml(_) => invalid("the task file cannot be read"),
        TaskFileError::Empty => return invalid(error.to_string()),
        TaskFileError::Problems(_) | TaskFileError::NeedsValues(_) => invalid("the task cannot be run"),
    };
    let cause = |note: Note| {
        let Note { place, path: field, message } = note;
        let message = place.map_or(message.clone(), |place| format!("{place}: {message}"));
        Cause::new(field, message)
    };
    failure.0.causes = error.notes().into_iter().map(cause).collect();
    failure
}

fn invalid(detail: impl Into<String>) -> Failure {
    Failure::new(StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid, detail)
}

/// What is given beside the file has places of its own, by which it is told what is wrong; values are never repeated.
pub fn are_variables(field: &str, given: &BTreeMap<String, String>) -> Result<(), Failure> {
    let wrong = |(name, value): &(&String, &String)| !is_variable(name) || value.contains('\0');
    let Some((name, _)) = given.iter().find(wrong) else { return Ok(()) };
    let message = if is_variable(name) {
        "must not have a NUL in it: programs could not be given it"
    } else {
        "is no name of a variable: use letters, digits and `_`, and begin with none of the digits"
    };
    let name: String = name.chars().take(80).collect();
    let mut failure = invalid(format!("{field}: a variable is wrong"));
    failure.0.causes = vec![Cause::new(format!("{field}.{name}"), message)];
    Err(failure)
}

/// What was sent before, by what the file calls it. A dry run takes for granted that the rest would be.
pub async fn uploads(
    state: &State,
    owner: &Owner,
    asked: &BTreeMap<String, String>,
    dry_run: bool,
) -> Result<BTreeMap<String, Archive>, Failure> {
    let mut found = BTreeMap::new();
    if asked.is_empty() {
        return Ok(found);
    }
    owner.may(state, "create", TASKS).await?;
    for (source, digest) in asked {
        let digest: Digest =
            digest.parse().map_err(|error| Failure::field(&format!("uploads.{source}"), &error))?;
        let archive = match state.store.use_upload(owner.user(), &digest, state.clock.now()).await? {
            Some(archive) => archive,
            None if dry_run => Archive { digest, bytes: 0, file: false },
            None => return Err(not_sent(&digest)),
        };
        found.insert(source.clone(), archive);
    }
    Ok(found)
}

fn not_sent(digest: &Digest) -> Failure {
    invalid(format!("you sent no archive {digest}, or so long ago that it is gone"))
        .next("send it with PUT /api/v1/uploads/{digest} and submit the task again, as fedq task submit does")
}

/// All that one task brings along ends up on its cluster, in the database of that one's API server.
fn fits(spec: &TaskSpec, most: u64) -> Result<(), Failure> {
    let bytes = spec.uploads.iter().map(|upload| upload.archive.bytes).fold(0, u64::saturating_add);
    if bytes <= most {
        return Ok(());
    }
    let detail = format!(
        "workdir and file_mounts have {bytes} bytes together, and a task brings along at most {most}"
    );
    Err(invalid(detail).next(
        "leave out what the task does not need; data is for a volume; tasks.uploads.maxSize of fedqd is the bound",
    ))
}

/// What a task file is held to. One that was accepted already was within what held then.
pub async fn limits(state: &State, owner: &Owner, wanted: &Wanted) -> Result<Limits, Failure> {
    match &wanted.id {
        Some(id) if state.store.task(id).await?.is_some() => Ok(Limits::default()),
        _ => Ok(owner.rule.limits),
    }
}

/// Finds out whether each task of a file may be accepted.
pub async fn check(
    state: &State,
    owner: &Owner,
    mut file: TaskFile,
    wanted: &Wanted,
) -> Result<Vec<Checked>, Failure> {
    file.keep_warnings();
    owner.may(state, "create", TASKS).await?;
    let more = adds(file.tasks.iter().map(|task| &task.spec))?;
    let before = admit(state, owner, wanted, more).await?;
    let several = 1 < file.tasks.len();
    let mut checked = Vec::new();
    for (number, task) in (1..).zip(file.tasks) {
        let called = task.spec.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let judged = check_one(state, owner, (task, before), wanted).await;
        checked.push(judged.map_err(|mut failure| {
            if several {
                failure.0.detail = format!("stage {number}{called}: {}", failure.0.detail);
            }
            failure
        })?);
    }
    if let (Some(id), Some(first)) = (&wanted.id, checked.first_mut()) {
        first.row.id = id.clone();
    }
    link(&mut checked, file.name.as_deref());
    Ok(checked)
}

fn adds<'a>(specs: impl Iterator<Item = &'a TaskSpec>) -> Result<Live, Failure> {
    Live::of(specs).map_err(|error| Failure::internal("a task cannot be stored", &error))
}

/// Whether what is asked for was there before.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Before {
    New,
    /// Accepted under this id, which an answer that was lost cannot have said; or it is somebody else's.
    There,
}

/// Whether the person may have so much more, under the id that they made up.
async fn admit(state: &State, owner: &Owner, wanted: &Wanted, more: Live) -> Result<Before, Failure> {
    if let Some(id) = &wanted.id {
        if state.store.task(id).await?.is_some() {
            // It adds nothing.
            return Ok(Before::There);
        }
        if state.task_views.borrow().orphans.contains(id) || has_logs(state, id) {
            return Err(taken(id));
        }
    }
    let live = state.store.live_tasks_of(owner.user()).await?;
    if state.max_live.holds(live, more) { Ok(Before::New) } else { Err(too_much(live, more, state.max_live)) }
}

fn too_much(live: Live, more: Live, most: Live) -> Failure {
    if most.tasks < live.tasks.saturating_add(more.tasks) {
        let detail = format!("you have {} tasks that are not over, of at most {}", live.tasks, most.tasks);
        let next = "wait for some to end or stop them; tasks.maxLivePerUser of fedqd is the bound";
        return Failure::too_many_requests(detail).next(next);
    }
    let detail = format!(
        "your tasks that are not over take {} bytes and this would take {} more, of at most {}",
        live.bytes, more.bytes, most.bytes
    );
    let next = "wait for some to end or stop them, or make it smaller: data and long scripts are for a volume or \
                the image; tasks.maxLiveBytesPerUser of fedqd is the bound";
    Failure::too_many_requests(detail).next(next)
}

/// Several tasks are a pipeline.
fn link(checked: &mut [Checked], name: Option<&str>) {
    if checked.len() < 2 {
        return;
    }
    let ids: Vec<TaskId> = checked.iter().map(|one| one.row.id.clone()).collect();
    for (one, stage) in checked.iter_mut().zip(Stage::of(&ids, name)) {
        one.row.stage = Some(stage);
    }
}

async fn check_one(
    state: &State,
    owner: &Owner,
    (task, before): (NewTask, Before),
    wanted: &Wanted,
) -> Result<Checked, Failure> {
    let NewTask { mut spec, secrets } = task;
    fits(&spec, state.uploads.one_task)?;
    if spec.wrapped.is_some() && before == Before::New {
        // Of a task file this was found out where it stands there.
        let limits = &owner.rule.limits;
        spec.max_duration = limits.duration(spec.max_duration).map_err(|error| invalid(error.to_string()))?;
        if let Some(excess) = limits.forbid(&spec) {
            return Err(invalid(excess.refusal()));
        }
    }
    if before == Before::New {
        look_at_claims(state, owner, &mut spec).await?;
    }
    if let Some(queue) = &wanted.queue {
        spec.queue = Some(queue.clone());
    }
    let now = state.clock.now();
    let row = TaskRow {
        id: draw(),
        owner: owner.user().to_owned(),
        namespace: owner.namespace().to_owned(),
        queue: spec.queue.clone().or_else(|| owner.rule.queue.clone()),
        cluster: wanted.cluster.clone(),
        submitted: now,
        spec,
        state: phase::State::default(),
        dispatch: None,
        restarts: 0,
        nodes: None,
        changed: now,
        stage: None,
    };
    let Some(queue) = &row.queue else { return Err(no_queue(state, owner)) };
    if before == Before::There {
        // Whether it fits was found out when it was accepted, and is no matter any more.
        let choice = choose(state, &row).await?;
        return Ok(Checked { row, secrets, choice });
    }
    if let Some(cluster) = &row.cluster {
        state.must_be_joined(cluster).await?;
    }
    let no_route = state.task_views.borrow().fleet.no_route(&row.namespace, queue);
    if let Some(no_route) = no_route.filter(NoRoute::stays)
        && row.spec.is_app_wrapper()
        && !row.spec.may_unwrap()
        && row.cluster.is_none()
    {
        return Err(invalid(no_route.to_string()));
    }
    let choice = choose_settled(state, &row).await?;
    match &choice.outcome {
        Outcome::Never => Err(nowhere(&choice)),
        Outcome::Run(_) | Outcome::Limited(_) | Outcome::Wait => Ok(Checked { row, secrets, choice }),
    }
}

/// Claims that the task names itself: the cluster of each says whether it is there and how it can be mounted.
async fn look_at_claims(state: &State, owner: &Owner, spec: &mut TaskSpec) -> Result<(), Failure> {
    for mount in &mut spec.volumes {
        let Some(claim) = &mut mount.claim else { continue };
        let field = format!("volumes[{:?}].claim", mount.path);
        let asked = (&claim.cluster, claim.name.as_str(), mount.read_only);
        claim.shared = adopt::judge(state, owner, asked, &field).await?.is_shared(mount.read_only);
    }
    Ok(())
}

/// Of a task that is not known any more: they are for nobody to read, least of all for whoever gets its id.
fn has_logs(state: &State, id: &TaskId) -> bool {
    state.kept_logs.as_ref().is_some_and(|kept| kept.has_task(id))
}

fn draw() -> TaskId {
    TaskId::draw(fastrand::u64(..))
}

fn no_queue(state: &State, owner: &Owner) -> Failure {
    let queues = state.task_views.borrow().fleet.queues_of(owner.namespace());
    let there = match queues.as_slice() {
        [] => format!("namespace {} has no queue on any cluster", owner.namespace()),
        queues => format!("you may use {}", queues.join(", ")),
    };
    invalid(format!("the task names no queue, and your tenant has no default: {there}"))
        .next("name one with --queue, or as config.kubernetes.kueue.local_queue_name in the file")
}

/// As [`choose`]. Where only clusters that will be known in a moment could take it, that moment is waited for:
/// a task that can never run is better refused than accepted to fail.
async fn choose_settled(state: &State, row: &TaskRow) -> Result<Choice, Failure> {
    let mut views = state.task_views.clone();
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let unsettled = {
            let views = views.borrow_and_update();
            views.starting || !views.fleet.coming.is_empty()
        };
        let choice = choose(state, row).await?;
        let away = choice.verdicts.values().any(|verdict| matches!(verdict, Verdict::Away(..)));
        if choice.outcome != Outcome::Wait || away || !unsettled {
            return Ok(choice);
        }
        if !matches!(tokio::time::timeout_at(until, views.changed()).await, Ok(Ok(()))) {
            return Ok(choice);
        }
    }
}

fn nowhere(choice: &Choice) -> Failure {
    let mut failure = invalid("no joined cluster can ever hold the task");
    let of_cluster = |(name, verdict): (&ClusterName, &Verdict)| match verdict {
        Verdict::Never(obstacles) => {
            let reasons: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
            Some(Cause::new(name.to_string(), reasons.join("; ")))
        }
        Verdict::Fits(_) | Verdict::Waits(_) | Verdict::Away(..) => None,
    };
    failure.0.causes = choice.verdicts.iter().filter_map(of_cluster).collect();
    failure
}

/// What each cluster says to the task now.
pub async fn choose(state: &State, row: &TaskRow) -> Result<Choice, Failure> {
    let volumes =
        if row.spec.volumes.is_empty() { Vec::new() } else { state.store.volumes(Some(&row.owner)).await? };
    let tenancy = Tenancy::of(&row.owner, &row.namespace, volumes.iter().map(VolumeRow::known));
    let fleet = state.task_views.borrow().fleet.clone();
    let room = fleet.room((&row.namespace, &row.owner), row.takes());
    let wish = Wish { cluster: row.cluster.clone(), queue: row.queue.clone(), avoid: None, room };
    Ok(fleet.choose(&row.spec, &wish, &tenancy))
}

/// Stores the tasks. Their secrets are on the hub before; where they are not accepted, they are gone again.
pub async fn accept(
    state: &State,
    owner: &Owner,
    wanted: &Wanted,
    mut checked: Vec<Checked>,
) -> Result<Vec<TaskRow>, Failure> {
    let draws = if wanted.id.is_some() { 1 } else { DRAWS };
    for _ in 0..draws {
        if put(state, owner, &checked).await? {
            state.task_signal.notify_one();
            return Ok(checked.into_iter().map(|one| one.row).collect());
        }
        if wanted.id.is_some() {
            return repeated(state, checked).await;
        }
        let name = checked[0].row.stage.as_ref().and_then(|stage| stage.name.clone());
        for one in &mut checked {
            one.row.id = draw();
        }
        link(&mut checked, name.as_deref());
    }
    Err(Failure::new(StatusCode::CONFLICT, Code::AlreadyExists, "every id that was drawn is taken")
        .next("try again"))
}

/// `false`: an id is taken.
async fn put(state: &State, owner: &Owner, checked: &[Checked]) -> Result<bool, Failure> {
    if checked.iter().any(|one| has_logs(state, &one.row.id)) {
        return Ok(false);
    }
    let mut kept = Vec::new();
    let stored = store(state, owner, checked, &mut kept).await;
    if !matches!(stored, Ok(true)) {
        for id in kept {
            if let Err(error) = forget(state, id).await {
                // The controller removes Secrets of tasks that there are not.
                tracing::warn!(task.id = %id, error = %error.0, "The Secret of a task that was not accepted stays for now");
            }
        }
    }
    stored
}

/// `kept`: whose Secrets were made.
async fn store<'a>(
    state: &State,
    owner: &Owner,
    checked: &'a [Checked],
    kept: &mut Vec<&'a TaskId>,
) -> Result<bool, Failure> {
    for Checked { row, secrets, .. } in checked {
        if secrets.reveal().next().is_none() {
            continue;
        }
        if !keep(state, row, secrets).await? {
            return Ok(false);
        }
        kept.push(&row.id);
    }
    let tasks: Vec<TaskRow> = checked.iter().map(|one| one.row.clone()).collect();
    let (adds, most) = (adds(tasks.iter().map(|row| &row.spec))?, state.max_live);
    let deed = audit::entry(state, owner, deed(&tasks));
    match state.store.submit_tasks(Submission { tasks, adds, most, deed }).await? {
        Acceptance::Accepted => Ok(true),
        Acceptance::Taken => Ok(false),
        Acceptance::TooMuch(live) => Err(too_much(live, adds, most)),
        Acceptance::Gone(digest) => Err(not_sent(&digest)),
    }
}

/// One for all tasks of a file.
fn deed(rows: &[TaskRow]) -> Deed {
    let first = &rows[0];
    let name = first.stage.as_ref().and_then(|stage| stage.name.as_ref()).or(first.spec.name.as_ref());
    let detail =
        json!({"name": name, "namespace": first.namespace, "queue": first.queue, "tasks": rows.len()});
    Deed { verb: "create", object: format!("{TASKS}/{}", first.id), detail: Some(detail), dry_run: false }
}

/// Puts the secrets on the hub. `false`: the id is taken.
async fn keep(state: &State, row: &TaskRow, secrets: &Secrets) -> Result<bool, Failure> {
    if state.hub.keep_secrets(&row.id, &row.owner, secrets).await? {
        return Ok(true);
    }
    if state.store.task(&row.id).await?.is_some() {
        return Ok(false);
    }
    // Left by the same request, if that was cut off before the task was stored.
    Ok(state.hub.replace_secrets(&row.id, &row.owner, secrets).await?)
}

async fn forget(state: &State, id: &TaskId) -> Result<(), Failure> {
    if state.store.task(id).await?.is_some() {
        // The same request came twice at once, and the other one was faster.
        return Ok(());
    }
    Ok(state.hub.forget_secrets(id).await?)
}

/// The answer may have been lost, so that the same request came again.
async fn repeated(state: &State, checked: Vec<Checked>) -> Result<Vec<TaskRow>, Failure> {
    let asked = |row: &TaskRow| {
        let TaskRow { owner, queue, cluster, spec, stage, .. } = row;
        let name = stage.as_ref().and_then(|stage| stage.name.clone());
        let mut spec = spec.clone();
        // A newer fedqd may word them otherwise.
        spec.warnings.clear();
        // Where nothing was asked for it is what the tenant's limits said then.
        spec.max_duration = None;
        for claim in spec.volumes.iter_mut().filter_map(|mount| mount.claim.as_mut()) {
            // Its cluster said it, nobody asked for it.
            claim.shared = false;
        }
        (owner.clone(), queue.clone(), cluster.clone(), spec, name)
    };
    let id = &checked[0].row.id;
    let known = match state.store.task(id).await? {
        Some(TaskRow { stage: Some(stage), .. }) => state.store.pipeline(&stage.pipeline).await?,
        single => single.into_iter().collect(),
    };
    if known.iter().map(asked).eq(checked.iter().map(|one| asked(&one.row))) {
        return Ok(known);
    }
    Err(taken(id))
}

fn taken(id: &TaskId) -> Failure {
    Failure::new(StatusCode::CONFLICT, Code::AlreadyExists, format!("the id {id} is taken"))
        .next("submit it under another id")
}
