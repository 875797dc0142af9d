//! Writes that the cluster's own controllers make.

use std::sync::Arc;

use serde_json::Value;

use super::super::cluster::State;
use super::super::fields;
use super::super::kind::Kind;
use super::super::status::Refusal;
use super::super::store::Name;
use super::commit::{How, Write};
use super::herd::make_writable;

#[derive(Clone)]
pub enum Internal {
    Create(Value),
    /// A merge patch of all but the status.
    Patch(Value),
    /// A merge patch of the status.
    Status(Value),
    Delete,
}

/// As `manager`, past authorization and past admission webhooks of others. No version is named, so that whoever was
/// faster is no conflict.
pub async fn write_internally(
    state: &Arc<State>,
    manager: &str,
    kind: &'static Kind,
    name: Name,
    what: Internal,
) -> Result<(), Refusal> {
    loop {
        match write_once(state, manager, kind, name.clone(), what.clone()).await {
            Err(refusal) if refusal.reason == "Conflict" => {}
            done => return done,
        }
    }
}

async fn write_once(
    state: &Arc<State>,
    manager: &str,
    kind: &'static Kind,
    name: Name,
    what: Internal,
) -> Result<(), Refusal> {
    make_writable(state, kind, &name.1);
    let before = state.store.get(kind, &name);
    let mut write = Write {
        state,
        kind,
        name: name.clone(),
        before: before.clone(),
        manager: manager.to_owned(),
        part: None,
        how: How::Patch,
        dry_run: false,
        call: None,
    };
    let object = match (what, &before) {
        (Internal::Create(object), None) => object,
        (Internal::Create(_), Some(_)) => return Err(Refusal::already_exists(kind, &name.1)),
        (_, None) => return Ok(()),
        (Internal::Patch(patch), Some(before)) => {
            let mut object = before.as_ref().clone();
            fields::merge_patch(&mut object, &patch);
            object
        }
        (Internal::Status(status), Some(before)) => {
            let mut object = before.as_ref().clone();
            fields::merge_patch(&mut object["status"], &status);
            write.part = Some("status");
            object
        }
        (Internal::Delete, Some(before)) => return write.delete(Arc::clone(before), None).await.map(drop),
    };
    write.commit(object).await.map(drop)
}
