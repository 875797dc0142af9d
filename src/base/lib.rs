//! What every running part needs and none decides: the clock, logs and metrics, certificates, points to fail at.

pub mod certificate;
pub mod clock;
pub mod failpoint;
pub mod telemetry;
