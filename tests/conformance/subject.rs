//! Objects of one kind that a theme makes, changes and removes, so that several kinds are held to the same
//! expectations. Themes name them by letters; what they are really called is the subject's own business.

use fedq_sim::nodes::{Change, Herd};
use serde_json::{Value, json};

use super::expect::{absent, any};
use super::stage::{MERGE, NODES, Stage, labelled, text};

/// All names that themes use, in order.
const NAMES: [&str; 14] =
    ["a", "b", "c", "cc", "d", "e", "f", "first", "g", "later", "p", "s", "second", "t"];

/// A server whose nodes are all ours, so that nothing changes by itself.
pub struct Nodes {
    /// Tells what the nodes look like, on every server the same.
    pub looks: Herd,
    /// Where nodes are kept as a herd: has something happen to one, or says that it cannot.
    pub keeper: Option<Keeper>,
}

pub type Keeper = Box<dyn Fn(usize, Change) -> bool>;

impl Nodes {
    /// Bodies with images are the larger ones.
    pub fn looks() -> Herd {
        let template = fedq_sim::nodes::Template::large();
        Herd::new(template.into(), NUMBER, NAMES.len(), 1, jiff::Timestamp::UNIX_EPOCH)
    }
}

/// What the herd under test is called by.
pub const NUMBER: u16 = 17;
pub const COUNT: usize = NAMES.len();

pub struct Subject<'a> {
    stage: &'a Stage<'a>,
    pub path: String,
    pub kind: &'static str,
    pub plural: &'static str,
    /// Selects all of them.
    pub all: &'static str,
    /// Selects those that are marked.
    pub marked: &'static str,
    nodes: Option<&'a Nodes>,
}

impl<'a> Subject<'a> {
    /// Nodes, where the server has some for us, else Secrets.
    pub fn of(stage: &'a Stage<'a>) -> Self {
        match &stage.server.nodes {
            None => Self {
                stage,
                path: stage.secrets(),
                kind: "Secret",
                plural: "secrets",
                all: "labelSelector=every%3Done",
                marked: "labelSelector=marked%3Dyes",
                nodes: None,
            },
            Some(nodes) => Self {
                stage,
                path: NODES.to_owned(),
                kind: "Node",
                plural: "nodes",
                all: "labelSelector=kubernetes.io%2Fos%3Dlinux",
                marked: "fieldSelector=spec.unschedulable%3Dtrue",
                nodes: Some(nodes),
            },
        }
    }

    pub fn are_nodes(&self) -> bool {
        self.nodes.is_some()
    }

    pub fn name(&self, letter: &str) -> String {
        match self.nodes {
            None => letter.to_owned(),
            Some(nodes) => nodes.looks.name(place(letter)),
        }
    }

    pub fn path_of(&self, letter: &str) -> String {
        format!("{}/{}", self.path, self.name(letter))
    }

    /// The letters of a list, in its order.
    pub fn letters<'v>(&self, list: &'v Value) -> Vec<&'v str> {
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names = items.iter().map(|item| text(item, "/metadata/name"));
        names.map(|name| NAMES.into_iter().find(|letter| self.name(letter) == name).unwrap_or(name)).collect()
    }

    /// What it is made of.
    pub fn body(&self, letter: &str) -> Value {
        let Some(nodes) = self.nodes else {
            return labelled(letter, json!({"every": "one", "marked": "no"}));
        };
        let mut body = nodes.looks.value(place(letter)).unwrap_or_default();
        if let Some(metadata) = body["metadata"].as_object_mut() {
            metadata.retain(|field, _| matches!(field.as_str(), "name" | "labels" | "annotations"));
        }
        body
    }

    /// Creates it and hands it back as stored.
    pub async fn make(&self, letter: &str) -> Value {
        if self.keeps(letter, Change::Restore) {
            return self.stored(letter).await;
        }
        self.stage.make(&self.path, self.body(letter)).await
    }

    /// Hands it back as stored.
    pub async fn mark(&self, letter: &str, on: bool) -> Value {
        if self.keeps(letter, Change::Cordon(on)) {
            return self.stored(letter).await;
        }
        let patch = match self.nodes {
            None => json!({"metadata": {"labels": {"marked": if on { "yes" } else { "no" }}}}),
            Some(_) => json!({"spec": {"unschedulable": on.then_some(true)}}),
        };
        self.stage.patch(&self.path_of(letter), MERGE, patch).gives(200, self.shows(on)).await
    }

    /// What of an object tells whether it is marked.
    pub fn shows(&self, on: bool) -> Value {
        match (self.nodes, on) {
            (None, _) => json!({"metadata": {"labels": {"marked": if on { "yes" } else { "no" }}}}),
            (Some(_), true) => json!({"spec": {"unschedulable": true}}),
            (Some(_), false) => json!({"spec": {"unschedulable": absent()}}),
        }
    }

    pub async fn remove(&self, letter: &str) {
        if !self.keeps(letter, Change::Delete) {
            self.stage.delete(&self.path_of(letter)).gives(200, json!({"status": "Success"})).await;
        }
    }

    /// Removes all there are.
    pub async fn clear(&self) {
        let there =
            self.stage.get(&self.path).gives(200, json!({"kind": format!("{}List", self.kind)})).await;
        for letter in self.letters(&there) {
            self.remove(letter).await;
        }
    }

    async fn stored(&self, letter: &str) -> Value {
        self.stage.get(&self.path_of(letter)).gives(200, json!({"metadata": {"uid": any()}})).await
    }

    fn keeps(&self, letter: &str, change: Change) -> bool {
        let keeper = self.nodes.and_then(|nodes| nodes.keeper.as_ref());
        keeper.is_some_and(|keeper| keeper(place(letter), change))
    }
}

fn place(letter: &str) -> usize {
    NAMES.iter().position(|name| *name == letter).expect("a letter of the list")
}
