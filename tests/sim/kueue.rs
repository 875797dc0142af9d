//! `fedq kueue` on several clusters: what a person with rights on some of them sees and is refused, what becomes of a cluster that
//! does not answer, and lists that are followed.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use fedq_sim::{cluster::Cluster, rbac::User};
use serde_json::{Value, json};

use super::bed::{Bed, KUEUE, WITHIN};
use super::follower::Follower;

/// A hub and two workers that are joined, and Ann, who may see on the hub what is joined.
pub struct People {
    pub bed: Bed,
    pub url: String,
    pub token: String,
}

struct Said {
    out: String,
    err: String,
    code: Option<i32>,
}

impl People {
    pub async fn set() -> Self {
        let bed = Bed::start(&["one", "two"]).await;
        for worker in &bed.workers {
            bed.join(worker).await;
            worker
                .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}))
                .await
                .unwrap();
            for queue in ["research", "vision"] {
                let spec = json!({"namespaceSelector": {}});
                let queue = json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": queue}, "spec": spec});
                worker.put(queue).await.unwrap();
            }
        }
        let claims = json!([{"apiGroups": ["galaxy.kubestellar.io"], "resources": ["clusterresourceclaims"], "verbs": ["list"]}]);
        grant(&bed.hub, &claims, ("User", "ann")).await;
        let url = bed.api().await;
        let token = bed.hub.state.new_token(User::new("ann", &[]), None);
        let people = Self { bed, url, token };
        people.knows_both().await;
        people
    }

    /// A worker is asked once fedqd has found that it answers.
    async fn knows_both(&self) {
        let began = Instant::now();
        loop {
            let listed = self.fedq(&["cluster", "list", "--no-headers"]).await;
            if listed.out.matches("Ready").count() == 2 {
                return;
            }
            assert!(began.elapsed() < WITHIN, "{}{}", listed.out, listed.err);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ann sees all of each cluster.
    pub async fn see_all(&self) {
        for worker in &self.bed.workers {
            grant(worker, &reads(), ("User", "ann")).await;
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedq"));
        command.args(arguments).env_clear().stdin(Stdio::null());
        command.env("FEDQ_SERVER", &self.url).env("FEDQ_TOKEN", &self.token);
        command.env("FEDQ_CONFIG", "/nowhere/config.yaml").env("KUBECONFIG", "/nowhere/kubeconfig");
        command
    }

    async fn fedq(&self, arguments: &[&str]) -> Said {
        let mut command = self.command(arguments);
        said(tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap())
    }

    async fn kueue(&self, line: &str) -> Said {
        let words: Vec<&str> = ["kueue"].into_iter().chain(line.split(' ')).collect();
        self.fedq(&words).await
    }

    fn follow(&self, line: &str) -> (Follower, std::path::PathBuf) {
        let words: Vec<&str> = ["kueue"].into_iter().chain(line.split(' ')).collect();
        let path = self.bed.path("followed.err");
        let errors = std::fs::File::create(&path).unwrap();
        let child = self.command(&words).stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        (Follower::new(child), path)
    }
}

fn said(output: Output) -> Said {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { out: text(output.stdout), err: text(output.stderr), code: output.status.code() }
}

/// Lets somebody do there what the rules say.
async fn grant(cluster: &Cluster, rules: &Value, (kind, name): (&str, &str)) {
    const RBAC: &str = "rbac.authorization.k8s.io/v1";
    let role = format!("for-{}", name.replace(':', "-"));
    let metadata = json!({"name": role});
    let binding = json!({
        "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": kind, "name": name}],
    });
    cluster
        .put(json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": metadata, "rules": rules}))
        .await
        .unwrap();
    cluster.put(binding).await.unwrap();
}

fn reads() -> Value {
    json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}])
}

/// First words of the lines, without the heads.
fn names(table: &str) -> Vec<String> {
    let lines = table.lines().skip(1);
    lines.map(|line| line.split_whitespace().next().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_on_one_cluster_show_that_cluster_and_name_the_other() {
    let people = People::set().await;
    let one = &people.bed.workers[0];
    grant(one, &reads(), ("User", "ann")).await;

    let both = people.kueue("list cq --all-clusters").await;
    assert_eq!(both.code, Some(1), "{}", both.err);
    assert!(both.out.starts_with("CLUSTER   NAME"), "{}", both.out);
    assert_eq!(names(&both.out), ["one", "one"], "{}", both.out);
    let refused =
        "Error: cluster two: user \"ann\" cannot list clusterqueues.kueue.x-k8s.io on cluster `two`";
    assert!(both.err.starts_with(refused), "{}", both.err);

    // Of one alone, the table is kueuectl's own.
    let own = people.kueue("list cq --cluster one").await;
    assert_eq!((own.code, own.err.as_str()), (Some(0), ""));
    assert_eq!(names(&own.out), ["research", "vision"]);
    let other = people.kueue("list cq --cluster two").await;
    assert_eq!((other.code, other.out.as_str()), (Some(1), ""));
    assert!(other.err.contains("cannot list clusterqueues.kueue.x-k8s.io on cluster `two`"), "{}", other.err);

    // Mistaken names and places.
    let mistaken = people.kueue("list cq --cluster tow").await;
    assert_eq!(mistaken.code, Some(1));
    assert!(mistaken.err.contains("cluster `tow` is not joined\ndid you mean `two`?"), "{}", mistaken.err);
    let pattern = people.kueue("list cq --cluster x*").await;
    assert!(pattern.err.contains("no joined cluster matches \"x*\""), "{}", pattern.err);
    let hub = people.kueue("list cq --hub").await;
    assert_eq!(hub.code, Some(1), "the hub's own RBAC decides there");
    assert!(hub.err.contains("User \"ann\" cannot list resource \"clusterqueues\""), "{}", hub.err);

    // To read is not to change. What is changed is on record, under the person's name, and so is what was refused.
    let stopped = || one.get("ClusterQueue", "", "research").unwrap()["spec"]["stopPolicy"].clone();
    let refused = people.kueue("stop cq research --cluster one").await;
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("cannot patch clusterqueues.kueue.x-k8s.io/research"), "{}", refused.err);
    assert_ne!(stopped(), "HoldAndDrain");
    grant(
        one,
        &json!([{"apiGroups": [KUEUE.split('/').next()], "resources": ["clusterqueues"], "verbs": ["*"]}]),
        ("Group", "research"),
    )
    .await;
    let member = people.bed.hub.state.new_token(User::new("ben", &["research", "system:masters"]), None);
    let people = People { token: member, ..people };
    let one = &people.bed.workers[0];
    let several = people.kueue("stop cq research --all-clusters").await;
    assert!(several.err.contains("this command works on one cluster"), "{}", several.err);
    let done = people.kueue("stop cq research --cluster one").await;
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
    assert_eq!(one.get("ClusterQueue", "", "research").unwrap()["spec"]["stopPolicy"], "HoldAndDrain");
    let elsewhere = people.kueue("stop cq research --cluster two").await;
    assert_eq!(elsewhere.code, Some(1), "who administers the hub is nobody on a worker");
    let audit = people.fedq(&["audit", "list", "-o", "json"]).await.out;
    let entries: Value = serde_json::from_str(&audit).unwrap();
    let found = |who: &str, object: &str| {
        let entries = entries["items"].as_array().unwrap().iter();
        let outcomes = entries.filter(|entry| entry["who"] == who && entry["object"] == object);
        outcomes.map(|entry| entry["outcome"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let object = "clusters/one/clusterqueues.kueue.x-k8s.io/research";
    assert_eq!(found("ben", object), ["ok"], "{audit}");
    assert!(found("ann", object)[0].contains("cannot patch"), "{audit}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_of_the_hub_has_a_name_of_its_own_on_workers() {
    let people = People::set().await;
    let account = people.bed.hub.state.new_token(User::account("team", "bot"), None);
    let people = People { token: account, ..people };
    let two = &people.bed.workers[1];
    grant(two, &reads(), ("Group", "system:serviceaccounts:team")).await;
    grant(two, &reads(), ("Group", "system:authenticated")).await;
    grant(two, &reads(), ("User", "system:serviceaccount:team:bot")).await;
    let refused = people.kueue("list cq --cluster two").await;
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    assert!(
        refused.err.contains("user \"hub:system:serviceaccount:team:bot\" cannot list"),
        "{}",
        refused.err
    );
    let one = &people.bed.workers[0];
    grant(one, &reads(), ("User", "hub:system:serviceaccount:team:bot")).await;
    let listed = people.kueue("list cq --cluster one").await;
    assert_eq!((listed.code, listed.err.as_str()), (Some(0), ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_does_not_answer_is_named_and_the_others_are_shown() {
    let people = People::set().await;
    let [one, two] = &people.bed.workers[..] else { unreachable!("two were started") };
    for worker in [one, two] {
        grant(worker, &reads(), ("User", "ann")).await;
    }
    let both = people.kueue("list cq --all-clusters").await;
    assert_eq!((both.code, both.err.as_str()), (Some(0), ""));
    assert_eq!(names(&both.out), ["one", "one", "two", "two"]);

    two.set_faults("hang".parse().unwrap());
    let began = Instant::now();
    // With a selector the clusters themselves are asked.
    let hangs = people.kueue("list cq --all-clusters -l !none").await;
    assert_eq!(hangs.code, Some(1), "{}", hangs.err);
    assert_eq!(names(&hangs.out), ["one", "one"]);
    assert!(hangs.err.starts_with("Error: cluster two: "), "{}", hangs.err);
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    two.set_faults("".parse().unwrap());

    two.power_off().await;
    let off = people.kueue("list cq --all-clusters -o json").await;
    assert_eq!(off.code, Some(1), "{}", off.err);
    let list: Value = serde_json::from_str(&off.out).unwrap();
    let clusters: Vec<&Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|queue| &queue["metadata"]["annotations"]["fedq.dev/cluster"])
        .collect();
    assert_eq!(clusters, ["one", "one"]);
    assert!(off.err.contains("cluster two: ") && off.err.contains("fedq check two says why"), "{}", off.err);
    // What was followed of a cluster is not shown as what it has, once it is known to be away.
    let off = people.kueue("list cq --all-clusters").await;
    assert_eq!(
        (off.code, names(&off.out)),
        (Some(1), vec!["one".to_owned(), "one".to_owned()]),
        "{}",
        off.err
    );
    assert!(off.err.contains("cluster two: "), "{}", off.err);
}

/// The lines without AGE, which goes on.
fn ageless(table: &str) -> Vec<String> {
    let line =
        |line: &str| line.rsplit_once(char::is_whitespace).map_or("", |(rest, _)| rest).trim_end().to_owned();
    table.lines().map(line).collect()
}

fn lists(cluster: &Cluster) -> u64 {
    let requests = cluster.state.counts.requests();
    let of = |kind: &str| requests.get(&("list", kind.to_owned())).copied().unwrap_or(0);
    of("clusterqueues") + of("localqueues") + of("resourceflavors")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_are_answered_from_what_fedqd_follows_as_the_clusters_would() {
    let people = People::set().await;
    let workers = &people.bed.workers;
    for (worker, pending) in workers.iter().zip([3, 7]) {
        grant(worker, &reads(), ("User", "ann")).await;
        let active = json!([{"type": "Active", "status": "True", "reason": "Ready", "message": "ready"}]);
        let status = json!({"pendingWorkloads": pending, "admittedWorkloads": 1, "conditions": active});
        for (kind, metadata, spec) in [
            (
                "ClusterQueue",
                json!({"name": "shared"}),
                json!({"cohortName": "all", "namespaceSelector": {}}),
            ),
            ("LocalQueue", json!({"name": "main", "namespace": "team"}), json!({"clusterQueue": "shared"})),
            ("ResourceFlavor", json!({"name": "h100"}), json!({"nodeLabels": {"gpu": "h100", "a": "b"}})),
        ] {
            let mut object = json!({"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec});
            if kind != "ResourceFlavor" {
                object["status"] = status.clone();
            }
            worker.put(object).await.unwrap();
        }
    }
    for line in
        ["list cq", "list cq --active true", "list lq -A", "list lq -n team", "list lq -n none", "list rf"]
    {
        for which in ["--all-clusters", "--cluster two"] {
            // A selector is for the clusters to go by.
            let own = people.kueue(&format!("{line} {which} -l !none")).await;
            let began = Instant::now();
            loop {
                let before: Vec<u64> = workers.iter().map(lists).collect();
                let told = people.kueue(&format!("{line} {which}")).await;
                let same =
                    ageless(&told.out) == ageless(&own.out) && (&told.err, told.code) == (&own.err, own.code);
                if same && workers.iter().map(lists).eq(before) {
                    break;
                }
                assert!(
                    began.elapsed() < WITHIN,
                    "{line} {which}:\n{}{}\n{}{}",
                    own.out,
                    own.err,
                    told.out,
                    told.err
                );
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    // Who has just changed something sees it: then the cluster is asked.
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    workers[0].merge("ClusterRole", "for-ann", json!({"rules": all})).await.unwrap();
    let began = Instant::now();
    while people.kueue("create cq mine --cluster one").await.code != Some(0) {
        assert!(began.elapsed() < WITHIN, "she may not create");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let before = lists(&workers[0]);
    let listed = people.kueue("list cq --cluster one").await;
    assert!(names(&listed.out).contains(&"mine".to_owned()), "{}", listed.out);
    assert_eq!(lists(&workers[0]), before + 1, "the cluster answers");

    // A right that is withdrawn is felt.
    workers[1].merge("ClusterRole", "for-ann", json!({"rules": []})).await.unwrap();
    let began = Instant::now();
    loop {
        let told = people.kueue("list cq --all-clusters").await;
        let refused = "Error: cluster two: user \"ann\" cannot list clusterqueues.kueue.x-k8s.io";
        if told.code == Some(1) && told.err.starts_with(refused) {
            assert!(names(&told.out).iter().all(|cluster| cluster == "one"), "{}", told.out);
            break;
        }
        assert!(began.elapsed() < WITHIN, "{}{}", told.out, told.err);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_both_are_followed_until_the_token_is_worth_nothing() {
    let people = People::set().await;
    for worker in &people.bed.workers {
        grant(worker, &reads(), ("User", "ann")).await;
    }
    let (mut follower, errors) = people.follow("list cq --all-clusters -w");
    let shows = async |follower: &mut Follower, cluster: &str, queue: &str| {
        let began = Instant::now();
        let there = |line: &String| line.split_whitespace().take(2).eq([cluster, queue]);
        while !follower.heard().iter().any(there) {
            assert!(began.elapsed() < WITHIN, "{queue} of {cluster} is not told: {:?}", follower.heard());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    for (cluster, queue) in [("one", "research"), ("one", "vision"), ("two", "research"), ("two", "vision")] {
        shows(&mut follower, cluster, queue).await;
    }
    let begun = follower.heard().to_vec();
    assert!(begun[0].starts_with("CLUSTER"), "{begun:?}");
    let clusters: Vec<&str> =
        begun[1..5].iter().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(clusters, ["one", "one", "two", "two"], "one table, by cluster");
    for (worker, queue) in people.bed.workers.iter().zip(["late", "later"]) {
        worker
            .put(
                json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": queue}, "spec": {}}),
            )
            .await
            .unwrap();
        shows(&mut follower, &worker.state.name, queue).await;
    }
    // A cluster that goes away for a moment is told of, and goes on; also if it then refuses until it has read its rights.
    let two = &people.bed.workers[1];
    let lists = || two.state.counts.requests()[&("list", "clusterqueues".to_owned())];
    two.power_off().await;
    two.set_faults("list clusterqueues: forbidden".parse().unwrap());
    // fedqd's own, and those of who follows.
    let enough = lists() + 4;
    two.power_on().await.unwrap();
    let began = Instant::now();
    while lists() < enough {
        assert!(began.elapsed() < WITHIN, "nobody tries any more");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    two.set_faults("".parse().unwrap());
    two.put(json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "back"}, "spec": {}}))
        .await
        .unwrap();
    shows(&mut follower, "two", "back").await;
    let told = |name: &str, heard: &[String]| {
        heard.iter().filter(|line| line.split_whitespace().nth(1) == Some(name)).count()
    };
    assert_eq!(
        told("later", follower.heard()),
        told("late", follower.heard()),
        "nothing is told twice: {:?}",
        follower.heard()
    );

    people.bed.hub.state.revoke("ann");
    let began = Instant::now();
    let code = loop {
        if let Some(ended) = follower.ended().unwrap() {
            break ended.code();
        }
        assert!(began.elapsed() < WITHIN, "it goes on without a token: {:?}", follower.heard());
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let errors = std::fs::read_to_string(errors).unwrap();
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("cluster one: the token is not valid here, or has expired"), "{errors}");

    let token = people.bed.hub.state.new_token(User::new("ann", &[]), None);
    let people = People { token, ..people };
    let (mut follower, _) = people.follow("list cq --all-clusters -w");
    shows(&mut follower, "two", "back").await;
    follower.interrupt();
    let began = Instant::now();
    while follower.ended().unwrap().is_none() {
        assert!(began.elapsed() < WITHIN, "Ctrl-C does not end it");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(follower.ended().unwrap().unwrap().code(), Some(130));
}
