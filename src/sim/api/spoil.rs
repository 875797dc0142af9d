//! Requests and watches that meet a fault of the plan in force.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::{StreamExt, stream};
use http::{HeaderValue, Response, StatusCode, header, request::Parts};

use super::super::cluster::State;
use super::super::draw::mix;
use super::super::faults::{Answer, Delivery, Lifetime, Spoiler};
use super::super::status::Refusal;
use super::query::Query;
use super::route::Route;

/// Marks a list whose second page has expired.
#[derive(Clone, Copy)]
pub(super) struct GoneMidPage;

/// Marks a request that is done and whose answer never arrives.
#[derive(Clone, Copy)]
pub(super) struct AnswerLost;

/// White space is the beginning of every JSON document, so that no reader can give up on it early.
const BLANK: Bytes = Bytes::from_static(&[b' '; PIECE]);
const PIECE: usize = 16 << 10;
/// A piece each so often: 4 MB/s, which leaves something of the machine to those who are to bear it.
const PIECE_EVERY: Duration = Duration::from_millis(4);
/// Often enough that no pause between two bytes is taken for silence.
const BYTE_EVERY: Duration = Duration::from_millis(100);
const GARBAGE: usize = 4 << 10;

/// What becomes of a request; `None` lets it pass, perhaps marked.
pub(super) async fn meet(state: &State, parts: &mut Parts) -> Option<Response<Body>> {
    let route = Route::parse(parts.uri.path());
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let verb = super::verb(&parts.method, &route, &query).ok()?;
    let attributes = super::attributes(&route, verb, parts.uri.path());
    let kind = attributes.resource.split('/').next().unwrap_or_default();
    let decision = state.faults.on_request(verb, kind);
    if decision.go_away
        && let Some(connection) = parts.extensions.get::<Lifetime>()
    {
        connection.takes_no_more();
    }
    if Duration::ZERO < decision.wait {
        tokio::time::sleep(decision.wait).await;
    }
    let answer = match decision.answer {
        Answer::Honest => return None,
        Answer::GoneMidPage => {
            parts.extensions.insert(GoneMidPage);
            return None;
        }
        Answer::Lost => {
            parts.extensions.insert(AnswerLost);
            return None;
        }
        answer => answer,
    };
    state.counts.request(verb, &attributes.resource);
    let accept = super::text(&parts.headers, header::ACCEPT);
    Some(match answer {
        Answer::TooManyRequests(after) => Refusal::busy(after.as_secs()).response(accept),
        Answer::ServerError(code) => server_error(code),
        Answer::Forbidden => {
            let message =
                format!("{} is forbidden: the right to {verb} it was taken away", attributes.resource);
            Refusal::forbidden(message, kind, &attributes.group, &attributes.name).response(accept)
        }
        Answer::Endless if verb == "list" => endless_list(accept, &attributes.resource),
        Answer::Endless => streamed(accept, BLANK, PIECE_EVERY, BLANK),
        Answer::Trickle => streamed(accept, beginning(verb, accept), BYTE_EVERY, Bytes::from_static(b"x")),
        Answer::Garbage(seed) => garbage(accept, seed),
        Answer::Redirect(to) => redirect(&to),
        Answer::Never | Answer::Honest | Answer::GoneMidPage | Answer::Lost => std::future::pending().await,
    })
}

/// As proxies in front of a server answer, without a Status.
fn server_error(code: u16) -> Response<Body> {
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = Response::new(Body::from(code.canonical_reason().unwrap_or_default()));
    *response.status_mut() = code;
    response
}

/// `first`, and then a piece each so often, for ever.
fn streamed(accept: &str, first: Bytes, every: Duration, piece: Bytes) -> Response<Body> {
    let pieces = stream::unfold(piece, move |piece| async move {
        tokio::time::sleep(every).await;
        Some((Ok::<_, io::Error>(piece.clone()), piece))
    });
    let first = stream::once(async { Ok(first) });
    with_kind(accept, Body::from_stream(first.chain(pieces)))
}

/// A list without end of small objects, each of which a reader takes for a good one.
fn endless_list(accept: &str, plural: &str) -> Response<Body> {
    let is_protobuf = accept.contains("protobuf");
    let namespace = if plural == "localqueues" { r#""namespace":"endless","# } else { "" };
    let object = move |number: usize| -> Vec<u8> {
        if is_protobuf {
            // The list's field of items, in each an object with metadata, and in that a name.
            let name = format!("endless-{number:09}");
            let [name_length, length] =
                [name.len(), name.len() + 2].map(|length| u8::try_from(length).unwrap_or(0));
            let mut bytes = vec![0x12, length + 2, 0x0a, length, 0x0a, name_length];
            bytes.extend(name.bytes());
            bytes
        } else {
            format!(
                r#"{{"metadata":{{{namespace}"name":"endless-{number}","resourceVersion":"9"}},"spec":{{"clusterQueue":"endless"}},"value":1}},"#
            )
            .into_bytes()
        }
    };
    let first = if is_protobuf {
        // The envelope of a list of 256 TiB.
        Bytes::from_static(b"k8s\0\x12\x80\x80\x80\x80\x80\x80\x40")
    } else {
        Bytes::from_static(br#"{"kind":"List","metadata":{"resourceVersion":"9"},"items":["#)
    };
    let pieces = stream::unfold(0, move |begin| async move {
        tokio::time::sleep(PIECE_EVERY).await;
        let mut piece = Vec::with_capacity(PIECE);
        let mut number = begin;
        while piece.len() < PIECE {
            piece.extend(object(number));
            number += 1;
        }
        Some((Ok::<_, io::Error>(Bytes::from(piece)), number))
    });
    let first = stream::once(async { Ok(first) });
    with_kind(accept, Body::from_stream(first.chain(pieces)))
}

/// What an honest answer begins with, as far as the first text in it, so that no reader can give up on it early.
fn beginning(verb: &str, accept: &str) -> Bytes {
    Bytes::from_static(match (verb, accept.contains("protobuf")) {
        // An event of 32 kB, and a field of half of that.
        ("watch", true) => b"\0\0\x80\0\x0a\x80\x80\x01",
        ("watch", false) => br#"{"type":"ADDED","object":{"kind":""#,
        // The envelope of a list of 32 kB, and an object of half of that.
        (_, true) => b"k8s\0\x12\x80\x80\x02\x12\x80\x80\x01",
        (_, false) => br#"{"kind":""#,
    })
}

fn garbage(accept: &str, seed: u64) -> Response<Body> {
    let words = (0..).flat_map(|number| mix(seed ^ number).to_le_bytes());
    with_kind(accept, Body::from(words.take(GARBAGE).collect::<Vec<u8>>()))
}

/// Of the kind that was asked for.
fn with_kind(accept: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let kind = accept.split([',', ';']).next().filter(|kind| !kind.is_empty());
    let kind = HeaderValue::from_str(kind.unwrap_or("application/json"));
    let kind = kind.unwrap_or(HeaderValue::from_static("application/json"));
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn redirect(to: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    response
}

/// The events of one watch on their way out.
#[derive(Default)]
pub(super) struct Outlet {
    spoiler: Spoiler,
    /// Comes after the event that follows it.
    late: Option<Bytes>,
    /// The server went away under it.
    pub broken: bool,
}

impl Outlet {
    /// Once silent, it stays so: whoever waits has to give up.
    pub fn is_silent(&mut self, state: &State, kind: &str) -> bool {
        self.spoiler.stream(&state.faults, kind).is_some_and(|stream| stream.silent)
    }

    /// What of an event is sent, in order.
    pub fn deliver(&mut self, state: &State, kind: &str, event: Bytes, mut send: impl FnMut(Bytes)) {
        let Some(stream) = self.spoiler.stream(&state.faults, kind).cloned() else {
            send(event);
            self.late.take().into_iter().for_each(send);
            return;
        };
        let number = self.spoiler.count();
        if self.broken
            || stream.drop_after.is_some_and(|after| u64::try_from(after).is_ok_and(|after| after <= number))
        {
            self.broken = true;
            return;
        }
        let late = self.late.take();
        match stream.on_event(number) {
            Delivery::Once => send(event),
            Delivery::Twice => [event.clone(), event].into_iter().for_each(&mut send),
            Delivery::Late => self.late = Some(event),
            Delivery::Never => {}
        }
        late.into_iter().for_each(send);
    }

    /// A bookmark says that all before it was sent.
    pub fn before_bookmark(&mut self) -> Option<Bytes> {
        self.late.take()
    }
}
