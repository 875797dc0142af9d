//! The demo's clusters and its fedqd.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use futures::{FutureExt, future::LocalBoxFuture};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    DemoError, dispatch::Dispatcher, folder, objects, quotas::Quotas, screen::Screen, shell::Shell, task,
};
use fedq_base::telemetry;
use fedq_daemon::{
    config::{Config, Listen, PodConfig, Tenant, TenantLimits},
    host::Host,
};
use fedq_k8s::types::claim::REVIEW_PATH;
use fedq_sim::{
    cluster::{Cluster, Options},
    rbac::User,
    status::Refusal,
};

pub const LOG: &str = "fedqd.log";
pub const ENVIRONMENT: &str = "env";
/// What `fedq` reads: where the server is, and a token.
const CONNECTION: &str = "fedq.yaml";
/// For people, with a context for each cluster.
pub const KUBECONFIG: &str = "kubeconfig";
const OWN_KUBECONFIG: &str = "fedqd.kubeconfig";
const CONFIGURATION: &str = "fedqd.yaml";
const DATABASE: &str = "fedq.db";
/// What kubectl remembers of the clusters, which are gone with the demo.
const KUBECTL: &str = "kubectl";
/// For whoever wants to submit work.
pub const JOB: &str = "job.yaml";
pub const TASK: &str = "task.yaml";
/// All that is written to the folder.
pub const FILES: [&str; 14] = [
    LOG,
    ENVIRONMENT,
    CONNECTION,
    KUBECONFIG,
    OWN_KUBECONFIG,
    CONFIGURATION,
    DATABASE,
    JOB,
    TASK,
    "fedq.db-wal",
    "fedq.db-shm",
    "fedq.db.lock",
    "task-logs",
    KUBECTL,
];

/// Much longer than anything of the story takes, also on a machine with much else to do.
const WITHIN: Duration = Duration::from_secs(45);
const POLL: Duration = Duration::from_millis(40);
/// After which a wait is worth a word.
const LONG: Duration = Duration::from_secs(1);

/// How soon a silent cluster is given up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pace {
    /// While somebody looks on.
    Quick,
    /// Somebody tries things out.
    Patient,
}

impl Pace {
    fn request_timeout(self) -> Duration {
        Duration::from_secs(match self {
            Self::Quick => 3,
            Self::Patient => 5,
        })
    }

    fn stale_after(self) -> Duration {
        Duration::from_secs(match self {
            Self::Quick => 4,
            Self::Patient => 10,
        })
    }

    /// 15 minutes by default.
    pub fn lost_timeout(self) -> Duration {
        Duration::from_secs(match self {
            Self::Quick => 8,
            Self::Patient => 60,
        })
    }
}

pub struct Stage {
    /// The hub first.
    clusters: Vec<Cluster>,
    pub shell: Shell,
    pub pace: Pace,
    /// The address of the web page, and a token to log in with.
    pub page: (String, String),
    folder: PathBuf,
    _dispatching: JoinSet<()>,
}

impl Stage {
    pub async fn start(folder: &Path, pace: Pace, screen: &mut Screen) -> Result<(Self, Daemon), DemoError> {
        screen.waiting("starting");
        // Its address is registered before it serves.
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let webhook = TcpListener::bind(any).map_err(DemoError::Listen)?;
        let config = configuration(folder, pace, webhook.local_addr().map_err(DemoError::Listen)?);
        let log = folder.join(LOG);
        let file = folder::create(&log).map_err(|source| DemoError::Write { path: log, source })?;
        telemetry::init_to_file(&config.log.level, file)?;
        fedq_daemon::host::use_ring();

        let mut clusters = vec![hub(config.webhook.url.as_deref().unwrap_or_default()).await?];
        for worker in &objects::WORKERS {
            clusters.push(start(worker.name, objects::nodes(worker)).await?);
        }
        folder::write(&folder.join(KUBECONFIG), &kubeconfig(&clusters))?;
        let own = clusters[0].kubeconfig(objects::FEDQD, &["system:serviceaccounts:fedq-system"]);
        folder::write(&folder.join(OWN_KUBECONFIG), &own)?;
        folder::write(&folder.join(CONFIGURATION), &config.to_yaml().map_err(DemoError::Yaml)?)?;

        let job = serde_saphyr::to_string(&objects::job("vision", "segment", "a100", 1));
        folder::write(&folder.join(JOB), &job.map_err(DemoError::Yaml)?)?;
        folder::write(&folder.join(TASK), task::TASK)?;

        let (daemon, server) = Daemon::start(config, webhook).await?;
        let token = clusters[0].state.new_token(User::new(objects::ADMIN, &[]), None);
        let page = (format!("http://{server}/ui/"), token.clone());
        let connection = json!({"server": format!("http://{server}"), "token": token});
        folder::write(&folder.join(CONNECTION), &format!("{connection}\n"))?;
        let shell = Shell::new(folder, &folder.join(CONNECTION))?;
        folder::write(&folder.join(ENVIRONMENT), &environment(folder, shell.program()))?;
        let mut dispatching = JoinSet::new();
        dispatching.spawn(Dispatcher::new(&clusters[0], &clusters[1..]).run());
        let folder = folder.to_owned();
        Ok((Self { clusters, shell, pace, page, folder, _dispatching: dispatching }, daemon))
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn hub(&self) -> &Cluster {
        &self.clusters[0]
    }

    pub fn cluster(&self, name: &str) -> &Cluster {
        let found = self.clusters.iter().find(|cluster| cluster.state.name == name);
        found.expect("the story names clusters that are there")
    }

    pub fn workers(&self) -> &[Cluster] {
        &self.clusters[1..]
    }

    pub fn quotas(&self) -> Quotas {
        Quotas::read(&self.clusters)
    }

    pub async fn power_on(&self, name: &str) -> Result<(), DemoError> {
        let on = self.cluster(name).power_on().await;
        on.map_err(|source| DemoError::Start { name: name.to_owned(), source })
    }

    /// Waits until something is true of the clusters; `found` says what there is instead.
    pub async fn until(
        &self,
        what: &str,
        screen: &mut Screen,
        holds: impl FnMut() -> bool,
        found: impl Fn() -> String,
    ) -> Result<(), DemoError> {
        until(WITHIN, what, screen, holds, found).await
    }
}

async fn until(
    within: Duration,
    what: &str,
    screen: &mut Screen,
    mut holds: impl FnMut() -> bool,
    found: impl Fn() -> String,
) -> Result<(), DemoError> {
    let begun = Instant::now();
    let mut told = false;
    while !holds() {
        let waited = begun.elapsed();
        if within < waited {
            return Err(DemoError::InVain { what: what.to_owned(), after: within, found: found() });
        }
        let text = format!("waiting until {what}");
        screen.waiting(&text);
        if LONG < waited && !told {
            screen.waits_on(&text);
            told = true;
        }
        tokio::time::sleep(POLL).await;
    }
    screen.done();
    Ok(())
}

/// A fedqd, which gets on while [`Daemon::ended`] or [`Daemon::stop`] is awaited.
pub struct Daemon {
    cancel: CancellationToken,
    serving: Option<LocalBoxFuture<'static, anyhow::Result<()>>>,
}

impl Daemon {
    /// Ready, with the address of its API.
    async fn start(config: Config, webhook: TcpListener) -> Result<(Self, SocketAddr), DemoError> {
        let host = Host { webhook: Some(webhook), ..Host::default() };
        let cancel = host.cancel.clone();
        let (mut api, mut ready) = (host.api.subscribe(), host.ready.subscribe());
        let mut daemon = Self { cancel, serving: Some(fedq_daemon::serve(config, host).boxed_local()) };
        let address = async {
            ready.wait_for(|ready| *ready).await.ok()?;
            *api.wait_for(Option::is_some).await.ok()?
        };
        tokio::select! {
            Some(address) = address => Ok((daemon, address)),
            reason = daemon.ended() => Err(DemoError::Daemon { reason }),
        }
    }

    /// Why it ended.
    pub async fn ended(&mut self) -> String {
        let Some(serving) = &mut self.serving else { return std::future::pending().await };
        let ended = serving.await;
        self.serving = None;
        ended.map_or_else(|error| format!("{error:#}"), |()| "it was stopped".to_owned())
    }

    /// Waits until what is under way is done.
    pub async fn stop(&mut self) {
        self.cancel.cancel();
        if self.serving.is_some() {
            self.ended().await;
        }
    }
}

async fn hub(webhook: &str) -> Result<Cluster, DemoError> {
    let mut objects = objects::manifests()?;
    for object in &mut objects {
        objects::by_url(object, webhook);
    }
    objects.extend(objects::multikueue());
    objects.extend(objects::queues());
    start("hub", objects).await
}

async fn start(name: &str, objects: Vec<Value>) -> Result<Cluster, DemoError> {
    let started = Cluster::start(Options::named(name)).await;
    let cluster = started.map_err(|source| DemoError::Start { name: name.to_owned(), source })?;
    put(&cluster, objects::administrator()).await?;
    for object in objects {
        put(&cluster, object).await?;
    }
    Ok(cluster)
}

pub async fn put(cluster: &Cluster, object: Value) -> Result<(), DemoError> {
    taken(cluster, cluster.put(object).await)
}

/// What one of the demo's own writes came to.
pub fn taken(cluster: &Cluster, done: Result<(), Refusal>) -> Result<(), DemoError> {
    done.map_err(|refusal| DemoError::Refused {
        cluster: cluster.state.name.clone(),
        message: refusal.message,
    })
}

fn configuration(folder: &Path, pace: Pace, webhook: SocketAddr) -> Config {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut config = Config::default();
    config.hub.kubeconfig = Some(folder.join(OWN_KUBECONFIG));
    config.store.path = folder.join(DATABASE);
    config.api.address = any;
    config.metrics.address = any;
    config.webhook.address = Listen::At(webhook);
    config.webhook.url = Some(format!("https://{webhook}{REVIEW_PATH}"));
    let namespace = objects::TENANT.to_owned();
    let (users, queue) = (vec!["*".to_owned()], Some(objects::QUEUE.to_owned()));
    config.tasks.tenants = vec![Tenant {
        namespace,
        users,
        queue,
        groups: Vec::new(),
        service_account: None,
        pod_config: PodConfig::default(),
        limits: TenantLimits::default(),
    }];
    // The simulated clusters are on this machine.
    config.clusters.allow_loopback = true;
    config.clusters.request_timeout = pace.request_timeout();
    config.clusters.stale_after = pace.stale_after();
    config.clusters.lost_timeout = pace.lost_timeout();
    config
}

/// One for all clusters, the hub's context being the current one.
fn kubeconfig(clusters: &[Cluster]) -> String {
    let mut all = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": clusters[0].state.name,
        "clusters": [], "users": [], "contexts": [],
    });
    for cluster in clusters {
        let name = &cluster.state.name;
        // JSON, as it comes from the simulation.
        let mut one: Value =
            serde_json::from_str(&cluster.kubeconfig(objects::ADMIN, &[])).unwrap_or_default();
        let user = format!("{}@{name}", objects::ADMIN);
        one["users"][0]["name"] = json!(user);
        one["contexts"][0]["context"]["user"] = json!(user);
        for part in ["clusters", "users", "contexts"] {
            if let Some(list) = all[part].as_array_mut() {
                list.push(one[part][0].take());
            }
        }
    }
    format!("{all:#}\n")
}

/// What a shell needs to talk to the demo, whether `fedq` is installed or not.
fn environment(folder: &Path, program: &Path) -> String {
    let programs = program.parent().unwrap_or(Path::new("/"));
    format!(
        "# Read it with `.` in a shell of your own.\n\
         export FEDQ_DEMO={folder}\n\
         export FEDQ_CONFIG=\"$FEDQ_DEMO/{CONNECTION}\"\n\
         export KUBECONFIG=\"$FEDQ_DEMO/{KUBECONFIG}\"\n\
         export KUBECACHEDIR=\"$FEDQ_DEMO/{KUBECTL}\"\n\
         export PATH={programs}:\"$PATH\"\n\
         unset FEDQ_SERVER FEDQ_TOKEN FEDQ_CA FEDQ_CA_FILE\n",
        folder = quoted(folder),
        programs = quoted(programs),
    )
}

/// For a shell.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_does_not_come_true_ends_the_demo_and_is_told() {
        let (mut screen, mut looks) = (Screen::stdout(false), 0);
        let third = || {
            looks += 1;
            looks == 3
        };
        until(WITHIN, "pigs fly", &mut screen, third, String::new).await.unwrap();
        assert_eq!(looks, 3);
        let never =
            until(Duration::ZERO, "pigs fly", &mut screen, || false, || "pigs on the ground".to_owned())
                .await;
        assert_eq!(
            never.unwrap_err().to_string(),
            "waited 0 s in vain until pigs fly; there is\npigs on the ground"
        );
    }

    #[test]
    fn a_shell_reads_the_environment_whatever_the_folder_is_called() {
        let text = environment(Path::new("/tmp/it's $HOME"), Path::new("/a b/fedq"));
        let script = format!("{text}\nprintf '%s|%s|%s' \"$FEDQ_DEMO\" \"$KUBECONFIG\" \"${{PATH%%:*}}\"");
        let output = std::process::Command::new("sh").args(["-euc", &script]).output().unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            "/tmp/it's $HOME|/tmp/it's $HOME/kubeconfig|/a b"
        );
    }
}
