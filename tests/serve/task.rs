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
         task.yaml: a is valid: 2 nodes\n"
    );
}

#[test]
fn what_would_be_sent_is_looked_at_and_stays_here() {
    let (code, out, err) =
        validate("workdir: .\nfile_mounts: {/etc/task.yaml: task.yaml}\nrun: x\n", &["--strict"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert_eq!(out, "task.yaml: a task without a name is valid: 1 node\n");
    let (code, out, err) = validate("workdir: nowhere\nrun: x\n", &[]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("there is no `nowhere` here"), "{err}");
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
    // The environment of these tests has a TOKEN and no A.
    let (code, out, err) = validate(text, &["-e", "A=1", "--secret", "TOKEN"]);
    assert_eq!(code, Some(0), "{out}{err}");
    for (wrong, says) in [
        ("A", "the environment has no text A"),
        ("=1", "-e takes NAME=VALUE, or NAME"),
        ("hush-hush", "-e takes NAME=VALUE, or NAME"),
    ] {
        let (code, out, err) = validate(text, &["-e", wrong, "--secret", "TOKEN=-"]);
        assert_eq!(code, Some(2));
        assert!(err.contains(says) && !out.contains("hush") && !err.contains("hush"), "{wrong}: {err}");
    }
}

#[test]
fn variables_come_from_a_file_and_typed_ones_win() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("task.yaml"), "run: x\nenvs: {A: , B: }\nsecrets: {C: }\n").unwrap();
    fs::write(folder.path().join("vars"), "# comment\nexport A='1'\nB=2\n").unwrap();
    fs::write(folder.path().join("secrets"), "C=hush\n").unwrap();
    fs::write(folder.path().join("no-secrets"), "# lines\nc2VjcmV0hush/ret==\n").unwrap();
    let run = |file: &str| {
        let arguments = ["task", "validate", "task.yaml", "--env-file", file, "--secret-file", "secrets"];
        fedq(&arguments).current_dir(folder.path()).output().unwrap()
    };
    assert_eq!(run("vars").status.code(), Some(0));
    let missing = run("nowhere");
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("cannot read `nowhere`"), "{}", stderr(&missing));
    for (arguments, says) in [
        (&["--secret-file", "no-secrets"][..], "--secret-file takes lines of NAME=VALUE, and line 2 is none"),
        (
            &["--secret", "C=x", "--secret", "hf_hush"],
            "no variable of the name that --secret gives, the 2. of them",
        ),
        (
            &["--secret-file", "-", "--env-file", "-"],
            "only one of the task file, --env-file and --secret-file",
        ),
    ] {
        let arguments = [&["task", "validate", "task.yaml"], arguments].concat();
        let wrong = fedq(&arguments).current_dir(folder.path()).output().unwrap();
        let told = stderr(&wrong);
        assert_eq!(wrong.status.code(), Some(2), "{told}");
        assert!(told.contains(says) && !told.contains("hush"), "{told}");
    }
    let served = ["task", "validate", "task.yaml", "--env-file", "vars", "-e", "A=typed", "--secret", "C=x"];
    let typed = fedq(&served).current_dir(folder.path()).output().unwrap();
    assert_eq!(typed.status.code(), Some(0), "{}", stderr(&typed));
}

#[test]
fn a_file_may_come_by_stdin() {
    let mut child =
        fedq(&["task", "validate", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"name: piped\nrun: x\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(stdout(&output), "-: piped is valid: 1 node\n");
}

#[test]
fn a_folder_of_task_files_gets_a_verdict_each_and_a_sum() {
    let folder = TempDir::new().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("examples/a.yaml", "run: x\n");
    write("examples/llm/b.yml", "run: x\nworkdir: ./code\nresources: {disk_size: 10}\n");
    write("examples/llm/c.yaml", "run: x\nenvs: {HF_TOKEN: }\n");
    write("examples/llm/d.yaml", "run: x\nenvs: {HF_TOKEN: }\nresorces: {}\n");
    write("examples/llm/e.yaml", "run: [\n");
    write("examples/README.md", "no task\n");
    write("examples/.git/f.yaml", "no task\n");
    let validate = |arguments: &[&str]| {
        let arguments = [&["task", "validate"], arguments].concat();
        let output = fedq(&arguments).current_dir(folder.path()).output().unwrap();
        (output.status.code(), stdout(&output), stderr(&output))
    };
    let (code, out, err) = validate(&["examples", "examples/a.yaml"]);
    assert_eq!((code, err.as_str()), (Some(1), ""), "{out}");
    for line in [
        "examples/a.yaml: runs as it is\n",
        "examples/llm/b.yml:3:13: warning: `resources.disk_size`: has no effect",
        "examples/llm/b.yml: warning: there is no `./code` here to send with the task, seen from the current folder\n",
        "examples/llm/b.yml: runs with notes\n",
        "examples/llm/c.yaml:2:8: error: `envs.HF_TOKEN`: needs a value: give it with -e HF_TOKEN=VALUE\n",
        "examples/llm/c.yaml: needs values\n",
        "examples/llm/d.yaml: cannot run\n",
        "examples/llm/e.yaml: cannot run\n",
        "\nOf 5 files: 1 runs as it is, 1 runs with notes, 1 needs values, 2 cannot run\n",
    ] {
        assert!(out.contains(line), "no `{line}` in\n{out}");
    }
    let (code, out, _) = validate(&["examples", "-e", "HF_TOKEN=x", "-o", "json"]);
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, told["files"].as_array().unwrap().len()), (Some(1), 5));
    assert_eq!(
        told["sum"],
        serde_json::json!({"runs": 2, "runsWithNotes": 1, "needsValues": 0, "cannot": 2})
    );
    assert_eq!(told["files"][4]["verdict"], "cannot");
    let (code, out, _) = validate(&["examples/a.yaml", "examples/llm/b.yml", "-o", "name"]);
    assert_eq!((code, out.as_str()), (Some(0), "examples/a.yaml\nexamples/llm/b.yml\n"));
    fs::create_dir(folder.path().join("empty")).unwrap();
    let (code, _, err) = validate(&["empty"]);
    assert!(code == Some(2) && err.contains("there is no file here that ends in .yaml"), "{err}");
}

mod served {
    use std::{
        fs,
        process::Stdio,
        sync::{
            Arc, Mutex,
            atomic::{AtomicBool, Ordering},
        },
    };

    use axum::{
        Json, Router,
        extract::Request,
        http::{Method, StatusCode},
        middleware::{Next, from_fn},
        response::IntoResponse,
    };
    use fedq_domain::task::{phase::Move, spec::Priority};
    use tempfile::TempDir;
    use tokio::sync::Notify;

    use super::super::{
        cli::{Listening, listening, listening_behind, stderr, stdout},
        server::{GUEST, ROOT},
        tasks::{dispatch, moves},
    };

    /// The first word behind `task`.
    fn id(text: &str) -> String {
        text.split_whitespace().nth(1).unwrap().to_owned()
    }

    fn submit(api: &Listening, more: &[&str]) -> String {
        let output = api.run(&[&["task", "submit", "--detach"], more].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        id(&stdout(&output))
    }

    async fn step(api: &Listening, id: &str, steps: &[Move]) {
        moves(&api.served, id, steps).await;
    }

    #[test]
    fn a_task_is_submitted_listed_looked_at_and_stopped() {
        let api = listening();
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("task.yaml");
        fs::write(
            &file,
            "name: train\nnum_nodes: 2\nresources: {accelerators: A100:1, cloud: aws, disk_size: 9}\nenvs: {A: }\nrun: x\n",
        )
        .unwrap();
        let file = file.to_str().unwrap();
        let output = api.run(&[
            "task",
            "submit",
            "--detach",
            file,
            "-e",
            "A=1",
            "--gpus",
            "H100:8",
            "--num-nodes",
            "4",
            "--name",
            "big",
            "--infra",
            "k8s/east",
            "--cpus",
            "16+",
            "--memory",
            "64",
            "--no-use-spot",
            "--priority",
            "-3",
        ]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let id = id(&stdout(&output));
        assert_eq!(stdout(&output), format!("task {id} submitted\n"));
        let told = stderr(&output);
        assert!(
            told.contains("big waits in queue main of namespace default")
                && told.contains(&format!("fedq task stop {id}")),
            "{told}"
        );

        let spec = api.block_on(api.served.store.live_tasks()).unwrap().remove(0).spec;
        let form = &spec.candidates[0];
        assert_eq!(form.cluster.as_ref().map(ToString::to_string).as_deref(), Some("east"));
        assert!(form.cpu.is_some_and(|cpu| cpu.or_more) && form.memory.is_some(), "{form:?}");
        assert_eq!(spec.priority, Some(Priority::Value(-3)));

        let list = stdout(&api.run(&["task", "list", "--no-headers"]));
        let (row, _age) = list.trim_end().rsplit_once("   ").unwrap();
        assert_eq!(row, format!("{id}   big   pending   -   main   0/4   H100:8   ann"));
        assert_eq!(stdout(&api.run(&["task", "list", "-o", "name"])), format!("task/{id}\n"));

        api.block_on(step(&api, &id, &[dispatch(), Move::Written]));
        let status = stdout(&api.run(&["task", "status", &id]));
        assert!(
            status.contains("Cluster:     east\n")
                && status.contains("Why:         it waits for quota of main on east\n"),
            "{status}"
        );
        assert!(status.contains("queued") && status.contains("cluster east was chosen"), "{status}");
        assert!(
            status.contains(
                "\nwarning: line 3, column 47: `resources.disk_size`: has no effect: nodes have the disk"
            ),
            "what has no effect is there afterwards: {status}"
        );

        let stopping = api.run(&["task", "stop", &id, "--no-wait"]);
        assert_eq!((stopping.status.code(), stdout(&stopping)), (Some(0), format!("task {id} stops\n")));
        api.block_on(step(&api, &id, &[Move::Withdrawn]));
        let stopped = api.run(&["task", "stop", &id]);
        assert_eq!((stopped.status.code(), stdout(&stopped)), (Some(0), format!("task {id} stopped\n")));
        assert_eq!(stderr(&api.run(&["task", "list", "--skip-finished"])), "Nothing found.\n");
    }

    /// Counts what is sent, by method and the first part of the path, with the bytes of its body.
    fn counted(router: Router, sent: Arc<Mutex<Vec<(String, u64)>>>) -> Router {
        router.layer(from_fn(move |request: Request, next: Next| {
            let path =
                request.uri().path().trim_start_matches("/api/v1/").split('/').next().unwrap_or_default();
            let length = request
                .headers()
                .get("content-length")
                .map_or(0, |text| text.to_str().unwrap().parse().unwrap());
            sent.lock().unwrap().push((format!("{} {path}", request.method()), length));
            next.run(request)
        }))
    }

    #[test]
    fn a_task_brings_along_its_folder_which_is_sent_once() {
        let sent = Arc::<Mutex<Vec<(String, u64)>>>::default();
        let api = listening_behind(|router| counted(router, Arc::clone(&sent)));
        let folder = TempDir::new().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("code/train.py", "print(1)\n");
        write("code/.skyignore", "*.bin\n");
        write("code/data.bin", &"x".repeat(5 << 20));
        write("home/.key", "k");
        write(
            "task.yaml",
            "workdir: ./$WHERE\nenvs: {WHERE: }\nfile_mounts: {~/.key: ~/.key}\nrun: python train.py\n",
        );
        let run = |more: &[&str]| {
            let arguments =
                [&["task", "submit", "task.yaml", "-e", "WHERE=code", "-o", "name"], more].concat();
            let mut command = api.fedq(&arguments);
            let output =
                command.current_dir(folder.path()).env("HOME", folder.path().join("home")).output().unwrap();
            (output.status.code(), stderr(&output), std::mem::take(&mut *sent.lock().unwrap()))
        };
        let methods = |sent: &[(String, u64)]| sent.iter().map(|(line, _)| line.clone()).collect::<Vec<_>>();
        let question = ["GET uploads", "GET uploads", "POST tasks"];
        let (code, told, asked) = run(&["--dry-run"]);
        assert_eq!((code, methods(&asked)), (Some(0), question.map(str::to_owned).to_vec()), "{told}");
        let (code, told, asked) = run(&[]);
        let all = ["GET uploads", "PUT uploads", "GET uploads", "PUT uploads", "POST tasks"];
        assert_eq!((code, told.as_str()), (Some(0), ""), "nothing has no effect");
        assert_eq!(methods(&asked), all);
        let (code, told, asked) = run(&[]);
        assert_eq!((code, methods(&asked)), (Some(0), question.map(str::to_owned).to_vec()), "{told}");
        let bytes: u64 = asked.iter().map(|(_, bytes)| bytes).sum();
        assert!(bytes < 1000, "{asked:?}");
        let rows = api.block_on(api.served.store.live_tasks()).unwrap();
        let places = rows[0].spec.uploads.iter().map(|upload| (upload.path.as_str(), upload.archive.file));
        assert_eq!(places.collect::<Vec<_>>(), [("~/sky_workdir", false), ("~/.key", true)]);
        assert_eq!(rows[0].spec.uploads, rows[1].spec.uploads);

        write("code/train.py", "print(2)\n");
        let (code, told, asked) = run(&[]);
        let changed = ["GET uploads", "PUT uploads", "GET uploads", "POST tasks"];
        assert_eq!((code, methods(&asked)), (Some(0), changed.map(str::to_owned).to_vec()), "{told}");
    }

    #[test]
    fn what_cannot_be_brought_along_is_told_before_anything_is_submitted() {
        let api = listening();
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("code")).unwrap();
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_le_bytes()[7]
        };
        let large: Vec<u8> = (0..(3 << 19)).map(|_| noise()).collect();
        fs::write(folder.path().join("code/weights"), large).unwrap();
        std::os::unix::fs::symlink("/etc", folder.path().join("etc")).unwrap();
        for (text, parts) in [
            (
                "workdir: code",
                &[
                    "`code` has 1.5 MiB, and at most 1.0 MiB can be sent; largest: weights (1.5 MiB)",
                    ".skyignore",
                ][..],
            ),
            ("workdir: nowhere", &["there is no `nowhere` here", "absolute path"]),
            ("workdir: .", &["`.` cannot be sent", "etc", "link to `/etc`"]),
            ("file_mounts: {/a: ~other/x}", &["`~other/x` is in another one's home"]),
        ] {
            fs::write(folder.path().join("task.yaml"), format!("{text}\nrun: x\n")).unwrap();
            let output = api
                .fedq(&["task", "submit", "task.yaml", "--detach"])
                .current_dir(folder.path())
                .env("HOME", "/")
                .output()
                .unwrap();
            let told = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{told}");
            for part in parts {
                assert!(told.contains(part), "{part}: {told}");
            }
        }
        assert!(api.block_on(api.served.store.live_tasks()).unwrap().is_empty());
    }

    /// Tells of a hub that is away to the first who looks after something was asked for.
    fn away_once(router: Router, told: Arc<Notify>) -> Router {
        let asked = Arc::new(AtomicBool::new(false));
        router.layer(from_fn(move |request: Request, next: Next| {
            let (asked, told) = (Arc::clone(&asked), Arc::clone(&told));
            async move {
                if request.method() == Method::POST {
                    let answer = next.run(request).await;
                    asked.store(answer.status() == StatusCode::ACCEPTED, Ordering::Relaxed);
                    return answer;
                }
                if asked.swap(false, Ordering::Relaxed) {
                    told.notify_one();
                    let problem = serde_json::json!({
                        "status": 503, "title": "Service Unavailable", "code": "hub-unreachable",
                        "detail": "the server is down",
                    });
                    let headers = [("content-type", "application/problem+json"), ("retry-after", "1")];
                    return (StatusCode::SERVICE_UNAVAILABLE, headers, Json(problem)).into_response();
                }
                next.run(request).await
            }
        }))
    }

    #[test]
    fn a_stop_waits_through_a_hub_that_is_away() {
        let told = Arc::new(Notify::new());
        let api = listening_behind(|router| away_once(router, Arc::clone(&told)));
        let id = submit(&api, &["--", "x"]);
        api.block_on(step(&api, &id, &[dispatch(), Move::Written]));
        let mut stop = api.fedq(&["task", "stop", &id]);
        let stop = stop.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        api.block_on(told.notified());
        api.block_on(step(&api, &id, &[Move::Withdrawn]));
        let stop = stop.wait_with_output().unwrap();
        let told = (stop.status.code(), stdout(&stop));
        assert_eq!(told, (Some(0), format!("task {id} stopped\n")), "{}", stderr(&stop));
    }

    #[test]
    fn tasks_one_after_the_other_are_looked_at_and_stopped_as_one() {
        let api = listening();
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("task.yaml");
        fs::write(&file, "name: train\n---\nname: fetch\nrun: a\n---\nname: learn\nrun: b\n").unwrap();
        let output = api.run(&["task", "submit", "--detach", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let first = id(&stdout(&output));
        let told = stderr(&output);
        assert!(
            told.contains(&format!("stage 1: fetch ({first})")) && told.contains("train waits in"),
            "{told}"
        );
        let status = stdout(&api.run(&["task", "status", &first]));
        let line = status.lines().find(|line| line.starts_with("2 of 2")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let second = words[3];
        assert_eq!(words[4..].join(" "), format!("learn pending - waits for stage 1 ({first})"), "{status}");
        assert!(status.contains(&format!("train ({first}), stage 1 of 2")), "{status}");
        api.block_on(step(&api, &first, &[dispatch(), Move::Succeeded]));
        let stopped = api.run(&["task", "stop", &first]);
        assert_eq!(stdout(&stopped), format!("task {first} succeeded\ntask {second} stopped\n"));
        assert!(stderr(&stopped).contains("had succeeded already"), "{}", stderr(&stopped));
    }

    #[test]
    fn the_log_of_the_run_before_is_asked_for_once() {
        let api = listening();
        let id = submit(&api, &["--", "x"]);
        for earlier in [&["--previous"][..], &["--epoch", "1"]] {
            let output = api.run(&[&["task", "logs", &id], earlier].concat());
            assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
            assert!(stderr(&output).contains("tasks.logs.keep"), "{}", stderr(&output));
        }
        let asked = api.served.hub.world().requests.len();
        assert!(asked < 50, "it asked again and again");
    }

    #[test]
    fn a_command_needs_no_file() {
        let api = listening();
        let id = submit(&api, &["--image", "img", "--", "python", "train.py", "--name", "two words"]);
        let yaml = stdout(&api.run(&["task", "status", &id, "-o", "yaml"]));
        assert!(
            yaml.contains("run: \"python train.py --name 'two words'\"")
                || yaml.contains("run: python train.py --name 'two words'"),
            "{yaml}"
        );
        assert!(yaml.contains("image: img"), "{yaml}");
        let both = api.run(&["task", "submit", "a.yaml", "--", "x"]);
        assert_eq!(both.status.code(), Some(2));
        assert_eq!(api.run(&["task", "submit"]).status.code(), Some(2));
    }

    #[test]
    fn a_dry_run_submits_nothing() {
        let api = listening();
        let output = api.run(&["task", "submit", "--dry-run", "--", "true"]);
        assert_eq!(output.status.code(), Some(0));
        assert!(stderr(&output).contains("nothing was submitted"), "{}", stderr(&output));
        assert_eq!(stderr(&api.run(&["task", "list"])), "Nothing found.\n");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let api = listening();
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("task.yaml");
        fs::write(&file, "run: x\nresorces: {}\n").unwrap();
        let output = api.run(&["task", "submit", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            stderr(&output).contains(
                "resorces: line 2, column 1: there is no field `resorces` here; did you mean `resources`?"
            ),
            "{}",
            stderr(&output)
        );
        let missing = api.run(&["task", "status", "00000000"]);
        assert_eq!(missing.status.code(), Some(1));
        assert_eq!(
            stderr(&missing),
            "error: there is no task `00000000`\nnext: fedq task list shows yours\n"
        );
        let guest = api.fedq(&["task", "list"]).env("FEDQ_TOKEN", GUEST).output().unwrap();
        assert!(stderr(&guest).contains("belong to no tenant"), "{}", stderr(&guest));
    }

    #[test]
    fn all_of_ones_own_are_stopped_at_once() {
        let api = listening();
        let ids = [submit(&api, &["--", "one"]), submit(&api, &["--", "two"])];
        let refused = api.run(&["task", "stop", "--all", "--all-users"]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(stderr(&refused).contains("fedq-task-admin"), "{}", stderr(&refused));
        let stopped = stdout(&api.run(&["task", "stop", "--all"]));
        assert_eq!(stopped, format!("task {} stopped\ntask {} stopped\n", ids[1], ids[0]));
        assert_eq!(stderr(&api.run(&["task", "stop", "--all"])), "No task was there to stop.\n");
        let others = api
            .fedq(&["task", "list", "--all-users", "-o", "name"])
            .env("FEDQ_TOKEN", ROOT)
            .output()
            .unwrap();
        assert_eq!(stdout(&others).lines().count(), 2);
    }

    #[test]
    fn secrets_come_from_the_environment() {
        let api = listening();
        let arguments = ["task", "submit", "--secret", "TOKEN=-", "-o", "json", "--", "true"];
        let output = api.fedq(&arguments).env("TOKEN", "hush").output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(!stdout(&output).contains("hush") && !stderr(&output).contains("hush"));
        let world = api.served.hub.world();
        let secret = world.objects.iter().find(|(path, _)| path.contains("/secrets/fedq-task-")).unwrap().1;
        assert_eq!(secret["data"]["TOKEN"], "aHVzaA==");
    }

    #[test]
    fn volumes_are_made_listed_and_deleted() {
        let api = listening();
        let made =
            stdout(&api.run(&["volume", "create", "data", "10Gi", "-a", "ReadWriteMany", "--no-headers"]));
        assert!(made.starts_with("data   ") && made.contains("   Pending   10Gi   -   ann   "), "{made}");
        let task = submit(&api, &["--", "x"]);
        let wide = stdout(&api.run(&["volume", "list", "-o", "wide"]));
        assert!(wide.contains("ReadWriteMany") && wide.contains("default/data-"), "{wide}");
        let shown = api.run(&["volume", "show", "data", "-o", "json"]);
        let volume: serde_json::Value = serde_json::from_str(&stdout(&shown)).unwrap();
        assert_eq!(
            (&volume["name"], &volume["usedBy"]),
            (&"data".into(), &serde_json::Value::Null),
            "{task}"
        );
        let deleted = stdout(&api.run(&["volume", "delete", "data", "--force"]));
        assert_eq!(deleted, format!("volume data ({}) is being deleted\n", volume["id"].as_str().unwrap()));
        let bad = api.run(&["volume", "create", "Data", "10Gi"]);
        assert_eq!(bad.status.code(), Some(1));
        assert!(stderr(&bad).contains("lower-case letters"), "{}", stderr(&bad));
    }
}
