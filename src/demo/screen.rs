//! What the demo prints: sentences, commands as a person types them, and their output.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use anstyle::{AnsiColor, Color, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use unicode_width::UnicodeWidthStr;

use super::DemoError;

/// Of sentences, where no terminal says how wide it is.
const WIDTH: usize = 80;
const NARROWEST: usize = 40;
const TO_READ: Duration = Duration::from_secs(2);
/// Longer lines are hard to read.
const WIDEST: usize = 100;

pub struct Screen {
    out: Box<dyn Write + Send>,
    color: bool,
    width: usize,
    /// By somebody at a terminal, who reads as it goes on.
    is_watched: bool,
    /// A moving line is for a terminal only; elsewhere each text is a line.
    moves: bool,
    progress: Option<ProgressBar>,
    chapters: usize,
}

impl Screen {
    pub fn stdout(color: bool) -> Self {
        let out = io::stdout();
        let width = terminal_size::terminal_size_of(&out).map_or(WIDTH, |(width, _)| usize::from(width.0));
        Self {
            width: width.clamp(NARROWEST, WIDEST),
            color,
            is_watched: out.is_terminal(),
            moves: io::stderr().is_terminal(),
            out: Box::new(out),
            progress: None,
            chapters: 0,
        }
    }

    pub fn color(&self) -> bool {
        self.color
    }

    pub fn line(&mut self, text: &str) -> Result<(), DemoError> {
        self.print(&format!("{text}\n"))
    }

    /// Begins one, once what is above was read.
    pub async fn chapter(&mut self, title: &str) -> Result<(), DemoError> {
        if self.is_watched && 0 < self.chapters {
            tokio::time::sleep(TO_READ).await;
        }
        self.chapters += 1;
        let title = paint(&format!("{}. {title}", self.chapters), Style::new().bold(), self.color);
        self.print(&format!("\n{title}\n"))
    }

    /// Sentences, wrapped.
    pub fn say(&mut self, text: &str) -> Result<(), DemoError> {
        let text = wrap(text, self.width);
        self.print(&text)
    }

    pub fn paragraph(&mut self, text: &str) -> Result<(), DemoError> {
        let text = wrap(text, self.width);
        self.print(&format!("\n{text}"))
    }

    pub fn command(&mut self, line: &str) -> Result<(), DemoError> {
        let line = paint(&format!("$ {line}"), colored(AnsiColor::Cyan), self.color);
        self.print(&format!("\n{line}\n"))
    }

    /// As it came.
    pub fn output(&mut self, text: &str) -> Result<(), DemoError> {
        self.print(text)
    }

    /// Something that was asked of the API servers, and is so.
    pub fn found(&mut self, text: &str) -> Result<(), DemoError> {
        let mark = paint("✓", colored(AnsiColor::Green), self.color);
        let text = wrap(text, self.width - 2).replace('\n', "\n  ");
        self.print(&format!("{mark} {}\n", text.trim_end()))
    }

    /// Shows that the demo waits, until [`Screen::done`] or the next line.
    pub fn waiting(&mut self, text: &str) {
        if !self.moves {
            return;
        }
        let bar = self.progress.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(ProgressStyle::default_spinner());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        bar.set_message(text.to_owned());
    }

    /// It waits for so long that whoever reads along without a moving line should know why.
    pub fn waits_on(&mut self, text: &str) {
        if !self.moves {
            // It informs, and who does not read it misses nothing.
            let _ = writeln!(io::stderr(), "  ({text})");
        }
    }

    pub fn done(&mut self) {
        if let Some(bar) = self.progress.take() {
            bar.finish_and_clear();
        }
    }

    fn print(&mut self, text: &str) -> Result<(), DemoError> {
        self.done();
        self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()).map_err(DemoError::Print)
    }
}

pub fn colored(color: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(color)))
}

pub fn paint(text: &str, style: Style, allowed: bool) -> String {
    if allowed { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

/// Lines of at most `width` columns where words allow it, each with its end.
fn wrap(text: &str, width: usize) -> String {
    let (mut wrapped, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        if 0 < column && width < column + 1 + word.width() {
            wrapped.push('\n');
            column = 0;
        }
        if 0 < column {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += word.width();
    }
    wrapped + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_keep_to_the_width_and_lose_no_word() {
        let text = "One two three four, five: /a/path/that/is/longer/than/a/line six ✓ seven.";
        for width in [1, 5, 12, 40, 200] {
            let wrapped = wrap(text, width);
            let words: Vec<&str> = wrapped.split_whitespace().collect();
            assert_eq!(words, text.split_whitespace().collect::<Vec<_>>());
            assert!(wrapped.lines().all(|line| line.width() <= width || !line.contains(' ')), "{wrapped}");
        }
        assert_eq!(wrap("a b c d", 3), "a b\nc d\n");
    }

    #[test]
    fn nothing_is_coloured_where_it_may_not() {
        assert_eq!(paint("x", colored(AnsiColor::Red), false), "x");
        assert_eq!(paint("x", colored(AnsiColor::Red), true), "\u{1b}[31mx\u{1b}[0m");
    }
}
