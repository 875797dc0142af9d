use std::{
    convert::Infallible,
    sync::atomic::{AtomicBool, Ordering},
};

use http::{Request, Response};
use kube::client::Body;
use serde_json::json;

use super::*;
use fedq_k8s::{client::Answers, write::Action};

const WINDOW: Duration = Duration::from_millis(80);

fn change(queue: &str, value: u32) -> Change {
    Change {
        target: Target::cluster_scoped(Kind::ClusterQueue, queue),
        action: Action::Merge(json!({"value": value})),
        manager: "fedq-quota",
    }
}

#[test]
fn what_is_retracted_is_not_created_and_all_else_is_written() {
    let writer = Writer::default();
    let made = |queue: &str| Change { action: Action::Create(json!({})), ..change(queue, 1) };
    writer.want(vec![made("gone"), made("kept"), change("merged", 1)]);
    writer.retract([&made("gone").target, &change("merged", 1).target]);
    let names: Vec<String> = writer.wanted().into_iter().map(|target| target.name).collect();
    assert_eq!(names, ["kept", "merged"]);
}

/// Answers with `statuses` in turn, then with 200; remembers when it was asked for what.
struct Server {
    client: Client,
    asked: Arc<Mutex<Vec<(Instant, String)>>>,
    /// Knows nothing of what it is sent, but answers as if it did.
    older: Arc<AtomicBool>,
    answers: Answers,
}

impl Server {
    fn new(statuses: Vec<u16>, takes: Duration) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let older = Arc::new(AtomicBool::new(false));
        let forgets = Arc::clone(&older);
        let (log, statuses) = (Arc::clone(&asked), Arc::new(Mutex::new(statuses)));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (log, statuses) = (Arc::clone(&log), Arc::clone(&statuses));
            let forgets = forgets.load(Ordering::Relaxed);
            async move {
                let path = request.uri().path().to_owned();
                let sent = request.into_body().collect_bytes().await.expect("a body");
                log.lock().expect("the log").push((Instant::now(), path));
                tokio::time::sleep(takes).await;
                let mut statuses = statuses.lock().expect("the script");
                let code = if statuses.is_empty() { 200 } else { statuses.remove(0) };
                let failure = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "code": code, "reason": if code == 409 { "Conflict" } else { "" }, "message": "scripted"});
                let body = match code {
                    200 if forgets => b"{}".to_vec(),
                    200 => sent.to_vec(),
                    _ => failure.to_string().into_bytes(),
                };
                let body = Body::from(body);
                Ok::<_, Infallible>(Response::builder().status(code).body(body).expect("a response"))
            }
        });
        Self { client: Client::new(service, "default"), asked, older, answers: Answers::default() }
    }

    fn times(&self, queue: &str) -> Vec<Instant> {
        let asked = self.asked.lock().expect("the log");
        asked.iter().filter(|(_, path)| path.ends_with(queue)).map(|(at, _)| *at).collect()
    }
}

/// Runs the writer for a while, beside what `act` does.
async fn run(server: &Server, writer: &Writer, act: impl Future<Output = ()>) -> usize {
    run_with(server, writer, WriterConfig::MAY_ARRIVE, act).await
}

async fn run_with(
    server: &Server,
    writer: &Writer,
    may_arrive: Duration,
    act: impl Future<Output = ()>,
) -> usize {
    let config = WriterConfig { merge_window: WINDOW, deadline: Duration::from_secs(5), may_arrive };
    let cancel = CancellationToken::new();
    let mut reports = 0;
    let link = (server.client.clone(), server.answers.listen());
    let running = writer.run(link, config, |_, _| reports += 1, cancel.clone());
    tokio::join!(running, async {
        act.await;
        cancel.cancel();
    });
    reports
}

#[tokio::test]
async fn what_nobody_answered_counts_until_its_object_is_looked_at() {
    let (server, writer) = (Server::new(vec![504], WINDOW), Writer::default());
    server.older.store(true, Ordering::Relaxed);
    let (lost, other) = (change("lost", 1), Target::cluster_scoped(Kind::ClusterQueue, "other"));
    let looks = || server.times("clusterqueues").len();
    run_with(&server, &writer, WINDOW * 25, async {
        writer.want(vec![lost.clone()]);
        until(|| !writer.in_flight().is_empty()).await;
        writer.want(Vec::new());
        until(|| writer.in_flight().is_empty()).await;
        assert_eq!((writer.unanswered(&lost.target), writer.unanswered(&other)), (vec![lost], vec![]));
        // A server that is well answers probes all the time.
        while looks() == 0 {
            server.answers.tell();
            tokio::time::sleep(WINDOW / 4).await;
        }
        until(|| writer.all_unanswered().is_empty()).await;
    })
    .await;
    assert_eq!((server.times("lost").len(), looks()), (1, 1), "it is looked at once, and not sent again");
}

async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn an_answer_tells_what_became_of_what_was_sent_before() {
    let (server, writer) = (Server::new(vec![504], Duration::ZERO), Writer::default());
    run(&server, &writer, async {
        writer.want(vec![change("queue", 1)]);
        until(|| !writer.all_unanswered().is_empty() && writer.in_flight().is_empty()).await;
        until(|| server.times("queue").len() == 2 && writer.is_idle()).await;
        assert_eq!(writer.all_unanswered(), []);
    })
    .await;
}

#[tokio::test]
async fn what_goes_ahead_of_the_rest_is_sent_once() {
    let (server, writer) = (Server::new(vec![], WINDOW / 2), Writer::default());
    run(&server, &writer, async {
        writer.want(vec![change("known", 1)]);
        writer.want_also(vec![change("ahead", 1)]);
        tokio::time::sleep(WINDOW / 4).await;
        writer.want(vec![change("ahead", 1), change("rest", 1)]);
        tokio::time::sleep(WINDOW * 4).await;
    })
    .await;
    let times = ["known", "ahead", "rest"].map(|queue| server.times(queue).len());
    assert_eq!(times, [1, 1, 1]);
    assert!(server.times("ahead")[0] < server.times("rest")[0]);
}

#[tokio::test]
async fn the_first_write_goes_at_once_and_those_after_it_as_one() {
    let (server, writer) = (Server::new(vec![], Duration::ZERO), Writer::default());
    let start = Instant::now();
    let mut wanted_for = Duration::ZERO;
    let reports = run(&server, &writer, async {
        for value in 0..20 {
            writer.want(vec![change("q", value)]);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        wanted_for = start.elapsed();
        tokio::time::sleep(WINDOW * 2).await;
    })
    .await;
    let times = server.times("q");
    // A busy machine may take more than a window for what is meant to fall into one.
    let windows = usize::try_from(wanted_for.as_millis() / WINDOW.as_millis()).expect("a few");
    assert_eq!(times.len(), reports);
    assert!((2..=2 + windows).contains(&reports), "{reports} writes in {wanted_for:?}");
    assert!(times.windows(2).all(|pair| WINDOW <= pair[1] - pair[0]), "{times:?}");
    assert!(times[0] - start < WINDOW.max(wanted_for));
    assert!(writer.is_idle());
}

#[tokio::test]
async fn what_is_wanted_no_more_is_not_written() {
    let (server, writer) = (Server::new(vec![], Duration::ZERO), Writer::default());
    run(&server, &writer, async {
        writer.want(vec![change("q", 1)]);
        tokio::time::sleep(WINDOW / 4).await;
        writer.want(vec![change("q", 2)]);
        writer.want(vec![]);
        tokio::time::sleep(WINDOW * 2).await;
    })
    .await;
    assert_eq!(server.times("q").len(), 1);
}

#[tokio::test]
async fn a_wish_that_does_not_know_what_began_meanwhile_is_refused() {
    let (server, writer) = (Server::new(vec![], WINDOW), Writer::default());
    let until = async |holds: &dyn Fn() -> bool| {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    run(&server, &writer, async {
        let before = writer.revision();
        writer.want(vec![change("grows", 1)]);
        until(&|| writer.is_in_flight(&change("grows", 1).target)).await;
        assert!(!writer.want_in_view_of(before, vec![change("other", 1)]), "one that takes it for free");
        assert!(writer.wants_nothing());
        assert!(writer.want_in_view_of(before, vec![change("grows", 1), change("other", 1)]));
        let begun = writer.revision();
        until(&|| writer.is_idle()).await;
        assert!(!writer.want_in_view_of(begun, vec![change("third", 1)]), "its end is no less news");
        assert!(writer.want_in_view_of(writer.revision(), vec![change("third", 1)]));
        until(&|| writer.is_idle()).await;
    })
    .await;
    let times = ["grows", "other", "third"].map(|queue| server.times(queue).len());
    assert_eq!(times, [1, 1, 1]);
}

#[tokio::test]
async fn what_a_newer_wish_leaves_out_is_not_tried_again() {
    let (server, writer) = (Server::new(vec![504], WINDOW), Writer::default());
    run(&server, &writer, async {
        writer.want(vec![change("q", 1)]);
        tokio::time::sleep(WINDOW / 2).await;
        assert!(writer.is_in_flight(&change("q", 1).target));
        writer.want(vec![]);
        tokio::time::sleep(FIRST_RETRY + WINDOW * 2).await;
    })
    .await;
    assert_eq!(server.times("q").len(), 1);
    assert!(writer.is_idle() && writer.failures().is_empty());
}

#[tokio::test]
async fn what_was_created_is_not_created_again_by_a_wish_from_before_it_was_there() {
    let (server, writer) = (Server::new(vec![], WINDOW), Writer::default());
    let made = Change { action: Action::Create(json!({})), ..change("q", 1) };
    run(&server, &writer, async {
        writer.want(vec![made.clone()]);
        tokio::time::sleep(WINDOW / 4).await;
        writer.want(vec![made.clone()]);
        tokio::time::sleep(WINDOW * 4).await;
    })
    .await;
    assert_eq!(server.asked.lock().expect("the log").len(), 1);
    assert!(writer.is_idle());
}

#[tokio::test]
async fn a_conflict_is_left_to_the_next_decision_and_other_failures_are_tried_again() {
    let (server, writer) = (Server::new(vec![409, 500], Duration::ZERO), Writer::default());
    run(&server, &writer, async {
        writer.want(vec![change("q", 1)]);
        tokio::time::sleep(WINDOW).await;
        assert_eq!(server.times("q").len(), 1);
        writer.want(vec![change("q", 2)]);
        tokio::time::sleep(FIRST_RETRY / 2).await;
        assert_eq!(server.times("q").len(), 2);
        assert_eq!(writer.failures().len(), 1);
        tokio::time::sleep(FIRST_RETRY).await;
    })
    .await;
    assert_eq!(server.times("q").len(), 3);
    assert!(writer.failures().is_empty());
}

#[tokio::test]
async fn what_failed_while_the_server_was_away_goes_at_once_when_it_is_back() {
    for (refusal, times) in [(503, 3), (422, 2)] {
        let (server, writer) = (Server::new(vec![refusal; 2], Duration::ZERO), Writer::default());
        run(&server, &writer, async {
            writer.want(vec![change("q", 1)]);
            while server.times("q").len() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // It would come again after twice the first pause.
            tokio::time::sleep(WINDOW).await;
            server.answers.tell();
            tokio::time::sleep(WINDOW).await;
            assert_eq!(server.times("q").len(), times, "after {refusal}");
            writer.want(vec![]);
        })
        .await;
    }
}

#[tokio::test]
async fn what_was_sent_before_the_server_was_back_does_not_wait_longer_for_it() {
    let (server, writer) = (Server::new(vec![503; 4], WINDOW), Writer::default());
    let begun = Instant::now();
    run(&server, &writer, async {
        writer.want(vec![change("q", 1)]);
        while server.times("q").len() < 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // While the fourth is under way.
        server.answers.tell();
        while server.times("q").len() < 5 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let pauses = |times: u32| FIRST_RETRY * times + WINDOW * 5;
    let took = begun.elapsed();
    assert!(took < pauses(1 + 2 + 4 + 8), "{took:?}");
}

#[tokio::test]
async fn what_is_taken_in_vain_is_not_hammered_and_holds_up_nothing_else() {
    let (server, writer) = (Server::new(vec![], Duration::ZERO), Writer::default());
    server.older.store(true, Ordering::Relaxed);
    run(&server, &writer, async {
        let wants = async |change: Change, during: Duration| {
            let begun = Instant::now();
            while begun.elapsed() < during {
                writer.want(vec![change.clone()]);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        wants(change("q", 1), FIRST_RETRY * 2).await;
        let asked = server.times("q").len();
        // Once, and after pauses that grow.
        assert!((2..=3).contains(&asked), "{asked} requests");
        let told = writer.shortfalls();
        assert!(writer.failures().is_empty(), "it was not refused");
        assert!(told[&change("q", 1).target].contains("keeps value as it was"), "{told:?}");
        // What else is wanted of it waits no longer than ever.
        wants(change("q", 2), WINDOW).await;
        assert_eq!(server.times("q").len(), asked + 1);
        server.older.store(false, Ordering::Relaxed);
        wants(change("q", 2), FIRST_RETRY * 2).await;
        writer.want(vec![]);
    })
    .await;
    assert!(writer.failures().is_empty());
}

#[tokio::test]
async fn what_is_taken_in_vain_is_tried_again_without_being_asked_for_anew() {
    let (server, writer) = (Server::new(vec![], Duration::ZERO), Writer::default());
    server.older.store(true, Ordering::Relaxed);
    run(&server, &writer, async {
        writer.want(vec![change("q", 1)]);
        tokio::time::sleep(FIRST_RETRY + WINDOW * 2).await;
        assert_eq!(server.times("q").len(), 2);
        assert_eq!(writer.shortfalls().len(), 1);
        server.older.store(false, Ordering::Relaxed);
        tokio::time::sleep(FIRST_RETRY * 3).await;
    })
    .await;
    assert_eq!(server.times("q").len(), 3);
    assert!(writer.is_idle() && writer.shortfalls().is_empty());
}

#[tokio::test]
async fn a_conflict_that_repeats_is_not_hammered() {
    let (server, writer) = (Server::new(vec![409; 20], Duration::ZERO), Writer::default());
    run(&server, &writer, async {
        // A controller whose view is behind decides the same over and over.
        let begun = Instant::now();
        while begun.elapsed() < FIRST_RETRY * 2 {
            writer.want(vec![change("q", 1)]);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let asked = server.times("q").len();
        // Once, once more at once, and after pauses that grow; a slow machine may see one more of them.
        assert!((2..=4).contains(&asked), "{asked} requests");
        assert!(writer.failures().is_empty(), "nothing is wrong with the object");
        // Another decision rests on another view; it waits for the pause, and is then no repetition.
        writer.want(vec![change("q", 2)]);
        while server.times("q").len() == asked {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(server.times("q").len() <= asked + 1);
    })
    .await;
}

#[tokio::test]
async fn one_object_is_written_once_at_a_time_and_others_do_not_wait() {
    let (server, writer) = (Server::new(vec![], WINDOW), Writer::default());
    run(&server, &writer, async {
        writer.want(vec![change("a", 1), change("b", 1)]);
        tokio::time::sleep(WINDOW / 4).await;
        assert!(writer.is_in_flight(&change("a", 1).target));
        writer.want(vec![change("a", 2), change("b", 1)]);
        tokio::time::sleep(WINDOW / 4).await;
        assert_eq!((server.times("a").len(), server.times("b").len()), (1, 1));
        tokio::time::sleep(WINDOW * 3).await;
    })
    .await;
    assert_eq!(server.times("a").len(), 2);
}

#[tokio::test]
async fn a_stop_waits_for_the_write_under_way_and_starts_none() {
    let (server, writer) = (Server::new(vec![], WINDOW), Writer::default());
    let reports = run(&server, &writer, async {
        writer.want(vec![change("a", 1)]);
        tokio::time::sleep(WINDOW / 4).await;
        writer.want(vec![change("a", 1), change("b", 1)]);
        tokio::task::yield_now().await;
    })
    .await;
    assert!(1 <= reports);
    assert_eq!(server.times("a").len(), 1);
}
