mod stage;
mod tables;
mod trickle;

use std::{io::Write, sync::Arc, time::Duration};

use axum::{
    body::{Body as Answer, Bytes},
    response::Response,
};
use flate2::{Compression, write::GzEncoder};
use futures::{StreamExt, stream};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::{
    client::ClientLimits,
    list_watch::{State, Table},
    testing::{client_of, kubeconfig_of},
};
use fedq_sim::protobuf::samples as encode;

use stage::*;

#[tokio::test]
async fn a_kind_is_listed_then_watched() {
    let script = Script::default().answer("limit=500", list("5", &["a", "b"])).answer(
        "watch=1 resourceVersion=5",
        events(&[("MODIFIED", "b", 6), ("DELETED", "a", 7), ("BOOKMARK", "", 9)]),
    );
    let running = follow(script, Codec::Json, |follow| {
        follow.selector.labels = Some("fedq.dev/hub=a, x!=y".to_owned());
    });
    running.log.until("at 9").await;
    let (log, requests) = running.stop().await;
    let told =
        ["begin", "set a", "set b", "end", "at 5", "synced", "set b", "at 6", "gone a", "at 7", "at 9"];
    assert_eq!(*log.lines(), told);
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert!(requests[0].ends_with("&labelSelector=fedq.dev%2Fhub%3Da%2C%20x%21%3Dy"), "{requests:?}");
    assert!(requests[1].contains("allowWatchBookmarks=true"), "{requests:?}");
}

#[tokio::test]
async fn nodes_travel_as_gzipped_protobuf() {
    let nodes: Vec<_> = ["a", "b"].iter().map(|name| encode::node_bytes(name, 3, 9000)).collect();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&encode::list_bytes(5, &nodes)).expect("packed");
    let packed: Vec<_> = encoder
        .finish()
        .expect("packed")
        .chunks(100)
        .map(|piece| Ok::<_, std::io::Error>(piece.to_vec()))
        .collect();
    let mut listed = answer(200, Answer::from_stream(stream::iter(packed)));
    listed.headers_mut().insert("content-encoding", "gzip".parse().expect("a header"));
    let watched = [
        encode::event_bytes("MODIFIED", &encode::node_bytes("b", 8, 5000)),
        encode::event_bytes("DELETED", &encode::node_bytes("a", 9, 5000)),
    ]
    .concat();
    let pieces = watched.chunks(777).map(<[u8]>::to_vec).collect();
    let script = Script::default().answer("watch=1", stream_of(pieces)).answer("", listed);
    let running = follow(script, Codec::Protobuf, |_| {});
    running.log.until("at 9").await;
    let (log, _) = running.stop().await;
    assert_eq!(
        *log.lines(),
        ["begin", "set a", "set b", "end", "at 5", "synced", "set b", "at 8", "gone a", "at 9"]
    );
}

#[tokio::test]
async fn a_stored_version_is_resumed_without_a_list() {
    let script = Script::default()
        .answer("limit=1", list("50", &["a"]))
        .answer("watch=1 resourceVersion=40", events(&[("ADDED", "c", 45)]));
    let running = follow(script, Codec::Json, |follow| follow.start = Some(40));
    running.log.until("synced").await;
    let (log, requests) = running.stop().await;
    assert_eq!(*log.lines(), ["set c", "at 45", "synced"]);
    assert_eq!(requests.len(), 2, "{requests:?}");
}

#[tokio::test]
async fn a_server_older_than_the_store_is_not_followed() {
    let script = Script::default().answer("limit=1", list("30", &["a"]));
    let running = follow(script, Codec::Json, |follow| follow.start = Some(40));
    let log = running.log.clone();
    assert_eq!(running.stopped().await, Stopped::VersionsWentBack { stored: 40, found: 30 });
    assert!(log.lines().is_empty(), "{:?}", log.lines());
}

#[tokio::test]
async fn a_backup_restored_while_following_is_noticed_before_a_row_is_touched() {
    let script = Script::default()
        .answer("limit=500", list("50", &["a"]))
        .answer("watch=1", answer(200, event("ADDED", &object("b", 60))))
        .answer("limit=1", list("20", &[]));
    let running = follow(script, Codec::Json, |_| {});
    let log = running.log.clone();
    assert_eq!(running.stopped().await, Stopped::VersionsWentBack { stored: 60, found: 20 });
    assert_eq!(log.count("begin"), 1);
}

#[tokio::test]
async fn an_expired_version_is_listed_again() {
    let gone = json!({"kind": "Status", "reason": "Expired", "code": 410, "message": "too old"});
    for refusal in [answer(200, expired()), answer(410, gone.to_string())] {
        let script = Script::default()
            .answer("limit=1", list("50", &[]))
            .answer("watch=1 resourceVersion=40", refusal)
            .answer("limit=500", list("60", &["a"]));
        let running = follow(script, Codec::Json, |follow| follow.start = Some(40));
        running.script.until("resourceVersion=60").await;
        let (log, _) = running.stop().await;
        assert_eq!(*log.lines(), ["begin", "set a", "end", "at 60", "synced"]);
    }
}

#[tokio::test]
async fn pages_that_expire_on_the_way_are_begun_again() {
    let gone = json!({"kind": "Status", "reason": "Expired", "code": 410, "message": "token too old"});
    let script = Script::default()
        .answer("continue=next%3D", answer(410, gone.to_string()))
        .answer("limit=500", page("5", &["a"], "next="))
        .answer("limit=500", page("7", &["a"], "more"))
        .answer("continue=more", page("7", &["b"], ""));
    let running = follow(script, Codec::Json, |_| {});
    running.log.until("synced").await;
    let (log, _) = running.stop().await;
    assert_eq!(*log.lines(), ["begin", "set a", "begin", "set a", "set b", "end", "at 7", "synced"]);
}

#[tokio::test]
async fn what_was_sent_before_has_no_effect() {
    let sent = [
        ("ADDED", "b", 6),
        ("ADDED", "b", 6),
        ("DELETED", "a", 4),
        ("BOOKMARK", "", 5),
        ("MODIFIED", "c", 8),
    ];
    let script = Script::default().answer("limit=500", list("5", &["a"])).answer("watch=1", events(&sent));
    let running = follow(script, Codec::Json, |_| {});
    running.log.until("at 8").await;
    let (log, _) = running.stop().await;
    assert_eq!(log.lines()[5..], ["set b", "at 6", "set c", "at 8"]);
}

#[tokio::test]
async fn objects_that_cannot_be_read_are_skipped_and_the_cluster_is_kept() {
    let large = json!({"metadata": {"name": "large", "resourceVersion": "6"}, "x": "x".repeat(5000)});
    let items =
        json!({"metadata": {"resourceVersion": "5"}, "items": [object("a", 1), {"metadata": {}}, large]});
    let watched = [event("ADDED", &large), event("ADDED", &object("b", 7))].concat();
    let script = Script::default()
        .answer("limit=500", answer(200, items.to_string()))
        .answer("watch=1", stream_of(vec![watched.into_bytes()]));
    let running = follow(script, Codec::Json, |follow| follow.caps.object = 1000);
    running.log.until("at 7").await;
    let (log, _) = running.stop().await;
    assert_eq!(
        *log.lines(),
        [
            "begin",
            "set a",
            "skipped ",
            "skipped large",
            "end",
            "at 5",
            "synced",
            "skipped large",
            "set b",
            "at 7"
        ]
    );
}

#[tokio::test]
async fn a_kind_that_is_not_installed_is_looked_for() {
    let script = Script::default()
        .answer("limit=500", answer(404, "404 page not found"))
        .answer("limit=500", answer(404, "404 page not found"))
        .answer("limit=500", list("9", &["a"]));
    let running = follow(script, Codec::Json, |_| {});
    running.log.until("synced").await;
    let (log, _) = running.stop().await;
    let told = ["begin", "absent", "begin", "absent", "begin", "set a", "end", "at 9", "synced"];
    assert_eq!(*log.lines(), told);
}

#[tokio::test]
async fn failures_are_told_and_tried_again_from_where_it_was() {
    let mut busy = answer(429, "Too many requests");
    busy.headers_mut().insert("retry-after", "0".parse().expect("a header"));
    let pieces = [Ok(Bytes::from(event("ADDED", &object("b", 6)))), Err(std::io::Error::other("cut"))];
    // A moment between the two, or the error overtakes the data.
    let broken = stream::iter(pieces).then(async |piece| {
        tokio::time::sleep(Duration::from_millis(50)).await;
        piece
    });
    let script = Script::default()
        .answer("limit=500", answer(503, "no leader"))
        .answer("limit=500", busy)
        .answer("limit=500", answer(403, r#"{"kind":"Status","message":"things is forbidden"}"#))
        .answer("limit=500", list("5", &["a"]))
        .answer("watch=1 resourceVersion=5", answer(200, Answer::from_stream(broken)))
        .answer("limit=1", list("9", &[]))
        .answer("watch=1 resourceVersion=6", events(&[("ADDED", "c", 7)]));
    let running = follow(script, Codec::Json, |_| {});
    running.log.until("at 7").await;
    tokio::time::sleep(2 * SETTLED).await;
    let (log, _) = running.stop().await;
    let lines = log.lines().clone();
    let broken: Vec<_> = lines.iter().filter(|line| line.starts_with("broken")).collect();
    assert_eq!(broken.len(), 4, "{lines:#?}");
    assert!(broken[0].starts_with("broken Unreachable no leader"), "{lines:#?}");
    assert!(broken[1].starts_with("broken Throttled"), "{lines:#?}");
    assert!(broken[2].starts_with("broken Forbidden things is forbidden"), "{lines:#?}");
    assert!(broken[3].starts_with("broken Unreachable the answer broke off"), "{lines:#?}");
    let tail = lines.iter().rev().take(3).rev().collect::<Vec<_>>();
    assert_eq!(tail, ["set c", "at 7", "synced"]);
    assert_eq!(log.count("end"), 1);
}

#[tokio::test]
async fn a_list_that_trickles_or_is_cut_short_never_ends() {
    let whole = encode::list_bytes(5, &[encode::node_bytes("a", 1, 100)]);
    let cut = whole[..whole.len() - 50].to_vec();
    let script = Script::default()
        .answer("watch=1", stream_of(vec![]))
        .answer("", answer(200, cut))
        .answer("", stream_of(vec![whole[..20].to_vec()]))
        .answer("", answer(200, whole));
    let running = follow(script, Codec::Protobuf, |follow| follow.timing.list = Duration::from_millis(300));
    running.log.until("synced").await;
    let (log, _) = running.stop().await;
    let lines = log.lines().clone();
    assert_eq!(log.count("end"), 1, "{lines:#?}");
    assert!(lines[1].starts_with("broken Unreachable the answer was cut short"), "{lines:#?}");
    assert!(lines[3].starts_with("broken Timeout"), "{lines:#?}");
}

#[tokio::test]
async fn a_list_larger_than_allowed_is_refused() {
    let nodes: Vec<_> = (0..50).map(|i| encode::node_bytes(&format!("n-{i}"), 1, 1000)).collect();
    let script = Script::default().answer("", answer(200, encode::list_bytes(5, &nodes)));
    let running = follow(script, Codec::Protobuf, |follow| follow.caps.list = 20_000);
    running.log.until("broken Invalid the answer is larger than allowed").await;
    running.stop().await;
}

/// A list of one object of that size.
fn large_list(bytes: usize) -> Vec<u8> {
    let mut large = object("large", 1);
    large["data"] = "x".repeat(bytes).into();
    json!({"metadata": {"resourceVersion": "1000000"}, "items": [large]}).to_string().into_bytes()
}

#[tokio::test]
async fn while_others_read_large_objects_only_large_ones_wait() {
    // A buffer for 1.5 MiB has grown to 2.
    let budget = Budget::new(4 << 20);
    let mut others = Share::of(&budget);
    others.hold(3 << 20).expect("room for it");
    let of = |script: Script| follow(script, Codec::Json, |follow| follow.budget = budget.clone());
    let small = of(Script::default().answer("limit", list("5", &["a"])));
    small.log.until("synced").await;
    let mut script = Script::default();
    for _ in 0..100 {
        script = script.answer("limit", answer(200, large_list(3 << 19)));
    }
    let large = of(script);
    large.log.until("broken Throttled { retry_after: Some(1s) } too many large objects").await;
    drop(others);
    large.log.until("set large").await;
    large.log.until("synced").await;
    for running in [small, large] {
        running.stop().await;
    }
    assert_eq!(budget.left(), 4 << 20);
}

#[tokio::test]
async fn who_never_ends_a_large_object_gives_back_what_it_took() {
    let budget = Budget::new(2 << 20);
    let begun = large_list(1 << 20)[..1_000_000].to_vec();
    let script = Script::default().answer("limit", stream_of(vec![begun]));
    let running = follow(script, Codec::Json, |follow| {
        follow.budget = budget.clone();
        follow.timing.object = Duration::from_millis(500);
    });
    running.log.until("broken Timeout a large object did not arrive within 500ms").await;
    running.log.until("synced").await;
    assert_eq!(budget.left(), 2 << 20);
    running.stop().await;
}

#[tokio::test]
async fn a_watch_gives_back_what_a_large_object_took() {
    let budget = Budget::new(2 << 20);
    let mut large = object("large", 6);
    large["data"] = "x".repeat(1 << 20).into();
    let sent = [event("ADDED", &large).into_bytes(), event("ADDED", &object("b", 7)).into_bytes()];
    let script = Script::default()
        .answer("limit", list("5", &["a"]))
        .answer("watch=1 resourceVersion=5", stream_of(sent.to_vec()));
    let running = follow(script, Codec::Json, |follow| follow.budget = budget.clone());
    running.log.until("set b").await;
    // What is held is only told after what has arrived.
    running.log.until("at 7").await;
    let given = async {
        while budget.left() < 2 << 20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(WITHIN, given).await.expect("all of it is given back");
    let (log, _) = running.stop().await;
    assert_eq!((log.count("set large"), log.count("broken")), (1, 0));
}

#[tokio::test]
async fn a_version_that_never_ends_is_read_no_further() {
    let pieces = stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[b' '; 8 << 10])));
    let script = Script::default().answer("limit=1", answer(200, Answer::from_stream(pieces)));
    let running = follow(script, Codec::Json, |follow| follow.start = Some(40));
    running.log.until("broken Unreachable the answer broke off: length limit exceeded").await;
    running.stop().await;
}

#[tokio::test]
async fn a_silent_watch_is_renewed() {
    let script = Script::default()
        .answer("limit=500", list("5", &["a"]))
        .answer("watch=1", stream_of(vec![]))
        .answer("limit=1", list("9", &[]))
        .answer("watch=1 resourceVersion=5", events(&[("ADDED", "b", 6)]));
    let running = follow(script, Codec::Json, |follow| follow.timing.silent = Duration::from_millis(100));
    running.log.until("at 6").await;
    let (log, _) = running.stop().await;
    assert_eq!(log.count("broken"), 0, "{:?}", log.lines());
    assert_eq!(log.count("begin"), 1);
}

#[tokio::test]
async fn a_lost_delete_is_found_by_the_consistency_list() {
    let script = Script::default()
        .answer("limit=500", list("5", &["a", "b"]))
        .answer("limit=1&", list("9", &[]))
        .answer("limit=500", list("9", &["b"]));
    let running =
        follow(script, Codec::Json, |follow| follow.timing.consistency = Duration::from_millis(200));
    running.log.until("at 9").await;
    let (log, _) = running.stop().await;
    assert_eq!(log.lines()[6..10], ["begin", "set b", "end", "at 9"]);
    assert_eq!(log.count("broken"), 0);
}

#[tokio::test]
async fn a_frozen_connection_is_noticed_by_its_pings() {
    let script = Script::default().answer("limit=500", list("5", &["a"]));
    let server = script.serve();
    // Between client and server: forwards until told to freeze, then keeps both sides open in silence.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let kubeconfig =
        kubeconfig_of(&format!("https://{}", listener.local_addr().expect("an address")), &server.ca_pem);
    let freeze = CancellationToken::new();
    let frozen = freeze.clone();
    let to = server.address;
    let forwarder = tokio::spawn(async move {
        let (mut from, _) = listener.accept().await.expect("a connection");
        let mut onward = tokio::net::TcpStream::connect(to).await.expect("connected");
        let (mut up, mut down) = ([0; 4096], [0; 4096]);
        loop {
            tokio::select! {
                () = frozen.cancelled() => return std::future::pending().await,
                read = from.read(&mut up) => onward.write_all(&up[..read.expect("read")]).await.expect("written"),
                read = onward.read(&mut down) => from.write_all(&down[..read.expect("read")]).await.expect("written"),
            }
        }
    });
    let pings = ClientLimits {
        ping_every: Duration::from_millis(200),
        ping_timeout: Duration::from_millis(200),
        dial: Duration::from_millis(500),
        ..ClientLimits::default()
    };
    let mut follow = Follow::new(client_of(&kubeconfig, &pings).kube(), "/apis/x/v1/things", Codec::Json);
    follow.timing = quick();
    let (log, stop) = (Log::default(), CancellationToken::new());
    let mut sink = Recorder { log: log.clone(), codec: Codec::Json };
    let token = stop.clone();
    let task = tokio::spawn(async move { follow.run(&mut sink, token).await });
    log.until("synced").await;
    let started = std::time::Instant::now();
    freeze.cancel();
    log.until("broken").await;
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    stop.cancel();
    task.await.expect("no panic");
    let forwarding: tokio::task::JoinHandle<()> = forwarder;
    forwarding.abort();
}

#[tokio::test]
async fn what_broke_does_not_wait_while_the_server_answers_others() {
    let busy = || Response::builder().status(429).header("retry-after", "50").body(Answer::empty());
    for (refusal, waits) in [(answer(500, "{}"), false), (busy().expect("an answer"), true)] {
        let script = Script::default().answer("limit=500", refusal).answer("limit=500", list("5", &["a"]));
        let answers = Arc::<Answers>::default();
        let running = follow(script, Codec::Json, |follow| {
            follow.timing.backoff_min = Duration::from_mins(10);
            follow.timing.backoff_max = Duration::from_mins(10);
            follow.answers = Arc::clone(&answers);
        });
        running.log.until("broken").await;
        // It begins to wait right after it said so.
        tokio::time::sleep(Duration::from_millis(100)).await;
        answers.tell();
        if !waits {
            running.log.until("synced").await;
        }
        let (log, _) = running.stop().await;
        assert_eq!(log.count("synced"), usize::from(!waits), "{:?}", log.lines());
    }
}

#[tokio::test]
async fn of_two_kinds_that_broke_the_one_that_is_answered_first_brings_the_other() {
    let answers = Arc::<Answers>::default();
    let broken = |pause: Duration| {
        let script =
            Script::default().answer("limit=500", answer(500, "{}")).answer("limit=500", list("5", &["a"]));
        follow(script, Codec::Json, |follow| {
            follow.timing.backoff_min = pause;
            follow.timing.backoff_max = pause;
            follow.answers = Arc::clone(&answers);
        })
    };
    let (first, other) = (broken(Duration::from_millis(300)), broken(Duration::from_mins(10)));
    other.log.until("broken").await;
    first.log.until("synced").await;
    other.log.until("synced").await;
    first.stop().await;
    other.stop().await;
}
