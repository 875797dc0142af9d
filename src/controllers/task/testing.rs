//! Tasks as the store has them, for tests.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{
    domain::task::{
        choose::Placement,
        names::TaskId,
        phase::{Phase, State},
        render::Gang,
        testing::{cluster_name, task},
    },
    store::{Dispatch, TaskRow},
};

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
