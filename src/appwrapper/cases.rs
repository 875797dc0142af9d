//! Tables of cases: upstream's own, as data that name their file and case, and ours beside them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::DynamicObject;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use fedq_wrapped::component::Component;

use crate::{
    api::{AppWrapper, Phase},
    conditions,
    config::AppWrapperConfig,
    immutable,
    inject::{self, Owner},
    lifecycle::{Task, Turn},
    names::{USER_ID_LABEL, USER_LABEL, condition::UNHEALTHY},
    pod_sets, review,
    template::Template,
    tolerance::Tolerance,
    validate,
};

mod life;
mod live;
mod rights;
pub(crate) mod server;

pub(crate) fn components(names: &[String]) -> Vec<Component> {
    let all: BTreeMap<String, Component> = read(include_str!("cases/components.yaml"));
    names.iter().map(|name| all.get(name).unwrap_or_else(|| panic!("no component {name}")).clone()).collect()
}

/// As the controller keeps them.
pub(crate) fn packed(components: &[Component]) -> Vec<Component<Template>> {
    let pack = |one: &Component| one.clone().with_template(Template::from(&one.template));
    components.iter().map(pack).collect()
}

pub(crate) fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).expect("a readable file of cases")
}

#[derive(Deserialize)]
struct Webhook {
    create: Vec<Create>,
    update: Vec<Update>,
    defaults: Vec<Defaults>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Create {
    #[serde(default)]
    upstream: String,
    components: Vec<String>,
    name: Option<String>,
    path: Option<String>,
    replicas: Option<i32>,
    refused: Option<String>,
    /// Replicas of all pod sets that are found.
    pod_sets: Option<Vec<i32>>,
}

impl Create {
    fn components(&self) -> Vec<Component> {
        let mut components = components(&self.components);
        if let Some(path) = &self.path {
            components[0].pod_sets[0].path.clone_from(path);
        }
        if let Some(replicas) = self.replicas {
            components[0].pod_sets[0].replicas = Some(replicas);
        }
        components
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Update {
    #[serde(default)]
    upstream: String,
    change: Value,
    refused: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Defaults {
    #[serde(default)]
    upstream: String,
    #[serde(default)]
    queue: String,
    given: Option<BTreeMap<String, String>>,
    user: BTreeMap<String, String>,
    /// May name somebody else.
    #[serde(default)]
    names_user: bool,
    labels: BTreeMap<String, String>,
}

#[test]
fn what_is_made_is_judged_as_upstream_judges_it() {
    for case in read::<Webhook>(include_str!("cases/webhook.yaml")).create {
        let components = case.components();
        let name = case.name.as_deref().unwrap_or("aw");
        let said = validate::sentence(&validate::create(&components, "default", name));
        match &case.refused {
            Some(refused) => assert!(said.contains(refused), "{case:?}\nsaid: {said}"),
            None => assert_eq!(said, "[]", "{case:?}"),
        }
        if let Some(expected) = &case.pod_sets {
            let found = components.iter().flat_map(|one| pod_sets::infer(&one.template).expect("readable"));
            assert_eq!(&found.map(|one| one.replicas()).collect::<Vec<_>>(), expected, "{case:?}");
        }
    }
}

/// Where there is no webhook, the controller says the same, in the words of the webhook.
#[test]
fn what_the_webhook_would_refuse_fails_with_its_words() {
    let tolerance = Tolerance::of(None, &AppWrapperConfig::default().fault_tolerance);
    let now = jiff::Timestamp::UNIX_EPOCH;
    let refused = read::<Webhook>(include_str!("cases/webhook.yaml")).create;
    for case in refused.into_iter().filter(|case| case.refused.is_some()) {
        let mut wrapper = AppWrapper::default();
        let name = case.name.clone().unwrap_or_else(|| "aw".to_owned());
        (wrapper.metadata.namespace, wrapper.metadata.name) =
            (Some("default".to_owned()), Some(name.clone()));
        let components = case.components();
        wrapper.spec.components = packed(&components);
        let words = validate::sentence(&validate::create(&components, "default", &name));
        let Task::Write(outcome) = (Turn { wrapper: &wrapper, tolerance: &tolerance, now }).task() else {
            panic!("{case:?}: no status is written");
        };
        assert_eq!(outcome.status.phase, Phase::Failed, "{case:?}");
        let unhealthy = conditions::find(&outcome.status.conditions, UNHEALTHY).expect("it says why");
        assert_eq!((unhealthy.reason.as_str(), &unhealthy.message), ("CreateFailed", &words), "{case:?}");
    }
}

/// By their names in `internal/webhook/appwrapper_webhook_test.go`; the two of rights are in `rights.rs`.
#[test]
fn all_cases_of_upstreams_webhook_are_here() {
    const ALL: [&str; 20] = [
        "Default queue name is set",
        "Provided queue name is not overridden by default queue name",
        "User name and ID are set",
        "There must be at least one podspec (a)",
        "There must be at least one podspec (b)",
        "There must be no more than 8 podspecs",
        "Non-existent PodSpec paths are rejected",
        "PodSpec paths must refer to a PodSpecTemplate",
        "Validation of Array and Map path elements",
        "Components in other namespaces are rejected",
        "Nested AppWrappers are rejected",
        "User name and ID are immutable",
        "User name and ID should be preserved on updates",
        "Updates to non-sensitive fields are allowed",
        "Updates to sensitive fields are rejected",
        "AppWrapper containing permitted resources can be created",
        "AppWrapper containing unpermitted resources cannot be created",
        "Well-formed AppWrappers are accepted",
        "PodSets are inferred for common kinds",
        "PodSets are inferred for PyTorchJobs, RayClusters, and RayJobs",
    ];
    let webhook = read::<Webhook>(include_str!("cases/webhook.yaml"));
    let create = webhook.create.into_iter().map(|case| case.upstream);
    let update = webhook.update.into_iter().map(|case| case.upstream);
    let defaults = webhook.defaults.into_iter().map(|case| case.upstream);
    let tables: BTreeSet<String> = create.chain(update).chain(defaults).collect();
    for case in ALL {
        let here = tables.contains(case) || rights::UPSTREAMS.contains(&case);
        assert!(here, "{case}");
    }
}

#[test]
fn what_was_judged_does_not_change() {
    let labels = [(USER_LABEL, "alice"), (USER_ID_LABEL, "7")];
    for case in read::<Webhook>(include_str!("cases/webhook.yaml")).update {
        let mut old = AppWrapper::default();
        old.spec.components = packed(&components(&["pod".to_owned(), "deployment".to_owned()]));
        old.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        let mut new = old.clone();
        for (index, change) in case.change["components"].as_object().into_iter().flatten() {
            let component = &mut new.spec.components[index.parse::<usize>().expect("an index")];
            let mut value = serde_json::to_value(&*component).expect("a value");
            json_patch::merge(&mut value, change);
            *component = serde_json::from_value(value).expect("a component");
        }
        if case.change["more"] == true {
            new.spec.components.extend(packed(&components(&["pod".to_owned()])));
        }
        new.spec.suspend = case.change["suspend"] == true;
        new.spec.managed_by = case.change["managedBy"].as_str().map(str::to_owned);
        for (key, value) in case.change["labels"].as_object().into_iter().flatten() {
            let value = value.as_str().expect("text").to_owned();
            new.metadata.labels.get_or_insert_default().insert(key.clone(), value);
        }
        let said = validate::sentence(&immutable::update(&old, &new));
        match &case.refused {
            Some(refused) => assert!(said.contains(refused), "{case:?}\nsaid: {said}"),
            None => assert_eq!(said, "[]", "{case:?}"),
        }
    }
}

#[test]
fn labels_say_whose_it_is() {
    for case in read::<Webhook>(include_str!("cases/webhook.yaml")).defaults {
        let mut object: DynamicObject = serde_json::from_value(
            json!({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {}}),
        )
        .expect("an object");
        object.metadata.labels.clone_from(&case.given);
        let (username, uid) = (case.user.get("username").cloned(), case.user.get("uid").cloned());
        let user = UserInfo { username, uid, ..UserInfo::default() };
        let patch = review::defaults(&object, &user, (&case.queue, case.names_user));
        let mut value = serde_json::to_value(&object).expect("a value");
        json_patch::patch(&mut value, &patch).expect("it fits");
        assert_eq!(value["metadata"]["labels"], json!(case.labels), "{case:?}");
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Annotated {
    upstream: String,
    annotations: BTreeMap<String, String>,
    durations: BTreeMap<String, String>,
    retry_limit: i32,
    #[serde(default)]
    terminal: Vec<i32>,
    #[serde(default)]
    retryable: Vec<i32>,
}

/// The short names of cases, as annotations.
pub(crate) fn annotations(short: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let long = |(key, value): (&String, &String)| {
        (format!("workload.codeflare.dev.appwrapper/{key}"), value.clone())
    };
    short.iter().map(long).collect()
}

#[test]
fn annotations_change_what_is_tolerated() {
    for case in read::<Vec<Annotated>>(include_str!("cases/tolerance.yaml")) {
        let defaults = AppWrapperConfig::default().fault_tolerance;
        let tolerance = Tolerance::of(Some(&annotations(&case.annotations)), &defaults);
        let found = [
            ("admission", tolerance.admission_grace),
            ("warmup", tolerance.warmup_grace),
            ("failure", tolerance.failure_grace),
            ("pause", tolerance.retry_pause),
            ("deletion", tolerance.forceful_deletion_grace),
            ("debug", tolerance.deletion_on_failure_grace),
            ("ttl", tolerance.success_ttl),
        ];
        let found = found.map(|(name, duration)| (name.to_owned(), duration.to_string())).into();
        assert_eq!(case.durations, found, "{}", case.upstream);
        assert_eq!(tolerance.retry_limit, case.retry_limit, "{}", case.upstream);
        assert_eq!(tolerance.terminal_exit_codes, case.terminal);
        assert_eq!(tolerance.retryable_exit_codes, case.retryable);
    }
}

/// "Validating PodSet Injection invariants on minimal pods" and "on complex pods".
#[test]
fn what_kueue_wants_is_in_the_pods_and_what_was_there_stays() {
    let marker = json!({
        "labels": {"testkey1": "value1"}, "annotations": {"test2": "test2"}, "nodeSelector": {"nodeName": "myNode"},
        "tolerations": [{"key": "aKey", "operator": "Exists", "effect": "NoSchedule"}],
        "schedulingGates": [{"name": "aGate"}],
    });
    let info = serde_json::from_value(marker).expect("pod set infos");
    let mut config = AppWrapperConfig::default();
    let more = json!([
        {"key": "extra", "value": "test", "effect": "NoExecute"},
        {"key": "extra2", "value": "test2", "effect": "PreferNoSchedule"},
    ]);
    let more: Vec<crate::config::NodeTaint> = serde_json::from_value(more).expect("taints");
    config
        .autopilot
        .as_mut()
        .expect("on")
        .resource_taints
        .get_mut("nvidia.com/gpu")
        .expect("there")
        .extend(more);
    config.scheduler_name = "own".to_owned();
    let build = |name: &str| {
        let component = components(&[name.to_owned()]).remove(0);
        let pod_sets = pod_sets::infer(&component.template).expect("a Pod");
        inject::object(
            &component.template,
            (&pod_sets, std::slice::from_ref(&info)),
            (&owner(), "pod-x"),
            &config,
        )
    };
    let expressions = json!([
        {"key": "autopilot.ibm.com/gpuhealth", "operator": "NotIn", "values": ["TESTING", "EVICT"]},
        {"key": "extra", "operator": "NotIn", "values": ["test"]},
    ]);
    let plain = build("podWithoutGpu").expect("made");
    assert_eq!(plain["metadata"]["name"], "pod-x");
    assert_eq!(
        plain["metadata"]["labels"],
        json!({"workload.codeflare.dev/appwrapper": "aw", "testkey1": "value1"})
    );
    assert_eq!(plain["metadata"]["ownerReferences"][0]["name"], "aw");
    assert_eq!(plain["spec"]["affinity"], Value::Null);
    assert_eq!(plain["spec"]["schedulerName"], "own");
    assert_eq!(plain["spec"]["nodeSelector"], json!({"nodeName": "myNode"}));
    let affinity = &build("podWithGpu").expect("made")["spec"]["affinity"]["nodeAffinity"];
    let terms = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    assert_eq!(terms, &json!([{"matchExpressions": expressions}]));
    let preferred = &affinity["preferredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(preferred["weight"], 50);
    assert_eq!(preferred["preference"]["matchExpressions"][1]["key"], "extra2");

    let complex = build("complexPod").expect("made");
    assert_eq!(complex["metadata"]["labels"]["myComplexLabel"], "myComplexValue");
    assert_eq!(
        complex["metadata"]["annotations"],
        json!({"myComplexAnnotation": "myComplexValue", "test2": "test2"})
    );
    assert_eq!(
        complex["spec"]["nodeSelector"],
        json!({"myComplexSelector": "myComplexValue", "nodeName": "myNode"})
    );
    assert_eq!(complex["spec"]["tolerations"].as_array().map(Vec::len), Some(2));
    assert_eq!(complex["spec"]["schedulingGates"], json!([{"name": "myComplexGate"}, {"name": "aGate"}]));
    let terms = &complex["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    assert_eq!(terms[0]["matchExpressions"].as_array().map(Vec::len), Some(3));
    assert_eq!(terms[0]["matchExpressions"][0]["key"], "kubernetes.io/hostname");
}

#[test]
fn a_value_of_the_users_that_kueue_wants_otherwise_is_a_conflict() {
    let component = components(&["complexPod".to_owned()]).remove(0);
    let pod_sets = pod_sets::infer(&component.template).expect("a Pod");
    for (info, said) in [
        (
            json!({"labels": {"myComplexLabel": "x"}}),
            "conflict updating labels: conflict for key=myComplexLabel, value1=myComplexValue, value2=x",
        ),
        (json!({"annotations": {"myComplexAnnotation": "x"}}), "conflict updating annotations"),
        (json!({"nodeSelector": {"myComplexSelector": "x"}}), "conflict updating nodeSelector"),
    ] {
        let info = serde_json::from_value(info).expect("pod set infos");
        let config = AppWrapperConfig::default();
        let parts = (pod_sets.as_slice(), std::slice::from_ref(&info));
        let error =
            inject::object(&component.template, parts, (&owner(), "pod"), &config).expect_err("refused");
        assert!(error.to_string().starts_with(said), "{error}");
    }
}

pub(crate) fn owner() -> Owner {
    let reference = serde_json::from_value(
        json!({"apiVersion": "x", "kind": "AppWrapper", "name": "aw", "uid": "1", "controller": true}),
    )
    .expect("a reference");
    Owner { namespace: "default".to_owned(), name: "aw".to_owned(), reference }
}

/// `UPDATE_EXPECT=1` writes it.
#[test]
fn the_definition_that_is_shipped_is_that_of_the_types() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/appwrapper/crd.yaml");
    let text = serde_saphyr::to_string(&crate::api::crd()).expect("text");
    let expected = format!("# Made from the types in src/appwrapper/api.rs.\n{text}");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &expected).expect("writable");
    }
    assert!(std::fs::read_to_string(&path).unwrap_or_default() == expected, "run once with UPDATE_EXPECT=1");
}
