//! Tasks: what a person wants to run, read from SkyPilot's YAML or a request, and what becomes of it.

pub mod quantity;
pub mod sky;
pub mod spec;
pub mod yaml;
