//! Help, usage and suggestions, laid out as cobra does.

use crate::command::{Command, Flag, FlagKind, Path, Tree, root};
use std::fmt::Write as _;

const NARROWEST_NAME: usize = 11;

/// What `--help` prints.
pub fn help(path: &Path, program: &str) -> String {
    let command = path.command();
    let about = if command.long.is_empty() { &command.short } else { &command.long };
    format!("{}\n\n{}", about.trim_end(), usage(path, program))
}

pub fn usage(path: &Path, program: &str) -> String {
    let command = path.command();
    let full = path.full(program);
    let mut text = "Usage:".to_owned();
    if command.runnable {
        let _ = write!(text, "\n  {}", use_line(path, program));
    }
    if !command.commands.is_empty() {
        let _ = write!(text, "\n  {full} [command]");
    }
    if !command.aliases.is_empty() {
        let _ = write!(text, "\n\nAliases:\n  {}, {}", command.name(), command.aliases.join(", "));
    }
    if !command.example.is_empty() {
        let _ = write!(text, "\n\nExamples:\n{}", command.example);
    }
    if !command.commands.is_empty() {
        text += "\n\nAvailable Commands:";
        let below = below(command);
        let width = below.iter().map(|(name, _)| name.len()).fold(NARROWEST_NAME, usize::max);
        for (name, short) in below {
            let _ = write!(text, "\n  {name:width$} {short}");
        }
    }
    let _ = write!(text, "\n\nFlags:\n{}", flag_lines(&path.local_flags()));
    let inherited = path.inherited_flags();
    if !inherited.is_empty() {
        let _ = write!(text, "\n\nGlobal Flags:\n{}", flag_lines(&inherited));
    }
    if !command.commands.is_empty() {
        let _ = write!(text, "\n\nUse \"{full} [command] --help\" for more information about a command.");
    }
    text + "\n"
}

/// What follows an unknown command's name.
pub fn suggestions(word: &str, tree: Tree) -> String {
    let lower = word.to_lowercase();
    let near = |command: &&Command| {
        distance(&lower, &command.name().to_lowercase()) <= 2
            || command.name().starts_with(&lower)
            || command.suggest_for.iter().any(|other| other.eq_ignore_ascii_case(word))
    };
    let names: Vec<String> =
        root(tree).commands.iter().filter(near).map(|command| format!("\t{}\n", command.name())).collect();
    if names.is_empty() { String::new() } else { format!("\n\nDid you mean this?\n{}", names.concat()) }
}

fn use_line(path: &Path, program: &str) -> String {
    let command = path.command();
    let rest = &command.usage[command.name().len()..];
    let flags = if command.plain_use || rest.contains("[flags]") { "" } else { " [flags]" };
    format!("{}{rest}{flags}", path.full(program))
}

fn below(command: &Command) -> Vec<(&str, &str)> {
    let mut below: Vec<_> =
        command.commands.iter().map(|command| (command.name(), command.short.as_str())).collect();
    below.sort_unstable();
    below
}

fn flag_lines(flags: &[Flag]) -> String {
    let flags: Vec<&Flag> = flags.iter().filter(|flag| !flag.hidden).collect();
    let heads: Vec<String> = flags.iter().map(|flag| head(flag)).collect();
    let width = heads.iter().map(String::len).max().unwrap_or(0);
    let line = |(flag, head): (&&Flag, &String)| {
        let default = match flag.kind {
            FlagKind::BoolSlice | FlagKind::StringToString => " (default [])".to_owned(),
            _ if flag.default.is_empty() => String::new(),
            FlagKind::String => format!(" (default {:?})", flag.default),
            _ => format!(" (default {})", flag.default),
        };
        format!("{head:width$}   {}{default}", flag.usage)
    };
    flags.iter().zip(&heads).map(line).collect::<Vec<_>>().join("\n")
}

fn head(flag: &Flag) -> String {
    let name = if flag.short.is_empty() {
        format!("      --{}", flag.name)
    } else {
        format!("  -{}, --{}", flag.short, flag.name)
    };
    let value = match flag.kind {
        FlagKind::Bool => "",
        FlagKind::String => " string",
        FlagKind::StringArray => " stringArray",
        FlagKind::StringSlice => " strings",
        FlagKind::StringToString => " stringToString",
        FlagKind::BoolSlice => " bools",
    };
    name + value
}

/// What `word` was most likely meant to be.
pub fn nearest<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let near = names.map(|name| (distance(word, name), name));
    near.filter(|(distance, _)| *distance <= 1 + word.len() / 3).min().map(|(_, name)| name)
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut costs: Vec<usize> = (0..=b.len()).collect();
    for (row, x) in a.chars().enumerate() {
        let mut diagonal = row;
        costs[0] = row + 1;
        for (column, y) in b.iter().enumerate() {
            let cost = (diagonal + usize::from(x != *y)).min(costs[column] + 1).min(costs[column + 1] + 1);
            diagonal = costs[column + 1];
            costs[column + 1] = cost;
        }
    }
    costs[b.len()]
}
