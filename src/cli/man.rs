//! `man`: a page for each command of this program, and of kueuectl, which it also is.

use std::{fs, io, path::Path};

use clap::{Arg, ArgAction, CommandFactory};
use fedq_kueuectl::command::{Command, Flag, FlagKind, Tree, root};

use super::{
    DONE, Session,
    args::{Cli, ManArgs},
    error::CliError,
};

const CHANGES: &str = include_str!("../../docs/CHANGELOG.md");
const SOURCE: &str = concat!("fedq ", env!("CARGO_PKG_VERSION"));

pub fn run(args: &ManArgs, session: &mut Session) -> Result<u8, CliError> {
    write(&args.dir).map_err(|source| CliError::Failed {
        message: format!("cannot write the pages to {}: {source}", args.dir.display()),
        next: Some("name a folder that you may write to".to_owned()),
    })?;
    session.printer.note(&format!("The pages are in {0}: man {0}/fedq.1", args.dir.display()));
    Ok(DONE)
}

fn write(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for command in [whole(), kueues(root(Tree::Kueuectl))] {
        let mut command = command.disable_help_subcommand(true);
        command.build();
        generate(command, dir)?;
    }
    Ok(())
}

/// With all pages of what is below. What `clap_mangen` makes by itself has no date and no version but at the top, and what is
/// empty in the title is left out, so that whatever follows stands in the wrong place.
fn generate(command: clap::Command, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        generate(below.clone(), dir)?;
    }
    let page = clap_mangen::Man::new(command).date(released()).source(SOURCE).manual("Manual of fedq");
    page.generate_to(dir).map(drop)
}

/// The day of this version.
fn released() -> &'static str {
    let newest = CHANGES.lines().find_map(|line| line.strip_prefix("## "));
    newest.and_then(|newest| newest.rsplit(' ').next()).unwrap_or_default()
}

/// The command line with kueuectl's commands in it, which clap does not read.
pub fn whole() -> clap::Command {
    Cli::command().mut_subcommand("kueue", |kueue| {
        let about = kueue.get_about().cloned().unwrap_or_default();
        kueues(root(Tree::Fedq)).name("kueue").about(about)
    })
}

fn kueues(command: &'static Command) -> clap::Command {
    let mut built = clap::Command::new(command.name()).about(command.short.as_str());
    built = built.disable_help_subcommand(true).disable_help_flag(true);
    built = built.visible_aliases(command.aliases.iter().map(String::as_str));
    if !command.long.is_empty() {
        built = built.long_about(without_tabs(&command.long));
    }
    if !command.example.is_empty() {
        built = built.after_help(format!("Examples:\n{}", without_tabs(&command.example)));
    }
    let printing = root(Tree::Fedq).print_flags.iter().filter(|_| command.prints);
    built = built.args(command.flags.iter().chain(printing).map(|flag| argument(flag, false)));
    built = built.args(command.persistent_flags.iter().map(|flag| argument(flag, true)));
    built.subcommands(command.commands.iter().map(kueues))
}

/// In a page a tabulator leads to where the last one was.
fn without_tabs(text: &str) -> String {
    text.replace('\t', "    ")
}

fn argument(flag: &'static Flag, global: bool) -> Arg {
    let action = match flag.kind {
        FlagKind::Bool => ArgAction::SetTrue,
        FlagKind::String => ArgAction::Set,
        FlagKind::StringArray | FlagKind::StringSlice | FlagKind::StringToString | FlagKind::BoolSlice => {
            ArgAction::Append
        }
    };
    let mut argument = Arg::new(flag.name.as_str()).long(flag.name.as_str()).short(flag.short.chars().next());
    argument = argument.help(flag.usage.as_str()).action(action).hide(flag.hidden).global(global);
    if flag.kind == FlagKind::String && !flag.default.is_empty() {
        argument = argument.default_value(flag.default.as_str());
    }
    // Clap has no global flag that is required.
    argument.required(flag.required && !global)
}
