//! `fedq task validate`: no server is needed to read a file, and its secrets go nowhere.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::Path,
};

use serde::Serialize;

use super::{
    DONE, FAILED, Session,
    args::{Format, TaskCommand, ValidateArgs},
    error::CliError,
    print::Printer,
};
use crate::domain::task::{
    sky::{self, Note, Options, TaskFile},
    yaml::MAX_BYTES,
};

pub async fn run(command: TaskCommand, session: &mut Session) -> Result<u8, CliError> {
    match command {
        TaskCommand::Validate(args) => validate(&args, &mut session.printer).await,
    }
}

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

async fn validate(args: &ValidateArgs, printer: &mut Printer) -> Result<u8, CliError> {
    let text = read(&args.file).await?;
    let options = Options {
        envs: envs(args).await?,
        secrets: secrets(args)?,
        strict: args.strict,
        ..Options::default()
    };
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
        let forms = if task.alternatives == 1 { "form" } else { "forms" };
        printer.line(&format!(
            "{}: {name} is valid: {} {nodes}, {} {forms}",
            file.display(),
            task.num_nodes,
            task.alternatives
        ))?;
    }
    Ok(())
}

/// No more than can be a task: what is longer is refused by its size.
async fn read(file: &Path) -> Result<Vec<u8>, CliError> {
    let failed = |source| CliError::Read { path: file.to_owned(), source };
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = Vec::new();
    if file == Path::new("-") {
        io::stdin().lock().take(most).read_to_end(&mut text).map_err(failed)?;
    } else {
        use tokio::io::AsyncReadExt;
        let opened = tokio::fs::File::open(file).await.map_err(failed)?;
        opened.take(most).read_to_end(&mut text).await.map_err(failed)?;
    }
    Ok(text)
}

/// Those of the file, then those typed, which win.
async fn envs(args: &ValidateArgs) -> Result<BTreeMap<String, String>, CliError> {
    let mut envs = BTreeMap::new();
    if let Some(path) = &args.env_file {
        let text = read(path).await?;
        let text = String::from_utf8_lossy(&text);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let (name, value) = pair(line.strip_prefix("export ").unwrap_or(line), "--env-file")?;
            envs.insert(name, unquoted(&value).to_owned());
        }
    }
    for text in &args.envs {
        envs.extend([pair(text, "-e")?]);
    }
    Ok(envs)
}

fn secrets(args: &ValidateArgs) -> Result<BTreeMap<String, String>, CliError> {
    let mut secrets = BTreeMap::new();
    for text in &args.secrets {
        let (name, value) = pair(text, "--secret")?;
        let value = if value == "-" { from_environment(&name)? } else { value };
        secrets.insert(name, value);
    }
    Ok(secrets)
}

/// What is typed stands in the shell's history and in the list of processes; the environment does not.
fn from_environment(name: &str) -> Result<String, CliError> {
    let value = std::env::var_os(name).and_then(|value| value.into_string().ok());
    value.ok_or_else(|| {
        CliError::usage(format!("the environment has no text {name}"), format!("export {name}=… before"))
    })
}

/// The value is never repeated: it may be a secret.
fn pair(text: &str, flag: &str) -> Result<(String, String), CliError> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(CliError::usage(format!("{flag} takes NAME=VALUE"), "put a = between name and value")),
    }
}

fn unquoted(value: &str) -> &str {
    let inside = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(value)
}
