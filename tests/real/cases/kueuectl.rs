//! kueuectl beside fedq under its name: the same command lines on the same server, compared byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use crate::support::cluster::{Cluster, Id};
use crate::support::fleet::Fleet;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[serde(rename = "group")]
    name: String,
    /// Upstream's file and cases.
    #[serde(rename = "source")]
    _source: String,
    /// `KUEUECTL_LIST_REQUEST_LIMIT`.
    #[serde(default)]
    limit: String,
    #[serde(default)]
    given: Vec<Value>,
    run: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    line: String,
    #[serde(rename = "reason")]
    _reason: String,
    /// The server does not always give a reason to differ.
    #[serde(default)]
    sometimes: bool,
    /// Patterns of all that fedq answers there. What has none is as kueuectl's.
    #[serde(rename = "fedq")]
    patterns: BTreeMap<String, String>,
}

impl Difference {
    fn allows(&self, part: &str, ours: &str) -> Result<bool> {
        let Some(pattern) = self.patterns.get(part) else { return Ok(false) };
        let whole = Regex::new(&format!(r"(?s)\A(?:{pattern})\z")).with_context(|| self.line.clone())?;
        Ok(whole.is_match(ours))
    }
}

/// Standard output, standard error, exit code.
const PARTS: [&str; 3] = ["out", "err", "code"];

type Answer = [String; 3];

pub async fn the_same_lines_give_the_same_answers_as_kueuectls(fleet: &Fleet) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kueuectl/tests");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).with_context(|| name.to_owned());
    let groups: Vec<Group> = serde_saphyr::from_str(&read("side_by_side.yaml")?)?;
    let listed: Vec<Difference> = serde_saphyr::from_str(&read("differences.yaml")?)?;
    let cluster = fleet.with_kueues_kinds("kueuectl").await?;
    let upstream = cluster.tool("kueuectl");
    let mut wrong = Vec::new();
    let mut differing = BTreeSet::new();
    for group in &groups {
        let theirs = answers(&cluster, fleet, group, &upstream).await?;
        let ours = answers(&cluster, fleet, group, Path::new(env!("CARGO_BIN_EXE_fedq"))).await?;
        for ((line, theirs), ours) in group.run.iter().zip(theirs).zip(ours) {
            let known = listed.iter().find(|difference| difference.line == *line);
            for ((part, theirs), ours) in PARTS.iter().zip(theirs).zip(ours) {
                if theirs == ours {
                    continue;
                }
                differing.insert((line.clone(), (*part).to_owned()));
                if !known.map_or(Ok(false), |known| known.allows(part, &ours))? {
                    wrong.push(format!(
                        "{}: {line}: {part}\nkueuectl: {theirs:#?}\nfedq: {ours:#?}",
                        group.name
                    ));
                }
            }
        }
    }
    let always = listed.iter().filter(|known| !known.sometimes);
    let all = always.flat_map(|known| known.patterns.keys().map(|part| (known.line.clone(), part.clone())));
    let gone = all.filter(|part| !differing.contains(part));
    wrong.extend(gone.map(|(line, part)| format!("listed, but it does not differ: {line}: {part}")));
    ensure!(wrong.is_empty(), "{} answers:\n{}", wrong.len(), wrong.join("\n\n"));
    Ok(())
}

async fn answers(cluster: &Cluster, fleet: &Fleet, group: &Group, program: &Path) -> Result<Vec<Answer>> {
    for object in &group.given {
        let object = with_uids_of_owners(cluster, object.clone()).await?;
        cluster.apply_object("fedq-test", object).await?;
    }
    let mut answers = Vec::new();
    for line in &group.run {
        answers.push(answer(cluster, fleet, program, line, &group.limit)?);
    }
    cluster.kubectl(&["delete", "localqueues,workloads,jobs", "--all", "--all-namespaces"])?;
    cluster.kubectl(&["delete", "clusterqueues,resourceflavors", "--all"])?;
    Ok(answers)
}

/// A file cannot know the UIDs of what is made after it.
async fn with_uids_of_owners(cluster: &Cluster, mut object: Value) -> Result<Value> {
    let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
    let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() else { return Ok(object) };
    for owner in owners {
        let text = |field: &str| owner[field].as_str().with_context(|| format!("an owner without {field}"));
        let (api_version, kind, name) = (text("apiVersion")?, text("kind")?, text("name")?);
        let id = Id { api_version, kind, namespace: namespace.as_deref(), name };
        let found = cluster.get(id).await?.with_context(|| format!("{id} is not there"))?;
        owner["uid"] = found["metadata"]["uid"].clone();
    }
    Ok(object)
}

fn answer(cluster: &Cluster, fleet: &Fleet, program: &Path, line: &str, limit: &str) -> Result<Answer> {
    let (line, input) = line.split_once(" <<< ").unwrap_or((line, ""));
    let mut command = Command::new(program);
    // fedq is kueuectl by its name.
    command.arg0("kueuectl").args(words(line)).env_clear();
    let kubectl = cluster.tool("kubectl");
    command.env("PATH", kubectl.parent().context("a program is in a folder")?);
    command.env("HOME", cluster.dir()).env("KUBECONFIG", &cluster.kubeconfig_path);
    if !limit.is_empty() {
        command.env("KUEUECTL_LIST_REQUEST_LIMIT", limit);
    }
    let out = fleet.output(&mut command, format!("{input}\n").as_bytes())?;
    let text = |bytes: &[u8]| normal(&String::from_utf8_lossy(bytes));
    Ok([
        text(&out.stdout),
        text(&out.stderr),
        out.status.code().map_or_else(|| out.status.to_string(), |code| code.to_string()),
    ])
}

/// What two runs cannot have in common: when, as which object, in which version.
fn normal(text: &str) -> String {
    let rules = [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r#"(?m)(resourceVersion"?: )"\d+""#, "${1}VERSION"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME"),
        (r"(?m) +(\d+[smhdy])+$", " AGE"),
        (r"(?m)^( *(?:Creation Timestamp|Resource Version|UID): ).*$", "$1"),
    ];
    rules.iter().fold(text.to_owned(), |text, (rule, into)| {
        Regex::new(rule).expect("it is a constant").replace_all(&text, *into).into_owned()
    })
}

/// Words as a shell splits them, with quotes of both kinds.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in line.chars() {
        match (letter, quote) {
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (_, Some(open)) if letter == open => quote = None,
            (' ', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}
