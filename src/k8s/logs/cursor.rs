//! Where a reader is in a container's log, and which lines of a stream begun anew it has given already.
//!
//! A log can only be asked for from a whole second on (`sinceTime`), and lines of one second may come in any
//! number, alike, and a little out of order: stdout and stderr are stamped apart. So the lines since that
//! second are remembered by their hashes, each as often as it came, and taken off as they come again.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

use jiff::{SignedDuration, Timestamp, Unit};

use super::{Position, lines::Line};

/// How far the stamps of lines may go back and a line still be found when reading goes on.
const DISORDER: SignedDuration = SignedDuration::from_secs(1);
/// Lines remembered: 24 bytes each. Of a second with more, the older ones are known by their times only.
pub(super) const REMEMBERED: usize = 4096;

#[derive(Debug)]
pub(super) struct Cursor {
    remembers: usize,
    /// The time of the first line given: a tail begins in the middle of a second.
    start: Option<Timestamp>,
    /// The newest time given, and how many lines with it.
    newest: Option<Position>,
    remembered: VecDeque<Seen>,
    /// The newest line that is no longer remembered, and how many there were of its time.
    forgotten: Option<Position>,
    replay: Option<Replay>,
}

#[derive(Debug)]
struct Seen {
    /// Its time, or that of the line before it.
    at: Option<Timestamp>,
    hash: u64,
}

/// A stream that began with lines which were given before.
#[derive(Debug)]
pub(super) struct Replay {
    known: HashMap<u64, u32>,
    /// As it was when the stream began; its lines are counted down.
    forgotten: Option<Position>,
    /// Whether any known line came, which proves that nothing is missing between.
    connected: bool,
    begins: bool,
    /// Beyond this time nothing is known.
    until: Option<Timestamp>,
}

/// What a line is to the reader.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    New,
    Known,
    /// The first line, and without a time: the end of a long line that began before what was asked for, if
    /// others follow.
    Fragment,
    /// New, and nothing before it was known: the log was rotated, or this is the log of another run. It is
    /// not remembered, for what comes before it is still to be looked for.
    Unconnected,
}

impl Cursor {
    pub(super) fn new(remembers: usize) -> Self {
        Self {
            remembers,
            start: None,
            newest: None,
            remembered: VecDeque::new(),
            forgotten: None,
            replay: None,
        }
    }

    /// Right after `position`, which an earlier reader reached.
    pub(super) fn after(position: Position, remembers: usize) -> Self {
        Self { newest: Some(position), forgotten: Some(position), ..Self::new(remembers) }
    }

    pub(super) fn position(&self) -> Option<Position> {
        self.newest
    }

    /// The second to ask for, so that every line that was not given comes.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.newest.and_then(|newest| reach(newest.ts))
    }

    /// A stream from [`Cursor::since`] on begins.
    pub(super) fn begin(&mut self) {
        let mut known = HashMap::new();
        for seen in &self.remembered {
            *known.entry(seen.hash).or_default() += 1;
        }
        let resumed = self.newest.is_some() || !known.is_empty();
        let newest = self.remembered.iter().map(|seen| seen.at).max().flatten();
        let newest = newest.max(self.newest.map(|newest| newest.ts));
        self.replay = resumed.then(|| Replay {
            known,
            forgotten: self.forgotten,
            connected: newest.is_none(),
            begins: true,
            until: newest.and_then(|newest| newest.checked_add(DISORDER).ok()),
        });
    }

    /// Judges the stream's next line, and remembers it if it is given.
    pub(super) fn take(&mut self, line: &Line) -> Verdict {
        let hash = hash(line);
        let verdict = self.judge(line, hash);
        if verdict == Verdict::New {
            self.remember(line, hash);
        }
        verdict
    }

    /// Remembers a line that was unconnected, once it is given.
    pub(super) fn accept(&mut self, line: &Line) {
        self.remember(line, hash(line));
    }

    /// Whether a line that was given before came in this stream, or none was given before.
    pub(super) fn is_connected(&self) -> bool {
        self.replay.as_ref().is_none_or(|replay| replay.connected)
    }

    /// Another stream comes between; what is returned is for [`Cursor::resume`].
    pub(super) fn interrupt(&mut self) -> Option<Replay> {
        let replay = self.replay.take();
        self.begin();
        replay
    }

    pub(super) fn resume(&mut self, replay: Option<Replay>) {
        self.replay = replay;
    }

    fn judge(&mut self, line: &Line, hash: u64) -> Verdict {
        let Some(replay) = &mut self.replay else { return Verdict::New };
        let begins = std::mem::take(&mut replay.begins);
        if replay.is_known(line, hash) {
            replay.connected |= line.ts.is_some();
            return Verdict::Known;
        }
        let Some(ts) = line.ts else {
            return if begins && replay.until.is_some() { Verdict::Fragment } else { Verdict::New };
        };
        if !replay.connected && self.start.is_some_and(|start| ts <= start) {
            return Verdict::Known;
        }
        let connected = std::mem::replace(&mut replay.connected, true);
        if replay.until.is_none_or(|until| until < ts) {
            self.replay = None;
        }
        if connected { Verdict::New } else { Verdict::Unconnected }
    }

    fn remember(&mut self, line: &Line, hash: u64) {
        if let Some(ts) = line.ts {
            self.advance(ts);
        }
        self.remembered.push_back(Seen { at: line.ts.or(self.newest.map(|newest| newest.ts)), hash });
        let since = self.since();
        while self.remembered.front().is_some_and(|seen| seen.at < since) {
            self.remembered.pop_front();
        }
        if self.remembers < self.remembered.len() {
            self.forget_oldest();
        }
        if self.remembered.len() < self.remembered.capacity() / 4 {
            self.remembered.shrink_to(64);
        }
    }

    fn advance(&mut self, ts: Timestamp) {
        let Some(newest) = &mut self.newest else {
            self.start = Some(ts);
            self.newest = Some(Position { ts, lines: 1 });
            return;
        };
        if newest.ts == ts {
            newest.lines = newest.lines.saturating_add(1);
        } else if newest.ts < ts {
            *newest = Position { ts, lines: 1 };
        } else if reach(newest.ts).is_some_and(|reach| ts < reach) {
            // The clock was set back: from here on, reading goes on from there. What was stamped twice and
            // is no longer remembered comes twice then.
            *newest = Position { ts, lines: 1 };
            self.forgotten = None;
        }
    }

    fn forget_oldest(&mut self) {
        let Some(ts) = self.remembered.pop_front().and_then(|seen| seen.at) else { return };
        match &mut self.forgotten {
            // Of a time before the clock was set back.
            _ if self.newest.is_none_or(|newest| newest.ts < ts) => {}
            Some(forgotten) if ts < forgotten.ts => {}
            Some(forgotten) if ts == forgotten.ts => forgotten.lines = forgotten.lines.saturating_add(1),
            forgotten => *forgotten = Some(Position { ts, lines: 1 }),
        }
    }
}

impl Replay {
    fn is_known(&mut self, line: &Line, hash: u64) -> bool {
        if let Some(times) = self.known.get_mut(&hash) {
            *times -= 1;
            if *times == 0 {
                self.known.remove(&hash);
            }
            return true;
        }
        let (Some(ts), Some(forgotten)) = (line.ts, &mut self.forgotten) else { return false };
        if ts == forgotten.ts && 0 < forgotten.lines {
            forgotten.lines -= 1;
            return true;
        }
        ts < forgotten.ts
    }
}

fn reach(newest: Timestamp) -> Option<Timestamp> {
    let back = newest.checked_sub(DISORDER).ok()?;
    // Towards the past, also before 1970.
    back.round(jiff::TimestampRound::new().smallest(Unit::Second).mode(jiff::RoundMode::Floor)).ok()
}

fn hash(line: &Line) -> u64 {
    let mut hasher = DefaultHasher::new();
    (line.ts, &line.bytes, line.cut).hash(&mut hasher);
    hasher.finish()
}
