//! `fedq task stop`

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{DONE, FAILED, Session, args::StopArgs, client::Api, error::CliError, print::Printer};
use fedq_wire::task::{Stopped, Task, TaskDetail};

/// Kubernetes gives pods 30 s to end; controllers that lost their server for a while need as long again.
const PATIENCE: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(300);

pub async fn run(args: StopArgs, session: &mut Session) -> Result<u8, CliError> {
    let (api, printer) = session.both()?;
    let ids = if args.all {
        stop_all(&args, api, printer).await?
    } else {
        stop_these(&args.ids, api, printer).await?
    };
    if args.no_wait {
        return ids.iter().try_for_each(|id| printer.line(&format!("task {id} stops"))).map(|()| DONE);
    }
    confirm(&ids, api, printer).await
}

/// With those that are stopped with them.
async fn stop_these(ids: &[String], api: &Api, printer: &mut Printer) -> Result<Vec<String>, CliError> {
    let mut stopped: Vec<String> = Vec::new();
    for id in ids {
        // Of a pipeline, what comes after it and is not over.
        let before: TaskDetail = api.get(&super::path(id, "")).await?;
        let own = before.task.pipeline.as_ref().map_or(0, |stage| stage.stage);
        let task: Task = api.post(&super::path(id, "/stop"), &serde_json::json!({})).await?;
        if matches!(task.phase.as_str(), "succeeded" | "failed") {
            printer.note(&format!("task {id} had {} already", task.phase));
        }
        let behind = before.stages.iter().filter(|task| {
            let later = task.pipeline.as_ref().is_some_and(|stage| own < stage.stage);
            later && !is_over(task)
        });
        stopped.extend(std::iter::once(id).chain(behind.map(|task| &task.id)).cloned());
    }
    let mut seen = std::collections::BTreeSet::new();
    stopped.retain(|id| seen.insert(id.clone()));
    Ok(stopped)
}

async fn stop_all(args: &StopArgs, api: &Api, printer: &mut Printer) -> Result<Vec<String>, CliError> {
    let whose = if args.all_users { "everybody's tasks" } else { "all your tasks" };
    if !args.yes && printer.is_interactive() {
        let answer = printer.ask(&format!("Stop {whose}? [y/N]")).unwrap_or_default();
        if !matches!(answer.as_str(), "y" | "Y" | "yes") {
            return Err(CliError::Failed { message: "nothing was stopped".to_owned(), next: None });
        }
    }
    let path = if args.all_users { "/tasks/stop?allUsers=true" } else { "/tasks/stop" };
    let stopped: Stopped = api.post(path, &serde_json::json!({})).await?;
    if stopped.ids.is_empty() {
        printer.note("No task was there to stop.");
    }
    Ok(stopped.ids)
}

async fn confirm(ids: &[String], api: &Api, printer: &mut Printer) -> Result<u8, CliError> {
    let until = Instant::now() + PATIENCE;
    let mut code = DONE;
    for id in ids {
        loop {
            let path = super::path(id, "");
            let why = match api.get::<TaskDetail>(&path).await {
                Ok(TaskDetail { task, .. }) if is_over(&task) => {
                    printer.done();
                    printer.line(&format!("task {id} {}", task.phase))?;
                    break;
                }
                Ok(TaskDetail { task, .. }) => task.pending_reason.unwrap_or(task.phase),
                // It was asked for; nobody who looks changes that.
                Err(error) if error.is_passing() => error.to_string(),
                Err(error) => return Err(error),
            };
            if until <= Instant::now() {
                printer.done();
                printer.line(&format!("task {id} stops"))?;
                printer.note(&format!("It is not confirmed yet: {why}. fedqd goes on with it."));
                code = FAILED;
                break;
            }
            printer.progress(&format!("{id}: {why}"));
            sleep(POLL).await;
        }
    }
    Ok(code)
}

fn is_over(task: &Task) -> bool {
    matches!(task.phase.as_str(), "stopped" | "succeeded" | "failed")
}
