//! What a job and its copy carry while the job goes to another cluster.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    error::Error,
    move_across::Across,
    move_checks::{Job, QUEUE_LABEL},
    move_workload::{MOVING, Order},
    resource::Resource,
    session::text,
};

/// On a job that leaves, so that it stays until its copy is in its queue.
pub const FINALIZER: &str = "fedq.dev/moving";
/// On a job that leaves, and on its copy: they are found by it.
pub const MOVED: &str = "fedq.dev/moved";
/// On a job that leaves: its workload.
pub const WORKLOAD: &str = "fedq.dev/moving-workload";
/// On a copy: the cluster that it comes from, the job's UID there, and its workload.
pub const FROM: &str = "fedq.dev/moved-from";
/// On a job that leaves: its copy was let into its queue, and is not made again.
pub const ARRIVED: &str = "fedq.dev/arrived";
/// On a copy: what it was made of.
pub const DIGEST: &str = "fedq.dev/moved-as";
/// On the Jobs of a JobSet.
pub const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";
/// The queue of a copy that is not to start. With a queue of a name, Kueue gives it no other; without one it might take the namespace's default.
pub const NOWHERE: &str = "not-yet.fedq.dev";
/// A job of which Kueue has no workload to make.
pub const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";

/// Labels that the job controller gives the pods of one job, so that they mean no other.
pub const OF_ONE_JOB: [&str; 4] =
    ["controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"];

impl Across<'_> {
    /// What [`FROM`] says of a copy.
    pub fn from(&self, job: &Job) -> String {
        format!("{}/{}/{}", self.here.name(), text(&job.object, "/metadata/uid"), self.order.name)
    }

    /// The job as it is to be there.
    pub fn copy_of(&self, job: &Job) -> Job {
        let metadata = &job.object["metadata"];
        let (mut labels, mut annotations) = (entries(&metadata["labels"]), entries(&metadata["annotations"]));
        for own in [MOVING, WORKLOAD, ARRIVED, DIGEST, "kubectl.kubernetes.io/last-applied-configuration"] {
            annotations.remove(own);
        }
        labels.insert(QUEUE_LABEL.to_owned(), json!(self.order.queue));
        labels.insert(MOVED.to_owned(), json!("true"));
        annotations.insert(FROM.to_owned(), json!(self.from(job)));
        let mut spec = job.object["spec"].clone();
        spec["suspend"] = json!(true);
        if job.resource.kind == "Job" && spec["manualSelector"] != true {
            for (of, own) in [("/template/metadata/labels", &OF_ONE_JOB[..]), ("", &["selector"])] {
                let fields = spec.pointer_mut(of).and_then(Value::as_object_mut);
                if let Some(fields) = fields {
                    fields.retain(|key, _| !own.contains(&key.as_str()));
                }
            }
        }
        let object = json!({
            "apiVersion": job.resource.api_version(), "kind": job.resource.kind,
            "metadata": {
                "name": job.name(), "namespace": self.order.namespace, "labels": labels, "annotations": annotations,
            },
            "spec": spec,
        });
        Job { resource: job.resource.clone(), object }
    }
}

pub fn annotation<'o>(object: &'o Value, key: &str) -> &'o str {
    object["metadata"]["annotations"][key].as_str().unwrap_or_default()
}

/// What a copy is of, but for its queue: a job that changes afterwards makes another one.
pub fn digest(copy: &Job) -> String {
    let mut object = copy.object.clone();
    object["metadata"]["labels"][QUEUE_LABEL] = Value::Null;
    // A server returns them in an order of its own.
    object.sort_all_objects();
    let digest = Sha256::digest(object.to_string());
    digest.iter().take(8).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// A job of which a part is done does that part again elsewhere.
pub fn may_start_anew(job: &Job, order: &Order) -> Result<(), Error> {
    let status = &job.object["status"];
    let sets = status["replicatedJobsStatus"].as_array().into_iter().flatten();
    let done: i64 = sets.chain([status]).filter_map(|status| status["succeeded"].as_i64()).sum();
    if done == 0 || order.restart {
        return Ok(());
    }
    Err(Error::said(format!(
        "{done} parts of {} are done, and would run again in {}. --restart starts it anew there",
        job.shown(),
        order.queue
    )))
}

/// Pods of a Job that run, or have not ended yet.
pub fn pods_left(job: &Value) -> i64 {
    ["active", "terminating"].iter().filter_map(|count| job["status"][*count].as_i64()).sum()
}

pub fn is_being_deleted(job: &Job) -> bool {
    !job.object["metadata"]["deletionTimestamp"].is_null()
}

/// Whether its deletion has begun, and it stays until its copy is in its queue.
pub fn is_leaving(job: &Job) -> bool {
    is_being_deleted(job) && finalizers(&job.object).iter().any(|finalizer| finalizer == FINALIZER)
}

/// Whether it has run to its end, of a Job or a JobSet.
pub fn has_ended(job: &Job) -> bool {
    let conditions = job.object["status"]["conditions"].as_array().into_iter().flatten();
    let mut ended = conditions.filter(|condition| condition["status"] == "True");
    ended.any(|condition| ["Complete", "Completed", "Failed"].iter().any(|kind| condition["type"] == *kind))
}

pub fn finalizers(object: &Value) -> Vec<String> {
    let all = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    all.filter_map(|finalizer| finalizer.as_str().map(str::to_owned)).collect()
}

pub fn entries(map: &Value) -> serde_json::Map<String, Value> {
    map.as_object().cloned().unwrap_or_default()
}

pub fn kinds() -> [Resource; 2] {
    let kind = |group: &str, version: &str, plural: &str, kind: &str| Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: plural.to_owned(),
        kind: kind.to_owned(),
        namespaced: true,
    };
    [kind("batch", "v1", "jobs", "Job"), kind("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")]
}
