//! The figures as a table and as JSON.

use serde_json::{Value, json};

use super::measure::{Burst, Counted, Idle, Restart, Spaced, Times};

pub struct Report {
    pub rest: Idle,
    pub heartbeats: Idle,
    pub one_queue: Spaced,
    pub all_queues: Spaced,
    pub burst: Burst,
    pub restart: Restart,
}

impl Report {
    pub fn print(&self) {
        for (what, spaced) in [("one queue", &self.one_queue), ("every queue", &self.all_queues)] {
            println!(
                "\n{} changes of a node, {what} follows: ms from the node's patch answered",
                spaced.changes
            );
            println!("{:<52}{:>8}{:>8}{:>8}", "", "p50", "p99", "max");
            for (what, times) in rows(spaced) {
                let at = |percent| times.percentile(percent);
                println!("{what:<52}{:>8.1}{:>8.1}{:>8.1}", at(50.0), at(99.0), at(100.0));
            }
            let (changed, wrote) = (spaced.changed_queues, spaced.queue_writes);
            println!("queues changed: {changed}, written: {wrote}; {:.2} s CPU of fedqd", spaced.cpu_seconds);
            println!("writes: {}", said(&spaced.counted));
        }
        let burst = &self.burst;
        println!("\n{} changes in {:.1} s", burst.changes, burst.seconds);
        println!("queue writes: {} on the worker, {} on the hub", burst.worker_writes, burst.hub_writes);
        println!("writes: {}", said(&burst.counted));
        for (what, idle) in [("30 s at rest", &self.rest), ("heartbeats", &self.heartbeats)] {
            let Idle { writes, events, cpu_seconds } = idle;
            println!("\n{what}: {events} events, {writes} writes, {cpu_seconds:.2} s CPU of fedqd");
        }
        let restart = &self.restart;
        println!(
            "\nrestart: ready after {:.0} ms, caught up after {:.0} ms",
            restart.ready, restart.caught_up
        );
        let bytes = restart.bytes_received.map_or("?".to_owned(), |bytes| bytes.to_string());
        println!("{} requests, {} writes, {bytes} bytes received", restart.requests, restart.writes);
        for request in &restart.node_requests {
            println!("nodes: {request}");
        }
    }

    pub fn json(&self) -> Value {
        let idle = |idle: &Idle| json!({"events": idle.events, "writes": idle.writes, "cpuSeconds": idle.cpu_seconds});
        json!({
            "oneQueue": spaced(&self.one_queue),
            "everyQueue": spaced(&self.all_queues),
            "burst": {
                "changes": self.burst.changes,
                "seconds": self.burst.seconds,
                "workerQueueWrites": self.burst.worker_writes,
                "hubQueueWrites": self.burst.hub_writes,
                "writes": counted(&self.burst.counted),
            },
            "rest": idle(&self.rest),
            "heartbeats": idle(&self.heartbeats),
            "restart": {
                "readyMillis": self.restart.ready,
                "caughtUpMillis": self.restart.caught_up,
                "nodeRequests": self.restart.node_requests,
                "requests": self.restart.requests,
                "writes": self.restart.writes,
                "bytesReceived": self.restart.bytes_received,
            },
        })
    }
}

fn rows(spaced: &Spaced) -> [(&'static str, &Times); 6] {
    [
        ("fedqd's first request received", &spaced.reaction),
        ("worker's ClusterQueue acknowledged", &spaced.worker),
        ("hub's ClusterQueue acknowledged", &spaced.hub),
        ("seen by a watch of the worker", &spaced.worker_seen),
        ("seen by a watch of the hub", &spaced.hub_seen),
        ("(a write inside the server, with Kueue's webhook)", &spaced.server),
    ]
}

fn spaced(spaced: &Spaced) -> Value {
    let times = rows(spaced).map(|(what, times)| {
        let figures = json!({"p50": times.percentile(50.0), "p99": times.percentile(99.0), "all": times.0});
        (what.to_owned(), figures)
    });
    json!({
        "changes": spaced.changes,
        "changedQueues": spaced.changed_queues,
        "queueWrites": spaced.queue_writes,
        "millis": serde_json::Map::from_iter(times),
        "writes": counted(&spaced.counted),
        "cpuSeconds": spaced.cpu_seconds,
    })
}

fn said(counted: &Counted) -> String {
    let one = |((cluster, resource), count): (&(String, String), &usize)| {
        format!("{count} {resource} on {cluster}")
    };
    counted.0.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn counted(counted: &Counted) -> Value {
    let one = |((cluster, resource), count): (&(String, String), &usize)| json!({"cluster": cluster, "resource": resource, "count": count});
    counted.0.iter().map(one).collect()
}
