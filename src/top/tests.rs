//! Screens and keys, without a terminal.

use std::path::Path;
use std::time::{Duration, Instant};

use jiff::{Timestamp, ToSpan};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use serde_json::{Value, json};

use crate::{
    draw::{Look, draw},
    list::Walk,
    news::{Kind, News, Source},
    state::{End, Key, State},
};

const PLAIN: Look = Look { color: false, interactive: true };
const SCREENS: [(u16, u16); 3] = [(80, 24), (120, 40), (40, 10)];

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().expect("a time")
}

/// Before now.
fn ago(seconds: i64) -> String {
    now().checked_sub(seconds.seconds()).expect("a time").to_string()
}

/// Flavor, resource, quota, used, borrowed.
type Use<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str);

fn queue(name: &str, cohort: &str, (pending, admitted): (u64, u64), uses: &[Use<'_>]) -> Value {
    let by_flavor = |fields: &dyn Fn(&Use<'_>) -> Value| {
        let mut flavors: Vec<Value> = Vec::new();
        for each in uses {
            match flavors.last_mut().filter(|flavor| flavor["name"] == each.0) {
                Some(flavor) => flavor["resources"].as_array_mut().expect("a list").push(fields(each)),
                None => flavors.push(json!({"name": each.0, "resources": [fields(each)]})),
            }
        }
        flavors
    };
    let held = by_flavor(&|each| json!({"name": each.1, "total": each.3, "borrowed": each.4}));
    json!({
        "metadata": {"name": name},
        "spec": {
            "cohortName": cohort,
            "resourceGroups": [{"flavors": by_flavor(&|each| json!({"name": each.1, "nominalQuota": each.2}))}],
        },
        "status": {
            "pendingWorkloads": pending, "admittedWorkloads": admitted,
            "flavorsReservation": held, "flavorsUsage": held,
            "conditions": [{"type": "Active", "status": "True", "reason": "Ready"}],
        },
    })
}

fn queues() -> Vec<Value> {
    let mut held = queue("vision", "", (1, 0), &[("a100", "nvidia.com/gpu", "0", "0", "0")]);
    held["spec"]["stopPolicy"] = "Hold".into();
    let mut inactive = queue("batch", "org", (0, 0), &[("spot", "cpu", "8", "0", "0")]);
    inactive["status"]["conditions"][0] =
        json!({"type": "Active", "status": "False", "reason": "FlavorNotFound"});
    let uses = [
        ("h100", "cpu", "100", "45500m", "0"),
        ("h100", "memory", "1000Gi", "62236507232", "0"),
        ("h100", "nvidia.com/gpu", "24", "32", "8"),
        ("a100", "nvidia.com/gpu", "8", "2", "0"),
    ];
    vec![queue("research", "org", (12, 7), &uses), held, inactive]
}

fn source(cluster: usize, kind: Kind) -> Source {
    Source { cluster, kind }
}

fn tell(state: &mut State, cluster: usize, kind: Kind, objects: impl IntoIterator<Item = Value>) {
    let source = source(cluster, kind);
    state.take(&source, News::Begin);
    for object in objects {
        state.take(&source, News::Object(object));
    }
    state.take(&source, News::Complete);
}

fn broken(state: &mut State, cluster: usize, kind: Kind) {
    let reason = "dial tcp 10.0.0.1:6443: connect: connection refused".to_owned();
    state.take(&source(cluster, kind), News::Broken { reason, again: Duration::from_secs(5) });
}

fn one() -> State {
    let mut state = State::new(["prod".to_owned()], now());
    tell(&mut state, 0, Kind::ClusterQueues, queues());
    state
}

fn several() -> State {
    let mut state = State::new(["eu-west", "us-east", "tokyo"].map(str::to_owned), now());
    tell(&mut state, 0, Kind::ClusterQueues, queues());
    tell(&mut state, 1, Kind::ClusterQueues, queues().into_iter().take(1));
    broken(&mut state, 1, Kind::ClusterQueues);
    broken(&mut state, 2, Kind::ClusterQueues);
    state.tick(now().checked_add(65.seconds()).expect("a time"));
    state
}

fn workload(name: &str, local: &str, conditions: &[&str], priority: i64, seconds: i64) -> Value {
    let condition = |kind: &&str| {
        json!({
            "type": kind, "status": "True", "reason": kind, "lastTransitionTime": ago(seconds / 2),
            "message": format!("Admitted by ClusterQueue research after the workload waited for quota of {name}"),
        })
    };
    let admission = if conditions.is_empty() { json!({}) } else { json!({"clusterQueue": "research"}) };
    json!({
        "metadata": {
            "name": name, "namespace": "team-a", "creationTimestamp": ago(seconds),
            "ownerReferences": [{"kind": "Job", "name": name.trim_start_matches("job-")}],
        },
        "spec": {"queueName": local, "priority": priority},
        "status": {"admission": admission, "conditions": conditions.iter().map(condition).collect::<Vec<_>>()},
    })
}

fn local_queue(name: &str, cluster_queue: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "team-a"}, "spec": {"clusterQueue": cluster_queue}})
}

fn with_workloads() -> State {
    let mut state = one();
    state.press(Key::Enter);
    tell(&mut state, 0, Kind::LocalQueues, [local_queue("main", "research"), local_queue("other", "vision")]);
    let workloads = [
        workload("job-first", "main", &["QuotaReserved", "Admitted"], 0, 7200),
        workload("job-late", "main", &[], 0, 40),
        workload("job-early", "main", &[], 0, 400),
        workload("job-urgent", "main", &[], 100, 4),
        workload("job-of-another-queue", "other", &[], 0, 60),
        workload("job-done", "main", &["QuotaReserved", "Admitted", "Finished"], 0, 90000),
    ];
    tell(&mut state, 0, Kind::Workloads, workloads);
    state
}

fn inspecting() -> State {
    let mut state = with_workloads();
    for letter in "/first".chars() {
        state.press(Key::Char(letter));
    }
    state.press(Key::Enter);
    state.press(Key::Enter);
    let names = || ("team-a".to_owned(), "job-first".to_owned());
    let (namespace, name) = names();
    let first = workload("job-first", "main", &["QuotaReserved", "Admitted"], 0, 7200);
    tell(&mut state, 0, Kind::Workload { namespace, name }, [first]);
    let (namespace, name) = names();
    let events = [
        json!({
            "metadata": {"name": "a", "namespace": "team-a"}, "type": "Normal", "reason": "QuotaReserved",
            "message": "Quota reserved in ClusterQueue research, wait time since queued was 3s",
            "lastTimestamp": ago(3600), "source": {"component": "kueue-admission"}, "count": 1,
        }),
        json!({
            "metadata": {"name": "b", "namespace": "team-a"}, "type": "Warning", "reason": "Pending",
            "message": "couldn't assign flavors: insufficient unused quota", "eventTime": ago(3700),
            "reportingComponent": "kueue-admission", "series": {"count": 12, "lastObservedTime": ago(3610)},
        }),
    ];
    tell(&mut state, 0, Kind::Events { namespace, name }, events);
    state
}

fn buffer(state: &mut State, look: Look, (width, height): (u16, u16)) -> Buffer {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    draw(state, look, area, &mut buffer);
    buffer
}

fn text(buffer: &Buffer) -> String {
    let line = |y| {
        let symbols: String = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect();
        symbols.trim_end().to_owned() + "\n"
    };
    (0..buffer.area.height).map(line).collect()
}

fn screen(state: &mut State, size: (u16, u16)) -> String {
    text(&buffer(state, PLAIN, size))
}

/// The first word of each line of the list that begins an entry.
fn names(state: &mut State) -> Vec<String> {
    let screen = screen(state, (120, 40));
    let lines =
        screen.lines().skip(2).filter(|line| !line.starts_with("    ") && line.starts_with([' ', '>']));
    lines.filter_map(|line| line.get(3..)?.split_whitespace().next().map(str::to_owned)).collect()
}

fn golden(name: &str, make: impl Fn() -> State) {
    let mut found = String::new();
    for (width, height) in SCREENS {
        found.extend([format!("--- {width}x{height}\n{}", screen(&mut make(), (width, height)))]);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/{name}.txt"));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &found).expect("written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == found, "{} is stale, UPDATE_EXPECT=1 renews it:\n{found}", path.display());
}

#[test]
fn the_queues_of_one_cluster() {
    golden("queues", one);
}

#[test]
fn the_queues_of_several_clusters_of_which_two_do_not_answer() {
    golden("clusters", several);
}

#[test]
fn the_workloads_of_a_queue() {
    golden("workloads", with_workloads);
}

#[test]
fn the_conditions_and_events_of_a_workload() {
    golden("workload", inspecting);
}

#[test]
fn the_help() {
    golden("help", || {
        let mut state = one();
        state.press(Key::Char('?'));
        state
    });
}

#[test]
fn before_anything_is_known() {
    golden("waiting", || State::new(["prod".to_owned()], now()));
}

#[test]
fn colors_say_nothing_that_the_text_does_not() {
    for make in [one, several, with_workloads, inspecting] {
        let plain = buffer(&mut make(), PLAIN, (80, 24));
        let colored = buffer(&mut make(), Look { color: true, interactive: true }, (80, 24));
        assert_eq!(text(&plain), text(&colored));
        assert!(plain.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
        assert!(colored.content.iter().any(|cell| cell.fg != Color::Reset));
    }
}

#[test]
fn what_is_chosen_is_marked_by_text_too() {
    let mut state = one();
    screen(&mut state, (80, 24));
    state.press(Key::Walk(Walk::Down));
    let screen = buffer(&mut state, PLAIN, (80, 24));
    let line = (0..24).find(|y| screen[(0, *y)].symbol() == ">").expect("it is marked");
    assert!(screen[(40, line)].modifier.contains(Modifier::REVERSED));
    assert!(text(&screen).lines().nth(line.into()).is_some_and(|line| line.contains("vision")));
}

#[test]
fn keys_order_and_turn_round() {
    let mut state = one();
    assert_eq!(names(&mut state), ["research", "vision", "batch"]);
    state.press(Key::Char('r'));
    assert_eq!(names(&mut state), ["batch", "vision", "research"]);
    state.press(Key::Char('>'));
    assert_eq!(names(&mut state), ["batch", "research", "vision"], "by name, in its own direction");
    state.press(Key::Right);
    assert!(screen(&mut state, (80, 24)).contains("by USE% down"), "one cluster is not ordered by clusters");
    assert_eq!(names(&mut state)[0], "research");
    state.press(Key::Right);
    state.press(Key::Right);
    assert_eq!(names(&mut state), ["batch", "vision", "research"], "what does not admit comes first");
    state.press(Key::Right);
    assert!(screen(&mut state, (80, 24)).contains("by PENDING down"));
    state.press(Key::Left);
    assert!(screen(&mut state, (80, 24)).contains("by STATE down"));
}

#[test]
fn several_clusters_can_be_ordered_by_their_names() {
    let mut state = several();
    state.press(Key::Right);
    state.press(Key::Right);
    assert!(screen(&mut state, (120, 40)).contains("by CLUSTER up"));
    assert_eq!(names(&mut state), ["eu-west", "eu-west", "eu-west", "us-east"]);
}

#[test]
fn a_filter_has_words_that_are_all_to_be_found() {
    let mut state = one();
    for letter in "/GPU re".chars() {
        assert_eq!(state.press(Key::Char(letter)), None, "while it is typed, letters are no commands");
    }
    assert!(screen(&mut state, (80, 24)).contains("/GPU re_"));
    assert_eq!(names(&mut state), ["research"]);
    state.press(Key::Enter);
    assert!(screen(&mut state, (80, 24)).contains("/GPU re  1/1"));
    state.press(Key::Char('/'));
    for _ in 0..2 {
        state.press(Key::Backspace);
    }
    assert_eq!(names(&mut state), ["research", "vision"]);
    state.press(Key::Escape);
    assert_eq!(names(&mut state).len(), 3);
    for letter in "/nothing".chars() {
        state.press(Key::Char(letter));
    }
    assert!(screen(&mut state, (80, 24)).contains("none has \"nothing\""));
    assert_eq!(state.press(Key::Enter), None);
    assert_eq!(state.press(Key::Enter), None, "there is nothing to open");
    state.press(Key::Escape);
    assert_eq!(names(&mut state).len(), 3, "the filter goes first");
}

#[test]
fn keys_end_it() {
    for (key, end) in [(Key::Char('q'), End::Quit), (Key::Interrupt, End::Interrupted)] {
        for make in [one, with_workloads, inspecting] {
            assert_eq!(make().press(key), Some(end));
        }
    }
    let mut state = one();
    state.press(Key::Char('/'));
    assert_eq!(state.press(Key::Char('q')), None);
    assert_eq!(state.press(Key::Interrupt), Some(End::Interrupted));
    let mut state = one();
    state.press(Key::Char('?'));
    assert_eq!(state.press(Key::Char('x')), None);
    assert!(!screen(&mut state, (80, 24)).starts_with("Keys"));
}

#[test]
fn only_what_is_looked_at_is_followed() {
    let kinds =
        |state: &State| -> Vec<Kind> { state.wanted().into_iter().map(|source| source.kind).collect() };
    assert_eq!(kinds(&one()), [Kind::ClusterQueues]);
    assert_eq!(several().wanted().len(), 3);
    assert_eq!(kinds(&with_workloads()), [Kind::ClusterQueues, Kind::LocalQueues, Kind::Workloads]);
    let mut state = inspecting();
    let names = || ("team-a".to_owned(), "job-first".to_owned());
    let ((namespace, name), (of, workload)) = (names(), names());
    assert_eq!(
        kinds(&state)[3..],
        [Kind::Workload { namespace, name }, Kind::Events { namespace: of, name: workload }]
    );
    for left in [4, 4, 1] {
        state.press(Key::Escape);
        let left = if left == 4 { 3 } else { left };
        assert_eq!(kinds(&state).len(), left);
    }
}

#[test]
fn what_is_known_stands_until_a_new_list_is_whole() {
    let mut state = one();
    let source = source(0, Kind::ClusterQueues);
    state.take(&source, News::Begin);
    state.take(&source, News::Object(queue("fresh", "", (0, 0), &[])));
    assert_eq!(names(&mut state), ["research", "vision", "batch"]);
    broken(&mut state, 0, Kind::ClusterQueues);
    assert_eq!(names(&mut state).len(), 3, "a list that broke off says nothing");
    tell(&mut state, 0, Kind::ClusterQueues, [queue("fresh", "", (0, 0), &[])]);
    assert_eq!(names(&mut state), ["fresh"]);
    state.take(&source, News::Object(queue("later", "", (3, 0), &[])));
    state.take(&source, News::Gone(queue("fresh", "", (0, 0), &[])));
    assert_eq!(names(&mut state), ["later"]);
}

#[test]
fn what_is_old_says_how_old_until_changes_are_followed_again() {
    let mut state = one();
    broken(&mut state, 0, Kind::ClusterQueues);
    state.tick(now().checked_add(3.seconds()).expect("a time"));
    broken(&mut state, 0, Kind::ClusterQueues);
    state.tick(now().checked_add(9.seconds()).expect("a time"));
    let screen_of = |state: &mut State| screen(state, (120, 24));
    let shown = screen_of(&mut state);
    assert!(shown.contains("old 9s"), "it is old since it first broke: {shown}");
    assert!(shown.contains(
        "prod: shown as it was 9s ago, asking again: dial tcp 10.0.0.1:6443: connect: connection refused"
    ));
    assert!(shown.contains(">~ research"));
    state.take(&source(0, Kind::ClusterQueues), News::Followed);
    let shown = screen_of(&mut state);
    assert!(!shown.contains("ago") && !shown.contains("old") && !shown.contains('~'), "{shown}");
}

#[test]
fn a_workload_that_is_gone_is_said_to_be() {
    let mut state = inspecting();
    let (namespace, name) = ("team-a".to_owned(), "job-first".to_owned());
    tell(&mut state, 0, Kind::Workload { namespace, name }, []);
    assert!(screen(&mut state, (80, 24)).contains("not there any more"));
}

#[test]
fn objects_give_the_terminal_no_commands() {
    let mut state = State::new(["prod".to_owned()], now());
    let name = "evil\u{1b}[31mred\u{7}\u{9b}2J";
    tell(
        &mut state,
        0,
        Kind::ClusterQueues,
        [queue(name, "a\nb", (0, 0), &[("\u{1b}c", "cpu", "1", "\u{1b}", "0")])],
    );
    let shown = buffer(&mut state, PLAIN, (120, 10));
    assert!(shown.content.iter().all(|cell| !cell.symbol().contains(char::is_control)));
    assert!(text(&shown).contains("evil[31mred2J"), "{}", text(&shown));
    assert!(text(&shown).contains('?'), "an amount that is none is not shown as one");
}

#[test]
fn any_size_of_terminal_will_do() {
    for make in [one, several, with_workloads, inspecting] {
        for width in (0..90).step_by(3) {
            for height in (0..26).step_by(2) {
                let mut state = make();
                let area = Rect::new(0, 0, width, height);
                let mut buffer = Buffer::empty(area);
                draw(&mut state, PLAIN, area, &mut buffer);
                state.press(Key::Walk(Walk::PageDown));
                draw(&mut state, PLAIN, area, &mut buffer);
            }
        }
    }
}

/// Only what is seen is drawn: with a hundred times as many queues a screen takes about as long.
#[test]
fn ten_thousand_queues_scroll_as_smoothly_as_a_hundred() {
    let many = |count: usize| {
        let mut state = State::new(["prod".to_owned()], now());
        let uses = [("h100", "cpu", "100", "45", "0"), ("h100", "nvidia.com/gpu", "24", "3", "0")];
        let queue = |at: usize| queue(&format!("team-{at:05}"), "org", (at as u64 % 7, 1), &uses);
        tell(&mut state, 0, Kind::ClusterQueues, (0..count).map(queue));
        screen(&mut state, (80, 24));
        state
    };
    let scroll = |state: &mut State| {
        let mut screen = || {
            let began = Instant::now();
            state.press(Key::Walk(Walk::PageDown));
            buffer(state, PLAIN, (80, 24));
            began.elapsed()
        };
        (0..40).map(|_| screen()).min().expect("some")
    };
    let (few, many) = (scroll(&mut many(100)), scroll(&mut many(10_000)));
    assert!(many < few * 10, "a screen takes {few:?} of 100 queues and {many:?} of 10,000");
}
