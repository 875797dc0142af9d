//! Walking a tree by the names of its fields: whatever is not asked for is reported, so that nothing a
//! person wrote is dropped in silence.

use std::{collections::BTreeMap, fmt};

use crate::{
    nearest::nearest,
    task::yaml::{Key, Node, Place, Scalar, Value, shown},
};

/// What people write for a field, where no letters say which they mean.
const SYNONYMS: [(&str, &str); 3] = [("nodes", "num_nodes"), ("replicas", "num_nodes"), ("command", "run")];

/// Something about one part of a task file.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Note {
    pub place: Option<Place>,
    /// `resources.any_of[1].cpus`; empty for the file itself.
    pub path: String,
    pub message: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = self.place {
            write!(f, "{place}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "`{}`: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Nobody reads more, and a hostile file must not make a page of notes for each of its bytes.
const MAX_NOTES: usize = 100;

#[derive(Debug, Default)]
pub struct Notes {
    /// Each makes the task impossible.
    pub problems: Vec<Note>,
    /// Values that the file leaves to whoever submits it.
    pub missing: Vec<Note>,
    /// What has no effect, or another than the writer may think.
    pub warnings: Vec<Note>,
    /// What of the machine that the file is on is named, each once.
    pub sources: Vec<String>,
}

impl Notes {
    pub fn problem(&mut self, at: &At<'_>, message: impl Into<String>) {
        add(&mut self.problems, at.note(message.into()));
    }

    pub fn warn(&mut self, at: &At<'_>, message: impl Into<String>) {
        add(&mut self.warnings, at.note(message.into()));
    }

    pub fn needs_value(&mut self, at: &At<'_>, message: impl Into<String>) {
        add(&mut self.missing, at.note(message.into()));
    }

    pub fn source(&mut self, source: &str) {
        if !self.sources.iter().any(|known| known == source) {
            self.sources.push(source.to_owned());
        }
    }
}

fn add(notes: &mut Vec<Note>, note: Note) {
    if notes.len() < MAX_NOTES && !notes.contains(&note) {
        notes.push(note);
    }
}

/// A node with the path that leads to it.
#[derive(Clone, Debug)]
pub struct At<'a> {
    pub node: &'a Node,
    pub place: Option<Place>,
    pub path: String,
}

impl<'a> At<'a> {
    pub fn root(node: &'a Node) -> Self {
        Self { node, place: node.place, path: String::new() }
    }

    fn note(&self, message: String) -> Note {
        Note { place: self.place, path: self.path.clone(), message }
    }

    fn below(&self, key: &Key, node: &'a Node) -> Self {
        let name = shown(&key.text);
        let simple = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        let path = match (self.path.as_str(), simple) {
            ("", true) => name,
            (path, true) => format!("{path}.{name}"),
            (path, false) => format!("{path}[\"{name}\"]"),
        };
        Self { node, place: key.place.or(node.place), path }
    }

    pub fn is_null(&self) -> bool {
        self.node.is_null()
    }

    pub fn scalar(&self) -> Option<&'a Scalar> {
        match &self.node.value {
            Value::Scalar(scalar) if !scalar.is_null() => Some(scalar),
            Value::Scalar(_) | Value::List(_) | Value::Map(_) => None,
        }
    }

    pub fn is_map(&self) -> bool {
        matches!(self.node.value, Value::Map(_))
    }

    pub fn is_list(&self) -> bool {
        matches!(self.node.value, Value::List(_))
    }

    fn kind(&self) -> &'static str {
        match &self.node.value {
            Value::Scalar(scalar) if scalar.is_null() => "nothing",
            Value::Scalar(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    pub fn wrong(&self, notes: &mut Notes, wanted: &str) {
        notes.problem(self, format!("this takes {wanted}, not {}", self.kind()));
    }

    /// A text, as it was written. Numbers and truth values are texts too.
    pub fn text(&self, notes: &mut Notes) -> Option<&'a str> {
        match self.scalar() {
            Some(scalar) if scalar.text.contains('\0') => {
                notes.problem(self, "the text contains a NUL character, which no program can be given");
                None
            }
            Some(scalar) => Some(&scalar.text),
            None => {
                self.wrong(notes, "a text");
                None
            }
        }
    }

    pub fn whole(&self, notes: &mut Notes) -> Option<i64> {
        let text = self.text(notes)?;
        let number = text.trim().parse().ok();
        if number.is_none() {
            notes.problem(self, format!("`{}` is not a whole number", shown(text)));
        }
        number
    }

    /// SkyPilot reads YAML 1.1, where `yes` and `off` are truth values.
    pub fn boolean(&self, notes: &mut Notes) -> Option<bool> {
        let text = self.text(notes)?;
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Some(true),
            "false" | "no" | "off" => Some(false),
            _ => {
                notes.problem(self, format!("`{}` is neither true nor false", shown(text)));
                None
            }
        }
    }

    /// Nothing is an empty list.
    pub fn list(&self, notes: &mut Notes) -> Vec<At<'a>> {
        let items = match &self.node.value {
            Value::List(items) => items,
            Value::Scalar(scalar) if scalar.is_null() => return Vec::new(),
            Value::Scalar(_) | Value::Map(_) => {
                self.wrong(notes, "a list");
                return Vec::new();
            }
        };
        let item = |(index, node): (usize, &'a Node)| At {
            node,
            place: node.place.or(self.place),
            path: format!("{}[{index}]", self.path),
        };
        items.iter().enumerate().map(item).collect()
    }

    /// The entries of a map whose keys are the writer's own. Nothing is an empty map.
    pub fn entries(&self, notes: &mut Notes) -> Vec<(&'a str, At<'a>)> {
        match &self.node.value {
            Value::Map(entries) => {
                entries.iter().map(|(key, node)| (&*key.text, self.below(key, node))).collect()
            }
            Value::Scalar(scalar) if scalar.is_null() => Vec::new(),
            Value::Scalar(_) | Value::List(_) => {
                self.wrong(notes, "a map");
                Vec::new()
            }
        }
    }

    /// A map of texts.
    pub fn texts(&self, notes: &mut Notes) -> BTreeMap<String, String> {
        let entries = self.entries(notes).into_iter();
        entries.filter_map(|(key, at)| Some((key.to_owned(), at.text(notes)?.to_owned()))).collect()
    }

    /// A map whose keys are known.
    pub fn fields(&self, notes: &mut Notes) -> Fields<'a> {
        let left = self.entries(notes);
        Fields { left, asked: Vec::new() }
    }
}

/// The fields of a map. [`Fields::finish`] reports what was not taken.
#[derive(Debug)]
#[must_use]
pub struct Fields<'a> {
    left: Vec<(&'a str, At<'a>)>,
    asked: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The field, unless it is left out or empty.
    pub fn take(&mut self, name: &'static str) -> Option<At<'a>> {
        self.take_even_null(name).filter(|at| !at.is_null())
    }

    pub fn take_even_null(&mut self, name: &'static str) -> Option<At<'a>> {
        self.asked.push(name);
        let index = self.left.iter().position(|(key, _)| *key == name)?;
        Some(self.left.remove(index).1)
    }

    /// Known to SkyPilot, without effect here.
    pub fn ignore(&mut self, notes: &mut Notes, name: &'static str, why: &str) {
        if let Some(at) = self.take(name) {
            notes.warn(&at, format!("has no effect: {why}"));
        }
    }

    /// Known to SkyPilot; a task that needs it cannot be run here.
    pub fn refuse(&mut self, notes: &mut Notes, name: &'static str, why: &str) {
        if let Some(at) = self.take(name) {
            notes.problem(&at, why);
        }
    }

    /// What is left is nobody's field.
    pub fn finish(self, notes: &mut Notes) {
        for (key, at) in self.left.into_iter().take(MAX_NOTES) {
            let key = shown(key);
            let synonym =
                SYNONYMS.iter().find(|(written, meant)| *written == key && self.asked.contains(meant));
            let near = || nearest(&key, self.asked.iter().copied());
            let message = match synonym.map(|(_, meant)| *meant).or_else(near) {
                Some(name) => format!("there is no field `{key}` here; did you mean `{name}`?"),
                None => format!("there is no field `{key}` here"),
            };
            notes.problem(&at, message);
        }
    }

    /// What is left would be missing from the task.
    pub fn refuse_rest(self, notes: &mut Notes, why: &str) {
        for (_, at) in self.left {
            notes.problem(&at, why);
        }
    }

    /// What is left may be anybody's, but has no effect.
    pub fn finish_open(self, notes: &mut Notes, why: &str) {
        for (_, at) in self.left {
            notes.warn(&at, format!("has no effect: {why}"));
        }
    }
}
