//! `fedq kueue top` in a terminal: what a person sees and presses, on a simulated API server.

use std::time::{Duration, Instant};

use fedq_sim::cluster::{Cluster, Options};
use portable_pty::CommandBuilder;
use serde_json::json;
use tempfile::TempDir;

use super::{bed::KUEUE, kueue::People, terminal::Terminal};

const WITHIN: Duration = Duration::from_secs(30);

/// The program in a terminal of its own.
struct Screen {
    terminal: Terminal,
    /// What the program reads.
    _folder: Option<TempDir>,
}

impl Screen {
    fn open(cluster: &Cluster, size: (u16, u16)) -> Self {
        let folder = TempDir::new().unwrap();
        let kubeconfig = folder.path().join("config");
        std::fs::write(&kubeconfig, cluster.kubeconfig("ann", &["system:masters"])).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_fedq"));
        command.args(["kueue", "top", "--kubeconfig"]);
        command.arg(&kubeconfig);
        Self { terminal: Terminal::run(command, size), _folder: Some(folder) }
    }

    fn text(&self) -> String {
        self.terminal.text()
    }

    fn press(&mut self, keys: &str) {
        self.terminal.press(keys);
    }

    fn resize(&self, size: (u16, u16)) {
        self.terminal.resize(size);
    }

    /// A terminal shows a screen as its bytes come: what stands further down may be there a moment later.
    async fn shows(&self, what: &str) {
        self.is(&format!("{what:?} is not on the screen"), |text| text.contains(what)).await;
    }

    async fn hides(&self, what: &str) {
        self.is(&format!("{what:?} is still on the screen"), |text| !text.contains(what)).await;
    }

    async fn is(&self, otherwise: &str, so: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        while !so(&self.text()) {
            assert!(begun.elapsed() < WITHIN, "{otherwise}:\n{}", self.text());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Its exit code; the terminal is as it was found.
    async fn ends(&mut self) -> u32 {
        let begun = Instant::now();
        let code = loop {
            if let Some(code) = self.terminal.ended() {
                break code;
            }
            assert!(begun.elapsed() < WITHIN, "it does not end:\n{}", self.text());
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        while !self.terminal.is_given_back() {
            assert!(begun.elapsed() < WITHIN, "the terminal is not given back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        code
    }
}

async fn cluster() -> Cluster {
    let cluster = Cluster::start(Options::named("prod")).await.unwrap();
    for (name, gpus) in [("research", "16"), ("vision", "4")] {
        let cell = json!({"name": "nvidia.com/gpu", "nominalQuota": gpus});
        let group = json!({"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "h100", "resources": [cell]}]});
        let queue = json!({
            "apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name},
            "spec": {"resourceGroups": [group]},
        });
        cluster.put(queue).await.unwrap();
    }
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_are_seen_filtered_opened_and_left_in_a_terminal() {
    let cluster = cluster().await;
    let mut screen = Screen::open(&cluster, (24, 80));
    screen.shows("prod: 2 queues").await;
    for what in ["research", "vision", "h100", "q quit"] {
        screen.shows(what).await;
    }
    let widest = screen.text().lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 80, "{widest}");

    // What comes is there without a key.
    let queue =
        json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "late"}, "spec": {}});
    cluster.put(queue).await.unwrap();
    screen.shows("late").await;

    screen.press("/visi\r");
    screen.shows("/visi").await;
    screen.hides("research").await;
    screen.press("\r");
    screen.shows("vision of prod: 0 workloads").await;
    screen.press("\x1b");
    screen.shows("prod: 3 queues").await;
    screen.resize((40, 120));
    screen.shows("RESERVED").await;
    screen.press("?");
    screen.shows("Ctrl-C").await;
    screen.press("?q");
    assert_eq!(screen.ends().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_gives_the_terminal_back() {
    let cluster = cluster().await;
    let mut screen = Screen::open(&cluster, (24, 80));
    screen.shows("research").await;
    screen.press("\x03");
    assert_eq!(screen.ends().await, 130);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_away_is_told_of_and_what_is_known_stays() {
    let cluster = cluster().await;
    let mut screen = Screen::open(&cluster, (24, 240));
    screen.shows("research").await;
    cluster.set_faults("refuse-connections".parse().unwrap());
    cluster.state.faults.break_connections();
    screen.shows("asking again").await;
    assert!(screen.text().contains("research"), "{}", screen.text());
    cluster.set_faults("".parse().unwrap());
    let queue =
        json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "back"}, "spec": {}});
    cluster.put(queue).await.unwrap();
    screen.shows("back").await;
    screen.press("q");
    assert_eq!(screen.ends().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_told_from_one_that_has_nothing_to_tell() {
    let cluster = cluster().await;
    let mut screen = Screen::open(&cluster, (24, 240));
    screen.shows("research").await;
    cluster.set_faults("hang".parse().unwrap());
    screen.shows("it has not answered for 4 s").await;
    assert!(screen.text().contains("research"), "{}", screen.text());
    screen.press("q");
    assert_eq!(screen.ends().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_of_all_clusters_are_seen_through_fedqd_and_one_that_goes_away_is_named() {
    let people = People::set().await;
    people.see_all().await;
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_fedq"));
    command.args(["kueue", "top", "--all-clusters"]);
    command.env_clear();
    command.env("FEDQ_SERVER", &people.url);
    command.env("FEDQ_TOKEN", &people.token);
    command.env("FEDQ_CONFIG", "/nowhere/config.yaml");
    let mut screen = Screen { terminal: Terminal::run(command, (24, 80)), _folder: None };
    screen.shows("2 clusters: 4 queues").await;
    for what in ["CLUSTER", "one", "two", "research", "vision"] {
        screen.shows(what).await;
    }
    let two = &people.bed.workers[1];
    let late = json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "late"}, "spec": {}});
    two.put(late).await.unwrap();
    screen.shows("2 clusters: 5 queues").await;
    screen.press("/late\r");
    screen.hides("research").await;
    screen.press("\r");
    screen.shows("late of two: 0 workloads").await;
    screen.press("\x1b");
    two.power_off().await;
    screen.shows("two: shown as it was").await;
    assert!(screen.text().contains("late"), "{}", screen.text());
    screen.resize((40, 120));
    screen.shows("RESERVED").await;
    screen.press("\x03");
    assert_eq!(screen.ends().await, 130);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_terminal_gets_the_queues_once_as_text() {
    let cluster = cluster().await;
    let folder = TempDir::new().unwrap();
    let kubeconfig = folder.path().join("config");
    std::fs::write(&kubeconfig, cluster.kubeconfig("ann", &["system:masters"])).unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_fedq"));
    command.args(["kueue", "top", "--kubeconfig"]).arg(&kubeconfig).stdin(std::process::Stdio::null());
    let output = command.output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.starts_with("prod: 2 queues, 0 pending, 0 admitted"), "{text}");
    assert_eq!(text.lines().count(), 4, "a title, heads, and a line for each of two queues:\n{text}");
    assert!(!text.contains('>') && !text.contains('\x1b') && !text.contains("quit"), "{text}");
    // A name is nothing that it would look for.
    let refused = command.arg("research").output().await.unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("unknown command \"research\" for \"fedq kueue top\""), "{said}");
}
