//! What is there to be applied is what a real API server's schemas say: kubeconform holds it to them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::chart::{EVERYTHING, Helm};
use crate::support::fleet::Fleet;
use crate::support::process::output;
use crate::support::tools::{kubeconform, prometheus_operators_crds};
use crate::support::wait::{Seen, eventually};

/// Manifests for `kubectl apply -k`.
const KUSTOMIZED: [&str; 3] = ["crds", "hub", "appwrapper"];
/// The kinds that are not Kubernetes' own.
const CRDS: [&str; 3] = ["crds/clusterresourceclaims.yaml", "ocm/crds.yaml", "appwrapper/crd.yaml"];
const KUEUE_CRDS: &str = "kueue-crds";
const SERVED_WITHIN: Duration = Duration::from_mins(1);

pub async fn kubeconform_takes_all_that_is_shipped(fleet: &Fleet) -> Result<()> {
    let program = tokio::task::spawn_blocking(kubeconform).await??;
    let plane = fleet.plane_alone("manifests").await?;
    let dir = fleet.scratch("manifests")?;
    let kubectl = Kubectl { program: fleet.hub.tool("kubectl"), dir: dir.clone() };
    std::fs::write(dir.join("kubeconfig"), plane.kubeconfig("admin", &["system:masters"])?)?;
    let kueue = dir.join("kueue.yaml");
    std::fs::write(&kueue, fleet.hub.manifests(KUEUE_CRDS)?)?;
    let prometheus = dir.join("prometheus.yaml");
    let crds = tokio::task::spawn_blocking(prometheus_operators_crds).await??;
    std::fs::write(&prometheus, crds.join("\n---\n"))?;
    for crds in CRDS.map(deployed).iter().chain([&kueue, &prometheus]) {
        kubectl.run(&["apply", "--server-side", "-f", path(crds)?])?;
        kubectl.run(&["wait", "--for=condition=Established", "--timeout=60s", "-f", path(crds)?])?;
    }

    let mut manifests = shipped()?;
    for folder in KUSTOMIZED {
        let file = dir.join(format!("{folder}.yaml"));
        std::fs::write(&file, kubectl.run(&["kustomize", path(&deployed(folder))?])?)?;
        manifests.push(file);
    }
    let chart = dir.join("chart.yaml");
    std::fs::write(&chart, Helm::new(&dir).await?.template(EVERYTHING)?)?;
    manifests.push(chart);
    for (number, example) in examples()?.into_iter().enumerate() {
        let file = dir.join(format!("example-{number}.yaml"));
        std::fs::write(&file, example)?;
        manifests.push(file);
    }
    let kinds = kinds(&manifests)?;
    ensure!(20 < kinds.len(), "there are more kinds than {kinds:?}");
    let schemas = dir.join("schemas");
    std::fs::create_dir_all(&schemas)?;
    eventually("schemas of all kinds", SERVED_WITHIN, async || {
        let missing = kubectl.write_schemas(&kinds, &schemas)?;
        Ok(Seen::when(missing.is_empty(), || format!("none of {missing:?}")))
    })
    .await?;

    let judge = |files: &[PathBuf]| -> Result<Output> {
        let template = "{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json";
        let location = format!("{}/{template}", schemas.display());
        let mut judge = Command::new(&program);
        judge.args(["-strict", "-summary", "-schema-location", &location]).args(files);
        output(&mut judge, b"")
    };
    let judged = judge(&manifests)?;
    let said = String::from_utf8_lossy(&[judged.stdout, judged.stderr].concat()).into_owned();
    ensure!(judged.status.success() && said.contains("Invalid: 0, Errors: 0, Skipped: 0"), "{said}");

    let deployment = std::fs::read_to_string(deployed("hub/deployment.yaml"))?;
    let claim = "apiVersion: galaxy.kubestellar.io/v1alpha1\nkind: ClusterResourceClaim\nmetadata: {name: c}\n\
                 spec: {clusterName: c, nominalResources: {cpu: \"1\"}, resourceAssignments: []}\n";
    for (text, right, wrong, reason) in [
        (deployment.as_str(), "replicas: 1", "replicaz: 1", "replicaz"),
        (deployment.as_str(), "replicas: 1", "replicas: one", "replicas"),
        (deployment.as_str(), "replicas: 1", "replicas: 1\n  replicas: 2", "replicas"),
        (deployment.as_str(), "selector:", "selectors:", "selector"),
        (claim, "clusterName: c,", "clusterName: 3,", "clusterName"),
        (claim, "clusterName: c,", "", "clusterName"),
        (claim, "clusterName: c,", "clusterName: c, cluster: c,", "cluster"),
    ] {
        let changed = text.replacen(right, wrong, 1);
        ensure!(changed != text, "no `{right}` in\n{text}");
        let file = dir.join("wrong.yaml");
        std::fs::write(&file, &changed)?;
        let judged = judge(&[file])?;
        let said = String::from_utf8_lossy(&judged.stdout);
        ensure!(judged.status.code() == Some(1) && said.contains(reason), "`{wrong}` is taken: {said}");
    }
    Ok(())
}

struct Kubectl {
    program: PathBuf,
    /// Its home, with a kubeconfig.
    dir: PathBuf,
}

impl Kubectl {
    fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut kubectl = Command::new(&self.program);
        kubectl.args(arguments).env("KUBECONFIG", self.dir.join("kubeconfig")).env("HOME", &self.dir);
        let ran = output(&mut kubectl, b"")?;
        ensure!(ran.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        Ok(String::from_utf8(ran.stdout)?)
    }

    fn raw(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.run(&["get", "--raw", path])?)?)
    }

    /// A schema of each kind, as the server's documents have it but for unknown fields, which are refused. The kinds that
    /// it does not serve yet.
    fn write_schemas<'k>(
        &self,
        kinds: &'k BTreeSet<(String, String)>,
        to: &Path,
    ) -> Result<Vec<&'k (String, String)>> {
        let mut missing: Vec<_> = kinds.iter().collect();
        let served: BTreeSet<&str> = kinds.iter().map(|(version, _)| version.as_str()).collect();
        let index = self.raw("/openapi/v3")?;
        for api_version in served {
            let place = if api_version.contains('/') { "apis/" } else { "api/" };
            let Some(url) = index["paths"][format!("{place}{api_version}")]["serverRelativeURL"].as_str()
            else {
                continue;
            };
            let mut schemas = self.raw(url)?["components"]["schemas"].take();
            refuse_unknown(&mut schemas);
            let named = schemas.as_object().into_iter().flatten();
            for (name, schema) in named {
                for kind in schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
                    let text = |key: &str| kind[key].as_str().unwrap_or_default();
                    let (group, version, kind) = (text("group"), text("version"), text("kind"));
                    let full =
                        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
                    let Some(at) = missing.iter().position(|one| **one == (full.clone(), kind.to_owned()))
                    else {
                        continue;
                    };
                    let whole = json!({
                        "$ref": format!("#/components/schemas/{name}"), "components": {"schemas": schemas},
                    });
                    // kubeconform has the version for the group of kinds that have none.
                    let group = if group.is_empty() { version } else { group };
                    let file = format!("{group}_{version}_{}.json", kind.to_lowercase());
                    std::fs::write(to.join(file), whole.to_string())?;
                    missing.remove(at);
                }
            }
        }
        Ok(missing)
    }
}

/// As the API server does where it is asked to validate strictly.
fn refuse_unknown(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let open = fields.contains_key("additionalProperties")
                || fields.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(true));
            // `properties` is also the name of a field, of the schema of schemas.
            if fields.get("properties").is_some_and(Value::is_object) && fields.contains_key("type") && !open
            {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
            fields.values_mut().for_each(refuse_unknown);
        }
        Value::Array(items) => items.iter_mut().for_each(refuse_unknown),
        _ => {}
    }
}

fn deployed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is text")
}

/// Every manifest in `deploy`.
fn shipped() -> Result<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![deployed("")]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let is_yaml = path.extension().is_some_and(|extension| extension == "yaml");
            // Those are for kubectl, which is asked to read them.
            let is_kustomization = path.ends_with("kustomization.yaml");
            // Helm renders it below.
            if path.ends_with("deploy/chart") {
                continue;
            }
            // Other programs' own kinds: the cases of `gitops.rs` give these to their programs.
            let is_others = path.ends_with("gitops/argocd.yaml") || path.ends_with("gitops/flux.yaml");
            if path.is_dir() {
                open.push(path);
            } else if is_yaml && !is_kustomization && !is_others {
                found.push(path);
            }
        }
    }
    ensure!(15 < found.len(), "there is more in deploy than {found:?}");
    Ok(found)
}

/// What readers are shown to apply.
fn examples() -> Result<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![root.join("README.md")];
    for entry in std::fs::read_dir(root.join("docs"))? {
        pages.push(entry?.path());
    }
    let mut found = Vec::new();
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = std::fs::read_to_string(page)?;
        let blocks = text.split("\n```yaml\n").skip(1).filter_map(|block| block.split("\n```").next());
        found.extend(blocks.filter(|block| block.contains("apiVersion: ")).map(str::to_owned));
    }
    ensure!(!found.is_empty(), "the documents show manifests");
    Ok(found)
}

/// `apiVersion` and `kind` of all that is in the files.
fn kinds(files: &[PathBuf]) -> Result<BTreeSet<(String, String)>> {
    let mut kinds = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(file)?;
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&text).with_context(|| file.display().to_string())?;
        for document in documents.iter().filter(|document| !document.is_null()) {
            let text =
                |key: &str| document[key].as_str().with_context(|| format!("{key}: {}", file.display()));
            kinds.insert((text("apiVersion")?.to_owned(), text("kind")?.to_owned()));
        }
    }
    Ok(kinds)
}
