//! Every case, in one list. A case owns namespaces, queues, flavors and nodes of its own name, and may run beside any
//! other; one that stops or slows a shared server is serial.

pub mod bed;
pub mod capacity;
pub mod moving;
pub mod stage;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Result;

use crate::support::fleet::Fleet;

/// Polled by the case's own thread, so it need not be `Send`.
pub type Running = Pin<Box<dyn Future<Output = Result<()>>>>;

#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub turn: Turn,
    pub run: fn(Arc<Fleet>) -> Running,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Parallel,
    /// Alone, after the others.
    Serial,
}

macro_rules! cases {
    ($turn:ident: $($module:ident :: $name:ident),* $(,)?) => {
        [$(Case {
            name: concat!(stringify!($module), "::", stringify!($name)),
            turn: Turn::$turn,
            run: |fleet| Box::pin(async move { $module::$name(&fleet).await }),
        }),*]
    };
}

pub fn all() -> Vec<Case> {
    let mut all = Vec::from(cases![Parallel:
        bed::a_job_within_quota_runs_and_one_above_stays_suspended,
        bed::the_webhook_refuses_to_lend_more_than_nominal,
        bed::multikueue_sends_a_job_to_a_worker,
        bed::writes_are_counted_by_user,
        bed::a_pod_logs_through_the_api_server,
        bed::a_bare_cluster_has_no_kueue,
        bed::nothing_outlives_a_killed_run,
    ]);
    all.extend(cases![Serial:
        bed::a_killed_api_server_comes_back_with_its_data,
        bed::a_frozen_api_server_answers_nobody,
        capacity::two_joined_workers_fill_the_queues_of_the_hub_and_run_jobs,
        capacity::quota_follows_the_nodes_and_heartbeats_write_nothing,
        moving::quota_moves_only_as_workloads_free_it,
    ]);
    all
}
