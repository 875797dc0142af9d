//! Every route, and the OpenAPI document made from them.

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request},
    http::{Extensions, HeaderMap, HeaderValue, StatusCode, Version, header},
    middleware::{from_fn, from_fn_with_state, map_response},
    response::IntoResponse,
    routing::get,
};
use tower_http::compression::{CompressionLayer, DefaultPredicate, Predicate, predicate::SizeAbove};
use utoipa::OpenApi;
use utoipa_axum::{
    router::{OpenApiRouter, UtoipaMethodRouter},
    routes,
};

use super::{
    Failure, State, app_wrapper, audit, capacity, check, claim, cluster, document, gzip, k8s_cli, object,
    parameters::{self, Parameters},
    placement, proxy, queue, reference, system, task, upload, volume,
};
use fedq_wire::problem::{Code, Problem};

const MAX_BODY: usize = 2 << 20;
/// Smaller answers fit one packet as they are.
const SMALL: u16 = 1400;

/// By its media type.
fn is_compressed(media: &HeaderValue) -> bool {
    let media = media.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    ["application/json", "text/html", "text/css", "text/javascript"].contains(&media)
}

/// Marks an answer whose pieces go out as they come.
#[derive(Clone, Copy)]
pub struct Uncompressed;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "fedq",
        description = "Clusters joined to a hub, claims on their resources, and the quota made of them. Errors are problem details (RFC 9457).",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(Problem)),
    tags(
        (name = "clusters", description = "Joined clusters"),
        (name = "claims", description = "ClusterResourceClaims: which queue gets what of a cluster"),
        (name = "capacity", description = "What clusters have"),
        (name = "quota", description = "The quota of the hub's queues"),
        (name = "check", description = "Diagnosis"),
        (name = "tasks", description = "What people run"),
        (name = "volumes", description = "Storage that tasks mount"),
        (name = "placements", description = "Which clusters Placements choose, and why"),
        (
            name = "proxy",
            description = "Kubernetes' API of a joined cluster, as far as kueue's commands ask for it, is under `/api/v1/clusters/{cluster}/proxy`, the hub's under `/api/v1/hub/proxy`: for `kubectl --server` and `fedq kueue`. Under `/api/v1/followed` the same paths of ClusterQueues, LocalQueues and ResourceFlavors give one line for each cluster, from what fedqd follows of it: `?clusters=a,b` names some. What passes, with whose rights, is described in docs/commands.md. Paths of any length are nothing that this document can list; a cluster's own is at `/api/v1/clusters/{cluster}/proxy/openapi/v3`."
        ),
        (name = "audit", description = "Who did what"),
        (name = "system", description = "The daemon itself")
    )
)]
struct Document;

/// The whole API with its probes, to be served as it is.
pub fn router(state: State) -> Router {
    let (api, document) = documented().split_for_parts();
    let document = document::finish(&document);
    let api = api
        .layer(from_fn(object::not_modified))
        .layer(from_fn_with_state((state.clone(), Parameters::of(&document)), parameters::check));
    let page = if state.page { fedq_page::router() } else { Router::new() };
    let page = page.layer(from_fn(object::not_modified));
    let reference = reference::router(&document);
    let document = document.to_string();
    let headers = [(header::CONTENT_TYPE, "application/json")];
    // Not streams: lines of theirs must not wait for more to compress, so they are packed apart.
    let lists = DefaultPredicate::new().and(SizeAbove::new(SMALL)).and(
        |_: StatusCode, _: Version, headers: &HeaderMap, extensions: &Extensions| {
            extensions.get::<Uncompressed>().is_none()
                && headers.get(header::CONTENT_TYPE).is_some_and(is_compressed)
        },
    );
    api.merge(k8s_cli::router(&state))
        .merge(proxy::router())
        .merge(reference)
        .merge(page)
        .route("/api/v1/openapi.json", get(async move || (headers, document)))
        .route("/healthz", get(system::healthz))
        .route("/readyz", get(system::readyz))
        .fallback(async |request: Request| {
            let none = || Failure::not_found("there is no such path").next("/api/v1/openapi.json lists them");
            k8s_cli::nowhere(&request).unwrap_or_else(|| none().into_response())
        })
        .method_not_allowed_fallback(async || {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            Failure::new(status, Code::MethodNotAllowed, "the path does not take this method")
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn(gzip::streams))
        .layer(CompressionLayer::new().gzip(true).compress_when(lists))
        .layer(map_response(object::packed))
        .with_state(state)
}

/// The OpenAPI document as it is kept in `deploy/openapi.json`.
pub fn openapi() -> serde_json::Value {
    document::finish(&documented().into_openapi())
}

fn documented() -> OpenApiRouter<State> {
    let api = operations().into_iter().fold(OpenApiRouter::new(), OpenApiRouter::routes);
    OpenApiRouter::with_openapi(Document::openapi()).nest("/api/v1", api)
}

/// Each path with its methods.
fn operations() -> Vec<UtoipaMethodRouter<State>> {
    vec![
        routes!(cluster::list_clusters, cluster::join_cluster),
        routes!(cluster::get_cluster, cluster::leave_cluster),
        routes!(cluster::cordon_cluster),
        routes!(cluster::uncordon_cluster),
        routes!(cluster::confirm_cluster),
        routes!(check::check_cluster),
        routes!(check::check_all),
        routes!(claim::list_claims),
        routes!(claim::confirm_removal),
        routes!(claim::get_claim, claim::edit_claim),
        routes!(claim::assign),
        routes!(claim::diff_claim),
        routes!(claim::claim_history),
        routes!(capacity::list_capacity),
        routes!(capacity::capacity_history),
        routes!(queue::list_queues),
        routes!(queue::explain_queue),
        routes!(queue::set_base),
        routes!(queue::list_plans),
        routes!(task::list_tasks, task::submit_task),
        routes!(app_wrapper::submit_app_wrapper),
        routes!(task::stop_tasks),
        routes!(task::get_task),
        routes!(task::task_events),
        routes!(task::explain_task),
        routes!(task::stop_task),
        routes!(task::logs::task_logs),
        routes!(task::enter::exec_task),
        routes!(task::enter::forward_port),
        routes!(upload::get_upload, upload::put_upload),
        routes!(volume::list_volumes, volume::create_volume),
        routes!(volume::get_volume, volume::delete_volume),
        routes!(volume::adopt_volume),
        routes!(audit::list_audit),
        routes!(placement::list_placements),
        routes!(placement::simulate_placement),
        routes!(placement::get_placement),
        routes!(placement::explain_placement),
        routes!(system::version),
        routes!(system::whoami),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::{Value, json};

    use super::*;

    /// The one that came last would be taken for both.
    #[test]
    fn no_two_schemas_want_one_name() {
        let mut known: BTreeMap<String, Value> = BTreeMap::new();
        for (schemas, paths, _) in operations() {
            for (name, schema) in schemas {
                let schema = json!(schema);
                let before = known.entry(name.clone()).or_insert_with(|| schema.clone());
                assert_eq!(*before, schema, "two schemas are called {name}; see {:?}", paths.paths.keys());
            }
        }
        // Beside them only the lines of streams, two a list that can be followed, and the one that all have.
        let document = openapi();
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        let events = schemas.keys().filter(|name| name.ends_with("WatchEvent")).count();
        let others = Document::openapi().components.into_iter().flat_map(|others| others.schemas.into_keys());
        let named: BTreeSet<String> = known.into_keys().chain(others).collect();
        assert_eq!(schemas.len(), named.len() + 2 * events + 1, "{:?}", schemas.keys());
        assert!(5 < events && 50 < named.len());
    }

    #[test]
    fn every_reference_of_the_document_leads_somewhere() {
        let document = openapi();
        let mut references = Vec::new();
        collect(&document, &mut references);
        assert!(100 < references.len(), "{}", references.len());
        for reference in references {
            let pointer = reference.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
        }
    }

    fn collect(value: &Value, references: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                references.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| collect(value, references));
            }
            Value::Array(items) => items.iter().for_each(|value| collect(value, references)),
            _ => {}
        }
    }

    #[test]
    fn operations_are_named_once_and_say_how_they_fail() {
        let document = openapi();
        let mut ids = Vec::new();
        for (path, item) in document["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("operations") {
                ids.push(operation["operationId"].as_str().expect("an id").to_owned());
                for (status, response) in operation["responses"].as_object().expect("responses") {
                    let said = response["$ref"].is_string() || response["description"].is_string();
                    assert!(said, "{method} {path}: {status} has no description");
                }
                assert!(operation["responses"]["400"].is_object(), "{method} {path}");
            }
        }
        let named = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), named, "{ids:?}");
    }
}
