//! `fedq appwrapper …`: handed in and made here; all else is what is asked of a task.

use std::path::{Path, PathBuf};

use super::{
    DONE, Session,
    args::{
        AppWrapperCommand, AppWrapperPlace, AppWrapperSubmitArgs, AppWrapperWrapArgs, Format, LogsArgs,
        Output,
    },
    error::CliError,
    task,
};
use fedq_domain::task::{names::TaskId, sky::TaskFileError, wrapped::wrap};
use fedq_wire::task::{SubmitAppWrapper, Submitted};

pub async fn run(command: AppWrapperCommand, session: &mut Session) -> Result<u8, CliError> {
    match command {
        AppWrapperCommand::Submit(args) => {
            let AppWrapperSubmitArgs { file, place, output } = args;
            let text = text(&file, task::input::read(&file).await?)?;
            submit((text, place), output, session).await
        }
        AppWrapperCommand::Wrap(args) => wrap_files(args, session).await,
        AppWrapperCommand::List(args) => {
            task::show::list(args, Some("appWrapper"), session).await.map(|()| DONE)
        }
        AppWrapperCommand::Status(args) => task::show::status(&args, session).await.map(|()| DONE),
        AppWrapperCommand::Explain(args) => task::show::explain(&args, session).await.map(|()| DONE),
        AppWrapperCommand::Logs(args) => task::logs::run(&args, session).await,
        AppWrapperCommand::Stop(args) => task::stop::run(args, session).await,
    }
}

fn text(file: &Path, bytes: Vec<u8>) -> Result<String, CliError> {
    String::from_utf8(bytes).map_err(|_| {
        CliError::usage(format!("`{}` is not UTF-8 text", file.display()), "give a manifest in YAML or JSON")
    })
}

async fn submit(
    (file, place): (String, AppWrapperPlace),
    output: Output,
    session: &mut Session,
) -> Result<u8, CliError> {
    let AppWrapperPlace { queue, cluster, max_duration, unwrap, detach, dry_run } = place;
    let id = Some(TaskId::draw(fastrand::u64(..)).to_string());
    let asked = SubmitAppWrapper { file, id, queue, cluster, max_duration, unwrap };
    let (api, printer) = session.both()?;
    let path = if dry_run { "/appwrappers?dryRun=All" } else { "/appwrappers" };
    let submitted: Submitted = task::submit::send(api, path, &asked, printer).await?;
    for warning in &submitted.warnings {
        printer.warning(warning);
    }
    let Submitted { id, name, namespace, queue, clusters, .. } = &submitted;
    match output.output {
        Format::Json => printer.json(&submitted)?,
        Format::Yaml => printer.yaml(&submitted)?,
        Format::Name if dry_run => {}
        Format::Name => printer.line(&format!("appwrapper/{id}"))?,
        Format::Table | Format::Wide if dry_run => {
            task::show::print_verdicts(clusters, output, printer)?;
            printer.note(&format!("{name} is valid; nothing was submitted (dry run)"));
        }
        Format::Table | Format::Wide => {
            printer.line(&format!("appwrapper {id} submitted"))?;
            let queue = queue.as_deref().unwrap_or("-");
            printer.note(&format!("{name} waits in queue {queue} of namespace {namespace}"));
            if detach {
                task::logs::next(id, printer);
                return Ok(DONE);
            }
            let args = LogsArgs::whole(submitted.id);
            return task::logs::run(&args, session).await;
        }
    }
    Ok(DONE)
}

async fn wrap_files(args: AppWrapperWrapArgs, session: &mut Session) -> Result<u8, CliError> {
    let AppWrapperWrapArgs { files, name, submit: wanted, place, output } = args;
    let mut read = Vec::new();
    for file in &files {
        for file in manifests(file)? {
            read.push((file.display().to_string(), task::input::read(&file).await?));
        }
    }
    let files = read.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    let wrapped = wrap(name.as_deref(), files).map_err(|error| refused(&error))?;
    if wanted {
        return submit((wrapped.to_string(), place), output, session).await;
    }
    match output.output {
        Format::Json => session.printer.json(&wrapped)?,
        Format::Table | Format::Wide | Format::Yaml => session.printer.yaml(&wrapped)?,
        Format::Name => {
            let name = wrapped["metadata"]["name"].as_str().unwrap_or_default();
            session.printer.line(&format!("appwrapper/{name}"))?;
        }
    }
    Ok(DONE)
}

fn refused(error: &TaskFileError) -> CliError {
    let notes: Vec<String> = error.notes().iter().map(ToString::to_string).collect();
    let next = "put these right, or leave them out";
    CliError::Failed {
        message: format!("cannot be wrapped: {}", notes.join("; ")),
        next: Some(next.to_owned()),
    }
}

/// The file itself, or the manifests of a folder by name.
fn manifests(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |source| CliError::Read { path: path.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let suffix = file.extension().and_then(|suffix| suffix.to_str());
        if file.is_file() && matches!(suffix, Some("yaml" | "yml" | "json")) {
            found.push(file);
        }
    }
    found.sort();
    if found.is_empty() {
        return Err(CliError::usage(
            format!("no file in `{}` ends in .yaml, .yml or .json", path.display()),
            "name a folder with manifests",
        ));
    }
    Ok(found)
}
