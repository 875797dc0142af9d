//! What a workload and its job have to be for `move workload`, and the LocalQueue that they go to.

use serde_json::Value;

use crate::{
    api::Api,
    discovery,
    error::Error,
    move_workload::{MOVING, Order},
    resource::Resource,
    session::text,
    usage::nearest,
    workload::{condition, owners},
};

pub const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// On a Job that fedqd made for a task, and keeps as it made it.
const TASKS_LABEL: &str = "fedq.dev/epoch";
const TASK_ID: &str = "/metadata/labels/task-id";
/// On what the Kueue of a hub has sent, and makes anew when it is another than the hub's.
const DISPATCHED_LABEL: &str = "kueue.x-k8s.io/multikueue-origin";
const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";

/// A workload and its job, as they were when they were read.
pub struct Found {
    pub workload: Value,
    pub job: Option<Job>,
}

#[derive(Clone)]
pub struct Job {
    pub resource: Resource,
    pub object: Value,
}

impl Job {
    pub fn name(&self) -> &str {
        text(&self.object, "/metadata/name")
    }

    pub fn queue(&self) -> &str {
        self.object["metadata"]["labels"][QUEUE_LABEL].as_str().unwrap_or_default()
    }

    /// `jobs.batch/name`.
    pub fn shown(&self) -> String {
        format!("{}/{}", self.resource.full_name(), self.name())
    }

    /// The training operator's kinds have the field one level down.
    pub fn is_suspended(&self) -> bool {
        ["/spec/suspend", "/spec/runPolicy/suspend"]
            .iter()
            .any(|pointer| self.object.pointer(pointer) == Some(&Value::Bool(true)))
    }
}

impl Found {
    pub fn holds_quota(&self) -> bool {
        condition(&self.workload, "QuotaReserved").is_some()
    }

    /// Nothing is left to do.
    pub fn is_in(&self, queue: &str) -> bool {
        text(&self.workload, "/spec/queueName") == queue
            && self.job.as_ref().is_none_or(|job| job.queue() == queue)
            && !moving(&self.workload)
    }

    /// Only who says so ends what runs. What is being moved already was asked before.
    pub fn may_be_stopped(&self, order: &Order) -> Result<(), Error> {
        let name = &order.name;
        if !self.holds_quota() || moving(&self.workload) {
            return Ok(());
        }
        match &self.job {
            None => Err(Error::said(format!(
                "workload {name} holds quota, and no job owns it that Kueue could stop. Move it once whoever made it has ended it"
            ))),
            Some(job) if !order.restart => Err(Error::said(format!(
                "workload {name} holds quota in {}. --restart stops {} and starts it anew in {}",
                text(&self.workload, "/spec/queueName"),
                job.shown(),
                order.queue
            ))),
            Some(_) => Ok(()),
        }
    }
}

/// Whether this command holds it. One that is active was let go on, whoever did that.
pub fn moving(workload: &Value) -> bool {
    !workload["metadata"]["annotations"][MOVING].is_null() && is_stopped(workload)
}

pub fn is_stopped(workload: &Value) -> bool {
    workload["spec"]["active"] == false
}

/// The workload and its job, if both can be moved.
pub async fn read(api: &Api, order: &Order) -> Result<Found, Error> {
    let workload = Resource::workload().get(api, &order.namespace, &order.name).await?;
    if let Some(reason) = why_not_workload(&workload) {
        return Err(Error::said(format!("workload {} {reason}", order.name)));
    }
    let Some(owner) = owner(&workload) else { return Ok(Found { workload, job: None }) };
    if let Some(reason) = why_not_kind(owner) {
        let (kind, name) = (text(owner, "/kind"), text(owner, "/name"));
        return Err(Error::said(format!("workload {} is of {kind} {name}, {reason}", order.name)));
    }
    let resource = discovery::of_kind(api, text(owner, "/apiVersion"), text(owner, "/kind")).await?;
    let object = resource.get(api, &order.namespace, text(owner, "/name")).await?;
    let job = Job { resource, object };
    if job.object["metadata"]["uid"] != owner["uid"] {
        return Err(Error::said(format!(
            "{} is another one than workload {} was made for. Kueue deletes the workload soon",
            job.shown(),
            order.name
        )));
    }
    if let Some(reason) = why_not_job(&job) {
        return Err(Error::said(format!("{} {reason}", job.shown())));
    }
    Ok(Found { workload, job: Some(job) })
}

/// The pods of a group own their workload together, without a controller.
fn owner(workload: &Value) -> Option<&Value> {
    owners(workload).find(|owner| owner["controller"] == true).or_else(|| owners(workload).next())
}

fn why_not_workload(workload: &Value) -> Option<&'static str> {
    if !workload["metadata"]["deletionTimestamp"].is_null() {
        return Some("is being deleted");
    }
    if condition(workload, "Finished").is_some() {
        return Some("is finished: there is nothing to move");
    }
    let dispatched = !workload["metadata"]["labels"][DISPATCHED_LABEL].is_null();
    dispatched.then_some("was sent by a hub's MultiKueue. Move the hub's own workload of that name")
}

/// Kinds that have no field to suspend them take their queue when they are made.
fn why_not_kind(owner: &Value) -> Option<&'static str> {
    let group = text(owner, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
    match (group, text(owner, "/kind")) {
        ("", "Pod") => Some(
            "and Kueue stops a pod by deleting it. Delete it and make it again with the label kueue.x-k8s.io/queue-name \
             of the other queue",
        ),
        ("apps" | "leaderworkerset.x-k8s.io", _) => Some(
            "which cannot be suspended. Scale it to 0, change its label kueue.x-k8s.io/queue-name, and scale it up again",
        ),
        ("kueue.x-k8s.io", "Workload") => Some("which has several variants. Move that workload"),
        _ => None,
    }
}

fn why_not_job(job: &Job) -> Option<String> {
    let metadata = &job.object["metadata"];
    if !metadata["labels"][TASKS_LABEL].is_null() {
        let id = text(&job.object, TASK_ID);
        return Some(format!(
            "is of fedq's task {id}, which stays in the queue it was submitted to. Stop it (fedq task stop {id}) and submit it \
             again with --queue"
        ));
    }
    if !metadata["deletionTimestamp"].is_null() {
        return Some("is being deleted".to_owned());
    }
    let elastic = metadata["annotations"][ELASTIC] == "true";
    elastic.then(|| {
        "is elastic: Kueue may keep several workloads for it at once. Delete it and make it again in the other queue".to_owned()
    })
}

/// A workload that goes to a queue which is not there, or is stopped, would wait for nobody knows how long.
pub async fn check_queue(api: &Api, order: &Order) -> Result<(), Error> {
    let queues = Resource::local_queue();
    let missing = match queues.get(api, &order.namespace, &order.queue).await {
        Ok(queue) if condition(&queue, "Active").is_some() => return Ok(()),
        Ok(queue) => format!("LocalQueue {} is not active{}", order.queue, because(&queue)),
        Err(error) if error.is_not_found() => error.to_string(),
        Err(error) => return Err(error),
    };
    let list = queues.list(api, &order.namespace, &[]).await?;
    let active = list["items"].as_array().into_iter().flatten();
    let active = active.filter(|queue| condition(queue, "Active").is_some());
    let names = active.map(|queue| text(queue, "/metadata/name")).filter(|name| *name != order.queue);
    let meant = nearest(&order.queue, names);
    let meant = meant.map_or_else(String::new, |name| format!(". Did you mean {name:?}?"));
    Err(Error::said(format!("{missing}{meant}")))
}

fn because(queue: &Value) -> String {
    let conditions = queue.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let said = conditions.filter(|condition| condition["type"] == "Active");
    let said = said.filter_map(|condition| condition["message"].as_str()).find(|said| !said.is_empty());
    said.map_or_else(String::new, |said| format!(": {said}"))
}
