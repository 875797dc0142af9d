//! Workloads that hold quota of a worker, until somebody ends them.

use fedq_sim::cluster::Cluster;
use serde_json::json;

use super::super::bed::KUEUE;
use super::stage::{GPU, QUEUES};
use super::truth::Amounts;

/// LocalQueues of `team` and `batch`.
const LOCAL: [&str; 2] = ["queue", "batch"];

#[derive(Debug)]
pub struct Workload {
    pub name: String,
    pub queue: usize,
    pub gpus: i64,
}

impl Workload {
    /// To Kueue of that worker, as somebody does who works there.
    pub async fn submit(&self, worker: &Cluster) {
        let container = json!({
            "name": "main", "image": "busybox", "resources": {"requests": {GPU: self.gpus.to_string()}},
        });
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
        let workload = json!({
            "apiVersion": KUEUE, "kind": "Workload", "metadata": {"name": self.name, "namespace": "team"},
            "spec": {
                "queueName": LOCAL[self.queue], "podSets": [{"name": "main", "count": 1, "template": template}],
            },
        });
        worker.put(workload).await.unwrap();
    }

    pub async fn end(&self, worker: &Cluster) {
        worker.remove_in("team", "Workload", &self.name).await.unwrap();
    }
}

/// GPUs that workloads hold of each queue, by the workloads alone.
pub fn reserved(worker: &Cluster) -> Amounts {
    let workloads = worker.list("Workload");
    QUEUES.map(|queue| {
        let admitted = workloads.iter().map(|workload| &workload["status"]["admission"]);
        let of_queue = admitted.filter(|admission| admission["clusterQueue"] == queue);
        let sets = of_queue.filter_map(|admission| admission["podSetAssignments"].as_array()).flatten();
        let gpus = sets.filter_map(|set| set["resourceUsage"][GPU].as_str()?.parse::<i64>().ok());
        gpus.sum()
    })
}
