//! What may be typed after `fedq volume`.

use clap::{Args, Subcommand};

use super::Output;

#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a volume that tasks mount by its name
    #[command(after_help = "Examples:
  fedq volume create data 100Gi
  fedq volume create data 1Ti --cluster eu-west --access-modes ReadWriteMany --storage-class fast

A task that mounts it runs where it is. For tasks of several nodes it must be ReadWriteMany.")]
    Create(VolumeCreateArgs),
    /// Let tasks mount a PersistentVolumeClaim that is there already
    #[command(after_help = "Examples:
  fedq volume adopt scratch --cluster eu-west --claim team-scratch
  fedq volume adopt imagenet --cluster eu-west --claim datasets-imagenet --read-only

The claim is one of your tenant's namespace on that cluster, and tasks that mount the volume run there. fedq never deletes it: to \
delete the volume is to forget it.")]
    Adopt(VolumeAdoptArgs),
    /// List volumes
    #[command(after_help = "Examples:
  fedq volume list
  fedq volume list --all-users -o wide")]
    List(VolumeListArgs),
    /// One volume, and which tasks use it
    #[command(after_help = "Examples:
  fedq volume show data
  fedq volume show 1a2b3c4d -o yaml")]
    Show(VolumeArgs),
    /// Delete a volume with what is in it, or forget one that was adopted
    #[command(after_help = "Examples:
  fedq volume delete data
  fedq volume delete 1a2b3c4d --force

One that a task uses is not deleted.")]
    Delete(VolumeDeleteArgs),
}

#[derive(Args, Debug)]
pub struct VolumeCreateArgs {
    /// As tasks name it
    pub name: String,
    /// Such as 10Gi
    pub size: String,
    /// Where to make it; else where the first task that mounts it runs
    #[arg(long, value_name = "CLUSTER")]
    pub cluster: Option<String>,
    /// Instead of the cluster's default
    #[arg(short, long, value_name = "CLASS")]
    pub storage_class: Option<String>,
    /// ReadWriteOnce, ReadWriteMany or ReadOnlyMany, with commas between
    #[arg(short, long, value_name = "MODES", value_delimiter = ',')]
    pub access_modes: Vec<String>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct VolumeAdoptArgs {
    /// As tasks name it
    pub name: String,
    /// Where the claim is
    #[arg(long, value_name = "CLUSTER")]
    pub cluster: String,
    /// The PersistentVolumeClaim
    #[arg(long, value_name = "CLAIM")]
    pub claim: String,
    /// Tasks cannot write to it
    #[arg(long)]
    pub read_only: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct VolumeListArgs {
    /// Everybody's, which takes the right to
    #[arg(short = 'u', long)]
    pub all_users: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct VolumeArgs {
    #[arg(value_name = "NAME|ID")]
    pub volume: String,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct VolumeDeleteArgs {
    #[arg(value_name = "NAME|ID")]
    pub volume: String,
    /// Do not ask
    #[arg(short, long)]
    pub force: bool,
}
