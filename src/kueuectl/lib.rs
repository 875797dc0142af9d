//! kueuectl's commands, as a drop-in: the same command lines give the same standard output, standard error and exit code. As
//! `fedq kueue` they also ask clusters that a daemon knows (`fleet.rs`).
//!
//! Commands and flags are data (`commands.json`), objects have the shape of Kueue's Go types (`types.json`). What differs from
//! kueuectl 0.19 on purpose is listed in `tests/differences.yaml`. Streams, clock, environment and client are given from
//! outside: nothing here knows a terminal or a process, but for `kubectl`, which takes this program's place.

mod api;
mod cause;
mod cluster_queue;
pub mod command;
mod complete;
mod create;
mod delete;
mod discovery;
mod error;
mod flags;
mod fleet;
mod gotemplate;
mod jsonpath;
mod jsonpath_parse;
mod kubeconfig;
mod kyaml;
mod list;
mod list_pods;
mod list_queues;
mod list_workload;
mod move_across;
mod move_back;
mod move_checks;
mod move_marks;
mod move_workload;
mod output;
mod passthrough;
mod process;
mod resource;
mod resource_flavor;
mod selector;
mod session;
mod stop;
mod table;
mod top;
mod typed;
mod usage;
mod version;
mod watch;
mod workload;
mod yaml;

use std::ffi::OsString;

pub use complete::script as completion_script;
pub use fleet::{Fleet, Later, Place, Tell};
pub use kube::{Client, client::Body};
pub use process::process;
pub use session::World;

use command::{Path, Tree};
use error::Error;
use session::Session;

const DONE: u8 = 0;
const FAILED: u8 = 1;
/// What a shell adds to a signal's number for its exit code.
const OF_A_SIGNAL: u8 = 128;
/// As the shell reports a program that SIGPIPE ended.
const BROKEN_PIPE: u8 = OF_A_SIGNAL + 13;

/// How the program was called.
pub struct Called<'a> {
    /// As help names it: `kueuectl`, or `fedq kueue`.
    pub name: &'a str,
    /// What follows the name.
    pub arguments: &'a [OsString],
    /// The version to tell.
    pub version: &'a str,
}

impl Called<'_> {
    /// kueuectl's own names stand for kueuectl's own commands.
    fn tree(&self) -> Tree {
        if self.name == "kueuectl" { Tree::Kueuectl } else { Tree::Fedq }
    }
}

/// Runs one command and returns the exit code.
pub async fn run(called: &Called<'_>, world: &mut World<'_>) -> u8 {
    let outcome = dispatch(called, world).await;
    let flushed = world.output.flush();
    match outcome.and_then(|code| Ok(flushed.map(|()| code)?)) {
        Ok(code) => code,
        Err(error) if error.is_broken_pipe() => BROKEN_PIPE,
        Err(Error::Ended(signal)) => OF_A_SIGNAL + signal,
        Err(error) => {
            // Where standard error is gone, the exit code has to say it.
            let _ = writeln!(world.errors, "Error: {error}");
            FAILED
        }
    }
}

async fn dispatch(called: &Called<'_>, world: &mut World<'_>) -> Result<u8, Error> {
    let tree = called.tree();
    let line: Vec<String> =
        called.arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    if let Some((request, typed)) = line.split_first().filter(|(first, _)| first.starts_with("__complete")) {
        return complete::run(typed, request == "__complete", tree, world).await.map(|()| DONE);
    }
    let (path, rest) = match flags::find(&line, tree) {
        Ok(found) => found,
        Err((path, word)) => {
            let full = path.full(called.name);
            let suggestions = usage::suggestions(&word, tree);
            writeln!(world.errors, "Error: unknown command {word:?} for {full:?}{suggestions}")?;
            writeln!(world.errors, "Run '{full} --help' for usage.")?;
            return Ok(FAILED);
        }
    };
    let words = Words { called, path: &path };
    let given = match flags::parse(&rest, &path.flags(), passthrough::hands_on(&path)) {
        Ok(given) => given,
        Err(reason) => return words.misused(&reason, world),
    };
    if given.is("help") || !path.command().runnable {
        world.output.write_all(words.help(&path, world).as_bytes())?;
        return Ok(DONE);
    }
    if let Err(reason) =
        check_arguments(&path, &given.arguments, called.name).and_then(|()| check_required(&path, &given))
    {
        return words.misused(&reason, world);
    }
    let mut session = Session::new(given, world);
    let outcome = execute(&words, &mut session).await;
    session.tell_warnings()?;
    match outcome {
        Ok(()) if session.has_failed() => Ok(FAILED),
        outcome => outcome.map(|()| DONE),
    }
}

async fn execute(words: &Words<'_>, session: &mut Session<'_, '_>) -> Result<(), Error> {
    match words.path.names().as_str() {
        "create clusterqueue" => cluster_queue::create(session).await,
        "create localqueue" => create::local_queue(session).await,
        "create resourceflavor" => resource_flavor::create(session).await,
        "list clusterqueue" => list_queues::cluster_queues(session).await,
        "list localqueue" => list_queues::local_queues(session).await,
        "list resourceflavor" => list_queues::resource_flavors(session).await,
        "list workload" => list_workload::run(session).await,
        "list pods" => list_pods::run(session).await,
        "stop clusterqueue" => stop::cluster_queue(session, true).await,
        "stop localqueue" => stop::local_queue(session, true).await,
        "stop workload" => stop::workload(session, true).await,
        "resume clusterqueue" => stop::cluster_queue(session, false).await,
        "resume localqueue" => stop::local_queue(session, false).await,
        "resume workload" => stop::workload(session, false).await,
        "move workload" => move_workload::run(session).await,
        "top" => top::run(session).await,
        "delete workload" => delete::run(session).await,
        "version" => version::run(session, words.called.version).await,
        "help" => words.help_for(session),
        names if names.starts_with("completion ") => {
            let shell = words.path.command().name();
            let script = complete::script(shell, words.called.name, !session.given.is("no-descriptions"));
            session.print(&script)
        }
        _ => passthrough::run(words.called, session).await,
    }
}

/// What is said about commands themselves.
struct Words<'a> {
    called: &'a Called<'a>,
    path: &'a Path,
}

impl Words<'_> {
    fn help(&self, path: &Path, world: &World<'_>) -> String {
        self.with_home(&usage::help(path, self.called.name), world)
    }

    fn with_home(&self, text: &str, world: &World<'_>) -> String {
        let home = kubeconfig::home(world.variables).unwrap_or_default();
        text.replace("$HOME", &home.display().to_string()).replace("kueuectl", self.called.name)
    }

    /// A mistake on the command line, with the usage below.
    fn misused(&self, reason: &str, world: &mut World<'_>) -> Result<u8, Error> {
        let usage = self.with_home(&usage::usage(self.path, self.called.name), world);
        writeln!(world.errors, "Error: {reason}\n{usage}")?;
        Ok(FAILED)
    }

    fn help_for(&self, session: &mut Session<'_, '_>) -> Result<(), Error> {
        let mut path = self.path.up();
        for word in &session.given.arguments {
            let Some(next) = path.below(word) else {
                let topic =
                    session.given.arguments.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>();
                let usage = self.with_home(&usage::usage(&self.path.up(), self.called.name), session.world);
                // Nobody asked the root for help, so it does not have the flag yet.
                let usage: String =
                    usage.split_inclusive('\n').filter(|line| !line.contains("-h, --help")).collect();
                return session.complain(&format!("Unknown help topic [{}]\n{usage}", topic.join(" ")));
            };
            path = next;
        }
        let text = self.help(&path, session.world);
        session.print(&text)
    }
}

fn check_arguments(path: &Path, arguments: &[String], program: &str) -> Result<(), String> {
    let names = path.names();
    let single = ["create ", "stop ", "resume ", "move "].iter().any(|verb| names.starts_with(verb));
    if single && arguments.len() != 1 {
        return Err(format!("accepts 1 arg(s), received {}", arguments.len()));
    }
    match arguments.first() {
        Some(word) if names == "version" || names == "top" || names.starts_with("completion ") => {
            Err(format!("unknown command {word:?} for {:?}", path.full(program)))
        }
        _ => Ok(()),
    }
}

fn check_required(path: &Path, given: &flags::Given) -> Result<(), String> {
    let missing: Vec<String> = path
        .flags()
        .iter()
        .filter(|flag| flag.required && !given.has(&flag.name))
        .map(|flag| format!("{:?}", flag.name))
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("required flag(s) {} not set", missing.join(", "))) }
}
