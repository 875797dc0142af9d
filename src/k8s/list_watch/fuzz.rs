//! Bytes of a cluster, whatever they are, for `tests/fuzz`. Each function fails where the same bytes mean something else when
//! they arrive in other pieces, or where a reader keeps more than it may.

use flate2::{Compression, write::GzEncoder};
use http::header::CONTENT_ENCODING;
use std::io::Write as _;

use super::{body::Plain, events::Event, json, protobuf};

/// Objects above this are passed over.
const CAP: usize = 300;
/// Of a reader, beside the piece that it was given: an object that is not whole, or the frame of a page.
const HELD: usize = 256 << 10;
const UNPACKED: usize = 1 << 20;

/// A list or a watch of a built-in kind.
pub fn protobuf(bytes: &[u8]) {
    if let Ok(node) = protobuf::Node::parse(bytes) {
        assert!(node.name.len() <= bytes.len());
        assert!(node.facts().labels.len() <= bytes.len());
    }
    same_in_pieces(bytes, |pieces| {
        let mut reader = protobuf::ListReader::new(CAP);
        let mut told = Vec::new();
        for piece in pieces {
            let fed = reader.feed(piece, &mut |object| {
                told.push(match object {
                    Ok(object) => format!("{:?}", protobuf::name(object)),
                    Err(skipped) => format!("skipped {:?}", skipped.reason),
                });
            });
            if fed.is_err() {
                return vec!["refused".to_owned()];
            }
            assert!(reader.held() <= piece.len() + HELD);
        }
        match reader.finish() {
            Ok(version) => told.push(version.to_string()),
            Err(_) => return vec!["refused".to_owned()],
        }
        told
    });
    same_in_pieces(bytes, |pieces| {
        let mut reader = protobuf::WatchReader::new(CAP);
        let mut told = Vec::new();
        for piece in pieces {
            reader.feed(piece, &mut |event| told.push(shown(&event)));
            assert!(reader.held() <= piece.len() + HELD);
        }
        told
    });
}

/// A page or a watch of a custom resource.
pub fn json(bytes: &[u8]) {
    same_in_pieces(bytes, |pieces| {
        let mut reader = json::ListReader::new(CAP);
        let mut told = Vec::new();
        for piece in pieces {
            let fed = reader.feed(piece, &mut |object| {
                told.push(match object {
                    Ok(object) => format!("{:?}", json::name(object)),
                    Err(skipped) => format!("skipped {:?}", skipped.name),
                });
            });
            if fed.is_err() {
                return vec!["refused".to_owned()];
            }
            assert!(reader.held() <= piece.len() + HELD);
        }
        match reader.finish() {
            Ok(end) => told.push(format!("{} {:?}", end.version, end.next)),
            Err(_) => return vec!["refused".to_owned()],
        }
        told
    });
    same_in_pieces(bytes, |pieces| {
        let mut reader = json::WatchReader::new(CAP);
        let mut told = Vec::new();
        for piece in pieces {
            reader.feed(piece, &mut |event| told.push(shown(&event)));
            assert!(reader.held() <= piece.len() + HELD);
        }
        told
    });
}

/// An answer that says it is packed.
pub fn gzip(bytes: &[u8]) {
    let unpacked = unpack(bytes);
    assert!(unpacked.is_none_or(|bytes| bytes.len() <= UNPACKED));
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    let packed = packer.write_all(bytes).and_then(|()| packer.finish());
    assert_eq!(unpack(&packed.expect("memory does not fail")).as_deref(), Some(bytes));
}

fn unpack(bytes: &[u8]) -> Option<Vec<u8>> {
    let answer = http::Response::builder().header(CONTENT_ENCODING, "gzip").body(kube::client::Body::empty());
    let mut plain = Plain::new(&answer.expect("an answer"), UNPACKED);
    let mut unpacked = Vec::new();
    let mut on = |data: &[u8]| {
        unpacked.extend_from_slice(data);
        Ok(())
    };
    for piece in bytes.chunks(17) {
        plain.feed(piece, &mut on).ok()?;
    }
    plain.finish(&mut on).ok()?;
    Some(unpacked)
}

fn same_in_pieces(bytes: &[u8], read: impl Fn(&mut dyn Iterator<Item = &[u8]>) -> Vec<String>) {
    let whole = read(&mut std::iter::once(bytes));
    for piece in [1, 7] {
        assert_eq!(read(&mut bytes.chunks(piece)), whole, "in pieces of {piece} bytes");
    }
}

/// An object that is passed over may be named or not, by how much of it had come.
fn shown(event: &Event<'_>) -> String {
    match event {
        Event::Set { version, object } => format!("set {version} {}", object.len()),
        Event::Gone { version, object } => format!("gone {version} {}", object.len()),
        Event::Bookmark { version } => format!("bookmark {version}"),
        Event::Skipped(_) => "skipped".to_owned(),
        Event::Expired => "expired".to_owned(),
        Event::Failed(error) => format!("failed {error}"),
    }
}
