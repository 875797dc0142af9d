//! Commands that kubectl answers: it takes this program's place, with the same arguments.

use crate::{Called, command::Path, error::Error, session::Session};

/// These commands' flags are kubectl's, and not all known here.
pub fn hands_on(path: &Path) -> bool {
    path.parent()
        .is_some_and(|parent| ["get", "delete", "edit", "describe", "patch"].contains(&parent.name()))
        && path.names() != "delete workload"
}

pub fn run(called: &Called<'_>, session: &Session<'_, '_>) -> Result<(), Error> {
    let Some(kubectl) = session.tools().kubectl() else {
        let paths = (session.world.variables)("PATH").unwrap_or_default();
        let paths = paths.to_string_lossy();
        return Err(Error::said(format!(
            "pass-through command are not available: exec: \"kubectl\": executable file not found in $PATH, PATH={paths:?}"
        )));
    };
    let error = (session.world.replace)(&kubectl, called.arguments);
    Err(Error::said(format!("{}: {error}", kubectl.to_string_lossy())))
}
