//! Deletes the components of an AppWrapper and waits for their pods. Nothing is deleted that is not its own.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Preconditions},
};

use crate::{
    api::{AppWrapper, AppWrapperStatus, ComponentStatus},
    conditions::{self, FALSE, UNKNOWN},
    controller::{Context, Error},
    create::owner,
    duration::GoDuration,
    inject::Owner,
    kinds::{Kind, KindError},
    lifecycle::Removal,
    names::{
        APPWRAPPER_LABEL, component,
        condition::{DELETING_RESOURCES, RESOURCES_DEPLOYED},
    },
    observed::Observed,
    validate,
};

/// One step: what is there is told to go, and what is gone is noted.
pub async fn remove(
    context: &Context,
    wrapper: &AppWrapper,
    mut status: AppWrapperStatus,
    grace: GoDuration,
) -> Result<Removal, Error> {
    let owner = owner(wrapper);
    let since = conditions::since(&status.conditions, DELETING_RESOURCES).unwrap_or_else(|| context.now());
    let patience_ends = since.saturating_add(grace.as_signed()).unwrap_or(Timestamp::MAX);
    let force = patience_ends <= context.now();
    let (mut left, mut hidden) = (Vec::new(), false);
    for component in &mut status.component_status {
        if !may_be_there(component) {
            continue;
        }
        match find(context, component, &owner).await? {
            Found::There(kind, object) => {
                if object.metadata.deletion_timestamp.is_none() {
                    delete(&kind, &object, DeleteParams::background(), &owner).await;
                }
                left.push((*kind, object));
            }
            Found::Hidden => hidden = true,
            Found::Gone => {
                let to = (FALSE, component::DELETED, "");
                conditions::set(&mut component.conditions, RESOURCES_DEPLOYED, to, context.now());
            }
        }
    }
    let gone = left.is_empty() && !hidden;
    if !gone && !force {
        return Ok(Removal { status, done: false });
    }
    let pods = pods_left(context, &owner, force).await?;
    if gone && pods.is_empty() {
        return Ok(Removal { status, done: true });
    }
    if force {
        force_out(context, &owner, &pods, &left).await;
    }
    Ok(Removal { status, done: false })
}

/// What was refused may have been made after all.
fn may_be_there(status: &ComponentStatus) -> bool {
    let condition = conditions::find(&status.conditions, RESOURCES_DEPLOYED);
    let gone = condition.is_none_or(|condition| condition.reason == component::DELETED);
    let begun = condition.is_some_and(|condition| condition.status != UNKNOWN || !status.name.is_empty());
    !gone && begun && !status.name.is_empty()
}

enum Found {
    There(Box<Kind>, Arc<Observed>),
    Gone,
    /// We made it, and may not see any more what became of it.
    Hidden,
}

async fn find(context: &Context, status: &ComponentStatus, owner: &Owner) -> Result<Found, Error> {
    let kind = match context.kinds.find(&status.api_version, &status.kind).await {
        Ok(kind) => kind,
        // Its definition is gone, and so is it.
        Err(KindError::NoMatch { .. }) => return Ok(Found::Gone),
        Err(error) => return Err(error.into()),
    };
    match kind.component(&owner.namespace, &status.name, &owner.reference).await {
        Ok(Some(object)) => Ok(Found::There(Box::new(kind), object)),
        Ok(None) => Ok(Found::Gone),
        Err(kube::Error::Api(answer)) if answer.is_not_found() => Ok(Found::Gone),
        Err(kube::Error::Api(answer)) if answer.is_forbidden() => {
            // A kind that we may not read is mostly one that we may not make either, and then nothing was made.
            if conditions::is(&status.conditions, RESOURCES_DEPLOYED, FALSE) {
                return Ok(Found::Gone);
            }
            tracing::warn!(
                "Cannot see whether {} `{}` of AppWrapper `{}/{}` is gone: {}",
                kind.resource_name(),
                status.name,
                owner.namespace,
                owner.name,
                answer.message
            );
            Ok(Found::Hidden)
        }
        Err(error) => Err(error.into()),
    }
}

/// A failure is told and tried again at the next look.
async fn delete(kind: &Kind, object: &Observed, params: DeleteParams, owner: &Owner) {
    let uid = object.uid();
    let params = params.preconditions(Preconditions { uid, resource_version: None });
    match kind.api(&owner.namespace).delete(&object.name_any(), &params).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => tracing::warn!(
            "Cannot delete {} `{}` of AppWrapper `{}/{}`: {error}",
            kind.resource_name(),
            object.name_any(),
            owner.namespace,
            owner.name
        ),
    }
}

/// Those that are followed; when none is, or before any is forced out, the server is asked, since what is followed
/// comes late.
async fn pods_left(context: &Context, owner: &Owner, force: bool) -> Result<Vec<Left>, Error> {
    // No pod can have the label of such an AppWrapper, which came past the webhook.
    if !validate::is_label_value(&owner.name) {
        return Ok(Vec::new());
    }
    let followed = context.pods.of(&owner.namespace, &owner.name);
    if !followed.is_empty() && !force {
        return Ok(followed.iter().map(|pod| Left::of(&**pod)).collect());
    }
    let pods = Api::<Pod>::namespaced(context.client.clone(), &owner.namespace);
    let params = ListParams::default().labels(&format!("{APPWRAPPER_LABEL}={}", owner.name));
    let listed = pods.list_metadata(&params).await?;
    Ok(listed.items.iter().map(Left::of).collect())
}

/// A pod that is still there.
struct Left {
    name: String,
    uid: Option<String>,
}

impl Left {
    fn of(pod: &impl ResourceExt) -> Self {
        Self { name: pod.name_any(), uid: pod.uid() }
    }
}

/// Patience has ended: pods first, components once the pods are gone.
async fn force_out(context: &Context, owner: &Owner, pods: &[Left], left: &[(Kind, Arc<Observed>)]) {
    let at_once = DeleteParams::default().grace_period(0);
    let api = Api::<Pod>::namespaced(context.client.clone(), &owner.namespace);
    for Left { name, uid } in pods {
        // Those of a StatefulSet have the names of their predecessors.
        let preconditions = Preconditions { uid: uid.clone(), resource_version: None };
        match api.delete(name, &at_once.clone().preconditions(preconditions)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => tracing::warn!("Cannot force out the pod `{}/{name}`: {error}", owner.namespace),
        }
    }
    if pods.is_empty() {
        for (kind, object) in left {
            delete(kind, object, at_once.clone(), owner).await;
        }
    }
}
