//! The command line: parse, resolve, run, print. It knows the shapes of `wire` and nothing of the
//! daemon's inside.

mod age;
mod app_wrapper;
mod args;
mod audit;
mod capacity;
mod check;
mod claim;
mod claim_diff;
mod claim_edit;
mod claim_text;
mod client;
mod cluster;
mod complete;
#[cfg(feature = "demo")]
mod demo;
mod editor;
mod error;
mod fleet;
mod folder;
mod kueue;
mod list;
mod login;
mod man;
mod merge;
mod placement;
mod print;
mod quota;
mod settings;
mod table;
mod task;
#[cfg(test)]
mod tests;
mod volume;

use std::{ffi::OsString, path::Path, process::ExitCode};

use clap::{CommandFactory, FromArgMatches};

use self::{
    args::{Cli, Command, Connection, Format, VersionArgs},
    client::Api,
    error::CliError,
    print::Printer,
};
use fedq_wire::Version;

/// The usual end.
const DONE: u8 = 0;
const FAILED: u8 = 1;
/// What was typed makes no sense; clap's own.
const USAGE: u8 = 2;
/// As the shell reports a program that SIGPIPE ended.
const BROKEN_PIPE: u8 = 141;
/// As the shell reports a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// What commands work with.
pub struct Session {
    connection: Connection,
    printer: Printer,
    api: Option<Api>,
}

impl Session {
    /// The server, found when it is first needed.
    fn api(&mut self) -> Result<&Api, CliError> {
        Ok(self.both()?.0)
    }

    fn both(&mut self) -> Result<(&Api, &mut Printer), CliError> {
        if self.api.is_none() {
            self.api = Some(Api::new(&settings::resolve(&self.connection)?)?);
        }
        let api = self.api.as_ref().expect("it was made above");
        Ok((api, &mut self.printer))
    }
}

/// Runs the command line given in `arguments`, the first of which is the program's own path.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(code) = complete::run_if_called(&arguments).or_else(|| kueue::run_if_called(&arguments)) {
        return code;
    }
    let command = command(arguments.first().map(Path::new));
    let (own, kueues) = kueue::split(&arguments).unwrap_or((&arguments, &[]));
    let parsed = command
        .try_get_matches_from(own)
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, kueue::check(&matches, kueues))));
    let (cli, checked) = match parsed {
        Ok(parsed) => parsed,
        // Help goes to stdout with 0, mistakes to stderr with 2.
        Err(error) => {
            let printed = error.print();
            return ExitCode::from(if printed.is_err() {
                FAILED
            } else {
                u8::try_from(error.exit_code()).unwrap_or(USAGE)
            });
        }
    };
    let mut printer = Printer::terminal(cli.connection.color);
    if let Command::Kueue(_) = &cli.command {
        let Err(error) = checked else { return kueue::run(kueues, cli.connection) };
        printer.error(&error);
        return ExitCode::from(USAGE);
    }
    let mut session = Session { connection: cli.connection, printer, api: None };
    let mut runtime = match cli.command {
        // A daemon and four API servers run in it.
        #[cfg(feature = "demo")]
        Command::Demo(_) => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = runtime.enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(dispatch(cli.command, &mut session)),
        Err(source) => Err(CliError::Failed { message: format!("cannot start: {source}"), next: None }),
    };
    session.printer.done();
    ExitCode::from(match outcome {
        Ok(code) => code,
        Err(error) if error.is_broken_pipe() => BROKEN_PIPE,
        Err(error) => {
            session.printer.error(&error);
            if matches!(error, CliError::Usage { .. }) { USAGE } else { FAILED }
        }
    })
}

/// The command's definition; as a kubectl plugin it names itself the way it was called.
fn command(program: Option<&Path>) -> clap::Command {
    let plugin = program.and_then(Path::file_stem).is_some_and(|name| name == "kubectl-fedq");
    let command = Cli::command();
    if plugin {
        command.name("kubectl-fedq").bin_name("kubectl fedq").display_name("kubectl fedq")
    } else {
        command
    }
}

async fn dispatch(command: Command, session: &mut Session) -> Result<u8, CliError> {
    match command {
        Command::Login(args) => login::run(args, session).await,
        Command::Cluster(command) => cluster::run(command, session).await,
        Command::Claim(command) => claim::run(command, session).await,
        Command::Capacity(args) => capacity::run(args, session).await,
        Command::Quota(command) => quota::run(command, session).await,
        Command::Task(command) => task::run(command, session).await,
        Command::AppWrapper(command) => app_wrapper::run(command, session).await,
        Command::Volume(command) => volume::run(command, session).await,
        Command::Placement(command) => placement::run(command, session).await,
        Command::Audit(command) => audit::run(command, session).await,
        Command::Check(args) => check::run(args, session).await,
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::run(args, session).await,
        // It has a runtime of its own, and was run before this one began.
        Command::Kueue(_) => Ok(DONE),
        Command::Version(args) => version(args, session).await,
        Command::Completion(args) => {
            session.printer.raw(complete::script(args.shell).as_bytes())?;
            Ok(DONE)
        }
        Command::Man(args) => man::run(&args, session),
    }
}

async fn version(args: VersionArgs, session: &mut Session) -> Result<u8, CliError> {
    let client = env!("CARGO_PKG_VERSION").to_owned();
    if matches!(args.output.output, Format::Table | Format::Wide | Format::Name) {
        // First, so that it is told whatever the server does.
        session.printer.line(&format!("Client: {client}"))?;
    }
    let asked = if args.client { None } else { Some(server_version(session).await) };
    let (server, failed) = match asked {
        None => (None, None),
        Some(Ok(version)) => (Some(version), None),
        Some(Err(error)) => (None, Some(error)),
    };
    let versions = serde_json::json!({"client": client, "server": server});
    match (args.output.output, &server) {
        (Format::Json, _) => session.printer.json(&versions)?,
        (Format::Yaml, _) => session.printer.yaml(&versions)?,
        (_, Some(server)) => session.printer.line(&format!("Server: {server}"))?,
        (_, None) => {}
    }
    failed.map_or(Ok(DONE), Err)
}

async fn server_version(session: &mut Session) -> Result<String, CliError> {
    Ok(session.api()?.get::<Version>("/version").await?.version)
}
