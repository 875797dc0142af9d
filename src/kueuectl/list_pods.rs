//! `list pods --for TYPE/NAME`: the pods of one job, found by the label that its kind gives them.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    api::{Api, Call, JSON},
    error::Error,
    fleet::ask,
    list::{self, Listing, Query, items, with_cluster},
    list_workload::for_object,
    output::Printer,
    resource::{DryRun, Resource},
    session::{Session, text},
    table::aligned,
};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

pub async fn run(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let wanted = session.given.text("for").to_owned();
    let query = Query::new(session, Resource::core("pods", "Pod", true))?;
    let namespace = session.scope()?;
    let output = session.given.text("output").to_owned();
    if output.is_empty() || output.contains("wide") {
        let pods = Pods { wanted, query, namespace, wide: output == "wide" };
        return list::run(session, &pods).await;
    }
    if session.given.is("watch") {
        return Err(Error::said("-w shows pods as a table: leave out -o, or take -o wide"));
    }
    documents(session, &Pods { wanted, query, namespace, wide: false }).await
}

struct Pods {
    /// `TYPE/NAME` of the job.
    wanted: String,
    query: Query,
    namespace: String,
    wide: bool,
}

/// The columns of the server's own table.
type Columns = Vec<Value>;

impl Listing for Pods {
    const KIND: &'static str = "any";
    const LIST: &'static str = "any";
    const DOT: &'static str = ".";
    const ACCEPT: &'static str = TABLE;
    type About = Columns;

    fn query(&self) -> &Query {
        &self.query
    }

    async fn find(&self, api: &Api) -> Result<Option<(Query, Value)>, Error> {
        let Some(query) = self.of_job(api).await? else { return Ok(None) };
        let first = self.page(api, &query, "").await?;
        Ok(Some((query, first)))
    }

    /// A page of the server's own table as a list.
    async fn page(&self, api: &Api, query: &Query, next: &str) -> Result<Value, Error> {
        let call = Call::get(query.path(next), query.resource.full_name());
        let mut table = api.call(&Call { accept: TABLE, content: JSON, ..call }).await?;
        let rows = table["rows"].as_array_mut().map(std::mem::take).unwrap_or_default();
        table["items"] = rows.into_iter().map(row_object).collect();
        Ok(table)
    }

    /// The first page's columns are those of all.
    async fn about(&self, _: &Api, page: &Value, columns: &mut Columns) -> Result<(), Error> {
        if columns.is_empty() {
            *columns = page["columnDefinitions"].as_array().cloned().unwrap_or_default();
        }
        Ok(())
    }

    fn objects(&self, mut table: Value) -> Vec<Value> {
        table["rows"]
            .as_array_mut()
            .map(std::mem::take)
            .unwrap_or_default()
            .into_iter()
            .map(row_object)
            .collect()
    }

    fn keeps(&self, _: &Value, _: &Columns) -> bool {
        true
    }

    fn as_documents(&self, _: &Session<'_, '_>) -> bool {
        false
    }

    fn columns(&self, columns: &Columns) -> Vec<String> {
        self.shown(columns).map(|at| text(&columns[at], "/name").to_owned()).collect()
    }

    fn row(&self, pod: &Value, columns: &Columns, _: Timestamp) -> Vec<String> {
        let cell = |at: usize| match &pod["cells"][at] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.shown(columns).map(cell).collect()
    }
}

impl Pods {
    fn shown(&self, columns: &Columns) -> impl Iterator<Item = usize> {
        let priority = |at: &usize| columns[*at]["priority"].as_i64().unwrap_or(0);
        (0..columns.len()).filter(move |at| self.wide || priority(at) == 0)
    }

    /// What selects the job's pods on a cluster.
    async fn of_job(&self, api: &Api) -> Result<Option<Query>, Error> {
        let malformed = format!(
            "invalid value '{}' used in --for flag; value must be in the format TYPE[.API-GROUP]/NAME",
            self.wanted
        );
        let Some((resource, job)) = for_object(api, &self.namespace, &self.wanted, &malformed).await? else {
            return Ok(None);
        };
        let Some(label) = label(&resource, &job) else {
            return Err(Error::said(format!("unsupported kind: {}", resource.kind)));
        };
        let comma = if self.query.labels.is_empty() { "" } else { "," };
        let labels = format!("{}{comma}{label}", self.query.labels);
        Ok(Some(Query { labels, ..self.query.clone() }))
    }
}

/// A document for each pod.
async fn documents(session: &mut Session<'_, '_>, pods: &Pods) -> Result<(), Error> {
    let clusters = session.clusters().await?;
    let several = 1 < clusters.len();
    let asked = ask(clusters.iter(), async |cluster| match pods.of_job(&cluster.api).await? {
        Some(query) => query.all(&cluster.api).await.map(Some),
        None => Ok(None),
    });
    let mut documents = String::new();
    let mut printer = Printer::new(session, "", DryRun::None)?;
    for (cluster, answer) in asked.await {
        let list = match answer {
            Ok(list) => list.unwrap_or_default(),
            Err(error) if several => {
                session.fail(cluster, &error)?;
                continue;
            }
            Err(error) => return Err(error),
        };
        for pod in items(&list) {
            let mut pod = if several { with_cluster(pod.clone(), cluster.name()) } else { pod.clone() };
            (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
            documents += &printer.print("any", &pod)?;
        }
    }
    session.print(&aligned(&documents))?;
    if documents.is_empty() && !session.has_failed() { list::nothing_found(session, ".") } else { Ok(()) }
}

/// The selector of a job's pods, for the kinds that Kueue gives one.
fn label(resource: &Resource, job: &Value) -> Option<String> {
    let name = text(job, "/metadata/name");
    let operated = |by: &str| {
        Some(format!("training.kubeflow.org/job-name={name},training.kubeflow.org/operator-name={by}"))
    };
    let ray = |cluster: &str| (!cluster.is_empty()).then(|| format!("ray.io/cluster={cluster}"));
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("batch", "Job") => Some(format!("batch.kubernetes.io/job-name={name}")),
        ("jobset.x-k8s.io", "JobSet") | ("trainer.kubeflow.org", "TrainJob") => {
            Some(format!("jobset.sigs.k8s.io/jobset-name={name}"))
        }
        ("kubeflow.org", "MPIJob") => operated("mpi-operator"),
        ("kubeflow.org", "XGBoostJob") => operated("xgboostjob-controller"),
        ("kubeflow.org", "JAXJob") => operated("jaxjob-controller"),
        ("kubeflow.org", "PyTorchJob") => operated("pytorchjob-controller"),
        ("kubeflow.org", "TFJob") => operated("tfjob-controller"),
        ("kubeflow.org", "PaddleJob") => operated("paddlejob-controller"),
        ("ray.io", "RayCluster") => ray(name),
        ("ray.io", "RayJob") => ray(text(job, "/status/rayClusterName")),
        ("ray.io", "RayService") => ray(text(job, "/status/activeServiceStatus/rayClusterName")),
        ("sparkoperator.k8s.io", "SparkApplication") => Some(format!("sparkoperator.k8s.io/app-name={name}")),
        ("", "Pod") => {
            let group = job
                .pointer("/metadata/labels")
                .and_then(|labels| labels["kueue.x-k8s.io/pod-group-name"].as_str());
            Some(format!("kueue.x-k8s.io/pod-group-name={}", group.unwrap_or_default()))
        }
        _ => None,
    }
}

/// A row with the object's metadata where objects have it.
fn row_object(mut row: Value) -> Value {
    let metadata = row["object"]["metadata"].take();
    json!({"metadata": metadata, "cells": row["cells"].take()})
}
