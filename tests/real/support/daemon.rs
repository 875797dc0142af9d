//! The programs under test: `fedqd` beside the clusters, and `fedq` as a person runs it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::fleet::Fleet;
use super::process::{Server, Signal, Supervisor, free_ports};
use super::wait::{Seen, eventually};
use super::web::{Answer, Client};

/// The daemon lists three small clusters before it is ready.
const READY_WITHIN: Duration = Duration::from_mins(1);
const STOPPED_WITHIN: Duration = Duration::from_secs(30);

/// A daemon's folder and address, known before it starts so that its configuration can name them.
pub struct Home {
    pub dir: PathBuf,
    pub data_dir: PathBuf,
    pub port: u16,
    supervisor: Arc<Supervisor>,
}

/// A `fedqd` process. Dropping it kills it; a case that fails finds its log in the output.
pub struct Daemon {
    home: Home,
    base: String,
    server: Mutex<Server>,
}

/// What a run of the command line left behind.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Home {
    /// Each case has its own, by its name.
    pub fn new(fleet: &Fleet, case: &str) -> Result<Self> {
        let dir = fleet.scratch(case)?;
        let data_dir = dir.join("data");
        std::fs::create_dir_all(&data_dir)?;
        let [port] = free_ports()?;
        Ok(Self { dir, data_dir, port, supervisor: Arc::clone(&fleet.supervisor) })
    }

    /// Writes a file into the folder, such as a cluster's kubeconfig, and returns its path.
    pub fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Starts `fedqd --config`, and returns when `/readyz` answers 200. `scheme` is `http` or `https`.
    pub async fn start(self, scheme: &str, config: &str) -> Result<Daemon> {
        let daemon = self.launch(scheme, config)?;
        daemon.wait_ready().await?;
        Ok(daemon)
    }

    /// The same without waiting: for a daemon that is expected to refuse its configuration or a cluster.
    pub fn launch(self, scheme: &str, config: &str) -> Result<Daemon> {
        self.file("fedqd.yaml", config)?;
        let server = spawn(&self, &[])?;
        let base = format!("{scheme}://127.0.0.1:{}", self.port);
        Ok(Daemon { home: self, base, server: Mutex::new(server) })
    }
}

fn spawn(home: &Home, environment: &[(&str, &str)]) -> Result<Server> {
    home.supervisor.spawn(
        Command::new(env!("CARGO_BIN_EXE_fedqd"))
            .arg("--config")
            .arg(home.dir.join("fedqd.yaml"))
            .current_dir(&home.dir)
            .env("HOME", &home.dir)
            .env_remove("KUBECONFIG")
            .env("RUST_BACKTRACE", "1")
            .envs(environment.iter().copied()),
        "fedqd",
        &home.dir.join("fedqd.log"),
    )
}

impl Daemon {
    pub fn home(&self) -> &Home {
        &self.home
    }

    pub fn base_url(&self) -> &str {
        &self.base
    }

    pub async fn wait_ready(&self) -> Result<()> {
        let client = self.client()?;
        let mut death = None;
        let ready = eventually("fedqd to be ready", READY_WITHIN, async || {
            if let Err(error) = self.server().ensure_alive() {
                death = Some(error);
                return Ok(Seen::Done(()));
            }
            let answer = client.get("/readyz").await?;
            Ok(Seen::when(answer.status == 200, || format!("{} {}", answer.status, answer.body)))
        })
        .await;
        match death {
            Some(error) => Err(error),
            None => ready,
        }
    }

    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.client()?.get(path).await
    }

    pub fn client(&self) -> Result<Client> {
        Client::new(&self.base, None)
    }

    /// As a machine that loses power: no handler of the daemon runs.
    pub fn kill(&self) -> Result<()> {
        self.server().kill()
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.server().signal(signal)
    }

    /// Starts it again after `kill` or `stop`, with the same data, configuration and port.
    pub async fn restart(&self) -> Result<()> {
        self.restart_with(&[]).await
    }

    /// With these environment variables.
    pub async fn restart_with(&self, environment: &[(&str, &str)]) -> Result<()> {
        *self.server() = spawn(&self.home, environment)?;
        self.wait_ready().await
    }

    pub fn has_ended(&self) -> Result<bool> {
        Ok(self.server().exited()?.is_some())
    }

    /// SIGTERM; an error if it does not end by itself with success.
    pub async fn stop(&self) -> Result<()> {
        self.signal(Signal::Term)?;
        eventually("fedqd to end after SIGTERM", STOPPED_WITHIN, async || match self.server().exited()? {
            Some(status) if status.success() => Ok(Seen::Done(())),
            Some(status) => Ok(Seen::Still(format!("it ended with {status}"))),
            None => Ok(Seen::Still("it still runs".to_owned())),
        })
        .await
    }

    /// Waits for a daemon that should end by itself, and returns its log.
    pub async fn wait_ended(&self, limit: Duration) -> Result<String> {
        eventually("fedqd to end", limit, async || {
            let ended = self.server().exited()?.is_some();
            Ok(Seen::when(ended, || "it still runs".to_owned()))
        })
        .await?;
        Ok(self.server().log_text())
    }

    pub fn id(&self) -> u32 {
        self.server().id()
    }

    pub fn log_text(&self) -> String {
        self.server().log_text()
    }

    fn server(&self) -> std::sync::MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A daemon that lives on would go on writing into the clusters of the other cases.
        let _ = self.server().kill();
    }
}

/// Runs `fedq` with a home folder of the case's own, so that neither a person's configuration nor another case's
/// is seen. `env` is added to an otherwise nearly empty environment.
pub fn cli(fleet: &Fleet, case: &str, env: &[(&str, &str)], args: &[&str]) -> Result<Ran> {
    cli_fed(fleet, case, env, args, "")
}

/// The same with something on its standard input.
pub fn cli_fed(fleet: &Fleet, case: &str, env: &[(&str, &str)], args: &[&str], input: &str) -> Result<Ran> {
    Ok(Ran::from(fleet.output(&mut command(fleet, case, env, args)?, input.as_bytes())?))
}

/// The same without waiting for its end. Its errors go where the case's own do.
pub fn start_cli(
    fleet: &Fleet,
    case: &str,
    env: &[(&str, &str)],
    args: &[&str],
    out: Stdio,
) -> Result<Child> {
    let mut command = command(fleet, case, env, args)?;
    fleet.supervisor.adopt(command.stdout(out)).spawn().context("start fedq")
}

fn command(fleet: &Fleet, case: &str, env: &[(&str, &str)], args: &[&str]) -> Result<Command> {
    let home = fleet.scratch(case)?.join("home");
    std::fs::create_dir_all(&home)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedq"));
    command.args(args).current_dir(&home).env_clear();
    command.env("HOME", &home).env("XDG_CONFIG_HOME", home.join(".config"));
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.envs(env.iter().copied());
    Ok(command)
}

impl From<std::process::Output> for Ran {
    fn from(out: std::process::Output) -> Self {
        Self {
            code: out.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// The output, or an error that shows all of it.
    pub fn success(self) -> Result<String> {
        if self.code != 0 {
            bail!("fedq ended with {}\nstdout: {}\nstderr: {}", self.code, self.stdout, self.stderr);
        }
        Ok(self.stdout)
    }
}

/// The ends of the logs of every daemon that a case started.
pub fn log_tails(case_dir: &Path) -> String {
    let Ok(text) = std::fs::read_to_string(case_dir.join("fedqd.log")) else { return String::new() };
    let lines: Vec<&str> = text.lines().collect();
    format!("the end of fedqd's log:\n{}", lines[lines.len().saturating_sub(80)..].join("\n"))
}
