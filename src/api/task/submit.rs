//! A task from the request to the disk. It is acknowledged once it is there; whoever dispatches finds it.

use axum::http::StatusCode;

use crate::{
    api::{
        Failure, State,
        owner::{Owner, TASKS},
    },
    domain::{
        ids::ClusterName,
        task::{
            choose::{Choice, Outcome, Verdict, Wish, view::VolumeView},
            fleet::Tenancy,
            names::TaskId,
            phase,
            sky::{NewTask, Note, TaskFile, TaskFileError},
            spec::Secrets,
            yaml::YamlError,
        },
    },
    store::TaskRow,
    wire::problem::{Cause, Code},
};

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

/// A task that nothing stands against.
pub struct Checked {
    pub row: TaskRow,
    pub secrets: Secrets,
    pub choice: Choice,
}

/// The one task of a file.
pub fn single(mut file: TaskFile) -> Result<(NewTask, Vec<Note>), Failure> {
    match (file.tasks.pop(), file.tasks.len()) {
        (Some(task), 0) => Ok((task, file.warnings)),
        (_, more) => Err(invalid(format!("the file has {} tasks", more + 1))
            .next("tasks that run one after the other are not supported yet: submit each by itself")),
    }
}

pub fn refused(error: &TaskFileError) -> Failure {
    let mut failure = match error {
        TaskFileError::Yaml(YamlError::TooLarge(_)) => {
            Failure::new(StatusCode::PAYLOAD_TOO_LARGE, Code::TooLarge, "the task file cannot be read")
        }
        TaskFileError::Yaml(_) => invalid("the task file cannot be read"),
        TaskFileError::Empty => return invalid(error.to_string()),
        TaskFileError::Problems(_) => invalid("the task cannot be run"),
    };
    let cause = |note: Note| {
        let Note { place, path: field, message } = note;
        let message = place.map_or(message.clone(), |place| format!("{place}: {message}"));
        Cause { field, message }
    };
    failure.0.causes = error.notes().into_iter().map(cause).collect();
    failure
}

fn invalid(detail: impl Into<String>) -> Failure {
    Failure::new(StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid, detail)
}

/// Finds out whether the task may be accepted.
pub async fn check(state: &State, owner: &Owner, task: NewTask, wanted: &Wanted) -> Result<Checked, Failure> {
    owner.may(state, "create", TASKS).await?;
    let NewTask { mut spec, secrets } = task;
    if let Some(queue) = &wanted.queue {
        spec.queue = Some(queue.clone());
    }
    let now = state.clock.now();
    let row = TaskRow {
        id: wanted.id.clone().unwrap_or_else(draw),
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
    };
    if row.queue.is_none() {
        return Err(no_queue(state, owner));
    }
    if let Some(cluster) = &row.cluster
        && !state.overview().clusters.contains_key(cluster)
    {
        return Err(crate::api::cluster::unknown(cluster));
    }
    let choice = choose(state, &row).await?;
    match &choice.outcome {
        Outcome::Never if knows_all(state, &choice) => Err(nowhere(&choice)),
        Outcome::Never | Outcome::Run(_) | Outcome::Wait => Ok(Checked { row, secrets, choice }),
    }
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

/// Before all clusters are looked at, that no cluster holds a task says nothing.
fn knows_all(state: &State, choice: &Choice) -> bool {
    let overview = state.overview();
    !choice.verdicts.is_empty() && overview.clusters.keys().all(|name| choice.verdicts.contains_key(name))
}

fn nowhere(choice: &Choice) -> Failure {
    let mut failure = invalid("no joined cluster can ever hold the task");
    let of_cluster = |(name, verdict): (&ClusterName, &Verdict)| match verdict {
        Verdict::Never(obstacles) => {
            let reasons: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
            Some(Cause { field: name.to_string(), message: reasons.join("; ") })
        }
        Verdict::Fits(_) | Verdict::Waits(_) | Verdict::Away(..) => None,
    };
    failure.0.causes = choice.verdicts.iter().filter_map(of_cluster).collect();
    failure
}

/// What each cluster says to the task now.
pub async fn choose(state: &State, row: &TaskRow) -> Result<Choice, Failure> {
    let wish = Wish { cluster: row.cluster.clone(), queue: row.queue.clone(), avoid: None };
    let tenancy = tenancy(state, row).await?;
    let fleet = state.task_views.borrow().fleet.clone();
    Ok(fleet.choose(&row.spec, &wish, &tenancy))
}

async fn tenancy(state: &State, row: &TaskRow) -> Result<Tenancy, Failure> {
    let mut tenancy = Tenancy { namespace: row.namespace.clone(), ..Tenancy::default() };
    if row.spec.volumes.is_empty() {
        return Ok(tenancy);
    }
    for volume in state.store.volumes(Some(&row.owner)).await? {
        if let Some(cluster) = volume.cluster.filter(|_| !volume.deleting) {
            let view =
                VolumeView { claim: volume.spec.claim_name(&volume.id), shared: volume.spec.is_shared() };
            tenancy.volumes.insert(volume.spec.name().to_owned(), (cluster, view));
        }
    }
    Ok(tenancy)
}

/// Stores the task. Its secrets are on the hub before; where it is not accepted, they are gone again.
pub async fn accept(state: &State, wanted: &Wanted, checked: Checked) -> Result<TaskRow, Failure> {
    let Checked { mut row, secrets, .. } = checked;
    let draws = if wanted.id.is_some() { 1 } else { DRAWS };
    for _ in 0..draws {
        if put(state, &row, &secrets).await? {
            state.task_signal.notify_one();
            return Ok(row);
        }
        if wanted.id.is_some() {
            return repeated(state, row).await;
        }
        row.id = draw();
    }
    Err(Failure::new(StatusCode::CONFLICT, Code::AlreadyExists, "every id that was drawn is taken")
        .next("try again"))
}

/// `false`: the id is taken.
async fn put(state: &State, row: &TaskRow, secrets: &Secrets) -> Result<bool, Failure> {
    let has_secrets = secrets.reveal().next().is_some();
    if has_secrets && !state.hub.keep_secrets(&row.id, &row.owner, secrets).await? {
        return Ok(false);
    }
    let stored = state.store.insert_task(row).await;
    if has_secrets
        && !matches!(stored, Ok(true))
        && let Err(error) = state.hub.forget_secrets(&row.id).await
    {
        // The controller removes Secrets of tasks that there are not.
        tracing::warn!(task.id = %row.id, %error, "The Secret of a task that was not accepted stays for now");
    }
    Ok(stored?)
}

/// The answer may have been lost, so that the same request came again.
async fn repeated(state: &State, row: TaskRow) -> Result<TaskRow, Failure> {
    let asked = |row: &TaskRow| (row.owner.clone(), row.queue.clone(), row.cluster.clone(), row.spec.clone());
    match state.store.task(&row.id).await? {
        Some(known) if asked(&known) == asked(&row) => Ok(known),
        _ => Err(Failure::new(
            StatusCode::CONFLICT,
            Code::AlreadyExists,
            format!("the id {} is taken", row.id),
        )
        .next("submit it under another id")),
    }
}
