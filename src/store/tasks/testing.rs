//! Rows of tasks for tests.

use super::*;
use fedq_domain::task::sky::{self, Options};

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("in range")
}

pub fn row(number: u64, owner: &str) -> TaskRow {
    let text = "name: train\nrun: x\nenvs: {A: 1}\nsecrets: {TOKEN: hush}\nresources: {cpus: 4+, accelerators: H100:8}\n";
    let file = sky::read_file(text.as_bytes(), &Options::default()).expect("a task");
    TaskRow {
        id: TaskId::draw(number),
        owner: owner.to_owned(),
        namespace: "team".to_owned(),
        queue: Some("default".to_owned()),
        cluster: Some(ClusterName::new("one").expect("a name")),
        submitted: at(0),
        spec: file.tasks[0].spec.clone(),
        state: State::default(),
        dispatch: None,
        restarts: 0,
        nodes: None,
        changed: at(0),
        stage: None,
    }
}
