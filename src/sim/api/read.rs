//! Getting and listing.

use std::time::Duration;

use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::super::protobuf::{self, ListMeta};
use super::super::selector::Selector;
use super::super::status::{Cause, Refusal};
use super::super::store::{Name, Object, Store};
use super::encode::{self, Form};
use super::query::Query;
use super::route::Resource;
use super::spoil::GoneMidPage;
use super::{Call, table};

/// How long a server waits for a version it does not know yet.
const WAITS_FOR_VERSION: Duration = Duration::from_secs(3);

pub(super) async fn get(call: &Call<'_>, resource: &Resource) -> Result<Response<Body>, Refusal> {
    if let Some(version) = call.query.version()? {
        reach(&call.state.store, version).await?;
    }
    let object = find(call, resource)?;
    one(call, resource, &object, StatusCode::OK)
}

pub(super) fn find(call: &Call<'_>, resource: &Resource) -> Result<Object, Refusal> {
    let known = resource.part.as_deref().is_none_or(|part| part == "status" && resource.kind.status);
    if !known {
        return Err(Refusal::no_resource());
    }
    let object = match call.state.herd_of(resource.kind) {
        Some(herd) => herd.value(&resource.name).map(Object::new),
        None => call.state.store.get(resource.kind, &resource.key()),
    };
    object.ok_or_else(|| Refusal::not_found(resource.kind, &resource.name))
}

/// An object in the form that was asked for.
pub(super) fn one(
    call: &Call<'_>,
    resource: &Resource,
    object: &Value,
    status: StatusCode,
) -> Result<Response<Body>, Refusal> {
    let shown = shown(resource, object);
    let form = encode::form(call, resource)?;
    let document = match form {
        Form::Protobuf(kind) => {
            return Ok(encode::bytes(call, status, protobuf::encode(kind, &shown), encode::PROTOBUF));
        }
        Form::Table => {
            table::of(resource.kind, &[&shown], &shown["metadata"]["resourceVersion"], call.state.now())
        }
        Form::Metadata => table::partial(&shown),
        Form::Json | Form::Yaml => shown,
    };
    Ok(encode::text(call, status, form, &document))
}

/// As the path's group names it; events have two forms.
pub(super) fn shown(resource: &Resource, object: &Value) -> Value {
    let mut shown = object.clone();
    if resource.core_event {
        core_event(&mut shown);
    }
    shown
}

fn core_event(event: &mut Value) {
    let moves = [
        ("regarding", "involvedObject"),
        ("note", "message"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("reportingController", "reportingComponent"),
    ];
    event["apiVersion"] = json!("v1");
    if let Some(fields) = event.as_object_mut() {
        for (from, to) in moves {
            if let Some(value) = fields.shift_remove(from) {
                fields.insert(to.to_owned(), value);
            }
        }
        fields.entry("source").or_insert_with(|| json!({}));
    }
}

/// Where a list goes on.
struct Page {
    /// As of when; 0 for whatever is there then.
    version: u64,
    after: Name,
}

impl Page {
    /// Who still wants the rest gets what is there now, at the price of a list that is not of one moment.
    fn expired(&self) -> Refusal {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
                       new list without the continue parameter, or use the continue token in this response to retrieve \
                       the remainder of the results. Continuing with the provided token results in an inconsistent list \
                       - objects that were created, modified, or deleted between the time the first chunk was returned \
                       and now may show up in the list.";
        let next = Self { version: 0, after: self.after.clone() };
        Refusal::expired_at(message, &next.token())
    }

    /// The token is opaque to clients; its form is this server's own.
    fn token(&self) -> String {
        format!("{}.{}.{}", self.version, self.after.0, self.after.1)
    }

    fn parse(token: &str) -> Result<Self, Refusal> {
        let mut parts = token.splitn(3, '.');
        let version = parts.next().and_then(|version| version.parse().ok());
        let (Some(version), Some(namespace), Some(name)) = (version, parts.next(), parts.next()) else {
            return Err(Refusal::bad_request("continue key is not valid"));
        };
        Ok(Self { version, after: (namespace.to_owned(), name.to_owned()) })
    }
}

pub(super) async fn list(call: &Call<'_>, resource: &Resource) -> Result<Response<Body>, Refusal> {
    let query = &call.query;
    let selector = Selector::parse(resource.kind, query.get("labelSelector"), query.get("fieldSelector"))?;
    if selector.is_empty()
        && let Some(answer) = super::herd::list(call, resource)?
    {
        return Ok(answer);
    }
    let limit = query.number("limit")?.filter(|limit| 0 < *limit);
    let version = query.version()?;
    let token = query.get("continue").filter(|token| !token.is_empty());
    check_match(query, token.is_some())?;
    let expires = call.parts.extensions.get::<GoneMidPage>().is_some();
    let limit = limit.map(|limit| if expires { 1 } else { limit });
    let (objects, at, after) = if let Some(token) = token {
        let page = Page::parse(token)?;
        if version.is_some_and(|version| 0 < version) {
            let why = "specifying resource version is not allowed when using continue";
            return Err(Refusal::bad_request(why));
        }
        let (objects, at) = if expires { Err(page.expired()) } else { rest(call, resource, &page) }?;
        (objects, at, Some(page.after))
    } else {
        let (objects, at) = whole(call, resource, (version, selector.name()), limit.is_some()).await?;
        (objects, at, None)
    };
    // Lists from the watch cache, asked for with version 0, come in one piece.
    let limit = limit.filter(|_| version != Some(0));
    let matching = objects
        .iter()
        .filter(|(name, object)| after.as_ref().is_none_or(|after| after < name) && selector.matches(object));
    let mut found: Vec<&(Name, Object)> = matching.collect();
    let total = found.len();
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    found.truncate(limit);
    let next = found
        .last()
        .filter(|_| limit < total)
        .map(|(name, _)| Page { version: at, after: name.clone() }.token());
    let remaining = next.as_ref().filter(|_| selector.is_empty()).map(|_| total - limit);
    let mut metadata = json!({"resourceVersion": at.to_string()});
    if let Some(next) = next {
        metadata["continue"] = json!(next);
    }
    if let Some(remaining) = remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    let items: Vec<Value> = found.into_iter().map(|(_, object)| shown(resource, object)).collect();
    render(call, resource, items, metadata)
}

/// What a list goes on with.
fn rest(call: &Call<'_>, resource: &Resource, page: &Page) -> Result<(Vec<(Name, Object)>, u64), Refusal> {
    let store = &call.state.store;
    if page.version == 0 {
        return Ok(store.list(resource.kind, resource.scope()));
    }
    let objects = store.list_at(resource.kind, resource.scope(), page.version);
    objects.map(|objects| (objects, page.version)).map_err(|_| page.expired())
}

/// Waits a while for a version that is not there yet.
async fn reach(store: &Store, version: u64) -> Result<(), Refusal> {
    let current = store.version();
    if version <= current {
        return Ok(());
    }
    let mut moved = store.moved();
    let reached = tokio::time::timeout(WAITS_FOR_VERSION, moved.wait_for(|now| version <= *now)).await;
    reached.map(drop).map_err(|_| Refusal::too_large(version, current))
}

/// Everything at a version that the query allows.
async fn whole(
    call: &Call<'_>,
    resource: &Resource,
    (version, name): (Option<u64>, Option<&str>),
    limited: bool,
) -> Result<(Vec<(Name, Object)>, u64), Refusal> {
    let store = &call.state.store;
    if let Some(herd) = call.state.herd_of(resource.kind) {
        let named = |node: Value| (super::super::store::name_of(&node), Object::new(node));
        // Who asks for a name, as watchers that want to know the version do, does not have all others rendered.
        let (nodes, at) = herd.values(store, name);
        return Ok((nodes.into_iter().map(named).collect(), at));
    }
    let Some(version) = version.filter(|version| 0 < *version) else {
        return Ok(store.list(resource.kind, resource.scope()));
    };
    reach(store, version).await?;
    let exact = match call.query.get("resourceVersionMatch").unwrap_or_default() {
        "Exact" => true,
        "" => limited,
        _ => false,
    };
    if !exact {
        return Ok(store.list(resource.kind, resource.scope()));
    }
    let then = store.list_at(resource.kind, resource.scope(), version);
    let then = then.map_err(|_| Refusal::expired("The resourceVersion for the provided list is too old."))?;
    Ok((then, version))
}

/// Which versions may be asked for how.
fn check_match(query: &Query, goes_on: bool) -> Result<(), Refusal> {
    let asked = query.get("resourceVersionMatch").unwrap_or_default();
    let version = query.get("resourceVersion").unwrap_or_default();
    let mut causes = Vec::new();
    let mut forbid = |field: &str, why: &str| {
        causes.push(Cause::new("FieldValueForbidden", field, format!("Forbidden: {why}")));
    };
    if !asked.is_empty() {
        let field = "resourceVersionMatch";
        if version.is_empty() {
            forbid(field, "resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if goes_on {
            forbid(field, "resourceVersionMatch is forbidden when continue is provided");
        }
        if asked == "Exact" && version == "0" {
            forbid(field, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
    }
    if query.get("sendInitialEvents").is_some() {
        forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    if !matches!(asked, "" | "Exact" | "NotOlderThan") {
        let message =
            format!("Unsupported value: {asked:?}: supported values: \"Exact\", \"NotOlderThan\", \"\"");
        causes.push(Cause::new("FieldValueNotSupported", "resourceVersionMatch", message));
    }
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid_options("ListOptions", &causes)) }
}

pub(super) fn render(
    call: &Call<'_>,
    resource: &Resource,
    mut items: Vec<Value>,
    metadata: Value,
) -> Result<Response<Body>, Refusal> {
    let form = encode::form(call, resource)?;
    let body = match form {
        Form::Protobuf(kind) => {
            let items: Vec<&Value> = items.iter().collect();
            let head = ListMeta {
                resource_version: metadata["resourceVersion"].as_str().unwrap_or_default(),
                next: metadata["continue"].as_str(),
                remaining: metadata["remainingItemCount"].as_i64(),
            };
            let body = protobuf::encode_list(kind, &items, head);
            return Ok(encode::bytes(call, StatusCode::OK, body, encode::PROTOBUF));
        }
        Form::Table => {
            let items: Vec<&Value> = items.iter().collect();
            let mut body = table::of(resource.kind, &items, &metadata["resourceVersion"], call.state.now());
            body["metadata"] = metadata;
            body
        }
        Form::Metadata => {
            let items: Vec<Value> = items.iter().map(table::partial).collect();
            json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata, "items": items,
            })
        }
        Form::Json | Form::Yaml => {
            if !resource.kind.is_custom() {
                // As real servers do, whose lists of their own kinds name the kind once.
                for fields in items.iter_mut().filter_map(Value::as_object_mut) {
                    fields.shift_remove("kind");
                    fields.shift_remove("apiVersion");
                }
            }
            json!({
                "kind": format!("{}List", resource.kind.kind), "apiVersion": resource.api_version(),
                "metadata": metadata, "items": items,
            })
        }
    };
    Ok(encode::text(call, StatusCode::OK, form, &body))
}
