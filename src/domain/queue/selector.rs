//! Label selectors, as Kubernetes matches them.

use std::collections::{BTreeMap, BTreeSet};

pub type Labels = BTreeMap<String, String>;

/// Set by the API server on every namespace, and so never copied.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// All requirements must hold; none at all selects everything.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Selector(pub Vec<Requirement>);

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Requirement {
    pub key: String,
    pub test: Test,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Test {
    In(BTreeSet<String>),
    /// Holds where the label is missing, too.
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
}

impl Selector {
    pub fn matches(&self, labels: &Labels) -> bool {
        self.failing(labels).next().is_none()
    }

    /// Requirements that `labels` do not meet.
    pub fn failing<'a>(&'a self, labels: &'a Labels) -> impl Iterator<Item = &'a Requirement> {
        self.0.iter().filter(|requirement| !requirement.holds(labels))
    }

    /// Labels that decide and that people set.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|requirement| requirement.key.as_str()).filter(|key| *key != NAME_LABEL)
    }
}

impl Requirement {
    fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(of: &[(&str, &str)]) -> Labels {
        of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn selector(key: &str, test: Test) -> Selector {
        Selector(vec![Requirement { key: key.to_owned(), test }])
    }

    #[test]
    fn requirements_hold_as_in_kubernetes() {
        let values = |of: &[&str]| of.iter().map(|value| (*value).to_owned()).collect();
        let (none, a, b) = (labels(&[]), labels(&[("team", "a")]), labels(&[("team", "b")]));
        let cases = [
            (Test::In(values(&["a"])), [false, true, false]),
            (Test::NotIn(values(&["a"])), [true, false, true]),
            (Test::Exists, [false, true, true]),
            (Test::DoesNotExist, [true, false, false]),
        ];
        for (test, expected) in cases {
            let selector = selector("team", test);
            assert_eq!([&none, &a, &b].map(|labels| selector.matches(labels)), expected, "{selector:?}");
        }
        assert!(Selector::default().matches(&none));
    }

    #[test]
    fn the_label_that_every_namespace_has_is_not_copied() {
        assert_eq!(selector(NAME_LABEL, Test::Exists).keys().count(), 0);
        assert_eq!(selector("team", Test::Exists).keys().collect::<Vec<_>>(), ["team"]);
    }
}
