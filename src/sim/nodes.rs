//! Nodes: a plain one for demo and tests ([`node`]), and herds of thousands that cost 24 bytes each.
//!
//! A [`Herd`] keeps of every node only what tells it from its neighbours ([`State`]); bodies are
//! rendered from a [`Template`] when somebody asks.

mod beats;
mod builder;
mod list;
mod look;
mod render;
mod served;
mod template;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

pub use beats::Beats;
pub use builder::{NodeBuilder, node};
pub use list::{List, Nodes};
pub use look::Gpus;
use look::{CORDONED, GIVEN_UP, GONE, Look, NOT_READY, TAINTED};
use render::{Body, Fill};
pub use served::{ServedHerd, Told};
pub use template::Template;

use super::protobuf::{self, ProtoKind};

/// What an object is sent as.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Encoding {
    Json,
    Protobuf,
}

/// What tells a node from the others of its herd. Times are seconds since 1970.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct State {
    version: u64,
    /// The last heartbeat.
    beat: u32,
    /// When Ready, the cordon or the taint last changed.
    changed: u32,
    born: u32,
    look: Look,
}

/// What happens to a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    Heartbeat,
    Ready(bool),
    Cordon(bool),
    /// A NoSchedule taint that no flavor tolerates.
    Taint(bool),
    /// What the device plugin offers.
    Gpus(Gpus),
    Delete,
    /// Back under its old name, as a new object.
    Restore,
}

/// The event of a watch that a change makes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    Added,
    Modified,
    Deleted,
}

impl Event {
    pub fn text(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// All nodes of one cluster, alike but for their [`State`]. A node is known by its index, which its name
/// ends in, so that indexes are in the order of names.
#[derive(Clone, Debug)]
pub struct Herd {
    template: Arc<Template>,
    cluster: u16,
    states: Vec<State>,
}

impl Herd {
    /// Nodes that all became ready at `now`, in version `version`. `cluster` is in every name, address
    /// and UID.
    pub fn new(template: Arc<Template>, cluster: u16, nodes: usize, version: u64, now: Timestamp) -> Self {
        let second = second(now);
        let look = Look::default();
        let state = State { version, beat: second, changed: second, born: second, look };
        Self { template, cluster: cluster % 10_000, states: vec![state; nodes.min(MAX_NODES)] }
    }

    /// Nodes that exist or did.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    pub fn name(&self, i: usize) -> String {
        name(self.cluster, i)
    }

    /// The node of that name, if it exists now.
    pub fn find(&self, name: &str) -> Option<usize> {
        let i = name.strip_prefix(&format!("gke-{:04}-a3-", self.cluster))?.parse().ok()?;
        (self.name_is(i, name) && self.exists(i)).then_some(i)
    }

    fn name_is(&self, i: usize, name: &str) -> bool {
        self.name(i) == name
    }

    pub fn exists(&self, i: usize) -> bool {
        self.states.get(i).is_some_and(|state| !state.look.has(GONE))
    }

    /// Nodes that exist.
    pub fn existing(&self) -> usize {
        self.states.iter().filter(|state| !state.look.has(GONE)).count()
    }

    /// GPUs that work may be sent to: of nodes that exist, are ready and take any.
    pub fn usable_gpus(&self) -> u64 {
        let usable = |look: &Look| ![GONE, NOT_READY, CORDONED, TAINTED].iter().any(|flag| look.has(*flag));
        let looks = self.states.iter().map(|state| state.look);
        looks.filter(usable).map(|look| u64::from(look.gpus.count())).sum()
    }

    pub fn version(&self, i: usize) -> Option<u64> {
        self.states.get(i).map(|state| state.version)
    }

    /// Makes `change` happen as version `version`. None when nothing changes: then nothing was written,
    /// and the version is not used up.
    pub fn apply(&mut self, i: usize, change: Change, version: u64, now: Timestamp) -> Option<Event> {
        let (look, event) = self.outcome(i, change)?;
        let state = self.states.get_mut(i)?;
        let second = second(now);
        *state = State { version, look, ..*state };
        match change {
            Change::Restore => (state.beat, state.changed, state.born) = (second, second, second),
            Change::Heartbeat | Change::Gpus(_) => state.beat = second,
            Change::Ready(_) => (state.beat, state.changed) = (second, second),
            Change::Cordon(_) | Change::Taint(_) => state.changed = second,
            Change::Delete => {}
        }
        Some(event)
    }

    /// Whether [`Self::apply`] would change something.
    pub fn would_apply(&self, i: usize, change: Change) -> bool {
        self.outcome(i, change).is_some()
    }

    fn outcome(&self, i: usize, change: Change) -> Option<(Look, Event)> {
        let state = self.states.get(i).filter(|state| !state.look.has(GIVEN_UP))?;
        let (look, event) = match change {
            Change::Restore => (Look::default(), Event::Added),
            Change::Delete => (state.look.with(GONE, true), Event::Deleted),
            Change::Heartbeat => (state.look, Event::Modified),
            Change::Ready(ready) => (state.look.with(NOT_READY, !ready), Event::Modified),
            Change::Cordon(on) => (state.look.with(CORDONED, on), Event::Modified),
            Change::Taint(on) => (state.look.with(TAINTED, on), Event::Modified),
            Change::Gpus(gpus) => (state.look.with_gpus(gpus), Event::Modified),
        };
        let gone = state.look.has(GONE);
        let changes = change == Change::Heartbeat || look != state.look;
        (changes && gone == (change == Change::Restore)).then_some((look, event))
    }

    /// The whole object in JSON, as version `version`.
    pub fn body_json(&self, i: usize, version: u64) -> Vec<u8> {
        self.template.json((self.cluster, i, &State { version, ..self.states[i] }))
    }

    /// The whole object in its protobuf envelope.
    pub fn body_protobuf(&self, i: usize, version: u64) -> Vec<u8> {
        self.template.enveloped((self.cluster, i, &State { version, ..self.states[i] }))
    }

    /// An event of a watch: a line of JSON, or a frame of protobuf.
    pub fn event(&self, encoding: Encoding, i: usize, event: Event, version: u64) -> Vec<u8> {
        self.event_of(encoding, i, &State { version, ..self.states[i] }, event)
    }

    /// Of a node as it was then.
    fn event_of(&self, encoding: Encoding, i: usize, state: &State, event: Event) -> Vec<u8> {
        self.template.event(encoding, (self.cluster, i, state), event)
    }

    /// The object as the simulated server handles others, for what is asked rarely.
    pub fn value(&self, i: usize) -> Option<Value> {
        let state = self.states.get(i).filter(|_| self.exists(i))?;
        Some(self.template.value((self.cluster, i, state)))
    }

    /// All that exist now.
    pub fn nodes(&self) -> Nodes {
        Nodes::new(self, &self.states, Vec::new())
    }

    /// Gives the node up to whoever keeps it as an object from now on: here it is gone for good.
    fn give_up(&mut self, i: usize) -> Option<Value> {
        let value = self.value(i)?;
        let state = self.states.get_mut(i)?;
        state.look = state.look.with(GONE | GIVEN_UP, true);
        Some(value)
    }
}

/// Of node `i` of that cluster.
fn name(cluster: u16, i: usize) -> String {
    format!("gke-{cluster:04}-a3-{i:06}")
}

/// A node as somebody wants it rendered: of which cluster, which one, in which state.
type Wanted<'a> = (u16, usize, &'a State);

impl Template {
    fn rendered(&self, encoding: Encoding, (cluster, i, state): Wanted<'_>) -> (&Body, Fill) {
        (self.body(encoding, state.look), Fill::new(cluster, i, state.version, state))
    }

    fn json(&self, node: Wanted<'_>) -> Vec<u8> {
        let (body, fill) = self.rendered(Encoding::Json, node);
        let mut bytes = JSON_HEAD.to_vec();
        body.write(&fill, &mut bytes);
        // The body's own brace.
        bytes.remove(JSON_HEAD.len());
        bytes
    }

    fn enveloped(&self, node: Wanted<'_>) -> Vec<u8> {
        let (body, fill) = self.rendered(Encoding::Protobuf, node);
        let mut bytes = protobuf::start(ProtoKind::Node, body.length(fill.digits()));
        body.write(&fill, &mut bytes);
        bytes.extend_from_slice(protobuf::ENVELOPE_TAIL);
        bytes
    }

    fn value(&self, node: Wanted<'_>) -> Value {
        serde_json::from_slice(&self.json(node)).expect("bodies are rendered as JSON")
    }

    fn event(&self, encoding: Encoding, node: Wanted<'_>, event: Event) -> Vec<u8> {
        match encoding {
            Encoding::Protobuf => protobuf::watch_frame(event.text(), &self.enveloped(node)),
            Encoding::Json => {
                let head = format!("{{\"type\":\"{}\",\"object\":", event.text());
                [head.as_bytes(), &self.json(node), b"}\n"].concat()
            }
        }
    }
}

/// What happens, to which node, and when after the beginning.
pub type Step = (Duration, usize, Change);

/// Each of `nodes` is cordoned, replaced and comes back, one every `pace`, away for `away` in all.
pub fn rolling_drain(nodes: std::ops::Range<usize>, pace: Duration, away: Duration) -> Vec<Step> {
    let starts = nodes.zip((0_u32..).map(|turn| pace * turn));
    let mut steps: Vec<Step> = starts
        .flat_map(|(i, start)| {
            let [cordon, delete, restore] = [Change::Cordon(true), Change::Delete, Change::Restore];
            [(start, i, cordon), (start + away / 2, i, delete), (start + away, i, restore)]
        })
        .collect();
    steps.sort_by_key(|(at, i, _)| (*at, *i));
    steps
}

/// As many as six digits name.
const MAX_NODES: usize = 1_000_000;
const JSON_HEAD: &[u8] = br#"{"kind":"Node","apiVersion":"v1","#;

fn second(now: Timestamp) -> u32 {
    u32::try_from(now.as_second()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
