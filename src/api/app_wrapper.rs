//! AppWrappers, handed in. Everything else about one is asked where it is asked of a task: it is one that is made of
//! objects.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    extract::State as Extract,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::{StreamExt, TryStreamExt, stream};

use super::{
    Failure, State,
    extract::{DryRun, Json, Query},
    owner::{Owner, TASKS},
    task::{Wanted, accept, check, refused, submitted, verdicts},
};
use fedq_domain::task::{
    sky::{TaskFile, duration},
    wrapped::{Wrapped, WrappedFile, WrappedObject, read_manifest},
};
use fedq_wire::{
    problem::{Cause, Code},
    task::{SubmitAppWrapper, Submitted},
};

/// Kinds that the hub is asked about at a time.
const AT_ONCE: usize = 8;
/// The hub is asked twice about each; nobody wraps so many.
const MAX_KINDS: usize = 50;

/// Hands an AppWrapper in. Once it is answered it is stored, and goes to the cluster that has quota for its pods; there the
/// cluster's controller makes what it wraps. It is looked at and stopped as a task is.
///
/// Takes the right to `create` `tasks.fedq.dev` in the tenant's namespace on the hub, and there the right to `create` every
/// object that it wraps.
#[utoipa::path(
    post, path = "/appwrappers", tag = "tasks", params(DryRun), request_body = SubmitAppWrapper,
    responses((status = CREATED, body = Submitted), (status = OK, body = Submitted))
)]
pub async fn submit_app_wrapper(
    owner: Owner,
    Extract(state): Extract<State>,
    Query(dry_run): Query<DryRun>,
    Json(asked): Json<SubmitAppWrapper>,
) -> Result<Response, Failure> {
    let SubmitAppWrapper { file, id, queue, cluster, max_duration, unwrap } = asked;
    let max_duration = max_duration.map(|text| run_time(&text)).transpose()?;
    let wanted = Wanted::read(id.as_deref(), queue, cluster.as_deref())?;
    owner.may(&state, "create", TASKS).await?;
    let read = read_manifest(file.as_bytes(), owner.namespace()).map_err(|error| {
        let mut failure = refused(&error);
        "the AppWrapper cannot be run".clone_into(&mut failure.0.detail);
        failure
    })?;
    let WrappedFile { mut task, warnings } = read;
    task.spec.max_duration = max_duration;
    if let Some(wrapped) = &mut task.spec.wrapped {
        wrapped.user_id.clone_from(&owner.caller.uid);
        wrapped.unwrap = unwrap;
        if unwrap {
            may_unwrap(&state, wrapped)?;
        }
        may_create(&state, &owner, &wrapped.objects()).await?;
    }
    let told = warnings.iter().map(ToString::to_string).collect();
    let file = TaskFile { name: None, tasks: vec![task], warnings };
    let checked = check(&state, &owner, file, &wanted).await?;
    let dry_run = dry_run.is_set();
    let said = checked.iter().map(|one| if dry_run { verdicts(&one.choice) } else { Vec::new() }).collect();
    let rows = if dry_run {
        checked.into_iter().map(|one| one.row).collect()
    } else {
        accept(&state, &owner, &wanted, checked).await?
    };
    let submitted = Submitted { warnings: told, dry_run, ..submitted(&state, rows, said) };
    if dry_run {
        return Ok(Json(submitted).into_response());
    }
    let location = [(header::LOCATION, format!("/api/v1/tasks/{}", submitted.id))];
    Ok((StatusCode::CREATED, location, Json(submitted)).into_response())
}

fn run_time(text: &str) -> Result<Duration, Failure> {
    duration(text).filter(|time| !time.is_zero()).ok_or_else(|| {
        let wrong = "takes seconds, or a number with s, m, h or d, and a second at least";
        let detail = format!("maxDuration: {wrong}");
        let mut failure = Failure::new(StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid, detail);
        failure.0.causes = vec![Cause::new("maxDuration", wrong)];
        failure
    })
}

/// The clusters' consent to what AppWrappers make is the rights of who makes it there; this Job is made with fedqd's own.
fn may_unwrap(state: &State, wrapped: &Wrapped) -> Result<(), Failure> {
    if !state.unwrap_jobs {
        let detail = "unwrap: this fedqd makes no Jobs that were handed in as they are";
        return Err(Failure::new(StatusCode::FORBIDDEN, Code::Forbidden, detail)
            .next("submit it without --unwrap, or have tasks.unwrapJobs of fedqd switched on"));
    }
    if wrapped.only_job().is_some() {
        return Ok(());
    }
    let kinds: Vec<_> = wrapped.components.iter().filter_map(|one| one.template["kind"].as_str()).collect();
    let detail = format!("unwrap: takes an AppWrapper of one Job, and this one wraps {}", kinds.join(", "));
    Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid, detail)
        .next("submit it without --unwrap, or wrap the Job alone"))
}

/// Nobody gets by way of an AppWrapper what they could not make by themselves. It is asked of the hub: the clusters see fedq,
/// whoever it was.
async fn may_create(state: &State, owner: &Owner, objects: &[WrappedObject]) -> Result<(), Failure> {
    let mut kinds: BTreeMap<(&str, &str), Vec<&WrappedObject>> = BTreeMap::new();
    for object in objects {
        kinds.entry((&object.api_version, &object.kind)).or_default().push(object);
    }
    if MAX_KINDS < kinds.len() {
        let detail = format!("the AppWrapper wraps objects of {} kinds, of at most {MAX_KINDS}", kinds.len());
        return Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid, detail)
            .next("part it into several AppWrappers"));
    }
    let mut asked = Vec::new();
    for kind in kinds.keys() {
        asked.push(may_create_kind(state, owner, *kind));
    }
    let answers: Vec<_> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
    let mut causes = Vec::new();
    let mut unknown = false;
    for (refusal, objects) in answers.into_iter().zip(kinds.into_values()) {
        let Some(refusal) = refusal else { continue };
        unknown |= refusal.unknown;
        causes.extend(objects.iter().map(|object| Cause::new(object.field.clone(), refusal.message.clone())));
    }
    if causes.is_empty() {
        return Ok(());
    }
    let user = owner.user();
    let detail = format!("user \"{user}\" may not create everything that the AppWrapper wraps");
    let (status, code) = if unknown {
        (StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid)
    } else {
        (StatusCode::FORBIDDEN, Code::Forbidden)
    };
    let mut failure = Failure::new(status, code, detail)
        .next("ask an administrator of the hub for a Role that grants it in your namespace");
    failure.0.causes = causes;
    Err(failure)
}

struct Refusal {
    message: String,
    /// The hub does not know the kind, so nobody can be granted it.
    unknown: bool,
}

async fn may_create_kind(
    state: &State,
    owner: &Owner,
    (api_version, kind): (&str, &str),
) -> Result<Option<Refusal>, Failure> {
    let namespace = owner.namespace();
    let Some(served) = state.hub.kind(api_version, kind).await? else {
        let message = format!(
            "the hub does not know {kind} of {api_version}, so it cannot say whether you may create one: have its \
             CustomResourceDefinition installed on the hub"
        );
        return Ok(Some(Refusal { message, unknown: true }));
    };
    if !served.namespaced {
        let message = format!("{kind} has no namespace: AppWrappers cannot create objects that have none");
        return Ok(Some(Refusal { message, unknown: true }));
    }
    let answer = state.hub.may_create(&owner.caller, &served, namespace).await?;
    Ok(answer.err().map(|reason| {
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let resource = &served.resource;
        let message = format!("you may not create {resource} in namespace {namespace} of the hub{reason}");
        Refusal { message, unknown: false }
    }))
}
