//! The program as it is called. It also has cargo build it with the tests, so that those on real servers find it.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fedq-appwrapper")).args(arguments).output().expect("it starts")
}

#[test]
fn the_definition_that_is_printed_is_the_one_that_is_shipped() {
    let out = run(&["--print-crd"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let shipped: serde_json::Value =
        serde_saphyr::from_str(include_str!("../../../deploy/appwrapper/crd.yaml")).expect("YAML");
    let printed: serde_json::Value =
        serde_saphyr::from_str(&String::from_utf8(out.stdout).expect("text")).expect("YAML");
    assert_eq!(printed, shipped);
}

#[test]
fn a_configuration_that_cannot_be_read_is_named() {
    let out = run(&["--config", "/nowhere/config.yaml"]);
    assert!(!out.status.success());
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("read /nowhere/config.yaml"), "{said}");
}
