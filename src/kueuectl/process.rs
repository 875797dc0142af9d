//! A command as a whole process: its streams, its environment, its exit code.

use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Output, Stdio};

use jiff::Timestamp;

use crate::{Called, World, run};

/// Runs the command on this process' streams. `now` is the clock.
pub fn process(called: &Called<'_>, now: &dyn Fn() -> Timestamp) -> ExitCode {
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
        replace: &|program: &OsString, arguments| Command::new(program).args(arguments).exec(),
        run: &pipe,
        terminal: io::stdout().is_terminal() && io::stdin().is_terminal(),
        client: None,
    };
    let code = runtime.block_on(run(called, &mut world));
    // Nobody waits for a credential plugin that took too long.
    runtime.shutdown_background();
    ExitCode::from(code)
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
