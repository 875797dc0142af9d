//! Where readers put what they read, and a session takes it: bounded in bytes, whole lines, fair.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::timeout,
};

use super::{Event, Origin, Record, Status};

/// What a record takes beside its line.
const OVERHEAD: usize = 128;

#[derive(Clone)]
pub(super) struct Outlet {
    sender: mpsc::UnboundedSender<(Event, Option<OwnedSemaphorePermit>)>,
    room: Arc<Semaphore>,
    bytes: usize,
    /// How long a full outlet is waited for before lines are dropped; `None` for ever.
    patience: Option<Duration>,
}

pub(super) struct Intake(mpsc::UnboundedReceiver<(Event, Option<OwnedSemaphorePermit>)>);

/// The outlet as one reader has it.
pub(super) struct Tap {
    outlet: Outlet,
    pub origin: Arc<Origin>,
    dropped: u64,
}

pub(super) fn outlet(bytes: usize, patience: Option<Duration>) -> (Outlet, Intake) {
    let bytes = bytes.clamp(OVERHEAD, u32::MAX as usize);
    let (sender, receiver) = mpsc::unbounded_channel();
    (Outlet { sender, room: Arc::new(Semaphore::new(bytes)), bytes, patience }, Intake(receiver))
}

impl Intake {
    pub(super) async fn next(&mut self) -> Option<Event> {
        // With the permit, the room comes back.
        self.0.recv().await.map(|(event, _)| event)
    }
}

impl Outlet {
    pub(super) fn tap(&self, origin: Arc<Origin>) -> Tap {
        Tap { outlet: self.clone(), origin, dropped: 0 }
    }

    /// The session may be over, and nobody there who wants it.
    fn send(&self, event: Event, room: Option<OwnedSemaphorePermit>) {
        let _ = self.sender.send((event, room));
    }

    fn cost(&self, line: usize) -> u32 {
        u32::try_from((line + OVERHEAD).min(self.bytes)).unwrap_or(u32::MAX)
    }
}

impl Tap {
    /// Waits for room; after it was waited for in vain, lines are dropped until there is some.
    pub(super) async fn line(&mut self, record: Record) {
        let cost = self.outlet.cost(record.line.len());
        let room = Arc::clone(&self.outlet.room);
        let permit = match self.outlet.patience {
            _ if 0 < self.dropped => room.try_acquire_many_owned(cost).ok(),
            None => room.acquire_many_owned(cost).await.ok(),
            Some(patience) => {
                timeout(patience, room.acquire_many_owned(cost)).await.ok().and_then(Result::ok)
            }
        };
        if permit.is_none() {
            self.dropped += 1;
            return;
        }
        self.told();
        self.outlet.send(Event::Line(record), permit);
    }

    /// Passes; one that finds no room would be out of date when it is read.
    pub(super) fn status(&self, status: Status) {
        let room = Arc::clone(&self.outlet.room).try_acquire_many_owned(self.outlet.cost(0));
        if let Ok(permit) = room {
            self.outlet.send(Event::Status(Arc::clone(&self.origin), status), Some(permit));
        }
    }

    /// The last word of a reader; it comes through always.
    pub(super) fn last(&mut self, status: Status) {
        self.told();
        self.outlet.send(Event::Status(Arc::clone(&self.origin), status), None);
    }

    fn told(&mut self) {
        let lines = std::mem::take(&mut self.dropped);
        if 0 < lines {
            self.outlet.send(Event::Status(Arc::clone(&self.origin), Status::Dropped { lines }), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Arc<Origin> {
        let cluster = "one".parse().expect("a name");
        Arc::new(Origin { cluster, node: 0, pod: "p".to_owned(), container: "c".to_owned() })
    }

    fn record(tap: &Tap, seq: u64, size: usize) -> Record {
        let origin = Arc::clone(&tap.origin);
        Record { origin, seq, ts: None, line: vec![b'x'; size], cut: 0, position: None }
    }

    async fn seqs(intake: &mut Intake, events: usize) -> Vec<String> {
        let mut seqs = Vec::new();
        for _ in 0..events {
            seqs.push(match intake.next().await.expect("an event") {
                Event::Line(record) => record.seq.to_string(),
                Event::Status(_, status) => status.to_string(),
            });
        }
        seqs
    }

    #[tokio::test]
    async fn a_reader_that_is_slow_for_long_is_told_how_many_lines_it_missed() {
        let (outlet, mut intake) = outlet(1000, Some(Duration::from_millis(20)));
        let mut tap = outlet.tap(origin());
        for seq in 0..20 {
            tap.line(record(&tap, seq, 372)).await;
        }
        // Two of 500 bytes fit.
        assert_eq!(seqs(&mut intake, 1).await, ["0"]);
        tap.line(record(&tap, 20, 372)).await;
        assert_eq!(seqs(&mut intake, 3).await, ["1", "… 18 lines dropped", "20"]);
        tap.line(record(&tap, 21, 372)).await;
        tap.line(record(&tap, 22, 372)).await;
        tap.line(record(&tap, 23, 372)).await;
        tap.last(Status::Ended);
        drop((tap, outlet));
        assert_eq!(seqs(&mut intake, 4).await, ["21", "22", "… 1 line dropped", "the log is over"]);
        assert!(intake.next().await.is_none());
    }

    #[tokio::test]
    async fn whoever_downloads_a_log_slowly_loses_nothing() {
        let (outlet, mut intake) = outlet(1000, None);
        let mut tap = outlet.tap(origin());
        drop(outlet);
        let writer = tokio::spawn(async move {
            for seq in 0..50 {
                tap.line(record(&tap, seq, 5000)).await;
            }
        });
        for seq in 0..50 {
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert_eq!(seqs(&mut intake, 1).await, [seq.to_string()]);
        }
        writer.await.expect("no panic");
    }

    #[tokio::test]
    async fn one_that_says_much_does_not_silence_the_others() {
        let (outlet, mut intake) = outlet(1000, None);
        let tap = |node| {
            let origin = Origin { node, ..Arc::unwrap_or_clone(origin()) };
            outlet.tap(Arc::new(origin))
        };
        let (mut loud, mut quiet) = (tap(0), tap(1));
        let both = [
            tokio::spawn(async move {
                for seq in 0..1000 {
                    loud.line(record(&loud, seq, 400)).await;
                }
            }),
            tokio::spawn(async move {
                for seq in 0..10 {
                    quiet.line(record(&quiet, seq, 10)).await;
                }
            }),
        ];
        let mut nodes = Vec::new();
        for _ in 0..40 {
            tokio::task::yield_now().await;
            if let Some(Event::Line(record)) = intake.next().await {
                nodes.push(record.origin.node);
            }
        }
        assert_eq!(nodes.iter().filter(|node| **node == 1).count(), 10);
        both.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
