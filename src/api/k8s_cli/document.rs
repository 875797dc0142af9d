//! What describes k8s-cli's routes, apart from fedq's own API: at `/k8s-cli`, where the addresses lead to that its server
//! has it at.

use axum::{Router, http::header, response::Redirect, routing::get};
use serde_json::json;
use utoipa::OpenApi;

use super::State;
use crate::reference;

const PLACE: &str = "/k8s-cli/openapi.json";
const PAGE: &str = "/k8s-cli/docs";
/// How whoever asks is known.
const ACCESS: &str = "Every request but that of `/` takes the name in `X-User`, and its token: as the password of the URL, \
                      or as `Authorization: Bearer TOKEN`.";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "k8s-cli",
        description = "The routes of k8s-cli's server, so that its client works with fedq. fedq's own API is described at `/api/v1/openapi.json`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        super::health,
        super::list_tasks,
        super::submit,
        super::stop_all,
        super::get_task,
        super::stop,
        super::logs,
        super::list_volumes,
        super::create_volume,
        super::get_volume,
        super::delete_volume,
    ),
    tags(
        (name = "server", description = "The server itself"),
        (name = "tasks", description = "What people run"),
        (name = "volumes", description = "Storage that tasks mount")
    )
)]
struct Document;

fn document() -> serde_json::Value {
    let mut document = json!(Document::openapi());
    document["servers"] = json!([{"url": "/", "description": "The server that this document is read from"}]);
    document["components"]["securitySchemes"] = json!({
        "token": {"type": "http", "scheme": "bearer"}, "password": {"type": "http", "scheme": "basic"},
    });
    document["security"] = json!([{"token": []}, {"password": []}]);
    document["paths"]["/"]["get"]["security"] = json!([]);
    document
}

pub fn router() -> Router<State> {
    let document = document();
    let page = reference::page(&document, PLACE, ACCESS);
    let text = document.to_string();
    let headers = [(header::CONTENT_TYPE, "application/json")];
    Router::new()
        .route(PLACE, get(async move || (headers, text)))
        .route(PAGE, get(async move || page))
        .route("/openapi.json", get(async || Redirect::temporary(PLACE)))
        .route("/docs", get(async || Redirect::temporary(PAGE)))
        .route("/redoc", get(async || Redirect::temporary(PAGE)))
}
