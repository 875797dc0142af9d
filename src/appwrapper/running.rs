//! What becomes of an AppWrapper whose components are there: from what they and their pods say. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::ResourceExt;

use crate::{
    api::{ComponentStatus, Phase},
    autopilot::NodeHealth,
    conditions::{self, FALSE, TRUE},
    lifecycle::{Outcome, Turn, Wait},
    names::condition::{PODS_READY, QUOTA_RESERVED, RESOURCES_DEPLOYED, UNHEALTHY},
    observed::Observed,
    observed_pod::ObservedPod,
    tolerance::Tolerance,
};

/// One component, as it was found.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Component {
    /// There, and not being deleted.
    pub deployed: bool,
    /// Its own controller has given it up.
    pub failed: bool,
    /// A Job is done when it says so; other kinds are done when their pods are.
    pub job: Option<Job>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Job {
    pub complete: bool,
}

/// The pods of all components.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Pods {
    pub expected: i32,
    pub pending: i32,
    pub running: i32,
    pub succeeded: i32,
    /// Without those that their Job has replaced.
    pub failed: i32,
    /// Of components that are no Jobs: what they should have, and what has succeeded and not.
    pub others: Others,
    /// One of them ended with an exit code after which trying again is no use.
    pub terminal: bool,
    /// Nodes that Autopilot wants emptied, with pods that use what is broken there.
    pub evicting: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Others {
    pub expected: i32,
    pub succeeded: i32,
    pub unfinished: i32,
}

/// What a component's object says; `None` if there is none.
pub fn component(status: &ComponentStatus, object: Option<&Observed>) -> Component {
    let kind = (status.api_version.as_str(), status.kind.as_str());
    let is_job = kind == ("batch/v1", "Job");
    let object = object.filter(|object| object.metadata.deletion_timestamp.is_none());
    let has = |type_: &str| object.is_some_and(|object| object.has(type_));
    Component {
        deployed: object.is_some(),
        failed: (is_job || kind == ("kubeflow.org/v1", "PyTorchJob")) && has("Failed"),
        job: is_job.then(|| Job { complete: has("Complete") }),
    }
}

/// `components` are in the order of `status`.
pub fn pods(
    status: &[ComponentStatus],
    components: &[Component],
    pods: &[impl AsRef<ObservedPod>],
    tolerance: &Tolerance,
    nodes: &NodeHealth,
) -> Pods {
    let jobs: Vec<OneJob> = status
        .iter()
        .zip(components)
        .filter_map(|(status, component)| {
            let mut of_job = OneJob { name: &status.name, complete: component.job?.complete, missing: 0 };
            let alive = |pod: &&ObservedPod| of_job.owns(pod) && pod.phase != "Failed" && !pod.is_leaving();
            let alive = pods.iter().map(AsRef::as_ref).filter(alive).count();
            of_job.missing = expected(status).saturating_sub(i32::try_from(alive).unwrap_or(i32::MAX));
            Some(of_job)
        })
        .collect();
    let mut sum = Pods { expected: total(status.iter().map(expected)), ..Pods::default() };
    let others = status.iter().zip(components).filter(|(_, component)| component.job.is_none());
    sum.others.expected = total(others.map(|(status, _)| expected(status)));
    for pod in pods.iter().map(AsRef::as_ref) {
        let job = jobs.iter().find(|job| job.owns(pod));
        count(&mut sum, pod, job, tolerance, nodes);
    }
    sum
}

fn expected(status: &ComponentStatus) -> i32 {
    total(status.pod_sets.iter().map(fedq_wrapped::component::PodSet::replicas))
}

/// Users write the numbers: more than can be counted is as many as can be.
fn total(numbers: impl Iterator<Item = i32>) -> i32 {
    numbers.fold(0, i32::saturating_add)
}

struct OneJob<'a> {
    name: &'a str,
    complete: bool,
    /// How many pods it should have and has not.
    missing: i32,
}

impl OneJob<'_> {
    fn owns(&self, pod: &ObservedPod) -> bool {
        let owners = pod.metadata.owner_references.iter().flatten();
        owners
            .into_iter()
            .any(|owner| owner.controller == Some(true) && owner.kind == "Job" && owner.name == self.name)
    }
}

fn count(sum: &mut Pods, pod: &ObservedPod, job: Option<&OneJob>, tolerance: &Tolerance, nodes: &NodeHealth) {
    let other = job.is_none();
    match pod.phase.as_str() {
        "Pending" => {
            sum.pending += 1;
            sum.others.unfinished += i32::from(other);
        }
        "Running" if !pod.is_leaving() => {
            sum.running += 1;
            sum.others.unfinished += i32::from(other);
            sum.evicting.extend(nodes.is_evicting(pod));
        }
        "Succeeded" => {
            sum.succeeded += 1;
            sum.others.succeeded += i32::from(other);
        }
        "Failed" => {
            let terminal = pod.exit_codes.iter().any(|code| tolerance.is_terminal(*code));
            let replaced = job.is_some_and(|job| job.complete || job.missing <= 0);
            if terminal || !replaced {
                sum.failed += 1;
                sum.others.unfinished += i32::from(other);
                sum.terminal |= terminal;
            }
        }
        _ => {}
    }
}

/// In this order: what is missing, what has failed, what has succeeded, failed pods, sick nodes, too few pods.
pub(crate) fn judge(turn: &Turn<'_>, components: &[Component], pods: &Pods) -> Outcome {
    let mut outcome = turn.outcome();
    let deployed = components.iter().filter(|component| component.deployed).count();
    if deployed < components.len() {
        let expected = components.len();
        let text = format!("Only found {deployed} deployed components, but was expecting {expected}");
        turn.unhealthy(&mut outcome, "MissingComponent", &text);
        outcome.status.phase = Phase::Failed;
        return outcome;
    }
    let failed = components.iter().filter(|component| component.failed).count();
    if 0 < failed {
        turn.unhealthy(&mut outcome, "FailedComponent", &format!("Found {failed} failed components"));
        turn.reset_or_fail(&mut outcome.status, pods.terminal, 1);
        return outcome;
    }
    if has_succeeded(components, pods) {
        let text = format!("{} pods succeeded and no running, pending, or failed pods", pods.succeeded);
        let reason = Phase::Succeeded.word();
        turn.set(&mut outcome.status, QUOTA_RESERVED, (FALSE, reason, &text));
        turn.set(&mut outcome.status, RESOURCES_DEPLOYED, (TRUE, reason, &text));
        outcome.status.phase = Phase::Succeeded;
        return outcome;
    }
    if 0 < pods.failed {
        return with_failed_pods(turn, outcome, pods);
    }
    if !pods.evicting.is_empty() {
        let nodes: Vec<&str> = pods.evicting.iter().map(String::as_str).collect();
        let text = format!("Workload contains pods using NoExecute resources on Nodes: {}", nodes.join(", "));
        turn.unhealthy(&mut outcome, "AutopilotNoExecute", &text);
        // It is not to blame, so this is no retry of its own.
        turn.reset_or_fail(&mut outcome.status, false, 0);
        return outcome;
    }
    wait_for_pods(turn, outcome, pods)
}

/// Jobs say themselves that they are done: with more completions than run at once, their first pods are not the last.
fn has_succeeded(components: &[Component], pods: &Pods) -> bool {
    let jobs_done = components.iter().filter_map(|component| component.job).all(|job| job.complete);
    jobs_done && pods.others.expected <= pods.others.succeeded && pods.others.unfinished == 0
}

/// Their controller gets a while to replace them.
fn with_failed_pods(turn: &Turn<'_>, mut outcome: Outcome, pods: &Pods) -> Outcome {
    // Without the number of pods: it would be written with every pod.
    turn.set(&mut outcome.status, UNHEALTHY, (TRUE, "FoundFailedPods", ""));
    let since = conditions::since(&outcome.status.conditions, UNHEALTHY).unwrap_or(turn.now);
    let deadline = since.saturating_add(turn.tolerance.failure_grace.as_signed()).unwrap_or(Timestamp::MAX);
    if turn.now < deadline {
        outcome.wait = Wait::Until(deadline);
        return outcome;
    }
    outcome.note(UNHEALTHY, format!("FoundFailedPods: {} failed pods", pods.failed));
    turn.reset_or_fail(&mut outcome.status, pods.terminal, 1);
    outcome
}

fn wait_for_pods(turn: &Turn<'_>, mut outcome: Outcome, pods: &Pods) -> Outcome {
    let Pods { expected, pending, running, succeeded, .. } = *pods;
    conditions::clear(&mut outcome.status.conditions, UNHEALTHY, "FoundNoFailedPods", "", turn.now);
    if expected <= running + succeeded {
        let text = format!("{running} pods running; {succeeded} pods succeeded");
        turn.set(&mut outcome.status, PODS_READY, (TRUE, "SufficientPodsReady", &text));
        return outcome;
    }
    let text = format!("{pending} pods pending; {running} pods running; {succeeded} pods succeeded");
    let conditions = &mut outcome.status.conditions;
    conditions::clear(conditions, PODS_READY, "InsufficientPodsReady", &text, turn.now);
    let all_exist = expected <= pending + running + succeeded;
    let grace = if all_exist { turn.tolerance.warmup_grace } else { turn.tolerance.admission_grace };
    // Pods that are replaced later, as after a failure or on a node that was drained, get as long as the first ones.
    let short = conditions::since(&outcome.status.conditions, PODS_READY).unwrap_or(turn.now);
    let short = short.saturating_add(grace.as_signed()).unwrap_or(Timestamp::MAX);
    let deadline = turn.after(RESOURCES_DEPLOYED, grace).max(short);
    if turn.now < deadline {
        outcome.wait = Wait::Until(deadline);
        return outcome;
    }
    turn.unhealthy(&mut outcome, "InsufficientPodsReady", &text);
    turn.reset_or_fail(&mut outcome.status, pods.terminal, 1);
    outcome
}

/// The AppWrapper of a pod or a component.
pub fn owner_name(object: &impl ResourceExt) -> Option<&str> {
    object.labels().get(crate::names::APPWRAPPER_LABEL).map(String::as_str)
}
