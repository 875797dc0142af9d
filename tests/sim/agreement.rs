//! The simulated server answers as the real ones do.

use anyhow::{Context, Result};
use fedq_sim::callers::Identity;
use fedq_sim::cluster::{Cluster, HerdOptions, Options};
use fedq_sim::nodes::{Change, Template};
use fedq_sim::rbac::User;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::conformance::client::Credential;
use crate::conformance::subject::{COUNT, NUMBER, Nodes};
use crate::conformance::{self, Kubelet, NOBODY, Server};

const AN_HOUR: SignedDuration = SignedDuration::from_hours(1);

macro_rules! themes {
    ($($name:ident),*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() -> Result<()> {
            // An error only says that a provider is there already.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let cluster = Cluster::start(Options::named("conformance")).await?;
            conformance::run(&server(&cluster)?, stringify!($name)).await
        })*
    };
}

conformance::with_themes!(themes);

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_objects() -> Result<()> {
    Box::pin(on_nodes(Options::named("conformance"), |_| None)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_a_herd() -> Result<()> {
    let herd = HerdOptions { template: Template::large().into(), number: NUMBER, nodes: COUNT };
    let options = Options { herd: Some(herd), ..Options::named("conformance") };
    let keeper = |cluster: &Cluster| {
        let state = cluster.state.clone();
        let happens = move |node: usize, change: Change| {
            state.herd().is_some_and(|herd| herd.apply(&state.store, [(node, change)], state.now()) == 1)
        };
        Some(Box::new(happens) as conformance::subject::Keeper)
    };
    Box::pin(on_nodes(options, keeper)).await
}

/// Without controllers, so that nothing happens to the nodes by itself.
async fn on_nodes(
    options: Options,
    keeper: impl Fn(&Cluster) -> Option<conformance::subject::Keeper>,
) -> Result<()> {
    // An error only says that a provider is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cluster = Cluster::start(Options { controllers: false, ..options }).await?;
    let nodes = Some(Nodes { looks: Nodes::looks(), keeper: keeper(&cluster) });
    conformance::run_on_nodes(&Server { nodes, ..server(&cluster)? }).await
}

fn server(cluster: &Cluster) -> Result<Server> {
    let kubeconfig: Value = serde_json::from_str(&cluster.kubeconfig("admin", &["system:masters"]))?;
    let authority =
        kubeconfig.pointer("/clusters/0/cluster/certificate-authority-data").context("no authority")?;
    let ByteString(authority) = serde_json::from_value(authority.clone())?;
    let token = cluster.state.new_token(User::new("somebody", &[]), None);
    let now = cluster.state.now();
    let certificate = |name: &str, group: &str, until: Timestamp| -> Result<Credential> {
        let Identity { certificate, key } = cluster.state.sign(name, group, until)?;
        Ok(Credential::Certificate { cert_pem: certificate, key_pem: key })
    };
    let state = cluster.state.clone();
    Ok(Server {
        flavour: "simulated",
        base: cluster.url(),
        ca_pem: String::from_utf8(authority)?,
        admin: certificate("conformance-admin", "system:masters", now + AN_HOUR)?,
        nobody: certificate(NOBODY, "nobodies", now + AN_HOUR)?,
        expired: certificate("conformance-admin", "system:masters", now - AN_HOUR)?,
        token: (token, "somebody".to_owned()),
        kubelet: Kubelet {
            conditions: Some(
                json!([{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]),
            ),
            pods_end_after: |seconds| json!({"sim.fedq.dev/seconds": seconds.to_string()}),
        },
        forget: Box::new(move || {
            let state = state.clone();
            Box::pin(async move {
                state.store.compact();
                Ok(())
            })
        }),
        nodes: None,
    })
}
