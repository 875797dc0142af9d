//! CustomResourceDefinitions of OCM's kinds, for a hub without OCM: served and checked as OCM's own are,
//! so that Placements move from one to the other as they are. OCM's installer replaces them.

use k8s_openapi::schemars::{
    JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema, transform::Transform,
};
use kube::core::schema::{OptionalEnum, OptionalIntOrString, StructuralSchemaRewriter};
use serde_json::{Map, Value, json};

use super::{GROUP, PlacementDecisionStatus, PlacementSpec, PlacementStatus, StatusCondition, inventory};

/// The manifest under `deploy/ocm`, as `fedqd --print-crds=ocm` prints it.
pub fn crds_yaml() -> String {
    let yaml = serde_saphyr::to_string_multiple(&crds());
    yaml.expect("a CRD built from types is plain data, which always has a YAML form")
}

/// What the API server fills in where a Placement leaves it out.
pub fn fill_in_defaults(placement: &mut Value) {
    if let Some(spec) = placement.get_mut("spec") {
        fill_in(&schema::<PlacementSpec>(), spec);
    }
}

fn fill_in(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, of_field) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = of_field.get("default").filter(|_| !fields.contains_key(name)) {
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(field) = fields.get_mut(name) {
                    fill_in(of_field, field);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill_in(&schema["items"], item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// By dependence: what others refer to comes first.
pub fn crds() -> Vec<Value> {
    vec![managed_cluster(), cluster_set(), set_binding(), placement(), decision(), scores()]
}

struct Kind<'a> {
    name: &'a str,
    short_names: &'a [&'a str],
    version: &'a str,
    namespaced: bool,
    description: &'a str,
    columns: Value,
    spec: Option<Value>,
    status: Value,
    required: &'a [&'a str],
}

fn managed_cluster() -> Value {
    let condition = |name: &str, kind: &str| {
        let path = format!(r#".status.conditions[?(@.type=="{kind}")].status"#);
        json!({"name": name, "type": "string", "jsonPath": path})
    };
    render(&Kind {
        name: "ManagedCluster",
        short_names: &["mcl", "mcls"],
        version: "v1",
        namespaced: false,
        description: "A cluster that Placements of the hub may choose.",
        columns: json!([
            {"name": "Hub Accepted", "type": "boolean", "jsonPath": ".spec.hubAcceptsClient"},
            {"name": "Managed Cluster URLs", "type": "string", "jsonPath": ".spec.managedClusterClientConfigs[*].url"},
            condition("Joined", "ManagedClusterJoined"),
            condition("Available", inventory::AVAILABLE),
            age(),
        ]),
        spec: Some(schema::<inventory::ManagedClusterSpec>()),
        status: schema::<inventory::ManagedClusterStatus>(),
        required: &[],
    })
}

fn cluster_set() -> Value {
    render(&Kind {
        name: "ManagedClusterSet",
        short_names: &["mclset", "mclsets"],
        version: "v1beta2",
        namespaced: false,
        description: "A set of ManagedClusters that can be bound to namespaces as a whole.",
        columns: json!([
            {"name": "Empty", "type": "string", "jsonPath": r#".status.conditions[?(@.type=="ClusterSetEmpty")].status"#},
            age(),
        ]),
        spec: Some(schema::<inventory::ManagedClusterSetSpec>()),
        status: schema::<inventory::ConditionsOnly>(),
        required: &[],
    })
}

fn set_binding() -> Value {
    render(&Kind {
        name: "ManagedClusterSetBinding",
        short_names: &["mclsetbinding", "mclsetbindings"],
        version: "v1beta2",
        namespaced: true,
        description: "Lets Placements of this namespace choose from the ManagedClusterSet of this name.",
        columns: json!([]),
        spec: Some(schema::<inventory::ManagedClusterSetBindingSpec>()),
        status: schema::<inventory::ConditionsOnly>(),
        required: &[],
    })
}

fn placement() -> Value {
    let satisfied = |field: &str| format!(r#".status.conditions[?(@.type=="PlacementSatisfied")].{field}"#);
    render(&Kind {
        name: "Placement",
        short_names: &[],
        version: "v1beta1",
        namespaced: true,
        description: "Says which clusters to choose; what was chosen is in PlacementDecisions.",
        columns: json!([
            {"name": "Succeeded", "type": "string", "jsonPath": satisfied("status")},
            {"name": "Reason", "type": "string", "jsonPath": satisfied("reason")},
            {"name": "SelectedClusters", "type": "integer", "jsonPath": ".status.numberOfSelectedClusters"},
            {"name": "Message", "type": "string", "priority": 1, "jsonPath": satisfied("message")},
            {
                "name": "Misconfigured", "type": "string", "priority": 1,
                "jsonPath": r#".status.conditions[?(@.type=="PlacementMisconfigured")].message"#,
            },
            age(),
        ]),
        spec: Some(schema::<PlacementSpec>()),
        status: schema::<PlacementStatus>(),
        required: &["spec"],
    })
}

fn decision() -> Value {
    render(&Kind {
        name: "PlacementDecision",
        short_names: &[],
        version: "v1beta1",
        namespaced: true,
        description: "At most a hundred of the clusters that a Placement chose.",
        columns: json!([
            {"name": "Clusters", "type": "string", "jsonPath": ".status.decisions[*].clusterName"},
            age(),
        ]),
        spec: None,
        status: schema::<PlacementDecisionStatus>(),
        required: &[],
    })
}

fn scores() -> Value {
    render(&Kind {
        name: "AddOnPlacementScore",
        short_names: &[],
        version: "v1alpha1",
        namespaced: true,
        description: "Scores of the cluster whose namespace this is in, for Placements to choose by.",
        columns: json!([
            {"name": "Scores", "type": "string", "jsonPath": ".status.scores[*].value"},
            {"name": "Valid Until", "type": "date", "priority": 1, "jsonPath": ".status.validUntil"},
            age(),
        ]),
        spec: None,
        status: schema::<inventory::AddOnPlacementScoreStatus>(),
        required: &[],
    })
}

fn age() -> Value {
    json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
}

fn render(kind: &Kind) -> Value {
    let singular = kind.name.to_lowercase();
    let plural = format!("{singular}s");
    let mut properties = Map::from_iter([
        ("apiVersion".to_owned(), json!({"type": "string"})),
        ("kind".to_owned(), json!({"type": "string"})),
        ("metadata".to_owned(), json!({"type": "object"})),
    ]);
    properties.extend(kind.spec.clone().map(|spec| ("spec".to_owned(), spec)));
    properties.insert("status".to_owned(), kind.status.clone());
    let mut object = json!({"description": kind.description, "type": "object", "properties": properties});
    if !kind.required.is_empty() {
        object["required"] = json!(kind.required);
    }
    let mut names = json!({
        "kind": kind.name, "listKind": format!("{}List", kind.name), "plural": plural, "singular": singular,
    });
    if !kind.short_names.is_empty() {
        names["shortNames"] = json!(kind.short_names);
    }
    let mut version = json!({
        "name": kind.version, "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": object},
    });
    if kind.columns.as_array().is_some_and(|columns| !columns.is_empty()) {
        version["additionalPrinterColumns"] = kind.columns.clone();
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "names": names, "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
            "versions": [version],
        },
    })
}

fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let generator = settings
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum)
        .with_transform(OptionalIntOrString)
        .with_transform(Plain)
        .into_generator();
    generator.into_root_schema_for::<T>().to_value()
}

/// What serde's defaults and options leave behind is not OCM's: there, a field that is left out stays out,
/// and only what is marked `x-default` is filled in.
#[derive(Clone, Debug)]
struct Plain;

impl Transform for Plain {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(object) = schema.as_object_mut() {
            plain(object);
        }
    }
}

fn plain(object: &mut Map<String, Value>) {
    for key in ["default", "nullable", "title"] {
        // A property may have that name; a schema's own keyword is never an object with a type.
        object.retain(|name, value| name != key || value.get("type").is_some());
    }
    if let Some(default) = object.remove("x-default") {
        object.insert("default".to_owned(), default);
    }
    if object.get("format").is_some_and(|format| format == "uint") {
        object.remove("format");
    }
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        for property in properties.values_mut().filter_map(Value::as_object_mut) {
            plain(property);
        }
    }
    for within in ["items", "additionalProperties"] {
        if let Some(Value::Object(within)) = object.get_mut(within) {
            plain(within);
        }
    }
}

const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";

pub(super) fn label_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": 316, "pattern": LABEL_KEY})
}

pub(super) fn taint_effect(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["NoSelect", "PreferNoSelect", "NoSelectIfNew"]})
}

pub(super) fn selector_type(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "enum": ["ExclusiveClusterSetLabel", "LabelSelector"],
        "x-default": "ExclusiveClusterSetLabel",
    })
}

pub(super) fn coordinate_type(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["BuiltIn", "AddOn"], "x-default": "BuiltIn"})
}

pub(super) fn topology_key_type(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["Label", "Claim"]})
}

pub(super) fn when_unsatisfiable(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "enum": ["DoNotSchedule", "ScheduleAnyway"], "x-default": "ScheduleAnyway",
    })
}

pub(super) fn group_size(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "pattern": "^((100|[1-9][0-9]{0,1})%|[1-9][0-9]*)$",
        "x-kubernetes-int-or-string": true,
        "x-default": "100%",
    })
}

pub(super) fn condition_status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["True", "False", "Unknown"]})
}

pub(super) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

pub(super) fn optional_time(generator: &mut SchemaGenerator) -> Schema {
    time(generator)
}

pub(super) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let condition = generator.subschema_for::<StatusCondition>();
    json_schema!({
        "type": "array", "items": condition,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
    })
}

pub(super) fn managed_namespaces(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object", "required": ["clusterSet", "name"],
            "properties": {"clusterSet": {"type": "string"}, "name": {"type": "string", "maxLength": 63}},
            "x-kubernetes-preserve-unknown-fields": true,
        },
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["clusterSet", "name"],
    })
}

pub(super) fn any_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object", "required": ["name"],
            "properties": {"name": {"type": "string", "maxLength": 63}},
        },
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
    })
}
