//! `move workload`: it waits in another LocalQueue, and so does the job that it is of. `move_across.rs` moves it to another cluster.
//!
//! A job's label names its queue, and Kueue may start the job at any moment of two writes. So its workload is held first: made
//! inactive, with a mark that says that this command did it. When Kueue has stopped what ran and given back the quota, the job
//! gets its new label, and one write gives the workload the queue's name, takes the mark off and lets it go on. Whatever ends this
//! program in between, the job stands in one queue or the other and runs in neither, and the same command again carries on.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    error::Error,
    kubeconfig, move_across,
    move_back::forget,
    move_checks::{Found, Job, QUEUE_LABEL, check_queue, is_stopped, moving, read},
    output::Printer,
    resource::{DryRun, Resource},
    session::{Session, text},
    stop::merge,
    workload::condition,
};

/// On a workload that this command holds: the LocalQueue that it is moved to, behind `CLUSTER/` where that is on another one.
pub const MOVING: &str = "fedq.dev/moving-to";

/// How often something is written anew that others, Kueue most of all, write at the same time.
pub const TIMES: usize = 10;

pub const PAUSE: Duration = Duration::from_millis(200);

/// What was asked for.
pub struct Order {
    pub namespace: String,
    pub name: String,
    pub queue: String,
    /// What [`MOVING`] says of it.
    pub goal: String,
    pub restart: bool,
    pub dry_run: DryRun,
    within: Option<Duration>,
    /// The same as it was given.
    timeout: String,
    /// Flags by which the same command finds the workload again.
    pub at: String,
}

impl Order {
    fn of(session: &mut Session<'_, '_>) -> Result<Self, Error> {
        let queue = session.given.text("to-queue").to_owned();
        if queue.is_empty() {
            return Err(Error::said("--to-queue names no LocalQueue"));
        }
        let namespace = session.namespace()?;
        let clusters = session.given.all("cluster");
        let at =
            clusters.iter().fold(format!(" -n {namespace}"), |at, name| format!("{at} --cluster {name}"));
        Ok(Self {
            namespace,
            name: session.given.arguments[0].clone(),
            goal: queue.clone(),
            queue,
            restart: session.given.is("restart"),
            dry_run: session.dry_run()?,
            within: kubeconfig::timeout(session.given.text("timeout"))?,
            timeout: session.given.text("timeout").to_owned(),
            at,
        })
    }

    /// Of a workload that does not move.
    pub fn of_workload(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            queue: String::new(),
            goal: String::new(),
            restart: false,
            dry_run: DryRun::None,
            within: None,
            timeout: String::new(),
            at: String::new(),
        }
    }

    fn place(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.within.map(|within| Instant::now() + within)
    }

    pub fn give_up(&self, deadline: Option<Instant>, still: &str) -> Result<(), Error> {
        if deadline.is_none_or(|deadline| Instant::now() < deadline) {
            return Ok(());
        }
        Err(self.held(&format!("{still}, after {}", self.timeout)))
    }

    /// What went wrong, and what to do about the workload.
    pub fn held(&self, what: &str) -> Error {
        Error::said(format!(
            "{what}. Workload {0} is held (active: false). The same command again carries on; \
             `fedq kueue resume workload {0}{1}` leaves it in its queue",
            self.name, self.at
        ))
    }
}

pub async fn run(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let order = Order::of(session)?;
    if let Some(there) = move_across::target(session).await? {
        let goal = format!("{}/{}", there.name(), order.queue);
        return move_across::run(session, &Order { goal, ..order }, &there).await;
    }
    let mut moved = Printer::new(session, "moved", order.dry_run)?;
    let mut unchanged = Printer::new(session, "unchanged", order.dry_run)?;
    let found = read(session.api().await?, &order).await?;
    if found.is_in(&order.queue) {
        let text = unchanged.print("Workload", &found.workload)?;
        return session.print(&text);
    }
    check_queue(session.api().await?, &order).await?;
    found.may_be_stopped(&order)?;
    let workload = match (order.dry_run, &found.job) {
        (DryRun::Client, _) => changed(&found, &order),
        (DryRun::Server, _) => tried(session, &found, &order).await?,
        (DryRun::None, None) => renamed(session, &order).await?,
        (DryRun::None, Some(_)) => move_job(session, &order).await?,
    };
    let text = moved.print("Workload", &workload)?;
    session.print(&text)
}

fn changed(found: &Found, order: &Order) -> Value {
    let mut workload = found.workload.clone();
    merge(&mut workload, &json!({"spec": {"queueName": order.queue}}));
    workload
}

/// What a server says to those writes that it can judge before the job has stopped.
async fn tried(session: &mut Session<'_, '_>, found: &Found, order: &Order) -> Result<Value, Error> {
    let api = session.api().await?;
    if let Some(job) = found.job.as_ref().filter(|job| job.is_suspended()) {
        let label = json!({"metadata": {"labels": {QUEUE_LABEL: order.queue}}});
        job.resource.patch(api, (&order.namespace, job.name()), &label, DryRun::Server).await?;
    }
    let spec = if found.holds_quota() { json!({"active": false}) } else { json!({"queueName": order.queue}) };
    Resource::workload().patch(api, order.place(), &json!({"spec": spec}), DryRun::Server).await
}

/// A workload that nothing owns is moved by one write, which the server refuses while the workload holds quota.
async fn renamed(session: &mut Session<'_, '_>, order: &Order) -> Result<Value, Error> {
    write(session, order, |found| {
        found.may_be_stopped(order)?;
        Ok(Some(json!({"spec": {"queueName": order.queue}})))
    })
    .await
}

async fn move_job(session: &mut Session<'_, '_>, order: &Order) -> Result<Value, Error> {
    let found = read(session.api().await?, order).await?;
    forget(session, &found, &order.goal).await?;
    hold(session, order).await?;
    let job = wait_until_stopped(session, order).await?;
    label(session, order, &job).await?;
    release(session, order).await
}

/// What somebody has stopped already stays stopped, and carries no mark.
pub async fn hold(session: &mut Session<'_, '_>, order: &Order) -> Result<(), Error> {
    let held = write(session, order, |found| {
        found.may_be_stopped(order)?;
        let mark = json!({"metadata": {"annotations": {MOVING: order.goal}}, "spec": {"active": false}});
        let goes_elsewhere = moving(&found.workload)
            && found.workload["metadata"]["annotations"][MOVING] != order.goal.as_str();
        Ok((!is_stopped(&found.workload) || goes_elsewhere).then_some(mark))
    });
    held.await.map(|_| ())
}

pub async fn wait_until_stopped(session: &mut Session<'_, '_>, order: &Order) -> Result<Job, Error> {
    let (mut told, deadline) = (false, order.deadline());
    loop {
        let found = read(session.api().await?, order).await?;
        let Some(still) = running(&found) else {
            return found.job.ok_or_else(|| Error::said("the workload's owner is gone"));
        };
        if !told && found.holds_quota() {
            session.complain(&format!("Waiting until Kueue has stopped it: {still}\n"))?;
            told = true;
        }
        order.give_up(deadline, &still)?;
        sleep(PAUSE).await;
    }
}

/// What keeps the job from its new label. Kueue says by an eviction that it has seen the hold, and gives back quota only when the
/// last pod is gone.
pub fn running(found: &Found) -> Option<String> {
    let name = text(&found.workload, "/metadata/name");
    if found.holds_quota() {
        return Some(format!("workload {name} holds its quota"));
    }
    if let Some(job) = found.job.as_ref().filter(|job| !job.is_suspended()) {
        return Some(format!("{} is not suspended", job.shown()));
    }
    condition(&found.workload, "Evicted").is_none().then(|| format!("Kueue has not stopped workload {name}"))
}

async fn label(session: &mut Session<'_, '_>, order: &Order, job: &Job) -> Result<(), Error> {
    let place = (order.namespace.as_str(), job.name());
    let mut job = job.clone();
    for time in 1.. {
        if job.queue() == order.queue {
            break;
        }
        let version = text(&job.object, "/metadata/resourceVersion");
        let patch = json!({"metadata": {"resourceVersion": version, "labels": {QUEUE_LABEL: order.queue}}});
        let api = session.api().await?;
        match job.resource.patch(api, place, &patch, DryRun::None).await {
            Err(error) if error.is_conflict() && time < TIMES => {
                job.object = job.resource.get(api, place.0, place.1).await?;
            }
            outcome => return outcome.map(|_| ()),
        }
    }
    Ok(())
}

/// Kueue itself takes over a job's label only while its workload has never been evicted.
async fn release(session: &mut Session<'_, '_>, order: &Order) -> Result<Value, Error> {
    write(session, order, |found| {
        let mut patch = json!({"spec": {"queueName": order.queue}});
        if moving(&found.workload) {
            patch["spec"]["active"] = json!(true);
            patch["metadata"] = json!({"annotations": {MOVING: null}});
        }
        // Kueue may have made the workload anew since, in the queue of the label.
        Ok((!found.is_in(&order.queue)).then_some(patch))
    })
    .await
}

/// Writes what `patch` finds to be right for the workload as it is, until nobody else has written in between.
async fn write(
    session: &mut Session<'_, '_>,
    order: &Order,
    patch: impl Fn(&Found) -> Result<Option<Value>, Error>,
) -> Result<Value, Error> {
    let mut time = 1;
    loop {
        let api = session.api().await?;
        let found = read(api, order).await?;
        let Some(mut patch) = patch(&found)? else { return Ok(found.workload) };
        patch["metadata"]["resourceVersion"] = found.workload["metadata"]["resourceVersion"].clone();
        match Resource::workload().patch(api, order.place(), &patch, DryRun::None).await {
            Err(error) if error.is_conflict() && time < TIMES => time += 1,
            outcome => return outcome,
        }
    }
}
