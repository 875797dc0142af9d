//! Tasks: what a person wants to run, read from SkyPilot's YAML or a request, and what becomes of it.

pub mod choose;
pub mod event;
pub mod fleet;
pub mod limits;
pub mod names;
pub mod phase;
pub mod pipeline;
pub mod progress;
pub mod quantity;
pub mod record;
pub mod render;
pub mod runtime;
pub mod sky;
pub mod spec;
pub mod tenant;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod upload;
pub mod view;
pub mod volume;
pub mod wrapped;
pub mod yaml;
