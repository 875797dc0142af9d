//! `stop` and `resume`: a queue's stop policy, a workload's `spec.active`.

use serde_json::{Value, json};

use crate::{
    error::Error,
    move_back::forget,
    move_checks::read,
    move_workload::{MOVING, Order},
    output::Printer,
    resource::{DryRun, Resource},
    session::Session,
};

pub async fn cluster_queue(session: &mut Session<'_, '_>, stop: bool) -> Result<(), Error> {
    let policy = policy(session, stop);
    refuse_flavor(session, stop)?;
    change(session, &Resource::cluster_queue(), "", &json!({"spec": {"stopPolicy": policy}})).await
}

pub async fn local_queue(session: &mut Session<'_, '_>, stop: bool) -> Result<(), Error> {
    let policy = policy(session, stop);
    change(session, &Resource::local_queue(), "", &json!({"spec": {"stopPolicy": policy}})).await
}

pub async fn workload(session: &mut Session<'_, '_>, stop: bool) -> Result<(), Error> {
    let operation = if stop { "stopped" } else { "resumed" };
    change(session, &Resource::workload(), operation, &json!({"spec": {"active": !stop}})).await
}

fn policy(session: &Session<'_, '_>, stop: bool) -> &'static str {
    match (stop, session.given.is("keep-already-running")) {
        (false, _) => "None",
        (true, true) => "Hold",
        (true, false) => "HoldAndDrain",
    }
}

/// KEP-2076 has the flag and says that it needs another API; Kueue has none that stops a part of a queue.
fn refuse_flavor(session: &Session<'_, '_>, stop: bool) -> Result<(), Error> {
    let flavor = session.given.text("resource-flavor");
    if flavor.is_empty() {
        return Ok(());
    }
    let verb = if stop { "stop" } else { "resume" };
    Err(Error::said(format!(
        "--resource-flavor: Kueue has no API to {verb} one flavor of a ClusterQueue. Change the quota of {flavor} instead \
         (edit clusterqueue {}), or {verb} the whole queue without the flag",
        session.given.arguments[0]
    )))
}

async fn change(
    session: &mut Session<'_, '_>,
    resource: &Resource,
    operation: &str,
    patch: &Value,
) -> Result<(), Error> {
    let namespace = if resource.namespaced { session.namespace()? } else { String::new() };
    let name = session.given.arguments[0].clone();
    let dry_run = session.dry_run()?;
    let mut printer = Printer::new(session, operation, dry_run)?;
    let api = session.api().await?;
    let mut object = resource.get(api, &namespace, &name).await?;
    if dry_run == DryRun::Client {
        merge(&mut object, patch);
    } else {
        let mut patch = difference(&object, patch);
        // Whoever stops a workload, or lets it go on here, has ended its move.
        if !object["metadata"]["annotations"][MOVING].is_null() {
            if dry_run == DryRun::None {
                forget_move(session, &namespace, &name).await?;
            }
            patch["metadata"] = json!({"annotations": {MOVING: null}});
        }
        let api = session.api().await?;
        object = resource.patch(api, (&namespace, &name), &patch, dry_run).await?;
    }
    let text = printer.print(&resource.kind, &object)?;
    session.print(&text)
}

async fn forget_move(session: &mut Session<'_, '_>, namespace: &str, name: &str) -> Result<(), Error> {
    match read(session.api().await?, &Order::of_workload(namespace, name)).await {
        Ok(found) => forget(session, &found, "").await,
        // What cannot be moved, or is on its way already, has nothing to take back.
        Err(Error::Said(_) | Error::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// What of `patch` is not so already.
fn difference(object: &Value, patch: &Value) -> Value {
    let mut changed = object.clone();
    merge(&mut changed, patch);
    if changed == *object { json!({}) } else { patch.clone() }
}

/// As a JSON merge patch (RFC 7386): a spec that is no object gives way to one.
pub fn merge(object: &mut Value, patch: &Value) {
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    for (key, value) in patch["spec"].as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
}
