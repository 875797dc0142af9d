//! `list workload`: workloads with their jobs, their place in the queue, and what their conditions say.

use std::collections::{BTreeMap, BTreeSet};

use fedq_values::age;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    api::{Api, Call},
    discovery,
    error::Error,
    list::{self, Listing, Query, age_of, items, keep},
    list_queues::owned,
    resource::{Resource, path_of},
    session::{Session, text},
    workload::{Status, condition, owners},
};

/// A job's type is cut off after this many letters.
const LONGEST_TYPE: usize = 20;

/// The API that knows places in queues.
const VISIBILITY: &str = "visibility.kueue.x-k8s.io/v1beta2";

const COLUMNS: [&str; 9] = [
    "Name",
    "Job Type",
    "Job Name",
    "LocalQueue",
    "ClusterQueue",
    "Status",
    "Position in Queue",
    "Exec Time",
    "Age",
];

pub async fn run(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let query = Query::new(session, Resource::workload())?;
    let statuses = statuses(session)?;
    let given = &session.given;
    let job = given.text("for").to_owned();
    let cluster_queue = given.text("clusterqueue").to_owned();
    let local_queue = given.text("localqueue").to_owned();
    // Documents say nothing of what is only looked up for the table.
    let looks_up = !given.has("output");
    let namespace = if job.is_empty() { String::new() } else { session.scope()? };
    let listing = Workloads { query, statuses, job, namespace, cluster_queue, local_queue, looks_up };
    list::run(session, &listing).await
}

struct Workloads {
    query: Query,
    /// Empty for all, as all that follow.
    statuses: Vec<Status>,
    /// `TYPE/NAME`.
    job: String,
    /// Where the job is.
    namespace: String,
    cluster_queue: String,
    local_queue: String,
    looks_up: bool,
}

impl Listing for Workloads {
    const KIND: &'static str = "Workload";
    const LIST: &'static str = "WorkloadList";
    type About = About;

    fn query(&self) -> &Query {
        &self.query
    }

    async fn find(&self, api: &Api) -> Result<Option<(Query, Value)>, Error> {
        if self.job.is_empty() {
            return Ok(Some((self.query.clone(), self.query.page(api, "").await?)));
        }
        let malformed = "--for must be in resource/name form";
        let Some((_, job)) = for_object(api, &self.namespace, &self.job, malformed).await? else {
            return Ok(None);
        };
        of_job(api, &self.query, text(&job, "/metadata/uid")).await.map(Some)
    }

    async fn about(&self, api: &Api, page: &Value, about: &mut About) -> Result<(), Error> {
        let mut list = page.clone();
        keep(&mut list, |workload| self.keeps_alone(workload));
        about.find_cluster_queues(api, &list).await?;
        if self.looks_up {
            keep(&mut list, |workload| self.keeps(workload, about));
            about.find_positions(api, &list).await?;
            about.find_types(api, &list).await?;
        }
        Ok(())
    }

    fn keeps(&self, workload: &Value, about: &About) -> bool {
        self.keeps_alone(workload)
            && (self.cluster_queue.is_empty() || about.cluster_queue(workload) == self.cluster_queue)
    }

    fn columns(&self, _: &About) -> Vec<String> {
        owned(&COLUMNS)
    }

    fn row(&self, workload: &Value, about: &About, now: Timestamp) -> Vec<String> {
        row(workload, about, now)
    }
}

impl Workloads {
    /// By what the object itself says.
    fn keeps_alone(&self, workload: &Value) -> bool {
        (self.local_queue.is_empty() || text(workload, "/spec/queueName") == self.local_queue)
            && (self.statuses.is_empty() || self.statuses.contains(&Status::of(workload)))
    }
}

/// The object that `TYPE/NAME` names, if it exists, and its resource.
pub async fn for_object(
    api: &Api,
    namespace: &str,
    wanted: &str,
    malformed: &str,
) -> Result<Option<(Resource, Value)>, Error> {
    let (kind, name) = match wanted.split('/').collect::<Vec<_>>()[..] {
        [kind, name] => (kind, name),
        [_] | [] => return Err(Error::said(malformed)),
        _ => return Err(Error::said("arguments in resource/name form may not have more than one slash")),
    };
    let resource = discovery::named(api, kind).await?;
    let fields = format!("metadata.name={name}");
    let mut found = resource.list(api, namespace, &[("fieldSelector", &fields)]).await?;
    let first =
        found["items"].as_array_mut().filter(|items| !items.is_empty()).map(|items| items.swap_remove(0));
    Ok(first.map(|object| (resource, object)))
}

/// The first page of a job's workloads: by its label, or else by their owner.
async fn of_job(api: &Api, query: &Query, uid: &str) -> Result<(Query, Value), Error> {
    let comma = if query.labels.is_empty() { "" } else { "," };
    let labels = format!("{}{comma}kueue.x-k8s.io/job-uid={uid}", query.labels);
    let labelled = Query { labels, ..query.clone() };
    let list = labelled.page(api, "").await?;
    if !items(&list).is_empty() {
        return Ok((labelled, list));
    }
    let owned = Query { owner: Some(uid.to_owned()), ..query.clone() };
    let list = owned.page(api, "").await?;
    Ok((owned, list))
}

/// None for all.
fn statuses(session: &Session<'_, '_>) -> Result<Vec<Status>, Error> {
    let mut statuses = Vec::new();
    let mut all = false;
    for status in session.given.all("status") {
        match status.to_lowercase().as_str() {
            "all" => all = true,
            "pending" => statuses.push(Status::Pending),
            "quotareserved" => statuses.push(Status::QuotaReserved),
            "admitted" => statuses.push(Status::Admitted),
            "finished" => statuses.push(Status::Finished),
            _ => {
                return Err(Error::said(format!(
                    "invalid status value ({status}). Must be \"all\", \"pending\", \"admitted\" or \"finished\""
                )));
            }
        }
    }
    Ok(if all { Vec::new() } else { statuses })
}

/// What the table tells of workloads beyond the objects themselves.
#[derive(Default)]
struct About {
    /// By namespace and LocalQueue; of one that is not there, empty.
    cluster_queues: BTreeMap<(String, String), String>,
    /// By namespace and name.
    positions: BTreeMap<(String, String), i64>,
    /// ClusterQueues whose pending workloads were asked for.
    ranked: BTreeSet<String>,
    /// By API version and kind.
    types: BTreeMap<(String, String), String>,
    /// API versions whose kinds were asked for.
    versions: BTreeSet<String>,
}

impl About {
    fn cluster_queue<'a>(&'a self, workload: &'a Value) -> &'a str {
        match text(workload, "/status/admission/clusterQueue") {
            "" => self.cluster_queues.get(&queue_of(workload)).map_or("", String::as_str),
            admitted => admitted,
        }
    }
}

fn queue_of(workload: &Value) -> (String, String) {
    (text(workload, "/metadata/namespace").to_owned(), text(workload, "/spec/queueName").to_owned())
}

fn key_of(object: &Value) -> (String, String) {
    (text(object, "/metadata/namespace").to_owned(), text(object, "/metadata/name").to_owned())
}

impl About {
    async fn find_cluster_queues(&mut self, api: &Api, list: &Value) -> Result<(), Error> {
        let waiting =
            items(list).iter().filter(|workload| text(workload, "/status/admission/clusterQueue").is_empty());
        let wanted: BTreeSet<_> = waiting.map(queue_of).filter(|(_, queue)| !queue.is_empty()).collect();
        for (namespace, name) in wanted {
            if self.cluster_queues.contains_key(&(namespace.clone(), name.clone())) {
                continue;
            }
            let queue = match Resource::local_queue().get(api, &namespace, &name).await {
                Ok(queue) => text(&queue, "/spec/clusterQueue").to_owned(),
                Err(error) if error.is_not_found() => String::new(),
                Err(error) => return Err(error),
            };
            self.cluster_queues.insert((namespace, name), queue);
        }
        Ok(())
    }

    /// Places in the LocalQueue, by Kueue's visibility API; a server without it has none.
    async fn find_positions(&mut self, api: &Api, list: &Value) -> Result<(), Error> {
        let pending = items(list).iter().filter(|workload| Status::of(workload) == Status::Pending);
        let queues: BTreeSet<String> =
            pending.map(|workload| self.cluster_queue(workload)).map(str::to_owned).collect();
        for queue in queues {
            if queue.is_empty() || !self.ranked.insert(queue.clone()) {
                continue;
            }
            let path = path_of(VISIBILITY, &["clusterqueues", &queue, "pendingworkloads"]);
            let about = format!("clusterqueues.visibility.kueue.x-k8s.io {queue}");
            match api.call(&Call::get(path, about)).await {
                Ok(summary) => {
                    let place =
                        |entry: &Value| (key_of(entry), entry["positionInLocalQueue"].as_i64().unwrap_or(0));
                    self.positions.extend(items(&summary).iter().map(place));
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn find_types(&mut self, api: &Api, list: &Value) -> Result<(), Error> {
        let versions: BTreeSet<&str> =
            items(list).iter().flat_map(owners).map(|owner| text(owner, "/apiVersion")).collect();
        for version in versions {
            if !self.versions.insert(version.to_owned()) {
                continue;
            }
            for entry in discovery::resources_of(api, version).await?.unwrap_or_default() {
                let singular = text(&entry, "/singularName");
                if !singular.is_empty() {
                    let key = (version.to_owned(), text(&entry, "/kind").to_owned());
                    self.types.entry(key).or_insert_with(|| job_type(singular, text(&entry, "/group")));
                }
            }
        }
        Ok(())
    }
}

fn job_type(singular: &str, group: &str) -> String {
    let full = if group.is_empty() { singular.to_owned() } else { format!("{singular}.{group}") };
    match full.char_indices().nth(LONGEST_TYPE) {
        Some((end, _)) => format!("{}...", &full[..end]),
        None => full,
    }
}

fn row(workload: &Value, about: &About, now: Timestamp) -> Vec<String> {
    let types: BTreeSet<&str> = owners(workload)
        .map(|owner| (text(owner, "/apiVersion").to_owned(), text(owner, "/kind").to_owned()))
        .filter_map(|key| about.types.get(&key).map(String::as_str))
        .collect();
    let names: BTreeSet<&str> = owners(workload).map(|owner| text(owner, "/name")).collect();
    let waits = Status::of(workload) == Status::Pending;
    let position = about.positions.get(&key_of(workload)).filter(|_| waits);
    vec![
        text(workload, "/metadata/name").to_owned(),
        types.into_iter().collect::<Vec<_>>().join(", "),
        names.into_iter().collect::<Vec<_>>().join(", "),
        text(workload, "/spec/queueName").to_owned(),
        about.cluster_queue(workload).to_owned(),
        Status::of(workload).shown().to_owned(),
        position.map(ToString::to_string).unwrap_or_default(),
        exec_time(workload, now),
        age_of(workload, now),
    ]
}

/// From admission to the end, or until now.
fn exec_time(workload: &Value, now: Timestamp) -> String {
    let at = |kind: &str| text(condition(workload, kind)?, "/lastTransitionTime").parse::<Timestamp>().ok();
    let Some(admitted) = at("Admitted") else { return String::new() };
    age::human(at("Finished").unwrap_or(now).duration_since(admitted))
}
