//! `delete workload`: the jobs that own workloads are deleted, and with them Kubernetes deletes the workloads. A workload that
//! nothing owns is deleted itself.

use std::io::BufRead;

use serde_json::Value;

use crate::{
    discovery,
    error::Error,
    output::Printer,
    resource::{DryRun, Resource},
    session::{Session, text},
    workload::owners,
};

/// A workload and the objects that own it.
struct Doomed {
    workload: Value,
    owners: Vec<Owner>,
}

struct Owner {
    resource: Resource,
    name: String,
    uid: String,
}

impl Owner {
    /// `jobs.batch/name`.
    fn shown(&self) -> String {
        format!("{}/{}", self.resource.full_name(), self.name)
    }
}

pub async fn run(session: &mut Session<'_, '_>) -> Result<(), Error> {
    check(session)?;
    session.namespace()?;
    let dry_run = session.dry_run()?;
    let workloads = if session.given.is("all") { all(session).await? } else { named(session).await? };
    if workloads.is_empty() {
        return Ok(());
    }
    let mut doomed = Vec::new();
    for workload in workloads {
        let owners = owners_of(session, &workload).await?;
        doomed.push(Doomed { workload, owners });
    }
    let owned = doomed.iter().any(|doomed| !doomed.owners.is_empty());
    if owned && dry_run == DryRun::None && !session.given.is("yes") && !confirmed(session, &doomed)? {
        return session.print("Deletion is canceled\n");
    }
    let mut printer = Printer::new(session, "deleted", dry_run)?;
    for doomed in &doomed {
        delete(session, doomed, dry_run, &mut printer).await?;
    }
    Ok(())
}

fn check(session: &Session<'_, '_>) -> Result<(), Error> {
    let (all, names) = (session.given.is("all"), session.given.arguments.len());
    if !all && names == 0 {
        return Err(Error::said("requires at least 1 arg(s), only received 0"));
    }
    if all && 0 < names {
        return Err(Error::said("name cannot be provided when a selector is specified"));
    }
    if session.given.is("all-namespaces") && 0 < names {
        return Err(Error::said("a resource cannot be retrieved by name across all namespaces"));
    }
    Ok(())
}

async fn all(session: &mut Session<'_, '_>) -> Result<Vec<Value>, Error> {
    let namespace = session.scope()?;
    let mut list = Resource::workload().list(session.api().await?, &namespace, &[]).await?;
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// Those that do not exist are told of and left out.
async fn named(session: &mut Session<'_, '_>) -> Result<Vec<Value>, Error> {
    let namespace = session.namespace()?;
    let mut found = Vec::new();
    for name in session.given.arguments.clone() {
        match Resource::workload().get(session.api().await?, &namespace, &name).await {
            Err(error) if error.is_not_found() => session.complain(&format!("{error}\n"))?,
            workload => found.push(workload?),
        }
    }
    Ok(found)
}

async fn owners_of(session: &mut Session<'_, '_>, workload: &Value) -> Result<Vec<Owner>, Error> {
    let mut found = Vec::new();
    for owner in owners(workload) {
        let resource =
            discovery::of_kind(session.api().await?, text(owner, "/apiVersion"), text(owner, "/kind"))
                .await?;
        found.push(Owner {
            resource,
            name: text(owner, "/name").to_owned(),
            uid: text(owner, "/uid").to_owned(),
        });
    }
    Ok(found)
}

fn confirmed(session: &mut Session<'_, '_>, doomed: &[Doomed]) -> Result<bool, Error> {
    let message = if session.given.is("all") {
        "This operation will also delete the jobs associated with these workloads.\n".to_owned()
    } else {
        let line = |doomed: &Doomed| {
            let names: Vec<String> = doomed.owners.iter().map(Owner::shown).collect();
            let (namespace, name) = place(&doomed.workload);
            format!("  - {} associated with the {namespace}/{name} workload\n", names.join(", "))
        };
        let lines: Vec<String> = doomed.iter().filter(|doomed| !doomed.owners.is_empty()).map(line).collect();
        format!("This operation will also delete:\n{}", lines.join("\n"))
    };
    session.print(&format!("{message}Do you want to proceed (y/n)? "))?;
    session.world.output.flush()?;
    Ok(first_word(session.world.input)?.eq_ignore_ascii_case("y"))
}

fn first_word(input: &mut dyn BufRead) -> Result<String, Error> {
    let mut line = String::new();
    while line.trim().is_empty() {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            break;
        }
    }
    Ok(line.split_whitespace().next().unwrap_or_default().to_owned())
}

async fn delete(
    session: &mut Session<'_, '_>,
    doomed: &Doomed,
    dry_run: DryRun,
    printer: &mut Printer<'_>,
) -> Result<(), Error> {
    let (namespace, name) = place(&doomed.workload);
    let suffix = match dry_run {
        DryRun::None => "",
        DryRun::Client => " (client dry run)",
        DryRun::Server => " (server dry run)",
    };
    for owner in &doomed.owners {
        if dry_run != DryRun::Client {
            let api = session.api().await?;
            let uid = uid(&owner.uid);
            missing_is_fine(owner.resource.delete(api, (namespace, &owner.name), uid, dry_run).await)?;
        }
        session.print(&format!("{} deleted{suffix}\n", owner.shown()))?;
    }
    if doomed.owners.is_empty() {
        if dry_run != DryRun::Client {
            let api = session.api().await?;
            let uid = uid(text(&doomed.workload, "/metadata/uid"));
            missing_is_fine(Resource::workload().delete(api, (namespace, name), uid, dry_run).await)?;
        }
        let text = printer.print("Workload", &doomed.workload)?;
        session.print(&text)?;
    }
    Ok(())
}

/// Another object may have the name by now: what was read is the one of this UID.
fn uid(read: &str) -> Option<&str> {
    Some(read).filter(|uid| !uid.is_empty())
}

fn missing_is_fine(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(()),
        outcome => outcome,
    }
}

fn place(workload: &Value) -> (&str, &str) {
    (text(workload, "/metadata/namespace"), text(workload, "/metadata/name"))
}
