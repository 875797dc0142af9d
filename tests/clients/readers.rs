//! Tools of the field read the API's document: who cannot, has no client.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

use super::tools::{GO, NODE, PYTHON, document, node, read, run, source};

#[test]
fn a_validator_takes_the_document() {
    let validator = PYTHON.join("venv/bin/openapi-spec-validator");
    run(Command::new(validator).arg(document()));
}

#[test]
fn a_linter_finds_nothing_in_the_document() {
    let lint = |document: &Path| {
        let mut linter = node("redocly");
        linter.arg("lint").arg(document).arg("--config").arg(source("redocly.yaml"));
        linter.args(["--max-problems", "20"]);
        linter
    };
    run(&mut lint(&document()));
    // Nor anything that its recommended rules only warn of.
    let mut changed: Value = serde_json::from_slice(&fs::read(document()).unwrap()).unwrap();
    changed["tags"][0].as_object_mut().unwrap().remove("description").unwrap();
    let file = NODE.join("without_description.json");
    fs::write(&file, changed.to_string()).expect("the target folder is writable");
    let output = lint(&file).output().expect("redocly starts");
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!output.status.success() && told.contains("tag-description"), "{told}");
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
    let program = read("client.ts");
    run(&mut check("client.ts", &program));
    // The check can fail.
    let wrong = program.replace("cluster.nodes.usable", "cluster.nodes.useable");
    assert_ne!(wrong, program);
    let output = check("wrong.ts", &wrong).output().expect("tsc starts");
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stdout).contains("useable"));
}

/// What of `before` its clients rely on and `after` has no more, in words that begin with `No ` where that is nothing.
fn breaking(before: &Path, after: &Path) -> String {
    let output = Command::new(GO.join("bin/oasdiff"))
        .args(["breaking", "--fail-on", "ERR", "--format", "singleline"])
        .args([before, after])
        .output()
        .expect("oasdiff starts");
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.success(), told.starts_with("No "), "{told}");
    told
}

/// The version that is made first. Every other one comes after a release.
const FIRST: &str = "0.1.0";
/// The document of the last release, a copy of `deploy/openapi.json` as it was then.
const RELEASED: &str = "deploy/openapi.released.json";

/// Whether `version` has to be compared with the document of the last release, which is of version `kept` where it is kept.
fn is_compared(version: &str, kept: Option<&str>) -> Result<bool, String> {
    match kept {
        Some(_) => Ok(true),
        None if version == FIRST => Ok(false),
        None => Err(format!(
            "version {version} comes after a release, and {RELEASED} is not there to compare with: put the \
             deploy/openapi.json of the last release there"
        )),
    }
}

#[test]
fn no_release_breaks_the_clients_of_the_one_before() {
    assert_eq!(is_compared(FIRST, None), Ok(false));
    assert_eq!(is_compared(FIRST, Some(FIRST)), Ok(true));
    assert_eq!(is_compared("0.2.0", Some(FIRST)), Ok(true));
    for later in ["0.1.1", "0.2.0", "1.0.0"] {
        assert!(is_compared(later, None).unwrap_err().contains(RELEASED), "{later}");
    }
    let released = Path::new(env!("CARGO_MANIFEST_DIR")).join(RELEASED);
    let kept = fs::read(&released).ok().map(|text| serde_json::from_slice::<Value>(&text).unwrap());
    let kept = kept.as_ref().map(|document| document["info"]["version"].as_str().unwrap());
    if is_compared(env!("CARGO_PKG_VERSION"), kept).unwrap_or_else(|missing| panic!("{missing}")) {
        let told = breaking(&released, &document());
        assert!(told.starts_with("No "), "clients of the last release would break:\n{told}");
    }
}

/// What `change` makes of the document breaks clients; the tool that compares it with the last release's must see it.
fn breaks(name: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut changed: Value = serde_json::from_slice(&fs::read(document()).unwrap()).unwrap();
    change(&mut changed);
    let file = GO.join(format!("{name}.json"));
    fs::write(&file, changed.to_string()).expect("the target folder is writable");
    breaking(&document(), &file)
}

#[test]
fn what_breaks_clients_is_seen() {
    assert!(breaks("same", |_| ()).starts_with("No "));
    let told = breaks("field", |document| {
        let cluster = document["components"]["schemas"]["Cluster"].as_object_mut().unwrap();
        cluster["properties"].as_object_mut().unwrap().remove("state").unwrap();
        cluster["required"].as_array_mut().unwrap().retain(|name| name != "state");
    });
    assert!(told.contains("state"), "{told}");
    let told = breaks("operation", |document| {
        document["paths"].as_object_mut().unwrap().remove("/api/v1/tasks/{task}/stop").unwrap();
    });
    assert!(told.contains("stop"), "{told}");
    let told = breaks("parameter", |document| {
        let parameters = &mut document["paths"]["/api/v1/clusters"]["get"]["parameters"];
        let zone = json!({"name": "zone", "in": "query", "required": true, "schema": {"type": "string"}});
        parameters.as_array_mut().unwrap().push(zone);
    });
    assert!(told.contains("zone"), "{told}");
}
