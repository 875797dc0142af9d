//! k8s-cli's routes, so that its own client works with fedq: the same tasks and volumes as under `/api/v1`, in
//! the shapes of `wire::k8s_cli`.

mod document;
mod form;
mod identity;
mod paths;
mod refusal;

use axum::{
    Json, Router,
    extract::{RawQuery, State as Extract},
    http::{HeaderMap, header},
    response::Response,
    routing::{MethodRouter, get, post},
};
use futures::FutureExt;

pub use self::paths::nowhere;
use self::{
    form::{Id, Posted},
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
    sky::{Allowed, Note, Options, TaskFile},
    spec::Mount,
    view::{VolumePhase, VolumeViews},
    volume::VolumeSpec,
};
use fedq_store::{PageRequest, TaskFilter, TaskRow, VolumeRow};
use fedq_wire::k8s_cli::{
    Detail, Health, Operation, TaskDefinition, TaskListResponse, TaskStatus, TaskStopAllResponse,
    TaskStopResponse, TaskSubmitResponse, ValidationErrors, VolumeDefinition, VolumeListResponse,
    VolumeResponse, VolumeStatus,
};

/// Finished tasks that are listed: its client prints them all at once.
const FINISHED: u32 = 1000;

pub fn router(state: &State) -> Router<State> {
    Router::new()
        .route("/", only("GET", get(health)))
        .route("/tasks", only("GET", get(list_tasks)))
        .route("/tasks/submit", only("GET, POST", get(get_task).post(submit)))
        .route("/tasks/stop", only("GET, POST", get(get_task).post(stop_all)))
        .route("/tasks/{task}", only("GET", get(get_task)))
        .route("/tasks/{task}/stop", only("POST", post(stop)))
        .route("/tasks/{task}/logs", only("GET", get(logs)))
        .route("/volumes", only("GET", get(list_volumes)))
        .route(
            "/volumes/create",
            only("DELETE, GET, POST", get(get_volume).post(create_volume).delete(delete_volume)),
        )
        .route("/volumes/{volume}", only("DELETE, GET", get(get_volume).delete(delete_volume)))
        .layer(axum::middleware::from_fn_with_state(state.clone(), mark))
        .merge(document::router())
}

/// FastAPI's routes take no HEAD, and say so in its words. `allow`: what they take.
fn only(allow: &'static str, routes: MethodRouter<State>) -> MethodRouter<State> {
    let refuse = async move || ([(header::ALLOW, allow)], Refusal::method());
    routes.head(refuse).fallback(refuse)
}

/// Whether it is there.
#[utoipa::path(
    get,
    path = "/",
    tag = "server",
    responses(
        (status = 200, description = "Done", body = Health)
    )
)]
async fn health() -> Json<Health> {
    Json(Health::default())
}

#[utoipa::path(
    post,
    path = "/tasks/submit",
    tag = "tasks",
    params(
        ("x-user" = String, Header, description = "Whose it is"),
        ("strict" = Option<bool>, Query, description = "Fields without effect are errors; fedq's own")
    ),
    request_body = TaskDefinition,
    responses(
        (status = 200, description = "Done", body = TaskSubmitResponse),
        (status = 422, description = "The request has not the right form", body = ValidationErrors),
        (status = 500, description = "It failed", body = Detail)
    )
)]
async fn submit(
    Extract(state): Extract<State>,
    RawQuery(query): RawQuery,
    Posted { user, headers, body }: Posted,
) -> Result<Json<TaskSubmitResponse>> {
    let strict = form::strict(query.as_deref());
    let pods =
        user.as_ref().map_or_else(|_| Allowed::Unknown, |User(owner)| Allowed::By(owner.rule.pods.clone()));
    let limits = user.as_ref().map(|User(owner)| owner.rule.limits).unwrap_or_default();
    let options = Options { strict, pods, limits, ..Options::default() };
    let (User(owner), mut file) = form::both(user, form::task(&headers, body, &options))?;
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

#[utoipa::path(
    get,
    path = "/tasks",
    tag = "tasks",
    params(
        ("x-user" = String, Header, description = "Whose it is"),
        ("all_users" = Option<bool>, Query, description = "Everybody's, which takes a right; one's own otherwise")
    ),
    responses(
        (status = 200, description = "Done", body = TaskListResponse),
        (status = 422, description = "The request has not the right form", body = ValidationErrors),
        (status = 500, description = "It failed", body = Detail)
    )
)]
async fn list_tasks(
    user: Result<User>,
    Extract(state): Extract<State>,
    RawQuery(query): RawQuery,
) -> Result<Json<TaskListResponse>> {
    let (all_users, User(owner)) = form::both(form::all_users(query.as_deref()), user)?;
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

#[utoipa::path(
    get,
    path = "/tasks/{task}",
    tag = "tasks",
    params(
        ("task" = String, Path, description = "Its id"),
        ("x-user" = String, Header, description = "Whose it is")
    ),
    responses(
        (status = 200, description = "Done", body = TaskStatus),
        (status = 422, description = "The request has not the right form", body = ValidationErrors),
        (status = 404, description = "There is no such task", body = Detail)
    )
)]
async fn get_task(User(owner): User, Extract(state): Extract<State>, Id(id): Id) -> Result<Json<TaskStatus>> {
    let failed = |failure| Refusal::of_task(&id, Operation::GetTask, failure);
    let row = task::find(&state, &owner, &id, "get", TASKS).await.map_err(failed)?;
    let record = task::record(&row, &state.task_views.borrow());
    TaskStatus::of(&record, state.clock.now()).map(Json).ok_or_else(|| Refusal::no_task(&id))
}

#[utoipa::path(
    post,
    path = "/tasks/{task}/stop",
    tag = "tasks",
    params(
        ("task" = String, Path, description = "Its id"),
        ("x-user" = String, Header, description = "Whose it is")
    ),
    responses(
        (status = 200, description = "Done", body = TaskStopResponse),
        (status = 422, description = "The request has not the right form", body = ValidationErrors),
        (status = 404, description = "There is no such task", body = Detail),
        (status = 500, description = "It failed", body = Detail)
    )
)]
async fn stop(
    User(owner): User,
    Extract(state): Extract<State>,
    Id(id): Id,
) -> Result<Json<TaskStopResponse>> {
    let failed = |failure| Refusal::of_task(&id, Operation::StopTask, failure);
    let row: TaskRow = task::find(&state, &owner, &id, "delete", TASKS).await.map_err(failed)?;
    if task::record(&row, &state.task_views.borrow()).is_stopped() {
        return Err(Refusal::no_task(&id));
    }
    let row = task::stop(&state, &owner, row).await.map_err(failed)?;
    Ok(Json(TaskStopResponse::new(&row.id)))
}

#[utoipa::path(
    get,
    path = "/tasks/{task}/logs",
    tag = "tasks",
    params(
        ("task" = String, Path, description = "Its id"),
        ("x-user" = String, Header, description = "Whose it is")
    ),
    responses(
        (status = 200, description = "Lines as they come", body = String, content_type = "text/plain; charset=utf-8"),
        (status = 422, description = "The request has not the right form", body = ValidationErrors),
        (status = 404, description = "There is no such task", body = Detail)
    )
)]
async fn logs(
    User(owner): User,
    Extract(state): Extract<State>,
    Id(id): Id,
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

#[utoipa::path(
    post,
    path = "/tasks/stop",
    tag = "tasks",
    params(
        ("x-user" = String, Header, description = "Whose it is"),
        ("all_users" = Option<bool>, Query, description = "Everybody's, which takes a right; one's own otherwise")
    ),
    responses(
        (status = 200, description = "Done", body = TaskStopAllResponse),
        (status = 422, description = "The request has not the right form", body = ValidationErrors),
        (status = 500, description = "It failed", body = Detail)
    )
)]
async fn stop_all(
    user: Result<User>,
    Extract(state): Extract<State>,
    RawQuery(query): RawQuery,
) -> Result<Json<TaskStopAllResponse>> {
    let (all_users, User(owner)) = form::both(form::all_users(query.as_deref()), user)?;
    let stopped = task::stop_all(&state, &owner, all_users).await;
    let stopped = stopped.map_err(|failure| Refusal::failed(Operation::StopAllTasks, failure))?;
    Ok(Json(TaskStopAllResponse::new(stopped.len(), all_users)))
}

#[utoipa::path(
    post,
    path = "/volumes/create",
    tag = "volumes",
    params(
        ("x-user" = String, Header, description = "Whose it is")
    ),
    request_body = VolumeDefinition,
    responses(
        (status = 200, description = "Done", body = VolumeResponse),
        (status = 422, description = "The request has not the right form", body = ValidationErrors),
        (status = 500, description = "It failed", body = Detail)
    )
)]
async fn create_volume(
    Extract(state): Extract<State>,
    Posted { user, headers, body }: Posted,
) -> Result<Json<VolumeResponse>> {
    let (User(owner), asked) = form::both(user, form::volume_definition(&headers, body))?;
    let modes = asked.access_modes.as_deref();
    let spec = VolumeSpec::new(&asked.name, &asked.size, asked.storage_class.as_deref(), modes);
    let spec = spec.map_err(|error| Refusal::field(error.field(), &volume::chain(&error)))?;
    let row = volume::create(&state, &owner, spec, None).await;
    let row = row.map_err(|failure| Refusal::failed(Operation::CreateVolume, failure))?;
    Ok(Json(VolumeResponse::created(&row.id)))
}

#[utoipa::path(
    get,
    path = "/volumes",
    tag = "volumes",
    params(
        ("x-user" = String, Header, description = "Whose it is"),
        ("all_users" = Option<bool>, Query, description = "Everybody's, which takes a right; one's own otherwise")
    ),
    responses(
        (status = 200, description = "Done", body = VolumeListResponse),
        (status = 422, description = "The request has not the right form", body = ValidationErrors),
        (status = 500, description = "It failed", body = Detail)
    )
)]
async fn list_volumes(
    user: Result<User>,
    Extract(state): Extract<State>,
    RawQuery(query): RawQuery,
) -> Result<Json<VolumeListResponse>> {
    let (all_users, User(owner)) = form::both(form::all_users(query.as_deref()), user)?;
    let failed = |failure| Refusal::failed(Operation::ListVolumes, failure);
    let whose = owner.whose(&state, all_users, "list", VOLUMES).await.map_err(failed)?;
    let rows = state.store.volumes(whose.as_deref()).await.map_err(|error| failed(error.into()))?;
    let views = state.volume_views.borrow();
    let there = rows.iter().filter(|row| !row.deleting);
    Ok(Json(VolumeListResponse { volumes: there.map(|row| status(row, &views)).collect() }))
}

#[utoipa::path(
    get,
    path = "/volumes/{volume}",
    tag = "volumes",
    params(
        ("volume" = String, Path, description = "Its id"),
        ("x-user" = String, Header, description = "Whose it is")
    ),
    responses(
        (status = 200, description = "Done", body = VolumeStatus),
        (status = 422, description = "The request has not the right form", body = ValidationErrors),
        (status = 404, description = "There is no such volume", body = Detail)
    )
)]
async fn get_volume(
    User(owner): User,
    Extract(state): Extract<State>,
    Id(id): Id,
) -> Result<Json<VolumeStatus>> {
    let failed = |failure| Refusal::of_volume(&id, Operation::GetVolume, failure);
    let row = volume::find(&state, &owner, &id, "get").await.map_err(failed)?;
    if row.deleting {
        return Err(Refusal::no_volume(&id));
    }
    Ok(Json(status(&row, &state.volume_views.borrow())))
}

#[utoipa::path(
    delete,
    path = "/volumes/{volume}",
    tag = "volumes",
    params(
        ("volume" = String, Path, description = "Its id"),
        ("x-user" = String, Header, description = "Whose it is")
    ),
    responses(
        (status = 200, description = "Done", body = VolumeResponse),
        (status = 422, description = "The request has not the right form", body = ValidationErrors),
        (status = 404, description = "There is no such volume", body = Detail),
        (status = 500, description = "It failed", body = Detail)
    )
)]
async fn delete_volume(
    User(owner): User,
    Extract(state): Extract<State>,
    Id(id): Id,
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
