//! Commands in an environment: kubeconfigs, credential plugins, other programs, shells.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fedq_kueuectl::{Called, World, run};
use tempfile::TempDir;

const SECRET: &str = "secret-token";

struct Ended {
    code: u8,
    out: String,
    err: String,
}

fn ran(name: &str, line: &[&str], variable: (&str, &OsStr)) -> Ended {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let arguments: Vec<OsString> = line.iter().map(OsString::from).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut world = World {
        input: &mut io::empty(),
        output: &mut out,
        errors: &mut err,
        now: &|| jiff::Timestamp::UNIX_EPOCH,
        variables: &|name| (name == variable.0).then(|| variable.1.to_owned()),
        replace: &|program, _, _| io::Error::other(format!("{} ran", program.display())),
        run: &|_, _, _| Err(io::Error::other("no other program runs here")),
        terminal: false,
        interrupted: &|| Box::pin(std::future::pending()),
        fleet: None,
        client: None,
    };
    let called = Called { name, arguments: &arguments, version: "v0.0.0-main" };
    let code = runtime.block_on(run(&called, &mut world));
    runtime.shutdown_background();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Ended { code, out: text(out), err: text(err) }
}

fn with_kubeconfig(text: &str, line: &[&str]) -> Ended {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("config");
    fs::write(&path, text).expect("written");
    ran("kueuectl", line, ("KUBECONFIG", path.as_os_str()))
}

/// A user who logs in by a line of shell.
fn with_plugin(script: &str, line: &[&str]) -> Ended {
    let text = serde_json::json!({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", script, SECRET],
            "env": [{"name": "PASSWORD", "value": SECRET}],
            "interactiveMode": "Never",
        }}}],
    });
    with_kubeconfig(&text.to_string(), line)
}

#[test]
fn a_kubeconfig_that_cannot_be_read_is_not_quoted() {
    let broken = format!("users:\n- name: u\n  user: {{token: {SECRET}\n");
    for text in [broken, format!("users: {SECRET}\n")] {
        let ended = with_kubeconfig(&text, &["list", "cq"]);
        assert_eq!(ended.code, 1);
        assert!(ended.err.contains("near line "), "{}", ended.err);
        assert!(!ended.err.contains(SECRET), "{}", ended.err);
    }
}

#[test]
fn a_credential_plugin_is_named_and_not_quoted() {
    let cases = [
        ("echo $PASSWORD; echo $PASSWORD >&2; exit 3", "\"sh\" failed with exit status: 3"),
        ("echo \"status: [$PASSWORD\"", "\"sh\" gave no credential"),
        ("echo \"{status: $PASSWORD}\"", "\"sh\" gave no credential"),
    ];
    for (script, said) in cases {
        let ended = with_plugin(script, &["list", "cq"]);
        assert_eq!(ended.code, 1);
        assert!(ended.err.contains(said), "{}", ended.err);
        assert!(!ended.err.contains(SECRET), "{}", ended.err);
    }
}

#[test]
fn nobody_waits_at_a_prompt_for_a_credential_plugin() {
    let started = Instant::now();
    let ended = with_plugin("exec sleep 60", &["__complete", "stop", "cq", ""]);
    assert_eq!(ended.out, ":4\n");
    assert!(started.elapsed() < Duration::from_secs(30));
}

/// A proxy that lets one request through, and is the server behind itself. Tells whom it was asked for.
fn proxy(answer: &'static str) -> (u16, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    let asked = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        let connect = head(&mut client);
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("written");
        let request = head(&mut client);
        let length = answer.len();
        let text = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{answer}"
        );
        client.write_all(text.as_bytes()).expect("written");
        format!(
            "{} {}",
            connect.lines().next().unwrap_or_default(),
            request.lines().next().unwrap_or_default()
        )
    });
    (port, asked)
}

/// A request's first lines, up to the empty one.
fn head(from: &mut impl Read) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && from.read(&mut byte).expect("read") == 1 {
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("text")
}

fn with_proxy(address: &str) -> Ended {
    let text = serde_json::json!({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "h", "user": ""}}],
        // Nobody knows that name, so it is reached by the proxy or not at all.
        "clusters": [{"name": "h", "cluster": {"server": "http://hub.invalid:8001", "proxy-url": address}}],
    });
    with_kubeconfig(&text.to_string(), &["list", "cq"])
}

#[test]
fn a_proxy_of_the_kubeconfig_leads_to_the_server() {
    let (port, asked) =
        proxy(r#"{"kind": "ClusterQueueList", "metadata": {}, "items": [{"metadata": {"name": "behind"}}]}"#);
    let ended = with_proxy(&format!("http://127.0.0.1:{port}"));
    assert!(ended.code == 0 && ended.out.contains("\nbehind "), "{} {}", ended.out, ended.err);
    let asked = asked.join().expect("the proxy");
    assert!(
        asked.starts_with("CONNECT hub.invalid:8001 HTTP/1.1 GET /apis/kueue.x-k8s.io/v1beta2/clusterqueues"),
        "{asked}"
    );
}

#[test]
fn a_proxy_that_cannot_be_used_is_not_quoted() {
    for address in [format!("socks5://u:{SECRET}@127.0.0.1:1"), format!("http://u:{SECRET} @:x")] {
        let ended = with_proxy(&address);
        assert_eq!(ended.code, 1);
        assert!(ended.err.contains("the proxy-url is n"), "{}", ended.err);
        assert!(!ended.err.contains(SECRET), "{}", ended.err);
    }
}

#[test]
fn no_time_is_no_limit() {
    // Nothing listens there once it is dropped.
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let server = format!("http://127.0.0.1:{port}");
    for limit in ["0", "0s", ""] {
        let line = ["list", "cq", "--server", &server, "--request-timeout", limit];
        let ended = ran("kueuectl", &line, ("HOME", OsStr::new("")));
        assert!(ended.err.contains("connection refused"), "{limit:?}: {}", ended.err);
    }
}

#[test]
fn only_a_program_in_an_absolute_folder_is_kubectl() {
    let folder = TempDir::new().expect("a folder");
    let here = std::env::current_dir().expect("a folder");
    let up: PathBuf = here.ancestors().skip(1).map(|_| "..").collect();
    let relative = up.join(folder.path().strip_prefix("/").expect("it is absolute"));
    let program = folder.path().join("kubectl");
    fs::write(&program, "").expect("written");
    let said = |path: &Path| ran("kueuectl", &["get", "cq"], ("PATH", path.as_os_str())).err;
    assert!(said(folder.path()).contains("not found in $PATH"), "it is not executable");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
    assert!(said(folder.path()).contains("kubectl ran"));
    assert!(relative.join("kubectl").is_file());
    assert!(said(&relative).contains("not found in $PATH"));
}

/// What bash offers, a line each, for a command line that follows the script.
fn offered(name: &str, before: &str, words: &str) -> String {
    let script = ran(name, &["completion", "bash"], ("HOME", OsStr::new(""))).out;
    let program = name.split(' ').next().unwrap_or_default();
    let function = format!("__{}_complete", name.replace(' ', "_"));
    // The script is read twice, as by a shell whose start files have it twice.
    let text = format!(
        "{program}() {{ printf '%s\\n' '$(echo ran >&2)' 'plain' '`echo ran >&2`' 'two words' ':4'; }}\n\
         {before}\n{script}\n{script}\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n\
         {function} {program} \"${{COMP_WORDS[COMP_CWORD]}}\"\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let ended = Command::new("bash").args(["--norc", "-c", &text]).output().expect("bash");
    let err = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && err.is_empty(), "{err}");
    String::from_utf8(ended.stdout).expect("text")
}

#[test]
fn bash_runs_no_command_that_is_found_in_a_name() {
    assert_eq!(
        offered("kueuectl", "", "kueuectl stop cq ''"),
        "\\$\\(echo\\ ran\\ \\>\\&2\\)\nplain\n\\`echo\\ ran\\ \\>\\&2\\`\ntwo\\ words\n"
    );
    assert_eq!(offered("kueuectl", "", "kueuectl stop cq pl"), "plain\n");
}

#[test]
fn bash_completes_fedqs_other_commands_as_before() {
    let before = "_fedq() { COMPREPLY=(before); }\ncomplete -F _fedq fedq";
    for words in ["fedq ''", "fedq kueue", "fedq cluster ''"] {
        assert_eq!(offered("fedq kueue", before, words), "before\n", "{words}");
        assert_eq!(offered("fedq kueue", "", words), "\n", "{words}");
    }
    assert_eq!(offered("fedq kueue", before, "fedq kueue stop cq t"), "two\\ words\n");
}
