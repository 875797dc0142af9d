//! `fedq task logs`: lines as they come, through broken connections, until the task is over.

mod render;
mod resume;

use std::time::Duration;

use tokio::time::sleep;

use self::{render::Render, resume::Seen};
use crate::{
    DONE, INTERRUPTED, Session,
    args::LogsArgs,
    client::{Api, escape},
    error::CliError,
    print::Printer,
};
use fedq_wire::{
    problem::Code,
    task::{LogItem, LogTask, TaskDetail},
};

/// What the exit code says of the task, as SkyPilot's does.
const TASK_FAILED: u8 = 100;
const UNFINISHED: u8 = 101;
const NOT_FOUND: u8 = 102;
const STOPPED: u8 = 103;

/// Between attempts to go on.
const WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// In vain, before it is given up: a daemon that is started anew is back sooner.
const TRIES: u32 = 40;

pub async fn run(args: &LogsArgs, session: &mut Session) -> Result<u8, CliError> {
    let (api, printer) = session.both()?;
    let detail: TaskDetail = match api.get(&super::path(&args.id, "")).await {
        Err(error) if error.code() == Some(Code::NotFound) => {
            printer.error(&error);
            return Ok(NOT_FOUND);
        }
        detail => detail?,
    };
    let render = Render::new(args, detail.task.num_nodes, printer);
    tokio::select! {
        code = follow(args, &render, api, printer) => code,
        _ = tokio::signal::ctrl_c() => Ok(INTERRUPTED),
    }
    .inspect(|code| {
        printer.done();
        if *code == INTERRUPTED {
            printer.note("Nobody stopped the task; this was only looking at it.");
            next(&args.id, printer);
        }
    })
}

/// What to type now.
pub fn next(id: &str, printer: &mut Printer) {
    printer.note(&format!(
        "  fedq task logs {id}      its logs\n  fedq task status {id}    how it does\n  fedq task explain {id}   why it is where it is\n  fedq task stop {id}      end it"
    ));
}

async fn follow(args: &LogsArgs, render: &Render, api: &Api, printer: &mut Printer) -> Result<u8, CliError> {
    let mut seen = Seen::default();
    let mut tries = 0;
    loop {
        let path = path(args, &seen);
        let mut last: Option<LogTask> = None;
        let mut heard = false;
        let stream = api.lines::<LogItem>(&path, |item| {
            heard = true;
            if let LogItem::Line(line) = &item {
                seen.note(line);
            }
            last = render.item(item, printer)?;
            Ok(())
        });
        let ended = stream.await;
        if heard {
            tries = 0;
        }
        match (ended, last) {
            (Ok(()), Some(task)) if is_over(&task.phase) || !follows(args) => {
                return Ok(finish(&task, printer));
            }
            // The server ends a stream now and then, or was itself ended.
            (Ok(()), _) if tries < TRIES => {
                tries += 1;
                sleep(WAIT).await;
            }
            (Ok(()), _) => {
                return Err(CliError::Failed {
                    message: "the stream of its logs ends without a word".to_owned(),
                    next: None,
                });
            }
            (Err(error), _) if is_lost(&error) && tries < TRIES && follows(args) => {
                tries += 1;
                printer.progress(&format!("{error}; going on as soon as it can be reached"));
                sleep((WAIT * tries).min(LONGEST_WAIT)).await;
            }
            (Err(error), _) => return Err(error),
        }
    }
}

/// An earlier run has ended, so that there is nothing to wait for.
fn follows(args: &LogsArgs) -> bool {
    !args.no_follow && !args.previous && args.epoch.is_none()
}

fn is_over(phase: &str) -> bool {
    matches!(phase, "succeeded" | "failed" | "stopped")
}

fn is_lost(error: &CliError) -> bool {
    error.is_passing() || matches!(error, CliError::Answer { .. })
}

fn finish(task: &LogTask, printer: &mut Printer) -> u8 {
    printer.done();
    let why = if task.message.is_empty() { String::new() } else { format!(": {}", task.message) };
    printer.note(&format!("The task is {}{why}", task.phase));
    match task.phase.as_str() {
        "succeeded" => DONE,
        "failed" => TASK_FAILED,
        "stopped" => STOPPED,
        _ => UNFINISHED,
    }
}

fn path(args: &LogsArgs, seen: &Seen) -> String {
    let mut query = vec![format!("follow={}", follows(args))];
    if args.previous {
        query.push("previous=true".to_owned());
    }
    query.extend(args.epoch.map(|epoch| format!("epoch={epoch}")));
    query.extend(args.node.map(|node| format!("node={node}")));
    query.extend(args.tail.map(|lines| format!("tail={lines}")));
    query.extend(args.since.map(|since| format!("sinceSeconds={}", since.as_secs())));
    query.extend(args.since_time.map(|time| format!("sinceTime={time}")));
    // Of these containers, nothing else counts.
    query.extend(seen.after().map(|after| format!("after={}", escape(&after))));
    super::path(&args.id, &format!("/logs?{}", query.join("&")))
}
