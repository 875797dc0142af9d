//! Logs, metrics, and how an error with its causes becomes one line.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    error::Error,
    fmt, fs, io,
    io::IsTerminal,
    panic,
    str::FromStr,
    sync::Arc,
    thread,
};

use serde::{Deserialize, Serialize};
use tracing::{Level, enabled, error};
use tracing_subscriber::{EnvFilter, util::SubscriberInitExt};

pub use self::exposition::Format;
pub use self::metrics::{CONNECTION_WORDS, Metrics, QuotaGauge};

mod exposition;
mod metrics;

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    Json,
    Text,
}

/// What is logged: a level (`info`), or levels by module as in `info,fedq_controllers=debug`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogLevel(String);

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error(
        "`{0}` is not a log level: write error, warn, info, debug or trace, or levels by module as in info,fedq_store=debug"
    )]
    Level(String),
    #[error("logging is set up already")]
    Again(#[source] tracing_subscriber::util::TryInitError),
}

/// kube logs each failed attempt as an error and without the cluster's name, which fedq does better;
/// sqlx logs statements.
const QUIET: &str = "kube_client=off,tower=off,sqlx=warn,h2=warn,hyper=warn,rustls=warn";

/// Starts logging to stderr, panics too. Once a process.
pub fn init(level: &LogLevel, format: LogFormat) -> Result<(), LogError> {
    let terminal = io::stderr().is_terminal();
    let filter = filter(&level.0)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let json = match format {
        LogFormat::Auto => !terminal,
        LogFormat::Json => true,
        LogFormat::Text => false,
    };
    if json {
        builder.json().flatten_event(true).with_span_list(false).finish().try_init()
    } else if terminal {
        // Colours unless NO_COLOR is set: its own default.
        builder.with_target(false).finish().try_init()
    } else {
        builder.with_ansi(false).with_target(false).finish().try_init()
    }
    .map_err(LogError::Again)?;
    log_panics();
    Ok(())
}

/// Whoever reads the log line by line would lose one that is told in lines of its own.
fn log_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !enabled!(Level::ERROR) {
            return before(panic);
        }
        let said = panic.payload_as_str().unwrap_or("nothing that is text");
        let thread = thread::current();
        let location = panic.location().map(ToString::to_string);
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
        error!(
            location,
            thread = thread.name(),
            backtrace,
            "A part of the program panicked, which is a mistake in it: {said}"
        );
    }));
}

/// Starts logging to a file, as text. Once a process.
pub fn init_to_file(level: &LogLevel, file: fs::File) -> Result<(), LogError> {
    let builder = tracing_subscriber::fmt().with_env_filter(filter(&level.0)?).with_writer(Arc::new(file));
    builder.with_ansi(false).with_target(false).finish().try_init().map_err(LogError::Again)
}

/// The error and its causes in one line, without those that the text before already repeats.
pub fn chain(error: &(dyn Error + 'static)) -> impl fmt::Display {
    Chain(error)
}

struct Chain<'a>(&'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = self.0.to_string();
        f.write_str(&told)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !told.contains(&text) {
                write!(f, ": {text}")?;
                told = text;
            }
            cause = error.source();
        }
        Ok(())
    }
}

fn filter(level: &str) -> Result<EnvFilter, LogError> {
    // Quiet first: whoever names one of those modules means it.
    EnvFilter::builder().parse(format!("{QUIET},{level}")).map_err(|_| LogError::Level(level.to_owned()))
}

impl Default for LogLevel {
    fn default() -> Self {
        Self("info".to_owned())
    }
}

impl FromStr for LogLevel {
    type Err = LogError;

    fn from_str(text: &str) -> Result<Self, LogError> {
        let refused = || LogError::Level(text.to_owned());
        for directive in text.split(',') {
            let level = directive.rsplit_once('=').map_or(directive, |(_, level)| level);
            // EnvFilter takes any word as the name of a module and then logs nothing, and no word as error.
            if level.trim().is_empty() {
                return Err(refused());
            }
            level.trim().parse::<tracing::level_filters::LevelFilter>().map_err(|_| refused())?;
        }
        filter(text)?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for LogLevel {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for LogLevel {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Layered {
        #[error("cannot apply quota to `queue`")]
        Apply(#[source] Box<Layered>),
        /// Repeats its cause, as many libraries do.
        #[error("service error: {0}")]
        Service(#[source] Box<Layered>),
        #[error("connection refused")]
        Refused,
    }

    #[test]
    fn an_error_is_told_with_each_cause_once() {
        let error = Layered::Apply(Box::new(Layered::Service(Box::new(Layered::Refused))));
        assert_eq!(
            chain(&error).to_string(),
            "cannot apply quota to `queue`: service error: connection refused"
        );
        assert_eq!(chain(&Layered::Refused).to_string(), "connection refused");
    }

    #[test]
    fn levels_are_checked_before_use() {
        for good in ["info", "WARN", "info,fedq_store=debug", "off"] {
            assert!(good.parse::<LogLevel>().is_ok(), "{good}");
        }
        for bad in ["", "verbose", "info,fedq=loud", "info,", "fedq"] {
            let error = bad.parse::<LogLevel>().expect_err(bad).to_string();
            assert!(error.starts_with(&format!("`{bad}` is not a log level")), "{error}");
        }
    }
}
