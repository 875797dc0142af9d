//! Every `--help`, as it is: read the differences when you change one.

use std::{
    fmt::Write,
    fs,
    net::TcpListener,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use super::cli::{fedq, listening};

const COMMANDS: [&str; 47] = [
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
    "task exec",
    "task shell",
    "task port-forward",
    "task stop",
    "task validate",
    "volume",
    "volume create",
    "volume adopt",
    "volume list",
    "volume show",
    "volume delete",
    "check",
    "demo",
    "version",
    "completion",
    "man",
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
    symlink(env!("CARGO_BIN_EXE_fedq"), &plugin).unwrap();
    let output = Command::new(plugin).args(["claim", "list", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("Usage: kubectl fedq claim list"), "{help}");
}

#[test]
fn completion_is_for_the_three_shells() {
    assert_eq!(fedq(&["completion", "tcsh"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn every_command_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let output = fedq(&["man", folder.path().to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let page = |name: &str| fs::read_to_string(folder.path().join(format!("{name}.1"))).unwrap_or_default();
    for command in COMMANDS {
        let name = ["fedq"].into_iter().chain(command.split(' ')).filter(|word| !word.is_empty());
        let name = name.collect::<Vec<_>>().join("-");
        assert!(page(&name).contains(".SH NAME"), "{name}");
        assert!(page(&name).contains(".SH SYNOPSIS"), "{name}");
    }
    assert!(page("fedq-claim-edit").contains("fedq claim edit eu\\-west"), "the examples are there");
    assert!(page("kueuectl-list-workload").contains("localqueue"));
    assert!(page("fedq-kueue-move-workload").contains("restart"));
    assert_eq!(page("kueuectl-move"), "", "kueuectl has no such command");
    let fedqd = Command::new(env!("CARGO_BIN_EXE_fedqd")).arg("--print-man").env_clear().output().unwrap();
    assert!(fedqd.status.success());
    assert!(String::from_utf8(fedqd.stdout).unwrap().contains(".SH OPTIONS"));
}

#[test]
fn both_names_of_kueuectl_are_kueuectl() {
    let folder = tempfile::tempdir().unwrap();
    let said = |name: &str, words: &[&str]| {
        let program = folder.path().join(name);
        if !program.exists() {
            symlink(env!("CARGO_BIN_EXE_fedq"), &program).unwrap();
        }
        let output = Command::new(program).args(words).env_clear().output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr), output.status.code())
    };
    for words in [
        &["--help"][..],
        &["list", "cq", "--server", NOWHERE],
        &["list", "cq", "--all-clusters"],
        &["create", "lq", "x"],
        &["move", "workload", "x", "--to-queue", "y"],
        &["foo"],
    ] {
        let (kueuectl, plugin) = (said("kueuectl", words), said("kubectl-kueue", words));
        assert_eq!(kueuectl, plugin, "{words:?}");
        assert!(!format!("{kueuectl:?}").contains("fedq kueue"), "{words:?}: {kueuectl:?}");
    }
    let (out, _, code) = said("kubectl-kueue", &["--help"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("kueuectl [command]") && !out.contains("\n  move "), "{out}");
    let (_, err, code) = said("kubectl-kueue", &["list", "cq", "--all-clusters"]);
    assert_eq!(code, Some(1));
    assert!(err.starts_with("Error: unknown flag: --all-clusters"), "{err}");
}

/// What kubectl gets of the program that completes behind `kubectl fedq` or `kubectl kueue`.
fn completed(plugin: &str, words: &[&str], server: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(plugin);
    symlink(env!("CARGO_BIN_EXE_fedq"), &program).unwrap();
    let mut command = Command::new(program);
    command.args(words).env_clear().env("FEDQ_SERVER", server).env("FEDQ_TOKEN", super::server::ANN);
    let output = command.env("FEDQ_CONFIG", "/nowhere/config.yaml").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

const NOWHERE: &str = "http://127.0.0.1:1";

#[test]
fn kubectl_completes_commands_flags_and_values() {
    let cases: [(&str, &[&str], &str); 9] = [
        ("kubectl_complete-fedq", &["cluster", "unc"], "uncordon\tLet a cluster have work again\n:4\n"),
        ("kubectl_complete-fedq", &["--color", "never", "claim", "confirm-"], "confirm-removal\t"),
        ("kubectl_complete-fedq", &["claim", "list", "--no-h"], "--no-headers\t"),
        ("kubectl_complete-fedq", &["claim", "list", "-o", "ya"], "yaml"),
        ("kubectl_complete-fedq", &["claim", "list", "--output=na"], "--output=name"),
        ("kubectl_complete-fedq", &["cluster", "join", ""], ":4\n"),
        ("kubectl_complete-fedq", &["task", "submit", ""], ":0\n"),
        ("kubectl_complete-fedq", &["kueue", "mo"], "move\tMove the resource to another queue\n:4\n"),
        ("kubectl_complete-kueue", &["st"], "stop\tStop the resource\n:4\n"),
    ];
    for (plugin, words, wanted) in cases {
        let found = completed(plugin, words, NOWHERE);
        assert!(found.starts_with(wanted), "{plugin} {words:?}: {found}");
    }
    assert_eq!(completed("kubectl_complete-kueue", &["mo"], NOWHERE), ":4\n", "kueuectl has no such command");
}

#[test]
fn kubectl_completes_names_that_the_server_knows() {
    let listening = listening();
    for (words, name) in [
        (&["cluster", "show", ""][..], "west"),
        (&["check", "we"], "west"),
        (&["claim", "edit", ""], "east-resource-claim"),
        (&["quota", "explain", ""], "team-a"),
        (&["kueue", "list", "cq", "--cluster", ""], "west"),
        (&["kueue", "move", "workload", "w", "--to-cluster", ""], "west"),
    ] {
        let found = completed("kubectl_complete-fedq", words, &listening.url);
        assert!(found.lines().any(|line| line == name) && found.ends_with(":4\n"), "{words:?}: {found}");
    }
    assert_eq!(completed("kubectl_complete-fedq", &["cluster", "show", "zz"], &listening.url), ":4\n");
}

#[test]
fn nobody_waits_at_a_prompt_for_a_server() {
    // It takes connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let start = Instant::now();
    for server in [&url, NOWHERE] {
        assert_eq!(completed("kubectl_complete-fedq", &["cluster", "show", ""], server), ":4\n");
        let words = ["stop", "cq", "--server", server, ""];
        assert_eq!(completed("kubectl_complete-kueue", &words, NOWHERE), ":4\n");
    }
    // Four times half a second, and what a busy machine takes to start four programs; the client itself would wait 30 s.
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[test]
fn nobody_waits_at_a_prompt_for_what_prints_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let (config, pipe) = (folder.path().join("config.yaml"), folder.path().join("pipe"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // What reads the pipe has no end as long as this is open, which is until the end of the test.
    let open = fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let (over, is_over) = mpsc::channel::<()>();
    let holding = thread::spawn(move || {
        let _ = is_over.recv_timeout(Duration::from_secs(30));
        drop(open);
    });
    let start = Instant::now();
    let settings = format!("server: {NOWHERE}\ntokenCommand: exec cat {}\n", pipe.display());
    fs::write(&config, settings).unwrap();
    for words in [&["--cluster", ""][..], &["--cluster", "x", "--namespace", ""]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedq"));
        command.args(["kueue", "__complete", "list", "cq"]).args(words).env_clear();
        // As shells do, whose own errors the command's would be among.
        command.env("PATH", "/usr/bin:/bin").env("FEDQ_CONFIG", &config).stderr(Stdio::null());
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), ":4\n", "{output:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    drop(over);
    holding.join().unwrap();
}
