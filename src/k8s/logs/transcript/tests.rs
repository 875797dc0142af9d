use jiff::SignedDuration;
use proptest::{collection::vec, prelude::*};

use super::*;

/// A line of a container, as its runtime stamped it.
#[derive(Clone, Debug)]
struct Written {
    ts: Timestamp,
    text: Vec<u8>,
}

impl Written {
    /// As the kubelet sends it.
    fn sent(&self) -> Vec<u8> {
        [format!("{:.9} ", self.ts).as_bytes(), &self.text, b"\n"].concat()
    }

    fn line(&self) -> Line {
        Line { ts: Some(self.ts), bytes: self.text.clone(), cut: 0 }
    }
}

/// What the kubelet sends of a log when asked from `since` on: it passes over older lines one by one.
fn stream(log: &[Written], since: Option<Timestamp>) -> Vec<u8> {
    log.iter().filter(|line| since.is_none_or(|since| since <= line.ts)).flat_map(Written::sent).collect()
}

/// One stream: how much of the log was written when it broke, where it broke, how it was cut into reads.
#[derive(Clone, Debug)]
struct Stretch {
    written: prop::sample::Index,
    broke: prop::sample::Index,
    reads: Vec<usize>,
}

fn stretches() -> impl Strategy<Value = Vec<Stretch>> {
    let stretch = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), vec(1_usize..40, 1..6));
    vec(stretch.prop_map(|(written, broke, reads)| Stretch { written, broke, reads }), 0..8)
}

/// Lines that are often alike, at times that are often alike; `disorder` lets stamps go back a little.
fn log(disorder: bool) -> impl Strategy<Value = Vec<Written>> {
    let ahead = prop_oneof![
        4 => Just(0_i64),
        3 => 1_i64..5,
        3 => 1_000_000_i64..400_000_000,
        2 => 900_000_000_i64..1_100_000_000,
        1 => Just(1_000_000_000_i64),
        1 => 2_000_000_000_i64..90_000_000_000,
    ];
    let back = if disorder { (0_i64..1_000_000_000).boxed() } else { Just(0_i64).boxed() };
    let text = prop_oneof![
        5 => prop::sample::select(vec![&b"a"[..], b"b", b"", b" ", b"\xff\xfe", b"2026-01-01T00:00:00Z x"]).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>().prop_filter("ends a line", |byte| !matches!(byte, b'\n' | b'\r')), 0..60),
    ];
    vec((ahead, back, text), 0..60).prop_map(|lines| {
        let mut newest: Timestamp = "2026-11-21T07:00:00.6Z".parse().expect("a time");
        let mut log = Vec::new();
        for (ahead, back, text) in lines {
            newest += SignedDuration::from_nanos(ahead);
            log.push(Written { ts: newest - SignedDuration::from_nanos(back), text });
        }
        log
    })
}

/// As a reader that finds nothing of what is missing.
fn pull(transcript: &mut Transcript) -> Option<Fresh> {
    let fresh = transcript.pull()?;
    if fresh.unconnected {
        transcript.accept(&fresh.line);
    }
    Some(fresh)
}

fn read(transcript: &mut Transcript, bytes: &[u8], reads: &[usize], given: &mut Vec<Fresh>) {
    let (mut at, mut sizes) = (0, reads.iter().cycle());
    while at < bytes.len() {
        let end = (at + sizes.next().expect("endless")).min(bytes.len());
        transcript.push(&bytes[at..end]);
        given.extend(std::iter::from_fn(|| pull(transcript)));
        at = end;
    }
}

/// Reads `log` in stretches, then to its end. `kept(n)` says where the log begins after stretch `n`.
fn follow(
    mut transcript: Transcript,
    log: &[Written],
    stretches: &[Stretch],
    kept: impl Fn(usize) -> usize,
) -> Vec<Fresh> {
    let (mut given, mut written) = (Vec::new(), 0);
    for (number, stretch) in stretches.iter().enumerate() {
        written = written.max(stretch.written.index(log.len() + 1));
        transcript.begin();
        let bytes = stream(&log[kept(number).min(written)..written], transcript.since());
        read(&mut transcript, &bytes[..stretch.broke.index(bytes.len() + 1)], &stretch.reads, &mut given);
    }
    transcript.begin();
    let bytes = stream(&log[kept(stretches.len())..], transcript.since());
    read(&mut transcript, &bytes, &[7, 100], &mut given);
    given.extend(transcript.end());
    given
}

/// No two lines alike.
fn numbered(log: Vec<Written>) -> Vec<Written> {
    let number = |(number, line): (usize, Written)| Written {
        text: [number.to_string().as_bytes(), b" ", &line.text].concat(),
        ..line
    };
    log.into_iter().enumerate().map(number).collect()
}

fn lines(given: Vec<Fresh>) -> Vec<Line> {
    given.into_iter().map(|fresh| fresh.line).collect()
}

fn written(log: &[Written]) -> Vec<Line> {
    log.iter().map(Written::line).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Stamps go back by less than a second: stdout and stderr are stamped apart.
    #[test]
    fn however_reads_are_cut_and_streams_break_each_line_comes_once_and_in_order(
        log in log(true),
        stretches in stretches(),
    ) {
        let given = follow(Transcript::new(1 << 16, None), &log, &stretches, |_| 0);
        prop_assert!(!given.iter().any(|fresh| fresh.unconnected), "nothing is missing");
        prop_assert_eq!(lines(given), written(&log));
    }

    /// More lines in a second than are remembered.
    #[test]
    fn a_burst_beyond_what_is_remembered_comes_once_too(
        log in log(false),
        stretches in stretches(),
        remembers in 0_usize..4,
    ) {
        let given = follow(Transcript::remembering(remembers, 1 << 16, None), &log, &stretches, |_| 0);
        prop_assert_eq!(lines(given), written(&log));
    }

    /// The position after any line is enough to go on behind it.
    #[test]
    fn another_reader_goes_on_where_the_first_one_stopped(
        log in log(false),
        stretches in stretches(),
        stop in any::<prop::sample::Index>(),
    ) {
        let stop = stop.index(log.len() + 1);
        let mut first = Transcript::new(1 << 16, None);
        first.begin();
        read(&mut first, &stream(&log[..stop], None), &[64], &mut Vec::new());
        let position = first.position().map(|position| position.to_string().parse().expect("as it was told"));
        let given = follow(Transcript::new(1 << 16, position), &log, &stretches, |_| 0);
        prop_assert_eq!(lines(given), written(&log[stop..]));
    }

    /// What lies before the tail, in the seconds that are asked for again, is not taken for new.
    #[test]
    fn a_log_read_from_its_tail_on_gives_the_tail_and_what_follows(
        log in log(false),
        first in any::<prop::sample::Index>(),
        tail in 1_usize..10,
        stretches in stretches(),
    ) {
        let log = numbered(log);
        let first = first.index(log.len() + 1);
        let from = first.saturating_sub(tail);
        let mut transcript = Transcript::new(1 << 16, None);
        transcript.begin();
        let mut given = Vec::new();
        read(&mut transcript, &stream(&log[from..first], None), &[30], &mut given);
        let from = if given.is_empty() { 0 } else { from };
        given.extend(follow(transcript, &log, &stretches, |_| 0));
        prop_assert!(!given.iter().any(|fresh| fresh.unconnected));
        prop_assert_eq!(lines(given), written(&log[from..]));
    }

    /// The log is rotated between streams: what was not read by then is lost, never silently, and nothing
    /// comes twice.
    #[test]
    fn lines_lost_by_rotation_leave_a_visible_gap(
        log in log(false),
        stretches in stretches(),
        rotations in vec(any::<prop::sample::Index>(), 8),
    ) {
        let log = numbered(log);
        let kept = |number: usize| {
            rotations.iter().take(number).map(|at| at.index(log.len() + 1)).max().unwrap_or_default()
        };
        let given = follow(Transcript::new(1 << 16, None), &log, &stretches, kept);
        let all = written(&log);
        let places: Vec<usize> = given.iter()
            .map(|fresh| all.iter().position(|line| *line == fresh.line).expect("a line of the log"))
            .collect();
        prop_assert!(places.is_sorted_by(|a, b| a < b), "once and in order: {places:?}");
        for (pair, fresh) in places.windows(2).zip(given.iter().skip(1)) {
            prop_assert!(pair[1] == pair[0] + 1 || fresh.unconnected, "lost between {pair:?} without a word");
        }
    }
}

fn at(text: &str) -> Timestamp {
    format!("2026-11-21T07:{text}Z").parse().expect("a time")
}

fn given(transcript: &mut Transcript, text: &str) -> Vec<String> {
    transcript.begin();
    let mut given = Vec::new();
    read(transcript, text.as_bytes(), &[5], &mut given);
    given.into_iter().map(|fresh| String::from_utf8_lossy(&fresh.line.bytes).into_owned()).collect()
}

#[test]
fn a_stream_is_asked_for_from_a_whole_second_before_the_newest_line() {
    let mut transcript = Transcript::new(100, None);
    assert_eq!(transcript.since(), None);
    given(&mut transcript, "2026-11-21T07:00:05.9Z a\n");
    assert_eq!(transcript.since(), Some(at("00:04")));
    given(&mut transcript, "2026-11-21T07:00:05.2Z late\n");
    assert_eq!(transcript.since(), Some(at("00:04")));
}

#[test]
fn a_clock_that_was_set_back_loses_no_line() {
    let mut transcript = Transcript::new(100, None);
    let mut sent = String::from("2026-11-21T07:30:00Z before\n2026-11-21T07:10:00Z set back\n");
    assert_eq!(given(&mut transcript, &sent), ["before", "set back"]);
    assert_eq!(transcript.since(), Some(at("09:59")));
    sent.push_str("2026-11-21T07:10:00.5Z after\n");
    assert_eq!(given(&mut transcript, &sent), ["after"]);
}

#[test]
fn what_the_server_says_without_a_time_comes_once_a_reader() {
    let mut transcript = Transcript::new(100, None);
    let excuse = "failed to open log file\n";
    assert_eq!(given(&mut transcript, excuse), ["failed to open log file"]);
    assert_eq!(given(&mut transcript, excuse), [""; 0]);
    assert_eq!(given(&mut transcript, "2026-11-21T07:00:00Z a\nodd\n"), ["a", "odd"]);
    assert_eq!(given(&mut transcript, "2026-11-21T07:00:00Z a\nodd\n"), [""; 0]);
}

/// The kubelet sends a long line in parts with times of their own, and passes over the older parts.
#[test]
fn the_end_of_a_long_line_is_not_taken_for_a_line() {
    let mut transcript = Transcript::new(100, None);
    let first = "2026-11-21T07:00:00Z long line\n2026-11-21T07:00:09Z next\n";
    assert_eq!(given(&mut transcript, first), ["long line", "next"]);
    assert_eq!(given(&mut transcript, "line\n2026-11-21T07:00:09Z next\n"), [""; 0]);
    assert_eq!(transcript.end(), None);
    // The same text alone in a stream is what the server has to say.
    assert_eq!(given(&mut transcript, "unable to retrieve logs\n"), [""; 0]);
    assert_eq!(transcript.end().expect("said").line.bytes, b"unable to retrieve logs");
}

#[test]
fn the_rest_of_the_run_before_comes_before_the_next_run() {
    let mut transcript = Transcript::new(100, None);
    given(&mut transcript, "2026-11-21T07:00:00Z a\n");
    transcript.begin();
    transcript.push(b"2026-11-21T07:00:09Z a\n2026-11-21T07:00:09Z b\n2026-11");
    let next = transcript.pull().expect("a line");
    assert!(next.unconnected);

    let interrupted = transcript.interrupt();
    transcript.push(b"2026-11-21T07:00:00Z a\n2026-11-21T07:00:01Z rest\n");
    let rest = transcript.pull().expect("a line");
    assert_eq!((rest.line.bytes.as_slice(), rest.unconnected), (&b"rest"[..], false));
    assert!(transcript.is_connected() && transcript.pull().is_none());
    transcript.resume(interrupted);

    transcript.accept(&next.line);
    assert_eq!(transcript.pull().map(|fresh| fresh.unconnected), Some(false));
    transcript.push(b"-21T07:00:10Z c\n");
    assert_eq!(transcript.pull().expect("a line").line.bytes, b"c");
    assert_eq!(transcript.since(), Some(at("00:09")));
}
