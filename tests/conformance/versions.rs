//! What resourceVersion means when reading.

use anyhow::Result;
use serde_json::{Value, json};

use super::expect::{any, has};
use super::stage::{Stage, number, version};
use super::subject::Subject;

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    of(stage, &Subject::of(stage)).await
}

pub async fn of(stage: &Stage<'_>, subject: &Subject<'_>) -> Result<()> {
    let path = &subject.path;
    let first = subject.make("first").await;
    let second = subject.make("second").await;
    stage.check(number(&first) < number(&second), || "a later write has no higher version".to_owned());
    let all = stage.get(path).gives(200, json!({"items": [any(), any()]})).await;
    stage.check(number(&second) <= number(&all), || "a list is older than what it holds".to_owned());
    past(stage, subject, version(&first)).await;
    not_older(stage, subject, version(&second)).await;
    future(stage, subject, number(&all)).await;
    refused(stage, subject).await;
    Ok(())
}

fn one(subject: &Subject<'_>) -> Value {
    json!({"items": [{"metadata": {"name": subject.name("first")}}]})
}

fn two(subject: &Subject<'_>) -> Value {
    let named = |letter| json!({"metadata": {"name": subject.name(letter)}});
    json!({"items": [named("first"), named("second")]})
}

async fn past(stage: &Stage<'_>, subject: &Subject<'_>, first: &str) {
    let path = &subject.path;
    let exact = stage
        .get(&format!("{path}?resourceVersion={first}&resourceVersionMatch=Exact"))
        .gives(200, one(subject))
        .await;
    stage
        .check(version(&exact) == first, || format!("the list of version {first} is of {}", version(&exact)));
    // With a limit and no match, a version is exact too.
    let limited =
        stage.get(&format!("{path}?resourceVersion={first}&limit=10")).gives(200, one(subject)).await;
    stage.check(version(&limited) == first, || {
        format!("the limited list of {first} is of {}", version(&limited))
    });
}

async fn not_older(stage: &Stage<'_>, subject: &Subject<'_>, second: &str) {
    let path = &subject.path;
    for query in [
        format!("resourceVersion={second}"),
        format!("resourceVersion={second}&resourceVersionMatch=NotOlderThan"),
        format!("resourceVersion={second}&resourceVersionMatch=NotOlderThan&limit=10"),
    ] {
        stage.get(&format!("{path}?{query}")).gives(200, two(subject)).await;
    }
    // Once a version has been seen, a list from memory has it too.
    stage.get(&format!("{path}?resourceVersion=0")).gives(200, two(subject)).await;
    stage.get(&format!("{path}?resourceVersion=0&limit=1")).gives(200, two(subject)).await;
    let one = subject.path_of("first");
    let named = json!({"kind": subject.kind, "metadata": {"name": subject.name("first")}});
    for version in ["0", second] {
        stage.get(&format!("{one}?resourceVersion={version}")).gives(200, named.clone()).await;
    }
}

/// As after a restored backup: the server waits a while for it, then says so.
async fn future(stage: &Stage<'_>, subject: &Subject<'_>, now: u64) {
    let path = &subject.path;
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
        format!("{}?resourceVersion={later}", subject.path_of("first")),
    ];
    let [whole, limited, single] = &queries;
    tokio::join!(
        stage.get(whole).gives(504, too_large.clone()),
        stage.get(limited).gives(504, too_large.clone()),
        stage.get(single).gives(504, too_large.clone()),
    );
}

async fn refused(stage: &Stage<'_>, subject: &Subject<'_>) {
    let path = &subject.path;
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
