//! Who may make what of AppWrappers with the rights that are shipped, and whose they are said to be.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::appwrapper::{allow_limited_user, clear, components, ground as place, operators};
use super::appwrapper_hub::{forget_leases, hand_in, wrapper};
use super::appwrapper_stage::{APPWRAPPER, Operator};
use super::command_line::Person;
use super::rights::{POLICY, WORKER, kubeconfig_in, kubeconfig_of};
use super::stage::{GPU, KUEUE, PATIENT, SOON, Stage, ground, holds, queue};
use super::task_stage::{Bed, SHORT, give};
use crate::support::cluster::{Cluster, Part, client_of, id};
use crate::support::fleet::Fleet;
use crate::support::nodes::node;
use crate::support::wait::{Seen, eventually};

const WRAPPED: &str = include_str!("../../../deploy/worker/appwrapper.yaml");
const USER: &str = "workload.codeflare.dev/user";
const USER_ID: &str = "workload.codeflare.dev/userid";
const CASE: &str = "aw-shipped";
const OTHER: &str = "aw-shipped-other";
/// What a refused dispatch rests, after its tries.
const AFTER_A_REFUSAL: Duration = Duration::from_mins(4);

/// `deploy/worker/appwrapper.yaml` is what a dispatch takes, in each namespace: without it is said what is to be done.
pub async fn what_is_wrapped_is_granted_in_each_namespace_and_is_its_submitters(fleet: &Fleet) -> Result<()> {
    let (name, worker) =
        ("what_is_wrapped_is_granted_in_each_namespace_and_is_its_submitters", fleet.worker1());
    let tenant = |namespace: &str, users: &str| {
        format!("{{namespace: {namespace}, users: ['{users}'], queue: {CASE}}}")
    };
    let ann = format!("system:serviceaccount:fedq-{CASE}:ann");
    let tenants = [tenant(CASE, &ann), tenant(OTHER, "*")].join(", ");
    let tasks = format!("tasks: {{keepObjects: 20s, tenants: [{tenants}]}}");
    let stage = Stage::set_with(fleet, name, CASE, PATIENT, &tasks).await?;
    forget_leases(fleet).await?;
    let _running = Operator::Ours.start(fleet, worker, name).await?;
    worker.add_nodes(&[node(CASE, "a").gpus(8)]).await?;
    stage.hub().apply(&ground(CASE)).await?;
    stage.hub().apply(&queue(CASE, CASE, &[(GPU, "0")], "")).await?;
    let other = format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {OTHER}}}}}\n---\n{{apiVersion: {KUEUE}, kind: LocalQueue, \
         metadata: {{name: {CASE}, namespace: {OTHER}}}, spec: {{clusterQueue: {CASE}}}}}"
    );
    stage.hub().apply(&other).await?;
    for manifest in [WORKER, POLICY] {
        worker.apply(manifest).await?;
    }
    stage.put_secret("one", &kubeconfig_of(worker, "fedq")?).await?;
    give(&stage, "one", "8").await?;
    holds(worker, CASE, CASE, &[(GPU, "8")]).await?;
    let ann = Bed { stage: &stage, person: Person::new(&stage, "ann", Some("cluster-admin")).await? };
    let bob = Bed { stage: &stage, person: Person::new(&stage, "bob", Some("cluster-admin")).await? };

    let first = hand_in(&ann, &with_a_config_map("first")?)?;
    let bobs = hand_in(&bob, &with_a_config_map("bobs")?)?;
    lacks_a_right(&ann, &first, CASE).await?;
    lacks_a_right(&bob, &bobs, OTHER).await?;
    let there = worker.list(APPWRAPPER, "AppWrapper", None).await?;
    ensure!(there.is_empty(), "it was refused, and is there: {there:#?}");

    worker.apply(WRAPPED).await?;
    // The line that stands in that file.
    worker.kubectl(&[
        "create",
        "rolebinding",
        "fedq-wrapped",
        "-n",
        CASE,
        "--clusterrole",
        "fedq-wrapped",
        "--serviceaccount",
        "fedq-system:fedq",
    ])?;
    let account = stage.namespace();
    let account = stage.hub().get(id("v1", "ServiceAccount", "ann").within(&account)).await?;
    let uid = account.context("ann's account")?["metadata"]["uid"].clone();
    let labels = labels_of(&ann, worker, "second").await?;
    ensure!(labels[USER] == format!("system_serviceaccount_fedq-{CASE}_ann"), "{labels:#}");
    ensure!(labels[USER_ID] == uid, "{labels:#}, and her account has {uid}");
    lacks_a_right(&bob, &bobs, OTHER).await.context("in a namespace where it is not bound")?;
    eventually("what was refused to be tried again", AFTER_A_REFUSAL, async || {
        let status = ann.status(&first)?;
        Ok(Seen::when(status["phase"] == "succeeded", || format!("{status:#}")))
    })
    .await?;

    // Where fedq may not say in whose name it makes them they are its own, and whoever checks the cluster is told.
    let role = id("rbac.authorization.k8s.io/v1", "ClusterRole", "fedq-worker");
    let mut rules = worker.get(role).await?.context("its role")?["rules"].clone();
    rules.as_array_mut().context("rules")?.retain(|rule| rule["resources"] != json!(["appwrappers/user"]));
    worker.merge(role, Part::Whole, json!({"rules": rules})).await?;
    eventually("the right to be missed", SOON, async || {
        let told = ann.person.runs(&["check", "one"])?;
        let missed = told.stdout.contains("create appwrappers/user");
        Ok(Seen::when(missed, || format!("{told:?}")))
    })
    .await?;
    let labels = labels_of(&ann, worker, "third").await?;
    ensure!(labels[USER] == "system_serviceaccount_fedq-system_fedq", "{labels:#}");
    worker.apply(WORKER).await?;
    let there = worker.list(APPWRAPPER, "AppWrapper", Some(OTHER)).await?;
    ensure!(there.is_empty(), "it was refused, and is there: {there:#?}");
    bob.person.runs(&["appwrapper", "stop", &bobs])?.success()?;
    Ok(())
}

/// A Job and a Service, which fedq's account may create anywhere, and a kind that it may not.
fn with_a_config_map(name: &str) -> Result<Value> {
    let mut wrapper = wrapper(name, (1, 1), SHORT);
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let components = wrapper["spec"]["components"].as_array_mut().context("components")?;
    components.push(json!({"template": config}));
    Ok(wrapper)
}

async fn lacks_a_right(bed: &Bed<'_, '_>, id: &str, namespace: &str) -> Result<()> {
    let refused = format!("is not authorized to create configmaps in {namespace}");
    let next = format!(
        "apply deploy/worker/appwrapper.yaml there, and bind the ClusterRole fedq-wrapped of it in namespace {namespace}"
    );
    eventually("what is to be granted to be said", SOON, async || {
        let status = bed.status(id)?;
        let why = status["pendingReason"].as_str().unwrap_or_default();
        Ok(Seen::when(why.contains(&refused) && why.contains(&next), || format!("{status:#}")))
    })
    .await
}

/// Of one that is dispatched now.
async fn labels_of(bed: &Bed<'_, '_>, worker: &Cluster, name: &str) -> Result<Value> {
    let id = hand_in(bed, &with_a_config_map(name)?)?;
    bed.reaches(&id, "succeeded").await?;
    let there = bed.has(worker, (APPWRAPPER, "AppWrapper"), &id).await?;
    ensure!(there.len() == 1, "{there:#?}");
    Ok(there[0]["metadata"]["labels"].clone())
}

const WHOSE: &str = "aw-whose";

/// Whoever makes one, be it with all rights to AppWrappers or with all rights in their namespace.
pub async fn labels_name_who_asked_and_nobody_else_changes_them(fleet: &Fleet) -> Result<()> {
    let (name, worker) = ("labels_name_who_asked_and_nobody_else_changes_them", fleet.worker1());
    let _running = Operator::Ours.start(fleet, worker, name).await?;
    allow_limited_user(worker).await?;
    place(worker, WHOSE).await?;
    worker.apply(&people()).await?;
    let account = id("v1", "ServiceAccount", "runner").within(WHOSE);
    let uid = worker.get(account).await?.context("the account")?["metadata"]["uid"].clone();
    let uid = uid.as_str().context("its uid")?;
    let runner = format!("system_serviceaccount_{WHOSE}_runner");
    let certified = |user: &str| worker.kubeconfig_for(user, &[]);
    for (wrapper, kubeconfig, (user, user_id)) in [
        ("limited", certified("appwrapper-limited")?, ("appwrapper-limited", "")),
        ("runner", kubeconfig_in(worker, WHOSE, "runner")?, (runner.as_str(), uid)),
        // Who may do everything in the namespace, and was given that right there too.
        ("local", certified("whose-local")?, ("whose-local", "")),
        // Who makes them for others.
        ("namer", certified("whose-namer")?, ("root", "0")),
    ] {
        let api = Api::namespaced_with(client_of(&kubeconfig).await?, WHOSE, &operators::resource());
        is_whose(&api, wrapper, (user, user_id)).await.with_context(|| format!("made by {wrapper}"))?;
    }
    for wrapper in ["limited", "runner", "local", "namer"] {
        let this = id(APPWRAPPER, "AppWrapper", wrapper).within(WHOSE);
        worker.delete(this).await?;
        worker.wait_gone(this, SOON).await?;
    }
    clear(worker, WHOSE).await
}

fn people() -> String {
    let binding = |kind: &str, name: &str, role: &str, subject: &str| {
        let place = if kind == "RoleBinding" { format!(", namespace: {WHOSE}") } else { String::new() };
        format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: {kind}, metadata: {{name: {name}{place}}}, \
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {role}}}, subjects: [{subject}]}}"
        )
    };
    let user = |name: &str| format!("{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {name}}}");
    let runner = format!("{{kind: ServiceAccount, name: runner, namespace: {WHOSE}}}");
    let namer = "fedq-appwrapper-user-namer";
    [
        format!("{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: runner, namespace: {WHOSE}}}}}"),
        binding("RoleBinding", "whose-runner", "appwrapper-limited", &runner),
        binding("RoleBinding", "whose-local", "cluster-admin", &user("whose-local")),
        binding("RoleBinding", "whose-local-namer", namer, &user("whose-local")),
        binding("RoleBinding", "whose-namer", "appwrapper-limited", &user("whose-namer")),
        binding("ClusterRoleBinding", "whose-namer", namer, &user("whose-namer")),
    ]
    .join("\n---\n")
}

/// They say that it is root's when they make it, and try to say so again.
async fn is_whose(api: &Api<DynamicObject>, name: &str, (user, user_id): (&str, &str)) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": APPWRAPPER, "kind": "AppWrapper",
        "metadata": {
            "name": name, "namespace": WHOSE,
            "labels": {"kueue.x-k8s.io/queue-name": WHOSE, USER: "root", USER_ID: "0"},
        },
        "spec": {"suspend": true, "components": components(&["pod".to_owned()], name)?},
    }))?;
    let is_theirs = |made: &DynamicObject| {
        let labels = made.metadata.labels.clone().unwrap_or_default();
        let of = |label: &str| labels.get(label).map(String::as_str);
        ensure!(of(USER) == Some(user) && of(USER_ID) == Some(user_id), "{labels:?}");
        Ok(())
    };
    is_theirs(&api.create(&PostParams::default(), &object).await?)?;
    for (label, value) in [(USER, json!("eve")), (USER, Value::Null), (USER_ID, json!("1"))] {
        let patch = Patch::Merge(json!({"metadata": {"labels": {label: value}}}));
        match api.patch(name, &PatchParams::default(), &patch).await {
            Ok(_) => bail!("{label} was changed to {value}"),
            Err(error) => {
                let words = format!("metadata.labels[{label}]: Forbidden: attempt to change immutable field");
                ensure!(error.to_string().contains(&words), "refused otherwise: {error}");
            }
        }
    }
    let patch = Patch::Merge(json!({"metadata": {"labels": {"mine": "x"}}}));
    is_theirs(&api.patch(name, &PatchParams::default(), &patch).await?)
}
