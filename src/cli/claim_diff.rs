//! `fedq claim diff`: what files would give to and take from queues, for a person before they apply and for the check of a
//! pull request.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    DONE, FAILED, Session, USAGE,
    args::{DiffArgs, DiffFormat},
    claim::{changes_table, path},
    claim_text::{self, ClaimFile, Manifest, said},
    client::Api,
    error::CliError,
    folder, merge,
    print::Printer,
    table::clean,
};
use fedq_values::amount::amount;
use fedq_wire::{
    claim::{Claim, ClaimChange, ClaimDetail, ClaimSpec},
    problem::Code,
};

/// 0: nothing, 1: something, 2: an error, as diff and kubectl diff have it.
pub async fn run(args: DiffArgs, session: &mut Session) -> u8 {
    match try_run(args, session).await {
        Ok(code) => code,
        Err(error) => {
            session.printer.error(&error);
            USAGE
        }
    }
}

async fn try_run(args: DiffArgs, session: &mut Session) -> Result<u8, CliError> {
    let claims = claims(&args.filename, args.prune)?;
    let (api, printer) = session.both()?;
    let mut differences = Vec::new();
    for (name, (file, spec)) in &claims {
        differences.push(Difference::find(api, name, (file, spec)).await?);
    }
    if args.prune {
        for claim in api.list::<Claim>("/claims").await? {
            if !claims.contains_key(&claim.name) {
                differences.push(Difference::gone(api, &claim.name).await?);
            }
        }
        differences.sort_by(|one, other| one.claim.cmp(&other.claim));
    }
    differences.retain(|difference| !difference.is_same());
    print(&differences, &args, printer)?;
    Ok(if differences.is_empty() { DONE } else { FAILED })
}

/// By name, each with the file that it is in.
type Claims = BTreeMap<String, (PathBuf, ClaimSpec)>;

/// `prune`: there may be none at all.
fn claims(paths: &[PathBuf], prune: bool) -> Result<Claims, CliError> {
    let mut claims = Claims::new();
    for path in paths {
        let files = if path.is_dir() { folder::files(path)? } else { vec![path.clone()] };
        for file in files {
            let text = folder::read_text(&file)?;
            let found = claim_text::parse_all(&text).map_err(|reason| {
                CliError::usage(
                    format!("cannot read claims from `{}`: {reason}", file.display()),
                    "fedq claim show NAME -o yaml prints one",
                )
            })?;
            for ClaimFile { name, spec } in found {
                if let Some((earlier, _)) = claims.insert(name.clone(), (file.clone(), spec)) {
                    return Err(CliError::usage(
                        format!("claim `{name}` is in `{}` and in `{}`", earlier.display(), file.display()),
                        "keep one of them: which of both is applied last cannot be known",
                    ));
                }
            }
        }
    }
    if claims.is_empty() && !prune {
        let looked: Vec<String> = paths.iter().map(|path| format!("`{}`", path.display())).collect();
        return Err(CliError::usage(
            format!("there is no ClusterResourceClaim in {}", looked.join(", ")),
            "fedq claim show NAME -o yaml prints one",
        ));
    }
    Ok(claims)
}

/// What files would make of a claim.
#[derive(Serialize)]
struct Difference {
    claim: String,
    #[serde(flatten)]
    change: ClaimChange,
    /// `None`: it is not there yet.
    #[serde(skip)]
    before: Option<ClaimSpec>,
    /// With the file that it is in. `None`: it is in none, and is to go.
    #[serde(skip)]
    after: Option<(PathBuf, ClaimSpec)>,
}

impl Difference {
    async fn find(api: &Api, name: &str, (file, spec): (&Path, &ClaimSpec)) -> Result<Self, CliError> {
        let current = match api.get::<ClaimDetail>(&path(name)).await {
            Ok(current) => Some(current),
            Err(error) if error.code() == Some(Code::NotFound) => None,
            Err(error) => return Err(error),
        };
        let change: ClaimChange = api.post(&format!("{}/diff", path(name)), spec).await?;
        let before = current.map(|current| said(&current, &current.spec));
        // As it is: an amount that a file names becomes a cap, also where it is the capacity that the claim follows now.
        Ok(Self { claim: name.to_owned(), change, before, after: Some((file.to_owned(), spec.clone())) })
    }

    /// Of a claim that is in no file.
    async fn gone(api: &Api, name: &str) -> Result<Self, CliError> {
        let current = api.get::<ClaimDetail>(&path(name)).await?;
        let nothing = ClaimSpec { cluster_name: current.spec.cluster_name.clone(), ..ClaimSpec::default() };
        let change: ClaimChange = api.post(&format!("{}/diff", path(name)), &nothing).await?;
        let before = Some(said(&current, &current.spec));
        Ok(Self { claim: name.to_owned(), change, before, after: None })
    }

    fn is_same(&self) -> bool {
        let both = self.before.as_ref().zip(self.after.as_ref());
        both.is_some_and(|(before, (_, after))| merge::is_same(before, after))
    }

    /// As diff has it.
    fn lines(&self) -> String {
        let text = |spec: Option<&ClaimSpec>| {
            let text = spec.map(|spec| serde_saphyr::to_string(&Manifest::new(&self.claim, spec)));
            text.transpose().unwrap_or_default().unwrap_or_default()
        };
        let (before, after) = (text(self.before.as_ref()), text(self.after.as_ref().map(|(_, spec)| spec)));
        let lines = similar::TextDiff::from_lines(&before, &after);
        let file = self
            .after
            .as_ref()
            .map_or_else(|| "in no file".to_owned(), |(file, _)| file.display().to_string());
        lines.unified_diff().context_radius(2).header(&format!("{} now", self.claim), &file).to_string()
    }

    /// For a comment on a pull request.
    fn markdown(&self) -> String {
        let note = match (&self.before, &self.after) {
            (None, _) => " (new)",
            (_, None) => " (removed)",
            _ => "",
        };
        let mut text = format!("### Claim `{}`{note}\n\n", self.claim);
        if self.change.changes.is_empty() {
            text.push_str("No queue gains or loses anything.\n");
        } else {
            text.push_str(
                "| queue | flavor | resource | now | then | change |\n|---|---|---|---:|---:|---:|\n",
            );
        }
        for cell in &self.change.changes {
            let [now, then, change] =
                [&cell.before.0, &cell.after.0, &cell.change].map(|text| amount(&cell.resource, text));
            let (queue, flavor, resource) = (&cell.queue, &cell.flavor, &cell.resource);
            let row = [queue, flavor, resource, &now, &then, &change].map(String::as_str).join(" | ");
            text.extend(["| ", &row, " |\n"]);
        }
        let caps = |spec: &ClaimSpec| ClaimSpec {
            nominal_resources: spec.nominal_resources.clone(),
            ..ClaimSpec::default()
        };
        let before = self.before.as_ref().map(caps).unwrap_or_default();
        let after = self.after.as_ref().map(|(_, spec)| caps(spec)).unwrap_or_default();
        let caps = merge::changes(&before, &after);
        let caps: Vec<String> = caps.iter().map(|change| format!("- `{change}`\n")).collect();
        let warnings = self.change.warnings.iter().map(|warning| format!("> Warning: {}\n", clean(warning)));
        let warnings: Vec<String> = warnings.collect();
        for part in [caps, warnings].iter().filter(|part| !part.is_empty()) {
            text.push('\n');
            text.push_str(&part.concat());
        }
        text
    }
}

fn print(differences: &[Difference], args: &DiffArgs, printer: &mut Printer) -> Result<(), CliError> {
    #[derive(Serialize)]
    struct Items<'a> {
        items: &'a [Difference],
    }
    if args.output != DiffFormat::Markdown {
        differences
            .iter()
            .flat_map(|difference| &difference.change.warnings)
            .for_each(|text| printer.warning(text));
    }
    match args.output {
        DiffFormat::Json => printer.json(&Items { items: differences }),
        DiffFormat::Yaml => printer.yaml(&Items { items: differences }),
        DiffFormat::Name => differences
            .iter()
            .try_for_each(|difference| printer.line(&format!("clusterresourceclaim/{}", difference.claim))),
        DiffFormat::Markdown if differences.is_empty() => printer.line("No claim changes."),
        DiffFormat::Markdown => {
            let texts: Vec<String> = differences.iter().map(Difference::markdown).collect();
            printer.raw(texts.join("\n").as_bytes())
        }
        DiffFormat::Table => differences.iter().try_for_each(|difference| {
            difference.lines().lines().try_for_each(|line| printer.line(line))?;
            if difference.change.changes.is_empty() {
                return Ok(());
            }
            let table = changes_table(&difference.change);
            printer.table(&if args.no_headers { table.without_headers() } else { table })
        }),
    }
}
