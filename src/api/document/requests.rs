//! What requests must look like where answers may hold more: a claim that stands on the hub was not always written
//! through this API, and is shown all the same.

use serde_json::{Value, json};

use super::{DIGEST, JSON, SUBDOMAIN, reference};
use crate::shape::merge;
use fedq_domain::claim::{MAX_ASSIGNMENTS, MAX_NOMINAL, MAX_RESOURCES};

/// Quantities as `Amount::exact` takes them: the CRD's, of which none is below 0.
const AMOUNT: &str = r"^\+?[0-9]{1,19}(\.[0-9]{1,9})?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$";
/// Names of resources, and the short names of claims.
const RESOURCE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$";
const VARIABLE: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
const NO_NUL: &str = r"^[^\x00]*$";

/// Puts it to schemas that only requests have.
pub fn add(schemas: &mut Value) {
    let variables =
        json!({"propertyNames": {"pattern": VARIABLE}, "additionalProperties": {"pattern": NO_NUL}});
    let forms = [
        ("/Assign/properties/resources", amounts(MAX_RESOURCES)),
        ("/SetBase/properties/base", json!({"pattern": AMOUNT})),
        ("/SubmitTask/properties/envs", variables.clone()),
        ("/SubmitTask/properties/secrets", variables),
        ("/SubmitTask/properties/uploads/additionalProperties", json!({"pattern": DIGEST})),
    ];
    for (pointer, form) in forms {
        if let Some(schema) = schemas.pointer_mut(pointer) {
            merge(schema, &form);
        }
    }
}

/// Puts it beside the reference to a schema that answers have as well: whoever reads only that has one type for both.
pub fn narrow(id: &str, operation: &mut Value) {
    if matches!(id, "edit_claim" | "diff_claim") {
        let body = &mut operation["requestBody"];
        body["content"][JSON]["schema"] = claim();
        body["description"] =
            "What is wrong with the claim that is there may stay, and is warned of, so that it can be \
                               put right one step at a time."
                .into();
    }
}

fn claim() -> Value {
    let mut claim = reference("schemas", "ClaimSpec");
    claim["properties"] = json!({
        "clusterName": {"pattern": SUBDOMAIN},
        "nominalResources": amounts(MAX_NOMINAL),
        "resourceAssignments": {
            "maxItems": MAX_ASSIGNMENTS,
            "items": {"properties": {
                "clusterQueueName": {"pattern": SUBDOMAIN},
                "flavor": {"pattern": SUBDOMAIN},
                "resources": amounts(MAX_RESOURCES),
            }},
        },
    });
    claim
}

fn amounts(most: usize) -> Value {
    json!({
        "maxProperties": most, "propertyNames": {"pattern": RESOURCE}, "additionalProperties": {"pattern": AMOUNT},
    })
}
