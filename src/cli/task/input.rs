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
        envs.insert(name(text, "-e")?, value(text)?);
    }
    Ok(envs)
}

/// The same of values that nobody may read.
pub async fn secrets(args: &TaskInput) -> Result<BTreeMap<String, String>, CliError> {
    let mut secrets = of_file(args.secret_file.as_deref(), "--secret-file").await?;
    for text in &args.secrets {
        let name = name(text, "--secret")?;
        let value = if text[name.len()..] == *"=-" { from_environment(&name)? } else { value(text)? };
        secrets.insert(name, value);
    }
    Ok(secrets)
}

async fn of_file(path: Option<&Path>, flag: &str) -> Result<BTreeMap<String, String>, CliError> {
    let mut values = BTreeMap::new();
    let Some(path) = path else { return Ok(values) };
    let text = read(path).await?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((_, value)) = line.split_once('=') else { return Err(no_pair(flag, "NAME=VALUE")) };
        values.insert(name(line, flag)?, unquoted(value).to_owned());
    }
    Ok(values)
}

/// What stands before the first `=`. The value is never repeated: it may be a secret.
fn name(text: &str, flag: &str) -> Result<String, CliError> {
    let name = text.split_once('=').map_or(text, |(name, _)| name);
    if name.is_empty() { Err(no_pair(flag, "NAME=VALUE, or NAME")) } else { Ok(name.to_owned()) }
}

fn value(text: &str) -> Result<String, CliError> {
    text.split_once('=').map_or_else(|| from_environment(text), |(_, value)| Ok(value.to_owned()))
}

/// What is typed stands in the shell's history and in the list of processes; the environment does not.
fn from_environment(name: &str) -> Result<String, CliError> {
    // A typed value that lost its `=` may be a secret.
    if !is_variable(name) {
        return Err(CliError::usage("this is no name of a variable", "give NAME=VALUE, or NAME alone"));
    }
    let value = std::env::var_os(name).and_then(|value| value.into_string().ok());
    value.ok_or_else(|| {
        CliError::usage(format!("the environment has no text {name}"), format!("export {name}=… before"))
    })
}

fn no_pair(flag: &str, form: &str) -> CliError {
    CliError::usage(format!("{flag} takes {form}"), "put a = between name and value")
}

fn unquoted(value: &str) -> &str {
    let inside = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(value)
}
