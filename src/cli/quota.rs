//! `fedq quota`.

use super::{
    DONE, Session,
    age::age,
    args::{BaseArgs, ExplainArgs, Format, QuotaCommand},
    client::escape,
    cluster::{report, with_dry_run},
    error::CliError,
    list::{self, Row},
    print::Printer,
    table::Table,
};
use fedq_values::amount::amount;
use fedq_wire::{
    cluster::Done,
    quantity::Quantity,
    quota::{Cell, Queue, QueueExplanation, SetBase},
};

pub async fn run(command: QuotaCommand, session: &mut Session) -> Result<u8, CliError> {
    match command {
        QuotaCommand::List(args) => list::run::<Queue>("/queues", &args, session).await.map(|()| DONE),
        QuotaCommand::Explain(args) => explain(args, session).await,
        QuotaCommand::Base(args) => base(args, session).await,
    }
}

impl Row for Queue {
    fn headers(wide: bool) -> &'static [&'static str] {
        if wide {
            &["QUEUE", "COHORT", "FLAVOR", "RESOURCE", "NOMINAL", "TARGET", "BASE", "CLUSTERS", "NOTE"]
        } else {
            &["QUEUE", "FLAVOR", "RESOURCE", "NOMINAL", "TARGET", "BASE", "CLUSTERS"]
        }
    }

    fn rows(&self, wide: bool) -> Vec<Vec<String>> {
        let row = |cell: Option<&Cell>| {
            let text = |of: fn(&Cell) -> String| cell.map(of).unwrap_or_default();
            let mut row = vec![self.name.clone()];
            if wide {
                row.push(self.cohort.clone().unwrap_or_default());
            }
            row.extend([
                text(|cell| cell.flavor.clone()),
                text(|cell| cell.resource.clone()),
                text(|cell| amount(&cell.resource, &cell.nominal.0)),
                text(|cell| amount(&cell.resource, &cell.target.0)),
                text(|cell| amount(&cell.resource, &cell.base.0)),
                text(holders),
            ]);
            if wide {
                row.push(self.untouched.clone().unwrap_or_default());
            }
            row
        };
        if self.cells.is_empty() {
            vec![row(None)]
        } else {
            self.cells.iter().map(|cell| row(Some(cell))).collect()
        }
    }

    fn name(&self) -> String {
        format!("clusterqueue/{}", self.name)
    }
}

/// `eu-west 5, us-east 3`
pub fn holders(cell: &Cell) -> String {
    let terms = cell.terms.iter().map(|term| format!("{} {}", term.cluster, term.term));
    terms.collect::<Vec<_>>().join(", ")
}

async fn explain(args: ExplainArgs, session: &mut Session) -> Result<u8, CliError> {
    let (api, printer) = session.both()?;
    let explanation: QueueExplanation = api.get(&format!("/queues/{}", escape(&args.queue))).await?;
    match args.output.output {
        Format::Json => printer.json(&explanation)?,
        Format::Yaml => printer.yaml(&explanation)?,
        Format::Name => printer.line(&explanation.queue.name())?,
        Format::Table | Format::Wide => describe(&explanation, printer)?,
    }
    Ok(DONE)
}

fn describe(explanation: &QueueExplanation, printer: &mut Printer) -> Result<(), CliError> {
    let queue = &explanation.queue;
    let mut facts = Table::default();
    facts.row(["Queue:", &queue.name]);
    facts.row(["Cohort:", queue.cohort.as_deref().unwrap_or("none")]);
    if let Some(cohort) = &queue.quota_cohort {
        facts.row(["Quota in:", &format!("Cohort {cohort}")]);
    }
    if let Some(reason) = &queue.untouched {
        facts.row(["Left alone:", reason]);
    }
    for problem in &queue.problems {
        facts.row([&format!("On {}:", problem.cluster), &problem.message]);
    }
    printer.table(&facts)?;
    for conflict in &queue.conflicts {
        let place = conflict.cluster.as_deref().unwrap_or("the hub");
        printer.line("")?;
        printer.line(&format!("On {place}, {}. What ends that:", conflict.message))?;
        for line in conflict.next.lines() {
            printer.line(line)?;
        }
    }
    for cell in &queue.cells {
        printer.line("")?;
        printer.line(&sum(cell))?;
        let mut terms = Table::new(&[
            "  CLUSTER",
            "REQUESTED",
            "EFFECTIVE",
            "WORKER HAS",
            "RESERVED",
            "COUNTS",
            "REASON",
        ]);
        for term in &cell.terms {
            let of = |text: &Quantity| amount(&cell.resource, &text.0);
            let worker = term.worker.as_ref().map(of).unwrap_or_default();
            let cluster = format!("  {}", term.cluster);
            let (reserved, counts) = (of(&term.reserved), of(&term.term));
            terms.row([
                &cluster,
                &of(&term.requested),
                &of(&term.effective),
                &worker,
                &reserved,
                &counts,
                &term.reason,
            ]);
        }
        if !terms.is_empty() {
            printer.table(&terms)?;
        }
    }
    if explanation.plans.is_empty() {
        return Ok(());
    }
    printer.line("")?;
    let mut plans = Table::new(&["AGE", "CLUSTER", "WHO", "CAUSE"]);
    for plan in &explanation.plans {
        plans.row([&age(plan.at), &plan.cluster, plan.who.as_deref().unwrap_or(""), &plan.cause]);
    }
    printer.table(&plans)
}

/// `on-demand gpu: 3 base + 5 eu-west = 8; the queue has 6`
fn sum(cell: &Cell) -> String {
    let terms: Vec<String> =
        cell.terms.iter().map(|term| format!(" + {} {}", term.term, term.cluster)).collect();
    let terms = terms.concat();
    let now = if cell.nominal == cell.target {
        String::new()
    } else {
        format!("; the queue has {} now", cell.nominal)
    };
    format!("{} {}: {} base{terms} = {}{now}", cell.flavor, cell.resource, cell.base, cell.target)
}

async fn base(args: BaseArgs, session: &mut Session) -> Result<u8, CliError> {
    let (resource, base) = assignment(&args.base)?;
    let (api, printer) = session.both()?;
    let path = with_dry_run(&format!("/queues/{}/base", escape(&args.queue)), args.dry_run.dry_run);
    let body = SetBase { flavor: args.flavor, resource, base };
    let done: Done = api.put(&path, &body, None).await?;
    report(&done, printer);
    Ok(DONE)
}

/// `gpu=4`
pub fn assignment(text: &str) -> Result<(String, Quantity), CliError> {
    let split = text.split_once('=').filter(|(resource, amount)| !resource.is_empty() && !amount.is_empty());
    let Some((resource, amount)) = split else {
        return Err(CliError::usage(
            format!("`{text}` is not RESOURCE=QUANTITY"),
            "write it such as cpu=500, memory=100Gi or gpu=4",
        ));
    };
    if let Err(error) = fedq_values::quantity::Quantity::parse(amount) {
        return Err(CliError::usage(error.to_string(), "write it such as cpu=500, memory=100Gi or gpu=4"));
    }
    Ok((resource.to_owned(), Quantity(amount.to_owned())))
}
