//! `move workload --to-cluster`: its job goes to another cluster.
//!
//! No write reaches two clusters at once, so one write on one of them decides: the deletion of the job. The workload is held first, as for a
//! move within a cluster. Then a copy of its job is made on the other cluster, in a queue that does not exist, where it waits; and the job
//! gets a finalizer and a note of where it goes. Then the job is deleted, unless somebody has changed it since the note. With the finalizer
//! it stays, and a job that is being deleted starts no pods, whoever resumes its workload. Only while it stands there like that is the copy let
//! into its queue; after that the finalizer goes, and the job with it. Whatever ends this program in between, at most one of the
//! two can run, one is always there, and the same command again carries on.

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    error::Error,
    fleet::{self, Cluster, Place},
    move_back::{Way::Goes, forget},
    move_checks::{Found, Job, QUEUE_LABEL, check_queue, is_stopped, moving, read},
    move_marks::{
        ARRIVED, DIGEST, FINALIZER, FROM, JOBSET_NAME, MOVED, NOWHERE, PREBUILT, WORKLOAD, annotation,
        digest, finalizers, has_ended, is_being_deleted, is_leaving, kinds, may_start_anew, pods_left,
    },
    move_workload::{MOVING, Order, PAUSE, TIMES, hold, running, wait_until_stopped},
    output::Printer,
    resource::DryRun,
    session::{Session, text},
    workload::owners,
};

pub struct Across<'a> {
    pub here: &'a Cluster,
    pub there: &'a Cluster,
    pub order: &'a Order,
}

/// How far it has come.
enum Stage {
    Here(Found),
    /// The job is being deleted, so that it can only go on.
    Leaving(Job),
    There(Job),
}

/// The cluster that flags say it goes to; none where it stays.
pub async fn target(session: &mut Session<'_, '_>) -> Result<Option<Cluster>, Error> {
    let name = session.given.text("to-cluster").to_owned();
    if !session.given.has("to-cluster") {
        return Ok(None);
    }
    let Some(fleet) = session.fleet() else {
        return Err(Error::said(
            "--to-cluster asks fedqd, which has to reach both clusters: name the one that it is on with --cluster",
        ));
    };
    if name.is_empty() || name.contains(['*', '?']) {
        return Err(Error::said("--to-cluster names one cluster, and no pattern"));
    }
    match session.clusters().await?.as_ref() {
        [Cluster { place: Some(Place::Cluster(here)), .. }] if *here == name => return Ok(None),
        [Cluster { place: Some(Place::Hub), .. }] => {
            return Err(Error::said(
                "workloads of the hub are sent to clusters by Kueue's MultiKueue, and not moved there: name a cluster with --cluster",
            ));
        }
        // `Session::api` says what is wrong with several.
        _ => {}
    }
    Ok(fleet::connect(vec![Place::Cluster(name)], &session.given, fleet)?.pop())
}

pub async fn run(session: &mut Session<'_, '_>, order: &Order, there: &Cluster) -> Result<(), Error> {
    session.api().await?;
    let clusters = session.clusters().await?;
    let across = Across { here: &clusters[0], there, order };
    let mut moved = Printer::new(session, "moved", order.dry_run)?;
    let mut unchanged = Printer::new(session, "unchanged", order.dry_run)?;
    let (printer, job) = match across.stage().await? {
        Stage::There(job) => (&mut unchanged, job),
        Stage::Leaving(job) if order.dry_run != DryRun::None => (&mut moved, across.copy_of(&job)),
        Stage::Leaving(job) if has_ended(&job) => {
            across.drop_copy(&job).await?;
            across.let_go(&job, Goes).await?;
            return Err(Error::said(format!(
                "{} ended on cluster {} before it was on its way: there is nothing to move",
                job.shown(),
                across.here.name()
            )));
        }
        Stage::Leaving(job) => (&mut moved, across.arrive(&job).await?),
        Stage::Here(found) => (&mut moved, across.all_of_it(session, &found).await?),
    };
    for warning in there.api.take_warnings() {
        session.complain(&format!("Warning: {}: {warning}\n", there.name()))?;
    }
    let text = printer.print(&job.resource.kind, &job.object)?;
    session.print(&text)
}

impl Across<'_> {
    async fn stage(&self) -> Result<Stage, Error> {
        let error = match read(&self.here.api, self.order).await {
            Ok(found) => return Ok(Stage::Here(found)),
            // It may be gone, or its job be about to go.
            Err(error @ (Error::NotFound(_) | Error::Said(_))) => error,
            Err(error) => return Err(error),
        };
        for job in self.moved(self.here).await? {
            let (metadata, goal) = (&job.object["metadata"], self.order.goal.as_str());
            let ours = metadata["annotations"][WORKLOAD] == self.order.name.as_str();
            if !ours || !is_leaving(&job) {
                continue;
            }
            let goes_to = annotation(&job.object, MOVING);
            if goes_to != goal {
                let (cluster, queue) = goes_to.split_once('/').unwrap_or_default();
                return Err(Error::said(format!(
                    "{} is on its way to cluster {cluster}: `fedq kueue move workload {}{} --to-queue {queue} --to-cluster {cluster}` ends that",
                    job.shown(),
                    self.order.name,
                    self.order.at
                )));
            }
            return Ok(Stage::Leaving(job));
        }
        let from = |job: &Job| {
            let parts: Vec<&str> = annotation(&job.object, FROM).split('/').collect();
            matches!(parts[..], [cluster, _, workload] if cluster == self.here.name() && workload == self.order.name)
        };
        match self.moved(self.there).await?.into_iter().find(from) {
            Some(job) if job.queue() == NOWHERE => Err(Error::said(format!(
                "{error}. Cluster {} has a copy of its job, {}, that was never let into a queue: delete it, or give it the label {QUEUE_LABEL} of one",
                self.there.name(),
                job.shown()
            ))),
            Some(job) => Ok(Stage::There(job)),
            None => Err(error),
        }
    }

    /// Jobs of that cluster that a move was begun with.
    async fn moved(&self, cluster: &Cluster) -> Result<Vec<Job>, Error> {
        let mut jobs = Vec::new();
        for resource in kinds() {
            let label = format!("{MOVED}=true");
            match resource.list(&cluster.api, &self.order.namespace, &[("labelSelector", &label)]).await {
                Ok(mut list) => {
                    let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
                    for mut object in items {
                        // In a list only the list says what its objects are.
                        (object["apiVersion"], object["kind"]) =
                            (json!(resource.api_version()), json!(resource.kind));
                        jobs.push(Job { resource: resource.clone(), object });
                    }
                }
                // A cluster need not have the kind, nor whoever asks a right to it: what was asked for says what is wrong then.
                Err(Error::NotFound(_) | Error::Forbidden(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(jobs)
    }

    async fn all_of_it(&self, session: &mut Session<'_, '_>, found: &Found) -> Result<Job, Error> {
        let order = self.order;
        let job = self.job_of(found)?;
        if is_stopped(&found.workload) && !moving(&found.workload) {
            return Err(Error::said(format!(
                "workload {0} is stopped (active: false), and would not be on cluster {1}. Let it go on first: \
                 fedq kueue resume workload {0}{2}",
                order.name,
                self.there.name(),
                order.at
            )));
        }
        check_queue(&self.there.api, order).await?;
        found.may_be_stopped(order)?;
        may_start_anew(job, order)?;
        let there = self.parked(job).await?;
        // A move that was ended is found by a list: without the right to one, nothing is begun.
        job.resource
            .list(&self.here.api, &order.namespace, &[("labelSelector", MOVED), ("limit", "1")])
            .await?;
        self.pods_of(job).await?;
        match order.dry_run {
            DryRun::None => {}
            DryRun::Client => return Ok(self.copy_of(job)),
            DryRun::Server => {
                return if let Some(copy) = there {
                    Ok(copy)
                } else {
                    self.create(job, DryRun::Server).await
                };
            }
        }
        forget(session, found, &order.goal).await?;
        hold(session, order).await?;
        wait_until_stopped(session, order).await?;
        self.wait_for_pods(session).await?;
        let job = self.leave().await?;
        self.arrive(&job).await
    }

    /// The job, if it is of a kind that can go: one whose object is all that there is of it once it is stopped.
    fn job_of<'f>(&self, found: &'f Found) -> Result<&'f Job, Error> {
        let name = &self.order.name;
        let Some(job) = &found.job else {
            return Err(Error::said(format!(
                "workload {name} is of no job: make it anew on cluster {}, and delete it here",
                self.there.name()
            )));
        };
        let kinds = kinds();
        let known =
            kinds.iter().any(|kind| (&kind.group, &kind.kind) == (&job.resource.group, &job.resource.kind));
        let reason = if !known {
            "and only Jobs and JobSets go to another cluster: delete it, and make it anew there".to_owned()
        } else if let Some(owner) = owners(&job.object).next() {
            let (kind, owner) = (text(owner, "/kind"), text(owner, "/name"));
            format!(
                "which belongs to {kind} {owner}: that would make it anew here. Move {kind} {owner} instead"
            )
        } else if !job.object["metadata"]["labels"][PREBUILT].is_null() {
            format!(
                "whose workload somebody else made (label {PREBUILT}), and cluster {} has none",
                self.there.name()
            )
        } else {
            return Ok(job);
        };
        Err(Error::said(format!("workload {name} is of {}, {reason}", job.shown())))
    }

    /// A copy that is there already.
    async fn parked(&self, job: &Job) -> Result<Option<Job>, Error> {
        match job.resource.get(&self.there.api, &self.order.namespace, job.name()).await {
            Ok(object) if object["metadata"]["annotations"][FROM] == self.from(job) => {
                let copy = Job { resource: job.resource.clone(), object };
                if is_being_deleted(&copy) {
                    return Err(Error::said(format!(
                        "the copy of {} on cluster {} is being deleted. Once it is gone, the same command again carries on",
                        job.shown(),
                        self.there.name()
                    )));
                }
                Ok(Some(copy))
            }
            Ok(_) => Err(Error::said(format!(
                "cluster {} has another {} in namespace {}",
                self.there.name(),
                job.shown(),
                self.order.namespace
            ))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Until the job is being deleted, as it was when it could not run.
    async fn leave(&self) -> Result<Job, Error> {
        let order = self.order;
        let mut time = 1;
        loop {
            let found = read(&self.here.api, order).await?;
            let job = self.job_of(&found)?;
            if !self.is_held(&found, job).await? {
                self.stays(job).await?;
                return Err(self.not_held());
            }
            let made = self.copy_in_place(job).await;
            made.map_err(|error| order.held(&error.to_string()))?;
            let error = match self.delete(job).await {
                Ok(()) => return self.left(job).await?.ok_or_else(|| self.not_held()),
                Err(error) if error.is_conflict() && time < TIMES => {
                    time += 1;
                    continue;
                }
                Err(error) => error,
            };
            // Whoever does not answer may have carried it out.
            if let Some(left) = self.left(job).await? {
                return Ok(left);
            }
            self.stays(job).await?;
            return Err(order.held(&error.to_string()));
        }
    }

    /// Whether the workload is held for this move, and nothing of the job runs.
    async fn is_held(&self, found: &Found, job: &Job) -> Result<bool, Error> {
        let goes_there = found.workload["metadata"]["annotations"][MOVING] == self.order.goal.as_str();
        Ok(running(found).is_none() && moving(&found.workload) && goes_there && self.pods_of(job).await? == 0)
    }

    fn not_held(&self) -> Error {
        Error::said(format!(
            "somebody else has stopped workload {0}, has let it go on, or moves it elsewhere: it is where it was",
            self.order.name
        ))
    }

    /// A copy that waits, of the job as it is now, and that whoever asks may let into its queue: after the deletion nothing
    /// leads back.
    async fn copy_in_place(&self, job: &Job) -> Result<(), Error> {
        let (there, place) = (&self.there.api, (self.order.namespace.as_str(), job.name()));
        let mut parked = self.parked(job).await?;
        // One of an earlier try, of a job that somebody has changed since.
        let outdated = |copy: &Job| {
            copy.queue() == NOWHERE && annotation(&copy.object, DIGEST) != digest(&self.copy_of(job))
        };
        if let Some(copy) = parked.take_if(|copy| outdated(copy)) {
            copy.resource.delete_as_it_is(there, &copy.object).await?;
        }
        if parked.is_none() {
            self.create(job, DryRun::None).await?;
        }
        let label = json!({"metadata": {"labels": {QUEUE_LABEL: self.order.queue}}});
        job.resource.patch(there, place, &label, DryRun::Server).await.map(|_| ())
    }

    async fn delete(&self, job: &Job) -> Result<(), Error> {
        let noted = self.note(job).await?;
        noted.resource.delete_as_it_is(&self.here.api, &noted.object).await
    }

    /// The job, if it is being deleted now.
    async fn left(&self, job: &Job) -> Result<Option<Job>, Error> {
        match job.resource.get(&self.here.api, &self.order.namespace, job.name()).await {
            Ok(object) if object["metadata"]["uid"] == job.object["metadata"]["uid"] => {
                Ok(Some(Job { resource: job.resource.clone(), object }).filter(is_leaving))
            }
            Err(error) if !error.is_not_found() => Err(error),
            Ok(_) | Err(_) => Err(Error::said(format!(
                "{} is gone, though it was to stay until its copy on cluster {} is in its queue. Give that the label \
                 {QUEUE_LABEL}={} yourself",
                job.shown(),
                self.there.name(),
                self.order.queue
            ))),
        }
    }

    /// Kueue gives back the quota of a job once none of its pods is active; those that are still ending may hold on to what
    /// the copy is about to use as well, a volume or a name.
    async fn wait_for_pods(&self, session: &mut Session<'_, '_>) -> Result<(), Error> {
        let (mut told, deadline) = (false, self.order.deadline());
        loop {
            let found = read(&self.here.api, self.order).await?;
            let job = self.job_of(&found)?;
            let left = self.pods_of(job).await?;
            // Of one that was let go on, `leave` says so.
            if left == 0 || !moving(&found.workload) {
                return Ok(());
            }
            let still = format!("{left} pods of {} are still ending", job.shown());
            if !told {
                session.complain(&format!("Waiting for its pods: {still}\n"))?;
                told = true;
            }
            self.order.give_up(deadline, &still)?;
            sleep(PAUSE).await;
        }
    }

    pub async fn pods_of(&self, job: &Job) -> Result<i64, Error> {
        let [jobs, _] = kinds();
        if job.resource.kind == jobs.kind {
            return Ok(pods_left(&job.object));
        }
        let of_it = format!("{JOBSET_NAME}={}", job.name());
        let list = jobs.list(&self.here.api, &self.order.namespace, &[("labelSelector", &of_it)]).await?;
        Ok(list["items"].as_array().into_iter().flatten().map(pods_left).sum())
    }

    /// With the finalizer, and what says where it goes.
    async fn note(&self, job: &Job) -> Result<Job, Error> {
        let metadata = &job.object["metadata"];
        let mut finalizers = finalizers(&job.object);
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
        }
        let patch = json!({"metadata": {
            "resourceVersion": metadata["resourceVersion"],
            "finalizers": finalizers,
            "labels": {MOVED: "true"},
            "annotations": {MOVING: self.order.goal, WORKLOAD: self.order.name},
        }});
        let place = (self.order.namespace.as_str(), job.name());
        let object = job.resource.patch(&self.here.api, place, &patch, DryRun::None).await?;
        Ok(Job { resource: job.resource.clone(), object })
    }

    async fn create(&self, job: &Job, dry_run: DryRun) -> Result<Job, Error> {
        let mut copy = self.copy_of(job);
        copy.object["metadata"]["annotations"][DIGEST] = json!(digest(&copy));
        copy.object["metadata"]["labels"][QUEUE_LABEL] = json!(NOWHERE);
        copy.object = job.resource.create(&self.there.api, &copy.object, dry_run).await?;
        Ok(copy)
    }

    /// Lets the copy into its queue, and then the job go.
    async fn arrive(&self, job: &Job) -> Result<Job, Error> {
        let place = (self.order.namespace.as_str(), job.name());
        let (mut time, mut told) = (1, !annotation(&job.object, ARRIVED).is_empty());
        let arrived = loop {
            let copy = match self.parked(job).await? {
                Some(copy) => copy,
                None if !annotation(&job.object, ARRIVED).is_empty() => {
                    self.let_go(job, Goes).await?;
                    return Err(Error::said(format!(
                        "{} was let into its queue on cluster {} and is gone from there: it has ended, or somebody has deleted it, and is not \
                         made again",
                        job.shown(),
                        self.there.name()
                    )));
                }
                // Somebody has deleted it. The job that leaves has all of it.
                None => self.create(job, DryRun::None).await?,
            };
            if copy.queue() == self.order.queue {
                break copy;
            }
            self.check_still(job).await?;
            let note = |arrived: Value| json!({"metadata": {"annotations": {ARRIVED: arrived}}});
            if !told {
                job.resource.patch(&self.here.api, place, &note(json!("true")), DryRun::None).await?;
                told = true;
            }
            let version = &copy.object["metadata"]["resourceVersion"];
            let label =
                json!({"metadata": {"resourceVersion": version, "labels": {QUEUE_LABEL: self.order.queue}}});
            match job.resource.patch(&self.there.api, place, &label, DryRun::None).await {
                Ok(object) => break Job { resource: job.resource.clone(), object },
                Err(error) if error.is_conflict() && time < TIMES => time += 1,
                Err(error @ (Error::Said(_) | Error::Forbidden(_) | Error::NotFound(_))) => {
                    // It was refused, and is not there.
                    job.resource.patch(&self.here.api, place, &note(Value::Null), DryRun::None).await?;
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        };
        self.let_go(job, Goes).await?;
        Ok(arrived)
    }
}
