//! Programs with generated clients do their job, the commands of `docs/api.md` do what it says, and Schemathesis finds
//! nothing.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use super::{
    checked::Talk,
    demo_process::{Demo, Served},
    relay::relay,
    tools::{
        GO, NODE, PHASES, PYTHON, Tested, Verdict, document, go, read, run, source, tester_finds_nothing,
        write,
    },
};

/// A demo of its own for each test: what is done to one cluster there would be in the way of another.
struct Fedqd {
    server: String,
    token: String,
    talk: Talk,
    _demo: (Served, Demo),
}

impl Fedqd {
    fn start() -> Self {
        let demo = Demo::new();
        let served = demo.serve(&[]);
        let connection = fs::read(served.folder.join("fedq.yaml")).unwrap();
        let connection: Value = serde_json::from_slice(&connection).unwrap();
        let text = |key: &str| connection[key].as_str().unwrap().to_owned();
        Self { server: text("server"), token: text("token"), talk: Talk::default(), _demo: (served, demo) }
    }

    /// With its address and a token, and an address at which connections break.
    fn tell<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let server = self.talk.with(&self.server);
        let cut = relay(server.trim_start_matches("http://").parse().unwrap());
        command.env("FEDQ_SERVER", server).env("FEDQ_TOKEN", &self.token);
        command.env("FEDQ_CUT", format!("http://{cut}"))
    }

    /// The document as it is served, in a file.
    fn document(&self, folder: &Path) -> PathBuf {
        let served =
            run(Command::new("curl").args(["-sSf", &format!("{}/api/v1/openapi.json", self.server)]));
        let kept = fs::read(document()).unwrap();
        let [one, other] =
            [served.as_bytes(), &kept].map(|text| serde_json::from_slice::<Value>(text).unwrap());
        assert!(one == other, "deploy/openapi.json is not what is served");
        let file = folder.join("openapi.json");
        write(&file, &served);
        file
    }
}

#[test]
fn a_program_in_python_does_its_job() {
    let fedqd = Fedqd::start();
    let made = PYTHON.join("made");
    fs::create_dir_all(&made).expect("the target folder is writable");
    let mut generate = Command::new(PYTHON.join("venv/bin/openapi-python-client"));
    generate.args(["generate", "--meta", "none", "--fail-on-warning", "--overwrite", "--path"]);
    generate.arg(fedqd.document(&made)).arg("--config").arg(source("python.yaml"));
    run(generate.arg("--output-path").arg(made.join("fedq")));
    let mut program = Command::new(PYTHON.join("venv/bin/python"));
    run(fedqd.tell(program.arg(source("client.py")).env("PYTHONPATH", made)));
}

#[test]
fn a_program_in_go_does_its_job() {
    let fedqd = Fedqd::start();
    let module = GO.join("go");
    for file in ["main.go", "oapi-codegen.yaml"] {
        write(&module.join(file), &read(&format!("go/{file}")));
    }
    fs::create_dir_all(module.join("fedq")).expect("the target folder is writable");
    let mut generate = Command::new(GO.join("bin/oapi-codegen"));
    run(generate.current_dir(&module).args(["-config", "oapi-codegen.yaml"]).arg(fedqd.document(&module)));
    let program = GO.join("bin/client");
    run(go(&module).arg("build").arg("-o").arg(&program).arg("."));
    run(fedqd.tell(&mut Command::new(program)));
}

#[test]
fn a_tester_by_schemas_finds_nothing() {
    let fedqd = Fedqd::start();
    tester_finds_nothing(&fedqd.server, &fedqd.token, |_| ());
}

/// A phase that cannot find what is wrong finds nothing for that reason. In each, one thing that the document says is not so:
/// of the answer to an example, of a list, and of what only links lead to, since nobody draws a claim's name.
#[test]
fn a_tester_by_schemas_finds_what_is_wrong_with_a_document() {
    let fedqd = Fedqd::start();
    let folder = tempfile::tempdir().unwrap();
    let document: Value = serde_json::from_slice(&fs::read(document()).unwrap()).unwrap();
    let wants_colour = |schema: &str| {
        let mut document = document.clone();
        document["components"]["schemas"][schema]["required"].as_array_mut().unwrap().push("colour".into());
        document
    };
    let mut answers = document.clone();
    let diff = &mut answers["paths"]["/api/v1/claims/{claim}/diff"]["post"]["responses"];
    for status in ["200", "422"] {
        diff.as_object_mut().unwrap().remove(status).unwrap();
    }
    for phase in &PHASES {
        let (wrong, operations, found) = match phase.name {
            "examples" => (answers.clone(), ["diff_claim"].as_slice(), "UndefinedStatusCode"),
            "stateful" => {
                (wants_colour("ClaimDetail"), ["list_claims", "get_claim"].as_slice(), "JsonSchemaError")
            }
            _ => (wants_colour("ClaimList"), ["list_claims"].as_slice(), "JsonSchemaError"),
        };
        let file = folder.path().join(format!("{}.json", phase.name));
        write(&file, &wrong.to_string());
        let (server, token, document) = (&fedqd.server, &fedqd.token, file.to_str().unwrap());
        let verdict = phase.run(Tested { server, token, document, operations, seconds: None }, |_| ());
        let Verdict { said, report } = verdict;
        let kinds: Vec<_> = report["failures"].as_array().unwrap().iter().map(|one| &one["type"]).collect();
        assert_eq!(
            (&report["exit_code"], kinds.as_slice()),
            (&json!(1), [&json!(found)].as_slice()),
            "{}:\n{said}",
            phase.name
        );
    }
}

/// Blocks of `docs/api.md` in the order they stand there: `sh` is run by one shell, others are written to the file that
/// the line before them names. Each of its three programs submits a task.
#[test]
fn the_commands_of_the_page_on_the_api_work() {
    let fedqd = Fedqd::start();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api.md");
    let page = fs::read_to_string(page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut script = String::from("set -eux\n");
    let mut parts = page.split("\n```");
    let mut before = parts.next().unwrap();
    while let (Some(block), Some(after)) = (parts.next(), parts.next()) {
        let (language, text) = block.split_once('\n').unwrap();
        if language == "sh" {
            script.extend([text, "\n"]);
        } else {
            let name = before.rsplit('`').nth(1).unwrap();
            write(&folder.path().join(name), text);
        }
        before = after;
    }
    let paths = [PYTHON.join("venv/bin"), NODE.join("node_modules/.bin"), GO.join("bin")];
    let usual = std::env::var_os("PATH").unwrap();
    let paths = paths.into_iter().chain(std::env::split_paths(&usual));
    let path = std::env::join_paths(paths).unwrap();
    let mut shell = Command::new("sh");
    shell.env("GOWORK", "off").env("CGO_ENABLED", "0").env_remove("GOFLAGS");
    let said = run(fedqd.tell(shell.current_dir(folder.path()).env("PATH", path).args(["-c", &script])));
    let over = |line: &str| line.starts_with("task ") && line.ends_with(" succeeded");
    assert!(said.lines().any(over), "the task did not succeed:\n{said}");
    for expected in ["SYNCED", "hello from", "412"] {
        assert!(said.contains(expected), "no {expected} in\n{said}");
    }
    assert_eq!(said.matches("submitted ").count(), 3, "{said}");
}
