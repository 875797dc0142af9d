//! How lines look: bytes as they were written, with the node before them where there are several.

use anstyle::AnsiColor;

use crate::{
    args::{LogFormat, LogsArgs},
    error::CliError,
    print::{Printer, paint},
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
}

impl Render {
    pub fn new(args: &LogsArgs, num_nodes: u32, color: bool) -> Self {
        Self {
            format: args.output,
            prefix: 1 < num_nodes && args.output == LogFormat::Text,
            timestamps: args.timestamps,
            color,
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
            Some(raw) => bytes.extend(raw),
            None => bytes.extend(line.line.bytes()),
        }
        if 0 < line.cut {
            bytes.extend(format!(" … {} more bytes", line.cut).bytes());
        }
        bytes.push(b'\n');
        bytes
    }
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
        let render =
            |prefix, timestamps, color| Render { format: LogFormat::Text, prefix, timestamps, color };
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
}
