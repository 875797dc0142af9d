//! The clusters of one run: a hub and two workers with Kueue, and bare ones on demand.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::sync::OnceCell;

use super::cluster::Cluster;
use super::control_plane::ControlPlane;
use super::jobset;
use super::kueue;
use super::process::{Server, Supervisor};
use super::tools::Tools;

const POLICY: &str = include_str!("../../../deploy/worker/policy.yaml");
/// Whom the policy binds.
const ACCOUNT: &str = "'system:serviceaccount:fedq-system:fedq'";
/// As whom the cases have fedqd write.
const FEDQD: &str = "'fedqd'";

pub struct Fleet {
    pub hub: Arc<Cluster>,
    /// `worker1` and `worker2`.
    pub workers: [Arc<Cluster>; 2],
    bare: OnceCell<Arc<Cluster>>,
    pub(super) supervisor: Arc<Supervisor>,
    tools: Arc<Tools>,
}

impl Fleet {
    /// Starts the three clusters at once.
    pub async fn start(tools: &Arc<Tools>) -> Result<Self> {
        let keep = std::env::var_os("FEDQ_REAL_KEEP").is_some();
        let dir = tempfile::Builder::new()
            .prefix("fedq-real-")
            .tempdir()
            .context("make a temporary folder")?
            .keep();
        let supervisor = Arc::new(Supervisor::start(&dir, keep)?);
        if keep {
            println!("Keeping logs and data in {}", dir.display());
        }
        let (hub, one, two) = tokio::try_join!(
            start_with_kueue(&supervisor, tools, "hub"),
            start_with_kueue(&supervisor, tools, "worker1"),
            start_with_kueue(&supervisor, tools, "worker2"),
        )?;
        // What fedqd writes there in any case is written within the policy that is shipped; but as an administrator it also
        // makes what `deploy/worker/multikueue.yaml` brings along elsewhere, with a namespace.
        let policy = POLICY.replace("fedq-worker", "fedq-tests").replace(ACCOUNT, FEDQD);
        let policy = policy.replace("[namespaces, services", "[services");
        tokio::try_join!(one.apply(&policy), two.apply(&policy))?;
        Ok(Self { hub, workers: [one, two], bare: OnceCell::new(), supervisor, tools: Arc::clone(tools) })
    }

    pub fn worker1(&self) -> &Cluster {
        &self.workers[0]
    }

    pub fn worker2(&self) -> &Cluster {
        &self.workers[1]
    }

    /// A cluster without Kueue, started when first asked for and shared by the cases of the run.
    pub async fn bare(&self) -> Result<&Arc<Cluster>> {
        self.bare
            .get_or_try_init(async || {
                let cluster = Cluster::start(&self.supervisor, &self.tools, "bare").await;
                Ok(Arc::new(cluster.context("start the cluster without Kueue")?))
            })
            .await
    }

    /// An API server without anybody who writes to it.
    pub async fn plane_alone(&self, name: &str) -> Result<ControlPlane> {
        ControlPlane::alone(&self.supervisor, &self.tools, &self.supervisor.dir().join(name)).await
    }

    /// A cluster that has Kueue's kinds, and nobody who acts on them.
    pub async fn with_kueues_kinds(&self, name: &str) -> Result<Cluster> {
        let cluster = Cluster::start(&self.supervisor, &self.tools, name).await?;
        kueue::install_crds(&cluster, &self.tools.manifests("kueue-crds")?).await?;
        Ok(cluster)
    }

    /// One more cluster with Kueue, for a case that breaks or fills it.
    pub async fn another(&self, name: &str) -> Result<Arc<Cluster>> {
        start_with_kueue(&self.supervisor, &self.tools, name).await
    }

    /// The same workers under another hub, whose Kueue leaves it to fedq to nominate clusters.
    pub async fn with_dispatching_hub(&self) -> Result<Self> {
        Ok(Self {
            hub: self.another(kueue::DISPATCHING).await?,
            workers: self.workers.clone(),
            bare: OnceCell::new(),
            supervisor: Arc::clone(&self.supervisor),
            tools: Arc::clone(&self.tools),
        })
    }

    pub fn clusters(&self) -> impl Iterator<Item = &Arc<Cluster>> {
        std::iter::once(&self.hub).chain(&self.workers).chain(self.bare.get())
    }

    /// A folder for files of a case; it goes when the run ends.
    pub fn scratch(&self, case: &str) -> Result<PathBuf> {
        let dir = self.supervisor.dir().join("cases").join(case);
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        Ok(dir)
    }

    /// Lets a program that a case starts by itself end with the run.
    pub fn adopt<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        self.supervisor.adopt(command)
    }

    /// As [`Supervisor::output`].
    pub fn output(&self, command: &mut Command, input: &[u8]) -> Result<Output> {
        self.supervisor.output(command, input)
    }

    /// Starts a program of a case that ends with the run.
    pub fn spawn(&self, command: &mut Command, name: &str, log: &Path) -> Result<Server> {
        self.supervisor.spawn(command, name, log)
    }

    /// Servers that have died, with the tails of their logs.
    pub fn casualties(&self) -> Vec<String> {
        self.clusters()
            .flat_map(|cluster| {
                let name = &cluster.name;
                cluster.plane.casualties().into_iter().map(move |text| format!("{name}: {text}"))
            })
            .collect()
    }

    pub fn stop(&self) {
        self.supervisor.stop();
    }
}

async fn start_with_kueue(
    supervisor: &Arc<Supervisor>,
    tools: &Arc<Tools>,
    name: &str,
) -> Result<Arc<Cluster>> {
    let start = async {
        let cluster = Cluster::start(supervisor, tools, name).await?;
        kueue::install(&cluster, supervisor, tools).await?;
        jobset::install(&cluster, supervisor, tools).await?;
        anyhow::Ok(Arc::new(cluster))
    };
    start.await.with_context(|| format!("start the cluster {name}"))
}
