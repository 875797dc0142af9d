//! A library in front of fedqd's C library: its clock jumps, its disk is full, it dies at a given sync, and names
//! lead where a test says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Preload {
    folder: PathBuf,
}

impl Preload {
    /// Compiled each time with the C compiler that SQLite is compiled with.
    pub fn build(folder: &Path) -> Self {
        std::fs::create_dir(folder).unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sim/faults/preload.c");
        let library = folder.join("preload.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
        let built = compiler.output().expect("a C compiler, as SQLite needs one too");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Self { folder: folder.to_owned() }
    }

    pub fn environment(&self, database: &Path) -> Vec<(&'static str, String)> {
        let database = std::fs::canonicalize(database).unwrap();
        vec![
            ("LD_PRELOAD", self.folder.join("preload.so").display().to_string()),
            ("FEDQ_FAULTS", self.folder.display().to_string()),
            ("FEDQ_FAULTS_DATABASE", database.display().to_string()),
        ]
    }

    /// `full`, `broken`, or nothing wrong.
    pub fn set_disk(&self, failure: &str) {
        self.tell("disk", failure);
    }

    /// Ahead of the true time, or behind.
    pub fn set_clock(&self, seconds: i64) {
        self.tell("clock", &seconds.to_string());
    }

    /// It kills itself at the sync of that number since its start; 0 is never.
    pub fn kill_at_sync(&self, number: i64) {
        self.tell("kill", &number.to_string());
    }

    /// What DNS says of a name from now on.
    pub fn set_address(&self, name: &str, address: &str) {
        self.tell("address", &format!("{name} {address}"));
    }

    /// Each IPv4 address that it ever called.
    pub fn dialled(&self) -> BTreeSet<String> {
        let dialled = std::fs::read_to_string(self.folder.join("dialled")).unwrap();
        dialled.lines().map(str::to_owned).collect()
    }

    /// In one step, since it is read at any time.
    fn tell(&self, name: &str, text: &str) {
        let draft = self.folder.join("draft");
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(draft, self.folder.join(name)).unwrap();
    }
}
