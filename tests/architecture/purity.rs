//! What the sources must not say, by place: decisions depend on their arguments alone, and the time of day is
//! read in one place.

use super::imports::{is_test, sources, without_tests};

const MAX_BIN_LINES: usize = 30;

#[test]
fn decisions_depend_on_nothing_but_their_arguments() {
    const IMPURE: [&str; 8] =
        ["async ", ".await", "std::env", "std::fs", "std::net", "std::thread", "Instant", "SystemTime"];
    const PURE: [&str; 4] = ["src/cel/", "src/domain/", "src/values/", "src/wrapped/"];
    forbid("decisions are pure", &IMPURE, |path| PURE.iter().any(|folder| path.starts_with(folder)));
}

#[test]
fn the_time_of_day_is_read_in_one_place() {
    let clock = |path: &str| path == "src/base/clock.rs";
    forbid("only src/base/clock.rs reads the clock", &["Timestamp::now", "SystemTime::now"], |path| {
        !clock(path)
    });
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
