//! As much of an API server as the API asks of the hub: objects with versions, merge patches, who may
//! do what, and one webhook.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, Request, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use fedq_k8s::{
    client::{Caller, ConnectError},
    session::Access,
};
use kube::Client;
use serde_json::{Value, json};
use tower::{ServiceExt, util::MapRequestLayer};

#[derive(Default)]
pub struct World {
    /// By path.
    pub objects: BTreeMap<String, Value>,
    version: u64,
    /// Token to user and audience.
    pub tokens: BTreeMap<String, (String, String)>,
    /// Users who may do nothing but read.
    pub viewers: BTreeSet<String>,
    /// Users who may not even read.
    pub strangers: BTreeSet<String>,
    /// Users who may do with everybody's tasks what others may with their own, and act as anyone.
    pub admins: BTreeSet<String>,
    /// `user METHOD path`, in order.
    pub requests: Vec<String>,
    /// Runs before each PATCH of a claim: somebody else is faster.
    pub meanwhile: Vec<Value>,
    /// Users and resources that they may not create.
    pub denied: BTreeSet<(String, String)>,
    pub down: bool,
}

#[derive(Clone, Default)]
pub struct FakeHub(pub Arc<Mutex<World>>);

impl FakeHub {
    pub fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    fn client(&self, user: Option<String>) -> Client {
        let router = Router::new().fallback(answer).with_state(self.clone());
        let as_user = MapRequestLayer::new(move |request: Request<kube::client::Body>| {
            let mut request = request.map(Body::new);
            if let Some(user) = &user {
                request.headers_mut().insert("impersonate-user", user.parse().unwrap());
            }
            request
        });
        let service =
            tower::ServiceBuilder::new().layer(as_user).service(router.into_service::<Body>().boxed_clone());
        Client::new(service, "default")
    }
}

impl Access for FakeHub {
    fn own(&self) -> Client {
        self.client(None)
    }

    fn acting_as(&self, caller: &Caller) -> Result<Client, ConnectError> {
        Ok(self.client(Some(caller.user.clone())))
    }

    fn apart(&self) -> Result<Arc<dyn Access>, ConnectError> {
        Ok(Arc::new(self.clone()))
    }
}

impl World {
    pub fn put(&mut self, path: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path.to_owned(), object);
    }

    pub fn claim(&self, name: &str) -> &Value {
        &self.objects[&format!("/apis/galaxy.kubestellar.io/v1alpha1/clusterresourceclaims/{name}")]
    }
}

async fn answer(
    State(hub): State<FakeHub>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut world = hub.world();
    if world.down {
        return status(503, "ServiceUnavailable", "the server is down");
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let user = headers.get("impersonate-user").map_or("fedqd", |user| user.to_str().unwrap()).to_owned();
    let path = uri.path().to_owned();
    world.requests.push(format!("{user} {method} {path}"));
    match path.rsplit('/').next().unwrap() {
        "tokenreviews" => return token_review(&world, body),
        "subjectaccessreviews" => return access_review(&world, body),
        _ => {}
    }
    if method != Method::GET && (world.viewers.contains(&user) || world.strangers.contains(&user)) {
        let message = format!("\"{path}\" is forbidden: User \"{user}\" cannot {method} it");
        return status(403, "Forbidden", &message);
    }
    if method == Method::GET && path.contains("/secrets") && user != "fedqd" {
        return status(403, "Forbidden", "nobody but fedqd may read Secrets");
    }
    let dry_run = uri.query().unwrap_or_default().contains("dryRun=All");
    match method {
        Method::GET => read(&world, &path, uri.query().unwrap_or_default()),
        Method::POST => create(&mut world, &path, body, dry_run),
        Method::PATCH => patch(&mut world, &path, &body, dry_run),
        Method::DELETE => {
            if !dry_run {
                world.objects.remove(&path);
            }
            status(200, "", "")
        }
        _ => status(405, "MethodNotAllowed", "no"),
    }
}

fn token_review(world: &World, mut review: Value) -> Response {
    let token = review["spec"]["token"].as_str().unwrap();
    review["status"] = match world.tokens.get(token) {
        Some((user, audience)) => json!({
            "authenticated": true,
            "user": {"username": user, "groups": ["system:authenticated"]},
            "audiences": [audience],
        }),
        None => json!({"authenticated": false}),
    };
    axum::Json(review).into_response()
}

fn access_review(world: &World, mut review: Value) -> Response {
    let user = review["spec"]["user"].as_str().unwrap();
    let attributes = &review["spec"]["resourceAttributes"];
    let writes = attributes["verb"] != "list";
    let everybodys = attributes["verb"] == "impersonate"
        || (attributes["group"] == "fedq.dev" && attributes["namespace"].is_null());
    let parts = [&attributes["resource"], &attributes["subresource"]];
    let resource = parts.into_iter().filter_map(Value::as_str).collect::<Vec<_>>().join("/");
    let denied = world.denied.contains(&(user.to_owned(), resource))
        || world.strangers.contains(user)
        || (writes && world.viewers.contains(user))
        || (everybodys && !world.admins.contains(user));
    review["status"] = json!({"allowed": !denied, "reason": "no rule matches"});
    axum::Json(review).into_response()
}

fn read(world: &World, path: &str, query: &str) -> Response {
    if let Some(object) = world.objects.get(path) {
        return axum::Json(object).into_response();
    }
    if path.ends_with("/secrets") {
        let label =
            query.split_once("fedq.dev%2Fcluster%3D").map(|(_, rest)| rest.split('&').next().unwrap());
        let items: Vec<&Value> = world
            .objects
            .iter()
            .filter(|(key, object)| {
                key.starts_with(path) && object["metadata"]["labels"]["fedq.dev/cluster"].as_str() == label
            })
            .map(|(_, object)| object)
            .collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
        return axum::Json(list).into_response();
    }
    status(404, "NotFound", &format!("{path} not found"))
}

fn create(world: &mut World, path: &str, object: Value, dry_run: bool) -> Response {
    let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
    if world.objects.contains_key(&path) {
        return status(409, "AlreadyExists", "it already exists");
    }
    if !dry_run {
        world.put(&path, object.clone());
    }
    axum::Json(object).into_response()
}

fn patch(world: &mut World, path: &str, change: &Value, dry_run: bool) -> Response {
    if path.contains("clusterresourceclaims")
        && let Some(spec) = world.meanwhile.pop()
    {
        let mut object = world.objects[path].clone();
        object["spec"] = spec;
        world.put(path, object);
    }
    let Some(mut object) = world.objects.get(path).cloned() else {
        return status(404, "NotFound", &format!("{path} not found"));
    };
    let expected = &change["metadata"]["resourceVersion"];
    if !expected.is_null() && *expected != object["metadata"]["resourceVersion"] {
        return status(
            409,
            "Conflict",
            "the object has been modified; please apply your changes to the latest version",
        );
    }
    merge(&mut object, change);
    if object["spec"]["nominalResources"]["forbidden.example.com/x"].is_string() {
        let message = "admission webhook \"claims.fedq.dev\" denied the request: forbidden.example.com/x is not for you";
        return status(403, "Forbidden", message);
    }
    if !dry_run {
        world.put(path, object.clone());
        object = world.objects[path].clone();
    }
    axum::Json(object).into_response()
}

fn merge(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            object.as_object_mut().unwrap().shift_remove(key);
        } else {
            merge(&mut object[key], value);
        }
    }
}

fn status(code: u16, reason: &str, message: &str) -> Response {
    let outcome = if code < 400 { "Success" } else { "Failure" };
    let body = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {},
        "status": outcome, "reason": reason, "message": message, "code": code,
    });
    (StatusCode::from_u16(code).unwrap(), axum::Json(body)).into_response()
}
