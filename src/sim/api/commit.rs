//! What lies between an object as somebody wants it and as it is kept: versions, what nobody may change,
//! defaults, validation, generation, who owns which field, webhooks, finalizers.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::cluster::State;
use super::super::fields::{self, Writer};
use super::super::kind::Kind;
use super::super::kueue;
use super::super::rbac::User;
use super::super::status::{Cause, Refusal};
use super::super::store::{Name, Object};
use super::admission;

/// A write as it is about to be made.
pub(super) struct Write<'a> {
    pub state: &'a Arc<State>,
    pub kind: &'static Kind,
    pub name: Name,
    pub before: Option<Object>,
    pub manager: String,
    pub part: Option<&'a str>,
    /// Server-side apply has done its own bookkeeping of fields.
    pub applied: bool,
    pub dry_run: bool,
    pub user: Option<&'a User>,
}

impl Write<'_> {
    /// Whether it is gone at once, rather than marked and held by finalizers.
    pub async fn delete(self, before: Object) -> Result<(Object, bool), Refusal> {
        self.ask_webhooks("DELETE", Some(&before), None).await?;
        let held =
            has_finalizers(&before) || (self.kind.kind == "Namespace" && before["metadata"]["name"] != "");
        if !held {
            if self.dry_run {
                return Ok((before, true));
            }
            let gone = self.state.store.commit(self.kind, &self.name, Some(&before), None);
            let gone = gone.map_err(|_| Refusal::modified(self.kind, &self.name.1))?;
            return Ok((gone, true));
        }
        if !before["metadata"]["deletionTimestamp"].is_null() {
            return Ok((before, false));
        }
        let mut marked = before.as_ref().clone();
        marked["metadata"]["deletionTimestamp"] = json!(seconds(self.state.now()));
        marked["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        if self.kind.has_generation()
            && let Some(generation) = marked["metadata"]["generation"].as_u64()
        {
            marked["metadata"]["generation"] = json!(generation + 1);
        }
        if self.kind.kind == "Namespace" {
            marked["status"]["phase"] = json!("Terminating");
        }
        if self.dry_run {
            return Ok((Arc::new(marked), false));
        }
        let marked = self.state.store.commit(self.kind, &self.name, Some(&before), Some(marked));
        Ok((marked.map_err(|_| Refusal::modified(self.kind, &self.name.1))?, false))
    }

    /// Everything between what was asked for and what is kept.
    pub async fn commit(mut self, mut object: Value) -> Result<Object, Refusal> {
        let kind = self.kind;
        self.check_version(&object)?;
        self.settle_system_fields(&mut object);
        if self.part.is_none() {
            kueue::default(kind.kind, self.before.as_deref(), &mut object);
            default_built_in(kind, &mut object, self.before.is_none());
        }
        self.check_fields(&object)?;
        if kind.has_generation() {
            self.settle_generation(&mut object);
        }
        if !self.applied {
            let api_version = kind.api_version();
            let (manager, subresource, now) = (self.manager.as_str(), self.part, self.state.now());
            let writer = Writer { manager, api_version: &api_version, subresource, now };
            object = fields::track(self.before.as_deref(), object, &writer, &kind.schema);
        }
        let operation = if self.before.is_some() { "UPDATE" } else { "CREATE" };
        self.ask_webhooks(operation, self.before.as_deref(), Some(&object)).await?;
        if let Some(before) = &self.before
            && same_but_times(before, &object)
        {
            return Ok(Arc::clone(before));
        }
        if self.dry_run {
            return Ok(Arc::new(object));
        }
        let released = !object["metadata"]["deletionTimestamp"].is_null()
            && !has_finalizers(&object)
            && kind.kind != "Namespace";
        let before = self.before.take();
        let after = (!released).then_some(object);
        self.state.store.commit(kind, &self.name, before.as_ref(), after).map_err(|_| match before {
            None => Refusal::already_exists(kind, &self.name.1),
            Some(_) => Refusal::modified(kind, &self.name.1),
        })
    }

    /// Writes of the cluster's own controllers are let through.
    async fn ask_webhooks(
        &self,
        operation: &'static str,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> Result<(), Refusal> {
        let (kind, dry_run) = (self.kind, self.dry_run);
        match self.user {
            Some(user) => {
                admission::Review { operation, kind, user, before, after, dry_run }.ask_all(self.state).await
            }
            None => Ok(()),
        }
    }

    /// By what the schema of a kind says, and Kueue's webhooks.
    fn check_fields(&self, object: &Value) -> Result<(), Refusal> {
        let refusals = kueue::validate(self.kind.kind, self.before.as_deref(), object);
        if let Some(denial) = kueue::denied(&refusals) {
            return Err(denial.into());
        }
        if refusals.is_empty() {
            return Ok(());
        }
        let cause = |refusal: kueue::Refusal| Cause {
            reason: refusal.reason(),
            message: refusal.to_string(),
            field: refusal.path,
        };
        let causes: Vec<Cause> = refusals.into_iter().map(cause).collect();
        Err(Refusal::invalid(self.kind, &self.name.1, &causes))
    }

    fn check_version(&self, object: &Value) -> Result<(), Refusal> {
        let Some(before) = &self.before else { return Ok(()) };
        let metadata = &object["metadata"];
        let version = metadata["resourceVersion"].as_str().unwrap_or_default();
        if !version.is_empty() && before["metadata"]["resourceVersion"] != version {
            return Err(Refusal::modified(self.kind, &self.name.1));
        }
        let uid = metadata["uid"].as_str().unwrap_or_default();
        if !uid.is_empty() && before["metadata"]["uid"] != uid {
            let is = before["metadata"]["uid"].as_str().unwrap_or_default();
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {is}");
            return Err(Refusal::conflict(self.kind, &self.name.1, &why));
        }
        Ok(())
    }

    /// What clients cannot change: who it is, since when, and the half that this path does not write.
    fn settle_system_fields(&self, object: &mut Value) {
        object["apiVersion"] = json!(self.kind.api_version());
        object["kind"] = json!(self.kind.kind);
        let Some(before) = &self.before else {
            if self.kind.status
                && let Some(fields) = object.as_object_mut()
            {
                fields.shift_remove("status");
            }
            let metadata = &mut object["metadata"];
            metadata["uid"] = json!(self.state.new_uid());
            metadata["creationTimestamp"] = json!(seconds(self.state.now()));
            metadata["name"] = json!(self.name.1);
            if self.kind.namespaced {
                metadata["namespace"] = json!(self.name.0);
            }
            return;
        };
        let status_of = |from: &Value, to: &mut Value| match from.get("status") {
            Some(status) => to["status"] = status.clone(),
            None => drop(to.as_object_mut().and_then(|fields| fields.shift_remove("status"))),
        };
        match self.part {
            Some("status") => {
                let mut whole = before.as_ref().clone();
                status_of(object, &mut whole);
                whole["metadata"]["managedFields"] = object["metadata"]["managedFields"].clone();
                if whole["metadata"]["managedFields"].is_null()
                    && let Some(metadata) = whole["metadata"].as_object_mut()
                {
                    metadata.shift_remove("managedFields");
                }
                *object = whole;
            }
            _ if self.kind.status => status_of(before, object),
            _ => {}
        }
        for field in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "name",
            "namespace",
            "resourceVersion",
        ] {
            match before["metadata"].get(field) {
                Some(value) => object["metadata"][field] = value.clone(),
                None => {
                    drop(
                        object["metadata"].as_object_mut().and_then(|metadata| metadata.shift_remove(field)),
                    );
                }
            }
        }
    }

    fn settle_generation(&self, object: &mut Value) {
        let rest = |object: &Value| {
            let mut rest = object.clone();
            if let Some(fields) = rest.as_object_mut() {
                fields.retain(|name, _| {
                    !matches!(name.as_str(), "metadata" | "status" | "apiVersion" | "kind")
                });
            }
            rest
        };
        let before = self.before.as_deref();
        let generation = before.and_then(|before| before["metadata"]["generation"].as_u64());
        let same = before.is_some_and(|before| rest(before) == rest(object));
        object["metadata"]["generation"] = json!(match generation {
            None => 1,
            Some(generation) if same => generation,
            Some(generation) => generation + 1,
        });
    }
}

/// A no-op write keeps the object and its version, whatever the clock says.
fn same_but_times(before: &Value, after: &Value) -> bool {
    let bare = |object: &Value| {
        let mut bare = object.clone();
        if let Some(entries) = bare["metadata"]["managedFields"].as_array_mut() {
            for fields in entries.iter_mut().filter_map(Value::as_object_mut) {
                fields.shift_remove("time");
            }
        }
        bare
    };
    bare(before) == bare(after)
}

/// What built-in kinds get that this world depends on.
fn default_built_in(kind: &Kind, object: &mut Value, new: bool) {
    match kind.kind {
        "Namespace" if new => {
            object["status"]["phase"] = json!("Active");
            object["spec"]["finalizers"] = json!(["kubernetes"]);
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
        }
        "Secret" => {
            if let Some(Value::Object(texts)) =
                object.as_object_mut().and_then(|fields| fields.shift_remove("stringData"))
            {
                for (name, text) in texts {
                    object["data"][name] =
                        json!(super::super::base64(text.as_str().unwrap_or_default().as_bytes()));
                }
            }
            if object["type"].is_null() {
                object["type"] = json!("Opaque");
            }
        }
        _ => {}
    }
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

pub(super) fn namespaces() -> &'static Kind {
    Kind::named("Namespace").expect("namespaces are served")
}

pub(super) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A write that the cluster's own controllers make.
pub enum Internal {
    Create(Value),
    /// A merge patch of all but the status.
    Patch(Value),
    /// A merge patch of the status.
    Status(Value),
    Delete,
}

/// As `manager`, past authorization and past admission webhooks of others.
pub async fn write_internally(
    state: &Arc<State>,
    manager: &str,
    (kind, name): (&'static Kind, Name),
    what: Internal,
) -> Result<(), Refusal> {
    let before = state.store.get(kind, &name);
    let mut write = Write {
        state,
        kind,
        name: name.clone(),
        before: before.clone(),
        manager: manager.to_owned(),
        part: None,
        applied: false,
        dry_run: false,
        user: None,
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
        (Internal::Delete, Some(before)) => return write.delete(Arc::clone(before)).await.map(drop),
    };
    write.commit(object).await.map(drop)
}
