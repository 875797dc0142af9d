//! Who calls, and whether they may read. Answers of the hub are remembered for a few seconds, so that
//! a table that refreshes costs it nothing; a withdrawn right is felt no later than that.

use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::Semaphore;

use super::{Failure, TokenFile, token_file::digest};
use fedq_k8s::{
    client::Caller,
    memory::Memory,
    session::{Asker, FEDQ_GROUP, Permission, Sessions},
};
use fedq_wire::problem::Code;

/// Kubernetes tokens are about 1 KiB; what is much longer is none.
const MAX_TOKEN: usize = 16 << 10;
/// Tokens that the hub is asked about at a time: whoever makes tokens up keeps nobody else waiting there.
const REVIEWS: usize = 4;
/// For so long somebody who was known is let in by a door of their own.
const REGULAR: Duration = Duration::from_hours(1);
/// How long a caller waits for one of these.
const REVIEW_WAIT: Duration = Duration::from_secs(1);

pub struct Authenticator {
    source: Source,
    /// By SHA-256: no token is kept.
    callers: Memory<[u8; 32], Caller>,
    /// Apart from the callers, so that tokens made up push none of them out.
    unknown: Memory<[u8; 32], ()>,
    /// Tokens that the hub knew within the last hour.
    regular: Memory<[u8; 32], ()>,
    reviews: Reviews,
    rights: Memory<(Asker, Permission), Result<(), String>>,
}

/// Tokens that the hub is being asked about. Those that it knew a while ago have places of their own, so that whoever makes
/// tokens up by the thousand keeps nobody out who works with fedq.
struct Reviews {
    of_regulars: Semaphore,
    of_others: Semaphore,
}

enum Source {
    File(TokenFile),
    Review { audience: String },
}

impl Authenticator {
    pub fn token_file(file: TokenFile) -> Self {
        Self::new(Source::File(file))
    }

    /// Tokens that the hub knows and that were made for `audience`.
    pub fn token_review(audience: &str) -> Self {
        Self::new(Source::Review { audience: audience.to_owned() })
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            callers: Memory::default(),
            unknown: Memory::default(),
            regular: Memory::lasting(REGULAR),
            reviews: Reviews { of_regulars: Semaphore::new(REVIEWS), of_others: Semaphore::new(REVIEWS) },
            rights: Memory::default(),
        }
    }

    pub(super) async fn caller(&self, hub: &Sessions, token: &str) -> Result<Caller, Failure> {
        let unknown = || Failure::unauthorized("the token is not valid here, or has expired");
        if MAX_TOKEN < token.len() {
            return Err(unknown());
        }
        let audience = match &self.source {
            Source::File(file) => return file.caller(token).ok_or_else(unknown),
            Source::Review { audience } => audience,
        };
        let key = digest(token);
        let remembered = || match self.callers.get(&key) {
            Some(caller) => Some(Ok(caller)),
            None => self.unknown.get(&key).map(|()| Err(unknown())),
        };
        if let Some(answer) = remembered() {
            return answer;
        }
        let places = match self.regular.get(&key) {
            Some(()) => &self.reviews.of_regulars,
            None => &self.reviews.of_others,
        };
        let Ok(Ok(_slot)) = tokio::time::timeout(REVIEW_WAIT, places.acquire()).await else {
            return Err(Failure::too_many_requests("too many tokens are being looked up at the hub"));
        };
        // Of many requests with one token, one asks: the others waited for its answer.
        if let Some(answer) = remembered() {
            return answer;
        }
        let Some(caller) = hub.who(token, audience).await? else {
            self.unknown.put(key, ());
            return Err(unknown());
        };
        self.regular.put(key, ());
        self.callers.put(key, caller.clone());
        Ok(caller)
    }

    pub(super) async fn allow(
        &self,
        hub: &Sessions,
        caller: &Caller,
        permission: &Permission,
    ) -> Result<(), Failure> {
        let asker = Asker::from(caller);
        let key = (asker, permission.clone());
        let answer = if let Some(answer) = self.rights.get(&key) {
            answer
        } else {
            let answer = hub.may(caller, permission).await?;
            self.rights.put(key, answer.clone());
            answer
        };
        answer.map_err(|reason| forbidden(caller, permission, &reason))
    }
}

/// Asks the hub anew: what is changed rests on no remembered answer.
pub(super) async fn require(hub: &Sessions, caller: &Caller, permission: &Permission) -> Result<(), Failure> {
    hub.may(caller, permission).await?.map_err(|reason| forbidden(caller, permission, &reason))
}

/// In the hub's own form, so that it reads like every other refusal.
fn forbidden(caller: &Caller, permission: &Permission, reason: &str) -> Failure {
    let Permission { verb, group, resource, namespace, name } = permission;
    let name = name.as_ref().map(|name| format!(" \"{name}\"")).unwrap_or_default();
    let scope = match namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    let role = match (*group, *resource) {
        (FEDQ_GROUP, "clusters") => "Role fedq-cluster-operator",
        (FEDQ_GROUP, "tasks" | "tasks/log" | "tasks/exec" | "tasks/portforward" | "volumes")
            if namespace.is_some() =>
        {
            "ClusterRole fedq-task-user"
        }
        (FEDQ_GROUP, "volumes/adopt") => "ClusterRole fedq-volume-adopter",
        (FEDQ_GROUP, "tasks/exec" | "tasks/portforward") => "right to create it in all namespaces",
        (FEDQ_GROUP, "tasks" | "tasks/log" | "volumes") => "ClusterRole fedq-task-admin",
        (FEDQ_GROUP, _) => "Role fedq-removal-confirmer",
        ("", "users") => "right to impersonate that user",
        _ => "ClusterRole fedq-claim-viewer",
    };
    let separator = if reason.is_empty() { "" } else { ": " };
    let detail = format!(
        "user \"{}\" cannot {verb} resource \"{resource}\"{name} in API group \"{group}\" {scope}{separator}{reason}",
        caller.user
    );
    Failure::new(StatusCode::FORBIDDEN, Code::Forbidden, detail)
        .next(format!("ask an administrator of the hub for the {role}"))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use axum::{body::Body, http::HeaderValue, response::IntoResponse};
    use kube::Client;

    use super::*;
    use fedq_k8s::{client::ConnectError, session::Access};

    /// A hub that never answers.
    struct Silent;

    impl Access for Silent {
        fn own(&self) -> Client {
            let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
                std::future::pending::<Result<http::Response<Body>, std::io::Error>>()
            });
            Client::new(service, "default")
        }

        fn acting_as(&self, _: &Caller) -> Result<Client, ConnectError> {
            Ok(self.own())
        }

        fn apart(&self) -> Result<Arc<dyn Access>, ConnectError> {
            Ok(Arc::new(Self))
        }
    }

    /// A hub that knows every token after a while, and counts how often it is asked.
    struct Slow(Arc<AtomicUsize>);

    impl Access for Slow {
        fn own(&self) -> Client {
            let asked = Arc::clone(&self.0);
            let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
                asked.fetch_add(1, Ordering::Relaxed);
                async {
                    tokio::time::sleep(REVIEW_WAIT / 4).await;
                    let review = serde_json::json!({
                        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {},
                        "status": {"authenticated": true, "audiences": ["fedq"], "user": {"username": "ann"}},
                    });
                    Ok::<_, std::io::Error>(http::Response::new(kube::client::Body::from(
                        review.to_string().into_bytes(),
                    )))
                }
            });
            Client::new(service, "default")
        }

        fn acting_as(&self, _: &Caller) -> Result<Client, ConnectError> {
            Ok(self.own())
        }

        fn apart(&self) -> Result<Arc<dyn Access>, ConnectError> {
            Ok(Arc::new(Self(Arc::clone(&self.0))))
        }
    }

    #[tokio::test]
    async fn many_requests_at_once_with_one_token_ask_for_it_a_few_times_and_all_pass() {
        let asked = Arc::<AtomicUsize>::default();
        let hub = Sessions::new(Arc::new(Slow(Arc::clone(&asked))), "fedq-system");
        let authenticator = Authenticator::token_review("fedq");
        let all = futures::future::join_all((0..200).map(|_| authenticator.caller(&hub, "one"))).await;
        assert!(all.into_iter().all(|answer| answer.is_ok_and(|caller| caller.user == "ann")));
        assert!(asked.load(Ordering::Relaxed) <= REVIEWS, "{asked:?}");
    }

    #[tokio::test]
    async fn a_flood_of_tokens_made_up_keeps_nobody_out_who_was_known() {
        let hub = Sessions::new(Arc::new(Silent), "fedq-system");
        let authenticator = Authenticator::token_review("fedq");
        authenticator.regular.put(digest("known"), ());
        let tokens: Vec<String> = (0..100).map(|number| format!("made-up-{number}")).collect();
        let mut flood =
            Box::pin(futures::future::join_all(tokens.iter().map(|token| authenticator.caller(&hub, token))));
        let known = tokio::time::timeout(REVIEW_WAIT * 2, authenticator.caller(&hub, "known"));
        let asked = tokio::select! {
            biased;
            _ = &mut flood => panic!("a hub that never answers has answered"),
            answer = known => answer,
        };
        assert!(
            asked.is_err(),
            "it is the hub that is waited for, and not a place: {:?}",
            asked.map(drop_caller)
        );
    }

    fn drop_caller(answer: Result<Caller, Failure>) -> Result<(), u16> {
        answer.map(drop).map_err(|Failure(problem)| problem.status)
    }

    #[tokio::test]
    async fn tokens_made_up_take_few_of_the_hubs_answers() {
        let hub = Sessions::new(Arc::new(Silent), "fedq-system");
        let authenticator = Authenticator::token_review("fedq");
        let tokens: Vec<String> = (0..REVIEWS).map(|number| format!("made-up-{number}")).collect();
        let waiting = futures::future::join_all(tokens.iter().map(|token| authenticator.caller(&hub, token)));
        let refused = tokio::select! {
            biased;
            _ = waiting => None,
            answer = authenticator.caller(&hub, "one-more") => answer.err(),
        };
        let response = refused.expect("a refusal, before the others are answered").into_response();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (429, &HeaderValue::from_static("1"))
        );
    }
}
