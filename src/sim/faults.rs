//! What a simulated cluster does wrong, on request: a description in words, and for each connection,
//! request and event what becomes of it. The same seed and the same numbers give the same faults.

mod control;
mod parse;

use std::time::Duration;

use super::draw::mix;
pub use control::Faults;
pub(super) use control::{Freezable, Lifetime, Spoiler};
pub use parse::FaultError;

/// One way to be wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Every answer comes later, by up to twice this.
    Latency(Duration),
    /// Requests are taken and never answered.
    Hang,
    /// Connections that are open fall silent without being closed; new ones are served.
    HalfOpen,
    /// A watch ends after so many events, as if the server went away.
    DropWatchAfter(usize),
    /// A watch begins and never says anything, not even a bookmark.
    SilentWatch,
    DuplicateEvents(Share),
    /// An event comes after the one that follows it.
    ReorderEvents(Share),
    LoseEvents(Share),
    /// A list expires after its first page.
    GoneMidPage,
    TooManyRequests {
        retry_after: Duration,
        share: Share,
    },
    ServerErrors(Share),
    /// 403, as if a right had been taken away.
    Forbidden,
    /// An answer that goes on for ever.
    EndlessBody,
    /// An answer that comes a byte now and then, for ever; of a watch, its first event.
    Trickle,
    /// Bytes that mean nothing, as if they were an answer.
    Garbage,
    Redirect(String),
    /// What was asked is done, and the answer gets lost.
    LoseAnswers(Share),
    /// The data of an older backup: versions go back. To be done once, to the store.
    RestoredEtcd,
    /// Another cluster at the same address: its kube-system is not the one it was. To be done once.
    NewIdentity,
    /// The certificate of somebody else.
    WrongCertificate,
    /// Connections break, and new ones are refused.
    RefuseConnections,
    /// The connection of a request takes no more of them, as with kube-apiserver's `--goaway-chance`: what is open
    /// on it goes on.
    GoAway(Share),
}

/// From 0, none, to 1, all.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Share(f64);

impl Share {
    pub const ALL: Self = Self(1.0);

    pub fn percent(percent: f64) -> Option<Self> {
        (0.0..=100.0).contains(&percent).then(|| Self(percent / 100.0))
    }

    fn takes(self, draw: u64) -> bool {
        unit(draw) < self.0
    }
}

/// A fault, and which requests it meets: all, when nothing is said.
#[derive(Clone, Debug, PartialEq)]
struct Rule {
    /// As Kubernetes names it: get, list, watch, create, update, patch, delete.
    verb: Option<String>,
    /// The plural: nodes, clusterqueues.
    kind: Option<String>,
    fault: Fault,
}

/// All that is wrong with one cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    rules: Vec<Rule>,
    seed: u64,
}

/// What becomes of a new connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Connection {
    Serve,
    /// Greet with a certificate that no client of this cluster trusts.
    WrongCertificate,
    Refuse,
}

/// What becomes of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Before anything else.
    pub wait: Duration,
    /// The connection takes no more requests.
    pub go_away: bool,
    pub answer: Answer,
    /// Of a watch that is answered.
    pub stream: Stream,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Answer {
    #[default]
    Honest,
    Never,
    /// 429 with `Retry-After`.
    TooManyRequests(Duration),
    /// 500, 502, 503 or 504.
    ServerError(u16),
    /// 403.
    Forbidden,
    /// 410 on every page but the first.
    GoneMidPage,
    /// Done, and never answered.
    Lost,
    /// 200, and bytes without end.
    Endless,
    /// 200, and a byte now and then.
    Trickle,
    /// 200, and bytes drawn from this.
    Garbage(u64),
    /// 307 to there.
    Redirect(String),
}

/// What becomes of the events of one watch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    pub drop_after: Option<usize>,
    pub silent: bool,
    lose: Option<Share>,
    duplicate: Option<Share>,
    reorder: Option<Share>,
    seed: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Delivery {
    Once,
    Twice,
    /// Only after the event that follows.
    Late,
    Never,
}

impl Plan {
    /// Adds a fault for all requests.
    pub fn with(self, fault: Fault) -> Self {
        self.only(None, None, fault)
    }

    /// Adds a fault for requests of that verb and of that kind (its plural), where they are given.
    pub fn only(mut self, verb: Option<&str>, kind: Option<&str>, fault: Fault) -> Self {
        self.rules.push(Rule { verb: verb.map(str::to_owned), kind: kind.map(str::to_owned), fault });
        self
    }

    /// Draws otherwise.
    pub fn seeded(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether connections that are open when this plan begins fall silent.
    pub fn freezes_open_connections(&self) -> bool {
        self.rules.iter().any(|rule| rule.fault == Fault::HalfOpen)
    }

    /// Whether connections that are open when this plan begins end: what is wrong with the server showed
    /// only on new ones otherwise.
    pub fn breaks_open_connections(&self) -> bool {
        let anew =
            [Fault::WrongCertificate, Fault::RefuseConnections, Fault::RestoredEtcd, Fault::NewIdentity];
        self.rules.iter().any(|rule| anew.contains(&rule.fault))
    }

    /// Whether the store goes back to a backup when this plan begins.
    pub fn restores_a_backup(&self) -> bool {
        self.rules.iter().any(|rule| rule.fault == Fault::RestoredEtcd)
    }

    /// Whether the cluster becomes another one when this plan begins.
    pub fn changes_identity(&self) -> bool {
        self.rules.iter().any(|rule| rule.fault == Fault::NewIdentity)
    }

    pub fn on_connection(&self) -> Connection {
        let has = |fault: &Fault| self.rules.iter().any(|rule| rule.fault == *fault);
        if has(&Fault::RefuseConnections) {
            Connection::Refuse
        } else if has(&Fault::WrongCertificate) {
            Connection::WrongCertificate
        } else {
            Connection::Serve
        }
    }

    /// `number` counts the requests of this cluster. The first rule that spoils the answer decides it.
    pub fn on_request(&self, verb: &str, kind: &str, number: u64) -> Decision {
        let stream = Stream { seed: draw(self.seed, number, u64::MAX), ..Stream::default() };
        let mut decision = Decision { stream, ..Decision::default() };
        for (place, rule) in (0..).zip(&self.rules).filter(|(_, rule)| rule.meets(verb, kind)) {
            let draw = draw(self.seed, number, place);
            match &rule.fault {
                Fault::Latency(mean) => decision.wait += mean.mul_f64(unit(draw) * 2.0),
                Fault::GoAway(share) => decision.go_away |= share.takes(draw),
                fault if decision.answer == Answer::Honest => {
                    decision.answer = fault.answer(verb, draw).unwrap_or_default();
                }
                _ => {}
            }
            if verb == "watch" {
                decision.stream.add(&rule.fault);
            }
        }
        decision
    }
}

impl Rule {
    fn meets(&self, verb: &str, kind: &str) -> bool {
        self.verb.as_ref().is_none_or(|wanted| wanted == verb)
            && self.kind.as_ref().is_none_or(|wanted| wanted == kind)
    }
}

impl Fault {
    /// What it makes of the answer, if anything.
    fn answer(&self, verb: &str, draw: u64) -> Option<Answer> {
        const CODES: [u16; 4] = [500, 502, 503, 504];
        match self {
            Self::Hang => Some(Answer::Never),
            Self::GoneMidPage => (verb == "list").then_some(Answer::GoneMidPage),
            Self::TooManyRequests { retry_after, share } => {
                share.takes(draw).then_some(Answer::TooManyRequests(*retry_after))
            }
            Self::ServerErrors(share) => {
                let code = CODES[usize::from(draw.to_le_bytes()[7]) % CODES.len()];
                share.takes(draw).then_some(Answer::ServerError(code))
            }
            Self::Forbidden => Some(Answer::Forbidden),
            Self::LoseAnswers(share) => share.takes(draw).then_some(Answer::Lost),
            Self::EndlessBody => Some(Answer::Endless),
            Self::Trickle => Some(Answer::Trickle),
            Self::Garbage => Some(Answer::Garbage(draw)),
            Self::Redirect(to) => Some(Answer::Redirect(to.clone())),
            Self::Latency(_)
            | Self::HalfOpen
            | Self::DropWatchAfter(_)
            | Self::SilentWatch
            | Self::DuplicateEvents(_)
            | Self::ReorderEvents(_)
            | Self::LoseEvents(_)
            | Self::RestoredEtcd
            | Self::NewIdentity
            | Self::WrongCertificate
            | Self::RefuseConnections
            | Self::GoAway(_) => None,
        }
    }
}

impl Stream {
    fn add(&mut self, fault: &Fault) {
        match fault {
            Fault::DropWatchAfter(events) => self.drop_after = Some(*events),
            Fault::SilentWatch => self.silent = true,
            Fault::LoseEvents(share) => self.lose = Some(*share),
            Fault::DuplicateEvents(share) => self.duplicate = Some(*share),
            Fault::ReorderEvents(share) => self.reorder = Some(*share),
            Fault::Latency(_)
            | Fault::Hang
            | Fault::HalfOpen
            | Fault::GoneMidPage
            | Fault::TooManyRequests { .. }
            | Fault::ServerErrors(_)
            | Fault::Forbidden
            | Fault::EndlessBody
            | Fault::Trickle
            | Fault::Garbage
            | Fault::Redirect(_)
            | Fault::LoseAnswers(_)
            | Fault::RestoredEtcd
            | Fault::NewIdentity
            | Fault::WrongCertificate
            | Fault::RefuseConnections
            | Fault::GoAway(_) => {}
        }
    }

    /// `number` counts the events of this watch, bookmarks apart: those are never lost, or a client
    /// would rightly believe that it knows everything up to them.
    pub fn on_event(&self, number: u64) -> Delivery {
        let takes = |share: Option<Share>, salt: u64| {
            share.is_some_and(|share| share.takes(draw(self.seed, number, salt)))
        };
        if takes(self.lose, 0) {
            Delivery::Never
        } else if takes(self.reorder, 1) {
            Delivery::Late
        } else if takes(self.duplicate, 2) {
            Delivery::Twice
        } else {
            Delivery::Once
        }
    }
}

fn draw(seed: u64, number: u64, salt: u64) -> u64 {
    mix(mix(mix(seed) ^ number) ^ salt)
}

/// From 0 to just below 1.
fn unit(draw: u64) -> f64 {
    f64::from(u32::try_from(draw >> 32).unwrap_or_default()) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests;
