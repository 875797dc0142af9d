//! Every `--help`, as it is: read the differences when you change one.

use std::{fmt::Write, fs, path::Path};

use super::cli::fedq;

const COMMANDS: [&str; 42] = [
    "",
    "login",
    "cluster",
    "cluster join",
    "cluster list",
    "cluster show",
    "cluster cordon",
    "cluster uncordon",
    "cluster confirm",
    "cluster leave",
    "claim",
    "claim list",
    "claim show",
    "claim edit",
    "claim assign",
    "claim diff",
    "claim history",
    "audit",
    "audit list",
    "claim confirm-removal",
    "capacity",
    "quota",
    "quota list",
    "quota explain",
    "quota base",
    "task",
    "task submit",
    "task list",
    "task status",
    "task explain",
    "task logs",
    "task stop",
    "task validate",
    "volume",
    "volume create",
    "volume list",
    "volume show",
    "volume delete",
    "check",
    "demo",
    "version",
    "completion",
];

#[test]
fn the_help_of_every_command() {
    let mut text = String::new();
    for command in COMMANDS {
        let arguments: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let output = fedq(&arguments).output().unwrap();
        assert!(output.status.success(), "{command}");
        assert!(output.stderr.is_empty(), "{command}");
        let help = String::from_utf8(output.stdout).unwrap();
        let is_group = ["cluster", "claim", "quota", "audit", "task", "volume"].contains(&command);
        assert!(is_group || help.contains("Examples:"), "no examples for `{command}`");
        writeln!(text, "$ fedq {}\n{help}", arguments.join(" ")).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/help.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "tests/serve/help.txt is stale: UPDATE_EXPECT=1 cargo test --test serve help");
}

#[test]
fn as_a_plugin_it_names_itself_so() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-fedq");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fedq"), &plugin).unwrap();
    let output = std::process::Command::new(plugin).args(["claim", "list", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("Usage: kubectl fedq claim list"), "{help}");
}

#[test]
fn completion_is_for_the_three_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let output = fedq(&["completion", shell]).output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8(output.stdout).unwrap().contains("confirm-removal"), "{shell}");
    }
    assert_eq!(fedq(&["completion", "tcsh"]).output().unwrap().status.code(), Some(2));
}
