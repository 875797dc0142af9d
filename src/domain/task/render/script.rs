//! What a task's container runs: find the other nodes, put the task's files in place, change to the working directory, set
//! up, run.

use crate::task::{
    spec::{TaskSpec, Workdir},
    upload::{self, Upload},
};

/// Where pods find the parts of what the task brings along.
pub const UPLOADS: &str = "/run/fedq/uploads";

/// Nodes of a gang are admitted together, and have their addresses before their images are pulled.
const PATIENCE_SECONDS: u32 = 120;

/// `finds_nodes`: the others are on their way, so that their names are worth waiting for.
pub fn script(spec: &TaskSpec, finds_nodes: bool) -> String {
    let mut lines = Vec::new();
    if finds_nodes {
        lines.push(find_nodes());
    }
    if !spec.uploads.is_empty() {
        lines.push(unpack(&spec.uploads));
    }
    match &spec.workdir {
        None => {}
        Some(Workdir::Folder(folder)) => lines.push(change_to(folder)),
        Some(Workdir::Git { url, reference }) => lines.push(clone(url, reference.as_deref())),
    }
    lines.extend(spec.setup.as_deref().map(set_up));
    lines.push(spec.run.clone());
    lines.join("\n")
}

/// Runs `setup` in a process of its own, so that neither its folder nor its `set -e` nor its `exit` is `run`'s. What it
/// exports is, as with an activated environment: it is written down by `setup`'s own shell at its end, since nobody else
/// knows it. A failed setup ends the task with its exit code; no `||` tells of that, since `set -e` has no effect
/// before one. It is handed to `eval` as a text: what is wrong in it, as a word that is not closed, ends the setup and
/// not the script around it, and each of its lines is read once those before it have run.
fn set_up(setup: &str) -> String {
    // Twice, since `setup` may have a trap of its own at its exit. Where the shell is, and how deep, is not carried over.
    format!(
        r#"fedq_exports="$(mktemp)" || exit
fedq_export() {{
  (
    unset -v PWD OLDPWD SHLVL
    export -p
    if [ -n "${{BASH_VERSION-}}" ]; then export -pf; fi
  ) >|"$fedq_exports" || exit 1
  return "$1"
}}
(
trap 'fedq_export "$?"' EXIT
eval {}
fedq_export "$?"
)
fedq_status="$?"
if [ "$fedq_status" -ne 0 ]; then
  rm -f -- "$fedq_exports"
  echo "setup ended with exit code $fedq_status, so that run is not started" >&2
  exit "$fedq_status"
fi
. "$fedq_exports"
rm -f -- "$fedq_exports"
unset -v fedq_exports fedq_status
unset -f fedq_export"#,
        quoted(setup.trim_end_matches('\n'))
    )
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

/// Puts what the task brings along in place. A file is unpacked beside where it goes, so that it is there whole or not
/// at all, with its mode.
fn unpack(uploads: &[Upload]) -> String {
    let mut lines = vec![format!(
        r#"for fedq_tool in cat gzip tar; do
  command -v "$fedq_tool" >/dev/null || {{
    echo "the image has no $fedq_tool, without which the files that the task brings along cannot be unpacked: take an image that has it, or put the files into the image" >&2
    exit 1
  }}
done
fedq_unpack() {{
  mkdir -p -- "$2" && cat {UPLOADS}/"$1".* | gzip -dc | tar -xf - -C "$2" || {{
    echo "the files that the task brings along could not be put into $2" >&2
    exit 1
  }}
}}
fedq_place() {{
  mkdir -p -- "$2" && fedq_folder="$(mktemp -d "$2/.fedq-XXXXXX")" || {{
    echo "a file that the task brings along could not be put into $2" >&2
    exit 1
  }}
  fedq_unpack "$1" "$fedq_folder"
  if [ -d "$3" ]; then
    echo "a file that the task brings along would replace the folder $3: name a file in file_mounts" >&2
    exit 1
  fi
  mv -f -- "$fedq_folder/{file}" "$3" && rmdir -- "$fedq_folder" || exit
}}"#,
        file = upload::FILE
    )];
    for (number, Upload { path, archive }) in uploads.iter().enumerate() {
        let parts = upload::prefix(number);
        if archive.file {
            let folder = match path.rsplit_once('/') {
                Some(("", _)) => "/",
                Some((folder, _)) => folder,
                None => ".",
            };
            lines.push(format!("fedq_place {parts} {} {}", at(folder), at(path)));
        } else {
            lines.push(format!("fedq_unpack {parts} {}", at(path)));
        }
    }
    lines.push("unset -v fedq_tool fedq_folder\nunset -f fedq_unpack fedq_place".to_owned());
    lines.join("\n")
}

fn change_to(folder: &str) -> String {
    format!("cd -- {} || exit", at(folder))
}

/// A path as a word of the shell, which expands `~` only outside quotes, and not before a quoted `/`.
fn at(path: &str) -> String {
    match path.strip_prefix('~') {
        Some("") => "~".to_owned(),
        Some(rest) if rest.starts_with('/') => format!("~/{}", quoted(&rest[1..])),
        _ => quoted(path),
    }
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
