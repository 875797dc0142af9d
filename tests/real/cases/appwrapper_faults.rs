//! What goes wrong around AppWrappers: rights that are lacking, input that is wrong, and objects, pods and servers that do not
//! do as they should.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::{DynamicObject, PostParams};
use serde::Deserialize;
use serde_json::{Value, json};

use super::appwrapper::operators::{self, History};
use super::appwrapper::{GETS_THERE, allow_limited_user, clear, components, ground, pods};
use super::appwrapper_stage::{APPWRAPPER, Operator, Replica, Setting, kept_running, ours_refuses};
use crate::support::cluster::{Cluster, Id, Part, client_of, has_condition, id};
use crate::support::fleet::Fleet;
use crate::support::relay::{Asked, Tap};
use crate::support::wait::{Seen, eventually, throughout};

const BAD: &str = include_str!("appwrapper/bad.yaml");
/// A failure shows, if it does at all.
const STAYS: Duration = Duration::from_secs(5);
/// Longer than an operator takes from a Job to the look at it, far shorter than any grace.
const LAG: Duration = Duration::from_secs(8);

/// A namespace with a queue.
struct Place<'c> {
    cluster: &'c Cluster,
    name: &'c str,
}

impl<'c> Place<'c> {
    async fn lay(cluster: &'c Cluster, name: &'c str) -> Result<Self> {
        ground(cluster, name).await?;
        Ok(Self { cluster, name })
    }

    async fn clear(self) -> Result<()> {
        clear(self.cluster, self.name).await
    }

    fn id<'a>(&'a self, wrapper: &'a str) -> Id<'a> {
        id(APPWRAPPER, "AppWrapper", wrapper).within(self.name)
    }

    async fn create(&self, wrapper: &str, components: &[Value], tolerance: &[(&str, &str)]) -> Result<()> {
        let object = wrapping((self.name, wrapper), components, tolerance)?;
        self.cluster.api(self.id(wrapper)).await?.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    async fn phase(&self, wrapper: &str, phase: &str) -> Result<Value> {
        let is = |seen: &Value| seen["status"]["phase"] == phase;
        self.cluster.wait(self.id(wrapper), phase, GETS_THERE, is).await
    }

    async fn is_gone(&self, wrapper: &str) -> Result<()> {
        self.cluster.wait_gone(self.id(wrapper), GETS_THERE).await?;
        let left = pods(self.cluster, self.name, wrapper).await?;
        ensure!(left.is_empty(), "{wrapper} is gone and {} of its pods are not", left.len());
        Ok(())
    }
}

fn wrapping(
    (namespace, name): (&str, &str),
    components: &[Value],
    tolerance: &[(&str, &str)],
) -> Result<DynamicObject> {
    let annotations: BTreeMap<String, &str> = tolerance
        .iter()
        .map(|(key, value)| (format!("workload.codeflare.dev.appwrapper/{key}"), *value))
        .collect();
    Ok(serde_json::from_value(json!({
        "apiVersion": APPWRAPPER, "kind": "AppWrapper",
        "metadata": {
            "name": name, "namespace": namespace, "annotations": annotations,
            "labels": {"kueue.x-k8s.io/queue-name": namespace},
        },
        "spec": {"suspend": true, "components": components},
    }))?)
}

fn wrapped(entries: &[&str], name: &str) -> Result<Vec<Value>> {
    let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
    components(&entries, name)
}

fn condition<'v>(seen: &'v Value, type_: &str) -> &'v Value {
    let mut all = seen["status"]["conditions"].as_array().into_iter().flatten();
    all.find(|one| one["type"] == type_).unwrap_or(&Value::Null)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bad {
    name: String,
    components: Vec<Value>,
    /// What is said by the webhook, and by the controller where there is none.
    said: String,
    /// Only who may do everything gets that far: others are refused for their rights.
    #[serde(default)]
    limited: Option<String>,
    /// Accepted from who may do everything.
    #[serde(default)]
    accepted: bool,
}

/// As a user who may create AppWrappers and pods alone, and as one who may create everything; and then without a webhook.
pub async fn what_is_wrong_or_forbidden_is_refused_with_field_and_reason(fleet: &Fleet) -> Result<()> {
    let (name, worker) = ("what_is_wrong_or_forbidden_is_refused_with_field_and_reason", fleet.worker1());
    let running = Operator::Ours.start(fleet, worker, name).await?;
    allow_limited_user(worker).await?;
    let place = Place::lay(worker, "aw-bad").await?;
    let cases: Vec<Bad> = serde_saphyr::from_str(BAD)?;
    let limited = client_of(&worker.kubeconfig_for("appwrapper-limited", &[])?).await?;
    let limited = kube::Api::<DynamicObject>::namespaced_with(limited, place.name, &operators::resource());
    let mighty = worker.api(place.id("x")).await?;
    for case in &cases {
        let object = wrapping((place.name, &case.name), &case.components, &[])?;
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let made = mighty.create(&params, &object).await;
        match made {
            Ok(_) => ensure!(case.accepted, "{}: it was accepted", case.name),
            Err(error) => {
                let error = error.to_string();
                ensure!(!case.accepted && error.contains(&case.said), "{}: {error}", case.name);
            }
        }
        let said = case.limited.as_ref().unwrap_or(&case.said);
        match limited.create(&params, &object).await {
            Ok(_) => bail!("{}: whoever may create pods alone may create it", case.name),
            Err(error) => ensure!(error.to_string().contains(said), "{}, limited: {error}", case.name),
        }
    }
    drop(running);

    let setting = Setting { webhooks: false, ..Setting::default() };
    let replica = Replica::prepare(fleet, worker, name, setting).await?;
    let server = replica.spawn(fleet)?;
    for case in cases.iter().filter(|case| !case.accepted) {
        // Without Kueue, which cannot make Workloads of them.
        let mut object = wrapping((place.name, &case.name), &case.components, &[])?;
        object.metadata.labels = None;
        eventually("the webhook to be gone", GETS_THERE, async || {
            let made = mighty.create(&PostParams::default(), &object).await;
            let there = match &made {
                Ok(_) => true,
                Err(kube::Error::Api(status)) => status.is_already_exists(),
                Err(_) => false,
            };
            Ok(Seen::when(there, || format!("{made:?}")))
        })
        .await?;
    }
    for case in cases.iter().filter(|case| !case.accepted) {
        let seen = place.phase(&case.name, "Failed").await?;
        let unhealthy = condition(&seen, "Unhealthy");
        let said = unhealthy["message"].as_str().unwrap_or_default();
        ensure!(said.contains(&case.said), "{}: {unhealthy:#}", case.name);
        ensure!(has_condition(&seen, "ResourcesDeployed", "False"), "{}: {seen:#}", case.name);
    }
    let mut left = worker.list("v1", "Pod", Some(place.name)).await?;
    left.extend(worker.list("batch/v1", "Job", Some(place.name)).await?);
    ensure!(left.is_empty(), "something was made of what is wrong: {left:#?}");
    for case in cases.iter().filter(|case| !case.accepted) {
        worker.delete(place.id(&case.name)).await?;
        place.is_gone(&case.name).await?;
    }
    server.kill()?;
    place.clear().await
}

pub async fn failures_owners_and_pods_that_stay_are_dealt_with(fleet: &Fleet) -> Result<()> {
    let (name, worker) = ("failures_owners_and_pods_that_stay_are_dealt_with", fleet.worker1());
    // It starts beside what anybody can make in a namespace of their own.
    look_like_upstreams(worker).await?;
    let _running = Operator::Ours.start(fleet, worker, name).await?;
    let history = History::follow(worker);
    let _played = operators::play_foreign(worker);
    tokio::try_join!(
        async { a_failed_pytorch_job_resets(worker, &history).await.context("PyTorchJob") },
        async { what_is_anothers_is_left_alone(worker).await.context("owners") },
        async { pods_that_stay_are_forced_out(worker).await.context("forced deletion") },
        async { a_kind_that_may_not_be_made_holds_nothing_up(worker).await.context("rights") },
    )?;
    ours_refuses_what_may_do_upstreams_work(fleet, worker, name).await
}

const LOOKS_LIKE_UPSTREAMS: &str = "aw-namesake";

async fn look_like_upstreams(worker: &Cluster) -> Result<()> {
    let namespace = LOOKS_LIKE_UPSTREAMS;
    let name = "appwrapper-controller-manager";
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "replicas": 0, "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"serviceAccountName": name, "containers": [{"name": "a", "image": "example.invalid/a"}]},
                },
            },
        }),
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "f134c674.codeflare.dev", "namespace": namespace},
            "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 3600, "renewTime": "2099-01-01T00:00:00.000000Z"},
        }),
    ];
    for object in objects {
        worker.apply_object("somebody", object).await?;
    }
    Ok(())
}

/// The same Deployment, once its account has the rights of such a controller.
async fn ours_refuses_what_may_do_upstreams_work(fleet: &Fleet, worker: &Cluster, case: &str) -> Result<()> {
    let namespace = LOOKS_LIKE_UPSTREAMS;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "fedq-appwrapper"},
        "subjects": [{
            "kind": "ServiceAccount", "name": "appwrapper-controller-manager", "namespace": namespace,
        }],
    });
    worker.apply_object("somebody", binding).await?;
    let said = ours_refuses(fleet, worker, case).await?;
    let words = format!("(its Deployment `{namespace}/appwrapper-controller-manager`)");
    ensure!(said.contains(&words), "it said: {said}");
    worker.delete(id("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", namespace)).await?;
    worker.delete(id("v1", "Namespace", namespace)).await
}

/// One that is not in `deploy/appwrapper/wrapped.yaml`: it is neither made nor read.
async fn a_kind_that_may_not_be_made_holds_nothing_up(worker: &Cluster) -> Result<()> {
    let place = Place::lay(worker, "aw-rights").await?;
    let mut components = wrapped(&["job 100m"], "x")?;
    components.push(json!({"template": {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }}));
    let tolerance =
        [("admissionGracePeriodDuration", "2s"), ("retryLimit", "1"), ("retryPausePeriodDuration", "1s")];
    place.create("claims", &components, &tolerance).await?;
    let seen = worker
        .wait(place.id("claims"), "failed, and nothing left", GETS_THERE, |seen| {
            seen["status"]["phase"] == "Failed" && has_condition(seen, "QuotaReserved", "False")
        })
        .await?;
    let said = condition(&seen, "Unhealthy")["message"].as_str().unwrap_or_default();
    ensure!(said.contains("persistentvolumeclaims is forbidden"), "{said}");
    ensure!(seen["status"]["resettingCount"] == 1, "{seen:#}");
    // And one that is deleted while it is tried.
    place.create("deleted", &components, &[("admissionGracePeriodDuration", "600s")]).await?;
    place.phase("deleted", "Resuming").await?;
    for wrapper in ["claims", "deleted"] {
        worker.delete(place.id(wrapper)).await?;
        place.is_gone(wrapper).await?;
    }
    place.clear().await
}

/// Its operator's word, played here, counts: once for a reset, and then for good.
async fn a_failed_pytorch_job_resets(worker: &Cluster, history: &History) -> Result<()> {
    let place = Place::lay(worker, "aw-torch").await?;
    let tolerance = [("retryLimit", "1"), ("retryPausePeriodDuration", "1s")];
    place.create("torch", &wrapped(&["pytorchJob 100m"], "torch")?, &tolerance).await?;
    let mut before = Value::Null;
    for round in 0..2 {
        let ready = |seen: &Value| {
            // While it is reset, the condition still tells of the pods that go.
            seen["status"]["resettingCount"].as_i64().unwrap_or_default() == round
                && seen["status"]["phase"] == "Running"
                && has_condition(seen, "PodsReady", "True")
        };
        worker.wait(place.id("torch"), "running", GETS_THERE, ready).await?;
        let job = id("kubeflow.org/v1", "PyTorchJob", "pytorchjob-torch-0").within(place.name);
        let there = worker.get(job).await?.context("its PyTorchJob")?;
        let uid = there["metadata"]["uid"].clone();
        ensure!(uid != before, "the PyTorchJob that failed is still there");
        before = uid;
        let failed = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}});
        worker.merge(job, Part::Status, failed).await?;
    }
    let seen = worker
        .wait(place.id("torch"), "failed, and nothing left", GETS_THERE, |seen| {
            seen["status"]["phase"] == "Failed" && has_condition(seen, "QuotaReserved", "False")
        })
        .await?;
    ensure!(condition(&seen, "Unhealthy")["reason"] == "FailedComponent", "{seen:#}");
    ensure!(pods(worker, place.name, "torch").await?.is_empty(), "quota was given back before its pods");
    let phases = history.of(place.name, "torch");
    ensure!(phases.iter().filter(|phase| *phase == "Resetting").count() == 1, "{phases:?}");
    worker.delete(place.id("torch")).await?;
    place.is_gone("torch").await?;
    place.clear().await
}

/// What has the name of a component, but another owner or none, stays as it is, also when the AppWrapper goes.
async fn what_is_anothers_is_left_alone(worker: &Cluster) -> Result<()> {
    let place = Place::lay(worker, "aw-owner").await?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "shared", "namespace": place.name},
        "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]},
    });
    worker.apply_object("somebody", service).await?;
    let mut ours = wrapped(&["service"], "x")?;
    ours[0]["template"]["metadata"]["name"] = json!("shared");
    let first = wrapped(&["job 100m"], "x")?;
    let mut owned = first.clone();
    owned[0]["template"]["metadata"] = json!({"name": "run"});
    place.create("first", &owned, &[]).await?;
    place.phase("first", "Running").await?;
    // A Job of its own first, which has to go again.
    place.create("nobodys", &[first.clone(), ours].concat(), &[]).await?;
    place.create("firsts", &[first, owned].concat(), &[]).await?;
    for (wrapper, component) in [("nobodys", "shared"), ("firsts", "run")] {
        let seen = worker
            .wait(place.id(wrapper), "failed, and nothing left", GETS_THERE, |seen| {
                seen["status"]["phase"] == "Failed" && has_condition(seen, "QuotaReserved", "False")
            })
            .await?;
        let said = condition(&seen, "Unhealthy")["message"].as_str().unwrap_or_default();
        let words = format!(
            "spec.components[1].template.metadata.name: Invalid value: \"{component}\": resource {component} exists, but is \
             not controlled by appwrapper"
        );
        ensure!(said.contains(&words), "{wrapper}: {said}");
        ensure!(pods(worker, place.name, wrapper).await?.is_empty(), "{wrapper} has pods");
        worker.delete(place.id(wrapper)).await?;
        place.is_gone(wrapper).await?;
    }
    let service = worker.get(id("v1", "Service", "shared").within(place.name)).await?;
    let service = service.context("somebody's Service is gone")?;
    ensure!(service["spec"]["selector"]["app"] == "theirs", "{service:#}");
    let first = worker.get(place.id("first")).await?.context("the first AppWrapper is gone")?;
    ensure!(first["status"]["phase"] == "Running", "{first:#}");
    worker.delete(place.id("first")).await?;
    place.is_gone("first").await?;
    place.clear().await
}

/// Of a node that answers no more: its pods are deleted, and stay.
async fn pods_that_stay_are_forced_out(worker: &Cluster) -> Result<()> {
    const GRACE: Duration = Duration::from_secs(6);
    let place = Place::lay(worker, "aw-stay").await?;
    let mut job = wrapped(&["job 100m"], "stay")?;
    let template = &mut job[0]["template"]["spec"]["template"];
    template["metadata"]["annotations"]["pod-delete.stage.kwok.x-k8s.io/delay"] = json!("900s");
    template["spec"]["terminationGracePeriodSeconds"] = json!(900);
    place.create("stay", &job, &[("forcefulDeletionGracePeriodDuration", "6s")]).await?;
    worker
        .wait(place.id("stay"), "ready", GETS_THERE, |seen| has_condition(seen, "PodsReady", "True"))
        .await?;
    let deleted = Instant::now();
    worker.delete(place.id("stay")).await?;
    throughout(
        "its pod stays, and so does its quota",
        GRACE.saturating_sub(Duration::from_secs(2)),
        async || {
            let pods = pods(worker, place.name, "stay").await?;
            let seen = worker.get(place.id("stay")).await?.context("it is gone")?;
            let holds = pods.len() == 1 && has_condition(&seen, "QuotaReserved", "True");
            Ok(Seen::when(holds, || format!("{} pods, {}", pods.len(), seen["status"])))
        },
    )
    .await?;
    place.is_gone("stay").await?;
    let took = deleted.elapsed();
    ensure!(GRACE <= took + Duration::from_secs(1), "it was forced out after {took:?}");
    place.clear().await
}

/// Killed while components are made, and while they are removed; what waits for its answer never gets it.
pub async fn an_api_server_that_stops_meanwhile_loses_and_doubles_nothing(fleet: &Fleet) -> Result<()> {
    let (name, worker) = ("an_api_server_that_stops_meanwhile_loses_and_doubles_nothing", fleet.worker1());
    let mut running = Operator::Ours.start(fleet, worker, name).await?;
    kept_running(&mut running, fleet, stops_twice(worker)).await
}

async fn stops_twice(worker: &Cluster) -> Result<()> {
    const WRAPPERS: usize = 20;
    let place = Place::lay(worker, "aw-stop").await?;
    let names: Vec<String> = (0..WRAPPERS).map(|index| format!("stop-{index:02}")).collect();
    for wrapper in &names {
        place.create(wrapper, &wrapped(&["job 5m", "job 5m"], wrapper)?, &[]).await?;
    }
    jobs_are(&place, "some Jobs", |count| 3 <= count).await?;
    stop_for_a_while(worker).await?;
    for wrapper in &names {
        worker
            .wait(place.id(wrapper), "ready", GETS_THERE, |seen| has_condition(seen, "PodsReady", "True"))
            .await?;
    }
    let made = jobs(&place).await?;
    ensure!(made == 2 * WRAPPERS, "{made} Jobs of {} components", 2 * WRAPPERS);
    for wrapper in &names {
        worker.delete(place.id(wrapper)).await?;
    }
    jobs_are(&place, "some Jobs less", |count| count < 2 * WRAPPERS - 3).await?;
    stop_for_a_while(worker).await?;
    for wrapper in &names {
        place.is_gone(wrapper).await?;
    }
    let left = jobs(&place).await?;
    ensure!(left == 0, "{left} Jobs of AppWrappers that are gone");
    place.clear().await
}

async fn jobs(place: &Place<'_>) -> Result<usize> {
    Ok(place.cluster.list("batch/v1", "Job", Some(place.name)).await?.len())
}

async fn jobs_are(place: &Place<'_>, what: &str, enough: impl Fn(usize) -> bool) -> Result<()> {
    eventually(what, GETS_THERE, async || {
        let count = jobs(place).await?;
        Ok(Seen::when(enough(count), || format!("{count} Jobs")))
    })
    .await
}

async fn stop_for_a_while(worker: &Cluster) -> Result<()> {
    worker.plane.kill_api_server()?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    worker.plane.restart_api_server().await
}

/// What is said of Jobs comes late; all else passes.
struct LateJobs;

impl Tap for LateJobs {
    fn before<'a>(&'a self, _: &'a Asked) -> BoxFuture<'a, bool> {
        async { true }.boxed()
    }

    fn after<'a>(&'a self, _: &'a Asked, _: u16) -> BoxFuture<'a, bool> {
        async { true }.boxed()
    }

    fn lag(&self, asked: &Asked) -> Duration {
        if asked.resource == "jobs" { LAG } else { Duration::ZERO }
    }
}

/// <https://github.com/project-codeflare/appwrapper/issues/416>: a copy that does not have the Job yet.
pub async fn a_job_that_its_copy_does_not_have_yet_fails_upstreams_and_not_ours(fleet: &Fleet) -> Result<()> {
    let name = "a_job_that_its_copy_does_not_have_yet_fails_upstreams_and_not_ours";
    let (one, two) = (fleet.worker1(), fleet.worker2());
    let _ours = Operator::Ours.start_through(fleet, one, name, Arc::new(LateJobs)).await?;
    let _upstreams = Operator::Upstreams.start_through(fleet, two, name, Arc::new(LateJobs)).await?;
    let ready = |seen: &Value| has_condition(seen, "PodsReady", "True");
    for cluster in [one, two] {
        let place = Place::lay(cluster, "aw-late").await?;
        // Upstream's begins to follow Jobs when it looks at the first, and waits for that copy to be whole.
        place.create("first", &wrapped(&["job 100m"], "first")?, &[]).await?;
        cluster.wait(place.id("first"), "ready", GETS_THERE, ready).await?;
        place.create("late", &wrapped(&["job 100m"], "late")?, &[]).await?;
    }
    let (ours, upstreams) =
        (Place { cluster: one, name: "aw-late" }, Place { cluster: two, name: "aw-late" });
    let failed = upstreams.phase("late", "Failed").await?;
    let unhealthy = condition(&failed, "Unhealthy");
    ensure!(unhealthy["reason"] == "MissingComponent", "upstream's failed otherwise: {failed:#}");
    let before = one.wait(ours.id("late"), "ready", GETS_THERE, ready).await?;
    throughout("ours runs", LAG + STAYS, async || {
        let seen = one.get(ours.id("late")).await?.context("it is gone")?;
        let same = seen["status"]["componentStatus"] == before["status"]["componentStatus"];
        Ok(Seen::when(same && seen["status"]["phase"] == "Running", || seen["status"].to_string()))
    })
    .await?;
    for place in [ours, upstreams] {
        for wrapper in ["first", "late"] {
            place.cluster.delete(place.id(wrapper)).await?;
            place.is_gone(wrapper).await?;
        }
        place.clear().await?;
    }
    Ok(())
}
