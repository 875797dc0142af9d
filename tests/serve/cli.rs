//! The command line against a served API.

use std::{
    fs::File,
    io::{Read, Write},
    path::Path,
    process::{Command, Output},
    sync::Arc,
};

use serde_json::{Value, json};

use super::{
    checked::Talk,
    server::{ANN, STRANGER, Served, served},
};

const CLAIMS: &str = "/apis/galaxy.kubestellar.io/v1alpha1/clusterresourceclaims";

/// fedq with nothing of the surroundings.
pub fn fedq(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedq"));
    command.args(arguments).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

/// An API on a port of this machine, until dropped.
pub struct Listening {
    pub served: Served,
    pub url: String,
    runtime: tokio::runtime::Runtime,
    talk: Talk,
}

pub fn listening() -> Listening {
    listening_behind(|router| router)
}

/// Behind what `wrap` puts before it.
pub fn listening_behind(wrap: impl FnOnce(axum::Router) -> axum::Router) -> Listening {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let served = runtime.block_on(served());
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = wrap(served.router.clone());
    runtime.spawn(async move { axum::serve(listener, router).await });
    Listening { served, url, runtime, talk: Talk::default() }
}

impl Listening {
    pub fn fedq(&self, arguments: &[&str]) -> Command {
        let mut command = fedq(arguments);
        command
            .env("FEDQ_SERVER", self.talk.with(&self.url))
            .env("FEDQ_TOKEN", ANN)
            .env("FEDQ_CONFIG", "/nowhere/config.yaml");
        command
    }

    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.fedq(arguments).output().unwrap()
    }
}

/// Runs it at a terminal, where a person types; what they saw of it.
pub fn at_terminal(mut command: Command, typed: &str) -> (Output, String) {
    use rustix::{
        fs::{Mode, OFlags, open},
        pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    };
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let path = ptsname(&controller, Vec::new()).unwrap();
    let terminal = open(&path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    command.stdin(terminal.try_clone().unwrap()).stderr(terminal).stdout(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    // It holds the terminal's other end, which must close for the reader to end.
    drop(command);
    let mut controller = File::from(controller);
    controller.write_all(typed.as_bytes()).unwrap();
    let reader = std::thread::spawn(move || {
        let mut seen = Vec::new();
        // Ends with an error once nobody has the terminal open any more.
        let _ = controller.read_to_end(&mut seen);
        String::from_utf8(seen).unwrap()
    });
    let output = child.wait_with_output().unwrap();
    (output, reader.join().unwrap())
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn tables_are_for_people_and_the_rest_for_programs() {
    let api = listening();
    let output = api.run(&["cluster", "list"]);
    assert_eq!(
        stdout(&output),
        "NAME   STATE         NODES   CPU    MEMORY   GPU   AGE\n\
         east   Ready         10/12   1000   -        10    -\n\
         west   Quarantined   10/12   1000   -        10    -\n"
    );
    assert_eq!(stdout(&api.run(&["cluster", "list", "-o", "name"])), "cluster/east\ncluster/west\n");
    let json: Value = serde_json::from_str(&stdout(&api.run(&["claim", "list", "-o", "json"]))).unwrap();
    assert_eq!(json["items"][0]["short"]["gpu"], "1");
    let yaml = stdout(&api.run(&["quota", "list", "-o", "yaml"]));
    assert!(yaml.starts_with("items:\n"), "{yaml}");
    let bare = stdout(&api.run(&["claim", "list", "--no-headers"]));
    let (row, age) = bare.trim_end().rsplit_once("   ").unwrap();
    assert_eq!(row, "east-resource-claim   east   False   gpu 1   team-a");
    assert!(age.contains('y'), "it is years old: {age}");
    assert_eq!(json["items"][0]["created"], "2020-09-13T12:26:40.000Z", "programs get the time itself");
    assert_eq!(
        stdout(&api.run(&["capacity", "east"])),
        "CLUSTER   STATE   FLAVOR      RESOURCE   CAPACITY   ASSIGNED   LEFT\n\
         east      Ready   on-demand   cpu        1000       500        500\n\
         east      Ready   on-demand   gpu        10         5          5\n"
    );
}

#[test]
fn explain_adds_up() {
    let api = listening();
    let text = stdout(&api.run(&["quota", "explain", "team-a"]));
    assert!(text.contains("on-demand gpu: 3 base + 4 east = 7; the queue has 6 now"), "{text}");
    assert!(text.contains("On east:   its namespace is taken\n"), "{text}");
    let done = api.run(&["quota", "base", "team-a", "--flavor", "on-demand", "gpu=4"]);
    assert_eq!(
        (done.status.code(), stderr(&done)),
        (Some(0), "base of team-a on-demand gpu: 3 → 4\n".to_owned())
    );
    let wrong = api.run(&["quota", "base", "team-a", "--flavor", "on-demand", "gpu"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn a_claim_is_shown_with_what_keeps_its_queues_from_working() {
    let api = listening();
    let text = stdout(&api.run(&["claim", "show", "east-resource-claim"]));
    assert!(text.contains("QueueProblems:   `team-a` on `east`: its namespace is taken\n"), "{text}");
}

/// For a folder in Git: what fedq works out itself is not in it, or it would become a cap once it is applied.
#[test]
fn a_claim_is_printed_as_it_can_be_applied() {
    let api = listening();
    let show = |format: &str| stdout(&api.run(&["claim", "show", "east-resource-claim", "-o", format]));
    let expected = json!({
        "apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterResourceClaim",
        "metadata": {"name": "east-resource-claim"},
        "spec": {
            "clusterName": "east",
            "resourceAssignments": [
                {"clusterQueueName": "team-a", "flavor": "on-demand", "resources": {"cpu": "500", "gpu": "5"}},
            ],
        },
    });
    let read = |format: &str| serde_saphyr::from_str::<Value>(&show(format)).unwrap();
    assert_eq!((read("yaml"), read("json")), (expected.clone(), expected));

    let capped = show("yaml").replace("clusterName: east", "clusterName: east\n  nominalResources: {gpu: 8}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("claim.yaml");
    std::fs::write(&file, &capped).unwrap();
    let diff = api.run(&["claim", "diff", "-f", file.to_str().unwrap()]);
    assert_eq!(diff.status.code(), Some(1), "{}", stderr(&diff));
    assert!(stdout(&diff).contains("+  nominalResources:\n+    gpu: \"8\"\n"), "{}", stdout(&diff));
    api.served.hub.world().objects.get_mut(&format!("{CLAIMS}/east-resource-claim")).unwrap()["metadata"]["managedFields"]
        [0]["fieldsV1"] = json!({"f:spec": {"f:nominalResources": {"f:cpu": {}}}});
    assert_eq!(read("yaml")["spec"]["nominalResources"], json!({"gpu": "10"}), "a person's cap is");
}

#[test]
fn audit_lists_who_did_what_page_by_page() {
    let api = listening();
    let assign = ["claim", "assign", "east-resource-claim", "--queue", "team-a", "--flavor", "on-demand"];
    for gpus in 1..=4 {
        assert!(api.run(&[&assign[..], &[&format!("gpu={gpus}")]].concat()).status.success());
    }
    assert!(api.run(&["cluster", "cordon", "west"]).status.success());
    let list = |more: &[&str]| {
        let output = api.run(&[&["audit", "list", "--no-headers"], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    let all = list(&[]);
    assert_eq!(all.lines().count(), 5, "{all}");
    let newest: Vec<&str> = all.lines().next().unwrap().split_whitespace().skip(1).collect();
    assert_eq!(newest, ["ann", "cordon", "clusters/west", "ok"], "{all}");
    assert_eq!(list(&["--object", "clusters/west"]).lines().count(), 1);
    assert_eq!(list(&["--who", "nobody"]), "");
    assert_eq!(list(&["--since", "2100-01-01T00:00:00Z"]), "");
    assert_eq!(list(&["--limit", "2"]).lines().count(), 2);
    let wide = list(&["-o", "wide", "--limit", "1"]);
    assert!(wide.starts_with("2023-11-14T22:13:20.000Z"), "{wide}");

    let refused = api.fedq(&["audit", "list"]).env("FEDQ_TOKEN", STRANGER).output().unwrap();
    assert_eq!((refused.status.code(), stdout(&refused)), (Some(1), String::new()));
    assert_eq!(api.run(&["audit", "list", "--since", "yesterday"]).status.code(), Some(2));
    assert_eq!(api.run(&["audit", "list", "--limit", "0"]).status.code(), Some(2));
}

#[test]
fn check_ends_with_1_where_something_failed() {
    let api = listening();
    let all = api.run(&["check"]);
    assert_eq!(all.status.code(), Some(1));
    assert!(stderr(&all).contains("Next, for west (reachable): plug it in"), "{}", stderr(&all));
    assert_eq!(api.run(&["check", "east"]).status.code(), Some(0));
    let unknown = api.run(&["check", "nowhere"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(stderr(&unknown).contains("next: fedq cluster list"), "{}", stderr(&unknown));
}

#[test]
fn errors_go_to_stderr_and_say_what_to_do() {
    let api = listening();
    let forbidden = api.fedq(&["claim", "list"]).env("FEDQ_TOKEN", STRANGER).output().unwrap();
    assert_eq!((forbidden.status.code(), stdout(&forbidden)), (Some(1), String::new()));
    assert!(stderr(&forbidden).contains("user \"stranger\" cannot list"), "{}", stderr(&forbidden));
    assert!(stderr(&forbidden).contains("next: ask an administrator"));
    let wrong = api.fedq(&["claim", "list"]).env("FEDQ_TOKEN", "wrong").output().unwrap();
    assert!(stderr(&wrong).contains("next: log in"), "{}", stderr(&wrong));
    let nobody = api.fedq(&["claim", "list"]).env_remove("FEDQ_TOKEN").output().unwrap();
    assert!(stderr(&nobody).contains("not logged in to"), "{}", stderr(&nobody));
}

#[test]
fn login_remembers_the_server_and_the_token_privately() {
    let api = listening();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("fedq/config.yaml");
    let login = |token: &str| {
        let mut command = fedq(&["login", "--server", &api.talk.with(&api.url), "--token", token]);
        command.env("FEDQ_CONFIG", &config).output().unwrap()
    };
    assert_eq!(login("wrong").status.code(), Some(1));
    assert!(!config.exists(), "what does not work is not remembered");
    assert_eq!(login(ANN).status.code(), Some(0));
    let mode = std::os::unix::fs::PermissionsExt::mode(&config.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let list = fedq(&["cluster", "list", "-o", "name"]).env("FEDQ_CONFIG", &config).output().unwrap();
    assert_eq!(stdout(&list), "cluster/east\ncluster/west\n");
}

#[test]
fn login_is_remembered_for_who_may_not_read_yet() {
    let api = listening();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let mut login = fedq(&["login", "--server", &api.talk.with(&api.url), "--token", STRANGER]);
    let output = login.env("FEDQ_CONFIG", &config).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("Warning: you may not read claims"), "{}", stderr(&output));
    assert!(config.exists());
}

#[test]
fn the_client_tells_its_version_without_a_server() {
    let output = fedq(&["version", "--server", "http://127.0.0.1:1", "--token", ANN]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).starts_with("Client: "), "{}", stdout(&output));
    assert!(stderr(&output).contains("cannot reach"), "{}", stderr(&output));
}

#[test]
fn diff_ends_with_0_1_or_2() {
    let api = listening();
    let same = stdout(&api.run(&["claim", "show", "east-resource-claim", "-o", "yaml"]));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("claim.yaml");
    let diff = |text: &str| {
        std::fs::write(&file, text).unwrap();
        api.run(&["claim", "diff", "-f", Path::new(&file).to_str().unwrap()])
    };
    assert_eq!(diff(&same).status.code(), Some(0));
    let changed = diff(&same.replace("gpu: '5'", "gpu: 6").replace("gpu: \"5\"", "gpu: 6"));
    assert_eq!(changed.status.code(), Some(1), "{}{}", stdout(&changed), stderr(&changed));
    assert!(
        stdout(&changed).contains("team-a   on-demand   gpu        5        6       +1"),
        "{}",
        stdout(&changed)
    );
    assert_eq!(diff("nonsense: [").status.code(), Some(2));
    assert_eq!(api.run(&["claim", "diff", "-f", "/nowhere"]).status.code(), Some(2));
}

/// As the check of a pull request runs it, whoever wrote that.
#[test]
fn claims_that_pruning_removes_are_shown_and_only_the_folder_is_read() {
    let api = listening();
    let east = stdout(&api.run(&["claim", "show", "east-resource-claim", "-o", "yaml"]));
    let west = east.replace("east", "west").replace("'5'", "2").replace("\"5\"", "2");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("west.yml"), west).unwrap();
    let diff =
        |more: &[&str]| api.run(&[&["claim", "diff", "-f", folder.path().to_str().unwrap()], more].concat());
    let pruned = diff(&["--prune", "-o", "markdown"]);
    assert_eq!(pruned.status.code(), Some(1), "{}", stderr(&pruned));
    let removed =
        "### Claim `east-resource-claim` (removed)\n\n| queue | flavor | resource | now | then | change |\n";
    assert!(stdout(&pruned).starts_with(removed), "{}", stdout(&pruned));
    assert!(stdout(&pruned).contains("| team-a | on-demand | gpu | 5 | 0 | -5 |\n"), "{}", stdout(&pruned));
    assert!(stdout(&diff(&["--prune"])).contains("+++ in no file"));
    assert!(!stdout(&diff(&["-o", "markdown"])).contains("east-resource-claim"));
    // A file of the machine, and one without an end.
    let secret = tempfile::tempdir().unwrap();
    std::fs::write(secret.path().join("token"), "hush-hush").unwrap();
    for (target, told) in [
        (secret.path().join("token"), "is a link that leads out of the folder"),
        (std::path::PathBuf::from("/dev/zero"), "is a link that leads out of the folder"),
    ] {
        std::os::unix::fs::symlink(target, folder.path().join("link.yaml")).unwrap();
        let refused = diff(&[]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains(told), "{}", stderr(&refused));
        std::fs::remove_file(folder.path().join("link.yaml")).unwrap();
    }
    let token = api.run(&["claim", "diff", "-f", secret.path().join("token").to_str().unwrap()]);
    assert_eq!(token.status.code(), Some(2));
    assert!(stderr(&token).contains("no manifest") && !stderr(&token).contains("hush"), "{}", stderr(&token));
    let endless = api.run(&["claim", "diff", "-f", "/dev/zero"]);
    assert!(stderr(&endless).contains("more than 16 MiB"), "{}", stderr(&endless));
}

/// As the check of a pull request runs it.
#[test]
fn a_folder_is_compared_with_what_is_there() {
    let api = listening();
    let east = stdout(&api.run(&["claim", "show", "east-resource-claim", "-o", "yaml"]));
    let west = east.replace("east", "west").replace("'5'", "2").replace("\"5\"", "2");
    let queue = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: team-a}\n";
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let diff =
        |more: &[&str]| api.run(&[&["claim", "diff", "-f", folder.path().to_str().unwrap()], more].concat());
    let nothing = diff(&[]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(stderr(&nothing).contains("there is no ClusterResourceClaim in `"), "{}", stderr(&nothing));

    write("queues/team-a.yaml", queue);
    write(".git/broken.yaml", "a: [");
    write("README.md", "a: [");
    write("clusters/east.yaml", &format!("---\n{queue}---\n{east}"));
    let same = diff(&["-o", "markdown"]);
    assert_eq!(
        (same.status.code(), stdout(&same)),
        (Some(0), "No claim changes.\n".to_owned()),
        "{}",
        stderr(&same)
    );

    write("clusters/east.yaml", &format!("{queue}---\n{}", east.replace("'5'", "6").replace("\"5\"", "6")));
    write("clusters/west.yml", &west);
    let changed = diff(&["-o", "markdown"]);
    assert_eq!(changed.status.code(), Some(1), "{}", stderr(&changed));
    let expected = "\
### Claim `east-resource-claim`

| queue | flavor | resource | now | then | change |
|---|---|---|---:|---:|---:|
| team-a | on-demand | gpu | 5 | 6 | +1 |

### Claim `west-resource-claim` (new)

| queue | flavor | resource | now | then | change |
|---|---|---|---:|---:|---:|
| team-a | on-demand | cpu | 0 | 500 | +500 |
| team-a | on-demand | gpu | 0 | 2 | +2 |
";
    assert_eq!(stdout(&changed), expected);
    assert_eq!(
        stdout(&diff(&["-o", "name"])),
        "clusterresourceclaim/east-resource-claim\nclusterresourceclaim/west-resource-claim\n"
    );
    let read = |format: &str| serde_saphyr::from_str::<Value>(&stdout(&diff(&["-o", format]))).unwrap();
    assert_eq!(read("json"), read("yaml"));
    assert_eq!(read("json")["items"][1]["claim"], "west-resource-claim");
    let text = stdout(&diff(&[]));
    assert!(text.contains("+++ ") && text.contains("clusters/west.yml\n"), "{text}");

    write("clusters/copy.json", &stdout(&api.run(&["claim", "show", "east-resource-claim", "-o", "json"])));
    let doubled = diff(&[]);
    assert_eq!(doubled.status.code(), Some(2));
    assert!(stderr(&doubled).contains("claim `east-resource-claim` is in `"), "{}", stderr(&doubled));
    for (text, says) in [
        (east.replace("v1alpha1", "v1"), "apiVersion of a ClusterResourceClaim must be"),
        (
            east.replace("spec:", "spec: {}\nother:"),
            "the spec of east-resource-claim: missing field `clusterName`",
        ),
        (east.replace("clusterName", "cluster"), "unknown field `cluster`"),
        (east.replace("name:", "nome:"), "metadata: missing field `name`"),
    ] {
        write("clusters/copy.json", &text);
        let wrong = diff(&[]);
        assert_eq!(wrong.status.code(), Some(2), "{text}");
        assert!(stderr(&wrong).contains(says), "{}", stderr(&wrong));
    }
}

#[test]
fn assign_says_what_changes() {
    let api = listening();
    let arguments = ["claim", "assign", "east-resource-claim", "--queue", "team-a", "--flavor", "on-demand"];
    let run = |more: &[&str]| api.run(&[&arguments, more].concat());
    let dry = run(&["cpu=500", "gpu=6", "--dry-run"]);
    assert_eq!(
        stdout(&dry),
        "clusterresourceclaim/east-resource-claim edited (dry run)\n",
        "{}",
        stderr(&dry)
    );
    let done = run(&["cpu=500", "gpu=6"]);
    assert_eq!(stdout(&done), "clusterresourceclaim/east-resource-claim edited\n");
    assert!(stderr(&done).contains("+1"), "{}", stderr(&done));
    assert_eq!(stdout(&run(&["cpu=500", "gpu=6"])), "clusterresourceclaim/east-resource-claim unchanged\n");
    assert_eq!(run(&["gpu=many"]).status.code(), Some(2));
    assert_eq!(run(&[]).status.code(), Some(2));
    assert_eq!(run(&["--remove"]).status.code(), Some(0));
}

#[test]
fn a_person_is_asked_before_an_assignment_is_made() {
    let api = listening();
    let assign = |more: &[&str], typed: &str| {
        let to = ["claim", "assign", "east-resource-claim", "--queue", "team-a", "--flavor", "on-demand"];
        at_terminal(api.fedq(&[&to[..], &["cpu=500", "gpu=6"], more].concat()), typed)
    };
    let gpu = || {
        let world = api.served.hub.world();
        world.claim("east-resource-claim")["spec"]["resourceAssignments"][0]["resources"]["gpu"].clone()
    };
    let before = gpu();
    let (output, seen) = assign(&[], "\n");
    assert_eq!((output.status.code(), gpu()), (Some(1), before), "{seen}");
    assert!(seen.contains("+1") && seen.contains("Apply? [y]es, [N]o"), "{seen}");
    assert!(seen.contains("nothing was changed"), "{seen}");
    let (output, seen) = assign(&[], "y\n");
    assert_eq!((output.status.code(), gpu()), (Some(0), "6".into()), "{seen}");
    assert_eq!(seen.matches("+1").count(), 1, "it is shown once\n{seen}");
    let (output, seen) = assign(&[], "");
    assert_eq!(stdout(&output), "clusterresourceclaim/east-resource-claim unchanged\n", "{seen}");
    assert!(!seen.contains("Apply?"), "nothing changes\n{seen}");
}

#[test]
fn an_assignment_with_yes_asks_nothing() {
    let api = listening();
    let to = ["claim", "assign", "east-resource-claim", "--queue", "team-a", "--flavor", "on-demand", "-y"];
    // Nothing is typed: whoever asked would get no answer.
    let (output, seen) = at_terminal(api.fedq(&[&to[..], &["cpu=500", "gpu=6"]].concat()), "");
    assert_eq!(stdout(&output), "clusterresourceclaim/east-resource-claim edited\n", "{seen}");
    assert!(seen.contains("+1") && !seen.contains("Apply?"), "{seen}");
    let world = api.served.hub.world();
    let claim = world.claim("east-resource-claim");
    assert_eq!(claim["spec"]["resourceAssignments"][0]["resources"]["gpu"], "6");
}

#[test]
fn a_claim_tells_the_reason_of_each_resource() {
    let api = listening();
    let text = stdout(&api.run(&["claim", "show", "east-resource-claim"]));
    let reasons: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("team-a "))
        .map(|line| line.split_whitespace().next_back().unwrap())
        .collect();
    assert_eq!(reasons, ["Assigned", "Draining"], "{text}");
}

#[test]
fn a_join_waits_and_says_what_is_in_the_way() {
    let api = listening();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, "users: [{name: u, user: {token: hush}}]").unwrap();
    let join = |arguments: &[&str]| {
        let all = [&["cluster", "join", "new", "--kubeconfig", file.to_str().unwrap()], arguments].concat();
        api.run(&all)
    };
    let refused = join(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("next: fedq cluster join --create-serviceaccount"),
        "{}",
        stderr(&refused)
    );
    assert!(!stderr(&refused).contains("hush"));
    let cordon = api.run(&["cluster", "cordon", "west"]);
    assert_eq!((cordon.status.code(), stderr(&cordon)), (Some(0), "cluster `west` cordoned\n".to_owned()));
}

#[test]
fn watching_prints_what_changes() {
    use std::io::{BufRead, BufReader};
    let api = listening();
    let mut child = api
        .fedq(&["cluster", "list", "-w", "-o", "json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!((next()["name"].clone(), next()["name"].clone()), ("east".into(), "west".into()));
    let mut changed = super::server::overview();
    Arc::make_mut(changed.clusters.get_mut("east").unwrap()).cordoned = true;
    api.served.overview.send_replace(Arc::new(changed));
    assert_eq!(next()["cordoned"], true);
    child.kill().unwrap();
    child.wait().unwrap();
}
