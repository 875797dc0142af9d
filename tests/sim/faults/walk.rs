//! Random walks: faults and changes drawn from a seed, and at the end everything as if none had been.
//!
//! `FEDQ_WALK_SEEDS=100..120 cargo test --test sim walk` walks other ways, `FEDQ_WALK_STEPS=50` longer ones.

use std::time::Duration;

use fastrand::Rng;
use fedq::sim::cluster::Cluster;

use super::super::bed::gpu_node;
use super::stage::{Stage, wrong};

const STEPS: usize = 10;
/// What lasts until the next step or the one after it.
const PLANS: [&str; 12] = [
    "hang",
    "half-open",
    "refuse-connections",
    "wrong-certificate",
    "server-errors 50%",
    "too-many-requests 1s 30%",
    "latency 100ms",
    "drop-watch-after 1",
    "silent-watch",
    "duplicate-events 50%; reorder-events 30%",
    "lose-events 30%",
    "gone-mid-page; lose-answers 30%",
];

/// Tells where a walk that failed began.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("this was FEDQ_WALK_SEEDS={0}..{1}", self.0, self.0 + 1);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "what to walk is the tester's choice, not configuration")]
fn asked(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_walks_end_where_they_would_have_without_faults() {
    let seeds = asked("FEDQ_WALK_SEEDS").unwrap_or_else(|| "1..3".to_owned());
    let (from, to) = seeds.split_once("..").expect("seeds as 1..3");
    let steps = asked("FEDQ_WALK_STEPS").map_or(STEPS, |steps| steps.parse().expect("a number of steps"));
    for seed in from.parse().expect("a number")..to.parse().expect("a number") {
        walk(seed, steps).await;
    }
}

async fn walk(seed: u64, steps: usize) {
    let _told = Told(seed);
    let mut draw = Rng::with_seed(seed);
    // Events that are lost or came in disorder are found by the next list.
    let mut stage = Stage::set_with("watchTimeout: 3s, consistencyInterval: 4s", "").await;
    stage.may_fall = true;
    let mut amounts = [[6, 4], [3, 5]];
    for step in 0..steps {
        println!("step {step}");
        step_one(&mut stage, &mut draw, (step, seed), &mut amounts).await;
        tokio::time::sleep(Duration::from_millis(draw.u64(50..600))).await;
    }
    for cluster in [stage.hub(), stage.one(), stage.two()] {
        wrong(cluster, "");
        cluster.state.faults.break_connections();
    }
    stage.ends_with(amounts).await;
}

async fn step_one(
    stage: &mut Stage,
    draw: &mut Rng,
    (step, seed): (usize, u64),
    amounts: &mut [[i64; 2]; 2],
) {
    match draw.u8(0..10) {
        0..=2 => {
            let plan = draw.choice(PLANS).expect("there are plans");
            let cluster = any(stage, draw);
            println!("{}: {plan}", cluster.state.name);
            cluster.set_faults(plan.parse::<fedq::sim::faults::Plan>().unwrap().seeded(seed));
        }
        3 => {
            for cluster in [stage.hub(), stage.one(), stage.two()] {
                wrong(cluster, "");
            }
        }
        4..=6 => {
            let which = draw.usize(0..2);
            amounts[which] = [draw.i64(0..8), draw.i64(0..6)];
            println!("give {amounts:?}");
            stage.give(&stage.bed.workers[which], amounts[which]).await;
        }
        7 => {
            let node = gpu_node(&format!("more-{step}"), draw.u32(1..8));
            stage.bed.workers[draw.usize(0..2)].put(node).await.unwrap();
        }
        8 => {
            println!("killed");
            stage.kill();
            tokio::time::sleep(Duration::from_millis(draw.u64(0..300))).await;
            stage.start();
        }
        _ => {
            let name = any(stage, draw).state.name.clone();
            println!("{name} forgets what was");
            stage.mark();
            let clusters = [stage.hub(), stage.one(), stage.two()];
            let cluster = clusters.into_iter().find(|cluster| cluster.state.name == name).unwrap();
            cluster.state.store.compact();
            cluster.state.faults.break_connections();
            stage.mark_anew();
        }
    }
}

fn any<'a>(stage: &'a Stage, draw: &mut Rng) -> &'a Cluster {
    let clusters = [stage.hub(), stage.one(), stage.two()];
    clusters[draw.usize(0..clusters.len())]
}
