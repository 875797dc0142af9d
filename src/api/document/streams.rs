//! Answers that go on: their lines, and how they begin, pause and end.

use serde_json::{Map, Value, json};

use super::{EVENTS, JSON, LINES, has_parameter, reference};
use crate::{
    stream::{HEARTBEAT, STREAM_TIME},
    task::logs::{LAST_EVENT_ID, PLACES_A_LINE},
};
use fedq_wire::list::EventKind;

/// The schema of the line that ends what was there when a stream began.
const SYNCED: &str = "WatchSynced";

/// Lists that can be followed answer with lines, too: a schema for those of each.
pub fn add(document: &mut Value) {
    let mut schemas = Map::new();
    for item in document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut()) {
        let Some(operation) = item.get_mut("get") else { continue };
        let content = operation["responses"]["200"]["content"].clone();
        if has_parameter(operation, "watch") {
            let list = content[JSON]["schema"]["$ref"].as_str().unwrap_or_default();
            let name = list.rsplit('/').next().unwrap_or_default().trim_end_matches("List");
            for line in [LINES, EVENTS] {
                operation["responses"]["200"]["content"][line]["schema"] =
                    reference("schemas", &format!("{name}WatchEvent"));
            }
            event(name, &mut schemas);
            tell_answer(operation, &format!("With `watch`, a stream. {}", manners()));
            tell_parameter(operation, "watch", &manners());
        } else if content.get(LINES).is_some() {
            operation["responses"]["200"]["content"][EVENTS] = content[LINES].clone();
            logs(operation);
        }
    }
    if let Some(known) = document["components"]["schemas"].as_object_mut() {
        known.extend(schemas);
        known.sort_keys();
    }
}

/// What holds for every stream, and that no schema of a line can say.
fn manners() -> String {
    format!(
        "Where there is nothing to tell for {} seconds, a stream sends an empty line, of server-sent events the comment `:`, \
         so that both ends know of each other. It ends after {} minutes at the latest, and may break any time: whoever \
         follows asks again.",
        HEARTBEAT.as_secs(),
        STREAM_TIME.as_secs() / 60
    )
}

fn logs(operation: &mut Value) {
    tell_answer(operation, &manners());
    tell_parameter(
        operation,
        LAST_EVENT_ID,
        &format!(
            "The same as `after`, which it goes before: clients of server-sent events send it by themselves when they \
             connect again. Events carry an id as long as no more than {PLACES_A_LINE} containers have written; of more, \
             clients keep account as with JSON lines."
        ),
    );
}

fn tell_answer(operation: &mut Value, more: &str) {
    let summary = operation["summary"].clone();
    let answer = &mut operation["responses"]["200"]["description"];
    if answer.as_str().is_none_or(str::is_empty) {
        *answer = summary;
    }
    add_words(answer, more);
}

fn tell_parameter(operation: &mut Value, name: &str, more: &str) {
    for parameter in operation["parameters"].as_array_mut().into_iter().flatten() {
        if parameter["name"] == name {
            add_words(&mut parameter["description"], more);
        }
    }
}

fn add_words(description: &mut Value, more: &str) {
    let before = description.as_str().unwrap_or_default();
    *description = [before, more].join(" ").trim_start().into();
}

fn event(name: &str, schemas: &mut Map<String, Value>) {
    let (change, union) = (format!("{name}WatchChange"), format!("{name}WatchEvent"));
    let changes = json!([EventKind::Added, EventKind::Modified, EventKind::Deleted]);
    let synced = json!(EventKind::Synced);
    let of = |name: &str| format!("#/components/schemas/{name}");
    schemas.insert(
        SYNCED.to_owned(),
        json!({
            "type": "object", "required": ["type"], "properties": {"type": {"type": "string", "enum": [synced]}},
            "description": "What was there when the stream began has been sent: from here on, lines tell of changes.",
        }),
    );
    schemas.insert(
        change.clone(),
        json!({
            "type": "object", "required": ["type", "object"],
            "description": "One that is there, came, changed or went; `object` is as it is now, or was last.",
            "properties": {"type": {"type": "string", "enum": changes}, "object": reference("schemas", name)},
        }),
    );
    schemas.insert(
        union,
        json!({
            "description": "One line of a stream, told apart by `type`.",
            "oneOf": [{"$ref": of(&change)}, {"$ref": of(SYNCED)}],
        }),
    );
}
