//! Who somebody that the hub knows is on another cluster.

use super::{ProxyError, Target, Wanted};
use crate::client::Caller;

/// Before the names of the hub's ServiceAccounts and of their groups.
pub const PREFIX: &str = "hub:";

const SYSTEM: &str = "system:";
const ACCOUNT: &str = "system:serviceaccount:";
const ACCOUNTS: &str = "system:serviceaccounts";

/// Kubernetes' own users and groups are each cluster's own: whoever administers the hub is nobody there, until somebody says so
/// there. So are ServiceAccounts: whoever may make one on the hub could else choose which of another cluster's they are, so they
/// have names there that no other has. People's names and groups are taken to mean the same everywhere.
pub(super) fn abroad(caller: &Caller, wanted: &Wanted) -> Result<Caller, ProxyError> {
    let user = caller.user.as_str();
    let denied = |reason: &str| ProxyError::Denied { user: user.to_owned(), reason: reason.to_owned() };
    if user.starts_with(PREFIX) {
        return Err(denied("names that begin so are for ServiceAccounts of the hub"));
    }
    let user = match user.strip_prefix(SYSTEM) {
        None => user.to_owned(),
        Some(_) if user.starts_with(ACCOUNT) => format!("{PREFIX}{user}"),
        Some(_) => {
            return Err(denied("Kubernetes' own users are each cluster's own, and this is one of the hub's"));
        }
    };
    let mut groups: Vec<String> = caller.groups.iter().filter_map(|group| group_abroad(group)).collect();
    if let Target::Path(_) = wanted.target {
        // Which kinds a cluster has, all may read whom somebody has vouched for. What is granted to all such people of that
        // cluster beyond that is not meant for the hub's.
        groups.push("system:authenticated".to_owned());
    }
    // What the hub's token is bound to means nothing elsewhere.
    let extra = caller.extra.iter().filter(|(key, _)| !key.starts_with("authentication.kubernetes.io/"));
    let extra = extra.map(|(key, values)| (key.clone(), values.clone())).collect();
    Ok(Caller { user, uid: None, groups, extra })
}

fn group_abroad(group: &str) -> Option<String> {
    let accounts =
        group == ACCOUNTS || group.strip_prefix(ACCOUNTS).is_some_and(|rest| rest.starts_with(':'));
    match group {
        _ if accounts => Some(format!("{PREFIX}{group}")),
        _ if group.starts_with(SYSTEM) || group.starts_with(PREFIX) => None,
        _ => Some(group.to_owned()),
    }
}
