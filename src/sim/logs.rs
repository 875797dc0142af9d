//! What containers write, as kubelets keep it: the present run, the one before, and lines rotated away.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::watch;

/// Namespace, pod, container.
pub type Container = (String, String, String);

#[derive(Clone, Debug)]
pub struct Line {
    pub ts: Timestamp,
    pub text: Vec<u8>,
}

#[derive(Debug, Default)]
pub struct Logs {
    kept: Mutex<BTreeMap<Container, Log>>,
}

#[derive(Debug, Default)]
struct Log {
    run: u32,
    /// Lines that were rotated away.
    rotated: usize,
    lines: Vec<Line>,
    previous: Option<Vec<Line>>,
    /// Counts changes. Each log has its own, so that a line wakes who reads it and not a thousand others.
    changed: watch::Sender<u64>,
}

/// A place in a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    run: u32,
    next: usize,
}

impl Logs {
    /// The container writes a line.
    pub fn write(&self, container: &Container, ts: Timestamp, text: impl Into<Vec<u8>>) {
        let line = Line { ts, text: text.into() };
        let mut kept = self.kept();
        let log = kept.entry(container.clone()).or_default();
        log.lines.push(line);
        log.bump();
    }

    /// It ended and runs again: its log is that of the run before now.
    pub fn restart(&self, container: &Container) {
        let mut kept = self.kept();
        let log = kept.entry(container.clone()).or_default();
        log.run += 1;
        log.rotated = 0;
        log.previous = Some(std::mem::take(&mut log.lines));
        log.bump();
    }

    /// What was written so far can no longer be read.
    pub fn rotate(&self, container: &Container) {
        let mut kept = self.kept();
        let log = kept.entry(container.clone()).or_default();
        log.rotated += log.lines.len();
        log.lines.clear();
    }

    /// Changes with the log.
    pub(super) fn changed(&self, container: &Container) -> watch::Receiver<u64> {
        self.kept().entry(container.clone()).or_default().changed.subscribe()
    }

    pub(super) fn previous(&self, container: &Container) -> Option<Vec<Line>> {
        self.kept().get(container).and_then(|log| log.previous.clone())
    }

    /// The last `tail` lines there are, and the place after them. A container of which nothing is known has
    /// written `first`.
    pub(super) fn begin(
        &self,
        container: &Container,
        tail: Option<usize>,
        first: impl FnOnce() -> Vec<Line>,
    ) -> (Vec<Line>, Place) {
        let mut kept = self.kept();
        let fresh = || Log { lines: first(), ..Log::default() };
        let log = kept.entry(container.clone()).or_insert_with(fresh);
        let from = tail.map_or(0, |tail| log.lines.len().saturating_sub(tail));
        (log.lines[from..].to_vec(), Place { run: log.run, next: log.rotated + log.lines.len() })
    }

    /// What was written since; `None` when this run is over.
    pub(super) fn since(&self, container: &Container, place: &mut Place) -> Option<Vec<Line>> {
        let kept = self.kept();
        let log = kept.get(container).filter(|log| log.run == place.run)?;
        let from = place.next.saturating_sub(log.rotated);
        place.next = log.rotated + log.lines.len();
        Some(log.lines.get(from..).unwrap_or_default().to_vec())
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<Container, Log>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn bump(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}
