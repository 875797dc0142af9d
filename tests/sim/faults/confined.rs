//! I8: whatever one cluster says, nothing of another moves: not an object on it, not its claim, not a row of the
//! database, and so not what the hub's queues have from it.

use std::collections::BTreeSet;
use std::time::Duration;

use fastrand::Rng;
use fedq_sim::cluster::Cluster;
use fedq_sim::kind::{KINDS, Kind};
use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection as _};

use super::super::bed::gpu_node;
use super::stage::{FLAVOR, GPU, HUB_LABEL, Stage, claim_name, gpus, queue_objects, wrong};

/// All that is there of a cluster, each thing as text.
type Known = BTreeSet<String>;

async fn known(stage: &Stage, cluster: &Cluster) -> Known {
    let mut claim = (*stage.hub().get("ClusterResourceClaim", "", &claim_name(cluster)).unwrap()).clone();
    // Whether the hub's queues are as they should be is told to each who has a part in them, as any part moves.
    for field in ["resourceVersion", "managedFields"] {
        claim["metadata"].as_object_mut().unwrap().shift_remove(field);
    }
    let conditions = claim["status"]["conditions"].as_array_mut().unwrap();
    conditions.retain(|condition| condition["type"] != "QuotaSynced" && condition["type"] != "Ready");
    let objects = KINDS.iter().flat_map(|kind| cluster.list(kind.kind));
    let mut known: Known = objects.map(|object| object.to_string()).collect();
    known.insert(claim.to_string());
    known.extend(rows(stage, &cluster.state.name).await);
    known
}

/// What a start of fedqd does not touch: it tells of itself in the claim's status, and in a plan.
fn lasting(mut known: Known) -> Known {
    known.retain(|one| !one.starts_with("plans: ") && !one.contains("\"kind\":\"ClusterResourceClaim\""));
    known
}

fn is_same(before: &Known, now: &Known, lie: &str) {
    let moved: Vec<&String> = before.symmetric_difference(now).collect();
    assert!(moved.is_empty(), "`{lie}` of `one` moved something of `two`: {moved:#?}");
}

/// Of every table that has rows of clusters. How far a watch is moves by itself.
async fn rows(stage: &Stage, cluster: &str) -> Vec<String> {
    const TABLES: &str = "SELECT t.name, group_concat('quote(' || c.name || ')', ' || '' '' || ') \
        FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table' AND t.name != 'watch_positions' \
        AND EXISTS (SELECT 1 FROM pragma_table_info(t.name) WHERE name = 'cluster') GROUP BY t.name";
    let options = SqliteConnectOptions::new().filename(stage.bed.path("fedq.db")).read_only(true);
    let mut database = SqliteConnection::connect_with(&options).await.unwrap();
    let tables: Vec<(String, String)> = sqlx::query_as(TABLES).fetch_all(&mut database).await.unwrap();
    let mut rows = Vec::new();
    for (table, columns) in tables {
        let select = AssertSqlSafe(format!("SELECT {columns} FROM {table} WHERE cluster = ? ORDER BY 1"));
        let found = sqlx::query_scalar::<_, String>(select).bind(cluster).fetch_all(&mut database).await;
        rows.extend(found.unwrap().into_iter().map(|row| format!("{table}: {row}")));
    }
    database.close().await.unwrap();
    let terms = rows.iter().filter(|row| row.starts_with("quota_cells")).count();
    assert_eq!(terms, 2, "what the hub's queues have from `{cluster}`: {rows:#?}");
    rows
}

/// A stage that has come to rest, and what is known of `two` there.
async fn rested(mut stage: Stage) -> (Stage, Known) {
    stage.may_fall = true;
    stage.rests().await;
    let known = known(&stage, stage.two()).await;
    (stage, known)
}

async fn moved_nothing_of_two(stage: &Stage, before: &Known, lie: &str) {
    // Whatever it set off is through.
    stage.rests().await;
    is_same(before, &known(stage, stage.two()).await, lie);
}

/// To a daemon that begins with the lie, too.
async fn moves_nothing_at_a_start(stage: &mut Stage, before: &Known, lie: &str) {
    stage.kill();
    stage.start();
    stage.bed.logs("Connected to `two`", 2).await;
    stage.claim_says(stage.two(), "CapacityKnown", "Observed").await;
    stage.rests().await;
    let now = known(stage, stage.two()).await;
    is_same(&lasting(before.clone()), &lasting(now), lie);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cluster_says_of_its_nodes_moves_its_own_share_only() {
    let stage = Stage::set().await;
    stage.give(stage.one(), [40, 20]).await;
    // Of the 14 that are there, in proportion.
    stage.holds([[9, 5], [3, 5]]).await;
    let (mut stage, two) = rested(stage).await;
    for (gpus, share) in
        [("8000", [40, 20]), ("NaN", [4, 2]), ("-8", [4, 2]), ("9223372036854775807", [40, 20])]
    {
        let says = json!({"capacity": {GPU: gpus}, "allocatable": {GPU: gpus}});
        stage.one().set_status("Node", "a", says).await.unwrap();
        stage.has(stage.one(), share).await;
        stage.has(stage.hub(), [share[0] + 3, share[1] + 5]).await;
        moved_nothing_of_two(&stage, &two, gpus).await;
    }
    for node in ["a", "b"] {
        stage.one().remove("Node", node).await.unwrap();
    }
    stage.has(stage.hub(), [3, 5]).await;
    moved_nothing_of_two(&stage, &two, "no nodes").await;
    for node in ["a", "b"] {
        stage.one().put(gpu_node(node, 8)).await.unwrap();
    }
    stage.give(stage.one(), [6, 4]).await;
    stage.holds([[6, 4], [3, 5]]).await;
    // No node had what it said.
    stage.mark_anew();
    stage.ends_with([[6, 4], [3, 5]]).await;
}

/// Objects by which a cluster claims to speak for another.
fn forged(stage: &Stage) -> Vec<Value> {
    let queue = stage.one().get("ClusterQueue", "", "team").unwrap();
    let hub = queue["metadata"]["labels"][HUB_LABEL].as_str().unwrap();
    let mut queue = queue_objects("two", 8000, None).remove(0);
    queue["metadata"]["labels"] = json!({HUB_LABEL: hub, "fedq.dev/cluster": "two"});
    let assignment = json!({"clusterQueueName": "team", "flavor": FLAVOR, "resources": {"gpu": "0"}});
    let mut claim = (*stage.hub().get("ClusterResourceClaim", "", "two-resource-claim").unwrap()).clone();
    claim["metadata"] = json!({"name": "two-resource-claim", "labels": {HUB_LABEL: hub}});
    claim["spec"]["resourceAssignments"] = json!([assignment]);
    let kubeconfig = stage.one().kubeconfig("fedq", &["system:masters"]);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"kubeconfig": kubeconfig},
        "metadata": {
            "name": "fedq-cluster-two", "namespace": "fedq-system", "labels": {"fedq.dev/cluster": "two"},
        },
    });
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fedq-system"}});
    vec![namespace, queue, claim, secret]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cluster_holds_in_the_name_of_another_is_nothing_to_it() {
    let (mut stage, two) = rested(Stage::set().await).await;
    let lies = forged(&stage);
    for object in lies.clone() {
        stage.one().put(object).await.unwrap();
    }
    moved_nothing_of_two(&stage, &two, "objects in its name").await;
    assert_eq!(gpus(stage.hub()), [Some(9), Some(9)]);
    moves_nothing_at_a_start(&mut stage, &two, "objects in its name").await;
    for object in lies {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (kind, namespace) = (object["kind"].as_str().unwrap(), text("namespace"));
        // What carried this hub's label and stood in no claim was fedqd's to clear up.
        let _ = stage.one().remove_in(&namespace, kind, &text("name")).await;
    }
    stage.give(stage.one(), [7, 4]).await;
    stage.holds([[7, 4], [3, 5]]).await;
    stage.mark_anew();
    stage.ends_with([[7, 4], [3, 5]]).await;
}

/// As if one cluster's kube-system were that of another.
fn take_identity(cluster: &Cluster, uid: &Value) {
    let (kind, name) = (Kind::named("Namespace").unwrap(), (String::new(), "kube-system".to_owned()));
    let before = cluster.state.store.get(kind, &name).unwrap();
    let mut after = (*before).clone();
    after["metadata"]["uid"] = uid.clone();
    cluster.state.store.commit(kind, &name, Some(&before), Some(after)).unwrap();
    cluster.state.faults.break_connections();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_says_it_is_another_is_believed_neither_way() {
    let (mut stage, two) = rested(Stage::set().await).await;
    let uid =
        |cluster: &Cluster| cluster.get("Namespace", "", "kube-system").unwrap()["metadata"]["uid"].clone();
    let (own, others) = (uid(stage.one()), uid(stage.two()));
    take_identity(stage.one(), &others);
    stage.claim_says(stage.one(), "CapacityKnown", "Quarantined").await;
    moved_nothing_of_two(&stage, &two, "the identity of two").await;
    // The one that was joined with that identity keeps it, whoever answers first.
    wrong(stage.two(), "latency 300ms");
    moves_nothing_at_a_start(&mut stage, &two, "the identity of two").await;
    stage.logs("`one` is Refused").await;
    wrong(stage.two(), "");
    assert_eq!(gpus(stage.hub()), [Some(9), Some(9)], "its share stands as that of any silent cluster");
    take_identity(stage.one(), &own);
    let confirmed = json!({"metadata": {"annotations": {"fedq.dev/confirm-identity": own}}});
    stage.change_secret(stage.one(), confirmed).await;
    stage.give(stage.one(), [7, 4]).await;
    stage.ends_with([[7, 4], [3, 5]]).await;
}

/// What is wrong with `one` until the next step.
const PLANS: [&str; 10] = [
    "garbage",
    "list: garbage; watch: garbage",
    "watch: garbage",
    "trickle",
    "endless-body",
    "hang",
    "wrong-certificate",
    "lose-events 50%; duplicate-events 50%; reorder-events 30%",
    "gone-mid-page; lose-answers 50%",
    "server-errors 50%; forbidden",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_goes_wrong_with_one_cluster_moves_anything_of_another() {
    // Which the endless lists do not reach: one that is refused has its own scenario.
    let set =
        Stage::set_with("watchTimeout: 3s, consistencyInterval: 4s, maxObjects: 10000000, maxBytes: 4Gi", "")
            .await;
    let (stage, two) = rested(set).await;
    let mut draw = Rng::with_seed(8);
    for (step, plan) in (0..).zip(PLANS) {
        println!("{plan}");
        wrong(stage.one(), plan);
        stage.one().state.faults.break_connections();
        stage.one().put(gpu_node(&format!("c{step}"), draw.u32(1..8))).await.unwrap();
        stage.give(stage.one(), [draw.i64(0..9), draw.i64(0..9)]).await;
        tokio::time::sleep(Duration::from_millis(draw.u64(200..1500))).await;
        is_same(&two, &known(&stage, stage.two()).await, plan);
    }
    wrong(stage.one(), "");
    stage.one().state.faults.break_connections();
    stage.give(stage.one(), [7, 5]).await;
    stage.holds([[7, 5], [3, 5]]).await;
    moved_nothing_of_two(&stage, &two, "all of it").await;
    stage.ends_with([[7, 5], [3, 5]]).await;
}
