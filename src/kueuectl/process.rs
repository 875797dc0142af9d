//! A command as a whole process: its streams, its environment, its exit code.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Output, Stdio};

use jiff::Timestamp;
use rustix::io::{FdFlags, fcntl_setfd};

use crate::{
    Called, World,
    fleet::{Fleet, Later},
    run,
};

/// Runs the command on this process' streams. `now` is the clock; `fleet` what `fedq kueue` asks.
pub fn process(called: &Called<'_>, now: &dyn Fn() -> Timestamp, fleet: Option<&dyn Fleet>) -> ExitCode {
    let mut errors = io::stderr();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            // Where standard error is gone, the exit code has to say it.
            let _ = writeln!(errors, "Error: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut world = World {
        input: &mut io::stdin().lock(),
        output: &mut BufWriter::new(io::stdout()),
        errors: &mut errors,
        now,
        variables: &|name| std::env::var_os(name),
        replace: &replace,
        run: &pipe,
        terminal: io::stdout().is_terminal() && io::stdin().is_terminal(),
        interrupted: &interrupted,
        fleet,
        client: None,
    };
    let code = runtime.block_on(run(called, &mut world));
    // Nobody waits for a credential plugin that took too long.
    runtime.shutdown_background();
    ExitCode::from(code)
}

/// The kubeconfig holds a token: the program reads it from an open file that has no name, so that nothing of it is on a
/// command line, or left behind.
fn replace(program: &OsString, arguments: &[OsString], kubeconfig: Option<&str>) -> io::Error {
    let mut command = Command::new(program);
    let opened = kubeconfig.map(nameless).transpose();
    match &opened {
        Err(error) => return io::Error::new(error.kind(), format!("cannot hand on a kubeconfig: {error}")),
        Ok(None) => {}
        Ok(Some(file)) => {
            command.arg(format!("--kubeconfig=/dev/fd/{}", file.as_raw_fd()));
        }
    }
    command.args(arguments).exec()
}

fn nameless(text: &str) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    // The program that takes this one's place keeps it open.
    fcntl_setfd(&file, FdFlags::empty())?;
    Ok(file)
}

/// Until Ctrl-C. Where that cannot be heard of, it ends the process as it always does.
fn interrupted<'a>() -> Later<'a, ()> {
    Box::pin(async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}

/// A thread writes, so that neither side waits for the other's buffer.
fn pipe(program: &OsString, arguments: &[OsString], input: &[u8]) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || stdin.map_or(Ok(()), |mut stdin| stdin.write_all(input)));
        let output = child.wait_with_output();
        writer.join().map_err(|_| io::Error::other("the writer panicked"))??;
        output
    })
}
