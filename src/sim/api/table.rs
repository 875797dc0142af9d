//! The table that `kubectl get` asks for.

mod columns;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::kind::Kind;
use columns::{Cell, Column};

pub(super) fn of(kind: &Kind, objects: &[&Value], version: &Value, now: Timestamp) -> Value {
    let columns = columns::all(kind);
    let name = json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0});
    let definitions: Vec<Value> = std::iter::once(name).chain(columns.iter().map(definition)).collect();
    let rows: Vec<Value> = objects.iter().map(|object| row(columns, object, now)).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": version},
        "columnDefinitions": definitions, "rows": rows,
    })
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.title, "type": column.kind, "format": "", "description": "",
        "priority": u8::from(column.wide),
    })
}

fn row(columns: &[Column], object: &Value, now: Timestamp) -> Value {
    let mut cells = vec![object["metadata"]["name"].clone()];
    cells.extend(columns.iter().map(|column| match &column.cell {
        Cell::At(path) if column.kind == "date" => age(at(object, path), now),
        Cell::At(path) => at(object, path).clone(),
        Cell::Of(of) => of(object),
    }));
    json!({"cells": cells, "object": partial(object)})
}

/// An object without all but its metadata.
pub(super) fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
    })
}

/// What a path of a definition leads to: `.a.b`, `.a[?(@.type=="Ready")].b`.
fn at<'v>(object: &'v Value, path: &str) -> &'v Value {
    let (mut value, mut rest) = (object, path);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("[?(@.") {
            let (test, after) = after.split_once(")]").unwrap_or((after, ""));
            let (field, wanted) = test.split_once("==").unwrap_or((test, ""));
            let wanted = wanted.trim_matches(['"', '\'']);
            let found = value.as_array().and_then(|items| items.iter().find(|item| item[field] == wanted));
            (value, rest) = (found.unwrap_or(&Value::Null), after);
        } else {
            let name = rest.trim_start_matches('.');
            let end = name.find(['.', '[']).unwrap_or(name.len());
            (value, rest) = (value.get(&name[..end]).unwrap_or(&Value::Null), &name[end..]);
        }
    }
    value
}

/// As kubectl prints it: the two largest units, where the smaller one still says something.
fn age(since: &Value, now: Timestamp) -> Value {
    let Some(since) = since.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else {
        return if since.is_null() { json!("<unknown>") } else { json!("<invalid>") };
    };
    json!(duration(now.as_second() - since.as_second()))
}

pub(super) fn duration(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, name: &str, small: i64, other: &str| {
        if small == 0 { format!("{large}{name}") } else { format!("{large}{name}{small}{other}") }
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, "d", hours % 24, "h"),
        () if days < 730 => format!("{days}d"),
        () if days < 365 * 8 => two(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-21T12:00:00Z";

    fn printed(object: &Value) -> Vec<(String, Value)> {
        let kind = Kind::named(object["kind"].as_str().unwrap()).unwrap();
        let table = of(kind, &[object], &json!("7"), NOW.parse().unwrap());
        let titles = table["columnDefinitions"].as_array().unwrap().iter();
        let cells = table["rows"][0]["cells"].as_array().unwrap().iter();
        titles
            .zip(cells)
            .map(|(title, cell)| (title["name"].as_str().unwrap().to_owned(), cell.clone()))
            .collect()
    }

    fn cell(object: &Value, title: &str) -> Value {
        let found = printed(object).into_iter().find(|(name, _)| name == title);
        found.unwrap_or_else(|| panic!("no column {title}")).1
    }

    #[test]
    fn claims_have_the_columns_of_their_definition() {
        let claim = json!({
            "kind": "ClusterResourceClaim",
            "metadata": {"name": "c", "creationTimestamp": "2026-11-21T11:55:00Z"},
            "spec": {"clusterName": "east"},
            "status": {"short": "gpu 2", "conditions": [{"type": "Ready", "status": "False", "reason": "Short"}]},
        });
        let titles: Vec<String> = printed(&claim).into_iter().map(|(title, _)| title).collect();
        assert_eq!(titles[..5], ["Name", "Cluster", "Ready", "Short", "Age"]);
        for (title, value) in [("Cluster", "east"), ("Ready", "False"), ("Reason", "Short"), ("Age", "5m")] {
            assert_eq!(cell(&claim, title), value, "{title}");
        }
        assert_eq!(cell(&claim, "GPU"), Value::Null);
    }

    #[test]
    fn built_in_kinds_look_as_with_kubectl() {
        let ready = |status: &str| json!([{"type": "Ready", "status": status}]);
        let node = json!({
            "kind": "Node", "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": ""}},
            "spec": {"unschedulable": true}, "status": {"conditions": ready("True")},
        });
        assert_eq!(cell(&node, "Status"), "Ready,SchedulingDisabled");
        assert_eq!(cell(&node, "Roles"), "worker");
        assert_eq!(cell(&node, "Age"), "<unknown>");
        let pod = json!({
            "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{}, {}]},
            "status": {"phase": "Running", "containerStatuses": [{"ready": true, "restartCount": 0}]},
        });
        assert_eq!((cell(&pod, "Ready"), cell(&pod, "Status")), (json!("1/2"), json!("Running")));
        let job = json!({
            "kind": "Job", "metadata": {"name": "j"}, "spec": {"completions": 2},
            "status": {"succeeded": 1, "startTime": NOW, "completionTime": "2026-11-21T12:00:09Z"},
        });
        assert_eq!((cell(&job, "Completions"), cell(&job, "Duration")), (json!("1/2"), json!("9s")));
        let secret = json!({"kind": "Secret", "metadata": {"name": "s"}, "type": "Opaque", "data": {"a": "", "b": ""}});
        assert_eq!(cell(&secret, "Data"), 2);
    }

    #[test]
    fn durations_are_kubectls() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (125, "2m5s"),
            (600, "10m"),
            (3 * 3600 + 240, "3h4m"),
            (30 * 3600, "30h"),
            (86_400 * 3, "3d"),
            (86_400 * 400, "400d"),
            (86_400 * 365 * 9, "9y"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
