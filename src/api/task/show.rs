//! From what is stored and published of tasks to what people read.

use serde_json::Value;

use fedq_domain::task::{
    choose::{
        Choice, Outcome, Verdict,
        obstacle::Obstacle,
        verdict::{Number, Offer},
        view::Access,
    },
    event::Event,
    limits::span,
    phase::{Failure, Phase},
    pipeline::Stage,
    record::{NodeCounts, Record},
    render::Gang,
    spec::{Accelerator, Candidate, TaskSpec},
    view::{TaskView, TaskViews},
    wrapped::{Wrapped, WrappedPods},
};
use fedq_store::{Dispatch, TaskRow};
use fedq_values::{
    ids::{ClusterName, ResourceName},
    quantity::Amount,
};
use fedq_wire::task::{
    ClusterVerdict, Component, Form, Kind, Mounted, NodeCounts as Nodes, Numbers, PodSet, Task, TaskDetail,
    TaskEvent,
};

/// What is known of a task now.
pub fn record(row: &TaskRow, views: &TaskViews) -> Record {
    // What is published of another move than the stored one is out of date.
    let view = views.tasks.get(&row.id).filter(|view| view.state == row.state);
    let dispatch = row.dispatch.as_ref().filter(|_| row.state.phase != Phase::Pending);
    Record {
        id: row.id.clone(),
        name: row.spec.name.clone(),
        owner: row.owner.clone(),
        submitted: row.submitted,
        num_nodes: row.spec.num_nodes,
        namespace: row.namespace.clone(),
        queue: view.and_then(|view| view.queue.clone()).or_else(|| row.queue.clone()),
        state: row.state.clone(),
        gang: view.and_then(|view| view.gang).or_else(|| dispatch.map(|dispatch| dispatch.gang)),
        workload: view.and_then(|view| view.workload.clone()),
        cluster: view.and_then(|view| view.cluster.as_ref()).or_else(|| ran_on(row)).cloned(),
        nodes: counts(row, view.map(AsRef::as_ref)),
        pending_reason: pending_reason(row, view.map(AsRef::as_ref)),
    }
}

fn counts(row: &TaskRow, view: Option<&TaskView>) -> NodeCounts {
    match (&row.state.phase, row.nodes, view) {
        (Phase::Succeeded { .. }, None, _) => {
            NodeCounts { succeeded: row.spec.num_nodes, ..NodeCounts::default() }
        }
        (phase, Some(nodes), _) if phase.is_over() => nodes,
        (_, _, Some(view)) => view.counts(),
        // Stored, and not published yet: a task is running from the moment that all its nodes are.
        (Phase::Running { .. }, _, None) => {
            NodeCounts { running: row.spec.num_nodes, ..NodeCounts::default() }
        }
        (_, _, None) => NodeCounts::default(),
    }
}

/// There always is one while the task does not run.
fn pending_reason(row: &TaskRow, view: Option<&TaskView>) -> Option<String> {
    let waits = row.stage.as_ref().and_then(Stage::waits).filter(|_| row.state.phase == Phase::Pending);
    if waits.is_some() {
        return waits;
    }
    if let Some(reason) = view.and_then(|view| view.pending_reason.clone()) {
        return Some(reason);
    }
    let queue = row.queue.as_deref().unwrap_or("its queue");
    Some(match &row.state.phase {
        Phase::Pending => "no cluster is chosen for it yet".to_owned(),
        Phase::Dispatching { cluster } => format!("its objects are being created on {cluster}"),
        Phase::Queued { cluster } => format!("it waits for quota of {queue} on {cluster}"),
        Phase::Starting { cluster } => format!("its nodes start on {cluster}"),
        Phase::Withdrawing { cluster, .. } => format!("it is being taken off {cluster}"),
        Phase::Lost { cluster, .. } => format!("{cluster} does not answer"),
        Phase::Running { .. } | Phase::Succeeded { .. } | Phase::Failed { .. } | Phase::Stopped => {
            return None;
        }
    })
}

/// The cluster a task is on, or ended on; for one that MultiKueue dispatches the one that took it.
pub fn ran_on(row: &TaskRow) -> Option<&ClusterName> {
    let cluster = row.state.phase.cluster()?;
    match &row.dispatch {
        Some(dispatch) if dispatch.by_multikueue => dispatch.landed.as_ref().or(Some(cluster)),
        _ => Some(cluster),
    }
}

pub fn task(row: &TaskRow, views: &TaskViews) -> Task {
    let record = record(row, views);
    let NodeCounts { succeeded, failed, running } = record.nodes;
    let pending = if row.state.phase.is_over() { 0 } else { record.pending_nodes() };
    let (failure, dispatched) = match &row.state.phase {
        Phase::Failed { reason } => (Some(why(*reason).to_owned()), true),
        phase => (None, phase.is_over()),
    };
    let view = views.tasks.get(&row.id).filter(|view| view.state == row.state);
    let cluster = view.and_then(|view| view.cluster.as_ref()).or_else(|| ran_on(row));
    // Where it was, of one that is over.
    let was = row.dispatch.as_ref().filter(|_| dispatched).and_then(Dispatch::cluster);
    Task {
        id: row.id.to_string(),
        kind: if row.spec.wrapped.is_some() { Kind::AppWrapper } else { Kind::Task },
        name: record.shown_name(),
        user: row.owner.clone(),
        phase: row.state.phase.word().to_owned(),
        failure,
        pending_reason: record.pending_reason,
        cluster: cluster.or(was).map(ToString::to_string),
        namespace: record.namespace,
        queue: record.queue,
        workload: record.workload,
        gang: record.gang.map(|gang| self::gang(gang).to_owned()),
        num_nodes: record.num_nodes,
        nodes: Nodes { succeeded, failed, running, pending },
        accelerators: candidate(row).accelerator.as_ref().map(accelerator),
        restarts: row.restarts,
        epoch: row.state.epoch,
        submitted: row.submitted.into(),
        changed: row.changed.into(),
        pipeline: row.stage.as_ref().map(stage),
    }
}

fn stage(stage: &Stage) -> fedq_wire::task::Stage {
    fedq_wire::task::Stage {
        id: stage.pipeline.to_string(),
        name: stage.name.clone(),
        stage: stage.number,
        stages: stage.of,
    }
}

/// The form it runs in, or would most likely.
fn candidate(row: &TaskRow) -> &Candidate {
    let chosen = row.dispatch.as_ref().map_or(0, |dispatch| dispatch.placement.candidate);
    row.spec.candidates.get(chosen).unwrap_or(&row.spec.candidates[0])
}

fn accelerator(accelerator: &Accelerator) -> String {
    match &accelerator.kind {
        Some(kind) => format!("{kind}:{}", accelerator.count),
        None => accelerator.count.to_string(),
    }
}

fn why(reason: Failure) -> &'static str {
    match reason {
        Failure::Program => "program",
        Failure::NeverFits => "neverFits",
        Failure::Refused => "refused",
        Failure::Vanished => "vanished",
        Failure::Overdue => "overdue",
    }
}

fn gang(gang: Gang) -> &'static str {
    match gang {
        Gang::PerNode => "perNode",
        Gang::Indexed => "indexed",
        Gang::JobSet => "jobSet",
        Gang::AppWrapper => "appWrapper",
        Gang::Unwrapped => "unwrapped",
    }
}

/// `stages`: of its pipeline.
pub fn detail(row: &TaskRow, views: &TaskViews, events: &[Event], stages: &[TaskRow]) -> TaskDetail {
    let TaskSpec { setup, run, envs, secrets, volumes, candidates, .. } = &row.spec;
    let mounted = |mount: &fedq_domain::task::spec::Mount| Mounted {
        path: mount.path.clone(),
        volume: mount.volume.clone(),
    };
    TaskDetail {
        task: task(row, views),
        // What an AppWrapper needs is what its pod sets do.
        forms: if row.spec.wrapped.is_some() { Vec::new() } else { candidates.iter().map(form).collect() },
        warnings: row.spec.warnings.clone(),
        components: row.spec.wrapped.iter().flat_map(components).collect(),
        setup: setup.clone(),
        run: run.clone(),
        devices: row.spec.pod.devices.iter().map(|(name, count)| (name.to_string(), *count)).collect(),
        max_duration: row.spec.max_duration.map(span),
        envs: envs.iter().map(|(name, _)| name.clone()).collect(),
        secrets: secrets.iter().cloned().collect(),
        volumes: volumes.iter().map(mounted).collect(),
        stages: stages.iter().map(|row| task(row, views)).collect(),
        events: events.iter().map(event).collect(),
    }
}

fn components(wrapped: &Wrapped) -> Vec<Component> {
    let of_component = |(index, component): (usize, &fedq_wrapped::component::Component)| {
        let text =
            |pointer: &str| component.template.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let sets = wrapped.pod_sets.iter().filter(|pods| pods.component == index);
        Component {
            api_version: text("/apiVersion").unwrap_or_default(),
            kind: text("/kind").unwrap_or_default(),
            name: text("/metadata/name").or_else(|| text("/metadata/generateName")),
            pod_sets: sets.map(pods).collect(),
        }
    };
    wrapped.components.iter().enumerate().map(of_component).collect()
}

fn pods(pods: &WrappedPods) -> PodSet {
    let requests = pods.per_pod().into_iter();
    PodSet {
        path: pods.path.clone(),
        replicas: pods.count,
        requests: requests.map(|(resource, amount)| (resource.to_string(), amount.text(&resource))).collect(),
    }
}

fn form(candidate: &Candidate) -> Form {
    let amount = |request: &fedq_domain::task::quantity::Request, resource: &str| {
        ResourceName::new(resource).ok().map(|resource| request.amount.text(&resource))
    };
    Form {
        cluster: candidate.cluster.as_ref().map(ToString::to_string),
        cpus: candidate.cpu.as_ref().and_then(|request| amount(request, "cpu")),
        memory: candidate.memory.as_ref().and_then(|request| amount(request, "memory")),
        accelerators: candidate.accelerator.as_ref().map(accelerator),
        instance_type: candidate.instance_type.clone(),
        spot: match (candidate.spot, candidate.on_demand) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        },
        image: candidate.image.clone(),
    }
}

pub fn event(event: &Event) -> TaskEvent {
    TaskEvent {
        at: event.at.into(),
        phase: event.phase.word().to_owned(),
        reason: event.reason.to_string(),
        message: event.message.clone(),
        epoch: event.epoch,
    }
}

/// What each cluster says, by name.
pub fn verdicts(choice: &Choice) -> Vec<ClusterVerdict> {
    let chosen = match &choice.outcome {
        Outcome::Run(placement) => Some(&placement.cluster),
        Outcome::Wait | Outcome::Limited(_) | Outcome::Never => None,
    };
    let show = |(cluster, verdict): (&_, &Verdict)| {
        let mut told = ClusterVerdict { chosen: chosen == Some(cluster), ..of_cluster(cluster, verdict) };
        if let (Outcome::Limited(excess), Verdict::Fits(_) | Verdict::Waits(_)) = (&choice.outcome, verdict) {
            "waits".clone_into(&mut told.verdict);
            told.reasons.push(excess.to_string());
        }
        told
    };
    choice.verdicts.iter().map(show).collect()
}

fn of_cluster(cluster: &ClusterName, verdict: &Verdict) -> ClusterVerdict {
    let (word, offer, reasons) = match verdict {
        Verdict::Fits(offer) => ("fits", Some(offer), Vec::new()),
        Verdict::Waits(offer) => ("waits", Some(offer), waits(offer)),
        Verdict::Away(access, offer) => {
            let why = match access {
                Access::Cordoned => "nothing new is sent there: it is cordoned",
                Access::Tidied => "it was lost, and earlier runs that it still has are taken off first",
                Access::Silent | Access::Ready => "it does not answer",
            };
            ("away", Some(offer), vec![why.to_owned()])
        }
        Verdict::Never(obstacles) => ("never", None, obstacles.iter().map(Obstacle::to_string).collect()),
    };
    let unmet = offer.into_iter().flat_map(|offer| &offer.unmet);
    let unmet = unmet.map(|wish| format!("no flavor there can tell apart {wish}, so it is not asked for"));
    ClusterVerdict {
        cluster: cluster.to_string(),
        verdict: word.to_owned(),
        chosen: false,
        queue: offer.map(|offer| offer.queue.clone()),
        pending: offer.map(|offer| offer.pending),
        reasons: reasons.into_iter().chain(unmet).collect(),
        numbers: offer.map(|offer| offer.numbers.iter().map(numbers).collect()).unwrap_or_default(),
    }
}

fn waits(offer: &Offer) -> Vec<String> {
    let mut reasons = Vec::new();
    if !offer.active {
        reasons.push(format!("queue {} admits nothing now", offer.queue));
    }
    let short = offer.numbers.iter().filter(|number| !number.gap().is_zero());
    reasons.extend(short.map(|number| {
        let Number { resource, flavor, .. } = number;
        format!("{} more {resource} of flavor {flavor} must become free", number.gap().text(resource))
    }));
    reasons
}

fn numbers(number: &Number) -> Numbers {
    let text = |amount: Amount| amount.text(&number.resource);
    Numbers {
        resource: number.resource.to_string(),
        flavor: number.flavor.to_string(),
        needed: text(number.needed),
        available: text(number.available),
        nominal: text(number.nominal),
        ceiling: text(number.ceiling),
        reserved: text(number.reserved),
        in_flight: text(number.in_flight),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use fedq_domain::task::{
        names::TaskId,
        phase::State,
        testing::{cluster_name, task as spec},
    };

    #[test]
    fn a_task_that_is_said_to_run_has_running_nodes_also_before_its_view_is_published() {
        let row = TaskRow {
            id: TaskId::parse("1a2b3c4d").expect("an id"),
            owner: "ann".to_owned(),
            namespace: "team".to_owned(),
            queue: None,
            cluster: None,
            submitted: Timestamp::UNIX_EPOCH,
            spec: spec("run: x\nnum_nodes: 2\n"),
            state: State { phase: Phase::Running { cluster: cluster_name("one") }, epoch: 1 },
            dispatch: None,
            restarts: 0,
            nodes: None,
            changed: Timestamp::UNIX_EPOCH,
            stage: None,
        };
        let shown = task(&row, &TaskViews::default());
        assert_eq!((shown.phase.as_str(), shown.nodes.running, shown.nodes.pending), ("running", 2, 0));
    }
}
