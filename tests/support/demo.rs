//! `fedq demo`, run as people run it.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// What broke is tried again after up to half a minute.
const WITHIN: Duration = Duration::from_secs(45);

/// A folder for temporary files of its own, to see what is left there.
pub struct Demo {
    pub tmp: TempDir,
}

/// A demo that stays up, with what it said before.
pub struct Served {
    pub child: Child,
    pub folder: PathBuf,
    /// The line to read first.
    pub environment: String,
    pub said: String,
    /// Read on, so that it never waits for its reader.
    _reader: std::thread::JoinHandle<()>,
}

impl Demo {
    pub fn new() -> Self {
        Self { tmp: TempDir::new().unwrap() }
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedq"));
        command.arg("demo").args(arguments).env("TMPDIR", self.tmp.path()).stdin(Stdio::null());
        // What a person has set is not what the demo uses.
        command.env("FEDQ_SERVER", "https://elsewhere.example.com").env("FEDQ_TOKEN", "theirs");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn serve(&self, arguments: &[&str]) -> Served {
        let all: Vec<&str> = ["--serve"].into_iter().chain(arguments.iter().copied()).collect();
        let mut child = self.command(&all).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = String::new();
        for line in lines.by_ref() {
            said += &(line.unwrap() + "\n");
            if said.contains("fedqd's log is in") {
                break;
            }
        }
        let environment = said.lines().map(str::trim).find(|line| line.starts_with(". "));
        assert!(environment.is_some(), "it names no environment:\n{said}");
        let environment = environment.unwrap().to_owned();
        let folder = text(&shell(&environment, "printf %s \"$FEDQ_DEMO\"").stdout).into();
        let reader = std::thread::spawn(move || lines.by_ref().for_each(drop));
        Served { child, folder, environment, said, _reader: reader }
    }

    pub fn left(&self) -> Vec<PathBuf> {
        fs::read_dir(self.tmp.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Served {
    /// A line as pasted in a shell that has read the environment.
    pub fn paste(&self, line: &str) -> Output {
        shell(&self.environment, line)
    }

    pub fn paste_until(&self, line: &str, what: &str, holds: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        loop {
            let output = self.paste(line);
            let answer = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if holds(&answer) {
                return;
            }
            assert!(begun.elapsed() < WITHIN, "waited in vain until {what}: {answer:#}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub fn interrupt(&mut self) -> i32 {
        signal(&self.child, "INT");
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shell(environment: &str, line: &str) -> Output {
    let script = format!("{environment}\n{line}");
    Command::new("sh").args(["-euc", &script]).stdin(Stdio::null()).output().unwrap()
}

pub fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
