//! Files that a person brings along: packed as a `tar.gz`, known by the digest of its bytes, and put on the cluster of a
//! task as Secrets beside it, of which its pods put the archive together again.

use std::{fmt, ops::Range, str::FromStr};

use serde::{Deserialize, Serialize};

/// No configuration allows more for one task: all of it is in etcd, on the hub's disk and for a moment in memory.
pub const MAX_BYTES: u64 = 32 << 20;
/// How many times as much it may be unpacked. Sources are packed to a fifth or so, a bomb to a thousandth.
pub const MAX_GROWTH: u64 = 64;
/// Of one Secret, for which Kubernetes takes 1 MiB with all that is around it.
pub const PART_BYTES: usize = 900 << 10;
/// Where a task's own folder goes, as with SkyPilot.
pub const WORKDIR: &str = "~/sky_workdir";
/// What the one entry of an archive is called that stands for a file.
pub const FILE: &str = "file";
/// Links in a path that lead to another: longer ones are no tool's.
const MAX_LINK: usize = 4096;

/// SHA-256 of an archive, in 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("must be a SHA-256 in 64 lower-case hexadecimal digits")]
pub struct NoDigest;

impl Digest {
    pub fn of(sha256: [u8; 32]) -> Self {
        use fmt::Write as _;
        let mut text = String::with_capacity(64);
        for byte in sha256 {
            write!(text, "{byte:02x}").expect("a text takes what is written");
        }
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 64 && text.bytes().all(is_digit) { Ok(Self(text.to_owned())) } else { Err(NoDigest) }
    }
}

impl TryFrom<String> for Digest {
    type Error = NoDigest;

    fn try_from(text: String) -> Result<Self, NoDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An archive that was uploaded.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Archive {
    pub digest: Digest,
    pub bytes: u64,
    /// It holds one file called [`FILE`] and nothing else, and stands for that file; all others stand for a folder.
    pub file: bool,
}

/// What a task brings along, and where its pods find it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Upload {
    /// Absolute, or in the home of whom the image runs as: `~/…`.
    pub path: String,
    #[serde(flatten)]
    pub archive: Archive,
}

/// A part of one archive in a Secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Piece {
    /// Of [`Upload`]s, in their order.
    pub upload: usize,
    /// Of its archive.
    pub bytes: Range<usize>,
    /// Its key in the Secret, and so its file in the pods. Those of one archive are in order as texts, too.
    pub key: String,
}

/// Which pieces stand in each Secret. Follows from the sizes alone, so that it is the same whenever it is asked.
pub fn pieces(uploads: &[Upload]) -> Vec<Vec<Piece>> {
    let mut secrets: Vec<Vec<Piece>> = Vec::new();
    let mut left = 0;
    for (upload, size) in uploads.iter().map(|upload| upload.archive.bytes).enumerate() {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let (mut begin, mut part) = (0, 0);
        while begin < size {
            if left == 0 {
                secrets.push(Vec::new());
                left = PART_BYTES;
            }
            let end = size.min(begin + left);
            let piece = Piece { upload, bytes: begin..end, key: format!("{}.{part:04}", prefix(upload)) };
            secrets.last_mut().expect("one was just begun").push(piece);
            left -= end - begin;
            (begin, part) = (end, part + 1);
        }
    }
    secrets
}

/// Which files of the pods are of this one of a task's uploads.
pub fn prefix(upload: usize) -> String {
    format!("{upload:03}")
}

/// Whether a symbolic link at `path`, which leads through no other link, stays within the folder that both are in.
/// `..` may stand only before all else: behind the name of another link it would lead out of what that one leads to.
pub fn link_stays(path: &str, target: &str) -> bool {
    let depth = path.split('/').filter(|part| !part.is_empty() && *part != ".").count().saturating_sub(1);
    if target.is_empty() || MAX_LINK < target.len() || target.starts_with('/') {
        return false;
    }
    let mut parts = target.split('/').filter(|part| !part.is_empty() && *part != ".").peekable();
    let mut ups = 0;
    while parts.next_if_eq(&"..").is_some() {
        ups += 1;
    }
    ups <= depth && parts.all(|part| part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload(bytes: u64) -> Upload {
        let archive = Archive { digest: Digest::of([7; 32]), bytes, file: false };
        Upload { path: WORKDIR.to_owned(), archive }
    }

    #[test]
    fn a_digest_is_written_in_one_form() {
        let digest = Digest::of([0xab; 32]);
        assert_eq!(digest.as_str(), "ab".repeat(32));
        assert_eq!(digest.as_str().parse(), Ok(digest.clone()));
        for wrong in ["", "ab", &"AB".repeat(32), &"g".repeat(64), &"a".repeat(65), &"ä".repeat(32)] {
            assert_eq!(wrong.parse::<Digest>(), Err(NoDigest), "{wrong}");
        }
        assert!(serde_json::from_str::<Digest>("\"../../x\"").is_err());
    }

    #[test]
    fn pieces_are_whole_in_order_and_fill_each_secret() {
        let part = u64::try_from(PART_BYTES).expect("small");
        for sizes in [
            &[1][..],
            &[part],
            &[part + 1],
            &[2 * part + 7, 5, part],
            &[1, 2, 3],
            &[MAX_BYTES],
            &[part / 2; 9],
        ] {
            let uploads: Vec<Upload> = sizes.iter().map(|size| upload(*size)).collect();
            let secrets = pieces(&uploads);
            let size = |secret: &Vec<Piece>| secret.iter().map(|piece| piece.bytes.len()).sum::<usize>();
            let (last, full) = secrets.split_last().expect("some");
            assert!(full.iter().all(|secret| size(secret) == PART_BYTES) && size(last) <= PART_BYTES);
            for (index, bytes) in sizes.iter().enumerate() {
                let mut own: Vec<&Piece> =
                    secrets.iter().flatten().filter(|piece| piece.upload == index).collect();
                own.sort_by(|one, other| one.key.cmp(&other.key));
                let mut end = 0;
                for piece in own {
                    assert_eq!(piece.bytes.start, end);
                    assert!(piece.key.starts_with(&format!("{}.", prefix(index))));
                    end = piece.bytes.end;
                }
                assert_eq!(u64::try_from(end), Ok(*bytes));
            }
        }
        assert!(pieces(&[]).is_empty());
    }

    #[test]
    fn a_link_leads_out_by_no_way() {
        for (path, target, stays) in [
            ("a", "b", true),
            ("a", "./b/c", true),
            ("a", ".", true),
            ("x/a", "../b", true),
            ("./x/y/a", "../../b", true),
            ("a", "..", false),
            ("x/a", "../..", false),
            ("x/a", "../../b", false),
            ("a", "/etc/passwd", false),
            ("a", "", false),
            // `b` may lead to a folder that lies higher.
            ("x/a", "b/../..", false),
            ("x/a", "b/../c", false),
            ("a", &"b".repeat(MAX_LINK + 1), false),
        ] {
            assert_eq!(link_stays(path, target), stays, "{path} -> {target}");
        }
    }
}
