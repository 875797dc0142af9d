//! `fedq cluster`.

use std::time::Duration;

use super::{
    DONE, FAILED, Session,
    age::{age, age_of},
    args::{ClusterArgs, ClusterCommand, ConfirmArgs, Format, JoinArgs, LeaveArgs, ShowClusterArgs},
    client::escape,
    error::CliError,
    list::{self, Row},
    print::Printer,
    settings,
    table::Table,
};
use fedq_k8s::onboard;
use fedq_values::amount::amount;
use fedq_wire::{
    cluster::{Cluster, ConfirmIdentity, Done, JoinCluster},
    problem::Code,
    quantity::Quantities,
    time::Time,
};

const POLL: Duration = Duration::from_millis(500);
/// A cluster answers before its nodes are read, and one may have none at all.
const CAPACITY_WITHIN: Duration = Duration::from_secs(10);

pub async fn run(command: ClusterCommand, session: &mut Session) -> Result<u8, CliError> {
    match command {
        ClusterCommand::Join(args) => join(args, session).await,
        ClusterCommand::List(args) => list::run::<Cluster>("/clusters", &args, session).await.map(|()| DONE),
        ClusterCommand::Show(args) => show(args, session).await,
        ClusterCommand::Cordon(args) => act("cordon", args, session).await,
        ClusterCommand::Uncordon(args) => act("uncordon", args, session).await,
        ClusterCommand::Confirm(args) => confirm(args, session).await,
        ClusterCommand::Leave(args) => leave(args, session).await,
    }
}

impl Row for Cluster {
    fn headers(wide: bool) -> &'static [&'static str] {
        if wide {
            &[
                "NAME",
                "STATE",
                "NODES",
                "CPU",
                "MEMORY",
                "GPU",
                "AGE",
                "CORDONED",
                "SOURCE",
                "KUBERNETES",
                "KUEUE",
                "SERVER",
                "REASON",
            ]
        } else {
            &["NAME", "STATE", "NODES", "CPU", "MEMORY", "GPU", "AGE"]
        }
    }

    fn rows(&self, wide: bool) -> Vec<Vec<String>> {
        let of = |resource: &str| {
            self.capacity.get(resource).map_or_else(String::new, |of| amount(resource, &of.0))
        };
        let state = if self.cordoned { format!("{},Cordoned", self.state) } else { self.state.clone() };
        let nodes = format!("{}/{}", self.nodes.usable, self.nodes.total);
        let age = age_of(self.joined);
        let mut row = vec![self.name.clone(), state, nodes, of("cpu"), of("memory"), of("gpu"), age];
        if wide {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            row.extend([
                self.cordoned.to_string(),
                self.source.clone(),
                text(&self.kubernetes_version),
                text(&self.kueue_version),
                text(&self.server),
                text(&self.reason),
            ]);
        }
        vec![row]
    }

    fn name(&self) -> String {
        format!("cluster/{}", self.name)
    }
}

async fn show(args: ShowClusterArgs, session: &mut Session) -> Result<u8, CliError> {
    let (api, printer) = session.both()?;
    let cluster: Cluster = api.get(&path(&args.name)).await?;
    match args.output.output {
        Format::Table | Format::Wide => describe(&cluster, printer)?,
        Format::Json | Format::Yaml | Format::Name => list::print_one(&cluster, args.output, printer)?,
    }
    Ok(DONE)
}

fn describe(cluster: &Cluster, printer: &mut Printer) -> Result<(), CliError> {
    let time = |time: Option<Time>| time.map(|time| time.to_string()).unwrap_or_default();
    let ago = |time: Option<Time>| time.map(|time| format!("{time} ({} ago)", age(time))).unwrap_or_default();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut facts = Table::default();
    facts.row(["Name:", &cluster.name]);
    facts.row(["State:", &cluster.state]);
    for (label, value) in [
        ("Reason:", text(&cluster.reason)),
        ("Since:", ago(cluster.since)),
        ("Cordoned:", if cluster.cordoned { "true".to_owned() } else { String::new() }),
        ("Source:", cluster.source.clone()),
        ("Server:", text(&cluster.server)),
        ("Kubernetes:", text(&cluster.kubernetes_version)),
        ("Kueue:", text(&cluster.kueue_version)),
        ("AppWrappers:", text(&cluster.app_wrappers)),
        ("Credential expires:", time(cluster.credential_expires)),
        ("Joined:", ago(cluster.joined)),
        ("Last seen:", ago(cluster.last_seen)),
        ("Nodes:", format!("{} usable of {}", cluster.nodes.usable, cluster.nodes.total)),
        ("Capacity:", words(&cluster.capacity)),
        ("Other quota there:", words(&cluster.foreign)),
        ("Claim:", text(&cluster.claim)),
    ] {
        if !value.is_empty() {
            facts.row([label, &value]);
        }
    }
    printer.table(&facts)?;
    let flavors = super::capacity::flavors_table(&cluster.flavors);
    if flavors.is_empty() {
        return Ok(());
    }
    printer.line("")?;
    printer.table(&flavors)
}

/// `cpu 500, gpu 5`
pub fn words(quantities: &Quantities) -> String {
    let words = quantities.iter().map(|(resource, of)| format!("{resource} {}", amount(resource, &of.0)));
    words.collect::<Vec<_>>().join(", ")
}

async fn join(args: JoinArgs, session: &mut Session) -> Result<u8, CliError> {
    let text = settings::read_text(&args.kubeconfig)?;
    // Log in first: a ServiceAccount must not be made for a join that cannot be.
    let (api, printer) = session.both()?;
    let (kubeconfig, context) = if args.create_serviceaccount && !args.dry_run.dry_run {
        printer.progress("Making a ServiceAccount for fedq on the cluster");
        let folder = args.kubeconfig.parent();
        let made = onboard::create_service_account(text.as_bytes(), args.context.as_deref(), folder).await;
        let made = made.map_err(|error| onboarding(&error))?;
        printer.note(&format!("Its token is good until {}; fedqd makes a new one before that", made.expires));
        if !made.bounded {
            printer.warning(
                "the cluster knows no ValidatingAdmissionPolicies (Kubernetes 1.30 and newer do), so fedq's account there is \
                 bounded by its rights alone",
            );
        }
        (made.kubeconfig, None)
    } else {
        (text, args.context)
    };
    let body = JoinCluster { name: args.name.clone(), kubeconfig, context };
    let done: Done = api.post(&with_dry_run("/clusters", args.dry_run.dry_run), &body).await?;
    report(&done, printer);
    if done.dry_run || args.no_wait {
        return Ok(DONE);
    }
    wait(&args.name, Duration::from_secs(args.timeout), session).await
}

fn onboarding(error: &onboard::OnboardError) -> CliError {
    let chain = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let message = chain.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    CliError::Failed {
        message,
        next: Some("use a kubeconfig with the rights of a cluster administrator, or apply deploy/worker/rbac.yaml by hand and join with that ServiceAccount's token".to_owned()),
    }
}

/// Until the cluster works or somebody has to do something.
async fn wait(name: &str, timeout: Duration, session: &mut Session) -> Result<u8, CliError> {
    let (api, printer) = session.both()?;
    let until = tokio::time::Instant::now() + timeout;
    let mut shown = String::new();
    let mut answered: Option<tokio::time::Instant> = None;
    loop {
        let cluster = match api.get::<Cluster>(&path(name)).await {
            Ok(cluster) => Some(cluster),
            // The daemon has not seen the Secret yet.
            Err(error) if error.code() == Some(Code::NotFound) => None,
            Err(error) => return Err(error),
        };
        let state = cluster.as_ref().map_or("Connecting", |cluster| cluster.state.as_str()).to_owned();
        if let Some(cluster) = cluster.filter(|cluster| is_settled(&cluster.state)) {
            let since = *answered.get_or_insert_with(tokio::time::Instant::now);
            let read = cluster.state != "Ready" || !cluster.capacity.is_empty();
            if read || CAPACITY_WITHIN <= since.elapsed() {
                printer.done();
                return settled(&cluster, printer);
            }
        }
        if state != shown {
            printer.progress(&format!("Cluster {name}: {state}"));
            shown = state;
        }
        if until <= tokio::time::Instant::now() {
            printer.done();
            return Err(CliError::Failed {
                message: format!("cluster `{name}` is still {shown} after {} s", timeout.as_secs()),
                next: Some(format!("fedq check {name} looks for the reason; fedq goes on trying")),
            });
        }
        tokio::time::sleep(POLL).await;
    }
}

fn is_settled(state: &str) -> bool {
    matches!(state, "Ready" | "Refused" | "Quarantined" | "Unreached")
}

fn settled(cluster: &Cluster, printer: &mut Printer) -> Result<u8, CliError> {
    let name = &cluster.name;
    if cluster.state == "Ready" {
        let capacity = words(&cluster.capacity);
        let capacity = if capacity.is_empty() { "no usable node" } else { &capacity };
        printer.line(&format!("cluster/{name} Ready: {capacity}"))?;
        let claim = cluster.claim.clone().unwrap_or_else(|| format!("{name}-resource-claim"));
        printer.note(&format!("Next: fedq claim edit {claim} says which queue gets what of it."));
        return Ok(DONE);
    }
    let reason = cluster.reason.clone().unwrap_or_default();
    printer.error(&CliError::Failed {
        message: format!("cluster `{name}` is {}: {reason}", cluster.state),
        next: Some(match cluster.state.as_str() {
            "Quarantined" => format!("if it is the right cluster: fedq cluster confirm {name}"),
            _ => format!("fedq cluster leave {name}, then join with what the reason asks for"),
        }),
    });
    Ok(FAILED)
}

async fn act(verb: &str, args: ClusterArgs, session: &mut Session) -> Result<u8, CliError> {
    let (api, printer) = session.both()?;
    let target = with_dry_run(&format!("{}/{verb}", path(&args.name)), args.dry_run.dry_run);
    let done: Done = api.post(&target, &serde_json::json!({})).await?;
    report(&done, printer);
    Ok(DONE)
}

async fn confirm(args: ConfirmArgs, session: &mut Session) -> Result<u8, CliError> {
    let (api, printer) = session.both()?;
    let target = with_dry_run(&format!("{}/confirm", path(&args.name)), args.dry_run.dry_run);
    let done: Done = api.post(&target, &ConfirmIdentity { uid: args.uid }).await?;
    report(&done, printer);
    Ok(DONE)
}

async fn leave(args: LeaveArgs, session: &mut Session) -> Result<u8, CliError> {
    let (api, printer) = session.both()?;
    if !args.yes && !args.dry_run.dry_run && printer.is_interactive() {
        let cluster: Cluster = api.get(&path(&args.name)).await?;
        let assigned: Vec<String> = cluster
            .flavors
            .iter()
            .map(|flavor| words(&flavor.assigned))
            .filter(|text| !text.is_empty())
            .collect();
        if !assigned.is_empty() {
            printer.warning(&format!("queues lose what they have of it: {}", assigned.join(", ")));
        }
        let answer = printer.ask(&format!("Take cluster {} out? [y/N]", args.name));
        if !answer.is_some_and(|answer| matches!(answer.as_str(), "y" | "Y" | "yes")) {
            printer.note("Nothing was changed.");
            return Ok(FAILED);
        }
    }
    let done: Done = api.delete(&with_dry_run(&path(&args.name), args.dry_run.dry_run)).await?;
    report(&done, printer);
    Ok(DONE)
}

fn path(name: &str) -> String {
    format!("/clusters/{}", escape(name))
}

pub fn with_dry_run(path: &str, dry_run: bool) -> String {
    if dry_run { format!("{path}?dryRun=All") } else { path.to_owned() }
}

/// What was done is not data: scripts have the exit code.
pub fn report(done: &Done, printer: &mut Printer) {
    printer.note(&format!("{}{}", done.message, if done.dry_run { " (dry run)" } else { "" }));
    if let Some(next) = done.next.as_ref().filter(|_| !done.dry_run) {
        printer.note(&format!("Next: {next}"));
    }
}
