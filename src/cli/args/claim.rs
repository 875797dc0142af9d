//! What may be typed after `fedq claim`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{DryRun, ListArgs, Output};

#[derive(Debug, Subcommand)]
pub enum ClaimCommand {
    /// List claims
    #[command(after_help = "Examples:
  fedq claim list
  fedq claim list -o wide -w")]
    List(ListArgs),
    /// Show a claim: what it asks for, what it gets and why
    #[command(after_help = "Examples:
  fedq claim show eu-west-resource-claim
  fedq claim show eu-west-resource-claim -o yaml")]
    Show(ShowClaimArgs),
    /// Edit a claim in your editor
    #[command(after_help = "Examples:
  fedq claim edit eu-west-resource-claim
  KUBE_EDITOR='code --wait' fedq claim edit eu-west-resource-claim
  fedq claim edit eu-west-resource-claim --dry-run

The editor is $KUBE_EDITOR, else $EDITOR, else vi. Before anything is written you see what each
queue gains and loses. What somebody else changed meanwhile is kept; nothing you typed is lost.")]
    Edit(EditArgs),
    /// Set one assignment of a claim
    #[command(after_help = "Examples:
  fedq claim assign eu-west-resource-claim --queue team-a --flavor on-demand cpu=500 gpu=5
  fedq claim assign eu-west-resource-claim --queue team-a --flavor on-demand --remove")]
    Assign(AssignArgs),
    /// Show what a file would change: exit code 0 for nothing, 1 for something, 2 for an error
    #[command(after_help = "Examples:
  fedq claim diff -f claim.yaml
  fedq claim diff -f clusters/ --prune -o markdown
  fedq claim show eu-west-resource-claim -o yaml | sed 's/gpu: .*/gpu: 8/' | fedq claim diff -f -

Files hold manifests as `fedq claim show -o yaml` prints them. Of a folder, with those in it, all .yaml, .yml and .json files
are read, and what is of other kinds is left alone. A claim that is not there yet is compared with none.")]
    Diff(DiffArgs),
    /// Show who changed a claim, and how
    #[command(after_help = "Examples:
  fedq claim history eu-west-resource-claim")]
    History(HistoryArgs),
    /// Say that the removal of many claims at once is meant
    #[command(after_help = "Examples:
  fedq claim confirm-removal

When claims that hold more than half of all assigned quota vanish together, fedq writes nothing
until someone confirms.")]
    ConfirmRemoval(ConfirmRemovalArgs),
}

#[derive(Args, Debug)]
pub struct ShowClaimArgs {
    pub name: String,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct EditArgs {
    pub name: String,
    /// Apply without asking
    #[arg(short, long)]
    pub yes: bool,
    #[command(flatten)]
    pub dry_run: DryRun,
}

#[derive(Args, Debug)]
pub struct AssignArgs {
    pub name: String,
    #[arg(long, value_name = "QUEUE")]
    pub queue: String,
    #[arg(long, value_name = "FLAVOR")]
    pub flavor: String,
    /// Take the assignment away
    #[arg(long, conflicts_with = "resources")]
    pub remove: bool,
    /// What the queue gets, such as cpu=500 gpu=5; replaces what it had
    #[arg(value_name = "RESOURCE=QUANTITY", required_unless_present = "remove")]
    pub resources: Vec<String>,
    /// Apply without asking
    #[arg(short, long)]
    pub yes: bool,
    #[command(flatten)]
    pub dry_run: DryRun,
}

#[derive(Args, Debug)]
pub struct DiffArgs {
    /// File or folder with claims, may be given again; - for stdin
    #[arg(short, long, required = true, value_name = "FILE")]
    pub filename: Vec<PathBuf>,
    /// Output format: table, json, yaml, name or markdown (for a comment on a pull request)
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT", hide_possible_values = true)]
    pub output: DiffFormat,
    /// Also show the claims that are in none of the files, as what is applied with pruning removes them
    #[arg(long)]
    pub prune: bool,
    /// Leave the headers of tables out
    #[arg(long)]
    pub no_headers: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum DiffFormat {
    #[default]
    Table,
    Json,
    Yaml,
    /// Only names
    Name,
    Markdown,
}

#[derive(Args, Debug)]
pub struct HistoryArgs {
    pub name: String,
    /// How many changes at most
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub limit: u32,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct ConfirmRemovalArgs {
    #[command(flatten)]
    pub dry_run: DryRun,
}
