//! Pure decisions: no client, no async, no database, no clock, no environment.

pub mod capacity;
pub mod check;
pub mod claim;
pub mod claim_keeping;
pub mod claim_status;
pub mod cluster;
pub mod conflict;
pub mod inventory;
pub mod multikueue;
pub mod nearest;
pub mod overview;
pub mod placement;
pub mod queue;
pub mod quota;
pub mod resource_groups;
pub mod resources;
pub mod shares;
pub mod task;
