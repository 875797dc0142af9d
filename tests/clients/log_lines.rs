//! Every line that fedqd logs as JSON is one that a collector takes apart: OpenTelemetry's does, with what docs/observability.md has for
//! it.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::tools::COLLECTOR;

const PAGE: &str = include_str!("../../docs/observability.md");
const WITHIN: Duration = Duration::from_mins(1);

/// fedqd with a hub that nobody answers for.
struct Lonely(tempfile::TempDir);

impl Lonely {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let kubeconfig = "{apiVersion: v1, kind: Config, current-context: hub, \
                          clusters: [{name: hub, cluster: {server: 'https://127.0.0.1:1'}}], \
                          contexts: [{name: hub, context: {cluster: hub, user: fedqd}}], \
                          users: [{name: fedqd, user: {token: t}}]}";
        fs::write(path("hub.kubeconfig"), kubeconfig).unwrap();
        let config = format!(
            "hub: {{kubeconfig: {}}}\nstore: {{path: {}}}\nclusters: {{allowLoopback: true, allowSystemRoots: true}}\n\
             log: {{format: json}}\napi: {{address: 127.0.0.1:0}}\nmetrics: {{address: 127.0.0.1:0}}\nwebhook: {{address: disabled}}\n",
            path("hub.kubeconfig").display(),
            path("fedq.db").display(),
        );
        fs::write(path("fedqd.yaml"), config).unwrap();
        Self(folder)
    }

    fn log(&self) -> PathBuf {
        self.0.path().join("log")
    }

    fn said(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn start(&self, environment: &[(&str, &str)]) -> Child {
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let mut fedqd = Command::new(env!("CARGO_BIN_EXE_fedqd"));
        fedqd.arg("--config").arg(self.0.path().join("fedqd.yaml")).env_clear();
        fedqd.envs(environment.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null());
        fedqd.stderr(log).spawn().unwrap()
    }

    fn says(&self, what: &str) {
        let begun = Instant::now();
        while !self.said().contains(what) {
            assert!(begun.elapsed() < WITHIN, "no {what:?} in\n{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The names before values of one line, in order. A name that is there twice means something else to each reader.
fn names(line: &str) -> Vec<String> {
    struct Names(Vec<String>);
    impl<'de> serde::Deserialize<'de> for Names {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl<'de> serde::de::Visitor<'de> for Visitor {
                type Value = Names;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object")
                }

                fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Names, A::Error> {
                    let mut names = Vec::new();
                    while let Some((name, _)) = map.next_entry::<String, serde::de::IgnoredAny>()? {
                        names.push(name);
                    }
                    Ok(Names(names))
                }
            }
            from.deserialize_map(Visitor)
        }
    }
    let Names(names) = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    names
}

/// The documented operators of the collector's receiver.
fn operators() -> &'static str {
    let block = PAGE.split("```yaml\n").find(|block| block.starts_with("- type: json_parser")).unwrap();
    block.split("```").next().unwrap()
}

fn collected(log: &Path, lines: usize) -> Vec<Value> {
    let mut collector = Command::new(COLLECTOR.as_path());
    collector.arg(log).arg(lines.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut collector = collector.stderr(Stdio::piped()).spawn().unwrap();
    collector.stdin.take().unwrap().write_all(operators().as_bytes()).unwrap();
    let output = collector.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_collector_takes_every_line_apart_that_fedqd_logs() {
    let fedqd = Lonely::new();
    let mut first = fedqd.start(&[]);
    fedqd.says("does not answer, next try in");
    // It ends with an error: the first one has the database.
    assert!(!fedqd.start(&[]).wait().unwrap().success());
    fedqd.says("fedqd ends: ");
    first.kill().unwrap();
    first.wait().unwrap();
    // It panics, in several lines.
    let trouble = [("FEDQ_PANIC_AT", "before:get namespaces:1"), ("RUST_BACKTRACE", "1")];
    let mut third = fedqd.start(&trouble);
    fedqd.says("a test wants it");
    third.kill().unwrap();
    third.wait().unwrap();

    let log = fedqd.said();
    let lines: Vec<&str> = log.lines().collect();
    let collected = collected(&fedqd.log(), lines.len());
    let mut panics = 0;
    for (line, taken) in lines.iter().zip(&collected) {
        let (mut names, told) = (names(line), serde_json::from_str::<Value>(line).unwrap());
        names.sort();
        names.windows(2).for_each(|two| assert_ne!(two[0], two[1], "{line}"));
        let text = |name: &str| told[name].as_str().unwrap_or_else(|| panic!("no {name}: {line}"));
        let time: jiff::Timestamp = text("timestamp").parse().unwrap();
        assert!(text("timestamp").ends_with('Z') && text("target").starts_with("fedq"), "{line}");
        assert_eq!(taken["time"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap(), time, "{taken}");
        assert_eq!(taken["severity"], text("level"), "{taken}");
        assert_eq!(taken["body"], text("message"), "{taken}");
        assert_eq!(taken["attributes"]["target"], text("target"), "{taken}");
        if text("message").contains("a test wants it\nhere") && told["location"].is_string() {
            assert!(text("backtrace").contains("fedq") && text("level") == "ERROR", "{line}");
            panics += 1;
        }
    }
    assert_eq!(panics, 1, "{log}");
    let levels = ["INFO", "WARN", "ERROR"];
    assert!(levels.iter().all(|level| collected.iter().any(|taken| taken["severity"] == *level)), "{log}");
}
