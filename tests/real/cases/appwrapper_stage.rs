//! A cluster with one operator of AppWrappers, ours or upstream's, both beside the cluster instead of inside it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose, Issuer, KeyPair,
};
use rustls::pki_types::{PrivatePkcs1KeyDer, pem::PemObject};
use serde_json::{Value, json};

use crate::support::cluster::{Cluster, has_condition, id};
use crate::support::control_plane::wait_ready;
use crate::support::fleet::Fleet;
use crate::support::process::{Server, free_ports};
use crate::support::relay::{Relay, Tap};
use crate::support::tools;
use crate::support::wait::{Seen, eventually};

pub const APPWRAPPER: &str = "workload.codeflare.dev/v1beta2";
/// The ServiceAccount that the shipped rights are bound to.
pub const OURS: &str = "system:serviceaccount:fedq-appwrapper:fedq-appwrapper";
pub const UPSTREAMS: &str = "upstream-appwrapper";
const WITHIN: Duration = Duration::from_mins(1);
const WEBHOOKS: &str = include_str!("../../../deploy/appwrapper/webhook.yaml");
const RIGHTS: [&str; 3] = [
    include_str!("../../../deploy/appwrapper/namespace.yaml"),
    include_str!("../../../deploy/appwrapper/rbac.yaml"),
    include_str!("../../../deploy/appwrapper/wrapped.yaml"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Ours,
    Upstreams,
}

/// Killed when it is dropped.
pub struct Running {
    pub server: Server,
    pub metrics_port: u16,
    /// Ours, to be started anew.
    replica: Option<Replica>,
    relay: Option<Relay>,
}

/// Everything that one process of ours is started with.
pub struct Replica {
    dir: PathBuf,
    identity: String,
    ports: [u16; 3],
}

/// What differs from the shipped Deployment's.
#[derive(Clone, Copy)]
pub struct Setting<'s> {
    pub webhooks: bool,
    pub elects: bool,
    pub identity: &'s str,
    /// In the place of one for its own ServiceAccount.
    pub kubeconfig: Option<&'s str>,
}

impl Default for Setting<'_> {
    fn default() -> Self {
        Self { webhooks: true, elects: true, identity: "fedq-appwrapper", kubeconfig: None }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.server.kill();
    }
}

impl Operator {
    pub async fn start(self, fleet: &Fleet, cluster: &Cluster, case: &str) -> Result<Running> {
        self.start_before(fleet, cluster, case, None).await
    }

    /// With somebody on its wire to the API server.
    pub async fn start_through(
        self,
        fleet: &Fleet,
        cluster: &Cluster,
        case: &str,
        tap: Arc<dyn Tap>,
    ) -> Result<Running> {
        let kubeconfig = match self {
            Self::Ours => cluster.kubeconfig_for(OURS, &[])?,
            Self::Upstreams => cluster.kubeconfig_for(UPSTREAMS, &["system:masters"])?,
        };
        let relay = Relay::start(&kubeconfig, tap).await?;
        self.start_before(fleet, cluster, case, Some(relay)).await
    }

    async fn start_before(
        self,
        fleet: &Fleet,
        cluster: &Cluster,
        case: &str,
        relay: Option<Relay>,
    ) -> Result<Running> {
        install_foreign_kinds(cluster).await?;
        let kubeconfig = relay.as_ref().map(Relay::kubeconfig).transpose()?;
        let mut running = match self {
            Self::Ours => {
                let setting = Setting { kubeconfig: kubeconfig.as_deref(), ..Setting::default() };
                start_ours(fleet, cluster, case, setting).await
            }
            Self::Upstreams => start_upstreams(fleet, cluster, case, kubeconfig.as_deref()).await,
        }?;
        running.relay = relay;
        wait_for_webhooks(cluster).await.with_context(|| running.server.log_tail(40))?;
        Ok(running)
    }
}

async fn start_ours(fleet: &Fleet, cluster: &Cluster, case: &str, setting: Setting<'_>) -> Result<Running> {
    let replica = Replica::prepare(fleet, cluster, case, setting).await?;
    let server = replica.spawn(fleet)?;
    replica.ready(&server).await?;
    Ok(Running { server, metrics_port: replica.ports[1], replica: Some(replica), relay: None })
}

impl Replica {
    /// With the rights that are shipped, as the ServiceAccount that they are bound to.
    pub async fn prepare(fleet: &Fleet, cluster: &Cluster, case: &str, setting: Setting<'_>) -> Result<Self> {
        tokio::task::spawn_blocking(tools::fedq_appwrapper).await??;
        for manifest in RIGHTS {
            cluster.apply(manifest).await?;
        }
        let ports = free_ports()?;
        let [webhook, metrics, health] = ports;
        // Beside upstream's it would not start.
        remove_webhooks(cluster).await?;
        if setting.webhooks {
            put_webhooks(cluster, webhook, str::to_owned).await?;
        }
        let dir = fleet.scratch(case)?.join(format!("{}-{}", cluster.name, setting.identity));
        std::fs::create_dir_all(&dir)?;
        let at = |port: u16| json!({"bindAddress": format!("127.0.0.1:{port}")});
        let settings = json!({
            "certManagement": {"extraNames": ["127.0.0.1"]},
            "webhooksEnabled": setting.webhooks,
            "controllerManager": {
                "webhook": at(webhook), "metrics": at(metrics), "health": at(health),
                "leaderElection": setting.elects,
            },
        });
        std::fs::write(dir.join("appwrapper.yaml"), serde_saphyr::to_string(&settings)?)?;
        let kubeconfig = match setting.kubeconfig {
            Some(kubeconfig) => kubeconfig.to_owned(),
            None => cluster.kubeconfig_for(OURS, &[])?,
        };
        std::fs::write(dir.join("appwrapper.kubeconfig"), kubeconfig)?;
        Ok(Self { dir, identity: setting.identity.to_owned(), ports })
    }

    pub fn spawn(&self, fleet: &Fleet) -> Result<Server> {
        fleet.spawn(
            ours(&tools::fedq_appwrapper_path(), &self.dir)
                .env("POD_NAME", &self.identity)
                .arg("--config")
                .arg(self.dir.join("appwrapper.yaml")),
            "fedq-appwrapper",
            &self.dir.join("fedq-appwrapper.log"),
        )
    }

    pub async fn ready(&self, server: &Server) -> Result<()> {
        wait_ready(server, &format!("http://127.0.0.1:{}", self.ports[2]), "/readyz", None).await
    }
}

impl Running {
    /// As a machine that loses power, and comes back.
    pub fn kill_and_start_ours(&mut self, fleet: &Fleet) -> Result<()> {
        self.server.kill()?;
        self.server = self.replica.as_ref().context("it is not ours")?.spawn(fleet)?;
        Ok(())
    }
}

/// Who loses the Lease ends, as late as a Lease lasts after the server stopped. It is started anew as by a kubelet.
pub async fn kept_running(
    running: &mut Running,
    fleet: &Fleet,
    work: impl Future<Output = Result<()>>,
) -> Result<()> {
    let mut work = std::pin::pin!(work);
    loop {
        if let Ok(done) = tokio::time::timeout(Duration::from_secs(1), &mut work).await {
            return done.with_context(|| running.server.log_tail(40));
        }
        if running.server.exited()?.is_some() {
            running.kill_and_start_ours(fleet)?;
        }
    }
}

fn ours(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(dir)
        .env("KUBECONFIG", dir.join("appwrapper.kubeconfig"))
        .env("NAMESPACE", "fedq-appwrapper");
    command
}

/// What ours says where upstream's is.
pub async fn ours_refuses(fleet: &Fleet, cluster: &Cluster, case: &str) -> Result<String> {
    let program = tokio::task::spawn_blocking(tools::fedq_appwrapper).await??;
    for manifest in RIGHTS {
        cluster.apply(manifest).await?;
    }
    let dir = fleet.scratch(case)?;
    std::fs::write(dir.join("appwrapper.kubeconfig"), cluster.kubeconfig_for(OURS, &[])?)?;
    let mut command = tokio::process::Command::from(ours(&program, &dir));
    let ran = tokio::time::timeout(WITHIN, command.kill_on_drop(true).output());
    let ran = ran.await.context("it did not end")??;
    anyhow::ensure!(!ran.status.success(), "it ended with success");
    Ok(String::from_utf8_lossy(&ran.stderr).into_owned())
}

async fn start_upstreams(
    fleet: &Fleet,
    cluster: &Cluster,
    case: &str,
    kubeconfig: Option<&str>,
) -> Result<Running> {
    let program = tokio::task::spawn_blocking(tools::appwrapper_operator).await??;
    // A case before this one may have left ours.
    remove_webhooks(cluster).await?;
    let namespace = "appwrapper-system";
    cluster.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}")).await?;
    let [webhook, metrics, health] = free_ports()?;
    // Its webhook server knows no other place for certificates.
    let temporary = fleet.scratch(case)?.join("upstream");
    let certificates = temporary.join("k8s-webhook-server/serving-certs");
    let settings = json!({
        "certManagement": {"certificateDir": certificates},
        "controllerManager": {
            "metrics": {"bindAddress": format!("127.0.0.1:{metrics}")},
            "health": {"bindAddress": format!("127.0.0.1:{health}")},
            // As in its own `config/default/config.yaml`.
            "leaderElection": true,
        },
    });
    let objects = [
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "appwrapper-operator-config", "namespace": namespace},
            "data": {"config.yaml": settings.to_string()},
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "appwrapper-webhook-server-cert", "namespace": namespace},
        }),
    ];
    for object in objects {
        cluster.apply_object("fedq-test", object).await?;
    }
    // One that was killed holds it until it lapses.
    let lease = id("coordination.k8s.io/v1", "Lease", "f134c674.codeflare.dev").within(namespace);
    cluster.delete(lease).await?;
    put_webhooks(cluster, webhook, upstreams).await?;
    let mut path = cluster.plane.component_kubeconfig(UPSTREAMS)?;
    if let Some(kubeconfig) = kubeconfig {
        path = fleet.scratch(case)?.join("upstream.kubeconfig");
        std::fs::write(&path, kubeconfig)?;
    }
    let namespace_file = fleet.scratch(case)?.join("upstream.namespace");
    std::fs::write(&namespace_file, namespace)?;
    let server = fleet.spawn(
        Command::new(program)
            .env("KUBECONFIG", path)
            .env("NAMESPACE", namespace)
            .env(tools::OPERATORS_NAMESPACE_FILE, namespace_file)
            .env(tools::OPERATORS_WEBHOOK_PORT, webhook.to_string())
            .env("TMPDIR", &temporary),
        "upstream's operator",
        &fleet.scratch(case)?.join("upstream-appwrapper.log"),
    )?;
    let secret = id("v1", "Secret", "appwrapper-webhook-server-cert").within(namespace);
    let made = cluster
        .wait(secret, "to have an authority", WITHIN, |seen| seen["data"]["ca.key"].is_string())
        .await?;
    serve_as_loopback(&made["data"]["ca.key"], &certificates)?;
    wait_ready(&server, &format!("http://127.0.0.1:{health}"), "/readyz", None).await?;
    let leads = cluster.wait(lease, "held", WITHIN, |seen| seen["spec"]["holderIdentity"].is_string());
    leads.await.with_context(|| server.log_tail(40))?;
    Ok(Running { server, metrics_port: metrics, replica: None, relay: None })
}

/// Its own authority signs for its Service alone, by which nobody reaches it here. So that authority signs once more, for the
/// loopback address, into files: no kubelet mounts the Secret.
fn serve_as_loopback(authority_key: &Value, dir: &Path) -> Result<()> {
    let pem: ByteString = serde_json::from_value(authority_key.clone())?;
    let key = PrivatePkcs1KeyDer::from_pem_slice(&pem.0).context("read the authority's key")?;
    let key = KeyPair::try_from(as_pkcs8(key.secret_pkcs1_der())?)?;
    let mut authority = CertificateParams::default();
    authority.distinguished_name = DistinguishedName::new();
    for (type_, value) in [(DnType::OrganizationName, "appwrapper"), (DnType::CommonName, "appwrapper-ca")] {
        // As Go writes it: names are compared by their bytes.
        authority.distinguished_name.push(type_, DnValue::PrintableString(value.try_into()?));
    }
    let mut serving = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
    serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let serving_key = KeyPair::generate()?;
    let certificate = serving.signed_by(&serving_key, &Issuer::new(authority, key))?;
    std::fs::create_dir_all(dir)?;
    std::fs::write(dir.join("tls.key"), serving_key.serialize_pem())?;
    Ok(std::fs::write(dir.join("tls.crt"), certificate.pem())?)
}

/// RSA keys as rcgen wants them, from what Go writes: the same within a header that names the algorithm.
fn as_pkcs8(pkcs1: &[u8]) -> Result<Vec<u8>> {
    const VERSION_AND_RSA: [u8; 18] =
        [2, 1, 0, 0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 1, 5, 0];
    let sized = |tag: u8, length: usize| -> Result<Vec<u8>> {
        let [high, low] = u16::try_from(length)?.to_be_bytes();
        Ok(vec![tag, 0x82, high, low])
    };
    let octets = [sized(4, pkcs1.len())?, pkcs1.to_vec()].concat();
    let length = VERSION_AND_RSA.len() + octets.len();
    Ok([sized(0x30, length)?, VERSION_AND_RSA.to_vec(), octets].concat())
}

/// Reached by URL on the loopback address; the operator itself makes them trusted.
async fn put_webhooks(cluster: &Cluster, port: u16, named: impl Fn(&str) -> String) -> Result<()> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(WEBHOOKS)?;
    for mut document in documents {
        let name = named(document["metadata"]["name"].as_str().context("a name")?);
        document["metadata"]["name"] = json!(name);
        let webhook = &mut document["webhooks"][0];
        let path = webhook["clientConfig"]["service"]["path"].as_str().context("a path")?;
        webhook["clientConfig"] = json!({"url": format!("https://127.0.0.1:{port}{path}")});
        cluster.apply_object("fedq-test", document).await?;
    }
    Ok(())
}

/// What upstream calls it.
fn upstreams(name: &str) -> String {
    format!("{}-webhook-configuration", name.replace("fedq-appwrapper", "appwrapper"))
}

/// Those of ours and of upstream's, which nobody would answer.
pub async fn remove_webhooks(cluster: &Cluster) -> Result<()> {
    for (kind, name) in [
        ("MutatingWebhookConfiguration", "fedq-appwrapper-mutating"),
        ("ValidatingWebhookConfiguration", "fedq-appwrapper-validating"),
    ] {
        for name in [name.to_owned(), upstreams(name)] {
            cluster.delete(id("admissionregistration.k8s.io/v1", kind, &name)).await?;
        }
    }
    Ok(())
}

async fn wait_for_webhooks(cluster: &Cluster) -> Result<()> {
    let empty = json!({
        "apiVersion": APPWRAPPER, "kind": "AppWrapper", "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"components": []},
    });
    eventually("the webhook to refuse an empty AppWrapper", WITHIN, async || {
        let params = kube::api::PostParams { dry_run: true, ..Default::default() };
        let object = serde_json::from_value(empty.clone())?;
        let of = id(APPWRAPPER, "AppWrapper", "probe").within("default");
        Ok(match cluster.api(of).await?.create(&params, &object).await {
            Err(kube::Error::Api(status)) if status.message.contains("no podspecs") => Seen::Done(()),
            Err(error) => Seen::Still(error.to_string()),
            Ok(_) => Seen::Still("it was accepted".to_owned()),
        })
    })
    .await
}

/// Kinds whose own operators the case plays.
pub async fn install_foreign_kinds(cluster: &Cluster) -> Result<()> {
    let kinds = [("kubeflow.org", "PyTorchJob"), ("ray.io", "RayCluster"), ("ray.io", "RayJob")];
    for (group, kind) in kinds {
        let singular = kind.to_lowercase();
        let name = format!("{singular}s.{group}");
        let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": kind, "plural": format!("{singular}s"), "singular": singular},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": anything},
                }],
            },
        });
        cluster.apply_object("fedq-test", crd).await?;
        let crd = id("apiextensions.k8s.io/v1", "CustomResourceDefinition", &name);
        cluster.wait(crd, "served", WITHIN, |crd| has_condition(crd, "Established", "True")).await?;
    }
    Ok(())
}
