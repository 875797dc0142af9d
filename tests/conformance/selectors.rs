//! Selection by label and by field.

use anyhow::Result;
use serde_json::json;

use super::expect::has;
use super::stage::{CLAIMS, NODES, Stage, claim, labelled, node};
use super::subject::Subject;

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
    let subject = Subject::of(stage);
    by_label(stage, &subject).await;
    by_field(stage, &subject).await;
    refused(stage, &subject).await;
    let field = json!({"code": 400, "message": has("field label not supported: spec.nothing")});
    stage.get(&format!("{CLAIMS}?fieldSelector=spec.nothing%3D1")).gives(400, field).await;
    Ok(())
}

/// Nodes have the labels that their kubelets give them.
pub async fn of(stage: &Stage<'_>, subject: &Subject<'_>) -> Result<()> {
    for letter in ["a", "b", "c", "d"] {
        subject.make(letter).await;
    }
    subject.mark("c", true).await;
    let [a, b, c] = ["a", "b", "c"].map(|letter| subject.name(letter));
    let host = "kubernetes.io/hostname";
    for (selector, letters) in [
        (format!("{host}={a}"), &["a"][..]),
        (format!("{host}!={a}"), &["b", "c", "d"]),
        (format!("{host} in ({a},{c})"), &["a", "c"]),
        (format!("{host} notin ({a},{c}),{host}"), &["b", "d"]),
        (format!("!{host}"), &[]),
        (format!("kubernetes.io/os=linux,{host}={b}"), &["b"]),
    ] {
        selects(stage, subject, &format!("labelSelector={}", encoded(&selector)), letters).await;
    }
    for (selector, letters) in [
        (format!("metadata.name={b}"), &["b"][..]),
        (format!("metadata.name!={b}"), &["a", "c", "d"]),
        (format!("metadata.name={b},metadata.name={c}"), &[]),
        ("metadata.name=never-was".to_owned(), &[]),
        ("spec.unschedulable=true".to_owned(), &["c"]),
        ("spec.unschedulable=false".to_owned(), &["a", "b", "d"]),
        (format!("spec.unschedulable=true,metadata.name={b}"), &[]),
    ] {
        selects(stage, subject, &format!("fieldSelector={}", encoded(&selector)), letters).await;
    }
    let both = format!("limit=1&labelSelector={}&fieldSelector=spec.unschedulable%3Dfalse", encoded(host));
    selects(stage, subject, &both, &["a"]).await;
    refused(stage, subject).await;
    Ok(())
}

async fn by_label(stage: &Stage<'_>, subject: &Subject<'_>) {
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
        selects(stage, subject, &format!("labelSelector={}", encoded(selector)), names).await;
    }
}

async fn by_field(stage: &Stage<'_>, subject: &Subject<'_>) {
    for (selector, names) in [
        ("metadata.name=b", &["b"][..]),
        ("metadata.name==b", &["b"]),
        ("metadata.name!=b", &["a", "c", "d"]),
        ("metadata.name=b,metadata.name=c", &[]),
        ("type=Opaque", &["a", "b", "c", "d"]),
    ] {
        selects(stage, subject, &format!("fieldSelector={}", encoded(selector)), names).await;
    }
    selects(stage, subject, "fieldSelector=metadata.name%3Db&labelSelector=tier%3Dgold", &[]).await;

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

async fn refused(stage: &Stage<'_>, subject: &Subject<'_>) {
    let path = &subject.path;
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
    stage.get(&format!("{path}?fieldSelector=spec.nothing%3D1")).gives(400, field).await;
    stage.get(&format!("{path}?fieldSelector=metadata.name")).gives(400, bad("invalid selector")).await;
}

async fn selects(stage: &Stage<'_>, subject: &Subject<'_>, query: &str, letters: &[&str]) {
    let path = format!("{}?{query}", subject.path);
    let list = stage.get(&path).gives(200, json!({"kind": format!("{}List", subject.kind)})).await;
    let found = subject.letters(&list);
    stage.check(found == letters, || format!("{query} selects {found:?}, expected {letters:?}"));
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
