//! The controller itself, before a server that fails now and then.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::http::Method;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};

use super::server::{self, Asked};
use crate::{
    config::AppWrapperConfig,
    controller,
    metrics::Metrics,
    names::{APPWRAPPER_LABEL, FINALIZER},
};

const WRAPPERS: &str = "/apis/workload.codeflare.dev/v1beta2/appwrappers";
const WRAPPER: &str = "/apis/workload.codeflare.dev/v1beta2/namespaces/default/appwrappers/aw";
const JOB: &str = "/apis/batch/v1/namespaces/default/jobs/run";
const STATUS: &str = "/apis/workload.codeflare.dev/v1beta2/namespaces/default/appwrappers/aw/status";

/// An AppWrapper of one Job, deployed for two minutes: its pod should long be there.
fn wrapper(phase: &str) -> Value {
    #[expect(clippy::disallowed_methods, reason = "the controller reads the time itself")]
    let since = Timestamp::now() - SignedDuration::from_mins(2);
    let since = Timestamp::from_second(since.as_second()).expect("a time").to_string();
    let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "Resuming", "message": "", "lastTransitionTime": since});
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"namespace": "default", "name": "aw", "uid": "7", "resourceVersion": "1", "finalizers": [FINALIZER]},
        "spec": {"suspend": false, "components": [{"template": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "run"}}}]},
        "status": {
            "phase": phase,
            "resettingCount": 0,
            "conditions": [
                condition("QuotaReserved", "True"), condition("ResourcesDeployed", "True"),
                condition("PodsReady", "False"), condition("Unhealthy", "False"),
            ],
            "componentStatus": [{
                "name": "run", "kind": "Job", "apiVersion": "batch/v1",
                "podSets": [{"path": "template.spec.template", "replicas": 1}],
                "conditions": [condition("ResourcesDeployed", "True")],
            }],
        },
    })
}

fn job() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"namespace": "default", "name": "run", "labels": {APPWRAPPER_LABEL: "aw"}, "ownerReferences": [
            {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": "aw", "uid": "7", "controller": true},
        ]},
    })
}

fn pod() -> Value {
    json!({
        "metadata": {"namespace": "default", "name": "run-x", "labels": {APPWRAPPER_LABEL: "aw"}, "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "run", "uid": "8", "controller": true},
        ]},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    })
}

/// The first list of pods fails; the status that is written is sent.
fn answer(asked: &Asked, pod_lists: &AtomicUsize, written: &mpsc::UnboundedSender<Value>) -> (u16, Value) {
    match (asked.method.clone(), asked.path.as_str()) {
        (Method::GET, "/api/v1/pods") if pod_lists.fetch_add(1, Ordering::SeqCst) == 0 => {
            server::failure(500, "etcdserver: leader changed")
        }
        (Method::GET, "/api/v1/pods") => server::list(&[pod()]),
        (Method::GET, WRAPPERS) => server::list(&[wrapper("Running")]),
        (Method::GET, "/apis/batch/v1") => {
            let resource = json!({"name": "jobs", "singularName": "job", "namespaced": true, "kind": "Job", "verbs": ["get", "list", "watch"]});
            (200, json!({"kind": "APIResourceList", "groupVersion": "batch/v1", "resources": [resource]}))
        }
        (Method::GET, "/apis/batch/v1/jobs") => server::list(&[job()]),
        (Method::GET, JOB) => (200, job()),
        (Method::PATCH, STATUS) => {
            let mut stored = wrapper("Running");
            json_patch::merge(&mut stored, &asked.body);
            stored["metadata"]["resourceVersion"] = json!("2");
            _ = written.send(stored["status"].clone());
            (200, stored)
        }
        (Method::POST, _) => (201, asked.body.clone()),
        (_, path) => server::failure(404, path),
    }
}

fn run(client: Client) -> JoinHandle<()> {
    let config = AppWrapperConfig { autopilot: None, ..AppWrapperConfig::default() };
    tokio::spawn(controller::run(client, config, Metrics::default()))
}

#[tokio::test]
async fn a_workload_is_not_judged_before_its_pods_are_known() {
    let (tell, mut written) = mpsc::unbounded_channel();
    let pod_lists = Arc::new(AtomicUsize::new(0));
    let client = server::client(move |asked| (!asked.watches).then(|| answer(&asked, &pod_lists, &tell)));
    let controller = run(client);
    let status = written.recv().await.expect("a status");
    assert_eq!(status["phase"], "Running", "{status:#}");
    let ready = status["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == "PodsReady");
    assert_eq!(ready.map(|one| &one["status"]), Some(&json!("True")), "{status:#}");
    controller.abort();
}

#[tokio::test]
async fn nothing_is_deleted_for_a_version_that_the_server_has_no_more() {
    let (tell, mut asked_for) = mpsc::unbounded_channel();
    let client = server::client(move |asked| {
        if asked.watches {
            return None;
        }
        Some(match (asked.method.clone(), asked.path.as_str()) {
            (Method::GET, "/api/v1/pods") => server::list(&[pod()]),
            (Method::GET, WRAPPERS) => server::list(&[wrapper("Suspending")]),
            (Method::GET, WRAPPER) => {
                _ = tell.send("its version".to_owned());
                let mut newer = wrapper("Resuming");
                newer["metadata"]["resourceVersion"] = json!("2");
                (200, newer)
            }
            (Method::DELETE, path) => {
                _ = tell.send(format!("to delete {path}"));
                (200, job())
            }
            _ => answer(&asked, &AtomicUsize::new(1), &mpsc::unbounded_channel().0),
        })
    });
    let controller = run(client);
    for _ in 0..2 {
        assert_eq!(asked_for.recv().await.as_deref(), Some("its version"));
    }
    controller.abort();
}

/// <https://github.com/project-codeflare/appwrapper/issues/416>: what is followed does not have the Job yet, or no more.
#[tokio::test]
async fn a_component_is_missing_only_when_the_server_says_so() {
    for (there, phase) in [(true, "Running"), (false, "Failed")] {
        let (tell, mut written) = mpsc::unbounded_channel();
        let asked_for = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked_for);
        let client = server::client(move |asked| {
            noted.lock().expect("whole").push(format!("{} {} {}", asked.method, asked.path, asked.watches));
            if asked.watches {
                return None;
            }
            Some(match (asked.method.clone(), asked.path.as_str()) {
                (Method::GET, "/apis/batch/v1/jobs") => server::list(&[]),
                (Method::GET, JOB) if !there => server::failure(404, JOB),
                _ => answer(&asked, &AtomicUsize::new(1), &tell),
            })
        });
        let controller = run(client);
        let status = timeout(Duration::from_secs(20), written.recv()).await;
        let status = status.unwrap_or_else(|_| panic!("no status of it: {asked_for:#?}"));
        assert_eq!(status.expect("a status")["phase"], phase);
        controller.abort();
    }
}
