//! The only writer to the terminal: data to stdout, everything else to stderr.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    time::Duration,
};

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::{
    error::CliError,
    table::{Table, clean},
};

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub enum Color {
    /// On terminals, unless NO_COLOR is set.
    #[default]
    Auto,
    Always,
    Never,
}

pub struct Printer {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    input: Box<dyn BufRead>,
    color_out: bool,
    color_err: bool,
    /// Somebody sits there who can answer.
    interactive: bool,
    progress: Option<ProgressBar>,
}

/// Whether data goes to a terminal, which obeys what is in it.
pub fn is_shown() -> bool {
    io::stdout().is_terminal()
}

impl Printer {
    pub fn terminal(color: Color) -> Self {
        let allowed = match color {
            Color::Always => Some(true),
            Color::Never => Some(false),
            Color::Auto if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) => Some(false),
            Color::Auto => None,
        };
        let (out, err) = (io::stdout(), io::stderr());
        Self {
            color_out: allowed.unwrap_or_else(|| out.is_terminal()),
            color_err: allowed.unwrap_or_else(|| err.is_terminal()),
            interactive: io::stdin().is_terminal() && err.is_terminal(),
            out: Box::new(io::BufWriter::new(out)),
            err: Box::new(err),
            input: Box::new(io::BufReader::new(io::stdin())),
            progress: None,
        }
    }

    /// Writes elsewhere and reads answers from `input`, as a person at a terminal would give them.
    #[cfg(test)]
    pub fn captured(out: Box<dyn Write>, err: Box<dyn Write>, input: Option<Box<dyn BufRead>>) -> Self {
        let interactive = input.is_some();
        let input = input.unwrap_or_else(|| Box::new(io::empty()));
        Self { out, err, input, color_out: false, color_err: false, interactive, progress: None }
    }

    /// Whether data is coloured.
    pub fn has_color(&self) -> bool {
        self.color_out
    }

    pub fn is_interactive(&self) -> bool {
        self.interactive
    }

    /// One line of data.
    pub fn line(&mut self, text: &str) -> Result<(), CliError> {
        writeln!(self.out, "{}", clean(text)).and_then(|()| self.out.flush()).map_err(CliError::Print)
    }

    /// Data as it is: completion scripts.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.out.write_all(bytes).and_then(|()| self.out.flush()).map_err(CliError::Print)
    }

    pub fn table(&mut self, table: &Table) -> Result<(), CliError> {
        let text = table.render(self.color_out);
        self.raw(text.as_bytes())
    }

    pub fn json<T: Serialize>(&mut self, value: &T) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(value).map_err(|error| CliError::Print(error.into()))?;
        self.raw(format!("{text}\n").as_bytes())
    }

    /// One JSON document a line, for streams.
    pub fn json_line<T: Serialize>(&mut self, value: &T) -> Result<(), CliError> {
        let text = serde_json::to_string(value).map_err(|error| CliError::Print(error.into()))?;
        self.raw(format!("{text}\n").as_bytes())
    }

    pub fn yaml<T: Serialize>(&mut self, value: &T) -> Result<(), CliError> {
        let text =
            serde_saphyr::to_string(value).map_err(|error| CliError::Print(io::Error::other(error)))?;
        self.raw(text.as_bytes())
    }

    /// For the person, not for programs. A terminal that is gone is no reason to stop.
    pub fn note(&mut self, text: &str) {
        self.say(&text.lines().map(clean).collect::<Vec<_>>().join("\n"));
    }

    pub fn warning(&mut self, text: &str) {
        let word = self.styled("Warning:", AnsiColor::Yellow);
        self.say(&format!("{word} {}", clean(text)));
    }

    pub fn note_table(&mut self, table: &Table) {
        let text = table.render(self.color_err);
        self.say(text.trim_end());
    }

    pub fn error(&mut self, error: &CliError) {
        self.done();
        let word = self.styled("error:", AnsiColor::Red);
        let text = error.to_string().lines().map(clean).collect::<Vec<_>>().join("\n");
        self.say(&format!("{word} {text}"));
        if let Some(next) = error.next() {
            let word = self.styled("next:", AnsiColor::Cyan);
            self.say(&format!("{word} {}", clean(&next)));
        }
    }

    /// Shows that something long is under way: a moving line on a terminal, else a line a change.
    pub fn progress(&mut self, text: &str) {
        let text = clean(text);
        if !self.interactive {
            self.say(&text);
            return;
        }
        let bar = self.progress.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(ProgressStyle::default_spinner());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        bar.set_message(text);
    }

    /// Ends the moving line.
    pub fn done(&mut self) {
        if let Some(bar) = self.progress.take() {
            bar.finish_and_clear();
        }
    }

    /// Asks; `None` where nobody is there, or the input ends.
    pub fn ask(&mut self, question: &str) -> Option<String> {
        self.done();
        if !self.interactive {
            return None;
        }
        let asked = write!(self.err, "{} ", clean(question)).and_then(|()| self.err.flush());
        let mut answer = String::new();
        let read = asked.and_then(|()| self.input.read_line(&mut answer));
        matches!(read, Ok(1..)).then(|| answer.trim().to_owned())
    }

    fn say(&mut self, text: &str) {
        // Nothing is lost: what matters to programs is on stdout and in the exit code.
        let _ = writeln!(self.err, "{text}").and_then(|()| self.err.flush());
    }

    fn styled(&self, word: &str, color: AnsiColor) -> String {
        paint(word, color, self.color_err)
    }
}

pub fn paint(word: &str, color: AnsiColor, allowed: bool) -> String {
    if !allowed {
        return word.to_owned();
    }
    let style = Style::new().fg_color(Some(color.into()));
    format!("{style}{word}{style:#}")
}
