//! Ids, and the names and labels that are made from them: the same for the same task, whenever asked.

use std::{fmt, str::FromStr};

use sha2::{Digest, Sha256};

use super::yaml::shown;

/// A task's id: eight signs, as k8s-cli's are.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TaskId([u8; LENGTH]);

const LENGTH: usize = 8;
const SIGNS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// `36.pow(8)` ids: of a million tasks, one in five makes a pair. Whoever stores one draws again then.
const IDS: u64 = 36_u64.pow(8);

impl TaskId {
    /// From a random number.
    pub fn draw(random: u64) -> Self {
        let mut rest = random % IDS;
        let mut signs = [0; LENGTH];
        for sign in &mut signs {
            let digit = usize::try_from(rest % 36).unwrap_or_default();
            *sign = SIGNS[digit];
            rest /= 36;
        }
        Self(signs)
    }

    /// `None`: no task has such an id.
    pub fn parse(text: &str) -> Option<Self> {
        let signs: [u8; LENGTH] = text.as_bytes().try_into().ok()?;
        signs.iter().all(|sign| SIGNS.contains(sign)).then_some(Self(signs))
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("an id is made of ASCII signs")
    }
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no id of a task: an id has eight lower-case letters and digits")]
pub struct NoTaskId(String);

impl FromStr for TaskId {
    type Err = NoTaskId;

    fn from_str(text: &str) -> Result<Self, NoTaskId> {
        Self::parse(text).ok_or_else(|| NoTaskId(shown(text)))
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What Kubernetes allows a label's value, a host name and a Job's name.
const MAX_LABEL: usize = 63;
/// `-node-999-0-abcde`: what JobSet puts behind the name for the host names of pods.
const NODE_SUFFIX: usize = 17;

/// The name of the task's object: `train-1a2b3c4d`. Each node's has `-node-<rank>` behind it.
pub fn object_name(name: Option<&str>, id: &TaskId, num_nodes: u32) -> String {
    let suffix = 1 + LENGTH + if num_nodes == 1 { 0 } else { NODE_SUFFIX };
    let wanted = name.map_or_else(|| format!("task-{id}"), str::to_owned);
    let mut clean = dns_label(&wanted);
    // Services and JobSets are stricter than Jobs: no digit in front.
    if 1 < num_nodes && clean.starts_with(|c: char| c.is_ascii_digit()) {
        clean.insert_str(0, "task-");
    }
    if clean.is_empty() {
        clean.push_str("task");
    }
    clean.truncate(MAX_LABEL - suffix);
    format!("{}-{id}", clean.trim_end_matches('-'))
}

/// The object of one node, as k8s-cli names it.
pub fn node_name(object: &str, rank: u32, num_nodes: u32) -> String {
    if num_nodes == 1 { object.to_owned() } else { format!("{object}-node-{rank}") }
}

/// On the Secrets in fedq's own namespace on the hub that keep the values of a task's `secrets`; beside it
/// stands [`super::render::ID_LABEL`].
pub const SECRET_LABEL: &str = "fedq.dev/task-secret";

/// The Secret in fedq's own namespace on the hub that keeps the values of a task's `secrets` from before the
/// task is acknowledged until it is over. Its keys are the variables' names.
pub fn hub_secret_name(id: &TaskId) -> String {
    format!("fedq-task-{id}")
}

/// Lower-case letters, digits and `-`, with a letter or digit at both ends.
fn dns_label(text: &str) -> String {
    let clean = cleaned(&text.to_ascii_lowercase(), |c| c.is_ascii_alphanumeric() || c == '-');
    clean.trim_matches('-').to_owned()
}

/// With one `-` for each run of signs that are not `legal`.
fn cleaned(text: &str, legal: impl Fn(char) -> bool) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if legal(c) {
            clean.push(c);
        } else if !clean.ends_with('-') {
            clean.push('-');
        }
    }
    clean
}

/// A person as a label's value, in k8s-cli's way: `@` becomes `-`. What it cannot say otherwise ends in
/// a hash, so that two people never share a label by that. Who owns a task is in its annotation.
pub fn user_label(user: &str) -> String {
    label_value(&user.replace('@', "-"), user)
}

/// A text as a label's value: itself where it can be, else made fit and unmistakable by a hash.
pub fn task_label(name: &str) -> String {
    label_value(name, name)
}

fn label_value(text: &str, whole: &str) -> String {
    const HASH: usize = 8;
    let edge = |c: char| !c.is_ascii_alphanumeric();
    let clean = cleaned(text, |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    let mut clean = clean.trim_matches(edge).to_owned();
    if clean == text && clean.len() <= MAX_LABEL {
        return clean;
    }
    clean.truncate(MAX_LABEL - HASH - 1);
    let digest = Sha256::digest(whole);
    let hash = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    format!("{}-{hash:08x}", clean.trim_end_matches(edge)).trim_start_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id() -> TaskId {
        TaskId::parse("1a2b3c4d").expect("an id")
    }

    #[test]
    fn ids_are_eight_signs() {
        assert_eq!(TaskId::draw(0).as_str(), "00000000");
        assert_eq!(TaskId::draw(u64::MAX).as_str().len(), 8);
        assert_ne!(TaskId::draw(1), TaskId::draw(2));
        for text in ["", "1a2b3c4", "1A2B3C4D", "1a2b3c4d5", "submit/x", "1a2b3c4é"] {
            assert_eq!(TaskId::parse(text), None, "{text}");
            assert!(text.parse::<TaskId>().is_err());
        }
    }

    #[test]
    fn names_are_those_of_k8s_cli_where_they_can_be() {
        for (name, nodes, expected) in [
            (Some("my-task"), 1, "my-task-1a2b3c4d"),
            (None, 1, "task-1a2b3c4d-1a2b3c4d"),
            (Some("a@b c"), 1, "a-b-c-1a2b3c4d"),
            (Some("Train_1.2"), 1, "train-1-2-1a2b3c4d"),
            (Some("1st"), 1, "1st-1a2b3c4d"),
            (Some("1st"), 2, "task-1st-1a2b3c4d"),
            (Some("ü"), 1, "task-1a2b3c4d"),
        ] {
            assert_eq!(object_name(name, &id(), nodes), expected);
        }
        assert_eq!(node_name("a-1", 0, 1), "a-1");
        assert_eq!(node_name("a-1", 3, 4), "a-1-node-3");
    }

    #[test]
    fn labels_say_who_without_mixing_people_up() {
        assert_eq!(user_label("user@example.com"), "user-example.com");
        assert_eq!(user_label("system:serviceaccount:a:b"), user_label("system:serviceaccount:a:b"));
        assert_ne!(user_label("a b"), user_label("a/b"));
        assert_ne!(user_label("ü"), user_label("ö"));
        assert_eq!(task_label("Train_1"), "Train_1");
    }

    proptest! {
        #[test]
        fn every_name_fits_kubernetes(name in ".{0,250}", random: u64, nodes in 1_u32..=1000) {
            let id = TaskId::draw(random);
            let object = object_name(Some(&name), &id, nodes);
            let longest = if nodes == 1 { object.clone() } else { format!("{object}-node-999-0-abcde") };
            prop_assert!(longest.len() <= 63, "{longest}");
            prop_assert!(object.ends_with(id.as_str()));
            prop_assert!(object.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
            prop_assert!(!object.starts_with('-'));
            prop_assert!(nodes == 1 || object.starts_with(|c: char| c.is_ascii_lowercase()));
            for label in [user_label(&name), task_label(&name)] {
                let edge = |c: char| c.is_ascii_alphanumeric();
                prop_assert!(label.len() <= 63 && label.chars().all(|c| edge(c) || "-_.".contains(c)), "{label}");
                prop_assert!(label.is_empty() || (label.starts_with(edge) && label.ends_with(edge)), "{label}");
            }
        }
    }
}
