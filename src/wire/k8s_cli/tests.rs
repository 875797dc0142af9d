use super::*;
use fedq_domain::task::{
    phase::{Move, Phase, State, Then},
    record::NodeCounts,
    sky::{Options, read_request},
};
use fedq_values::ids::ClusterName;

fn id() -> TaskId {
    TaskId::parse("abc12345").expect("an id")
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).expect("a time")
}

fn after(moves: &[Move]) -> State {
    moves.iter().fold(State::default(), |state, step| state.next(step.clone()).expect("legal"))
}

fn dispatch() -> Move {
    Move::Dispatch(ClusterName::new("one").expect("a name"))
}

fn record(state: State) -> Record {
    Record {
        id: id(),
        name: Some("my-task".to_owned()),
        owner: "user@example.com".to_owned(),
        submitted: at(1_759_667_696_789_012),
        num_nodes: 2,
        namespace: "default".to_owned(),
        queue: None,
        cluster: state.phase.cluster().cloned(),
        state,
        gang: None,
        workload: None,
        nodes: NodeCounts::default(),
        pending_reason: None,
    }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("JSON")
}

#[test]
fn texts_are_k8s_cli_s() {
    for (found, expected) in [
        (text(&Health::default()), r#"{"status":"ok","service":"k8s-cli-api"}"#),
        (
            text(&TaskSubmitResponse::new(&id(), &[])),
            r#"{"task_id":"abc12345","status":"submitted","message":"Task submitted successfully with ID: abc12345"}"#,
        ),
        (
            text(&TaskStopResponse::new(&id())),
            r#"{"task_id":"abc12345","status":"stopped","message":"Task abc12345 stopped successfully"}"#,
        ),
        (
            text(&TaskStopAllResponse::new(5, false)),
            r#"{"count":5,"status":"stopped","message":"Stopped 5 tasks"}"#,
        ),
        (
            text(&TaskStopAllResponse::new(5, true)),
            r#"{"count":5,"status":"stopped","message":"Stopped 5 tasks for all users"}"#,
        ),
        (
            text(&VolumeResponse::created(&id())),
            r#"{"volume_id":"abc12345","status":"created","message":"Volume created successfully with ID: abc12345"}"#,
        ),
        (
            text(&VolumeResponse::deleted(&id())),
            r#"{"volume_id":"abc12345","status":"deleted","message":"Volume abc12345 deleted successfully"}"#,
        ),
        (text(&Detail::no_task("x/y")), r#"{"detail":"Task x/y not found"}"#),
        (text(&Detail::no_volume("x")), r#"{"detail":"Volume x not found"}"#),
        (text(&Detail::failed(Operation::SubmitTask, "why")), r#"{"detail":"Failed to submit task: why"}"#),
        (text(&Detail::failed(Operation::GetTask, "why")), r#"{"detail":"Failed to get task status: why"}"#),
        (text(&TaskListResponse::default()), r#"{"tasks":[]}"#),
        (text(&VolumeListResponse::default()), r#"{"volumes":[]}"#),
    ] {
        assert_eq!(found, expected);
    }
}

#[test]
fn a_task_s_status_has_the_shape_of_the_specification() {
    let mut task = record(after(&[dispatch(), Move::Written, Move::Admitted, Move::Started]));
    task.nodes.running = 2;
    let status = TaskStatus::of(&task, at(1_759_667_701_234_567)).expect("shown");
    let expected = json!({
        "task_id": "abc12345",
        "name": "my-task",
        "status": "running",
        "created_at": "2025-10-05T12:34:56.789012",
        "updated_at": "2025-10-05T12:35:01.234567",
        "username": "user-example.com",
        "metadata": {
            "job_name": "my-task-abc12345-node-0",
            "namespace": "default",
            "num_nodes": 2,
            "node_jobs": ["my-task-abc12345-node-0", "my-task-abc12345-node-1"],
            "succeeded_nodes": 0,
            "failed_nodes": 0,
            "running_nodes": 2,
            "pending_nodes": 0,
            "cluster": "one",
        },
    });
    assert_eq!(text(&status), text(&expected));
}

#[test]
fn what_fedq_adds_stands_in_the_metadata() {
    let mut task = record(after(&[dispatch(), Move::Written]));
    task.queue = Some("research".to_owned());
    task.gang = Some(Gang::Indexed);
    task.workload = Some("job-x".to_owned());
    task.pending_reason = Some("3 more GPUs are needed".to_owned());
    let metadata = TaskStatus::of(&task, at(0)).expect("shown").metadata;
    let added: Vec<_> = metadata.iter().skip(8).map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(
        added,
        [
            ("cluster", Some("one")),
            ("queue", Some("research")),
            ("workload", Some("job-x")),
            ("gang", Some("indexed")),
            ("pending_reason", Some("3 more GPUs are needed")),
        ]
    );
}

#[test]
fn an_unnamed_task_is_called_after_its_id() {
    let mut task = record(State::default());
    (task.name, task.num_nodes) = (None, 1);
    let status = TaskStatus::of(&task, at(0)).expect("shown");
    assert_eq!(status.name, "task-abc12345");
    assert_eq!(status.metadata["job_name"], "task-abc12345-abc12345");
    assert_eq!(status.metadata["node_jobs"], json!(["task-abc12345-abc12345"]));
}

#[test]
fn phases_have_four_words() {
    let word = |moves: &[Move], nodes: NodeCounts| {
        let task = Record { nodes, ..record(after(moves)) };
        TaskStatus::of(&task, at(0)).map(|status| status.status)
    };
    let none = NodeCounts::default();
    let running = [dispatch(), Move::Written, Move::Started];
    let with = |more: &[Move]| [running.as_slice(), more].concat();
    for (moves, nodes, expected) in [
        (vec![], none, "pending"),
        (vec![dispatch()], none, "pending"),
        (vec![dispatch(), Move::Written], none, "pending"),
        (vec![dispatch(), Move::Admitted], none, "pending"),
        (vec![dispatch(), Move::Admitted], NodeCounts { running: 1, ..none }, "running"),
        (with(&[]), NodeCounts { running: 2, ..none }, "running"),
        (with(&[]), NodeCounts { running: 1, failed: 1, succeeded: 0 }, "failed"),
        (with(&[Move::ClusterLost]), none, "running"),
        (with(&[Move::Evicted]), none, "pending"),
        (with(&[Move::Succeeded]), NodeCounts { succeeded: 2, ..none }, "completed"),
        (with(&[Move::ProgramFailed { restart: false }]), none, "failed"),
        (with(&[Move::ProgramFailed { restart: true }]), none, "pending"),
        (vec![Move::NeverFits], none, "failed"),
    ] {
        assert_eq!(word(&moves, nodes).as_deref(), Some(expected), "{moves:?}");
    }
}

#[test]
fn a_stopped_task_is_gone() {
    for moves in [
        vec![Move::Stop],
        vec![dispatch(), Move::Stop],
        vec![dispatch(), Move::Stop, Move::Withdrawn],
        vec![dispatch(), Move::ClusterLost, Move::Stop],
    ] {
        let task = record(after(&moves));
        assert_eq!(TaskStatus::of(&task, at(0)), None, "{moves:?}");
        assert!(TaskListResponse::of([&task], at(0)).tasks.is_empty());
    }
    let spilled = record(after(&[dispatch(), Move::Spill]));
    assert!(matches!(spilled.state.phase, Phase::Withdrawing { then: Then::Requeue, .. }));
    assert!(TaskStatus::of(&spilled, at(0)).is_some());
}

#[test]
fn a_missing_header_is_fastapi_s_422() {
    assert_eq!(
        text(&ValidationErrors::no_user()),
        r#"{"detail":[{"type":"missing","loc":["header","x-user"],"msg":"Field required","input":null}]}"#
    );
}

#[test]
fn what_is_wrong_with_a_task_is_told_by_place() {
    let told = |body: &str| {
        let error = read_request(body.as_bytes(), &Options::default()).expect_err("refused");
        let task = serde_json::from_str(body).expect("JSON");
        text(&ValidationErrors::of_task(&error.notes(), &task))
    };
    assert_eq!(
        told(r#"{"name": "a"}"#),
        r#"{"detail":[{"type":"missing","loc":["body","run"],"msg":"Field required","input":{"name":"a"}}]}"#
    );
    let nested =
        told(r#"{"run": "x", "resources": {"any_of": [{}, {"cpus": "x"}]}, "volumes": {"a.b[c": "v"}}"#);
    assert!(nested.contains(r#""loc":["body","resources","any_of",1,"cpus"]"#), "{nested}");
    assert!(nested.contains(r#""loc":["body","volumes","a.b[c"]"#), "{nested}");
    let secret = told(r#"{"run": "x", "num_nodes": 0, "secrets": {"A": "hush"}}"#);
    assert!(!secret.contains("hush") && secret.contains(r#""loc":["body","num_nodes"]"#), "{secret}");
    let secret = told(r#"{"name": "a", "secrets": {"A": "hush"}}"#);
    assert!(secret.contains(r#""input":{"name":"a"}"#), "{secret}");
    let secret = told(r#"{"run": "x", "secrets": {"A": ["hush"]}}"#);
    assert!(secret.contains(r#""loc":["body","secrets","A"]"#) && !secret.contains("hush"), "{secret}");
}

#[test]
fn a_volume_s_definition_is_read_with_its_defaults() {
    let volume: VolumeDefinition =
        serde_json::from_str(r#"{"name": "v", "size": "1Gi", "storage_class": null}"#).expect("a definition");
    assert_eq!((volume.storage_class, volume.access_modes), (None, None));
}
