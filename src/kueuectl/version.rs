//! `version`: this program's, and the image of Kueue's controller where it is installed as usual.

use crate::{
    error::Error,
    resource::Resource,
    session::{Session, text},
};

pub async fn run(session: &mut Session<'_, '_>, version: &str) -> Result<(), Error> {
    session.print(&format!("Client Version: {version}\n"))?;
    let deployments = Resource {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        plural: "deployments".to_owned(),
        kind: "Deployment".to_owned(),
        namespaced: true,
    };
    let namespace = session.given.text("namespace").to_owned();
    let namespace = if namespace.is_empty() { "kueue-system" } else { &namespace };
    let deployment = match deployments.get(session.api().await?, namespace, "kueue-controller-manager").await
    {
        Err(error) if error.is_not_found() => return Ok(()),
        found => found?,
    };
    let containers = deployment.pointer("/spec/template/spec/containers").and_then(|list| list.as_array());
    let manager = containers.into_iter().flatten().find(|container| text(container, "/name") == "manager");
    match manager {
        Some(container) => {
            session.print(&format!("Kueue Controller Manager Image: {}\n", text(container, "/image")))
        }
        None => Ok(()),
    }
}
