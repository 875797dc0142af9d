//! OCM's kinds into what [`fedq_domain::placement`] decides on.

use std::collections::BTreeMap;

use fedq_domain::placement::{
    changes::{GroupReport, Report},
    conditions::{Condition, MISCONFIGURED, READABLE, SATISFIED},
    hub::{AddOnScores, Binding, ClusterSet, Decision, ManagedCluster, SetSelection, Taint},
    selector,
    spec::{
        AddOnScore, Coordinate, DecisionGroup, GroupSize, Placement, PlacementKey, Predicate,
        PrioritizerConfig, SpreadTerm, Toleration,
    },
};
use fedq_values::{
    ids::{ClusterName, NameError},
    quantity::Quantity,
};
use serde_json::{Map, Value, json};

use crate::types::{
    kueue,
    meta::{Meta, MetaOnly, QuantityText},
    ocm,
};

pub fn placement_key(meta: &Meta) -> PlacementKey {
    PlacementKey {
        namespace: meta.namespace.as_deref().unwrap_or_default().into(),
        name: meta.name.as_str().into(),
    }
}

pub fn placement(object: &ocm::Placement) -> Placement {
    let spec = &object.spec;
    let predicate = |predicate: &ocm::ClusterPredicate| {
        let selector = &predicate.required_cluster_selector;
        Predicate {
            labels: label_selector(&selector.label_selector),
            claims: label_selector(&selector.claim_selector),
            cel: selector.cel_selector.cel_expressions.clone(),
        }
    };
    let toleration = |toleration: &ocm::Toleration| Toleration {
        key: toleration.key.clone(),
        operator: toleration.operator.clone(),
        value: toleration.value.clone(),
        effect: toleration.effect.clone(),
        seconds: toleration.toleration_seconds,
    };
    let spread = |term: &ocm::SpreadConstraint| SpreadTerm {
        key: term.topology_key.clone(),
        is_claim: term.topology_key_type == "Claim",
        max_skew: term.max_skew,
        strict: term.when_unsatisfiable == "DoNotSchedule",
    };
    let strategy = &spec.decision_strategy.group_strategy;
    Placement {
        key: placement_key(&object.metadata),
        uid: object.metadata.uid.clone(),
        generation: object.metadata.generation,
        annotations: object.metadata.annotations.clone(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        cluster_sets: spec.cluster_sets.clone(),
        number_of_clusters: spec.number_of_clusters,
        predicates: spec.predicates.iter().map(predicate).collect(),
        tolerations: spec.tolerations.iter().map(toleration).collect(),
        prioritizer_mode: spec.prioritizer_policy.mode.clone(),
        prioritizers: spec.prioritizer_policy.configurations.iter().map(prioritizer).collect(),
        spread: spec.spread_policy.spread_constraints.iter().map(spread).collect(),
        group_size: match &strategy.clusters_per_decision_group {
            ocm::IntOrText::Int(number) => GroupSize::Number(*number),
            ocm::IntOrText::Text(text) => GroupSize::Text(text.clone()),
        },
        groups: strategy.decision_groups.iter().map(group).collect(),
    }
}

fn prioritizer(config: &ocm::PrioritizerConfig) -> PrioritizerConfig {
    let add_on = |score: &ocm::AddOnScore| AddOnScore {
        resource: score.resource_name.as_str().into(),
        score: score.score_name.as_str().into(),
    };
    let coordinate = |coordinate: &ocm::ScoreCoordinate| Coordinate {
        kind: coordinate.type_.clone(),
        built_in: coordinate.built_in.clone(),
        add_on: coordinate.add_on.as_ref().map(add_on),
    };
    PrioritizerConfig { coordinate: config.score_coordinate.as_ref().map(coordinate), weight: config.weight }
}

fn group(group: &ocm::DecisionGroup) -> DecisionGroup {
    DecisionGroup {
        name: group.group_name.clone(),
        labels: label_selector(&group.group_cluster_selector.label_selector),
        claims: label_selector(&group.group_cluster_selector.claim_selector),
    }
}

fn label_selector(object: &kueue::LabelSelector) -> selector::LabelSelector {
    let expression = |requirement: &kueue::LabelRequirement| selector::Expression {
        key: requirement.key.clone(),
        operator: requirement.operator.clone(),
        values: requirement.values.clone(),
    };
    selector::LabelSelector {
        match_labels: object.match_labels.clone(),
        match_expressions: object.match_expressions.iter().map(expression).collect(),
    }
}

/// The status that the Placement has. Conditions of other kinds are others' and not compared.
pub fn report(object: &ocm::Placement) -> Report {
    let group = |group: &ocm::DecisionGroupStatus| GroupReport {
        index: group.decision_group_index,
        name: group.decision_group_name.clone(),
        decisions: group.decisions.clone(),
        clusters: group.cluster_count,
    };
    let condition = |kind: &'static str| {
        let found = object.status.conditions.iter().find(|condition| condition.type_ == kind)?;
        let known = |reason: &'static &'static str| **reason == found.reason;
        Some(Condition {
            kind,
            holds: found.status == "True",
            reason: REASONS.iter().find(|reason| known(reason)).copied().unwrap_or("Unknown"),
            message: found.message.clone(),
        })
    };
    Report {
        selected: object.status.number_of_selected_clusters,
        groups: object.status.decision_groups.iter().map(group).collect(),
        conditions: KINDS.into_iter().filter_map(condition).collect(),
    }
}

/// The conditions that fedq keeps; all others are others'.
pub const KINDS: [&str; 3] = [MISCONFIGURED, SATISFIED, READABLE];

const REASONS: [&str; 9] = [
    "QuantityUnreadable",
    "Misconfigured",
    "Succeedconfigured",
    "NoManagedClusterSetBindings",
    "NoIntersection",
    "AllManagedClusterSetsEmpty",
    "NotAllDecisionsScheduled",
    "NoManagedClusterMatched",
    "AllDecisionsScheduled",
];

/// From the object as it came, since expressions may look at any of it.
pub fn managed_cluster(cluster: &ocm::ManagedCluster) -> Result<ManagedCluster, NameError> {
    let taint = |taint: &ocm::ClusterTaint| Taint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: taint.effect.clone(),
        added: taint.time_added,
    };
    let claim = |claim: &ocm::ClusterClaim| (claim.name.clone(), claim.value.clone());
    let name = ClusterName::new(&cluster.metadata.name)?;
    let mut unreadable = Vec::new();
    Ok(ManagedCluster {
        name,
        labels: cluster.metadata.labels.clone(),
        claims: cluster.status.cluster_claims.iter().map(claim).collect(),
        taints: cluster.spec.taints.iter().map(taint).collect(),
        allocatable: quantities(&cluster.status.allocatable, "allocatable", &mut unreadable),
        capacity: quantities(&cluster.status.capacity, "capacity", &mut unreadable),
        deleting: cluster.metadata.deletion_timestamp.is_some(),
        object: fedq_cel::value::Value::from(&as_go_has_it(&cluster.object)),
        unreadable,
    })
}

/// An amount that cannot be read is one that the cluster does not have: taken for huge, it would move the
/// scores of all others.
fn quantities(
    texts: &BTreeMap<String, QuantityText>,
    what: &str,
    unreadable: &mut Vec<String>,
) -> BTreeMap<String, Quantity> {
    let mut quantities = BTreeMap::new();
    for (resource, text) in texts {
        match Quantity::parse(&text.0) {
            Ok(quantity) => drop(quantities.insert(resource.clone(), quantity)),
            Err(error) => unreadable.push(format!("{what} {resource}: {error}")),
        }
    }
    quantities
}

/// OCM's controller gives expressions the object after a turn through its Go type: without kind, with
/// fields that Go always writes, and with quantities in their canonical text.
fn as_go_has_it(object: &Value) -> Value {
    let mut object = object.clone();
    let Some(fields) = object.as_object_mut() else { return object };
    fields.remove("kind");
    fields.remove("apiVersion");
    fill(fields, "metadata", "creationTimestamp", Value::Null);
    fill(fields, "spec", "hubAcceptsClient", Value::Bool(false));
    fill(fields, "status", "conditions", Value::Null);
    fill(fields, "status", "version", json!({}));
    for amounts in ["capacity", "allocatable"] {
        let amounts = fields.get_mut("status").and_then(|status| status.get_mut(amounts));
        for amount in amounts.and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            if let Ok(canonical) = Quantity::canonical(&text) {
                *amount = Value::String(canonical);
            }
        }
    }
    object
}

fn fill(fields: &mut Map<String, Value>, part: &str, field: &str, default: Value) {
    let part = fields.entry(part).or_insert_with(|| json!({}));
    if let Some(part) = part.as_object_mut() {
        part.entry(field).or_insert(default);
    }
}

pub fn cluster_set(object: &ocm::ManagedClusterSet) -> ClusterSet {
    let selector = &object.spec.cluster_selector;
    let selection = match selector.selector_type.as_str() {
        "" | "ExclusiveClusterSetLabel" => SetSelection::Exclusive,
        "LabelSelector" => SetSelection::Labels(selector.label_selector.as_ref().map(label_selector)),
        other => SetSelection::Unknown(other.to_owned()),
    };
    ClusterSet { name: object.metadata.name.clone(), selection }
}

pub fn binding(object: &MetaOnly) -> Binding {
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    Binding { namespace, name: object.metadata.name.clone() }
}

pub fn scores(object: &ocm::AddOnPlacementScore) -> AddOnScores {
    let score = |item: &ocm::ScoreItem| (item.name.as_str().into(), item.value);
    AddOnScores {
        cluster: object.metadata.namespace.clone().unwrap_or_default(),
        resource: object.metadata.name.clone(),
        scores: object.status.scores.iter().map(score).collect(),
        valid_until: object.status.valid_until,
    }
}

pub fn decision(object: &ocm::PlacementDecision) -> Decision {
    Decision {
        namespace: object.metadata.namespace.as_deref().unwrap_or_default().into(),
        name: object.metadata.name.clone(),
        labels: object.metadata.labels.clone(),
        clusters: object.status.decisions.iter().map(|decision| decision.cluster_name.clone()).collect(),
    }
}
