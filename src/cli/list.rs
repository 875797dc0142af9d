//! Lists in every format, whole or followed.

use serde::{Serialize, de::DeserializeOwned};

use super::{
    Session,
    args::{Format, ListArgs, Output},
    client::Api,
    error::CliError,
    print::Printer,
    table::Table,
};
use fedq_wire::list::EventKind;

/// Something that lists show.
pub trait Row: DeserializeOwned + Serialize {
    fn headers(wide: bool) -> &'static [&'static str];
    /// The lines of it in a table.
    fn rows(&self, wide: bool) -> Vec<Vec<String>>;
    /// `kind/name`, as `-o name` prints it.
    fn name(&self) -> String;
}

#[derive(Serialize)]
struct Items<'a, T> {
    items: &'a [T],
}

/// Lists `path`, and goes on where asked to.
pub async fn run<T: Row>(path: &str, args: &ListArgs, session: &mut Session) -> Result<(), CliError> {
    run_filtered::<T>(path, args, session, |_| true).await
}

pub async fn run_filtered<T: Row>(
    path: &str,
    args: &ListArgs,
    session: &mut Session,
    wanted: impl Fn(&T) -> bool,
) -> Result<(), CliError> {
    let (api, printer) = session.both()?;
    if args.watch {
        return follow::<T>(path, args.output, (api, printer), wanted).await;
    }
    let mut items: Vec<T> = api.list(path).await?;
    items.retain(wanted);
    print(&items, args.output, printer)
}

/// Prints a whole list.
pub fn print<T: Row>(items: &[T], output: Output, printer: &mut Printer) -> Result<(), CliError> {
    match output.output {
        Format::Json => printer.json(&Items { items }),
        Format::Yaml => printer.yaml(&Items { items }),
        Format::Name => items.iter().try_for_each(|item| printer.line(&item.name())),
        Format::Table | Format::Wide if items.is_empty() => {
            printer.note("Nothing found.");
            Ok(())
        }
        Format::Table | Format::Wide => printer.table(&table(items, output)),
    }
}

/// Prints one object, which has no items around it.
pub fn print_one<T: Row>(item: &T, output: Output, printer: &mut Printer) -> Result<(), CliError> {
    match output.output {
        Format::Json => printer.json(item),
        Format::Yaml => printer.yaml(item),
        Format::Name => printer.line(&item.name()),
        Format::Table | Format::Wide => printer.table(&table(std::slice::from_ref(item), output)),
    }
}

fn table<T: Row>(items: &[T], output: Output) -> Table {
    let wide = output.output == Format::Wide;
    let mut table = Table::new(T::headers(wide));
    for row in items.iter().flat_map(|item| item.rows(wide)) {
        table.row(row);
    }
    if output.no_headers { table.without_headers() } else { table }
}

/// Until the server goes or the reader does. The server ends a stream now and then; then it starts
/// over, and what was printed already is not printed again.
async fn follow<T: Row>(
    path: &str,
    output: Output,
    (api, printer): (&Api, &mut Printer),
    wanted: impl Fn(&T) -> bool,
) -> Result<(), CliError> {
    let mut first = true;
    let mut known: std::collections::BTreeMap<String, serde_json::Value> = std::collections::BTreeMap::new();
    loop {
        let mut batch: Vec<T> = Vec::new();
        let mut begun = false;
        let mut seen = std::collections::BTreeSet::new();
        let stream = api.watch::<T>(path, |kind, item| {
            match (kind, item.filter(&wanted)) {
                (EventKind::Synced, _) => {
                    begun = true;
                    known.retain(|name, _| seen.contains(name));
                    return print_batch(&mut batch, output, printer, &mut first);
                }
                (EventKind::Added | EventKind::Modified, Some(item)) => {
                    let value = serde_json::to_value(&item).unwrap_or_default();
                    seen.insert(item.name());
                    if known.insert(item.name(), value.clone()) != Some(value) {
                        batch.push(item);
                    }
                }
                (EventKind::Deleted, Some(item)) => {
                    known.remove(&item.name());
                    printer.note(&format!("{} is gone", item.name()));
                }
                (_, None) => {}
            }
            if begun { print_batch(&mut batch, output, printer, &mut first) } else { Ok(()) }
        });
        stream.await?;
    }
}

fn print_batch<T: Row>(
    batch: &mut Vec<T>,
    output: Output,
    printer: &mut Printer,
    first: &mut bool,
) -> Result<(), CliError> {
    let items = std::mem::take(batch);
    if items.is_empty() {
        return Ok(());
    }
    let headers = std::mem::take(first);
    match output.output {
        Format::Json => items.iter().try_for_each(|item| printer.json_line(item)),
        Format::Yaml => items.iter().try_for_each(|item| {
            printer.raw(b"---\n")?;
            printer.yaml(item)
        }),
        Format::Name => items.iter().try_for_each(|item| printer.line(&item.name())),
        Format::Table | Format::Wide => {
            let output = Output { no_headers: output.no_headers || !headers, ..output };
            printer.table(&table(&items, output))
        }
    }
}
