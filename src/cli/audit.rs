//! `fedq audit`.

use super::{
    DONE, Session,
    age::age,
    args::{AuditCommand, AuditListArgs},
    client::{Api, escape},
    error::CliError,
    list::{self, Row},
};
use fedq_wire::{audit::AuditEntry, list::List};

pub async fn run(command: AuditCommand, session: &mut Session) -> Result<u8, CliError> {
    match command {
        AuditCommand::List(args) => list(args, session).await,
    }
}

async fn list(args: AuditListArgs, session: &mut Session) -> Result<u8, CliError> {
    let (api, printer) = session.both()?;
    let entries = newest(&args, api).await?;
    list::print(&entries, args.output, printer)?;
    Ok(DONE)
}

/// Page by page, until there are as many as were asked for.
async fn newest(args: &AuditListArgs, api: &Api) -> Result<Vec<AuditEntry>, CliError> {
    let mut query = String::new();
    let since = args.since.map(|since| since.to_string());
    for (key, value) in [("who", &args.who), ("object", &args.object), ("since", &since)] {
        if let Some(value) = value {
            query = format!("{query}&{key}={}", escape(value));
        }
    }
    let (mut entries, mut next) = (Vec::new(), None::<String>);
    let limit = usize::from(args.limit);
    loop {
        let left = limit - entries.len();
        let from = next.map(|next| format!("&continue={}", escape(&next))).unwrap_or_default();
        let page: List<AuditEntry> = api.get(&format!("/audit?limit={left}{query}{from}")).await?;
        entries.extend(page.items);
        entries.truncate(limit);
        next = page.next;
        if next.is_none() || limit <= entries.len() {
            return Ok(entries);
        }
    }
}

impl Row for AuditEntry {
    fn headers(wide: bool) -> &'static [&'static str] {
        if wide {
            &["TIME", "WHO", "VERB", "OBJECT", "OUTCOME", "DETAIL"]
        } else {
            &["AGE", "WHO", "VERB", "OBJECT", "OUTCOME"]
        }
    }

    fn rows(&self, wide: bool) -> Vec<Vec<String>> {
        let at = if wide { self.at.to_string() } else { age(self.at) };
        let who = match &self.through {
            Some(through) => format!("{} (by {through})", self.who),
            None => self.who.clone(),
        };
        let mut row = vec![at, who, self.verb.clone(), self.object.clone(), self.outcome.clone()];
        if wide {
            row.push(self.detail.as_ref().map(ToString::to_string).unwrap_or_default());
        }
        vec![row]
    }

    fn name(&self) -> String {
        self.object.clone()
    }
}
