//! Flags of `fedqd`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use fedq_base::telemetry::LogLevel;

/// Joins clusters to a hub and keeps Kueue's quota in step with claims and capacity.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "fedqd", version, after_help = EXAMPLES)]
pub struct Args {
    /// Configuration file; without one the defaults hold
    #[arg(long, value_name = "FILE", env = "FEDQ_CONFIG")]
    pub config: Option<PathBuf>,

    /// Print the configuration in effect and exit: 0 if it is valid, 1 if not
    #[arg(long, conflicts_with_all = ["print_crds", "print_man", "rebuild_store"])]
    pub check_config: bool,

    /// Print CustomResourceDefinitions and exit: fedq's own, or with `=ocm` those of OCM's placement kinds,
    /// for a hub without OCM
    #[arg(
        long, value_enum, value_name = "WHOSE", num_args = 0..=1, require_equals = true,
        default_missing_value = "fedq", conflicts_with = "rebuild_store", hide_possible_values = true
    )]
    pub print_crds: Option<Crds>,

    /// Print the manual page and exit
    #[arg(long, conflicts_with = "rebuild_store")]
    pub print_man: bool,

    /// Move a damaged or newer database aside and start anew: everything but history and tasks is
    /// rebuilt from the clusters
    #[arg(long)]
    pub rebuild_store: bool,

    /// Folder of the database, instead of the configuration's store.path
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// error, warn, info, debug or trace, or levels by module: info,fedq_store=debug
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Crds {
    Fedq,
    Ocm,
}

const EXAMPLES: &str = "\
Examples:
  fedqd --config /etc/fedq/fedqd.yaml
  fedqd --config fedqd.yaml --check-config
  fedqd --print-crds | kubectl apply -f -
  fedqd --print-crds=ocm | kubectl apply --server-side -f -
  FEDQ_CLUSTERS_LOST_TIMEOUT=30m fedqd --data-dir /var/lib/fedq --log-level debug

Every key of the file can be set by a variable: clusters.lostTimeout is FEDQ_CLUSTERS_LOST_TIMEOUT.
Flags win over variables, variables over the file.";
