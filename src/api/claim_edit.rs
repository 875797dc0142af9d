//! Edits of claims: from what a person sent to what is written, judged before the hub sees it by the
//! same function that the webhook uses.

use std::collections::BTreeMap;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, StatusCode, header, request::Parts},
};
use serde_json::json;

use super::{
    Failure, State,
    audit::{self, Deed},
    extract::{DryRun, Query},
    object, show,
};
use fedq_domain::{
    claim::{
        self, AssignmentText, ClaimText, Owner,
        owners::Owners,
        review::{ClaimContext, Requester, Verdict, review},
    },
    resources::Aliases,
};
use fedq_k8s::{
    client::Caller,
    types::claim::{ClusterResourceClaim, ClusterResourceClaimSpec, QuantityText, ResourceAssignment},
};
use fedq_values::{
    ids::{ClaimName, FlavorName, QueueName},
    quantity::{Amount, Quantity as Exact},
};
use fedq_wire::{
    claim::{Assign, Assignment, CellChange, ClaimChange, ClaimSpec},
    problem::Code,
    quantity::Quantities,
};

/// How an edit is to be made.
pub struct EditOptions {
    pub expected: Match,
    pub dry_run: bool,
}

impl FromRequestParts<State> for EditOptions {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &State) -> Result<Self, Failure> {
        let Query(dry_run) = Query::<DryRun>::from_request_parts(parts, state).await?;
        Ok(Self { expected: Match::from_headers(&parts.headers)?, dry_run: dry_run.is_set() })
    }
}

/// The version an edit was made from.
pub enum Match {
    Any,
    Version(String),
}

impl Match {
    fn from_headers(headers: &HeaderMap) -> Result<Self, Failure> {
        let Some(value) = headers.get(header::IF_MATCH) else {
            let failure = Failure::new(
                StatusCode::PRECONDITION_REQUIRED,
                Code::PreconditionRequired,
                "If-Match is missing: an edit must name the version it was made from",
            );
            return Err(failure.next("read the claim first and send its ETag as If-Match"));
        };
        let text = value.to_str().map_or("", str::trim);
        let version = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        match (text, version) {
            ("*", _) => Ok(Self::Any),
            (_, Some(tag))
                if !tag.is_empty() && tag.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"') =>
            {
                Ok(Self::Version(object::version(tag).to_owned()))
            }
            _ => Err(Failure::bad_request("If-Match is neither * nor one quoted ETag")),
        }
    }

    pub fn check(&self, current: &ClusterResourceClaim) -> Result<(), Failure> {
        match self {
            Self::Version(version) if Some(version) != current.metadata.resource_version.as_ref() => {
                let failure = Failure::new(
                    StatusCode::PRECONDITION_FAILED,
                    Code::Conflict,
                    "the claim was changed since it was read",
                );
                Err(failure.next("read it again and repeat the change on what is there now"))
            }
            Self::Any | Self::Version(_) => Ok(()),
        }
    }
}

pub fn spec(claim: &ClusterResourceClaim) -> ClaimSpec {
    let texts = |map: &BTreeMap<String, QuantityText>| -> Quantities {
        map.iter().map(|(key, text)| (key.clone(), text.0.0.clone().into())).collect()
    };
    let assignments = claim.spec.resource_assignments.iter().map(|assignment| Assignment {
        cluster_queue_name: assignment.cluster_queue_name.clone(),
        flavor: assignment.flavor.clone(),
        resources: texts(&assignment.resources),
    });
    ClaimSpec {
        cluster_name: claim.spec.cluster_name.clone(),
        nominal_resources: texts(&claim.spec.nominal_resources),
        resource_assignments: assignments.collect(),
    }
}

/// What is wrong with an assignment itself is told by the fields that were sent, and not by those of the claim that it
/// would be a part of.
pub fn must_be_legible(assign: &Assign, aliases: &Aliases) -> Result<(), Failure> {
    QueueName::new(&assign.queue).map_err(|error| Failure::field("queue", &error))?;
    FlavorName::new(&assign.flavor).map_err(|error| Failure::field("flavor", &error))?;
    for (key, text) in &assign.resources {
        let field = format!("resources.{key}");
        let resource = aliases.resolve(key).map_err(|error| Failure::field(&field, &error))?;
        Amount::exact(&text.0, &resource).map_err(|error| Failure::field(&field, &error))?;
    }
    Ok(())
}

/// `current` with one assignment set, replaced or taken away.
pub fn assigned(current: &ClusterResourceClaim, assign: &Assign) -> ClaimSpec {
    let mut spec = spec(current);
    let same = |other: &Assignment| other.cluster_queue_name == assign.queue && other.flavor == assign.flavor;
    let at = spec.resource_assignments.iter().position(same);
    let wanted = Assignment {
        cluster_queue_name: assign.queue.clone(),
        flavor: assign.flavor.clone(),
        resources: assign.resources.clone(),
    };
    match (at, assign.resources.is_empty()) {
        (Some(at), true) => drop(spec.resource_assignments.remove(at)),
        (Some(at), false) => spec.resource_assignments[at] = wanted,
        (None, true) => {}
        (None, false) => spec.resource_assignments.push(wanted),
    }
    spec
}

/// An edit that may be written.
pub struct Edit {
    pub spec: ClusterResourceClaimSpec,
    pub changes: Vec<CellChange>,
    pub warnings: Vec<String>,
}

/// Keys of `nominalResources` that are fedq's alone.
pub fn follows(claim: &ClusterResourceClaim) -> Vec<String> {
    let text = ClaimText::from(claim);
    text.nominal.keys().filter(|key| text.owners.owner(key) == Owner::Followed).cloned().collect()
}

/// Judges bringing `current` to `wanted`.
pub fn judge(state: &State, current: &ClusterResourceClaim, wanted: &ClaimSpec) -> Result<Edit, Failure> {
    let old = ClaimText::from(current);
    compare(state, Some(&old), &text(&old, wanted))
}

/// Judges making a claim of this name.
pub fn judge_new(state: &State, name: &ClaimName, wanted: &ClaimSpec) -> Result<Edit, Failure> {
    let nothing = ClaimText { name: name.to_string(), ..ClaimText::default() };
    compare(state, None, &text(&nothing, wanted))
}

fn compare(state: &State, old: Option<&ClaimText>, new: &ClaimText) -> Result<Edit, Failure> {
    let context = ClaimContext::new(&state.overview(), &new.cluster, &state.aliases, Requester::Person);
    let verdict = review(old, new, &context);
    let warnings = match verdict {
        Verdict::Deny(problems) => return Err(Failure::claim(&problems)),
        Verdict::Allow { warnings } => warnings,
    };
    // A stored claim with a mistake in it can still be edited; then only the rest is compared.
    let valid = |text: &ClaimText| claim::validate(text, &state.aliases).ok();
    let changes = claim::diff::diff(old.and_then(valid).as_ref(), valid(new).as_ref());
    let changes = changes.into_iter().map(|(cell, change)| {
        let text = |amount| show::quantity(amount, &cell.resource);
        let (sign, difference) =
            if change.gain().is_zero() { ("-", change.loss()) } else { ("+", change.gain()) };
        CellChange {
            change: format!("{sign}{}", text(difference)),
            before: text(change.before),
            after: text(change.after),
            resource: state.aliases.short(&cell.resource).to_owned(),
            queue: cell.queue.to_string(),
            flavor: cell.flavor.to_string(),
        }
    });
    Ok(Edit { spec: written(new), changes: changes.collect(), warnings })
}

/// What the claim would say. A quantity of the same value keeps its text, and with it its owner: only
/// what the person changed becomes theirs.
fn text(old: &ClaimText, wanted: &ClaimSpec) -> ClaimText {
    let nominal = keep(&old.nominal, &wanted.nominal_resources);
    let owners = nominal.iter().filter(|(key, text)| old.nominal.get(*key) == Some(text)).map(|(key, _)| {
        let managers = old.owners.managers(key).map(str::to_owned).collect();
        (key.clone(), managers)
    });
    let owners = Owners::new(owners.collect());
    let assignments = wanted.resource_assignments.iter().map(|assignment| {
        let same = |other: &&AssignmentText| {
            other.queue == assignment.cluster_queue_name && other.flavor == assignment.flavor
        };
        let before = old.assignments.iter().find(same).map(|other| other.resources.clone());
        AssignmentText {
            queue: assignment.cluster_queue_name.clone(),
            flavor: assignment.flavor.clone(),
            resources: keep(&before.unwrap_or_default(), &assignment.resources),
        }
    });
    ClaimText {
        name: old.name.clone(),
        cluster: wanted.cluster_name.clone(),
        assignments: assignments.collect(),
        nominal,
        owners,
    }
}

fn keep(before: &BTreeMap<String, String>, wanted: &Quantities) -> BTreeMap<String, String> {
    let kept = |key: &String, text: &str| {
        let before = before.get(key)?;
        let same = Exact::parse(before).ok()? == Exact::parse(text).ok()?;
        same.then(|| before.clone())
    };
    let texts = wanted.iter();
    texts.map(|(key, text)| (key.clone(), kept(key, &text.0).unwrap_or_else(|| text.0.clone()))).collect()
}

fn written(text: &ClaimText) -> ClusterResourceClaimSpec {
    let quantities = |texts: &BTreeMap<String, String>| {
        texts.iter().map(|(key, text)| (key.clone(), QuantityText::from(text.clone()))).collect()
    };
    let assignments = text.assignments.iter().map(|assignment| ResourceAssignment {
        cluster_queue_name: assignment.queue.clone(),
        flavor: assignment.flavor.clone(),
        resources: quantities(&assignment.resources),
    });
    ClusterResourceClaimSpec {
        cluster_name: text.cluster.clone(),
        nominal_resources: quantities(&text.nominal),
        resource_assignments: assignments.collect(),
    }
}

/// Judges the edit and writes it.
pub async fn apply(
    state: &State,
    caller: &Caller,
    current: &ClusterResourceClaim,
    wanted: &ClaimSpec,
    dry_run: bool,
) -> Result<ClaimChange, Failure> {
    let edit = judge(state, current, wanted)?;
    let session = state.hub.session(caller)?;
    let outcome = session.edit_claim(current, &edit.spec, dry_run).await.map_err(Failure::from);
    let name = current.metadata.name.as_deref().unwrap_or_default();
    let detail = Some(json!({"changes": &edit.changes}));
    let deed = Deed { verb: "edit", object: format!("clusterresourceclaims/{name}"), detail, dry_run };
    audit::record(state, caller, deed, outcome.as_ref().map(|_| ())).await;
    let after = outcome?;
    let version = if dry_run { &current.metadata.resource_version } else { &after.metadata.resource_version };
    Ok(ClaimChange {
        resource_version: version.clone().unwrap_or_default(),
        dry_run,
        changes: edit.changes,
        warnings: edit.warnings,
        spec: spec(&after),
    })
}
