use std::sync::Arc;

use axum::{body::Body, http::Request};
use fedq_api::Authenticator;
use fedq_store::{AuditFilter, PageRequest};
use fedq_values::ids::ClaimName;
use http_body_util::BodyExt;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::server::{ANN, STRANGER, VIEWER, overview, served, served_with, spec};

const CLAIM: &str = "/claims/east-resource-claim";

#[tokio::test]
async fn without_a_valid_token_nothing_is_told() {
    let served = served().await;
    for header in [None, Some("Bearer wrong"), Some("Bearer "), Some("Basic abc"), Some("Bearer")] {
        let mut request = Request::builder().uri("/api/v1/claims");
        if let Some(header) = header {
            request = request.header("authorization", header);
        }
        let response = served.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), 401, "{header:?}");
        assert_eq!(response.headers()["www-authenticate"], "Bearer realm=\"fedq\"");
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let problem: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["code"], "unauthorized");
        assert!(problem["next"].as_str().unwrap().contains("fedq login"));
    }
    assert!(served.hub.world().requests.is_empty(), "an unknown caller costs the hub nothing");
}

#[tokio::test]
async fn reading_takes_the_right_to_list_claims() {
    let served = served().await;
    for path in [
        "/claims",
        "/clusters",
        "/capacity",
        "/queues",
        "/audit",
        "/check",
        "/clusters/east",
        "/queues/team-a",
    ] {
        assert_eq!(served.call(VIEWER, &format!("GET {path}"), Value::Null).await.0, 200, "{path}");
        let (status, problem) = served.call(STRANGER, &format!("GET {path}"), Value::Null).await;
        assert_eq!((status, problem["code"].as_str()), (403, Some("forbidden")), "{path}");
    }
    let asked = served.hub.world().requests.iter().filter(|line| line.contains("subjectaccess")).count();
    // The third: whether the viewer may see what others did with tasks.
    assert_eq!(asked, 3, "the hub's answers are remembered");
}

#[tokio::test]
async fn a_token_of_the_hub_counts_only_for_our_audience() {
    let served = served_with(Authenticator::token_review("fedq")).await;
    {
        let tokens = &mut served.hub.world().tokens;
        tokens.insert("mine".to_owned(), ("ann".to_owned(), "fedq".to_owned()));
        tokens.insert("other".to_owned(), ("ann".to_owned(), "https://kubernetes.default.svc".to_owned()));
    }
    assert_eq!(served.call("mine", "GET /claims", Value::Null).await.0, 200);
    assert_eq!(served.call("mine", "GET /claims", Value::Null).await.0, 200);
    assert_eq!(served.call("other", "GET /claims", Value::Null).await.0, 401);
    assert_eq!(served.call("none", "GET /claims", Value::Null).await.0, 401);
    let reviews = served.hub.world().requests.iter().filter(|line| line.contains("tokenreviews")).count();
    assert_eq!(reviews, 3);
}

#[tokio::test]
async fn lists_come_in_pages() {
    let served = served().await;
    let (_, first) = served.call(ANN, "GET /clusters?limit=1", Value::Null).await;
    assert_eq!(
        (first["items"][0]["name"].as_str(), first["continue"].as_str()),
        (Some("east"), Some("east"))
    );
    let (_, second) = served.call(ANN, "GET /clusters?limit=1&continue=east", Value::Null).await;
    assert_eq!(second["items"][0]["name"], "west");
    assert_eq!(second["continue"], Value::Null);
    for wrong in ["limit=x", "limit=-1", "watch=perhaps", "continue=%00"] {
        let (status, problem) = served.call(ANN, &format!("GET /clusters?{wrong}"), Value::Null).await;
        assert_eq!((status, problem["code"].as_str()), (400, Some("bad-request")), "{wrong}");
    }
}

#[tokio::test]
async fn a_stream_tells_what_is_there_and_what_changes() {
    let served = served().await;
    let request = Request::get("/api/v1/clusters?watch=1").header("authorization", format!("Bearer {ANN}"));
    let mut body = served.send(request.body(Body::empty()).unwrap()).await.into_body();
    let mut line = async || {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let text = String::from_utf8(frame.to_vec()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let kinds = |events: &[Value]| -> Vec<String> {
        let name = |event: &Value| event["object"]["name"].as_str().unwrap_or_default().to_owned();
        events.iter().map(|event| format!("{} {}", event["type"].as_str().unwrap(), name(event))).collect()
    };
    assert_eq!(kinds(&line().await), ["ADDED east", "ADDED west", "SYNCED "]);
    let mut changed = overview();
    changed.clusters.remove("west");
    Arc::make_mut(changed.clusters.get_mut("east").unwrap()).cordoned = true;
    served.overview.send_replace(Arc::new(overview()));
    served.overview.send_replace(Arc::new(changed));
    assert_eq!(kinds(&line().await), ["MODIFIED east", "DELETED west"]);
}

#[tokio::test]
async fn an_edit_needs_the_version_it_was_made_from() {
    let served = served().await;
    let put = format!("PUT {CLAIM}");
    let (_, detail) = served.call(ANN, &format!("GET {CLAIM}"), Value::Null).await;
    let etag = format!("\"{}\"", detail["resourceVersion"].as_str().unwrap());
    assert_eq!(served.call(ANN, &put, spec("6")).await.0, 428);
    assert_eq!(served.call_with(ANN, &put, spec("6"), Some("nonsense")).await.0, 400);
    let (status, change) = served.call_with(ANN, &put, spec("6"), Some(&etag)).await;
    assert_eq!((status, change["changes"][0]["change"].as_str()), (200, Some("+1")));
    let (status, problem) = served.call_with(ANN, &put, spec("7"), Some(&etag)).await;
    assert_eq!((status, problem["code"].as_str()), (412, Some("conflict")));
    let patched = served.hub.world().requests.iter().filter(|line| line.starts_with("ann PATCH")).count();
    assert_eq!(patched, 1, "written once, as the person who asked");
    let entries = served.store.audit(&AuditFilter::default(), &PageRequest::first(10)).await.unwrap().items;
    assert_eq!(
        (entries[0].who.as_str(), entries[0].verb.as_str(), entries[0].outcome.as_str()),
        ("ann", "edit", "ok")
    );
}

#[tokio::test]
async fn what_was_not_changed_keeps_its_text_and_so_its_owner() {
    let served = served().await;
    let mut wanted = spec("6");
    wanted["nominalResources"] = json!({"cpu": "1000000m", "gpu": "10.0"});
    let (status, _) = served.call_with(ANN, &format!("PUT {CLAIM}"), wanted, Some("*")).await;
    assert_eq!(status, 200);
    let world = served.hub.world();
    assert_eq!(
        world.claim("east-resource-claim")["spec"]["nominalResources"],
        json!({"cpu": "1000", "gpu": "10"})
    );
}

#[tokio::test]
async fn a_dry_run_changes_nothing_and_is_not_written_down() {
    let served = served().await;
    let (status, change) =
        served.call_with(ANN, &format!("PUT {CLAIM}?dryRun=All"), spec("6"), Some("*")).await;
    assert_eq!((status, change["dryRun"].as_bool()), (200, Some(true)));
    assert_eq!(served.hub.world().claim("east-resource-claim")["spec"], spec("5"));
    assert!(
        served.store.audit(&AuditFilter::default(), &PageRequest::first(1)).await.unwrap().items.is_empty()
    );
    assert_eq!(served.call(ANN, "POST /clusters/west/cordon?dryRun=Some", json!({})).await.0, 400);
}

#[tokio::test]
async fn a_wrong_edit_is_told_field_by_field() {
    let served = served().await;
    let mut wanted = spec("-1");
    wanted["clusterName"] = json!("west");
    let (status, problem) = served.call(ANN, &format!("POST {CLAIM}/diff"), wanted).await;
    assert_eq!((status, problem["code"].as_str()), (422, Some("invalid")));
    let fields: Vec<&str> =
        problem["causes"].as_array().unwrap().iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    assert!(fields.contains(&"spec.clusterName"), "{problem}");
    assert!(fields.iter().any(|field| field.contains("resources")), "{problem}");
    for body in [json!({"clusterName": "east", "nominal": {}}), json!([]), json!("x")] {
        let (status, problem) = served.call(ANN, &format!("POST {CLAIM}/diff"), body).await;
        assert_eq!((status, problem["code"].as_str()), (422, Some("invalid")), "{problem}");
    }
}

#[tokio::test]
async fn the_hubs_own_refusals_are_passed_on() {
    let served = served().await;
    let put = format!("PUT {CLAIM}");
    let (status, problem) = served.call_with(VIEWER, &put, spec("6"), Some("*")).await;
    assert_eq!((status, problem["code"].as_str()), (403, Some("forbidden")));
    assert!(problem["detail"].as_str().unwrap().contains("User \"viewer\" cannot PATCH"), "{problem}");
    let mut wanted = spec("5");
    wanted["nominalResources"]["forbidden.example.com/x"] = json!("1");
    let (status, problem) = served.call_with(ANN, &put, wanted, Some("*")).await;
    assert_eq!((status, problem["code"].as_str()), (422, Some("invalid")));
    assert!(problem["detail"].as_str().unwrap().contains("is not for you"), "{problem}");
    let (status, problem) = served.call(ANN, "GET /claims/none", Value::Null).await;
    assert_eq!((status, problem["code"].as_str()), (404, Some("not-found")));
    served.hub.world().down = true;
    let (status, problem) = served.call(ANN, &format!("GET {CLAIM}"), Value::Null).await;
    assert_eq!((status, problem["code"].as_str()), (503, Some("hub-unreachable")));
    let entries = served.store.audit(&AuditFilter::default(), &PageRequest::first(10)).await.unwrap().items;
    assert_eq!(entries.len(), 2);
    assert!(entries[0].outcome.contains("is not for you"));
}

#[tokio::test]
async fn assigning_leaves_the_rest_and_survives_a_race() {
    let served = served().await;
    let mut theirs = spec("5");
    theirs["nominalResources"]["cpu"] = json!("900");
    served.hub.world().meanwhile.push(theirs);
    let assign = json!({"queue": "team-b", "flavor": "spot", "resources": {"gpu": "2"}});
    let (status, change) = served.call(ANN, &format!("POST {CLAIM}/assign"), assign).await;
    assert_eq!((status, change["changes"][0]["queue"].as_str()), (200, Some("team-b")), "{change}");
    let claim = served.hub.world().claim("east-resource-claim")["spec"].clone();
    assert_eq!(
        (claim["nominalResources"]["cpu"].as_str(), claim["resourceAssignments"].as_array().unwrap().len()),
        (Some("900"), 2)
    );
    let (_, change) =
        served.call(ANN, &format!("POST {CLAIM}/assign"), json!({"queue": "team-b", "flavor": "spot"})).await;
    assert_eq!(change["changes"][0]["change"], "-2");
    assert_eq!(
        served.hub.world().claim("east-resource-claim")["spec"]["resourceAssignments"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn joining_checks_the_kubeconfig_and_never_shows_it_again() {
    let served = served().await;
    let ca = ca();
    let kubeconfig = |user: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://10.1.2.3:6443', certificate-authority-data: {ca}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n"
        )
    };
    let join = |name: &str, user: &str| json!({"name": name, "kubeconfig": kubeconfig(user)});
    let (status, problem) = served.call(ANN, "POST /clusters", join("new", "exec: {command: sh}")).await;
    assert_eq!((status, problem["code"].as_str()), (422, Some("kubeconfig-refused")), "{problem}");
    assert_eq!(served.call(ANN, "POST /clusters", join("Not A Name", "token: hush-hush")).await.0, 422);
    let (status, done) = served.call(ANN, "POST /clusters?dryRun=All", join("new", "token: hush-hush")).await;
    assert_eq!((status, &done["dryRun"]), (202, &json!(true)), "{done}");
    let secret = "/api/v1/namespaces/fedq-system/secrets/fedq-cluster-new";
    assert!(!served.hub.world().objects.contains_key(secret));
    let (status, done) = served.call(ANN, "POST /clusters", join("new", "token: hush-hush")).await;
    assert_eq!(status, 202, "{done}");
    {
        let world = served.hub.world();
        let secret = &world.objects[secret];
        assert_eq!(secret["metadata"]["labels"]["fedq.dev/cluster"], "new");
        assert!(secret["data"]["kubeconfig"].is_string());
    }
    let (status, problem) = served.call(ANN, "POST /clusters", join("new", "token: hush-hush")).await;
    assert_eq!((status, problem["code"].as_str()), (409, Some("already-exists")));
    let (_, audit) = served.call(ANN, "GET /audit", Value::Null).await;
    let (_, wrong) = served.call(ANN, "POST /clusters", json!("token: hush-hush")).await;
    for shown in [done, problem, audit, wrong] {
        assert!(!shown.to_string().contains("hush"), "{shown}");
    }
}

#[tokio::test]
async fn secrets_are_annotated_whatever_their_name() {
    let served = served().await;
    assert_eq!(served.call(ANN, "POST /clusters/west/cordon", json!({})).await.0, 200);
    let (status, done) = served.call(ANN, "POST /clusters/west/confirm", json!({})).await;
    assert_eq!((status, done["message"].as_str().unwrap().contains("uid-2")), (200, true), "{done}");
    let annotations = |served: &super::server::Served| {
        served.hub.world().objects["/api/v1/namespaces/fedq-system/secrets/by-hand"]["metadata"]["annotations"].clone()
    };
    assert_eq!(
        annotations(&served),
        json!({"fedq.dev/cordon": "true", "fedq.dev/confirm-identity": "uid-2"})
    );
    served.call(ANN, "POST /clusters/west/uncordon", json!({})).await;
    assert_eq!(annotations(&served)["fedq.dev/cordon"], Value::Null);
    assert_eq!(served.call(ANN, "POST /clusters/east/confirm", json!({})).await.0, 409);
    assert_eq!(served.call(ANN, "POST /clusters/nowhere/cordon", json!({})).await.0, 404);
    assert_eq!(served.call(ANN, "DELETE /clusters/west", Value::Null).await.0, 202);
    assert!(!served.hub.world().objects.contains_key("/api/v1/namespaces/fedq-system/secrets/by-hand"));
}

/// The hub is asked before anything is looked up or written down.
#[tokio::test]
async fn clusters_take_a_right_of_their_own_and_none_on_secrets() {
    let served = served().await;
    let calls = [
        ("POST /clusters", json!({"name": "east", "kubeconfig": "nonsense"}), "create", "clusters", "east"),
        ("POST /clusters/west/cordon", json!({}), "patch", "clusters", "west"),
        ("POST /clusters/nowhere/uncordon", json!({}), "patch", "clusters", "nowhere"),
        ("POST /clusters/east/confirm", json!({}), "patch", "clusters", "east"),
        ("DELETE /clusters/west", Value::Null, "delete", "clusters", "west"),
        ("POST /claims/confirm-removal", json!({}), "create", "removals", ""),
    ];
    for (call, body, verb, resource, name) in calls {
        let name = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        let (status, problem) = served.call(VIEWER, call, body).await;
        assert_eq!((status, problem["code"].as_str()), (403, Some("forbidden")), "{call}: {problem}");
        let expected = format!(
            "user \"viewer\" cannot {verb} resource \"{resource}\"{name} in API group \"fedq.dev\" in the namespace \"fedq-system\": no rule matches"
        );
        assert_eq!(problem["detail"], expected, "{call}");
        assert!(problem["next"].as_str().unwrap().contains("the Role fedq-"), "{call}: {problem}");
    }
    {
        let world = served.hub.world();
        let reviews = "fedqd POST /apis/authorization.k8s.io/v1/subjectaccessreviews";
        assert!(world.requests.iter().all(|line| line == reviews), "{:?}", world.requests);
    }
    let written = served.store.audit(&AuditFilter::default(), &PageRequest::first(1)).await.unwrap();
    assert!(written.items.is_empty(), "who may not has done nothing");
    served.call(ANN, "POST /clusters/west/cordon", json!({})).await;
    let world = served.hub.world();
    let touched: Vec<_> = world.requests.iter().filter(|line| line.contains("/secrets")).collect();
    assert!(!touched.is_empty() && touched.iter().all(|line| line.starts_with("fedqd ")), "{touched:?}");
}

#[tokio::test]
async fn a_removal_is_confirmed_only_when_one_waits() {
    let served = served().await;
    let confirm = "POST /claims/confirm-removal";
    assert_eq!(served.call(ANN, confirm, json!({})).await.0, 409);
    let mut held = overview();
    held.held_claims.insert(ClaimName::new("gone-resource-claim").unwrap());
    served.overview.send_replace(Arc::new(held));
    let (status, done) = served.call(ANN, confirm, json!({})).await;
    assert_eq!(
        (status, done["message"].as_str()),
        (200, Some("the removal of gone-resource-claim is confirmed"))
    );
    let namespace = served.hub.world().objects["/api/v1/namespaces/fedq-system"].clone();
    assert!(namespace["metadata"]["annotations"]["fedq.dev/confirm-removal"].is_string());
}

#[tokio::test]
async fn a_base_is_changed_on_the_queue_itself() {
    let served = served().await;
    let base =
        |resource: &str, base: &str| json!({"flavor": "on-demand", "resource": resource, "base": base});
    let (status, done) = served.call(ANN, "PUT /queues/team-a/base", base("gpu", "4")).await;
    assert_eq!((status, done["message"].as_str()), (200, Some("base of team-a on-demand gpu: 3 → 4")));
    let queue = served.hub.world().objects["/apis/kueue.x-k8s.io/v1beta2/clusterqueues/team-a"].clone();
    assert!(queue["metadata"]["annotations"]["fedq.dev/cells"].as_str().unwrap().contains("\"4\""));
    assert_eq!(served.call(ANN, "PUT /queues/team-a/base", base("cpu", "4")).await.0, 404);
    assert_eq!(served.call(ANN, "PUT /queues/team-a/base", base("gpu", "0.5")).await.0, 422);
}

#[tokio::test]
async fn what_is_too_large_or_not_there_is_a_problem_too() {
    let served = served().await;
    let large = json!({"name": "x", "kubeconfig": "x".repeat(3 << 20)});
    let (status, problem) = served.call(ANN, "POST /clusters", large).await;
    assert_eq!((status, problem["code"].as_str()), (413, Some("too-large")));
    let (status, problem) = served.call(ANN, "GET /nothing", Value::Null).await;
    assert_eq!((status, problem["code"].as_str()), (404, Some("not-found")));
    let (status, problem) = served.call(ANN, "PATCH /claims", Value::Null).await;
    assert_eq!((status, problem["code"].as_str()), (405, Some("method-not-allowed")));
    let (_, version) = served.call("nobody", "GET /version", Value::Null).await;
    assert_eq!(version["api"], "v1");
}

/// The certificate of a CA, in base64 as kubeconfigs have it.
fn ca() -> String {
    let certificate = rcgen::generate_simple_self_signed(vec!["ca.example.com".to_owned()]).unwrap();
    let encoded = serde_json::to_value(ByteString(certificate.cert.pem().into_bytes())).unwrap();
    encoded.as_str().unwrap().to_owned()
}
