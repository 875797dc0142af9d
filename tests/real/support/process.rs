//! Every program that the run starts, and the promise that none outlives it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Far longer than any command of a case takes. A case's own limit does not reach into a thread that waits for a program.
const ENDS_WITHIN: Duration = Duration::from_mins(4);

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

    /// Runs a short-lived program of the group to its end; one that does not end is killed, and an error says what it wrote.
    pub fn output(&self, command: &mut Command, input: &[u8]) -> Result<Output> {
        output(self.adopt(command), input)
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

/// As [`Supervisor::output`], of a program that is no part of a group. Its input is written while its output is read: a
/// program that echoes more than a pipe holds would wait for its reader, and its writer for it.
pub fn output(command: &mut Command, input: &[u8]) -> Result<Output> {
    let program = command.get_program().display().to_string();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {program}"))?;
    let (mut stdin, input) = (child.stdin.take().context("its input")?, input.to_owned());
    // Most programs end without reading: then there is nobody to write to.
    std::thread::spawn(move || stdin.write_all(&input));
    let stdout = all_of(child.stdout.take().context("its output")?);
    let stderr = all_of(child.stderr.take().context("its errors")?);
    let by = Instant::now() + ENDS_WITHIN;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() > by {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // What it started may hold them open.
    let after = || by.saturating_duration_since(Instant::now()) + Duration::from_secs(5);
    let (stdout, stderr) = (stdout.recv_timeout(after()), stderr.recv_timeout(after()));
    let Some(status) = status else {
        let text = |read: Result<Vec<u8>, _>| String::from_utf8_lossy(&read.unwrap_or_default()).into_owned();
        bail!(
            "{program} still ran after {ENDS_WITHIN:?}\nstdout: {}\nstderr: {}",
            text(stdout),
            text(stderr)
        );
    };
    let open = || format!("{program} has ended, but its output stays open");
    Ok(Output { status, stdout: stdout.with_context(open)?, stderr: stderr.with_context(open)? })
}

const STOPS_WITHIN: Duration = Duration::from_secs(10);

fn all_threads_stopped(process: &str) -> Result<bool> {
    for thread in std::fs::read_dir(Path::new("/proc").join(process).join("task"))? {
        // One that ended meanwhile does nothing any more.
        let stat = std::fs::read_to_string(thread?.path().join("stat")).unwrap_or_default();
        // The name, in parentheses, may hold anything.
        let state = stat.rsplit_once(')').map_or("", |(_, rest)| rest.trim_start());
        if !state.is_empty() && !state.starts_with('T') {
            return Ok(false);
        }
    }
    Ok(true)
}

fn all_of(mut from: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (sender, whole) = mpsc::channel();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        // What was read before an error is more than nothing, and nobody may wait for it any more.
        let _ = from.read_to_end(&mut all);
        let _ = sender.send(all);
    });
    whole
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

    /// When it is told to stop it has: a thread that was at work might answer somebody yet.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let flag = match signal {
            Signal::Term => "-TERM",
            Signal::Stop => "-STOP",
            Signal::Continue => "-CONT",
        };
        let id = self.lock().id().to_string();
        let status = Command::new("kill").args([flag, &id]).status().context("run kill")?;
        ensure!(status.success(), "kill {flag} {} failed", self.name);
        let since = Instant::now();
        while matches!(signal, Signal::Stop) && !all_threads_stopped(&id)? {
            ensure!(since.elapsed() < STOPS_WITHIN, "{} does not stop", self.name);
            std::thread::sleep(Duration::from_millis(5));
        }
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
