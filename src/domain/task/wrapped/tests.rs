use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::task::{
    choose::{Choice, Outcome, Verdict, Weights, Wish, choose, view::View},
    sky::TaskFileError,
    spec::{Priority, TaskSpec},
    testing::{cluster, cluster_name, flavor, queue},
};

fn job(name: &str, parallelism: u32, requests: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": parallelism, "completions": parallelism, "template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
        }}},
    })
}

fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"clusterIP": "None"}})
}

fn manifest(templates: &[Value]) -> Value {
    let components: Vec<Value> = templates.iter().map(|template| json!({"template": template})).collect();
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "train"},
        "spec": {"components": components},
    })
}

fn read(manifest: &Value) -> Result<WrappedFile, TaskFileError> {
    read_manifest(manifest.to_string().as_bytes(), "team")
}

fn spec(manifest: &Value) -> TaskSpec {
    read(manifest).unwrap_or_else(|error| panic!("{:?}", error.notes())).task.spec
}

fn wrapped(manifest: &Value) -> Wrapped {
    spec(manifest).wrapped.expect("it is one")
}

/// Field and message of each problem.
fn problems(manifest: &Value) -> Vec<(String, String)> {
    let error = read(manifest).expect_err("it is refused");
    error.notes().into_iter().map(|note| (note.path, note.message)).collect()
}

#[test]
fn its_pods_are_found_and_counted_as_kueue_counts_them() {
    let gpus = json!({"cpu": "500m", "nvidia.com/gpu": 2});
    let mut worker = job("worker", 3, &gpus);
    worker["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "a"});
    worker["spec"]["template"]["spec"]["initContainers"] =
        json!([{"name": "i", "image": "i", "resources": {"limits": {"cpu": "2"}}}]);
    let read = spec(&manifest(&[job("driver", 1, &json!({"memory": "1Gi"})), service(), worker]));
    assert_eq!((read.name.as_deref(), read.num_nodes), (Some("train"), 4));
    let sets = &read.wrapped.expect("it is one").pod_sets;
    let told: Vec<_> = sets
        .iter()
        .map(|set| {
            let requests = set.per_pod().into_iter();
            (
                set.component,
                set.count,
                requests
                    .map(|(resource, amount)| (resource.to_string(), amount.text(&resource)))
                    .collect::<Vec<_>>(),
            )
        })
        .collect();
    let pair = |resource: &str, amount: &str| (resource.to_owned(), amount.to_owned());
    assert_eq!(
        told,
        [(0, 1, vec![pair("memory", "1Gi")]), (2, 3, vec![pair("cpu", "2"), pair("nvidia.com/gpu", "2")]),]
    );
    assert_eq!(sets[1].node_selector, BTreeMap::from([pair("zone", "a")]));
}

#[test]
fn labels_of_kueue_say_where_it_waits_and_all_others_of_its_stay_kueues() {
    let mut asked = manifest(&[job("a", 1, &json!({}))]);
    asked["metadata"] = json!({
        "generateName": "train-", "namespace": "team", "uid": "u", "resourceVersion": "7",
        "labels": {
            "kueue.x-k8s.io/queue-name": "gpus", "kueue.x-k8s.io/priority-class": "urgent", "mine": "x",
            "kueue.x-k8s.io/prebuilt-workload-name": "w", "kueue.x-k8s.io/max-exec-time-seconds": "60",
            "workload.codeflare.dev/user": "somebody", "fedq.dev/hub": "h",
        },
        "annotations": {"workload.codeflare.dev.appwrapper/retryLimit": "0", "fedq.dev/owner": "somebody"},
        "finalizers": ["x/y"],
    });
    asked["spec"]["suspend"] = json!(false);
    asked["spec"]["managedBy"] = json!("kueue.x-k8s.io/multikueue");
    asked["spec"]["components"][0]["podSetInfos"] = json!([{"labels": {"a": "b"}}]);
    asked["status"] = json!({"phase": "Running"});
    let WrappedFile { task, warnings } = read(&asked).expect("it can be run");
    assert_eq!(task.spec.name.as_deref(), Some("train"));
    assert_eq!(task.spec.queue.as_deref(), Some("gpus"));
    assert_eq!(task.spec.priority, Some(Priority::Class("urgent".to_owned())));
    let wrapped = task.spec.wrapped.expect("it is one");
    let labels: Vec<&str> = wrapped.labels.keys().map(String::as_str).collect();
    assert_eq!(labels, ["mine"]);
    let annotations: Vec<&str> = wrapped.annotations.keys().map(String::as_str).collect();
    assert_eq!(annotations, ["workload.codeflare.dev.appwrapper/retryLimit"]);
    assert!(wrapped.components[0].pod_set_infos.is_empty());
    let fields: Vec<&str> = warnings.iter().map(|note| note.path.as_str()).collect();
    assert_eq!(
        fields,
        [
            "metadata.finalizers",
            "metadata.labels[fedq.dev/hub]",
            "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]",
            "metadata.labels[kueue.x-k8s.io/prebuilt-workload-name]",
            "metadata.annotations[fedq.dev/owner]",
            "spec.managedBy",
            "spec.components[0].podSetInfos",
        ]
    );
}

/// Each manifest is refused, in this field and for this reason.
fn refused(cases: &[(Value, &str, &str)]) {
    for (manifest, field, reason) in cases {
        let told = problems(manifest);
        assert!(
            told.iter().any(|(at, message)| at == field && message.contains(reason)),
            "{field}: {reason}: {told:?}"
        );
    }
}

/// One of a Job, with something in it changed.
fn changed(change: impl Fn(&mut Value)) -> Value {
    let mut manifest = manifest(&[job("a", 1, &json!({"cpu": 1}))]);
    change(&mut manifest);
    manifest
}

#[test]
fn what_is_no_appwrapper_is_refused_with_field_and_reason() {
    let one = job("a", 1, &json!({}));
    refused(&[
        (json!([1]), "", "an AppWrapper is a map"),
        (one.clone(), "apiVersion", "must be workload.codeflare.dev/v1beta2, not \"batch/v1\""),
        (changed(|all| all["spce"] = json!({})), "spce", "no such field"),
        (changed(|all| all["spec"] = json!("x")), "spec", "must be a map with components"),
        (changed(|all| all["spec"] = json!({})), "spec", "missing field `components`"),
        (changed(|all| all["spec"]["queue"] = json!("x")), "spec.queue", "no such field"),
        (
            changed(|all| all["metadata"]["namespace"] = json!("other")),
            "metadata.namespace",
            "in namespace team",
        ),
        (changed(|all| all["metadata"]["labels"] = json!({"a": 1})), "metadata.labels", "a map of texts"),
    ]);
    let two = format!("{}\n---\n{}\n", manifest(std::slice::from_ref(&one)), manifest(&[one]));
    let error = read_manifest(two.as_bytes(), "team").expect_err("one at a time");
    assert!(error.notes()[0].message.contains("2 documents"), "{error}");
    assert_eq!(read_manifest(b"", "team"), Err(TaskFileError::Empty));
    assert!(matches!(read_manifest(b"{", "team"), Err(TaskFileError::Yaml(_))));
}

#[test]
fn objects_that_a_cluster_would_refuse_are_refused_with_field_and_reason() {
    let one = || job("a", 1, &json!({"cpu": 1}));
    let within = |object: Value| {
        let mut holder = service();
        holder["spec"]["manifests"] = json!([object]);
        manifest(&[one(), holder])
    };
    let mut elsewhere = one();
    elsewhere["metadata"]["namespace"] = json!("other");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let component = "spec.components[0].template";
    let inner = "spec.components[1].template.spec.manifests[0]";
    refused(&[
        (manifest(&[json!({"kind": "Job"})]), component, "failed to decode as JSON"),
        (manifest(&[manifest(&[one()])]), component, "Nested AppWrappers are forbidden"),
        (within(manifest(&[])), inner, "Nested AppWrappers are forbidden"),
        (
            manifest(std::slice::from_ref(&elsewhere)),
            "spec.components[0].template.metadata.namespace",
            "cannot create objects in other namespaces",
        ),
        (
            within(elsewhere),
            "spec.components[1].template.spec.manifests[0].metadata.namespace",
            "cannot create objects in other namespaces",
        ),
        (manifest(&[one(), secret.clone()]), "spec.components[1].template", "no secrets with it"),
        (within(secret), inner, "no secrets with it"),
        (
            within(json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"a": "b"}})),
            inner,
            "no secrets with it",
        ),
        (
            changed(|all| {
                all["spec"]["components"][0]["template"]["metadata"]["labels"] =
                    json!({"fedq.dev/epoch": "1"});
            }),
            "spec.components[0].template.metadata.labels[fedq.dev/epoch]",
            "tells its tasks' objects apart",
        ),
        (
            changed(|all| {
                let template = &mut all["spec"]["components"][0]["template"]["spec"]["template"];
                template["metadata"]["labels"] = json!({"task-id": "k3v9x2ab"});
            }),
            "spec.components[0].template.spec.template.metadata.labels[task-id]",
            "tells its tasks' objects apart",
        ),
    ]);
}

#[test]
fn pods_that_cannot_be_found_or_counted_are_refused_with_field_and_reason() {
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}});
    let of_sets = |sets: Value| changed(|all| all["spec"]["components"][0]["podSets"] = sets.clone());
    let many: Vec<Value> = (0..9).map(|number| job(&format!("j{number}"), 1, &json!({}))).collect();
    let all = "spec.components";
    refused(&[
        (manifest(std::slice::from_ref(&unknown)), all, "components contains no podspecs"),
        (
            of_sets(json!([{"path": "template.spec"}])),
            "spec.components[0].podSets[0].path",
            "path does not refer to a v1.PodSpecTemplate",
        ),
        (
            of_sets(json!([{"path": "template.spec.template", "replicas": 2}])),
            "spec.components[0].podSets",
            "replica count 2 differs from inferred count 1",
        ),
        (manifest(&many), all, "contains 9 podspecs; at most 8 are allowed"),
        (manifest(&[job("a", 1001, &json!({}))]), all, "1001 pods; at most 1000"),
        (manifest(&[job("a", 0, &json!({}))]), all, "has no pods"),
        (manifest(&[job("a", 1, &json!({"cpu": "lots"}))]), "spec.components[0].template", "lots"),
    ]);
    let mut declared = manifest(&[unknown]);
    declared["spec"]["components"][0]["template"]["spec"] = job("a", 1, &json!({}))["spec"].clone();
    declared["spec"]["components"][0]["podSets"] = json!([{"path": "template.spec.template", "replicas": 5}]);
    assert_eq!(spec(&declared).num_nodes, 5, "a kind that nobody knows says itself where its pods are");
}

#[test]
fn every_object_that_would_be_made_is_named_also_within_another() {
    let mut holder = service();
    holder["spec"]["manifests"] = json!([service()]);
    holder["spec"]["target"] = json!({"apiVersion": "v1", "kind": "Pod", "name": "referred-to"});
    let wrapped = wrapped(&manifest(&[job("a", 1, &json!({})), holder]));
    let objects: Vec<(String, String)> =
        wrapped.objects().into_iter().map(|object| (object.field, object.kind)).collect();
    let pair = |field: &str, kind: &str| (field.to_owned(), kind.to_owned());
    assert_eq!(
        objects,
        [
            pair("spec.components[0].template", "Job"),
            pair("spec.components[1].template", "Service"),
            pair("spec.components[1].template.spec.manifests[0]", "Service"),
        ]
    );
}

#[test]
fn its_pods_carry_the_labels_of_the_task_and_their_numbers() {
    let mut job_set = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "set"},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": job("a", 3, &json!({}))["spec"]}}]},
    });
    job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] =
        json!({"labels": {"mine": "x"}});
    let wrapped = wrapped(&manifest(&[job("driver", 1, &json!({})), job_set]));
    let labels = BTreeMap::from([("task-id".to_owned(), "1a2b3c4d".to_owned())]);
    let components = wrapped.labelled(&labels);
    assert_eq!(
        components[0].template["spec"]["template"]["metadata"]["labels"],
        json!({"task-id": "1a2b3c4d", "fedq.dev/first-node": "0", "fedq.dev/nodes": "1", "node-idx": "0"})
    );
    assert_eq!(
        components[1].template["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["labels"],
        json!({
            "mine": "x", "task-id": "1a2b3c4d", "fedq.dev/first-node": "1", "fedq.dev/nodes": "6",
            "fedq.dev/nodes-of-job": "3",
        })
    );
    assert_eq!(components[1].template["metadata"], json!({"name": "set"}), "only pods");
}

#[test]
fn one_job_is_what_can_be_unwrapped() {
    let only = |templates: &[Value]| wrapped(&manifest(templates)).only_job().is_some();
    assert!(only(&[job("a", 2, &json!({}))]));
    assert!(!only(&[job("a", 1, &json!({})), service()]));
    assert!(!only(&[job("a", 1, &json!({})), job("b", 1, &json!({}))]));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    assert!(!only(&[pod]));
}

fn decide(spec: &TaskSpec, flavors: Vec<crate::task::choose::view::FlavorView>) -> Choice {
    let one =
        crate::task::choose::view::ClusterView { queues: vec![queue(flavors)], ..cluster("one", (0, 0)) };
    let wish = Wish { queue: Some("default".to_owned()), ..Wish::default() };
    choose(spec, &wish, &View { clusters: vec![one] }, Weights::default())
}

#[test]
fn each_pod_set_has_its_own_flavor_and_what_one_takes_the_next_does_not_get() {
    let gpu = "nvidia.com/gpu";
    let of = |amount: u32| json!({"nvidia.com/gpu": amount});
    let two_sets = spec(&manifest(&[job("a", 2, &of(3)), job("b", 1, &of(2))]));
    // 6 of the first, and the 2 of the other are not there any more.
    let choice =
        decide(&two_sets, vec![flavor("x", &[], &[(gpu, (7, 0))]), flavor("y", &[], &[(gpu, (8, 4))])]);
    let Outcome::Run(placement) = &choice.outcome else { panic!("{choice:?}") };
    let flavors: Vec<Vec<&str>> = placement
        .pod_sets
        .iter()
        .map(|set| set.values().map(fedq_values::ids::FlavorName::as_str).collect())
        .collect();
    assert_eq!((flavors, placement.now), (vec![vec!["x"], vec!["y"]], true));
    let one_flavor = |quota| decide(&two_sets, vec![flavor("x", &[], &[(gpu, quota)])]);
    let Verdict::Fits(offer) = &one_flavor((8, 0)).verdicts[&cluster_name("one")] else { panic!("it fits") };
    let needed: Vec<i64> = offer.numbers.iter().map(|number| number.needed.units()).collect();
    assert_eq!(needed, [8], "they are told together");
    assert!(matches!(one_flavor((8, 1)).verdicts[&cluster_name("one")], Verdict::Waits(_)));
    let Verdict::Never(obstacles) = &one_flavor((7, 0)).verdicts[&cluster_name("one")] else {
        panic!("it can never hold both")
    };
    assert!(obstacles[0].to_string().contains("at most 7"), "{obstacles:?}");
}

#[test]
fn manifests_become_one_with_their_pod_sets_written_out() {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [job("b", 2, &json!({}))]});
    let mut read_back = service();
    read_back["status"] = json!({"loadBalancer": {}});
    read_back["metadata"]["uid"] = json!("u");
    let text = format!("{read_back}\n---\n---\n{}\n", job("a", 1, &json!({})));
    let list = list.to_string();
    let made = wrap(None, [("one.yaml", text.as_bytes()), ("two.json", list.as_bytes())]).expect("wrapped");
    assert_eq!(made["metadata"], json!({"name": "a"}), "as the first that has pods");
    let components = made["spec"]["components"].as_array().expect("components");
    let replicas: Vec<&Value> = components.iter().map(|one| &one["podSets"][0]["replicas"]).collect();
    assert_eq!(replicas, [&json!(null), &json!(1), &json!(2)]);
    assert_eq!(components[0]["template"], service(), "what a server wrote is left out");
    assert_eq!(spec(&made).num_nodes, 3, "it can be handed in as it is");
    assert_eq!(wrap(Some("x"), [("f", text.as_bytes())]).expect("wrapped")["metadata"]["name"], "x");

    let told = |text: &str| {
        let error = wrap(None, [("f.yaml", text.as_bytes())]).expect_err("it is refused");
        error.notes().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(wrap(None, [("f.yaml", &b"---\n"[..])]), Err(TaskFileError::Empty));
    assert!(told("a: b").contains("`f.yaml, document 1`: is no manifest of an object"));
    assert!(told(&manifest(&[]).to_string()).contains("is an AppWrapper already"));
    assert!(told(&service().to_string()).contains("write the AppWrapper yourself, with podSets"));
    let mut broken = job("a", 1, &json!({}));
    broken["spec"]["template"]["spec"]["conatiners"] = json!([]);
    assert!(told(&broken.to_string()).contains("conatiners"));
}

/// As `kubectl get -o yaml` prints it.
#[test]
fn what_a_server_put_into_a_job_and_a_service_does_not_go_along() {
    let pods = json!({"containers": [{"name": "a", "image": "i"}], "restartPolicy": "Never"});
    let owned = json!({"controller-uid": "u", "batch.kubernetes.io/job-name": "train", "mine": "x"});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "train", "uid": "u", "labels": owned,
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "c", "controller": true}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "y"},
        },
        "spec": {
            "selector": {"matchLabels": {"controller-uid": "u"}},
            "template": {"metadata": {"labels": owned}, "spec": pods},
        },
        "status": {"active": 1},
    });
    let service = |address: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"clusterIP": address, "clusterIPs": [address], "selector": {"mine": "x"}},
        })
    };
    let list =
        json!({"apiVersion": "v1", "kind": "List", "items": [job, service("10.0.0.7"), service("None")]});
    let wrapper = wrap(None, [("list", list.to_string().as_bytes())]).expect("an AppWrapper");
    let template = |index: usize| &wrapper["spec"]["components"][index]["template"];
    assert_eq!(
        template(0),
        &json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "train", "labels": {"mine": "x"}, "annotations": {"mine": "y"}},
            "spec": {"template": {"metadata": {"labels": {"mine": "x"}}, "spec": pods}},
        })
    );
    assert_eq!(template(1)["spec"], json!({"selector": {"mine": "x"}}));
    assert_eq!(template(2)["spec"]["clusterIP"], "None");
    let mut manual = list["items"][0].clone();
    manual["spec"]["manualSelector"] = json!(true);
    let wrapper = wrap(None, [("job", manual.to_string().as_bytes())]).expect("an AppWrapper");
    assert_eq!(wrapper["spec"]["components"][0]["template"]["spec"]["selector"], manual["spec"]["selector"]);
}
