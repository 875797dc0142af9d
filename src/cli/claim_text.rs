//! A claim as text to edit: comments that say what there is to share out, and the part to change.

use serde::{Deserialize, Serialize};

use super::{
    capacity::flavors_table,
    cluster::words,
    merge::Collision,
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

/// A Kubernetes manifest, for `diff -f`.
#[derive(Deserialize)]
struct Manifest {
    metadata: Metadata,
    spec: ClaimSpec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

pub fn parse(text: &str) -> Result<ClaimFile, String> {
    let wrong = |error: serde_saphyr::Error| error.to_string();
    serde_saphyr::from_str(text).map_err(wrong)
}

/// Either form.
pub fn parse_any(text: &str) -> Result<ClaimFile, String> {
    let manifest = serde_saphyr::from_str::<Manifest>(text);
    manifest
        .map(|manifest| ClaimFile { name: manifest.metadata.name, spec: manifest.spec })
        .or_else(|_| parse(text))
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
