//! Tables as kubectl prints them: columns by width, no frames.

use anstyle::AnsiColor;
use unicode_width::UnicodeWidthStr;

use super::print::paint;

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Table {
    headers: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

const GAP: usize = 3;

impl Table {
    pub fn new(headers: &[&'static str]) -> Self {
        Self { headers: headers.to_vec(), rows: Vec::new() }
    }

    pub fn without_headers(mut self) -> Self {
        self.headers.clear();
        self
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = impl AsRef<str>>) {
        // An empty cell would make two columns of one for whoever cuts by blanks.
        let cell = |text: &str| if text.is_empty() { "-".to_owned() } else { clean(text) };
        self.rows.push(cells.into_iter().map(|text| cell(text.as_ref())).collect());
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn render(&self, color: bool) -> String {
        let columns = self.rows.iter().map(Vec::len).chain([self.headers.len()]).max().unwrap_or(0);
        let width = |column: usize| {
            let header = self.headers.get(column).map_or(0, |header| header.width());
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.width())
                .fold(header, usize::max)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        if !self.headers.is_empty() {
            let headers: Vec<String> = self.headers.iter().map(|&header| header.to_owned()).collect();
            line(&mut text, &headers, &widths, false);
        }
        for row in &self.rows {
            line(&mut text, row, &widths, color);
        }
        text
    }
}

fn line(text: &mut String, cells: &[String], widths: &[usize], color: bool) {
    for (index, cell) in cells.iter().enumerate() {
        match shade(cell).filter(|_| color) {
            Some(shade) => text.push_str(&paint(cell, shade, true)),
            None => text.push_str(cell),
        }
        if index + 1 < cells.len() {
            text.extend(std::iter::repeat_n(' ', widths[index] - cell.width() + GAP));
        }
    }
    text.push('\n');
}

/// Words of state carry colour, nothing else.
fn shade(cell: &str) -> Option<AnsiColor> {
    Some(match cell {
        "Ready" | "True" | "ok" => AnsiColor::Green,
        "Stale" | "Unknown" | "Connecting" | "Draining" | "warning" => AnsiColor::Yellow,
        "False" | "Lost" | "Quarantined" | "Refused" | "failed" => AnsiColor::Red,
        _ => return None,
    })
}

/// What servers send must not steer the terminal: control characters and those that turn the
/// direction of writing are shown by their number.
pub fn clean(text: &str) -> String {
    let harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
    };
    if !text.chars().any(harmful) {
        return text.to_owned();
    }
    text.chars().fold(String::with_capacity(text.len()), |mut clean, c| {
        if harmful(c) {
            clean.extend(c.escape_unicode());
        } else {
            clean.push(c);
        }
        clean
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_by_what_is_seen() {
        let mut table = Table::new(&["NAME", "STATE", "N"]);
        table.row(["a", "Ready", "1"]);
        table.row(["本", "", "22"]);
        assert_eq!(table.render(false), "NAME   STATE   N\na      Ready   1\n本     -       22\n");
        assert_eq!(table.clone().without_headers().render(false), "a    Ready   1\n本   -       22\n");
    }

    #[test]
    fn colour_does_not_move_columns() {
        let mut table = Table::new(&["STATE", "N"]);
        table.row(["Ready", "1"]);
        assert_eq!(table.render(true), "STATE   N\n\u{1b}[32mReady\u{1b}[0m   1\n");
    }

    #[test]
    fn what_a_server_sends_cannot_steer_the_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\u{202e}\n"), "a\\u{1b}[2Jb\\u{202e}\\u{a}");
        let mut table = Table::new(&["A"]);
        table.row(["x\r\ny"]);
        assert_eq!(table.render(false), "A\nx\\u{d}\\u{a}y\n");
    }
}
