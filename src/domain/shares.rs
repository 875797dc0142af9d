//! Sharing one amount out by weights, exactly.

/// Shares of `total` in proportion to `weights`, by largest remainder, ties to the first. Where no
/// weight is above zero, nothing is shared out.
pub fn share(total: i64, weights: &[i64]) -> Vec<i64> {
    let sum: i128 = weights.iter().map(|weight| i128::from(*weight)).sum();
    if sum <= 0 {
        return vec![0; weights.len()];
    }
    let mut shares = Vec::with_capacity(weights.len());
    let mut remainders = Vec::with_capacity(weights.len());
    for weight in weights {
        let exact = i128::from(total) * i128::from(*weight);
        shares.push(i64::try_from(exact / sum).expect("a share is no more than the total"));
        remainders.push(exact % sum);
    }
    let given: i128 = shares.iter().map(|share| i128::from(*share)).sum();
    let left = usize::try_from(i128::from(total) - given).expect("rounding down leaves less than one each");
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(remainders[*i]));
    order.iter().take(left).for_each(|i| shares[*i] += 1);
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_are_in_proportion_and_ties_go_to_the_first() {
        assert_eq!(share(10, &[1, 3]), [3, 7]);
        assert_eq!(share(1, &[1, 1]), [1, 0]);
        assert_eq!(share(5, &[0, 0]), [0, 0]);
        assert_eq!(share(5, &[]), [0_i64; 0]);
    }

    proptest! {
        #[test]
        fn shares_add_up_to_the_total(
            total in prop_oneof![0_i64..100, Just(i64::MAX)],
            weights in prop::collection::vec(prop_oneof![0_i64..10, Just(i64::MAX)], 1..20),
        ) {
            prop_assume!(weights.iter().any(|weight| 0 < *weight));
            let shares = share(total, &weights);
            prop_assert_eq!(shares.iter().map(|share| i128::from(*share)).sum::<i128>(), i128::from(total));
            prop_assert!(shares.iter().zip(&weights).all(|(share, weight)| *share == 0 || 0 < *weight));
        }
    }
}
