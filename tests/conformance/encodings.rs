//! In which form answers come: JSON, protobuf, tables, compressed; and how many at once.

use std::io::Read;
use std::time::Duration;

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::expect::{absent, any, has};
use super::stage::{CLAIMS, MERGE, NODES, QUEUES, Stage, claim, node, secret, text};
use super::subject::Subject;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Compressed from here on.
const COMPRESSED_FROM: usize = 128 * 1024;

/// A connection carries this many requests at once, watches among them; more wait unsent.
const STREAMS: usize = 100;

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    let name = stage.named("n");
    stage.make(NODES, node(&name)).await;
    protobuf(stage, &name).await?;
    let either = format!("{PROTOBUF},application/json");
    let answer = stage
        .get(CLAIMS)
        .header("accept", &either)
        .answers(200, json!({"kind": "ClusterResourceClaimList"}))
        .await;
    stage.check(answer.is_some_and(|answer| answer.header("content-type") == "application/json"), || {
        "a list of claims is no JSON".to_owned()
    });
    unknown(stage).await;
    tables(stage).await;
    compressed(stage).await?;
    streams(stage).await
}

/// Lists that are just large enough to be compressed, and just too small; and parts of nodes.
pub async fn of(stage: &Stage<'_>, subject: &Subject<'_>) -> Result<()> {
    for letter in ["a", "b", "c", "d", "e", "f", "g", "p", "s", "t"] {
        subject.make(letter).await;
    }
    protobuf(stage, &subject.name("b")).await?;
    let mut seen = [false, false];
    for limit in 6..=10 {
        for accept in ["application/json", PROTOBUF] {
            let path = format!("{NODES}?limit={limit}");
            let ask = || stage.get(&path).header("accept", accept);
            let plain = ask().answers(200, json!(null)).await.context("no list")?;
            let size = plain.body.len();
            let zips = COMPRESSED_FROM <= size;
            seen[usize::from(zips)] = true;
            let packed = ask().header("accept-encoding", "gzip").answers(200, json!(null)).await;
            let found = packed.context("no list")?.header("content-encoding").to_owned();
            stage.check(found == if zips { "gzip" } else { "" }, || {
                format!("{size} bytes in {accept} are encoded {found:?}")
            });
        }
    }
    stage.check(seen == [true, true], || "all lists are large, or all small".to_owned());

    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let row = |letter| json!({"cells": any(), "object": {"kind": "PartialObjectMetadata", "metadata": {"name": subject.name(letter)}}});
    let rows = json!({
        "kind": "Table",
        "metadata": {"continue": any(), "remainingItemCount": 8, "resourceVersion": any()},
        "rows": [row("a"), row("b")],
    });
    let first = stage.get(&format!("{NODES}?limit=2")).header("accept", table).gives(200, rows).await;
    // A token is one of the list, in whatever form it goes on.
    let next = format!("{NODES}?limit=1&continue={}", text(&first, "/metadata/continue"));
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let part = json!({
        "kind": "PartialObjectMetadataList",
        "metadata": {"remainingItemCount": 7, "resourceVersion": first["metadata"]["resourceVersion"]},
        "items": [{"metadata": {"name": subject.name("c")}, "spec": absent(), "status": absent()}],
    });
    stage.get(&next).header("accept", metadata).gives(200, part).await;
    stage
        .get(&subject.path_of("c"))
        .header("accept", table)
        .gives(200, json!({"kind": "Table", "rows": [row("c")]}))
        .await;
    let watch = format!("{NODES}?watch=1&timeoutSeconds=1");
    let told = stage.get(&watch).header("accept", PROTOBUF).answers(200, json!(null)).await;
    let told = told.context("no watch")?;
    stage.check(100_000 < told.body.len(), || format!("{} bytes of ten nodes", told.body.len()));
    Ok(())
}

async fn protobuf(stage: &Stage<'_>, name: &str) -> Result<()> {
    for path in [NODES.to_owned(), format!("{NODES}/{name}"), stage.secrets()] {
        let answer = stage.get(&path).header("accept", PROTOBUF).answers(200, json!(null)).await;
        let answer = answer.context("no protobuf")?;
        stage.check(answer.body.starts_with(b"k8s\0"), || format!("{path} does not begin with the magic"));
        let kind = answer.header("content-type");
        stage.check(kind == PROTOBUF, || format!("{path} is {kind}"));
    }
    let path = format!("{NODES}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3D{name}");
    let answer = stage
        .get(&path)
        .header("accept", "application/vnd.kubernetes.protobuf;stream=watch")
        .answers(200, json!(null))
        .await;
    let answer = answer.context("no watch")?;
    stage.check(answer.header("content-type") == "application/vnd.kubernetes.protobuf;stream=watch", || {
        format!("a watch is {}", answer.header("content-type"))
    });
    // A length, then a WatchEvent: field 1 its type.
    let (length, rest) = answer.body.split_first_chunk().context("an empty watch")?;
    let length = u32::from_be_bytes(*length) as usize;
    stage.check(rest.get(..length).is_some_and(|event| event.starts_with(b"\x0a\x05ADDED\x12")), || {
        "no frame of an event".to_owned()
    });
    // Errors come in the same form, unless they precede all forms.
    let missing =
        stage.get(&format!("{NODES}/never-was")).header("accept", PROTOBUF).answers(404, json!(null)).await;
    stage.check(missing.is_some_and(|answer| answer.body.starts_with(b"k8s\0")), || {
        "a 404 is no protobuf".to_owned()
    });
    Ok(())
}

async fn unknown(stage: &Stage<'_>) {
    let not_acceptable = "only the following media types are accepted: application/json, application/yaml";
    stage.get(QUEUES).header("accept", "text/html").refused(406, "NotAcceptable", not_acceptable).await;
    // Refused in the very form that was asked for.
    let refused = stage.get(CLAIMS).header("accept", PROTOBUF).answers(406, json!(null)).await;
    stage.check(refused.is_some_and(|answer| answer.body.starts_with(b"k8s\0")), || {
        "no protobuf Status".to_owned()
    });
    let not_acceptable = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    stage
        .get(&stage.secrets())
        .header("accept", "application/nonsense")
        .refused(406, "NotAcceptable", not_acceptable)
        .await;
    let unsupported = json!({
        "kind": "Status",
        "reason": "UnsupportedMediaType",
        "message": has("the body of the request was in an unknown format - accepted media types include: application/json"),
        "code": 415,
    });
    stage
        .post(&stage.secrets(), secret("a"))
        .header("content-type", "text/plain")
        .gives(415, unsupported.clone())
        .await;
    stage
        .post(CLAIMS, claim(&stage.named("x")))
        .header("content-type", "text/plain")
        .gives(415, unsupported)
        .await;
    stage
        .patch(&format!("{}/a", stage.secrets()), "text/plain", json!({}))
        .refused(415, "UnsupportedMediaType", "")
        .await;
    for accept in ["*/*", "text/html, */*;q=0.1"] {
        let answer = stage
            .get(&stage.secrets())
            .header("accept", accept)
            .answers(200, json!({"kind": "SecretList"}))
            .await;
        stage.check(answer.is_some_and(|answer| answer.header("content-type") == "application/json"), || {
            format!("{accept:?} gives no JSON")
        });
    }
    let yaml =
        stage.get(&stage.secrets()).header("accept", "application/yaml").answers(200, json!(null)).await;
    stage.check(
        yaml.is_some_and(|answer| answer.text().starts_with("apiVersion: v1\nitems: []\nkind: SecretList\n")),
        || "no YAML".to_owned(),
    );
    let body = format!("{{\"metadata\": {{\"name\": \"{}\"}}}}", "long");
    let step = stage
        .post(&stage.secrets(), json!(null))
        .header("content-type", "application/json; charset=utf-8")
        .body(&body);
    step.gives(201, json!({"metadata": {"name": "long"}})).await;
    stage
        .patch(&format!("{}/long", stage.secrets()), MERGE, json!({"data": {"k": "no base64!"}}))
        .refused(422, "Invalid", "patch: Invalid value: ")
        .await;
}

/// What `kubectl get` prints.
async fn tables(stage: &Stage<'_>) {
    let name = stage.named("t");
    stage.make(CLAIMS, claim(&name)).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let column = |name: &str| json!({"name": name, "type": any()});
    let table = json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": any()},
        "columnDefinitions": super::expect::with(json!([column("Name"), column("Cluster"), column("Ready"), column("Age")])),
        "rows": [{"cells": any(), "object": {"kind": "PartialObjectMetadata", "metadata": {"name": name}}}],
    });
    let path = format!("{CLAIMS}?fieldSelector=metadata.name%3D{name}");
    let table = stage.get(&path).header("accept", accept).gives(200, table).await;
    let cells = &table["rows"][0]["cells"];
    stage.check(cells[0] == *name && cells[1] == "somewhere", || format!("cells {cells}"));
    stage
        .get(&format!("{CLAIMS}/{name}"))
        .header("accept", accept)
        .gives(200, json!({"kind": "Table", "rows": [any()]}))
        .await;
    let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let list = json!({
        "kind": "PartialObjectMetadataList",
        "items": [{"metadata": {"name": name}, "spec": absent()}],
    });
    stage.get(&path).header("accept", accept).gives(200, list).await;
}

async fn compressed(stage: &Stage<'_>) -> Result<()> {
    let data = "QUJD".repeat(COMPRESSED_FROM / 8);
    for name in ["large1", "large2", "large3"] {
        stage.make(&stage.secrets(), json!({"metadata": {"name": name}, "data": {"k": data}})).await;
    }
    let list = stage.get(&stage.secrets()).header("accept-encoding", "gzip").answers(200, json!(null)).await;
    let list = list.context("no list")?;
    stage.check(list.header("content-encoding") == "gzip", || {
        format!("a large list is encoded {:?}", list.header("content-encoding"))
    });
    let mut text = String::new();
    GzDecoder::new(&list.body[..]).read_to_string(&mut text).context("the list is no gzip")?;
    let items = serde_json::from_str::<Value>(&text)?["items"].as_array().map_or(0, Vec::len);
    stage.check(4 <= items, || format!("{items} items in the compressed list"));
    stage.check(COMPRESSED_FROM < text.len(), || "the list is not large".to_owned());
    let plain = stage.get(&stage.secrets()).answers(200, json!({"kind": "SecretList"})).await;
    stage.check(plain.is_some_and(|plain| plain.header("content-encoding").is_empty()), || {
        "compressed without being asked".to_owned()
    });
    let small = stage
        .get(&format!("{}/long", stage.secrets()))
        .header("accept-encoding", "gzip")
        .answers(200, json!({"kind": "Secret"}))
        .await;
    stage.check(small.is_some_and(|small| small.header("content-encoding").is_empty()), || {
        "a small object is compressed".to_owned()
    });
    Ok(())
}

async fn streams(stage: &Stage<'_>) -> Result<()> {
    let fresh = Stage::open(stage.server, "streams").await?;
    let path = format!("{}?watch=1&resourceVersion=0", fresh.secrets());
    let mut watches = Vec::new();
    for _ in 0..STREAMS {
        watches.push(fresh.watch(&path).await?);
    }
    let waits = tokio::time::timeout(Duration::from_secs(1), fresh.get("/version").send()).await;
    fresh.check(waits.is_err(), || format!("more than {STREAMS} streams on one connection"));
    drop(watches);
    fresh.get("/version").gives(200, json!({"major": "1"})).await;
    fresh.close(Ok(())).await
}
