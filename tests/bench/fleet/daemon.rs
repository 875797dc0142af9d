//! The fedqd that is measured.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::args::Args;
use super::process::Process;

const STOPS_WITHIN: Duration = Duration::from_secs(30);

/// Its configuration and data, which outlive a process.
pub struct Home {
    dir: TempDir,
    program: PathBuf,
    pin: Option<usize>,
    pub api: u16,
    metrics: u16,
}

pub struct Daemon {
    child: Child,
    pub process: Process,
    metrics: u16,
}

impl Home {
    pub fn new(args: &Args, hub_kubeconfig: &str) -> Result<Self> {
        let dir = TempDir::new()?;
        let program = args.daemon.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_fedqd")));
        let [api, metrics] = free_ports()?;
        std::fs::write(dir.path().join("hub.kubeconfig"), hub_kubeconfig)?;
        let home = Self { dir, program, pin: args.pin, api, metrics };
        // Kept so short that hours show whether its bound holds.
        let history =
            if args.endurance.is_some() { ", history: {keepRows: 2000, pruneInterval: 1m}" } else { "" };
        let config = format!(
            "hub: {{kubeconfig: {}}}\nstore: {{path: {}{history}}}\napi: {{address: 127.0.0.1:{api}}}\n\
             webhook: {{address: disabled}}\nmetrics: {{address: 127.0.0.1:{metrics}}}\n\
             clusters: {{allowLoopback: true}}\n",
            home.path("hub.kubeconfig").display(),
            home.path("fedq.db").display(),
        );
        std::fs::write(home.path("fedqd.yaml"), config)?;
        Ok(home)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Bytes of the database with its log.
    pub fn database(&self) -> u64 {
        let size = |name: &str| std::fs::metadata(self.path(name)).map_or(0, |file| file.len());
        size("fedq.db") + size("fedq.db-wal")
    }

    /// The next daemon begins with an empty database.
    pub fn forget(&self) -> Result<()> {
        for name in ["fedq.db", "fedq.db-wal", "fedq.db-shm"] {
            let path = self.path(name);
            if path.exists() {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    pub fn start(&self) -> Result<Daemon> {
        let log = self.path("fedqd.log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = match self.pin {
            None => Command::new(&self.program),
            Some(number) => {
                let mut command = Command::new("taskset");
                command.args(["--cpu-list", &number.to_string()]).arg(&self.program);
                command
            }
        };
        command.arg("--config").arg(self.path("fedqd.yaml")).stdin(Stdio::null());
        let child = command.stderr(log.try_clone()?).stdout(log).spawn();
        let child = child.with_context(|| format!("cannot start {}", self.program.display()))?;
        let process = Process(child.id());
        Ok(Daemon { child, process, metrics: self.metrics })
    }

    /// The end of its log, for when something is wrong.
    pub fn log(&self) -> String {
        let log = std::fs::read_to_string(self.path("fedqd.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Daemon {
    pub async fn is_ready(&self) -> bool {
        get(self.metrics, "/readyz").await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// The sum of a metric over all its labels that hold `label`.
    pub async fn metric(&self, name: &str, label: &str) -> Result<f64> {
        let answer = get(self.metrics, "/metrics").await?;
        let lines = answer.lines().filter(|line| line.starts_with(name) && line.contains(label));
        lines.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<f64>().context("a number")).sum()
    }

    /// The head and the body of an answer to a scrape with these headers, each with its line end.
    pub async fn scrape(&self, headers: &str) -> Result<(String, Vec<u8>)> {
        let mut answer = ask(self.metrics, "/metrics", headers).await?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").context("an answer of HTTP")?;
        let body = answer.split_off(end + 4);
        let head = String::from_utf8(answer)?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
        Ok((head, body))
    }

    /// As a signal from Kubernetes does.
    pub async fn stop(mut self) -> Result<Duration> {
        let began = Instant::now();
        let sent = Command::new("kill").arg(self.process.0.to_string()).status()?;
        ensure!(sent.success(), "cannot signal fedqd");
        while began.elapsed() < STOPS_WITHIN {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "fedqd ended with {status}");
                return Ok(began.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("fedqd did not stop")
    }

    pub fn ensure_alive(&mut self, log: impl FnOnce() -> String) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("fedqd ended with {status}:\n{}", log()),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn get(port: u16, path: &str) -> Result<String> {
    Ok(String::from_utf8(ask(port, path, "").await?)?)
}

async fn ask(port: u16, path: &str, headers: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer)
}

/// Free now; nobody else takes them within this moment on a machine that measures.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

/// Beside the daemon that is measured.
pub fn command_line(args: &Args) -> PathBuf {
    let beside = args.daemon.as_deref().and_then(Path::parent).map(|folder| folder.join("fedq"));
    beside.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_fedq")))
}
