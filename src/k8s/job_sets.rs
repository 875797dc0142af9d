//! Whether a cluster runs JobSets. That it knows the kind says nothing: Kueue's own kinds bring it along on
//! clusters where nobody makes Jobs of them.
//!
//! JobSet's controller serves a webhook that fills in how each Job completes; the kind itself has no default for
//! that. So a JobSet that is only tried (dry run) comes back filled in where the controller answers, with no
//! right but the one to make JobSets.

use std::time::Duration;

use http::Request;
use kube::Client;
use serde_json::{Value, json};

use super::client::{ApiError, call};
use fedq_domain::queue::objects::HUB_LABEL;

const NAME: &str = "fedq-are-job-sets-run";

/// `namespace`: one that the cluster has.
pub async fn are_run(client: &Client, namespace: &str, deadline: Duration) -> Result<bool, ApiError> {
    let path = format!("/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets?dryRun=All");
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(body(namespace).to_string().into_bytes())
        .expect("names were checked, so the path is a URI");
    let answer: Value = call(deadline, client.request(request)).await?;
    Ok(answer["spec"]["replicatedJobs"][0]["template"]["spec"]["completionMode"] == "Indexed")
}

/// With the label of fedq's objects: a policy may let fedq make no others.
fn body(namespace: &str) -> Value {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "none", "image": "none"}]});
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": NAME, "namespace": namespace, "labels": {HUB_LABEL: NAME}},
        "spec": {"suspend": true, "replicatedJobs": [{
            "name": "node", "replicas": 1,
            "template": {"spec": {"completions": 1, "parallelism": 1, "template": {"spec": pod}}},
        }]},
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    /// Of a server that makes this of what it is sent.
    async fn told(answer: impl Fn(Value) -> (u16, Value) + Clone + Send + 'static) -> Result<bool, ApiError> {
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = answer.clone();
            async move {
                assert!(request.uri().query().is_some_and(|query| query.contains("dryRun=All")));
                let sent = request.into_body().collect_bytes().await.expect("a body");
                let (status, body) = answer(serde_json::from_slice(&sent).expect("JSON"));
                let response =
                    Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
                Ok::<_, Infallible>(response.expect("a response"))
            }
        });
        are_run(&Client::new(service, "default"), "team", Duration::from_secs(30)).await
    }

    #[tokio::test]
    async fn they_are_where_the_controllers_webhook_answers() {
        assert!(!told(|sent| (201, sent)).await.expect("an answer"), "the kind alone");
        let filled = |mut sent: Value| {
            sent["spec"]["replicatedJobs"][0]["template"]["spec"]["completionMode"] = json!("Indexed");
            (201, sent)
        };
        assert!(told(filled).await.expect("an answer"));
        let refused = |_| {
            let message = "failed calling webhook \"mjobset.kb.io\": connection refused";
            (
                500,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "reason": "InternalError", "message": message}),
            )
        };
        told(refused).await.expect_err("the controller is down");
    }
}
