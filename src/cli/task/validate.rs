//! `fedq task validate`: no server is needed to read a file, and its secrets go nowhere.

use std::path::Path;

use serde::Serialize;

use super::{
    input::{self, read},
    upload,
};
use crate::{
    DONE, FAILED,
    args::{Format, ValidateArgs},
    error::CliError,
    print::Printer,
};
use fedq_domain::task::sky::{self, Allowed, Note, Options, TaskFile};

/// What programs read.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    valid: bool,
    tasks: Vec<TaskLine>,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TaskLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    num_nodes: u32,
    /// How many forms it may take.
    alternatives: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<u32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    path: String,
    message: String,
}

impl From<Note> for Finding {
    fn from(note: Note) -> Self {
        let (line, column) = (note.place.map(|place| place.line), note.place.map(|place| place.column));
        Self { line, column, path: note.path, message: note.message }
    }
}

pub async fn run(args: &ValidateArgs, printer: &mut Printer) -> Result<u8, CliError> {
    let text = read(&args.file).await?;
    let mut options = Options {
        envs: input::envs(&args.input).await?,
        secrets: input::secrets(&args.input).await?,
        strict: args.input.strict,
        pods: Allowed::Unknown,
        ..Options::default()
    };
    // What would be sent is looked at as well, and goes nowhere.
    options.uploads = upload::as_sent(&upload::pack_all(&text, &options).await?);
    let verdict = match sky::read_file(&text, &options) {
        Ok(file) => valid(file),
        Err(error) => Verdict {
            valid: false,
            tasks: Vec::new(),
            errors: error.notes().into_iter().map(Finding::from).collect(),
            warnings: Vec::new(),
        },
    };
    match args.output.output {
        Format::Json => printer.json(&verdict)?,
        Format::Yaml => printer.yaml(&verdict)?,
        Format::Name => {
            for task in &verdict.tasks {
                printer.line(&format!("task/{}", task.name.as_deref().unwrap_or("-")))?;
            }
        }
        Format::Table | Format::Wide => print(&args.file, &verdict, printer)?,
    }
    Ok(if verdict.valid { DONE } else { FAILED })
}

fn valid(file: TaskFile) -> Verdict {
    let line = |task: sky::NewTask| TaskLine {
        name: task.spec.name,
        num_nodes: task.spec.num_nodes,
        alternatives: task.spec.candidates.len(),
    };
    Verdict {
        valid: true,
        tasks: file.tasks.into_iter().map(line).collect(),
        errors: Vec::new(),
        warnings: file.warnings.into_iter().map(Finding::from).collect(),
    }
}

/// A line a finding, in the form in which editors jump to it.
fn print(file: &Path, verdict: &Verdict, printer: &mut Printer) -> Result<(), CliError> {
    let findings = verdict.errors.iter().map(|finding| ("error", finding));
    for (word, finding) in findings.chain(verdict.warnings.iter().map(|finding| ("warning", finding))) {
        let mut line = file.display().to_string();
        if let (Some(row), Some(column)) = (finding.line, finding.column) {
            line = format!("{line}:{row}:{column}");
        }
        line = format!("{line}: {word}: ");
        if !finding.path.is_empty() {
            line = format!("{line}`{}`: ", finding.path);
        }
        printer.line(&(line + &finding.message))?;
    }
    for task in &verdict.tasks {
        let name = task.name.as_deref().unwrap_or("a task without a name");
        let nodes = if task.num_nodes == 1 { "node" } else { "nodes" };
        let mut line = format!("{}: {name} is valid: {} {nodes}", file.display(), task.num_nodes);
        // Of `any_of` and `ordered`, or of several accelerators: where there is one only, there is nothing to say.
        if 1 < task.alternatives {
            line = format!("{line}, any of {} alternatives of its resources", task.alternatives);
        }
        printer.line(&line)?;
    }
    Ok(())
}
