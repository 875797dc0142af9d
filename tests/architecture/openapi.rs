//! Tools of the field read the API's document: who cannot, has no client.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use super::imports::read;

/// What `tests/clients/package-lock.json` pins, in the target folder.
static NODE: LazyLock<PathBuf> = LazyLock::new(|| {
    installed("node", &["package.json", "package-lock.json"], |folder| {
        run(Command::new("npm").current_dir(folder).args(["ci", "--no-audit", "--no-fund", "--silent"]));
    })
});

/// What `tests/clients/requirements.txt` pins, in the target folder.
static PYTHON: LazyLock<PathBuf> = LazyLock::new(|| {
    installed("python", &["requirements.txt"], |folder| {
        run(Command::new("python3").current_dir(folder).args(["-m", "venv", "venv"]));
        let pip = folder.join("venv/bin/pip");
        run(Command::new(pip).current_dir(folder).args(["install", "--quiet", "-r", "requirements.txt"]));
    })
});

/// A folder with `files`, in which `install` was once through with these very files.
fn installed(name: &str, files: &[&str], install: impl FnOnce(&Path)) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(name);
    let pins: Vec<String> = files.iter().map(|file| read(&format!("tests/clients/{file}"))).collect();
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
        fs::write(folder.join(file), text).expect("the target folder is writable");
    }
    install(&folder);
    fs::write(done, pins_text).expect("the target folder is writable");
    folder
}

/// Fails with what it printed, unless it succeeds.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?} ended with {}:\n{text}", output.status);
    text
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/openapi.json")
}

fn node(tool: &str) -> Command {
    let mut command = Command::new(NODE.join("node_modules/.bin").join(tool));
    command.current_dir(NODE.as_path()).env("REDOCLY_TELEMETRY", "off").env("CI", "1");
    command
}

#[test]
fn a_validator_takes_the_document() {
    let validator = PYTHON.join("venv/bin/openapi-spec-validator");
    run(Command::new(validator).arg(document()));
}

#[test]
fn a_linter_finds_nothing_in_the_document() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/redocly.yaml");
    run(node("redocly")
        .arg("lint")
        .arg(document())
        .arg("--config")
        .arg(config)
        .args(["--max-problems", "20"]));
}

/// A page or a program in TypeScript knows of every answer what is in it.
#[test]
fn a_client_in_typescript_is_typed_by_the_document() {
    let client = NODE.join("client");
    fs::create_dir_all(&client).expect("the target folder is writable");
    let types = client.join("fedq.d.ts");
    run(node("openapi-typescript").arg(document()).arg("-o").arg(&types));
    let check = |name: &str, program: &str| {
        let file = client.join(name);
        fs::write(&file, program).expect("the target folder is writable");
        let mut tsc = node("tsc");
        tsc.args([
            "--strict",
            "--noEmit",
            "--skipLibCheck",
            "false",
            "--target",
            "es2022",
            "--lib",
            "es2022,dom",
        ]);
        tsc.args(["--moduleResolution", "bundler", "--module", "esnext"]).arg(file);
        tsc
    };
    let program = read("tests/clients/client.ts");
    run(&mut check("client.ts", &program));
    // The check can fail.
    let wrong = program.replace("cluster.nodes.usable", "cluster.nodes.useable");
    assert_ne!(wrong, program);
    let output = check("wrong.ts", &wrong).output().expect("tsc starts");
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stdout).contains("useable"));
}

#[test]
fn a_client_in_python_is_made_from_the_document() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::create_dir_all(PYTHON.join("made")).expect("the target folder is writable");
    let generator = PYTHON.join("venv/bin/openapi-python-client");
    let mut generate = Command::new(generator);
    generate
        .args(["generate", "--meta", "none", "--fail-on-warning", "--overwrite", "--path"])
        .arg(document());
    generate.arg("--config").arg(root.join("tests/clients/python.yaml"));
    run(generate.arg("--output-path").arg(PYTHON.join("made/fedq")));
    let mut program = Command::new(PYTHON.join("venv/bin/python"));
    run(program.arg(root.join("tests/clients/client.py")).env("PYTHONPATH", PYTHON.join("made")));
}
