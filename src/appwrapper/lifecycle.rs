//! The life of an AppWrapper: what is to be done now, and what its status becomes afterwards. Pure.
//!
//! ```text
//! "" -> Suspended -> Resuming -> Running -> Succeeded
//!           ^           ^  |        |  |
//!           |           |  +------+ |  +-> Failed
//!       Suspending   Resetting <--+-+
//! ```
//! Suspending takes an AppWrapper back from Resuming, Running and Resetting. While it is Resetting its quota stays its own.

use jiff::{SignedDuration, Timestamp};

use crate::{
    api::{self, AppWrapper, AppWrapperStatus, Phase},
    conditions::{self, FALSE, TRUE},
    duration::GoDuration,
    names::{
        CONTROLLER, FINALIZER, annotation,
        condition::{DELETING_RESOURCES, PODS_READY, QUOTA_RESERVED, RESOURCES_DEPLOYED, UNHEALTHY},
    },
    running,
    tolerance::Tolerance,
    validate,
};

/// How long a deletion that makes no sound is left alone.
pub const RECHECK: SignedDuration = SignedDuration::from_secs(5);
const RETRY_CREATE: SignedDuration = SignedDuration::from_secs(1);

/// One look at an AppWrapper.
pub struct Turn<'a> {
    pub wrapper: &'a AppWrapper,
    pub tolerance: &'a Tolerance,
    pub now: Timestamp,
}

/// What must be done before the next status can be told.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    Wait(Wait),
    Write(Box<Outcome>),
    AddFinalizer,
    DropFinalizer,
    /// Make the components that are not there yet.
    Create,
    /// See what became of them.
    Look,
    /// Delete them; the status says so first.
    Remove(Box<AppWrapperStatus>),
}

/// A status, and when to look again if nothing happens before.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub status: AppWrapperStatus,
    pub notes: Vec<Note>,
    pub wait: Wait,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wait {
    ForEvent,
    Until(Timestamp),
}

/// An Event on the AppWrapper.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    pub reason: &'static str,
    pub text: String,
}

/// Why components could not be made.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateFailure {
    pub message: String,
    /// Trying again cannot help.
    pub fatal: bool,
}

/// How far a deletion has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Removal {
    pub status: AppWrapperStatus,
    /// Neither components nor pods are left.
    pub done: bool,
}

impl Turn<'_> {
    pub fn task(&self) -> Task {
        let (meta, spec) = (&self.wrapper.metadata, &self.wrapper.spec);
        if spec.managed_by.as_deref().is_some_and(|manager| manager != CONTROLLER) {
            return Task::Wait(Wait::ForEvent);
        }
        let ours = meta.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
        if meta.deletion_timestamp.is_some() {
            return if ours { self.leave() } else { Task::Wait(Wait::ForEvent) };
        }
        match self.phase() {
            Phase::Empty => self.write(self.initial()),
            Phase::Suspended if spec.suspend => Task::Wait(Wait::ForEvent),
            Phase::Suspended if !ours => Task::AddFinalizer,
            Phase::Suspended => self.write(self.resume()),
            phase @ (Phase::Resuming | Phase::Running | Phase::Resetting) if spec.suspend => {
                let text = format!("Externally suspended while in the {} phase", phase.word());
                let mut outcome = self.outcome();
                outcome.status.phase = Phase::Suspending;
                outcome.note(Phase::Suspending.word(), text);
                self.write(outcome)
            }
            Phase::Resuming => Task::Create,
            Phase::Running => Task::Look,
            Phase::Suspending => self.remove_or(|| self.suspended(self.status())),
            Phase::Resetting => self.remove_or(|| self.pause(self.status())),
            Phase::Failed => self.failed(),
            Phase::Succeeded => self.succeeded(),
            Phase::Terminating | Phase::Unknown => Task::Wait(Wait::ForEvent),
        }
    }

    pub fn after_create(&self, status: AppWrapperStatus, result: Result<(), CreateFailure>) -> Outcome {
        let mut outcome = Outcome { status, notes: Vec::new(), wait: Wait::ForEvent };
        let Err(failure) = result else {
            outcome.status.phase = Phase::Running;
            return outcome;
        };
        let deadline = self.after(RESOURCES_DEPLOYED, self.tolerance.admission_grace);
        if !failure.fatal && self.now < deadline {
            outcome.wait = Wait::Until(self.now + RETRY_CREATE);
            return outcome;
        }
        let text = format!("error creating components: {}", failure.message);
        self.unhealthy(&mut outcome, "CreateFailed", &text);
        if failure.fatal {
            outcome.status.phase = Phase::Failed;
        } else {
            self.reset_or_fail(&mut outcome.status, false, 1);
        }
        outcome
    }

    pub fn after_look(&self, components: &[running::Component], pods: &running::Pods) -> Outcome {
        running::judge(self, components, pods)
    }

    /// `removal` is what came of [`Task::Remove`].
    pub fn after_removal(&self, removal: Removal) -> Outcome {
        let Removal { mut status, done } = removal;
        let deleting = self.wrapper.metadata.deletion_timestamp.is_some();
        if !done {
            if deleting {
                status.phase = Phase::Terminating;
            }
            let wait = Wait::Until(self.now + RECHECK);
            return Outcome { status, notes: Vec::new(), wait };
        }
        conditions::clear(&mut status.conditions, DELETING_RESOURCES, "DeletionComplete", "", self.now);
        if deleting {
            return self.left(status);
        }
        match self.phase() {
            Phase::Suspending => self.suspended(status),
            Phase::Resetting => {
                let text = "Resources deleted for resetting AppWrapper";
                self.undeployed(&mut status, Phase::Resetting, text);
                self.pause(status)
            }
            Phase::Succeeded => {
                let text = format!("Time to live after success of {} expired", self.tolerance.success_ttl);
                self.undeployed(&mut status, Phase::Succeeded, &text);
                Outcome { status, notes: Vec::new(), wait: Wait::ForEvent }
            }
            _ => self.settled(status),
        }
    }

    fn initial(&self) -> Outcome {
        let (mut outcome, meta) = (self.outcome(), &self.wrapper.metadata);
        let of = |text: &Option<String>| text.clone().unwrap_or_default();
        let judged = match self.wrapper.spec.read() {
            Ok(components) => {
                let errors = validate::create(&components, &of(&meta.namespace), &of(&meta.name));
                api::component_status(&components).ok().filter(|_| errors.is_empty()).ok_or(errors)
            }
            Err(error) => Err(vec![error]),
        };
        let status = match judged {
            Ok(status) => status,
            // The webhook would have refused it, with the same words.
            Err(errors) => {
                self.unhealthy(&mut outcome, "CreateFailed", &validate::sentence(&errors));
                outcome.status.phase = Phase::Failed;
                self.undeployed(&mut outcome.status, Phase::Failed, "Nothing was created");
                return outcome;
            }
        };
        outcome.status.component_status = status;
        outcome.status.phase = Phase::Suspended;
        outcome
    }

    fn resume(&self) -> Outcome {
        let mut outcome = self.outcome();
        let reason = Phase::Resuming.word();
        for (type_, value) in
            [(QUOTA_RESERVED, TRUE), (RESOURCES_DEPLOYED, TRUE), (PODS_READY, FALSE), (UNHEALTHY, FALSE)]
        {
            self.set(&mut outcome.status, type_, (value, reason, "Suspend is false"));
        }
        outcome.status.phase = Phase::Resuming;
        outcome
    }

    fn suspended(&self, mut status: AppWrapperStatus) -> Outcome {
        let (phase, text) = (Phase::Suspended, "Suspend is true");
        if self.is(RESOURCES_DEPLOYED) {
            self.undeployed(&mut status, phase, text);
        }
        self.set(&mut status, QUOTA_RESERVED, (FALSE, phase.word(), text));
        for type_ in [PODS_READY, UNHEALTHY] {
            conditions::clear(&mut status.conditions, type_, phase.word(), "", self.now);
        }
        status.phase = phase;
        Outcome { status, notes: Vec::new(), wait: Wait::ForEvent }
    }

    /// Gives what is wrong in the cluster a while to pass.
    fn pause(&self, mut status: AppWrapperStatus) -> Outcome {
        let (reason, now) = (Phase::Resetting.word(), self.now);
        conditions::clear(&mut status.conditions, PODS_READY, reason, "", now);
        let deadline = self.after(UNHEALTHY, self.tolerance.retry_pause);
        if now < deadline {
            return Outcome { status, notes: Vec::new(), wait: Wait::Until(deadline) };
        }
        let reason = Phase::Resuming.word();
        self.set(&mut status, RESOURCES_DEPLOYED, (TRUE, reason, "Reset complete; resuming"));
        conditions::clear(&mut status.conditions, UNHEALTHY, reason, "Reset complete; resuming", now);
        status.phase = Phase::Resuming;
        Outcome { status, notes: Vec::new(), wait: Wait::ForEvent }
    }

    /// Whoever looks into a failure may have asked for the components to stay a while; Kueue may still take the quota.
    fn failed(&self) -> Task {
        const PAUSED: &str = "DeletionPaused";
        let delay = self.tolerance.deletion_on_failure_grace;
        if GoDuration::ZERO < delay && !self.wrapper.spec.suspend {
            let mut outcome = self.outcome();
            let conditions = &mut outcome.status.conditions;
            // Its time would otherwise be that of a deletion before.
            if conditions::find(conditions, DELETING_RESOURCES).is_some_and(|one| one.reason != PAUSED) {
                conditions.retain(|one| one.type_ != DELETING_RESOURCES);
            }
            let text = format!("{} has value {delay}", annotation::DELETION_ON_FAILURE_GRACE);
            conditions::set(conditions, DELETING_RESOURCES, (FALSE, PAUSED, &text), self.now);
            let since = conditions::since(conditions, DELETING_RESOURCES).unwrap_or(self.now);
            let deadline = since.saturating_add(delay.as_signed()).unwrap_or(Timestamp::MAX);
            if self.is(RESOURCES_DEPLOYED) && self.now < deadline {
                outcome.wait = Wait::Until(deadline);
                return self.write(outcome);
            }
        }
        self.remove_or(|| self.settled(self.status()))
    }

    fn settled(&self, mut status: AppWrapperStatus) -> Outcome {
        let paused = GoDuration::ZERO < self.tolerance.deletion_on_failure_grace && self.wrapper.spec.suspend;
        if self.is(RESOURCES_DEPLOYED) {
            let text = if paused {
                "Kueue forced resource deletion by suspending AppWrapper"
            } else {
                "Resources deleted for failed AppWrapper"
            };
            self.undeployed(&mut status, Phase::Failed, text);
        }
        let reason = Phase::Failed.word();
        self.set(&mut status, QUOTA_RESERVED, (FALSE, reason, "No resources deployed"));
        Outcome { status, notes: Vec::new(), wait: Wait::ForEvent }
    }

    fn succeeded(&self) -> Task {
        if !self.is(RESOURCES_DEPLOYED) {
            return Task::Wait(Wait::ForEvent);
        }
        let deadline = self.after(RESOURCES_DEPLOYED, self.tolerance.success_ttl);
        if self.now < deadline {
            return Task::Wait(Wait::Until(deadline));
        }
        self.remove_or(|| self.outcome())
    }

    /// It was deleted: the finalizer goes when nothing is left.
    fn leave(&self) -> Task {
        if self.is(QUOTA_RESERVED) && !self.is(RESOURCES_DEPLOYED) {
            return self.write(self.left(self.status()));
        }
        if self.is(RESOURCES_DEPLOYED) { self.remove_or(|| self.outcome()) } else { Task::DropFinalizer }
    }

    fn left(&self, mut status: AppWrapperStatus) -> Outcome {
        let phase = Phase::Terminating;
        if self.is(RESOURCES_DEPLOYED) {
            self.undeployed(&mut status, phase, "Resources successfully deleted");
        }
        if self.is(QUOTA_RESERVED) {
            self.set(&mut status, QUOTA_RESERVED, (FALSE, phase.word(), "No resources deployed"));
        }
        Outcome { status, notes: Vec::new(), wait: Wait::ForEvent }
    }

    /// Until ResourcesDeployed is False something may be there.
    fn remove_or(&self, otherwise: impl FnOnce() -> Outcome) -> Task {
        if !self.is(RESOURCES_DEPLOYED) {
            return self.write(otherwise());
        }
        let mut status = self.status();
        if self.phase() == Phase::Resetting {
            conditions::clear(&mut status.conditions, PODS_READY, Phase::Resetting.word(), "", self.now);
        }
        self.set(&mut status, DELETING_RESOURCES, (TRUE, "DeletionInitiated", ""));
        Task::Remove(Box::new(status))
    }

    pub(crate) fn reset_or_fail(&self, status: &mut AppWrapperStatus, terminal: bool, counts: i32) {
        if terminal || self.tolerance.retry_limit <= status.resetting_count {
            status.phase = Phase::Failed;
        } else {
            status.resetting_count += counts;
            status.phase = Phase::Resetting;
        }
    }

    pub(crate) fn unhealthy(&self, outcome: &mut Outcome, reason: &'static str, text: &str) {
        self.set(&mut outcome.status, UNHEALTHY, (TRUE, reason, text));
        outcome.note(UNHEALTHY, format!("{reason}: {text}"));
    }

    pub(crate) fn set(&self, status: &mut AppWrapperStatus, type_: &str, to: (&str, &str, &str)) {
        conditions::set(&mut status.conditions, type_, to, self.now);
    }

    /// The moment so long after a condition got its status.
    pub(crate) fn after(&self, type_: &str, grace: GoDuration) -> Timestamp {
        let conditions = &self.wrapper.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let since = conditions::since(conditions, type_).unwrap_or(self.now);
        since.saturating_add(grace.as_signed()).unwrap_or(Timestamp::MAX)
    }

    pub(crate) fn outcome(&self) -> Outcome {
        Outcome { status: self.status(), notes: Vec::new(), wait: Wait::ForEvent }
    }

    fn undeployed(&self, status: &mut AppWrapperStatus, phase: Phase, text: &str) {
        self.set(status, RESOURCES_DEPLOYED, (FALSE, phase.word(), text));
    }

    fn write(&self, outcome: Outcome) -> Task {
        if self.wrapper.status.as_ref() == Some(&outcome.status) && outcome.notes.is_empty() {
            return Task::Wait(outcome.wait);
        }
        Task::Write(Box::new(outcome))
    }

    fn is(&self, type_: &str) -> bool {
        self.wrapper.status.as_ref().is_some_and(|status| conditions::is(&status.conditions, type_, TRUE))
    }

    fn phase(&self) -> Phase {
        self.wrapper.status.as_ref().map(|status| status.phase).unwrap_or_default()
    }

    fn status(&self) -> AppWrapperStatus {
        self.wrapper.status.clone().unwrap_or_default()
    }
}

impl Outcome {
    pub(crate) fn note(&mut self, reason: &'static str, text: String) {
        self.notes.push(Note { reason, text });
    }
}
