//! `fedq claim edit` with editors that are scripts.

use std::{
    fmt::Write as _,
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use super::{
    cli::{Listening, at_terminal, listening, stderr, stdout},
    server::spec,
};

struct Bench {
    api: Listening,
    folder: tempfile::TempDir,
}

fn bench() -> Bench {
    Bench { api: listening(), folder: tempfile::tempdir().unwrap() }
}

impl Bench {
    /// Each script edits the file `$1` in its turn; what it was shown is kept.
    fn edit(&self, scripts: &[&str]) -> Output {
        self.command(scripts).output().unwrap()
    }

    fn command(&self, scripts: &[&str]) -> Command {
        let folder = self.folder.path().display();
        let mut editor = format!(
            "#!/bin/sh\nset -e\nturn=$(cat {folder}/turn 2>/dev/null || echo 0)\n\
             echo $((turn + 1)) > {folder}/turn\ncp \"$1\" {folder}/shown.$turn\ncase $turn in\n"
        );
        for (turn, script) in scripts.iter().enumerate() {
            writeln!(editor, "{turn}) {script} ;;").unwrap();
        }
        editor.push_str("esac\n");
        let path = self.folder.path().join("editor");
        fs::write(&path, editor).unwrap();
        let mut command = self.api.fedq(&["claim", "edit", "east-resource-claim"]);
        command.env("EDITOR", format!("sh {}", path.display())).env("TMPDIR", self.folder.path());
        command
    }

    fn shown(&self, turn: u32) -> String {
        fs::read_to_string(self.folder.path().join(format!("shown.{turn}"))).unwrap()
    }

    fn turns(&self) -> String {
        fs::read_to_string(self.folder.path().join("turn")).unwrap().trim().to_owned()
    }

    fn spec(&self) -> serde_json::Value {
        self.api.served.hub.world().claim("east-resource-claim")["spec"].clone()
    }

    fn copies(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("fedq-edit-")).collect()
    }
}

const GPU_6: &str = "sed -i \"s/^\\( *gpu:\\) ['\\\"]*5['\\\"]*$/\\1 6/\" \"$1\"";

#[test]
fn the_editor_shows_what_there_is_and_the_save_is_applied() {
    let bench = bench();
    let output = bench.edit(&[GPU_6]);
    assert_eq!(stdout(&output), "clusterresourceclaim/east-resource-claim edited\n", "{}", stderr(&output));
    assert!(
        stderr(&output).contains("team-a   on-demand   gpu        5        6       +1"),
        "{}",
        stderr(&output)
    );
    assert_eq!(bench.spec(), spec("6"));
    let shown = bench.shown(0);
    for part in [
        "#   FLAVOR      RESOURCE   CAPACITY   ASSIGNED   LEFT\n",
        "#   on-demand   gpu        10         5          5\n",
        "# nominalResources: cpu follow capacity",
        "#   team-a   on-demand   gpu        6     3      east 4\n",
        "name: east-resource-claim\n",
    ] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
    assert!(bench.copies().is_empty());
}

#[test]
fn nothing_changed_is_nothing_done() {
    let bench = bench();
    let output = bench.edit(&["true"]);
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(0), "Edit cancelled, no changes made.\n".to_owned())
    );
    let output = bench.edit(&["true", ": > \"$1\""]);
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(0), "Edit cancelled, no changes made.\n".to_owned())
    );
    let said_otherwise = "sed -i \"s/cpu: .*500.*/cpu: 500000m/\" \"$1\"";
    let output =
        bench.edit(&["", "", said_otherwise].map(|script| if script.is_empty() { "true" } else { script }));
    assert_eq!(stderr(&output), "Edit cancelled, no changes made.\n");
    assert_eq!(bench.spec(), spec("5"));
}

#[test]
fn a_mistake_opens_the_editor_again_with_the_reason_on_top() {
    let bench = bench();
    let output = bench.edit(&[
        "sed -i \"s/gpu: ['\\\"]*5['\\\"]*/gpu: -6/\" \"$1\"",
        "echo 'what: [' >> \"$1\"",
        "sed -i -e \"s/gpu: -6/gpu: 6/\" -e '/what/d' \"$1\"",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!((bench.turns().as_str(), bench.spec()), ("3", spec("6")));
    let again = bench.shown(1);
    assert!(again.starts_with("# ! "), "{again}");
    assert!(again.contains("negative"), "{again}");
    assert!(again.contains("gpu: -6"), "what was typed is still there\n{again}");
    assert!(bench.shown(2).contains("what: ["), "also what is no YAML");
    assert_eq!(bench.shown(2).matches("Which ClusterQueue").count(), 1, "the header is not repeated");
}

#[test]
fn giving_up_after_a_mistake_keeps_what_was_typed() {
    let bench = bench();
    let output = bench.edit(&["sed -i \"s/gpu: ['\\\"]*5['\\\"]*/gpu: -6/\" \"$1\"", "true"]);
    assert_eq!(output.status.code(), Some(1));
    let copies = bench.copies();
    assert_eq!(copies.len(), 1);
    assert!(fs::read_to_string(&copies[0]).unwrap().contains("gpu: -6"));
    assert!(
        stderr(&output).contains(&format!("what you wrote is kept in {}", copies[0].display())),
        "{}",
        stderr(&output)
    );
}

#[test]
fn edits_of_others_are_kept_where_they_are_elsewhere() {
    let bench = bench();
    let mut theirs = spec("5");
    theirs["nominalResources"]["cpu"] = "900".into();
    bench.api.served.hub.world().meanwhile.push(theirs);
    let output = bench.edit(&[GPU_6]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("Somebody else changed the claim meanwhile"), "{}", stderr(&output));
    let mut both = spec("6");
    both["nominalResources"]["cpu"] = "900".into();
    assert_eq!((bench.spec(), bench.turns().as_str()), (both, "1"));
}

#[test]
fn where_both_changed_the_same_the_person_decides() {
    let bench = bench();
    bench.api.served.hub.world().meanwhile.push(spec("4"));
    let output = bench.edit(&[GPU_6, "sed -i \"s/gpu: ['\\\"]*6['\\\"]*/gpu: 7/\" \"$1\""]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let again = bench.shown(1);
    assert!(
        again.contains("team-a on-demand gpu: you wrote 6, meanwhile it was set to 4 (it was 5)"),
        "{again}"
    );
    assert_eq!(bench.spec(), spec("7"));
}

#[test]
fn a_collision_saved_as_it_is_shown_is_a_decision() {
    let bench = bench();
    bench.api.served.hub.world().meanwhile.push(spec("4"));
    let output = bench.edit(&[GPU_6, "true"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!((bench.spec(), bench.copies().len()), (spec("6"), 0));
}

#[test]
fn a_collision_given_up_keeps_what_was_typed() {
    let bench = bench();
    bench.api.served.hub.world().meanwhile.push(spec("4"));
    let output = bench.edit(&[GPU_6, ": > \"$1\""]);
    assert_eq!((output.status.code(), bench.spec()), (Some(1), spec("4")));
    let kept = fs::read_to_string(&bench.copies()[0]).unwrap().replace(['\'', '"'], "");
    assert!(kept.contains("gpu: 6"), "{kept}");
}

#[test]
fn a_version_that_moved_with_the_status_alone_is_no_edit_of_others() {
    let bench = bench();
    bench.api.served.hub.world().meanwhile.extend(vec![spec("5"); 12]);
    let output = bench.edit(&[GPU_6]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!stderr(&output).contains("Somebody"), "{}", stderr(&output));
    assert_eq!((bench.spec(), bench.turns().as_str()), (spec("6"), "1"));
}

#[test]
fn a_refusal_that_editing_cannot_cure_keeps_the_text() {
    let bench = bench();
    bench.api.served.hub.world().viewers.insert("ann".to_owned());
    let output = bench.edit(&[GPU_6]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("User \"ann\" cannot PATCH"), "{}", stderr(&output));
    assert!(fs::read_to_string(&bench.copies()[0]).unwrap().contains("gpu: 6"));
}

#[test]
fn an_editor_that_fails_is_named() {
    let bench = bench();
    let output = bench.edit(&["exit 3"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("next: set KUBE_EDITOR"), "{}", stderr(&output));
    assert_eq!(bench.spec(), spec("5"));
}

impl Bench {
    /// As [`Bench::edit`] at a terminal, where a person types; what they saw of it.
    fn edit_at_terminal(&self, scripts: &[&str], typed: &str) -> (Output, String) {
        at_terminal(self.command(scripts), typed)
    }
}

const GPU_7: &str = "sed -i \"s/^\\( *gpu:\\) ['\\\"]*6['\\\"]*$/\\1 7/\" \"$1\"";

#[test]
fn a_person_is_asked_and_may_edit_again() {
    let bench = bench();
    let (output, seen) = bench.edit_at_terminal(&[GPU_6, GPU_7], "e\ny\n");
    assert_eq!((output.status.code(), bench.turns().as_str()), (Some(0), "2"), "{seen}");
    assert_eq!(seen.matches("Apply? [y]es, [e]dit again, [N]o").count(), 2, "{seen}");
    assert_eq!(bench.spec(), spec("7"));
    let again = bench.shown(1);
    assert!(
        again.contains("gpu: 6") && !again.starts_with("# ! "),
        "what was written, and no error\n{again}"
    );
    assert!(bench.copies().is_empty());
}

#[test]
fn edit_again_without_another_change_applies_what_was_written() {
    let bench = bench();
    let (output, seen) = bench.edit_at_terminal(&[GPU_6, "true"], "e\ny\n");
    assert_eq!(output.status.code(), Some(0), "{seen}");
    assert_eq!(bench.spec(), spec("6"));
}

#[test]
fn a_person_who_says_no_keeps_what_they_wrote() {
    let bench = bench();
    let (output, seen) = bench.edit_at_terminal(&[GPU_6], "\n");
    assert_eq!(output.status.code(), Some(1), "{seen}");
    assert_eq!((bench.spec(), bench.copies().len()), (spec("5"), 1));
    assert!(seen.contains("Nothing was changed; what you wrote is kept in"), "{seen}");
}
