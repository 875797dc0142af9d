use proptest::prelude::*;

use super::{
    diff::{Change, diff},
    problem::Problem,
    review::{ClaimContext, Requester, Verdict, review},
    *,
};
use fedq_values::quantity::QuantityError;

fn map(entries: Entries) -> BTreeMap<String, String> {
    entries.iter().map(|(key, quantity)| ((*key).to_owned(), (*quantity).to_owned())).collect()
}

type Entries<'a> = &'a [(&'a str, &'a str)];

/// A claim on cluster `w1` whose nominal entries belong to a person.
fn claim(nominal: Entries, assignments: &[(&str, &str, Entries)]) -> ClaimText {
    let assignments = assignments.iter().map(|(queue, flavor, resources)| AssignmentText {
        queue: (*queue).to_owned(),
        flavor: (*flavor).to_owned(),
        resources: map(resources),
    });
    ClaimText {
        name: "w1-resource-claim".to_owned(),
        cluster: "w1".to_owned(),
        nominal: map(nominal),
        assignments: assignments.collect(),
        owners: Owners::default(),
    }
}

/// The same claim, `keys` being fedq's alone.
fn followed(mut claim: ClaimText, keys: &[&str]) -> ClaimText {
    let fedq = BTreeSet::from([CAPACITY_MANAGER.to_owned()]);
    claim.owners = Owners::new(keys.iter().map(|key| ((*key).to_owned(), fedq.clone())).collect());
    claim
}

fn context() -> ClaimContext {
    ClaimContext {
        tells_of_cluster: true,
        capacity: None,
        coming: Resources::new(),
        claims_of_cluster: Vec::new(),
        aliases: Aliases::default(),
        requester: Requester::Person,
    }
}

fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).unwrap()
}

fn problems(claim: &ClaimText) -> Vec<String> {
    let problems = validate(claim, &Aliases::default()).unwrap_err();
    problems.iter().map(ClaimProblem::to_string).collect()
}

fn denied(old: Option<&ClaimText>, new: &ClaimText, context: &ClaimContext) -> Vec<String> {
    match review(old, new, context) {
        Verdict::Deny(problems) => problems.iter().map(ClaimProblem::to_string).collect(),
        Verdict::Allow { warnings } => panic!("allowed with {warnings:?}"),
    }
}

fn allowed(old: Option<&ClaimText>, new: &ClaimText, context: &ClaimContext) -> Vec<String> {
    match review(old, new, context) {
        Verdict::Allow { warnings } => warnings,
        Verdict::Deny(problems) => panic!("denied: {problems:?}"),
    }
}

/// The manifest of the issue that asked for claims.
fn issue() -> ClaimText {
    let half: &[(&str, &str)] = &[("cpu", "500"), ("memory", "500Gi"), ("gpu", "5")];
    let mut claim = claim(
        &[("cpu", "1000"), ("memory", "1000Gi"), ("gpu", "10")],
        &[("high-priority-queue", "on-demand", half), ("low-priority-queue", "spot", half)],
    );
    claim.name = "cluster2-resource-claim".to_owned();
    claim.cluster = "cluster2".to_owned();
    claim
}

#[test]
fn the_manifest_of_the_issue_is_valid_as_it_is() {
    let claim = validate(&issue(), &Aliases::default()).unwrap();
    assert_eq!(claim.name(), &default_name(claim.cluster()));
    assert_eq!(claim.sums(), claim.caps());
    assert_eq!(claim.sums()[&resource("nvidia.com/gpu")], Amount::new(10));
    assert_eq!(claim.sums()[&resource("cpu")], Amount::new(1_000_000));
    assert_eq!(allowed(None, &issue(), &context()), [""; 0]);
}

#[test]
fn each_problem_names_its_field_and_what_to_do() {
    let mut bad = claim(&[("cpu", "-1"), ("gpu", "500m"), ("a b", "1"), ("x.y/z", "abc")], &[]);
    bad.name = "Claim".to_owned();
    bad.cluster = "../etc".to_owned();
    let found = problems(&bad);
    for (field, hint) in [
        ("metadata.name: ", "use lower-case"),
        ("spec.clusterName: ", "use lower-case"),
        ("spec.nominalResources.cpu: ", "must be 0 or more"),
        ("spec.nominalResources.gpu: ", "the smallest unit is 1"),
        ("spec.nominalResources[a b]: ", "Kubernetes resource name"),
        ("spec.nominalResources[x.y/z]: ", "such as 500m"),
    ] {
        let named = found.iter().any(|problem| problem.starts_with(field) && problem.contains(hint));
        assert!(named, "{field}{hint} in {found:?}");
    }
    assert_eq!(found.len(), 6);
}

#[test]
fn assignments_are_checked_at_their_position() {
    let bad = claim(
        &[],
        &[
            ("q", "f", &[("cpu", "1")]),
            ("q", "f", &[("gpu", "1"), ("nvidia.com/gpu", "2")]),
            ("Q", "", &[]),
            ("r", "f", &[("memory", "99999999999999999999")]),
        ],
    );
    assert_eq!(
        problems(&bad),
        [
            "spec.resourceAssignments[1]: ClusterQueue `q` has flavor `f` twice: put its resources into one entry",
            "spec.resourceAssignments[1].resources[nvidia.com/gpu]: `nvidia.com/gpu` and `gpu` are the same resource: keep one of them",
            &format!("spec.resourceAssignments[2].clusterQueueName: {}", QueueName::new("Q").unwrap_err()),
            &format!("spec.resourceAssignments[2].flavor: {}", FlavorName::new("").unwrap_err()),
            "spec.resourceAssignments[2].resources: no resources: name at least one, such as `cpu: \"4\"`, or remove the entry",
            "spec.resourceAssignments[3].resources.memory: `99999999999999999999` is too large: quota is counted up to 9223372036854775807 units",
        ]
    );
}

#[test]
fn sums_that_overflow_and_lists_that_are_too_long_are_refused() {
    let most = "9223372036854775807";
    let bad = claim(&[], &[("q", "f", &[("gpu", most)]), ("r", "f", &[("gpu", "1")])]);
    let found = validate(&bad, &Aliases::default()).unwrap_err();
    assert_eq!(found[0].problem, Problem::SumTooLarge { resource: resource("nvidia.com/gpu") });

    let mut long = claim(&[], &[]);
    long.nominal = (0..100_000).map(|i| (format!("example.com/r{i}"), "1".to_owned())).collect();
    let found = validate(&long, &Aliases::default()).unwrap_err();
    assert_eq!(found[0].problem, Problem::TooMany { most: MAX_NOMINAL, found: 100_000 });
    assert_eq!(found.len(), 1);
}

#[test]
fn of_alias_and_long_name_a_persons_entry_stays() {
    let both = claim(&[("gpu", "8"), ("nvidia.com/gpu", "4")], &[]);
    let found = validate(&both, &Aliases::default()).unwrap_err();
    assert!(matches!(&found[0].problem, Problem::SameResource { .. }));
    for (ours, stays) in [(&["gpu"][..], "nvidia.com/gpu"), (&["nvidia.com/gpu"], "gpu")] {
        let claim = validate(&followed(both.clone(), ours), &Aliases::default()).unwrap();
        let nominal = &claim.nominal()[&resource("nvidia.com/gpu")];
        assert_eq!((nominal.key.as_str(), nominal.owner), (stays, Owner::Cap));
    }
    let claim = validate(&followed(both, &["gpu", "nvidia.com/gpu"]), &Aliases::default()).unwrap();
    let nominal = &claim.nominal()[&resource("nvidia.com/gpu")];
    assert_eq!((nominal.key.as_str(), nominal.owner), ("gpu", Owner::Followed));
}

#[test]
fn more_than_a_cap_is_denied_with_both_sums_and_the_difference() {
    let old = claim(&[("gpu", "10")], &[("a", "f", &[("gpu", "5")])]);
    let new = claim(&[("gpu", "10")], &[("a", "f", &[("gpu", "5")]), ("b", "f", &[("gpu", "7")])]);
    let message = "spec.resourceAssignments: gpu: the assignments add up to 12, nominalResources allows 10: \
         2 too much; lower them or raise the cap";
    assert_eq!(denied(Some(&old), &new, &context()), [message]);
    assert_eq!(denied(None, &new, &context()), [message]);
}

#[test]
fn a_cap_set_below_what_is_assigned_is_denied_unless_it_was_exceeded() {
    let old = claim(&[("cpu", "10")], &[("a", "f", &[("cpu", "8")])]);
    let lowered = claim(&[("cpu", "5")], &[("a", "f", &[("cpu", "8")])]);
    assert_eq!(denied(Some(&old), &lowered, &context()).len(), 1);
    let lower_still = claim(&[("cpu", "4")], &[("a", "f", &[("cpu", "8")])]);
    assert_eq!(allowed(Some(&lowered), &lower_still, &context()).len(), 1);
}

#[test]
fn a_repair_is_admitted_step_by_step() {
    let stored = claim(
        &[("cpu", "4"), ("gpu", "1")],
        &[("a", "f", &[("cpu", "4"), ("gpu", "4")]), ("b", "f", &[("cpu", "4")])],
    );
    let step = claim(
        &[("cpu", "4"), ("gpu", "1")],
        &[("a", "f", &[("cpu", "3"), ("gpu", "4")]), ("b", "f", &[("cpu", "4")])],
    );
    let warnings = allowed(Some(&stored), &step, &context());
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let worse = claim(
        &[("cpu", "4"), ("gpu", "1")],
        &[("a", "f", &[("cpu", "1"), ("gpu", "5")]), ("b", "f", &[("cpu", "4")])],
    );
    assert_eq!(denied(Some(&stored), &worse, &context()).len(), 1);
}

#[test]
fn a_mistake_that_is_stored_already_does_not_block_other_edits() {
    let stored = claim(&[], &[("A", "f", &[("cpu", "1")]), ("b", "f", &[("cpu", "x")])]);
    let first_removed = claim(&[], &[("b", "f", &[("cpu", "x")])]);
    let warnings = allowed(Some(&stored), &first_removed, &context());
    assert!(warnings[0].starts_with("spec.resourceAssignments[0].resources.cpu: `x`"), "{warnings:?}");
    let one_more = claim(&[], &[("A", "f", &[("cpu", "x")]), ("b", "f", &[("cpu", "x")])]);
    assert_eq!(denied(Some(&stored), &one_more, &context()).len(), 1);
}

#[test]
fn above_capacity_is_warned_of_and_admitted() {
    let new = followed(claim(&[("gpu", "4")], &[("a", "f", &[("gpu", "6"), ("cpu", "1")])]), &["gpu"]);
    let mut context = context();
    assert_eq!(
        allowed(None, &new, &context),
        [
            "cpu: it is not known yet whether the cluster has any",
            "gpu: the assignments add up to 6, the cluster has 4: 2 cannot be given until it grows"
        ]
    );
    context.capacity = Some(Resources::from([(resource("nvidia.com/gpu"), Amount::new(5))]));
    assert_eq!(
        allowed(None, &new, &context),
        [
            "cpu: the assignments add up to 1, the cluster has 0: 1 cannot be given until it grows",
            "gpu: the assignments add up to 6, the cluster has 4: 2 cannot be given until it grows"
        ]
    );
    let capped = claim(&[("gpu", "10")], &[("a", "f", &[("gpu", "6")])]);
    assert_eq!(allowed(None, &capped, &context).len(), 1);
    context.coming = Resources::from([(resource("nvidia.com/gpu"), Amount::new(1))]);
    assert_eq!(
        allowed(None, &new, &context)[1],
        "gpu: the assignments add up to 6, the cluster has 5, with what could come: 1 cannot be given until it grows"
    );
    assert_eq!(allowed(None, &capped, &context), [""; 0], "it will have them");
}

#[test]
fn the_daemon_and_what_is_only_its_own_are_never_held_up() {
    let broken = claim(&[("cpu", "1")], &[("Q", "f", &[("cpu", "5")])]);
    let daemon = ClaimContext { requester: Requester::Daemon, ..context() };
    assert_eq!(allowed(None, &broken, &daemon), [""; 0]);
    // Metadata only.
    assert_eq!(allowed(Some(&broken), &broken, &context()), [""; 0]);
    // fedq's own keys appear, change and go while everything else stays as it is.
    let old = followed(broken.clone(), &["memory"]);
    let mut grown = old.clone();
    grown.nominal.insert("memory".to_owned(), "1Gi".to_owned());
    assert_eq!(allowed(Some(&old), &grown, &context()), [""; 0]);
    assert_eq!(allowed(Some(&grown), &old, &context()), [""; 0]);
}

#[test]
fn one_claim_a_cluster_that_never_changes() {
    let mut new = claim(&[], &[]);
    let other = ClaimName::new("first").unwrap();
    let context = ClaimContext { claims_of_cluster: vec![other], ..context() };
    let message =
        "spec.clusterName: cluster `w1` is already claimed by `first`: edit that claim instead".to_owned();
    assert_eq!(denied(None, &new, &context), [message]);
    // The second claim exists already: it can be edited, and says so.
    let mut edited = new.clone();
    edited.nominal = map(&[("cpu", "1")]);
    assert_eq!(allowed(Some(&new), &edited, &context).len(), 1);
    new.name = "first".to_owned();
    assert_eq!(allowed(None, &new, &context), [""; 0]);
    edited.cluster = "w2".to_owned();
    assert!(denied(Some(&new), &edited, &context)[0].contains("cannot be changed from `w1` to `w2`"));
}

#[test]
fn diff_says_what_each_queue_gains_and_loses() {
    let read = |text: &ClaimText| validate(text, &Aliases::default()).unwrap();
    let old = read(&claim(&[], &[("a", "f", &[("cpu", "4"), ("gpu", "1")]), ("b", "f", &[("cpu", "1")])]));
    let new = read(&claim(&[], &[("a", "f", &[("cpu", "1"), ("gpu", "1")]), ("c", "f", &[("cpu", "2")])]));
    let changes: Vec<_> = diff(Some(&old), Some(&new))
        .into_iter()
        .map(|(cell, change)| (cell.queue.to_string(), change.gain().units(), change.loss().units()))
        .collect();
    assert_eq!(changes, [("a".into(), 0, 3000), ("b".into(), 0, 1000), ("c".into(), 2000, 0)]);
    assert!(diff(Some(&old), Some(&old)).is_empty());
    let gone = diff(Some(&old), None);
    assert!(gone.values().all(|Change { after, .. }| after.is_zero()));
    assert_eq!(gone.len(), 3);
}

#[test]
fn every_problem_has_a_reason_word() {
    let quantity = Problem::Quantity { resource: "cpu".into(), reason: QuantityError::Syntax("x".into()) };
    assert_eq!(quantity.reason(), "InvalidQuantity");
    assert!(quantity.is_malformed());
    let changed = Problem::ClusterChanged { was: "a".into(), now: "b".into() };
    assert!(!changed.is_malformed());
}

prop_compose! {
    fn any_resources()(entries in prop::collection::btree_map("cpu|memory|gpu|nvidia.com/gpu|[a-z./ ]{0,6}", "[0-9]{1,3}(m|Gi|)|.{0,5}", 0..4))
        -> BTreeMap<String, String> { entries }
}

prop_compose! {
    fn any_claim()(
        cluster in "w[12]|.{0,4}",
        nominal in any_resources(),
        assignments in prop::collection::vec(("[ab]", "[fg]|.{0,3}", any_resources()), 0..5),
        ours in prop::collection::vec("cpu|memory|gpu", 0..3),
    ) -> ClaimText {
        let assignments = assignments
            .into_iter()
            .map(|(queue, flavor, resources)| AssignmentText { queue, flavor, resources });
        let claim = ClaimText {
            name: "c".to_owned(), cluster, nominal, assignments: assignments.collect(), owners: Owners::default(),
        };
        followed(claim, &ours.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

prop_compose! {
    /// A readable claim on resources that all of them share, so that reductions are frequent.
    fn sound_claim()(
        caps in prop::array::uniform3(0_u32..20),
        amounts in prop::collection::vec(prop::array::uniform3(0_u32..20), 1..5),
        ours in prop::collection::vec("cpu|memory|gpu", 0..3),
    ) -> ClaimText {
        let resources = |amounts: [u32; 3]| -> BTreeMap<String, String> {
            ["cpu", "memory", "gpu"].iter().zip(amounts)
                .map(|(name, amount)| ((*name).to_owned(), amount.to_string())).collect()
        };
        let assignments = amounts.into_iter().enumerate().map(|(index, amounts)| AssignmentText {
            queue: format!("q{index}"), flavor: "f".to_owned(), resources: resources(amounts),
        });
        let claim = ClaimText {
            name: "c".to_owned(), cluster: "w1".to_owned(), nominal: resources(caps),
            assignments: assignments.collect(), owners: Owners::default(),
        };
        followed(claim, &ours.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

proptest! {
    #[test]
    fn reading_never_panics_and_what_is_valid_is_admitted_within_its_caps(claim in any_claim()) {
        if let Ok(valid) = validate(&claim, &Aliases::default()) {
            let within = valid.caps().iter()
                .all(|(resource, cap)| valid.sums().get(resource).is_none_or(|sum| sum <= cap));
            let admitted = matches!(review(None, &claim, &context()), Verdict::Allow { .. });
            prop_assert_eq!(admitted, within);
        } else {
            prop_assert!(matches!(review(None, &claim, &context()), Verdict::Deny(_)));
        }
    }

    #[test]
    fn a_pure_reduction_is_always_admitted(old in sound_claim(), cut in prop::collection::vec(0_u32..20, 15)) {
        let mut new = old.clone();
        let quantities = new.assignments.iter_mut().flat_map(|a| a.resources.values_mut());
        for (quantity, cut) in quantities.zip(cut) {
            let before: u32 = quantity.parse().unwrap();
            *quantity = before.saturating_sub(cut).to_string();
        }
        let admitted = matches!(review(Some(&old), &new, &context()), Verdict::Allow { .. });
        prop_assert!(admitted);
    }

    #[test]
    fn removing_an_assignment_is_always_admitted(old in any_claim(), index in 0_usize..5) {
        let mut new = old.clone();
        if index < new.assignments.len() {
            new.assignments.remove(index);
        }
        let admitted = matches!(review(Some(&old), &new, &context()), Verdict::Allow { .. });
        prop_assert!(admitted);
    }

    #[test]
    fn any_json_has_owners(text in "[\\[\\]{}\",:a-z0-9.]{0,40}") {
        if let Ok(value) = serde_json::from_str(&text) {
            let _ = owners::owners([("somebody", &value)]);
        }
    }

    #[test]
    fn swapping_the_claims_swaps_gains_and_losses(a in sound_claim(), b in sound_claim()) {
        let (a, b) = (validate(&a, &Aliases::default()).unwrap(), validate(&b, &Aliases::default()).unwrap());
        let back = diff(Some(&b), Some(&a));
        for (cell, change) in diff(Some(&a), Some(&b)) {
            prop_assert_eq!(back[&cell], Change { before: change.after, after: change.before });
        }
    }
}
