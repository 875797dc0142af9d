//! Errors of the libraries below in words that may be shown. Their own quote kubeconfigs and the lines, environments and output of
//! credential plugins, which may hold a secret.

use std::{error::Error, io, iter};

use kube::{client::AuthError, config::KubeconfigError};

type Cause = dyn Error + 'static;

/// `plugin` is the program by which the user logs in.
pub fn told(error: &Cause, plugin: &str) -> String {
    if let Some(error) = find::<AuthError>(error) {
        return of_login(error, plugin);
    }
    // A proxy's address may hold a password.
    let unusable = |error: &kube::Error| {
        matches!(
            error,
            kube::Error::ProxyProtocolUnsupported { .. } | kube::Error::ProxyProtocolDisabled { .. }
        )
    };
    if find::<kube::Error>(error).is_some_and(unusable) {
        return "the proxy-url is neither http:// nor https://".to_owned();
    }
    if let Some(KubeconfigError::ParseProxyUrl(_)) = find::<KubeconfigError>(error) {
        return "the proxy-url is no URL".to_owned();
    }
    if let Some(KubeconfigError::Parse(error)) = find::<KubeconfigError>(error) {
        let at = error.location().map(|at| format!(" near line {}, column {}", at.line(), at.column()));
        return format!("it is no kubeconfig in YAML{}", at.unwrap_or_default());
    }
    let texts = causes(error).map(ToString::to_string);
    texts
        .reduce(|all, text| if all.contains(&text) { all } else { format!("{all}: {text}") })
        .unwrap_or_default()
}

/// The first error of a type among the causes of one.
pub fn find<T: Error + 'static>(error: &Cause) -> Option<&T> {
    causes(error).find_map(|error| error.downcast_ref())
}

/// An error, its cause, and so on.
pub fn causes(error: &Cause) -> impl Iterator<Item = &Cause> {
    iter::successors(Some(error), |&error| error.source())
}

/// An operating system's error in Go's words.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string().to_lowercase();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn of_login(error: &AuthError, plugin: &str) -> String {
    match error {
        AuthError::AuthExecStart(error) => {
            format!("cannot run the credential plugin {plugin:?}: {}", reason(error))
        }
        AuthError::AuthExecRun { out, .. } => {
            format!("the credential plugin {plugin:?} failed with {}", out.status)
        }
        AuthError::ReadTokenFile(error, path) => {
            format!("cannot read the token file {}: {}", path.display(), reason(error))
        }
        // Their texts quote nothing.
        AuthError::InvalidBasicAuth(_)
        | AuthError::InvalidBearerToken(_)
        | AuthError::MissingCommand
        | AuthError::ExecMissingClusterInfo
        | AuthError::NoValidNativeRootCA(_) => error.to_string(),
        _ => format!("the credential plugin {plugin:?} gave no credential that can be read"),
    }
}
