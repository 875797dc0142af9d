//! `list`: pages of objects, filtered, as a table or as one document.

use fedq_values::age;
use serde_json::{Value, json};

use crate::{
    api::{Api, Call},
    error::Error,
    output::Printer,
    resource::{DryRun, Resource, query_text},
    session::{Session, text},
    table::{Table, aligned},
    workload::condition,
};

const LIMIT: i64 = 100;

/// What is asked of the server.
pub struct Query {
    pub resource: Resource,
    /// Empty for all.
    pub namespace: String,
    pub labels: String,
    pub fields: String,
    limit: i64,
}

impl Query {
    pub fn new(session: &mut Session<'_, '_>, resource: Resource) -> Result<Self, Error> {
        let limit = limit(session)?;
        let namespace = if resource.namespaced { session.scope()? } else { String::new() };
        let labels = session.given.text("selector").to_owned();
        let fields = session.given.text("field-selector").to_owned();
        Ok(Self { resource, namespace, labels, fields, limit })
    }

    pub fn path(&self, next: &str) -> String {
        let limit = self.limit.to_string();
        let limit = if self.limit == 0 { "" } else { &limit };
        let query = [
            ("labelSelector", self.labels.as_str()),
            ("fieldSelector", self.fields.as_str()),
            ("limit", limit),
            ("continue", next),
        ];
        self.resource.path(&self.namespace, "") + &query_text(&query)
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
}

/// How many objects a page has, `$KUEUECTL_LIST_REQUEST_LIMIT`.
fn limit(session: &Session<'_, '_>) -> Result<i64, Error> {
    let asked = (session.world.variables)("KUEUECTL_LIST_REQUEST_LIMIT").unwrap_or_default();
    if asked.is_empty() {
        return Ok(LIMIT);
    }
    asked.to_str().and_then(|text| text.parse().ok()).ok_or_else(|| Error::said("invalid list request limit"))
}

pub async fn cluster_queues(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let active = active(session)?;
    let query = Query::new(session, Resource::cluster_queue())?;
    let mut list = query.all(session.api().await?).await?;
    keep(&mut list, |queue| active.is_none_or(|active| is_active(queue) == active));
    let columns = ["Name", "Cohort", "Pending Workloads", "Admitted Workloads", "Active", "Age"];
    show(session, "ClusterQueueList", &list, &columns, |queue, now| {
        vec![
            text(queue, "/metadata/name").to_owned(),
            text(queue, "/spec/cohortName").to_owned(),
            count(queue, "/status/pendingWorkloads"),
            count(queue, "/status/admittedWorkloads"),
            is_active(queue).to_string(),
            age_of(queue, now),
        ]
    })
}

pub async fn local_queues(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let active = active(session)?;
    let query = Query::new(session, Resource::local_queue())?;
    let mut list = query.all(session.api().await?).await?;
    let wanted = session.given.text("clusterqueue");
    keep(&mut list, |queue| {
        (wanted.is_empty() || text(queue, "/spec/clusterQueue") == wanted)
            && active.is_none_or(|active| is_active(queue) == active)
    });
    let columns = ["Name", "ClusterQueue", "Pending Workloads", "Admitted Workloads", "Active", "Age"];
    show(session, "LocalQueueList", &list, &columns, |queue, now| {
        vec![
            text(queue, "/metadata/name").to_owned(),
            text(queue, "/spec/clusterQueue").to_owned(),
            count(queue, "/status/pendingWorkloads"),
            count(queue, "/status/admittedWorkloads"),
            is_active(queue).to_string(),
            age_of(queue, now),
        ]
    })
}

pub async fn resource_flavors(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let query = Query::new(session, Resource::resource_flavor())?;
    let list = query.all(session.api().await?).await?;
    show(session, "ResourceFlavorList", &list, &["Name", "Node Labels", "Age"], |flavor, now| {
        let labels = flavor.pointer("/spec/nodeLabels").and_then(Value::as_object).into_iter().flatten();
        let mut labels: Vec<String> =
            labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
        labels.sort_unstable();
        vec![text(flavor, "/metadata/name").to_owned(), labels.join(", "), age_of(flavor, now)]
    })
}

/// Prints a list by `-o`, or as a table with a row an object, and says so where it is empty.
pub fn show(
    session: &mut Session<'_, '_>,
    kind: &str,
    list: &Value,
    columns: &[&str],
    row: impl Fn(&Value, jiff::Timestamp) -> Vec<String>,
) -> Result<(), Error> {
    let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    if session.given.has("output") {
        let mut printer = Printer::new(session, "", DryRun::None)?;
        let mut list = list.clone();
        list["kind"] = json!(kind);
        // kubectl's writer lays out the tabs of documents, too.
        let text = aligned(&printer.print(kind, &list)?);
        session.print(&text)?;
    } else {
        let now = (session.world.now)();
        let everywhere = session.given.is("all-namespaces");
        let columns: Vec<&str> =
            everywhere.then_some("Namespace").into_iter().chain(columns.iter().copied()).collect();
        let mut table = Table::default();
        for item in items {
            let namespace = everywhere.then(|| text(item, "/metadata/namespace").to_owned());
            let cells: Vec<String> = namespace.into_iter().chain(row(item, now)).collect();
            table.row(&columns, &cells);
        }
        session.print(&table.render())?;
    }
    if items.is_empty() { nothing_found(session, "") } else { Ok(()) }
}

pub fn nothing_found(session: &mut Session<'_, '_>, dot: &str) -> Result<(), Error> {
    if session.given.namespaced && !session.given.is("all-namespaces") {
        let namespace = session.namespace()?;
        session.complain(&format!("No resources found in {namespace} namespace.\n"))
    } else {
        session.complain(&format!("No resources found{dot}\n"))
    }
}

pub fn keep(list: &mut Value, wanted: impl Fn(&Value) -> bool) {
    if let Some(items) = list["items"].as_array_mut() {
        items.retain(wanted);
    }
}

pub fn age_of(object: &Value, now: jiff::Timestamp) -> String {
    age::since(object.pointer("/metadata/creationTimestamp").and_then(Value::as_str), now)
}

fn active(session: &Session<'_, '_>) -> Result<Option<bool>, Error> {
    match session.given.all("active") {
        [] => Ok(None),
        [only] => Ok(Some(only == "true")),
        _ => Err(Error::said("only one active flag can be provided")),
    }
}

fn is_active(queue: &Value) -> bool {
    condition(queue, "Active").is_some()
}

fn count(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0).to_string()
}
