//! What may be typed. Nothing here does anything.

mod app_wrapper;
mod claim;
mod cluster;
mod placement;
mod task;
mod volume;

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use self::{app_wrapper::*, claim::*, cluster::*, placement::*, task::*, volume::*};
use super::print::Color;

/// The first thing to try, where it is built in.
const DEMO: &str = if cfg!(feature = "demo") { "\n  fedq demo" } else { "" };

/// Joins clusters to a hub and shares out their quota.
#[derive(Debug, Parser)]
#[command(
    name = "fedq",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = format!("Examples:{DEMO}
  fedq login --server https://fedq.example.com --token -
  fedq cluster join eu-west --kubeconfig eu-west.yaml
  fedq claim edit eu-west-resource-claim
  fedq quota explain team-a")
)]
pub struct Cli {
    #[command(flatten)]
    pub connection: Connection,
    #[command(subcommand)]
    pub command: Command,
}

/// Where the server is; what is not given comes from the file that `fedq login` wrote.
#[derive(Args, Clone, Default)]
pub struct Connection {
    /// URL of fedqd
    #[arg(
        long,
        global = true,
        env = "FEDQ_SERVER",
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Connection"
    )]
    pub server: Option<String>,
    /// Token to log in with; better in the environment, since others see what is typed here
    #[arg(
        long,
        global = true,
        env = "FEDQ_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true,
        help_heading = "Connection"
    )]
    pub token: Option<String>,
    /// PEM file with the server's CA
    #[arg(
        long,
        global = true,
        env = "FEDQ_CA_FILE",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Connection"
    )]
    pub ca_file: Option<PathBuf>,
    /// The same as PEM text, for the environment
    #[arg(long, global = true, env = "FEDQ_CA", hide = true)]
    pub ca: Option<String>,
    /// Configuration file [default: ~/.config/fedq/config.yaml]
    #[arg(
        long,
        global = true,
        env = "FEDQ_CONFIG",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Connection"
    )]
    pub config: Option<PathBuf>,
    /// When to use colour
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        hide_possible_values = true,
        help_heading = "Connection"
    )]
    pub color: Color,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("server", &self.server).finish_non_exhaustive()
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Remember a server and how to log in to it
    Login(LoginArgs),
    /// Join, look at and leave clusters
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Say which queue gets what of a cluster
    #[command(subcommand)]
    Claim(ClaimCommand),
    /// What clusters have, what is assigned and what is left
    Capacity(CapacityArgs),
    /// The quota of queues, and why it is what it is
    #[command(subcommand)]
    Quota(QuotaCommand),
    /// Run tasks and see how they do
    #[command(subcommand)]
    Task(TaskCommand),
    /// Run several objects as one, as AppWrappers do
    #[command(name = "appwrapper", visible_alias = "aw", subcommand)]
    AppWrapper(AppWrapperCommand),
    /// Storage that tasks mount
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Which clusters Placements choose, and why
    #[command(subcommand)]
    Placement(PlacementCommand),
    /// Who did what through fedq
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Find out what is wrong with the hub or a cluster
    Check(CheckArgs),
    /// Kueue's own commands, kueuectl's, on the cluster of a kubeconfig
    #[command(disable_help_flag = true)]
    Kueue(KueueArgs),
    /// See fedq at work on simulated clusters: nothing else is needed
    #[cfg(feature = "demo")]
    Demo(DemoArgs),
    /// Versions of this program and of the server
    Version(VersionArgs),
    /// Print a completion script for a shell
    Completion(CompletionArgs),
    /// Write the manual pages of fedq and kueuectl
    Man(ManArgs),
}

#[derive(Args, Clone, Debug)]
pub struct KueueArgs {
    /// Command, object and flags: `fedq kueue --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub line: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Format {
    #[default]
    Table,
    /// A table with more columns
    Wide,
    Json,
    Yaml,
    /// Only names
    Name,
}

#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Output {
    /// Output format: table, wide, json, yaml or name
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT", hide_possible_values = true)]
    pub output: Format,
    /// Leave the headers of tables out
    #[arg(long)]
    pub no_headers: bool,
}

#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ListArgs {
    #[command(flatten)]
    pub output: Output,
    /// Go on and print what changes
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Args, Clone, Copy, Debug, Default)]
pub struct DryRun {
    /// Let the server check everything and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fedq login --server https://fedq.example.com --ca-file ca.pem --token -
  fedq login --server https://fedq.example.com --token-command 'kubectl create token me --audience fedq'
  fedq login --server https://fedq.example.com --kubeconfig ~/.kube/config --service-account team-a/alice

With --token - the token is read from stdin.")]
pub struct LoginArgs {
    /// A command that prints a token, run for each request
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["token", "kubeconfig"])]
    pub token_command: Option<String>,
    /// Ask the hub for a token, with the rights of this kubeconfig
    #[arg(long, value_name = "FILE", requires = "service_account", conflicts_with = "token")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
    /// Whose token to ask for
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "kubeconfig")]
    pub service_account: Option<String>,
    /// How many hours that token is valid
    #[arg(long, value_name = "HOURS", default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=8760))]
    pub hours: u16,
    /// What the server wants tokens to be made for: its api.audience
    #[arg(long, value_name = "NAME", default_value = "fedq")]
    pub audience: String,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fedq capacity
  fedq capacity eu-west
  fedq capacity eu-west --history")]
pub struct CapacityArgs {
    /// Only this cluster
    pub cluster: Option<String>,
    /// Show how it changed
    #[arg(long, requires = "cluster", conflicts_with = "watch")]
    pub history: bool,
    #[command(flatten)]
    pub list: ListArgs,
}

#[derive(Debug, Subcommand)]
pub enum QuotaCommand {
    /// List the quota of queues
    #[command(after_help = "Examples:
  fedq quota list
  fedq quota list -w")]
    List(ListArgs),
    /// Why a queue's quota is what it is
    #[command(after_help = "Examples:
  fedq quota explain team-a
  fedq quota explain team-a -o json")]
    Explain(ExplainArgs),
    /// Change what a queue holds besides what clusters contribute
    #[command(after_help = "Examples:
  fedq quota base team-a --flavor on-demand gpu=4")]
    Base(BaseArgs),
}

#[derive(Args, Debug)]
pub struct ExplainArgs {
    pub queue: String,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct BaseArgs {
    pub queue: String,
    #[arg(long, value_name = "FLAVOR")]
    pub flavor: String,
    /// The new base, such as gpu=4
    #[arg(value_name = "RESOURCE=QUANTITY")]
    pub base: String,
    #[command(flatten)]
    pub dry_run: DryRun,
}

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// List what was done, newest first
    #[command(after_help = "Examples:
  fedq audit list
  fedq audit list --who alice@example.com --since 2026-01-31T00:00:00Z
  fedq audit list --object clusters/eu-west -o wide

Only what was done through fedqd is here; what was done with kubectl is in the hub's own audit log.")]
    List(AuditListArgs),
}

#[derive(Args, Debug)]
pub struct AuditListArgs {
    /// Only what this person did
    #[arg(long, value_name = "NAME")]
    pub who: Option<String>,
    /// Only what was done to this object
    #[arg(long, value_name = "KIND/NAME")]
    pub object: Option<String>,
    /// Only what was done since then
    #[arg(long, value_name = "TIME")]
    pub since: Option<jiff::Timestamp>,
    /// How many at most
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    pub limit: u16,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fedq check
  fedq check eu-west

The exit code is 1 where something failed.")]
pub struct CheckArgs {
    /// Only this cluster
    pub cluster: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

#[cfg(feature = "demo")]
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fedq demo
  fedq demo --serve
  fedq demo --serve --dir ~/fedq-demo

A hub and three clusters are simulated in this process, with the real fedqd beside them. It takes
half a minute; the exit code is 1 where something does not come true.")]
pub struct DemoArgs {
    /// Stay up once clusters are joined and at work, and say what to try with fedq and kubectl
    #[arg(long)]
    pub serve: bool,
    /// Folder for kubeconfigs, database and log: new, empty or an earlier demo's; it stays [default: a
    /// temporary one, which is removed at the end]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fedq version
  fedq version --client -o json")]
pub struct VersionArgs {
    /// Only of this program
    #[arg(long)]
    pub client: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fedq man /usr/local/share/man/man1
  fedq man pages && man pages/fedq-claim-edit.1")]
pub struct ManArgs {
    /// Folder to write them to, a page for each command
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  source <(fedq completion bash)
  fedq completion zsh > \"${fpath[1]}/_fedq\"
  fedq completion fish > ~/.config/fish/completions/fedq.fish")]
pub struct CompletionArgs {
    /// bash, zsh or fish
    #[arg(value_enum, hide_possible_values = true)]
    pub shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}
