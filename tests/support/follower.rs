//! A command that prints as long as its task runs, on simulated and on real clusters.

use std::io::{BufRead, BufReader};
use std::process::{Child, ExitStatus};
use std::sync::mpsc;

pub struct Follower {
    child: Child,
    lines: mpsc::Receiver<String>,
    heard: Vec<String>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Follower {
    /// Its standard output has to be piped.
    pub fn new(mut child: Child) -> Self {
        let out = BufReader::new(child.stdout.take().expect("its output is piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines, heard: Vec::new() }
    }

    /// All that it has printed.
    pub fn heard(&mut self) -> &[String] {
        self.heard.extend(self.lines.try_iter());
        &self.heard
    }

    /// What one node of several has written.
    pub fn of_node(&mut self, rank: usize) -> Vec<String> {
        let prefix = format!("node-{rank} | ");
        self.heard().iter().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
    }

    /// The id in `task ID submitted`, once it is there.
    pub fn id(&mut self) -> Option<String> {
        self.heard().first()?.split_whitespace().nth(1).map(str::to_owned)
    }

    pub fn ended(&mut self) -> std::io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// As Ctrl-C does.
    pub fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    }
}
