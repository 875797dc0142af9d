//! `fedq claim edit`: show, edit, check, ask, apply; again from the right place when something is in
//! the way. What was typed is either applied or kept in a named file.

use super::{
    DONE, FAILED, Session,
    args::EditArgs,
    claim::{asks, path, print_changes},
    claim_text::{self, ClaimFile},
    client::Api,
    cluster::with_dry_run,
    editor::{self, Draft},
    error::CliError,
    merge,
    print::Printer,
};
use fedq_wire::{
    claim::{ClaimChange, ClaimDetail, ClaimSpec},
    problem::Code,
};

/// Somebody who writes that often is a program; a person would give up too.
const REBASES: u32 = 8;
/// The daemon writes a claim's status a few times a second at most.
const STATUSES: u32 = 20;

pub async fn run(args: EditArgs, session: &mut Session) -> Result<u8, CliError> {
    let draft = Draft::new(editor::program())?;
    let (api, printer) = session.both()?;
    let detail: ClaimDetail = api.get(&path(&args.name)).await?;
    let body = render(&detail.name, &detail.spec)?;
    let mut edit = Edit { api, printer, args, detail, draft, body, trouble: None, again: false };
    edit.run().await
}

struct Edit<'a> {
    api: &'a Api,
    printer: &'a mut Printer,
    args: EditArgs,
    /// What the edit is made from.
    detail: ClaimDetail,
    /// The text as it is on disk, from the first look at it until it is applied.
    draft: Draft,
    /// What the person sees to change, or has changed so far.
    body: String,
    /// Why the editor opens again.
    trouble: Option<String>,
    /// What is shown is a change already, so that saving it as it is means it.
    again: bool,
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
                    self.body = edited;
                    self.trouble = Some(reason);
                    self.again = false;
                    continue;
                }
            };
            self.body = edited;
            (self.trouble, self.again) = (None, false);
            if merge::is_same(&wanted, &self.detail.spec) {
                return Ok(self.cancelled());
            }
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
        let edited = self.draft.edit(&shown)?;
        let body = claim_text::without_header(&edited);
        let changed = (self.again || body != self.body) && !body.trim().is_empty();
        Ok(changed.then(|| body.to_owned()))
    }

    fn cancelled(&mut self) -> u8 {
        if self.trouble.is_none() && !self.again {
            self.draft.discard();
            self.printer.note("Edit cancelled, no changes made.");
            return DONE;
        }
        let message = self.trouble.take().unwrap_or_else(|| "the edit is cancelled".to_owned());
        let error = CliError::Failed { message, next: None };
        // The person may have emptied the file.
        let error = match self.draft.write(&self.body) {
            Ok(()) => self.kept(error),
            Err(lost) => lost,
        };
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
            if let Some(step) = self.ask() {
                return Ok(step);
            }
            match self.put_unless_edited(&wanted).await {
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

    /// Versions move with every status; only another spec is somebody else's edit.
    async fn put_unless_edited(&mut self, wanted: &ClaimSpec) -> Result<ClaimChange, CliError> {
        for _ in 0..STATUSES {
            match self.put(wanted).await {
                Err(error) if error.code() == Some(Code::Conflict) => {
                    let newest: ClaimDetail = self.api.get(&path(&self.detail.name)).await?;
                    if newest.spec != self.detail.spec {
                        return Err(error);
                    }
                    self.detail = newest;
                }
                answer => return answer,
            }
        }
        self.put(wanted).await
    }

    async fn put(&self, wanted: &ClaimSpec) -> Result<ClaimChange, CliError> {
        let path = with_dry_run(&path(&self.detail.name), self.args.dry_run.dry_run);
        self.api.put(&path, wanted, Some(&self.detail.resource_version)).await
    }

    fn applied(&mut self, change: &ClaimChange) -> Result<u8, CliError> {
        let suffix = if change.dry_run { " (dry run)" } else { "" };
        self.draft.discard();
        self.printer.line(&format!("clusterresourceclaim/{} edited{suffix}", self.detail.name))?;
        Ok(DONE)
    }

    /// `None`: go on.
    fn ask(&mut self) -> Option<Step> {
        if !asks(self.args.yes, self.args.dry_run.dry_run, self.printer) {
            return None;
        }
        match self.printer.ask("Apply? [y]es, [e]dit again, [N]o").unwrap_or_default().as_str() {
            "y" | "Y" | "yes" => None,
            "e" | "E" | "edit" => {
                self.trouble = None;
                self.again = true;
                Some(Step::EditAgain)
            }
            _ => {
                let copy = self.draft.path().display();
                self.printer.note(&format!("Nothing was changed; what you wrote is kept in {copy}"));
                Some(Step::End(FAILED))
            }
        }
    }

    /// What the person can put right is shown in the editor; the rest ends the edit.
    fn refused(&mut self, error: CliError) -> Result<Step, CliError> {
        match error.code() {
            Some(Code::Invalid | Code::BadRequest) => {
                self.trouble = Some(error.to_string());
                self.again = false;
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
        self.draft.write(&self.body)?;
        if collisions.is_empty() {
            self.printer
                .note("Somebody else changed the claim meanwhile; your edits are put on top of theirs.");
            return Ok(Some(merged));
        }
        self.trouble = Some(claim_text::collisions(&collisions));
        self.again = true;
        Ok(None)
    }

    fn kept(&self, error: CliError) -> CliError {
        CliError::Kept { source: Box::new(error), copy: self.draft.path().to_owned() }
    }
}

fn render(name: &str, spec: &ClaimSpec) -> Result<String, CliError> {
    claim_text::body(name, spec)
        .map_err(|reason| CliError::Failed { message: format!("cannot write YAML: {reason}"), next: None })
}
