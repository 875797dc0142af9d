//! One running cluster, as a case sees it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::discovery::{self, ApiCapabilities};
use kube::{Api, Client, Config};
use serde_json::Value;

use super::audit::{self, Mark, Request};
use super::control_plane::ControlPlane;
use super::process::Supervisor;
use super::tools::Tools;
use super::wait::{Seen, eventually};

pub struct Cluster {
    pub name: String,
    pub kubeconfig_path: PathBuf,
    /// Admin's, with everything inline; `kubeconfig_for` makes one for another user.
    pub kubeconfig: String,
    pub client: Client,
    pub plane: ControlPlane,
    pub(super) dir: PathBuf,
    supervisor: Arc<Supervisor>,
    tools: Arc<Tools>,
    kinds: Mutex<HashMap<GroupVersionKind, (ApiResource, ApiCapabilities)>>,
}

/// What names one object.
#[derive(Clone, Copy, Debug)]
pub struct Id<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub namespace: Option<&'a str>,
    pub name: &'a str,
}

pub fn id<'a>(api_version: &'a str, kind: &'a str, name: &'a str) -> Id<'a> {
    Id { api_version, kind, namespace: None, name }
}

impl<'a> Id<'a> {
    pub fn within(self, namespace: &'a str) -> Self {
        Self { namespace: Some(namespace), ..self }
    }
}

impl std::fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ", self.kind)?;
        self.namespace.map_or(Ok(()), |namespace| write!(f, "{namespace}/"))?;
        f.write_str(self.name)
    }
}

impl Cluster {
    pub async fn start(supervisor: &Arc<Supervisor>, tools: &Arc<Tools>, name: &str) -> Result<Self> {
        let dir = supervisor.dir().join(name);
        let plane = ControlPlane::start(supervisor, tools, &dir).await?;
        let kubeconfig = plane.kubeconfig("admin", &["system:masters"])?;
        let kubeconfig_path = supervisor.dir().join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig_path, &kubeconfig)?;
        Ok(Self {
            name: name.to_owned(),
            client: client_of(&kubeconfig).await?,
            kubeconfig_path,
            kubeconfig,
            plane,
            dir,
            supervisor: Arc::clone(supervisor),
            tools: Arc::clone(tools),
            kinds: Mutex::default(),
        })
    }

    /// A kubeconfig for a user of one's own, who may do what RBAC grants; at most one group. `&["system:masters"]`
    /// makes an administrator whose requests the audit log still tells apart.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<String> {
        self.plane.kubeconfig(user, groups)
    }

    /// Server-side apply of every document, in order, as field manager `fedq-test`.
    pub async fn apply(&self, yaml: &str) -> Result<()> {
        self.apply_as("fedq-test", yaml).await
    }

    pub async fn apply_as(&self, manager: &str, yaml: &str) -> Result<()> {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(yaml).with_context(|| format!("this is no YAML:\n{yaml}"))?;
        for document in documents {
            if !document.is_null() {
                self.apply_object(manager, document).await?;
            }
        }
        Ok(())
    }

    pub async fn apply_object(&self, manager: &str, object: Value) -> Result<DynamicObject> {
        let object: DynamicObject = serde_json::from_value(object)?;
        let types = object.types.as_ref().context("an object without apiVersion and kind")?;
        let name = object.metadata.name.as_deref().context("an object without a name")?;
        let namespace = object.metadata.namespace.as_deref();
        let this = Id { api_version: &types.api_version, kind: &types.kind, namespace, name };
        let api = self.api(this).await?;
        let params = PatchParams::apply(manager).force();
        api.patch(name, &params, &Patch::Apply(&object))
            .await
            .with_context(|| format!("apply {this} to {}", self.name))
    }

    /// The object as JSON; `None` if there is no such object.
    pub async fn get(&self, id: Id<'_>) -> Result<Option<Value>> {
        let found = self.api(id).await?.get_opt(id.name).await;
        let found = found.with_context(|| format!("get {id} from {}", self.name))?;
        Ok(found.map(serde_json::to_value).transpose()?)
    }

    /// All objects of a kind, of one namespace or of all.
    pub async fn list(&self, api_version: &str, kind: &str, namespace: Option<&str>) -> Result<Vec<Value>> {
        let (resource, capabilities) = self.kind(api_version, kind).await?;
        let mut api = Api::<DynamicObject>::dynamic(self.client.clone(), &resource, &capabilities.scope);
        if let Some(namespace) = namespace {
            api = api.constrain(namespace);
        }
        let mut tries = 0;
        let items = loop {
            match api.list(&kube::api::ListParams::default()).await {
                // A kind that has just been installed: the server fills its cache.
                Err(kube::Error::Api(status)) if status.code == 429 && tries < 40 => tries += 1,
                listed => break listed.with_context(|| format!("list {kind}"))?,
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        };
        items.items.iter().map(|item| Ok(serde_json::to_value(item)?)).collect()
    }

    /// A JSON merge patch, of the object or of its status.
    pub async fn merge(&self, id: Id<'_>, part: Part, patch: Value) -> Result<()> {
        let api = self.api(id).await?;
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        match part {
            Part::Whole => api.patch(id.name, &params, &patch).await,
            Part::Status => api.patch_status(id.name, &params, &patch).await,
        }
        .with_context(|| format!("patch {id} on {}", self.name))?;
        Ok(())
    }

    pub async fn delete(&self, id: Id<'_>) -> Result<()> {
        match self.api(id).await?.delete(id.name, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            result => result.map(|_| ()).with_context(|| format!("delete {id} from {}", self.name)),
        }
    }

    /// Waits until the object is there and the condition is true of it.
    pub async fn wait(
        &self,
        id: Id<'_>,
        what: &str,
        limit: Duration,
        condition: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        eventually(&format!("{id} on {}: {what}", self.name), limit, async || {
            Ok(match self.get(id).await? {
                Some(object) if condition(&object) => Seen::Done(object),
                Some(mut object) => {
                    if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
                        metadata.remove("managedFields");
                    }
                    Seen::Still(format!("{object:#}"))
                }
                None => Seen::Still("no such object".to_owned()),
            })
        })
        .await
    }

    pub async fn wait_gone(&self, id: Id<'_>, limit: Duration) -> Result<()> {
        eventually(&format!("{id} on {} to be gone", self.name), limit, async || {
            Ok(match self.get(id).await? {
                None => Seen::Done(()),
                Some(object) => Seen::Still(object["metadata"].to_string()),
            })
        })
        .await
    }

    /// Runs kubectl against this cluster as its administrator.
    pub fn tool(&self, name: &str) -> PathBuf {
        self.tools.program(name)
    }

    /// As [`Tools::manifests`].
    pub fn manifests(&self, kind: &str) -> Result<String> {
        self.tools.manifests(kind)
    }

    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_with(&[], args)
    }

    /// The same with variables, such as the one that names an editor.
    pub fn kubectl_with(&self, env: &[(&str, &str)], args: &[&str]) -> Result<String> {
        let mut command = Command::new(self.tools.program("kubectl"));
        command.args(args).env("KUBECONFIG", &self.kubeconfig_path).env("HOME", &self.dir);
        let out = self.supervisor.output(command.envs(env.iter().copied()), b"")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(
            out.status.success(),
            "kubectl {}: {}{}",
            args.join(" "),
            text(&out.stderr),
            text(&out.stdout)
        );
        Ok(text(&out.stdout))
    }

    /// The end of the audit log now.
    pub fn mark(&self) -> Result<Mark> {
        audit::end(&self.audit_log())
    }

    /// Everything logged after the mark. The last answers may be missing for a moment; `writes_since` waits for them.
    pub fn requests_since(&self, mark: Mark) -> Result<Vec<Request>> {
        audit::since(&self.audit_log(), mark)
    }

    /// What somebody (a Kubernetes user name, or the start of a user agent) wrote since the mark.
    pub async fn writes_since(&self, mark: Mark, who: &str) -> Result<Vec<Request>> {
        self.flush_audit().await?;
        let mut requests = self.requests_since(mark)?;
        requests.retain(|request| {
            request.is_write() && (request.user == who || request.user_agent.starts_with(who))
        });
        Ok(requests)
    }

    /// A request is logged right after its answer is sent. So ask something of our own and wait until the log has it:
    /// what was answered before is there by then.
    async fn flush_audit(&self) -> Result<()> {
        let mark = self.mark()?;
        self.client
            .apiserver_version()
            .await
            .with_context(|| format!("ask {} for its version", self.name))?;
        eventually("the audit log to hold our own request", Duration::from_secs(10), async || {
            let requests = self.requests_since(mark)?;
            let ours = requests.iter().any(|request| request.user == "admin" && request.uri == "/version");
            Ok(Seen::when(ours, || format!("{} other requests", requests.len())))
        })
        .await
    }

    /// What one reads when a case fails.
    pub fn log_path(&self, component: &str) -> PathBuf {
        self.dir.join(format!("{component}.log"))
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn audit_log(&self) -> PathBuf {
        self.log_path("audit")
    }

    pub async fn api(&self, id: Id<'_>) -> Result<Api<DynamicObject>> {
        let (resource, capabilities) = self.kind(id.api_version, id.kind).await?;
        // `constrain` does nothing to kinds without a namespace.
        Ok(Api::dynamic(self.client.clone(), &resource, &capabilities.scope)
            .constrain(id.namespace.unwrap_or("default")))
    }

    pub async fn kind(&self, api_version: &str, kind: &str) -> Result<(ApiResource, ApiCapabilities)> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let known = self.kinds.lock().unwrap_or_else(PoisonError::into_inner).get(&gvk).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let found = discovery::pinned_kind(&self.client, &gvk)
            .await
            .with_context(|| format!("find the kind {kind} of {api_version} on {}", self.name))?;
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).insert(gvk, found.clone());
        Ok(found)
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Part {
    Whole,
    Status,
}

pub async fn client_of(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    config.connect_timeout = Some(Duration::from_secs(5));
    // Retries would hide from a case what the server answered.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Whether the object carries the condition with this status.
pub fn has_condition(object: &Value, kind: &str, status: &str) -> bool {
    object["status"]["conditions"]
        .as_array()
        .is_some_and(|all| all.iter().any(|one| one["type"] == kind && one["status"] == status))
}
