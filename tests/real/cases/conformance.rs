//! What fedq relies on of Kubernetes and Kueue, asked of the real ones: the hub of the run.

use anyhow::Result;
use serde_json::json;

use super::stage::{CLAIM, CLAIMS, CRDS, SOON};
use crate::conformance::client::Credential;
use crate::conformance::subject::Nodes;
use crate::conformance::{self, Kubelet, NOBODY, Server};
use crate::support::certs::Identity;
use crate::support::control_plane::ControlPlane;
use crate::support::etcd;
use crate::support::fleet::Fleet;
use crate::support::kueue::install_crds;
use crate::support::wait::{Seen, eventually};

macro_rules! themes {
    ($($name:ident),*) => {
        $(pub async fn $name(fleet: &Fleet) -> Result<()> {
            conformance::run(&server(fleet).await?, stringify!($name)).await
        })*
    };
}

conformance::with_themes!(themes);

async fn server(fleet: &Fleet) -> Result<Server> {
    let hub = &fleet.hub;
    install_crds(hub, CRDS).await?;
    // Established is said a moment before the server has storage for the kind.
    eventually("claims to be served", SOON, async || {
        hub.list(CLAIMS, CLAIM, None).await.map(|_| Seen::Done(()))
    })
    .await?;
    hub.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: conformance, namespace: default}}")
        .await?;
    let token = hub.kubectl(&["create", "token", "conformance", "--namespace", "default"])?;
    of(&hub.plane, token.trim())
}

/// On an API server without controllers and kwok, so that nothing happens to its nodes by itself.
pub async fn nodes(fleet: &Fleet) -> Result<()> {
    let plane = fleet.plane_alone("nodes").await?;
    // None of the themes has a use for a token.
    let server = of(&plane, "")?;
    conformance::run_on_nodes(&Server {
        nodes: Some(Nodes { looks: Nodes::looks(), keeper: None }),
        ..server
    })
    .await
}

fn of(plane: &ControlPlane, token: &str) -> Result<Server> {
    let authority = plane.authority();
    let etcd = plane.etcd_url();
    Ok(Server {
        flavour: "real",
        base: plane.url(),
        ca_pem: authority.ca_pem.clone(),
        admin: certificate(authority.client("conformance-admin", &["system:masters"])?),
        nobody: certificate(authority.client(NOBODY, &[])?),
        expired: certificate(authority.expired_client("conformance-admin", "system:masters")?),
        token: (token.to_owned(), "system:serviceaccount:default:conformance".to_owned()),
        kubelet: Kubelet {
            conditions: None,
            pods_end_after: |seconds| json!({"pod-complete.stage.kwok.x-k8s.io/delay": format!("{seconds}s")}),
        },
        forget: Box::new(move || {
            let etcd = etcd.clone();
            Box::pin(async move { etcd::compact(&etcd).await })
        }),
        nodes: None,
    })
}

fn certificate(identity: Identity) -> Credential {
    Credential::Certificate { cert_pem: identity.cert_pem, key_pem: identity.key_pem }
}
