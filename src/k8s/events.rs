//! Kubernetes Events on claims and Workloads: what `kubectl describe` tells a person who asks what happened.
//!
//! kube's own recorder is not used: it repeats the first text of a reason for ten minutes, and ours
//! carry numbers.

use std::{collections::HashMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Resource, api::PostParams};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    client::{ClusterClient, call},
    types::{claim::ClusterResourceClaim, kueue::Workload},
};

/// What waits to be sent, while the hub is slow; more is dropped.
const QUEUE: usize = 256;
/// Between two events of one kind on one object.
const APART: Duration = Duration::from_mins(1);
/// The same words are not repeated for this long.
const SAME: Duration = Duration::from_mins(10);
const DEADLINE: Duration = Duration::from_secs(10);
/// The server refuses longer notes.
const MAX_NOTE: usize = 1000;
const CONTROLLER: &str = "fedq.dev/fedqd";
/// Where the API server wants the events of objects without a namespace.
const NAMESPACE: &str = "default";

/// Something that happened to a claim or a Workload.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Happening {
    ClaimCreated,
    CapacityChanged,
    QuotaApplied,
    Draining,
    OverCommitted,
    Lost,
    Returned,
    Conflict,
    NoClusterFits,
}

impl Happening {
    fn word(self) -> &'static str {
        match self {
            Self::ClaimCreated => "ClaimCreated",
            Self::CapacityChanged => "CapacityChanged",
            Self::QuotaApplied => "QuotaApplied",
            Self::Draining => "Draining",
            Self::OverCommitted => "OverCommitted",
            Self::Lost => "Lost",
            Self::Returned => "Returned",
            Self::Conflict => "Conflict",
            Self::NoClusterFits => "NoClusterFits",
        }
    }

    fn severity(self) -> &'static str {
        match self {
            Self::ClaimCreated
            | Self::CapacityChanged
            | Self::QuotaApplied
            | Self::Draining
            | Self::Returned => "Normal",
            Self::OverCommitted | Self::Lost | Self::Conflict | Self::NoClusterFits => "Warning",
        }
    }
}

#[derive(Clone, Debug)]
struct Telling {
    about: ObjectReference,
    happening: Happening,
    note: String,
    at: Timestamp,
}

impl Telling {
    fn namespace(&self) -> &str {
        self.about.namespace.as_deref().unwrap_or(NAMESPACE)
    }
}

/// Hands events over without waiting; clones feed the same sender.
#[derive(Clone)]
pub struct Events(mpsc::Sender<Telling>);

/// Sends them.
pub struct EventSender(mpsc::Receiver<Telling>);

/// Both ends.
pub fn event_channel() -> (Events, EventSender) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Events(sender), EventSender(receiver))
}

impl Events {
    /// Says that something happened to `claim`. Told twice within minutes, it is sent once.
    pub fn tell(&self, claim: &ClusterResourceClaim, happening: Happening, note: String, at: Timestamp) {
        self.send(Telling { about: claim.object_ref(&()), happening, note, at });
    }

    /// The same of a Workload.
    pub fn tell_of_workload(&self, workload: &Workload, happening: Happening, note: String, at: Timestamp) {
        let meta = &workload.metadata;
        let about = ObjectReference {
            api_version: Some("kueue.x-k8s.io/v1beta2".to_owned()),
            kind: Some("Workload".to_owned()),
            namespace: meta.namespace.clone(),
            name: Some(meta.name.clone()),
            uid: Some(meta.uid.clone()),
            resource_version: Some(meta.resource_version.clone()),
            field_path: None,
        };
        self.send(Telling { about, happening, note, at });
    }

    fn send(&self, telling: Telling) {
        if self.0.try_send(telling).is_err() {
            debug!("An event is dropped: the hub takes them too slowly");
        }
    }
}

impl EventSender {
    /// Runs until cancelled. Events are best effort: one that cannot be sent is logged and forgotten.
    pub async fn run(mut self, client: ClusterClient, cancel: CancellationToken) {
        let mut pace = Pace::default();
        loop {
            let due = pace.due().unwrap_or_else(|| Instant::now() + APART);
            let ready = tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep_until(due) => pace.late(Instant::now()),
                told = self.0.recv() => match told {
                    Some(telling) => pace.take(telling, Instant::now()).into_iter().collect(),
                    None => return,
                },
            };
            for telling in ready {
                let events = Api::<Event>::namespaced(client.kube(), telling.namespace());
                let (parameters, event) = (PostParams::default(), event(&telling));
                if let Err(error) = call(DEADLINE, events.create(&parameters, &event)).await {
                    debug!("An event could not be written: {error}");
                }
            }
        }
    }
}

type Key = (Option<String>, Happening);

/// At most one event of a kind on an object a minute, with the latest words.
#[derive(Default)]
struct Pace {
    sent: HashMap<Key, (Instant, String)>,
    waiting: HashMap<Key, Telling>,
}

impl Pace {
    /// The event, if it may go now.
    fn take(&mut self, telling: Telling, now: Instant) -> Option<Telling> {
        self.sent.retain(|_, (at, _)| now < *at + SAME);
        let key = (telling.about.uid.clone(), telling.happening);
        match self.sent.get(&key) {
            Some((_, note)) if *note == telling.note => {
                // What it was meanwhile is over.
                self.waiting.remove(&key);
                None
            }
            Some((at, _)) if now < *at + APART => {
                self.waiting.insert(key, telling);
                None
            }
            Some(_) | None => {
                self.sent.insert(key, (now, telling.note.clone()));
                Some(telling)
            }
        }
    }

    fn due(&self) -> Option<Instant> {
        self.waiting.keys().filter_map(|key| Some(self.sent.get(key)?.0 + APART)).min()
    }

    /// Those that waited long enough.
    fn late(&mut self, now: Instant) -> Vec<Telling> {
        let sent = &self.sent;
        let ready = self.waiting.extract_if(|key, _| sent.get(key).is_none_or(|(at, _)| *at + APART <= now));
        let ready: Vec<(Key, Telling)> = ready.collect();
        for (key, telling) in &ready {
            self.sent.insert(key.clone(), (now, telling.note.clone()));
        }
        ready.into_iter().map(|(_, telling)| telling).collect()
    }
}

fn event(telling: &Telling) -> Event {
    let name = telling.about.name.as_deref().unwrap_or("object");
    // Unique without randomness: one object has no two events of one kind in a nanosecond.
    let suffix = format!("{:x}.{}", telling.at.as_nanosecond(), telling.happening.word().to_lowercase());
    let room = 253 - suffix.len() - 1;
    let name: String = name.chars().take(room).collect();
    let mut note = telling.note.clone();
    note.truncate(note.floor_char_boundary(MAX_NOTE));
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{suffix}")),
            namespace: Some(telling.namespace().to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(telling.at)),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some("fedqd".to_owned()),
        action: Some(telling.happening.word().to_owned()),
        reason: Some(telling.happening.word().to_owned()),
        type_: Some(telling.happening.severity().to_owned()),
        regarding: Some(telling.about.clone()),
        note: Some(note),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn telling(happening: Happening, note: &str) -> Telling {
        let about = ObjectReference { name: Some("c".into()), uid: Some("u".into()), ..Default::default() };
        Telling { about, happening, note: note.to_owned(), at: Timestamp::UNIX_EPOCH }
    }

    fn notes(tellings: impl IntoIterator<Item = Telling>) -> Vec<String> {
        tellings.into_iter().map(|telling| telling.note).collect()
    }

    #[tokio::test]
    async fn events_of_a_kind_are_a_minute_apart_and_the_latest_wins() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let capacity = |note| telling(Happening::CapacityChanged, note);
        assert_eq!(notes(pace.take(capacity("8"), start)), ["8"]);
        assert_eq!(notes(pace.take(telling(Happening::Lost, "8"), after(1))), ["8"], "another kind");
        assert_eq!(notes(pace.take(capacity("7"), after(2))), [""; 0]);
        assert_eq!(notes(pace.take(capacity("6"), after(3))), [""; 0]);
        assert_eq!(pace.due(), Some(start + APART));
        assert_eq!(notes(pace.late(after(30))), [""; 0]);
        assert_eq!(notes(pace.late(after(60))), ["6"]);
        assert_eq!(pace.due(), None);
    }

    #[tokio::test]
    async fn the_same_words_are_sent_once_in_ten_minutes() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let take = |pace: &mut Pace, note, at| notes(pace.take(telling(Happening::Draining, note), at));
        assert_eq!(take(&mut pace, "2 wait", start), ["2 wait"]);
        assert_eq!(take(&mut pace, "2 wait", after(120)), [""; 0]);
        assert_eq!(take(&mut pace, "2 wait", after(601)), ["2 wait"]);
        // What came between and is over is not worth an event.
        assert_eq!(take(&mut pace, "3 wait", after(610)), [""; 0]);
        assert_eq!(take(&mut pace, "2 wait", after(620)), [""; 0]);
        assert_eq!(pace.due(), None);
    }

    #[test]
    fn an_event_is_what_the_server_takes() {
        let mut long = telling(Happening::OverCommitted, &"é".repeat(900));
        long.about.name = Some("c".repeat(253));
        let event = event(&long);
        assert!(event.metadata.name.unwrap().len() <= 253);
        assert_eq!(event.note.unwrap().len(), 1000);
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    }

    #[test]
    fn an_event_is_where_its_object_is() {
        let mut of_workload = telling(Happening::NoClusterFits, "too large");
        of_workload.about.namespace = Some("team".to_owned());
        let event = event(&of_workload);
        assert_eq!(event.metadata.namespace.as_deref(), Some("team"));
        assert_eq!(event.type_.as_deref(), Some("Warning"));
    }
}
