//! Files of a folder that commands read all of.

use std::{
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
};

use ignore::WalkBuilder;

use crate::error::CliError;

/// Files of manifests in a folder and those below, by name, without what is hidden. Links to folders are not followed: they
/// may lead in circles.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let mut found = Vec::new();
    let walk =
        WalkBuilder::new(folder).standard_filters(false).hidden(true).sort_by_file_name(Ord::cmp).build();
    for entry in walk {
        let entry = entry.map_err(|error| CliError::Read {
            path: folder.to_owned(),
            source: error.into_io_error().unwrap_or_else(|| io::Error::other("it cannot be walked")),
        })?;
        let ending = entry.path().extension().and_then(OsStr::to_str);
        if !entry.path().is_dir() && ending.is_some_and(|ending| ["yaml", "yml", "json"].contains(&ending)) {
            found.push(entry.into_path());
        }
    }
    Ok(found)
}
