use std::time::Duration;

use futures::future::join_all;
use tempfile::TempDir;

use super::{
    super::{AuditFilter, Retention, TaskFilter},
    testing::{at, row},
    *,
};
use fedq_domain::task::phase::Move;

async fn store() -> (TempDir, Store) {
    let folder = TempDir::new().expect("a temporary folder");
    let store = Store::open(&folder.path().join("fedq.db")).await.expect("opens");
    (folder, store)
}

/// The row after `step`, and how to record it.
fn moved(row: &TaskRow, step: &Move, second: i64) -> (TaskRow, TaskMove) {
    let to = row.state.clone().next(step.clone()).expect("legal");
    let event = Event::of(step, &to, at(second), None);
    let record = TaskMove {
        id: row.id.clone(),
        from: row.state.clone(),
        to: to.clone(),
        dispatch: row.dispatch.clone(),
        restarts: row.restarts,
        nodes: row.nodes,
        event,
    };
    (TaskRow { state: to, changed: at(second), ..row.clone() }, record)
}

fn dispatch() -> Dispatch {
    Dispatch {
        placement: Placement {
            cluster: ClusterName::new("one").expect("a name"),
            candidate: 0,
            queue: "default".to_owned(),
            now: true,
            terms: [("gpu".to_owned(), ["h100".to_owned()].into())].into(),
            refused: [("capacity".to_owned(), ["spot".to_owned()].into())].into(),
            flavors: [].into(),
            pod_sets: Vec::new(),
            claims: [("data".to_owned(), "data-1".to_owned())].into(),
            read_only: ["data".to_owned()].into(),
        },
        gang: Gang::JobSet,
        priority_class: None,
        by_multikueue: false,
        spills: 2,
        landed: None,
        started: None,
    }
}

#[tokio::test]
async fn an_accepted_task_survives_a_restart() {
    let (folder, store) = store().await;
    let task = row(1, "ann");
    assert!(store.insert_task(&task).await.expect("stored"));
    store.close().await;
    let store = Store::open(&folder.path().join("fedq.db")).await.expect("opens");
    assert_eq!(store.task(&task.id).await.expect("read"), Some(task.clone()));
    assert_eq!(store.live_tasks().await.expect("read"), std::slice::from_ref(&task));
    assert_eq!(store.task_events(&task.id).await.expect("read"), [Event::submitted(at(0))]);
    assert_eq!(store.task(&TaskId::draw(2)).await.expect("read"), None);
    store.close().await;
    let bytes = std::fs::read(folder.path().join("fedq.db")).expect("the file");
    assert!(!String::from_utf8_lossy(&bytes).contains("hush"), "a secret is in the database");
}

#[tokio::test]
async fn an_id_is_given_once() {
    let (_folder, store) = store().await;
    assert!(store.insert_task(&row(1, "ann")).await.expect("stored"));
    assert!(!store.insert_task(&row(1, "bob")).await.expect("refused"));
    assert_eq!(
        store.task(&TaskId::draw(1)).await.expect("read").map(|task| task.owner).as_deref(),
        Some("ann")
    );
    assert_eq!(store.task_events(&TaskId::draw(1)).await.expect("read").len(), 1);
}

#[tokio::test]
async fn how_many_tasks_a_person_has_follows_what_becomes_of_them() {
    let (_folder, store) = store().await;
    let one = Live::of([&row(1, "ann").spec].into_iter()).expect("a spec");
    assert!(one.tasks == 1 && 100 < one.bytes, "{one:?}");
    let live = async |owner| {
        let live = store.live_tasks_of(owner).await.expect("counted");
        assert_eq!(live.bytes, u64::from(live.tasks) * one.bytes);
        live.tasks
    };
    assert_eq!(live("ann").await, 0);
    let tasks: Vec<TaskRow> =
        (0..4).map(|number| row(number, if number == 3 { "bob" } else { "ann" })).collect();
    for task in &tasks {
        store.insert_task(task).await.expect("stored");
    }
    assert!(!store.insert_task(&row(3, "ann")).await.expect("refused"), "the id is bob's");
    assert_eq!((live("ann").await, live("bob").await), (3, 1));
    let (dispatched, go) = moved(&tasks[0], &Move::Dispatch(dispatch().placement.cluster), 1);
    store.move_task(&go).await.expect("recorded");
    assert_eq!(live("ann").await, 3, "it goes on");
    let (_, stop) = moved(&dispatched, &Move::Stop, 2);
    store.move_task(&stop).await.expect("recorded");
    let (_, done) = moved(&TaskRow { state: stop.to, ..dispatched }, &Move::Withdrawn, 3);
    store.move_task(&done).await.expect("recorded");
    for task in &tasks[1..] {
        store.stop_task(&task.id, at(4)).await.expect("stopped");
        // Stopping is idempotent, and so is the count.
        store.stop_task(&task.id, at(5)).await.expect("stopped");
    }
    assert_eq!((live("ann").await, live("bob").await), (0, 0));
    store.insert_task(&row(9, "ann")).await.expect("stored");
    assert_eq!(live("ann").await, 1);
}

#[tokio::test]
async fn lists_are_read_by_an_index_that_has_nothing_else() {
    let (_folder, store) = store().await;
    for (owner, over, index) in [
        (None, None, "INTEGER PRIMARY KEY"),
        (None, Some(false), "tasks_live"),
        (Some("ann"), None, "tasks_by_owner"),
        (Some("ann"), Some(false), "tasks_live_by_owner"),
    ] {
        let filter = TaskFilter { owner: owner.map(str::to_owned), over, wrapped: None };
        let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", filter.statement()));
        let plan = sqlx::query(explain).fetch_all(store.readers()).await.expect("a plan");
        let plan: Vec<String> = plan.iter().map(|row| row.get("detail")).collect();
        // Newest first, without sorting.
        assert_eq!(plan.len(), 1, "{filter:?}: {plan:?}");
        assert!(
            plan[0].contains(&format!("USING {index} "))
                || plan[0].contains(&format!("USING INDEX {index} ")),
            "{filter:?}: {plan:?}"
        );
    }
}

#[tokio::test]
async fn of_two_moves_from_one_state_one_wins() {
    let (_folder, store) = store().await;
    let task = row(1, "ann");
    store.insert_task(&task).await.expect("stored");
    let (_, stop) = moved(&task, &Move::Stop, 1);
    let (dispatched, mut go) = moved(&task, &Move::Dispatch(dispatch().placement.cluster), 2);
    go.dispatch = Some(dispatch());
    let both = [store.move_task(&go), store.move_task(&stop)];
    let won: Vec<bool> = join_all(both).await.into_iter().map(|moved| moved.expect("recorded")).collect();
    assert_eq!(won.iter().filter(|won| **won).count(), 1);
    let events = store.task_events(&task.id).await.expect("read");
    assert_eq!(events.len(), 2);
    let found = store.task(&task.id).await.expect("read").expect("there");
    if won[0] {
        assert_eq!(found, TaskRow { dispatch: Some(dispatch()), ..dispatched });
        assert_eq!(events[1].message, "cluster one was chosen");
    } else {
        assert!(found.state.phase.is_over());
    }
}

#[tokio::test]
async fn lists_are_by_owner_newest_first_and_in_pages() {
    let (_folder, store) = store().await;
    for number in 0..5 {
        let task = row(number, if number % 2 == 0 { "ann" } else { "bob" });
        store.insert_task(&task).await.expect("stored");
        if number < 2 {
            let (_, stop) = moved(&task, &Move::Stop, 1);
            assert!(store.move_task(&stop).await.expect("recorded"));
        }
    }
    let list = async |owner: Option<&str>, over: Option<bool>| {
        let filter = TaskFilter { owner: owner.map(str::to_owned), over, wrapped: None };
        let page = store.tasks(&filter, &PageRequest::default()).await.expect("listed");
        page.items.into_iter().map(|task| task.id).collect::<Vec<_>>()
    };
    let ids = |numbers: &[u64]| numbers.iter().map(|number| TaskId::draw(*number)).collect::<Vec<_>>();
    assert_eq!(list(None, None).await, ids(&[4, 3, 2, 1, 0]));
    assert_eq!(list(Some("ann"), None).await, ids(&[4, 2, 0]));
    assert_eq!(list(Some("ann"), Some(false)).await, ids(&[4, 2]));
    assert_eq!(list(Some("bob"), Some(true)).await, ids(&[1]));
    assert_eq!(list(None, Some(true)).await, ids(&[1, 0]));
    assert_eq!(list(None, Some(false)).await, ids(&[4, 3, 2]));
    assert_eq!(store.live_tasks().await.expect("read").len(), 3);
    let first = store.tasks(&TaskFilter::default(), &PageRequest::first(2)).await.expect("listed");
    let next = PageRequest::after(first.next.expect("more"), 10);
    let rest = store.tasks(&TaskFilter::default(), &next).await.expect("listed");
    assert_eq!((rest.items.len(), rest.next), (3, None));
    assert_eq!(rest.items[0].id, TaskId::draw(2));
}

#[tokio::test]
async fn history_goes_by_age_and_count_and_live_tasks_stay() {
    let (_folder, store) = store().await;
    for number in 0..6 {
        let task = row(number, "ann");
        store.insert_task(&task).await.expect("stored");
        if number != 0 {
            let (_, stop) = moved(&task, &Move::Stop, i64::try_from(number).expect("small") * 10);
            store.move_task(&stop).await.expect("recorded");
        }
    }
    let left = async || {
        let page = store.tasks(&TaskFilter::default(), &PageRequest::default()).await.expect("listed");
        page.items.into_iter().map(|task| task.id).collect::<Vec<_>>()
    };
    let ids = |numbers: &[u64]| numbers.iter().map(|number| TaskId::draw(*number)).collect::<Vec<_>>();
    let by_age = Retention { keep_for: Duration::from_secs(25), keep_rows: 100 };
    store.prune_tasks(by_age, at(50)).await.expect("pruned");
    assert_eq!(left().await, ids(&[5, 4, 3, 0]));
    assert!(store.task_events(&TaskId::draw(1)).await.expect("read").is_empty());
    let by_count = Retention { keep_for: Duration::from_hours(1), keep_rows: 1 };
    store.prune_tasks(by_count, at(50)).await.expect("pruned");
    assert_eq!(left().await, ids(&[5, 0]));
}

#[tokio::test]
async fn of_ids_those_without_a_task_are_told() {
    let (_folder, store) = store().await;
    store.insert_task(&row(1, "ann")).await.expect("stored");
    let [one, two] = [1, 2].map(TaskId::draw);
    let unknown = store.unknown_tasks(&[one, two.clone()].into()).await.expect("read");
    assert_eq!(unknown, [two].into());
    assert!(store.unknown_tasks(&BTreeSet::new()).await.expect("read").is_empty());
}

#[tokio::test]
async fn a_row_that_fedq_did_not_write_is_an_error() {
    let (_folder, store) = store().await;
    store.insert_task(&row(1, "ann")).await.expect("stored");
    store.execute("UPDATE tasks SET state = '{\"phase\":\"dreaming\",\"epoch\":0}'").await;
    let error = store.task(&TaskId::draw(1)).await.expect_err("undecodable");
    assert_eq!(error.to_string(), "cannot read the task from the database");
}

#[tokio::test]
async fn many_submissions_share_commits() {
    let (_folder, store) = store().await;
    let tasks: Vec<TaskRow> = (0..500).map(|number| row(number, "ann")).collect();
    let accepted = join_all(tasks.iter().map(|task| store.insert_task(task))).await;
    assert!(accepted.into_iter().all(|accepted| accepted.expect("stored")));
    assert_eq!(store.live_tasks().await.expect("read").len(), 500);
}

#[tokio::test]
async fn what_moved_is_told_once_and_a_stop_is_a_move() {
    let (_folder, store) = store().await;
    assert_eq!(store.task_changes(0).await.expect("read"), Changes::default());
    let (one, two) = (row(1, "ann"), row(2, "bob"));
    assert!(store.insert_task(&one).await.expect("stored"));
    assert!(store.insert_task(&two).await.expect("stored"));
    let changes = store.task_changes(0).await.expect("read");
    assert_eq!(changes.tasks, [one.clone(), two.clone()]);
    let seen = changes.seen;
    assert_eq!(store.task_changes(seen).await.expect("read"), Changes { tasks: vec![], seen });

    let (dispatched, step) = moved(&one, &Move::Dispatch(ClusterName::new("one").expect("a name")), 1);
    assert!(store.move_task(&step).await.expect("stored"));
    let stopped = store.stop_task(&one.id, at(2)).await.expect("stored").expect("a task");
    assert_eq!(stopped.state.phase.word(), "stopping");
    assert_eq!(stopped.state.epoch, dispatched.state.epoch);
    let again = store.stop_task(&one.id, at(3)).await.expect("no failure");
    assert_eq!(again.as_ref(), Some(&stopped), "stopping is idempotent");
    let never_dispatched = store.stop_task(&two.id, at(4)).await.expect("stored").expect("a task");
    assert!(never_dispatched.state.phase.is_over());
    assert_eq!(store.stop_task(&TaskId::draw(9), at(5)).await.expect("no failure"), None);
    let changes = store.task_changes(seen).await.expect("read");
    assert_eq!(changes.tasks, [stopped, never_dispatched], "what is over is told too");
    assert!(seen < changes.seen);
}

/// Three tasks, one after the other.
fn three() -> Vec<TaskRow> {
    let mut rows: Vec<TaskRow> = (1..=3).map(|number| row(number, "ann")).collect();
    let ids: Vec<TaskId> = rows.iter().map(|row| row.id.clone()).collect();
    for (row, stage) in rows.iter_mut().zip(Stage::of(&ids, Some("train"))) {
        row.stage = Some(stage);
    }
    rows
}

async fn run(store: &Store, id: &TaskId, steps: &[Move]) -> TaskRow {
    for step in steps {
        let row = store.task(id).await.expect("read").expect("a task");
        assert!(store.move_task(&moved(&row, step, 1).1).await.expect("stored"));
    }
    store.task(id).await.expect("read").expect("a task")
}

async fn told(store: &Store, id: &TaskId) -> (String, String) {
    let events = store.task_events(id).await.expect("read");
    let last = events.last().expect("an event");
    (last.phase.word().to_owned(), last.message.clone())
}

#[tokio::test]
async fn a_pipeline_is_accepted_whole_or_not_at_all() {
    let (_folder, store) = store().await;
    let rows = three();
    assert!(store.insert_task(&row(3, "bob")).await.expect("stored"));
    assert!(!store.insert_tasks(&rows).await.expect("no failure"), "an id is taken");
    assert_eq!(store.live_tasks().await.expect("read").len(), 1);
    assert!(store.insert_tasks(&rows[..2]).await.expect("stored"));
    assert_eq!(store.pipeline(&rows[0].id).await.expect("read"), rows[..2]);
}

#[tokio::test]
async fn who_submitted_is_written_down_with_the_tasks_or_not_at_all() {
    let (_folder, store) = store().await;
    let submission = |tasks: Vec<TaskRow>| Submission {
        adds: Live::of(tasks.iter().map(|row| &row.spec)).expect("specs"),
        most: Live { tasks: 4, bytes: 1 << 20 },
        tasks,
        deed: AuditEntry {
            id: 0,
            at: at(1),
            who: "ann".to_owned(),
            verb: "create".to_owned(),
            object: "tasks/x".to_owned(),
            detail: None,
            outcome: "ok".to_owned(),
            through: None,
            refused: false,
        },
    };
    let entries = async || {
        store.audit(&AuditFilter::default(), &PageRequest::default()).await.expect("read").items.len()
    };
    let submit = async |tasks| store.submit_tasks(submission(tasks)).await;
    assert_eq!(submit(three()).await.expect("stored"), Acceptance::Accepted);
    assert_eq!(entries().await, 1);
    assert_eq!(submit(three()).await.expect("no failure"), Acceptance::Taken);
    let live = store.live_tasks_of("ann").await.expect("counted");
    let more = vec![row(8, "ann"), row(9, "ann")];
    assert_eq!(submit(more).await.expect("no failure"), Acceptance::TooMuch(live));
    assert_eq!(entries().await, 1, "nothing was submitted");
    store.execute("CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no'); END").await;
    submit(vec![row(9, "ann")]).await.expect_err("no trace, no task");
    assert_eq!(store.live_tasks().await.expect("read").len(), 3);
}

#[tokio::test]
async fn the_next_stage_is_due_in_the_commit_in_which_the_one_before_it_succeeds() {
    let (_folder, store) = store().await;
    let rows = three();
    assert!(store.insert_tasks(&rows).await.expect("stored"));
    let seen = store.task_changes(0).await.expect("read").seen;
    let dispatch = Move::Dispatch(ClusterName::new("one").expect("a name"));
    run(&store, &rows[0].id, &[dispatch.clone(), Move::Succeeded]).await;
    let changes = store.task_changes(seen).await.expect("read").tasks;
    let waits: Vec<_> =
        changes.iter().map(|row| row.stage.as_ref().expect("a stage").waits_for.clone()).collect();
    assert_eq!(waits, [None, None], "the first and the second are told of");
    assert_eq!(
        told(&store, &rows[1].id).await,
        ("pending".to_owned(), format!("stage 1 ({}) succeeded: its turn has come", rows[0].id))
    );
    let third = store.task(&rows[2].id).await.expect("read").expect("a task");
    assert_eq!(third.stage.expect("a stage").waits_for, Some(rows[1].id.clone()));
}

#[tokio::test]
async fn what_is_behind_a_failed_stage_is_never_run() {
    let (_folder, store) = store().await;
    let rows = three();
    assert!(store.insert_tasks(&rows).await.expect("stored"));
    let dispatch = Move::Dispatch(ClusterName::new("one").expect("a name"));
    let failed = Move::ProgramFailed { restart: false };
    run(&store, &rows[0].id, &[dispatch.clone(), Move::ProgramFailed { restart: true }, Move::Withdrawn])
        .await;
    assert_eq!(store.live_tasks().await.expect("read").len(), 3, "another try is no failure");
    run(&store, &rows[0].id, &[dispatch, failed]).await;
    let why = format!("it is not run: stage 1 ({}) failed", rows[0].id);
    for row in &rows[1..] {
        assert_eq!(told(&store, &row.id).await, ("stopped".to_owned(), why.clone()));
    }
    assert!(store.live_tasks().await.expect("read").is_empty());
}

#[tokio::test]
async fn a_stop_of_a_stage_stops_what_is_behind_it() {
    let (_folder, store) = store().await;
    let rows = three();
    assert!(store.insert_tasks(&rows).await.expect("stored"));
    let dispatch = Move::Dispatch(ClusterName::new("one").expect("a name"));
    store.stop_task(&rows[2].id, at(2)).await.expect("stored");
    run(&store, &rows[0].id, &[dispatch.clone(), Move::Succeeded]).await;
    run(&store, &rows[1].id, &[dispatch]).await;
    // The first is over, and stands for all.
    let first = store.stop_task(&rows[0].id, at(3)).await.expect("stored").expect("a task");
    assert_eq!(first.state.phase.word(), "succeeded");
    let words = async || {
        let rows = store.pipeline(&rows[0].id).await.expect("read");
        rows.iter().map(|row| row.state.phase.word()).collect::<Vec<_>>()
    };
    assert_eq!(words().await, ["succeeded", "stopping", "stopped"]);
    store.stop_task(&rows[0].id, at(4)).await.expect("no failure");
    run(&store, &rows[1].id, &[Move::Withdrawn]).await;
    assert_eq!(words().await, ["succeeded", "stopped", "stopped"]);
}

#[tokio::test]
async fn a_stop_of_a_running_stage_stops_what_is_behind_it_before_its_cluster_confirms() {
    let (_folder, store) = store().await;
    let rows = three();
    assert!(store.insert_tasks(&rows).await.expect("stored"));
    run(&store, &rows[0].id, &[Move::Dispatch(ClusterName::new("one").expect("a name"))]).await;
    store.stop_task(&rows[0].id, at(2)).await.expect("stored");
    let live = store.live_tasks().await.expect("read");
    assert_eq!(live.iter().map(|row| &row.id).collect::<Vec<_>>(), [&rows[0].id]);
    let why = format!("it is not run: stage 1 ({}) was stopped", rows[0].id);
    assert_eq!(told(&store, &rows[2].id).await.1, why);
}

#[tokio::test]
async fn a_task_that_goes_to_and_fro_keeps_its_beginning_and_its_last_events() {
    let (_folder, store) = store().await;
    let mut task = row(1, "ann");
    store.insert_task(&task).await.expect("stored");
    let one = ClusterName::new("one").expect("a name");
    let round = [Move::Dispatch(one), Move::Spill, Move::Withdrawn];
    let moves = usize::try_from(EVENTS).expect("small") + 50;
    for (second, step) in round.iter().cycle().take(moves).enumerate() {
        let (next, record) = moved(&task, step, i64::try_from(second).expect("small"));
        assert!(store.move_task(&record).await.expect("moved"));
        task = next;
    }
    let events = store.task_events(&task.id).await.expect("read");
    assert_eq!(events.len(), usize::try_from(EVENTS).expect("small") + 1);
    assert_eq!(events[0], Event::submitted(at(0)));
    assert_eq!(events.last().map(|event| event.epoch), Some(task.state.epoch));
    assert_eq!(events.last().map(|event| event.at), Some(at(i64::try_from(moves).expect("small") - 1)));
}

#[tokio::test]
async fn app_wrappers_are_listed_apart() {
    let (_folder, store) = store().await;
    let script = row(1, "ann");
    let mut wrapper = row(2, "ann");
    wrapper.spec.wrapped = Some(fedq_domain::task::wrapped::Wrapped::default());
    for task in [&script, &wrapper] {
        assert!(store.insert_task(task).await.expect("stored"));
    }
    for (wrapped, expected) in [
        (None, vec![&wrapper.id, &script.id]),
        (Some(true), vec![&wrapper.id]),
        (Some(false), vec![&script.id]),
    ] {
        for (owner, over) in [(None, None), (Some(script.owner.clone()), Some(false))] {
            let filter = TaskFilter { owner, over, wrapped };
            let found = store.tasks(&filter, &PageRequest::default()).await.expect("listed");
            let ids: Vec<_> = found.items.iter().map(|task| &task.id).collect();
            assert_eq!(ids, expected, "{filter:?}");
        }
    }
}

#[tokio::test]
async fn what_was_left_behind_is_known_until_it_is_gone_and_its_task_is_not_forgotten_before() {
    let (folder, store) = store().await;
    let task = TaskRow { dispatch: Some(dispatch()), ..row(1, "ann") };
    store.insert_task(&task).await.expect("stored");
    let name = |name: &str| ClusterName::new(name).expect("a name");
    let mut last = task.clone();
    let mut go = async |step: Move, second: i64| {
        let (after, record) = moved(&last, &step, second);
        assert!(store.move_task(&record).await.expect("stored"));
        last = after;
        last.clone()
    };
    go(Move::Dispatch(name("one")), 1).await;
    go(Move::Started, 2).await;
    let lost = go(Move::ClusterLost, 3).await;
    assert!(store.left_behind().await.expect("read").is_empty(), "it may come back");
    go(Move::Replace(name("two")), 4).await;
    let over = go(Move::Succeeded, 5).await;
    let expected = TaskRow { changed: over.changed, ..lost.clone() };
    assert_eq!(store.left_behind().await.expect("read"), std::slice::from_ref(&expected));
    // A move that comes too late leaves nothing.
    let (_, late) = moved(&lost, &Move::Replace(name("three")), 6);
    assert!(!store.move_task(&late).await.expect("read"));
    let retention = Retention { keep_for: Duration::ZERO, keep_rows: 0 };
    store.prune_tasks(retention, at(99)).await.expect("pruned");
    store.close().await;
    let store = Store::open(&folder.path().join("fedq.db")).await.expect("opens");
    assert_eq!(store.left_behind().await.expect("read"), [expected]);
    store.forget_left_behind(&task.id, 2, (at(7), "gone")).await.expect("another dispatch");
    assert_eq!(store.left_behind().await.expect("read").len(), 1);
    store.forget_left_behind(&task.id, 1, (at(7), "gone")).await.expect("stored");
    assert!(store.left_behind().await.expect("read").is_empty());
    store.prune_tasks(retention, at(99)).await.expect("pruned");
    assert_eq!(store.task(&task.id).await.expect("read"), None);
}
