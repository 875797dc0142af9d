//! What fedqd asked of the servers in the whole run, beside the rights that are shipped: most cases let it write as an
//! administrator, so what is lacking would show nowhere else, and neither would what is granted for nothing.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::support::audit::Mark;
use crate::support::cluster::Cluster;
use crate::support::fleet::Fleet;

/// As whom the cases have it write, and the accounts of the manifests.
const ON_HUB: [&str; 2] = ["fedqd", "system:serviceaccount:fedq-system:fedqd"];
const ON_WORKER: [&str; 2] = ["fedqd", "system:serviceaccount:fedq-system:fedq"];

const HUB: [&str; 2] =
    [include_str!("../../deploy/hub/rbac.yaml"), include_str!("../../deploy/hub/dispatcher.yaml")];
const WORKER: &str = include_str!("../../deploy/worker/rbac.yaml");
/// What an administrator allows besides. What people ask through fedqd passes by the first, and is theirs to use.
const WORKER_MORE: [&str; 3] = [
    include_str!("../../deploy/worker/kueuectl.yaml"),
    include_str!("../../deploy/worker/multikueue.yaml"),
    include_str!("../../deploy/worker/exec.yaml"),
];

/// As an administrator fedqd makes the account that `deploy/worker/multikueue.yaml` brings along elsewhere.
const AS_ADMINISTRATOR: [(&str, &str); 6] = [
    ("patch", "namespaces"),
    ("patch", "serviceaccounts"),
    ("patch", "clusterroles.rbac.authorization.k8s.io"),
    ("patch", "clusterrolebindings.rbac.authorization.k8s.io"),
    ("patch", "roles.rbac.authorization.k8s.io"),
    ("patch", "rolebindings.rbac.authorization.k8s.io"),
];

/// Verb and resource, as the audit log spells that: `pods.group/subresource`.
pub type Use = (String, String);

/// What was asked for and no file grants, a line each. `whole`: all cases ran; what is granted and none of them used is told
/// then, since some of it takes a fault at its moment.
pub fn compare(fleets: &[std::sync::Arc<Fleet>], whole: bool) -> Result<Vec<String>> {
    let (mut on_hub, mut on_worker) = (BTreeSet::new(), BTreeSet::new());
    for fleet in fleets {
        on_hub.extend(used(&fleet.hub, ON_HUB)?);
        for worker in &fleet.workers {
            on_worker.extend(used(worker, ON_WORKER)?);
        }
    }
    let mut hub = BTreeSet::new();
    for manifest in HUB {
        hub.extend(granted(manifest, "fedqd")?);
    }
    let worker = granted(WORKER, "fedq")?;
    let mut allowed = worker.clone();
    for manifest in WORKER_MORE {
        allowed.extend(granted(manifest, "fedq")?);
    }
    allowed.extend(AS_ADMINISTRATOR.map(|(verb, resource)| (verb.to_owned(), resource.to_owned())));
    let mut wrong = Vec::new();
    for (place, used, granted) in [("the hub", &on_hub, &hub), ("workers", &on_worker, &allowed)] {
        let lacking = used.difference(granted);
        wrong.extend(lacking.map(|(verb, what)| {
            format!("fedqd asked for `{verb} {what}` on {place}: no file in deploy grants it")
        }));
    }
    if whole {
        for (place, granted, used) in [("the hub", &hub, &on_hub), ("workers", &worker, &on_worker)] {
            let needless = granted.difference(used).filter(|one| !is_seen_by_nobody(one));
            for (verb, what) in needless {
                println!("No case used `{verb} {what}`, which is granted on {place}.");
            }
        }
    }
    Ok(wrong)
}

/// Whose use is no request: impersonating is a header, the right to finalizers is asked by an admission plugin for the owner
/// of an object (`OwnerReferencesPermissionEnforcement`), and that to name users by the webhook of AppWrappers.
fn is_seen_by_nobody((verb, resource): &Use) -> bool {
    verb == "impersonate" || resource.ends_with("/finalizers") || resource.ends_with("/user")
}

fn used(cluster: &Cluster, users: [&str; 2]) -> Result<BTreeSet<Use>> {
    let requests = cluster.requests_since(Mark::BEGINNING)?.into_iter();
    let own =
        requests.filter(|request| users.contains(&request.user.as_str()) && !request.resource.is_empty());
    // What is not there or refused was asked for all the same.
    let mut all: BTreeSet<Use> = own.map(|request| (request.verb, request.resource)).collect();
    // Everybody authenticated may ask these.
    all.retain(|(_, resource)| !resource.starts_with("selfsubject"));
    Ok(all)
}

/// What the roles of a manifest grant to that ServiceAccount.
pub fn granted(manifest: &str, account: &str) -> Result<BTreeSet<Use>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifest)?;
    let is_bound = |role: &&Value| {
        documents.iter().any(|binding| {
            let subjects = binding["subjects"].as_array().into_iter().flatten();
            binding["roleRef"]["kind"] == role["kind"]
                && binding["roleRef"]["name"] == role["metadata"]["name"]
                && subjects.into_iter().any(|subject| subject["name"] == account)
        })
    };
    let roles = documents.iter().filter(is_bound);
    let rules = roles.filter_map(|document| document["rules"].as_array()).flatten();
    let mut granted = BTreeSet::new();
    for rule in rules {
        let texts = |field: &str| -> Result<Vec<&str>> {
            let list = rule[field].as_array().with_context(|| format!("{field} of {rule}"))?;
            Ok(list.iter().filter_map(Value::as_str).collect())
        };
        for group in texts("apiGroups")? {
            for resource in texts("resources")? {
                let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                let mut name = plural.to_owned();
                for (separator, part) in [(".", group), ("/", subresource)] {
                    if !part.is_empty() {
                        name.push_str(separator);
                        name.push_str(part);
                    }
                }
                granted.extend(texts("verbs")?.into_iter().map(|verb| (verb.to_owned(), name.clone())));
            }
        }
    }
    Ok(granted)
}
