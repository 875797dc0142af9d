//! What lies between an object as somebody wants it and as it is kept: versions, what nobody may change,
//! defaults, validation, generation, who owns which field, webhooks.

use std::sync::Arc;

use serde_json::Value;

use super::super::cluster::State;
use super::super::fields::{self, Writer};
use super::super::kind::Kind;
use super::super::kueue;
use super::super::status::{Cause, Refusal};
use super::super::store::{Name, Object};
use super::super::structure::Structure;
use super::{Call, admission, settle};

/// A write as it is about to be made.
pub(super) struct Write<'a> {
    pub state: &'a Arc<State>,
    pub kind: &'static Kind,
    pub name: Name,
    pub before: Option<Object>,
    pub manager: String,
    pub part: Option<&'a str>,
    pub how: How,
    pub dry_run: bool,
    /// Writes of the cluster's own controllers have none, and are let through.
    pub call: Option<&'a Call<'a>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum How {
    Create,
    Replace,
    Patch,
    /// Server-side apply has done its own bookkeeping of fields.
    Apply,
}

impl Write<'_> {
    /// Everything between what was asked for and what is kept.
    pub async fn commit(mut self, mut object: Value) -> Result<Object, Refusal> {
        let kind = self.kind;
        match &self.before {
            Some(before) => self.check_version(before, &object)?,
            None => self.check_namespace()?,
        }
        match &self.before {
            Some(before) => settle::changed(kind, self.part, before, &mut object),
            None => settle::new(self.state, kind, &self.name, &mut object),
        }
        if self.part.is_none() {
            kueue::default(kind.kind, self.before.as_deref(), &mut object);
            settle::defaults(kind, &mut object, self.before.is_none());
        }
        self.check_fields(&object)?;
        if kind.has_generation() {
            settle::generation(self.before.as_deref(), &mut object);
        }
        if self.how != How::Apply {
            let api_version = kind.api_version();
            let (manager, subresource, now) = (self.manager.as_str(), self.part, self.state.now());
            let writer = Writer { manager, api_version: &api_version, subresource, now };
            object = fields::track(self.before.as_deref(), object, &writer, &kind.schema);
        }
        let operation = if self.before.is_some() { "UPDATE" } else { "CREATE" };
        self.ask_webhooks(operation, self.before.as_deref(), Some(&object)).await?;
        if let Some(before) = &self.before
            && settle::same_but_times(before, &object)
        {
            return Ok(Arc::clone(before));
        }
        if self.dry_run {
            return Ok(Arc::new(object));
        }
        let released = !object["metadata"]["deletionTimestamp"].is_null()
            && !settle::has_finalizers(&object)
            && kind.kind != "Namespace";
        let before = self.before.take();
        let lost = |_| match before {
            None => Refusal::already_exists(kind, &self.name.1),
            Some(_) => Refusal::modified(kind, &self.name.1),
        };
        let store = &self.state.store;
        if released {
            // Watchers see what was kept last, the one who let it go what he wrote.
            store.commit(kind, &self.name, before.as_ref(), None).map_err(lost)?;
            return Ok(Arc::new(object));
        }
        store.commit(kind, &self.name, before.as_ref(), Some(object)).map_err(lost)
    }

    pub(super) async fn ask_webhooks(
        &self,
        operation: &'static str,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> Result<(), Refusal> {
        let Some(call) = self.call else { return Ok(()) };
        let (kind, part, dry_run) = (self.kind, self.part, self.dry_run);
        let review = admission::Review { operation, kind, part, call, before, after, dry_run };
        review.ask_all(self.state).await
    }

    /// Nothing is created where there is no place for it.
    fn check_namespace(&self) -> Result<(), Refusal> {
        if !self.kind.namespaced || self.call.is_none() {
            return Ok(());
        }
        let name = &self.name.0;
        match self.state.store.get(settle::namespaces(), &(String::new(), name.clone())) {
            None => Err(Refusal::not_found(settle::namespaces(), name)),
            Some(namespace) if !namespace["metadata"]["deletionTimestamp"].is_null() => {
                Err(Refusal::terminating(self.kind, &self.name.1, name))
            }
            Some(_) => Ok(()),
        }
    }

    /// By what the schema of a kind says, and Kueue's webhooks.
    fn check_fields(&self, object: &Value) -> Result<(), Refusal> {
        let before = self.before.as_deref();
        let mut causes = settle::metadata_faults(self.kind, before, object);
        let mut refusals = Structure::of(self.kind).validate(before, object);
        if refusals.is_empty() {
            refusals = kueue::validate(self.kind.kind, before, object);
        }
        if let Some(denial) = kueue::denied(&refusals).filter(|_| causes.is_empty()) {
            return Err(denial.into());
        }
        causes.extend(refusals.into_iter().map(|refusal| Cause {
            reason: refusal.reason(),
            message: refusal.to_string(),
            field: refusal.path,
        }));
        if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(self.kind, &self.name.1, &causes)) }
    }

    fn check_version(&self, before: &Value, object: &Value) -> Result<(), Refusal> {
        let text =
            |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (uid, is) = (text(object, "uid"), text(before, "uid"));
        let other = !uid.is_empty() && uid != is;
        if other && self.how == How::Replace {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {is}");
            return Err(Refusal::conflict(self.kind, &self.name.1, &why));
        }
        let version = text(object, "resourceVersion");
        if !version.is_empty() && text(before, "resourceVersion") != version {
            return Err(Refusal::modified(self.kind, &self.name.1));
        }
        if other {
            let message = format!("Invalid value: {uid:?}: field is immutable");
            let cause = Cause::new("FieldValueInvalid", "metadata.uid", message);
            return Err(Refusal::invalid(self.kind, &self.name.1, &[cause]));
        }
        Ok(())
    }
}
