//! Volumes: wanted and no longer wanted. The controllers make and delete them on their clusters.

use axum::{
    extract::State as Extract,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::{
    Failure, State,
    audit::{self, Deed},
    extract::{Json, Path, Query},
    object::Object,
    owner::{Owner, VOLUMES},
    stream,
    task::all,
};
use fedq_domain::task::{
    names::TaskId,
    view::{VolumePhase, VolumeViews},
    volume::{VolumeError, VolumeSpec},
};
use fedq_store::{TaskFilter, VolumeRow};
use fedq_values::ids::ClusterName;
use fedq_wire::{
    list::List,
    problem::{Cause, Code},
    volume::{AdoptVolume, CreateVolume, Volume, VolumesQuery},
};

pub mod adopt;

/// Ids drawn in vain before something must be wrong.
const DRAWS: usize = 8;

/// Makes a volume, which tasks of its owner mount by its name.
///
/// Takes the right to `create` `volumes.fedq.dev` in the tenant's namespace on the hub.
#[utoipa::path(
    post, path = "/volumes", tag = "volumes", request_body = CreateVolume,
    responses((status = CREATED, body = Volume))
)]
pub async fn create_volume(
    owner: Owner,
    Extract(state): Extract<State>,
    Json(asked): Json<CreateVolume>,
) -> Result<Response, Failure> {
    let modes = asked.access_modes.as_deref();
    let spec = VolumeSpec::new(&asked.name, &asked.size, asked.storage_class.as_deref(), modes);
    let spec = spec.map_err(|error| refused(&error))?;
    let cluster = asked.cluster.as_deref().map(ClusterName::new).transpose();
    let cluster = cluster.map_err(|error| Failure::field("cluster", &error))?;
    let row = create(&state, &owner, spec, cluster).await?;
    Ok(created(&row, &state))
}

/// Makes a volume of a PersistentVolumeClaim that is there already, in the tenant's namespace on a joined cluster. fedq does
/// not delete the claim: when the volume is deleted, fedq forgets it.
///
/// Takes the right to `create` `volumes.fedq.dev` in the tenant's namespace on the hub, and to `create` the subresource
/// `volumes/adopt` of the claim's name there.
#[utoipa::path(
    post, path = "/volume-adoptions", tag = "volumes", request_body = AdoptVolume,
    responses((status = CREATED, body = Volume))
)]
pub async fn adopt_volume(
    owner: Owner,
    Extract(state): Extract<State>,
    Json(asked): Json<AdoptVolume>,
) -> Result<Response, Failure> {
    let row = adopt::adopt(&state, &owner, &asked).await?;
    Ok(created(&row, &state))
}

fn created(row: &VolumeRow, state: &State) -> Response {
    let location = [(header::LOCATION, format!("/api/v1/volumes/{}", row.id))];
    (StatusCode::CREATED, location, Json(show(row, state, &[]))).into_response()
}

fn refused(error: &VolumeError) -> Failure {
    // The domain names them as k8s-cli does.
    let field = match error.field() {
        "access_modes" => "accessModes",
        "storage_class" => "storageClass",
        other => other,
    };
    invalid(field, chain(error))
}

fn invalid(field: &str, message: String) -> Failure {
    let mut failure =
        Failure::new(StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid, "the volume is not valid");
    failure.0.causes = vec![Cause::new(field, message)];
    failure
}

/// With what is wrong with a part of it.
pub fn chain(error: &VolumeError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// Accepts a volume.
pub async fn create(
    state: &State,
    owner: &Owner,
    spec: VolumeSpec,
    cluster: Option<ClusterName>,
) -> Result<VolumeRow, Failure> {
    owner.may(state, "create", VOLUMES).await?;
    if let Some(cluster) = &cluster {
        state.must_be_joined(cluster).await?;
    }
    insert(state, owner, spec, cluster).await
}

async fn insert(
    state: &State,
    owner: &Owner,
    spec: VolumeSpec,
    cluster: Option<ClusterName>,
) -> Result<VolumeRow, Failure> {
    let mut row = VolumeRow {
        made: false,
        lost: false,
        id: TaskId::draw(fastrand::u64(..)),
        owner: owner.user().to_owned(),
        namespace: owner.namespace().to_owned(),
        cluster,
        spec,
        created: state.clock.now(),
        deleting: false,
    };
    for _ in 0..DRAWS {
        let entry = audit::entry(state, owner, made(&row));
        if state.store.insert_volume(&row, Some(entry)).await? {
            state.task_signal.notify_one();
            return Ok(row);
        }
        let own = state.store.volumes(Some(&row.owner)).await?;
        if own.iter().any(|volume| volume.spec.name() == row.spec.name()) {
            let detail = format!("you have a volume `{}` already", row.spec.name());
            return Err(Failure::new(StatusCode::CONFLICT, Code::AlreadyExists, detail)
                .next("choose another name: tasks mount volumes by name"));
        }
        row.id = TaskId::draw(fastrand::u64(..));
    }
    Err(Failure::new(StatusCode::CONFLICT, Code::AlreadyExists, "every id that was drawn is taken")
        .next("try again"))
}

fn made(row: &VolumeRow) -> Deed {
    let (name, object) = (row.spec.name(), format!("volumes/{}", row.id));
    if row.spec.is_adopted() {
        let (cluster, claim) = (&row.cluster, row.spec.claim_name(&row.id));
        let detail = json!({
            "name": name, "cluster": cluster, "claim": format!("{}/{claim}", row.namespace),
            "readOnly": row.spec.is_read_only(),
        });
        return Deed { verb: "adopt", object, detail: Some(detail), dry_run: false };
    }
    let detail = json!({"name": name, "size": row.spec.size()});
    Deed { verb: "create", object, detail: Some(detail), dry_run: false }
}

/// One's own volumes, oldest first.
#[utoipa::path(
    get, path = "/volumes", tag = "volumes", params(VolumesQuery),
    responses((status = OK, body = List<Volume>))
)]
pub async fn list_volumes(
    owner: Owner,
    Extract(state): Extract<State>,
    Query(query): Query<VolumesQuery>,
) -> Result<Json<List<Volume>>, Failure> {
    let whose = owner.whose(&state, query.all_users, "list", VOLUMES).await?;
    let rows = state.store.volumes(whose.as_deref()).await?;
    let uses = uses(&state, whose).await?;
    // Two may be made at once; the id tells them apart.
    let key = |row: &VolumeRow| format!("{:020} {}", row.created.as_nanosecond(), row.id);
    let mut rows: Vec<_> = rows.into_iter().map(|row| (key(&row), row)).collect();
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    let List { items, next } = stream::page(rows, query.limit, query.next.as_deref())?;
    let items = items.iter().map(|row| show(row, &state, &used_by(row, &uses))).collect();
    Ok(Json(List { items, next }))
}

/// One volume.
#[utoipa::path(
    get, path = "/volumes/{volume}", tag = "volumes", params(("volume" = String, Path)),
    responses((status = OK, body = Volume))
)]
pub async fn get_volume(
    owner: Owner,
    Extract(state): Extract<State>,
    Path(id): Path<String>,
) -> Result<Object<Volume>, Failure> {
    let row = find(&state, &owner, &id, "get").await?;
    let uses = uses(&state, Some(row.owner.clone())).await?;
    Ok(Object::new(show(&row, &state, &used_by(&row, &uses))))
}

/// Deletes a volume with what is in it, unless a task uses it. Of one that was adopted, the claim stays.
///
/// Takes the right to `delete` `volumes.fedq.dev` in the tenant's namespace on the hub.
#[utoipa::path(
    delete, path = "/volumes/{volume}", tag = "volumes", params(("volume" = String, Path)),
    responses((status = ACCEPTED, body = Volume))
)]
pub async fn delete_volume(
    owner: Owner,
    Extract(state): Extract<State>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Volume>), Failure> {
    let row = find(&state, &owner, &id, "delete").await?;
    let row = delete(&state, &owner, row).await?;
    Ok((StatusCode::ACCEPTED, Json(show(&row, &state, &[]))))
}

pub async fn delete(state: &State, owner: &Owner, row: VolumeRow) -> Result<VolumeRow, Failure> {
    let used = used_by(&row, &uses(state, Some(row.owner.clone())).await?);
    if !used.is_empty() {
        let detail = format!("volume `{}` is used by {}", row.spec.name(), used.join(", "));
        return Err(Failure::new(StatusCode::CONFLICT, Code::Conflict, detail)
            .next("wait until they are over, or stop them: fedq task stop ID"));
    }
    let outcome = state.store.delete_volume(&row.id).await.map_err(Failure::from);
    state.task_signal.notify_one();
    let detail = Some(json!({"name": row.spec.name(), "owner": row.owner}));
    let deed = Deed { verb: "delete", object: format!("volumes/{}", row.id), detail, dry_run: false };
    audit::record(state, owner, deed, outcome.as_ref().map(|_| ())).await;
    outcome?;
    Ok(VolumeRow { deleting: true, ..row })
}

/// By name or id. Somebody else's is told of as one that is not there.
pub async fn find(state: &State, owner: &Owner, id: &str, verb: &'static str) -> Result<VolumeRow, Failure> {
    let missing = || {
        let id: String = id.escape_debug().take(80).collect();
        Failure::not_found(format!("there is no volume `{id}`")).next("fedq volume list shows yours")
    };
    let by_id = match TaskId::parse(id) {
        Some(id) => state.store.volume(&id).await?,
        None => None,
    };
    let row = if let Some(row) = by_id {
        row
    } else {
        let own = state.store.volumes(Some(owner.user())).await?;
        own.into_iter().find(|volume| volume.spec.name() == id).ok_or_else(missing)?
    };
    if owner.reaches(state, &row.owner, verb, VOLUMES).await? { Ok(row) } else { Err(missing()) }
}

/// Which live tasks mount what: owner, name of the volume, id of the task.
async fn uses(state: &State, owner: Option<String>) -> Result<Vec<(String, String, String)>, Failure> {
    let rows = all(state, &TaskFilter { owner, over: Some(false), wrapped: None }).await?;
    let of_task = |row: fedq_store::TaskRow| {
        let (owner, id) = (row.owner, row.id.to_string());
        let mounts = row.spec.volumes.into_iter();
        mounts.map(move |mount| (owner.clone(), mount.volume, id.clone())).collect::<Vec<_>>()
    };
    Ok(rows.into_iter().flat_map(of_task).collect())
}

fn used_by(volume: &VolumeRow, uses: &[(String, String, String)]) -> Vec<String> {
    let name = volume.spec.name();
    let of_it = uses.iter().filter(|(owner, used, _)| *owner == volume.owner && used == name);
    let mut tasks: Vec<String> = of_it.map(|(_, _, task)| task.clone()).collect();
    tasks.dedup();
    tasks
}

/// What became of it, in Kubernetes' word.
pub fn phase(row: &VolumeRow, views: &VolumeViews) -> VolumePhase {
    if row.deleting {
        return VolumePhase::Deleting;
    }
    views.get(&row.id).map_or(VolumePhase::Pending, |state| state.phase)
}

fn show(row: &VolumeRow, state: &State, used_by: &[String]) -> Volume {
    let views = state.volume_views.borrow();
    let reason = views.get(&row.id).and_then(|state| state.reason.clone());
    let unplaced = || row.cluster.is_none().then(|| "no cluster is chosen for it yet".to_owned());
    Volume {
        id: row.id.to_string(),
        name: row.spec.name().to_owned(),
        user: row.owner.clone(),
        cluster: row.cluster.as_ref().map(ToString::to_string),
        namespace: row.namespace.clone(),
        size: row.spec.size().to_owned(),
        storage_class: row.spec.storage_class().map(str::to_owned),
        access_modes: row.spec.access_modes().to_vec(),
        state: phase(row, &views).word().to_owned(),
        reason: reason.or_else(unplaced),
        claim: row.spec.claim_name(&row.id),
        adopted: row.spec.is_adopted(),
        read_only: row.spec.is_read_only(),
        used_by: used_by.to_vec(),
        created: row.created.into(),
    }
}
