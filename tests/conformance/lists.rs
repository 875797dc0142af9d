//! Lists and their pages.

use anyhow::Result;
use serde_json::{Value, json};

use super::expect::{absent, any, has};
use super::stage::{CLAIMS, Stage, claim, labelled, secret, text, version};

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    shape(stage).await;
    pages(stage).await;
    custom_resources(stage).await;
    wrong_pages(stage).await;
    expired(stage).await
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| text(item, "/metadata/name")).collect()
}

async fn shape(stage: &Stage<'_>) {
    let empty = json!({
        "kind": "SecretList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": any(), "continue": absent(), "remainingItemCount": absent()},
        "items": [],
    });
    stage.get(&stage.secrets()).gives(200, empty).await;
    // A namespace that is not there has no objects, and is no error.
    stage.get("/api/v1/namespaces/never-was/secrets").gives(200, json!({"items": []})).await;
    for name in ["c", "a", "e", "b", "d", "g", "f"] {
        stage.make(&stage.secrets(), labelled(name, json!({"paged": "yes"}))).await;
    }
    let all = stage.get(&stage.secrets()).gives(200, json!({"items": any()})).await;
    stage.check(names(&all) == ["a", "b", "c", "d", "e", "f", "g"], || format!("order {:?}", names(&all)));
    // Kinds of the API server's own are not named again by each item.
    let bare =
        json!({"kind": absent(), "apiVersion": absent(), "metadata": {"name": "a", "namespace": stage.name}});
    stage.check(super::expect::differences(&bare, all.pointer("/items/0")).is_empty(), || {
        format!("item {}", all["items"][0])
    });
    let everywhere = format!("/api/v1/secrets?fieldSelector=metadata.namespace%3D{}", stage.name);
    let all = stage.get(&everywhere).gives(200, json!({"kind": "SecretList"})).await;
    stage.check(names(&all).len() == 7, || format!("of all namespaces {:?}", names(&all)));
}

async fn pages(stage: &Stage<'_>) {
    let path = stage.secrets();
    let first = json!({"metadata": {"continue": any(), "remainingItemCount": 4, "resourceVersion": any()}});
    let first = stage.get(&format!("{path}?limit=3")).gives(200, first).await;
    stage.check(names(&first) == ["a", "b", "c"], || format!("first page {:?}", names(&first)));

    // What happens between the pages is not on them.
    stage.make(&path, secret("cc")).await;
    stage.delete(&format!("{path}/e")).gives(200, json!({"status": "Success"})).await;
    let next = format!("{path}?limit=3&continue={}", text(&first, "/metadata/continue"));
    let same =
        json!({"metadata": {"continue": any(), "remainingItemCount": 1, "resourceVersion": version(&first)}});
    let second = stage.get(&next).gives(200, same).await;
    stage.check(names(&second) == ["d", "e", "f"], || format!("second page {:?}", names(&second)));
    let last = format!("{path}?limit=3&continue={}", text(&second, "/metadata/continue"));
    let end = json!({
        "metadata": {
            "continue": absent(),
            "remainingItemCount": absent(),
            "resourceVersion": version(&first),
        },
    });
    let third = stage.get(&last).gives(200, end).await;
    stage.check(names(&third) == ["g"], || format!("last page {:?}", names(&third)));

    // With a selector nobody knows how many remain.
    let selected = json!({"metadata": {"continue": any(), "remainingItemCount": absent()}});
    let selected = stage.get(&format!("{path}?limit=2&labelSelector=paged%3Dyes")).gives(200, selected).await;
    stage.check(names(&selected) == ["a", "b"], || format!("selected page {:?}", names(&selected)));
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

async fn wrong_pages(stage: &Stage<'_>) {
    let path = stage.secrets();
    let unreadable = "continue key is not valid";
    stage.get(&format!("{path}?limit=3&continue=nonsense")).refused(400, "BadRequest", unreadable).await;
    let first =
        stage.get(&format!("{path}?limit=3")).gives(200, json!({"metadata": {"continue": any()}})).await;
    let both = format!("{path}?limit=3&resourceVersion=1&continue={}", text(&first, "/metadata/continue"));
    stage.get(&both).refused(400, "BadRequest", "resource version").await;
}

async fn expired(stage: &Stage<'_>) -> Result<()> {
    let path = stage.secrets();
    let first =
        stage.get(&format!("{path}?limit=2")).gives(200, json!({"metadata": {"continue": any()}})).await;
    let old = version(&first).to_owned();
    stage.make(&path, secret("later")).await;
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
    stage.check(names(&rest).contains(&"later"), || format!("the rest {:?}", names(&rest)));

    let exact = format!("{path}?resourceVersion={old}&resourceVersionMatch=Exact");
    let gone = json!({"reason": "Expired", "message": has("too old"), "code": 410});
    stage.becomes(&exact, 410, gone).await;
    Ok(())
}
