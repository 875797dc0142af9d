//! Where writes go, and what is made of their answers: a line of the log, a row of a table. The client counts them.

use std::sync::Arc;

use serde_json::Value;
use tracing::{debug, info, warn};

use super::{Outcome, not_taken};
use fedq_base::telemetry::Metrics;
use fedq_k8s::{
    client::{ApiError, ClusterClient, RetryClass},
    hub::Hub,
    worker::Worker,
    write::Change,
};

#[derive(Clone)]
pub enum Place {
    Hub(Box<Hub>),
    Worker(Arc<Worker>),
}

impl Place {
    pub fn hub(hub: Hub) -> Self {
        Self::Hub(Box::new(hub))
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Hub(_) => "hub",
            Self::Worker(worker) => worker.name.as_str(),
        }
    }

    pub(super) fn client(&self) -> &ClusterClient {
        match self {
            Self::Hub(hub) => &hub.client,
            Self::Worker(worker) => &worker.client,
        }
    }

    /// Takes over the object of a change as the server has it.
    pub(super) fn absorb(&self, change: &Change, object: &Value) {
        match self {
            Self::Hub(hub) => hub.absorb_answer(change, object),
            Self::Worker(worker) => worker.absorb_answer(change, object),
        }
    }

    pub(super) fn report(&self, change: &Change, outcome: &Outcome, metrics: &Metrics) {
        let (place, target, verb) = (self.name(), &change.target, change.verb());
        match outcome {
            Ok(answer) => {
                let lacking = change.not_taken(answer);
                if !lacking.is_empty() {
                    warn!(cluster.name = place, verb, "{target} on `{place}`: {}", not_taken(&lacking));
                } else if target.status {
                    debug!(cluster.name = place, verb, "Wrote the status of {target} on `{place}`");
                } else {
                    info!(cluster.name = place, verb, "Wrote {target} on `{place}`");
                }
                self.absorb(change, answer);
            }
            Err(error) if is_decided_anew(change, error) => {
                debug!(cluster.name = place, verb, "{target} on `{place}` is not as it was: {error}");
            }
            Err(error) => {
                if let (Self::Worker(worker), Some(reason)) = (self, error.refusal()) {
                    metrics.refused(&worker.name, reason);
                }
                warn!(cluster.name = place, verb, "Could not write {target} on `{place}`: {error}");
            }
        }
    }
}

/// Somebody else was faster: the next decision starts from what they left.
fn is_decided_anew(change: &Change, error: &ApiError) -> bool {
    match error.class {
        RetryClass::Conflict | RetryClass::AlreadyExists => true,
        // Nothing can be made in a namespace that is not there, which is worth a word.
        RetryClass::NotFound => !change.creates(),
        _ => false,
    }
}
