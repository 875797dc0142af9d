//! Manual pages, as the two programs that show them read them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{found, said};

fn pages(folder: &Path) -> Vec<PathBuf> {
    let made = Command::new(env!("CARGO_BIN_EXE_fedq")).arg("man").arg(folder).env_clear().output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let fedqd = Command::new(env!("CARGO_BIN_EXE_fedqd")).arg("--print-man").env_clear().output().unwrap();
    fs::write(folder.join("fedqd.1"), fedqd.stdout).unwrap();
    let mut pages: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    assert!(60 < pages.len(), "{pages:?}");
    pages
}

#[test]
fn mandoc_and_groff_read_every_page_without_a_warning() {
    let (mandoc, groff) = (found("mandoc", "mandoc"), found("groff", "groff-base"));
    let folder = tempfile::tempdir().unwrap();
    let pages = pages(folder.path());
    let lint =
        |pages: &[PathBuf]| said(Command::new(&mandoc).args(["-T", "lint", "-W", "warning"]).args(pages));
    let set =
        |pages: &[PathBuf]| said(Command::new(&groff).args(["-man", "-Tutf8", "-ww", "-z"]).args(pages));
    assert_eq!(lint(&pages), (true, String::new()));
    assert_eq!(set(&pages), (true, String::new()));

    let broken = folder.path().join("broken.1");
    fs::write(&broken, ".TH broken 1\n.SH NAME\nbroken \\- \\fB\n.XY\n").unwrap();
    let broken = [broken];
    assert!(!lint(&broken).0, "mandoc says what is wrong");
    assert!(!set(&broken).1.is_empty(), "groff says what is wrong");
}
