//! Other clients on the same clusters: kube's reflector as it comes, client-go's informer as it comes and as
//! somebody sets it who cares. Each follows the nodes only, on connections of its own making.

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use fedq_sim::fleet::Fleet;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Config};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::process::Process;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Peer {
    KubeRs,
    ClientGo,
    /// Protobuf, trimmed, without rate limits.
    ClientGoTuned,
}

pub const ALL: [Peer; 3] = [Peer::KubeRs, Peer::ClientGo, Peer::ClientGoTuned];

impl Peer {
    pub fn name(self) -> &'static str {
        match self {
            Self::KubeRs => "kube-rs",
            Self::ClientGo => "client-go",
            Self::ClientGoTuned => "client-go, tuned",
        }
    }

    /// Returns once it knows all nodes.
    pub fn start(self, fleet: &Fleet) -> Result<Running> {
        let dir = TempDir::new()?;
        for worker in &fleet.workers {
            let name = format!("{}.kubeconfig", worker.state.name);
            std::fs::write(dir.path().join(name), worker.kubeconfig("peer", &["system:masters"]))?;
        }
        let mut command = match self {
            Self::KubeRs => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("--follow").arg(dir.path());
                command
            }
            Self::ClientGo => go(&[])?,
            Self::ClientGoTuned => go(&["-tuned"])?,
        };
        if self != Self::KubeRs {
            command.arg(dir.path());
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let asks = child.stdin.take().context("a pipe")?;
        let answers = std::io::BufReader::new(child.stdout.take().context("a pipe")?);
        let mut running = Running { process: Process(child.id()), child, asks, answers, _dir: dir };
        let said = running.line()?;
        ensure!(said == "synced", "{} said {said:?}", self.name());
        Ok(running)
    }
}

/// Ends when dropped.
pub struct Running {
    pub process: Process,
    child: Child,
    asks: ChildStdin,
    answers: std::io::BufReader<ChildStdout>,
    _dir: TempDir,
}

impl Running {
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut self.answers, &mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// How many it has seen.
    pub fn events(&mut self) -> Result<u64> {
        std::io::Write::write_all(&mut self.asks, b"\n")?;
        Ok(self.line()?.parse()?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn go(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(build("peer", ("tests/bench/peer", "."))?);
    command.args(arguments);
    Ok(command)
}

/// kueuectl, of the release that the tests on real clusters run beside.
pub fn kueuectl() -> Result<PathBuf> {
    build("kueuectl", ("tests/real/tools", "sigs.k8s.io/kueue/cmd/kueuectl"))
}

/// Go itself knows whether there is something to do.
fn build(name: &str, (module, package): (&str, &str)) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = root.join("target/bench").join(name);
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(package);
    let built = go.current_dir(root.join(module)).status();
    ensure!(built.context("clients in Go need go")?.success(), "cannot build {package} of {module}");
    Ok(program)
}

/// The process that is kube's side.
pub fn follow(folder: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build()?;
    runtime.block_on(async {
        let seen = Arc::<AtomicU64>::default();
        let mut following = JoinSet::new();
        let mut synced = JoinSet::new();
        for file in std::fs::read_dir(folder)? {
            let config = Kubeconfig::read_from(file?.path())?;
            let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
            let (store, writer) = reflector::store::<Node>();
            following.spawn(reflect(Client::try_from(config)?, writer, Arc::clone(&seen)));
            synced.spawn(async move { store.wait_until_ready().await });
        }
        while let Some(ready) = synced.join_next().await {
            ready??;
        }
        println!("synced");
        tokio::task::block_in_place(|| {
            for asked in std::io::stdin().lines() {
                asked?;
                println!("{}", seen.load(Ordering::Relaxed));
            }
            Ok(())
        })
    })
}

async fn reflect(client: Client, writer: reflector::store::Writer<Node>, seen: Arc<AtomicU64>) {
    let stream =
        watcher(Api::<Node>::all(client), watcher::Config::default()).default_backoff().reflect(writer);
    let mut events = std::pin::pin!(stream);
    while let Some(event) = events.next().await {
        if let Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)) = event {
            seen.fetch_add(1, Ordering::Relaxed);
        }
    }
}
