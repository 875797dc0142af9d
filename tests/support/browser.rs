//! Chromium, driven by the scripts of `tests/page`.

use std::{fs, path::Path, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
};

use super::clients::{NODE, run, write};

const SCRIPTS: [&str; 3] = ["browser.mjs", "daemon.mjs", "large.mjs"];
/// A minute on two cores that have nothing else to do, and twice that among other tests.
const PATIENCE: Duration = Duration::from_mins(6);

/// Runs a script to its end. What it asks for is done by `act`, whose answer it gets. Pictures of what it saw are left in the
/// target folder.
pub async fn browse(script: &str, environment: &[(&str, &str)], mut act: impl AsyncFnMut(&str) -> String) {
    let folder = tokio::task::spawn_blocking(|| NODE.as_path()).await.unwrap();
    // Beside what is installed, where its imports lead.
    for name in SCRIPTS {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page").join(name);
        write(&folder.join("page").join(name), &fs::read_to_string(source).unwrap());
    }
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    let mut node = Command::new("node");
    node.arg(folder.join("page").join(script)).envs(environment.iter().copied());
    node.env("FEDQ_CHROMIUM", chromium()).env("FEDQ_PICTURES", pictures);
    node.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut node = node.spawn().unwrap();
    let (mut answers, told) = (node.stdin.take().unwrap(), node.stdout.take().unwrap());
    let mut told = BufReader::new(told).lines();
    let browsing = async {
        while let Some(line) = told.next_line().await.unwrap() {
            let wanted = line.strip_prefix("DO ");
            assert!(wanted.is_some(), "{script} said {line}");
            let answer = act(wanted.unwrap()).await;
            answers.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        }
        node.wait().await.unwrap()
    };
    let ended = tokio::time::timeout(PATIENCE, browsing).await.expect("the browser comes to an end");
    assert!(ended.success(), "{script} ended with {ended}; what it says is above");
}

/// Debian's, or the one that is named.
fn chromium() -> String {
    let named = std::env::var_os("FEDQ_CHROMIUM").and_then(|path| path.into_string().ok());
    let found = named.or_else(|| {
        let known = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
        known.into_iter().find(|path| Path::new(path).exists()).map(str::to_owned)
    });
    let found = found.expect(
        "Chromium is not installed: on Debian `apt-get install chromium` brings it; FEDQ_CHROMIUM names another place",
    );
    run(std::process::Command::new(&found).arg("--version"));
    found
}
