//! Documents name what there is: keys of the configuration, metrics, commands, files, each other.

use std::collections::BTreeSet;
use std::{fs, path::Path, process::Command};

use serde_json::Value;

use super::imports::{names, read, sources};

/// Documents for people.
fn documents() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = fs::read_dir(root.join("docs")).expect("docs can be listed");
    let names =
        pages.map(|page| page.expect("docs can be listed").file_name().to_string_lossy().into_owned());
    let pages = names.filter(|name| Path::new(name).extension().is_some_and(|end| end == "md"));
    let mut all: Vec<String> = pages.map(|name| format!("docs/{name}")).collect();
    all.sort();
    assert!(8 < all.len(), "{all:?}");
    all.extend(["README.md", "ARCHITECTURE.md", "SECURITY.md"].map(str::to_owned));
    all
}

#[test]
fn configuration_keys_in_the_documents_exist() {
    let config: Value = serde_saphyr::from_str(&read("config/fedqd.yaml")).expect("valid YAML");
    let Value::Object(sections) = &config else { panic!("a map of sections") };
    let mut wrong = Vec::new();
    for document in documents() {
        for name in names(&without_code_blocks(&read(&document))) {
            let Some((section, _)) = name.split_once('.') else { continue };
            let is_key = name.chars().all(|c| c.is_ascii_alphabetic() || c == '.');
            // `store.path` is a key, `store.rs` a file.
            if is_key
                && sections.contains_key(section)
                && Path::new(&name).extension().is_none_or(|end| end != "rs" && end != "yaml")
            {
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
fn every_metric_and_no_other_is_listed() {
    let registered = registered_metrics();
    let listed: BTreeSet<String> = names(&without_code_blocks(&read("docs/observability.md")))
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
    for document in documents() {
        for name in names(&without_code_blocks(&read(&document))) {
            // A file may be named from a folder that the text has just named.
            let is_source =
                Path::new(&name).extension().is_some_and(|end| end == "rs") && !name.contains(' ');
            let there = all.iter().any(|path| *path == name || path.ends_with(&format!("/{name}")));
            let is_file = ["deploy/", "config/", "tests/"].iter().any(|folder| name.starts_with(folder));
            if (is_source && !there) || (is_file && !is_source && !root.join(&name).exists()) {
                missing.push(format!("{document}: `{name}`"));
            }
        }
    }
    assert!(missing.is_empty(), "no such file:\n{}", missing.join("\n"));
}

/// Links to files of the repository, and to headings of documents.
#[test]
fn links_in_the_documents_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut seen, mut wrong) = (0, Vec::new());
    for document in documents() {
        let folder = Path::new(&document).parent().expect("a folder");
        for link in links(&without_code_blocks(&read(&document))) {
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { document.clone() } else { joined(folder, file) };
            let headings = || anchors(&read(&target));
            let there = root.join(&target).exists() && (heading.is_empty() || headings().contains(heading));
            seen += 1;
            if !there {
                wrong.push(format!("{document}: {link}"));
            }
        }
    }
    assert!(30 < seen, "only {seen} links were found");
    assert!(wrong.is_empty(), "these lead nowhere:\n{}", wrong.join("\n"));
}

/// What `](…)` leads to, but for other sites.
fn links(text: &str) -> Vec<String> {
    let behind = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    behind.filter(|link| !link.contains("://")).map(str::to_owned).collect()
}

/// A path with `..` in it, from a folder of the repository.
fn joined(folder: &Path, file: &str) -> String {
    let mut parts: Vec<&str> = folder.iter().filter_map(|part| part.to_str()).collect();
    for part in file.split('/') {
        if part == ".." { _ = parts.pop() } else { parts.push(part) }
    }
    parts.join("/")
}

/// As GitHub makes them of headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let text = without_code_blocks(text);
    let headings = text
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .map(|line| line.trim_start_matches('#').trim());
    let letters = |heading: &str| {
        let kept = heading.to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || ['-', '_'].contains(c)).collect()
    };
    headings.map(letters).collect()
}

#[test]
fn functions_and_types_in_architecture_md_exist() {
    let code: String = sources("src").into_iter().map(|(_, text)| text).collect();
    let known: BTreeSet<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let named = names(&without_code_blocks(&read("ARCHITECTURE.md")));
    let paths = named.iter().filter(|name| name.contains("::") && !name.contains(['{', '/', ' ']));
    let unknown: Vec<&String> =
        paths.filter(|path| path.split("::").any(|part| !part.is_empty() && !known.contains(part))).collect();
    assert!(unknown.is_empty(), "no source has {unknown:?}");
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
    let source = read("src/base/telemetry/metrics.rs");
    let calls = source.split("registry.register(").skip(1);
    let names = calls.filter_map(|call| call.split('"').nth(1));
    let found: BTreeSet<String> = names.map(|name| format!("fedq_{name}")).collect();
    assert!(!found.is_empty(), "src/base/telemetry/metrics.rs registers metrics");
    found
}

fn without_code_blocks(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

#[test]
fn labels_and_annotations_in_the_documents_exist() {
    let known: BTreeSet<String> = sources("src")
        .iter()
        .flat_map(|(_, text)| text.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .filter(|literal| literal.starts_with("fedq.dev/"))
        .collect();
    let policy = read("deploy/worker/policy.yaml");
    for document in documents() {
        let text = read(&document);
        for (at, _) in text.match_indices("fedq.dev/") {
            let rest = &text[at..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "./-".contains(c)));
            let name = rest[..end.unwrap_or(rest.len())].trim_end_matches(['.', '-']);
            // One is read by the policy of workers alone.
            let is_known = known.contains(name) || policy.contains(&format!("'{name}'"));
            assert!(is_known, "{document} names `{name}`, which no source does");
        }
    }
}

/// The words of conditions and assignments: each is explained, and only those that exist are.
#[test]
fn every_reason_is_explained() {
    let files = [
        "src/domain/claim/problem.rs",
        "src/domain/claim_status.rs",
        "src/domain/claim_status/conditions.rs",
        "src/domain/claim_status/words.rs",
        "src/domain/cluster.rs",
        "src/domain/queue/report.rs",
    ];
    // The status and the names of conditions themselves.
    let others = ["True", "False", "Unknown", "CapacityKnown", "QuotaSynced", "Unreached"];
    let in_source: BTreeSet<String> = files
        .iter()
        .flat_map(|file| literals(&read(file)))
        .filter(|word| is_word(word) && !others.contains(&word.as_str()))
        .collect();
    let section = read("docs/troubleshooting.md");
    let explained: BTreeSet<String> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|row| names(row.split('|').nth(1).unwrap_or_default()))
        .chain(
            section
                .lines()
                .filter(|line| !line.starts_with('|'))
                .flat_map(names)
                .filter(|name| is_word(name)),
        )
        .collect();
    assert_eq!(explained, in_source);
}

/// What stands in double quotes, line by line: a quote in a comment must not shift all that follows.
fn literals(text: &str) -> Vec<String> {
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .flat_map(|line| line.split('"').skip(1).step_by(2).map(str::to_owned))
        .collect()
}

/// `QueueNotFound`
fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_alphabetic())
        && text.chars().any(|c| c.is_ascii_lowercase())
}

#[test]
fn every_command_and_no_other_is_listed() {
    let mut commands = BTreeSet::new();
    let mut open = vec![Vec::new()];
    while let Some(path) = open.pop() {
        let below = subcommands(&path);
        if below.is_empty() {
            commands.insert(format!("fedq {}", path.join(" ")));
        }
        open.extend(below.into_iter().map(|name| [path.clone(), vec![name]].concat()));
    }
    let page = read("docs/commands.md");
    let rows = page.lines().filter(|line| line.starts_with("| `fedq "));
    let listed: BTreeSet<String> = rows
        .filter_map(|row| names(row).into_iter().next())
        .map(|name| name.trim_end_matches(|c: char| c.is_ascii_uppercase()).trim_end().to_owned())
        .collect();
    assert_eq!(listed, commands);
}

/// The names under `Commands:` in the help of a command.
fn subcommands(path: &[String]) -> Vec<String> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_fedq")).args(path).arg("--help").output().expect("fedq can be run");
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "fedq {} --help: {help}", path.join(" "));
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        // Continuation lines of a description are indented deeper.
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

const APPWRAPPER_NAMESPACE: &str = "fedq-appwrapper";

#[test]
fn manifests_are_yaml_and_agree_with_the_configuration() {
    let config: Value = serde_saphyr::from_str(&read("config/fedqd.yaml")).expect("valid YAML");
    let text = |pointer: &str| config.pointer(pointer).and_then(Value::as_str).expect(pointer).to_owned();
    let namespace = text("/namespace");
    let kueue_namespace = text("/multikueue/kueueNamespace");
    let mut services = Vec::new();
    let mut ports = BTreeSet::new();
    for (path, manifest) in manifests() {
        let kind = manifest["kind"].as_str().unwrap_or_else(|| panic!("{path}: an object without a kind"));
        if kind == "Kustomization" {
            continue;
        }
        assert!(manifest["metadata"]["name"].is_string(), "{path}: {kind} without a name");
        // Another program, for workers, beside which there may be no fedqd.
        if path.starts_with("deploy/appwrapper/") {
            let place = if kind == "Namespace" { "name" } else { "namespace" };
            let found = manifest["metadata"][place].as_str().unwrap_or(APPWRAPPER_NAMESPACE);
            assert_eq!(found, APPWRAPPER_NAMESPACE, "{path}: {kind}");
            continue;
        }
        // People's own, who choose their namespaces; `tests/real` applies them.
        if path.starts_with("deploy/examples/") {
            continue;
        }
        if kind == "Namespace" {
            assert_eq!(manifest["metadata"]["name"], Value::from(namespace.as_str()), "{path}");
        } else if let Some(found) = manifest["metadata"]["namespace"].as_str() {
            let kubernetes_own = ["kube-system", "default"].contains(&found);
            let ours = found == namespace || found == kueue_namespace;
            assert!(kubernetes_own || ours, "{path}: {kind} is in namespace {found}");
        }
        if kind == "ValidatingWebhookConfiguration" {
            let name = fedq_controllers::webhook::CONFIGURATION;
            assert_eq!(manifest["metadata"]["name"], Value::from(name), "{path}: fedqd looks for that name");
        }
        if kind == "Service" {
            let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let ports = manifest["spec"]["ports"].as_array().expect("ports");
            let of_metrics = ports.iter().filter(|port| port["targetPort"] == "metrics").count();
            assert!(
                of_metrics == 0 || ports.len() == 1,
                "{path}: who makes {name} reachable does not mean metrics"
            );
            services.push(name);
        }
        collect_ports(&manifest, &mut ports);
    }
    let service = text("/webhook/service/name");
    assert!(services.contains(&service), "no Service {service} in deploy: {services:?}");
    for key in ["/api/address", "/metrics/address", "/webhook/address"] {
        let address = text(key);
        let port = address.rsplit(':').next().and_then(|port| port.parse::<i64>().ok()).expect(key);
        assert!(ports.contains(&port), "no container in deploy has port {port} of {key}: {ports:?}");
    }
}

fn collect_ports(value: &Value, ports: &mut BTreeSet<i64>) {
    match value {
        Value::Object(members) => {
            ports.extend(members.get("containerPort").and_then(Value::as_i64));
            members.values().for_each(|member| collect_ports(member, ports));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_ports(item, ports)),
        _ => {}
    }
}

/// Every object in every manifest under deploy, with its file.
fn manifests() -> Vec<(String, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("deploy")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("deploy can be listed") {
            let path = entry.expect("deploy can be listed").path();
            // What Helm renders, `tests/real/cases/chart.rs` compares with the rest.
            if path.ends_with("deploy/chart") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                let name = path.strip_prefix(root).expect("under the root").to_string_lossy().into_owned();
                let text = read(&name);
                let objects: Vec<Value> =
                    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
                found.extend(objects.into_iter().map(|object| (name.clone(), object)));
            }
        }
    }
    found
}
