//! `list clusterqueue`, `list localqueue` and `list resourceflavor`.

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    api::Api,
    error::Error,
    list::{self, Listing, Query, age_of},
    resource::Resource,
    session::{Session, text},
    workload::condition,
};

pub async fn cluster_queues(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let active = active(session)?;
    let query = Query::new(session, Resource::cluster_queue())?;
    list::run(session, &ClusterQueues { query, active }).await
}

pub async fn local_queues(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let active = active(session)?;
    let query = Query::new(session, Resource::local_queue())?;
    let cluster_queue = session.given.text("clusterqueue").to_owned();
    list::run(session, &LocalQueues { query, active, cluster_queue }).await
}

pub async fn resource_flavors(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let query = Query::new(session, Resource::resource_flavor())?;
    list::run(session, &ResourceFlavors { query }).await
}

struct ClusterQueues {
    query: Query,
    active: Option<bool>,
}

impl Listing for ClusterQueues {
    const KIND: &'static str = "ClusterQueue";
    const LIST: &'static str = "ClusterQueueList";
    const FOLLOWED: bool = true;
    type About = ();

    fn query(&self) -> &Query {
        &self.query
    }

    async fn about(&self, _: &Api, _: &Value, (): &mut ()) -> Result<(), Error> {
        Ok(())
    }

    fn keeps(&self, queue: &Value, (): &()) -> bool {
        self.active.is_none_or(|active| is_active(queue) == active)
    }

    fn columns(&self, (): &()) -> Vec<String> {
        owned(&["Name", "Cohort", "Pending Workloads", "Admitted Workloads", "Active", "Age"])
    }

    fn row(&self, queue: &Value, (): &(), now: Timestamp) -> Vec<String> {
        vec![
            text(queue, "/metadata/name").to_owned(),
            text(queue, "/spec/cohortName").to_owned(),
            count(queue, "/status/pendingWorkloads"),
            count(queue, "/status/admittedWorkloads"),
            is_active(queue).to_string(),
            age_of(queue, now),
        ]
    }
}

struct LocalQueues {
    query: Query,
    active: Option<bool>,
    /// Empty for all.
    cluster_queue: String,
}

impl Listing for LocalQueues {
    const KIND: &'static str = "LocalQueue";
    const LIST: &'static str = "LocalQueueList";
    const FOLLOWED: bool = true;
    type About = ();

    fn query(&self) -> &Query {
        &self.query
    }

    async fn about(&self, _: &Api, _: &Value, (): &mut ()) -> Result<(), Error> {
        Ok(())
    }

    fn keeps(&self, queue: &Value, (): &()) -> bool {
        (self.cluster_queue.is_empty() || text(queue, "/spec/clusterQueue") == self.cluster_queue)
            && self.active.is_none_or(|active| is_active(queue) == active)
    }

    fn columns(&self, (): &()) -> Vec<String> {
        owned(&["Name", "ClusterQueue", "Pending Workloads", "Admitted Workloads", "Active", "Age"])
    }

    fn row(&self, queue: &Value, (): &(), now: Timestamp) -> Vec<String> {
        vec![
            text(queue, "/metadata/name").to_owned(),
            text(queue, "/spec/clusterQueue").to_owned(),
            count(queue, "/status/pendingWorkloads"),
            count(queue, "/status/admittedWorkloads"),
            is_active(queue).to_string(),
            age_of(queue, now),
        ]
    }
}

struct ResourceFlavors {
    query: Query,
}

impl Listing for ResourceFlavors {
    const KIND: &'static str = "ResourceFlavor";
    const LIST: &'static str = "ResourceFlavorList";
    const FOLLOWED: bool = true;
    type About = ();

    fn query(&self) -> &Query {
        &self.query
    }

    async fn about(&self, _: &Api, _: &Value, (): &mut ()) -> Result<(), Error> {
        Ok(())
    }

    fn keeps(&self, _: &Value, (): &()) -> bool {
        true
    }

    fn columns(&self, (): &()) -> Vec<String> {
        owned(&["Name", "Node Labels", "Age"])
    }

    fn row(&self, flavor: &Value, (): &(), now: Timestamp) -> Vec<String> {
        let labels = flavor.pointer("/spec/nodeLabels").and_then(Value::as_object).into_iter().flatten();
        let mut labels: Vec<String> =
            labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
        labels.sort_unstable();
        vec![text(flavor, "/metadata/name").to_owned(), labels.join(", "), age_of(flavor, now)]
    }
}

pub fn owned(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|&column| column.to_owned()).collect()
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
