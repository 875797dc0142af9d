//! Files that people send before the task that needs them: taken once, by the digest of what is sent.

pub(crate) mod archive;

use std::time::Duration;

use axum::{
    body::Body,
    extract::{Request, State as Extract},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use http_body_util::BodyExt;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, timeout_at};

use self::archive::Holds;
use super::{
    Failure, State,
    extract::{Json, Path},
    object::Object,
    owner::{Owner, TASKS},
};
use fedq_domain::task::upload::{Archive, Digest, MAX_GROWTH};
use fedq_store::NewUpload;
use fedq_wire::{problem::Code, upload::Upload};

/// What people may send with their tasks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UploadBounds {
    /// Of one task.
    pub one_task: u64,
    /// Of one person, whether or not a task still needs it.
    pub one_person: u64,
}

/// Whether an archive has to be sent, or is here already, and how large it may be.
///
/// The digest is the SHA-256 of a `tar.gz`. Takes the right to `create` `tasks.fedq.dev` in the tenant's namespace on the hub.
#[utoipa::path(
    get, path = "/uploads/{digest}", tag = "tasks", params(("digest" = String, Path)),
    responses((status = OK, body = Upload))
)]
pub async fn get_upload(
    owner: Owner,
    Extract(state): Extract<State>,
    Path(digest): Path<String>,
) -> Result<Object<Upload>, Failure> {
    let digest = parse(&digest)?;
    owner.may(&state, "create", TASKS).await?;
    let found = state.store.use_upload(owner.user(), &digest, state.clock.now()).await?;
    Ok(Object::new(told(&state, digest, found.map(|archive| archive.bytes))))
}

/// Sends an archive that tasks of the same person may name then.
///
/// It is a `tar.gz` of files, folders and symbolic links that stay within it. One that holds a single file and nothing
/// else stands for that file. What no task names is gone again after `tasks.uploads.keepFor`. Takes the right to
/// `create` `tasks.fedq.dev` in the tenant's namespace on the hub.
#[utoipa::path(
    put, path = "/uploads/{digest}", tag = "tasks", params(("digest" = String, Path)),
    request_body(content = inline(String), content_type = "application/octet-stream"),
    responses((status = OK, body = Upload))
)]
pub async fn put_upload(
    owner: Owner,
    Extract(state): Extract<State>,
    Path(digest): Path<String>,
    request: Request,
) -> Result<Response, Failure> {
    let digest = parse(&digest)?;
    owner.may(&state, "create", TASKS).await?;
    let place = state.callers.upload(owner.user()).await?;
    let media = request.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    if media.is_none_or(|media| !media.trim().eq_ignore_ascii_case(BYTES)) {
        let detail = "the body must be a tar.gz, and its Content-Type application/octet-stream";
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::UnsupportedMediaType, detail));
    }
    let length =
        request.headers().get(header::CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse().ok());
    let data = receive(request.into_body(), length.unwrap_or(0), state.uploads.one_task).await?;
    let most = state.uploads.one_task.saturating_mul(MAX_GROWTH);
    let wanted = digest.clone();
    // Whoever hangs up meanwhile does not stop this, and has the place until it is over.
    let look = move || {
        let found = Digest::of(Sha256::digest(&data).into());
        let holds = (found == wanted).then(|| archive::inspect(&data, most));
        (found, holds, data, place)
    };
    let looked = tokio::task::spawn_blocking(look).await;
    let (found, holds, data, _place) =
        looked.map_err(|error| Failure::internal("the upload could not be looked at", &error))?;
    let Some(holds) = holds else {
        return Err(Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            Code::Invalid,
            format!("what arrived is not what the path names: its SHA-256 is {found}"),
        )
        .next("send it again"));
    };
    let holds = holds.map_err(|error| {
        let detail = format!("the archive is not taken: {error}");
        Failure::new(StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid, detail)
            .next("send a tar.gz of files, folders and symbolic links that stay within it")
    })?;
    let bytes = u64::try_from(data.len()).unwrap_or(u64::MAX);
    let archive = Archive { digest: digest.clone(), bytes, file: holds == Holds::File };
    let upload = NewUpload {
        owner: owner.user().to_owned(),
        archive,
        data,
        now: state.clock.now(),
        most: state.uploads.one_person,
    };
    if let Some(taken) = state.store.insert_upload(upload).await? {
        let most = state.uploads.one_person;
        let detail = format!(
            "what you sent for your tasks takes {taken} bytes and this would take {bytes} more, of at most {most}"
        );
        return Err(Failure::too_many_requests(detail).next(
            "wait for some tasks to end or stop them; tasks.uploads.maxPerUser of fedqd is the bound",
        ));
    }
    Ok(Json(told(&state, digest, Some(bytes))).into_response())
}

pub const BYTES: &str = "application/octet-stream";
/// Whoever sends slower than that keeps others from sending.
const PATIENCE: Duration = Duration::from_mins(10);

fn parse(digest: &str) -> Result<Digest, Failure> {
    digest.parse().map_err(|error| Failure::bad_request(format!("the digest {error}")))
}

fn told(state: &State, digest: Digest, bytes: Option<u64>) -> Upload {
    Upload { digest: digest.into(), stored: bytes.is_some(), bytes, max_bytes: state.uploads.one_task }
}

/// Takes no byte more into memory than is allowed. `length`: what the request says of itself, which may be wrong.
async fn receive(mut body: Body, length: u64, most: u64) -> Result<Vec<u8>, Failure> {
    let too_large = || {
        let detail = format!("an upload has at most {most} bytes");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, Code::TooLarge, detail)
            .next("leave out what the task does not need; data is for a volume; tasks.uploads.maxSize of fedqd is the bound")
    };
    if most < length {
        return Err(too_large());
    }
    let mut data = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    let until = Instant::now() + PATIENCE;
    loop {
        let Ok(frame) = timeout_at(until, body.frame()).await else {
            return Err(Failure::bad_request("the body took too long to arrive").next("send it again"));
        };
        let Some(frame) = frame else { return Ok(data) };
        let broken = |_| Failure::bad_request("the body ended before it was whole").next("send it again");
        let frame = frame.map_err(broken)?;
        let Some(bytes) = frame.data_ref() else { continue };
        if u64::try_from(data.len().saturating_add(bytes.len())).is_ok_and(|total| most < total) {
            return Err(too_large());
        }
        data.extend_from_slice(bytes);
    }
}
