//! Puts the parts of `fedqd` together: builds, spawns, waits, drains. Nothing is decided here.

use std::{collections::BTreeSet, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use jiff::Timestamp;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::config::{Args, Config, Crds, Loaded};
use fedq_base::{
    backoff::Backoff,
    clock::Clock,
    telemetry::{self, Metrics},
};
use fedq_controllers::{
    admission_check, capacity, claim, cluster,
    context::Context,
    dispatcher, queue, quota,
    task::{self, LogKeeping},
};
use fedq_domain::{
    multikueue::Use,
    overview::{CapacityView, Overview},
    placement::view::PlacementView,
    queue::{ClaimedQueues, report::QueueReports},
    task::view::{TaskViews, VolumeViews},
};
use fedq_k8s::{
    client::{self, ClientLimits, ClusterClient},
    events::{EventSender, Events, event_channel},
    follow::TableSet,
    follow::{Following, Wake},
    hub::Hub,
    kubeconfig::Rules,
    worker::JoinedClusters,
};
use fedq_store::{KeptLogs, Store};
use fedq_values::ids::ClusterName;

use self::host::Host;

pub mod config;
pub mod host;
mod placement;
mod serve;
mod service_manager;
mod settings;

/// With the day of this version.
const CHANGES: &str = include_str!("../../docs/CHANGELOG.md");
/// After a stop signal, what is under way gets this long.
const DRAIN: Duration = Duration::from_secs(20);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(15);

/// Runs until SIGTERM or SIGINT; a second signal ends at once. An error is for standard error: once there is a log, it stands
/// there.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args.print_crds {
        Some(Crds::Fedq) => return print(&fedq_k8s::types::claim::crds_yaml()),
        Some(Crds::Ocm) => return print(&fedq_k8s::types::ocm::crds::crds_yaml()),
        None => {}
    }
    if args.print_man {
        return print_man();
    }
    let loaded = Config::load(args)?;
    if args.check_config {
        return print(&loaded.config.to_yaml()?);
    }
    if args.rebuild_store {
        let kept = fedq_store::rebuild(&loaded.config.store.path)?;
        return print(&kept.map_or_else(
            || "There is no database yet.\n".to_owned(),
            |kept| format!("The database was moved to {}; the next start makes a new one.\n", kept.display()),
        ));
    }
    telemetry::init(&loaded.config.log.level, loaded.config.log.format)?;
    if let Err(error) = run_with_log(loaded) {
        error!("fedqd ends: {error:#}");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn run_with_log(loaded: Loaded) -> anyhow::Result<()> {
    for warning in &loaded.warnings {
        warn!("{warning}");
    }
    host::use_ring();
    host::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let host = Host::default();
        let _signals = host::stop_on_signals(&host.cancel)?;
        let _told = service_manager::tell(host.ready.subscribe(), host.cancel.clone());
        serve(loaded.config, host).await
    })
}

fn print(text: &str) -> anyhow::Result<ExitCode> {
    use std::io::Write as _;
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn print_man() -> anyhow::Result<ExitCode> {
    let mut page = Vec::new();
    let newest = CHANGES.lines().find_map(|line| line.strip_prefix("## "));
    let released = newest.and_then(|newest| newest.rsplit(' ').next()).unwrap_or_default();
    let man = clap_mangen::Man::new(<Args as clap::CommandFactory>::command());
    man.date(released).manual("Manual of fedq").render(&mut page)?;
    print(&String::from_utf8(page).context("the page is no text")?)
}

/// What runs, and how it is stopped. One task that ends is the end of all.
struct Daemon {
    config: Config,
    cancel: CancellationToken,
    tasks: JoinSet<anyhow::Result<()>>,
    follows: JoinSet<()>,
    clock: Clock,
    metrics: Metrics,
    store: Store,
    kept_logs: Option<LogKeeping>,
    /// Held until the end, so that no part takes the end of another for a failure.
    published: Published,
    host: Host,
}

/// What the parts tell each other.
#[derive(Default)]
struct Published {
    joined: watch::Sender<Arc<JoinedClusters>>,
    capacity: watch::Sender<Arc<CapacityView>>,
    overview: watch::Sender<Arc<Overview>>,
    claimed: watch::Sender<Arc<ClaimedQueues>>,
    reports: watch::Sender<Arc<QueueReports>>,
    task_views: watch::Sender<Arc<TaskViews>>,
    volume_views: watch::Sender<Arc<VolumeViews>>,
    /// Bumped when the API accepts a task or a volume, or somebody wants one gone.
    task_signal: Arc<Notify>,
    placements: watch::Sender<Arc<PlacementView>>,
    draining: watch::Sender<Arc<BTreeSet<Use>>>,
    dispatch_signal: Arc<Notify>,
}

impl Published {
    fn new() -> Self {
        Self { task_views: watch::Sender::new(Arc::new(TaskViews::starting())), ..Self::default() }
    }

    fn count(&self, metrics: &Metrics, tasks: &mut JoinSet<anyhow::Result<()>>, cancel: &CancellationToken) {
        let with = || (metrics.clone(), cancel.clone());
        tasks.spawn(count("joined", self.joined.subscribe(), with()));
        tasks.spawn(count("capacity", self.capacity.subscribe(), with()));
        tasks.spawn(count("overview", self.overview.subscribe(), with()));
        tasks.spawn(count("claimed", self.claimed.subscribe(), with()));
        tasks.spawn(count("reports", self.reports.subscribe(), with()));
        tasks.spawn(count("tasks", self.task_views.subscribe(), with()));
        tasks.spawn(count("volumes", self.volume_views.subscribe(), with()));
        tasks.spawn(count("placements", self.placements.subscribe(), with()));
        tasks.spawn(count("draining", self.draining.subscribe(), with()));
    }
}

/// What is published twice before anybody looks counts once, as it wakes once.
async fn count<T>(
    of: &'static str,
    mut published: watch::Receiver<T>,
    (metrics, cancel): (Metrics, CancellationToken),
) -> anyhow::Result<()> {
    while let Some(changed) = cancel.run_until_cancelled(published.changed()).await {
        changed?;
        metrics.published(of);
    }
    Ok(())
}

/// Runs a daemon until it is cancelled. Its caller has set up logging and [`host::use_ring`], once a process.
pub async fn serve(config: Config, host: Host) -> anyhow::Result<()> {
    let metrics = Metrics::new();
    let on_commit = metrics.clone();
    let store =
        Store::open_with(&config.store.path, Box::new(move |took, kept| on_commit.committed(took, kept)))
            .await?;
    let kept_logs = kept_logs(&config)?;
    let mut daemon = Daemon {
        config,
        cancel: host.cancel.clone(),
        tasks: JoinSet::new(),
        follows: JoinSet::new(),
        clock: Clock::system(),
        metrics,
        store,
        kept_logs,
        published: Published::new(),
        host,
    };
    daemon.serve_metrics(daemon.host.ready.subscribe()).await?;
    let ended = daemon.run_with_hub().await;
    daemon.cancel.cancel();
    daemon.drain().await;
    daemon.store.close().await;
    ended
}

impl Daemon {
    async fn run_with_hub(&mut self) -> anyhow::Result<()> {
        let Some(hub) = self.connect_hub().await? else { return Ok(()) };
        self.published.count(&self.metrics, &mut self.tasks, &self.cancel);
        self.start_controllers(&hub).await?;
        info!("Started");
        tokio::select! {
            () = self.cancel.cancelled() => Ok(()),
            // Only a panic ends one of these before the daemon does.
            Some(ended) = self.follows.join_next() => match ended {
                Ok(()) if self.cancel.is_cancelled() => Ok(()),
                Ok(()) => Err(anyhow::anyhow!("a part of fedqd that follows the hub ended by itself")),
                Err(panic) => Err(panic.into()),
            },
            Some(ended) = self.tasks.join_next() => match ended {
                _ if self.cancel.is_cancelled() => Ok(()),
                Ok(Ok(())) => Err(anyhow::anyhow!("a part of fedqd ended by itself")),
                Ok(Err(error)) => Err(error),
                Err(panic) => Err(panic.into()),
            },
        }
    }

    /// Tries until the hub answers; `None` when stopped meanwhile.
    async fn connect_hub(&self) -> anyhow::Result<Option<Hub>> {
        let client = self.hub_client()?;
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
        loop {
            let wait = backoff.next_wait();
            match client.identity(self.config.clusters.request_timeout).await {
                Ok(identity) => {
                    info!(version = %identity.version, "Connected to the hub at {}", client.server());
                    let namespace = self.config.namespace.clone();
                    let mut hub = Hub::new(client, identity.kube_system_uid, namespace);
                    hub.profiles = self.profiles();
                    hub.counts_reports = self.config.capacity.cluster_metrics.watch;
                    return Ok(Some(hub));
                }
                Err(error) => {
                    warn!("The hub at {} does not answer, next try in {wait:.0?}: {error}", client.server());
                }
            }
            tokio::select! {
                () = self.cancel.cancelled() => return Ok(None),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn hub_client(&self) -> anyhow::Result<ClusterClient> {
        let name = ClusterName::new("hub").expect("a constant name");
        let observer = cluster::observer(&self.metrics, name);
        // It lists Secrets' metadata, and is trusted with more than one object at a time.
        let limits = ClientLimits { observer, answer_bytes: 64 << 20, ..self.limits() };
        match &self.config.hub.kubeconfig {
            Some(path) => {
                let rules = Rules { allow_loopback: true, ..self.rules() };
                client::from_kubeconfig_path(path, self.config.hub.context.as_deref(), &rules, &limits)
                    .with_context(|| format!("cannot use the hub's kubeconfig {}", path.display()))
            }
            None => client::in_cluster(&limits).context(
                "hub.kubeconfig is not set, and this is not a pod of the hub with a service account",
            ),
        }
    }

    async fn start_controllers(&mut self, hub: &Hub) -> anyhow::Result<()> {
        let (task, dispatch) = (Arc::clone(&self.published.task_signal), self.dispatch_signal());
        let mut wake = Wake { task, dispatch, ..Wake::default() };
        let following = Following::new(hub.client.clone(), self.timing(), wake.all());
        hub.follow(&following, &wake, &mut self.follows, &self.cancel);
        // What changes on workers.
        let inventory_signal = Arc::new(Notify::new());
        wake.inventory = Some(Arc::clone(&inventory_signal));
        let Wake { quota, capacity, queue, check, .. } = wake.clone();
        let (quota_signal, capacity_signal, queue_signal, check_signal) = (quota, capacity, queue, check);

        let Published { joined, capacity, overview, claimed, reports, .. } = &self.published;
        let (joined, capacity) = (joined.clone(), capacity.clone());
        let (overview, claimed, reports) = (overview.clone(), claimed.clone(), reports.clone());

        // First of all: whether the store is a new one shows only while nobody has put anything there.
        let (events, sender) = event_channel();
        let context = self.context(hub);
        let inputs = quota::Inputs {
            joined: joined.subscribe(),
            capacity: capacity.subscribe(),
            reports: reports.subscribe(),
        };
        let outputs =
            quota::Outputs { events: events.clone(), overview: overview.clone(), claimed: claimed.clone() };
        let settings = self.quota_settings();
        let quotas =
            quota::QuotaController::new(context.clone(), settings, inputs, outputs, quota_signal).await?;

        let settings = self.cluster_settings()?;
        let clusters = cluster::ClusterController::new(context.clone(), settings, joined.clone(), wake);
        self.tasks.spawn(clusters.run());

        let settings = self.capacity_settings()?;
        let capacities = capacity::CapacityController::new(
            context.clone(),
            settings,
            joined.subscribe(),
            capacity.clone(),
            capacity_signal,
        );
        self.tasks.spawn(capacities.run());
        self.tasks.spawn(quotas.run());

        let settings = queue::Settings { namespaces: self.config.namespace_rules() };
        let inputs = queue::Inputs { joined: joined.subscribe(), claimed: claimed.subscribe() };
        let queues = queue::QueueController::new(context.clone(), settings, inputs, reports, queue_signal);
        self.tasks.spawn(queues.run());
        self.start_tasks(context.clone());
        self.tasks.spawn(prune(
            self.store.clone(),
            self.kept_logs.clone(),
            self.clock.clone(),
            self.config.clone(),
            self.cancel.clone(),
        ));
        self.start_claims(context.clone(), events.clone(), sender);
        self.start_placement(&context, inventory_signal, &check_signal)?;
        self.start_admission_checks(&context, check_signal, events);
        self.serve_people(hub).await?;
        self.tasks.spawn(announce_ready(
            hub.clone(),
            overview.subscribe(),
            self.host.ready.clone(),
            self.cancel.clone(),
        ));
        Ok(())
    }

    fn context(&self, hub: &Hub) -> Context {
        Context {
            hub: hub.clone(),
            hub_id: self.hub_id(hub),
            store: self.store.clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            writer: self.writer_config(),
            stop: self.cancel.clone(),
        }
    }

    fn start_tasks(&mut self, context: Context) {
        let published = &self.published;
        let inputs = task::Inputs {
            joined: published.joined.subscribe(),
            claimed: published.claimed.subscribe(),
            capacity: published.capacity.subscribe(),
        };
        let outputs =
            task::Published { tasks: published.task_views.clone(), volumes: published.volume_views.clone() };
        let signal = Arc::clone(&published.task_signal);
        let tasks = task::TaskController::new(context, self.task_settings(), inputs, (outputs, signal));
        self.tasks.spawn(tasks.run());
    }

    fn start_claims(&mut self, context: Context, events: Events, sender: EventSender) {
        let settings = claim::Settings { aliases: self.config.aliases() };
        let inputs = claim::Inputs {
            joined: self.published.joined.subscribe(),
            capacity: self.published.capacity.subscribe(),
            overview: self.published.overview.subscribe(),
        };
        self.tasks.spawn(claim::ClaimController::new(context, settings, inputs, events, sender).run());
    }

    fn start_admission_checks(&mut self, context: &Context, signal: Arc<Notify>, events: Events) {
        let Context { hub, hub_id, .. } = context;
        let kueue_namespace = self.config.multikueue.kueue_namespace.clone();
        let dispatch_signal = self.dispatch_signal();
        let changed = dispatch_signal.iter().chain([&signal]).map(Arc::clone).collect();
        let following = Following::new(hub.client.clone(), self.timing(), changed);
        hub.follow_multikueue(&kueue_namespace, hub_id, &following, (&mut self.follows, &self.cancel));
        let settings = admission_check::Settings {
            kueue_namespace,
            naming: self.config.cluster_naming(),
            token_lifetime: self.config.multikueue.token_lifetime,
            dispatches: self.config.multikueue.dispatcher,
        };
        let inputs = admission_check::Inputs {
            joined: self.published.joined.subscribe(),
            placements: self.published.placements.subscribe(),
        };
        let draining = self.published.draining.clone();
        let context = context.clone();
        let checks = admission_check::AdmissionCheckController::new(
            context.clone(),
            settings,
            inputs,
            draining,
            signal,
        );
        self.tasks.spawn(checks.run());
        if let Some(signal) = dispatch_signal {
            self.start_dispatcher(context, &following, signal, events);
        }
    }

    fn start_dispatcher(
        &mut self,
        context: Context,
        following: &Following,
        signal: Arc<Notify>,
        events: Events,
    ) {
        context.hub.follow_policies(following, &mut self.follows, &self.cancel);
        let kueue_namespace = self.config.multikueue.kueue_namespace.clone();
        let settings = dispatcher::Settings { kueue_namespace };
        let inputs = dispatcher::Inputs {
            joined: self.published.joined.subscribe(),
            draining: self.published.draining.subscribe(),
        };
        let dispatcher = dispatcher::DispatcherController::new(context, events, settings, inputs, signal);
        self.tasks.spawn(dispatcher.run());
    }

    async fn drain(&mut self) {
        let finish = async {
            while let Some(ended) = self.tasks.join_next().await {
                if let Ok(Err(error)) = ended {
                    error!("While stopping: {:#}", error);
                }
            }
        };
        if tokio::time::timeout(DRAIN, finish).await.is_err() {
            warn!(
                "Not everything ended within {DRAIN:?}; what was under way is decided anew at the next start"
            );
        }
        self.follows.abort_all();
    }
}

fn kept_logs(config: &Config) -> anyhow::Result<Option<LogKeeping>> {
    let Some((folder, largest, most)) = config.task_logs()? else { return Ok(None) };
    Ok(Some(LogKeeping { kept: KeptLogs::open(&folder, most)?, largest }))
}

/// Lets go of the history that the configuration does not keep.
async fn prune(
    store: Store,
    logs: Option<LogKeeping>,
    clock: Clock,
    config: Config,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    loop {
        let history = store.prune(config.retention(), clock.now()).await;
        let tasks = store.prune_tasks(config.task_retention(), clock.now()).await;
        for (pruned, what) in [(history, "rows of history"), (tasks, "finished tasks")] {
            match pruned {
                Ok(pruned) if 0 < pruned.rows => info!("Let go of {} {what}", pruned.rows),
                Ok(_) => {}
                // It is tried again, and nothing else waits for it.
                Err(error) => warn!("Could not prune {what}: {}", telemetry::chain(&error)),
            }
        }
        match store.prune_uploads(config.tasks.uploads.keep_for, clock.now()).await {
            Ok(0) => {}
            Ok(count) => info!("Let go of {count} uploads that no task needs"),
            Err(error) => warn!("Could not prune uploads: {}", telemetry::chain(&error)),
        }
        if let Some(logs) = &logs {
            let keep_for = config.task_retention().keep_for;
            match prune_logs(&store, &logs.kept, keep_for, clock.now()).await {
                Ok(0) => {}
                Ok(count) => info!("Let go of {count} logs of tasks"),
                Err(error) => warn!("Could not let go of logs of tasks: {error:#}"),
            }
        }
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            () = tokio::time::sleep(config.store.history.prune_interval) => {}
        }
    }
}

/// What is old goes, and what is left of tasks that went; how many files that were.
async fn prune_logs(
    store: &Store,
    kept: &KeptLogs,
    keep_for: Duration,
    now: Timestamp,
) -> anyhow::Result<usize> {
    let expired = kept.expire(keep_for, now).await?;
    let gone = store.unknown_tasks(&kept.tasks()).await?;
    Ok(expired + kept.forget(&gone).await?)
}

/// Ready once the hub's objects are known and a first plan is made; never "all clusters up".
async fn announce_ready(
    hub: Hub,
    mut overview: watch::Receiver<Arc<Overview>>,
    ready: watch::Sender<bool>,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    loop {
        let planned = 0 < overview.borrow_and_update().revision;
        if planned && hub.synced() {
            ready.send_replace(true);
            cancel.cancelled().await;
            ready.send_replace(false);
            return Ok(());
        }
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            changed = overview.changed() => changed?,
        }
    }
}
