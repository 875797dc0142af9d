//! The person's own editor on a temporary file that only they can read.

use std::{
    env, fs,
    io::{self, Write},
    path::PathBuf,
    process::Command,
};

use super::error::CliError;

/// `$KUBE_EDITOR`, `$EDITOR`, vi: as kubectl.
pub fn program() -> String {
    let named = |name: &str| env::var_os(name).and_then(|value| value.into_string().ok());
    let chosen =
        ["KUBE_EDITOR", "EDITOR"].into_iter().filter_map(named).find(|value| !value.trim().is_empty());
    chosen.unwrap_or_else(|| "vi".to_owned())
}

/// Lets the person edit `text`.
pub fn edit(program: &str, text: &str) -> Result<String, CliError> {
    let path = keep(text)?;
    let failed = |message: String| CliError::Failed {
        message,
        next: Some(
            "set KUBE_EDITOR or EDITOR to an editor that waits, such as vi or 'code --wait'".to_owned(),
        ),
    };
    // Through the shell, since `code --wait` is a program and an argument.
    let status =
        Command::new("sh").arg("-c").arg(format!("{program} \"$1\"")).arg("fedq").arg(&path).status();
    let edited = match status {
        Ok(status) if status.success() => {
            fs::read_to_string(&path).map_err(|source| CliError::Read { path: path.clone(), source })
        }
        Ok(status) => Err(failed(format!("the editor `{program}` failed: {status}"))),
        Err(error) => Err(failed(format!("cannot run the editor `{program}`: {error}"))),
    };
    match edited {
        Ok(edited) => {
            // What is read may go; an error here leaves a private file in the temporary folder.
            let _ = fs::remove_file(&path);
            Ok(edited)
        }
        Err(error) => Err(CliError::Kept { source: Box::new(error), copy: path }),
    }
}

/// Keeps `text` where the person finds it.
pub fn keep(text: &str) -> Result<PathBuf, CliError> {
    let failed = |source: io::Error| CliError::Write { path: env::temp_dir(), source };
    let mut file =
        tempfile::Builder::new().prefix("fedq-edit-").suffix(".yaml").tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    let (_, path) = file.keep().map_err(|error| failed(error.error))?;
    Ok(path)
}
