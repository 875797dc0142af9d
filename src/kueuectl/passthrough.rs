//! Commands that kubectl answers: it takes this program's place, with the same arguments.

use std::ffi::OsString;

use crate::{Called, command::Path, error::Error, session::Session};

/// These commands' flags are kubectl's, and not all known here.
pub fn hands_on(path: &Path) -> bool {
    path.parent()
        .is_some_and(|parent| ["get", "delete", "edit", "describe", "patch"].contains(&parent.name()))
        && path.names() != "delete workload"
}

pub async fn run(called: &Called<'_>, session: &Session<'_, '_>) -> Result<(), Error> {
    let Some(kubectl) = session.tools().kubectl() else {
        let paths = (session.world.variables)("PATH").unwrap_or_default();
        let paths = paths.to_string_lossy();
        return Err(Error::said(format!(
            "pass-through command are not available: exec: \"kubectl\": executable file not found in $PATH, PATH={paths:?}"
        )));
    };
    let kubeconfig = session.kubeconfig().await?;
    let error = match kubeconfig {
        None => (session.world.replace)(&kubectl, called.arguments, None),
        Some(text) => (session.world.replace)(&kubectl, &without_fleet(called.arguments), Some(&text)),
    };
    Err(Error::said(format!("{}: {error}", kubectl.to_string_lossy())))
}

/// kubectl knows nothing of a daemon's clusters.
fn without_fleet(arguments: &[OsString]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        match name {
            "--" => {
                kept.push(word.clone());
                kept.extend(words.by_ref().cloned());
            }
            "--cluster" if name == text => drop(words.next()),
            "--cluster" | "--all-clusters" | "--hub" => {}
            _ => kept.push(word.clone()),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_gets_the_line_without_the_daemons_flags() {
        let line = ["get", "cq", "--cluster", "a", "--hub", "-o", "name", "--cluster=b", "--", "--hub"];
        let kept = without_fleet(&line.map(OsString::from));
        assert_eq!(kept, ["get", "cq", "-o", "name", "--", "--hub"].map(OsString::from));
    }
}
