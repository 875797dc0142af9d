//! Lists and watches one kind of one cluster, from a stored version on where the server still has it,
//! and hands every object to a [`Sink`] as bytes.
//!
//! kube's own watcher cannot start from a stored version, keeps whole objects and reads them through
//! serde; see [`protobuf`] for what nodes cost here instead.

mod allowance;
pub(super) mod backoff;
mod body;
mod events;
mod follow;
#[cfg(feature = "testing")]
pub mod fuzz;
mod json;
mod progress;
pub mod protobuf;
mod table;

use std::time::Duration;

use tokio::time::Instant;

pub use allowance::{Allowance, Charge, Limits};
pub use follow::{Follow, Stopped};
pub use table::{Key, Known, Record, State, Table, TableSink};

use super::client::ApiError;

/// How objects travel. Built-in kinds have protobuf; custom resources answer 406 to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Codec {
    Protobuf,
    Json,
}

/// Which objects to follow.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Selector {
    pub labels: Option<String>,
    pub fields: Option<String>,
}

/// What one object's bytes are worth. An object that cannot be read is skipped; the cluster is kept.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

/// An object that was passed over.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Skipped {
    /// `name` or `namespace/name`, where it could be read.
    pub name: Option<String>,
    pub reason: String,
}

/// The state of the link, as it changes.
#[derive(Debug)]
pub enum Link<'a> {
    /// Everything is known; from here on events follow.
    Synced,
    /// The server answered.
    Alive,
    /// The server does not know the kind: its CRD is not installed.
    Absent,
    /// Tried again by itself, after `retry_in`.
    Broken { error: &'a ApiError, last_alive: Option<Instant>, retry_in: Duration },
}

/// Receives what is followed, synchronously and in order. Objects are in the codec's encoding.
///
/// A list is `begin`, `set`…, `end`: only `end` proves that objects not set since `begin` are gone, and
/// a list that breaks off is simply begun again.
pub trait Sink: Send {
    fn begin(&mut self);
    fn set(&mut self, object: &[u8]) -> Result<(), Malformed>;
    fn gone(&mut self, object: &[u8]) -> Result<(), Malformed>;
    fn end(&mut self);
    /// Everything up to this version was delivered: store it with the rows, in one transaction.
    fn at(&mut self, version: u64);
    /// Passed over; a row of that name, if there is one, is the last thing known of it.
    fn skipped(&mut self, skipped: Skipped);
    fn link(&mut self, link: Link<'_>);
}

/// How long things may take. The defaults are for production; tests use shorter ones.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Length of one watch request, ± 10 %.
    pub watch: Duration,
    /// A watch that delivers nothing for this long is renewed: bookmarks come each minute.
    pub silent: Duration,
    /// A whole list, however slowly it arrives.
    pub list: Duration,
    /// A small request.
    pub request: Duration,
    /// One event of a watch, and an object of a list that takes more than its reader's own share.
    pub object: Duration,
    /// A full list against lost events, ± 10 %.
    pub consistency: Duration,
    /// Between looks for a kind that is not installed.
    pub absent: Duration,
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// A link this long without an error starts its backoff anew.
    pub healthy: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            watch: seconds(300),
            silent: seconds(90),
            list: seconds(120),
            request: seconds(10),
            object: seconds(30),
            consistency: seconds(3600),
            absent: seconds(30),
            backoff_min: Duration::from_millis(500),
            backoff_max: seconds(30),
            healthy: seconds(60),
        }
    }
}

/// How large things may be.
#[derive(Clone, Debug)]
pub struct Caps {
    /// One object. The API server itself takes 3 MiB requests.
    pub object: usize,
    /// A list, as it is after decompression.
    pub list: usize,
}

impl Default for Caps {
    fn default() -> Self {
        Self { object: 4 << 20, list: 512 << 20 }
    }
}
