//! Runs a controller: activated by a payload-free signal, by what it listens to, or by a period; one run at a time,
//! backing off on errors. What a run finds it reads from snapshots, so a signal that comes during a run means one
//! more run after it, however many came.

use std::{future::Future, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::{
    sync::Notify,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info_span, warn};

use fedq_base::{backoff::Backoff, telemetry::Metrics};
use fedq_domain::cluster::Connection;
use fedq_k8s::{
    follow::TableSet,
    worker::{Joined, JoinedClusters},
};
use fedq_store::StoreError;

/// One kind of change and all that leads to it.
pub trait Controller: Send {
    /// In logs and metrics.
    const NAME: &'static str;

    fn pace(&self) -> Pace {
        Pace::default()
    }

    /// Gathers, decides, applies, reports. An error means: nothing more can be done now. One cluster's failure is no
    /// error here, since all would wait with it.
    fn reconcile(&mut self) -> impl Future<Output = Result<Next, Failure>> + Send;

    /// Another share of the time than its pace says, as things are after the last run.
    fn share(&self) -> Share {
        self.pace().share
    }

    /// How much of the time of the last run counts as its share.
    fn counted(&mut self, took: Duration) -> Duration {
        took
    }

    /// Waits for what it listens to besides its signal. It is dropped when something else comes first, and an error
    /// ends the daemon.
    fn woken(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send {
        std::future::pending()
    }

    /// What is under way after the last run: it is finished, so that its outcome is known. All else goes before, so that
    /// whoever waits for more hears that there is none.
    fn tasks(self) -> Tasks
    where
        Self: Sized,
    {
        Tasks::new()
    }
}

/// Why a run came to nothing.
#[derive(Debug)]
pub enum Failure {
    /// The same may work later: it runs again after a pause.
    Passing(anyhow::Error),
    /// Nothing that comes later changes it, as with a database that is damaged. It ends the daemon, whose next start
    /// says what to do.
    Lasting(anyhow::Error),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        if error.is_transient() || error.is_unknown_cluster() {
            Self::Passing(error.into())
        } else {
            Self::Lasting(error.into())
        }
    }
}

/// What a controller has running beside itself. One that fails ends the daemon.
pub type Tasks = JoinSet<anyhow::Result<()>>;

/// For what cannot fail.
pub fn spawn(tasks: &mut Tasks, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tasks.spawn(async move {
        task.await;
        Ok(())
    })
}

/// Waits for a task that fails; those that end well are let go of.
pub async fn failed(tasks: &mut Tasks) -> anyhow::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    std::future::pending().await
}

/// Waits for all of them.
async fn ended(mut tasks: Tasks) -> anyhow::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// When to run again, besides at the next signal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    AtPeriod,
    /// Or at the period, if that is sooner.
    After(Duration),
}

pub struct Driver {
    /// Others bump it with `notify_one`.
    pub signal: Arc<Notify>,
    pub metrics: Metrics,
}

/// How much of the time runs may take up. With few clusters they take next to none; with a thousand, what changes during
/// a pause is seen by one run instead of many.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Share {
    /// One part in so many.
    part: u32,
    /// No pause takes longer.
    longest: Duration,
    /// Time without runs that counts as a pause taken before.
    credit: Duration,
}

impl Share {
    /// For what leads to quota and to tasks: a lone change waits for nothing.
    pub const HALF: Self =
        Self { part: 2, longest: Duration::from_secs(1), credit: Duration::from_millis(250) };
    pub const TENTH: Self = Self { part: 10, longest: Duration::from_secs(1), credit: Duration::ZERO };
    /// Where little is known yet, or little to do, but what comes must not wait for long.
    pub const SHORT_TENTH: Self = Self { longest: Duration::from_millis(250), ..Self::TENTH };

    /// How long after the start clusters that are being connected slow runs down. One that is not connected by then may
    /// never be.
    const START: Duration = Duration::from_mins(1);
    const FEW: usize = 16;

    /// A run that takes less needs no pause.
    const NOTICED: Duration = Duration::from_micros(200);

    /// While many clusters are being connected after a start, a run rests on little, and the next one follows at once.
    pub fn after_start(self, start: Instant, joined: &JoinedClusters) -> Self {
        let connecting =
            || joined.values().filter(|entry| is_being_connected(entry)).nth(Self::FEW).is_some();
        if start.elapsed() < Self::START && connecting() { Self::SHORT_TENTH } else { self }
    }

    /// How long to leave the time to others after a run that took so long.
    pub fn pause(self, took: Duration) -> Duration {
        if took < Self::NOTICED { Duration::ZERO } else { (took * (self.part - 1)).min(self.longest) }
    }
}

fn is_being_connected(entry: &Joined) -> bool {
    match (&entry.connection, &entry.worker) {
        (Connection::Connecting, _) => true,
        (Connection::Ready, Some(worker)) => !worker.synced() && !worker.is_refused(),
        _ => false,
    }
}

/// The pauses of one loop.
struct Rest {
    /// Until then its runs so far have taken up their share.
    until: Instant,
}

impl Rest {
    fn new() -> Self {
        Self { until: Instant::now() }
    }

    /// How long to leave the time to others after a run that ends now and took so long.
    fn pause(&mut self, share: Share, took: Duration, now: Instant) -> Duration {
        let rested = now.checked_sub(took + share.credit).unwrap_or(now);
        let until = self.until.max(rested) + took + share.pause(took);
        self.until = until.min(now + share.longest);
        self.until.saturating_duration_since(now)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// A run at least this often, in case a signal was lost.
    pub period: Duration,
    /// At least so long a pause after each run: what comes together is seen by one.
    pub settle: Duration,
    pub share: Share,
    /// After the first error; doubled for each that follows.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// For a run under way when the daemon stops; then it is dropped at its next await.
    pub grace: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            period: Duration::from_mins(1),
            settle: Duration::ZERO,
            share: Share::TENTH,
            backoff_min: Duration::from_millis(500),
            backoff_max: Duration::from_secs(30),
            grace: Duration::from_secs(5),
        }
    }
}

impl Driver {
    /// Runs at once, then until `stop`. A signal does not cut a pause after an error short: whatever
    /// fails would otherwise be hammered at the rate of events.
    pub async fn run<C: Controller>(self, mut controller: C, stop: CancellationToken) -> anyhow::Result<()> {
        let (name, pace, mut rest) = (C::NAME, controller.pace(), Rest::new());
        let mut backoff = Backoff::new(pace.backoff_min, pace.backoff_max);
        loop {
            let pace = controller.pace();
            // A signal from before this run is answered by it.
            let _ = self.signal.notified().now_or_never();
            let begun = Instant::now();
            let run = controller.reconcile().instrument(info_span!("reconcile", controller = name));
            let Some(outcome) = unless_stopped(name, run, pace.grace, &stop).await else { break };
            self.metrics.reconciled(name, begun.elapsed(), outcome.is_err());
            let due = match outcome {
                Ok(next) => {
                    backoff.reset();
                    let took = controller.counted(begun.elapsed());
                    let pause = pace.settle.max(rest.pause(controller.share(), took, Instant::now()));
                    let _ = stop.run_until_cancelled(sleep(pause)).await;
                    begun + period(pace, next)
                }
                Err(Failure::Passing(error)) => {
                    let pause = backoff.next_wait();
                    let error = format!("{error:#}");
                    warn!(
                        controller = name,
                        error,
                        ?pause,
                        "Controller `{name}` failed and runs again after a pause"
                    );
                    let _ = stop.run_until_cancelled(sleep(pause)).await;
                    Instant::now()
                }
                Err(Failure::Lasting(error)) => return Err(error),
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.signal.notified() => {}
                woken = controller.woken() => woken?,
                () = sleep_until(due) => {}
            }
        }
        ended(controller.tasks()).await
    }
}

/// The run's outcome; `None` if it was under way at the stop and did not end within the grace.
async fn unless_stopped<T>(
    name: &str,
    run: impl Future<Output = T>,
    grace: Duration,
    stop: &CancellationToken,
) -> Option<T> {
    let mut run = std::pin::pin!(run);
    tokio::select! {
        // A run that is done counts even if the stop came meanwhile.
        biased;
        outcome = &mut run => return Some(outcome),
        () = stop.cancelled() => {}
    }
    let outcome = timeout(grace, run).await.ok();
    if outcome.is_none() {
        debug!(controller = name, "A run was cut off by the stop");
    }
    outcome
}

fn period(pace: Pace, next: Next) -> Duration {
    match next {
        Next::AtPeriod => pace.period,
        Next::After(delay) => delay.min(pace.period),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::{sync::mpsc, task::JoinHandle};

    use super::*;

    /// Reports the start of each run and does what it is told.
    struct Scripted {
        started: mpsc::UnboundedSender<Instant>,
        running: Arc<AtomicUsize>,
        takes: Duration,
        failures: usize,
        next: Next,
        pace: Pace,
    }

    impl Controller for Scripted {
        const NAME: &'static str = "test";

        fn pace(&self) -> Pace {
            self.pace
        }

        async fn reconcile(&mut self) -> Result<Next, Failure> {
            assert_eq!(self.running.fetch_add(1, Ordering::SeqCst), 0, "two runs at once");
            self.started.send(Instant::now()).expect("the test listens");
            sleep(self.takes).await;
            self.running.fetch_sub(1, Ordering::SeqCst);
            if 0 < self.failures {
                self.failures -= 1;
                return Err(Failure::Passing(anyhow::anyhow!("the hub does not answer")));
            }
            Ok(self.next)
        }
    }

    struct Bed {
        signal: Arc<Notify>,
        stop: CancellationToken,
        metrics: Metrics,
        starts: mpsc::UnboundedReceiver<Instant>,
        task: JoinHandle<anyhow::Result<()>>,
    }

    /// Long enough to tell apart on a busy machine.
    const STEP: Duration = Duration::from_millis(40);
    const NEVER: Duration = Duration::from_hours(1);

    impl Bed {
        fn start(pace: Pace, script: impl FnOnce(&mut Scripted)) -> Self {
            let (started, starts) = mpsc::unbounded_channel();
            let mut controller = Scripted {
                started,
                running: Arc::default(),
                takes: Duration::ZERO,
                failures: 0,
                next: Next::AtPeriod,
                pace,
            };
            script(&mut controller);
            let (signal, stop, metrics) = (Arc::new(Notify::new()), CancellationToken::new(), Metrics::new());
            let driver = Driver { signal: Arc::clone(&signal), metrics: metrics.clone() };
            let task = tokio::spawn(driver.run(controller, stop.clone()));
            Self { signal, stop, metrics, starts, task }
        }

        async fn run(&mut self) -> Instant {
            timeout(Duration::from_secs(20), self.starts.recv()).await.expect("runs").expect("lives")
        }

        /// Stops the driver; how many runs had begun that nobody waited for.
        async fn stop(mut self) -> usize {
            self.stop.cancel();
            let ended = timeout(Duration::from_secs(20), self.task).await.expect("stops");
            ended.expect("no panic").expect("no failure that lasts");
            let mut left = 0;
            while self.starts.try_recv().is_ok() {
                left += 1;
            }
            left
        }
    }

    #[test]
    fn short_runs_need_no_pause_and_long_ones_leave_others_their_share() {
        let millis = Duration::from_millis;
        for share in [Share::HALF, Share::TENTH, Share::SHORT_TENTH] {
            assert_eq!(share.pause(Duration::from_micros(100)), Duration::ZERO);
            assert_eq!(share.pause(Duration::from_hours(1)), share.longest);
        }
        assert_eq!(Share::HALF.pause(millis(20)), millis(20));
        assert_eq!(Share::TENTH.pause(millis(20)), millis(180));
        assert_eq!(Share::SHORT_TENTH.pause(millis(20)), millis(180));
    }

    #[test]
    fn time_without_runs_is_a_pause_taken_before() {
        let (millis, mut now) = (Duration::from_millis, Instant::now() + Duration::from_hours(1));
        let mut rest = Rest { until: now };
        let mut paused = Duration::ZERO;
        now += Duration::from_hours(1);
        for run in 0..1000 {
            now += millis(10);
            let pause = rest.pause(Share::HALF, millis(10), now);
            assert!(5 <= run || pause.is_zero(), "the first ones wait for nothing: {pause:?}");
            now += pause;
            paused += pause;
        }
        assert!(
            (millis(9_700)..=millis(10_000)).contains(&paused),
            "half of the time in the end: {paused:?}"
        );
        // Without credit each run has its pause.
        now += Duration::from_hours(1);
        assert_eq!(rest.pause(Share::TENTH, millis(10), now), millis(90));
        // What a long run took is not paid for by all that follow.
        assert_eq!(rest.pause(Share::TENTH, Duration::from_hours(1), now), Share::TENTH.longest);
        now += Share::TENTH.longest;
        assert_eq!(rest.pause(Share::TENTH, Duration::ZERO, now), Duration::ZERO);
    }

    fn quiet() -> Pace {
        Pace { period: NEVER, ..Pace::default() }
    }

    #[tokio::test]
    async fn it_runs_at_once_and_then_only_when_signalled() {
        let mut bed = Bed::start(quiet(), |_| ());
        bed.run().await;
        sleep(STEP).await;
        assert!(bed.starts.is_empty());
        bed.signal.notify_one();
        bed.run().await;
        assert_eq!(bed.stop().await, 0);
    }

    #[tokio::test]
    async fn signals_during_a_run_make_one_more_run() {
        let mut bed = Bed::start(quiet(), |controller| controller.takes = STEP);
        bed.run().await;
        for _ in 0..20 {
            bed.signal.notify_one();
        }
        bed.run().await;
        sleep(STEP * 4).await;
        assert_eq!(bed.stop().await, 0);
    }

    #[tokio::test]
    async fn it_runs_each_period_without_a_signal() {
        let mut bed = Bed::start(Pace { period: STEP, ..Pace::default() }, |_| ());
        let (first, second, third) = (bed.run().await, bed.run().await, bed.run().await);
        assert!(STEP <= second - first && STEP <= third - second);
        bed.stop().await;
    }

    #[tokio::test]
    async fn a_run_can_ask_for_the_next_one_sooner_but_not_later_than_the_period() {
        let mut bed = Bed::start(quiet(), |controller| controller.next = Next::After(STEP));
        let (first, second) = (bed.run().await, bed.run().await);
        assert!(STEP <= second - first);
        bed.stop().await;
        let pace = Pace { period: STEP, ..Pace::default() };
        let mut bed = Bed::start(pace, |controller| controller.next = Next::After(NEVER));
        bed.run().await;
        bed.run().await;
        bed.stop().await;
    }

    #[tokio::test]
    async fn errors_pause_longer_and_longer_whatever_the_signals_and_success_resets() {
        let pace = Pace { period: NEVER, backoff_min: STEP, backoff_max: STEP * 4, ..Pace::default() };
        let mut bed = Bed::start(pace, |controller| controller.failures = 4);
        let mut starts = vec![bed.run().await];
        for _ in 0..4 {
            bed.signal.notify_one();
            starts.push(bed.run().await);
        }
        let pauses = starts.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>();
        for (pause, least) in pauses.iter().zip([STEP, STEP * 2, STEP * 4, STEP * 4]) {
            assert!(least <= *pause, "{pauses:?}");
        }
        sleep(STEP).await;
        assert!(bed.starts.is_empty(), "signals during a pause are answered by the run that follows it");
        let text = bed.metrics.encode().expect("encodes");
        assert!(text.contains("fedq_reconcile_errors_total{controller=\"test\"} 4"), "{text}");
        bed.stop().await;
    }

    #[tokio::test]
    async fn a_run_under_way_at_the_stop_may_end_within_the_grace() {
        let mut bed = Bed::start(quiet(), |controller| controller.takes = STEP);
        bed.run().await;
        let metrics = bed.metrics.clone();
        bed.stop().await;
        let text = metrics.encode().expect("encodes");
        assert!(text.contains("fedq_reconcile_seconds_count{controller=\"test\"} 1"), "{text}");

        let mut bed = Bed::start(Pace { grace: STEP, ..quiet() }, |controller| controller.takes = NEVER);
        bed.run().await;
        assert_eq!(bed.stop().await, 0, "a run that hangs is cut off");
    }

    #[tokio::test]
    async fn what_lasts_ends_it_and_so_does_a_part_that_fails_beside_it() {
        struct Failing(Option<Failure>, Tasks);
        impl Controller for Failing {
            const NAME: &'static str = "test";
            async fn reconcile(&mut self) -> Result<Next, Failure> {
                self.0.take().map_or(Ok(Next::AtPeriod), Err)
            }
            async fn woken(&mut self) -> anyhow::Result<()> {
                failed(&mut self.1).await
            }
        }
        let run = async |controller| {
            let driver = Driver { signal: Arc::default(), metrics: Metrics::new() };
            let run = driver.run(controller, CancellationToken::new());
            timeout(Duration::from_secs(20), run).await.expect("ends").expect_err("fails").to_string()
        };
        let mut tasks = Tasks::new();
        let lasting = StoreError::Closed { what: "read" }.into();
        assert!(matches!(lasting, Failure::Lasting(_)));
        assert_eq!(run(Failing(Some(lasting), Tasks::new())).await, "cannot read: the database is closed");
        tasks.spawn(async { Ok(()) });
        tasks.spawn(async { anyhow::bail!("it broke") });
        assert_eq!(run(Failing(None, tasks)).await, "it broke");
        let passing = StoreError::Full { what: "write" }.into();
        assert!(matches!(passing, Failure::Passing(_)));
    }
}
