//! Every route, and the OpenAPI document made from them.

use axum::{
    Router,
    extract::DefaultBodyLimit,
    http::{StatusCode, header},
    routing::get,
};
use utoipa::{
    OpenApi,
    openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Failure, State, audit, capacity, check, claim, cluster, k8s_cli, placement, queue, system, task, volume,
};
use crate::wire::problem::{Code, Problem};

const MAX_BODY: usize = 2 << 20;

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
        (name = "audit", description = "Who did what"),
        (name = "system", description = "The daemon itself")
    )
)]
struct Document;

/// The whole API with its probes, to be served as it is.
pub fn router(state: State) -> Router {
    let (api, document) = documented().split_for_parts();
    let document = finish(document).to_json().unwrap_or_default();
    let headers = [(header::CONTENT_TYPE, "application/json")];
    api.merge(k8s_cli::router(&state))
        .route("/api/v1/openapi.json", get(async move || (headers, document)))
        .route("/healthz", get(system::healthz))
        .route("/readyz", get(system::readyz))
        .fallback(async || {
            Failure::not_found("there is no such path").next("/api/v1/openapi.json lists them")
        })
        .method_not_allowed_fallback(async || {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            Failure::new(status, Code::BadRequest, "the path does not take this method")
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(state)
}

/// The OpenAPI document as it is kept in `deploy/openapi.json`.
pub fn openapi() -> utoipa::openapi::OpenApi {
    finish(documented().into_openapi())
}

fn documented() -> OpenApiRouter<State> {
    let api = OpenApiRouter::new()
        .routes(routes!(cluster::list_clusters, cluster::join_cluster))
        .routes(routes!(cluster::get_cluster, cluster::leave_cluster))
        .routes(routes!(cluster::cordon_cluster))
        .routes(routes!(cluster::uncordon_cluster))
        .routes(routes!(cluster::confirm_cluster))
        .routes(routes!(check::check_cluster))
        .routes(routes!(check::check_all))
        .routes(routes!(claim::list_claims))
        .routes(routes!(claim::confirm_removal))
        .routes(routes!(claim::get_claim, claim::edit_claim))
        .routes(routes!(claim::assign))
        .routes(routes!(claim::diff_claim))
        .routes(routes!(claim::claim_history))
        .routes(routes!(capacity::list_capacity))
        .routes(routes!(capacity::capacity_history))
        .routes(routes!(queue::list_queues))
        .routes(routes!(queue::explain_queue))
        .routes(routes!(queue::set_base))
        .routes(routes!(task::list_tasks, task::submit_task))
        .routes(routes!(task::stop_tasks))
        .routes(routes!(task::get_task))
        .routes(routes!(task::task_events))
        .routes(routes!(task::explain_task))
        .routes(routes!(task::stop_task))
        .routes(routes!(task::logs::task_logs))
        .routes(routes!(volume::list_volumes, volume::create_volume))
        .routes(routes!(volume::get_volume, volume::delete_volume))
        .routes(routes!(audit::list_audit))
        .routes(routes!(placement::list_placements))
        .routes(routes!(placement::simulate_placement))
        .routes(routes!(placement::get_placement))
        .routes(routes!(placement::explain_placement))
        .routes(routes!(system::version));
    OpenApiRouter::with_openapi(Document::openapi()).nest("/api/v1", api)
}

/// What holds for every operation.
fn finish(mut document: utoipa::openapi::OpenApi) -> utoipa::openapi::OpenApi {
    let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    document.components.get_or_insert_default().add_security_scheme("token", scheme);
    document.security = Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
    let problem = problem_response();
    for path in document.paths.paths.values_mut() {
        let operations = [&mut path.get, &mut path.put, &mut path.post, &mut path.delete];
        for operation in operations.into_iter().flatten() {
            operation.responses.responses.insert("default".to_owned(), problem.clone().into());
        }
    }
    document
}

fn problem_response() -> utoipa::openapi::Response {
    let content = utoipa::openapi::ContentBuilder::new()
        .schema(Some(utoipa::openapi::Ref::from_schema_name("Problem")))
        .build();
    utoipa::openapi::ResponseBuilder::new()
        .description("It failed, and why")
        .content(crate::wire::problem::PROBLEM_JSON, content)
        .build()
}
