//! Records as text with a prefix, and as JSON.

use std::borrow::Cow;

use serde::Serialize;

use super::{Event, Origin, Record, Status};

/// How text shows a line.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Style {
    /// `node-0 | `, for tasks of several nodes.
    pub prefix: bool,
    pub timestamps: bool,
}

impl Style {
    fn begin(self, text: &mut Vec<u8>, origin: &Origin) {
        if self.prefix {
            text.extend(format!("node-{} | ", origin.node).bytes());
        }
    }
}

/// A line, with its end, as bytes: what containers write is not always text.
pub fn text(record: &Record, style: Style) -> Vec<u8> {
    let mut text = Vec::with_capacity(record.line.len() + 48);
    style.begin(&mut text, &record.origin);
    if let Some(ts) = record.ts.filter(|_| style.timestamps) {
        text.extend(format!("{ts:.9} ").bytes());
    }
    text.extend_from_slice(&record.line);
    if 0 < record.cut {
        text.extend(format!(" … {} more bytes", record.cut).bytes());
    }
    text.push(b'\n');
    text
}

/// What stands in a text where lines are missing; `None` of all else that happens to a log.
pub fn missing(origin: &Origin, status: &Status, style: Style) -> Option<Vec<u8>> {
    match status {
        Status::Gap | Status::Dropped { .. } | Status::NotKept { .. } | Status::Unread { .. } => {}
        Status::Waiting { .. }
        | Status::Broken { .. }
        | Status::Reconnected
        | Status::Restarted
        | Status::Ended => return None,
    }
    let mut text = Vec::new();
    style.begin(&mut text, origin);
    text.extend(status.to_string().bytes());
    text.push(b'\n');
    Some(text)
}

/// One object on one line, without its end. A line that is no UTF-8 is in `bytes` too, in base64.
pub fn json(event: &Event) -> String {
    let shape = match event {
        Event::Line(record) => Shape::Line(Line::new(record)),
        Event::Status(origin, status) => Shape::Status(Told::new(origin, status)),
    };
    serde_json::to_string(&shape).expect("text and numbers are JSON")
}

/// Told apart by `type`.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "UPPERCASE")]
enum Shape<'a> {
    Line(Line<'a>),
    Status(Told<'a>),
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<String>,
    cluster: &'a str,
    node: u32,
    pod: &'a str,
    container: &'a str,
    seq: u64,
    #[serde(rename = "line")]
    text: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<k8s_openapi::ByteString>,
    #[serde(skip_serializing_if = "is_zero")]
    cut: u64,
}

#[derive(Serialize)]
struct Told<'a> {
    cluster: &'a str,
    node: u32,
    container: &'a str,
    status: &'static str,
    message: String,
}

impl<'a> Line<'a> {
    fn new(record: &'a Record) -> Self {
        let Origin { cluster, node, pod, container } = record.origin.as_ref();
        let text = String::from_utf8_lossy(&record.line);
        let bytes = matches!(text, Cow::Owned(_));
        Self {
            ts: record.ts.map(|ts| format!("{ts:.9}")),
            cluster: cluster.as_str(),
            node: *node,
            pod,
            container,
            seq: record.seq,
            text,
            bytes: bytes.then(|| k8s_openapi::ByteString(record.line.clone())),
            cut: record.cut,
        }
    }
}

impl<'a> Told<'a> {
    fn new(origin: &'a Origin, status: &Status) -> Self {
        let word = match status {
            Status::Waiting { .. } => "waiting",
            Status::Broken { .. } => "broken",
            Status::Reconnected => "reconnected",
            Status::Restarted => "restarted",
            Status::Gap => "gap",
            Status::Dropped { .. } => "dropped",
            Status::NotKept { .. } => "notKept",
            Status::Unread { .. } => "unread",
            Status::Ended => "ended",
        };
        let Origin { cluster, node, pod: _, container } = origin;
        Self { cluster: cluster.as_str(), node: *node, container, status: word, message: status.to_string() }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn record(line: &[u8]) -> Record {
        let cluster = "east".parse().expect("a name");
        let origin = Origin { cluster, node: 3, pod: "p".to_owned(), container: "main".to_owned() };
        let ts = Some("2026-11-21T07:00:00.25Z".parse().expect("a time"));
        Record { origin: Arc::new(origin), seq: 7, ts, line: line.to_vec(), cut: 0, position: None }
    }

    #[test]
    fn text_is_the_line_as_it_was_written_with_what_was_asked_for_before_it() {
        let styled = |prefix, timestamps| text(&record(b"a\xff b"), Style { prefix, timestamps });
        assert_eq!(styled(false, false), b"a\xff b\n");
        assert_eq!(styled(true, false), b"node-3 | a\xff b\n");
        assert_eq!(styled(true, true), b"node-3 | 2026-11-21T07:00:00.250000000Z a\xff b\n");
        let untimed = Record { ts: None, cut: 12, ..record(b"a") };
        assert_eq!(
            text(&untimed, Style { prefix: false, timestamps: true }),
            "a … 12 more bytes\n".as_bytes()
        );
    }

    #[test]
    fn text_says_where_lines_are_missing_and_nothing_else_of_what_becomes_of_a_log() {
        let told = |status: &Status, prefix| {
            missing(&record(b"").origin, status, Style { prefix, timestamps: true })
        };
        let text = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(told(&Status::Dropped { lines: 2 }, false), text("… 2 lines dropped\n"));
        assert_eq!(told(&Status::Dropped { lines: 1 }, true), text("node-3 | … 1 line dropped\n"));
        assert_eq!(told(&Status::Gap, false), text("… lines may be missing: the log was rotated\n"));
        assert_eq!(told(&Status::NotKept { lines: 7 }, false), text("… 7 lines before this were not kept\n"));
        let unread = Status::Unread { error: "disk".to_owned() };
        assert_eq!(told(&unread, false), text("the log cannot be read: disk\n"));
        let (reason, error) = (String::new(), String::new());
        for quiet in [
            Status::Waiting { reason },
            Status::Broken { error },
            Status::Reconnected,
            Status::Restarted,
            Status::Ended,
        ] {
            assert_eq!(told(&quiet, false), None, "{quiet}");
        }
    }

    #[test]
    fn json_keeps_bytes_that_are_no_text() {
        let line = json(&Event::Line(record(b"a \"b\"\x1b")));
        assert_eq!(
            line,
            r#"{"type":"LINE","ts":"2026-11-21T07:00:00.250000000Z","cluster":"east","node":3,"pod":"p","container":"main","seq":7,"line":"a \"b\"\u001b"}"#
        );
        let line = json(&Event::Line(Record { cut: 2, ts: None, ..record(b"\xff\xfe") }));
        assert_eq!(
            line,
            "{\"type\":\"LINE\",\"cluster\":\"east\",\"node\":3,\"pod\":\"p\",\"container\":\"main\",\"seq\":7,\"line\":\"\u{fffd}\u{fffd}\",\"bytes\":\"//4=\",\"cut\":2}"
        );
    }

    #[test]
    fn json_tells_what_becomes_of_a_log() {
        let status = Event::Status(record(b"").origin, Status::Dropped { lines: 2 });
        assert_eq!(
            json(&status),
            r#"{"type":"STATUS","cluster":"east","node":3,"container":"main","status":"dropped","message":"… 2 lines dropped"}"#
        );
    }
}
