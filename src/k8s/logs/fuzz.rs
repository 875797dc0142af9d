//! Bytes of a container's log, whatever they are, for `tests/fuzz`.

use super::{Position, lines::Splitter, transcript::Transcript};

/// Lines above this are cut.
const LONGEST: usize = 40;

/// The stream of a log: cut into pieces anywhere it gives the same lines, and begun anew no more of them.
pub fn lines(bytes: &[u8]) {
    let whole = split(&mut std::iter::once(bytes));
    for piece in [1, 7] {
        assert_eq!(split(&mut bytes.chunks(piece)), whole, "in pieces of {piece} bytes");
    }
    // Clocks that go back as they like excuse lines that come twice; what they must not do is more than that.
    let mut transcript = Transcript::new(LONGEST, None);
    for _ in 0..2 {
        transcript.begin();
        assert!(pull_all(&mut transcript, bytes) <= whole.len());
    }
}

/// A place that a caller hands back.
pub fn position(text: &str) {
    if let Ok(position) = text.parse::<Position>() {
        assert_eq!(position.to_string().parse(), Ok(position));
    }
}

fn split(pieces: &mut dyn Iterator<Item = &[u8]>) -> Vec<String> {
    let mut splitter = Splitter::new(LONGEST);
    let mut lines = Vec::new();
    for piece in pieces {
        splitter.push(piece);
        lines.extend(std::iter::from_fn(|| splitter.pull()));
    }
    lines.extend(splitter.finish());
    lines.iter().map(|line| format!("{line:?}")).collect()
}

fn pull_all(transcript: &mut Transcript, bytes: &[u8]) -> usize {
    let mut count = 0;
    for piece in bytes.chunks(11) {
        transcript.push(piece);
        while let Some(fresh) = transcript.pull() {
            count += 1;
            if fresh.unconnected {
                transcript.accept(&fresh.line);
            }
        }
    }
    count
}
