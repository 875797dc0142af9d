//! The section `tasks`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::text;
use crate::domain::task::{choose, phase::LostPolicy, render::Gang};

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Tasks {
    #[serde(with = "text::duration")]
    pub spill_after: Duration,
    pub lost_policy: LostPolicy,
    #[serde(with = "text::duration")]
    pub keep_objects: Duration,
    pub history: TaskHistory,
    pub gang: GangChoice,
    pub default_image: String,
    pub weights: TaskWeights,
    pub tenants: Vec<Tenant>,
}

/// Which finished tasks are remembered.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TaskHistory {
    #[serde(with = "text::duration")]
    pub keep_for: Duration,
    pub keep_rows: u32,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum GangChoice {
    #[default]
    Auto,
    PerNode,
    Indexed,
    JobSet,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TaskWeights {
    pub spread: i32,
    pub pending: i32,
    pub borrowing: i32,
}

/// What the tasks of one namespace get, and who is at home there.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tenant {
    pub namespace: String,
    /// As the hub knows them; `*` is everyone.
    #[serde(default)]
    pub users: Vec<String>,
    #[serde(default)]
    pub groups: Vec<String>,
    /// Of tasks that name none.
    #[serde(default)]
    pub queue: Option<String>,
    /// Of the pods; it must be there on the clusters.
    #[serde(default)]
    pub service_account: Option<String>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            spill_after: Duration::from_secs(30),
            lost_policy: LostPolicy::Wait,
            keep_objects: Duration::from_mins(30),
            history: TaskHistory::default(),
            gang: GangChoice::Auto,
            default_image: "python:3.13-slim".to_owned(),
            weights: TaskWeights::default(),
            tenants: Vec::new(),
        }
    }
}

impl Default for TaskHistory {
    fn default() -> Self {
        Self { keep_for: Duration::from_hours(90 * 24), keep_rows: 100_000 }
    }
}

impl Default for TaskWeights {
    fn default() -> Self {
        let choose::Weights { spread, pending, borrowing } = choose::Weights::default();
        Self { spread, pending, borrowing }
    }
}

impl TaskWeights {
    pub fn resolve(&self) -> choose::Weights {
        choose::Weights { spread: self.spread, pending: self.pending, borrowing: self.borrowing }
    }
}

impl GangChoice {
    /// `None`: by the task and its cluster.
    pub fn fixed(self) -> Option<Gang> {
        match self {
            Self::Auto => None,
            Self::PerNode => Some(Gang::PerNode),
            Self::Indexed => Some(Gang::Indexed),
            Self::JobSet => Some(Gang::JobSet),
        }
    }
}
