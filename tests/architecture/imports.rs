//! Which crate depends on which: cargo holds the sources to their manifests, and this holds ARCHITECTURE.md to them.

use std::collections::{BTreeMap, BTreeSet};
use std::{fs, path::Path, process::Command};

/// By crate of this workspace, the others that it depends on, all by the names of their folders.
type Table = BTreeMap<String, BTreeSet<String>>;

/// What controllers share; they know nothing else of each other.
const SHARED_BY_CONTROLLERS: [&str; 4] = ["context", "driver", "memo", "writer"];

/// Controllers and handlers make typed requests with clients that `k8s` made; `appwrapper` and `kueuectl` are other programs.
const HOLD_A_CLIENT: [&str; 5] = ["api", "appwrapper", "controllers", "k8s", "kueuectl"];

#[test]
fn crates_depend_on_what_the_table_in_architecture_md_says() {
    let manifests: Table = crates()
        .into_iter()
        .map(|name| (name.clone(), dependencies(&name).iter().filter_map(|other| ours(other)).collect()))
        .collect();
    let table = table(&read("ARCHITECTURE.md"));
    assert_eq!(table, manifests, "the table in ARCHITECTURE.md (left) and the manifests under src (right)");
}

/// Nothing else can speak SQL or have a client of Kubernetes: cargo sees to that.
#[test]
fn clusters_and_the_database_have_one_door_each() {
    let doors = |name: &str| -> BTreeSet<String> {
        crates().into_iter().filter(|member| dependencies(member).contains(name)).collect()
    };
    assert_eq!(doors("sqlx"), ["store"].map(str::to_owned).into());
    assert_eq!(doors("kube"), HOLD_A_CLIENT.map(str::to_owned).into());
}

#[test]
fn controllers_do_not_import_each_other() {
    let mut wrong = Vec::new();
    for (path, text) in sources("src/controllers") {
        let own = path.trim_start_matches("src/controllers/").split(['/', '.']).next().unwrap_or_default();
        for import in imports(&path, without_tests(&text)) {
            let other = import.split("::").next().filter(|other| *other != own);
            let Some(other) = other.filter(|_| own != "lib") else { continue };
            if !SHARED_BY_CONTROLLERS.contains(&other) {
                wrong.push(format!("{path} imports crate::{other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `cargo install --path . --no-default-features`, for a machine that only talks to a daemon elsewhere.
#[test]
fn the_command_line_alone_has_no_daemon_database_or_simulation() {
    let args =
        ["tree", "--package", "fedq", "--no-default-features", "--edges", "normal", "--prefix", "none"];
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(args).args(["--format", "{p}", "--locked"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let told = cargo.output().expect("cargo runs");
    let text = String::from_utf8_lossy(&told.stdout);
    let built: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(built.contains("fedq-cli"), "{text}{}", String::from_utf8_lossy(&told.stderr));
    for absent in ["fedq-daemon", "fedq-sim", "fedq-store", "sqlx"] {
        assert!(!built.contains(absent), "{absent} is built into the command line");
    }
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
    let wanted = ["clock::Clock", "k8s::hub::Hub", "k8s::read", "one::a", "one::b::C", "store::open", "up"];
    assert_eq!(found, wanted.map(str::to_owned).into());
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

/// Rows such as ``| `wire` | `domain`, `values` |`` of the one table that has them.
fn table(text: &str) -> Table {
    let section = text.split("\n## ").find(|section| section.starts_with("Who may import what"));
    let section = section.expect("ARCHITECTURE.md has a section `Who may import what`");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let mut cells = row.split('|').skip(1).map(names);
        let (name, edges) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        (name.into_iter().next().expect("a crate"), edges.into_iter().collect())
    })
    .collect()
}

/// The folders under `src` that are crates.
fn crates() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let folders = fs::read_dir(&root).expect("src can be listed");
    let names =
        folders.map(|entry| entry.expect("src can be listed").file_name().to_string_lossy().into_owned());
    names.filter(|name| root.join(name).join("Cargo.toml").exists()).collect()
}

/// What a crate is built of; what only its tests need does not count.
fn dependencies(name: &str) -> BTreeSet<String> {
    let manifest = read(&format!("src/{name}/Cargo.toml"));
    let section = manifest.split("\n[").find_map(|section| section.strip_prefix("dependencies]\n"));
    let lines = section.unwrap_or_else(|| panic!("{name} has dependencies")).lines();
    let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| !name.is_empty() && *name != "#").map(str::to_owned).collect()
}

/// `fedq-k8s` → `k8s`
fn ours(dependency: &str) -> Option<String> {
    dependency.strip_prefix("fedq-").map(str::to_owned)
}

/// What stands between backticks.
pub fn names(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

pub fn is_test(path: &str) -> bool {
    path.ends_with("tests.rs") || path.contains("/tests/")
}

/// Tests may reach for what they like.
pub fn without_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text)
}

/// Every path that begins with `crate::` or `super::`, from the root of its crate and without `crate::`.
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

/// `src/k8s/read/queues.rs` → `[read, queues]`
fn own_path(path: &str) -> Vec<&str> {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod").trim_end_matches("/lib");
    path.split('/').skip(2).collect()
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
