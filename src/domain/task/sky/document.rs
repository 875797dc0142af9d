//! The top level of a task, and the header of a pipeline.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Allowed,
    config::{self, Config},
    reader::{At, Fields, Notes},
    resources::{self, Shape},
    text::{expand, is_variable},
};
use crate::task::{
    limits::Limits,
    spec::{MAX_ARGUMENT, MAX_NODES, Mount, MountedClaim, NewTask, Priority, Secrets, TaskSpec, Workdir},
    upload::{Archive, Upload, WORKDIR},
    volume::check_claim,
    yaml::{Node, Value, shown},
};
use fedq_values::ids::ClusterName;

/// Characters of a task's name.
pub const MAX_NAME: usize = 200;
const MAX_VOLUMES: usize = 64;
const MAX_FILE_MOUNTS: usize = 32;
/// Of all places of `file_mounts` together, since they stand in the script.
const MAX_PLACES: usize = 4 << 10;
/// Linux gives a program's arguments and environment together a quarter of its stack, 2 MiB.
const MAX_ENVIRONMENT: usize = 1 << 20;
/// What is put around `setup` and `run`.
const AROUND_SCRIPT: usize = 12 << 10;

/// Set by fedq: a value of the file's own would be lost.
const INJECTED: [&str; 2] = ["NODE_RANK", "NUM_NODES"];
const INJECTED_PREFIX: &str = "SKYPILOT_";

pub struct Overrides<'a> {
    pub envs: &'a BTreeMap<String, String>,
    pub secrets: &'a BTreeMap<String, String>,
    pub uploads: &'a BTreeMap<String, Archive>,
    pub pods: &'a Allowed,
    pub limits: &'a Limits,
    /// The workdir was given beside the file: it is of the submitter's machine, however it is written.
    pub workdir_is_here: bool,
}

/// Whether the first of several documents describes the pipeline, and not a task.
pub fn is_header(node: &Node) -> bool {
    const KEYS: [&str; 4] = ["name", "execution", "primary_tasks", "termination_delay"];
    match &node.value {
        Value::Map(entries) => entries.iter().all(|(key, _)| KEYS.contains(&&*key.text)),
        Value::Scalar(_) | Value::List(_) => false,
    }
}

/// The pipeline's name.
pub fn header(at: &At<'_>, notes: &mut Notes) -> Option<String> {
    let mut fields = at.fields(notes);
    let name = fields.take("name").and_then(|at| task_name(&at, notes));
    if let Some(at) = fields.take("execution") {
        match at.text(notes) {
            Some("serial") | None => {}
            Some("parallel") => notes.problem(
                &at,
                "tasks that run side by side (a job group) are not supported; submit them as tasks of their own",
            ),
            Some(other) => {
                notes.problem(&at, format!("`{}` is neither serial nor parallel", shown(other)));
            }
        }
    }
    fields.ignore(notes, "primary_tasks", "only job groups have them");
    fields.ignore(notes, "termination_delay", "only job groups have it");
    fields.finish(notes);
    name
}

/// Two steps of a pipeline under one name could not be told apart.
pub fn names_differ(documents: &[Node], tasks: &[Option<NewTask>], notes: &mut Notes) {
    let mut seen = BTreeSet::new();
    for (node, task) in documents.iter().zip(tasks) {
        let Some(name) = task.as_ref().and_then(|task| task.spec.name.as_deref()) else { continue };
        if !seen.insert(name) {
            notes.problem(&At::root(node), format!("two tasks of the file are called `{}`", shown(name)));
        }
    }
}

pub fn task(at: &At<'_>, overrides: &Overrides<'_>, notes: &mut Notes) -> Option<NewTask> {
    if !at.is_map() {
        at.wrong(notes, "a map of a task's fields, such as `run`");
        return None;
    }
    let mut fields = at.fields(notes);
    let name = fields.take("name").and_then(|at| task_name(&at, notes));
    let num_nodes = fields.take("num_nodes").map_or(Some(1), |at| nodes(&at, notes));
    let envs = environment(&mut fields, overrides, notes);
    let secrets = secrets(&mut fields, overrides, notes);
    let variable =
        |name: &str| envs.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let mut uploads = Vec::new();
    let workdir = fields.take("workdir").and_then(|at| {
        let sent = |source: &str| overrides.uploads.get(source).cloned();
        workdir(&at, &variable, (overrides.workdir_is_here, &sent, &mut uploads), notes)
    });
    let volumes = fields.take("volumes").map(|at| volumes(&at, &variable, notes)).unwrap_or_default();
    if let Some(at) = fields.take("file_mounts") {
        uploads.extend(file_mounts(&at, &variable, overrides, notes));
    }
    let setup = fields.take("setup").and_then(|at| at.text(notes).map(str::to_owned));
    let run = run(&mut fields, at, setup.as_deref(), notes);
    let resources = fields.take("resources");
    let shape = resources.as_ref().map_or_else(Shape::default, |at| resources::read(at, notes));
    let max_duration = max_duration(&mut fields, at, overrides.limits, notes);
    let config = fields.take("config");
    let config = config.map_or_else(Config::default, |at| config::read(&at, overrides.pods, notes));
    unsupported(&mut fields, notes);
    fields.finish(notes);
    check_environment(at, &envs, &secrets, notes);

    let Shape { candidates, ordered, queue, priority, recovery, priority_class } = shape;
    let spec = TaskSpec {
        name,
        num_nodes: num_nodes?,
        workdir,
        uploads,
        setup,
        run: run?,
        envs,
        secrets: secrets.reveal().map(|(name, _)| name.to_owned()).collect(),
        volumes,
        one_machine: false,
        candidates,
        ordered,
        queue: config.queue.or(queue),
        priority: priority_class.map(Priority::Class).or(priority),
        spill_after: config.spill_after,
        max_duration,
        recovery,
        limits: config.limits,
        pod: config.pod,
        as_app_wrapper: config.as_app_wrapper,
        warnings: Vec::new(),
        wrapped: None,
    };
    if let Some(excess) = overrides.limits.forbid(&spec) {
        notes.problem(resources.as_ref().unwrap_or(at), excess.refusal());
    }
    Some(NewTask { spec, secrets })
}

/// Its own, or its tenant's default.
fn max_duration(
    fields: &mut Fields<'_>,
    task: &At<'_>,
    limits: &Limits,
    notes: &mut Notes,
) -> Option<Duration> {
    let field = fields.take("max_duration");
    let wanted = field.as_ref().and_then(|at| config::seconds(at, notes));
    if let (Some(at), Some(Duration::ZERO)) = (&field, wanted) {
        notes.problem(
            at,
            "a task runs for a second at least; without this field it may run as long as it takes",
        );
    }
    limits.duration(wanted).unwrap_or_else(|error| {
        notes.problem(field.as_ref().unwrap_or(task), error.to_string());
        None
    })
}

fn unsupported(fields: &mut Fields<'_>, notes: &mut Notes) {
    fields.refuse(notes, "service", "services are not supported: fedq runs tasks to their end");
    fields.refuse(notes, "pool", "pools are not supported: a task is queued until a cluster has room");
    fields.ignore(notes, "managed_secrets", "fedq keeps no secrets of its own; give them as `secrets`");
    fields.ignore(notes, "event_callback", "watch the task's events by the API");
    fields.ignore(notes, "inputs", "data does not decide where a task runs, volumes do");
    fields.ignore(notes, "outputs", "data does not decide where a task runs, volumes do");
    fields.ignore(notes, "api_server_access", "tasks get no access to fedq");
}

fn task_name(at: &At<'_>, notes: &mut Notes) -> Option<String> {
    let name = at.text(notes)?;
    if name.trim().is_empty() || MAX_NAME < name.chars().count() || name.chars().any(char::is_control) {
        notes.problem(at, format!("a name has 1 to {MAX_NAME} characters, and none that cannot be printed"));
        return None;
    }
    Some(name.to_owned())
}

fn nodes(at: &At<'_>, notes: &mut Notes) -> Option<u32> {
    let number = at.whole(notes)?;
    let count = u32::try_from(number).ok().filter(|count| (1..=MAX_NODES).contains(count));
    if count.is_none() {
        notes.problem(at, format!("a task has 1 to {MAX_NODES} nodes, not {number}"));
    }
    count
}

fn run(fields: &mut Fields<'_>, task: &At<'_>, setup: Option<&str>, notes: &mut Notes) -> Option<String> {
    let Some(at) = fields.take_even_null("run") else {
        notes.problem(task, "there is no `run`: what shall the task do?");
        return None;
    };
    if at.is_null() {
        return Some(String::new());
    }
    let run = at.text(notes)?;
    if MAX_ARGUMENT < AROUND_SCRIPT + run.len() + setup.map_or(0, str::len) {
        notes.problem(
            &at,
            format!(
                "`setup` and `run` have {} bytes together; Linux starts no script of more than {}",
                run.len() + setup.map_or(0, str::len),
                MAX_ARGUMENT - AROUND_SCRIPT
            ),
        );
    }
    Some(run.to_owned())
}

/// The file's variables in its order, then those that were only given beside it.
fn environment(
    fields: &mut Fields<'_>,
    overrides: &Overrides<'_>,
    notes: &mut Notes,
) -> Vec<(String, String)> {
    let mut envs = Vec::new();
    let entries = fields.take("envs").map(|at| at.entries(notes)).unwrap_or_default();
    for (name, at) in entries {
        if let Some(value) = value(name, &at, overrides.envs, "-e", notes) {
            envs.push((name.to_owned(), value));
        }
        if INJECTED.contains(&name) || name.starts_with(INJECTED_PREFIX) {
            notes.warn(&at, "has no effect: fedq sets this variable itself");
        }
    }
    let known: BTreeSet<String> = envs.iter().map(|(name, _)| name.clone()).collect();
    let more = overrides.envs.iter().filter(|(name, _)| !known.contains(*name));
    envs.extend(more.map(|(name, value)| (name.clone(), value.clone())));
    envs
}

fn secrets(fields: &mut Fields<'_>, overrides: &Overrides<'_>, notes: &mut Notes) -> Secrets {
    let mut secrets = overrides.secrets.clone();
    if let Some(at) = fields.take("secrets") {
        if at.is_list() {
            notes.warn(&at, "has no effect: fedq keeps no secrets of its own; give names with values");
        } else {
            for (name, at) in at.entries(notes) {
                if let Some(value) = value(name, &at, overrides.secrets, "--secret", notes) {
                    secrets.insert(name.to_owned(), value);
                }
            }
        }
    }
    Secrets::new(secrets)
}

/// Nothing as a value means that it is given beside the file.
fn value(
    name: &str,
    at: &At<'_>,
    given: &BTreeMap<String, String>,
    flag: &str,
    notes: &mut Notes,
) -> Option<String> {
    if !is_variable(name) {
        notes.problem(at, format!("`{}` is no name of a variable: use letters, digits and `_`", shown(name)));
        return None;
    }
    match given.get(name) {
        Some(value) => Some(value.clone()),
        None if at.is_null() => {
            notes.needs_value(at, format!("needs a value: give it with {flag} {}=VALUE", shown(name)));
            None
        }
        None => at.text(notes).map(str::to_owned),
    }
}

fn check_environment(at: &At<'_>, envs: &[(String, String)], secrets: &Secrets, notes: &mut Notes) {
    let all = || {
        let envs = envs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        envs.chain(secrets.reveal())
    };
    for (name, value) in all() {
        if !is_variable(name) || value.contains('\0') {
            notes.problem(at, format!("`{}` cannot be a variable with such a name or value", shown(name)));
        }
        if MAX_ARGUMENT <= name.len() + value.len() + 1 {
            notes.problem(
                at,
                format!("the variable `{}` is too large: Linux takes {MAX_ARGUMENT} bytes", shown(name)),
            );
        }
    }
    if MAX_ENVIRONMENT < all().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>() {
        notes.problem(at, format!("all variables together have more than {MAX_ENVIRONMENT} bytes"));
    }
    for (name, _) in secrets.reveal() {
        if envs.iter().any(|(env, _)| env == name) {
            notes.problem(at, format!("`{}` is both in `envs` and in `secrets`", shown(name)));
        }
    }
}

fn workdir<'v>(
    at: &At<'_>,
    variable: &impl Fn(&str) -> Option<&'v str>,
    (is_here, sent, uploads): (bool, &impl Fn(&str) -> Option<Archive>, &mut Vec<Upload>),
    notes: &mut Notes,
) -> Option<Workdir> {
    if !at.is_map() {
        let folder = expand(at.text(notes)?, variable);
        if folder.starts_with('/') && !is_here {
            return Some(Workdir::Folder(folder));
        }
        notes.source(&folder);
        match sent(&folder) {
            Some(Archive { file: true, .. }) => {
                notes.problem(at, "is a file: a task works in a folder");
                return None;
            }
            Some(archive) => {
                uploads.push(Upload { path: WORKDIR.to_owned(), archive });
                return Some(Workdir::Folder(WORKDIR.to_owned()));
            }
            None => notes.warn(
                at,
                "is taken as a folder of the image: nothing of where it was written was sent with it, as fedq task \
                 submit does",
            ),
        }
        return Some(Workdir::Folder(folder));
    }
    let mut fields = at.fields(notes);
    let url = fields.take("url");
    let reference = fields.take("ref").and_then(|at| at.text(notes).map(str::to_owned));
    fields.finish(notes);
    let Some(url) = url else {
        notes.problem(at, "there is no `url` to clone from");
        return None;
    };
    let text = expand(url.text(notes)?, variable);
    let known = ["https://", "http://", "ssh://", "git://"].iter().any(|scheme| text.starts_with(scheme))
        || text.split_once('@').is_some_and(|(user, rest)| !user.contains('/') && rest.contains(':'));
    let option = |text: &str| text.starts_with('-');
    if !known || option(&text) || reference.as_deref().is_some_and(option) {
        notes.problem(&url, "git can clone https://, ssh://, git:// and user@host:path only");
        return None;
    }
    Some(Workdir::Git { url: text, reference })
}

fn volumes<'v>(at: &At<'_>, variable: &impl Fn(&str) -> Option<&'v str>, notes: &mut Notes) -> Vec<Mount> {
    let mut mounts: Vec<Mount> = Vec::new();
    let entries = at.entries(notes);
    if MAX_VOLUMES < entries.len() {
        notes.problem(at, format!("a task has at most {MAX_VOLUMES} volumes"));
        return mounts;
    }
    for (path, at) in entries {
        let path = expand(path, variable);
        let Mounted { volume, sub_path, read_only, claim } = if at.is_map() {
            volume_object(&at, variable, notes)
        } else {
            Mounted { volume: at.text(notes).map(|volume| expand(volume, variable)), ..Mounted::default() }
        };
        let Some(volume) = volume else { continue };
        if !is_mount_path(&path) {
            notes.problem(&at, "a volume is mounted at an absolute path without `..` and `:`");
        } else if mounts.iter().any(|mount| mount.path == path) {
            notes.problem(&at, format!("two volumes are mounted at `{}`", shown(&path)));
        } else if claim.is_none() && !is_volume_name(&volume) {
            notes.problem(&at, "this is no name of a volume");
        } else {
            mounts.push(Mount { path, volume, sub_path, read_only, claim });
        }
    }
    mounts
}

/// As much as can be told from it; whether there is one is found out later.
fn is_volume_name(name: &str) -> bool {
    (1..=253).contains(&name.len()) && !name.chars().any(char::is_control)
}

#[derive(Default)]
struct Mounted {
    volume: Option<String>,
    sub_path: Option<String>,
    read_only: bool,
    claim: Option<MountedClaim>,
}

fn volume_object<'v>(at: &At<'_>, variable: &impl Fn(&str) -> Option<&'v str>, notes: &mut Notes) -> Mounted {
    let mut fields = at.fields(notes);
    let name = fields.take("name");
    let sub_path = fields.take("sub_path").and_then(|at| {
        let path = at.text(notes)?;
        if path.starts_with('/') || path.split('/').any(|part| part == "..") {
            notes.problem(&at, "a path inside the volume is relative and has no `..`");
            return None;
        }
        Some(path.to_owned())
    });
    let read_only = fields.take("read_only").and_then(|at| at.boolean(notes)).unwrap_or_default();
    let ephemeral = fields.take("is_ephemeral");
    if let Some(at) = ephemeral
        && at.boolean(notes) == Some(true)
    {
        notes.problem(&at, "volumes that live as long as a task are not supported; create one before");
    }
    let claim = existing(&mut fields, variable, notes);
    fields.finish_open(notes, "the volume exists before the task");
    let volume = match (name, &claim) {
        (Some(at), None) => at.text(notes).map(|name| expand(name, variable)),
        (Some(at), Some(_)) => {
            notes.problem(&at, "a volume has a `name`, or is a `claim` of a cluster that is there already");
            None
        }
        (None, Some(claim)) => {
            claim.as_ref().map(|MountedClaim { cluster, name, .. }| format!("{cluster}/{name}"))
        }
        (None, None) => {
            notes.problem(at, "there is neither the `name` of a volume nor a `claim`");
            None
        }
    };
    Mounted { volume, sub_path, read_only, claim: claim.flatten() }
}

/// A PersistentVolumeClaim that fedq did not make. `Some(None)`: it is none that there can be.
#[expect(clippy::option_option, reason = "what is wrong with it was told")]
fn existing<'v>(
    fields: &mut Fields<'_>,
    variable: &impl Fn(&str) -> Option<&'v str>,
    notes: &mut Notes,
) -> Option<Option<MountedClaim>> {
    let (claim, cluster) = match (fields.take("claim"), fields.take("cluster")) {
        (None, None) => return None,
        (Some(claim), Some(cluster)) => (claim, cluster),
        (Some(at), None) | (None, Some(at)) => {
            notes.problem(&at, "a claim that is there already is named by `claim` and `cluster`");
            return Some(None);
        }
    };
    let (name, on) = (claim.text(notes)?, cluster.text(notes)?);
    let (name, on) = (expand(name, variable), expand(on, variable));
    if let Err(error) = check_claim(&name) {
        notes.problem(&claim, error.to_string());
        return Some(None);
    }
    match ClusterName::new(&on) {
        Ok(cluster) => Some(Some(MountedClaim { cluster, name, shared: false })),
        Err(error) => {
            notes.problem(&cluster, error.to_string());
            Some(None)
        }
    }
}

/// Kubernetes refuses `:` in mount paths.
fn is_mount_path(path: &str) -> bool {
    path.starts_with('/')
        && path.len() <= 1024
        && path != "/"
        && !path.contains([':', '\0'])
        && !path.split('/').any(|part| part == "..")
}

/// Files of where the task was written, each at its place in the pods. Buckets a task cannot do without.
fn file_mounts<'v>(
    at: &At<'_>,
    variable: &impl Fn(&str) -> Option<&'v str>,
    overrides: &Overrides<'_>,
    notes: &mut Notes,
) -> Vec<Upload> {
    let mut uploads: Vec<Upload> = Vec::new();
    let entries = at.entries(notes);
    if MAX_FILE_MOUNTS < entries.len() {
        notes.problem(
            at,
            format!("a task brings along at most {MAX_FILE_MOUNTS} files and folders beside its workdir"),
        );
        return uploads;
    }
    for (path, at) in entries {
        let is_bucket = at.is_map() || at.scalar().is_some_and(|source| source.text.contains("://"));
        if is_bucket {
            notes.problem(&at, "object stores cannot be mounted; use a volume, or copy in `setup`");
            continue;
        }
        let Some(source) = at.text(notes).map(|source| expand(source, variable)) else { continue };
        let path = expand(path, variable);
        notes.source(&source);
        let Some(archive) = overrides.uploads.get(&source).cloned() else {
            notes.warn(
                &at,
                "has no effect: nothing of where it was written was sent with it, as fedq task submit does; put it \
                 into the image or a volume",
            );
            continue;
        };
        if !is_place(&path) {
            notes.problem(&at, "files are put at an absolute path or in the home (~/…), without `..`");
        } else if uploads.iter().any(|upload| upload.path == path) {
            notes.problem(&at, format!("two of them would be put at `{}`", shown(&path)));
        } else if archive.file && (path.ends_with('/') || path == "~") {
            notes.problem(&at, format!("`{}` is a file and needs a name there", shown(&source)));
        } else {
            uploads.push(Upload { path, archive });
        }
    }
    if MAX_PLACES < uploads.iter().map(|upload| upload.path.len()).sum() {
        notes.problem(at, format!("the paths have more than {MAX_PLACES} bytes together"));
    }
    uploads
}

fn is_place(path: &str) -> bool {
    let below = path.strip_prefix('~').map_or(path, |rest| if rest.is_empty() { "/" } else { rest });
    below.starts_with('/')
        && path != "/"
        && path.len() <= 1024
        && !path.contains('\0')
        && !path.split('/').any(|part| part == "..")
}
