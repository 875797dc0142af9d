//! What may come next on the command line: candidates a line each, then a directive, as cobra has them. Shells ask by
//! `fedq __complete`, in the scripts of `fedq completion`; kubectl by `kubectl_complete-fedq` and `kubectl_complete-kueue`
//! behind `kubectl fedq` and `kubectl kueue`.

use std::{ffi::OsString, io::Write, path::Path, process::ExitCode, sync::mpsc, thread, time::Duration};

use clap::{Arg, ArgAction, CommandFactory, FromArgMatches};
use serde_json::Value;

use super::{
    args::{Cli, Connection, Shell},
    client::Api,
    error::CliError,
    kueue, settings,
};

/// Nobody waits longer at a prompt.
const WITHIN: Duration = Duration::from_millis(500);

/// Cobra's numbers: whether the shell completes files beside what is offered.
const FILES: &str = ":0";
const NO_FILES: &str = ":4";

/// How it is asked, as programs made with cobra are.
const DESCRIBED: &str = "__complete";
const BARE: &str = "__completeNoDesc";

/// Whether a command is how shells ask.
pub fn is_request(command: &OsString) -> bool {
    command == DESCRIBED || command == BARE
}

/// Answers if the program was called by one of kubectl's names, or as the scripts call it. What is handed over ends with the
/// word that is being typed.
pub fn run_if_called(arguments: &[OsString]) -> Option<ExitCode> {
    let (program, words) = arguments.split_first()?;
    match Path::new(program).file_stem()?.to_str()? {
        "kubectl_complete-kueue" => return Some(kueue::run_alone(&completing(DESCRIBED, words))),
        "kubectl_complete-fedq" => return Some(answer(DESCRIBED, words)),
        "kueuectl" | "kubectl-kueue" => return None,
        _ => {}
    }
    let (request, words) = words.split_first().filter(|(request, _)| is_request(request))?;
    Some(answer(if request == BARE { BARE } else { DESCRIBED }, words))
}

/// The script that a shell reads to ask.
pub fn script(shell: Shell) -> String {
    let shell = match shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
    };
    fedq_kueuectl::completion_script(shell, "fedq", true)
}

/// The line by which kueuectl's commands are asked to complete.
fn completing(request: &str, words: &[OsString]) -> Vec<OsString> {
    std::iter::once(request.into()).chain(words.iter().cloned()).collect()
}

fn answer(request: &str, words: &[OsString]) -> ExitCode {
    let texts: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let Some((partial, typed)) = texts.split_last().filter(|_| texts.len() == words.len()) else {
        return ExitCode::FAILURE;
    };
    let root = built();
    let place = Place::of(&root, typed);
    if let Some(at) = place.kueue {
        return kueue::run(&completing(request, &words[at..]), connection(&typed[..at]));
    }
    let (mut lines, directive) = match place.offer(partial) {
        Offer::Words(words) => (words, NO_FILES),
        Offer::Names(path) => (names(path, typed), NO_FILES),
        Offer::Files => (Vec::new(), FILES),
    };
    lines.retain(|line| line.starts_with(partial));
    if request == BARE {
        for line in &mut lines {
            line.truncate(line.find('\t').unwrap_or(line.len()));
        }
    }
    lines.push(directive.to_owned());
    let written = std::io::stdout().write_all((lines.join("\n") + "\n").as_bytes());
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn built() -> clap::Command {
    let mut root = Cli::command();
    root.build();
    root
}

/// What can come next.
enum Offer {
    /// With what they mean behind a tabulator.
    Words(Vec<String>),
    /// Those of the objects that the server lists there.
    Names(&'static str),
    Files,
}

/// Where in the tree of commands the typed words lead.
struct Place<'c> {
    command: &'c clap::Command,
    /// The command's names, without the program's.
    names: Vec<&'c str>,
    positionals: usize,
    /// The flag whose value comes next.
    waits: Option<&'c Arg>,
    /// How many words there are up to `kueue`, whose own words follow.
    kueue: Option<usize>,
}

impl<'c> Place<'c> {
    fn of(root: &'c clap::Command, typed: &[&str]) -> Self {
        let mut place = Self { command: root, names: Vec::new(), positionals: 0, waits: None, kueue: None };
        for (at, word) in typed.iter().enumerate() {
            place.read(word);
            if place.names == ["kueue"] {
                place.kueue = Some(at + 1);
                break;
            }
        }
        place
    }

    fn read(&mut self, word: &str) {
        if self.waits.take().is_some() {
            return;
        }
        if word.starts_with('-') && word.len() > 1 {
            self.waits = self.flag(word).filter(|flag| takes_value(flag) && !word.contains('='));
        } else if let Some(below) = self.command.find_subcommand(word) {
            self.command = below;
            self.names.push(below.get_name());
        } else {
            self.positionals += 1;
        }
    }

    /// The flag that a word names; of short ones in one word the last.
    fn flag(&self, word: &str) -> Option<&'c Arg> {
        let name = word.split('=').next().unwrap_or_default();
        let long = name.strip_prefix("--");
        let short = name.chars().next_back().filter(|_| long.is_none());
        self.command.get_arguments().find(|flag| match long {
            Some(long) => flag.get_long() == Some(long),
            None => short.is_some() && flag.get_short() == short,
        })
    }

    fn offer(&self, partial: &str) -> Offer {
        if let Some(flag) = self.waits {
            return self.values(flag);
        }
        if let Some((name, _)) = partial.split_once('=').filter(|_| partial.starts_with("--")) {
            // The shell replaces the whole word.
            let Some(Offer::Words(values)) = self.flag(name).map(|flag| self.values(flag)) else {
                return Offer::Files;
            };
            return Offer::Words(values.into_iter().map(|value| format!("{name}={value}")).collect());
        }
        if partial.starts_with('-') {
            let shown = self.command.get_arguments().filter(|flag| !flag.is_hide_set());
            let line = |flag: &Arg| Some(described(&format!("--{}", flag.get_long()?), flag.get_help()));
            return Offer::Words(shown.filter_map(line).collect());
        }
        if self.command.has_subcommands() {
            let shown = self.command.get_subcommands().filter(|below| !below.is_hide_set());
            return Offer::Words(shown.map(|below| described(below.get_name(), below.get_about())).collect());
        }
        let all: Vec<&Arg> = self.command.get_positionals().collect();
        // The last one may take many.
        let next = all.get(self.positionals).or_else(|| all.last().filter(|last| takes_many(last)));
        next.map_or(Offer::Words(Vec::new()), |positional| self.values(positional))
    }

    fn values(&self, of: &Arg) -> Offer {
        let possible = of.get_possible_values();
        if !possible.is_empty() {
            return Offer::Words(
                possible.iter().map(|value| described(value.get_name(), value.get_help())).collect(),
            );
        }
        match (self.names.first().copied().unwrap_or_default(), of.get_id().as_str()) {
            ("cluster", "name") if self.names != ["cluster", "join"] => Offer::Names("/clusters"),
            ("claim", "name") => Offer::Names("/claims"),
            ("placement", "name") => Offer::Names("/placements"),
            ("task", "id" | "ids") => Offer::Names("/tasks"),
            ("appwrapper", "id" | "ids") => Offer::Names("/tasks?kind=appWrapper"),
            ("volume", "volume") => Offer::Names("/volumes"),
            (_, "cluster") => Offer::Names("/clusters"),
            (_, "queue") => Offer::Names("/queues"),
            _ if of
                .get_value_names()
                .is_some_and(|names| names.iter().any(|name| name == "FILE" || name == "DIR")) =>
            {
                Offer::Files
            }
            _ => Offer::Words(Vec::new()),
        }
    }
}

fn takes_value(flag: &Arg) -> bool {
    matches!(flag.get_action(), ArgAction::Set | ArgAction::Append)
}

fn takes_many(positional: &Arg) -> bool {
    matches!(positional.get_action(), ArgAction::Append)
}

fn described(word: &str, help: Option<&clap::builder::StyledStr>) -> String {
    let help = help.map(ToString::to_string).unwrap_or_default();
    help.lines().next().map_or_else(|| word.to_owned(), |line| format!("{word}\t{line}"))
}

/// None where no server answers in time.
fn names(path: &'static str, typed: &[&str]) -> Vec<String> {
    let connection = connection(typed);
    in_time(move || asked(path, &connection)).and_then(Result::ok).unwrap_or_default()
}

/// What a prompt waits for no longer than [`WITHIN`]. A thread does it, since a program that prints the token may take its time.
pub fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        // Whoever asked has gone on where this took too long.
        let _ = tell.send(work());
    });
    told.recv_timeout(WITHIN).ok()
}

fn asked(path: &str, connection: &Connection) -> Result<Vec<String>, CliError> {
    let settings = settings::resolve(connection)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|source| CliError::Failed { message: format!("cannot start: {source}"), next: None })?;
    let list: Value = runtime.block_on(async {
        Api::new(&settings)?
            .get(&format!("{path}{}limit=100", if path.contains('?') { '&' } else { '?' }))
            .await
    })?;
    let field = if path.starts_with("/tasks") { "id" } else { "name" };
    let items = list["items"].as_array().into_iter().flatten();
    Ok(items.filter_map(|item| item[field].as_str()).map(str::to_owned).collect())
}

/// Where the server is, by those words of the line that say it.
fn connection(line: &[&str]) -> Connection {
    let flags = <Connection as clap::Args>::augment_args(clap::Command::new("fedq")).ignore_errors(true);
    let mut own = vec!["fedq"];
    let mut words = line.iter();
    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or_default();
        if flags.get_arguments().any(|flag| flag.get_long().is_some_and(|long| name == format!("--{long}"))) {
            own.push(word);
            if !word.contains('=') {
                own.extend(words.next());
            }
        }
    }
    Connection::from_arg_matches(&flags.get_matches_from(own)).unwrap_or_default()
}
