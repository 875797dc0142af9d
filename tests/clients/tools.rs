//! What others make, pinned by files here, installed once and kept in the target folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use serde_json::Value;

/// What `tests/clients/package-lock.json` pins, in the target folder.
pub static NODE: LazyLock<PathBuf> = LazyLock::new(|| {
    installed("node", &["package.json", "package-lock.json"], |folder| {
        run(Command::new("npm").current_dir(folder).args(["ci", "--no-audit", "--no-fund", "--silent"]));
    })
});

/// What `tests/clients/requirements.txt` pins, in the target folder.
pub static PYTHON: LazyLock<PathBuf> = LazyLock::new(|| packages("python", "requirements.txt"));

/// What k8s-cli's server is made of, in the target folder.
pub static FASTAPI: LazyLock<PathBuf> = LazyLock::new(|| packages("fastapi", "k8s_cli/requirements.txt"));

fn packages(name: &str, requirements: &str) -> PathBuf {
    installed(name, &[requirements], |folder| {
        run(Command::new("python3").current_dir(folder).args(["-m", "venv", "venv"]));
        let pip = folder.join("venv/bin/pip");
        run(Command::new(pip).current_dir(folder).args(["install", "--quiet", "-r", requirements]));
    })
}

/// What `tests/clients/go/go.mod` pins, in the target folder. It takes two minutes of one core when Go's cache is empty.
pub static GO: LazyLock<PathBuf> = LazyLock::new(|| {
    installed("go", &["go/go.mod", "go/go.sum"], |folder| {
        let bin = folder.join("bin/");
        fs::create_dir_all(&bin).expect("the target folder is writable");
        run(go(&folder.join("go")).arg("build").arg("-o").arg(bin).args([
            "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen",
            "github.com/oasdiff/oasdiff",
        ]));
    })
});

/// OpenTelemetry's collector, as far as it reads logs: what `tests/clients/collector` pins. It takes a minute of one core when
/// Go's cache is empty.
pub static COLLECTOR: LazyLock<PathBuf> = LazyLock::new(|| {
    let files = ["collector/go.mod", "collector/go.sum", "collector/main.go"];
    let folder = installed("collector", &files, |folder| {
        run(go(&folder.join("collector")).args(["build", "-o", "../read", "."]));
    });
    folder.join("read")
});

pub fn go(module: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(module).env("GOWORK", "off").env("CGO_ENABLED", "0").env_remove("GOFLAGS");
    go
}

/// A folder with `files`, in which `install` was once through with these very files.
fn installed(name: &str, files: &[&str], install: impl FnOnce(&Path)) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(name);
    let pins: Vec<String> = files.iter().map(|file| read(file)).collect();
    let (done, pins_text) = (folder.join("installed"), pins.concat());
    if fs::read_to_string(&done).is_ok_and(|text| text == pins_text) {
        return folder;
    }
    if folder.exists() {
        // What an install that broke off left behind.
        fs::remove_dir_all(&folder).expect("the target folder is writable");
    }
    fs::create_dir_all(&folder).expect("the target folder is writable");
    for (file, text) in files.iter().zip(&pins) {
        write(&folder.join(file), text);
    }
    install(&folder);
    fs::write(done, pins_text).expect("the target folder is writable");
    folder
}

/// Fails with what it printed, unless it succeeds.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?} ended with {}:\n{text}", output.status);
    text
}

pub fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/openapi.json")
}

pub fn node(tool: &str) -> Command {
    let mut command = Command::new(NODE.join("node_modules/.bin").join(tool));
    command.current_dir(NODE.as_path()).env("REDOCLY_TELEMETRY", "off").env("CI", "1");
    command
}

/// Schemathesis's phases. Each is run by itself, so that none takes the time of another.
pub const PHASES: [Phase; 4] = [
    Phase { name: "examples", examples: 1, least: 10 },
    Phase { name: "coverage", examples: 1, least: 1000 },
    Phase { name: "fuzzing", examples: 3, least: 100 },
    Phase { name: "stateful", examples: 10, least: 40 },
];

pub struct Phase {
    pub name: &'static str,
    /// Of each operation or chain of them, in a short run.
    examples: u32,
    /// Requests that a short run makes at least. One that makes fewer was cut off, or could not read the document.
    least: u64,
}

/// What is tested.
#[derive(Clone, Copy)]
pub struct Tested<'a> {
    pub server: &'a str,
    pub token: &'a str,
    /// The document that it is held against: its address, or a file.
    pub document: &'a str,
    /// Only these operations.
    pub operations: &'a [&'a str],
    /// How long to go on; a short run asks the same each time.
    pub seconds: Option<u64>,
}

/// What a run of Schemathesis came to.
pub struct Verdict {
    pub said: String,
    pub report: Value,
}

impl Phase {
    /// What it finds that is meant stands with its reason in `schemathesis.toml`. In a long run requests are drawn, and the
    /// two phases that never come to an end have one half of the time each.
    pub fn run(&self, tested: Tested<'_>, adopt: impl Fn(&mut Command)) -> Verdict {
        let folder = tempfile::tempdir().expect("there is room for temporary files");
        for file in ["schemathesis.toml", "hooks.py"] {
            write(&folder.path().join(file), &read(&format!("schemathesis/{file}")));
        }
        let report = folder.path().join("report.json");
        let mut tester = Command::new(PYTHON.join("venv/bin/schemathesis"));
        // It keeps what it found where it is started.
        tester.current_dir(folder.path()).args([
            "--config-file",
            "schemathesis.toml",
            "run",
            tested.document,
        ]);
        tester.args(["--phases", self.name, "--report", "json", "--report-json-path"]).arg(&report);
        for operation in tested.operations {
            tester.args(["--include-operation-id", operation]);
        }
        match tested.seconds {
            None => drop(tester.args(["--seed", "1", "--max-examples", &self.examples.to_string()])),
            Some(seconds) if ["fuzzing", "stateful"].contains(&self.name) => {
                tester.args(["--max-time", &seconds.div_ceil(2).to_string()]);
            }
            Some(_) => {}
        }
        tester.env("FEDQ_SERVER", tested.server).env("FEDQ_TOKEN", tested.token);
        adopt(&mut tester);
        let output = tester.output().expect("schemathesis starts");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let report = fs::read(&report).unwrap_or_else(|error| panic!("no report: {error}\n{said}"));
        Verdict { said, report: serde_json::from_slice(&report).expect("the report is JSON") }
    }
}

/// Fails with what one of the phases found, or if one was not run as a whole. `FEDQ_TESTER_SECONDS` makes it a long run.
pub fn tester_finds_nothing(server: &str, token: &str, adopt: impl Fn(&mut Command)) {
    let document = format!("{server}/api/v1/openapi.json");
    let seconds = std::env::var_os("FEDQ_TESTER_SECONDS").map(|seconds| {
        let seconds = seconds.to_str().and_then(|seconds| seconds.parse().ok());
        seconds.expect("FEDQ_TESTER_SECONDS is a number")
    });
    for phase in &PHASES {
        let tested = Tested { server, token, document: &document, operations: &[], seconds };
        let Verdict { said, report } = phase.run(tested, &adopt);
        let name = phase.name;
        assert_eq!(report["exit_code"], 0, "{name}:\n{said}");
        assert_eq!(report["phases"][name]["status"], "success", "{name} was not run: {report:#}\n{said}");
        let made = report["test_cases"]["generated"].as_u64();
        assert!(Some(phase.least) <= made, "{name} made {made:?} requests: {report:#}\n{said}");
    }
}

/// A file of `tests/clients`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

pub fn read(name: &str) -> String {
    let path = source(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// With the folders above it.
pub fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("the target folder is writable");
    fs::write(path, text).expect("the target folder is writable");
}
