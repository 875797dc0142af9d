//! The command line as a process, from its start to its end, and kueuectl beside it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fedq_sim::nodes::Template;
use fedq_sim::rbac::User;
use tokio::time::Instant;

use crate::args::Args;
use crate::daemon;
use crate::figures::{Curve, median};
use crate::peers;
use crate::stage::{LOOK_EVERY, QUEUES, Size, Stage, WITHIN};

/// What people ask most; the first needs no server, and shows what a process costs.
const COMMANDS: [(&str, &str); 5] = [
    ("fedq --version", ""),
    ("fedq quota list", "≤5 ms"),
    ("fedq cluster list", ""),
    ("fedq kueue list cq --cluster worker-0000", "≤5 ms"),
    ("fedq kueue list cq --all-clusters", "≤100 ms with 1,000 clusters"),
];
/// What both ask of one cluster by its kubeconfig.
const LIST: [&str; 2] = ["list", "cq"];
const TIMES: usize = 40;
/// Of whoever asks: what is Kubernetes' own on the hub counts for nothing on workers.
const GROUP: &str = "fleet";

/// What all commands of one stage work with.
struct Bed {
    server: String,
    token: String,
    /// Of the first cluster.
    kubeconfig: PathBuf,
    fedq: PathBuf,
    kueuectl: PathBuf,
}

pub async fn measure(args: &Args) -> Result<Vec<Curve>> {
    let template = Arc::new(Template::small());
    let curve = |command: &str, goal: &str| {
        Curve::new(&format!("`{command}` as a process, p50"), "clusters", "ms", goal)
    };
    let mut curves: Vec<Curve> = COMMANDS.iter().map(|(command, goal)| curve(command, goal)).collect();
    let mut alone = curve("fedq kueue list cq --kubeconfig FILE", "no more than kueuectl");
    let mut peer = curve("kueuectl list cq --kubeconfig FILE", "").by("kueuectl");
    let mut memory = Curve::new(&format!("memory of `{}`, at most", COMMANDS[4].0), "clusters", "kB", "");
    let mut ratio = Curve::new("kueuectl over `fedq kueue list cq` through fedqd", "clusters", "×", "≥10");
    let kueuectl = match &args.kueuectl {
        Some(program) => program.clone(),
        None => tokio::task::block_in_place(peers::kueuectl)?,
    };
    for &clusters in &args.clusters {
        let mut stage = Stage::new(args, Size { clusters, nodes: 10 }, &template).await?;
        stage.start()?;
        stage.settled().await?;
        stage.quiet().await?;
        let first = &stage.fleet.workers[0];
        let kubeconfig = stage.home.path("first.kubeconfig");
        std::fs::write(&kubeconfig, first.kubeconfig("admin", &["system:masters"]))?;
        let bed = Bed {
            server: format!("http://127.0.0.1:{}", stage.home.api),
            token: stage.fleet.hub.state.new_token(User::new("admin", &["system:masters", GROUP]), None),
            kubeconfig,
            fedq: daemon::command_line(args),
            kueuectl: kueuectl.clone(),
        };
        stage.let_people_ask(GROUP).await?;
        tokio::task::block_in_place(|| bed.warm(clusters))?;
        for _ in 0..args.runs {
            tokio::task::block_in_place(|| {
                for ((command, _), curve) in COMMANDS.iter().zip(&mut curves) {
                    curve.add(clusters, bed.through_daemon(command)?);
                }
                memory.add(clusters, bed.most_memory(COMMANDS[4].0)?);
                let [own, theirs] = [&bed.fedq, &bed.kueuectl].map(|program| bed.by_kubeconfig(program));
                let (own, theirs) = (own?, theirs?);
                alone.add(clusters, own);
                peer.add(clusters, theirs);
                let through = curves[3].points.last().and_then(|point| point.runs.last());
                ratio.add(clusters, theirs / through.context("it was measured")?);
                anyhow::Ok(())
            })?;
        }
    }
    curves.extend([alone, peer, ratio, memory]);
    Ok(curves)
}

impl Bed {
    fn daemons(&self, command: &str) -> Command {
        let mut program = Command::new(&self.fedq);
        program
            .args(command.split(' ').skip(1))
            .env("FEDQ_SERVER", &self.server)
            .env("FEDQ_TOKEN", &self.token);
        program
    }

    /// Each cluster is asked once what the person may do; in the end every cluster is in the list, with the queues that the stage
    /// has just made and that fedqd is told of one by one.
    fn warm(&self, clusters: usize) -> Result<()> {
        let mut first = None;
        let began = Instant::now();
        loop {
            let asked = Instant::now();
            let done = self.daemons(COMMANDS[4].0).stdin(Stdio::null()).output()?;
            let took = *first.get_or_insert_with(|| asked.elapsed().as_secs_f64() * 1e3);
            ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            let rows = String::from_utf8_lossy(&done.stdout).lines().count().saturating_sub(1);
            if clusters * QUEUES == rows {
                println!(
                    "{clusters} clusters: {} the first time, {rows} queues, {took:.2} ms",
                    COMMANDS[4].0
                );
                return Ok(());
            }
            ensure!(began.elapsed() < WITHIN, "{rows} queues of {clusters} clusters with {QUEUES} each");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn through_daemon(&self, command: &str) -> Result<f64> {
        let millis = run(&mut self.daemons(command))?;
        println!("{command} {millis:.2} ms");
        Ok(millis)
    }

    /// Resident at most, in kB, as the kernel had it when the program was last looked at: once a millisecond.
    fn most_memory(&self, command: &str) -> Result<f64> {
        let mut program = self.daemons(command).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let (path, mut most) = (format!("/proc/{}/status", program.id()), 0.0_f64);
        while program.try_wait()?.is_none() {
            // It may have ended since.
            let status = std::fs::read_to_string(&path).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kilobytes = line.and_then(|rest| rest.trim().strip_suffix(" kB")).map(str::parse::<f64>);
            most = most.max(kilobytes.transpose()?.unwrap_or_default());
            std::thread::sleep(Duration::from_millis(1));
        }
        ensure!(0.0 < most, "{command} was over before it was looked at");
        println!("{command} {most} kB");
        Ok(most)
    }

    fn by_kubeconfig(&self, program: &Path) -> Result<f64> {
        let mut command = Command::new(program);
        if program == self.fedq {
            command.arg("kueue");
        }
        command.args(LIST).arg("--kubeconfig").arg(&self.kubeconfig);
        let millis = run(&mut command)?;
        println!("{} list cq --kubeconfig FILE {millis:.2} ms", program.display());
        Ok(millis)
    }
}

fn run(program: &mut Command) -> Result<f64> {
    let mut times = Vec::new();
    for turn in 0..=TIMES {
        let began = Instant::now();
        let done = program.stdin(Stdio::null()).output()?;
        let millis = began.elapsed().as_secs_f64() * 1e3;
        ensure!(done.status.success(), "{program:?}: {}", String::from_utf8_lossy(&done.stderr));
        // The first reads the program from disk, and has the token reviewed.
        if 0 < turn {
            times.push(millis);
        }
    }
    Ok(median(&times))
}
