//! The view of one workload: what it is, its conditions and the Events about it, as lines of text.

use jiff::Timestamp;
use unicode_width::UnicodeWidthChar;

use crate::{
    shown::age,
    state::Inspected,
    workload::{Condition, Event},
};

/// What a message is set off by.
const INDENT: &str = "    ";

pub enum Line {
    Head(String),
    Plain(String),
}

/// All lines, for a screen of this width.
pub fn lines(inspected: &Inspected, width: usize, now: Timestamp) -> Vec<Line> {
    let mut lines = Vec::new();
    let since = |at: Option<Timestamp>| at.map_or("-".to_owned(), |at| age(at, now));
    match inspected.workload.rows.values().next() {
        None if inspected.workload.link.complete => {
            lines.push(Line::Plain("The workload is not there any more.".to_owned()));
        }
        None => lines.push(Line::Plain("Waiting for the workload.".to_owned())),
        Some(detail) => {
            let workload = &detail.workload;
            let facts = [
                ("Status", workload.phase.word().to_owned()),
                ("LocalQueue", workload.local_queue.clone()),
                ("Admitted by", workload.admitted_by.clone()),
                ("Job", workload.owner.clone()),
                ("Priority", workload.priority.to_string()),
                ("Age", since(workload.created)),
            ];
            let known = facts.into_iter().filter(|(_, fact)| !fact.is_empty());
            lines.extend(known.map(|(name, fact)| Line::Plain(format!("{:13}{fact}", format!("{name}:")))));
            lines.push(Line::Plain(String::new()));
            lines.push(Line::Head("CONDITIONS".to_owned()));
            if detail.conditions.is_empty() {
                lines.push(Line::Plain("None yet.".to_owned()));
            }
            for Condition { kind, status, reason, message, since: at } in &detail.conditions {
                lines.push(Line::Plain(format!("{kind}={status}  {reason}  {} ago", since(*at))));
                lines.extend(wrapped(message, width));
            }
        }
    }
    lines.push(Line::Plain(String::new()));
    lines.push(Line::Head("EVENTS".to_owned()));
    let mut events: Vec<&Event> = inspected.events.rows.values().collect();
    events.sort_by_key(|event| std::cmp::Reverse(event.last));
    if events.is_empty() {
        let known = inspected.events.link.complete;
        lines.push(Line::Plain(if known { "None." } else { "Waiting for the events." }.to_owned()));
    }
    for Event { kind, reason, message, from, times, last } in events {
        let times = if *times == 1 { String::new() } else { format!("  {times} times") };
        lines.push(Line::Plain(format!("{kind}  {reason}  {} ago  by {from}{times}", since(*last))));
        lines.extend(wrapped(message, width));
    }
    lines
}

/// A message below what it belongs to, broken between words where there are any.
fn wrapped(message: &str, width: usize) -> Vec<Line> {
    let room = width.saturating_sub(INDENT.len()).max(1);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in message.split(' ') {
        let long = width_of(word);
        if 0 < used && room < used + 1 + long {
            lines.push(String::new());
            used = 0;
        } else if 0 < used {
            push(&mut lines, ' ');
            used += 1;
        }
        for letter in word.chars() {
            let wide = letter.width().unwrap_or(0);
            if room < used + wide {
                lines.push(String::new());
                used = 0;
            }
            push(&mut lines, letter);
            used += wide;
        }
    }
    let full = lines.into_iter().filter(|line| !line.is_empty());
    full.map(|line| Line::Plain(format!("{INDENT}{line}"))).collect()
}

fn push(lines: &mut [String], letter: char) {
    if let Some(line) = lines.last_mut() {
        line.push(letter);
    }
}

fn width_of(word: &str) -> usize {
    word.chars().map(|letter| letter.width().unwrap_or(0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(message: &str, width: usize) -> Vec<String> {
        let text = |line| match line {
            Line::Head(text) | Line::Plain(text) => text.trim().to_owned(),
        };
        wrapped(message, width).into_iter().map(text).collect()
    }

    #[test]
    fn messages_break_between_words_and_long_words_anywhere() {
        assert_eq!(texts("one two three", 11), ["one two", "three"]);
        assert_eq!(texts("a nvidia.com/gpu b", 11), ["a", "nvidia.", "com/gpu", "b"]);
        assert_eq!(texts("日本語の", 8), ["日本", "語の"]);
        assert!(texts("", 80).is_empty());
        assert_eq!(texts("ab", 0), ["a", "b"]);
    }
}
