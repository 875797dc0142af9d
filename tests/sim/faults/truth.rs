//! What each queue may hold, worked out from what was put into the clusters alone, by rules simpler than fedq's own.
//!
//! fedq learns of changes one after the other and in any order, and is killed and cut off meanwhile. So between two
//! moments at which all has settled, a write is right when it lies between the least and the greatest that any mixture
//! of what has been true since then asks for. Once all has settled only one amount is right.

use super::stage::QUEUES;

/// Assigned to each queue, or held by it.
pub type Amounts = [i64; 2];

/// What was true since all had settled, the last one being true now.
#[derive(Clone, Debug)]
struct Since<T>(Vec<T>);

impl<T: Copy + PartialEq> Since<T> {
    fn now(&self) -> T {
        *self.0.last().expect("something is true")
    }

    fn becomes(&mut self, value: T) {
        if self.now() != value {
            self.0.push(value);
        }
    }

    fn settle(&mut self) {
        self.0 = vec![self.now()];
    }
}

/// GPUs that fedq may give out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nodes {
    /// Of nodes with each label that the flavor may go by, less what others hold.
    pub labelled: i64,
    /// Of those that lack one.
    pub plain: i64,
}

impl Nodes {
    fn usable(self, only_labelled: bool) -> i64 {
        self.labelled + if only_labelled { 0 } else { self.plain }
    }
}

/// Of one cluster.
#[derive(Debug)]
pub struct Cluster {
    nodes: Since<Nodes>,
    /// Whether the flavor goes by the label that some nodes lack.
    only_labelled: Since<bool>,
    /// By the claim that is in force.
    asked: Since<Amounts>,
    joined: Since<bool>,
}

impl Cluster {
    pub fn new(nodes: Nodes, asked: Amounts) -> Self {
        Self {
            nodes: Since(vec![nodes]),
            only_labelled: Since(vec![false]),
            asked: Since(vec![asked]),
            joined: Since(vec![true]),
        }
    }

    pub fn nodes(&self) -> Nodes {
        self.nodes.now()
    }

    /// GPUs that fedq may give out now.
    pub fn usable(&self) -> i64 {
        self.nodes.now().usable(self.only_labelled.now())
    }

    pub fn is_joined(&self) -> bool {
        self.joined.now()
    }

    pub fn asks(&mut self, amounts: Amounts) {
        self.asked.becomes(amounts);
    }

    pub fn joins(&mut self, joined: bool) {
        self.joined.becomes(joined);
    }

    pub fn has_nodes(&mut self, nodes: Nodes) {
        self.nodes.becomes(nodes);
    }

    pub fn goes_by_label(&mut self, only_labelled: bool) {
        self.only_labelled.becomes(only_labelled);
    }

    /// Once all has settled.
    pub fn share(&self) -> Amounts {
        if self.is_joined() { shared(self.usable(), self.asked.now()) } else { [0, 0] }
    }

    /// The least and the greatest of each queue.
    fn bounds(&self) -> [(i64, i64); 2] {
        let labels = &self.only_labelled.0;
        let usable = self.nodes.0.iter().flat_map(|nodes| labels.iter().map(|only| nodes.usable(*only)));
        let shares = usable.flat_map(|usable| self.asked.0.iter().map(move |asked| shared(usable, *asked)));
        let gone = self.joined.0.contains(&false).then_some([0, 0]);
        let all: Vec<Amounts> = shares.chain(gone).collect();
        [0, 1].map(|queue| {
            let of_queue = || all.iter().map(|amounts| amounts[queue]);
            (of_queue().min().unwrap_or_default(), of_queue().max().unwrap_or_default())
        })
    }

    fn settle(&mut self) {
        self.nodes.settle();
        self.only_labelled.settle();
        self.asked.settle();
        self.joined.settle();
    }
}

/// In proportion where there is not enough, in whole GPUs; what rounding leaves goes to the largest fraction.
fn shared(usable: i64, asked: Amounts) -> Amounts {
    let sum: i64 = asked.iter().sum();
    if sum <= usable {
        return asked;
    }
    let usable = usable.max(0);
    let mut shares = asked.map(|amount| amount * usable / sum);
    let mut by_fraction = [0, 1];
    // `batch` comes before `team` where they are equal.
    by_fraction.sort_by_key(|queue| (-(asked[*queue] * usable % sum), QUEUES[*queue]));
    let left = usable - shares.iter().sum::<i64>();
    for queue in by_fraction.into_iter().take(usize::try_from(left).unwrap_or_default()) {
        shares[queue] += 1;
    }
    shares
}

/// Of all clusters.
#[derive(Debug)]
pub struct Truth {
    /// In the order of the stage's workers.
    pub workers: [Cluster; 2],
    /// Known to the hub by its report only.
    pub reported: Cluster,
    /// Which queues of the hub are on Hold: of clusters that are followed only what runs counts. What runs where the hub
    /// cannot look is not known, so that counts as ever.
    held: Since<[bool; 2]>,
}

impl Truth {
    pub fn new(workers: [Cluster; 2], reported: Cluster) -> Self {
        Self { workers, reported, held: Since(vec![[false, false]]) }
    }

    pub fn is_held(&self, queue: usize) -> bool {
        self.held.now()[queue]
    }

    pub fn holds(&mut self, queue: usize, held: bool) {
        let mut now = self.held.now();
        now[queue] = held;
        self.held.becomes(now);
    }

    /// Where workloads hold that much on each worker.
    pub fn hub(&self, reserved: [Amounts; 2]) -> Amounts {
        let reported = self.reported.share();
        let shares = [self.workers[0].share(), self.workers[1].share()];
        [0, 1].map(|queue| {
            let counted = |(share, reserved): (&Amounts, &Amounts)| {
                if self.is_held(queue) { share[queue].min(reserved[queue]) } else { share[queue] }
            };
            shares.iter().zip(&reserved).map(counted).sum::<i64>() + reported[queue]
        })
    }

    /// Of each write of quota, by cluster: the hub, then the workers. Each is a queue, from what, to what.
    pub fn allows(&self, writes: &[Vec<(String, i64, i64)>; 3]) {
        let workers = [self.workers[0].bounds(), self.workers[1].bounds()];
        let reported = self.reported.bounds();
        let hub = [0, 1].map(|queue| {
            let [one, two, reported] = [workers[0][queue], workers[1][queue], reported[queue]];
            let was_held = self.held.0.iter().any(|held| held[queue]);
            let least = if was_held { 0 } else { one.0 + two.0 };
            (least + reported.0, one.1 + two.1 + reported.1)
        });
        for ((place, bounds), writes) in
            ["the hub", "one", "two"].iter().zip([hub, workers[0], workers[1]]).zip(writes)
        {
            for (name, from, to) in writes {
                let queue = QUEUES.iter().position(|queue| queue == name).expect("a queue that claims name");
                let (least, most) = bounds[queue];
                assert!(
                    (least..=most).contains(to),
                    "`{name}` on {place} went from {from} to {to}, and nothing that was true asks for less than {least} or \
                     more than {most}: {self:?}\n{writes:?}"
                );
            }
        }
    }

    pub fn settle(&mut self) {
        self.workers.iter_mut().for_each(Cluster::settle);
        self.reported.settle();
        self.held.settle();
    }
}
