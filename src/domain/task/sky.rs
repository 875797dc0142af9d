//! SkyPilot's task files, and requests in their form, to [`NewTask`]s.
//!
//! Every field is either run, mapped to what fedq has, or named in a warning. A file is refused where a
//! task would not be what was meant: unknown fields, and parts it cannot work without.

mod changes;
mod config;
mod document;
mod pod_config;
mod reader;
mod recovery;
mod resources;
mod text;

use std::collections::BTreeMap;

pub use self::{
    changes::Changes,
    config::is_reserved,
    document::MAX_NAME,
    reader::Note,
    text::{duration, is_variable},
};
use self::{
    document::Overrides,
    reader::{At, Notes},
};
pub use super::spec::NewTask;
use super::{
    limits::Limits,
    tenant::PodRules,
    upload::Archive,
    yaml::{self, Node, YamlError},
};

/// A pipeline of more steps is a program's, and should be split up by it.
pub const MAX_TASKS: usize = 100;

/// What the file is read with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Values given beside the file: they win, and fill in what the file leaves open.
    pub envs: BTreeMap<String, String>,
    pub secrets: BTreeMap<String, String>,
    /// What was sent with the file, by what the file calls it with its variables put in.
    pub uploads: BTreeMap<String, Archive>,
    /// Of the one task of the file.
    pub changes: Changes,
    /// Its tasks are made as AppWrappers, whatever the file says.
    pub as_app_wrapper: bool,
    /// What it may ask of pods.
    pub pods: Allowed,
    /// What its tenant may take.
    pub limits: Limits,
    /// Warnings are problems.
    pub strict: bool,
}

/// What a file may ask of pods beyond what everybody may.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Allowed {
    By(PodRules),
    /// It is not known here whose task it will be: fedqd judges that when it is handed in.
    Unknown,
}

impl Default for Allowed {
    fn default() -> Self {
        Self::By(PodRules::default())
    }
}

/// What a file asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskFile {
    /// Of the pipeline.
    pub name: Option<String>,
    /// One after the other; at least one.
    pub tasks: Vec<NewTask>,
    pub warnings: Vec<Note>,
}

impl TaskFile {
    /// Gives each task the warnings that are about it; what is about none of several stands with the first.
    pub fn keep_warnings(&mut self) {
        for warning in &self.warnings {
            let about = |index: &usize| {
                let path = warning.path.strip_prefix(&path_of(*index));
                path.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            };
            let index = (0..self.tasks.len()).find(about).unwrap_or(0);
            self.tasks[index].spec.warnings.push(warning.to_string());
        }
    }
}

/// Of one of several tasks.
fn path_of(index: usize) -> String {
    format!("tasks[{index}]")
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TaskFileError {
    #[error("the task file cannot be read")]
    Yaml(#[source] YamlError),
    #[error("the task file is empty")]
    Empty,
    #[error("the task cannot be run: {}", list(.0))]
    Problems(Vec<Note>),
    /// It can be run once these are given.
    #[error("the task cannot be run: {}", list(.0))]
    NeedsValues(Vec<Note>),
}

impl TaskFileError {
    /// Each with its place.
    pub fn notes(&self) -> Vec<Note> {
        let note = |place, message| vec![Note { place, path: String::new(), message }];
        match self {
            Self::Yaml(error) => note(error.place(), error.to_string()),
            Self::Empty => note(None, self.to_string()),
            Self::Problems(notes) | Self::NeedsValues(notes) => notes.clone(),
        }
    }
}

fn list(notes: &[Note]) -> String {
    notes.iter().map(Note::to_string).collect::<Vec<_>>().join("; ")
}

/// Reads a YAML file of one task, or of several that run one after the other.
pub fn read_file(bytes: &[u8], options: &Options) -> Result<TaskFile, TaskFileError> {
    read(yaml::read_yaml(bytes).map_err(TaskFileError::Yaml)?, options)
}

/// Reads a request: one task in JSON.
pub fn read_request(bytes: &[u8], options: &Options) -> Result<TaskFile, TaskFileError> {
    read(vec![yaml::read_json(bytes).map_err(TaskFileError::Yaml)?], options)
}

/// What of the machine that the file is on its tasks need, as `workdir: .`: to be sent, and given as
/// [`Options::uploads`]. A file that cannot be read names nothing, and is refused when it is read.
pub fn sources(bytes: &[u8], options: &Options) -> Vec<String> {
    yaml::read_yaml(bytes).map(|documents| walk(documents, options).notes.sources).unwrap_or_default()
}

/// All that is found in a file.
struct Walked {
    name: Option<String>,
    /// `None`: one that cannot be run.
    tasks: Vec<Option<NewTask>>,
    notes: Notes,
}

fn walk(mut documents: Vec<Node>, options: &Options) -> Walked {
    let mut notes = Notes::default();
    let Options { envs, secrets, uploads, pods, limits, .. } = options;
    let workdir_is_here = options.changes.workdir.is_some();
    let overrides = Overrides { envs, secrets, uploads, pods, limits, workdir_is_here };
    let headed = 1 < documents.len() && document::is_header(&documents[0]);
    let name = if headed { document::header(&At::root(&documents[0]), &mut notes) } else { None };
    let rest = &mut documents[usize::from(headed)..];
    match rest {
        [task] => options.changes.apply(task),
        [_, second, ..] if options.changes != Changes::default() => {
            let message = "of several tasks it is not known which one to change; edit the file";
            notes.problem(&At::root(second), message);
        }
        _ => {}
    }
    let rest = &*rest;
    if MAX_TASKS < rest.len() {
        notes.problem(&At::root(&rest[MAX_TASKS]), format!("a pipeline has at most {MAX_TASKS} tasks"));
    }
    let read = |(index, node): (usize, &Node)| {
        let mut root = At::root(node);
        if 1 < rest.len() {
            root.path = path_of(index);
        }
        let mut task = document::task(&root, &overrides, &mut notes)?;
        task.spec.as_app_wrapper |= options.as_app_wrapper;
        Some(task)
    };
    let tasks: Vec<_> = rest.iter().take(MAX_TASKS).enumerate().map(read).collect();
    document::names_differ(rest, &tasks, &mut notes);
    if let Some(first) = rest.first() {
        let needless: Vec<_> =
            options.uploads.keys().filter(|source| !notes.sources.contains(source)).collect();
        for source in needless {
            let message = format!("`{}` was sent with the file, which does not name it", yaml::shown(source));
            notes.warn(&At::root(first), message);
        }
    }
    Walked { name, tasks, notes }
}

fn read(documents: Vec<Node>, options: &Options) -> Result<TaskFile, TaskFileError> {
    let Walked { name, tasks, notes } = walk(documents, options);
    if tasks.is_empty() {
        return Err(TaskFileError::Empty);
    }
    let Notes { mut problems, mut missing, mut warnings, .. } = notes;
    if options.strict {
        problems.append(&mut warnings);
    }
    if problems.is_empty() && !missing.is_empty() {
        missing.sort();
        return Err(TaskFileError::NeedsValues(missing));
    }
    problems.append(&mut missing);
    problems.sort();
    warnings.sort();
    let found = tasks.len();
    let tasks: Vec<NewTask> = tasks.into_iter().flatten().collect();
    if problems.is_empty() && tasks.len() == found {
        Ok(TaskFile { name, tasks, warnings })
    } else {
        Err(TaskFileError::Problems(problems))
    }
}

#[cfg(test)]
mod tests;
