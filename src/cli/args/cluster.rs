//! What may be typed after `fedq cluster`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{DryRun, ListArgs, Output};

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Join a cluster
    #[command(after_help = "Examples:
  fedq cluster join eu-west --kubeconfig eu-west.yaml
  fedq cluster join eu-west --kubeconfig ~/.kube/config --context eu-west --create-serviceaccount

The kubeconfig must hold a token or a certificate itself: no paths, no programs to run.
With --create-serviceaccount your own rights are used once, to make a ServiceAccount with just
the rights fedq needs; only its token is sent to the server.")]
    Join(JoinArgs),
    /// List joined clusters
    #[command(after_help = "Examples:
  fedq cluster list
  fedq cluster list -o wide -w")]
    List(ListArgs),
    /// Show all about a cluster
    #[command(after_help = "Examples:
  fedq cluster show eu-west
  fedq cluster show eu-west -o json")]
    Show(ShowClusterArgs),
    /// Send nothing new to a cluster; what runs there goes on
    #[command(after_help = "Examples:
  fedq cluster cordon eu-west")]
    Cordon(ClusterArgs),
    /// Let a cluster have work again
    #[command(after_help = "Examples:
  fedq cluster uncordon eu-west")]
    Uncordon(ClusterArgs),
    /// Accept the cluster that answers now as the one that was joined
    #[command(after_help = "Examples:
  fedq cluster confirm eu-west
  fedq cluster confirm eu-west --uid 5f9c0c1e-8d0f-4c8a-9d59-0c9a6f1f2f5e")]
    Confirm(ConfirmArgs),
    /// Take a cluster out: its share first, then its empty queues
    #[command(after_help = "Examples:
  fedq cluster leave eu-west
  fedq cluster leave eu-west --yes")]
    Leave(LeaveArgs),
}

#[derive(Args, Debug)]
pub struct JoinArgs {
    /// Name of the cluster
    pub name: String,
    /// Kubeconfig of the cluster; - for stdin
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Make a ServiceAccount with just the rights fedq needs and join with that
    #[arg(long)]
    pub create_serviceaccount: bool,
    /// Do not wait until the cluster is Ready
    #[arg(long)]
    pub no_wait: bool,
    /// How long to wait
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub timeout: u64,
    #[command(flatten)]
    pub dry_run: DryRun,
}

#[derive(Args, Debug)]
pub struct ShowClusterArgs {
    pub name: String,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct ClusterArgs {
    pub name: String,
    #[command(flatten)]
    pub dry_run: DryRun,
}

#[derive(Args, Debug)]
pub struct ConfirmArgs {
    pub name: String,
    /// UID of its kube-system namespace [default: the one it answers with]
    #[arg(long, value_name = "UID")]
    pub uid: Option<String>,
    #[command(flatten)]
    pub dry_run: DryRun,
}

#[derive(Args, Debug)]
pub struct LeaveArgs {
    pub name: String,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    #[command(flatten)]
    pub dry_run: DryRun,
}
