//! `/api/v1/appwrappers`: who may hand in what.

use std::sync::Arc;

use fedq_domain::task::{
    choose::view::Access,
    fleet::{Fleet, Member},
    runtime::{Absence, Runtime},
    view::TaskViews,
};
use fedq_values::ids::ClusterName;
use serde_json::{Value, json};

use super::cli::{fedq, listening};
use super::server::{ANN, BOB, Served, VIEWER, served};

fn job(name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}],
        }}},
    })
}

fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"clusterIP": "None"}})
}

fn wrapper(templates: &[Value]) -> String {
    let components: Vec<Value> = templates.iter().map(|template| json!({"template": template})).collect();
    let wrapper = json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "train"},
        "spec": {"components": components},
    });
    wrapper.to_string()
}

/// With a hub that serves Jobs, Services and nodes.
async fn stage() -> Served {
    let served = served().await;
    let kinds = |group: &str, kinds: &[(&str, &str, bool)]| {
        let resources: Vec<Value> = kinds
            .iter()
            .map(|(name, kind, namespaced)| {
                json!({"name": name, "kind": kind, "namespaced": namespaced, "singularName": "", "verbs": ["create"]})
            })
            .collect();
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": resources})
    };
    let mut world = served.hub.world();
    world.put("/apis/batch/v1", kinds("batch/v1", &[("jobs/status", "Job", true), ("jobs", "Job", true)]));
    world.put("/api/v1", kinds("v1", &[("services", "Service", true), ("nodes", "Node", false)]));
    drop(world);
    served
}

async fn submit(served: &Served, token: &str, file: &str) -> (u16, Value) {
    served.call(token, "POST /appwrappers", json!({"file": file})).await
}

fn causes(problem: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes = problem["causes"].as_array().into_iter().flatten();
    causes.map(|cause| (text(&cause["field"]), text(&cause["message"]))).collect()
}

#[tokio::test]
async fn an_appwrapper_is_a_task_of_another_kind() {
    let served = stage().await;
    let (status, submitted) = submit(&served, ANN, &wrapper(&[job("a"), service()])).await;
    assert_eq!(status, 201, "{submitted}");
    let id = submitted["id"].as_str().unwrap();
    let (_, task) = served.call(ANN, &format!("GET /tasks/{id}"), Value::Null).await;
    assert_eq!((&task["kind"], &task["numNodes"]), (&json!("appWrapper"), &json!(1)), "{task}");
    assert_eq!(
        task["components"],
        json!([
            {
                "apiVersion": "batch/v1", "kind": "Job", "name": "a",
                "podSets": [{"path": "template.spec.template", "replicas": 1, "requests": {"cpu": "2"}}],
            },
            {"apiVersion": "v1", "kind": "Service", "name": "s"},
        ])
    );
    let (status, other) = served.call(ANN, "POST /tasks", json!({"file": "run: x\n"})).await;
    assert_eq!(status, 201, "{other}");
    for (query, kinds) in [
        ("", vec!["task", "appWrapper"]),
        ("?kind=appWrapper", vec!["appWrapper"]),
        ("?kind=task&over=false", vec!["task"]),
    ] {
        let (_, list) = served.call(ANN, &format!("GET /tasks{query}"), Value::Null).await;
        let found: Vec<&str> =
            list["items"].as_array().unwrap().iter().map(|task| task["kind"].as_str().unwrap()).collect();
        assert_eq!(found, kinds, "{query}");
    }
    let (status, _) = served.call(ANN, &format!("POST /tasks/{id}/stop"), json!({})).await;
    assert_eq!(status, 202);
    let row = served.store.task(&id.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(row.state.phase.word(), "stopped");
}

#[tokio::test]
async fn nobody_gets_what_they_may_not_create_themselves() {
    let served = stage().await;
    served.hub.world().denied.insert(("ann".to_owned(), "services".to_owned()));
    let mut holder = job("a");
    holder["spec"]["template"]["metadata"] = json!({"annotations": {}});
    holder["spec"]["extra"] = json!([service()]);
    let unknown = json!({"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": "m"}});
    let mut hidden = job("h");
    hidden["spec"]["extra"] = json!([unknown]);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let twisted = json!({"apiVersion": "../v1", "kind": "Secret", "metadata": {"name": "x"}});
    for (templates, status, field, reason) in [
        (
            vec![job("a"), service()],
            403,
            "spec.components[1].template",
            "you may not create services in namespace default of the hub",
        ),
        (vec![holder], 403, "spec.components[0].template.spec.extra[0]", "you may not create services"),
        (
            vec![job("a"), unknown.clone()],
            422,
            "spec.components[1].template",
            "the hub does not know MPIJob of kubeflow.org/v1",
        ),
        (vec![hidden], 422, "spec.components[0].template.spec.extra[0]", "does not know MPIJob"),
        (vec![job("a"), node], 422, "spec.components[1].template", "Node has no namespace"),
        (vec![job("a"), twisted], 422, "spec.components[1].template", "does not know Secret of ../v1"),
    ] {
        let (found, problem) = submit(&served, ANN, &wrapper(&templates)).await;
        assert_eq!(found, status, "{problem}");
        let told = causes(&problem);
        assert!(
            told.iter().any(|(at, message)| at == field && message.contains(reason)),
            "{field}: {reason}: {problem}"
        );
    }
    let kinds =
        |number: usize| json!({"apiVersion": "example.com/v1", "kind": format!("K{number}"), "metadata": {}});
    let many = json!({"apiVersion": "v1", "kind": "Service", "metadata": {}, "spec": (0..50).map(kinds).collect::<Vec<_>>()});
    let before = served.hub.world().requests.len();
    let (status, problem) = submit(&served, ANN, &wrapper(&[job("a"), many])).await;
    assert_eq!(status, 422, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("of 52 kinds"), "{problem}");
    assert!(served.hub.world().requests.len() <= before + 1, "the hub was not asked about them");
    let (status, problem) = submit(&served, VIEWER, &wrapper(&[job("a")])).await;
    assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{problem}");
    assert!(served.store.live_tasks().await.unwrap().is_empty(), "nothing was accepted");
}

#[tokio::test]
async fn bad_manifests_are_told_with_field_and_reason() {
    let served = stage().await;
    let mut elsewhere = job("a");
    elsewhere["metadata"]["namespace"] = json!("kube-system");
    let wrong_path = json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "spec": {"components": [{"podSets": [{"path": "spec.template"}], "template": job("a")}]},
    });
    let nested: Value = serde_json::from_str(&wrapper(&[job("a")])).unwrap();
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}});
    let many: Vec<Value> = (0..9).map(|number| job(&format!("j{number}"))).collect();
    for (file, field, reason) in [
        ("run: x\n".to_owned(), "apiVersion", "must be workload.codeflare.dev/v1beta2"),
        ("spec: [".to_owned(), "", "not YAML"),
        (wrapper(&[json!({"kind": "Job"})]), "spec.components[0].template", "failed to decode"),
        (wrapper(&[nested]), "spec.components[0].template", "Nested AppWrappers are forbidden"),
        (wrapper(&[elsewhere]), "spec.components[0].template.metadata.namespace", "other namespaces"),
        (wrapper(&[unknown]), "spec.components", "no podspecs"),
        (
            wrong_path.to_string(),
            "spec.components[0].podSets[0].path",
            "first element of the path must be 'template'",
        ),
        (wrapper(&many), "spec.components", "at most 8"),
    ] {
        let (status, problem) = submit(&served, ANN, &file).await;
        assert_eq!((status, &problem["code"]), (422, &json!("invalid")), "{problem}");
        let told = causes(&problem);
        assert!(
            told.iter().any(|(at, message)| at == field && message.contains(reason)),
            "{field}: {reason}: {problem}"
        );
    }
    let (status, problem) = submit(&served, BOB, &wrapper(&[job("a")])).await;
    assert_eq!(status, 422, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("names no queue"), "{problem}");
}

fn fleet(runtime: Runtime) -> TaskViews {
    let east = Member {
        access: Access::Ready,
        facts: Arc::default(),
        local_queues: Arc::default(),
        promised: Arc::default(),
        priorities: Arc::default(),
        has_jobsets: false,
        app_wrappers: runtime,
    };
    let name = ClusterName::new("east").unwrap();
    let route = (("default".to_owned(), "dispatched".to_owned()), [name.clone()].into());
    let by_multikueue = Arc::new([route].into());
    let clusters = [(name, east)].into();
    let fleet = Fleet { clusters, by_multikueue, hub_has_app_wrappers: Some(true), ..Fleet::default() };
    TaskViews { fleet: Arc::new(fleet), ..TaskViews::default() }
}

#[tokio::test]
async fn a_cluster_on_which_nothing_runs_them_says_so_and_what_to_apply() {
    let served = stage().await;
    for (runtime, reason) in [
        (Runtime::None(Absence::NoKind), "it does not know AppWrappers"),
        (Runtime::None(Absence::NoController), "nothing runs AppWrappers there"),
        (Runtime::None(Absence::Refused("no".to_owned())), "apply deploy/worker/rbac.yaml"),
        (Runtime::Fedq, "there is no queue main"),
    ] {
        let word = runtime.word();
        served.task_views.send_replace(Arc::new(fleet(runtime)));
        let (status, problem) = submit(&served, ANN, &wrapper(&[job("a")])).await;
        assert_eq!(status, 422, "{problem}");
        let told = causes(&problem);
        assert!(
            told.iter().any(|(at, message)| at == "east" && message.contains(reason)),
            "{reason}: {problem}"
        );
        let (_, cluster) = served.call(ANN, "GET /clusters/east", Value::Null).await;
        assert_eq!(cluster["appWrappers"].as_str(), word);
    }
    served.task_views.send_replace(Arc::new(fleet(Runtime::Unknown)));
    let (status, answer) = submit(&served, ANN, &wrapper(&[job("a")])).await;
    assert_eq!(status, 201, "it may turn out that something does: {answer}");
}

#[tokio::test]
async fn a_queue_of_multikueues_takes_them_where_all_its_clusters_run_them() {
    let served = stage().await;
    let without_kind = |mut views: TaskViews| {
        Arc::make_mut(&mut views.fleet).hub_has_app_wrappers = Some(false);
        views
    };
    for (views, status, says) in [
        (
            fleet(Runtime::None(Absence::NoController)),
            422,
            "may choose cluster east: nothing runs AppWrappers there",
        ),
        (without_kind(fleet(Runtime::Fedq)), 422, "the hub does not know AppWrappers"),
        (fleet(Runtime::Unknown), 201, ""),
    ] {
        served.task_views.send_replace(Arc::new(views));
        let asked = json!({"file": wrapper(&[job("a")]), "queue": "dispatched"});
        let (told, answer) = served.call(ANN, "POST /appwrappers", asked.clone()).await;
        assert_eq!(told, status, "{answer}");
        let detail = answer["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(says) && (says.is_empty() || detail.contains("--cluster")), "{detail}");
    }
}

fn said(output: &std::process::Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn manifests_are_wrapped_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("b.yaml"), format!("{}\n---\n{}\n", service(), job("b"))).unwrap();
    std::fs::write(path("a.json"), job("a").to_string()).unwrap();
    std::fs::write(path("notes.txt"), "not a manifest").unwrap();
    let (code, out, err) = said(&fedq(&["appwrapper", "wrap", "-f", &path("")]).output().unwrap());
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let made: Value = serde_saphyr::from_str(&out).unwrap();
    assert_eq!(made["kind"], "AppWrapper");
    let names: Vec<&str> = made["spec"]["components"]
        .as_array()
        .unwrap()
        .iter()
        .map(|component| component["template"]["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["a", "s", "b"], "in the order of the files' names");
    assert_eq!(made["spec"]["components"][2]["podSets"][0]["path"], "template.spec.template");

    let (code, _, err) = said(&fedq(&["aw", "wrap", "-f", &path("notes.txt")]).output().unwrap());
    assert_eq!(code, Some(1));
    assert!(err.contains("notes.txt, document 1") && err.contains("no manifest of an object"), "{err}");
    let empty = tempfile::tempdir().unwrap();
    let (code, _, err) =
        said(&fedq(&["aw", "wrap", "-f", &empty.path().display().to_string()]).output().unwrap());
    assert_eq!(code, Some(2));
    assert!(err.contains("ends in .yaml, .yml or .json"), "{err}");
}

#[test]
fn the_command_line_submits_lists_and_stops_them() {
    let listening = listening();
    let kinds = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "batch/v1",
        "resources": [{"name": "jobs", "kind": "Job", "namespaced": true, "singularName": "", "verbs": []}],
    });
    listening.served.hub.world().put("/apis/batch/v1", kinds);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.json").display().to_string();
    std::fs::write(&file, job("a").to_string()).unwrap();
    let (code, out, err) = said(&listening.run(&[
        "appwrapper",
        "wrap",
        "-f",
        &file,
        "--name",
        "train",
        "--submit",
        "-o",
        "name",
    ]));
    assert_eq!(code, Some(0), "{err}");
    let id = out.trim().strip_prefix("appwrapper/").unwrap().to_owned();
    let (code, out, err) = said(&listening.run(&["appwrapper", "status", &id]));
    assert_eq!(code, Some(0), "{err}");
    for word in ["train", "Job", "2 cpu", "Submitted"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    let (_, out, _) = said(&listening.run(&["appwrapper", "list", "-o", "wide"]));
    assert!(out.contains(&id) && out.contains("appwrapper"), "{out}");
    let (code, out, err) = said(&listening.run(&["appwrapper", "delete", &id]));
    assert_eq!((code, out.as_str()), (Some(0), format!("task {id} stopped\n").as_str()), "{err}");
    let (code, _, err) = said(&listening.run(&["appwrapper", "submit", &file]));
    assert_eq!(code, Some(1));
    assert!(err.contains("fedq appwrapper wrap makes an AppWrapper of other manifests"), "{err}");
}

#[tokio::test]
async fn an_appwrapper_runs_for_no_longer_than_is_asked_for() {
    let served = stage().await;
    let submit = async |time: &str| {
        let asked = json!({"file": wrapper(&[job("a")]), "maxDuration": time});
        served.call(ANN, "POST /appwrappers", asked).await
    };
    let (status, submitted) = submit("2h").await;
    assert_eq!(status, 201, "{submitted}");
    let path = format!("GET /tasks/{}", submitted["id"].as_str().unwrap());
    assert_eq!(served.call(ANN, &path, Value::Null).await.1["maxDuration"], "2h");
    for wrong in ["0", "-1h", "2 hours", ""] {
        let (status, problem) = submit(wrong).await;
        assert_eq!((status, causes(&problem)[0].0.as_str()), (422, "maxDuration"), "{wrong}: {problem}");
    }
}
