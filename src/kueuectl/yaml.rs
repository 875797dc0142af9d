//! YAML as kubectl prints it: keys by name, lists not indented, long lines folded after column 80.

use std::fmt::Write as _;
use std::sync::OnceLock;

use regex::Regex;
use serde_json::Value;

use crate::typed::sorted;

/// A line is broken at the first blank after this column.
const WIDTH: usize = 80;

pub fn yaml(value: &Value) -> String {
    let mut writer = Writer { text: String::new() };
    writer.block(&sorted(value), 0);
    writer.text
}

struct Writer {
    text: String,
}

impl Writer {
    /// Something on lines of its own.
    fn block(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Object(entries) if !entries.is_empty() => {
                for (index, (key, value)) in entries.iter().enumerate() {
                    if 0 < index {
                        self.pad(indent);
                    }
                    self.scalar(key, indent, true);
                    self.text.push(':');
                    self.value(value, indent);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                for (index, item) in items.iter().enumerate() {
                    if 0 < index {
                        self.pad(indent);
                    }
                    self.text.push('-');
                    self.item(item, indent);
                }
            }
            _ => {
                self.flat(value, indent);
                self.text.push('\n');
            }
        }
    }

    /// What follows a key.
    fn value(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Object(entries) if !entries.is_empty() => {
                self.text.push('\n');
                self.pad(indent + 2);
                self.block(value, indent + 2);
            }
            // Lists stand below their key, not further in.
            Value::Array(items) if !items.is_empty() => {
                self.text.push('\n');
                self.pad(indent);
                self.block(value, indent);
            }
            _ => {
                self.text.push(' ');
                self.flat(value, indent);
                self.text.push('\n');
            }
        }
    }

    /// What follows the dash of a list.
    fn item(&mut self, item: &Value, indent: usize) {
        self.text.push(' ');
        match item {
            Value::Object(entries) if !entries.is_empty() => self.block(item, indent + 2),
            Value::Array(items) if !items.is_empty() => self.block(item, indent + 2),
            _ => self.block(item, indent),
        }
    }

    fn flat(&mut self, value: &Value, indent: usize) {
        match value {
            Value::String(text) => self.scalar(text, indent, false),
            Value::Object(_) => self.text.push_str("{}"),
            Value::Array(_) => self.text.push_str("[]"),
            other => self.text.push_str(&other.to_string()),
        }
    }

    fn pad(&mut self, indent: usize) {
        self.text.extend(std::iter::repeat_n(' ', indent));
    }

    fn column(&self) -> usize {
        self.text.chars().rev().take_while(|c| *c != '\n').count()
    }

    fn scalar(&mut self, text: &str, indent: usize, key: bool) {
        let shape = Shape::of(text);
        let style = if text.contains('\n') {
            if shape.block && !key { Style::Literal } else { Style::Double }
        } else if looks_like_another_type(text) {
            Style::Double
        } else if shape.plain && !(text.is_empty() && key) {
            Style::Plain
        } else if shape.single {
            Style::Single
        } else {
            Style::Double
        };
        match style {
            Style::Literal => self.literal(text, indent),
            Style::Plain => self.folded(text, indent, key, Style::Plain),
            Style::Single => {
                self.text.push('\'');
                self.folded(&text.replace('\'', "''"), indent, key, Style::Single);
                self.text.push('\'');
            }
            Style::Double => {
                self.text.push('"');
                self.folded(&escaped(text), indent, key, Style::Double);
                self.text.push('"');
            }
        }
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.text.push('|');
        if text.starts_with([' ', '\n']) {
            self.text.push('2');
        }
        let body = text.strip_suffix('\n');
        match body {
            None => self.text.push('-'),
            Some(body) if body.is_empty() || body.ends_with('\n') => self.text.push('+'),
            Some(_) => {}
        }
        for line in body.unwrap_or(text).split('\n') {
            self.text.push('\n');
            if !line.is_empty() {
                self.pad(indent + 2);
                self.text.push_str(line);
            }
        }
    }

    fn folded(&mut self, text: &str, indent: usize, key: bool, style: Style) {
        let letters: Vec<char> = text.chars().collect();
        let mut after_blank = false;
        let mut column = self.column();
        for (index, letter) in letters.iter().enumerate() {
            if *letter != ' ' {
                self.text.push(*letter);
                column += 1;
                after_blank = false;
                continue;
            }
            let blank_next = letters.get(index + 1) == Some(&' ');
            let inside = style == Style::Plain || 0 < index && index + 1 < letters.len();
            let breaks =
                !key && !after_blank && WIDTH < column && inside && (style == Style::Double || !blank_next);
            if breaks {
                self.text.push('\n');
                self.pad(indent + 2);
                column = indent + 2;
                if blank_next {
                    self.text.push('\\');
                    column += 1;
                }
            } else {
                self.text.push(' ');
                column += 1;
            }
            after_blank = true;
        }
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

/// In which styles a string can be written, by libyaml's analysis.
struct Shape {
    plain: bool,
    single: bool,
    block: bool,
}

impl Shape {
    fn of(text: &str) -> Self {
        let letters: Vec<char> = text.chars().collect();
        let blank = |index: usize| letters.get(index).is_none_or(|c| matches!(c, ' ' | '\t' | '\n' | '\r'));
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        for (index, letter) in letters.iter().enumerate() {
            indicators |= match letter {
                '#' => index == 0 || blank(index - 1),
                ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => {
                    index == 0
                }
                ':' => blank(index + 1),
                '?' | '-' => index == 0 && blank(1),
                _ => false,
            };
        }
        let special = letters.iter().any(|letter| !printable(*letter));
        let pair = |first: char, second: char| text.contains(&format!("{first}{second}"));
        let ends = |c: char| text.starts_with(c) || text.ends_with(c);
        let (break_space, space_break) = (pair('\n', ' '), pair(' ', '\n'));
        let odd = special || space_break;
        Self {
            plain: !indicators && !odd && !break_space && !text.contains('\n') && !ends(' '),
            single: !odd && !break_space,
            block: !odd && !text.ends_with(' '),
        }
    }
}

fn printable(letter: char) -> bool {
    matches!(letter, '\n' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && letter != '\u{feff}'
}

/// Unquoted it would be read as something other than a string.
pub fn looks_like_another_type(text: &str) -> bool {
    static OTHER: OnceLock<Regex> = OnceLock::new();
    let other = OTHER.get_or_init(|| {
        Regex::new(concat!(
            r"^(?:|~|[nN]ull|NULL|[yYnN]|[yY]es|YES|[nN]o|NO|[tT]rue|TRUE|[fF]alse|FALSE|[oO]n|ON|[oO]ff|OFF|<<",
            r"|\.(?:nan|NaN|NAN)|[-+]?\.(?:inf|Inf|INF)",
            // Integers in Go's bases, floats, times, and numbers to the base of 60.
            r"|[-+]?[1-9][0-9_]*|[-+]?0[oO]?[0-7_]*|[-+]?0[xX][0-9a-fA-F_]+|[-+]?0[bB][01_]+",
            r"|[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?",
            r"|\d{4}-\d{1,2}-\d{1,2}(?:(?:[Tt]\d{1,2}:\d{1,2}:\d{1,2}(?:\.\d+)?(?:Z|[-+]\d\d:\d\d))|(?: \d{1,2}:\d{1,2}:\d{1,2}(?:\.\d+)?))?",
            r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)$"
        ))
        .expect("it is a constant")
    });
    other.is_match(text)
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        let _ = match letter {
            '"' => out.write_str("\\\""),
            '\\' => out.write_str("\\\\"),
            '\0' => out.write_str("\\0"),
            '\u{7}' => out.write_str("\\a"),
            '\u{8}' => out.write_str("\\b"),
            '\t' => out.write_str("\\t"),
            '\n' => out.write_str("\\n"),
            '\u{b}' => out.write_str("\\v"),
            '\u{c}' => out.write_str("\\f"),
            '\r' => out.write_str("\\r"),
            '\u{1b}' => out.write_str("\\e"),
            '\u{85}' => out.write_str("\\N"),
            '\u{2028}' => out.write_str("\\L"),
            '\u{2029}' => out.write_str("\\P"),
            '\u{feff}' => out.write_str("\\uFEFF"),
            _ if printable(letter) => out.write_char(letter),
            _ if u32::from(letter) <= 0xff => write!(out, "\\x{:02X}", u32::from(letter)),
            _ if u32::from(letter) <= 0xffff => write!(out, "\\u{:04X}", u32::from(letter)),
            _ => write!(out, "\\U{:08X}", u32::from(letter)),
        };
    }
    out
}
