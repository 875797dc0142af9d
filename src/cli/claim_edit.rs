//! `fedq claim edit`: show, edit, check, ask, apply; again from the right place when something is in
//! the way. What was typed is either applied or kept in a named file.

use super::{
    DONE, FAILED, Session,
    args::EditArgs,
    claim::{path, print_changes},
    claim_text::{self, ClaimFile},
    client::Api,
    cluster::with_dry_run,
    editor,
    error::CliError,
    merge,
    print::Printer,
};
use crate::wire::{
    claim::{ClaimChange, ClaimDetail, ClaimSpec},
    problem::Code,
};

/// Somebody who writes that often is a program; a person would give up too.
const REBASES: u32 = 8;

pub async fn run(args: EditArgs, session: &mut Session) -> Result<u8, CliError> {
    let program = editor::program();
    let (api, printer) = session.both()?;
    let detail: ClaimDetail = api.get(&path(&args.name)).await?;
    let body = render(&detail.name, &detail.spec)?;
    let mut edit = Edit { api, printer, args, detail, program, body, trouble: None };
    edit.run().await
}

struct Edit<'a> {
    api: &'a Api,
    printer: &'a mut Printer,
    args: EditArgs,
    /// What the edit is made from.
    detail: ClaimDetail,
    program: String,
    /// What the person sees to change, or has changed so far.
    body: String,
    /// Why the editor opens again.
    trouble: Option<String>,
}

/// Where an attempt leads.
enum Step {
    End(u8),
    EditAgain,
}

impl Edit<'_> {
    async fn run(&mut self) -> Result<u8, CliError> {
        loop {
            let Some(edited) = self.open()? else { return Ok(self.cancelled()) };
            let wanted = match self.read(&edited) {
                Ok(wanted) => wanted,
                Err(reason) => {
                    self.reopen(edited, &reason);
                    continue;
                }
            };
            if merge::is_same(&wanted, &self.detail.spec) {
                self.printer.note("Edit cancelled, no changes made.");
                return Ok(DONE);
            }
            self.body = edited;
            match self.finish(wanted).await {
                Ok(Step::End(code)) => return Ok(code),
                Ok(Step::EditAgain) => {}
                Err(error) => return Err(self.kept(error)),
            }
        }
    }

    /// `None`: the person left the text as it was, or empty.
    fn open(&mut self) -> Result<Option<String>, CliError> {
        let trouble = self.trouble.as_deref().map(claim_text::trouble).unwrap_or_default();
        let shown = format!("{trouble}{}\n{}", claim_text::header(&self.detail), self.body);
        let edited = editor::edit(&self.program, &shown)?;
        let body = claim_text::without_header(&edited);
        let changed = body != self.body && !body.trim().is_empty();
        Ok(changed.then(|| body.to_owned()))
    }

    fn cancelled(&mut self) -> u8 {
        let Some(trouble) = self.trouble.take() else {
            self.printer.note("Edit cancelled, no changes made.");
            return DONE;
        };
        let error = CliError::Failed { message: trouble, next: None };
        let error = self.kept(error);
        self.printer.error(&error);
        FAILED
    }

    fn read(&self, text: &str) -> Result<ClaimSpec, String> {
        let ClaimFile { name, spec } = claim_text::parse(text)?;
        if name != self.detail.name {
            return Err(format!("name: this edits `{}`, and a claim cannot be renamed", self.detail.name));
        }
        Ok(spec)
    }

    fn reopen(&mut self, body: String, trouble: &str) {
        self.body = body;
        self.trouble = Some(trouble.to_owned());
    }

    /// Checks on the server, asks, applies.
    async fn finish(&mut self, mut wanted: ClaimSpec) -> Result<Step, CliError> {
        for _ in 0..REBASES {
            let change = match self
                .api
                .post::<ClaimChange>(&format!("{}/diff", path(&self.detail.name)), &wanted)
                .await
            {
                Ok(change) => change,
                Err(error) => return self.refused(error),
            };
            print_changes(&change, self.printer);
            if let Some(step) = self.ask()? {
                return Ok(step);
            }
            match self.put(&wanted).await {
                Ok(change) => return Ok(Step::End(self.applied(&change)?)),
                Err(error) if error.code() == Some(Code::Conflict) => match self.rebase(&wanted).await? {
                    Some(merged) => wanted = merged,
                    None => return Ok(Step::EditAgain),
                },
                Err(error) => return self.refused(error),
            }
        }
        Err(CliError::Failed {
            message: format!("claim `{}` is changed by others again and again", self.detail.name),
            next: Some(format!("fedq claim history {} shows by whom", self.detail.name)),
        })
    }

    async fn put(&self, wanted: &ClaimSpec) -> Result<ClaimChange, CliError> {
        let path = with_dry_run(&path(&self.detail.name), self.args.dry_run.dry_run);
        self.api.put(&path, wanted, Some(&self.detail.resource_version)).await
    }

    fn applied(&mut self, change: &ClaimChange) -> Result<u8, CliError> {
        let suffix = if change.dry_run { " (dry run)" } else { "" };
        self.printer.line(&format!("clusterresourceclaim/{} edited{suffix}", self.detail.name))?;
        Ok(DONE)
    }

    /// `None`: go on.
    fn ask(&mut self) -> Result<Option<Step>, CliError> {
        if self.args.yes || self.args.dry_run.dry_run || !self.printer.is_interactive() {
            return Ok(None);
        }
        match self.printer.ask("Apply? [y]es, [e]dit again, [N]o").unwrap_or_default().as_str() {
            "y" | "Y" | "yes" => Ok(None),
            "e" | "E" | "edit" => {
                self.trouble = None;
                Ok(Some(Step::EditAgain))
            }
            _ => {
                let copy = editor::keep(&self.body)?;
                self.printer
                    .note(&format!("Nothing was changed; what you wrote is kept in {}", copy.display()));
                Ok(Some(Step::End(FAILED)))
            }
        }
    }

    /// What the person can put right is shown in the editor; the rest ends the edit.
    fn refused(&mut self, error: CliError) -> Result<Step, CliError> {
        match error.code() {
            Some(Code::Invalid | Code::BadRequest) => {
                self.trouble = Some(error.to_string());
                Ok(Step::EditAgain)
            }
            _ => Err(error),
        }
    }

    /// Puts the edits over the newest version; `None` where the person has to decide.
    async fn rebase(&mut self, wanted: &ClaimSpec) -> Result<Option<ClaimSpec>, CliError> {
        let newest: ClaimDetail = self.api.get(&path(&self.detail.name)).await?;
        let (merged, collisions) = merge::merge(&self.detail.spec, wanted, &newest.spec);
        self.detail = newest;
        self.body = render(&self.detail.name, &merged)?;
        if collisions.is_empty() {
            self.printer
                .note("Somebody else changed the claim meanwhile; your edits are put on top of theirs.");
            return Ok(Some(merged));
        }
        self.trouble = Some(claim_text::collisions(&collisions));
        Ok(None)
    }

    fn kept(&self, error: CliError) -> CliError {
        match editor::keep(&self.body) {
            Ok(copy) => CliError::Kept { source: Box::new(error), copy },
            Err(_) => error,
        }
    }
}

fn render(name: &str, spec: &ClaimSpec) -> Result<String, CliError> {
    claim_text::body(name, spec)
        .map_err(|reason| CliError::Failed { message: format!("cannot write YAML: {reason}"), next: None })
}
