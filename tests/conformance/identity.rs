//! Who is asking, and what they may do.

use anyhow::Result;
use serde_json::{Value, json};

use super::NOBODY;
use super::client::{Client, Credential};
use super::expect::{absent, any, differences, with};
use super::stage::{CLAIMS, MERGE, NODES, QUEUES, Stage, Who, claim, secret};

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    unknown(stage).await?;
    certificates(stage).await?;
    without_rights(stage).await;
    impersonation(stage).await;
    granted(stage).await;
    token_reviews(stage).await?;
    access_reviews(stage).await;
    questions_in_protobuf(stage).await;
    Ok(())
}

/// What a 401 says.
fn unauthorized() -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    })
}

async fn unknown(stage: &Stage<'_>) -> Result<()> {
    let anonymous = json!({
        "kind": "Status",
        "status": "Failure",
        "reason": "Forbidden",
        "message": "nodes is forbidden: User \"system:anonymous\" cannot list resource \"nodes\" in API group \"\" \
                    at the cluster scope",
        "details": {"kind": "nodes"},
        "code": 403,
    });
    stage.get(NODES).by(Who::Anonymous).gives(403, anonymous.clone()).await;
    for nothing in ["Basic YTpi", "Bearer", "Bearer "] {
        let step = stage.get(NODES).by(Who::Anonymous).header("authorization", nothing);
        step.gives(403, anonymous.clone()).await;
    }
    for token in ["Bearer nonsense", "bearer nonsense", "Bearer non sense"] {
        let step = stage.get(NODES).by(Who::Anonymous).header("authorization", token);
        step.gives(401, unauthorized()).await;
    }
    let client =
        Client::new(&stage.server.base, &stage.server.ca_pem, &Credential::Token("wrong".to_owned()))?;
    let answer = client.send(http::Request::get("/version"), String::new()).await?;
    stage.check(answer.status == 401, || format!("a wrong token reads the version: {}", answer.status));
    Ok(())
}

/// A certificate says who asks, by its common name and organizations. Bad ones are told so with each request.
async fn certificates(stage: &Stage<'_>) -> Result<()> {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let groups = with(json!(["system:masters", "system:authenticated"]));
    let known = json!({"status": {"userInfo": {"username": "conformance-admin", "groups": groups}}});
    stage.post(path, json!({})).gives(201, known.clone()).await;
    let step = stage.post(path, json!({})).header("authorization", "Bearer nonsense");
    step.gives(201, known).await;
    let (token, user) = &stage.server.token;
    for credential in [Credential::of_a_stranger()?, stage.server.expired.clone()] {
        let client = Client::new(&stage.server.base, &stage.server.ca_pem, &credential)?;
        let answer = client.send(http::Request::get("/version"), String::new()).await?;
        let found = differences(&unauthorized(), Some(&answer.json()));
        stage.check(answer.status == 401 && found.is_empty(), || format!("{} {found:?}", answer.status));
        // A token is looked at beside it.
        let request = http::Request::get(NODES).header("authorization", format!("Bearer {token}"));
        let answer = client.send(request, String::new()).await?;
        let said = answer.text();
        stage.check(answer.status == 403 && said.contains(user), || format!("{} {said}", answer.status));
    }
    Ok(())
}

fn forbidden(message: &str) -> Value {
    json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": message, "code": 403})
}

async fn without_rights(stage: &Stage<'_>) {
    let ns = &stage.name;
    let secrets = stage.secrets();
    stage.make(&secrets, secret("s")).await;
    let cannot = |what: &str, verb: &str, resource: &str, group: &str, place: &str| {
        forbidden(&format!(
            "{what} is forbidden: User \"{NOBODY}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}"
        ))
    };
    let here = format!("in the namespace \"{ns}\"");
    let everywhere = "at the cluster scope";
    let mut answer = cannot("secrets \"s\"", "get", "secrets", "", &here);
    answer["details"] = json!({"name": "s", "kind": "secrets"});
    stage.get(&format!("{secrets}/s")).by(Who::Nobody).gives(403, answer).await;
    stage.get(&secrets).by(Who::Nobody).gives(403, cannot("secrets", "list", "secrets", "", &here)).await;
    stage
        .get(&format!("{secrets}?watch=1"))
        .by(Who::Nobody)
        .gives(403, cannot("secrets", "watch", "secrets", "", &here))
        .await;
    stage
        .post(&secrets, secret("t"))
        .by(Who::Nobody)
        .gives(403, cannot("secrets", "create", "secrets", "", &here))
        .await;
    stage
        .delete(&format!("{secrets}/s"))
        .by(Who::Nobody)
        .gives(403, cannot("secrets \"s\"", "delete", "secrets", "", &here))
        .await;
    let group = "kueue.x-k8s.io";
    let whole = "clusterqueues.kueue.x-k8s.io";
    stage
        .get(QUEUES)
        .by(Who::Nobody)
        .gives(403, cannot(whole, "list", "clusterqueues", group, everywhere))
        .await;
    let one = format!("{whole} \"q\"");
    stage
        .patch(&format!("{QUEUES}/q"), MERGE, json!({}))
        .by(Who::Nobody)
        .gives(403, cannot(&one, "patch", "clusterqueues", group, everywhere))
        .await;
    stage
        .patch(&format!("{QUEUES}/q/status"), MERGE, json!({}))
        .by(Who::Nobody)
        .gives(403, cannot(&one, "patch", "clusterqueues/status", group, everywhere))
        .await;
    let path = forbidden(&format!("forbidden: User \"{NOBODY}\" cannot get path \"/metrics\""));
    stage.get("/metrics").by(Who::Nobody).gives(403, path).await;
    // Rights are asked for before the object is looked for, and before the body is read.
    stage.post(CLAIMS, json!({})).body("{").by(Who::Nobody).refused(403, "Forbidden", "").await;
}

async fn impersonation(stage: &Stage<'_>) {
    let name = stage.named("i");
    let cannot = json!({
        "reason": "Forbidden",
        "message": "nodes is forbidden: User \"jane\" cannot list resource \"nodes\" in API group \"\" at the cluster scope",
        "code": 403,
    });
    stage.get(NODES).header("impersonate-user", "jane").gives(403, cannot).await;
    let masters = stage
        .post(CLAIMS, claim(&name))
        .header("impersonate-user", "jane")
        .header("impersonate-group", "system:masters");
    masters.gives(201, json!({"metadata": {"name": name}})).await;
    let refused = "cannot impersonate";
    stage
        .get(NODES)
        .by(Who::Nobody)
        .header("impersonate-user", "jane")
        .refused(403, "Forbidden", refused)
        .await;
}

/// Rights come with a role and its binding, at once or nearly so.
async fn granted(stage: &Stage<'_>) {
    let ns = &stage.name;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({
        "metadata": {"name": "reader"},
        "rules": [
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"], "resourceNames": ["s"]},
        ],
    });
    stage.make(&format!("{rbac}/namespaces/{ns}/roles"), role).await;
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": NOBODY}],
    });
    stage.make(&format!("{rbac}/namespaces/{ns}/rolebindings"), binding).await;
    let review = json!({
        "spec": {
            "user": NOBODY,
            "resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": ns, "name": "s"},
        },
    });
    for _ in 0..50 {
        let answer = stage
            .post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review.clone())
            .gives(201, json!({"kind": "SubjectAccessReview"}))
            .await;
        if answer["status"]["allowed"] == true {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    stage.get(&format!("{}/s", stage.secrets())).by(Who::Nobody).gives(200, json!({"kind": "Secret"})).await;
    stage.get(&format!("{}/other", stage.secrets())).by(Who::Nobody).refused(403, "Forbidden", "").await;
    stage.delete(&format!("{}/s", stage.secrets())).by(Who::Nobody).refused(403, "Forbidden", "").await;
}

async fn token_reviews(stage: &Stage<'_>) -> Result<()> {
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (token, user) = &stage.server.token;
    let review = |token: &str| {
        json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        })
    };
    let known = json!({
        "kind": "TokenReview",
        "apiVersion": "authentication.k8s.io/v1",
        "status": {
            "authenticated": true,
            "user": {"username": user, "groups": with(json!(["system:authenticated"]))},
        },
    });
    stage.post(path, review(token)).gives(201, known).await;
    let unknown =
        json!({"kind": "TokenReview", "status": {"authenticated": absent(), "user": {}, "error": any()}});
    stage.post(path, review("nonsense")).gives(201, unknown).await;
    stage.post(path, review("nonsense")).by(Who::Nobody).refused(403, "Forbidden", "").await;

    let client = Client::new(&stage.server.base, &stage.server.ca_pem, &Credential::Token(token.clone()))?;
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("content-type", "application/json");
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = client.send(request, body.to_string()).await?;
    let name = answer.json().pointer("/status/userInfo/username").cloned().unwrap_or_default();
    stage.check(name == **user, || format!("the token is of {user}, the server says {name}"));
    Ok(())
}

async fn access_reviews(stage: &Stage<'_>) {
    let api = "/apis/authorization.k8s.io/v1";
    let wanted = json!({"verb": "list", "group": "kueue.x-k8s.io", "resource": "clusterqueues"});
    let own = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted},
    });
    let path = format!("{api}/selfsubjectaccessreviews");
    let allowed = json!({"kind": "SelfSubjectAccessReview", "status": {"allowed": true}});
    stage.post(&path, own.clone()).gives(201, allowed).await;
    let denied = json!({
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "list"}},
        "status": {"allowed": false},
    });
    stage.post(&path, own).by(Who::Nobody).gives(201, denied).await;

    let path = format!("{api}/subjectaccessreviews");
    let of = |user: &str, groups: Value| {
        json!({
            "spec": {"user": user, "groups": groups, "resourceAttributes": wanted},
        })
    };
    stage.post(&path, of("jane", json!([]))).gives(201, json!({"status": {"allowed": false}})).await;
    stage
        .post(&path, of("jane", json!(["system:masters"])))
        .gives(201, json!({"status": {"allowed": true}}))
        .await;
    let path_review = json!({
        "spec": {
            "user": "jane",
            "groups": ["system:authenticated"],
            "nonResourceAttributes": {"path": "/version", "verb": "get"},
        },
    });
    stage.post(&path, path_review).gives(201, json!({"status": {"allowed": true}})).await;
    let nobody = json!({"spec": {"resourceAttributes": wanted}});
    stage
        .post(&path, nobody)
        .refused(422, "Invalid", "at least one of user or group must be specified")
        .await;
    stage.post(&path, of("jane", json!([]))).by(Who::Nobody).refused(403, "Forbidden", "").await;
    let rules = json!({"spec": {"namespace": stage.name}});
    let answer = json!({"status": {"resourceRules": any(), "incomplete": false}});
    stage.post(&format!("{api}/selfsubjectrulesreviews"), rules).gives(201, answer).await;
}

/// As kubectl asks: built-in kinds travel in protobuf, in both directions if the server likes.
async fn questions_in_protobuf(stage: &Stage<'_>) {
    let ask = |api: &str, plural: &str, kind: &str, question: &str| {
        let types = format!("{}{}", field(1, &format!("{api}/v1")), field(2, kind));
        let body = format!("k8s\0{}{}{}{}", field(1, &types), field(2, question), field(3, ""), field(4, ""));
        stage
            .send_as(&format!("/apis/{api}/v1/{plural}"), "application/vnd.kubernetes.protobuf", body)
            .header("accept", "application/json")
    };
    let attributes =
        format!("{}{}{}", field(2, "list"), field(3, "kueue.x-k8s.io"), field(5, "clusterqueues"));
    let question = field(2, &field(1, &attributes));
    let (api, plural) = ("authorization.k8s.io", "selfsubjectaccessreviews");
    let may = json!({
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "list", "resource": "clusterqueues"}},
        "status": {"allowed": true},
    });
    ask(api, plural, "SelfSubjectAccessReview", &question).gives(201, may).await;
    let may_not = json!({"status": {"allowed": false}});
    ask(api, plural, "SelfSubjectAccessReview", &question).by(Who::Nobody).gives(201, may_not).await;
    let name = json!({"status": {"userInfo": {"username": any()}}});
    ask("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview", "").gives(201, name).await;
    let broken = stage.send_as(
        &format!("/apis/{api}/v1/{plural}"),
        "application/vnd.kubernetes.protobuf",
        "k8s\0\u{a}\u{7f}".to_owned(),
    );
    broken.refused(400, "BadRequest", "").await;
}

/// Text or a message in protobuf; short ones are text themselves.
fn field(number: u8, content: &str) -> String {
    let length = u8::try_from(content.len()).expect("a short message");
    assert!(length < 128, "its length would take two bytes");
    format!("{}{}{content}", char::from(number << 3 | 2), char::from(length))
}
