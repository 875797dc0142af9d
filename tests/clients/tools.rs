//! What others make, pinned by files here, installed once and kept in the target folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

/// What `tests/clients/package-lock.json` pins, in the target folder.
pub static NODE: LazyLock<PathBuf> = LazyLock::new(|| {
    installed("node", &["package.json", "package-lock.json"], |folder| {
        run(Command::new("npm").current_dir(folder).args(["ci", "--no-audit", "--no-fund", "--silent"]));
    })
});

/// What `tests/clients/requirements.txt` pins, in the target folder.
pub static PYTHON: LazyLock<PathBuf> = LazyLock::new(|| {
    installed("python", &["requirements.txt"], |folder| {
        run(Command::new("python3").current_dir(folder).args(["-m", "venv", "venv"]));
        let pip = folder.join("venv/bin/pip");
        run(Command::new(pip).current_dir(folder).args(["install", "--quiet", "-r", "requirements.txt"]));
    })
});

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

/// A run against fedqd at `server`, a short one unless `FEDQ_TESTER_SECONDS` says how long. What it finds that is meant
/// stands with its reason in `schemathesis.toml`.
pub fn schemathesis(server: &str, token: &str) -> Command {
    // It keeps examples of earlier runs where it is started.
    let folder = PYTHON.join("schemathesis");
    for file in ["schemathesis.toml", "hooks.py"] {
        write(&folder.join(file), &read(&format!("schemathesis/{file}")));
    }
    let mut tester = Command::new(PYTHON.join("venv/bin/schemathesis"));
    let seconds = std::env::var_os("FEDQ_TESTER_SECONDS").unwrap_or_else(|| "20".into());
    tester
        .current_dir(&folder)
        .args(["--config-file", "schemathesis.toml", "run", "--max-time"])
        .arg(seconds);
    tester.arg(format!("{server}/api/v1/openapi.json"));
    tester.env("FEDQ_SERVER", server).env("FEDQ_TOKEN", token);
    tester
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
