//! What fields a kind has: for kinds of the API server itself by their published schemas, for claims by the
//! definition that fedq ships. Kueue's own kinds keep whatever is written, but for their metadata.

mod check;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::api::{admissionregistration, apps, authentication, authorization, batch, coordination};
use k8s_openapi::api::{core, events, rbac, scheduling};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

use super::kind::{Kind, OCM_GROUP};

/// The fields of one kind.
#[derive(Debug)]
pub struct Structure {
    schema: Value,
    /// Where the schema's references lead.
    definitions: Value,
    /// A type of the API server's own: absent is the same as null.
    typed: bool,
}

type Known = LazyLock<Structure>;

static BUILT_IN: [(&str, Known); 26] = [
    ("Namespace", Known::new(built_in::<core::v1::Namespace>)),
    ("Node", Known::new(built_in::<core::v1::Node>)),
    ("Secret", Known::new(built_in::<core::v1::Secret>)),
    ("ConfigMap", Known::new(built_in::<core::v1::ConfigMap>)),
    ("ServiceAccount", Known::new(built_in::<core::v1::ServiceAccount>)),
    ("Pod", Known::new(built_in::<core::v1::Pod>)),
    ("Service", Known::new(built_in::<core::v1::Service>)),
    ("PersistentVolumeClaim", Known::new(built_in::<core::v1::PersistentVolumeClaim>)),
    ("Event", Known::new(built_in::<events::v1::Event>)),
    ("Job", Known::new(built_in::<batch::v1::Job>)),
    ("Deployment", Known::new(built_in::<apps::v1::Deployment>)),
    ("Lease", Known::new(built_in::<coordination::v1::Lease>)),
    ("Role", Known::new(built_in::<rbac::v1::Role>)),
    ("RoleBinding", Known::new(built_in::<rbac::v1::RoleBinding>)),
    ("ClusterRole", Known::new(built_in::<rbac::v1::ClusterRole>)),
    ("ClusterRoleBinding", Known::new(built_in::<rbac::v1::ClusterRoleBinding>)),
    ("PriorityClass", Known::new(built_in::<scheduling::v1::PriorityClass>)),
    ("ValidatingWebhookConfiguration", Known::new(webhooks)),
    (
        "ValidatingAdmissionPolicy",
        Known::new(built_in::<admissionregistration::v1::ValidatingAdmissionPolicy>),
    ),
    (
        "ValidatingAdmissionPolicyBinding",
        Known::new(built_in::<admissionregistration::v1::ValidatingAdmissionPolicyBinding>),
    ),
    ("TokenReview", Known::new(built_in::<authentication::v1::TokenReview>)),
    ("TokenRequest", Known::new(built_in::<authentication::v1::TokenRequest>)),
    ("SelfSubjectReview", Known::new(built_in::<authentication::v1::SelfSubjectReview>)),
    ("SubjectAccessReview", Known::new(built_in::<authorization::v1::SubjectAccessReview>)),
    ("SelfSubjectAccessReview", Known::new(built_in::<authorization::v1::SelfSubjectAccessReview>)),
    ("SelfSubjectRulesReview", Known::new(built_in::<authorization::v1::SelfSubjectRulesReview>)),
];

static CLAIM: Known =
    Known::new(|| custom(claim_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take()));
/// OCM's kinds as fedq ships them for hubs without OCM.
static OCM: LazyLock<BTreeMap<String, Structure>> = LazyLock::new(|| {
    let yaml = include_str!("../../deploy/ocm/crds.yaml");
    let definitions: Vec<Value> = serde_saphyr::from_multiple(yaml).expect("fedq's own definitions are YAML");
    let structure = |mut definition: Value| {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
        (kind, custom(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take()))
    };
    definitions.into_iter().map(structure).collect()
});
static OPEN: Known = Known::new(|| custom(Value::Bool(true)));
static METADATA: Known = Known::new(built_in::<ObjectMeta>);

fn webhooks() -> Structure {
    built_in::<admissionregistration::v1::ValidatingWebhookConfiguration>()
}

fn built_in<T: JsonSchema>() -> Structure {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<T>().to_value();
    let definitions = schema.as_object_mut().and_then(|schema| schema.shift_remove("$defs"));
    Structure { schema, definitions: definitions.unwrap_or_default(), typed: true }
}

fn custom(schema: Value) -> Structure {
    Structure { schema, definitions: Value::Null, typed: false }
}

/// The CustomResourceDefinition of claims.
pub fn claim_definition() -> Value {
    let yaml = include_str!("../../deploy/crds/clusterresourceclaims.yaml");
    serde_saphyr::from_str(yaml).expect("fedq's own definition is YAML")
}

impl Structure {
    pub fn of(kind: &Kind) -> &'static Self {
        let known = BUILT_IN.iter().find(|(name, _)| *name == kind.kind && !kind.is_custom());
        match known {
            Some((_, known)) => known,
            None if kind.kind == "ClusterResourceClaim" => &CLAIM,
            None if kind.group == OCM_GROUP => OCM.get(kind.kind).unwrap_or(&OPEN),
            None => &OPEN,
        }
    }

    /// Takes out of the object what no field is declared for, and says where it was.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        if self.typed {
            self.prune_at(&self.schema, object, "", &mut unknown);
            return unknown;
        }
        let metadata = object.get_mut("metadata").map(Value::take);
        self.prune_at(&self.schema, object, "", &mut unknown);
        if let Some(mut metadata) = metadata {
            METADATA.prune_at(&METADATA.schema, &mut metadata, "metadata", &mut unknown);
            object["metadata"] = metadata;
        }
        unknown
    }

    fn prune_at(&self, schema: &Value, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
        let schema = self.resolved(schema);
        if is_open(schema) {
            return;
        }
        match value {
            Value::Object(fields) => self.prune_fields(schema, fields, path, unknown),
            Value::Array(items) => {
                let of_item = schema.get("items").unwrap_or(&Value::Bool(true));
                for (index, item) in items.iter_mut().enumerate() {
                    self.prune_at(of_item, item, &format!("{path}[{index}]"), unknown);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn prune_fields(
        &self,
        schema: &Value,
        fields: &mut Map<String, Value>,
        path: &str,
        unknown: &mut Vec<String>,
    ) {
        let others = schema.get("additionalProperties").filter(|others| **others != false);
        fields.retain(|name, value| {
            let always = path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
            let declared = schema["properties"].get(name);
            let Some(of_field) = declared.or(others) else {
                if !always || self.typed {
                    unknown.push(join(path, name));
                }
                return always && !self.typed;
            };
            self.prune_at(of_field, value, &join(path, name), unknown);
            !(self.typed && value.is_null())
        });
    }

    fn resolved<'s>(&'s self, schema: &'s Value) -> &'s Value {
        let mut schema = schema;
        while let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let name = reference.rsplit('/').next().unwrap_or_default();
            let Some(found) = self.definitions.get(name) else { return &Value::Null };
            schema = found;
        }
        schema
    }
}

/// Whether anything may stand there.
fn is_open(schema: &Value) -> bool {
    let declares = ["properties", "additionalProperties", "items"];
    *schema == true
        || schema["x-kubernetes-preserve-unknown-fields"] == true
        || !declares.iter().any(|word| schema.get(word).is_some())
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(kind: &str) -> &'static Structure {
        Structure::of(Kind::named(kind).unwrap())
    }

    #[test]
    fn unknown_fields_are_named_and_gone() {
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "nope": 1,
            "metadata": {"name": "a", "creationTimestamp": null, "labels": {"x": "y"}, "typo": {}},
            "data": {"k": "dg=="},
        });
        assert_eq!(of("Secret").prune(&mut secret), ["nope", "metadata.typo"]);
        let kept = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "dg=="},
        });
        assert_eq!(secret, kept);

        let mut claim = json!({
            "apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterResourceClaim",
            "metadata": {"name": "c", "typo": 1},
            "spec": {"clusterName": "c", "nominalResources": {"any/thing": "1"}, "resourceAssignments": [
                {"clusterQueueName": "q", "flavor": "f", "resources": {"gpu": 1}, "nope": 1},
            ]},
        });
        let unknown = of("ClusterResourceClaim").prune(&mut claim);
        assert_eq!(unknown, ["spec.resourceAssignments[0].nope", "metadata.typo"]);
        assert_eq!(claim["spec"]["nominalResources"], json!({"any/thing": "1"}));
    }

    #[test]
    fn deep_structures_are_followed() {
        let container =
            json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}, "imge": "x"});
        let mut job = json!({
            "metadata": {"name": "j"},
            "spec": {"template": {"spec": {"containers": [container]}}},
        });
        assert_eq!(of("Job").prune(&mut job), ["spec.template.spec.containers[0].imge"]);
    }

    #[test]
    fn kinds_of_kueue_keep_what_they_are_given() {
        let mut queue = json!({"metadata": {"name": "q", "x": 1}, "spec": {"anything": [1]}});
        assert_eq!(of("ClusterQueue").prune(&mut queue), ["metadata.x"]);
        assert_eq!(queue["spec"], json!({"anything": [1]}));
    }
}
