//! One request, one answer: who asks, what for, and may they.

mod admission;
mod commit;
mod decode;
mod delete;
mod discovery;
mod encode;
mod herd;
mod internal;
mod list;
mod log;
mod options;
mod patch;
mod query;
mod read;
mod review;
mod route;
mod settle;
mod spoil;
mod table;
mod watch;
mod write;

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header, request::Parts};

use super::callers::Shown;
use super::cluster::State;
use super::counts::Sent;
use super::rbac::{Attributes, User};
use super::status::Refusal;
use query::Query;
use route::{Resource, Route};

pub(super) use delete::{FOREGROUND, ORPHAN};
pub use internal::{Internal, write_internally};

/// The largest body taken, as real servers limit it.
const LARGEST: usize = 3 << 20;

/// What every handler is told of the request.
struct Call<'a> {
    state: &'a Arc<State>,
    parts: &'a Parts,
    query: Query,
    user: User,
    sent: Sent,
    warnings: Mutex<Vec<String>>,
}

impl Call<'_> {
    /// The answer will say so too.
    fn warn(&self, warning: String) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(warning);
    }

    fn header(&self, name: &header::HeaderName) -> &str {
        text(&self.parts.headers, name)
    }

    /// As RFC 7234 has it; what no header can carry is not told.
    fn with_warnings(self, mut response: Response<Body>) -> Response<Body> {
        let warnings = self.warnings.into_inner().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings {
            if let Ok(value) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
                response.headers_mut().append(header::WARNING, value);
            }
        }
        response
    }

    /// Who writes, as managedFields name them.
    fn manager(&self) -> String {
        let named = self.query.get("fieldManager").filter(|manager| !manager.is_empty());
        let agent = self.header(&header::USER_AGENT).split(['/', ' ']).next().unwrap_or_default();
        named.unwrap_or(if agent.is_empty() { "unknown" } else { agent }).to_owned()
    }
}

fn text(headers: &HeaderMap, name: impl header::AsHeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Answers a request as an API server does.
pub async fn answer(state: Arc<State>, request: Request<Body>) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    if state.faults.any()
        && let Some(spoiled) = spoil::meet(&state, &mut parts).await
    {
        return spoiled;
    }
    let response = serve(&state, &parts, body).await;
    if parts.extensions.get::<spoil::AnswerLost>().is_some() {
        return std::future::pending().await;
    }
    response.unwrap_or_else(|refusal| refusal.response(text(&parts.headers, header::ACCEPT)))
}

async fn serve(state: &Arc<State>, parts: &Parts, body: Body) -> Result<Response<Body>, Refusal> {
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let user = authenticate(state, parts)?;
    let route = Route::parse(parts.uri.path());
    let verb = verb(&parts.method, &route, &query)?;
    let attributes = attributes(&route, verb, parts.uri.path());
    let sent = state.counts.request(verb, &attributes.resource);
    let mut call = Call { state, parts, query, user, sent, warnings: Mutex::default() };
    if let Some(acting) = impersonated(&call)? {
        call.user = acting;
    }
    if !attributes.is_allowed(&call.user, &state.store) {
        let message = attributes.refusal(&call.user);
        let resource = attributes.resource.split('/').next().unwrap_or_default();
        return Err(Refusal::forbidden(message, resource, &attributes.group, &attributes.name));
    }
    let Route::Resource(resource) = route else { return discovery::answer(&call) };
    if !state.serves(resource.kind) {
        return Err(Refusal::no_resource());
    }
    let body = match verb {
        "create" | "update" | "patch" | "delete" | "deletecollection" => {
            let bytes = axum::body::to_bytes(body, LARGEST).await;
            bytes.map_err(|_| Refusal::bad_request("the body is too large or broke off"))?
        }
        _ => axum::body::Bytes::new(),
    };
    if matches!(verb, "update" | "patch" | "delete" | "deletecollection") {
        herd::make_writable(state, resource.kind, &resource.name);
    }
    let answered = match verb {
        "get" if log::is_asked(&resource) => log::log(&call, &resource).await,
        "get" => read::get(&call, &resource).await,
        "list" => list::list(&call, &resource).await,
        "watch" => watch::watch(&call, &resource),
        "create" => write::create(&call, &resource, &body).await,
        "update" => write::update(&call, &resource, &body).await,
        "patch" => patch::patch(&call, &resource, &body).await,
        "delete" => delete::delete(&call, &resource, &body).await,
        _ => delete::delete_all(&call, &resource, &body).await,
    };
    if answered.is_ok() && call.query.get("dryRun").is_none() {
        call.sent.succeeded();
    }
    answered.map(|response| call.with_warnings(response))
}

fn verb(method: &Method, route: &Route, query: &Query) -> Result<&'static str, Refusal> {
    let Route::Resource(resource) = route else {
        return if method == Method::GET { Ok("get") } else { Err(Refusal::method("")) };
    };
    let one = !resource.name.is_empty();
    let watches = query.flag("watch");
    match *method {
        Method::GET if one && !watches => Ok("get"),
        Method::GET if watches => Ok("watch"),
        Method::GET => Ok("list"),
        Method::POST if !one || resource.part.is_some() => Ok("create"),
        Method::PUT if one => Ok("update"),
        Method::PATCH if one => Ok("patch"),
        Method::DELETE if one => Ok("delete"),
        Method::DELETE => Ok("deletecollection"),
        _ => Err(Refusal::method("")),
    }
}

fn attributes(route: &Route, verb: &str, path: &str) -> Attributes {
    let verb = verb.to_owned();
    let Route::Resource(resource) = route else {
        return Attributes { verb, path: Some(path.to_owned()), ..Attributes::default() };
    };
    let Resource { kind, namespace, name, part, .. } = resource;
    let plural =
        part.as_ref().map_or_else(|| kind.plural.to_owned(), |part| format!("{}/{part}", kind.plural));
    let group = resource.group().to_owned();
    Attributes { verb, group, resource: plural, namespace: namespace.clone(), name: name.clone(), path: None }
}

/// By the certificate of the connection, else by a token. A bad one of either is only made up for by a good other.
fn authenticate(state: &State, parts: &Parts) -> Result<User, Refusal> {
    let shown = parts.extensions.get::<Shown>().cloned().unwrap_or_default();
    let certified = state.caller(&shown);
    let token = bearer(text(&parts.headers, header::AUTHORIZATION));
    let known = certified.clone().ok().flatten().or_else(|| state.user_of(token?));
    match known {
        Some(mut user) => {
            user.groups.push("system:authenticated".to_owned());
            Ok(user)
        }
        None if certified.is_ok() && token.is_none() => {
            Ok(User::new("system:anonymous", &["system:unauthenticated"]))
        }
        None => Err(Refusal::unauthorized()),
    }
}

/// Other schemes are as good as none.
fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.trim().split_once(' ')?;
    let token = token.split(' ').next().filter(|token| !token.is_empty());
    token.filter(|_| scheme.eq_ignore_ascii_case("bearer"))
}

/// As whom the caller acts, if they may.
fn impersonated(call: &Call<'_>) -> Result<Option<User>, Refusal> {
    let headers = &call.parts.headers;
    let name = text(headers, "impersonate-user");
    if name.is_empty() {
        return Ok(None);
    }
    let groups = headers.get_all("impersonate-group").iter().filter_map(|group| group.to_str().ok());
    let mut groups: Vec<String> = groups.map(str::to_owned).collect();
    let may = |resource: &str, name: &str| {
        let (verb, resource, name) = ("impersonate".to_owned(), resource.to_owned(), name.to_owned());
        let attributes = Attributes { verb, resource, name, ..Attributes::default() };
        if attributes.is_allowed(&call.user, &call.state.store) {
            return Ok(());
        }
        Err(Refusal::forbidden(attributes.refusal(&call.user), &attributes.resource, "", &attributes.name))
    };
    may("users", name)?;
    for group in &groups {
        may("groups", group)?;
    }
    groups.push("system:authenticated".to_owned());
    Ok(Some(User { name: name.to_owned(), groups }))
}
