//! One worker's objects of tasks, written by a task of its own.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    driver::Tasks,
    writer::{Outcome, Place, Writer, WriterConfig},
};
use fedq_base::telemetry::Metrics;
use fedq_k8s::{
    client::{ApiError, RetryClass},
    worker::Worker,
    write::{self, Action, Change, Kind},
};

/// An object that exists, but that the watch has not brought after so many tries, is none of ours. And what is
/// refused as often for want of a right or a namespace goes elsewhere.
const TRIES: u32 = 5;
/// So is what fails for another reason for so long: webhooks and API servers are mostly back sooner.
const PATIENCE: Duration = Duration::from_mins(3);
/// What the webhook of AppWrappers says, upstream's and fedq's alike, where fedq's account may not create what is wrapped, and
/// where it could not find that out.
const NOT_AUTHORIZED: &str = " is not authorized to create ";
const NOT_FOUND_OUT: &str = ": Internal error: ";

pub(super) struct Target {
    pub writer: Writer,
    pub worker: Arc<Worker>,
    told: Arc<Mutex<Told>>,
    _stop: DropGuard,
}

/// What the cluster said to writes.
#[derive(Default)]
struct Told {
    refused: HashMap<write::Target, Refusal>,
    /// Objects that fedq does not follow, by what owns them.
    made: HashSet<(write::Target, String)>,
}

struct Refusal {
    message: String,
    kind: No,
    /// In a row, of this kind.
    tries: u32,
    /// The first of them, and the last.
    since: Instant,
    last: Instant,
}

/// What a failure of a write means for the next try of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum No {
    /// It would be refused again.
    Final,
    /// Something of that name is there.
    Taken,
    /// Somebody has to grant or make something there first.
    NotYet,
    Passing,
}

impl Refusal {
    fn turns_away(&self) -> bool {
        match self.kind {
            No::NotYet => TRIES <= self.tries,
            No::Passing => PATIENCE <= self.last.duration_since(self.since),
            No::Final | No::Taken => false,
        }
    }
}

impl Target {
    pub fn start(
        worker: &Arc<Worker>,
        config: WriterConfig,
        (metrics, signal): (Metrics, Arc<Notify>),
        tasks: (&mut Tasks, &CancellationToken),
    ) -> Self {
        let (writer, told) = (Writer::waking(signal), Arc::<Mutex<Told>>::default());
        let (place, hears) = (Place::Worker(Arc::clone(worker)), Arc::clone(&told));
        let heard = move |change: &Change, outcome: &Outcome| hear(&hears, change, outcome, Instant::now());
        let stop = writer.start((place, metrics), config, heard, tasks);
        Self { writer, worker: Arc::clone(worker), told, _stop: stop }
    }

    /// Why the cluster does not take an object, if trying on is of no use.
    pub fn refusal(&self, target: &write::Target) -> Option<String> {
        let told = lock(&self.told);
        let refusal = told.refused.get(target)?;
        let is_final = refusal.kind == No::Final || (refusal.kind == No::Taken && TRIES <= refusal.tries);
        is_final.then(|| refusal.message.clone())
    }

    /// Why the cluster did not take an object so often, or for so long, that another one should be tried.
    pub fn turned_away(&self, target: &write::Target) -> Option<String> {
        let told = lock(&self.told);
        let refusal = told.refused.get(target)?;
        refusal.turns_away().then(|| refusal.message.clone())
    }

    /// The last failure of a write, whether or not it is tried again.
    pub fn failure(&self, target: &write::Target) -> Option<String> {
        lock(&self.told).refused.get(target).map(|refusal| refusal.message.clone())
    }

    /// Whether an object that fedq does not follow was made for this owner.
    pub fn has_made(&self, target: &write::Target, owner: &str) -> bool {
        lock(&self.told).made.contains(&(target.clone(), owner.to_owned()))
    }

    /// Lets go of what was said to writes that no dispatch needs any more.
    pub fn retain(&self, needed: &HashSet<write::Target>) {
        let mut told = lock(&self.told);
        told.refused.retain(|target, _| needed.contains(target));
        told.made.retain(|(target, _)| needed.contains(target));
    }
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().expect("no code panics while holding this lock")
}

fn hear(told: &Mutex<Told>, change: &Change, outcome: &Outcome, now: Instant) {
    let Action::Create(body) = &change.action else { return };
    let mut told = lock(told);
    let owner = body["metadata"]["ownerReferences"][0]["uid"].as_str();
    match (outcome, owner) {
        // It goes with its owner, so that it is there means that it was made for this one.
        (Err(error), Some(owner)) if error.class == RetryClass::AlreadyExists => {
            told.made.insert((change.target.clone(), owner.to_owned()));
        }
        (Err(error), _) => {
            let (kind, message) = judge(error, &change.target);
            let before = told.refused.get(&change.target).filter(|before| before.kind == kind);
            let (tries, since) = before.map_or((0, now), |before| (before.tries, before.since));
            let refusal = Refusal { message, kind, tries: tries + 1, since, last: now };
            told.refused.insert(change.target.clone(), refusal);
        }
        (Ok(_), owner) => {
            told.refused.remove(&change.target);
            told.made.extend(owner.map(|owner| (change.target.clone(), owner.to_owned())));
        }
    }
}

/// What it means, and what a person is told.
fn judge(error: &ApiError, target: &write::Target) -> (No, String) {
    let kind = match &error.class {
        RetryClass::AlreadyExists => {
            return (No::Taken, "an object of that name is there, and it is not this task's".to_owned());
        }
        // What cannot be read is no answer: the object may have been made.
        RetryClass::Invalid if error.status.is_none() => No::Passing,
        RetryClass::DeniedByWebhook(why)
            if target.kind == Kind::AppWrapper && why.contains(NOT_AUTHORIZED) =>
        {
            let namespace = target.namespace.as_deref().unwrap_or_default();
            let message = format!(
                "{error}: have its administrator apply deploy/worker/appwrapper.yaml there, and bind the ClusterRole \
                 fedq-wrapped of it in namespace {namespace}"
            );
            return (No::NotYet, message);
        }
        RetryClass::DeniedByWebhook(why)
            if target.kind == Kind::AppWrapper && why.contains(NOT_FOUND_OUT) =>
        {
            No::Passing
        }
        RetryClass::Invalid | RetryClass::DeniedByWebhook(_) => No::Final,
        RetryClass::Forbidden | RetryClass::NotFound => No::NotYet,
        RetryClass::Conflict
        | RetryClass::Gone
        | RetryClass::WebhookDown
        | RetryClass::Unauthorized
        | RetryClass::Throttled { .. }
        | RetryClass::Unreachable
        | RetryClass::Timeout => No::Passing,
    };
    (kind, error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target() -> write::Target {
        write::Target::namespaced(Kind::Job, "team", "train")
    }

    /// What is told after these answers, each so often, a minute after the other.
    fn after(answers: &[(RetryClass, u32)]) -> Refusal {
        let (told, mut now) = (Mutex::default(), Instant::now());
        let change =
            Change { target: target(), action: Action::Create(json!({"kind": "Job"})), manager: "fedq-task" };
        for (class, times) in answers {
            for _ in 0..*times {
                hear(&told, &change, &Err(ApiError::new(class.clone(), "no")), now);
                now += Duration::from_mins(1);
            }
        }
        let refusal = lock(&told).refused.remove(&target());
        refusal.expect("a refusal")
    }

    #[test]
    fn only_what_would_be_refused_again_is_final() {
        let kind = |class: RetryClass| after(&[(class, 1)]).kind;
        assert_eq!(kind(RetryClass::DeniedByWebhook("no".to_owned())), No::Final);
        assert_eq!(kind(RetryClass::Forbidden), No::NotYet, "quota of the namespace, or a right");
        assert_eq!(kind(RetryClass::NotFound), No::NotYet, "the namespace is still being made");
        assert_eq!(kind(RetryClass::Timeout), No::Passing);
        assert_eq!(kind(RetryClass::Invalid), No::Passing, "an answer that cannot be read is none");
        let mut invalid = ApiError::new(RetryClass::Invalid, "no");
        invalid.status = Some(Box::default());
        assert_eq!(judge(&invalid, &target()).0, No::Final);
    }

    #[test]
    fn a_right_to_what_is_wrapped_may_be_granted_or_be_found_elsewhere() {
        let judged = |kind: Kind, why: &str| {
            let error = ApiError::new(RetryClass::DeniedByWebhook(why.to_owned()), why);
            judge(&error, &write::Target::namespaced(kind, "team", "train"))
        };
        let field = "spec.components[0].template";
        let forbidden = format!("{field}: Forbidden: User fedq is not authorized to create pods in team");
        let (kind, told) = judged(Kind::AppWrapper, &forbidden);
        assert_eq!(kind, No::NotYet);
        assert!(told.starts_with(&forbidden) && told.contains("deploy/worker/appwrapper.yaml"), "{told}");
        assert!(told.ends_with("in namespace team"), "{told}");
        let asked = format!("{field}: Internal error: the server did not answer in time");
        assert_eq!(judged(Kind::AppWrapper, &asked).0, No::Passing);
        assert_eq!(
            judged(Kind::AppWrapper, "spec.components: Invalid value: no podspecs").0,
            No::Final,
            "wrong everywhere"
        );
        assert_eq!(judged(Kind::Job, &forbidden).0, No::Final);
    }

    #[test]
    fn what_does_not_pass_for_minutes_goes_elsewhere() {
        let turns_away = |answers: &[(RetryClass, u32)]| after(answers).turns_away();
        assert!(!turns_away(&[(RetryClass::WebhookDown, 3)]));
        assert!(turns_away(&[(RetryClass::WebhookDown, 2), (RetryClass::Timeout, 2)]));
        assert!(!turns_away(&[
            (RetryClass::Timeout, 3),
            (RetryClass::Forbidden, 1),
            (RetryClass::Timeout, 1)
        ]));
        assert!(turns_away(&[(RetryClass::Forbidden, TRIES)]));
    }

    #[test]
    fn tries_of_other_kinds_do_not_count() {
        let taken = after(&[(RetryClass::Unreachable, TRIES), (RetryClass::AlreadyExists, 1)]);
        assert_eq!(
            (taken.kind, taken.tries),
            (No::Taken, 1),
            "it was most likely made by one of those before"
        );
        let forbidden = after(&[(RetryClass::Timeout, 3), (RetryClass::Forbidden, TRIES)]);
        assert_eq!((forbidden.kind, forbidden.tries), (No::NotYet, TRIES));
    }
}
