//! Which module may import which: the table is in ARCHITECTURE.md, and this holds the sources to it.

use std::collections::{BTreeMap, BTreeSet};
use std::{fs, path::Path};

/// By module, the paths under `crate::` that it may import.
type Table = BTreeMap<String, BTreeSet<String>>;

/// What controllers share; they know nothing else of each other.
const SHARED_BY_CONTROLLERS: [&str; 2] = ["driver", "writer"];

#[test]
fn modules_import_only_what_the_table_in_architecture_md_allows() {
    let table = table(&read("ARCHITECTURE.md"));
    let mut wrong = Vec::new();
    let mut modules = BTreeSet::new();
    for (path, text) in sources("src") {
        let module = module(&path);
        // `appwrapper` is a package of its own, and imports nothing of this one.
        if ["lib", "bin", "appwrapper"].contains(&module.as_str()) {
            continue;
        }
        modules.insert(module.clone());
        let Some(allowed) = table.get(&module) else { continue };
        for import in imports(&path, without_tests(&text)) {
            let own = import == module || import.starts_with(&format!("{module}::"));
            if !own && !allowed.iter().any(|edge| covers(edge, &import)) {
                wrong.push(format!("{path} imports crate::{import}"));
            }
        }
    }
    assert!(wrong.is_empty(), "not allowed by ARCHITECTURE.md:\n{}", wrong.join("\n"));
    let listed: BTreeSet<String> = table.keys().cloned().collect();
    assert_eq!(listed, modules, "the table in ARCHITECTURE.md lists every module under src, and no other");
}

#[test]
fn controllers_do_not_import_each_other() {
    let mut wrong = Vec::new();
    for (path, text) in sources("src/controllers") {
        let own = path.trim_start_matches("src/controllers/").split(['/', '.']).next().unwrap_or_default();
        for import in imports(&path, without_tests(&text)) {
            let other = import.strip_prefix("controllers::").and_then(|rest| rest.split("::").next());
            let Some(other) = other.filter(|other| *other != own) else { continue };
            if own != "mod" && !SHARED_BY_CONTROLLERS.contains(&other) {
                wrong.push(format!("{path} imports controllers::{other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_opens_with_what_it_is_for() {
    let undocumented: Vec<String> = sources("src")
        .into_iter()
        .filter(|(path, text)| !is_test(path) && !text.starts_with("//!"))
        .map(|(path, _)| path)
        .collect();
    assert!(undocumented.is_empty(), "no //! at the top of {}", undocumented.join(", "));
}

#[test]
fn the_scan_sees_imports_in_every_form() {
    let text = "use crate::{\n    clock::Clock,\n    k8s::{hub::Hub, read},\n};\nuse super::{a, b::C};\n\
                use super::super::up;\nfn f() { crate::store::open(); }\n// crate::comment::is_not\n";
    let found: BTreeSet<String> = imports("src/api/one/two.rs", text).into_iter().collect();
    let wanted = [
        "api::one::a",
        "api::one::b::C",
        "api::up",
        "clock::Clock",
        "k8s::hub::Hub",
        "k8s::read",
        "store::open",
    ];
    assert_eq!(found, wanted.map(str::to_owned).into());
    assert!(covers("k8s", "k8s::hub::Hub") && covers("k8s::hub", "k8s::hub::Hub"));
    assert!(!covers("k8s::hub", "k8s::hubs") && !covers("k8s::hub", "k8s::read"));
}

pub fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
}

/// Every Rust file under `folder` with its path from the package's folder.
pub fn sources(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be listed") {
            let path = entry.expect("the folder can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).expect("under the root").to_string_lossy().into_owned();
                found.push((name.clone(), read(&name)));
            }
        }
    }
    found.sort();
    found
}

/// Rows such as ``| `webhook` | `clock`, `domain`, `k8s::types` | …|`` of the one table that has them.
fn table(text: &str) -> Table {
    let section = text.split("\n## ").find(|section| section.starts_with("Who may import what"));
    let section = section.expect("ARCHITECTURE.md has a section `Who may import what`");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let mut cells = row.split('|').skip(1).map(names);
        let (module, edges) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        (module.into_iter().next().expect("a module"), edges.into_iter().collect())
    })
    .collect()
}

/// What stands between backticks.
pub fn names(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// `src/k8s/list_watch/mod.rs` → `k8s`
fn module(path: &str) -> String {
    path.trim_start_matches("src/").split(['/', '.']).next().unwrap_or_default().to_owned()
}

pub fn is_test(path: &str) -> bool {
    path.ends_with("tests.rs")
}

/// Tests may reach for what they like.
pub fn without_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text)
}

fn covers(edge: &str, import: &str) -> bool {
    import.strip_prefix(edge).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Every path that begins with `crate::` or `super::`, from the root and without `crate::`.
fn imports(path: &str, text: &str) -> Vec<String> {
    if is_test(path) {
        return Vec::new();
    }
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        expand("", &code[at + "crate::".len()..], &mut found);
    }
    let here = own_path(path);
    for (at, _) in code.match_indices("super::") {
        if code[..at].ends_with("super::") {
            continue;
        }
        let (mut rest, mut above) = (&code[at..], here.as_slice());
        while let Some(after) = rest.strip_prefix("super::") {
            rest = after;
            above = above.split_last().map_or(above, |(_, above)| above);
        }
        let prefix: String = above.iter().flat_map(|part| [*part, "::"]).collect();
        expand(&prefix, rest, &mut found);
    }
    found
}

/// `src/k8s/read/queues.rs` → `[k8s, read, queues]`
fn own_path(path: &str) -> Vec<&str> {
    let path = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').collect()
}

/// Writes a path, or each path of a `{…}` group, to `found`; returns what follows it.
fn expand<'a>(prefix: &str, text: &'a str, found: &mut Vec<String>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = expand(prefix, rest, found).trim_start();
            match rest.strip_prefix(',') {
                Some(more) if !more.trim_start().starts_with('}') => rest = more,
                Some(more) => return more.trim_start().trim_start_matches('}'),
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let path = format!("{prefix}{name}");
    let deeper = rest.strip_prefix("::");
    let is_path = |text: &&str| text.starts_with(|c: char| c == '{' || c == '_' || c.is_alphabetic());
    if let Some(deeper) = deeper.filter(is_path) {
        return expand(&format!("{path}::"), deeper, found);
    }
    if !name.is_empty() {
        found.push(path);
    }
    // `as other`
    rest.trim_start()
        .strip_prefix("as ")
        .map_or(rest, |alias| alias.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_'))
}
