use super::*;
use crate::queue::{
    input::{CohortFacts, HubQueue, NamespaceRules, WorkerLocalQueue},
    pod_security::Level,
    selector::{Requirement, Selector, Test},
};

type Claimed = BTreeMap<QueueName, BTreeSet<FlavorName>>;

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

fn flavor(name: &str) -> FlavorName {
    FlavorName::new(name).expect("a name")
}

fn key(namespace: &str, name: &str) -> LocalQueueKey {
    (namespace.to_owned(), name.to_owned())
}

fn labels_of(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn object<T>(owner: Owner, content: T) -> Object<T> {
    Object { owner, deleting: false, content }
}

fn fields_of(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().expect("an object")
}

fn ours() -> Value {
    json!({"fedq.dev/hub": "hub-1", "app.kubernetes.io/managed-by": "fedq"})
}

/// Queue `research` takes namespaces labelled `team`; team-a submits to it through `main`.
fn hub() -> HubObjects {
    let selector =
        Selector(vec![Requirement { key: "team".to_owned(), test: Test::In(["a".to_owned()].into()) }]);
    HubObjects {
        id: "hub-1".to_owned(),
        queues: [(queue("research"), HubQueue { cohort: None, namespaces: Some(selector) })].into(),
        local_queues: [(key("team-a", "main"), LocalQueueSpec::new("research", None, None))].into(),
        namespaces: [("team-a".to_owned(), labels_of(&[("team", "a"), ("owner", "x")]))].into(),
        flavors: [(flavor("spot"), fields_of(&json!({"nodeLabels": {"pool": "spot"}})))].into(),
        priority_classes: [("high".to_owned(), PriorityClass { value: 10, description: String::new() })]
            .into(),
        ..HubObjects::default()
    }
}

fn claimed() -> Claimed {
    [(queue("research"), [flavor("spot")].into())].into()
}

fn local_queue(owner: Owner, spec: LocalQueueSpec, workloads: i64) -> Object<WorkerLocalQueue> {
    object(owner, WorkerLocalQueue { spec, workloads: Some(workloads) })
}

/// As fedq leaves a worker for [`hub`].
fn complete() -> WorkerObjects {
    let hub = hub();
    WorkerObjects {
        local_queues: hub
            .local_queues
            .iter()
            .map(|(key, spec)| (key.clone(), local_queue(Owner::Ours, spec.clone(), 3)))
            .collect(),
        namespaces: [("team-a".to_owned(), object(Owner::Ours, labels_of(&[("team", "a")])))].into(),
        flavors: hub.flavors.into_iter().map(|(name, spec)| (name, object(Owner::Ours, spec))).collect(),
        priority_classes: hub
            .priority_classes
            .into_iter()
            .map(|(name, class)| (name, object(Owner::Ours, class)))
            .collect(),
        used_flavors: ["spot".to_owned()].into(),
        has_our_queues: true,
        ..WorkerObjects::default()
    }
}

fn steps(decision: &Decision) -> Vec<(ObjectRef, Step)> {
    decision.wanted.iter().map(|wanted| (wanted.object.clone(), wanted.step.clone())).collect()
}

fn patch(object: ObjectRef, patch: &Value) -> (ObjectRef, Step) {
    (object, Step::Patch(fields_of(patch)))
}

fn problems(decision: &Decision) -> Vec<Problem> {
    decision.reports.iter().map(|report| report.problem.clone()).collect()
}

#[test]
fn a_namespace_is_no_weaker_on_the_worker_than_on_the_hub() {
    const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
    let labels_wanted = |on_hub: &[(&str, &str)], worker: &WorkerObjects| {
        let mut hub = hub();
        hub.namespace_rules = NamespaceRules {
            pod_security: Some(Level::Restricted),
            copied_labels: ["cost-centre".to_owned()].into(),
        };
        let mut labels = labels_of(&[("team", "a"), ("owner", "x")]);
        labels.extend(labels_of(on_hub));
        hub.namespaces.insert("team-a".to_owned(), labels);
        let decision = worker_objects(&hub, worker, &claimed());
        let namespace = ObjectRef::Namespace("team-a".to_owned());
        let step = decision.wanted.into_iter().find(|wanted| wanted.object == namespace)?.step;
        match step {
            Step::Create(fields) | Step::Patch(fields) => Some(fields["metadata"]["labels"].clone()),
            Step::Delete => None,
        }
    };
    let with = |more: &Value| {
        let mut labels = ours();
        labels["team"] = json!("a");
        labels.as_object_mut().expect("labels").extend(fields_of(more));
        Some(labels)
    };
    let none = WorkerObjects::default();
    assert_eq!(labels_wanted(&[], &none), with(&json!({ENFORCE: "restricted"})));
    let on_hub = [(ENFORCE, "baseline"), ("cost-centre", "7")];
    assert_eq!(labels_wanted(&on_hub, &none), with(&json!({"cost-centre": "7", ENFORCE: "baseline"})));
    let mut made = complete();
    let mut has = |owner: Owner, labels: &[(&str, &str)]| {
        let labels = labels.iter().chain(&[("team", "a"), ("cost-centre", "7")]).copied().collect::<Vec<_>>();
        made.namespaces.insert("team-a".to_owned(), object(owner, labels_of(&labels)));
        labels_wanted(&on_hub, &made)
    };
    assert_eq!(has(Owner::Ours, &[]), Some(json!({ENFORCE: "baseline"})), "the hub became stricter");
    assert_eq!(has(Owner::Ours, &[(ENFORCE, "privileged")]), Some(json!({ENFORCE: "baseline"})));
    assert_eq!(has(Owner::Ours, &[(ENFORCE, "restricted")]), None, "never looser");
    assert_eq!(has(Owner::Foreign, &[]), None, "not ours to change");
}

#[test]
fn a_queue_that_selects_by_pod_security_loosens_nothing() {
    const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
    let mut hub = hub();
    let test = Test::In(["privileged".to_owned()].into());
    let selector = Selector(vec![Requirement { key: ENFORCE.to_owned(), test }]);
    hub.queues.insert(queue("research"), HubQueue { cohort: None, namespaces: Some(selector) });
    hub.namespaces.insert("team-a".to_owned(), labels_of(&[(ENFORCE, "privileged")]));
    let mut worker = complete();
    worker.namespaces.insert("team-a".to_owned(), object(Owner::Ours, labels_of(&[(ENFORCE, "restricted")])));
    assert_eq!(steps(&worker_objects(&hub, &worker, &claimed())), []);
    hub.namespaces.insert("team-a".to_owned(), Labels::new());
    assert_eq!(steps(&worker_objects(&hub, &worker, &claimed())), [], "nor when the hub has none");
}

#[test]
fn an_empty_worker_gets_namespaces_first_and_local_queues_next() {
    let mut worker = WorkerObjects::default();
    let decision = worker_objects(&hub(), &worker, &claimed());
    let mut namespace_labels = ours();
    namespace_labels["team"] = json!("a");
    let create = |object, fields: Value| (object, Step::Create(fields_of(&fields)));
    let namespace = ObjectRef::Namespace("team-a".to_owned());
    assert_eq!(
        steps(&decision),
        [
            create(namespace, json!({"metadata": {"labels": namespace_labels}})),
            create(
                ObjectRef::Flavor(flavor("spot")),
                json!({"metadata": {"labels": ours()}, "spec": {"nodeLabels": {"pool": "spot"}}})
            ),
            create(
                ObjectRef::PriorityClass("high".to_owned()),
                json!({"metadata": {"labels": ours()}, "value": 10})
            ),
        ]
    );

    worker = WorkerObjects { local_queues: BTreeMap::new(), ..complete() };
    let decision = worker_objects(&hub(), &worker, &claimed());
    let spec = json!({"clusterQueue": "research", "stopPolicy": "None"});
    let local_queue = ObjectRef::LocalQueue(key("team-a", "main"));
    assert_eq!(
        steps(&decision),
        [create(local_queue, json!({"metadata": {"labels": ours()}, "spec": spec}))]
    );
}

#[test]
fn a_complete_worker_needs_nothing() {
    assert_eq!(worker_objects(&hub(), &complete(), &claimed()), Decision::default());
}

#[test]
fn ours_are_kept_in_step() {
    let mut worker = complete();
    worker.namespaces.insert("team-a".to_owned(), object(Owner::Ours, labels_of(&[("x", "y")])));
    let changed = fields_of(&json!({"nodeLabels": {"pool": "old"}, "nodeTaints": [{"key": "k"}]}));
    worker.flavors.insert(flavor("spot"), object(Owner::Ours, changed));
    let class = PriorityClass { value: 1, description: "odd".to_owned() };
    worker.priority_classes.insert("high".to_owned(), object(Owner::Ours, class));
    let held = LocalQueueSpec::new("research", Some("Hold"), Some(Map::new()));
    worker.local_queues.insert(key("team-a", "main"), local_queue(Owner::Ours, held, 0));
    assert_eq!(
        steps(&worker_objects(&hub(), &worker, &claimed())),
        [
            patch(ObjectRef::Namespace("team-a".to_owned()), &json!({"metadata": {"labels": {"team": "a"}}})),
            patch(
                ObjectRef::Flavor(flavor("spot")),
                &json!({"spec": {"nodeTaints": null, "nodeLabels": {"pool": "spot"}}})
            ),
            patch(ObjectRef::PriorityClass("high".to_owned()), &json!({"description": null, "value": 10})),
            patch(
                ObjectRef::LocalQueue(key("team-a", "main")),
                &json!({"spec": {"fairSharing": null, "stopPolicy": "None"}})
            ),
        ]
    );
}

#[test]
fn what_is_foreign_is_reported_where_it_matters_and_never_written() {
    let mut worker = complete();
    worker.namespaces.insert("team-a".to_owned(), object(Owner::Foreign, labels_of(&[("team", "b")])));
    worker.flavors.insert(flavor("spot"), object(Owner::Foreign, Map::new()));
    let class = PriorityClass { value: 1, description: String::new() };
    worker.priority_classes.insert("high".to_owned(), object(Owner::Foreign, class));
    let other = LocalQueueSpec::new("other", None, None);
    worker.local_queues.insert(key("team-a", "main"), local_queue(Owner::Foreign, other, 0));
    let decision = worker_objects(&hub(), &worker, &claimed());
    assert_eq!(steps(&decision), []);
    assert_eq!(
        problems(&decision),
        [
            Problem::PriorityClassDiffers { name: "high".to_owned(), hub: 10, worker: 1 },
            Problem::NamespaceNotSelected { namespace: "team-a".to_owned(), keys: vec!["team".to_owned()] },
            Problem::LocalQueueConflict {
                namespace: "team-a".to_owned(),
                name: "main".to_owned(),
                leads_to: "other".to_owned()
            },
        ]
    );

    // Nor when nothing is claimed any more.
    assert_eq!(steps(&worker_objects(&hub(), &worker, &Claimed::new())), []);
}

#[test]
fn a_foreign_local_queue_to_the_same_queue_will_do() {
    let mut worker = complete();
    let held = LocalQueueSpec::new("research", Some("Hold"), None);
    worker.local_queues.insert(key("team-a", "main"), local_queue(Owner::Foreign, held, 0));
    assert_eq!(worker_objects(&hub(), &worker, &claimed()), Decision::default());
}

#[test]
fn what_is_handed_over_is_labelled_once() {
    let mut worker = complete();
    worker.namespaces.insert("team-a".to_owned(), object(Owner::HandedOver, labels_of(&[])));
    let mut labels = ours();
    labels["team"] = json!("a");
    assert_eq!(
        steps(&worker_objects(&hub(), &worker, &claimed())),
        [patch(
            ObjectRef::Namespace("team-a".to_owned()),
            &json!({"metadata": {"labels": labels, "annotations": {"fedq.dev/adopt": null}}})
        )]
    );
}

#[test]
fn what_nobody_claims_is_held_then_deleted_when_empty() {
    let object = ObjectRef::LocalQueue(key("team-a", "main"));
    let mut worker = complete();
    let decision = worker_objects(&hub(), &worker, &Claimed::new());
    assert_eq!(steps(&decision), [patch(object.clone(), &json!({"spec": {"stopPolicy": "Hold"}}))]);

    let held = LocalQueueSpec::new("research", Some("Hold"), None);
    let with = |workloads| {
        let content = WorkerLocalQueue { spec: held.clone(), workloads };
        BTreeMap::from([(key("team-a", "main"), Object { owner: Owner::Ours, deleting: false, content })])
    };
    worker.local_queues = with(Some(2));
    let decision = worker_objects(&hub(), &worker, &Claimed::new());
    assert_eq!(steps(&decision), []);
    let in_use =
        Problem::LocalQueueInUse { namespace: "team-a".to_owned(), name: "main".to_owned(), workloads: 2 };
    assert_eq!(problems(&decision), [in_use]);

    worker.local_queues = with(None);
    assert_eq!(worker_objects(&hub(), &worker, &Claimed::new()), Decision::default());

    worker.local_queues = with(Some(0));
    let decision = worker_objects(&hub(), &worker, &Claimed::new());
    assert_eq!(steps(&decision), [(object, Step::Delete)]);

    // At last what only queues needed; the namespace stays.
    worker.local_queues.clear();
    worker.used_flavors.clear();
    worker.has_our_queues = false;
    let decision = worker_objects(&hub(), &worker, &Claimed::new());
    let expected = [ObjectRef::Flavor(flavor("spot")), ObjectRef::PriorityClass("high".to_owned())];
    assert_eq!(steps(&decision), expected.map(|object| (object, Step::Delete)));
}

#[test]
fn a_local_queue_that_leads_elsewhere_is_made_anew() {
    let mut worker = complete();
    let other = LocalQueueSpec::new("other", None, None);
    worker.local_queues.insert(key("team-a", "main"), local_queue(Owner::Ours, other, 0));
    let object = ObjectRef::LocalQueue(key("team-a", "main"));
    let decision = worker_objects(&hub(), &worker, &claimed());
    assert_eq!(steps(&decision), [patch(object.clone(), &json!({"spec": {"stopPolicy": "Hold"}}))]);

    let held = LocalQueueSpec::new("other", Some("Hold"), None);
    worker.local_queues.insert(key("team-a", "main"), local_queue(Owner::Ours, held, 0));
    assert_eq!(steps(&worker_objects(&hub(), &worker, &claimed())), [(object, Step::Delete)]);
}

#[test]
fn nothing_is_removed_while_the_hub_cannot_be_read_whole() {
    let hub = HubObjects { local_queues: BTreeMap::new(), partial: true, ..hub() };
    let worker = WorkerObjects { used_flavors: BTreeSet::new(), ..complete() };
    assert_eq!(steps(&worker_objects(&hub, &worker, &Claimed::new())), []);
}

#[test]
fn an_object_that_is_going_is_waited_for() {
    let mut worker = complete();
    worker.local_queues.clear();
    for namespace in worker.namespaces.values_mut() {
        namespace.deleting = true;
    }
    for flavor in worker.flavors.values_mut() {
        (flavor.deleting, flavor.content) = (true, Map::new());
    }
    let decision = worker_objects(&hub(), &worker, &claimed());
    assert_eq!(steps(&decision), []);
    assert_eq!(problems(&decision), [Problem::NamespaceTerminating { namespace: "team-a".to_owned() }]);
}

#[test]
fn a_flavor_with_a_topology_changes_its_taints_only() {
    let mut hub = hub();
    let spec = json!({"nodeLabels": {"pool": "spot"}, "topologyName": "racks"});
    hub.flavors.insert(flavor("spot"), fields_of(&spec));
    let mut worker = complete();
    worker.flavors.insert(flavor("spot"), object(Owner::Ours, fields_of(&spec)));
    let missing = Problem::TopologyMissing { flavor: flavor("spot"), topology: "racks".to_owned() };
    assert_eq!(problems(&worker_objects(&hub, &worker, &claimed())), [missing]);

    worker.topologies.insert("racks".to_owned());
    let mut tainted = spec.clone();
    tainted["nodeTaints"] = json!([{"key": "gpu", "effect": "NoSchedule"}]);
    hub.flavors.insert(flavor("spot"), fields_of(&tainted));
    let decision = worker_objects(&hub, &worker, &claimed());
    let taints = json!({"spec": {"nodeTaints": tainted["nodeTaints"]}});
    assert_eq!(steps(&decision), [patch(ObjectRef::Flavor(flavor("spot")), &taints)]);

    hub.flavors.insert(flavor("spot"), fields_of(&json!({"nodeLabels": {"pool": "new"}})));
    let decision = worker_objects(&hub, &worker, &claimed());
    assert_eq!(steps(&decision), []);
    assert_eq!(problems(&decision), [Problem::FlavorUnchangeable { flavor: flavor("spot") }]);
}

#[test]
fn a_cohort_with_quota_of_its_own_is_reported_with_those_above() {
    let mut hub = hub();
    hub.queues.insert(queue("research"), HubQueue { cohort: Some("lab".to_owned()), namespaces: None });
    let cohort =
        |parent: Option<&str>, has_quota| CohortFacts { parent: parent.map(str::to_owned), has_quota };
    hub.cohorts = [("lab".to_owned(), cohort(Some("all"), false))].into();
    let mut worker = complete();
    // A cycle ends.
    worker.cohorts = [("all".to_owned(), cohort(Some("lab"), true))].into();
    let expected = Problem::CohortHasQuota { cohort: "all".to_owned(), on_hub: false };
    assert_eq!(problems(&worker_objects(&hub, &worker, &claimed())), [expected]);
}

#[test]
fn a_label_that_the_hub_took_off_goes_from_ours() {
    let mut hub = hub();
    hub.namespaces.insert("team-a".to_owned(), Labels::new());
    let decision = worker_objects(&hub, &complete(), &claimed());
    let namespace = ObjectRef::Namespace("team-a".to_owned());
    assert_eq!(steps(&decision), [patch(namespace, &json!({"metadata": {"labels": {"team": null}}}))]);
}

#[test]
fn no_local_queue_goes_into_a_namespace_of_the_system_and_what_is_there_is_cleared_away() {
    for namespace in ["kube-system", "kube-public", "kueue-system", "fedq-system"] {
        let mut hub = hub();
        let spec = LocalQueueSpec::new("research", None, None);
        hub.local_queues.insert(key(namespace, "main"), spec.clone());
        hub.namespaces.insert(namespace.to_owned(), labels_of(&[("team", "a")]));
        let mut worker = complete();
        let without = worker_objects(&hub, &worker, &claimed());
        assert_eq!(problems(&without), [Problem::SystemNamespace { namespace: namespace.to_owned() }]);
        assert!(without.wanted.is_empty(), "not even its namespace: {:?}", without.wanted);
        worker.namespaces.insert(namespace.to_owned(), object(Owner::Foreign, labels_of(&[("team", "a")])));
        assert!(worker_objects(&hub, &worker, &claimed()).wanted.is_empty());
        // From a version that did not know better.
        worker.local_queues.insert(key(namespace, "main"), local_queue(Owner::Ours, spec, 0));
        let wanted = worker_objects(&hub, &worker, &claimed()).wanted;
        assert_eq!(wanted.len(), 1, "it is held first");
        assert_eq!(wanted[0].object, ObjectRef::LocalQueue(key(namespace, "main")));
    }
    let mut hub = hub();
    hub.local_queues = [(key("kubeflow", "main"), LocalQueueSpec::new("research", None, None))].into();
    hub.namespaces.insert("kubeflow".to_owned(), Labels::new());
    assert!(problems(&worker_objects(&hub, &complete(), &claimed())).is_empty(), "a name like any other");
}
