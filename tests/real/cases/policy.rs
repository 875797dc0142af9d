//! What fedq's own account cannot do on a worker, with all the rights that it has: what whoever steals its token would try.

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::rights::{POLICY, WORKER, kubeconfig_of};
use super::stage::{GPU, KUEUE, SOON, clear, ground, job, queue};
use crate::support::cluster::{Cluster, Part, client_of, id};
use crate::support::fleet::Fleet;
use crate::support::wait::{Seen, eventually};

const CASE: &str = "bounded";
const HUB: &str = "fedq.dev/hub";
const ACCOUNTS: &str = "fedq.dev/service-accounts";

/// Nothing that it asks for is done: each is only tried.
enum Attempt {
    Create(Value),
    Merge(Value, Value),
    Delete(Value),
}

use Attempt::{Create, Delete, Merge};

struct Account<'c> {
    client: Client,
    cluster: &'c Cluster,
}

impl Account<'_> {
    async fn api(&self, object: &Value) -> Result<(Api<DynamicObject>, DynamicObject)> {
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let types = object.types.as_ref().context("a type")?;
        let (resource, _) = self.cluster.kind(&types.api_version, &types.kind).await?;
        let api = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        Ok((api, object))
    }

    /// The refusal's words.
    async fn tries(&self, attempt: &Attempt) -> Result<Option<String>> {
        let (Create(object) | Merge(object, _) | Delete(object)) = attempt;
        let (api, object) = self.api(object).await?;
        let name = object.metadata.name.clone().context("a name")?;
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let tried = match attempt {
            Create(_) => api.create(&dry, &object).await.map(drop),
            Merge(_, patch) => {
                let params = PatchParams { dry_run: true, ..PatchParams::default() };
                api.patch(&name, &params, &Patch::Merge(patch)).await.map(drop)
            }
            Delete(_) => {
                api.delete(&name, &DeleteParams { dry_run: true, ..DeleteParams::default() }).await.map(drop)
            }
        };
        match tried {
            Ok(()) => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 403 || status.code == 422 => {
                Ok(Some(status.message))
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn ours(mut object: Value) -> Value {
    object["metadata"]["labels"][HUB] = json!("some-hub");
    object
}

fn task(namespace: &str) -> Value {
    ours(job(namespace, "task", CASE, &[(GPU, "1")], "1s"))
}

fn job_set() -> Value {
    let template = task(CASE)["spec"].clone();
    ours(json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "set", "namespace": CASE},
        "spec": {"suspend": true, "replicatedJobs": [{"name": "a", "replicas": 1, "template": {"spec": template}}]},
    }))
}

fn as_account(mut job: Value, path: &str, account: &str) -> Result<Value> {
    job.pointer_mut(path).context("a pod's spec")?["serviceAccountName"] = json!(account);
    Ok(job)
}

fn secret(kind: &str) -> Value {
    ours(json!({
        "apiVersion": "v1", "kind": "Secret", "type": kind,
        "metadata": {
            "name": "values", "namespace": CASE, "annotations": {"kubernetes.io/service-account.name": "admin"},
        },
    }))
}

fn service(spec: &Value) -> Value {
    ours(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "names", "namespace": CASE}, "spec": spec,
    }))
}

fn as_old_account(mut job: Value, path: &str, account: &str) -> Result<Value> {
    job.pointer_mut(path).context("a pod's spec")?["serviceAccount"] = json!(account);
    Ok(job)
}

fn wrapping(object: &Value) -> Value {
    let mut wrapped = object.clone();
    wrapped["metadata"] = json!({"name": "wrapped"});
    ours(json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {"name": "wrapper", "namespace": CASE},
        "spec": {"suspend": true, "components": [{"template": wrapped}]},
    }))
}

fn level(level: &str) -> Value {
    json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}})
}

fn with_level(namespace: &Value, of: &str) -> Value {
    let mut namespace = namespace.clone();
    namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = json!(of);
    namespace
}

fn lets_run_as(mut namespace: Value, account: &str) -> Value {
    namespace["metadata"]["annotations"] = json!({ACCOUNTS: account});
    namespace
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn theirs(kind: &str) -> Value {
    json!({"apiVersion": KUEUE, "kind": kind, "metadata": {"name": "theirs"}})
}

/// Why each is refused; nothing where it is fedq's to do.
fn attempts() -> Result<Vec<(Attempt, Option<&'static str>)>> {
    let pods = "/spec/template/spec";
    let in_set = "/spec/replicatedJobs/0/template/spec/template/spec";
    let label = json!({"metadata": {"labels": {HUB: "some-hub"}}});
    let drained = json!({"spec": {"stopPolicy": "HoldAndDrain"}});
    let taken_over =
        json!({"metadata": {"labels": {HUB: "some-hub"}}, "spec": {"stopPolicy": "HoldAndDrain"}});
    let taken = json!({"clusterIP": "None", "externalIPs": ["192.0.2.1"]});
    Ok(vec![
        (unlabelled(), Some("only objects with its label")),
        (Create(task(CASE)), None),
        (Create(task("kube-system")), Some("system namespaces")),
        (Create(task("kueue-system")), Some("system namespaces")),
        (Create(as_account(task(CASE), pods, "admin")?), Some("ServiceAccount default alone")),
        (Create(as_account(task(CASE), pods, "default")?), None),
        (Create(job_set()), None),
        (
            Create(as_account(job_set(), in_set, "admin")?),
            Some("annotation fedq.dev/service-accounts of namespace bounded"),
        ),
        (Create(as_old_account(job_set(), in_set, "admin")?), Some("ServiceAccount default alone")),
        (Create(wrapping(&task(CASE))), None),
        (Create(wrapping(&as_account(task(CASE), pods, "admin")?)), Some("ServiceAccount default alone")),
        (Create(wrapping(&as_account(job_set(), in_set, "admin")?)), Some("ServiceAccount default alone")),
        (Create(secret("Opaque")), None),
        (Create(secret("kubernetes.io/service-account-token")), Some("only Secrets of the type Opaque")),
        (Create(service(&json!({"clusterIP": "None"}))), None),
        (Create(service(&json!({"ports": [{"port": 443}]}))), Some("only headless Services")),
        (Create(service(&taken)), Some("only headless Services")),
        (
            Create(service(&json!({"type": "ExternalName", "externalName": "x.example"}))),
            Some("only headless Services"),
        ),
        (Create(wrapping(&service(&json!({"ports": [{"port": 443}]})))), None),
        (Create(wrapping(&service(&taken))), Some("such as are reached within the cluster")),
        (
            Create(wrapping(&service(&json!({"type": "LoadBalancer", "ports": [{"port": 443}]})))),
            Some("such as are reached within the cluster"),
        ),
        (Create(with_level(&ours(namespace("team")), "baseline")), None),
        (Create(with_level(&ours(namespace("team")), "privileged")), Some("make this one by hand")),
        (Create(ours(namespace("team"))), Some("make this one by hand")),
        (
            Create(lets_run_as(with_level(&ours(namespace("team")), "baseline"), "admin")),
            Some("administrator's"),
        ),
        (
            Merge(namespace("bounded-ours"), json!({"metadata": {"annotations": {ACCOUNTS: "admin"}}})),
            Some("administrator's"),
        ),
        (Merge(namespace("bounded-ours"), level("privileged")), Some("make this one by hand")),
        (Merge(namespace("bounded-ours"), level("restricted")), None),
        (Create(namespace("team")), Some("only objects with its label")),
        (Create(ours(namespace("kube-team"))), Some("system namespaces")),
        (Merge(namespace(CASE), label.clone()), Some("the object is not fedq's")),
        (Merge(namespace("kube-system"), label.clone()), Some("the object is not fedq's")),
        (Merge(theirs("ClusterQueue"), drained), Some("only objects with its label")),
        (Merge(theirs("ClusterQueue"), taken_over), Some("the object is not fedq's")),
        (Delete(theirs("ClusterQueue")), Some("the object is not fedq's")),
        (Delete(theirs_runs()), Some("the object is not fedq's")),
    ])
}

fn unlabelled() -> Attempt {
    Create(job(CASE, "task", CASE, &[(GPU, "1")], "1s"))
}

fn theirs_runs() -> Value {
    job(CASE, "theirs", "theirs", &[(GPU, "1")], "900s")
}

pub async fn fedqs_account_changes_nothing_but_its_own_on_a_worker(fleet: &Fleet) -> Result<()> {
    clear(fleet).await?;
    let worker = fleet.worker1();
    for manifest in [WORKER, POLICY, &ground(CASE), &queue(CASE, "theirs", &[(GPU, "8")], "")] {
        worker.apply(manifest).await?;
    }
    worker.apply_object("somebody", with_level(&ours(namespace("bounded-ours")), "baseline")).await?;
    // With these rights it changes for people what is theirs.
    let for_people = id("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "fedq-kueuectl");
    worker.delete(for_people).await?;
    worker.apply_object("somebody", theirs_runs()).await?;
    let account = Account { client: client_of(&kubeconfig_of(worker, "fedq")?).await?, cluster: worker };

    // A policy is obeyed some moments after it was made.
    let unlabelled = unlabelled();
    eventually("the policy to be obeyed", SOON, async || {
        let told = account.tries(&unlabelled).await?;
        Ok(Seen::when(told.as_ref().is_some_and(|told| told.contains("fedq-worker")), || format!("{told:?}")))
    })
    .await?;

    for (attempt, refused) in attempts()? {
        let told = account.tries(&attempt).await?;
        let (Create(object) | Merge(object, _) | Delete(object)) = &attempt;
        let as_it_should = match refused {
            None => told.is_none(),
            Some(why) => told.as_ref().is_some_and(|told| told.contains(why)),
        };
        ensure!(as_it_should, "{object:#}\nexpected {refused:?}, was told {told:?}");
    }

    // What its owner hands over it may take over, and may run as whom the namespace names.
    let adopt = json!({"metadata": {"annotations": {"fedq.dev/adopt": "true"}}});
    worker.merge(id(KUEUE, "ClusterQueue", "theirs"), Part::Whole, adopt).await?;
    let names = json!({"metadata": {"annotations": {"fedq.dev/service-accounts": "runner, admin"}}});
    worker.merge(id("v1", "Namespace", CASE), Part::Whole, names).await?;
    eventually("the namespace's word to be felt", SOON, async || {
        let told = account.tries(&Create(as_account(task(CASE), "/spec/template/spec", "admin")?)).await?;
        Ok(Seen::when(told.is_none(), || format!("{told:?}")))
    })
    .await?;
    let told = account
        .tries(&Merge(theirs("ClusterQueue"), json!({"metadata": {"labels": {HUB: "some-hub"}}})))
        .await?;
    ensure!(told.is_none(), "{told:?}");
    worker.delete(id("batch/v1", "Job", "theirs").within(CASE)).await?;
    worker.delete(id("v1", "Namespace", "bounded-ours")).await?;
    worker.delete(id(KUEUE, "ClusterQueue", "theirs")).await
}
