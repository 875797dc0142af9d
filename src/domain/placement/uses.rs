//! What a Placement looks at, so that nothing else touches it.

use std::collections::BTreeSet;

use super::{
    hub::AddOnScores,
    selector::LabelSelector,
    spec::{AddOnScore, Placement},
};

#[derive(Debug)]
pub(super) struct Uses {
    labels: BTreeSet<String>,
    claims: BTreeSet<String>,
    scores: Vec<AddOnScore>,
    amounts: bool,
    /// Expressions may look at anything of a cluster.
    expressions: bool,
    /// Expressions that ask for scores may ask for any.
    expression_scores: bool,
}

impl Uses {
    pub fn of(placement: &Placement) -> Self {
        let (mut labels, mut claims) = (BTreeSet::new(), BTreeSet::new());
        for predicate in &placement.predicates {
            labels.extend(keys(&predicate.labels));
            claims.extend(keys(&predicate.claims));
        }
        for group in &placement.groups {
            labels.extend(keys(&group.labels));
            claims.extend(keys(&group.claims));
        }
        for term in &placement.spread {
            let keys = if term.is_claim { &mut claims } else { &mut labels };
            keys.insert(term.key.clone());
        }
        let coordinates = || placement.prioritizers.iter().filter_map(|config| config.coordinate.as_ref());
        let expressions = || placement.predicates.iter().flat_map(|predicate| &predicate.cel);
        Self {
            labels,
            claims,
            scores: coordinates().filter_map(|coordinate| coordinate.add_on.clone()).collect(),
            amounts: coordinates().any(|coordinate| coordinate.built_in.starts_with("ResourceAllocatable")),
            expressions: expressions().next().is_some(),
            expression_scores: expressions().any(|text| text.contains("scores")),
        }
    }

    /// Whether a cluster that changed in these keys, or in its amounts, may be another one to the Placement.
    pub fn sees(&self, labels: &BTreeSet<&str>, claims: &BTreeSet<&str>, amounts: bool) -> bool {
        self.expressions
            || (amounts && self.amounts)
            || labels.iter().any(|key| self.labels.contains(*key))
            || claims.iter().any(|key| self.claims.contains(*key))
    }

    pub fn scores_differ(
        &self,
        resource: &str,
        before: Option<&AddOnScores>,
        after: Option<&AddOnScores>,
    ) -> bool {
        if self.expression_scores {
            return before != after;
        }
        let mut used = self.scores.iter().filter(|used| &*used.resource == resource);
        used.any(|used| told(before, used) != told(after, used))
    }
}

fn told<'a>(
    scores: Option<&'a AddOnScores>,
    used: &AddOnScore,
) -> Option<(Option<i64>, &'a Option<jiff::Timestamp>)> {
    let scores = scores?;
    let value = scores.scores.iter().rfind(|(name, _)| *name == used.score).map(|(_, value)| *value);
    Some((value, &scores.valid_until))
}

fn keys(selector: &LabelSelector) -> impl Iterator<Item = String> {
    let expressions = selector.match_expressions.iter().map(|expression| expression.key.clone());
    selector.match_labels.keys().cloned().chain(expressions)
}
