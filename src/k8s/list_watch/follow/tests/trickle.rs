//! Watches that never fall silent and never say anything.

use std::time::Duration;

use axum::{
    body::{Body as Answer, Bytes},
    response::Response,
};
use futures::{StreamExt, stream};

use super::super::*;
use super::stage::*;

/// A piece each 50 ms, for ever.
fn trickle(first: &[u8], piece: &'static [u8]) -> Response<Answer> {
    let first = stream::once(std::future::ready(Bytes::copy_from_slice(first)));
    let pieces = stream::unfold((), move |()| async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Some((Bytes::from_static(piece), ()))
    });
    answer(200, Answer::from_stream(first.chain(pieces).map(Ok::<_, std::io::Error>)))
}

#[tokio::test]
async fn an_event_that_never_ends_is_told_of_and_the_watch_begun_anew() {
    for (codec, begun) in
        [(Codec::Json, &br#"{"type":"ADDED","object":{"kind":""#[..]), (Codec::Protobuf, b"\0\x01\0\0")]
    {
        let script = Script::default().answer("watch=1", trickle(begun, b"x"));
        let running = follow(script, codec, |follow| {
            follow.start = Some(5);
            follow.timing.object = Duration::from_millis(400);
        });
        running.log.until("broken Timeout an event did not arrive within 400ms").await;
        // Not before: what it hides may be what was missed.
        assert_eq!(running.log.count("synced"), 0, "{codec:?}");
        running.log.until("synced").await;
        running.stop().await;
    }
}

#[tokio::test]
async fn bytes_that_are_no_event_are_silence() {
    let script = Script::default()
        .answer("limit=500", list("5", &["a"]))
        .answer("watch=1", trickle(b"", b"\n"))
        .answer("limit=1", list("9", &[]))
        .answer("watch=1 resourceVersion=5", events(&[("ADDED", "b", 6)]));
    let running = follow(script, Codec::Json, |follow| follow.timing.silent = Duration::from_millis(300));
    running.log.until("at 6").await;
    let (log, _) = running.stop().await;
    assert_eq!(log.count("broken"), 0, "{:?}", log.lines());
}
