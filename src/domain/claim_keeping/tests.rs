use serde_json::json;

use super::*;
use crate::claim::{AssignmentText, owners::owners};

fn cluster(name: &str) -> ClusterName {
    ClusterName::new(name).unwrap()
}

fn resources(entries: &[(&str, &str)]) -> Resources {
    let entry = |(name, text): &(&str, &str)| {
        let resource = ResourceName::new(name).unwrap();
        let amount = Amount::exact(text, &resource).unwrap();
        (resource, amount)
    };
    entries.iter().map(entry).collect()
}

/// `keys`: key, text and its owners, separated by blanks.
fn claim(keys: &[(&str, &str, &str)]) -> KeptClaim {
    let managers: BTreeSet<&str> = keys.iter().flat_map(|(_, _, owners)| owners.split(' ')).collect();
    let owned_by = |manager: &str| {
        let owned = keys.iter().filter(|(_, _, owners)| owners.split(' ').any(|owner| owner == manager));
        let fields: serde_json::Map<_, _> =
            owned.map(|(key, _, _)| (format!("f:{key}"), json!({}))).collect();
        json!({"f:spec": {"f:nominalResources": fields}})
    };
    let managers: Vec<_> = managers.into_iter().map(|manager| (manager, owned_by(manager))).collect();
    KeptClaim {
        text: ClaimText {
            name: "cluster2-resource-claim".to_owned(),
            cluster: "cluster2".to_owned(),
            nominal: keys.iter().map(|(key, text, _)| ((*key).to_owned(), (*text).to_owned())).collect(),
            assignments: Vec::new(),
            owners: owners(managers.iter().map(|(manager, fields)| (*manager, fields))),
        },
        uid: "u".to_owned(),
        version: "5".to_owned(),
        made_by_fedq: true,
        ..KeptClaim::default()
    }
}

fn assigning(mut claim: KeptClaim, key: &str) -> KeptClaim {
    claim.text.assignments.push(AssignmentText {
        queue: "high".to_owned(),
        flavor: "on-demand".to_owned(),
        resources: BTreeMap::from([(key.to_owned(), "1".to_owned())]),
    });
    claim
}

fn steps(capacity: Option<&[(&str, &str)]>, claims: &[KeptClaim]) -> Vec<Step> {
    let (aliases, capacity) = (Aliases::default(), capacity.map(resources));
    keep(&KeepingInput {
        capacity: capacity.iter().map(|capacity| (cluster("cluster2"), capacity)).collect(),
        joined: capacity.iter().map(|_| cluster("cluster2")).collect(),
        claims: claims.iter().collect(),
        claimed: BTreeSet::new(),
        complete: true,
        aliases: &aliases,
    })
}

/// The keys that are applied, as `cpu=4 gpu=8`; `None` when nothing is written.
fn followed(capacity: &[(&str, &str)], claim: KeptClaim) -> Option<String> {
    match steps(Some(capacity), &[claim]).as_slice() {
        [] => None,
        [Step::Follow { nominal, .. }] => {
            Some(nominal.iter().map(|(key, text)| format!("{key}={text}")).collect::<Vec<_>>().join(" "))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cluster_without_a_claim_gets_one_with_short_names() {
    let found = steps(Some(&[("cpu", "4"), ("nvidia.com/gpu", "8"), ("memory", "64Gi")]), &[]);
    let nominal = [("cpu", "4"), ("gpu", "8"), ("memory", "64Gi")];
    assert_eq!(
        found,
        [Step::Create {
            name: ClaimName::new("cluster2-resource-claim").unwrap(),
            cluster: cluster("cluster2"),
            nominal: nominal.map(|(key, text)| (key.to_owned(), text.to_owned())).into(),
        }]
    );
}

#[test]
fn no_claim_is_made_beside_another_or_before_a_removal_is_believed() {
    let (aliases, capacity) = (Aliases::default(), resources(&[("cpu", "4")]));
    let input = |claims| KeepingInput {
        capacity: BTreeMap::from([(cluster("cluster2"), &capacity)]),
        joined: BTreeSet::from([cluster("cluster2")]),
        claims,
        claimed: BTreeSet::new(),
        complete: true,
        aliases: &aliases,
    };
    let mut theirs = claim(&[("cpu", "4", "kubectl-create")]);
    theirs.text.name = "by-hand".to_owned();
    assert_eq!(keep(&input(vec![&theirs])), [], "at whatever name");
    let going = KeptClaim { deleting: true, ..theirs.clone() };
    assert_eq!(keep(&input(vec![&going])), [], "it is there until it is gone");

    let mut other = claim(&[("cpu", "4", "kubectl-create")]);
    other.text.cluster = "cluster3".to_owned();
    let input_taken = input(vec![&other]);
    assert_eq!(keep(&input_taken), [], "the name is another cluster's");
    let taken: Vec<_> = name_taken(&input_taken).map(|(cluster, name)| format!("{cluster} {name}")).collect();
    assert_eq!(taken, ["cluster2 cluster2-resource-claim"]);

    let held = KeepingInput { claimed: BTreeSet::from([cluster("cluster2")]), ..input(Vec::new()) };
    assert_eq!(keep(&held), []);
    let unread = KeepingInput { complete: false, ..input(Vec::new()) };
    assert_eq!(keep(&unread), []);
    assert_eq!(keep(&input(Vec::new())).len(), 1);
}

#[test]
fn keys_of_fedq_follow_capacity_and_nothing_is_written_at_rest() {
    let ours = || claim(&[("cpu", "4", "fedq-capacity"), ("gpu", "8", "fedq-capacity")]);
    assert_eq!(followed(&[("cpu", "4"), ("nvidia.com/gpu", "8")], ours()), None);
    assert_eq!(followed(&[("cpu", "6"), ("nvidia.com/gpu", "8")], ours()).as_deref(), Some("cpu=6 gpu=8"));
    assert_eq!(followed(&[("cpu", "4"), ("nvidia.com/gpu", "2")], ours()).as_deref(), Some("cpu=4 gpu=2"));
    // The same value in another text is no change.
    let same = claim(&[("cpu", "4000m", "fedq-capacity"), ("memory", "1Gi", "fedq-capacity")]);
    assert_eq!(followed(&[("cpu", "4"), ("memory", "1024Mi")], same.clone()), None);
    assert_eq!(followed(&[("cpu", "4"), ("memory", "2Gi")], same).as_deref(), Some("cpu=4000m memory=2Gi"));
}

#[test]
fn a_resource_that_is_gone_is_zero_while_it_is_asked_for() {
    let ours = || claim(&[("cpu", "4", "fedq-capacity"), ("gpu", "8", "fedq-capacity")]);
    assert_eq!(followed(&[("cpu", "4")], ours()).as_deref(), Some("cpu=4"));
    assert_eq!(followed(&[("cpu", "4")], assigning(ours(), "gpu")).as_deref(), Some("cpu=4 gpu=0"));
    let zero = claim(&[("cpu", "4", "fedq-capacity"), ("gpu", "0", "fedq-capacity")]);
    assert_eq!(followed(&[("cpu", "4")], assigning(zero, "nvidia.com/gpu")), None);
}

#[test]
fn a_key_that_anyone_else_owns_is_left_alone() {
    let capped = claim(&[("cpu", "2", "kubectl-edit"), ("gpu", "8", "fedq-capacity")]);
    assert_eq!(followed(&[("cpu", "4"), ("nvidia.com/gpu", "8")], capped.clone()), None);
    assert_eq!(followed(&[("cpu", "4"), ("nvidia.com/gpu", "9")], capped).as_deref(), Some("gpu=9"));
    // Owned together: repeated as it is.
    let shared = claim(&[("cpu", "2", "fedq-capacity kubectl"), ("gpu", "8", "fedq-capacity")]);
    assert_eq!(followed(&[("cpu", "4"), ("nvidia.com/gpu", "8")], shared.clone()), None);
    assert_eq!(followed(&[("cpu", "4"), ("nvidia.com/gpu", "9")], shared).as_deref(), Some("cpu=2 gpu=9"));
    // A key that a person removed is free.
    let removed = claim(&[("gpu", "8", "fedq-capacity")]);
    assert_eq!(followed(&[("cpu", "4"), ("nvidia.com/gpu", "8")], removed).as_deref(), Some("cpu=4 gpu=8"));
}

#[test]
fn the_short_name_gives_way_to_a_persons_long_one() {
    let capacity = [("cpu", "4"), ("nvidia.com/gpu", "8")];
    let both = claim(&[
        ("cpu", "4", "fedq-capacity"),
        ("gpu", "8", "fedq-capacity"),
        ("nvidia.com/gpu", "5", "kubectl-edit"),
    ]);
    assert_eq!(followed(&capacity, both).as_deref(), Some("cpu=4"));
    let after = claim(&[("cpu", "4", "fedq-capacity"), ("nvidia.com/gpu", "5", "kubectl-edit")]);
    assert_eq!(followed(&capacity, after), None);
    // A long name that is fedq's own, from before it had an alias, becomes the short one.
    let renamed = claim(&[("cpu", "4", "fedq-capacity"), ("nvidia.com/gpu", "8", "fedq-capacity")]);
    assert_eq!(followed(&capacity, renamed).as_deref(), Some("cpu=4 gpu=8"));
}

#[test]
fn a_key_that_the_server_refused_is_dropped() {
    let mut taken = claim(&[("cpu", "4", "fedq-capacity"), ("gpu", "8", "fedq-capacity")]);
    taken.refused.insert("cpu".to_owned());
    assert_eq!(followed(&[("cpu", "9"), ("nvidia.com/gpu", "8")], taken.clone()), None);
    assert_eq!(followed(&[("cpu", "9"), ("nvidia.com/gpu", "7")], taken).as_deref(), Some("gpu=7"));
}

#[test]
fn the_older_of_two_claims_follows() {
    let mut older = claim(&[("cpu", "4", "fedq-capacity")]);
    older.created = Some(Timestamp::from_second(100).unwrap());
    let mut younger = claim(&[("cpu", "4", "fedq-capacity")]);
    younger.text.name = "a".to_owned();
    younger.created = Some(Timestamp::from_second(200).unwrap());
    let found = steps(Some(&[("cpu", "6")]), &[younger, older]);
    let [Step::Follow { name, cluster, uid, .. }] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((name.as_str(), uid.as_str()), ("cluster2-resource-claim", "u"));
    assert_eq!(cluster.as_deref(), Some("cluster2"));
}

#[test]
fn more_resources_than_the_schema_takes_are_cut() {
    let names: Vec<String> = (0..80).map(|i| format!("example.com/r{i}")).collect();
    let mut capacity: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    capacity.push(("memory", "1Gi"));
    let found = steps(Some(&capacity), &[]);
    let [Step::Create { nominal, .. }] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(nominal.len(), MAX_NOMINAL);
    assert!(nominal.contains_key("memory"));
}

#[test]
fn an_empty_claim_of_a_cluster_that_left_goes_unless_a_person_is_in_it() {
    let ours = || claim(&[("cpu", "4", "fedq-capacity")]);
    let delete = Step::Delete {
        name: "cluster2-resource-claim".to_owned(),
        uid: "u".to_owned(),
        version: "5".to_owned(),
    };
    assert_eq!(steps(None, &[ours()]), [delete]);
    assert_eq!(steps(None, &[assigning(ours(), "gpu")]), []);
    assert_eq!(steps(None, &[KeptClaim { made_by_fedq: false, ..ours() }]), []);
    assert_eq!(steps(None, &[KeptClaim { deleting: true, ..ours() }]), []);
    assert_eq!(steps(None, &[claim(&[("cpu", "4", "fedq-capacity kubectl")])]), []);
    assert_eq!(steps(Some(&[("cpu", "4")]), &[ours()]), [], "joined");
}
