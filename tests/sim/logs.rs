//! Logs of many pods, through whatever happens to their clusters meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use fedq_k8s::client::{ClientLimits, ClusterClient, call, connect};
use fedq_k8s::follow::{Following, follow_table};
use fedq_k8s::kubeconfig::{self, Rules};
use fedq_k8s::list_watch::{Selector, Table, Timing};
use fedq_k8s::logs::{
    After, Container, ContainerState, Event, Limits, LogConnections, LogPod, Options as Wanted, Pod, Pods,
    Record, Session, Status, open,
};
use fedq_sim::api::{Internal, write_internally};
use fedq_sim::cluster::{Cluster, Options};
use fedq_sim::kind::Kind;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const WITHIN: Duration = Duration::from_mins(1);

async fn cluster(name: &str) -> (Cluster, ClusterClient) {
    let cluster = Cluster::start(Options { controllers: false, ..Options::named(name) }).await.unwrap();
    cluster
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}))
        .await
        .unwrap();
    let rules = Rules { allow_loopback: true, ..Rules::default() };
    let kubeconfig = cluster.kubeconfig("fedq", &["system:masters"]);
    let checked = kubeconfig::check(kubeconfig.as_bytes(), None, &rules).unwrap();
    let client = connect(&checked, &ClientLimits::default()).unwrap();
    (cluster, client)
}

fn quick() -> Limits {
    let (backoff_min, backoff_max) = (Duration::from_millis(20), Duration::from_millis(200));
    Limits { backoff_min, backoff_max, linger: Duration::from_millis(300), ..Limits::default() }
}

fn follow() -> Wanted {
    Wanted { follow: true, limits: quick(), ..Wanted::default() }
}

/// A pod of a task, as its cluster has it.
fn object(name: &str, rank: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "team", "labels": {"task": "t", "rank": rank.to_string()},
        },
        "spec": {
            "nodeName": "n", "restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}],
        },
        "status": state(&json!({"running": {"startedAt": "2026-11-21T07:00:00Z"}}), "Running"),
    })
}

fn state(state: &Value, phase: &str) -> Value {
    let container = json!({
        "name": "main", "image": "x", "imageID": "", "restartCount": 0, "ready": false, "state": state,
    });
    json!({"phase": phase, "containerStatuses": [container]})
}

async fn change(cluster: &Cluster, pod: &str, what: Internal) {
    let name = ("team".to_owned(), pod.to_owned());
    write_internally(&cluster.state, "kubelet", Kind::named("Pod").unwrap(), name, what).await.unwrap();
}

fn log_of(pod: &str) -> (String, String, String) {
    ("team".to_owned(), pod.to_owned(), "main".to_owned())
}

fn write(cluster: &Cluster, pod: &str, text: &str) {
    cluster.state.logs.write(&log_of(pod), cluster.state.now(), text);
}

/// Its pods as they are followed, told to a session.
fn feed(name: &'static str, client: &ClusterClient, tasks: &mut JoinSet<()>) -> watch::Receiver<Vec<Pod>> {
    let table: Table<LogPod> = Table::new();
    let timing = Timing {
        backoff_min: Duration::from_millis(20),
        backoff_max: Duration::from_millis(200),
        ..Timing::default()
    };
    let following = Following::new(client.clone(), timing, Vec::new());
    let labels = Selector { labels: Some("task=t".to_owned()), fields: None };
    let cancel = CancellationToken::new();
    follow_table(&following, &table, ("/api/v1/pods".to_owned(), labels, cancel), tasks);
    let connections = LogConnections::new(client.clone());
    let (sender, pods) = watch::channel(Vec::new());
    let mut changed = table.changed();
    tasks.spawn(async move {
        while changed.changed().await.is_ok() {
            let pods = table.all().into_iter().map(|pod| Pod {
                node: pod.metadata.labels["rank"].parse().unwrap(),
                cluster: name.parse().unwrap(),
                connections: connections.clone(),
                namespace: "team".to_owned(),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
                containers: pod.containers(),
            });
            sender.send_replace(pods.collect());
        }
    });
    pods
}

/// Both clusters' pods together; complete when told.
fn merged(
    mut feeds: Vec<watch::Receiver<Vec<Pod>>>,
    mut complete: watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) -> watch::Receiver<Pods> {
    let (sender, pods) = watch::channel(Pods::default());
    tasks.spawn(async move {
        loop {
            let pods = feeds.iter_mut().flat_map(|feed| feed.borrow_and_update().clone()).collect();
            sender.send_replace(Pods { pods, complete: *complete.borrow_and_update() });
            let changed = feeds.iter_mut().map(|feed| Box::pin(feed.changed()));
            tokio::select! {
                (changed, ..) = futures::future::select_all(changed) => changed.unwrap(),
                changed = complete.changed() => changed.unwrap(),
            }
        }
    });
    pods
}

/// Until `enough` of what was said.
async fn hear(session: &mut Session, heard: &mut Vec<Event>, enough: impl Fn(&[Event]) -> bool) {
    while !enough(heard) {
        let event = tokio::time::timeout(WITHIN, session.next()).await;
        assert!(matches!(event, Ok(Some(_))), "{event:?} after {:?}", tail(heard));
        heard.extend(event.into_iter().flatten());
    }
}

async fn hear_all(session: &mut Session, heard: &mut Vec<Event>) {
    while let Some(event) = tokio::time::timeout(WITHIN, session.next()).await.expect("an end") {
        heard.push(event);
    }
}

fn tail(heard: &[Event]) -> &[Event] {
    &heard[heard.len().saturating_sub(10)..]
}

fn lines(heard: &[Event]) -> impl Iterator<Item = &Record> {
    heard.iter().filter_map(|event| match event {
        Event::Line(record) => Some(record),
        Event::Status(..) => None,
    })
}

fn by_node(heard: &[Event]) -> BTreeMap<u32, Vec<String>> {
    let mut nodes = BTreeMap::<_, Vec<_>>::new();
    for record in lines(heard) {
        let line = format!("{} {}", record.seq, String::from_utf8_lossy(&record.line));
        nodes.entry(record.origin.node).or_default().push(line);
    }
    nodes
}

/// More than a connection takes, and the cluster is switched off in the middle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_logs_at_once_come_whole_and_leave_the_watches_alone() {
    const PODS: usize = 300;
    let (cluster, client) = cluster("east").await;
    let name = |pod: usize| format!("p-{pod}");
    for pod in 0..PODS {
        cluster.put(object(&name(pod), pod)).await.unwrap();
        write(&cluster, &name(pod), "first");
    }
    let mut tasks = JoinSet::new();
    let (complete, is_complete) = watch::channel(false);
    let pods = merged(vec![feed("east", &client, &mut tasks)], is_complete, &mut tasks);
    let mut session = open(follow(), pods);
    let mut heard = Vec::new();
    hear(&mut session, &mut heard, |heard| lines(heard).count() == PODS).await;
    let counts = &cluster.state.counts;
    // On a slow machine one may have been dialled twice.
    assert_eq!(counts.connections().0, 1 + 4, "one for the watch and four for 300 logs are open");
    // All streams are open and the client's own connection answers as ever.
    let version = call(Duration::from_secs(10), client.kube().apiserver_version()).await;
    assert_eq!(version.unwrap().major, "1");

    for pod in 0..PODS {
        write(&cluster, &name(pod), "second");
    }
    cluster.power_off().await;
    for pod in 0..PODS {
        write(&cluster, &name(pod), "while it was off");
    }
    cluster.power_on().await.unwrap();
    hear(&mut session, &mut heard, |heard| lines(heard).count() == 3 * PODS).await;
    for pod in 0..PODS {
        write(&cluster, &name(pod), "last");
        let over = state(&json!({"terminated": {"exitCode": 0, "reason": "Completed"}}), "Succeeded");
        change(&cluster, &name(pod), Internal::Status(over)).await;
    }
    complete.send_replace(true);
    hear_all(&mut session, &mut heard).await;
    let expected = ["1 first", "2 second", "3 while it was off", "4 last"].map(str::to_owned);
    let nodes = by_node(&heard);
    assert_eq!(nodes.len(), PODS);
    for (node, lines) in nodes {
        assert_eq!(lines, expected, "node {node}");
    }
    let told = |wanted: fn(&Status) -> bool| {
        heard.iter().filter(|event| matches!(event, Event::Status(_, status) if wanted(status))).count()
    };
    assert_eq!(told(|status| *status == Status::Ended), PODS);
    assert_eq!(told(|status| matches!(status, Status::Gap | Status::Dropped { .. })), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_moves_to_another_cluster_is_one_log_with_its_nodes_in_step() {
    let ((east, east_client), (west, west_client)) = (cluster("east").await, cluster("west").await);
    let mut tasks = JoinSet::new();
    let feeds = vec![feed("east", &east_client, &mut tasks), feed("west", &west_client, &mut tasks)];
    let (complete, is_complete) = watch::channel(false);
    let mut session = open(follow(), merged(feeds, is_complete, &mut tasks));
    let mut heard = Vec::new();

    for rank in 0..2 {
        east.put(object(&format!("a-{rank}"), rank)).await.unwrap();
        write(&east, &format!("a-{rank}"), "east begins");
    }
    hear(&mut session, &mut heard, |heard| lines(heard).count() == 2).await;
    // Node 1 is preempted and replaced in its place.
    write(&east, "a-1", "preempted");
    change(&east, "a-1", Internal::Delete).await;
    east.put(object("b-1", 1)).await.unwrap();
    write(&east, "b-1", "again");
    hear(&mut session, &mut heard, |heard| lines(heard).count() == 4).await;
    // Then all of it moves.
    for rank in 0..2 {
        change(&east, if rank == 0 { "a-0" } else { "b-1" }, Internal::Delete).await;
        west.put(object(&format!("c-{rank}"), rank)).await.unwrap();
        write(&west, &format!("c-{rank}"), "west goes on");
    }
    hear(&mut session, &mut heard, |heard| lines(heard).count() == 6).await;
    for rank in 0..2 {
        let over = state(&json!({"terminated": {"exitCode": 0, "reason": "Completed"}}), "Succeeded");
        write(&west, &format!("c-{rank}"), "done");
        change(&west, &format!("c-{rank}"), Internal::Status(over)).await;
    }
    complete.send_replace(true);
    hear_all(&mut session, &mut heard).await;

    let nodes = by_node(&heard);
    assert_eq!(nodes[&0], ["1 east begins", "2 west goes on", "3 done"]);
    assert_eq!(nodes[&1], ["1 east begins", "2 preempted", "3 again", "4 west goes on", "5 done"]);
    let clusters: Vec<&str> = lines(&heard)
        .filter(|record| record.origin.node == 1)
        .map(|record| record.origin.cluster.as_str())
        .collect();
    assert_eq!(clusters, ["east", "east", "east", "west", "west"]);
}

/// What somebody sees who asks in other words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_for_is_what_comes() {
    let (cluster, client) = cluster("east").await;
    let connections = LogConnections::new(client);
    let pods: Vec<Pod> = (0..2)
        .map(|rank| Pod {
            node: rank,
            cluster: "east".parse().unwrap(),
            connections: connections.clone(),
            namespace: "team".to_owned(),
            name: format!("p-{rank}"),
            uid: rank.to_string(),
            containers: vec![Container { name: "main".to_owned(), state: ContainerState::Running }],
        })
        .collect();
    for rank in 0..2 {
        let pod = format!("p-{rank}");
        cluster.put(object(&pod, rank)).await.unwrap();
        write(&cluster, &pod, "of the run before");
        cluster.state.logs.restart(&log_of(&pod));
        for second in 0..5 {
            let ts = Timestamp::from_second(1_790_000_000 + second).unwrap();
            cluster.state.logs.write(&log_of(&pod), ts, second.to_string());
        }
    }
    let seen = async |wanted: Wanted| {
        let (_sender, pods) = watch::channel(Pods { pods: pods.clone(), complete: true });
        let mut session = open(Wanted { limits: quick(), ..wanted }, pods);
        let mut heard = Vec::new();
        hear_all(&mut session, &mut heard).await;
        by_node(&heard).into_values().map(|lines| lines.join(", ")).collect::<Vec<_>>()
    };
    assert_eq!(seen(Wanted::default()).await, ["1 0, 2 1, 3 2, 4 3, 5 4"; 2]);
    assert_eq!(seen(Wanted { node: Some(1), tail: Some(2), ..Wanted::default() }).await, ["1 3, 2 4"]);
    assert_eq!(seen(Wanted { tail: Some(0), ..Wanted::default() }).await, [""; 0]);
    let since = fedq_k8s::logs::Since::Time(Timestamp::from_second(1_790_000_003).unwrap());
    assert_eq!(seen(Wanted { since: Some(since), ..Wanted::default() }).await, ["1 3, 2 4"; 2]);

    // Where one session stopped, the next one goes on.
    let (_sender, all) = watch::channel(Pods { pods: pods.clone(), complete: true });
    let mut session = open(follow(), all);
    let mut heard = Vec::new();
    hear(&mut session, &mut heard, |heard| {
        lines(heard).filter(|record| record.origin.node == 0).count() == 3
    })
    .await;
    drop(session);
    let third = lines(&heard).filter(|record| record.origin.node == 0).nth(2).unwrap();
    let after = After { pod: third.origin.pod.clone(), position: third.position.unwrap() };
    let after = BTreeMap::from([((0, "main".to_owned()), after)]);
    let rest = seen(Wanted { after, ..Wanted::default() }).await;
    assert_eq!(rest, ["1 3, 2 4", "1 0, 2 1, 3 2, 4 3, 5 4"]);
}
