//! Cuts the bytes of a log into lines, each with the time the API server put before it.

use jiff::Timestamp;

/// One line as it was written, without its time and its end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Line {
    /// `None`: what the server sent has no time, such as a message of the kubelet.
    pub ts: Option<Timestamp>,
    pub bytes: Vec<u8>,
    /// Bytes of the line that were not kept.
    pub cut: u64,
}

/// Takes a stream piece by piece and gives its lines: `push`, then `pull` until there is none.
#[derive(Debug)]
pub(super) struct Splitter {
    /// Bytes kept of a line, its time included.
    longest: usize,
    /// The line that has begun and not ended.
    begun: Vec<u8>,
    cut: u64,
    piece: Vec<u8>,
    at: usize,
}

/// `2026-11-21T07:00:00.000000001+01:00 `, which is not part of the line.
const TIME: usize = 36;

impl Splitter {
    pub(super) fn new(longest: usize) -> Self {
        Self { longest: longest + TIME, begun: Vec::new(), cut: 0, piece: Vec::new(), at: 0 }
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        // Mostly all lines were pulled, and nothing is left to move.
        self.piece.drain(..self.at);
        self.at = 0;
        self.piece.extend_from_slice(piece);
    }

    pub(super) fn pull(&mut self) -> Option<Line> {
        let rest = self.piece.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == b'\n');
        let text = &rest[..end.unwrap_or(rest.len())];
        let room = self.longest.saturating_sub(self.begun.len()).min(text.len());
        self.begun.extend_from_slice(&text[..room]);
        self.cut += u64::try_from(text.len() - room).unwrap_or(u64::MAX);
        let Some(end) = end else {
            // Given back: a thousand silent streams hold no buffers.
            (self.piece, self.at) = (Vec::new(), 0);
            return None;
        };
        self.at += end + 1;
        Some(self.take())
    }

    /// What was begun and has no end: the last line of a log that is over.
    pub(super) fn finish(&mut self) -> Option<Line> {
        let begun = !self.begun.is_empty();
        begun.then(|| self.take())
    }

    /// The stream broke: what was begun comes again.
    pub(super) fn forget(&mut self) {
        *self = Self { longest: self.longest, begun: Vec::new(), cut: 0, piece: Vec::new(), at: 0 };
    }

    fn take(&mut self) -> Line {
        let mut bytes = std::mem::take(&mut self.begun);
        let mut cut = std::mem::take(&mut self.cut);
        if cut == 0 && bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        if 0 < cut {
            let whole = whole_characters(&bytes);
            cut += u64::try_from(bytes.len() - whole).unwrap_or_default();
            bytes.truncate(whole);
        }
        let (ts, time) = time(&bytes);
        bytes.drain(..time);
        Line { ts, bytes, cut }
    }
}

/// Where text that was cut in the middle of a character ends before it; other bytes end where they end.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Ok(_) | Err(_) => bytes.len(),
    }
}

/// The time that opens the line, and how many bytes it takes with the space after it.
fn time(bytes: &[u8]) -> (Option<Timestamp>, usize) {
    let head = &bytes[..bytes.len().min(TIME)];
    let end = head.iter().position(|byte| *byte == b' ');
    let head = &head[..end.unwrap_or(head.len())];
    // RFC 3339 only: the parser takes more, and a line may begin with a date of its own.
    let shaped = head.get(4) == Some(&b'-') && head.get(10) == Some(&b'T') && head.get(19).is_some();
    let text = std::str::from_utf8(head).ok().filter(|_| shaped);
    let ts = text.and_then(|text| text.parse().ok());
    let taken = ts.map_or(0, |_: Timestamp| head.len() + usize::from(end.is_some()));
    (ts, taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(splitter: &mut Splitter, pieces: &[&[u8]]) -> Vec<Line> {
        let mut lines = Vec::new();
        for piece in pieces {
            splitter.push(piece);
            lines.extend(std::iter::from_fn(|| splitter.pull()));
        }
        lines.extend(splitter.finish());
        lines
    }

    fn lines(text: &[u8]) -> Vec<Line> {
        split(&mut Splitter::new(100), &[text])
    }

    fn line(ts: &str, bytes: &[u8]) -> Line {
        let ts = (!ts.is_empty()).then(|| ts.parse().expect("a time"));
        Line { ts, bytes: bytes.to_vec(), cut: 0 }
    }

    #[test]
    fn a_time_opens_a_line_and_is_not_part_of_it() {
        let text = b"2026-11-21T07:00:00.000000001Z one\n2026-11-21T09:00:00.5+02:00  two words \n";
        let expected =
            [line("2026-11-21T07:00:00.000000001Z", b"one"), line("2026-11-21T07:00:00.5Z", b" two words ")];
        assert_eq!(lines(text), expected);
    }

    #[test]
    fn lines_of_any_bytes_are_kept_and_only_their_end_goes() {
        let text = b"2026-11-21T07:00:00Z a\xff\x00b\r\n2026-11-21T07:00:00Z 10%\r20%\r\n2026-11-21T07:00:00Z \n2026-11-21T07:00:00Z\n";
        let time = "2026-11-21T07:00:00Z";
        let expected = [line(time, b"a\xff\x00b"), line(time, b"10%\r20%"), line(time, b""), line(time, b"")];
        assert_eq!(lines(text), expected);
    }

    #[test]
    fn what_has_no_time_or_a_broken_one_is_a_line_all_the_same() {
        for text in [
            "rpc error: code = NotFound",
            "2026-11-21 07:00:00 text",
            "2026-13-41T07:00:00Z text",
            "2026-11-21T07:00:0 text",
            " 2026-11-21T07:00:00Z text",
            "20261121T070000Z text",
            "2026-11-21T07:00:00.000000001Ztext",
            "-",
        ] {
            assert_eq!(lines(format!("{text}\n").as_bytes()), [line("", text.as_bytes())], "{text}");
        }
        assert_eq!(lines(b"\n"), [line("", b"")]);
    }

    #[test]
    fn a_line_without_an_end_counts_only_when_the_log_is_over() {
        let mut splitter = Splitter::new(100);
        splitter.push(b"2026-11-21T07:00:00Z one\n2026-11-21T07:00:01Z tw");
        assert!(splitter.pull().is_some() && splitter.pull().is_none());
        splitter.forget();
        assert_eq!(splitter.finish(), None);
        splitter.push(b"2026-11-21T07:00:01Z two");
        assert_eq!(splitter.pull(), None);
        assert_eq!(splitter.finish(), Some(line("2026-11-21T07:00:01Z", b"two")));
        assert_eq!(splitter.finish(), None);
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_between_characters_and_says_by_how_much() {
        let text = "é".repeat(1000);
        let found = lines(format!("2026-11-21T07:00:00Z {text}\nnext\n").as_bytes());
        let kept = std::str::from_utf8(&found[0].bytes).expect("whole characters");
        assert!(text.starts_with(kept) && kept.len() <= 100 + TIME);
        assert_eq!(u64::try_from(text.len() - kept.len()).expect("small"), found[0].cut);
        assert_eq!(found[1], line("", b"next"));
    }

    #[test]
    fn an_endless_line_takes_no_more_memory_than_a_long_one() {
        let mut splitter = Splitter::new(100);
        for _ in 0..1000 {
            splitter.push(&[b'x'; 1000]);
            assert_eq!(splitter.pull(), None);
            assert!(splitter.begun.capacity() <= 1000 && splitter.piece.capacity() == 0);
        }
        assert_eq!(splitter.finish().expect("a line").cut, 1_000_000 - 136);
    }

    proptest! {
        #[test]
        fn where_the_stream_is_cut_into_pieces_makes_no_difference(
            text in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b' '), any::<u8>()], 0..300),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
            longest in 0_usize..40,
        ) {
            let whole = split(&mut Splitter::new(longest), &[&text]);
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            ends.extend([0, text.len()]);
            ends.sort_unstable();
            let pieces: Vec<&[u8]> = ends.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect();
            prop_assert_eq!(split(&mut Splitter::new(longest), &pieces), whole);
        }
    }
}
