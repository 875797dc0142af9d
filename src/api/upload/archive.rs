//! What an archive may hold: files, folders and links that stay within it. Nothing is unpacked here; it is read to its
//! end, so that what pods are given is whole.

use std::{
    collections::BTreeMap,
    io::{self, BufReader, Read},
};

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, Entry, EntryType, PaxExtensions};

use fedq_domain::task::upload::{FILE, link_stays};

/// Entries of one archive. Each takes a block, so that a bomb of empty files is no small one.
const MAX_ENTRIES: usize = 100_000;
/// Of what stands before an entry to say more of it, as a long name.
const MAX_EXTENSION: u64 = 64 << 10;
const MAX_DEPTH: usize = 128;
/// Of one name, and of all names and of the folders above them together: what is kept while an archive is looked at.
const MAX_NAME: usize = 4096;
const MAX_NAMES: usize = 32 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("it is no whole tar.gz: {0}")]
    Broken(io::Error),
    #[error("it is more than {0} bytes when unpacked")]
    TooLarge(u64),
    #[error("it has more than {MAX_ENTRIES} entries, or names too long for so many")]
    TooMany,
    #[error("it is empty")]
    Empty,
    #[error("`{path}` {reason}")]
    Entry { path: String, reason: &'static str },
}

/// What stands for what, once all of it is known to be harmless.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Holds {
    /// One that stands for itself.
    File,
    Folder,
}

/// Reads it from its beginning to its end, of which it has at most `most` bytes unpacked.
pub fn inspect(data: &[u8], most: u64) -> Result<Holds, ArchiveError> {
    // What an entry is called may itself be large, and is read whole by whoever looks at entries as they are meant. Both
    // looks must see the same entries: what gives one another size than its header has is refused here.
    read(data, most, |archive| {
        let mut count = 0;
        for entry in archive.entries().map_err(ArchiveError::Broken)?.raw(true) {
            let mut entry = entry.map_err(ArchiveError::Broken)?;
            count += 1;
            if MAX_ENTRIES < count {
                return Err(ArchiveError::TooMany);
            }
            let kind = entry.header().entry_type();
            let extends = kind.is_gnu_longname()
                || kind.is_gnu_longlink()
                || kind.is_pax_local_extensions()
                || kind.is_pax_global_extensions();
            if extends && MAX_EXTENSION < entry.size() {
                return Err(refused(&entry, "has a name that no tool can have given it"));
            }
            if kind.is_gnu_sparse() || (extends && is_resized(&mut entry)?) {
                return Err(refused(&entry, "is a sparse file or says another size than it has"));
            }
        }
        Ok(())
    })?;
    read(data, most, |archive| {
        let mut tree = Tree::default();
        for entry in archive.entries().map_err(ArchiveError::Broken)? {
            tree.add(&entry.map_err(ArchiveError::Broken)?)?;
        }
        tree.holds()
    })
}

/// Whether a record that says more of an entry says its size.
fn is_resized<R: Read>(entry: &mut Entry<'_, R>) -> Result<bool, ArchiveError> {
    let kind = entry.header().entry_type();
    if !kind.is_pax_local_extensions() && !kind.is_pax_global_extensions() {
        return Ok(false);
    }
    let mut records = Vec::new();
    entry.take(MAX_EXTENSION).read_to_end(&mut records).map_err(ArchiveError::Broken)?;
    for record in PaxExtensions::new(&records) {
        let key = record.map_err(ArchiveError::Broken)?.key_bytes().to_owned();
        if key == b"size" || key.starts_with(b"GNU.sparse.") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read<T>(
    data: &[u8],
    most: u64,
    look: impl FnOnce(&mut Archive<Bounded<MultiGzDecoder<BufReader<&[u8]>>>>) -> Result<T, ArchiveError>,
) -> Result<T, ArchiveError> {
    let bounded = Bounded { inner: MultiGzDecoder::new(BufReader::new(data)), left: most, over: false };
    let mut archive = Archive::new(bounded);
    let looked = look(&mut archive);
    let mut rest = archive.into_inner();
    // The checksum stands at the end, behind what the archive itself is.
    let ended = if looked.is_ok() { io::copy(&mut rest, &mut io::sink()) } else { Ok(0) };
    if rest.over {
        return Err(ArchiveError::TooLarge(most));
    }
    let found = looked?;
    ended.map_err(ArchiveError::Broken)?;
    Ok(found)
}

/// Fails once there is more than what is allowed, whatever the archive says of itself.
struct Bounded<R> {
    inner: R,
    left: u64,
    over: bool,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let Some(left) = self.left.checked_sub(u64::try_from(read).unwrap_or(u64::MAX)) else {
            self.over = true;
            return Err(io::Error::other("too large"));
        };
        self.left = left;
        Ok(read)
    }
}

fn refused<R: Read>(entry: &Entry<'_, R>, reason: &'static str) -> ArchiveError {
    let path: String = String::from_utf8_lossy(&entry.path_bytes()).chars().take(200).collect();
    ArchiveError::Entry { path: path.escape_debug().to_string(), reason }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    Folder,
    File,
    Link,
}

/// What there is by then, by its path. The archive's own folder is the empty path.
#[derive(Default)]
struct Tree {
    kinds: BTreeMap<String, Kind>,
    /// Of all paths.
    bytes: usize,
}

impl Tree {
    fn add<R: Read>(&mut self, entry: &Entry<'_, R>) -> Result<(), ArchiveError> {
        let kind = match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => Kind::File,
            EntryType::Directory => Kind::Folder,
            EntryType::Symlink => Kind::Link,
            // It says something of the whole archive, as git's does of its commit, and makes nothing.
            EntryType::XGlobalHeader => return Ok(()),
            EntryType::Link => return Err(refused(entry, "is a hard link; send the file itself")),
            EntryType::Char | EntryType::Block => return Err(refused(entry, "is a device")),
            _ => return Err(refused(entry, "is neither file nor folder nor symbolic link")),
        };
        let no = |reason| Err(refused(entry, reason));
        let bytes = entry.path_bytes();
        let Ok(text) = std::str::from_utf8(&bytes) else { return no("has a name that is not UTF-8") };
        if MAX_NAME < text.len() {
            return no("has a name that no tool can have given it");
        }
        if text.starts_with('/') {
            return no("is an absolute path");
        }
        let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.contains(&"..") {
            return no("leads out of the archive by `..`");
        }
        if MAX_DEPTH < parts.len() || text.contains('\0') {
            return no("has a name that no tool can have given it");
        }
        if parts.is_empty() && kind != Kind::Folder {
            return no("has no name");
        }
        let path = parts.join("/");
        if kind == Kind::Link {
            let target = entry.link_name_bytes().unwrap_or_default();
            let stays = std::str::from_utf8(&target).is_ok_and(|target| link_stays(&path, target));
            if !stays {
                return no("is a link that leads out of the archive");
            }
        }
        // What stands behind a link would be written to wherever that leads.
        let mut missing = Vec::new();
        for (at, _) in path.rmatch_indices('/') {
            match self.kinds.get(&path[..at]) {
                None => missing.push(at),
                Some(Kind::Folder) => break,
                Some(_) => return no("stands below what is no folder"),
            }
        }
        for at in missing {
            self.put(path[..at].to_owned(), Kind::Folder)?;
        }
        match self.put(path, kind)? {
            None => Ok(()),
            Some(Kind::Folder) if kind == Kind::Folder => Ok(()),
            Some(_) => no("is there twice"),
        }
    }

    /// What was there before.
    fn put(&mut self, path: String, kind: Kind) -> Result<Option<Kind>, ArchiveError> {
        self.bytes += path.len();
        let before = self.kinds.insert(path, kind);
        if MAX_ENTRIES < self.kinds.len() || MAX_NAMES < self.bytes {
            return Err(ArchiveError::TooMany);
        }
        Ok(before)
    }

    fn holds(&self) -> Result<Holds, ArchiveError> {
        let mut kinds = self.kinds.iter();
        match (kinds.next(), kinds.next()) {
            (None, _) => Err(ArchiveError::Empty),
            (Some((path, Kind::File)), None) if path == FILE => Ok(Holds::File),
            _ => Ok(Holds::Folder),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use tar::{Builder, Header};

    use super::*;

    const MOST: u64 = 1 << 20;

    fn gzipped(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).expect("written");
        encoder.finish().expect("written")
    }

    /// Entries as nobody who means well makes them: kind, path and what it leads to or holds.
    fn archive(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (kind, path, rest) in entries {
            let mut header = Header::new_gnu();
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(0o644);
            let links = matches!(kind, EntryType::Symlink | EntryType::Link);
            let data = if links {
                header.as_old_mut().linkname[..rest.len()].copy_from_slice(rest.as_bytes());
                &[][..]
            } else {
                rest.as_bytes()
            };
            header.set_size(u64::try_from(data.len()).expect("small"));
            header.set_cksum();
            builder.append(&header, data).expect("written");
        }
        gzipped(&builder.into_inner().expect("written"))
    }

    use EntryType::{Directory as D, Link as H, Regular as F, Symlink as L};

    #[test]
    fn a_folder_and_a_file_are_told_apart() {
        for (entries, holds) in [
            (&[(F, "file", "x")][..], Holds::File),
            (&[(F, "./file", "x")], Holds::File),
            (&[(F, "other", "x")], Holds::Folder),
            (&[(D, "./", ""), (F, "file", "x")], Holds::Folder),
            (&[(D, "./", "")], Holds::Folder),
            (
                &[(D, "a/", ""), (F, "a/b", "x"), (L, "a/c", "b"), (L, "d", "a/c"), (D, "a/", "")],
                Holds::Folder,
            ),
            (&[(EntryType::XGlobalHeader, "pax", "13 comment=a\n"), (F, "a", "")], Holds::Folder),
        ] {
            let found = inspect(&archive(entries), MOST).expect("taken");
            assert_eq!(found, holds, "{entries:?}");
        }
    }

    /// Few bytes may name many folders, and each of them is kept.
    #[test]
    fn folders_above_entries_count() {
        let names: Vec<String> = (0..2500).map(|number| format!("{number}{}", "/a".repeat(45))).collect();
        let entries: Vec<_> = names.iter().map(|name| (F, name.as_str(), "")).collect();
        assert!(matches!(inspect(&archive(&entries), 8 * MOST), Err(ArchiveError::TooMany)));
        assert!(inspect(&archive(&entries[..1000]), 8 * MOST).is_ok());
    }

    /// Whoever reads entries as they are meant would find others.
    #[test]
    fn what_says_another_size_than_it_has_is_refused() {
        for record in ["10 size=0\n", "22 GNU.sparse.major=1\n"] {
            let entries = [(EntryType::XHeader, "pax", record), (F, "a", "x")];
            let error = inspect(&archive(&entries), MOST).expect_err("refused").to_string();
            assert!(error.contains("says another size than it has"), "{record}: {error}");
        }
        let entries = [(EntryType::XHeader, "pax", "13 comment=a\n"), (F, "a", "x")];
        assert!(inspect(&archive(&entries), MOST).is_ok());
        let error = inspect(&archive(&[(EntryType::GNUSparse, "a", "")]), MOST).expect_err("refused");
        assert!(error.to_string().contains("is a sparse file"), "{error}");
    }

    #[test]
    fn what_would_reach_out_of_the_archive_is_refused_by_name() {
        for (entries, told) in [
            (&[(F, "../a", "x")][..], "`../a` leads out of the archive by `..`"),
            (&[(F, "a/../../b", "x")], "leads out of the archive by `..`"),
            (&[(F, "/etc/passwd", "x")], "`/etc/passwd` is an absolute path"),
            (&[(EntryType::Char, "null", "")], "`null` is a device"),
            (&[(EntryType::Block, "sda", "")], "`sda` is a device"),
            (&[(EntryType::Fifo, "pipe", "")], "is neither file nor folder nor symbolic link"),
            (&[(L, "a", "/etc/passwd")], "`a` is a link that leads out of the archive"),
            (&[(L, "a", "../b")], "is a link that leads out of the archive"),
            (&[(L, "x/a", "b/../../..")], "is a link that leads out of the archive"),
            (&[(L, "a", "")], "is a link that leads out of the archive"),
            (&[(H, "a", "/etc/passwd")], "`a` is a hard link"),
            (&[(F, "a", "x"), (H, "b", "a")], "`b` is a hard link"),
            // Through a link, or over it, one would write to wherever it leads.
            (&[(L, "d", "."), (F, "d/a", "x")], "`d/a` stands below what is no folder"),
            (&[(F, "d/a", "x"), (L, "d", ".")], "`d` is there twice"),
            (&[(L, "d", "a"), (F, "d", "x")], "`d` is there twice"),
            (&[(F, "a", "x"), (F, "./a", "y")], "is there twice"),
            (&[(F, "a", "x"), (F, "a/b", "y")], "stands below what is no folder"),
            (&[(F, ".", "x")], "has no name"),
            (&[(F, "\u{7}bell/../x", "")], "`\\u{7}bell/../x` leads out"),
        ] {
            let error = inspect(&archive(entries), MOST).expect_err("refused").to_string();
            assert!(error.contains(told), "{entries:?}: {error}");
        }
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let whole = archive(&[(F, "a", &"text ".repeat(1000)), (F, "b", "x")]);
        assert!(inspect(&whole, MOST).is_ok());
        for length in [0, 1, 10, 20, whole.len() / 2, whole.len() - 8, whole.len() - 1] {
            let error = inspect(&whole[..length], MOST).expect_err("it is cut off").to_string();
            assert!(error.contains("no whole tar.gz") || error.contains("empty"), "{length}: {error}");
        }
        let mut flipped = whole.clone();
        let last = flipped.len() - 6;
        flipped[last] ^= 1;
        assert!(matches!(inspect(&flipped, MOST), Err(ArchiveError::Broken(_))), "its checksum does not fit");
        assert!(matches!(inspect(&[&whole[..], b"more"].concat(), MOST), Err(ArchiveError::Broken(_))));
        assert!(matches!(inspect(b"no archive at all", MOST), Err(ArchiveError::Broken(_))));
        assert!(matches!(inspect(&gzipped(b"no archive at all"), MOST), Err(ArchiveError::Broken(_))));
        assert!(matches!(inspect(&gzipped(&[0; 1024]), MOST), Err(ArchiveError::Empty)));
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let zeros = "\0".repeat(2 << 20);
        let bomb = archive(&[(F, "zeros", &zeros)]);
        assert!(bomb.len() < 4096, "{}", bomb.len());
        assert!(matches!(inspect(&bomb, MOST), Err(ArchiveError::TooLarge(MOST))));
        // Behind the archive's end as well.
        let mut plain = Builder::new(Vec::new());
        plain.append(&header("a", 0), &[][..]).expect("written");
        let mut plain = plain.into_inner().expect("written");
        plain.extend(zeros.as_bytes());
        assert!(matches!(inspect(&gzipped(&plain), MOST), Err(ArchiveError::TooLarge(MOST))));
        // A name of a megabyte would be in memory as a whole.
        let mut long = Header::new_gnu();
        long.set_entry_type(EntryType::GNULongName);
        long.set_size(512 << 10);
        long.set_cksum();
        let mut named = Builder::new(Vec::new());
        named.append(&long, "n".repeat(512 << 10).as_bytes()).expect("written");
        named.append(&header("a", 0), &[][..]).expect("written");
        let error = inspect(&gzipped(&named.into_inner().expect("written")), MOST).expect_err("refused");
        assert!(error.to_string().contains("no tool can have given it"), "{error}");
        let many = {
            let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
            for number in 0..=MAX_ENTRIES {
                builder.append(&header(&number.to_string(), 0), &[][..]).expect("written");
            }
            builder.into_inner().and_then(GzEncoder::finish).expect("written")
        };
        assert!(matches!(inspect(&many, 1 << 30), Err(ArchiveError::TooMany)));
    }

    fn header(name: &str, size: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_path(name).expect("a path");
        header.set_size(size);
        header.set_cksum();
        header
    }
}
