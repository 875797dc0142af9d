//! The chart says what the rest of the project says: its version, its files, the keys of fedqd's configuration.

use std::{fs, path::Path};

use serde_json::{Map, Value, json};

use super::{expect_file, imports::read};

const SCHEMA: &str = "deploy/chart/values.schema.json";
/// Keys of the configuration whose maps take any name, although the defaults have some in them.
const OPEN: [&str; 3] = ["aliases", "capacity.headroom.percent", "placement.scores.ranges"];

#[test]
fn a_misspelt_key_of_the_configuration_is_refused_by_the_charts_schema() {
    let config: Value = serde_saphyr::from_str(&read("config/fedqd.yaml")).expect("valid YAML");
    let mut schema: Value = serde_json::from_str(&read(SCHEMA)).expect("valid JSON");
    schema["properties"]["managerConfig"] = of_default(&config, "");
    expect_file(SCHEMA, &format!("{schema:#}\n"));
}

/// What a key may have in the values, by its default. Which numbers and words it takes, `fedqd` says.
fn of_default(default: &Value, path: &str) -> Value {
    match default {
        Value::Object(keys) if keys.is_empty() || OPEN.contains(&path) => json!({"type": "object"}),
        Value::Object(keys) => {
            let properties: Map<String, Value> = keys
                .iter()
                .map(|(key, value)| {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    (key.clone(), of_default(value, &path))
                })
                .collect();
            json!({"type": "object", "additionalProperties": false, "properties": properties})
        }
        Value::Array(_) => json!({"type": "array"}),
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Null | Value::Number(_) | Value::String(_) => json!({"type": ["string", "number"]}),
    }
}

/// Every value that the chart has is known to its schema, and no other: Helm itself checks the first only when it renders.
#[test]
fn the_charts_schema_has_every_value_and_no_other() {
    let values: Value = serde_saphyr::from_str(&read("deploy/chart/values.yaml")).expect("valid YAML");
    let schema: Value = serde_json::from_str(&read(SCHEMA)).expect("valid JSON");
    let mut wrong = Vec::new();
    compare("", &values, &schema, &mut wrong);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn compare(path: &str, value: &Value, schema: &Value, wrong: &mut Vec<String>) {
    // Values of Helm's own for charts in charts.
    const HELMS: &str = ".global";
    // These are lists of what may be set, while the defaults set little of it.
    const SPARSE: [&str; 5] = [
        ".managerConfig",
        ".controllerManager.livenessProbe",
        ".controllerManager.readinessProbe",
        ".controllerManager.manager.resources",
        HELMS,
    ];
    let (Some(values), Some(properties)) = (value.as_object(), schema["properties"].as_object()) else {
        return;
    };
    for (name, value) in values {
        let path = format!("{path}.{name}");
        match properties.get(name) {
            None => wrong.push(format!("{path} is not in the schema")),
            Some(schema) => compare(&path, value, schema, wrong),
        }
    }
    for name in properties.keys() {
        let of = format!("{path}.{name}");
        let is_there = values.contains_key(name) || SPARSE.contains(&path) || SPARSE.contains(&of.as_str());
        if !is_there {
            wrong.push(format!("{of} has no default in values.yaml"));
        }
    }
}

#[test]
fn versions_in_deploy_are_the_workspaces() {
    let version = env!("CARGO_PKG_VERSION");
    // Of several documents in a file the first.
    let yaml = |path: &str| -> Value {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&read(path)).expect(path);
        documents.into_iter().next().expect(path)
    };
    let chart = yaml("deploy/chart/Chart.yaml");
    assert_eq!([&chart["version"], &chart["appVersion"]], [version, version]);
    for folder in ["hub", "appwrapper"] {
        let kustomization = yaml(&format!("deploy/{folder}/kustomization.yaml"));
        assert_eq!(kustomization["images"][0]["newTag"], version, "{folder}");
        let deployment = yaml(&format!("deploy/{folder}/deployment.yaml"));
        let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
        assert_eq!(*image, format!("fedqd:{version}"), "{folder}");
    }
}

/// What others have as files of their own is not copied into the chart.
#[test]
fn the_charts_files_are_links_to_what_is_applied_without_helm() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/chart/files");
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("the chart has files") {
        let path = entry.expect("it can be listed").path();
        let target = fs::read_link(&path).unwrap_or_else(|_| panic!("{} is no link", path.display()));
        assert!(target.starts_with("../../"), "{}", path.display());
        assert!(path.is_file(), "{} leads nowhere", path.display());
        count += 1;
    }
    assert!(0 < count);
}
