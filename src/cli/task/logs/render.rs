//! How lines look: with the node before them where there are several, else as they were written. A terminal obeys what is
//! written to it, and programs are others': of their control sequences it gets colours only.

use anstyle::AnsiColor;

use crate::{
    args::{LogFormat, LogsArgs},
    error::CliError,
    print::{Printer, is_shown, paint},
};
use fedq_wire::task::{LogItem, LogLine, LogStatus, LogTask};

/// A node keeps its colour.
const COLORS: [AnsiColor; 6] = [
    AnsiColor::Cyan,
    AnsiColor::Yellow,
    AnsiColor::Green,
    AnsiColor::Magenta,
    AnsiColor::Blue,
    AnsiColor::BrightRed,
];

pub struct Render {
    format: LogFormat,
    prefix: bool,
    timestamps: bool,
    color: bool,
    passed: Passed,
}

/// What of a line goes on.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Passed {
    All,
    /// What a terminal only shows.
    Harmless,
}

impl Render {
    pub fn new(args: &LogsArgs, num_nodes: u32, printer: &Printer) -> Self {
        Self {
            format: args.output,
            prefix: 1 < num_nodes && args.output == LogFormat::Text,
            timestamps: args.timestamps,
            color: printer.has_color(),
            passed: if is_shown() { Passed::Harmless } else { Passed::All },
        }
    }

    /// What is told of the task itself comes back.
    pub fn item(&self, item: LogItem, printer: &mut Printer) -> Result<Option<LogTask>, CliError> {
        if self.format == LogFormat::Json {
            printer.json_line(&item)?;
            return Ok(match item {
                LogItem::Task(task) => Some(task),
                LogItem::Line(_) | LogItem::Status(_) => None,
            });
        }
        match item {
            LogItem::Line(line) => {
                printer.done();
                printer.raw(&self.line(&line))?;
                Ok(None)
            }
            LogItem::Status(status) => {
                told(&status, printer);
                Ok(None)
            }
            LogItem::Task(task) => {
                if !task.message.is_empty() && !super::is_over(&task.phase) {
                    printer.progress(&format!("{}: {}", task.phase, task.message));
                }
                Ok(Some(task))
            }
        }
    }

    fn line(&self, line: &LogLine) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(line.line.len() + 48);
        if self.prefix {
            let color = COLORS[line.node as usize % COLORS.len()];
            bytes.extend(paint(&format!("node-{} | ", line.node), color, self.color).bytes());
        }
        if let Some(ts) = line.ts.as_ref().filter(|_| self.timestamps) {
            bytes.extend(format!("{ts} ").bytes());
        }
        match written(line) {
            Some(raw) if self.passed == Passed::All => bytes.extend(raw),
            None if self.passed == Passed::All => bytes.extend(line.line.bytes()),
            Some(raw) => harmless(&String::from_utf8_lossy(&raw), &mut bytes),
            None => harmless(&line.line, &mut bytes),
        }
        if 0 < line.cut {
            bytes.extend(format!(" … {} more bytes", line.cut).bytes());
        }
        bytes.push(b'\n');
        bytes
    }
}

/// Text without what a terminal would do beside showing it: moving about, writing over what stands there, setting titles,
/// filling the clipboard, answering as if somebody typed. Colours stay, and end with the line.
fn harmless(text: &str, bytes: &mut Vec<u8>) {
    let (mut rest, mut coloured) = (text, false);
    while let Some(first) = rest.chars().next() {
        if let Some(length) = colour(rest) {
            bytes.extend(&rest.as_bytes()[..length]);
            (rest, coloured) = (&rest[length..], true);
            continue;
        }
        rest = &rest[first.len_utf8()..];
        match first {
            '\t' => bytes.push(b'\t'),
            // Progress bars write over their line again and again.
            '\r' => bytes.push(b' '),
            // Shown as editors do, so that nothing is hidden.
            '\0'..='\u{1f}' => bytes.extend([b'^', first as u8 + b'@']),
            '\u{7f}' => bytes.extend(b"^?"),
            '\u{80}'..='\u{9f}' => bytes.extend("\u{fffd}".bytes()),
            other => bytes.extend(other.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    if coloured {
        bytes.extend(b"\x1b[0m");
    }
}

/// How long the sequence is that sets colours (SGR), where the text begins with one.
fn colour(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.find(|character: char| !character.is_ascii_digit() && character != ';')?;
    parameters[end..].starts_with('m').then_some(end + 3)
}

/// The bytes of a line that is no text.
fn written(line: &LogLine) -> Option<Vec<u8>> {
    let encoded = line.bytes.as_ref()?;
    let k8s_openapi::ByteString(bytes) = serde_json::from_value(encoded.as_str().into()).ok()?;
    Some(bytes)
}

/// Only what a person must know: that the log waits or ends, its task tells better.
fn told(status: &LogStatus, printer: &mut Printer) {
    let LogStatus { node, status, message, .. } = status;
    match status.as_str() {
        "ended" | "waiting" | "reconnected" => {}
        "broken" => printer.progress(&format!("node-{node}: {message}")),
        _ => printer.note(&format!("node-{node}: {message}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> LogLine {
        LogLine {
            ts: Some("2026-11-21T07:00:00.000000000Z".to_owned()),
            cluster: "one".to_owned(),
            node: 7,
            pod: "p".to_owned(),
            container: "task".to_owned(),
            seq: 1,
            line: text.to_owned(),
            bytes: None,
            cut: 0,
        }
    }

    #[test]
    fn bytes_are_printed_as_they_were_written() {
        let render = |prefix, timestamps, color| Render {
            format: LogFormat::Text,
            prefix,
            timestamps,
            color,
            passed: Passed::All,
        };
        assert_eq!(
            render(false, false, true).line(&line("[rank0]: \u{1b}[1mhello")),
            "[rank0]: \u{1b}[1mhello\n".as_bytes()
        );
        assert_eq!(render(true, false, false).line(&line("a")), b"node-7 | a\n");
        assert_eq!(render(true, false, true).line(&line("a")), b"\x1b[33mnode-7 | \x1b[0ma\n");
        assert_eq!(render(false, true, false).line(&line("")), b"2026-11-21T07:00:00.000000000Z \n");
        let raw = LogLine { bytes: Some("//4=".to_owned()), cut: 3, ..line("??") };
        assert_eq!(render(false, false, false).line(&raw), b"\xff\xfe \xe2\x80\xa6 3 more bytes\n");
    }

    #[test]
    fn a_terminal_gets_colours_and_obeys_nothing_else() {
        let render = Render {
            format: LogFormat::Text,
            prefix: false,
            timestamps: false,
            color: true,
            passed: Passed::Harmless,
        };
        let shown = |line: &LogLine| String::from_utf8(render.line(line)).expect("text");
        for (written, expected) in [
            ("plain\ttext ✓", "plain\ttext ✓\n"),
            ("\u{1b}[1;31mred", "\u{1b}[1;31mred\u{1b}[0m\n"),
            // Clipboard, title, cursor, screen, a report that is typed, 8-bit CSI, overwriting, bell.
            ("\u{1b}]52;c;cm0gLXJmIH4=\u{7}", "^[]52;c;cm0gLXJmIH4=^G\n"),
            ("\u{1b}]0;title\u{1b}\\", "^[]0;title^[\\\n"),
            ("\u{1b}[2J\u{1b}[1A", "^[[2J^[[1A\n"),
            ("\u{1b}[6n", "^[[6n\n"),
            ("\u{1b}[?1049h", "^[[?1049h\n"),
            ("\u{9b}2J", "\u{fffd}2J\n"),
            ("paid 9\rpaid 1", "paid 9 paid 1\n"),
            ("\u{8}\u{7f}", "^H^?\n"),
            ("\u{1b}[31", "^[[31\n"),
            ("\u{1b}", "^[\n"),
        ] {
            assert_eq!(shown(&line(written)), expected, "{written:?}");
        }
        // \x1b]0;x\x07 as bytes, behind one that is no text.
        let raw = LogLine { bytes: Some("/xtdMDt4Bw==".to_owned()), ..line("?") };
        assert_eq!(shown(&raw), "\u{fffd}^[]0;x^G\n");
    }
}
