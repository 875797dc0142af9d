use std::{
    collections::VecDeque,
    io,
    sync::{Mutex, MutexGuard},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    response::Response,
};
use futures::{StreamExt, stream};
use serde_json::json;
use tokio::{sync::watch, time::timeout};

use super::*;
use crate::testing::Server;

const WITHIN: Duration = Duration::from_secs(20);

/// How a stream goes on after its bytes.
#[derive(Clone, Copy)]
enum Then {
    Ends,
    Breaks,
    SaysNothing,
}

/// Answers of a server, one for each request: the first whose words are all in the query is used up.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    answers: VecDeque<(&'static str, Response<Body>)>,
    asked: Vec<String>,
}

impl Script {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic")
    }

    fn answer(self, words: &'static str, answer: Response<Body>) -> Self {
        self.state().answers.push_back((words, answer));
        self
    }

    fn stream(self, words: &'static str, text: &str, then: Then) -> Self {
        let bytes = stream::iter([Ok(Bytes::from(text.to_owned()))]);
        let body = match then {
            Then::Ends => Body::from_stream(bytes),
            // After what was sent has left.
            Then::Breaks => Body::from_stream(bytes.chain(stream::once(async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Err(io::Error::other("it breaks"))
            }))),
            Then::SaysNothing => Body::from_stream(bytes.chain(stream::pending())),
        };
        self.answer(words, Response::new(body))
    }

    fn refuses(self, code: u16, reason: &str, message: &str) -> Self {
        let status = json!({"kind": "Status", "code": code, "reason": reason, "message": message});
        let answer = Response::builder().status(code).body(Body::from(status.to_string()));
        self.answer("", answer.expect("an answer"))
    }

    fn asked(&self) -> Vec<String> {
        self.state().asked.clone()
    }

    fn respond(&self, request: &Request) -> Option<Response<Body>> {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let mut state = self.state();
        let fits = |words: &str| words.split(' ').all(|word| query.contains(word));
        let place = state.answers.iter().position(|(words, _)| fits(words));
        state.asked.push(query);
        place.and_then(|place| state.answers.remove(place)).map(|(_, answer)| answer)
    }

    fn serve(&self) -> Server {
        let script = self.clone();
        // What was not planned is never answered.
        Server::start(Router::new().fallback(async move |request: Request| match script.respond(&request) {
            Some(answer) => answer,
            None => std::future::pending().await,
        }))
    }
}

/// A session over one pod, and what is said in it.
struct Stage {
    script: Script,
    session: Session,
    pods: watch::Sender<Pods>,
    said: Vec<String>,
    _server: Server,
}

impl Stage {
    fn set(script: Script, state: ContainerState, adjust: impl FnOnce(&mut Options)) -> Self {
        let server = script.serve();
        let mut options = Options { follow: true, limits: quick(), ..Options::default() };
        adjust(&mut options);
        let pod = Pod {
            node: 0,
            cluster: "east".parse().expect("a name"),
            connections: LogConnections::new(server.client()),
            namespace: "team".to_owned(),
            name: "p".to_owned(),
            uid: "u".to_owned(),
            containers: vec![Container { name: "c".to_owned(), state }],
        };
        let (pods, receiver) = watch::channel(Pods { pods: vec![pod], complete: false });
        Self { script, session: open(options, receiver), pods, said: Vec::new(), _server: server }
    }

    fn becomes(&self, state: &ContainerState) {
        self.pods.send_modify(|pods| pods.pods[0].containers[0].state = state.clone());
    }

    /// Until this was said.
    async fn until(&mut self, wanted: &str) {
        while self.said.last().is_none_or(|said| said != wanted) {
            let event = timeout(WITHIN, self.session.next()).await;
            let event = event.unwrap_or_else(|_| panic!("no {wanted:?} after {:#?}", self.heard()));
            let event = event.unwrap_or_else(|| panic!("over without {wanted:?}: {:#?}", self.said));
            self.said.push(shown(&event));
        }
    }

    fn heard(&self) -> (&[String], Vec<String>) {
        (&self.said, self.script.asked())
    }

    /// Until the session is over, which it has to be once its pods are complete.
    async fn all(mut self) -> (Vec<String>, Vec<String>) {
        self.pods.send_modify(|pods| pods.complete = true);
        loop {
            let event = timeout(WITHIN, self.session.next()).await;
            match event.unwrap_or_else(|_| panic!("no end after {:#?}", self.heard())) {
                Some(event) => self.said.push(shown(&event)),
                None => return (self.said, self.script.asked()),
            }
        }
    }
}

fn shown(event: &Event) -> String {
    match event {
        Event::Line(record) => {
            format!("{} {}", record.seq, String::from_utf8_lossy(&text(record, Style::default())).trim_end())
        }
        Event::Status(_, status) => status.to_string(),
    }
}

fn quick() -> Limits {
    let millis = Duration::from_millis;
    Limits {
        silent: millis(400),
        linger: millis(100),
        backoff_min: millis(10),
        backoff_max: millis(50),
        attempts: 3,
        ..Limits::default()
    }
}

fn stamped(second: u32, lines: &str) -> String {
    let line = |line| format!("2026-11-21T07:00:{second:02}.000000001Z {line}\n");
    lines.split(' ').map(line).collect::<Vec<_>>().concat()
}

const FOLLOW: &str = "follow=true";
const RUNNING: ContainerState = ContainerState::Running;
const ENDED: ContainerState = ContainerState::Ended;

#[tokio::test]
async fn a_broken_stream_is_resumed_where_it_broke() {
    let begun = format!("{}2026-11-21T07:00:06.0Z th", stamped(5, "one two"));
    let rest = format!("{}{}", stamped(5, "one two"), stamped(6, "three"));
    let script = Script::default()
        .stream(FOLLOW, &begun, Then::Breaks)
        .stream("follow=true sinceTime=2026-11-21T07%3A00%3A04Z", &rest, Then::SaysNothing)
        .stream("sinceTime=2026-11-21T07%3A00%3A05Z", &format!("{rest}{}", stamped(7, "four")), Then::Ends);
    let mut stage = Stage::set(script, RUNNING, |_| {});
    stage.until("3 three").await;
    assert!(stage.said[2].starts_with("the log broke off and is resumed: "), "{:?}", stage.said);
    stage.becomes(&ENDED);
    let (said, asked) = stage.all().await;
    assert_eq!(said[..2], ["1 one", "2 two"]);
    assert_eq!(said[3..], ["reconnected", "3 three", "4 four", "the log is over"]);
    assert!(!asked.last().expect("asked").contains("follow"), "the last look waits for nothing: {asked:?}");
}

#[tokio::test]
async fn a_stream_that_ends_under_a_running_container_is_begun_again_without_a_word() {
    let script = Script::default()
        .stream(FOLLOW, &stamped(5, "one"), Then::Ends)
        .stream(FOLLOW, &stamped(5, "one"), Then::Ends)
        .stream(FOLLOW, &stamped(5, "one two"), Then::SaysNothing)
        .stream("sinceTime", &stamped(5, "one two"), Then::Ends);
    let mut stage = Stage::set(script, RUNNING, |_| {});
    stage.until("2 two").await;
    stage.becomes(&ENDED);
    let (said, _) = stage.all().await;
    assert_eq!(said, ["1 one", "2 two", "the log is over"]);
}

#[tokio::test]
async fn a_stream_that_died_without_a_word_is_found_out() {
    let script = Script::default()
        .stream(FOLLOW, &stamped(5, "one"), Then::SaysNothing)
        .stream("follow=true sinceTime", &stamped(5, "one"), Then::SaysNothing)
        .stream("follow=true sinceTime", &stamped(5, "one two"), Then::SaysNothing)
        .stream("sinceTime", &stamped(5, "one two"), Then::Ends);
    let mut stage = Stage::set(script, RUNNING, |_| {});
    stage.until("2 two").await;
    stage.becomes(&ENDED);
    assert_eq!(stage.all().await.0, ["1 one", "2 two", "the log is over"]);
}

#[tokio::test]
async fn a_container_that_has_not_started_is_waited_for() {
    let unassigned = Response::builder().status(204).body(Body::empty()).expect("an answer");
    let creating = r#"container "c" in pod "p" is waiting to start: ContainerCreating"#;
    let script = Script::default()
        .answer(FOLLOW, unassigned)
        .refuses(400, "BadRequest", creating)
        .refuses(400, "BadRequest", creating)
        .stream(FOLLOW, &stamped(5, "one"), Then::SaysNothing)
        .stream("sinceTime", &stamped(5, "one"), Then::Ends);
    let mut stage =
        Stage::set(script, ContainerState::Waiting { reason: "Unschedulable".into() }, |options| {
            options.tail = Some(0);
        });
    stage.until("waiting: Unschedulable").await;
    assert!(stage.script.asked().is_empty(), "who knows that there is nothing does not ask");
    stage.becomes(&RUNNING);
    stage.until("1 one").await;
    stage.becomes(&ENDED);
    let (said, asked) = stage.all().await;
    let expected = [
        "waiting: Unschedulable",
        "waiting: no node was found for it yet",
        "waiting: ContainerCreating",
        "1 one",
        "the log is over",
    ];
    assert_eq!(said, expected);
    assert!(!asked[0].contains("tail"), "all it writes is new: {asked:?}");
}

#[tokio::test]
async fn a_refusal_is_said_plainly_and_a_pod_that_is_gone_ends_its_log() {
    let forbidden = r#"pods "p" is forbidden: User "fedq" cannot get resource "pods/log" in API group "" in the namespace "team""#;
    let script = Script::default()
        .refuses(403, "Forbidden", forbidden)
        .refuses(403, "Forbidden", forbidden)
        .refuses(404, "NotFound", r#"pods "p" not found"#);
    let (said, _) = Stage::set(script, RUNNING, |_| {}).all().await;
    assert_eq!(
        said,
        [format!("the log broke off and is resumed: {forbidden}"), "the log is over".to_owned()]
    );
}

#[tokio::test]
async fn a_log_that_cannot_be_read_any_more_is_given_up() {
    let down = "dial tcp 10.0.0.1:10250: connect: connection refused";
    let script = (0..3).fold(Script::default(), |script, _| script.refuses(500, "InternalError", down));
    let mut stage = Stage::set(script, ENDED, |_| {});
    stage.until(&format!("the log cannot be read: {down}")).await;
    let (said, asked) = stage.all().await;
    assert_eq!((said.len(), asked.len()), (2, 3), "{said:?}");
}

#[tokio::test]
async fn the_rest_of_the_run_before_comes_first_after_a_restart() {
    let script = Script::default()
        .stream(FOLLOW, &stamped(5, "one"), Then::Breaks)
        .stream("follow=true sinceTime", &stamped(9, "four five"), Then::SaysNothing)
        .stream("previous=true sinceTime=2026-11-21T07%3A00%3A04Z", &stamped(5, "one two three"), Then::Ends)
        .stream("sinceTime", &stamped(9, "four five"), Then::Ends);
    let mut stage = Stage::set(script, RUNNING, |_| {});
    stage.until("5 five").await;
    stage.becomes(&ENDED);
    let (said, _) = stage.all().await;
    let rest = [
        "reconnected",
        "2 two",
        "3 three",
        "the container was restarted",
        "4 four",
        "5 five",
        "the log is over",
    ];
    assert_eq!(said[2..], rest);
}

#[tokio::test]
async fn lines_that_may_be_missing_are_a_visible_gap() {
    let none = r#"previous terminated container "c" in pod "p" not found"#;
    let script = Script::default()
        .stream(FOLLOW, &stamped(5, "one"), Then::Ends)
        .stream("follow=true sinceTime", &stamped(9, "late"), Then::SaysNothing)
        .refuses(400, "BadRequest", none)
        .stream("sinceTime", &stamped(9, "late"), Then::Ends);
    let mut stage = Stage::set(script, RUNNING, |_| {});
    stage.until("2 late").await;
    stage.becomes(&ENDED);
    let (said, _) = stage.all().await;
    assert_eq!(said, ["1 one", "… lines may be missing: the log was rotated", "2 late", "the log is over"]);
}

#[tokio::test]
async fn a_crash_loop_is_read_run_by_run_and_not_asked_in_between() {
    let waits = ContainerState::Between { reason: "CrashLoopBackOff".to_owned() };
    let script = Script::default()
        .stream(FOLLOW, &stamped(5, "one"), Then::Ends)
        .stream("follow=true sinceTime", &stamped(9, "two"), Then::SaysNothing)
        .stream("previous=true", &stamped(5, "one"), Then::Ends)
        .stream("sinceTime", &stamped(9, "two"), Then::Ends);
    let mut stage = Stage::set(script, waits, |_| {});
    stage.until("waiting: CrashLoopBackOff").await;
    assert_eq!(stage.script.asked().len(), 1);
    stage.becomes(&RUNNING);
    stage.until("2 two").await;
    stage.becomes(&ENDED);
    let (said, _) = stage.all().await;
    let expected =
        ["1 one", "waiting: CrashLoopBackOff", "the container was restarted", "2 two", "the log is over"];
    assert_eq!(said, expected);
}

#[tokio::test]
async fn the_last_line_of_a_log_needs_no_end() {
    let text = format!("{}2026-11-21T07:00:06Z no end", stamped(5, "one"));
    let script = Script::default().stream("timestamps=true", &text, Then::Ends);
    let (said, asked) = Stage::set(script, ENDED, |_| {}).all().await;
    assert_eq!(said, ["1 one", "2 no end", "the log is over"]);
    assert_eq!(asked, ["container=c&timestamps=true"]);
}

#[tokio::test]
async fn a_tail_is_asked_for_until_there_is_a_line_and_none_of_it_is_lost() {
    let script = Script::default()
        .stream("follow=true tailLines=2", "", Then::Breaks)
        .stream("follow=true tailLines=2", &stamped(5, "two three"), Then::Breaks)
        .stream("follow=true sinceTime", &stamped(5, "one two three four"), Then::SaysNothing)
        .stream("sinceTime", &stamped(5, "one two three four"), Then::Ends);
    let mut stage = Stage::set(script, RUNNING, |options| options.tail = Some(2));
    stage.until("3 four").await;
    stage.becomes(&ENDED);
    let (said, _) = stage.all().await;
    let lines: Vec<_> = said.iter().filter(|said| said.starts_with(char::is_numeric)).collect();
    assert_eq!(lines, ["1 two", "2 three", "3 four"]);
}

#[tokio::test]
async fn from_now_on_begins_behind_a_line_that_is_not_shown() {
    let dated = |text: String, date: &str| {
        let bytes = stream::iter([Ok::<_, io::Error>(Bytes::from(text))]).chain(stream::pending());
        let answer = Response::builder().header("date", date).body(Body::from_stream(bytes));
        answer.expect("an answer")
    };
    let text = format!("{}{}", stamped(5, "old"), stamped(59, "new"));
    let script = Script::default()
        .answer("follow=true tailLines=1", dated(text, "Sat, 21 Nov 2026 07:00:30 GMT"))
        .stream("sinceTime=2026-11-21T07%3A00%3A58Z", &stamped(59, "new"), Then::Ends);
    let mut stage = Stage::set(script, RUNNING, |options| options.tail = Some(0));
    stage.until("1 new").await;
    stage.becomes(&ENDED);
    assert_eq!(stage.all().await.0, ["1 new", "the log is over"]);
}

#[tokio::test]
async fn an_empty_log_that_is_begun_anew_has_no_tail() {
    let script = Script::default()
        .answer("tailLines=1", Response::new(Body::from_stream(stream::pending::<io::Result<Bytes>>())))
        .stream("follow=true tailLines=1", &stamped(5, "one"), Then::SaysNothing)
        .stream("sinceTime", &stamped(5, "one"), Then::Ends);
    // The headers came, so it had a line that was not heard: the tail is asked for again.
    let mut stage = Stage::set(script, RUNNING, |options| options.tail = Some(1));
    stage.until("1 one").await;
    stage.becomes(&ENDED);
    stage.all().await;

    let script = Script::default();
    let mut stage = Stage::set(script.clone(), RUNNING, |options| options.tail = Some(1));
    // Never answered at first: nothing was written.
    let mut asked = 0;
    while asked < 2 {
        assert!(timeout(Duration::from_millis(20), stage.session.next()).await.is_err());
        asked = script.asked().len();
    }
    let _ = script.stream("follow=true", &stamped(5, "one two"), Then::SaysNothing);
    stage.until("2 two").await;
    assert!(!stage.script.asked().last().expect("asked").contains("tail"));
}

#[tokio::test]
async fn what_is_there_now_is_read_once() {
    let script =
        Script::default().stream("sinceTime=2026-11-21T07%3A00%3A05Z", &stamped(5, "one two"), Then::Ends);
    let since = "2026-11-21T07:00:05.000000001Z".parse().expect("a time");
    let stage = Stage::set(script, RUNNING, |options| {
        options.follow = false;
        options.since = Some(Since::Time(since));
    });
    let pods = stage.pods.clone();
    let (said, asked) = stage.all().await;
    assert_eq!(said, ["1 one", "2 two", "the log is over"]);
    assert!(!asked[0].contains("follow"));
    drop(pods);

    let since: Timestamp = "2026-11-21T07:00:05.5Z".parse().expect("a time");
    let script = Script::default().stream("sinceTime", &stamped(5, "early"), Then::Ends);
    let stage = Stage::set(script, RUNNING, |options| {
        options.follow = false;
        options.since = Some(Since::Time(since));
    });
    assert_eq!(stage.all().await.0, ["the log is over"]);
}

#[tokio::test]
async fn what_may_not_be_read_is_said_at_once_to_whoever_does_not_follow() {
    let forbidden = r#"pods "p" is forbidden: User "fedq" cannot get resource "pods/log""#;
    let script = Script::default().refuses(403, "Forbidden", forbidden);
    let (said, _) = Stage::set(script, RUNNING, |options| options.follow = false).all().await;
    assert_eq!(said, [format!("the log cannot be read: {forbidden}")]);
    let script = Script::default().refuses(404, "NotFound", r#"pods "p" not found"#);
    let (said, _) = Stage::set(script, RUNNING, |options| options.follow = false).all().await;
    assert_eq!(said, ["the log cannot be read: the pod is gone"]);
}

#[tokio::test]
async fn a_line_that_is_too_long_is_cut_visibly() {
    let text = format!("{}{}", stamped(5, &"x".repeat(300_000)), stamped(6, "next"));
    let script = Script::default().stream("", &text, Then::Ends);
    let (said, _) = Stage::set(script, ENDED, |options| options.limits.line = 1000).all().await;
    assert!(said[0].ends_with("xxx … 298995 more bytes"), "{}", &said[0][said[0].len() - 60..]);
    assert_eq!(said[1], "2 next");
}

#[tokio::test]
async fn a_session_goes_on_behind_its_last_line_but_not_in_the_log_of_another_pod() {
    let after = |pod: &str| {
        let position = Position { ts: "2026-11-21T07:00:05Z".parse().expect("a time"), lines: 1 };
        BTreeMap::from([((0, "c".to_owned()), After { pod: pod.to_owned(), position })])
    };
    let log = "2026-11-21T07:00:04Z one\n2026-11-21T07:00:05Z two\n2026-11-21T07:00:06Z three\n";
    for (pod, given, asked) in
        [("p", &["1 three"][..], true), ("before", &["1 one", "2 two", "3 three"], false)]
    {
        let script = Script::default().stream("", log, Then::Ends);
        let stage = Stage::set(script, ContainerState::Ended, |options| {
            (options.after, options.tail) = (after(pod), Some(1));
        });
        let (mut said, queries) = stage.all().await;
        assert_eq!(said.pop().as_deref(), Some("the log is over"));
        assert_eq!(said, given, "{pod}");
        assert_eq!(queries[0].contains("sinceTime"), asked, "{queries:?}");
        assert!(!queries[0].contains("tailLines"), "{queries:?}");
    }
}

#[test]
fn a_position_is_text() {
    let position = Position { ts: "2026-11-21T07:00:00.000000001Z".parse().expect("a time"), lines: 2 };
    assert_eq!(position.to_string(), "2026-11-21T07:00:00.000000001Z+2");
    assert_eq!(position.to_string().parse(), Ok(position));
    for wrong in ["", "+1", "2026-11-21T07:00:00Z", "2026-11-21T07:00:00Z+x", "now+1"] {
        assert_eq!(wrong.parse::<Position>(), Err(NoPosition), "{wrong}");
    }
}
