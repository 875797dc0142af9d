//! What k8s-cli's server answers on FastAPI itself: `tests/serve` has fedqd give the same.

use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
};

use super::tools::{FASTAPI, read, source};

#[test]
fn the_exchanges_are_those_of_fastapi_itself() {
    const KEPT: &str = "k8s_cli/exchanges.json";
    let mut server = Command::new(FASTAPI.join("venv/bin/python"));
    let mut server = server
        .arg(source("k8s_cli/server.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let kept = read(KEPT);
    server.stdin.take().unwrap().write_all(kept.as_bytes()).unwrap();
    let output = server.wait_with_output().unwrap();
    assert!(output.status.success());
    let told = String::from_utf8(output.stdout).unwrap();
    if told != kept && std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(source(KEPT), &told).unwrap();
        return;
    }
    let differ = told.lines().zip(kept.lines()).find(|(told, kept)| told != kept);
    assert!(told == kept, "FastAPI and the file: {differ:#?}");
}
