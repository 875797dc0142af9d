//! What may be typed after `fedq task`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};

use super::{ListArgs, Output};

#[derive(Debug, Subcommand)]
pub enum TaskCommand {
    /// Run a task on the cluster that has room for it
    #[command(after_help = "Examples:
  fedq task submit train.yaml
  fedq task submit train.yaml -e EPOCHS=10 --secret HF_TOKEN --gpus H100:8 --nodes 4
  fedq task submit train.yaml --infra k8s --cpus 16+ --memory 64 --priority high
  fedq task submit train.yaml --detach
  cd project && fedq task submit train.yaml   # with workdir: . in it, the task starts in a copy of this folder
  fedq task submit train.yaml --dry-run
  fedq task submit --gpus A100:1 --image pytorch/pytorch -- python train.py --epochs 10
  cat train.yaml | fedq task submit - -o name

The file is SkyPilot's YAML. What workdir and file_mounts name of this machine is packed, without what .skyignore or
.gitignore list, and sent unless the server has it. Once this says so, the task is stored and waits for quota where it fits best. Its logs
follow; Ctrl-C ends only the looking. The exit code is then that of fedq task logs.")]
    Submit(Box<SubmitArgs>),
    /// List tasks, newest first
    #[command(after_help = "Examples:
  fedq task list
  fedq task list -w
  fedq task list --all-users -o wide
  fedq task list --skip-finished -o name")]
    List(TaskListArgs),
    /// One task with its history
    #[command(after_help = "Examples:
  fedq task status 1a2b3c4d
  fedq task status 1a2b3c4d -o yaml")]
    Status(TaskArgs),
    /// Why a task is where it is: what each cluster says to it, with the numbers
    #[command(after_help = "Examples:
  fedq task explain 1a2b3c4d")]
    Explain(TaskArgs),
    /// The logs of a task, until it is over
    #[command(after_help = "Examples:
  fedq task logs 1a2b3c4d
  fedq task logs 1a2b3c4d --no-follow --tail 100 --timestamps
  fedq task logs 1a2b3c4d --node 3 --since 10m -o raw > node-3.log

Ctrl-C ends only the looking. The exit code is 0 where the task succeeded, 100 where it failed, 101 where it is not
over, 102 where there is none, 103 where it was stopped.")]
    Logs(LogsArgs),
    /// Run a command in a task that runs
    #[command(after_help = "Examples:
  fedq task exec 1a2b3c4d -- nvidia-smi
  fedq task exec 1a2b3c4d --node 3 -- py-spy dump --pid 1
  tar c data | fedq task exec 1a2b3c4d -i -- tar x -C /tmp
  fedq task exec 1a2b3c4d -it -- htop

The exit code is the command's. It runs in the task's own container, beside the task's script, and ends with the task.
What runs there is written down with your name (fedq audit list), without its arguments and input.")]
    Exec(ExecArgs),
    /// A shell in a task that runs
    #[command(after_help = "Examples:
  fedq task shell 1a2b3c4d
  fedq task shell 1a2b3c4d --node 3
  echo 'df -h /dev/shm' | fedq task shell 1a2b3c4d

It is bash where the image has it, else sh, in the task's workdir.")]
    Shell(ShellArgs),
    /// Let ports of this machine lead to ports of a task that runs
    #[command(after_help = "Examples:
  fedq task port-forward 1a2b3c4d 8888
  fedq task port-forward 1a2b3c4d 16006:6006 8265
  fedq task port-forward 1a2b3c4d --node 3 :9400   # any port that is free here

It listens on 127.0.0.1 until Ctrl-C, for connections by TCP.")]
    PortForward(PortForwardArgs),
    /// Stop tasks and take them off their clusters
    #[command(after_help = "Examples:
  fedq task stop 1a2b3c4d
  fedq task stop --all
  fedq task stop --all --all-users --yes

It waits until the clusters have confirmed it. A task that is over stays as it is.")]
    Stop(StopArgs),
    /// Read a task file and say what is wrong with it, without a server
    #[command(after_help = "Examples:
  fedq task validate train.yaml
  fedq task validate train.yaml -e EPOCHS=10 --secret HF_TOKEN
  fedq task validate examples llm/finetune.yaml   # each task file of the folder and of those below
  cat train.yaml | fedq task validate - --strict -o json

The exit code is 1 where a task cannot be run. Of several files each gets a verdict: it runs as it is, runs with notes
(what has no effect here), needs values, or cannot run.")]
    Validate(ValidateArgs),
}

#[derive(Args)]
pub struct TaskInput {
    /// Set a variable of the task; a name alone is taken from the environment
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]")]
    pub envs: Vec<String>,
    /// Set variables from a file of NAME=VALUE lines
    #[arg(long, value_name = "FILE")]
    pub env_file: Option<PathBuf>,
    /// Set a secret of the task; a name alone, or - as the value, is taken from the environment
    #[arg(long = "secret", value_name = "NAME[=VALUE]")]
    pub secrets: Vec<String>,
    /// Set secrets from a file of NAME=VALUE lines
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Take warnings for errors
    #[arg(long)]
    pub strict: bool,
}

/// Without the secrets.
impl std::fmt::Debug for TaskInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskInput").field("env_file", &self.env_file).finish_non_exhaustive()
    }
}

#[derive(Args, Debug)]
pub struct ValidateArgs {
    /// Task files in SkyPilot's YAML, or folders of them; - is stdin
    #[arg(value_name = "FILE|FOLDER", required = true)]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub input: TaskInput,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct SubmitArgs {
    /// A task file in SkyPilot's YAML; - is stdin
    #[arg(value_name = "FILE", required_unless_present = "command", conflicts_with = "command")]
    pub file: Option<PathBuf>,
    /// A command to run, instead of a file
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    #[command(flatten)]
    pub input: TaskInput,
    /// Call the task so
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The LocalQueue to wait in
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Run on this cluster only
    #[arg(long, value_name = "CLUSTER")]
    pub cluster: Option<String>,
    /// Run on so many nodes
    #[arg(long, alias = "num-nodes", value_name = "COUNT")]
    pub nodes: Option<u32>,
    /// What each node gets, such as H100:8
    #[arg(long, value_name = "GPUS")]
    pub gpus: Option<String>,
    /// The cores of each node, such as 16, or 8+ for at least so many
    #[arg(long, value_name = "CORES")]
    pub cpus: Option<String>,
    /// The memory of each node, such as 64 (GB) or 32+ for at least so much
    #[arg(long, value_name = "AMOUNT")]
    pub memory: Option<String>,
    /// Where to run: k8s, or k8s/ and a cluster's name, whatever cloud the file names
    #[arg(long, value_name = "INFRA", conflicts_with = "cluster")]
    pub infra: Option<String>,
    /// Run on spot nodes
    #[arg(long, conflicts_with = "no_use_spot")]
    pub use_spot: bool,
    /// Do not run on spot nodes
    #[arg(long)]
    pub no_use_spot: bool,
    /// A number, or the name of a WorkloadPriorityClass
    #[arg(long, value_name = "PRIORITY", allow_hyphen_values = true)]
    pub priority: Option<String>,
    /// Start in a copy of this folder
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    pub workdir: Option<String>,
    /// The disk of each node
    #[arg(long, value_name = "AMOUNT", hide = true)]
    pub disk_size: Option<String>,
    /// End it when it has run for so long: seconds, or a number with m, h or d
    #[arg(long, value_name = "TIME")]
    pub max_duration: Option<String>,
    /// The container image
    #[arg(long, alias = "image-id", value_name = "IMAGE")]
    pub image: Option<String>,
    /// Make it as an AppWrapper, which the cluster's controller makes anew when a node has to be left
    #[arg(long)]
    pub as_app_wrapper: bool,
    /// Do not show its logs
    #[arg(short, long)]
    pub detach: bool,
    /// Show what each cluster says to it, and run nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct TaskListArgs {
    /// Everybody's, which takes the right to
    #[arg(short = 'u', long)]
    pub all_users: bool,
    /// Leave out what is over
    #[arg(short, long)]
    pub skip_finished: bool,
    /// How many at most
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    #[command(flatten)]
    pub list: ListArgs,
}

#[derive(Args, Debug)]
pub struct TaskArgs {
    #[arg(value_name = "ID")]
    pub id: String,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum LogFormat {
    /// With the node before each line, where there are several
    #[default]
    Text,
    /// What was written and nothing else
    Raw,
    Json,
}

#[derive(Args, Debug)]
pub struct LogsArgs {
    #[arg(value_name = "ID")]
    pub id: String,
    /// Only the last lines of each node, and what follows
    #[arg(short = 'n', long, value_name = "LINES")]
    pub tail: Option<u64>,
    /// Only lines that are not older, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "since_time")]
    pub since: Option<Duration>,
    /// Only lines since then
    #[arg(long, value_name = "TIME")]
    pub since_time: Option<jiff::Timestamp>,
    /// Put the time before each line
    #[arg(long)]
    pub timestamps: bool,
    /// Only the node of this rank
    #[arg(long, value_name = "RANK")]
    pub node: Option<u32>,
    /// What is there now, and no more
    #[arg(long)]
    pub no_follow: bool,
    /// What was kept (tasks.logs.keep) of the run before this one: one that failed, or was moved
    #[arg(short, long)]
    pub previous: bool,
    /// What was kept of this run: the task's events (-o yaml) name each one's epoch
    #[arg(long, value_name = "EPOCH", conflicts_with = "previous")]
    pub epoch: Option<u32>,
    /// Output format: text, raw or json
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT", hide_possible_values = true)]
    pub output: LogFormat,
}

impl LogsArgs {
    /// From its beginning to its end.
    pub fn whole(id: String) -> Self {
        Self {
            id,
            tail: None,
            since: None,
            since_time: None,
            timestamps: false,
            node: None,
            no_follow: false,
            previous: false,
            epoch: None,
            output: LogFormat::Text,
        }
    }
}

/// `90s`, `10m`, `1h30m`, `2d`
fn duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration =
        text.parse().map_err(|_| "write a duration such as 90s, 10m or 1h30m".to_owned())?;
    Duration::try_from(span).map_err(|_| "a duration is not negative".to_owned())
}

#[derive(Args, Debug)]
pub struct ExecArgs {
    #[arg(value_name = "ID")]
    pub id: String,
    /// The node of this rank
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub node: u32,
    /// Another container than the task's own
    #[arg(short, long, value_name = "NAME")]
    pub container: Option<String>,
    /// Send the command what comes in here
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// Give the command a terminal
    #[arg(short = 't', long)]
    pub tty: bool,
    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND", required = true)]
    pub command: Vec<String>,
}

#[derive(Args, Debug)]
pub struct ShellArgs {
    #[arg(value_name = "ID")]
    pub id: String,
    /// The node of this rank
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub node: u32,
    /// Another container than the task's own
    #[arg(short, long, value_name = "NAME")]
    pub container: Option<String>,
}

#[derive(Args, Debug)]
pub struct PortForwardArgs {
    #[arg(value_name = "ID")]
    pub id: String,
    /// The task's port, if need be behind the one of this machine and a colon
    #[arg(value_name = "[LOCAL:]PORT", required = true)]
    pub ports: Vec<Ports>,
    /// The node of this rank
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub node: u32,
}

/// A port here and the one of the task that it leads to.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    pub local: u16,
    pub remote: u16,
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct StopArgs {
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    pub ids: Vec<String>,
    /// All of one's own
    #[arg(short, long)]
    pub all: bool,
    /// With --all: everybody's, which takes the right to
    #[arg(short = 'u', long, requires = "all")]
    pub all_users: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Do not wait until it is confirmed
    #[arg(long)]
    pub no_wait: bool,
}
