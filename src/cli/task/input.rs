//! What a task is made of besides its file: variables, secrets, where they come from.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::Path,
};

use crate::{args::TaskInput, error::CliError};
use fedq_domain::task::{sky::is_variable, yaml::MAX_BYTES};

/// No more than can be a task: what is longer is refused by its size.
pub async fn read(file: &Path) -> Result<Vec<u8>, CliError> {
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
pub async fn envs(args: &TaskInput) -> Result<BTreeMap<String, String>, CliError> {
    let mut envs = of_file(args.env_file.as_deref(), "--env-file").await?;
    for text in &args.envs {
        let (name, value) = match text.split_once('=') {
            Some(("", _)) => return Err(no_pair("-e", NAME_OR_PAIR)),
            Some((name, value)) => (name, value.to_owned()),
            None if is_variable(text) => {
                (text.as_str(), from_environment(text).ok_or_else(|| not_set(text))?)
            }
            None => return Err(no_pair("-e", NAME_OR_PAIR)),
        };
        envs.insert(name.to_owned(), value);
    }
    Ok(envs)
}

/// The same of values that nobody may read.
pub async fn secrets(args: &TaskInput) -> Result<BTreeMap<String, String>, CliError> {
    let mut secrets = of_file(args.secret_file.as_deref(), "--secret-file").await?;
    for (number, text) in (1..).zip(&args.secrets) {
        let (name, value) = match text.split_once('=') {
            Some(("", _)) => return Err(no_pair("--secret", NAME_OR_PAIR)),
            Some((name, "-")) => (name, from_environment(name).ok_or_else(|| not_set(name))?),
            Some((name, value)) => (name, value.to_owned()),
            // It may be a secret whose name was forgotten, so it is not repeated.
            None => (text.as_str(), from_environment(text).ok_or_else(|| no_such_secret(number))?),
        };
        secrets.insert(name.to_owned(), value);
    }
    Ok(secrets)
}

/// Standard input can be read once.
pub fn reads_once(file: Option<&Path>, args: &TaskInput) -> Result<(), CliError> {
    let inputs = [file, args.env_file.as_deref(), args.secret_file.as_deref()];
    if 1 < inputs.into_iter().filter(|path| *path == Some(Path::new("-"))).count() {
        let message = "only one of the task file, --env-file and --secret-file can be standard input";
        return Err(CliError::usage(message, "name files for the others"));
    }
    Ok(())
}

async fn of_file(path: Option<&Path>, flag: &str) -> Result<BTreeMap<String, String>, CliError> {
    let mut values = BTreeMap::new();
    let Some(path) = path else { return Ok(values) };
    let text = read(path).await?;
    let text = String::from_utf8_lossy(&text);
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        match line.split_once('=') {
            Some((name, value)) if is_variable(name) => {
                values.insert(name.to_owned(), unquoted(value).to_owned());
            }
            // What stands there may be a secret.
            _ => {
                let message = format!("{flag} takes lines of NAME=VALUE, and line {number} is none");
                return Err(CliError::usage(message, "a name has letters, digits and _"));
            }
        }
    }
    Ok(values)
}

const NAME_OR_PAIR: &str = "NAME=VALUE, or NAME";

/// What is typed stands in the shell's history and in the list of processes; the environment does not.
fn from_environment(name: &str) -> Option<String> {
    std::env::var_os(name).and_then(|value| value.into_string().ok())
}

fn not_set(name: &str) -> CliError {
    CliError::usage(format!("the environment has no text {name}"), format!("export {name}=… before"))
}

fn no_such_secret(number: usize) -> CliError {
    CliError::usage(
        format!("the environment has no variable of the name that --secret gives, the {number}. of them"),
        "export it before, or give NAME=VALUE",
    )
}

fn no_pair(flag: &str, form: &str) -> CliError {
    CliError::usage(format!("{flag} takes {form}"), "put a = between name and value")
}

fn unquoted(value: &str) -> &str {
    let inside = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(value)
}
