//! Nodes as an API server sends them, for tests and benches of whoever reads them.

use serde_json::json;

use super::{ENVELOPE_TAIL, ListMeta, ProtoKind, list_item, list_start, message, start, watch_frame};

/// A node such as a GPU server reports it, with the bulk that is walked past.
pub fn node_bytes(name: &str, version: u64, bulk: usize) -> Vec<u8> {
    let node = json!({
        "metadata": {
            "name": name, "uid": "uid-1", "resourceVersion": version.to_string(), "generation": 3,
            "labels": { "pool": "gpu", "zone": "a" }, "annotations": { "annotation": "x".repeat(bulk) },
        },
        "spec": {
            "podCIDR": "10.0.0.0/24", "unschedulable": true,
            "taints": [{ "key": "gpu", "value": "true", "effect": "NoSchedule" }],
        },
        "status": {
            "capacity": { "cpu": "128" },
            "allocatable": { "cpu": "127500m", "nvidia.com/gpu": "8" },
            "conditions": [
                { "type": "MemoryPressure", "status": "False" },
                { "type": "Ready", "status": "True", "reason": "KubeletReady" },
            ],
        },
    });
    message(ProtoKind::Node, &node)
}

pub fn list_bytes(version: u64, nodes: &[Vec<u8>]) -> Vec<u8> {
    let items = nodes.iter().map(|node| [&list_item(node.len()).0, &node[..]].concat());
    let items = items.collect::<Vec<_>>().concat();
    let meta = ListMeta { resource_version: &version.to_string(), ..ListMeta::default() };
    [list_start(ProtoKind::Node, meta, items.len()), items, ENVELOPE_TAIL.to_vec()].concat()
}

pub fn event_bytes(kind: &str, object: &[u8]) -> Vec<u8> {
    let start = start(ProtoKind::Node, object.len());
    watch_frame(kind, &[&start, object, ENVELOPE_TAIL].concat())
}
