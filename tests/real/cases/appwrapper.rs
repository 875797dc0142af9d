//! Upstream's black-box cases of AppWrappers, under our operator and under upstream's: they end alike.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::future::join_all;
use kube::api::{DynamicObject, PostParams};
use serde::Deserialize;
use serde_json::{Value, json};

use super::appwrapper_stage::{APPWRAPPER, Operator, ours_refuses};
use crate::support::cluster::{Cluster, Id, Part, client_of, id};
use crate::support::fleet::Fleet;
use crate::support::nodes::node;
use crate::support::wait::{Seen, eventually, throughout};

pub mod operators;

const CASES: &str = include_str!("appwrapper/cases.yaml");
const COMPONENTS: &str = include_str!("appwrapper/components.yaml");
pub const GETS_THERE: Duration = Duration::from_mins(3);
const STAYS: Duration = Duration::from_secs(5);
pub const LABEL: &str = "workload.codeflare.dev/appwrapper";
const MANY: usize = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    upstream: String,
    wrap: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    /// As a user who may only create AppWrappers and pods.
    #[serde(default)]
    limited: bool,
    steps: Vec<Step>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Step {
    of: Option<String>,
    create: Option<String>,
    ready: Option<usize>,
    phase: Option<String>,
    stays: Option<String>,
    resets: Option<i64>,
    /// Of an `update`, else of the creation, with the first pod set's `path`.
    refused: Option<String>,
    path: Option<String>,
    update: Option<json_patch::Patch>,
    delete: Option<String>,
    /// Delete its first component.
    lose: Option<String>,
    /// Mark the node of its pod as Autopilot does.
    sicken: Option<String>,
}

pub async fn upstreams_cases_end_well_under_ours(fleet: &Fleet) -> Result<()> {
    let (name, worker) = ("upstreams_cases_end_well_under_ours", fleet.worker1());
    let running = Operator::Ours.start(fleet, worker, name).await?;
    run_cases(worker, Operator::Ours).await?;
    metrics_are_served(worker, "fedq-appwrapper", running.metrics_port).await
}

pub async fn upstreams_cases_end_well_under_upstreams(fleet: &Fleet) -> Result<()> {
    let (name, worker) = ("upstreams_cases_end_well_under_upstreams", fleet.worker2());
    let running = Operator::Upstreams.start(fleet, worker, name).await?;
    let said = ours_refuses(fleet, worker, name).await?;
    ensure!(said.contains("the upstream AppWrapper operator is in this cluster"), "it said: {said}");
    run_cases(worker, Operator::Upstreams).await?;
    metrics_are_served(worker, "appwrapper-system", running.metrics_port).await
}

async fn run_cases(worker: &Cluster, operator: Operator) -> Result<()> {
    let cases: Vec<Case> = serde_saphyr::from_str(CASES)?;
    ensure!(cases.len() == 29, "upstream has 29 cases besides load and metrics, {} are here", cases.len());
    let history = operators::History::follow(worker);
    let _played = operators::play_foreign(worker);
    allow_limited_user(worker).await?;
    let ran = join_all(cases.iter().map(|case| async {
        let ran = run_case(worker, case, &history).await;
        ran.with_context(|| format!("{} ({}) under {operator:?}", case.upstream, case.name))
    }))
    .await;
    let failed: Vec<String> =
        ran.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(failed.is_empty(), "{} cases failed:\n\n{}", failed.len(), failed.join("\n\n"));
    load(worker, &history).await.context("Load Testing / Create 50 AppWrappers")
}

async fn run_case(worker: &Cluster, case: &Case, history: &operators::History) -> Result<()> {
    let place = format!("aw-{}", case.name);
    ground(worker, &place).await?;
    let mut run = Run { worker, case, place: &place, history, seen: BTreeMap::new() };
    let creates = case.steps.iter().any(|step| step.create.is_some() || step.refused.is_some());
    if !creates {
        run.create("a", None).await?;
    }
    for (index, step) in case.steps.iter().enumerate() {
        run.step(step).await.with_context(|| format!("step {index}: {step:?}"))?;
    }
    for wrapper in case.wrap.keys() {
        worker.delete(id(APPWRAPPER, "AppWrapper", wrapper).within(&place)).await?;
    }
    run.nothing_is_left().await?;
    clear(worker, &place).await
}

struct Run<'c> {
    worker: &'c Cluster,
    case: &'c Case,
    /// The name of its namespace, queue, flavor and node.
    place: &'c str,
    history: &'c operators::History,
    /// By AppWrapper: how much of its history is known.
    seen: BTreeMap<String, usize>,
}

impl Run<'_> {
    async fn step(&mut self, step: &Step) -> Result<()> {
        let of = step.of.as_deref().unwrap_or("a");
        if let Some(wrapper) = &step.create {
            self.create(wrapper, None).await?;
        }
        if let Some(count) = step.ready {
            self.ready(of, count).await?;
        }
        if let Some(phase) = &step.phase {
            self.gets_to(of, phase).await?;
        }
        if let Some(phase) = &step.stays {
            throughout(&format!("{of} is {phase}"), STAYS, async || {
                let seen = self.get(of).await?["status"]["phase"].clone();
                Ok(Seen::when(seen == phase.as_str(), || seen.to_string()))
            })
            .await?;
        }
        if let Some(resets) = step.resets {
            let seen = self.get(of).await?["status"]["resettingCount"].clone();
            ensure!(seen == resets, "it was reset {seen} times");
        }
        if let Some(words) = &step.refused {
            self.is_refused(of, step, words).await?;
        }
        if let Some(wrapper) = &step.delete {
            self.worker.delete(self.id(wrapper)).await?;
        }
        if let Some(wrapper) = &step.lose {
            let component = self.get(wrapper).await?["status"]["componentStatus"][0].clone();
            let text = |key: &str| component[key].as_str().unwrap_or_default().to_owned();
            let (api_version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
            self.worker.delete(id(&api_version, &kind, &name).within(self.place)).await?;
        }
        if let Some(of) = &step.sicken {
            // Either of the two may have it.
            let pods = self.worker.list("v1", "Pod", Some(self.place)).await?;
            let mut its = pods.iter().filter(|pod| pod["metadata"]["labels"][LABEL] == **of);
            let name =
                its.find_map(|pod| pod["spec"]["nodeName"].as_str()).context("no pod has a node")?.to_owned();
            let labels = json!({"metadata": {"labels": {"autopilot.ibm.com/gpuhealth": "EVICT"}}});
            self.worker.merge(id("v1", "Node", &name), Part::Whole, labels).await?;
        }
        Ok(())
    }

    fn id<'a>(&'a self, wrapper: &'a str) -> Id<'a> {
        id(APPWRAPPER, "AppWrapper", wrapper).within(self.place)
    }

    async fn get(&self, wrapper: &str) -> Result<Value> {
        self.worker.get(self.id(wrapper)).await?.context("there is no such AppWrapper")
    }

    fn object(&self, wrapper: &str, path: Option<&str>) -> Result<DynamicObject> {
        let wrapped = self.case.wrap.get(wrapper).context("it is not in `wrap`")?;
        let mut components = components(wrapped, &format!("{}-{wrapper}", self.case.name))?;
        if let Some(path) = path {
            components[0]["podSets"][0]["path"] = json!(path);
        }
        let long = |(key, value): (&String, &String)| {
            (format!("workload.codeflare.dev.appwrapper/{key}"), json!(value))
        };
        let annotations: serde_json::Map<String, Value> = self.case.annotations.iter().map(long).collect();
        Ok(serde_json::from_value(json!({
            "apiVersion": APPWRAPPER, "kind": "AppWrapper",
            "metadata": {
                "name": wrapper, "namespace": self.place, "annotations": annotations,
                "labels": {"kueue.x-k8s.io/queue-name": self.place},
            },
            "spec": {"components": components},
        }))?)
    }

    async fn create(&self, wrapper: &str, path: Option<&str>) -> Result<()> {
        let object = self.object(wrapper, path)?;
        let mut api = self.worker.api(self.id(wrapper)).await?;
        if self.case.limited {
            let client = client_of(&self.worker.kubeconfig_for("appwrapper-limited", &[])?).await?;
            api = kube::Api::namespaced_with(client, self.place, &operators::resource());
        }
        api.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    async fn is_refused(&self, of: &str, step: &Step, words: &str) -> Result<()> {
        let refused = match &step.update {
            None => self.create(of, step.path.as_deref()).await,
            Some(patch) => self.update(of, patch).await,
        };
        match refused {
            Ok(()) => bail!("it was accepted"),
            Err(error) => ensure!(format!("{error:#}").contains(words), "refused otherwise: {error:#}"),
        }
        Ok(())
    }

    /// On top of what is there, as often as somebody else was faster.
    async fn update(&self, of: &str, patch: &json_patch::Patch) -> Result<()> {
        loop {
            let mut value = self.get(of).await?;
            json_patch::patch(&mut value, patch)?;
            let object: DynamicObject = serde_json::from_value(value)?;
            match self.worker.api(self.id(of)).await?.replace(of, &PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                result => return Ok(result.map(|_| ())?),
            }
        }
    }

    async fn ready(&self, of: &str, count: usize) -> Result<()> {
        eventually(&format!("{count} pods of {of} to be ready"), GETS_THERE, async || {
            let pods = pods(self.worker, self.place, of).await?;
            let phases: Vec<&str> = pods.iter().filter_map(|pod| pod["status"]["phase"].as_str()).collect();
            let ready = phases.iter().filter(|phase| ["Running", "Succeeded"].contains(phase)).count();
            let wrapper = || format!("pods {phases:?}, history {:?}", self.history.of(self.place, of));
            Ok(Seen::when(count <= ready, wrapper))
        })
        .await
    }

    async fn gets_to(&mut self, of: &str, phase: &str) -> Result<()> {
        let seen = self.seen.get(of).copied().unwrap_or_default();
        let at = eventually(&format!("{of} to be {phase}"), GETS_THERE, async || {
            let history = self.history.of(self.place, of);
            Ok(match history.iter().skip(seen).position(|one| one == phase) {
                Some(position) => Seen::Done(seen + position),
                None => Seen::Still(format!("{history:?}")),
            })
        })
        .await?;
        self.seen.insert(of.to_owned(), at + 1);
        Ok(())
    }

    /// Neither AppWrappers nor pods of them.
    async fn nothing_is_left(&self) -> Result<()> {
        for wrapper in self.case.wrap.keys() {
            self.worker.wait_gone(self.id(wrapper), GETS_THERE).await?;
            let left = pods(self.worker, self.place, wrapper).await?;
            ensure!(left.is_empty(), "{wrapper} is gone and {} of its pods are not", left.len());
        }
        Ok(())
    }
}

pub async fn pods(worker: &Cluster, namespace: &str, wrapper: &str) -> Result<Vec<Value>> {
    let mut pods = worker.list("v1", "Pod", Some(namespace)).await?;
    pods.retain(|pod| pod["metadata"]["labels"][LABEL] == wrapper);
    Ok(pods)
}

/// `deployment 200m`: the component of that name, whose pods ask for so much.
pub fn components(wrapped: &[String], name: &str) -> Result<Vec<Value>> {
    let all: BTreeMap<String, Value> = serde_saphyr::from_str(COMPONENTS)?;
    let component = |(index, entry): (usize, &String)| {
        let (kind, cpu) = entry.split_once(' ').unwrap_or((entry, "100m"));
        let text = all.get(kind).with_context(|| format!("no component {kind}"))?.to_string();
        let text = text.replace("NAME", &format!("{name}-{index}")).replace("CPU", cpu);
        Ok(serde_json::from_str(&text)?)
    };
    wrapped.iter().enumerate().map(component).collect()
}

/// A namespace, a queue of 2 cpu and 2 GPUs, and a node that only it uses.
pub async fn ground(worker: &Cluster, place: &str) -> Result<()> {
    worker.add_nodes(&[node(place, "a").gpus(4), node(place, "b").gpus(4)]).await?;
    let kueue = "kueue.x-k8s.io/v1beta2";
    let quotas = [("cpu", "2"), ("nvidia.com/gpu", "2")]
        .map(|(name, quota)| json!({"name": name, "nominalQuota": quota}));
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}}),
        json!({
            "apiVersion": kueue, "kind": "ResourceFlavor", "metadata": {"name": place},
            "spec": {"nodeLabels": {crate::support::nodes::CASE_LABEL: place}},
        }),
        json!({
            "apiVersion": kueue, "kind": "ClusterQueue", "metadata": {"name": place},
            "spec": {"namespaceSelector": {}, "resourceGroups": [{
                "coveredResources": ["cpu", "nvidia.com/gpu"],
                "flavors": [{"name": place, "resources": quotas}],
            }]},
        }),
        json!({
            "apiVersion": kueue, "kind": "LocalQueue", "metadata": {"name": place, "namespace": place},
            "spec": {"clusterQueue": place},
        }),
    ];
    for object in objects {
        worker.apply_object("fedq-test", object).await?;
    }
    Ok(())
}

pub async fn clear(worker: &Cluster, place: &str) -> Result<()> {
    let kueue = "kueue.x-k8s.io/v1beta2";
    worker.delete(id(kueue, "LocalQueue", place).within(place)).await?;
    worker.delete(id(kueue, "ClusterQueue", place)).await?;
    worker.delete(id(kueue, "ResourceFlavor", place)).await?;
    worker.delete(id("v1", "Namespace", place)).await?;
    worker.delete_nodes_of(place).await
}

pub async fn allow_limited_user(worker: &Cluster) -> Result<()> {
    worker
        .apply(
            "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: appwrapper-limited}
rules:
- {apiGroups: [workload.codeflare.dev], resources: [appwrappers], verbs: ['*']}
- {apiGroups: [''], resources: [pods], verbs: ['*']}
- {apiGroups: [apps], resources: [deployments], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: appwrapper-limited}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: appwrapper-limited}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: appwrapper-limited}]
",
        )
        .await
}

/// "Create 50 AppWrappers": all run within a minute, and all their pods within three more.
async fn load(worker: &Cluster, history: &operators::History) -> Result<()> {
    let names: Vec<String> = (0..MANY).map(|index| format!("many-{index}")).collect();
    let wrap = names.iter().map(|name| (name.clone(), vec!["deployment 5m".to_owned()])).collect();
    let (name, upstream) = ("load".to_owned(), String::new());
    let case = Case { name, upstream, wrap, annotations: BTreeMap::new(), limited: false, steps: Vec::new() };
    let place = "aw-load";
    ground(worker, place).await?;
    let mut run = Run { worker, case: &case, place, history, seen: BTreeMap::new() };
    for name in &names {
        run.create(name, None).await?;
    }
    for name in &names {
        run.gets_to(name, "Running").await?;
    }
    for name in &names {
        run.ready(name, 2).await?;
    }
    for name in &names {
        worker.delete(run.id(name)).await?;
    }
    run.nothing_is_left().await?;
    clear(worker, place).await
}

/// Whoever dies between two requests finds again what it had begun: also objects whose names are made up.
pub async fn killed_at_any_moment_it_makes_each_component_once(fleet: &Fleet) -> Result<()> {
    const WRAPPERS: usize = 20;
    let (name, worker, place) =
        ("killed_at_any_moment_it_makes_each_component_once", fleet.worker1(), "aw-killed");
    let mut running = Operator::Ours.start(fleet, worker, name).await?;
    let history = operators::History::follow(worker);
    ground(worker, place).await?;
    let names: Vec<String> = (0..WRAPPERS).map(|index| format!("a{index}")).collect();
    let wrap =
        names.iter().map(|name| (name.clone(), vec!["job 5m".to_owned(), "job 5m".to_owned()])).collect();
    let (name_of_case, upstream) = ("killed".to_owned(), String::new());
    let (annotations, steps) = (BTreeMap::new(), Vec::new());
    let case = Case { name: name_of_case, upstream, wrap, annotations, limited: false, steps };
    let mut run = Run { worker, case: &case, place, history: &history, seen: BTreeMap::new() };
    for wrapper in &names {
        run.create(wrapper, None).await?;
    }
    for made in (1..2 * WRAPPERS).step_by(3) {
        eventually(&format!("{made} Jobs"), GETS_THERE, async || {
            let jobs = worker.list("batch/v1", "Job", Some(place)).await?.len();
            Ok(Seen::when(made <= jobs, || format!("{jobs} Jobs")))
        })
        .await?;
        running.kill_and_start_ours(fleet)?;
    }
    for wrapper in &names {
        run.gets_to(wrapper, "Running").await?;
    }
    let jobs = worker.list("batch/v1", "Job", Some(place)).await?;
    ensure!(jobs.len() == 2 * WRAPPERS, "{} Jobs for {} components", jobs.len(), 2 * WRAPPERS);
    for wrapper in &names {
        worker.delete(run.id(wrapper)).await?;
    }
    running.kill_and_start_ours(fleet)?;
    run.nothing_is_left().await?;
    clear(worker, place).await
}

/// `metrics_test.go`: "should ensure the metrics endpoint is serving metrics", to whom RBAC lets read them.
async fn metrics_are_served(worker: &Cluster, namespace: &str, port: u16) -> Result<()> {
    worker
        .apply(&format!(
            "
apiVersion: v1
kind: ServiceAccount
metadata: {{name: scraper, namespace: {namespace}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: appwrapper-scraper}}
rules: [{{nonResourceURLs: [/metrics], verbs: [get]}}]
"
        ))
        .await?;
    let token = worker.kubectl(&["create", "token", "scraper", "-n", namespace])?;
    let client = crate::support::web::Client::new(&format!("https://127.0.0.1:{port}"), None)?;
    let scrape = async |token: Option<&str>| {
        let mut request = http::Request::get("/metrics");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {}", token.trim()));
        }
        client.send(request, String::new()).await
    };
    ensure!(scrape(None).await?.status == 401, "whoever asks may read the metrics");
    ensure!(
        scrape(Some(&token)).await?.status == 403,
        "a ServiceAccount without the right may read the metrics"
    );
    let binding = format!("--serviceaccount={namespace}:scraper");
    worker.kubectl(&[
        "create",
        "clusterrolebinding",
        "appwrapper-scraper",
        "--clusterrole=appwrapper-scraper",
        &binding,
    ])?;
    eventually("the metrics to be served", GETS_THERE, async || {
        let answer = scrape(Some(&token)).await?;
        let served = answer.status == 200
            && answer.body.contains("controller_runtime_reconcile_total")
            && answer.body.contains("appwrapper_phase_total{");
        Ok(Seen::when(served, || format!("{} {}", answer.status, answer.body)))
    })
    .await
}
