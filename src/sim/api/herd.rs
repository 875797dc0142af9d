//! Nodes that are kept as a herd. Their lists are rendered a piece at a time, since a thousand clusters may be
//! asked for theirs at once; what is to be written becomes an object first.

use std::convert::Infallible;
use std::io::Write as _;

use axum::body::{Body, Bytes};
use flate2::{Compression, write::GzEncoder};
use futures::stream;
use http::Response;

use super::super::cluster::State;
use super::super::counts::Sent;
use super::super::kind::Kind;
use super::super::nodes::{Encoding, List, ServedHerd};
use super::super::status::Refusal;
use super::Call;
use super::encode::{self, Form};
use super::list::{Asked, list_meta, render};
use super::route::Resource;

/// As much as goes out at a time.
const PIECE: usize = 16 << 10;

/// Has an object of the store for the node of that name, or without one for each, where they are a herd.
pub(super) fn make_writable(state: &State, kind: &'static Kind, name: &str) {
    let Some(herd) = state.herd_of(kind) else { return };
    let names = if name.is_empty() { herd.names() } else { vec![name.to_owned()] };
    for name in names {
        herd.hand_over(&state.store, kind, &name);
    }
}

/// As of the version that was asked for, or now.
pub(super) fn list(
    call: &Call<'_>,
    resource: &Resource,
    herd: &ServedHerd,
    asked: &Asked,
    moment: Option<u64>,
) -> Result<Response<Body>, Refusal> {
    let form = encode::form(call, resource)?;
    let nodes = herd.nodes(&call.state.store, resource.kind, moment);
    let (mut nodes, at) = nodes.map_err(|_| asked.expired())?;
    if let Some((_, name)) = asked.after() {
        nodes.after(name);
    }
    if let Some(name) = asked.selector.name() {
        nodes.only(name);
    }
    if !asked.selector.is_empty() {
        nodes.keep(|node| asked.selector.matches(node));
    }
    let left = nodes.truncate(asked.limit);
    let metadata = asked.metadata(at, nodes.last().map(|name| (String::new(), name)), left);
    let encoding = match form {
        Form::Json => Encoding::Json,
        Form::Protobuf(_) => Encoding::Protobuf,
        // Of each node a part, which is not rendered from a template.
        Form::Yaml | Form::Table | Form::Metadata => {
            let items = nodes.objects().map(|node| node.as_ref().clone()).collect();
            return render(call, resource, items, metadata);
        }
    };
    let kind = if encoding == Encoding::Json { encode::JSON } else { encode::PROTOBUF };
    let list = nodes.list(encoding, list_meta(&metadata));
    let zipped = encode::zips(call, list.size());
    let pieces = Pieces {
        list,
        zip: zipped.then(|| GzEncoder::new(Vec::new(), Compression::new(1))),
        sent: call.sent.clone(),
        over: false,
    };
    let body = Body::from_stream(stream::iter(pieces.map(Ok::<_, Infallible>)));
    Ok(encode::streamed(call, body, kind, zipped))
}

/// What goes out, several nodes together, compressed where that was asked for.
struct Pieces {
    list: List,
    zip: Option<GzEncoder<Vec<u8>>>,
    sent: Sent,
    over: bool,
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        while out.len() < PIECE && !self.over {
            let piece = self.list.next();
            self.over = piece.is_none();
            let piece = piece.unwrap_or_default();
            let Some(zip) = &mut self.zip else {
                out.extend(piece);
                continue;
            };
            zip.write_all(&piece).expect("a Vec takes everything");
            if self.over {
                zip.try_finish().expect("a Vec takes everything");
            }
            if self.over || PIECE <= zip.get_ref().len() {
                out = std::mem::take(zip.get_mut());
            }
        }
        self.sent.add(out.len());
        (!out.is_empty()).then(|| Bytes::from(out))
    }
}
