//! The table.

use super::{Form, Rule};

type Rules = &'static [(&'static str, Rule)];

const fn name(most: usize) -> Rule {
    Rule::Text { least: 0, most, form: Form::Name }
}

const fn filled(most: usize, form: Form) -> Rule {
    Rule::Text { least: 1, most, form }
}

const fn list(least: usize, most: usize) -> Rule {
    Rule::List { least, most }
}

const STOP: Rule = Rule::OneOf(&["None", "Hold", "HoldAndDrain"]);
const FUNGIBILITY: Rule = Rule::OneOf(&["MayStopSearch", "TryNextFlavor"]);

/// What quota is given as, by ClusterQueues and Cohorts alike.
const GROUPS: Rules = &[
    ("spec", Rule::Object),
    ("spec.resourceGroups", list(0, 16)),
    ("spec.resourceGroups[]", Rule::Object),
    ("spec.resourceGroups[]", Rule::Required(&["coveredResources", "flavors"])),
    ("spec.resourceGroups[].coveredResources", list(1, 64)),
    ("spec.resourceGroups[].coveredResources[]", Rule::Text { least: 0, most: usize::MAX, form: Form::Any }),
    ("spec.resourceGroups[].flavors", list(1, 64)),
    ("spec.resourceGroups[].flavors", Rule::KeyedBy("name")),
    ("spec.resourceGroups[].flavors[]", Rule::Object),
    ("spec.resourceGroups[].flavors[]", Rule::Required(&["name", "resources"])),
    ("spec.resourceGroups[].flavors[].name", name(253)),
    ("spec.resourceGroups[].flavors[].resources", list(1, 64)),
    ("spec.resourceGroups[].flavors[].resources", Rule::KeyedBy("name")),
    ("spec.resourceGroups[].flavors[].resources[]", Rule::Object),
    ("spec.resourceGroups[].flavors[].resources[]", Rule::Required(&["name", "nominalQuota"])),
    ("spec.resourceGroups[].flavors[].resources[].nominalQuota", Rule::Quantity),
    ("spec.resourceGroups[].flavors[].resources[].borrowingLimit", Rule::Quantity),
    ("spec.resourceGroups[].flavors[].resources[].lendingLimit", Rule::Quantity),
    ("spec.fairSharing", Rule::Object),
    ("spec.fairSharing.weight", Rule::Quantity),
];

const CLUSTER_QUEUE: Rules = &[
    ("spec.cohortName", name(253)),
    ("spec.queueingStrategy", Rule::OneOf(&["StrictFIFO", "BestEffortFIFO"])),
    ("spec.stopPolicy", STOP),
    ("spec.flavorFungibility", Rule::Object),
    ("spec.flavorFungibility.whenCanBorrow", FUNGIBILITY),
    ("spec.flavorFungibility.whenCanPreempt", FUNGIBILITY),
    (
        "spec.flavorFungibility.preference",
        Rule::OneOf(&["BorrowingOverPreemption", "PreemptionOverBorrowing"]),
    ),
    ("spec.preemption", Rule::Object),
    ("spec.preemption.reclaimWithinCohort", Rule::OneOf(&["Never", "LowerPriority", "Any"])),
    (
        "spec.preemption.withinClusterQueue",
        Rule::OneOf(&["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
    ),
    ("spec.preemption.borrowWithinCohort", Rule::Object),
    ("spec.preemption.borrowWithinCohort.policy", Rule::OneOf(&["Never", "LowerPriority"])),
    ("spec.preemption.borrowWithinCohort.maxPriorityThreshold", Rule::Whole { least: None }),
    ("spec.admissionChecksStrategy", Rule::Object),
    ("spec.admissionChecksStrategy", Rule::Required(&["admissionChecks"])),
    ("spec.admissionChecksStrategy.admissionChecks", list(1, 64)),
    ("spec.admissionChecksStrategy.admissionChecks", Rule::KeyedBy("name")),
    ("spec.admissionChecksStrategy.admissionChecks[]", Rule::Required(&["name"])),
    ("spec.admissionChecksStrategy.admissionChecks[].name", filled(316, Form::Any)),
    ("spec.admissionChecksStrategy.admissionChecks[].onFlavors", list(0, 64)),
    ("spec.admissionChecksStrategy.admissionChecks[].onFlavors[]", name(253)),
    ("spec.namespaceSelector", Rule::Object),
    ("status.flavorsReservation", list(0, 64)),
    ("status.flavorsUsage", list(0, 64)),
    ("status.conditions", list(0, 16)),
    ("status.conditions", Rule::KeyedBy("type")),
];

const LOCAL_QUEUE: Rules = &[
    ("spec", Rule::Object),
    ("spec.clusterQueue", name(253)),
    ("spec.stopPolicy", STOP),
    ("spec.fairSharing", Rule::Object),
    ("spec.fairSharing.weight", Rule::Quantity),
    ("status.flavorsReservation", list(0, 64)),
    ("status.flavorsUsage", list(0, 64)),
    ("status.conditions", list(0, 16)),
    ("status.conditions", Rule::KeyedBy("type")),
];

const RESOURCE_FLAVOR: Rules = &[
    ("spec", Rule::Object),
    ("spec.nodeLabels", Rule::Object),
    ("spec.nodeLabels", Rule::MostEntries(8)),
    ("spec.nodeTaints", list(0, 8)),
    ("spec.nodeTaints[]", Rule::Required(&["effect", "key"])),
    ("spec.tolerations", list(0, 8)),
    ("spec.topologyName", name(253)),
];

const COHORT: Rules = &[("spec.parentName", name(253))];

const ADMISSION_CHECK: Rules = &[
    ("spec", Rule::Object),
    ("spec", Rule::Required(&["controllerName"])),
    ("spec.controllerName", filled(253, Form::Any)),
    ("spec.parameters", Rule::Required(&["apiGroup", "kind", "name"])),
    ("spec.parameters.apiGroup", filled(253, Form::Name)),
    ("spec.parameters.kind", filled(63, Form::Kind)),
    ("spec.parameters.name", filled(63, Form::Label)),
    ("status.conditions", list(0, 16)),
];

const TOPOLOGY: Rules = &[
    ("spec", Rule::Object),
    ("spec", Rule::Required(&["levels"])),
    ("spec.levels", list(1, 16)),
    ("spec.levels[]", Rule::Required(&["nodeLabel"])),
    ("spec.levels[].nodeLabel", filled(316, Form::Any)),
];

const PRIORITY_CLASS: Rules = &[
    ("", Rule::Required(&["value"])),
    ("value", Rule::Whole { least: None }),
    ("description", Rule::Text { least: 0, most: 2048, form: Form::Any }),
];

const WORKLOAD: Rules = &[
    ("spec", Rule::Object),
    ("spec.active", Rule::Flag),
    ("spec.queueName", name(253)),
    ("spec.priority", Rule::Whole { least: None }),
    ("spec.maximumExecutionTimeSeconds", Rule::Whole { least: Some(1) }),
    ("spec.priorityClassRef", Rule::Required(&["group", "kind", "name"])),
    ("spec.priorityClassRef.group", Rule::OneOf(&["kueue.x-k8s.io", "scheduling.k8s.io"])),
    ("spec.priorityClassRef.kind", Rule::OneOf(&["WorkloadPriorityClass", "PriorityClass"])),
    ("spec.priorityClassRef.name", filled(253, Form::Name)),
    ("spec.podSets", list(1, 18)),
    ("spec.podSets", Rule::KeyedBy("name")),
    ("spec.podSets[]", Rule::Object),
    ("spec.podSets[]", Rule::Required(&["template"])),
    ("spec.podSets[].name", Rule::Text { least: 0, most: 63, form: Form::Label }),
    ("spec.podSets[].count", Rule::Whole { least: Some(0) }),
    ("spec.podSets[].minCount", Rule::Whole { least: Some(1) }),
    ("status", Rule::Object),
    ("status.conditions", list(0, 16)),
    ("status.conditions", Rule::KeyedBy("type")),
    ("status.admission.clusterQueue", name(253)),
    ("status.admission.podSetAssignments", list(0, 18)),
    ("status.admissionChecks", list(0, 8)),
    ("status.admissionChecks", Rule::KeyedBy("name")),
    ("status.admissionChecks[]", Rule::Required(&["lastTransitionTime", "message", "name", "state"])),
    ("status.admissionChecks[].state", Rule::OneOf(&["Pending", "Ready", "Retry", "Rejected"])),
    ("status.nominatedClusterNames", list(0, 20)),
    ("status.reclaimablePods", list(0, 18)),
];

pub(super) fn of(kind: &str) -> impl Iterator<Item = &'static (&'static str, Rule)> {
    let (first, second): (Rules, Rules) = match kind {
        "ClusterQueue" => (GROUPS, CLUSTER_QUEUE),
        "Cohort" => (GROUPS, COHORT),
        "LocalQueue" => (LOCAL_QUEUE, &[]),
        "ResourceFlavor" => (RESOURCE_FLAVOR, &[]),
        "AdmissionCheck" => (ADMISSION_CHECK, &[]),
        "Topology" => (TOPOLOGY, &[]),
        "WorkloadPriorityClass" => (PRIORITY_CLASS, &[]),
        "Workload" => (WORKLOAD, &[]),
        _ => (&[], &[]),
    };
    first.iter().chain(second)
}
