//! Into the pods of tasks. kwok runs commands on this machine, in the cluster's folder, and has `cat` answer on every port.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::command_line::Person;
use super::rights::{ROLES, WORKER, kubeconfig_of};
use super::stage::{GPU, SOON, holds};
use super::task_stage::{Bed, LONG, give, stage};
use crate::follower::Follower;
use crate::support::daemon::{Ran, cli_fed, start_cli};
use crate::support::fleet::Fleet;
use crate::support::wait::{Seen, eventually};

const CASE: &str = "enter";
const EXEC: &str = include_str!("../../../deploy/worker/exec.yaml");

/// The relay that holds answers against the API's document takes no WebSocket.
fn env<'a>(bed: &'a Bed<'_, '_>, person: &'a Person<'_, '_>) -> [(&'a str, &'a str); 2] {
    [("FEDQ_SERVER", &bed.stage.unchecked), ("FEDQ_TOKEN", person.token())]
}

fn runs(bed: &Bed<'_, '_>, person: &Person<'_, '_>, args: &[&str], input: &str) -> Result<Ran> {
    cli_fed(bed.stage.fleet, CASE, &env(bed, person), &[&["task"], args].concat(), input)
}

fn starts(bed: &Bed<'_, '_>, args: &[&str]) -> Result<Follower> {
    let all = [&["task"], args].concat();
    Ok(Follower::new(start_cli(bed.stage.fleet, CASE, &env(bed, &bed.person), &all, Stdio::piped())?))
}

async fn ends(mut follower: Follower) -> Result<Option<i32>> {
    eventually("the command to end", SOON, async || {
        let ended = follower.ended()?;
        Ok(ended.map_or(Seen::Still("it runs".to_owned()), |status| Seen::Done(status.code())))
    })
    .await
}

async fn says(follower: &mut Follower, what: &str) -> Result<String> {
    eventually(what, SOON, async || {
        let line = follower.heard().iter().find(|line| line.contains(what)).cloned();
        Ok(line.map_or(Seen::Still("nothing yet".to_owned()), Seen::Done))
    })
    .await
}

pub async fn people_enter_their_own_tasks_where_the_cluster_allows_it(fleet: &Fleet) -> Result<()> {
    let name = "people_enter_their_own_tasks_where_the_cluster_allows_it";
    let stage = stage(fleet, name, CASE, "gang: indexed").await?;
    let worker = fleet.worker1();
    worker.apply(WORKER).await?;
    stage
        .hub()
        .apply(ROLES.split("---\n").find(|role| role.contains("name: fedq-task-admin")).context("a role")?)
        .await?;
    stage.put_secret("one", &kubeconfig_of(worker, "fedq")?).await?;
    give_gpus(&stage).await?;
    holds(worker, CASE, CASE, &[(GPU, "4")]).await?;
    let bed = Bed { stage: &stage, person: Person::new(&stage, "ann", Some("cluster-admin")).await? };
    let id = bed.submit((2, 1), LONG)?;
    bed.reaches(&id, "running").await?;

    let refused = runs(&bed, &bed.person, &["exec", &id, "--", "true"], "")?;
    let told = refused.stderr.contains("deploy/worker/exec.yaml") && refused.stderr.contains("pods/exec");
    ensure!(refused.code == 1 && told, "what the cluster lacks is named: {refused:?}");
    worker.apply(EXEC).await?;
    commands(&bed, &id).await?;
    ports(&bed, &id).await?;
    others(&bed, &id).await?;
    written_down(&bed, &id)?;
    ended_with_the_task(&bed, &id).await
}

async fn give_gpus(stage: &super::stage::Stage<'_>) -> Result<()> {
    eventually("the claim to be there", SOON, async || {
        Ok(match give(stage, "one", "4").await {
            Ok(()) => Seen::Done(()),
            Err(error) => Seen::Still(format!("{error:#}")),
        })
    })
    .await
}

async fn commands(bed: &Bed<'_, '_>, id: &str) -> Result<()> {
    // kwok tells no command that its input has ended, and how one ended only in words: a kubelet's exit code is read in
    // `cli/task/enter/command.rs`.
    let script = r#"test "$IN_A_POD" = yes && head -c 5 | tr a-z A-Z; echo "what is wrong" >&2; exit 7"#;
    let ran = eventually("the rights to be in force", SOON, async || {
        let ran =
            runs(bed, &bed.person, &["exec", id, "--node", "1", "-i", "--", "sh", "-c", script], "hello")?;
        let ended = ran.code == 1 && ran.stderr.ends_with("exit status 7\n");
        Ok(if ended { Seen::Done(ran) } else { Seen::Still(format!("{ran:?}")) })
    })
    .await?;
    let apart = ran.stdout == "HELLO" && ran.stderr.starts_with("what is wrong\nerror: ");
    ensure!(apart, "each stream is its own: {ran:?}");

    // More than any buffer on the way.
    let large = "0123456789abcdef".repeat(1 << 18);
    let bytes = large.len().to_string();
    let ran = runs(bed, &bed.person, &["exec", id, "-i", "--", "head", "-c", &bytes], &large)?;
    ensure!(ran.code == 0 && ran.stdout == large, "{} of {} bytes came back", ran.stdout.len(), large.len());

    let ran = runs(bed, &bed.person, &["shell", id], "echo from $0 in a shell\nexit\n")?;
    ensure!(ran.code == 0 && ran.stdout.contains(" in a shell"), "{ran:?}");
    for (args, code, word) in [
        (vec!["exec", id, "--", "no-such-program"], 1, "no-such-program"),
        (vec!["exec", id, "--node", "2", "--", "true"], 1, "there is no node 2"),
        (vec!["exec", id, "--container", "other", "--", "true"], 1, "there are only task"),
        (vec!["exec", id], 2, "COMMAND"),
    ] {
        let ran = runs(bed, &bed.person, &args, "")?;
        ensure!(ran.code == code && ran.stderr.contains(word), "{args:?}: {ran:?}");
    }
    Ok(())
}

async fn ports(bed: &Bed<'_, '_>, id: &str) -> Result<()> {
    let mut forward = starts(bed, &["port-forward", id, ":8888", "--node", "1"])?;
    let line = says(&mut forward, " leads to port 8888 of node 1").await?;
    let address = line.split_whitespace().next().context("an address")?;
    for text in ["first", "second, beside it"] {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(text.as_bytes())?;
        let mut back = vec![0; text.len()];
        stream.read_exact(&mut back).with_context(|| format!("an echo of {text}"))?;
        ensure!(back == text.as_bytes(), "{}", String::from_utf8_lossy(&back));
    }
    forward.interrupt();
    ensure!(ends(forward).await? == Some(130));
    Ok(())
}

async fn others(bed: &Bed<'_, '_>, id: &str) -> Result<()> {
    let admin = Person::new(bed.stage, "eve", Some("fedq-task-admin")).await?;
    let nobody = Person::new(bed.stage, "bob", None).await?;
    let seen = runs(bed, &admin, &["status", id], "")?;
    ensure!(seen.code == 0, "who sees everybody's tasks sees it: {seen:?}");
    for (person, args) in [
        (&admin, vec!["exec", id, "--", "true"]),
        (&admin, vec!["shell", id]),
        (&nobody, vec!["exec", id, "--", "true"]),
    ] {
        let ran = runs(bed, person, &args, "")?;
        let missing = ran.stderr.contains(&format!("there is no task `{id}`"));
        ensure!(ran.code == 1 && missing && ran.stdout.is_empty(), "and does not enter it: {ran:?}");
    }
    Ok(())
}

fn written_down(bed: &Bed<'_, '_>, id: &str) -> Result<()> {
    let told = bed.person.runs(&["audit", "list", "-o", "json"])?.success()?;
    let told: Value = serde_json::from_str(&told)?;
    let entries = told["items"].as_array().or(told.as_array()).context("a list")?;
    let of = |part: &str| -> Vec<&Value> {
        entries.iter().filter(|entry| entry["object"] == format!("tasks/{id}/{part}")).collect()
    };
    let (exec, ports) = (of("exec"), of("portforward"));
    let first = json!({"node": 1, "command": "sh", "cluster": "one"});
    let ran = exec.iter().any(|entry| entry["detail"] == first && entry["outcome"] == "ok");
    let refused =
        exec.iter().any(|entry| entry["outcome"].as_str().is_some_and(|why| why.contains("may not enter")));
    ensure!(ran && refused, "{exec:#?}");
    ensure!(ports.len() == 2 && ports[0]["detail"]["port"] == 8888, "each connection: {ports:#?}");
    let all = serde_json::to_string(entries)?;
    ensure!(!all.contains("IN_A_POD") && !all.contains("hello"), "no arguments, no input: {all}");
    Ok(())
}

async fn ended_with_the_task(bed: &Bed<'_, '_>, id: &str) -> Result<()> {
    let mut open = starts(bed, &["exec", id, "--", "sh", "-c", "echo it runs; sleep 600"])?;
    says(&mut open, "it runs").await?;
    bed.person.runs(&["task", "stop", id, "--yes", "--no-wait"])?.success()?;
    ensure!(ends(open).await? == Some(1), "it ends with its task");
    let late = runs(bed, &bed.person, &["exec", id, "--", "true"], "")?;
    ensure!(late.code == 1 && late.stderr.contains("only what runs can be entered"), "{late:?}");
    Ok(())
}
