//! The command line as a process, from its start to its end.

use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Result, ensure};
use fedq_sim::nodes::Template;
use fedq_sim::rbac::User;
use tokio::time::Instant;

use crate::args::Args;
use crate::daemon;
use crate::figures::{Curve, median};
use crate::stage::{Size, Stage};

/// What people ask most; the first needs no server, and shows what a process costs.
const COMMANDS: [(&str, &str); 3] =
    [("fedq --version", ""), ("fedq quota list", "≤5 ms"), ("fedq cluster list", "")];
const TIMES: usize = 40;

pub async fn measure(args: &Args) -> Result<Vec<Curve>> {
    let template = Arc::new(Template::small());
    let mut curves: Vec<Curve> = COMMANDS
        .iter()
        .map(|(command, goal)| Curve::new(&format!("`{command}` as a process, p50"), "clusters", "ms", goal))
        .collect();
    for &clusters in &args.clusters {
        let mut stage = Stage::new(args, Size { clusters, nodes: 10 }, &template).await?;
        stage.start()?;
        stage.settled().await?;
        stage.quiet().await?;
        let token = stage.fleet.hub.state.new_token(User::new("admin", &["system:masters"]), None);
        let server = format!("http://127.0.0.1:{}", stage.home.api);
        for _ in 0..args.runs {
            for ((command, _), curve) in COMMANDS.iter().zip(&mut curves) {
                let mut program = Command::new(daemon::command_line(args));
                program
                    .args(command.split(' ').skip(1))
                    .env("FEDQ_SERVER", &server)
                    .env("FEDQ_TOKEN", &token);
                let millis = tokio::task::block_in_place(|| run(&mut program))?;
                println!("{clusters} clusters: {command} {millis:.2} ms");
                curve.add(clusters, millis);
            }
        }
    }
    Ok(curves)
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
