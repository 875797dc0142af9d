//! Watches: what they tell, in which order, and how they end.

use anyhow::Result;
use serde_json::{Value, json};

use super::expect::{absent, any, has};
use super::stage::{CLAIMS, MERGE, Stage, claim, number, version};
use super::subject::Subject;

/// Of each object its metadata alone.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    custom_resources(stage).await?;
    too_old(stage, "application/json").await?;
    too_old(stage, METADATA).await?;
    of(stage, &Subject::of(stage)).await
}

pub async fn of(stage: &Stage<'_>, subject: &Subject<'_>) -> Result<()> {
    in_order(stage, subject).await?;
    selected(stage, subject).await?;
    initial_events(stage, subject).await?;
    refused(stage, subject).await;
    tokio::try_join!(from_nothing(stage, subject), bookmarks(stage, subject), of_metadata(stage, subject))?;
    Ok(())
}

async fn in_order(stage: &Stage<'_>, subject: &Subject<'_>) -> Result<()> {
    let path = &subject.path;
    let before = stage.get(path).gives(200, json!({"items": []})).await;
    let made = subject.make("a").await;
    let mut watch = stage.watch(&format!("{path}?watch=1&resourceVersion={}", version(&before))).await?;
    stage.check(watch.status == 200, || format!("a watch answers {}", watch.status));
    let name = subject.name("a");
    let whole = json!({
        "kind": subject.kind,
        "apiVersion": "v1",
        "metadata": {"name": name, "uid": made["metadata"]["uid"], "resourceVersion": version(&made)},
    });
    watch.gives("ADDED", whole).await;

    let changed = subject.mark("a", true).await;
    let mut shown = subject.shows(true);
    shown["metadata"]["resourceVersion"] = json!(version(&changed));
    watch.gives("MODIFIED", shown).await;
    subject.make("b").await;
    watch.gives("ADDED", json!({"metadata": {"name": subject.name("b")}})).await;
    subject.remove("a").await;
    // The last state, with the version of the deletion.
    let mut last = subject.shows(true);
    last["metadata"]["name"] = json!(name);
    let gone = watch.gives("DELETED", last).await;
    stage.check(number(&changed) < number(&gone), || "a deletion has no version of its own".to_owned());

    let mut later = stage.watch(&format!("{path}?watch=true&resourceVersion={}", version(&changed))).await?;
    later.gives("ADDED", json!({"metadata": {"name": subject.name("b")}})).await;
    later.gives("DELETED", json!({"metadata": {"name": name, "resourceVersion": version(&gone)}})).await;
    Ok(())
}

/// A selector turns a change into an addition or a deletion.
async fn selected(stage: &Stage<'_>, subject: &Subject<'_>) -> Result<()> {
    let path = &subject.path;
    let start = subject.make("s").await;
    let name = subject.name("s");
    let query = format!("watch=1&resourceVersion={}", version(&start));
    let mut marked = stage.watch(&format!("{path}?{query}&{}", subject.marked)).await?;
    let mut named = stage.watch(&format!("{path}?{query}&fieldSelector=metadata.name%3D{name}")).await?;
    let shows = |on: bool, version: &str| {
        let mut shown = subject.shows(on);
        shown["metadata"]["name"] = json!(name);
        shown["metadata"]["resourceVersion"] = json!(version);
        shown
    };
    let on = subject.mark("s", true).await;
    subject.mark("s", true).await;
    marked.gives("ADDED", shows(true, version(&on))).await;
    let patch = json!({"metadata": {"annotations": {"a": "b"}}});
    stage.patch(&subject.path_of("s"), MERGE, patch).gives(200, json!({"kind": subject.kind})).await;
    let patched = marked.gives("MODIFIED", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    let off = subject.mark("s", false).await;
    // What it was before, with the version of the change that took it out.
    marked.gives("DELETED", shows(true, version(&off))).await;
    for (shown, change) in [(true, &on), (true, &patched), (false, &off)] {
        named.gives("MODIFIED", shows(shown, version(change))).await;
    }
    let last = stage.delete(&subject.path_of("s")).gives(200, json!({"status": "Success"})).await;
    stage.check(last["details"]["uid"].is_string(), || format!("a deletion does not name the uid: {last}"));
    named.gives("DELETED", json!({"metadata": {"name": name}})).await;
    Ok(())
}

async fn custom_resources(stage: &Stage<'_>) -> Result<()> {
    let name = stage.named("w");
    let made = stage.make(CLAIMS, claim(&name)).await;
    let query = format!("watch=1&resourceVersion={}&fieldSelector=metadata.name%3D{name}", version(&made));
    let mut watch = stage.watch(&format!("{CLAIMS}?{query}")).await?;
    let patch = json!({"spec": {"nominalResources": {"cpu": "2"}}});
    stage
        .patch(&format!("{CLAIMS}/{name}"), MERGE, patch)
        .gives(200, json!({"metadata": {"generation": 2}}))
        .await;
    let changed = json!({
        "kind": "ClusterResourceClaim",
        "apiVersion": "galaxy.kubestellar.io/v1alpha1",
        "metadata": {"generation": 2},
    });
    watch.gives("MODIFIED", changed).await;
    stage.delete(&format!("{CLAIMS}/{name}")).gives(200, json!({"status": "Success"})).await;
    watch.gives("DELETED", json!({"metadata": {"name": name}})).await;
    Ok(())
}

/// What is there, as a list in the form of events, then a bookmark that says so, then what happens.
async fn initial_events(stage: &Stage<'_>, subject: &Subject<'_>) -> Result<()> {
    let path = &subject.path;
    let now = stage.get(path).gives(200, json!({"items": [{"metadata": {"name": subject.name("b")}}]})).await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    for from in
        [String::new(), format!("&resourceVersion={}", version(&now)), "&resourceVersion=0".to_owned()]
    {
        let mut watch = stage.watch(&format!("{path}?{query}{from}")).await?;
        watch.gives("ADDED", json!({"metadata": {"name": subject.name("b")}})).await;
        let end = json!({
            "kind": subject.kind,
            "apiVersion": "v1",
            "metadata": {
                "resourceVersion": any(),
                "annotations": {"k8s.io/initial-events-end": "true"},
                "name": absent(),
            },
        });
        let end = watch.gives("BOOKMARK", end).await;
        stage.check(number(&now) <= number(&end) || from == "&resourceVersion=0", || {
            "the bookmark is older than a list before".to_owned()
        });
        let name = subject.name("t");
        subject.make("t").await;
        watch.gives("ADDED", json!({"metadata": {"name": name}})).await;
        subject.remove("t").await;
        watch.gives("DELETED", json!({"metadata": {"name": name}})).await;
    }
    let invalid = json!({"reason": "Invalid", "code": 422, "message": has("sendInitialEvents")});
    stage.get(&format!("{path}?watch=1&sendInitialEvents=true")).gives(422, invalid).await;
    let unpaired = format!("{path}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    stage.get(&unpaired).refused(422, "Invalid", "sendInitialEvents").await;
    Ok(())
}

/// The answer itself is a success; its only event says that it is too late.
async fn too_old(stage: &Stage<'_>, accept: &str) -> Result<()> {
    // A server never remembers what was before the kind itself.
    let step = stage.get(&format!("{CLAIMS}?watch=1&resourceVersion=1")).header("accept", accept);
    let mut watch = step.watches().await?;
    stage.check(watch.status == 200, || format!("an expired watch answers {}", watch.status));
    let expired = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": has("too old resource version: 1 ("),
        "reason": "Expired",
        "code": 410,
    });
    watch.gives("ERROR", expired).await;
    watch.ends().await
}

async fn refused(stage: &Stage<'_>, subject: &Subject<'_>) {
    let path = &subject.path;
    let bad = json!({"kind": "Status", "reason": "BadRequest", "code": 400});
    stage
        .get(&format!("{path}?watch=1&resourceVersion=abc"))
        .gives(500, json!({"message": has("resourceVersion: Invalid value: \"abc\"")}))
        .await;
    stage.get(&format!("{path}?watch=1&labelSelector=a%20b")).gives(400, bad.clone()).await;
    stage.get(&format!("{path}?watch=1&timeoutSeconds=abc")).gives(400, bad).await;
    let forbidden = "resourceVersionMatch";
    stage
        .get(&format!("{path}?watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1"))
        .refused(422, "Invalid", forbidden)
        .await;
}

/// Without a version, and with version 0, a watch begins with what is there; it ends when its time is up.
async fn from_nothing(stage: &Stage<'_>, subject: &Subject<'_>) -> Result<()> {
    let name = subject.name("b");
    for from in ["", "&resourceVersion=0"] {
        let path =
            format!("{}?watch=1&timeoutSeconds=1{from}&fieldSelector=metadata.name%3D{name}", subject.path);
        let start = std::time::Instant::now();
        let mut watch = stage.watch(&path).await?;
        watch.gives("ADDED", json!({"metadata": {"name": name}})).await;
        watch.ends().await?;
        let took = start.elapsed().as_secs_f64();
        stage.check((0.9..5.0).contains(&took), || format!("a watch of one second took {took:.1} s"));
    }
    Ok(())
}

/// As informers ask that need no more than labels and owners.
async fn of_metadata(stage: &Stage<'_>, subject: &Subject<'_>) -> Result<()> {
    let part = |metadata: Value| {
        json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "spec": absent(),
            "status": absent(),
            "data": absent(),
        })
    };
    let path = &subject.path;
    let now = stage.get(path).gives(200, json!({"kind": format!("{}List", subject.kind)})).await;
    let made = subject.make("g").await;
    let name = subject.name("g");
    let query =
        format!("timeoutSeconds=5&fieldSelector=metadata.name%3D{name}&resourceVersion={}", version(&now));
    let path = format!("{path}?watch=1&allowWatchBookmarks=true&{query}");
    let mut watch = stage.get(&path).header("accept", METADATA).watches().await?;
    watch.gives("ADDED", part(json!({"name": name, "uid": made["metadata"]["uid"]}))).await;
    let changed = subject.mark("g", true).await;
    watch.gives("MODIFIED", part(json!({"name": name, "resourceVersion": version(&changed)}))).await;
    watch.gives("BOOKMARK", part(json!({"resourceVersion": any(), "name": absent()}))).await;
    watch.ends().await
}

/// Two seconds before its end a watch tells how far it has come, though nothing happened that it wants to see. Where
/// nothing happened to the kind at all since the version it began at, a real server has nothing to tell.
async fn bookmarks(stage: &Stage<'_>, subject: &Subject<'_>) -> Result<()> {
    let path = &subject.path;
    let now = stage.get(path).gives(200, json!({"kind": format!("{}List", subject.kind)})).await;
    let mark = json!({
        "kind": subject.kind,
        "apiVersion": "v1",
        "metadata": {"resourceVersion": any(), "name": absent(), "annotations": absent()},
    });
    let query = format!("fieldSelector=metadata.name%3Dnone&resourceVersion={}", version(&now));
    let mut watch =
        stage.watch(&format!("{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds=4&{query}")).await?;
    let other = subject.make("c").await;
    let mark = watch.gives("BOOKMARK", mark).await;
    stage.check(number(&other) <= number(&mark), || "a bookmark is older than what happened".to_owned());
    watch.ends().await?;
    let mut quiet = stage.watch(&format!("{path}?watch=1&timeoutSeconds=3&{query}")).await?;
    let event = quiet.event().await?;
    stage.check(event.is_none(), || format!("without being asked for: {event:?}"));
    Ok(())
}
