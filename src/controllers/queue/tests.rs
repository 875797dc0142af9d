use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value, json};

use super::{MANAGER, render};
use fedq_domain::queue::objects::{ObjectRef, Step, Wanted};
use fedq_k8s::{
    read::queues::WorkerSnapshot,
    write::{Action, Change, Kind, Target},
};
use fedq_values::ids::FlavorName;

fn fields(of: &Value) -> Map<String, Value> {
    of.as_object().cloned().expect("an object")
}

fn local_queue() -> ObjectRef {
    ObjectRef::LocalQueue(("team-a".to_owned(), "main".to_owned()))
}

/// A worker with one LocalQueue, `team-a/main`.
fn snapshot() -> WorkerSnapshot {
    let queue = json!({
        "metadata": {"namespace": "team-a", "name": "main", "uid": "u-1", "resourceVersion": "41"},
        "spec": {"clusterQueue": "research"},
    });
    let queue = serde_json::from_value(queue).expect("a LocalQueue");
    WorkerSnapshot {
        namespaces: BTreeMap::new(),
        local_queues: [(("team-a".to_owned(), "main".to_owned()), Arc::new(queue))].into(),
        flavors: BTreeMap::new(),
        priority_classes: BTreeMap::new(),
    }
}

fn rendered(object: ObjectRef, step: Step) -> Option<Change> {
    render::change(Wanted { object, step }, &snapshot())
}

#[test]
fn what_is_made_has_its_kind_and_name() {
    let labels = json!({"fedq.dev/hub": "hub-1"});
    let new = |rest: &Value| {
        Step::Create({
            let mut all = fields(&json!({"metadata": {"labels": labels}}));
            all.extend(fields(rest));
            all
        })
    };
    let cases = [
        (
            ObjectRef::Namespace("team-a".to_owned()),
            json!({}),
            Target::cluster_scoped(Kind::Namespace, "team-a"),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"labels": labels, "name": "team-a"}}),
        ),
        (
            ObjectRef::Flavor(FlavorName::new("spot").expect("a name")),
            json!({"spec": {"nodeLabels": {"pool": "spot"}}}),
            Target::cluster_scoped(Kind::ResourceFlavor, "spot"),
            json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor",
                "metadata": {"labels": labels, "name": "spot"}, "spec": {"nodeLabels": {"pool": "spot"}},
            }),
        ),
        (
            ObjectRef::PriorityClass("high".to_owned()),
            json!({"value": 10}),
            Target::cluster_scoped(Kind::WorkloadPriorityClass, "high"),
            json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
                "metadata": {"labels": labels, "name": "high"}, "value": 10,
            }),
        ),
        (
            local_queue(),
            json!({"spec": {"clusterQueue": "research"}}),
            Target::namespaced(Kind::LocalQueue, "team-a", "main"),
            json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
                "metadata": {"labels": labels, "name": "main", "namespace": "team-a"},
                "spec": {"clusterQueue": "research"},
            }),
        ),
    ];
    for (object, rest, target, body) in cases {
        let change = rendered(object, new(&rest)).expect("a change");
        assert_eq!(change, Change { target, action: Action::Create(body), manager: MANAGER });
    }
}

#[test]
fn a_change_holds_only_for_the_version_it_was_decided_from() {
    let hold = Step::Patch(fields(&json!({"spec": {"stopPolicy": "Hold"}})));
    let change = rendered(local_queue(), hold).expect("a change");
    let patch = json!({"spec": {"stopPolicy": "Hold"}, "metadata": {"resourceVersion": "41"}});
    assert_eq!(change.action, Action::Merge(patch));

    let labelled = Step::Patch(fields(&json!({"metadata": {"labels": {"fedq.dev/hub": "hub-1"}}})));
    let change = rendered(local_queue(), labelled).expect("a change");
    let patch = json!({"metadata": {"labels": {"fedq.dev/hub": "hub-1"}, "resourceVersion": "41"}});
    assert_eq!(change.action, Action::Merge(patch));

    let change = rendered(local_queue(), Step::Delete).expect("a change");
    let delete = Action::Delete { uid: "u-1".to_owned(), resource_version: "41".to_owned() };
    assert_eq!(change.action, delete);
}

#[test]
fn what_is_gone_is_neither_changed_nor_deleted() {
    let gone = || ObjectRef::Namespace("team-b".to_owned());
    assert_eq!(rendered(gone(), Step::Patch(Map::new())), None);
    assert_eq!(rendered(gone(), Step::Delete), None);
}
