//! Tasks on simulated clusters, from what is stored to what runs where, and back.

mod running;
mod stage;
