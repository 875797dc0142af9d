//! `-o yaml` is `-o json` in another notation: for every command that has it, and for readers of YAML 1.1 and of 1.2.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fedq_sim::cluster::Options;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use super::bed::{WITHIN, wait};
use super::clients::{NODE, PYTHON, source};
use super::tasks::stage::{Stage, TOKEN};
use super::tasks::wrapped::{FEDQ, serve};

/// A command, and a line of it that prints something. `@` is another number in each run, `DIR` a folder of files.
const EXAMPLES: [(&str, &str); 44] = [
    ("appwrapper explain", "APPWRAPPER"),
    ("appwrapper list", ""),
    ("appwrapper status", "APPWRAPPER"),
    ("appwrapper submit", "DIR/wrapper.yaml --dry-run"),
    ("appwrapper wrap", "-f DIR/nasty.yaml"),
    ("audit list", "--limit 2"),
    ("capacity", ""),
    ("check", "one"),
    ("claim diff", "-f DIR/claim.yaml"),
    ("claim history", "one-resource-claim"),
    ("claim list", ""),
    ("claim show", "one-resource-claim"),
    ("cluster list", ""),
    ("cluster show", "one"),
    ("kueue create clusterqueue", "made --dry-run=client"),
    ("kueue create localqueue", "made --clusterqueue team --dry-run=client"),
    ("kueue create resourceflavor", "made --node-labels on=yes --dry-run=client"),
    ("kueue list clusterqueue", ""),
    ("kueue list localqueue", "-A"),
    ("kueue list resourceflavor", ""),
    ("kueue list workload", "-A"),
    ("kueue move workload", "WORKLOAD -n team --to-queue another --restart --dry-run=client"),
    ("kueue resume clusterqueue", "team --dry-run=client"),
    ("kueue resume localqueue", "queue -n team --dry-run=client"),
    ("kueue resume workload", "WORKLOAD -n team --dry-run=client"),
    ("kueue stop clusterqueue", "team --dry-run=client"),
    ("kueue stop localqueue", "queue -n team --dry-run=client"),
    ("kueue stop workload", "WORKLOAD -n team --dry-run=client"),
    ("placement explain", "on"),
    ("placement list", ""),
    ("placement show", "on"),
    ("placement simulate", "-f DIR/placement.yaml"),
    ("quota explain", "team"),
    ("quota list", ""),
    ("task explain", "TASK"),
    ("task list", ""),
    ("task status", "TASK"),
    ("task submit", "DIR/task.yaml --name off --detach --dry-run"),
    ("task validate", "DIR/task.yaml"),
    ("version", ""),
    ("volume adopt", "a-@ --cluster one --claim held"),
    ("volume create", "v-@ 1Gi"),
    ("volume list", ""),
    ("volume show", "on"),
];
/// The simulated servers name no kinds of jobs, which it asks for. It prints as `list workload` does.
const ELSEWHERE: [&str; 1] = ["kueue list pods"];
/// Streams: a line of JSON for each line of a log.
const JSON_ONLY: [&str; 2] = ["appwrapper logs", "task logs"];

/// What a reader of YAML may take for something else, and what has to be quoted.
const NASTY: &[&str] = &[
    "on",
    "off",
    "yes",
    "No",
    "y",
    "N",
    "true",
    "null",
    "~",
    "",
    " ",
    "1",
    "1_000",
    "0o17",
    "017",
    "0x1F",
    "1e3",
    "1E400",
    ".5",
    ".inf",
    ".NaN",
    "12:30:45",
    "2026-11-21",
    "2026-11-21T07:00:00Z",
    "- a",
    "a: b",
    "a #b",
    "\"'",
    "{a: 1}",
    "\\n",
    "*a",
    "two\nlines\n\n",
    "\ttab\r\u{7}\u{85}\u{2028}é😀",
    "=",
];

/// A hub with something of everything, and a folder of files.
struct Bench {
    stage: Stage,
    folder: tempfile::TempDir,
    /// How often something was run.
    runs: u32,
}

impl Bench {
    async fn set() -> Self {
        let hub = Options { ocm: true, ..Options::named("hub") };
        let stage = Stage::set_all(hub, &[("one", 8), ("two", 4)], ("", "", ""), async |bed| {
            for name in ["one", "two"] {
                serve(bed, name, FEDQ).await;
            }
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = stage.bed.hub.kubeconfig("ann", &["system:masters"]);
        let bench = Self { stage, folder, runs: 0 };
        bench.write("kubeconfig", &kubeconfig);
        bench
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// What the examples are about: the task and the AppWrapper by their ids.
    async fn fill(&self) -> (String, String) {
        let named = |prefix: &str| -> BTreeMap<String, &str> {
            let named = NASTY.iter().enumerate();
            named.map(|(number, text)| (format!("{prefix}{number}"), *text)).collect()
        };
        let requests = json!({"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}});
        let container = json!({"name": "c", "image": "i", "args": NASTY, "resources": requests});
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "on", "annotations": named("t"), "labels": {"on": "yes", "1": "017"}},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
        });
        self.write("nasty.yaml", &job.to_string());
        let script = "echo 'a: b' # \"c\"\n\n  echo \\\n";
        let resources = json!({"accelerators": 1});
        let task = json!({"name": "on", "envs": named("T"), "run": script, "resources": resources});
        self.write("task.yaml", &task.to_string());
        let placement = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
            "metadata": {"name": "on", "namespace": "kueue-system"}, "spec": {},
        });
        self.write("placement.yaml", &placement.to_string());
        let binding = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSetBinding",
            "metadata": {"name": "global", "namespace": "kueue-system"}, "spec": {"clusterSet": "global"},
        });
        for object in [binding, placement] {
            self.stage.bed.hub.put(object).await.unwrap();
        }
        let began = Instant::now();
        while !self.stage.run(&["placement", "show", "on"], "").await.status.success() {
            assert!(began.elapsed() < WITHIN, "the Placement is not known");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let claim = self.json("claim show one-resource-claim").await;
        self.write("claim.yaml", &claim.to_string().replace("\"8\"", "\"7\""));
        let wrapper = self.json("appwrapper wrap -f DIR/nasty.yaml").await;
        self.write("wrapper.yaml", &wrapper.to_string());
        self.json("volume create on 1Gi").await;
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "team", "name": "held"},
            "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        self.stage.worker("one").put(claim).await.unwrap();
        let submitted = async |line: &str| self.json(line).await["id"].as_str().unwrap().to_owned();
        let task = submitted("task submit DIR/task.yaml --detach").await;
        let wrapper = submitted("appwrapper submit DIR/wrapper.yaml --detach").await;
        (task, wrapper)
    }

    /// A Job on the hub, in one of two queues; its Workload.
    async fn waiting_job(&self) -> String {
        let hub = &self.stage.bed.hub;
        let mut queue = (*hub.get("LocalQueue", "team", "queue").unwrap()).clone();
        queue["metadata"] = json!({"namespace": "team", "name": "another"});
        hub.put(queue).await.unwrap();
        let container =
            json!({"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "1"}}});
        hub.put(json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "j", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
            "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
        }))
        .await
        .unwrap();
        wait("its Workload", hub, || !hub.list("Workload").is_empty()).await;
        hub.list("Workload")[0]["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// What it prints, whatever its exit code says of it.
    async fn printed(&self, line: &str) -> Vec<u8> {
        let line = line.replace("DIR", self.folder.path().to_str().unwrap());
        let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let output = self.stage.run(&words, "").await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.stdout.is_empty(), "{line} prints nothing: {said}");
        output.stdout
    }

    async fn json(&self, line: &str) -> Value {
        let text = self.printed(&format!("{line} -o json")).await;
        serde_json::from_slice(&text).expect(line)
    }

    fn numbered(&mut self, line: &str) -> String {
        self.runs += 1;
        line.replace('@', &self.runs.to_string())
    }

    /// Both, at a moment in which it says the same before and after.
    async fn is_the_same(&mut self, line: &str) {
        let begun = Instant::now();
        loop {
            let [first, second, third] = [(); 3].map(|()| self.numbered(line));
            let before = timeless(self.json(&first).await);
            let yaml = self.printed(&format!("{second} -o yaml")).await;
            if timeless(self.json(&third).await) == before {
                for (reader, read) in read_by_both(&yaml) {
                    let text = String::from_utf8_lossy(&yaml);
                    let [read] = <[Value; 1]>::try_from(read).expect("one document");
                    assert_eq!(timeless(read), before, "{line}, read by {reader}:\n{text}");
                }
                return;
            }
            assert!(begun.elapsed() < WITHIN, "{line} says something else each time");
        }
    }
}

/// Without what is another one each time that the command is run, at the top, and without how long something took.
fn timeless(mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        for key in ["id", "created"] {
            object.remove(key);
        }
        let name = object.get("name").and_then(Value::as_str).unwrap_or_default();
        if name.starts_with("v-") || name.starts_with("a-") {
            object.remove("name");
            object.remove("claim");
        }
    }
    let items = value.get_mut("items").and_then(Value::as_array_mut);
    for item in items.into_iter().flatten() {
        if item["message"].as_str().is_some_and(|message| message.starts_with("answers in ")) {
            item["message"].take();
        }
    }
    value
}

/// The documents that each of two libraries reads.
fn read_by_both(text: &[u8]) -> [(&'static str, Vec<Value>); 2] {
    let python = PYTHON.join("venv/bin/python");
    let [source, script] = ["py", "cjs"].map(|language| source(&format!("read_yaml.{language}")));
    [("PyYAML", python.as_path(), &source), ("js-yaml", Path::new("node"), &script)].map(
        |(reader, program, script)| {
            let mut child = Command::new(program);
            child.arg(script).env("NODE_PATH", NODE.join("node_modules"));
            let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(text).unwrap();
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(text);
            assert!(output.status.success(), "{reader} cannot read:\n{text}");
            (reader, serde_json::from_slice(&output.stdout).unwrap())
        },
    )
}

/// Commands with a choice of output, by what `--help` says from the top.
fn commands() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![String::new()];
    while let Some(command) = open.pop() {
        let words = command.split(' ').filter(|word| !word.is_empty());
        let output =
            Command::new(env!("CARGO_BIN_EXE_fedq")).args(words).arg("--help").env_clear().output().unwrap();
        // Those of kubectl itself, which `fedq kueue` hands on to it.
        if !output.status.success() {
            continue;
        }
        let help = String::from_utf8(output.stdout).unwrap();
        if help.lines().any(|line| line.trim_start().starts_with("-o, --output")) {
            found.insert(command.clone());
        }
        let below = help.lines().skip_while(|line| !line.ends_with("Commands:")).skip(1);
        let below = below.take_while(|line| line.starts_with("  "));
        let names = below.filter_map(|line| {
            line.strip_prefix("  ")?.split(' ').next().filter(|name| !["", "help"].contains(name))
        });
        open.extend(names.map(|name| format!("{command} {name}").trim().to_owned()));
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn yaml_says_what_json_says() {
    let known: BTreeSet<&str> =
        EXAMPLES.iter().map(|(command, _)| *command).chain(JSON_ONLY).chain(ELSEWHERE).collect();
    let commands = commands();
    let commands: BTreeSet<&str> = commands.iter().map(String::as_str).collect();
    assert_eq!(commands, known, "each command that can print YAML or JSON has an example here");
    let mut bench = Bench::set().await;
    for command in JSON_ONLY {
        let words: Vec<&str> = command.split(' ').chain(["any", "-o", "yaml"]).collect();
        assert_eq!(bench.stage.run(&words, "").await.status.code(), Some(2), "{command}");
    }
    let (task, wrapper) = bench.fill().await;
    let workload = bench.waiting_job().await;
    for (command, arguments) in EXAMPLES {
        let arguments = arguments.replace("APPWRAPPER", &wrapper).replace("TASK", &task);
        let arguments = arguments.replace("WORKLOAD", &workload);
        let kubeconfig = if command.starts_with("kueue") { "--kubeconfig DIR/kubeconfig" } else { "" };
        bench.is_the_same(&format!("{command} {arguments} {kubeconfig}")).await;
    }
}

/// A list that is followed is a stream of documents.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_followed_list_says_the_same_in_yaml() {
    let bench = Bench::set().await;
    let begins = async |format: &str, end: &str, times: usize| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_fedq"));
        command.args(["cluster", "list", "-w", "-o", format]).env("FEDQ_TOKEN", TOKEN);
        command.env("FEDQ_SERVER", bench.stage.bed.api().await).env("HOME", bench.folder.path());
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut said = child.stdout.take().unwrap();
        let (mut text, began) = (String::new(), Instant::now());
        while text.matches(end).count() < times {
            assert!(began.elapsed() < WITHIN, "{text}");
            let mut bytes = [0; 4096];
            let read = said.read(&mut bytes).await.unwrap();
            text += std::str::from_utf8(&bytes[..read]).unwrap();
        }
        text
    };
    let json = begins("json", "\n", 2).await;
    let json: Vec<Value> = json.lines().take(2).map(|line| serde_json::from_str(line).unwrap()).collect();
    let yaml = begins("yaml", "---\n", 2).await;
    // The second may not be whole yet.
    let first = yaml.split("---\n").nth(1).unwrap();
    for (reader, read) in read_by_both(first.as_bytes()) {
        let [read] = <[Value; 1]>::try_from(read).expect("one document");
        let same = json.iter().find(|one| one["name"] == read["name"]).expect("it is there");
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&read), keys(same), "{reader}: {first}");
    }
}
