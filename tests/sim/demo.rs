//! `fedq demo`, run as people run it.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::Stdio,
};

use serde_json::Value;

use super::{
    checked::Talk,
    demo_process::{Demo, signal, text},
};

fn quota(answer: &Value, queue: &str, flavor: &str) -> Option<String> {
    let queues = answer["items"].as_array()?;
    let cells = queues.iter().flat_map(|queue| queue["cells"].as_array().into_iter().flatten());
    let mut found = cells.filter(|cell| cell["queue"] == queue && cell["flavor"] == flavor);
    found.next()?["nominal"].as_str().map(str::to_owned)
}

/// What the README shows of it.
fn excerpt() -> Vec<String> {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let section = readme.split("\n## ").find(|section| section.starts_with("See it work")).unwrap();
    let block = section.split("```").nth(3).unwrap();
    block.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn the_story_comes_true_and_leaves_nothing() {
    let demo = Demo::new();
    let output = demo.run(&[]);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}\n{errors}");
    for line in [
        "$ fedq cluster join tokyo --kubeconfig kubeconfig --context tokyo --create-serviceaccount",
        "cluster/frankfurt Ready: cpu 288, gpu 24, memory 3Ti\n",
        "QUEUE      FLAVOR   HUB   FRANKFURT   OREGON   TOKYO",
        "research   h100     32    16          16       -",
        "research   h100     27 → 32   11 → 16     16       -",
        "research   h100     32 → 40   16 → 24     16       -",
        "research   a100     8 → 0     -           -        8",
        "research   a100     0 → 8     -           -        8",
        "fine-tune   frankfurt   2      admitted",
        "pre-train   oregon      2      admitted",
        "evaluate    -           0      waits: ",
        "evaluate    frankfurt   1      admitted",
        "node-1 | rank 1 of 2 on oregon: epoch 1, loss 2.31\n",
        "it runs on tokyo, with both of its pods, and nothing of it is left on oregon",
    ] {
        assert!(said.contains(line), "no `{line}` in\n{said}");
    }
    for line in excerpt() {
        assert!(said.contains(&line), "README.md shows `{line}`, which is not in\n{said}");
    }
    // Not a terminal: no colours, no moving lines, and sentences as wide as a page.
    assert!(!said.contains('\u{1b}') && !errors.contains('\u{1b}'), "{said}\n{errors}");
    assert!(errors.lines().all(|line| line.starts_with("  (waiting until ")), "{errors}");
    assert_eq!(demo.left(), [] as [PathBuf; 0]);
}

#[test]
fn what_it_says_to_try_works() {
    let demo = Demo::new();
    let named = demo.tmp.path().join("a demo's $HOME");
    let mut served = demo.serve(&["--dir", named.to_str().unwrap()]);
    assert_eq!(served.folder, named);
    let talk = Talk::default();
    let connection: Value = serde_json::from_slice(&fs::read(named.join("fedq.yaml")).unwrap()).unwrap();
    let reached = talk.with(connection["server"].as_str().unwrap());
    let paste =
        |line: &str| format!("export FEDQ_SERVER={reached} FEDQ_TOKEN={}\n{line}", connection["token"]);
    let mode = |name: &str| fs::metadata(named.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(""), 0o700);
    for name in ["env", "kubeconfig", "fedq.yaml", "fedqd.kubeconfig", "fedqd.log", "fedq.db"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }

    let lines = served.said.split("Your turn").nth(1).unwrap().lines();
    let page =
        lines.clone().find_map(|line| line.trim().strip_prefix("http://")).expect("the page's address");
    let page = text(&served.paste(&format!("curl -sSf http://{page}")).stdout);
    assert!(page.contains("<title>fedq</title>"), "{page}");
    let commands: Vec<String> = lines
        .filter(|line| ["  fedq ", "  touch ", "  rm "].iter().any(|start| line.starts_with(start)))
        .map(|line| line.trim().to_owned())
        .collect();
    assert!(8 < commands.len(), "{commands:?}");
    for line in &commands {
        // These go on until they are interrupted, or open an editor.
        let line = line.strip_suffix(" -w").unwrap_or(line);
        let line =
            if line.starts_with("fedq claim edit") { format!("EDITOR=true {line}") } else { line.to_owned() };
        let output = served.paste(&paste(&line));
        assert!(output.status.success(), "`{line}`: {}{}", text(&output.stdout), text(&output.stderr));
        if line.contains("gpu=24") {
            let holds = |answer: &Value| quota(answer, "vision", "a100").as_deref() == Some("40");
            served.paste_until(
                &paste("fedq quota list -o json"),
                "vision has 16 of oregon and 24 of tokyo",
                holds,
            );
        }
    }
    assert_eq!(served.interrupt(), 0);
    assert!(named.join("fedqd.log").exists());

    // An earlier demo's folder is used again, and only by one at a time.
    let mut again = demo.serve(&["--dir", named.to_str().unwrap()]);
    let second = demo.run(&["--dir", named.to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("another demo runs in the folder"), "{}", text(&second.stderr));
    assert_eq!(again.interrupt(), 0);
}

#[test]
fn two_at_once_know_nothing_of_each_other() {
    let demo = Demo::new();
    let (mut first, mut second) = std::thread::scope(|scope| {
        let other = scope.spawn(|| demo.serve(&[]));
        (demo.serve(&[]), other.join().unwrap())
    });
    assert_ne!(first.folder, second.folder);
    let tokyo = |word: &'static str| {
        move |answer: &Value| {
            let mut clusters = answer["items"].as_array().into_iter().flatten();
            clusters.any(|one| one["name"] == "tokyo" && one["state"] == word)
        }
    };
    let list = "fedq cluster list -o json";
    assert!(first.paste("touch \"$FEDQ_DEMO/tokyo.off\"").status.success());
    first.paste_until(list, "tokyo is Stale", tokyo("Stale"));
    second.paste_until(list, "the other tokyo is Ready", tokyo("Ready"));
    assert!(first.paste("rm \"$FEDQ_DEMO/tokyo.off\"").status.success());
    first.paste_until(list, "tokyo is Ready", tokyo("Ready"));
    assert_eq!(first.interrupt(), 0);
    assert!(second.folder.exists());
    assert_eq!(second.interrupt(), 0);
    assert_eq!(demo.left(), [] as [PathBuf; 0]);
}

/// What a story needs is taken away while it is told.
#[test]
fn a_story_that_does_not_come_true_fails_and_keeps_the_log() {
    let demo = Demo::new();
    let mut child = demo.command(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let begun = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with("$ fedq cluster join"));
    assert!(begun.is_some());
    let folder = demo.left().pop().unwrap();
    fs::remove_file(folder.join("kubeconfig")).unwrap();
    lines.for_each(drop);
    let output = child.wait_with_output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("error: `fedq cluster join") && errors.contains("cannot read `kubeconfig`"),
        "{errors}"
    );
    let log = folder.join("fedqd.log");
    assert!(errors.contains(&format!("next: fedqd's log is in {}", log.display())), "{errors}");
    assert!(fs::read_to_string(log).unwrap().contains("Started"));
}

#[test]
fn an_interrupted_story_says_so_and_leaves_nothing() {
    for name in ["INT", "TERM", "HUP"] {
        let demo = Demo::new();
        let mut child = demo.command(&[]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let begun = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with("$ fedq cluster join"));
        assert!(begun.is_some());
        signal(&child, name);
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{name}: {rest:?}");
        assert!(rest.last().is_some_and(|line| line.starts_with("Interrupted. Nothing")), "{rest:?}");
        assert_eq!(demo.left(), [] as [PathBuf; 0], "{name}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_it() {
    let demo = Demo::new();
    let mut child = demo.command(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 1];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141), "{}", text(&output.stderr));
    assert_eq!(demo.left(), [] as [PathBuf; 0]);
}

#[test]
fn folders_that_it_cannot_have_are_left_alone() {
    let demo = Demo::new();
    let mine = demo.tmp.path().join("mine");
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("thesis.tex"), "years").unwrap();
    let file = mine.join("thesis.tex");
    for (dir, complaint) in [
        (mine.clone(), "holds thesis.tex, which is no demo's"),
        (file.clone(), "cannot use the folder"),
        (file.join("below"), "cannot use the folder"),
        // Nobody may make one there, not even root.
        (PathBuf::from("/proc/fedq-demo"), "cannot use the folder"),
    ] {
        let output = demo.run(&["--dir", dir.to_str().unwrap()]);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{}: {errors}", dir.display());
        assert!(errors.contains(complaint) && errors.contains("next: name a"), "{errors}");
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "years");
    assert_eq!(fs::read_dir(mine).unwrap().count(), 1);

    let nowhere = demo.command(&[]).env("TMPDIR", "/proc").output().unwrap();
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stderr).contains("cannot use the folder /proc"), "{}", text(&nowhere.stderr));
    assert_eq!(demo.run(&["--port", "1"]).status.code(), Some(2));
}
