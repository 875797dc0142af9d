//! Where the pods of a component are: found by itself in kinds that are known, declared by the user in all others.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    component::PodSet,
    names::tas,
    path::{self, PathError},
    pod_template::{self, TemplateError},
};

/// Labels by which Kubernetes, JobSet and Kubeflow number their pods.
const JOB_COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
const JOB_SET_INDEX: &str = "jobset.sigs.k8s.io/job-index";
const KUBEFLOW_INDEX: &str = "training.kubeflow.org/replica-index";

#[derive(Debug, thiserror::Error)]
pub enum InferError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("{path} does not refer to a v1.PodSpecTemplate: {source}")]
    Template { path: String, source: TemplateError },
}

/// The pod sets of a component of a known kind; none of any other.
pub fn infer(object: &Value) -> Result<Vec<PodSet>, InferError> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let pod_sets = match (text("apiVersion"), text("kind")) {
        ("v1", "Pod") => vec![pod_set(1, path::ROOT.to_owned(), [])],
        ("apps/v1", "Deployment" | "StatefulSet") => of_replicas(object)?,
        ("batch/v1", "Job") => {
            let index = (tas::POD_INDEX_LABEL, JOB_COMPLETION_INDEX.to_owned());
            vec![pod_set(pods_of_job(object, path::ROOT), "template.spec.template".to_owned(), [index])]
        }
        ("jobset.x-k8s.io/v1alpha2", "JobSet") => of_job_set(object),
        ("kubeflow.org/v1", "PyTorchJob") => of_pytorch_job(object)?,
        ("ray.io/v1", "RayCluster") => of_ray(object, "template.spec.")?,
        ("ray.io/v1", "RayJob") => of_ray(object, "template.spec.rayClusterSpec.")?,
        _ => Vec::new(),
    };
    for pod_set in &pod_sets {
        let path = &pod_set.path;
        let checked = pod_template::check(object, path);
        checked.map_err(|source| InferError::Template { path: path.clone(), source })?;
    }
    Ok(pod_sets)
}

fn pod_set<const N: usize>(replicas: i32, path: String, annotations: [(&str, String); N]) -> PodSet {
    let annotations = annotations.map(|(key, value)| (key.to_owned(), value));
    PodSet { replicas: Some(replicas), path, annotations: BTreeMap::from(annotations) }
}

fn of_replicas(object: &Value) -> Result<Vec<PodSet>, PathError> {
    let template = "template.spec.template";
    if path::get(object, template).is_err() {
        return Ok(Vec::new());
    }
    Ok(vec![pod_set(path::replicas(object, "template.spec.replicas")?, template.to_owned(), [])])
}

/// As many as run at once.
fn pods_of_job(object: &Value, job: &str) -> i32 {
    let number = |field: &str| path::integer(object, &format!("{job}.spec.{field}")).ok();
    let parallelism = number("parallelism").unwrap_or(1);
    number("completions").map_or(parallelism, |completions| completions.min(parallelism))
}

fn of_job_set(object: &Value) -> Vec<PodSet> {
    let jobs = path::get(object, "template.spec.replicatedJobs").ok().and_then(Value::as_array);
    let jobs = (0..jobs.map_or(0, Vec::len)).map(|index| format!("template.spec.replicatedJobs[{index}]"));
    jobs.filter(|job| path::get(object, &format!("{job}.template")).is_ok())
        .map(|job| {
            let replicas = path::integer(object, &format!("{job}.replicas")).unwrap_or(1);
            let pods = pods_of_job(object, &format!("{job}.template"));
            let annotations = [
                (tas::POD_INDEX_LABEL, JOB_COMPLETION_INDEX.to_owned()),
                (tas::SUB_GROUP_INDEX_LABEL, JOB_SET_INDEX.to_owned()),
                (tas::SUB_GROUP_COUNT, replicas.to_string()),
            ];
            pod_set(replicas.saturating_mul(pods), format!("{job}.template.spec.template"), annotations)
        })
        .collect()
}

fn of_pytorch_job(object: &Value) -> Result<Vec<PodSet>, PathError> {
    let mut pod_sets = Vec::new();
    for role in ["Master", "Worker"] {
        let replica = format!("template.spec.pytorchReplicaSpecs.{role}");
        let template = format!("{replica}.template");
        if path::get(object, &template).is_ok() {
            let replicas = path::replicas(object, &format!("{replica}.replicas"))?;
            let index = (tas::POD_INDEX_LABEL, KUBEFLOW_INDEX.to_owned());
            pod_sets.push(pod_set(replicas, template, [index]));
        }
    }
    Ok(pod_sets)
}

fn of_ray(object: &Value, cluster: &str) -> Result<Vec<PodSet>, PathError> {
    let mut pod_sets = vec![pod_set(1, format!("{cluster}headGroupSpec.template"), [])];
    let workers = format!("{cluster}workerGroupSpecs");
    let groups = path::get(object, &workers).ok().and_then(Value::as_array).map_or(0, Vec::len);
    for group in (0..groups).map(|index| format!("{workers}[{index}]")) {
        let template = format!("{group}.template");
        if path::get(object, &template).is_ok() {
            pod_sets.push(pod_set(path::replicas(object, &format!("{group}.replicas"))?, template, []));
        }
    }
    Ok(pod_sets)
}

/// What is wrong with declared pod sets, given those that were found.
pub fn compare(declared: &[PodSet], inferred: &[PodSet]) -> Result<(), String> {
    if declared.is_empty() {
        return Ok(());
    }
    let mut paths = BTreeSet::new();
    if let Some(twice) = declared.iter().find(|pod_set| !paths.insert(&pod_set.path)) {
        return Err(format!("multiple DeclaredPodSets with path '{}'", twice.path));
    }
    if inferred.is_empty() {
        return Ok(());
    }
    if inferred.len() != declared.len() {
        let (declared, inferred) = (declared.len(), inferred.len());
        return Err(format!("DeclaredPodSet count {declared} differs from inferred count {inferred}"));
    }
    for found in inferred {
        let Some(declared) = declared.iter().find(|pod_set| pod_set.path == found.path) else {
            return Err(format!("PodSet with path '{}' is missing", found.path));
        };
        if declared.replicas() != found.replicas() {
            return Err(format!(
                "replica count {} differs from inferred count {} for PodSet at path position '{}'",
                declared.replicas(),
                found.replicas(),
                found.path
            ));
        }
    }
    Ok(())
}
