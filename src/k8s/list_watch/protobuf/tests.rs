use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    client::ApiError,
    list_watch::{Skipped, body, events::Event},
};
use fedq_sim::protobuf::{
    self as served, MAGIC, Message,
    samples::{event_bytes, list_bytes, node_bytes},
};

fn error_bytes(code: u64, reason: &str, message: &str) -> Vec<u8> {
    let status = json!({ "status": "Failure", "message": message, "reason": reason, "code": code });
    served::watch_frame("ERROR", &served::encode_status(&status))
}

#[test]
fn a_node_is_read_where_it_lies() {
    let bytes = node_bytes("n-1", 7, 5000);
    let node = Node::parse(&bytes).expect("a node");
    let taint = TaintFacts { key: "gpu", value: "true", effect: "NoSchedule" };
    assert_eq!(
        node,
        Node {
            name: "n-1",
            labels: vec![("pool", "gpu"), ("zone", "a")],
            taints: vec![taint],
            allocatable: vec![("cpu", "127500m"), ("nvidia.com/gpu", "8")],
            unschedulable: true,
            ready: true,
            deleting: false,
        }
    );
    assert_eq!(name(&bytes), Ok("n-1"));
    let deleting = Message::default().bytes(1, &Message::default().text(1, "n").bytes(9, &[8, 1]).0).0;
    assert!(Node::parse(&deleting).expect("a node").deleting);
}

#[test]
fn a_broken_node_is_refused() {
    let bytes = node_bytes("n-1", 7, 50);
    for cut in [1, bytes.len() / 2, bytes.len() - 1] {
        assert!(Node::parse(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    assert!(Node::parse(&[]).is_err());
    let not_text = Message::default().bytes(1, &Message::default().bytes(1, &[0xff]).0).0;
    assert!(Node::parse(&not_text).is_err());
    // A length beyond 64 bits, and a group.
    assert!(Node::parse(&[0x0a, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255]).is_err());
    assert!(Node::parse(&[0x0b]).is_err());
}

/// Names and skipped names of a list, and its version.
fn read_list(bytes: &[u8], piece: usize, cap: usize) -> Result<(Vec<String>, Vec<Skipped>, u64), ApiError> {
    let (mut names, mut skipped) = (Vec::new(), Vec::new());
    let mut reader = ListReader::new(cap);
    for data in bytes.chunks(piece) {
        reader.feed(data, &mut |object| match object {
            Ok(object) => names.push(name(object).expect("a name").to_owned()),
            Err(object) => skipped.push(object),
        })?;
    }
    Ok((names, skipped, reader.finish()?))
}

#[test]
fn a_list_arrives_in_pieces_of_any_size() {
    let nodes: Vec<_> = (0..20).map(|i| node_bytes(&format!("n-{i}"), i, 300)).collect();
    let bytes = list_bytes(99, &nodes);
    for piece in [1, 2, 3, 7, 100, 1023, bytes.len()] {
        let (names, skipped, version) = read_list(&bytes, piece, 4 << 20).expect("a list");
        assert_eq!((names.len(), skipped.len(), version), (20, 0, 99), "in pieces of {piece}");
        assert_eq!(names[19], "n-19");
    }
    let empty = list_bytes(5, &[]);
    assert_eq!(read_list(&empty, 4, 100).expect("a list"), (vec![], vec![], 5));
}

#[test]
fn an_oversized_object_is_passed_over_and_named() {
    let nodes = [node_bytes("a", 1, 10), node_bytes("large", 2, 100_000), node_bytes("b", 3, 10)];
    let bytes = list_bytes(9, &nodes);
    for piece in [1000, 4096, 70_000, bytes.len()] {
        let (names, skipped, version) = read_list(&bytes, piece, 50_000).expect("a list");
        assert_eq!((names, version), (vec!["a".to_owned(), "b".to_owned()], 9), "in pieces of {piece}");
        assert_eq!(skipped.len(), 1);
        assert_eq!(skipped[0].name.as_deref(), Some("large"));
    }
}

#[test]
fn a_list_that_ends_early_is_not_a_list() {
    let bytes = list_bytes(9, &[node_bytes("a", 1, 10_000), node_bytes("b", 2, 10_000)]);
    // Behind the last object there are four bytes of the envelope, which say nothing.
    for cut in (0..bytes.len() - 4).step_by(37).chain([bytes.len() - 5]) {
        assert!(read_list(&bytes[..cut], 512, 4 << 20).is_err(), "cut at {cut}");
    }
    // Between two objects, where nothing but the length of the whole tells.
    let shorter = list_bytes(9, &[node_bytes("a", 1, 10_000)]);
    let first =
        bytes.windows(10).position(|window| window == &shorter[shorter.len() - 14..shorter.len() - 4]);
    let cut = first.expect("the first node's end") + 10;
    assert!(read_list(&bytes[..cut], 512, 4 << 20).is_err(), "cut between objects");
    assert!(read_list(&bytes[..bytes.len() - 5000], 512, 5000).is_err(), "cut in a skipped object");
    assert!(read_list(b"{\"kind\":\"NodeList\"}", 512, 100).is_err());
}

#[test]
fn a_gzipped_list_is_unpacked_as_it_arrives_and_up_to_its_cap() {
    use std::io::Write;
    let bytes = list_bytes(9, &(0..50).map(|i| node_bytes(&format!("n-{i}"), 1, 2000)).collect::<Vec<_>>());
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&bytes).expect("packed");
    let packed = encoder.finish().expect("packed");
    let answer = http::Response::builder()
        .header("content-encoding", "gzip")
        .body(kube::client::Body::empty())
        .expect("an answer");
    let read = |packed: &[u8], cap: usize| -> Result<usize, ApiError> {
        let mut reader = ListReader::new(4 << 20);
        let mut count = 0;
        let mut plain = body::Plain::new(&answer, cap);
        let mut on = |data: &[u8]| reader.feed(data, &mut |_| count += 1);
        for piece in packed.chunks(17) {
            plain.feed(piece, &mut on)?;
        }
        plain.finish(&mut on)?;
        reader.finish()?;
        Ok(count)
    };
    assert_eq!(read(&packed, 512 << 20).expect("a list"), 50);
    assert!(read(&packed, bytes.len() - 1).is_err(), "larger than allowed");
    assert!(read(&packed[..packed.len() - 9], 512 << 20).is_err(), "cut short");
    assert!(read(b"not gzip at all, but long enough", 512 << 20).is_err());
}

/// One word for each event.
fn read_watch(bytes: &[u8], piece: usize, cap: usize) -> Vec<String> {
    let mut words = Vec::new();
    let mut reader = WatchReader::new(cap);
    for data in bytes.chunks(piece) {
        reader.feed(data, &mut |event| {
            words.push(match event {
                Event::Set { version, object } => format!("set {} {version}", name(object).expect("a name")),
                Event::Gone { version, object } => {
                    format!("gone {} {version}", name(object).expect("a name"))
                }
                Event::Bookmark { version } => format!("bookmark {version}"),
                Event::Skipped(_) => "skipped".to_owned(),
                Event::Expired => "expired".to_owned(),
                Event::Failed(error) => format!("failed {error}"),
            });
        });
    }
    words
}

#[test]
fn events_arrive_in_pieces_of_any_size() {
    let bytes = [
        event_bytes("ADDED", &node_bytes("a", 10, 500)),
        event_bytes("BOOKMARK", &node_bytes("", 11, 0)),
        event_bytes("MODIFIED", &node_bytes("large", 12, 50_000)),
        event_bytes("DELETED", &node_bytes("a", 13, 500)),
        event_bytes("MODIFIED", b"\xff\xff broken"),
        error_bytes(410, "Expired", "too old resource version: 310 (312)"),
        error_bytes(500, "InternalError", "etcd is gone"),
    ]
    .concat();
    let expected =
        ["set a 10", "bookmark 11", "skipped", "gone a 13", "skipped", "expired", "failed etcd is gone"];
    for piece in [1, 3, 100, 8191, bytes.len()] {
        assert_eq!(read_watch(&bytes, piece, 10_000), expected, "in pieces of {piece}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_walk_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), piece in 1_usize..50) {
        if let Ok(node) = Node::parse(&bytes) {
            prop_assert!(node.name.len() <= bytes.len());
        }
        let framed = [MAGIC, &bytes].concat();
        let listed = read_list_quietly(&framed, piece);
        prop_assert!(listed <= bytes.len());
        let mut reader = WatchReader::new(300);
        for data in bytes.chunks(piece) {
            reader.feed(data, &mut |_| {});
        }
    }

    #[test]
    fn a_damaged_node_is_read_or_refused_but_never_panics(at in 0_usize..200, byte in any::<u8>(), cut in 0_usize..300) {
        let mut bytes = node_bytes("n-1", 7, 20);
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        let length = cut.min(bytes.len());
        if let Ok(node) = Node::parse(&bytes[..length]) {
            prop_assert!(node.name.len() <= bytes.len());
        }
    }
}

fn read_list_quietly(bytes: &[u8], piece: usize) -> usize {
    let mut reader = ListReader::new(200);
    let mut objects = 0;
    for data in bytes.chunks(piece) {
        if reader.feed(data, &mut |_| objects += 1).is_err() {
            break;
        }
    }
    objects
}
