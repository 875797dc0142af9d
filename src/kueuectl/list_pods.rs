//! `list pods --for TYPE/NAME`: the pods of one job, found by the label that its kind gives them.

use serde_json::{Value, json};

use crate::{
    api::{Api, Call, JSON},
    error::Error,
    list::{self, Query},
    list_workload::for_object,
    output::Printer,
    resource::{DryRun, Resource},
    session::{Session, text},
    table::{Table, aligned},
};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

pub async fn run(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let wanted = session.given.text("for").to_owned();
    let malformed = format!(
        "invalid value '{wanted}' used in --for flag; value must be in the format TYPE[.API-GROUP]/NAME"
    );
    let mut query = Query::new(session, Resource::core("pods", "Pod", true))?;
    let Some((resource, job)) = for_object(session, &wanted, &malformed).await? else {
        return list::nothing_found(session, ".");
    };
    let Some(label) = label(&resource, &job) else {
        return Err(Error::said(format!("unsupported kind: {}", resource.kind)));
    };
    let comma = if query.labels.is_empty() { "" } else { "," };
    query.labels = format!("{}{comma}{label}", query.labels);
    let output = session.given.text("output").to_owned();
    let shown = if output.is_empty() || output.contains("wide") {
        let tables = tables(session.api().await?, &query).await?;
        table(&tables, output == "wide", session.given.is("all-namespaces"))
    } else {
        let pods = query.all(session.api().await?).await?;
        let mut printer = Printer::new(session, "", DryRun::None)?;
        let mut documents = String::new();
        for pod in pods["items"].as_array().into_iter().flatten() {
            let mut pod = pod.clone();
            (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
            documents += &printer.print("any", &pod)?;
        }
        aligned(&documents)
    };
    session.print(&shown)?;
    if shown.is_empty() { list::nothing_found(session, ".") } else { Ok(()) }
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

/// The server's own tables, a page each.
async fn tables(api: &Api, query: &Query) -> Result<Vec<Value>, Error> {
    let mut tables = Vec::new();
    let mut next = String::new();
    loop {
        let call = Call::get(query.path(&next), query.resource.full_name());
        let table = api.call(&Call { accept: TABLE, content: JSON, ..call }).await?;
        text(&table, "/metadata/continue").clone_into(&mut next);
        tables.push(table);
        if next.is_empty() {
            return Ok(tables);
        }
    }
}

fn table(pages: &[Value], wide: bool, namespaces: bool) -> String {
    let mut table = Table::default();
    for page in pages {
        let columns: Vec<&Value> = page["columnDefinitions"].as_array().into_iter().flatten().collect();
        let shown: Vec<usize> = (0..columns.len())
            .filter(|&at| wide || columns[at]["priority"].as_i64().unwrap_or(0) == 0)
            .collect();
        let names: Vec<&str> = namespaces
            .then_some("Namespace")
            .into_iter()
            .chain(shown.iter().map(|&at| text(columns[at], "/name")))
            .collect();
        for row in page["rows"].as_array().into_iter().flatten() {
            let namespace = namespaces.then(|| text(row, "/object/metadata/namespace").to_owned());
            let cells = shown.iter().map(|&at| match &row["cells"][at] {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            table.row(&names, &namespace.into_iter().chain(cells).collect::<Vec<_>>());
        }
    }
    table.render()
}
