//! kueuectl's unit cases, as fixtures: each names upstream's file and case, and runs on an API in memory.

#![expect(clippy::panic, reason = "a test fails by it")]

#[path = "golden/memory.rs"]
mod memory;
#[path = "golden/objects.rs"]
mod objects;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;

use fedq_kueuectl::{Called, World, run};
use serde::Deserialize;
use serde_json::Value;

use memory::Memory;

/// The time of every case; ages in fixtures count back from it.
const NOW: &str = "2026-01-01T12:00:00Z";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "case")]
    name: String,
    /// Upstream's file and case, or why it is here.
    source: String,
    #[serde(default)]
    objects: Vec<Value>,
    /// What the server answers whatever it is asked.
    answer: Option<Value>,
    run: String,
    /// The program's name, where it is not kueuectl.
    #[serde(default = "kueuectl")]
    program: String,
    #[serde(default)]
    input: String,
    #[serde(default)]
    out: String,
    #[serde(default)]
    err: String,
    #[serde(default)]
    code: u8,
    /// `kind/namespace/name` of all that is left, where a case is about that.
    left: Option<Vec<String>>,
    /// What the last request that changes something carried.
    sent: Option<Value>,
    /// All that the requests that change something carried.
    writes: Option<Vec<Value>>,
    /// To so many patches the server says that somebody else wrote first.
    #[serde(default)]
    conflicts: usize,
    /// Objects a page, where a case is about pages.
    page: Option<usize>,
}

fn kueuectl() -> String {
    "kueuectl".to_owned()
}

fn cases(text: &str) -> Vec<Case> {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}"))
}

fn check(text: &str) {
    let cases = cases(text);
    assert!(!cases.is_empty());
    let wrong: Vec<String> = cases.iter().filter_map(failure).collect();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn failure(case: &Case) -> Option<String> {
    // The client starts a task on it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _entered = runtime.enter();
    let memory = Memory::new(case.objects.iter().map(|object| objects::expand(object, NOW)).collect());
    let memory = memory.answering(case.answer.clone()).with_conflicts(case.conflicts);
    let line: Vec<OsString> = words(&case.run).into_iter().map(OsString::from).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let page = case.page.map(|page| page.to_string());
    let mut world = World {
        input: &mut case.input.as_bytes(),
        output: &mut out,
        errors: &mut err,
        now: &|| NOW.parse().expect("it is a time"),
        variables: &|name| {
            page.as_ref().filter(|_| name == "KUEUECTL_LIST_REQUEST_LIMIT").map(OsString::from)
        },
        replace: &|program, arguments, _| io::Error::other(format!("{} {arguments:?}", program.display())),
        run: &|_, _, _| Err(io::Error::other("no other program runs here")),
        terminal: false,
        interrupted: &|| Box::pin(std::future::pending()),
        fleet: None,
        client: Some(memory.client()),
    };
    let called = Called { name: &case.program, arguments: &line, version: "v0.0.0-main" };
    let code = runtime.block_on(run(&called, &mut world));
    let found = [String::from_utf8_lossy(&out), String::from_utf8_lossy(&err), code.to_string().into()];
    let wanted = [case.out.clone(), case.err.clone(), case.code.to_string()];
    let left = case.left.as_ref().is_none_or(|left| *left == memory.names());
    let sent = case.sent.as_ref().is_none_or(|sent| memory.all_sent().last() == Some(sent));
    let writes = case.writes.as_ref().is_none_or(|writes| *writes == memory.all_sent());
    if found == wanted && left && sent && writes {
        return None;
    }
    let state = format!("left {:?}, sent {}", memory.names(), Value::from(memory.all_sent()));
    Some(format!("{} ({})\n  wanted {wanted:#?}\n  found {found:#?}\n  {state}", case.name, case.run))
}

/// Words as a shell splits them at blanks, with single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Upstream has 55 integration cases, which run side by side with kueuectl on real servers, and about 70 unit cases with exact output.
#[test]
fn as_many_of_upstreams_cases_are_here_as_upstream_has() {
    let golden = [
        include_str!("golden/completion.yaml"),
        include_str!("golden/create.yaml"),
        include_str!("golden/delete.yaml"),
        include_str!("golden/list.yaml"),
        include_str!("golden/list_pods.yaml"),
        include_str!("golden/list_workload.yaml"),
    ];
    let all: Vec<Case> = golden.into_iter().flat_map(cases).collect();
    let cited: BTreeSet<(&str, &str)> = all
        .iter()
        .filter(|case| case.source.contains("_test.go "))
        .map(|case| (case.source.as_str(), case.name.as_str()))
        .collect();
    let printed = all
        .iter()
        .filter(|case| case.source.contains("_test.go ") && !(case.out.is_empty() && case.err.is_empty()));
    assert!(70 <= printed.count() && 120 <= cited.len(), "{}", cited.len());

    let groups: Vec<Value> = serde_saphyr::from_str(include_str!("side_by_side.yaml")).expect("YAML");
    let counted = groups.iter().map(|group| {
        let source = group["source"].as_str().unwrap_or_default();
        let counts = source.split('(').skip(1).filter_map(|rest| rest.split_once(" cases)"));
        let cases: usize = counts.filter_map(|(count, _)| count.parse::<usize>().ok()).sum();
        let lines = group["run"].as_array().map_or(0, Vec::len);
        assert!(cases <= lines, "{}: {lines} lines for {cases} cases", group["group"]);
        cases
    });
    // The four with paging are of list_test.go, and counted there.
    assert_eq!(counted.sum::<usize>() - 4, 55);
}

#[test]
fn create() {
    check(include_str!("golden/create.yaml"));
}

#[test]
fn list() {
    check(include_str!("golden/list.yaml"));
}

#[test]
fn list_pods() {
    check(include_str!("golden/list_pods.yaml"));
}

#[test]
fn completion() {
    check(include_str!("golden/completion.yaml"));
}

#[test]
fn move_workload() {
    check(include_str!("golden/move.yaml"));
}

#[test]
fn list_workload() {
    check(include_str!("golden/list_workload.yaml"));
}

#[test]
fn delete_stop_and_the_rest() {
    check(include_str!("golden/delete.yaml"));
}
