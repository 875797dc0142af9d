//! `fedq task …`

mod enter;
pub mod input;
pub mod logs;
mod pack;
pub mod show;
pub mod stop;
pub mod submit;
mod upload;
mod validate;

use super::{DONE, Session, args::TaskCommand, client::escape, error::CliError};

pub async fn run(command: TaskCommand, session: &mut Session) -> Result<u8, CliError> {
    match command {
        TaskCommand::Submit(args) => submit::run(args, session).await,
        TaskCommand::List(args) => show::list(args, None, session).await.map(|()| DONE),
        TaskCommand::Status(args) => show::status(&args, session).await.map(|()| DONE),
        TaskCommand::Explain(args) => show::explain(&args, session).await.map(|()| DONE),
        TaskCommand::Logs(args) => logs::run(&args, session).await,
        TaskCommand::Exec(args) => enter::exec(args, session).await,
        TaskCommand::Shell(args) => enter::shell(args, session).await,
        TaskCommand::PortForward(args) => enter::forward(args, session).await,
        TaskCommand::Stop(args) => stop::run(args, session).await,
        TaskCommand::Validate(args) => validate::run(&args, &mut session.printer).await,
    }
}

/// `/tasks/ID` and what stands behind it.
fn path(id: &str, rest: &str) -> String {
    format!("/tasks/{}{rest}", escape(id))
}
