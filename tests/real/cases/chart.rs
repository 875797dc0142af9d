//! The Helm chart, as Helm itself renders, installs, upgrades and removes it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::rights::{NAMESPACE, kubeconfig_of};
use super::stage::{CLAIM, CLAIMS, SOON};
use crate::rights::{Use, granted};
use crate::support::cluster::{Cluster, id};
use crate::support::daemon::Home;
use crate::support::fleet::Fleet;
use crate::support::process::{free_ports, output};
use crate::support::tools::{helm, prometheus_operators_crds};
use crate::support::wait::{Seen, eventually};

/// Nobody can change it of a volume that is there.
const LOCAL: &str = "persistence.storageClassName=local";
/// All that can be turned on.
pub const EVERYTHING: &[&str] = &[
    "enablePrometheus=true",
    "enableMutatingAdmissionPolicy=true",
    "metrics.grafanaDashboard.enabled=true",
    "controllerManager.podDisruptionBudget.enabled=true",
    "networkPolicy.webhookFrom[0].ipBlock.cidr=10.1.0.0/16",
    "controllerManager.manager.env[0].name=FEDQ_LOG_LEVEL",
    "controllerManager.manager.env[0].value=debug",
    "controllerManager.imagePullSecrets[0].name=registry",
    "controllerManager.nodeSelector.disk=local",
    "controllerManager.tolerations[0].operator=Exists",
    LOCAL,
    "service.annotations.team=platform",
    "service.type=NodePort",
    "managerConfig.quota.mergeWindow=2s",
];
/// All that can be turned off.
const NOTHING: [&str; 12] = [
    "crds.enabled=false",
    "rbac.tasks=false",
    "rbac.appWrappers=false",
    "rbac.placements=false",
    "rbac.multiKueue=false",
    "rbac.clusterProfiles=false",
    "rbac.impersonation=false",
    "rbac.roles=false",
    "persistence.enabled=false",
    "networkPolicy.enabled=false",
    "metrics.prometheusRule.enabled=false",
    "managerConfig.webhook.address=disabled",
];
/// What each value takes away: verbs, and resources as the audit log spells them.
const RIGHTS: [(&str, &[&str]); 5] = [
    ("rbac.tasks=false", &["jobs.batch", "jobsets.jobset.x-k8s.io"]),
    ("rbac.appWrappers=false", &["appwrappers.workload.codeflare.dev"]),
    ("rbac.placements=false", &["cluster.open-cluster-management.io", "leases.coordination.k8s.io"]),
    ("rbac.clusterProfiles=false", &["clusterprofiles.multicluster.x-k8s.io"]),
    ("rbac.impersonation=false", &["impersonate"]),
];
/// Helm takes itself for a Kubernetes 1.20 where it has no server to ask.
const KUBERNETES: &str = "--kube-version=1.36.0";
const RELEASE: &str = "fedq";
const SYSTEM: &str = "fedq-system";
const KEPT: [&str; 2] = ["CustomResourceDefinition", "PersistentVolumeClaim"];

/// What an object is known by: kind, namespace, name.
type Key = (String, String, String);

pub struct Helm {
    program: PathBuf,
    /// Its home, with a kubeconfig where it is to reach a server.
    dir: PathBuf,
}

impl Helm {
    pub async fn new(dir: &Path) -> Result<Self> {
        Ok(Self { program: tokio::task::spawn_blocking(helm).await??, dir: dir.to_owned() })
    }

    fn output(&self, arguments: &[&str], values: &[&str]) -> Result<Output> {
        let mut helm = Command::new(&self.program);
        helm.args(arguments).args(values.iter().flat_map(|value| ["--set", value]));
        helm.env("KUBECONFIG", self.dir.join("kubeconfig")).env("HOME", &self.dir);
        for folder in ["CACHE", "CONFIG", "DATA"] {
            helm.env(format!("HELM_{folder}_HOME"), self.dir.join(folder));
        }
        output(&mut helm, b"")
    }

    fn run(&self, arguments: &[&str], values: &[&str]) -> Result<String> {
        let ran = self.output(arguments, values)?;
        let said = String::from_utf8_lossy(&ran.stderr);
        ensure!(ran.status.success(), "helm {arguments:?} {values:?}: {said}");
        Ok(String::from_utf8(ran.stdout)?)
    }

    /// What the chart renders with these values.
    pub fn template(&self, values: &[&str]) -> Result<String> {
        self.run(&["template", RELEASE, &chart(), "-n", SYSTEM, KUBERNETES], values)
    }

    /// Why it does not.
    fn refuses(&self, values: &[&str]) -> Result<String> {
        let ran = self.output(&["template", RELEASE, &chart(), "-n", SYSTEM, KUBERNETES], values)?;
        ensure!(!ran.status.success(), "{values:?} is taken");
        Ok(String::from_utf8_lossy(&ran.stderr).into_owned())
    }
}

fn chart() -> String {
    format!("{}/deploy/chart", env!("CARGO_MANIFEST_DIR"))
}

fn shipped(file: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

fn objects(yaml: &str) -> Result<BTreeMap<Key, Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml)?;
    let mut objects = BTreeMap::new();
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        let key = key(&document);
        ensure!(objects.insert(key.clone(), document).is_none(), "{key:?} is there twice");
    }
    Ok(objects)
}

fn key(object: &Value) -> Key {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&object["kind"]), text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
}

fn names(kind: &str, objects: &BTreeMap<Key, Value>) -> Vec<String> {
    objects.keys().filter(|key| key.0 == kind).map(|key| key.2.clone()).collect()
}

/// The configuration in its ConfigMap.
fn config(objects: &BTreeMap<Key, Value>) -> Result<(String, Value)> {
    let mut maps = objects.iter().filter(|(key, _)| key.0 == "ConfigMap" && key.2 == "fedqd");
    let text = maps.find_map(|(_, map)| map["data"]["fedqd.yaml"].as_str());
    let text = text.context("a ConfigMap fedqd")?.to_owned();
    let read = serde_saphyr::from_str(&text)?;
    Ok((text, read))
}

/// fedqd itself reads it, and says what is then in effect.
fn checked(text: &str, dir: &Path) -> Result<Value> {
    let file = dir.join("checked.yaml");
    std::fs::write(&file, text)?;
    let mut fedqd = Command::new(env!("CARGO_BIN_EXE_fedqd"));
    let ran = output(fedqd.arg("--check-config").arg("--config").arg(&file).env_clear(), b"")?;
    ensure!(ran.status.success(), "{}\n{text}", String::from_utf8_lossy(&ran.stderr));
    Ok(serde_saphyr::from_str(&String::from_utf8(ran.stdout)?)?)
}

/// The same objects look the same however they were made: without Helm's own marks, and without defaults that are spelt out.
fn plain(object: &mut Value) -> Result<()> {
    let metadata = object["metadata"].as_object_mut().context("metadata")?;
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        for label in ["managed-by", "instance", "version"] {
            labels.remove(&format!("app.kubernetes.io/{label}"));
        }
        labels.remove("helm.sh/chart");
    }
    if metadata.get("annotations") == Some(&json!({"helm.sh/resource-policy": "keep"})) {
        metadata.remove("annotations");
    }
    if object["kind"] == "ConfigMap" {
        let text = object["data"]["fedqd.yaml"].as_str().context("a configuration")?;
        object["data"]["fedqd.yaml"] = serde_saphyr::from_str(text)?;
    }
    if object["kind"] == "Service" {
        let spec = object["spec"].as_object_mut().context("a spec")?;
        spec.retain(|field, value| field != "type" || value != "ClusterIP");
    }
    if object["kind"] == "Deployment" {
        let template = &mut object["spec"]["template"];
        template["metadata"].as_object_mut().context("metadata")?.remove("annotations");
        let container = template["spec"]["containers"][0].as_object_mut().context("a container")?;
        container.retain(|field, value| field != "imagePullPolicy" || value != "IfNotPresent");
    }
    Ok(())
}

pub async fn what_it_renders_is_what_kubectl_applies(fleet: &Fleet) -> Result<()> {
    let dir = fleet.scratch("what_it_renders_is_what_kubectl_applies")?;
    let helm = Helm::new(&dir).await?;
    helm.run(&["lint", "--strict", KUBERNETES, &chart()], &[])?;
    helm.run(&["lint", "--strict", KUBERNETES, &chart()], EVERYTHING)?;
    let mut rendered = objects(&helm.template(&[])?)?;
    let hub = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/hub");
    let mut applied = objects(&fleet.hub.kubectl(&["kustomize", hub.to_str().context("text")?])?)?;
    // It has to be there before a release is.
    let namespace = ("Namespace".to_owned(), String::new(), SYSTEM.to_owned());
    ensure!(applied.remove(&namespace).is_some(), "{:?}", applied.keys());
    for object in rendered.values_mut().chain(applied.values_mut()) {
        plain(object)?;
    }
    let (here, there): (BTreeSet<_>, BTreeSet<_>) = (rendered.keys().collect(), applied.keys().collect());
    ensure!(here == there, "only one has {:?}", here.symmetric_difference(&there));
    for (key, object) in &rendered {
        let other = &applied[key];
        ensure!(object == other, "{key:?}, by Helm\n{object:#}\nand by kubectl\n{other:#}");
    }

    let with_policy = objects(&helm.template(&["enableMutatingAdmissionPolicy=true"])?)?;
    let mut policies = objects(&shipped("hub/dispatcher.yaml")?)?;
    ensure!(!policies.is_empty(), "the dispatcher has objects");
    for (key, policy) in &mut policies {
        let mut rendered = with_policy.get(key).cloned().with_context(|| format!("no {key:?}"))?;
        plain(&mut rendered)?;
        policy["metadata"]["labels"] = json!({"app.kubernetes.io/part-of": "fedq"});
        ensure!(rendered == *policy, "{rendered:#}\n{policy:#}");
    }
    ensure!(config(&with_policy)?.1["multikueue"]["dispatcher"] == true, "the policy is for the dispatcher");
    Ok(())
}

pub async fn each_value_does_what_it_says_and_a_misspelt_one_is_refused(fleet: &Fleet) -> Result<()> {
    let dir = fleet.scratch("each_value_does_what_it_says_and_a_misspelt_one_is_refused")?;
    let helm = Helm::new(&dir).await?;
    for (value, name) in [
        ("enablePrometheu=true", "enablePrometheu"),
        ("controllerManager.manager.imag.tag=x", "imag"),
        ("controllerManager.replicas=2", "replicas"),
        ("rbac.task=false", "task"),
        ("rbac.tasks=maybe", "tasks"),
        ("persistence.accessModes[0]=ReadWriteMany", "accessModes"),
        ("managerConfig.qouta.mergeWindow=1s", "qouta"),
        ("managerConfig.quota.mergeWindo=1s", "mergeWindo"),
        ("managerConfig.api.page=perhaps", "page"),
        ("service.port=0", "port"),
    ] {
        let said = helm.refuses(&[value])?;
        ensure!(said.contains(name), "{value}: {said}");
    }

    let all = helm.template(&[])?;
    let (whole, mut left) = (granted(&all, "fedqd")?, BTreeSet::new());
    for (value, groups) in RIGHTS {
        let fewer = granted(&helm.template(&[value])?, "fedqd")?;
        let gone: BTreeSet<&Use> = whole.difference(&fewer).collect();
        let is_meant = |one: &&&Use| groups.iter().any(|group| one.0 == *group || one.1.contains(group));
        ensure!(!gone.is_empty() && gone.iter().all(|one| is_meant(&one)), "{value} takes {gone:?}");
        ensure!(!fewer.iter().any(|one| is_meant(&&one)), "{value} leaves {fewer:?}");
        ensure!(fewer.is_subset(&whole), "{value} gives more");
        left.insert(fewer.len());
    }
    ensure!(1 < left.len(), "each takes something else");
    let without = objects(&helm.template(&["rbac.multiKueue=false"])?)?;
    ensure!(!without.keys().any(|key| key.1 == "kueue-system"), "{:?}", without.keys());

    let everything = objects(&helm.template(EVERYTHING)?)?;
    has_everything(&everything, &dir)?;
    let least = helm.template(&NOTHING)?;
    let nothing = objects(&least)?;
    let kinds: BTreeSet<&str> = nothing.keys().map(|key| key.0.as_str()).collect();
    let needed = [
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "Deployment",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
    ];
    ensure!(kinds == BTreeSet::from(needed), "{kinds:?}");
    ensure!(names("Service", &nothing) == ["fedqd", "fedqd-metrics"], "the webhook has none");
    checked(&config(&nothing)?.0, &dir)?;

    let elsewhere = ["template", RELEASE, &chart(), "-n", "quota", KUBERNETES];
    let elsewhere = helm.run(&elsewhere, &["managerConfig.multikueue.kueueNamespace=kueue"])?;
    ensure!(!elsewhere.contains(SYSTEM) && !elsewhere.contains("kueue-system"), "{elsewhere}");
    let read = checked(&config(&objects(&elsewhere)?)?.0, &dir)?;
    ensure!(read["namespace"] == "quota" && read["multikueue"]["kueueNamespace"] == "kueue", "{read}");
    Ok(())
}

fn has_everything(rendered: &BTreeMap<Key, Value>, dir: &Path) -> Result<()> {
    let one = |kind: &str, name: &str| {
        let key = (kind.to_owned(), SYSTEM.to_owned(), name.to_owned());
        rendered.get(&key).with_context(|| format!("no {key:?}"))
    };
    let rules: Value = serde_saphyr::from_str(&shipped("prometheus/rules.yml")?)?;
    ensure!(one("PrometheusRule", "fedqd")?["spec"] == rules, "the rules are those of the file");
    let dashboard = one("ConfigMap", "fedq-dashboard")?;
    ensure!(dashboard["metadata"]["labels"]["grafana_dashboard"] == "1", "{}", dashboard["metadata"]);
    let text = dashboard["data"]["fedq.json"].as_str().context("a dashboard")?;
    let file: Value = serde_json::from_str(&shipped("prometheus/dashboard.json")?)?;
    ensure!(serde_json::from_str::<Value>(text)? == file, "the dashboard is that of the file");
    let monitor = one("ServiceMonitor", "fedqd")?;
    let selects = monitor["spec"]["selector"]["matchLabels"].as_object().context("labels")?;
    let metrics = one("Service", "fedqd-metrics")?;
    let labels = metrics["metadata"]["labels"].as_object().context("labels")?;
    ensure!(selects.iter().all(|(key, value)| labels.get(key) == Some(value)), "{selects:?} {labels:?}");
    let api = one("Service", "fedqd")?;
    ensure!(api["spec"]["type"] == "NodePort" && metrics["spec"]["type"] == "ClusterIP", "{metrics:#}");
    ensure!(
        !api["spec"]["ports"].to_string().contains("metrics"),
        "whoever reaches it is not asked: {api:#}"
    );
    let deployment = one("Deployment", "fedqd")?;
    let pod = &deployment["spec"]["template"];
    for (kind, pointer) in [
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
        ("Service", "/spec/selector"),
    ] {
        let selects =
            one(kind, "fedqd")?.pointer(pointer).and_then(Value::as_object).context(pointer.to_owned())?;
        let labels = pod["metadata"]["labels"].as_object().context("labels")?;
        ensure!(selects.iter().all(|(key, value)| labels.get(key) == Some(value)), "{kind} selects nothing");
    }
    let ingress = one("NetworkPolicy", "fedqd")?["spec"]["ingress"].to_string();
    ensure!(ingress.contains(r#"[{"ipBlock":{"cidr":"10.1.0.0/16"}}]"#), "{ingress}");
    ensure!(ingress.matches("9443").count() == 1, "nobody else reaches the webhook: {ingress}");
    let spec = pod["spec"].to_string();
    for part in [r#""disk":"local""#, r#""operator":"Exists""#, r#""name":"registry""#, "FEDQ_LOG_LEVEL"] {
        ensure!(spec.contains(part), "no {part}: {spec}");
    }
    let (text, config) = config(rendered)?;
    ensure!(config["quota"]["mergeWindow"] == "2s", "{text}");
    let effective = checked(&text, dir)?;
    ensure!(effective["quota"]["mergeWindow"] == "2s", "{effective}");
    ensure!(effective["store"]["path"] == "/var/lib/fedq/fedq.db", "what a pod needs stays: {effective}");
    Ok(())
}

pub async fn helm_installs_upgrades_rolls_back_and_removes_it(fleet: &Fleet) -> Result<()> {
    let case = "helm_installs_upgrades_rolls_back_and_removes_it";
    let hub = fleet.with_kueues_kinds("chart").await?;
    let dir = fleet.scratch(case)?;
    std::fs::write(dir.join("kubeconfig"), hub.kubeconfig_for("installer", &["system:masters"])?)?;
    let helm = Helm::new(&dir).await?;
    for crd in tokio::task::spawn_blocking(prometheus_operators_crds).await?? {
        hub.apply(&crd).await?;
        let name = serde_saphyr::from_str::<Value>(&crd)?["metadata"]["name"].clone();
        let name = format!("crd/{}", name.as_str().context("a name")?);
        hub.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", &name])?;
    }
    hub.apply(NAMESPACE).await?;
    hub.apply("{apiVersion: v1, kind: Namespace, metadata: {name: kueue-system}}").await?;

    let install = ["install", RELEASE, &chart(), "-n", SYSTEM];
    let told = helm.run(&install, EVERYTHING)?;
    ensure!(told.contains("rollout status deployment/fedqd"), "{told}");
    let rendered = objects(&helm.template(EVERYTHING)?)?;
    let there = ours(&hub)?;
    let expected: BTreeSet<Key> = rendered.keys().cloned().collect();
    ensure!(there == expected, "{:?}", there.symmetric_difference(&expected));
    runs_as_installed(fleet, &hub, case).await?;

    // What fedqd has put into an object of the chart, and what people have made, outlives what comes.
    let webhook = id("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "fedq");
    let authority = async || -> Result<Value> {
        let object = hub.get(webhook).await?.context("the webhook's configuration")?;
        Ok(object["webhooks"][0]["clientConfig"]["caBundle"].clone())
    };
    let bundle = authority().await?;
    ensure!(bundle.is_string(), "fedqd has put its authority there: {bundle}");
    let claim = "{apiVersion: galaxy.kubestellar.io/v1alpha1, kind: ClusterResourceClaim, metadata: {name: one-resource-claim},\
                 spec: {clusterName: one, nominalResources: {cpu: '1'}, resourceAssignments: []}}";
    // Its webhook is not there, and lets it pass.
    hub.apply(claim).await?;
    let claimed = |object: &Value| object["spec"]["clusterName"] == "one";

    let wrong =
        helm.output(&["upgrade", RELEASE, &chart(), "-n", SYSTEM], &["managerConfig.qouta.mergeWindow=1s"])?;
    ensure!(!wrong.status.success(), "a misspelt value is taken");
    let deployment = id("apps/v1", "Deployment", "fedqd").within(SYSTEM);
    let sum = async || -> Result<Value> {
        let object = hub.get(deployment).await?.context("the Deployment")?;
        Ok(object["spec"]["template"]["metadata"]["annotations"]["checksum/config"].clone())
    };
    let (before, sum_before) = (live_config(&hub).await?, sum().await?);
    helm.run(&["upgrade", RELEASE, &chart(), "-n", SYSTEM], &[LOCAL, "managerConfig.quota.mergeWindow=3s"])?;
    let (after, sum_after) = (live_config(&hub).await?, sum().await?);
    ensure!(after["quota"]["mergeWindow"] == "3s" && sum_before != sum_after, "{after} {sum_after}");
    ensure!(authority().await? == bundle, "an upgrade takes the authority away");
    let monitor = id("monitoring.coreos.com/v1", "ServiceMonitor", "fedqd").within(SYSTEM);
    ensure!(hub.get(monitor).await?.is_none(), "what is not asked for any more goes");
    helm.run(&["rollback", RELEASE, "1", "-n", SYSTEM], &[])?;
    ensure!(live_config(&hub).await? == before && sum().await? == sum_before, "it is as it was");
    ensure!(hub.get(monitor).await?.is_some() && authority().await? == bundle, "all of it");

    helm.run(&["uninstall", RELEASE, "-n", SYSTEM, "--wait"], &[])?;
    let kinds: Vec<String> = ours(&hub)?.into_iter().map(|key| key.0).collect();
    ensure!(kinds == KEPT, "{kinds:?}");
    hub.wait(id(CLAIMS, CLAIM, "one-resource-claim"), "kept", SOON, claimed).await?;

    helm.run(&install, &[LOCAL, "crds.keep=false", "persistence.keep=false"])?;
    hub.wait(id(CLAIMS, CLAIM, "one-resource-claim"), "found again", SOON, claimed).await?;
    helm.run(&["uninstall", RELEASE, "-n", SYSTEM], &[])?;
    eventually("nothing of ours", SOON, async || {
        let left = ours(&hub)?;
        Ok(Seen::when(left.is_empty(), || format!("{left:?}")))
    })
    .await?;

    taken_over(&hub, &helm)
}

/// What kubectl applied becomes a release, in place.
fn taken_over(hub: &Cluster, helm: &Helm) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/hub");
    hub.kubectl(&["apply", "-k", folder.to_str().context("text")?])?;
    let uid = || {
        let path = "jsonpath={.metadata.uid}";
        hub.kubectl(&["get", "deployment", "fedqd", "-n", SYSTEM, "-o", path])
    };
    let before = uid()?;
    let refused = helm.output(&["install", RELEASE, &chart(), "-n", SYSTEM], &[])?;
    ensure!(!refused.status.success(), "Helm takes over what is not its own");
    helm.run(&["install", RELEASE, &chart(), "-n", SYSTEM, "--take-ownership"], &[])?;
    ensure!(uid()? == before, "the Deployment is another one");
    helm.run(&["uninstall", RELEASE, "-n", SYSTEM], &[])?;
    Ok(())
}

/// With the account, the rights and the configuration that the chart has made.
async fn runs_as_installed(fleet: &Fleet, hub: &Cluster, case: &str) -> Result<()> {
    let home = Home::new(fleet, case)?;
    let kubeconfig = home.file("fedqd.kubeconfig", &kubeconfig_of(hub, "fedqd")?)?;
    let mut config = live_config(hub).await?;
    checked(&config.to_string(), &home.dir)?;
    let ports: [u16; 3] = free_ports()?;
    let mut ports = ports.into_iter().filter(|port| *port != home.port);
    let mut address = || format!("127.0.0.1:{}", ports.next().unwrap_or_default());
    config["hub"]["kubeconfig"] = json!(kubeconfig);
    config["store"]["path"] = json!("data/fedq.db");
    config["api"]["address"] = json!(address());
    config["webhook"]["address"] = json!(address());
    config["metrics"]["address"] = json!(format!("127.0.0.1:{}", home.port));
    config["clusters"]["allowLoopback"] = json!(true);
    let mark = hub.mark()?;
    let daemon = home.start("http", &config.to_string()).await?;
    let webhook = id("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "fedq");
    let signed = |object: &Value| object["webhooks"][0]["clientConfig"]["caBundle"].is_string();
    hub.wait(webhook, "fedqd's authority", SOON, signed).await?;
    hub.wait(id("v1", "ConfigMap", "fedq-ca").within(SYSTEM), "published", SOON, Value::is_object).await?;
    daemon.stop().await?;
    let mut refused = hub.requests_since(mark)?;
    refused.retain(|one| one.code == 403 && one.user == "system:serviceaccount:fedq-system:fedqd");
    ensure!(refused.is_empty(), "{refused:#?}");
    Ok(())
}

async fn live_config(hub: &Cluster) -> Result<Value> {
    let map = hub.get(id("v1", "ConfigMap", "fedqd").within(SYSTEM)).await?.context("a ConfigMap")?;
    let text = map["data"]["fedqd.yaml"].as_str().context("fedqd.yaml")?;
    Ok(serde_saphyr::from_str(text)?)
}

/// Every object on the server that says it is part of fedq.
fn ours(hub: &Cluster) -> Result<BTreeSet<Key>> {
    let kinds = hub.kubectl(&["api-resources", "--verbs=list", "-o", "name"])?;
    // The same objects under older and other names.
    let twice = ["events", "events.events.k8s.io", "componentstatuses"];
    let kinds: Vec<&str> = kinds.lines().filter(|kind| !twice.contains(kind)).collect();
    let label = "app.kubernetes.io/part-of=fedq,app.kubernetes.io/managed-by=Helm";
    let found = hub.kubectl(&["get", &kinds.join(","), "-A", "-l", label, "-o", "json"])?;
    let found: Value = serde_json::from_str(&found)?;
    let Some(items) = found["items"].as_array() else { bail!("no list: {found}") };
    Ok(items.iter().map(key).collect())
}
