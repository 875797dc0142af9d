//! The measurements. Each ends when hub and workers hold what they should.

mod bad;
mod changes;
mod commands;
mod endurance;
mod heartbeats;
mod memory;
mod restart;
mod scrape;
mod storm;

use std::time::Duration;

use anyhow::{Context, Result};

use super::args::{Args, What};
use super::figures::Figures;

/// What follows from the first plan: claims' status, positions, buffers that are given back.
const SETTLE: Duration = Duration::from_secs(3);

pub async fn all(args: &Args) -> Result<Figures> {
    let mut figures = Figures::default();
    if let Some(long) = args.endurance {
        figures.0.extend(endurance::measure(args, long).await.context("endurance")?);
        return Ok(figures);
    }
    if args.wants(What::Memory) {
        figures.0.extend(memory::measure(args).await.context("memory")?);
    }
    if args.wants(What::Heartbeats) {
        figures.0.extend(heartbeats::measure(args).await.context("heartbeats")?);
    }
    if args.wants(What::Changes) {
        figures.0.extend(changes::measure(args).await.context("changes")?);
    }
    if args.wants(What::Restart) {
        figures.0.extend(restart::measure(args).await.context("restart")?);
    }
    if args.wants(What::Storm) {
        figures.0.extend(storm::measure(args).await.context("storm")?);
    }
    if args.wants(What::Bad) {
        figures.0.extend(bad::measure(args).await.context("bad clusters")?);
    }
    if args.wants(What::Commands) {
        figures.0.extend(commands::measure(args).await.context("commands")?);
    }
    if args.wants(What::Scrape) {
        figures.0.extend(scrape::measure(args).await.context("scrapes")?);
    }
    Ok(figures)
}
