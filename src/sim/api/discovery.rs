//! What is served, and by whom.

use std::collections::BTreeMap;

use axum::body::Body;
use http::{Response, StatusCode, header};
use serde_json::{Value, json};

use super::super::kind::{KINDS, Kind};
use super::super::status::Refusal;
use super::route::REVIEWS;
use super::{Call, encode};

pub(super) fn answer(call: &Call<'_>) -> Result<Response<Body>, Refusal> {
    let path = call.parts.uri.path().trim_end_matches('/');
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let document = match segments.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => return Ok(Response::new(Body::from("ok"))),
        ["version"] => call.state.version(),
        ["api"] => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ["api", version] => resources(call, "", version)?,
        ["apis"] => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups(call)}),
        ["apis", group] => {
            let found = groups(call).into_iter().find(|known| known["name"] == *group);
            let mut found = found.ok_or_else(unknown)?;
            found["kind"] = json!("APIGroup");
            found["apiVersion"] = json!("v1");
            found
        }
        ["apis", group, version] => resources(call, group, version)?,
        ["openapi", "v3"] => openapi_index(call),
        ["openapi", "v3", "api", version] => openapi(call, "", version)?,
        ["openapi", "v3", "apis", group, version] => openapi(call, group, version)?,
        ["api" | "apis", ..] => return Err(Refusal::no_resource()),
        _ => return Ok(page_not_found()),
    };
    Ok(encode::json(call, &document))
}

/// A group that is not served is no API, and its refusal no `Status`.
fn unknown() -> Refusal {
    Refusal::no_resource()
}

fn page_not_found() -> Response<Body> {
    let mut response = Response::new(Body::from("404 page not found\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn served<'a>(call: &'a Call<'_>) -> impl Iterator<Item = &'static Kind> + 'a {
    KINDS.iter().filter(|kind| call.state.serves(kind)).chain(REVIEWS)
}

fn groups(call: &Call<'_>) -> Vec<Value> {
    let mut versions: BTreeMap<&str, &str> = BTreeMap::new();
    for kind in served(call).filter(|kind| !kind.group.is_empty()) {
        versions.insert(kind.group, kind.version);
    }
    let group = |(group, version): (&str, &str)| {
        let version = json!({"groupVersion": format!("{group}/{version}"), "version": version});
        json!({"name": group, "versions": [version], "preferredVersion": version})
    };
    versions.into_iter().map(group).collect()
}

fn resources(call: &Call<'_>, group: &str, version: &str) -> Result<Value, Refusal> {
    let mut listed = Vec::new();
    let of_core = |kind: &&Kind| group.is_empty() && kind.kind == "Event";
    for kind in served(call).filter(|kind| (kind.group, kind.version) == (group, version) || of_core(kind)) {
        let review = REVIEWS.iter().any(|review| review.plural == kind.plural);
        let verbs: &[&str] = if review {
            &["create"]
        } else {
            &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
        };
        listed.push(json!({
            "name": kind.plural, "singularName": kind.kind.to_lowercase(), "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": verbs, "shortNames": kind.short_names,
        }));
        if kind.status {
            listed.push(json!({
                "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                "kind": kind.kind, "verbs": ["get", "patch", "update"],
            }));
        }
        if kind.kind == "Pod" {
            listed.push(json!({
                "name": "pods/log", "singularName": "", "namespaced": true, "kind": "Pod", "verbs": ["get"],
            }));
        }
        if kind.kind == "ServiceAccount" {
            listed.push(json!({
                "name": "serviceaccounts/token", "singularName": "", "namespaced": true,
                "group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest", "verbs": ["create"],
            }));
        }
    }
    if listed.is_empty() {
        return Err(unknown());
    }
    let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Ok(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": listed}))
}

/// As much as kubectl reads before it applies: where each group's document is.
fn openapi_index(call: &Call<'_>) -> Value {
    let mut paths = serde_json::Map::new();
    for kind in served(call) {
        let path = root(kind.group, kind.version);
        paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}")}));
    }
    json!({"paths": paths})
}

fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The kinds of a group, each open to any field: the server itself says which it does not know.
fn openapi(call: &Call<'_>, group: &str, version: &str) -> Result<Value, Refusal> {
    let (mut paths, mut schemas) = (serde_json::Map::new(), serde_json::Map::new());
    for kind in served(call).filter(|kind| (kind.group, kind.version) == (group, version)) {
        let scope = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
        let names = json!({"group": group, "version": version, "kind": kind.kind});
        let validates = json!({"name": "fieldValidation", "in": "query", "schema": {"type": "string"}});
        let operation = json!({"parameters": [validates], "x-kubernetes-group-version-kind": names});
        let path = format!("/{}/{scope}{}/{{name}}", root(group, version), kind.plural);
        paths.insert(path, json!({"patch": operation}));
        let schema = json!({
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-group-version-kind": [names],
        });
        schemas.insert(format!("{}.{}", root(group, version).replace('/', "."), kind.kind), schema);
    }
    if paths.is_empty() {
        return Err(unknown());
    }
    Ok(json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1"},
        "paths": paths, "components": {"schemas": schemas},
    }))
}
