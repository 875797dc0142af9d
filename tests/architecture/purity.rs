//! What the sources must not say, by place: decisions depend on their arguments alone, and the clock,
//! the clusters and the database have one door each.

use super::imports::{is_test, read, sources, without_tests};

const MAX_BIN_LINES: usize = 30;

#[test]
fn decisions_depend_on_nothing_but_their_arguments() {
    const IMPURE: [&str; 12] = [
        "async ",
        ".await",
        "axum::",
        "kube::",
        "sqlx::",
        "tokio::",
        "std::env",
        "std::fs",
        "std::net",
        "std::thread",
        "Instant",
        "SystemTime",
    ];
    forbid("domain is pure", &IMPURE, |path| path.starts_with("src/domain/"));
}

#[test]
fn the_time_of_day_is_read_in_one_place() {
    let clock = |path: &str| path == "src/clock.rs";
    forbid("only src/clock.rs reads the clock", &["Timestamp::now", "SystemTime::now"], |path| !clock(path));
}

#[test]
fn clusters_and_the_database_have_one_door_each() {
    const CLIENT: [&str; 4] = ["kube::Client", "kube::Api", " Client,", " Api,"];
    let doors = ["src/k8s/", "src/controllers/", "src/api/"];
    // Short names count only where kube is what they come from.
    let without_client = |path: &str| !doors.iter().any(|door| path.starts_with(door));
    let mut wrong = Vec::new();
    for (place, statement) in statements(without_client) {
        let words: &[&str] = if statement.starts_with("use kube::{") { &CLIENT } else { &CLIENT[..2] };
        if words.iter().any(|word| statement.contains(word)) {
            wrong.push(format!("{place}: only k8s, controllers and api hold a client"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    forbid("only store speaks SQL", &["sqlx::"], |path| !path.starts_with("src/store/"));
}

#[test]
fn the_binaries_only_start_the_library() {
    for (path, text) in sources("src/bin") {
        let lines = text.lines().count();
        assert!(lines <= MAX_BIN_LINES, "{path} has {lines} lines, at most {MAX_BIN_LINES}");
    }
}

#[test]
fn the_scan_knows_code_from_words_about_it() {
    let code: Vec<_> = lines("/// tokio::\nlet x = 1; // kube::\nlet y = \"sqlx::\";\nlet z = tokio::x();\n");
    assert_eq!(code, [(2, "let x = 1; "), (3, "let y = \"\";"), (4, "let z = tokio::x();")].map(own));
}

fn own((line, text): (usize, &str)) -> (usize, String) {
    (line, text.to_owned())
}

fn forbid(rule: &str, words: &[&str], applies: impl Fn(&str) -> bool) {
    let mut wrong = Vec::new();
    for (path, text) in code(applies) {
        for (number, line) in lines(&text) {
            let found = words.iter().filter(|word| line.contains(**word));
            wrong.extend(found.map(|word| format!("{path}:{number}: `{}`: {rule}", word.trim())));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn code(applies: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    // A package of its own keeps its own rules.
    let ours = |path: &str| !is_test(path) && !path.starts_with("src/appwrapper/");
    let files = sources("src").into_iter().filter(|(path, _)| ours(path) && applies(path));
    files.map(|(path, text)| (path, without_tests(&text).to_owned())).collect()
}

/// Each line of code with its number, without comments and texts.
fn lines(text: &str) -> Vec<(usize, String)> {
    let code = text.lines().enumerate().map(|(index, line)| {
        let outside: Vec<&str> = line.split('"').step_by(2).collect();
        let outside = outside.join("\"\"");
        (index + 1, outside.split("//").next().unwrap_or_default().to_owned())
    });
    code.filter(|(_, line)| !line.trim().is_empty()).collect()
}

/// Each `use` and every other statement on one line, with its place.
fn statements(applies: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (path, text) in code(applies) {
        let (mut begun, mut statement) = (0, String::new());
        for (number, line) in lines(&text) {
            if statement.is_empty() {
                begun = number;
            }
            if !statement.is_empty() {
                statement.push(' ');
            }
            statement.push_str(line.trim());
            if statement.ends_with([';', '{', '}'])
                && (!statement.starts_with("use ") || statement.ends_with(';'))
            {
                found.push((format!("{path}:{begun}"), std::mem::take(&mut statement)));
            }
        }
    }
    found
}

#[test]
fn a_client_is_found_in_a_use_of_several_lines() {
    // The doors themselves are full of them: were the scan blind, it would find none.
    let held = statements(|path| path.starts_with("src/controllers/"));
    let uses = held.iter().filter(|(_, statement)| statement.starts_with("use kube::{"));
    assert!(uses.clone().any(|(_, statement)| statement.contains(" Client,")), "{held:?}");
    assert!(read("src/controllers/webhook.rs").contains("Client"));
}
