//! Every program that the run starts, and the promise that none outlives it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};

/// One process group with a watchdog as its leader.
///
/// The watchdog reads a pipe whose other end only this process holds. However this process ends — return, panic,
/// Ctrl-C, SIGKILL — the kernel closes the pipe, and the watchdog kills the group and removes the folder. No signal
/// handler could promise that.
pub struct Supervisor {
    watchdog: Mutex<Child>,
    group: i32,
    dir: PathBuf,
    keep_dir: bool,
    children: Mutex<Vec<Arc<Mutex<Child>>>>,
}

/// `setsid` takes the killer out of the group that it kills, so that it lives to remove the folder. `-s KILL`, because
/// dash understands no `--` after `-KILL`.
const WATCHDOG: &str = r#"
read -r _
setsid sh -c 'kill -s KILL -- "-$1"; sleep 0.2; [ -z "$2" ] || rm -rf -- "$2"' _ "$$" "$1" &
wait
"#;

impl Supervisor {
    pub fn start(dir: &Path, keep_dir: bool) -> Result<Self> {
        let doomed = if keep_dir { Path::new("") } else { dir };
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(doomed)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("start the watchdog (needs sh, kill and setsid)")?;
        let group = i32::try_from(watchdog.id()).context("a process id is an i32")?;
        Ok(Self {
            watchdog: Mutex::new(watchdog),
            group,
            dir: dir.to_owned(),
            keep_dir,
            children: Mutex::default(),
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts a program inside the group, its output appended to `log`.
    pub fn spawn(&self, command: &mut Command, name: &str, log: &Path) -> Result<Server> {
        let out =
            File::options().create(true).append(true).open(log).with_context(|| log.display().to_string())?;
        let log_start = out.metadata()?.len();
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(self.group)
            .spawn()
            .with_context(|| format!("start {name} ({})", command.get_program().display()))?;
        let child = Arc::new(Mutex::new(child));
        self.children.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&child));
        Ok(Server { name: name.to_owned(), child, log: log.to_owned(), log_start })
    }

    /// Makes a short-lived program (kubectl, the command line) part of the group.
    pub fn adopt<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.process_group(self.group)
    }

    /// Kills everything and returns when it is gone.
    pub fn stop(&self) {
        let mut watchdog = self.watchdog.lock().unwrap_or_else(PoisonError::into_inner);
        drop(watchdog.stdin.take());
        // Already being reaped is the only failure of `wait`, and then there is nothing left to wait for.
        let _ = watchdog.wait();
        for child in self.children.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = child.kill();
            let _ = child.wait();
        }
        if !self.keep_dir {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop();
    }
}

/// One running program of the group.
pub struct Server {
    name: String,
    child: Arc<Mutex<Child>>,
    log: PathBuf,
    /// A restarted program appends to the log of its predecessor, whose errors are not its own.
    log_start: u64,
}

#[derive(Clone, Copy)]
pub enum Signal {
    Term,
    Stop,
    Continue,
}

impl Server {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn id(&self) -> u32 {
        self.lock().id()
    }

    pub fn exited(&self) -> Result<Option<ExitStatus>> {
        Ok(self.lock().try_wait()?)
    }

    /// An error with the log's tail if the program is gone.
    pub fn ensure_alive(&self) -> Result<()> {
        match self.exited()? {
            Some(status) => {
                bail!("{} ended ({status}); the end of its log:\n{}", self.name, self.log_tail(40))
            }
            None => Ok(()),
        }
    }

    pub fn kill(&self) -> Result<()> {
        let mut child = self.lock();
        child.kill().with_context(|| format!("kill {}", self.name))?;
        child.wait().with_context(|| format!("wait for {}", self.name))?;
        Ok(())
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let flag = match signal {
            Signal::Term => "-TERM",
            Signal::Stop => "-STOP",
            Signal::Continue => "-CONT",
        };
        let id = self.lock().id().to_string();
        let status = Command::new("kill").args([flag, &id]).status().context("run kill")?;
        ensure!(status.success(), "kill {flag} {} failed", self.name);
        Ok(())
    }

    pub fn log_text(&self) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = File::open(&self.log)?;
            file.seek(SeekFrom::Start(self.log_start))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_else(|error| format!("(cannot read {}: {error})", self.log.display()))
    }

    pub fn log_tail(&self, lines: usize) -> String {
        let text = self.log_text();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Free ports on the loopback address. All are held at once, so no two of one call are equal; another program may
/// still take one before its server binds it, so whoever starts a server tries again with new ones.
pub fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("find a free port")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}
