//! Tasks as the store has them, and a controller without clusters, for tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use tokio::sync::{Notify, watch};

use super::{Inputs, Published, Settings, TaskController};
use crate::context::testing::{Ground, context};
use fedq_domain::task::{
    choose::{Placement, Weights},
    names::TaskId,
    phase::{LostPolicy, Phase, State},
    render::Gang,
    testing::{cluster_name, task},
};
use fedq_k8s::list_watch::Timing;
use fedq_store::{Dispatch, TaskRow};

/// At ten seconds past 1970, with a hub that knows nothing. What it stands on goes when that is dropped.
pub async fn controller() -> (TaskController, Ground) {
    let (context, ground) = context(axum::Router::new()).await;
    context.clock.advance(Duration::from_secs(10));
    let settings = Settings {
        spill_after: Duration::from_secs(30),
        start_timeout: Duration::from_hours(1),
        lost_policy: LostPolicy::Wait,
        keep_objects: Duration::from_mins(30),
        gang: None,
        default_image: "image".to_owned(),
        weights: Weights::default(),
        logs: None,
        tenants: BTreeMap::new(),
        limits: BTreeMap::new(),
        timing: Timing::default(),
    };
    let inputs = Inputs {
        joined: watch::channel(Arc::default()).1,
        claimed: watch::channel(Arc::default()).1,
        capacity: watch::channel(Arc::default()).1,
    };
    let published = Published { tasks: watch::Sender::default(), volumes: watch::Sender::default() };
    let controller = TaskController::new(context, settings, inputs, (published, Arc::new(Notify::new())));
    (controller, ground)
}

pub fn placement(cluster: &str) -> Placement {
    Placement {
        cluster: cluster_name(cluster),
        candidate: 0,
        queue: "default".to_owned(),
        now: true,
        terms: BTreeMap::new(),
        refused: BTreeMap::new(),
        flavors: BTreeMap::new(),
        pod_sets: Vec::new(),
        claims: BTreeMap::new(),
        read_only: BTreeSet::new(),
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
            started: None,
        }),
        restarts: 0,
        nodes: None,
        changed: Timestamp::UNIX_EPOCH,
        stage: None,
    }
}
