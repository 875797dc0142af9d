//! What is known and what is looked at. Keys, news and the time go in; what has to be followed comes out.

use std::borrow::Cow;

use jiff::Timestamp;

use crate::{
    list::{List, Walk},
    news::{Kind, News, Source},
    queue::Queue,
    queues::{self, QueueKey},
    table::{Key as ObjectKey, Link, Table},
    workload::{Detail, Event, Workload, cluster_queue},
    workloads,
};

/// What a person does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Key {
    Walk(Walking),
    Left,
    Right,
    Enter,
    Escape,
    Backspace,
    Char(char),
    /// Ctrl-C.
    Interrupt,
}

pub use crate::list::Walk as Walking;

/// Why the view ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    Quit,
    Interrupted,
}

pub struct State {
    pub(crate) clusters: Vec<Cluster>,
    pub(crate) queues: List<QueueKey>,
    pub(crate) queue_widths: [usize; 12],
    pub(crate) opened: Option<Opened>,
    /// The filter is being typed.
    pub(crate) typing: bool,
    pub(crate) help: bool,
    pub(crate) now: Timestamp,
}

pub(crate) struct Cluster {
    pub name: String,
    pub queues: Table<Queue>,
}

/// A queue whose workloads are looked at.
pub(crate) struct Opened {
    pub queue: QueueKey,
    pub local_queues: Table<String>,
    pub workloads: Table<Workload>,
    pub list: List<ObjectKey>,
    pub widths: [usize; 7],
    pub inspected: Option<Inspected>,
}

/// A workload that is looked at.
pub(crate) struct Inspected {
    pub key: ObjectKey,
    pub workload: Table<Detail>,
    pub events: Table<Event>,
    /// The first line on the screen.
    pub top: usize,
    /// Lines that there are beyond the screen, as it was drawn last.
    pub beyond: usize,
    pub height: usize,
}

/// A line of a list as it is drawn.
pub(crate) struct Row<'a> {
    /// `~` for what is old, `!` for what admits nothing.
    pub mark: char,
    pub cells: Vec<Cow<'a, str>>,
    pub alarming: bool,
}

impl State {
    pub fn new(clusters: impl IntoIterator<Item = String>, now: Timestamp) -> Self {
        let cluster = |name| Cluster { name, queues: Table::new(Queue::read) };
        Self {
            clusters: clusters.into_iter().map(cluster).collect(),
            queues: List::new(),
            queue_widths: [0; 12],
            opened: None,
            typing: false,
            help: false,
            now,
        }
    }

    /// What the view needs to be told of.
    pub fn wanted(&self) -> Vec<Source> {
        let queues = (0..self.clusters.len()).map(|cluster| Source { cluster, kind: Kind::ClusterQueues });
        let mut wanted: Vec<Source> = queues.collect();
        let Some(opened) = &self.opened else { return wanted };
        let cluster = opened.queue.0;
        wanted.extend([Kind::LocalQueues, Kind::Workloads].map(|kind| Source { cluster, kind }));
        let Some(inspected) = &opened.inspected else { return wanted };
        let names = || (inspected.key.0.to_string(), inspected.key.1.to_string());
        let ((namespace, name), again) = (names(), names());
        wanted.push(Source { cluster, kind: Kind::Workload { namespace, name } });
        wanted.push(Source { cluster, kind: Kind::Events { namespace: again.0, name: again.1 } });
        wanted
    }

    pub fn take(&mut self, source: &Source, news: News) {
        let now = self.now;
        if source.kind == Kind::ClusterQueues {
            self.queues.stale = true;
            if let Some(cluster) = self.clusters.get_mut(source.cluster) {
                cluster.queues.take(news, now);
            }
            return;
        }
        // What is not looked at any more may still have been on its way.
        let Some(opened) = self.opened.as_mut().filter(|opened| opened.queue.0 == source.cluster) else {
            return;
        };
        opened.take(&source.kind, news, now);
    }

    pub fn tick(&mut self, now: Timestamp) {
        self.now = now;
    }

    pub fn press(&mut self, key: Key) -> Option<End> {
        match key {
            Key::Interrupt => return Some(End::Interrupted),
            Key::Char(_) | Key::Backspace | Key::Enter | Key::Escape if self.typing => self.type_filter(key),
            Key::Char('q') => return Some(End::Quit),
            _ if self.help => self.help = false,
            Key::Char('?') => self.help = true,
            Key::Walk(walk) => self.walk(walk),
            Key::Char('k') => self.walk(Walk::Up),
            Key::Char('j') => self.walk(Walk::Down),
            Key::Char('b') => self.walk(Walk::PageUp),
            Key::Char(' ' | 'f') => self.walk(Walk::PageDown),
            Key::Char('g') => self.walk(Walk::First),
            Key::Char('G') => self.walk(Walk::Last),
            Key::Char('/') => self.typing = !self.is_detail(),
            Key::Left | Key::Char('<' | ',') => self.turn(false),
            Key::Right | Key::Char('>' | '.') => self.turn(true),
            Key::Char('r') => self.turn_round(),
            Key::Enter => self.open(),
            Key::Escape | Key::Backspace => self.back(),
            Key::Char(_) => {}
        }
        None
    }

    /// Puts what was told since into its order.
    pub(crate) fn arrange(&mut self) {
        match &mut self.opened {
            None if self.queues.stale => {
                self.queue_widths = queues::arrange(&mut self.queues, &self.clusters);
            }
            Some(opened) if opened.list.stale => opened.arrange(),
            _ => {}
        }
    }

    fn is_detail(&self) -> bool {
        self.opened.as_ref().is_some_and(|opened| opened.inspected.is_some())
    }

    fn walk(&mut self, walk: Walk) {
        self.arrange();
        match &mut self.opened {
            None => self.queues.walk(walk),
            Some(Opened { inspected: Some(inspected), .. }) => inspected.walk(walk),
            Some(opened) => opened.list.walk(walk),
        }
    }

    fn type_filter(&mut self, key: Key) {
        let (filter, stale) = match &mut self.opened {
            None => (&mut self.queues.filter, &mut self.queues.stale),
            Some(opened) => (&mut opened.list.filter, &mut opened.list.stale),
        };
        *stale = true;
        match key {
            Key::Char(letter) => filter.push(letter),
            Key::Backspace => _ = filter.pop(),
            Key::Escape => {
                filter.clear();
                self.typing = false;
            }
            _ => self.typing = false,
        }
    }

    fn turn(&mut self, forth: bool) {
        let several = 1 < self.clusters.len();
        match &mut self.opened {
            None => {
                // With one cluster, ordering by clusters would do nothing.
                let is_useful = |order: usize| several || queues::ORDERS[order].name != "CLUSTER";
                turn(&mut self.queues, queues::ORDERS.len(), forth, is_useful);
            }
            Some(opened) if opened.inspected.is_none() => {
                turn(&mut opened.list, workloads::ORDERS.len(), forth, |_| true);
            }
            Some(_) => {}
        }
    }

    fn turn_round(&mut self) {
        match &mut self.opened {
            None => {
                self.queues.reverse = !self.queues.reverse;
                self.queues.rewind();
            }
            Some(opened) => {
                opened.list.reverse = !opened.list.reverse;
                opened.list.rewind();
            }
        }
    }

    fn open(&mut self) {
        self.arrange();
        match &mut self.opened {
            None => self.opened = self.queues.chosen().cloned().map(Opened::new),
            Some(opened) if opened.inspected.is_none() => {
                opened.inspected = opened.list.chosen().cloned().map(Inspected::new);
            }
            Some(_) => {}
        }
    }

    /// One step: the filter first, where there is one.
    fn back(&mut self) {
        match &mut self.opened {
            None => {
                self.queues.stale |= !self.queues.filter.is_empty();
                self.queues.filter.clear();
            }
            Some(opened) if opened.inspected.is_some() => opened.inspected = None,
            Some(opened) if !opened.list.filter.is_empty() => {
                opened.list.filter.clear();
                opened.list.stale = true;
            }
            Some(_) => self.opened = None,
        }
    }

    /// Whether what is looked at is fresh, by cluster.
    pub(crate) fn links(&self) -> Vec<(&str, &Link)> {
        let Some(opened) = &self.opened else {
            return self
                .clusters
                .iter()
                .map(|cluster| (cluster.name.as_str(), &cluster.queues.link))
                .collect();
        };
        let links = match &opened.inspected {
            None => [&opened.workloads.link, &opened.local_queues.link],
            Some(inspected) => [&inspected.workload.link, &inspected.events.link],
        };
        links.map(|link| (self.clusters[opened.queue.0].name.as_str(), link)).into()
    }
}

impl Opened {
    fn new(queue: QueueKey) -> Self {
        let (local_queues, workloads) = (Table::new(cluster_queue), Table::new(Workload::read));
        Self { queue, local_queues, workloads, list: List::new(), widths: [0; 7], inspected: None }
    }

    fn take(&mut self, kind: &Kind, news: News, now: Timestamp) {
        self.list.stale = true;
        let inspected = self.inspected.as_mut();
        let of = |inspected: &Inspected, namespace: &str, name: &str| {
            (&*inspected.key.0, &*inspected.key.1) == (namespace, name)
        };
        match kind {
            Kind::ClusterQueues => {}
            Kind::LocalQueues => self.local_queues.take(news, now),
            Kind::Workloads => self.workloads.take(news, now),
            Kind::Workload { namespace, name } => {
                if let Some(inspected) = inspected.filter(|inspected| of(inspected, namespace, name)) {
                    inspected.workload.take(news, now);
                }
            }
            Kind::Events { namespace, name } => {
                if let Some(inspected) = inspected.filter(|inspected| of(inspected, namespace, name)) {
                    inspected.events.take(news, now);
                }
            }
        }
    }

    fn arrange(&mut self) {
        let (workloads, local_queues) = (&self.workloads.rows, &self.local_queues.rows);
        self.widths = workloads::arrange(&mut self.list, &self.queue.1.1, workloads, local_queues);
    }
}

impl Inspected {
    fn new(key: ObjectKey) -> Self {
        let (workload, events) = (Table::new(Detail::read), Table::new(Event::read));
        Self { key, workload, events, top: 0, beyond: 0, height: 1 }
    }

    fn walk(&mut self, walk: Walk) {
        self.top = match walk {
            Walk::Up => self.top.saturating_sub(1),
            Walk::Down => self.top + 1,
            Walk::PageUp => self.top.saturating_sub(self.height),
            Walk::PageDown => self.top + self.height,
            Walk::First => 0,
            Walk::Last => self.beyond,
        };
        self.top = self.top.min(self.beyond);
    }
}

fn turn<K: Clone + Eq>(list: &mut List<K>, orders: usize, forth: bool, is_useful: impl Fn(usize) -> bool) {
    let step = if forth { 1 } else { orders - 1 };
    list.order = (list.order + step) % orders;
    while !is_useful(list.order) {
        list.order = (list.order + step) % orders;
    }
    list.reverse = false;
    list.rewind();
}

/// Whether every word of the filter is in one of the texts, whatever its case.
pub(crate) fn matches<'a>(filter: &str, texts: impl IntoIterator<Item = &'a str>) -> bool {
    // Nearly always there is none, and there may be many texts.
    if filter.is_empty() {
        return true;
    }
    let texts: Vec<String> = texts.into_iter().map(str::to_lowercase).collect();
    filter.to_lowercase().split_whitespace().all(|word| texts.iter().any(|text| text.contains(word)))
}
