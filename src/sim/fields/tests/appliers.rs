//! Server-side apply, by one and by several.

use super::*;

/// merge/multiple_appliers_test.go: "multiple_appliers_one_deletes_structs_list_item".
#[test]
fn an_item_of_two_appliers_stays_when_one_gives_it_up() {
    let live = applied(&[
        ("one", json!({"list": [{"name": "a"}, {"name": "b", "value": 1}]})),
        ("two", json!({"list": [{"name": "b", "value": 1}, {"name": "c"}]})),
        ("one", json!({"list": [{"name": "a"}]})),
    ]);
    assert_eq!(bare(&live)["list"], json!([{"name": "a"}, {"name": "b", "value": 1}, {"name": "c"}]));
    // The last apply changed the owners only, so it left no new time and its entry stays first.
    let expected = json!([
        ["one", "Apply", {"f:list": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}}}],
        ["two", "Apply", {"f:list": {
            "k:{\"name\":\"b\"}": {".": {}, "f:name": {}, "f:value": {}},
            "k:{\"name\":\"c\"}": {".": {}, "f:name": {}},
        }}],
    ]);
    assert_eq!(owners(&live), expected);
}

/// merge/multiple_appliers_test.go: "remove_one_keep_one_with_two_sub_items" and its neighbours.
#[test]
fn an_item_that_others_own_a_part_of_keeps_that_part() {
    let live = applied(&[
        ("one", json!({"list": [{"name": "a"}, {"name": "b", "value": {"x": 1}}]})),
        ("two", json!({"list": [{"name": "b", "value": {"y": 2}}]})),
        ("one", json!({"list": [{"name": "a"}]})),
    ]);
    assert_eq!(bare(&live)["list"], json!([{"name": "a"}, {"name": "b", "value": {"y": 2}}]));
}

/// merge/set_test.go: "apply_twice_remove".
#[test]
fn a_member_of_a_set_goes_when_its_applier_leaves_it_out() {
    let live =
        applied(&[("one", json!({"set": ["a", "b", "c", "d"]})), ("one", json!({"set": ["a", "c", "e"]}))]);
    assert_eq!(bare(&live), json!({"set": ["a", "c", "e"]}));
    assert_eq!(
        owners(&live),
        json!([["one", "Apply", {"f:set": {"v:\"a\"": {}, "v:\"c\"": {}, "v:\"e\"": {}}}]])
    );
}

/// merge/set_test.go: "apply_update_apply_no_overlap".
#[test]
fn what_an_update_added_to_a_set_stays() {
    let live = applied(&[("one", json!({"set": ["a", "b"]}))]);
    let live = updated(&live, json!({"set": ["a", "ab", "b"]}), "controller");
    let live = applied_to(&live, "one", &json!({"set": ["a", "b", "c"]})).unwrap();
    assert_eq!(bare(&live), json!({"set": ["a", "ab", "b", "c"]}));
}

/// merge/leaf_test.go: "apply_twice_remove", "apply_update_apply_with_overlap".
#[test]
fn a_changed_leaf_of_somebody_else_is_a_conflict() {
    let live = applied(&[("one", json!({"a": 1, "b": 2})), ("one", json!({"a": 1}))]);
    assert_eq!(bare(&live), json!({"a": 1}));
    let live = updated(&live, json!({"a": 5, "metadata": live["metadata"]}), "controller");
    assert_eq!(owners(&live), json!([["controller", "Update", {"f:a": {}}]]));
    let error = applied_to(&live, "one", &json!({"a": 1})).unwrap_err();
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"controller\" using v1: .a");
    let live = forced(&live, "one", &json!({"a": 1}));
    assert_eq!(owners(&live), json!([["one", "Apply", {"f:a": {}}]]));
}

/// merge/leaf_test.go: "apply_update_apply_with_overlap_and_same_value".
#[test]
fn equal_values_are_shared() {
    let live = applied(&[("one", json!({"a": "x"})), ("two", json!({"a": "x"}))]);
    assert_eq!(owners(&live).as_array().unwrap().len(), 2);
    // Nothing changed for the second: it owns without a time, and comes first.
    assert_eq!(time_of(&live, "two"), Value::Null);
    assert_eq!(owners(&live)[0][0], "two");
    let live = applied_to(&live, "one", &json!({})).unwrap();
    assert_eq!(bare(&live), json!({"a": "x"}));
    let live = applied_to(&live, "two", &json!({})).unwrap();
    assert_eq!(bare(&live), json!({}));
}

/// merge/nested_test.go: "struct_apply_remove_all", "struct_apply_remove_dangling".
#[test]
fn a_container_goes_with_its_last_owner_and_takes_along_what_nobody_owns() {
    let live = applied(&[("one", json!({"struct": {"name": "a", "inner": {"value": 1}}}))]);
    assert_eq!(bare(&applied_to(&live, "one", &json!({})).unwrap()), json!({}));

    let mut dangling = live.clone();
    dangling["struct"]["inner"]["other"] = json!(2);
    assert_eq!(bare(&applied_to(&dangling, "one", &json!({})).unwrap()), json!({}));
    // Where it keeps another field of the container, the dangling one stays.
    let kept = applied_to(&dangling, "one", &json!({"struct": {"inner": {"value": 1}}})).unwrap();
    assert_eq!(bare(&kept), json!({"struct": {"inner": {"value": 1, "other": 2}}}));
}

/// merge/nested_test.go: "struct_apply_update_remove_all".
#[test]
fn what_an_update_put_into_an_appliers_container_stays() {
    let live = applied(&[("one", json!({"struct": {"name": "a"}}))]);
    let live = updated(&live, json!({"struct": {"name": "a", "value": 1}}), "controller");
    let live = applied_to(&live, "one", &json!({})).unwrap();
    assert_eq!(bare(&live), json!({"struct": {"value": 1}}));
}

/// typed/merge_test.go: associative lists, orders of old and new items.
#[test]
fn merged_lists_take_the_order_of_the_configuration() {
    let items =
        |names: &str| -> Value { names.chars().map(|name| json!({"name": name.to_string()})).collect() };
    let cases = [
        ("abc", "", "abc"),
        ("abc", "c", "abc"),
        ("axb", "ba", "xba"),
        ("ab", "xay", "xaby"),
        ("abcd", "dbx", "acdbx"),
    ];
    for (live, config, expected) in cases {
        let live = json!({"list": items(live)});
        let live = applied_to(&live, "one", &json!({"list": items(config)})).unwrap();
        assert_eq!(live["list"], items(expected), "{config}");
    }
}

/// merge/default_keys_test.go: "apply_missing_defaulted_key_A".
#[test]
fn a_key_that_is_left_out_has_its_default() {
    let live = applied(&[("one", json!({"ports": [{"port": 80}]}))]);
    let expected = json!([["one", "Apply", {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}]]);
    assert_eq!(owners(&live), expected);
    let live = applied_to(&live, "two", &json!({"ports": [{"port": 80, "protocol": "UDP"}]})).unwrap();
    assert_eq!(live["ports"].as_array().unwrap().len(), 2);
}

/// apimachinery internal/fieldmanager_test.go: "TestNoOpChanges".
#[test]
fn an_apply_that_changes_nothing_keeps_times() {
    let config = json!({"a": 1, "metadata": {"name": "x", "labels": {"l": "1"}}});
    let live = applied(&[("one", config.clone())]);
    assert_eq!(time_of(&live, "one"), "2023-11-14T22:13:20Z");
    assert_eq!(applied_to(&live, "one", &config).unwrap(), live);
    let changed = applied_to(&live, "one", &json!({"a": 2})).unwrap();
    assert_eq!(time_of(&changed, "one"), "2023-11-14T22:15:00Z");
}

/// apimachinery internal/skipnonapplied.go; fieldmanager_test.go: "TestApplyUsingBeforeFirstApply…".
#[test]
fn what_was_there_before_the_first_apply_has_an_owner() {
    let live = json!({"a": 1, "b": 1});
    let live = applied_to(&live, "one", &json!({"b": 1, "c": 1})).unwrap();
    let expected = json!([
        ["one", "Apply", {"f:b": {}, "f:c": {}}],
        ["before-first-apply", "Update", {"f:a": {}, "f:b": {}}],
    ]);
    assert_eq!(owners(&live), expected);
    let error = applied_to(&json!({"a": 1}), "one", &json!({"a": 2})).unwrap_err();
    assert!(error.to_string().contains("conflict with \"before-first-apply\" using v1: .a"), "{error}");
}

/// apimachinery internal/stripmeta.go.
#[test]
fn names_and_versions_have_no_owner() {
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "x", "namespace": "d", "uid": "u", "annotations": {"n": "1"}, "finalizers": ["f"]},
    });
    let live = applied(&[("one", config)]);
    let expected = json!([["one", "Apply", {"f:metadata": {
        "f:annotations": {"f:n": {}}, "f:finalizers": {"v:\"f\"": {}},
    }}]]);
    assert_eq!(owners(&live), expected);
    let nothing =
        applied(&[("one", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}))]);
    assert_eq!(nothing["metadata"], json!({"name": "x"}));
}

#[test]
fn atomic_maps_and_owner_references_are_owned_whole() {
    let live = applied(&[(
        "one",
        json!({"whole": {"a": 1, "b": 2}, "metadata": {"ownerReferences": [{"uid": "u", "name": "n"}]}}),
    )]);
    let expected = json!([["one", "Apply", {
        "f:metadata": {"f:ownerReferences": {"k:{\"uid\":\"u\"}": {}}}, "f:whole": {},
    }]]);
    assert_eq!(owners(&live), expected);
    assert_eq!(bare(&forced(&live, "two", &json!({"whole": {"c": 3}})))["whole"], json!({"c": 3}));
}

#[test]
fn an_empty_map_is_owned_without_keys() {
    let live = applied(&[("one", json!({"map": {}})), ("two", json!({"map": {"cpu": "1"}}))]);
    let expected = json!([["one", "Apply", {"f:map": {}}], ["two", "Apply", {"f:map": {"f:cpu": {}}}]]);
    assert_eq!(owners(&live), expected);
    // The key goes; the map goes too, as the first owns a map and two's set names its parent.
    let live = applied_to(&live, "two", &json!({})).unwrap();
    assert_eq!(owners(&live), json!([["one", "Apply", {"f:map": {}}]]));
}

#[test]
fn a_null_says_nothing_of_what_is_there() {
    let live = applied(&[("one", json!({"map": {"a": 1}, "b": 1}))]);
    let live = applied_to(&live, "two", &json!({"map": null, "c": null})).unwrap();
    assert_eq!(bare(&live), json!({"map": {"a": 1}, "b": 1}));
}

#[test]
fn subresources_and_operations_have_entries_of_their_own() {
    let live = applied(&[("one", json!({"a": 1}))]);
    let status = Writer { subresource: Some("status"), ..writer("one", 5) };
    let live = apply(Some(&live), &json!({"status": {"b": 1}}), &status, false, &SCHEMA).unwrap();
    let live = updated(&live, json!({"a": 1, "c": 1, "status": {"b": 1}}), "one");
    let expected = json!([
        ["one", "Apply", {"f:a": {}}],
        ["one", "Apply", {"f:status": {"f:b": {}}}],
        ["one", "Update", {"f:c": {}}],
    ]);
    assert_eq!(owners(&live), expected);
    assert_eq!(live["metadata"]["managedFields"][1]["subresource"], "status");
}

/// merge/duplicates_test.go: live objects may hold what nobody may apply.
#[test]
fn a_live_list_with_duplicates_is_left_alone() {
    let live = created(json!({"list": [{"name": "a", "v": 1}, {"name": "a", "v": 2}, {"name": "b"}]}), "old");
    assert_eq!(owners(&live)[0][2]["f:list"]["k:{\"name\":\"a\"}"], json!({}));
    let live = applied_to(&live, "one", &json!({"list": [{"name": "c"}]})).unwrap();
    assert_eq!(live["list"].as_array().unwrap().len(), 4);
    let live = forced(&live, "one", &json!({"list": [{"name": "a", "v": 3}, {"name": "c"}]}));
    assert_eq!(live["list"], json!([{"name": "a", "v": 3}, {"name": "b"}, {"name": "c"}]));
}
