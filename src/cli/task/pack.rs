//! A folder or file of this machine as the archive that is sent: what `.skyignore` or `.gitignore` leave of it, in an order
//! and with times and owners that are the same wherever and whenever it is packed, so that its digest tells whether the
//! server has it.

use std::{
    fmt::Write as _,
    fs::{self, Metadata},
    io::{self, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, GzBuilder, write::GzEncoder};
use ignore::WalkBuilder;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header, HeaderMode};

use crate::error::CliError;
use fedq_domain::task::upload::{Digest, FILE, MAX_BYTES, MAX_GROWTH, link_stays};

/// SkyPilot's own list of what stays here. Where a folder has one, git's do not count.
const SKYIGNORE: &str = ".skyignore";
/// Files that are named where it is too much.
const NAMED: usize = 3;

/// An archive, ready to be sent.
#[derive(Debug)]
pub struct Packed {
    pub digest: Digest,
    pub data: Vec<u8>,
    /// One file, and not a folder.
    pub file: bool,
    /// The largest files in it, by what they take unpacked.
    pub largest: Vec<(String, u64)>,
}

/// Packs what is at `path`; `shown` is what the task file calls it.
pub fn pack(path: &Path, shown: &str) -> Result<Packed, CliError> {
    pack_within(path, shown, MAX_BYTES)
}

/// Into an archive of at most so many bytes.
fn pack_within(path: &Path, shown: &str, most: u64) -> Result<Packed, CliError> {
    let source = Source { root: path, shown };
    let metadata = fs::metadata(path).map_err(|error| source.unreadable(path, &error))?;
    let entries = if metadata.is_dir() {
        source.entries()?
    } else if metadata.is_file() {
        vec![Found { name: FILE.to_owned(), path: path.to_owned(), metadata: metadata.clone() }]
    } else {
        return Err(CliError::usage(
            format!("`{shown}` is neither a file nor a folder, so that it cannot be sent"),
            "name a folder or a file in the task file",
        ));
    };
    let largest = largest(&entries);
    let unpacked = entries.iter().map(Found::bytes).fold(0, u64::saturating_add);
    if most.saturating_mul(MAX_GROWTH) < unpacked {
        return Err(too_large(shown, (unpacked, most.saturating_mul(MAX_GROWTH)), &largest));
    }
    let limited = Limited { data: Vec::new(), most, over: false };
    let encoder = GzBuilder::new().mtime(0).write(limited, Compression::default());
    let mut builder = Builder::new(encoder);
    builder.follow_symlinks(false);
    for entry in &entries {
        match append(&mut builder, entry) {
            Ok(()) => {}
            Err(_) if builder.get_ref().get_ref().over => {
                return Err(too_large(shown, (unpacked, most), &largest));
            }
            Err(error) => return Err(source.unreadable(&entry.path, &error)),
        }
    }
    let ended = builder.into_inner().and_then(GzEncoder::finish);
    match ended {
        Ok(Limited { data, .. }) => {
            let digest = Digest::of(Sha256::digest(&data).into());
            Ok(Packed { digest, data, file: metadata.is_file(), largest })
        }
        Err(_) => Err(too_large(shown, (unpacked, most), &largest)),
    }
}

/// What to do where a folder is too much, with what takes most of it.
pub fn too_large(shown: &str, (bytes, most): (u64, u64), largest: &[(String, u64)]) -> CliError {
    let mut message = format!("`{shown}` has {}, and at most {} can be sent", size(bytes), size(most));
    for (index, (name, bytes)) in largest.iter().enumerate() {
        let before = if index == 0 { "; largest: " } else { ", " };
        let _ = write!(message, "{before}{name} ({})", size(*bytes));
    }
    CliError::usage(
        message,
        "list what the task does not need in .skyignore (or .gitignore); data is for a volume (fedq volume create) or for \
         setup to fetch, code may come from git (workdir: {url: …}); tasks.uploads.maxSize of fedqd is the bound",
    )
}

/// `3.2 MiB`
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let (mut tenths, mut unit) = (bytes.saturating_mul(10) / 1024, 0);
    while 10 * 1024 <= tenths && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

struct Found {
    /// In the archive; empty for the folder itself.
    name: String,
    path: PathBuf,
    metadata: Metadata,
}

impl Found {
    fn bytes(&self) -> u64 {
        if self.metadata.is_file() { self.metadata.len() } else { 0 }
    }
}

fn largest(entries: &[Found]) -> Vec<(String, u64)> {
    let mut files: Vec<(String, u64)> = entries
        .iter()
        .filter(|found| 0 < found.bytes())
        .map(|found| (found.name.clone(), found.bytes()))
        .collect();
    files.sort_by(|(name, bytes), (other, more)| more.cmp(bytes).then_with(|| name.cmp(other)));
    files.truncate(NAMED);
    files
}

struct Source<'a> {
    root: &'a Path,
    shown: &'a str,
}

impl Source<'_> {
    /// In the order of their names.
    fn entries(&self) -> Result<Vec<Found>, CliError> {
        let mut walk = WalkBuilder::new(self.root);
        walk.standard_filters(false).hidden(false).follow_links(false);
        let own_list = self.root.join(SKYIGNORE).is_file();
        if own_list {
            walk.add_custom_ignore_filename(SKYIGNORE);
        } else {
            // Lists above a folder count as far up as its repository goes, and no farther.
            walk.git_ignore(true).git_exclude(true).require_git(false).parents(self.is_in_repository());
        }
        let mut found = Vec::new();
        for entry in walk.sort_by_file_name(Ord::cmp).build() {
            let entry = entry.map_err(|error| self.failed(&error.to_string()))?;
            let path = entry.path();
            let below = path.strip_prefix(self.root).map_err(|error| self.failed(&error.to_string()))?;
            let Some(name) = below.to_str() else {
                return Err(self.failed(&format!("the name of `{}` is not UTF-8", path.display())));
            };
            // Its history is most of a repository, and nothing that a task runs.
            if !own_list && below.starts_with(".git") {
                continue;
            }
            let metadata = fs::symlink_metadata(path).map_err(|error| self.unreadable(path, &error))?;
            found.push(Found { name: name.to_owned(), path: path.to_owned(), metadata });
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        // What is said of the folder itself would become of the place that it is put into, which may be `/tmp` or a home.
        // Without it, one that is empty would be no archive, and one of a single `file` would stand for that file.
        if 2 < found.len() || found.get(1).is_some_and(|only| only.name != FILE) {
            found.remove(0);
        }
        Ok(found)
    }

    fn is_in_repository(&self) -> bool {
        let whole = fs::canonicalize(self.root).unwrap_or_else(|_| self.root.to_owned());
        whole.ancestors().any(|folder| folder.join(".git").exists())
    }

    fn unreadable(&self, path: &Path, error: &io::Error) -> CliError {
        if path == self.root && error.kind() == io::ErrorKind::NotFound {
            return CliError::usage(
                format!("there is no `{}` here to send with the task", self.shown),
                "paths of workdir and file_mounts are of this machine, from the current folder on; a folder of the image \
                 is given as an absolute path",
            );
        }
        self.failed(&format!("`{}`: {error}", path.display()))
    }

    fn failed(&self, reason: &str) -> CliError {
        CliError::usage(
            format!("`{}` cannot be sent with the task: {reason}", self.shown),
            format!("put it right, or list it in {SKYIGNORE} so that it stays here"),
        )
    }
}

fn append(builder: &mut Builder<GzEncoder<Limited>>, found: &Found) -> io::Result<()> {
    let mut header = Header::new_gnu();
    // Times, owners and all of the mode but whether it is run are this machine's.
    header.set_metadata_in_mode(&found.metadata, HeaderMode::Deterministic);
    header.set_size(0);
    let kind = found.metadata.file_type();
    if kind.is_dir() {
        let name = if found.name.is_empty() { "./".to_owned() } else { format!("{}/", found.name) };
        return builder.append_data(&mut header, name, io::empty());
    }
    if kind.is_symlink() {
        let target = fs::read_link(&found.path)?;
        let stays = target.to_str().is_some_and(|target| link_stays(&found.name, target));
        if !stays {
            return Err(io::Error::other(format!(
                "it is a link to `{}`, out of what is sent",
                target.display()
            )));
        }
        header.set_entry_type(EntryType::Symlink);
        header.set_mode(0o777);
        return builder.append_link(&mut header, &found.name, target);
    }
    if !kind.is_file() {
        return Err(io::Error::other("it is neither file nor folder nor symbolic link"));
    }
    header.set_size(found.metadata.len());
    // One that grows meanwhile would shift all that stands behind it.
    let file = io::Read::take(fs::File::open(&found.path)?, found.metadata.len());
    builder.append_data(&mut header, &found.name, Whole { inner: file, left: found.metadata.len() })
}

/// A file that shrinks while it is read is no part of an archive that has its size already.
struct Whole<R> {
    inner: R,
    left: u64,
}

impl<R: io::Read> io::Read for Whole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        if read == 0 && 0 < self.left && !buffer.is_empty() {
            return Err(io::Error::other("it became smaller while it was read"));
        }
        self.left -= u64::try_from(read).unwrap_or(self.left).min(self.left);
        Ok(read)
    }
}

/// Takes no more than any server does.
#[derive(Debug)]
struct Limited {
    data: Vec<u8>,
    most: u64,
    over: bool,
}

impl Write for Limited {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let total = self.data.len().saturating_add(buffer.len());
        if u64::try_from(total).is_ok_and(|total| self.most < total) {
            self.over = true;
            return Err(io::Error::other("too large"));
        }
        self.data.extend_from_slice(buffer);
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, io::Read, os::unix::fs::symlink};

    use flate2::read::GzDecoder;
    use tempfile::TempDir;

    use super::*;

    fn folder(files: &[(&str, &str)]) -> TempDir {
        let folder = TempDir::new().expect("a folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        folder
    }

    /// What is in an archive: of each entry its mode and its content, or what it leads to.
    fn unpacked(packed: &Packed) -> BTreeMap<String, (u32, String)> {
        let mut archive = tar::Archive::new(GzDecoder::new(packed.data.as_slice()));
        let entries = archive.entries().expect("an archive");
        let found = entries.map(|entry| {
            let mut entry = entry.expect("an entry");
            let header = entry.header();
            let owner =
                (header.uid().expect("one"), header.gid().expect("one"), header.mtime().expect("one"));
            // A time that zip can say, which some programs make of what they are given.
            assert_eq!(owner, (0, 0, 1_153_704_088));
            let mode = header.mode().expect("one");
            let mut text = String::new();
            match entry.link_name().expect("readable") {
                Some(target) => text.push_str(target.to_str().expect("UTF-8")),
                None => drop(entry.read_to_string(&mut text).expect("text")),
            }
            (entry.path().expect("a path").to_str().expect("UTF-8").to_owned(), (mode, text))
        });
        found.collect()
    }

    fn names(of: &Path) -> Vec<String> {
        let packed = pack(of, ".").expect("packed");
        unpacked(&packed).into_keys().filter(|name| !name.ends_with('/')).collect()
    }

    #[test]
    fn what_is_ignored_stays_here() {
        let all = [
            ("train.py", "x"),
            (".hidden", "x"),
            ("data/big.bin", "x"),
            ("data/small.txt", "x"),
            ("out/log", "x"),
            (".git/config", "x"),
        ];
        let plain = folder(&all);
        let most = [".hidden", "data/big.bin", "data/small.txt", "out/log", "train.py"];
        assert_eq!(names(plain.path()), most, "git's own folder is nothing that runs");

        fs::write(plain.path().join(".gitignore"), "out/\n*.bin\n").expect("a file");
        fs::write(plain.path().join("data/.gitignore"), "small.txt\n").expect("a file");
        assert_eq!(names(plain.path()), [".gitignore", ".hidden", "data/.gitignore", "train.py"]);

        fs::write(plain.path().join(SKYIGNORE), "data/small.txt\n.git\n").expect("a file");
        let own =
            [".gitignore", ".hidden", ".skyignore", "data/.gitignore", "data/big.bin", "out/log", "train.py"];
        assert_eq!(names(plain.path()), own, "SkyPilot's list counts alone");
    }

    #[test]
    fn a_list_above_a_folder_counts_within_its_repository_only() {
        let above = folder(&[("code/a.py", "x"), ("code/a.pyc", "x"), (".gitignore", "*.pyc\n")]);
        let code = above.path().join("code");
        assert_eq!(names(&code), ["a.py", "a.pyc"]);
        fs::create_dir(above.path().join(".git")).expect("a folder");
        assert_eq!(names(&code), ["a.py"]);
    }

    #[test]
    fn the_same_files_have_the_same_digest() {
        let files = [("b.py", "print()\n"), ("a/x", "1"), ("a/y", "2")];
        let (one, other) = (folder(&files), TempDir::new().expect("a folder"));
        for (path, text) in files.iter().rev() {
            let path = other.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(&path, text).expect("a file");
            let old = fs::File::options().write(true).open(&path).expect("a file");
            old.set_modified(std::time::UNIX_EPOCH).expect("a time");
        }
        let digest = |folder: &TempDir| pack(folder.path(), ".").expect("packed").digest;
        let before = digest(&one);
        assert_eq!(before, digest(&other));
        fs::write(other.path().join("b.py"), "print(1)\n").expect("a file");
        assert_ne!(before, digest(&other));
    }

    #[test]
    fn a_file_is_the_same_whatever_it_is_called_and_keeps_that_it_is_run() {
        use std::os::unix::fs::PermissionsExt as _;
        let files = folder(&[("run.sh", "#!/bin/sh\n"), ("other", "#!/bin/sh\n")]);
        let one = pack(&files.path().join("run.sh"), "./run.sh").expect("packed");
        assert!(one.file);
        assert_eq!(one.digest, pack(&files.path().join("other"), "other").expect("packed").digest);
        assert_eq!(unpacked(&one), [("file".to_owned(), (0o644, "#!/bin/sh\n".to_owned()))].into());
        let mode = fs::Permissions::from_mode(0o700);
        fs::set_permissions(files.path().join("run.sh"), mode).expect("set");
        let run = pack(&files.path().join("run.sh"), "./run.sh").expect("packed");
        assert_eq!(unpacked(&run)["file"].0, 0o755);
        let whole = unpacked(&pack(files.path(), ".").expect("packed"));
        assert_eq!((whole["run.sh"].0, whole["other"].0), (0o755, 0o644));
    }

    #[test]
    fn a_link_that_leads_out_is_refused_by_name_and_one_that_stays_goes_along() {
        let files = folder(&[("a/x", "1")]);
        symlink("a/x", files.path().join("inside")).expect("a link");
        let packed = pack(files.path(), ".").expect("packed");
        assert_eq!(unpacked(&packed)["inside"].1, "a/x");
        for target in ["/etc/passwd", "../..", "../a/../../x"] {
            let link = files.path().join("a/out");
            symlink(target, &link).expect("a link");
            let error = pack(files.path(), "./code").expect_err("refused");
            let told = error.to_string();
            assert!(told.contains("./code") && told.contains("a/out") && told.contains(target), "{told}");
            assert!(error.next().is_some_and(|next| next.contains(SKYIGNORE)), "{error:?}");
            fs::remove_file(link).expect("removed");
        }
        symlink("/etc/passwd", files.path().join("out")).expect("a link");
        fs::write(files.path().join(SKYIGNORE), "/out\n").expect("a file");
        assert!(pack(files.path(), ".").is_ok(), "what is not sent leads nowhere");
    }

    #[test]
    fn what_is_missing_or_no_file_is_told_by_what_the_task_file_calls_it() {
        let files = folder(&[]);
        let missing = pack(&files.path().join("nowhere"), "./nowhere").expect_err("refused");
        assert!(missing.to_string().contains("there is no `./nowhere` here"), "{missing}");
        let socket = files.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        let told = pack(files.path(), ".").expect_err("refused").to_string();
        assert!(told.contains("socket") && told.contains("neither file nor folder"), "{told}");
    }

    #[test]
    fn what_is_too_much_is_told_with_its_largest_files() {
        let files = folder(&[("small", "x"), ("data/none", "")]);
        // It does not compress: each byte depends on all before it.
        let mut noise = Vec::new();
        while noise.len() < 1 << 20 {
            let next = Sha256::digest(noise.len().to_le_bytes());
            noise.extend_from_slice(&next);
        }
        fs::write(files.path().join("data/weights"), &noise).expect("a file");
        assert!(pack_within(files.path(), ".", 2 << 20).is_ok());
        let error = pack_within(files.path(), ".", 1 << 20).expect_err("refused");
        let told = error.to_string();
        for part in ["`.` has 1.0 MiB", "at most 1.0 MiB", "largest: data/weights (1.0 MiB), small (1 bytes)"]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
        let sparse = fs::File::create(files.path().join("sparse")).expect("a file");
        sparse.set_len(65 << 20).expect("set");
        let told = pack_within(files.path(), ".", 1 << 20).expect_err("refused").to_string();
        assert!(told.contains("has 66.0 MiB, and at most 64.0 MiB"), "{told}");
        let next = error.next().expect("a next step");
        for part in [".skyignore", "volume", "git", "tasks.uploads.maxSize"] {
            assert!(next.contains(part), "{part}: {next}");
        }
    }

    #[test]
    fn sizes_are_told_in_tenths() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (4 << 20, "4.0 MiB"),
            (5 << 40, "5.0 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
