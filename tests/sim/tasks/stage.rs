//! A hub and workers that tasks are run on.

use std::time::{Duration, Instant};

use fedq::clock::Clock;
use fedq::domain::task::names::TaskId;
use fedq::domain::task::phase::State;
use fedq::domain::task::sky::{self, Options};
use fedq::sim::cluster::Cluster;
use fedq::store::{Store, TaskRow};
use serde_json::Value;
use sqlx::Connection as _;
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use super::super::bed::{Bed, WITHIN};

const QUICK: &str = "quota: {mergeWindow: 50ms}\n";

pub struct Stage {
    pub bed: Bed,
    submitted: u64,
}

impl Stage {
    /// Workers with so many GPUs of quota each, of 16 that they have.
    pub async fn set(workers: &[(&str, u32)], more: &str) -> Self {
        let names: Vec<&str> = workers.iter().map(|(name, _)| *name).collect();
        let mut bed = Bed::without_daemon(&names).await;
        bed.configure(&format!("{QUICK}{more}"));
        bed.start_daemon();
        for (worker, (_, gpus)) in bed.workers.iter().zip(workers) {
            bed.join(worker).await;
            bed.assign(worker, &gpus.to_string()).await;
        }
        for (worker, (_, gpus)) in bed.workers.iter().zip(workers) {
            bed.holds(worker, &gpus.to_string()).await;
        }
        Self { bed, submitted: 0 }
    }

    pub fn worker(&self, name: &str) -> &Cluster {
        self.bed.workers.iter().find(|worker| worker.state.name == name).unwrap()
    }

    /// Accepts a task while fedqd is down.
    pub async fn submit(&mut self, text: &str) -> TaskId {
        self.bed.kill();
        let file = sky::read_file(text.as_bytes(), &Options::default()).unwrap();
        self.submitted += 1;
        let now = Clock::system().now();
        let row = TaskRow {
            id: TaskId::draw(self.submitted),
            owner: "ann@example.com".to_owned(),
            namespace: "team".to_owned(),
            queue: Some("queue".to_owned()),
            cluster: None,
            submitted: now,
            spec: file.tasks[0].spec.clone(),
            state: State::default(),
            dispatch: None,
            restarts: 0,
            nodes: None,
            changed: now,
        };
        let store = Store::open(&self.bed.path("fedq.db")).await.unwrap();
        assert!(store.insert_task(&row).await.unwrap());
        store.close().await;
        self.bed.start_daemon();
        row.id
    }

    /// As the store has it.
    pub async fn state(&self, id: &TaskId) -> Value {
        let options = SqliteConnectOptions::new().filename(self.bed.path("fedq.db")).read_only(true);
        let mut database = SqliteConnection::connect_with(&options).await.unwrap();
        let row = sqlx::query("SELECT state FROM tasks WHERE id = ?1").bind(id.as_str());
        let text: String = row.fetch_one(&mut database).await.unwrap().get(0);
        database.close().await.unwrap();
        serde_json::from_str(&text).unwrap()
    }

    pub async fn reaches(&self, id: &TaskId, phase: &str) -> Value {
        let began = Instant::now();
        loop {
            let state = self.state(id).await;
            if state["phase"] == phase {
                return state;
            }
            assert!(began.elapsed() < WITHIN, "task {id} is {state}, not {phase}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The objects of a kind that belong to a task.
pub fn of_task(cluster: &Cluster, kind: &str, id: &TaskId) -> Vec<Value> {
    let ours = |object: &&Value| object["metadata"]["labels"]["task-id"] == id.as_str();
    cluster
        .list(kind)
        .iter()
        .map(|object| (**object).clone())
        .collect::<Vec<_>>()
        .iter()
        .filter(ours)
        .cloned()
        .collect()
}
