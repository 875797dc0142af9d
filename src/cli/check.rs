//! `fedq check`.

use super::{
    DONE, FAILED, Session,
    args::{CheckArgs, Format},
    client::escape,
    error::CliError,
    list::{self, Row},
};
use fedq_wire::check::{Finding, Outcome};

pub async fn run(args: CheckArgs, session: &mut Session) -> Result<u8, CliError> {
    let (api, printer) = session.both()?;
    let path = match &args.cluster {
        Some(cluster) => format!("/clusters/{}/check", escape(cluster)),
        None => "/check".to_owned(),
    };
    if printer.is_interactive() {
        printer.progress("Looking");
    }
    let found: Vec<Finding> = api.list(&path).await?;
    printer.done();
    list::print(&found, args.output, printer)?;
    if matches!(args.output.output, Format::Table | Format::Wide) {
        for finding in &found {
            if let Some(next) = &finding.next {
                let cluster = finding.cluster.as_deref().unwrap_or("the hub");
                let before = if next.contains('\n') { "\n" } else { " " };
                printer.note(&format!("Next, for {cluster} ({}):{before}{next}", finding.name));
            }
        }
    }
    let failed = found.iter().any(|finding| finding.outcome == Outcome::Failed);
    Ok(if failed { FAILED } else { DONE })
}

impl Row for Finding {
    fn headers(_wide: bool) -> &'static [&'static str] {
        &["CLUSTER", "CHECK", "OUTCOME", "MESSAGE"]
    }

    fn rows(&self, _wide: bool) -> Vec<Vec<String>> {
        let outcome = match self.outcome {
            Outcome::Ok => "ok",
            Outcome::Warning => "warning",
            Outcome::Failed => "failed",
        };
        let cluster = self.cluster.clone().unwrap_or_else(|| "(hub)".to_owned());
        vec![vec![cluster, self.name.clone(), outcome.to_owned(), self.message.clone()]]
    }

    fn name(&self) -> String {
        format!("check/{}/{}", self.cluster.as_deref().unwrap_or("hub"), self.name)
    }
}
