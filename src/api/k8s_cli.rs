//! k8s-cli's routes, so that its own client works with fedq: the same tasks and volumes as under `/api/v1`, in
//! the shapes of `wire::k8s_cli`.

mod identity;
mod refusal;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{OriginalUri, Path, Query, RawQuery, State as Extract, rejection::BytesRejection},
    http::HeaderMap,
    response::{Redirect, Response},
    routing::{get, post},
};
use futures::FutureExt;
use serde::Deserialize;

use self::{
    identity::{User, known, mark},
    refusal::{Refusal, Result},
};
use super::{
    Failure, State,
    held::Held,
    owner::{LOGS, Owner, TASKS, VOLUMES},
    task::{self, Wanted},
    volume,
};
use fedq_domain::task::{
    names::user_label,
    render::naive,
    sky::{self, Allowed, Note, Options, TaskFile},
    spec::Mount,
    view::{VolumePhase, VolumeViews},
    volume::VolumeSpec,
};
use fedq_store::{PageRequest, TaskFilter, TaskRow, VolumeRow};
use fedq_wire::k8s_cli::{
    Health, Operation, TaskListResponse, TaskStatus, TaskStopAllResponse, TaskStopResponse,
    TaskSubmitResponse, VolumeDefinition, VolumeListResponse, VolumeResponse, VolumeStatus,
};

/// Finished tasks that are listed: its client prints them all at once.
const FINISHED: u32 = 1000;

pub fn router(state: &State) -> Router<State> {
    Router::new()
        .route("/", get(async || Json(Health::default())))
        .route("/openapi.json", get(async || Redirect::temporary("/api/v1/openapi.json")))
        .route("/tasks", get(list_tasks))
        .route("/tasks/", get(without_slash).post(without_slash))
        .route(
            "/tasks/submit",
            post(submit).get(async |user, state| get_task(user, state, own("submit")).await),
        )
        .route(
            "/tasks/stop",
            post(stop_all).get(async |user, state| get_task(user, state, own("stop")).await),
        )
        .route("/tasks/{task}", get(get_task))
        .route("/tasks/{task}/stop", post(stop))
        .route("/tasks/{task}/logs", get(logs))
        .route("/volumes", get(list_volumes))
        .route("/volumes/", get(without_slash).post(without_slash))
        .route(
            "/volumes/create",
            post(create_volume)
                .get(async |user, state| get_volume(user, state, own("create")).await)
                .delete(async |user, state| delete_volume(user, state, own("create")).await),
        )
        .route("/volumes/{volume}", get(get_volume).delete(delete_volume))
        .layer(axum::middleware::from_fn_with_state(state.clone(), mark))
}

/// What stands in a path's place is an id to whoever does not know better.
fn own(id: &str) -> Path<String> {
    Path(id.to_owned())
}

async fn without_slash(OriginalUri(uri): OriginalUri) -> Redirect {
    let path = uri.path().trim_end_matches('/');
    let target = uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    Redirect::temporary(&target)
}

#[derive(Debug, Default, Deserialize)]
struct Strictness {
    strict: Option<String>,
}

async fn submit(
    User(owner): User,
    Extract(state): Extract<State>,
    Query(query): Query<Strictness>,
    body: std::result::Result<Bytes, BytesRejection>,
) -> Result<Json<TaskSubmitResponse>> {
    let strict = query.strict.is_some_and(|text| matches!(text.as_str(), "1" | "true"));
    let pods = Allowed::By(owner.rule.pods.clone());
    let options = Options { strict, pods, ..Options::default() };
    let mut file = sky::read_request(&body?, &options).map_err(|error| Refusal::task(&error))?;
    let failed = |failure| Refusal::failed(Operation::SubmitTask, failure);
    if !strict {
        keep_together(&state, &owner, &mut file).await.map_err(failed)?;
    }
    let warnings = file.warnings.clone();
    let wanted = Wanted::default();
    let checked = task::check(&state, &owner, file, &wanted).await.map_err(failed)?;
    let row = task::single(task::accept(&state, &owner, &wanted, checked).await.map_err(failed)?);
    Ok(Json(TaskSubmitResponse::new(&row.id, &warnings)))
}

/// Its users hand in tasks of several nodes with volumes that one machine can mount, so their nodes go to one.
async fn keep_together(
    state: &State,
    owner: &Owner,
    file: &mut TaskFile,
) -> std::result::Result<(), Failure> {
    for task in file.tasks.iter_mut().filter(|task| 1 < task.spec.num_nodes && !task.spec.volumes.is_empty())
    {
        let own = state.store.volumes(Some(owner.user())).await?;
        let is_of_one = |mount: &&Mount| {
            own.iter().any(|volume| volume.spec.name() == mount.volume && !volume.spec.is_shared())
        };
        let Some(volume) = task.spec.volumes.iter().find(is_of_one).map(|mount| mount.volume.clone()) else {
            continue;
        };
        let message =
            format!("{volume} can be mounted by one machine only, so all nodes of the task go to one");
        file.warnings.push(Note { place: None, path: "volumes".to_owned(), message });
        task.spec.one_machine = true;
    }
    Ok(())
}

async fn list_tasks(
    User(owner): User,
    Extract(state): Extract<State>,
    RawQuery(query): RawQuery,
) -> Result<Json<TaskListResponse>> {
    let all_users = refusal::all_users(query.as_deref())?;
    let failed = |failure| Refusal::failed(Operation::ListTasks, failure);
    let whose = owner.whose(&state, all_users, "list", TASKS).await.map_err(failed)?;
    let live = TaskFilter { owner: whose.clone(), over: Some(false), wrapped: None };
    let mut rows = task::all(&state, &live).await.map_err(failed)?;
    let over = TaskFilter { owner: whose, over: Some(true), wrapped: None };
    let over = state.store.tasks(&over, &PageRequest::first(FINISHED)).await;
    rows.extend(over.map_err(|error| failed(error.into()))?.items);
    let views = state.task_views.borrow().clone();
    let records: Vec<_> = rows.iter().map(|row| task::record(row, &views)).collect();
    Ok(Json(TaskListResponse::of(&records, state.clock.now())))
}

async fn get_task(
    User(owner): User,
    Extract(state): Extract<State>,
    Path(id): Path<String>,
) -> Result<Json<TaskStatus>> {
    let failed = |failure| Refusal::of_task(&id, Operation::GetTask, failure);
    let row = task::find(&state, &owner, &id, "get", TASKS).await.map_err(failed)?;
    let record = task::record(&row, &state.task_views.borrow());
    TaskStatus::of(&record, state.clock.now()).map(Json).ok_or_else(|| Refusal::no_task(&id))
}

async fn stop(
    User(owner): User,
    Extract(state): Extract<State>,
    Path(id): Path<String>,
) -> Result<Json<TaskStopResponse>> {
    let failed = |failure| Refusal::of_task(&id, Operation::StopTask, failure);
    let row: TaskRow = task::find(&state, &owner, &id, "delete", TASKS).await.map_err(failed)?;
    if task::record(&row, &state.task_views.borrow()).is_stopped() {
        return Err(Refusal::no_task(&id));
    }
    let row = task::stop(&state, &owner, row).await.map_err(failed)?;
    Ok(Json(TaskStopResponse::new(&row.id)))
}

async fn logs(
    User(owner): User,
    Extract(state): Extract<State>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response> {
    let failed = |failure| Refusal::of_task(&id, Operation::GetTask, failure);
    let row = task::find(&state, &owner, &id, "get", LOGS).await.map_err(failed)?;
    let (again, asked, named, whose) =
        (state.clone(), headers.clone(), owner.user().to_owned(), row.owner.clone());
    let review = move || {
        let (state, headers, named, whose) = (again.clone(), asked.clone(), named.clone(), whose.clone());
        async move { task::logs::may_read(&state, &known(&state, &headers, named).await?, &whose).await }
            .boxed()
    };
    let held = Held::stream(&state, owner.user(), Box::new(review)).await.map_err(failed)?;
    Ok(task::logs::text(&state, &owner, &row, &headers, held).await)
}

async fn stop_all(
    User(owner): User,
    Extract(state): Extract<State>,
    RawQuery(query): RawQuery,
) -> Result<Json<TaskStopAllResponse>> {
    let all_users = refusal::all_users(query.as_deref())?;
    let stopped = task::stop_all(&state, &owner, all_users).await;
    let stopped = stopped.map_err(|failure| Refusal::failed(Operation::StopAllTasks, failure))?;
    Ok(Json(TaskStopAllResponse::new(stopped.len(), all_users)))
}

async fn create_volume(
    User(owner): User,
    Extract(state): Extract<State>,
    body: std::result::Result<Bytes, BytesRejection>,
) -> Result<Json<VolumeResponse>> {
    let asked: VolumeDefinition = refusal::volume_definition(&body?)?;
    let modes = asked.access_modes.as_deref();
    let spec = VolumeSpec::new(&asked.name, &asked.size, asked.storage_class.as_deref(), modes);
    let spec = spec.map_err(|error| Refusal::field(error.field(), &volume::chain(&error)))?;
    let row = volume::create(&state, &owner, spec, None).await;
    let row = row.map_err(|failure| Refusal::failed(Operation::CreateVolume, failure))?;
    Ok(Json(VolumeResponse::created(&row.id)))
}

async fn list_volumes(
    User(owner): User,
    Extract(state): Extract<State>,
    RawQuery(query): RawQuery,
) -> Result<Json<VolumeListResponse>> {
    let all_users = refusal::all_users(query.as_deref())?;
    let failed = |failure| Refusal::failed(Operation::ListVolumes, failure);
    let whose = owner.whose(&state, all_users, "list", VOLUMES).await.map_err(failed)?;
    let rows = state.store.volumes(whose.as_deref()).await.map_err(|error| failed(error.into()))?;
    let views = state.volume_views.borrow();
    let there = rows.iter().filter(|row| !row.deleting);
    Ok(Json(VolumeListResponse { volumes: there.map(|row| status(row, &views)).collect() }))
}

async fn get_volume(
    User(owner): User,
    Extract(state): Extract<State>,
    Path(id): Path<String>,
) -> Result<Json<VolumeStatus>> {
    let failed = |failure| Refusal::of_volume(&id, Operation::GetVolume, failure);
    let row = volume::find(&state, &owner, &id, "get").await.map_err(failed)?;
    if row.deleting {
        return Err(Refusal::no_volume(&id));
    }
    Ok(Json(status(&row, &state.volume_views.borrow())))
}

async fn delete_volume(
    User(owner): User,
    Extract(state): Extract<State>,
    Path(id): Path<String>,
) -> Result<Json<VolumeResponse>> {
    let failed = |failure| Refusal::of_volume(&id, Operation::DeleteVolume, failure);
    let row = volume::find(&state, &owner, &id, "delete").await.map_err(failed)?;
    if row.deleting {
        return Err(Refusal::no_volume(&id));
    }
    let row = volume::delete(&state, &owner, row).await.map_err(failed)?;
    Ok(Json(VolumeResponse::deleted(&row.id)))
}

fn status(row: &VolumeRow, views: &VolumeViews) -> VolumeStatus {
    // PersistentVolumeClaims have no other words.
    let word = match volume::phase(row, views) {
        VolumePhase::Unknown => VolumePhase::Pending.word(),
        phase => phase.word(),
    };
    let mut metadata = serde_json::Map::new();
    metadata.insert("pvc_name".to_owned(), row.spec.claim_name(&row.id).into());
    metadata.insert("namespace".to_owned(), row.namespace.clone().into());
    if let Some(cluster) = &row.cluster {
        metadata.insert("cluster".to_owned(), cluster.to_string().into());
    }
    VolumeStatus {
        volume_id: row.id.to_string(),
        name: row.spec.name().to_owned(),
        size: row.spec.size().to_owned(),
        storage_class: row.spec.storage_class().map(str::to_owned),
        access_modes: row.spec.access_modes().to_vec(),
        status: word.to_owned(),
        created_at: naive(row.created),
        username: user_label(&row.owner),
        metadata,
    }
}
