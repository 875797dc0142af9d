//! The daemon's configuration: one YAML file, then environment, then flags; each may override what
//! came before. Read once, at the start; the daemon passes values on.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

pub use self::{
    args::{Args, Crds},
    clusters::{Clusters, Namespaces, PodSecurity, Profiles},
    file::{
        Api, Capacity, ClusterMetrics, ClusterNaming, Config, HeadroomSection, History, Hub, Listen, Log,
        MetricsListener, MultiKueue, Quota, ResourceNames, Service, StoreSection, Tls, Webhook,
    },
    placement::{Placement, ScoreRange, Scores},
    tasks::{GangChoice, PodConfig, TaskHistory, TaskLogs, TaskWeights, Tasks, Tenant, TenantLimits},
};

mod args;
mod check;
mod clusters;
mod environment;
mod file;
mod placement;
mod resolve;
mod tasks;
mod text;

pub use self::resolve::Unusable;

use fedq_domain::nearest::nearest;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}:{line}: {message}", path.display())]
    Syntax { path: PathBuf, line: u64, message: String },
    #[error("{}:{line}: there is no key `{key}` here{}", path.display(), suggestion(nearest.as_deref(), known))]
    UnknownKey { path: PathBuf, line: u64, key: String, nearest: Option<String>, known: Vec<&'static str> },
    /// All of them, so that one start shows everything there is to mend.
    #[error("the configuration is not valid:\n{}", list(problems))]
    Invalid { problems: Vec<String> },
}

/// What was loaded, and what deserves a line in the log although it stops nothing.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    pub warnings: Vec<String>,
}

impl Config {
    /// From the file and flags in `args` and the process environment.
    pub fn load(args: &Args) -> Result<Loaded, ConfigError> {
        Self::layered(args, &std::env::vars_os().filter_map(legible).collect())
    }

    fn layered(args: &Args, environment: &BTreeMap<String, String>) -> Result<Loaded, ConfigError> {
        let mut config = match &args.config {
            Some(path) => {
                let text = fs::read_to_string(path)
                    .map_err(|source| ConfigError::Read { path: path.clone(), source })?;
                Self::parse(path, &text)?
            }
            None => Self::default(),
        };
        let mut problems = environment::apply(&mut config, environment);
        if let Some(folder) = &args.data_dir {
            config.store.path = folder.join("fedq.db");
        }
        if let Some(level) = &args.log_level {
            config.log.level = level.clone();
        }
        problems.extend(check::problems(&config));
        if problems.is_empty() {
            Ok(Loaded { config, warnings: environment::misspelt(environment) })
        } else {
            Err(ConfigError::Invalid { problems })
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        // A file of nothing but comments is a configuration too.
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        let options = serde_saphyr::options! { with_snippet: false };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let line = error.location().map_or(0, |location| location.line());
            let path = path.to_owned();
            match error {
                serde_saphyr::Error::SerdeUnknownField { field, expected, .. } => {
                    let nearest = nearest(&field, expected.iter().copied()).map(str::to_owned);
                    ConfigError::UnknownKey { path, line, key: field, nearest, known: expected }
                }
                error => ConfigError::Syntax { path, line, message: without_place(&error.to_string()) },
            }
        })
    }

    /// As `--check-config` prints it. There is no secret in it: those stay in the files it names.
    pub fn to_yaml(&self) -> Result<String, serde_saphyr::SerializeError> {
        serde_saphyr::to_string(self)
    }
}

/// The line stands in front already.
fn without_place(message: &str) -> String {
    message.rsplit_once(" at line ").map_or(message, |(text, _)| text).to_owned()
}

/// Variables that are no text are not ours.
fn legible((name, value): (std::ffi::OsString, std::ffi::OsString)) -> Option<(String, String)> {
    Some((name.into_string().ok()?, value.into_string().ok()?))
}

fn suggestion(nearest: Option<&str>, known: &[&str]) -> String {
    match nearest {
        Some(nearest) => format!("; did you mean `{nearest}`?"),
        None => format!("; there are {}", known.join(", ")),
    }
}

fn list(problems: &[String]) -> String {
    problems.iter().map(|problem| format!("- {problem}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
