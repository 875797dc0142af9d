//! Where a task's pods are now.

use std::sync::Arc;

use super::show;
use crate::State;
use fedq_domain::task::phase::Phase;
use fedq_k8s::{
    logs::{LogPod, numbered},
    worker::Worker,
};
use fedq_store::{Dispatch, TaskRow};

/// The cluster that the task is on, or was on last, while it is connected.
pub fn worker(state: &State, row: &TaskRow) -> Option<Arc<Worker>> {
    let views = state.task_views.borrow();
    let view = views.tasks.get(&row.id).filter(|view| view.state == row.state);
    let was = row.dispatch.as_ref().and_then(Dispatch::cluster);
    let cluster = match &row.state.phase {
        Phase::Pending => None,
        _ => view.and_then(|view| view.cluster.as_ref()).or_else(|| show::ran_on(row)).or(was),
    };
    state.joined.borrow().get(cluster?)?.worker.clone()
}

/// Those of the task's run with their places. Those that are published, by name: to look at all pods of the cluster each
/// time would cost too much.
pub fn of_run(state: &State, row: &TaskRow, worker: &Worker) -> Vec<(Option<u32>, Arc<LogPod>)> {
    let mine = |pod: &Arc<LogPod>| {
        pod.metadata.namespace.as_ref() == Some(&row.namespace)
            && pod.epoch() == Some(row.state.epoch)
            && pod.task().as_ref() == Some(&row.id)
    };
    let views = state.task_views.borrow();
    let Some(view) = views.tasks.get(&row.id) else {
        return numbered(worker.tasks.pods.all().into_iter().filter(mine).collect());
    };
    let names = (0..).zip(&view.nodes).filter_map(|(place, node)| Some((place, node.pod.as_deref()?)));
    let pod = |(place, name): (u32, &str)| {
        let pod = worker.tasks.pods.get(Some(&row.namespace), name)?;
        mine(&pod).then_some((Some(place), pod))
    };
    names.filter_map(pod).collect()
}
