//! What the tests do to the store beneath an API server.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::control_plane::base64;
use super::web;

/// Forgets all versions but the present one, the way an API server has it done each five minutes: first it is written
/// down, for all the servers of a cluster to see, then it is done. They look at what is written each 15 s.
pub async fn compact(url: &str) -> Result<()> {
    let client = web::Client::new(url, None)?;
    let key = base64(b"compact_rev_key");
    let found = ask(&client, "range", json!({"key": key})).await?;
    let revision =
        found.pointer("/header/revision").and_then(Value::as_str).context("no revision")?.to_owned();
    ask(&client, "put", json!({"key": key, "value": base64(revision.as_bytes())})).await?;
    ask(&client, "compaction", json!({"revision": revision})).await?;
    Ok(())
}

async fn ask(client: &web::Client, what: &str, body: Value) -> Result<Value> {
    let request = http::Request::post(format!("/v3/kv/{what}"));
    let answer = client.send(request, body.to_string()).await?;
    ensure!(answer.status == 200, "etcd: {what}: {} {}", answer.status, answer.body);
    Ok(serde_json::from_str(&answer.body)?)
}
