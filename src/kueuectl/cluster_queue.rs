//! `create clusterqueue`, with its quotas: `flavor:resource=amount;…,flavor2:…`.

use std::{collections::BTreeSet, sync::OnceLock};

use regex::Regex;
use serde_json::{Value, json};

use crate::{create, error::Error, flags::Given, resource::Resource, session::Session};
use fedq_values::quantity::Quantity;

/// The flags of quotas, with the fields they fill.
const QUOTAS: [(&str, &str); 3] = [
    ("nominal-quota", "nominalQuota"),
    ("borrowing-limit", "borrowingLimit"),
    ("lending-limit", "lendingLimit"),
];

pub async fn create(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let given = &session.given;
    let groups = resource_groups(given)?;
    let chosen = |flag: &str, default: &str| {
        if given.has(flag) { given.text(flag).to_owned() } else { default.to_owned() }
    };
    let mut spec = json!({
        "cohortName": given.text("cohort"),
        "queueingStrategy": chosen("queuing-strategy", "BestEffortFIFO"),
        "namespaceSelector": {},
        "preemption": {
            "reclaimWithinCohort": chosen("reclaim-within-cohort", "Never"),
            "withinClusterQueue": chosen("preemption-within-cluster-queue", "Never"),
        },
        "resourceGroups": groups,
    });
    if given.text("cohort").is_empty() {
        // Kueue refuses an empty name.
        spec.as_object_mut().expect("it is one").remove("cohortName");
    }
    let labels = given.pairs("namespace-selector");
    if !labels.is_empty() {
        spec["namespaceSelector"] = json!({"matchLabels": labels});
    }
    let name = given.arguments[0].clone();
    session.dry_run()?;
    if name.is_empty() {
        return Err(Error::said("name must be specified"));
    }
    let object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": spec,
    });
    create::send(session, &Resource::cluster_queue(), object).await
}

/// What the flags say of one flavor: for each resource its amounts, in the order they were given.
struct Flavor {
    name: String,
    resources: Vec<(String, Value)>,
}

/// Groups in the order of their flavors: flavors of the same resources share one.
pub fn resource_groups(given: &Given) -> Result<Vec<Value>, Error> {
    let mut flavors: Vec<Flavor> = Vec::new();
    for (flag, field) in QUOTAS {
        let mut told = BTreeSet::new();
        for spec in given.all(flag) {
            let flavor = parse(spec, field)?;
            if !told.insert(flavor.name.clone()) {
                if let Some(known) = flavors.iter_mut().find(|known| known.name == flavor.name) {
                    merge(known, &flavor)?;
                }
                return Err(Error::said(format!("duplicate flavor {:?} in --{flag}", flavor.name)));
            }
            match flavors.iter_mut().find(|known| known.name == flavor.name) {
                Some(known) => merge(known, &flavor)?,
                None if field == "nominalQuota" => flavors.push(flavor),
                None => {
                    return Err(Error::said(format!(
                        "--{flag} names flavor {:?}, --nominal-quota does not",
                        flavor.name
                    )));
                }
            }
        }
    }
    let mut groups: Vec<(BTreeSet<String>, Value)> = Vec::new();
    for flavor in flavors {
        let covered: BTreeSet<String> = flavor.resources.iter().map(|(name, _)| name.clone()).collect();
        let entry = json!({"name": flavor.name, "resources": flavor.resources.iter().map(|(_, quota)| quota).collect::<Vec<_>>()});
        if let Some((_, group)) = groups.iter_mut().find(|(other, _)| *other == covered) {
            group["flavors"].as_array_mut().expect("it is one").push(entry);
        } else if groups.iter().any(|(other, _)| !other.is_disjoint(&covered)) {
            return Err(Error::said("invalid resource group"));
        } else {
            let names: Vec<&String> = flavor.resources.iter().map(|(name, _)| name).collect();
            groups.push((covered, json!({"coveredResources": names, "flavors": [entry]})));
        }
    }
    Ok(groups.into_iter().map(|(_, group)| group).collect())
}

fn parse(spec: &str, field: &str) -> Result<Flavor, Error> {
    static FORM: OnceLock<Regex> = OnceLock::new();
    let form = FORM.get_or_init(|| {
        Regex::new(r"^[a-z0-9][a-z0-9.-]{0,252}:(?:(?:[A-Za-z0-9_]+[.-]?)*/?[A-Za-z0-9_]+=[A-Za-z0-9_.]+;)*(?:[A-Za-z0-9_]+[.-]?)*/?[A-Za-z0-9_]+=[A-Za-z0-9_.]+;?$")
            .expect("it is a constant")
    });
    let Some((name, amounts)) = spec.split_once(':').filter(|_| form.is_match(spec)) else {
        return Err(Error::said("invalid resources specification"));
    };
    let mut resources: Vec<(String, Value)> = Vec::new();
    for amount in amounts.split(';') {
        let (resource, amount) = amount.split_once('=').unwrap_or((amount, ""));
        let quantity = Quantity::canonical(amount).map_err(|_| Error::said("invalid resource quota"))?;
        if resources.iter().any(|(known, _)| known == resource) {
            return Err(Error::said(format!("duplicate resource {resource:?} of flavor {name:?}")));
        }
        resources.push((resource.to_owned(), json!({"name": resource, field: quantity})));
    }
    Ok(Flavor { name: name.to_owned(), resources })
}

/// The limits of a flavor name the resources that its quota names.
fn merge(known: &mut Flavor, more: &Flavor) -> Result<(), Error> {
    for (name, quota) in &mut known.resources {
        let Some((_, limits)) = more.resources.iter().find(|(other, _)| other == name) else {
            return Err(Error::said("invalid flavor"));
        };
        for (field, value) in limits.as_object().into_iter().flatten() {
            quota[field] = value.clone();
        }
    }
    let known = &known.resources;
    match more.resources.iter().find(|(name, _)| known.iter().all(|(other, _)| other != name)) {
        Some(_) => Err(Error::said("invalid flavor")),
        None => Ok(()),
    }
}
