//! Refusals, in the words of real servers.

use super::*;

#[test]
fn several_conflicts_are_listed_by_manager() {
    let live =
        applied(&[("one", json!({"a": 1, "list": [{"name": "n", "v": 1}]})), ("two", json!({"b": 1}))]);
    let status = Writer { subresource: Some("status"), ..writer("kubelet", 5) };
    let mut after = live.clone();
    after["status"] = json!({"s": 1});
    let live = track(Some(&live), after, &status, &SCHEMA);

    let config = json!({"a": 2, "b": 2, "list": [{"name": "n", "v": 2}], "status": {"s": 2}});
    let error = applied_to(&live, "three", &config).unwrap_err();
    let expected = "Apply failed with 4 conflicts: \
        conflicts with \"kubelet\" with subresource \"status\" using v1:\n- .status.s\n\
        conflicts with \"one\":\n- .a\n- .list[name=\"n\"].v\n\
        conflicts with \"two\":\n- .b";
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.status(), (409, "Conflict"));
    let ApplyError::Conflicts(conflicts) = error else { panic!("conflicts") };
    let expected =
        json!({"reason": "FieldManagerConflict", "message": "conflict with \"two\"", "field": ".b"});
    assert_eq!(conflicts.causes()[3], expected);
}

/// apimachinery internal/fieldmanager_test.go: "TestApplyFailsWithManagedFields".
#[test]
fn a_configuration_with_managed_fields_is_refused() {
    for fields in [json!([]), json!([{}])] {
        let config = json!({"metadata": {"managedFields": fields}});
        let error = apply(None, &config, &writer("one", 0), false, &SCHEMA).unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.status().0),
            ("metadata.managedFields must be nil", 400)
        );
    }
    let null = json!({"metadata": {"managedFields": null}, "a": 1});
    assert!(apply(None, &null, &writer("one", 0), false, &SCHEMA).is_ok());
}

/// typed/validate_test.go and merge_test.go: duplicates, missing keys, items of the wrong type.
#[test]
fn malformed_lists_are_refused() {
    let object =
        |list: Value| json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "x"}, "list": list});
    let missing = "element 1: associative list with keys has an element that omits all key fields [\"name\"] \
        (and doesn't have default values for any key fields)";
    let cases = [
        (json!([{"name": "a"}, {"name": "a"}]), "duplicate entries for key [name=\"a\"]"),
        (json!([{"name": "a"}, {"v": 1}]), missing),
        (json!([null]), "element 0: associative list with keys may not have a null element"),
        (json!(["a"]), "element 0: associative list with keys may not have non-map elements"),
    ];
    for (list, fault) in cases {
        let error = apply(None, &object(list), &writer("one", 0), true, &SCHEMA).unwrap_err();
        let expected = format!("failed to create typed patch object (/x; g/v1, Kind=K): .list: {fault}");
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.status().0, 500);
    }
}

#[test]
fn malformed_sets_are_refused_with_all_their_faults() {
    let config =
        json!({"kind": "K", "apiVersion": "v1", "set": ["a", "a", [1]], "list": [{"name": 1}, {"name": 1}]});
    let error = apply(None, &config, &writer("one", 0), true, &SCHEMA).unwrap_err().to_string();
    let expected = "failed to create typed patch object (/; /v1, Kind=K): errors:\n  \
        .set: duplicate entries for key [=\"a\"]\n  \
        .set: element 2: not supported: associative list with lists as elements\n  \
        .list: duplicate entries for key [name=1]";
    assert_eq!(error, expected);
    for item in [json!({}), json!(null)] {
        assert!(apply(None, &json!({"set": [item]}), &writer("one", 0), true, &SCHEMA).is_err());
    }
}
