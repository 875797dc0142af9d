//! Tasks: handed in, looked at, stopped. What is written here is intent; the controllers do the rest.

pub mod enter;
pub mod list;
pub mod logs;
mod pods;
mod show;
mod submit;

use std::collections::BTreeMap;

use axum::{
    extract::State as Extract,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::{FutureExt, StreamExt, stream};
use serde_json::json;

pub use self::{
    list::{Newest, all},
    show::{record, verdicts},
    submit::{Wanted, accept, check, refused, single},
};
use super::{
    Failure, State,
    audit::{self, Deed},
    extract::{DryRun, Json, Path, Query},
    held::Held,
    object::Object,
    owner::{Owner, TASKS},
    stream::watch,
};
use fedq_domain::task::{
    limits::Limits,
    names::TaskId,
    sky::{self, Allowed, Changes, Options},
    upload::Archive,
};
use fedq_store::{TaskFilter, TaskRow};
use fedq_wire::{
    list::{List, PageQuery},
    task::{
        AllUsersQuery, ClusterVerdict, Kind, Stopped, SubmitTask, Submitted, SubmittedStage, Task,
        TaskDetail, TaskEvent, TaskExplanation, TasksQuery,
    },
};

/// Stopped at a time, so that they share commits.
const STOPS: usize = 64;

/// Hands a task in. Once it is answered the task is stored, and runs as soon as a cluster has room.
///
/// Of a file with several tasks each runs once the one before it has succeeded; all are accepted, or none.
///
/// Takes the right to `create` `tasks.fedq.dev` in the tenant's namespace on the hub.
#[utoipa::path(
    post, path = "/tasks", tag = "tasks", params(DryRun), request_body = SubmitTask,
    responses((status = CREATED, body = Submitted), (status = OK, body = Submitted))
)]
pub async fn submit_task(
    owner: Owner,
    Extract(state): Extract<State>,
    Query(dry_run): Query<DryRun>,
    Json(asked): Json<SubmitTask>,
) -> Result<Response, Failure> {
    let wanted = Wanted::read(asked.id.as_deref(), asked.queue.clone(), asked.cluster.as_deref())?;
    let dry_run = dry_run.is_set();
    for (field, given) in [("envs", &asked.envs), ("secrets", &asked.secrets)] {
        submit::are_variables(field, given)?;
    }
    let uploads = submit::uploads(&state, &owner, &asked.uploads, dry_run).await?;
    let pods = Allowed::By(owner.rule.pods.clone());
    let (text, options) = options(asked, uploads, pods);
    let options = Options { limits: submit::limits(&state, &owner, &wanted).await?, ..options };
    let file = sky::read_file(text.as_bytes(), &options).map_err(|error| refused(&error))?;
    let warnings = file.warnings.iter().map(ToString::to_string).collect();
    let checked = check(&state, &owner, file, &wanted).await?;
    let verdicts = checked.iter().map(|one| if dry_run { verdicts(&one.choice) } else { Vec::new() });
    let verdicts: Vec<_> = verdicts.collect();
    let rows = if dry_run {
        checked.into_iter().map(|one| one.row).collect()
    } else {
        accept(&state, &owner, &wanted, checked).await?
    };
    let submitted = Submitted { warnings, dry_run, ..submitted(&state, rows, verdicts) };
    if dry_run {
        return Ok(Json(submitted).into_response());
    }
    let location = [(header::LOCATION, format!("/api/v1/tasks/{}", submitted.id))];
    Ok((StatusCode::CREATED, location, Json(submitted)).into_response())
}

pub(super) fn submitted(state: &State, rows: Vec<TaskRow>, verdicts: Vec<Vec<ClusterVerdict>>) -> Submitted {
    let name = |row: &TaskRow| record(row, &state.task_views.borrow()).shown_name();
    let first = &rows[0];
    let of_pipeline = first.stage.as_ref().and_then(|stage| stage.name.clone());
    let mut submitted = Submitted {
        id: first.id.to_string(),
        name: of_pipeline.unwrap_or_else(|| name(first)),
        namespace: first.namespace.clone(),
        queue: first.queue.clone(),
        warnings: Vec::new(),
        stages: Vec::new(),
        clusters: Vec::new(),
        dry_run: false,
    };
    let stage = |(row, clusters): (TaskRow, Vec<ClusterVerdict>)| SubmittedStage {
        id: row.id.to_string(),
        name: name(&row),
        queue: row.queue,
        clusters,
    };
    let mut stages: Vec<_> = rows.into_iter().zip(verdicts).map(stage).collect();
    match stages.as_mut_slice() {
        [one] => submitted.clusters = std::mem::take(&mut one.clusters),
        _ => submitted.stages = stages,
    }
    submitted
}

fn options(asked: SubmitTask, uploads: BTreeMap<String, Archive>, pods: Allowed) -> (String, Options) {
    let changes = Changes {
        name: asked.name,
        num_nodes: asked.num_nodes.map(|number| number.to_string()),
        workdir: asked.workdir,
        priority: asked.priority,
        disk_size: asked.disk_size,
        max_duration: asked.max_duration,
        infra: asked.infra,
        accelerators: asked.accelerators,
        cpus: asked.cpus,
        memory: asked.memory,
        use_spot: asked.use_spot.map(|spot| spot.to_string()),
        image: asked.image,
    };
    let options = Options {
        envs: asked.envs,
        secrets: asked.secrets,
        uploads,
        changes,
        as_app_wrapper: asked.as_app_wrapper,
        pods,
        limits: Limits::default(),
        strict: asked.strict,
    };
    (asked.file, options)
}

/// One's own tasks, newest first.
#[utoipa::path(
    get, path = "/tasks", tag = "tasks", params(TasksQuery), responses((status = OK, body = List<Task>))
)]
pub async fn list_tasks(
    owner: Owner,
    Extract(state): Extract<State>,
    Query(query): Query<TasksQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let whose = owner.whose(&state, query.all_users, "list", TASKS).await?;
    let filter = TaskFilter {
        owner: whose,
        over: query.over,
        wrapped: query.kind.map(|kind| kind == Kind::AppWrapper),
    };
    if query.watch {
        let views = state.task_views.clone();
        let (again, asked, all_users) = (state.clone(), headers.clone(), query.all_users);
        let review = move || {
            let (state, headers) = (again.clone(), asked.clone());
            let review = async move {
                let owner = Owner::known(&state, &headers).await?;
                owner.whose(&state, all_users, "list", TASKS).await.map(drop)
            };
            review.boxed()
        };
        let held = Held::stream(&state, owner.user(), Box::new(review)).await?;
        return Ok(watch(Newest { state, filter, views, are_more: false }, &headers, held));
    }
    list::page(state, filter, &query).await
}

/// One task with its history.
#[utoipa::path(
    get, path = "/tasks/{task}", tag = "tasks", params(("task" = String, Path)),
    responses((status = OK, body = TaskDetail))
)]
pub async fn get_task(
    owner: Owner,
    Extract(state): Extract<State>,
    Path(id): Path<String>,
) -> Result<Object<TaskDetail>, Failure> {
    let row = find(&state, &owner, &id, "get", TASKS).await?;
    let events = state.store.task_events(&row.id).await?;
    let stages = match &row.stage {
        Some(stage) => state.store.pipeline(&stage.pipeline).await?,
        None => Vec::new(),
    };
    let views = state.task_views.borrow().clone();
    Ok(Object::new(show::detail(&row, &views, &events, &stages)))
}

/// What happened to a task, oldest first.
#[utoipa::path(
    get, path = "/tasks/{task}/events", tag = "tasks", params(("task" = String, Path), PageQuery),
    responses((status = OK, body = List<TaskEvent>))
)]
pub async fn task_events(
    owner: Owner,
    Extract(state): Extract<State>,
    Path(id): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Json<List<TaskEvent>>, Failure> {
    let row = find(&state, &owner, &id, "get", TASKS).await?;
    let page = audit::page(query.limit, query.next.as_deref())?;
    let found = state.store.task_event_page(&row.id, &page).await?;
    let items = found.items.iter().map(|(_, event)| show::event(event)).collect();
    Ok(Json(List { items, next: found.next.map(|next| next.to_string()) }))
}

/// What each cluster says to a task now, with the numbers.
#[utoipa::path(
    get, path = "/tasks/{task}/explain", tag = "tasks", params(("task" = String, Path)),
    responses((status = OK, body = TaskExplanation))
)]
pub async fn explain_task(
    owner: Owner,
    Extract(state): Extract<State>,
    Path(id): Path<String>,
) -> Result<Object<TaskExplanation>, Failure> {
    let row = find(&state, &owner, &id, "get", TASKS).await?;
    let choice = submit::choose(&state, &row).await?;
    let task = show::task(&row, &state.task_views.borrow());
    Ok(Object::new(TaskExplanation { task, clusters: verdicts(&choice) }))
}

/// Stops a task: what runs of it is taken off its cluster. One that is over stays as it is. Of a pipeline,
/// what comes after it is stopped too.
///
/// Takes the right to `delete` `tasks.fedq.dev` in the tenant's namespace on the hub.
#[utoipa::path(
    post, path = "/tasks/{task}/stop", tag = "tasks", params(("task" = String, Path)),
    responses((status = ACCEPTED, body = Task))
)]
pub async fn stop_task(
    owner: Owner,
    Extract(state): Extract<State>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Task>), Failure> {
    let row = find(&state, &owner, &id, "delete", TASKS).await?;
    let row = stop(&state, &owner, row).await?;
    let views = state.task_views.borrow().clone();
    Ok((StatusCode::ACCEPTED, Json(show::task(&row, &views))))
}

/// Stops all tasks of the caller, or of everybody.
#[utoipa::path(
    post, path = "/tasks/stop", tag = "tasks", params(AllUsersQuery),
    responses((status = ACCEPTED, body = Stopped))
)]
pub async fn stop_tasks(
    owner: Owner,
    Extract(state): Extract<State>,
    Query(query): Query<AllUsersQuery>,
) -> Result<(StatusCode, Json<Stopped>), Failure> {
    let stopped = stop_all(&state, &owner, query.all_users).await?;
    let ids = stopped.iter().map(|row| row.id.to_string()).collect();
    Ok((StatusCode::ACCEPTED, Json(Stopped { ids })))
}

/// Somebody else's task is told of as one that is not there.
pub async fn find(
    state: &State,
    owner: &Owner,
    id: &str,
    verb: &'static str,
    what: &'static str,
) -> Result<TaskRow, Failure> {
    let missing = || {
        let id: String = id.escape_debug().take(80).collect();
        Failure::not_found(format!("there is no task `{id}`")).next("fedq task list shows yours")
    };
    let id = TaskId::parse(id).ok_or_else(missing)?;
    let row = state.store.task(&id).await?.ok_or_else(missing)?;
    if owner.reaches(state, &row.owner, verb, what).await? { Ok(row) } else { Err(missing()) }
}

/// The task as it is then.
pub async fn stop(state: &State, owner: &Owner, row: TaskRow) -> Result<TaskRow, Failure> {
    // Behind a stage that is over, others may not be.
    if row.state.phase.is_over() && row.stage.is_none() {
        return Ok(row);
    }
    let detail = (row.owner != owner.user()).then(|| json!({"owner": row.owner}));
    let deed = Deed { verb: "stop", object: format!("tasks/{}", row.id), detail, dry_run: false };
    let outcome = withdraw(state, row).await;
    audit::record(state, owner, deed, outcome.as_ref().map(|_| ())).await;
    outcome
}

async fn withdraw(state: &State, row: TaskRow) -> Result<TaskRow, Failure> {
    let stopped = state.store.stop_task(&row.id, state.clock.now()).await?;
    state.task_signal.notify_one();
    Ok(stopped.unwrap_or(row))
}

/// Those that were not over.
pub async fn stop_all(state: &State, owner: &Owner, all_users: bool) -> Result<Vec<TaskRow>, Failure> {
    let verb = if all_users { "deletecollection" } else { "delete" };
    let whose = owner.whose(state, all_users, verb, TASKS).await?;
    let mut rows = all(state, &TaskFilter { owner: whose, over: Some(false), wrapped: None }).await?;
    let views = state.task_views.borrow().clone();
    rows.retain(|row| !record(row, &views).is_stopped());
    // Whoever asked may hang up in the middle: it is done to its end all the same, and written down.
    let stopping = tokio::spawn(stop_these(state.clone(), owner.clone(), rows, all_users));
    stopping.await.map_err(|error| Failure::internal("the stop of all tasks broke off", &error))?
}

async fn stop_these(
    state: State,
    owner: Owner,
    rows: Vec<TaskRow>,
    all_users: bool,
) -> Result<Vec<TaskRow>, Failure> {
    let asked = rows.len();
    if asked == 0 {
        return Ok(rows);
    }
    let (mut stopped, mut failed) = (Vec::with_capacity(asked), None);
    let mut stopping = stream::iter(rows).map(|row| withdraw(&state, row)).buffered(STOPS);
    while let Some(outcome) = stopping.next().await {
        match outcome {
            Ok(row) => stopped.push(row),
            Err(failure) => failed = failed.or(Some(failure)),
        }
    }
    drop(stopping);
    let outcome = failed.map_or(Ok(()), |mut failure| {
        failure.0.detail = format!("{} of {asked} tasks are stopped: {}", stopped.len(), failure.0.detail);
        Err(failure.next("do it again: it goes on with the others"))
    });
    let ids: Vec<&str> = stopped.iter().map(|row| row.id.as_str()).collect();
    let detail = Some(json!({"allUsers": all_users, "stopped": ids}));
    let deed = Deed { verb: "stop", object: TASKS.to_owned(), detail, dry_run: false };
    audit::record(&state, &owner, deed, outcome.as_ref().copied()).await;
    outcome.map(|()| stopped)
}
