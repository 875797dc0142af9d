//! What may be typed after `fedq appwrapper`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{LogsArgs, Output, StopArgs, TaskArgs, TaskListArgs};

#[derive(Debug, Subcommand)]
pub enum AppWrapperCommand {
    /// Run an AppWrapper on the cluster that has room for it
    #[command(after_help = "Examples:
  fedq appwrapper submit train.yaml
  fedq appwrapper submit train.yaml --queue team --dry-run
  fedq appwrapper submit train.yaml --cluster eu-west --detach
  fedq appwrapper submit job.yaml --unwrap
  cat train.yaml | fedq appwrapper submit - -o name

The file is an AppWrapper of workload.codeflare.dev/v1beta2. Once this says so, it is stored and waits for quota where its
pods fit best. You must be allowed to create on the hub, in your namespace, every object that it wraps.")]
    Submit(AppWrapperSubmitArgs),
    /// Make an AppWrapper of plain manifests
    #[command(after_help = "Examples:
  fedq appwrapper wrap -f job.yaml -f service.yaml
  fedq appwrapper wrap -f manifests/ --name train > train.yaml
  fedq appwrapper wrap -f job.yaml --submit --queue team

How many pods there are and where is found by itself in Pods, Deployments, StatefulSets, Jobs, JobSets, PyTorchJobs,
RayClusters and RayJobs. Nothing asks a server before --submit.")]
    Wrap(AppWrapperWrapArgs),
    /// List AppWrappers, newest first
    #[command(after_help = "Examples:
  fedq appwrapper list
  fedq appwrapper list -w
  fedq appwrapper list --all-users -o wide")]
    List(TaskListArgs),
    /// One AppWrapper with its objects and its history
    #[command(after_help = "Examples:
  fedq appwrapper status 1a2b3c4d
  fedq appwrapper status 1a2b3c4d -o yaml")]
    Status(TaskArgs),
    /// Why an AppWrapper is where it is: what each cluster says to it, with the numbers
    #[command(after_help = "Examples:
  fedq appwrapper explain 1a2b3c4d")]
    Explain(TaskArgs),
    /// The logs of its pods, until it is over
    #[command(after_help = "Examples:
  fedq appwrapper logs 1a2b3c4d
  fedq appwrapper logs 1a2b3c4d --node 3 --no-follow

Its pods are numbered from 0, in the order of its components. The exit codes are those of fedq task logs.")]
    Logs(LogsArgs),
    /// Stop AppWrappers and delete them on their clusters
    #[command(
        visible_alias = "delete",
        after_help = "Examples:
  fedq appwrapper stop 1a2b3c4d
  fedq appwrapper delete 1a2b3c4d --no-wait

It waits until the clusters have confirmed that everything is gone. What was told of it stays with fedq."
    )]
    Stop(StopArgs),
}

#[derive(Args, Debug)]
pub struct AppWrapperSubmitArgs {
    /// An AppWrapper in YAML or JSON; - is stdin
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub place: AppWrapperPlace,
    #[command(flatten)]
    pub output: Output,
}

/// Where it is to run.
#[derive(Args, Debug)]
pub struct AppWrapperPlace {
    /// The LocalQueue to wait in
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Run on this cluster only
    #[arg(long, value_name = "CLUSTER")]
    pub cluster: Option<String>,
    /// End it when it has run for so long: seconds, or a number with m, h or d
    #[arg(long, value_name = "TIME")]
    pub max_duration: Option<String>,
    /// Where nothing runs AppWrappers, make its one Job by itself (if tasks.unwrapJobs of fedqd allows it)
    #[arg(long)]
    pub unwrap: bool,
    /// Do not show its logs
    #[arg(short, long)]
    pub detach: bool,
    /// Show what each cluster says to it, and run nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args, Debug)]
pub struct AppWrapperWrapArgs {
    /// Manifests in YAML or JSON, or a folder of such files; - is stdin
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Call the AppWrapper so
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Submit it instead of printing it
    #[arg(long)]
    pub submit: bool,
    #[command(flatten)]
    pub place: AppWrapperPlace,
    #[command(flatten)]
    pub output: Output,
}
