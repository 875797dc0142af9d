//! Tasks as the store has them, and a controller without clusters, for tests.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::sync::{Notify, watch};

use super::{Inputs, Published, Settings, TaskController};
use crate::writer::WriterConfig;
use fedq_base::{clock::Clock, telemetry::Metrics};
use fedq_domain::task::{
    choose::{Placement, Weights},
    names::TaskId,
    phase::{LostPolicy, Phase, State},
    render::Gang,
    testing::{cluster_name, task},
};
use fedq_k8s::{hub::Hub, list_watch::Timing, testing::Server};
use fedq_store::{Dispatch, Store, TaskRow};

/// At ten seconds past 1970, with a hub that knows nothing. What it stands on goes when that is dropped.
pub async fn controller() -> (TaskController, (Server, tempfile::TempDir)) {
    let server = Server::start(axum::Router::new());
    let folder = tempfile::TempDir::new().expect("a folder");
    let store = Store::open(&folder.path().join("fedq.db")).await.expect("opens");
    let clock = Clock::test(Timestamp::from_second(10).expect("in range"));
    let settings = Settings {
        spill_after: Duration::from_secs(30),
        lost_policy: LostPolicy::Wait,
        keep_objects: Duration::from_mins(30),
        gang: None,
        default_image: "image".to_owned(),
        weights: Weights::default(),
        logs: None,
        tenants: BTreeMap::new(),
        writer: WriterConfig { merge_window: Duration::ZERO, deadline: Duration::from_secs(1) },
        timing: Timing::default(),
    };
    let inputs = Inputs {
        joined: watch::channel(Arc::default()).1,
        claimed: watch::channel(Arc::default()).1,
        capacity: watch::channel(Arc::default()).1,
    };
    let published = Published { tasks: watch::Sender::default(), volumes: watch::Sender::default() };
    let hub = Hub::new(server.client(), "uid".to_owned(), "fedq-system".to_owned());
    let controller = TaskController::new(
        (hub, "hub".to_owned()),
        (store, clock, Metrics::new()),
        settings,
        inputs,
        (published, Arc::new(Notify::new())),
    );
    (controller, (server, folder))
}

pub fn placement(cluster: &str) -> Placement {
    Placement {
        cluster: cluster_name(cluster),
        candidate: 0,
        queue: "default".to_owned(),
        now: true,
        terms: BTreeMap::new(),
        flavors: BTreeMap::new(),
        claims: BTreeMap::new(),
    }
}

/// Ann's, in its first dispatch, to cluster `one`.
pub fn row(text: &str, phase: Phase) -> TaskRow {
    TaskRow {
        id: TaskId::parse("1a2b3c4d").expect("an id"),
        owner: "ann".to_owned(),
        namespace: "team".to_owned(),
        queue: None,
        cluster: None,
        submitted: Timestamp::UNIX_EPOCH,
        spec: task(text),
        state: State { phase, epoch: 1 },
        dispatch: Some(Dispatch {
            placement: placement("one"),
            gang: Gang::PerNode,
            priority_class: None,
            by_multikueue: false,
            spills: 0,
            landed: None,
        }),
        restarts: 0,
        nodes: None,
        changed: Timestamp::UNIX_EPOCH,
        stage: None,
    }
}
