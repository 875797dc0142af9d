//! What is measured, and how large.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// Measures fedqd with many simulated clusters.
#[derive(Debug, Parser)]
#[command(
    name = "fleet",
    after_help = "Sizes: a cluster needs about 0.3 MB here and two file descriptors in each of the two \
                  processes; 1,000 clusters need `ulimit -n 4096`.\n\n\
                  Examples:\n  \
                  cargo bench --bench fleet\n  \
                  cargo bench --bench fleet -- --clusters 10,30,100,300,1000 --nodes 100\n  \
                  cargo bench --bench fleet -- memory restart --runs 5"
)]
pub struct Args {
    /// All when none is named
    #[arg(value_enum)]
    pub what: Vec<What>,
    /// Numbers of clusters to measure at; slopes need four
    #[arg(long, value_delimiter = ',', default_values_t = [10, 30, 100, 300])]
    pub clusters: Vec<usize>,
    /// Nodes of each cluster where the number of clusters varies
    #[arg(long, default_value_t = 100)]
    pub nodes: usize,
    /// Numbers of nodes of each of `--nodes-clusters` clusters where that varies
    #[arg(long, value_delimiter = ',', default_values_t = [0, 100, 300, 1000])]
    pub nodes_each: Vec<usize>,
    #[arg(long, default_value_t = 30)]
    pub nodes_clusters: usize,
    /// How often each size is measured
    #[arg(long, default_value_t = 3)]
    pub runs: usize,
    /// The fedqd to measure [default: the one built with this benchmark]
    #[arg(long, value_name = "FILE")]
    pub daemon: Option<PathBuf>,
    /// The kueuectl to compare with [default: one that is built with Go]
    #[arg(long, value_name = "FILE")]
    pub kueuectl: Option<PathBuf>,
    /// Keep the daemon on this processor
    #[arg(long, value_name = "NUMBER")]
    pub pin: Option<usize>,
    /// Nothing else: churn in the largest fleet for so long, such as 1h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub endurance: Option<Duration>,
    /// Without the other clients
    #[arg(long)]
    pub alone: bool,
    /// This process is kube's side
    #[arg(long, hide = true, value_name = "FOLDER")]
    pub follow: Option<PathBuf>,
    /// Says nothing; cargo passes it
    #[arg(long, hide = true)]
    pub bench: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum What {
    /// Memory a joined cluster and a watched node
    Memory,
    /// CPU of heartbeats
    Heartbeats,
    /// From a change of capacity to quota
    Changes,
    /// Start with an empty database, restart, restart after versions expired
    Restart,
    /// All clusters reconnect at once with their versions expired
    Storm,
    /// A tenth of the largest fleet is bad
    Bad,
    /// The command line as a process
    Commands,
    /// Bytes and CPU of a scrape of all metrics
    Scrape,
}

fn duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    Duration::try_from(span).map_err(|error| error.to_string())
}

impl Args {
    pub fn wants(&self, what: What) -> bool {
        self.what.is_empty() || self.what.contains(&what)
    }
}
