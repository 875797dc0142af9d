//! Keeps a session of logs in step with its task: which pods there are, and what becomes of the task itself.

use std::sync::Arc;

use tokio::{
    fs::File,
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};
use tracing::{error, warn};

use crate::{
    State,
    task::{pods, show},
};
use fedq_domain::task::view::TaskViews;
use fedq_k8s::{
    logs::{Options, Pods, Session, open as open_session, replay},
    worker::JoinedClusters,
};
use fedq_store::TaskRow;
use fedq_wire::task::LogTask;

/// Moves of a task that nobody has taken yet; a person looks at the last.
const WAITING: usize = 64;

/// What became of the task.
pub struct Told {
    phase: String,
    message: String,
}

impl Told {
    pub fn item(self) -> LogTask {
        LogTask { phase: self.phase, message: self.message, resume: None }
    }
}

/// A session with what is told of its task beside it.
pub struct Opened {
    pub session: Session,
    pub told: mpsc::Receiver<Told>,
    /// To be asked for when the session has ended.
    pub last_word: oneshot::Receiver<Told>,
    _feed: JoinSet<()>,
}

/// `earlier`: what was kept of a run that is not there any more, instead of the one that is.
pub async fn open(state: &State, row: &TaskRow, options: Options, earlier: Option<File>) -> Opened {
    let (told, hears) = mpsc::channel(WAITING);
    let (last, last_word) = oneshot::channel();
    let follows = options.follow;
    let mut feed = Feed {
        state: state.clone(),
        row: row.clone(),
        views: state.task_views.clone(),
        joined: state.joined.clone(),
        told,
        last_word: last,
        last: None,
        seen: false,
    };
    let now = feed.pods();
    let kept = match earlier {
        Some(file) => vec![file],
        None => feed.kept(&now).await,
    };
    feed.seen = !kept.is_empty();
    let pods = watch::Sender::new(now);
    let session = if kept.is_empty() {
        open_session(options, pods.subscribe())
    } else {
        replay(options, state.clock.now(), kept, pods.subscribe())
    };
    let mut task = JoinSet::new();
    task.spawn(feed.run(pods, follows));
    Opened { session, told: hears, last_word, _feed: task }
}

struct Feed {
    state: State,
    row: TaskRow,
    views: watch::Receiver<Arc<TaskViews>>,
    joined: watch::Receiver<Arc<JoinedClusters>>,
    told: mpsc::Sender<Told>,
    last_word: oneshot::Sender<Told>,
    last: Option<String>,
    /// There was a pod.
    seen: bool,
}

impl Feed {
    /// Until the session ends; `pods` is closed by then.
    async fn run(mut self, pods: watch::Sender<Pods>, follows: bool) {
        loop {
            self.tell();
            let worker = pods::worker(&self.state, &self.row);
            // Before they are read, so that no change is missed.
            let mut table = worker.as_ref().map(|worker| worker.tasks.pods.changed());
            let now = self.pods();
            self.seen |= !now.pods.is_empty();
            // What a silent cluster had is not gone.
            if worker.is_some() || now.complete {
                pods.send_replace(now);
            }
            if !follows {
                break;
            }
            tokio::select! {
                () = pods.closed() => break,
                changed = changed(&mut table) => if !changed { return },
                changed = self.joined.changed() => if changed.is_err() { return },
                changed = self.views.changed() => if changed.is_err() { return },
            }
            self.read().await;
        }
        pods.closed().await;
        self.read().await;
        self.end();
    }

    /// What was published is what is stored, unless the task moved.
    async fn read(&mut self) {
        let published = self.views.borrow().tasks.get(&self.row.id).map(|view| view.state.clone());
        if self.row.state.phase.is_over() || published.as_ref() == Some(&self.row.state) {
            return;
        }
        match self.state.store.task(&self.row.id).await {
            Ok(Some(row)) => self.row = row,
            // Nobody keeps what is over for ever.
            Ok(None) => {}
            Err(error) => {
                error!(task.id = %self.row.id, %error, "A stream of logs goes on with what it knows of its task");
            }
        }
    }

    fn tell(&mut self) {
        let task = show::task(&self.row, &self.views.borrow_and_update());
        let message = task.pending_reason.unwrap_or_default();
        let word = format!("{} {message}", task.phase);
        if !self.row.state.phase.is_over() && self.last.as_ref() != Some(&word) {
            // One that does not fit would be out of date when it is read.
            let _ = self.told.try_send(Told { phase: task.phase, message });
            self.last = Some(word);
        }
    }

    /// What is left of a task that is over, where its pods are not all there any more.
    async fn kept(&self, now: &Pods) -> Vec<File> {
        let there = |node: u32| now.pods.iter().any(|pod| pod.node == node);
        let Some(kept) = self.state.kept_logs.as_ref().filter(|_| self.row.state.phase.is_over()) else {
            return Vec::new();
        };
        if (0..self.row.spec.num_nodes).all(there) {
            return Vec::new();
        }
        kept.files(&self.row.id).await.unwrap_or_else(|error| {
            warn!(task.id = %self.row.id, "A log that was kept cannot be read: {error}");
            Vec::new()
        })
    }

    fn end(self) {
        let task = show::task(&self.row, &self.views.borrow());
        let message = match (&task.failure, task.pending_reason) {
            _ if self.row.state.phase.is_over() && !self.seen && self.row.dispatch.is_some() => {
                "its pods are gone, and with them its logs".to_owned()
            }
            (Some(failure), _) => failure.clone(),
            (None, reason) => reason.unwrap_or_default(),
        };
        // Whoever reads may have gone.
        let _ = self.last_word.send(Told { phase: task.phase, message });
    }

    fn pods(&self) -> Pods {
        let complete = self.row.state.phase.is_over();
        let Some(worker) = pods::worker(&self.state, &self.row) else {
            return Pods { pods: Vec::new(), complete };
        };
        let pods = pods::of_run(&self.state, &self.row, &worker).into_iter();
        let pods = pods.filter_map(|(place, pod)| pod.of_task(&worker, place, pod.containers()));
        Pods { pods: pods.collect(), complete }
    }
}

/// Never where there is no table.
async fn changed(table: &mut Option<watch::Receiver<()>>) -> bool {
    match table {
        Some(table) => table.changed().await.is_ok(),
        None => std::future::pending().await,
    }
}
