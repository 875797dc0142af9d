//! `fedq placement …`

use super::{
    DONE, Session,
    age::age_of,
    args::{Format, Output, PlacementArgs, PlacementCommand, SimulateArgs},
    client::{Api, escape},
    error::CliError,
    list::{self, Row},
    print::Printer,
    table::Table,
    task::input,
};
use fedq_wire::placement::{Placement, PlacementCluster, PlacementCondition, PlacementExplanation};

pub async fn run(command: PlacementCommand, session: &mut Session) -> Result<u8, CliError> {
    match command {
        PlacementCommand::List(args) => list::run::<Placement>("/placements", &args, session).await?,
        PlacementCommand::Show(args) => show(&args, session).await?,
        PlacementCommand::Explain(args) => explain(&args, session).await?,
        PlacementCommand::Simulate(args) => simulate(args, session).await?,
    }
    Ok(DONE)
}

/// `/placements/NAMESPACE/NAME`; a name alone is looked for in all namespaces.
async fn path(args: &PlacementArgs, api: &Api) -> Result<String, CliError> {
    let path = |namespace: &str| format!("/placements/{}/{}", escape(namespace), escape(&args.name));
    if let Some(namespace) = &args.namespace {
        return Ok(path(namespace));
    }
    let all: Vec<Placement> = api.list("/placements").await?;
    let mut found = all.iter().filter(|placement| placement.name == args.name);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(path(&one.namespace)),
        (None, _) => Err(CliError::Failed {
            message: format!("there is no Placement `{}` in any namespace", args.name),
            next: Some("fedq placement list shows those there are".to_owned()),
        }),
        (Some(one), Some(other)) => Err(CliError::usage(
            format!(
                "namespaces `{}` and `{}` both have a Placement `{}`",
                one.namespace, other.namespace, args.name
            ),
            "say which one with -n NAMESPACE",
        )),
    }
}

async fn show(args: &PlacementArgs, session: &mut Session) -> Result<(), CliError> {
    let (api, printer) = session.both()?;
    let placement: Placement = api.get(&path(args, api).await?).await?;
    if !matches!(args.output.output, Format::Table | Format::Wide) {
        return list::print_one(&placement, args.output, printer);
    }
    let mut facts = Table::default();
    facts.row(["Placement:", &format!("{}/{}", placement.namespace, placement.name)]);
    facts.row(["Decided by:", &decided_by(&placement.decided_by)]);
    facts.row(["Clusters:", &placement.clusters.join(", ")]);
    for group in placement.groups.iter().filter(|_| 1 < placement.groups.len()) {
        let named = if group.name.is_empty() { String::new() } else { format!(" {}", group.name) };
        facts.row([&format!("Group {}{named}:", group.index), &format!("{} clusters", group.clusters)]);
    }
    tell(&placement.conditions, &mut facts);
    for failure in &placement.failures {
        facts.row(["Not written:", failure]);
    }
    printer.table(&facts)
}

fn decided_by(word: &str) -> String {
    match word {
        "fedq" => "fedq".to_owned(),
        "ocm" => "OCM's placement controller, which runs on the hub".to_owned(),
        "nobody" => "nobody: it is not on the hub".to_owned(),
        _ => "others: fedq did not make its decisions, and leaves them alone".to_owned(),
    }
}

fn tell(conditions: &[PlacementCondition], facts: &mut Table) {
    for condition in conditions {
        let status = if condition.status { "True" } else { "False" };
        facts.row([
            &format!("{}:", condition.kind),
            &format!("{status} ({}) {}", condition.reason, condition.message),
        ]);
    }
}

async fn explain(args: &PlacementArgs, session: &mut Session) -> Result<(), CliError> {
    let (api, printer) = session.both()?;
    let path = path(args, api).await?;
    let explanation: PlacementExplanation = api.get(&format!("{path}/explanation")).await?;
    print(&explanation, args.output, printer)
}

async fn simulate(args: SimulateArgs, session: &mut Session) -> Result<(), CliError> {
    let text = input::read(&args.file).await?;
    let text = String::from_utf8(text).map_err(|_| not_yaml(&args, "it is not text"))?;
    let mut manifest: serde_json::Value =
        serde_saphyr::from_str(&text).map_err(|error| not_yaml(&args, &error.to_string()))?;
    if let Some(namespace) = &args.namespace
        && let Some(metadata) = manifest.get_mut("metadata").and_then(serde_json::Value::as_object_mut)
    {
        metadata.insert("namespace".to_owned(), namespace.as_str().into());
    }
    let (api, printer) = session.both()?;
    let explanation: PlacementExplanation = api.post("/placements/simulate", &manifest).await?;
    print(&explanation, args.output, printer)
}

fn not_yaml(args: &SimulateArgs, problem: &str) -> CliError {
    CliError::Failed {
        message: format!("{}: {problem}", args.file.display()),
        next: Some("write one Placement as YAML or JSON, as for kubectl apply".to_owned()),
    }
}

fn print(explanation: &PlacementExplanation, output: Output, printer: &mut Printer) -> Result<(), CliError> {
    match output.output {
        Format::Json => return printer.json(explanation),
        Format::Yaml => return printer.yaml(explanation),
        Format::Name => {
            return explanation
                .chosen
                .iter()
                .try_for_each(|name| printer.line(&format!("managedcluster/{name}")));
        }
        Format::Table | Format::Wide => {}
    }
    let mut facts = Table::default();
    facts.row(["Placement:", &format!("{}/{}", explanation.namespace, explanation.name)]);
    facts.row(["Decided by:", &decided_by(&explanation.decided_by)]);
    facts.row(["Would choose:", &explanation.chosen.join(", ")]);
    facts.row(["Has chosen:", &explanation.decided.join(", ")]);
    tell(&explanation.conditions, &mut facts);
    for prioritizer in &explanation.prioritizers {
        facts.row(["Prioritizer:", &format!("{} × {}", prioritizer.name, prioritizer.weight)]);
    }
    printer.table(&facts)?;
    if let Some(warning) = &explanation.warning {
        printer.warning(warning);
    }
    printer.line("")?;
    let mut table = Table::new(&["CLUSTER", "OUTCOME", "GROUP", "TOTAL", "SCORES", "WHY"]);
    for cluster in &explanation.clusters {
        table.row([
            &cluster.cluster,
            &cluster.outcome,
            &cluster.group.map(|group| group.to_string()).unwrap_or_default(),
            &cluster.total.map(|total| total.to_string()).unwrap_or_default(),
            &scores(cluster),
            &cluster.message,
        ]);
    }
    printer.table(&if output.no_headers { table.without_headers() } else { table })
}

/// In the order in which the prioritizers stand above.
fn scores(cluster: &PlacementCluster) -> String {
    let score = |score: &Option<i64>| score.map_or_else(|| "none".to_owned(), |score| score.to_string());
    cluster.scores.iter().map(score).collect::<Vec<_>>().join(" ")
}

impl Row for Placement {
    fn headers(wide: bool) -> &'static [&'static str] {
        const HEADERS: [&str; 8] =
            ["NAMESPACE", "NAME", "DECIDED BY", "SELECTED", "SATISFIED", "REASON", "AGE", "CLUSTERS"];
        if wide { &HEADERS } else { HEADERS.split_at(7).0 }
    }

    fn rows(&self, wide: bool) -> Vec<Vec<String>> {
        // What is wrong with the Placement itself comes before what follows from it.
        let wrong = self.conditions.iter().find(|one| one.kind == "PlacementMisconfigured" && one.status);
        let satisfied = self.conditions.iter().find(|one| one.kind == "PlacementSatisfied");
        let status = satisfied.map(|one| if one.status { "True" } else { "False" }).unwrap_or_default();
        let mut row = vec![
            self.namespace.clone(),
            self.name.clone(),
            self.decided_by.clone(),
            self.clusters.len().to_string(),
            status.to_owned(),
            wrong.or(satisfied).map(|one| one.reason.clone()).unwrap_or_default(),
            age_of(self.created),
        ];
        if wide {
            row.push(self.clusters.join(","));
        }
        vec![row]
    }

    fn name(&self) -> String {
        format!("placement/{}", self.name)
    }
}
