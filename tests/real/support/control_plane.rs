//! The servers of one cluster: etcd, the API server, its controllers, the scheduler and kwok's nodes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use serde_json::Value;

use super::audit;
use super::certs::Authority;
use super::process::{Server, Signal, Supervisor, free_ports};
use super::tools::Tools;
use super::wait::{Seen, eventually};
use super::web;

/// A control plane is ready in 3 to 4 s; three that start at once on two busy cores need longer.
const READY_WITHIN: Duration = Duration::from_mins(2);

/// Between "port found" and "port bound" another program can take it; thrice in a row is no accident.
const PORT_TRIES: usize = 3;

/// A pod with this annotation fails with exit code 1 so long after it began to run; with the weight 0 for kwok's own stage,
/// since a pod of a Job might as well complete.
const POD_FAILS: &str = r#"
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-fails}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Running]}
    - {key: '.metadata.annotations["fedq-test/fails-after"]', operator: Exists}
  weight: 1000
  delay:
    durationMilliseconds: 1000
    durationFrom: {expressionFrom: '.metadata.annotations["fedq-test/fails-after"]'}
  next:
    statusTemplate: |
      phase: Failed
      containerStatuses:
      {{ range .spec.containers }}
      - {name: {{ .name | Quote }}, image: {{ .image | Quote }}, imageID: "", ready: false, restartCount: 0,
         state: {terminated: {exitCode: 1, reason: Error}}}
      {{ end }}
"#;

pub struct ControlPlane {
    site: Site,
    etcd_port: u16,
    api_port: u16,
    api_server: Mutex<Server>,
    /// Everything else that must stay alive.
    others: Mutex<Vec<Server>>,
    /// The API server was killed or frozen since it was last healed.
    disturbed: AtomicBool,
}

impl ControlPlane {
    pub async fn start(supervisor: &Arc<Supervisor>, tools: &Arc<Tools>, dir: &Path) -> Result<Self> {
        let plane = Self::alone(supervisor, tools, dir).await?;
        plane.start_controllers()?;
        plane.start_kwok().await?;
        Ok(plane)
    }

    /// The API server and its store, and nobody else who writes to it.
    pub async fn alone(supervisor: &Arc<Supervisor>, tools: &Arc<Tools>, dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let authority = Authority::create(&dir.join("certs"))?;
        std::fs::write(dir.join("audit-policy.yaml"), audit::POLICY)?;

        let site = Site {
            supervisor: Arc::clone(supervisor),
            tools: Arc::clone(tools),
            dir: dir.to_owned(),
            authority,
        };

        let (etcd, etcd_port) = with_free_ports(async |[client, peer]: [u16; 2]| {
            let server = supervisor.spawn(
                Command::new(tools.program("etcd"))
                    .arg("--data-dir")
                    .arg(dir.join("etcd"))
                    .arg(format!("--listen-client-urls=http://127.0.0.1:{client}"))
                    .arg(format!("--advertise-client-urls=http://127.0.0.1:{client}"))
                    .arg(format!("--listen-peer-urls=http://127.0.0.1:{peer}"))
                    .args(["--unsafe-no-fsync", "--log-level=warn"]),
                "etcd",
                &dir.join("etcd.log"),
            )?;
            wait_ready(&server, &format!("http://127.0.0.1:{client}"), "/health", None).await?;
            Ok((server, client))
        })
        .await?;

        let (api_server, api_port) = with_free_ports(async |[port]: [u16; 1]| {
            let server = site.spawn_api_server(etcd_port, port)?;
            wait_ready(&server, &format!("https://127.0.0.1:{port}"), "/readyz", Some(&site.authority))
                .await?;
            Ok((server, port))
        })
        .await?;

        Ok(Self {
            site,
            etcd_port,
            api_port,
            api_server: Mutex::new(api_server),
            others: Mutex::new(vec![etcd]),
            disturbed: AtomicBool::new(false),
        })
    }

    pub fn authority(&self) -> &Authority {
        &self.site.authority
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.api_port)
    }

    pub fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd_port)
    }

    /// A kubeconfig with everything inline, as MultiKueue and fedq demand.
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> Result<String> {
        let identity = self.site.authority.client(user, groups)?;
        let text = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "main",
            "clusters": [{"name": "main", "cluster": {
                "server": self.url(),
                "certificate-authority-data": base64(self.site.authority.ca_pem.as_bytes()),
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": base64(identity.cert_pem.as_bytes()),
                "client-key-data": base64(identity.key_pem.as_bytes()),
            }}],
            "contexts": [{"name": "main", "context": {"cluster": "main", "user": user}}],
        });
        Ok(serde_saphyr::to_string(&text)?)
    }

    /// Kills the API server at once: a graceful stop keeps its port for a minute.
    pub fn kill_api_server(&self) -> Result<()> {
        self.disturbed.store(true, Ordering::Relaxed);
        self.api_server().kill()
    }

    /// It accepts connections and never answers, as a dying machine does.
    pub fn freeze_api_server(&self) -> Result<()> {
        self.disturbed.store(true, Ordering::Relaxed);
        self.api_server().signal(Signal::Stop)
    }

    pub fn thaw_api_server(&self) -> Result<()> {
        self.api_server().signal(Signal::Continue)
    }

    /// Starts a killed API server again, on the same port and data.
    pub async fn restart_api_server(&self) -> Result<()> {
        let server = eventually("the API server's port to be free again", READY_WITHIN, async || {
            let server = self.site.spawn_api_server(self.etcd_port, self.api_port)?;
            wait_ready(&server, &self.url(), "/readyz", Some(&self.site.authority)).await?;
            Ok(Seen::Done(server))
        })
        .await?;
        *self.api_server() = server;
        Ok(())
    }

    /// Undoes what a serial case did to the API server and left so, because it failed half way. Says whether
    /// the server was away at any time: its controllers try again at growing intervals, and may not have
    /// found it back yet.
    pub async fn heal(&self) -> Result<bool> {
        let dead = self.api_server().exited()?.is_some();
        if dead {
            self.restart_api_server().await?;
        }
        self.thaw_api_server()?;
        Ok(self.disturbed.swap(false, Ordering::Relaxed))
    }

    /// Remembers a server that belongs to this cluster, to tell when it has died.
    pub fn watch_over(&self, server: Server) {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).push(server);
    }

    /// What has ended that should run, with the tail of its log.
    pub fn casualties(&self) -> Vec<String> {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others
            .iter()
            .filter_map(|server| server.ensure_alive().err())
            .map(|error| format!("{error:#}"))
            .collect()
    }

    fn api_server(&self) -> std::sync::MutexGuard<'_, Server> {
        self.api_server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Each component has a certificate of its own, so that the audit log tells them apart.
    pub fn component_kubeconfig(&self, user: &str) -> Result<PathBuf> {
        let path = self.site.dir.join(format!("{user}.kubeconfig").replace(':', "-"));
        std::fs::write(&path, self.kubeconfig(user, &["system:masters"])?)?;
        Ok(path)
    }

    fn start_controllers(&self) -> Result<()> {
        let manager = self.site.supervisor.spawn(
            Command::new(self.site.tools.program("kube-controller-manager"))
                .arg("--kubeconfig")
                .arg(self.component_kubeconfig("system:kube-controller-manager")?)
                .arg("--service-account-private-key-file")
                .arg(self.site.authority.path("sa.key"))
                .arg("--root-ca-file")
                .arg(self.site.authority.path("ca.crt"))
                .args(["--leader-elect=false", "--secure-port=0"])
                // Without node-lifecycle new nodes keep their not-ready taint and nothing is scheduled.
                .arg(
                    "--controllers=node-lifecycle-controller,job-controller,garbage-collector-controller,\
                     namespace-controller,serviceaccount-controller,root-ca-certificate-publisher-controller,\
                     ttl-after-finished-controller,persistentvolume-binder-controller,\
                     persistentvolumeclaim-protection-controller,persistentvolume-protection-controller,\
                     deployment-controller,replicaset-controller,statefulset-controller",
                ),
            "kube-controller-manager",
            &self.site.dir.join("kube-controller-manager.log"),
        )?;
        self.watch_over(manager);
        let scheduler = self.site.supervisor.spawn(
            Command::new(self.site.tools.program("kube-scheduler"))
                .arg("--kubeconfig")
                .arg(self.component_kubeconfig("system:kube-scheduler")?)
                .args(["--leader-elect=false", "--secure-port=0"]),
            "kube-scheduler",
            &self.site.dir.join("kube-scheduler.log"),
        )?;
        self.watch_over(scheduler);
        Ok(())
    }

    /// The file whose lines every pod of this cluster logs; a line is `<RFC 3339 nanoseconds> stdout F <text>`.
    pub fn pod_log_path(&self) -> PathBuf {
        self.site.dir.join("pods.log")
    }

    async fn start_kwok(&self) -> Result<()> {
        std::fs::write(self.pod_log_path(), "2026-01-01T00:00:00.000000001Z stdout F hello from kwok\n")?;
        let config = self.site.dir.join("kwok.yaml");
        let logs = serde_json::json!({
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "ClusterLogs",
            "metadata": {"name": "every-pod"},
            "spec": {"logs": [{"logsFile": self.pod_log_path(), "follow": true}]},
        });
        // Commands run on this machine, in the cluster's folder; ports lead to the same ones of this machine.
        let commands = serde_json::json!({
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "ClusterExec",
            "metadata": {"name": "every-pod"},
            "spec": {"execs": [{"local": {"workDir": self.site.dir, "envs": [{"name": "IN_A_POD", "value": "yes"}]}}]},
        });
        let ports = serde_json::json!({
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "ClusterPortForward",
            "metadata": {"name": "every-pod"},
            "spec": {"forwards": [{"command": ["cat"]}]},
        });
        let stages = self.site.tools.manifests("kwok-stages")?;
        let mut text = format!("{stages}\n---\n{POD_FAILS}");
        for object in [logs, commands, ports] {
            text = format!("{text}\n---\n{}", serde_saphyr::to_string(&object)?);
        }
        std::fs::write(&config, text)?;
        let kubeconfig = self.component_kubeconfig("kwok")?;
        let kwok = with_free_ports(async |[port]: [u16; 1]| {
            let server = self.site.supervisor.spawn(
                Command::new(self.site.tools.program("kwok"))
                    .arg("--kubeconfig")
                    .arg(&kubeconfig)
                    .arg("--config")
                    .arg(&config)
                    .arg("--manage-all-nodes=true")
                    .arg(format!("--server-address=127.0.0.1:{port}"))
                    .arg("--node-ip=127.0.0.1")
                    .arg(format!("--node-port={port}"))
                    .arg("--tls-cert-file")
                    .arg(self.site.authority.path("tls.crt"))
                    .arg("--tls-private-key-file")
                    .arg(self.site.authority.path("tls.key")),
                "kwok",
                &self.site.dir.join("kwok.log"),
            )?;
            wait_ready(&server, &format!("https://127.0.0.1:{port}"), "/healthz", Some(&self.site.authority))
                .await?;
            Ok(server)
        })
        .await?;
        self.watch_over(kwok);
        Ok(())
    }
}

/// Where the servers of one cluster live, and what they start from.
struct Site {
    supervisor: Arc<Supervisor>,
    tools: Arc<Tools>,
    dir: PathBuf,
    authority: Authority,
}

impl Site {
    fn spawn_api_server(&self, etcd_port: u16, port: u16) -> Result<Server> {
        let path = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
        self.supervisor.spawn(
            Command::new(self.tools.program("kube-apiserver"))
                .arg(format!("--etcd-servers=http://127.0.0.1:{etcd_port}"))
                .arg(format!("--secure-port={port}"))
                .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
                .arg(path("cert-dir", self.authority.dir().to_owned()))
                .arg(path("tls-cert-file", self.authority.path("tls.crt")))
                .arg(path("tls-private-key-file", self.authority.path("tls.key")))
                .arg(path("client-ca-file", self.authority.path("ca.crt")))
                .arg(path("service-account-key-file", self.authority.path("sa.pub")))
                .arg(path("service-account-signing-key-file", self.authority.path("sa.key")))
                .arg("--service-account-issuer=https://kubernetes.default.svc")
                .args(["--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24"])
                .args(["--allow-privileged=true", "--endpoint-reconciler-type=none"])
                .arg(path("audit-policy-file", self.dir.join("audit-policy.yaml")))
                .arg(path("audit-log-path", self.dir.join("audit.log")))
                // Blocking: no event is lost or reordered when the server is busy or killed.
                .args(["--audit-log-format=json", "--audit-log-mode=blocking", "--audit-log-maxsize=4000"]),
            "kube-apiserver",
            &self.dir.join("kube-apiserver.log"),
        )
    }
}

pub async fn with_free_ports<const N: usize, T>(
    mut start: impl AsyncFnMut([u16; N]) -> Result<T>,
) -> Result<T> {
    for _ in 1..PORT_TRIES {
        match start(free_ports()?).await {
            Err(error) if format!("{error:#}").contains("address already in use") => {}
            result => return result,
        }
    }
    start(free_ports()?).await
}

/// Waits for a 200; ends at once if the server does.
pub async fn wait_ready(
    server: &Server,
    base: &str,
    path: &str,
    authority: Option<&Authority>,
) -> Result<()> {
    let identity =
        authority.map(|authority| authority.client("readiness", &["system:masters"])).transpose()?;
    let client = web::Client::new(base, identity.as_ref())?;
    let mut death = None;
    let ready =
        eventually(&format!("{} to be ready at {base}{path}", server.name()), READY_WITHIN, async || {
            if let Err(error) = server.ensure_alive() {
                death = Some(error);
                return Ok(Seen::Done(()));
            }
            let status = client.get(path).await?.status;
            Ok(Seen::when(status == 200, || format!("HTTP status {status}")))
        })
        .await;
    match death {
        Some(error) => Err(error),
        None => {
            ready.with_context(|| format!("the end of {}'s log:\n{}", server.name(), server.log_tail(40)))
        }
    }
}

/// As in Secrets and kubeconfigs.
pub fn base64(bytes: &[u8]) -> Value {
    serde_json::to_value(ByteString(bytes.to_vec())).expect("a byte string becomes a JSON string")
}
