//! KYAML: YAML with braces, quotes and commas, as kubectl prints it (KEP-5295).

use serde_json::Value;
use std::fmt::Write as _;

use crate::yaml::looks_like_another_type;

pub fn kyaml(value: &Value) -> String {
    let mut text = "---\n".to_owned();
    render(value, 0, &mut text);
    text.push('\n');
    text
}

fn render(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::String(text) => quoted(text, indent + 1, out),
        Value::Object(entries) if entries.is_empty() => out.push_str("{}"),
        Value::Object(entries) => {
            out.push_str("{\n");
            for (key, value) in entries {
                pad(indent + 1, out);
                write_key(key, out);
                out.push_str(": ");
                render(value, indent + 1, out);
                out.push_str(",\n");
            }
            pad(indent, out);
            out.push('}');
        }
        Value::Array(items) if items.is_empty() => out.push_str("[]"),
        // Lists of nothing but lists and maps stand close together.
        Value::Array(items) if items.iter().all(|item| item.is_object() || item.is_array()) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if 0 < index {
                    out.push_str(", ");
                }
                render(item, indent, out);
            }
            out.push(']');
        }
        Value::Array(items) => {
            out.push_str("[\n");
            for item in items {
                pad(indent + 1, out);
                render(item, indent + 1, out);
                out.push_str(",\n");
            }
            pad(indent, out);
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}

fn write_key(key: &str, out: &mut String) {
    let letters: Vec<char> = key.chars().collect();
    let inner = |index: usize| 0 < index && index + 1 < letters.len();
    let plain = |(index, letter): (usize, &char)| {
        letter.is_alphanumeric() || *letter == '_' || inner(index) && matches!(letter, '-' | '.' | '/')
    };
    if !key.is_empty() && !looks_like_another_type(key) && letters.iter().enumerate().all(plain) {
        out.push_str(key);
    } else {
        out.push('"');
        for letter in key.chars() {
            escape(letter, out);
        }
        out.push('"');
    }
}

/// Text of several lines is folded, each line of it on a line of its own.
fn quoted(text: &str, indent: usize, out: &mut String) {
    out.push('"');
    let folded = text.contains('\n');
    if folded {
        out.push_str("\\\n");
    }
    for letter in text.chars() {
        if out.ends_with('\n') {
            pad(indent, out);
            out.push(if letter.is_whitespace() && letter != '\n' { '\\' } else { ' ' });
        }
        match letter {
            '\n' => out.push_str("\\n\\\n"),
            '\t' => out.push('\t'),
            other => escape(other, out),
        }
    }
    if folded {
        if !out.ends_with('\n') {
            out.push_str("\\\n");
        }
        pad(indent, out);
    }
    out.push('"');
}

fn escape(letter: char, out: &mut String) {
    let named = match letter {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{b}' => "\\v",
        '\0' => "\\0",
        '\u{1b}' => "\\e",
        '\u{85}' => "\\N",
        '\u{a0}' => "\\_",
        '\u{2028}' => "\\L",
        '\u{2029}' => "\\P",
        _ if letter < ' ' || letter == '\u{7f}' => {
            let _ = write!(out, "\\x{:02x}", u32::from(letter));
            return;
        }
        _ if letter.is_control() => {
            let _ = write!(out, "\\u{:04x}", u32::from(letter));
            return;
        }
        _ => {
            out.push(letter);
            return;
        }
    };
    out.push_str(named);
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', 2 * indent));
}
