//! What keeps a simulated cluster alive: Kueue, the runner of Jobs, the end of namespaces and of objects
//! whose owners are gone. Each looks at everything anew when something changed.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::api::{Internal, write_internally};
use super::cluster::State;
use super::garbage;
use super::kind::{KINDS, Kind};
use super::kueue::{self, Effect};
use super::rbac::User;
use super::store::Name;

/// So many changes at once are looked at together.
const SETTLE: Duration = Duration::from_millis(10);
/// A round that still finds something to do is followed by another, up to so many.
const ROUNDS: usize = 50;
const KUEUE: &str = "kueue";
const CONTROLLER_MANAGER: &str = "kube-controller-manager";
const APP_WRAPPERS: &str = "appwrapper-controller";
/// What AppWrappers may have in them here besides Jobs.
const WRAPPED: [&str; 2] = ["Service", "ConfigMap"];

pub(super) async fn run(state: Arc<State>, cancel: CancellationToken) {
    let mut moved = state.store.moved();
    loop {
        moved.mark_unchanged();
        for _ in 0..ROUNDS {
            let before = state.store.version();
            round(&state).await;
            // A write that was refused, or changed nothing, is no reason for another round.
            if state.store.version() == before {
                break;
            }
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = moved.changed() => tokio::time::sleep(SETTLE).await,
            () = tokio::time::sleep(state.period) => {}
        }
    }
}

async fn round(state: &Arc<State>) {
    if state.serves(Kind::named("ClusterQueue").expect("served")) {
        for effect in kueue::reconcile(&view(state), state.now()) {
            apply(state, KUEUE, effect).await;
        }
    }
    let jobs =
        kueue::JobsView { jobs: all(state, "Job"), pods: all(state, "Pod"), nodes: all(state, "Node") };
    for effect in kueue::run_jobs(&jobs, state.now()) {
        apply(state, CONTROLLER_MANAGER, effect).await;
    }
    if state.runs_app_wrappers() {
        let wrappers = kueue::WrappersView {
            app_wrappers: all(state, "AppWrapper"),
            jobs: all(state, "Job"),
            pods: all(state, "Pod"),
            objects: WRAPPED.into_iter().map(|kind| (kind, all(state, kind))).collect(),
        };
        for effect in kueue::run_app_wrappers(&wrappers, state.now()) {
            apply(state, APP_WRAPPERS, effect).await;
        }
    }
    end_namespaces(state).await;
    garbage::collect(state).await;
    issue_tokens(state).await;
}

fn all(state: &State, kind: &str) -> kueue::Objects {
    let kind = Kind::named(kind).expect("a kind that is served");
    state.store.list(kind, None).0.into_iter().collect()
}

fn view(state: &State) -> kueue::View {
    kueue::View {
        cluster_queues: all(state, "ClusterQueue"),
        local_queues: all(state, "LocalQueue"),
        flavors: all(state, "ResourceFlavor"),
        cohorts: all(state, "Cohort"),
        checks: all(state, "AdmissionCheck"),
        workloads: all(state, "Workload"),
        jobs: all(state, "Job"),
        app_wrappers: all(state, "AppWrapper"),
        namespaces: all(state, "Namespace"),
        topologies: all(state, "Topology"),
        priority_classes: all(state, "WorkloadPriorityClass"),
        pod_priority_classes: all(state, "PriorityClass"),
    }
}

async fn apply(state: &Arc<State>, manager: &str, effect: Effect) {
    let (kind, name, what) = match effect {
        Effect::Create { kind, object } => return create(state, manager, kind, object).await,
        Effect::Status { kind, namespace, name, status } => {
            (kind, (namespace, name), Internal::Status(status))
        }
        Effect::Patch { kind, namespace, name, patch } => (kind, (namespace, name), Internal::Patch(patch)),
        Effect::Delete { kind, namespace, name } => (kind, (namespace, name), Internal::Delete),
    };
    let Some(kind) = Kind::named(kind) else { return };
    write_as(state, manager, kind, name, what).await;
}

/// A status is not part of what is created, so it follows.
async fn create(state: &Arc<State>, manager: &str, kind: &str, object: Value) {
    let Some(kind) = Kind::named(kind) else { return };
    let name = super::store::name_of(&object);
    let status = object.get("status").filter(|_| kind.status).cloned();
    write_as(state, manager, kind, name.clone(), Internal::Create(object)).await;
    if let Some(status) = status {
        write_as(state, manager, kind, name, Internal::Status(status)).await;
    }
}

/// A write of the controller manager.
pub(super) async fn write(state: &Arc<State>, kind: &'static Kind, name: &Name, what: Internal) {
    write_as(state, CONTROLLER_MANAGER, kind, name.clone(), what).await;
}

/// What could not be written is looked at again in the next round.
async fn write_as(state: &Arc<State>, manager: &str, kind: &'static Kind, name: Name, what: Internal) {
    if let Err(refusal) = write_internally(state, manager, kind, name, what).await {
        debug!("A controller's write was refused: {}", refusal.message);
    }
}

/// A namespace that is to go takes all that is in it along.
async fn end_namespaces(state: &Arc<State>) {
    let namespaces = Kind::named("Namespace").expect("served");
    for ((_, name), namespace) in state.store.list(namespaces, None).0 {
        if namespace["metadata"]["deletionTimestamp"].is_null() {
            continue;
        }
        let mut left = false;
        for kind in KINDS.iter().filter(|kind| kind.namespaced) {
            for (within, object) in state.store.list(kind, Some(&name)).0 {
                left = true;
                if object["metadata"]["deletionTimestamp"].is_null() {
                    write(state, kind, &within, Internal::Delete).await;
                }
            }
        }
        if !left {
            // Somebody may have been faster.
            let _ = state.store.commit(namespaces, &(String::new(), name), Some(&namespace), None);
        }
    }
}

/// Secrets made for the token of an account get it.
async fn issue_tokens(state: &Arc<State>) {
    let [secrets, accounts] = ["Secret", "ServiceAccount"].map(|kind| Kind::named(kind).expect("served"));
    for (name, secret) in state.store.list(secrets, None).0 {
        if secret["type"] != "kubernetes.io/service-account-token" || secret["data"]["token"].is_string() {
            continue;
        }
        let account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"].as_str();
        let Some(account) = account.map(str::to_owned) else { continue };
        if state.store.get(accounts, &(name.0.clone(), account.clone())).is_none() {
            continue;
        }
        let token = state.new_token(User::account(&name.0, &account), None);
        let data =
            json!({"token": super::base64(token.as_bytes()), "namespace": super::base64(name.0.as_bytes())});
        let what = Internal::Patch(json!({"data": data}));
        write(state, secrets, &name, what).await;
    }
}
