//! Plans in words: `latency 50ms; watch nodes: lose-events 10%; server-errors 30%`.

use std::{str::FromStr, time::Duration};

use super::{Fault, Plan, Share};

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FaultError {
    #[error("`{0}` is not a fault: there are {names}", names = NAMES.join(", "))]
    Unknown(String),
    #[error("`{fault}` needs {needs}, such as `{example}`")]
    Argument { fault: String, needs: &'static str, example: &'static str },
    #[error("`{0}` is too much: a fault takes its arguments and no more")]
    TooMuch(String),
    #[error("`{0}` does not say which requests: write a verb, a plural, or both before the colon")]
    Scope(String),
}

const NAMES: [&str; 22] = [
    "latency",
    "hang",
    "half-open",
    "drop-watch-after",
    "silent-watch",
    "duplicate-events",
    "reorder-events",
    "lose-events",
    "gone-mid-page",
    "too-many-requests",
    "server-errors",
    "forbidden",
    "endless-body",
    "trickle",
    "garbage",
    "redirect",
    "lose-answers",
    "restored-etcd",
    "new-identity",
    "wrong-certificate",
    "refuse-connections",
    "go-away",
];
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

impl FromStr for Plan {
    type Err = FaultError;

    /// Rules are separated by `;`. A rule is a fault, with a verb, a plural or both and a colon before it
    /// where it is to meet only such requests.
    fn from_str(text: &str) -> Result<Self, FaultError> {
        let mut rules = text.split(';').map(str::trim).filter(|rule| !rule.is_empty());
        rules.try_fold(Self::default(), |plan, rule| {
            // The colon of a scope is followed by a space, the one of an address is not.
            let Some((scope, fault)) = rule.split_once(": ") else {
                return Ok(plan.with(fault(rule)?));
            };
            let (verb, kind) = match scope.split_whitespace().collect::<Vec<_>>()[..] {
                [verb] if VERBS.contains(&verb) => (Some(verb), None),
                [kind] => (None, Some(kind)),
                [verb, kind] if VERBS.contains(&verb) => (Some(verb), Some(kind)),
                _ => return Err(FaultError::Scope(scope.to_owned())),
            };
            Ok(plan.only(verb, kind, self::fault(fault)?))
        })
    }
}

fn fault(text: &str) -> Result<Fault, FaultError> {
    let mut words = text.split_whitespace();
    let name = words.next().unwrap_or_default();
    let needs = |needs, example| FaultError::Argument { fault: name.to_owned(), needs, example };
    let mut word = || words.next();
    let share = |word: Option<&str>| match word {
        None => Ok(Share::ALL),
        Some(word) => percent(word).ok_or_else(|| needs("a share in percent", "server-errors 30%")),
    };
    let fault = match name {
        "latency" => {
            let time = word().and_then(duration);
            Fault::Latency(time.ok_or_else(|| needs("a time", "latency 50ms"))?)
        }
        "hang" => Fault::Hang,
        "half-open" => Fault::HalfOpen,
        "drop-watch-after" => {
            let events = word().and_then(|word| word.parse().ok());
            Fault::DropWatchAfter(events.ok_or_else(|| needs("a number of events", "drop-watch-after 10"))?)
        }
        "silent-watch" => Fault::SilentWatch,
        "duplicate-events" => Fault::DuplicateEvents(share(word())?),
        "reorder-events" => Fault::ReorderEvents(share(word())?),
        "lose-events" => Fault::LoseEvents(share(word())?),
        "gone-mid-page" => Fault::GoneMidPage,
        "too-many-requests" => {
            let time = word().and_then(duration);
            let retry_after =
                time.ok_or_else(|| needs("a time to retry after", "too-many-requests 2s 50%"))?;
            Fault::TooManyRequests { retry_after, share: share(word())? }
        }
        "server-errors" => Fault::ServerErrors(share(word())?),
        "forbidden" => Fault::Forbidden,
        "endless-body" => Fault::EndlessBody,
        "trickle" => Fault::Trickle,
        "garbage" => Fault::Garbage,
        "redirect" => {
            let to = word().ok_or_else(|| needs("an address", "redirect https://127.0.0.2:6443/"))?;
            Fault::Redirect(to.to_owned())
        }
        "lose-answers" => Fault::LoseAnswers(share(word())?),
        "restored-etcd" => Fault::RestoredEtcd,
        "new-identity" => Fault::NewIdentity,
        "wrong-certificate" => Fault::WrongCertificate,
        "refuse-connections" => Fault::RefuseConnections,
        "go-away" => Fault::GoAway(share(word())?),
        _ => return Err(FaultError::Unknown(name.to_owned())),
    };
    match words.next() {
        Some(word) => Err(FaultError::TooMuch(word.to_owned())),
        None => Ok(fault),
    }
}

fn percent(word: &str) -> Option<Share> {
    Share::percent(word.strip_suffix('%')?.parse().ok()?)
}

/// A whole number and `ms`, `s` or `m`.
fn duration(word: &str) -> Option<Duration> {
    let (number, unit) = word.split_at(word.find(|c: char| !c.is_ascii_digit())?);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        _ => None,
    }
}
