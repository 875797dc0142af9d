//! Deleting: at once, or marked and held by finalizers; with what an object owns, before it or without.

use std::sync::Arc;

use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::super::kind::Kind;
use super::super::selector::Selector;
use super::super::status::Refusal;
use super::super::store::Object;
use super::commit::{How, Write};
use super::list::render;
use super::options::{Deletion, Propagation};
use super::route::Resource;
use super::settle::{has_finalizers, seconds};
use super::write::write;
use super::{Call, encode, read};

/// The collector of garbage removes these, once it has done what they say.
pub(crate) const ORPHAN: &str = "orphan";
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// Kinds whose deletion shows the object rather than a Status.
const SHOWN: [&str; 4] = ["Pod", "Service", "ServiceAccount", "PersistentVolumeClaim"];
const JOBS_ORPHAN: &str = "child pods are preserved by default when jobs are deleted; set \
    propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

pub(super) async fn delete(
    call: &Call<'_>,
    resource: &Resource,
    body: &[u8],
) -> Result<Response<Body>, Refusal> {
    let options = Deletion::parse(&call.query, body)?;
    let before = read::find(call, resource)?;
    check_preconditions(resource, &before, &options)?;
    let propagation = propagation(call, resource.kind, &options);
    let mut write = write(call, resource, resource.key(), Some(Arc::clone(&before)), How::Replace);
    write.dry_run = options.dry_run;
    let (object, gone) = write.delete(before, propagation).await?;
    if !gone || SHOWN.contains(&resource.kind.kind) {
        return read::one(call, resource, &object, StatusCode::OK);
    }
    let mut details = json!({"name": resource.name});
    if !resource.group().is_empty() {
        details["group"] = json!(resource.group());
    }
    details["kind"] = json!(resource.kind.plural);
    details["uid"] = object["metadata"]["uid"].clone();
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    });
    Ok(encode::json(call, &status))
}

/// Everything that is selected; the answer lists what it was.
pub(super) async fn delete_all(
    call: &Call<'_>,
    resource: &Resource,
    body: &[u8],
) -> Result<Response<Body>, Refusal> {
    let query = &call.query;
    let selector = Selector::parse(resource.kind, query.get("labelSelector"), query.get("fieldSelector"))?;
    let options = Deletion::parse(query, body)?;
    let propagation = propagation(call, resource.kind, &options);
    let (objects, _) = call.state.store.list(resource.kind, resource.scope());
    let mut deleted = Vec::new();
    for (name, object) in objects.into_iter().filter(|(_, object)| selector.matches(object)) {
        let mut write = write(call, resource, name, Some(Arc::clone(&object)), How::Replace);
        write.dry_run = options.dry_run;
        deleted.push(write.delete(object, propagation).await?.0);
    }
    let shown = deleted.iter().map(|object| read::shown(resource, object)).collect();
    let metadata = json!({"resourceVersion": call.state.store.version().to_string()});
    render(call, resource, shown, metadata)
}

fn check_preconditions(resource: &Resource, before: &Value, options: &Deletion) -> Result<(), Refusal> {
    let checks = [("uid", "UID", &options.uid), ("resourceVersion", "ResourceVersion", &options.version)];
    for (field, what, wanted) in checks {
        let is = before["metadata"][field].as_str().unwrap_or_default();
        if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != is) {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({is}). The object \
                 might have been deleted and then recreated"
            );
            return Err(Refusal::precondition(resource.kind, &resource.name, &why));
        }
    }
    Ok(())
}

/// Jobs of old lived on without being asked; who does not say what he wants is told so.
fn propagation(call: &Call<'_>, kind: &Kind, options: &Deletion) -> Option<Propagation> {
    if options.propagation.is_none() && kind.kind == "Job" {
        call.warn(JOBS_ORPHAN.to_owned());
        return Some(Propagation::Orphan);
    }
    options.propagation
}

impl Write<'_> {
    /// Whether it is gone at once, rather than marked and held.
    pub async fn delete(
        self,
        before: Object,
        propagation: Option<Propagation>,
    ) -> Result<(Object, bool), Refusal> {
        self.ask_webhooks("DELETE", Some(&before), None).await?;
        let marked = !before["metadata"]["deletionTimestamp"].is_null();
        let is_namespace = self.kind.kind == "Namespace";
        if marked && is_namespace && self.call.is_some() {
            let why = "The system is ensuring all content is removed from this namespace.  Upon completion, this \
                       namespace will automatically be purged by the system.";
            return Err(Refusal::conflict(self.kind, &self.name.1, why));
        }
        let mut after = before.as_ref().clone();
        hold(&mut after, propagation);
        if !has_finalizers(&after) && !is_namespace {
            return self.take_out(before);
        }
        if !marked {
            self.mark(&mut after);
        } else if after == *before {
            return Ok((before, false));
        }
        if self.dry_run {
            return Ok((Arc::new(after), false));
        }
        let marked = self.state.store.commit(self.kind, &self.name, Some(&before), Some(after));
        Ok((marked.map_err(|_| Refusal::modified(self.kind, &self.name.1))?, false))
    }

    fn take_out(&self, before: Object) -> Result<(Object, bool), Refusal> {
        if self.dry_run {
            return Ok((before, true));
        }
        let gone = self.state.store.commit(self.kind, &self.name, Some(&before), None);
        Ok((gone.map_err(|_| Refusal::modified(self.kind, &self.name.1))?, true))
    }

    fn mark(&self, object: &mut Value) {
        object["metadata"]["deletionTimestamp"] = json!(seconds(self.state.now()));
        object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        if self.kind.has_generation()
            && let Some(generation) = object["metadata"]["generation"].as_u64()
        {
            object["metadata"]["generation"] = json!(generation + 1);
        }
        if self.kind.kind == "Namespace" {
            object["status"]["phase"] = json!("Terminating");
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.shift_remove("deletionGracePeriodSeconds");
            }
        }
    }
}

/// Finalizers that say what becomes of what it owns.
fn hold(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let named = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let mut finalizers: Vec<Value> =
        named.into_iter().filter(|name| *name != ORPHAN && *name != FOREGROUND).collect();
    match propagation {
        Propagation::Orphan => finalizers.push(json!(ORPHAN)),
        Propagation::Foreground => finalizers.push(json!(FOREGROUND)),
        Propagation::Background => {}
    }
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    if finalizers.is_empty() {
        metadata.shift_remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
}
