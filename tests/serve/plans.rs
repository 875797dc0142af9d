//! What was planned, for whoever asks what happened; and who asks.

use fedq_store::PlanCause;
use fedq_values::ids::ClusterName;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::server::{BOB, STRANGER, VIEWER, served};

#[tokio::test]
async fn everybody_with_a_token_is_told_who_they_are() {
    let served = served().await;
    let (status, told) = served.call(BOB, "GET /whoami", Value::Null).await;
    assert_eq!(
        (status, told),
        (200, json!({"user": "bob@example.com", "groups": ["research", "system:authenticated"]}))
    );
    // Also who may not read anything else.
    let (status, told) = served.call(STRANGER, "GET /whoami", Value::Null).await;
    assert_eq!((status, &told["user"]), (200, &json!("stranger")));
    assert_eq!(served.call(STRANGER, "GET /clusters", Value::Null).await.0, 403);
    assert_eq!(served.call("made-up", "GET /whoami", Value::Null).await.0, 401);
}

#[tokio::test]
async fn plans_are_told_of_a_cluster_or_of_a_queue() {
    let served = served().await;
    let cell = |queue: &str, effective: &str| {
        json!({
            "queue": queue, "flavor": "on-demand", "resource": "nvidia.com/gpu", "requested": "8",
            "effective": effective, "draining": "0", "term": effective, "reason": "Assigned",
        })
    };
    for (at, cluster, cells) in [
        (1, "east", vec![cell("team-a", "8"), cell("team-b", "8")]),
        (2, "west", vec![cell("team-b", "4")]),
        (3, "east", vec![cell("team-a", "6")]),
    ] {
        let cause = PlanCause {
            capacity_change: Some(format!("on-demand nvidia.com/gpu {at} (node a)")),
            who: (at == 3).then(|| "ann".to_owned()),
            ..PlanCause::default()
        };
        let (cluster, at) = (ClusterName::new(cluster).unwrap(), Timestamp::from_second(at).unwrap());
        served.store.record_plan(&cluster, &cause, &json!({"cells": cells}), at).await.unwrap();
    }
    let plans = async |query: &str| {
        let (status, told) = served.call(VIEWER, &format!("GET /plans{query}"), Value::Null).await;
        assert_eq!(status, 200, "{told}");
        let items = told["items"].as_array().unwrap().clone();
        let told: Vec<String> = items
            .iter()
            .map(|plan| {
                let cells = plan["report"]["cells"].as_array().unwrap().iter();
                let cells: Vec<_> =
                    cells.map(|cell| format!("{} {}", cell["queue"], cell["effective"])).collect();
                format!("{} {}", plan["cluster"], cells.join(", ")).replace('"', "")
            })
            .collect();
        (told, items)
    };
    let (told, items) = plans("").await;
    assert_eq!(told, ["east team-a 6", "west team-b 4", "east team-a 8, team-b 8"]);
    assert_eq!(
        (&items[0]["who"], &items[0]["cause"]),
        (&json!("ann"), &json!("on-demand nvidia.com/gpu 3 (node a)"))
    );
    assert_eq!(items[0]["report"]["cells"][0]["resource"], "gpu", "by its short name, as everywhere");
    assert_eq!(plans("?cluster=west").await.0, ["west team-b 4"]);
    assert_eq!(plans("?queue=team-a").await.0, ["east team-a 6", "east team-a 8"]);
    // The last plan took away what the one before had given, whichever page either is on.
    assert_eq!(plans("?queue=team-b&cluster=east").await.0, ["east ", "east team-b 8"]);
    assert_eq!(plans("?queue=team-b&limit=1").await.0, ["east "]);
    assert!(plans("?cluster=gone").await.0.is_empty());
    // A page with nothing of the queue has a next one all the same.
    let (_, page) = served.call(VIEWER, "GET /plans?queue=team-c&limit=1", Value::Null).await;
    assert_eq!((&page["items"], page["continue"].is_string()), (&json!([]), true));
    assert_eq!(served.call(VIEWER, "GET /plans?cluster=Not%20A%20Name", Value::Null).await.0, 400);
    assert_eq!(served.call(STRANGER, "GET /plans", Value::Null).await.0, 403);
}
