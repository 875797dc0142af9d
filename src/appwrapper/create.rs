//! Makes the components of an AppWrapper, in order. Its status says what is about to be made before it is, so that a
//! controller that dies in between finds it again.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    api::{AppWrapper, AppWrapperStatus},
    conditions::{self, FALSE, TRUE, UNKNOWN},
    controller::{Context, Error},
    inject::{self, Owner},
    kinds::{Kind, KindError, is_owned},
    lifecycle::CreateFailure,
    names::{GROUP, KIND, component, condition::RESOURCES_DEPLOYED},
    observed::Observed,
    validate::{FieldError, template_field},
};

/// As in names that Kubernetes makes up.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const RANDOM_LETTERS: usize = 5;
const MAX_PREFIX: usize = 63 - RANDOM_LETTERS;

/// The status with what was made. `wrapper` becomes what is stored.
pub async fn create(
    context: &Context,
    wrapper: &mut AppWrapper,
) -> Result<(AppWrapperStatus, Result<(), CreateFailure>), Error> {
    let mut status = wrapper.status.clone().unwrap_or_default();
    for index in 0..wrapper.spec.components.len() {
        let done = status
            .component_status
            .get(index)
            .is_some_and(|component| conditions::is(&component.conditions, RESOURCES_DEPLOYED, TRUE));
        if !done && let Err(failure) = create_one(context, wrapper, &mut status, index).await? {
            return Ok((status, Err(failure)));
        }
    }
    Ok((status, Ok(())))
}

async fn create_one(
    context: &Context,
    wrapper: &mut AppWrapper,
    status: &mut AppWrapperStatus,
    index: usize,
) -> Result<Result<(), CreateFailure>, Error> {
    let owner = owner(wrapper);
    let component = &wrapper.spec.components[index];
    let template = match component.template.read() {
        Ok(template) => template,
        Err(error) => return Ok(Err(fatal(format!("{}: {error}", template_field(index))))),
    };
    let Some(of) = status.component_status.get_mut(index) else {
        return Ok(Err(fatal("status.componentStatus is shorter than spec.components")));
    };
    let text = |key: &str| template.get(key).and_then(Value::as_str).unwrap_or_default();
    let kind = match context.kinds.find(text("apiVersion"), text("kind")).await {
        Ok(kind) if kind.namespaced => kind,
        Ok(_) => {
            return Ok(Err(fatal(format!(
                "{} have no namespace, so no AppWrapper can own them",
                text("kind")
            ))));
        }
        Err(error) => {
            let fatal = matches!(error, KindError::NoMatch { .. });
            return Ok(Err(CreateFailure { message: error.to_string(), fatal }));
        }
    };
    let old = conditions::find(&of.conditions, RESOURCES_DEPLOYED);
    let begun = old.is_some_and(|old| old.reason != component::DELETED);
    if !begun {
        of.name = name(&template);
        text("kind").clone_into(&mut of.kind);
        text("apiVersion").clone_into(&mut of.api_version);
    }
    let parts = (of.pod_sets.as_slice(), component.pod_set_infos.as_slice());
    let object = match inject::object(&template, parts, (&owner, &of.name), &context.config) {
        Ok(object) => object,
        Err(error) => return Ok(Err(fatal(error.to_string()))),
    };
    if !begun {
        let to = (UNKNOWN, component::INITIATED, "");
        conditions::set(&mut of.conditions, RESOURCES_DEPLOYED, to, context.now());
        *wrapper = context.write_status(wrapper, status).await?;
        *status = wrapper.status.clone().unwrap_or_default();
    }
    let name = status.component_status[index].name.clone();
    let made = post(&kind, object, &name, &owner, index).await?;
    let to = match &made {
        Ok(()) => (TRUE, component::CREATED, ""),
        Err(Refused { refused: true, .. }) => (FALSE, component::ERRORED, ""),
        // It may be there.
        Err(_) => return Ok(made.map_err(|refused| refused.failure)),
    };
    let of = &mut status.component_status[index];
    conditions::set(&mut of.conditions, RESOURCES_DEPLOYED, to, context.now());
    Ok(made.map_err(|refused| refused.failure))
}

struct Refused {
    failure: CreateFailure,
    /// It is certain that nothing was made.
    refused: bool,
}

async fn post(
    kind: &Kind,
    object: Value,
    name: &str,
    owner: &Owner,
    index: usize,
) -> Result<Result<(), Refused>, Error> {
    if let Err(error) = Observed::deserialize(&object) {
        return Ok(Err(Refused { failure: fatal(error.to_string()), refused: true }));
    }
    let api = kind.api(&owner.namespace);
    Ok(match kind.create(&owner.namespace, &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => match api.get_opt(name).await? {
            // It went in this moment.
            None => Err(Refused { failure: passing(status.message), refused: true }),
            Some(found) => judge_existing(&found, owner, index),
        },
        Err(kube::Error::Api(status)) => {
            let refused = status.code < 500 && ![408, 429].contains(&status.code);
            let failure = CreateFailure { message: status.message.clone(), fatal: status.code == 422 };
            Err(Refused { failure, refused })
        }
        Err(error) => Err(Refused { failure: passing(error.to_string()), refused: false }),
    })
}

/// We may have made it before.
fn judge_existing(found: &Observed, owner: &Owner, index: usize) -> Result<(), Refused> {
    if is_owned(found, &owner.reference) {
        return Ok(());
    }
    let controller = found.owner_references().iter().find(|one| one.controller == Some(true));
    let namesake = controller
        .is_some_and(|one| one.kind == KIND && one.name == owner.name && one.api_version.starts_with(GROUP));
    let name = found.name_any();
    let detail = format!("resource {name} exists, but is not controlled by appwrapper");
    let field = format!("{}.metadata.name", template_field(index));
    let message = FieldError::invalid(field, &name, detail).to_string();
    // That of an AppWrapper of the same name that was deleted, and will go after it.
    let failure = CreateFailure { message, fatal: !namesake };
    Err(Refused { failure, refused: true })
}

pub fn owner(wrapper: &AppWrapper) -> Owner {
    let reference = OwnerReference {
        api_version: format!("{GROUP}/v1beta2"),
        kind: KIND.to_owned(),
        name: wrapper.name_any(),
        uid: wrapper.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    Owner { namespace: wrapper.namespace().unwrap_or_default(), name: wrapper.name_any(), reference }
}

/// A made-up name is made up here, so that the status can have it before the object has it.
fn name(template: &Value) -> String {
    let text = |key: &str| {
        let metadata = template.get("metadata");
        metadata.and_then(|metadata| metadata.get(key)).and_then(Value::as_str).unwrap_or_default()
    };
    let (name, prefix) = (text("name"), text("generateName"));
    if !name.is_empty() || prefix.is_empty() {
        return name.to_owned();
    }
    let random = (0..RANDOM_LETTERS).map(|_| char::from(LETTERS[fastrand::usize(..LETTERS.len())]));
    prefix.chars().take(MAX_PREFIX).chain(random).collect()
}

fn fatal(message: impl Into<String>) -> CreateFailure {
    CreateFailure { message: message.into(), fatal: true }
}

fn passing(message: impl Into<String>) -> CreateFailure {
    CreateFailure { message: message.into(), fatal: false }
}
