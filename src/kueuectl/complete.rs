//! `__complete`, which shells call: candidates a line each, then a directive, as cobra has them; and the scripts that call it.

use serde_json::Value;

use crate::{
    command::{Flag, FlagKind, Path, Tree},
    error::Error,
    flags, kubeconfig,
    resource::{Resource, query_text},
    session::{Session, World, text},
};

/// No more names are asked of a server.
const MOST: &str = "100";

/// Nobody waits longer at a prompt.
const WITHIN: std::time::Duration = std::time::Duration::from_millis(500);

#[derive(Clone, Copy)]
enum Directive {
    /// The shell completes files.
    Default = 0,
    NoFiles = 4,
}

/// Answers for the words typed so far, the last of which is not complete.
pub async fn run(
    line: &[String],
    descriptions: bool,
    tree: Tree,
    world: &mut World<'_>,
) -> Result<(), Error> {
    let Some((partial, typed)) = line.split_last() else {
        return Err(Error::said("requires at least 1 arg(s), only received 0"));
    };
    let (candidates, directive) = match candidates(partial, typed, tree, world).await {
        Ok(found) => found,
        Err(reason) => {
            writeln!(world.errors, "[Debug] [Error] {reason}")?;
            (Vec::new(), Directive::Default)
        }
    };
    for candidate in candidates {
        let shown =
            if descriptions { candidate.as_str() } else { candidate.split('\t').next().unwrap_or_default() };
        writeln!(world.output, "{}", shown.lines().next().unwrap_or_default().trim())?;
    }
    writeln!(world.output, ":{}", directive as u8)?;
    let name = match directive {
        Directive::Default => "ShellCompDirectiveDefault",
        Directive::NoFiles => "ShellCompDirectiveNoFileComp",
    };
    Ok(writeln!(world.errors, "Completion ended with directive: {name}")?)
}

async fn candidates(
    partial: &str,
    typed: &[String],
    tree: Tree,
    world: &mut World<'_>,
) -> Result<(Vec<String>, Directive), String> {
    let (path, rest) = flags::find(typed, tree)
        .map_err(|_| format!("unable to find a command for arguments: [{}]", typed.join(" ")))?;
    let all = path.flags();
    let (valued, partial, rest) = flag_with_value(partial, &rest, &all);
    let given = flags::parse(&rest, &all, false)
        .map_err(|reason| format!("Error while parsing flags from args [{}]: {reason}", rest.join(" ")))?;
    if given.is("help") {
        return Ok((Vec::new(), Directive::NoFiles));
    }
    if let Some(flag) = valued {
        return Ok(values_of_flag(&flag, given, &partial, world).await);
    }
    let missing: Vec<&Flag> = all.iter().filter(|flag| flag.required && !given.has(&flag.name)).collect();
    if partial.starts_with('-') && !partial.contains('=') {
        let required: Vec<String> = missing.iter().flat_map(|flag| names_of(flag, &partial)).collect();
        if !required.is_empty() {
            return Ok((required, Directive::NoFiles));
        }
        let inherited = path.inherited_flags().into_iter().chain(path.local_flags());
        let open = inherited.filter(|flag| !flag.hidden).filter(|flag| {
            !given.has(&flag.name)
                || !flag.default.is_empty()
                || !matches!(flag.kind, FlagKind::Bool | FlagKind::String)
        });
        return Ok((open.flat_map(|flag| names_of(&flag, &partial)).collect(), Directive::NoFiles));
    }
    if let Some(below) = commands(&path, &given.arguments, &partial) {
        return Ok((below, Directive::NoFiles));
    }
    let mut found: Vec<String> = missing.iter().flat_map(|flag| names_of(flag, &partial)).collect();
    match objects(&path, given, world).await {
        Some(names) => {
            found.extend(names);
            Ok((found, Directive::NoFiles))
        }
        None => Ok((found, Directive::Default)),
    }
}

/// The flag whose value is being typed, what of the value is there, and the line without the flag.
fn flag_with_value(partial: &str, line: &[String], all: &[Flag]) -> (Option<Flag>, String, Vec<String>) {
    let by_word = |word: &str| {
        let named = all.iter().find(|flag| {
            word.strip_prefix("--") == Some(&flag.name)
                || !flag.short.is_empty() && word.strip_prefix('-') == Some(&flag.short)
        });
        named.filter(|flag| flag.kind != FlagKind::Bool).cloned()
    };
    if let Some((word, value)) = partial.split_once('=').filter(|_| partial.starts_with('-'))
        && let Some(flag) = by_word(word)
    {
        return (Some(flag), value.to_owned(), line.to_vec());
    }
    if let Some((last, before)) = line.split_last()
        && let Some(flag) = by_word(last)
    {
        return (Some(flag), partial.to_owned(), before.to_vec());
    }
    (None, partial.to_owned(), line.to_vec())
}

fn names_of(flag: &Flag, partial: &str) -> Vec<String> {
    let names = [format!("--{}", flag.name), format!("-{}", flag.short)];
    let known = names.into_iter().filter(|name| name != "-" && name.starts_with(partial));
    known.map(|name| format!("{name}\t{}", flag.usage)).collect()
}

/// Commands below, where one is expected.
fn commands(path: &Path, arguments: &[String], partial: &str) -> Option<Vec<String>> {
    let mut path = path.clone();
    if path.names() == "help" {
        path = path.up();
        for word in arguments {
            path = path.below(word)?;
        }
    } else if !arguments.is_empty() {
        return None;
    }
    let mut below: Vec<String> = path
        .command()
        .commands
        .iter()
        .filter(|command| command.name().starts_with(partial))
        .map(|command| format!("{}\t{}", command.name(), command.short))
        .collect();
    below.sort_unstable();
    (!path.command().commands.is_empty()).then_some(below)
}

async fn values_of_flag(
    flag: &Flag,
    given: flags::Given,
    partial: &str,
    world: &mut World<'_>,
) -> (Vec<String>, Directive) {
    let resource = match flag.name.as_str() {
        "namespace" => Resource::core("namespaces", "Namespace", false),
        "clusterqueue" => Resource::cluster_queue(),
        "localqueue" | "to-queue" => Resource::local_queue(),
        "to-cluster" => return (joined(partial, world).await, Directive::NoFiles),
        "cluster" if flag.fedq => return (joined(partial, world).await, Directive::NoFiles),
        "context" | "cluster" | "user" => {
            let names = kubeconfig::names(&given, &flag.name, world.variables).unwrap_or_default();
            return (
                names.into_iter().filter(|name| name.starts_with(partial)).collect(),
                Directive::NoFiles,
            );
        }
        _ => return (Vec::new(), Directive::Default),
    };
    // These complete the first argument of a command, and stop there.
    if !["namespace", "to-queue"].contains(&flag.name.as_str()) && !given.arguments.is_empty() {
        return (Vec::new(), Directive::NoFiles);
    }
    (names(given, &resource, world, |_| true).await, Directive::NoFiles)
}

/// Clusters of a daemon.
async fn joined(partial: &str, world: &World<'_>) -> Vec<String> {
    let Some(fleet) = world.fleet else { return Vec::new() };
    // Nobody is told at a prompt why nothing is offered.
    let names = tokio::time::timeout(WITHIN, fleet.names()).await.ok().and_then(Result::ok);
    names.unwrap_or_default().into_iter().filter(|name| name.starts_with(partial)).collect()
}

/// Names of objects that the command can work on: what is stopped can be resumed.
async fn objects(path: &Path, given: flags::Given, world: &mut World<'_>) -> Option<Vec<String>> {
    let names_of = path.names();
    let (verb, object) = names_of.split_once(' ')?;
    let running = match verb {
        "stop" | "delete" => Some(true),
        "move" => None,
        "resume" => Some(false),
        _ => return None,
    };
    let resource = match object {
        "clusterqueue" if verb != "delete" => Resource::cluster_queue(),
        "localqueue" if verb != "delete" => Resource::local_queue(),
        "workload" => Resource::workload(),
        _ => return None,
    };
    if object != "workload" && !given.arguments.is_empty() {
        return Some(Vec::new());
    }
    let done = given.arguments.clone();
    let wanted = |found: &Value| {
        let runs = if object == "workload" {
            found["spec"]["active"] != false
        } else {
            ["", "None"].contains(&text(found, "/spec/stopPolicy"))
        };
        running.is_none_or(|running| running == runs)
            && !done.iter().any(|name| name == text(found, "/metadata/name"))
    };
    Some(names(given, &resource, world, wanted).await)
}

/// Nothing where no server answers in time.
async fn names(
    given: flags::Given,
    resource: &Resource,
    world: &mut World<'_>,
    wanted: impl Fn(&Value) -> bool,
) -> Vec<String> {
    let mut session = Session::new(given, world);
    let asked = async {
        let namespace = if resource.namespaced { session.namespace()? } else { String::new() };
        let path = resource.path(&namespace, "") + &query_text(&[("limit", MOST)]);
        let api = session.api().await?;
        api.call(&crate::api::Call::get(path, resource.full_name())).await
    };
    let Ok(Ok(list)) = tokio::time::timeout(WITHIN, asked).await else { return Vec::new() };
    let items = list["items"].as_array().into_iter().flatten();
    items.filter(|item| wanted(item)).map(|item| text(item, "/metadata/name").to_owned()).collect()
}

/// What makes a shell call `__complete`. Bash and zsh have no way to show descriptions beside plain words.
pub fn script(shell: &str, program: &str, descriptions: bool) -> String {
    let (command, function) = (program, program.replace([' ', '-'], "_"));
    let request = if descriptions { "__complete" } else { "__completeNoDesc" };
    let template = match shell {
        "bash" => include_str!("complete.bash"),
        "zsh" => include_str!("complete.zsh"),
        "fish" => include_str!("complete.fish"),
        _ => include_str!("complete.ps1"),
    };
    let first = command.split(' ').next().unwrap_or_default();
    let below = command.split_once(' ').map_or("", |(_, below)| below);
    template
        .replace("@FUNCTION@", &function)
        .replace("@REQUEST@", request)
        .replace("@PROGRAM@", first)
        .replace("@BELOW@", below)
}
