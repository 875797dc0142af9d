//! Merge, JSON and strategic patches.

use super::super::{PatchError, json_patch, merge_patch, strategic_patch};
use super::*;

/// RFC 7386, appendix A.
#[test]
fn merge_patches_of_the_rfc() {
    let cases = [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
        (json!({"a": "b"}), json!(["c"]), json!(["c"])),
        (json!({"a": "foo"}), json!(null), json!(null)),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ];
    for (mut target, patch, expected) in cases {
        merge_patch(&mut target, &patch);
        assert_eq!(target, expected, "{patch}");
    }
}

/// RFC 6902, appendix A.
#[test]
fn json_patches_of_the_rfc() {
    let cases = [
        (json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": 2}]), json!({"a": 1, "b": 2})),
        (json!({"a": [1, 3]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), json!({"a": [1, 2, 3]})),
        (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": [2]}]), json!({"a": [1, [2]]})),
        (json!({"a": 1, "b": 2}), json!([{"op": "remove", "path": "/a"}]), json!({"b": 2})),
        (json!({"a": [1, 2, 3]}), json!([{"op": "remove", "path": "/a/1"}]), json!({"a": [1, 3]})),
        (json!({"a": 1}), json!([{"op": "replace", "path": "/a", "value": 2}]), json!({"a": 2})),
        (
            json!({"a": {"x": 1}, "b": {}}),
            json!([{"op": "move", "from": "/a/x", "path": "/b/y"}]),
            json!({"a": {}, "b": {"y": 1}}),
        ),
        (
            json!({"a": [1, 2, 3]}),
            json!([{"op": "move", "from": "/a/0", "path": "/a/2"}]),
            json!({"a": [2, 3, 1]}),
        ),
        (json!({"a": 1}), json!([{"op": "copy", "from": "/a", "path": "/b"}]), json!({"a": 1, "b": 1})),
        (json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 1}]), json!({"a": 1})),
        (
            json!({"a/b": 1, "m~n": 2}),
            json!([{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/m~0n"}]),
            json!({}),
        ),
        (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": 5}]), json!(5)),
    ];
    for (mut target, patch, expected) in cases {
        json_patch(&mut target, &patch).unwrap();
        assert_eq!(target, expected, "{patch}");
    }
}

#[test]
fn a_json_patch_applies_whole_or_not_at_all() {
    let fails = [
        json!({"op": "add", "path": "/x/y", "value": 1}),
        json!({"op": "add", "path": "/a/9", "value": 1}),
        json!({"op": "add", "path": "/a/01", "value": 1}),
        json!({"op": "add", "path": "/b/c", "value": 1}),
        json!({"op": "remove", "path": "/x"}),
        json!({"op": "remove", "path": "/a/2"}),
        json!({"op": "remove", "path": "/b/c"}),
        json!({"op": "remove", "path": ""}),
        json!({"op": "replace", "path": "/x", "value": 1}),
        json!({"op": "move", "from": "/o", "path": "/o/p"}),
        json!({"op": "copy", "from": "/x", "path": "/y"}),
        json!({"op": "test", "path": "/b", "value": 2}),
    ];
    for operation in fails {
        let mut target = json!({"a": [1, 2], "b": 1, "o": {"p": 1}});
        let patch = json!([{"op": "add", "path": "/new", "value": 1}, operation]);
        assert_eq!(json_patch(&mut target, &patch), Err(PatchError::DoesNotApply), "{patch}");
        assert_eq!(target, json!({"a": [1, 2], "b": 1, "o": {"p": 1}}));
    }
    assert_eq!(PatchError::DoesNotApply.status(), (422, "Invalid"));
}

#[test]
fn json_patches_that_are_none_are_refused() {
    let bad =
        [json!({}), json!([{"op": "add"}]), json!([{"path": "/a"}]), json!([{"op": "swap", "path": "/a"}])];
    for patch in bad {
        assert_eq!(
            json_patch(&mut json!({"a": 1}), &patch).unwrap_err().status(),
            (400, "BadRequest"),
            "{patch}"
        );
    }
    let long: Value = (0..10_001).map(|_| json!({"op": "test", "path": "/a", "value": 1})).collect();
    let error = json_patch(&mut json!({"a": 1}), &long).unwrap_err();
    assert_eq!(error.to_string(), "The allowed maximum operations in a JSON patch is 10000, got 10001");
}

fn patched(target: Value, patch: &Value) -> Result<Value, PatchError> {
    let mut target = target;
    strategic_patch(&mut target, patch, &SCHEMA)?;
    Ok(target)
}

/// apimachinery pkg/util/strategicpatch/patch_test.go: merging and deleting in lists of both kinds.
#[test]
fn strategic_patches_merge_lists_by_key_and_as_sets() {
    let live = || json!({"list": [{"name": "a", "v": 1}, {"name": "b", "v": {"x": 1}}], "set": [1, 2], "atomic": [1, 2]});
    let cases = [
        (
            json!({"list": [{"name": "b", "v": {"y": 2}}, {"name": "c"}]}),
            "list",
            json!([{"name": "a", "v": 1}, {"name": "b", "v": {"x": 1, "y": 2}}, {"name": "c"}]),
        ),
        (json!({"list": [{"$patch": "delete", "name": "a"}]}), "list", json!([{"name": "b", "v": {"x": 1}}])),
        (json!({"list": [{"$patch": "replace"}, {"name": "z"}]}), "list", json!([{"name": "z"}])),
        (
            json!({"list": [{"name": "a", "$patch": "replace", "w": 1}, {"name": "b"}]}),
            "list",
            json!([{"name": "b"}]),
        ),
        (
            json!({"list": [{"name": "a", "v": null}]}),
            "list",
            json!([{"name": "a"}, {"name": "b", "v": {"x": 1}}]),
        ),
        (
            json!({"list": [{"name": "n", "v": null, "w": {"x": null}}]}),
            "list",
            json!([{"name": "a", "v": 1}, {"name": "b", "v": {"x": 1}}, {"name": "n", "w": {}}]),
        ),
        (
            json!({"$setElementOrder/list": [{"name": "b"}, {"name": "a"}]}),
            "list",
            json!([{"name": "b", "v": {"x": 1}}, {"name": "a", "v": 1}]),
        ),
        (json!({"set": [2, 3]}), "set", json!([1, 2, 3])),
        (json!({"$deleteFromPrimitiveList/set": [1]}), "set", json!([2])),
        (json!({"$setElementOrder/set": [3, 2, 1], "set": [3]}), "set", json!([3, 2, 1])),
        (json!({"atomic": [3]}), "atomic", json!([3])),
        (json!({"list": null}), "list", Value::Null),
    ];
    for (patch, field, expected) in cases {
        let result = patched(live(), &patch).unwrap();
        assert_eq!(result.get(field).unwrap_or(&Value::Null), &expected, "{patch}");
        assert!(!result.to_string().contains('$'), "{result}");
    }
}

#[test]
fn strategic_patches_replace_and_retain() {
    let live = || json!({"a": {"x": 1, "y": 2}, "b": 1});
    assert_eq!(patched(live(), &json!({"a": {"$patch": "replace", "z": 3}})).unwrap()["a"], json!({"z": 3}));
    assert_eq!(patched(live(), &json!({"a": {"$patch": "delete"}})).unwrap()["a"], json!({}));
    assert_eq!(patched(live(), &json!({"c": {"$patch": "delete"}})).unwrap().get("c"), None);
    let retain = json!({"a": {"$retainKeys": ["x", "z"], "z": 3}});
    assert_eq!(patched(live(), &retain).unwrap()["a"], json!({"x": 1, "z": 3}));
    assert_eq!(patched(live(), &json!({"a": 5, "b": {"c": null}})).unwrap(), json!({"a": 5, "b": {}}));
}

#[test]
fn strategic_patches_that_make_no_sense_are_refused() {
    let live = || json!({"list": [{"name": "a"}], "set": [1]});
    let error = patched(live(), &json!({"list": [{"v": 1}]})).unwrap_err();
    assert_eq!(error.to_string(), "map: {\"v\":1} does not contain declared merge key: name");
    let bad = [
        json!([]),
        json!({"$patch": "mix"}),
        json!({"list": [{"$patch": "delete"}]}),
        json!({"list": [{"$patch": "mix", "name": "a"}]}),
        json!({"list": [1]}),
        json!({"$deleteFromPrimitiveList/set": 1}),
        json!({"$setElementOrder/list": 1}),
        json!({"$retainKeys": ["list"], "set": [2]}),
        json!({"$retainKeys": 1}),
    ];
    for patch in bad {
        let mut target = live();
        assert!(strategic_patch(&mut target, &patch, &SCHEMA).is_err(), "{patch}");
        assert_eq!(target, live());
    }
}
