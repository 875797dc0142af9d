//! Scores that fedq gives clusters itself, for Placements to choose by: what is free, on the scale that
//! OCM's resource-usage addon uses, in true units and with a range that can be set.

use fedq_values::{
    ids::ResourceName,
    quantity::{Amount, Quantity},
};

use super::scores::{MAX_SCORE, MIN_SCORE};

/// The AddOnPlacementScore that OCM's addon writes, whose place fedq takes where there is none.
pub const RESOURCE: &str = "resource-usage-score";

/// What counts as nothing and what as plenty.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Range {
    pub min: Amount,
    pub max: Amount,
}

/// A resource of a cluster, and what it is called in scores: `gpu` in `gpuClusterAvailable`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Measure {
    pub name: String,
    pub resource: ResourceName,
    pub range: Range,
}

/// The ranges of OCM's addon: 100 cores, 1 TiB, 20 GPUs or TPUs. (Its memory score is all or nothing for
/// a slip in its arithmetic; ours is graded.)
pub fn default_measures() -> Vec<Measure> {
    let measure = |name: &str, resource: &str, max: &str| {
        let resource = ResourceName::new(resource).expect("a constant resource name is valid");
        let max = Quantity::parse(max).expect("a constant quantity is valid");
        let range = Range { min: Amount::ZERO, max: Amount::offered(max, &resource) };
        Measure { name: name.to_owned(), resource, range }
    };
    vec![
        measure("cpu", "cpu", "100"),
        measure("mem", "memory", "1Ti"),
        measure("gpu", "nvidia.com/gpu", "20"),
        measure("tpu", "google.com/tpu", "20"),
    ]
}

/// From -100 for nothing to 100 for plenty.
pub fn score(available: Amount, range: Range) -> i64 {
    let (value, min, max) =
        (i128::from(available.units()), i128::from(range.min.units()), i128::from(range.max.units()));
    if value <= min {
        return MIN_SCORE;
    }
    if max <= value {
        return MAX_SCORE;
    }
    // Truncated towards 0 as a whole, as the addon does.
    let score = (200 * (value - min) - 100 * (max - min)) / (max - min);
    i64::try_from(score).unwrap_or(MAX_SCORE)
}

/// Names and values of a cluster's scores: `<name>ClusterAvailable` of all nodes together,
/// `<name>NodeAvailable` of the best one.
pub fn scores(
    measures: &[Measure],
    cluster: &dyn Fn(&ResourceName) -> Amount,
    best_node: &dyn Fn(&ResourceName) -> Amount,
) -> Vec<(String, i64)> {
    let of = |measure: &Measure| {
        let scored = |available: Amount| score(available, measure.range);
        [
            (format!("{}ClusterAvailable", measure.name), scored(cluster(&measure.resource))),
            (format!("{}NodeAvailable", measure.name), scored(best_node(&measure.resource))),
        ]
    };
    measures.iter().flat_map(of).collect()
}

/// What a queue may still admit on a cluster, against what it may admit at all.
pub fn quota_score(nominal: Amount, reserved: Amount) -> i64 {
    score(nominal.saturating_sub(reserved), Range { min: Amount::ZERO, max: nominal })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(units: i64) -> i64 {
        let measures = default_measures();
        score(Amount::new(units), measures[2].range)
    }

    #[test]
    fn scores_are_those_of_the_addon() {
        assert_eq!([0, 2, 3, 10, 20, 21].map(gpu), [-100, -80, -70, 0, 100, 100]);
    }

    #[test]
    fn memory_is_graded() {
        let range = default_measures()[1].range;
        let gib = |count: i64| Amount::new(count << 30);
        assert_eq!([0, 256, 512, 1024].map(|count| score(gib(count), range)), [-100, -50, 0, 100]);
    }

    #[test]
    fn absurd_amounts_stay_on_the_scale() {
        let range = Range { min: Amount::new(5), max: Amount::new(5) };
        assert_eq!(score(Amount::MAX, range), 100);
        assert_eq!(score(Amount::new(-1), range), -100);
        assert_eq!(score(Amount::MAX, Range { min: Amount::ZERO, max: Amount::MAX }), 100);
        assert_eq!(score(Amount::new(i64::MAX - 1), Range { min: Amount::ZERO, max: Amount::MAX }), 99);
    }

    #[test]
    fn a_queue_scores_by_the_share_that_is_free() {
        let scores = [(10, 0), (10, 5), (10, 10), (10, 12), (0, 0)]
            .map(|(nominal, reserved)| quota_score(Amount::new(nominal), Amount::new(reserved)));
        assert_eq!(scores, [100, 0, -100, -100, -100]);
    }

    #[test]
    fn each_measure_has_a_score_of_the_cluster_and_of_its_best_node() {
        let found = scores(&default_measures(), &|_| Amount::new(i64::MAX), &|_| Amount::ZERO);
        assert_eq!(found.len(), 8);
        assert_eq!(found[4], ("gpuClusterAvailable".to_owned(), 100));
        assert_eq!(found[5], ("gpuNodeAvailable".to_owned(), -100));
    }
}
