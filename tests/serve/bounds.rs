//! What the document gives a form or a bound is refused in any other, with its field.

use serde_json::{Value, json};

use super::{
    contract::{JSON, ask},
    document::DOCUMENT,
    server::served,
};

/// Each thing that a request holds, one beyond its bound.
#[tokio::test]
async fn what_is_beyond_a_bound_of_the_document_is_refused_with_its_field() {
    let served = served().await;
    let text = |length: usize| "x".repeat(length);
    let many = |count: usize, value: Value| -> Value {
        (0..count)
            .map(|number| (format!("k{number}"), value.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let task = |field: &str, value: Value| {
        let mut body = json!({"file": "run: x\n"});
        body[field] = value;
        ("POST /tasks", body)
    };
    let claim = |assignments: Value, nominal: Value| {
        let spec =
            json!({"clusterName": "east", "nominalResources": nominal, "resourceAssignments": assignments});
        ("POST /claims/east-resource-claim/diff", spec)
    };
    let assignment =
        |resources: Value| json!({"clusterQueueName": "team-a", "flavor": "a", "resources": resources});
    let join = |field: &str, value: Value| {
        let mut body = json!({"name": "new", "kubeconfig": "x"});
        body[field] = value;
        ("POST /clusters", body)
    };
    for ((line, body), field) in [
        (task("accelerators", text(257).into()), "accelerators"),
        (task("image", text(1025).into()), "image"),
        (task("name", text(201).into()), "name"),
        (task("name", "".into()), "name"),
        (task("queue", text(254).into()), "queue"),
        (task("numNodes", 1001.into()), "numNodes"),
        (task("numNodes", 0.into()), "numNodes"),
        (task("envs", many(1025, "".into())), "envs"),
        (task("envs", json!({"A": text((128 << 10) + 1)})), "envs.A"),
        (task("envs", json!({(text(254)): ""})), "envs"),
        (task("secrets", many(1025, "".into())), "secrets"),
        (task("secrets", json!({"A": text((128 << 10) + 1)})), "secrets.A"),
        (join("kubeconfig", text((1 << 20) + 1).into()), "kubeconfig"),
        (join("context", text(1025).into()), "context"),
        (("POST /clusters/west/confirm", json!({"uid": text(129)})), "uid"),
        (("POST /clusters/west/confirm", json!({"uid": ""})), "uid"),
        (claim(json!([]), many(65, "1".into())), "nominalResources"),
        (claim(vec![assignment(json!({"cpu": "1"})); 129].into(), json!({})), "resourceAssignments"),
        (claim(json!([assignment(many(17, "1".into()))]), json!({})), "resourceAssignments[0].resources"),
        (
            ("POST /volumes", json!({"name": "a", "size": "1Gi", "accessModes": vec!["ReadWriteOnce"; 5]})),
            "accessModes",
        ),
        (
            ("POST /placements/simulate", json!({"kind": "Placement", "metadata": {"name": text(254)}})),
            "metadata.name",
        ),
    ] {
        let answer = ask(&served, line, &[JSON], body.to_string()).await;
        let (status, code, found, message) = answer.problem();
        assert_eq!((status, code.as_str(), found.as_str()), (422, "invalid", field), "{line}: {message}");
        assert!(message.starts_with("must be "), "{field}: {message}");
        assert!(!message.contains("xxx"), "{field}: {message}");
    }
    for name in ["who", "object"] {
        let answer = ask(&served, &format!("GET /audit?{name}={}", text(4097)), &[], "").await;
        let (status, _, field, message) = answer.problem();
        let expected = "must be text of at most 4096 characters without NUL";
        assert_eq!((status, field.as_str(), message.as_str()), (400, name, expected));
    }
    let written: Vec<_> =
        served.hub.world().requests.iter().filter(|line| !line.starts_with("GET")).cloned().collect();
    assert!(written.iter().all(|line| line.contains("reviews")), "{written:?}");
}

/// Everything of a request that the document gives a form, in another one: the bodies of examples with one thing changed.
#[tokio::test]
async fn what_is_not_of_the_form_of_the_document_is_refused_with_its_field() {
    let served = served().await;
    served.placements.send_replace(super::placement::view());
    let document = fedq_api::openapi();
    let mut seen = std::collections::BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let content = &operation["requestBody"]["content"]["application/json"];
            if content.is_null() {
                continue;
            }
            let line = format!("{} {}", method.to_uppercase(), path.trim_start_matches("/api/v1"));
            let line = line.replace("{cluster}", "east").replace("{claim}", "east-resource-claim");
            let line = line.replace("{queue}", "team-a");
            let mut wrong = Vec::new();
            misshapen(&content["schema"], &content["example"], "", &mut wrong);
            for (field, body) in wrong {
                if DOCUMENT.misfits(&content["schema"], &body).is_empty() {
                    continue;
                }
                let answer = ask(&served, &line, &[JSON, ("if-match", "*")], body.to_string()).await;
                let problem = answer.json();
                assert_eq!(
                    (answer.status, &problem["code"]),
                    (422, &json!("invalid")),
                    "{line} {field}: {problem}"
                );
                let causes = problem["causes"].as_array().unwrap().iter();
                let fields: Vec<&str> = causes.map(|cause| cause["field"].as_str().unwrap()).collect();
                let of = |found: &&str| {
                    let found = found.trim_start_matches("spec.");
                    !found.is_empty() && (found.starts_with(&field) || field.starts_with(found))
                };
                assert!(fields.iter().any(of), "{line} {field}: {problem}");
                seen.insert(format!("{line} {field}"));
            }
        }
    }
    for expected in [
        "POST /tasks numNodes",
        "POST /tasks strict",
        "POST /tasks nonsense",
        "POST /volumes accessModes[0]",
        "POST /clusters kubeconfig",
        "POST /claims/east-resource-claim/diff resourceAssignments[0].nonsense",
        "POST /placements/simulate spec",
        "POST /tasks queue",
        "POST /tasks name",
        "POST /tasks envs",
        "POST /tasks uploads",
        "PUT /claims/east-resource-claim resourceAssignments[0].clusterQueueName",
        "PUT /claims/east-resource-claim nominalResources",
        "POST /claims/east-resource-claim/assign resources",
        "PUT /queues/team-a/base base",
        "POST /placements/simulate metadata.namespace",
    ] {
        assert!(seen.contains(expected), "{expected} is not among {seen:#?}");
    }
    let world = served.hub.world();
    let reads = |line: &&String| line.contains(" GET ") || line.contains("reviews");
    let written: Vec<_> = world.requests.iter().filter(|line| !reads(line)).collect();
    assert!(written.is_empty(), "{written:?}");
}

/// `example` with one thing in turn that cannot be: text, keys and items of a map of another form, fields of other kinds,
/// those that there are not, and without one that must be there; and the field that it is about.
fn misshapen(schema: &Value, example: &Value, field: &str, wrong: &mut Vec<(String, Value)>) {
    const NONE: [&str; 5] = ["No Such: Thing", "-.", "a\u{0}b", "", " "];
    let schema = whole(schema);
    let below = |name: &str| if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") };
    if !field.is_empty() {
        let kinds = [json!(true), json!(7.5), json!([[]]), json!({"no such": {}}), json!(NONE[0])];
        wrong.extend(kinds.map(|value| (field.to_owned(), value)));
    }
    if schema["properties"].is_object() {
        let mut more = example.clone();
        more["nonsense"] = json!(1);
        wrong.push((below("nonsense"), more));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let mut less = example.clone();
        if less.as_object_mut().and_then(|fields| fields.shift_remove(name)).is_some() {
            wrong.push((below(name), less));
        }
    }
    let mut put = |field: &str, inner: Vec<(String, Value)>, make: &dyn Fn(Value) -> Value| {
        wrong.extend(
            inner
                .into_iter()
                .map(|(at, value)| (if at.is_empty() { field.to_owned() } else { at }, make(value))),
        );
    };
    for (name, part) in schema["properties"].as_object().into_iter().flatten() {
        let mut inner = Vec::new();
        misshapen(part, &example[name], &below(name), &mut inner);
        put(&below(name), inner, &|value| {
            let mut body = example.clone();
            body[name] = value;
            body
        });
    }
    if schema["items"].is_object() {
        let mut inner = Vec::new();
        misshapen(&schema["items"], &example[0], &format!("{field}[0]"), &mut inner);
        put(field, inner, &|value| json!([value]));
    }
    if schema["additionalProperties"].is_object() {
        let key = example
            .as_object()
            .and_then(|map| map.keys().next())
            .cloned()
            .unwrap_or_else(|| "KEY".to_owned());
        let others = NONE.iter().map(|text| json!(text)).chain([json!(true), json!(7), json!([]), json!({})]);
        wrong.extend(others.map(|other| (field.to_owned(), json!({key.clone(): other}))));
        let value =
            example.as_object().and_then(|map| map.values().next()).cloned().unwrap_or_else(|| json!("1"));
        wrong.extend(NONE.map(|text| (field.to_owned(), json!({text: value.clone()}))));
    }
    let kinds = &schema["type"];
    if *kinds == "string" || kinds.as_array().is_some_and(|kinds| kinds.contains(&json!("string"))) {
        wrong.extend(NONE.map(|text| (field.to_owned(), json!(text))));
    }
}

/// What a schema refers to, with what stands beside the reference.
fn whole(schema: &Value) -> Value {
    let pointer = schema["$ref"].as_str().map(|path| path.trim_start_matches('#').to_owned());
    let mut whole =
        pointer.map_or_else(|| json!({}), |pointer| fedq_api::openapi().pointer(&pointer).unwrap().clone());
    merge(&mut whole, schema);
    whole
}

fn merge(into: &mut Value, more: &Value) {
    let (true, Value::Object(more)) = (into.is_object(), more) else {
        *into = more.clone();
        return;
    };
    for (key, value) in more.iter().filter(|(key, _)| *key != "$ref") {
        merge(&mut into[key.as_str()], value);
    }
}

/// The document and the server say the same of each.
#[tokio::test]
async fn quantities_are_taken_as_the_document_says() {
    let served = served().await;
    let document = fedq_api::openapi();
    let schema = |path: &str, method: &str| {
        document["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"].clone()
    };
    let (diff, base) =
        (schema("/api/v1/claims/{claim}/diff", "post"), schema("/api/v1/queues/{queue}/base", "put"));
    let digits = "1".repeat(19);
    let texts = [
        "5",
        "+5",
        "-5",
        "-0",
        "007",
        ".5",
        "5.",
        "1.5k",
        "0",
        "1e3",
        "1E+03",
        "1e003",
        "5 ",
        " 5",
        "5\n",
        "5X",
        "Ki",
        "",
        "1.0000000000k",
    ];
    let more = [digits.clone(), format!("1{digits}"), format!("{}Ki", "0".repeat(30)), "0".repeat(64)];
    let (mut fit, mut unfit) = (0, 0);
    for text in texts.iter().map(ToString::to_string).chain(more) {
        let mut spec = super::server::spec("4");
        spec["resourceAssignments"][0]["resources"]["memory"] = json!(text);
        let set = json!({"flavor": "on-demand", "resource": "memory", "base": text});
        for (line, schema, body) in [
            ("POST /claims/east-resource-claim/diff", &diff, spec),
            ("PUT /queues/team-a/base?dryRun=All", &base, set),
        ] {
            let fits = DOCUMENT.misfits(schema, &body).is_empty();
            let answer = ask(&served, line, &[JSON], body.to_string()).await;
            // What the queue there holds is another matter.
            let taken = answer.status != 422;
            assert_eq!(taken, fits, "{line} {text:?}: {}", answer.json());
            if fits { fit += 1 } else { unfit += 1 }
        }
    }
    assert!(10 < fit && 20 < unfit, "{fit} {unfit}");
}
