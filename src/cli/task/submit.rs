//! `fedq task submit`

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::{input, logs, pack::Packed, show, upload};
use crate::{
    DONE, Session,
    args::{Format, LogsArgs, SubmitArgs},
    client::Api,
    error::CliError,
    print::Printer,
};
use fedq_domain::task::{
    names::TaskId,
    sky::{Changes, Options},
};
use fedq_wire::task::{SubmitTask, Submitted};

/// After an answer that was lost; the id keeps the task from being submitted twice.
const TRIES: u32 = 4;
const WAIT: Duration = Duration::from_millis(500);

pub async fn run(args: Box<SubmitArgs>, session: &mut Session) -> Result<u8, CliError> {
    let (mut asked, packed) = request(&args).await?;
    let (api, printer) = session.both()?;
    asked.uploads = upload::send_all(api, packed, args.dry_run, printer).await?;
    let path = if args.dry_run { "/tasks?dryRun=All" } else { "/tasks" };
    let submitted = send(api, path, &asked, printer).await?;
    for warning in &submitted.warnings {
        printer.warning(warning);
    }
    tell(&submitted, &args, printer)?;
    let for_programs = !matches!(args.output.output, Format::Table | Format::Wide);
    if args.detach || args.dry_run || for_programs {
        return Ok(DONE);
    }
    // The next stage has nothing to show before this one has succeeded.
    let stages = submitted.stages.iter().map(|stage| stage.id.clone());
    let ids = if submitted.stages.is_empty() { vec![submitted.id] } else { stages.collect() };
    for id in ids {
        let code = logs::run(&LogsArgs::whole(id), session).await?;
        if code != DONE {
            return Ok(code);
        }
    }
    Ok(DONE)
}

/// The task, and what is to be sent before it.
async fn request(args: &SubmitArgs) -> Result<(SubmitTask, BTreeMap<String, Packed>), CliError> {
    input::reads_once(args.file.as_deref(), &args.input)?;
    let file = match &args.file {
        Some(path) => {
            let text = input::read(path).await?;
            String::from_utf8(text).map_err(|_| {
                CliError::usage(format!("`{}` is not UTF-8 text", path.display()), "give a task file in YAML")
            })?
        }
        // JSON is YAML.
        None => serde_json::json!({"run": words(&args.command)}).to_string(),
    };
    let envs = input::envs(&args.input).await?;
    // By the server the whole of them are put in; here it matters which folders of this machine are named.
    let changes = Changes { workdir: args.workdir.clone(), ..Changes::default() };
    let options = Options { envs: envs.clone(), changes, ..Options::default() };
    let packed = upload::pack_all(file.as_bytes(), &options).await?;
    let task = SubmitTask {
        file,
        id: Some(TaskId::draw(fastrand::u64(..)).to_string()),
        envs,
        secrets: input::secrets(&args.input).await?,
        uploads: BTreeMap::new(),
        name: args.name.clone(),
        queue: args.queue.clone(),
        cluster: args.cluster.clone(),
        num_nodes: args.nodes,
        workdir: args.workdir.clone(),
        priority: args.priority.clone(),
        infra: args.infra.clone(),
        cpus: args.cpus.clone(),
        memory: args.memory.clone(),
        use_spot: (args.use_spot || args.no_use_spot).then_some(args.use_spot),
        disk_size: args.disk_size.clone(),
        max_duration: args.max_duration.clone(),
        accelerators: args.gpus.clone(),
        image: args.image.clone(),
        as_app_wrapper: args.as_app_wrapper,
        strict: args.input.strict,
    };
    Ok((task, packed))
}

/// The command as a shell reads it back.
fn words(command: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    let quoted = command.iter().map(|word| {
        if !word.is_empty() && word.chars().all(plain) {
            return word.clone();
        }
        format!("'{}'", word.replace('\'', r"'\''"))
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// `asked`: with an id of its own, so that it can be asked again.
pub async fn send(
    api: &Api,
    path: &str,
    asked: &impl Serialize,
    printer: &mut Printer,
) -> Result<Submitted, CliError> {
    let mut tries = 1;
    loop {
        match api.post(path, asked).await {
            Err(error) if tries < TRIES && is_lost(&error) => {
                printer.progress(&format!("{error}; asking again"));
                tokio::time::sleep(WAIT * 2_u32.pow(tries)).await;
                tries += 1;
            }
            answer => {
                printer.done();
                return answer;
            }
        }
    }
}

/// Whether the request may have arrived all the same.
fn is_lost(error: &CliError) -> bool {
    matches!(error, CliError::Connect { .. } | CliError::Timeout { .. })
}

fn tell(submitted: &Submitted, args: &SubmitArgs, printer: &mut Printer) -> Result<(), CliError> {
    let Submitted { id, name, namespace, queue, dry_run, clusters, stages, .. } = submitted;
    match args.output.output {
        Format::Json => return printer.json(submitted),
        Format::Yaml => return printer.yaml(submitted),
        Format::Name if *dry_run => return Ok(()),
        Format::Name => return printer.line(&format!("task/{id}")),
        Format::Table | Format::Wide => {}
    }
    if *dry_run {
        show::print_verdicts(clusters, args.output, printer)?;
        for stage in stages {
            printer.line(&format!("{}:", stage.name))?;
            show::print_verdicts(&stage.clusters, args.output, printer)?;
        }
        printer.note(&format!("{name} is valid; nothing was submitted (dry run)"));
        return Ok(());
    }
    printer.line(&format!("task {id} submitted"))?;
    for (number, stage) in (1..).zip(stages) {
        printer.note(&format!("  stage {number}: {} ({})", stage.name, stage.id));
    }
    let queue = queue.as_deref().unwrap_or("-");
    printer.note(&format!("{name} waits in queue {queue} of namespace {namespace}"));
    if args.detach {
        logs::next(id, printer);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_command_back_as_it_was_typed() {
        let typed = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        for (command, expected) in [
            (typed(&["python", "train.py", "--lr=0.1"]), "python train.py --lr=0.1"),
            (typed(&["echo", "two words", "it's", "$HOME", ""]), r"echo 'two words' 'it'\''s' '$HOME' ''"),
        ] {
            let line = words(&command);
            assert_eq!(line, expected);
            let script = format!("printf '%s\\n' {line}");
            let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
            let read: Vec<_> =
                std::str::from_utf8(&output.stdout).expect("text").lines().map(str::to_owned).collect();
            assert_eq!(read, command);
        }
    }
}
