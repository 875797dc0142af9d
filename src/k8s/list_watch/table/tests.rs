use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::*;
use crate::client::{ApiError, RetryClass};

fn bytes(name: &str, version: u64) -> Vec<u8> {
    json!({"metadata": {"namespace": "ns", "name": name, "resourceVersion": version.to_string()}})
        .to_string()
        .into_bytes()
}

fn object(name: &str, version: u64) -> ConfigMap {
    serde_json::from_slice(&bytes(name, version)).expect("an object")
}

/// Names and versions.
fn rows(table: &Table<ConfigMap>) -> Vec<(String, u64)> {
    table.snapshot().iter().map(|((_, name), row)| (name.clone(), row.version())).collect()
}

fn listed(names: &[(&str, u64)]) -> (Table<ConfigMap>, TableSink<ConfigMap>) {
    let table = Table::new();
    let mut sink = table.sink();
    list(&mut sink, names);
    sink.link(Link::Synced);
    (table, sink)
}

fn list(sink: &mut TableSink<ConfigMap>, names: &[(&str, u64)]) {
    sink.begin();
    for (name, version) in names {
        sink.set(&bytes(name, *version)).expect("an object");
    }
    sink.end();
}

fn expect(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
    rows.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
}

#[test]
fn a_list_replaces_what_was_known_and_wakes_once() {
    let (table, mut sink) = listed(&[("a", 1), ("b", 2)]);
    let mut changed = table.changed();
    sink.begin();
    for (name, version) in [("b", 5), ("c", 6), ("d", 7)] {
        sink.set(&bytes(name, version)).expect("an object");
        assert!(!changed.has_changed().expect("a table"), "not for each object");
    }
    sink.end();
    assert_eq!(rows(&table), expect(&[("b", 5), ("c", 6), ("d", 7)]));
    assert!(changed.has_changed().expect("a table"));
    changed.mark_unchanged();
    list(&mut sink, &[("b", 5), ("c", 6), ("d", 7)]);
    assert!(!changed.has_changed().expect("a table"), "the same list changes nothing");
}

#[test]
fn a_list_that_breaks_off_removes_nothing() {
    let (table, mut sink) = listed(&[("a", 1), ("b", 2)]);
    sink.begin();
    sink.set(&bytes("b", 3)).expect("an object");
    assert_eq!(rows(&table), expect(&[("a", 1), ("b", 3)]));
    list(&mut sink, &[("b", 3)]);
    assert_eq!(rows(&table), expect(&[("b", 3)]));
}

#[test]
fn what_cannot_be_read_counts_as_a_change_when_it_comes_and_when_it_goes() {
    let (table, mut sink) = listed(&[("a", 1)]);
    let mut changed = table.changed();
    let mut is_new = |sink: &mut TableSink<ConfigMap>, does: &dyn Fn(&mut TableSink<ConfigMap>)| {
        let before = table.revision();
        changed.mark_unchanged();
        does(sink);
        let counted = before < table.revision();
        assert_eq!(changed.has_changed().expect("a table"), counted);
        counted
    };
    let skip = |sink: &mut TableSink<ConfigMap>| {
        sink.skipped(Skipped { name: Some("ns/b".to_owned()), reason: "it is too large".to_owned() });
    };
    assert!(is_new(&mut sink, &skip));
    assert!(!is_new(&mut sink, &skip), "the same once more");
    assert!(is_new(&mut sink, &|sink| list(sink, &[("a", 1)])), "it is gone");
    assert!(!is_new(&mut sink, &|sink| list(sink, &[("a", 1)])));
}

#[test]
fn what_a_list_has_brought_so_far_counts_before_it_ends() {
    let (table, mut sink) = listed(&[("a", 1)]);
    let before = table.revision();
    sink.begin();
    sink.set(&bytes("b", 2)).expect("an object");
    assert_eq!(rows(&table), expect(&[("a", 1), ("b", 2)]));
    assert!(before < table.revision(), "the rows are others");
}

#[test]
fn an_answer_is_taken_over_unless_something_newer_is_known() {
    let (table, mut sink) = listed(&[("a", 5)]);
    table.absorb(object("a", 7));
    table.absorb(object("a", 6));
    assert_eq!(rows(&table), expect(&[("a", 7)]));
    sink.set(&bytes("a", 6)).expect("an object");
    assert_eq!(rows(&table), expect(&[("a", 7)]));
    sink.gone(&bytes("a", 9)).expect("an object");
    table.absorb(object("a", 8));
    assert_eq!(rows(&table), []);
    table.absorb(object("a", 12));
    assert_eq!(rows(&table), expect(&[("a", 12)]));
    sink.gone(&bytes("a", 11)).expect("an object");
    assert_eq!(rows(&table), expect(&[("a", 12)]), "deleted before it was made again");
}

#[test]
fn what_was_written_while_a_list_was_on_its_way_stays() {
    let (table, mut sink) = listed(&[("a", 5)]);
    sink.begin();
    table.absorb(object("new", 9));
    table.absorb(object("a", 8));
    sink.set(&bytes("a", 5)).expect("an object");
    sink.end();
    assert_eq!(rows(&table), expect(&[("a", 8), ("new", 9)]));
}

#[test]
fn an_object_that_cannot_be_read_keeps_its_last_row() {
    let (table, mut sink) = listed(&[("a", 5), ("b", 5)]);
    sink.begin();
    sink.set(&bytes("b", 5)).expect("an object");
    let Err(Malformed(reason)) = sink.set(br#"{"metadata":{"name":"a"},"data":"secret"}"#) else {
        panic!("read");
    };
    assert!(!reason.contains("secret"), "{reason}");
    sink.skipped(Skipped { name: Some("ns/a".to_owned()), reason });
    sink.end();
    assert_eq!(rows(&table), expect(&[("a", 5), ("b", 5)]));
    assert_eq!(table.skipped().len(), 1);
    sink.begin();
    assert_eq!(table.skipped().len(), 1, "until a list is whole, that there are more than the rows is known");
    sink.set(&bytes("a", 6)).expect("an object");
    sink.end();
    assert_eq!(table.skipped(), []);
    assert!(sink.set(br#"{"metadata":{"name":"x"}}"#).is_err(), "without a version");
    assert!(sink.set(br#"{"metadata":{"resourceVersion":"5"}}"#).is_err(), "without a name");
}

#[test]
fn after_a_backup_was_restored_a_list_is_right_about_older_versions() {
    let (table, mut sink) = listed(&[("a", 50)]);
    list(&mut sink, &[("a", 20)]);
    assert_eq!(rows(&table), expect(&[("a", 20)]));
}

#[test]
fn the_state_says_whether_the_rows_can_be_relied_on() {
    let table = Table::<ConfigMap>::new();
    let mut sink = table.sink();
    let error = ApiError::new(RetryClass::Unreachable, "no route");
    let broken = || Link::Broken { error: &error, last_alive: None, retry_in: std::time::Duration::ZERO };
    sink.link(broken());
    assert_eq!(table.state(), State::Waiting);
    assert!(!table.synced());
    sink.link(Link::Synced);
    assert_eq!(table.state(), State::Synced { broken: None });
    sink.link(broken());
    assert_eq!(table.state(), State::Synced { broken: Some("no route".to_owned()) });
    // It answers, but what was missed has not arrived yet.
    sink.link(Link::Alive);
    assert_eq!(table.state(), State::Synced { broken: Some("no route".to_owned()) });
    sink.link(Link::Synced);
    assert_eq!(table.state(), State::Synced { broken: None });
    sink.link(Link::Absent);
    assert_eq!(table.state(), State::Absent);
    sink.link(Link::Alive);
    assert_eq!(table.state(), State::Absent);
}

#[tokio::test]
async fn who_wrote_the_status_is_not_kept_and_every_change_wakes() {
    let table: Table<ConfigMap> = Table::new();
    let waiting = Arc::<Notify>::default();
    let linked = Arc::new(Notify::new());
    table.wakes(vec![Arc::clone(&waiting)], vec![Arc::clone(&linked)]);
    let entry = |manager: &str, subresource: &str| json!({"manager": manager, "subresource": subresource, "fieldsV1": {"f:status": {"f:phase": {}}}});
    let object = json!({"metadata": {
        "name": "a", "resourceVersion": "1",
        "managedFields": [entry("people", ""), entry("controller", "status")],
    }});
    table.sink().set(object.to_string().as_bytes()).expect("an object");
    waiting.notified().await;
    let managers = |version: u64| {
        let row = table.get(None, "a").filter(|row| row.version() == version).expect("a row");
        let managers = row.metadata.managed_fields.iter().flatten();
        managers.filter_map(|entry| entry.manager.clone()).collect::<Vec<_>>()
    };
    assert_eq!(managers(1), ["people"]);
    let mut answered: ConfigMap = serde_json::from_value(object).expect("an object");
    answered.metadata.resource_version = Some("2".to_owned());
    table.absorb(answered);
    waiting.notified().await;
    assert_eq!(managers(2), ["people"]);
    let told = |whom: &Notify| whom.notified().now_or_never().is_some();
    assert!(!told(&linked), "no object is its business");
    table.sink().link(Link::Synced);
    assert!(told(&linked) && !told(&waiting));
}

#[test]
fn what_is_kept_of_deleted_objects_is_bounded() {
    let (table, mut sink) = listed(&[("a", 1)]);
    for version in 2..50_000 {
        sink.gone(&bytes(&format!("gone-{version}"), version)).expect("an object");
    }
    let (kept, newest) = {
        let kept = table.read();
        (kept.deleted.len(), kept.deleted.values().max().copied())
    };
    assert!(kept <= DELETED, "{kept}");
    assert_eq!(newest, Some(49_999), "the latest stay");
    assert_eq!(rows(&table), expect(&[("a", 1)]));
}

#[derive(Deserialize)]
struct Run {
    number: u64,
    is_over: bool,
}

impl Record for Run {
    fn key(&self) -> Key {
        (None, self.number.to_string())
    }

    fn version(&self) -> u64 {
        self.number
    }

    fn is_end(&self) -> bool {
        self.is_over
    }
}

#[test]
fn ends_outlive_their_objects_up_to_a_bound() {
    let table: Table<Run> = Table::new();
    table.absorb(Run { number: 1, is_over: false });
    table.absorb(Run { number: 2, is_over: true });
    let mut sink = table.sink();
    sink.begin();
    sink.end();
    let ended = |table: &Table<Run>| table.ends().iter().map(|run| run.number).collect::<Vec<_>>();
    assert_eq!((table.all().len(), ended(&table)), (0, vec![2]));
    for number in 3..10_000 {
        table.absorb(Run { number, is_over: true });
    }
    let kept = ended(&table);
    assert!(kept.len() <= ENDS && kept.contains(&9_999), "{} of them, the latest too", kept.len());
}

#[test]
fn names_longer_than_names_can_be_are_not_kept() {
    let (table, mut sink) = listed(&[("a", 1)]);
    let long = "x".repeat(254);
    sink.set(&bytes(&long, 5)).expect_err("no such name");
    sink.gone(&bytes(&long, 6)).expect_err("no such name");
    sink.set(&bytes(&long[1..], 7)).expect("the longest there is");
    sink.begin();
    sink.skipped(Skipped { name: Some("y".repeat(1 << 20)), reason: "too large".to_owned() });
    assert_eq!(table.skipped()[0].name, None);
    assert_eq!(sink.listed.expect("a list").unreadable, BTreeSet::new());
}

#[test]
fn rows_are_counted_as_they_come_and_go() {
    let allowance = Allowance::new(crate::list_watch::Limits { objects: 2, bytes: 1 << 20 });
    let table: Table<ConfigMap> = Table::within(&allowance);
    let mut sink = table.sink();
    list(&mut sink, &[("a", 1), ("b", 2)]);
    sink.set(&bytes("b", 3)).expect("an object");
    sink.gone(&bytes("a", 4)).expect("an object");
    sink.set(&bytes("c", 5)).expect("an object");
    list(&mut sink, &[("c", 5)]);
    table.absorb(serde_json::from_slice(&bytes("d", 6)).expect("an object"));
    assert!(allowance.check().is_ok(), "never more than two");
    sink.set(&bytes("e", 7)).expect("an object");
    assert!(allowance.check().is_err());
}
