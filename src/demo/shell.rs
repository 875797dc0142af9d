//! Runs `fedq` as a person would: this very program, with the demo's configuration in the environment.

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{io::AsyncReadExt, process::Command};

use super::{DemoError, screen::Screen};

/// A command that does not end is as bad as one that fails.
const DEADLINE: Duration = Duration::from_mins(1);

/// Of `fedq task logs`.
const NOT_OVER: i32 = 101;

pub struct Shell {
    program: PathBuf,
    folder: PathBuf,
    connection: PathBuf,
}

/// What to show of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Show {
    All,
    /// Without what it says beside that: notes and progress.
    Data,
}

impl Shell {
    pub fn new(folder: &Path, connection: &Path) -> Result<Self, DemoError> {
        let program =
            std::env::current_exe().map_err(|source| DemoError::Run { line: "fedq".to_owned(), source })?;
        Ok(Self { program, folder: folder.to_owned(), connection: connection.to_owned() })
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Shows a command with all that it prints.
    pub async fn show(&self, line: &str, screen: &mut Screen) -> Result<(), DemoError> {
        self.run(line, (Show::All, 0), screen).await.map(drop)
    }

    /// Shows a command with its data only.
    pub async fn show_data(&self, line: &str, screen: &mut Screen) -> Result<(), DemoError> {
        self.run(line, (Show::Data, 0), screen).await.map(drop)
    }

    /// The same, and returns it.
    pub async fn show_told(&self, line: &str, screen: &mut Screen) -> Result<String, DemoError> {
        self.run(line, (Show::Data, 0), screen).await
    }

    /// Shows the logs of a task that runs, which is what the exit code says.
    pub async fn show_logs(&self, line: &str, screen: &mut Screen) -> Result<(), DemoError> {
        self.run(line, (Show::Data, NOT_OVER), screen).await.map(drop)
    }

    async fn run(
        &self,
        line: &str,
        (show, code): (Show, i32),
        screen: &mut Screen,
    ) -> Result<String, DemoError> {
        screen.command(line)?;
        screen.waiting("");
        let color = if screen.color() { "always" } else { "never" };
        let (ended, text) = self.output(line, color, (show, code)).await?;
        if ended != Some(code) {
            return Err(DemoError::Command { line: line.to_owned(), text: text.trim().to_owned() });
        }
        screen.output(&text)?;
        Ok(text)
    }

    /// Its exit code, and what it printed in the order it did; all of it where that is another than expected.
    async fn output(
        &self,
        line: &str,
        color: &str,
        (show, code): (Show, i32),
    ) -> Result<(Option<i32>, String), DemoError> {
        let failed = |source| DemoError::Run { line: line.to_owned(), source };
        let (mut reader, writer) = std::io::pipe().map_err(failed)?;
        let errors = match show {
            Show::All => writer.try_clone().map_err(failed)?.into(),
            Show::Data => Stdio::piped(),
        };
        let mut command = Command::new(&self.program);
        command
            .args(line.split_whitespace().skip(1))
            .args(["--color", color])
            .current_dir(&self.folder)
            .env("FEDQ_CONFIG", &self.connection)
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(errors)
            // Ctrl-C is for the demo, which ends its commands itself.
            .process_group(0)
            .kill_on_drop(true);
        for other in ["FEDQ_SERVER", "FEDQ_TOKEN", "FEDQ_CA", "FEDQ_CA_FILE"] {
            command.env_remove(other);
        }
        let mut child = command.spawn().map_err(failed)?;
        // It holds the ends that write; reading ends when the child does.
        drop(command);
        let mut errors = child.stderr.take();
        let reading = tokio::task::spawn_blocking(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        let ending = async {
            let mut notes = String::new();
            if let Some(errors) = &mut errors {
                errors.read_to_string(&mut notes).await?;
            }
            std::io::Result::Ok((child.wait().await?, notes))
        };
        let ended = tokio::time::timeout(DEADLINE, ending).await;
        let (status, notes) =
            ended.map_err(|_| failed(std::io::ErrorKind::TimedOut.into()))?.map_err(failed)?;
        let text = reading.await.map_err(|error| failed(error.into()))?.map_err(failed)?;
        let ended = status.code();
        Ok((ended, if ended == Some(code) { text } else { text + &notes }))
    }
}
