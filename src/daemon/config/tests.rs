//! The file in the repository, the order of the layers, and what is refused in which words.

use std::{collections::BTreeSet, time::Duration};

use clap::Parser;
use serde_json::Value;

use super::*;
use fedq_domain::task::{limits::Limits, tenant::PodRules};
use fedq_store::Live;
use fedq_values::{
    ids::{ClusterName, ResourceName},
    quantity::Amount,
};

const SHIPPED: &str = include_str!("../../../config/fedqd.yaml");

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("fedqd.yaml"), text)
}

fn layered(file: &str, variables: &[(&str, &str)], flags: &[&str]) -> Result<Loaded, ConfigError> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("fedqd.yaml");
    fs::write(&path, file).expect("written");
    let mut line = vec!["fedqd", "--config", path.to_str().expect("a text path")];
    line.extend(flags);
    let args = Args::try_parse_from(line).expect("flags");
    let environment =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Config::layered(&args, &environment)
}

/// All problems of a file, one a line.
fn problems(file: &str) -> String {
    match layered(file, &[], &[]) {
        Err(ConfigError::Invalid { problems }) => problems.join("\n"),
        other => panic!("expected problems, got {other:?}"),
    }
}

fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).expect("a name")
}

fn keys(at: &str, value: &Value, into: &mut BTreeSet<String>) {
    if let Value::Object(members) = value {
        for (key, member) in members {
            let path = format!("{at}.{key}");
            keys(&path, member, into);
            into.insert(path);
        }
    }
}

#[test]
fn the_shipped_file_holds_every_key_with_its_default() {
    assert_eq!(parse(SHIPPED).expect("valid"), Config::default());
    let (mut written, mut known) = (BTreeSet::new(), BTreeSet::new());
    keys("", &serde_saphyr::from_str(SHIPPED).expect("YAML"), &mut written);
    keys("", &serde_json::to_value(Config::default()).expect("a tree"), &mut known);
    assert_eq!(written, known);
}

#[test]
fn the_defaults_are_valid_and_print_as_they_are_read() {
    let loaded = layered("", &[], &[]).expect("valid");
    assert_eq!(loaded.config, Config::default());
    assert!(loaded.warnings.is_empty());
    let printed = Config::default().to_yaml().expect("prints");
    assert_eq!(parse(&printed).expect("reads back"), Config::default());
    assert!(printed.contains("lostTimeout: 15m"), "{printed}");
    assert_eq!(parse("# only\n\n  # comments\n").expect("valid"), Config::default());
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let file = "log: {level: warn}\nclusters: {lostTimeout: 20m, staleAfter: 1m}\nstore: {path: /a/b.db}\n";
    let variables =
        [("FEDQ_CLUSTERS_LOST_TIMEOUT", "30m"), ("FEDQ_LOG_LEVEL", "debug"), ("FEDQ_HUB_NAME", "east")];
    let config =
        layered(file, &variables, &["--log-level", "trace", "--data-dir", "/data"]).expect("valid").config;
    assert_eq!(config.log.level.to_string(), "trace");
    assert_eq!(config.clusters.lost_timeout, Duration::from_mins(30));
    assert_eq!(config.clusters.stale_after, Duration::from_mins(1));
    assert_eq!(config.hub_name.as_deref(), Some("east"));
    assert_eq!(config.store.path, PathBuf::from("/data/fedq.db"));
}

#[test]
fn variables_of_every_type_are_read() {
    let variables = [
        ("FEDQ_CLUSTERS_ALLOW_LOOPBACK", "true"),
        ("FEDQ_QUOTA_DRIFT_REVERTS_PER_MINUTE", "9"),
        ("FEDQ_QUOTA_REMOVAL_WINDOW", "1h"),
        ("FEDQ_QUOTA_COPY_ADMISSION_CHECKS", "one, two"),
        ("FEDQ_HUB_KUBECONFIG", "/hub.yaml"),
        ("FEDQ_WEBHOOK_ADDRESS", "disabled"),
        ("FEDQ_ALIASES", "{tpu: google.com/tpu}"),
        ("FEDQ_CAPACITY_HEADROOM_PERCENT", "{cpu: 5}"),
        ("FEDQ_CAPACITY_HEADROOM_ABSOLUTE", "{memory: 1e3}"),
        ("FEDQ_CAPACITY_HEADROOM_CLUSTERS", "{worker-1: {percent: {memory: 7}}}"),
        ("FEDQ_CAPACITY_LIMITS", "{worker-1: {cpu: 4}}"),
    ];
    let config = layered("", &variables, &[]).expect("valid").config;
    assert!(config.clusters.allow_loopback);
    assert_eq!(config.quota.drift_reverts_per_minute, 9);
    assert_eq!(config.quota.removal_window, Duration::from_hours(1));
    assert_eq!(config.quota.copy_admission_checks, ["one", "two"]);
    assert_eq!(config.hub.kubeconfig, Some("/hub.yaml".into()));
    assert_eq!(config.webhook.address.address(), None);
    assert_eq!(config.aliases().short(&resource("google.com/tpu")), "tpu");
    let worker = ClusterName::new("worker-1").expect("a name");
    let headroom = config.headroom(&worker).expect("valid");
    assert_eq!(headroom.percent_of, BTreeMap::from([(resource("cpu"), 5), (resource("memory"), 7)]));
    assert_eq!(headroom.absolute, BTreeMap::from([(resource("memory"), Amount::new(1000))]));
    assert_eq!(
        config.limits(&worker).expect("valid"),
        BTreeMap::from([(resource("cpu"), Amount::new(4000))])
    );
    let unset = layered("hub: {kubeconfig: /a}", &[("FEDQ_HUB_KUBECONFIG", "")], &[]).expect("valid").config;
    assert_eq!(unset.hub.kubeconfig, None);
}

#[test]
fn every_key_has_a_variable_of_its_own() {
    let paths = environment::paths();
    let names = paths.iter().map(|path| environment::variable(path)).collect::<BTreeSet<_>>();
    assert_eq!(names.len(), paths.len(), "two keys share a variable");
    assert!(names.contains("FEDQ_CAPACITY_CLUSTER_METRICS_PUBLISH"));
    assert!(paths.contains(&"capacity.clusterMetrics.publish".to_owned()));
    assert!(paths.contains(&"aliases".to_owned()));
    assert!(!paths.contains(&"aliases.gpu".to_owned()));
}

#[test]
fn a_bad_variable_is_named_with_its_key() {
    let variables = [
        ("FEDQ_CLUSTERS_LOST_TIMEOUT", "soon"),
        ("FEDQ_CLUSTERS_ALLOW_PROXY", "perhaps"),
        ("FEDQ_STORE_HISTORY_KEEP_ROWS", "-3"),
        ("FEDQ_ALIASES", "{gpu: 'no name'}"),
        ("FEDQ_LOG_LEVEL", "loud"),
        ("FEDQ_NAMESPACE", ""),
    ];
    let error = layered("", &variables, &[]).expect_err("refused").to_string();
    for (name, _) in variables {
        assert!(error.contains(&format!("- {name} (")), "{name} is missing in:\n{error}");
    }
    assert!(
        error.contains("FEDQ_CLUSTERS_LOST_TIMEOUT (clusters.lostTimeout): `soon` is not a duration"),
        "{error}"
    );
}

#[test]
fn a_misspelt_variable_is_warned_of_and_those_of_others_are_not() {
    let variables = [
        ("FEDQ_CLUSTERS_LOST_TIMOUT", "30m"),
        ("FEDQ_SERVICE_HOST", "10.0.0.1"),
        ("FEDQ_PORT_8750_TCP_ADDR", "10.0.0.1"),
        ("FEDQ_TOKEN", "x"),
        ("FEDQ_CONFIG", "x"),
    ];
    let warnings = layered("", &variables, &[]).expect("valid").warnings;
    assert_eq!(
        warnings,
        ["the variable FEDQ_CLUSTERS_LOST_TIMOUT is not read; did you mean FEDQ_CLUSTERS_LOST_TIMEOUT?"]
    );
}

#[test]
fn an_unknown_key_is_told_with_file_line_and_the_nearest_key() {
    let error = parse("hubName: hub\nclusters:\n  lostTimout: 15m\n").expect_err("refused").to_string();
    assert_eq!(error, "fedqd.yaml:3: there is no key `lostTimout` here; did you mean `lostTimeout`?");
    let error = parse("hubName: hub\nlog:\n  colour: yes\n").expect_err("refused").to_string();
    assert_eq!(error, "fedqd.yaml:3: there is no key `colour` here; there are level, format");
}

#[test]
fn bad_values_and_bad_yaml_are_told_with_their_line() {
    for (text, line, words) in [
        ("hubName: hub\nclusters:\n  lostTimeout: 15\n", 3, "`15` is not a duration"),
        ("api:\n  address: localhost\n", 2, "socket address"),
        ("webhook:\n  address: off\n", 2, "write IP:PORT"),
        ("log:\n\n  level: loud\n", 3, "is not a log level"),
        ("aliases:\n  gpu: a b\n", 2, "resource name `a b` is not valid"),
        ("capacity: {headroom: {percent: {cpu: 300}}}\n", 1, ""),
        ("hubName: a\nhubName: b\n", 2, "uplicate"),
        ("hub:\n  context: 'x\n", 3, "quoted scalar"),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.starts_with(&format!("fedqd.yaml:{line}: ")), "{text}: {error}");
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let args = Args::try_parse_from(["fedqd", "--config", "/nowhere/fedqd.yaml"]).expect("flags");
    let error = Config::layered(&args, &BTreeMap::new()).expect_err("refused");
    assert_eq!(error.to_string(), "cannot read the configuration `/nowhere/fedqd.yaml`");
}

#[test]
fn nothing_listens_beyond_loopback_unprotected() {
    let told = problems("api: {address: '0.0.0.0:8750'}\nmetrics: {address: '[::]:8751'}");
    assert!(told.contains("api.address: 0.0.0.0:8750 is reachable from elsewhere"), "{told}");
    assert!(told.contains("metrics.address: [::]:8751 is reachable"), "{told}");
    for fine in [
        "api: {address: '0.0.0.0:8750', tls: {selfSigned: true}}",
        "api: {address: '0.0.0.0:8750', tls: {certFile: a, keyFile: b}}",
        "metrics: {address: '0.0.0.0:8751', allowNonLoopback: true}",
        "api: {address: '[::1]:8750'}",
    ] {
        layered(fine, &[], &[]).expect(fine);
    }
}

#[test]
fn all_problems_are_told_at_once() {
    let told = problems(
        "namespace: Not_A_Name\nhubName: ''\nhub: {context: x}\nstore: {path: /, history: {keepRows: 0, keepFor: 0s}}\n\
         api: {address: '127.0.0.1:9443', audience: '', insecureAdmin: true, tls: {certFile: a, selfSigned: true}}\n\
         webhook: {url: 'http://x', keyFile: k, service: {name: 'a.b'}}\n\
         clusters: {lostTimeout: 5s, staleAfter: 5s}\n\
         capacity:\n  resources: {also: ['a b']}\n  headroom: {percent: {cpu: 101}, absolute: {cpu: 1x}, clusters: {Bad: {absolute: {gpu: 500m}}}}\n  limits: {'*': {gpu: 1, nvidia.com/gpu: 2}, 'no/name': {}}\n\
         aliases: {gpu: nvidia.com/gpu, gpus: nvidia.com/gpu, cpu: example.com/x}\n\
         quota: {mergeWindow: 2m, copyAdmissionChecks: ['A B']}\n",
    );
    for start in [
        "namespace: ",
        "hubName: ",
        "hub.context: ",
        "store.path: ",
        "store.history.keepRows: ",
        "store.history.keepFor: ",
        "api.audience: ",
        "api.insecureAdmin: ",
        "api.tls: choose",
        "api.tls: certFile and keyFile go together",
        "webhook: certFile and keyFile go together",
        "webhook.url: ",
        "webhook.service.name: ",
        "webhook.address: api listens on port 9443 already",
        "clusters.lostTimeout: must be longer than clusters.staleAfter",
        "clusters.staleAfter: must be longer than clusters.requestTimeout",
        "capacity.resources.also: ",
        "capacity.headroom.percent.cpu: 101 is more than 100 percent",
        "capacity.headroom.absolute.cpu: ",
        "capacity.headroom.clusters.Bad: ",
        "capacity.headroom.clusters.Bad.absolute.gpu: ",
        "capacity.limits.*: nvidia.com/gpu is there twice",
        "capacity.limits.no/name: ",
        "aliases.gpus: nvidia.com/gpu has a short name already",
        "aliases.cpu: ",
        "quota.mergeWindow: ",
        "quota.copyAdmissionChecks: ",
    ] {
        let missing = !told.lines().any(|line| line.starts_with(start));
        assert!(!missing, "nothing starts with `{start}` in:\n{told}");
    }
}

#[test]
fn a_cluster_of_its_own_overrides_resource_by_resource() {
    let file = "capacity:\n  headroom:\n    percent: {'*': 5, gpu: 0}\n    absolute: {cpu: 2, memory: 1Gi}\n    \
                clusters: {worker-1: {percent: {'*': 10}, absolute: {cpu: '1.5'}}}\n  limits: {'*': {gpu: 8, cpu: 64}, worker-1: {gpu: 64}}\n  \
                resources: {also: [pods], never: [gpu]}\n";
    let config = layered(file, &[], &[]).expect("valid").config;
    let (one, two) =
        (ClusterName::new("worker-1").expect("a name"), ClusterName::new("worker-2").expect("a name"));
    let headroom = config.headroom(&one).expect("valid");
    assert_eq!(headroom.percent, 10);
    assert_eq!(headroom.percent_of, BTreeMap::from([(resource("nvidia.com/gpu"), 0)]));
    assert_eq!(headroom.absolute[&resource("cpu")], Amount::new(1500));
    assert_eq!(headroom.absolute[&resource("memory")], Amount::new(1 << 30));
    assert_eq!(config.headroom(&two).expect("valid").percent, 5);
    let gpu = resource("nvidia.com/gpu");
    assert_eq!(config.limits(&one).expect("valid")[&gpu], Amount::new(64));
    assert_eq!(config.limits(&two).expect("valid")[&gpu], Amount::new(8));
    assert_eq!(config.limits(&one).expect("valid")[&resource("cpu")], Amount::new(64_000));
    let filter = config.resource_filter().expect("valid");
    assert!(filter.also.contains(&resource("pods")) && filter.never.contains(&gpu));
}

#[test]
fn a_tenant_may_be_allowed_what_fast_networks_take_and_nothing_else() {
    let file = |text: &str| {
        format!("tasks: {{tenants: [{{namespace: team, users: ['*'], queue: q, podConfig: {{{text}}}}}]}}\n")
    };
    let rules = |text: &str| {
        let config = layered(&file(text), &[], &[]).expect("valid").config;
        config.tenants().0.remove(0).pods
    };
    let all =
        rules("resources: [rdma/hca, vpc.amazonaws.com/efa], capabilities: [IPC_LOCK], hostNetwork: true");
    let names: Vec<&str> = all.resources.iter().map(ResourceName::as_str).collect();
    assert_eq!(names, ["rdma/hca", "vpc.amazonaws.com/efa"]);
    assert!(all.capabilities.contains("IPC_LOCK") && all.host_network);
    assert_eq!(rules(""), PodRules::default());
    let everybody = layered("", &[], &[]).expect("valid").config.tenants().0.remove(0);
    assert_eq!(everybody.pods, PodRules::default(), "nothing is allowed where nobody said so");
    for (text, start) in [
        ("resources: [cpu]", "tasks.tenants, namespace team: podConfig.resources: `cpu`"),
        (
            "resources: [nvidia.com/gpu]",
            "tasks.tenants, namespace team: podConfig.resources: `nvidia.com/gpu`",
        ),
        ("resources: ['rdma/*']", "tasks.tenants, namespace team: podConfig.resources: `rdma/*`"),
        ("capabilities: [SYS_ADMIN]", "tasks.tenants, namespace team: podConfig.capabilities: `SYS_ADMIN`"),
    ] {
        let told = problems(&file(text));
        assert!(told.starts_with(start) && told.lines().count() == 1, "{told}");
    }
}

#[test]
fn logs_are_kept_beside_the_database_within_limits() {
    let logs = |text: &str| {
        let file = format!("store: {{path: /var/lib/fedq/fedq.db}}\ntasks: {{logs: {{{text}}}}}\n");
        layered(&file, &[], &[]).map(|loaded| loaded.config.task_logs().expect("checked"))
    };
    assert!(logs("").expect("valid").is_some(), "on unless switched off");
    assert_eq!(logs("keep: false").expect("valid"), None);
    let (folder, one, all) = logs("keep: true, maxSize: 1Mi").expect("valid").expect("on");
    assert_eq!((folder.as_path(), one, all), (Path::new("/var/lib/fedq/task-logs"), 1 << 20, 1 << 30));
    let (folder, ..) = logs("keep: true, folder: /logs").expect("valid").expect("on");
    assert_eq!(folder.as_path(), Path::new("/logs"));
    for (text, start) in [
        ("maxSize: 1Gi", "tasks.logs.maxSize: from 64Ki to 64Mi"),
        ("maxSize: lots", "tasks.logs.maxSize: "),
        ("maxTotal: -1", "tasks.logs.maxTotal: "),
        ("maxTotal: 1Mi", "tasks.logs.maxSize: one log would not fit"),
        ("folder: ''", "tasks.logs.folder: "),
    ] {
        let told = problems(&format!("tasks: {{logs: {{{text}}}}}\n"));
        assert!(told.starts_with(start), "{text}: {told}");
    }
}

#[test]
fn what_a_person_may_have_is_bounded_by_number_and_size() {
    let live = layered("", &[], &[]).expect("valid").config.max_live().expect("checked");
    assert_eq!(live, Live { tasks: 10_000, bytes: 64 << 20 });
    for (size, start) in [("1000Ki", "1Mi or more"), ("lots", ""), ("-1", "")] {
        let told = problems(&format!("tasks: {{maxLiveBytesPerUser: {size}}}\n"));
        assert!(told.starts_with(&format!("tasks.maxLiveBytesPerUser: {start}")), "{size}: {told}");
    }
}

#[test]
fn what_tasks_bring_along_is_bounded_for_one_task_and_one_person() {
    let sizes = layered("", &[], &[]).expect("valid").config.upload_sizes().expect("checked");
    assert_eq!(sizes, (4 << 20, 256 << 20));
    let none = layered("tasks: {uploads: {maxSize: 0}}\n", &[], &[]).expect("nothing may be sent");
    assert_eq!(none.config.upload_sizes().expect("checked").0, 0);
    for (text, start) in [
        ("maxSize: 33Mi", "tasks.uploads.maxSize: 32Mi or less"),
        ("maxSize: lots", "tasks.uploads.maxSize: "),
        ("maxPerUser: 1Mi", "tasks.uploads.maxPerUser: one task would not fit"),
        ("keepFor: 0s", "tasks.uploads.keepFor: must be longer than 0"),
    ] {
        let told = problems(&format!("tasks: {{uploads: {{{text}}}}}\n"));
        assert!(told.starts_with(start), "{text}: {told}");
    }
}

#[test]
fn help_has_examples_and_flags_that_exclude_each_other_do() {
    let help = <Args as clap::CommandFactory>::command().render_long_help().to_string();
    assert!(help.contains("fedqd --config /etc/fedq/fedqd.yaml"), "{help}");
    for line in [["fedqd", "--check-config", "--print-crds"], ["fedqd", "--print-crds", "--rebuild-store"]] {
        assert!(Args::try_parse_from(line).is_err());
    }
    assert!(Args::try_parse_from(["fedqd", "--log-level", "loud"]).is_err());
}

#[test]
fn a_tenants_limits_are_amounts_and_times_that_make_sense() {
    let file =
        |text: &str| format!("tasks: {{tenants: [{{namespace: team, users: ['*'], limits: {{{text}}}}}]}}\n");
    let limits =
        |text: &str| layered(&file(text), &[], &[]).expect("valid").config.tenants().0.remove(0).limits;
    let all = limits("gpus: 64, cpus: '1.5', perUser: {gpus: 8}, maxDuration: 7d, defaultDuration: 1h30m");
    assert_eq!((all.all.gpus, all.all.cpu), (Some(Amount::new(64)), Some(Amount::new(1500))));
    assert_eq!((all.per_user.gpus, all.per_user.cpu), (Some(Amount::new(8)), None));
    assert_eq!(all.max_duration, Some(Duration::from_hours(168)));
    assert_eq!(all.default_duration, Some(Duration::from_mins(90)));
    assert_eq!(limits(""), Limits::default(), "nothing is bounded where nobody said so");
    for (text, start) in [
        ("cpus: many", "tasks.tenants, namespace team: limits.cpus: `many`"),
        ("cpus: '-1'", "tasks.tenants, namespace team: limits.cpus: `-1`"),
        ("perUser: {cpus: '1e99'}", "tasks.tenants, namespace team: limits.perUser.cpus: `1e99`"),
        ("maxDuration: 0s", "tasks.tenants, namespace team: limits.maxDuration: must be 1s or longer"),
        ("maxDuration: soon", "tasks.tenants, namespace team: limits.maxDuration: `soon`"),
        (
            "maxDuration: 1h, defaultDuration: 2h",
            "tasks.tenants, namespace team: limits.defaultDuration: is longer",
        ),
    ] {
        let told = problems(&file(text));
        assert!(told.starts_with(start) && told.lines().count() == 1, "{told}");
    }
    assert!(layered(&file("gpus: -1"), &[], &[]).is_err());
}
