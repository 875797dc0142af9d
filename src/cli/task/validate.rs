//! `fedq task validate`: no server is needed to read a file, and its secrets go nowhere.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    input::{self, read},
    upload,
};
use crate::{
    DONE, FAILED,
    args::{Format, ValidateArgs},
    error::CliError,
    folder,
    print::Printer,
};
use fedq_domain::task::sky::{self, Allowed, NewTask, Note, Options, TaskFileError};

/// What programs read of one file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    verdict: Verdict,
    valid: bool,
    tasks: Vec<TaskLine>,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Verdict {
    Runs,
    /// Something in it has no effect here.
    RunsWithNotes,
    /// Which whoever submits it has to give.
    NeedsValues,
    Cannot,
}

impl Verdict {
    const ALL: [Self; 4] = [Self::Runs, Self::RunsWithNotes, Self::NeedsValues, Self::Cannot];

    /// As it is said of one file and of several.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Runs => ("runs as it is", "run as they are"),
            Self::RunsWithNotes => ("runs with notes", "run with notes"),
            Self::NeedsValues => ("needs values", "need values"),
            Self::Cannot => ("cannot run", "cannot run"),
        }
    }
}

/// What programs read of several.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Reports {
    files: Vec<FileReport>,
    /// How many files have each verdict.
    sum: Sum,
}

#[derive(Debug, Serialize)]
struct FileReport {
    file: String,
    #[serde(flatten)]
    report: Report,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sum {
    runs: usize,
    runs_with_notes: usize,
    needs_values: usize,
    cannot: usize,
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
    input::reads_once(
        args.paths.iter().map(PathBuf::as_path).find(|path| *path == Path::new("-")),
        &args.input,
    )?;
    let options = Options {
        envs: input::envs(&args.input).await?,
        secrets: input::secrets(&args.input).await?,
        strict: args.input.strict,
        pods: Allowed::Unknown,
        ..Options::default()
    };
    match args.paths.as_slice() {
        [file] if !file.is_dir() => one(file, options, args.output.output, printer).await,
        paths => all(paths, &options, args.output.output, printer).await,
    }
}

async fn one(
    file: &Path,
    mut options: Options,
    format: Format,
    printer: &mut Printer,
) -> Result<u8, CliError> {
    let text = read(file).await?;
    // What would be sent is looked at as well, and goes nowhere.
    options.uploads = upload::as_sent(&upload::pack_all(&text, &options).await?);
    let report = report(&text, &options);
    match format {
        Format::Json => printer.json(&report)?,
        Format::Yaml => printer.yaml(&report)?,
        Format::Name => {
            for task in &report.tasks {
                printer.line(&format!("task/{}", task.name.as_deref().unwrap_or("-")))?;
            }
        }
        Format::Table | Format::Wide => {
            print_findings(file, &report, printer)?;
            print_tasks(file, &report, printer)?;
        }
    }
    Ok(if report.valid { DONE } else { FAILED })
}

/// Of many files nobody has brought along what they name: what is not here is a note.
async fn all(
    paths: &[PathBuf],
    options: &Options,
    format: Format,
    printer: &mut Printer,
) -> Result<u8, CliError> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() { files.extend(folder::files(path)?) } else { files.push(path.clone()) }
    }
    if files.is_empty() {
        let message = "there is no file here that ends in .yaml, .yml or .json";
        return Err(CliError::usage(message, "name task files, or folders of them"));
    }
    let (mut reports, mut names) = (Vec::new(), BTreeSet::new());
    for file in files.into_iter().filter(|file| names.insert(file.clone())) {
        let text = read(&file).await?;
        let (uploads, missing) = upload::as_if_sent(&text, options);
        let mut report = report(&text, &Options { uploads, ..options.clone() });
        report.not_here(&missing);
        if matches!(format, Format::Table | Format::Wide) {
            print_findings(&file, &report, printer)?;
            printer.line(&format!("{}: {}", file.display(), report.verdict.words().0))?;
        }
        reports.push(FileReport { file: file.display().to_string(), report });
    }
    let count = |verdict| reports.iter().filter(|one| one.report.verdict == verdict).count();
    let counts = Verdict::ALL.map(count);
    let valid = reports.iter().all(|one| one.report.valid);
    match format {
        Format::Json | Format::Yaml => {
            let [runs, runs_with_notes, needs_values, cannot] = counts;
            let reports =
                Reports { files: reports, sum: Sum { runs, runs_with_notes, needs_values, cannot } };
            if format == Format::Json { printer.json(&reports)? } else { printer.yaml(&reports)? }
        }
        Format::Name => {
            for one in reports.iter().filter(|one| one.report.valid) {
                printer.line(&one.file)?;
            }
        }
        Format::Table | Format::Wide => {
            let said = Verdict::ALL.iter().zip(counts).filter(|(_, count)| 0 < *count);
            let said: Vec<_> = said
                .map(|(verdict, count)| {
                    let (one, several) = verdict.words();
                    format!("{count} {}", if count == 1 { one } else { several })
                })
                .collect();
            printer.line(&format!("Of {} files: {}", reports.len(), said.join(", ")))?;
        }
    }
    Ok(if valid { DONE } else { FAILED })
}

fn report(text: &[u8], options: &Options) -> Report {
    let findings = |notes: Vec<Note>| notes.into_iter().map(Finding::from).collect::<Vec<_>>();
    let error = match sky::read_file(text, options) {
        Ok(file) => {
            let verdict = if file.warnings.is_empty() { Verdict::Runs } else { Verdict::RunsWithNotes };
            let tasks = file.tasks.into_iter().map(TaskLine::from).collect();
            return Report {
                verdict,
                valid: true,
                tasks,
                errors: Vec::new(),
                warnings: findings(file.warnings),
            };
        }
        Err(error) => error,
    };
    let verdict = match &error {
        TaskFileError::NeedsValues(_) => Verdict::NeedsValues,
        _ => Verdict::Cannot,
    };
    Report { verdict, valid: false, tasks: Vec::new(), errors: findings(error.notes()), warnings: Vec::new() }
}

impl Report {
    fn not_here(&mut self, sources: &[String]) {
        let note = |source: &String| Finding {
            line: None,
            column: None,
            path: String::new(),
            message: format!(
                "there is no `{source}` here to send with the task, seen from the current folder"
            ),
        };
        self.warnings.extend(sources.iter().map(note));
        if self.verdict == Verdict::Runs && !sources.is_empty() {
            self.verdict = Verdict::RunsWithNotes;
        }
    }
}

impl From<NewTask> for TaskLine {
    fn from(NewTask { spec, .. }: NewTask) -> Self {
        Self { name: spec.name, num_nodes: spec.num_nodes, alternatives: spec.candidates.len() }
    }
}

/// A line a finding, in the form in which editors jump to it.
fn print_findings(file: &Path, report: &Report, printer: &mut Printer) -> Result<(), CliError> {
    let findings = report.errors.iter().map(|finding| ("error", finding));
    for (word, finding) in findings.chain(report.warnings.iter().map(|finding| ("warning", finding))) {
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
    Ok(())
}

fn print_tasks(file: &Path, report: &Report, printer: &mut Printer) -> Result<(), CliError> {
    for task in &report.tasks {
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
