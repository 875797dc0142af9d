//! Nodes that a server lists and watches, and a store that fails on the way.

use axum::{Router, body::Body, body::Bytes, extract::Request, response::Response};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use tokio::task::JoinHandle;

use super::*;
use crate::capacity::Cluster;
use fedq_domain::{capacity::ResourceFilter, resources::Resources};
use fedq_k8s::{list_watch::Timing, testing::Server};
use fedq_sim::protobuf::samples::{event_bytes, list_bytes, node_bytes};
use fedq_store::{ClusterRow, ClusterSource};

/// What the server answers next: lists and watches in turn, then silence.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<Answers>>);

#[derive(Default)]
struct Answers {
    lists: Vec<Vec<u8>>,
    watches: Vec<Vec<u8>>,
    asked: Vec<String>,
    version: u64,
}

impl Script {
    fn with(version: u64, lists: Vec<Vec<u8>>, watches: Vec<Vec<u8>>) -> Self {
        Self(Arc::new(Mutex::new(Answers { lists, watches, version, asked: Vec::new() })))
    }

    fn asked(&self, words: &str) -> usize {
        let answers = self.0.lock().expect("no panic");
        answers.asked.iter().filter(|query| query.contains(words)).count()
    }

    async fn until_asked(&self, words: &str) {
        for _ in 0..1000 {
            if 0 < self.asked(words) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nobody asked for {words}: {:?}", self.0.lock().expect("no panic").asked);
    }

    fn serve(&self) -> Server {
        let script = self.clone();
        Server::start(Router::new().fallback(async move |request: Request| script.respond(&request)))
    }

    fn respond(&self, request: &Request) -> Response<Body> {
        let query = request.uri().query().unwrap_or_default();
        let mut answers = self.0.lock().expect("no panic");
        answers.asked.push(query.to_owned());
        let next = |from: &mut Vec<Vec<u8>>| if from.is_empty() { None } else { Some(from.remove(0)) };
        let body = if query.contains("watch=1") {
            let piece = next(&mut answers.watches).map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
            Body::from_stream(stream::iter(piece).chain(stream::pending()))
        } else if query.contains("limit=1") {
            let version = answers.version.to_string();
            Body::from(serde_json::json!({"metadata": {"resourceVersion": version}, "items": []}).to_string())
        } else {
            Body::from(next(&mut answers.lists).unwrap_or_else(|| list_bytes(answers.version, &[])))
        };
        Response::builder().body(body).expect("an answer")
    }
}

struct Bed {
    _folder: tempfile::TempDir,
    store: Store,
    name: ClusterName,
    nodes: Arc<Mutex<Nodes>>,
}

impl Bed {
    async fn new() -> Self {
        let folder = tempfile::TempDir::new().expect("a folder");
        let store = Store::open(&folder.path().join("fedq.db")).await.expect("opens");
        let name = ClusterName::new("eu-west").expect("a name");
        let table = NodeTable::new(BTreeSet::new(), ResourceFilter::default());
        Self { _folder: folder, store, name, nodes: Arc::new(Mutex::new(Nodes::new(table, None))) }
    }

    async fn joined() -> Self {
        let bed = Self::new().await;
        bed.join().await;
        bed
    }

    async fn join(&self) {
        let row = ClusterRow {
            name: self.name.clone(),
            identity: None,
            server: "https://10.0.0.1:6443".to_owned(),
            source: ClusterSource::Secret,
            connection: "Ready".to_owned(),
            last_seen: None,
            cordoned: false,
            version: None,
            joined: Timestamp::UNIX_EPOCH,
        };
        self.store.put_cluster(&row).await.expect("stored");
    }

    /// As after a restart of fedqd.
    fn forget(&mut self) {
        let table = NodeTable::new(BTreeSet::new(), ResourceFilter::default());
        self.nodes = Arc::new(Mutex::new(Nodes::new(table, None)));
    }

    fn follow(&self, server: &Server, labels: &[&str]) -> JoinHandle<()> {
        self.follow_until(server, labels, &CancellationToken::new())
    }

    /// Until the daemon is `stopping`.
    fn follow_until(&self, server: &Server, labels: &[&str], stopping: &CancellationToken) -> JoinHandle<()> {
        let millis = Duration::from_millis;
        let timing = Timing { backoff_min: millis(10), backoff_max: millis(50), ..Timing::default() };
        let settings = Arc::new(Settings {
            filter: ResourceFilter::default(),
            headroom_of: Arc::new(|_| fedq_domain::capacity::Headroom::default()),
            limits_of: Arc::new(|_| Resources::new()),
            timing,
            position_period: Duration::from_mins(1),
            stale_after: Duration::from_mins(1),
            publish: false,
        });
        let label_keys: BTreeSet<String> = labels.iter().map(ToString::to_string).collect();
        let cancel = CancellationToken::new();
        let worker = Worker::new(self.name.clone(), server.client(), "uid".to_owned(), cancel);
        let followed = Followed {
            worker: Arc::new(worker),
            nodes: Arc::clone(&self.nodes),
            rows: Rows::new(self.name.clone(), self.store.clone(), &label_keys, &settings),
            label_keys,
            settings,
            metrics: Metrics::new(),
            signal: Arc::new(Notify::new()),
            clock: Clock::test(Timestamp::UNIX_EPOCH),
            stopping: stopping.clone(),
        };
        tokio::spawn(followed.run(stopping.child_token()))
    }

    /// Names of the stored rows, and the version they stand at.
    async fn stored(&self) -> (Vec<String>, Option<String>) {
        let (rows, positions) = self.store.load_nodes(&self.name).await.expect("read");
        let version = positions.into_iter().next().map(|position| position.resource_version);
        (rows.into_iter().map(|(name, _)| name).collect(), version)
    }

    fn known(&self) -> usize {
        let nodes = lock(&self.nodes);
        if nodes.known { nodes.table.len() } else { 0 }
    }

    async fn until_stored(&self, rows: usize, version: &str) {
        let stored = async || {
            let (names, at) = self.stored().await;
            names.len() == rows && at.as_deref() == Some(version)
        };
        for _ in 0..1000 {
            if stored().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("stored: {:?}", self.stored().await);
    }

    async fn until_known(&self, count: usize) {
        for _ in 0..1000 {
            if self.known() == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} nodes are known", self.known());
    }
}

fn many(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| node_bytes(&format!("node-{number}"), 1, 10)).collect()
}

fn added(name: &str, version: u64) -> Vec<u8> {
    event_bytes("ADDED", &node_bytes(name, version, 10))
}

const FULL: &str = "PRAGMA max_page_count = 1";
const ROOM: &str = "PRAGMA max_page_count = 1000000";

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_ends_nothing_and_what_was_missed_is_stored_with_its_version() {
    let bed = Bed::joined().await;
    let script = Script::with(9, vec![list_bytes(7, &many(600))], vec![added("late", 9)]);
    let server = script.serve();
    bed.store.execute(FULL).await;
    let following = bed.follow(&server, &[]);
    bed.until_known(601).await;
    assert_eq!(bed.stored().await, (vec![], None), "neither rows nor a version");
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!following.is_finished());
    assert!(lock(&bed.nodes).broken.is_none(), "the nodes themselves are known as ever");

    bed.store.execute(ROOM).await;
    bed.until_stored(601, "9").await;
    assert_eq!(script.asked("watch=1"), 1, "nobody had to look again");
    following.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_goes_on_from_what_is_not_stored_yet() {
    let bed = Bed::joined().await;
    let events: Vec<u8> = (0..600).flat_map(|number| added(&format!("late-{number}"), 10 + number)).collect();
    let removed = event_bytes("DELETED", &node_bytes("node-0", 700, 10));
    let watch = [events, removed].concat();
    let script = Script::with(700, vec![list_bytes(7, &many(2))], vec![watch]);
    let server = script.serve();
    // As a store has it that came to its end after the list.
    let first = bed.follow(&server, &[]);
    bed.until_known(601).await;
    bed.until_stored(601, "700").await;
    first.abort();
    bed.store.execute("DELETE FROM nodes WHERE name LIKE 'late-%' OR name = 'node-0'").await;
    bed.store.execute("UPDATE watch_positions SET resource_version = '7'").await;
    {
        let mut nodes = lock(&bed.nodes);
        nodes.table.remove("node-1");
        nodes.unsaved.add(&mut vec!["late-0".into(), "node-1".into()], 20);
        nodes.send();
        let (again, _) = nodes.send();
        assert_eq!(again.len(), 2, "nobody was told what became of the first");
    }

    let second = bed.follow(&server, &[]);
    bed.until_known(1).await;
    bed.until_stored(1, "20").await;
    // Not from the version of the store.
    script.until_asked("resourceVersion=20").await;
    second.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_stops_stores_how_far_it_came() {
    let mut bed = Bed::joined().await;
    let heartbeats = |from: u64| -> Vec<u8> {
        (from..from + 5).flat_map(|at| event_bytes("MODIFIED", &node_bytes("node-0", at, 10))).collect()
    };
    let script = Script::with(20, vec![list_bytes(7, &many(2))], vec![heartbeats(10), heartbeats(15)]);
    let server = script.serve();
    for (round, reached) in ["14", "19"].into_iter().enumerate() {
        let stopping = CancellationToken::new();
        let following = bed.follow_until(&server, &[], &stopping);
        let came = || lock(&bed.nodes).unsaved.reached.map(|version| version.to_string());
        for _ in 0..1000 {
            if came().as_deref() == Some(reached) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let before = if round == 0 { "7" } else { "14" };
        bed.until_stored(2, before).await;
        stopping.cancel();
        following.await.expect("no panic");
        let (rows, version) = bed.stored().await;
        assert_eq!((rows.len(), version.as_deref()), (2, Some(reached)));
        bed.forget();
    }
    assert_eq!(script.asked("resourceVersion=14"), 1, "the next start goes on from there");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_were_restored_are_read_again_only_where_the_store_has_others() {
    for (change, from, left) in [
        ("DELETE FROM nodes WHERE name = 'node-0'", "resourceVersion=7", 3),
        ("UPDATE watch_positions SET resource_version = '8'", "resourceVersion=8", 2),
    ] {
        let mut bed = Bed::joined().await;
        let server = Script::with(7, vec![list_bytes(7, &many(3))], vec![]).serve();
        let first = bed.follow(&server, &[]);
        bed.until_stored(3, "7").await;
        first.abort();
        let filter = ResourceFilter::default();
        let mut cluster = Cluster::new(BTreeSet::new(), &filter);
        let restored = cluster.restore(&bed.name, &bed.store, &filter, Timestamp::UNIX_EPOCH);
        restored.await.expect("restored");
        bed.nodes = Arc::clone(&cluster.nodes);
        assert_eq!(bed.known(), 3);
        // Whether the rows were read again shows by one that went.
        bed.store.execute("DELETE FROM nodes WHERE name = 'node-0'").await;
        bed.store.execute(change).await;
        let script = Script::with(9, vec![], vec![]);
        let server = script.serve();
        let second = bed.follow(&server, &[]);
        script.until_asked(from).await;
        assert_eq!(bed.known(), left, "{change}");
        second.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_stops_before_a_list_is_whole_stores_no_version() {
    let bed = Bed::joined().await;
    let half = list_bytes(7, &many(2));
    // However often it is asked for again before the stop.
    let script = Script::with(7, vec![half[..half.len() / 2].to_vec(); 1000], vec![]);
    let server = script.serve();
    let stopping = CancellationToken::new();
    let following = bed.follow_until(&server, &[], &stopping);
    script.until_asked("").await;
    stopping.cancel();
    following.await.expect("no panic");
    assert_eq!(bed.stored().await, (vec![], None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_read_is_told_and_tried_again() {
    let bed = Bed::joined().await;
    let script = Script::with(7, vec![list_bytes(7, &many(2))], vec![]);
    let server = script.serve();
    bed.store.execute("ALTER TABLE nodes RENAME TO lost").await;
    let following = bed.follow(&server, &[]);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let broken = lock(&bed.nodes).broken.clone().map(|(_, why)| why);
    assert_eq!(broken.as_deref(), Some("cannot read nodes from the database"));

    bed.store.execute("ALTER TABLE lost RENAME TO nodes").await;
    bed.until_stored(2, "7").await;
    assert!(lock(&bed.nodes).broken.is_none());
    following.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_the_store_learns_of_later_gets_all_its_rows() {
    let bed = Bed::new().await;
    let lists = (0..20).map(|_| list_bytes(7, &many(3))).collect();
    let server = Script::with(7, lists, vec![]).serve();
    let following = bed.follow(&server, &[]);
    bed.until_known(3).await;
    bed.join().await;
    bed.until_stored(3, "7").await;
    following.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_breaks_off_loses_no_row_across_a_restart() {
    let mut bed = Bed::joined().await;
    let whole = list_bytes(7, &many(3));
    let half = whole[..whole.len() - 100].to_vec();
    let script = Script::with(7, vec![half, whole], vec![]);
    let server = script.serve();
    let following = bed.follow(&server, &[]);
    bed.until_stored(3, "7").await;
    following.abort();

    bed.forget();
    let quiet = Script::with(7, vec![], vec![]);
    let server = quiet.serve();
    let following = bed.follow(&server, &[]);
    bed.until_known(3).await;
    quiet.until_asked("watch=1").await;
    assert_eq!((quiet.asked("resourceVersion=7"), quiet.asked("")), (1, 2), "resumed, without a list");
    following.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_nodes_that_went_while_other_labels_came_of_interest_are_let_go_of() {
    let mut bed = Bed::joined().await;
    let server = Script::with(7, vec![list_bytes(7, &many(3))], vec![]).serve();
    let following = bed.follow(&server, &[]);
    bed.until_stored(3, "7").await;
    following.abort();

    bed.forget();
    let server = Script::with(8, vec![list_bytes(8, &many(2))], vec![]).serve();
    let following = bed.follow(&server, &["pool"]);
    bed.until_stored(2, "8").await;
    assert_eq!(bed.known(), 2);
    following.abort();
}
