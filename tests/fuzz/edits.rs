//! Random changes of what is valid: nearly right is what random bytes never are.

use std::path::{Path, PathBuf};

use bolero::TypeGenerator;

/// Where the corpora are.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/__fuzz__")
}

/// The corpus of one reader.
pub struct Seeds(Vec<Vec<u8>>);

/// A seed and what is done to it.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Edits {
    seed: usize,
    edits: Vec<Edit>,
}

#[derive(Clone, Debug, TypeGenerator)]
enum Edit {
    Put {
        at: usize,
        byte: u8,
    },
    Insert {
        at: usize,
        bytes: Vec<u8>,
    },
    Remove {
        at: usize,
        length: u8,
    },
    Repeat {
        at: usize,
        length: u8,
        times: u8,
    },
    /// A word that readers look for.
    Word {
        at: usize,
        word: usize,
    },
    /// The rest comes from another seed.
    GoOn {
        at: usize,
        seed: usize,
        from: usize,
    },
}

const WORDS: &[&str] = &[
    "\"",
    "\\",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\n",
    "\0",
    "\u{1b}[2J",
    "é",
    "..",
    "/",
    "//",
    "%2e",
    "%2F",
    "-",
    "+",
    "e19",
    "9223372036854775808",
    "0.0000000001",
    "Ki",
    "m",
    "null",
    "true",
    "${x}",
    "{{x}}",
    "!!int",
    "&a",
    "*a",
    "<<:",
    "$serde_json::private::RawValue",
    "metadata",
    "items",
    "name",
    "s3://",
    "~",
];

/// No text grows beyond this.
const MOST: usize = 64 << 10;

impl Seeds {
    pub fn read(name: &str) -> Self {
        let mut paths: Vec<_> = std::fs::read_dir(folder().join(name).join("corpus"))
            .expect("a corpus")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        paths.sort();
        Self(paths.iter().map(|path| std::fs::read(path).expect("a file of the corpus")).collect())
    }

    pub fn edited(&self, edits: &Edits) -> Vec<u8> {
        let mut bytes = self.seed(edits.seed).to_vec();
        for edit in &edits.edits {
            self.apply(edit, &mut bytes);
            bytes.truncate(MOST);
        }
        bytes
    }

    fn seed(&self, number: usize) -> &[u8] {
        &self.0[number % self.0.len()]
    }

    fn apply(&self, edit: &Edit, bytes: &mut Vec<u8>) {
        let place = |at: usize, length: usize| at % (length + 1);
        let length = bytes.len();
        match edit {
            Edit::Put { at, byte } => {
                if let Some(there) = bytes.get_mut(place(*at, length)) {
                    *there = *byte;
                }
            }
            Edit::Insert { at, bytes: more } => insert(bytes, place(*at, length), more),
            Edit::Remove { at, length: some } => {
                let at = place(*at, length);
                bytes.drain(at..length.min(at + usize::from(*some)));
            }
            Edit::Repeat { at, length: some, times } => {
                let at = place(*at, length);
                let end = length.min(at + usize::from(*some));
                let more = bytes[at..end].repeat(usize::from(*times));
                insert(bytes, at, &more);
            }
            Edit::Word { at, word } => {
                insert(bytes, place(*at, length), WORDS[word % WORDS.len()].as_bytes());
            }
            Edit::GoOn { at, seed, from } => {
                bytes.truncate(place(*at, length));
                let other = self.seed(*seed);
                bytes.extend_from_slice(&other[place(*from, other.len())..]);
            }
        }
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, more: &[u8]) {
    bytes.splice(at..at, more.iter().copied());
}
