//! Tasks of the past, as a database has them after months.

use fedq_base::clock::Clock;
use fedq_domain::task::{
    event::Event,
    names::TaskId,
    phase::{self, Move},
    sky::{self, Options},
};
use fedq_store::{Store, TaskMove, TaskRow};
use futures::{StreamExt, stream};

pub const TASK: &str = "name: train\nnum_nodes: 4\nresources: {accelerators: H100:8, cpus: 8+, memory: 64GB}\n\
                        envs: {EPOCHS: 10, LR: 0.1}\nsetup: pip install -r requirements.txt\nrun: python train.py\n";

/// So many, one half of them ann's and the other bob's, each with a script of so many bytes more.
pub async fn history(store: &Store, count: u64, script: usize) {
    let file = TASK.replace("python train.py", &format!("python train.py {}", "x".repeat(script)));
    let spec = sky::read_file(file.as_bytes(), &Options::default()).unwrap().tasks.remove(0).spec;
    let now = Clock::system().now();
    let one = async |number: u64| {
        let owner = if number.is_multiple_of(2) { "ann" } else { "bob" };
        let row = TaskRow {
            // Apart from the ids that are drawn.
            id: TaskId::draw(number),
            owner: owner.to_owned(),
            namespace: "default".to_owned(),
            queue: Some("main".to_owned()),
            cluster: None,
            submitted: now,
            spec: spec.clone(),
            state: phase::State::default(),
            dispatch: None,
            restarts: 0,
            nodes: None,
            changed: now,
            stage: None,
        };
        store.insert_task(&row).await.unwrap();
        let to = row.state.clone().next(Move::Stop).unwrap();
        let event = Event::of(&Move::Stop, &to, now, None);
        let step =
            TaskMove { id: row.id, from: row.state, to, dispatch: None, restarts: 0, nodes: None, event };
        store.move_task(&step).await.unwrap();
    };
    stream::iter(0..count).for_each_concurrent(256, one).await;
}
