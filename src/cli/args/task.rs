//! What may be typed after `fedq task`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Output;

#[derive(Debug, Subcommand)]
pub enum TaskCommand {
    /// Read a task file and say what is wrong with it, without a server
    #[command(after_help = "Examples:
  fedq task validate train.yaml
  fedq task validate train.yaml -e EPOCHS=10 --secret HF_TOKEN=-
  cat train.yaml | fedq task validate - --strict -o json

The exit code is 1 where the task cannot be run.")]
    Validate(ValidateArgs),
}

#[derive(Args)]
pub struct ValidateArgs {
    /// A task file in SkyPilot's YAML; - is stdin
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Set a variable of the task
    #[arg(short = 'e', long = "env", value_name = "NAME=VALUE")]
    pub envs: Vec<String>,
    /// Set variables from a file of NAME=VALUE lines
    #[arg(long, value_name = "FILE")]
    pub env_file: Option<PathBuf>,
    /// Set a secret of the task; with - as the value it is taken from the environment
    #[arg(long = "secret", value_name = "NAME=VALUE")]
    pub secrets: Vec<String>,
    /// Take warnings for errors
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub output: Output,
}

/// Without the secrets.
impl std::fmt::Debug for ValidateArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValidateArgs").field("file", &self.file).finish_non_exhaustive()
    }
}
