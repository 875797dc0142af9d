//! What every running part needs and none decides: the clock, logs and metrics, waits after failures, certificates,
//! points to fail at.

pub mod backoff;
pub mod certificate;
pub mod clock;
pub mod failpoint;
pub mod telemetry;
