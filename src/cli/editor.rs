//! The person's own editor on a temporary file that only they can read.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
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

/// What a person writes, in a file of theirs that stays until it is discarded: whatever ends the program,
/// the text is there.
pub struct Draft {
    program: String,
    path: PathBuf,
}

impl Draft {
    pub fn new(program: String) -> Result<Self, CliError> {
        let failed = |source: io::Error| CliError::Write { path: env::temp_dir(), source };
        let file =
            tempfile::Builder::new().prefix("fedq-edit-").suffix(".yaml").tempfile().map_err(failed)?;
        let (_, path) = file.keep().map_err(|error| failed(error.error))?;
        Ok(Self { program, path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn write(&self, text: &str) -> Result<(), CliError> {
        fs::write(&self.path, text).map_err(|source| CliError::Write { path: self.path.clone(), source })
    }

    /// Lets the person edit `text`.
    pub fn edit(&self, text: &str) -> Result<String, CliError> {
        self.write(text)?;
        self.run().map_err(|error| CliError::Kept { source: Box::new(error), copy: self.path.clone() })
    }

    fn run(&self) -> Result<String, CliError> {
        let program = &self.program;
        let next = "set KUBE_EDITOR or EDITOR to an editor that waits, such as vi or 'code --wait'";
        let failed = |message| CliError::Failed { message, next: Some(next.to_owned()) };
        // Through the shell, since `code --wait` is a program and an argument.
        let status = Command::new("sh")
            .arg("-c")
            .arg(format!("{program} \"$1\""))
            .arg("fedq")
            .arg(&self.path)
            .status();
        match status {
            Ok(status) if status.success() => fs::read_to_string(&self.path)
                .map_err(|source| CliError::Read { path: self.path.clone(), source }),
            Ok(status) => Err(failed(format!("the editor `{program}` failed: {status}"))),
            Err(error) => Err(failed(format!("cannot run the editor `{program}`: {error}"))),
        }
    }

    /// It is applied, or was never changed.
    pub fn discard(&self) {
        // An error leaves a private file in the temporary folder.
        let _ = fs::remove_file(&self.path);
    }
}
