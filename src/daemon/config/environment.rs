//! `FEDQ_…` variables: every key has one, named after its path.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Config;
use fedq_domain::nearest::nearest;

const PREFIX: &str = "FEDQ_";

/// Maps whose keys are the user's, and lists of maps. Their variable holds all of it in YAML:
/// `{gpu: nvidia.com/gpu}`.
const MAPS: [&str; 7] = [
    "aliases",
    "capacity.limits",
    "capacity.headroom.percent",
    "capacity.headroom.absolute",
    "capacity.headroom.clusters",
    "placement.scores.ranges",
    "tasks.tenants",
];

/// Read by others: the command line, clap, and Kubernetes for a Service called `fedq`.
const FOREIGN: [&str; 7] =
    ["FEDQ_CONFIG", "FEDQ_PORT", "FEDQ_SERVICE_", "FEDQ_PORT_", "FEDQ_SERVER", "FEDQ_TOKEN", "FEDQ_TEST_"];

/// Overrides what is set; what could not be used, each with its variable.
pub(super) fn apply(config: &mut Config, environment: &BTreeMap<String, String>) -> Vec<String> {
    let mut problems = Vec::new();
    for path in paths() {
        let name = variable(&path);
        let Some(text) = environment.get(&name) else { continue };
        match overridden(config, &path, text) {
            Ok(changed) => *config = changed,
            Err(error) => problems.push(format!("{name} ({path}): {error}")),
        }
    }
    problems
}

/// Variables that look like ours but are not, and resemble one that is.
pub(super) fn misspelt(environment: &BTreeMap<String, String>) -> Vec<String> {
    let known = paths().iter().map(|path| variable(path)).collect::<Vec<_>>();
    environment
        .keys()
        .filter(|name| name.starts_with(PREFIX) && !known.contains(name))
        .filter(|name| !FOREIGN.iter().any(|foreign| name.starts_with(foreign)))
        .filter_map(|name| {
            let nearest = nearest(name, known.iter().map(String::as_str))?;
            Some(format!("the variable {name} is not read; did you mean {nearest}?"))
        })
        .collect()
}

/// Every key that a variable can set: `clusters.lostTimeout`.
pub(super) fn paths() -> Vec<String> {
    let mut paths = Vec::new();
    let defaults = serde_json::to_value(Config::default()).expect("the configuration has text keys only");
    collect("", &defaults, &mut paths);
    paths
}

fn collect(at: &str, value: &Value, paths: &mut Vec<String>) {
    match value {
        Value::Object(members) if !MAPS.contains(&at) => {
            for (key, member) in members {
                let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                collect(&path, member, paths);
            }
        }
        _ => paths.push(at.to_owned()),
    }
}

/// `clusters.lostTimeout` → `FEDQ_CLUSTERS_LOST_TIMEOUT`.
pub(super) fn variable(path: &str) -> String {
    let mut name = PREFIX.to_owned();
    for c in path.chars() {
        if c.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(if c == '.' { '_' } else { c.to_ascii_uppercase() });
    }
    name
}

fn overridden(config: &Config, path: &str, text: &str) -> Result<Config, String> {
    if MAPS.contains(&path) {
        return with_map(config, path, text).map_err(|error| error.to_string());
    }
    let mut tree = serde_json::to_value(config).map_err(|error| error.to_string())?;
    let pointer = format!("/{}", path.replace('.', "/"));
    let slot = tree.pointer_mut(&pointer).expect("paths are those of the configuration");
    *slot = parsed(slot, text)?;
    serde_json::from_value(tree).map_err(|error| error.to_string())
}

/// Read with its type in mind: as a tree, the quantity `1e3` would have become a float on the way.
fn with_map(config: &Config, path: &str, text: &str) -> Result<Config, serde_saphyr::Error> {
    let options = serde_saphyr::options! { with_snippet: false };
    let mut config = config.clone();
    let headroom = &mut config.capacity.headroom;
    match path {
        "aliases" => config.aliases = serde_saphyr::from_str_with_options(text, options)?,
        "capacity.limits" => config.capacity.limits = serde_saphyr::from_str_with_options(text, options)?,
        "capacity.headroom.percent" => headroom.percent = serde_saphyr::from_str_with_options(text, options)?,
        "capacity.headroom.absolute" => {
            headroom.absolute = serde_saphyr::from_str_with_options(text, options)?;
        }
        "capacity.headroom.clusters" => {
            headroom.clusters = serde_saphyr::from_str_with_options(text, options)?;
        }
        "placement.scores.ranges" => {
            config.placement.scores.ranges = serde_saphyr::from_str_with_options(text, options)?;
        }
        "tasks.tenants" => config.tasks.tenants = serde_saphyr::from_str_with_options(text, options)?,
        other => unreachable!("{other} is not in MAPS"),
    }
    Ok(config)
}

/// As the type of the key asks for.
fn parsed(current: &Value, text: &str) -> Result<Value, String> {
    Ok(match current {
        Value::Bool(_) => {
            text.parse().map(Value::Bool).map_err(|_| format!("`{text}` is neither true nor false"))?
        }
        Value::Number(_) => {
            Value::from(text.parse::<i64>().map_err(|_| format!("`{text}` is not a whole number"))?)
        }
        Value::Array(_) => text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect(),
        Value::Object(_) => return Err("set its keys one by one".to_owned()),
        // Of these, only keys that need not be set are empty.
        Value::Null | Value::String(_) if text.is_empty() => Value::Null,
        Value::Null | Value::String(_) => Value::from(text),
    })
}
