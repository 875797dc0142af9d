//! Each reader as it is used, and what must hold of whatever it took.

use std::sync::Arc;

use fedq_api::webhook::review::Judge;
use fedq_cel::{
    Program, Scores,
    meter::{CALL_COST, CALL_WORK},
    value::Value as CelValue,
};
use fedq_domain::{
    overview::Overview,
    placement::selector::{Expression, LabelSelector},
    resources::Aliases,
    task::{
        names::TaskId,
        sky::{self, Options, TaskFile, TaskFileError},
        upload::Digest,
        wrapped::read_manifest,
    },
};
use fedq_k8s::{
    kubeconfig::{self, Rules},
    list_watch, logs,
    proxy::Wanted,
};
use fedq_store::Cursor;
use fedq_values::{
    ids::{ClusterName, ResourceName},
    nested,
    quantity::{Amount, Quantity},
};
use fedq_wrapped::{component::Component, pod_sets, validate};
use http::{Method, uri::PathAndQuery};
use serde_json::Value;

/// What the hub asks the webhook. No answer tells more than a denial that can be sent.
pub fn admission_review(bytes: &[u8]) {
    let judge = Judge { aliases: Aliases::default(), daemon: Some("fedqd".to_owned()) };
    if let Ok(review) = judge.answer(bytes, &Overview::default()) {
        let answer = serde_json::to_vec(&review).expect("an answer is JSON");
        assert!(answer.len() < (256 << 10), "an answer of {} bytes", answer.len());
    }
}

/// What somebody wraps: what is taken has pods, and mistakes are told.
pub fn app_wrapper(bytes: &[u8]) {
    if let Ok(file) = read_manifest(bytes, "team") {
        let pods = file.task.spec.wrapped.as_ref().expect("it is an AppWrapper").pods();
        assert!((1..=1000).contains(&pods), "{pods} pods");
    }
    // The controller on a worker reads what is there already.
    let Ok(object) = serde_json::from_slice::<Value>(bytes) else { return };
    let components: Result<Vec<Component>, _> = serde_json::from_value(object["spec"]["components"].clone());
    for component in components.iter().flatten() {
        let _inferred = pod_sets::infer(&component.template);
    }
    for problem in components.iter().flat_map(|components| validate::create(components, "team", "wrapped")) {
        assert!(
            problem.field.starts_with("spec.components") || problem.field.starts_with("metadata"),
            "{problem}"
        );
    }
}

/// Files that a task brings along. What is taken stays below the folder that it is unpacked in.
pub fn archive(bytes: &[u8]) {
    const UNPACKED: u64 = 1 << 20;
    fedq_api::fuzz::archive(bytes, UNPACKED);
    // Random changes of packed bytes mostly break their checksum, so the reader of what is in them gets them as well.
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, bytes).expect("memory does not fail");
    fedq_api::fuzz::archive(&packer.finish().expect("memory does not fail"), UNPACKED);
}

/// The expression of a Placement: whatever it says, it ends within its budget.
pub fn cel(bytes: &[u8]) {
    struct None;
    impl Scores for None {
        fn scores(&self, _cluster: &str, _resource: &str) -> Option<&[(Arc<str>, i64)]> {
            Option::None
        }
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(program) = Program::compile(text) else { return };
    let outcome = program.evaluate(&CelValue::Map(Arc::default()), &None, CALL_WORK);
    assert!(outcome.cost <= 2 * CALL_COST, "cost {}", outcome.cost);
    assert!(outcome.work <= 2 * CALL_WORK, "work {}", outcome.work);
}

pub fn gzip(bytes: &[u8]) {
    list_watch::fuzz::gzip(bytes);
}

pub fn json_lines(bytes: &[u8]) {
    list_watch::fuzz::json(bytes);
}

/// What joins a cluster: it leads to one server, over TLS, that is not this machine.
pub fn kubeconfig(bytes: &[u8]) {
    let Ok(checked) = kubeconfig::check(bytes, None, &Rules::default()) else { return };
    let server = checked.server().clone();
    assert_eq!(server.scheme_str(), Some("https"));
    let host = server.host().expect("a host").trim_matches(['[', ']']);
    if let Ok(address) = host.parse() {
        kubeconfig::check_address(address, false).expect("an address that is allowed");
    }
    assert!(!host.eq_ignore_ascii_case("localhost"));
    let again =
        kubeconfig::check(checked.render().as_bytes(), None, &Rules::default()).expect("what it wrote");
    assert_eq!(again.server(), &server);
    assert_eq!(again.render(), checked.render());
}

pub fn log_lines(bytes: &[u8]) {
    logs::fuzz::lines(bytes);
}

/// The scan for objects that serde_json would read as text once more, cut anywhere.
pub fn nested_json(bytes: &[u8]) {
    let whole = nested::is_nested(bytes);
    for piece in [1, 7] {
        let mut scan = nested::Scan::default();
        let found = bytes.chunks(piece).any(|piece| scan.finds(piece));
        assert_eq!(found, whole, "in pieces of {piece} bytes");
    }
    let plain: Result<Value, _> = serde_json::from_slice(bytes);
    if let (false, Ok(plain)) = (whole, plain) {
        assert!(is_shallow(&plain, 128), "deeper than JSON may be");
    }
}

fn is_shallow(value: &Value, most: usize) -> bool {
    let Some(below) = most.checked_sub(1) else { return false };
    match value {
        Value::Array(items) => items.iter().all(|item| is_shallow(item, below)),
        Value::Object(fields) => fields.values().all(|field| is_shallow(field, below)),
        _ => true,
    }
}

/// What callers hand back, and name things by.
pub fn places_and_ids(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(cursor) = text.parse::<Cursor>() {
        assert_eq!(cursor.to_string(), text);
    }
    logs::fuzz::position(text);
    fedq_api::fuzz::log_places(text);
    if let Ok(digest) = text.parse::<Digest>() {
        assert_eq!(digest.as_str(), text);
    }
    if let Some(id) = TaskId::parse(text) {
        assert_eq!(id.as_str(), text);
    }
    if let Ok(name) = text.parse::<ClusterName>() {
        assert!(name.as_str() == text && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/'));
    }
}

pub fn protobuf(bytes: &[u8]) {
    list_watch::fuzz::protobuf(bytes);
}

/// A request that is to be forwarded to a cluster: method, path and query on a line. What passes can be read in one way only,
/// and is no Secret and no door into a pod.
pub fn proxied_path(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (method, target) = text.split_once(' ').unwrap_or(("GET", text));
    let Ok(method) = Method::from_bytes(method.as_bytes()) else { return };
    // The server has read it so far, and refused what is none.
    let Ok(target) = target.parse::<PathAndQuery>() else { return };
    let (path, query) = (target.path(), target.query());
    let Ok(wanted) = Wanted::read(&method, path, query) else { return };
    let uri: http::Uri = wanted.path.parse().expect("what is forwarded is a path");
    assert_eq!(uri.path(), path);
    assert!(path.starts_with('/') && !path.contains("//") && !path.contains('%'), "{path}");
    let segments: Vec<&str> = path.split('/').collect();
    assert!(!segments.iter().any(|segment| matches!(*segment, "." | "..")), "{path}");
    // As the name of an object they are only names.
    let kind = |word: &str| {
        matches!(word, "secrets" | "exec" | "attach" | "portforward" | "proxy" | "ephemeralcontainers")
    };
    assert!(!wanted.target.to_string().split(['/', ' ']).next().is_some_and(kind), "{path}");
    if let fedq_k8s::proxy::Target::Object { resource, subresource, .. } = &wanted.target {
        assert!(!kind(resource) && !subresource.is_some_and(kind), "{path}");
    }
    assert!(uri.query().is_none_or(|query| !query.contains('\n')));
}

/// Amounts as Kubernetes writes them: canonical ones mean the same, and are canonical.
pub fn quantity(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(quantity) = Quantity::parse(text) {
        let canonical = Quantity::canonical(text).expect("it can be read");
        assert_eq!(Quantity::parse(&canonical), Ok(quantity), "{canonical}");
        assert_eq!(Quantity::canonical(&canonical).as_ref(), Ok(&canonical));
    }
    for resource in ["cpu", "memory", "nvidia.com/gpu"] {
        let resource = ResourceName::new(resource).expect("a resource");
        if let Ok(amount) = Amount::exact(text, &resource) {
            assert_eq!(Amount::exact(&amount.text(&resource), &resource), Ok(amount));
        }
    }
}

/// Of a Placement or a ClusterQueue: what is taken can be asked of any labels.
pub fn selector(bytes: &[u8]) {
    type Written = k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    let Ok(written) = serde_json::from_slice::<Written>(bytes) else { return };
    let expressions =
        written.match_expressions.unwrap_or_default().into_iter().map(|expression| Expression {
            key: expression.key,
            operator: expression.operator,
            values: expression.values.unwrap_or_default(),
        });
    let labels = written.match_labels.unwrap_or_default();
    let selector = LabelSelector { match_labels: labels.clone(), match_expressions: expressions.collect() };
    if let Ok(read) = selector.read() {
        let alone = selector.match_expressions.is_empty();
        assert!(!alone || read.matches(&labels), "labels match a selector of just these labels");
    }
}

/// A task file of SkyPilot's form.
pub fn task_file(bytes: &[u8]) {
    told(bytes, sky::read_file(bytes, &Options::default()));
    for source in sky::sources(bytes, &Options::default()) {
        assert!(!source.is_empty());
    }
}

/// The same as a request.
pub fn task_request(bytes: &[u8]) {
    told(bytes, sky::read_request(bytes, &Options::default()));
}

/// What is refused is refused with a reason that fits a screen; what is taken is kept as it was taken.
fn told(bytes: &[u8], read: Result<TaskFile, TaskFileError>) {
    match read {
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && text.len() <= (64 << 10) + 16 * bytes.len(), "{} bytes", text.len());
        }
        Ok(file) => {
            assert!(!file.tasks.is_empty());
            for task in &file.tasks {
                let kept = serde_json::to_string(&task.spec).expect("a spec is JSON");
                assert_eq!(
                    serde_json::from_str::<fedq_domain::task::spec::TaskSpec>(&kept).as_ref().ok(),
                    Some(&task.spec)
                );
            }
        }
    }
}
