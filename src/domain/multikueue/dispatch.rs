//! Which clusters a Workload is nominated for, where fedq is MultiKueue's dispatcher: the first in the Placement's
//! order that has room now; where none has, all that could ever hold it, so that the first to free room takes it. A
//! cluster that drains gets nothing new, and one that can never hold a Workload is not asked.

use std::collections::BTreeMap;

use super::MAX_CLUSTERS;
use crate::{
    resources::Resources,
    task::choose::view::{FlavorView, QueueView},
};
use fedq_values::{
    ids::{QueueName, ResourceName},
    quantity::Amount,
};

/// (namespace, name)
pub type Key = (String, String);

/// A Workload that has reserved the hub's quota, passed its other checks, and runs nowhere yet.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub key: Key,
    pub needs: Resources,
    pub nominated: Vec<String>,
    /// Whether the nomination may be changed: another dispatcher's is left alone.
    pub ours: bool,
    /// Whether it has waited long enough for those it was nominated for.
    pub overdue: bool,
    /// In order of preference, each with the room that its queue has there.
    pub candidates: Vec<Candidate>,
}

#[derive(Clone, Debug)]
pub struct Candidate {
    /// Of the MultiKueueCluster.
    pub name: String,
    pub room: Room,
}

#[derive(Clone, Debug)]
pub enum Room {
    /// The cluster does not answer or is not joined: not the same as none.
    Unknown,
    /// It has no LocalQueue of that name.
    NoQueue,
    Queue(QueueView),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    Fits,
    Waits,
    Unknown,
    Never(String),
}

/// What there should be of one Workload.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Nomination {
    pub key: Key,
    pub clusters: Vec<String>,
    /// Of each candidate, in order.
    pub verdicts: Vec<(String, Verdict)>,
}

/// What earlier nominations of one pass will take that no cluster has counted yet.
#[derive(Default)]
struct Taken(BTreeMap<(String, QueueName, ResourceName), Amount>);

/// In the order given: who comes first is offered the room first.
pub fn nominate(waiting: &[Waiting]) -> Vec<Nomination> {
    let mut taken = Taken::default();
    // What is on its way counts before anything new.
    let (nominated, new): (Vec<&Waiting>, Vec<&Waiting>) =
        waiting.iter().partition(|one| !one.nominated.is_empty());
    nominated.into_iter().chain(new).filter_map(|one| one.nominate(&mut taken)).collect()
}

impl Waiting {
    fn nominate(&self, taken: &mut Taken) -> Option<Nomination> {
        let verdicts: Vec<(String, Verdict)> = self
            .candidates
            .iter()
            .map(|candidate| (candidate.name.clone(), self.verdict(candidate, taken)))
            .collect();
        let clusters = if self.ours { self.choose(&verdicts) } else { self.nominated.clone() };
        if let [only] = clusters.as_slice()
            && let Some(Candidate { room: Room::Queue(queue), .. }) =
                self.candidates.iter().find(|candidate| candidate.name == *only)
        {
            taken.add(only, &queue.queue, &self.needs);
        }
        self.ours.then(|| Nomination { key: self.key.clone(), clusters, verdicts })
    }

    fn choose(&self, verdicts: &[(String, Verdict)]) -> Vec<String> {
        let usable = verdicts.iter().filter(|(_, verdict)| !matches!(verdict, Verdict::Never(_)));
        let (held, others): (Vec<_>, Vec<_>) = usable.partition(|(name, _)| self.nominated.contains(name));
        let name = |(name, _): &(String, Verdict)| name.clone();
        let mut clusters: Vec<String> = held.into_iter().map(name).collect();
        if !clusters.is_empty() && !self.overdue {
            return clusters;
        }
        match others.iter().find(|(_, verdict)| *verdict == Verdict::Fits) {
            Some((name, _)) => clusters.push(name.clone()),
            None => clusters.extend(others.into_iter().map(name)),
        }
        clusters.truncate(MAX_CLUSTERS);
        clusters
    }

    fn verdict(&self, candidate: &Candidate, taken: &Taken) -> Verdict {
        let queue = match &candidate.room {
            Room::Unknown => return Verdict::Unknown,
            Room::NoQueue => return Verdict::Never("it has no such LocalQueue".to_owned()),
            Room::Queue(queue) => queue,
        };
        let flavors = || queue.groups.iter().flat_map(|group| &group.flavors);
        for (resource, need) in &self.needs {
            let ceilings = flavors().filter_map(|flavor| flavor.cells.get(resource)).map(|cell| cell.ceiling);
            let most: Amount = ceilings.sum();
            if most < *need {
                let (need, most) = (need.text(resource), most.text(resource));
                return Verdict::Never(format!("it can have {most} of {resource} at most, not {need}"));
            }
        }
        let fits = |flavor: &FlavorView| {
            self.needs.iter().all(|(resource, need)| {
                flavor.cells.get(resource).is_none_or(|cell| {
                    let gone = taken.of(&candidate.name, &queue.queue, resource);
                    *need <= cell.available().saturating_sub(gone)
                })
            })
        };
        let has_room = queue.groups.iter().all(|group| group.flavors.iter().any(fits));
        if has_room && queue.active { Verdict::Fits } else { Verdict::Waits }
    }
}

impl Taken {
    fn add(&mut self, cluster: &str, queue: &QueueName, needs: &Resources) {
        for (resource, need) in needs {
            let sum = self.0.entry((cluster.to_owned(), queue.clone(), resource.clone())).or_default();
            *sum = sum.saturating_add(*need);
        }
    }

    fn of(&self, cluster: &str, queue: &QueueName, resource: &ResourceName) -> Amount {
        let key = (cluster.to_owned(), queue.clone(), resource.clone());
        self.0.get(&key).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::choose::view::{CellView, GroupView};
    use fedq_values::ids::FlavorName;

    fn gpu() -> ResourceName {
        ResourceName::new("nvidia.com/gpu").expect("a name")
    }

    /// A cluster whose queue has so many GPUs, of which some are held.
    fn cluster(name: &str, nominal: i64, reserved: i64) -> Candidate {
        let cell = CellView::new(Amount::new(nominal), None, None, Amount::new(reserved), None);
        let flavor = FlavorView {
            name: FlavorName::new("any").expect("a name"),
            node_labels: BTreeMap::new(),
            taints: Vec::new(),
            cells: BTreeMap::from([(gpu(), cell)]),
            largest_node: Resources::new(),
        };
        let queue = QueueView {
            local: "main".to_owned(),
            queue: QueueName::new("main").expect("a name"),
            active: true,
            pending: 0,
            groups: vec![GroupView { flavors: vec![flavor] }],
        };
        Candidate { name: name.to_owned(), room: Room::Queue(queue) }
    }

    fn away(name: &str) -> Candidate {
        Candidate { name: name.to_owned(), room: Room::Unknown }
    }

    fn waiting(name: &str, gpus: i64, candidates: Vec<Candidate>) -> Waiting {
        Waiting {
            key: ("team".to_owned(), name.to_owned()),
            needs: Resources::from([(gpu(), Amount::new(gpus))]),
            nominated: Vec::new(),
            ours: true,
            overdue: false,
            candidates,
        }
    }

    fn clusters(waiting: &[Waiting]) -> Vec<Vec<String>> {
        nominate(waiting).into_iter().map(|nomination| nomination.clusters).collect()
    }

    #[test]
    fn the_first_with_room_is_nominated_and_none_that_is_too_small() {
        let all = || vec![cluster("small", 2, 0), cluster("full", 8, 8), cluster("free", 8, 0), away("away")];
        assert_eq!(clusters(&[waiting("w", 4, all())]), [["free"]]);
        let nomination = &nominate(&[waiting("w", 4, all())])[0];
        let says = "it can have 2 of nvidia.com/gpu at most, not 4".to_owned();
        assert_eq!(nomination.verdicts[0], ("small".to_owned(), Verdict::Never(says)));
    }

    #[test]
    fn without_room_anywhere_all_that_could_ever_hold_it_are() {
        let all = vec![cluster("small", 2, 0), cluster("full", 8, 8), away("away")];
        assert_eq!(clusters(&[waiting("w", 4, all)]), [["full", "away"]]);
        assert_eq!(clusters(&[waiting("w", 4, vec![cluster("small", 2, 0)])]), [[""; 0]]);
        let none = Candidate { name: "none".to_owned(), room: Room::NoQueue };
        assert_eq!(clusters(&[waiting("w", 4, vec![none])]), [[""; 0]]);
    }

    #[test]
    fn what_was_nominated_a_moment_ago_takes_its_room() {
        let all = || vec![cluster("one", 8, 0), cluster("two", 8, 0)];
        let new = ["a", "b", "c"].map(|name| waiting(name, 4, all()));
        assert_eq!(clusters(&new), [["one"], ["one"], ["two"]]);
        let mut earlier = waiting("z", 8, all());
        earlier.nominated = vec!["one".to_owned()];
        assert_eq!(clusters(&[waiting("a", 4, all()), earlier]), [["one"], ["two"]]);
    }

    #[test]
    fn a_nomination_stands_until_it_is_overdue_or_its_cluster_drains() {
        let mut one = waiting("w", 4, vec![cluster("free", 8, 0), cluster("first", 8, 8)]);
        one.nominated = vec!["first".to_owned()];
        assert_eq!(clusters(std::slice::from_ref(&one)), [["first"]]);
        one.overdue = true;
        assert_eq!(clusters(std::slice::from_ref(&one)), [["first", "free"]]);
        one.candidates.pop();
        assert_eq!(clusters(std::slice::from_ref(&one)), [["free"]], "one that drains is no candidate");
    }

    #[test]
    fn another_dispatchers_nomination_is_left_alone_and_counts() {
        let all = || vec![cluster("one", 8, 0), cluster("two", 8, 0)];
        let mut theirs = waiting("a", 8, all());
        (theirs.nominated, theirs.ours) = (vec!["one".to_owned()], false);
        assert_eq!(clusters(&[theirs, waiting("b", 4, all())]), [["two"]]);
    }

    #[test]
    fn a_queue_that_is_held_waits() {
        let mut held = cluster("held", 8, 0);
        if let Room::Queue(queue) = &mut held.room {
            queue.active = false;
        }
        assert_eq!(clusters(&[waiting("w", 4, vec![held, cluster("free", 8, 0)])]), [["free"]]);
    }
}
