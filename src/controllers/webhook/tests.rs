use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use jiff::Timestamp;
use kube::client::Body;

use super::*;

/// The two objects as a hub keeps them, and every write that reached it.
#[derive(Default)]
struct Kept {
    secret: Option<Value>,
    configuration: Option<Value>,
    authority: Option<Value>,
    version: u64,
    writes: Vec<String>,
    /// Someone else creates the Secret just before us.
    rival: Option<Value>,
}

#[derive(Clone, Default)]
struct Hub(Arc<Mutex<Kept>>);

impl Hub {
    fn client(&self) -> Client {
        let hub = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let hub = hub.clone();
            async move { Ok::<_, Infallible>(hub.answer(request).await) }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut kept = self.0.lock().unwrap();
        let is_secret = parts.uri.path().contains("/namespaces/fedq-system/secrets");
        if parts.method != Method::GET {
            kept.writes.push(format!("{} {}", parts.method, parts.uri.path()));
        }
        if let Some(rival) = kept.rival.take_if(|_| parts.method == Method::POST) {
            kept.secret = Some(rival);
        }
        kept.version += 1;
        let version = kept.version.to_string();
        let is_authority = parts.uri.path().contains("/namespaces/fedq-system/configmaps");
        let slot = match (is_secret, is_authority) {
            (true, _) => &mut kept.secret,
            (_, true) => &mut kept.authority,
            _ => &mut kept.configuration,
        };
        let sent = &body["metadata"]["resourceVersion"];
        let fresh = slot.as_ref().is_some_and(|found| found["metadata"]["resourceVersion"] == *sent);
        let status = match (&parts.method, slot.is_some()) {
            (&Method::GET, true) => StatusCode::OK,
            (&Method::POST, false) => {
                *slot = Some(body);
                StatusCode::CREATED
            }
            (&Method::POST, true) => StatusCode::CONFLICT,
            // As the shipped rights have it: Secrets are patched, never replaced.
            (&Method::PUT, true) => StatusCode::FORBIDDEN,
            (&Method::PATCH, true) if !fresh && !is_authority => StatusCode::CONFLICT,
            (&Method::PATCH, true) => {
                let found = slot.as_mut().unwrap();
                if let Some(data) = body["data"].as_object() {
                    data.iter().for_each(|(key, value)| found["data"][key] = value.clone());
                } else {
                    found["webhooks"] = body["webhooks"].clone();
                }
                StatusCode::OK
            }
            _ => StatusCode::NOT_FOUND,
        };
        let answer = if status.is_success() {
            let object = slot.as_mut().unwrap();
            if parts.method != Method::GET {
                object["metadata"]["resourceVersion"] = json!(version);
            }
            object.clone()
        } else {
            let exists = status == StatusCode::CONFLICT && parts.method == Method::POST;
            let reason = if exists { "AlreadyExists" } else { status.canonical_reason().unwrap() };
            json!({ "kind": "Status", "status": "Failure", "reason": reason.replace(' ', ""),
                "code": status.as_u16(), "message": "no" })
        };
        Response::builder().status(status).body(Body::from(answer.to_string().into_bytes())).unwrap()
    }

    fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().writes)
    }

    fn ca_bundle(&self) -> String {
        let configuration = self.0.lock().unwrap().configuration.clone().unwrap();
        let configuration: ValidatingWebhookConfiguration = serde_json::from_value(configuration).unwrap();
        let bundle = configuration.webhooks.unwrap()[0].client_config.ca_bundle.clone().unwrap();
        String::from_utf8(bundle.0).unwrap()
    }
}

fn settings(registration: Registration) -> Settings {
    Settings {
        namespace: "fedq-system".to_owned(),
        names: vec!["127.0.0.1".to_owned()],
        registration: Some(registration),
        serves_people: false,
        deadline: Duration::from_secs(5),
    }
}

fn clock() -> Clock {
    Clock::test(Timestamp::from_second(1_800_000_000).unwrap())
}

fn url() -> Registration {
    Registration::url("https://127.0.0.1:9443")
}

#[tokio::test]
async fn the_first_run_registers_and_at_rest_nothing_is_written() {
    let hub = Hub::default();
    let mut controller = WebhookController::new(hub.client(), clock(), settings(url())).await.unwrap();
    controller.reconcile().await.unwrap();
    assert_eq!(hub.writes().len(), 2);
    assert_eq!(hub.ca_bundle(), controller.serving.ca_bundle());
    for _ in 0..3 {
        controller.reconcile().await.unwrap();
    }
    assert_eq!(hub.writes(), [""; 0]);
    // A restart finds what the last run made.
    let next = WebhookController::new(hub.client(), clock(), settings(url())).await.unwrap();
    assert_eq!(next.serving, controller.serving);
    assert_eq!(hub.writes(), [""; 0]);
}

#[test]
fn a_url_without_a_path_gets_the_webhooks() {
    let posts_to = |url: &str| match Registration::url(url) {
        Registration::Url(url) => url,
        Registration::Manifests => panic!("no URL"),
    };
    for url in ["https://h:9443", "https://h:9443/", "https://h:9443/validate/clusterresourceclaims"] {
        assert_eq!(posts_to(url), "https://h:9443/validate/clusterresourceclaims");
    }
    assert_eq!(posts_to("https://h/proxied"), "https://h/proxied");
}

#[tokio::test]
async fn the_authority_is_published_without_the_key_and_put_right() {
    let (hub, clock) = (Hub::default(), clock());
    let settings = Settings { serves_people: true, ..settings(url()) };
    let mut controller = WebhookController::new(hub.client(), clock.clone(), settings).await.unwrap();
    controller.reconcile().await.unwrap();
    let published = || hub.0.lock().unwrap().authority.clone().unwrap();
    assert_eq!(published()["metadata"]["name"], "fedq-ca");
    assert_eq!(published()["data"], json!({"ca.crt": hub.ca_bundle()}));
    assert!(!published().to_string().contains("PRIVATE KEY"));
    hub.writes();
    controller.reconcile().await.unwrap();
    assert_eq!(hub.writes(), Vec::<String>::new(), "nothing changed");
    // Whoever leads people to a server of their own.
    hub.0.lock().unwrap().authority.as_mut().unwrap()["data"]["ca.crt"] = json!("another");
    controller.reconcile().await.unwrap();
    assert_eq!(published()["data"], json!({"ca.crt": hub.ca_bundle()}));
    clock.advance(Duration::from_hours(551 * 24));
    controller.reconcile().await.unwrap();
    assert_eq!(published()["data"]["ca.crt"].as_str().unwrap().matches("BEGIN CERTIFICATE").count(), 2);
}

#[tokio::test]
async fn a_renewed_certificate_is_served_and_its_authority_is_published() {
    let (hub, clock) = (Hub::default(), clock());
    let mut controller = WebhookController::new(hub.client(), clock.clone(), settings(url())).await.unwrap();
    controller.reconcile().await.unwrap();
    let (first, serving) = (controller.serving.clone(), controller.tls().get_inner());
    hub.writes();
    clock.advance(Duration::from_hours(61 * 24));
    controller.reconcile().await.unwrap();
    assert_ne!(controller.serving, first);
    assert!(!Arc::ptr_eq(&controller.tls().get_inner(), &serving));
    assert_eq!(hub.writes(), ["PATCH /api/v1/namespaces/fedq-system/secrets/fedq-webhook-cert"]);
    // Far later the authority is due: both stand in the bundle.
    clock.advance(Duration::from_hours(490 * 24));
    controller.reconcile().await.unwrap();
    assert_eq!(hub.ca_bundle().matches("BEGIN CERTIFICATE").count(), 2);
    assert!(hub.ca_bundle().contains(&first.ca_bundle()));
}

#[tokio::test]
async fn an_overwritten_bundle_is_put_right_and_the_rest_is_kept() {
    let hub = Hub::default();
    let mut configuration =
        json!(configuration(&json!({ "service": { "name": "s", "namespace": "n", "path": "/p" } }), "old"));
    configuration["metadata"]["resourceVersion"] = json!("7");
    let mut other = configuration["webhooks"][0].clone();
    other["name"] = json!("other.example.com");
    configuration["webhooks"].as_array_mut().unwrap().push(other.clone());
    configuration["webhooks"][0]["timeoutSeconds"] = json!(9);
    hub.0.lock().unwrap().configuration = Some(configuration);
    let mut controller =
        WebhookController::new(hub.client(), clock(), settings(Registration::Manifests)).await.unwrap();
    controller.reconcile().await.unwrap();
    assert_eq!(hub.ca_bundle(), controller.serving.ca_bundle());
    let kept = hub.0.lock().unwrap().configuration.clone().unwrap();
    assert_eq!(kept["webhooks"][0]["timeoutSeconds"], 9);
    assert_eq!(kept["webhooks"][0]["clientConfig"]["service"]["path"], "/p");
    assert_eq!(kept["webhooks"][1], other);
}

#[tokio::test]
async fn manifests_that_are_not_there_are_not_invented() {
    let hub = Hub::default();
    let mut controller =
        WebhookController::new(hub.client(), clock(), settings(Registration::Manifests)).await.unwrap();
    controller.reconcile().await.unwrap();
    assert!(hub.0.lock().unwrap().configuration.is_none());
    assert_eq!(hub.writes().len(), 1);
}

#[tokio::test]
async fn of_two_daemons_the_second_takes_the_firsts_certificate() {
    let hub = Hub::default();
    let theirs = ServingCertificate::issue(&["127.0.0.1".to_owned()], clock().now()).unwrap();
    let mut secret = json!(new_secret("fedq-system", &theirs));
    secret["metadata"]["resourceVersion"] = json!("1");
    hub.0.lock().unwrap().rival = Some(secret);
    let controller = WebhookController::new(hub.client(), clock(), settings(url())).await.unwrap();
    assert_eq!(controller.serving, theirs);
}

#[tokio::test]
async fn a_damaged_secret_is_replaced() {
    let hub = Hub::default();
    let mut secret =
        json!({ "metadata": { "name": SECRET, "resourceVersion": "1" }, "data": { "note": "" } });
    secret["data"]["tls.crt"] = json!(ByteString(b"x".to_vec()));
    hub.0.lock().unwrap().secret = Some(secret);
    let controller = WebhookController::new(hub.client(), clock(), settings(url())).await.unwrap();
    let kept: Secret = serde_json::from_value(hub.0.lock().unwrap().secret.clone().unwrap()).unwrap();
    assert_eq!(read(&kept).unwrap(), controller.serving);
    assert!(kept.data.unwrap().contains_key("note"), "what others put there stays");
}

#[tokio::test]
async fn a_hub_that_does_not_let_us_is_reported_by_step() {
    let forbidden = tower::service_fn(|_: Request<Body>| async {
        let status = json!({ "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no" });
        let answer = Response::builder().status(403).body(Body::from(status.to_string().into_bytes()));
        Ok::<_, Infallible>(answer.unwrap())
    });
    let client = Client::new(forbidden, "default");
    let error = WebhookController::new(client, clock(), settings(url())).await.err().expect("refused");
    assert!(matches!(error, WebhookError::ReadSecret(ref source) if source.class == RetryClass::Forbidden));
}
