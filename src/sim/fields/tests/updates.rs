//! Creates, updates and patches.

use super::*;

#[test]
fn a_creator_owns_what_it_wrote_with_its_containers() {
    let live = created(
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n", "labels": {"a/b": "1"}, "finalizers": ["x"]},
            "limits": {"cpu": {}, "replicas": 1}, "list": [{"name": "a"}], "atomic": [1, 2],
        }),
        "kubectl-create",
    );
    let expected = json!([["kubectl-create", "Update", {
    "f:atomic": {},
    "f:limits": {".": {}, "f:cpu": {}, "f:replicas": {}},
    "f:list": {".": {}, "k:{\"name\":\"a\"}": {".": {}, "f:name": {}}},
    "f:metadata": {
        "f:finalizers": {".": {}, "v:\"x\"": {}},
        "f:labels": {".": {}, "f:a/b": {}},
    },
        }]]);
    assert_eq!(owners(&live), expected);
    let entry = &live["metadata"]["managedFields"][0];
    let expected = "{\"manager\":\"kubectl-create\",\"operation\":\"Update\",\"apiVersion\":\"v1\",\
        \"time\":\"2023-11-14T22:13:20Z\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":";
    assert!(entry.to_string().starts_with(expected), "{entry}");
}

/// merge/leaf_test.go: "update_apply_omits"; update.go `Update`.
#[test]
fn changed_fields_move_and_removed_fields_leave_everybody() {
    let live = applied(&[("one", json!({"a": 1, "b": 1, "c": 1})), ("two", json!({"b": 1, "c": 1}))]);
    let live = updated(&live, json!({"a": 2, "b": 1, "metadata": live["metadata"]}), "three");
    let expected = json!([["two", "Apply", {"f:b": {}}], ["one", "Apply", {"f:b": {}}], ["three", "Update", {"f:a": {}}]]);
    assert_eq!(owners(&live), expected);
}

#[test]
fn an_update_that_changes_nothing_changes_nothing() {
    let live = created(json!({"a": 1, "metadata": {"resourceVersion": "5"}}), "one");
    assert_eq!(updated(&live, live.clone(), "two"), live);
    // Clients that know nothing of managedFields do not lose them.
    assert_eq!(updated(&live, json!({"a": 1, "metadata": {"resourceVersion": "5"}}), "two"), live);
}

#[test]
fn an_entry_without_fields_vanishes() {
    let live = created(json!({"a": 1}), "one");
    let live = updated(&live, json!({"b": 1}), "two");
    assert_eq!(owners(&live), json!([["two", "Update", {"f:b": {}}]]));
    let live = updated(&live, json!({}), "three");
    assert_eq!(live, json!({}));
}

/// apimachinery internal/managedfieldsupdater.go: only who gains a field gets a new time.
#[test]
fn who_only_removes_keeps_its_time() {
    let live = created(json!({"a": 1, "b": 1}), "one");
    let live = updated(&live, json!({"a": 1}), "one");
    assert_eq!(owners(&live), json!([["one", "Update", {"f:a": {}}]]));
    assert_eq!(time_of(&live, "one"), "2023-11-14T22:13:20Z");
    let live = updated(&live, json!({"a": 1, "c": 1}), "one");
    assert_eq!(owners(&live), json!([["one", "Update", {"f:a": {}, "f:c": {}}]]));
    assert_eq!(time_of(&live, "one"), "2023-11-14T22:15:00Z");
}

/// apimachinery internal/fieldmanager_test.go: "TestResetManagedFields…".
#[test]
fn an_empty_list_or_entry_resets_and_tracking_starts_again_with_an_apply() {
    let live = created(json!({"a": 1}), "one");
    for reset in [json!([]), json!([{}])] {
        let bare = updated(&live, json!({"a": 2, "metadata": {"managedFields": reset}}), "two");
        assert_eq!(bare["metadata"], json!({}));
        let bare = updated(&bare, json!({"a": 3}), "two");
        assert_eq!(owners(&bare), json!([]));
        let live = applied_to(&bare, "three", &json!({"b": 1})).unwrap();
        assert_eq!(owners(&live)[1], json!(["before-first-apply", "Update", {"f:a": {}}]));
    }
}

#[test]
fn an_empty_list_resets_no_custom_resource() {
    let custom = |manager| Writer { api_version: "kueue.x-k8s.io/v1beta2", ..writer(manager, 1) };
    let live = track(None, json!({"a": 1}), &custom("one"), &SCHEMA);
    let reset = |list: Value| json!({"a": 1, "metadata": {"managedFields": list}});
    assert_eq!(track(Some(&live), reset(json!([])), &custom("two"), &SCHEMA), live);
    assert_eq!(owners(&track(Some(&live), reset(json!([{}])), &custom("two"), &SCHEMA)), json!([]));
}

/// What kube-apiserver 1.36 answers for a Job and for a custom resource.
#[test]
fn the_parts_a_built_in_kind_always_has_belong_to_nobody() {
    let object = json!({"spec": {"template": {"spec": {"n": 1}}, "selector": {"x": 1}}});
    let fields = |api_version| {
        let live = track(None, object.clone(), &Writer { api_version, ..writer("one", 0) }, &SCHEMA);
        owners(&live)[0][2].clone()
    };
    let built_in =
        json!({"f:spec": {"f:selector": {".": {}, "f:x": {}}, "f:template": {"f:spec": {"f:n": {}}}}});
    let custom = json!({"f:spec": {
        ".": {}, "f:selector": {".": {}, "f:x": {}}, "f:template": {".": {}, "f:spec": {".": {}, "f:n": {}}},
    }});
    for api_version in ["v1", "batch/v1", "coordination.k8s.io/v1"] {
        assert_eq!(fields(api_version), built_in, "{api_version}");
    }
    for api_version in ["kueue.x-k8s.io/v1beta2", "galaxy.kubestellar.io/v1alpha1"] {
        assert_eq!(fields(api_version), custom, "{api_version}");
    }
}

#[test]
fn empty_labels_are_no_labels() {
    let live = created(json!({"a": 1, "metadata": {"name": "x", "labels": {}, "finalizers": []}}), "one");
    assert_eq!(owners(&live), json!([["one", "Update", {"f:a": {}}]]));
    assert_eq!(bare(&live)["metadata"], json!({"name": "x"}));
    let live = applied(&[("one", json!({"metadata": {"name": "x", "labels": {}}}))]);
    assert_eq!(owners(&live), json!([["one", "Apply", {"f:metadata": {"f:labels": {}}}]]));
    assert_eq!(bare(&live)["metadata"], json!({"name": "x"}));
}

/// apimachinery internal/fieldmanager.go: `decodeLiveOrNew`.
#[test]
fn clients_may_edit_managed_fields_but_not_through_a_subresource() {
    let live = created(json!({"a": 1}), "one");
    let mut edited = live.clone();
    edited["metadata"]["managedFields"][0]["manager"] = json!("renamed");
    assert_eq!(owners(&updated(&live, edited.clone(), "two")), json!([["renamed", "Update", {"f:a": {}}]]));
    let status = Writer { subresource: Some("status"), ..writer("two", 1) };
    assert_eq!(track(Some(&live), edited, &status, &SCHEMA), live);
    let mut broken = live.clone();
    broken["metadata"]["managedFields"][0]["operation"] = json!("Guess");
    assert_eq!(updated(&live, broken, "two"), live);
}

/// apimachinery internal/capmanagers_test.go: "TestCapManagersManagerMergesEntries".
#[test]
fn the_oldest_updaters_are_merged_above_ten() {
    let mut object = json!({"f0": 0});
    let mut live = created(object.clone(), "m0");
    for n in 1..12 {
        object[format!("f{n}")] = json!(n);
        let manager = format!("m{n}");
        live = track(Some(&live), object.clone(), &writer(&manager, n), &SCHEMA);
    }
    let owners = owners(&live);
    assert_eq!(owners.as_array().unwrap().len(), 10);
    assert_eq!(owners[0], json!(["ancient-changes", "Update", {"f:f0": {}, "f:f1": {}, "f:f2": {}}]));
    assert_eq!(time_of(&live, "ancient-changes"), "2023-11-14T22:13:22Z");
}

/// typed/symdiff_test.go: a map becomes a scalar, a list item changes its key.
#[test]
fn a_field_that_changes_its_type_changes_its_owner() {
    let live = created(json!({"x": {"a": 1}, "y": 1, "z": null}), "one");
    let live = updated(&live, json!({"x": 1, "y": {"a": 1}, "z": {"b": 1}}), "two");
    let expected = json!([
        ["one", "Update", {"f:z": {}}],
        ["two", "Update", {"f:x": {}, "f:y": {".": {}, "f:a": {}}, "f:z": {"f:b": {}}}],
    ]);
    assert_eq!(owners(&live), expected);
}

#[test]
fn versions_of_an_updater_are_apart_and_those_of_an_applier_are_not() {
    let v2 = |manager| Writer { api_version: "v2", ..writer(manager, 9) };
    let live = created(json!({"a": 1}), "one");
    let live = track(Some(&live), json!({"a": 1, "b": 1}), &v2("one"), &SCHEMA);
    assert_eq!(owners(&live).as_array().unwrap().len(), 2);
    let live = applied(&[("one", json!({"a": 1}))]);
    let live = apply(Some(&live), &json!({"b": 1}), &v2("one"), false, &SCHEMA).unwrap();
    assert_eq!(owners(&live), json!([["one", "Apply", {"f:b": {}}]]));
    assert_eq!(live["metadata"]["managedFields"][0]["apiVersion"], "v2");
}
