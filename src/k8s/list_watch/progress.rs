//! Where a followed kind is, and what each event does to that.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    Codec, Link, Malformed, Sink, Skipped, Timing,
    backoff::{StreamBackoff, jittered},
    events::Event,
    json, protobuf,
};
use crate::client::ApiError;

pub(super) struct Progress {
    /// Where the rows are; none before the first list and after the server forgot the version.
    pub at: Option<u64>,
    /// The highest version ever seen: no server may be older.
    pub highest: u64,
    /// The last answer was a list: nothing to verify before watching.
    pub fresh: bool,
    pub synced: bool,
    /// Nothing was answered since the last failure.
    pub broken: bool,
    pub last_alive: Option<Instant>,
    /// When everything is listed again, whether or not anything seems to be missing.
    pub list_due: Instant,
    pub backoff: StreamBackoff,
}

/// How a watch ended.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Ended {
    /// In good order: at its time, or before the next list.
    Closed,
    /// Nothing came, not even a bookmark.
    Silent,
    Expired,
}

impl Progress {
    pub(super) fn new(start: Option<u64>, timing: &Timing) -> Self {
        Self {
            at: start,
            highest: start.unwrap_or(0),
            fresh: false,
            synced: false,
            broken: false,
            last_alive: None,
            list_due: Instant::now() + jittered(timing.consistency),
            backoff: StreamBackoff::new(timing),
        }
    }

    pub(super) fn listed(&mut self, version: u64, consistency: Duration) {
        self.at = Some(version);
        self.highest = version;
        self.fresh = true;
        self.list_due = Instant::now() + jittered(consistency);
    }

    pub(super) fn alive(&mut self, sink: &mut impl Sink) {
        self.last_alive = Some(Instant::now());
        self.backoff.good();
        sink.link(Link::Alive);
    }

    pub(super) fn synced(&mut self, sink: &mut impl Sink) {
        if !std::mem::replace(&mut self.synced, true) {
            sink.link(Link::Synced);
        }
    }

    /// Hands one event of a watch to the sink; `Some` ends the watch.
    pub(super) fn take(
        &mut self,
        event: Event<'_>,
        codec: Codec,
        sink: &mut impl Sink,
    ) -> Result<Option<Ended>, ApiError> {
        match event {
            Event::Set { version, object } if self.is_new(version) => {
                report(sink, |sink| sink.set(object), object, codec);
                self.reach(version, sink);
            }
            Event::Gone { version, object } if self.is_new(version) => {
                report(sink, |sink| sink.gone(object), object, codec);
                self.reach(version, sink);
            }
            Event::Bookmark { version } if self.is_new(version) => self.reach(version, sink),
            // Sent twice, or late: what is known is newer.
            Event::Set { .. } | Event::Gone { .. } | Event::Bookmark { .. } => {}
            Event::Skipped(skipped) => sink.skipped(skipped),
            Event::Expired => return Ok(Some(Ended::Expired)),
            Event::Failed(error) => return Err(error),
        }
        Ok(None)
    }

    fn is_new(&self, version: u64) -> bool {
        self.at.is_none_or(|at| at < version)
    }

    fn reach(&mut self, version: u64, sink: &mut impl Sink) {
        self.at = Some(version);
        self.highest = self.highest.max(version);
        sink.at(version);
    }
}

/// Hands one object of a list to the sink.
pub(super) fn deliver(sink: &mut impl Sink, object: Result<&[u8], Skipped>, codec: Codec) {
    match object {
        Ok(object) => report(sink, |sink| sink.set(object), object, codec),
        Err(skipped) => sink.skipped(skipped),
    }
}

fn report<S: Sink>(
    sink: &mut S,
    hand_over: impl FnOnce(&mut S) -> Result<(), Malformed>,
    object: &[u8],
    codec: Codec,
) {
    if let Err(Malformed(reason)) = hand_over(sink) {
        let name = match codec {
            Codec::Protobuf => protobuf::name(object).ok().map(str::to_owned),
            Codec::Json => json::name(object),
        };
        sink.skipped(Skipped { name, reason });
    }
}
