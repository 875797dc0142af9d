//! Lists and their pages.

use anyhow::Result;
use serde_json::json;

use super::expect::{absent, any, has};
use super::stage::{CLAIMS, Stage, claim, text, version};
use super::subject::Subject;

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    let subject = Subject::of(stage);
    // A namespace that is not there has no objects, and is no error.
    stage.get("/api/v1/namespaces/never-was/secrets").gives(200, json!({"items": []})).await;
    custom_resources(stage).await;
    of(stage, &subject).await?;
    let everywhere = format!("/api/v1/secrets?fieldSelector=metadata.namespace%3D{}", stage.name);
    let all = stage.get(&everywhere).gives(200, json!({"kind": "SecretList"})).await;
    let all = subject.letters(&all);
    stage.check(all.contains(&"a") && all.contains(&"later"), || format!("of all namespaces {all:?}"));
    Ok(())
}

pub async fn of(stage: &Stage<'_>, subject: &Subject<'_>) -> Result<()> {
    shape(stage, subject).await;
    pages(stage, subject).await;
    wrong_pages(stage, subject).await;
    expired(stage, subject).await
}

async fn shape(stage: &Stage<'_>, subject: &Subject<'_>) {
    let path = &subject.path;
    let empty = json!({
        "kind": format!("{}List", subject.kind),
        "apiVersion": "v1",
        "metadata": {"resourceVersion": any(), "continue": absent(), "remainingItemCount": absent()},
        "items": [],
    });
    stage.get(path).gives(200, empty).await;
    for letter in ["c", "a", "e", "b", "d", "g", "f"] {
        subject.make(letter).await;
    }
    let all = stage.get(path).gives(200, json!({"items": any()})).await;
    let letters = subject.letters(&all);
    stage.check(letters == ["a", "b", "c", "d", "e", "f", "g"], || format!("order {letters:?}"));
    // Kinds of the API server's own are not named again by each item.
    let bare = json!({"kind": absent(), "apiVersion": absent(), "metadata": {"name": subject.name("a")}});
    stage.check(super::expect::differences(&bare, all.pointer("/items/0")).is_empty(), || {
        format!("item {}", all["items"][0])
    });
}

async fn pages(stage: &Stage<'_>, subject: &Subject<'_>) {
    let path = &subject.path;
    let first = json!({"metadata": {"continue": any(), "remainingItemCount": 4, "resourceVersion": any()}});
    let first = stage.get(&format!("{path}?limit=3")).gives(200, first).await;
    stage.check(subject.letters(&first) == ["a", "b", "c"], || {
        format!("first page {:?}", subject.letters(&first))
    });

    // What happens between the pages is not on them.
    subject.make("cc").await;
    subject.mark("f", true).await;
    subject.remove("e").await;
    let next = format!("{path}?limit=3&continue={}", text(&first, "/metadata/continue"));
    let same =
        json!({"metadata": {"continue": any(), "remainingItemCount": 1, "resourceVersion": version(&first)}});
    let second = stage.get(&next).gives(200, same).await;
    stage.check(subject.letters(&second) == ["d", "e", "f"], || {
        format!("second page {:?}", subject.letters(&second))
    });
    let then = super::expect::differences(&subject.shows(false), second.pointer("/items/2"));
    stage.check(then.is_empty(), || format!("on the second page {then:?}"));
    let last = format!("{path}?limit=3&continue={}", text(&second, "/metadata/continue"));
    let end = json!({
        "metadata": {
            "continue": absent(),
            "remainingItemCount": absent(),
            "resourceVersion": version(&first),
        },
    });
    let third = stage.get(&last).gives(200, end).await;
    stage.check(subject.letters(&third) == ["g"], || format!("last page {:?}", subject.letters(&third)));

    // With a selector nobody knows how many remain.
    let selected = json!({"metadata": {"continue": any(), "remainingItemCount": absent()}});
    let selected = stage.get(&format!("{path}?limit=2&{}", subject.all)).gives(200, selected).await;
    stage.check(subject.letters(&selected) == ["a", "b"], || {
        format!("selected page {:?}", subject.letters(&selected))
    });
    let whole = json!({"metadata": {"continue": absent(), "remainingItemCount": absent()}});
    stage.get(&format!("{path}?limit=500")).gives(200, whole).await;
}

async fn custom_resources(stage: &Stage<'_>) {
    for name in ["x", "y"] {
        stage.make(CLAIMS, claim(&stage.named(name))).await;
    }
    let one = json!({"metadata": {"continue": any()}, "kind": "ClusterResourceClaimList", "items": [
        {"apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterResourceClaim"}
    ]});
    stage.get(&format!("{CLAIMS}?limit=1")).gives(200, one).await;
}

async fn wrong_pages(stage: &Stage<'_>, subject: &Subject<'_>) {
    let path = &subject.path;
    let unreadable = "continue key is not valid";
    stage.get(&format!("{path}?limit=3&continue=nonsense")).refused(400, "BadRequest", unreadable).await;
    let first =
        stage.get(&format!("{path}?limit=3")).gives(200, json!({"metadata": {"continue": any()}})).await;
    let both = format!("{path}?limit=3&resourceVersion=1&continue={}", text(&first, "/metadata/continue"));
    stage.get(&both).refused(400, "BadRequest", "resource version").await;
}

async fn expired(stage: &Stage<'_>, subject: &Subject<'_>) -> Result<()> {
    let path = &subject.path;
    let first =
        stage.get(&format!("{path}?limit=2")).gives(200, json!({"metadata": {"continue": any()}})).await;
    let old = version(&first).to_owned();
    subject.make("later").await;
    (stage.server.forget)().await?;
    let gone = json!({
        "kind": "Status",
        "status": "Failure",
        "reason": "Expired",
        "message": has("The provided continue parameter is too old"),
        "metadata": {"continue": any()},
        "code": 410,
    });
    let next = format!("{path}?limit=2&continue={}", text(&first, "/metadata/continue"));
    // Servers of today keep whole lists in memory, and drop them some seconds after the store has forgotten.
    let answer = stage.becomes(&next, 410, gone).await;
    // It comes with a token to go on with, at the price of a list that is not of one moment.
    let rest = format!("{path}?limit=500&continue={}", text(&answer, "/metadata/continue"));
    let rest = stage.get(&rest).gives(200, json!({"metadata": {"continue": absent()}})).await;
    stage.check(subject.letters(&rest).contains(&"later"), || {
        format!("the rest {:?}", subject.letters(&rest))
    });

    let exact = format!("{path}?resourceVersion={old}&resourceVersionMatch=Exact");
    let gone = json!({"reason": "Expired", "message": has("too old"), "code": 410});
    stage.becomes(&exact, 410, gone).await;
    Ok(())
}
