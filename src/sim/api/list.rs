//! Listing: which objects, as of which version, how many of them at once.

use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::super::protobuf::{self, ListMeta};
use super::super::selector::Selector;
use super::super::status::{Cause, Refusal};
use super::super::store::{Name, Object};
use super::encode::{self, Form};
use super::query::Query;
use super::read::{reach, shown};
use super::route::Resource;
use super::spoil::GoneMidPage;
use super::{Call, herd, table};

pub(super) async fn list(call: &Call<'_>, resource: &Resource) -> Result<Response<Body>, Refusal> {
    let asked = Asked::parse(call, resource)?;
    let moment = asked.moment(call).await?;
    if let Some(herd) = call.state.herd_of(resource.kind) {
        return herd::list(call, resource, herd, &asked, moment);
    }
    let (kind, scope, store) = (resource.kind, resource.scope(), &call.state.store);
    let (mut found, at): (Vec<(Name, Object)>, u64) = match moment {
        None => store.list(kind, scope),
        Some(version) => (store.list_at(kind, scope, version).map_err(|_| asked.expired())?, version),
    };
    found.retain(|(name, object)| {
        asked.after().is_none_or(|after| after < name) && asked.selector.matches(object)
    });
    let left = found.len().saturating_sub(asked.limit);
    found.truncate(asked.limit);
    let metadata = asked.metadata(at, found.last().map(|(name, _)| name.clone()), left);
    let items = found.iter().map(|(_, object)| shown(resource, object)).collect();
    render(call, resource, items, metadata)
}

/// What a query wants of a list.
pub(super) struct Asked {
    pub selector: Selector,
    pub limit: usize,
    version: Option<u64>,
    /// Of that version and no other.
    exact: bool,
    page: Option<Page>,
    /// A fault has the second page expire.
    expires: bool,
}

impl Asked {
    fn parse(call: &Call<'_>, resource: &Resource) -> Result<Self, Refusal> {
        let query = &call.query;
        let selector =
            Selector::parse(resource.kind, query.get("labelSelector"), query.get("fieldSelector"))?;
        let limit = query.number("limit")?.filter(|limit| 0 < *limit);
        let version = query.version()?;
        let token = query.get("continue").filter(|token| !token.is_empty());
        check_match(query, token.is_some())?;
        let page = token.map(Page::parse).transpose()?;
        if page.is_some() && version.is_some_and(|version| 0 < version) {
            let why = "specifying resource version is not allowed when using continue";
            return Err(Refusal::bad_request(why));
        }
        let exact = match query.get("resourceVersionMatch").unwrap_or_default() {
            "Exact" => true,
            "" => limit.is_some(),
            _ => false,
        };
        let expires = call.parts.extensions.get::<GoneMidPage>().is_some();
        // Lists from the watch cache, asked for with version 0, come in one piece.
        let limit = limit.map(|limit| if expires { 1 } else { limit }).filter(|_| version != Some(0));
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        Ok(Self { selector, limit, version, exact, page, expires })
    }

    /// As of which version it is to be; none for what is there now.
    async fn moment(&self, call: &Call<'_>) -> Result<Option<u64>, Refusal> {
        if let Some(page) = &self.page {
            return if self.expires {
                Err(page.expired())
            } else {
                Ok(Some(page.version).filter(|at| 0 < *at))
            };
        }
        let Some(version) = self.version.filter(|version| 0 < *version) else { return Ok(None) };
        reach(&call.state.store, version).await?;
        Ok(self.exact.then_some(version))
    }

    /// What is not remembered any more.
    pub fn expired(&self) -> Refusal {
        let whole = || Refusal::expired("The resourceVersion for the provided list is too old.");
        self.page.as_ref().map_or_else(whole, Page::expired)
    }

    /// The last name of the page before.
    pub fn after(&self) -> Option<&Name> {
        self.page.as_ref().map(|page| &page.after)
    }

    /// Of a list of that version that ends with that name, with so many left.
    pub fn metadata(&self, at: u64, last: Option<Name>, left: usize) -> Value {
        let mut metadata = json!({"resourceVersion": at.to_string()});
        if let Some(after) = last.filter(|_| 0 < left) {
            metadata["continue"] = json!(Page { version: at, after }.token());
            // With a selector nobody has counted.
            if self.selector.is_empty() {
                metadata["remainingItemCount"] = json!(left);
            }
        }
        metadata
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

pub(super) fn list_meta(metadata: &Value) -> ListMeta<'_> {
    ListMeta {
        resource_version: metadata["resourceVersion"].as_str().unwrap_or_default(),
        next: metadata["continue"].as_str(),
        remaining: metadata["remainingItemCount"].as_i64(),
    }
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
            let body = protobuf::encode_list(kind, &items, list_meta(&metadata));
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
