//! Finds the command in a command line and reads its flags, by the rules of pflag and cobra: flags may stand anywhere, `-ojson`
//! and `-o=json` are one, and errors have those libraries' words.

use std::collections::BTreeMap;

use crate::command::{Flag, FlagKind, Path, Tree};

/// What the flags of a command line say. Flags that were not given have their defaults.
#[derive(Debug, Default)]
pub struct Given {
    values: BTreeMap<String, Vec<String>>,
    /// The command's objects live in namespaces: it has `--all-namespaces`.
    pub namespaced: bool,
    pub arguments: Vec<String>,
}

impl Given {
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The last value given.
    pub fn text(&self, name: &str) -> &str {
        self.values.get(name).and_then(|values| values.last()).map_or("", String::as_str)
    }

    pub fn is(&self, name: &str) -> bool {
        self.text(name) == "true"
    }

    pub fn all(&self, name: &str) -> &[String] {
        self.values.get(name).map_or(&[], Vec::as_slice)
    }

    /// The pairs of a flag of `key=value,…`, of equal keys the last.
    pub fn pairs(&self, name: &str) -> BTreeMap<String, String> {
        let pairs = self.all(name).iter().filter_map(|pair| pair.split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}

/// The command that a line asks for and the line without its words, or the error that cobra has for it.
pub fn find(line: &[String], tree: Tree) -> Result<(Path, Vec<String>), (Path, String)> {
    let mut path = Path::root(tree);
    let mut rest = line.to_vec();
    while let Some(at) = first_word(&rest, &path.flags()) {
        let Some(next) = path.below(&rest[at]) else { break };
        rest.remove(at);
        path = next;
    }
    let unknown = first_word(&rest, &path.flags()).filter(|_| path.is_root());
    match unknown {
        Some(at) => Err((path, rest[at].clone())),
        None => Ok((path, rest)),
    }
}

/// Where the first word stands that is neither a flag nor a flag's value.
pub fn first_word(line: &[String], flags: &[Flag]) -> Option<usize> {
    let mut at = 0;
    while at < line.len() {
        let word = line[at].as_str();
        match word {
            "--" => return None,
            _ if takes_next(word, flags) => at += 2,
            _ if word.is_empty() || word.starts_with('-') => at += 1,
            _ => return Some(at),
        }
    }
    None
}

/// A flag that is not known is taken for one with a value.
pub fn takes_next(word: &str, flags: &[Flag]) -> bool {
    if word.contains('=') {
        return false;
    }
    match word.strip_prefix("--") {
        Some(name) => {
            flags.iter().find(|flag| flag.name == name).is_none_or(|flag| flag.kind != FlagKind::Bool)
        }
        None => word.strip_prefix('-').is_some_and(|short| {
            short.len() == 1
                && flags
                    .iter()
                    .find(|flag| flag.short == short)
                    .is_none_or(|flag| flag.kind != FlagKind::Bool)
        }),
    }
}

/// Reads `line`. With `lenient`, flags that are not known are left out, as by commands that hand their line on.
pub fn parse(line: &[String], flags: &[Flag], lenient: bool) -> Result<Given, String> {
    let mut reader = Reader { rest: line, flags, lenient, given: Given::default() };
    while let Some((word, rest)) = reader.rest.split_first() {
        reader.rest = rest;
        if word == "--" {
            reader.given.arguments.extend_from_slice(rest);
            break;
        } else if let Some(long) = word.strip_prefix("--") {
            reader.long(long)?;
        } else if let Some(short) = word.strip_prefix('-').filter(|short| !short.is_empty()) {
            reader.shorts(short)?;
        } else {
            reader.given.arguments.push(word.clone());
        }
    }
    for flag in flags.iter().filter(|flag| flag.kind == FlagKind::Bool || flag.kind == FlagKind::String) {
        if !flag.default.is_empty() && !reader.given.has(&flag.name) {
            reader.given.values.insert(flag.name.clone(), vec![flag.default.clone()]);
        }
    }
    reader.given.namespaced = flags.iter().any(|flag| flag.name == "all-namespaces");
    Ok(reader.given)
}

struct Reader<'a> {
    rest: &'a [String],
    flags: &'a [Flag],
    lenient: bool,
    given: Given,
}

impl Reader<'_> {
    fn long(&mut self, word: &str) -> Result<(), String> {
        if word.starts_with(['-', '=']) {
            return Err(format!("bad flag syntax: --{word}"));
        }
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let Some(flag) = self.flags.iter().find(|flag| flag.name == name) else {
            return if self.lenient {
                self.skip_value(value.is_some());
                Ok(())
            } else {
                Err(format!("unknown flag: --{name}"))
            };
        };
        let value = match value {
            Some(value) => value.to_owned(),
            None if flag.kind == FlagKind::Bool => "true".to_owned(),
            None => self.next().ok_or_else(|| format!("flag needs an argument: --{name}"))?,
        };
        self.set(flag, &value)
    }

    /// `-A`, `-ojson`, `-o=json`, `-o json`, `-yA`.
    fn shorts(&mut self, word: &str) -> Result<(), String> {
        let mut rest = word;
        while let Some(letter) = rest.chars().next() {
            let after = &rest[letter.len_utf8()..];
            let Some(flag) = self.flags.iter().find(|flag| flag.short.chars().eq([letter])) else {
                if !self.lenient {
                    return Err(format!("unknown shorthand flag: '{letter}' in -{rest}"));
                }
                let valued = after.starts_with('=') && after.len() > 1;
                self.skip_value(valued);
                rest = if valued { "" } else { after };
                continue;
            };
            let (value, next) = match after.strip_prefix('=').filter(|value| !value.is_empty()) {
                Some(value) => (value.to_owned(), ""),
                None if flag.kind == FlagKind::Bool => ("true".to_owned(), after),
                None if !after.is_empty() => (after.to_owned(), ""),
                None => {
                    let missing = || format!("flag needs an argument: '{letter}' in -{rest}");
                    (self.next().ok_or_else(missing)?, "")
                }
            };
            self.set(flag, &value)?;
            rest = next;
        }
        Ok(())
    }

    fn next(&mut self) -> Option<String> {
        let (value, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(value.clone())
    }

    fn skip_value(&mut self, valued: bool) {
        if !valued && self.rest.first().is_some_and(|next| !next.starts_with('-')) {
            self.rest = &self.rest[1..];
        }
    }

    fn set(&mut self, flag: &Flag, value: &str) -> Result<(), String> {
        let values = values(flag.kind, value).map_err(|reason| {
            let short = if flag.short.is_empty() { String::new() } else { format!("-{}, ", flag.short) };
            format!("invalid argument {value:?} for \"{short}--{}\" flag: {reason}", flag.name)
        })?;
        self.given.values.entry(flag.name.clone()).or_default().extend(values);
        Ok(())
    }
}

fn values(kind: FlagKind, value: &str) -> Result<Vec<String>, String> {
    match kind {
        FlagKind::Bool => Ok(vec![boolean(value)?.to_string()]),
        FlagKind::String | FlagKind::StringArray => Ok(vec![value.to_owned()]),
        FlagKind::StringSlice if value.is_empty() => Ok(Vec::new()),
        FlagKind::StringSlice => fields(value),
        FlagKind::StringToString => pairs(value),
        FlagKind::BoolSlice => {
            let bare = value.replace(['"', '\'', '`'], "");
            fields(&bare)?.iter().map(|value| Ok(boolean(value.trim())?.to_string())).collect()
        }
    }
}

fn boolean(value: &str) -> Result<bool, String> {
    match value {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!("strconv.ParseBool: parsing {value:?}: invalid syntax")),
    }
}

fn pairs(value: &str) -> Result<Vec<String>, String> {
    let pairs = match value.matches('=').count() {
        0 => return Err(format!("{value} must be formatted as key=value")),
        1 => vec![value.trim_matches('"').to_owned()],
        _ => fields(value)?,
    };
    match pairs.iter().find(|pair| !pair.contains('=')) {
        Some(pair) => Err(format!("{pair} must be formatted as key=value")),
        None => Ok(pairs),
    }
}

/// The fields of a line of CSV.
fn fields(line: &str) -> Result<Vec<String>, String> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let (field, after) = if let Some(quoted) = rest.strip_prefix('"') {
            quoted_field(quoted, line)?
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            if let Some(quote) = rest[..end].find('"') {
                let column = line.len() - rest.len() + quote + 1;
                return Err(format!("parse error on line 1, column {column}: bare \" in non-quoted-field"));
            }
            (rest[..end].to_owned(), &rest[end..])
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Ok(fields),
        }
    }
}

fn quoted_field<'a>(text: &'a str, line: &str) -> Result<(String, &'a str), String> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let column = |rest: &str| line.len() - rest.len() + 1;
        let Some(quote) = rest.find('"') else {
            return Err(format!(
                "parse error on line 1, column {}: extraneous or missing \" in quoted-field",
                column("")
            ));
        };
        field.push_str(&rest[..quote]);
        let after = &rest[quote + 1..];
        match after.chars().next() {
            Some('"') => {
                field.push('"');
                rest = &after[1..];
            }
            None | Some(',') => return Ok((field, after)),
            Some(_) => {
                let at = column(&rest[quote..]);
                return Err(format!(
                    "parse error on line 1, column {at}: extraneous or missing \" in quoted-field"
                ));
            }
        }
    }
}
