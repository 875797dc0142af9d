//! ClusterResourceClaims: read once, and their status rendered once.

pub mod keeping;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition as KubeCondition, Time},
};
use kube::Resource;
use serde_json::json;

use fedq_domain::{
    claim::{ClaimText, ValidClaim, validate},
    claim_status::{ClaimStatus, Condition, ConditionKind, Truth, Verdict},
    quota::{Assignment, ClaimInput},
    resources::{Aliases, Resources},
};
use fedq_values::{
    ids::{ClaimName, FlavorName, QueueName},
    quantity::Amount,
};

use super::{
    list_watch::Table,
    types::claim::{
        AssignmentStatus, ClusterResourceClaim, ClusterResourceClaimStatus, FlavorStatus, QuantityText,
    },
    write::{Action, Change, Kind, Target},
};

/// Field manager of the status.
pub const STATUS_MANAGER: &str = "fedq-status";

/// A claim as the plan and the status need it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadClaim {
    pub object: Arc<ClusterResourceClaim>,
    /// `spec.clusterName`; a claim that is not accepted need not name a cluster.
    pub cluster: String,
    pub verdict: Verdict,
    /// Caps and assignments; of a claim that is not accepted as far as they can be read.
    pub input: ClaimInput,
    /// What the validator made of it, also where an older claim has the cluster.
    pub valid: Option<Arc<ValidClaim>>,
}

impl ReadClaim {
    pub fn in_force(&self) -> bool {
        self.verdict == Verdict::Accepted
    }
}

pub type ReadClaims = BTreeMap<ClaimName, Arc<ReadClaim>>;

/// All claims, each with its verdict: of several for one cluster the oldest is in force, and of those made in the
/// same second the one that is `in_force` already, or else, as after the loss of the store, whose status says so. An object that is the same as `before` is not read again.
pub fn read_claims(
    claims: &Table<ClusterResourceClaim>,
    aliases: &Aliases,
    before: &ReadClaims,
    in_force: &BTreeSet<&str>,
) -> ReadClaims {
    let is_in_force = |claim: &ClusterResourceClaim| {
        claim.metadata.name.as_deref().is_some_and(|name| in_force.contains(name))
    };
    let age = |claim: &ClusterResourceClaim| {
        let created = claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, !is_in_force(claim), !says_accepted(claim), claim.metadata.name.clone())
    };
    let objects = claims.all();
    let mut first: HashMap<&str, &ClusterResourceClaim> = HashMap::new();
    for claim in &objects {
        let holder = first.entry(&claim.spec.cluster_name).or_insert(claim);
        if age(claim) < age(holder) {
            *holder = claim;
        }
    }
    let read = |object: &Arc<ClusterResourceClaim>| {
        let name = ClaimName::new(object.metadata.name.as_deref()?).ok()?;
        let known = before.get(&name).filter(|known| {
            // What it says by itself was put aside where another one has the cluster.
            Arc::ptr_eq(&known.object, object) && !matches!(known.verdict, Verdict::ClaimedBy(_))
        });
        let mut claim = known.cloned().unwrap_or_else(|| Arc::new(read_claim(object, aliases)));
        let holder = first.get(object.spec.cluster_name.as_str())?;
        let holder = ClaimName::new(holder.metadata.name.as_deref()?).ok()?;
        if holder != name && claim.in_force() {
            Arc::make_mut(&mut claim).verdict = Verdict::ClaimedBy(holder);
        }
        Some((name, claim))
    };
    objects.iter().filter_map(read).collect()
}

/// One claim by itself.
pub fn read_claim(object: &Arc<ClusterResourceClaim>, aliases: &Aliases) -> ReadClaim {
    let text = ClaimText::from(object.as_ref());
    let (verdict, input, valid) = match validate(&text, aliases) {
        Ok(valid) => {
            let assignment = |assignment: &fedq_domain::claim::Assignment| Assignment {
                queue: assignment.queue.clone(),
                flavor: assignment.flavor.clone(),
                resources: assignment.resources.clone(),
            };
            let assignments = valid.assignments().iter().map(assignment).collect();
            (Verdict::Accepted, ClaimInput { caps: valid.caps(), assignments }, Some(Arc::new(valid)))
        }
        Err(problems) => {
            let problem = |problem: &fedq_domain::claim::problem::ClaimProblem| {
                (problem.problem.reason(), problem.to_string())
            };
            let verdict = Verdict::Rejected(problems.iter().map(problem).collect());
            (verdict, ClaimInput { caps: Resources::new(), assignments: legible(&text, aliases) }, None)
        }
    };
    ReadClaim { object: Arc::clone(object), cluster: text.cluster, verdict, input, valid }
}

/// What can be read of the assignments of a claim that is not accepted, to show it.
fn legible(text: &ClaimText, aliases: &Aliases) -> Vec<Assignment> {
    let assignment = |assignment: &fedq_domain::claim::AssignmentText| {
        let amount = |(key, text): (&String, &String)| {
            let resource = aliases.resolve(key).ok()?;
            let amount = Amount::exact(text, &resource).ok()?;
            Some((resource, amount))
        };
        Some(Assignment {
            queue: QueueName::new(&assignment.queue).ok()?,
            flavor: FlavorName::new(&assignment.flavor).ok()?,
            resources: assignment.resources.iter().filter_map(amount).collect(),
        })
    };
    text.assignments.iter().filter_map(assignment).collect()
}

fn says_accepted(claim: &ClusterResourceClaim) -> bool {
    let conditions = claim.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|one| one.type_ == ConditionKind::Accepted.word() && one.status == "True")
}

/// The conditions that the claim has now; ones that are not fedq's are left out, and alone.
pub fn conditions(claim: &ClusterResourceClaim) -> Vec<Condition> {
    let condition = |condition: &KubeCondition| {
        Some(Condition {
            kind: ConditionKind::from_word(&condition.type_)?,
            status: Truth::from_word(&condition.status)?,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            observed_generation: condition.observed_generation.unwrap_or_default(),
            last_transition: condition.last_transition_time.0,
        })
    };
    claim.status.iter().flat_map(|status| &status.conditions).filter_map(condition).collect()
}

pub fn render_status(status: &ClaimStatus, aliases: &Aliases) -> ClusterResourceClaimStatus {
    let short = |resources: &Resources| short(resources, aliases);
    let flavor = |(name, flavor): (&_, &fedq_domain::claim_status::FlavorStatus)| FlavorStatus {
        name: ToString::to_string(name),
        capacity: short(&flavor.capacity),
        assigned: short(&flavor.assigned),
        unassigned: short(&flavor.unassigned),
    };
    let assignment = |assignment: &fedq_domain::claim_status::AssignmentStatus| AssignmentStatus {
        cluster_queue_name: assignment.queue.to_string(),
        flavor: assignment.flavor.to_string(),
        requested: short(&assignment.requested),
        effective: short(&assignment.effective),
        reason: assignment.reason.to_owned(),
        reasons: aliases.words(&assignment.reasons),
    };
    let condition = |condition: &Condition| KubeCondition {
        type_: condition.kind.word().to_owned(),
        status: condition.status.word().to_owned(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        observed_generation: Some(condition.observed_generation),
        last_transition_time: Time(to_the_second(condition.last_transition)),
    };
    ClusterResourceClaimStatus {
        observed_generation: Some(status.observed_generation),
        capacity: short(&status.capacity),
        foreign: short(&status.foreign),
        flavors: status.flavors.iter().map(flavor).collect(),
        assignments: status.assignments.iter().map(assignment).collect(),
        short: status.short.clone(),
        last_observed_time: status.last_observed.map(|at| Time(to_the_second(at))),
        conditions: status.conditions.iter().map(condition).collect(),
    }
}

/// The write that the claim needs to say `status`; `None` when only the time of observation differs.
pub fn status_change(
    claim: &ClusterResourceClaim,
    status: &ClaimStatus,
    aliases: &Aliases,
) -> Option<Change> {
    let wanted = render_status(status, aliases);
    if claim.status.as_ref().is_some_and(|found| says_the_same(found, &wanted)) {
        return None;
    }
    let name = claim.metadata.name.clone()?;
    let body = json!({
        "apiVersion": ClusterResourceClaim::api_version(&()),
        "kind": ClusterResourceClaim::kind(&()),
        // The very object that was looked at: one made anew meanwhile gets a status of its own.
        "metadata": {"name": name, "uid": claim.metadata.uid},
        "status": wanted,
    });
    Some(Change {
        target: Target::status(Kind::Claim, name),
        action: Action::Apply(body.into()),
        manager: STATUS_MANAGER,
    })
}

/// Whether nothing but the time of observation differs, in whatever order the server keeps lists.
fn says_the_same(found: &ClusterResourceClaimStatus, wanted: &ClusterResourceClaimStatus) -> bool {
    let plain = |status: &ClusterResourceClaimStatus| {
        let mut status = status.clone();
        status.last_observed_time = None;
        // Other people's conditions are theirs.
        status.conditions.retain(|condition| ConditionKind::from_word(&condition.type_).is_some());
        status.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
        status.flavors.sort_by(|a, b| a.name.cmp(&b.name));
        let key = |assignment: &AssignmentStatus| {
            (assignment.cluster_queue_name.clone(), assignment.flavor.clone())
        };
        status.assignments.sort_by_key(key);
        status
    };
    plain(found) == plain(wanted)
}

fn short(resources: &Resources, aliases: &Aliases) -> BTreeMap<String, QuantityText> {
    let text = |(resource, amount): (&_, &Amount)| {
        (aliases.short(resource).to_owned(), QuantityText(Quantity(amount.text(resource))))
    };
    resources.iter().map(text).collect()
}

/// Kubernetes keeps no finer time in these fields, and what differs by less is no change.
fn to_the_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use fedq_values::{ids::ResourceName, quantity::Amount};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn status(observed: Timestamp) -> ClaimStatus {
        let gpu = ResourceName::new("nvidia.com/gpu").unwrap();
        ClaimStatus {
            observed_generation: 3,
            capacity: Resources::from([(gpu, Amount::new(8))]),
            last_observed: Some(observed),
            conditions: vec![Condition {
                kind: ConditionKind::Ready,
                status: Truth::True,
                reason: "Ready".to_owned(),
                message: String::new(),
                observed_generation: 3,
                last_transition: observed,
            }],
            ..ClaimStatus::default()
        }
    }

    fn claim(status: Option<&Value>) -> ClusterResourceClaim {
        serde_json::from_value(json!({
            "apiVersion": "galaxy.kubestellar.io/v1alpha1",
            "kind": "ClusterResourceClaim",
            "metadata": {"name": "c", "uid": "u", "resourceVersion": "5", "generation": 3},
            "spec": {"clusterName": "cluster2"},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_status_is_written_with_short_names_and_once() {
        let aliases = Aliases::default();
        let change = status_change(&claim(None), &status(at(100)), &aliases).expect("a write");
        let Action::Apply(body) = &change.action else { panic!("{change:?}") };
        assert_eq!(body["status"]["capacity"], json!({"gpu": "8"}));
        assert_eq!(body["metadata"], json!({"name": "c", "uid": "u"}));
        assert_eq!(change.manager, "fedq-status");

        let mut written = body["status"].clone();
        let theirs = json!({"type": "Approved", "status": "True", "reason": "ByHand", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        written["conditions"].as_array_mut().unwrap().insert(0, theirs);
        let found = claim(Some(&written));
        assert_eq!(conditions(&found), status(at(100)).conditions);
        assert_eq!(status_change(&found, &status(at(100)), &aliases), None);

        let mut later = status(at(100));
        later.last_observed = Some(at(900));
        assert_eq!(status_change(&found, &later, &aliases), None, "only the time differs");
        later.observed_generation = 4;
        let change = status_change(&found, &later, &aliases).expect("a write");
        let Action::Apply(body) = change.action else { panic!("an apply") };
        assert_eq!(body["status"]["lastObservedTime"], "1970-01-01T00:15:00Z");
    }

    fn of(name: &str, second: i64, quantity: &str) -> ClusterResourceClaim {
        let created = Time(at(second));
        serde_json::from_value(json!({
            "apiVersion": "galaxy.kubestellar.io/v1alpha1",
            "kind": "ClusterResourceClaim",
            "metadata": {"name": name, "resourceVersion": "5", "creationTimestamp": created},
            "spec": {"clusterName": "cluster2", "nominalResources": {"gpu": 10}, "resourceAssignments": [
                {"clusterQueueName": "high", "flavor": "on-demand", "resources": {"gpu": quantity, "cpu": "1"}},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn of_two_claims_of_one_second_the_one_that_was_accepted_stays_when_the_store_is_lost() {
        let table = Table::new();
        table.absorb(of("a-turned-down", 100, "1"));
        let mut accepted = of("z-accepted", 100, "6");
        accepted.status = serde_json::from_value(json!({"conditions": [{
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": Time(at(200)),
        }]}))
        .unwrap();
        table.absorb(accepted);
        let read = read_claims(&table, &Aliases::default(), &ReadClaims::new(), &BTreeSet::new());
        assert!(read["z-accepted"].in_force() && !read["a-turned-down"].in_force());
        let read = BTreeSet::from(["a-turned-down"]);
        let read = read_claims(&table, &Aliases::default(), &ReadClaims::new(), &read);
        assert!(read["a-turned-down"].in_force(), "what is known of here comes first");
    }

    #[test]
    fn of_two_claims_the_older_is_in_force() {
        let table = Table::new();
        table.absorb(of("a-younger", 200, "5"));
        table.absorb(of("b-older", 100, "5"));
        table.absorb(of("c-same-second", 100, "5"));
        let read = read_claims(&table, &Aliases::default(), &ReadClaims::new(), &BTreeSet::new());
        let claimed = Verdict::ClaimedBy(ClaimName::new("b-older").unwrap());
        let verdicts: Vec<&Verdict> = read.values().map(|claim| &claim.verdict).collect();
        assert_eq!(verdicts, [&claimed, &Verdict::Accepted, &claimed]);
        let gpu = ResourceName::new("nvidia.com/gpu").unwrap();
        let older = &read["b-older"];
        assert!(older.in_force());
        assert_eq!(older.input.caps, Resources::from([(gpu.clone(), Amount::new(10))]));
        assert_eq!(older.input.assignments[0].resources[&gpu], Amount::new(5));
    }

    #[test]
    fn a_claim_is_read_once_and_a_verdict_on_it_is_made_each_time() {
        let (table, aliases) = (Table::new(), Aliases::default());
        table.absorb(of("a-younger", 200, "5"));
        let first = read_claims(&table, &aliases, &ReadClaims::new(), &BTreeSet::new());
        assert!(Arc::ptr_eq(
            &read_claims(&table, &aliases, &first, &BTreeSet::new())["a-younger"],
            &first["a-younger"]
        ));
        table.absorb(of("b-older", 100, "5"));
        let second = read_claims(&table, &aliases, &first, &BTreeSet::new());
        assert!(!second["a-younger"].in_force() && second["b-older"].in_force());
        assert!(read_claims(&table, &aliases, &second, &BTreeSet::new())["b-older"].in_force());
        let alone = Table::new();
        alone.absorb(table.get(None, "a-younger").expect("it is there").as_ref().clone());
        assert!(
            read_claims(&alone, &aliases, &second, &BTreeSet::new())["a-younger"].in_force(),
            "the older one is gone"
        );
        let mut changed = of("b-older", 100, "6");
        changed.metadata.resource_version = Some("6".to_owned());
        table.absorb(changed);
        let third = read_claims(&table, &aliases, &second, &BTreeSet::new());
        assert_ne!(third["b-older"].input, second["b-older"].input);
    }

    #[test]
    fn a_claim_that_is_not_accepted_is_shown_as_far_as_it_reads() {
        let read = read_claim(&Arc::new(of("c", 1, "many")), &Aliases::default());
        let Verdict::Rejected(problems) = &read.verdict else { panic!("{:?}", read.verdict) };
        assert_eq!(problems[0].0, "InvalidQuantity");
        assert!(problems[0].1.starts_with("spec.resourceAssignments[0].resources.gpu: `many`"));
        let [assignment] = read.input.assignments.as_slice() else { panic!("one assignment") };
        assert_eq!(assignment.resources.keys().map(ResourceName::as_str).collect::<Vec<_>>(), ["cpu"]);
    }
}
