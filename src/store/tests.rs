//! Every function on a file, and what a crash does.

use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering},
};

use futures::future::join_all;
use jiff::Timestamp;
use serde_json::json;
use sqlx::Connection;
use tempfile::TempDir;

use super::*;
use fedq_domain::resources::Cell;
use fedq_values::{
    ids::{ClaimName, ClusterName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};

mod file;

struct Bed {
    folder: TempDir,
    store: Store,
}

impl Bed {
    async fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let store = Store::open(&folder.path().join("data/fedq.db")).await.expect("opens");
        Self { folder, store }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("data/fedq.db")
    }

    async fn with_cluster() -> (Self, ClusterName) {
        let bed = Self::new().await;
        let row = cluster_row("worker-1");
        bed.store.put_cluster(&row).await.expect("stored");
        (bed, row.name)
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("in range")
}

fn cluster_row(name: &str) -> ClusterRow {
    ClusterRow {
        name: ClusterName::new(name).expect("a name"),
        identity: None,
        server: "https://10.0.0.1:6443".to_owned(),
        source: ClusterSource::Secret,
        connection: "Connecting".to_owned(),
        last_seen: None,
        cordoned: false,
        version: None,
        joined: at(0),
    }
}

fn capacity_row(resource: &str, capacity: i64) -> CapacityRow {
    CapacityRow {
        flavor: FlavorName::new("on-demand").expect("a name"),
        resource: ResourceName::new(resource).expect("a name"),
        capacity: Amount::new(capacity),
        foreign: Amount::new(1),
        usable: Amount::new(capacity - 1),
    }
}

fn claim_row(generation: i64, gpu: &str) -> ClaimRow {
    ClaimRow {
        name: ClaimName::new("worker-1-resource-claim").expect("a name"),
        generation,
        who: "fedq-edit".to_owned(),
        spec: json!({"clusterName": "worker-1", "nominalResources": {"gpu": gpu}}),
        at: at(generation),
    }
}

fn quota_cell(queue: &str, effective: i64) -> QuotaCell {
    QuotaCell {
        cell: Cell {
            queue: QueueName::new(queue).expect("a name"),
            flavor: FlavorName::new("on-demand").expect("a name"),
            resource: ResourceName::new("nvidia.com/gpu").expect("a name"),
        },
        effective: Amount::new(effective),
        acknowledged: Amount::new(effective - 1),
        term: Amount::new(effective - 2),
    }
}

fn audit_entry(who: &str, second: i64) -> AuditEntry {
    AuditEntry {
        id: 0,
        at: at(second),
        who: who.to_owned(),
        verb: "update".to_owned(),
        object: "clusterresourceclaims/worker-1-resource-claim".to_owned(),
        detail: Some(json!({"gpu": "4"})),
        outcome: "ok".to_owned(),
        through: None,
        refused: false,
    }
}

async fn commit(
    store: &Store,
    cluster: &ClusterName,
    changes: &[NodeChange],
    position: Option<Position>,
) -> Result<(), StoreError> {
    let changes = changes.to_vec();
    store.commit_nodes(cluster, move || (changes, position)).await
}

fn node(name: &str) -> NodeChange {
    NodeChange::Put { name: name.to_owned(), row: name.as_bytes().to_vec() }
}

fn position(version: &str) -> Position {
    Position { kind: "nodes".into(), resource_version: version.into(), labels_of_interest: "abc".into() }
}

/// The message with all its causes, as a person sees it.
fn told(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[tokio::test]
async fn a_cluster_keeps_its_identity_until_someone_confirms_another() {
    let (bed, name) = Bed::with_cluster().await;
    let store = &bed.store;
    let mut row = cluster_row("worker-1");
    row.identity = Some("uid-1".into());
    row.version = Some("v1.33.1".into());
    row.last_seen = Some(at(5));
    row.joined = at(99);
    store.put_cluster(&row).await.unwrap();
    row.identity = Some("uid-2".into());
    row.version = None;
    row.last_seen = None;
    store.put_cluster(&row).await.unwrap();
    let known = store.cluster(&name).await.unwrap().expect("there");
    assert_eq!(known.identity.as_deref(), Some("uid-1"));
    assert_eq!(known.version.as_deref(), Some("v1.33.1"));
    assert_eq!((known.last_seen, known.joined), (Some(at(5)), at(0)));

    commit(store, &name, &[node("n1")], Some(position("7"))).await.unwrap();
    store.put_quota_cells(&name, &[quota_cell("queue", 4)]).await.unwrap();
    store.keep_known_objects(&name, "build", vec![1]).await.unwrap();
    assert!(store.confirm_identity(&name, "uid-2").await.unwrap());
    assert_eq!(store.cluster(&name).await.unwrap().expect("there").identity.as_deref(), Some("uid-2"));
    assert_eq!(store.load_nodes(&name).await.unwrap(), (vec![], vec![]));
    assert_eq!(store.known_objects(&name, "build").await.unwrap(), None);
    assert_eq!(store.quota_cells(&name).await.unwrap().len(), 1, "its share stays");
    assert!(!store.confirm_identity(&cluster_row("other").name, "x").await.unwrap());
}

#[tokio::test]
async fn what_is_known_of_a_cluster_is_for_the_build_that_kept_it() {
    let (bed, name) = Bed::with_cluster().await;
    let store = &bed.store;
    store.keep_known_objects(&name, "old", vec![1]).await.unwrap();
    assert_eq!(store.known_objects(&name, "old").await.unwrap(), Some(vec![1]));
    assert_eq!(store.known_objects(&name, "new").await.unwrap(), None);
    store.keep_known_objects(&name, "new", vec![2]).await.unwrap();
    assert_eq!(store.known_objects(&name, "old").await.unwrap(), None);
    assert_eq!(store.known_objects(&name, "new").await.unwrap(), Some(vec![2]));
    let other = cluster_row("other").name;
    let refused = store.keep_known_objects(&other, "new", vec![3]).await.unwrap_err();
    assert!(refused.is_unknown_cluster(), "{refused}");
    assert!(store.remove_cluster(&name).await.unwrap());
    assert_eq!(store.known_objects(&name, "new").await.unwrap(), None);
}

#[tokio::test]
async fn the_state_of_a_link_is_recorded_and_the_last_answer_is_remembered() {
    let (bed, name) = Bed::with_cluster().await;
    assert!(bed.store.set_connection(&name, "Ready", Some(at(3))).await.unwrap());
    assert!(bed.store.set_connection(&name, "Stale", None).await.unwrap());
    let known = bed.store.cluster(&name).await.unwrap().expect("there");
    assert_eq!((known.connection.as_str(), known.last_seen), ("Stale", Some(at(3))));
    assert!(!bed.store.set_connection(&cluster_row("other").name, "Ready", None).await.unwrap());
}

#[tokio::test]
async fn removing_a_cluster_takes_its_rows_and_leaves_its_history() {
    let (bed, name) = Bed::with_cluster().await;
    let store = &bed.store;
    commit(store, &name, &[node("n1")], Some(position("7"))).await.unwrap();
    store.record_capacity(&name, &[capacity_row("cpu", 4)], at(1)).await.unwrap();
    store.put_quota_cells(&name, &[quota_cell("queue", 4)]).await.unwrap();
    assert!(store.remove_cluster(&name).await.unwrap());
    assert!(!store.remove_cluster(&name).await.unwrap());
    assert_eq!(store.cluster(&name).await.unwrap(), None);
    assert_eq!(store.load_nodes(&name).await.unwrap(), (vec![], vec![]));
    assert_eq!(store.capacity(&name).await.unwrap(), vec![]);
    assert!(store.load_quota_cells().await.unwrap().is_empty());
    assert_eq!(store.capacity_history(Some(&name), &PageRequest::default()).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn rows_of_a_cluster_that_is_not_joined_are_refused_by_name() {
    let bed = Bed::new().await;
    let name = cluster_row("ghost").name;
    let errors = [
        commit(&bed.store, &name, &[node("n1")], None).await.unwrap_err(),
        bed.store.record_capacity(&name, &[capacity_row("cpu", 4)], at(1)).await.map(|_| ()).unwrap_err(),
        bed.store.put_quota_cells(&name, &[quota_cell("queue", 4)]).await.unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().ends_with("cluster `ghost` is not joined"), "{error}");
    }
}

#[tokio::test]
async fn nodes_and_their_position_change_together() {
    let (bed, name) = Bed::with_cluster().await;
    let store = &bed.store;
    commit(store, &name, &[node("n1"), node("n2"), node("n3")], Some(position("7"))).await.unwrap();
    let changes = [
        NodeChange::Put { name: "n1".into(), row: b"new".to_vec() },
        NodeChange::Remove { name: "n2".into() },
        NodeChange::Remove { name: "never-there".into() },
    ];
    commit(store, &name, &changes, Some(position("9"))).await.unwrap();
    let expected = vec![("n1".to_owned(), b"new".to_vec()), ("n3".to_owned(), b"n3".to_vec())];
    assert_eq!(store.load_nodes(&name).await.unwrap(), (expected.clone(), vec![position("9")]));

    commit(store, &name, &[], Some(position("12"))).await.unwrap();
    commit(store, &name, &[], None).await.unwrap();
    assert_eq!(store.load_nodes(&name).await.unwrap(), (expected, vec![position("12")]));
}

#[tokio::test]
async fn capacity_leaves_history_only_where_it_changes() {
    let (bed, name) = Bed::with_cluster().await;
    let store = &bed.store;
    let (cpu, gpu) = (capacity_row("cpu", 8000), capacity_row("nvidia.com/gpu", 8));
    assert_eq!(store.record_capacity(&name, &[cpu.clone(), gpu.clone()], at(1)).await.unwrap(), 2);
    assert_eq!(store.record_capacity(&name, &[gpu.clone(), cpu.clone()], at(2)).await.unwrap(), 0);
    let less = capacity_row("nvidia.com/gpu", 6);
    assert_eq!(store.record_capacity(&name, &[cpu.clone(), less.clone()], at(3)).await.unwrap(), 1);
    assert_eq!(store.record_capacity(&name, std::slice::from_ref(&cpu), at(4)).await.unwrap(), 1);
    assert_eq!(store.capacity(&name).await.unwrap(), vec![cpu]);
    let history = store.capacity_history(Some(&name), &PageRequest::default()).await.unwrap();
    let told: Vec<_> = history
        .items
        .iter()
        .map(|line| (line.at, line.resource.to_string(), line.capacity.map(Amount::units)))
        .collect();
    let gpu = "nvidia.com/gpu".to_owned();
    assert_eq!(
        told,
        vec![
            (at(4), gpu.clone(), None),
            (at(3), gpu.clone(), Some(6)),
            (at(1), gpu, Some(8)),
            (at(1), "cpu".to_owned(), Some(8000)),
        ]
    );
    assert_eq!(history.items[0].cluster, name);
}

#[tokio::test]
async fn a_claim_has_a_line_of_history_for_each_new_spec() {
    let bed = Bed::new().await;
    let store = &bed.store;
    assert!(store.record_claim(&claim_row(1, "4")).await.unwrap());
    assert!(!store.record_claim(&claim_row(1, "4")).await.unwrap(), "seen again after a restart");
    assert!(!store.record_claim(&claim_row(2, "4")).await.unwrap(), "a new generation of the same spec");
    assert!(store.record_claim(&claim_row(3, "6")).await.unwrap());
    let name = claim_row(1, "4").name;
    assert_eq!(store.claim(&name).await.unwrap(), Some(claim_row(3, "6")));
    assert!(store.claim_removed(&name, "jane", at(9)).await.unwrap());
    assert!(!store.claim_removed(&name, "jane", at(9)).await.unwrap());
    assert_eq!(store.claim(&name).await.unwrap(), None);
    let history = store.claim_history(Some(&name), &PageRequest::default()).await.unwrap().items;
    let told: Vec<_> = history
        .iter()
        .map(|line| (line.generation, line.who.as_str(), line.old_spec.is_some(), line.new_spec.is_some()))
        .collect();
    assert_eq!(
        told,
        vec![(3, "jane", true, false), (3, "fedq-edit", true, true), (1, "fedq-edit", false, true)]
    );
    assert_eq!(history[1].old_spec, Some(claim_row(1, "4").spec));
}

#[tokio::test]
async fn plans_are_kept_with_their_cause() {
    let bed = Bed::new().await;
    let store = &bed.store;
    let (one, two) = (cluster_row("worker-1").name, cluster_row("worker-2").name);
    let cause = PlanCause {
        claim: Some(claim_row(1, "4").name),
        generation: Some(4),
        who: Some("jane".into()),
        ..PlanCause::default()
    };
    let first = store.record_plan(&one, &cause, &json!({"cells": []}), at(1)).await.unwrap();
    store.record_plan(&two, &PlanCause::default(), &json!({}), at(2)).await.unwrap();
    let latest = store.record_plan(&one, &PlanCause::default(), &json!({"cells": [1]}), at(3)).await.unwrap();
    assert_eq!(store.plan(first).await.unwrap().expect("there").cause, cause);
    assert_eq!(store.plan(77).await.unwrap(), None);
    assert_eq!(store.latest_plan(&one).await.unwrap().expect("there").id, latest);
    let ids = |page: Page<PlanRow>| page.items.iter().map(|plan| plan.id).collect::<Vec<_>>();
    assert_eq!(ids(store.plans(Some(&one), &PageRequest::default()).await.unwrap()), vec![latest, first]);
    assert_eq!(store.plans(None, &PageRequest::default()).await.unwrap().items.len(), 3);
}

#[tokio::test]
async fn the_cells_of_a_hub_queue_survive_a_restart_until_it_is_gone() {
    let (bed, _) = Bed::with_cluster().await;
    let cells = |uid: &str| HubCells { uid: uid.to_owned(), cells: r#"{"f/cpu":{"base":"4"}}"#.to_owned() };
    let (one, two) = ("one".parse().unwrap(), "two".parse().unwrap());
    for (queue, uid) in [(&one, "u"), (&two, "v"), (&one, "w")] {
        bed.store.put_hub_cells(queue, Some(&cells(uid))).await.unwrap();
    }
    bed.store.put_hub_cells(&two, None).await.unwrap();
    bed.store.close().await;
    let again = Store::open(&bed.path()).await.unwrap();
    assert_eq!(again.load_hub_cells().await.unwrap(), [(one, cells("w"))].into());
}

#[tokio::test]
async fn cells_are_replaced_as_a_whole_and_survive_a_restart() {
    let (bed, name) = Bed::with_cluster().await;
    bed.store.put_quota_cells(&name, &[quota_cell("a", 9), quota_cell("b", 4)]).await.unwrap();
    bed.store.put_quota_cells(&name, &[quota_cell("c", 7), quota_cell("b", 5)]).await.unwrap();
    bed.store.close().await;
    let again = Store::open(&bed.path()).await.unwrap();
    let expected = vec![quota_cell("b", 5), quota_cell("c", 7)];
    assert_eq!(again.quota_cells(&name).await.unwrap(), expected);
    assert_eq!(
        again.load_quota_cells().await.unwrap().into_iter().collect::<Vec<_>>(),
        vec![(name, expected)]
    );
}

#[tokio::test]
async fn the_audit_log_is_filtered_and_paged_from_the_newest() {
    let bed = Bed::new().await;
    for second in 0..5 {
        bed.store.record_audit(&audit_entry(if second == 3 { "joe" } else { "jane" }, second)).await.unwrap();
    }
    let filter = AuditFilter { who: Some("jane".into()), since: Some(at(1)), ..AuditFilter::default() };
    let first = bed.store.audit(&filter, &PageRequest::first(2)).await.unwrap();
    assert_eq!(first.items.iter().map(|entry| entry.at).collect::<Vec<_>>(), vec![at(4), at(2)]);
    let rest = bed.store.audit(&filter, &PageRequest::after(first.next.expect("more"), 2)).await.unwrap();
    assert_eq!(rest.items.iter().map(|entry| entry.at).collect::<Vec<_>>(), vec![at(1)]);
    assert_eq!(rest.next, None);
    let nobody = AuditFilter { who: Some("' OR 1=1 --".into()), ..AuditFilter::default() };
    assert_eq!(bed.store.audit(&nobody, &PageRequest::default()).await.unwrap().items, vec![]);
}

#[tokio::test]
async fn pages_of_names_neither_repeat_nor_skip() {
    let bed = Bed::new().await;
    for number in 0..7 {
        bed.store.put_cluster(&cluster_row(&format!("worker-{number}"))).await.unwrap();
    }
    let (mut request, mut names) = (PageRequest::first(3), vec![]);
    loop {
        let page = bed.store.clusters(&request).await.unwrap();
        names.extend(page.items.into_iter().map(|row| row.name.to_string()));
        // A row before the cursor, and one that is gone, change nothing for those that follow.
        bed.store.put_cluster(&cluster_row("aaa")).await.unwrap();
        bed.store.remove_cluster(&cluster_row("worker-2").name).await.unwrap();
        let Some(next) = page.next else { break };
        request = PageRequest::after(next.to_string().parse().expect("a cursor survives text"), 3);
    }
    assert_eq!(names, (0..7).map(|number| format!("worker-{number}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_cursor_of_another_list_is_refused() {
    let bed = Bed::new().await;
    let request = PageRequest::after("worker-1".parse().unwrap(), 3);
    let error = bed.store.plans(None, &request).await.unwrap_err();
    assert_eq!(error.to_string(), "`worker-1` is not a page cursor of this list");
    assert!("".parse::<Cursor>().is_err());
    assert!("a\u{1b}[2J".parse::<Cursor>().is_err());
}

#[tokio::test]
async fn history_is_pruned_by_age_and_count_but_the_last_plan_of_a_cluster_stays() {
    let bed = Bed::new().await;
    let store = &bed.store;
    let (old, busy) = (cluster_row("old").name, cluster_row("busy").name);
    store.record_plan(&old, &PlanCause::default(), &json!({}), at(0)).await.unwrap();
    store.record_audit(&audit_entry("jane", 0)).await.unwrap();
    for second in 100..110 {
        store.record_plan(&busy, &PlanCause::default(), &json!({}), at(second)).await.unwrap();
        store.record_audit(&audit_entry("jane", second)).await.unwrap();
    }
    let retention = Retention { keep_for: Duration::from_mins(1), keep_rows: 3 };
    assert_eq!(store.prune(retention, at(111)).await.unwrap(), Pruned { rows: 7 + 8 });
    assert_eq!(store.plans(Some(&busy), &PageRequest::default()).await.unwrap().items.len(), 3);
    assert_eq!(store.plans(Some(&old), &PageRequest::default()).await.unwrap().items.len(), 1);
    assert_eq!(store.audit(&AuditFilter::default(), &PageRequest::default()).await.unwrap().items.len(), 3);
    let for_ever = Retention { keep_for: Duration::MAX, keep_rows: u32::MAX };
    assert_eq!(store.prune(for_ever, at(111)).await.unwrap(), Pruned { rows: 0 });
}

#[tokio::test]
async fn refusals_push_nothing_out_that_was_done() {
    let bed = Bed::new().await;
    let store = &bed.store;
    store.record_audit(&audit_entry("jane", 0)).await.unwrap();
    let task = AuditEntry { object: "tasks/x".to_owned(), ..audit_entry("jane", 0) };
    store.record_audit(&task).await.unwrap();
    for second in 1..20 {
        let object = if second % 2 == 0 { "tasks/x" } else { "clusters/east" };
        let refusal = AuditEntry {
            object: object.to_owned(),
            outcome: "no".to_owned(),
            refused: true,
            ..audit_entry("mallory", second)
        };
        store.record_audit(&refusal).await.unwrap();
    }
    let retention = Retention { keep_for: Duration::from_hours(1), keep_rows: 3 };
    assert_eq!(store.prune(retention, at(21)).await.unwrap(), Pruned { rows: 16 });
    let left = store.audit(&AuditFilter::default(), &PageRequest::default()).await.unwrap().items;
    let left: Vec<_> = left.iter().map(|entry| (entry.who.as_str(), entry.refused)).collect();
    assert_eq!(
        left,
        [("mallory", true), ("mallory", true), ("mallory", true), ("jane", false), ("jane", false)]
    );
}

#[tokio::test]
async fn what_is_done_with_tasks_pushes_nothing_else_out_of_the_audit_log() {
    let bed = Bed::new().await;
    let store = &bed.store;
    let entry =
        |object: &str, second| AuditEntry { object: object.to_owned(), ..audit_entry("jane", second) };
    for second in 0..4 {
        store.record_audit(&entry("clusters/east", second)).await.unwrap();
    }
    for second in 10..20 {
        store.record_audit(&entry(&format!("tasks/{second}"), second)).await.unwrap();
        store.record_audit(&entry("volumes/x", second)).await.unwrap();
    }
    let retention = Retention { keep_for: Duration::from_hours(1), keep_rows: 3 };
    assert_eq!(store.prune(retention, at(21)).await.unwrap(), Pruned { rows: 1 + 17 });
    let left = store.audit(&AuditFilter::default(), &PageRequest::default()).await.unwrap().items;
    let left: Vec<_> = left.iter().map(|entry| (entry.object.as_str(), entry.at)).collect();
    assert_eq!(
        left,
        [
            ("volumes/x", at(19)),
            ("tasks/19", at(19)),
            ("volumes/x", at(18)),
            ("clusters/east", at(3)),
            ("clusters/east", at(2)),
            ("clusters/east", at(1)),
        ]
    );
}

#[tokio::test]
async fn writes_that_wait_share_commits_and_a_failing_one_takes_nobody_with_it() {
    let folder = TempDir::new().unwrap();
    let commits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&commits);
    let on_commit = Box::new(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let store = Store::open_with(&folder.path().join("fedq.db"), on_commit).await.unwrap();
    let name = cluster_row("worker-1").name;
    store.put_cluster(&cluster_row("worker-1")).await.unwrap();
    let ghost = cluster_row("ghost").name;
    let writes = (0..400).map(|number| {
        let (store, cluster) = (&store, if number % 10 == 0 { &ghost } else { &name });
        async move { commit(store, cluster, &[node(&format!("n{number}"))], None).await }
    });
    let outcomes = join_all(writes).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 40);
    assert_eq!(store.load_nodes(&name).await.unwrap().0.len(), 360);
    let commits = commits.load(Ordering::Relaxed);
    assert!(commits < 100, "{commits} commits for 400 writes");
}

#[tokio::test]
async fn every_acknowledged_write_survives_a_kill_and_no_half_of_one_does() {
    let (bed, name) = Bed::with_cluster().await;
    for version in 1..=40 {
        let nodes: Vec<_> = (0..5).map(|number| node(&format!("n{version}-{number}"))).collect();
        commit(&bed.store, &name, &nodes, Some(position(&version.to_string()))).await.unwrap();
    }
    let wal = fs::read(bed.path().with_file_name("fedq.db-wal")).expect("not checkpointed yet");
    // What a killed process leaves is what it has written: all of it, or (power loss) a part of the tail.
    for eighth in 0..=8 {
        let folder = TempDir::new().unwrap();
        let copy = folder.path().join("fedq.db");
        fs::copy(bed.path(), &copy).unwrap();
        fs::write(folder.path().join("fedq.db-wal"), &wal[..wal.len() * eighth / 8]).unwrap();
        let store = Store::open(&copy).await.unwrap();
        let (nodes, positions) = store.load_nodes(&name).await.unwrap();
        let version = positions.first().map_or(0, |position| position.resource_version.parse().unwrap());
        assert_eq!(nodes.len(), version * 5, "rows and position are of one commit");
        if eighth == 8 {
            assert_eq!(version, 40);
        }
    }
}

#[tokio::test]
async fn the_claim_in_force_outlives_a_restart_whatever_else_is_said() {
    let bed = Bed::new().await;
    let cluster = |name: &str| ClusterName::new(name).expect("a name");
    let claim = |name: &str, seen: Option<i64>| ClaimInForce {
        name: ClaimName::new(name).expect("a name"),
        spec: json!({"clusterName": name, "resourceAssignments": []}),
        seen: seen.map(|generation| ClaimGeneration { uid: format!("u-{name}"), generation }),
    };
    let (second, unseen) = (claim("a-second", Some(7)), claim("b", None));
    let (path, store) = (bed.path(), bed.store);
    for (of, claim) in [("west", &unseen), ("east", &claim("z-first", Some(1))), ("east", &second)] {
        store.put_claim_in_force(&cluster(of), Some(claim)).await.expect("stored");
    }
    store.close().await;
    let store = Store::open(&path).await.expect("opens");
    let in_force = async || store.claims_in_force().await.expect("read");
    assert_eq!(in_force().await, [second, unseen.clone()], "one a cluster");
    store.put_claim_in_force(&cluster("east"), None).await.expect("removed");
    assert_eq!(in_force().await, [unseen]);
}
