//! What went wrong, and what to do next: every error of the command line says both.

use std::{io, path::PathBuf, time::Duration};

use fedq_wire::problem::{Code, Problem};

#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The server's own answer.
    #[error("{0}")]
    Problem(Box<Problem>),
    #[error("no server is configured")]
    NoServer,
    #[error("not logged in to {server}")]
    NoToken { server: String },
    #[error("`{server}` is not a server address such as https://fedq.example.com")]
    BadServer { server: String },
    #[error("`{server}` is not https: the token would be readable on the way")]
    NotHttps { server: String },
    #[error("cannot reach {server}: {reason}")]
    Connect { server: String, reason: String },
    #[error("{server} gave no answer within {} s", after.as_secs())]
    Timeout { server: String, after: Duration },
    #[error("{server} answered what this fedq does not understand: {reason}")]
    Answer { server: String, reason: String },
    #[error("the CA certificate cannot be used: {reason}")]
    Ca { reason: String },
    #[error("the token command `{command}` failed: {reason}")]
    TokenCommand { command: String, reason: String },
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write `{}`: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("`{}` is not what fedq writes there: {reason}", path.display())]
    Config { path: PathBuf, reason: String },
    #[error("{message}")]
    Usage { message: String, next: String },
    #[error("{message}")]
    Failed { message: String, next: Option<String> },
    #[error("{source}; what you wrote is kept in {}", copy.display())]
    Kept { source: Box<CliError>, copy: PathBuf },
    #[error("cannot print: {0}")]
    Print(#[source] io::Error),
}

impl CliError {
    pub fn usage(message: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), next: next.into() }
    }

    /// The server's code, where it answered.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Problem(problem) => Some(problem.code),
            _ => None,
        }
    }

    /// Whether the same question may be answered in a moment: for whoever asks until something has happened.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Timeout { .. } => true,
            Self::Problem(problem) => {
                matches!(problem.code, Code::TooManyRequests | Code::HubUnreachable | Code::HubTimeout)
            }
            _ => false,
        }
    }

    /// What to do about it.
    pub fn next(&self) -> Option<String> {
        let step = match self {
            Self::Problem(problem) => return problem.next.clone(),
            Self::Usage { next, .. } => next.as_str(),
            Self::Failed { next, .. } => return next.clone(),
            Self::Kept { source, .. } => return source.next(),
            Self::NoServer => "fedq login --server URL, or set FEDQ_SERVER",
            Self::NoToken { .. } => "fedq login --server URL --token -, or set FEDQ_TOKEN",
            Self::BadServer { .. } => "give the whole URL with --server",
            Self::NotHttps { .. } => "use https://; plain http is for this machine only",
            Self::Connect { .. } => {
                "check the address (--server), the CA (--ca-file) and that fedqd runs there"
            }
            Self::Timeout { .. } => "try again; `fedq check` needs longest",
            Self::Answer { .. } => "compare fedq version with the server's; is it the right address?",
            Self::Ca { .. } => "give the server's CA as a PEM file with --ca-file",
            Self::TokenCommand { .. } => "run the command by hand; it must print a token and nothing else",
            Self::Read { .. } | Self::Write { .. } => "check the path and its permissions",
            Self::Config { .. } => "put it right, or remove it and log in again with fedq login",
            Self::Print(_) => return None,
        };
        Some(step.to_owned())
    }

    /// Whoever read our output has gone: not worth a message.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Print(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<Problem> for CliError {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}
