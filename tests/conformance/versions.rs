//! What resourceVersion means when reading.

use anyhow::Result;
use serde_json::{Value, json};

use super::expect::{any, has};
use super::stage::{Stage, number, secret, version};

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    let path = stage.secrets();
    let first = stage.make(&path, secret("first")).await;
    let second = stage.make(&path, secret("second")).await;
    stage.check(number(&first) < number(&second), || "a later write has no higher version".to_owned());
    let all = stage.get(&path).gives(200, json!({"items": [any(), any()]})).await;
    stage.check(number(&second) <= number(&all), || "a list is older than what it holds".to_owned());
    past(stage, version(&first)).await;
    not_older(stage, version(&second)).await;
    future(stage, number(&all)).await;
    refused(stage).await;
    Ok(())
}

fn one() -> Value {
    json!({"items": [{"metadata": {"name": "first"}}]})
}

fn two() -> Value {
    json!({"items": [{"metadata": {"name": "first"}}, {"metadata": {"name": "second"}}]})
}

async fn past(stage: &Stage<'_>, first: &str) {
    let path = stage.secrets();
    let exact = stage
        .get(&format!("{path}?resourceVersion={first}&resourceVersionMatch=Exact"))
        .gives(200, one())
        .await;
    stage
        .check(version(&exact) == first, || format!("the list of version {first} is of {}", version(&exact)));
    // With a limit and no match, a version is exact too.
    let limited = stage.get(&format!("{path}?resourceVersion={first}&limit=10")).gives(200, one()).await;
    stage.check(version(&limited) == first, || {
        format!("the limited list of {first} is of {}", version(&limited))
    });
}

async fn not_older(stage: &Stage<'_>, second: &str) {
    let path = stage.secrets();
    for query in [
        format!("resourceVersion={second}"),
        format!("resourceVersion={second}&resourceVersionMatch=NotOlderThan"),
        format!("resourceVersion={second}&resourceVersionMatch=NotOlderThan&limit=10"),
    ] {
        stage.get(&format!("{path}?{query}")).gives(200, two()).await;
    }
    // Once a version has been seen, a list from memory has it too.
    stage.get(&format!("{path}?resourceVersion=0")).gives(200, two()).await;
    stage.get(&format!("{path}?resourceVersion=0&limit=1")).gives(200, two()).await;
    stage
        .get(&format!("{path}/first?resourceVersion=0"))
        .gives(200, json!({"metadata": {"name": "first"}}))
        .await;
    stage.get(&format!("{path}/first?resourceVersion={second}")).gives(200, json!({"kind": "Secret"})).await;
}

/// As after a restored backup: the server waits a while for it, then says so.
async fn future(stage: &Stage<'_>, now: u64) {
    let path = stage.secrets();
    let later = now + 1_000_000;
    let too_large = json!({
        "kind": "Status",
        "status": "Failure",
        "message": has(&format!("Timeout: Too large resource version: {later}, current: ")),
        "reason": "Timeout",
        "details": {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        "code": 504,
    });
    let queries = [
        format!("{path}?resourceVersion={later}"),
        format!("{path}?resourceVersion={later}&limit=1"),
        format!("{path}/first?resourceVersion={later}"),
    ];
    let [whole, limited, single] = &queries;
    tokio::join!(
        stage.get(whole).gives(504, too_large.clone()),
        stage.get(limited).gives(504, too_large.clone()),
        stage.get(single).gives(504, too_large.clone()),
    );
}

async fn refused(stage: &Stage<'_>) {
    let path = stage.secrets();
    let bad = "abc";
    stage.get(&format!("{path}?resourceVersion=abc")).refused(400, "BadRequest", bad).await;
    for query in [
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=Exact&resourceVersion=0",
        "resourceVersionMatch=Nonsense&resourceVersion=1",
    ] {
        let invalid = "resourceVersionMatch";
        stage.get(&format!("{path}?{query}")).refused(422, "Invalid", invalid).await;
    }
}
