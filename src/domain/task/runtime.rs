//! Who runs AppWrappers on a cluster. Kueue knows the kind everywhere; their objects are made by a controller that is
//! installed beside it.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

/// The Leases by which their controllers choose which of their replicas works.
pub const UPSTREAMS_LEASE: &str = "f134c674.codeflare.dev";
pub const FEDQS_LEASE: &str = "fedq-appwrapper";
/// A controller renews its Lease every few seconds. Clocks differ, and a Lease of one that was removed stays.
const LATEST: SignedDuration = SignedDuration::from_mins(5);

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Runtime {
    /// Nobody has answered yet.
    #[default]
    Unknown,
    Upstream,
    Fedq,
    None(Absence),
}

/// Why nothing is known to run them.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Absence {
    NoKind,
    NoController,
    /// The cluster does not say.
    Refused(String),
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const APPLY: &str =
            "have its administrator apply deploy/appwrapper, or install the AppWrapper operator";
        match self {
            Self::NoKind => write!(f, "it does not know AppWrappers: {APPLY}"),
            Self::NoController => {
                write!(f, "nothing runs AppWrappers there, though it knows the kind: {APPLY}")
            }
            Self::Refused(reason) => write!(
                f,
                "it does not say who runs AppWrappers there ({reason}): have its administrator apply \
                 deploy/worker/rbac.yaml"
            ),
        }
    }
}

/// A Lease of a controller.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    pub name: &'a str,
    /// Nobody's where it was given back.
    pub holder: &'a str,
    pub renewed: Option<Timestamp>,
}

impl Runtime {
    /// From the Leases that are there. Upstream's counts first: fedq's does not start beside it.
    pub fn of(leases: &[Held<'_>], now: Timestamp) -> Self {
        let works = |name: &str| {
            leases.iter().any(|lease| {
                let fresh = lease.renewed.is_some_and(|at| now.duration_since(at) <= LATEST);
                lease.name == name && !lease.holder.is_empty() && fresh
            })
        };
        match (works(UPSTREAMS_LEASE), works(FEDQS_LEASE)) {
            (true, _) => Self::Upstream,
            (false, true) => Self::Fedq,
            (false, false) => Self::None(Absence::NoController),
        }
    }

    /// `None` while it is not known.
    pub fn word(&self) -> Option<&'static str> {
        match self {
            Self::Unknown => None,
            Self::Upstream => Some("upstream"),
            Self::Fedq => Some("fedq"),
            Self::None(_) => Some("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_renews_their_lease_runs_them() {
        let at = |second: i64| Timestamp::from_second(second).expect("in range");
        let now = at(1000);
        let lease = |name, holder, second| Held { name, holder, renewed: Some(at(second)) };
        let (upstream, ours) = (lease(UPSTREAMS_LEASE, "a", 999), lease(FEDQS_LEASE, "b", 1002));
        for (leases, runtime) in [
            (vec![], "none"),
            (vec![upstream], "upstream"),
            (vec![ours], "fedq"),
            (vec![ours, upstream], "upstream"),
            (vec![lease(UPSTREAMS_LEASE, "a", 600), ours], "fedq"),
            (vec![lease(FEDQS_LEASE, "", 999)], "none"),
            (vec![lease(FEDQS_LEASE, "b", 699)], "none"),
            (vec![Held { renewed: None, ..ours }], "none"),
            (vec![lease("another", "c", 999)], "none"),
        ] {
            assert_eq!(Runtime::of(&leases, now).word(), Some(runtime), "{leases:?}");
        }
        assert_eq!(Runtime::default().word(), None);
    }
}
