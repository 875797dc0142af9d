use std::io::Write;

use axum::{Router, body::Body, extract::Request, response::Response};
use proptest::prelude::*;

use super::{
    super::{Container, ContainerState, LogConnections, Style, text},
    *,
};
use crate::testing::Server;

fn origin(node: u32) -> Arc<Origin> {
    let cluster = "east".parse().expect("a name");
    Arc::new(Origin { cluster, node, pod: format!("p-{node}"), container: "c".to_owned() })
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).expect("a time")
}

fn line(node: u32, second: i64, text: &str) -> Event {
    let ts = (0 <= second).then(|| at(second));
    Event::Line(Record { origin: origin(node), seq: 1, ts, line: text.into(), cut: 0, position: None })
}

fn kept(largest: usize, events: impl IntoIterator<Item = Event>) -> Vec<u8> {
    let mut heap = Heap::new(&[], largest);
    events.into_iter().for_each(|event| heap.add(event));
    heap.text()
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("written");
    File::from_std(file)
}

/// Lines with their place, and what is told.
async fn heard(options: Options, files: &[&[u8]]) -> (Vec<String>, Vec<Option<Position>>) {
    let files = files.iter().map(|bytes| file(bytes)).collect();
    let mut session = replay(options, at(100), files, ());
    let (mut said, mut positions) = (Vec::new(), Vec::new());
    while let Some(event) = session.next().await {
        said.push(match event {
            Event::Line(record) => {
                positions.push(record.position);
                let text = text(&record, Style { prefix: true, timestamps: false });
                String::from_utf8_lossy(&text).trim_end().to_owned()
            }
            Event::Status(origin, status) => format!("node-{}: {status}", origin.node),
        });
    }
    (said, positions)
}

async fn said(options: Options, files: &[&[u8]]) -> Vec<String> {
    heard(options, files).await.0
}

#[tokio::test]
async fn what_was_kept_comes_as_it_was_written_in_the_order_of_time() {
    let raw =
        Record { origin: origin(1), seq: 9, ts: Some(at(2)), line: vec![255, 254], cut: 3, position: None };
    let text = kept(
        1 << 20,
        [
            line(0, 1, "first \u{1b}[1m\"quoted\""),
            Event::Status(origin(0), Status::Restarted),
            line(0, 4, "fourth"),
            // The kubelet's own words have no time, and a clock may be set back.
            line(0, -1, "rpc error"),
            line(0, 3, "behind"),
            Event::Line(raw),
            line(1, 5, ""),
            Event::Status(origin(1), Status::Broken { error: "for a moment".to_owned() }),
            Event::Status(origin(1), Status::Unread { error: "the pod is gone".to_owned() }),
            Event::Status(origin(0), Status::Ended),
        ],
    );
    let expected = [
        "node-0 | first \u{1b}[1m\"quoted\"",
        "node-0: the container was restarted",
        "node-1 | \u{fffd}\u{fffd} … 3 more bytes",
        "node-0 | fourth",
        "node-0 | rpc error",
        "node-0 | behind",
        "node-1 |",
        "node-1: the log cannot be read: the pod is gone",
        "node-0: the log is over",
        "node-1: the log is over",
    ];
    assert_eq!(said(Options::default(), &[&text]).await, expected);
}

#[tokio::test]
async fn beyond_the_limit_those_that_wrote_most_lose_their_earliest_lines() {
    let loud = (0..1000).map(|number| line(0, number, &format!("loud {number}")));
    let text = kept(20_000, loud.chain([line(1, 3, "quiet")]));
    assert!((10_000..=20_200).contains(&text.len()), "{}", text.len());
    let said = said(Options::default(), &[&text]).await;
    let lost: usize = said[0].split(' ').nth(2).expect("a number").parse().expect("a number");
    assert_eq!(said[0], format!("node-0: … {lost} lines before this were not kept"));
    assert_eq!(said[1], "node-1 | quiet");
    let rest: Vec<String> = (lost..1000).map(|number| format!("node-0 | loud {number}")).collect();
    assert_eq!(said[2..said.len() - 2], rest);
}

#[tokio::test]
async fn who_asks_for_less_gets_that() {
    let first = kept(1000, [line(0, 1, "a"), line(1, 1, "b"), line(0, 2, "c"), line(0, 2, "d")]);
    let second = kept(10_000, [line(0, 3, "e"), line(0, 4, "f"), line(1, 5, "g")]);
    let lines = async |options: Options| {
        let said = said(options, &[&first, &second]).await;
        said.iter().filter_map(|line| line.split_once(" | ")).map(|(_, text)| text).collect::<String>()
    };
    let all = Options::default;
    assert_eq!(lines(all()).await, "abcdefg");
    assert_eq!(lines(Options { node: Some(1), ..all() }).await, "bg");
    assert_eq!(lines(Options { tail: Some(2), ..all() }).await, "befg");
    assert_eq!(lines(Options { tail: Some(0), ..all() }).await, "");
    assert_eq!(lines(Options { since: Some(Since::Time(at(3))), ..all() }).await, "efg");
    assert_eq!(lines(Options { since: Some(Since::Ago(Duration::from_secs(96))), ..all() }).await, "fg");
    assert_eq!(lines(Options { since: Some(Since::Time(at(2))), tail: Some(1), ..all() }).await, "fg");
    let after = After { pod: "p-0".to_owned(), position: Position { ts: at(2), lines: 1 } };
    let after = BTreeMap::from([((0, "c".to_owned()), after)]);
    assert_eq!(lines(Options { after, tail: Some(1), ..all() }).await, "defg", "the tail is for what is new");
}

#[tokio::test]
async fn a_file_that_is_damaged_is_read_as_far_as_it_goes() {
    let mut text = kept(1000, [line(0, 1, "a")]);
    text.extend(b"{\"ts\":");
    let next = kept(1000, [line(0, 2, "b")]);
    let expected = [
        "node-0 | a",
        "node-0: the log cannot be read: the rest of what was kept of it is damaged",
        "node-0 | b",
        "node-0: the log is over",
    ];
    assert_eq!(said(Options::default(), &[&text, &next]).await, expected);
    assert!(said(Options::default(), &[]).await.is_empty());
}

fn pod(server: &Server, node: u32, state: ContainerState) -> Pod {
    Pod {
        node,
        cluster: "east".parse().expect("a name"),
        connections: LogConnections::new(server.client()),
        namespace: "team".to_owned(),
        name: format!("p-{node}"),
        uid: node.to_string(),
        containers: vec![Container { name: "c".to_owned(), state }],
    }
}

#[tokio::test]
async fn all_that_pods_wrote_is_gathered_and_what_cannot_be_read_is_said() {
    // Node 2 never answers.
    let server = Server::start(Router::new().fallback(async |request: Request| {
        let path = request.uri().path().to_owned();
        assert!(!request.uri().query().unwrap_or_default().contains("follow"), "what is there now");
        match path.split('/').nth(6) {
            Some("p-0") => {
                Response::new(Body::from("2026-11-21T07:00:00Z one\n2026-11-21T07:00:02Z three\n"))
            }
            Some("p-1") => Response::new(Body::from("2026-11-21T07:00:01Z two\n")),
            Some("p-2") => std::future::pending().await,
            _ => {
                let gone = r#"{"kind": "Status", "code": 404, "reason": "NotFound", "message": "pods \"p\" not found"}"#;
                Response::builder().status(404).body(Body::from(gone)).expect("an answer")
            }
        }
    }));
    let mut pods: Vec<Pod> = (0..4).map(|node| pod(&server, node, ContainerState::Ended)).collect();
    pods.push(pod(&server, 4, ContainerState::Waiting { reason: "ContainerCreating".to_owned() }));
    let text = gather(pods, 1 << 20, Duration::from_secs(2)).await;
    let mut said = said(Options::default(), &[&text]).await;
    said.retain(|line| !line.ends_with("the log is over"));
    said.sort();
    let unread = |node: u32, why: &str| format!("node-{node}: the log cannot be read: {why}");
    let expected = [
        "node-0 | one".to_owned(),
        "node-0 | three".to_owned(),
        "node-1 | two".to_owned(),
        unread(2, "it was not read to its end in time"),
        unread(3, "the pod is gone"),
        unread(4, "the pod is gone"),
    ];
    assert_eq!(said, expected);
}

/// A task that moved, to a cluster whose clock is behind.
#[tokio::test]
async fn what_a_later_pod_wrote_comes_whatever_its_clock_said() {
    let of = |pod: &str, second: i64, text: &str| {
        let Event::Line(record) = line(0, second, text) else { unreachable!("a line") };
        let origin = Arc::new(Origin { pod: pod.to_owned(), ..(*record.origin).clone() });
        Event::Line(Record { origin, ..record })
    };
    let first = kept(1 << 20, [of("a", 10, "a ten"), of("a", 11, "a eleven")]);
    let second = kept(1 << 20, [of("b", 3, "b three"), of("b", 12, "b twelve")]);
    let after = |pod: &str, second: i64| {
        let after = After { pod: pod.to_owned(), position: Position { ts: at(second), lines: 1 } };
        Options { after: BTreeMap::from([((0, "c".to_owned()), after)]), ..Options::default() }
    };
    let files: [&[u8]; 2] = [&first, &second];
    let rest = ["node-0 | a eleven", "node-0 | b three", "node-0 | b twelve", "node-0: the log is over"];
    assert_eq!(said(after("a", 10), &files).await, rest);
    // Of a pod of which nothing was kept only the times are known.
    assert_eq!(said(after("gone", 11), &files).await, rest[2..]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn wherever_a_session_stopped_the_next_one_gives_the_rest(
        seconds in proptest::collection::vec(0_i64..5, 1..30), stop in any::<prop::sample::Index>(),
    ) {
        let mut seconds = seconds;
        seconds.sort_unstable();
        let events = seconds.iter().enumerate().map(|(number, second)| line(0, *second, &number.to_string()));
        let text = kept(1 << 20, events);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (all, positions) = heard(Options::default(), &[&text]).await;
            let stop = stop.index(positions.len());
            let position = positions[stop].expect("lines with a time");
            let after = BTreeMap::from([((0, "c".to_owned()), After { pod: "p-0".to_owned(), position })]);
            let rest = said(Options { after, ..Options::default() }, &[&text]).await;
            let lines = |said: &[String]| said.iter().filter(|line| line.contains('|')).cloned().collect::<Vec<_>>();
            assert_eq!(lines(&rest), lines(&all)[stop + 1..]);
        });
    }
}

#[tokio::test]
async fn a_run_that_goes_on_is_kept_piece_by_piece_and_gone_on_with() {
    // Whoever follows hears more as long as the pod is there; each stream begins where it was asked to.
    let server = Server::start(Router::new().fallback(async |request: Request| {
        assert!(request.uri().query().unwrap_or_default().contains("follow=true"));
        let lines = ["2026-11-21T07:00:00Z one\n2026-11-21T07:00:02Z two\n", "2026-11-21T07:00:03Z three\n"];
        let (sender, receiver) = tokio::sync::mpsc::channel::<&str>(4);
        tokio::spawn(async move {
            for piece in lines {
                if sender.send(piece).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            sender.closed().await;
        });
        let pieces = futures::stream::unfold(receiver, |mut receiver| async {
            let piece = receiver.recv().await?;
            Some((Ok::<_, std::convert::Infallible>(piece), receiver))
        });
        Response::new(Body::from_stream(pieces))
    }));
    let (pods, all) =
        watch::channel(Pods { pods: vec![pod(&server, 0, ContainerState::Running)], complete: false });
    let mut following = Following::open(all.clone(), BTreeMap::new());
    let first = following.next(1 << 20).await.expect("what has come");
    assert_eq!(
        said(Options::default(), &[&first]).await[..3],
        ["node-0 | one", "node-0 | two", "node-0 | three"]
    );
    drop(following);

    let two = first.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1).map_or(0, |(at, _)| at + 1);
    let after = places(&mut file(&first[..two])).await;
    let mut following = Following::open(all, after);
    let rest = following.next(1 << 20).await.expect("the rest");
    assert_eq!(said(Options::default(), &[&rest]).await[..1], ["node-0 | three"], "each line once");
    pods.send_replace(Pods { pods: Vec::new(), complete: true });
    while following.next(1 << 20).await.is_some() {}
}

#[tokio::test]
async fn what_is_too_large_loses_its_first_lines_and_says_how_many_each_time() {
    let mut text = Vec::new();
    let mut number = 0;
    for _ in 0..20 {
        for _ in 0..50 {
            text.extend(kept(1 << 20, [line(number % 2, number.into(), &format!("{number}"))]));
            number += 1;
        }
        text = trimmed(&text, 4000);
        assert!(text.len() <= 4000, "{}", text.len());
    }
    // As a crash leaves it.
    text.extend(b"{\"ts\":");
    let said = said(Options::default(), &[&trimmed(&text, 4000)]).await;
    let lines = said.iter().filter(|line| line.contains(" | ")).count();
    let lost: usize = said
        .iter()
        .filter_map(|line| line.split("… ").nth(1)?.split(' ').next()?.parse::<usize>().ok())
        .sum();
    assert_eq!(lines + lost, 1000, "{said:#?}");
    assert!(
        said.iter().any(|line| line == "node-1 | 999") && !said.iter().any(|line| line.contains("damaged"))
    );
}
