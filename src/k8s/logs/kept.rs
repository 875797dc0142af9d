//! What is kept of the logs of pods that will go, as JSON lines, and how it is read again.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io::SeekFrom,
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use tokio::{
    fs::File,
    io::{AsyncBufReadExt, AsyncSeekExt, BufReader, Lines},
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::{
    After, Event, Limits, Options, Origin, Pod, Pods, Position, Record, Since, Status,
    outlet::{Outlet, Tap, outlet},
    session::{self, Session},
};
use fedq_values::ids::ClusterName;

/// A container of a node.
type Lane = (u32, String);

/// One line of a file.
#[derive(Deserialize, Serialize)]
struct Entry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ts: Option<Timestamp>,
    cluster: ClusterName,
    node: u32,
    pod: String,
    container: String,
    #[serde(flatten)]
    what: What,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
enum What {
    Line {
        seq: u64,
        text: String,
        #[serde(default, skip_serializing_if = "is_zero")]
        cut: u64,
    },
    /// One that is no UTF-8.
    Bytes {
        seq: u64,
        bytes: ByteString,
        #[serde(default, skip_serializing_if = "is_zero")]
        cut: u64,
    },
    Restarted,
    Gap,
    NotKept {
        lines: u64,
        /// How many of them have the entry's time, where it has one: others may follow that have it, too.
        #[serde(default, skip_serializing_if = "is_zero")]
        at: u64,
    },
    Unread {
        error: String,
    },
}

impl What {
    /// Of what is said beside the lines; `None` of what is no news later.
    fn of(status: Status) -> Option<Self> {
        match status {
            Status::Restarted => Some(Self::Restarted),
            Status::Gap => Some(Self::Gap),
            Status::Unread { error } => Some(Self::Unread { error }),
            Status::NotKept { lines } | Status::Dropped { lines } => Some(Self::NotKept { lines, at: 0 }),
            Status::Ended | Status::Waiting { .. } | Status::Broken { .. } | Status::Reconnected => None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Entry {
    fn new(origin: &Origin, ts: Option<Timestamp>, what: What) -> Self {
        let Origin { cluster, node, pod, container } = origin.clone();
        Self { ts, cluster, node, pod, container, what }
    }

    fn line(record: Record) -> Self {
        let Record { origin, seq, ts, line, cut, position: _ } = record;
        let what = match String::from_utf8(line) {
            Ok(text) => What::Line { seq, text, cut },
            Err(error) => What::Bytes { seq, bytes: ByteString(error.into_bytes()), cut },
        };
        Self::new(&origin, ts, what)
    }

    fn of(event: Event) -> Option<Self> {
        match event {
            Event::Line(record) => Some(Self::line(record)),
            Event::Status(origin, status) => Some(Self::new(&origin, None, What::of(status)?)),
        }
    }

    fn text(&self) -> String {
        let mut text = serde_json::to_string(self).expect("text and numbers are JSON");
        text.push('\n');
        text
    }

    fn lane(&self) -> Lane {
        (self.node, self.container.clone())
    }

    fn is_line(&self) -> bool {
        matches!(self.what, What::Line { .. } | What::Bytes { .. })
    }
}

/// What the containers have written until now, for [`replay`]. Beyond `largest` bytes the earliest lines of those that
/// wrote most are left out; what could not be read `within` the time, too.
pub async fn gather(pods: Vec<Pod>, largest: usize, within: Duration) -> Vec<u8> {
    let mut heap = Heap::new(&pods, largest);
    let until = Instant::now() + within;
    let (_pods, all) = watch::channel(Pods { pods, complete: true });
    let mut session = session::open(Options::default(), all);
    loop {
        match timeout_at(until, session.next()).await {
            Ok(Some(event)) => heap.add(event),
            Ok(None) => break,
            Err(_) => {
                heap.cut_off();
                break;
            }
        }
    }
    heap.text()
}

/// What the containers of a run write, piece by piece, for [`replay`].
pub struct Following(Session);

/// So much is given at a time at most, or what came within this time.
const PIECE: usize = 64 << 10;
const SOON: Duration = Duration::from_secs(2);

impl Following {
    /// Until the pods are complete and all that they write is read. `after`: what is kept already, as [`places`] has it.
    pub fn open(pods: watch::Receiver<Pods>, after: BTreeMap<(u32, String), After>) -> Self {
        Self::with(true, pods, after)
    }

    /// Only what is there now.
    pub fn rest(pods: Vec<Pod>, after: BTreeMap<(u32, String), After>) -> Self {
        let (_pods, all) = watch::channel(Pods { pods, complete: true });
        Self::with(false, all, after)
    }

    fn with(follow: bool, pods: watch::Receiver<Pods>, after: BTreeMap<(u32, String), After>) -> Self {
        // Many runs are followed at a time.
        let limits = Limits { waiting: PIECE, ..Limits::default() };
        Self(session::open(Options { follow, after, limits, ..Options::default() }, pods))
    }

    /// About `most` bytes, if there are so many; `None` at the end. What was not given when this is dropped is lost.
    pub async fn next(&mut self, most: usize) -> Option<Vec<u8>> {
        let mut text = String::new();
        let mut until = None;
        while text.len() < most.min(PIECE) {
            let event = match until {
                None => self.0.next().await,
                Some(until) => match timeout_at(until, self.0.next()).await {
                    Ok(event) => event,
                    Err(_) => break,
                },
            };
            let Some(event) = event else { break };
            if let Some(entry) = Entry::of(event) {
                text.push_str(&entry.text());
                until = until.or_else(|| Some(Instant::now() + SOON));
            }
        }
        (!text.is_empty()).then(|| text.into_bytes())
    }
}

/// Behind which line of each container a file ends.
pub async fn places(file: &mut File) -> BTreeMap<(u32, String), After> {
    let options = Options::default();
    let mut filter = Filter::new(&options, Timestamp::MIN);
    let mut places = BTreeMap::new();
    let mut entries = Entries::of(file).await;
    while let Some(entry) = entries.next().await {
        if let Some(Place(Some(position))) = filter.takes(&entry) {
            places.insert(entry.lane(), After { pod: entry.pod, position });
        }
    }
    places
}

/// The end of a file that became too large: its first lines go, and how many of each container is said in their place. What a
/// crash left of a last line goes, too.
pub fn trimmed(text: &[u8], largest: usize) -> Vec<u8> {
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let text = &text[..whole];
    if text.len() <= largest {
        return text.to_vec();
    }
    let (mut dropped, mut begin) = (BTreeMap::<(Lane, String), Dropped>::new(), 0);
    // Half of it, so that it is not done at each line.
    while text.len() - begin > largest / 2 {
        let Some(end) = text[begin..].iter().position(|byte| *byte == b'\n') else { break };
        if let Ok(entry) = serde_json::from_slice::<Entry>(&text[begin..begin + end]) {
            dropped.entry((entry.lane(), entry.pod.clone())).or_default().add(entry);
        }
        begin += end + 1;
    }
    let said: String = dropped.into_values().filter_map(Dropped::said).collect();
    [said.as_bytes(), &text[begin..]].concat()
}

/// What is not kept of one container of a pod.
#[derive(Default)]
struct Dropped {
    last: Option<Entry>,
    lines: u64,
    /// Of the last time.
    at: u64,
}

impl Dropped {
    fn add(&mut self, entry: Entry) {
        let (lines, at) = match entry.what {
            What::Line { .. } | What::Bytes { .. } => (1, 1),
            What::NotKept { lines, at } => (lines, at),
            What::Restarted | What::Gap | What::Unread { .. } => return,
        };
        self.lines += lines;
        let last = self.last.as_ref().and_then(|last| last.ts);
        match entry.ts {
            Some(ts) if last == Some(ts) => self.at += at,
            Some(_) => (self.at, self.last) = (at, Some(entry)),
            // It goes with the lines before it.
            None => self.last = self.last.take().or(Some(entry)),
        }
    }

    fn said(self) -> Option<String> {
        let what = What::NotKept { lines: self.lines, at: self.at };
        self.last.map(|last| Entry { what, ..last }.text())
    }
}

struct Heap {
    largest: usize,
    bytes: usize,
    lanes: BTreeMap<Lane, Pile>,
}

/// What is kept of one container.
struct Pile {
    origin: Arc<Origin>,
    entries: VecDeque<(Option<Timestamp>, String)>,
    bytes: usize,
    left_out: u64,
    over: bool,
}

/// So many lines are left out at a time.
const AT_ONCE: usize = 64;

impl Heap {
    fn new(pods: &[Pod], largest: usize) -> Self {
        let mut lanes = BTreeMap::new();
        for pod in pods {
            for container in &pod.containers {
                let origin = Origin {
                    cluster: pod.cluster.clone(),
                    node: pod.node,
                    pod: pod.name.clone(),
                    container: container.name.clone(),
                };
                lanes.insert((pod.node, container.name.clone()), Pile::new(Arc::new(origin)));
            }
        }
        Self { largest, bytes: 0, lanes }
    }

    fn add(&mut self, event: Event) {
        match event {
            Event::Line(record) => {
                let (origin, ts) = (Arc::clone(&record.origin), record.ts);
                self.push(&origin, ts, Entry::line(record).text());
            }
            Event::Status(origin, status) => {
                self.pile(&origin).over |= matches!(status, Status::Ended | Status::Waiting { .. });
                let Some(what) = What::of(status) else { return };
                let pile = self.pile(&origin);
                pile.over |= matches!(what, What::Unread { .. });
                self.push(&origin, None, Entry::new(&origin, None, what).text());
            }
        }
    }

    fn pile(&mut self, origin: &Arc<Origin>) -> &mut Pile {
        let lane = (origin.node, origin.container.clone());
        self.lanes.entry(lane).or_insert_with(|| Pile::new(Arc::clone(origin)))
    }

    fn push(&mut self, origin: &Arc<Origin>, ts: Option<Timestamp>, text: String) {
        self.bytes += text.len();
        let pile = self.pile(origin);
        pile.bytes += text.len();
        pile.entries.push_back((ts, text));
        if self.bytes <= self.largest {
            return;
        }
        // An eighth more, so that the largest is not looked for at each line.
        let target = self.largest - self.largest / 8;
        while target < self.bytes {
            let Some(pile) = self.lanes.values_mut().max_by_key(|pile| pile.bytes) else { return };
            let freed = pile.leave_out();
            self.bytes -= freed;
            if freed == 0 {
                return;
            }
        }
    }

    /// The time is over: says so of those that were not read to their end.
    fn cut_off(&mut self) {
        let error = "it was not read to its end in time".to_owned();
        for pile in self.lanes.values_mut().filter(|pile| !pile.over) {
            let what = What::Unread { error: error.clone() };
            pile.entries.push_back((None, Entry::new(&pile.origin, None, what).text()));
        }
    }

    /// In the order of time, as far as each container's own order allows.
    fn text(self) -> Vec<u8> {
        let mut all = Vec::new();
        for pile in self.lanes.into_values() {
            let mut newest = None;
            if 0 < pile.left_out {
                let what = What::NotKept { lines: pile.left_out, at: 0 };
                all.push((None, Entry::new(&pile.origin, None, what).text()));
            }
            for (ts, text) in pile.entries {
                newest = newest.max(ts);
                all.push((newest, text));
            }
        }
        all.sort_by_key(|(ts, _)| *ts);
        all.into_iter().flat_map(|(_, text)| text.into_bytes()).collect()
    }
}

impl Pile {
    fn new(origin: Arc<Origin>) -> Self {
        Self { origin, entries: VecDeque::new(), bytes: 0, left_out: 0, over: false }
    }

    fn leave_out(&mut self) -> usize {
        let count = AT_ONCE.min(self.entries.len().div_ceil(2));
        let freed = self.entries.drain(..count).map(|(_, text)| text.len()).sum();
        self.left_out += u64::try_from(count).unwrap_or_default();
        self.bytes -= freed;
        freed
    }
}

/// A session over what was kept of a task's runs, one file after the other. `held` is let go of when all of it was read.
pub fn replay(
    options: Options,
    now: Timestamp,
    files: Vec<File>,
    held: impl Send + Sync + 'static,
) -> Session {
    let (outlet, intake) = outlet(options.limits.waiting, None);
    let mut task = JoinSet::new();
    task.spawn(async move {
        let _held = held;
        let options = Arc::new(options);
        Replay { options, now, outlet, taps: BTreeMap::new() }.run(files).await;
    });
    Session::of(intake, task)
}

struct Replay {
    options: Arc<Options>,
    now: Timestamp,
    outlet: Outlet,
    taps: BTreeMap<Lane, Tap>,
}

impl Replay {
    async fn run(mut self, mut files: Vec<File>) {
        let options = Arc::clone(&self.options);
        let mut skipped = match options.tail {
            Some(tail) => self.before_the_last(tail, &mut files).await,
            None => BTreeMap::new(),
        };
        let mut filter = Filter::new(&options, self.now);
        for file in &mut files {
            let mut entries = Entries::of(file).await;
            while let Some(entry) = entries.next().await {
                let Some(Place(position)) = filter.takes(&entry) else { continue };
                match skipped.get_mut(&entry.lane()).filter(|lines| 0 < **lines) {
                    Some(lines) => *lines -= u64::from(entry.is_line()),
                    None => self.give(entry, position).await,
                }
            }
            if entries.damaged {
                let error = "the rest of what was kept of it is damaged".to_owned();
                self.taps.values_mut().for_each(|tap| tap.last(Status::Unread { error: error.clone() }));
            }
        }
        self.taps.values_mut().for_each(|tap| tap.last(Status::Ended));
    }

    /// How many lines of each container come before its last ones.
    async fn before_the_last(&self, tail: u64, files: &mut [File]) -> BTreeMap<Lane, u64> {
        let mut lines = BTreeMap::<Lane, u64>::new();
        let mut filter = Filter::new(&self.options, self.now);
        for file in files {
            let mut entries = Entries::of(file).await;
            while let Some(entry) = entries.next().await {
                if filter.takes(&entry).is_some() && entry.is_line() && !filter.resumes(&entry) {
                    *lines.entry(entry.lane()).or_default() += 1;
                }
            }
        }
        for lines in lines.values_mut() {
            *lines = lines.saturating_sub(tail);
        }
        lines
    }

    async fn give(&mut self, entry: Entry, position: Option<Position>) {
        let place = entry.lane();
        let Entry { ts, cluster, node, pod, container, what } = entry;
        let origin = Arc::new(Origin { cluster, node, pod, container });
        let out = self.taps.entry(place).or_insert_with(|| self.outlet.tap(Arc::clone(&origin)));
        if out.origin != origin {
            out.origin = origin;
        }
        let (seq, line, cut) = match what {
            What::Line { seq, text, cut } => (seq, text.into_bytes(), cut),
            What::Bytes { seq, bytes: ByteString(bytes), cut } => (seq, bytes, cut),
            What::Restarted => return out.last(Status::Restarted),
            What::Gap => return out.last(Status::Gap),
            What::NotKept { lines, .. } => return out.last(Status::NotKept { lines }),
            What::Unread { error } => return out.last(Status::Unread { error }),
        };
        let origin = Arc::clone(&out.origin);
        out.line(Record { origin, seq, ts, line, cut, position }).await;
    }
}

/// The lines of a file, from its start.
struct Entries<'a> {
    lines: Lines<BufReader<&'a mut File>>,
    damaged: bool,
}

impl<'a> Entries<'a> {
    async fn of(file: &'a mut File) -> Self {
        let damaged = file.seek(SeekFrom::Start(0)).await.is_err();
        Self { lines: BufReader::new(file).lines(), damaged }
    }

    async fn next(&mut self) -> Option<Entry> {
        if self.damaged {
            return None;
        }
        let entry = match self.lines.next_line().await {
            Ok(line) => line.map(|line| serde_json::from_str(&line)).transpose().ok(),
            Err(_) => None,
        };
        self.damaged = entry.is_none();
        entry.flatten()
    }
}

/// Which lines somebody wants to see, but for the tail.
struct Filter<'a> {
    node: Option<u32>,
    after: &'a BTreeMap<Lane, After>,
    since: Option<Timestamp>,
    at: BTreeMap<Lane, Position>,
    /// Of those in `after`, whose pod has come: what follows of others is of pods that came in its place.
    came: BTreeSet<Lane>,
}

/// Where the next session would go on; what is no line has no place of its own and goes with the lines before it.
struct Place(Option<Position>);

impl<'a> Filter<'a> {
    fn new(options: &'a Options, now: Timestamp) -> Self {
        let since = options.since.map(|since| match since {
            Since::Time(time) => time,
            Since::Ago(ago) => {
                let ago = SignedDuration::try_from(ago).unwrap_or(SignedDuration::MAX);
                now.saturating_sub(ago).unwrap_or(Timestamp::MIN)
            }
        });
        Self { node: options.node, after: &options.after, since, at: BTreeMap::new(), came: BTreeSet::new() }
    }

    /// Whether an earlier session of this container is gone on with.
    fn resumes(&self, entry: &Entry) -> bool {
        self.after.contains_key(&entry.lane())
    }

    /// Where the entry is, if it is wanted.
    fn takes(&mut self, entry: &Entry) -> Option<Place> {
        if self.node.is_some_and(|node| node != entry.node) {
            return None;
        }
        let lane = entry.lane();
        let is_line = entry.is_line();
        let now = self.at.get(&lane).copied();
        let lines = match entry.what {
            What::Line { .. } | What::Bytes { .. } => 1,
            What::NotKept { at, .. } => u32::try_from(at).unwrap_or(u32::MAX),
            What::Restarted | What::Gap | What::Unread { .. } => 0,
        };
        let at = match (entry.ts.filter(|_| 0 < lines), now) {
            (Some(ts), Some(at)) if at.ts == ts => {
                Some(Position { ts, lines: at.lines.saturating_add(lines) })
            }
            (Some(ts), _) => Some(Position { ts, lines }),
            (None, now) => now,
        };
        if let Some(at) = at {
            self.at.insert(lane.clone(), at);
        }
        let wanted = match self.after.get(&lane) {
            Some(after) if after.pod == entry.pod => {
                self.came.insert(lane);
                at.is_some_and(|at| after.position.is_before(at))
            }
            Some(after) => self.came.contains(&lane) || at.is_some_and(|at| after.position.is_before(at)),
            None => self.since.is_none_or(|since| at.is_some_and(|at| since <= at.ts)),
        };
        wanted.then_some(Place(at.filter(|_| is_line)))
    }
}

#[cfg(test)]
mod tests;
