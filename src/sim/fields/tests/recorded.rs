//! Answers of a real server: `recorded.jsonl` holds random requests to kube-apiserver 1.36.3 for a custom
//! resource with a list of each kind, each with the object before and after it or the refusal. What
//! servers make up (versions, UIDs) is left out.

use super::super::merge_patch;
use super::*;

const THINGS: Schema = Schema {
    lists: &[("spec.list", ListKind::Map(&["name"])), ("spec.set", ListKind::Set)],
    atomic_maps: &[],
};

/// What our functions make of a recorded request.
fn answer(step: &Value) -> Result<Value, ApplyError> {
    let (op, body) = (step["op"].as_str().expect("an op"), &step["body"]);
    let before = Some(&step["before"]).filter(|before| !before.is_null());
    let writer = Writer {
        manager: step["manager"].as_str().expect("a manager"),
        api_version: "t.io/v1",
        subresource: op.ends_with("status").then_some("status"),
        now: at(0),
    };
    let mut after = before.cloned().unwrap_or_default();
    match op {
        "apply" | "applystatus" => return apply(before, body, &writer, step["force"] == true, &THINGS),
        "create" => after.clone_from(body),
        "merge" => merge_patch(&mut after, body),
        "status" => after["status"] = body["status"].clone(),
        _ => {
            let status = after.get("status").cloned();
            after.clone_from(body);
            if let Some(status) = status {
                after["status"] = status;
            }
        }
    }
    Ok(track(before, after, &writer, &THINGS))
}

/// That an entry has a time is compared, which time it is not; nor the order, which follows from it.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(entries) = object["metadata"]["managedFields"].as_array_mut() {
        for time in entries.iter_mut().filter_map(|entry| entry.get_mut("time")) {
            *time = json!("some");
        }
        entries.sort_by_key(|entry| {
            [&entry["manager"], &entry["operation"], entry.get("subresource").unwrap_or(&Value::Null)]
                .map(ToString::to_string)
        });
    }
    object
}

/// Servers list managers of one operation in no order.
fn lines(message: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = message.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn answers_are_those_of_a_real_server() {
    for line in include_str!("recorded.jsonl").lines() {
        let step: Value = serde_json::from_str(line).unwrap();
        match answer(&step) {
            Ok(object) => assert_eq!(comparable(&object), comparable(&step["after"]), "{line}"),
            Err(error) => {
                let refused = step["refused"].as_str().unwrap_or_default();
                assert_eq!(lines(&error.to_string()), lines(refused), "{line}");
            }
        }
    }
}
