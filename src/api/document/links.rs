//! Which operations take what an answer holds.

use serde_json::{Value, json};

/// Where what an answer holds goes next: the field, the parameter that takes it, and the operations that have it.
type Link = (&'static str, &'static str, &'static str, &'static [&'static str]);

const LINKS: [Link; 10] = [
    ("submit_app_wrapper", "/id", "task", &["get_task", "task_events", "explain_task", "stop_task"]),
    ("submit_task", "/id", "task", &["get_task", "task_events", "explain_task", "stop_task"]),
    ("create_volume", "/id", "volume", &["get_volume", "delete_volume"]),
    ("adopt_volume", "/id", "volume", &["get_volume", "delete_volume"]),
    ("list_tasks", "/items/0/id", "task", &["get_task", "task_events", "explain_task", "stop_task"]),
    ("list_volumes", "/items/0/id", "volume", &["get_volume", "delete_volume"]),
    (
        "list_clusters",
        "/items/0/name",
        "cluster",
        &["get_cluster", "check_cluster", "cordon_cluster", "uncordon_cluster"],
    ),
    ("list_capacity", "/items/0/cluster", "cluster", &["capacity_history"]),
    ("list_claims", "/items/0/name", "claim", &["get_claim", "claim_history", "assign", "diff_claim"]),
    ("list_queues", "/items/0/name", "queue", &["explain_queue", "set_base"]),
];

pub fn add(id: &str, operation: &mut Value) {
    let status = if operation["responses"].get("201").is_some() { "201" } else { "200" };
    for (_, field, parameter, ways) in LINKS.iter().filter(|(from, ..)| *from == id) {
        for way in *ways {
            let mut link = json!({"operationId": way});
            link["parameters"][*parameter] = format!("$response.body#{field}").into();
            operation["responses"][status]["links"][*way] = link;
        }
    }
    // Its two parts are in one item.
    if id == "list_placements" {
        for way in ["get_placement", "explain_placement"] {
            operation["responses"][status]["links"][way] = json!({
                "operationId": way,
                "parameters": {
                    "namespace": "$response.body#/items/0/namespace", "name": "$response.body#/items/0/name",
                },
            });
        }
    }
    if id == "get_claim" {
        // An edit of what was read.
        operation["responses"][status]["links"]["edit_claim"] = json!({
            "operationId": "edit_claim",
            "parameters": {"claim": "$request.path.claim", "If-Match": "$response.header.ETag"},
            "requestBody": "$response.body#/spec",
        });
    }
}
