//! Which clusters a command asks: the one of the kubeconfig, or those of a daemon that flags name.

use std::{future::Future, pin::Pin, time::Duration};

use futures::{StreamExt, stream};
use kube::Client;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::{api::Api, error::Error, flags::Given, kubeconfig};

/// How many clusters are asked at a time.
const AT_ONCE: usize = 64;

/// How long a daemon is waited for where `--request-timeout` says nothing: somewhat longer than it waits for a cluster.
const PATIENCE: Duration = Duration::from_secs(30);

/// Flags by which a kubeconfig is read: with clusters of a daemon they would say nothing.
const OF_KUBECONFIG: [&str; 15] = [
    "as",
    "as-group",
    "as-uid",
    "as-user-extra",
    "certificate-authority",
    "client-certificate",
    "client-key",
    "context",
    "disable-compression",
    "insecure-skip-tls-verify",
    "kubeconfig",
    "server",
    "tls-server-name",
    "token",
    "user",
];

pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A place that a daemon asks for us.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Place {
    Hub,
    Cluster(String),
}

impl Place {
    /// As the column CLUSTER has it. No cluster can be called like the hub.
    pub fn shown(&self) -> &str {
        match self {
            Self::Hub => "<hub>",
            Self::Cluster(name) => name,
        }
    }
}

/// What is told of a cluster: its name and objects of it.
pub type Tell<'a> = dyn FnMut(&str, Vec<Value>) + 'a;

/// Clusters that can be asked through a daemon. Errors are told as they are.
pub trait Fleet {
    /// The names of the clusters that are joined, for patterns.
    fn names(&self) -> Later<'_, Result<Vec<String>, String>>;

    /// A client that speaks to the place's API server, and the address it has there.
    fn connect(&self, place: &Place) -> Result<(Client, String), String>;

    /// Tells what the daemon itself knows of a list of clusters, which are sorted: of each all that is there, with the fields that
    /// tables show. A cluster of which nothing is told is to be asked.
    fn followed<'a>(
        &'a self,
        clusters: &'a [&'a str],
        path: &'a str,
        tell: &'a mut Tell<'a>,
    ) -> Later<'a, ()>;

    /// A kubeconfig by which kubectl speaks to the place.
    fn kubeconfig(&self, place: &Place) -> Result<String, String>;
}

/// One cluster that a command asks.
pub struct Cluster {
    /// None for that of the kubeconfig.
    pub place: Option<Place>,
    pub api: Api,
}

impl Cluster {
    /// As messages and the column CLUSTER name it; empty for that of the kubeconfig.
    pub fn name(&self) -> &str {
        self.place.as_ref().map_or("", Place::shown)
    }

    /// An error of this cluster among others.
    pub fn error(&self, error: &Error) -> String {
        match self.place {
            Some(Place::Hub) => format!("hub: {error}"),
            Some(Place::Cluster(_)) => format!("cluster {}: {error}", self.name()),
            None => error.to_string(),
        }
    }
}

/// Whether flags name clusters of a daemon.
pub fn is_asked(given: &Given) -> bool {
    given.is("all-clusters") || given.is("hub") || !given.all("cluster").is_empty()
}

/// The places that flags name, the hub first, then clusters by name.
pub async fn places(given: &Given, fleet: &dyn Fleet) -> Result<Vec<Place>, Error> {
    if let Some(flag) = OF_KUBECONFIG.into_iter().find(|flag| given.has(flag)) {
        return Err(Error::said(format!(
            "--{flag} is of a kubeconfig, and --cluster, --all-clusters and --hub ask fedqd: leave out one or the other. \
             Where fedqd is comes from `fedq login`, or stands before `kueue`"
        )));
    }
    let mut places: Vec<Place> = given.is("hub").then_some(Place::Hub).into_iter().collect();
    let wanted = given.all("cluster");
    let mut names: Vec<String> = wanted.iter().filter(|name| !is_pattern(name)).cloned().collect();
    if given.is("all-clusters") || wanted.iter().any(|name| is_pattern(name)) {
        let known = fleet.names().await.map_err(Error::said)?;
        for pattern in wanted.iter().filter(|name| is_pattern(name)) {
            let before = names.len();
            names.extend(known.iter().filter(|name| matches(pattern, name)).cloned());
            if names.len() == before {
                return Err(Error::said(format!("no joined cluster matches {pattern:?}")));
            }
        }
        if given.is("all-clusters") {
            names.extend(known);
        }
    }
    names.sort_unstable();
    names.dedup();
    places.extend(names.into_iter().map(Place::Cluster));
    if places.is_empty() { Err(Error::said("no cluster is joined to fedqd")) } else { Ok(places) }
}

/// Those of a daemon.
pub fn connect(places: Vec<Place>, given: &Given, fleet: &dyn Fleet) -> Result<Vec<Cluster>, Error> {
    let within = kubeconfig::timeout(given.text("request-timeout"))?.unwrap_or(PATIENCE);
    let connect = |place: Place| {
        let (client, server) = fleet.connect(&place).map_err(Error::said)?;
        Ok(Cluster { api: Api::new(client, server, Some(within)), place: Some(place) })
    };
    places.into_iter().map(connect).collect()
}

/// Asks clusters side by side; the answers are in their order. Those of a daemon have one deadline together, so that many slow ones take
/// no longer than one.
pub async fn ask<'c, T>(
    clusters: impl IntoIterator<Item = &'c Cluster>,
    ask: impl AsyncFn(&Cluster) -> Result<T, Error>,
) -> Vec<(&'c Cluster, Result<T, Error>)> {
    let ask = &ask;
    let begun = Instant::now();
    let asked = clusters.into_iter().enumerate().map(async |(at, cluster)| {
        let within = cluster.place.as_ref().and_then(|_| cluster.api.within());
        let Some(within) = within else { return (at, (cluster, ask(cluster).await)) };
        let late = |_| Err(Error::Unreachable(format!("no answer within {} s", within.as_secs_f32())));
        (at, (cluster, timeout_at(begun + within, ask(cluster)).await.unwrap_or_else(late)))
    });
    // In the order they answer, so that one that does not keeps no other from being asked.
    let mut answers: Vec<_> = stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
    answers.sort_unstable_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// `*` stands for any letters, `?` for one.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut star) = ((0, 0), None);
    while at.1 < name.len() {
        match pattern.get(at.0) {
            Some(b'*') => {
                star = Some(at);
                at.0 += 1;
            }
            Some(&letter) if letter == b'?' || letter == name[at.1] => at = (at.0 + 1, at.1 + 1),
            // The last `*` takes one letter more.
            _ => match &mut star {
                Some((before, taken)) => {
                    *taken += 1;
                    at = (*before + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[at.0..].iter().all(|&letter| letter == b'*')
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn one_that_does_not_answer_keeps_no_other_from_being_asked() {
        let client = || {
            let refuse = |_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) };
            Client::new(tower::service_fn(refuse), "default")
        };
        let within = Some(Duration::from_millis(300));
        let cluster = |number: usize| Cluster {
            place: Some(Place::Cluster(format!("c-{number:03}"))),
            api: Api::new(client(), String::new(), within),
        };
        let clusters: Vec<Cluster> = (0..3 * AT_ONCE).map(cluster).collect();
        let answers = ask(&clusters, async |cluster| {
            if cluster.name() == "c-000" {
                std::future::pending::<()>().await;
            }
            Ok(cluster.name().to_owned())
        });
        let answers = answers.await;
        assert!(matches!(&answers[0].1, Err(Error::Unreachable(said)) if said == "no answer within 0.3 s"));
        for (cluster, answer) in &answers[1..] {
            assert_eq!(answer.as_deref().ok(), Some(cluster.name()));
        }
        assert_eq!(answers.len(), clusters.len());
    }

    #[test]
    fn patterns_stand_for_names() {
        for (pattern, name, expected) in [
            ("*", "eu-west", true),
            ("eu-*", "eu-west", true),
            ("eu-*", "us-west", false),
            ("*west", "eu-west-west", true),
            ("*-west-*", "eu-west-1", true),
            ("eu-?", "eu-1", true),
            ("eu-?", "eu-12", false),
            ("eu-?", "eu-", false),
            ("*a*b", "aabab", true),
            ("*a*b", "aaba", false),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
