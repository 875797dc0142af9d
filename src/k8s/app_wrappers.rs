//! Who runs AppWrappers on a cluster. That it knows the kind says nothing; a controller that works renews a Lease, and two
//! Leases are all that fedq asks to see of either.

use std::time::Duration;

use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Client, api::ObjectList};

use super::client::{ApiError, RetryClass, call};
use fedq_domain::task::runtime::{Absence, FEDQS_LEASE, Held, Runtime, UPSTREAMS_LEASE};

/// Of a cluster that knows the kind.
pub async fn runtime(client: &Client, now: Timestamp, deadline: Duration) -> Result<Runtime, ApiError> {
    let (upstreams, ours) =
        tokio::join!(leases(client, UPSTREAMS_LEASE, deadline), leases(client, FEDQS_LEASE, deadline));
    let leases = match (upstreams, ours) {
        (Ok(upstreams), Ok(ours)) => [upstreams, ours].concat(),
        (Err(error), _) | (_, Err(error)) if error.class == RetryClass::Forbidden => {
            return Ok(Runtime::None(Absence::Refused(error.to_string())));
        }
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    let held: Vec<Held<'_>> = leases.iter().map(held).collect();
    Ok(Runtime::of(&held, now))
}

/// Of that name in all namespaces: RBAC that grants one name grants a list of it.
async fn leases(client: &Client, name: &str, deadline: Duration) -> Result<Vec<Lease>, ApiError> {
    let path = format!("/apis/coordination.k8s.io/v1/leases?fieldSelector=metadata.name%3D{name}");
    let request = Request::get(path).body(Vec::new()).expect("a constant name makes a path");
    let list: ObjectList<Lease> = call(deadline, client.request(request)).await?;
    Ok(list.items)
}

fn held(lease: &Lease) -> Held<'_> {
    let spec = lease.spec.as_ref();
    Held {
        name: lease.metadata.name.as_deref().unwrap_or_default(),
        holder: spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default(),
        renewed: spec.and_then(|spec| Some(spec.renew_time.as_ref()?.0)),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Response;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// What is found of a server that answers so to each list, by the name that is asked for.
    async fn found(
        answer: impl Fn(&str) -> (u16, Value) + Clone + Send + 'static,
    ) -> Result<Runtime, ApiError> {
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().expect("a selector").to_owned();
            let (status, body) =
                answer(query.strip_prefix("fieldSelector=metadata.name%3D").expect("by name"));
            let body = Body::from(body.to_string().into_bytes());
            let response = Response::builder().status(status).body(body).expect("a response");
            async move { Ok::<_, Infallible>(response) }
        });
        let now = Timestamp::from_second(100).expect("in range");
        runtime(&Client::new(service, "default"), now, Duration::from_secs(30)).await
    }

    fn list(items: &Value) -> Value {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList", "metadata": {}, "items": items})
    }

    #[tokio::test]
    async fn a_controller_that_renews_its_lease_runs_them() {
        let renewed = |which: &'static str| {
            move |name: &str| {
                let lease = json!({
                    "metadata": {"name": name, "namespace": "anywhere"},
                    "spec": {"holderIdentity": "pod", "renewTime": "1970-01-01T00:01:39.000000Z"},
                });
                (200, list(&if name == which { json!([lease]) } else { json!([]) }))
            }
        };
        assert_eq!(found(renewed(UPSTREAMS_LEASE)).await.expect("answers"), Runtime::Upstream);
        assert_eq!(found(renewed(FEDQS_LEASE)).await.expect("answers"), Runtime::Fedq);
        assert_eq!(found(renewed("")).await.expect("answers"), Runtime::None(Absence::NoController));
    }

    #[tokio::test]
    async fn a_right_that_is_missing_is_told_and_what_passes_is_asked_again() {
        let refused = |code: u16, reason: &'static str| {
            move |_: &str| {
                let message = "leases is forbidden";
                (
                    code,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}),
                )
            }
        };
        let found_of = found(refused(403, "Forbidden")).await.expect("an answer");
        let Runtime::None(Absence::Refused(why)) = &found_of else { panic!("{found_of:?}") };
        assert!(why.contains("leases is forbidden"), "{why}");
        found(refused(500, "InternalError")).await.expect_err("nobody knows");
    }
}
