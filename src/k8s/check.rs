//! Looks at one cluster the way a colleague would who is asked why it does not work. It reads and
//! asks, and changes nothing; every request has a deadline.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use http::Request;
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams, client::Body};
use serde_json::Value;

use super::{
    app_wrappers,
    client::{ApiError, ClusterClient, ConnectError, RetryClass, call},
    join_token,
    rights::{HUB, KUEUE_DEPLOYMENT, KUEUE_NAMESPACE, Right, Scope, TOKEN, WORKER},
};
use fedq_domain::{
    check::{Finding, Outcome},
    cluster::{Connection, QuarantineReason},
    task::runtime::{Absence, Runtime},
};
use fedq_values::ids::{ClusterName, FlavorName};

/// Reviews under way at a time.
const AT_ONCE: usize = 8;
const EXPIRES_SOON: SignedDuration = SignedDuration::from_hours(7 * 24);
/// The header's second plus the way there and back; certificates and tokens bear more than this.
const SKEW: SignedDuration = SignedDuration::from_secs(10);
/// Groups of the jobs that Kueue can manage: where the hub's Kueue has one enabled that a worker does not
/// serve, MultiKueue does not connect to that worker at all.
const INTEGRATIONS: [&str; 8] = [
    "jobset.x-k8s.io",
    "kubeflow.org",
    "leaderworkerset.x-k8s.io",
    "ray.io",
    "trainer.kubeflow.org",
    "workload.codeflare.dev",
    "sparkoperator.k8s.io",
    "cluster.x-k8s.io",
];

/// What is looked at.
pub struct Subject<'a> {
    pub client: &'a ClusterClient,
    pub role: Role<'a>,
    /// fedq's own namespace there.
    pub namespace: &'a str,
    pub now: Timestamp,
    /// For one request.
    pub deadline: Duration,
}

pub enum Role<'a> {
    Hub,
    Worker {
        hub: &'a ClusterClient,
        /// Flavors of its claim that no usable node matches.
        without_nodes: BTreeSet<FlavorName>,
    },
}

/// Everything there is to say about a cluster that is connected.
pub async fn look(subject: &Subject<'_>) -> Vec<Finding> {
    let reachable = subject.reachable().await;
    let answers = reachable.outcome != Outcome::Failed;
    let mut findings = vec![reachable, subject.credential()];
    if !answers {
        return findings;
    }
    let (clock, rights, kueue, kinds) =
        tokio::join!(subject.clock(), subject.rights(), subject.kueue(), subject.kinds());
    findings.push(clock);
    findings.extend([rights, kueue]);
    findings.extend(kinds);
    findings.extend(subject.runtime().await);
    if let Role::Worker { without_nodes, .. } = &subject.role {
        findings.push(nodes(without_nodes));
    }
    findings
}

/// What the link alone says; `None` if it is up and worth a look.
pub fn link(name: &ClusterName, connection: &Connection) -> Option<Finding> {
    let silent = if connection.refuses_credential() {
        "put a kubeconfig with a new credential into what joins it"
    } else {
        "look at its API server and at the network in between"
    };
    Some(match connection {
        Connection::Ready => return None,
        Connection::Connecting => {
            finding("reachable", Outcome::Warning, "fedq is connecting to it", Some("ask again in a moment"))
        }
        Connection::Stale { since, reason } => {
            let message = format!("no answer since {since}: {reason}; its share of the quota stands");
            finding("reachable", Outcome::Failed, message, Some(silent))
        }
        Connection::Lost { since, reason } => {
            let message = format!("no answer since {since}: {reason}; its share is off the hub's quota");
            finding("reachable", Outcome::Failed, message, Some(silent))
        }
        Connection::Quarantined { since, reason } => {
            let why = match reason {
                QuarantineReason::IdentityChanged { expected, found } => format!(
                    "the UID of its kube-system namespace is {found}, that of the cluster that was joined is {expected}"
                ),
                QuarantineReason::VersionsWentBack { stored, found } => {
                    format!(
                        "its resourceVersion went back from {stored} to {found}, as after restoring a backup"
                    )
                }
            };
            let next = format!("if that is meant: fedq cluster confirm {name}");
            finding("identity", Outcome::Failed, format!("not written to since {since}: {why}"), Some(&next))
        }
        Connection::Refused { reason } => {
            let next = format!("join it again with a kubeconfig that can be used: fedq cluster join {name}");
            finding("kubeconfig", Outcome::Failed, reason.clone(), Some(&next))
        }
        Connection::Unreached => {
            let message = "its capacity comes from ClusterMetrics on the hub; fedq does not connect to it";
            finding("reachable", Outcome::Ok, message, None)
        }
    })
}

fn finding(name: &str, outcome: Outcome, message: impl Into<String>, next: Option<&str>) -> Finding {
    Finding { name: name.to_owned(), outcome, message: message.into(), next: next.map(str::to_owned) }
}

/// Of a cluster to which no further connection can be made.
pub fn undialled(error: &ConnectError) -> Finding {
    let next = Some("look at fedqd's log and at the kubeconfig in the Secret that joins the cluster");
    finding("reachable", Outcome::Failed, format!("no connection can be made: {error}"), next)
}

impl Subject<'_> {
    async fn reachable(&self) -> Finding {
        let asked = Instant::now();
        match self.client.identity(self.deadline).await {
            Ok(identity) => {
                let took = asked.elapsed().as_millis();
                let message = format!("answers in {took} ms, Kubernetes {}", identity.version);
                finding("reachable", Outcome::Ok, message, None)
            }
            Err(error) => {
                let next = match error.class {
                    RetryClass::Unauthorized => {
                        "its credential is not valid any more: join it with a new one"
                    }
                    RetryClass::Forbidden => "grant what deploy/worker/rbac.yaml lists",
                    _ => "look at its API server and at the network in between",
                };
                finding("reachable", Outcome::Failed, error.to_string(), Some(next))
            }
        }
    }

    fn credential(&self) -> Finding {
        let Some(expires) = self.client.expires() else {
            return finding("credential", Outcome::Ok, "does not say that it expires", None);
        };
        let left = expires.duration_since(self.now);
        let next = Some("join the cluster again with a new kubeconfig");
        if left <= SignedDuration::ZERO {
            finding("credential", Outcome::Failed, format!("expired at {expires}"), next)
        } else if let Some(validity) = self.client.renewable() {
            let good =
                format!("is good until {expires}, and is to be renewed from {} on", validity.renewal());
            if validity.is_overdue(self.now) {
                let next = "see fedqd's log why that failed, and apply deploy/worker/rbac.yaml there";
                return finding(
                    "credential",
                    Outcome::Warning,
                    format!("{good}, which did not happen"),
                    Some(next),
                );
            }
            finding("credential", Outcome::Ok, good, None)
        } else if left < EXPIRES_SOON {
            finding("credential", Outcome::Warning, format!("expires at {expires}"), next)
        } else {
            finding("credential", Outcome::Ok, format!("is good until {expires}"), None)
        }
    }

    async fn clock(&self) -> Finding {
        let unknown = |why: String| finding("clock", Outcome::Warning, why, None);
        let asked = Instant::now();
        let request = Request::get("/version").body(Body::empty()).expect("a constant path makes a request");
        let kube = self.client.kube();
        let answer = match call(self.deadline, kube.send(request)).await {
            Ok(answer) => answer,
            Err(error) => return unknown(format!("its time is not known: {error}")),
        };
        let date = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        let Some(theirs) = date.and_then(|date| rfc2822::parse(date).ok()) else {
            return unknown("its answers carry no time".to_owned());
        };
        let waited = SignedDuration::try_from(asked.elapsed()).unwrap_or_default();
        skew(theirs.timestamp().duration_since(self.now), waited)
    }

    async fn rights(&self) -> Finding {
        let (rights, manifest) = match self.role {
            Role::Hub => (HUB, "deploy/hub/rbac.yaml"),
            Role::Worker { .. } => (WORKER, "deploy/worker/rbac.yaml"),
        };
        let mut asked = Vec::new();
        let needs_token = self.client.renewable().is_some();
        for right in rights.iter().filter(|right| **right != TOKEN || needs_token) {
            asked.extend(right.verbs.iter().map(|verb| self.may(right, verb)));
        }
        let answers: Vec<_> = stream::iter(asked).buffered(AT_ONCE).collect().await;
        let mut missing = Vec::new();
        for answer in &answers {
            match answer {
                Ok((_, _, true)) => {}
                Ok((right, verb, false)) => {
                    missing.push(format!("{verb} {} ({})", right.resource, right.serves));
                }
                Err(error) => {
                    let message = format!("cannot ask what fedq may do there: {error}");
                    return finding("rights", Outcome::Warning, message, None);
                }
            }
        }
        if missing.is_empty() {
            return finding("rights", Outcome::Ok, format!("all {} that fedq needs", answers.len()), None);
        }
        let next = format!("apply {manifest} there with an administrator's kubeconfig");
        finding("rights", Outcome::Failed, format!("may not {}", missing.join(", ")), Some(&next))
    }

    async fn may(
        &self,
        right: &'static Right,
        verb: &'static str,
    ) -> Result<(&'static Right, &'static str, bool), ApiError> {
        let (resource, subresource) = match right.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (right.resource, None),
        };
        let own = right.scope == Scope::Own;
        // Its own namespace object is a named one; anything else of its own is in that namespace.
        let name = right.name.or((own && resource == "namespaces").then_some(self.namespace));
        let attributes = ResourceAttributes {
            group: Some(right.group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource,
            verb: Some(verb.to_owned()),
            name: name.map(str::to_owned),
            namespace: match right.scope {
                Scope::Cluster => None,
                Scope::Own => Some(self.namespace.to_owned()),
                Scope::Kueue => Some(KUEUE_NAMESPACE.to_owned()),
                Scope::Account => Some(join_token::NAMESPACE.to_owned()),
            },
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let api = Api::<SelfSubjectAccessReview>::all(self.client.kube());
        let answer = call(self.deadline, api.create(&PostParams::default(), &review)).await?;
        Ok((right, verb, answer.status.is_some_and(|status| status.allowed)))
    }

    async fn kueue(&self) -> Finding {
        let install = Some("install Kueue 0.16 or newer");
        let group = match self.get(self.client, "/apis/kueue.x-k8s.io").await {
            Ok(group) => group,
            Err(error) if error.class == RetryClass::NotFound => {
                return finding("kueue", Outcome::Failed, "is not installed", install);
            }
            Err(error) => return finding("kueue", Outcome::Warning, error.to_string(), None),
        };
        let versions: Vec<&str> = group["versions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|version| version["version"].as_str())
            .collect();
        let release = self.release().await.map(|image| format!(", {image}")).unwrap_or_default();
        if versions.contains(&"v1beta2") {
            finding("kueue", Outcome::Ok, format!("serves v1beta2{release}"), None)
        } else {
            let message = format!("serves {} only{release}: too old", versions.join(", "));
            finding("kueue", Outcome::Failed, message, install)
        }
    }

    /// The image Kueue runs from, where it is installed as its manifests do and may be read.
    async fn release(&self) -> Option<String> {
        let path = format!("/apis/apps/v1/namespaces/{KUEUE_NAMESPACE}/deployments/{KUEUE_DEPLOYMENT}");
        let deployment = self.get(self.client, &path).await.ok()?;
        let image = deployment.pointer("/spec/template/spec/containers/0/image")?.as_str()?;
        Some(super::client::clean(image))
    }

    async fn kinds(&self) -> Option<Finding> {
        let Role::Worker { hub, .. } = &self.role else { return None };
        let (ours, theirs) = tokio::join!(self.groups(hub), self.groups(self.client));
        Some(match (ours, theirs) {
            (Ok(hub), Ok(worker)) => kinds(&hub, &worker),
            (Err(error), _) | (_, Err(error)) => {
                let message = format!("cannot compare what hub and cluster serve: {error}");
                finding("kinds", Outcome::Warning, message, None)
            }
        })
    }

    /// Of a worker: whether AppWrappers can be sent there. Nobody has to want any.
    async fn runtime(&self) -> Option<Finding> {
        let Role::Worker { .. } = &self.role else { return None };
        let served = self.get(self.client, "/apis/workload.codeflare.dev/v1beta2").await;
        let runtime = match served {
            Ok(_) => app_wrappers::runtime(&self.client.kube(), self.now, self.deadline).await,
            Err(error) if error.class == RetryClass::NotFound => Ok(Runtime::None(Absence::NoKind)),
            Err(error) => Err(error),
        };
        Some(match runtime {
            Ok(runtime) => runs_app_wrappers(&runtime),
            Err(error) => finding("appwrappers", Outcome::Warning, error.to_string(), None),
        })
    }

    async fn groups(&self, client: &ClusterClient) -> Result<BTreeSet<String>, ApiError> {
        let list = self.get(client, "/apis").await?;
        let groups = list["groups"].as_array().into_iter().flatten();
        Ok(groups.filter_map(|group| group["name"].as_str()).map(str::to_owned).collect())
    }

    async fn get(&self, client: &ClusterClient, path: &str) -> Result<Value, ApiError> {
        let request = Request::get(path).body(Vec::new()).expect("a constant path makes a request");
        call(self.deadline, client.kube().request::<Value>(request)).await
    }
}

/// `ahead`: by how much its clock was ahead when it answered, `waited` after we looked at ours.
fn skew(ahead: SignedDuration, waited: SignedDuration) -> Finding {
    let (early, late) = (SKEW.checked_neg().unwrap_or_default(), SKEW.saturating_add(waited));
    if early <= ahead && ahead <= late {
        return finding("clock", Outcome::Ok, "agrees with fedq's", None);
    }
    let (by, way) = (ahead.abs().as_secs(), if early <= ahead { "ahead of" } else { "behind" });
    let message = format!("is {by} s {way} fedq's: credentials may be taken for expired or not yet good");
    finding("clock", Outcome::Warning, message, Some("synchronise the clocks of both"))
}

fn runs_app_wrappers(runtime: &Runtime) -> Finding {
    let (outcome, message) = match runtime {
        Runtime::Upstream => (Outcome::Ok, "the AppWrapper operator runs them (upstream)".to_owned()),
        Runtime::Fedq => (Outcome::Ok, "fedq-appwrapper runs them (fedq)".to_owned()),
        Runtime::None(absence @ Absence::Refused(_)) => (Outcome::Warning, absence.to_string()),
        Runtime::None(absence) => (Outcome::Ok, format!("none: {absence}")),
        Runtime::Unknown => (Outcome::Warning, "it does not say who runs them".to_owned()),
    };
    finding("appwrappers", outcome, message, None)
}

fn kinds(hub: &BTreeSet<String>, worker: &BTreeSet<String>) -> Finding {
    let missing: Vec<&str> =
        INTEGRATIONS.into_iter().filter(|group| hub.contains(*group) && !worker.contains(*group)).collect();
    if missing.is_empty() {
        return finding("kinds", Outcome::Ok, "serves every kind of job that the hub serves", None);
    }
    let message = format!(
        "does not serve {}, which the hub does: where the hub's Kueue has it enabled, MultiKueue does not connect here",
        missing.join(", ")
    );
    finding("kinds", Outcome::Warning, message, Some("install its CRDs here, or take it off the hub's Kueue"))
}

fn nodes(without: &BTreeSet<FlavorName>) -> Finding {
    if without.is_empty() {
        return finding("flavors", Outcome::Ok, "each has usable nodes", None);
    }
    let names: Vec<&str> = without.iter().map(FlavorName::as_str).collect();
    let message = format!("no usable node matches {}", names.join(", "));
    let next = "compare the flavor's nodeLabels and tolerations with the labels and taints of the nodes";
    finding("flavors", Outcome::Warning, message, Some(next))
}

#[cfg(test)]
mod tests;
