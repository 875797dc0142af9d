//! `fedq task exec`, `shell` and `port-forward`: into the pods of a task that runs.

mod command;
mod ports;
mod terminal;

pub use self::{
    command::{exec, shell},
    ports::forward,
};
