//! Files of a folder that commands read all of.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use ignore::WalkBuilder;

use crate::error::CliError;

/// Far more than claims take.
const MAX_TEXT: u64 = 16 << 20;

/// Files of manifests in a folder and those below, by name, without what is hidden. Links to folders are not followed: they
/// may lead in circles. One that leads to a file outside is refused: the folder may be somebody else's, as in the check of a
/// pull request, and what is read is told of.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let mut found = Vec::new();
    let real = |path: &Path| {
        fs::canonicalize(path).map_err(|source| CliError::Read { path: path.to_owned(), source })
    };
    let within = real(folder)?;
    let walk =
        WalkBuilder::new(folder).standard_filters(false).hidden(true).sort_by_file_name(Ord::cmp).build();
    for entry in walk {
        let entry = entry.map_err(|error| CliError::Read {
            path: folder.to_owned(),
            source: error.into_io_error().unwrap_or_else(|| io::Error::other("it cannot be walked")),
        })?;
        let ending = entry.path().extension().and_then(OsStr::to_str);
        if !entry.path().is_dir() && ending.is_some_and(|ending| ["yaml", "yml", "json"].contains(&ending)) {
            if entry.path_is_symlink() && !real(entry.path())?.starts_with(&within) {
                return Err(CliError::usage(
                    format!("`{}` is a link that leads out of the folder", entry.path().display()),
                    "put the file itself there, or take the link away",
                ));
            }
            found.push(entry.into_path());
        }
    }
    Ok(found)
}

/// A whole file, or what is piped in for `-`, if it is not longer than any of its kind.
pub fn read_text(path: &Path) -> Result<String, CliError> {
    let failed = |source| CliError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(MAX_TEXT + 1).read_to_string(&mut text)
    } else {
        fs::File::open(path).and_then(|file| file.take(MAX_TEXT + 1).read_to_string(&mut text))
    };
    let length = read.map_err(failed)?;
    if usize::try_from(MAX_TEXT).is_ok_and(|most| most < length) {
        return Err(failed(io::Error::other("it has more than 16 MiB")));
    }
    Ok(text)
}
