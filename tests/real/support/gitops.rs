//! Argo CD and Flux on a hub, each with a folder in the place of Git.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::cluster::{Cluster, Id, Part, has_condition, id};
use super::fleet::Fleet;
use super::kueue::install_crds;
use super::process::{Server, free_ports};
use super::tools;
use super::wait::{Seen, eventually};

const SOURCES: &str = "source.toolkit.fluxcd.io/v1";
const KUSTOMIZE: &str = "kustomize.toolkit.fluxcd.io/v1";
const ARGO: &str = "argoproj.io/v1alpha1";
/// A sync is a few requests; the rest is for a busy machine.
const SOON: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    ArgoCd,
    Flux,
}

impl Kind {
    /// Its field manager, and as the audit log knows it.
    pub fn manager(self) -> &'static str {
        match self {
            Self::ArgoCd => "argocd-controller",
            Self::Flux => "kustomize-controller",
        }
    }

    fn namespace(self) -> &'static str {
        match self {
            Self::ArgoCd => "argocd",
            Self::Flux => "flux-system",
        }
    }

    /// The object that says what is kept as Git has it.
    pub fn object(self) -> Id<'static> {
        match self {
            Self::ArgoCd => id(ARGO, "Application", "queues").within("argocd"),
            Self::Flux => id(KUSTOMIZE, "Kustomization", "queues").within("flux-system"),
        }
    }
}

/// A controller that runs, and what stands in for its repository.
pub struct Engine<'f> {
    pub kind: Kind,
    hub: &'f Cluster,
    /// The repository's root.
    dir: PathBuf,
    server: Server,
    artifact: Arc<Mutex<Vec<u8>>>,
    port: u16,
}

impl<'f> Engine<'f> {
    /// Installs it and starts it. `recipe` is the Application or Kustomization; it looks every two seconds, which people's
    /// own look at after minutes.
    pub async fn start(fleet: &'f Fleet, case: &str, kind: Kind, recipe: &str) -> Result<Self> {
        let hub = &fleet.hub;
        let scratch = fleet.scratch(case)?;
        let dir = scratch.join(format!("{kind:?}-git"));
        fs::create_dir_all(dir.join("queues"))?;
        let namespace = kind.namespace();
        hub.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}")).await?;
        let kubeconfig = scratch.join(format!("{kind:?}.kubeconfig"));
        fs::write(&kubeconfig, hub.kubeconfig_for(kind.manager(), &["system:masters"])?)?;
        let [port, health] = free_ports()?;
        let artifact = Arc::new(Mutex::new(Vec::new()));
        let mut command = match kind {
            Kind::ArgoCd => {
                install_argo_cd(hub).await?;
                let mut command = Command::new(tokio::task::spawn_blocking(tools::argo_cd).await??);
                command.arg(&dir).arg(port.to_string());
                command
            }
            Kind::Flux => {
                install_flux(hub).await?;
                serve(port, Arc::clone(&artifact)).await?;
                let mut command = Command::new(tokio::task::spawn_blocking(tools::flux).await??);
                command.args(["--watch-all-namespaces", "--metrics-addr", "0", "--health-addr"]);
                command.arg(format!("127.0.0.1:{health}")).env("RUNTIME_NAMESPACE", namespace);
                command
            }
        };
        let log = scratch.join(format!("{kind:?}.log"));
        // Flux clears the folder of what it takes for an earlier run's.
        let temporary = scratch.join(format!("{kind:?}-tmp"));
        fs::create_dir_all(&temporary)?;
        command.env("KUBECONFIG", &kubeconfig).env("HOME", &scratch).env("TMPDIR", &temporary);
        command.current_dir(&scratch);
        let server = fleet.spawn(&mut command, kind.manager(), &log)?;
        let engine = Self { kind, hub, dir, server, artifact, port };
        engine.configure(recipe).await?;
        Ok(engine)
    }

    /// Gives it another recipe.
    pub async fn configure(&self, recipe: &str) -> Result<()> {
        self.configure_to_look(recipe, "2s").await
    }

    /// Flux then looks after so long, and at each commit.
    pub async fn configure_to_look(&self, recipe: &str, interval: &str) -> Result<()> {
        let mut object: Value = serde_saphyr::from_str(recipe)?;
        if self.kind == Kind::Flux {
            object["spec"]["interval"] = json!(interval);
        }
        self.hub.apply_object("people", object).await?;
        Ok(())
    }

    /// Puts what a person pasted into its `spec`.
    pub async fn paste(&self, yaml: &str) -> Result<()> {
        let lines: Value = serde_saphyr::from_str(yaml).with_context(|| yaml.to_owned())?;
        ensure!(lines.is_object(), "nothing to paste:\n{yaml}");
        let mut spec = self.hub.get(self.kind.object()).await?.context("its object is there")?["spec"].take();
        for (key, value) in lines.as_object().into_iter().flatten() {
            match (&mut spec[key], value) {
                // Beside what is there already, as a person would.
                (Value::Object(there), Value::Object(more)) => there.extend(more.clone()),
                (there, more) => *there = more.clone(),
            }
        }
        self.hub.merge(self.kind.object(), Part::Whole, json!({"spec": spec})).await
    }

    /// Writes a file of the folder that it follows, or removes it, and waits until that is applied.
    pub async fn commit(&self, file: &str, text: Option<&str>) -> Result<()> {
        self.push(file, text).await?;
        self.applied().await
    }

    /// Without waiting.
    pub async fn push(&self, file: &str, text: Option<&str>) -> Result<()> {
        let path = self.dir.join("queues").join(file);
        match text {
            Some(text) => fs::write(&path, text)?,
            None => fs::remove_file(&path)?,
        }
        if self.kind == Kind::Flux { self.publish().await } else { Ok(()) }
    }

    /// Everything of a folder, without waiting.
    pub async fn push_all(&self, folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().context("a file has a name")?;
            fs::copy(&path, self.dir.join("queues").join(name))?;
        }
        if self.kind == Kind::Flux { self.publish().await } else { Ok(()) }
    }

    /// What source-controller does: an archive, and a GitRepository that says where it is.
    async fn publish(&self) -> Result<()> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        archive.append_dir_all(".", &self.dir)?;
        let bytes = archive.into_inner()?.finish()?;
        let digest = hex(&Sha256::digest(&bytes));
        let size = bytes.len();
        *self.artifact.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
        let source = id(SOURCES, "GitRepository", "platform").within("flux-system");
        self.hub
            .apply_object(
                "people",
                json!({
                    "apiVersion": SOURCES, "kind": "GitRepository",
                    "metadata": {"name": "platform", "namespace": "flux-system"},
                    "spec": {"url": "https://git.example.com/platform.git", "interval": "1m"},
                }),
            )
            .await?;
        let status = json!({"status": {
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored",
                "lastTransitionTime": "2027-01-01T00:00:00Z",
            }],
            "artifact": {
                "path": "platform.tar.gz",
                "url": format!("http://127.0.0.1:{}/platform.tar.gz", self.port),
                "revision": format!("main@sha1:{}", &digest[..40]),
                "digest": format!("sha256:{digest}"),
                "lastUpdateTime": "2027-01-01T00:00:00Z",
                "size": size,
            },
        }});
        self.hub.merge(source, Part::Status, status).await
    }

    /// Waits until it says that it has applied what the folder holds now.
    pub async fn applied(&self) -> Result<()> {
        let what = format!("{} to have applied the commit", self.kind.manager());
        let ended = eventually(&what, SOON, async || {
            self.server.ensure_alive()?;
            let object = self.hub.get(self.kind.object()).await?.context("its object is there")?;
            let status = &object["status"];
            let done = match self.kind {
                Kind::ArgoCd => {
                    let revision = self.revision()?;
                    status["sync"]["status"] == "Synced" && status["sync"]["revision"] == revision
                }
                Kind::Flux => {
                    let source = id(SOURCES, "GitRepository", "platform").within("flux-system");
                    let source = self.hub.get(source).await?.context("published")?;
                    status["observedGeneration"] == object["metadata"]["generation"]
                        && status["lastAppliedRevision"] == source["status"]["artifact"]["revision"]
                        && has_condition(&object, "Ready", "True")
                }
            };
            Ok(Seen::when(done, || status.to_string()))
        })
        .await;
        ended.with_context(|| self.server.log_tail(30))
    }

    /// Waits until Argo CD says this of the current commit.
    pub async fn says(&self, word: &str) -> Result<()> {
        let revision = self.revision()?;
        let what = format!("{word} at {revision}");
        self.hub
            .wait(self.kind.object(), &what, SOON, |object| {
                let sync = &object["status"]["sync"];
                sync["status"] == word && sync["revision"] == *revision
            })
            .await?;
        Ok(())
    }

    /// As `tools/argocd` makes it of the files, in the form of a commit's.
    fn revision(&self) -> Result<String> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(self.dir.join("queues"))? {
            paths.push(entry?.path());
        }
        paths.sort();
        let mut hash = Sha256::new();
        for path in paths {
            hash.update(path.file_name().context("a file has a name")?.as_encoded_bytes());
            hash.update([0]);
            hash.update(fs::read(&path)?);
            hash.update([0]);
        }
        Ok(hex(&hash.finalize())[..40].to_owned())
    }

    pub fn stop(&self) -> Result<()> {
        self.server.kill()
    }

    pub fn log_tail(&self) -> String {
        self.server.log_tail(60)
    }
}

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        // One that lives on would go on writing into the hub of the other cases.
        let _ = self.server.kill();
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Ends with the runtime.
async fn serve(port: u16, artifact: Arc<Mutex<Vec<u8>>>) -> Result<()> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let answer = move || async move { artifact.lock().unwrap_or_else(PoisonError::into_inner).clone() };
    let router = Router::new().route("/platform.tar.gz", get(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(())
}

async fn install_argo_cd(hub: &Cluster) -> Result<()> {
    for kind in ["application", "appproject"] {
        let file = format!("manifests/crds/{kind}-crd.yaml");
        let crd = tools::module_file("argocd", "github.com/argoproj/argo-cd/v3", &file)?;
        install_crds(hub, &crd).await?;
    }
    hub.apply(
        "
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-cm, namespace: argocd, labels: {app.kubernetes.io/part-of: argocd}}
---
apiVersion: v1
kind: Secret
metadata: {name: argocd-secret, namespace: argocd, labels: {app.kubernetes.io/part-of: argocd}}
stringData: {server.secretkey: of-a-test}
---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: default, namespace: argocd}
spec:
  sourceRepos: ['*']
  destinations: [{namespace: '*', server: '*'}]
  clusterResourceWhitelist: [{group: '*', kind: '*'}]
",
    )
    .await
}

async fn install_flux(hub: &Cluster) -> Result<()> {
    let file = "config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml";
    install_crds(hub, &tools::module_file("flux", "github.com/fluxcd/kustomize-controller", file)?).await?;
    // Those of source-controller, which is not run: kustomize-controller follows all of them.
    for (kind, plural) in [
        ("GitRepository", "gitrepositories"),
        ("OCIRepository", "ocirepositories"),
        ("Bucket", "buckets"),
        ("ExternalArtifact", "externalartifacts"),
    ] {
        let crd = format!(
            "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.source.toolkit.fluxcd.io}}
spec:
  group: source.toolkit.fluxcd.io
  scope: Namespaced
  names: {{kind: {kind}, plural: {plural}, singular: {singular}, listKind: {kind}List}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {{status: {{}}}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {{type: object, x-kubernetes-preserve-unknown-fields: true}}
          status: {{type: object, x-kubernetes-preserve-unknown-fields: true}}
",
            singular = kind.to_lowercase()
        );
        install_crds(hub, &crd).await?;
    }
    Ok(())
}
