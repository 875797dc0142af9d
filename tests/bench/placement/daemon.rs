//! A real `fedqd` that decides a hundred new Placements over a thousand clusters of a simulated hub. What it costs is
//! counted as OCM's placement controller was: CPU of the process, from the first Placement to the last that is
//! satisfied, with all reading and writing.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fedq_sim::cluster::{Cluster, Options};
use serde_json::{Value, json};

const OCM: &str = "cluster.open-cluster-management.io";
const NAMESPACE: &str = "kueue-system";
const CLUSTERS: usize = 1000;
const PLACEMENTS: usize = 100;
/// Of the kernel's accounting.
const TICKS_A_SECOND: f64 = 100.0;
const WITHIN: Duration = Duration::from_mins(2);
/// Longer than writes to one object are apart.
const RESTS: Duration = Duration::from_millis(1500);

pub fn measure() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for (what, cel) in [("the ten best", false), ("the ten best, with an expression", true)] {
        runtime.block_on(of_placements(what, cel));
    }
}

async fn of_placements(what: &str, cel: bool) {
    let hub = Cluster::start(Options { ocm: true, ..Options::named("hub") }).await.expect("a hub");
    furnish(&hub).await;
    let folder = tempfile::tempdir().expect("a folder");
    let daemon = Daemon::start(&hub, folder.path());
    // Once this one is decided, all clusters are known.
    hub.put(placement("first", cel)).await.expect("a Placement");
    settled(&hub, &daemon, 1).await;

    let (before, begun) = (daemon.cpu_seconds(), Instant::now());
    for number in 0..PLACEMENTS {
        hub.put(placement(&format!("placement-{number:03}"), cel)).await.expect("a Placement");
    }
    let took = settled(&hub, &daemon, PLACEMENTS + 1).await.duration_since(begun);
    println!(
        "{PLACEMENTS} Placements x {CLUSTERS} clusters, {what}: {:.2} CPU-s within {took:.1?}",
        daemon.cpu_seconds() - before
    );

    let (before, version) = (daemon.cpu_seconds(), hub.state.store.version());
    let label = json!({"metadata": {"labels": {"note": "new"}}});
    hub.merge("ManagedCluster", "cluster-0007", label).await.expect("a label");
    tokio::time::sleep(Duration::from_secs(3)).await;
    println!(
        "one label that none of them names, {what}: {:.2} CPU-s and {} writes",
        daemon.cpu_seconds() - before,
        hub.state.store.version() - version - 1
    );
}

async fn furnish(hub: &Cluster) {
    let set = json!({"selectorType": "ExclusiveClusterSetLabel"});
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fedq-system"}}),
        json!({
            "apiVersion": format!("{OCM}/v1beta2"), "kind": "ManagedClusterSet", "metadata": {"name": "all"},
            "spec": {"clusterSelector": set},
        }),
        json!({
            "apiVersion": format!("{OCM}/v1beta2"), "kind": "ManagedClusterSetBinding",
            "metadata": {"name": "all", "namespace": NAMESPACE}, "spec": {"clusterSet": "all"},
        }),
    ];
    objects.extend((0..CLUSTERS).flat_map(cluster));
    for object in objects {
        let named = object["metadata"]["name"].clone();
        if let Err(refusal) = hub.put(object).await {
            panic!("{named}: {refusal:?}");
        }
    }
}

fn cluster(number: usize) -> [Value; 3] {
    let name = format!("cluster-{number:04}");
    let labels = json!({
        format!("{OCM}/clusterset"): "all", "region": format!("r{}", number % 10), "accelerator": "h100",
    });
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        json!({
            "apiVersion": format!("{OCM}/v1"), "kind": "ManagedCluster",
            "metadata": {"name": name, "labels": labels}, "spec": {"hubAcceptsClient": true},
            "status": {
                "allocatable": {"cpu": (64 + number).to_string(), "memory": format!("{}Gi", 256 + number)},
                "capacity": {"cpu": "2048", "memory": "8Ti"},
                "version": {"kubernetes": "v1.36.3"},
                "clusterClaims": [{"name": "tier", "value": "gpu"}],
            },
        }),
        json!({
            "apiVersion": format!("{OCM}/v1alpha1"), "kind": "AddOnPlacementScore",
            "metadata": {"name": "resource-usage-score", "namespace": name},
            "status": {"scores": [{"name": "gpuClusterAvailable", "value": number % 200}]},
        }),
    ]
}

fn placement(name: &str, cel: bool) -> Value {
    let built_in = |name: &str| json!({"scoreCoordinate": {"type": "BuiltIn", "builtIn": name}, "weight": 1});
    let add_on = json!({"resourceName": "resource-usage-score", "scoreName": "gpuClusterAvailable"});
    let add_on = json!({"scoreCoordinate": {"type": "AddOn", "addOn": add_on}, "weight": 1});
    let mut selector = json!({"labelSelector": {"matchLabels": {"accelerator": "h100"}}});
    if cel {
        let expression = "managedCluster.metadata.labels['region'] != 'r9'";
        selector["celSelector"] = json!({"celExpressions": [expression]});
    }
    json!({
        "apiVersion": format!("{OCM}/v1beta1"), "kind": "Placement",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "numberOfClusters": 10,
            "predicates": [{"requiredClusterSelector": selector}],
            "prioritizerPolicy": {"mode": "Exact", "configurations": [
                add_on, built_in("ResourceAllocatableCPU"), built_in("Balance"),
            ]},
        },
    })
}

/// Until so many Placements are satisfied, and nothing more is written; when the last write was.
async fn settled(hub: &Cluster, daemon: &Daemon, placements: usize) -> Instant {
    let begun = Instant::now();
    let satisfied = |placement: &Value| {
        let conditions = placement["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "PlacementSatisfied" && one["status"] == "True")
            && placement["status"]["numberOfSelectedClusters"] == 10
    };
    let mut rested = (hub.state.store.version(), Instant::now());
    loop {
        let done = hub.list("Placement").iter().filter(|placement| satisfied(placement)).count();
        let version = hub.state.store.version();
        if version != rested.0 {
            rested = (version, Instant::now());
        }
        if done == placements && RESTS <= rested.1.elapsed() {
            return rested.1;
        }
        assert!(begun.elapsed() < WITHIN, "{done} of {placements} are satisfied: {}", daemon.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

struct Daemon {
    child: Child,
    log: std::path::PathBuf,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    fn start(hub: &Cluster, folder: &std::path::Path) -> Self {
        let path = |name: &str| folder.join(name).display().to_string();
        fs::write(path("hub.kubeconfig"), hub.kubeconfig("fedqd", &["system:masters"])).expect("a file");
        let config = format!(
            "hub: {{kubeconfig: {}}}\nstore: {{path: {}}}\napi: {{address: 127.0.0.1:0}}\n\
             webhook: {{address: disabled}}\nmetrics: {{address: 127.0.0.1:0}}\n",
            path("hub.kubeconfig"),
            path("fedq.db"),
        );
        fs::write(path("fedqd.yaml"), config).expect("a file");
        let log = folder.join("fedqd.log");
        let child = Command::new(env!("CARGO_BIN_EXE_fedqd"))
            .args(["--config", &path("fedqd.yaml")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).expect("a file"))
            .spawn()
            .expect("fedqd can be run");
        Self { child, log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// User and system, of all threads.
    fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it runs");
        // The name in brackets may hold anything.
        let fields = stat.rsplit_once(") ").expect("a stat file names the program").1;
        let ticks = fields.split(' ').skip(11).take(2).map(|field| field.parse::<f64>().expect("a number"));
        ticks.sum::<f64>() / TICKS_A_SECOND
    }
}
