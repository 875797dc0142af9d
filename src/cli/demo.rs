//! `fedq demo`.

use super::{DONE, INTERRUPTED, Session, args::DemoArgs, error::CliError};
use fedq_demo::{DemoError, Ended, Failed, Options};

pub async fn run(args: DemoArgs, session: &mut Session) -> Result<u8, CliError> {
    let options = Options { dir: args.dir, serve: args.serve, color: session.printer.has_color() };
    match fedq_demo::run(options).await {
        Ok(Ended::Told) => Ok(DONE),
        Ok(Ended::Interrupted) => Ok(INTERRUPTED),
        Err(Failed { error: DemoError::Print(error), .. }) => Err(CliError::Print(error)),
        Err(failed) => Err(error(&failed)),
    }
}

fn error(failed: &Failed) -> CliError {
    let error = &failed.error as &dyn std::error::Error;
    let chain = std::iter::successors(Some(error), |error| error.source());
    let message = chain.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    let next = match (&failed.error, &failed.log) {
        (DemoError::Foreign { .. } | DemoError::Busy { .. }, _) => {
            Some("name another folder with --dir, or leave it out".to_owned())
        }
        (DemoError::Folder { .. }, _) => Some("name a folder of your own with --dir".to_owned()),
        (_, Some(log)) => Some(format!("fedqd's log is in {}", log.display())),
        (_, None) => None,
    };
    CliError::Failed { message, next }
}
