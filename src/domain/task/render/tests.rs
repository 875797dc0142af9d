use std::collections::BTreeSet;

use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

use super::{
    script::{self, literal},
    *,
};
use crate::{
    resources::Resources,
    task::{
        choose::verdict::per_node,
        spec::NewTask,
        testing::{cluster_name, new_task, task},
        upload::{self, Archive, Digest, Upload},
        wrapped,
    },
};
use fedq_values::{
    ids::ResourceName,
    quantity::{Amount, Quantity},
};

fn placement() -> Placement {
    Placement {
        cluster: cluster_name("one"),
        candidate: 0,
        queue: "default".to_owned(),
        now: true,
        terms: BTreeMap::new(),
        refused: BTreeMap::new(),
        pod_sets: Vec::new(),
        flavors: BTreeMap::new(),
        claims: [("data", "data-0a0a0a0a"), ("Big_One", "big-one-0a0a0a0b")]
            .map(|(name, claim)| (name.to_owned(), claim.to_owned()))
            .into(),
        read_only: BTreeSet::new(),
    }
}

fn objects_in(task: &NewTask, gang: Gang) -> Vec<Value> {
    objects_with(task, gang, &placement())
}

fn objects_with(task: &NewTask, gang: Gang, placement: &Placement) -> Vec<Value> {
    let id = TaskId::parse("1a2b3c4d").expect("an id");
    let tenant = Tenant { namespace: "team".to_owned(), service_account: Some("runner".to_owned()) };
    render(&Order {
        id: &id,
        epoch: 3,
        hub_id: "hub",
        owner: "user@example.com",
        submitted: Timestamp::from_microsecond(1_759_667_696_789_012).expect("a time"),
        spec: &task.spec,
        secrets: &task.secrets,
        uploads: &[],
        placement,
        gang,
        tenant: &tenant,
        priority_class: Some("high"),
        by_multikueue: false,
        default_image: "python:3.13-slim",
    })
}

fn objects(text: &str, gang: Gang) -> Vec<Value> {
    objects_in(&new_task(text), gang)
}

fn kinds(objects: &[Value]) -> Vec<&str> {
    objects.iter().filter_map(|object| object["kind"].as_str()).collect()
}

/// Pod templates with how many pods are made of each.
fn templates(objects: &[Value]) -> Vec<(&Value, u64)> {
    objects
        .iter()
        .filter_map(|object| match object["kind"].as_str()? {
            "Job" => Some((&object["spec"]["template"], object["spec"]["completions"].as_u64().unwrap_or(1))),
            "JobSet" => {
                let jobs = &object["spec"]["replicatedJobs"][0];
                Some((&jobs["template"]["spec"]["template"], jobs["replicas"].as_u64()?))
            }
            "AppWrapper" => {
                let job = &object["spec"]["components"][0]["template"]["spec"];
                Some((&job["template"], job["completions"].as_u64().unwrap_or(1)))
            }
            _ => None,
        })
        .collect()
}

fn variable<'a>(template: &'a Value, name: &str) -> &'a Value {
    let variables = template["spec"]["containers"][0]["env"].as_array().expect("variables");
    let found: Vec<_> = variables.iter().filter(|variable| variable["name"] == name).collect();
    assert_eq!(found.len(), 1, "{name}");
    found[0]
}

#[test]
fn auto_makes_one_workload_of_one_task() {
    for (nodes, queued, jobsets, gang) in [
        (1, true, true, Gang::PerNode),
        (1, false, false, Gang::PerNode),
        (4, false, true, Gang::PerNode),
        (4, true, true, Gang::JobSet),
        (4, true, false, Gang::Indexed),
    ] {
        assert_eq!(Gang::auto(nodes, queued, jobsets), gang);
    }
}

#[test]
fn every_form_names_its_nodes_alike() {
    let text = "name: a\nnum_nodes: 3\nrun: x\n";
    assert_eq!(kinds(&objects(text, Gang::PerNode)), ["Service", "Job", "Job", "Job"]);
    assert_eq!(kinds(&objects(text, Gang::Indexed)), ["Service", "Job"]);
    assert_eq!(kinds(&objects(text, Gang::JobSet)), ["JobSet"]);
    assert_eq!(kinds(&objects(text, Gang::AppWrapper)), ["Service", "AppWrapper"]);
    let jobs = objects(text, Gang::PerNode);
    assert_eq!(jobs[3]["metadata"]["name"], "a-1a2b3c4d-node-2");
    assert_eq!(jobs[3]["spec"]["template"]["spec"]["hostname"], "a-1a2b3c4d-node-2");
    let set = &objects(text, Gang::JobSet)[0];
    assert_eq!(set["metadata"]["name"], "a-1a2b3c4d");
    assert_eq!(set["spec"]["replicatedJobs"][0]["name"], "node");
}

#[test]
fn only_what_kueue_makes_a_workload_of_has_the_queue() {
    for gang in [Gang::PerNode, Gang::Indexed, Gang::JobSet, Gang::AppWrapper] {
        for object in objects("num_nodes: 2\nrun: x\nsecrets: {A: b}\n", gang) {
            let is_work = matches!(object["kind"].as_str(), Some("Job" | "JobSet" | "AppWrapper"));
            let labels = &object["metadata"]["labels"];
            assert_eq!(labels.get(QUEUE_LABEL).is_some(), is_work, "{object}");
            assert_eq!(labels["fedq.dev/epoch"], "3");
            assert_eq!(labels["task-id"], "1a2b3c4d");
            assert_eq!(object["metadata"]["namespace"], "team");
            if is_work {
                assert_eq!(
                    (&object["spec"]["suspend"], &labels[PRIORITY_LABEL]),
                    (&json!(true), &json!("high"))
                );
            }
        }
        for (template, _) in templates(&objects("num_nodes: 2\nrun: x\n", gang)) {
            assert!(template["metadata"]["labels"].get(QUEUE_LABEL).is_none());
            assert_eq!(template["spec"]["serviceAccountName"], "runner");
        }
    }
}

#[test]
fn what_is_asked_for_with_a_plus_is_no_limit_unless_limits_are_asked_for() {
    let limits = |resources: &str, config: &str| {
        let config =
            if config.is_empty() { String::new() } else { format!("config: {{kubernetes: {{{config}}}}}\n") };
        let objects = objects(&format!("run: x\nresources: {{{resources}}}\n{config}"), Gang::PerNode);
        let resources = &templates(&objects)[0].0["spec"]["containers"][0]["resources"];
        assert_eq!(resources["requests"], json!({"cpu": "4", "memory": "32Gi"}));
        resources["limits"].clone()
    };
    assert_eq!(limits("cpus: 4, memory: 32", ""), json!({"cpu": "4", "memory": "32Gi"}));
    assert_eq!(limits("cpus: 4+, memory: 32", ""), json!({"memory": "32Gi"}));
    assert_eq!(limits("cpus: 4+, memory: 32+", ""), Value::Null);
    assert_eq!(limits("cpus: 4+, memory: 32+, accelerators: H100", ""), json!({"nvidia.com/gpu": "1"}));
    let asked = "set_pod_resource_limits: true";
    assert_eq!(limits("cpus: 4+, memory: 32+", asked), json!({"cpu": "4", "memory": "32Gi"}));
    let factor = "set_pod_resource_limits: 1.5";
    assert_eq!(limits("cpus: 4+, memory: 32+", factor), json!({"cpu": "6", "memory": "48Gi"}));
    assert_eq!(limits("cpus: 4, memory: 32", "set_pod_resource_limits: false"), Value::Null);
}

#[test]
fn ours_are_the_variables_that_win() {
    let text = "run: x\nenvs: {NODE_RANK: 7, A: $(B) $$, SKYPILOT_TASK_ID: z}\nsecrets: {TOKEN: hush}\n";
    let objects = objects(text, Gang::PerNode);
    let (template, _) = templates(&objects)[0];
    assert_eq!(variable(template, "NODE_RANK")["value"], "0");
    assert_eq!(variable(template, "SKYPILOT_TASK_ID")["value"], "1a2b3c4d");
    let cluster = variable(template, "SKYPILOT_CLUSTER_INFO")["value"].as_str().expect("a text");
    let told: Value = serde_json::from_str(cluster).expect("JSON");
    let expected = json!({"cluster_name": "task-1a2b3c4d-1a2b3c4d", "cloud": "Kubernetes", "region": "one", "zone": null});
    assert_eq!(told, expected);
    assert_eq!(variable(template, "A")["value"], "$$(B) $$$$");
    assert_eq!(variable(template, "SKYPILOT_NODE_IPS")["valueFrom"]["fieldRef"]["fieldPath"], "status.podIP");
    assert_eq!(
        variable(template, "TOKEN")["valueFrom"]["secretKeyRef"],
        json!({"name": "task-1a2b3c4d-1a2b3c4d-env", "key": "TOKEN"})
    );
    assert_eq!(objects[0]["stringData"], json!({"TOKEN": "hush"}));
    assert!(!objects[1].to_string().contains("hush"));
}

#[test]
fn ranks_come_from_where_each_form_has_them() {
    let rank = |gang| {
        let objects = objects("num_nodes: 2\nrun: x\n", gang);
        variable(templates(&objects)[0].0, "NODE_RANK").clone()
    };
    assert_eq!(rank(Gang::PerNode)["value"], "0");
    let path = |gang| rank(gang)["valueFrom"]["fieldRef"]["fieldPath"].as_str().map(str::to_owned);
    for gang in [Gang::Indexed, Gang::AppWrapper] {
        assert_eq!(
            path(gang).as_deref(),
            Some("metadata.annotations['batch.kubernetes.io/job-completion-index']")
        );
    }
    assert_eq!(path(Gang::JobSet).as_deref(), Some("metadata.labels['jobset.sigs.k8s.io/job-index']"));
}

#[test]
fn nodes_are_named_in_the_order_of_their_ranks() {
    let hosts = |gang| {
        let objects = objects("name: a\nnum_nodes: 2\nrun: x\n", gang);
        let template = templates(&objects)[0].0;
        let script = template["spec"]["containers"][0]["args"][0].as_str().expect("a script").to_owned();
        let hosts = variable(template, "SKYPILOT_NODE_IPS")["value"].as_str().expect("names").to_owned();
        assert_eq!(script.contains("getent"), gang != Gang::PerNode);
        hosts
    };
    assert_eq!(hosts(Gang::PerNode), "a-1a2b3c4d-node-0.a-1a2b3c4d\na-1a2b3c4d-node-1.a-1a2b3c4d");
    for gang in [Gang::Indexed, Gang::AppWrapper] {
        assert_eq!(hosts(gang), "a-1a2b3c4d-0.a-1a2b3c4d\na-1a2b3c4d-1.a-1a2b3c4d");
    }
    assert_eq!(hosts(Gang::JobSet), "a-1a2b3c4d-node-0-0.a-1a2b3c4d\na-1a2b3c4d-node-1-0.a-1a2b3c4d");
}

#[test]
fn a_job_within_an_appwrapper_is_neither_found_nor_queued_by_itself() {
    for (nodes, names_rank) in [(1, true), (2, false)] {
        let text =
            format!("name: a\nnum_nodes: {nodes}\nrun: x\nconfig: {{fedq: {{as_app_wrapper: true}}}}\n");
        let task = new_task(&text);
        assert!(task.spec.is_app_wrapper());
        let objects = objects_in(&task, Gang::AppWrapper);
        let wrapper = objects.last().expect("an AppWrapper");
        assert_eq!(wrapper["metadata"]["name"], "a-1a2b3c4d");
        assert_eq!(wrapper["metadata"]["annotations"]["workload.codeflare.dev.appwrapper/retryLimit"], "0");
        assert_eq!(wrapper["metadata"]["labels"]["workload.codeflare.dev/user"], "user_example.com");
        let job = &wrapper["spec"]["components"][0]["template"];
        assert_eq!((&job["kind"], &job["metadata"]), (&json!("Job"), &json!({"name": "a-1a2b3c4d"})));
        assert_eq!((job["spec"].get("suspend"), job["spec"].get("managedBy")), (None, None));
        let labels = &job["spec"]["template"]["metadata"]["labels"];
        assert_eq!((&labels["task-id"], labels.get(NODE_LABEL).is_some()), (&json!("1a2b3c4d"), names_rank));
    }
}

#[test]
fn a_job_that_is_unwrapped_keeps_what_its_owner_wrote() {
    let wrapper = json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "train"},
        "spec": {"components": [{"template": {
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": "mine", "annotations": {"note": "y", "fedq.dev/owner": "somebody"},
                "labels": {
                    "mine": "x", "kueue.x-k8s.io/multikueue-origin": "y", "kueue.x-k8s.io/priority-class": "urgent",
                    "jobset.sigs.k8s.io/jobset-name": "z",
                },
            },
            "spec": {"ttlSecondsAfterFinished": 0, "managedBy": "somebody", "parallelism": 2, "completions": 2, "backoffLimit": 6, "template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
            }}},
        }}]},
    });
    let read = wrapped::read_manifest(wrapper.to_string().as_bytes(), "team").expect("an AppWrapper");
    let objects = objects_in(&read.task, Gang::Unwrapped);
    let [job] = &objects[..] else { panic!("{objects:?}") };
    let metadata = &job["metadata"];
    assert_eq!((&job["kind"], &metadata["namespace"]), (&json!("Job"), &json!("team")));
    assert_eq!(
        (&metadata["labels"]["mine"], &metadata["labels"][QUEUE_LABEL]),
        (&json!("x"), &json!("default"))
    );
    let annotations = &metadata["annotations"];
    assert_eq!(
        (&annotations["note"], &annotations[OWNER_ANNOTATION]),
        (&json!("y"), &json!("user@example.com"))
    );
    assert_eq!((&job["spec"]["suspend"], &job["spec"]["backoffLimit"]), (&json!(true), &json!(6)));
    let of_pods = &job["spec"]["template"]["metadata"]["labels"];
    assert_eq!((&of_pods["task-id"], &of_pods["fedq.dev/nodes"]), (&json!("1a2b3c4d"), &json!("2")));
    assert!(job.get("status").is_none());
    for hidden in ["multikueue-origin", "jobset-name", "urgent", "ttlSecondsAfterFinished", "managedBy"] {
        assert!(!job.to_string().contains(hidden), "{hidden}: {job:#}");
    }
}

/// The shells that images have. Tasks are started with bash, and ask nothing of it that another lacks, but to find the
/// nodes of a gang.
const SHELLS: [&str; 2] = ["bash", "sh"];

#[derive(Debug, Eq, PartialEq)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn well(out: &str) -> Self {
        Self { code: Some(0), out: out.to_owned(), err: String::new() }
    }
}

/// What a shell makes of the script, in a folder that is its home too and holds the folder `code`.
fn ran(shell: &str, text: &str, (finds_nodes, names): (bool, &str)) -> Ran {
    let home = tempfile::tempdir().expect("a folder");
    let temporary = home.path().join("tmp");
    for folder in [&temporary, &home.path().join("code with blank")] {
        std::fs::create_dir(folder).expect("a folder");
    }
    let script = script::script(&task(text), finds_nodes);
    let ran = std::process::Command::new(shell)
        .args(["-c", &kubelet_expands(&literal(&script))])
        .current_dir(home.path())
        .env("HOME", home.path())
        .env("TMPDIR", &temporary)
        .env("SKYPILOT_NODE_IPS", names)
        .env("SECONDS", "1000")
        .output()
        .expect("the shell runs");
    let left = std::fs::read_dir(temporary).expect("a folder").count();
    assert_eq!(left, 0, "what setup exports may be secret, and stays nowhere: {text}");
    let told =
        |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(home.path().to_str().expect("a path"), "HOME");
    Ran { code: ran.status.code(), out: told(&ran.stdout), err: told(&ran.stderr) }
}

fn in_each_shell(text: &str) -> Ran {
    let [bash, sh] = SHELLS.map(|shell| ran(shell, text, (false, "")));
    assert_eq!((bash.code, &bash.out), (sh.code, &sh.out), "{text}");
    bash
}

#[test]
fn the_script_sets_up_then_runs() {
    let text = "workdir: /\nsetup: |\n  export A='it''s'\n  # the end\nrun: echo \"$PWD $A $(echo b)\"\n";
    assert_eq!(in_each_shell(text), Ran::well("/ its b\n"));
    let document = "setup: |\n  cat <<END\n  x\n  END\nrun: echo y\n";
    assert_eq!(in_each_shell(document), Ran::well("x\ny\n"));
    for shell in SHELLS {
        let nowhere = ran(shell, "workdir: /no/where\nrun: echo not here\n", (false, ""));
        assert_eq!((nowhere.code.map(|code| code != 0), nowhere.out.as_str()), (Some(true), ""));
    }
}

#[test]
fn a_setup_that_fails_ends_the_task_with_its_exit_code() {
    for (setup, code) in [
        ("false", 1),
        ("exit 7", 7),
        ("(exit 9)", 9),
        ("set -e\n  (exit 5)\n  echo not here", 5),
        ("set -eu\n  echo $no_such\n  echo not here", 0),
        ("trap 'echo mine' EXIT\n  exit 6", 6),
        ("exec sh -c 'exit 8'", 8),
        // Not a word of these reaches the script around it.
        ("if true; then", 0),
        ("echo )", 0),
        ("echo 'never closed", 0),
    ] {
        for shell in SHELLS {
            let ran = ran(shell, &format!("setup: |\n  {setup}\nrun: echo not here\n"), (false, ""));
            // Which code a variable that is not set gives is the shell's choice.
            assert!(ran.code.is_some_and(|found| found == code || code == 0 && found != 0), "{ran:?}");
            assert!(!ran.out.contains("not here"), "{shell}, {setup}: {ran:?}");
            assert!(ran.err.ends_with("so that run is not started\n"), "{shell}, {setup}: {ran:?}");
        }
    }
}

#[test]
fn a_setup_leaves_to_its_run_what_it_exports_and_nothing_else() {
    for setup in [
        "cd /",
        "set -e",
        "set -u",
        "A=1",
        "exit 0",
        "set -e\n  cd /\n  exit 0",
        "trap 'exit 3' EXIT TERM\n  trap - EXIT",
        "exec true",
        "export A=1\n  unset A",
    ] {
        let run = "false; echo \"$PWD ${A-none} $no_such\"";
        let ended = in_each_shell(&format!("setup: |\n  {setup}\nrun: |\n  {run}\n"));
        assert_eq!(ended, Ran::well("HOME none \n"), "{setup}");
    }
    for (setup, found) in [
        ("export A=1", "1"),
        ("A=1; export A; exit 0", "1"),
        ("set -e; export A=1", "1"),
        ("trap 'true' EXIT; export A=1", "1"),
        ("export A='two  blanks '", "two  blanks "),
        (r#"export A="it's \"quoted\" \$HOME \\ \`x\` !""#, r#"it's "quoted" $HOME \ `x` !"#),
        ("export A='a\n\n  b\n  '", "a\n\nb\n"),
        ("set -C; export A=1", "1"),
        ("export A=1; : \\", "1"),
        ("export A='ä € \t$(false) *'", "ä € \t$(false) *"),
    ] {
        let ran = in_each_shell(&format!("setup: |\n  {setup}\nrun: printf '[%s]' \"$A\"\n"));
        assert_eq!(ran, Ran::well(&format!("[{found}]")), "{setup}");
    }
}

#[test]
fn a_setup_may_use_what_only_bash_has() {
    for (setup, run) in [
        ("f() { echo found; }\n  export -f f", "f"),
        ("shopt -s extglob\n  case b in !(a)) export A=found;; esac", "echo $A"),
        ("shopt -s expand_aliases\n  alias found='export A=found'\n  found", "echo $A"),
    ] {
        let ran = ran("bash", &format!("setup: |\n  {setup}\nrun: {run}\n"), (false, ""));
        assert_eq!(ran, Ran::well("found\n"), "{setup}");
    }
}

#[test]
fn a_folder_may_be_in_the_home_of_whom_the_image_runs_as() {
    for (folder, found) in [("~", "HOME"), ("~/", "HOME"), ("~/code with blank", "HOME/code with blank")] {
        let ran = in_each_shell(&format!("workdir: {folder:?}\nrun: pwd\n"));
        assert_eq!(ran, Ran::well(&format!("{found}\n")), "{folder}");
    }
}

#[test]
fn addresses_take_the_place_of_names_and_names_stay_where_there_is_none() {
    let run = "run: echo \"$SKYPILOT_NODE_IPS\"; echo \"$SKYPILOT_SETUP_NODE_IPS\"\n";
    let Ran { code, out, .. } = ran("bash", run, (true, "localhost\nnobody.invalid"));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!((code, lines.len()), (Some(0), 4), "{out}");
    assert!(lines[0].parse::<std::net::IpAddr>().is_ok(), "{out}");
    assert_eq!(lines[1], "nobody.invalid");
    assert_eq!(lines[..2], lines[2..]);
}

#[test]
fn a_volume_at_two_paths_stands_in_the_pod_once() {
    let text = "run: x\nvolumes: {/a: data, /b: {name: data, sub_path: s}, /c: Big_One}\n";
    let objects = objects(text, Gang::PerNode);
    let spec = &objects[0]["spec"]["template"]["spec"];
    assert_eq!(
        spec["volumes"],
        json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-0a0a0a0a"}},
            {"name": "volume-1", "persistentVolumeClaim": {"claimName": "big-one-0a0a0a0b"}},
            {"name": "fedq-shm", "emptyDir": {"medium": "Memory"}},
        ])
    );
    assert_eq!(
        spec["containers"][0]["volumeMounts"][1],
        json!({"name": "data", "mountPath": "/b", "subPath": "s"})
    );
}

#[test]
fn what_is_only_read_cannot_be_written_to() {
    let text =
        "run: x\nvolumes: {/a: data, /b: {name: data, sub_path: s}, /c: {name: Big_One, read_only: true}}\n";
    let placement = Placement { read_only: ["data".to_owned()].into(), ..placement() };
    for gang in [Gang::PerNode, Gang::Indexed, Gang::JobSet] {
        let objects = objects_with(&new_task(text), gang, &placement);
        let spec = &templates(&objects)[0].0["spec"];
        assert_eq!(
            [&spec["volumes"][0], &spec["volumes"][1]],
            [
                &json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-0a0a0a0a", "readOnly": true}}),
                &json!({"name": "volume-1", "persistentVolumeClaim": {"claimName": "big-one-0a0a0a0b"}}),
            ]
        );
        let mounts = spec["containers"][0]["volumeMounts"].as_array().expect("mounts");
        let read: Vec<_> = mounts.iter().map(|mount| (&mount["mountPath"], &mount["readOnly"])).collect();
        let only_read = json!(true);
        assert_eq!(
            read[..3],
            [(&json!("/a"), &only_read), (&json!("/b"), &only_read), (&json!("/c"), &only_read)]
        );
    }
}

#[test]
fn what_a_fast_network_takes_is_in_every_pod() {
    let mut new = new_task("run: x\nnum_nodes: 2\nresources: {accelerators: 1}\n");
    new.spec.pod.devices = [(ResourceName::new("rdma/hca").expect("a resource"), 2)].into();
    new.spec.pod.capabilities = ["IPC_LOCK".to_owned()].into();
    new.spec.pod.host_network = true;
    for gang in [Gang::PerNode, Gang::Indexed, Gang::JobSet] {
        let objects = objects_in(&new, gang);
        for (template, _) in templates(&objects) {
            let spec = &template["spec"];
            assert_eq!(
                (&spec["hostNetwork"], &spec["dnsPolicy"]),
                (&json!(true), &json!("ClusterFirstWithHostNet"))
            );
            let container = &spec["containers"][0];
            assert_eq!(container["resources"], json!({"limits": {"nvidia.com/gpu": "1", "rdma/hca": "2"}}));
            assert_eq!(container["securityContext"], json!({"capabilities": {"add": ["IPC_LOCK"]}}));
            assert_eq!(requested(template), per_node(&new.spec, &new.spec.candidates[0]));
        }
    }
    let plain = objects("run: x\n", Gang::PerNode);
    let spec = &plain[0]["spec"]["template"]["spec"];
    let absent = [&spec["hostNetwork"], &spec["dnsPolicy"], &spec["containers"][0]["securityContext"]];
    assert!(absent.iter().all(|field| field.is_null()), "{spec:#}");
}

#[test]
fn every_pod_has_shared_memory_unless_the_task_mounts_its_own() {
    let mounted = |volumes: &str, gang| {
        let objects = objects(&format!("run: x\nnum_nodes: 2\nvolumes: {{{volumes}}}\n"), gang);
        let spec = &templates(&objects)[0].0["spec"];
        let shared = json!({"name": "fedq-shm", "emptyDir": {"medium": "Memory"}});
        let place = json!({"name": "fedq-shm", "mountPath": "/dev/shm"});
        let has = |list: &Value, entry: &Value| list.as_array().expect("a list").contains(entry);
        let there = has(&spec["volumes"], &shared);
        assert_eq!(there, has(&spec["containers"][0]["volumeMounts"], &place), "{spec:#}");
        there
    };
    for gang in [Gang::PerNode, Gang::Indexed, Gang::JobSet] {
        for (volumes, expected) in [
            ("", true),
            ("/data: data", true),
            ("/dev/shm/cache: data", true),
            ("/device: data", true),
            ("/dev/shm: data", false),
            ("/dev//shm/: data", false),
            ("/dev: data", false),
        ] {
            assert_eq!(mounted(volumes, gang), expected, "{volumes}");
        }
    }
}

#[test]
fn no_volume_of_a_task_is_called_as_one_of_ours() {
    let own = |name: &str| {
        let mut placement = placement();
        placement.claims.insert(name.to_owned(), "claim".to_owned());
        let task = new_task(&format!("run: x\nvolumes: {{/a: {name}}}\n"));
        let objects = objects_with(&task, Gang::PerNode, &placement);
        objects[0]["spec"]["template"]["spec"]["volumes"][0]["name"].as_str().expect("a name").to_owned()
    };
    assert_eq!(own("fedq-shm"), "volume-0");
    assert_eq!(own("fedq"), "fedq");
}

#[test]
fn times_are_as_python_writes_them() {
    let at = |micros| naive(Timestamp::from_microsecond(micros).expect("a time"));
    assert_eq!(at(1_759_667_696_789_012), "2025-10-05T12:34:56.789012");
    assert_eq!(at(1_759_667_696_000_120), "2025-10-05T12:34:56.000120");
    assert_eq!(at(1_759_667_696_000_000), "2025-10-05T12:34:56");
}

/// As the kubelet reads an argument of which it knows no variable
/// (`third_party/forked/golang/expansion/expand.go`).
fn kubelet_expands(text: &str) -> String {
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..=at]);
        let mut behind = rest[at + 1..].chars();
        match behind.next() {
            Some('$') | None => {}
            Some(other) => expanded.push(other),
        }
        rest = behind.as_str();
    }
    expanded + rest
}

/// What Kubernetes takes a container to request: a limit counts where no request is given.
fn requested(template: &Value) -> Resources {
    let resources = &template["spec"]["containers"][0]["resources"];
    let mut requested = Resources::new();
    for part in ["limits", "requests"] {
        for (name, text) in resources[part].as_object().into_iter().flatten() {
            let resource = ResourceName::new(name).expect("a resource");
            let quantity = Quantity::parse(text.as_str().expect("a text")).expect("a quantity");
            requested.insert(resource.clone(), Amount::held(quantity, &resource));
        }
    }
    requested
}

fn any_task() -> impl Strategy<Value = String> {
    let resources = (
        proptest::option::of("[1-9][0-9]{0,2}(\\.[0-9]{1,2})?[+]?|[1-9][0-9]{0,4}m"),
        proptest::option::of("[1-9][0-9]{0,2}(\\+|GB|Gi|Mi|G|TB)?"),
        proptest::option::of("(H100|A100-80GB|MI300X|tpu-v5e)?(:[1-9])?"),
        proptest::sample::select(vec!["true", "false", "1.5", "2"]),
    );
    (1_u32..12, resources, "[ -~]{0,40}").prop_map(|(nodes, (cpus, memory, gpus, limits), name)| {
        let mut fields = Vec::new();
        fields.extend(cpus.map(|cpus| format!("cpus: {cpus}")));
        fields.extend(memory.map(|memory| format!("memory: {memory}")));
        let gpus = gpus.filter(|gpus| !gpus.is_empty() && !gpus.starts_with(':'));
        fields.extend(gpus.map(|gpus| format!("accelerators: '{gpus}'")));
        let name = if name.trim().is_empty() { "x".to_owned() } else { name.replace('\'', "''") };
        format!(
            "name: '{name}'\nnum_nodes: {nodes}\nrun: x\nsetup: y\nresources: {{{}}}\nconfig: {{kubernetes: {{set_pod_resource_limits: {limits}}}}}\n",
            fields.join(", ")
        )
    })
}

proptest! {
    #[test]
    fn what_a_script_says_reaches_bash(text in "[a$(){}A \n\"']{0,60}") {
        prop_assert_eq!(kubelet_expands(&literal(&text)), text);
    }

    #[test]
    fn pods_request_what_the_task_does(text in any_task()) {
        let task = new_task(&text);
        let spec = &task.spec;
        for gang in [Gang::PerNode, Gang::Indexed, Gang::JobSet] {
            let objects = objects_in(&task, gang);
            let templates = templates(&objects);
            let pods: u64 = templates.iter().map(|(_, count)| count).sum();
            prop_assert_eq!(pods, u64::from(spec.num_nodes));
            for (template, _) in templates {
                prop_assert_eq!(requested(template), per_node(spec, &spec.candidates[0]));
            }
            for object in &objects {
                let name = object["metadata"]["name"].as_str().expect("a name");
                prop_assert!(name.len() <= 63, "{}", name);
                for (key, value) in object["metadata"]["labels"].as_object().expect("labels") {
                    prop_assert!(value.as_str().is_some_and(|value| value.len() <= 63), "{}", key);
                }
            }
        }
    }
}

#[test]
fn only_the_names_that_a_task_gives_are_its_own() {
    for (name, nodes, expected) in [
        ("train-1a2b3c4d", 1, true),
        ("train-1a2b3c4d", 4, true),
        ("train-1a2b3c4d-node-3", 4, true),
        ("train-1a2b3c4d-node-4", 4, false),
        ("train-1a2b3c4d-node-03", 4, false),
        ("train-1a2b3c4d-node-0", 1, false),
        ("train-1a2b3c4d-x", 4, false),
        ("other-1a2b3c4d", 4, false),
    ] {
        assert_eq!(is_main_name(name, "train-1a2b3c4d", nodes), expected, "{name}");
    }
    for gang in [Gang::PerNode, Gang::Indexed, Gang::JobSet] {
        assert!(main_names(gang, "a-1", 3).iter().all(|name| is_main_name(name, "a-1", 3)));
    }
}

#[test]
fn pods_that_go_to_one_machine_ask_for_each_others() {
    let mut task = new_task("run: x\nnum_nodes: 2\n");
    task.spec.one_machine = true;
    for gang in [Gang::PerNode, Gang::Indexed, Gang::JobSet] {
        let objects = objects_in(&task, gang);
        for (template, _) in templates(&objects) {
            let terms = &template["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
            assert_eq!(terms[0]["topologyKey"], "kubernetes.io/hostname");
            let selector = &terms[0]["labelSelector"]["matchLabels"];
            assert_eq!(selector["task-id"], template["metadata"]["labels"]["task-id"]);
            assert!(template["spec"]["affinity"].get("nodeAffinity").is_none());
        }
    }
}

/// What `tar` makes of these files: path, content.
fn archive(files: &[(&str, &[u8])], file: bool) -> (Archive, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, content) in files {
        let path = folder.path().join("tree").join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, content).expect("a file");
    }
    let what = if file { upload::FILE } else { "." };
    let pack = "tar -C tree -cf - \"$0\" | gzip -c";
    let packed =
        std::process::Command::new("sh").args(["-c", pack, what]).current_dir(folder.path()).output();
    let data = packed.expect("tar and gzip").stdout;
    let bytes = u64::try_from(data.len()).expect("small");
    (Archive { digest: Digest::of(Sha256::digest(&data).into()), bytes, file }, data)
}

/// A task with these uploads, and their archives.
fn bringing(text: &str, uploads: Vec<(&str, (Archive, Vec<u8>))>) -> (NewTask, Vec<Vec<u8>>) {
    let mut task = new_task(text);
    let mut archives = Vec::new();
    for (path, (archive, data)) in uploads {
        task.spec.uploads.push(Upload { path: path.to_owned(), archive });
        archives.push(data);
    }
    (task, archives)
}

fn objects_bringing((task, archives): &(NewTask, Vec<Vec<u8>>), gang: Gang) -> Vec<Value> {
    let id = TaskId::parse("1a2b3c4d").expect("an id");
    let tenant = Tenant { namespace: "team".to_owned(), service_account: None };
    render(&Order {
        id: &id,
        epoch: 3,
        hub_id: "hub",
        owner: "user@example.com",
        submitted: Timestamp::UNIX_EPOCH,
        spec: &task.spec,
        secrets: &task.secrets,
        uploads: archives,
        placement: &placement(),
        gang,
        tenant: &tenant,
        priority_class: None,
        by_multikueue: false,
        default_image: "python:3.13-slim",
    })
}

/// Each byte follows from all before it, so that it does not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut noise = Vec::new();
    while noise.len() < length {
        noise.extend_from_slice(&Sha256::digest(noise.len().to_le_bytes()));
    }
    noise.truncate(length);
    noise
}

/// Runs what a pod of `objects` is told to, with its Secrets where it would find them, in an empty home; what it says, and
/// what is in the home then. `path`: where it finds programs.
fn unpacked(
    objects: &[Value],
    shell: &str,
    path: Option<&std::path::Path>,
) -> (Ran, BTreeMap<String, Vec<u8>>) {
    let place = tempfile::tempdir().expect("a folder");
    let (parts, home) = (place.path().join("parts"), place.path().join("home"));
    for folder in [&parts, &home] {
        std::fs::create_dir(folder).expect("a folder");
    }
    let template = templates(objects)[0].0;
    let volumes = template["spec"]["volumes"].as_array().expect("volumes");
    let volume = volumes.iter().find(|volume| volume["name"] == "fedq-uploads").expect("the uploads");
    for source in volume["projected"]["sources"].as_array().expect("sources") {
        let named = |object: &&Value| {
            object["kind"] == "Secret" && object["metadata"]["name"] == source["secret"]["name"]
        };
        let secret = objects.iter().find(named).expect("a Secret that the pod mounts is one of its objects");
        for (key, text) in secret["data"].as_object().expect("data") {
            let data = BASE64_STANDARD.decode(text.as_str().expect("text")).expect("base64");
            std::fs::write(parts.join(key), data).expect("a part");
        }
    }
    let script = template["spec"]["containers"][0]["args"][0].as_str().expect("a script");
    let mounts = template["spec"]["containers"][0]["volumeMounts"].as_array().expect("mounts");
    let mount = mounts.iter().find(|mount| mount["name"] == "fedq-uploads").expect("the uploads");
    let at = mount["mountPath"].as_str().expect("a path");
    let mut script = kubelet_expands(script).replace(at, parts.to_str().expect("UTF-8"));
    script = script.replace("/absolute", &format!("{}/absolute", home.display()));
    if let Some(path) = path {
        script = format!("PATH={}\n{script}", path.display());
    }
    let ran = std::process::Command::new(shell)
        .args(["-c", &script])
        .current_dir(place.path())
        .env("HOME", &home)
        .output()
        .expect("the shell runs");
    let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(home.to_str().expect("a path"), "HOME");
    let mut found = BTreeMap::new();
    let mut open = vec![home.clone()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(&home).expect("below").to_str().expect("UTF-8").to_owned();
                found.insert(name, std::fs::read(path).expect("a file"));
            }
        }
    }
    (Ran { code: ran.status.code(), out: told(&ran.stdout), err: told(&ran.stderr) }, found)
}

#[test]
fn what_a_task_brings_along_is_in_secrets_beside_it_and_put_together_in_its_pods() {
    let noise = noise(2 << 20);
    let code = archive(&[("train.py", b"x"), ("data/weights", &noise)], false);
    let text = "num_nodes: 2\nsecrets: {TOKEN: hush}\nrun: x\n";
    let task =
        bringing(text, vec![("~/sky_workdir", code), ("/absolute/one", archive(&[("file", b"1")], true))]);
    for gang in [Gang::PerNode, Gang::Indexed, Gang::JobSet] {
        let objects = objects_bringing(&task, gang);
        let secrets: Vec<&Value> = objects.iter().filter(|object| object["kind"] == "Secret").collect();
        let names: Vec<&str> =
            secrets.iter().filter_map(|secret| secret["metadata"]["name"].as_str()).collect();
        let files = (0..3).map(|number| format!("task-1a2b3c4d-1a2b3c4d-files-{number}"));
        let expected: Vec<String> =
            std::iter::once("task-1a2b3c4d-1a2b3c4d-env".to_owned()).chain(files).collect();
        assert_eq!(names, expected);
        assert_eq!(names[1..], upload_secret_names("task-1a2b3c4d-1a2b3c4d", &task.0.spec.uploads));
        for secret in &secrets {
            assert_eq!(secret["metadata"]["labels"][EPOCH_LABEL], "3");
            assert!(secret.to_string().len() < 1_300_000, "API servers take no larger Secret");
        }
        let (main, owned): (Vec<_>, Vec<_>) = objects.iter().partition(|object| is_main(object));
        assert!(owned.iter().all(|object| object["kind"] != "Job"));
        assert!(main.iter().all(|object| {
            !object.to_string().contains(secrets[1]["data"]["000.0000"].as_str().expect("data"))
        }));
        for shell in SHELLS {
            let (ran, found) = unpacked(&objects, shell, None);
            assert_eq!(ran.code, Some(127), "the program `x` is in no image: {ran:?}");
            assert_eq!(found["sky_workdir/data/weights"], noise, "{gang:?} {shell}");
            assert_eq!(
                found.keys().collect::<Vec<_>>(),
                ["absolute/one", "sky_workdir/data/weights", "sky_workdir/train.py"]
            );
        }
    }
    let (task, _) = task;
    let jobs = objects_bringing(&(task, Vec::new()), Gang::Indexed);
    assert_eq!(kinds(&jobs), ["Secret", "Service", "Job"], "without the archives there are the others only");
}

#[test]
fn a_task_starts_in_what_it_brought_along_and_finds_its_files_there() {
    let text = "workdir: ~/sky_workdir\nsetup: cat a\nrun: |\n  pwd; cat 'sub dir/b' ~/.env \"/absolute/it's/c\"; ls ~/keys\n";
    let uploads = || {
        vec![
            ("~/sky_workdir", archive(&[("a", b"A\n"), ("sub dir/b", b"B\n")], false)),
            ("~/.env", archive(&[("file", b"E\n")], true)),
            ("/absolute/it's/c", archive(&[("file", b"C\n")], true)),
            ("~/keys/", archive(&[("one", b"1"), (".two", b"2")], false)),
        ]
    };
    let objects = objects_bringing(&bringing(text, uploads()), Gang::PerNode);
    for shell in SHELLS {
        let (ran, found) = unpacked(&objects, shell, None);
        assert_eq!(ran, Ran::well("A\nHOME/sky_workdir\nB\nE\nC\none\n"), "{shell}");
        assert!(!found.keys().any(|name| name.contains(".fedq-")), "{found:?}");
    }
}

#[test]
fn an_image_that_cannot_unpack_is_told_of_and_nothing_is_run() {
    let uploads = vec![("~/sky_workdir", archive(&[("a", b"A")], false))];
    let objects =
        objects_bringing(&bringing("setup: echo not here\nrun: echo nor here\n", uploads), Gang::PerNode);
    for missing in ["tar", "gzip"] {
        let programs = tempfile::tempdir().expect("a folder");
        for program in
            ["cat", "gzip", "tar", "mkdir", "mktemp", "rm"].iter().filter(|program| **program != missing)
        {
            let found = std::process::Command::new("sh").args(["-c", "command -v \"$0\"", program]).output();
            let found = String::from_utf8(found.expect("a shell").stdout).expect("a path");
            std::os::unix::fs::symlink(found.trim(), programs.path().join(program)).expect("a link");
        }
        for shell in SHELLS {
            let (ran, found) = unpacked(&objects, shell, Some(programs.path()));
            assert_eq!((ran.code, ran.out.as_str(), found.len()), (Some(1), "", 0), "{shell}: {ran:?}");
            assert!(ran.err.contains(&format!("the image has no {missing},")), "{ran:?}");
        }
    }
}

#[test]
fn parts_that_are_not_whole_start_nothing() {
    let (archive, data) = archive(&[("a", &noise(1000))], false);
    let (task, mut archives) = bringing("run: echo not here\n", vec![("~/sky_workdir", (archive, data))]);
    archives[0].truncate(300);
    for shell in SHELLS {
        let (ran, _) =
            unpacked(&objects_bringing(&(task.clone(), archives.clone()), Gang::PerNode), shell, None);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{shell}: {ran:?}");
        assert!(ran.err.ends_with("could not be put into HOME/sky_workdir\n"), "{ran:?}");
    }
}
