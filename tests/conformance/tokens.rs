//! Tokens for accounts, as long as they are asked for.

use anyhow::Result;
use serde_json::json;

use super::client::{Client, Credential};
use super::expect::{any, time, with};
use super::stage::{Stage, text};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    let accounts = stage.within("/api/v1", "serviceaccounts");
    stage.make(&accounts, json!({"metadata": {"name": "fedq"}})).await;
    let path = format!("{accounts}/fedq/token");
    let request = |seconds: u32| {
        json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        })
    };
    let made = json!({
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "status": {"token": any(), "expirationTimestamp": time()},
    });
    let made = stage.post(&path, request(600)).gives(201, made).await;
    let token = text(&made, "/status/token").to_owned();

    let user = format!("system:serviceaccount:{}:fedq", stage.name);
    let groups = json!([
        "system:serviceaccounts",
        format!("system:serviceaccounts:{}", stage.name),
        "system:authenticated",
    ]);
    let known =
        json!({"status": {"authenticated": true, "user": {"username": user, "groups": with(groups)}}});
    let review = json!({"spec": {"token": token}});
    stage.post(REVIEWS, review).gives(201, known).await;

    // It is worth what its account may do: to say who it is, and no more.
    let client = Client::new(&stage.server.base, &stage.server.ca_pem, &Credential::Token(token))?;
    let asked = http::Request::get(stage.secrets());
    let answer = client.send(asked, String::new()).await?;
    let said = text(&answer.json(), "/message").to_owned();
    stage.check(answer.status == 403 && said.contains(&user), || format!("{} {said}", answer.status));

    let short = "spec.expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes";
    stage.post(&path, request(1)).refused(422, "Invalid", short).await;
    let missing = "serviceaccounts \"none\" not found";
    stage.post(&format!("{accounts}/none/token"), request(600)).refused(404, "NotFound", missing).await;
    Ok(())
}
