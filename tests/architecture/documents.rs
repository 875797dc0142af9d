//! The README names what there is: keys of the configuration, metrics, commands, files.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::imports::{names, read, sources};

/// Documents for people.
const DOCUMENTS: [&str; 2] = ["README.md", "ARCHITECTURE.md"];

#[test]
fn configuration_keys_in_the_documents_exist() {
    let config: Value = serde_saphyr::from_str(&read("config/fedqd.yaml")).expect("valid YAML");
    let Value::Object(sections) = &config else { panic!("a map of sections") };
    let mut wrong = Vec::new();
    for document in DOCUMENTS {
        for name in names(&without_code_blocks(&read(document))) {
            let Some((section, _)) = name.split_once('.') else { continue };
            let is_key = name.chars().all(|c| c.is_ascii_alphabetic() || c == '.');
            // `store.path` is a key, `store.rs` a file.
            if is_key && sections.contains_key(section) && !name.ends_with(".rs") {
                let pointer = format!("/{}", name.replace('.', "/"));
                if config.pointer(&pointer).is_none() {
                    wrong.push(format!("{document}: `{name}`"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "not in config/fedqd.yaml:\n{}", wrong.join("\n"));
}

#[test]
fn the_readme_lists_every_metric_and_no_other() {
    let registered = registered_metrics();
    let listed: BTreeSet<String> = names(&without_code_blocks(&read("README.md")))
        .into_iter()
        .filter_map(|name| metric(&name))
        .collect();
    assert_eq!(listed, registered);
}

#[test]
fn metrics_in_architecture_md_exist() {
    let registered = registered_metrics();
    let named = names(&read("ARCHITECTURE.md"));
    let unknown: Vec<String> =
        named.iter().filter_map(|name| metric(name)).filter(|name| !registered.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn files_in_the_documents_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let all: Vec<String> = sources("src").into_iter().chain(sources("tests")).map(|(path, _)| path).collect();
    let mut missing = Vec::new();
    for document in DOCUMENTS {
        for name in names(&without_code_blocks(&read(document))) {
            // A file may be named from a folder that the text has just named.
            let is_source = name.ends_with(".rs") && !name.contains(' ');
            let there = all.iter().any(|path| path.ends_with(&format!("/{name}")));
            let is_file = ["deploy/", "config/", "tests/"].iter().any(|folder| name.starts_with(folder));
            if (is_source && !there) || (is_file && !is_source && !root.join(&name).exists()) {
                missing.push(format!("{document}: `{name}`"));
            }
        }
    }
    assert!(missing.is_empty(), "no such file:\n{}", missing.join("\n"));
}

/// `fedq_writes_total{cluster="c"}` → `fedq_writes`
fn metric(name: &str) -> Option<String> {
    let name = name.split('{').next()?;
    let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let name = name.strip_suffix("_total").or_else(|| name.strip_suffix("_info")).unwrap_or(name);
    (is_name && name.starts_with("fedq_")).then(|| name.to_owned())
}

/// Read from the source, since a metric without a sample yet is not in the exposition.
fn registered_metrics() -> BTreeSet<String> {
    let source = read("src/telemetry/metrics.rs");
    let calls = source.split("registry.register(").skip(1);
    let names = calls.filter_map(|call| call.split('"').nth(1));
    let found: BTreeSet<String> = names.map(|name| format!("fedq_{name}")).collect();
    assert!(!found.is_empty(), "src/telemetry/metrics.rs registers metrics");
    found
}

fn without_code_blocks(text: &str) -> String {
    text.split("```").step_by(2).collect()
}
