//! What a task's container runs: find the other nodes, get the working directory, set up, run.

use crate::task::spec::{TaskSpec, Workdir};

/// Nodes of a gang are admitted together, and have their addresses before their images are pulled.
const PATIENCE_SECONDS: u32 = 120;

/// `finds_nodes`: the others are on their way, so that their names are worth waiting for.
pub fn script(spec: &TaskSpec, finds_nodes: bool) -> String {
    let mut lines = Vec::new();
    if finds_nodes {
        lines.push(find_nodes());
    }
    match &spec.workdir {
        None => {}
        Some(Workdir::Folder(folder)) => lines.push(change_to(folder)),
        Some(Workdir::Git { url, reference }) => lines.push(clone(url, reference.as_deref())),
    }
    if let Some(setup) = &spec.setup {
        // A failed setup ends the task. No subshell: what it exports and activates is for `run`.
        lines.push(format!("{{ :\n{}\n}} || exit", setup.trim_end_matches('\n')));
    }
    lines.push(spec.run.clone());
    lines.join("\n")
}

/// Makes addresses of the names, in their order. A name stays where its node has none in time, since that
/// node may have ended already, and where the image has no `getent`: programs resolve it themselves.
fn find_nodes() -> String {
    format!(
        r#"if command -v getent >/dev/null; then
  fedq_addresses=
  for fedq_host in $SKYPILOT_NODE_IPS; do
    until fedq_address="$(getent hosts "$fedq_host")" || ((SECONDS > {PATIENCE_SECONDS})); do sleep 1; done
    fedq_address="${{fedq_address%% *}}"
    fedq_addresses+="${{fedq_addresses:+$'\n'}}${{fedq_address:-$fedq_host}}"
  done
  export SKYPILOT_NODE_IPS="$fedq_addresses" SKYPILOT_SETUP_NODE_IPS="$fedq_addresses"
  unset fedq_addresses fedq_address fedq_host
fi"#
    )
}

fn change_to(folder: &str) -> String {
    // `~` is expanded by the shell only outside quotes.
    let folder = match folder.strip_prefix('~') {
        Some("") => "~".to_owned(),
        Some(rest) if rest.starts_with('/') => format!("~{}", quoted(rest)),
        _ => quoted(folder),
    };
    format!("cd -- {folder} || exit")
}

fn clone(url: &str, reference: Option<&str>) -> String {
    let mut lines =
        vec![format!("git clone -q -- {} ~/sky_workdir && cd ~/sky_workdir || exit", quoted(url))];
    lines.extend(reference.map(|reference| format!("git checkout -q {} || exit", quoted(reference))));
    lines.join("\n")
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A text that Kubernetes hands on as it is: it would replace `$(NAME)`, and make `$$` one sign.
pub fn literal(text: &str) -> String {
    let mut literal = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, signs) = rest.split_at(at);
        let behind = signs.trim_start_matches('$');
        let run = &signs[..signs.len() - behind.len()];
        literal.push_str(before);
        literal.push_str(run);
        if 1 < run.len() || behind.starts_with('(') {
            literal.push_str(run);
        }
        rest = behind;
    }
    literal.push_str(rest);
    literal
}
