//! A simulated cluster: what it holds, whom it knows, where it listens.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::callers::{Authority, Identity, NotAccepted, Shown};
use super::counts::Counts;
use super::faults::{Faults, Plan};
use super::kind::{APP_WRAPPERS_GROUP, KINDS, Kind, OCM_GROUP, PROFILES_GROUP};
use super::logs::Logs;
use super::nodes::{Herd, ServedHerd, Template};
use super::rbac::User;
use super::status::Refusal;
use super::store::{Snapshot, Store, name_of};
use super::structure::Structure;
use super::{api, controllers, server};
use fedq_base::certificate::ServingCertificate;
use fedq_base::clock::Clock;

/// What is asked of a new cluster.
#[derive(Clone, Debug)]
pub struct Options {
    pub name: String,
    /// Clusters may share one; each port is its own.
    pub address: IpAddr,
    /// 0 for any that is free.
    pub port: u16,
    /// Groups that it does not serve, as a cluster without Kueue.
    pub without: Vec<&'static str>,
    /// Whether it serves OCM's kinds of clusters and placement; nobody acts on them.
    pub ocm: bool,
    /// Whether Kueue and the other controllers run in it.
    pub controllers: bool,
    /// How often those look around when nothing was written: Jobs end by the clock.
    pub period: Duration,
    /// The version that its objects begin at.
    pub version: u64,
    /// Its nodes, when there are too many to be kept as objects; one that is written to becomes an object.
    pub herd: Option<HerdOptions>,
}

#[derive(Clone, Debug)]
pub struct HerdOptions {
    pub template: Arc<Template>,
    /// In every name; no two clusters of one fleet share it.
    pub number: u16,
    pub nodes: usize,
}

impl Options {
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            without: Vec::new(),
            ocm: false,
            controllers: true,
            period: Duration::from_millis(500),
            version: 1000,
            herd: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot issue a certificate")]
    Certificate(#[from] fedq_base::certificate::CertificateError),
    #[error("cannot put in what every cluster has: {}", .0.message)]
    Furnish(Box<Refusal>),
}

/// What handlers and controllers share.
#[derive(Debug)]
pub struct State {
    pub name: String,
    pub store: Store,
    pub counts: Counts,
    pub logs: Logs,
    pub faults: Faults,
    /// Of somebody else, made when it is needed.
    wrong_certificate: OnceLock<Option<Arc<ServerConfig>>>,
    /// Serves beside the store's nodes.
    herd: Option<ServedHerd>,
    without: RwLock<Vec<&'static str>>,
    /// Fields that its definitions of custom resources lack, by their kinds.
    lacking: RwLock<Vec<(&'static str, &'static str)>>,
    ocm: AtomicBool,
    /// Whether it knows AppWrappers, and whether something runs them.
    app_wrappers: AtomicBool,
    runs_app_wrappers: AtomicBool,
    pub(super) period: Duration,
    tokens: Mutex<BTreeMap<String, (User, Option<Timestamp>)>>,
    /// Of callers with certificates.
    authority: Authority,
    clock: Clock,
    /// Its clock is ahead by so many milliseconds.
    ahead: AtomicI64,
    serial: AtomicU64,
}

pub struct Cluster {
    pub state: Arc<State>,
    pub address: SocketAddr,
    certificate: ServingCertificate,
    serving: Mutex<Serving>,
    /// Its port while it is switched off: connections are refused, and nobody else gets it.
    reserved: Mutex<Option<TcpSocket>>,
    /// Whether it has controllers.
    controllers: bool,
    backup: Mutex<Snapshot>,
}

/// Ends with the value: nothing outlives the cluster.
struct Serving {
    cancel: CancellationToken,
    tasks: JoinSet<()>,
}

impl Cluster {
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let address = SocketAddr::new(options.address, options.port);
        let listener = server::listen(address).await;
        let listener = listener.map_err(|source| StartError::Listen { address, source })?;
        let address = listener.local_addr().map_err(|source| StartError::Listen { address, source })?;
        let clock = Clock::system();
        let names = [address.ip().to_string(), "localhost".to_owned(), "kubernetes.default.svc".to_owned()];
        let certificate = ServingCertificate::issue(&names, clock.now())?;
        let state = Arc::new(State {
            name: options.name,
            store: Store::new(options.version),
            counts: Counts::default(),
            logs: Logs::default(),
            faults: Faults::default(),
            wrong_certificate: OnceLock::new(),
            herd: options.herd.map(|herd| {
                let HerdOptions { template, number, nodes } = herd;
                ServedHerd::new(Herd::new(template, number, nodes, options.version, clock.now()))
            }),
            without: RwLock::new(options.without),
            lacking: RwLock::default(),
            ocm: AtomicBool::new(options.ocm),
            app_wrappers: AtomicBool::new(false),
            runs_app_wrappers: AtomicBool::new(false),
            period: options.period,
            tokens: Mutex::default(),
            authority: Authority::new()?,
            clock,
            ahead: AtomicI64::new(0),
            serial: AtomicU64::new(0),
        });
        furnish(&state).await.map_err(|refusal| StartError::Furnish(Box::new(refusal)))?;
        let backup = Mutex::new(state.store.snapshot());
        let mut serving = Serving { cancel: CancellationToken::new(), tasks: JoinSet::new() };
        let tls = tls(&certificate, &state)?;
        serving.tasks.spawn(server::serve(listener, tls, Arc::clone(&state), serving.cancel.clone()));
        if options.controllers {
            serving.tasks.spawn(controllers::run(Arc::clone(&state), serving.cancel.clone()));
        }
        Ok(Self {
            state,
            address,
            certificate,
            serving: Mutex::new(serving),
            reserved: Mutex::default(),
            controllers: options.controllers,
            backup,
        })
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A kubeconfig with everything inline, for somebody in these groups.
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> String {
        let token = self.state.new_token(User::new(user, groups), None);
        self.kubeconfig_with(user, &json!({"token": token}))
    }

    /// The same of a ServiceAccount, with a token that is good until then.
    pub fn kubeconfig_of_account(&self, namespace: &str, name: &str, until: Timestamp) -> String {
        let token = self.state.new_token(User::account(namespace, name), Some(until));
        self.kubeconfig_with(name, &json!({"token": token}))
    }

    /// The same with a certificate, which is good until then.
    pub fn kubeconfig_until(&self, user: &str, group: &str, until: Timestamp) -> Result<String, StartError> {
        let Identity { certificate, key } = self.state.sign(user, group, until)?;
        let credential = json!({
            "client-certificate-data": super::base64(certificate.as_bytes()),
            "client-key-data": super::base64(key.as_bytes()),
        });
        Ok(self.kubeconfig_with(user, &credential))
    }

    fn kubeconfig_with(&self, user: &str, credential: &Value) -> String {
        let authority = super::base64(self.certificate.ca_bundle().as_bytes());
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": self.state.name,
            "clusters": [{"name": self.state.name, "cluster": {
                "server": self.url(), "certificate-authority-data": authority,
            }}],
            "users": [{"name": user, "user": credential}],
            "contexts": [{"name": self.state.name, "context": {"cluster": self.state.name, "user": user}}],
        });
        config.to_string()
    }

    /// Switched off: connections break, nobody answers, what it holds stays.
    pub async fn power_off(&self) {
        let mut old = {
            let mut serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
            let new = Serving { cancel: CancellationToken::new(), tasks: JoinSet::new() };
            std::mem::replace(&mut *serving, new)
        };
        old.cancel.cancel();
        old.tasks.shutdown().await;
        // Should somebody have been faster, that shows when it is switched on.
        *self.reserved.lock().unwrap_or_else(PoisonError::into_inner) = server::reserve(self.address).ok();
    }

    /// Back on the same address.
    pub async fn power_on(&self) -> Result<(), StartError> {
        let address = self.address;
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner).take();
        let listener = match reserved {
            Some(socket) => server::listen_on(socket),
            None => server::listen(address).await,
        };
        let listener = listener.map_err(|source| StartError::Listen { address, source })?;
        let tls = tls(&self.certificate, &self.state)?;
        let mut serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        let cancel = serving.cancel.clone();
        serving.tasks.spawn(server::serve(listener, tls, Arc::clone(&self.state), cancel.clone()));
        if self.controllers {
            serving.tasks.spawn(controllers::run(Arc::clone(&self.state), cancel));
        }
        Ok(())
    }

    /// From now on this is wrong with it, and nothing else; the default plan is an honest cluster.
    pub fn set_faults(&self, plan: Plan) {
        if plan.restores_a_backup() {
            let backup = self.backup.lock().unwrap_or_else(PoisonError::into_inner).clone();
            self.state.store.restore(backup);
        }
        if plan.changes_identity() {
            self.change_identity();
        }
        self.state.faults.set(plan);
    }

    /// What `restored-etcd` goes back to; before the first one, the empty cluster.
    pub fn take_backup(&self) {
        *self.backup.lock().unwrap_or_else(PoisonError::into_inner) = self.state.store.snapshot();
    }

    /// As if somebody had set up another cluster and put the same objects in.
    fn change_identity(&self) {
        let kind = Kind::named("Namespace").expect("namespaces are served");
        let name = (String::new(), "kube-system".to_owned());
        while let Some(before) = self.state.store.get(kind, &name) {
            let mut after = before.as_ref().clone();
            after["metadata"]["uid"] = json!(self.state.new_uid());
            if self.state.store.commit(kind, &name, Some(&before), Some(after)).is_ok() {
                return;
            }
        }
    }

    /// Puts an object in, past authorization and webhooks.
    pub async fn put(&self, object: Value) -> Result<(), Refusal> {
        put(&self.state, object).await
    }

    /// A merge patch by `admin`.
    pub async fn merge(&self, kind: &str, name: &str, patch: Value) -> Result<(), Refusal> {
        self.merge_in("", kind, name, patch).await
    }

    /// The same in a namespace.
    pub async fn merge_in(
        &self,
        namespace: &str,
        kind: &str,
        name: &str,
        patch: Value,
    ) -> Result<(), Refusal> {
        let kind = Kind::named(kind).ok_or_else(Refusal::no_resource)?;
        let what = api::Internal::Patch(patch);
        api::write_internally(&self.state, "admin", kind, (namespace.to_owned(), name.to_owned()), what).await
    }

    /// A merge patch of the status, as the kind's own controller writes it.
    pub async fn set_status(&self, kind: &str, name: &str, status: Value) -> Result<(), Refusal> {
        self.set_status_in("", kind, name, status).await
    }

    /// The same in a namespace.
    pub async fn set_status_in(
        &self,
        namespace: &str,
        kind: &str,
        name: &str,
        status: Value,
    ) -> Result<(), Refusal> {
        let kind = Kind::named(kind).ok_or_else(Refusal::no_resource)?;
        let what = api::Internal::Status(status);
        api::write_internally(&self.state, "admin", kind, (namespace.to_owned(), name.to_owned()), what).await
    }

    pub async fn remove(&self, kind: &str, name: &str) -> Result<(), Refusal> {
        self.remove_in("", kind, name).await
    }

    /// The same in a namespace.
    pub async fn remove_in(&self, namespace: &str, kind: &str, name: &str) -> Result<(), Refusal> {
        let kind = Kind::named(kind).ok_or_else(Refusal::no_resource)?;
        let name = (namespace.to_owned(), name.to_owned());
        api::write_internally(&self.state, "admin", kind, name, api::Internal::Delete).await
    }

    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.state.store.get(Kind::named(kind)?, &(namespace.to_owned(), name.to_owned()))
    }

    pub fn list(&self, kind: &str) -> Vec<Arc<Value>> {
        let Some(kind) = Kind::named(kind) else { return Vec::new() };
        self.state.store.list(kind, None).0.into_iter().map(|(_, object)| object).collect()
    }
}

fn tls(certificate: &ServingCertificate, state: &State) -> Result<Arc<ServerConfig>, StartError> {
    Ok(certificate.server_config_for(state.authority.asks())?)
}

async fn put(state: &Arc<State>, object: Value) -> Result<(), Refusal> {
    let named = object["kind"].as_str().and_then(Kind::named).ok_or_else(Refusal::no_resource)?;
    let name = name_of(&object);
    let status = object.get("status").cloned();
    api::write_internally(state, "admin", named, name.clone(), api::Internal::Create(object)).await?;
    let Some(status) = status.filter(|_| named.status) else { return Ok(()) };
    loop {
        let what = api::Internal::Status(status.clone());
        match api::write_internally(state, "admin", named, name.clone(), what).await {
            // A controller has seen the new object already, and written first.
            Err(refusal) if refusal.reason == "Conflict" => {}
            done => return done,
        }
    }
}

/// What every cluster has.
async fn furnish(state: &Arc<State>) -> Result<(), Refusal> {
    for name in ["default", "kube-system", "kube-public", "kueue-system"] {
        if name == "kueue-system" && state.lacks("kueue.x-k8s.io") {
            continue;
        }
        put(state, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await?;
    }
    for (name, rule) in [
        ("cluster-admin", json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]})),
        ("view", json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]})),
    ] {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": [rule],
        });
        put(state, role).await?;
    }
    Ok(())
}

impl State {
    pub fn serves(&self, kind: &Kind) -> bool {
        let installed =
            ![OCM_GROUP, PROFILES_GROUP].contains(&kind.group) || self.ocm.load(Ordering::Relaxed);
        let installed =
            installed && (kind.group != APP_WRAPPERS_GROUP || self.app_wrappers.load(Ordering::Relaxed));
        installed && !self.lacks(kind.group) && !self.lacks(kind.plural)
    }

    fn lacks(&self, group: &str) -> bool {
        self.without.read().unwrap_or_else(PoisonError::into_inner).contains(&group)
    }

    /// From now on it knows the kind; `run`: and a controller makes what is wrapped.
    pub fn serve_app_wrappers(&self, run: bool) {
        self.app_wrappers.store(true, Ordering::Relaxed);
        self.runs_app_wrappers.store(run, Ordering::Relaxed);
    }

    pub(super) fn runs_app_wrappers(&self) -> bool {
        self.runs_app_wrappers.load(Ordering::Relaxed)
    }

    /// As when CRDs are removed: their objects go with them, and whoever watches them has to come back.
    pub fn uninstall(&self, group: &'static str) {
        self.without.write().unwrap_or_else(PoisonError::into_inner).push(group);
        for kind in KINDS.iter().filter(|kind| kind.group == group) {
            for (name, object) in self.store.list(kind, None).0 {
                // Whoever changes it meanwhile has no door to it any more.
                let _ = self.store.commit(kind, &name, Some(&object), None);
            }
        }
        self.faults.break_connections();
    }

    /// As a server that has just started and does not serve the kinds of a group yet, or one kind (its plural); their
    /// objects are kept. Until they are installed.
    pub fn withhold(&self, what: &'static str) {
        self.without.write().unwrap_or_else(PoisonError::into_inner).push(what);
        self.faults.break_connections();
    }

    pub fn install(&self, what: &str) {
        self.without.write().unwrap_or_else(PoisonError::into_inner).retain(|lacking| *lacking != what);
    }

    /// As when an older definition of a custom resource is installed, which lacks a field: `spec.fairSharing`. Objects
    /// lose what is there.
    pub fn forget_field(&self, kind: &'static str, field: &'static str) {
        self.lacking.write().unwrap_or_else(PoisonError::into_inner).push((kind, field));
        let Some(kind) = Kind::named(kind) else { return };
        for (name, _) in self.store.list(kind, None).0 {
            while let Some(before) = self.store.get(kind, &name) {
                let mut after = before.as_ref().clone();
                if self.take_unknown(kind, &mut after).is_empty()
                    || self.store.commit(kind, &name, Some(&before), Some(after)).is_ok()
                {
                    break;
                }
            }
        }
    }

    /// As when definitions are up to date again.
    pub fn know_all_fields(&self) {
        self.lacking.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Takes out of the object what no field is declared for, and says where it was.
    pub(super) fn take_unknown(&self, kind: &Kind, object: &mut Value) -> Vec<String> {
        let mut unknown = Structure::of(kind).prune(object);
        let lacking = self.lacking.read().unwrap_or_else(PoisonError::into_inner);
        for (_, field) in lacking.iter().filter(|(of, _)| *of == kind.kind) {
            let (parent, name) = field.rsplit_once('.').expect("a field of the spec or of the status");
            let parent = format!("/{}", parent.replace('.', "/"));
            let fields = object.pointer_mut(&parent).and_then(Value::as_object_mut);
            if fields.is_some_and(|fields| fields.shift_remove(name).is_some()) {
                unknown.push((*field).to_owned());
            }
        }
        unknown
    }

    /// As after the CRDs were installed, or removed with all their objects kept out of sight.
    pub fn serve_ocm(&self, serves: bool) {
        self.ocm.store(serves, Ordering::Relaxed);
    }

    pub fn herd(&self) -> Option<&ServedHerd> {
        self.herd.as_ref()
    }

    /// The herd, if this kind's objects are of it.
    pub(super) fn herd_of(&self, kind: &Kind) -> Option<&ServedHerd> {
        self.herd.as_ref().filter(|_| kind.kind == "Node")
    }

    pub fn now(&self) -> Timestamp {
        let ahead = SignedDuration::from_millis(self.ahead.load(Ordering::Relaxed));
        let now = self.clock.now();
        now.checked_add(ahead).unwrap_or(now)
    }

    /// Its clock jumps ahead, or back.
    pub fn jump(&self, by: SignedDuration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or_default();
        self.ahead.fetch_add(millis, Ordering::Relaxed);
    }

    pub(super) fn wrong_certificate(&self) -> Option<Arc<ServerConfig>> {
        let issue = || {
            let names = ["kubernetes.invalid".to_owned()];
            ServingCertificate::issue(&names, self.clock.now()).ok()?.server_config().ok()
        };
        self.wrong_certificate.get_or_init(issue).clone()
    }

    /// A certificate for somebody in one group, good until then.
    pub fn sign(&self, user: &str, group: &str, until: Timestamp) -> Result<Identity, StartError> {
        Ok(self.authority.sign(user, group, until)?)
    }

    /// Who called, if they showed a certificate.
    pub(super) fn caller(&self, shown: &Shown) -> Result<Option<User>, NotAccepted> {
        self.authority.caller(shown, self.now())
    }

    pub fn user_of(&self, token: &str) -> Option<User> {
        let now = self.now();
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let (user, until) = tokens.get(token)?;
        until.is_none_or(|until| now < until).then(|| user.clone())
    }

    /// A JSON web token to look at, as a real server's; nobody signs it.
    pub fn new_token(&self, user: User, until: Option<Timestamp>) -> String {
        let claims = json!({
            "iss": "sim", "sub": user.name, "iat": self.now().as_second(), "exp": until.map(Timestamp::as_second),
        });
        let part = |value: &Value| {
            let text = super::base64(value.to_string().as_bytes()).replace('+', "-").replace('/', "_");
            text.trim_end_matches('=').to_owned()
        };
        let token =
            format!("{}.{}.sim-{:032x}", part(&json!({"alg": "none"})), part(&claims), fastrand::u128(..));
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), (user, until));
        token
    }

    /// Every token of a user is worth nothing from now on.
    pub fn revoke(&self, user: &str) {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, (known, _)| known.name != user);
    }

    pub fn new_uid(&self) -> String {
        let [high, low] = [fastrand::u64(..), fastrand::u64(..)];
        let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xfff);
        format!(
            "{a:08x}-{b:04x}-4{c:03x}-{:04x}-{:012x}",
            0x8000 | (low >> 48 & 0x3fff),
            low & 0xffff_ffff_ffff
        )
    }

    pub fn audit_id(&self) -> HeaderValue {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        HeaderValue::from_str(&format!("00000000-0000-4000-8000-{serial:012x}"))
            .unwrap_or(HeaderValue::from_static("0"))
    }

    pub fn version(&self) -> Value {
        json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.3+sim", "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "2026-11-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64",
        })
    }
}

/// Until something is true of a cluster, looked at when it changes.
pub async fn until(state: &State, within: Duration, mut holds: impl FnMut(&Store) -> bool) -> bool {
    let mut moved = state.store.moved();
    let waiting = async {
        while !holds(&state.store) {
            if moved.changed().await.is_err() {
                return;
            }
        }
    };
    tokio::time::timeout(within, waiting).await.is_ok()
}
