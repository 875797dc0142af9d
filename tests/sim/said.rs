//! What the command line and fedqd say to each other is held against the document: the check can fail.

use axum::{Json, Router, routing::get};
use serde_json::json;
use tokio::net::TcpListener;

use super::checked;

#[tokio::test]
async fn an_answer_that_the_document_does_not_have_is_told() {
    let version =
        get(async || ([("etag", "\"1\"")], Json(json!({"version": "1", "api": "v1", "mood": "good"}))));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, Router::new().route("/api/v1/version", version)).into_future());
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_fedq"));
    command.arg("version").env("FEDQ_SERVER", checked::before(&server)).env("FEDQ_TOKEN", "any");
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = checked::take(&server).join("\n");
    assert!(told.contains("mood") && told.contains("/api/v1/version"), "{told}");
    assert_eq!(checked::take(&server), [""; 0], "it is told once");
}
