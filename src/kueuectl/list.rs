//! `list`: pages of objects of one cluster or several, filtered, as a table or as one document.

use fedq_values::age;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    api::{Api, Call},
    error::Error,
    fleet::{Cluster, ask},
    output::Printer,
    resource::{DryRun, Resource, query_text},
    session::{Session, text},
    table::{Table, aligned},
    watch,
    workload::owners,
};

const LIMIT: i64 = 100;

/// Names the cluster of an object that stands in one document with those of others.
const CLUSTER: &str = "fedq.dev/cluster";

/// What is asked of the server.
#[derive(Clone)]
pub struct Query {
    pub resource: Resource,
    /// Empty for all.
    pub namespace: String,
    pub labels: String,
    pub fields: String,
    /// Only what this UID owns.
    pub owner: Option<String>,
    pub limit: i64,
}

impl Query {
    pub fn new(session: &mut Session<'_, '_>, resource: Resource) -> Result<Self, Error> {
        let limit = limit(session)?;
        let namespace = if resource.namespaced { session.scope()? } else { String::new() };
        let labels = session.given.text("selector").to_owned();
        let fields = session.given.text("field-selector").to_owned();
        Ok(Self { resource, namespace, labels, fields, owner: None, limit })
    }

    pub fn path(&self, next: &str) -> String {
        let limit = self.limit.to_string();
        let limit = if self.limit == 0 { "" } else { &limit };
        self.path_with(&[("limit", limit), ("continue", next)])
    }

    pub fn path_with(&self, more: &[(&str, &str)]) -> String {
        let own = [("labelSelector", self.labels.as_str()), ("fieldSelector", self.fields.as_str())];
        self.resource.path(&self.namespace, "") + &query_text(&[&own, more].concat())
    }

    /// All pages as one list, with the last one's metadata.
    pub async fn all(&self, api: &Api) -> Result<Value, Error> {
        let mut items = Vec::new();
        let mut next = String::new();
        loop {
            let mut page = api.call(&Call::get(self.path(&next), self.resource.full_name())).await?;
            items.append(page["items"].as_array_mut().unwrap_or(&mut Vec::new()));
            let more = text(&page, "/metadata/continue").to_owned();
            if more.is_empty() {
                page["items"] = Value::Array(items);
                return Ok(page);
            }
            next = more;
        }
    }

    pub fn is_owned(&self, object: &Value) -> bool {
        self.owner.as_ref().is_none_or(|uid| owners(object).any(|owner| owner["uid"] == uid.as_str()))
    }
}

/// How many objects a page has, `$KUEUECTL_LIST_REQUEST_LIMIT`.
fn limit(session: &Session<'_, '_>) -> Result<i64, Error> {
    let asked = (session.world.variables)("KUEUECTL_LIST_REQUEST_LIMIT").unwrap_or_default();
    if asked.is_empty() {
        return Ok(LIMIT);
    }
    asked.to_str().and_then(|text| text.parse().ok()).ok_or_else(|| Error::said("invalid list request limit"))
}

/// One kind of list: what it asks of a cluster, and what it shows of what is there.
pub trait Listing {
    /// Go's names of the objects' type and of their list's.
    const KIND: &'static str;
    const LIST: &'static str;
    /// What kueuectl says where there is nothing ends with it.
    const DOT: &'static str = "";
    /// What a watch asks for.
    const ACCEPT: &'static str = crate::api::JSON;
    /// What is looked up besides the objects themselves.
    type About;

    /// What is there, and the query for it; none where the cluster cannot have any.
    async fn find(&self, api: &Api) -> Result<Option<(Query, Value)>, Error>;
    async fn about(&self, api: &Api, list: &Value) -> Result<Self::About, Error>;
    /// The objects of a watch's event.
    fn objects(&self, object: Value) -> Vec<Value> {
        vec![object]
    }
    fn keeps(&self, object: &Value, about: &Self::About) -> bool;
    /// Whether `-o` asks for objects as they are.
    fn as_documents(&self, session: &Session<'_, '_>) -> bool {
        session.given.has("output")
    }
    fn columns(&self, about: &Self::About) -> Vec<String>;
    fn row(&self, object: &Value, about: &Self::About, now: Timestamp) -> Vec<String>;
}

/// What one cluster has.
pub struct Found<A> {
    pub list: Value,
    pub about: A,
}

/// What a cluster has of a list, none where it cannot have any.
pub async fn found<L: Listing>(listing: &L, api: &Api) -> Result<Option<(Query, Found<L::About>)>, Error> {
    let Some((query, mut list)) = listing.find(api).await? else { return Ok(None) };
    keep(&mut list, |object| query.is_owned(object));
    let about = listing.about(api, &list).await?;
    keep(&mut list, |object| listing.keeps(object, &about));
    Ok(Some((query, Found { list, about })))
}

pub async fn run<L: Listing>(session: &mut Session<'_, '_>, listing: &L) -> Result<(), Error> {
    let clusters = session.clusters().await?;
    if session.given.is("watch") {
        return watch::run(session, listing, &clusters).await;
    }
    let asked = ask(&clusters, async |cluster| found(listing, &cluster.api).await).await;
    let several = 1 < clusters.len();
    let mut all = Vec::new();
    for (cluster, answer) in asked {
        match answer {
            Ok(None) => {}
            Ok(Some((_, found))) => all.push((cluster, found)),
            Err(error) if several => session.fail(cluster, &error)?,
            Err(error) if cluster.place.is_none() => return Err(error),
            Err(error) => return Err(Error::said(cluster.error(&error))),
        }
    }
    let empty = all.iter().all(|(_, found)| items(&found.list).is_empty());
    if listing.as_documents(session) && (!all.is_empty() || session.has_failed()) {
        document(session, L::LIST, all, several)?;
    } else {
        let mut rows = Rows::new(session, several);
        let now = (session.world.now)();
        for (cluster, found) in &all {
            for item in items(&found.list) {
                rows.add(listing, (cluster.name(), item), &found.about, now);
            }
        }
        session.print(&rows.take())?;
    }
    if empty && !session.has_failed() { nothing_found(session, L::DOT) } else { Ok(()) }
}

/// The table of a list, with what stands before every list's own columns.
pub struct Rows {
    table: Table,
    several: bool,
    everywhere: bool,
}

impl Rows {
    pub fn new(session: &Session<'_, '_>, several: bool) -> Self {
        Self { table: Table::default(), several, everywhere: session.given.is("all-namespaces") }
    }

    pub fn add<L: Listing>(
        &mut self,
        listing: &L,
        (cluster, item): (&str, &Value),
        about: &L::About,
        now: Timestamp,
    ) {
        let before = |text: &str, shown: bool| shown.then(|| text.to_owned());
        let columns = listing.columns(about);
        let columns: Vec<String> = before("Cluster", self.several)
            .into_iter()
            .chain(before("Namespace", self.everywhere))
            .chain(columns)
            .collect();
        let cells: Vec<String> = before(cluster, self.several)
            .into_iter()
            .chain(before(text(item, "/metadata/namespace"), self.everywhere))
            .chain(listing.row(item, about, now))
            .collect();
        self.table.row(&columns, &cells);
    }

    pub fn take(&mut self) -> String {
        self.table.render()
    }
}

/// All clusters' objects as one list.
fn document<A>(
    session: &mut Session<'_, '_>,
    kind: &str,
    mut all: Vec<(&Cluster, Found<A>)>,
    several: bool,
) -> Result<(), Error> {
    let mut list = if several {
        let version = all.first().map(|(_, found)| found.list["apiVersion"].clone()).unwrap_or_default();
        let objects = all.iter_mut().flat_map(|(cluster, found)| {
            let items = found.list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
            items.into_iter().map(|item| with_cluster(item, cluster.name()))
        });
        let items: Vec<Value> = objects.collect();
        json!({"apiVersion": version, "metadata": {}, "items": items})
    } else {
        all.pop().map(|(_, found)| found.list).unwrap_or_default()
    };
    list["kind"] = json!(kind);
    let mut printer = Printer::new(session, "", DryRun::None)?;
    // kubectl's writer lays out the tabs of documents, too.
    let text = aligned(&printer.print(kind, &list)?);
    session.print(&text)
}

/// The object with an annotation that says which cluster's it is.
pub fn with_cluster(mut object: Value, cluster: &str) -> Value {
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][CLUSTER] = json!(cluster);
    object
}

pub fn nothing_found(session: &mut Session<'_, '_>, dot: &str) -> Result<(), Error> {
    if session.given.namespaced && !session.given.is("all-namespaces") {
        let namespace = session.namespace()?;
        session.complain(&format!("No resources found in {namespace} namespace.\n"))
    } else {
        session.complain(&format!("No resources found{dot}\n"))
    }
}

pub fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

pub fn keep(list: &mut Value, wanted: impl Fn(&Value) -> bool) {
    if let Some(items) = list["items"].as_array_mut() {
        items.retain(wanted);
    }
}

pub fn age_of(object: &Value, now: Timestamp) -> String {
    age::since(object.pointer("/metadata/creationTimestamp").and_then(Value::as_str), now)
}
