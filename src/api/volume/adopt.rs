//! Claims that were there before. Their cluster may not know the person, so the hub says whether they may.

use std::{sync::Arc, time::Duration};

use super::{insert, invalid, refused};
use crate::{
    Failure, State,
    auth::require,
    owner::{ADOPT, Owner, VOLUMES},
};
use fedq_domain::{
    cluster::Connection,
    task::volume::{ExistingClaim, VolumeSpec, check_claim, check_name},
};
use fedq_k8s::{session::Permission, volume_claims, worker::Worker};
use fedq_store::VolumeRow;
use fedq_values::ids::ClusterName;
use fedq_wire::volume::AdoptVolume;

/// Less than any client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

pub async fn adopt(state: &State, owner: &Owner, asked: &AdoptVolume) -> Result<VolumeRow, Failure> {
    let AdoptVolume { name, cluster, claim, read_only } = asked;
    check_name(name).and_then(|()| check_claim(claim)).map_err(|error| refused(&error))?;
    let cluster = ClusterName::new(cluster).map_err(|error| Failure::field("cluster", &error))?;
    owner.may(state, "create", VOLUMES).await?;
    let found = judge(state, owner, (&cluster, claim, *read_only), "claim").await?;
    let spec = VolumeSpec::adopt(name, claim, *read_only, found).map_err(|error| refused(&error))?;
    insert(state, owner, spec, Some(cluster)).await
}

/// Whether the person's tasks may mount the claim, and can. `field` is where it stands in the request.
pub async fn judge(
    state: &State,
    owner: &Owner,
    (cluster, claim, read_only): (&ClusterName, &str, bool),
    field: &str,
) -> Result<ExistingClaim, Failure> {
    let right = Permission {
        name: Some(claim.to_owned()),
        ..Permission::on_own("create", ADOPT, Some(owner.namespace()))
    };
    require(&state.hub, &owner.caller, &right).await?;
    state.must_be_joined(cluster).await?;
    let found = find(state, owner, (cluster, claim), field).await?;
    if let Some(unfit) = found.unfit(read_only) {
        let message = format!("{} {unfit}", place(owner, cluster, claim));
        return Err(invalid(field, message).next(unfit.next()));
    }
    Ok(found)
}

fn place(owner: &Owner, cluster: &ClusterName, claim: &str) -> String {
    format!("PersistentVolumeClaim `{claim}` in namespace `{}` of cluster `{cluster}`", owner.namespace())
}

async fn find(
    state: &State,
    owner: &Owner,
    (cluster, claim): (&ClusterName, &str),
    field: &str,
) -> Result<ExistingClaim, Failure> {
    let check = || format!("fedq check {cluster} says why");
    let Some(worker) = worker(state, cluster) else {
        let detail = format!("cluster `{cluster}` cannot be asked for the claim now");
        return Err(Failure::conflict(detail).next(check()));
    };
    let found = volume_claims::find(&worker.client.kube(), (owner.namespace(), claim), PATIENCE).await;
    match found {
        Ok(Some(found)) => Ok(found),
        Ok(None) => {
            let failure = invalid(field, format!("there is no {}", place(owner, cluster, claim)));
            Err(failure.next(format!("kubectl get pvc -n {} shows those of that cluster", owner.namespace())))
        }
        Err(error) => {
            let detail = format!("cluster `{cluster}` does not say whether the claim is there: {error}");
            Err(Failure::conflict(detail).next(check()))
        }
    }
}

fn worker(state: &State, cluster: &ClusterName) -> Option<Arc<Worker>> {
    let joined = state.joined.borrow().get(cluster).cloned()?;
    let ready = matches!(joined.told(), Connection::Ready);
    joined.worker.clone().filter(|_| ready)
}
