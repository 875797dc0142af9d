//! What may be typed after `fedq placement`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ListArgs, Output};

#[derive(Debug, Subcommand)]
pub enum PlacementCommand {
    /// List Placements with who decides them and what they chose
    #[command(after_help = "Examples:
  fedq placement list
  fedq placement list -o wide -w")]
    List(ListArgs),
    /// Show a Placement's decisions and conditions
    #[command(after_help = "Examples:
  fedq placement show gpu-clusters
  fedq placement show gpu-clusters -n kueue-system -o yaml")]
    Show(PlacementArgs),
    /// Why each cluster is chosen or is not
    #[command(after_help = "Examples:
  fedq placement explain gpu-clusters
  fedq placement explain gpu-clusters -o json

It is computed anew from labels, taints and scores as they are now.")]
    Explain(PlacementArgs),
    /// What a Placement would choose now, without applying it
    #[command(after_help = "Examples:
  fedq placement simulate -f placement.yaml
  kubectl get placement gpu-clusters -n kueue-system -o yaml | fedq placement simulate -f -")]
    Simulate(SimulateArgs),
}

#[derive(Args, Debug)]
pub struct PlacementArgs {
    pub name: String,
    /// Its namespace; needed where several have a Placement of that name
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct SimulateArgs {
    /// The manifest; - is stdin
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Instead of the manifest's namespace: the sets that are bound there count
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub output: Output,
}
