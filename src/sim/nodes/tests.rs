use std::{collections::BTreeSet, mem::size_of};

use super::*;
use crate::protobuf::ListMeta;
use fedq_k8s::list_watch::protobuf::Node;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_795_255_200 + second).unwrap()
}

fn herd(nodes: usize) -> Herd {
    Herd::new(Template::small().into(), 7, nodes, 1000, at(0))
}

/// The object within its envelope.
fn unwrapped(body: &[u8]) -> Vec<u8> {
    let value = protobuf::MAGIC.len();
    let types = usize::from(body[value + 1]);
    let mut rest = &body[value + 2 + types + 1..];
    while 127 < rest[0] {
        rest = &rest[1..];
    }
    rest[1..rest.len() - protobuf::ENVELOPE_TAIL.len()].to_vec()
}

#[test]
fn bodies_have_the_sizes_of_real_nodes() {
    assert_eq!(size_of::<State>(), 24);
    for (template, size) in [(Template::small(), 6_900), (Template::large(), 16_500)] {
        let herd = Herd::new(template.into(), 7, 10, 1000, at(0));
        let length = herd.body_json(3, 1_234_567).len();
        assert!(length.abs_diff(size) < size / 50, "{length} bytes, not {size}");
    }
}

/// The strictest test of the holes: protobuf rendered with holes is the encoding of the JSON rendered
/// with holes, in every look and with versions of every length.
#[test]
fn both_encodings_say_the_same_in_every_look() {
    for template in [Template::small(), Template::large()] {
        let mut herd = Herd::new(template.into(), 7, 40, 1000, at(0));
        for (i, look) in Look::all().enumerate() {
            herd.states[i].look = look;
            herd.states[i].beat += 60;
            herd.states[i].changed += 30;
            for version in [1, 999, 1_234_567, u64::MAX] {
                let node: Value = serde_json::from_slice(&herd.body_json(i, version)).unwrap();
                assert_eq!(node["metadata"]["resourceVersion"], version.to_string());
                let encoded = protobuf::encode(ProtoKind::Node, &node);
                assert_eq!(herd.body_protobuf(i, version), encoded, "{look:?}");
            }
        }
    }
}

#[test]
fn no_hole_is_left_open() {
    let herd = herd(2);
    let body = String::from_utf8(herd.body_json(1, 5)).unwrap();
    for sign in ["CCC", "NNN", "PPP", "III", "UUU", "MMM", "SSS", "BBB", "2001-09", "1357924680"] {
        assert!(!body.contains(sign), "{sign} in {body}");
    }
}

#[test]
fn fedq_reads_what_a_node_is() {
    let mut herd = herd(3);
    let read = |herd: &Herd, i: usize| {
        let object = unwrapped(&herd.body_protobuf(i, 5));
        let node = Node::parse(&object).unwrap();
        let gpus = node.allocatable.iter().find(|(name, _)| *name == "nvidia.com/gpu").unwrap().1.to_owned();
        (node.name.to_owned(), gpus, node.ready, node.unschedulable, node.taints.len())
    };
    let name = "gke-0007-a3-000001".to_owned();
    assert_eq!(read(&herd, 1), (name.clone(), "8".to_owned(), true, false, 0));
    for change in
        [Change::Gpus(Gpus::OneLost), Change::Cordon(true), Change::Taint(true), Change::Ready(false)]
    {
        assert_eq!(herd.apply(1, change, 2000, at(60)), Some(Event::Modified), "{change:?}");
        assert_eq!(herd.apply(1, change, 2001, at(60)), None, "{change:?} twice");
    }
    assert_eq!(read(&herd, 1), (name, "7".to_owned(), false, true, 4));
    assert_eq!(herd.version(1), Some(2000));
    assert_eq!(herd.version(2), Some(1000));
}

#[test]
fn a_heartbeat_changes_times_and_nothing_else() {
    let mut herd = herd(2);
    let before = herd.value(0).unwrap();
    assert_eq!(herd.apply(0, Change::Heartbeat, 1000, at(300)), Some(Event::Modified));
    let after = herd.value(0).unwrap();
    assert_ne!(before, after);
    let old = before["status"]["conditions"][0]["lastHeartbeatTime"].as_str().unwrap();
    let new = after["status"]["conditions"][0]["lastHeartbeatTime"].as_str().unwrap();
    assert_eq!((old, new), ("2026-11-21T10:00:00Z", "2026-11-21T10:05:00Z"));
    assert_eq!(after["metadata"]["creationTimestamp"], old);
    let restored = after.to_string().replace(new, old);
    assert_eq!(restored, before.to_string());
}

#[test]
fn a_node_that_comes_back_is_another_object() {
    let mut herd = herd(3);
    let name = herd.name(1);
    let uid = herd.value(1).unwrap()["metadata"]["uid"].clone();
    assert_eq!(herd.find(&name), Some(1));
    assert_eq!(herd.apply(1, Change::Restore, 1, at(1)), None, "it is there");
    assert_eq!(herd.apply(1, Change::Delete, 1, at(1)), Some(Event::Deleted));
    assert_eq!((herd.find(&name), herd.value(1), herd.existing()), (None, None, 2));
    for change in [Change::Delete, Change::Heartbeat, Change::Cordon(true)] {
        assert_eq!(herd.apply(1, change, 2, at(2)), None, "{change:?}");
    }
    assert_eq!(herd.apply(1, Change::Restore, 3, at(3)), Some(Event::Added));
    assert_ne!(herd.value(1).unwrap()["metadata"]["uid"], uid);
    assert_eq!(herd.apply(9, Change::Heartbeat, 4, at(4)), None, "no such node");
    for stranger in ["gke-0007-a3-1", "gke-0008-a3-000001", "gke-0007-a3-000009", "gke-0007-a3-+00001", ""] {
        assert_eq!(herd.find(stranger), None, "{stranger}");
    }
}

#[test]
fn uids_differ_within_and_among_clusters() {
    let herds = [herd(50), Herd::new(Template::small().into(), 8, 50, 1000, at(0))];
    let uid = |herd: &Herd, i: usize| herd.value(i).unwrap()["metadata"]["uid"].to_string();
    let uids: BTreeSet<_> = herds.iter().flat_map(|herd| (0..50).map(move |i| uid(herd, i))).collect();
    assert_eq!(uids.len(), 100);
}

#[test]
fn pages_together_are_the_list() {
    let mut herd = herd(25);
    for gone in [0, 9, 10, 24] {
        herd.apply(gone, Change::Delete, 1001, at(1));
    }
    let page = |after: Option<&str>, limit| {
        let mut nodes = herd.nodes();
        if let Some(name) = after {
            nodes.after(name);
        }
        let left = nodes.truncate(limit);
        (nodes, left)
    };
    let (mut after, mut names, mut left) = (None::<String>, Vec::new(), Vec::new());
    loop {
        let (nodes, remaining) = page(after.as_deref(), 9);
        let last = nodes.last().filter(|_| remaining != 0);
        let meta = ListMeta {
            resource_version: "1001",
            next: last.as_deref(),
            remaining: last.is_some().then_some(i64::try_from(remaining).unwrap()),
        };
        let list = nodes.list(Encoding::Json, meta);
        let size = list.size();
        let json: Vec<u8> = list.flatten().collect();
        assert_eq!(json.len(), size);
        let shown: Value = serde_json::from_slice(&json).unwrap();
        let items: Vec<&Value> = shown["items"].as_array().unwrap().iter().collect();
        names.extend(items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()));
        let list = page(after.as_deref(), 9).0.list(Encoding::Protobuf, meta);
        let size = list.size();
        let protobuf: Vec<u8> = list.flatten().collect();
        assert_eq!(protobuf.len(), size);
        assert_eq!(protobuf, protobuf::encode_list(ProtoKind::Node, &items, meta));
        assert_eq!(shown["metadata"]["resourceVersion"], "1001");
        left.push(remaining);
        match shown["metadata"]["continue"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!(left, [12, 3, 0]);
    let expected: Vec<_> = (0..25).filter(|i| ![0, 9, 10, 24].contains(i)).map(|i| herd.name(i)).collect();
    assert_eq!(names, expected);
    assert_eq!(page(Some("gke-0007-a3-000099"), 9).0.last(), None);
    assert_eq!(page(None, 21).1, 0, "a page that takes them all is the last");
}

#[test]
fn a_list_is_of_the_moment_it_began() {
    let mut herd = herd(3);
    let meta = ListMeta { resource_version: "1000", ..ListMeta::default() };
    let list = herd.nodes().list(Encoding::Protobuf, meta);
    let same: Vec<u8> = herd.nodes().list(Encoding::Protobuf, meta).flatten().collect();
    herd.apply(2, Change::Cordon(true), 1_000_000_000, at(1));
    assert_eq!(list.flatten().collect::<Vec<u8>>(), same);
}

#[test]
fn every_node_reports_once_a_period_and_at_its_own_time() {
    let herd = herd(500);
    let mut beats = Beats::new(&herd, 1.0, at(0));
    let (mut seen, mut busiest) = (vec![0; 500], 0);
    for second in 1..=600 {
        let due = beats.due(&herd, at(second));
        busiest = busiest.max(due.len());
        for i in due {
            seen[i] += 1;
        }
    }
    assert_eq!(seen.iter().sum::<i32>().abs_diff(1000) / 3, 0);
    assert!(seen.iter().all(|times| (1..=3).contains(times)), "{seen:?}");
    assert!(busiest < 8, "{busiest} at once");
}

#[test]
fn heartbeats_follow_the_rate_and_are_never_made_up() {
    let mut herd = herd(300);
    let count = |rate: f64| Beats::new(&herd, rate, at(0)).due(&herd, at(30)).len();
    assert!(count(1.0).abs_diff(30) < 3 && count(0.1).abs_diff(3) < 3 && count(5.0).abs_diff(150) < 3);
    let mut beats = Beats::new(&herd, 1.0, at(0));
    let asleep = beats.due(&herd, at(86_400));
    assert_eq!(asleep.iter().collect::<BTreeSet<_>>().len(), asleep.len(), "each at most once");
    assert!(beats.due(&herd, at(86_400)).is_empty());
    assert!(beats.due(&herd, at(86_000)).is_empty(), "the clock went back");
    for i in 0..300 {
        herd.apply(i, Change::Delete, 1, at(1));
    }
    assert!(beats.due(&herd, at(90_000)).is_empty(), "nobody is left");
    let nobody = self::herd(0);
    assert!(Beats::new(&nobody, 1.0, at(0)).due(&nobody, at(900)).is_empty());
}

#[test]
fn a_rolling_drain_leaves_every_node_as_it_was() {
    let mut herd = herd(10);
    let steps = rolling_drain(2..8, Duration::from_secs(1), Duration::from_secs(4));
    assert_eq!(steps.len(), 18);
    assert!(steps.is_sorted_by_key(|(at, ..)| *at));
    let mut fewest = 10;
    for (version, (after, i, change)) in (2000..).zip(steps) {
        let now = at(i64::try_from(after.as_secs()).unwrap());
        assert!(herd.apply(i, change, version, now).is_some(), "{change:?} of {i}");
        fewest = fewest.min(herd.existing());
    }
    assert_eq!((herd.existing(), fewest), (10, 8));
}

#[test]
fn events_are_framed_in_both_encodings() {
    let herd = herd(1);
    let line = herd.event(Encoding::Json, 0, Event::Modified, 77);
    assert_eq!(line.last(), Some(&b'\n'));
    let event: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["metadata"]["resourceVersion"]),
        (&"MODIFIED".into(), &"77".into())
    );
    let frame = herd.event(Encoding::Protobuf, 0, Event::Deleted, 77);
    assert_eq!(frame, protobuf::watch_frame("DELETED", &herd.body_protobuf(0, 77)));
}

#[test]
fn a_plain_node_is_what_was_asked_for() {
    let node =
        node("n-1").gpus(8).cpu("128").memory("1Ti").label("pool", "gpu").taint("gpu", "yes", "NoSchedule");
    let value = node.clone().build(at(0));
    assert_eq!(value["status"]["allocatable"]["nvidia.com/gpu"], "8");
    assert_eq!(value["metadata"]["labels"]["pool"], "gpu");
    assert_eq!(value["spec"]["taints"][0]["key"], "gpu");
    let bytes = protobuf::message(ProtoKind::Node, &value);
    let read = Node::parse(&bytes).unwrap();
    assert!(read.ready && !read.unschedulable && read.allocatable.contains(&("cpu", "128")));
    let bytes = protobuf::message(ProtoKind::Node, &node.cordoned().not_ready().build(at(0)));
    let read = Node::parse(&bytes).unwrap();
    assert!(!read.ready && read.unschedulable);
}
