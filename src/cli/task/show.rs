//! `fedq task list`, `status` and `explain`

use crate::{
    Session,
    age::age,
    args::{Format, Output, TaskArgs, TaskListArgs},
    error::CliError,
    list::{self, Row},
    print::Printer,
    table::Table,
};
use fedq_values::amount::amount;
use fedq_wire::{
    list::List,
    task::{ClusterVerdict, Component, Kind, Numbers, Task, TaskDetail, TaskEvent, TaskExplanation},
};

/// `kind`: only those.
pub async fn list(args: TaskListArgs, kind: Option<&str>, session: &mut Session) -> Result<(), CliError> {
    let mut path = format!("/tasks?limit={}", args.limit);
    for (given, parameter) in [(args.all_users, "&allUsers=true"), (args.skip_finished, "&over=false")] {
        if given {
            path.push_str(parameter);
        }
    }
    if let Some(kind) = kind {
        path = format!("{path}&kind={kind}");
    }
    if args.list.watch {
        return list::run::<Task>(&path, &args.list, session).await;
    }
    let (api, printer) = session.both()?;
    let page: List<Task> = api.get(&path).await?;
    list::print(&page.items, args.list.output, printer)?;
    if page.next.is_some() {
        printer.note(&format!("There are more; these are the newest {} (--limit).", page.items.len()));
    }
    Ok(())
}

impl Row for Task {
    fn headers(wide: bool) -> &'static [&'static str] {
        const HEADERS: [&str; 13] = [
            "ID",
            "NAME",
            "PHASE",
            "CLUSTER",
            "QUEUE",
            "NODES",
            "GPUS",
            "USER",
            "AGE",
            "KIND",
            "NAMESPACE",
            "WORKLOAD",
            "REASON",
        ];
        if wide { &HEADERS } else { HEADERS.split_at(9).0 }
    }

    fn rows(&self, wide: bool) -> Vec<Vec<String>> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let up = self.nodes.running + self.nodes.succeeded;
        let mut row = vec![
            self.id.clone(),
            self.name.clone(),
            self.phase.clone(),
            text(&self.cluster),
            text(&self.queue),
            format!("{up}/{}", self.num_nodes),
            text(&self.accelerators),
            self.user.clone(),
            age(self.submitted),
        ];
        if wide {
            let reason = self.pending_reason.clone().or_else(|| self.failure.clone());
            let (kind, reason) = (kind(self.kind).to_owned(), reason.unwrap_or_default());
            row.extend([kind, self.namespace.clone(), text(&self.workload), reason]);
        }
        vec![row]
    }

    fn name(&self) -> String {
        format!("{}/{}", kind(self.kind), self.id)
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Task => "task",
        Kind::AppWrapper => "appwrapper",
    }
}

pub async fn status(args: &TaskArgs, session: &mut Session) -> Result<(), CliError> {
    let (api, printer) = session.both()?;
    let detail: TaskDetail = api.get(&super::path(&args.id, "")).await?;
    match args.output.output {
        Format::Json => printer.json(&detail),
        Format::Yaml => printer.yaml(&detail),
        Format::Name => printer.line(&detail.task.name()),
        Format::Table | Format::Wide => print(&detail, printer),
    }
}

fn print(detail: &TaskDetail, printer: &mut Printer) -> Result<(), CliError> {
    let mut table = Table::default();
    for (key, value) in fields(detail) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            table.row([format!("{key}:"), value]);
        }
    }
    printer.table(&table)?;
    printer.line("")?;
    if !detail.stages.is_empty() {
        let mut stages = Table::new(&["STAGE", "ID", "NAME", "PHASE", "CLUSTER", "REASON"]);
        for task in &detail.stages {
            let reason = task.pending_reason.as_ref().or(task.failure.as_ref());
            let text = |text: Option<&String>| text.cloned().unwrap_or_default();
            stages.row([
                stage(task),
                task.id.clone(),
                task.name.clone(),
                task.phase.clone(),
                text(task.cluster.as_ref()),
                text(reason),
            ]);
        }
        printer.table(&stages)?;
        printer.line("")?;
    }
    if !detail.components.is_empty() {
        let mut components = Table::new(&["KIND", "NAME", "PODS", "REQUESTS"]);
        for component in &detail.components {
            for row in component_rows(component) {
                components.row(row);
            }
        }
        printer.table(&components)?;
        printer.line("")?;
    }
    for warning in &detail.warnings {
        printer.line(&format!("warning: {warning}"))?;
    }
    if !detail.warnings.is_empty() {
        printer.line("")?;
    }
    let mut events = Table::new(&["AGE", "PHASE", "REASON", "MESSAGE"]);
    for TaskEvent { at, phase, reason, message, .. } in &detail.events {
        events.row([&age(*at), phase, reason, message]);
    }
    printer.table(&events)
}

/// One for each of its pod sets, and one of what has no pods.
fn component_rows(component: &Component) -> Vec<[String; 4]> {
    let head = || (component.kind.clone(), component.name.clone().unwrap_or_default());
    if component.pod_sets.is_empty() {
        let (kind, name) = head();
        return vec![[kind, name, String::new(), String::new()]];
    }
    let row = |set: &fedq_wire::task::PodSet| {
        let (kind, name) = head();
        let requests =
            set.requests.iter().map(|(resource, text)| format!("{} {resource}", amount(resource, text)));
        [kind, name, set.replicas.to_string(), requests.collect::<Vec<_>>().join(", ")]
    };
    component.pod_sets.iter().map(row).collect()
}

/// `2 of 3`
fn stage(task: &Task) -> String {
    task.pipeline.as_ref().map(|stage| format!("{} of {}", stage.stage, stage.stages)).unwrap_or_default()
}

fn pipeline(task: &Task) -> Option<String> {
    let stage = task.pipeline.as_ref()?;
    let name = stage.name.as_ref().map(|name| format!("{name} ")).unwrap_or_default();
    Some(format!("{name}({}), stage {}", stage.id, self::stage(task)))
}

fn fields(detail: &TaskDetail) -> [(&'static str, Option<String>); 17] {
    let task = &detail.task;
    let counts = task.nodes.words();
    let nodes = if counts.is_empty() { String::new() } else { format!(" ({counts})") };
    let devices = detail.devices.iter().map(|(name, count)| format!("{name}:{count}"));
    let mounts = detail.volumes.iter().map(|mounted| format!("{} at {}", mounted.volume, mounted.path));
    [
        ("Task", Some(task.id.clone())),
        ("Name", Some(task.name.clone())),
        ("Pipeline", pipeline(task)),
        ("User", Some(task.user.clone())),
        ("Phase", Some(task.phase.clone())),
        ("Why", task.pending_reason.clone().or_else(|| task.failure.clone())),
        ("Cluster", task.cluster.clone()),
        ("Namespace", Some(task.namespace.clone())),
        ("Queue", task.queue.clone()),
        ("Workload", task.workload.clone()),
        ("Nodes", Some(format!("{}{nodes}", task.num_nodes))),
        ("GPUs", task.accelerators.clone()),
        ("Devices", Some(devices.collect::<Vec<_>>().join(", "))),
        ("Ends after", detail.max_duration.clone()),
        ("Restarts", (0 < task.restarts).then(|| task.restarts.to_string())),
        ("Submitted", Some(format!("{} ago", age(task.submitted)))),
        ("Volumes", Some(mounts.collect::<Vec<_>>().join(", "))),
    ]
}

pub async fn explain(args: &TaskArgs, session: &mut Session) -> Result<(), CliError> {
    let (api, printer) = session.both()?;
    let found: TaskExplanation = api.get(&super::path(&args.id, "/explain")).await?;
    match args.output.output {
        Format::Json => printer.json(&found),
        Format::Yaml => printer.yaml(&found),
        Format::Name => found.clusters.iter().try_for_each(|cluster| printer.line(&cluster.name())),
        Format::Table | Format::Wide => {
            let Task { id, name, phase, cluster, pending_reason, .. } = &found.task;
            let place = cluster.as_ref().map(|cluster| format!(" on {cluster}")).unwrap_or_default();
            let why = pending_reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            printer.line(&format!("{name} ({id}) is {phase}{place}{why}"))?;
            printer.line("")?;
            print_verdicts(&found.clusters, args.output, printer)
        }
    }
}

/// What each cluster says, and under the table what is in the way.
pub fn print_verdicts(
    verdicts: &[ClusterVerdict],
    output: Output,
    printer: &mut Printer,
) -> Result<(), CliError> {
    list::print(verdicts, output, printer)?;
    for ClusterVerdict { cluster, reasons, .. } in verdicts {
        for reason in reasons {
            printer.line(&format!("{cluster}: {reason}"))?;
        }
    }
    Ok(())
}

impl Row for ClusterVerdict {
    fn headers(wide: bool) -> &'static [&'static str] {
        const HEADERS: [&str; 11] = [
            "CLUSTER",
            "VERDICT",
            "CHOSEN",
            "QUEUE",
            "RESOURCE",
            "FLAVOR",
            "NEEDED",
            "AVAILABLE",
            "NOMINAL",
            "RESERVED",
            "IN FLIGHT",
        ];
        if wide { &HEADERS } else { HEADERS.split_at(8).0 }
    }

    fn rows(&self, wide: bool) -> Vec<Vec<String>> {
        let chosen = if self.chosen { "yes" } else { "" };
        let head = [&self.cluster, &self.verdict, chosen, self.queue.as_deref().unwrap_or_default()]
            .map(str::to_owned);
        let numbers = |numbers: &Numbers| {
            let Numbers { resource, flavor, needed, available, nominal, reserved, in_flight, .. } = numbers;
            let mut row = head.to_vec();
            row.extend([resource, flavor, needed, available].map(String::clone));
            if wide {
                row.extend([nominal, reserved, in_flight].map(String::clone));
            }
            row
        };
        let rows: Vec<_> = self.numbers.iter().map(numbers).collect();
        if rows.is_empty() {
            let mut row = head.to_vec();
            row.resize(Self::headers(wide).len(), String::new());
            return vec![row];
        }
        rows
    }

    fn name(&self) -> String {
        format!("cluster/{}", self.cluster)
    }
}
