//! Pod Security on workers: a namespace that fedq makes there is no weaker than the hub's of that name.

use std::{fmt, str::FromStr};

use super::selector::Labels;

/// The modes of Pod Security, each a label with the level and one with its version.
const MODES: [&str; 3] = ["enforce", "audit", "warn"];
const PREFIX: &str = "pod-security.kubernetes.io/";
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// From the loosest to the strictest.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Level {
    Privileged,
    Baseline,
    Restricted,
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no level of Pod Security: restricted, baseline, privileged, or none for no label")]
pub struct UnknownLevel(String);

impl Level {
    pub fn word(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }

    /// Kubernetes takes what it does not know for the strictest.
    fn of(word: &str) -> Self {
        word.parse().unwrap_or(Self::Restricted)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(word: &str) -> Result<Self, UnknownLevel> {
        [Self::Privileged, Self::Baseline, Self::Restricted]
            .into_iter()
            .find(|level| level.word() == word)
            .ok_or_else(|| UnknownLevel(word.to_owned()))
    }
}

/// Whether the label is one of Pod Security, which are never simply copied.
pub fn is_pod_security(key: &str) -> bool {
    key.starts_with(PREFIX)
}

/// The labels that a new namespace needs. `default` counts where the hub enforces nothing.
pub fn of_new(hub: &Labels, default: Option<Level>) -> Labels {
    let mut labels = stricter(hub, &Labels::new());
    if let Some(level) = default.filter(|_| !hub.contains_key(ENFORCE)) {
        labels.insert(ENFORCE.to_owned(), level.to_string());
    }
    labels
}

/// The hub's labels that make a namespace stricter than it is: what somebody made stricter on the worker stays.
pub fn stricter(hub: &Labels, observed: &Labels) -> Labels {
    let mut labels = Labels::new();
    for mode in MODES {
        let (level, version) = (format!("{PREFIX}{mode}"), format!("{PREFIX}{mode}-version"));
        let Some(wanted) = hub.get(&level).map(|word| Level::of(word)) else { continue };
        // Without a label nothing is enforced.
        let has = observed.get(&level).map(|word| Level::of(word));
        if has.is_some_and(|has| wanted < has) {
            continue;
        }
        if has != Some(wanted) {
            labels.insert(level, wanted.to_string());
        }
        let of = |labels: &Labels| Version::of(labels.get(&version).map(String::as_str));
        let stays = if has.is_some() { of(hub).max(of(observed)) } else { of(hub) };
        if stays != of(observed) {
            labels.insert(version, stays.to_string());
        }
    }
    labels
}

/// Later ones forbid more.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Version {
    Minor(u32),
    Latest,
}

impl Version {
    /// Without a label it is the latest, and Kubernetes takes what it does not know for that.
    fn of(word: Option<&str>) -> Self {
        let minor = word.and_then(|word| word.strip_prefix("v1.")).and_then(|minor| minor.parse().ok());
        minor.map_or(Self::Latest, Self::Minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minor(minor) => write!(f, "v1.{minor}"),
            Self::Latest => f.pad("latest"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned())).collect()
    }

    #[test]
    fn a_new_namespace_is_as_strict_as_the_hubs() {
        let all = labels(&[("enforce", "baseline"), ("enforce-version", "v1.30"), ("warn", "restricted")]);
        assert_eq!(of_new(&all, Some(Level::Restricted)), all);
        let audit = labels(&[("audit", "baseline")]);
        let mut more = audit.clone();
        more.extend(labels(&[("enforce", "restricted")]));
        assert_eq!(of_new(&audit, Some(Level::Restricted)), more, "an audit forbids nothing");
        assert_eq!(of_new(&audit, None), audit);
        assert_eq!(
            of_new(&labels(&[("enforce", "privileged")]), Some(Level::Restricted)),
            labels(&[("enforce", "privileged")])
        );
        assert_eq!(of_new(&labels(&[("enforce", "whatever")]), None), labels(&[("enforce", "restricted")]));
    }

    #[test]
    fn what_is_stricter_on_the_worker_is_never_loosened() {
        type Levels = [(&'static str, &'static str)];
        let cases: [(&Levels, &Levels, &Levels); 9] = [
            (&[], &[("enforce", "restricted")], &[]),
            (&[("enforce", "privileged")], &[("enforce", "restricted")], &[]),
            (&[("enforce", "baseline")], &[("enforce", "restricted"), ("enforce-version", "v1.20")], &[]),
            (&[("enforce", "restricted")], &[("enforce", "baseline")], &[("enforce", "restricted")]),
            (&[("enforce", "restricted")], &[], &[("enforce", "restricted")]),
            (
                &[("enforce", "restricted"), ("enforce-version", "v1.25")],
                &[("enforce", "baseline")],
                &[("enforce", "restricted")],
            ),
            (
                &[("enforce", "baseline")],
                &[("enforce", "baseline"), ("enforce-version", "v1.25")],
                &[("enforce-version", "latest")],
            ),
            (
                &[("enforce", "baseline"), ("enforce-version", "v1.9")],
                &[("enforce", "baseline"), ("enforce-version", "v1.25")],
                &[],
            ),
            (
                &[("warn", "baseline"), ("warn-version", "v1.30")],
                &[("warn", "privileged"), ("warn-version", "v1.25")],
                &[("warn", "baseline"), ("warn-version", "v1.30")],
            ),
        ];
        for (hub, observed, wanted) in cases {
            let (hub, observed) = (labels(hub), labels(observed));
            let written = stricter(&hub, &observed);
            assert_eq!(written, labels(wanted), "{hub:?} over {observed:?}");
            let mut after = observed;
            after.extend(written);
            assert_eq!(stricter(&hub, &after), Labels::new(), "once is enough");
        }
    }
}
