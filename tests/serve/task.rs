//! `fedq task`, as people run it.

use std::{fs, io::Write, process::Stdio};

use tempfile::TempDir;

use super::cli::{fedq, stderr, stdout};

fn validate(text: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("task.yaml"), text).unwrap();
    let arguments = [&["task", "validate", "task.yaml"], more].concat();
    let output = fedq(&arguments).current_dir(folder.path()).env("TOKEN", "hush").output().unwrap();
    (output.status.code(), stdout(&output), stderr(&output))
}

#[test]
fn a_valid_file_is_told_with_what_has_no_effect() {
    let (code, out, err) = validate("name: a\nnum_nodes: 2\nresources: {disk_size: 10}\nrun: x\n", &[]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(
        out,
        "task.yaml:3:13: warning: `resources.disk_size`: has no effect: nodes have the disk that they have; use a volume\n\
         task.yaml: a is valid: 2 nodes, 1 form\n"
    );
}

#[test]
fn mistakes_are_told_by_line_and_column() {
    let (code, out, _) = validate("run: x\nresorces: {}\n", &[]);
    assert_eq!(code, Some(1));
    assert_eq!(
        out,
        "task.yaml:2:1: error: `resorces`: there is no field `resorces` here; did you mean `resources`?\n"
    );
    let (code, out, _) = validate("run: [\n", &["-o", "json"]);
    assert_eq!(code, Some(1));
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told["valid"], false);
    assert!(told["errors"][0]["line"].is_u64(), "{told}");
}

#[test]
fn strict_takes_warnings_for_errors() {
    let (code, out, _) = validate("run: x\nresources: {disk_size: 10}\n", &["--strict"]);
    assert_eq!(code, Some(1));
    assert!(out.contains("2:13: error: `resources.disk_size`"), "{out}");
}

#[test]
fn values_are_given_beside_the_file_and_secrets_are_not_shown() {
    let text = "run: x\nenvs: {A: }\nsecrets: {TOKEN: }\n";
    let (code, out, _) = validate(text, &[]);
    assert_eq!(code, Some(1));
    assert!(out.contains("-e A=VALUE") && out.contains("--secret TOKEN=VALUE"), "{out}");
    let (code, out, err) = validate(text, &["-e", "A=1", "--secret", "TOKEN=-", "-o", "yaml"]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(!out.contains("hush") && !err.contains("hush"), "{out}{err}");
    let (code, _, err) = validate(text, &["-e", "A", "--secret", "TOKEN=-"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("-e takes NAME=VALUE"), "{err}");
}

#[test]
fn variables_come_from_a_file_and_typed_ones_win() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("task.yaml"), "run: x\nenvs: {A: , B: }\n").unwrap();
    fs::write(folder.path().join("vars"), "# comment\nexport A='1'\nB=2\n").unwrap();
    let run = |file: &str| {
        let arguments = ["task", "validate", "task.yaml", "--env-file", file];
        fedq(&arguments).current_dir(folder.path()).output().unwrap()
    };
    assert_eq!(run("vars").status.code(), Some(0));
    let missing = run("nowhere");
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("cannot read `nowhere`"), "{}", stderr(&missing));
}

#[test]
fn a_file_may_come_by_stdin() {
    let mut child =
        fedq(&["task", "validate", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"name: piped\nrun: x\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(stdout(&output), "-: piped is valid: 1 node, 1 form\n");
}
