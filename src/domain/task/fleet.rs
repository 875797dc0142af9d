//! All clusters as the next task is chosen by, at one moment: for dispatch, `explain` and dry runs alike.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use super::{
    choose::{
        Choice, Outcome, Verdict, Weights, Wish, choose,
        gather::{ClusterFacts, LocalQueueFacts, queue_views},
        obstacle::Obstacle,
        view::{Access, ClusterView, View, VolumeView},
    },
    limits::{Room, Taken, Usage},
    runtime::{Absence, Runtime},
    spec::{Priority, TaskSpec},
    volume::Known,
};
use fedq_values::ids::ClusterName;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet {
    pub clusters: BTreeMap<ClusterName, Member>,
    /// Joined, but nothing is known of them yet: they may be able to hold any task.
    pub unknown: BTreeSet<ClusterName>,
    /// Those of them that answer or are being asked, so that they are known in a moment.
    pub coming: BTreeSet<ClusterName>,
    /// Joined, and as they are no task can be sent there.
    pub unusable: BTreeMap<ClusterName, Obstacle>,
    pub weights: Weights,
    /// LocalQueues of the hub, by namespace and name, whose work MultiKueue dispatches, and to which clusters.
    pub by_multikueue: Arc<Routes>,
    /// Whether the hub knows AppWrappers, for MultiKueue to dispatch them from it. `None`: it is being asked.
    pub hub_has_app_wrappers: Option<bool>,
    /// What tasks of tenants with limits take, by namespace.
    pub usage: BTreeMap<String, Usage>,
}

/// By namespace and name of a LocalQueue.
pub type Routes = BTreeMap<(String, String), BTreeSet<ClusterName>>;

/// Why MultiKueue cannot dispatch AppWrappers of a queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NoRoute {
    /// It is not known yet whether it can.
    Asked(ClusterName),
    HubAsked,
    /// It may put one on a cluster of which nothing is known, as one that is not joined or has not answered.
    Unknown(ClusterName),
    HubWithoutKind {
        queue: String,
    },
    /// Wherever it puts one it has to be run, and fedq has no say in where that is.
    NoRuntime {
        queue: String,
        cluster: ClusterName,
        absence: Absence,
    },
}

impl NoRoute {
    /// Whether it stays so until somebody installs what is missing.
    pub fn stays(&self) -> bool {
        matches!(self, Self::HubWithoutKind { .. } | Self::NoRuntime { .. })
    }
}

impl fmt::Display for NoRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ELSE: &str = "or name another queue with --queue, or one cluster with --cluster";
        match self {
            Self::Asked(cluster) => write!(f, "it is being asked who runs AppWrappers on {cluster}"),
            Self::HubAsked => f.write_str("the hub is being asked whether it knows AppWrappers"),
            Self::Unknown(cluster) => write!(
                f,
                "MultiKueue may choose cluster {cluster}, and nothing is known of that: it waits until it answers, {ELSE}"
            ),
            Self::HubWithoutKind { queue } => write!(
                f,
                "queue {queue} of the hub is dispatched by MultiKueue, and the hub does not know AppWrappers: have its \
                 administrator apply deploy/appwrapper/crd.yaml there and enable them in Kueue's configuration, {ELSE}"
            ),
            Self::NoRuntime { queue, cluster, absence } => write!(
                f,
                "queue {queue} of the hub is dispatched by MultiKueue, which may choose cluster {cluster}: {absence}, {ELSE}"
            ),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub access: Access,
    pub facts: Arc<ClusterFacts>,
    /// By namespace.
    pub local_queues: Arc<BTreeMap<String, Vec<LocalQueueFacts>>>,
    /// LocalQueues of the hub that the cluster is to have, by namespace: it may not have them yet.
    pub promised: Arc<BTreeMap<String, BTreeSet<String>>>,
    /// WorkloadPriorityClasses with their values.
    pub priorities: Arc<BTreeMap<String, i64>>,
    /// And something that makes Jobs of them.
    pub has_jobsets: bool,
    pub app_wrappers: Runtime,
}

/// Whose task it is, as far as that decides where it can run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tenancy {
    pub namespace: String,
    /// The tenant's volumes: where each is, by the name that tasks give it. `None`: where its first task will be.
    pub volumes: BTreeMap<String, (Option<ClusterName>, VolumeView)>,
}

impl Tenancy {
    /// Which volumes a person's tasks in a namespace mean by their names. `volumes`: oldest first; the oldest of a name
    /// counts.
    pub fn of<'a>(owner: &str, namespace: &str, volumes: impl IntoIterator<Item = Known<'a>>) -> Self {
        let mut tenancy = Self { namespace: namespace.to_owned(), volumes: BTreeMap::new() };
        for volume in volumes {
            if volume.owner != owner || volume.namespace != namespace || volume.deleting {
                continue;
            }
            let view = VolumeView {
                claim: volume.spec.claim_name(volume.id),
                shared: volume.spec.is_shared(),
                read_only: volume.spec.is_read_only(),
            };
            let known = || (volume.cluster.cloned(), view);
            tenancy.volumes.entry(volume.spec.name().to_owned()).or_insert_with(known);
        }
        tenancy
    }
}

impl Fleet {
    pub fn view(&self, tenancy: &Tenancy) -> View {
        View { clusters: self.clusters.iter().map(|(name, member)| member.view(name, tenancy)).collect() }
    }

    /// What limits leave to a person's task that takes `own` already.
    pub fn room(&self, (namespace, user): (&str, &str), own: Taken) -> Option<Room> {
        Some(self.usage.get(namespace)?.room(user, own))
    }

    pub fn choose(&self, task: &TaskSpec, wish: &Wish, tenancy: &Tenancy) -> Choice {
        self.choose_in(task, wish, &self.view(tenancy))
    }

    /// `view`: as [`Fleet::view`] gives it. A cluster that is still unknown is no cluster that can never.
    pub fn choose_in(&self, task: &TaskSpec, wish: &Wish, view: &View) -> Choice {
        let mut lacking = self.without_class(task);
        for (name, obstacle) in self.without_runtime(task) {
            lacking.entry(name).or_insert(obstacle);
        }
        let mut choice = if lacking.is_empty() {
            choose(task, wish, view, self.weights)
        } else {
            let others = view.clusters.iter().filter(|cluster| !lacking.contains_key(&cluster.name));
            choose(task, wish, &View { clusters: others.cloned().collect() }, self.weights)
        };
        choice.verdicts.extend(lacking.into_iter().map(|(name, why)| (name, Verdict::Never(vec![why]))));
        let unusable =
            self.unusable.iter().map(|(name, why)| (name.clone(), Verdict::Never(vec![why.clone()])));
        choice.verdicts.extend(unusable);
        let nothing_known = choice.verdicts.is_empty() || !self.unknown.is_empty();
        let to_come = choice.verdicts.values().any(Verdict::is_to_come);
        if choice.outcome == Outcome::Never && (nothing_known || to_come) {
            choice.outcome = Outcome::Wait;
        }
        choice
    }

    /// Clusters that do not know the class that the task names: Kueue would take it there as one without a class.
    fn without_class(&self, task: &TaskSpec) -> BTreeMap<ClusterName, Obstacle> {
        let Some(Priority::Class(wanted)) = &task.priority else { return BTreeMap::new() };
        let lacking = self.clusters.iter().filter(|(_, member)| !member.priorities.contains_key(wanted));
        lacking
            .map(|(name, member)| {
                let there = member.priorities.keys().cloned().collect();
                (name.clone(), Obstacle::NoPriorityClass { wanted: wanted.clone(), there })
            })
            .collect()
    }

    /// Clusters on which nothing would make the objects of an AppWrapper: Kueue would admit it there all the same.
    fn without_runtime(&self, task: &TaskSpec) -> BTreeMap<ClusterName, Obstacle> {
        let lacking = |(name, member): (&ClusterName, &Member)| {
            let obstacle = match &member.app_wrappers {
                Runtime::Upstream | Runtime::Fedq => return None,
                Runtime::Unknown => Obstacle::RuntimeUnknown,
                Runtime::None(_) if task.may_unwrap() => return None,
                Runtime::None(absence) => Obstacle::NoRuntime(absence.clone()),
            };
            Some((name.clone(), obstacle))
        };
        if !task.is_app_wrapper() {
            return BTreeMap::new();
        }
        self.clusters.iter().filter_map(lacking).collect()
    }

    /// Why AppWrappers cannot go by a queue of a namespace, if MultiKueue dispatches it.
    pub fn no_route(&self, namespace: &str, queue: &str) -> Option<NoRoute> {
        let clusters = self.by_multikueue.get(&(namespace.to_owned(), queue.to_owned()))?;
        let queue = queue.to_owned();
        let mut asked = match self.hub_has_app_wrappers {
            Some(true) => None,
            Some(false) => return Some(NoRoute::HubWithoutKind { queue }),
            None => Some(NoRoute::HubAsked),
        };
        for cluster in clusters {
            match self.clusters.get(cluster).map(|member| &member.app_wrappers) {
                Some(Runtime::Upstream | Runtime::Fedq) => {}
                Some(Runtime::Unknown) => asked = Some(NoRoute::Asked(cluster.clone())),
                None => asked = Some(NoRoute::Unknown(cluster.clone())),
                Some(Runtime::None(absence)) => {
                    let (cluster, absence) = (cluster.clone(), absence.clone());
                    return Some(NoRoute::NoRuntime { queue, cluster, absence });
                }
            }
        }
        asked
    }

    /// The names of the LocalQueues that a namespace has anywhere.
    pub fn queues_of(&self, namespace: &str) -> Vec<String> {
        let of_cluster = |member: &Member| {
            let local = member.local_queues.get(namespace).into_iter().flatten();
            local.map(|queue| queue.name.clone()).collect::<Vec<_>>()
        };
        let mut names: Vec<String> = self.clusters.values().flat_map(of_cluster).collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Member {
    pub fn view(&self, name: &ClusterName, tenancy: &Tenancy) -> ClusterView {
        let local = self.local_queues.get(&tenancy.namespace).map_or(&[][..], Vec::as_slice);
        let (here, elsewhere): (Vec<_>, Vec<_>) = tenancy
            .volumes
            .iter()
            .partition(|(_, (cluster, _))| cluster.as_ref().is_none_or(|at| at == name));
        ClusterView {
            name: name.clone(),
            access: self.access,
            queues: queue_views(&self.facts, local),
            promised: self.promised.get(&tenancy.namespace).cloned().unwrap_or_default(),
            volumes: here.into_iter().map(|(volume, (_, view))| (volume.clone(), view.clone())).collect(),
            elsewhere: elsewhere
                .into_iter()
                .filter_map(|(volume, (at, _))| Some((volume.clone(), at.clone()?)))
                .collect(),
        }
    }

    /// The class of a task's priority here: the one named, or that of the value or the next below it.
    pub fn priority_class(&self, priority: &Priority) -> Option<String> {
        match priority {
            Priority::Class(name) => Some(name.clone()),
            Priority::Value(wanted) => {
                let below = self.priorities.iter().filter(|(_, value)| **value <= *wanted);
                below.max_by_key(|(_, value)| **value).map(|(name, _)| name.clone())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{names::TaskId, testing::cluster_name, volume::VolumeSpec};

    fn member(priorities: &[(&str, i64)]) -> Member {
        Member {
            access: Access::Ready,
            facts: Arc::default(),
            local_queues: Arc::default(),
            promised: Arc::default(),
            priorities: Arc::new(
                priorities.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ),
            has_jobsets: false,
            app_wrappers: Runtime::Unknown,
        }
    }

    #[test]
    fn a_priority_is_the_class_of_its_value_or_the_next_below() {
        let member = member(&[("low", 10), ("mid", 100), ("high", 1000)]);
        let class = |value: i64| member.priority_class(&Priority::Value(value));
        assert_eq!(class(5), None);
        assert_eq!(class(100).as_deref(), Some("mid"));
        assert_eq!(class(999).as_deref(), Some("mid"));
        assert_eq!(class(5000).as_deref(), Some("high"));
        assert_eq!(member.priority_class(&Priority::Class("own".to_owned())).as_deref(), Some("own"));
    }

    #[test]
    fn a_class_that_a_cluster_does_not_know_is_said_with_those_it_knows() {
        let fleet = Fleet {
            clusters: [("one", member(&[("low", 1), ("mid", 5)])), ("two", member(&[("urgent", 9)]))]
                .map(|(name, member)| (cluster_name(name), member))
                .into(),
            ..Fleet::default()
        };
        let mut task = crate::task::testing::task("run: x\n");
        task.priority = Some(Priority::Class("urgent".to_owned()));
        let choice = fleet.choose(&task, &Wish::default(), &Tenancy::default());
        let Verdict::Never(one) = &choice.verdicts[&cluster_name("one")] else {
            panic!("{choice:?}");
        };
        assert_eq!(one[0].to_string(), "there is no WorkloadPriorityClass urgent; there are low, mid");
        let Verdict::Never(two) = &choice.verdicts[&cluster_name("two")] else {
            panic!("{choice:?}");
        };
        assert!(!two.iter().any(|obstacle| matches!(obstacle, Obstacle::NoPriorityClass { .. })), "{two:?}");
        task.priority = Some(Priority::Value(3));
        assert!(fleet.without_class(&task).is_empty(), "a value is no name");
    }

    #[test]
    fn the_oldest_volume_of_a_name_in_the_tenants_namespace_is_meant() {
        let spec = VolumeSpec::new("data", "1Gi", None, None).expect("a volume");
        let ids = [1, 2, 3, 4, 5].map(TaskId::draw);
        let (one, two) = (cluster_name("one"), cluster_name("two"));
        let volume = |id: usize, namespace, cluster| Known {
            id: &ids[id],
            owner: "ann",
            namespace,
            spec: &spec,
            cluster,
            deleting: false,
        };
        let bobs = Known { owner: "bob", ..volume(0, "team", Some(&two)) };
        let going = Known { deleting: true, ..volume(1, "team", Some(&two)) };
        let elsewhere = volume(2, "other", Some(&two));
        let (older, newer) = (volume(3, "team", Some(&one)), volume(4, "team", Some(&two)));
        let tenancy = Tenancy::of("ann", "team", [bobs, going, elsewhere, older, newer]);
        let (cluster, view) = &tenancy.volumes["data"];
        assert_eq!((cluster.as_ref(), &view.claim), (Some(&one), &spec.claim_name(&ids[3])));
        let tenancy = Tenancy::of("ann", "team", [volume(0, "team", None), newer]);
        assert_eq!(tenancy.volumes["data"].0, None, "the older one counts, though it is nowhere yet");
    }

    #[test]
    fn what_can_never_be_reached_is_told_and_does_not_keep_a_task_waiting() {
        let task = crate::task::testing::task("run: x\n");
        let wish = Wish { queue: Some("default".to_owned()), ..Wish::default() };
        let outcome = |fleet: &Fleet| fleet.choose(&task, &wish, &Tenancy::default()).outcome;
        let mut fleet = Fleet::default();
        assert_eq!(outcome(&fleet), Outcome::Wait, "nothing is joined");
        fleet.clusters.insert(cluster_name("one"), member(&[]));
        assert_eq!(outcome(&fleet), Outcome::Never);
        fleet.unusable.insert(cluster_name("far"), Obstacle::OutOfReach);
        let choice = fleet.choose(&task, &wish, &Tenancy::default());
        assert_eq!(choice.outcome, Outcome::Never);
        assert_eq!(choice.verdicts[&cluster_name("far")], Verdict::Never(vec![Obstacle::OutOfReach]));
        fleet.unknown.insert(cluster_name("two"));
        assert_eq!(outcome(&fleet), Outcome::Wait, "it may hold any task");
    }

    #[test]
    fn a_queue_that_is_still_being_made_is_no_queue_that_is_missing() {
        let task = crate::task::testing::task("run: x\n");
        let tenancy = Tenancy { namespace: "team".to_owned(), ..Tenancy::default() };
        let promised = BTreeMap::from([("team".to_owned(), BTreeSet::from(["default".to_owned()]))]);
        let one = Member { promised: Arc::new(promised), ..member(&[]) };
        let fleet = Fleet { clusters: [(cluster_name("one"), one)].into(), ..Fleet::default() };
        let chosen = |queue: &str, cluster: Option<&str>| {
            let cluster = cluster.map(cluster_name);
            fleet.choose(&task, &Wish { queue: Some(queue.to_owned()), cluster, ..Wish::default() }, &tenancy)
        };
        let choice = chosen("default", None);
        assert_eq!(choice.outcome, Outcome::Wait);
        assert_eq!(
            crate::task::progress::undecided(&choice, &[]),
            "one: queue default is still being made there"
        );
        assert_eq!(chosen("other", None).outcome, Outcome::Never);
        assert_eq!(chosen("default", Some("two")).outcome, Outcome::Never, "there is no such cluster");
    }

    #[test]
    fn volumes_are_where_they_are() {
        let fleet = Fleet {
            clusters: ["one", "two"].map(|name| (cluster_name(name), member(&[]))).into(),
            ..Fleet::default()
        };
        let volume = VolumeView { claim: "data-1a2b3c4d".to_owned(), shared: true, read_only: false };
        let tenancy = Tenancy {
            namespace: "team".to_owned(),
            volumes: [
                ("data".to_owned(), (Some(cluster_name("two")), volume.clone())),
                ("new".to_owned(), (None, volume.clone())),
            ]
            .into(),
        };
        let view = fleet.view(&tenancy);
        let of = |name: &str| -> Vec<_> {
            view.clusters
                .iter()
                .map(|cluster| (cluster.volumes.get(name), cluster.elsewhere.get(name)))
                .collect()
        };
        assert_eq!(of("data"), [(None, Some(&cluster_name("two"))), (Some(&volume), None)]);
        assert_eq!(of("new"), [(Some(&volume), None); 2], "its first task decides");
        assert!(fleet.queues_of("team").is_empty());
    }
}
