//! Lists of nodes that are kept as a herd: rendered a piece at a time, since a thousand clusters may be
//! asked for theirs at once.

use std::convert::Infallible;
use std::io::Write as _;

use axum::body::{Body, Bytes};
use flate2::{Compression, write::GzEncoder};
use futures::stream;
use http::{Response, header};
use serde_json::Value;

use super::super::counts::Sent;
use super::super::nodes::{Encoding, Herd, List, Page};
use super::super::status::Refusal;
use super::encode::{self, Form};
use super::route::Resource;
use super::{Call, read};

/// As much as goes out at a time.
const PIECE: usize = 16 << 10;
/// A node in JSON has several kilobytes; from so many on, a list is larger than what is left uncompressed.
const COMPRESSED_FROM: usize = 20;

/// None where this kind's objects are no herd.
pub(super) fn list(call: &Call<'_>, resource: &Resource) -> Result<Option<Response<Body>>, Refusal> {
    let Some(herd) = call.state.herd_of(resource.kind) else { return Ok(None) };
    let form = encode::form(call, resource)?;
    let encoding = match form {
        Form::Protobuf(_) => Encoding::Protobuf,
        Form::Json | Form::Yaml | Form::Table | Form::Metadata => Encoding::Json,
    };
    let page = page(call, encoding)?;
    let list = herd.page(&call.state.store, page).map_err(|_| {
        Refusal::expired("The provided continue parameter is too old to display a consistent list result.")
    })?;
    if matches!(form, Form::Yaml | Form::Table | Form::Metadata) {
        return excerpt(call, resource, list).map(Some);
    }
    let accepts = call.header(&header::ACCEPT_ENCODING).contains("gzip");
    let nodes = page.limit.unwrap_or(usize::MAX).min(herd.with(Herd::existing));
    let zipped = accepts && COMPRESSED_FROM <= nodes;
    let kind = if encoding == Encoding::Json { "application/json" } else { encode::PROTOBUF };
    let pieces = Pieces {
        list,
        zip: zipped.then(|| GzEncoder::new(Vec::new(), Compression::new(1))),
        sent: call.sent.clone(),
        over: false,
    };
    let body = Body::from_stream(stream::iter(pieces.map(Ok::<_, Infallible>)));
    Ok(Some(encode::streamed(call, body, kind, zipped)))
}

/// Of each node a part, which is not rendered from a template.
fn excerpt(call: &Call<'_>, resource: &Resource, list: List) -> Result<Response<Body>, Refusal> {
    let bytes: Vec<u8> = list.flatten().collect();
    let mut list: Value =
        serde_json::from_slice(&bytes).map_err(|error| Refusal::internal(error.to_string()))?;
    let metadata = list["metadata"].take();
    let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    read::render(call, resource, items, metadata)
}

fn page(call: &Call<'_>, encoding: Encoding) -> Result<Page, Refusal> {
    let query = &call.query;
    let limit = query.number("limit")?.filter(|limit| 0 < *limit);
    // Lists from the watch cache, asked for with version 0, come in one piece.
    let limit = limit.filter(|_| query.get("resourceVersion") != Some("0"));
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let Some(token) = query.get("continue").filter(|token| !token.is_empty()) else {
        return Ok(Page { encoding, from: 0, limit, version: None });
    };
    let parsed = token.split_once('.').and_then(|(version, from)| {
        Some(Page { encoding, from: from.parse().ok()?, limit, version: Some(version.parse().ok()?) })
    });
    parsed.ok_or_else(|| Refusal::bad_request("continue key is not valid"))
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
