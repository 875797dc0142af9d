//! A container's log as it was written: each line once and in order, however often the stream that brings it
//! breaks and is begun anew. It knows no client and no clock.

use jiff::Timestamp;

use super::{
    Position,
    cursor::{Cursor, REMEMBERED, Replay, Verdict},
    lines::{Line, Splitter},
};

/// For each stream: `begin`, then for each of its pieces `push` and `pull` until there is none, then `end`
/// if the log is over.
#[derive(Debug)]
pub(super) struct Transcript {
    longest: usize,
    lines: Splitter,
    cursor: Cursor,
    fragment: Option<Line>,
}

/// A line that was not given before.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Fresh {
    pub line: Line,
    /// The stream was begun anew, and nothing that was given before came before this line: look for what is
    /// missing, then `accept` it.
    pub unconnected: bool,
}

/// A stream that waits while another one is read.
pub(super) struct Interrupted {
    lines: Splitter,
    replay: Option<Replay>,
    fragment: Option<Line>,
}

impl Transcript {
    /// Lines longer than `longest` are cut.
    pub(super) fn new(longest: usize, after: Option<Position>) -> Self {
        Self::remembering(REMEMBERED, longest, after)
    }

    fn remembering(remembers: usize, longest: usize, after: Option<Position>) -> Self {
        let cursor = match after {
            Some(position) => Cursor::after(position, remembers),
            None => Cursor::new(remembers),
        };
        Self { longest, lines: Splitter::new(longest), cursor, fragment: None }
    }

    /// The second from which the next stream has to come; `None` while no line with a time was given.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.cursor.since()
    }

    pub(super) fn position(&self) -> Option<Position> {
        self.cursor.position()
    }

    /// What an earlier stream began and did not end comes again.
    pub(super) fn begin(&mut self) {
        self.lines.forget();
        self.cursor.begin();
        self.fragment = None;
    }

    pub(super) fn accept(&mut self, line: &Line) {
        self.cursor.accept(line);
    }

    /// Whether the stream goes on where the one before it ended.
    pub(super) fn is_connected(&self) -> bool {
        self.cursor.is_connected()
    }

    /// Another stream is read, from the same second on, before this one goes on.
    pub(super) fn interrupt(&mut self) -> Interrupted {
        let lines = std::mem::replace(&mut self.lines, Splitter::new(self.longest));
        Interrupted { lines, replay: self.cursor.interrupt(), fragment: self.fragment.take() }
    }

    pub(super) fn resume(&mut self, interrupted: Interrupted) {
        let Interrupted { lines, replay, fragment } = interrupted;
        (self.lines, self.fragment) = (lines, fragment);
        self.cursor.resume(replay);
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        self.lines.push(piece);
    }

    pub(super) fn pull(&mut self) -> Option<Fresh> {
        loop {
            let line = self.lines.pull()?;
            if let Some(fresh) = self.judge(line) {
                return Some(fresh);
            }
        }
    }

    /// The stream ended and no other follows: what is left of it.
    pub(super) fn end(&mut self) -> Option<Fresh> {
        let last = self.lines.finish().and_then(|line| self.judge(line));
        // Alone in its stream, it was no end of a line, but the server's excuse for having none.
        last.or_else(|| self.fragment.take().map(|line| Fresh { line, unconnected: false }))
    }

    fn judge(&mut self, line: Line) -> Option<Fresh> {
        match self.cursor.take(&line) {
            Verdict::Known => {
                self.fragment = None;
                None
            }
            Verdict::Fragment => {
                self.fragment = Some(line);
                None
            }
            verdict @ (Verdict::New | Verdict::Unconnected) => {
                self.fragment = None;
                Some(Fresh { line, unconnected: verdict == Verdict::Unconnected })
            }
        }
    }
}

#[cfg(test)]
mod tests;
