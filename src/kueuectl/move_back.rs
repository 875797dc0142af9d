//! The way back of a move to another cluster: what it has begun is taken back where the job stays, and where it ends.

use serde_json::json;

use crate::{
    api::Api,
    error::Error,
    fleet::{self, Place},
    move_across::Across,
    move_checks::{Found, Job},
    move_marks::{
        ARRIVED, FINALIZER, FROM, MOVED, NOWHERE, WORKLOAD, annotation, finalizers, is_being_deleted,
    },
    move_workload::{MOVING, Order, TIMES},
    resource::DryRun,
    session::{Session, text},
};

use Way::{Goes, Stays};

/// What becomes of a job that is not held any more.
#[derive(Clone, Copy, Eq, PartialEq)]
pub enum Way {
    /// It goes on here: one that is being deleted is another command's.
    Stays,
    Goes,
}

impl Across<'_> {
    /// Leaves nothing of a move behind that came to nothing.
    pub async fn stays(&self, job: &Job) -> Result<(), Error> {
        if self.let_go(job, Stays).await? { self.drop_copy(job).await } else { Ok(()) }
    }

    /// Deletes the copy, unless it was let into a queue.
    pub async fn drop_copy(&self, job: &Job) -> Result<(), Error> {
        let object = match job.resource.get(&self.there.api, &self.order.namespace, job.name()).await {
            Ok(object) => object,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error),
        };
        let copy = Job { resource: job.resource.clone(), object };
        let waits = annotation(&copy.object, FROM) == self.from(job) && copy.queue() == NOWHERE;
        if !waits || is_being_deleted(&copy) {
            return Ok(());
        }
        match copy.resource.delete_as_it_is(&self.there.api, &copy.object).await {
            Err(error) if error.is_not_found() => Ok(()),
            outcome => outcome,
        }
    }

    /// A job that runs while it is being deleted was let go on before somebody deleted it: that is not ours to move.
    pub async fn check_still(&self, job: &Job) -> Result<(), Error> {
        if job.is_suspended() && self.pods_of(job).await? == 0 {
            return Ok(());
        }
        self.drop_copy(job).await?;
        self.let_go(job, Goes).await?;
        Err(Error::said(format!(
            "{} was let go on on cluster {}, and then deleted by somebody: it does not go to cluster {}",
            job.shown(),
            self.here.name(),
            self.there.name()
        )))
    }

    pub async fn let_go(&self, job: &Job, way: Way) -> Result<bool, Error> {
        let_go(&self.here.api, &self.order.namespace, job, way).await
    }
}

/// Takes the finalizer off the job, and of one that stays all else that says that it moves. Whether it did, or had nothing to.
async fn let_go(api: &Api, namespace: &str, job: &Job, way: Way) -> Result<bool, Error> {
    let place = (namespace, job.name());
    let mut time = 1;
    loop {
        let object = match job.resource.get(api, place.0, place.1).await {
            Ok(object) if object["metadata"]["uid"] == job.object["metadata"]["uid"] => object,
            Ok(_) | Err(Error::NotFound(_)) => return Ok(true),
            Err(error) => return Err(error),
        };
        let now = Job { resource: job.resource.clone(), object };
        if way == Stays && is_being_deleted(&now) {
            return Ok(false);
        }
        let mut kept = finalizers(&now.object);
        let held = kept.len();
        kept.retain(|finalizer| finalizer != FINALIZER);
        if kept.len() == held && annotation(&now.object, WORKLOAD).is_empty() {
            return Ok(true);
        }
        let version = &now.object["metadata"]["resourceVersion"];
        let mut patch = json!({"metadata": {"resourceVersion": version, "finalizers": kept}});
        if way == Stays {
            patch["metadata"]["labels"] = json!({MOVED: null});
            patch["metadata"]["annotations"] = json!({MOVING: null, WORKLOAD: null, ARRIVED: null});
        }
        match job.resource.patch(api, place, &patch, DryRun::None).await {
            Err(error) if error.is_conflict() && time < TIMES => time += 1,
            Err(error) if error.is_not_found() => return Ok(true),
            outcome => return outcome.map(|_| true),
        }
    }
}

/// Takes back what a move to another cluster has begun, unless it goes to `goal` anyway: the workload goes on here, is stopped, or
/// goes elsewhere.
pub async fn forget(session: &mut Session<'_, '_>, found: &Found, goal: &str) -> Result<(), Error> {
    let begun = annotation(&found.workload, MOVING).to_owned();
    let (Some((cluster, _)), Some(job)) = (begun.split_once('/'), &found.job) else { return Ok(()) };
    if begun == goal {
        return Ok(());
    }
    let metadata = &found.workload["metadata"];
    let order = Order::of_workload(text(metadata, "/namespace"), text(metadata, "/name"));
    session.api().await?;
    let here = session.clusters().await?;
    let there = match session.fleet() {
        Some(fleet) => fleet::connect(vec![Place::Cluster(cluster.to_owned())], &session.given, fleet)?.pop(),
        None => None,
    };
    let Some(there) = there else {
        let_go(&here[0].api, &order.namespace, job, Stays).await?;
        return session.complain(&format!(
            "Warning: cluster {cluster} may have a copy of {} in namespace {} that waits in no queue: delete it there\n",
            job.shown(),
            order.namespace
        ));
    };
    Across { here: &here[0], there: &there, order: &order }.stays(job).await
}
