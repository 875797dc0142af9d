//! The second filter: taints that the Placement does not tolerate.

use jiff::{SignedDuration, Timestamp};

use super::{
    Problem, TAINT_TOLERATION,
    hub::{Hub, ManagedCluster, Taint},
    spec::{Placement, Toleration},
};

const EXISTS: &str = "Exists";

pub fn filter(
    placement: &Placement,
    hub: &Hub,
    candidates: &[usize],
    now: Timestamp,
) -> Result<Vec<usize>, Problem> {
    // As in OCM, a mistake is only told where there is a cluster to filter.
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    validate(&placement.tolerations)?;
    let decided = hub.decided(&placement.key);
    let tolerated = |at: &&usize| {
        let cluster = &hub.clusters()[**at];
        let is_decided = decided.binary_search(*at).is_ok();
        tolerates(cluster, &placement.tolerations, is_decided, now).is_some()
    };
    Ok(candidates.iter().filter(tolerated).copied().collect())
}

fn validate(tolerations: &[Toleration]) -> Result<(), Problem> {
    for toleration in tolerations {
        let exists = toleration.operator == EXISTS;
        let problem = if toleration.key.is_empty() && !exists {
            "If the key is empty, operator must be Exists."
        } else if exists && !toleration.value.is_empty() {
            "If the operator is Exists, the value should be empty."
        } else {
            continue;
        };
        return Err(Problem::misconfigured(TAINT_TOLERATION, problem));
    }
    Ok(())
}

/// When a cluster that is decided on stops being tolerated.
pub fn again_at(placement: &Placement, hub: &Hub, decided: &[usize], now: Timestamp) -> Option<Timestamp> {
    let end = |at: &usize| tolerates(&hub.clusters()[*at], &placement.tolerations, true, now)?.until;
    decided.iter().filter_map(end).min()
}

struct Tolerated {
    until: Option<Timestamp>,
}

fn tolerates(
    cluster: &ManagedCluster,
    tolerations: &[Toleration],
    is_decided: bool,
    now: Timestamp,
) -> Option<Tolerated> {
    let mut until: Option<Timestamp> = None;
    for taint in &cluster.taints {
        let end = match taint.effect.as_str() {
            "PreferNoSelect" => None,
            "NoSelectIfNew" if is_decided => None,
            _ => tolerations.iter().find_map(|toleration| toleration.tolerates(taint, now))?.until,
        };
        until = until.into_iter().chain(end).min();
    }
    Some(Tolerated { until })
}

impl Toleration {
    /// The first toleration that matches counts, even if another would hold for longer.
    fn tolerates(&self, taint: &Taint, now: Timestamp) -> Option<Tolerated> {
        let effect = self.effect.is_empty() || self.effect == taint.effect;
        let key = self.key.is_empty() || self.key == taint.key;
        let value = match self.operator.as_str() {
            "" | "Equal" => self.value == taint.value,
            EXISTS => true,
            _ => false,
        };
        if !effect || !key || !value {
            return None;
        }
        let Some(seconds) = self.seconds else { return Some(Tolerated { until: None }) };
        let added = taint.added.unwrap_or(Timestamp::MIN);
        let end = added.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        (now < end).then_some(Tolerated { until: Some(end) })
    }
}
