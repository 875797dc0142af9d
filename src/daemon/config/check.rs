//! What a configuration must keep to beyond its types. Every problem is told, not just the first.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::{
    Config, PodConfig,
    resolve::{ANY, Unusable, devices},
};
use fedq_domain::{capacity::Headroom, queue::pod_security::is_pod_security, task::tenant::CAPABILITIES};
use fedq_values::ids::{ClusterName, QueueName, ResourceName};

pub(super) fn problems(config: &Config) -> Vec<String> {
    let mut problems = Vec::new();
    names(config, &mut problems);
    listeners(config, &mut problems);
    durations(config, &mut problems);
    amounts(config, &mut problems);
    tasks(config, &mut problems);
    if config.store.path.file_name().is_none() {
        problems.push("store.path: name a file".to_owned());
    }
    if config.store.history.keep_rows == 0 {
        problems.push("store.history.keepRows: keep at least 1 row".to_owned());
    }
    if config.hub.context.is_some() && config.hub.kubeconfig.is_none() {
        problems.push("hub.context: a context is of a kubeconfig; set hub.kubeconfig too".to_owned());
    }
    problems
}

fn names(config: &Config, problems: &mut Vec<String>) {
    for (key, name) in [
        ("namespace", Some(&config.namespace)),
        ("webhook.service.namespace", config.webhook.service.namespace.as_ref()),
        ("webhook.service.name", Some(&config.webhook.service.name)),
        ("multikueue.kueueNamespace", Some(&config.multikueue.kueue_namespace)),
    ] {
        if name.is_some_and(|name| !is_label(name)) {
            problems.push(format!(
                "{key}: use lower-case letters, digits and `-`, starting and ending with a letter or digit, at most 63 characters"
            ));
        }
    }
    if let Some(Err(error)) = config.hub_name.as_deref().map(ClusterName::new) {
        problems.push(format!("hubName: {error}"));
    }
    for check in &config.quota.copy_admission_checks {
        // AdmissionChecks are named as queues are.
        if QueueName::new(check).is_err() {
            problems
                .push(format!("quota.copyAdmissionChecks: `{check}` is not the name of an AdmissionCheck"));
        }
    }
    for key in &config.namespaces.copy_labels {
        if is_pod_security(key) {
            problems.push(format!(
                "namespaces.copyLabels: `{key}` is kept as strict as on the hub in any case: leave it out"
            ));
        }
    }
    let mut seen = Vec::<&ResourceName>::new();
    for (short, long) in &config.aliases {
        if ResourceName::new(short).is_err() || short.contains('/') {
            problems.push(format!("aliases: `{short}` is no short name: write one word, such as gpu"));
        }
        if matches!(short.as_str(), "cpu" | "memory" | "pods") || config.aliases.contains_key(long.as_str()) {
            problems.push(format!(
                "aliases.{short}: a name that stands for itself cannot be another's short name"
            ));
        }
        if seen.contains(&long) {
            problems.push(format!("aliases.{short}: {long} has a short name already"));
        }
        seen.push(long);
    }
}

fn is_label(text: &str) -> bool {
    ClusterName::new(text).is_ok() && !text.contains('.')
}

fn listeners(config: &Config, problems: &mut Vec<String>) {
    let (api, webhook) = (&config.api, &config.webhook);
    let has_tls = api.tls.cert_file.is_some() || api.tls.self_signed;
    if !api.address.ip().is_loopback() && !has_tls {
        problems.push(format!(
            "api.address: {} is reachable from elsewhere; set api.tls.certFile and keyFile, or api.tls.selfSigned",
            api.address
        ));
    }
    if api.tls.self_signed && api.tls.cert_file.is_some() {
        problems.push("api.tls: choose certFile or selfSigned".to_owned());
    }
    pair("api.tls", api.tls.cert_file.as_ref(), api.tls.key_file.as_ref(), problems);
    pair("webhook", webhook.cert_file.as_ref(), webhook.key_file.as_ref(), problems);
    if api.audience.is_empty() {
        problems.push("api.audience: without an audience any token of the hub would do".to_owned());
    }
    if api.insecure_x_user && !api.address.ip().is_loopback() {
        problems.push(format!(
            "api.insecureXUser: {} is reachable from elsewhere; names without a token are for loopback only",
            api.address
        ));
    }
    if api.insecure_admin && !api.insecure_x_user {
        problems.push("api.insecureAdmin: it widens api.insecureXUser; set that too".to_owned());
    }
    if webhook.url.as_ref().is_some_and(|url| !url.starts_with("https://")) {
        problems.push("webhook.url: the hub's API server calls https URLs only".to_owned());
    }
    if !config.metrics.address.ip().is_loopback() && !config.metrics.allow_non_loopback {
        problems.push(format!(
            "metrics.address: {} is reachable from elsewhere without authentication; set metrics.allowNonLoopback if that is meant",
            config.metrics.address
        ));
    }
    let ports = [
        ("api", Some(api.address)),
        ("webhook", webhook.address.address()),
        ("metrics", Some(config.metrics.address)),
    ];
    for (index, (one, first)) in ports.iter().enumerate() {
        for (other, second) in &ports[index + 1..] {
            if let (Some(first), Some(second)) = (first, second)
                && clash(first, second)
            {
                problems.push(format!("{other}.address: {one} listens on port {} already", first.port()));
            }
        }
    }
}

fn clash(one: &SocketAddr, other: &SocketAddr) -> bool {
    let same_ip = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    // Port 0 is any free one.
    one.port() != 0 && one.port() == other.port() && same_ip
}

fn pair(key: &str, certificate: Option<&PathBuf>, private_key: Option<&PathBuf>, problems: &mut Vec<String>) {
    if certificate.is_some() != private_key.is_some() {
        problems.push(format!("{key}: certFile and keyFile go together"));
    }
}

fn durations(config: &Config, problems: &mut Vec<String>) {
    let clusters = &config.clusters;
    for (key, duration) in [
        ("clusters.lostTimeout", clusters.lost_timeout),
        ("clusters.staleAfter", clusters.stale_after),
        ("clusters.connectTimeout", clusters.connect_timeout),
        ("clusters.requestTimeout", clusters.request_timeout),
        ("clusters.watchTimeout", clusters.watch_timeout),
        ("clusters.consistencyInterval", clusters.consistency_interval),
        ("clusters.nodePositionInterval", clusters.node_position_interval),
        ("store.history.keepFor", config.store.history.keep_for),
        ("store.history.pruneInterval", config.store.history.prune_interval),
        ("tasks.spillAfter", config.tasks.spill_after),
        ("tasks.keepObjects", config.tasks.keep_objects),
        ("tasks.history.keepFor", config.tasks.history.keep_for),
        ("tasks.uploads.keepFor", config.tasks.uploads.keep_for),
    ] {
        if duration.is_zero() {
            problems.push(format!("{key}: must be longer than 0"));
        }
    }
    if clusters.lost_timeout <= clusters.stale_after {
        problems.push("clusters.lostTimeout: must be longer than clusters.staleAfter".to_owned());
    }
    if clusters.stale_after <= clusters.request_timeout {
        problems.push("clusters.staleAfter: must be longer than clusters.requestTimeout, else one slow answer makes a cluster stale".to_owned());
    }
    if config.multikueue.token_lifetime < Duration::from_mins(10) {
        problems.push("multikueue.tokenLifetime: API servers make tokens for 10m or more".to_owned());
    }
    if Duration::from_mins(1) < config.quota.merge_window {
        problems.push("quota.mergeWindow: more than 1m would hold up every change of quota".to_owned());
    }
}

fn tasks(config: &Config, problems: &mut Vec<String>) {
    let tasks = &config.tasks;
    if tasks.history.keep_rows == 0 {
        problems.push("tasks.history.keepRows: keep at least 1 row".to_owned());
    }
    if let Err(error) = config.most_of_a_cluster() {
        problems.push(error.to_string());
    }
    if let Err(error) = config.max_live() {
        problems.push(error.to_string());
    }
    if let Err(error) = config.upload_sizes() {
        problems.push(error.to_string());
    }
    if let Err(error) = config.task_logs() {
        problems.push(error.to_string());
    }
    if tasks.logs.folder.as_os_str().is_empty() {
        problems.push("tasks.logs.folder: name a folder".to_owned());
    }
    if tasks.default_image.trim().is_empty() {
        problems.push("tasks.defaultImage: name the image of tasks that name none".to_owned());
    }
    let mut seen = Vec::new();
    for tenant in &tasks.tenants {
        let key = format!("tasks.tenants, namespace {}", tenant.namespace);
        if !is_label(&tenant.namespace) {
            problems.push(format!("tasks.tenants: `{}` is not the name of a namespace", tenant.namespace));
        }
        if seen.contains(&&tenant.namespace) {
            problems.push(format!("{key}: it is there twice"));
        }
        seen.push(&tenant.namespace);
        for (field, name) in [("queue", &tenant.queue), ("serviceAccount", &tenant.service_account)] {
            // LocalQueues and ServiceAccounts are named as ClusterQueues are.
            if name.as_deref().is_some_and(|name| QueueName::new(name).is_err()) {
                problems.push(format!("{key}: its {field} is not a name of Kubernetes"));
            }
        }
        pod_config(&key, &tenant.pod_config, problems);
        if let Err(error) = tenant.limits.resolve(&key) {
            problems.push(error.to_string());
        }
    }
}

fn pod_config(key: &str, rules: &PodConfig, problems: &mut Vec<String>) {
    for name in &rules.resources {
        if devices(std::slice::from_ref(name)).next().is_none() {
            problems.push(format!(
                "{key}: podConfig.resources: `{name}` is no device with a name as rdma/hca; accelerators need no leave"
            ));
        }
    }
    for name in rules.capabilities.iter().filter(|name| !CAPABILITIES.contains(&name.as_str())) {
        let known = CAPABILITIES.join(", ");
        problems.push(format!(
            "{key}: podConfig.capabilities: `{name}` cannot be allowed to tasks, only {known}"
        ));
    }
}

fn amounts(config: &Config, problems: &mut Vec<String>) {
    let mut note = |outcome: Result<(), Unusable>| {
        if let Err(error) = outcome {
            problems.push(error.to_string());
        }
    };
    let capacity = &config.capacity;
    note(config.resource_filter().map(|_| ()));
    note(config.measures().map(|_| ()));
    let general = "capacity.headroom";
    let mut scratch = Headroom::default();
    note(config.add_percent(&format!("{general}.percent"), &capacity.headroom.percent, &mut scratch));
    note(config.amounts(&format!("{general}.absolute"), &capacity.headroom.absolute).map(|_| ()));
    for (name, own) in &capacity.headroom.clusters {
        let key = format!("{general}.clusters.{name}");
        note(cluster(&key, name));
        note(config.add_percent(&format!("{key}.percent"), &own.percent, &mut scratch));
        note(config.amounts(&format!("{key}.absolute"), &own.absolute).map(|_| ()));
    }
    for (name, limits) in &capacity.limits {
        let key = format!("capacity.limits.{name}");
        if name != ANY {
            note(cluster(&key, name));
        }
        note(config.amounts(&key, limits).map(|_| ()));
    }
}

fn cluster(key: &str, name: &str) -> Result<(), Unusable> {
    match ClusterName::new(name) {
        Ok(_) => Ok(()),
        Err(error) => Err(Unusable { key: key.to_owned(), reason: error.to_string() }),
    }
}
