//! What of an AppWrapper may not change once it is there: what was judged when it was made stays as it is.

use fedq_wrapped::{
    names::{USER_ID_LABEL, USER_LABEL},
    validate::FieldError,
};

use crate::api::AppWrapper;

const IMMUTABLE: &str = "attempt to change immutable field";

pub fn update(old: &AppWrapper, new: &AppWrapper) -> Vec<FieldError> {
    let changed = |field: String| FieldError::forbidden(field, IMMUTABLE);
    let (before, after) = (&old.spec.components, &new.spec.components);
    if before.len() != after.len() {
        return vec![changed("spec.components".to_owned())];
    }
    let mut errors = Vec::new();
    for (index, (before, after)) in before.iter().zip(after).enumerate() {
        let field = format!("spec.components[{index}]");
        if before.template != after.template {
            errors.push(changed(format!("{field}.template.raw")));
        }
        if before.pod_sets.len() != after.pod_sets.len() {
            errors.push(changed(format!("{field}.podsets")));
            continue;
        }
        for (index, (before, after)) in before.pod_sets.iter().zip(&after.pod_sets).enumerate() {
            if before.replicas() != after.replicas() {
                errors.push(changed(format!("{field}.podsets[{index}].replicas")));
            }
            if before.path != after.path {
                errors.push(changed(format!("{field}.podsets[{index}].path")));
            }
        }
    }
    for label in [USER_LABEL, USER_ID_LABEL] {
        let of =
            |wrapper: &AppWrapper| wrapper.metadata.labels.as_ref().and_then(|all| all.get(label)).cloned();
        if of(old) != of(new) {
            errors.push(changed(format!("metadata.labels[{label}]")));
        }
    }
    if old.spec.managed_by != new.spec.managed_by {
        errors.push(changed("spec.managedBy".to_owned()));
    }
    errors
}
