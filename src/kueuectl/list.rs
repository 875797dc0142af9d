//! `list`: pages of objects of one cluster or several, filtered, as a table or as one document.

use std::collections::BTreeMap;

use fedq_values::age;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    api::{Api, Call},
    error::Error,
    fleet::{Cluster, Place, ask},
    output::Printer,
    resource::{DryRun, Resource, query_text},
    session::{Session, text},
    table::{Table, aligned, line},
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

    /// The page that begins at `next`, where a page before ended.
    pub async fn page(&self, api: &Api, next: &str) -> Result<Value, Error> {
        api.call(&Call::get(self.path(next), self.resource.full_name())).await
    }

    /// All pages as one list, with the last one's metadata.
    pub async fn all(&self, api: &Api) -> Result<Value, Error> {
        let first = self.page(api, "").await?;
        rest(first, async |next| self.page(api, next).await).await
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
    /// Whether a daemon may know it without asking the cluster: by its path alone, from fields that tables show.
    const FOLLOWED: bool = false;
    /// What is looked up besides the objects themselves, as far as it was needed.
    type About: Default;

    /// The query, as the command line has it.
    fn query(&self) -> &Query;
    /// What is asked of a cluster, and its first page; none where the cluster cannot have any.
    async fn find(&self, api: &Api) -> Result<Option<(Query, Value)>, Error> {
        let query = self.query();
        Ok(Some((query.clone(), self.page(api, query, "").await?)))
    }
    async fn page(&self, api: &Api, query: &Query, next: &str) -> Result<Value, Error> {
        query.page(api, next).await
    }
    /// Looks up what a page needs, beyond what the pages before it needed.
    async fn about(&self, api: &Api, page: &Value, about: &mut Self::About) -> Result<(), Error>;
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

/// All that a cluster has of a list, none where it cannot have any.
pub async fn found<L: Listing>(listing: &L, api: &Api) -> Result<Option<(Query, Found<L::About>)>, Error> {
    let Some((query, first)) = listing.find(api).await? else { return Ok(None) };
    let mut list = rest(first, async |next| listing.page(api, &query, next).await).await?;
    keep(&mut list, |object| query.is_owned(object));
    let mut about = L::About::default();
    listing.about(api, &list, &mut about).await?;
    keep(&mut list, |object| listing.keeps(object, &about));
    Ok(Some((query, Found { list, about })))
}

/// A page and all that follow it as one list, with the last one's metadata.
async fn rest(first: Value, page: impl AsyncFn(&str) -> Result<Value, Error>) -> Result<Value, Error> {
    let mut list = first;
    loop {
        let next = text(&list, "/metadata/continue").to_owned();
        if next.is_empty() {
            return Ok(list);
        }
        let mut items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        list = page(&next).await?;
        items.append(list["items"].as_array_mut().unwrap_or(&mut Vec::new()));
        list["items"] = Value::Array(items);
    }
}

pub async fn run<L: Listing>(session: &mut Session<'_, '_>, listing: &L) -> Result<(), Error> {
    let clusters = session.clusters().await?;
    if session.given.is("watch") {
        return watch::run(session, listing, &clusters).await;
    }
    let empty = if listing.as_documents(session) {
        documents(session, listing, &clusters).await?
    } else {
        table(session, listing, &clusters).await?
    };
    if empty && !session.has_failed() { nothing_found(session, L::DOT) } else { Ok(()) }
}

/// What a cluster answered; of one among several that failed it is said that it did.
fn answered<T>(
    session: &mut Session<'_, '_>,
    cluster: &Cluster,
    answer: Result<T, Error>,
    several: bool,
) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if several => session.fail(cluster, &error).map(|()| None),
        Err(error) if cluster.place.is_none() => Err(error),
        Err(error) => Err(Error::said(cluster.error(&error))),
    }
}

/// Prints one document, and says whether nothing is in it.
async fn documents<L: Listing>(
    session: &mut Session<'_, '_>,
    listing: &L,
    clusters: &[Cluster],
) -> Result<bool, Error> {
    let several = 1 < clusters.len();
    let mut all = Vec::new();
    for (cluster, answer) in ask(clusters.iter(), async |cluster| found(listing, &cluster.api).await).await {
        if let Some(Some((_, found))) = answered(session, cluster, answer, several)? {
            all.push((cluster, found));
        }
    }
    let empty = all.iter().all(|(_, found)| items(&found.list).is_empty());
    if !all.is_empty() || session.has_failed() {
        document(session, L::LIST, all, several)?;
    }
    Ok(empty)
}

/// Prints one table, and says whether nothing is in it. Of each page only its lines are kept, so that what it takes does not grow with
/// the objects of a cluster, nor with the clusters.
async fn table<L: Listing>(
    session: &mut Session<'_, '_>,
    listing: &L,
    clusters: &[Cluster],
) -> Result<bool, Error> {
    let (several, now) = (1 < clusters.len(), (session.world.now)());
    let mut rows = Rows::new(session, several);
    let mut known = followed(session, listing, clusters, &rows).await;
    let asked: Vec<&Cluster> =
        clusters.iter().filter(|cluster| !known.contains_key(cluster.name())).collect();
    let asked = ask(asked, async |cluster| lines(listing, cluster, &rows, now).await).await;
    let mut answers = asked.into_iter().peekable();
    let mut empty = true;
    for cluster in clusters {
        let lines = match known.remove(cluster.name()) {
            Some(lines) => Some(lines),
            None => match answers.next() {
                Some((cluster, answer)) => answered(session, cluster, answer, several)?,
                None => None,
            },
        };
        if let Some(Lines { columns, text }) = lines.filter(|lines| !lines.text.is_empty()) {
            empty = false;
            rows.table.rows(&columns, &text);
        }
    }
    session.print(&rows.take())?;
    Ok(empty)
}

/// Rows of one cluster that are not laid out yet.
#[derive(Default)]
struct Lines {
    columns: Vec<String>,
    text: String,
}

impl Lines {
    fn push(&mut self, row: Self) {
        self.columns = row.columns;
        self.text += &row.text;
    }
}

/// Page by page.
async fn lines<L: Listing>(
    listing: &L,
    cluster: &Cluster,
    rows: &Rows,
    now: Timestamp,
) -> Result<Lines, Error> {
    let api = &cluster.api;
    let mut lines = Lines::default();
    let Some((query, mut page)) = listing.find(api).await? else { return Ok(lines) };
    let mut about = L::About::default();
    loop {
        keep(&mut page, |object| query.is_owned(object));
        listing.about(api, &page, &mut about).await?;
        for item in items(&page).iter().filter(|object| listing.keeps(object, &about)) {
            lines.push(rows.row(listing, (cluster.name(), item), &about, now));
        }
        let next = text(&page, "/metadata/continue").to_owned();
        if next.is_empty() {
            return Ok(lines);
        }
        page = listing.page(api, &query, &next).await?;
    }
}

/// What a daemon knows without asking the clusters, by their names.
async fn followed<L: Listing>(
    session: &Session<'_, '_>,
    listing: &L,
    clusters: &[Cluster],
    rows: &Rows,
) -> BTreeMap<String, Lines> {
    let mut known = BTreeMap::new();
    let query = listing.query();
    let Some(fleet) =
        session.fleet().filter(|_| L::FOLLOWED && query.labels.is_empty() && query.fields.is_empty())
    else {
        return known;
    };
    let (about, now) = (L::About::default(), (session.world.now)());
    let names: Vec<&str> = clusters
        .iter()
        .filter(|cluster| matches!(cluster.place, Some(Place::Cluster(_))))
        .map(Cluster::name)
        .collect();
    let path = query.resource.path(&query.namespace, "");
    let tell = &mut |name: &str, objects: Vec<Value>| {
        let mut lines = Lines::default();
        for object in objects.iter().filter(|object| listing.keeps(object, &about)) {
            lines.push(rows.row(listing, (name, object), &about, now));
        }
        known.insert(name.to_owned(), lines);
    };
    fleet.followed(&names, &path, tell).await;
    known
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

    pub fn add<L: Listing>(&mut self, listing: &L, object: (&str, &Value), about: &L::About, now: Timestamp) {
        let Lines { columns, text } = self.row(listing, object, about, now);
        self.table.rows(&columns, &text);
    }

    fn row<L: Listing>(
        &self,
        listing: &L,
        (cluster, item): (&str, &Value),
        about: &L::About,
        now: Timestamp,
    ) -> Lines {
        let before = |text: &str, shown: bool| shown.then(|| text.to_owned());
        let columns = before("Cluster", self.several)
            .into_iter()
            .chain(before("Namespace", self.everywhere))
            .chain(listing.columns(about))
            .collect();
        let cells: Vec<String> = before(cluster, self.several)
            .into_iter()
            .chain(before(text(item, "/metadata/namespace"), self.everywhere))
            .chain(listing.row(item, about, now))
            .collect();
        Lines { columns, text: line(&cells) }
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
