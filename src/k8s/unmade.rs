//! Pods that Jobs may not make: admission tells it to the Job's controller, which says it by Events.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;

use crate::client::{ApiError, RetryClass, call, clean, escape};

/// Of one namespace; the rest is not looked at.
const EVENTS: u32 = 500;
const LONGEST: usize = 500;

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refused {
    pub namespace: String,
    pub job: String,
    /// The last time, by the cluster's clock.
    pub at: Timestamp,
    /// In the words of whatever refused it.
    pub message: String,
}

#[derive(Deserialize)]
struct List {
    items: Vec<Event>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    metadata: Metadata,
    involved_object: Object,
    #[serde(default)]
    message: String,
    #[serde(default)]
    last_timestamp: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    creation_timestamp: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    kind: String,
    name: String,
}

/// What Jobs of the namespace were refused within the time that the cluster keeps Events for, mostly an hour.
pub async fn of_jobs(client: &Client, namespace: &str, deadline: Duration) -> Result<Vec<Refused>, ApiError> {
    let url = format!(
        "/api/v1/namespaces/{}/events?fieldSelector=reason%3DFailedCreate%2CinvolvedObject.kind%3DJob&limit={EVENTS}",
        escape(namespace)
    );
    let request = http::Request::get(url).body(Vec::new());
    let request =
        request.map_err(|_| ApiError::new(RetryClass::Invalid, "the name of the namespace makes no path"))?;
    let list: List = call(deadline, client.request(request)).await?;
    let refused = list.items.into_iter().filter(|event| event.involved_object.kind == "Job");
    Ok(refused.filter_map(|event| event.refused(namespace)).collect())
}

impl Event {
    fn refused(self, namespace: &str) -> Option<Refused> {
        let at = self.last_timestamp.or(self.metadata.creation_timestamp)?;
        // The controller puts this before the server's words.
        let message = self.message.trim_start_matches("Error creating: ");
        let message: String = clean(message).chars().take(LONGEST).collect();
        Some(Refused { namespace: namespace.to_owned(), job: self.involved_object.name, at, message })
    }
}

#[cfg(test)]
mod tests {
    use axum::{Json, Router, extract::RawQuery, routing::get};
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::Server;

    #[tokio::test]
    async fn what_jobs_were_refused_is_told_in_the_servers_words() {
        let event = |job: &str, kind: &str, message: &str, last: Value| {
            json!({
                "metadata": {"name": "e", "creationTimestamp": "2026-08-01T09:00:00Z"},
                "involvedObject": {"kind": kind, "name": job}, "message": message, "lastTimestamp": last,
            })
        };
        let quota = "Error creating: pods \"a-0\" is forbidden: exceeded quota: few";
        let items = json!([
            event("a", "Job", quota, json!("2026-08-01T09:30:00Z")),
            event("b", "ReplicaSet", quota, json!("2026-08-01T09:30:00Z")),
            event("c", "Job", &"x\n".repeat(2000), Value::Null),
        ]);
        let answer = move |RawQuery(query): RawQuery| {
            let items = items.clone();
            async move {
                assert!(query.is_some_and(|query| query.starts_with("fieldSelector=reason%3DFailedCreate")));
                Json(json!({"kind": "EventList", "items": items}))
            }
        };
        let server = Server::start(Router::new().route("/api/v1/namespaces/team/events", get(answer)));
        let told = of_jobs(&server.client().kube(), "team", Duration::from_secs(5)).await.expect("an answer");
        let first = Refused {
            namespace: "team".to_owned(),
            job: "a".to_owned(),
            at: "2026-08-01T09:30:00Z".parse().expect("a time"),
            message: "pods \"a-0\" is forbidden: exceeded quota: few".to_owned(),
        };
        assert_eq!(told.first(), Some(&first));
        assert_eq!(
            told.get(1).map(|one| (one.job.as_str(), one.message.chars().count())),
            Some(("c", LONGEST))
        );
        assert_eq!(told.len(), 2);
    }
}
