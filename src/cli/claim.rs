//! `fedq claim`.

use super::{
    DONE, Session,
    age::{age, age_of},
    args::{AssignArgs, ClaimCommand, ConfirmRemovalArgs, Format, HistoryArgs, ShowClaimArgs},
    claim_diff, claim_edit,
    claim_text::Manifest,
    client::escape,
    cluster::{report, with_dry_run, words},
    error::CliError,
    list::{self, Row},
    print::Printer,
    quota::assignment,
    table::Table,
};
use fedq_values::amount::amount;
use fedq_wire::{
    claim::{Assign, AssignmentState, Claim, ClaimChange, ClaimDetail, ClaimHistory},
    cluster::Done,
    list::List,
};

pub async fn run(command: ClaimCommand, session: &mut Session) -> Result<u8, CliError> {
    match command {
        ClaimCommand::List(args) => list::run::<Claim>("/claims", &args, session).await.map(|()| DONE),
        ClaimCommand::Show(args) => show(args, session).await,
        ClaimCommand::Edit(args) => claim_edit::run(args, session).await,
        ClaimCommand::Assign(args) => assign(args, session).await,
        ClaimCommand::Diff(args) => Ok(claim_diff::run(args, session).await),
        ClaimCommand::History(args) => history(args, session).await,
        ClaimCommand::ConfirmRemoval(args) => confirm_removal(args, session).await,
    }
}

pub fn path(name: &str) -> String {
    format!("/claims/{}", escape(name))
}

impl Row for Claim {
    fn headers(wide: bool) -> &'static [&'static str] {
        if wide {
            &["NAME", "CLUSTER", "READY", "SHORT", "QUEUES", "AGE", "REASON", "MESSAGE"]
        } else {
            &["NAME", "CLUSTER", "READY", "SHORT", "QUEUES", "AGE"]
        }
    }

    fn rows(&self, wide: bool) -> Vec<Vec<String>> {
        let mut queues: Vec<&str> =
            self.assignments.iter().map(|assignment| assignment.queue.as_str()).collect();
        queues.dedup();
        let mut row = vec![
            self.name.clone(),
            self.cluster.clone(),
            self.ready.status.clone(),
            words(&self.short),
            queues.join(","),
            age_of(self.created),
        ];
        if wide {
            row.extend([self.ready.reason.clone(), self.ready.message.clone()]);
        }
        vec![row]
    }

    fn name(&self) -> String {
        format!("clusterresourceclaim/{}", self.name)
    }
}

async fn show(args: ShowClaimArgs, session: &mut Session) -> Result<u8, CliError> {
    let (api, printer) = session.both()?;
    let detail: ClaimDetail = api.get(&path(&args.name)).await?;
    match args.output.output {
        Format::Json => printer.json(&Manifest::of(&detail))?,
        Format::Yaml => printer.yaml(&Manifest::of(&detail))?,
        Format::Name => printer.line(&format!("clusterresourceclaim/{}", detail.name))?,
        Format::Table | Format::Wide => describe(&detail, printer)?,
    }
    Ok(DONE)
}

fn describe(detail: &ClaimDetail, printer: &mut Printer) -> Result<(), CliError> {
    let mut facts = Table::default();
    facts.row(["Name:", &detail.name]);
    facts.row(["Cluster:", &detail.spec.cluster_name]);
    let Some(state) = &detail.state else {
        facts.row(["Ready:", "Unknown (fedqd has not looked at it yet)"]);
        return printer.table(&facts);
    };
    let ready = &state.ready;
    facts.row(["Ready:", &ready.status]);
    for (label, text) in [("Reason:", &ready.reason), ("Message:", &ready.message)] {
        if !text.is_empty() {
            facts.row([label, text]);
        }
    }
    for note in &state.notes {
        facts.row([&format!("{}:", note.kind), &note.message]);
    }
    printer.table(&facts)?;
    let mut nominal = Table::new(&["RESOURCE", "NOMINAL", "MEANS"]);
    for entry in &state.nominal {
        let meaning = if entry.cap { "cap set by a person" } else { "follows capacity" };
        nominal.row([entry.resource.as_str(), &amount(&entry.resource, &entry.amount.0), meaning]);
    }
    let mut assigned = Table::new(&["QUEUE", "FLAVOR", "RESOURCE", "REQUESTED", "EFFECTIVE", "REASON"]);
    for assignment in &state.assignments {
        for (resource, requested) in &assignment.requested {
            let effective = assignment.effective.get(resource).map_or("0", |amount| &amount.0);
            let reason = reason(assignment, resource);
            let (requested, effective) = (amount(resource, &requested.0), amount(resource, effective));
            let (queue, flavor) = (&assignment.queue, &assignment.flavor);
            assigned.row([queue.as_str(), flavor, resource, &requested, &effective, reason]);
        }
    }
    let capacity = super::capacity::flavors_table(&detail.flavors);
    for table in [nominal, assigned, capacity].iter().filter(|table| !table.is_empty()) {
        printer.line("")?;
        printer.table(table)?;
    }
    for assignment in state.assignments.iter().filter(|assignment| !assignment.message.is_empty()) {
        printer.note(&format!("{} {}: {}", assignment.queue, assignment.flavor, assignment.message));
    }
    Ok(())
}

fn reason<'a>(assignment: &'a AssignmentState, resource: &str) -> &'a str {
    assignment.reasons.get(resource).unwrap_or(&assignment.reason)
}

async fn assign(args: AssignArgs, session: &mut Session) -> Result<u8, CliError> {
    let resources = args.resources.iter().map(|text| assignment(text)).collect::<Result<_, _>>()?;
    let (api, printer) = session.both()?;
    let assign = Assign { queue: args.queue, flavor: args.flavor, resources };
    let target = |dry_run: bool| with_dry_run(&format!("{}/assign", path(&args.name)), dry_run);
    let mut shown: Option<ClaimChange> = None;
    if asks(args.yes, args.dry_run.dry_run, printer) {
        let change: ClaimChange = api.post(&target(true), &assign).await?;
        print_changes(&change, printer);
        if !change.changes.is_empty() {
            let answer = printer.ask("Apply? [y]es, [N]o").unwrap_or_default();
            if !matches!(answer.as_str(), "y" | "Y" | "yes") {
                return Err(CliError::Failed { message: "nothing was changed".to_owned(), next: None });
            }
        }
        shown = Some(change);
    }
    let change: ClaimChange = api.post(&target(args.dry_run.dry_run), &assign).await?;
    // Somebody else may have been faster.
    if shown.is_none_or(|shown| shown.changes != change.changes) {
        print_changes(&change, printer);
    }
    let outcome = if change.changes.is_empty() { "unchanged" } else { "edited" };
    let suffix = if change.dry_run { " (dry run)" } else { "" };
    printer.line(&format!("clusterresourceclaim/{} {outcome}{suffix}", args.name))?;
    Ok(DONE)
}

/// Whether a person is asked before a claim is changed.
pub fn asks(yes: bool, dry_run: bool, printer: &Printer) -> bool {
    !yes && !dry_run && printer.is_interactive()
}

/// For the person, before they decide.
pub fn print_changes(change: &ClaimChange, printer: &mut Printer) {
    for warning in &change.warnings {
        printer.warning(warning);
    }
    if change.changes.is_empty() {
        printer.note("No queue gains or loses anything.");
    } else {
        printer.note_table(&changes_table(change));
    }
}

pub fn changes_table(change: &ClaimChange) -> Table {
    let mut table = Table::new(&["QUEUE", "FLAVOR", "RESOURCE", "BEFORE", "AFTER", "CHANGE"]);
    for cell in &change.changes {
        let text = |text: &str| amount(&cell.resource, text);
        let (before, after, change) = (text(&cell.before.0), text(&cell.after.0), text(&cell.change));
        table.row([&cell.queue, &cell.flavor, &cell.resource, &before, &after, &change]);
    }
    table
}

async fn history(args: HistoryArgs, session: &mut Session) -> Result<u8, CliError> {
    let (api, printer) = session.both()?;
    let target = format!("{}/history?limit={}", path(&args.name), args.limit);
    let history: List<ClaimHistory> = api.get(&target).await?;
    list::print(&history.items, args.output, printer)?;
    Ok(DONE)
}

impl Row for ClaimHistory {
    fn headers(wide: bool) -> &'static [&'static str] {
        if wide { &["TIME", "GENERATION", "WHO", "CHANGE"] } else { &["AGE", "GENERATION", "WHO", "CHANGE"] }
    }

    fn rows(&self, wide: bool) -> Vec<Vec<String>> {
        let lines = changes(self);
        let more = lines.len().saturating_sub(3);
        let mut text =
            if wide { lines.join("; ") } else { lines.into_iter().take(3).collect::<Vec<_>>().join("; ") };
        if 0 < more && !wide {
            text = format!("{text}; {more} more");
        }
        let at = if wide { self.at.to_string() } else { age(self.at) };
        vec![vec![at, self.generation.to_string(), self.who.clone(), text]]
    }

    fn name(&self) -> String {
        format!("clusterresourceclaim/{}/{}", self.claim, self.generation)
    }
}

/// In words: `team-a on-demand gpu 5 → 6`.
fn changes(edit: &ClaimHistory) -> Vec<String> {
    match (&edit.before, &edit.after) {
        (None, _) => vec!["created".to_owned()],
        (_, None) => vec!["deleted".to_owned()],
        (Some(before), Some(after)) => super::merge::changes(before, after),
    }
}

async fn confirm_removal(args: ConfirmRemovalArgs, session: &mut Session) -> Result<u8, CliError> {
    let (api, printer) = session.both()?;
    let target = with_dry_run("/claims/confirm-removal", args.dry_run.dry_run);
    let done: Done = api.post(&target, &serde_json::json!({})).await?;
    report(&done, printer);
    Ok(DONE)
}
