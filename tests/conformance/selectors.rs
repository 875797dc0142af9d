//! Selection by label and by field.

use anyhow::Result;
use serde_json::{Value, json};

use super::expect::has;
use super::stage::{CLAIMS, NODES, Stage, claim, labelled, node, text};

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    let path = stage.secrets();
    for (name, labels) in [
        ("a", json!({"tier": "gold", "fedq.dev/cluster": "one"})),
        ("b", json!({"tier": "silver"})),
        ("c", json!({"tier": ""})),
        ("d", json!({"other": "7"})),
    ] {
        stage.make(&path, labelled(name, labels)).await;
    }
    by_label(stage).await;
    by_field(stage).await;
    refused(stage).await;
    Ok(())
}

async fn by_label(stage: &Stage<'_>) {
    for (selector, names) in [
        ("tier=gold", &["a"][..]),
        ("tier==gold", &["a"]),
        ("tier!=gold", &["b", "c", "d"]),
        ("tier", &["a", "b", "c"]),
        ("!tier", &["d"]),
        ("tier in (gold, silver)", &["a", "b"]),
        ("tier notin (gold,silver)", &["c", "d"]),
        ("tier,tier!=gold", &["b", "c"]),
        ("tier=", &["c"]),
        ("fedq.dev/cluster=one,tier in (gold)", &["a"]),
        ("other>5", &["d"]),
        ("other<5", &[]),
        ("", &["a", "b", "c", "d"]),
    ] {
        selects(stage, &format!("labelSelector={}", encoded(selector)), names).await;
    }
}

async fn by_field(stage: &Stage<'_>) {
    for (selector, names) in [
        ("metadata.name=b", &["b"][..]),
        ("metadata.name==b", &["b"]),
        ("metadata.name!=b", &["a", "c", "d"]),
        ("metadata.name=b,metadata.name=c", &[]),
        ("type=Opaque", &["a", "b", "c", "d"]),
    ] {
        selects(stage, &format!("fieldSelector={}", encoded(selector)), names).await;
    }
    selects(stage, "fieldSelector=metadata.name%3Db&labelSelector=tier%3Dgold", &[]).await;

    let (one, other) = (stage.named("one"), stage.named("other"));
    stage.make(CLAIMS, claim(&one)).await;
    let mut elsewhere = claim(&other);
    elsewhere["spec"]["clusterName"] = json!(other);
    stage.make(CLAIMS, elsewhere).await;
    for (selector, name) in
        [(format!("metadata.name={one}"), &one), (format!("spec.clusterName={other}"), &other)]
    {
        let found = json!({"items": [{"metadata": {"name": name}}]});
        stage.get(&format!("{CLAIMS}?fieldSelector={}", encoded(&selector))).gives(200, found).await;
    }
    let mut cordoned = node(&one);
    cordoned["spec"] = json!({"unschedulable": true});
    stage.make(NODES, cordoned).await;
    let path =
        format!("{NODES}?fieldSelector={}", encoded(&format!("spec.unschedulable=true,metadata.name={one}")));
    stage.get(&path).gives(200, json!({"items": [{"metadata": {"name": one}}]})).await;
}

async fn refused(stage: &Stage<'_>) {
    let path = stage.secrets();
    let bad = |message: &str| {
        json!({
            "kind": "Status",
            "status": "Failure",
            "reason": "BadRequest",
            "message": has(message),
            "code": 400,
        })
    };
    for (selector, message) in [
        ("tier in", "unable to parse requirement: found '' expected: '('"),
        ("tier=gold silver", "found 'silver', expected: ',' or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("-x=1", "unable to parse requirement: <nil>: Invalid value: \"-x\": name part must consist of"),
        (
            "a>b",
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value \
             must be an integer",
        ),
    ] {
        stage.get(&format!("{path}?labelSelector={}", encoded(selector))).gives(400, bad(message)).await;
    }
    let field = bad("field label not supported: spec.nothing");
    stage.get(&format!("{path}?fieldSelector=spec.nothing%3D1")).gives(400, field.clone()).await;
    stage.get(&format!("{CLAIMS}?fieldSelector=spec.nothing%3D1")).gives(400, field).await;
    stage.get(&format!("{path}?fieldSelector=metadata.name")).gives(400, bad("invalid selector")).await;
}

async fn selects(stage: &Stage<'_>, query: &str, names: &[&str]) {
    let path = format!("{}?{query}", stage.secrets());
    let list = stage.get(&path).gives(200, json!({"kind": "SecretList"})).await;
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found: Vec<&str> = items.iter().map(|item: &Value| text(item, "/metadata/name")).collect();
    stage.check(found == names, || format!("{query} selects {found:?}, expected {names:?}"));
}

fn encoded(selector: &str) -> String {
    selector
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
