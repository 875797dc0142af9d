//! What the tasks of a tenant, and those of one person in it, may take at once, and how long one may run. What a task takes is
//! what it asks its cluster for, from its dispatch until it is over or waits for a cluster again.

use std::{collections::BTreeMap, fmt, time::Duration};

use super::{
    choose::{hardware, verdict::per_node},
    spec::TaskSpec,
};
use fedq_values::{
    ids::ResourceName,
    quantity::{Amount, Quantity},
};

const ALL: [&str; 2] = ["gpus", "cpus"];
const PER_USER: [&str; 2] = ["perUser.gpus", "perUser.cpus"];

/// What is counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Taken {
    pub gpus: Amount,
    pub cpu: Amount,
}

/// The most at once; `None`: any.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Bounds {
    pub gpus: Option<Amount>,
    pub cpu: Option<Amount>,
}

/// Of a tenant.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Limits {
    pub all: Bounds,
    pub per_user: Bounds,
    /// Of one run of a task.
    pub max_duration: Option<Duration>,
    /// Of tasks that say none.
    pub default_duration: Option<Duration>,
}

/// What is left of them for a task.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Room {
    pub limits: Limits,
    /// What other tasks take, of the tenant and of the person.
    pub of_all: Taken,
    pub of_user: Taken,
    /// What earlier tasks of them wait for.
    pub ahead: [Ahead; 2],
}

/// Which resources a task waits for that a limit leaves too little of: later ones, that may be smaller, do not get ahead of it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Ahead {
    gpus: bool,
    cpu: bool,
}

/// More than there may be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Excess {
    setting: &'static str,
    resource: ResourceName,
    most: Amount,
    taken: Amount,
    needed: Amount,
    /// There may be enough of it, and an earlier task waits for more.
    behind: bool,
}

impl Taken {
    /// By a task in one of its forms.
    pub fn by(spec: &TaskSpec, candidate: usize) -> Self {
        let mut taken = Self::default();
        let mut add = |resource: &ResourceName, amount: Amount, pods: u32| {
            let all = amount.units().saturating_mul(i64::from(pods));
            let sum = match resource.as_str() {
                "cpu" => &mut taken.cpu,
                _ if hardware::is_of_accelerators(resource) => &mut taken.gpus,
                _ => return,
            };
            *sum = sum.saturating_add(Amount::new(all));
        };
        if let Some(wrapped) = &spec.wrapped {
            for pods in &wrapped.pod_sets {
                for (resource, amount) in pods.per_pod() {
                    add(&resource, amount, pods.count);
                }
            }
        } else if let Some(candidate) = spec.candidates.get(candidate) {
            for (resource, amount) in per_node(spec, candidate) {
                add(&resource, amount, spec.num_nodes);
            }
        }
        taken
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { gpus: self.gpus.saturating_add(other.gpus), cpu: self.cpu.saturating_add(other.cpu) }
    }

    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { gpus: self.gpus.saturating_sub(other.gpus), cpu: self.cpu.saturating_sub(other.cpu) }
    }
}

impl Bounds {
    fn check(
        &self,
        settings: [&'static str; 2],
        (taken, ahead): (Taken, Ahead),
        needed: Taken,
    ) -> Result<(), Excess> {
        let all = [
            ("nvidia.com/gpu", settings[0], self.gpus, taken.gpus, ahead.gpus, needed.gpus),
            ("cpu", settings[1], self.cpu, taken.cpu, ahead.cpu, needed.cpu),
        ];
        for (resource, setting, most, taken, ahead, needed) in all {
            // What takes none of it waits for nobody who does.
            let Some(most) = most.filter(|_| !needed.is_zero()) else { continue };
            let fits = taken.saturating_add(needed) <= most;
            if fits && !ahead {
                continue;
            }
            let resource = ResourceName::new(resource).expect("a constant resource name is valid");
            return Err(Excess { setting, resource, most, taken, needed, behind: fits });
        }
        Ok(())
    }
}

impl Limits {
    /// What is in the way of one person is told first: it keeps nobody else waiting.
    fn check(&self, room: &Room, needed: Taken) -> Result<(), Excess> {
        let [of_all, of_user] = room.ahead;
        self.per_user.check(PER_USER, (room.of_user, of_user), needed)?;
        self.all.check(ALL, (room.of_all, of_all), needed)
    }

    /// Why a task would wait for ever, in whichever form.
    pub fn forbid(&self, spec: &TaskSpec) -> Option<Excess> {
        let judge = |candidate| self.check(&Room::default(), Taken::by(spec, candidate)).err();
        let mut excess = None;
        for candidate in 0..spec.candidates.len().max(1) {
            excess = Some(judge(candidate)?).or(excess);
        }
        excess
    }

    /// How long a task may run that wants to for so long.
    pub fn duration(&self, wanted: Option<Duration>) -> Result<Option<Duration>, TooLong> {
        match (wanted, self.max_duration) {
            (Some(wanted), Some(most)) if most < wanted => Err(TooLong(most)),
            (Some(wanted), _) => Ok(Some(wanted)),
            (None, most) => Ok(self.default_duration.or(most)),
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "a task of your tenant may run for {} at most; have an administrator raise tasks.tenants[].limits.maxDuration of fedqd, or split it up",
    span(self.0)
)]
pub struct TooLong(Duration);

impl Room {
    pub fn admits(&self, spec: &TaskSpec, candidate: usize) -> Result<(), Excess> {
        self.limits.check(self, Taken::by(spec, candidate))
    }
}

/// What tasks of a tenant take, by person.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    pub limits: Limits,
    taken: BTreeMap<String, Taken>,
    /// Of all, and by person.
    ahead: (Ahead, BTreeMap<String, Ahead>),
}

impl Usage {
    pub fn of(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    pub fn add(&mut self, user: &str, taken: Taken) {
        if let Some(known) = self.taken.get_mut(user) {
            *known = known.plus(taken);
        } else {
            self.taken.insert(user.to_owned(), taken);
        }
    }

    /// A task of that person waits for what is in its way, before all that are asked about from now on.
    pub fn wait(&mut self, user: &str, excess: &Excess) {
        if excess.most < excess.needed {
            // The limit was lowered since, and nobody waits for what cannot come.
            return;
        }
        let (all, users) = &mut self.ahead;
        let ahead = if excess.is_of_person() { users.entry(user.to_owned()).or_default() } else { all };
        if excess.resource.as_str() == "cpu" { ahead.cpu = true } else { ahead.gpus = true }
    }

    /// For a task that takes `own` already.
    pub fn room(&self, user: &str, own: Taken) -> Room {
        let of_all = self.taken.values().fold(Taken::default(), |sum, taken| sum.plus(*taken));
        let of_user = self.taken.get(user).copied().unwrap_or_default();
        let (all, users) = &self.ahead;
        let ahead = [*all, users.get(user).copied().unwrap_or_default()];
        Room {
            limits: self.limits,
            of_all: of_all.minus(own),
            of_user: of_user.minus(own),
            // What it has it does not wait for.
            ahead: if own == Taken::default() { ahead } else { [Ahead::default(); 2] },
        }
    }
}

impl Excess {
    /// Of a task that is refused, since it would wait for ever.
    pub fn refusal(&self) -> String {
        format!(
            "{}; have an administrator raise tasks.tenants[].limits.{} of fedqd, or ask for less",
            self.told(),
            self.setting
        )
    }

    fn is_of_person(&self) -> bool {
        PER_USER.contains(&self.setting)
    }

    fn told(&self) -> String {
        let Self { resource, most, needed, .. } = self;
        let whose = if self.is_of_person() { "one person in your tenant" } else { "your tenant" };
        let what = if resource.as_str() == "cpu" { "cores" } else { "GPUs" };
        format!(
            "the tasks of {whose} may take {} {what} at once, and this one needs {}",
            most.text(resource),
            needed.text(resource)
        )
    }
}

/// Of a task that waits for others to end.
impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = self.taken.text(&self.resource);
        write!(f, "{} while others take {taken}", self.told())?;
        if self.behind {
            f.write_str(" and an earlier one waits for more than is left")?;
        }
        write!(f, " (tasks.tenants[].limits.{})", self.setting)
    }
}

/// As a task file has it: the largest unit that is exact.
pub fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(86_400, "d"), (3600, "h"), (60, "m")];
    let found = units.into_iter().find(|(unit, _)| seconds != 0 && seconds.is_multiple_of(*unit));
    found.map_or_else(|| format!("{seconds}s"), |(unit, name)| format!("{}{name}", seconds / unit))
}

/// Cores as a person writes them.
pub fn cores(text: &str) -> Option<Amount> {
    let nanos = Quantity::parse(text).ok()?.nanos();
    i64::try_from(nanos / 1_000_000).ok().filter(|milli| 0 <= *milli).map(Amount::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::testing::task;

    fn limits(gpus: i64, per_user: i64) -> Limits {
        let bounds = |gpus| Bounds { gpus: Some(Amount::new(gpus)), cpu: None };
        Limits { all: bounds(gpus), per_user: bounds(per_user), ..Limits::default() }
    }

    fn gpus(count: i64) -> Taken {
        Taken { gpus: Amount::new(count), cpu: Amount::ZERO }
    }

    #[test]
    fn all_nodes_count_in_the_form_that_is_taken() {
        let spec = task(
            "run: x\nnum_nodes: 3\nresources:\n  cpus: 1.5\n  any_of: [{accelerators: H100:2}, {accelerators: TPU-v5e:4}, {}]\n",
        );
        let taken: Vec<_> = (0..4).map(|candidate| Taken::by(&spec, candidate)).collect();
        let of = |gpus| Taken { gpus: Amount::new(gpus), cpu: Amount::new(4500) };
        assert_eq!(taken, [of(6), of(12), of(0), Taken::default()]);
    }

    #[test]
    fn slices_and_other_makes_count_as_gpus() {
        let counts = |name: &str| hardware::is_of_accelerators(&ResourceName::new(name).expect("a name"));
        for name in [
            "nvidia.com/gpu",
            "nvidia.com/gpu.shared",
            "nvidia.com/mig-1g.5gb",
            "nvidia.com/mig-3g.20gb.shared",
            "amd.com/gpu",
            "amd.com/cpx_nps4",
            "gpu.intel.com/i915",
            "gpu.intel.com/xe",
            "habana.ai/gaudi",
            "google.com/tpu",
        ] {
            assert!(counts(name), "{name}");
        }
        for name in
            ["cpu", "rdma/hca", "nvidia.com/hostdev", "gpu.intel.com/memory.max", "gpu.intel.com/millicores"]
        {
            assert!(!counts(name), "{name}");
        }
    }

    #[test]
    fn a_task_waits_while_others_take_what_it_needs_and_those_that_take_none_do_not() {
        let mut usage = Usage::of(limits(8, 6));
        usage.add("ann", gpus(2));
        usage.add("ann", gpus(1));
        usage.add("bob", gpus(4));
        let spec = |gpus: u32| task(&format!("run: x\nresources: {{accelerators: {gpus}}}\n"));
        let told = |user: &str, gpus: u32, own: Taken| {
            usage.room(user, own).admits(&spec(gpus), 0).err().map(|excess| excess.to_string())
        };
        assert_eq!(told("ann", 1, Taken::default()), None);
        assert_eq!(
            told("ann", 2, Taken::default()).as_deref(),
            Some(
                "the tasks of your tenant may take 8 GPUs at once, and this one needs 2 while others take 7 \
                 (tasks.tenants[].limits.gpus)"
            )
        );
        assert_eq!(told("ann", 3, gpus(3)), None, "what it has itself is not in its way");
        usage.limits.all = Bounds::default();
        let told = |user: &str, gpus: u32| {
            usage.room(user, Taken::default()).admits(&spec(gpus), 0).err().map(|excess| excess.to_string())
        };
        assert!(
            told("ann", 4).is_some_and(|told| told.contains("limits.perUser.gpus")),
            "{:?}",
            told("ann", 4)
        );
        assert_eq!(told("cem", 6), None);
        assert_eq!(
            usage.room("ann", Taken::default()).admits(&task("run: x\nresources: {cpus: 9}\n"), 0),
            Ok(())
        );
    }

    #[test]
    fn a_small_task_does_not_get_ahead_of_a_large_one_that_waits() {
        let mut usage = Usage::of(limits(8, 6));
        usage.limits.all.cpu = Some(Amount::new(100_000));
        usage.add("cem", gpus(4));
        let spec = |text: &str| task(&format!("run: x\nresources: {{{text}}}\n"));
        let admits = |usage: &Usage, user: &str, text: &str, own: Taken| {
            usage.room(user, own).admits(&spec(text), 0).map_err(|excess| excess.to_string())
        };
        let none = Taken::default();
        let excess = usage.room("ann", none).admits(&spec("accelerators: 6"), 0).expect_err("it waits");
        assert_eq!(admits(&usage, "bob", "accelerators: 2", none), Ok(()));
        usage.wait("ann", &excess);
        assert_eq!(
            admits(&usage, "bob", "accelerators: 2", none),
            Err("the tasks of your tenant may take 8 GPUs at once, and this one needs 2 while others take 4 and an \
                 earlier one waits for more than is left (tasks.tenants[].limits.gpus)"
                .to_owned())
        );
        assert_eq!(admits(&usage, "bob", "cpus: 2", none), Ok(()), "it needs nothing of that");
        assert_eq!(admits(&usage, "cem", "accelerators: 4", gpus(4)), Ok(()), "it has it already");

        let mut usage = Usage::of(limits(8, 6));
        usage.add("ann", gpus(4));
        let excess = usage.room("ann", none).admits(&spec("accelerators: 5"), 0).expect_err("it waits");
        usage.wait("ann", &excess);
        assert!(admits(&usage, "ann", "accelerators: 1", none).is_err());
        assert_eq!(admits(&usage, "bob", "accelerators: 1", none), Ok(()), "ann waits for herself");

        let mut usage = Usage::of(limits(8, 16));
        let excess = usage.room("ann", none).admits(&spec("accelerators: 9"), 0).expect_err("it never fits");
        usage.wait("ann", &excess);
        assert_eq!(
            admits(&usage, "bob", "accelerators: 1", none),
            Ok(()),
            "nobody waits for what cannot come"
        );
    }

    #[test]
    fn what_would_wait_for_ever_in_every_form_is_refused() {
        let limits = limits(8, 4);
        let refused = |text: &str| limits.forbid(&task(text)).map(|excess| excess.refusal());
        assert_eq!(refused("run: x\nresources: {any_of: [{accelerators: 8}, {accelerators: 4}]}\n"), None);
        let told =
            refused("run: x\nnum_nodes: 2\nresources: {any_of: [{accelerators: 8}, {accelerators: 3}]}\n");
        assert_eq!(
            told.as_deref(),
            Some(
                "the tasks of one person in your tenant may take 4 GPUs at once, and this one needs 6; have an \
                 administrator raise tasks.tenants[].limits.perUser.gpus of fedqd, or ask for less"
            )
        );
        assert_eq!(Limits::default().forbid(&task("run: x\nresources: {accelerators: 999}\n")), None);
    }

    #[test]
    fn durations_are_the_tasks_own_within_what_there_may_be() {
        let hours = |hours: u64| Some(Duration::from_hours(hours));
        let limits =
            |max, default| Limits { max_duration: max, default_duration: default, ..Limits::default() };
        assert_eq!(limits(None, None).duration(None), Ok(None));
        assert_eq!(limits(hours(9), None).duration(None), Ok(hours(9)));
        assert_eq!(limits(hours(9), hours(2)).duration(None), Ok(hours(2)));
        assert_eq!(limits(hours(9), hours(2)).duration(hours(9)), Ok(hours(9)));
        let refused = limits(hours(9), hours(2)).duration(hours(10)).expect_err("too long");
        assert!(refused.to_string().contains("for 9h at most"), "{refused}");
        assert_eq!(
            [90, 60, 86_400, 7200, 0].map(|s| span(Duration::from_secs(s))),
            ["90s", "1m", "1d", "2h", "0s"]
        );
    }
}
