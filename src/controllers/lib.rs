//! Loops that gather, decide, apply and report. The deciding is in `domain`; nothing here adds or compares quotas.

pub mod admission_check;
pub mod capacity;
pub mod claim;
pub mod cluster;
pub mod context;
pub mod dispatcher;
pub mod driver;
pub mod inventory;
pub mod memo;
pub mod placement;
pub mod queue;
pub mod quota;
pub mod task;
pub mod webhook;
pub mod writer;
