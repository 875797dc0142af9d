//! The terminal view of Kueue's queues over clusters, `fedq kueue top`.
//!
//! What is seen follows from what was told (`news`), the keys that were pressed and the time: `State` takes these and knows no
//! terminal. `draw` lays it onto a buffer of cells. `terminal` is the loop around both: it alone touches the terminal. How
//! clusters are reached is the caller's: objects come in as they are, by the kinds that the state wants.

mod columns;
mod detail;
mod draw;
mod list;
mod news;
pub mod plain;
pub mod queue;
mod queues;
mod shown;
mod state;
mod table;
pub mod terminal;
#[cfg(test)]
mod tests;
mod workload;
mod workloads;

pub use news::{Kind, News, Source};
pub use state::{End, Key, State};
