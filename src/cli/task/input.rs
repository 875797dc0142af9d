//! What a task is made of besides its file: variables, secrets, where they come from.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::Path,
};

use crate::{args::TaskInput, error::CliError};
use fedq_domain::task::yaml::MAX_BYTES;

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

pub fn secrets(args: &TaskInput) -> Result<BTreeMap<String, String>, CliError> {
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
