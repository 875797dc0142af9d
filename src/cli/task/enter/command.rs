//! A command beside a task: its input, output and exit code are this command's own.

use std::io::{Read, Write};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

use super::terminal::{self, Raw};
use crate::{
    DONE, FAILED, Session,
    args::{ExecArgs, ShellArgs},
    client::{
        Api, escape,
        socket::{Hears, Says, Socket},
    },
    error::CliError,
    print::Printer,
};
use fedq_wire::task::{ExecQuery, TaskDetail};

/// The newest says when the input has ended.
const PROTOCOLS: &str = "v5.channel.k8s.io, v4.channel.k8s.io";
const WITH_CLOSE: &str = "v5.channel.k8s.io";

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ENDED: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// In the folder that the task's own script begins in, if there is one.
const SHELL: &str = "cd ~/sky_workdir 2>/dev/null; command -v bash >/dev/null 2>&1 && exec bash; exec sh";

pub async fn exec(args: ExecArgs, session: &mut Session) -> Result<u8, CliError> {
    let (api, printer) = session.both()?;
    let mut query =
        ExecQuery { node: args.node, container: args.container, stdin: args.stdin, tty: args.tty };
    if query.tty && !(query.stdin && terminal::is_there()) {
        printer.warning("--tty takes --stdin and a terminal, so the command gets none");
        query.tty = false;
    }
    run(&args.id, &query, &args.command, api, printer).await
}

pub async fn shell(args: ShellArgs, session: &mut Session) -> Result<u8, CliError> {
    let (api, printer) = session.both()?;
    let tty = terminal::is_there();
    let query = ExecQuery { node: args.node, container: args.container, stdin: true, tty };
    let command = ["/bin/sh", "-c", SHELL].map(str::to_owned);
    run(&args.id, &query, &command, api, printer).await
}

async fn run(
    id: &str,
    query: &ExecQuery,
    command: &[String],
    api: &Api,
    printer: &mut Printer,
) -> Result<u8, CliError> {
    let socket = api.socket(&path(id, query, command), PROTOCOLS).await?;
    let ended = {
        let raw = query.tty.then(Raw::begin).flatten();
        let ended = converse(socket, query, printer).await;
        drop(raw);
        ended?
    };
    match ended {
        Some(status) => code(&status),
        None => Err(broken_off(id, api).await),
    }
}

fn path(id: &str, query: &ExecQuery, command: &[String]) -> String {
    let mut words = vec![format!("node={}&stdin={}&tty={}", query.node, query.stdin, query.tty)];
    words.extend(query.container.iter().map(|name| format!("container={}", escape(name))));
    words.extend(command.iter().map(|word| format!("command={}", escape(word))));
    crate::task::path(id, &format!("/exec?{}", words.join("&")))
}

/// Until the command has ended: how; `None` where nobody said.
async fn converse(
    socket: Socket,
    query: &ExecQuery,
    printer: &mut Printer,
) -> Result<Option<Status>, CliError> {
    let has_close = socket.protocol == WITH_CLOSE;
    let (hears, mut says) = socket.split();
    let speaks = async {
        // What cannot be said any more has an end that is heard.
        let _ = speak(&mut says, query, has_close).await;
        std::future::pending::<Result<Option<Status>, CliError>>().await
    };
    tokio::select! {
        ended = listen(hears, printer) => ended,
        never = speaks => never,
    }
}

async fn listen(mut hears: Hears, printer: &mut Printer) -> Result<Option<Status>, CliError> {
    loop {
        match hears.next().await? {
            None => return Ok(None),
            Some((STDOUT, bytes)) => printer.raw(&bytes)?,
            Some((STDERR, bytes)) => {
                let mut stderr = std::io::stderr().lock();
                stderr.write_all(&bytes).and_then(|()| stderr.flush()).map_err(CliError::Print)?;
            }
            Some((ENDED, bytes)) => {
                return serde_json::from_slice(&bytes).map(Some).map_err(|error| CliError::Failed {
                    message: format!("what is said of the command's end cannot be read: {error}"),
                    next: None,
                });
            }
            Some(_) => {}
        }
    }
}

async fn speak(says: &mut Says, query: &ExecQuery, has_close: bool) -> Result<(), CliError> {
    let mut input = query.stdin.then(stdin);
    let mut resized = query.tty.then(window_changes).flatten();
    if let Some(size) = query.tty.then(terminal::size).flatten() {
        says.send(RESIZE, size.as_bytes()).await?;
    }
    loop {
        tokio::select! {
            () = says.ping_due() => says.ping().await?,
            piece = next(&mut input) => if let Some(piece) = piece {
                says.send(STDIN, &piece).await?;
            } else {
                input = None;
                if has_close {
                    says.send(CLOSE, &[STDIN]).await?;
                }
            },
            () = changed(&mut resized) => {
                if let Some(size) = terminal::size() {
                    says.send(RESIZE, size.as_bytes()).await?;
                }
            }
        }
    }
}

/// What comes in here, from a thread of its own: one that waits for a key must not keep the program from ending.
fn stdin() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        let mut stdin = std::io::stdin().lock();
        while let Ok(read @ 1..) = stdin.read(&mut buffer) {
            if sender.blocking_send(buffer[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Never where there is no input.
async fn next(input: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match input {
        Some(input) => input.recv().await,
        None => std::future::pending().await,
    }
}

fn window_changes() -> Option<Signal> {
    signal(SignalKind::window_change()).ok()
}

async fn changed(resized: &mut Option<Signal>) {
    match resized {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// The exit code of the command, as Kubernetes tells it.
fn code(status: &Status) -> Result<u8, CliError> {
    if status.status.as_deref() == Some("Success") {
        return Ok(DONE);
    }
    let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    let mut codes = causes.filter(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let code = codes.find_map(|cause| cause.message.as_deref()?.parse::<i32>().ok());
    match code {
        Some(code) => Ok(u8::try_from(code).unwrap_or(FAILED)),
        None => Err(CliError::Failed {
            message: format!(
                "the command did not run: {}",
                status.message.as_deref().unwrap_or("nobody says why")
            ),
            next: None,
        }),
    }
}

/// Why the connection ended before the command did.
pub async fn broken_off(id: &str, api: &Api) -> CliError {
    let why = match api.get::<TaskDetail>(&crate::task::path(id, "")).await {
        Ok(detail) => format!("the task is {} now", detail.task.phase),
        Err(error) => error.to_string(),
    };
    let next = format!("fedq task status {id}");
    CliError::Failed { message: format!("the connection ended: {why}"), next: Some(next) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(status: serde_json::Value) -> Result<u8, String> {
        code(&serde_json::from_value(status).expect("a Status")).map_err(|error| error.to_string())
    }

    #[test]
    fn the_exit_code_is_the_commands() {
        assert_eq!(told(json!({"metadata": {}, "status": "Success"})), Ok(0));
        let failed = |code: &str| {
            json!({
                "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                "message": format!("command terminated with non-zero exit code: exit status {code}"),
                "details": {"causes": [{"reason": "ExitCode", "message": code}]},
            })
        };
        assert_eq!(
            (told(failed("3")), told(failed("255")), told(failed("-1"))),
            (Ok(3), Ok(255), Ok(FAILED))
        );
        let missing = json!({"metadata": {}, "status": "Failure", "reason": "InternalError", "message": "no such file"});
        assert_eq!(told(missing), Err("the command did not run: no such file".to_owned()));
    }

    #[test]
    fn words_of_the_command_stay_words() {
        let query = ExecQuery { node: 2, container: None, stdin: true, tty: false };
        let command = ["sh", "-c", "a && b"].map(str::to_owned);
        assert_eq!(
            path("1a2b3c4d", &query, &command),
            "/tasks/1a2b3c4d/exec?node=2&stdin=true&tty=false&command=sh&command=-c&command=a%20%26%26%20b"
        );
    }
}
