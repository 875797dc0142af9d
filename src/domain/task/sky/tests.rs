use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::task::{
    spec::{Limits, MAX_NODES, Priority, Strategy as Recover, TaskSpec, Workdir},
    upload::{Digest, Upload, WORKDIR},
};
use fedq_values::ids::ClusterName;

fn read(text: &str) -> Result<TaskFile, TaskFileError> {
    read_file(text.as_bytes(), &Options::default())
}

fn task(text: &str) -> TaskSpec {
    let mut file = read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(file.tasks.len(), 1);
    file.tasks.remove(0).spec
}

/// Each problem as it is shown.
fn problems(text: &str) -> Vec<String> {
    let error = read(text).expect_err(text);
    error.notes().iter().map(Note::to_string).collect()
}

fn problem(text: &str) -> String {
    let mut problems = problems(text);
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.remove(0)
}

#[test]
fn each_task_of_a_pipeline_keeps_the_warnings_that_are_its_own() {
    let text =
        "name: all\n---\nrun: x\nresources: {disk_size: 1}\n---\nrun: y\n---\nrun: z\nresources: {zone: a}\n";
    let mut file = read(text).expect("valid");
    file.keep_warnings();
    let kept: Vec<_> = file.tasks.iter().map(|task| task.spec.warnings.as_slice()).collect();
    let [first, second, third] = kept.as_slice() else { panic!("{kept:?}") };
    assert!(first.len() == 1 && first[0].contains("tasks[0].resources.disk_size"), "{first:?}");
    assert!(second.is_empty(), "{second:?}");
    assert!(third.len() == 1 && third[0].contains("tasks[2].resources.zone"), "{third:?}");
}

fn warnings(text: &str) -> Vec<String> {
    read(text).expect(text).warnings.iter().map(Note::to_string).collect()
}

fn accelerators(text: &str) -> Vec<String> {
    let text = format!("run: x\nresources:\n  accelerators: {text}\n");
    let shown = |accelerator: &super::super::spec::Accelerator| {
        format!("{}:{}", accelerator.kind.as_deref().unwrap_or("*"), accelerator.count)
    };
    task(&text).candidates.iter().filter_map(|form| form.accelerator.as_ref()).map(shown).collect()
}

#[test]
fn ordinary_skypilot_types_are_read() {
    let task = task(
        "name: train\nnum_nodes: 2\nresources:\n  cpus: 4+\n  memory: 32\n  accelerators: {H100: 8}\n  \
         use_spot: yes\n  ports: 8080\n  image_id: docker:nvcr.io/a/b:1\nenvs:\n  A: 1\n  B: 1.10\n  C: true\n  \
         D: ''\nrun: |\n  python train.py\n",
    );
    let form = &task.candidates[0];
    assert_eq!(task.num_nodes, 2);
    assert_eq!(form.cpu.map(|request| (request.amount.units(), request.or_more)), Some((4000, true)));
    assert_eq!(form.memory.map(|request| request.amount.units()), Some(32 << 30));
    assert_eq!(form.image.as_deref(), Some("nvcr.io/a/b:1"));
    assert!(form.spot && !form.on_demand);
    let envs: Vec<_> = task.envs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(envs, [("A", "1"), ("B", "1.10"), ("C", "true"), ("D", "")]);
    assert_eq!(task.run, "python train.py\n");
}

#[test]
fn accelerators_take_every_form() {
    for (text, expected) in [
        ("H100", vec!["H100:1"]),
        ("H100:8", vec!["H100:8"]),
        ("'2'", vec!["*:2"]),
        ("2", vec!["*:2"]),
        ("{H100: 8}", vec!["H100:8"]),
        ("{H100:1, A100:2}", vec!["H100:1", "A100:2"]),
        ("{'H100:1', 'A100:2'}", vec!["H100:1", "A100:2"]),
        ("[H100:8, A100-80GB:8]", vec!["H100:8", "A100-80GB:8"]),
        ("[A100, A100]", vec!["A100:1"]),
        ("tpu-v5e:8", vec!["tpu-v5e:8"]),
    ] {
        assert_eq!(accelerators(text), expected, "{text}");
    }
    assert!(task("run: x\nresources: {accelerators: [A, B]}").ordered);
    assert!(!task("run: x\nresources: {accelerators: {A: 1, B: 1}}").ordered);
    assert_eq!(
        task("run: x\nresources: {gpus: L4:2}").candidates[0].accelerator.as_ref().map(|a| a.count),
        Some(2)
    );
    for text in ["H100:0", "H100:0.5", "0", "H100:x", "':8'", "'a b'", "H100:1000000", "[[H100]]"] {
        problem(&format!("run: x\nresources:\n  accelerators: {text}\n"));
    }
}

#[test]
fn alternatives_have_the_outer_fields_as_defaults() {
    let task = task(
        "run: x\nresources:\n  cpus: 8\n  labels: {team: a}\n  ordered:\n  - {infra: k8s/one, accelerators: H100:8}\n  \
         - infra: k8s/two\n    accelerators: [A100:8, L4:8]\n    cpus: 16\n    labels: {kind: b}\n",
    );
    assert!(task.ordered);
    let forms: Vec<_> = task
        .candidates
        .iter()
        .map(|form| {
            let cluster = form.cluster.as_ref().map_or("", |cluster| cluster.as_str());
            let kind = form.accelerator.as_ref().and_then(|accelerator| accelerator.kind.as_deref());
            (cluster, kind.unwrap_or(""), form.cpu.map_or(0, |cpu| cpu.amount.units()), form.labels.len())
        })
        .collect();
    assert_eq!(forms, [("one", "H100", 8000, 1), ("two", "A100", 16000, 2), ("two", "L4", 16000, 2)]);
}

#[test]
fn infra_names_a_joined_cluster() {
    for (text, cluster) in [
        ("infra: k8s", None),
        ("infra: kubernetes", None),
        ("infra: '*'", None),
        ("infra: k8s/*", None),
        ("infra: k8s/eu.west-1", Some("eu.west-1")),
        ("cloud: kubernetes\n  region: one", Some("one")),
    ] {
        let task = task(&format!("run: x\nresources:\n  {text}\n"));
        assert_eq!(task.candidates[0].cluster.as_ref().map(ClusterName::as_str), cluster, "{text}");
    }
    let text = "run: x\nresources:\n  any_of:\n  - infra: aws/us-east-1\n  - infra: k8s\n";
    assert_eq!(task(text).candidates.len(), 1);
    assert_eq!(
        warnings(text),
        [
            "line 4, column 5: `resources.any_of[0]`: is left out: fedq runs tasks on joined Kubernetes clusters only"
        ]
    );
    assert!(problem("run: x\nresources: {infra: aws}").contains("use `infra: k8s`"));
    assert!(problem("run: x\nresources: {infra: k8s/Not A Name}").contains("cluster name"));
    assert!(problem("run: x\nresources: {region: us}").contains("infra: k8s/<cluster>"));
}

#[test]
fn queue_and_priority_are_found_wherever_skypilot_has_them() {
    let queue = |text: &str| task(&format!("run: x\n{text}\n")).queue;
    let kueue = "kueue: {local_queue_name: a, admission_timeout: 60}";
    assert_eq!(queue(&format!("config: {{kubernetes: {{{kueue}}}}}")).as_deref(), Some("a"));
    assert_eq!(
        queue(&format!("config: {{kubernetes: {{{kueue}, quota: {{queue: b}}}}}}")).as_deref(),
        Some("b")
    );
    assert_eq!(queue("resources: {labels: {kueue.x-k8s.io/queue-name: c}}").as_deref(), Some("c"));
    let both = task(&format!(
        "run: x\nresources: {{priority: 7, priority_class: high}}\nconfig: {{kubernetes: {{{kueue}}}}}"
    ));
    assert_eq!(both.priority, Some(Priority::Class("high".to_owned())));
    assert_eq!(both.spill_after, Some(Duration::from_mins(1)));
    assert_eq!(task("run: x\nresources: {priority: -3}").priority, Some(Priority::Value(-3)));
}

#[test]
fn null_envs_and_secrets_must_be_given() {
    let text = "run: x\nenvs: {A: }\nsecrets: {TOKEN: null, KEY: s3cret}\n";
    assert_eq!(
        problems(text),
        [
            "line 2, column 8: `envs.A`: needs a value: give it with -e A=VALUE",
            "line 3, column 11: `secrets.TOKEN`: needs a value: give it with --secret TOKEN=VALUE",
        ]
    );
    let options = Options {
        envs: [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "2".to_owned())].into(),
        secrets: [("TOKEN".to_owned(), "hush".to_owned())].into(),
        ..Options::default()
    };
    let file = read_file(text.as_bytes(), &options).expect("complete");
    let NewTask { spec, secrets } = &file.tasks[0];
    assert_eq!(spec.envs, [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "2".to_owned())]);
    assert_eq!(spec.secrets.iter().collect::<Vec<_>>(), ["KEY", "TOKEN"]);
    assert!(!format!("{file:?}").contains("hush") && !format!("{file:?}").contains("s3cret"));
    assert_eq!(secrets.reveal().find(|(name, _)| *name == "TOKEN"), Some(("TOKEN", "hush")));
}

#[test]
fn a_secret_is_never_quoted() {
    for text in [
        "run: x\nsecrets: {A: \"hush\\0\"}",
        "run: x\nsecrets: {A: [hush]}",
        "run: x\nenvs: {A: 1}\nsecrets: {A: hush}",
        "run: x\nsecrets: hush",
    ] {
        let problems = problems(text);
        assert!(!problems.is_empty() && !problems.concat().contains("hush"), "{problems:?}");
    }
}

#[test]
fn variables_are_expanded_in_paths() {
    let task = task("run: x\nenvs: {V: data, P: sub}\nworkdir: /w/$P\nvolumes:\n  /mnt/${V}: $V\n");
    assert_eq!(task.workdir, Some(Workdir::Folder("/w/sub".to_owned())));
    assert_eq!((task.volumes[0].path.as_str(), task.volumes[0].volume.as_str()), ("/mnt/data", "data"));
}

#[test]
fn volumes_are_checked() {
    let ok = task("run: x\nvolumes:\n  /a: v\n  /b: {name: w, sub_path: c/d}\n");
    assert_eq!(ok.volumes[1].sub_path.as_deref(), Some("c/d"));
    let read =
        task("run: x\nvolumes: {/a: {name: v, read_only: true}, /b: {name: v, read_only: false}, /c: v}\n");
    assert_eq!([0, 1, 2].map(|index| read.volumes[index].read_only), [true, false, false]);
    let there = task("run: x\nenvs: {AT: one}\nvolumes: {/a: {claim: c.d, cluster: '${AT}', sub_path: s}}\n");
    let [mount] = there.volumes.as_slice() else { panic!("{there:?}") };
    let claim = mount.claim.as_ref().expect("a claim");
    assert_eq!((mount.volume.as_str(), claim.name.as_str(), claim.shared), ("one/c.d", "c.d", false));
    for text in [
        "a: v",
        "/a/../b: v",
        "/a: ''",
        "/a: [v]",
        "/a: {sub_path: x}",
        "/a: {name: v, read_only: perhaps}",
        "/a: {claim: c}",
        "/a: {cluster: one}",
        "/a: {claim: ../c, cluster: one}",
        "/a: {claim: c, cluster: One}",
        "/a: {name: v, claim: c, cluster: one}",
        "/: v",
        "/a: {name: v, sub_path: ../x}",
    ] {
        problem(&format!("run: x\nvolumes:\n  {text}\n"));
    }
    assert!(problem("run: x\nenvs: {P: /a}\nvolumes: {/a: v, $P: w}").contains("two volumes"));
}

#[test]
fn unknown_fields_are_named_with_the_nearest() {
    assert_eq!(
        problem("run: x\nresorces: {cpus: 1}\n"),
        "line 2, column 1: `resorces`: there is no field `resorces` here; did you mean `resources`?"
    );
    assert!(problem("run: x\nresources: {cpu: 1}").contains("did you mean `cpus`?"));
    assert!(problem("run: x\nquite_other: 1").ends_with("there is no field `quite_other` here"));
    assert!(problem("run: x\nnodes: 2").ends_with("did you mean `num_nodes`?"));
    assert!(problem("run: x\nresources: {any_of: [{cpuss: 1}]}").contains("`resources.any_of[0].cpuss`"));
}

#[test]
fn nothing_is_dropped_in_silence() {
    let file = "run: x\nworkdir: .\nfile_mounts: {/a: ./b}\nmanaged_secrets: [a]\nevent_callback: x\ninputs: x\n\
        outputs: x\napi_server_access: true\nsecrets: [a]\nresources:\n  autostop: 10h\n  ports: [1, 2-3]\n  \
        accelerator_args: {a: 1}\n  disk_size: 100\n  disk_tier: best\n  network_tier: best\n  local_disk: a\n  \
        max_hourly_cost: 1.5\n  zone: a\n  labels: {task-id: a}\nconfig:\n  hooks: [a]\n  aws: {}\n  kubernetes:\n    \
        provision_timeout: 10\n    remote_identity: a\n    dws: {enabled: true}\n    enable_docker: true\n    \
        custom_metadata: {annotations: {fedq.dev/x: y}, x: y}\n    other: 1\n    pod_config: {kind: Pod}\n";
    let warned: Vec<String> = read(file).expect("valid").warnings.into_iter().map(|note| note.path).collect();
    assert_eq!(
        warned,
        [
            "workdir",
            "file_mounts[\"/a\"]",
            "managed_secrets",
            "event_callback",
            "inputs",
            "outputs",
            "api_server_access",
            "secrets",
            "resources.autostop",
            "resources.ports",
            "resources.accelerator_args",
            "resources.disk_size",
            "resources.disk_tier",
            "resources.network_tier",
            "resources.local_disk",
            "resources.max_hourly_cost",
            "resources.zone",
            "resources.labels.task-id",
            "config.hooks",
            "config.aws",
            "config.kubernetes.provision_timeout",
            "config.kubernetes.remote_identity",
            "config.kubernetes.dws",
            "config.kubernetes.enable_docker",
            "config.kubernetes.custom_metadata.annotations[\"fedq.dev/x\"]",
            "config.kubernetes.custom_metadata.x",
            "config.kubernetes.other",
            "config.kubernetes.pod_config.kind",
        ]
    );
    let strict = Options { strict: true, ..Options::default() };
    let error = read_file(file.as_bytes(), &strict).expect_err("strict");
    assert_eq!(error.notes().len(), warned.len());
}

#[test]
fn what_a_task_cannot_do_without_is_refused() {
    for text in [
        "service: {replicas: 2}",
        "pool: {workers: 2}",
        "file_mounts: {/a: 's3://bucket'}",
        "file_mounts: {/a: {source: 's3://bucket', mode: MOUNT}}",
        "volumes: {/a: {name: v, is_ephemeral: true}}",
    ] {
        problem(&format!("run: x\n{text}\n"));
    }
}

#[test]
fn pods_take_what_is_on_the_list() {
    let task = task(
        "run: x\nconfig:\n  kubernetes:\n    set_pod_resource_limits: 1.5\n    custom_metadata: {labels: {a: b}}\n    \
         pod_config:\n      metadata: {annotations: {c: d}}\n      spec:\n        nodeSelector: {e: f}\n        \
         tolerations: [{key: g, operator: Exists, effect: NoSchedule}]\n        imagePullSecrets: [{name: h}]\n        \
         runtimeClassName: nvidia\n        terminationGracePeriodSeconds: 60\n",
    );
    assert_eq!(task.limits, Limits::Percent(150));
    assert_eq!(task.pod.labels["a"], "b");
    assert_eq!(task.pod.annotations["c"], "d");
    assert_eq!(task.pod.node_selector["e"], "f");
    assert_eq!(
        serde_json::to_string(&task.pod.tolerations).expect("JSON"),
        r#"[{"key":"g","operator":"Exists","effect":"NoSchedule"}]"#
    );
    assert_eq!(task.pod.image_pull_secrets, ["h"]);
    assert_eq!((task.pod.runtime_class.as_deref(), task.pod.grace_seconds), (Some("nvidia"), Some(60)));
    let limits = |text: &str| {
        let text = format!("run: x\nconfig: {{kubernetes: {{set_pod_resource_limits: {text}}}}}");
        read(&text).map(|file| file.tasks[0].spec.limits).ok()
    };
    assert_eq!(limits("false"), Some(Limits::Unlimited));
    assert_eq!(limits("true"), Some(Limits::Percent(100)));
    assert_eq!(limits("0.5"), None);
    assert!(
        problem("run: x\nconfig: {kubernetes: {pod_config: {spec: {tolerations: [{effect: No}]}}}}")
            .contains("NoSchedule")
    );
}

/// The spec of a pod in a file's `pod_config`, in flow style.
fn with_pod(spec: &str, pods: Allowed) -> Result<TaskFile, TaskFileError> {
    let text = format!("run: x\nconfig:\n  kubernetes:\n    pod_config:\n      spec: {spec}\n");
    read_file(text.as_bytes(), &Options { pods, ..Options::default() })
}

fn all_of_it() -> PodRules {
    PodRules {
        resources: ["rdma/hca", "vpc.amazonaws.com/efa"]
            .map(|name| fedq_values::ids::ResourceName::new(name).expect("a resource"))
            .into(),
        capabilities: ["IPC_LOCK".to_owned()].into(),
        host_network: true,
    }
}

#[test]
fn a_tenant_gets_of_fast_networks_what_its_administrator_allows() {
    const DEVICE: &str = "{containers: [{resources: {limits: {rdma/hca: 2}}}]}";
    const LOCK: &str = "{containers: [{securityContext: {capabilities: {add: [IPC_LOCK]}}}]}";
    const NETWORK: &str = "{hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet}";
    let told = |spec: &str, pods: Allowed| match with_pod(spec, pods) {
        Ok(file) => {
            let pod = &file.tasks[0].spec.pod;
            let devices: Vec<_> =
                pod.devices.iter().map(|(device, count)| format!("{device}: {count}")).collect();
            let capabilities: Vec<_> = pod.capabilities.iter().cloned().collect();
            Ok((devices.join(", "), capabilities.join(", "), pod.host_network))
        }
        Err(error) => Err(error.notes().iter().map(Note::to_string).collect::<Vec<_>>().join("\n")),
    };
    let text = |text: &str| text.to_owned();
    for pods in [Allowed::By(all_of_it()), Allowed::Unknown] {
        assert_eq!(told(DEVICE, pods.clone()), Ok((text("rdma/hca: 2"), String::new(), false)));
        assert_eq!(told(LOCK, pods.clone()), Ok((String::new(), text("IPC_LOCK"), false)));
        assert_eq!(told(NETWORK, pods), Ok((String::new(), String::new(), true)));
    }
    // Each of them is for itself.
    let but = |change: &dyn Fn(&mut PodRules)| {
        let mut rules = all_of_it();
        change(&mut rules);
        Allowed::By(rules)
    };
    let at = "`config.kubernetes.pod_config.spec.";
    for (spec, pods, place, refused) in [
        (
            DEVICE,
            but(&|rules| rules.resources.clear()),
            "containers[0].resources.limits[\"rdma/hca\"]`: ",
            "tasks of your tenant may not have the device rdma/hca: an administrator of fedqd can allow it with rdma/hca in \
             tasks.tenants[].podConfig.resources",
        ),
        (
            LOCK,
            but(&|rules| rules.capabilities.clear()),
            "containers[0].securityContext.capabilities.add[0]`: ",
            "tasks of your tenant may not have the capability IPC_LOCK: an administrator of fedqd can allow it with IPC_LOCK in \
             tasks.tenants[].podConfig.capabilities, where the clusters' Pod Security has the tenant's namespace as privileged",
        ),
        (
            NETWORK,
            but(&|rules| rules.host_network = false),
            "hostNetwork`: ",
            "tasks of your tenant may not have the network of their node: an administrator of fedqd can allow it with true in \
             tasks.tenants[].podConfig.hostNetwork, where the clusters' Pod Security has the tenant's namespace as privileged",
        ),
    ] {
        let told = told(spec, pods).expect_err("refused");
        assert!(told.starts_with("line 5, column "), "{told}");
        assert!(told.ends_with(&format!("{at}{place}{refused}")), "{told}");
    }
}

#[test]
fn what_of_a_pod_nobody_may_set_is_refused_and_not_dropped() {
    for (spec, at) in [
        ("{serviceAccountName: admin}", "serviceAccountName"),
        ("{hostPID: true}", "hostPID"),
        ("{hostIPC: true}", "hostIPC"),
        ("{securityContext: {runAsUser: 0}}", "securityContext"),
        ("{initContainers: [{image: x}]}", "initContainers"),
        ("{hostNetwork: perhaps}", "hostNetwork"),
        ("{hostNetwork: true, dnsPolicy: Default}", "dnsPolicy"),
        ("{dnsPolicy: ClusterFirstWithHostNet}", "dnsPolicy"),
        ("{volumes: [{name: v, hostPath: {path: /}}]}", "volumes[0]"),
        ("{volumes: [{name: v, emptyDir: {}}]}", "volumes[0]"),
        ("{containers: x}", "containers"),
        ("{containers: [{}, {}]}", "containers[1]"),
        ("{containers: [{image: x}]}", "containers[0].image"),
        ("{containers: [{volumeMounts: [{name: v, mountPath: /etc}]}]}", "containers[0].volumeMounts[0]"),
        ("{containers: [{securityContext: {privileged: true}}]}", "containers[0].securityContext.privileged"),
        (
            "{containers: [{securityContext: {capabilities: {add: [SYS_ADMIN]}}}]}",
            "containers[0].securityContext.capabilities.add[0]",
        ),
        (
            "{containers: [{securityContext: {capabilities: {drop: [ALL]}}}]}",
            "containers[0].securityContext.capabilities.drop",
        ),
        ("{containers: [{resources: {claims: [a]}}]}", "containers[0].resources.claims"),
        ("{containers: [{resources: {limits: {cpu: 1}}}]}", "containers[0].resources.limits.cpu"),
        (
            "{containers: [{resources: {limits: {nvidia.com/gpu: 1}}}]}",
            "containers[0].resources.limits[\"nvidia.com/gpu\"]",
        ),
        (
            "{containers: [{resources: {limits: {rdma/hca: 0}}}]}",
            "containers[0].resources.limits[\"rdma/hca\"]",
        ),
        (
            "{containers: [{resources: {limits: {rdma/hca: 1.5}}}]}",
            "containers[0].resources.limits[\"rdma/hca\"]",
        ),
        (
            "{containers: [{resources: {limits: {rdma/other: 1}}}]}",
            "containers[0].resources.limits[\"rdma/other\"]",
        ),
        (
            "{containers: [{resources: {limits: {rdma/hca: 1}, requests: {rdma/hca: 2}}}]}",
            "containers[0].resources.requests[\"rdma/hca\"]",
        ),
    ] {
        let error = with_pod(spec, Allowed::By(all_of_it())).expect_err(spec);
        let notes = error.notes();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert_eq!(notes[0].path, format!("config.kubernetes.pod_config.spec.{at}"), "{notes:?}");
        assert!(notes[0].place.is_some(), "{notes:?}");
    }
}

#[test]
fn what_tasks_have_anyway_may_be_written() {
    let file = with_pod(
        "{hostNetwork: false, dnsPolicy: ClusterFirst, volumes: [{name: dshm, emptyDir: {medium: Memory, sizeLimit: 9Gi}}], \
         containers: [{name: ray-node, volumeMounts: [{name: dshm, mountPath: /dev/shm}], \
         resources: {limits: {rdma/hca: 1}, requests: {rdma/hca: 1}}, \
         securityContext: {capabilities: {add: [CAP_IPC_LOCK]}}}]}",
        Allowed::By(all_of_it()),
    );
    let file = file.expect("valid");
    let pod = &file.tasks[0].spec.pod;
    assert_eq!(
        (pod.devices.len(), pod.capabilities.contains("IPC_LOCK"), pod.host_network),
        (1, true, false)
    );
    let warned: Vec<_> = file.warnings.iter().map(|note| note.path.as_str()).collect();
    let at = |field: &str| format!("config.kubernetes.pod_config.spec.{field}");
    let expected = ["volumes[0]", "containers[0].name", "containers[0].volumeMounts[0]"].map(at);
    assert_eq!(warned.len(), 3, "{warned:?}");
    assert!(expected.iter().all(|path| warned.contains(&path.as_str())), "{warned:?}");
}

#[test]
fn recovery_is_read() {
    let task = task(
        "run: x\nresources:\n  job_recovery: {strategy: eager_next_region, max_restarts_on_errors: 3, \
         recover_on_exit_codes: [137, 29, 29]}\n",
    );
    assert_eq!(task.recovery.strategy, Recover::NextCluster);
    assert_eq!((task.recovery.max_restarts, task.recovery.always_on.as_slice()), (3, [29, 137].as_slice()));
    for text in [
        "SOMETHING",
        "{max_restarts_on_errors: -1}",
        "{recover_on_exit_codes: [0]}",
        "{recover_on_exit_codes: 256}",
    ] {
        problem(&format!("run: x\nresources: {{job_recovery: {text}}}\n"));
    }
}

#[test]
fn a_git_workdir_is_cloned() {
    let task = task("run: x\nworkdir: {url: https://example.com/a.git, ref: v1}\n");
    let git = Workdir::Git { url: "https://example.com/a.git".to_owned(), reference: Some("v1".to_owned()) };
    assert_eq!(task.workdir, Some(git));
    for text in [
        "{ref: v1}",
        "{url: --upload-pack=x}",
        "{url: /etc}",
        "{url: 'https://a/b', ref: --x}",
        "{url: 'ext::sh'}",
    ] {
        problem(&format!("run: x\nworkdir: {text}\n"));
    }
}

#[test]
fn bad_numbers_of_nodes_and_bad_names_are_refused() {
    assert!(problem("run: x\nnum_nodes: 0").contains(&format!("1 to {MAX_NODES} nodes, not 0")));
    for text in ["10000", "-1", "1.5", "many", "[1]", "99999999999999999999"] {
        problem(&format!("run: x\nnum_nodes: {text}\n"));
    }
    for name in ["''", "'   '", "\"a\\tb\"", "\"a\\e[0m\"", &"x".repeat(201), "[a]"] {
        problem(&format!("run: x\nname: {name}\n"));
    }
    for name in ["a@b", "with spaces", &"x".repeat(200), "ünïcode"] {
        assert_eq!(task(&format!("run: x\nname: {name}\n")).name.as_deref(), Some(name));
    }
}

#[test]
fn run_is_needed_and_may_be_empty() {
    assert!(problem("name: a\nsetup: x").contains("there is no `run`"));
    assert_eq!(task("run: ''").run, "");
    assert_eq!(task("run:").run, "");
    assert_eq!(read(""), Err(TaskFileError::Empty));
    assert!(problem("just a text").contains("a map of a task's fields"));
    assert!(problem("- run: x").contains("not a list"));
    assert!(problem(&format!("run: {}", "x".repeat(130_000))).contains("Linux starts no script"));
    assert!(problem(&format!("run: x\nenvs: {{A: {}}}", "x".repeat(140_000))).contains("too large"));
    problem("run: x\nenvs: {'a b': 1}");
    problem("run: x\nenvs: {1A: 1}");
}

#[test]
fn several_documents_are_a_pipeline() {
    let file = read("name: pipe\n---\nname: a\nrun: x\n---\nname: b\nrun: y\n---\n").expect("a pipeline");
    assert_eq!(file.name.as_deref(), Some("pipe"));
    assert_eq!(
        file.tasks.iter().filter_map(|task| task.spec.name.as_deref()).collect::<Vec<_>>(),
        ["a", "b"]
    );
    let bare = read("name: a\nrun: x\n---\nname: b\nrun: y\n").expect("a pipeline");
    assert_eq!((bare.name, bare.tasks.len()), (None, 2));
    assert!(
        problem("name: a\nrun: x\n---\nname: a\nrun: y\n").contains("two tasks of the file are called `a`")
    );
    assert!(problem("name: a\nrun: x\n---\nname: b\n").contains("`tasks[1]`: there is no `run`"));
    assert!(problem("name: g\nexecution: parallel\n---\nrun: x\n").contains("side by side"));
    let many = vec!["run: x\n"; MAX_TASKS + 1].join("---\n");
    assert!(problem(&many).contains("at most 100 tasks"));
}

#[test]
fn requests_are_read_from_json() {
    let body = br#"{"name": "a", "num_nodes": 2, "run": "x", "resources": {"cpus": "2", "accelerators": "1"}, "envs": null}"#;
    let file = read_request(body, &Options::default()).expect("a request");
    assert_eq!(file.tasks[0].spec.num_nodes, 2);
    assert_eq!(file.tasks[0].spec.candidates[0].accelerator.as_ref().map(|a| a.count), Some(1));
    let error = read_request(br#"{"name": "a"}"#, &Options::default()).expect_err("no run");
    assert_eq!(error.notes()[0].path, "");
}

#[test]
fn notes_have_an_end() {
    let lines: Vec<_> = (0..5000).map(|n| format!("unknown{n}: 1\n")).collect();
    let text = format!("run: x\n{}", lines.concat());
    assert_eq!(problems(&text).len(), 100);
}

const WORDS: [&str; 34] = [
    "name",
    "num_nodes",
    "setup",
    "run",
    "workdir",
    "envs",
    "secrets",
    "file_mounts",
    "volumes",
    "resources",
    "infra",
    "accelerators",
    "cpus",
    "memory",
    "any_of",
    "ordered",
    "labels",
    "image_id",
    "job_recovery",
    "config",
    "kubernetes",
    "kueue",
    "pod_config",
    "spec",
    "tolerations",
    "url",
    "/a",
    "H100:8",
    "4+",
    "k8s/one",
    "~",
    "-1",
    "'x'",
    "${A}",
];

fn tree() -> impl Strategy<Value = String> {
    let word = proptest::sample::select(WORDS.to_vec()).prop_map(str::to_owned);
    word.clone().prop_recursive(4, 48, 5, move |inner| {
        let entry = (proptest::sample::select(WORDS.to_vec()), inner.clone());
        prop_oneof![
            proptest::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
            proptest::collection::vec(entry, 0..5).prop_map(|entries| {
                let entries: Vec<_> =
                    entries.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
                format!("{{{}}}", entries.join(", "))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(read_file(&bytes, &Options::default()));
        drop(read_request(&bytes, &Options::default()));
    }

    /// Whatever stands where, the answer is a task that can be run, or why not.
    #[test]
    fn no_tree_of_known_words_panics(entries in proptest::collection::vec((0..WORDS.len(), tree()), 1..8)) {
        let lines = entries.iter().map(|(index, tree)| format!("\"{}\": {tree}\n", WORDS[*index]));
        let text = format!("run: x\n{}", lines.collect::<Vec<_>>().concat());
        match read(&text) {
            Ok(file) => for task in file.tasks {
                prop_assert!((1..=MAX_NODES).contains(&task.spec.num_nodes));
                prop_assert!(!task.spec.candidates.is_empty());
                let kept = serde_json::to_string(&task.spec).expect("JSON");
                prop_assert_eq!(serde_json::from_str::<TaskSpec>(&kept).expect("JSON"), task.spec);
            },
            Err(error) => prop_assert!(!error.notes().is_empty()),
        }
    }
}

fn archive(number: u8, file: bool) -> Archive {
    Archive { digest: Digest::of([number; 32]), bytes: 7, file }
}

fn read_with(text: &str, uploads: &[(&str, Archive)]) -> Result<TaskFile, TaskFileError> {
    let uploads = uploads.iter().map(|(source, archive)| ((*source).to_owned(), archive.clone())).collect();
    read_file(text.as_bytes(), &Options { uploads, ..Options::default() })
}

#[test]
fn what_a_file_names_of_the_machine_it_is_on_is_known_before_it_is_read() {
    let found = |text: &str| sources(text.as_bytes(), &Options::default());
    let text = "run: x\nworkdir: .\nenvs: {V: data}\nfile_mounts: {/a: ./b, ~/c: ~/d, /e: /abs, /f: $V/g, /again: ./b}\n";
    assert_eq!(found(text), [".", "./b", "~/d", "/abs", "data/g"]);
    for none in
        ["workdir: /w", "workdir: {url: 'https://a/b.git'}", "file_mounts: {/a: 's3://b'}", "name: a", "["]
    {
        assert!(found(&format!("run: x\n{none}\n")).is_empty(), "{none}");
    }
    assert_eq!(found("name: p\n---\nname: a\nworkdir: x\nrun: x\n---\nname: b\nworkdir: x\nrun: x\n"), ["x"]);
    assert_eq!(
        found("workdir: code\nnum_nodes: none\n"),
        ["code"],
        "what is wrong with it is told when it is read"
    );
}

#[test]
fn what_was_sent_with_a_file_takes_its_place_in_the_pods() {
    let text = "run: x\nworkdir: ./code\nenvs: {V: keys}\nfile_mounts: {/data: ~/d, ~/.$V: ./k}\n";
    let sent = [("./code", archive(1, false)), ("~/d", archive(2, false)), ("./k", archive(3, true))];
    let file = read_with(text, &sent).expect("a task");
    assert!(file.warnings.is_empty(), "{:?}", file.warnings);
    let spec = &file.tasks[0].spec;
    assert_eq!(spec.workdir, Some(Workdir::Folder(WORKDIR.to_owned())));
    let places = [(WORKDIR, 1, false), ("/data", 2, false), ("~/.keys", 3, true)];
    let expected =
        places.map(|(path, number, file)| Upload { path: path.to_owned(), archive: archive(number, file) });
    assert_eq!(spec.uploads, expected);
    let kept = serde_json::to_string(spec).expect("JSON");
    assert_eq!(serde_json::from_str::<TaskSpec>(&kept).expect("a task"), *spec);
}

#[test]
fn what_cannot_be_put_in_place_is_refused_and_what_is_needless_is_told() {
    let sent = [("a", archive(1, false)), ("b", archive(2, true))];
    for (text, told) in [
        ("workdir: b", "`workdir`: is a file"),
        ("file_mounts: {data: a}", "an absolute path or in the home"),
        ("file_mounts: {/x/../y: a}", "without `..`"),
        ("file_mounts: {/: a}", "an absolute path or in the home"),
        ("file_mounts: {~other/x: a}", "an absolute path or in the home"),
        ("file_mounts: {/x/: b}", "`b` is a file and needs a name there"),
        ("file_mounts: {'~': b}", "`b` is a file and needs a name there"),
        ("envs: {V: x}\nfile_mounts: {/x: a, /$V: b}", "two of them would be put at `/x`"),
    ] {
        let error = read_with(&format!("run: x\n{text}\n"), &sent).expect_err(text);
        assert!(error.notes().iter().any(|note| note.to_string().contains(told)), "{text}: {error}");
    }
    let many: Vec<String> = (0..=32).map(|number| format!("/{number}: a")).collect();
    let error =
        read_with(&format!("run: x\nfile_mounts: {{{}}}\n", many.join(", ")), &sent).expect_err("too many");
    assert!(error.to_string().contains("at most 32 files and folders"), "{error}");
    let long: Vec<String> = (0..5).map(|number| format!("/{number}{}: a", "l".repeat(1000))).collect();
    let error =
        read_with(&format!("run: x\nfile_mounts: {{{}}}\n", long.join(", ")), &sent).expect_err("too long");
    assert!(error.to_string().contains("more than 4096 bytes together"), "{error}");
    let file = read_with("run: x\nworkdir: a\n", &sent).expect("a task");
    let told: Vec<String> = file.warnings.iter().map(Note::to_string).collect();
    assert_eq!(told, ["line 1, column 1: `b` was sent with the file, which does not name it"]);
}
