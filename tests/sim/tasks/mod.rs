//! Tasks on simulated clusters, from the command line to what runs where, and back.

mod dispatched;
mod events;
mod forged;
mod kept;
mod killed;
mod limits;
mod loss;
mod people;
mod pipelines;
mod running;
mod scaling;
pub mod stage;
mod stopping;
mod uploads;
mod volumes;
mod waiting;
pub mod wrapped;
