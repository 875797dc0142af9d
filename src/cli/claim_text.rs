//! A claim as text to edit: comments that say what there is to share out, and the part to change.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    capacity::flavors_table,
    cluster::words,
    merge::{self, Collision},
    quota::holders,
    table::{Table, clean},
};
use fedq_values::amount::amount;
use fedq_wire::claim::{ClaimDetail, ClaimSpec};

/// What is edited, and what files hold.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimFile {
    pub name: String,
    pub spec: ClaimSpec,
}

const API_VERSION: &str = "galaxy.kubestellar.io/v1alpha1";
const KIND: &str = "ClusterResourceClaim";

/// A claim as Git and `kubectl apply` have it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    spec: Value,
}

#[derive(Deserialize, Serialize)]
struct Metadata {
    name: String,
}

impl Manifest {
    pub fn of(detail: &ClaimDetail) -> Self {
        Self::new(&detail.name, &said(detail, &detail.spec))
    }

    pub fn new(name: &str, spec: &ClaimSpec) -> Self {
        let mut value = json!(spec);
        if spec.nominal_resources.is_empty() {
            // Whoever applies an empty map takes away what fedq writes into it, in the eyes of some engines.
            value.as_object_mut().expect("a spec is a map").remove("nominalResources");
        }
        let metadata = Metadata { name: name.to_owned() };
        Self { api_version: API_VERSION, kind: KIND, metadata, spec: value }
    }
}

/// What `spec` says that people decide on. `nominalResources` that follow capacity are fedq's to write: in a file that is
/// applied they would become caps. One that is written with another value is meant as a cap.
pub fn said(detail: &ClaimDetail, spec: &ClaimSpec) -> ClaimSpec {
    let mut spec = spec.clone();
    let now = &detail.spec.nominal_resources;
    spec.nominal_resources
        .retain(|key, amount| !(detail.follows.contains(key) && merge::same(Some(amount), now.get(key))));
    spec
}

pub fn parse(text: &str) -> Result<ClaimFile, String> {
    let wrong = |error: serde_saphyr::Error| error.to_string();
    serde_saphyr::from_str(text).map_err(wrong)
}

/// The claims among the documents of a file. Those of other kinds are somebody else's, as queues that lie in the same folder.
pub fn parse_all(text: &str) -> Result<Vec<ClaimFile>, String> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?;
    let mut claims = Vec::new();
    for document in documents {
        let kind = document.get("kind");
        if kind.is_some_and(|kind| kind == "List" || kind == "ClusterResourceClaimList") {
            let items = document["items"].as_array().into_iter().flatten();
            claims.extend(items.map(read).collect::<Result<Vec<_>, _>>()?.into_iter().flatten());
        } else {
            claims.extend(read(&document)?);
        }
    }
    Ok(claims)
}

/// A document with `name` and `spec` alone is what `claim edit` leaves behind.
fn read(document: &Value) -> Result<Option<ClaimFile>, String> {
    match document.get("kind") {
        Some(kind) if kind == KIND => {}
        Some(_) => return Ok(None),
        None if document.is_null() => return Ok(None),
        // The reader's own message would quote it, and a file that is none may be a token.
        None if !document.is_object() => return Err("a document is no manifest".to_owned()),
        None => {
            return ClaimFile::deserialize(texts(document)).map(Some).map_err(|error| error.to_string());
        }
    }
    if document["apiVersion"] != API_VERSION {
        return Err(format!("apiVersion of a {KIND} must be {API_VERSION}"));
    }
    let metadata =
        Metadata::deserialize(&document["metadata"]).map_err(|error| format!("metadata: {error}"))?;
    let spec = ClaimSpec::deserialize(texts(&document["spec"]));
    let spec = spec.map_err(|error| format!("the spec of {}: {error}", metadata.name))?;
    Ok(Some(ClaimFile { name: metadata.name, spec }))
}

/// Kubernetes takes `gpu: 8` for the quantity "8", and so does everybody who writes one.
fn texts(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::String(number.to_string()),
        Value::Array(list) => list.iter().map(texts).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), texts(value))).collect(),
        other => other.clone(),
    }
}

/// The part to change.
pub fn body(name: &str, spec: &ClaimSpec) -> Result<String, String> {
    let file = ClaimFile { name: name.to_owned(), spec: spec.clone() };
    serde_saphyr::to_string(&file).map_err(|error| error.to_string())
}

/// What a person must see to decide.
pub fn header(detail: &ClaimDetail) -> String {
    let cluster = &detail.spec.cluster_name;
    let mut text = String::new();
    let mut say = |line: &str| push(&mut text, line);
    say(&format!("Which ClusterQueue gets what of cluster {cluster}. Save and leave the editor to apply."));
    say("Nothing is changed if you save nothing, or an empty file.");
    say("");
    if detail.flavors.is_empty() {
        say(&format!("The capacity of {cluster} is not known yet."));
    } else {
        say(&format!("{cluster} has, usable and assigned by all claims:"));
        flavors_table(&detail.flavors).render(false).lines().for_each(|line| say(&format!("  {line}")));
    }
    if !detail.foreign.is_empty() {
        say(&format!("Queues there that are not fedq's hold {}.", words(&detail.foreign)));
    }
    if let Some(state) = &detail.state {
        let (caps, follows): (Vec<_>, Vec<_>) = state.nominal.iter().partition(|nominal| nominal.cap);
        let names = |nominal: Vec<&fedq_wire::claim::Nominal>| {
            nominal.into_iter().map(|nominal| nominal.resource.clone()).collect::<Vec<_>>().join(", ")
        };
        if !follows.is_empty() {
            say(&format!(
                "nominalResources: {} follow capacity; change one and it becomes a cap.",
                names(follows)
            ));
        }
        if !caps.is_empty() {
            say(&format!("nominalResources: {} are caps: assignments stay within them.", names(caps)));
        }
    }
    holders_of(detail).lines().for_each(&mut say);
    text
}

/// Who else holds what of the queues that the claim names, and what they had before fedq.
fn holders_of(detail: &ClaimDetail) -> String {
    let mut table = Table::new(&["QUEUE", "FLAVOR", "RESOURCE", "HAS", "BASE", "FROM CLUSTERS"]);
    for cell in &detail.holders {
        let amounts = [&cell.nominal, &cell.base].map(|of| amount(&cell.resource, &of.0));
        table.row([&cell.queue, &cell.flavor, &cell.resource, &amounts[0], &amounts[1], &holders(cell)]);
    }
    if table.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = table.render(false).lines().map(|line| format!("  {line}")).collect();
    format!(
        "\nThe queues it names (base: what they held before fedq, which they keep):\n{}",
        lines.join("\n")
    )
}

/// Tells on top why the text is shown again.
pub fn trouble(message: &str) -> String {
    let mut text = String::new();
    for line in message.lines() {
        push(&mut text, &format!("! {}", clean(line)));
    }
    push(&mut text, "");
    text
}

pub fn collisions(collisions: &[Collision]) -> String {
    let lines: Vec<String> = collisions.iter().map(|collision| format!("\n  {collision}")).collect();
    format!("Somebody else changed the same. Your values stand below; decide:{}", lines.concat())
}

/// The text without the comments on top, which are written anew each time.
pub fn without_header(text: &str) -> &str {
    let mut rest = text;
    while rest.starts_with('#') || rest.starts_with('\n') || rest.starts_with("\r\n") {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    rest
}

fn push(text: &mut String, line: &str) {
    text.push_str(if line.is_empty() { "#" } else { "# " });
    // A line from a server must not end the comment.
    text.push_str(&clean(line));
    text.push('\n');
}
