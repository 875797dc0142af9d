//! The state of our checks in Workloads: Ready where the config can be used, and again after each eviction, which
//! sets all checks back. Until then Kueue dispatches nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use fedq_domain::multikueue::{Plan, wants_ready};
use fedq_k8s::{
    hub::Hub,
    read::multikueue::Dispatched,
    types::kueue::Workload,
    write::{Action, Change, Kind, Target},
};

use super::{MANAGER, gather::Gathered, is_written, render::Render};

impl Render {
    pub fn workloads(&mut self, hub: &Hub, seen: &Gathered, plan: &Plan, now: Timestamp) -> Vec<Change> {
        let usable: BTreeMap<&str, &str> = seen
            .checks
            .iter()
            .filter(|check| plan.checks.get(&check.name).is_some_and(|active| active.holds))
            .filter_map(|check| Some((check.name.as_str(), check.parameters.as_ref()?.name.as_str())))
            .filter(|(_, placement)| is_written(seen, plan, placement))
            .collect();
        if usable.is_empty() {
            return Vec::new();
        }
        let all = hub.workloads.all();
        all.iter().filter_map(|workload| self.workload(workload, &usable, now)).collect()
    }

    fn workload(
        &mut self,
        workload: &Workload,
        usable: &BTreeMap<&str, &str>,
        now: Timestamp,
    ) -> Option<Change> {
        let dispatched = Dispatched::new(workload);
        let waits = |(check, _): &(&&str, &&str)| {
            let state = dispatched.check(check);
            state.is_some_and(|state| wants_ready(state, dispatched.reserves_quota(), true))
        };
        let waiting: BTreeMap<&str, &str> =
            usable.iter().filter(waits).map(|(check, placement)| (*check, *placement)).collect();
        if waiting.is_empty() {
            return None;
        }
        let meta = &workload.metadata;
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let target = Target::status_within(Kind::Workload, namespace, &meta.name);
        let now = self.since(&target, meta, now);
        let mut states = workload.status.admission_checks.clone();
        for state in &mut states {
            if let Some(placement) = state["name"].as_str().and_then(|name| waiting.get(name)) {
                make_ready(state, placement, now);
            }
        }
        let patch = json!({
            "metadata": {"resourceVersion": meta.resource_version},
            "status": {"admissionChecks": states},
        });
        Some(Change { target, action: Action::Merge(patch), manager: MANAGER })
    }
}

fn make_ready(state: &mut Value, placement: &str, now: Timestamp) {
    state["state"] = json!("Ready");
    state["message"] = json!(format!("Placement {placement} has clusters to dispatch to"));
    state["lastTransitionTime"] = json!(now);
}
