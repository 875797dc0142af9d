//! `create`: what the three kinds share, and LocalQueues.

use serde_json::{Value, json};

use crate::{
    error::Error,
    output::Printer,
    resource::{DryRun, Resource},
    selector,
    session::Session,
};

/// Creates `object` as `--dry-run` says and prints it as `-o` says.
pub async fn send(session: &mut Session<'_, '_>, resource: &Resource, object: Value) -> Result<(), Error> {
    let dry_run = session.dry_run()?;
    let mut printer = Printer::new(session, "created", dry_run)?;
    let object = match dry_run {
        DryRun::Client => object,
        _ => resource.create(session.api().await?, &object, dry_run).await?,
    };
    let text = printer.print(&resource.kind, &object)?;
    session.print(&text)
}

pub async fn local_queue(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let name = session.given.arguments[0].clone();
    let namespace = session.namespace()?;
    let queue = session.given.text("clusterqueue").to_owned();
    session.dry_run()?;
    Printer::new(session, "created", DryRun::None)?;
    if name.is_empty() {
        return Err(Error::said("name must be specified"));
    }
    if queue.is_empty() {
        return Err(Error::said("clusterqueue must be specified"));
    }
    if !session.given.is("ignore-unknown-cq") {
        let cluster_queue = Resource::cluster_queue().get(session.api().await?, "", &queue).await?;
        warn_of_selector(session, &cluster_queue, &namespace).await?;
    }
    let object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": queue},
    });
    send(session, &Resource::local_queue(), object).await
}

/// KEP-2076: the ClusterQueue's namespaceSelector should match. Where it cannot be known, nothing is said: the queue can be made
/// before its namespace has its labels, and not everybody may read namespaces.
async fn warn_of_selector(
    session: &mut Session<'_, '_>,
    queue: &Value,
    namespace: &str,
) -> Result<(), Error> {
    let wanted = &queue["spec"]["namespaceSelector"];
    if wanted.as_object().is_some_and(|wanted| wanted.values().all(is_nothing)) {
        return Ok(());
    }
    let namespaces = Resource::core("namespaces", "Namespace", false);
    let Ok(found) = namespaces.get(session.api().await?, "", namespace).await else { return Ok(()) };
    if selector::matches(wanted, &found["metadata"]["labels"]) {
        return Ok(());
    }
    let name = queue["metadata"]["name"].as_str().unwrap_or_default();
    session.complain(&format!(
        "Warning: the namespaceSelector of clusterqueue {name} does not match namespace {namespace}: no workload of this \
         queue will be admitted until it does. Label the namespace, or change the selector\n"
    ))
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}
