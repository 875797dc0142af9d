use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::*;
use crate::{
    capacity::Capacity,
    cluster::QuarantineReason,
    overview::NodeCounts,
    queue::report::Problem,
    quota::{CellPlan, FlavorUse, Overcommit, Reason, Unresolved},
    resource_groups::Rule,
};
use fedq_values::ids::ResourceName;

const NOW: i64 = 1_800_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

fn flavor(name: &str) -> FlavorName {
    FlavorName::new(name).unwrap()
}

fn gpu() -> ResourceName {
    ResourceName::new("nvidia.com/gpu").unwrap()
}

fn cell() -> Cell {
    Cell { queue: queue("high"), flavor: flavor("on-demand"), resource: gpu() }
}

/// A claim of 5 GPUs for one queue on a cluster that answers, and gets them.
struct Bed {
    verdict: Verdict,
    assignments: Vec<Assignment>,
    caps: Resources,
    connection: Option<Connection>,
    capacity: Option<ClusterCapacity>,
    plan: Option<ClusterPlan>,
    report: Option<ClusterReport>,
    hub: BTreeMap<Cell, HubCell>,
    writes: WriteState,
    queues: Vec<QueueReport>,
    previous: Vec<Condition>,
    aliases: Aliases,
}

impl Bed {
    fn new() -> Self {
        let five = Resources::from([(gpu(), Amount::new(5))]);
        let ten = Resources::from([(gpu(), Amount::new(10))]);
        let use_ = FlavorUse {
            capacity: Amount::new(10),
            coming: Amount::ZERO,
            assigned: Amount::new(5),
            unassigned: Amount::new(4),
            foreign: Amount::new(1),
        };
        let capacity = Capacity {
            total: ten.clone(),
            by_flavor: BTreeMap::from([(flavor("on-demand"), ten), (flavor("elsewhere"), Resources::new())]),
            nodes: 2,
            ..Capacity::default()
        };
        Self {
            verdict: Verdict::Accepted,
            assignments: vec![Assignment {
                queue: queue("high"),
                flavor: flavor("on-demand"),
                resources: five,
            }],
            caps: Resources::new(),
            connection: Some(Connection::Ready),
            capacity: Some(ClusterCapacity {
                capacity,
                nodes: NodeCounts { total: 3, usable: 2 },
                flavors: Vec::new().into(),
                headroom: Resources::new(),
                observed: at(NOW - 60),
                bad: Vec::new(),
                silent: None,
                is_old: false,
                was_read: true,
                presumed: false,
                moved: crate::overview::Moved::default(),
            }),
            plan: Some(ClusterPlan { cells: BTreeMap::from([(cell(), planned(5, Reason::Satisfied))]) }),
            report: Some(ClusterReport {
                flavors: BTreeMap::from([(flavor("on-demand"), BTreeMap::from([(gpu(), use_)]))]),
                ..ClusterReport::default()
            }),
            hub: BTreeMap::from([(
                cell(),
                HubCell { target: Amount::new(5), observed: Some(Amount::new(5)), left_alone: None },
            )]),
            writes: WriteState::default(),
            queues: Vec::new(),
            previous: Vec::new(),
            aliases: Aliases::default(),
        }
    }

    fn planned(effective: i64, reason: Reason) -> Self {
        let mut bed = Self::new();
        bed.plan = Some(ClusterPlan { cells: BTreeMap::from([(cell(), planned(effective, reason))]) });
        bed
    }

    fn status(&self) -> ClaimStatus {
        claim_status(&StatusInput {
            generation: 7,
            cluster: "cluster2",
            verdict: &self.verdict,
            assignments: &self.assignments,
            caps: &self.caps,
            connection: self.connection.as_ref(),
            hub_has_kueue: true,
            capacity: self.capacity.as_ref(),
            plan: self.plan.as_ref(),
            report: self.report.as_ref(),
            hub: &self.hub,
            writes: &self.writes,
            queues: &self.queues,
            aliases: &self.aliases,
            now: at(NOW),
            previous: &self.previous,
        })
    }

    fn report(&mut self) -> &mut ClusterReport {
        self.report.as_mut().unwrap()
    }
}

fn planned(effective: i64, reason: Reason) -> CellPlan {
    CellPlan {
        requested: Amount::new(5),
        effective: Amount::new(effective),
        granted: Some(Amount::new(effective)),
        draining: Amount::new(if reason == Reason::Draining { 2 } else { 0 }),
        term: Amount::new(if reason == Reason::Direct { 3 } else { effective }),
        lending: None,
        borrowing: None,
        reason,
    }
}

impl ClaimStatus {
    /// `Unknown/Stale`; empty where the claim has no such condition.
    fn said(&self, kind: ConditionKind) -> String {
        let found = self.conditions.iter().find(|condition| condition.kind == kind);
        found.map(|found| format!("{}/{}", found.status.word(), found.reason)).unwrap_or_default()
    }

    fn message(&self, kind: ConditionKind) -> &str {
        &self.conditions.iter().find(|condition| condition.kind == kind).unwrap().message
    }
}

#[test]
fn what_keeps_queues_from_working_is_told_beside_their_quota() {
    let mut bed = Bed::new();
    let taken = Problem::LocalQueueConflict {
        namespace: "team-a".to_owned(),
        name: "main".to_owned(),
        leads_to: "theirs".to_owned(),
    };
    let report = QueueReport { queue: Some(queue("high")), problem: taken };
    let cohort = Problem::CohortHasQuota { cohort: "all".to_owned(), on_hub: false };
    bed.queues = vec![report.clone(), report, QueueReport { queue: None, problem: cohort }];
    let status = bed.status();
    assert_eq!(status.said(ConditionKind::QueueProblems), "True/LocalQueueConflict");
    assert_eq!(
        status.message(ConditionKind::QueueProblems),
        "`high` on `cluster2`: LocalQueue `team-a/main` is not fedq's and leads to ClusterQueue `theirs`: rename or delete it; \
         `cluster2`: Cohort `all` on the cluster has quota of its own, which its queues can use beyond any claim"
    );
    assert_eq!(status.said(ConditionKind::Ready), "True/Ready", "its quota is there all the same");
    bed.verdict = Verdict::ClaimedBy(ClaimName::new("other").unwrap());
    assert_eq!(bed.status().said(ConditionKind::QueueProblems), "");
}

#[test]
fn a_claim_that_has_all_it_asks_for_is_ready() {
    let status = Bed::new().status();
    assert_eq!(status.observed_generation, 7);
    assert_eq!(status.short, None);
    assert_eq!(status.last_observed, Some(at(NOW - 60)));
    assert_eq!(status.foreign, Resources::from([(gpu(), Amount::new(1))]));
    let kinds: Vec<ConditionKind> = status.conditions.iter().map(|condition| condition.kind).collect();
    let always = ["Accepted", "Resolved", "CapacityKnown", "QuotaSynced", "Satisfied", "Ready"];
    assert_eq!(kinds.iter().map(|kind| kind.word()).collect::<Vec<_>>(), always);
    assert!(status.conditions.iter().all(|condition| condition.status == Truth::True));
    let [assignment] = status.assignments.as_slice() else { panic!("{:?}", status.assignments) };
    assert_eq!((assignment.reason, assignment.message.as_str()), ("Assigned", ""));
    assert_eq!(assignment.effective, assignment.requested);
    // A flavor without nodes here and without assignments is not this cluster's.
    assert_eq!(status.flavors.keys().map(FlavorName::as_str).collect::<Vec<_>>(), ["on-demand"]);
    assert_eq!(status.flavors["on-demand"].unassigned, Resources::from([(gpu(), Amount::new(4))]));
}

/// What the plan says of the cell, and the word, the sentence and `Satisfied` that follow.
fn reasons() -> Vec<(Reason, i64, &'static str, &'static str, &'static str)> {
    let nodes = BTreeSet::from([flavor("on-demand"), flavor("spot")]);
    vec![
        (Reason::MissingQueue, 0, "QueueNotFound", "`high` is not on the hub", "False/QueueNotFound"),
        (Reason::MissingFlavor, 0, "FlavorNotFound", "nor on `cluster2`", "False/FlavorNotFound"),
        (
            Reason::CannotExtend(Rule::TooManyGroups),
            0,
            "CannotExtend",
            "cannot take gpu of `on-demand`: a ClusterQueue has at most",
            "False/CannotExtend",
        ),
        (Reason::Automated, 0, "Automated", "quotaManagement: Automated", "False/Automated"),
        (Reason::Conflict, 0, "Conflict", "annotate it fedq.dev/adopt", "False/Conflict"),
        (Reason::CapacityUnknown, 0, "CapacityUnknown", "not known yet", "Unknown/CapacityUnknown"),
        (Reason::Lost, 0, "Lost", "`cluster2` ", "False/Lost"),
        (Reason::Frozen, 5, "Stale", "`cluster2` ", "True/Satisfied"),
        (Reason::Frozen, 3, "Stale", "`cluster2` ", "False/Stale"),
        (Reason::Cordoned, 2, "Cordoned", "fedq cluster uncordon cluster2", "False/Cordoned"),
        (Reason::Cap, 3, "Capped", "gpu of high on on-demand asks for 5 and gets 3", "False/Capped"),
        (
            Reason::Capacity(nodes),
            3,
            "OverCapacity",
            "asks for 5 and gets 3: all gpu on the nodes of `on-demand`, `spot` (9) is given out",
            "False/OverCapacity",
        ),
        (Reason::Draining, 5, "Draining", "2 of the 5 for gpu of high", "False/Draining"),
        (Reason::NotDispatched, 5, "NotDispatched", "does not list `cluster2`", "False/NotDispatched"),
        (Reason::QueueInactive, 5, "QueueInactive", "is not active", "False/QueueInactive"),
        (Reason::Unconfirmed, 5, "Unconfirmed", "has yet to confirm 5", "True/Satisfied"),
        (Reason::Unconfirmed, 4, "Unconfirmed", "has yet to confirm 4", "False/Unconfirmed"),
        (Reason::Direct, 5, "UsedDirectly", "2 of the 5 for gpu", "False/UsedDirectly"),
        (Reason::Unassigned, 0, "Pending", "waits to be planned", "Unknown/Pending"),
        (Reason::Satisfied, 5, "Assigned", "", "True/Satisfied"),
    ]
}

#[test]
fn every_reason_has_a_word_and_a_sentence() {
    for (reason, effective, word, sentence, satisfied) in reasons() {
        let status = Bed::planned(effective, reason.clone()).status();
        let assignment = &status.assignments[0];
        assert_eq!(assignment.reason, word, "{reason:?}");
        assert!(assignment.message.contains(sentence), "{reason:?}: {}", assignment.message);
        assert_eq!(status.said(ConditionKind::Satisfied), satisfied, "{reason:?}");
        let short = (effective < 5).then(|| format!("gpu {}", 5 - effective));
        assert_eq!(status.short, short, "{reason:?}");
    }
}

#[test]
fn each_resource_has_its_own_reason() {
    let (memory, cpu) = (ResourceName::new("memory").unwrap(), ResourceName::new("cpu").unwrap());
    let mut bed = Bed::new();
    for resource in [&memory, &cpu] {
        bed.assignments[0].resources.insert(resource.clone(), Amount::new(5));
    }
    let cells = &mut bed.plan.as_mut().unwrap().cells;
    cells.insert(Cell { resource: memory.clone(), ..cell() }, planned(3, Reason::Cap));
    cells.insert(Cell { resource: cpu.clone(), ..cell() }, planned(5, Reason::Unconfirmed));
    let status = bed.status();
    assert_eq!(status.assignments[0].reason, "Capped", "what weighs most");
    let own = BTreeMap::from([(gpu(), "Assigned"), (cpu, "Unconfirmed")]);
    assert_eq!(status.assignments[0].reasons, own);
    let plan = bed.plan.as_ref().unwrap();
    assert_eq!(heaviest(plan.cells.values(), None), "Capped");
    bed.connection = None;
    let status = bed.status();
    assert_eq!((status.assignments[0].reason, status.assignments[0].reasons.len()), ("ClusterNotFound", 0));
}

#[test]
fn a_cap_is_named_with_both_sums() {
    let mut bed = Bed::planned(3, Reason::Cap);
    bed.caps = Resources::from([(gpu(), Amount::new(3))]);
    let status = bed.status();
    let message = status.message(ConditionKind::Ready);
    assert!(message.contains("add up to 5, nominalResources caps it at 3"), "{message}");
}

#[test]
fn what_the_cluster_says_decides_what_is_known_and_synced() {
    let since = at(NOW - 3600);
    let reason = || "connection refused".to_owned();
    let identity = QuarantineReason::IdentityChanged { expected: "aaa".to_owned(), found: "bbb".to_owned() };
    let versions = QuarantineReason::VersionsWentBack { stored: 900, found: 400 };
    for (connection, known, synced, sentence) in [
        (None, "Unknown/ClusterNotFound", "Unknown/ClusterNotFound", "fedq cluster join cluster2"),
        (Some(Connection::Connecting), "Unknown/Connecting", "Unknown/Connecting", "its last share stands"),
        (
            Some(Connection::Stale { since, reason: reason() }),
            "Unknown/Stale",
            "Unknown/Stale",
            "since 2027-01-15T07:00:00Z (connection refused): its last share stands",
        ),
        (
            Some(Connection::Lost { since, reason: reason() }),
            "False/Lost",
            "Unknown/Lost",
            "its share is off the hub",
        ),
        (
            Some(Connection::Quarantined { since, reason: identity }),
            "Unknown/Quarantined",
            "Unknown/Quarantined",
            "has the UID bbb, it was aaa): if it is meant, run `fedq cluster confirm cluster2`",
        ),
        (
            Some(Connection::Quarantined { since, reason: versions }),
            "Unknown/Quarantined",
            "Unknown/Quarantined",
            "went back from 900 to 400",
        ),
        (
            Some(Connection::Refused { reason: "exec plugin".to_owned() }),
            "False/Refused",
            "Unknown/Refused",
            "`fedq cluster check cluster2` tells what to do",
        ),
        (Some(Connection::Unreached), "True/Observed", "Unknown/NotReachable", "2 nodes are usable"),
        (Some(Connection::Ready), "True/Observed", "True/Synced", "2 nodes are usable"),
    ] {
        let mut bed = Bed::new();
        bed.connection = connection.clone();
        let status = bed.status();
        assert_eq!(status.said(ConditionKind::CapacityKnown), known, "{connection:?}");
        assert_eq!(status.said(ConditionKind::QuotaSynced), synced, "{connection:?}");
        let message = status.message(ConditionKind::CapacityKnown);
        assert!(message.contains(sentence), "{connection:?}: {message}");
    }
}

#[test]
fn a_frozen_assignment_says_what_froze_it() {
    for (connection, word) in [
        (Connection::Connecting, "Connecting"),
        (Connection::Refused { reason: String::new() }, "Refused"),
        (Connection::Lost { since: at(NOW), reason: String::new() }, "Lost"),
        (Connection::Ready, "Stale"),
    ] {
        let mut bed = Bed::planned(5, Reason::Frozen);
        bed.connection = Some(connection);
        assert_eq!(bed.status().assignments[0].reason, word);
    }
}

#[test]
fn a_claim_for_a_cluster_that_nobody_joined_waits() {
    let mut bed = Bed::new();
    (bed.connection, bed.capacity, bed.plan, bed.report) = (None, None, None, None);
    let status = bed.status();
    assert_eq!(status.said(ConditionKind::Accepted), "True/Accepted");
    assert_eq!(status.said(ConditionKind::Resolved), "False/ClusterNotFound");
    assert_eq!(status.said(ConditionKind::Ready), "False/ClusterNotFound");
    assert_eq!(status.assignments[0].reason, "ClusterNotFound");
    assert_eq!(status.short.as_deref(), Some("gpu 5"));
}

#[test]
fn a_claim_that_assigns_nothing_says_so() {
    let mut bed = Bed::new();
    bed.assignments.clear();
    let status = bed.status();
    assert_eq!(status.message(ConditionKind::Satisfied), "the claim assigns nothing to any queue");
    assert!(!status.message(ConditionKind::Ready).contains("all assignments"), "{status:?}");
}

#[test]
fn a_claim_that_is_not_accepted_says_why_and_gets_nothing() {
    let mut bed = Bed::new();
    let problems = vec![
        ("DuplicateAssignment", "entry 1: twice".to_owned()),
        ("InvalidQuantity", "entry 2: `x` is not a quantity".to_owned()),
    ];
    bed.verdict = Verdict::Rejected(problems);
    bed.assignments.push(bed.assignments[0].clone());
    let status = bed.status();
    assert_eq!(status.said(ConditionKind::Accepted), "False/DuplicateAssignment");
    let message = status.message(ConditionKind::Ready);
    assert_eq!(message, "entry 1: twice; entry 2: `x` is not a quantity");
    assert_eq!(status.said(ConditionKind::Resolved), "Unknown/NotAccepted");
    assert_eq!(status.said(ConditionKind::QuotaSynced), "Unknown/NotAccepted");
    assert_eq!(status.assignments.len(), 1, "the list's key is queue and flavor");
    assert_eq!(status.assignments[0].reason, "NotAccepted");

    bed.verdict = Verdict::ClaimedBy(ClaimName::new("older").unwrap());
    let status = bed.status();
    assert_eq!(status.said(ConditionKind::Accepted), "False/ClusterAlreadyClaimed");
    assert!(status.message(ConditionKind::Ready).contains("already claimed by `older`"));
    assert_eq!(status.assignments[0].reason, "ClusterAlreadyClaimed");
}

#[test]
fn missing_names_are_all_named() {
    let mut bed = Bed::planned(0, Reason::MissingQueue);
    bed.report().unresolved = BTreeSet::from([
        Unresolved::Queue(queue("high")),
        Unresolved::Flavor(flavor("spot")),
        Unresolved::Rule { queue: queue("low"), flavor: flavor("spot"), rule: Rule::TooManyGroups },
    ]);
    let status = bed.status();
    assert_eq!(status.said(ConditionKind::Resolved), "False/QueueNotFound");
    assert_eq!(status.said(ConditionKind::Ready), "False/QueueNotFound");
    let message = status.message(ConditionKind::Resolved);
    for part in ["`high` is not on the hub", "`spot` is neither", "`low` cannot take flavor `spot`"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_flavor_that_only_the_hub_lacks_is_told_so() {
    let mut bed = Bed::planned(0, Reason::MissingFlavor);
    bed.report().unresolved = BTreeSet::from([Unresolved::HubFlavor(flavor("on-demand"))]);
    let status = bed.status();
    assert_eq!(status.said(ConditionKind::Resolved), "False/FlavorNotFound");
    let said = "`on-demand` is on `cluster2` and not on the hub";
    assert!(status.message(ConditionKind::Resolved).contains(said));
    assert!(status.assignments[0].message.contains(said), "{}", status.assignments[0].message);
}

#[test]
fn a_hub_queue_that_cannot_be_read_is_named_where_it_holds_the_cluster() {
    let mut bed = Bed::planned(5, Reason::Frozen);
    bed.writes.unreadable.insert(queue("high"), "bad quantity".to_owned());
    let said = "ClusterQueue `high` on the hub cannot be read (bad quantity)";
    let status = bed.status();
    assert!(status.assignments[0].message.contains(said), "{}", status.assignments[0].message);
}

#[test]
fn quota_is_synced_when_everything_is_written_and_confirmed() {
    let object = "ClusterQueue high on cluster2".to_owned();
    let mut bed = Bed::new();
    bed.writes.pending.insert(object.clone());
    let status = bed.status();
    assert_eq!(status.said(ConditionKind::QuotaSynced), "False/Writing");
    assert!(status.message(ConditionKind::QuotaSynced).contains("ClusterQueue high on cluster2"));

    bed.writes.failed.insert(object, "no answer within 10 s".to_owned());
    let status = bed.status();
    assert_eq!(status.said(ConditionKind::QuotaSynced), "False/WriteFailed");
    let message = "ClusterQueue high on cluster2: no answer within 10 s";
    assert_eq!(status.message(ConditionKind::Ready), message);

    bed.writes.conflicts.insert(cell(), ["argocd-controller"].into_iter().collect());
    let status = bed.status();
    assert_eq!(status.said(ConditionKind::QuotaSynced), "False/QuotaConflict");
    assert_eq!(status.assignments[0].reason, "QuotaConflict");
    assert!(
        status
            .message(ConditionKind::Ready)
            .contains("again by `argocd-controller`: `fedq quota explain high` prints")
    );

    let mut bed = Bed::new();
    bed.hub.insert(cell(), HubCell { target: Amount::new(5), observed: None, left_alone: None });
    let status = bed.status();
    assert_eq!(status.said(ConditionKind::QuotaSynced), "False/Writing");
    let message = "gpu of high on on-demand is 0 on the hub and becomes 5";
    assert_eq!(status.message(ConditionKind::QuotaSynced), message);
    for (observed, said) in [(0, "False/LeftAlone"), (5, "True/Synced")] {
        let left_alone = Some("it is another's".to_owned());
        let (target, observed) = (Amount::new(5), Some(Amount::new(observed)));
        bed.hub.insert(cell(), HubCell { target, observed, left_alone });
        let status = bed.status();
        assert_eq!(status.said(ConditionKind::QuotaSynced), said);
        let message = "ClusterQueue `high` of the hub is left alone: it is another's";
        assert_eq!(status.message(ConditionKind::QuotaSynced) == message, said == "False/LeftAlone");
    }

    let status = Bed::planned(5, Reason::Unconfirmed).status();
    assert_eq!(status.said(ConditionKind::QuotaSynced), "False/Unconfirmed");
    let mut bed = Bed::new();
    (bed.plan, bed.report) = (None, None);
    let status = bed.status();
    assert_eq!(status.said(ConditionKind::QuotaSynced), "Unknown/NotPlanned");
    assert_eq!(status.said(ConditionKind::Satisfied), "Unknown/Pending");
    assert_eq!(status.assignments[0].reason, "Pending");
}

#[test]
fn what_goes_beyond_the_summary_is_there_while_it_applies() {
    let mut bed = Bed::new();
    let cpu = Cell { resource: ResourceName::new("cpu").unwrap(), ..cell() };
    bed.report().incomplete.insert(cpu);
    bed.report().runs_locally.insert(queue("high"));
    bed.report().overcommitted.push(Overcommit {
        flavors: BTreeSet::from([flavor("on-demand")]),
        resource: gpu(),
        usable: Amount::new(9),
        held: Amount::new(12),
    });
    bed.report().unchecked.insert(flavor("on-demand"));
    let status = bed.status();
    assert_eq!(status.said(ConditionKind::Incomplete), "True/Incomplete");
    assert!(status.message(ConditionKind::Incomplete).contains("on-demand has no cpu"));
    assert_eq!(status.said(ConditionKind::Satisfied), "False/Incomplete");
    assert_eq!(status.assignments[0].reason, "Incomplete");
    assert_eq!(status.said(ConditionKind::HubRunsLocally), "True/HubRunsLocally");
    assert_eq!(status.said(ConditionKind::Overcommitted), "True/Overcommitted");
    let message = status.message(ConditionKind::Overcommitted);
    assert!(message.contains("hold 12 of gpu") && message.contains("9 is usable: 3 too much"), "{message}");
    assert!(status.message(ConditionKind::CapacityKnown).contains("too many flavors share nodes"));
}

#[test]
fn a_condition_keeps_its_time_while_its_status_stays() {
    let mut bed = Bed::planned(3, Reason::Cap);
    bed.previous = Bed::new().status().conditions;
    for condition in &mut bed.previous {
        condition.last_transition = at(NOW - 999);
    }
    let status = bed.status();
    for condition in &status.conditions {
        let changed = matches!(condition.kind, ConditionKind::Satisfied | ConditionKind::Ready);
        let expected = if changed { at(NOW) } else { at(NOW - 999) };
        assert_eq!(condition.last_transition, expected, "{:?}", condition.kind);
    }
}

#[test]
fn an_assignment_says_the_worst_of_its_cells_and_all_messages() {
    let mut bed = Bed::planned(3, Reason::Draining);
    let cpu = ResourceName::new("cpu").unwrap();
    bed.assignments[0].resources.insert(cpu.clone(), Amount::new(2500));
    let other = CellPlan { effective: Amount::new(1500), ..planned(0, Reason::Cap) };
    bed.plan.as_mut().unwrap().cells.insert(Cell { resource: cpu, ..cell() }, other);
    let status = bed.status();
    let assignment = &status.assignments[0];
    assert_eq!(assignment.reason, "Capped");
    assert!(assignment.message.contains("cpu of high on on-demand asks for 2500m and gets 1500m"));
    assert!(assignment.message.contains("2 of the 3 for gpu"), "{}", assignment.message);
    assert_eq!(status.short.as_deref(), Some("cpu 1, gpu 2"));
}

#[test]
fn every_word_reads_back() {
    for condition in Bed::new().status().conditions {
        assert_eq!(ConditionKind::from_word(condition.kind.word()), Some(condition.kind));
        assert_eq!(Truth::from_word(condition.status.word()), Some(condition.status));
    }
    assert_eq!(ConditionKind::from_word("Progressing"), None);
    assert_eq!(Truth::from_word("true"), None);
}
